//! What work costs in energy: watts at rest and under each kernel, joules a gigabyte and a flop.
//!
//! A counter's reading is as old as its last update. Both readings of a sample are, so what lies between them is wrong by
//! one update's worth at most, either way: intervals are widened by that.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quality::{Quality, Status, flags, rated, summarize};
use super::rows::{measured, visits};
use super::{Cost, Rate, Report};
use crate::kernel::{Kernel, StoreKind, Width};
use crate::machine::EnergyPart;
use crate::memory::MemoryKind;
use crate::plan::{Case, Protocol, Work};
use crate::record::{EnergySamples, Measured, Measurement, Record};
use crate::stats::Summary;
use crate::units::{Bytes, BytesPerSecond, significant};

/// What one meter, or all of one part, told of one case: a tidy row. Of intervals see [`Cost`]; `best` is the least sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnergyRow {
    /// `energy`.
    pub metric: String,
    /// The part of the machine, of all packages together; or a sensor's own name. Absent where nothing could be read.
    pub meter: Option<String>,
    /// The kernel's name, or `idle`.
    pub kernel: String,
    /// Store kind; absent at rest.
    pub store: Option<StoreKind>,
    /// Access width; absent at rest.
    pub width: Option<Width>,
    /// Memory kind asked for; absent at rest.
    pub memory: Option<MemoryKind>,
    /// Number of threads.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// Bytes touched by one repetition.
    pub working_set_bytes: Bytes,
    /// `W`.
    pub unit: String,
    /// Watts.
    #[serde(rename = "power_W")]
    pub power_w: Option<Cost>,
    /// Watts at rest, where that was measured.
    #[serde(rename = "idle_power_W")]
    pub idle_power_w: Option<Cost>,
    /// Payload bytes a second in the same samples.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Joules for 1e9 payload bytes, what the machine draws at rest included.
    #[serde(rename = "payload_J_per_GB")]
    pub payload_j_per_gb: Option<Cost>,
    /// Joules for 1e9 bytes on the bus: payload and write-allocates.
    #[serde(rename = "bus_J_per_GB")]
    pub bus_j_per_gb: Option<Cost>,
    /// Joules for 1e9 payload bytes beyond what the machine draws at rest.
    #[serde(rename = "beyond_idle_J_per_GB")]
    pub beyond_idle_j_per_gb: Option<Cost>,
    /// Joules for 1e9 floating-point operations, what the machine draws at rest included.
    #[serde(rename = "J_per_Gflop")]
    pub j_per_gflop: Option<Cost>,
    /// By how much of itself a figure may be wrong because counters change in steps.
    pub step_error: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
}

rated!(EnergyRow, |row| row.kernel.clone());

impl EnergyRow {
    /// Whether it tells of the machine at rest.
    pub fn is_idle(&self) -> bool {
        self.kernel == IDLE
    }
}

const IDLE: &str = "idle";
/// Joules are told for so many bytes and operations.
const GIGA: f64 = 1e9;

/// One row a case and meter: by meter, the machine at rest first.
pub(super) fn rows(record: &Record) -> Vec<EnergyRow> {
    let hz = record.header.clock.hz.0;
    let all: Vec<Vec<&Measurement>> =
        visits(record).into_iter().filter(|visits| visits[0].case.protocol == Protocol::Energy).collect();
    let is_rest = |visits: &&Vec<&Measurement>| matches!(visits[0].case.work, Work::Idle);
    let rest = all.iter().find(is_rest).map(|visits| measured(visits)).unwrap_or_default();
    let mut rows: Vec<EnergyRow> = all.iter().flat_map(|visits| of_case(visits, &rest, hz)).collect();
    let place = |row: &EnergyRow| (Kernel::place(&row.kernel), row.threads, row.working_set_bytes);
    rows.sort_by_key(|row| (row.meter.clone(), !row.is_idle(), place(row)));
    rows
}

