//! A simulated machine: memories with known levels, noise, outliers and modes, for tests of everything behind the
//! executor. Its clock is named `simulated`, so that its records can't pass for measurements.

use membound_core::record::Unit;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bench::volume as volume_of;
use crate::meters::{Dial, Meter, Meters, Scale};
use crate::no_visit::NoVisit;
use crate::schedule::{Executor, Quota};
use membound_core::case::{Case, Protocol, Work};
use membound_core::kernel::chase::Chase;
use membound_core::kernel::flops::Flops;
use membound_core::kernel::mix::Mix;
use membound_core::kernel::streams::Streams;
use membound_core::machine::energy::EnergyPart;
use membound_core::memory::Obtained;
use membound_core::record::{Clock, Measured, Outcome, Sample, Samples, Volume};
use membound_core::stats::normal;
use membound_core::units::{Bytes, Hertz, LINE};
use membound_core::work::addrmap::Conflict;
use membound_core::work::common::Common;
use membound_core::work::loaded::Load;

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
    /// Share of visits in a second, slower state, and how much longer their samples take.
    pub slow_mode: (f64, f64),
    /// Standard deviation of the logarithm from visit to visit.
    pub drift: f64,
}

/// What a simulated machine draws, by a counter that changes in steps and starts again from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FakePower {
    /// Watts at rest.
    pub idle_w: f64,
    /// Joules that each byte on the bus takes beyond that.
    pub joules_per_byte: f64,
    /// Microseconds from one change of the counter to the next.
    pub update_us: u64,
    /// Greatest value of the counter, in microjoules.
    pub range_uj: u64,
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
    /// What it draws; absent: it has no meter of energy.
    pub power: Option<FakePower>,
    /// Share of the write-allocates that its memory controllers see; absent: they count nothing.
    pub write_allocates: Option<f64>,
    random: fastrand::Rng,
    /// Microseconds since the simulation began.
    clock_us: f64,
}

/// Ticks a second of the simulated clock.
const HZ: f64 = 1e9;
/// Lines that a thread has in flight where it streams: a load takes as long from a level as so many take together.
const IN_FLIGHT: f64 = 10.0;
/// Nanoseconds of a hand-over, for each bit from the highest in which the numbers of the CPUs differ.
const HANDOVER_NS: f64 = 20.0;
/// Targets that streams are spread over at best.
const CONTROLLERS: u32 = 8;
/// Bytes that a loading thread moves between two pauses.
const CHUNK: f64 = 12288.0;
/// Most of a memory's rate that can be used, and by how much a load takes longer at half of it.
const QUEUE: (f64, f64) = (0.95, 0.3);

impl Fake {
    /// A machine with `levels` and `noise`; the same seed gives the same samples.
    pub fn new(levels: Vec<FakeLevel>, noise: Noise, seed: u64) -> Self {
        Fake {
            levels,
            noise,
            crashes: None,
            target: None,
            power: None,
            write_allocates: None,
            random: fastrand::Rng::with_seed(seed),
            clock_us: 0.0,
        }
    }

