//! Levels of the memory system in kernels over streams: the curves that show them, and each level's figures.

use membound_core::in_order::InOrder;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::experiments::bandwidth::rows::{BandwidthRow, main_width};
use crate::hierarchy::names::{Level, LevelBest, SIZES_FOR_LEVELS, level_of};
use membound_core::case::{Protocol, USUAL_MEMORY};
use membound_core::curves::hierarchy::model::{Curve, Touch};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{LoadKind, StoreKind};
use membound_core::machine::Machine;
use membound_core::units::Bytes;

/// Writes each row's level.
pub(crate) fn name_levels(rows: &mut [BandwidthRow], levels: &[Level], machine: &Machine) {
    for row in rows.iter_mut() {
        row.level = level_of(&row.case, levels, machine);
    }
}

/// Kernels whose curves show levels.
const KERNELS: [&str; 3] = ["load", "store", "copy"];

/// One thread's loads, stores and copies over working sets, each at the width that was measured at most sizes.
pub(crate) fn curves(rows: &[BandwidthRow]) -> Vec<Curve> {
    KERNELS.iter().filter_map(|kernel| curve(rows, kernel)).collect()
}

/// One thread's loads over working sets: bytes a second. Empty where there are too few sizes.
pub(crate) fn load_curve(rows: &[BandwidthRow]) -> Vec<(Bytes, f64)> {
    let points = curve(rows, "load").map_or(Vec::new(), |curve| curve.points);
    points.into_iter().map(|(size, ns)| (size, 1e9 / ns)).collect()
}

/// Of one of these kernels; absent where there are too few sizes.
fn curve(rows: &[BandwidthRow], kernel: &str) -> Option<Curve> {
    let candidates: Vec<&BandwidthRow> = rows
        .iter()
        .filter(|r| r.kernel() == kernel && r.threads() == 1 && r.quality.is_measured())
        .filter(|r| r.store() == StoreKind::Regular && r.case.protocol == Protocol::Steady && r.is_plain())
        .collect();
    let is_alike = |a: &BandwidthRow, b: &BandwidthRow| a.case.work == b.case.work && a.case.memory == b.case.memory;
    let most = candidates.iter().max_by_key(|r| candidates.iter().filter(|c| is_alike(c, r)).count())?;
    let time = |row: &&BandwidthRow| Some((row.case.working_set, 1e9 / row.payload_bps?.value()));
    let mut points: Vec<_> = candidates.iter().filter(|r| is_alike(r, most)).filter_map(time).collect();
    points.order_by_key(|point| point.0);
    points.dedup_by_key(|point| point.0);
    (points.len() >= SIZES_FOR_LEVELS).then_some(Curve { touch: Touch::Stream, points })
}

/// The row that stands for a kernel at a level: at the main width, visited often enough for an interval, as the headline is
/// and a curve is not, and at least once undisturbed; in memory the largest working set, in a cache the one nearest to the level's
/// middle. What is fastest would be so by chance, too, and every table would have another figure.
pub(crate) fn standing(
    rows: &[BandwidthRow],
    level: &Level,
    (kernel, threads, store): (&str, usize, StoreKind),
) -> Option<usize> {
    let main = main_width(rows);
    let middle = (level.from.0.max(1) as f64 * level.to.0.max(1) as f64).sqrt();
    let rank = |row: &BandwidthRow| {
        let size = row.case.working_set.0 as f64 / row.threads() as f64;
        let place = if level.name == "memory" { -size } else { (size / middle).ln().abs() };
        let is_usual = row.case.memory.kind == USUAL_MEMORY.kind && row.case.misaligned_bytes == 0;
        let is_usual = (row.case.protocol == Protocol::Steady, row.load() == LoadKind::Regular, is_usual);
        let trust = (row.quality.is_of_headline(), row.payload_bps.is_some_and(|rate| rate.undisturbed_share > 0.0));
        (is_usual, Some(row.width()) == main, row.width(), trust, Reverse((place * 1e6) as i64))
    };
    let is_ours = |row: &BandwidthRow| {
        (row.kernel(), row.threads(), row.store()) == (kernel, threads, store)
            && row.level.as_deref() == Some(&level.name)
            && row.is_plain()
            && row.quality.is_measured()
            && row.payload_bps.is_some()
    };
    (0..rows.len()).filter(|&at| is_ours(&rows[at])).max_by_key(|&at| rank(&rows[at]))
}

/// The way to store that stands for a kernel at all levels: regular stores, where any were measured. Figures of several ways do not
/// belong into one column.
fn usual_store(rows: &[BandwidthRow], kernel: &str) -> Option<StoreKind> {
    let is_there = |store: &&StoreKind| {
        rows.iter().any(|row| (row.kernel(), row.store()) == (kernel, **store) && row.payload_bps.is_some())
    };
    StoreKind::ALL.iter().find(is_there).copied()
}

/// Adds to each level the row that stands for each kernel and thread count.
pub(crate) fn best_of_levels(levels: &mut [Level], rows: &[BandwidthRow]) {
    let groups: BTreeSet<(&str, usize)> = rows.iter().map(|row| (row.kernel(), row.threads())).collect();
    let kernels: BTreeSet<&str> = groups.iter().map(|group| group.0).collect();
    let stores: BTreeMap<&str, StoreKind> =
        kernels.iter().filter_map(|kernel| Some((*kernel, usual_store(rows, kernel)?))).collect();
    for level in levels {
        let best = |&(kernel, threads): &(&str, usize)| {
            let row = standing(rows, level, (kernel, threads, *stores.get(kernel)?))?;
            Some(LevelBest { kernel: kernel.into(), threads, row, share: None })
        };
        let mut best: Vec<LevelBest> = groups.iter().filter_map(best).collect();
        best.order_by_key(|b| (Kernel::place(&b.kernel), b.threads));
        level.best = best;
    }
}
