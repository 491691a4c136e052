//! Runs kernels in a guest, whose page tables can ask for memory types: write-back, write-combining, uncacheable and so
//! on. The guest's code, its streams and its clock are those of native runs; all that differs is the type of its pages.
//!
//! A type is believed only once it has been proved by behaviour ([`membound_core::memory::behaviour`]). Where that fails, no
//! sample is taken.

#![allow(unsafe_code)]

pub mod guest;
pub mod tables;
pub mod watchdog;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::answers::timed_scalar;
use crate::arena::{Arenas, Arrays, Layout, Mapping};
use crate::asm::{CHAIN_LINKS, assemble, core_clock_chain};
use crate::bench::{StealMeter, check_whole_accesses, compile, volume};
use crate::code::{Call, MachineCode};
use crate::executor::microvm::guest::{Backed, Guest};
use crate::executor::with_room;
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use crate::os::thread;
use crate::os::thread::ThreadUsage;
use crate::schedule::{Executor, Quota};
use crate::team::LONE_SAMPLE;
use crate::threads::pinned;
use crate::warm_up::WarmUp;
use membound_core::case::{Case, Protocol, Work};
use membound_core::kernel::Variant;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::isa::Isa;
use membound_core::memory::behaviour::{Lines, PROBE, Touch};
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec, behaviour};
use membound_core::record::{Clock, Measured, Outcome, Sample, Samples};
use membound_core::units::LINE;

/// Trips of the core clock chain, short and long. What is kept is the difference, 20,000 cycles, so that the cost of the
/// call and of reading the clock (some 150 cycles) drops out.
const CLOCK_TRIPS: [u64; 2] = [20, 220];
const CORE_CLOCK_LINKS: u64 = (CLOCK_TRIPS[1] - CLOCK_TRIPS[0]) * CHAIN_LINKS;
/// A guest that takes this much longer than it may need is taken to hang.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest that a guest may need for one word: more than an uncached access to far memory.
const WORD: Duration = Duration::from_micros(1);
/// Span over which the guest's clock is held against the host's, and by what share they may differ: far less would
/// show in a figure, and readings on both sides of entering and leaving a guest are not closer than that.
const CLOCK_SPAN: Duration = Duration::from_millis(10);
const CLOCK_TOLERANCE: f64 = 1e-3;

/// The executor for memory types. Opens nothing until it is asked to visit a case.
#[derive(Debug)]
pub struct MicroVm {
    ticker: Ticker,
    clock: Clock,
    isa: Isa,
    codes: HashMap<Variant, Result<MachineCode, NoVisit>>,
    arenas: Arenas,
    /// What came of proving a type.
    verdicts: HashMap<MemoryKind, Result<Proof, String>>,
    /// Whether the guest's clock was found to tick like the host's.
    clock_checked: bool,
    verify: bool,
}

impl MicroVm {
    /// Prepares to run `cases`, by a clock that the caller has calibrated.
    pub fn new(cases: &[Case], ticker: Ticker, clock: Clock, places: Places, verify: bool) -> Self {
        let mut microvm = MicroVm {
            ticker,
            clock,
            isa: crate::asm::detect(),
            codes: HashMap::new(),
            arenas: Arenas::new(places, host_memory),
            verdicts: HashMap::new(),
            clock_checked: false,
            verify,
        };
        microvm.expect(cases);
        microvm
    }

    fn code(&mut self, variant: &Variant) -> Result<MachineCode, NoVisit> {
        let isa = self.isa;
        // A native call on small arrays shows whether the code is right; the guest then runs the same bytes.
        let tested = || compile(variant, isa).and_then(|_| Ok(assemble(variant, isa)?));
        self.codes.entry(variant.clone()).or_insert_with(tested).clone()
    }