    /// The true speed of a case: payload bytes a second.
    pub fn truth(&self, case: &Case) -> f64 {
        let threads = case.threads() as f64;
        let share = case.share().0;
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
            let ticks = (200e2 * slower * outlier * (normal(&mut self.random) * self.noise.sigma).exp()) as u64;
            samples.push(Sample { ticks, core_clock_ticks: 1333, ..Sample::default() });
        }
        let volume = Volume { units: 2, unit: Unit::Line, loaded: 2 * LINE, ..Volume::default() };
        let obtained = Obtained { bytes: case.working_set, ..Obtained::default() };
        Measured { volume, repetitions: 100, core_clock_links: 4000, samples, obtained }.into()
    }

    /// The true latency of a load of a chase over so many bytes, in nanoseconds: more chains than lines in flight wait.
    pub fn latency_ns(&self, footprint: u64, chains: u32) -> f64 {
        let last = self.levels.len() - 1;
        let level = self.levels.iter().position(|level| footprint <= level.capacity.0).unwrap_or(last);
        IN_FLIGHT * LINE as f64 / self.levels[level].bytes_per_s * 1e9 * (f64::from(chains) / IN_FLIGHT).max(1.0)
    }

    /// The true rate of so many loading threads, in bytes a second, and the latency beside them, in nanoseconds.
    pub fn loaded(&self, load: Load, threads: usize) -> (f64, f64) {
        let (idle_ns, last) = (self.latency_ns(u64::MAX, 1), self.levels[self.levels.len() - 1]);
        let Load::Mixed { delay_ns, .. } = load else { return (0.0, idle_ns) };
        let alone = CHUNK / (CHUNK / last.bytes_per_s + f64::from(delay_ns) * 1e-9);
        let used = (alone * threads as f64 / last.shared_bytes_per_s).min(QUEUE.0);
        (used * last.shared_bytes_per_s, idle_ns * (1.0 + QUEUE.1 * used / (1.0 - used)))
    }

    /// How many times longer lines of so many streams take because they go to the same targets: those of one step, which are
    /// asked for at once, wait for the target that has most of them.
    pub fn congestion(&self, streams: Streams, share: Bytes) -> f64 {
        self.meeting(streams.streams, streams.pitch(share))
    }

    /// The same of a kernel's arrays in one block.
    fn block_congestion(&self, case: &Case, block: &Common) -> f64 {
        let streams = block.variant.row().map_or(1, |kernel| kernel.formula().streams.len() as u32);
        let array = case.share().0 / u64::from(streams);
        self.meeting(streams, block.pitch(Bytes(array)))
    }

    fn meeting(&self, streams: u32, pitch: u64) -> f64 {
        let Some(target) = self.target else { return 1.0 };
        let mut lines = HashMap::new();
        for stream in 0..u64::from(streams) {
            *lines.entry(target(stream * pitch)).or_insert(0) += 1;
        }
        let most = lines.values().copied().max().unwrap_or(1);
        f64::from(most) / f64::from(streams.div_ceil(CONTROLLERS))
    }

    /// The true time of a hand-over, in nanoseconds.
    pub fn handover_ns(from: u32, to: u32) -> f64 {
        HANDOVER_NS * f64::from(u32::BITS - (from ^ to).leading_zeros())
    }

    fn chase(&mut self, case: &Case, chase: Chase, quota: &Quota<'_>) -> Outcome {
        let footprint = chase.places(case.working_set) as u64 * LINE.min(chase.stride_bytes.into());
        let threads = case.threads();
        let accesses = Chase::LINKS * u64::from(chase.chains) * threads as u64;
        // Lines that all threads ask for at once come no faster than memory has them.
        let asked = threads as f64 * f64::from(chase.chains) * LINE as f64;
        let shared_ns = asked / self.levels[self.levels.len() - 1].shared_bytes_per_s * 1e9;
        let alone_ns = self.latency_ns(footprint, chase.chains);
        let ns = if threads > 1 { alone_ns.max(shared_ns) } else { alone_ns };
        let volume = Volume { units: accesses, unit: Unit::Access, loaded: 8 * accesses, ..Volume::default() };
        let mut outcome = self.measured(case, volume, ns * Chase::LINKS as f64, quota);
        if let (Outcome::Measured(measured), true) = (&mut outcome, threads > 1) {
            measured.samples.thread_ticks = vec![measured.samples.ticks.clone(); threads];
        }
        outcome
    }

    fn beside(&mut self, case: &Case, load: Load, quota: &Quota<'_>) -> Outcome {
        let others = case.cpus.len().saturating_sub(1);
        if load != Load::Alone && others == 0 {
            return needs_two_cores();
        }
        let (rate, ns) = self.loaded(load, others);
        let [loaded, stored] = if let Load::Mixed { mix, .. } = load { Mix::bytes(mix) } else { [0, 0] };
        let volume = Volume { unit: Unit::Line, loaded, stored, ..Volume::default() };
        let mut outcome = self.measured(case, volume, ns, quota);
        if let (Outcome::Measured(measured), true) = (&mut outcome, loaded + stored > 0) {
            let moved = |ticks: &u64| (rate * *ticks as f64 / HZ / (loaded + stored) as f64) as u64;
            measured.samples.load_repetitions = measured.samples.ticks.iter().map(moved).collect();
        }
        outcome
    }

    /// Samples of as many repetitions as take 200 us, each of which truly takes so many ticks.
    fn measured(&mut self, case: &Case, volume: Volume, ticks: f64, quota: &Quota<'_>) -> Outcome {
        let is_metered = case.protocol == Protocol::Energy;
        if is_metered && self.power.is_none() {
            return NoVisit::impossible("no meter of energy (simulated)").into();
        }
        let sample_ns = if is_metered { 200e6 } else { 200e3 };
        let repetitions = (sample_ns / ticks).ceil().max(1.0) as u64;
        let mut counter = self.power.filter(|_| is_metered).map(|power| Counter::new(power, self.clock_us));
        let state = if self.random.f64() < self.noise.slow_mode.0 { self.noise.slow_mode.1 } else { 1.0 };
        let visit = state * (normal(&mut self.random) * self.noise.drift).exp();
        let mut samples = Samples::default();
        while samples.ticks.len() < quota.most_samples {
            let mut ticks = ticks * repetitions as f64 * visit * (normal(&mut self.random) * self.noise.sigma).exp();
            if self.random.f64() < self.noise.outliers {
                ticks *= 3.0;
            }
            let ticks = ticks.max(1.0) as u64;
            if let Some(counter) = &mut counter {
                let watts = counter.power.joules_per_byte * (volume.bus() * repetitions) as f64 / (ticks as f64 / HZ);
                counter.sample(watts, ticks, &mut samples);
            }
            if let Some(share) = self.write_allocates {
                let read = volume.loaded as f64 + share * volume.write_allocated as f64;
                let counted = [read as u64 * repetitions, volume.stored * repetitions];
                crate::controllers::push(Some(counted), &mut samples);
            }
            samples.push(Sample { ticks, core_clock_ticks: 1333, ..Sample::default() });
        }
        self.clock_us = counter.map_or(self.clock_us, |counter| counter.clock_us);
        let obtained = Obtained { bytes: case.working_set, ..Obtained::default() };
        Measured { volume, repetitions, core_clock_links: 4000, samples, obtained }.into()
    }
}

