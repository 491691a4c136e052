//! Visits to rows: all visits to a case become one row, with its figures, flags and level.

use std::collections::HashMap;

use super::traffic::is_moved;
use super::{ControllerRates, Cost, FirstUse, Level, LevelBest, Rate, Row};
use crate::kernel::{Kernel, Variant};
use crate::machine::Machine;
use crate::memory::{MemoryKind, Obtained};
use crate::plan::{Case, PageWork, Protocol, Work};
use crate::record::{ControllerSamples, Measured, Measurement, Outcome, Record, Volume};
use crate::stats::{self, Summary};
use crate::units::Bytes;

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

/// What came of a case: the word, and the reason where it was not measured. A fault in any visit makes the case faulty:
/// its other figures come from the same code.
pub(super) fn outcome(visits: &[&Measurement]) -> (String, Option<String>) {
    let is_measured = visits.iter().any(|visit| matches!(visit.outcome, Outcome::Measured(_)));
    let mut found = ("measured", None);
    for visit in visits {
        found = match &visit.outcome {
            Outcome::Measured(_) => continue,
            Outcome::Unavailable { .. } if is_measured => continue,
            Outcome::Unavailable { reason } => ("unavailable", Some(reason)),
            Outcome::Crashed { reason } => ("crashed", Some(reason)),
            Outcome::Invalid { reason } => ("invalid", Some(reason)),
        };
    }
    (found.0.into(), found.1.cloned())
}

/// The result of a case that is a kernel over streams. Samples around which meters were read have rows of their own.
fn result(visits: &[&Measurement], hz: f64) -> Option<Result> {
    let case = visits[0].case.clone();
    let measured = measured(visits);
    let (mut batches, mut seconds, mut totals) = (Vec::new(), Vec::new(), Vec::new());
    for visit in &measured {
        let times = visit.samples.ticks.iter().map(|ticks| *ticks as f64 / hz / visit.repetitions as f64);
        batches.push(times.clone().map(|time| visit.volume.payload() as f64 / time).collect::<Vec<_>>());
        if case.protocol == Protocol::FirstUse {
            let setup = visit.samples.setup_ticks.iter().map(|ticks| *ticks as f64 / hz).chain(std::iter::repeat(0.0));
            totals.push(times.clone().zip(setup).map(|(pass, setup)| pass + setup).collect::<Vec<_>>());
        }
        seconds.extend(times);
    }
    let variant = case.variant().filter(|_| case.protocol != Protocol::Energy)?;
    let mut row = bare_row(&case, variant);
    let views: Vec<&[f64]> = batches.iter().map(Vec::as_slice).collect();
    if let Some(summary) = stats::summarize(&views) {
        fill(&mut row, &case, &measured, &summary, hz);
        row.sample_bps = batches.concat();
        row.flags = flags(&case, &measured, &batches, &summary, hz);
        row.flags.extend(controllers_disagree(&row).then(|| "controllers-disagree".to_string()));
        row.first_use = first_use(&measured, &totals, hz);
    }
    (row.outcome, row.reason) = outcome(visits);
    Some(Result { case, row, batches, seconds })
}

fn bare_row(case: &Case, variant: &Variant) -> Row {
    Row {
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
        node: case.memory.node(),
        threads: case.threads(),
        cpus: case.cpus.clone(),
        working_set_bytes: case.working_set,
        misaligned_bytes: case.misaligned_bytes,
        protocol: case.protocol,
        level: None,
        unit: "B/s".into(),
        payload_bps: None,
        bus_bps: None,
        copied_bps: None,
        first_use: None,
        controllers_bps: None,
        bytes_per_cycle: None,
        bytes_per_cycle_ci95: None,
        core_clock_hz: None,
        flops_per_s: None,
        samples: 0,
        rounds: 0,
        imbalance: None,
        outcome: "measured".into(),
        reason: None,
        flags: Vec::new(),
        modes: None,
        obtained: None,
        sample_bps: Vec::new(),
    }
}

