//! Chases on this machine: the pinned thread writes the cycle into memory of the case's kind and follows it. A sample
//! goes on where the last one stopped, so that it does not meet again what it has just brought into the caches.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::bench::{Codes, executable};
use crate::code::{Call, Executable};
use crate::memory::no_memory::NoMemory;
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::memory::touch::{self, FirstTouch};
use crate::no_visit::NoVisit;
use crate::os::faults::TakenAway;
use crate::team::Task;
use membound_core::case::{Case, Protocol, Work};
use membound_core::kernel::chase::{Chase, Cycle};
use membound_core::memory::{MemorySpec, Obtained};
use membound_core::units::Bytes;

/// A CPU's memory of a kind, for working sets of a size.
type Key = (u32, MemorySpec, Size);

/// Sizes that have memories of their own, so that a cycle which takes long to write stays while others are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Size {
    Small,
    /// Beyond [`LARGE`].
    Large,
    /// The largest that is expected, and large: what stands for memory, which is visited time and again.
    Largest,
}

/// No cache is larger than this.
const CACHE_MOST: Bytes = Bytes::mib(512);

/// Working sets beyond this are large: to write a cycle over them takes far longer than to follow it.
const LARGE: Bytes = Bytes::mib(64);

/// Runs chases. Keeps code, and memory until the round ends: to make pages takes longer than to follow them.
#[derive(Debug, Default)]
pub(crate) struct Chaser {
    /// By number of chains, the only thing about a chase that its code depends on.
    codes: Codes<u32>,
    memories: HashMap<Key, ChaseMemory>,
    /// The largest expected working set of a kind on a CPU.
    largest: HashMap<(u32, MemorySpec), Bytes>,
    /// The most that any expected case will want of a memory.
    most: HashMap<Key, Bytes>,
    /// Visits so far: the seed of the cycle.
    visits: u64,
    /// The cycles that were followed last, if nothing else ran since: caches are still as they left them.
    last: Vec<(Key, Case)>,
}

impl Chaser {
    /// Makes room in mind for cases to come.
    pub fn expect(&mut self, cases: &[Case]) {
        let chases: Vec<Case> = cases.iter().filter_map(Case::shares).collect();
        for (cpu, own) in chases.iter().flat_map(each) {
            let largest = self.largest.entry((cpu, own.memory)).or_default();
            *largest = own.working_set.max(*largest);
        }
        for (cpu, own) in chases.iter().flat_map(each) {
            let most = self.most.entry(self.key(cpu, &own)).or_default();
            *most = own.working_set.max(*most);
        }
    }

    fn key(&self, cpu: u32, own: &Case) -> Key {
        let is_largest = || self.largest.get(&(cpu, own.memory)).is_none_or(|largest| own.working_set >= *largest);
        let size = match own.working_set {
            small if small <= LARGE => Size::Small,
            _ if is_largest() => Size::Largest,
            _ => Size::Large,
        };
        (cpu, own.memory, size)
    }

    /// Gives all memory back: the next cases get other pages.
    pub fn give_back(&mut self) {
        self.memories.clear();
    }

    /// Something else runs, and leaves caches as it pleases.
    pub fn interrupt(&mut self) {
        self.last.clear();
    }

