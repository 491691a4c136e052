//! One sum in many ways.

use super::{Column, flag_column, gbps, head, item, joined, legend, note, ratio, reason_lines, table};
use crate::model::Report;
use crate::model::rounding::{RoundingRow, Verdict};
use crate::units::count;
use crate::view::{reasons, rounding_way};

/// The answer, a table for each sum, what disturbed it.
pub fn rounding(report: &Report) -> String {
    joined([super::findings(report), section(report), super::warnings(report)])
}

/// Empty where nothing was added up.
pub(super) fn section(report: &Report) -> String {
    if report.rounding.rows.is_empty() {
        return String::new();
    }
    let reasons = reason_lines(&reasons(&report.rounding.rows));
    let about = "ULP: doubles from the result to the exact one (of a triad: of its farthest element). Same bits have the same \
                 letter. Fixed: an order that every machine can keep.";
    let tables: Vec<String> = report.rounding.verdicts.iter().map(|verdict| of_sum(report, verdict)).collect();
    let flags = legend(&report.rounding.rows);
    head("One sum in many ways") + &note(about) + &tables.concat() + &flags + &reasons
}

fn of_sum(report: &Report, verdict: &Verdict) -> String {
    let is_ours =
        |row: &&RoundingRow| row.kernel == verdict.kernel && row.data == verdict.data && row.result_bits.is_some();
    let rows: Vec<&RoundingRow> = report.rounding.rows.iter().filter(is_ours).collect();
    let columns = [
        Column::left("way", rows.iter().map(|row| rounding_way(row))),
        Column::left("bits", letters(&rows).into_iter()),
        Column::right("ULP", rows.iter().map(|row| row.ulps.map_or_else(|| "-".into(), |ulps| count(ulps as f64)))),
        Column::left("runs", rows.iter().map(|row| if row.is_repeatable { "same" } else { "differ" }.into())),
        Column::right(
            "GB/s",
            rows.iter().map(|row| row.payload_bps.map_or_else(|| "-".into(), |rate| gbps(rate.median))),
        ),
        flag_column(rows),
    ];
    let fixed = |cost: &crate::model::rounding::Cost| {
        item(&format!(
            "fixed: {}: {} GB/s; the fastest is {} x as fast",
            cost.way,
            gbps(cost.rate.median),
            ratio(cost.slower)
        ))
    };
    let costs: String = verdict.costs.iter().map(fixed).collect();
    item(&verdict.sentence()) + &table(&columns) + &costs
}

/// A letter for each result, in the order in which they first come.
fn letters(rows: &[&RoundingRow]) -> Vec<String> {
    let mut seen: Vec<&str> = Vec::new();
    let mut letters = Vec::new();
    for bits in rows.iter().map(|row| row.result_bits.as_deref().unwrap_or_default()) {
        let at = seen.iter().position(|known| *known == bits).unwrap_or(seen.len());
        if at == seen.len() {
            seen.push(bits);
        }
        let name = char::from(b'a' + (at % 26) as u8);
        letters.push(if at < 26 { name.to_string() } else { format!("{name}{}", at / 26) });
    }
    letters
}
