//! Bandwidth and where pages came to lie over the size of a file in the page cache.

use super::{Axis, Chart, Point, Scale, Series, line, rounded};
use crate::model::Report;
use crate::model::page_cache::{CacheCurve, PageCacheRow};
use crate::view::page_cache_title;

/// Two charts a kernel: speed, remote pages.
pub(in super::super) fn page_cache(report: &Report) -> Vec<Chart> {
    report.page_cache.curves.iter().flat_map(|curve| charts(report, curve)).collect()
}

fn charts(report: &Report, curve: &CacheCurve) -> Vec<Chart> {
    let rows = || curve.rows.iter().filter_map(|&index| report.page_cache.rows.get(index));
    let file = |row: &PageCacheRow| rounded(row.file_bytes.0 as f64 / (1u64 << 30) as f64);
    let speed = |row: &PageCacheRow| -> Option<Point> {
        let rate = row.payload_bps?;
        let [median, low, high] = [rate.median, rate.ci95[0], rate.ci95[1]].map(|bps| rounded(bps / 1e9));
        Some((file(row), median, low, high, row.quality.samples))
    };
    let remote = |row: &PageCacheRow| -> Option<Point> {
        let share = rounded(row.remote_share? * 100.0);
        Some((file(row), share, share, share, row.quality.samples))
    };
    let x = || Axis::new("file in the page cache, GiB", "GiB", Scale::Linear);
    let speeds = Axis::new("payload bandwidth, GB/s", "GB/s", Scale::Linear);
    let shares = Axis::new("remote pages, %", "%", Scale::Linear);
    let series = |name: &str, points: Vec<Point>| -> Vec<Series> {
        if points.len() < 2 { Vec::new() } else { vec![line(name.into(), points)] }
    };
    let Some(title) = rows().next().map(page_cache_title) else { return Vec::new() };
    let all = [
        ("no cure", format!("Speed: {title}"), speeds, rows().filter_map(speed).collect()),
        ("no cure", format!("Remote pages: {title}"), shares, rows().filter_map(remote).collect()),
    ];
    let chart = |(name, title, y, points)| Chart::new(title, String::new(), x(), y, series(name, points));
    all.into_iter().map(chart).filter(|chart| !chart.series.is_empty()).collect()
}
