//! Runs kernels on this machine: pinned threads that touch their own pages, start together and are timed by one clock.
//!
//! ```text
//! leader:  decide | go at T          | time, tag, decide | ...
//! others:  wait   | go at T          | wait              | ...
//! all:               start kernel end
//! ```
//! A sample lasts from the first thread's start to the last thread's end. Waiting is spinning: a thread that sleeps
//! needs longer to wake than a sample lasts.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::arena::{Arena, ArenaKey, Ground, Layout, timed_scalar};
use super::scan::{self, Scanner, Tools};
use super::sys::{self, ThreadUsage, Ticker};
use super::{Executor, Quota};
use crate::kernel::code::{Call, Executable};
use crate::kernel::{CHAIN_LINKS, Isa, Kernel, Unsupported, Variant, assemble, core_clock_chain, naive};
use crate::memory::{NoMemory, Obtained, Places};
use crate::plan::{Case, Protocol, Work};
use crate::record::{Clock, Measured, Outcome, Sample, Samples, Volume};
use crate::units::Bytes;

/// A sample lasts at least this long: with a clock that is read to within some 50 ns, the timer's error is below 0.1 %.
const SAMPLE: Duration = Duration::from_micros(200);
/// Trips of the core clock chain, short and long. What is kept is the difference, 20,000 cycles, so that the cost of the
/// call and of reading the clock (some 150 cycles) drops out.
const CLOCK_TRIPS: [u64; 2] = [20, 220];
/// The clock's calibration: its error is that of two readings (below 100 ns) over this span.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Ticks between the decision to go and the start, for all threads to see it.
const GO_AHEAD: Duration = Duration::from_micros(2);
/// The kernel counts steal in ticks of 10 ms; reading it more often than it changes only disturbs.
const STEAL_PERIOD: Duration = Duration::from_millis(10);

/// The executor that measures.
#[derive(Debug)]
pub struct Native {
    ticker: Ticker,
    clock: Clock,
    isa: Isa,
    chain: Executable,
    codes: HashMap<Variant, Result<Executable, Outcome>>,
    /// Memory by thread and kind; kept from case to case, since first touch costs more than a sample.
    arenas: HashMap<(u32, ArenaKey), Arena>,
    /// Bytes to map when an arena is first needed: the most that any planned case will want.
    reserve: HashMap<(u32, ArenaKey), [Bytes; 2]>,
    /// Where memory with a place comes from.
    places: Places,
    /// Check every element, not windows.
    verify: bool,
    scanner: Scanner,
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
            arenas: HashMap::new(),
            reserve: HashMap::new(),
            places,
            verify,
            scanner: Scanner::default(),
        };
        native.expect(cases);
        Ok(native)
    }

    fn code(&mut self, variant: &Variant) -> Result<(), Outcome> {
        let isa = self.isa;
        match self.codes.entry(variant.clone()).or_insert_with(|| compile(variant, isa)) {
            Ok(_) => Ok(()),
            Err(outcome) => Err(outcome.clone()),
        }
    }

    fn ticks(&self, span: Duration) -> u64 {
        (span.as_secs_f64() * self.clock.hz.0) as u64
    }

    fn take_arena(&mut self, key: (u32, ArenaKey), bytes: [Bytes; 2]) -> Result<Arena, NoMemory> {
        match self.arenas.remove(&key) {
            Some(arena) if larger(arena.bytes(), bytes) == arena.bytes() => Ok(arena),
            _ if key.1.fresh => Arena::new(key.1, bytes, &self.places),
            _ => {
                let bytes = larger(bytes, self.reserve.get(&key).copied().unwrap_or_default());
                Arena::new(key.1, bytes, &self.places)
            }
        }
    }

    /// The memory of each of the case's threads.
    fn ground<'a>(&mut self, case: &Case, kernel: &'a Kernel, layout: &'a Layout) -> Result<Vec<Ground<'a>>, NoMemory> {
        let ground = |&cpu: &u32| {
            let arenas: Result<Vec<Arena>, NoMemory> =
                layout.arenas().map(|(key, bytes)| self.take_arena((cpu, key), bytes)).collect();
            Ok(Ground::new(kernel, layout, arenas?))
        };
        case.cpus.iter().map(ground).collect()
    }
}

