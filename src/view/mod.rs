//! Views: a finished [`Report`](crate::model::Report) as bytes. A view decides how an answer looks, never what it is:
//! it measures nothing, prints nothing and works out no figure that the model does not hold.

pub mod machine;
pub mod terminal;

pub mod csv;
pub mod hwloc;
pub mod json;
pub mod prometheus;
pub mod svg;

#[cfg(feature = "report")]
mod chart;
#[cfg(feature = "report")]
pub mod html;

use std::collections::BTreeSet;

use crate::kernel::chase::Order;
use crate::kernel::scan::Scan;
use crate::kernel::{Element, Kernel, LoadKind, StoreKind, Width};
use crate::machine::Machine;
use crate::memory::{MemoryKind, MemorySpec};
use crate::model::compare::{Comparison, ComparisonRow, Verdict};
use crate::model::energy::EnergyRow;
use crate::model::page_cache::PageCacheRow;
use crate::model::pingpong::PathRow;
use crate::model::rounding::RoundingRow;
use crate::model::{
    BreakEven, Cost, Crossover, Kind, Kinds, LatencyLevel, LatencyRow, Level, LevelBest, LoadCurve, MapLine, Numa,
    NumaInitiator, NumaRow, PageRow, Quality, Rate, Rated, Report, Row, Traffic, TranslationLevel, WriteAllocate,
};
use crate::plan::{PageWork, Protocol, Way};
use crate::units::{Bytes, BytesPerSecond, Nanoseconds, count, percent, significant};

/// What every table with `±` says about it.
const SPREAD_CAPTION: &str = "median ± the farther end of its 95 % interval";

/// What tables of work on pages say about it.
const PAGES_CAPTION: &str = "Each thread works on a fresh mapping of its own: time for each of its pages, bytes of all \
    threads a second, page faults for each page. A page is as large as was obtained.";

/// The machine in a line.
fn machine_line(machine: &Machine) -> String {
    machine.summary()
}

/// A flag of a row: its word, the letter that stands for it in narrow tables, what it means.
struct Flag {
    word: &'static str,
    letter: &'static str,
    means: &'static str,
}

const FLAGS: &[Flag] = &[
    flag("bimodal", "b", "the samples fall into two groups"),
    flag("outliers", "o", "some samples lie far from the others"),
    flag("steal", "s", "the hypervisor took time"),
    flag("switches", "w", "another task ran on a CPU of ours"),
    flag("faults", "f", "pages were faulted in during samples"),
    flag("migrated", "m", "a thread ran on another CPU than asked for"),
    flag("imbalanced", "t", "threads with equal work took unequal time"),
    flag("drift", "d", "the figure moved between rounds"),
    flag("clock-changed", "c", "the core clock changed during samples"),
    flag("few-samples", "n", "too few samples for the interval asked for"),
    flag("wide-interval", "i", "the interval is wider than asked for"),
    flag("pages-differ", "p", "the pages obtained are not those asked for"),
    flag("controllers-disagree", "x", "the memory controllers counted other bytes than the loop's"),
    flag("asymmetric", "a", "the other way round it takes another time"),
    flag("idle-differs", "l", "idle threads beside it changed the latency"),
    flag("not-monotone", "u", "latency or bandwidth fell with more load"),
    flag("cache-kept", "e", "the page cache could not be emptied first"),
    flag("cache-short", "h", "the page cache did not hold all of the file"),
    flag("may-be-cached", "k", "the working set is too small to be in memory for sure"),
    flag("starved", "v", "other tasks kept the loading threads from running"),
    flag("oversubscribed", "x", "more processes ran than there are CPUs"),
];

const fn flag(word: &'static str, letter: &'static str, means: &'static str) -> Flag {
    Flag { word, letter, means }
}

impl Flag {
    fn of(word: &str) -> Option<&'static Flag> {
        FLAGS.iter().find(|flag| flag.word == word)
    }
}

/// A rate in GB/s, without the unit.
fn gbps(bytes_per_s: f64) -> String {
    significant(bytes_per_s / 1e9)
}

