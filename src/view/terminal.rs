//! Text for an 80-column terminal. Bold and dim only help the eye: a pipe strips them and nothing is lost.

mod addrmap;
mod advisor;
mod check;
mod compare;
mod energy;
mod fleet;
mod handover;
mod kernel;
mod latency;
mod limits;
mod loaded;
mod numa;
mod page_cache;
mod pingpong;
mod roofline;
mod rounding;
mod streams;
mod sweep;
mod verdict;
mod weights;

use std::collections::BTreeSet;
use std::fmt::Write;

use anstyle::Style;

use super::{
    ALONE, CROSSINGS, FLAGS, Flag, PAGES_CAPTION, SPREAD_CAPTION, TRAFFIC, alone, bound, break_even_word,
    counted_by_controllers, crossing, crossover_line, crossovers, element_note, gbps, kernel_reasons, level_kernels,
    level_row, level_threads, machine_line, measured_kinds, offset_cost, page_cost, page_works, protocol_word, ratio,
    reasons, scans, spread, store_groups, store_words, streams, threads,
};
use crate::kernel::scan::Scan;
use crate::model::{
    Cost, Crossover, Kind, Level, PageRow, Rate, Rated, Report, Row, StreamTable, Traffic, Warning, WriteAllocate,
};
use crate::plan::PageWork;
use crate::units::{Bytes, Nanoseconds, percent, significant, utc};

pub use addrmap::addrmap;
pub use advisor::advice;
pub use check::{check, check_line};
pub use compare::comparison;
pub use energy::energy;
pub use fleet::fleet;
pub use kernel::kernel;
pub use latency::{latency, latency_maps};
pub use limits::{limits, sheet};
pub use numa::numa;
pub use page_cache::page_cache;
pub use pingpong::pingpong;
pub use roofline::roofline;
pub use rounding::rounding;
pub use streams::stream_map;
pub use sweep::sweep;
pub use verdict::verdict;
pub use weights::weights;

