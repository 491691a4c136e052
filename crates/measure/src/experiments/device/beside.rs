//! The processor's triad, alone and beside the device's copies: one is timed, the other runs on a thread of its own and counts. Where
//! several CPUs do the triad, one of them is timed or counts; the others do the same on memory of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::bench::OverSlices;
use crate::bench::pin;
use crate::driver::host_memory::HostMemory;
use crate::driver::{Driver, Memory, SCALAR};
use crate::experiments::device::buffers::Maker;
use crate::experiments::device::operations::{Code, check, check_contents, on_the_host, third, triad};
use crate::no_visit::NoVisit;
use crate::solo::{Solo, Task};
use crate::threads::{Stop, join, pinned, start};
use membound_core::case::Case;
use membound_core::record::{Sample, Samples};
use membound_core::work::device::{Action, Buffer, DeviceWork};

/// What all memory is full of at first, but what a copy begins at.
const ONE: f64 = 1.0;

/// What one side does, over memory of its own.
enum Pass<'a, M> {
    Triad { kernel: Box<Option<OverSlices<'a>>>, memory: HostMemory },
    Copy { from: M, to: M },
    Write { from: HostMemory, to: M },
}

/// Makes a pass over a part of the memory: of so many parts.
type Make<'b, 'a, M> = &'b (dyn Fn(u64) -> Result<Pass<'a, M>, NoVisit> + Sync);

/// One side's work: its passes, again and again, and a pause after each.
struct Side<'a, M> {
    passes: Vec<Pass<'a, M>>,
    /// How many were done.
    done: usize,
    duty_percent: Option<u8>,
}

impl<'a, M: Memory> Side<'a, M> {
    /// Made on the CPU that will do it: memory lies on the node of who touches it first.
    fn on(cpu: u32, work: DeviceWork, pass: Make<'_, 'a, M>) -> Result<Self, NoVisit> {
        let passes = || (0..work.slices()).map(|_| pass(work.slices())).collect();
        Ok(Side { passes: pinned(cpu, passes)?, done: 0, duty_percent: work.duty_percent })
    }

    /// Makes the pages of what the processor works on: for the thread that does, on its own CPU.
    fn touch(&mut self) {
        for pass in &mut self.passes {
            if let Pass::Triad { memory, .. } = pass {
                memory.words().fill(ONE);
            }
        }
    }

    fn once(&mut self) -> Result<(), NoVisit> {
        let at = self.done % self.passes.len();
        self.done += 1;
        match &mut self.passes[at] {
            Pass::Triad { kernel, memory } => triad(kernel, memory),
            Pass::Copy { from, to } => from.copy(to),
            Pass::Write { from, to } => to.write(from.words()),
        }
    }

    /// What each pass that was done left behind, against what it must be.
    fn check(&mut self) -> Result<(), NoVisit> {
        self.passes.iter_mut().take(self.done).try_for_each(|pass| match pass {
            // 1 + 3 x 1, in the first array.
            Pass::Triad { memory, .. } => {
                let words = memory.words();
                check(&words[..third(words)], ONE + SCALAR * ONE)
            }
            Pass::Copy { to, .. } | Pass::Write { to, .. } => check_contents(to, SCALAR),
        })
    }

    /// The same, and a pause as long as the duty asks for.
    fn once_and_pause(&mut self) -> Result<(), NoVisit> {
        let start = Instant::now();
        self.once()?;
        if let Some(percent) = self.duty_percent {
            thread::sleep(start.elapsed().mul_f64(100.0 / f64::from(percent.clamp(1, 100)) - 1.0));
        }
        Ok(())
    }
}

/// What runs beside the timed side.
struct Others {
    stop: Stop,
    /// Passes of each.
    done: Vec<AtomicU64>,
}

impl Others {
    fn run<M: Memory>(&self, number: usize, cpu: u32, side: &mut Side<'_, M>) {
        let mut work = || {
            pin(cpu)?;
            side.touch();
            while !self.stop.is_raised() {
                side.once_and_pause()?;
                self.done[number].fetch_add(1, Ordering::Release);
            }
            side.check()
        };
        if let Err(why) = work() {
            self.stop.fail(why);
        }
    }

    fn are_at_work(&self) -> bool {
        self.done.iter().all(|done| done.load(Ordering::Acquire) > 0)
    }
}

