//! The processor's triad beside the device's copies: one is timed, the other runs on a thread of its own and counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bench::pin;
use crate::driver::host_memory::HostMemory;
use crate::driver::{Driver, Memory};
use crate::experiments::device::buffers::Maker;
use crate::experiments::device::operations::{Code, triad};
use crate::no_visit::NoVisit;
use crate::solo::{Solo, Task};
use crate::threads::{Stop, join, start};
use membound_core::case::Case;
use membound_core::record::{Sample, Samples};
use membound_core::work::device::Action;

/// One side's work: again and again over its own memory.
enum Side<'a, M> {
    Triad { code: Option<Code<'a>>, memory: HostMemory },
    Copy { from: M, to: M },
}

impl<M: Memory> Side<'_, M> {
    fn once(&mut self) -> Result<(), NoVisit> {
        match self {
            Side::Triad { code, memory } => triad(*code, Some(memory)),
            Side::Copy { from, to } => from.copy(to),
        }
    }
}

/// What the other side has done.
#[derive(Default)]
struct Other {
    stop: Stop,
    done: AtomicU64,
}

impl Other {
    fn run<M: Memory>(&self, cpu: u32, side: &mut Side<'_, M>) {
        let mut work = || {
            pin(cpu)?;
            while !self.stop.is_raised() {
                side.once()?;
                self.done.fetch_add(1, Ordering::Release);
            }
            Ok(())
        };
        if let Err(why) = work() {
            self.stop.fail(why);
        }
    }
}

/// The timed side, and what it knows of the other.
struct Timed<'a, 'b, M> {
    side: Side<'a, M>,
    other: &'b Other,
    before: u64,
    /// What the other did while each sample ran.
    meanwhile: Vec<u64>,
}

impl<M: Memory> Task for Timed<'_, '_, M> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        // Both are at work before anything is timed.
        while self.other.done.load(Ordering::Acquire) == 0 && !self.other.stop.is_raised() {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn approach(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
        self.before = self.other.done.load(Ordering::Acquire);
        Ok(())
    }

    fn run(&mut self, repetitions: u64) -> Result<bool, NoVisit> {
        (0..repetitions).try_for_each(|_| self.side.once())?;
        Ok(!self.other.stop.is_raised())
    }

    fn taken(&mut self, _sample: &mut Sample) {
        self.meanwhile.push(self.other.done.load(Ordering::Acquire) - self.before);
    }

    fn end(&mut self, samples: &mut Samples) -> Result<(), NoVisit> {
        samples.load_repetitions = std::mem::take(&mut self.meanwhile);
        samples.load_repetitions.truncate(samples.ticks.len());
        Ok(())
    }
}

/// Measures one side beside the other.
pub(super) fn measure<D: Driver>(
    solo: &Solo<'_>,
    case: &Case,
    action: Action,
    maker: &Maker<'_, D>,
    code: Option<Code<'_>>,
) -> Result<(Samples, u64), NoVisit> {
    // Arrays of one length on both sides, three of the triad and two of the copy.
    let is_triad = action == Action::HostTriadBesideCopy;
    let array = case.working_set.0 as usize / if is_triad { 3 } else { 1 };
    let mut memory = HostMemory::new(3 * array, 0);
    memory.words().fill(1.0);
    let (mut from, mut to) = (maker.plain(array)?, maker.plain(array)?);
    for memory in [&mut from, &mut to] {
        memory.write(HostMemory::new(array, 0).full_of(1.0).words())?;
    }
    let (triad, copy) = (Side::Triad { code, memory }, Side::Copy { from, to });
    let (side, mut beside) = if is_triad { (triad, copy) } else { (copy, triad) };
    let other = Other::default();
    let cpu = case.cpus.last().copied().unwrap_or(0);
    std::thread::scope(|scope| {
        let running = start(scope, || other.run(cpu, &mut beside))?;
        let mut timed = Timed { side, other: &other, before: 0, meanwhile: Vec::new() };
        let taken = solo.measure(&mut timed);
        other.stop.raise();
        join(running);
        match other.stop.why() {
            Some(why) => Err(why),
            None => taken,
        }
    })
}
