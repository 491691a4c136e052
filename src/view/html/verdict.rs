//! The verdict.

use maud::{Markup, html};

use super::{Section, boxed, text};
use crate::model::Report;
use crate::units::{BytesPerSecond, percent};

const ABOUT: &str = "What the plain case reaches of the limit, and what keeps it from more. What a cause gives back is what its own \
    experiment shows; causes overlap, so this does not add up.";

pub(super) fn section(report: &Report) -> Section {
    let body = report.verdict.sentence().map(|sentence| {
        html! {
            p.finding { (sentence) }
            @if !report.verdict.causes.is_empty() { (table(report)) }
        }
    });
    text("verdict", "Verdict", ABOUT, body)
}

fn table(report: &Report) -> Markup {
    boxed(
        "Causes, those that matter most first",
        html! {
            thead { tr {
                th { "cause" } th.num { "gives back" } th.num { "of the gap" } th { "known" } th { "evidence" } th { "cure" }
                th { "command that tests it" }
            } }
            tbody { @for cause in &report.verdict.causes { tr {
                th { (cause.cause) }
                td.num { @if let Some(bps) = cause.gives_back_bps { (BytesPerSecond(bps)) } @else { "–" } }
                td.num { @if let Some(share) = cause.share { (percent(share)) } @else { "–" } }
                td { (cause.basis) }
                td { (cause.evidence) }
                td { (cause.cure) }
                td { code { (cause.test) } }
            } } }
        },
    )
}
