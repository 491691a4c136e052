//! Latency under load: from visits to rows, and from rows to a curve for each mix.

use membound_core::in_order::{InOrder, grouped};
use schemars::JsonSchema;
use serde::Serialize;

use crate::flag::Flag;
use crate::quality::{Sampled, figure};
use crate::rate::{Cost, Rate};
use crate::row::{Metric, Row};
use crate::visits::{Visits, measured};
use membound_core::case::{Case, Work};
use membound_core::curves::queue;
use membound_core::curves::queue::Queue;
use membound_core::kernel::mix::Mix;
use membound_core::memory::{MemoryKind, Obtained};
use membound_core::record::{Measured, Measurement};
use membound_core::stats::states::Better;
use membound_core::units::Bytes;
use membound_core::work::loaded::{Load, Loaded};

/// A chase over less than this many last-level caches may find lines there.
const CACHES_MIN: f64 = 4.0;

/// Latency of memory beside a load: one tidy row.
pub type LoadedRow = Row<LoadedFigures>;

/// How long a load takes, and what the others move meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LoadedFigures {
    /// How many times the first CPU's last-level cache the chase is; absent where that cache is unknown.
    #[serde(skip)]
    pub caches: Option<f64>,
    /// Dependent-load latency, nanoseconds. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The same in core clock cycles, each sample by its own clock: the median of those visits that `latency_ns` is of and that were
    /// undisturbed by their nanoseconds.
    pub latency_cycles: Option<f64>,
    /// Bytes per second that the loading threads read and wrote while the chase ran. Absent where none did.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// What of that crossed the bus: the same, since lines are loaded before they are stored.
    #[serde(rename = "bus_Bps")]
    pub bus_bps: Option<Rate>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What tells latencies under load from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoadedKeys {
    /// What the other threads did.
    load: Load,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// NUMA node asked for.
    node: Option<u32>,
    /// Number of threads; the first chases, the others load.
    threads: usize,
    /// Their CPUs.
    cpus: Vec<u32>,
    /// Bytes of the chase.
    chase_bytes: Bytes,
    /// Bytes of all threads.
    working_set_bytes: Bytes,
    /// How many times the first CPU's last-level cache the chase is; absent where that cache is unknown.
    caches: Option<f64>,
}

impl Metric for LoadedFigures {
    const NAME: &'static str = "loaded";
    const UNIT: &'static str = "ns";
    type Keys = LoadedKeys;

    fn keys(row: &LoadedRow) -> LoadedKeys {
        let Loaded { chase, load } = row.work();
        LoadedKeys {
            load,
            memory: row.case.memory.kind,
            node: row.case.memory.node(),
            threads: row.case.threads(),
            cpus: row.case.cpus.clone(),
            chase_bytes: chase,
            working_set_bytes: row.case.working_set,
            caches: row.caches,
        }
    }

    fn what(row: &LoadedRow) -> String {
        row.load().to_string()
    }
}

impl LoadedRow {
    /// What the other threads did.
    pub fn load(&self) -> Load {
        self.work().load
    }

    pub(crate) fn work(&self) -> Loaded {
        let work = if let Work::Loaded(work) = self.case.work { Some(work) } else { None };
        work.expect("rows of latencies under load are made of loads alone")
    }

    /// Whether its latency is beside its load.
    pub(crate) fn is_sound(&self) -> bool {
        self.quality.is_measured() && self.latency_ns.is_some() && !self.quality.has(Flag::Starved)
    }

    /// What was chased, and by which CPU.
    fn chase(&self) -> (MemoryKind, Option<u32>, Bytes, Option<&u32>) {
        let Case { memory, cpus, .. } = &self.case;
        (memory.kind, memory.node(), self.work().chase, cpus.first())
    }
}

/// Latencies under load.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UnderLoad {
    /// One row a load: alone, beside idle threads, then by mix from little load to much.
    pub rows: Vec<LoadedRow>,
    /// The same as a curve for each mix and number of threads.
    pub curves: Vec<LoadCurve>,
}

/// Latency over bandwidth for one mix, with a queue's fit. Figures of the fit are [value, low, high].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LoadCurve {
    /// The mix.
    pub mix: Mix,
    /// Threads.
    pub threads: usize,
    /// Rows' indices into [`UnderLoad::rows`], by rising load; beside idle threads first, if that was measured.
    pub rows: Vec<usize>,
    /// Greatest bandwidth measured, bytes per second on the bus.
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