fn of_case(visits: &[&Measurement], rest: &[&Measured], hz: f64) -> Vec<EnergyRow> {
    let case = &visits[0].case;
    let measured = measured(visits);
    let mut bare = bare_row(case, Quality { rounds: measured.len(), ..Quality::of(visits) });
    let rows: Vec<EnergyRow> =
        meters(&measured).iter().filter_map(|meter| of_meter(&bare, case, meter, &measured, rest, hz)).collect();
    if !rows.is_empty() {
        return rows;
    }
    if bare.quality.is_measured() {
        bare.quality.refuse(Status::Unavailable, "no meter could be read while it ran");
    }
    vec![bare]
}

fn bare_row(case: &Case, quality: Quality) -> EnergyRow {
    let variant = case.variant();
    EnergyRow {
        metric: "energy".into(),
        meter: None,
        kernel: variant.map_or_else(|| IDLE.into(), |variant| variant.kernel.clone()),
        store: variant.map(|variant| variant.store),
        width: variant.map(|variant| variant.width),
        memory: variant.map(|_| case.memory.kind),
        threads: case.threads(),
        cpus: case.cpus.clone(),
        working_set_bytes: case.working_set,
        unit: "W".into(),
        power_w: None,
        idle_power_w: None,
        payload_bps: None,
        payload_j_per_gb: None,
        bus_j_per_gb: None,
        beyond_idle_j_per_gb: None,
        j_per_gflop: None,
        step_error: None,
        quality,
    }
}

/// What meters are told of together: all of one part, but each sensor and battery alone, since nobody knows what two of
/// them have in common.
fn name(meter: &EnergySamples) -> String {
    match meter.part {
        EnergyPart::Sensor | EnergyPart::Battery => format!("{} {}", meter.part, meter.meter),
        part => part.to_string(),
    }
}

fn meters(measured: &[&Measured]) -> BTreeSet<String> {
    measured.iter().flat_map(|visit| &visit.samples.energy).map(name).collect()
}

/// A visit's samples by one meter: watts, seconds of a repetition. Samples without a reading are left out.
struct Told {
    watts: Vec<f64>,
    seconds: Vec<f64>,
    /// The greatest step error.
    step: f64,
}

fn told(visit: &Measured, meter: &str, hz: f64) -> Told {
    let columns: Vec<&EnergySamples> = visit.samples.energy.iter().filter(|column| name(column) == meter).collect();
    let mut told = Told { watts: Vec::new(), seconds: Vec::new(), step: 0.0 };
    for (index, ticks) in visit.samples.ticks.iter().enumerate() {
        let watts = |column: &&EnergySamples| {
            Some(column.microjoules[index]? as f64 * 1e-6 * hz / column.ticks[index].max(1) as f64)
        };
        let Some(watts) = columns.iter().map(watts).sum::<Option<f64>>().filter(|_| !columns.is_empty()) else {
            continue;
        };
        told.watts.push(watts);
        told.seconds.push(*ticks as f64 / hz / visit.repetitions as f64);
        let step = |column: &&EnergySamples| column.update_us as f64 * 1e-6 * hz / column.ticks[index].max(1) as f64;
        told.step = columns.iter().map(step).fold(told.step, f64::max);
    }
    told
}

