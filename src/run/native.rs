//! Measures on this machine: kernels over their streams; what is done to pages is in `pages.rs`, how threads start
//! together and are timed in `team.rs`.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::arena::{Arenas, Filling, Ground, Layout, timed_scalar};
use super::chase::Chaser;
use super::conflict::Prober;
use super::controllers::{self, Controllers};
use super::energy::{self, Meters};
use super::handover;
use super::idle;
use super::loaded::{self, Bench};
use super::page_cache::Surroundings;
use super::pages;
use super::rounding::Adder;
use super::scan::{self, Scanner, Tools};
use super::streams;
use super::sys::{self, Ticker};
use super::team::{Task, Team};
use super::{Executor, Quota};
use crate::kernel::chase::Chase;
use crate::kernel::code::{Call, Executable, Fault};
use crate::kernel::flops::Flops;
use crate::kernel::formula::{Formula, Role, Stream};
use crate::kernel::handover::handover as handover_code;
use crate::kernel::naive::{self, Twin};
use crate::kernel::{CHAIN_LINKS, Isa, Kernel, Unsupported, Variant, assemble, core_clock_chain};
use crate::machine::{Machine, Source};
use crate::memory::{Obtained, Places};
use crate::plan::{Case, PageCache, PageWork, Protocol, Work};
use crate::record::{Clock, Measured, Outcome, Volume};

/// Trips of the core clock chain, short and long. What is kept is the difference, 20,000 cycles, so that the cost of the
/// call and of reading the clock (some 150 cycles) drops out.
pub(super) const CLOCK_TRIPS: [u64; 2] = [20, 220];
pub(super) const CORE_CLOCK_LINKS: u64 = (CLOCK_TRIPS[1] - CLOCK_TRIPS[0]) * CHAIN_LINKS;
/// The clock's calibration: its error is that of two readings (below 100 ns) over this span.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Time for samples beside page cache, however long filling it took.
const LEAST_BESIDE_CACHE: Duration = Duration::from_millis(200);

/// The executor that measures.
#[derive(Debug)]
pub struct Native {
    ticker: Ticker,
    clock: Clock,
    isa: Isa,
    chain: Executable,
    codes: HashMap<Variant, Result<Executable, Outcome>>,
    arenas: Arenas,
    /// Check every element, not windows.
    verify: bool,
    scanner: Scanner,
    /// Code of a hand-over, made when one is first asked for.
    handover: Option<Executable>,
    /// Hand-overs so far.
    handovers: u64,
    bench: Bench,
    prober: Prober,
    chaser: Chaser,
    adder: Adder,
    /// Meters of energy, looked for when they are first asked for; or why there are none.
    meters: Option<Result<Mutex<Meters>, String>>,
    /// Counters of the memory controllers, looked for when a case first reaches memory; nothing where there are none.
    controllers: Option<Option<Mutex<Controllers>>>,
}

/// Why measuring can't even start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The core clock's code was refused.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Executable memory was refused.
    #[error("executable memory was refused ({0}); a security policy that forbids generated code must allow it")]
    Code(std::io::Error),
}

impl Native {
    /// Calibrates the clock and prepares to run `cases`.
    pub fn new(cases: &[Case], places: Places, verify: bool) -> Result<Self, StartError> {
        let ticker = Ticker::detect();
        let mut native = Native {
            ticker,
            clock: ticker.calibrate(CALIBRATION),
            isa: Isa::detect(),
            chain: Executable::new(&core_clock_chain()?).map_err(StartError::Code)?,
            codes: HashMap::new(),
            arenas: Arenas::new(places, |spec| spec),
            verify,
            scanner: Scanner::default(),
            handover: None,
            handovers: 0,
            bench: Bench::default(),
            prober: Prober::default(),
            chaser: Chaser::default(),
            adder: Adder::default(),
            meters: None,
            controllers: None,
        };
        native.expect(cases);
        Ok(native)
    }

    /// The clock that samples are read from.
    pub fn ticker(&self) -> Ticker {
        self.ticker
    }

    fn code(&mut self, variant: &Variant) -> Result<(), Outcome> {
        let isa = self.isa;
        match self.codes.entry(variant.clone()).or_insert_with(|| compile(variant, isa)) {
            Ok(_) => Ok(()),
            Err(outcome) => Err(outcome.clone()),
        }
    }
}

