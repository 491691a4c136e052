//! Messages between processes: what they cost over their size, what that says of the path, and what pairs do to each other.

use membound_core::in_order::{InOrder, each_once};
use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::flag::Flag;
use crate::quality::{Quality, Sampled};
use crate::rate::{Cost, Rate};
use crate::row::{AnyRow, Metric, Row};
use crate::visits::Visits;
use membound_core::case::{Case, Work};
use membound_core::curves::pingpong::fit::Point;
use membound_core::curves::pingpong::path::{Curves, Path, Prediction, Source, Sourced};
use membound_core::json::text;
use membound_core::record::{Measured, Measurement};
use membound_core::stats::quantiles::median;
use membound_core::units::Bytes;
use membound_core::work::pingpong::{Buffers, MessageMode, MessagePath, PingPong};

/// Messages of one size between so many pairs at once.
pub type PingPongRow = Row<PingPongFigures>;

/// What messages cost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PingPongFigures {
    /// Nanoseconds for one way: half a round trip; of a stream the time from a message to the next; of an exchange that in
    /// which one goes each way. Of several pairs the harmonic mean, so that bandwidths add up.
    pub one_way_ns: Option<Cost>,
    /// Bytes per second as IMB counts them, of all pairs; an exchange counts both ways. Absent for messages without bytes.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Nanoseconds for one way of the slowest pair: median. Absent for a single pair.
    pub slowest_pair_ns: Option<f64>,
    /// The same of the fastest.
    pub fastest_pair_ns: Option<f64>,
    /// Nanoseconds by the model of the path; absent where there is none, and for other modes than `pingpong`.
    pub model_ns: Option<f64>,
}

/// What tells rows of messages from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PingPongKeys {
    /// What the two of a pair do with a message.
    mode: MessageMode,
    /// Whether messages come from and go to the same place.
    buffers: Buffers,
    /// How many pairs do so at once.
    pairs: usize,
    /// Their CPUs, pair by pair.
    cpus: Vec<u32>,
    /// What lies between the two of each pair.
    path: MessagePath,
    /// Bytes of a message.
    message_bytes: Bytes,
}

impl Metric for PingPongFigures {
    const NAME: &'static str = "pingpong";
    const UNIT: &'static str = "ns";
    type Keys = PingPongKeys;

    fn keys(row: &PingPongRow) -> PingPongKeys {
        let ((mode, pairs), (path, buffers)) = (row.way(), row.path());
        let (cpus, message_bytes) = (row.case.cpus.clone(), row.case.working_set);
        PingPongKeys { mode, buffers, pairs, cpus, path, message_bytes }
    }

    fn what(row: &PingPongRow) -> String {
        let (mode, pairs) = row.way();
        format!("{mode} of {}, {pairs}-{pairs}", row.case.working_set)
    }
}

impl PingPongRow {
    fn work(&self) -> &PingPong {
        let work = if let Work::PingPong(work) = &self.case.work { Some(work) } else { None };
        work.expect("rows of messages are made of messages alone")
    }

    /// What is done with a message, by how many pairs at once.
    pub fn way(&self) -> (MessageMode, usize) {
        (self.work().mode, self.work().pairs.len())
    }

    /// Whether the model of its path tells of it: pairs over several paths share none, and those with too few CPUs wait for these.
    pub fn is_modelled(&self) -> bool {
        self.work().is_of_one_path() && !self.work().oversubscribed
    }

    /// What lies between the two of each pair, and their kind of buffers.
    pub fn path(&self) -> (MessagePath, Buffers) {
        (self.work().path, self.work().buffers)
    }
}