const COLUMNS: usize = 80;
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// The answer of a whole run: sentences first, then the tables that they come from, then what to distrust.
pub fn summary(report: &Report) -> String {
    let sections = [
        heading(report),
        findings(report),
        levels(report),
        store_kinds(report),
        write_allocate(report),
        scaling(report),
        latency::section(report),
        kinds_section(report, false),
        pages(report),
        offsets(report),
        handover::section(report),
        loaded::section(report),
        addrmap::section(report),
        numa::section(report),
        weights::section(report),
        page_cache::section(report),
        energy::section(report),
        rounding::section(report),
        streams::section(report),
        pingpong::section(report),
        report
            .stream
            .as_ref()
            .map(|table| format!("{}{}", head("STREAM table"), stream_table(table)))
            .unwrap_or_default(),
        warning_list(report.verdict.other_warnings(&report.warnings)),
        roofline::brief(report),
        verdict::section(report),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

/// A line a row. Columns that hold one value throughout stand above the table.
pub fn rows(report: &Report) -> String {
    if report.rows.is_empty() {
        return "No rows: nothing was measured.\n".into();
    }
    let is_lone = report.rows.len() == 1;
    let (mut same, keys): (Vec<_>, Vec<_>) =
        row_keys(&report.rows).into_iter().partition(|c| !is_lone && c.is_constant());
    let (same_settings, settings): (Vec<_>, Vec<_>) =
        row_settings(&report.rows).into_iter().partition(Column::is_constant);
    same.extend(same_settings);
    let mut columns: Vec<Column> = keys.into_iter().chain(settings).chain(row_figures(&report.rows)).collect();
    let mut text = note(&format!("GB/s is payload; {SPREAD_CAPTION}."));
    if !same.is_empty() {
        let same: Vec<String> =
            same.iter().map(|column| format!("{} {}", column.head.replace("-\n", ""), column.cells[0])).collect();
        text += &note(&format!("All rows: {}.", same.join(", ")));
    }
    // The longest names together are too wide: what follows from other columns goes first.
    for spare in ["best", "B/cycle", "level"] {
        if width(&columns, 1) > COLUMNS {
            columns.retain(|column| column.head != spare);
        }
    }
    text + "\n" + &table(&columns) + &legend(&report.rows) + &reason_lines(&kernel_reasons(&report.rows))
}

/// Store kinds side by side over working sets, a table for each kernel and thread count, and the cross-over below.
pub fn stores(report: &Report) -> String {
    let groups = store_groups(report);
    if groups.is_empty() {
        return "No kernel was measured with two store kinds: nothing to compare.\n".into();
    }
    let mut text = note(&format!("GB/s payload, {SPREAD_CAPTION}.")) + "\n";
    for group in &groups {
        let sizes = group.sizes();
        let level = |size: &Bytes| group.columns.iter().find_map(|c| c.at(*size)).map_or_else(String::new, level_name);
        let mut columns = vec![
            Column::right("size", sizes.iter().map(ToString::to_string)),
            Column::left("level", sizes.iter().map(level)),
        ];
        columns.extend(group.columns.iter().map(|column| {
            let cells = sizes.iter().map(|size| column.at(*size).map_or_else(|| "-".into(), figure));
            // One word a line: five kinds side by side are as much as fits.
            Column::right(&store_words(column.rows[0]).replacen(' ', "\n", 1), cells)
        }));
        text += &(head(&group.title()) + &table(&columns));
        let is_ours = |c: &&Crossover| c.kernel == group.kernel && c.threads == group.threads;
        for crossover in report.crossovers.iter().filter(is_ours) {
            text += &item(&crossover_line(crossover));
        }
        text.push('\n');
    }
    text + &reason_lines(&kernel_reasons(&report.rows))
}

/// STREAM's table and validation line in STREAM's own format; the variant stands at the end of each line.
pub fn stream(report: &Report) -> String {
    report.stream.as_ref().map_or_else(|| "The STREAM kernels were not measured.\n".into(), stream_table)
}

/// What pages cost: a line a memory kind and thread count below each work, and what could not be measured. Empty where
/// no work on pages was asked for.
pub fn pages(report: &Report) -> String {
    if report.pages.is_empty() {
        return String::new();
    }
    let works = page_works(report);
    let cells = |title: &dyn Fn(PageWork) -> String, cell: &dyn Fn(&PageRow) -> String| -> Vec<String> {
        let of_work = |(work, rows): &(PageWork, Vec<&PageRow>)| -> Vec<String> {
            std::iter::once(title(*work)).chain(rows.iter().map(|row| cell(row))).collect()
        };
        works.iter().flat_map(of_work).collect()
    };
    let right = |head: &str, cell: &dyn Fn(&PageRow) -> String| {
        Column::right(head, cells(&|_| String::new(), cell).into_iter())
    };
    let number = |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| "-".into(), text);
    let columns = [
        Column::left("", cells(&|work| work.to_string(), &|row| format!("  {}", row.memory)).into_iter()),
        right("threads", &|row| row.threads.to_string()),
        right("page", &|row| row.page_bytes.to_string()),
        right("time\na page", &|row| row.page_ns.as_ref().map_or_else(|| "-".into(), page_cost)),
        right("GB/s", &|row| number(row.bps.map(|rate| rate.median), gbps)),
        right("faults\na page", &|row| number(row.faults_per_page, significant)),
        Column::left("flag", cells(&|_| String::new(), &|row| flag_letters(&row.quality.flags)).into_iter()),
    ];
    let table = if works.is_empty() { "Nothing was measured.\n".into() } else { table(&columns) };
    head("What pages cost")
        + &note(&format!("{PAGES_CAPTION} Times: {SPREAD_CAPTION}."))
        + &table
        + &legend(&report.pages)
        + &reason_lines(&reasons(&report.pages))
}

/// What offsets cost: crossings, 4 KiB aliasing, and forwarding from store to load. Empty where no scan was made.
pub fn offsets(report: &Report) -> String {
    let tables = [crossings(report), aliasing(report), forwarding(report), reason_lines(&reasons(&report.offsets))];
    tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n")
}

fn cycles(cost: Option<Cost>) -> String {
    cost.map_or_else(|| "-".into(), |cost| significant(cost.median))
}

fn crossings(report: &Report) -> String {
    let access = |scan: Scan| match scan {
        Scan::Load { bytes } => Some((scan, format!("load {bytes} B"))),
        Scan::Store { bytes } => Some((scan, format!("store {bytes} B"))),
        Scan::Aliasing { .. } | Scan::Forwarding { .. } => None,
    };
    let scans: Vec<(Scan, String)> = scans(report).into_iter().filter_map(access).collect();
    if scans.is_empty() {
        return String::new();
    }
    let mut columns = vec![Column::left("access", scans.iter().map(|(_, name)| name.clone()))];
    columns.extend(CROSSINGS.iter().map(|(place, head)| {
        Column::right(head, scans.iter().map(|(scan, _)| cycles(offset_cost(report, *scan, place))))
    }));
    let about = "Core clock cycles for one access of many that do not wait for each other, median over offsets. Across \
                 16 B and 32 B: inside a line.";
    head("Line and page crossing") + &note(about) + &table(&columns)
}

fn aliasing(report: &Report) -> String {
    let scans: Vec<Scan> = scans(report).into_iter().filter(|scan| matches!(scan, Scan::Aliasing { .. })).collect();
    if scans.is_empty() {
        return String::new();
    }
    let cells = |place: &'static str| scans.iter().map(move |scan| cycles(offset_cost(report, *scan, place)));
    let columns = [
        Column::left("access", scans.iter().map(|scan| format!("{} B", scan.bytes()[0]))),
        Column::right("apart", cells("apart")),
        Column::right("aliases", cells("aliases")),
    ];
    let about = "Cycles for a store and a load from another page: places in their pages apart, or overlapping.";
    head("4 KiB aliasing") + &note(about) + &table(&columns)
}

/// A matrix: stores down, loads across.
fn forwarding(report: &Report) -> String {
    let sizes = |part: usize| -> BTreeSet<u64> {
        let is_ours = |scan: &Scan| matches!(scan, Scan::Forwarding { .. });
        scans(report).into_iter().filter(is_ours).map(|scan| scan.bytes()[part]).collect()
    };
    let (stored, loaded) = (sizes(0), sizes(1));
    if stored.is_empty() {
        return String::new();
    }
    let cell = |stored: u64, loaded: u64| {
        let scan = Scan::Forwarding { stored: stored as u32, loaded: loaded as u32 };
        let cycles =
            |place| offset_cost(report, scan, place).map_or_else(|| "-".into(), |cost| format!("{:.0}", cost.median));
        ["same place", "inside the store", "overlaps partly"].map(cycles).join(" / ")
    };
    let mut columns = vec![Column::left("store", stored.iter().map(|bytes| format!("{bytes} B")))];
    columns.extend(
        loaded.iter().map(|&loaded| {
            Column::right(&format!("load {loaded} B"), stored.iter().map(|&stored| cell(stored, loaded)))
        }),
    );
    let about = "Cycles from store to load and back into a register: load at the same place / elsewhere inside the store / \
                 overlapping it partly.";
    head("Store-to-load forwarding") + &note(about) + &table(&columns)
}

fn stream_table(table: &StreamTable) -> String {
    let StreamTable { title, array_elements, threads, .. } = table;
    let mut text =
        paragraph(&format!("{title}: arrays of {array_elements} elements, {}.", super::threads(*threads)), "");
    for rule in &table.unmet {
        text += &item(&format!("not met: {rule}"));
    }
    let line = "-".repeat(61) + "\n";
    text += &format!("{line}Function    Best Rate MB/s  Avg time     Min time     Max time\n");
    for row in &table.lines {
        let name = format!("{}:", row.function);
        let (best, avg, min, max) = (row.best_mbps, row.avg_s, row.min_s, row.max_s);
        let _ = writeln!(text, "{name:<11}{best:12.1}  {avg:11.6}  {min:11.6}  {max:11.6}  {}", row.variant);
    }
    text + &line + &paragraph(&table.validation, "") + &line
}

/// Hand-overs between cores: the answer, the matrix, what disturbed it.
pub fn c2c(report: &Report) -> String {
    joined([findings(report), handover::section(report), warnings(report)])
}

/// Latency under load: the answer, the table, what disturbed it.
pub fn loaded(report: &Report) -> String {
    joined([findings(report), loaded::section(report), warnings(report)])
}

fn joined(sections: [String; 3]) -> String {
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Memory kinds side by side: the answer, the table, how each kind is known.
pub fn kinds(report: &Report) -> String {
    let sections = [findings(report), kinds_section(report, true), pages(report), offsets(report), warnings(report)];
    let text = sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n");
    if text.is_empty() { "No memory kinds were measured.\n".into() } else { text }
}

/// `whole`: with how each kind is known, and why others are missing.
fn kinds_section(report: &Report, whole: bool) -> String {
    let Some(kinds) = &report.kinds else { return String::new() };
    let (measured, missing) = measured_kinds(kinds);
    let element = element_note(kinds.element);
    let title = format!("Memory kinds, a buffer of {}, {}{element}", kinds.bytes, threads(kinds.threads));
    let mut text = head(&title)
        + &note(&format!(
            "First and later: a copy to the buffer from regular memory; first counts from asking for the memory. Then GB/s \
             of later copies ({SPREAD_CAPTION}) and, medians, of each way of touching the buffer alone."
        ));
    let time = |cost: Option<Cost>| number(cost.map(|cost| cost.median * 1e9), |ns| Nanoseconds(ns).to_string());
    let copied = |kind: &&Kind| kind.steady.and_then(|index| report.rows.get(index)?.copied_bps);
    let mut columns = vec![
        Column::left("kind", measured.iter().map(|kind| kind.memory.to_string())),
        Column::right("first", measured.iter().map(|kind| time(kind.first_s))),
        Column::right("later", measured.iter().map(|kind| time(kind.steady_s))),
        Column::right(
            "copied",
            measured.iter().map(|kind| copied(kind).as_ref().map_or_else(|| "-".into(), rate_figure)),
        ),
    ];
    for (name, kernel, store, load) in ALONE {
        let cell = |kind: &&Kind| {
            number(alone(report, kind, kernel, store, load).and_then(|row| Some(row.payload_bps?.median)), gbps)
        };
        columns.push(Column::right(&name.replace(' ', "\n"), measured.iter().map(cell)));
    }
    columns.retain(|column| column.cells.iter().any(|cell| cell != "-"));
    columns.push(Column::left("pays\nafter", measured.iter().map(|kind| break_even_word(kind))));
    if !measured.is_empty() {
        text += &table(&columns);
    }
    let line = |kind: &&Kind| item(&format!("{}: {}", kind.memory, kind.proof));
    text.extend(measured.iter().filter(|kind| !kind.proof.is_empty() && (whole || !kind.holds)).map(line));
    if whole {
        text.extend(missing.iter().map(line));
    } else if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(|kind| kind.memory.to_string()).collect();
        text += &item(&format!("Not measured: {}; `membound kinds` says why.", names.join(", ")));
    }
    text
}

fn heading(report: &Report) -> String {
    let line = format!("{} on {}, {}", report.tool, report.host, utc(report.started_unix_s));
    paragraph(&line, "") + &paragraph(&machine_line(&report.machine), "")
}

fn findings(report: &Report) -> String {
    if report.findings.is_empty() {
        return "No findings: nothing was measured that an answer could rest on.\n".into();
    }
    let style = |index| if index == 0 { BOLD } else { Style::new() };
    report.findings.iter().enumerate().map(|(index, text)| styled(style(index), &item(text))).collect()
}

fn levels(report: &Report) -> String {
    if report.levels.iter().all(|level| level.best.is_empty()) {
        return String::new();
    }
    let mut text = head("Levels") + &note(&format!("GB/s payload of the fastest variant, {SPREAD_CAPTION}."));
    let counts = level_threads(report);
    let columns = [
        Column::left("", level_cells(report, &counts, threads, |level, _| format!("  {}", level.name))),
        Column::right(
            "measured",
            level_cells(report, &counts, blank, |level, count| size(level.capacity, count, &counts)),
        ),
        Column::right(
            "claimed",
            level_cells(report, &counts, blank, |level, count| size(level.claimed, count, &counts)),
        ),
    ];
    let kernels = level_kernels(report).into_iter().map(|kernel| {
        let cell = |level: &Level, count| level_row(report, level, kernel, count).map_or_else(|| "-".into(), figure);
        Column::right(kernel, level_cells(report, &counts, blank, cell))
    });
    text += &table(&columns.into_iter().chain(kernels).collect::<Vec<_>>());
    text + &shares(report, &counts)
}

/// How near the levels come to what is known of them without measuring; empty where nothing is.
fn shares(report: &Report, counts: &[usize]) -> String {
    let share = |level: &Level, kernel: &str, count| {
        level_row(report, level, kernel, count).and_then(|row| report.limits.share(row, &report.machine))
    };
    let name = Column::left("", level_cells(report, counts, threads, |level, _| format!("  {}", level.name)));
    let mut columns = vec![name];
    for kernel in level_kernels(report) {
        let cell = |level: &Level, count| number(share(level, kernel, count), percent);
        columns.push(Column::right(kernel, level_cells(report, counts, blank, cell)));
    }
    if columns[1..].iter().all(|column| column.cells.iter().all(|cell| cell.is_empty() || cell == "-")) {
        return String::new();
    }
    let of = report.limits.memory_bps.as_ref().filter(|limit| limit.is_known());
    let memory = of.map_or(String::new(), |limit| format!(" Memory: {}, {}.", limit.basis, limit.says));
    note(&format!("The same as a share of the limit.{memory}")) + &table(&columns)
}

/// A column of the levels table: for each thread count a title, then a cell for each level.
fn level_cells<'a>(
    report: &'a Report,
    counts: &'a [usize],
    title: fn(usize) -> String,
    cell: impl Fn(&Level, usize) -> String + 'a,
) -> impl Iterator<Item = String> + 'a {
    let cells = move |&count: &usize| -> Vec<String> {
        std::iter::once(title(count)).chain(report.levels.iter().map(|level| cell(level, count))).collect()
    };
    counts.iter().flat_map(cells)
}

