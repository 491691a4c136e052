//! Latency under load on this machine: the first CPU chases pointers through memory, the others walk over memory of
//! their own and pause after every few KiB. A sample is so many loads of the chase; what the others moved in the same
//! time is counted by themselves and read right before and right after it.
//!
//! The chase is that of the latency ladder: same code, same memory, same cycle. It goes on where it was, so that its next
//! lines were not touched for a whole cycle. All memory is kept from case to case within a round.

#![allow(unsafe_code)]

use membound_core::record::Unit;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::bench::{Codes, Tools, executable, measured, pin};
use crate::chaser::{Chaser, Links};
use crate::code::{Call, Executable};
use crate::memory::region::Region;
use crate::memory::touch;
use crate::no_visit::NoVisit;
use crate::os::thread;
use crate::os::thread::Peer;
use crate::schedule::Quota;
use crate::solo::{Solo, Task};
use crate::team::{LONE_SAMPLE, Task as _};
use crate::threads;
use crate::threads::{Meeting, Met, Stop};
use membound_core::case::Case;
use membound_core::kernel::chase::{Chase, Order};
use membound_core::kernel::mix::{LINES, Mix, STRIDE};
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemorySpec, Obtained};
use membound_core::record::{Measured, Sample, Samples, Volume};
use membound_core::units::Bytes;
use membound_core::work::loaded::Load;

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
pub(crate) struct Loader {
    codes: Codes<Mix>,
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

impl Loader {
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
    ) -> Result<Measured, NoVisit> {
        let (_, others) = case.cpus.split_first().ok_or(NoVisit::impossible("it has no CPU"))?;
        if load != Load::Alone && others.is_empty() {
            return Err(NoVisit::TwoCores(
                ": one chases, the other loads; let this process use another CPU (taskset, cpuset, --cpus, --threads)",
            ));
        }
        let Some(chase) = case.shares() else { return Err(NoVisit::impossible("this is no chase")) };
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
            mix: mix
                .map(|mix| Ok::<_, NoVisit>((mix, self.codes.get(mix, || executable(crate::asm::mix(mix)))?)))
                .transpose()?,
            delay_ticks: (f64::from(delay_ns) * 1e-9 * tools.hz.0) as u64,
            mark,
            meeting: Meeting::default(),
            stop: Stop::default(),
            slots: others.iter().map(|_| Slot::default()).collect(),
        };
        let follow = |links: &mut Links<'_>| crew.measure(links, &mut fields);
        let ((samples, repetitions), mut obtained) = chaser.follow(&chase, CHASE, tools.places, follow)?;
        let seen = format!("one random cycle through {} lines", CHASE.places(chase.working_set));
        obtained.proofs.push(Proof::new("a line is loaded again only after all others", "construction", seen, true));
        let fields_obtained = fields.iter().map(|field| field.region.inspect(field.region.bytes()));
        let obtained = fields_obtained.fold(obtained, Obtained::and);
        self.fields.extend(others.iter().map(|&cpu| (cpu, case.memory, share)).zip(fields));
        let [loaded, stored] = mix.map_or([0, 0], Mix::bytes);
        let units = u64::from(mix.is_some()) * LINES;
        let volume = Volume { units, unit: Unit::Line, loaded, stored, ..Volume::default() };
        Ok(measured(volume, (samples, repetitions * Chase::LINKS), obtained))
    }

    /// Memory of each loading thread: kept, or new.
    fn fields(&mut self, case: &Case, cpus: &[u32], bytes: Bytes, tools: &Tools<'_>) -> Result<Vec<Field>, NoVisit> {
        let mut field = |cpu: &u32| match self.fields.remove(&(*cpu, case.memory, bytes)) {
            Some(field) => Ok(field),
            None => {
                let region = Region::new(case.memory, bytes, tools.places)?;
                Ok(Field { region, next: 0, is_touched: false })
            }
        };
        let fields = cpus.iter().map(&mut field).collect::<Result<Vec<Field>, NoVisit>>()?;
        match fields.iter().all(|field| field.region.is_writable()) {
            true => Ok(fields),
            false => Err(NoVisit::ReadOnly(Box::new(case.memory))),
        }
    }
}

