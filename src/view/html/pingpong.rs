//! Messages between processes: curves with their model, sizes, parameters.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::{SPREAD_CAPTION, Section, boxed, chart, charts, not_measured, remarks, spread};
use crate::model::Report;
use crate::model::pingpong::{PathModel, PingPongRow, title};
use crate::plan::{Buffers, MessageMode, MessagePath};
use crate::units::{Bytes, Nanoseconds, percent, significant};
use crate::view::{first_reasons, path_interval, path_value};

const ABOUT: &str = "k processes send to k at once. Bandwidth as IMB counts it: bytes of a message over the time of one way, added up \
    over pairs; an exchange counts both ways. Dashed: the model, fitted to one pair alone; what two and more do together follows \
    from it.";

pub(super) fn section(report: &Report) -> Section {
    let messages = &report.messages;
    let reasons = first_reasons(&messages.rows);
    let body = || {
        html! {
            @for model in &messages.models {
                @for sentence in model.sentences() { p { (sentence) } }
                (parameters(model))
            }
            @for (path, buffers) in messages.kinds() {
                @for (mode, pairs) in ways(report, path, buffers) {
                    details {
                        summary { (title(path, buffers)) ": " (mode) ", " (pairs) "-" (pairs) }
                        (sizes(report, path, buffers, mode, pairs))
                    }
                }
            }
            (not_measured(&reasons))
        }
    };
    let body = (!messages.rows.is_empty()).then(body);
    Section { body, ..charts("pingpong", "Messages between processes", ABOUT, chart::pingpong(report)) }
}

fn ways(report: &Report, path: MessagePath, buffers: Buffers) -> BTreeSet<(MessageMode, usize)> {
    report.messages.of(path, buffers).map(|row| (row.mode, row.pairs)).collect()
}

fn parameters(model: &PathModel) -> Markup {
    let words = if model.model.alone.holds() { "" } else { "; the model does not hold for this curve" };
    boxed(
        &format!("{}: what the curve says of the path{words}", title(model.path, model.buffers)),
        html! {
            thead { tr { th { "parameter" } th.num { "from" } th.num { "value" } th { "95 % interval" } th { "told by" } } }
            tbody { @for row in model.rows() { tr {
                th { (row.parameter) }
                td.num { @if let Some(bytes) = row.from_bytes { (bytes) } }
                td.num { (path_value(&row, row.value)) }
                td { (path_interval(&row)) }
                td { (row.told_by) }
            } } }
        },
    )
}

fn sizes(report: &Report, path: MessagePath, buffers: Buffers, mode: MessageMode, pairs: usize) -> Markup {
    let rows: Vec<&PingPongRow> =
        report.messages.of(path, buffers).filter(|row| (row.mode, row.pairs) == (mode, pairs)).collect();
    boxed(
        &format!("{}: {mode}, {pairs}-{pairs}; {SPREAD_CAPTION}", title(path, buffers)),
        html! {
            thead { tr {
                th { "message" } th.num { "one way" } th.num { "MB/s" } th.num { "model, one way" } th.num { "model off" }
                th.num { "slowest pair" } th.num { "samples" } th { "remarks" }
            } }
            tbody { @for row in rows { (line(row)) } }
        },
    )
}

fn line(row: &PingPongRow) -> Markup {
    let ns = |value: Option<f64>| value.map_or_else(|| "–".into(), |ns| Nanoseconds(ns).to_string());
    let off = row.model_ns.zip(row.one_way_ns).map(|(model, cost)| model / cost.median - 1.0);
    html! {
        tr {
            th { (Bytes(row.message_bytes.0)) }
            td.num { (ns(row.one_way_ns.map(|cost| cost.median))) }
            td.num { @if let Some(rate) = &row.payload_bps { (significant(rate.median / 1e6)) " " small { (spread(rate)) } } @else { "–" } }
            td.num { (ns(row.model_ns)) }
            td.num { (off.map_or_else(|| "–".into(), percent)) }
            td.num { (ns(row.slowest_pair_ns)) }
            td.num { (row.quality.samples) }
            td { (remarks(&row.quality)) }
        }
    }
}
