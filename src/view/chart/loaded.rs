//! Latency over bandwidth, a line a mix, with the knee of each.

use super::{Axis, Chart, Point, Scale, Series, Shape, line, rounded};
use crate::model::{LoadCurve, Report};
use crate::view::threads;

/// One chart a number of threads.
pub(in super::super) fn loaded(report: &Report) -> Vec<Chart> {
    let mut counts: Vec<usize> = report.load_curves.iter().map(|curve| curve.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    let chart = |&count: &usize| {
        let curves = || report.load_curves.iter().filter(move |curve| curve.threads == count);
        let mut series: Vec<Series> =
            curves().enumerate().map(|(index, curve)| curve_series(report, curve, index)).collect();
        series.extend(curves().enumerate().filter_map(|(index, curve)| knee(curve, index)));
        let x = Axis::new("bandwidth of the others on the bus, GB/s", "GB/s", Scale::Linear);
        let y = Axis::new("latency of a load from memory, ns", "ns", Scale::Close);
        let knees = if series.iter().any(|series| matches!(series.shape, Shape::Dot)) {
            "Lone dots are knees: there bandwidth over latency is greatest, by the fit of a queue."
        } else {
            "No curve bends far enough for a knee within what was measured."
        };
        let about = knees.into();
        Chart::new(format!("Latency under load, {}", threads(count)), about, x, y, series)
    };
    counts.iter().map(chart).collect()
}

fn curve_series(report: &Report, curve: &LoadCurve, index: usize) -> Series {
    let point = |&row: &usize| -> Option<Point> {
        let row = report.loaded.get(row)?;
        let latency = row.latency_ns?;
        let rate = row.bus_bps.map_or(0.0, |rate| rate.median / 1e9);
        let [low, high] = latency.ci95.map(rounded);
        Some((rounded(rate), rounded(latency.median), low, high, row.quality.samples))
    };
    let points = curve.rows.iter().filter_map(point).collect();
    Series { colour: index, symbol: index, ..line(curve.mix.to_string(), points) }
}

fn knee(curve: &LoadCurve, index: usize) -> Option<Series> {
    let (rate, latency) = (rounded(curve.knee_bps?[0] / 1e9), rounded(curve.knee_ns?));
    let points = vec![(rate, latency, latency, latency, 0)];
    Some(Series { shape: Shape::Dot, colour: index, symbol: 3, ..line(format!("knee {}", curve.mix), points) })
}
