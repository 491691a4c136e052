//! Latency: the ladder, independent chains, and the map over cores.

use std::collections::BTreeSet;

use super::{Axis, Band, Chart, LEAST_SIZES, Point, Scale, Series, line, rounded};
use crate::kernel::chase::Order;
use crate::memory::MemoryKind;
use crate::model::{LatencyRow, Report};
use crate::plan::MAP_STRIDE;
use crate::units::Bytes;
use crate::view::map_line_name;

/// All charts of latency.
pub(in crate::view) fn latency(report: &Report) -> Vec<Chart> {
    [ladder(report), parallelism(report), map(report)].into_iter().flatten().collect()
}

/// Nanoseconds over working sets: a line for each memory kind and order, and one for hits in the last cache.
fn ladder(report: &Report) -> Option<Chart> {
    let is_plain = |row: &&LatencyRow| row.stride_bytes == 64 && row.chains == 1 && row.latency_ns.is_some();
    let key = |row: &LatencyRow| (row.memory, row.order, row.last_level.as_deref() == Some("hit"));
    let keys: BTreeSet<(MemoryKind, Order, bool)> = report.latency.rows.iter().filter(is_plain).map(key).collect();
    let kinds: Vec<MemoryKind> = keys.iter().map(|key| key.0).collect::<BTreeSet<_>>().into_iter().collect();
    let series = |&(memory, order, is_hit): &(MemoryKind, Order, bool)| {
        let rows = report.latency.rows.iter().filter(is_plain).filter(|row| key(row) == (memory, order, is_hit));
        let points: Vec<Point> = by_x(rows.filter_map(|row| point(row.working_set_bytes.0 as f64, row)).collect());
        let name = format!("{memory} {order}{}", if is_hit { ", just read" } else { "" });
        Series {
            colour: order as usize,
            dash: kinds.iter().position(|kind| *kind == memory).unwrap_or(0),
            symbol: usize::from(is_hit),
            ..line(name, points)
        }
    };
    let series: Vec<Series> = keys.iter().map(series).filter(|series| series.points.len() > 1).collect();
    let is_curve = series.iter().any(|series| series.points.len() >= LEAST_SIZES);
    let about =
        "One chain. Just read: the working set was read right before each sample, so that what others evict from the \
                 last cache does not show."
            .into();
    let x = Axis::new("working set", "", Scale::Sizes);
    let chart = Chart::new("Latency over working set".into(), about, x, Axis::new(NS, "ns", Scale::Log), series);
    is_curve.then(|| Chart { bands: bands(report), ..chart })
}

const NS: &str = "from a load to the next, ns (log)";

/// Each level from the end of the one before to its own.
fn bands(report: &Report) -> Vec<Band> {
    let levels = &report.latency.levels;
    let mut from = levels.first().map_or(Bytes(0), |level| level.from);
    let mut bands = Vec::new();
    for level in levels {
        let to = level.capacity.unwrap_or(level.to).max(from);
        bands.push(Band { name: level.name.clone(), from: from.0 as f64, to: to.0 as f64 });
        from = to;
    }
    bands
}

/// Lines a second over independent chains.
fn parallelism(report: &Report) -> Option<Chart> {
    let parallelism = report.latency.parallelism.as_ref()?;
    let points = parallelism.points.iter().map(|point| {
        let [median, low, high] = point.latency_ns;
        let rate = |ns: f64| rounded(point.bps * median / ns / 1e9);
        (f64::from(point.chains), rate(median), rate(high), rate(low), 0)
    });
    let points: Vec<Point> = points.collect();
    let (first, last) = (*points.first()?, *points.last()?);
    let ideal = |chains: f64| rounded(first.1 * chains / first.0);
    let straight = [first, last].map(|(chains, ..)| (chains, ideal(chains), ideal(chains), ideal(chains), 0));
    let series = vec![
        line("measured".into(), points),
        Series { colour: 7, dash: 1, ..line("in proportion".into(), straight.to_vec()) },
    ];
    let about = format!(
        "Random lines of {} by one core: chains x 64 B / latency (Little's law). Where the curve bends, its miss buffers are full.",
        parallelism.working_set
    );
    let (x, y) = (
        Axis::new("independent chains", "chains", Scale::Linear),
        Axis::new("lines read, GB/s", "GB/s", Scale::Linear),
    );
    Some(Chart::new("Memory-level parallelism".into(), about, x, y, series))
}

/// Memory latency of each CPU: a line for each node and memory kind.
fn map(report: &Report) -> Option<Chart> {
    let series = |(index, of_node): (usize, &crate::model::MapLine)| {
        let at = |&(cpu, ns): &(u32, f64)| (f64::from(cpu), rounded(ns), rounded(ns), rounded(ns), 0);
        let points = of_node.cores.iter().map(at).collect();
        Series { colour: index, symbol: index, ..line(map_line_name(of_node), points) }
    };
    let series: Vec<Series> = report.latency.map.iter().enumerate().map(series).collect();
    let about =
        format!("Mean over blocks; within a block, places {MAP_STRIDE} bytes apart are visited in random order.");
    let (x, y) = (Axis::new("CPU", "", Scale::Close), Axis::new("memory latency, ns", "ns", Scale::Close));
    let is_chart = series.iter().any(|series| series.points.len() > 1);
    is_chart.then(|| Chart::new("Memory latency by CPU and node".into(), about, x, y, series))
}

fn point(x: f64, row: &LatencyRow) -> Option<Point> {
    let cost = row.latency_ns?;
    Some((x, rounded(cost.median), rounded(cost.ci95[0]), rounded(cost.ci95[1]), row.quality.samples))
}

fn by_x(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}