/// `±0.7%`: the farther end of the interval against the median. Less than 0.1 % is not told apart: the three digits
/// beside it are no finer.
fn spread(rate: &Rate) -> String {
    let [low, high] = rate.ci95;
    let farther = (rate.median - low).max(high - rate.median) / rate.median;
    format!("±{}", percent(farther.max(0.001)))
}

/// `1.85 us ±0.7%`: what a page costs.
fn page_cost(cost: &Cost) -> String {
    let Cost { best, median, ci95 } = *cost;
    format!("{} {}", Nanoseconds(median), spread(&Rate { best, median, ci95 }))
}

/// What a curve's fit says, in a line.
fn load_curve_line(curve: &LoadCurve) -> String {
    let interval = |[value, low, high]: [f64; 3]| format!("{} [{}, {}]", gbps(value), gbps(low), gbps(high));
    let greatest = gbps(curve.greatest_bps);
    let mut line = format!("{}: up to {greatest} GB/s", curve.mix);
    match curve.saturation_bps {
        Some(saturation) => line += &format!("; saturates at {} GB/s by the fit", interval(saturation)),
        None => line += "; where it saturates the curve does not determine",
    }
    if let (Some(knee), Some(ns)) = (curve.knee_bps, curve.knee_ns) {
        line += &format!("; knee at {} GB/s, {} a load", interval(knee), Nanoseconds(ns));
    }
    line
}

/// A matrix of initiators and nodes for one way of touching memory.
struct NumaMatrix {
    title: String,
    memory: MemoryKind,
    way: Way,
}

impl NumaMatrix {
    fn is_latency(&self) -> bool {
        self.way == Way::Latency
    }

    fn row<'a>(&self, numa: &'a Numa, from: &NumaInitiator, to: u32) -> Option<&'a NumaRow> {
        numa.row(self.memory, &from.name, to, self.way, !self.is_latency())
    }

    /// Bytes a second, or ns.
    fn value(&self, numa: &Numa, from: &NumaInitiator, to: u32) -> Option<f64> {
        let row = self.row(numa, from, to)?;
        row.payload_bps.map(|rate| rate.median).or_else(|| row.latency_ns.map(|cost| cost.median))
    }

    /// Whether no other node is better from there; with a single node there is nothing to mark.
    fn is_best(&self, numa: &Numa, from: &NumaInitiator, to: u32) -> bool {
        let others: Vec<f64> =
            numa.nodes.iter().filter(|node| **node != to).filter_map(|&node| self.value(numa, from, node)).collect();
        let is_better = |own: f64, other: f64| if self.is_latency() { own <= other } else { own >= other };
        !others.is_empty()
            && self.value(numa, from, to).is_some_and(|own| others.iter().all(|&other| is_better(own, other)))
    }
}

/// The matrices there are figures for: bandwidths of all cores, latency of one.
fn numa_matrices(numa: &Numa) -> Vec<NumaMatrix> {
    let mut matrices = Vec::new();
    for &memory in &numa.memory {
        let kind = if numa.memory.len() > 1 { format!(", {memory}") } else { String::new() };
        for &way in Way::ALL {
            let title = match way {
                Way::Latency => format!("latency, ns, one core{kind}"),
                way => format!("{way}, GB/s, all cores{kind}"),
            };
            let matrix = NumaMatrix { title, memory, way };
            let is_there = |from: &NumaInitiator| numa.nodes.iter().any(|&to| matrix.value(numa, from, to).is_some());
            if numa.initiators.iter().any(is_there) {
                matrices.push(matrix);
            }
        }
    }
    matrices
}

/// What ran beside page cache, in a line.
fn page_cache_title(row: &PageCacheRow) -> String {
    let PageCacheRow { kernel, memory, working_set_bytes, filler, .. } = row;
    format!("{kernel} beside page cache, {working_set_bytes} of {memory}, {}, {filler}", threads(row.threads))
}

/// Every reason why rows were not measured, once, with all that it holds for.
fn reasons<R: Rated>(rows: &[R]) -> Vec<String> {
    gathered(rows.iter().map(|row| (row.what(), row.quality())))
}

