//! Store kinds against each other: where one overtakes another as working sets grow.

use membound_core::in_order::{InOrder, each_once, grouped};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::wording::{element_note, is_known, ratio, threads};
use membound_core::case::Protocol;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{Element, LoadKind, StoreKind, Width};
use membound_core::memory::MemorySpec;
use membound_core::stats::compare;
use membound_core::units::{Bytes, significant};

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
    /// How both load.
    pub load: LoadKind,
    /// What both compute with.
    pub element: Element,
    /// The memory of both.
    pub memory: MemorySpec,
    /// Working set of equal speed, with its 95 % interval (of a few visits less sure: what their ranges allow for); absent where there
    /// is none in the range measured.
    pub at: Option<[f64; 3]>,
    /// In words: `regular is faster everywhere`, `beyond 24 MiB`, ...
    pub says: String,
    /// Speed against regular stores at the largest working set: median ratio with interval.
    pub gain: Option<[f64; 3]>,
    /// The gain that the write-allocate's arithmetic allows: 2, 3/2, 4/3, 5/4.
    pub bound: f64,
}

/// Sizes that a comparison over working sets needs.
const SIZES_FOR_CROSSOVER: usize = 6;

/// For each kernel and thread count: where each other store kind overtakes regular stores.
pub(crate) fn crossovers(rows: &[BandwidthRow]) -> Vec<Crossover> {
    let mut found = Vec::new();
    for (kernel, threads) in each_once(rows.iter().map(|row| (row.kernel(), row.threads()))) {
        for curve in curves(rows, kernel, threads) {
            let Some(regular) = regular_curve(rows, kernel, threads, curve[0]) else { continue };
            let pairs = pairs(&curve, &regular);
            if pairs.len() >= SIZES_FOR_CROSSOVER {
                found.push(crossover(kernel, threads, &pairs));
            }
        }
    }
    found.order_by_key(|c| (Kernel::place(&c.kernel), c.threads, c.store, c.width));
    found
}

pub(crate) fn usable(row: &BandwidthRow) -> bool {
    row.quality.is_measured() && row.payload_bps.is_some() && row.case.protocol == Protocol::Steady && row.is_plain()
}

/// The curves of a kernel with other than regular stores, each over rising working sets.
fn curves<'a>(rows: &'a [BandwidthRow], kernel: &str, threads: usize) -> Vec<Vec<&'a BandwidthRow>> {
    let ours = rows.iter().filter(|r| usable(r) && r.kernel() == kernel && r.threads() == threads);
    let others = ours.filter(|row| row.store() != StoreKind::Regular);
    let alike = grouped(others, |row| (row.case.variant(), row.case.memory, row.case.misaligned_bytes));
    let rising = |(_, mut curve): (_, Vec<&'a BandwidthRow>)| {
        curve.order_by_key(|r| r.case.working_set);
        curve
    };
    alike.into_iter().map(rising).collect()
}

/// Regular stores to hold a curve against: of the same width, or (masked and rep stores have none) of the widest.
fn regular_curve<'a>(
    rows: &'a [BandwidthRow],
    kernel: &str,
    threads: usize,
    other: &BandwidthRow,
) -> Option<Vec<&'a BandwidthRow>> {
    let candidates: Vec<&BandwidthRow> = rows
        .iter()
        .filter(|r| usable(r) && r.kernel() == kernel && r.threads() == threads)
        .filter(|r| r.store() == StoreKind::Regular && r.case.memory == other.case.memory)
        .filter(|r| r.element() == other.element() && r.load() == other.load())
        .filter(|r| r.case.misaligned_bytes == other.case.misaligned_bytes)
        .collect();
    let of_width = |width| candidates.iter().copied().filter(|r| r.width() == width).collect::<Vec<_>>();
    let same = of_width(other.width());
    if other.store() == StoreKind::Nt && !same.is_empty() {
        return Some(same);
    }
    let most = candidates.iter().map(|r| r.width()).max_by_key(|&w| (of_width(w).len(), w))?;
    Some(of_width(most))
}

fn pairs<'a>(curve: &[&'a BandwidthRow], regular: &[&'a BandwidthRow]) -> Vec<(&'a BandwidthRow, &'a BandwidthRow)> {
    // Of several of a size the first.
    let by_size: HashMap<Bytes, &BandwidthRow> = regular.iter().rev().map(|row| (row.case.working_set, *row)).collect();
    let twin =
        |other: &BandwidthRow| by_size.get(&other.case.working_set).copied().filter(|row| row.place.meets(other.place));
    curve.iter().filter_map(|&other| Some((other, twin(other)?))).collect()
}