/// Assembles a variant and checks it on small arrays against its twin before it is ever timed.
pub(super) fn compile(variant: &Variant, isa: Isa) -> Result<Executable, Outcome> {
    let code = assemble(variant, isa).map_err(unavailable)?;
    let executable =
        Executable::new(&code).map_err(|e| Outcome::Unavailable { reason: StartError::Code(e).to_string() })?;
    let kernel = Kernel::find(&variant.kernel).map_err(unavailable)?;
    for length in [1, 3, 8, 67, 300] {
        self_test(&executable, kernel, variant, isa, length)?;
    }
    Ok(executable)
}

fn self_test(
    executable: &Executable,
    kernel: &Kernel,
    variant: &Variant,
    isa: Isa,
    length: usize,
) -> Result<(), Outcome> {
    let formula = kernel.formula();
    let margins = formula.margins();
    let columns = length + (margins.left + margins.right) as usize;
    let rows = if formula.grid { 4 } else { 1 };
    let filling = Filling::of(&formula);
    let content = |(stream, role): (usize, Role)| match role {
        Role::Index => (0..columns).map(|i| naive::index(formula.order, i, columns) as f64).collect(),
        _ => (0..rows * columns).map(|i| filling.number(i + 5 * stream)).collect(),
    };
    let mut twin: Vec<Vec<f64>> = formula.streams.iter().map(|s| s.role).enumerate().map(content).collect();
    let lay_down = |(stream, numbers): (&Stream, &Vec<f64>)| match stream.role {
        Role::Index => variant.element.encode_index(numbers),
        _ => variant.element.encode(numbers),
    };
    let mut arrays: Vec<Vec<u8>> = formula.streams.iter().zip(&twin).map(lay_down).collect();
    let by_hand = Twin { formula: &formula, element: variant.element, scalar: 3.0, is_fused: isa.fma };
    let expect = by_hand.pass(&mut twin, rows, columns);
    let addresses: Vec<u64> = arrays.iter_mut().map(|a| a.as_mut_ptr() as u64).collect();
    let mut call = Call::new(&formula, variant, &addresses, rows as u64, columns as u64);
    call.scalar = by_hand.scalar;
    // SAFETY: the addresses are those of `arrays`, which hold rows x columns elements and are not used meanwhile; indices
    // are below `columns`.
    let run = unsafe { executable.run(&mut call) };
    run.map_err(|fault| Outcome::Crashed { reason: fault.to_string() })?;
    let is_stored = |(stream, bytes): (&Vec<f64>, &Vec<u8>)| {
        let found = variant.element.decode(bytes);
        found.iter().zip(stream).all(|(found, expect)| naive::is_same(*found, *expect))
    };
    let values = twin.iter().zip(&arrays).zip(&formula.streams).filter(|(_, stream)| stream.role == Role::Values);
    let additions = call.most_additions(&formula, variant);
    let results = expect.check(&call.results(&formula, variant), variant.element, additions);
    if !values.map(|(both, _)| both).all(is_stored) || results.is_err() {
        let reason = format!("the generated code disagrees with plain Rust for {length} elements");
        return Err(Outcome::Invalid { reason });
    }
    Ok(())
}

/// One pass over slices, which must all be as long as the first. Returns the sum, where the kernel has one.
pub(super) fn over_slices(
    code: &Executable,
    formula: &Formula,
    variant: &Variant,
    streams: &mut [&mut [f64]],
    scalar: f64,
) -> Result<f64, Fault> {
    let length = streams.first().map_or(0, |stream| stream.len());
    assert!(streams.len() == formula.streams.len() && streams.iter().all(|stream| stream.len() == length));
    assert!(variant.element == crate::kernel::Element::Double && !formula.grid);
    let addresses: Vec<u64> = streams.iter_mut().map(|stream| stream.as_mut_ptr() as u64).collect();
    let mut call = Call::new(formula, variant, &addresses, 1, length as u64);
    call.scalar = scalar;
    // SAFETY: the addresses are those of borrowed slices of doubles, one a stream and each `length` long, as asserted.
    unsafe { code.run(&mut call) }?;
    Ok(call.result(formula, variant))
}

impl Executor for Native {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn expect(&mut self, cases: &[Case]) {
        self.arenas.expect(cases);
        self.chaser.expect(cases);
    }

    fn begin_round(&mut self) {
        self.arenas.give_back();
        self.bench.give_back();
        self.chaser.give_back();
    }

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        self.try_visit(case, quota).unwrap_or_else(|outcome| outcome)
    }
}

