//! Latency: from chases to rows, the ladder, translation buffers, lines in flight, and the map over cores.

use membound_core::in_order::InOrder;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use schemars::JsonSchema;
use serde::Serialize;

use crate::hierarchy::names::{Level, LevelLatency, Levels, SIZES_FOR_LEVELS};
use crate::quality::{Sampled, summarize};
use crate::rate::{Cost, Rate};
use crate::row::{Metric, Row};
use crate::visits::Visits;
use membound_core::case::{Case, Protocol, USUAL_MEMORY, Work};
use membound_core::curves::hierarchy::ladder;
use membound_core::curves::hierarchy::ladder::{Rung, Translation};
use membound_core::curves::hierarchy::model::{Curve as Shared, Touch};
use membound_core::experiments::latency::{MAP_STRIDE, SPARSE_STRIDE};
use membound_core::experiments::numa::NUMA_CHASE;
use membound_core::kernel::chase::{Chase, Order};
use membound_core::memory::policy::Policy;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{Measured, Measurement, Record};
use membound_core::stats::quantiles::{median, quantile};
use membound_core::stats::states::{Better, level};
use membound_core::units::{BASE_PAGE, Bytes, LINE};

/// Working sets that say what the nearest cache takes: the first eight fit in it.
const NEAREST_POINTS: usize = 8;
/// Share of the greatest rate that the knee has reached.
const KNEE: f64 = 0.95;
/// Numbers of chains that make a curve.
const LEAST_CHAINS: usize = 3;

/// A chase: one tidy row.
pub type LatencyRow = Row<LatencyFigures>;

/// How long loads of a chase take.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LatencyFigures {
    /// NUMA node of the pages: asked for, else the one node they were found on; absent where mixed or unknown.
    #[serde(skip)]
    pub node: Option<u32>,
    /// The level that the lines of the places lie in, by the measured ladder; absent where they lie between two.
    #[serde(skip)]
    pub level: Option<String>,
    /// `hit`: the working set was read right before each sample, so that the last level has it. `disturbed`: it lies in
    /// the last level and was not, so that a share of the loads may go to memory, as much as others evict. Else absent.
    #[serde(skip)]
    pub last_level: Option<&'static str>,
    /// Nanoseconds from one load of a chain to its next. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The same in core clock cycles, each sample by its own clock: the median of the visits that were undisturbed by their
    /// nanoseconds.
    pub latency_cycles: Option<f64>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What tells chases from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LatencyKeys {
    /// Order of the places.
    order: Order,
    /// Bytes from one place to the next.
    stride_bytes: u32,
    /// Bytes of a block, where the order has blocks.
    block_bytes: u32,
    /// Independent chains.
    chains: u32,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// The nodes asked for; absent: that of the CPU that touches pages first.
    #[serde(default, skip_serializing_if = "Policy::is_first_touch")]
    policy: Policy,
    /// NUMA node of the pages: asked for, else the one node they were found on; absent where mixed or unknown.
    node: Option<u32>,
    /// Its CPU; of several threads at once, theirs.
    cpus: Vec<u32>,
    /// Bytes from the first place to the end of the last, of all threads.
    working_set_bytes: Bytes,
    /// How samples were taken: `refilled` where the working set was read right before each.
    protocol: Protocol,
    /// The level that the lines of the places lie in, by the measured ladder; absent where they lie between two.
    level: Option<String>,
    /// `hit`: the working set was read right before each sample, so that the last level has it. `disturbed`: it lies in
    /// the last level and was not, so that a share of the loads may go to memory, as much as others evict. Else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_level: Option<&'static str>,
}

impl Metric for LatencyFigures {
    const NAME: &'static str = "latency";
    const UNIT: &'static str = "ns";
    type Keys = LatencyKeys;

    fn keys(row: &LatencyRow) -> LatencyKeys {
        let Chase { order, stride_bytes, block_bytes, chains } = row.chase();
        LatencyKeys {
            order,
            stride_bytes,
            block_bytes,
            chains,
            memory: row.case.memory.kind,
            policy: row.case.memory.policy,
            node: row.node,
            cpus: row.case.cpus.clone(),
            working_set_bytes: row.case.working_set,
            protocol: row.case.protocol,
            level: row.level.clone(),
            last_level: row.last_level,
        }
    }

    fn what(row: &LatencyRow) -> String {
        format!("chases in {} memory", row.case.memory.kind)
    }
}

