//! What the page's charts show: points, names, bands and limits. How they are drawn is `report.js`'s part, and the
//! option object of the chart library is made there: it needs functions (labels of logarithmic axes, whiskers), which
//! no JSON can hold. So the typed option builder of the charming crate is not used, only the script in its package.

mod compare;
mod energy;
mod fleet;
mod latency;
mod loaded;
mod page_cache;
mod pingpong;
mod rounding;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{
    StoreColumn, StoreGroup, element_note, gbps, measured_kinds, page_works, store_groups, store_words, threads,
};
use crate::kernel::scan::Scan;
use crate::kernel::{Kernel, LoadKind, StoreKind, Width};
use crate::memory::MemoryKind;
use crate::model::{BreakEven, Cost, Crossover, Kind, Kinds, OffsetRow, PageRow, Report, Row, Scaling};
use crate::plan::Protocol;
use crate::record::BASE_PAGE;
use crate::units::{Bytes, count, percent};

pub(super) use compare::comparison;
pub(super) use energy::energy;
pub(super) use fleet::{findings as fleet_findings, order as fleet_order};
pub(super) use latency::latency;
pub(super) use loaded::loaded;
pub(super) use page_cache::page_cache;
pub(super) use pingpong::pingpong;
pub(super) use rounding::rounding;

const GBPS: &str = "payload bandwidth, GB/s";
const WORKING_SET: &str = "working set, all threads";
/// A line with fewer working sets says little about levels.
const LEAST_SIZES: usize = 6;
/// More lines at once can't be told apart; the legend brings in the others.
const MOST_LINES: usize = 8;
const MOST_DISTRIBUTIONS: usize = 12;

/// A chart and the words around it.
#[derive(Debug, Serialize)]
pub(super) struct Chart {
    #[serde(skip)]
    pub title: String,
    /// What to read from it.
    #[serde(skip)]
    pub about: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    /// Stretches of the x axis.
    bands: Vec<Band>,
    /// Places on the x axis, each with its interval.
    marks: Vec<Mark>,
    /// Heights to compare with.
    limits: Vec<Limit>,
}

#[derive(Debug, Serialize)]
struct Axis {
    name: &'static str,
    /// What stands after a number in tooltips.
    unit: &'static str,
    scale: Scale,
    /// Names along a `names` axis.
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Scale {
    /// Bytes, logarithmic.
    Sizes,
    /// Logarithmic.
    Log,
    /// From zero.
    Linear,
    /// Places in a sequence.
    Order,
    /// Bytes before (below zero) and behind a place.
    Offsets,
    /// As far as the points reach.
    Close,
    /// One place a name.
    Names,
}

#[derive(Debug, Serialize)]
struct Series {
    name: String,
    shape: Shape,
    /// Index into the palette, so that a thing has the same colour in all charts.
    colour: usize,
    /// Index into the dash patterns.
    dash: usize,
    /// Index into the symbols.
    symbol: usize,
    /// Whether it is drawn before the reader asks for it.
    shown: bool,
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Line,
    /// A line without symbols.
    Curve,
    Bar,
    Dot,
}

/// x, median, low and high end of its interval (all in the axis's unit), samples.
type Point = (f64, f64, f64, f64, usize);

#[derive(Debug, Serialize)]
struct Band {
    name: String,
    from: f64,
    to: f64,
}

#[derive(Debug, Serialize)]
struct Mark {
    name: String,
    at: f64,
    from: f64,
    to: f64,
}

#[derive(Debug, Serialize)]
struct Limit {
    name: String,
    at: f64,
}

impl Axis {
    fn new(name: &'static str, unit: &'static str, scale: Scale) -> Self {
        Axis { name, unit, scale, names: Vec::new() }
    }
}

impl Chart {
    fn new(title: String, about: String, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Chart { title, about, x, y, series, bands: Vec::new(), marks: Vec::new(), limits: Vec::new() }
    }