fn blank(_: usize) -> String {
    String::new()
}

/// A level's size, once: it does not depend on how many threads measure.
fn size(size: Option<Bytes>, count: usize, counts: &[usize]) -> String {
    match size {
        _ if counts.first() != Some(&count) => String::new(),
        Some(size) => size.to_string(),
        None => "-".into(),
    }
}

fn store_kinds(report: &Report) -> String {
    if report.crossovers.is_empty() {
        return String::new();
    }
    let all = crossovers(report);
    let columns = [
        Column::left("kernel", all.iter().map(|c| c.kernel.clone())),
        Column::right("threads", all.iter().map(|c| c.threads.to_string())),
        Column::left("store", all.iter().map(|c| format!("{} {}", c.store, c.width))),
        Column::left("as fast as regular at", all.iter().map(|c| crossing(c))),
        Column::right("gain", all.iter().map(|c| c.gain.map_or_else(|| "-".into(), ratio))),
        Column::right("bound", all.iter().map(|c| bound(c.bound))),
    ];
    head("Store kinds against regular stores")
        + &note(
            "Working set of equal speed, gain at the largest working set, each with its 95 % interval; the gain that the traffic allows.",
        )
        + &table(&columns)
}

fn write_allocate(report: &Report) -> String {
    if report.write_allocate.is_empty() {
        return String::new();
    }
    let cases = &report.write_allocate;
    let rate = |index: usize| {
        report.rows.get(index).and_then(|row| row.payload_bps).map_or_else(|| "-".into(), |rate| gbps(rate.median))
    };
    let threads = |case: &WriteAllocate| format!("{}{}", case.threads, if case.saturates { "*" } else { "" });
    let columns = [
        Column::left("kernel", cases.iter().map(|case| case.kernel.clone())),
        Column::right("thr-\neads", cases.iter().map(threads)),
        Column::right("pay-\nload", cases.iter().map(|case| case.payload_bytes.to_string())),
        Column::right("bus", cases.iter().map(|case| case.bus_bytes.to_string())),
        Column::right("regu-\nlar", cases.iter().map(|case| rate(case.regular))),
        Column::right("nt", cases.iter().map(|case| rate(case.nt))),
        Column::right("nt : regular", cases.iter().map(|case| ratio(case.gain))),
        Column::right("count-\ned", cases.iter().map(|case| bound(case.bound))),
        Column::left("so", cases.iter().map(|case| case.traffic.to_string())),
    ];
    let note_text = "Bytes of an element: payload, and on the bus if each regular store reads its line first. GB/s of payload, \
                     medians; their ratio, and that of the bytes counted. With * threads saturate memory: only there is the \
                     ratio one of traffic.";
    head("Write-allocate, at memory level")
        + &note(note_text)
        + &table(&columns)
        + &traffic_legend(cases)
        + &cases.iter().filter_map(counted_by_controllers).map(|text| paragraph(&text, "  ")).collect::<String>()
}

