//! Store kinds against each other: where one overtakes another as working sets grow.

use schemars::JsonSchema;
use serde::Serialize;

use super::rows::Result;
use crate::kernel::{Element, Kernel, StoreKind, Width};
use crate::stats;
use crate::units::{Bytes, significant};

/// Where one store kind overtakes another as working sets grow.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Crossover {
    /// The kernel.
    pub kernel: String,
    /// Threads.
    pub threads: usize,
    /// The store kind that wins beyond.
    pub store: StoreKind,
    /// The width compared.
    pub width: Width,
    /// Working set of equal speed, with its 95 % interval; absent where there is none in the range measured.
    pub at: Option<[f64; 3]>,
    /// In words: `regular is faster everywhere`, `beyond 24 MiB`, ...
    pub says: String,
    /// Speed against regular stores at the largest working set: median ratio with interval.
    pub gain: Option<[f64; 3]>,
    /// The gain that the write-allocate's arithmetic allows: 2, 3/2, 4/3, 5/4.
    pub bound: f64,
}

/// Sizes that a comparison over working sets needs.
const LEAST_SIZES: usize = 6;

/// For each kernel and thread count: where each other store kind overtakes regular stores.
pub(super) fn crossovers(results: &[Result]) -> Vec<Crossover> {
    let mut found = Vec::new();
    for (kernel, threads) in groups(results) {
        for curve in curves(results, &kernel, threads) {
            let Some(regular) = regular_curve(results, &kernel, threads, curve[0]) else { continue };
            let pairs = pairs(&curve, &regular);
            if pairs.len() >= LEAST_SIZES {
                found.push(crossover(&kernel, threads, &pairs));
            }
        }
    }
    found.sort_by_key(|c| (Kernel::place(&c.kernel), c.threads, c.store, c.width));
    found
}

pub(super) fn groups(results: &[Result]) -> Vec<(String, usize)> {
    let mut groups = Vec::new();
    for result in results {
        let group = (result.row.kernel.clone(), result.row.threads);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

pub(super) fn usable(result: &Result) -> bool {
    result.row.quality.is_measured()
        && result.row.payload_bps.is_some()
        && result.case.protocol == crate::plan::Protocol::Steady
        && result.is_plain()
}

/// The curves of a kernel with other than regular stores, each over rising working sets.
fn curves<'a>(results: &'a [Result], kernel: &str, threads: usize) -> Vec<Vec<&'a Result>> {
    let mut curves: Vec<Vec<&Result>> = Vec::new();
    for result in results.iter().filter(|r| usable(r) && r.row.kernel == kernel && r.row.threads == threads) {
        if result.row.store == StoreKind::Regular {
            continue;
        }
        let alike = |curve: &&mut Vec<&Result>| {
            curve[0].case.variant() == result.case.variant()
                && curve[0].case.memory == result.case.memory
                && curve[0].case.misaligned_bytes == result.case.misaligned_bytes
        };
        match curves.iter_mut().find(alike) {
            Some(curve) => curve.push(result),
            None => curves.push(vec![result]),
        }
    }
    for curve in &mut curves {
        curve.sort_by_key(|r| r.case.working_set);
    }
    curves
}

/// Regular stores to hold a curve against: of the same width, or (masked and rep stores have none) of the widest.
fn regular_curve<'a>(results: &'a [Result], kernel: &str, threads: usize, other: &Result) -> Option<Vec<&'a Result>> {
    let candidates: Vec<&Result> = results
        .iter()
        .filter(|r| usable(r) && r.row.kernel == kernel && r.row.threads == threads)
        .filter(|r| r.row.store == StoreKind::Regular && r.case.memory == other.case.memory)
        .filter(|r| r.row.element == other.row.element)
        .collect();
    let of_width = |width| candidates.iter().copied().filter(|r| r.row.width == width).collect::<Vec<_>>();
    let same = of_width(other.row.width);
    if other.row.store == StoreKind::Nt && !same.is_empty() {
        return Some(same);
    }
    let most = candidates.iter().map(|r| r.row.width).max_by_key(|&w| (of_width(w).len(), w))?;
    Some(of_width(most))
}

fn pairs<'a>(curve: &[&'a Result], regular: &[&'a Result]) -> Vec<(&'a Result, &'a Result)> {
    let at = |size: Bytes| regular.iter().copied().find(|r| r.case.working_set == size);
    curve.iter().filter_map(|&other| Some((other, at(other.case.working_set)?))).collect()
}

fn crossover(kernel: &str, threads: usize, pairs: &[(&Result, &Result)]) -> Crossover {
    let sizes: Vec<f64> = pairs.iter().map(|(other, _)| other.case.working_set.0 as f64).collect();
    let values = |pick: fn(&(&Result, &Result)) -> Option<[f64; 3]>| pairs.iter().filter_map(pick).collect::<Vec<_>>();
    let (others, regulars) = (values(|p| p.0.interval()), values(|p| p.1.interval()));
    let at = stats::crossing(&sizes, &others, &regulars);
    let (other, regular) = pairs[pairs.len() - 1];
    let (store, width) = (other.row.store, other.row.width);
    let wins_first = others[0][0] > regulars[0][0];
    let wins_last = others[others.len() - 1][0] > regulars[regulars.len() - 1][0];
    let says = match at {
        Some([at, ..]) => format!("{store} overtakes regular at {}", Bytes(at as u64)),
        None if wins_first && wins_last => format!("{store} is faster at every size measured"),
        None => format!("regular is faster at every size up to {}", other.case.working_set),
    };
    let gain = Some(stats::ratio(&other.batches(), &regular.batches()));
    Crossover { kernel: kernel.into(), threads, store, width, at, says, gain, bound: bound(kernel) }
}

/// How much faster than regular stores others may be by the traffic alone: all of them can do without the
/// write-allocate, `rep` at the processor's discretion.
pub(super) fn bound(kernel: &str) -> f64 {
    let Some(row) = Kernel::named(kernel) else { return 1.0 };
    // The same for all elements.
    let bus = |store| row.traffic(store, Element::Double).bus() as f64;
    bus(StoreKind::Regular) / bus(StoreKind::Nt)
}

/// `1.42 [1.38, 1.45]`
pub(super) fn ratio_text(ratio: [f64; 3]) -> String {
    let [value, low, high] = ratio.map(significant);
    format!("{value} x [{low}, {high}]")
}