    /// The chart in words, for those who can't see it.
    pub fn label(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        format!("Chart: {}; {} over {}; {}", self.title, self.y.name, self.x.name, names.join(", "))
    }
}

/// Bandwidth over working sets, a chart for each thread count.
pub(super) fn bandwidth(report: &Report) -> Vec<Chart> {
    let counts: BTreeSet<usize> = report.rows.iter().map(|row| row.threads).collect();
    let chart = |&count: &usize| {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.threads == count).collect();
        let series = size_series(&rows);
        let hidden = series.iter().filter(|series| !series.shown).count();
        let about = match hidden {
            0 => String::new(),
            1 => "One more line waits in the legend.".into(),
            _ => format!("{hidden} more lines wait in the legend."),
        };
        let title = format!("Bandwidth over working set, {}", threads(count));
        let bands = level_bands(report, count, &series);
        let limits = report
            .machine
            .dimm_peak()
            .map(|peak| Limit { name: format!("all DIMMs {}", gbps(peak.0)), at: peak.0 / 1e9 });
        let limits = limits.into_iter().collect();
        (!series.is_empty()).then(|| Chart { bands, limits, ..over_sizes(title, about, series) })
    };
    counts.iter().filter_map(chart).collect()
}

/// Store kinds over working sets, a chart for each kernel and thread count.
pub(super) fn store_kinds(report: &Report) -> Vec<Chart> {
    let chart = |group: &StoreGroup<'_>| {
        let series: Vec<Series> = group.columns.iter().enumerate().map(store_series).collect();
        let series: Vec<Series> = series.into_iter().filter(|series| series.points.len() > 1).collect();
        // A width that is not drawn would cross where no lines do.
        let is_drawn = |c: &&Crossover| group.columns.iter().any(|d| (d.store, d.rows[0].width) == (c.store, c.width));
        let is_ours = |c: &&Crossover| c.kernel == group.kernel && c.threads == group.threads;
        let crossings = report.crossovers.iter().filter(is_ours).filter(is_drawn);
        let mark = |c: &Crossover| {
            let [at, from, to] = c.at?;
            Some(Mark { name: format!("{} overtakes: {}", c.store, Bytes(at as u64)), at, from, to })
        };
        let (bands, marks) = (level_bands(report, group.threads, &series), crossings.filter_map(mark).collect());
        let is_curve = series.len() > 1 && series.iter().any(|series| series.points.len() >= LEAST_SIZES);
        is_curve.then(|| Chart { bands, marks, ..over_sizes(group.title(), String::new(), series) })
    };
    store_groups(report).iter().filter_map(chart).collect()
}

/// Bandwidth over threads, a chart for each level.
pub(super) fn scaling(report: &Report) -> Vec<Chart> {
    let chart = |level: &str| {
        let of_level: Vec<&Scaling> = report.scaling.iter().filter(|s| s.level == level).collect();
        let lines = of_level.iter().enumerate().map(|(index, scaling)| {
            let rows = scaling.rows.iter().filter_map(|&row| report.rows.get(row));
            let points = rows.filter_map(|row| point(row.threads as f64, row)).collect();
            Series { colour: index, symbol: index, ..line(scaling.what.clone(), points) }
        });
        let mut series: Vec<Series> = lines.filter(|series: &Series| series.points.len() > 1).collect();
        let ideal = ideal(series.first()?);
        series.push(ideal);
        let about = "Dashed: the first line's speed at its fewest threads, times the threads.".into();
        let axes = (Axis::new("threads", "threads", Scale::Linear), Axis::new(GBPS, "GB/s", Scale::Linear));
        Some(Chart::new(format!("Scaling, {level}"), about, axes.0, axes.1, series))
    };
    let mut levels: Vec<&str> = report.scaling.iter().map(|scaling| scaling.level.as_str()).collect();
    levels.dedup();
    levels.into_iter().filter_map(chart).collect()
}

fn ideal(series: &Series) -> Series {
    let (fewest, rate, ..) = series.points[0];
    let at = |&(count, ..): &Point| {
        let rate = rate * count / fewest;
        (count, rate, rate, rate, 0)
    };
    Series { colour: 7, dash: 1, ..line("in proportion".into(), series.points.iter().map(at).collect()) }
}

