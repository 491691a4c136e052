//! A simulated machine: memories with known levels, noise, outliers and modes, for tests of everything behind the
//! executor. Its clock is named `simulated`, so that its records can't pass for measurements.

use super::{Executor, Quota};
use crate::memory::Obtained;
use crate::plan::{Case, Conflict, LINE, Work};
use crate::record::{Clock, Measured, Outcome, Sample, Samples, Volume};
use crate::units::{Bytes, Hertz};

/// A level of the simulated memory system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FakeLevel {
    /// Largest working set of one thread that it holds.
    pub capacity: Bytes,
    /// Payload bytes a second of one thread's loads.
    pub bytes_per_s: f64,
    /// Most that all threads get together.
    pub shared_bytes_per_s: f64,
}

/// How samples scatter.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Noise {
    /// Standard deviation of the logarithm of a duration.
    pub sigma: f64,
    /// Share of samples that take three times as long.
    pub outliers: f64,
    /// Share of samples in a second, slower mode, and how much longer they take.
    pub slow_mode: (f64, f64),
    /// Standard deviation of the logarithm from visit to visit.
    pub drift: f64,
}

/// The simulated machine.
#[derive(Debug, Clone)]
pub struct Fake {
    /// Levels, fastest first; the last holds everything.
    pub levels: Vec<FakeLevel>,
    /// How samples scatter.
    pub noise: Noise,
    /// Case (by its text) that crashes, if any.
    pub crashes: Option<String>,
    /// Whether two lines get in each other's way, by their targets; absent: never.
    pub target: Option<fn(u64) -> u64>,
    random: fastrand::Rng,
}

/// Ticks a second of the simulated clock.
const HZ: f64 = 1e9;

impl Fake {
    /// A machine with `levels` and `noise`; the same seed gives the same samples.
    pub fn new(levels: Vec<FakeLevel>, noise: Noise, seed: u64) -> Self {
        Fake { levels, noise, crashes: None, target: None, random: fastrand::Rng::with_seed(seed) }
    }

    /// The true speed of a case: payload bytes a second.
    pub fn truth(&self, case: &Case) -> f64 {
        let threads = case.threads() as f64;
        let share = case.working_set.0 / case.threads().max(1) as u64;
        let last = self.levels.len() - 1;
        let around = case.variant().is_some_and(|variant| variant.store.bypasses_caches());
        let level = self.levels.iter().position(|level| share <= level.capacity.0).unwrap_or(last);
        let level = self.levels[if around { last } else { level }];
        let bus = volume(case);
        let bus_rate = (level.bytes_per_s * threads).min(level.shared_bytes_per_s);
        bus_rate * bus.payload() as f64 / bus.bus().max(1) as f64
    }

    /// One sample a pair of lines: 200 ns, and half as long again if both have the same target.
    fn pairs(&mut self, case: &Case, batch: &Conflict) -> Outcome {
        let mut samples = Samples::default();
        for [a, b] in batch.pairs.iter().map(|pair| pair.map(|line| u64::from(line) * LINE)) {
            let slower = if self.target.is_some_and(|target| target(a) == target(b)) { 1.5 } else { 1.0 };
            let outlier = if self.random.f64() < self.noise.outliers { 3.0 } else { 1.0 };
            let ticks = (200e2 * slower * outlier * (self.normal() * self.noise.sigma).exp()) as u64;
            samples.push(Sample { ticks, fastest_thread_ticks: ticks, core_clock_ticks: 1333, ..Sample::default() });
        }
        let volume = Volume { elements: 2, loaded: 2 * LINE, ..Volume::default() };
        let obtained = Obtained { bytes: case.working_set, ..Obtained::default() };
        Outcome::Measured(Box::new(Measured { volume, repetitions: 100, core_clock_links: 4000, samples, obtained }))
    }

    fn normal(&mut self) -> f64 {
        // Irwin-Hall: the sum of 12 uniforms has variance 1.
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }
}

fn volume(case: &Case) -> Volume {
    let Some((variant, kernel)) = case.variant().and_then(|v| Some((v, v.row()?))) else { return Volume::default() };
    let traffic = kernel.traffic(variant.store, variant.element);
    let formula = kernel.formula();
    let elements = (case.working_set.0 / variant.element.bytes() / formula.streams.len() as u64).max(1);
    Volume {
        elements,
        loaded: elements * traffic.loaded,
        stored: elements * traffic.stored,
        write_allocated: elements * traffic.write_allocated,
        flops: elements * u64::from(formula.flops()),
    }
}

impl Executor for Fake {
    fn clock(&self) -> Clock {
        Clock { name: "simulated".into(), hz: Hertz(HZ), overhead_ticks: 20 }
    }

    fn expect(&mut self, _cases: &[Case]) {}

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        if self.crashes.as_deref().is_some_and(|crash| case.to_string().contains(crash)) {
            return Outcome::Crashed { reason: "the kernel was stopped by SIGILL (simulated)".into() };
        }
        if let Work::Conflict(batch) = &case.work {
            return self.pairs(case, batch);
        }
        let volume = volume(case);
        let pass_ticks = volume.payload() as f64 / self.truth(case) * HZ;
        let repetitions = (200e3 / pass_ticks).ceil().max(1.0) as u64;
        let visit = (self.normal() * self.noise.drift).exp();
        let mut samples = Samples::default();
        while samples.ticks.len() < quota.most_samples {
            let mut ticks = pass_ticks * repetitions as f64 * visit * (self.normal() * self.noise.sigma).exp();
            if self.random.f64() < self.noise.slow_mode.0 {
                ticks *= self.noise.slow_mode.1;
            }
            if self.random.f64() < self.noise.outliers {
                ticks *= 3.0;
            }
            let ticks = ticks.max(1.0) as u64;
            samples.push(Sample { ticks, fastest_thread_ticks: ticks, core_clock_ticks: 1333, ..Sample::default() });
        }
        let obtained = Obtained { bytes: case.working_set, ..Obtained::default() };
        Outcome::Measured(Box::new(Measured { volume, repetitions, core_clock_links: 4000, samples, obtained }))
    }
}