/// What the words of the last column mean, of those that occur.
fn traffic_legend(cases: &[WriteAllocate]) -> String {
    let occurs = |traffic: &&(Traffic, &str)| cases.iter().any(|case| case.traffic == traffic.0);
    TRAFFIC.iter().filter(occurs).map(|(traffic, means)| paragraph(&format!("{traffic}: {means}"), "  ")).collect()
}

fn scaling(report: &Report) -> String {
    let mut text = String::new();
    for scaling in &report.scaling {
        let rows = scaling.rows.iter().filter_map(|&index| report.rows.get(index));
        let points: Vec<(usize, f64)> =
            rows.filter_map(|row| row.payload_bps.map(|rate| (row.threads, rate.median))).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        let steps: Vec<String> = points.iter().map(|(count, rate)| format!("{count}: {}", gbps(*rate))).collect();
        let times = format!("{} times from {} to {}", significant(last.1 / first.1), first.0, threads(last.0));
        text += &item(&format!("{}, {}: {} GB/s; {times}", scaling.level, scaling.what, steps.join(", ")));
    }
    if text.is_empty() { text } else { head("Scaling") + &note("Threads: GB/s payload, median.") + &text }
}

/// What to distrust, and what helps. Empty where there is nothing.
pub fn warnings(report: &Report) -> String {
    warning_list(report.warnings.iter())
}