impl LatencyRow {
    /// What was chased.
    pub fn chase(&self) -> Chase {
        let chase = if let Work::Chase(chase) = self.case.work { Some(chase) } else { None };
        chase.expect("rows of latencies are made of chases alone")
    }

    /// Whether the last level was read right before.
    pub(crate) fn is_hit(&self) -> bool {
        self.last_level == Some("hit")
    }

    /// Whether it is one chain over every line.
    pub(crate) fn is_over_lines(&self) -> bool {
        let Chase { stride_bytes, chains, .. } = self.chase();
        (u64::from(stride_bytes), chains) == (LINE, 1)
    }

    /// Bytes of the lines that its places lie in.
    fn footprint(&self) -> u64 {
        self.places() as u64 * LINE.min(self.chase().stride_bytes.into())
    }

    fn places(&self) -> usize {
        self.chase().places(self.case.working_set)
    }

    /// Whether it is a single chain, in the usual state of the caches, and has a figure.
    fn is_plain(&self) -> bool {
        self.chase().chains == 1 && self.case.protocol == Protocol::Steady && self.figure().is_some()
    }

    /// Median with its interval: [median, low, high].
    pub(crate) fn figure(&self) -> Option<[f64; 3]> {
        self.latency_ns.filter(|_| self.quality.is_measured()).map(Cost::interval)
    }
}

/// What the chases of a record tell together. Intervals are [value, low, high] with 95 %.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Latency {
    /// One row a chase, by memory, order, stride, chains, CPU and working set.
    pub rows: Vec<LatencyRow>,
    /// Chases by several threads at once: they share what each alone would have, and stand in no ladder.
    pub together: Vec<LatencyRow>,
    /// The levels whose latency was measured, fastest first: by chases in random order in huge pages.
    pub levels: Vec<Level>,
    /// Whether a table of levels stands elsewhere in the report, which has them and the bandwidths.
    pub is_beside_bandwidth: bool,
    /// Translation buffers for base pages, smallest first.
    pub translation: Vec<TranslationLevel>,
    /// Independent chains, if several numbers of them were measured.
    pub parallelism: Option<Parallelism>,
    /// Cores against nodes and page sizes.
    pub map: Vec<MapLine>,
}

/// A level of translation buffers (TLB).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct TranslationLevel {
    /// 1 is the nearest.
    pub level: usize,
    /// Base pages that it holds.
    pub pages: f64,
    /// Their 95 % interval.
    pub pages_ci95: [f64; 2],
    /// Memory that they are.
    pub reach: Bytes,
    /// Nanoseconds that a load waits longer when its page is beyond this level (and in the next, if there is one).
    pub miss_ns: [f64; 3],
    /// The same in core clock cycles.
    pub miss_cycles: Option<f64>,
}

/// Independent chains by one core.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Parallelism {
    /// Memory kind.
    pub memory: MemoryKind,
    /// Working set.
    pub working_set: Bytes,
    /// Chains, nanoseconds from link to link, bytes of lines a second (Little's law: chains x 64 B / latency).
    pub points: Vec<ParallelPoint>,
    /// The fewest chains with 95 % of the greatest rate.
    pub knee: u32,
    /// Greatest rate: bytes a second.
    pub greatest_bps: f64,
    /// Lines in flight at that rate, by Little's law with the latency of a single chain.
    pub lines_in_flight: f64,
    /// Greatest number of chains measured: where the knee is there, there may be more to find.
    pub most_chains: u32,
    /// What streaming loads of one core get from memory, to hold against it; absent where they were not measured.
    pub streaming: Option<Rate>,
}

/// One number of chains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ParallelPoint {
    /// Independent chains.
    pub chains: u32,
    /// Nanoseconds from link to link.
    pub latency_ns: [f64; 3],
    /// Bytes of lines a second.
    pub bps: f64,
}

/// Latency of one node and memory kind over cores.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MapLine {
    /// Memory kind.
    pub memory: MemoryKind,
    /// Node of the pages; absent where unknown.
    pub node: Option<u32>,
    /// Greatest of the cores, ns.
    pub max: f64,
    /// Mean of the cores, ns.
    pub avg: f64,
    /// Least of the cores, ns.
    pub min: f64,
    /// Standard deviation of the cores (n - 1), ns; 0 for a single core.
    pub sd: f64,
    /// CPU, and its latency: the mean over blocks of their medians, ns.
    pub cores: Vec<(u32, f64)>,
    /// Sizes of the blocks within which lines were permuted.
    pub blocks: Vec<Bytes>,
}