    /// Readies `case`, which is this chase on one thread, and has `follow` begin it, run it and end it. Keeps its memory,
    /// and where it stands: the next visit goes on from there. Returns what `follow` does, and what memory was obtained.
    pub fn follow<R>(
        &mut self,
        case: &Case,
        chase: Chase,
        places: &Places,
        follow: impl FnOnce(&mut Links<'_>) -> Result<R, NoVisit>,
    ) -> Result<(R, Obtained), NoVisit> {
        self.follow_each(case, chase, places, |links| match links {
            [links] => follow(links),
            _ => Err(NoVisit::OneThread("a chase runs on")),
        })
    }

    /// The same on each CPU of the case at once: every thread has a cycle of its own through its share of the working set.
    pub fn follow_each<R>(
        &mut self,
        case: &Case,
        chase: Chase,
        places: &Places,
        follow: impl FnOnce(&mut [Links<'_>]) -> Result<R, NoVisit>,
    ) -> Result<(R, Obtained), NoVisit> {
        let ready: Vec<Ready> =
            each(case).map(|(cpu, own)| self.ready(cpu, own, chase, places)).collect::<Result<_, _>>()?;
        let code = self.codes.get(chase.chains, || executable(crate::asm::chase(chase)))?;
        let refills = case.protocol == Protocol::Refilled;
        let mut links = Vec::with_capacity(ready.len());
        let mut keys = Vec::with_capacity(ready.len());
        for Ready { key, memory, written, is_written, is_settled } in ready {
            keys.push(key);
            let call = Call::empty(1);
            links.push(Links {
                chase,
                written,
                is_written,
                is_settled,
                memory,
                code,
                refills,
                call,
                links: 0,
                first_touch: FirstTouch::default(),
            });
        }
        self.last.clear();
        let result = follow(&mut links);
        // After a crash memory may be missing; the next case gets new one.
        if let Err(why) = &result
            && why.is_crash()
        {
            return Err(why.clone());
        }
        let mut obtained = Vec::with_capacity(keys.len());
        for (key, Links { written, is_written, links, mut memory, .. }) in keys.into_iter().zip(links) {
            if is_written {
                self.last.push((key, written.case.clone()));
                memory.written[chase.word()] = Some(Written { links: written.links + links, ..written });
            }
            obtained.push(memory.obtained());
            self.memories.insert(key, memory);
        }
        Ok((result?, obtained.into_iter().reduce(Obtained::and).unwrap_or_default()))
    }

    /// Memory for one thread's chase, and the cycle through it: the one that it holds, or a new one.
    fn ready(&mut self, cpu: u32, own: Case, chase: Chase, places: &Places) -> Result<Ready, NoVisit> {
        self.visits += 1;
        let mut memory = self.memory(cpu, &own, places)?;
        if !memory.region.is_writable() {
            return Err(NoVisit::Unwritable("a chase writes its cycle into memory"));
        }
        if chase.places(own.working_set) < chase.chains as usize {
            let reason = format!("the working set has too few places; give each thread at least {}", chase.least());
            return Err(NoVisit::impossible(reason));
        }
        let Some(shared) = own.shares() else { return Err(NoVisit::impossible("this is no chase")) };
        let key = self.key(cpu, &own);
        let is_settled = self.last.iter().any(|(last, case)| (*last, case) == (key, &shared));
        Ok(match memory.written[chase.word()].take().filter(|written| written.case == shared) {
            Some(written) => Ready { key, memory, written, is_written: true, is_settled },
            None => {
                // Cycles over the same places have a word of each; any other overwrites both.
                let shares = |other: &Written| matches!(other.case.work, Work::Chase(other) if other.shares_places());
                if !chase.shares_places() || !memory.written.iter().flatten().all(shares) {
                    memory.written = [None, None];
                }
                let cycle = chase.cycle(own.working_set, self.visits);
                let written = Written { case: shared, cycle, links: 0, took: Duration::ZERO };
                Ready { key, memory, written, is_written: false, is_settled: false }
            }
        })
    }

    fn memory(&mut self, cpu: u32, case: &Case, places: &Places) -> Result<ChaseMemory, NoMemory> {
        let key = self.key(cpu, case);
        match self.memories.remove(&key) {
            Some(memory) if memory.region.bytes() >= case.working_set => Ok(memory),
            _ => {
                let most = self.most.get(&key).map_or(case.working_set, |most| case.working_set.max(*most));
                // Where there is too little memory for the largest case, the others go on.
                let region = Region::new(case.memory, most, places)
                    .or_else(|_| Region::new(case.memory, case.working_set, places))?;
                Ok(ChaseMemory { region, touched: 0, obtained: None, written: [None, None] })
            }
        }
    }
}

/// Each CPU of a case, with the case that it has alone: its share of the working set.
fn each(case: &Case) -> impl Iterator<Item = (u32, Case)> + '_ {
    let share = case.share();
    case.cpus.iter().map(move |&cpu| (cpu, Case { cpus: vec![cpu], working_set: share, ..case.clone() }))
}

/// What a thread's chase needs.
struct Ready {
    key: Key,
    memory: ChaseMemory,
    written: Written,
    /// Whether memory holds the cycle already.
    is_written: bool,
    /// Whether the last visit followed it.
    is_settled: bool,
}

/// The memory of a kind that a CPU chases in; every working set begins at its start.
#[derive(Debug)]
struct ChaseMemory {
    region: Region,
    /// Words whose pages were touched.
    touched: usize,
    /// What was obtained for them.
    obtained: Option<Obtained>,
    /// The cycles that it holds, by the word of a place that leads to the next.
    written: [Option<Written>; 2],
}

/// A cycle in memory. Writing one over gigabytes takes far longer than following it: several numbers of chains follow the
/// same one, each from where the last stopped.
#[derive(Debug)]
struct Written {
    /// What it was written for, and whatever may share it.
    case: Case,
    cycle: Cycle,
    /// Links that earlier visits followed.
    links: u64,
    /// What writing it took.
    took: Duration,
}

impl ChaseMemory {
    /// What was obtained; looked up again only when new pages were touched.
    fn obtained(&mut self) -> Obtained {
        let touched = Bytes(self.touched as u64 * 8);
        self.obtained.get_or_insert_with(|| self.region.inspect(touched)).clone()
    }

    /// Has the pages of so many words touched. Returns what of them was new.
    fn touch(&mut self, words: usize) -> Result<FirstTouch, TakenAway> {
        if words <= self.touched {
            return Ok(FirstTouch::default());
        }
        let first = touch::first(&mut self.region, 8 * self.touched..8 * words)?;
        (self.touched, self.obtained) = (words, None);
        Ok(first)
    }
}

/// What the thread of a visit does. On cache lines of its own: its call's positions are written in each sample.
#[repr(align(128))]
pub(crate) struct Links<'a> {
    chase: Chase,
    written: Written,
    /// Whether memory holds the cycle already.
    is_written: bool,
    /// Whether caches are as following it leaves them.
    is_settled: bool,
    memory: ChaseMemory,
    code: &'a Executable,
    /// Whether the working set is read before each sample.
    refills: bool,
    call: Call,
    /// Links of each chain so far.
    links: u64,
    /// What beginning touched first.
    first_touch: FirstTouch,
}

impl Links<'_> {
    /// Reads the working set once, in the order in which the chains will come by. What is chased next was then read
    /// longest ago: in a cache that takes what a smaller one lets go, that is where it is.
    fn read(&mut self) -> Result<(), NoVisit> {
        let (cycle, links) = (&self.written.cycle, self.written.links + self.links);
        touch::touch_words(&mut self.memory.region, |words| black_box(cycle.read(words, links)))?;
        Ok(())
    }

