//! Many streams at once: does their mutual alignment matter, and which padding is best?
//!
//! Each visit lays its streams into new memory: it is one draw of where pages lie, however many samples it has. So visits
//! are what is compared ([`draws::ratios_among`]), and all intervals of a map hold at once: it has dozens of offsets, and
//! one of them is always the fastest by chance.

use membound_core::in_order::InOrder;
use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::quality::Sampled;
use crate::rate::Rate;
use crate::row::{Metric, Row};
use crate::visits::{Visits, payload_bps};
use crate::wording::times;
use membound_core::case::Work;
use membound_core::kernel::streams::{Streams, Touch};
use membound_core::kernel::{StoreKind, Variant};
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::Measurement;
use membound_core::stats::draws;
use membound_core::units::{Bytes, BytesPerSecond, counted, percent};

/// So many streams at one offset.
pub type StreamsRow = Row<StreamFigures>;

/// How fast streams are.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StreamFigures {
    /// STREAM's convention. Absent where nothing was measured.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Payload and write-allocate.
    #[serde(rename = "bus_Bps")]
    pub bus_bps: Option<Rate>,
    /// Speed over that of the same streams at offset 0: [ratio, low, high]; all these intervals of a map hold together with
    /// 95 %. Absent at offset 0 and where it can't be told.
    pub over_aligned: Option<[f64; 3]>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What tells rows of streams from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StreamKeys {
    /// What is done to them; absent where a kernel runs over arrays in one block.
    #[serde(skip_serializing_if = "Option::is_none")]
    touch: Option<Touch>,
    /// That kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<String>,
    /// Its store kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreKind>,
    /// Bits of its accesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    width_bits: Option<u32>,
    /// Streams of each thread; arrays of that kernel.
    streams: u32,
    /// Bytes by which each starts further than the one before, beyond whole huge pages.
    offset_bytes: u32,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// Number of threads, each with streams of its own.
    threads: usize,
    /// Their CPUs.
    cpus: Vec<u32>,
    /// Bytes of all streams of all threads.
    working_set_bytes: Bytes,
}

impl Metric for StreamFigures {
    const NAME: &'static str = "streams";
    const UNIT: &'static str = "B/s";
    type Keys = StreamKeys;

    fn keys(row: &StreamsRow) -> StreamKeys {
        let Scanned { what, streams, offset_bytes } = row.scanned();
        let variant = what.variant();
        StreamKeys {
            touch: what.touch(),
            kernel: variant.map(|variant| variant.kernel.clone()),
            store: variant.map(|variant| variant.store),
            width_bits: variant.map(|variant| variant.width.bits(variant.element)),
            streams,
            offset_bytes,
            memory: row.case.memory.kind,
            threads: row.case.threads(),
            cpus: row.case.cpus.clone(),
            working_set_bytes: row.case.working_set,
        }
    }

    fn what(row: &StreamsRow) -> String {
        let Scanned { what, streams, .. } = row.scanned();
        if what.touch().is_some() { format!("{what} {streams}") } else { what.to_string() }
    }
}

/// What offsets are scanned for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Scan {
    /// Streams that are walked.
    Walk(Touch),
    /// A kernel over arrays in one block.
    Block(Variant),
}

impl Scan {
    /// What is done to streams.
    pub fn touch(&self) -> Option<Touch> {
        if let Scan::Walk(touch) = self { Some(*touch) } else { None }
    }

    /// The kernel over a block.
    pub fn variant(&self) -> Option<&Variant> {
        if let Scan::Block(variant) = self { Some(variant) } else { None }
    }
}

/// `read`, or `triad 512 regular`.
impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scan::Walk(touch) => touch.fmt(f),
            Scan::Block(variant) => variant.fmt(f),
        }
    }
}

/// A place of a scan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scanned {
    /// What is scanned.
    pub what: Scan,
    /// Streams of each thread.
    pub streams: u32,
    /// Bytes between them, beyond whole slots.
    pub offset_bytes: u32,
}

impl Scanned {
    fn of(work: &Work) -> Option<Scanned> {
        match work {
            Work::Streams(Streams { touch, streams, offset_bytes }) => {
                Some(Scanned { what: Scan::Walk(*touch), streams: *streams, offset_bytes: *offset_bytes })
            }
            Work::Common(block) => Some(Scanned {
                streams: block.variant.row()?.formula().streams.len() as u32,
                what: Scan::Block(block.variant.clone()),
                offset_bytes: block.offset_bytes,
            }),
            _ => None,
        }
    }
}

impl StreamsRow {
    /// What was walked.
    pub fn scanned(&self) -> Scanned {
        Scanned::of(&self.case.work).expect("rows of streams are made of streams alone")
    }
}