    /// Proves a type, or remembers the verdict.
    fn proved(&mut self, kind: MemoryKind, cpu: u32) -> Result<Proof, NoVisit> {
        let wrong = |reason: &String| NoVisit::Wrong(reason.clone());
        if let Some(verdict) = self.verdicts.get(&kind) {
            return verdict.clone().map_err(|reason| wrong(&reason));
        }
        let (devices, ns_per_tick) = (&self.arenas.places().devices, 1e9 / self.clock.hz.0);
        // A failure to run is no verdict: it is tried again at the next visit.
        let verdict = pinned(cpu, || prove(kind, devices, ns_per_tick))?;
        self.verdicts.entry(kind).or_insert(verdict).as_ref().map(Proof::clone).map_err(wrong)
    }

    fn check_clock(&mut self, cpu: u32) -> Result<(), NoVisit> {
        if self.ticker != Ticker::Tsc {
            return Err(NoVisit::impossible(
                "a guest has no clock but the time stamp counter, which is not invariant here or lacks rdtscp",
            ));
        }
        if !self.clock_checked {
            let (devices, ticker) = (&self.arenas.places().devices, self.ticker);
            pinned(cpu, || check_clock(devices, ticker))?;
            self.clock_checked = true;
        }
        Ok(())
    }
}

impl Executor for MicroVm {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn expect(&mut self, cases: &[Case]) {
        self.arenas.expect(cases);
    }

    fn begin_round(&mut self) {
        self.arenas.give_back();
    }

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        with_room(self, |microvm| microvm.try_visit(case, quota))
    }
}