impl MapLine {
    /// `node 1, thp`.
    pub(crate) fn name(&self) -> String {
        self.node.map_or(String::new(), |node| format!("node {node}, ")) + self.memory.word()
    }
}

/// The node that a case's memory is bound to, where it is touched as the matrix of nodes touches it.
fn node_of(case: &Case) -> Option<u32> {
    case.memory.node().filter(|_| case.protocol == Protocol::Steady)
}

/// Whether a kernel may be one of the matrix of nodes.
pub(crate) fn is_node_kernel(case: &Case) -> bool {
    case.variant().is_some() && node_of(case).is_some() && case.streams.is_empty() && case.misaligned_bytes == 0
}

/// Whether a chase may be one of the matrix of nodes.
pub(crate) fn is_node_chase(case: &Case) -> bool {
    case.work == Work::Chase(Chase::of(NUMA_CHASE)) && node_of(case).is_some()
}

/// Whether a record has a matrix of nodes: kernels and chases bound to nodes. They belong to no curve and no ladder.
pub(crate) fn has_matrix(record: &Record) -> bool {
    let has = |is_one: fn(&Case) -> bool| record.measurements.iter().any(|visit| is_one(&visit.case));
    has(is_node_chase) && has(is_node_kernel)
}

/// The chases of a record, before their levels are known.
pub(crate) struct Chases {
    chases: Vec<Chased>,
    together: Vec<Chased>,
    translation: Vec<TranslationLevel>,
    /// Bytes of a huge page.
    huge_page: Bytes,
}

/// The chases of a record. Those of a matrix of nodes belong to no ladder.
pub(crate) fn chases(visits: &Visits<'_>) -> Chases {
    let record = visits.record;
    let has_matrix = has_matrix(record);
    let is_own = |case: &Case| !(has_matrix && is_node_chase(case));
    let mut chases: Vec<Chased> = visits.rows(|case| chased(case, visits).filter(|chased| is_own(&chased.case)));
    chases.order_by(|a, b| (a.key(), &a.case).cmp(&(b.key(), &b.case)));
    let (chases, together): (Vec<Chased>, Vec<Chased>) =
        chases.into_iter().partition(|chased| chased.case.threads() < 2);
    let pages = &visits.header().machine.pages;
    let translation = translation(&chases, pages.base_bytes());
    Chases { chases, together, translation, huge_page: pages.huge_bytes() }
}

impl Chases {
    /// The ladder, as a curve among those that show the levels.
    pub(crate) fn curves(&self) -> Vec<Shared> {
        let ladder = ladder_of(&self.chases);
        let point = |chased: &&Chased| Some((chased.case.working_set, chased.figure()?[0]));
        let points: Vec<(Bytes, f64)> = ladder.iter().filter_map(point).collect();
        if points.is_empty() { Vec::new() } else { vec![Shared { touch: Touch::Chase, points }] }
    }

    /// What a load from each level takes.
    pub(crate) fn measure(&self, levels: &mut Levels) {
        let ladder = ladder_of(&self.chases);
        if ladder.is_empty() {
            return;
        }
        // The range of a few visits is no interval.
        let point = |chased: &&Chased| {
            let [ns, low, high] = chased.figure()?;
            let is_sure = chased.latency_ns?.has_interval();
            Some((chased.case.working_set, ns, if is_sure { [low, high] } else { [ns; 2] }))
        };
        let curve: Curve = ladder.iter().filter_map(point).collect();
        let huge = |level: &TranslationLevel| {
            let reach = Bytes((level.pages * self.huge_page.0 as f64) as u64);
            Translation { latency: level.miss_ns[0], reach }
        };
        let is_huge = ladder[0].case.memory.kind != MemoryKind::Base;
        let translation = self.translation.first().filter(|_| is_huge).map(huge);
        let capacities = levels.iter().filter_map(|level| level.capacity);
        let mut ends: Vec<Bytes> = capacities.chain(levels.translated_beyond.iter().map(|beyond| beyond[0])).collect();
        ends.sort_unstable();
        let rungs = ladder::latencies_between(&curve, &ends, translation);
        let mut from = Bytes(0);
        for level in &mut levels.all {
            // A level with a step inside, of translation, has the latency before it.
            let rung = ends.partition_point(|end| *end <= from);
            from = level.capacity.unwrap_or(from);
            let Some(&ns) = rungs.get(rung) else { continue };
            let fitted = LevelLatency { ns, cycles: cycles_of(&ladder, level, ns[0]), disturbed_ns: None };
            level.latency = Some(of_one_chase(&ladder, level).unwrap_or(fitted));
        }
    }

