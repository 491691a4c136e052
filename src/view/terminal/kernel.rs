//! A loop of a user's own: what it needs of the memory for each operation, how fast it ran, and what held it back.

use std::collections::BTreeSet;

use super::{
    Column, figure, flag_letters, item, joined, legend, level_name, note, number, paragraph, reason_lines, rows, table,
};
use crate::kernel::Kernel;
use crate::model::{Report, Row};
use crate::units::significant;
use crate::view::{SPREAD_CAPTION, gbps, kernel_reasons, store_words, threads as threads_word};

/// The answer in a sentence for each loop, and a row a case.
pub fn kernel(report: &Report) -> String {
    let names: BTreeSet<&str> = report.rows.iter().map(|row| row.kernel.as_str()).collect();
    let loops = names.into_iter().filter_map(Kernel::named).map(|kernel| of_kernel(kernel, report));
    let text = loops.collect::<Vec<_>>().join("\n");
    if text.is_empty() { rows(report) } else { joined([text, super::warnings(report), String::new()]) }
}

fn of_kernel(kernel: &Kernel, report: &Report) -> String {
    let mut rows: Vec<&Row> = report.rows.iter().filter(|row| row.kernel == kernel.name).collect();
    rows.sort_by_key(|row| (row.threads, row.working_set_bytes, row.store, row.width));
    let cells = |cell: &dyn Fn(&Row) -> String| rows.iter().map(|row| cell(row)).collect::<Vec<_>>().into_iter();
    let mut columns = vec![
        Column::right("threads", cells(&|row| row.threads.to_string())),
        Column::left("store", cells(&|row| store_words(row))),
        Column::right("size", cells(&|row| row.working_set_bytes.to_string())),
        Column::left("level", cells(&level_name)),
        Column::right("GB/s", cells(&figure)),
        Column::right("on the\nbus", cells(&|row| number(row.bus_bps.map(|rate| rate.median), gbps))),
        Column::right("GF/s", cells(&|row| number(row.flops_per_s, giga))),
        Column::right("B/cycle", cells(&|row| number(row.bytes_per_cycle, significant))),
        Column::left("flag", cells(&|row| flag_letters(&row.quality.flags))),
    ];
    columns.retain(|column| !column.is_blank() && column.cells.iter().any(|cell| !cell.is_empty()));
    paragraph(&sentence(kernel, &rows), "")
        + "\n"
        + &note(&format!("GB/s is payload, GF/s 10^9 flops a second; {SPREAD_CAPTION}."))
        + &table(&columns)
        + &legend(rows.iter().copied())
        + &reason_lines(&kernel_reasons(&report.rows))
        + &notes(kernel).iter().map(|note| item(note)).collect::<String>()
}

/// What one element needs, how fast it goes from the largest working set, and what holds it back there.
fn sentence(kernel: &Kernel, rows: &[&Row]) -> String {
    let Some(first) = rows.first() else { return kernel.text.into() };
    let measured: Vec<&Row> = rows.iter().copied().filter(|row| row.payload_bps.is_some()).collect();
    let fastest = |sets: &dyn Fn(&Row) -> bool| {
        let rate = |row: &&&Row| row.payload_bps.map_or(0.0, |rate| rate.median);
        measured.iter().filter(|row| sets(row)).max_by(|a, b| rate(a).total_cmp(&rate(b))).copied()
    };
    let Some(size) = measured.iter().map(|row| row.working_set_bytes).max() else {
        return format!("{}; nothing was measured.", needs(kernel, first));
    };
    let Some(far) = fastest(&|row| row.working_set_bytes == size) else { return needs(kernel, first) };
    let near_size = measured.iter().filter(|row| row.threads == far.threads).map(|row| row.working_set_bytes).min();
    let near = fastest(&|row| row.threads == far.threads && Some(row.working_set_bytes) == near_size);
    let flops = far.flops_per_s.map_or_else(String::new, |flops| format!(" and {} GF/s", giga(flops)));
    format!(
        "{}; {} GB/s{flops} from {} ({}, {}){}.",
        needs(kernel, far),
        number(far.payload_bps.map(|rate| rate.median), gbps),
        place(far),
        threads_word(far.threads),
        store_words(far),
        near.map_or_else(String::new, |near| held_back(near, far)),
    )
}

/// `2 flops, 24 B payload (32 B with write-allocate): 16 B/flop, 0.0625 flop/B`
fn needs(kernel: &Kernel, row: &Row) -> String {
    let (traffic, flops) = (kernel.traffic(row.store, row.element), kernel.formula().flops());
    let (payload, bus) = (traffic.payload(), traffic.bus());
    let allocated = if bus > payload { format!(" ({bus} B with write-allocate)") } else { String::new() };
    let word = if flops == 1 { "flop" } else { "flops" };
    let balance = match flops {
        0 => String::new(),
        _ => format!(
            ", {} B/flop on the bus ({} flop/B)",
            significant(bus as f64 / f64::from(flops)),
            significant(f64::from(flops) / bus as f64)
        ),
    };
    format!("{}: {flops} {word}, {payload} B payload{allocated} an element{balance}", kernel.text)
}

/// Whether it runs faster from the smallest working set, beyond what both intervals allow for chance.
fn held_back(near: &Row, far: &Row) -> String {
    let (Some(quick), Some(slow)) = (near.payload_bps, far.payload_bps) else { return String::new() };
    if near.working_set_bytes == far.working_set_bytes {
        return String::new();
    }
    if quick.ci95[0] > slow.ci95[1] {
        let times = significant(quick.median / slow.median);
        format!(", bound by {}: from {} it runs {times} times as fast", place(far), place(near))
    } else {
        format!(", bound by the core: from {} it runs no faster", place(near))
    }
}

fn place(row: &Row) -> String {
    row.level.clone().unwrap_or_else(|| row.working_set_bytes.to_string())
}

fn notes(kernel: &Kernel) -> Vec<&'static str> {
    let gathers = "Gathered elements count once each, as payload and on the bus. In random order a core reads a line of \
                   64 B for each as soon as the stream does not fit its caches.";
    if kernel.formula().gathers() { vec![gathers] } else { Vec::new() }
}

fn giga(per_s: f64) -> String {
    significant(per_s / 1e9)
}
