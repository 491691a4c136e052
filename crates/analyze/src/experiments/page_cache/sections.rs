//! Page cache beside a kernel: a table over file sizes, one of the cures, and charts of both.

use crate::answer::Answer;
use crate::chart::{Axis, Chart, Point, Scale, Series, line, rounded};
use crate::experiments::page_cache::rows::{CacheCurve, CacheEffect, MOVED, PageCacheReport, PageCacheRow};
use crate::missing::reasons;
use crate::section::{Cell, Room, Section, Table};
use crate::warning::Warning;
use crate::wording::{SPREAD_CAPTION, gbps, ratio, spread, threads, times};
use membound_core::in_order::InOrder;
use membound_core::units::{Bytes, BytesPerSecond, percent, significant};
use membound_core::work::page_cache::{PageCache, Workers};

/// A fall to this share of the speed that would not have shown is worth saying.
const UNSEEN: f64 = 0.9;
/// A node with more of its memory free than this share is not full.
const FREE: f64 = 0.1;

const ABOUT: &str = "A file fills the page cache, then each thread maps fresh memory and runs the kernel over it. Where the page cache \
    leaves a node no room, the kernel takes pages from another one rather than give it up. Free: of the first thread's node, before \
    the memory is mapped; remote: share of its pages on another node than the thread. GB/s payload,";

impl Answer for PageCacheReport {
    fn sentences(&self) -> Vec<String> {
        let beside = self.sides().into_iter().filter_map(|side| both_workers(self, &side));
        self.curves.iter().filter_map(|curve| sentence(self, curve)).chain(beside).collect()
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
            tables: self.sides().iter().flat_map(|side| tables(self, side)).collect(),
            charts: self.sides().iter().flat_map(|side| charts(self, side)).collect(),
            missing: reasons(&self.rows),
            ..Section::default()
        }]
    }
}

/// Those of these rows that have figures.
fn measured<'a>(found: &'a PageCacheReport, indices: &[usize]) -> Vec<&'a PageCacheRow> {
    indices.iter().filter_map(|&index| found.rows.get(index)).filter(|row| row.payload_bps.is_some()).collect()
}

/// So many threads, or processes.
fn workers(row: &PageCacheRow) -> String {
    match (row.work().workers, row.case.threads()) {
        (Workers::Threads, count) => threads(count),
        (Workers::Processes, 1) => "one process".into(),
        (Workers::Processes, count) => format!("{count} processes"),
    }
}

/// What ran, in a line.
fn title(row: &PageCacheRow, side: &[&CacheCurve]) -> String {
    let (PageCache { variant, filler, .. }, case) = (row.work(), &row.case);
    let (size, memory) = (case.working_set, case.memory.kind);
    let who = if side.len() > 1 { format!("{} or processes", threads(case.threads())) } else { workers(row) };
    format!("{} beside page cache, {size} of {memory}, {who}, {filler}", variant.kernel)
}

fn file(row: &PageCacheRow) -> String {
    if row.work().file == Bytes(0) { "none".into() } else { row.work().file.to_string() }
}