/// The same of kernels: there store kinds and widths are what may be missing.
fn kernel_reasons(rows: &[Row]) -> Vec<String> {
    gathered(rows.iter().map(|row| (store_words(row), &row.quality)))
}

fn gathered<'a>(rows: impl Iterator<Item = (String, &'a Quality)>) -> Vec<String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (what, fault) in rows.filter_map(|(what, quality)| Some((what, quality.fault()?))) {
        match found.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, all)) if all.contains(&what) => {}
            Some((_, all)) => all.push(what),
            None => found.push((fault, vec![what])),
        }
    }
    found.into_iter().map(|(fault, all)| format!("{}: {fault}", all.join(", "))).collect()
}

/// Every reason once, with the first row that it befell, and how many more: where there may be hundreds.
fn first_reasons<R: Rated>(rows: &[R]) -> Vec<String> {
    let mut seen: Vec<(String, String, usize)> = Vec::new();
    for (what, fault) in rows.iter().filter_map(|row| Some((row.what(), row.quality().fault()?))) {
        match seen.iter_mut().find(|(_, known, _)| *known == fault) {
            Some((first, ..)) if *first == what => {}
            Some((.., more)) => *more += 1,
            None => seen.push((what, fault, 0)),
        }
    }
    let line = |(what, fault, more): (String, String, usize)| match more {
        0 => format!("{what}: {fault}"),
        _ => format!("{what} and {more} more: {fault}"),
    };
    seen.into_iter().map(line).collect()
}

/// A value and the farther end of its interval: `1.08 ±0.3%`.
fn with_spread([value, low, high]: [f64; 3]) -> String {
    format!("{} {}", significant(value), spread(&Rate { best: value, median: value, ci95: [low, high] }))
}

/// A capacity and the farther end of its interval: `47.9 kib ±2%`. Empty where there is none.
fn capacity_with_spread(level: &LatencyLevel) -> String {
    let Some((capacity, [low, high])) = level.capacity.zip(level.capacity_ci95) else { return String::new() };
    let [median, low, high] = [capacity, low, high].map(|bytes| bytes.0 as f64);
    format!("{capacity} {}", spread(&Rate { best: median, median, ci95: [low, high] }))
}

/// Pages that a translation buffer holds, in the same way.
fn pages_with_spread(level: &TranslationLevel) -> String {
    let TranslationLevel { pages, pages_ci95, .. } = *level;
    format!("{pages:.0} {}", spread(&Rate { best: pages, median: pages, ci95: pages_ci95 }))
}

/// Chases of one chain over every line in one order: of each level of the ladder the row with the largest working set.
struct LatencyOrder<'a> {
    memory: MemoryKind,
    order: Order,
    of_level: Vec<Option<&'a LatencyRow>>,
}

/// All orders and memory kinds, in the usual state of the caches.
fn latency_orders(report: &Report) -> Vec<LatencyOrder<'_>> {
    let is_plain = |row: &&LatencyRow| {
        row.stride_bytes == 64
            && row.chains == 1
            && row.latency_ns.is_some()
            && row.last_level.as_deref() != Some("hit")
    };
    let keys: BTreeSet<_> = report.latency.rows.iter().filter(is_plain).map(|row| (row.memory, row.order)).collect();
    let of_level = |key: (MemoryKind, Order), name: &str| {
        let is_ours = |row: &&LatencyRow| (row.memory, row.order) == key && row.level.as_deref() == Some(name);
        let rows = report.latency.rows.iter().filter(is_plain).filter(is_ours);
        rows.max_by_key(|row| row.working_set_bytes)
    };
    let line = |&(memory, order): &(MemoryKind, Order)| LatencyOrder {
        memory,
        order,
        of_level: report.latency.levels.iter().map(|level| of_level((memory, order), &level.name)).collect(),
    };
    keys.iter().map(line).collect()
}

/// What A and B are, a line each.
fn compared_names(comparison: &Comparison) -> [String; 2] {
    [0, 1].map(|side| format!("{}: {}, {}", ["A", "B"][side], comparison.names[side], comparison.about[side]))
}

