//! Visits to rows: all visits to a case become one row, with its figures, flags and level.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quality::{Sampled, Status, rated, summarize};
use super::traffic::is_moved;
use super::{Cost, Level, LevelBest, Quality, Rate};
use crate::kernel::{Element, Kernel, LoadKind, StoreKind, Width};
use crate::machine::Machine;
use crate::memory::{MemoryKind, MemorySpec, Obtained, Policy};
use crate::plan::{Case, Protocol, StreamMemory};
use crate::record::{ControllerSamples, Measured, Measurement, Outcome, Record};
use crate::stats::Modes;
use crate::units::Bytes;

/// A result: one tidy row, as `--format json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// `bandwidth`.
    pub metric: String,
    /// The kernel's name.
    pub kernel: String,
    /// What its streams are arrays of.
    pub element: Element,
    /// Store kind.
    pub store: StoreKind,
    /// Load kind.
    pub load: LoadKind,
    /// Access width; `width_bits` in words.
    pub width: Width,
    /// Bits of one access; those of an element where scalar.
    pub width_bits: u32,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// Streams with a memory kind of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamMemory>,
    /// The nodes asked for; absent: those of the threads that touch pages first.
    #[serde(default, skip_serializing_if = "Policy::is_first_touch")]
    pub policy: Policy,
    /// NUMA node of the pages: asked for, else the one node they were found on; absent where mixed or unknown.
    pub node: Option<u32>,
    /// Number of threads.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// Bytes touched by one repetition.
    pub working_set_bytes: Bytes,
    /// Bytes that every stream starts beyond its aligned place.
    pub misaligned_bytes: u32,
    /// How samples were taken.
    pub protocol: Protocol,
    /// The level that the working set lies in, by the measured curve: `L1`, `L2`, `L3`, `memory`, or absent where it
    /// lies between two.
    pub level: Option<String>,
    /// `B/s`.
    pub unit: String,
    /// STREAM's convention: what the program reads and writes. Absent where nothing was measured.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Payload and write-allocate.
    #[serde(rename = "bus_Bps")]
    pub bus_bps: Option<Rate>,
    /// What the memory controllers counted while samples ran, whoever caused it; absent where nothing was counted.
    #[serde(rename = "controllers_Bps", skip_serializing_if = "Option::is_none")]
    pub controllers_bps: Option<ControllerRates>,
    /// N bytes copied / t, for copies.
    #[serde(rename = "copied_Bps", skip_serializing_if = "Option::is_none")]
    pub copied_bps: Option<Rate>,
    /// What first use cost beside the pass itself, where fresh memory was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_use: Option<FirstUse>,
    /// Payload bytes in a core clock cycle, by thread: median of the samples, each by the clock right after it.
    pub bytes_per_cycle: Option<f64>,
    /// Its 95 % interval: where the clock wanders, what is left without that.
    pub bytes_per_cycle_ci95: Option<[f64; 2]>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
    /// Floating-point operations a second: median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_s: Option<f64>,
    /// Slowest against fastest thread: median of max/min - 1.
    pub imbalance: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// The two groups that the samples fall into (payload B/s), if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
    /// Payload B/s of each sample, in order of time. Not part of the JSON row.
    #[serde(skip)]
    pub sample_bps: Vec<f64>,
}

rated!(Row, |row| format!("{} {} {}", row.kernel, row.width, row.store));

impl Row {
    /// The memory asked for.
    pub fn asked(&self) -> MemorySpec {
        MemorySpec { kind: self.memory, policy: self.policy }
    }
}

/// Bytes a second that memory controllers moved: medians of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllerRates {
    /// Read from memory.
    pub read: f64,
    /// Written to memory.
    pub written: f64,
}

/// What comes with the first pass over fresh memory: medians of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FirstUse {
    /// Seconds from asking for the memory to the end of the first pass.
    pub total_s: Cost,
    /// Seconds of that which mapping took.
    pub map_s: f64,
    /// Page faults during the pass, over all threads.
    pub faults: f64,
}