fn fill(row: &mut Row, case: &Case, measured: &[&Measured], summary: &Summary, hz: f64) {
    let Some(last) = measured.last() else { return };
    let volume = last.volume;
    let rate = Rate { best: summary.greatest, median: summary.median, ci95: summary.ci95 };
    let scaled = |by: f64| Rate { best: rate.best * by, median: rate.median * by, ci95: rate.ci95.map(|end| end * by) };
    let payload = volume.payload().max(1) as f64;
    row.payload_bps = Some(rate);
    row.bus_bps = Some(scaled(volume.bus() as f64 / payload));
    row.controllers_bps = controllers(measured, hz);
    row.copied_bps = (row.kernel == "copy").then(|| scaled(volume.stored as f64 / payload));
    row.flops_per_s = (volume.flops > 0).then(|| rate.median * volume.flops as f64 / payload);
    row.core_clock_hz = core_clock(measured, hz);
    let per_cycle = per_cycle(measured, case.threads(), |volume| volume.payload());
    row.bytes_per_cycle = per_cycle.as_ref().map(|summary| summary.median);
    row.bytes_per_cycle_ci95 = per_cycle.map(|summary| summary.ci95);
    row.samples = summary.samples;
    row.rounds = measured.len();
    row.modes = summary.modes;
    row.imbalance = imbalance(measured);
    row.obtained = Some(last.obtained.clone());
    // Where the pages all lie on one node, that is the node, asked for or not.
    if let (None, [only]) = (row.node, &last.obtained.pages_on_node[..]) {
        row.node = Some(only.node);
    }
}