/// A figure of one side with its unit.
fn compared_figure(value: Option<f64>, row: &ComparisonRow) -> String {
    let Some(value) = value else { return "-".into() };
    match row.unit.as_str() {
        "B/s" => BytesPerSecond(value).to_string(),
        "s" => Nanoseconds(value * 1e9).to_string(),
        "ns" => Nanoseconds(value).to_string(),
        "" => value.to_string(),
        "cycles" => format!("{} cycles", significant(value)),
        // As it was written by hand, or a mean of several.
        unit if row.draws == [1, 1] => format!("{} {unit}", (value * 1e9).round() / 1e9),
        unit => format!("{} {unit}", significant(value)),
    }
}

/// `68.9`, or with an interval `103.1 ±0.8`: percent of A's speed.
fn speed_figure(speed: Option<f64>, ci95: Option<[f64; 2]>) -> String {
    let Some(speed) = speed else { return "-".into() };
    // From ten times on, three digits.
    let percent =
        |speed: f64| if speed < 9.9995 { format!("{:.1}", 100.0 * speed) } else { significant(100.0 * speed) };
    match ci95 {
        Some([low, high]) => format!("{} ±{}", percent(speed), percent((speed - low).max(high - speed))),
        None => percent(speed),
    }
}

/// Whether the speed at equal clock is another.
fn uncommon_speed(row: &ComparisonRow) -> bool {
    row.speed.zip(row.speed_at_equal_clock).is_some_and(|(speed, equal)| (equal / speed).ln().abs() > 5e-3)
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NotSignificant => "-",
        Verdict::WithinNoise => "in noise",
        Verdict::TooFew => "too few",
        verdict => verdict.word(),
    }
}

/// The parts of their words that all cells have in common, where there are several.
fn common_words(rows: &[&ComparisonRow]) -> Vec<String> {
    let Some((first, others)) = rows.split_first().filter(|(_, others)| !others.is_empty()) else { return Vec::new() };
    let is_common = |part: &&str| others.iter().all(|row| row.what.split(", ").any(|other| other == *part));
    first.what.split(", ").filter(is_common).map(str::to_string).collect()
}

/// The words of a cell without those.
fn own_words(what: &str, common: &[String]) -> String {
    what.split(", ").filter(|part| !common.iter().any(|word| word == part)).collect::<Vec<_>>().join(", ")
}

/// `node 1, thp`.
fn map_line_name(line: &MapLine) -> String {
    line.node.map_or(String::new(), |node| format!("node {node}, ")) + line.memory.word()
}

/// The rows of work on pages that have figures, by work.
fn page_works(report: &Report) -> Vec<(PageWork, Vec<&PageRow>)> {
    let rows = |&work: &PageWork| report.pages.iter().filter(move |row| row.work == work && row.page_ns.is_some());
    let group = |work: &PageWork| (*work, rows(work).collect::<Vec<_>>());
    PageWork::ALL.iter().map(group).filter(|(_, rows)| !rows.is_empty()).collect()
}

/// How a row stores: kind, width, and whether its streams start off their aligned places.
fn store_words(row: &Row) -> String {
    let unaligned = if row.misaligned_bytes > 0 { " unaligned" } else { "" };
    format!("{} {}{unaligned}", row.store, row.width)
}

/// What streams are arrays of, where it is not the usual: `, float`.
fn element_note(element: Element) -> String {
    if element.is_usual() { String::new() } else { format!(", {element}") }
}

/// Streams with a memory of their own: ` a=wc`.
fn streams(row: &Row) -> String {
    row.streams.iter().map(|named| format!(" {}={}", named.stream, named.memory)).collect()
}

fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Steady => "steady",
        Protocol::Stream => "stream",
        Protocol::Refilled => "refilled",
        Protocol::FirstUse => "first use",
        Protocol::Energy => "energy",
    }
}

fn threads(count: usize) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

/// The gain that a write-allocate's arithmetic allows, as the fraction it is.
fn bound(bound: f64) -> String {
    let fractions = [(2.0, "2"), (1.5, "3/2"), (4.0 / 3.0, "4/3"), (1.25, "5/4"), (1.0, "1")];
    let known = fractions.iter().find(|(value, _)| (value - bound).abs() < 1e-3);
    known.map_or_else(|| significant(bound), |(_, text)| (*text).into())
}