fn warning_list<'a>(warnings: impl Iterator<Item = &'a Warning>) -> String {
    let warning = |w: &Warning| item(&w.text) + &paragraph(&format!("-> {}", w.cure), "  ");
    let text: String = warnings.map(warning).collect();
    if text.is_empty() { text } else { head("Warnings, each with its cure") + &text }
}

/// The columns that say what was measured.
fn row_keys(rows: &[Row]) -> Vec<Column> {
    let left = |head: &str, cell: fn(&Row) -> String| Column::left(head, rows.iter().map(cell));
    let right = |head: &str, cell: fn(&Row) -> String| Column::right(head, rows.iter().map(cell));
    vec![
        left("kernel", |row| row.kernel.clone()),
        left("store", |row| row.store.to_string()),
        right("width", |row| row.width.to_string()),
        right("size", |row| row.working_set_bytes.to_string()),
        right("threads", |row| row.threads.to_string()),
        left("level", level_name),
    ]
}

/// The columns that say how it was measured, which seldom differ.
fn row_settings(rows: &[Row]) -> Vec<Column> {
    let mut settings = vec![
        Column::left("load", rows.iter().map(|row| row.load.to_string())),
        Column::left("memory", rows.iter().map(|row| format!("{}{}", row.asked(), streams(row)))),
        Column::right("mis-\naligned", rows.iter().map(|row| Bytes(row.misaligned_bytes.into()).to_string())),
        Column::left("protocol", rows.iter().map(|row| protocol_word(row.protocol).into())),
    ];
    if rows.iter().any(|row| !row.element.is_usual()) {
        settings.push(Column::left("element", rows.iter().map(|row| row.element.to_string())));
    }
    settings
}

