//! Where lines live.

use super::{Column, findings, flag_column, head, item, legend, note, table, warnings};
use crate::model::{AddrmapRow, Report};
use crate::units::significant;

/// Where lines live, in full: the answer, the table, what limits it.
pub fn addrmap(report: &Report) -> String {
    let sections = [findings(report), section(report), warnings(report)];
    let text = sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n");
    if text.is_empty() { "No pairs of lines were measured.\n".into() } else { text }
}

/// A line a memory, and masks below. Empty where nothing was asked.
pub(super) fn section(report: &Report) -> String {
    let rows = &report.addrmap;
    if rows.is_empty() {
        return String::new();
    }
    let right = |head: &str, cell: &dyn Fn(&AddrmapRow) -> String| Column::right(head, rows.iter().map(cell));
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), significant);
    let columns = [
        Column::left("memory", rows.iter().map(|row| row.memory.to_string())),
        Column::left("address", rows.iter().map(|row| row.address.clone())),
        right("bits", &|row| format!("{}-{}", row.known_bits[0], row.known_bits[1])),
        right("targets", &|row| row.targets.map_or_else(|| "-".into(), |targets| targets.to_string())),
        right("confidence", &|row| {
            row.confidence.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0))
        }),
        right("apart\nns", &|row| number(row.apart_ns)),
        right("conflict\nns", &|row| number(row.conflict_ns)),
        right("pairs", &|row| row.pairs.to_string()),
        flag_column(rows),
    ];
    let about = "Two lines conflict if loading them together takes longer: they share a target. Confidence: lower end of the \
                 95 % interval of the share of new pairs that the rule foretells.";
    head("Where lines live")
        + &note(about)
        + &table(&columns)
        + &legend(rows)
        + &rows.iter().flat_map(lines).map(|line| item(&line)).collect::<String>()
}

/// A line a mask, or why nothing was measured. The rule itself, or why there is none, is a finding.
fn lines(row: &AddrmapRow) -> Vec<String> {
    let memory = row.memory;
    if let Some(fault) = row.quality.fault() {
        return vec![format!("{memory}: {fault}")];
    }
    let bits = |bits: &[u32]| bits.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
    let mask = |(mask, of): (&String, &Vec<u32>)| format!("{memory}: mask {mask}: bits {}", bits(of));
    row.masks.iter().zip(&row.mask_bits).map(mask).collect()
}
