//! What work costs in energy: watts at rest and under each kernel, joules a gigabyte and a flop.
//!
//! A counter's reading is as old as its last update. Both readings of a sample are, so what lies between them is wrong by
//! one update's worth at most, either way: intervals are widened by that.

use membound_core::in_order::InOrder;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::quality::{Quality, Status, figure, flags, summarize};
use crate::rate::{Cost, Rate};
use crate::row::{Metric, Row};
use crate::visits::{Visits, measured};
use membound_core::case::{Protocol, Work};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::energy::EnergyPart;
use membound_core::memory::MemoryKind;
use membound_core::record::{EnergySamples, Measured, Measurement};
use membound_core::stats::Summary;
use membound_core::stats::states::Better;
use membound_core::units::Bytes;

/// What one meter, or all of one part, told of one case.
pub type EnergyRow = Row<EnergyFigures>;

/// What work costs. Of intervals see [`Cost`]; `best` is the least sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct EnergyFigures {
    /// The part of the machine, of all packages together; or a sensor's own name. Absent where nothing could be read.
    #[serde(skip)]
    pub meter: Option<String>,
    /// Watts.
    #[serde(rename = "power_W")]
    pub power_w: Option<Cost>,
    /// Watts at rest, where that was measured.
    #[serde(rename = "idle_power_W")]
    pub idle_power_w: Option<Cost>,
    /// Payload bytes per second in the same samples.
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
}

/// What tells rows of energy from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EnergyKeys {
    /// The part of the machine, of all packages together; or a sensor's own name. Absent where nothing could be read.
    meter: Option<String>,
    /// The kernel's name, or `idle`.
    kernel: String,
    /// Store kind; absent at rest.
    store: Option<StoreKind>,
    /// Access width; absent at rest.
    width: Option<Width>,
    /// Memory kind asked for; absent at rest.
    memory: Option<MemoryKind>,
    /// Number of threads.
    threads: usize,
    /// Their CPUs.
    cpus: Vec<u32>,
    /// Bytes touched by one repetition.
    working_set_bytes: Bytes,
}

impl Metric for EnergyFigures {
    const NAME: &'static str = "energy";
    const UNIT: &'static str = "W";
    type Keys = EnergyKeys;

    fn keys(row: &EnergyRow) -> EnergyKeys {
        let (case, variant) = (&row.case, row.case.variant());
        EnergyKeys {
            meter: row.meter.clone(),
            kernel: row.kernel().into(),
            store: variant.map(|variant| variant.store),
            width: variant.map(|variant| variant.width),
            memory: variant.map(|_| case.memory.kind),
            threads: case.threads(),
            cpus: case.cpus.clone(),
            working_set_bytes: case.working_set,
        }
    }

    fn what(row: &EnergyRow) -> String {
        row.kernel().into()
    }
}

impl EnergyRow {
    /// The kernel's name, or `idle`.
    pub fn kernel(&self) -> &str {
        self.case.variant().map_or(IDLE, |variant| &variant.kernel)
    }

    /// Whether it tells of the machine at rest.
    pub fn is_idle(&self) -> bool {
        self.case.variant().is_none()
    }
}

const IDLE: &str = "idle";
/// Joules are told for so many bytes and operations.
const GIGA: f64 = 1e9;

/// One row a case and meter: by meter, the machine at rest first.
pub(crate) fn rows(visits: &Visits<'_>) -> Vec<EnergyRow> {
    let hz = visits.hz();
    let all: Vec<&Vec<&Measurement>> =
        visits.cases.iter().filter(|visits| visits[0].case.protocol == Protocol::Energy).collect();
    let is_rest = |visits: &&&Vec<&Measurement>| matches!(visits[0].case.work, Work::Idle);
    let rest = all.iter().find(is_rest).map(|visits| measured(visits)).unwrap_or_default();
    let mut rows: Vec<EnergyRow> = all.iter().flat_map(|visits| of_case(visits, &rest, hz)).collect();
    let place = |row: &EnergyRow| (Kernel::place(row.kernel()), row.case.threads(), row.case.working_set);
    rows.order_by_key(|row| (row.meter.clone(), !row.is_idle(), place(row)));
    rows
}

fn of_case(visits: &[&Measurement], rest: &[&Measured], hz: f64) -> Vec<EnergyRow> {
    let case = &visits[0].case;
    let measured = measured(visits);
    let quality = Quality { rounds: measured.len(), ..Quality::of(visits) };
    let mut bare = Row { case: case.clone(), quality, figures: EnergyFigures::default() };
    let rows: Vec<EnergyRow> =
        meters(&measured).iter().filter_map(|meter| of_meter(&bare, meter, &measured, rest, hz)).collect();
    if !rows.is_empty() {
        return rows;
    }
    if bare.quality.is_measured() {
        bare.quality.refuse(Status::Unavailable, "no meter could be read while it ran");
    }
    vec![bare]
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

fn of_meter(bare: &EnergyRow, meter: &str, measured: &[&Measured], rest: &[&Measured], hz: f64) -> Option<EnergyRow> {
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
    let figures = EnergyFigures {
        meter: Some(meter.into()),
        power_w: Some(cost(&summary, step)),
        idle_power_w: idle,
        payload_j_per_gb: joules(payload),
        bus_j_per_gb: joules(volume.bus()),
        j_per_gflop: joules(volume.flops),
        step_error: Some(step),
        ..EnergyFigures::default()
    };
    let flags = flags(&bare.case, measured, &power, &summary, hz);
    let quality = Quality { samples: summary.samples, flags, ..bare.quality.clone() };
    let mut row = Row { case: bare.case.clone(), quality, figures };
    if payload > 0 {
        let rates = |told: &Told| told.seconds.iter().map(|s| payload as f64 / s).collect::<Vec<_>>();
        let rates = figure(&visits.iter().map(rates).collect::<Vec<_>>(), &[], Better::Higher)?;
        row.payload_bps = Some(rates);
        row.beyond_idle_j_per_gb = idle.and_then(|idle| {
            // What one watt is worth in joules a gigabyte: both the meter's steps and the spread at rest count in watts.
            let worth = GIGA / rates.value();
            let off = step * summary.median;
            let beyond = share(payload, idle.value())?;
            let low = beyond.ci95[0] - (off + idle.ends()[1] - idle.value()) * worth;
            let high = beyond.ci95[1] + (off + idle.value() - idle.ends()[0]) * worth;
            Some(Cost::plain(beyond.least, beyond.median, [low, high]))
        });
    }
    Some(row)
}

/// A figure with its interval, widened by a relative error.
fn cost(summary: &Summary, error: f64) -> Cost {
    let [low, high] = summary.ci95;
    let off = error * summary.median;
    Cost::plain(summary.least, summary.median, [low - off, high + off])
}
