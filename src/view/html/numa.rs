//! Memory from everywhere: heat maps, what each node is, cores and bandwidth.

use maud::{Markup, html};

use super::{SPREAD_CAPTION, Section, boxed, gbps, remarks, spread, text};
use crate::model::{Cost, MeasuredNode, Numa, NumaInitiator, NumaRow, Rate, Report, Saturation, SideCache};
use crate::units::{Nanoseconds, significant};
use crate::view::{NumaMatrix, first_reasons, numa_matrices};

/// Share of the heat's colour in the deepest cell: text on it must stay readable, in light and dark.
const HEAT_MOST: f64 = 45.0;

pub(super) fn section(report: &Report) -> Section {
    let about = "Each set of CPUs, one thread a core, against the memory of each node. The deeper the colour, the better; bold is \
                 the best of its row.";
    text("numa", "NUMA", about, report.numa.as_ref().map(body))
}

fn body(numa: &Numa) -> Markup {
    let reasons = first_reasons(&numa.rows);
    html! {
        @for matrix in numa_matrices(numa) { (heat_map(numa, &matrix)) }
        @if numa.kinds.len() > 1 { (kinds(&numa.kinds)) }
        @if !numa.saturation.is_empty() { (saturation(&numa.saturation)) }
        @for cache in &numa.side_caches { (side_cache(cache)) }
        (rows(numa))
        @if !reasons.is_empty() || !numa.left_out.is_empty() {
            p { "Not measured:" }
            ul { @for reason in numa.left_out.iter().chain(&reasons) { li { (reason) } } }
        }
    }
}

fn heat_map(numa: &Numa, matrix: &NumaMatrix) -> Markup {
    let figures: Vec<f64> = numa
        .initiators
        .iter()
        .flat_map(|from| numa.nodes.iter().filter_map(|&to| matrix.value(numa, from, to)))
        .collect();
    let (least, most) =
        (figures.iter().copied().fold(f64::INFINITY, f64::min), figures.iter().copied().fold(0.0, f64::max));
    let cell = |from: &NumaInitiator, to: u32| {
        let Some((row, value)) = matrix.row(numa, from, to).zip(matrix.value(numa, from, to)) else {
            return html! { td.num { "–" } };
        };
        let share = (value - least) / (most - least).max(1e-9);
        let share = if matrix.is_latency() { 1.0 - share } else { share };
        // One value alone is neither good nor bad.
        let heat = if most > least { HEAT_MOST * share } else { 0.0 };
        let figure = figure(row);
        html! {
            td.num.heat style={ "--heat: " (format!("{heat:.0}%")) } title={ (interval(row)) "; " (row.quality.flags.join(" ")) } {
                @if matrix.is_best(numa, from, to) { b { (figure) } } @else { (figure) }
            }
        }
    };
    boxed(
        &format!("{}: medians", matrix.title),
        html! {
            thead { tr { th { "from" } @for to in &numa.nodes { th.num { "node " (to) } } } }
            tbody { @for from in &numa.initiators {
                // A cache or cluster meets only the nodes beside it.
                tr { th { (from.name) } @for &to in &numa.nodes { (cell(from, to)) } }
            } }
        },
    )
}

fn figure(row: &NumaRow) -> String {
    let rate = row.payload_bps.map(|rate| gbps(rate.median));
    rate.or_else(|| row.latency_ns.map(|cost| significant(cost.median))).unwrap_or_else(|| "–".into())
}

fn interval(row: &NumaRow) -> String {
    let rate = row.payload_bps.map(|rate| rate.ci95.map(gbps));
    let ends = rate.or_else(|| row.latency_ns.map(|cost| cost.ci95.map(|ns| Nanoseconds(ns).to_string())));
    ends.map_or_else(String::new, |[low, high]| format!("95 % interval {low} to {high}"))
}

fn kinds(kinds: &[MeasuredNode]) -> Markup {
    let ratio = |ratio: Option<[f64; 3]>| match ratio {
        Some([value, low, high]) => {
            html! { td.num { (significant(value)) " " small { "[" (significant(low)) ", " (significant(high)) "]" } } }
        }
        None => html! { td.num { "–" } },
    };
    let verdict = |kind: &MeasuredNode| match kind.is_confirmed {
        Some(true) => "confirmed",
        Some(false) => "contradicted",
        None => "",
    };
    boxed(
        "What each node is: by firmware and topology, and against the node of the nearest cores [95 %]",
        html! {
            thead { tr {
                th { "node" } th { "kind" } th.num { "bandwidth" } th.num { "latency" } th { "measured" } th { "why" }
            } }
            tbody { @for kind in kinds { tr {
                th { (kind.nature.node) }
                td { (kind.nature.kind) }
                (ratio(kind.bandwidth)) (ratio(kind.latency))
                td { (verdict(kind)) }
                td { @for (index, evidence) in kind.nature.evidence.iter().enumerate() { @if index > 0 { "; " } (evidence.says) } }
            } } }
        },
    )
}

fn saturation(curves: &[Saturation]) -> Markup {
    boxed(
        "How many cores saturate a domain: cores and GB/s, medians",
        html! {
            thead { tr {
                th { "from" } th.num { "node" } th { "way" } th.num { "95 % at" } th { "limit" } th { "cores: GB/s" }
            } }
            tbody { @for curve in curves { tr {
                th { (curve.initiator) }
                td.num { (curve.node) }
                td { (curve.way) }
                td.num { (curve.cores) }
                td { (curve.limit) }
                td { @for (index, (cores, rate)) in curve.points.iter().enumerate() {
                    @if index > 0 { ", " } (cores) ": " (gbps(rate.median))
                } }
            } } }
        },
    )
}

fn side_cache(cache: &SideCache) -> Markup {
    boxed(
        &format!("Loads around the memory-side cache of node {}, {}", cache.node, cache.claimed),
        html! {
            thead { tr { th { "working set" } th.num { "GB/s" } } }
            tbody { @for (size, rate) in &cache.points { tr {
                th { (size) }
                td.num { (gbps(rate.median)) " " small { (spread(rate)) } }
            } } }
        },
    )
}

fn rows(numa: &Numa) -> Markup {
    let cost = |cost: Cost| {
        let Cost { best, median, ci95 } = cost;
        format!("{} ns {}", significant(median), spread(&Rate { best, median, ci95 }))
    };
    let value = |row: &NumaRow| {
        let rate = row.payload_bps.map(|rate| format!("{} GB/s {}", gbps(rate.median), spread(&rate)));
        rate.or_else(|| row.latency_ns.map(cost)).unwrap_or_else(|| "–".into())
    };
    html! {
        details {
            summary { "Every figure" }
            (boxed(&format!("Payload and latency: {SPREAD_CAPTION}"), html! {
                thead { tr {
                    th { "from" } th.num { "node" } th { "way" } th.num { "cores" } th { "memory" } th.num { "working set" }
                    th.num { "figure" } th.num { "samples" } th { "remarks" }
                } }
                tbody { @for row in &numa.rows { tr {
                    td { (row.initiator) }
                    td.num { (row.node) }
                    td { (row.way) }
                    td.num { (row.cores) }
                    td { (row.memory) }
                    td.num { (row.working_set_bytes) }
                    td.num { (value(row)) }
                    td.num { (row.quality.samples) }
                    td { (remarks(&row.quality)) }
                } } }
            }))
        }
    }
}
