//! Latency: from chases to rows, the ladder, translation buffers, lines in flight, and the map over cores.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hierarchy::{LEAST_SIZES, assumed, named};
use super::ladder::{self, Rung, Translation};
use super::levels::Plateau;
use super::numa::is_in_matrix;
use super::quality::{Sampled, rated, summarize};
use super::rows::{core_clock, median, visits};
use super::{Cost, Level, Quality, Report};
use crate::kernel::chase::{Chase, Order};
use crate::memory::{MemoryKind, MemorySpec, Obtained};
use crate::plan::{Case, MAP_STRIDE, Protocol, SPARSE_STRIDE, USUAL_MEMORY, Work};
use crate::record::{BASE_PAGE, Measured, Measurement, Record};
use crate::units::{Bytes, BytesPerSecond, Nanoseconds, significant};

const LINE: u64 = 64;
/// Working sets that say what the nearest cache takes: the first eight fit in it.
const NEAREST_POINTS: usize = 8;
const HUGE_PAGE: u64 = 2 << 20;
/// Share of the greatest rate that the knee has reached.
const KNEE: f64 = 0.95;
/// Numbers of chains that make a curve.
const LEAST_CHAINS: usize = 3;

/// A latency: one tidy row a chase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRow {
    /// `latency`.
    pub metric: String,
    /// Order of the places.
    pub order: Order,
    /// Bytes from one place to the next.
    pub stride_bytes: u32,
    /// Bytes of a block, where the order has blocks.
    pub block_bytes: u32,
    /// Independent chains.
    pub chains: u32,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// NUMA node of the pages: asked for, else the one node they were found on; absent where mixed or unknown.
    pub node: Option<u32>,
    /// CPU.
    pub cpus: Vec<u32>,
    /// Bytes from the first place to the end of the last.
    pub working_set_bytes: Bytes,
    /// The level that the lines of the places lie in, by the measured ladder; absent where they lie between two.
    pub level: Option<String>,
    /// `hit`: the working set was read right before each sample, so that the last level has it. `disturbed`: it lies in
    /// the last level and was not, so that a share of the loads may go to memory, as much as others evict. Else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_level: Option<String>,
    /// `ns`.
    pub unit: String,
    /// Nanoseconds from one load of a chain to its next. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The same in core clock cycles: median, by the clock of each visit.
    pub latency_cycles: Option<f64>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

rated!(LatencyRow, |row| format!("chases in {} memory", row.memory));

/// What the chases of a record tell together. Intervals are [value, low, high] with 95 %.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Latency {
    /// One row a chase, by memory, order, stride, chains, CPU and working set.
    pub rows: Vec<LatencyRow>,
    /// The ladder's levels, fastest first: found in the curve of a random order in huge pages.
    pub levels: Vec<LatencyLevel>,
    /// Translation buffers for base pages, smallest first.
    pub translation: Vec<TranslationLevel>,
    /// Independent chains, if several numbers of them were measured.
    pub parallelism: Option<Parallelism>,
    /// Cores against nodes and page sizes.
    pub map: Vec<MapLine>,
}

/// A level of the ladder.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LatencyLevel {
    /// `L1`, `L2`, `L3`, `memory`.
    pub name: String,
    /// Nanoseconds, without what translating huge pages adds: fitted to the level's plateau and the edges beside it. For the last cache, where that was measured, of
    /// working sets that were read right before.
    pub latency_ns: [f64; 3],
    /// The same in core clock cycles.
    pub latency_cycles: Option<f64>,
    /// Where `latency_ns` is right after a read: the same working sets without, evictions by others and all; median.
    pub disturbed_ns: Option<[f64; 3]>,
    /// Smallest and largest working set on the plateau.
    pub from: Bytes,
    /// See `from`.
    pub to: Bytes,
    /// Where the fit says that the level is full; absent for the last one.
    pub capacity: Option<Bytes>,
    /// Its 95 % interval: the level is full somewhere in it.
    pub capacity_ci95: Option<[Bytes; 2]>,
    /// What the operating system says; absent for memory and where it says nothing.
    pub claimed: Option<Bytes>,
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