fn of_meter(
    bare: &EnergyRow,
    case: &Case,
    meter: &str,
    measured: &[&Measured],
    rest: &[&Measured],
    hz: f64,
) -> Option<EnergyRow> {
    let visits: Vec<Told> = measured.iter().map(|visit| told(visit, meter, hz)).collect();
    let step = visits.iter().map(|told| told.step).fold(0.0, f64::max);
    let power: Vec<Vec<f64>> = visits.iter().map(|told| told.watts.clone()).collect();
    let summary = summarize(&power)?;
    let volume = measured.last()?.volume;
    let idle = rest.iter().map(|visit| told(visit, meter, hz)).collect::<Vec<_>>();
    let idle_step = idle.iter().map(|told| told.step).fold(0.0, f64::max);
    let idle = summarize(&idle.into_iter().map(|told| told.watts).collect::<Vec<_>>()).map(|s| cost(&s, idle_step));
    // Joules of a repetition, divided among `units`, beyond so many watts.
    let share = |units: u64, base: f64| -> Option<Summary> {
        let each = |told: &Told| -> Vec<f64> {
            told.watts.iter().zip(&told.seconds).map(|(w, s)| (w - base) * s * GIGA / units as f64).collect()
        };
        summarize(&visits.iter().map(each).collect::<Vec<_>>()).filter(|_| units > 0)
    };
    let joules = |units: u64| share(units, 0.0).map(|summary| cost(&summary, step));
    let payload = volume.payload();
    let mut row = EnergyRow {
        meter: Some(meter.into()),
        power_w: Some(cost(&summary, step)),
        idle_power_w: idle,
        payload_j_per_gb: joules(payload),
        bus_j_per_gb: joules(volume.bus()),
        j_per_gflop: joules(volume.flops),
        step_error: Some(step),
        quality: Quality {
            samples: summary.samples,
            flags: flags(case, measured, &power, &summary, hz),
            ..bare.quality.clone()
        },
        ..bare.clone()
    };
    if payload > 0 {
        let rates = |told: &Told| told.seconds.iter().map(|s| payload as f64 / s).collect::<Vec<_>>();
        let rates = summarize(&visits.iter().map(rates).collect::<Vec<_>>())?;
        row.payload_bps = Some(Rate::from(&rates));
        row.beyond_idle_j_per_gb = idle.and_then(|idle| {
            // What one watt is worth in joules a gigabyte: both the meter's steps and the spread at rest count in watts.
            let worth = GIGA / rates.median;
            let off = step * summary.median;
            let beyond = share(payload, idle.median)?;
            let low = beyond.ci95[0] - (off + idle.ci95[1] - idle.median) * worth;
            let high = beyond.ci95[1] + (off + idle.median - idle.ci95[0]) * worth;
            Some(Cost { best: beyond.least, median: beyond.median, ci95: [low, high] })
        });
    }
    Some(row)
}

/// A figure with its interval, widened by a relative error.
fn cost(summary: &Summary, error: f64) -> Cost {
    let [low, high] = summary.ci95;
    let off = error * summary.median;
    Cost { best: summary.least, median: summary.median, ci95: [low - off, high + off] }
}

/// The answer: the dearest way to memory by the widest meter, or why there is none.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let rows = &report.energy;
    let refused = rows.iter().map(|row| &row.quality).find(|quality| quality.outcome == Status::Unavailable);
    let refusal = refused.and_then(|quality| quality.reason.as_ref());
    let first = ["package", "dram"].map(|part| sentence(rows, part));
    let said: Vec<String> = first.into_iter().flatten().collect();
    match (said.is_empty(), rows.iter().find_map(|row| row.meter.clone()), refusal) {
        (false, ..) => said,
        (true, Some(meter), _) => sentence(rows, &meter).into_iter().collect(),
        (true, None, Some(reason)) => vec![format!("Energy was not measured: {reason}.")],
        (true, None, None) => Vec::new(),
    }
}

/// `[low, high]`.
fn range(cost: &Cost) -> String {
    format!("[{}, {}]", significant(cost.ci95[0]), significant(cost.ci95[1]))
}

fn sentence(rows: &[EnergyRow], meter: &str) -> Option<String> {
    let ours = || rows.iter().filter(|row| row.meter.as_deref() == Some(meter) && !row.is_idle());
    let largest = ours().map(|row| row.working_set_bytes).max()?;
    let priority = |row: &&EnergyRow| ["triad", "copy", "load"].iter().rposition(|name| *name == row.kernel);
    let row = ours().filter(|row| row.working_set_bytes == largest).min_by_key(|row| priority(row).unwrap_or(9))?;
    let (power, energy, rate) = (row.power_w?, row.payload_j_per_gb?, row.payload_bps?);
    let mut text = format!(
        "{}: {} over {} on {} CPUs costs {} J for each GB of payload {} ({} W {} at {})",
        meter,
        row.kernel,
        row.working_set_bytes,
        row.threads,
        significant(energy.median),
        range(&energy),
        significant(power.median),
        range(&power),
        BytesPerSecond(rate.median)
    );
    if let (Some(idle), Some(beyond)) = (row.idle_power_w, row.beyond_idle_j_per_gb) {
        let [idle, own] = [significant(idle.median), significant(beyond.median)];
        text += &format!("; {own} J {} of it beyond the {idle} W at rest", range(&beyond));
    }
    Some(text + ".")
}
