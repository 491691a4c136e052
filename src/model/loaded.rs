//! Latency under load: from visits to rows, and from rows to a curve for each mix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quality::{Sampled, rated, summarize};
use super::rows::visits;
use super::{Cost, Quality, Rate, Report};
use crate::kernel::mix::Mix;
use crate::machine::Machine;
use crate::memory::{MemoryKind, Obtained};
use crate::plan::{Load, Work};
use crate::record::{Measured, Measurement, Record};
use crate::stats::{self, Queue};
use crate::units::{Bytes, BytesPerSecond, Nanoseconds};

/// A chase over less than this many last-level caches may find lines there.
const CACHES_MIN: f64 = 4.0;
/// Flag of a row that is no point of a curve.
const STARVED: &str = "starved";

/// Latency of memory beside a load: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedRow {
    /// `loaded`.
    pub metric: String,
    /// What the other threads did.
    pub load: Load,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// NUMA node asked for.
    pub node: Option<u32>,
    /// Number of threads; the first chases, the others load.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// Bytes of the chase.
    pub chase_bytes: Bytes,
    /// Bytes of all threads.
    pub working_set_bytes: Bytes,
    /// How many times the first CPU's last-level cache the chase is; absent where that cache is unknown.
    pub caches: Option<f64>,
    /// `ns`.
    pub unit: String,
    /// Nanoseconds of a load that waits for the one before. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The median in core clock cycles.
    pub latency_cycles: Option<f64>,
    /// Bytes a second that the loading threads read and wrote while the chase ran. Absent where none did.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// What of that crossed the bus: the same, since lines are loaded before they are stored.
    #[serde(rename = "bus_Bps")]
    pub bus_bps: Option<Rate>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

rated!(LoadedRow, |row| row.load.to_string());

/// Latency over bandwidth for one mix, with a queue's fit. Figures of the fit are [value, low, high].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LoadCurve {
    /// The mix.
    pub mix: Mix,
    /// Threads.
    pub threads: usize,
    /// Rows' indices into [`Report::loaded`], by rising load; beside idle threads first, if that was measured.
    pub rows: Vec<usize>,
    /// Greatest bandwidth measured, bytes a second on the bus.
    pub greatest_bps: f64,
    /// Latency without load, by the fit.
    pub idle_ns: Option<[f64; 3]>,
    /// Bandwidth at which latency would grow beyond all bounds; absent where the curve does not determine it.
    pub saturation_bps: Option<[f64; 3]>,
    /// Bandwidth at which bandwidth over latency is greatest; absent where that lies beyond what was measured.
    pub knee_bps: Option<[f64; 3]>,
    /// Latency there, by the fit.
    pub knee_ns: Option<f64>,
}

/// One row a case: alone, beside idle threads, then by mix from little load to much.
pub(super) fn rows(record: &Record) -> Vec<LoadedRow> {
    let (hz, machine) = (record.header.clock.hz.0, &record.header.machine);
    let mut rows: Vec<LoadedRow> = visits(record).iter().filter_map(|visits| row(visits, machine, hz)).collect();
    let place = |row: &LoadedRow| match row.load {
        Load::Alone => (0, None, 0),
        Load::Idle => (1, None, 0),
        Load::Mixed { mix, delay_ns } => (2, Some(mix), u32::MAX - delay_ns),
    };
    rows.sort_by_key(|row| (row.memory, row.chase_bytes, row.threads.max(2), place(row)));
    mark_idle(&mut rows);
    mark_falling(&mut rows);
    rows
}

fn row(visits: &[&Measurement], machine: &Machine, hz: f64) -> Option<LoadedRow> {
    let case = &visits[0].case;
    let Work::Loaded(work) = case.work else { return None };
    let mut sampled = Sampled::of(visits, hz, |visit| latency_ns(visit, hz));
    let cache = case.cpus.first().and_then(|&cpu| machine.last_level(cpu));
    let caches = cache.map(|cache| work.chase.0 as f64 / cache.size.0.max(1) as f64);
    let may_be_cached = sampled.summary.is_some() && caches.is_some_and(|caches| caches < CACHES_MIN);
    sampled.quality.flag([("may-be-cached", may_be_cached), (STARVED, is_starved(&sampled.measured))]);
    Some(LoadedRow {
        metric: "loaded".into(),
        load: work.load,
        memory: case.memory.kind,
        node: case.memory.node(),
        threads: case.threads(),
        cpus: case.cpus.clone(),
        chase_bytes: work.chase,
        working_set_bytes: case.working_set,
        caches,
        unit: "ns".into(),
        latency_ns: sampled.cost(),
        latency_cycles: sampled.cycles(hz),
        payload_bps: rate(&sampled.measured, hz, |visit| visit.volume.payload()),
        bus_bps: rate(&sampled.measured, hz, |visit| visit.volume.bus()),
        obtained: sampled.obtained(),
        quality: sampled.quality,
    })
}