/// A row and the samples behind it, round by round.
pub(super) struct Result {
    pub case: Case,
    pub row: Row,
    /// Payload B/s of each sample of each visit.
    pub batches: Vec<Vec<f64>>,
    /// Seconds of each repetition's samples, in order of time.
    pub seconds: Vec<f64>,
}

impl Result {
    /// The batches as the statistics want them.
    pub fn batches(&self) -> Vec<&[f64]> {
        self.batches.iter().map(Vec::as_slice).collect()
    }

    /// Median with its interval: (median, low, high).
    pub fn interval(&self) -> Option<[f64; 3]> {
        self.row.payload_bps.map(|rate| [rate.median, rate.ci95[0], rate.ci95[1]])
    }

    /// Whether it stands for its kernel: all streams in one memory of this process, already in use.
    pub fn is_plain(&self) -> bool {
        self.case.streams.is_empty()
            && self.case.protocol != Protocol::FirstUse
            && !self.case.memory.kind.is_memory_type()
    }
}

/// One result a case, ordered as a reader looks for them: kernel, threads, memory, size, then the way of touching it.
pub(super) fn merge(record: &Record) -> Vec<Result> {
    let hz = record.header.clock.hz.0;
    let mut results: Vec<Result> = visits(record).iter().filter_map(|visits| result(visits, hz)).collect();
    mark_impossible(&mut results);
    results.sort_by_cached_key(|result| {
        let (case, row) = (&result.case, &result.row);
        let place = (Kernel::place(&row.kernel), row.kernel.clone(), row.threads, case.memory, case.working_set);
        (place, case.protocol, row.store, row.load, row.element, row.width, case.clone())
    });
    results
}

/// Whether a row's working set lies in memory: by its level; where it has none, by STREAM's rule of four times the caches,
/// which holds where the caches are as claimed.
pub(super) fn is_in_memory(row: &Row, machine: &Machine) -> bool {
    let beyond = || {
        let caches = machine.last_level_bytes(&row.cpus.iter().copied().collect());
        !machine.is_virtual() && caches.is_some_and(|caches| row.working_set_bytes.0 >= 4 * caches.0)
    };
    row.level.as_ref().map_or_else(beyond, |level| level == "memory")
}

/// The visits to each case, in the order in which cases were first visited.
pub(super) fn visits(record: &Record) -> Vec<Vec<&Measurement>> {
    let mut index: HashMap<&Case, usize> = HashMap::new();
    let mut visits: Vec<Vec<&Measurement>> = Vec::new();
    for measurement in &record.measurements {
        let at = *index.entry(&measurement.case).or_insert_with(|| {
            visits.push(Vec::new());
            visits.len() - 1
        });
        visits[at].push(measurement);
    }
    visits
}

/// The visits that came to figures.
pub(super) fn measured<'a>(visits: &[&'a Measurement]) -> Vec<&'a Measured> {
    let measured = |visit: &&'a Measurement| match &visit.outcome {
        Outcome::Measured(measured) => Some(&**measured),
        _ => None,
    };
    visits.iter().filter_map(measured).collect()
}

