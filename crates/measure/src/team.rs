//! Threads that take samples together: pinned, started at one tick, timed by one clock.
//!
//! ```text
//! leader:  renew, lead, decide | go at T                | take, renew, lead, decide | ...
//! others:  renew, wait         | go at T                | renew, wait               | ...
//! all:                           probe, start run end, probe, exchange
//! ```
//! A sample lasts from the first thread's start to the last thread's end. Waiting is spinning: a thread that sleeps
//! needs longer to wake than a sample lasts. Threads probe their cores at the same time: two that share one see each other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::bench::{StealMeter, Tools, elapsed, keep_probes, pin};
use crate::controllers::Controllers;
use crate::memory::touch::FirstTouch;
use crate::meters::Meters;
use crate::no_visit::NoVisit;
use crate::os::thread;
use crate::os::thread::ThreadUsage;
use crate::schedule::Quota;
use crate::threads::Stop;
use crate::warm_up::WarmUp;
use crate::{controllers, threads};
use membound_core::case::{Case, Protocol, Work};
use membound_core::record::probes::Reading;
use membound_core::record::{self, Sample, Samples};

/// A sample of several threads lasts at least this long: they start and end within some 100 ns of each other, 0.1 %.
pub(crate) const SAMPLE: Duration = Duration::from_micros(200);
/// A sample of one thread: reading the clock and the call take some 30 ns, 0.3 %. Shorter than the time between two
/// interruptions by a host, which may come 16,000 times a second for 5 us each: most samples meet none, so that their
/// median is what the machine does when it is let.
pub(crate) const LONE_SAMPLE: Duration = Duration::from_micros(10);
/// A core that begins with wide arithmetic first slows it down, asks for another clock and gets it 1 to 3 ms later.
/// Sums of 512 bits ran at 77 % of their lasting speed until then.
const SETTLING: Duration = Duration::from_millis(4);
/// From the decision to go to the start, for all threads to see it.
const GO_AHEAD: Duration = Duration::from_micros(2);

/// How often a thread that sleeps looks whether the user wants to stop.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// Round trips of a line between two threads: those that bring it there, and those that are timed, of which the fastest group
/// counts.
const TRIPS_BEFORE: u32 = 4;
const TRIPS: u32 = 4;
const GROUPS: u32 = 3;

/// What one thread of a team does: the sample itself, and what must happen around it. An error ends the visit.
pub(crate) trait Task: Send {
    /// Once, on the pinned thread, before the first sample.
    fn begin(&mut self) -> Result<(), NoVisit> {
        Ok(())
    }

    /// What `begin` was the first to touch.
    fn first_touch(&self) -> FirstTouch {
        FirstTouch::default()
    }

    /// Once, after all threads have begun: how warming up begins, where passes alone would not do.
    fn settle(&mut self) -> Result<(), NoVisit> {
        Ok(())
    }

    /// Before each sample, not timed by it: checks what the last one left behind and brings memory back to where a
    /// sample starts. Returns the ticks that mapping memory took, 0 where none was mapped.
    fn renew(&mut self) -> Result<u64, NoVisit> {
        Ok(0)
    }

    /// What the first thread does for all, when all have renewed.
    fn lead(&mut self) -> Result<(), NoVisit> {
        Ok(())
    }

    /// Whether it has something to do right before each sample: then all threads wait for each other once more.
    const APPROACHES: bool = false;

    /// Right before the sample, not timed by it: meets again what counting disturbances has pushed out of the caches.
    fn approach(&mut self) -> Result<(), NoVisit> {
        Ok(())
    }

    /// The sample.
    fn run(&mut self, repetitions: u64) -> Result<(), NoVisit>;

    /// Once, after the last sample.
    fn end(&mut self) -> Result<(), NoVisit>;
}

/// What the threads of a visit share.
struct Shared {
    threads: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    /// Tick at which the next sample starts; 0 ends the visit.
    go_at: AtomicU64,
    /// The same, when all have approached it: the last one's.
    approached_at: AtomicU64,
    repetitions: AtomicU64,
    stop: Stop,
    /// A thread has panicked, or was never started: it will not arrive any more.
    is_incomplete: AtomicBool,
    slots: Vec<Slot>,
    /// One for each two threads.
    balls: Vec<Ball>,
}