/// Totals, and what of them is mapping and faults.
fn first_use(measured: &[&Measured], totals: &[Vec<f64>], hz: f64) -> Option<FirstUse> {
    let batches: Vec<&[f64]> = totals.iter().map(Vec::as_slice).collect();
    let total = stats::summarize(&batches)?;
    let samples = || measured.iter().map(|visit| &visit.samples);
    Some(FirstUse {
        total_s: Cost { best: total.least, median: total.median, ci95: total.ci95 },
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

/// How much of something a thread does in a cycle of its core. Each sample counts by the clock that was read right after it:
/// with wide arithmetic the clock changes from one millisecond to the next.
pub(super) fn per_cycle(measured: &[&Measured], threads: usize, what: impl Fn(&Volume) -> u64) -> Option<Summary> {
    let of_visit = |visit: &&Measured| -> Vec<f64> {
        let done = what(&visit.volume) as f64 * visit.repetitions as f64 / threads as f64;
        let samples = visit.samples.ticks.iter().zip(&visit.samples.core_clock_ticks);
        let cycles = samples.filter(|(_, chain)| **chain > 0).map(|(ticks, chain)| *ticks as f64 / *chain as f64);
        cycles.map(|chains| done / (chains * visit.core_clock_links as f64)).filter(|done| done.is_finite()).collect()
    };
    let batches: Vec<Vec<f64>> = measured.iter().map(of_visit).collect();
    let views: Vec<&[f64]> = batches.iter().map(Vec::as_slice).filter(|batch| !batch.is_empty()).collect();
    stats::summarize(&views)
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

fn imbalance(measured: &[&Measured]) -> Option<f64> {
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

/// Thresholds of the flags: shares of samples, or relative differences.
mod threshold {
    /// Fewer samples than this carry little.
    pub const FEW_SAMPLES: usize = 9;
    /// Half the interval against the median.
    pub const WIDE_INTERVAL: f64 = 0.05;
    /// Outliers, steal, switches and faults are named when this share of samples has them.
    pub const DISTURBED: f64 = 0.1;
    /// Slowest against fastest round's median.
    pub const DRIFT: f64 = 0.1;
    /// Time of all threads against that of the fastest: beyond this one thread does not do what the others do.
    pub const IMBALANCE: f64 = 0.25;
    /// Slowest against fastest round's core clock.
    pub const CLOCK: f64 = 0.03;
    /// Share of huge pages below which `thp` was not obtained.
    pub const HUGE_SHARE: f64 = 0.9;
}

/// What to know about figures. `batches` are the values that `summary` sums up, visit by visit.
pub(super) fn flags(
    case: &Case,
    measured: &[&Measured],
    batches: &[Vec<f64>],
    summary: &Summary,
    hz: f64,
) -> Vec<String> {
    let n = summary.samples;
    let share = |column: fn(&Measured) -> &Vec<u32>| {
        let hit: usize = measured.iter().map(|visit| column(visit).iter().filter(|x| **x > 0).count()).sum();
        hit as f64 / n.max(1) as f64
    };
    let spread = |values: Vec<f64>| {
        let (low, high) = values.iter().fold((f64::INFINITY, 0f64), |(low, high), &v| (low.min(v), high.max(v)));
        if values.len() < 2 || low <= 0.0 { 0.0 } else { high / low - 1.0 }
    };
    let round_medians = batches.iter().filter_map(|batch| median(batch.iter().copied())).collect();
    let clocks = measured.iter().filter_map(|visit| core_clock(&[visit], hz)).collect();
    let half_width = (summary.ci95[1] - summary.ci95[0]) / 2.0 / summary.median;
    let tests = [
        ("few-samples", n < threshold::FEW_SAMPLES),
        ("wide-interval", half_width > threshold::WIDE_INTERVAL),
        ("bimodal", summary.modes.is_some()),
        ("outliers", summary.outliers as f64 > threshold::DISTURBED * n as f64),
        ("drift", spread(round_medians) > threshold::DRIFT),
        ("steal", share(|m| &m.samples.steal_jiffies) > threshold::DISTURBED),
        ("switches", share(|m| &m.samples.switches) > threshold::DISTURBED),
        // First use and works on pages are made of faults.
        ("faults", case.protocol != Protocol::FirstUse && share(|m| &m.samples.faults) > threshold::DISTURBED),
        ("imbalanced", case.threads() > 1 && imbalance(measured).is_some_and(|more| more > threshold::IMBALANCE)),
        ("migrated", share(|m| &m.samples.migrations) > 0.0),
        ("clock-changed", spread(clocks) > threshold::CLOCK),
        ("pages-differ", measured.iter().any(|visit| pages_differ(case, visit))),
    ];
    tests.iter().filter(|(_, holds)| *holds).map(|(name, _)| (*name).into()).collect()
}

/// Whether memory is made of huge pages, as far as smaps tells.
pub(super) fn is_huge(obtained: &Obtained) -> Option<bool> {
    Some(huge_share(obtained)? >= threshold::HUGE_SHARE)
}

fn huge_share(obtained: &Obtained) -> Option<f64> {
    obtained.huge_bytes.map(|huge| huge.0 as f64 / obtained.bytes.0.max(1) as f64)
}

fn pages_differ(case: &Case, visit: &Measured) -> bool {
    let obtained = &visit.obtained;
    let wrong_size = match case.memory.kind {
        // What smaps sees is not what these two works are about; `pages.rs` judges them.
        _ if matches!(case.work, Work::Page(PageWork::Read | PageWork::Collapse)) => false,
        MemoryKind::Base => huge_share(obtained).is_some_and(|share| share > 0.0),
        // A region below a huge page has none.
        MemoryKind::Thp | MemoryKind::Huge2M | MemoryKind::Huge1G => {
            obtained.bytes >= Bytes::mib(2) && is_huge(obtained) == Some(false)
        }
        _ => false,
    };
    let is_elsewhere = |node| obtained.pages_on_node.iter().any(|found| found.node != node);
    let wrong_node = case.streams.is_empty() && case.memory.node().is_some_and(is_elsewhere);
    wrong_size || wrong_node || obtained.proofs.iter().any(|proof| !proof.holds)
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
        results[i].row.outcome = "invalid".into();
        results[i].row.reason = Some("faster than the same loop in a working set 64 times smaller".into());
    }
}

/// Adds to each level the fastest variant of every kernel and thread count.
pub(super) fn best_of_levels(mut levels: Vec<Level>, results: &[Result]) -> Vec<Level> {
    for level in &mut levels {
        let mut best: Vec<LevelBest> = Vec::new();
        for (index, result) in results.iter().enumerate() {
            let row = &result.row;
            let Some(rate) = row.payload_bps.filter(|_| row.outcome == "measured") else { continue };
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