/// What a sample lasts at least beside this load. Without one it is as long as the ladder's.
pub(crate) fn sample(load: Load) -> Duration {
    match load {
        Load::Mixed { .. } => SAMPLE,
        Load::Alone | Load::Idle => LONE_SAMPLE,
    }
}

/// A loading thread's account, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    repetitions: AtomicU64,
    thread: AtomicU32,
}

struct Crew<'a> {
    tools: &'a Tools<'a>,
    quota: &'a Quota<'a>,
    cpus: &'a [u32],
    mix: Option<(Mix, &'a Executable)>,
    delay_ticks: u64,
    /// What loading threads store in this visit.
    mark: f64,
    meeting: Meeting,
    stop: Stop,
    slots: Vec<Slot>,
}

impl Crew<'_> {
    /// Has the first thread chase and the others load; samples, and the repetitions of each.
    fn measure(&self, links: &mut Links<'_>, fields: &mut [Field]) -> Result<(Samples, u64), NoVisit> {
        let led = std::thread::scope(|scope| {
            let load = |(index, field)| threads::start(scope, move || self.load(index, field));
            let (mut workers, mut refused) = (Vec::new(), None);
            for worker in fields.iter_mut().enumerate().map(load) {
                match worker {
                    Ok(worker) => workers.push(worker),
                    Err(why) => refused = refused.or(Some(why)),
                }
            }
            let led = match refused {
                Some(why) => Err(why),
                None => threads::start(scope, || self.lead(links)).and_then(threads::join),
            };
            self.stop.raise();
            let have_ended = || workers.iter().all(|worker| worker.is_finished());
            threads::wait_out(have_ended, self.slots.iter().map(|slot| &slot.thread));
            workers.into_iter().for_each(threads::join);
            led
        });
        self.stop.why().map_or(led, Err)
    }

    fn lead(&self, links: &mut Links<'_>) -> Result<(Samples, u64), NoVisit> {
        let mut chase = Beside { crew: self, links, peers: Vec::new(), moved: 0, walked: Vec::new() };
        Solo::new(self.cpus[0], self.quota, self.tools).lead(&mut chase)
    }

    /// A loading thread, until it is stopped.
    fn load(&self, index: usize, field: &mut Field) {
        let slot = &self.slots[index];
        slot.thread.store(thread::thread_id(), Ordering::Release);
        let mut work = || -> Result<(), NoVisit> {
            pin(self.cpus[index + 1])?;
            field.touch()?;
            self.meeting.arrive();
            match self.mix {
                Some((mix, code)) => self.walk(mix, code, slot, field),
                None => {
                    while !self.stop.is_raised() {
                        std::hint::spin_loop();
                    }
                    Ok(())
                }
            }
        };
        if let Err(why) = work() {
            self.stop.fail(why);
        }
    }

    /// Walks over a field again and again, then looks whether the last part was stored as it should.
    fn walk(&self, mix: Mix, code: &Executable, slot: &Slot, field: &mut Field) -> Result<(), NoVisit> {
        let (address, length) = (field.region.address(), field.region.bytes().0 / STRIDE);
        let most = if self.delay_ticks == 0 { BURST } else { CHUNK };
        let mut last = (0, 0);
        while !self.stop.is_raised() {
            let repetitions = most.min(length - field.next);
            let mut call = Call::empty(repetitions);
            call.pointers[0] = address + field.next * STRIDE;
            call.scalar = self.mark;
            // SAFETY: the repetitions lie within the field, which is mapped, writable and this thread's alone. Its start
            // is aligned to a page, and a repetition is whole lines.
            unsafe { code.run(&mut call) }?;
            last = (field.next, repetitions);
            field.next = (field.next + repetitions) % length;
            slot.repetitions.store(slot.repetitions.load(Ordering::Relaxed) + repetitions, Ordering::Relaxed);
            self.pause();
        }
        field.check(mix, last, self.mark)
    }

    fn pause(&self) {
        if self.delay_ticks > 0 {
            let ticker = self.tools.ticker;
            threads::spin_until(ticker, ticker.now() + self.delay_ticks);
        }
    }

    fn wait_for_others(&self) -> Result<(), NoVisit> {
        let is_stopped = || self.stop.is_raised() || (self.quota.interrupted)();
        match self.meeting.wait_for(self.slots.len(), PATIENCE, is_stopped) {
            Met::All => Ok(()),
            Met::Stopped => Err(NoVisit::Stopped),
            Met::TooLate => Err(NoVisit::NotReady { patience: PATIENCE }),
        }
    }

    /// Repetitions of all loading threads so far.
    fn moved(&self) -> u64 {
        self.slots.iter().map(|slot| slot.repetitions.load(Ordering::Relaxed)).sum()
    }
}