/// All latencies under load.
pub(crate) fn under_load(visits: &Visits<'_>) -> UnderLoad {
    let mut rows: Vec<LoadedRow> = visits.rows(|case| row(case, visits));
    let place = |row: &LoadedRow| match row.load() {
        Load::Alone => (0, None, 0),
        Load::Idle => (1, None, 0),
        Load::Mixed { mix, delay_ns } => (2, Some(mix), u32::MAX - delay_ns),
    };
    rows.order_by_key(|row| (row.case.memory.kind, row.work().chase, row.case.threads().max(2), place(row)));
    mark_idle(&mut rows);
    mark_falling(&mut rows);
    UnderLoad { curves: curves(&rows), rows }
}

fn row(visits: &[&Measurement], all: &Visits<'_>) -> Option<LoadedRow> {
    let (hz, machine) = (all.hz(), &all.header().machine);
    let case = &visits[0].case;
    let Work::Loaded(work) = case.work else { return None };
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| latency_ns(visit, hz));
    let cache = case.cpus.first().and_then(|&cpu| machine.last_level(cpu));
    let caches = cache.map(|cache| work.chase.0 as f64 / cache.size.0.max(1) as f64);
    let may_be_cached = sampled.summary.is_some() && caches.is_some_and(|caches| caches < CACHES_MIN);
    sampled.quality.flag([(Flag::MayBeCached, may_be_cached), (Flag::Starved, is_starved(&sampled.measured))]);
    let (latency_ns, latency_cycles) = beside_the_load(visits, all, &mut sampled);
    let figures = LoadedFigures {
        caches,
        latency_ns,
        latency_cycles,
        payload_bps: rate(&sampled.measured, hz, |visit| visit.volume.payload()),
        bus_bps: rate(&sampled.measured, hz, |visit| visit.volume.bus()),
        obtained: sampled.obtained(),
    };
    Some(Row { case: case.clone(), quality: sampled.quality, figures })
}

/// The latency in the visits in which the load was what tables show of it: what disturbs the loading threads makes a chase beside them
/// faster, and the least latency would stand beside a load that it never met. In nanoseconds, and of the same visits in cycles.
fn beside_the_load(
    visits: &[&Measurement],
    all: &Visits<'_>,
    sampled: &mut Sampled<'_>,
) -> (Option<Cost>, Option<f64>) {
    /// Of the load's capability, that a visit must have met.
    const SAME_LOAD: f64 = 0.9;
    let load = |visits: &[&Measured]| rate(visits, all.hz(), |visit| visit.volume.payload());
    let (of_all, cycles_of_all) = (sampled.cost(), sampled.cycles(all.hz()));
    let Some(usual) = load(&measured(visits)) else { return (of_all, cycles_of_all) };
    let has_met = |visit: &&&Measurement| {
        let own = visit.outcome.measured().and_then(|measured| load(&[measured]));
        own.is_some_and(|own| own.value() >= SAME_LOAD * usual.value())
    };
    let heavy: Vec<&Measurement> = visits.iter().filter(has_met).copied().collect();
    if heavy.is_empty() {
        return (of_all, cycles_of_all);
    }
    let mut beside = Sampled::of(&heavy, &all.gauge, |visit| latency_ns(visit, all.hz()));
    let of_both = |(of_all, Cost { best, capability, undisturbed_share, .. })| Cost {
        best,
        capability,
        undisturbed_share,
        ..of_all
    };
    (of_all.zip(beside.cost()).map(of_both), beside.cycles(all.hz()))
}

/// Whether in half of the samples or more the loading threads moved nothing: then the latency is not beside that load.
fn is_starved(measured: &[&Measured]) -> bool {
    let moved: Vec<u64> = measured.iter().flat_map(|visit| visit.samples.load_repetitions.iter().copied()).collect();
    !moved.is_empty() && 2 * moved.iter().filter(|repetitions| **repetitions == 0).count() >= moved.len()
}

/// Nanoseconds of a load of the chase.
pub(crate) fn latency_ns(visit: &Measured, hz: f64) -> Vec<f64> {
    visit.samples.ns_each(visit.repetitions as f64, hz)
}

/// What the loading threads moved while the chase ran; absent where none loads.
fn rate(measured: &[&Measured], hz: f64, bytes: fn(&Measured) -> u64) -> Option<Rate> {
    let batches: Vec<Vec<f64>> = measured.iter().map(|visit| load_bps(visit, hz, bytes)).collect();
    figure(&batches, &[], Better::Higher)
}

