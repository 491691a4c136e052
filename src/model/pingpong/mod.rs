//! Messages between processes: what they cost over their size, what that says of the path, and what pairs do to each other.

pub mod engine;
pub mod fit;
mod path;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::quality::{Quality, Sampled, rated};
use crate::model::rows::{median, visits};
use crate::model::{Cost, Rate, Report};
use crate::plan::{Buffers, MessageMode, MessagePath, Work};
use crate::record::{Measured, Measurement, Record};
use crate::units::{Bytes, BytesPerSecond, Nanoseconds, percent};

pub use fit::{Fit, Point};
pub use path::{Curves, Path, Prediction, Source, Told};

/// Messages of one size between so many pairs at once: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PingPongRow {
    /// `pingpong`.
    pub metric: String,
    /// What the two of a pair do with a message.
    pub mode: MessageMode,
    /// Whether messages come from and go to the same place.
    pub buffers: Buffers,
    /// How many pairs do so at once.
    pub pairs: usize,
    /// Their CPUs, pair by pair.
    pub cpus: Vec<u32>,
    /// What lies between the two of each pair.
    pub path: MessagePath,
    /// Bytes of a message.
    pub message_bytes: Bytes,
    /// `ns`.
    pub unit: String,
    /// Nanoseconds for one way: half a round trip; of a stream the time from a message to the next; of an exchange that in
    /// which one goes each way. Of several pairs the harmonic mean, so that bandwidths add up.
    pub one_way_ns: Option<Cost>,
    /// Bytes a second as IMB counts them, of all pairs; an exchange counts both ways. Absent for messages without bytes.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Nanoseconds for one way of the slowest pair: median. Absent for a single pair.
    pub slowest_pair_ns: Option<f64>,
    /// The same of the fastest.
    pub fastest_pair_ns: Option<f64>,
    /// Nanoseconds by the model of the path; absent where there is none, and for other modes than `pingpong`.
    pub model_ns: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
}

rated!(PingPongRow, |row| format!("{0} of {2}, {1}-{1}", row.mode, row.pairs, row.message_bytes));

/// A parameter of a path's model: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathRow {
    /// `pingpong-model`.
    pub metric: String,
    /// What lies between the two of each pair.
    pub path: MessagePath,
    /// Whether messages come from and go to the same place.
    pub buffers: Buffers,
    /// `latency`, `bandwidth` (of the regime that begins at `from_bytes`), `switch` (the largest size before another regime begins),
    /// `cache` (its capacity), `beyond cache`, `asymptote`, `chunk`, `turn-around`, `gap`, `held` (share of a byte's time during which
    /// it holds the path), `slowdown` (of directions that are both busy), `shared` (1 or 0), `residual`, `noise`; and `2-2`, `3-3`: typical
    /// deviation of the model from so many pairs.
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

/// A path, its model and what that says of pairs together.
#[derive(Debug, Clone, PartialEq)]
pub struct PathModel {
    /// What lies between the two of each pair.
    pub path: MessagePath,
    /// Whether messages come from and go to the same place.
    pub buffers: Buffers,
    /// The model.
    pub model: Path,
    /// Two pairs and more, as far as they were measured.
    pub predictions: Vec<Prediction>,
}

/// All that was measured of messages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Messages {
    /// One row a case: by path, buffers, mode, pairs and size.
    pub rows: Vec<PingPongRow>,
    /// One a path and kind of buffers, where a pair alone was measured at sizes enough.
    pub models: Vec<PathModel>,
}

/// Rows, and the models that they lead to.
pub(super) fn messages(record: &Record) -> Messages {
    let hz = record.header.clock.hz.0;
    let mut rows: Vec<PingPongRow> = visits(record).iter().filter_map(|visits| row(visits, hz)).collect();
    rows.sort_by_key(|row| (row.path, row.buffers, row.mode, row.pairs, row.message_bytes));
    let kinds: BTreeSet<(MessagePath, Buffers)> = rows.iter().map(|row| (row.path, row.buffers)).collect();
    let models: Vec<PathModel> = kinds.into_iter().filter_map(|(path, buffers)| model(&rows, path, buffers)).collect();
    for row in rows.iter_mut().filter(|row| row.mode == MessageMode::PingPong) {
        let own = models.iter().find(|model| (model.path, model.buffers) == (row.path, row.buffers));
        row.model_ns = own.map(|own| own.model.one_way_s(row.message_bytes.0 as f64, row.pairs) * 1e9);
    }
    Messages { rows, models }
}