/// All that the chases of a record tell.
pub(super) fn latency(record: &Record) -> Latency {
    let is_in_matrix = is_in_matrix(record);
    let all = visits(record);
    let own = all.iter().filter(|visits| !is_in_matrix(&visits[0].case));
    let mut chases: Vec<Chased> = own.filter_map(|visits| chased(visits, record)).collect();
    chases.sort_by(|a, b| (a.key(), &a.case).cmp(&(b.key(), &b.case)));
    let translation = translation(&chases);
    let levels = levels(&chases, translation.first(), record);
    for chase in &mut chases {
        chase.row.level = level_of(chase, &levels.named);
    }
    // A cache is the last one if nothing but memory comes after it.
    let last = levels.named.iter().rev().find(|level| level.name != "memory").map(|level| level.name.clone());
    for chase in chases.iter_mut().filter(|chase| chase.row.level.is_some() && chase.row.level == last) {
        let word = if chase.case.protocol == Protocol::Refilled { "hit" } else { "disturbed" };
        chase.row.last_level = Some(word.into());
    }
    Latency {
        translation,
        parallelism: parallelism(&chases),
        map: map(&chases),
        levels: with_disturbed(levels.fitted, &chases),
        rows: chases.into_iter().map(|chased| chased.row).collect(),
    }
}

/// A chase's row and what stands behind it.
struct Chased {
    case: Case,
    chase: Chase,
    row: LatencyRow,
    /// Nanoseconds of each sample, visit by visit.
    batches: Vec<Vec<f64>>,
}

impl Chased {
    fn key(&self) -> impl Ord + use<> {
        let Chase { order, stride_bytes, chains, block_bytes } = self.chase;
        (self.case.memory, order, stride_bytes, block_bytes, chains, self.case.cpus.clone(), self.case.protocol)
    }

    /// Bytes of the lines that its places lie in.
    fn footprint(&self) -> u64 {
        self.chase.places(self.case.working_set) as u64 * LINE.min(self.chase.stride_bytes.into())
    }

    /// Whether it is a single chain, in the usual state of the caches, and has a figure.
    fn is_plain(&self) -> bool {
        self.chase.chains == 1 && self.case.protocol == Protocol::Steady && self.figure().is_some()
    }

    /// Median with its interval: [median, low, high].
    fn figure(&self) -> Option<[f64; 3]> {
        let cost = self.row.latency_ns.filter(|_| self.row.quality.is_measured())?;
        Some([cost.median, cost.ci95[0], cost.ci95[1]])
    }
}

/// The row of a case that is a chase.
pub(super) fn row_of(visits: &[&Measurement], record: &Record) -> Option<(Case, LatencyRow)> {
    chased(visits, record).map(|chased| (chased.case, chased.row))
}

fn chased(visits: &[&Measurement], record: &Record) -> Option<Chased> {
    let (case, hz) = (visits[0].case.clone(), record.header.clock.hz.0);
    let Work::Chase(chase) = case.work else { return None };
    let sampled = Sampled::of(visits, hz, |visit| link_ns(visit, chase, hz));
    let row = LatencyRow {
        metric: "latency".into(),
        order: chase.order,
        stride_bytes: chase.stride_bytes,
        block_bytes: chase.block_bytes,
        chains: chase.chains,
        memory: case.memory.kind,
        node: sampled.node(&case),
        cpus: case.cpus.clone(),
        working_set_bytes: case.working_set,
        level: None,
        last_level: None,
        unit: "ns".into(),
        latency_ns: sampled.cost(),
        latency_cycles: cycles(&sampled.measured, &sampled.batches, hz),
        core_clock_hz: sampled.core_clock(hz),
        obtained: sampled.obtained(),
        quality: sampled.quality,
    };
    Some(Chased { case, chase, row, batches: sampled.batches })
}

/// Nanoseconds from one load of a chain to its next, sample by sample.
pub(super) fn link_ns(visit: &Measured, chase: Chase, hz: f64) -> Vec<f64> {
    let links = visit.repetitions as f64 * visit.volume.elements as f64 / f64::from(chase.chains);
    visit.samples.ticks.iter().map(|ticks| *ticks as f64 / hz * 1e9 / links).collect()
}

/// Core clock cycles: the median over all samples, each by the clock of its visit, so that a clock that changes from
/// visit to visit does not blur them.
fn cycles(measured: &[&Measured], batches: &[Vec<f64>], hz: f64) -> Option<f64> {
    let of_visit = |(visit, batch): (&&Measured, &Vec<f64>)| {
        let clock = core_clock(&[*visit], hz)?;
        Some(batch.iter().map(move |ns| ns * 1e-9 * clock).collect::<Vec<_>>())
    };
    median(measured.iter().zip(batches).filter_map(of_visit).flatten())
}

/// A curve for the fit: bytes, median, interval.
type Curve = Vec<(Bytes, f64, [f64; 2])>;

fn curve<'a>(chases: impl IntoIterator<Item = &'a Chased>) -> Curve {
    let point =
        |chased: &Chased| chased.figure().map(|[median, low, high]| (chased.case.working_set, median, [low, high]));
    chases.into_iter().filter_map(point).collect()
}