/// What is said of the write-allocate, and what that means.
const TRAFFIC: [(Traffic, &str); 5] = [
    (Traffic::AsCounted, "each regular store reads its line first, nt stores do not"),
    (
        Traffic::AboveCount,
        "nt stores gain more than the bytes saved: waiting for lines, or turning the bus, costs on top",
    ),
    (Traffic::Evaded, "regular stores move more than the bus could carry if they read their lines first"),
    (Traffic::NtHeldBack, "nt stores are slower than regular ones: something else than traffic limits them"),
    (Traffic::Unclear, "the ratio fits neither"),
];

/// What the memory controllers say of a kernel's write-allocate, where they were read.
fn counted_by_controllers(case: &WriteAllocate) -> Option<String> {
    let (moved, witness) = (case.moved_bytes?, case.witness?);
    let against = if witness.disagrees(case.traffic) { ", against what the ratio says" } else { "" };
    Some(format!(
        "{}, {}: the memory controllers moved {} B an element with regular stores: {witness}{against}",
        case.kernel,
        threads(case.threads),
        significant(moved)
    ))
}

/// A ratio with its interval: `1.38 [1.36, 1.40]`.
fn ratio(gain: [f64; 3]) -> String {
    let [ratio, low, high] = gain.map(significant);
    format!("{ratio} [{low}, {high}]")
}

/// A cross-over as a sentence.
fn crossover_line(crossover: &Crossover) -> String {
    let Crossover { kernel, store, width, says, .. } = crossover;
    let mut line = format!("{kernel}, {}, {store} {width}: {says}", threads(crossover.threads));
    if let Some([_, low, high]) = crossover.at {
        line += &format!(" [{}, {}]", Bytes(low as u64), Bytes(high as u64));
    }
    let Some(gain) = crossover.gain else { return line };
    let bound = bound(crossover.bound);
    line + &format!("; {} times regular at the largest working set, the traffic allows {bound}", ratio(gain))
}

/// All cross-overs by kernel, threads, store kind and width.
fn crossovers(report: &Report) -> Vec<&Crossover> {
    let mut all: Vec<&Crossover> = report.crossovers.iter().collect();
    all.sort_by_key(|c| (Kernel::place(&c.kernel), &c.kernel, c.threads, c.store, c.width));
    all
}

/// The working set of equal speed with its interval: `30.8 MiB [26.0 MiB, 52.3 MiB]`.
fn crossing(crossover: &Crossover) -> String {
    let Some(at) = crossover.at else { return "none".into() };
    let [at, low, high] = at.map(|bytes| Bytes(bytes as u64));
    format!("{at} [{low}, {high}]")
}

/// The kernels that the levels table shows: the usual four, or all where none of those was measured.
fn level_kernels(report: &Report) -> Vec<&str> {
    let mut kernels: Vec<&str> = report.levels.iter().flat_map(|l| &l.best).map(|b| b.kernel.as_str()).collect();
    kernels.sort_by_key(|name| (Kernel::place(name), *name));
    kernels.dedup();
    let usual: Vec<&str> =
        kernels.iter().copied().filter(|name| ["load", "store", "copy", "triad"].contains(name)).collect();
    if usual.is_empty() { kernels } else { usual }
}

/// The thread counts that the levels table shows, rising.
fn level_threads(report: &Report) -> Vec<usize> {
    let counts: BTreeSet<usize> = report.levels.iter().flat_map(|l| &l.best).map(|b| b.threads).collect();
    if counts.is_empty() { vec![1] } else { counts.into_iter().collect() }
}

/// A level's best row for a kernel and thread count.
fn level_row<'a>(report: &'a Report, level: &Level, kernel: &str, threads: usize) -> Option<&'a Row> {
    let is_wanted = |best: &&LevelBest| best.kernel == kernel && best.threads == threads;
    level.best.iter().find(is_wanted).and_then(|best| report.rows.get(best.row))
}

/// Rows that differ in how they store and in working set only.
struct StoreGroup<'a> {
    kernel: &'a str,
    element: Element,
    threads: usize,
    load: LoadKind,
    memory: MemorySpec,
    protocol: Protocol,
    /// One a store kind (unaligned streams are a kind of their own), at the width with the most working sets (of those the widest).
    columns: Vec<StoreColumn<'a>>,
}