/// A parameter of a path's model: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PathRow {
    /// `pingpong-model`.
    pub metric: String,
    /// What lies between the two of each pair.
    pub path: MessagePath,
    /// Whether messages come from and go to the same place.
    pub buffers: Buffers,
    /// `latency`, `bandwidth` (of the regime that begins at `from_bytes`), `switch` (the largest size before another regime begins),
    /// `cache` (its capacity), `beyond cache`, `asymptote`, `chunk`, `turn-around`, `gap`, `held` (share of a byte's time during which
    /// it holds the path), `slowdown` (of directions that are both busy), `shared` (1 or 0), `residual`, `noise`; `2-2`, `3-3`: typical
    /// deviation of the model from so many pairs; and `2-2 from 1-1`: that of what one pair alone says, with the limit of a chunk.
    pub parameter: String,
    /// Where what it tells of begins.
    pub from_bytes: Option<Bytes>,
    /// `s`, `B`, `B/s`, or empty for a share.
    pub unit: String,
    /// Its value.
    pub value: f64,
    /// Its 95 % interval; absent where there is none.
    pub ci95: Option<[f64; 2]>,
    /// What told it.
    pub told_by: Source,
    /// Whether the model holds: residuals within what noise allows.
    pub holds: bool,
}

/// Its figures come from many rows; its unit changes from row to row.
impl AnyRow for PathRow {
    fn metric(&self) -> &str {
        &self.metric
    }

    fn what(&self) -> String {
        format!("{}, {}: {}", self.path, self.buffers, self.parameter)
    }

    fn case(&self) -> Option<&Case> {
        None
    }

    fn quality(&self) -> Option<&Quality> {
        None
    }

    fn is_repeated(&self) -> bool {
        true
    }

    fn json(&self) -> String {
        text(self)
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        PathRow::json_schema(generator)
    }
}

/// A path, its model and what that says of pairs together.
#[derive(Debug, Clone, PartialEq)]
pub struct PathModel {
    /// What lies between the two of each pair.
    pub path: MessagePath,
    /// Whether messages come from and go to the same place.
    pub buffers: Buffers,
    /// The model.
    pub model: Path,
    /// What one pair alone says, and the limit of a chunk wherever that was told.
    pub one_pair: Path,
    /// Two pairs and more, as far as they were measured.
    pub predictions: Vec<Together>,
    /// Numbers of pairs that were measured over several paths alone: of them the model tells nothing.
    pub spread: Vec<usize>,
    /// Two pairs and three, where they were not: bytes, and bytes per second of all together, by one pair and that limit.
    pub forecasts: Vec<(usize, Vec<[f64; 2]>)>,
}

/// So many pairs at once, as measured: by all that is known, and by one pair alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Together {
    /// Held against the model of all curves.
    pub by_all: Prediction,
    /// Held against what one pair says, with the limit of a chunk.
    pub by_one: Prediction,
}

/// All that was measured of messages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Messages {
    /// One row a case: by path, buffers, mode, pairs and size.
    pub rows: Vec<PingPongRow>,
    /// One a path and kind of buffers, where a pair alone was measured at sizes enough.
    pub models: Vec<PathModel>,
    /// The parameters of these models, a row each.
    pub parameters: Vec<PathRow>,
}

/// Rows, and the models that they lead to.
pub(crate) fn messages(visits: &Visits<'_>) -> Messages {
    let mut rows: Vec<PingPongRow> = visits.rows(|case| row(case, visits));
    rows.order_by_key(|row| (row.path(), row.way(), row.case.working_set));
    let kinds: BTreeSet<(MessagePath, Buffers)> = rows.iter().map(|row| row.path()).collect();
    let models: Vec<PathModel> = kinds.into_iter().filter_map(|(path, buffers)| model(&rows, path, buffers)).collect();
    for row in rows.iter_mut().filter(|row| row.way().0 == MessageMode::PingPong && row.is_modelled()) {
        let own = models.iter().find(|model| (model.path, model.buffers) == row.path());
        row.model_ns = own.map(|own| own.model.one_way_s(row.case.working_set.0 as f64, row.way().1) * 1e9);
    }
    let parameters = models.iter().flat_map(PathModel::rows).collect();
    Messages { rows, models, parameters }
}

/// Nanoseconds of one way in each sample, of each pair.
fn pairs_ns(visit: &Measured, hz: f64) -> Vec<Vec<f64>> {
    let ways = visit.repetitions as f64 * visit.volume.units.max(1) as f64;
    let ns = |ticks: &Vec<u64>| ticks.iter().map(|ticks| *ticks as f64 / hz * 1e9 / ways).collect();
    visit.samples.pair_ticks.iter().map(ns).collect()
}