/// Whether in half of the samples or more the loading threads moved nothing: then the latency is not beside that load.
fn is_starved(measured: &[&Measured]) -> bool {
    let moved: Vec<u64> = measured.iter().flat_map(|visit| visit.samples.load_repetitions.iter().copied()).collect();
    !moved.is_empty() && 2 * moved.iter().filter(|repetitions| **repetitions == 0).count() >= moved.len()
}

/// Nanoseconds of a load of the chase.
pub(super) fn latency_ns(visit: &Measured, hz: f64) -> Vec<f64> {
    visit.samples.ticks.iter().map(|ticks| *ticks as f64 / hz * 1e9 / visit.repetitions as f64).collect()
}

/// What the loading threads moved while the chase ran; absent where none loads.
fn rate(measured: &[&Measured], hz: f64, bytes: fn(&Measured) -> u64) -> Option<Rate> {
    let batches: Vec<Vec<f64>> = measured.iter().map(|visit| load_bps(visit, hz, bytes)).collect();
    summarize(&batches).as_ref().map(Rate::from)
}

/// Bytes a second of the loading threads, sample by sample; empty where none loads.
pub(super) fn load_bps(visit: &Measured, hz: f64, bytes: fn(&Measured) -> u64) -> Vec<f64> {
    let pairs = visit.samples.load_repetitions.iter().zip(&visit.samples.ticks);
    pairs.map(|(repetitions, ticks)| (repetitions * bytes(visit)) as f64 / (*ticks as f64 / hz)).collect()
}

fn is_apart(a: [f64; 2], b: [f64; 2]) -> bool {
    a[0] > b[1] || b[0] > a[1]
}

fn is_same_chase(a: &LoadedRow, b: &LoadedRow) -> bool {
    (a.memory, a.node, a.chase_bytes, a.cpus.first()) == (b.memory, b.node, b.chase_bytes, b.cpus.first())
}

/// Threads that run and leave memory alone must not change the latency.
fn mark_idle(rows: &mut [LoadedRow]) {
    let differs = |row: &LoadedRow| {
        let alone = rows.iter().find(|other| other.load == Load::Alone && is_same_chase(other, row));
        let both = row.latency_ns.zip(alone.and_then(|alone| alone.latency_ns));
        row.load == Load::Idle && both.is_some_and(|(idle, alone)| is_apart(idle.ci95, alone.ci95))
    };
    let verdicts: Vec<bool> = rows.iter().map(differs).collect();
    for (row, differs) in rows.iter_mut().zip(verdicts) {
        row.quality.flag([("idle-differs", differs)]);
    }
}

/// With more load neither latency nor bandwidth falls, but for their intervals.
fn mark_falling(rows: &mut [LoadedRow]) {
    let falls = |index: usize| {
        let row: &LoadedRow = &rows[index];
        let is_lighter = |lighter: &&LoadedRow| match (lighter.load, row.load) {
            (Load::Idle, Load::Mixed { .. }) => true,
            (Load::Mixed { mix, .. }, Load::Mixed { mix: ours, .. }) => mix == ours && lighter.threads == row.threads,
            _ => false,
        };
        let lighter = rows[..index].iter().filter(is_lighter).filter(|lighter| is_measured(lighter));
        is_measured(row)
            && lighter.filter(|lighter| is_same_chase(lighter, row)).any(|lighter| {
                let latency = row.latency_ns.zip(lighter.latency_ns);
                let rate = row.bus_bps.zip(lighter.bus_bps);
                latency.is_some_and(|(heavy, light)| heavy.ci95[1] < light.ci95[0])
                    || rate.is_some_and(|(heavy, light)| heavy.ci95[1] < light.ci95[0])
            })
    };
    let verdicts: Vec<bool> = (0..rows.len()).map(falls).collect();
    for (row, falls) in rows.iter_mut().zip(verdicts) {
        row.quality.flag([("not-monotone", falls)]);
    }
}