/// All of a record, and what its maps tell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Congestion {
    /// One row a number of streams and offset.
    pub rows: Vec<StreamsRow>,
    /// One map a way of touching, thread count and working set.
    pub maps: Vec<StreamMap>,
}

/// Streams x offsets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamMap {
    /// What is done to the streams, or the kernel over a block.
    pub what: Scan,
    /// Threads.
    pub threads: usize,
    /// Bytes of all streams of all threads.
    pub working_set: Bytes,
    /// Its rows: places among those of all maps.
    pub rows: Vec<usize>,
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
    /// The bytes after which lines go to the same place again. Of offsets that double: the least from which on none is better than
    /// offset 0, while a smaller one is. Of offsets at equal steps: the least after which all is as before, as far as intervals
    /// tell; half of the offsets must lie beyond it.
    pub period: Option<u32>,
}

/// A row and its payload B/s, visit by visit.
struct Point {
    row: StreamsRow,
    batches: Vec<Vec<f64>>,
}

impl Point {
    fn streams(&self) -> Scanned {
        self.row.scanned()
    }

    fn batches(&self) -> Vec<&[f64]> {
        self.batches.iter().map(Vec::as_slice).collect()
    }
}

pub(crate) fn congestion(visits: &Visits<'_>) -> Congestion {
    let mut points: Vec<Point> = visits.rows(|case| point(case, visits));
    points.order_by_key(|point| (key(&point.row), point.streams()));
    let keys: BTreeSet<_> = points.iter().map(|point| key(&point.row)).collect();
    let mut maps = Vec::new();
    for key in keys {
        let rows = (0..points.len()).filter(|&at| self::key(&points[at].row) == key).collect();
        let map = map(points.iter_mut().filter(|point| self::key(&point.row) == key).collect());
        maps.extend(map.map(|map| StreamMap { rows, ..map }));
    }
    Congestion { maps, rows: points.into_iter().map(|point| point.row).collect() }
}

/// What the points of a map share.
fn key(row: &StreamsRow) -> (Scan, MemorySpec, Vec<u32>, Bytes) {
    (row.scanned().what, row.case.memory, row.case.cpus.clone(), row.case.working_set)
}

fn point(visits: &[&Measurement], all: &Visits<'_>) -> Option<Point> {
    let case = &visits[0].case;
    Scanned::of(&case.work)?;
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| payload_bps(visit, all.hz()));
    let payload_bps = sampled.rate();
    let figures = StreamFigures {
        payload_bps,
        bus_bps: sampled.rate_of(payload_bps, |volume| volume.bus()),
        over_aligned: None,
        obtained: sampled.obtained(),
    };
    let row = Row { case: case.clone(), quality: sampled.quality, figures };
    Some(Point { row, batches: sampled.batches })
}

/// Compares all offsets of a map with offset 0 of as many streams, and says so in their rows.
fn map(mut points: Vec<&mut Point>) -> Option<StreamMap> {
    let is_known = |point: &Point| point.row.quality.is_measured() && !point.batches.is_empty();
    let bases: BTreeSet<u32> = points
        .iter()
        .filter(|point| point.streams().offset_bytes == 0 && is_known(point))
        .map(|point| point.streams().streams)
        .collect();
    let is_compared =
        |point: &Point| point.streams().offset_bytes > 0 && is_known(point) && bases.contains(&point.streams().streams);
    let comparisons = points.iter().filter(|point| is_compared(point)).count();
    let counts: BTreeSet<u32> = points.iter().map(|point| point.streams().streams).collect();
    let mut effects = Vec::new();
    for streams in counts {
        let ours: Vec<usize> =
            (0..points.len()).filter(|&at| points[at].streams().streams == streams && is_known(points[at])).collect();
        let Some((&base, others)) = ours.split_first().filter(|(base, _)| points[**base].streams().offset_bytes == 0)
        else {
            continue;
        };
        let alternatives: Vec<Vec<&[f64]>> = others.iter().map(|&at| points[at].batches()).collect();
        let ratios = draws::ratios_among(&points[base].batches(), &alternatives, comparisons);
        let told: Vec<(u32, [f64; 3])> =
            others.iter().zip(&ratios).map(|(&at, ratio)| (points[at].streams().offset_bytes, *ratio)).collect();
        effects.extend(effect(streams, &told));
        for (&at, ratio) in others.iter().zip(ratios) {
            points[at].row.over_aligned = Some(ratio).filter(|ratio| ratio.iter().all(|end| end.is_finite()));
        }
    }
    let first = &points.first()?.row;
    let (what, threads, working_set) = (first.scanned().what, first.case.threads(), first.case.working_set);
    let told: Vec<[f64; 3]> = points.iter().filter_map(|point| point.row.over_aligned).collect();
    let widest = told.iter().map(|[_, low, high]| (high / low).sqrt() - 1.0).fold(0.0, f64::max);
    let is_measured = points.iter().any(|point| is_known(point));
    let rows = Vec::new();
    is_measured.then_some(StreamMap { what, threads, working_set, rows, compared: told.len(), widest, effects })
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
    let steps = equal_steps(told).map(|step| period_of_steps(told, step));
    let period = steps.unwrap_or_else(|| {
        fastest.and_then(|(at, _)| {
            let start = (0..told.len()).find(|&index| told[index].0 > *at && again(index))?;
            // Where each offset beyond is tried but once, a period is no more than a guess.
            (told.len() - start >= 2).then_some(told[start].0)
        })
    });
    let effect = Effect { streams, best: best.copied(), worst: slowest.copied(), period };
    (effect.best.is_some() || effect.worst.is_some()).then_some(effect)
}

