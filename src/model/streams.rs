//! Many streams at once: does their mutual alignment matter, and which padding is best?
//!
//! Each visit lays its streams into new memory: it is one draw of where pages lie, however many samples it has. So visits
//! are what is compared ([`stats::ratios_among`]), and all intervals of a map hold at once: it has dozens of offsets, and
//! one of them is always the fastest by chance.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Rate;
use super::quality::{Quality, Sampled, rated};
use super::rows::{payload_bps, visits};
use crate::kernel::streams::{Streams, Touch};
use crate::memory::{MemoryKind, Obtained};
use crate::plan::Work;
use crate::record::{Measurement, Record};
use crate::stats;
use crate::units::{Bytes, BytesPerSecond, percent, significant};

/// So many streams at one offset: a tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsRow {
    /// `streams`.
    pub metric: String,
    /// What is done to them.
    pub touch: Touch,
    /// Streams of each thread.
    pub streams: u32,
    /// Bytes by which each starts further than the one before, beyond whole huge pages.
    pub offset_bytes: u32,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// Number of threads, each with streams of its own.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// Bytes of all streams of all threads.
    pub working_set_bytes: Bytes,
    /// `B/s`.
    pub unit: String,
    /// STREAM's convention. Absent where nothing was measured.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Payload and write-allocate.
    #[serde(rename = "bus_Bps")]
    pub bus_bps: Option<Rate>,
    /// Speed over that of the same streams at offset 0: [ratio, low, high]; all these intervals of a map hold together with
    /// 95 %. Absent at offset 0 and where it can't be told.
    pub over_aligned: Option<[f64; 3]>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

rated!(StreamsRow, |row| format!("{} {}", row.touch, row.streams));

/// All of a record, and what its maps tell.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Congestion {
    /// One row a number of streams and offset.
    pub rows: Vec<StreamsRow>,
    /// One map a way of touching, thread count and working set.
    pub maps: Vec<StreamMap>,
}

/// Streams x offsets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamMap {
    /// What is done to the streams.
    pub touch: Touch,
    /// Threads.
    pub threads: usize,
    /// Bytes of all streams of all threads.
    pub working_set: Bytes,
    /// Offsets that were compared with offset 0, over all numbers of streams: where either was not visited twice nothing can be.
    pub compared: usize,
    /// By how much a speed must differ to be told from noise at every one of them: half of the widest interval.
    pub widest: f64,
    /// What padding does, one a number of streams with an effect that is no noise, fewest streams first.
    pub effects: Vec<Effect>,
}

/// What offsets do to so many streams.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    /// Streams of each thread.
    pub streams: u32,
    /// The least offset that is as good as the best, and its speed over that of offset 0: [ratio, low, high]. Absent where
    /// offset 0 is as good as any.
    pub best: Option<(u32, [f64; 3])>,
    /// The worst offset, where that is slower than offset 0.
    pub worst: Option<(u32, [f64; 3])>,
    /// The least offset from which on each doubling is no better than offset 0, while a smaller one is: after so many
    /// bytes lines go to the same place again.
    pub period: Option<u32>,
}

/// A row and its payload B/s, visit by visit.
struct Point {
    streams: Streams,
    row: StreamsRow,
    batches: Vec<Vec<f64>>,
}

impl Point {
    fn batches(&self) -> Vec<&[f64]> {
        self.batches.iter().map(Vec::as_slice).collect()
    }
}

pub(super) fn congestion(record: &Record) -> Congestion {
    let hz = record.header.clock.hz.0;
    let mut points: Vec<Point> = visits(record).iter().filter_map(|visits| point(visits, hz)).collect();
    points.sort_by_key(|point| (key(&point.row), point.streams));
    let keys: BTreeSet<_> = points.iter().map(|point| key(&point.row)).collect();
    let mut maps = Vec::new();
    for key in keys {
        maps.extend(map(points.iter_mut().filter(|point| self::key(&point.row) == key).collect()));
    }
    Congestion { maps, rows: points.into_iter().map(|point| point.row).collect() }
}

