//! Hand-overs between cores: a matrix where it fits, and always what pairs that are equally near have in common.

use std::collections::BTreeSet;

use super::{COLUMNS, Column, flag_letters, head, legend, note, number, reason_lines, table, width};
use crate::model::{HandoverRow, Report};
use crate::plan::Home;
use crate::units::significant;
use crate::view::first_reasons;

/// Empty where no hand-over was asked for.
pub(super) fn section(report: &Report) -> String {
    if report.handovers.is_empty() {
        return String::new();
    }
    let about = "Nanoseconds of one hand-over, half a round trip: the line's median from the CPU on the left, which is timed, \
                 to the one above.";
    let mut text = head("Core to core") + &note(about);
    for &home in Home::ALL {
        text += &matrix(report, home);
    }
    text += &groups(report);
    text += &legend(&report.handovers);
    text + &reason_lines(&first_reasons(&report.handovers))
}

/// All pairs at one home; empty where there are none, a line that says so where there are too many for a terminal.
fn matrix(report: &Report, home: Home) -> String {
    let rows: Vec<&HandoverRow> =
        report.handovers.iter().filter(|row| row.home == home && row.latency_ns.is_some()).collect();
    let cpus: BTreeSet<u32> = rows.iter().flat_map(|row| [Some(row.from), row.to]).flatten().collect();
    let cell = |from: u32, to: u32| match rows.iter().find(|row| (row.from, row.to) == (from, Some(to))) {
        Some(row) => {
            let latency = number(row.latency_ns.map(|cost| cost.median), significant);
            format!("{latency} {}", flag_letters(&row.quality.flags)).trim_end().to_string()
        }
        None => "-".into(),
    };
    let mut columns = vec![Column::right("CPU", cpus.iter().map(ToString::to_string))];
    columns.extend(cpus.iter().map(|&to| Column::right(&to.to_string(), cpus.iter().map(|&from| cell(from, to)))));
    if rows.is_empty() {
        return String::new();
    }
    let title = format!("The {home} CPU touched the page first:");
    if width(&columns, 1) > COLUMNS {
        let count = cpus.len();
        let elsewhere = "is wider than a terminal; the page of `membound report RECORD` has it, --format csv each pair";
        return note(&format!("{title} a matrix of {count} x {count} CPUs {elsewhere}.")) + "\n";
    }
    note(&title) + &table(&columns) + "\n"
}

fn groups(report: &Report) -> String {
    let groups = &report.handover_groups;
    if groups.is_empty() {
        return String::new();
    }
    let kinds = |kinds: Option<_>| kinds.map_or_else(String::new, |[a, b]: [_; 2]| format!(" ({a}, {b})"));
    let columns = [
        Column::left("pairs", groups.iter().map(|group| format!("{}{}", group.relation, kinds(group.kinds)))),
        Column::right("rows", groups.iter().map(|group| group.rows.to_string())),
        Column::right("least", groups.iter().map(|group| significant(group.least_ns))),
        Column::right("median", groups.iter().map(|group| significant(group.median_ns))),
        Column::right("greatest", groups.iter().map(|group| significant(group.greatest_ns))),
        Column::right("cycles", groups.iter().map(|group| number(group.median_cycles, significant))),
    ];
    table(&columns)
}