/// Widths side by side for each kernel, a chart for each level.
pub(super) fn widths(report: &Report) -> Vec<Chart> {
    let fewest = report.rows.iter().map(|row| row.threads).min().unwrap_or(1);
    let is_plain = |row: &&Row| {
        row.threads == fewest
            && row.payload_bps.is_some()
            && row.store == StoreKind::Regular
            && row.load == LoadKind::Regular
    };
    let chart = |level: &crate::model::Level| {
        let rows = || report.rows.iter().filter(is_plain).filter(|row| row.level.as_ref() == Some(&level.name));
        let mut kernels: Vec<&str> = rows().map(|row| row.kernel.as_str()).collect();
        kernels.sort_by_key(|name| (Kernel::place(name), *name));
        kernels.dedup();
        let fastest = |kernel: &str, width| {
            let of_kernel = rows().filter(|row| row.kernel == kernel && row.width == width);
            of_kernel.max_by(|a, b| median(a).total_cmp(&median(b)))
        };
        let bars = |(colour, &width): (usize, &Width)| {
            let bar = |(index, kernel): (usize, &&str)| point(index as f64, fastest(kernel, width)?);
            let points: Vec<Point> = kernels.iter().enumerate().filter_map(bar).collect();
            Series { shape: Shape::Bar, colour, ..line(width_name(width), points) }
        };
        let series: Vec<Series> = Width::ALL.iter().enumerate().map(bars).filter(|s| !s.points.is_empty()).collect();
        let title = format!("{}: width by kernel, {}", level.name, threads(fewest));
        let names = kernels.iter().map(|name| (*name).to_string()).collect();
        let x = Axis { names, ..Axis::new("kernel", "", Scale::Names) };
        (series.len() > 1).then(|| Chart::new(title, String::new(), x, Axis::new(GBPS, "GB/s", Scale::Linear), series))
    };
    report.levels.iter().filter_map(chart).collect()
}

/// Memory kinds: first use against later ones, and what a use costs on average after so many.
pub(super) fn kinds(report: &Report) -> Vec<Chart> {
    let Some(kinds) = &report.kinds else { return Vec::new() };
    let (measured, _) = measured_kinds(kinds);
    let names: Vec<String> = measured.iter().map(|kind| kind.memory.to_string()).collect();
    let bars = |name: &str, colour, cost: fn(&Kind) -> Option<Cost>| {
        let bar = |(index, kind): (usize, &&Kind)| {
            let cost = cost(kind)?;
            let rate = |seconds: f64| rounded(kinds.bytes.0 as f64 / seconds / 1e9);
            let row = kind.first.or(kind.steady).and_then(|index| report.rows.get(index));
            let samples = row.map_or(0, |row| row.quality.samples);
            Some((index as f64, rate(cost.median), rate(cost.ci95[1]), rate(cost.ci95[0]), samples))
        };
        let points = measured.iter().enumerate().filter_map(bar).collect();
        Series { shape: Shape::Bar, colour, ..line(name.into(), points) }
    };
    let series = vec![bars("first copy", 1, |kind| kind.first_s), bars("later copies", 0, |kind| kind.steady_s)];
    let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    if series.is_empty() {
        return Vec::new();
    }
    let x = Axis { names, ..Axis::new("kind of the buffer", "", Scale::Names) };
    let y = Axis::new("bytes copied, GB/s (log)", "GB/s", Scale::Log);
    let about = "From asking for the memory to the end of the copy, against copies after the first.".into();
    let title = format!("Copying {} to each kind, {}", kinds.bytes, threads(kinds.threads));
    let speeds = Chart::new(title, about, x, y, series);
    std::iter::once(speeds).chain(break_even(kinds)).collect()
}