/// Levels as found, and all levels that rows may be told: with too few sizes those that are claimed.
struct Levels {
    fitted: Vec<LatencyLevel>,
    named: Vec<Level>,
}

/// The random chases over all lines, by memory and CPUs, then by working set. Where a working set was read before each
/// sample, that is its point: what others evict is no property of a cache.
fn ladders(chases: &[Chased]) -> BTreeMap<(MemorySpec, &[u32]), BTreeMap<Bytes, &Chased>> {
    let is_ladder = |c: &&Chased| c.chase == Chase::of(Order::Random) && c.figure().is_some();
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
/// cost least.
fn levels(chases: &[Chased], translation: Option<&TranslationLevel>, record: &Record) -> Levels {
    let rank =
        |((memory, _), ladder): &((MemorySpec, _), BTreeMap<_, _>)| (ladder.len(), memory.kind != MemoryKind::Base);
    let cpu = chases.first().map_or(0, |chased| chased.case.cpus[0]);
    let claimed: Vec<Bytes> = record.header.machine.data_caches(cpu).iter().map(|cache| cache.size).collect();
    let longest = ladders(chases).into_iter().max_by_key(rank);
    let Some(((memory, _), ladder)) = longest.filter(|(_, ladder)| ladder.len() >= LEAST_SIZES) else {
        return Levels { fitted: Vec::new(), named: assumed(&claimed) };
    };
    let curve = curve(ladder.values().copied());
    let huge = |level: &TranslationLevel| {
        let reach = Bytes((level.pages * HUGE_PAGE as f64) as u64);
        Translation { latency: level.miss_ns[0], reach }
    };
    let rungs = ladder::fit(&curve, translation.filter(|_| memory.kind != MemoryKind::Base).map(huge));
    let plateau = |rung: &Rung| {
        let capacity = rung.capacity.map(|[capacity, ..]| capacity);
        Plateau { from: rung.from, to: rung.to, speed: 1.0 / rung.latency[0], capacity }
    };
    let plateaus: Vec<Plateau> = rungs.iter().map(plateau).collect();
    let largest = curve.iter().map(|point| point.0).max().unwrap_or_default();
    let named = named(&plateaus, &claimed, largest);
    let clock = median(ladder.values().filter_map(|chased| chased.row.core_clock_hz));
    let fitted = |level: &Level| {
        // A level with a step inside (translation) begins on one rung and ends on another.
        let rung = rungs.iter().find(|rung| rung.from == level.from)?;
        let capacity = rungs.iter().find(|rung| rung.to == level.to)?.capacity;
        Some(LatencyLevel {
            name: level.name.clone(),
            latency_ns: rung.latency,
            latency_cycles: clock.map(|hz| rung.latency[0] * 1e-9 * hz),
            disturbed_ns: None,
            from: level.from,
            to: level.to,
            capacity: capacity.map(|[capacity, ..]| capacity),
            capacity_ci95: capacity.map(|[_, low, high]| [low, high]),
            claimed: level.claimed,
        })
    };
    Levels { fitted: named.iter().filter_map(fitted).collect(), named }
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

/// Beside a level whose plateau is of hits: what the same working sets cost as others leave them.
fn with_disturbed(mut levels: Vec<LatencyLevel>, chases: &[Chased]) -> Vec<LatencyLevel> {
    for level in &mut levels {
        let of_level = |word: &'static str| {
            let name = &level.name;
            let is_one = move |c: &&Chased| {
                c.row.last_level.as_deref() == Some(word)
                    && c.row.level.as_ref() == Some(name)
                    && c.chase == Chase::of(Order::Random)
                    && c.case.memory.kind == USUAL_MEMORY.kind
            };
            chases.iter().filter(is_one)
        };
        if of_level("hit").count() == 0 {
            continue;
        }
        let batches: Vec<Vec<f64>> = of_level("disturbed").flat_map(|chased| chased.batches.clone()).collect();
        let summary = summarize(&batches);
        level.disturbed_ns = summary.map(|summary| [summary.median, summary.ci95[0], summary.ci95[1]]);
    }
    levels
}

/// Translation buffers: chases over one line in each base page, against as many lines side by side in huge pages. Both
/// fill the caches alike. Huge pages with one line in each would not do instead: where a host backs them with base pages,
/// the processor translates them as such.
fn translation(chases: &[Chased]) -> Vec<TranslationLevel> {
    let all = ladders(chases);
    let side_by_side = all.iter().find(|((memory, _), _)| memory.kind == USUAL_MEMORY.kind).map(|(_, ladder)| ladder);
    let dense: BTreeMap<usize, [f64; 3]> =
        side_by_side.into_iter().flat_map(BTreeMap::values).filter_map(|c| Some((places(c), c.figure()?))).collect();
    // The nearest cache, by several points: a disturbed one would shift all that follows.
    let nearest = median(dense.values().take(NEAREST_POINTS).map(|figure| figure[0]));
    let Some((&fewest, nearest)) = dense.keys().next().zip(nearest) else { return Vec::new() };
    let is_sparse = |c: &&Chased| {
        (c.chase.order, c.chase.stride_bytes, c.chase.chains) == (Order::Random, SPARSE_STRIDE, 1)
            && c.case.memory.kind == MemoryKind::Base
    };
    let sparse: Vec<&Chased> = chases.iter().filter(is_sparse).collect();
    let more = |c: &&Chased| {
        // Fewer lines than the smallest working set has lie in the same cache.
        let [base, low, high] = c.figure()?;
        let other = if places(c) < fewest { [nearest; 3] } else { *dense.get(&places(c))? };
        // As a curve of latencies: what a load would take from the nearest cache.
        let latency = nearest + base - other[0];
        let error = ((high - low) / 2.0).hypot((other[2] - other[1]) / 2.0);
        Some((c.case.working_set, latency, [latency - error, latency + error]))
    };
    let curve: Curve = sparse.iter().filter_map(more).collect();
    let clock = median(sparse.iter().filter_map(|c| c.row.core_clock_hz));
    let rungs = ladder::fit(&curve, None);
    let level = |(index, pair): (usize, &[Rung])| {
        let [pages, low, high] = pair[0].capacity?.map(|bytes| bytes.0 as f64 / f64::from(SPARSE_STRIDE));
        let miss_ns = pair[1].latency.map(|ns| ns - rungs[0].latency[0]);
        Some(TranslationLevel {
            level: index + 1,
            pages,
            pages_ci95: [low, high],
            reach: Bytes((pages * BASE_PAGE as f64) as u64),
            miss_ns,
            miss_cycles: clock.map(|hz| miss_ns[0] * 1e-9 * hz),
        })
    };
    rungs.windows(2).enumerate().filter_map(level).collect()
}

fn places(chased: &Chased) -> usize {
    chased.chase.places(chased.case.working_set)
}

/// The random chases over lines that differ in their number of chains alone: of several sets the largest.
fn parallelism(chases: &[Chased]) -> Option<Parallelism> {
    let is_one = |c: &&Chased| {
        c.chase == Chase { chains: c.chase.chains, ..Chase::of(Order::Random) } && c.case.protocol == Protocol::Steady
    };
    let mut groups: BTreeMap<_, Vec<(&Chased, [f64; 3])>> = BTreeMap::new();
    for chased in chases.iter().filter(is_one) {
        let key = (chased.case.working_set, chased.case.memory, &chased.case.cpus);
        groups.entry(key).or_default().extend(chased.figure().map(|figure| (chased, figure)));
    }
    let group = groups.into_values().rev().find(|group| group.len() >= LEAST_CHAINS)?;
    let point = |&(chased, latency_ns): &(&Chased, [f64; 3])| {
        let chains = chased.chase.chains;
        ParallelPoint { chains, latency_ns, bps: f64::from(chains) * LINE as f64 / (latency_ns[0] * 1e-9) }
    };
    let mut points: Vec<ParallelPoint> = group.iter().map(point).collect();
    points.sort_by_key(|point| point.chains);
    let alone = points.first().filter(|point| point.chains == 1)?.latency_ns[0];
    let greatest_bps = points.iter().map(|point| point.bps).fold(0.0, f64::max);
    Some(Parallelism {
        memory: group[0].0.case.memory.kind,
        working_set: group[0].0.case.working_set,
        knee: points.iter().find(|point| point.bps >= KNEE * greatest_bps)?.chains,
        lines_in_flight: greatest_bps * alone * 1e-9 / LINE as f64,
        most_chains: points.last()?.chains,
        greatest_bps,
        points,
    })
}

/// Even lines permuted within blocks: for each memory and node a line over cores.
fn map(chases: &[Chased]) -> Vec<MapLine> {
    let is_mapped =
        |c: &&Chased| c.is_plain() && c.chase.order == Order::PageOrdered && c.chase.stride_bytes == MAP_STRIDE;
    let mut lines: BTreeMap<_, Vec<&Chased>> = BTreeMap::new();
    for chased in chases.iter().filter(is_mapped) {
        lines.entry((chased.case.memory.kind, chased.row.node, chased.case.working_set)).or_default().push(chased);
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
    let blocks: BTreeSet<u32> = chases.iter().map(|chased| chased.chase.block_bytes).collect();
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

/// What it comes to, in words.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let sentences = [ladder_sentence, translation_sentence, prefetch_sentence, parallelism_sentence, map_sentence];
    sentences.into_iter().filter_map(|sentence| sentence(report)).collect()
}

fn ladder_sentence(report: &Report) -> Option<String> {
    let of_level = |level: &LatencyLevel| {
        let cycles = level.latency_cycles.map_or(String::new(), |cycles| format!(" ({} cycles)", significant(cycles)));
        let disturbed = level.disturbed_ns.map_or(String::new(), |[ns, ..]| {
            format!(", right after its data were read ({} with what others evict meanwhile)", Nanoseconds(ns))
        });
        format!("{} from {}{cycles}{disturbed}", Nanoseconds(level.latency_ns[0]), level.name)
    };
    let parts: Vec<String> = report.latency.levels.iter().map(of_level).collect();
    (!parts.is_empty()).then(|| format!("A load that waits for the one before takes {}.", parts.join("; ")))
}

fn translation_sentence(report: &Report) -> Option<String> {
    let of_level = |level: &TranslationLevel| {
        let TranslationLevel { pages, reach, miss_ns, .. } = level;
        format!("beyond {pages:.0} pages ({reach}) {}", Nanoseconds(miss_ns[0]))
    };
    let parts: Vec<String> = report.latency.translation.iter().map(of_level).collect();
    (!parts.is_empty()).then(|| format!("Translating addresses in base pages adds {}.", parts.join(", ")))
}

/// The same lines in several orders, at the largest working set that several orders have.
fn prefetch_sentence(report: &Report) -> Option<String> {
    let orders = [Order::Forward, Order::Backward, Order::Strided, Order::Random];
    let figure = |order: Order, size: Bytes| {
        let is_ours = |row: &&LatencyRow| {
            (row.order, row.working_set_bytes, row.stride_bytes, row.chains) == (order, size, 64, 1)
                && row.memory == USUAL_MEMORY.kind
                && row.level.as_deref() == Some("memory")
        };
        report.latency.rows.iter().find(is_ours)?.latency_ns.map(|cost| cost.median)
    };
    let sizes: BTreeSet<Bytes> = report.latency.rows.iter().map(|row| row.working_set_bytes).collect();
    let all = |&size: &Bytes| -> Vec<String> {
        let text = |order: &Order| Some(format!("{order} {}", Nanoseconds(figure(*order, size)?)));
        orders.iter().filter_map(text).collect()
    };
    let parts = sizes.iter().rev().map(all).find(|parts| parts.len() == orders.len())?;
    Some(format!("In memory the order of the same lines decides: {}.", parts.join(", ")))
}

fn parallelism_sentence(report: &Report) -> Option<String> {
    let Parallelism { knee, greatest_bps, lines_in_flight, most_chains, .. } = report.latency.parallelism.as_ref()?;
    let level = report.levels.iter().find(|level| level.name == "memory");
    let best =
        level.and_then(|level| level.best.iter().find(|best| (best.kernel.as_str(), best.threads) == ("load", 1)));
    let loads = best.and_then(|best| report.rows.get(best.row)?.payload_bps);
    let held = loads.map_or(String::new(), |rate| format!("; streaming loads reach {}", BytesPerSecond(rate.median)));
    let open = if knee == most_chains { ", the most that were tried" } else { "" };
    let rate = BytesPerSecond(*greatest_bps);
    Some(format!(
        "One core has {lines_in_flight:.0} lines in flight: from {knee} independent chains on{open} it reads {rate} of random lines{held}."
    ))
}

fn map_sentence(report: &Report) -> Option<String> {
    let of_line = |line: &MapLine| {
        let node = line.node.map_or(String::new(), |node| format!("node {node}, "));
        let MapLine { memory, max, avg, min, sd, cores, .. } = line;
        match &cores[..] {
            [(cpu, _)] => format!("{node}{memory}: {avg:.1} ns from CPU {cpu}"),
            _ => {
                let count = cores.len();
                format!("{node}{memory}: {avg:.1} ns on average over {count} CPUs, {min:.1} to {max:.1}, sd {sd:.1}")
            }
        }
    };
    let parts: Vec<String> = report.latency.map.iter().map(of_line).collect();
    (!parts.is_empty()).then(|| format!("Memory latency from CPU to node: {}.", parts.join("; ")))
}
