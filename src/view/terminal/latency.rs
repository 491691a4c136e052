//! Latency: the ladder, orders and page sizes, translation, chains, and the map over cores.

use super::{Column, findings, flag_letters, head, legend, note, number, reason_lines, table, warnings};
use crate::model::{LatencyRow, MapLine, Report};
use crate::units::{Bytes, significant};
use crate::view::{
    SPREAD_CAPTION, capacity_with_spread, gbps, latency_orders, map_line_name, pages_with_spread, reasons, with_spread,
};

/// What `membound latency` shows: the answer, the tables, what to distrust.
pub fn latency(report: &Report) -> String {
    if report.latency.rows.is_empty() {
        return "No latency was measured.\n".into();
    }
    let sections = [findings(report), section(report), warnings(report)];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The tables. Empty where no chase was made.
pub(super) fn section(report: &Report) -> String {
    let rows =
        if report.latency.levels.is_empty() && report.latency.map.is_empty() { rows(report) } else { String::new() };
    let map = latency_maps(&[(String::new(), report)]);
    let reasons = reason_lines(&reasons(&report.latency.rows));
    let sections = [ladder(report), orders(report), translation(report), parallelism(report), map, rows, reasons];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

fn ladder(report: &Report) -> String {
    let levels = &report.latency.levels;
    if levels.is_empty() {
        return String::new();
    }
    let size = |size: Option<Bytes>| size.map_or_else(|| "-".into(), |size| size.to_string());
    let or_dash = |text: String| if text.is_empty() { "-".into() } else { text };
    let mut columns = vec![
        Column::left("level", levels.iter().map(|level| level.name.clone())),
        Column::right("ns", levels.iter().map(|level| with_spread(level.latency_ns))),
        Column::right("cycles", levels.iter().map(|level| number(level.latency_cycles, significant))),
        Column::right("measured", levels.iter().map(|level| or_dash(capacity_with_spread(level)))),
        Column::right("claimed", levels.iter().map(|level| size(level.claimed))),
    ];
    let mut about = format!(
        "A load that waits for the one before, lines in random order; {SPREAD_CAPTION}. Latencies and capacities are fitted \
         to the whole curve."
    );
    if levels.iter().any(|level| level.disturbed_ns.is_some()) {
        let cell = |ns: Option<[f64; 3]>| ns.map_or_else(|| "-".into(), with_spread);
        columns.push(Column::right("disturbed", levels.iter().map(|level| cell(level.disturbed_ns))));
        about += " In the last cache ns is a hit, right after the working set was read; disturbed is the median without \
                  that, with what others evict meanwhile.";
    }
    head("Latency ladder") + &note(&about) + &table(&columns)
}

fn orders(report: &Report) -> String {
    let orders = latency_orders(report);
    if orders.len() < 2 || report.latency.levels.is_empty() {
        return String::new();
    }
    let mut columns = vec![
        Column::left("memory", orders.iter().map(|line| line.memory.to_string())),
        Column::left("order", orders.iter().map(|line| line.order.to_string())),
    ];
    let cell =
        |row: Option<&LatencyRow>| number(row.and_then(|row| row.latency_ns).map(|cost| cost.median), significant);
    for (index, level) in report.latency.levels.iter().enumerate() {
        columns.push(Column::right(&level.name, orders.iter().map(|line| cell(line.of_level[index]))));
    }
    let about = "ns, medians, at the largest working set of each level: what prefetchers hide of the latency, and what \
                 translating addresses adds.";
    head("Latency by order and page size") + &note(about) + &table(&columns)
}

fn translation(report: &Report) -> String {
    let levels = &report.latency.translation;
    if levels.is_empty() {
        return String::new();
    }
    let columns = [
        Column::left("buffer", levels.iter().map(|level| format!("level {}", level.level))),
        Column::right("pages", levels.iter().map(pages_with_spread)),
        Column::right("reach", levels.iter().map(|level| level.reach.to_string())),
        Column::right("ns beyond", levels.iter().map(|level| with_spread(level.miss_ns))),
        Column::right("cycles", levels.iter().map(|level| number(level.miss_cycles, significant))),
    ];
    let about = "One line in each base page, against as many lines side by side: pages that a level of translation buffers (TLB) holds, and \
                 what a load takes longer beyond it.";
    head("Translation of addresses") + &note(about) + &table(&columns)
}

fn parallelism(report: &Report) -> String {
    let Some(parallelism) = &report.latency.parallelism else { return String::new() };
    let points = &parallelism.points;
    let columns = [
        Column::right("chains", points.iter().map(|point| point.chains.to_string())),
        Column::right("ns", points.iter().map(|point| with_spread(point.latency_ns))),
        Column::right("GB/s", points.iter().map(|point| gbps(point.bps))),
    ];
    let about = format!(
        "Independent chains through {} of {} by one core: ns from link to link, and lines a second by Little's law (chains x \
         64 B / latency).",
        parallelism.working_set, parallelism.memory
    );
    head("Memory-level parallelism") + &note(&about) + &table(&columns)
}

/// Maps that fit beside each other.
const MAPS_ABREAST: usize = 2;

/// Memory latency over cores: a line for each node and memory kind, a column for each report that has a map. Empty
/// where none has.
pub fn latency_maps(reports: &[(String, &Report)]) -> String {
    let mapped: Vec<&(String, &Report)> = reports.iter().filter(|(_, report)| !report.latency.map.is_empty()).collect();
    let mut names: Vec<String> = Vec::new();
    for name in mapped.iter().flat_map(|(_, report)| &report.latency.map).map(map_line_name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let figures = |line: &MapLine| format!("{:.1} {:>5.1} {:>5.1} {:.1}", line.max, line.avg, line.min, line.sd);
    let columns = |mapped: &[&(String, &Report)]| {
        let mut columns = vec![Column::left("memory", names.iter().cloned())];
        for (title, report) in mapped {
            let line = |name: &String| report.latency.map.iter().find(|line| map_line_name(line) == *name);
            let cells = names.iter().map(|name| line(name).map_or_else(|| "-".into(), figures));
            columns.push(Column::right(format!("{title}\nmax   avg   min  sd").trim_start(), cells));
        }
        table(&columns)
    };
    let tables: Vec<String> = mapped.chunks(MAPS_ABREAST).map(columns).collect();
    let count =
        mapped.iter().flat_map(|(_, report)| &report.latency.map).map(|line| line.cores.len()).max().unwrap_or(0);
    let about = format!(
        "ns over {count} CPU{}: greatest, mean, least, standard deviation. Of each CPU the mean over blocks within which \
         even-numbered lines were permuted.",
        if count == 1 { "" } else { "s" }
    );
    head("Memory latency by CPU and node") + &note(&about) + &tables.join("\n")
}

/// A line a row, where there are too few for a ladder.
fn rows(report: &Report) -> String {
    let rows = &report.latency.rows;
    if rows.is_empty() {
        return String::new();
    }
    let left = |head: &str, cell: &dyn Fn(&LatencyRow) -> String| Column::left(head, rows.iter().map(cell));
    let right = |head: &str, cell: &dyn Fn(&LatencyRow) -> String| Column::right(head, rows.iter().map(cell));
    let ns = |row: &LatencyRow| {
        row.latency_ns.map_or_else(|| "-".into(), |cost| with_spread([cost.median, cost.ci95[0], cost.ci95[1]]))
    };
    let level = |row: &LatencyRow| {
        let reading = row.last_level.as_ref().map_or(String::new(), |reading| format!(", {reading}"));
        row.level.clone().unwrap_or_default() + &reading
    };
    let columns = [
        left("memory", &|row| row.memory.to_string()),
        left("order", &|row| row.order.to_string()),
        right("stride", &|row| row.stride_bytes.to_string()),
        right("chains", &|row| row.chains.to_string()),
        right("size", &|row| row.working_set_bytes.to_string()),
        left("level", &level),
        right("ns", &ns),
        right("cycles", &|row| number(row.latency_cycles, significant)),
        left("flag", &|row| flag_letters(&row.quality.flags)),
    ];
    head("Latency")
        + &note(&format!("ns from a load to the next of its chain; {SPREAD_CAPTION}."))
        + &table(&columns)
        + &legend(rows)
}
