//! Messages between processes: a table over sizes, pairs side by side, and what the curve says of the path.

use std::collections::BTreeSet;

use super::{COLUMNS, Column, flag_letters, head, joined, legend, note, number, reason_lines, table, width};
use crate::model::Report;
use crate::model::pingpong::{PathModel, PathRow, PingPongRow, title};
use crate::plan::{Buffers, MessageMode, MessagePath};
use crate::units::{Bytes, Nanoseconds, percent, significant};
use crate::view::{first_reasons, path_interval, path_value};

/// The answer, the tables of each path, what disturbed them.
pub fn pingpong(report: &Report) -> String {
    joined([super::findings(report), section(report), super::warnings(report)])
}

const ABOUT: &str = "One way: half a round trip. MB/s as IMB counts them: 1e6 bytes a second, all pairs together; an exchange counts both \
    ways. Medians; model: by the parameters below.";

/// Empty where no messages were sent.
pub(super) fn section(report: &Report) -> String {
    let messages = &report.messages;
    if messages.rows.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    for (path, buffers) in messages.kinds() {
        text += &head(&title(path, buffers));
        text += &note(ABOUT);
        text += &sizes(report, path, buffers);
        if let Some(model) = messages.model(path, buffers) {
            text += &parameters(model);
        }
    }
    let reasons = reason_lines(&first_reasons(&messages.rows));
    text + &legend(&messages.rows) + &reasons
}

/// Sizes down; across what was done by how many pairs. What is too wide is left out, models first.
fn sizes(report: &Report, path: MessagePath, buffers: Buffers) -> String {
    let rows: Vec<&PingPongRow> = report.messages.of(path, buffers).collect();
    let all: BTreeSet<Bytes> = rows.iter().map(|row| row.message_bytes).collect();
    let ways: BTreeSet<(MessageMode, usize)> = rows.iter().map(|row| (row.mode, row.pairs)).collect();
    let find = |way: (MessageMode, usize), size: &Bytes| {
        rows.iter().copied().find(|row| (row.mode, row.pairs, row.message_bytes) == (way.0, way.1, *size))
    };
    let column = |way: (MessageMode, usize), head: &str, cell: &dyn Fn(&PingPongRow) -> String| {
        Column::right(head, all.iter().map(|size| find(way, size).map_or_else(|| "-".into(), cell)))
    };
    let mut columns = vec![Column::right("size", all.iter().map(ToString::to_string))];
    let mut models = Vec::new();
    let mut more = Vec::new();
    for (index, &way) in ways.iter().enumerate() {
        let name = way_name(way);
        let time = |row: &PingPongRow| number(row.one_way_ns.map(|cost| cost.median), |ns| Nanoseconds(ns).to_string());
        let rate = |row: &PingPongRow| number(row.payload_bps.map(|rate| rate.median), |bps| significant(bps / 1e6));
        let mut own = Vec::new();
        if index == 0 {
            own.push(column(way, &format!("{name}\none way"), &time));
        }
        own.push(column(way, &format!("{name}\nMB/s"), &rate));
        if width(&columns, 1) + width(&own, 1) + FLAG_WIDTH > COLUMNS {
            more.push(name.replace('\n', " "));
            continue;
        }
        columns.extend(own);
        models.push((columns.len(), way));
    }
    // From the right, so that places stay.
    for &(place, way) in models.iter().rev() {
        let by_model = |row: &PingPongRow| number(model_bps(row), |bps| significant(bps / 1e6));
        let own = column(way, "model\nMB/s", &by_model);
        if !own.is_blank() && width(&columns, 1) + own.width() + 1 + FLAG_WIDTH <= COLUMNS {
            columns.insert(place, own);
        }
    }
    let flags = |size: &Bytes| {
        let of_size = rows.iter().filter(|row| row.message_bytes == *size).flat_map(|row| row.quality.flags.clone());
        let all: BTreeSet<String> = of_size.collect();
        flag_letters(&all.into_iter().collect::<Vec<_>>())
    };
    columns.push(Column::left("flag", all.iter().map(flags)));
    let left_out =
        if more.is_empty() { String::new() } else { note(&format!("Too wide for this table: {}.", more.join(", "))) };
    table(&columns) + &left_out
}

/// Room for a column of flags.
const FLAG_WIDTH: usize = 6;

/// `2-2`, or with the mode where that is another.
fn way_name((mode, pairs): (MessageMode, usize)) -> String {
    match mode {
        MessageMode::PingPong => format!("{pairs}-{pairs}"),
        mode => format!("{mode}\n{pairs}-{pairs}"),
    }
}

fn model_bps(row: &PingPongRow) -> Option<f64> {
    let bytes = row.pairs as f64 * row.message_bytes.0 as f64;
    row.model_ns.filter(|_| bytes > 0.0).map(|ns| bytes / ns * 1e9)
}

fn parameters(model: &PathModel) -> String {
    let rows: Vec<PathRow> = model.rows();
    let from = |row: &PathRow| row.from_bytes.map_or_else(String::new, |bytes| bytes.to_string());
    let columns = [
        Column::left("parameter", rows.iter().map(|row| row.parameter.clone())),
        Column::right("from", rows.iter().map(from)),
        Column::right("value", rows.iter().map(|row| path_value(row, row.value))),
        Column::left("95 % interval", rows.iter().map(path_interval)),
        Column::left("told by", rows.iter().map(|row| row.told_by.to_string())),
    ];
    let alone = &model.model.alone;
    let [off, at] = alone.worst;
    let worst = format!("One pair: farthest off is {} ({}).", Bytes(at as u64), percent(off));
    let together = model.predictions.iter().map(|prediction| {
        let [off, at] = prediction.worst;
        format!(" {0}-{0}: {1} ({2}).", prediction.pairs, Bytes(at as u64), percent(off))
    });
    let verdict = if alone.holds() { "" } else { " The model does not hold for this curve." };
    table(&columns) + &note(&(worst + &together.collect::<String>() + verdict))
}