struct StoreColumn<'a> {
    #[cfg_attr(not(feature = "report"), allow(dead_code))] // Only charts tell lines apart by it.
    store: StoreKind,
    /// By rising working set; at least one.
    rows: Vec<&'a Row>,
}

impl StoreGroup<'_> {
    fn title(&self) -> String {
        let load = if self.load == LoadKind::Nt { ", nt load" } else { "" };
        let protocol = if self.protocol == Protocol::Stream { ", STREAM passes" } else { "" };
        let (element, memory) = (element_note(self.element), self.memory);
        format!("{}, {}, {memory}{load}{protocol}{element}", self.kernel, threads(self.threads))
    }

    fn sizes(&self) -> BTreeSet<Bytes> {
        self.columns.iter().flat_map(|column| &column.rows).map(|row| row.working_set_bytes).collect()
    }
}

impl<'a> StoreColumn<'a> {
    fn at(&self, size: Bytes) -> Option<&'a Row> {
        self.rows.iter().copied().find(|row| row.working_set_bytes == size)
    }
}

/// The groups in which at least two store kinds can be compared, by kernel and thread count.
fn store_groups(report: &Report) -> Vec<StoreGroup<'_>> {
    let key = |row: &Row| {
        let place = (Kernel::place(&row.kernel), row.kernel.clone(), row.element);
        (place, row.threads, row.asked(), row.load, row.protocol)
    };
    let keys: BTreeSet<_> = report.rows.iter().map(key).collect();
    let group = |wanted: &_| {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| key(row) == *wanted).collect();
        let (first, columns): (&Row, _) = (rows.first()?, store_columns(&rows));
        let Row { kernel, element, threads, load, protocol, .. } = first;
        (columns.len() > 1).then(|| StoreGroup {
            kernel,
            element: *element,
            threads: *threads,
            load: *load,
            memory: first.asked(),
            protocol: *protocol,
            columns,
        })
    };
    keys.iter().filter_map(group).collect()
}

fn store_columns<'a>(rows: &[&'a Row]) -> Vec<StoreColumn<'a>> {
    let column = |&(store, misaligned_bytes): &(StoreKind, u32)| {
        let is_ours = move |row: &&Row| (row.store, row.misaligned_bytes) == (store, misaligned_bytes);
        let at = |width| rows.iter().copied().filter(is_ours).filter(move |row| row.width == width);
        let measured = |width| at(width).filter(|row| row.payload_bps.is_some()).count();
        let width = Width::ALL.iter().copied().max_by_key(|&w| (measured(w), at(w).count(), w))?;
        let mut rows: Vec<&Row> = at(width).collect();
        rows.sort_by_key(|row| row.working_set_bytes);
        Some(StoreColumn { store, rows })
    };
    let kinds: BTreeSet<_> = rows.iter().map(|row| (row.store, row.misaligned_bytes)).collect();
    kinds.iter().filter_map(column).collect()
}

/// From which use on a kind is the better choice, with its interval.
#[cfg(feature = "report")]
fn break_even(kind: &Kind) -> String {
    match kind.break_even {
        Some(BreakEven::After { low, high, .. }) => {
            let high = high.map_or_else(|| "never".into(), count);
            format!("{} [{}, {high}]", break_even_word(kind), count(low))
        }
        _ => break_even_word(kind),
    }
}

/// The same in a word.
fn break_even_word(kind: &Kind) -> String {
    match kind.break_even {
        None => String::new(),
        Some(BreakEven::AtOnce) => "at once".into(),
        Some(BreakEven::After { uses, .. }) => count(uses),
        Some(BreakEven::Until { uses }) => format!("up to {}", count(uses.floor())),
        Some(BreakEven::Never) => "never".into(),
        Some(BreakEven::Alike) => "no matter".into(),
    }
}