/// What two threads hand to each other, and what that took.
#[derive(Default)]
#[repr(align(128))]
struct Ball {
    /// Even where it is the first thread's turn.
    turn: AtomicU64,
    ticks: AtomicU64,
}

/// One thread's part of a sample, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    start: AtomicU64,
    end: AtomicU64,
    /// What was touched first before all samples: bytes and ticks.
    first_touch: [AtomicU64; 2],
    /// Ticks that mapping took before the sample.
    setup: AtomicU64,
    lost_us: AtomicU64,
    switches: AtomicU64,
    faults: AtomicU64,
    migrated: AtomicU64,
    /// What the probe told before and after the sample: chain and wide in one word each.
    probes: [AtomicU64; 2],
}

impl Slot {
    /// What the probe told before and after the sample.
    fn probes(&self) -> [Reading; 2] {
        [0, 1].map(|side: usize| {
            let word = self.probes[side].load(Ordering::Relaxed);
            Reading { chain_ticks: (word >> 32) as u32, wide_ticks: word as u32 }
        })
    }
}

impl Shared {
    fn new(threads: usize) -> Self {
        Shared {
            threads,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            go_at: AtomicU64::new(0),
            approached_at: AtomicU64::new(0),
            repetitions: AtomicU64::new(1),
            stop: Stop::default(),
            is_incomplete: AtomicBool::new(false),
            slots: (0..threads).map(|_| Slot::default()).collect(),
            balls: (0..threads / 2).map(|_| Ball::default()).collect(),
        }
    }