/// Of each sample, a figure of all pairs' times.
fn by_sample(pairs: &[Vec<f64>], of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let count = pairs.first().map_or(0, Vec::len);
    (0..count).map(|sample| of(&pairs.iter().map(|pair| pair[sample]).collect::<Vec<_>>())).collect()
}

fn harmonic(times: &[f64]) -> f64 {
    times.len() as f64 / times.iter().map(|time| 1.0 / time).sum::<f64>()
}

fn row(visits: &[&Measurement], all: &Visits<'_>) -> Option<PingPongRow> {
    let hz = all.hz();
    let case = &visits[0].case;
    let Work::PingPong(work) = &case.work else { return None };
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| by_sample(&pairs_ns(visit, hz), harmonic));
    sampled.quality.flag([(Flag::Oversubscribed, work.oversubscribed && sampled.summary.is_some())]);
    let one_way_ns = sampled.cost().filter(|cost| cost.best > 0.0);
    let sent = case.working_set.0 as f64
        * work.pairs.len() as f64
        * if work.mode == MessageMode::Exchange { 2.0 } else { 1.0 };
    let bps = |ns: f64| sent / ns * 1e9;
    let extreme = |of: fn(f64, f64) -> f64| {
        let each = |times: &[f64]| times.iter().copied().reduce(of).unwrap_or(f64::NAN);
        let all = sampled.measured.iter().flat_map(|visit| by_sample(&pairs_ns(visit, hz), each));
        median(all).filter(|_| work.pairs.len() > 1)
    };
    let figures = PingPongFigures {
        one_way_ns,
        payload_bps: one_way_ns.filter(|_| sent > 0.0).map(|cost| cost.each(bps)),
        slowest_pair_ns: extreme(f64::max),
        fastest_pair_ns: extreme(f64::min),
        model_ns: None,
    };
    Some(Row { case: case.clone(), quality: sampled.quality, figures })
}

fn model(rows: &[PingPongRow], path: MessagePath, buffers: Buffers) -> Option<PathModel> {
    let ours = |mode: MessageMode| {
        let is_ours = move |row: &&PingPongRow| row.path() == (path, buffers) && row.way().0 == mode;
        rows.iter().filter(is_ours).filter(|row| row.is_modelled() && row.quality.is_measured())
    };
    let point = |row: &PingPongRow| {
        let cost = row.one_way_ns?;
        let one_way_s = cost.interval().map(|ns| ns * 1e-9);
        Some(Point { bytes: row.case.working_set.0 as f64, one_way_s })
    };
    let alone = |mode: MessageMode| ours(mode).filter(|row| row.way().1 == 1).filter_map(point).collect::<Vec<_>>();
    let mut curves =
        Curves { one_way: alone(MessageMode::OneWay), exchange: alone(MessageMode::Exchange), ..Curves::default() };
    for row in ours(MessageMode::PingPong) {
        curves.pingpong.entry(row.way().1).or_default().extend(point(row));
    }
    let model = Path::of(&curves)?;
    let one_pair = Path::of_one_pair(&curves)?.with_limit(model.limit);
    let together = |(pairs, points): (&usize, &Vec<Point>)| Together {
        by_all: model.predict(*pairs, points),
        by_one: one_pair.predict(*pairs, points),
    };
    let predictions = curves.pingpong.iter().filter(|(pairs, _)| **pairs > 1).map(together).collect();
    let sizes = || curves.pingpong[&1].iter().map(|point| point.bytes).filter(|bytes| *bytes > 0.0);
    let forecast = |pairs: usize| {
        let rate = |bytes: f64| [bytes, pairs as f64 * bytes / one_pair.one_way_s(bytes, pairs)];
        (pairs, sizes().map(rate).collect())
    };
    let spread = rows.iter().filter(|row| row.path() == (path, buffers) && !row.is_modelled()).map(|row| row.way());
    let spread: BTreeSet<usize> = spread.filter(|way| way.0 == MessageMode::PingPong).map(|way| way.1).collect();
    let spread: Vec<usize> = spread.into_iter().filter(|pairs| !curves.pingpong.contains_key(pairs)).collect();
    let unmeasured = [2, 3].into_iter().filter(|pairs| !curves.pingpong.contains_key(pairs) && !spread.contains(pairs));
    let forecasts = unmeasured.filter(|_| model.alone.holds() && model.is_shared.value).map(forecast).collect();
    Some(PathModel { path, buffers, model, one_pair, predictions, spread, forecasts })
}