fn larger(left: [Bytes; 2], right: [Bytes; 2]) -> [Bytes; 2] {
    [left[0].max(right[0]), left[1].max(right[1])]
}

/// Assembles a variant and checks it on small arrays against its twin before it is ever timed.
fn compile(variant: &Variant, isa: Isa) -> Result<Executable, Outcome> {
    let code = assemble(variant, isa).map_err(unavailable)?;
    let executable =
        Executable::new(&code).map_err(|e| Outcome::Unavailable { reason: StartError::Code(e).to_string() })?;
    let kernel = Kernel::find(&variant.kernel).map_err(unavailable)?;
    for length in [1, 3, 8, 67, 300] {
        self_test(&executable, kernel, variant, length)?;
    }
    Ok(executable)
}

fn self_test(executable: &Executable, kernel: &Kernel, variant: &Variant, length: usize) -> Result<(), Outcome> {
    let formula = kernel.formula();
    let (rows, columns) = if formula.grid { (4, length + 2) } else { (1, length) };
    let mut arrays: Vec<Vec<f64>> = (0..formula.streams.len())
        .map(|stream| (0..rows * columns).map(|i| super::arena::pattern(i + 5 * stream)).collect())
        .collect();
    let mut twin = arrays.clone();
    let answer = naive::run(kernel, &mut twin, 3.0, rows, columns);
    let addresses: Vec<u64> = arrays.iter_mut().map(|a| a.as_mut_ptr() as u64).collect();
    let mut call = Call::new(&formula, variant, &addresses, rows as u64, columns as u64);
    call.scalar = 3.0;
    // SAFETY: the addresses are those of `arrays`, which hold rows x columns elements and are not used meanwhile.
    let run = unsafe { executable.run(&mut call) };
    run.map_err(|fault| Outcome::Crashed { reason: fault.to_string() })?;
    let expect = match answer {
        Some(naive::Answer::Sum(value) | naive::Answer::Last(value)) => value,
        _ => 0.0,
    };
    if arrays != twin || call.result(&formula, variant) != expect {
        let reason = format!("the generated code disagrees with plain Rust for {length} elements");
        return Err(Outcome::Invalid { reason });
    }
    Ok(())
}

impl Executor for Native {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn expect(&mut self, cases: &[Case]) {
        for case in cases {
            let Some(kernel) = case.variant().and_then(Variant::row) else { continue };
            let layout = Layout::new(kernel, case);
            for &cpu in &case.cpus {
                for (key, bytes) in layout.arenas() {
                    let most = self.reserve.entry((cpu, key)).or_default();
                    *most = larger(*most, bytes);
                }
            }
        }
    }

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        self.try_visit(case, quota).unwrap_or_else(|outcome| outcome)
    }
}

impl Native {
    fn try_visit(&mut self, case: &Case, quota: &Quota<'_>) -> Result<Outcome, Outcome> {
        match &case.work {
            Work::Kernel(variant) => self.run_kernel(case, variant, quota),
            Work::Scan(scan) => {
                let sample_ticks = self.ticks(scan::SAMPLE);
                let tools = Tools {
                    ticker: self.ticker,
                    isa: self.isa,
                    chain: &self.chain,
                    places: &self.places,
                    sample_ticks,
                };
                self.scanner.visit(case, *scan, quota, &tools)
            }
            Work::Page(_) => Err(unavailable("not yet")),
        }
    }