/// Nanoseconds of one way in each sample, of each pair.
fn pairs_ns(visit: &Measured, hz: f64) -> Vec<Vec<f64>> {
    let ways = visit.repetitions as f64 * visit.volume.elements.max(1) as f64;
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

fn row(visits: &[&Measurement], hz: f64) -> Option<PingPongRow> {
    let case = &visits[0].case;
    let Work::PingPong(work) = &case.work else { return None };
    let mut sampled = Sampled::of(visits, hz, |visit| by_sample(&pairs_ns(visit, hz), harmonic));
    sampled.quality.flag([("oversubscribed", work.oversubscribed && sampled.summary.is_some())]);
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
    Some(PingPongRow {
        metric: "pingpong".into(),
        mode: work.mode,
        buffers: work.buffers,
        pairs: work.pairs.len(),
        cpus: case.cpus.clone(),
        path: work.path,
        message_bytes: case.working_set,
        unit: "ns".into(),
        one_way_ns,
        payload_bps: one_way_ns.filter(|_| sent > 0.0).map(|cost| cost.as_rate(bps)),
        slowest_pair_ns: extreme(f64::max),
        fastest_pair_ns: extreme(f64::min),
        model_ns: None,
        quality: sampled.quality,
    })
}

fn model(rows: &[PingPongRow], path: MessagePath, buffers: Buffers) -> Option<PathModel> {
    let ours = |mode: MessageMode| {
        rows.iter()
            .filter(move |row| (row.path, row.buffers, row.mode) == (path, buffers, mode) && row.quality.is_measured())
    };
    let point = |row: &PingPongRow| {
        let cost = row.one_way_ns?;
        let one_way_s = [cost.median, cost.ci95[0], cost.ci95[1]].map(|ns| ns * 1e-9);
        Some(Point { bytes: row.message_bytes.0 as f64, one_way_s })
    };
    let alone = |mode: MessageMode| ours(mode).filter(|row| row.pairs == 1).filter_map(point).collect::<Vec<_>>();
    let mut curves =
        Curves { one_way: alone(MessageMode::OneWay), exchange: alone(MessageMode::Exchange), ..Curves::default() };
    for row in ours(MessageMode::PingPong) {
        curves.pingpong.entry(row.pairs).or_default().extend(point(row));
    }
    let model = Path::of(&curves)?;
    let predictions = curves.pingpong.iter().filter(|(pairs, _)| **pairs > 1);
    let predictions = predictions.map(|(pairs, points)| model.predict(*pairs, points)).collect();
    Some(PathModel { path, buffers, model, predictions })
}

impl Messages {
    /// The rows of a path and kind of buffers.
    pub fn of(&self, path: MessagePath, buffers: Buffers) -> impl Iterator<Item = &PingPongRow> {
        self.rows.iter().filter(move |row| (row.path, row.buffers) == (path, buffers))
    }

    /// Paths and kinds of buffers, in order.
    pub fn kinds(&self) -> Vec<(MessagePath, Buffers)> {
        let mut kinds: Vec<_> = self.rows.iter().map(|row| (row.path, row.buffers)).collect();
        kinds.dedup();
        kinds
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
            rows.push(row("latency", from, "s", regime.latency_s, one));
            rows.extend(regime.bytes_per_s.map(|rate| row("bandwidth", from, "B/s", rate, one)));
            rows.extend(regime.to.map(|[last, next]| row("switch", from, "B", [last, last, next], one)));
        }
        for cache in &alone.caches {
            rows.push(row("cache", None, "B", cache.capacity, one));
            rows.push(row("beyond cache", Some(cache.capacity[0]), "B/s", cache.bytes_per_s, one));
        }
        rows.push(row("asymptote", None, "B/s", alone.asymptote, one));
        rows.extend(self.model.limit.map(|limit| row("chunk", None, "B", limit.value, limit.by)));
        rows.extend(alone.chunks.as_ref().map(|chunks| row("turn-around", None, "s", chunks.turnaround_s, one)));
        let told = |name: &str, unit: &str, told: Told<f64>| row(name, None, unit, [told.value; 3], told.by);
        rows.push(told("gap", "s", self.model.gap_s));
        rows.push(told("held", "", self.model.held));
        rows.push(told("slowdown", "", self.model.slowdown));
        let shared = self.model.is_shared;
        rows.push(told("shared", "", Told { value: f64::from(u8::from(shared.value)), by: shared.by }));
        rows.push(row("residual", None, "", [alone.residual; 3], one));
        rows.push(row("noise", None, "", [alone.noise; 3], one));
        for prediction in &self.predictions {
            let name = format!("{0}-{0}", prediction.pairs);
            let by = if prediction.is_prediction { one } else { Source::TwoPairs };
            rows.push(PathRow { holds: prediction.holds(), ..row(&name, None, "", [prediction.off; 3], by) });
        }
        rows
    }

    /// The answer: one pair, then what several do together.
    pub fn sentences(&self) -> Vec<String> {
        let alone = &self.model.alone;
        let title = title(self.path, self.buffers);
        let zero = Nanoseconds(alone.regimes[0].latency_s[0] * 1e9);
        let asymptote = BytesPerSecond(alone.asymptote[0]);
        if !alone.holds() {
            let (residual, allowed) = (percent(alone.residual), percent(alone.allowed()));
            let fault = "the curve has not the form of the model";
            return vec![format!(
                "{title}: {fault}: a typical point is {residual} off, where noise allows {allowed}; so nothing is read from it."
            )];
        }
        let mut parts = vec![format!("{title}: one without bytes takes {zero} one way, long ones go at {asymptote}")];
        let switches = alone.regimes.iter().filter_map(|regime| regime.to).map(|to| Bytes(to[0] as u64).to_string());
        let switches: Vec<String> = switches.collect();
        if !switches.is_empty() {
            parts.push(format!("beyond {} they are sent another way", switches.join(" and beyond ")));
        }
        for cache in &alone.caches {
            let [capacity, low, high] = cache.capacity.map(|bytes| Bytes(bytes.round() as u64));
            let beyond = BytesPerSecond(cache.bytes_per_s[0]);
            parts.push(format!("a cache holds {capacity} [{low}, {high}], beyond it bytes go at {beyond}"));
        }
        let mut together = vec![self.limit_words()];
        together.extend(self.predictions.iter().map(|prediction| self.together_words(prediction)));
        vec![parts.join("; ") + ".", format!("{title}, pairs together: {}.", together.join("; "))]
    }

    fn limit_words(&self) -> String {
        match self.model.limit {
            Some(Told { value, by }) => {
                let [limit, low, high] = value.map(|bytes| Bytes(bytes.round() as u64));
                format!("messages over {limit} [{low}, {high}] are cut in chunks ({by} tells)")
            }
            None if self.predictions.is_empty() => {
                "one pair shows no chunks; two pairs would tell (--pairs 1,2)".into()
            }
            None => "no sign of chunks".into(),
        }
    }

    /// `2-2 overshoots to 9.1 GB/s at 1 MiB (1.95 x one pair) and ends at 4.7; by the model within 2.1%`.
    fn together_words(&self, prediction: &Prediction) -> String {
        let pairs = prediction.pairs;
        let rate = |point: &[f64; 3]| pairs as f64 * point[0] / point[1];
        let best = prediction.points.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
        let last = prediction.points.last();
        let reach = best.zip(last).map_or_else(String::new, |(best, last)| {
            let (most, size, end) = (BytesPerSecond(rate(best)), Bytes(best[0] as u64), BytesPerSecond(rate(last)));
            if rate(best) > 1.1 * rate(last) {
                format!(" overshoots to {most} at {size} and ends at {end}")
            } else {
                format!(" reaches {most}")
            }
        });
        let word = if prediction.is_prediction { "predicted" } else { "described" };
        let off = percent(prediction.off);
        match prediction.holds() {
            true => {
                let [worst, at] = prediction.worst;
                let (worst, at) = (percent(worst.abs()), Bytes(at as u64));
                format!("{pairs}-{pairs}{reach}, {word} within {off} typically and {worst} at worst ({at})")
            }
            false => {
                format!("{pairs}-{pairs}{reach}, which the model misses by {off}: it does not hold for pairs together")
            }
        }
    }
}

