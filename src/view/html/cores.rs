//! Cores beside each other: hand-overs as a heat map, latency under load as curves with their table.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::{SPREAD_CAPTION, Section, boxed, chart, charts, gbps, not_measured, remarks, spread, text};
use crate::model::{HandoverRow, LoadedRow, Report};
use crate::plan::{Home, Load};
use crate::units::{Nanoseconds, significant};
use crate::view::{first_reasons, load_curve_line};

/// Share of the heat's colour in the dearest cell: text on it must stay readable, in light and dark.
const HEAT_MOST: f64 = 45.0;
/// The colour is full at so many times the least latency or beyond: else a difference of one per cent would glow.
const HEAT_RANGE: f64 = 2.0;

pub(super) fn handovers(report: &Report) -> Section {
    let about = "Half of a round trip of one line between two CPUs. The CPU of the row is timed, that of the column answers. \
                 Colour deepens from the least latency to the greatest, or to twice the least if that is more.";
    let reasons = first_reasons(&report.handovers);
    let body = || {
        html! {
            div.matrices { @for &home in Home::ALL { (heat_map(report, home)) } }
            @if !report.handover_groups.is_empty() {
                (boxed("By how near CPUs are: ns, over both directions and homes of all pairs", html! {
                    thead { tr {
                        th { "pairs" } th.num { "rows" } th.num { "least" } th.num { "median" } th.num { "greatest" } th.num { "cycles" }
                    } }
                    tbody { @for group in &report.handover_groups { tr {
                        th { (group.relation) @if let Some([a, b]) = group.kinds { " (" (a) ", " (b) ")" } }
                        td.num { (group.rows) }
                        td.num { (significant(group.least_ns)) }
                        td.num { (significant(group.median_ns)) }
                        td.num { (significant(group.greatest_ns)) }
                        td.num { (group.median_cycles.map_or_else(|| "–".into(), significant)) }
                    } } }
                }))
            }
            (not_measured(&reasons))
        }
    };
    text("c2c", "Core to core", about, (!report.handovers.is_empty()).then(body))
}

fn heat_map(report: &Report, home: Home) -> Markup {
    let rows: Vec<&HandoverRow> =
        report.handovers.iter().filter(|row| row.home == home && row.latency_ns.is_some()).collect();
    let cpus: BTreeSet<u32> = rows.iter().flat_map(|row| [Some(row.from), row.to]).flatten().collect();
    let latencies = || report.handovers.iter().filter_map(|row| row.latency_ns).map(|cost| cost.median);
    let least = latencies().fold(f64::INFINITY, f64::min);
    let most = latencies().fold(HEAT_RANGE * least, f64::max);
    let cell = |from: u32, to: u32| {
        let row = rows.iter().find(|row| (row.from, row.to) == (from, Some(to)));
        let Some((row, cost)) = row.and_then(|row| Some((row, row.latency_ns?))) else { return html! { td {} } };
        let heat = HEAT_MOST * (cost.median - least) / (most - least).max(1e-9);
        let [low, high] = cost.ci95.map(|ns| Nanoseconds(ns).to_string());
        let kinds = row.kinds.map_or_else(String::new, |[a, b]| format!(" ({a} to {b})"));
        let remarks: String = row.quality.flags.iter().map(|flag| format!("; {flag}")).collect();
        html! {
            td.num.heat style={ "--heat: " (format!("{heat:.0}%")) }
                title={ (row.relation) (kinds) "; 95 % interval " (low) " to " (high) (remarks) } { (significant(cost.median)) }
        }
    };
    html! {
        @if !rows.is_empty() {
            (boxed(&format!("ns; the {home} CPU touched the page first"), html! {
                thead { tr { th { "CPU" } @for to in &cpus { th.num { (to) } } } }
                tbody { @for &from in &cpus { tr { th { (from) } @for &to in &cpus { (cell(from, to)) } } } }
            }))
        }
    }
}

pub(super) fn loaded(report: &Report) -> Section {
    let about = "One thread chases pointers through memory while the others move so many bytes a second. A line is loaded before \
                 it is stored, so what these read and write is what crosses the bus.";
    let reasons = first_reasons(&report.loaded);
    let body = || {
        html! {
            @if !report.load_curves.is_empty() { ul { @for curve in &report.load_curves { li { (load_curve_line(curve)) } } } }
            details {
                summary { "All loads" }
                (boxed(&format!("Latency and bandwidth in the same time: {SPREAD_CAPTION}"), html! {
                    thead { tr {
                        th { "others" } th.num { "threads" } th.num { "pause, ns" } th.num { "bus, GB/s" } th.num { "latency" }
                        th.num { "cycles" } th.num { "samples" } th { "remarks" }
                    } }
                    tbody { @for row in &report.loaded { (loaded_line(row)) } }
                }))
            }
            (not_measured(&reasons))
        }
    };
    let body = (!report.loaded.is_empty()).then(body);
    Section { body, ..charts("loaded", "Latency under load", about, chart::loaded(report)) }
}

fn loaded_line(row: &LoadedRow) -> Markup {
    let (what, pause) = match row.load {
        Load::Alone => ("none".into(), String::new()),
        Load::Idle => ("idle".into(), String::new()),
        Load::Mixed { mix, delay_ns } => (mix.to_string(), delay_ns.to_string()),
    };
    html! {
        tr {
            th { (what) }
            td.num { (row.threads) }
            td.num { (pause) }
            td.num { @if let Some(rate) = &row.bus_bps { (gbps(rate.median)) " " small { (spread(rate)) } } @else { "–" } }
            td.num { (row.latency_ns.map_or_else(|| "–".into(), |cost| super::page_cost(&cost))) }
            td.num { (row.latency_cycles.map_or_else(|| "–".into(), significant)) }
            td.num { (row.quality.samples) }
            td { (remarks(&row.quality)) }
        }
    }
}
