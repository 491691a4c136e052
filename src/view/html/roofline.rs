//! The roofline: a chart for each thread count, and the figures behind it.

use maud::{PreEscaped, html};

use super::{Section, boxed, text, threads};
use crate::model::Report;
use crate::units::{percent, significant};
use crate::view::{gbps, svg};

const ABOUT: &str = "What a loop computes over what it moves. Its roof is what arithmetic and bandwidth, each measured alone, \
    allow for its own mix of instructions and of reads and writes.";

pub(super) fn section(report: &Report) -> Section {
    let roofline = &report.roofline;
    if roofline.arithmetic.is_empty() {
        return text("roofline", "Roofline", ABOUT, None);
    }
    let body = html! {
        @if let Some(answer) = roofline.answer() { p { (answer) } }
        @for count in roofline.threads() {
            @if let Some(chart) = svg::of_threads(report, count) { figure { (PreEscaped(chart)) } }
        }
        (boxed("Arithmetic in registers: best sample", html! {
            thead { tr { th { "arithmetic" } th { "width" } th { "element" } th.num { "threads" }
                th.num { "GF/s" } th.num { "specified" } } }
            tbody { @for ceiling in &roofline.arithmetic { tr {
                th { (ceiling.balance) } td { (ceiling.width) } td { (ceiling.element) } td.num { (ceiling.threads) }
                td.num { (giga(ceiling.measured.map(|rate| rate.best))) } td.num { (giga(ceiling.specified)) }
            } } }
        }))
        (boxed("Bandwidth without arithmetic, best sample: of loads and stores in L1, of the bus beyond", html! {
            thead { tr { th { "level" } th { "kernel" } th { "stores" } th { "width" } th.num { "threads" }
                th.num { "GB/s" } th.num { "limit" } } }
            tbody { @for ceiling in &roofline.bandwidth { tr {
                th { (ceiling.level) } td { (ceiling.kernel) } td { (ceiling.store) } td { (ceiling.width) }
                td.num { (ceiling.threads) } td.num { (gbps(ceiling.measured.best)) }
                td.num { (ceiling.specified.map_or_else(|| "–".into(), gbps)) }
            } } }
        }))
        (boxed("Kernels below their roofs", html! {
            thead { tr { th { "kernel" } th { "on" } th { "level" } th.num { "flop/B" } th.num { "GF/s" }
                th.num { "roof" } th.num { "reached [95 %]" } th { "below" } } }
            tbody { @for point in &roofline.points { @if let Some(row) = report.rows.get(point.row) { tr {
                th { (row.kernel) " " (row.width) " " (row.store) } td { (threads(row.threads)) } td { (point.level) }
                td.num { (significant(point.intensity)) } td.num { (significant(point.flops_per_s[0] / 1e9)) }
                td.num { (significant(point.predicted / 1e9)) }
                td.num { (percent(point.fraction[0])) " [" (percent(point.fraction[1])) ", " (percent(point.fraction[2])) "]" }
                td { (point.ceiling) }
            } } } }
        }))
    };
    text("roofline", "Roofline", ABOUT, Some(body))
}

fn giga(flops: Option<f64>) -> String {
    flops.map_or_else(|| "–".into(), |flops| significant(flops / 1e9))
}