/// What the points of a map share.
fn key(row: &StreamsRow) -> (Touch, MemoryKind, Vec<u32>, Bytes) {
    (row.touch, row.memory, row.cpus.clone(), row.working_set_bytes)
}

fn point(visits: &[&Measurement], hz: f64) -> Option<Point> {
    let case = &visits[0].case;
    let Work::Streams(streams) = case.work else { return None };
    let sampled = Sampled::of(visits, hz, |visit| payload_bps(visit, hz));
    let row = StreamsRow {
        metric: "streams".into(),
        touch: streams.touch,
        streams: streams.streams,
        offset_bytes: streams.offset_bytes,
        memory: case.memory.kind,
        threads: case.threads(),
        cpus: case.cpus.clone(),
        working_set_bytes: case.working_set,
        unit: "B/s".into(),
        payload_bps: sampled.rate(),
        bus_bps: sampled.rate_of(|volume| volume.bus()),
        over_aligned: None,
        obtained: sampled.obtained(),
        quality: sampled.quality,
    };
    Some(Point { streams, row, batches: sampled.batches })
}

/// Compares all offsets of a map with offset 0 of as many streams, and says so in their rows.
fn map(mut points: Vec<&mut Point>) -> Option<StreamMap> {
    let is_known = |point: &Point| point.row.quality.is_measured() && !point.batches.is_empty();
    let bases: BTreeSet<u32> = points
        .iter()
        .filter(|point| point.streams.offset_bytes == 0 && is_known(point))
        .map(|point| point.streams.streams)
        .collect();
    let is_compared =
        |point: &Point| point.streams.offset_bytes > 0 && is_known(point) && bases.contains(&point.streams.streams);
    let comparisons = points.iter().filter(|point| is_compared(point)).count();
    let counts: BTreeSet<u32> = points.iter().map(|point| point.streams.streams).collect();
    let mut effects = Vec::new();
    for streams in counts {
        let ours: Vec<usize> =
            (0..points.len()).filter(|&at| points[at].streams.streams == streams && is_known(points[at])).collect();
        let Some((&base, others)) = ours.split_first().filter(|(base, _)| points[**base].streams.offset_bytes == 0)
        else {
            continue;
        };
        let alternatives: Vec<Vec<&[f64]>> = others.iter().map(|&at| points[at].batches()).collect();
        let ratios = stats::ratios_among(&points[base].batches(), &alternatives, comparisons);
        let told: Vec<(u32, [f64; 3])> =
            others.iter().zip(&ratios).map(|(&at, ratio)| (points[at].streams.offset_bytes, *ratio)).collect();
        effects.extend(effect(streams, &told));
        for (&at, ratio) in others.iter().zip(ratios) {
            points[at].row.over_aligned = Some(ratio).filter(|ratio| ratio.iter().all(|end| end.is_finite()));
        }
    }
    let first = &points.first()?.row;
    let (touch, threads, working_set) = (first.touch, first.threads, first.working_set_bytes);
    let told: Vec<[f64; 3]> = points.iter().filter_map(|point| point.row.over_aligned).collect();
    let widest = told.iter().map(|[_, low, high]| (high / low).sqrt() - 1.0).fold(0.0, f64::max);
    let is_measured = points.iter().any(|point| is_known(point));
    is_measured.then_some(StreamMap { touch, threads, working_set, compared: told.len(), widest, effects })
}

