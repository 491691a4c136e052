//! Latency under load: a table of latencies for each mix, and the fit below.

use super::{
    Column, SPREAD_CAPTION, flag_column, head, item, legend, note, number, page_cost, rate_figure, reason_lines, table,
};
use crate::model::{LoadedRow, Report};
use crate::plan::Load;
use crate::units::significant;
use crate::view::{first_reasons, load_curve_line};

/// Empty where no latency under load was asked for.
pub(super) fn section(report: &Report) -> String {
    if report.loaded.is_empty() {
        return String::new();
    }
    let about = format!(
        "Nanoseconds of a load from memory that waits for the one before, while other threads move so many GB/s over the \
         bus and pause in between ({SPREAD_CAPTION})."
    );
    let rows: Vec<&LoadedRow> = report.loaded.iter().filter(|row| row.latency_ns.is_some()).collect();
    let pause = |row: &&LoadedRow| match row.load {
        Load::Mixed { delay_ns: 0, .. } => "none".into(),
        Load::Mixed { delay_ns, .. } => format!("{delay_ns} ns"),
        Load::Alone | Load::Idle => "-".into(),
    };
    let columns = [
        Column::left("others", rows.iter().map(|row| mix_words(row.load))),
        Column::right("threads", rows.iter().map(|row| row.threads.to_string())),
        Column::right("pause", rows.iter().map(pause)),
        Column::right("GB/s", rows.iter().map(|row| row.bus_bps.as_ref().map_or_else(|| "-".into(), rate_figure))),
        Column::right("latency", rows.iter().map(|row| row.latency_ns.as_ref().map_or_else(|| "-".into(), page_cost))),
        Column::right("cycles", rows.iter().map(|row| number(row.latency_cycles, significant))),
        flag_column(rows.iter().copied()),
    ];
    let fits: String = report.load_curves.iter().map(|curve| item(&load_curve_line(curve))).collect();
    let table = if rows.is_empty() { "Nothing was measured.\n".into() } else { table(&columns) };
    head("Latency under load")
        + &note(&about)
        + &table
        + &legend(&report.loaded)
        + &fits
        + &reason_lines(&first_reasons(&report.loaded))
}

fn mix_words(load: Load) -> String {
    match load {
        Load::Alone => "none".into(),
        Load::Idle => "idle".into(),
        Load::Mixed { mix, .. } => mix.to_string(),
    }
}
