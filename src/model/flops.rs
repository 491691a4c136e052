//! Arithmetic in registers: from visits to rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quality::{Sampled, rated};
use super::rows::visits;
use super::{Quality, Rate};
use crate::kernel::{Element, Width};
use crate::machine::Balance;
use crate::plan::Work;
use crate::record::{Measured, Measurement, Record};

/// What cores compute when they wait for no data: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlopsRow {
    /// `flops`.
    pub metric: String,
    /// What is computed with.
    pub element: Element,
    /// Width of an instruction.
    pub width: Width,
    /// The mix of additions and multiplications.
    pub balance: Balance,
    /// Number of threads.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// `flop/s`.
    pub unit: String,
    /// Floating-point operations a second, over all threads. Absent where nothing was measured.
    pub flops_per_s: Option<Rate>,
    /// The same in a core clock cycle, by thread: median.
    pub flops_per_cycle: Option<f64>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
}

rated!(FlopsRow, |row| format!("{} {} {}", row.balance, row.width, row.element));

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
    let sampled = Sampled::of(visits, hz, |visit| flops_per_s(visit, hz));
    Some(FlopsRow {
        metric: "flops".into(),
        element: flops.element,
        width: flops.width,
        balance: flops.balance,
        threads: case.threads(),
        cpus: case.cpus.clone(),
        unit: "flop/s".into(),
        flops_per_s: sampled.rate(),
        flops_per_cycle: sampled.per_cycle(case.threads(), hz).map(|summary| summary.median),
        core_clock_hz: sampled.core_clock(hz),
        quality: sampled.quality,
    })
}

pub(super) fn flops_per_s(visit: &Measured, hz: f64) -> Vec<f64> {
    let flops = visit.volume.flops as f64 * visit.repetitions as f64;
    visit.samples.ticks.iter().map(|ticks| flops / (*ticks as f64 / hz)).collect()
}
