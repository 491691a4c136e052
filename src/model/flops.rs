//! Arithmetic in registers: from visits to rows.

use super::rows::{core_clock, flags, measured, outcome, per_cycle, visits};
use super::{FlopsRow, Rate};
use crate::kernel::flops::Flops;
use crate::plan::{Case, Work};
use crate::record::{Measured, Measurement, Record};
use crate::stats;

/// One row a case, by threads, element, width and balance.
pub(super) fn rows(record: &Record) -> Vec<FlopsRow> {
    let hz = record.header.clock.hz.0;
    let mut rows: Vec<FlopsRow> = visits(record).iter().filter_map(|visits| row(visits, hz)).collect();
    rows.sort_by_key(|row| (row.threads, row.element, row.width, row.balance));
    rows
}

fn row(visits: &[&Measurement], hz: f64) -> Option<FlopsRow> {
    let case = &visits[0].case;
    let Work::Flops(flops) = case.work else { return None };
    let measured = measured(visits);
    let batches: Vec<Vec<f64>> = measured.iter().map(|visit| flops_per_s(visit, hz)).collect();
    let views: Vec<&[f64]> = batches.iter().map(Vec::as_slice).collect();
    let mut row = bare_row(case, flops);
    (row.outcome, row.reason) = outcome(visits);
    if let Some(summary) = stats::summarize(&views) {
        row.flops_per_s = Some(Rate { best: summary.greatest, median: summary.median, ci95: summary.ci95 });
        row.core_clock_hz = core_clock(&measured, hz);
        row.flops_per_cycle = per_cycle(&measured, case.threads(), |volume| volume.flops).map(|summary| summary.median);
        (row.samples, row.rounds) = (summary.samples, measured.len());
        row.flags = flags(case, &measured, &batches, &summary, hz);
    }
    Some(row)
}

pub(super) fn flops_per_s(visit: &Measured, hz: f64) -> Vec<f64> {
    let flops = visit.volume.flops as f64 * visit.repetitions as f64;
    visit.samples.ticks.iter().map(|ticks| flops / (*ticks as f64 / hz)).collect()
}

fn bare_row(case: &Case, flops: Flops) -> FlopsRow {
    FlopsRow {
        metric: "flops".into(),
        element: flops.element,
        width: flops.width,
        balance: flops.balance,
        threads: case.threads(),
        cpus: case.cpus.clone(),
        unit: "flop/s".into(),
        flops_per_s: None,
        flops_per_cycle: None,
        core_clock_hz: None,
        samples: 0,
        rounds: 0,
        outcome: String::new(),
        reason: None,
        flags: Vec::new(),
    }
}
