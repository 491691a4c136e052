//! What kernels over streams look like.

use membound_core::in_order::{InOrder, each_once};
use std::collections::{BTreeMap, BTreeSet};

use crate::chart::{
    Axis, Band, Chart, LEAST_POINTS, Limit, MOST_LINES, Mark, Point, Scale, Series, Shape, line, rounded,
};
use crate::experiments::bandwidth::answer::Bandwidth;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::bandwidth::stores::{Crossover, Curve, StoreGroup, instead, store_groups};
use crate::experiments::bandwidth::stream::Scaling;
use crate::hierarchy::names::Level;
use crate::wording::{element_note, gbps, threads};
use membound_core::case::Protocol;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{LoadKind, StoreKind, Width};
use membound_core::stats::quantiles::median;
use membound_core::stats::states::VISITS_MIN;
use membound_core::units::{Bytes, counted, percent};

const POINTS: &str =
    "Points: undisturbed, whiskers: its 95 % interval or range; shaded stretches are the levels found.";
const WIDTHS: &str =
    "Regular loads and stores at the fastest working set of the level: undisturbed, with its 95 % interval or range.";
const GBPS: &str = "payload bandwidth, GB/s";
const WORKING_SET: &str = "working set, all threads";
const MOST_DISTRIBUTIONS: usize = 12;

/// Bandwidth over working sets, a chart for each thread count.
pub(crate) fn over_working_sets(found: &Bandwidth<'_>) -> Vec<Chart> {
    let counts: BTreeSet<usize> = found.rows.iter().map(|row| row.threads()).collect();
    let chart = |&count: &usize| {
        let rows: Vec<&BandwidthRow> = found.rows.iter().filter(|row| row.threads() == count).collect();
        let series = size_series(&rows, instead(found.crossovers));
        let hidden = series.iter().filter(|series| !series.shown).count();
        let about = match hidden {
            0 => POINTS.into(),
            1 => format!("{POINTS} One more line waits in the legend."),
            _ => format!("{POINTS} {hidden} more lines wait in the legend."),
        };
        let title = format!("Bandwidth over working set, {}", threads(count));
        let bands = level_bands(found, count, &series);
        let limits = found
            .machine
            .dimm_peak()
            .map(|peak| Limit { name: format!("all DIMMs {}", gbps(peak.0)), at: peak.0 / 1e9 });
        let limits = limits.into_iter().collect();
        (!series.is_empty()).then(|| Chart { bands, limits, ..over_sizes(title, about, series) })
    };
    counts.iter().filter_map(chart).collect()
}

/// Store kinds over working sets, a chart for each kernel and thread count.
pub(crate) fn store_kinds(found: &Bandwidth<'_>) -> Vec<Chart> {
    let chart = |group: &StoreGroup<'_>| {
        let series: Vec<Series> = group.curves.iter().enumerate().map(store_series).collect();
        let series: Vec<Series> = series.into_iter().filter(|series| series.points.len() > 1).collect();
        // A width that is not drawn would cross where no lines do.
        let is_drawn = |c: &&Crossover| group.curves.iter().any(|d| (d[0].store(), d[0].width()) == (c.store, c.width));
        let mark = |c: &Crossover| {
            let [at, from, to] = c.at?;
            Some(Mark { name: format!("{} wins above: {}", c.store, Bytes(at as u64)), at, from, to })
        };
        let marks = group.own(found.crossovers).filter(is_drawn).filter_map(mark).collect();
        let bands = level_bands(found, group.threads(), &series);
        let is_curve = series.len() > 1 && series.iter().any(|series| series.points.len() >= LEAST_POINTS);
        let about = "The dashed mark is where speeds are equal, the stretch around it its 95 % interval.".into();
        is_curve.then(|| Chart { bands, marks, ..over_sizes(group.title(), about, series) })
    };
    store_groups(found.rows).iter().filter_map(chart).collect()
}