/// The columns that say what came of it.
fn row_figures(rows: &[Row]) -> Vec<Column> {
    let right = |head: &str, cell: &dyn Fn(&Row) -> String| Column::right(head, rows.iter().map(cell));
    vec![
        right("GB/s", &figure),
        right("best", &|row| number(row.payload_bps.map(|rate| rate.best), gbps)),
        right("B/cycle", &|row| number(row.bytes_per_cycle, significant)),
        flag_column(rows),
    ]
}

fn flag_letters(flags: &[String]) -> String {
    flags.iter().map(|word| Flag::of(word).map_or("?", |flag| flag.letter)).collect()
}

fn flag_column<'a, R: Rated + 'a>(rows: impl IntoIterator<Item = &'a R>) -> Column {
    Column::left("flag", rows.into_iter().map(|row| flag_letters(&row.quality().flags)))
}

/// What the letters of the flag column mean.
fn legend<'a, R: Rated + 'a>(rows: impl IntoIterator<Item = &'a R>) -> String {
    let seen: BTreeSet<&str> = rows.into_iter().flat_map(|row| &row.quality().flags).map(String::as_str).collect();
    let known = FLAGS.iter().filter(|flag| seen.contains(flag.word));
    let mut lines: Vec<String> = known.map(|f| format!("{} {}: {}", f.letter, f.word, f.means)).collect();
    lines.extend(seen.iter().filter(|word| Flag::of(word).is_none()).map(|word| format!("? {word}")));
    lines.iter().map(|line| paragraph(line, "  ")).collect()
}