    /// All that they tell. `streaming`: what loads of one core get from memory, to hold against it.
    pub(crate) fn latency(self, levels: &mut Levels, streaming: Option<Rate>, is_beside_bandwidth: bool) -> Latency {
        let Chases { mut chases, mut together, translation, .. } = self;
        for chase in chases.iter_mut().chain(&mut together) {
            chase.row.level = level_of(chase, &levels.all);
        }
        // A cache is the last one if nothing but memory comes after it.
        let last = levels.iter().rev().find(|level| level.name != "memory").map(|level| level.name.clone());
        for chase in chases.iter_mut().filter(|chase| chase.level.is_some() && chase.level == last) {
            let is_hit = chase.case.protocol == Protocol::Refilled;
            chase.row.last_level = Some(if is_hit { "hit" } else { "disturbed" });
        }
        disturbed(&mut levels.all, &chases);
        Latency {
            translation,
            parallelism: parallelism(&chases, streaming),
            map: map(&chases),
            levels: levels.iter().filter(|level| level.latency.is_some()).cloned().collect(),
            is_beside_bandwidth,
            rows: chases.into_iter().map(|chased| chased.row).collect(),
            together: together.into_iter().map(|chased| chased.row).collect(),
        }
    }
}

/// What a load from memory takes by the one chase that was visited more often than all others there together, if there is one. Nothing
/// fits better: memory has no end, and chases just beyond the last cache find some of their lines in it.
fn of_one_chase(ladder: &[&Chased], level: &Level) -> Option<LevelLatency> {
    let is_there = |chased: &&&Chased| level.name == "memory" && chased.case.working_set >= level.from;
    let there = || ladder.iter().filter(is_there);
    let visits: usize = there().map(|chased| chased.quality.rounds).sum();
    let most = there().max_by_key(|chased| chased.quality.rounds)?;
    let stands = most.quality.is_of_headline() && 2 * most.quality.rounds > visits;
    let ns = most.latency_ns.filter(|_| stands)?.interval();
    Some(LevelLatency { ns, cycles: most.latency_cycles, disturbed_ns: None })
}

/// Core clock cycles of a load that takes so many nanoseconds. Memory takes fewer the lower the clock is, or seems to be beside a busy
/// hyperthread, so there the visits say nothing more.
fn cycles_of(ladder: &[&Chased], level: &Level, ns: f64) -> Option<f64> {
    match level.capacity {
        Some(_) => cycles(ladder.iter().map(|chased| (chased.case.working_set, &chased.cycles[..])), level),
        None => median(ladder.iter().filter_map(|chased| chased.core_clock_hz)).map(|hz| ns * 1e-9 * hz),
    }
}

/// Cycles of a load from a cache: the least tenth of the visits, of those on its plateau or of those to all that fits in, whichever is
/// less. A visit that is disturbed takes more, and so does one whose clock changed between the chase and the reading of the clock, or
/// one near the cache's end.
fn cycles<'a>(ladder: impl Iterator<Item = (Bytes, &'a [f64])> + Clone, level: &Level) -> Option<f64> {
    let tenth = |to: Bytes| {
        let inside = ladder.clone().filter(|(set, _)| (level.from..=to).contains(set));
        let mut visits: Vec<f64> = inside.flat_map(|(_, cycles)| cycles.iter().copied()).collect();
        visits.sort_unstable_by(f64::total_cmp);
        (!visits.is_empty()).then(|| quantile(&visits, 0.1))
    };
    [level.to, level.capacity.unwrap_or(level.to)].into_iter().filter_map(tenth).reduce(f64::min)
}

/// A chase's row and what stands behind it.
struct Chased {
    row: LatencyRow,
    /// Core clock cycles of each visit, undisturbed.
    cycles: Vec<f64>,
}

impl Deref for Chased {
    type Target = LatencyRow;

    fn deref(&self) -> &LatencyRow {
        &self.row
    }
}

