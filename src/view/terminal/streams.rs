//! Many streams at once: their map.

use std::collections::BTreeSet;

use super::{Column, gbps, head, item, joined, legend, note, reason_lines, table};
use crate::model::Report;
use crate::model::streams::{Effect, StreamMap};
use crate::units::{Bytes, significant};
use crate::view::reasons;

/// The answer, a table for each map, what disturbed it.
pub fn stream_map(report: &Report) -> String {
    joined([super::findings(report), section(report), super::warnings(report)])
}

/// Empty where no streams were measured.
pub(super) fn section(report: &Report) -> String {
    if report.congestion.rows.is_empty() {
        return String::new();
    }
    let reasons = reason_lines(&reasons(&report.congestion.rows));
    let about = "GB/s payload, medians: streams across, offset from each stream to the next down. + faster, - slower than at \
                 offset 0 for certain (95 %, all offsets at once).";
    let tables: String = report.congestion.maps.iter().map(|map| of_map(report, map)).collect();
    let flags = legend(&report.congestion.rows);
    head("Streams and offsets") + &note(about) + &tables + &flags + &reasons
}

fn of_map(report: &Report, map: &StreamMap) -> String {
    let rows = report.congestion.of(map);
    let offsets: BTreeSet<u32> = rows.iter().map(|row| row.offset_bytes).collect();
    let counts: BTreeSet<u32> = rows.iter().map(|row| row.streams).collect();
    let cell = |streams: u32, offset: u32| {
        let row = rows.iter().find(|row| (row.streams, row.offset_bytes) == (streams, offset));
        let Some((row, rate)) = row.and_then(|row| Some((row, row.payload_bps?))) else { return "-".into() };
        let sign = match row.over_aligned {
            Some([_, low, _]) if low > 1.0 => "+",
            Some([.., high]) if high < 1.0 => "-",
            _ => " ",
        };
        format!("{}{sign}", gbps(rate.median))
    };
    let mut columns = vec![Column::right("offset", offsets.iter().map(|offset| Bytes((*offset).into()).to_string()))];
    columns.extend(
        counts
            .iter()
            .map(|&streams| Column::right(&format!("{streams} "), offsets.iter().map(|&offset| cell(streams, offset)))),
    );
    let effects: String = map.effects.iter().map(|effect| item(&words(effect))).collect();
    item(&format!("{}, {}", map.touch, map.working_set)) + &table(&columns) + &effects
}

fn words(effect: &Effect) -> String {
    let range = |[ratio, low, high]: [f64; 3]| {
        format!("{} x [{}, {}]", significant(ratio), significant(low), significant(high))
    };
    let told = |what: &str, at: Option<(u32, [f64; 3])>| {
        at.map(|(offset, ratio)| format!("{what} {}: {}", Bytes(offset.into()), range(ratio)))
    };
    let parts = [
        told("pad by", effect.best),
        told("avoid", effect.worst),
        effect.period.map(|p| format!("period {}", Bytes(p.into()))),
    ];
    format!("{} streams: {}", effect.streams, parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}
