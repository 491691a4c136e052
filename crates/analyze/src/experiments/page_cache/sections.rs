//! Page cache beside a kernel: a table over file sizes, one of the cures, and charts of both.

use crate::answer::{Answer, SchemaOf, schema};
use crate::chart::{Axis, Chart, Point, Scale, line, rounded};
use crate::experiments::page_cache::rows::{CacheCurve, CacheEffect, MOVED, PageCacheReport, PageCacheRow};
use crate::row::{AnyRow, any};
use crate::section::{Cell, Section, Table};
use crate::warning::Warning;
use crate::wording::{SPREAD_CAPTION, first_reasons, gbps, ratio, spread, threads, times};
use membound_core::units::{Bytes, BytesPerSecond, percent, significant};
use membound_core::work::page_cache::PageCache;

/// A fall to this share of the speed that would not have shown is worth saying.
const UNSEEN: f64 = 0.9;
/// A node with more of its memory free than this share is not full.
const FREE: f64 = 0.1;

const ABOUT: &str = "A file fills the page cache, then each thread maps fresh memory and runs the kernel over it. Where the page cache \
    leaves a node no room, the kernel takes pages from another one rather than give it up. Free: of the first thread's node, before \
    the memory is mapped; remote: share of its pages on another node than the thread. GB/s payload,";

impl Answer for PageCacheReport {
    const NAME: &'static str = "page-cache";
    const SCHEMAS: &'static [SchemaOf] = &[schema::<PageCacheRow>];

    fn rows(&self) -> Vec<&dyn AnyRow> {
        any(&self.rows)
    }

    fn sentences(&self) -> Vec<String> {
        self.curves.iter().filter_map(|curve| sentence(self, curve)).collect()
    }

    fn sections(&self) -> Vec<Section> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        vec![Section {
            id: "page-cache",
            title: "Page cache".into(),
            about: format!("{ABOUT} {SPREAD_CAPTION}."),
            sentences: self.sentences(),
            tables: self.curves.iter().flat_map(|curve| tables(self, curve)).collect(),
            charts: self.curves.iter().flat_map(|curve| charts(self, curve)).collect(),
            missing: first_reasons(&self.rows),
            ..Section::default()
        }]
    }
}

/// Those of these rows that have figures.
fn measured<'a>(found: &'a PageCacheReport, indices: &[usize]) -> Vec<&'a PageCacheRow> {
    indices.iter().filter_map(|&index| found.rows.get(index)).filter(|row| row.payload_bps.is_some()).collect()
}

/// What ran, in a line.
fn title(row: &PageCacheRow) -> String {
    let (PageCache { variant, filler, .. }, case) = (row.work(), &row.case);
    let (size, memory, threads) = (case.working_set, case.memory.kind, threads(case.threads()));
    format!("{} beside page cache, {size} of {memory}, {threads}, {filler}", variant.kernel)
}

fn file(row: &PageCacheRow) -> String {
    if row.work().file == Bytes(0) { "none".into() } else { row.work().file.to_string() }
}

fn tables(found: &PageCacheReport, curve: &CacheCurve) -> Vec<Table> {
    let (files, cured) = (measured(found, &curve.rows), measured(found, &curve.cured));
    let over_files = |first: &&PageCacheRow| {
        figures(Table::new(title(first)).right("file", files.iter().map(|row| file(row))), &files)
    };
    let of_cures = |first: &&PageCacheRow| {
        let table = Table::new(format!("Cures, beside {}", file(first)));
        figures(table.left("cure", cured.iter().map(|row| row.work().cure.to_string())), &cured)
    };
    files.first().map(over_files).into_iter().chain(cured.first().map(of_cures)).collect()
}

fn figures(table: Table, rows: &[&PageCacheRow]) -> Table {
    let free = |row: &&PageCacheRow| {
        let hint = row.nodes.iter().map(|node| format!("{}: {}", node.node, node.free)).collect::<Vec<_>>().join(", ");
        row.home_room().map(|room| Cell { text: room.free.to_string(), hint, ..Cell::default() })
    };
    let helps = |row: &&PageCacheRow| row.helps.map(|helps| if helps { "yes" } else { "no" });
    table
        .right("cached", rows.iter().map(|row| row.cached_bytes.map(|bytes| bytes.to_string())))
        .right("free", rows.iter().map(free))
        .right("remote", rows.iter().map(|row| row.remote_share.map(percent)))
        .right(
            "GB/s",
            rows.iter().map(|row| row.payload_bps.map(|rate| format!("{} {}", gbps(rate.value()), spread(&rate)))),
        )
        .right("MFlop/s", rows.iter().map(|row| row.flops_per_s().map(|flops| significant(flops / 1e6))))
        .right("of no file", rows.iter().map(|row| row.against_no_file.map(ratio)))
        .left("helps", rows.iter().map(helps))
        .flags(rows.iter().copied())
        .without_blanks()
}