    fn run_kernel(&mut self, case: &Case, variant: &Variant, quota: &Quota<'_>) -> Result<Outcome, Outcome> {
        let kernel = Kernel::find(&variant.kernel).map_err(unavailable)?;
        self.code(variant)?;
        let layout = Layout::new(kernel, case);
        let mut grounds = self.ground(case, kernel, &layout).map_err(unavailable)?;
        if grounds.iter().any(|ground| !ground.is_writable()) {
            return Err(unavailable("the device may only be read; --allow-device-writes DEVICE lets it be written"));
        }
        let Some(Ok(code)) = self.codes.get(variant) else {
            return Err(unavailable("the kernel has no code"));
        };
        let team = Team {
            case,
            variant,
            kernel,
            layout: &layout,
            code,
            chain: &self.chain,
            ticker: self.ticker,
            quota,
            sample_ticks: self.ticks(SAMPLE),
            go_ahead_ticks: self.ticks(GO_AHEAD),
            verify: self.verify,
            shared: Shared::new(case.cpus.len()),
        };
        let results = team.measure(&mut grounds);
        let obtained = grounds.iter_mut().map(Ground::obtained).reduce(Obtained::and).unwrap_or_default();
        for (&cpu, mut ground) in case.cpus.iter().zip(grounds) {
            ground.unmap();
            self.arenas.extend(ground.into_arenas().map(|(key, arena)| ((cpu, key), arena)));
        }
        let (samples, elements) = results?;
        let repetitions = team.shared.repetitions.load(Ordering::Relaxed);
        Ok(Outcome::Measured(Box::new(Measured {
            volume: volume(kernel, variant, elements),
            repetitions,
            core_clock_links: CoreClock::LINKS,
            samples,
            obtained,
        })))
    }
}

pub(super) fn unavailable(reason: impl std::fmt::Display) -> Outcome {
    Outcome::Unavailable { reason: reason.to_string() }
}

fn volume(kernel: &Kernel, variant: &Variant, elements: u64) -> Volume {
    let traffic = kernel.traffic(variant.store);
    Volume {
        elements,
        loaded: elements * traffic.loaded,
        stored: elements * traffic.stored,
        write_allocated: elements * traffic.write_allocated,
        flops: elements * u64::from(kernel.formula().flops()),
    }
}

/// What the threads of a visit share.
struct Shared {
    threads: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    /// Tick at which the next sample starts; 0 ends the visit.
    go_at: AtomicU64,
    repetitions: AtomicU64,
    stop: AtomicBool,
    slots: Vec<Slot>,
    fault: Mutex<Option<Outcome>>,
}

/// One thread's part of a sample, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    start: AtomicU64,
    end: AtomicU64,
    /// Ticks that mapping took before the sample.
    setup: AtomicU64,
    lost_us: AtomicU64,
    switches: AtomicU64,
    faults: AtomicU64,
    migrated: AtomicU64,
    elements: AtomicU64,
}

impl Shared {
    fn new(threads: usize) -> Self {
        Shared {
            threads,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            go_at: AtomicU64::new(0),
            repetitions: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            slots: (0..threads).map(|_| Slot::default()).collect(),
            fault: Mutex::new(None),
        }
    }

    fn barrier(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation + 1, Ordering::Release);
        } else {
            while self.generation.load(Ordering::Acquire) == generation {
                std::hint::spin_loop();
            }
        }
    }

    fn fail(&self, outcome: Outcome) {
        let mut fault = self.fault.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        fault.get_or_insert(outcome);
        self.stop.store(true, Ordering::Release);
    }

    fn sum(&self, of: impl Fn(&Slot) -> &AtomicU64) -> u32 {
        let total: u64 = self.slots.iter().map(|slot| of(slot).load(Ordering::Relaxed)).sum();
        u32::try_from(total).unwrap_or(u32::MAX)
    }
}

/// A visit to a case by one thread on each of its CPUs.
struct Team<'a> {
    case: &'a Case,
    variant: &'a Variant,
    kernel: &'static Kernel,
    layout: &'a Layout,
    code: &'a Executable,
    chain: &'a Executable,
    ticker: Ticker,
    quota: &'a Quota<'a>,
    sample_ticks: u64,
    go_ahead_ticks: u64,
    verify: bool,
    shared: Shared,
}

