//! Latency on the page.

use maud::{Markup, html};

use super::{Section, boxed, charts, not_measured, remarks};
use crate::model::{LatencyRow, Report};
use crate::units::{Bytes, significant};
use crate::view::{
    capacity_with_spread, chart, latency_orders, map_line_name, pages_with_spread, reasons, with_spread,
};

const ABOUT: &str = "A load that waits for the one before: median ± the farther end of its 95 % interval.";

/// Its section.
pub(super) fn section(report: &Report) -> Section {
    let body = (!report.latency.rows.is_empty()).then(|| body(report));
    Section { body, ..charts("latency", "Latency", ABOUT, chart::latency(report)) }
}

fn body(report: &Report) -> Markup {
    let latency = &report.latency;
    let reasons = reasons(&report.latency.rows);
    html! {
        @if !latency.levels.is_empty() { (levels(report)) }
        (orders(report))
        @if !latency.translation.is_empty() { (translation(report)) }
        @if !latency.map.is_empty() { (map(report)) }
        (rows(report))
        (not_measured(&reasons))
    }
}

fn levels(report: &Report) -> Markup {
    let size = |size: Option<Bytes>| size.map_or_else(|| "–".into(), |size| size.to_string());
    boxed(
        "The ladder: latencies and capacities are fitted to the whole curve. In the last cache ns is a hit, right after the \
         working set was read; disturbed is without that",
        html! {
            thead { tr {
                th { "level" } th.num { "ns" } th.num { "cycles" } th.num { "disturbed, ns" } th.num { "capacity measured" }
                th.num { "claimed" }
            } }
            tbody { @for level in &report.latency.levels { tr {
                th { (level.name) }
                td.num { (with_spread(level.latency_ns)) }
                td.num { (level.latency_cycles.map_or_else(|| "–".into(), significant)) }
                td.num { (level.disturbed_ns.map_or_else(|| "–".into(), with_spread)) }
                td.num { @if level.capacity.is_some() { (capacity_with_spread(level)) } @else { "–" } }
                td.num { (size(level.claimed)) }
            } } }
        },
    )
}

/// Nothing where there is one order alone, or no ladder.
fn orders(report: &Report) -> Markup {
    let orders = latency_orders(report);
    let ns = |row: Option<&LatencyRow>| row.and_then(|row| row.latency_ns).map(|cost| significant(cost.median));
    html! { @if orders.len() > 1 && !report.latency.levels.is_empty() {
        (boxed(
            "By order and page size, ns: medians at the largest working set of each level. What prefetchers hide, and what \
             translating addresses adds",
            html! {
                thead { tr {
                    th { "memory" } th { "order" } @for level in &report.latency.levels { th.num { (level.name) } }
                } }
                tbody { @for line in &orders { tr {
                    th { (line.memory) }
                    td { (line.order) }
                    @for row in &line.of_level { td.num { (ns(*row).unwrap_or_else(|| "–".into())) } }
                } } }
            },
        ))
    } }
}

fn translation(report: &Report) -> Markup {
    boxed(
        "Translation buffers for base pages, and what a load takes longer beyond them",
        html! {
            thead { tr { th { "level" } th.num { "pages" } th.num { "reach" } th.num { "ns beyond" } th.num { "cycles" } } }
            tbody { @for level in &report.latency.translation { tr {
                th { (level.level) }
                td.num { (pages_with_spread(level)) }
                td.num { (level.reach) }
                td.num { (with_spread(level.miss_ns)) }
                td.num { (level.miss_cycles.map_or_else(|| "–".into(), significant)) }
            } } }
        },
    )
}

fn map(report: &Report) -> Markup {
    boxed(
        "Memory latency over CPUs, ns: greatest, mean, least, standard deviation",
        html! {
            thead { tr { th { "memory" } th.num { "CPUs" } th.num { "max" } th.num { "avg" } th.num { "min" } th.num { "sd" } } }
            tbody { @for line in &report.latency.map { tr {
                th { (map_line_name(line)) }
                td.num { (line.cores.len()) }
                @for ns in [line.max, line.avg, line.min, line.sd] { td.num { (format!("{ns:.1}")) } }
            } } }
        },
    )
}

fn rows(report: &Report) -> Markup {
    let ns = |row: &LatencyRow| {
        row.latency_ns.map_or_else(|| "–".into(), |cost| with_spread([cost.median, cost.ci95[0], cost.ci95[1]]))
    };
    html! {
        details {
            summary { "Every chase" }
            (boxed("ns from a load to the next of its chain", html! {
                thead { tr {
                    th { "memory" } th { "order" } th.num { "stride" } th.num { "chains" } th.num { "working set" } th { "level" }
                    th.num { "ns" } th.num { "cycles" } th { "remarks" }
                } }
                tbody { @for row in &report.latency.rows { tr {
                    td { (row.memory) }
                    td { (row.order) }
                    td.num { (row.stride_bytes) }
                    td.num { (row.chains) }
                    td.num { (row.working_set_bytes) }
                    td { (row.level.as_deref().unwrap_or("")) " " (row.last_level.as_deref().unwrap_or("")) }
                    td.num { (ns(row)) }
                    td.num { (row.latency_cycles.map_or_else(|| "–".into(), significant)) }
                    td { (remarks(&row.quality)) }
                } } }
            }))
        }
    }
}