/// The first thread: the chase beside the others, and what they move meanwhile.
struct Beside<'a, 'b> {
    crew: &'a Crew<'a>,
    links: &'a mut Links<'b>,
    /// The others, seen from here.
    peers: Vec<Peer>,
    /// Repetitions of the others: those before the sample, then those within it.
    moved: u64,
    /// The latter of each sample.
    walked: Vec<u64>,
}

impl Task for Beside<'_, '_> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        self.links.begin()?;
        self.links.settle()?;
        self.crew.wait_for_others()
    }

    fn warm_up(&mut self, solo: &Solo<'_>) -> Result<u64, NoVisit> {
        let repetitions = solo.warm_up(self)?;
        let pinned = self.crew.slots.iter().zip(&self.crew.cpus[1..]);
        self.peers = pinned.map(|(slot, &cpu)| Peer::new(slot.thread.load(Ordering::Acquire), cpu)).collect();
        Ok(repetitions)
    }

    fn approach(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
        self.links.approach()?;
        self.moved = self.crew.moved();
        Ok(())
    }

    fn run(&mut self, repetitions: u64) -> Result<bool, NoVisit> {
        self.links.run(repetitions)?;
        Ok(!self.crew.stop.is_raised())
    }

    fn leave(&mut self) {
        self.moved = self.crew.moved() - self.moved;
    }

    fn taken(&mut self, sample: &mut Sample) {
        self.peers.iter_mut().for_each(|peer| peer.disturb(sample));
        self.walked.push(self.moved);
    }

    fn end(&mut self, samples: &mut Samples) -> Result<(), NoVisit> {
        if self.crew.mix.is_some() {
            samples.load_repetitions = std::mem::take(&mut self.walked);
        }
        self.links.end()
    }
}

impl Field {
    /// On the calling thread, which so decides where its pages lie.
    fn touch(&mut self) -> Result<(), NoVisit> {
        if !self.is_touched {
            touch::touch_words(&mut self.region, |words| words.fill(0.0))?;
            self.is_touched = true;
        }
        Ok(())
    }

    /// Whether the repetitions from `first` on stored the mark where the mix does, and nowhere else: no other visit has
    /// the same mark.
    fn check(&mut self, mix: Mix, (first, repetitions): (u64, u64), mark: f64) -> Result<(), NoVisit> {
        let words_of = |repetition: u64| (repetition * STRIDE / 8) as usize;
        let wrong = touch::touch_words(&mut self.region, |words| {
            let part = &words[words_of(first)..words_of(first + repetitions)];
            let holds = |(line, words): (usize, &[f64])| {
                let is_stored = mix.stores(line as u64 % LINES);
                words.iter().all(|word| (*word == mark) == is_stored)
            };
            part.chunks_exact(LINE_WORDS).enumerate().find(|line| !holds(*line)).map(|(line, _)| line)
        });
        match wrong? {
            None => Ok(()),
            Some(line) => {
                let reason = format!("data check failed: line {line} of the last {repetitions} repetitions of {mix}");
                Err(NoVisit::Wrong(reason))
            }
        }
    }
}