impl Team<'_> {
    /// Samples, and the elements of one repetition over all threads.
    fn measure(&self, grounds: &mut [Ground<'_>]) -> Result<(Samples, u64), Outcome> {
        let mut samples = Samples::default();
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (index, ground) in grounds.iter_mut().enumerate() {
                workers.push(scope.spawn(move || self.thread(index, ground)));
            }
            for worker in workers {
                match worker.join() {
                    Ok(Some(taken)) => samples = taken,
                    Ok(None) => {}
                    Err(_) => self.shared.fail(Outcome::Crashed { reason: "a measuring thread panicked".into() }),
                }
            }
        });
        let fault = self.shared.fault.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        match fault {
            Some(outcome) => Err(outcome),
            None if samples.ticks.is_empty() => {
                Err(Outcome::Unavailable { reason: "the time ended before a sample was done".into() })
            }
            None => Ok((samples, self.shared.slots.iter().map(|s| s.elements.load(Ordering::Relaxed)).sum())),
        }
    }

    fn thread(&self, index: usize, ground: &mut Ground<'_>) -> Option<Samples> {
        if let Err(fault) = sys::pin(self.case.cpus[index]) {
            let reason = format!("CPU {} can't be used: {fault}", self.case.cpus[index]);
            self.shared.fail(Outcome::Unavailable { reason });
        }
        let mut call = self.call(&ground.prepare());
        self.shared.slots[index].elements.store(call.elements(self.variant), Ordering::Relaxed);
        let mut leader = (index == 0).then(|| Leader::new(self));
        let mut passes = 0;
        loop {
            if ground.is_fresh() {
                self.check(ground, &call, passes);
                (call, passes) = (self.map_anew(index, ground), 0);
            }
            self.shared.barrier();
            if let Some(leader) = &mut leader {
                leader.decide();
            }
            self.shared.barrier();
            let go_at = self.shared.go_at.load(Ordering::Acquire);
            if go_at == 0 {
                break;
            }
            call.repetitions = self.shared.repetitions.load(Ordering::Relaxed);
            passes += call.repetitions;
            self.sample(index, &mut call, go_at);
            self.shared.barrier();
            if let Some(leader) = &mut leader {
                leader.take();
            }
        }
        self.check(ground, &call, passes);
        leader.map(|leader| leader.samples)
    }

    /// One pass over streams at these addresses.
    fn call(&self, addresses: &[u64]) -> Call {
        let (rows, columns) = (self.layout.rows as u64, self.layout.columns as u64);
        let mut call = Call::new(&self.kernel.formula(), self.variant, addresses, rows, columns);
        call.scalar = timed_scalar(self.kernel);
        call
    }

    /// Compares what the passes left behind with the naive twin.
    fn check(&self, ground: &mut Ground<'_>, call: &Call, passes: u64) {
        if !self.shared.stop.load(Ordering::Acquire)
            && passes > 0
            && let Err(reason) = ground.check(self.variant, call, passes, self.verify)
        {
            self.shared.fail(Outcome::Invalid { reason });
        }
    }

    /// Makes fresh memory fresh again, takes note of what that cost, and aims the call at its new place.
    fn map_anew(&self, index: usize, ground: &mut Ground<'_>) -> Call {
        ground.unmap();
        let start = self.ticker.now();
        let mapped = ground.map();
        self.shared.slots[index].setup.store(self.ticker.now() - start, Ordering::Relaxed);
        // Where mapping failed no sample follows: the leader sees `stop`.
        let addresses = mapped.unwrap_or_else(|fault| {
            self.shared.fail(unavailable(fault));
            Vec::new()
        });
        if addresses.is_empty() { Call::empty(1) } else { self.call(&addresses) }
    }

    fn sample(&self, index: usize, call: &mut Call, go_at: u64) {
        let slot = &self.shared.slots[index];
        let before = ThreadUsage::now();
        while self.ticker.now() < go_at {
            std::hint::spin_loop();
        }
        let start = self.ticker.now();
        // SAFETY: `call` was made for this thread's own arena, which is mapped, touched and long enough for the layout.
        let run = unsafe { self.code.run(call) };
        let end = self.ticker.now();
        let after = ThreadUsage::now();
        if let Err(fault) = run {
            self.shared.fail(Outcome::Crashed { reason: fault.to_string() });
        }
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(end.max(start + 1), Ordering::Relaxed);
        let lost_ns = (after.wall_ns - before.wall_ns).saturating_sub(after.cpu_ns - before.cpu_ns);
        slot.lost_us.store(lost_ns / 1000, Ordering::Relaxed);
        slot.switches.store(after.switches - before.switches, Ordering::Relaxed);
        slot.faults.store(after.faults - before.faults, Ordering::Relaxed);
        let moved = sys::current_cpu().is_some_and(|cpu| cpu != self.case.cpus[index]);
        slot.migrated.store(u64::from(moved), Ordering::Relaxed);
    }
}

