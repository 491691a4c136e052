//! Pairs of lines on this machine: one sample a pair, in the order asked for. The memory is kept from batch to batch:
//! the questions are about where it lies.

#![allow(unsafe_code)]

use crate::os::pages::Frames;
use membound_core::record::Unit;

use crate::asm::pair;
use crate::bench::{Tools, executable, measured};
use crate::code::{Call, Executable};
use crate::memory::region::Region;
use crate::memory::touch;
use crate::no_visit::NoVisit;
use crate::schedule::Quota;
use crate::solo::{PROBE_PERIOD, Solo, Task};
use crate::threads;
use membound_core::case::Case;
use membound_core::experiments::addrmap::known_page;
use membound_core::memory::{MemorySpec, Obtained};
use membound_core::record::{Measured, Sample, Samples, Volume};
use membound_core::units::{Bytes, LINE};
use membound_core::work::addrmap::Conflict;

/// Each sample comes after a pass of this share of its length that is not timed: both lines are flushed then, and their
/// addresses are in the TLB.
const WARM_UP: u64 = 8;

/// Asks about pairs of lines.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    code: Option<Executable>,
    held: Option<Held>,
}

/// Memory that questions were asked about, and will be again.
#[derive(Debug)]
struct Held {
    memory: MemorySpec,
    bytes: Bytes,
    region: Region,
    obtained: Obtained,
    /// Repetitions that make a sample; 0: not known yet. The same in all batches, so that their times compare.
    repetitions: u64,
}

impl Prober {
    /// Visits `case`, which asks this batch: one sample a pair, as far as time allows.
    pub fn visit(
        &mut self,
        case: &Case,
        batch: &Conflict,
        quota: &Quota<'_>,
        tools: &Tools<'_>,
    ) -> Result<Measured, NoVisit> {
        let &[cpu] = &case.cpus[..] else { return Err(NoVisit::OneThread("pairs of lines are loaded by")) };
        if self.code.is_none() {
            self.code = Some(executable(pair())?);
        }
        self.hold(case, cpu, tools)?;
        let (Some(code), Some(held)) = (&self.code, &mut self.held) else {
            return Err(NoVisit::impossible("there is no memory to ask about"));
        };
        if !batch.fits(held.region.bytes()) {
            return Err(NoVisit::impossible("the batch names lines beyond the memory; give a larger --size"));
        }
        let mut probe = Probe { code, held, batch, done: 0, call: Call::empty(1) };
        let solo = Solo::new(cpu, quota, tools).in_rounds(PROBE_PERIOD, batch.pairs.len());
        let taken = solo.measure(&mut probe)?;
        let volume = Volume { units: 2, unit: Unit::Line, loaded: 2 * LINE, ..Volume::default() };
        Ok(measured(volume, taken, held.obtained.clone()))
    }

    /// Makes sure that the case's memory is held, and made of pages of the size that it relies on.
    fn hold(&mut self, case: &Case, cpu: u32, tools: &Tools<'_>) -> Result<(), NoVisit> {
        if self.held.as_ref().is_some_and(|held| (held.memory, held.bytes) == (case.memory, case.working_set)) {
            return Ok(());
        }
        let kind = case.memory.kind;
        let page = known_page(kind).ok_or_else(|| {
            NoVisit::impossible(format!("{kind} memory brings no known address bits; choose thp, huge-2m or huge-1g"))
        })?;
        self.held = None;
        let mut region = Region::new(case.memory, case.working_set, tools.places)?;
        // Pages of zeros may be one shared page: each is written to.
        threads::pinned(cpu, || Ok(touch::touch_words(&mut region, |words| words.fill(1.0))?))?;
        let mut obtained = region.inspect(case.working_set);
        if obtained.huge_bytes.is_none_or(|huge| huge < case.working_set) {
            let found = obtained.huge_bytes.map_or_else(|| "an unknown part".into(), |huge| huge.to_string());
            return Err(NoVisit::impossible(format!(
                "{found} of {} is huge pages, so address bits are unknown; free memory, set \
                 /sys/kernel/mm/transparent_hugepage/enabled to madvise, or reserve pages and choose huge-2m",
                case.working_set
            )));
        }
        obtained.frames = frames(&region, page).unwrap_or_default();
        self.held = Some(Held { memory: case.memory, bytes: case.working_set, region, obtained, repetitions: 0 });
        Ok(())
    }
}

/// Physical address of each page, where the system tells.
fn frames(region: &Region, page: Bytes) -> Option<Vec<u64>> {
    let frames = Frames::open()?;
    // A huge page that does not start at a multiple of itself would belie its size.
    let frame = |start: u64| frames.of(start).filter(|address| address.is_multiple_of(page.0));
    (region.address()..region.address() + region.bytes().0).step_by(page.0 as usize).map(frame).collect()
}

/// Takes the samples of one batch.
struct Probe<'a> {
    code: &'a Executable,
    held: &'a mut Held,
    batch: &'a Conflict,
    /// Pairs asked about.
    done: usize,
    call: Call,
}

impl Probe<'_> {
    fn aim(&mut self, repetitions: u64) {
        self.call = Call::empty(repetitions.max(1));
        let lines = self.batch.pairs.get(self.done).copied().unwrap_or_default();
        for (pointer, line) in self.call.pointers.iter_mut().zip(lines) {
            *pointer = self.held.region.address() + u64::from(line) * LINE;
        }
    }

    fn pass(&mut self) -> Result<(), NoVisit> {
        // SAFETY: the code loads and flushes two lines of the region, which is mapped for as long as it is held; `visit`
        // has seen that all lines of the batch lie in it.
        Ok(unsafe { self.code.run(&mut self.call) }?)
    }
}

impl Task for Probe<'_> {
    fn warm_up(&mut self, solo: &Solo<'_>) -> Result<u64, NoVisit> {
        if self.held.repetitions == 0 && !self.batch.pairs.is_empty() {
            self.held.repetitions = solo.long_enough(self, 16, |repetitions, _| repetitions * 2)?;
        }
        Ok(self.held.repetitions)
    }

    fn approach(&mut self, repetitions: u64) -> Result<(), NoVisit> {
        self.aim(repetitions.div_ceil(WARM_UP));
        self.pass()?;
        self.aim(repetitions);
        Ok(())
    }

    fn run(&mut self, _repetitions: u64) -> Result<bool, NoVisit> {
        self.pass().map(|()| true)
    }

    fn taken(&mut self, _sample: &mut Sample) {
        self.done += 1;
    }

    fn end(&mut self, _samples: &mut Samples) -> Result<(), NoVisit> {
        Ok(())
    }
}