fn crossover(kernel: &str, threads: usize, pairs: &[(&BandwidthRow, &BandwidthRow)]) -> Crossover {
    let sizes: Vec<f64> = pairs.iter().map(|(other, _)| other.case.working_set.0 as f64).collect();
    let values = |pick: fn(&(&BandwidthRow, &BandwidthRow)) -> Option<[f64; 3]>| {
        pairs.iter().filter_map(pick).collect::<Vec<_>>()
    };
    let (others, regulars) = (values(|p| p.0.widened()), values(|p| p.1.widened()));
    let at = compare::crossing(&sizes, &others, &regulars);
    let (other, regular) = pairs[pairs.len() - 1];
    let (store, width) = (other.store(), other.width());
    let gain = other.gain_over(regular);
    let says = says(store, at, pairs[0].0.gain_over(pairs[0].1), gain, other.case.working_set);
    let (load, element, memory) = (other.load(), other.element(), other.case.memory);
    Crossover {
        kernel: kernel.into(),
        threads,
        store,
        width,
        load,
        element,
        memory,
        at,
        says,
        gain: Some(gain),
        bound: bound(kernel),
    }
}

/// Which is faster where, by the gains at the smallest and the largest working set: only what the intervals leave no doubt of.
fn says(store: StoreKind, at: Option<[f64; 3]>, first: [f64; 3], last: [f64; 3], largest: Bytes) -> String {
    let wins = |gain: [f64; 3]| is_known(gain) && gain[1] > 1.0;
    match at {
        Some([at, ..]) if wins(last) => format!("{store} stores win above {}", Bytes(at as u64)),
        Some([at, ..]) => format!("{store} stores may win above {}", Bytes(at as u64)),
        None if wins(first) && wins(last) => {
            format!("{store} is faster at the smallest size and the largest, {largest}")
        }
        None if wins(last) => format!("{store} is faster at the largest size, {largest}"),
        None if is_known(last) && last[2] < 1.0 => format!("regular is faster at the largest size, {largest}"),
        None => format!("neither is known to be faster at the largest size, {largest}"),
    }
}

/// How much faster than regular stores others may be by the traffic alone: all of them can do without the
/// write-allocate, `rep` at the processor's discretion.
pub(crate) fn bound(kernel: &str) -> f64 {
    let Some(row) = Kernel::named(kernel) else { return 1.0 };
    // The same for all elements.
    let bus = |store| row.traffic(store, Element::Double).bus() as f64;
    bus(StoreKind::Regular) / bus(StoreKind::Nt)
}

/// The gain that the traffic allows, as the fraction it is.
pub(crate) fn fraction(bound: f64) -> String {
    let fractions = [(2.0, "2"), (1.5, "3/2"), (4.0 / 3.0, "4/3"), (1.25, "5/4"), (1.0, "1")];
    let known = fractions.iter().find(|(value, _)| (value - bound).abs() < 1e-3);
    known.map_or_else(|| significant(bound), |(_, text)| (*text).into())
}

impl Crossover {
    /// All of it in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let Crossover { kernel, store, width, says, .. } = self;
        let mut line = format!("{kernel}, {}, {store} {width}: {says}", threads(self.threads));
        if let Some([_, low, high]) = self.at {
            line += &format!(" [{}, {}]", Bytes(low as u64), Bytes(high as u64));
        }
        let Some(gain) = self.gain else { return line };
        // Where none overtakes the other, that size was just named.
        let place = if self.at.is_none() { "there" } else { "at the largest size" };
        let bound = fraction(self.bound);
        line + &format!("; {} times regular {place} (its bytes alone would make it {bound})", ratio(gain))
    }

    /// Whether that is what one asks of store kinds first.
    fn is_of_nt_copies(&self) -> bool {
        (self.kernel.as_str(), self.store) == ("copy", StoreKind::Nt)
    }
}

/// What stands for all store kinds where copies with non-temporal stores were not compared: that of the most threads with the surest
/// gain.
pub(crate) fn instead(all: &[Crossover]) -> Option<&Crossover> {
    let rank = |c: &&Crossover| (c.gain.is_some_and(is_known), c.kernel == "copy", c.threads);
    all.iter().max_by_key(rank).filter(|_| !all.iter().any(Crossover::is_of_nt_copies))
}