/// The first thread's extra work: decides when to go on and keeps the samples.
struct Leader<'a> {
    team: &'a Team<'a>,
    samples: Samples,
    warm_up: Option<WarmUp>,
    deadline: Instant,
    steal: StealMeter,
    core_clock: CoreClock<'a>,
}

impl<'a> Leader<'a> {
    fn new(team: &'a Team<'a>) -> Self {
        Leader {
            team,
            samples: Samples::default(),
            warm_up: Some(WarmUp::default()),
            deadline: Instant::now() + team.quota.time,
            steal: StealMeter::new(),
            core_clock: CoreClock::new(team.chain, team.ticker),
        }
    }

    fn decide(&mut self) {
        let shared = &self.team.shared;
        let enough = self.samples.ticks.len() >= self.team.quota.most_samples
            || (self.samples.ticks.len() >= self.team.quota.least_samples && Instant::now() >= self.deadline);
        let stop = enough || shared.stop.load(Ordering::Acquire) || (self.team.quota.interrupted)();
        let go_at = if stop { 0 } else { self.team.ticker.now() + self.team.go_ahead_ticks };
        shared.go_at.store(go_at, Ordering::Release);
    }

    fn take(&mut self) {
        let shared = &self.team.shared;
        let starts = shared.slots.iter().map(|s| s.start.load(Ordering::Relaxed));
        let ends = shared.slots.iter().map(|s| s.end.load(Ordering::Relaxed));
        let ticks = ends.max().unwrap_or(1) - starts.min().unwrap_or(0);
        if let Some(warm_up) = &mut self.warm_up {
            let repetitions = shared.repetitions.load(Ordering::Relaxed);
            let lengthens = self.team.case.protocol == Protocol::Steady;
            // STREAM's rule leaves out the first pass and no other; on fresh memory a second pass would be another.
            match warm_up.next(ticks, repetitions, self.team.sample_ticks).filter(|_| lengthens) {
                Some(more) => shared.repetitions.store(more, Ordering::Relaxed),
                None => self.warm_up = None,
            }
            return;
        }
        let core_clock_ticks = self.core_clock.ticks();
        let part = |s: &Slot| s.end.load(Ordering::Relaxed) - s.start.load(Ordering::Relaxed);
        self.samples.push(Sample {
            ticks,
            fastest_thread_ticks: shared.slots.iter().map(part).min().unwrap_or(ticks),
            core_clock_ticks,
            lost_us: shared.sum(|s| &s.lost_us),
            steal_jiffies: self.steal.since_last(),
            switches: shared.sum(|s| &s.switches),
            faults: shared.sum(|s| &s.faults),
            migrations: shared.sum(|s| &s.migrated),
            setup_ticks: shared.slots.iter().map(|s| s.setup.load(Ordering::Relaxed)).max().unwrap_or(0),
        });
    }
}

/// Times the chain of dependent additions, which takes a core cycle a link.
pub(super) struct CoreClock<'a> {
    chain: &'a Executable,
    ticker: Ticker,
    call: Call,
}

impl<'a> CoreClock<'a> {
    /// Links behind one reading.
    pub const LINKS: u64 = (CLOCK_TRIPS[1] - CLOCK_TRIPS[0]) * CHAIN_LINKS;

    /// A clock that runs `chain`, which [`core_clock_chain`] made.
    pub fn new(chain: &'a Executable, ticker: Ticker) -> Self {
        CoreClock { chain, ticker, call: Call::empty(1) }
    }

    /// Ticks that [`Self::LINKS`] links take.
    pub fn ticks(&mut self) -> u64 {
        // What ran before may have pushed the chain's code out of the caches. Fetching it again falls on the first call,
        // and would shorten the difference below (by up to a sixth on Zen 4).
        self.chain_ticks(CLOCK_TRIPS[0]);
        let [short, long] = CLOCK_TRIPS.map(|trips| self.chain_ticks(trips));
        long.saturating_sub(short).max(1)
    }