/// A simulated counter of energy behind the meters that real ones stand behind.
struct Counter {
    power: FakePower,
    clock_us: f64,
    microjoules: f64,
    shown: Arc<AtomicU64>,
    meters: Meters,
}

#[derive(Debug)]
struct FakeMeter(Arc<AtomicU64>);

impl Meter for FakeMeter {
    fn read(&mut self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed))
    }
}

impl Counter {
    fn new(power: FakePower, clock_us: f64) -> Self {
        let shown = Arc::new(AtomicU64::new(0));
        let scale = Scale::Energy { range: Some(power.range_uj) };
        let dial = Dial { name: "simulated".into(), part: EnergyPart::Package, update_us: power.update_us, scale };
        let meters = Meters::new(vec![(dial, Box::new(FakeMeter(shown.clone())))], Hertz(HZ));
        Counter { power, clock_us, microjoules: power.idle_w * clock_us, shown, meters }
    }

    /// Shows what was used until the last update.
    fn update(&self, watts: f64) {
        let late_us = self.clock_us % self.power.update_us as f64;
        let shown = (self.microjoules - watts * late_us).max(0.0) as u64;
        self.shown.store(shown % self.power.range_uj, Ordering::Relaxed);
    }

    /// A sample that draws so many watts beyond those at rest.
    fn sample(&mut self, watts: f64, ticks: u64, samples: &mut Samples) {
        self.update(self.power.idle_w);
        self.meters.begin(&|| 0);
        let (total, span_us) = (self.power.idle_w + watts, ticks as f64 / HZ * 1e6);
        self.microjoules += total * span_us;
        self.clock_us += span_us;
        self.update(total);
        let told = self.meters.end(&|| ticks);
        self.meters.push(told, samples);
    }
}