/// `Messages, same cache, rotating buffers`.
pub fn title(path: MessagePath, buffers: Buffers) -> String {
    format!("Messages, {path}, {buffers} buffers")
}

pub(super) fn sentences(report: &Report) -> Vec<String> {
    let messages = &report.messages;
    let of = |(path, buffers)| match messages.model(path, buffers) {
        Some(model) => model.sentences(),
        None => without_model(messages, path, buffers).into_iter().collect(),
    };
    messages.kinds().into_iter().flat_map(of).collect()
}

/// The shortest and the longest message of the fewest pairs, where sizes are too few for a model.
fn without_model(messages: &Messages, path: MessagePath, buffers: Buffers) -> Option<String> {
    let measured = || messages.of(path, buffers).filter(|row| row.one_way_ns.is_some());
    let shortest = measured().min_by_key(|row| (row.pairs, row.mode, row.message_bytes))?;
    let is_alike = |row: &&PingPongRow| (row.pairs, row.mode) == (shortest.pairs, shortest.mode);
    let longest = measured().filter(is_alike).max_by_key(|row| row.message_bytes)?;
    let takes = Nanoseconds(shortest.one_way_ns?.median);
    let size = shortest.message_bytes;
    let mut text =
        format!("{0}, {2} {1}-{1}: {size} take {takes} one way", title(path, buffers), shortest.pairs, shortest.mode);
    if let Some(rate) = longest.payload_bps.filter(|_| longest.message_bytes > size) {
        text += &format!(", {} go at {}", longest.message_bytes, BytesPerSecond(rate.median));
    }
    Some(text + ".")
}
