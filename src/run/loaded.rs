//! Latency under load on this machine: the first CPU chases pointers through memory, the others walk over memory of
//! their own and pause after every few KiB. A sample is so many loads of the chase; what the others moved in the same
//! time is counted by themselves and read right before and right after it.
//!
//! Memory is kept from case to case within a round: linking a chase takes a tenth of a second, and the chase goes on
//! where it was, so that its next lines were not touched for a whole cycle.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Quota;
use super::native::{CORE_CLOCK_LINKS, core_clock, crashed, unavailable};
use super::scan::Tools;
use super::sys::{self, Peer, ThreadUsage};
use super::team::{StealMeter, WarmUp};
use crate::kernel::Unsupported;
use crate::kernel::chain;
use crate::kernel::code::{Call, Executable, MachineCode};
use crate::kernel::mix::{LINES, Mix, STRIDE};
use crate::memory::{MemorySpec, Obtained, Proof, Region};
use crate::plan::{Case, Load, Loaded};
use crate::record::{Measured, Outcome, Sample, Samples, Volume};
use crate::units::{Bytes, Hertz};

/// A sample lasts at least this long: at the longest pauses a loading thread then does its part some twenty times. Longer
/// ones would each meet some other task where CPUs are shared.
pub(super) const SAMPLE: Duration = Duration::from_micros(500);
/// Repetitions of a mix between two pauses: 12 KiB, three pages. A pause waits until all stores are done and begins and
/// ends with a clock reading; after shorter walks that alone would leave no step between a third of full speed and all.
const CHUNK: u64 = 16;
/// Repetitions between two looks at whether to stop, where there are no pauses: some microseconds.
const BURST: u64 = 32;
/// All threads must have their memory ready within this time; it takes milliseconds for each 64 MiB.
const PATIENCE: Duration = Duration::from_secs(20);
/// Words of a line.
const LINE_WORDS: usize = 8;

/// Runs chases under load; keeps code for good, and memory until the round ends.
#[derive(Debug, Default)]
pub(super) struct Bench {
    codes: HashMap<Option<Mix>, Executable>,
    chases: HashMap<Key, Chase>,
    fields: HashMap<Key, Field>,
    /// Visits so far: the seed of the chase, and what loading threads store.
    visits: u64,
}

/// Whose memory: CPU, kind, bytes.
type Key = (u32, MemorySpec, Bytes);

/// Memory that the first thread chases through.
#[derive(Debug)]
struct Chase {
    region: Region,
    /// Where it has come to; nothing before it is linked.
    at: Option<u64>,
}

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
        self.chases.clear();
        self.fields.clear();
    }

    /// Visits a case, which is this chase.
    pub fn visit(
        &mut self,
        case: &Case,
        work: Loaded,
        quota: &Quota<'_>,
        tools: &Tools<'_>,
        hz: Hertz,
        verify: bool,
    ) -> Result<Outcome, Outcome> {
        let (leader, others) = case.cpus.split_first().ok_or_else(|| unavailable("it has no CPU"))?;
        if work.load != Load::Alone && others.is_empty() {
            let reason = "it needs two cores: one chases, the other loads; let this process use another CPU (taskset, \
                          cpuset, --cpus, --threads)";
            return Err(unavailable(reason));
        }
        self.visits += 1;
        self.prepare(work)?;
        let share = Bytes((case.working_set.0 - work.chase.0.min(case.working_set.0)) / others.len().max(1) as u64);
        let new = |bytes| Region::new(case.memory, bytes, tools.places).map_err(unavailable);
        let (chase_key, mut fields) = ((*leader, case.memory, work.chase), Vec::new());
        let mut chase = match self.chases.remove(&chase_key) {
            Some(chase) => chase,
            None => Chase { region: new(work.chase)?, at: None },
        };
        for &cpu in others {
            fields.push(match self.fields.remove(&(cpu, case.memory, share)) {
                Some(field) => field,
                None => Field { region: new(share)?, next: 0, is_touched: false },
            });
        }
        if !chase.region.is_writable() || fields.iter().any(|field| !field.region.is_writable()) {
            return Err(unavailable(format!("{} memory may only be read; choose another kind", case.memory)));
        }
        let mix = match work.load {
            Load::Mixed { mix, .. } => Some(mix),
            Load::Alone | Load::Idle => None,
        };
        let delay_ns = if let Load::Mixed { delay_ns, .. } = work.load { delay_ns } else { 0 };
        let crew = Crew {
            tools,
            quota,
            cpus: &case.cpus,
            chase_code: self.code(None)?,
            mix: mix.map(|mix| Ok((mix, self.code(Some(mix))?))).transpose()?,
            delay_ticks: (f64::from(delay_ns) * 1e-9 * hz.0) as u64,
            mark: self.visits as f64,
            verify,
            go: Go::new(others.len()),
        };
        let (samples, repetitions) = crew.measure(&mut chase, &mut fields)?;
        let obtained = chase.obtained(work.chase);
        let fields_obtained = fields.iter().map(|field| field.region.inspect(field.region.bytes()));
        let obtained = fields_obtained.fold(obtained, Obtained::and);
        self.chases.insert(chase_key, chase);
        self.fields.extend(others.iter().map(|&cpu| (cpu, case.memory, share)).zip(fields));
        let [loaded, stored] = mix.map_or([0, 0], Mix::bytes);
        let volume = Volume { elements: u64::from(mix.is_some()) * LINES, loaded, stored, ..Volume::default() };
        let (repetitions, core_clock_links) = (repetitions * chain::LOADS, CORE_CLOCK_LINKS);
        Ok(Outcome::Measured(Box::new(Measured { volume, repetitions, core_clock_links, samples, obtained })))
    }

    /// Makes the code that a case needs.
    fn prepare(&mut self, work: Loaded) -> Result<(), Outcome> {
        let mut add = |mix: Option<Mix>, code: &dyn Fn() -> Result<MachineCode, Unsupported>| {
            if let Entry::Vacant(entry) = self.codes.entry(mix) {
                let code = code().map_err(unavailable)?;
                let refused = |fault| unavailable(format!("executable memory was refused ({fault})"));
                entry.insert(Executable::new(&code).map_err(refused)?);
            }
            Ok(())
        };
        add(None, &chain::chase)?;
        match work.load {
            Load::Mixed { mix, .. } => add(Some(mix), &|| mix.assemble()),
            Load::Alone | Load::Idle => Ok(()),
        }
    }

    /// The code of a mix, or of the chase.
    fn code(&self, mix: Option<Mix>) -> Result<&Executable, Outcome> {
        self.codes.get(&mix).ok_or_else(|| unavailable("the chase has no code"))
    }
}