/// Bytes per second of the loading threads, sample by sample; empty where none loads.
pub(crate) fn load_bps(visit: &Measured, hz: f64, bytes: fn(&Measured) -> u64) -> Vec<f64> {
    let pairs = visit.samples.load_repetitions.iter().zip(&visit.samples.ticks);
    pairs.map(|(repetitions, ticks)| (repetitions * bytes(visit)) as f64 / (*ticks as f64 / hz)).collect()
}

/// Threads that run and leave memory alone must not change the latency.
fn mark_idle(rows: &mut [LoadedRow]) {
    let differs = |row: &LoadedRow| {
        let alone = rows.iter().find(|other| other.load() == Load::Alone && other.chase() == row.chase());
        let both = row.latency_ns.zip(alone.and_then(|alone| alone.latency_ns));
        row.load() == Load::Idle && both.is_some_and(|(idle, alone)| idle.is_apart(alone))
    };
    let verdicts: Vec<bool> = rows.iter().map(differs).collect();
    for (row, differs) in rows.iter_mut().zip(verdicts) {
        row.quality.flag([(Flag::IdleDiffers, differs)]);
    }
}

/// With more load neither latency nor bandwidth falls, but for their intervals.
fn mark_falling(rows: &mut [LoadedRow]) {
    let falls = |index: usize| {
        let row: &LoadedRow = &rows[index];
        let is_lighter = |lighter: &&LoadedRow| match (lighter.load(), row.load()) {
            (Load::Idle, Load::Mixed { .. }) => true,
            (Load::Mixed { mix, .. }, Load::Mixed { mix: ours, .. }) => {
                mix == ours && lighter.case.threads() == row.case.threads()
            }
            _ => false,
        };
        let lighter = rows[..index].iter().filter(is_lighter).filter(|lighter| lighter.is_sound());
        row.is_sound()
            && lighter.filter(|lighter| lighter.chase() == row.chase()).any(|lighter| {
                let latency = row.latency_ns.zip(lighter.latency_ns);
                let rate = row.bus_bps.zip(lighter.bus_bps);
                latency.is_some_and(|(heavy, light)| heavy.wide()[1] < light.wide()[0])
                    || rate.is_some_and(|(heavy, light)| heavy.wide()[1] < light.wide()[0])
            })
    };
    let verdicts: Vec<bool> = (0..rows.len()).map(falls).collect();
    for (row, falls) in rows.iter_mut().zip(verdicts) {
        row.quality.flag([(Flag::NotMonotone, falls)]);
    }
}

/// A curve for each mix and number of threads, from beside idle threads to flat out.
fn curves(rows: &[LoadedRow]) -> Vec<LoadCurve> {
    let mixed = |index: usize| match rows[index].load() {
        Load::Mixed { mix, .. } => rows[index].is_sound().then_some((mix, index)),
        Load::Alone | Load::Idle => None,
    };
    let place = |index: usize| (rows[index].case.threads(), rows[index].chase());
    let alike = grouped((0..rows.len()).filter_map(mixed), |(mix, index)| (*mix, place(*index)));
    let curves = alike.into_iter().map(|((mix, at), own)| {
        let is_start =
            |index: &usize| rows[*index].load() == Load::Idle && rows[*index].is_sound() && place(*index) == at;
        let rows_of = (0..rows.len()).find(is_start).into_iter().chain(own.into_iter().map(|(_, index)| index));
        fitted(LoadCurve::bare(mix, at.0, rows_of.collect()), rows)
    });
    curves.collect()
}

impl LoadCurve {
    fn bare(mix: Mix, threads: usize, rows: Vec<usize>) -> Self {
        LoadCurve {
            mix,
            threads,
            rows,
            greatest_bps: 0.0,
            idle_ns: None,
            saturation_bps: None,
            knee_bps: None,
            knee_ns: None,
        }
    }
}

fn fitted(curve: LoadCurve, rows: &[LoadedRow]) -> LoadCurve {
    let point = |&index: &usize| {
        let row = &rows[index];
        let latency = row.latency_ns?;
        let rate = row.bus_bps.map_or([0.0; 3], |rate| rate.interval());
        Some((rate, latency.interval()))
    };
    let points: Vec<_> = curve.rows.iter().filter_map(point).collect();
    let greatest_bps = points.iter().map(|(rate, _)| rate[0]).fold(0.0, f64::max);
    let Some(queue) = queue::queue(&points) else { return LoadCurve { greatest_bps, ..curve } };
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
