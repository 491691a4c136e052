//! Rows as CSV: flat tidy columns with the JSON row's names; an object's fields become columns of their own
//! (`payload_Bps_median`), lists are joined by spaces, absent values are empty.

use super::protocol_word;
use crate::model::{Rate, Row};

type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: &[Column] = &[
    ("metric", |row| row.metric.clone()),
    ("kernel", |row| row.kernel.clone()),
    ("store", |row| row.store.to_string()),
    ("load", |row| row.load.to_string()),
    ("width", |row| row.width.to_string()),
    ("width_bits", |row| row.width_bits.to_string()),
    ("memory", |row| row.memory.word().into()),
    ("node", |row| text(row.node)),
    ("threads", |row| row.threads.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("misaligned_bytes", |row| row.misaligned_bytes.to_string()),
    ("protocol", |row| protocol_word(row.protocol).into()),
    ("level", |row| text(row.level.as_ref())),
    ("unit", |row| row.unit.clone()),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
    ("bus_Bps_best", |row| best(row.bus_bps)),
    ("bus_Bps_median", |row| median(row.bus_bps)),
    ("bus_Bps_ci95_low", |row| low(row.bus_bps)),
    ("bus_Bps_ci95_high", |row| high(row.bus_bps)),
    ("copied_Bps_best", |row| best(row.copied_bps)),
    ("copied_Bps_median", |row| median(row.copied_bps)),
    ("copied_Bps_ci95_low", |row| low(row.copied_bps)),
    ("copied_Bps_ci95_high", |row| high(row.copied_bps)),
    ("bytes_per_cycle", |row| text(row.bytes_per_cycle)),
    ("core_clock_hz", |row| text(row.core_clock_hz)),
    ("flops_per_s", |row| text(row.flops_per_s)),
    ("samples", |row| row.samples.to_string()),
    ("rounds", |row| row.rounds.to_string()),
    ("imbalance", |row| text(row.imbalance)),
    ("outcome", |row| row.outcome.clone()),
    ("reason", |row| text(row.reason.as_ref())),
    ("flags", |row| joined(&row.flags)),
    ("modes_low", |row| text(row.modes.map(|modes| modes.low))),
    ("modes_high", |row| text(row.modes.map(|modes| modes.high))),
    ("modes_high_share", |row| text(row.modes.map(|modes| modes.high_share))),
    ("obtained_bytes", |row| text(row.obtained.as_ref().map(|obtained| obtained.bytes.0))),
    ("obtained_huge_bytes", |row| text(row.obtained.as_ref().and_then(|o| o.huge_bytes).map(|bytes| bytes.0))),
    ("obtained_pages_on_node", pages_on_node),
];

/// All rows under one line of names.
pub fn rows(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let lines = rows.iter().map(|row| COLUMNS.iter().map(|(_, value)| value(row)).collect::<Vec<_>>());
    let names = COLUMNS.iter().map(|(name, _)| (*name).to_string()).collect();
    for line in std::iter::once(names).chain(lines) {
        writer.write_record(line).expect("a Vec takes everything");
    }
    let bytes = writer.into_inner().expect("a Vec takes everything");
    String::from_utf8(bytes).expect("strings make a string")
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn joined<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

fn best(rate: Option<Rate>) -> String {
    text(rate.map(|rate| rate.best))
}

fn median(rate: Option<Rate>) -> String {
    text(rate.map(|rate| rate.median))
}

fn low(rate: Option<Rate>) -> String {
    text(rate.map(|rate| rate.ci95[0]))
}

fn high(rate: Option<Rate>) -> String {
    text(rate.map(|rate| rate.ci95[1]))
}

/// `node:pages` pairs.
fn pages_on_node(row: &Row) -> String {
    let pages = row.obtained.iter().flat_map(|obtained| &obtained.pages_on_node);
    joined(&pages.map(|found| format!("{}:{}", found.node, found.pages)).collect::<Vec<_>>())
}