/// Average cost of a use over the number of uses: where two lines cross, two kinds are level.
fn break_even(kinds: &Kinds) -> Option<Chart> {
    const USES: [u32; 13] = [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000];
    let average = |kind: &Kind| {
        let (first, later) = (kind.first_s?.median * 1e3, kind.steady_s?.median * 1e3);
        let at = |&uses: &u32| {
            let uses = f64::from(uses);
            let average = rounded((first + (uses - 1.0) * later) / uses);
            (uses, average, average, average, 0)
        };
        Some(line(kind.memory.to_string(), USES.iter().map(at).collect()))
    };
    // What the others are held against, then those that are level with it somewhere.
    let rank = |kind: &&Kind| match (kind.against, kind.break_even) {
        (None, _) => 0,
        (_, Some(BreakEven::After { .. } | BreakEven::Until { .. })) => 1,
        (_, Some(BreakEven::AtOnce)) => 2,
        _ => 3,
    };
    let mut all: Vec<&Kind> = kinds.kinds.iter().collect();
    all.sort_by_key(rank);
    let mut series: Vec<Series> = all.into_iter().filter_map(average).collect();
    for (index, series) in series.iter_mut().enumerate() {
        (series.colour, series.symbol, series.dash) = (index, index, index / 8);
        series.shown = index < MOST_LINES;
    }
    let mark = |kind: &Kind| match kind.break_even {
        Some(BreakEven::After { uses, low, high: Some(high) }) if (1.0..1000.0).contains(&uses) => {
            Some(Mark { name: format!("{}: {}", kind.memory, count(uses)), at: uses, from: low, to: high.min(1000.0) })
        }
        _ => None,
    };
    let (x, y) =
        (Axis::new("copies", "copies", Scale::Log), Axis::new("average cost of a copy, ms (log)", "ms", Scale::Log));
    let about =
        "The first copy's cost spread over all: t_first + (n - 1) t_later, over n. Marks are break-evens.".into();
    let marks = kinds.kinds.iter().filter_map(mark).collect();
    let chart = Chart::new("After how many copies a kind pays".into(), about, x, y, series);
    (chart.series.len() > 1).then_some(Chart { marks, ..chart })
}

/// What pages cost by work, a bar each memory kind. Pages differ in size, so that the cost is for 4 KiB of them.
pub(super) fn pages(report: &Report) -> Vec<Chart> {
    let works = page_works(report);
    let fewest = report.pages.iter().map(|row| row.threads).min().unwrap_or(1);
    let rows = |kind: MemoryKind| {
        let of_kind = move |row: &PageRow| row.memory == kind && row.threads == fewest;
        works.iter().enumerate().filter_map(move |(at, (_, rows))| Some((at, *rows.iter().find(|row| of_kind(row))?)))
    };
    let mut kinds: Vec<MemoryKind> = MemoryKind::ALL.iter().copied().filter(|kind| rows(*kind).count() > 0).collect();
    // A kind with a single work would leave room for its bar at all the others.
    if kinds.iter().any(|kind| rows(*kind).count() > 1) {
        kinds.retain(|kind| rows(*kind).count() > 1);
    }
    let point = |(at, row): (usize, &PageRow)| {
        let cost = row.page_ns?;
        let by_4k = |ns: f64| rounded(ns * BASE_PAGE as f64 / row.page_bytes.0 as f64);
        Some((at as f64, by_4k(cost.median), by_4k(cost.ci95[0]), by_4k(cost.ci95[1]), row.quality.samples))
    };
    let bars = |(colour, &kind): (usize, &MemoryKind)| {
        let points = rows(kind).filter_map(point).collect();
        Series { shape: Shape::Bar, colour, ..line(kind.to_string(), points) }
    };
    let series: Vec<Series> = kinds.iter().enumerate().map(bars).collect();
    let names = works.iter().map(|(work, _)| work.to_string()).collect();
    let x = Axis { names, ..Axis::new("work", "", Scale::Names) };
    let y = Axis::new("ns for each 4 KiB (log)", "ns", Scale::Log);
    let title = format!("What 4 KiB of pages cost, {}", threads(fewest));
    let about = "Huge pages are shown by their share of 4 KiB; what each page costs stands in the table.".into();
    let chart = || Chart::new(title, about, x, y, series);
    if works.is_empty() { Vec::new() } else { vec![chart()] }
}