/// The same in words, after what is not known of non-temporal stores that were measured.
pub(crate) fn instead_sentence(rows: &[BandwidthRow], all: &[Crossover]) -> Option<String> {
    let told = instead(all)?;
    let is_nt = rows.iter().any(|row| usable(row) && row.store() == StoreKind::Nt);
    let is_unknown = is_nt && !all.iter().any(|crossover| crossover.store == StoreKind::Nt);
    let nt = if is_unknown {
        "nt stores: too few sizes were also measured with regular stores to say where they win. "
    } else {
        ""
    };
    Some(format!("{nt}{}.", told.sentence()))
}

/// A curve over rising working sets: of one way to store, of one width. It is never empty.
pub(crate) type Curve<'a> = Vec<&'a BandwidthRow>;

/// Rows that differ in how they store and in working set only.
pub(crate) struct StoreGroup<'a> {
    /// At least two, one a store kind (unaligned streams are a kind of their own), at the width with the most working sets
    /// (of those the widest).
    pub curves: Vec<Curve<'a>>,
}

impl StoreGroup<'_> {
    pub fn title(&self) -> String {
        let first = self.curves[0][0];
        let load = if first.load() == LoadKind::Nt { ", nt load" } else { "" };
        let protocol = if first.case.protocol == Protocol::Stream { ", STREAM passes" } else { "" };
        let (element, memory) = (element_note(first.element()), first.case.memory);
        format!("{}, {}, {memory}{load}{protocol}{element}", first.kernel(), threads(self.threads()))
    }

    pub fn threads(&self) -> usize {
        self.curves[0][0].threads()
    }

    /// Its cross-overs.
    pub fn own<'c>(&self, all: &'c [Crossover]) -> impl Iterator<Item = &'c Crossover> + use<'c> {
        let first = self.curves[0][0];
        let (kernel, threads, memory) = (first.kernel().to_string(), self.threads(), first.case.memory);
        let (load, element) = (first.load(), first.element());
        all.iter().filter(move |c| {
            c.kernel == kernel && (c.threads, c.memory, c.load, c.element) == (threads, memory, load, element)
        })
    }
}

/// The groups in which at least two store kinds can be compared, by kernel and thread count.
pub(crate) fn store_groups(rows: &[BandwidthRow]) -> Vec<StoreGroup<'_>> {
    let mut groups: BTreeMap<_, Curve<'_>> = BTreeMap::new();
    for row in rows {
        let place = (Kernel::place(row.kernel()), row.kernel(), row.element());
        let key = (place, row.threads(), row.case.memory, row.load(), row.case.protocol);
        groups.entry(key).or_default().push(row);
    }
    let groups = groups.values().map(|rows| StoreGroup { curves: store_curves(rows) });
    groups.filter(|group| group.curves.len() > 1).collect()
}

fn store_curves<'a>(rows: &[&'a BandwidthRow]) -> Vec<Curve<'a>> {
    let way = |row: &BandwidthRow| (row.store(), row.case.misaligned_bytes);
    let curve = |wanted| {
        let at = |width| rows.iter().copied().filter(move |row| way(row) == wanted && row.width() == width);
        let measured = |width| at(width).filter(|row| row.payload_bps.is_some()).count();
        let width = Width::ALL.iter().copied().max_by_key(|&w| (measured(w), at(w).count(), w))?;
        let mut rows: Curve<'_> = at(width).collect();
        rows.order_by_key(|row| row.case.working_set);
        Some(rows)
    };
    let ways: BTreeSet<_> = rows.iter().map(|row| way(row)).collect();
    ways.into_iter().filter_map(curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_is_faster_within_the_intervals() {
        let check = |first, last, expect: &str| {
            assert_eq!(says(StoreKind::Nt, None, first, last, Bytes::gib(1)), expect);
        };
        let (slower, faster) = ([0.5, 0.48, 0.52], [1.2, 1.15, 1.25]);
        check(slower, [0.9, 0.88, 0.93], "regular is faster at the largest size, 1 GiB");
        check(slower, [0.995, 0.95, 1.04], "neither is known to be faster at the largest size, 1 GiB");
        check(faster, [1.01, 0.97, 1.05], "neither is known to be faster at the largest size, 1 GiB");
        check(slower, [0.9; 3], "neither is known to be faster at the largest size, 1 GiB");
        check(faster, [1.3, 1.28, 1.33], "nt is faster at the smallest size and the largest, 1 GiB");
        check([1.01, 0.97, 1.05], [1.3, 1.28, 1.33], "nt is faster at the largest size, 1 GiB");
    }
}