    /// Waits until it is one's turn. Returns whose that is, or nothing where the other will never come.
    fn turn(&self, ball: &Ball, is_mine: impl Fn(u64) -> bool) -> Option<u64> {
        loop {
            let turn = ball.turn.load(Ordering::Acquire);
            if is_mine(turn) {
                return Some(turn);
            }
            if self.is_incomplete.load(Ordering::Relaxed) {
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// The first thread's part of some round trips.
    fn serve(&self, ball: &Ball, trips: u32) -> Option<()> {
        (0..trips).try_for_each(|_| {
            let turn = self.turn(ball, |turn| turn % 2 == 0)?;
            ball.turn.store(turn + 1, Ordering::Release);
            self.turn(ball, |now| now == turn + 2).map(drop)
        })
    }

    /// The second thread's part.
    fn give_back(&self, ball: &Ball, trips: u32) -> Option<()> {
        (0..trips).try_for_each(|_| {
            let turn = self.turn(ball, |turn| turn % 2 == 1)?;
            ball.turn.store(turn + 1, Ordering::Release);
            Some(())
        })
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

    /// What all threads touched first.
    fn first_touch(&self) -> Option<record::FirstTouch> {
        let of = |which: usize| self.slots.iter().map(move |slot| slot.first_touch[which].load(Ordering::Relaxed));
        let all = record::FirstTouch { bytes: of(0).sum(), ticks: of(1).max().unwrap_or(0) };
        (all.bytes > 0).then_some(all)
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
pub(crate) struct Team<'a> {
    case: &'a Case,
    quota: &'a Quota<'a>,
    tools: &'a Tools<'a>,
    warm_up: WarmUp,
    /// Ticks between the decision to go and the start.
    go_ahead_ticks: u64,
    /// Meters of energy that are read around each sample.
    meters: Option<&'a Mutex<Meters>>,
    /// Counters of the memory controllers that are read around each sample.
    controllers: Option<&'a Mutex<Controllers>>,
    /// What lies between two samples; nothing where they follow each other.
    apart: Duration,
    shared: Shared,
}

impl<'a> Team<'a> {
    pub fn new(case: &'a Case, quota: &'a Quota<'a>, tools: &'a Tools<'a>) -> Self {
        let sample = if case.cpus.len() == 1 { LONE_SAMPLE } else { SAMPLE };
        let go_ahead_ticks = (GO_AHEAD.as_secs_f64() * tools.hz.0) as u64;
        let warm_up = WarmUp::new(sample, tools.hz).lasting(settling(&case.work));
        let shared = Shared::new(case.cpus.len());
        let apart = Duration::ZERO;
        Team { case, quota, tools, warm_up, go_ahead_ticks, meters: None, controllers: None, apart, shared }
    }

    /// The same with meters read around each sample, and samples as long as they need.
    pub fn metered(self, meters: &'a Mutex<Meters>) -> Self {
        let sample = meters.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).sample().max(SAMPLE);
        let warm_up = WarmUp::new(sample, self.tools.hz).lasting(settling(&self.case.work));
        Team { warm_up, meters: Some(meters), ..self }
    }

    /// The same with counters of the memory controllers read around each sample.
    pub fn counted(self, controllers: &'a Mutex<Controllers>) -> Self {
        Team { controllers: Some(controllers), ..self }
    }

    /// The same of a lone thread that sleeps so long between two samples: each may then meet another state of the machine, for
    /// little of its time. Threads that wait for each other spin, and would do so all the while: they get no pauses.
    pub fn with_pauses(self, apart: Duration) -> Self {
        Team { apart: if self.shared.threads == 1 { apart } else { Duration::ZERO }, ..self }
    }

    /// Has each thread do its task, the first the leader's. Returns samples, and the repetitions of each.
    pub fn measure<T: Task>(self, tasks: &mut [T]) -> Result<(Samples, u64), NoVisit> {
        let (team, mut samples) = (&self, Samples::default());
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (index, task) in tasks.iter_mut().enumerate() {
                match threads::start(scope, move || team.thread(index, task)) {
                    Ok(worker) => workers.push(worker),
                    Err(why) => {
                        self.shared.stop.fail(why);
                        // Those that were started wait for one that will never come.
                        self.shared.is_incomplete.store(true, Ordering::Release);
                        break;
                    }
                }
            }
            for worker in workers {
                if let Some(taken) = threads::join(worker) {
                    samples = taken;
                }
            }
        });
        match self.shared.stop.why() {
            Some(why) => Err(why),
            None if samples.ticks.is_empty() => Err(NoVisit::OutOfTime),
            None => Ok((samples, self.shared.repetitions.load(Ordering::Relaxed))),
        }
    }

    fn thread<T: Task>(&self, index: usize, task: &mut T) -> Option<Samples> {
        let _place = Place(&self.shared);
        self.unless_stopped(|| pin(self.case.cpus[index]));
        self.unless_stopped(|| task.begin());
        self.note_first_touch(index, task.first_touch());
        if !self.shared.barrier() {
            return None;
        }
        let ready = self.tools.ticker.now();
        self.unless_stopped(|| task.settle());
        let mut leader = (index == 0).then(|| Leader::new(self, ready));
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
            self.probe(index, 1);
            self.exchange(index)?;
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
    fn unless_stopped<R>(&self, step: impl FnOnce() -> Result<R, NoVisit>) -> Option<R> {
        if self.shared.stop.is_raised() {
            return None;
        }
        step().map_err(|why| self.shared.stop.fail(why)).ok()
    }

    fn note_first_touch(&self, index: usize, touched: FirstTouch) {
        let ticks = (touched.took.as_secs_f64() * self.tools.hz.0) as u64;
        let [of_bytes, of_ticks] = &self.shared.slots[index].first_touch;
        of_bytes.store(touched.bytes.0, Ordering::Relaxed);
        of_ticks.store(ticks, Ordering::Relaxed);
    }

    /// Has the thread probe its core, on one side of a sample.
    fn probe(&self, index: usize, side: usize) {
        let Reading { chain_ticks, wide_ticks } = self.tools.probe.read();
        let word = u64::from(chain_ticks) << 32 | u64::from(wide_ticks);
        self.shared.slots[index].probes[side].store(word, Ordering::Relaxed);
    }

    /// Hands a line to the thread beside this one and back. Nothing is told where both are on one CPU, and take turns by the
    /// millisecond. `None` where the other has left.
    fn exchange(&self, index: usize) -> Option<()> {
        let (pair, cpus) = (index / 2, &self.case.cpus);
        let Some(ball) = self.shared.balls.get(pair).filter(|_| cpus[2 * pair] != cpus[2 * pair + 1]) else {
            return Some(());
        };
        if index % 2 == 1 {
            return self.shared.give_back(ball, TRIPS_BEFORE + GROUPS * TRIPS);
        }
        self.shared.serve(ball, TRIPS_BEFORE)?;
        let mut least = u64::MAX;
        for _ in 0..GROUPS {
            let start = self.tools.ticker.now();
            self.shared.serve(ball, TRIPS)?;
            least = least.min(self.tools.ticker.now().saturating_sub(start));
        }
        ball.ticks.store(least / u64::from(2 * TRIPS), Ordering::Relaxed);
        Some(())
    }

    /// Waits until all threads have approached the sample, and for a tick that is still to come for all of them: a sample lasts
    /// from the first start on, and approaches end at different ticks. Returns whether all have come.
    fn meet(&self) -> bool {
        self.shared.approached_at.fetch_max(self.tools.ticker.now() + self.go_ahead_ticks, Ordering::AcqRel);
        if !self.shared.barrier() {
            return false;
        }
        threads::spin_until(self.tools.ticker, self.shared.approached_at.load(Ordering::Acquire));
        true
    }

    fn sample<T: Task>(&self, index: usize, task: &mut T, go_at: u64) {
        let (slot, ticker) = (&self.shared.slots[index], self.tools.ticker);
        let repetitions = self.shared.repetitions.load(Ordering::Relaxed);
        threads::spin_until(ticker, go_at);
        self.probe(index, 0);
        // Threads that approach together meet once more, and none is late.
        let is_awaited = self.shared.threads > 1 && !T::APPROACHES;
        let together_at = go_at + self.tools.probe.most_ticks;
        let late_us = if is_awaited { threads::late_us(self.tools, together_at) } else { 0 };
        let before = ThreadUsage::now();
        if self.shared.threads > 1 {
            threads::spin_until(ticker, together_at);
        }
        let approach = task.approach();
        if T::APPROACHES && self.shared.threads > 1 && !self.meet() {
            return;
        }
        let start = ticker.now();
        let run = approach.and_then(|()| task.run(repetitions));
        let end = ticker.now();
        let lost = before.until_now();
        if let Err(why) = run.and_then(|()| elapsed(start, end)) {
            self.shared.stop.fail(why);
        }
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(end.max(start + 1), Ordering::Relaxed);
        slot.lost_us.store(u64::from(lost.lost_us) + u64::from(late_us), Ordering::Relaxed);
        slot.switches.store(lost.switches.into(), Ordering::Relaxed);
        slot.faults.store(lost.faults.into(), Ordering::Relaxed);
        let moved = thread::current_cpu().is_some_and(|cpu| cpu != self.case.cpus[index]);
        slot.migrated.store(u64::from(moved), Ordering::Relaxed);
    }
}

/// The first thread's extra work: decides when to go on and keeps the samples.
struct Leader<'a> {
    team: &'a Team<'a>,
    samples: Samples,
    warm_up: Option<WarmUp>,
    /// Whether samples are so long that one makes a visit.
    is_one_enough: bool,
    deadline: Instant,
    steal: StealMeter,
    /// Tick at which warming up, and then sampling, began.
    since: u64,
    /// Whether a pause is due: a sample was taken since the last one.
    is_pause_due: bool,
}

impl<'a> Leader<'a> {
    /// All threads were ready at that tick.
    fn new(team: &'a Team<'a>, ready: u64) -> Self {
        Leader {
            team,
            samples: Samples { first_touch: team.shared.first_touch(), ..Samples::default() },
            warm_up: Some(team.warm_up),
            is_one_enough: false,
            deadline: Instant::now() + team.quota.time,
            steal: StealMeter::new(),
            since: ready,
            is_pause_due: false,
        }
    }

    fn decide(&mut self) {
        let shared = &self.team.shared;
        let quota = self.team.quota;
        let least_samples = if self.is_one_enough { 1 } else { quota.least_samples };
        let enough = Quota { least_samples, ..*quota }.is_met(self.samples.ticks.len(), self.deadline);
        let is_ended = || enough || shared.stop.is_raised() || (self.team.quota.interrupted)();
        if !is_ended() {
            self.pause();
        }
        let stop = is_ended();
        if !stop {
            self.with_meters(|meters, now| meters.begin(now));
            self.with_controllers(Controllers::begin);
        }
        let go_at = if stop { 0 } else { self.team.tools.ticker.now() + self.team.go_ahead_ticks };
        shared.approached_at.store(0, Ordering::Relaxed);
        shared.go_at.store(go_at, Ordering::Release);
    }

    /// Sleeps after a sample, where samples are to lie apart; passes that warm up again come next.
    fn pause(&mut self) {
        let until = Instant::now() + self.team.apart;
        if self.team.apart.is_zero() || !std::mem::take(&mut self.is_pause_due) {
            return;
        }
        while Instant::now() < until && !(self.team.quota.interrupted)() {
            std::thread::sleep(LOOKS_EVERY.min(until.saturating_duration_since(Instant::now())));
        }
        self.warm_up = Some(self.team.warm_up.again(self.team.shared.repetitions.load(Ordering::Relaxed)));
    }

    /// Does something with the meters, where there are any.
    fn with_meters<R>(&self, what: impl FnOnce(&mut Meters, &dyn Fn() -> u64) -> R) -> Option<R> {
        let mut meters = self.team.meters?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Some(what(&mut meters, &|| self.team.tools.ticker.now()))
    }

    /// Does something with the counters of the memory controllers, where there are any.
    fn with_controllers<R>(&self, what: impl FnOnce(&mut Controllers) -> R) -> Option<R> {
        let mut controllers = self.team.controllers?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Some(what(&mut controllers))
    }

    /// Ticks since this was last asked.
    fn ticks(&mut self) -> u64 {
        let now = self.team.tools.ticker.now();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
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
            // STREAM's rule leaves out the first pass and no other; on fresh memory a second pass would be another.
            let lengthens = matches!(self.team.case.protocol, Protocol::Steady | Protocol::Refilled | Protocol::Energy);
            let next = warm_up.next(ticks, repetitions).filter(|_| lengthens);
            let is_free = matches!(self.team.case.protocol, Protocol::Steady | Protocol::Refilled);
            let is_sample = next.is_none() && is_free && warm_up.ended_with_a_sample();
            self.is_one_enough = is_free && warm_up.is_of_long_passes();
            match next {
                Some(more) => shared.repetitions.store(more, Ordering::Relaxed),
                None => self.warm_up = None,
            }
            if !is_sample {
                let took = self.ticks();
                match self.samples.ticks.is_empty() {
                    true => self.samples.warm_up_ticks += took,
                    // After a pause.
                    false => self.samples.sampling_ticks += took,
                }
                return;
            }
        }
        let part = |s: &Slot| s.end.load(Ordering::Relaxed) - s.start.load(Ordering::Relaxed);
        let mut samples = std::mem::take(&mut self.samples);
        if let Some(counted) = counted {
            controllers::push(counted, &mut samples);
        }
        if let Some(told) = told {
            self.with_meters(|meters, _| meters.push(told, &mut samples));
        }
        if shared.threads > 1 {
            samples.thread_ticks.resize(shared.threads, Vec::new());
            samples.thread_ticks.iter_mut().zip(&shared.slots).for_each(|(column, slot)| column.push(part(slot)));
        }
        let hand_overs = shared.balls.iter().map(|ball| ball.ticks.load(Ordering::Relaxed));
        keep_probes(&mut samples, shared.slots.iter().map(Slot::probes))
            .push_hand_overs(hand_overs.map(|ticks| u32::try_from(ticks).unwrap_or(u32::MAX)));
        samples.push(Sample {
            ticks,
            core_clock_ticks: shared.slots[0].probes()[1].chain_ticks.into(),
            lost_us: shared.sum(|s| &s.lost_us),
            steal_jiffies: self.steal.since_last(),
            switches: shared.sum(|s| &s.switches),
            faults: shared.sum(|s| &s.faults),
            migrations: shared.sum(|s| &s.migrated),
            setup_ticks: shared.slots.iter().map(|s| s.setup.load(Ordering::Relaxed)).max().unwrap_or(0),
            ..Sample::default()
        });
        samples.sampling_ticks += self.ticks();
        self.samples = samples;
        self.is_pause_due = true;
    }
}

/// How long a core takes to find its clock for what it is to do. A chase asks little of it.
fn settling(work: &Work) -> Duration {
    match work {
        Work::Kernel(_) | Work::Flops(_) | Work::Streams(_) | Work::Common(_) | Work::Plain(_) | Work::Rounding(_) => {
            SETTLING
        }
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::Probe;
    use crate::memory::places::Places;
    use crate::os::clock::Ticker;
    use membound_core::case::{LONG_SAMPLE, USUAL_MEMORY, Work};
    use membound_core::kernel::chase::{Chase, Order};

    use membound_core::units::{Bytes, Hertz};

    /// Its second thread panics in the third sample.
    struct Panicking {
        index: usize,
        samples: u32,
    }

    impl Task for Panicking {
        fn run(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
            self.samples += 1;
            assert!(self.index == 0 || self.samples < 3, "as planned");
            Ok(())
        }

        fn end(&mut self) -> Result<(), NoVisit> {
            Ok(())
        }
    }

    fn forward(cpus: Vec<u32>) -> Case {
        Case::new(Work::Chase(Chase::of(Order::Forward)), USUAL_MEMORY, cpus, Bytes::kib(4))
    }

    pub(crate) fn with_tools<R>(hz: Hertz, work: impl FnOnce(&Tools<'_>) -> R) -> R {
        let (ticker, isa) = (Ticker::detect(), crate::asm::detect());
        let (probe, places) = (Probe::new(ticker).unwrap(), Places::default());
        work(&Tools { ticker, isa, probe: &probe, places: &places, hz, sample: SAMPLE })
    }

    /// What two threads on one CPU come to.
    fn outcome<T: Task>(mut tasks: [T; 2]) -> Result<(Samples, u64), NoVisit> {
        let cpu = thread::current_cpu().unwrap();
        let case = forward(vec![cpu, cpu]);
        let quota = Quota { least_samples: 9, most_samples: 9, time: Duration::from_secs(9), interrupted: &|| false };
        with_tools(Hertz(1e9), |tools| Team::new(&case, &quota, tools).measure(&mut tasks))
    }

    /// Its passes take as long as a sample that is worth a visit, and more.
    struct Long {
        passes: u32,
    }

    impl Task for Long {
        fn run(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
            self.passes += 1;
            std::thread::sleep(LONG_SAMPLE + Duration::from_millis(1));
            Ok(())
        }

        fn end(&mut self) -> Result<(), NoVisit> {
            Ok(())
        }
    }

    /// Passes of a visit with no time to spare, and its samples.
    fn of_long_passes(protocol: Protocol, least_samples: usize) -> (u32, usize) {
        let case = Case { cpus: vec![thread::current_cpu().unwrap()], protocol, ..forward(Vec::new()) };
        let quota = Quota { least_samples, most_samples: 9, time: Duration::ZERO, interrupted: &|| false };
        let mut task = Long { passes: 0 };
        let ticker = Ticker::detect();
        let (samples, repetitions) = with_tools(ticker.calibrate(Duration::from_millis(5)).hz, |tools| {
            Team::new(&case, &quota, tools).measure(std::slice::from_mut(&mut task))
        })
        .unwrap();
        assert_eq!(repetitions, 1);
        (task.passes, samples.ticks.len())
    }

    #[test]
    fn a_long_pass_makes_a_visit() {
        assert_eq!(of_long_passes(Protocol::Steady, 2), (2, 1), "a warm-up and a sample");
        assert_eq!(of_long_passes(Protocol::Stream, 3), (4, 3), "STREAM has its own rule");
        assert_eq!(of_long_passes(Protocol::FirstUse, 2), (3, 2), "and fresh memory");
    }

    /// Its second thread takes long to approach.
    struct Approaching<'a> {
        index: usize,
        approached: &'a AtomicUsize,
        /// Samples that it began when not all had approached them.
        early: &'a AtomicUsize,
        samples: usize,
    }

    impl Task for Approaching<'_> {
        const APPROACHES: bool = true;

        fn approach(&mut self) -> Result<(), NoVisit> {
            std::thread::sleep(Duration::from_millis(5 * self.index as u64));
            self.approached.fetch_add(1, Ordering::AcqRel);
            Ok(())
        }

        fn run(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
            self.samples += 1;
            let is_early = self.approached.load(Ordering::Acquire) < 2 * self.samples;
            self.early.fetch_add(usize::from(is_early), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        }

        fn end(&mut self) -> Result<(), NoVisit> {
            Ok(())
        }
    }

    #[test]
    fn a_sample_starts_when_all_have_approached_it() {
        let (approached, early) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let task = |index| Approaching { index, approached: &approached, early: &early, samples: 0 };
        let (samples, _) = outcome([0, 1].map(task)).unwrap();
        assert_eq!((samples.ticks.len(), early.into_inner()), (9, 0));
    }

    /// At a tick per nanosecond: a thread that comes 5 ms late has lost them. One that is alone keeps nobody waiting.
    #[test]
    fn who_starts_late_has_lost_time() {
        let cpu = thread::current_cpu().unwrap();
        let quota = Quota { least_samples: 1, most_samples: 1, time: Duration::ZERO, interrupted: &|| false };
        let lost_us = |threads: usize| {
            let case = forward(vec![cpu; threads]);
            with_tools(Hertz(1e9), |tools| {
                let team = Team::new(&case, &quota, tools);
                let go_at = tools.ticker.now() - tools.probe.most_ticks - 5_000_000;
                team.sample(0, &mut Panicking { index: 0, samples: 0 }, go_at);
                team.shared.slots[0].lost_us.load(Ordering::Relaxed)
            })
        };
        assert!(lost_us(2) >= 5000 && lost_us(1) < 5000);
    }

    #[test]
    fn a_thread_that_panics_ends_the_visit_for_all() {
        let outcome = std::panic::catch_unwind(|| outcome([0, 1].map(|index| Panicking { index, samples: 0 })));
        assert!(outcome.is_err(), "{outcome:?}");
    }

    /// Counts how often it is run.
    struct Counted<'a>(&'a AtomicUsize);

    impl Task for Counted<'_> {
        fn run(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(50));
            Ok(())
        }