/// The result of a case that is a kernel over streams. Samples around which meters were read have rows of their own.
fn result(visits: &[&Measurement], hz: f64) -> Option<Result> {
    let case = visits[0].case.clone();
    let variant = case.variant().filter(|_| case.protocol != Protocol::Energy)?;
    let sampled = Sampled::of(visits, hz, |visit| payload_bps(visit, hz));
    let measured = &sampled.measured;
    let seconds = |visit: &&Measured| {
        let of_repetition = |ticks: &u64| *ticks as f64 / hz / visit.repetitions as f64;
        visit.samples.ticks.iter().map(of_repetition).collect::<Vec<_>>()
    };
    let per_cycle = sampled.per_cycle(case.threads(), hz);
    let mut row = Row {
        metric: "bandwidth".into(),
        kernel: variant.kernel.clone(),
        element: variant.element,
        store: variant.store,
        load: variant.load,
        width: variant.width,
        width_bits: variant.width.bits(variant.element),
        memory: case.memory.kind,
        streams: case.streams.clone(),
        policy: case.memory.policy,
        node: sampled.node(&case),
        threads: case.threads(),
        cpus: case.cpus.clone(),
        working_set_bytes: case.working_set,
        misaligned_bytes: case.misaligned_bytes,
        protocol: case.protocol,
        level: None,
        unit: "B/s".into(),
        payload_bps: sampled.rate(),
        bus_bps: sampled.rate_of(|volume| volume.bus()),
        copied_bps: sampled.rate_of(|volume| volume.stored).filter(|_| variant.kernel == "copy"),
        first_use: first_use(&case, measured, hz),
        controllers_bps: controllers(measured, hz),
        bytes_per_cycle: per_cycle.as_ref().map(|summary| summary.median),
        bytes_per_cycle_ci95: per_cycle.map(|summary| summary.ci95),
        core_clock_hz: sampled.core_clock(hz),
        flops_per_s: sampled.rate_of(|volume| volume.flops).map(|rate| rate.median).filter(|flops| *flops > 0.0),
        imbalance: imbalance(measured),
        modes: sampled.summary.as_ref().and_then(|summary| summary.modes),
        obtained: sampled.obtained(),
        sample_bps: sampled.batches.concat(),
        quality: sampled.quality,
    };
    row.quality.flag([("controllers-disagree", controllers_disagree(&row))]);
    Some(Result { row, seconds: sampled.measured.iter().flat_map(seconds).collect(), batches: sampled.batches, case })
}

/// Payload bytes a second, sample by sample.
pub(super) fn payload_bps(visit: &Measured, hz: f64) -> Vec<f64> {
    let bytes = visit.volume.payload() as f64 * visit.repetitions as f64;
    visit.samples.ticks.iter().map(|ticks| bytes / (*ticks as f64 / hz)).collect()
}

/// Seconds from asking for memory to the end of the first pass.
pub(super) fn first_use_s(visit: &Measured, hz: f64) -> Vec<f64> {
    let setup = visit.samples.setup_ticks.iter().copied().chain(std::iter::repeat(0));
    let pass = visit.samples.ticks.iter().map(|ticks| *ticks as f64 / visit.repetitions as f64);
    pass.zip(setup).map(|(pass, setup)| (pass + setup as f64) / hz).collect()
}

/// Totals, and what of them is mapping and faults.
fn first_use(case: &Case, measured: &[&Measured], hz: f64) -> Option<FirstUse> {
    let totals: Vec<Vec<f64>> = measured.iter().map(|visit| first_use_s(visit, hz)).collect();
    let total = summarize(&totals).filter(|_| case.protocol == Protocol::FirstUse)?;
    let samples = || measured.iter().map(|visit| &visit.samples);
    Some(FirstUse {
        total_s: Cost::from(&total),
        map_s: median(samples().flat_map(|s| &s.setup_ticks).map(|ticks| *ticks as f64 / hz)).unwrap_or(0.0),
        faults: median(samples().flat_map(|s| &s.faults).map(|faults| f64::from(*faults)))?,
    })
}

/// Core clock in hertz: the median of all readings.
pub(super) fn core_clock(measured: &[&Measured], hz: f64) -> Option<f64> {
    median(measured.iter().flat_map(|visit| {
        visit
            .samples
            .core_clock_ticks
            .iter()
            .filter(|t| **t > 0)
            .map(|t| visit.core_clock_links as f64 / *t as f64 * hz)
    }))
}

/// What the memory controllers counted, over the time of each sample.
fn controllers(measured: &[&Measured], hz: f64) -> Option<ControllerRates> {
    let rates = |column: fn(&ControllerSamples) -> &Vec<Option<u64>>| {
        median(measured.iter().flat_map(|visit| {
            let counted = visit.samples.controllers.iter().flat_map(column);
            counted.zip(&visit.samples.ticks).filter_map(|(bytes, ticks)| Some((*bytes)? as f64 / *ticks as f64 * hz))
        }))
    };
    Some(ControllerRates { read: rates(|c| &c.read_bytes)?, written: rates(|c| &c.written_bytes)? })
}

