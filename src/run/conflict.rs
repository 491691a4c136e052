//! Pairs of lines on this machine: one sample a pair, in the order asked for. The memory is kept from batch to batch:
//! the questions are about where it lies.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::Quota;
use super::native::{CORE_CLOCK_LINKS, core_clock, crashed, pin, unavailable};
use super::scan::{Tools, tagged};
use super::sys;
use super::team::StealMeter;
use crate::kernel::code::{Call, Executable, Fault};
use crate::kernel::pair::pair;
use crate::memory::{MemorySpec, Obtained, Region};
use crate::plan::{Case, Conflict, LINE, known_page};
use crate::record::{Measured, Outcome, Sample, Samples, Volume};
use crate::units::Bytes;

/// Samples from one reading of the core clock, and one look at the time, to the next.
const CLOCK_PERIOD: usize = 64;
/// Each sample comes after a pass of this share of its length that is not timed: both lines are flushed then, and their
/// addresses are in the TLB.
const WARM_UP: u64 = 8;

/// Asks about pairs of lines.
#[derive(Debug, Default)]
pub(super) struct Prober {
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
    /// Visits `case`, which asks this batch.
    pub fn visit(
        &mut self,
        case: &Case,
        batch: &Conflict,
        quota: &Quota<'_>,
        tools: &Tools<'_>,
    ) -> Result<Outcome, Outcome> {
        let &[cpu] = &case.cpus[..] else {
            return Err(unavailable("pairs of lines are loaded by one thread; name one CPU"));
        };
        if self.code.is_none() {
            let code = pair().map_err(unavailable)?;
            let refused = |fault| unavailable(format!("executable memory was refused ({fault})"));
            self.code = Some(Executable::new(&code).map_err(refused)?);
        }
        self.hold(case, cpu, tools)?;
        let (Some(code), Some(held)) = (&self.code, &mut self.held) else {
            return Err(unavailable("there is no memory to ask about"));
        };
        if !batch.fits(held.region.bytes()) {
            return Err(unavailable("the batch names lines beyond the memory; give a larger --size"));
        }
        let probe = || Probe { code, held, tools, steal: StealMeter::new() }.measure(cpu, batch, quota);
        let samples = std::thread::scope(|scope| scope.spawn(probe).join())
            .unwrap_or_else(|_| Err(Outcome::Crashed { reason: "a measuring thread panicked".into() }))?;
        Ok(Outcome::Measured(Box::new(Measured {
            volume: Volume { elements: 2, loaded: 2 * LINE, ..Volume::default() },
            repetitions: held.repetitions,
            core_clock_links: CORE_CLOCK_LINKS,
            samples,
            obtained: held.obtained.clone(),
        })))
    }

    /// Makes sure that the case's memory is held, and made of pages of the size that it relies on.
    fn hold(&mut self, case: &Case, cpu: u32, tools: &Tools<'_>) -> Result<(), Outcome> {
        if self.held.as_ref().is_some_and(|held| (held.memory, held.bytes) == (case.memory, case.working_set)) {
            return Ok(());
        }
        let kind = case.memory.kind;
        let page = known_page(kind).ok_or_else(|| {
            unavailable(format!("{kind} memory brings no known address bits; choose thp, huge-2m or huge-1g"))
        })?;
        self.held = None;
        let mut region = Region::new(case.memory, case.working_set, tools.places).map_err(unavailable)?;
        let fill = || {
            pin(cpu)?;
            // Pages of zeros may be one shared page: each is written to.
            sys::touch_words(&mut region, |words| words.fill(1.0)).map_err(crashed)
        };
        std::thread::scope(|scope| scope.spawn(fill).join())
            .unwrap_or_else(|_| Err(Outcome::Crashed { reason: "a measuring thread panicked".into() }))?;
        let mut obtained = region.inspect(case.working_set);
        if obtained.huge_bytes.is_none_or(|huge| huge < case.working_set) {
            let found = obtained.huge_bytes.map_or_else(|| "an unknown part".into(), |huge| huge.to_string());
            return Err(unavailable(format!(
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

/// Physical address of each page, where /proc/self/pagemap tells it: to root. Others read zeros.
fn frames(region: &Region, page: Bytes) -> Option<Vec<u64>> {
    const PRESENT: u64 = 1 << 63;
    const FRAME_NUMBER: u64 = (1 << 55) - 1;
    let map = File::open("/proc/self/pagemap").ok()?;
    let frame = |start: u64| {
        let mut entry = [0; 8];
        map.read_exact_at(&mut entry, start / 4096 * 8).ok()?;
        let entry = u64::from_le_bytes(entry);
        let address = (entry & FRAME_NUMBER) * 4096;
        // A huge page that does not start at a multiple of itself would belie its size.
        (entry & PRESENT != 0 && address != 0 && address.is_multiple_of(page.0)).then_some(address)
    };
    (region.address()..region.address() + region.bytes().0).step_by(page.0 as usize).map(frame).collect()
}

/// Takes the samples of one batch.
struct Probe<'a> {
    code: &'a Executable,
    held: &'a mut Held,
    tools: &'a Tools<'a>,
    steal: StealMeter,
}

impl Probe<'_> {
    /// One sample a pair, as far as time allows.
    fn measure(&mut self, cpu: u32, batch: &Conflict, quota: &Quota<'_>) -> Result<Samples, Outcome> {
        let deadline = Instant::now() + quota.time;
        pin(cpu)?;
        if let (0, Some(&first)) = (self.held.repetitions, batch.pairs.first()) {
            self.held.repetitions = self.repetitions(first).map_err(crashed)?;
        }
        let mut samples = Samples::default();
        let mut core_clock_ticks = 0;
        for (done, &lines) in batch.pairs.iter().enumerate() {
            if done % CLOCK_PERIOD == 0 {
                if done > 0 && ((quota.interrupted)() || Instant::now() >= deadline) {
                    break;
                }
                core_clock_ticks = core_clock(self.tools.chain, self.tools.ticker);
            }
            let sample = self.sample(lines, cpu).map_err(crashed)?;
            samples.push(Sample { core_clock_ticks, steal_jiffies: self.steal.since_last(), ..sample });
        }
        Ok(samples)
    }

    fn sample(&self, lines: [u32; 2], cpu: u32) -> Result<Sample, Fault> {
        let repetitions = self.held.repetitions;
        tagged(cpu, || {
            self.ticks(lines, repetitions.div_ceil(WARM_UP))?;
            self.ticks(lines, repetitions)
        })
    }

    /// Repetitions that make a sample.
    fn repetitions(&self, lines: [u32; 2]) -> Result<u64, Fault> {
        let mut repetitions = 16;
        loop {
            // The faster of two: one alone may have been interrupted.
            let ticks = self.ticks(lines, repetitions)?.min(self.ticks(lines, repetitions)?);
            if ticks >= self.tools.sample_ticks() {
                return Ok(repetitions);
            }
            repetitions *= 2;
        }
    }

    fn ticks(&self, lines: [u32; 2], repetitions: u64) -> Result<u64, Fault> {
        let mut call = Call::empty(repetitions.max(1));
        for (pointer, line) in call.pointers.iter_mut().zip(lines) {
            *pointer = self.held.region.address() + u64::from(line) * LINE;
        }
        let start = self.tools.ticker.now();
        // SAFETY: the code loads and flushes two lines of the region, which is mapped for as long as it is held; `visit`
        // has seen that all lines of the batch lie in it.
        let run = unsafe { self.code.run(&mut call) };
        let end = self.tools.ticker.now();
        run.map(|()| (end - start).max(1))
    }
}