/// Samples in order of time: the memory level's best rows, and whatever has two modes.
pub(super) fn distributions(report: &Report) -> Vec<Chart> {
    let memory = report.levels.iter().filter(|level| level.name == "memory").flat_map(|level| &level.best);
    let bimodal = report.rows.iter().enumerate().filter(|(_, row)| row.modes.is_some()).map(|(index, _)| index);
    let mut seen = BTreeSet::new();
    let indices = memory.map(|best| best.row).chain(bimodal).filter(|index| seen.insert(*index));
    let rows = indices.filter_map(|index| report.rows.get(index)).filter(|row| row.sample_bps.len() > 2);
    rows.take(MOST_DISTRIBUTIONS).filter_map(distribution).collect()
}

/// Bytes on either side of a page boundary that the charts of crossings show.
const AROUND: i64 = 128;
const PAGE: i64 = 4096;

/// What offsets cost: crossings by loads and by stores, 4 KiB aliasing, forwarding.
pub(super) fn offsets(report: &Report) -> Vec<Chart> {
    // A page's first bytes stand for those behind its end: there lies another page.
    let around = |at: i64| match at {
        ..=AROUND => Some(at),
        _ if at >= PAGE - AROUND => Some(at - PAGE),
        _ => None,
    };
    let from_boundary = "first byte, from a page boundary (a line is 64 B)";
    let from_store = "load's first byte, from the store's";
    type Wanted = (&'static str, &'static str, Scale, fn(Scan) -> bool);
    let charts: [Wanted; 4] = [
        // A page crossing is so dear that a linear axis would hide all else.
        ("Loads around a page boundary", from_boundary, Scale::Log, |scan| matches!(scan, Scan::Load { .. })),
        ("Stores around a page boundary", from_boundary, Scale::Log, |scan| matches!(scan, Scan::Store { .. })),
        ("4 KiB aliasing", "load's place in its page, from the store's", Scale::Linear, |scan| {
            matches!(scan, Scan::Aliasing { .. })
        }),
        ("Store-to-load forwarding", from_store, Scale::Linear, |scan| matches!(scan, Scan::Forwarding { .. })),
    ];
    let chart = |(title, x, scale, is_ours): Wanted| {
        let first_rows = report.offsets.iter().filter(|row| !row.curve.is_empty() && is_ours(row.scan));
        let series: Vec<Series> = first_rows.map(|row| offset_series(row, around)).collect();
        let name = if matches!(scale, Scale::Log) { "core clock cycles (log)" } else { "core clock cycles" };
        let axes = (Axis::new(x, "B", Scale::Offsets), Axis::new(name, "cycles", scale));
        let chart = Chart::new(title.into(), String::new(), axes.0, axes.1, series);
        (!chart.series.is_empty()).then_some(chart)
    };
    charts.into_iter().filter_map(chart).collect()
}

/// Colour says the bytes of the store, dashes those of the load.
fn offset_series(row: &OffsetRow, around: impl Fn(i64) -> Option<i64>) -> Series {
    let [stored, loaded] = row.scan.bytes();
    let colour = |bytes: u64| (bytes.max(4).ilog2() - 2) as usize;
    let (name, colour, dash, shown) = match row.scan {
        Scan::Load { bytes } | Scan::Store { bytes } | Scan::Aliasing { bytes } => {
            (format!("{bytes} B"), colour(bytes.into()), 0, true)
        }
        // Twenty-five lines at once can't be told apart; the legend brings in the others.
        Scan::Forwarding { .. } => {
            (format!("{stored} B to {loaded} B"), colour(stored), colour(loaded), stored == loaded)
        }
    };
    let at = |&(offset, cycles): &(i64, f64)| {
        let cycles = format!("{:.2}", cycles.max(0.01)).parse().unwrap_or(0.01);
        Some((around(offset)? as f64, cycles, cycles, cycles, row.quality.samples))
    };
    let mut points: Vec<Point> = row.curve.iter().filter_map(at).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series { colour, dash, shown, ..line(name, changes(points)) }
}