impl MicroVm {
    /// A visit, as far as memory allows that is not kept for other cases.
    pub(crate) fn try_visit(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Measured, NoVisit> {
        let Work::Kernel(variant) = &case.work else {
            return Err(NoVisit::impossible("the micro-VM runs kernels only; use `membound bandwidth`"));
        };
        let &[cpu] = case.cpus.as_slice() else {
            return Err(NoVisit::impossible("the micro-VM has one processor; give --threads 1"));
        };
        let kernel = Kernel::find(&variant.kernel)?;
        let code = self.code(variant)?;
        self.check_clock(cpu)?;
        let layout = Layout::new(kernel, variant.element, case);
        let kinds = layout.arenas().map(|(key, _)| key.spec.kind).filter(|kind| kind.is_memory_type());
        let proofs: Vec<Proof> = kinds.map(|kind| self.proved(kind, cpu)).collect::<Result<_, _>>()?;
        let mut arrays = self.arenas.arrays(cpu, kernel, &layout)?;
        if let Some(reason) = arrays.refusal() {
            return Err(NoVisit::impossible(reason));
        }
        let visit = Visit {
            case,
            variant,
            kernel,
            layout: &layout,
            code: &code,
            devices: &self.arenas.places().devices,
            ticker: self.ticker,
            warm_up: WarmUp::new(LONE_SAMPLE, self.clock.hz),
            quota,
            verify: self.verify,
        };
        let taken = pinned(cpu, || visit.measure(&mut arrays));
        let mut obtained = arrays.obtained();
        for proof in proofs {
            if !obtained.proofs.contains(&proof) {
                obtained.proofs.push(proof);
            }
        }
        // After a crash memory may be missing; the next case gets new one.
        if !taken.as_ref().is_err_and(NoVisit::is_crash) {
            self.arenas.keep(cpu, arrays);
        }
        let taken = taken?;
        Ok(Measured {
            volume: volume(kernel, variant, taken.elements),
            repetitions: taken.repetitions,
            core_clock_links: CORE_CLOCK_LINKS,
            samples: taken.samples,
            obtained,
        })
    }
}

/// The memory of this process behind memory of a guest: for the types, that which is fastest.
fn host_memory(spec: MemorySpec) -> MemorySpec {
    let kind = if spec.kind.is_memory_type() { MemoryKind::Thp } else { spec.kind };
    MemorySpec { kind, ..spec }
}

/// The guest's clock must tick like the host's. Both are read twice, with a while in between: the span by the guest's
/// clock lies between the shortest and the longest span that the host's readings around it allow.
fn check_clock(devices: &Path, ticker: Ticker) -> Result<(), NoVisit> {
    // SAFETY: no memory is handed over.
    let mut guest = unsafe { Guest::new(devices, &[]) }?;
    let chain = guest.load(&core_clock_chain()?)?;
    let mut reading = || {
        let before = ticker.now();
        let run = guest.run(&mut [(chain, &mut Call::empty(1))], PATIENCE)?;
        Ok::<_, NoVisit>((before, run.end, ticker.now()))
    };
    reading()?;
    let first = reading()?;
    std::thread::sleep(CLOCK_SPAN);
    let last = reading()?;
    let spans = [last.0.saturating_sub(first.2), last.1.saturating_sub(first.1), last.2.saturating_sub(first.0)];
    let [shortest, seen, longest] = spans.map(|span| span as f64);
    if seen < shortest * (1.0 - CLOCK_TOLERANCE) || seen > longest * (1.0 + CLOCK_TOLERANCE) {
        return Err(NoVisit::impossible(format!(
            "the guest's time stamp counter does not tick like the host's: {seen} ticks in {shortest} to {longest}"
        )));
    }
    Ok(())
}

/// Observes memory of type `kind` and write-back memory beside it, in one guest.
fn prove(kind: MemoryKind, devices: &Path, ns_per_tick: f64) -> Result<Result<Proof, String>, NoVisit> {
    let region = || Region::new(MemorySpec::of(MemoryKind::Thp), PROBE, &Places::default());
    let regions = [region()?, region()?];
    let backed =
        |region: &Region, kind| Backed { address: region.address(), bytes: region.bytes().0, kind, writable: true };
    let memory = [backed(&regions[0], kind), backed(&regions[1], MemoryKind::Wb)];
    // SAFETY: the regions outlive the guest, which was declared after them, and nothing else refers to their memory.
    let mut guest = unsafe { Guest::new(devices, &memory) }?;
    let mut codes = Vec::new();
    for touch in Touch::ALL {
        codes.push(guest.load(&crate::asm::touch(touch)?)?);
    }
    let mut lines = GuestLines { guest: &mut guest, codes, window: 1, ns_per_tick };
    let reference = behaviour::observe_reference(&mut lines)?;
    let seen = behaviour::observe(&mut GuestLines { window: 0, ..lines })?;
    Ok(behaviour::prove(kind, &seen, &reference))
}

/// The first lines of a guest's window.
struct GuestLines<'a> {
    guest: &'a mut Guest,
    /// In the order of [`Touch`].
    codes: Vec<u64>,
    window: usize,
    ns_per_tick: f64,
}

impl Lines for GuestLines<'_> {
    type Fault = NoVisit;

    fn touch(&mut self, touches: &[Touch]) -> Result<Vec<f64>, NoVisit> {
        let lines = PROBE.0 / LINE;
        let mut calls: Vec<Call> = Vec::new();
        // The first call has no lines: what it takes is the cost of a call and of reading the clock.
        calls.resize(touches.len() + 1, Call::empty(1));
        for call in &mut calls[1..] {
            call.pointers[0] = self.guest.window(self.window);
            call.blocks = lines;
        }
        let codes = [Touch::Load].iter().chain(touches).map(|touch| self.codes[*touch as usize]);
        let mut steps: Vec<(u64, &mut Call)> = codes.zip(&mut calls).collect();
        let run = self.guest.run(&mut steps, PATIENCE)?;
        let [overhead, passes @ ..] = run.ticks.as_slice() else { return Ok(Vec::new()) };
        let cost = |ticks: &u64| ticks.saturating_sub(*overhead).max(1) as f64 * self.ns_per_tick / lines as f64;
        Ok(passes.iter().map(cost).collect())
    }
}