fn tables(found: &PageCacheReport, side: &[&CacheCurve]) -> Vec<Table> {
    let rows = |of: fn(&CacheCurve) -> &[usize]| {
        let mut rows: Vec<&PageCacheRow> = side.iter().flat_map(|curve| measured(found, of(curve))).collect();
        // What differs in its workers alone stands below each other.
        rows.order_by_key(|row| (row.work().cure, row.work().file, row.work().workers));
        rows
    };
    let (files, cured) = (rows(|curve| &curve.rows), rows(|curve| &curve.cured));
    let with_workers = |table: Table, rows: &[&PageCacheRow]| match side.len() {
        1 => table,
        _ => table.left("as", rows.iter().map(|row| row.work().workers.to_string())),
    };
    let over_files = |first: &&PageCacheRow| {
        let table = Table::new(title(first, side)).right("file", files.iter().map(|row| file(row)));
        figures(with_workers(table, &files), &files)
    };
    let of_cures = |first: &&PageCacheRow| {
        let table = Table::new(format!("Cures, beside {}", file(first)));
        let table = table.left("cure", cured.iter().map(|row| row.work().cure.to_string()));
        figures(with_workers(table, &cured), &cured)
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
        .in_room(Room::Spare)
        .right("free", rows.iter().map(free))
        .in_room(Room::Spare)
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

/// Speed and remote pages over the size of the file; threads and processes are a line each.
fn charts(found: &PageCacheReport, side: &[&CacheCurve]) -> Vec<Chart> {
    let curves: Vec<Vec<&PageCacheRow>> =
        side.iter().map(|curve| measured(found, &curve.rows)).filter(|rows| !rows.is_empty()).collect();
    let Some(first) = curves.first().and_then(|rows| rows.first()) else { return Vec::new() };
    let file = |row: &PageCacheRow| rounded(row.work().file.0 as f64 / (1u64 << 30) as f64);
    let speed = |row: &PageCacheRow| -> Option<Point> {
        let [median, low, high] = row.payload_bps?.interval().map(|bps| rounded(bps / 1e9));
        Some((file(row), median, low, high, row.quality.samples))
    };
    let flops = |row: &PageCacheRow| -> Option<Point> {
        let by_byte = row.flops_per_s()? / row.payload_bps?.value();
        let [value, low, high] = row.payload_bps?.interval().map(|bps| rounded(bps * by_byte / 1e6));
        Some((file(row), value, low, high, row.quality.samples))
    };
    let remote = |row: &PageCacheRow| -> Option<Point> {
        let share = rounded(row.remote_share? * 100.0);
        Some((file(row), share, share, share, row.quality.samples))
    };
    let chart = |name: &str, y: Axis, point: &dyn Fn(&PageCacheRow) -> Option<Point>| {
        let x = Axis::new("file in the page cache, GiB", "GiB", Scale::Linear);
        let of_curve = |(index, rows): (usize, &Vec<&PageCacheRow>)| {
            let name = if curves.len() > 1 { rows[0].work().workers.to_string() } else { "no cure".into() };
            let points = rows.iter().filter_map(|row| point(row)).collect();
            Series { colour: index, symbol: index, ..line(name, points) }
        };
        let series: Vec<Series> =
            curves.iter().enumerate().map(of_curve).filter(|series| series.points.len() > 1).collect();
        let is_drawn = !series.is_empty();
        is_drawn.then(|| Chart::new(format!("{name}: {}", title(first, side)), String::new(), x, y, series))
    };
    let speeds = Axis::new("payload bandwidth, GB/s", "GB/s", Scale::Linear);
    let work = Axis::new("MFlop/s", "MFlop/s", Scale::Linear);
    let shares = Axis::new("remote pages, %", "%", Scale::Linear);
    let all =
        [chart("Speed", speeds, &speed), chart("Speed in flops", work, &flops), chart("Remote pages", shares, &remote)];
    all.into_iter().flatten().collect()
}

/// How fast processes are beside threads, without a file.
fn both_workers(found: &PageCacheReport, side: &[&CacheCurve]) -> Option<String> {
    let base = |kind: Workers| {
        let of = |curve: &&CacheCurve| measured(found, &curve.rows).into_iter().find(|row| row.work().file == Bytes(0));
        side.iter().filter_map(of).find(|row| row.work().workers == kind)
    };
    let (threads, processes) = (base(Workers::Threads)?, base(Workers::Processes)?);
    let [one, other] = [processes, threads].map(|row| Some(BytesPerSecond(row.payload_bps?.value()).to_string()));
    Some(format!("Without a file {} reach {}, {} {}.", workers(processes), one?, workers(threads), other?))
}

fn sentence(found: &PageCacheReport, curve: &CacheCurve) -> Option<String> {
    let row = |index: usize| found.rows.get(index);
    let (base, largest) = (row(*curve.rows.first()?)?, row(*curve.rows.last()?)?);
    let kernel = &base.work().variant.kernel;
    let who = match base.work().workers {
        Workers::Threads => kernel.clone(),
        Workers::Processes => format!("{kernel} of {}", workers(base)),
    };
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
                "{} the {who} has its minimum: {speed}, {against} its speed without; {}",
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
            let are_seen = curve.rows.iter().all(|&index| row(index).is_some_and(|row| row.remote_share.is_some()));
            let pages = if are_seen { "no page moves" } else { "where its pages lie is not known" };
            let unseen = if low < UNSEEN {
                format!("; a fall to {low_text} x would not have shown, a longer --budget narrows that")
            } else {
                String::new()
            };
            format!(
                "Flat: page cache up to {} leaves the {who} between {low_text} and {high_text} x its speed without, and \
                 {pages}{nowhere}{unseen}",
                largest.work().file
            )
        }
        _ => format!("What page cache does to the {who} can't be told: each file size takes two visits or more"),
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