impl Chased {
    fn key(&self) -> impl Ord + use<> {
        let Chase { order, stride_bytes, chains, block_bytes } = self.chase();
        (self.case.memory, order, stride_bytes, block_bytes, chains, self.case.cpus.clone(), self.case.protocol)
    }
}

/// The row of a case that is a chase.
pub(crate) fn row_of(visits: &[&Measurement], all: &Visits<'_>) -> Option<LatencyRow> {
    chased(visits, all).map(|chased| chased.row)
}

fn chased(visits: &[&Measurement], all: &Visits<'_>) -> Option<Chased> {
    let hz = all.hz();
    let case = &visits[0].case;
    let Work::Chase(chase) = case.work else { return None };
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| link_ns(visit, chase, hz));
    let figures = LatencyFigures {
        node: sampled.node(case),
        level: None,
        last_level: None,
        latency_ns: sampled.cost(),
        latency_cycles: sampled.cycles(hz),
        core_clock_hz: sampled.core_clock(hz),
        obtained: sampled.obtained(),
    };
    let of_visit = |(visit, batch): (&&Measured, &Vec<f64>)| {
        let ticks = visit.samples.core_clock_ticks.iter().filter(|ticks| **ticks > 0);
        let mut clocks: Vec<f64> = ticks.map(|ticks| visit.core_clock_links as f64 / *ticks as f64 * hz).collect();
        clocks.sort_unstable_by(f64::total_cmp);
        (!clocks.is_empty()).then_some(
            Better::Lower.up(level(batch.iter().copied(), Better::Lower)?).exp() * 1e-9 * quantile(&clocks, 0.9),
        )
    };
    let cycles = sampled.measured.iter().zip(&sampled.batches).filter_map(of_visit).collect();
    Some(Chased { row: Row { case: case.clone(), quality: sampled.quality, figures }, cycles })
}

/// Nanoseconds from one load of a chain to its next, sample by sample. Threads follow their chains side by side.
pub(crate) fn link_ns(visit: &Measured, chase: Chase, hz: f64) -> Vec<f64> {
    let threads = visit.samples.thread_ticks.len().max(1) as f64;
    let links = visit.repetitions as f64 * visit.volume.units as f64 / f64::from(chase.chains) / threads;
    visit.samples.ticks.iter().map(|ticks| *ticks as f64 / hz * 1e9 / links).collect()
}

/// A curve for the fit: bytes, median, interval.
type Curve = Vec<(Bytes, f64, [f64; 2])>;

/// The random chases over all lines, by memory and CPUs, then by working set. Where a working set was read before each
/// sample, that is its point: what others evict is no property of a cache.
fn ladders(chases: &[Chased]) -> BTreeMap<(MemorySpec, &[u32]), BTreeMap<Bytes, &Chased>> {
    let is_ladder = |c: &&Chased| c.chase() == Chase::of(Order::Random) && c.figure().is_some();
    let mut ladders: BTreeMap<_, BTreeMap<Bytes, &Chased>> = BTreeMap::new();
    for chased in chases.iter().filter(is_ladder) {
        let ladder = ladders.entry((chased.case.memory, &chased.case.cpus[..])).or_default();
        let point = ladder.entry(chased.case.working_set).or_insert(chased);
        if chased.case.protocol == Protocol::Refilled {
            *point = chased;
        }
    }
    ladders
}

/// The ladder is the one with the most working sets; of several, in the memory with the largest pages, where translations
/// cost least. Empty, where it is too short.
fn ladder_of(chases: &[Chased]) -> Vec<&Chased> {
    let rank =
        |((memory, _), ladder): &((MemorySpec, _), BTreeMap<_, _>)| (ladder.len(), memory.kind != MemoryKind::Base);
    let longest = ladders(chases).into_iter().max_by_key(rank).filter(|(_, ladder)| ladder.len() >= SIZES_FOR_LEVELS);
    longest.map_or(Vec::new(), |(_, ladder)| ladder.into_values().collect())
}

/// The level that a chase's lines lie in.
fn level_of(chased: &Chased, levels: &[Level]) -> Option<String> {
    let footprint = chased.footprint();
    let last = levels.len().saturating_sub(1);
    let inside = |(index, level): &(usize, &Level)| {
        (footprint >= level.from.0 || *index == 0) && (footprint <= level.to.0 || *index == last)
    };
    levels.iter().enumerate().find(inside).map(|(_, level)| level.name.clone())
}

