//! What the comparisons share: this machine as the tool sees it, one visit to a case, a table.

// Each bench uses a part of it.
#![allow(dead_code)]

use std::fmt::Display;
use std::time::Duration;

use membound_core::case::{Case, USUAL_MEMORY, Work};
use membound_core::experiments::frame::Frame;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Variant, Width};
use membound_core::machine::Machine;
use membound_core::record::probes::ProbeSamples;
use membound_core::record::{Measured, Outcome};
use membound_core::units::Bytes;
use membound_core::{case as plan, stats};
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::schedule::{Executor, Quota};

const PAGE: u64 = 4096;

/// This machine and an executor that measures on it.
pub struct Bench {
    pub machine: Machine,
    pub frame: Frame,
    here: Here,
}

impl Bench {
    pub fn new() -> Self {
        let machine = membound_measure::machine::live();
        let frame = Frame::new(&machine, membound_measure::asm::detect(), None).unwrap_or_else(|fault| stop(fault));
        let here = Here::new(&[], Places::default(), false).unwrap_or_else(|fault| stop(fault));
        Bench { machine, frame, here }
    }

    /// Reserves memory for the largest of these cases.
    pub fn expect(&mut self, cases: &[Case]) {
        self.here.expect(cases);
    }

    /// Samples of about `time`, after the tool's own warm-up. An error says why there are none.
    pub fn visit(&mut self, case: &Case, time: Duration) -> Result<Visit, String> {
        let quota = Quota { least_samples: 3, most_samples: usize::MAX, time, interrupted: &|| false };
        match self.here.visit(case, &quota) {
            Outcome::Measured(measured) => {
                let is_loaded = matches!(case.work, Work::Loaded(_));
                Ok(Visit { measured: *measured, hz: self.here.clock().hz.0, is_loaded })
            }
            Outcome::Unavailable { reason } | Outcome::Crashed { reason } | Outcome::Invalid { reason } => Err(reason),
        }
    }

    /// From now on memory is made anew.
    pub fn begin_round(&mut self) {
        self.here.begin_round();
    }

    /// A case as a default run has it, of the given working set.
    pub fn case(&self, kernel: &str, width: Width, store: StoreKind, cpus: &[u32], working_set: Bytes) -> Case {
        plan::steady(kernel, width, store, USUAL_MEMORY, cpus.to_vec(), working_set)
    }

    /// Levels and the working sets at which a default run looks at them, for so many threads.
    pub fn levels(&self, kernel: &str, threads: usize) -> Vec<(String, Bytes)> {
        let caches = self.frame.in_caches(threads).into_iter().map(|(level, size)| (format!("L{level}"), size));
        let memory = ("memory".to_owned(), self.frame.memory_size(threads));
        caches.chain([memory]).map(|(level, size)| (level, whole_pages(kernel, size, threads))).collect()
    }
}

/// Whole pages for each stream of each thread: a default run's first level, and what likwid-bench rounds the least.
fn whole_pages(kernel: &str, size: Bytes, threads: usize) -> Bytes {
    let unit = PAGE * streams(kernel) * threads as u64;
    Bytes((size.0 / unit).max(1) * unit)
}

/// Arrays of a kernel.
pub fn streams(kernel: &str) -> u64 {
    Kernel::named(kernel).map_or(1, |kernel| kernel.formula().streams.len() as u64)
}

/// One visit's samples.
pub struct Visit {
    measured: Measured,
    hz: f64,
    is_loaded: bool,
}

impl Visit {
    /// Payload bytes a second over the visit as a whole: all bytes over all time.
    pub fn payload_bps(&self) -> f64 {
        let samples = &self.measured.samples.ticks;
        let seconds = samples.iter().sum::<u64>() as f64 / self.hz;
        self.sample_bytes() * samples.len() as f64 / seconds
    }

    /// Payload bytes a second: the median of the visit's three parts, each all bytes over all time.
    pub fn payload_bps_of_three(&self) -> f64 {
        let samples = &self.measured.samples.ticks;
        let bps = |part: &[u64]| self.sample_bytes() * part.len() as f64 * self.hz / part.iter().sum::<u64>() as f64;
        stats::quantiles::median(samples.chunks(samples.len().div_ceil(3)).map(bps)).unwrap_or(f64::NAN)
    }

    /// Payload bytes a second: median of the samples.
    pub fn payload_bps_median(&self) -> f64 {
        let bps = |&ticks: &u64| self.sample_bytes() / (ticks as f64 / self.hz);
        let samples: Vec<f64> = self.measured.samples.ticks.iter().map(bps).collect();
        stats::summarize(&[&samples]).map_or(f64::NAN, |summary| summary.median)
    }

    /// What was probed around each sample.
    pub fn probes(&self) -> Option<&ProbeSamples> {
        self.measured.samples.probes.as_ref()
    }

    /// Payload bytes in a core clock cycle, sample by sample.
    pub fn bytes_per_cycle(&self) -> Vec<f64> {
        let ticks = self.measured.samples.ticks.iter().map(|&ticks| ticks as f64);
        ticks.zip(self.core_clock_hz()).map(|(ticks, clock)| self.sample_bytes() / (ticks / self.hz * clock)).collect()
    }

    /// Nanoseconds of each access of a single chain, sample by sample. Beside other threads a repetition is an access, and
    /// the volume is what they move.
    pub fn access_ns(&self) -> Vec<f64> {
        let links = if self.is_loaded { 1 } else { self.measured.volume.units };
        let accesses = (self.measured.repetitions * links) as f64;
        self.measured.samples.ticks.iter().map(|&ticks| ticks as f64 / self.hz * 1e9 / accesses).collect()
    }

    /// The same in core clock cycles.
    pub fn access_cycles(&self) -> Vec<f64> {
        self.access_ns().iter().zip(self.core_clock_hz()).map(|(ns, hz)| ns * 1e-9 * hz).collect()
    }

    /// The core clock, sample by sample.
    pub fn core_clock_hz(&self) -> Vec<f64> {
        self.measured.cycles_per_tick().into_iter().map(|cycles| cycles.unwrap_or(f64::NAN) * self.hz).collect()
    }

    /// Nanoseconds of a hand-over over the visit as a whole: all time over all hand-overs.
    pub fn handover_ns(&self) -> f64 {
        let samples = &self.measured.samples.ticks;
        let handovers = self.measured.repetitions * self.measured.volume.units * samples.len() as u64;
        samples.iter().sum::<u64>() as f64 / self.hz * 1e9 / handovers as f64
    }

    fn sample_bytes(&self) -> f64 {
        self.measured.volume.payload() as f64 * self.measured.repetitions as f64
    }
}

/// Ends a comparison that can't be made; the text names the cure.
pub fn stop(why: impl Display) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}

/// A seed from the clock, short enough to type again.
pub fn fresh_seed() -> u64 {
    fastrand::u64(..1_000_000)
}

/// Prints a row as it is known: the first cells to the left, `numbers` to the right.
pub fn print_row(cells: &[(&dyn Display, isize)]) {
    let text = |(value, width): &(&dyn Display, isize)| {
        let value = value.to_string();
        let columns = width.unsigned_abs();
        if *width < 0 { format!("{value:<columns$}") } else { format!("{value:>columns$}") }
    };
    let line: Vec<String> = cells.iter().map(text).collect();
    println!("{}", line.join("  ").trim_end());
}

/// The kernel variant of a case; benches measure nothing else.
pub fn variant(case: &Case) -> &Variant {
    case.variant().unwrap_or_else(|| stop("a case that is no kernel"))
}