/// Speed and remote pages over the size of the file.
fn charts(found: &PageCacheReport, curve: &CacheCurve) -> Vec<Chart> {
    let rows = measured(found, &curve.rows);
    let Some(first) = rows.first() else { return Vec::new() };
    let file = |row: &PageCacheRow| rounded(row.work().file.0 as f64 / (1u64 << 30) as f64);
    let speed = |row: &&PageCacheRow| -> Option<Point> {
        let rate = row.payload_bps?;
        let [median, low, high] = rate.interval().map(|bps| rounded(bps / 1e9));
        Some((file(row), median, low, high, row.quality.samples))
    };
    let remote = |row: &&PageCacheRow| -> Option<Point> {
        let share = rounded(row.remote_share? * 100.0);
        Some((file(row), share, share, share, row.quality.samples))
    };
    let chart = |(name, y, points): (&str, Axis, Vec<Point>)| {
        let x = Axis::new("file in the page cache, GiB", "GiB", Scale::Linear);
        let series = vec![line("no cure".into(), points)];
        let chart = Chart::new(format!("{name}: {}", title(first)), String::new(), x, y, series);
        (chart.series[0].points.len() > 1).then_some(chart)
    };
    let flops = |row: &&PageCacheRow| -> Option<Point> {
        let by_byte = row.flops_per_s()? / row.payload_bps?.value();
        let [value, low, high] = row.payload_bps?.interval().map(|bps| rounded(bps * by_byte / 1e6));
        Some((file(row), value, low, high, row.quality.samples))
    };
    let speeds = Axis::new("payload bandwidth, GB/s", "GB/s", Scale::Linear);
    let work = Axis::new("MFlop/s", "MFlop/s", Scale::Linear);
    let shares = Axis::new("remote pages, %", "%", Scale::Linear);
    let all = [
        ("Speed", speeds, rows.iter().filter_map(speed).collect()),
        ("Speed in flops", work, rows.iter().filter_map(flops).collect()),
        ("Remote pages", shares, rows.iter().filter_map(remote).collect()),
    ];
    all.into_iter().filter_map(chart).collect()
}

fn sentence(found: &PageCacheReport, curve: &CacheCurve) -> Option<String> {
    let row = |index: usize| found.rows.get(index);
    let (base, largest) = (row(*curve.rows.first()?)?, row(*curve.rows.last()?)?);
    let kernel = &base.work().variant.kernel;
    let worst = curve.worst.and_then(row);
    let beside = |row: &PageCacheRow| format!("Beside {} of page cache", row.work().file);
    let remote = |row: &PageCacheRow| match row.remote_share {
        Some(share) if share > MOVED => {
            format!("{} of the {kernel}'s pages lie on another node than their thread", percent(share))
        }
        Some(_) => "no page moved to another node".into(),
        None => "where its pages lie is not known".into(),
    };
    let text = match (curve.effect, worst) {
        (CacheEffect::Minimum, Some(worst)) => {
            let speed = BytesPerSecond(worst.payload_bps?.value());
            let against = times(worst.against_no_file?);
            format!(
                "{} the {kernel} has its minimum: {speed}, {against} its speed without; {}",
                beside(worst),
                remote(worst)
            )
        }
        (CacheEffect::Moved, Some(worst)) => {
            let against = worst.against_no_file.map(times);
            let against = against.map_or_else(String::new, |ratio| format!(" ({ratio} its speed without)"));
            format!("{} {}; its speed stays within the intervals{against}", beside(worst), remote(worst))
        }
        (CacheEffect::Flat, _) => {
            let ratios = || curve.rows.iter().filter_map(|&index| row(index)?.against_no_file);
            let low = ratios().map(|ratio| ratio[1]).fold(f64::INFINITY, f64::min);
            let high = ratios().map(|ratio| ratio[2]).fold(0.0, f64::max);
            let nowhere = if found.nodes == 1 { ": this machine has one node" } else { "" };
            let [low_text, high_text] = [low, high].map(significant);
            let unseen = if low < UNSEEN {
                format!("; a fall to {low_text} x would not have shown, a longer --budget narrows that")
            } else {
                String::new()
            };
            format!(
                "Flat: page cache up to {} leaves the {kernel} between {low_text} and {high_text} x its speed without, and no \
                 page moves{nowhere}{unseen}",
                largest.work().file
            )
        }
        _ => format!("What page cache does to the {kernel} can't be told: each file size takes two visits or more"),
    };
    Some(text + &cure_words(found, curve) + ".")
}

/// `; bind and sweep help, preferred does not`
fn cure_words(found: &PageCacheReport, curve: &CacheCurve) -> String {
    let named = |helps: bool| -> Vec<&str> {
        let rows = curve.cured.iter().filter_map(|&index| found.rows.get(index));
        rows.filter(|row| row.helps == Some(helps)).map(|row| row.work().cure.word()).collect()
    };
    let verb = |names: &[&str], one: &str, many: &str| {
        let listed = match names {
            [] => return None,
            [first] => (*first).to_string(),
            [first @ .., last] => format!("{} and {last}", first.join(", ")),
        };
        Some(format!("{listed} {}", if names.len() == 1 { one } else { many }))
    };
    let parts = [verb(&named(true), "helps", "help"), verb(&named(false), "does not help", "do not help")];
    let said: Vec<String> = parts.into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!("; against that {}", said.join(", ")) }
}

/// What limits the answer.
pub(crate) fn warnings(found: &PageCacheReport) -> Vec<Warning> {
    let kept = found.kept.iter().map(|why| Warning {
        text: format!("the page cache could not be emptied before each file ({why})"),
        cure: "what others keep in it stands beside every figure, without a file too; run as root, or `membound sweep` first"
            .into(),
    });
    kept.chain(found.curves.iter().filter_map(|curve| unfilled(found, curve))).collect()
}

/// A file that fills no node can't show what a full one does.
fn unfilled(found: &PageCacheReport, curve: &CacheCurve) -> Option<Warning> {
    let largest = found.rows.get(*curve.rows.last()?)?;
    let room = largest.home_room()?;
    let is_filled = (room.free.0 as f64) < FREE * room.total.0 as f64;
    if is_filled || found.nodes < 2 || curve.effect != CacheEffect::Flat {
        return None;
    }
    Some(Warning {
        text: format!(
            "the largest file ({}) left {} of node {} free: what a full node does was not seen",
            largest.work().file,
            room.free,
            room.node
        ),
        cure: "give a greater --share".into(),
    })
}