/// Beside a level whose plateau is of hits: what the same working sets cost as others leave them. Each set is held against itself, since
/// they differ by more than that, and evictions make none faster.
fn disturbed(levels: &mut [Level], chases: &[Chased]) {
    let is_one = |c: &&Chased| c.chase() == Chase::of(Order::Random) && c.case.memory.kind == USUAL_MEMORY.kind;
    for level in levels {
        let Some(latency) = &mut level.latency else { continue };
        let of_level = |word: &'static str| {
            let is_there = |c: &&Chased| c.last_level == Some(word) && c.level.as_ref() == Some(&level.name);
            chases.iter().filter(is_one).filter(is_there).filter_map(|c| Some((&c.case, c.latency_ns?.experienced)))
        };
        let ratio = |(case, disturbed): (&Case, f64)| {
            let twin = Case { protocol: Protocol::Refilled, ..case.clone() };
            of_level("hit").find(|(case, _)| **case == twin).map(|(_, hit)| disturbed / hit)
        };
        let ratios: Vec<f64> = of_level("disturbed").filter_map(ratio).collect();
        let slower = summarize(&[ratios]).map(|found| [found.median, found.ci95[0], found.ci95[1]]);
        latency.disturbed_ns = slower.map(|slower| slower.map(|ratio| latency.ns[0] * ratio.max(1.0)));
    }
}

/// Translation buffers: chases over one line in each base page, against as many lines side by side in huge pages. Both
/// fill the caches alike. Huge pages with one line in each would not do instead: where a host backs them with base pages,
/// the processor translates them as such.
fn translation(chases: &[Chased], base_page: Bytes) -> Vec<TranslationLevel> {
    let all = ladders(chases);
    let side_by_side = all.iter().find(|((memory, _), _)| memory.kind == USUAL_MEMORY.kind).map(|(_, ladder)| ladder);
    let dense: BTreeMap<usize, [f64; 3]> =
        side_by_side.into_iter().flat_map(BTreeMap::values).filter_map(|c| Some((c.places(), c.figure()?))).collect();
    // The nearest cache, by several points: a disturbed one would shift all that follows.
    let nearest = median(dense.values().take(NEAREST_POINTS).map(|figure| figure[0]));
    let Some((&fewest, nearest)) = dense.keys().next().zip(nearest) else { return Vec::new() };
    let is_sparse = |c: &&Chased| {
        (c.chase().order, c.chase().stride_bytes, c.chase().chains) == (Order::Random, SPARSE_STRIDE, 1)
            && c.case.memory.kind == MemoryKind::Base
    };
    let sparse: Vec<&Chased> = chases.iter().filter(is_sparse).collect();
    let more = |c: &&Chased| {
        // Fewer lines than the smallest working set has lie in the same cache.
        let [base, low, high] = c.figure()?;
        let other = if c.places() < fewest { [nearest; 3] } else { *dense.get(&c.places())? };
        // As a curve of latencies: what a load would take from the nearest cache.
        let latency = nearest + base - other[0];
        let error = ((high - low) / 2.0).hypot((other[2] - other[1]) / 2.0);
        Some((c.case.working_set, latency, [latency - error, latency + error]))
    };
    let curve: Curve = sparse.iter().filter_map(more).collect();
    let clock = median(sparse.iter().filter_map(|c| c.core_clock_hz));
    let rungs = ladder::fit(&curve, None);
    let level = |(index, pair): (usize, &[Rung])| {
        // A place lies in each 4 KiB, so that larger pages have several.
        let pages_of = |bytes: Bytes| bytes.0 as f64 / f64::from(SPARSE_STRIDE) * BASE_PAGE as f64 / base_page.0 as f64;
        let [pages, low, high] = pair[0].capacity?.map(pages_of);
        let miss_ns = pair[1].latency.map(|ns| ns - rungs[0].latency[0]);
        Some(TranslationLevel {
            level: index + 1,
            pages,
            pages_ci95: [low, high],
            reach: Bytes((pages * base_page.0 as f64) as u64),
            miss_ns,
            miss_cycles: clock.map(|hz| miss_ns[0] * 1e-9 * hz),
        })
    };
    rungs.windows(2).enumerate().filter_map(level).collect()
}