impl Chase {
    fn obtained(&self, bytes: Bytes) -> Obtained {
        let mut obtained = self.region.inspect(bytes);
        let lines = self.region.bytes().0 / chain::LINE;
        let seen = format!("one random cycle through {lines} lines");
        obtained.proofs.push(Proof::new("a line is loaded again only after all others", "construction", seen, true));
        obtained
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
    chase_code: &'a Executable,
    mix: Option<(Mix, &'a Executable)>,
    delay_ticks: u64,
    /// What loading threads store in this visit.
    mark: f64,
    verify: bool,
    go: Go,
}

impl Crew<'_> {
    /// Has the first thread chase and the others load; samples, and the repetitions of each.
    fn measure(&self, chase: &mut Chase, fields: &mut [Field]) -> Result<(Samples, u64), Outcome> {
        let led = std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (index, field) in fields.iter_mut().enumerate() {
                workers.push(scope.spawn(move || self.load(index, field)));
            }
            let leader = scope.spawn(|| self.lead(chase));
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

    fn pin(&self, cpu: u32) -> Result<(), Outcome> {
        sys::pin(cpu).map_err(|fault| unavailable(format!("CPU {cpu} can't be used: {fault}")))
    }

    /// A loading thread, until it is stopped.
    fn load(&self, index: usize, field: &mut Field) {
        let slot = &self.go.slots[index];
        slot.thread.store(sys::thread_id(), Ordering::Release);
        let mut work = || -> Result<(), Outcome> {
            self.pin(self.cpus[index + 1])?;
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

    /// The first thread: links its memory, waits for the others, takes samples.
    fn lead(&self, chase: &mut Chase) -> Result<(Samples, u64), Outcome> {
        self.pin(self.cpus[0])?;
        let mut at = match chase.at {
            Some(at) => at,
            None => chase.link(self.mark as u64, self.verify)?,
        };
        self.wait_for_others()?;
        let deadline = Instant::now() + self.quota.time;
        let (mut warm_up, mut repetitions) = (WarmUp::default(), 1);
        while let Some(more) = warm_up.next(self.ticks(&mut at, repetitions)?, repetitions, self.tools.sample_ticks) {
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
            let (before, moved) = (ThreadUsage::now(), self.go.moved());
            let ticks = self.ticks(&mut at, repetitions)?;
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
        chase.at = Some(at);
        if samples.ticks.is_empty() {
            return Err(unavailable("it was stopped before a sample was done"));
        }
        if at.wrapping_sub(chase.region.address()) >= chase.region.bytes().0 {
            return Err(Outcome::Invalid { reason: "data check failed: the chase left its memory".into() });
        }
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

    fn ticks(&self, at: &mut u64, repetitions: u64) -> Result<u64, Outcome> {
        let mut call = Call::empty(repetitions);
        call.pointers[0] = *at;
        let start = self.tools.ticker.now();
        // SAFETY: `at` is a line of the linked chase, from which each link leads to another line of it; nothing writes
        // to that memory any more.
        let run = unsafe { self.chase_code.run(&mut call) };
        let end = self.tools.ticker.now();
        run.map_err(crashed)?;
        *at = call.pointers[0];
        Ok((end - start).max(1))
    }
}

impl Chase {
    /// Links it on the calling thread, which so touches its pages first. With `verify` the whole cycle is walked once.
    fn link(&mut self, seed: u64, verify: bool) -> Result<u64, Outcome> {
        let address = self.region.address();
        let is_linked = sys::touch_words(&mut self.region, |words| {
            chain::link(words, address, seed);
            !verify || chain::is_one_cycle(words, address)
        });
        match is_linked.map_err(crashed)? {
            true => Ok(address),
            false => Err(Outcome::Invalid { reason: "data check failed: the chase is not one cycle".into() }),
        }
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