/// Without the points between equal neighbours: a step needs its two ends. Equal is what differs by less than the line
/// is thick.
fn changes(points: Vec<Point>) -> Vec<Point> {
    let is_equal = |a: &Point, b: &Point| (a.1 - b.1).abs() <= 0.02 * a.1.abs().max(b.1.abs());
    let mut kept: Vec<Point> = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let is_between = kept.last().is_some_and(|last| is_equal(last, point))
            && points.get(index + 1).is_some_and(|next| is_equal(point, next));
        if !is_between {
            kept.push(*point);
        }
    }
    kept
}

fn distribution(row: &Row) -> Option<Chart> {
    let rate = row.payload_bps?;
    let dot = |(index, bps): (usize, &f64)| (index as f64 + 1.0, bps / 1e9, bps / 1e9, bps / 1e9, 1);
    let points = row.sample_bps.iter().enumerate().map(dot).collect();
    let series =
        Series { shape: Shape::Dot, colour: usize::from(row.modes.is_some()), ..line("sample".into(), points) };
    let limit = |name: &str, bps: f64| Limit { name: format!("{name} {}", gbps(bps)), at: bps / 1e9 };
    let mut limits = vec![limit("median", rate.median)];
    let mut about = format!("{} samples, best {} GB/s.", row.quality.samples, gbps(rate.best));
    if let Some(modes) = row.modes {
        limits = vec![limit("low mode", modes.low), limit("high mode", modes.high)];
        about += &format!(
            " Bimodal: {} of the samples lie around {} GB/s, the others around {}; the median stands for neither.",
            percent(modes.high_share),
            gbps(modes.high),
            gbps(modes.low)
        );
    }
    let (what, size) = (format!("{} {} {}", row.kernel, row.store, row.width), row.working_set_bytes);
    let title = format!("{what}, {size}, {}{}", threads(row.threads), element_note(row.element));
    let (x, y) = (Axis::new("sample, in order of time", "", Scale::Order), Axis::new(GBPS, "GB/s", Scale::Close));
    Some(Chart { limits, ..Chart::new(title, about, x, y, vec![series]) })
}

fn over_sizes(title: String, about: String, series: Vec<Series>) -> Chart {
    let y = Axis::new("payload bandwidth, GB/s (log)", "GB/s", Scale::Log);
    Chart::new(title, about, Axis::new(WORKING_SET, "", Scale::Sizes), y, series)
}

/// A line for each variant that was measured at enough working sets. Colour says the kernel, dashes the store kind,
/// symbols the width.
fn size_series(rows: &[&Row]) -> Vec<Series> {
    let mut lines: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.payload_bps.is_some()) {
        let manner = (row.load, row.asked(), row.misaligned_bytes, row.protocol);
        let key = (Kernel::place(&row.kernel), &row.kernel, row.element, row.store, row.width, manner);
        lines.entry(key).or_default().push(row);
    }
    lines.retain(|_, rows| sizes(rows) >= LEAST_SIZES);
    let shown: Vec<&Row> = lines.values().map(|rows| rows[0]).collect();
    let name = namer(&shown);
    let mut kernels: Vec<&str> = shown.iter().map(|row| row.kernel.as_str()).collect();
    kernels.dedup();
    let mut room = MOST_LINES;
    let series = lines.values().map(|rows| {
        let (row, widest) = (rows[0], shown.iter().filter(|r| r.kernel == rows[0].kernel).map(|r| r.width).max());
        // The other store kinds have charts of their own.
        let is_usual = matches!(row.store, StoreKind::Regular | StoreKind::Nt)
            && Some(row.width) == widest
            && row.misaligned_bytes == 0;
        let shown = is_usual && room > 0;
        room -= usize::from(shown);
        Series {
            colour: kernels.iter().position(|kernel| *kernel == row.kernel).unwrap_or(0),
            dash: row.store as usize,
            symbol: row.width as usize,
            shown,
            ..line(name(row), size_points(rows))
        }
    });
    let mut series: Vec<Series> = series.collect();
    if series.iter().all(|series| !series.shown) {
        series.iter_mut().take(MOST_LINES).for_each(|series| series.shown = true);
    }
    series
}