impl Native {
    fn try_visit(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Outcome, Outcome> {
        if case.protocol == Protocol::Energy {
            self.find_meters()?;
        }
        let tools = |sample: Duration| Tools {
            ticker: self.ticker,
            isa: self.isa,
            chain: &self.chain,
            places: self.arenas.places(),
            hz: self.clock.hz,
            sample,
        };
        match &case.work {
            Work::Kernel(variant) => {
                let (measured, _) = self.run_kernel(case, variant, quota, &|_, _| Ok(()))?;
                Ok(Outcome::Measured(Box::new(measured)))
            }
            Work::Page(work) => self.run_pages(case, *work, quota),
            Work::Scan(scan) => self.scanner.visit(case, *scan, quota, &tools(scan::SAMPLE)),
            Work::Handover(work) => {
                self.handovers += 1;
                if self.handover.is_none() {
                    let code = handover_code().map_err(unavailable)?;
                    self.handover = Some(Executable::new(&code).map_err(StartError::Code).map_err(unavailable)?);
                }
                let Some(code) = &self.handover else { return Err(unavailable("the hand-over has no code")) };
                handover::visit(case, *work, self.handovers, quota, code, &tools(handover::SAMPLE))
            }
            Work::Loaded(work) => {
                let tools = tools(loaded::sample(work.load));
                self.bench.visit(case, work.load, &mut self.chaser, quota, &tools)
            }
            Work::Conflict(batch) => self.prober.visit(case, batch, quota, &tools(scan::SAMPLE)),
            Work::Chase(chase) => self.run_chase(case, *chase, quota),
            Work::PageCache(work) => self.run_beside_cache(case, work, quota),
            Work::Flops(flops) => self.run_flops(case, *flops, quota),
            Work::Idle => self.run_idle(case, quota),
            Work::Streams(streams) => {
                let chain = || core_clock(&self.chain, self.ticker);
                let team = Team::new(case, quota, self.ticker, self.clock.hz, &chain);
                let measured = streams::measure(case, *streams, team, self.arenas.places())?;
                Ok(Outcome::Measured(Box::new(Measured { core_clock_links: CORE_CLOCK_LINKS, ..measured })))
            }
            Work::Rounding(way) => self.adder.visit(case, way, quota, &tools(scan::SAMPLE)),
            Work::PingPong(_) => {
                Err(unavailable("messages need processes; start them with `mpirun membound pingpong`"))
            }
        }
    }

    /// What was measured, and what the thread on each CPU obtained. `place` may say where a thread's pages are to come from
    /// before they are touched.
    fn run_kernel(
        &mut self,
        case: &Case,
        variant: &Variant,
        quota: &Quota<'_>,
        place: &dyn Fn(u32, &Ground<'_>) -> Result<(), Outcome>,
    ) -> Result<(Measured, Vec<(u32, Obtained)>), Outcome> {
        let kernel = Kernel::find(&variant.kernel).map_err(unavailable)?;
        self.code(variant)?;
        if case.working_set >= controllers::LEAST {
            self.controllers.get_or_insert_with(|| controllers::open(&Source::live()));
        }
        let layout = Layout::new(kernel, variant.element, case);
        let grounds = case.cpus.iter().map(|&cpu| self.arenas.ground(cpu, kernel, &layout));
        let grounds: Vec<Ground<'_>> = grounds.collect::<Result<_, _>>().map_err(unavailable)?;
        if let Some(reason) = grounds.iter().find_map(Ground::refusal) {
            return Err(unavailable(reason));
        }
        case.cpus.iter().zip(&grounds).try_for_each(|(&cpu, ground)| place(cpu, ground))?;
        let Some(Ok(code)) = self.codes.get(variant) else {
            return Err(unavailable("the kernel has no code"));
        };
        let chain = || core_clock(&self.chain, self.ticker);
        let team = metered(Team::new(case, quota, self.ticker, self.clock.hz, &chain), case, &self.meters);
        let team = match &self.controllers {
            Some(Some(controllers)) if case.working_set >= controllers::LEAST => team.counted(controllers),
            _ => team,
        };
        let passes = |ground| Passes {
            ground,
            variant,
            kernel,
            layout: &layout,
            code,
            ticker: self.ticker,
            verify: self.verify,
            call: Call::empty(1),
            passes: 0,
        };
        let mut tasks: Vec<Passes<'_>> = grounds.into_iter().map(passes).collect();
        let results = team.measure(&mut tasks);
        let threads: Vec<(u32, Obtained)> =
            case.cpus.iter().zip(&mut tasks).map(|(&cpu, task)| (cpu, task.ground.obtained())).collect();
        let obtained = threads.iter().map(|(_, obtained)| obtained.clone()).reduce(Obtained::and).unwrap_or_default();
        let elements = tasks.iter().map(|task| task.call.elements(variant)).sum();
        // After a crash memory may be missing; the next case gets new one.
        if !matches!(results, Err(Outcome::Crashed { .. })) {
            for (&cpu, task) in case.cpus.iter().zip(tasks) {
                self.arenas.keep(cpu, task.ground);
            }
        }
        let (samples, repetitions) = results?;
        let volume = volume(kernel, variant, elements);
        let measured = Measured { volume, repetitions, core_clock_links: CORE_CLOCK_LINKS, samples, obtained };
        Ok((measured, threads))
    }

    /// The same beside a filled page cache, on memory of its own that is given back afterwards.
    fn run_beside_cache(&mut self, case: &Case, work: &PageCache, quota: &Quota<'_>) -> Result<Outcome, Outcome> {
        let started = Instant::now();
        self.arenas.give_back();
        let places = self.arenas.places().clone();
        let around = Surroundings::new(case, work, &places, quota)?;
        let time = quota.time.saturating_sub(started.elapsed()).max(LEAST_BESIDE_CACHE);
        let kept = std::mem::replace(&mut self.arenas, Arenas::new(places, |spec| spec));
        let place = |cpu: u32, ground: &Ground<'_>| match around.policy(work.cure, cpu)? {
            Some(policy) => ground.place(policy).map_err(unavailable),
            None => Ok(()),
        };
        let result = self.run_kernel(case, &work.variant, &Quota { time, ..*quota }, &place);
        self.arenas = kept;
        let (mut measured, threads) = result?;
        measured.obtained.page_cache = Some(around.found(&threads));
        Ok(Outcome::Measured(Box::new(measured)))
    }

    fn run_pages(&mut self, case: &Case, work: PageWork, quota: &Quota<'_>) -> Result<Outcome, Outcome> {
        let chain = || core_clock(&self.chain, self.ticker);
        let team = Team::new(case, quota, self.ticker, self.clock.hz, &chain);
        let measured = pages::measure(case, work, team, self.ticker, self.arenas.places())?;
        Ok(Outcome::Measured(Box::new(Measured { core_clock_links: CORE_CLOCK_LINKS, ..measured })))
    }

    fn run_flops(&mut self, case: &Case, flops: Flops, quota: &Quota<'_>) -> Result<Outcome, Outcome> {
        let chain = || core_clock(&self.chain, self.ticker);
        let team = Team::new(case, quota, self.ticker, self.clock.hz, &chain);
        let measured = super::flops::measure(case, flops, team, self.isa)?;
        Ok(Outcome::Measured(Box::new(Measured { core_clock_links: CORE_CLOCK_LINKS, ..measured })))
    }

    /// Looks for meters of energy, once.
    fn find_meters(&mut self) -> Result<(), Outcome> {
        let hz = self.clock.hz;
        let find = || energy::open(&Machine::live().energy, &Source::live(), hz);
        match self.meters.get_or_insert_with(find) {
            Ok(_) => Ok(()),
            Err(reason) => Err(unavailable(reason)),
        }
    }

    fn run_idle(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Outcome, Outcome> {
        let chain = || core_clock(&self.chain, self.ticker);
        let team = metered(Team::new(case, quota, self.ticker, self.clock.hz, &chain), case, &self.meters);
        let measured = idle::measure(team)?;
        Ok(Outcome::Measured(Box::new(Measured { core_clock_links: CORE_CLOCK_LINKS, ..measured })))
    }

    fn run_chase(&mut self, case: &Case, chase: Chase, quota: &Quota<'_>) -> Result<Outcome, Outcome> {
        let chain = || core_clock(&self.chain, self.ticker);
        let team = Team::new(case, quota, self.ticker, self.clock.hz, &chain);
        let measured = self.chaser.visit(case, chase, team, self.arenas.places())?;
        Ok(Outcome::Measured(Box::new(Measured { core_clock_links: CORE_CLOCK_LINKS, ..measured })))
    }
}

/// A team whose samples meters are read around, where the case wants that.
fn metered<'a>(team: Team<'a>, case: &Case, meters: &'a Option<Result<Mutex<Meters>, String>>) -> Team<'a> {
    match meters {
        Some(Ok(meters)) if case.protocol == Protocol::Energy => team.metered(meters),
        _ => team,
    }
}

/// Ticks that [`CORE_CLOCK_LINKS`] links of the chain take on the calling thread.
pub(super) fn core_clock(chain: &Executable, ticker: Ticker) -> u64 {
    let mut call = Call::empty(1);
    let mut ticks_of = |trips: u64| {
        call.repetitions = trips;
        let start = ticker.now();
        // SAFETY: the chain reads and writes nothing but its own argument.
        let run = unsafe { chain.run(&mut call) };
        let ticks = ticker.now() - start;
        debug_assert!(run.is_ok());
        ticks
    };
    // What ran before may have pushed the chain's code out of the caches. Fetching it again falls on the first call, and
    // would shorten the difference below (by up to a sixth on Zen 4).
    ticks_of(CLOCK_TRIPS[0]);
    let [few, many] = CLOCK_TRIPS;
    // An interrupt in the short one would make the clock look faster than any; in the long one it is an outlier of many.
    let short = ticks_of(few).min(ticks_of(few));
    ticks_of(many).saturating_sub(short).max(1)
}

pub(super) fn unavailable(reason: impl std::fmt::Display) -> Outcome {
    Outcome::Unavailable { reason: reason.to_string() }
}

/// Pins the calling thread. That a CPU goes away after the plan was made ends its own cases alone.
pub(super) fn pin(cpu: u32) -> Result<(), Outcome> {
    let cure =
        "it is offline, or this process may not use it any more; let it (cpuset, taskset), or leave it out with --cpus";
    sys::pin(cpu).map_err(|fault| unavailable(format!("CPU {cpu} can't be used ({fault}): {cure}")))
}

pub(super) fn crashed(fault: impl std::fmt::Display) -> Outcome {
    Outcome::Crashed { reason: fault.to_string() }
}

pub(super) fn volume(kernel: &Kernel, variant: &Variant, elements: u64) -> Volume {
    let traffic = kernel.traffic(variant.store, variant.element);
    Volume {
        elements,
        loaded: elements * traffic.loaded,
        stored: elements * traffic.stored,
        write_allocated: elements * traffic.write_allocated,
        flops: elements * u64::from(kernel.formula().flops()),
    }
}

/// Passes of one thread over its streams. On cache lines of its own: its call's results are written in each sample.
#[repr(align(128))]
struct Passes<'a> {
    ground: Ground<'a>,
    variant: &'a Variant,
    kernel: &'static Kernel,
    layout: &'a Layout,
    code: &'a Executable,
    ticker: Ticker,
    verify: bool,
    call: Call,
    /// Since memory was last fresh.
    passes: u64,
}

impl Passes<'_> {
    /// Aims the call at streams at these addresses.
    fn aim(&mut self, addresses: &[u64]) {
        let (rows, columns) = (self.layout.rows as u64, self.layout.columns as u64);
        self.call = Call::new(&self.kernel.formula(), self.variant, addresses, rows, columns);
        self.call.scalar = timed_scalar(self.kernel);
        self.passes = 0;
    }
}