/// Bandwidth over threads, a chart for each level.
pub(crate) fn scaling(found: &Bandwidth<'_>) -> Vec<Chart> {
    let chart = |level: &str| {
        let of_level: Vec<&Scaling> = found.scaling.iter().filter(|s| s.level == level).collect();
        let lines = of_level.iter().enumerate().map(|(index, scaling)| {
            let rows = scaling.rows.iter().filter_map(|&row| found.rows.get(row));
            let points = rows.filter_map(|row| point(row.threads() as f64, row)).collect();
            Series { colour: index, symbol: index, ..line(scaling.what.clone(), points) }
        });
        let mut series: Vec<Series> = lines.filter(|series: &Series| series.points.len() > 1).collect();
        let ideal = ideal(series.first()?);
        series.push(ideal);
        let about = "Dashed: the first line's speed at its fewest threads, times the threads.".into();
        let axes = (Axis::new("threads", "threads", Scale::Linear), Axis::new(GBPS, "GB/s", Scale::Linear));
        Some(Chart::new(format!("Scaling, {level}"), about, axes.0, axes.1, series))
    };
    each_once(found.scaling.iter().map(|scaling| scaling.level.as_str())).into_iter().filter_map(chart).collect()
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
pub(crate) fn widths(found: &Bandwidth<'_>) -> Vec<Chart> {
    let fewest = found.rows.iter().map(|row| row.threads()).min().unwrap_or(1);
    let is_plain = |row: &&BandwidthRow| {
        row.threads() == fewest
            && row.payload_bps.is_some()
            && row.store() == StoreKind::Regular
            && row.load() == LoadKind::Regular
    };
    let chart = |level: &Level| {
        let rows = || found.rows.iter().filter(is_plain).filter(|row| row.level.as_ref() == Some(&level.name));
        let mut kernels: Vec<&str> = rows().map(|row| row.kernel()).collect();
        kernels.order_by_key(|name| (Kernel::place(name), *name));
        kernels.dedup();
        let fastest = |kernel: &str, width| {
            let of_kernel = rows().filter(|row| row.kernel() == kernel && row.width() == width);
            of_kernel.max_by(|a, b| a.undisturbed_bps().total_cmp(&b.undisturbed_bps()))
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
        let about = WIDTHS.to_string() + &sketch(rows());
        (series.len() > 1).then(|| Chart::new(title, about, x, Axis::new(GBPS, "GB/s", Scale::Linear), series))
    };
    found.levels.iter().filter_map(chart).collect()
}

/// Whether the time went elsewhere.
fn sketch<'a>(rows: impl Iterator<Item = &'a BandwidthRow>) -> String {
    let visits = median(rows.map(|row| row.quality.rounds as f64)).unwrap_or(0.0);
    let is_sketch = visits < VISITS_MIN as f64;
    if is_sketch {
        let visits = counted(visits.round() as u64, "visit");
        format!(" A sketch: a case here had {visits}, a case of the headline many more.")
    } else {
        String::new()
    }
}

/// Samples in order of time: the memory level's best rows, and whatever has two modes.
pub(crate) fn distributions(found: &Bandwidth<'_>) -> Vec<Chart> {
    let memory = found.levels.iter().filter(|level| level.name == "memory").flat_map(|level| &level.best);
    let bimodal = found.rows.iter().enumerate().filter(|(_, row)| row.modes.is_some()).map(|(index, _)| index);
    let mut seen = BTreeSet::new();
    let indices = memory.map(|best| best.row).chain(bimodal).filter(|index| seen.insert(*index));
    let rows = indices.filter_map(|index| found.rows.get(index)).filter(|row| row.quality.samples > 2);
    rows.take(MOST_DISTRIBUTIONS).filter_map(distribution).collect()
}

fn distribution(row: &BandwidthRow) -> Option<Chart> {
    let rate = row.payload_bps?;
    let dot = |(index, seconds): (usize, &f64)| {
        let gbps = row.bytes as f64 / 1e9 / seconds;
        (index as f64 + 1.0, gbps, gbps, gbps, 1)
    };
    let points = row.seconds.iter().enumerate().map(dot).collect();
    let series =
        Series { shape: Shape::Dot, colour: usize::from(row.modes.is_some()), ..line("sample".into(), points) };
    let limit = |name: &str, bps: f64| Limit { name: format!("{name} {}", gbps(bps)), at: bps / 1e9 };
    let mut limits = vec![limit("undisturbed", rate.value())];
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
    let (what, size) = (format!("{} {} {}", row.kernel(), row.store(), row.width()), row.case.working_set);
    let title = format!("{what}, {size}, {}{}", threads(row.threads()), element_note(row.element()));
    let (x, y) = (Axis::new("sample, in order of time", "", Scale::Order), Axis::new(GBPS, "GB/s", Scale::Close));
    Some(Chart { limits, ..Chart::new(title, about, x, y, vec![series]) })
}

fn over_sizes(title: String, about: String, series: Vec<Series>) -> Chart {
    let y = Axis::new("payload bandwidth, GB/s (log)", "GB/s", Scale::Log);
    Chart::new(title, about, Axis::new(WORKING_SET, "", Scale::Sizes), y, series)
}

/// A line for each variant that was measured at enough working sets. Colour says the kernel, dashes the store kind,
/// symbols the width. What the headline tells of is drawn at once.
fn size_series(rows: &[&BandwidthRow], headline: Option<&Crossover>) -> Vec<Series> {
    let mut lines: BTreeMap<_, Vec<&BandwidthRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.payload_bps.is_some()) {
        let manner = (row.load(), row.case.memory, row.case.misaligned_bytes, row.case.protocol);
        let key = (Kernel::place(row.kernel()), row.kernel(), row.element(), row.store(), row.width(), manner);
        lines.entry(key).or_default().push(row);
    }
    lines.retain(|_, rows| sizes(rows) >= LEAST_POINTS);
    let shown: Vec<&BandwidthRow> = lines.values().map(|rows| rows[0]).collect();
    let name = namer(&shown);
    let kernels = each_once(shown.iter().map(|row| row.kernel()));
    let is_told = |row: &BandwidthRow| {
        let is_of_headline = |c: &Crossover| {
            (c.threads, c.store, c.width, c.memory) == (row.threads(), row.store(), row.width(), row.case.memory)
        };
        headline.is_some_and(|headline| headline.kernel == row.kernel() && is_of_headline(headline))
    };
    let mut room = MOST_LINES;
    let series = lines.values().map(|rows| {
        let (row, widest) = (rows[0], shown.iter().filter(|r| r.kernel() == rows[0].kernel()).map(|r| r.width()).max());
        // The other store kinds have charts of their own.
        let is_usual = matches!(row.store(), StoreKind::Regular | StoreKind::Nt)
            && Some(row.width()) == widest
            && row.case.misaligned_bytes == 0;
        let shown = is_told(row) || is_usual && room > 0;
        room = room.saturating_sub(shown.into());
        Series {
            colour: kernels.iter().position(|kernel| *kernel == row.kernel()).unwrap_or(0),
            dash: row.store() as usize,
            symbol: row.width() as usize,
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

fn store_series((place, curve): (usize, &Curve<'_>)) -> Series {
    let (first, colour) = (curve[0], curve[0].store() as usize);
    // Unaligned streams keep their store kind's colour.
    let symbol = if first.case.misaligned_bytes > 0 { place + 1 } else { colour };
    Series { colour, dash: symbol, symbol, ..line(first.store_words(), size_points(curve)) }
}

fn sizes(rows: &[&BandwidthRow]) -> usize {
    rows.iter().map(|row| row.case.working_set).collect::<BTreeSet<_>>().len()
}

fn size_points(rows: &[&BandwidthRow]) -> Vec<Point> {
    let mut points: Vec<Point> =
        rows.iter().filter_map(|row| point(row.case.working_set.0 as f64, row)).filter(|p| p.0 > 0.0).collect();
    points.order_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn point(x: f64, row: &BandwidthRow) -> Option<Point> {
    let rate = row.payload_bps?;
    let short = |bps: f64| rounded(bps / 1e9);
    Some((x, short(rate.value()), short(rate.ends()[0]), short(rate.ends()[1]), row.quality.samples))
}

fn width_name(width: Width) -> String {
    if width == Width::Scalar { "scalar".into() } else { format!("{width} bits") }
}

/// Names variants by their kernel and whatever else differs between them.
fn namer(rows: &[&BandwidthRow]) -> impl Fn(&BandwidthRow) -> String + use<> {
    let differs =
        |word: &dyn Fn(&BandwidthRow) -> String| rows.iter().map(|row| word(row)).collect::<BTreeSet<_>>().len() > 1;
    let store = differs(&|row| row.store().to_string());
    let width = differs(&|row| row.width().to_string());
    let load = differs(&|row| row.load().to_string());
    let memory = differs(&|row| row.case.memory.to_string());
    move |row| {
        let parts = [
            (store, row.store().to_string()),
            (width, row.width().to_string()),
            (load, format!("{} load", row.load())),
            (memory, row.case.memory.to_string()),
            (!row.element().is_usual(), row.element().to_string()),
            (row.case.misaligned_bytes > 0, "unaligned".into()),
            (row.case.protocol == Protocol::Stream, "STREAM passes".into()),
        ];
        let parts = parts.into_iter().filter(|(differs, _)| *differs).map(|(_, word)| word);
        std::iter::once(row.kernel().to_string()).chain(parts).collect::<Vec<_>>().join(" ")
    }
}

/// Where levels lie for this thread count. One thread: up to the capacity. More threads have more private cache, so
/// there the rows tell: a level ends between its largest working set and the next level's smallest.
fn level_bands(found: &Bandwidth<'_>, threads: usize, series: &[Series]) -> Vec<Band> {
    let xs = || series.iter().flat_map(|series| &series.points).map(|point| point.0);
    let (start, end) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    let reach = |name: &str| {
        let is_inside = |row: &&BandwidthRow| row.threads() == threads && row.level.as_deref() == Some(name);
        let sizes = found.rows.iter().filter(is_inside).map(|row| row.case.working_set.0 as f64);
        sizes.fold(None, |reach: Option<(f64, f64)>, size| {
            reach.map_or(Some((size, size)), |(low, high)| Some((low.min(size), high.max(size))))
        })
    };
    let seen: Vec<_> = found.levels.iter().filter_map(|level| Some((level, reach(&level.name)?))).collect();
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