fn reason_lines(reasons: &[String]) -> String {
    reasons.iter().map(|reason| item(reason)).collect()
}

fn level_name(row: &Row) -> String {
    row.level.clone().unwrap_or_default()
}

/// `57.3 ±0.7%`, in GB/s.
fn figure(row: &Row) -> String {
    row.payload_bps.as_ref().map_or_else(|| "-".into(), rate_figure)
}

fn number(value: Option<f64>, text: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), text)
}

fn rate_figure(rate: &Rate) -> String {
    format!("{} {}", gbps(rate.median), spread(rate))
}

/// One column of a table, filled from above.
struct Column {
    head: String,
    cells: Vec<String>,
    is_right: bool,
}

impl Column {
    fn left(head: &str, cells: impl Iterator<Item = String>) -> Self {
        Column { head: head.into(), cells: cells.collect(), is_right: false }
    }

    fn right(head: &str, cells: impl Iterator<Item = String>) -> Self {
        Column { is_right: true, ..Column::left(head, cells) }
    }

    fn width(&self) -> usize {
        self.cells
            .iter()
            .map(String::as_str)
            .chain(self.head.lines())
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    }

    fn is_constant(&self) -> bool {
        self.cells.windows(2).all(|pair| pair[0] == pair[1]) && self.cells.iter().all(|cell| !cell.is_empty())
    }

    /// Whether no cell of it holds a figure.
    fn is_blank(&self) -> bool {
        self.cells.iter().all(|cell| cell.trim() == "-")
    }

    fn padded(&self, cell: &str) -> String {
        let width = self.width();
        if self.is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    }
}

fn width(columns: &[Column], gap: usize) -> usize {
    columns.iter().map(|column| column.width() + gap).sum::<usize>() - gap
}

/// Columns two spaces apart, or one where the table would be too wide.
fn table(columns: &[Column]) -> String {
    let gap = if width(columns, 2) > COLUMNS { " " } else { "  " };
    let line = |cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = columns.iter().map(|column| column.padded(&cell(column))).collect();
        cells.join(gap).trim_end().to_string() + "\n"
    };
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let body: String = (0..rows).map(|index| line(&|column| column.cells[index].clone())).collect();
    // Heads stand on the table: a short one leaves the lines above it empty.
    let tallest = columns.iter().map(|column| column.head.lines().count()).max().unwrap_or(0);
    let word = |column: &Column, index: usize| {
        let missing = tallest - column.head.lines().count();
        index.checked_sub(missing).and_then(|index| column.head.lines().nth(index)).unwrap_or_default().to_string()
    };
    let heads: String = (0..tallest).map(|index| line(&|column| word(column, index))).collect();
    styled(BOLD, &heads) + &body
}

fn head(text: &str) -> String {
    styled(BOLD, &paragraph(text, ""))
}

fn note(text: &str) -> String {
    styled(DIM, &paragraph(text, ""))
}

/// A list item: the first line hangs out.
fn item(text: &str) -> String {
    let text = paragraph(text, "  ");
    text.strip_prefix("  ").map_or_else(String::new, |rest| format!("- {rest}"))
}

/// Styles each line by itself, so that no line break falls inside.
fn styled(style: Style, text: &str) -> String {
    text.lines().map(|line| format!("{style}{line}{style:#}\n")).collect()
}

/// Text wrapped at the terminal's width, every line indented. Control characters, which a host name or a file may
/// bring along, are shown as what they are.
fn paragraph(text: &str, indent: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}