fn volume(case: &Case) -> Volume {
    let Some((variant, kernel)) = case.variant().and_then(|v| Some((v, v.row()?))) else { return Volume::default() };
    let streams = kernel.formula().streams.len() as u64;
    volume_of(kernel, variant, (case.working_set.0 / variant.element.bytes() / streams).max(1))
}

impl Executor for Fake {
    fn clock(&self) -> Clock {
        Clock { name: "simulated".into(), hz: Hertz(HZ), overhead_ticks: 20 }
    }

    fn expect(&mut self, _cases: &[Case]) {}

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        if self.crashes.as_deref().is_some_and(|crash| case.to_string().contains(crash)) {
            return NoVisit::Broken("the kernel was stopped by SIGILL (simulated)".into()).into();
        }
        match &case.work {
            Work::Conflict(batch) => self.pairs(case, batch),
            Work::Chase(chase) => self.chase(case, *chase, quota),
            Work::Loaded(work) => self.beside(case, work.load, quota),
            Work::Handover(_) => match case.cpus[..] {
                [from, to] => {
                    let volume = Volume { units: 2, unit: Unit::HandOver, ..Volume::default() };
                    self.measured(case, volume, 2.0 * Fake::handover_ns(from, to), quota)
                }
                _ => needs_two_cores(),
            },
            // A flop in each tick, lane and thread; two where fused.
            Work::Flops(flops) => {
                let threads = case.threads() as u64;
                let volume = Volume {
                    units: threads,
                    unit: Unit::Trip,
                    flops: threads * flops.per_trip(Flops::CHAINS),
                    ..Volume::default()
                };
                self.measured(case, volume, (Flops::CHAINS * Flops::LINKS) as f64, quota)
            }
            Work::PingPong(_) => NoVisit::impossible("the simulated machine has one process").into(),
            Work::Device(_) | Work::Copies(_) => NoVisit::impossible("the simulated machine has no devices").into(),
            Work::Plain(_) => NoVisit::impossible("the simulated machine has no C library").into(),
            Work::Rounding(_) => NoVisit::impossible("the simulated machine adds up nothing").into(),
            Work::Streams(streams) => {
                let share = case.share();
                let [loaded, stored, write_allocated] = streams.bytes(share).map(|bytes| bytes * case.threads() as u64);
                let volume = Volume { loaded, stored, write_allocated, ..Volume::default() };
                let rate = self.levels[self.levels.len() - 1].shared_bytes_per_s / self.congestion(*streams, share);
                self.measured(case, volume, volume.bus() as f64 / rate * HZ, quota)
            }
            Work::Common(work) => {
                let plain = Case { work: Work::Kernel(work.variant.clone()), ..case.clone() };
                let volume = volume(&plain);
                let ticks = volume.payload() as f64 / self.truth(&plain) * HZ * self.block_congestion(&plain, work);
                self.measured(case, volume, ticks, quota)
            }
            Work::Idle => self.measured(case, Volume::default(), HZ / 1e3, quota),
            Work::Kernel(_) | Work::Page(_) | Work::Scan(_) | Work::PageCache(_) => {
                let volume = volume(case);
                self.measured(case, volume, volume.payload() as f64 / self.truth(case) * HZ, quota)
            }
        }
    }
}

fn needs_two_cores() -> Outcome {
    NoVisit::impossible("it needs two cores (simulated)").into()
}