impl Messages {
    /// The rows of a path and kind of buffers.
    pub fn of(&self, path: MessagePath, buffers: Buffers) -> impl Iterator<Item = &PingPongRow> {
        self.rows.iter().filter(move |row| row.path() == (path, buffers))
    }

    /// Paths and kinds of buffers, in order.
    pub fn kinds(&self) -> Vec<(MessagePath, Buffers)> {
        each_once(self.rows.iter().map(|row| row.path()))
    }

    /// The model of a path and kind of buffers.
    pub fn model(&self, path: MessagePath, buffers: Buffers) -> Option<&PathModel> {
        self.models.iter().find(|model| (model.path, model.buffers) == (path, buffers))
    }
}

impl PathModel {
    /// Every parameter, one a row.
    pub fn rows(&self) -> Vec<PathRow> {
        let alone = &self.model.alone;
        let row = |parameter: &str, from: Option<f64>, unit: &str, value: [f64; 3], told_by: Source| PathRow {
            metric: "pingpong-model".into(),
            path: self.path,
            buffers: self.buffers,
            parameter: parameter.into(),
            from_bytes: from.map(|bytes| Bytes(bytes.round() as u64)),
            unit: unit.into(),
            value: value[0],
            ci95: (value[2] > value[1]).then_some([value[1], value[2]]),
            told_by,
            holds: alone.holds(),
        };
        let one = Source::OnePair;
        let mut rows = Vec::new();
        for regime in &alone.regimes {
            let from = Some(regime.from);
            rows.extend(regime.latency_s.map(|latency| row("latency", from, "s", latency, one)));
            rows.extend(regime.bytes_per_s.map(|rate| row("bandwidth", from, "B/s", rate, one)));
            rows.extend(regime.to.map(|[last, next]| row("switch", from, "B", [last, last, next], one)));
        }
        for cache in &alone.caches {
            rows.push(row("cache", None, "B", cache.capacity, one));
            rows.push(row("beyond cache", Some(cache.capacity[0]), "B/s", cache.bytes_per_s, one));
        }
        rows.extend(alone.asymptote.map(|rate| row("asymptote", None, "B/s", rate, one)));
        rows.extend(self.model.limit.map(|limit| row("chunk", None, "B", limit.value, limit.by)));
        let chunks = alone.chunks.as_ref().filter(|_| self.model.limit.is_some());
        rows.extend(chunks.map(|chunks| row("turn-around", None, "s", chunks.turnaround_s, one)));
        let told = |name: &str, unit: &str, told: Sourced<f64>| row(name, None, unit, [told.value; 3], told.by);
        rows.push(told("gap", "s", self.model.gap_s));
        rows.push(told("held", "", self.model.held));
        rows.push(told("slowdown", "", self.model.slowdown));
        let shared = self.model.is_shared;
        rows.push(told("shared", "", Sourced { value: f64::from(u8::from(shared.value)), by: shared.by }));
        rows.push(row("residual", None, "", [alone.residual; 3], one));
        rows.push(row("noise", None, "", [alone.noise; 3], one));
        for Together { by_all, by_one } in &self.predictions {
            let name = format!("{0}-{0}", by_all.pairs);
            let by = self.model.together_by();
            rows.push(PathRow { holds: by_all.holds(), ..row(&name, None, "", [by_all.off; 3], by) });
            let name = format!("{name} from 1-1");
            rows.push(PathRow { holds: by_one.holds(), ..row(&name, None, "", [by_one.off; 3], one) });
        }
        rows
    }
}