    /// Reads it until that gets no faster twice in a row; not at all, where it can't be in a cache. A last-level cache may take in only
    /// what it has seen come back, so that lines which were written, or read once, are still in memory (Emerald Rapids: 16 MiB took
    /// 124 ns per load in one visit and 38 in the next, and after two passes either still).
    fn fill_caches(&mut self) -> Result<(), NoVisit> {
        const PASSES_MOST: usize = 12;
        const IDLE: u32 = 2;
        const GAIN: f64 = 0.98;
        if self.written.cycle.words() as u64 * 8 > CACHE_MOST.0 {
            return Ok(());
        }
        let (mut fastest, mut idle) = (Duration::MAX, 0);
        for _ in 0..PASSES_MOST {
            let started = Instant::now();
            self.read()?;
            let took = started.elapsed();
            idle = if took < fastest.mul_f64(GAIN) { 0 } else { idle + 1 };
            fastest = fastest.min(took);
            if idle >= IDLE {
                break;
            }
        }
        Ok(())
    }
}

impl Task for Links<'_> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        let (cycle, address) = (&self.written.cycle, self.memory.region.address());
        self.first_touch = self.memory.touch(cycle.words())?;
        self.call = Call::of_chase(&cycle.after(address, self.chase.chains, self.written.links), 1);
        if self.is_written {
            return Ok(());
        }
        let started = Instant::now();
        touch::touch_words(&mut self.memory.region, |words| cycle.write(words, address))?;
        (self.is_written, self.written.took) = (true, started.elapsed());
        Ok(())
    }

    fn first_touch(&self) -> FirstTouch {
        self.first_touch
    }

    /// Brings the cycle into caches and then follows it until it has been round, or for as long as writing it took, unless the last
    /// visit did. Caches are then as any long chase leaves them. Reading it all is not enough: it would leave the tables that
    /// translate addresses where neighbours had no time to evict them (a fifth of 1.9 GiB's latency on a guest, gone after a
    /// second). Nor is following it: a round takes far longer than writing did.
    fn settle(&mut self) -> Result<(), NoVisit> {
        /// Some 10 us in a cache, 500 us in memory.
        const STEP: u64 = 128;
        if !self.is_settled {
            self.fill_caches()?;
        }
        let started = Instant::now();
        while !self.is_settled {
            self.run(STEP)?;
            self.is_settled =
                self.links >= self.written.cycle.places() as u64 || started.elapsed() >= self.written.took;
        }
        Ok(())
    }

    fn renew(&mut self) -> Result<u64, NoVisit> {
        if self.refills {
            self.read()?;
        }
        Ok(0)
    }

    const APPROACHES: bool = true;

    /// Some 500 links: system calls and the core clock's chain have pushed the tables that translate addresses out of the
    /// nearest caches, and a sample of 32 links in memory does not bring them back.
    fn approach(&mut self) -> Result<(), NoVisit> {
        self.run(32)
    }

    fn run(&mut self, repetitions: u64) -> Result<(), NoVisit> {
        self.call.repetitions = repetitions;
        self.links += repetitions * Chase::LINKS;
        // SAFETY: the positions are places of the cycle in this thread's own region, which is mapped; each place holds
        // the address of another, as `begin` wrote it.
        Ok(unsafe { self.code.run(&mut self.call) }?)
    }

    /// Compares where the chains stand with where they must.
    fn end(&mut self) -> Result<(), NoVisit> {
        let (found, address) = (self.call.positions(self.chase.chains), self.memory.region.address());
        let expect = self.written.cycle.after(address, self.chase.chains, self.written.links + self.links);
        match found.iter().zip(&expect).position(|(found, expect)| found != expect) {
            None => Ok(()),
            Some(chain) => Err(NoVisit::Wrong(format!(
                "data check failed: chain {chain} does not stand where {} links lead",
                self.links
            ))),
        }
    }
}