    fn chain_ticks(&mut self, trips: u64) -> u64 {
        self.call.repetitions = trips;
        let start = self.ticker.now();
        // SAFETY: the chain reads and writes nothing but its own argument.
        let run = unsafe { self.chain.run(&mut self.call) };
        let ticks = self.ticker.now() - start;
        debug_assert!(run.is_ok());
        ticks
    }
}

/// Finds how many repetitions make a sample, and goes on until the caches hold what they will hold.
#[derive(Debug, Default)]
struct WarmUp {
    repetitions: u64,
    /// Passes at these repetitions, and the fastest of them.
    passes: u32,
    fastest: u64,
    /// Ticks spent.
    spent: u64,
}

impl WarmUp {
    /// A pass is no longer getting faster if it gained less than this on the fastest before.
    const GAIN: f64 = 0.98;
    /// A victim cache fills over several passes; more than this many are not waited for.
    const PASSES_MOST: u32 = 8;
    /// Nor more time than so many samples take, beyond the second pass.
    const SAMPLES_MOST: u64 = 60;

    /// Takes note of a pass of `repetitions` that took `ticks`; returns the repetitions of the next one, or nothing
    /// when it is warm. One pass alone is never believed: it may have been cold, or interrupted.
    fn next(&mut self, ticks: u64, repetitions: u64, sample_ticks: u64) -> Option<u64> {
        if repetitions != self.repetitions {
            *self = WarmUp { repetitions, passes: 0, fastest: u64::MAX, spent: self.spent };
        }
        let gaining = (ticks as f64) < self.fastest as f64 * Self::GAIN;
        self.fastest = self.fastest.min(ticks);
        self.passes += 1;
        self.spent += ticks;
        let slow = self.spent > Self::SAMPLES_MOST * sample_ticks;
        if self.passes == 1 || (gaining && self.passes < Self::PASSES_MOST && !slow) {
            // The first pass of a long case is enough: nothing stays cached from one end to the other.
            return (!slow || self.passes > 1 || ticks < 20 * sample_ticks).then_some(repetitions);
        }
        if self.fastest >= sample_ticks {
            return None;
        }
        let wanted = (repetitions as f64 * sample_ticks as f64 / self.fastest as f64 * 1.2).ceil() as u64;
        // Early passes run cold and slow: grow step by step, so that they can't mislead.
        Some(wanted.clamp(repetitions + 1, repetitions * 16))
    }
}

/// Steal time of all CPUs from /proc/stat.
pub(super) struct StealMeter {
    last: u64,
    read_at: Instant,
}

impl StealMeter {
    pub fn new() -> Self {
        StealMeter { last: super::steal_jiffies().unwrap_or(0), read_at: Instant::now() }
    }

    pub fn since_last(&mut self) -> u32 {
        if self.read_at.elapsed() < STEAL_PERIOD {
            return 0;
        }
        self.read_at = Instant::now();
        let now = super::steal_jiffies().unwrap_or(self.last);
        let grown = now.saturating_sub(self.last);
        self.last = now;
        u32::try_from(grown).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a warm-up against a simulated machine: the time of the n-th pass of r repetitions.
    fn warm(time: impl Fn(u64, u64) -> u64) -> (u64, u64) {
        let (mut warm_up, mut repetitions, mut pass) = (WarmUp::default(), 1, 0);
        while let Some(next) = warm_up.next(time(pass, repetitions), repetitions, 1000) {
            (repetitions, pass) = (next, pass + 1);
        }
        (repetitions, pass)
    }

    #[test]
    fn repetitions_make_a_sample_long_enough() {
        let (repetitions, _) = warm(|_, repetitions| 7 * repetitions);
        assert!((1000..3000).contains(&(7 * repetitions)), "{repetitions}");
    }

    #[test]
    fn an_interrupted_pass_does_not_end_the_warm_up() {
        let (repetitions, _) = warm(|pass, repetitions| if pass == 0 { 1_000_000 / 60 } else { 7 * repetitions });
        assert!(7 * repetitions >= 1000, "{repetitions}");
    }

    #[test]
    fn a_cache_that_fills_slowly_is_waited_for() {
        let (_, passes) = warm(|pass, _| 5000 - 700 * pass.min(4));
        assert!(passes >= 5, "{passes}");
    }
}