/// A curve for each mix and number of threads, from beside idle threads to flat out.
pub(super) fn curves(rows: &[LoadedRow]) -> Vec<LoadCurve> {
    let mut curves: Vec<LoadCurve> = Vec::new();
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| is_measured(row)) {
        let Load::Mixed { mix, .. } = row.load else { continue };
        let is_ours = |curve: &&mut LoadCurve| {
            curve.mix == mix && curve.threads == row.threads && is_same_chase(&rows[curve.rows[0]], row)
        };
        match curves.iter_mut().find(is_ours) {
            Some(curve) => curve.rows.push(index),
            None => {
                let is_start = |other: &LoadedRow| {
                    other.load == Load::Idle
                        && is_measured(other)
                        && is_same_chase(other, row)
                        && other.threads == row.threads
                };
                let start = rows.iter().position(is_start);
                let rows = start.into_iter().chain([index]).collect();
                curves.push(LoadCurve { mix, threads: row.threads, rows, ..LoadCurve::bare(mix) });
            }
        }
    }
    curves.into_iter().map(|curve| fitted(curve, rows)).collect()
}

impl LoadCurve {
    fn bare(mix: Mix) -> Self {
        LoadCurve {
            mix,
            threads: 0,
            rows: Vec::new(),
            greatest_bps: 0.0,
            idle_ns: None,
            saturation_bps: None,
            knee_bps: None,
            knee_ns: None,
        }
    }
}

fn is_measured(row: &LoadedRow) -> bool {
    row.quality.is_measured() && row.latency_ns.is_some() && !row.quality.has(STARVED)
}

fn fitted(curve: LoadCurve, rows: &[LoadedRow]) -> LoadCurve {
    let point = |&index: &usize| {
        let row = &rows[index];
        let latency = row.latency_ns?;
        let rate = row.bus_bps.map_or([0.0; 3], |rate| [rate.median, rate.ci95[0], rate.ci95[1]]);
        Some((rate, [latency.median, latency.ci95[0], latency.ci95[1]]))
    };
    let points: Vec<_> = curve.rows.iter().filter_map(point).collect();
    let greatest_bps = points.iter().map(|(rate, _)| rate[0]).fold(0.0, f64::max);
    let Some(queue) = stats::queue(&points) else { return LoadCurve { greatest_bps, ..curve } };
    let Queue { idle, capacity, knee, .. } = queue;
    LoadCurve {
        greatest_bps,
        idle_ns: Some(idle),
        saturation_bps: Some(capacity),
        // Beyond what was measured it would be a guess.
        knee_bps: (knee[0] <= greatest_bps).then_some(knee),
        knee_ns: (knee[0] <= greatest_bps).then(|| queue.delay(knee[0])),
        ..curve
    }
}

/// What a load of memory costs while others use it.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let measured = |load: Load| report.loaded.iter().find(|row| row.load == load && is_measured(row));
    let mut all = Vec::new();
    if let Some((row, latency)) = measured(Load::Alone).and_then(|row| Some((row, row.latency_ns?))) {
        let [low, high] = latency.ci95.map(|ns| Nanoseconds(ns).to_string());
        let idle = measured(Load::Idle).and_then(|row| row.latency_ns);
        let beside =
            idle.map_or_else(String::new, |idle| format!(", {} beside idle threads", Nanoseconds(idle.median)));
        let caches = row.caches.map_or_else(String::new, |caches| format!(", {caches:.0} last-level caches large"));
        all.push(format!(
            "A load from memory takes {} [{low}, {high}] where nothing else runs{beside} (one random cycle{caches}).",
            Nanoseconds(latency.median)
        ));
    }
    all.extend(report.load_curves.iter().filter_map(|curve| curve_sentence(report, curve)));
    all
}

fn curve_sentence(report: &Report, curve: &LoadCurve) -> Option<String> {
    let last = report.loaded.get(*curve.rows.last()?)?;
    let loaders = last.threads - 1;
    let plural = if loaders == 1 { "" } else { "s" };
    let (latency, rate) = (last.latency_ns?, BytesPerSecond(last.bus_bps?.median));
    let [ns, low, high] = [latency.median, latency.ci95[0], latency.ci95[1]].map(|ns| Nanoseconds(ns).to_string());
    let text = format!(
        "Beside {loaders} thread{plural} that move{} {rate} ({}) it takes {ns} [{low}, {high}]",
        if loaders == 1 { "s" } else { "" },
        curve.mix
    );
    let saturation = match curve.saturation_bps {
        Some([at, low, high]) => {
            let [at, low, high] = [at, low, high].map(|bps| BytesPerSecond(bps).to_string());
            format!("; by a queue's fit the bus saturates at {at} [{low}, {high}]")
        }
        None => "; where the bus saturates these threads can't show".into(),
    };
    let knee = curve.knee_bps.map_or_else(String::new, |[at, low, high]| {
        let [at, low, high] = [at, low, high].map(|bps| BytesPerSecond(bps).to_string());
        format!(", with its knee at {at} [{low}, {high}]")
    });
    Some(format!("{text}{saturation}{knee}."))
}
