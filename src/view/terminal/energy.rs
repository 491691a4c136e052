//! What work costs in energy.

use super::{Column, flag_column, gbps, head, item, joined, legend, note, reason_lines, table};
use crate::model::energy::EnergyRow;
use crate::model::{Cost, Report};
use crate::units::significant;
use crate::view::{energy_meters, reasons};

/// The answer, a table for each meter, what disturbed it.
pub fn energy(report: &Report) -> String {
    joined([super::findings(report), section(report), super::warnings(report)])
}

/// Empty where no energy was asked for.
pub(super) fn section(report: &Report) -> String {
    if report.energy.is_empty() {
        return String::new();
    }
    let tables: String = energy_meters(report).into_iter().map(|(meter, rows)| of_meter(&meter, &rows)).collect();
    let reasons = reason_lines(&reasons(&report.energy));
    let flags = legend(&report.energy);
    let about = if tables.is_empty() {
        String::new()
    } else {
        note(
            "Watts, and joules for 1e9 bytes or operations, medians; ± is half the 95 % interval, the meter's step included. \
             Beyond idle: less what the machine draws at rest.",
        )
    };
    head("Energy") + &about + &tables + &flags + &reasons
}

fn of_meter(meter: &str, rows: &[&EnergyRow]) -> String {
    let right = |head: &str, cell: &dyn Fn(&EnergyRow) -> String| Column::right(head, rows.iter().map(|row| cell(row)));
    let figure = |cost: Option<Cost>| cost.map_or_else(|| "-".into(), |cost| figure(&cost));
    let brief = |cost: Option<Cost>| cost.map_or_else(|| "-".into(), |cost| significant(cost.median));
    let columns = [
        Column::left("kernel", rows.iter().map(|row| row.kernel.clone())),
        Column::left("store", rows.iter().map(|row| row.store.map_or_else(String::new, |store| store.to_string()))),
        right("size", &|row| if row.is_idle() { "".into() } else { row.working_set_bytes.to_string() }),
        right("threads", &|row| if row.is_idle() { "".into() } else { row.threads.to_string() }),
        right("GB/s", &|row| row.payload_bps.map_or_else(|| "-".into(), |rate| gbps(rate.median))),
        right("W", &|row| figure(row.power_w)),
        right("J/GB\npayload", &|row| figure(row.payload_j_per_gb)),
        right("J/GB\nbus", &|row| brief(row.bus_j_per_gb)),
        right("J/GB\nbeyond idle", &|row| figure(row.beyond_idle_j_per_gb)),
        right("J/Gflop", &|row| brief(row.j_per_gflop)),
        flag_column(rows.iter().copied()),
    ];
    item(meter)
        + &table(
            &columns
                .into_iter()
                .filter(|column| column.cells.iter().any(|cell| !cell.is_empty() && cell != "-"))
                .collect::<Vec<_>>(),
        )
}

/// `12.3 ±2%`: the interval's half against the median.
fn figure(cost: &Cost) -> String {
    let half = (cost.ci95[1] - cost.ci95[0]) / 2.0 / cost.median.abs() * 100.0;
    let median = significant(cost.median);
    if half.is_finite() {
        format!("{median} ±{}%", if half < 9.95 { format!("{half:.1}") } else { format!("{half:.0}") })
    } else {
        median
    }
}