/// Whether the controllers moved neither what the loop must move nor what it moves if its stores allocate.
fn controllers_disagree(row: &Row) -> bool {
    let rate = |rate: Option<Rate>| rate.map_or(0.0, |rate| rate.median);
    row.controllers_bps.is_some_and(|moved| {
        let moved = moved.read + moved.written;
        ![rate(row.payload_bps), rate(row.bus_bps)].into_iter().any(|counted| is_moved(moved, counted))
    })
}

/// Slowest against fastest thread.
pub(super) fn imbalance(measured: &[&Measured]) -> Option<f64> {
    median(measured.iter().flat_map(|visit| {
        let pairs = visit.samples.ticks.iter().zip(&visit.samples.fastest_thread_ticks);
        pairs.filter(|(_, fastest)| **fastest > 0).map(|(all, fastest)| *all as f64 / *fastest as f64 - 1.0)
    }))
}

pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The fast tenth of speeds against their median.
pub(super) fn fast_tenth(speeds: &[f64]) -> Option<f64> {
    let mut all = speeds.to_vec();
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all.get(((all.len().saturating_sub(1)) as f64 * share).round() as usize).copied();
    Some(at(0.9)? / at(0.5)?)
}

/// A cached working set can't be slower than the same loop in memory by its own nature: figures that say so are wrong.
fn mark_impossible(results: &mut [Result]) {
    /// Faster than this against the cache is impossible; less can be noise.
    const MARGIN: f64 = 1.25;
    let speed = |result: &Result| result.row.payload_bps.map(|rate| rate.ci95);
    let mut verdicts = Vec::new();
    for (i, large) in results.iter().enumerate() {
        if !large.row.store.write_allocates() || large.case.protocol == Protocol::FirstUse {
            continue;
        }
        let same = |small: &&Result| {
            small.case.work == large.case.work
                && small.case.memory == large.case.memory
                && small.case.streams == large.case.streams
                && small.case.cpus == large.case.cpus
                && small.case.protocol == large.case.protocol
                && small.case.working_set.0 >= 16 << 10
                && small.case.working_set.0 * 64 <= large.case.working_set.0
        };
        let Some(large_rate) = speed(large) else { continue };
        let caches: Vec<[f64; 2]> = results.iter().filter(same).filter_map(speed).collect();
        if !caches.is_empty() && caches.iter().all(|cache| large_rate[0] > cache[1] * MARGIN) {
            verdicts.push(i);
        }
    }
    for i in verdicts {
        let reason = "faster than the same loop in a working set 64 times smaller";
        results[i].row.quality.refuse(Status::Invalid, reason);
    }
}

/// Adds to each level the fastest variant of every kernel and thread count.
pub(super) fn best_of_levels(mut levels: Vec<Level>, results: &[Result]) -> Vec<Level> {
    for level in &mut levels {
        let mut best: Vec<LevelBest> = Vec::new();
        for (index, result) in results.iter().enumerate() {
            let row = &result.row;
            let Some(rate) = row.payload_bps.filter(|_| row.quality.is_measured()) else { continue };
            if row.level.as_deref() != Some(&level.name) || !result.is_plain() {
                continue;
            }
            match best.iter_mut().find(|b| b.kernel == row.kernel && b.threads == row.threads) {
                None => best.push(LevelBest { kernel: row.kernel.clone(), threads: row.threads, row: index }),
                Some(b) if results[b.row].row.payload_bps.is_some_and(|other| other.median < rate.median) => {
                    b.row = index
                }
                Some(_) => {}
            }
        }
        best.sort_by_key(|b| (Kernel::place(&b.kernel), b.threads));
        level.best = best;
    }
    levels
}
