//! Where lines live.

use maud::{Markup, html};

use super::{Section, boxed, remarks, text};
use crate::model::{AddrmapRow, Report};
use crate::units::significant;

const ABOUT: &str = "Two lines conflict if loading them together takes longer: they share a target, be it a channel, a bank or a \
    slice. The rule was learnt from some pairs and held against others.";

pub(super) fn section(report: &Report) -> Section {
    let reason =
        |row: &AddrmapRow| row.quality.reason.clone().or(row.why.clone()).map(|why| format!("{}: {why}", row.memory));
    let reasons: Vec<String> = report.addrmap.iter().filter_map(reason).collect();
    let body = || {
        html! {
            (table(report))
            @if !reasons.is_empty() { p { "Without an answer:" } ul { @for reason in &reasons { li { (reason) } } } }
        }
    };
    text("addrmap", "Where lines live", ABOUT, (!report.addrmap.is_empty()).then(body))
}

fn table(report: &Report) -> Markup {
    let number = |value: Option<f64>| value.map_or_else(|| "–".into(), significant);
    boxed(
        "Which address bits choose the target of a line; times of two loads, flushes included",
        html! {
            thead { tr {
                th { "memory" } th { "address" } th.num { "bits" } th.num { "targets" } th { "rule" } th { "masks" }
                th.num { "new pairs foretold" } th.num { "apart, ns" } th.num { "conflict, ns" } th { "remarks" }
            } }
            tbody { @for row in &report.addrmap { tr {
                td { (row.memory) }
                td { (row.address) }
                td.num { (row.known_bits[0]) " to " (row.known_bits[1]) }
                td.num { @if let Some(targets) = row.targets { (targets) } @else { "–" } }
                td { @if row.targets.is_some() { (row.rule_words()) } @else { (row.verdict) } }
                td { (row.masks.join(" ")) }
                td.num { @if let (Some(agreed), Some(checked)) = (row.agreed, row.checked) { (agreed) " of " (checked) } }
                td.num { (number(row.apart_ns)) }
                td.num { (number(row.conflict_ns)) }
                td { (remarks(&row.quality)) }
            } } }
        },
    )
}
