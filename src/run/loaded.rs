//! Latency under load on this machine: the first CPU chases pointers through memory, the others walk over memory of
//! their own and pause after every few KiB. A sample is so many loads of the chase; what the others moved in the same
//! time is counted by themselves and read right before and right after it.
//!
//! The chase is that of the latency ladder: same code, same memory, same cycle. It goes on where it was, so that its next
//! lines were not touched for a whole cycle. All memory is kept from case to case within a round.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Quota;
use super::chase::{Chaser, Links};
use super::native::{CORE_CLOCK_LINKS, core_clock, crashed, pin, unavailable};
use super::scan::Tools;
use super::sys::{self, Peer, ThreadUsage};
use super::team::{LONE_SAMPLE, StealMeter, Task, WarmUp};
use crate::kernel::chase::{Chase, Order};
use crate::kernel::code::{Call, Executable};
use crate::kernel::mix::{LINES, Mix, STRIDE};
use crate::memory::{MemorySpec, Obtained, Proof, Region};
use crate::plan::{Case, Load};
use crate::record::{Measured, Outcome, Sample, Samples, Volume};
use crate::units::Bytes;

/// A sample lasts at least this long: at the longest pauses a loading thread then does its part some twenty times. Longer
/// ones would each meet some other task where CPUs are shared.
const SAMPLE: Duration = Duration::from_micros(500);
/// Repetitions of a mix between two pauses: 12 KiB, three pages. A pause waits until all stores are done and begins and
/// ends with a clock reading; after shorter walks that alone would leave no step between a third of full speed and all.
const CHUNK: u64 = 16;
/// Repetitions between two looks at whether to stop, where there are no pauses: some microseconds.
const BURST: u64 = 32;
/// All threads must have their memory ready within this time; it takes milliseconds for each 64 MiB.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the first thread follows.
const CHASE: Chase = Chase::of(Order::Random);
/// Words of a line.
const LINE_WORDS: usize = 8;

/// Loads the memory beside a chase; keeps code for good, and memory until the round ends.
#[derive(Debug, Default)]
pub(super) struct Bench {
    codes: HashMap<Mix, Executable>,
    fields: HashMap<Key, Field>,
    /// Visits so far: what loading threads store.
    visits: u64,
}

/// Whose memory: CPU, kind, bytes.
type Key = (u32, MemorySpec, Bytes);

/// Memory that a loading thread walks over.
#[derive(Debug)]
struct Field {
    region: Region,
    /// The next repetition's place, in repetitions from the start.
    next: u64,
    is_touched: bool,
}

impl Bench {
    /// Gives memory back.
    pub fn give_back(&mut self) {
        self.fields.clear();
    }

    /// Visits a case, which is this load beside a chase.
    pub fn visit(
        &mut self,
        case: &Case,
        load: Load,
        chaser: &mut Chaser,
        quota: &Quota<'_>,
        tools: &Tools<'_>,
    ) -> Result<Outcome, Outcome> {
        let (_, others) = case.cpus.split_first().ok_or_else(|| unavailable("it has no CPU"))?;
        if load != Load::Alone && others.is_empty() {
            let reason = "it needs two cores: one chases, the other loads; let this process use another CPU (taskset, \
                          cpuset, --cpus, --threads)";
            return Err(unavailable(reason));
        }
        let Some(chase) = case.shares() else { return Err(unavailable("this is no chase")) };
        self.visits += 1;
        let (mix, delay_ns) = match load {
            Load::Mixed { mix, delay_ns } => (Some(mix), delay_ns),
            Load::Alone | Load::Idle => (None, 0),
        };
        let share =
            Bytes((case.working_set.0 - chase.working_set.0.min(case.working_set.0)) / others.len().max(1) as u64);
        let mut fields = self.fields(case, others, share, tools)?;
        let mark = self.visits as f64;
        let crew = Crew {
            tools,
            quota,
            cpus: &case.cpus,
            mix: mix.map(|mix| Ok((mix, self.code(mix)?))).transpose()?,
            delay_ticks: (f64::from(delay_ns) * 1e-9 * tools.hz.0) as u64,
            mark,
            go: Go::new(others.len()),
        };
        let follow = |links: &mut Links<'_>| crew.measure(links, &mut fields);
        let ((samples, repetitions), mut obtained) = chaser.follow(&chase, CHASE, tools.places, follow)?;
        let seen = format!("one random cycle through {} lines", CHASE.places(chase.working_set));
        obtained.proofs.push(Proof::new("a line is loaded again only after all others", "construction", seen, true));
        let fields_obtained = fields.iter().map(|field| field.region.inspect(field.region.bytes()));
        let obtained = fields_obtained.fold(obtained, Obtained::and);
        self.fields.extend(others.iter().map(|&cpu| (cpu, case.memory, share)).zip(fields));
        let [loaded, stored] = mix.map_or([0, 0], Mix::bytes);
        let volume = Volume { elements: u64::from(mix.is_some()) * LINES, loaded, stored, ..Volume::default() };
        let (repetitions, core_clock_links) = (repetitions * Chase::LINKS, CORE_CLOCK_LINKS);
        Ok(Outcome::Measured(Box::new(Measured { volume, repetitions, core_clock_links, samples, obtained })))
    }