/// A way of touching a kind alone: its name in tables.
const ALONE: [(&str, &str, StoreKind, LoadKind); 5] = [
    ("store", "store", StoreKind::Regular, LoadKind::Regular),
    ("store nt", "store", StoreKind::Nt, LoadKind::Regular),
    ("store masked", "store", StoreKind::NtMasked, LoadKind::Regular),
    ("load", "load", StoreKind::Regular, LoadKind::Regular),
    ("load nt", "load", StoreKind::Regular, LoadKind::Nt),
];

/// The row in which a kind was touched alone in that way, in use already.
fn alone<'a>(report: &'a Report, kind: &Kind, kernel: &str, store: StoreKind, load: LoadKind) -> Option<&'a Row> {
    let rows = kind.alone.iter().filter_map(|&index| report.rows.get(index));
    rows.filter(|row| row.protocol == Protocol::Steady && row.quality.is_measured())
        .find(|row| (row.kernel.as_str(), row.store, row.load) == (kernel, store, load))
}

/// Kinds that were measured, and those that were not.
fn measured_kinds(kinds: &Kinds) -> (Vec<&Kind>, Vec<&Kind>) {
    kinds.kinds.iter().partition(|kind| kind.first_s.is_some() || kind.steady_s.is_some())
}

/// How the accesses of a scan of loads or stores alone lie, with short names for narrow tables.
const CROSSINGS: [(&str, &str); 6] = [
    ("aligned", "aligned"),
    ("inside a line", "inside\na line"),
    ("crosses 16 B", "across\n16 B"),
    ("crosses 32 B", "across\n32 B"),
    ("crosses a line", "across\na line"),
    ("crosses a page", "across\na page"),
];

/// The scans of a report, in the order of its rows.
fn scans(report: &Report) -> Vec<Scan> {
    let mut scans: Vec<Scan> = report.offsets.iter().map(|row| row.scan).collect();
    scans.dedup();
    scans
}

/// What one kind of offsets costs.
fn offset_cost(report: &Report, scan: Scan, place: &str) -> Option<Cost> {
    report.offsets.iter().find(|row| row.scan == scan && row.place == place).and_then(|row| row.cycles)
}

/// The rows of each meter, the whole package first.
fn energy_meters(report: &Report) -> Vec<(String, Vec<&EnergyRow>)> {
    let mut meters: Vec<(String, Vec<&EnergyRow>)> = Vec::new();
    for row in &report.energy {
        let Some(meter) = &row.meter else { continue };
        match meters.iter_mut().find(|(known, _)| known == meter) {
            Some((_, rows)) => rows.push(row),
            None => meters.push((meter.clone(), vec![row])),
        }
    }
    meters.sort_by_key(|(meter, _)| meter != "package");
    meters
}

/// A way of adding up, in few words.
fn rounding_way(row: &RoundingRow) -> String {
    let order = match row.blocks {
        1 => row.order.to_string(),
        blocks => format!("{} in {blocks}", row.order),
    };
    let width = if row.width == Width::Scalar { "scalar".into() } else { format!("{} bits", row.width) };
    let chain = if row.unroll == 1 { "one chain" } else { "partial sums" };
    let apart = if row.kernel != "sum" && !row.fused { ", mul + add" } else { "" };
    format!("{width}, {chain}, {order}{apart}")
}

/// A figure of a path's model, with its unit.
fn path_value(row: &PathRow, value: f64) -> String {
    match (row.unit.as_str(), row.parameter.as_str()) {
        ("s", _) => Nanoseconds(value * 1e9).to_string(),
        ("B", _) => Bytes(value.round() as u64).to_string(),
        ("B/s", _) => BytesPerSecond(value).to_string(),
        (_, "shared") => if value > 0.0 { "yes" } else { "no" }.into(),
        (_, "held") => percent(value),
        (_, "slowdown") => significant(value),
        _ => format!("±{}", percent(value)),
    }
}

/// `[4.6 GB/s, 4.8 GB/s]`, empty where there is none; what does not hold says so.
fn path_interval(row: &PathRow) -> String {
    match row.ci95 {
        Some([low, high]) => format!("[{}, {}]", path_value(row, low), path_value(row, high)),
        None if row.unit.is_empty() && !row.holds => "does not hold".into(),
        None => String::new(),
    }
}