impl Task for Passes<'_> {
    fn begin(&mut self) -> Result<(), Outcome> {
        let addresses = self.ground.prepare().map_err(crashed)?;
        self.aim(&addresses);
        self.ground.check_exact(self.variant, &self.call)
    }

    /// Makes fresh memory fresh again.
    fn renew(&mut self) -> Result<u64, Outcome> {
        if !self.ground.is_fresh() {
            return Ok(0);
        }
        self.end()?;
        self.ground.unmap();
        let start = self.ticker.now();
        let addresses = self.ground.map().map_err(unavailable)?;
        let ticks = self.ticker.now() - start;
        self.aim(&addresses);
        Ok(ticks)
    }

    fn run(&mut self, repetitions: u64) -> Result<(), Outcome> {
        self.call.repetitions = repetitions;
        self.passes += repetitions;
        // SAFETY: `call` was made for this thread's own arena, which is mapped, touched and long enough for the layout.
        let run = unsafe { self.code.run(&mut self.call) };
        run.map_err(crashed)
    }

    /// Compares what the passes left behind with the naive twin.
    fn end(&mut self) -> Result<(), Outcome> {
        if self.passes == 0 {
            return Ok(());
        }
        if !self.ground.check(self.variant, &self.call, self.passes, self.verify)? {
            self.begin()?;
            self.run(1)?;
            self.ground.check(self.variant, &self.call, 1, self.verify)?;
        }
        Ok(())
    }
}