/// The timed side, and what it knows of the others.
struct Timed<'a, 'b, M> {
    side: Side<'a, M>,
    others: &'b Others,
    /// That whose passes count; none where the processor works alone.
    counted: Option<&'b AtomicU64>,
    before: u64,
    /// What the other did while each sample ran.
    meanwhile: Vec<u64>,
}

impl<M: Memory> Task for Timed<'_, '_, M> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        self.side.touch();
        // All are at work before anything is timed.
        while !self.others.are_at_work() && !self.others.stop.is_raised() {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn approach(&mut self, _repetitions: u64) -> Result<(), NoVisit> {
        self.before = self.counted.map_or(0, |done| done.load(Ordering::Acquire));
        Ok(())
    }

    fn run(&mut self, repetitions: u64) -> Result<bool, NoVisit> {
        (0..repetitions).try_for_each(|_| self.side.once())?;
        Ok(!self.others.stop.is_raised())
    }

    fn taken(&mut self, _sample: &mut Sample) {
        self.meanwhile.extend(self.counted.map(|done| done.load(Ordering::Acquire) - self.before));
    }

    fn end(&mut self, samples: &mut Samples) -> Result<(), NoVisit> {
        samples.load_repetitions = std::mem::take(&mut self.meanwhile);
        samples.load_repetitions.truncate(samples.ticks.len());
        self.side.check()
    }
}

/// Measures the processor's triad, or one side beside the other. The case's first CPU is that of the timed side, its last that of the
/// other one; those between do the triad, too.
pub(super) fn measure<D: Driver>(
    solo: &Solo<'_>,
    case: &Case,
    work: DeviceWork,
    maker: &Maker<'_, D>,
    code: Option<Code<'_>>,
) -> Result<(Samples, u64), NoVisit> {
    let (action, cpus) = (work.action, case.cpus.len());
    // What is timed, and who does the same beside it, never pauses.
    let steady = DeviceWork::new(work.device, work.buffer, action);
    let triad = |slices: u64| {
        let bytes = 3 * action.triad_array(cpus, case.working_set).0 / slices;
        Ok(Pass::Triad { kernel: Box::new(on_the_host(code)?), memory: HostMemory::in_large_pages(bytes as usize) })
    };
    let copy = |slices: u64| {
        let bytes = (action.copied_beside(cpus, case.working_set).0 / slices) as usize;
        let mut to = maker.plain(bytes)?;
        to.write(HostMemory::of_a_program(bytes).full_of(ONE).words())?;
        let mut contents = HostMemory::of_a_program(bytes).full_of(SCALAR);
        if maker.buffer == Buffer::Regular {
            return Ok(Pass::Write { from: contents, to });
        }
        let mut from = maker.fresh(bytes)?;
        from.write(contents.words())?;
        Ok(Pass::Copy { from, to })
    };
    let is_copy = action == Action::CopyBesideHostTriad;
    // All but one of those who do the triad, or all of them.
    let helpers = action.triads(cpus) - 1;
    let helping = if is_copy { work } else { steady };
    let mut sides: Vec<(DeviceWork, Make<'_, '_, D::Memory>)> = vec![(helping, &triad); helpers];
    match action {
        Action::CopyBesideHostTriad => sides.push((work, &triad)),
        Action::HostTriadBesideCopy => sides.push((work, &copy)),
        _ => {}
    }
    // Of a case with one CPU it is that of both sides.
    let cpus = &case.cpus[cpus.saturating_sub(sides.len())..];
    let mut beside = Vec::new();
    for (&(work, pass), &cpu) in sides.iter().zip(cpus) {
        beside.push(Side::on(cpu, work, pass)?);
    }
    let side = Side::on(case.cpus.first().copied().unwrap_or(0), steady, if is_copy { &copy } else { &triad })?;
    let others = Others { stop: Stop::default(), done: beside.iter().map(|_| AtomicU64::new(0)).collect() };
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, (side, &cpu)) in beside.iter_mut().zip(cpus).enumerate() {
            let others = &others;
            match start(scope, move || others.run(number, cpu, side)) {
                Ok(thread) => running.push(thread),
                // Those that run are stopped, and nothing is timed.
                Err(why) => {
                    others.stop.fail(why);
                    break;
                }
            }
        }
        let counted = others.done.last().filter(|_| action.is_contended());
        let taken = solo.measure(&mut Timed { side, others: &others, counted, before: 0, meanwhile: Vec::new() });
        others.stop.raise();
        running.into_iter().for_each(join);
        match others.stop.why() {
            Some(why) => Err(why),
            None => taken,
        }
    })
}