fn store_series((place, column): (usize, &StoreColumn<'_>)) -> Series {
    let colour = column.store as usize;
    // Unaligned streams keep their store kind's colour.
    let unaligned = column.rows[0].misaligned_bytes > 0;
    let symbol = if unaligned { place + 1 } else { colour };
    Series { colour, dash: symbol, symbol, ..line(store_words(column.rows[0]), size_points(&column.rows)) }
}

fn line(name: String, points: Vec<Point>) -> Series {
    Series { name, shape: Shape::Line, colour: 0, dash: 0, symbol: 0, shown: true, points }
}

fn sizes(rows: &[&Row]) -> usize {
    rows.iter().map(|row| row.working_set_bytes).collect::<BTreeSet<_>>().len()
}

fn size_points(rows: &[&Row]) -> Vec<Point> {
    let mut points: Vec<Point> =
        rows.iter().filter_map(|row| point(row.working_set_bytes.0 as f64, row)).filter(|p| p.0 > 0.0).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn point(x: f64, row: &Row) -> Option<Point> {
    let rate = row.payload_bps?;
    let short = |bps: f64| rounded(bps / 1e9);
    Some((x, short(rate.median), short(rate.ci95[0]), short(rate.ci95[1]), row.quality.samples))
}

/// A dozen digits would only make the page larger; five are beyond any sample's precision.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(0.0)
}

fn median(row: &Row) -> f64 {
    row.payload_bps.map_or(0.0, |rate| rate.median)
}

fn width_name(width: Width) -> String {
    if width == Width::Scalar { "scalar".into() } else { format!("{width} bits") }
}

/// Names variants by their kernel and whatever else differs between them.
fn namer(rows: &[&Row]) -> impl Fn(&Row) -> String + use<> {
    let differs = |word: &dyn Fn(&Row) -> String| rows.iter().map(|row| word(row)).collect::<BTreeSet<_>>().len() > 1;
    let store = differs(&|row| row.store.to_string());
    let width = differs(&|row| row.width.to_string());
    let load = differs(&|row| row.load.to_string());
    let memory = differs(&|row| row.asked().to_string());
    move |row| {
        let parts = [
            (store, row.store.to_string()),
            (width, row.width.to_string()),
            (load, format!("{} load", row.load)),
            (memory, row.asked().to_string()),
            (!row.element.is_usual(), row.element.to_string()),
            (row.misaligned_bytes > 0, "unaligned".into()),
            (row.protocol == Protocol::Stream, "STREAM passes".into()),
        ];
        let parts = parts.into_iter().filter(|(differs, _)| *differs).map(|(_, word)| word);
        std::iter::once(row.kernel.clone()).chain(parts).collect::<Vec<_>>().join(" ")
    }
}

/// Where levels lie for this thread count. One thread: up to the capacity. More threads have more private cache, so
/// there the rows tell: a level ends between its largest working set and the next level's smallest.
fn level_bands(report: &Report, threads: usize, series: &[Series]) -> Vec<Band> {
    let xs = || series.iter().flat_map(|series| &series.points).map(|point| point.0);
    let (start, end) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    let reach = |name: &str| {
        let is_inside = |row: &&Row| row.threads == threads && row.level.as_deref() == Some(name);
        let sizes = report.rows.iter().filter(is_inside).map(|row| row.working_set_bytes.0 as f64);
        sizes.fold(None, |reach: Option<(f64, f64)>, size| {
            reach.map_or(Some((size, size)), |(low, high)| Some((low.min(size), high.max(size))))
        })
    };
    let seen: Vec<_> = report.levels.iter().filter_map(|level| Some((level, reach(&level.name)?))).collect();
    let mut from = start;
    let mut bands = Vec::new();
    for (index, (level, (_, high))) in seen.iter().enumerate() {
        let between = seen.get(index + 1).map_or(end, |(_, (next, _))| (high * next).sqrt());
        let to = level
            .capacity
            .filter(|_| threads == 1)
            .map_or(between, |capacity| capacity.0 as f64)
            .clamp(from, end.max(from));
        bands.push(Band { name: level.name.clone(), from, to });
        from = to;
    }
    bands
}
