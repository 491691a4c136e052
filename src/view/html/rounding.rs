//! One sum in many ways.

use maud::{Markup, html};

use super::{Section, boxed, chart, charts, gbps, not_measured};
use crate::model::Report;
use crate::model::rounding::{RoundingRow, Verdict};
use crate::units::significant;
use crate::view::{reasons, rounding_way};

const ABOUT: &str = "The same seeded numbers, added up by the machine code at each width, unroll and order, against the exact sum. \
    An ULP is the step from one double to the next. Rows of one sum with the same bits agree bit for bit.";

pub(super) fn section(report: &Report) -> Section {
    let reasons = reasons(&report.rounding.rows);
    let body = || {
        html! {
            @for verdict in &report.rounding.verdicts {
                p { (verdict.sentence()) }
                details { summary { "All ways" } (table(report, verdict)) }
            }
            (not_measured(&reasons))
        }
    };
    let body = (!report.rounding.rows.is_empty()).then(body);
    Section { body, ..charts("rounding", "One sum in many ways", ABOUT, chart::rounding(report)) }
}

fn table(report: &Report, verdict: &Verdict) -> Markup {
    let is_ours =
        |row: &&RoundingRow| row.kernel == verdict.kernel && row.data == verdict.data && row.result_bits.is_some();
    let rows: Vec<&RoundingRow> = report.rounding.rows.iter().filter(is_ours).collect();
    boxed(
        &format!("{}, {}", verdict.kernel, verdict.data),
        html! {
            thead { tr {
                th { "way" } th { "bits" } th.num { "result" } th.num { "ULP from exact" } th { "runs" } th.num { "GB/s" }
                th.num { "samples" } th { "remarks" }
            } }
            tbody { @for row in rows { tr {
                th { (rounding_way(row)) }
                td { @if let Some(bits) = &row.result_bits { (bits) } }
                td.num { @if let Some(result) = row.result { (result) } @else { "–" } }
                td.num { @if let Some(ulps) = row.ulps { (ulps) } @else { "–" } }
                td { @if row.is_repeatable { "same" } @else { "differ" } }
                td.num { @if let Some(rate) = row.payload_bps { (gbps(rate.median)) } @else { "–" } }
                td.num { (row.quality.samples) }
                td { (row.quality.flags.join(" ")) }
            } } }
            @for cost in &verdict.costs { tfoot { tr { td colspan="8" {
                "Fixed order: " (cost.way) ", " (gbps(cost.rate.median)) " GB/s; the fastest is " (significant(cost.slower[0]))
                " x as fast [" (significant(cost.slower[1])) ", " (significant(cost.slower[2])) "]"
            } } } }
        },
    )
}