        fn end(&mut self) -> Result<(), NoVisit> {
            Ok(())
        }
    }

    #[test]
    fn between_samples_that_lie_apart_is_one_pause_and_one_pass() {
        let case = forward(vec![thread::current_cpu().unwrap()]);
        let runs = [Duration::ZERO, Duration::from_millis(1)].map(|apart| {
            let quota =
                Quota { least_samples: 5, most_samples: 5, time: Duration::from_secs(9), interrupted: &|| false };
            let (ticker, isa, hz) = (Ticker::detect(), crate::asm::detect(), Hertz(1e9));
            let (probe, places) = (Probe::new(ticker).unwrap(), Places::default());
            let tools = Tools { ticker, isa, probe: &probe, places: &places, hz, sample: SAMPLE };
            let runs = AtomicUsize::new(0);
            let (samples, _) =
                Team::new(&case, &quota, &tools).with_pauses(apart).measure(&mut [Counted(&runs)]).unwrap();
            assert_eq!(samples.ticks.len(), 5);
            runs.into_inner() - 5
        });
        // How many passes warm up at first is the machine's; four pauses have one each.
        assert!((4..=4 + 8).contains(&runs[1]) && runs[0] <= 9, "{runs:?}");
    }

    #[test]
    fn a_thread_that_is_refused_ends_the_visit_for_all() {
        for started in [0, 1] {
            let tasks = [0, 1].map(|index| Panicking { index, samples: 0 });
            let outcome = threads::planted::limit(started, || outcome(tasks));
            assert!(matches!(outcome, Err(NoVisit::Thread(_))), "{started}: {outcome:?}");
        }
    }
}