/// The step of offsets that lie equally far from each other, beginning one step beyond 0.
fn equal_steps(told: &[(u32, [f64; 3])]) -> Option<u32> {
    let step = told.first()?.0;
    let are_equal = told.iter().enumerate().all(|(index, (offset, _))| *offset == step * (index as u32 + 1));
    (told.len() >= 4 && are_equal).then_some(step)
}

/// The least period that no two intervals contradict. Offset 0 has the ratio 1.
fn period_of_steps(told: &[(u32, [f64; 3])], step: u32) -> Option<u32> {
    let all: Vec<[f64; 3]> = std::iter::once([1.0; 3]).chain(told.iter().map(|(_, ratio)| *ratio)).collect();
    let is_alike = |a: [f64; 3], b: [f64; 3]| a[1] <= b[2] && b[1] <= a[2];
    let is_period = |steps: &usize| all.iter().zip(&all[*steps..]).all(|(a, b)| is_alike(*a, *b));
    // Where all is alike after one step there is nothing to repeat.
    let least = (1..=all.len() / 2).find(is_period)?;
    (least > 1).then_some(least as u32 * step)
}

impl StreamMap {
    /// The verdict in words.
    pub fn sentence(&self) -> String {
        let StreamMap { what, threads, compared, widest, .. } = self;
        let is_walk = what.touch().is_some();
        let kind = if is_walk { "streams" } else { "with its arrays in one block" };
        let what = format!("{what} {kind}, {}", counted(*threads, "thread"));
        let ones = |streams: u32| if is_walk { format!("{streams} streams then run") } else { "it then runs".into() };
        let only =
            |streams: u32| if is_walk { format!("{streams} streams run only") } else { "it runs only".to_string() };
        // The fewest streams that gain as much as any: with more, a smaller padding may do, but not for fewer.
        let gains = self.effects.iter().filter_map(|effect| effect.best.map(|(_, [ratio, ..])| ratio));
        let most = gains.fold(0.0, f64::max);
        let greatest = self.effects.iter().find(|effect| effect.best.is_some_and(|(_, [.., high])| high >= most));
        if let Some((Effect { streams, period, .. }, (offset, gain))) = greatest.and_then(|e| Some((e, e.best?))) {
            let again = period
                .map_or_else(String::new, |p| format!("; lines go to the same place again after {}", Bytes(p.into())));
            return format!(
                "{what}: pad by {}: {} {} as fast as at equal places{again}.",
                Bytes(offset.into()),
                ones(*streams),
                times(gain)
            );
        }
        let worst = |effect: &&Effect| effect.worst.map_or(1.0, |(_, [ratio, ..])| ratio);
        if let Some((streams, (offset, loss))) =
            self.effects.iter().min_by(|a, b| worst(a).total_cmp(&worst(b))).and_then(|e| Some((e.streams, e.worst?)))
        {
            return format!(
                "{what}: leave arrays at equal places; {} apart {} {} as fast.",
                Bytes(offset.into()),
                only(streams),
                times(loss)
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

impl Congestion {
    /// The rows of a map.
    pub fn of(&self, map: &StreamMap) -> Vec<&StreamsRow> {
        map.rows.iter().map(|&at| &self.rows[at]).collect()
    }

    /// The greatest payload rate of a map, to shade by.
    pub fn greatest(&self, map: &StreamMap) -> BytesPerSecond {
        let rates = self.of(map).into_iter().filter_map(|row| row.payload_bps).map(|rate| rate.value());
        BytesPerSecond(rates.fold(0.0, f64::max))
    }
}