/// The random chases over lines that differ in their number of chains alone: of several sets the largest.
fn parallelism(chases: &[Chased], streaming: Option<Rate>) -> Option<Parallelism> {
    let is_one = |c: &&Chased| {
        c.chase() == Chase { chains: c.chase().chains, ..Chase::of(Order::Random) }
            && c.case.protocol == Protocol::Steady
    };
    let mut groups: BTreeMap<_, Vec<(&Chased, [f64; 3])>> = BTreeMap::new();
    for chased in chases.iter().filter(is_one) {
        let key = (chased.case.working_set, chased.case.memory, &chased.case.cpus);
        groups.entry(key).or_default().extend(chased.figure().map(|figure| (chased, figure)));
    }
    let group = groups.into_values().rev().find(|group| group.len() >= LEAST_CHAINS)?;
    let point = |&(chased, latency_ns): &(&Chased, [f64; 3])| {
        let chains = chased.chase().chains;
        ParallelPoint { chains, latency_ns, bps: f64::from(chains) * LINE as f64 / (latency_ns[0] * 1e-9) }
    };
    let mut points: Vec<ParallelPoint> = group.iter().map(point).collect();
    points.order_by_key(|point| point.chains);
    let alone = points.first().filter(|point| point.chains == 1)?.latency_ns[0];
    let greatest_bps = points.iter().map(|point| point.bps).fold(0.0, f64::max);
    Some(Parallelism {
        memory: group[0].0.case.memory.kind,
        working_set: group[0].0.case.working_set,
        knee: points.iter().find(|point| point.bps >= KNEE * greatest_bps)?.chains,
        lines_in_flight: greatest_bps * alone * 1e-9 / LINE as f64,
        most_chains: points.last()?.chains,
        greatest_bps,
        streaming,
        points,
    })
}

/// Even lines permuted within blocks: for each memory and node a line over cores.
fn map(chases: &[Chased]) -> Vec<MapLine> {
    let is_mapped =
        |c: &&Chased| c.is_plain() && c.chase().order == Order::PageOrdered && c.chase().stride_bytes == MAP_STRIDE;
    let mut lines: BTreeMap<_, Vec<&Chased>> = BTreeMap::new();
    for chased in chases.iter().filter(is_mapped) {
        lines.entry((chased.case.memory.kind, chased.node, chased.case.working_set)).or_default().push(chased);
    }
    lines.into_iter().filter_map(|((memory, node, _), chases)| map_line(memory, node, &chases)).collect()
}

fn map_line(memory: MemoryKind, node: Option<u32>, chases: &[&Chased]) -> Option<MapLine> {
    let mut of_core: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (chased, [median, ..]) in chases.iter().filter_map(|chased| Some((chased, chased.figure()?))) {
        of_core.entry(*chased.case.cpus.first()?).or_default().push(median);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let cores: Vec<(u32, f64)> = of_core.iter().map(|(&cpu, blocks)| (cpu, mean(blocks))).collect();
    let values: Vec<f64> = cores.iter().map(|core| core.1).collect();
    let avg = mean(&values);
    let squares: f64 = values.iter().map(|value| (value - avg).powi(2)).sum();
    let blocks: BTreeSet<u32> = chases.iter().map(|chased| chased.chase().block_bytes).collect();
    (!cores.is_empty()).then(|| MapLine {
        memory,
        node,
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        avg,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        sd: (squares / (values.len().max(2) - 1) as f64).sqrt(),
        cores,
        blocks: blocks.into_iter().map(|bytes| Bytes(bytes.into())).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a guest with somebody on the other hyperthread: most visits are disturbed, and the case that is visited most lies beyond the
    /// part of the plateau that is sure.
    #[test]
    fn cycles_are_of_all_that_fits() {
        let level =
            Level { from: Bytes::kib(4), to: Bytes::kib(18), capacity: Some(Bytes::kib(34)), ..Level::default() };
        let headline = [[4.05; 6].as_slice(), &[4.9; 11]].concat();
        let ladder = [(8, &[4.22, 4.25][..]), (24, &headline), (32, &[8.5, 9.7]), (46, &[11.0, 3.5])];
        let visits = || ladder.iter().map(|(kib, cycles)| (Bytes::kib(*kib), *cycles));
        assert_eq!(cycles(visits(), &level), Some(4.05));
        // A plateau without disturbance is not worse for what lies beyond it.
        assert_eq!(
            cycles([(Bytes::kib(8), &[4.0; 2][..]), (Bytes::kib(32), &[9.0; 30])].into_iter(), &level),
            Some(4.0)
        );
        assert_eq!(cycles(visits().skip(3), &level), None);
    }
}