/// A visit to a case.
struct Visit<'a> {
    case: &'a Case,
    variant: &'a Variant,
    kernel: &'static Kernel,
    layout: &'a Layout,
    code: &'a MachineCode,
    devices: &'a Path,
    ticker: Ticker,
    warm_up: WarmUp,
    quota: &'a Quota<'a>,
    verify: bool,
}

/// What a visit yields.
#[derive(Debug, Default)]
struct Taken {
    samples: Samples,
    repetitions: u64,
    /// Elements of one repetition.
    elements: u64,
}

/// A guest with the codes of a visit.
struct Station {
    guest: Guest,
    kernel: u64,
    chain: u64,
    flush: u64,
}

impl Visit<'_> {
    fn measure(&self, arrays: &mut Arrays<'_>) -> Result<Taken, NoVisit> {
        let addresses = arrays.prepare()?;
        let mut station = self.station(&arrays.mappings())?;
        let mut call = self.call(&station, &addresses)?;
        check_whole_accesses(self.variant, &call)?;
        arrays.check_exact(self.variant, &call)?;
        let mut taken = Taken { repetitions: 1, elements: call.elements(self.variant), ..Taken::default() };
        let mut warm_up = Some(self.warm_up);
        let (mut passes, mut steal) = (0, StealMeter::new());
        let deadline = Instant::now() + self.quota.time;
        self.write_back(&mut station, arrays)?;
        while !self.is_enough(&taken, deadline) {
            let mut setup_ticks = 0;
            if arrays.is_fresh() {
                self.check(&mut station, arrays, &call, passes)?;
                (call, setup_ticks) = self.map_anew(&mut station, arrays)?;
                passes = 0;
            }
            call.repetitions = taken.repetitions;
            passes += call.repetitions;
            let sample = Sample { setup_ticks, ..self.sample(&mut station, &mut call)? };
            if let Some(warming) = &mut warm_up {
                let next = warming.next(sample.ticks, taken.repetitions);
                // STREAM's rule leaves out the first pass and no other; on fresh memory a second pass would be another.
                match next.filter(|_| self.case.protocol == Protocol::Steady) {
                    Some(more) => taken.repetitions = more,
                    None => warm_up = None,
                }
            } else {
                taken.samples.push(Sample { steal_jiffies: steal.since_last(), ..sample });
            }
        }
        self.check(&mut station, arrays, &call, passes)?;
        if taken.samples.ticks.is_empty() {
            return Err(NoVisit::OutOfTime);
        }
        Ok(taken)
    }

    fn is_enough(&self, taken: &Taken, deadline: Instant) -> bool {
        self.quota.is_met(taken.samples.ticks.len(), deadline) || (self.quota.interrupted)()
    }

    fn station(&self, mappings: &[Mapping]) -> Result<Station, NoVisit> {
        let backed = |mapping: &Mapping| Backed {
            address: mapping.address,
            bytes: mapping.bytes.0,
            kind: mapping.key.spec.kind,
            writable: mapping.writable,
        };
        let memory: Vec<Backed> = mappings.iter().map(backed).collect();
        // SAFETY: the mappings are those of the arrays, which outlive the guest; `map_anew` takes a window's memory away
        // before the arrays unmap it; and they are not read or written while the guest runs.
        let mut guest = unsafe { Guest::new(self.devices, &memory) }?;
        let kernel = guest.load(self.code)?;
        let chain = guest.load(&core_clock_chain()?)?;
        let flush = guest.load(&crate::asm::touch(Touch::Flush)?)?;
        Ok(Station { guest, kernel, chain, flush })
    }

    /// One pass over streams at these addresses of this process, as the guest sees them.
    fn call(&self, station: &Station, addresses: &[u64]) -> Result<Call, NoVisit> {
        let guest: Option<Vec<u64>> = addresses.iter().map(|&address| station.guest.address(address)).collect();
        let guest = guest.ok_or_else(|| NoVisit::impossible("a stream lies outside the guest's memory"))?;
        let (rows, columns) = (self.layout.contents.rows as u64, self.layout.contents.columns as u64);
        let mut call = Call::new(&self.kernel.formula(), self.variant, &guest, rows, columns);
        call.scalar = timed_scalar(self.kernel);
        Ok(call)
    }

    fn patience(&self, words: u64) -> Duration {
        PATIENCE + WORD.saturating_mul(u32::try_from(words).unwrap_or(u32::MAX))
    }

    fn sample(&self, station: &mut Station, call: &mut Call) -> Result<Sample, NoVisit> {
        let patience = self.patience(call.elements(self.variant).saturating_mul(self.layout.streams() as u64));
        // The first chain is cold and does not count.
        let mut chains = [CLOCK_TRIPS[0], CLOCK_TRIPS[0], CLOCK_TRIPS[1]].map(Call::empty);
        let [cold, short, long] = &mut chains;
        let chain = station.chain;
        let mut steps = [(station.kernel, call), (chain, cold), (chain, short), (chain, long)];
        let before = ThreadUsage::now();
        let run = station.guest.run(&mut steps, patience)?;
        let lost = before.until_now();
        let moved = thread::current_cpu().is_some_and(|cpu| !self.case.cpus.contains(&cpu));
        Ok(Sample {
            ticks: run.ticks[0],
            core_clock_ticks: run.ticks[3].saturating_sub(run.ticks[2]).max(1),
            migrations: u32::from(moved),
            ..lost
        })
    }

    /// Makes fresh memory fresh again, says what that cost in ticks, and aims the call at its new place.
    fn map_anew(&self, station: &mut Station, arrays: &mut Arrays<'_>) -> Result<(Call, u64), NoVisit> {
        let fresh: Vec<usize> =
            arrays.mappings().iter().enumerate().filter(|(_, m)| m.key.fresh).map(|(index, _)| index).collect();
        fresh.iter().try_for_each(|&index| station.guest.unmap(index))?;
        arrays.unmap();
        let start = self.ticker.now();
        let addresses = arrays.map()?;
        let mappings = arrays.mappings();
        for &index in &fresh {
            // SAFETY: as in `station`.
            unsafe { station.guest.map(index, mappings[index].address) }?;
        }
        let setup_ticks = (self.ticker.now() - start).max(1);
        Ok((self.call(station, &addresses)?, setup_ticks))
    }

    /// Compares what the passes left behind with the naive twin.
    fn check(&self, station: &mut Station, arrays: &mut Arrays<'_>, call: &Call, passes: u64) -> Result<(), NoVisit> {
        if passes == 0 {
            return Ok(());
        }
        self.write_back(station, arrays)?;
        if arrays.check(self.variant, call, passes, self.verify)? {
            return Ok(());
        }
        let addresses = arrays.prepare()?;
        self.write_back(station, arrays)?;
        let mut call = self.call(station, &addresses)?;
        self.sample(station, &mut call)?;
        self.write_back(station, arrays)?;
        arrays.check(self.variant, &call, 1, self.verify).map(drop)
    }

    /// Takes memory that is not write-back in the guest out of all caches. This process sees the same memory as
    /// write-back: without that, what one side left in a cache the other might not see. Fresh memory is left alone; to
    /// touch it would make its pages.
    fn write_back(&self, station: &mut Station, arrays: &Arrays<'_>) -> Result<(), NoVisit> {
        for (index, mapping) in arrays.mappings().iter().enumerate() {
            let kind = mapping.key.spec.kind;
            if mapping.key.fresh || !kind.is_memory_type() || kind == MemoryKind::Wb {
                continue;
            }
            let mut call = Call::empty(1);
            call.pointers[0] = station.guest.window(index);
            call.blocks = mapping.bytes.0 / LINE;
            let patience = self.patience(call.blocks);
            station.guest.run(&mut [(station.flush, &mut call)], patience)?;
        }
        Ok(())
    }
}