    /// Memory of each loading thread: kept, or new.
    fn fields(&mut self, case: &Case, cpus: &[u32], bytes: Bytes, tools: &Tools<'_>) -> Result<Vec<Field>, Outcome> {
        let mut field = |cpu: &u32| match self.fields.remove(&(*cpu, case.memory, bytes)) {
            Some(field) => Ok(field),
            None => {
                let region = Region::new(case.memory, bytes, tools.places).map_err(unavailable)?;
                Ok(Field { region, next: 0, is_touched: false })
            }
        };
        let fields = cpus.iter().map(&mut field).collect::<Result<Vec<Field>, Outcome>>()?;
        match fields.iter().all(|field| field.region.is_writable()) {
            true => Ok(fields),
            false => Err(unavailable(format!("{} memory may only be read; choose another kind", case.memory))),
        }
    }

    /// The code of a mix, made when it is first asked for.
    fn code(&mut self, mix: Mix) -> Result<&Executable, Outcome> {
        match self.codes.entry(mix) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let code = mix.assemble().map_err(unavailable)?;
                let refused = |fault| unavailable(format!("executable memory was refused ({fault})"));
                Ok(entry.insert(Executable::new(&code).map_err(refused)?))
            }
        }
    }
}

/// What a sample lasts at least beside this load. Without one it is as long as the ladder's.
pub(super) fn sample(load: Load) -> Duration {
    match load {
        Load::Mixed { .. } => SAMPLE,
        Load::Alone | Load::Idle => LONE_SAMPLE,
    }
}

/// What the threads of a visit tell each other.
struct Go {
    ready: AtomicUsize,
    stop: AtomicBool,
    slots: Vec<Slot>,
    fault: Mutex<Option<Outcome>>,
}

/// A loading thread's account, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    repetitions: AtomicU64,
    thread: AtomicU32,
}

impl Go {
    fn new(others: usize) -> Self {
        Go {
            ready: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            slots: (0..others).map(|_| Slot::default()).collect(),
            fault: Mutex::new(None),
        }
    }

