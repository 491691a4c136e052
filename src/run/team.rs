//! Threads that take samples together: pinned, started at one tick, timed by one clock.
//!
//! ```text
//! leader:  renew, lead, decide | go at T       | time, tag, renew, lead, decide | ...
//! others:  renew, wait         | go at T       | renew, wait                    | ...
//! all:                           start run end
//! ```
//! A sample lasts from the first thread's start to the last thread's end. Waiting is spinning: a thread that sleeps
//! needs longer to wake than a sample lasts.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Quota;
use super::controllers::{self, Controllers};
use super::energy::Meters;
use super::native::pin;
use super::sys::{self, ThreadUsage, Ticker};
use crate::plan::{Case, Protocol, Work};
use crate::record::{Outcome, Sample, Samples};
use crate::units::Hertz;

/// A sample of several threads lasts at least this long: they start and end within some 100 ns of each other, 0.1 %.
pub(super) const SAMPLE: Duration = Duration::from_micros(200);
/// A sample of one thread: reading the clock and the call take some 30 ns, 0.3 %. Shorter than the time between two
/// interruptions by a host, which may come 16,000 times a second for 5 us each: most samples meet none, so that their
/// median is what the machine does when it is let.
pub(super) const LONE_SAMPLE: Duration = Duration::from_micros(10);
/// A core that begins with wide arithmetic first slows it down, asks for another clock and gets it 1 to 3 ms later.
/// Sums of 512 bits ran at 77 % of their lasting speed until then.
const SETTLING: Duration = Duration::from_millis(4);
/// From the decision to go to the start, for all threads to see it.
const GO_AHEAD: Duration = Duration::from_micros(2);
/// The kernel counts steal in ticks of 10 ms; reading it more often than it changes only disturbs.
const STEAL_PERIOD: Duration = Duration::from_millis(10);

/// What one thread of a team does: the sample itself, and what must happen around it. An error ends the visit.
pub(super) trait Task: Send {
    /// Once, on the pinned thread, before the first sample.
    fn begin(&mut self) -> Result<(), Outcome>;

    /// Before each sample, not timed by it: checks what the last one left behind and brings memory back to where a
    /// sample starts. Returns the ticks that mapping memory took, 0 where none was mapped.
    fn renew(&mut self) -> Result<u64, Outcome>;

    /// What the first thread does for all, when all have renewed.
    fn lead(&mut self) -> Result<(), Outcome> {
        Ok(())
    }

    /// Right before the sample, not timed by it: meets again what counting disturbances has pushed out of the caches.
    fn approach(&mut self) -> Result<(), Outcome> {
        Ok(())
    }

    /// The sample.
    fn run(&mut self, repetitions: u64) -> Result<(), Outcome>;

    /// Once, after the last sample.
    fn end(&mut self) -> Result<(), Outcome>;
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
    /// A thread has panicked: it will never arrive again.
    is_incomplete: AtomicBool,
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
            is_incomplete: AtomicBool::new(false),
            slots: (0..threads).map(|_| Slot::default()).collect(),
            fault: Mutex::new(None),
        }
    }

    /// Waits until all have arrived. Returns whether they have.
    fn barrier(&self) -> bool {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation + 1, Ordering::Release);
        } else {
            while self.generation.load(Ordering::Acquire) == generation {
                if self.is_incomplete.load(Ordering::Acquire) {
                    return false;
                }
                std::hint::spin_loop();
            }
        }
        true
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

/// A thread's place among the others: tells them if it leaves by a panic.
struct Place<'a>(&'a Shared);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_incomplete.store(true, Ordering::Release);
        }
    }
}

/// A visit to a case by one thread on each of its CPUs.
pub(super) struct Team<'a> {
    case: &'a Case,
    ticker: Ticker,
    quota: &'a Quota<'a>,
    warm_up: WarmUp,
    /// Ticks between the decision to go and the start.
    go_ahead_ticks: u64,
    /// Runs the core clock's chain on the calling thread; its ticks.
    core_clock: &'a (dyn Fn() -> u64 + Sync),
    /// Meters of energy that are read around each sample.
    meters: Option<&'a Mutex<Meters>>,
    /// Counters of the memory controllers that are read around each sample.
    controllers: Option<&'a Mutex<Controllers>>,
    hz: Hertz,
    shared: Shared,
}