/// What offsets do, where any of them does something for certain; they rise.
fn effect(streams: u32, told: &[(u32, [f64; 3])]) -> Option<Effect> {
    let is_better = |[_, low, _]: [f64; 3]| low > 1.0;
    let is_worse = |[_, _, high]: [f64; 3]| high < 1.0;
    let fastest = told.iter().filter(|(_, ratio)| is_better(*ratio)).max_by(|a, b| a.1[0].total_cmp(&b.1[0]));
    let slowest = told.iter().filter(|(_, ratio)| is_worse(*ratio)).min_by(|a, b| a.1[0].total_cmp(&b.1[0]));
    // As good as the best: its interval reaches to the best figure.
    let best = fastest.and_then(|(_, best)| told.iter().find(|(_, ratio)| is_better(*ratio) && ratio[2] >= best[0]));
    let again = |from: usize| told[from..].iter().all(|(_, ratio)| !is_better(*ratio));
    let period = fastest.and_then(|(at, _)| {
        let start = (0..told.len()).find(|&index| told[index].0 > *at && again(index))?;
        // Where each offset beyond is tried but once, a period is no more than a guess.
        (told.len() - start >= 2).then_some(told[start].0)
    });
    let effect = Effect { streams, best: best.copied(), worst: slowest.copied(), period };
    (effect.best.is_some() || effect.worst.is_some()).then_some(effect)
}

impl StreamMap {
    /// The verdict in words.
    pub fn sentence(&self) -> String {
        let StreamMap { touch, threads, compared, widest, .. } = self;
        let plural = if *threads == 1 { "" } else { "s" };
        let what = format!("{touch} streams, {threads} thread{plural}");
        // The fewest streams that gain as much as any: with more, a smaller padding may do, but not for fewer.
        let gains = self.effects.iter().filter_map(|effect| effect.best.map(|(_, [ratio, ..])| ratio));
        let most = gains.fold(0.0, f64::max);
        let greatest = self.effects.iter().find(|effect| effect.best.is_some_and(|(_, [.., high])| high >= most));
        let range = |[ratio, low, high]: [f64; 3]| {
            format!("{} x [{}, {}]", significant(ratio), significant(low), significant(high))
        };
        if let Some((Effect { streams, period, .. }, (offset, gain))) = greatest.and_then(|e| Some((e, e.best?))) {
            let again = period
                .map_or_else(String::new, |p| format!("; lines go to the same place again after {}", Bytes(p.into())));
            return format!(
                "{what}: pad by {}: {streams} streams then run {} as fast as at equal places{again}.",
                Bytes(offset.into()),
                range(gain)
            );
        }
        let worst = |effect: &&Effect| effect.worst.map_or(1.0, |(_, [ratio, ..])| ratio);
        if let Some((streams, (offset, loss))) =
            self.effects.iter().min_by(|a, b| worst(a).total_cmp(&worst(b))).and_then(|e| Some((e.streams, e.worst?)))
        {
            return format!(
                "{what}: leave arrays at equal places; {} apart {streams} streams run only {} as fast.",
                Bytes(offset.into()),
                range(loss)
            );
        }
        if *compared == 0 {
            return format!(
                "{what}: too few visits to tell whether it matters how they lie to each other; give a longer --budget."
            );
        }
        let unseen = percent(*widest);
        format!(
            "{what}: how they lie to each other has no effect beyond noise ({compared} offsets compared at once; below {unseen} \
             none would be seen)."
        )
    }
}

pub(super) fn sentences(congestion: &Congestion) -> Vec<String> {
    congestion.maps.iter().map(StreamMap::sentence).collect()
}

impl Congestion {
    /// The rows of a map.
    pub fn of(&self, map: &StreamMap) -> Vec<&StreamsRow> {
        let is_ours = |row: &&StreamsRow| {
            (row.touch, row.threads, row.working_set_bytes) == (map.touch, map.threads, map.working_set)
        };
        self.rows.iter().filter(is_ours).collect()
    }

    /// The greatest payload rate of a map, to shade by.
    pub fn greatest(&self, map: &StreamMap) -> BytesPerSecond {
        let rates = self.of(map).into_iter().filter_map(|row| row.payload_bps).map(|rate| rate.median);
        BytesPerSecond(rates.fold(0.0, f64::max))
    }
}