    fn fail(&self, outcome: Outcome) {
        self.fault.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(outcome);
        self.stop.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Repetitions of all loading threads so far.
    fn moved(&self) -> u64 {
        self.slots.iter().map(|slot| slot.repetitions.load(Ordering::Relaxed)).sum()
    }
}

struct Crew<'a> {
    tools: &'a Tools<'a>,
    quota: &'a Quota<'a>,
    cpus: &'a [u32],
    mix: Option<(Mix, &'a Executable)>,
    delay_ticks: u64,
    /// What loading threads store in this visit.
    mark: f64,
    go: Go,
}

impl Crew<'_> {
    /// Has the first thread chase and the others load; samples, and the repetitions of each.
    fn measure(&self, links: &mut Links<'_>, fields: &mut [Field]) -> Result<(Samples, u64), Outcome> {
        let led = std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (index, field) in fields.iter_mut().enumerate() {
                workers.push(scope.spawn(move || self.load(index, field)));
            }
            let leader = scope.spawn(|| self.lead(links));
            let led = leader.join().unwrap_or_else(|_| Err(crashed("a measuring thread panicked")));
            self.go.stop.store(true, Ordering::Release);
            // Where a CPU is taken for good, its thread can hear of that on another one only.
            while workers.iter().any(|worker| !worker.is_finished()) {
                self.go.slots.iter().for_each(|slot| sys::unpin(slot.thread.load(Ordering::Acquire)));
                std::thread::sleep(Duration::from_micros(100));
            }
            led
        });
        let fault = self.go.fault.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        fault.map_or(led, Err)
    }

    /// A loading thread, until it is stopped.
    fn load(&self, index: usize, field: &mut Field) {
        let slot = &self.go.slots[index];
        slot.thread.store(sys::thread_id(), Ordering::Release);
        let mut work = || -> Result<(), Outcome> {
            pin(self.cpus[index + 1])?;
            field.touch()?;
            self.go.ready.fetch_add(1, Ordering::AcqRel);
            match self.mix {
                Some((mix, code)) => self.walk(mix, code, slot, field),
                None => {
                    while !self.go.is_stopped() {
                        std::hint::spin_loop();
                    }
                    Ok(())
                }
            }
        };
        if let Err(outcome) = work() {
            self.go.fail(outcome);
        }
    }

    /// Walks over a field again and again, then looks whether the last part was stored as it should.
    fn walk(&self, mix: Mix, code: &Executable, slot: &Slot, field: &mut Field) -> Result<(), Outcome> {
        let (address, length) = (field.region.address(), field.region.bytes().0 / STRIDE);
        let most = if self.delay_ticks == 0 { BURST } else { CHUNK };
        let mut last = (0, 0);
        while !self.go.is_stopped() {
            let repetitions = most.min(length - field.next);
            let mut call = Call::empty(repetitions);
            call.pointers[0] = address + field.next * STRIDE;
            call.scalar = self.mark;
            // SAFETY: the repetitions lie within the field, which is mapped, writable and this thread's alone. Its start
            // is aligned to a page, and a repetition is whole lines.
            unsafe { code.run(&mut call) }.map_err(crashed)?;
            last = (field.next, repetitions);
            field.next = (field.next + repetitions) % length;
            slot.repetitions.store(slot.repetitions.load(Ordering::Relaxed) + repetitions, Ordering::Relaxed);
            self.pause();
        }
        field.check(mix, last, self.mark)
    }

    fn pause(&self) {
        if self.delay_ticks > 0 {
            let until = self.tools.ticker.now() + self.delay_ticks;
            while self.tools.ticker.now() < until {
                std::hint::spin_loop();
            }
        }
    }

    /// The first thread: readies its chase, waits for the others, takes samples.
    fn lead(&self, links: &mut Links<'_>) -> Result<(Samples, u64), Outcome> {
        pin(self.cpus[0])?;
        links.begin()?;
        self.wait_for_others()?;
        let deadline = Instant::now() + self.quota.time;
        let (mut warm_up, mut repetitions) = (WarmUp::new(self.tools.sample, self.tools.hz), 1);
        while let Some(more) = warm_up.next(self.ticks(links, repetitions)?, repetitions) {
            repetitions = more;
        }
        let pinned = self.go.slots.iter().zip(&self.cpus[1..]);
        let mut peers: Vec<Peer> =
            pinned.map(|(slot, &cpu)| Peer::new(slot.thread.load(Ordering::Acquire), cpu)).collect();
        let (mut samples, mut steal) = (Samples::default(), StealMeter::new());
        while samples.ticks.len() < self.quota.most_samples {
            let is_late = samples.ticks.len() >= self.quota.least_samples && Instant::now() >= deadline;
            if is_late || self.go.is_stopped() || (self.quota.interrupted)() {
                break;
            }
            let before = ThreadUsage::now();
            links.approach()?;
            let moved = self.go.moved();
            let ticks = self.ticks(links, repetitions)?;
            let (moved, usage) = (self.go.moved() - moved, before.until_now());
            let mut sample = Sample { ticks, fastest_thread_ticks: ticks, ..usage };
            sample.migrations = u32::from(sys::current_cpu().is_some_and(|cpu| cpu != self.cpus[0]));
            for (switches, is_moved) in peers.iter_mut().map(Peer::since_last) {
                sample.switches += switches;
                sample.migrations += u32::from(is_moved);
            }
            sample.core_clock_ticks = core_clock(self.tools.chain, self.tools.ticker);
            sample.steal_jiffies = steal.since_last();
            samples.push(sample);
            if self.mix.is_some() {
                samples.load_repetitions.push(moved);
            }
        }
        if samples.ticks.is_empty() {
            return Err(unavailable("it was stopped before a sample was done"));
        }
        links.end()?;
        Ok((samples, repetitions))
    }

    fn wait_for_others(&self) -> Result<(), Outcome> {
        let since = Instant::now();
        while self.go.ready.load(Ordering::Acquire) < self.go.slots.len() {
            if self.go.is_stopped() || (self.quota.interrupted)() {
                return Err(unavailable("it was stopped before a sample was done"));
            }
            if since.elapsed() > PATIENCE {
                let late =
                    "a loading thread was not ready in 20 s: another task holds its CPU; leave it out with --cpus";
                return Err(unavailable(late));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn ticks(&self, links: &mut Links<'_>, repetitions: u64) -> Result<u64, Outcome> {
        let start = self.tools.ticker.now();
        links.run(repetitions)?;
        Ok((self.tools.ticker.now() - start).max(1))
    }
}

impl Field {
    /// On the calling thread, which so decides where its pages lie.
    fn touch(&mut self) -> Result<(), Outcome> {
        if !self.is_touched {
            sys::touch_words(&mut self.region, |words| words.fill(0.0)).map_err(crashed)?;
            self.is_touched = true;
        }
        Ok(())
    }

    /// Whether the repetitions from `first` on stored the mark where the mix does, and nowhere else: no other visit has
    /// the same mark.
    fn check(&mut self, mix: Mix, (first, repetitions): (u64, u64), mark: f64) -> Result<(), Outcome> {
        let words_of = |repetition: u64| (repetition * STRIDE / 8) as usize;
        let wrong = sys::touch_words(&mut self.region, |words| {
            let part = &words[words_of(first)..words_of(first + repetitions)];
            let holds = |(line, words): (usize, &[f64])| {
                let is_stored = mix.stores(line as u64 % LINES);
                words.iter().all(|word| (*word == mark) == is_stored)
            };
            part.chunks_exact(LINE_WORDS).enumerate().find(|line| !holds(*line)).map(|(line, _)| line)
        });
        match wrong.map_err(crashed)? {
            None => Ok(()),
            Some(line) => {
                let reason = format!("data check failed: line {line} of the last {repetitions} repetitions of {mix}");
                Err(Outcome::Invalid { reason })
            }
        }
    }
}