impl<'a> Team<'a> {
    pub fn new(
        case: &'a Case,
        quota: &'a Quota<'a>,
        ticker: Ticker,
        hz: Hertz,
        core_clock: &'a (dyn Fn() -> u64 + Sync),
    ) -> Self {
        let sample = if case.cpus.len() == 1 { LONE_SAMPLE } else { SAMPLE };
        let go_ahead_ticks = (GO_AHEAD.as_secs_f64() * hz.0) as u64;
        let (warm_up, shared) = (WarmUp::new(sample, hz).lasting(settling(&case.work)), Shared::new(case.cpus.len()));
        Team { case, ticker, quota, warm_up, go_ahead_ticks, core_clock, meters: None, controllers: None, hz, shared }
    }

    /// The same with meters read around each sample, and samples as long as they need.
    pub fn metered(self, meters: &'a Mutex<Meters>) -> Self {
        let sample = meters.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).sample().max(SAMPLE);
        let warm_up = WarmUp::new(sample, self.hz).lasting(settling(&self.case.work));
        Team { warm_up, meters: Some(meters), ..self }
    }

    /// The same with counters of the memory controllers read around each sample.
    pub fn counted(self, controllers: &'a Mutex<Controllers>) -> Self {
        Team { controllers: Some(controllers), ..self }
    }

    /// Has each thread do its task, the first the leader's. Returns samples, and the repetitions of each.
    pub fn measure<T: Task>(self, tasks: &mut [T]) -> Result<(Samples, u64), Outcome> {
        let (team, mut samples) = (&self, Samples::default());
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (index, task) in tasks.iter_mut().enumerate() {
                workers.push(scope.spawn(move || team.thread(index, task)));
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
            None => Ok((samples, self.shared.repetitions.load(Ordering::Relaxed))),
        }
    }

    fn thread<T: Task>(&self, index: usize, task: &mut T) -> Option<Samples> {
        let _place = Place(&self.shared);
        self.unless_stopped(|| pin(self.case.cpus[index]));
        self.unless_stopped(|| task.begin());
        let mut leader = (index == 0).then(|| Leader::new(self));
        loop {
            let setup = self.unless_stopped(|| task.renew()).unwrap_or(0);
            self.shared.slots[index].setup.store(setup, Ordering::Relaxed);
            if !self.shared.barrier() {
                return None;
            }
            if let Some(leader) = &mut leader {
                self.unless_stopped(|| task.lead());
                leader.decide();
            }
            if !self.shared.barrier() {
                return None;
            }
            let go_at = self.shared.go_at.load(Ordering::Acquire);
            if go_at == 0 {
                break;
            }
            self.sample(index, task, go_at);
            if !self.shared.barrier() {
                return None;
            }
            if let Some(leader) = &mut leader {
                leader.take();
            }
        }
        self.unless_stopped(|| task.end());
        leader.map(|leader| leader.samples)
    }

    /// Does a step of a task; where that fails, or another thread failed before, no sample follows.
    fn unless_stopped<R>(&self, step: impl FnOnce() -> Result<R, Outcome>) -> Option<R> {
        if self.shared.stop.load(Ordering::Acquire) {
            return None;
        }
        step().map_err(|outcome| self.shared.fail(outcome)).ok()
    }

    fn sample<T: Task>(&self, index: usize, task: &mut T, go_at: u64) {
        let slot = &self.shared.slots[index];
        let repetitions = self.shared.repetitions.load(Ordering::Relaxed);
        let before = ThreadUsage::now();
        while self.ticker.now() < go_at {
            std::hint::spin_loop();
        }
        let approach = task.approach();
        let start = self.ticker.now();
        let run = approach.and_then(|()| task.run(repetitions));
        let end = self.ticker.now();
        let after = ThreadUsage::now();
        if let Err(outcome) = run {
            self.shared.fail(outcome);
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
}

impl<'a> Leader<'a> {
    fn new(team: &'a Team<'a>) -> Self {
        Leader {
            team,
            samples: Samples::default(),
            warm_up: Some(team.warm_up),
            deadline: Instant::now() + team.quota.time,
            steal: StealMeter::new(),
        }
    }

    fn decide(&mut self) {
        let shared = &self.team.shared;
        let enough = self.samples.ticks.len() >= self.team.quota.most_samples
            || (self.samples.ticks.len() >= self.team.quota.least_samples && Instant::now() >= self.deadline);
        let stop = enough || shared.stop.load(Ordering::Acquire) || (self.team.quota.interrupted)();
        if !stop {
            self.with_meters(|meters, now| meters.begin(now));
            self.with_controllers(Controllers::begin);
        }
        let go_at = if stop { 0 } else { self.team.ticker.now() + self.team.go_ahead_ticks };
        shared.go_at.store(go_at, Ordering::Release);
    }

    /// Does something with the meters, where there are any.
    fn with_meters<R>(&self, what: impl FnOnce(&mut Meters, &dyn Fn() -> u64) -> R) -> Option<R> {
        let mut meters = self.team.meters?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Some(what(&mut meters, &|| self.team.ticker.now()))
    }

    /// Does something with the counters of the memory controllers, where there are any.
    fn with_controllers<R>(&self, what: impl FnOnce(&mut Controllers) -> R) -> Option<R> {
        let mut controllers = self.team.controllers?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Some(what(&mut controllers))
    }

    fn take(&mut self) {
        let counted = self.with_controllers(Controllers::end);
        let told = self.with_meters(|meters, now| meters.end(now));
        let shared = &self.team.shared;
        let starts = shared.slots.iter().map(|s| s.start.load(Ordering::Relaxed));
        let ends = shared.slots.iter().map(|s| s.end.load(Ordering::Relaxed));
        let ticks = ends.max().unwrap_or(1) - starts.min().unwrap_or(0);
        if let Some(warm_up) = &mut self.warm_up {
            let repetitions = shared.repetitions.load(Ordering::Relaxed);
            let lengthens = matches!(self.team.case.protocol, Protocol::Steady | Protocol::Refilled | Protocol::Energy);
            // STREAM's rule leaves out the first pass and no other; on fresh memory a second pass would be another.
            match warm_up.next(ticks, repetitions).filter(|_| lengthens) {
                Some(more) => shared.repetitions.store(more, Ordering::Relaxed),
                None => self.warm_up = None,
            }
            return;
        }
        let part = |s: &Slot| s.end.load(Ordering::Relaxed) - s.start.load(Ordering::Relaxed);
        let mut samples = std::mem::take(&mut self.samples);
        if let Some(counted) = counted {
            controllers::push(counted, &mut samples);
        }
        if let Some(told) = told {
            self.with_meters(|meters, _| meters.push(told, &mut samples));
        }
        samples.push(Sample {
            ticks,
            fastest_thread_ticks: shared.slots.iter().map(part).min().unwrap_or(ticks),
            core_clock_ticks: (self.team.core_clock)(),
            lost_us: shared.sum(|s| &s.lost_us),
            steal_jiffies: self.steal.since_last(),
            switches: shared.sum(|s| &s.switches),
            faults: shared.sum(|s| &s.faults),
            migrations: shared.sum(|s| &s.migrated),
            setup_ticks: shared.slots.iter().map(|s| s.setup.load(Ordering::Relaxed)).max().unwrap_or(0),
        });
        self.samples = samples;
    }
}

/// How long a core takes to find its clock for what it is to do. A chase asks little of it.
fn settling(work: &Work) -> Duration {
    match work {
        Work::Kernel(_) | Work::Flops(_) | Work::Streams(_) | Work::Rounding(_) => SETTLING,
        _ => Duration::ZERO,
    }
}

/// Finds how many repetitions make a sample, and goes on until the caches hold what they will hold and the core has the
/// clock it will have.
#[derive(Debug, Clone, Copy)]
pub(super) struct WarmUp {
    /// Ticks that a sample lasts at least, where its repetitions may be chosen.
    sample_ticks: u64,
    /// Ticks that all passes together last at least.
    least_ticks: u64,
    patience_ticks: u64,
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
    /// Nor is more time spent, beyond the second pass.
    const PATIENCE: Duration = Duration::from_millis(12);

    pub fn new(sample: Duration, hz: Hertz) -> WarmUp {
        let [sample_ticks, patience_ticks] = [sample, WarmUp::PATIENCE].map(|span| (span.as_secs_f64() * hz.0) as u64);
        WarmUp { sample_ticks, patience_ticks, least_ticks: 0, repetitions: 0, passes: 0, fastest: u64::MAX, spent: 0 }
    }

    /// The same, but not warm before so much time was spent.
    pub fn lasting(self, least: Duration) -> WarmUp {
        // Ticks a second are in the patience already.
        let ticks = self.patience_ticks as f64 * least.as_secs_f64() / WarmUp::PATIENCE.as_secs_f64();
        WarmUp { least_ticks: ticks as u64, ..self }
    }

    /// Takes note of a pass of `repetitions` that took `ticks`; returns the repetitions of the next one, or nothing
    /// when it is warm. One pass alone is never believed: it may have been cold, or interrupted.
    pub fn next(&mut self, ticks: u64, repetitions: u64) -> Option<u64> {
        if repetitions != self.repetitions {
            *self = WarmUp { repetitions, passes: 0, fastest: u64::MAX, ..*self };
        }
        let gaining = (ticks as f64) < self.fastest as f64 * Self::GAIN;
        self.fastest = self.fastest.min(ticks);
        self.passes += 1;
        self.spent += ticks;
        let slow = self.spent > self.patience_ticks;
        if self.passes == 1 || (gaining && self.passes < Self::PASSES_MOST && !slow) {
            // The first pass of a long case is enough: nothing stays cached from one end to the other.
            return (!slow || self.passes > 1 || ticks < self.patience_ticks / 3).then_some(repetitions);
        }
        if self.fastest >= self.sample_ticks {
            return (self.spent < self.least_ticks).then_some(repetitions);
        }
        let wanted = (repetitions as f64 * self.sample_ticks as f64 / self.fastest as f64 * 1.2).ceil() as u64;
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
    use crate::kernel::chase::{Chase, Order};
    use crate::plan::{USUAL_MEMORY, Work};
    use crate::units::Bytes;

    /// Its second thread panics in the third sample.
    struct Panicking {
        index: usize,
        samples: u32,
    }

    impl Task for Panicking {
        fn begin(&mut self) -> Result<(), Outcome> {
            Ok(())
        }

        fn renew(&mut self) -> Result<u64, Outcome> {
            Ok(0)
        }

        fn run(&mut self, _repetitions: u64) -> Result<(), Outcome> {
            self.samples += 1;
            assert!(self.index == 0 || self.samples < 3, "as planned");
            Ok(())
        }

        fn end(&mut self) -> Result<(), Outcome> {
            Ok(())
        }
    }

    #[test]
    fn a_thread_that_panics_ends_the_visit_for_all() {
        let cpu = sys::current_cpu().unwrap();
        let case = Case {
            work: Work::Chase(Chase::of(Order::Forward)),
            memory: USUAL_MEMORY,
            streams: Vec::new(),
            cpus: vec![cpu, cpu],
            working_set: Bytes::kib(4),
            misaligned_bytes: 0,
            protocol: Protocol::Steady,
        };
        let quota = Quota { least_samples: 9, most_samples: 9, time: Duration::from_secs(9), interrupted: &|| false };
        let team = Team::new(&case, &quota, Ticker::detect(), Hertz(1e9), &|| 1);
        let mut tasks = [0, 1].map(|index| Panicking { index, samples: 0 });
        let outcome = team.measure(&mut tasks).err();
        assert_eq!(outcome, Some(Outcome::Crashed { reason: "a measuring thread panicked".into() }));
    }

    /// Runs a warm-up against a simulated machine: the time of the n-th pass of r repetitions.
    fn warm(time: impl Fn(u64, u64) -> u64) -> (u64, u64) {
        warmed(Duration::ZERO, time)
    }

    /// The same with a least time.
    fn warmed(least: Duration, time: impl Fn(u64, u64) -> u64) -> (u64, u64) {
        let warm_up = WarmUp::new(Duration::from_micros(200), Hertz(5e6)).lasting(least);
        let (mut warm_up, mut repetitions, mut pass) = (warm_up, 1, 0);
        while let Some(next) = warm_up.next(time(pass, repetitions), repetitions) {
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

    /// 4 ms are 20,000 ticks, a sample 1000: 20 passes, however steady they are. A long pass is enough by itself.
    #[test]
    fn a_core_has_time_to_find_its_clock() {
        let (repetitions, passes) = warmed(SETTLING, |_, repetitions| 10 * repetitions);
        assert!((100..=200).contains(&repetitions) && (15..=25).contains(&passes), "{repetitions}, {passes}");
        assert_eq!(warmed(SETTLING, |_, _| 70_000), (1, 0));
        let (_, without) = warm(|_, repetitions| 10 * repetitions);
        assert!(without < 10, "{without}");
    }
}
