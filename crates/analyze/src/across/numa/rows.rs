//! Memory from everywhere: the matrix of initiators and nodes, how many cores saturate a domain, what memory-side caches
//! do to the curve.

use membound_core::in_order::InOrder;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::across::traffic::SATURATED;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::latency::ladder::row_of;
use crate::experiments::latency::rows::{LatencyRow, has_matrix, is_node_chase, is_node_kernel};
use crate::flag::Flag;
use crate::quality::Quality;
use crate::rate::{Cost, Figure, Rate};
use crate::row::{AnyRow, Metric, Row, any};
use crate::visits::Visits;
use membound_core::case::Case;
use membound_core::experiments::frame::MEMORY_TO_CACHE;
use membound_core::experiments::numa::{Way, caches_of};
use membound_core::kernel::{Element, LoadKind};
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::domains::DomainKind;
use membound_core::machine::nature::NodeNature;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::Record;
use membound_core::units::{Bytes, words};

/// A figure of the matrix: one tidy row an initiator, node, way and number of cores.
pub type NumaRow = Row<NumaFigures>;

/// How fast a node's memory is from somewhere.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NumaFigures {
    /// Where memory was touched from: `node 0`, `package 1`, `cache of 0-3`, `cluster of 4-5`, or `CPUs 0-1`.
    #[serde(skip)]
    pub initiator: String,
    /// All hardware threads of its cores.
    #[serde(skip)]
    pub initiator_cpus: CpuSet,
    /// What was done.
    #[serde(skip)]
    pub way: Way,
    /// What the program reads and writes. Absent for a latency, and where nothing was measured.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Dependent-load latency, nanoseconds. Absent for bandwidths, and where nothing was measured.
    pub latency_ns: Option<Cost>,
}

/// What tells figures of the matrix from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NumaKeys {
    /// Where memory was touched from: `node 0`, `package 1`, `cache of 0-3`, `cluster of 4-5`, or `CPUs 0-1`.
    initiator: String,
    /// All hardware threads of its cores.
    initiator_cpus: CpuSet,
    /// The node that the memory was on.
    node: u32,
    /// What was done.
    way: Way,
    /// Cores used: one thread each.
    cores: usize,
    /// Their CPUs.
    cpus: Vec<u32>,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// Bytes touched by one repetition.
    working_set_bytes: Bytes,
}

impl Metric for NumaFigures {
    const NAME: &'static str = "numa";
    const UNIT: &'static str = "B/s";
    const UNITS: &'static [&'static str] = &[Self::UNIT, "ns"];
    const IS_REPEATED: bool = true;
    type Keys = NumaKeys;

    fn keys(row: &NumaRow) -> NumaKeys {
        NumaKeys {
            initiator: row.initiator.clone(),
            initiator_cpus: row.initiator_cpus.clone(),
            node: row.node(),
            way: row.way,
            cores: row.cores(),
            cpus: row.case.cpus.clone(),
            memory: row.case.memory.kind,
            working_set_bytes: row.case.working_set,
        }
    }

    fn what(row: &NumaRow) -> String {
        format!("{}, {} from node {}", row.initiator, row.way, row.node())
    }

    fn unit(row: &NumaRow) -> &'static str {
        if row.way == Way::Latency { "ns" } else { Self::UNIT }
    }
}

impl NumaRow {
    /// The node that the memory was on.
    pub fn node(&self) -> u32 {
        self.case.memory.node().expect("rows of the matrix are made of memory on a node alone")
    }

    /// Cores used: one thread each.
    pub fn cores(&self) -> usize {
        self.case.threads()
    }

    /// Bytes a second or ns.
    pub(crate) fn figure(&self) -> Option<Figure> {
        self.payload_bps.or(self.latency_ns)
    }
}

/// A set of CPUs that memory was touched from.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NumaInitiator {
    /// Its name, as in rows.
    pub name: String,
    /// What its CPUs have in common; absent where that is nothing by itself.
    pub domain: Option<DomainKind>,
    /// One CPU a core, in the order in which threads take them.
    pub cores: Vec<u32>,
    /// All hardware threads of its cores.
    pub cpus: CpuSet,
    /// The node that its first CPU belongs to.
    pub node: Option<u32>,
}

words! {
    /// What keeps a domain from moving more.
    Limit, "limit" {
        /// Its cores: each one more still adds.
        Cores = "its cores",
        /// The domain: others beside it get more out of the same memory.
        Domain = "the domain",
        /// The memory: cores of other domains add nothing.
        Memory = "the memory",
        /// Nobody else touched the same memory, so that the two can't be told apart.
        Open = "the domain or the memory",
        /// The rates that decide are not known well enough.
        Unclear = "unclear, rates are too uncertain",
    }
}

/// Bandwidth over cores of one domain.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Saturation {
    /// Name of the initiator.
    pub initiator: String,
    /// The node that the memory was on.
    pub node: u32,
    /// Memory kind.
    pub memory: MemoryKind,
    /// What was done.
    pub way: Way,
    /// Cores, and the rate of all of them together; cores rising.
    pub points: Vec<(usize, Rate)>,
    /// The fewest of these cores with 95 % of the best rate.
    pub cores: usize,
    /// What keeps it from moving more.
    pub limit: Limit,
}

/// What a memory-side cache does to the curve of loads.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SideCache {
    /// The node behind it.
    pub node: u32,
    /// What it holds, as the firmware says; else what of the processor's fast memory shows as no node.
    pub claimed: Bytes,
    /// Whether the firmware tells of no such cache, so that it is inferred by size and part.
    pub is_inferred: bool,
    /// Working sets and the rates of loads by all cores, sizes rising.
    pub points: Vec<(Bytes, Rate)>,
    /// Whether working sets within it are faster than those beyond, intervals apart; absent where none lies beyond.
    pub is_seen: Option<bool>,
    /// How much faster: the slowest within against the fastest beyond.
    pub gain: Option<f64>,
}

/// What a node is: claimed, and measured from the nearest cores. Ratios are [value, low, high].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredNode {
    /// What firmware, kernel and topology say.
    pub nature: NodeNature,
    /// The node with CPUs that it was held against, by the cores of that node; absent for a node with CPUs of its own,
    /// and where one of the two was not measured.
    pub against: Option<u32>,
    /// Load bandwidth of all those cores: this node's against that of their own.
    pub bandwidth: Option<[f64; 3]>,
    /// Latency of one of them, the same way.
    pub latency: Option<[f64; 3]>,
    /// Whether what was measured bears the claim out; absent where it decides nothing.
    pub is_confirmed: Option<bool>,
}

/// Memory from everywhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Numa {
    /// Where memory was touched from: nodes, packages, caches, clusters.
    pub initiators: Vec<NumaInitiator>,
    /// Nodes whose memory was touched, ascending.
    pub nodes: Vec<u32>,
    /// The nodes of the machine that have CPUs.
    pub with_cpus: Vec<u32>,
    /// Whether the machine has memory on one node alone.
    pub is_one: bool,
    /// Memory kinds.
    pub memory: Vec<MemoryKind>,
    /// One row a figure, by memory kind, initiator, node, way and cores.
    pub rows: Vec<NumaRow>,
    /// Bandwidth over cores.
    pub saturation: Vec<Saturation>,
    /// Memory-side caches.
    pub side_caches: Vec<SideCache>,
    /// What each node is: by firmware, and by what was measured.
    pub kinds: Vec<MeasuredNode>,
    /// How the memory is configured.
    pub modes: Vec<String>,
    /// Nodes with memory that were not measured, with what was free there.
    pub left_out: Vec<String>,
    /// The kernels behind the figures, as rows of their own metric: they are not to stand for the machine as a whole.
    pub kernels: Vec<BandwidthRow>,
    /// The chases behind them, alike.
    pub chases: Vec<LatencyRow>,
}

impl Numa {
    /// The rows of its figures, after the kernels and chases behind them.
    pub(crate) fn any_rows(&self) -> Vec<&dyn AnyRow> {
        [any(&self.kernels), any(&self.chases), any(&self.rows)].concat()
    }

    /// The figure of an initiator and node: by one core, or by all.
    pub fn row(&self, memory: MemoryKind, initiator: &str, node: u32, way: Way, is_all: bool) -> Option<&NumaRow> {
        let is_ours = |row: &&NumaRow| {
            (row.case.memory.kind, row.initiator.as_str(), row.node(), row.way) == (memory, initiator, node, way)
        };
        let mut rows = self.rows.iter().filter(is_ours);
        // Fewer cores come first; where there is only one, it is all.
        if is_all && way != Way::Latency {
            rows.next_back()
        } else {
            rows.next().filter(|row| is_all || row.cores() == 1)
        }
    }
}

/// Parts the kernels on nodes from the others, where a record has a matrix: kernels and chases bound to nodes. They are
/// not to stand for the machine's levels and scaling.
pub(crate) fn part(results: Vec<BandwidthRow>, record: &Record) -> (Vec<BandwidthRow>, Vec<BandwidthRow>) {
    let has_matrix = has_matrix(record);
    results.into_iter().partition(|result| !(has_matrix && is_node_kernel(&result.case)))
}

/// The matrix and what follows from it, but for what its nodes are; `None` where the record has none. Tells rows that surely
/// lie in memory so.
pub(crate) fn matrix(visits: &Visits<'_>, mut results: Vec<BandwidthRow>) -> Option<Numa> {
    if results.is_empty() {
        return None;
    }
    let record = visits.record;
    let machine = &record.header.machine;
    for result in results.iter_mut().filter(|result| is_in_memory(machine, &result.case)) {
        result.level = Some("memory".into());
    }
    let chases = visits.cases.iter().filter(|visits| is_node_chase(&visits[0].case));
    let chases: Vec<LatencyRow> = chases.filter_map(|case| row_of(case, visits)).collect();
    let initiators = initiators(machine, &results, &chases);
    let cases = || results.iter().map(|result| &result.case).chain(chases.iter().map(|row| &row.case));
    let nodes: BTreeSet<u32> = cases().filter_map(|case| case.memory.node()).collect();
    let memory: BTreeSet<MemoryKind> = cases().map(|case| case.memory.kind).collect();
    let mut numa = Numa {
        initiators,
        nodes: nodes.into_iter().collect(),
        with_cpus: machine.nodes.iter().filter(|node| node.has_cpus()).map(|node| node.id).collect(),
        is_one: machine.nodes_with_memory().count() == 1,
        memory: memory.into_iter().collect(),
        rows: Vec::new(),
        saturation: Vec::new(),
        side_caches: Vec::new(),
        kinds: Vec::new(),
        modes: machine.memory_modes(),
        left_out: Vec::new(),
        kernels: Vec::new(),
        chases: Vec::new(),
    };
    for &memory in &numa.memory {
        for initiator in &numa.initiators {
            for &node in &numa.nodes {
                numa.rows.extend(cell(machine, initiator, MemorySpec::on(memory, node), &results, &chases));
            }
        }
    }
    numa.saturation = saturation(&numa, &results);
    numa.side_caches = side_caches(machine, &numa, &results);
    numa.left_out = left_out(record, &numa);
    numa.kernels = results;
    numa.chases = chases;
    Some(numa)
}

fn is_in_memory(machine: &Machine, case: &Case) -> bool {
    let caches = caches_of(machine, &case.cpus);
    caches.0 > 0 && case.working_set.0 >= MEMORY_TO_CACHE * caches.0
}

/// Each list of CPUs that a domain of the machine is, or that no longer list begins with: the others are steps of a
/// scaling curve.
fn initiators(machine: &Machine, results: &[BandwidthRow], chases: &[LatencyRow]) -> Vec<NumaInitiator> {
    let kernels = results.iter().map(|result| &result.case.cpus);
    let lists: BTreeSet<&Vec<u32>> = kernels.chain(chases.iter().map(|row| &row.case.cpus)).collect();
    let used: CpuSet = lists.iter().flat_map(|list| list.iter().copied()).collect();
    let domains = machine.domains(&used);
    let mut found: Vec<(Option<usize>, NumaInitiator)> = Vec::new();
    for &list in &lists {
        let set: CpuSet = list.iter().copied().collect();
        let exact = domains.iter().position(|domain| domain.cpus == set);
        let is_step = lists.iter().any(|other| other.len() > list.len() && other.starts_with(list));
        if exact.is_none() && is_step {
            continue;
        }
        let threads = list.iter().filter_map(|cpu| machine.cpu(*cpu)).flat_map(|cpu| cpu.core_cpus.iter());
        let domain = exact.map(|index| &domains[index]);
        found.push((
            exact,
            NumaInitiator {
                name: domain.map_or_else(|| format!("CPUs {set}"), ToString::to_string),
                domain: domain.map(|domain| domain.kind),
                cores: list.clone(),
                cpus: threads.chain(list.iter().copied()).collect(),
                node: list.first().and_then(|cpu| machine.cpu(*cpu)?.node.get()),
            },
        ));
    }
    found.order_by_key(|(index, initiator)| (index.is_none(), *index, initiator.cores.clone()));
    found.into_iter().map(|(_, initiator)| initiator).collect()
}

/// The figures of an initiator and a node.
fn cell(
    machine: &Machine,
    initiator: &NumaInitiator,
    memory: MemorySpec,
    results: &[BandwidthRow],
    chases: &[LatencyRow],
) -> Vec<NumaRow> {
    let mut rows = Vec::new();
    // What its first core did alone may belong to another initiator that begins with it.
    let is_met = |case: &Case| case.cpus == initiator.cores && case.memory == memory;
    if !results.iter().any(|result| is_met(&result.case)) {
        return rows;
    }
    for &way in Way::ALL {
        let lists = [&initiator.cores[..1], &initiator.cores[..]];
        let lists = if initiator.cores.len() == 1 || way == Way::Latency { &lists[..1] } else { &lists[..] };
        for &cores in lists {
            let figures = |payload_bps, latency_ns| NumaFigures {
                initiator: initiator.name.clone(),
                initiator_cpus: initiator.cpus.clone(),
                way,
                payload_bps,
                latency_ns,
            };
            let row =
                |case: &Case, quality: &Quality, figures| Row { case: case.clone(), quality: quality.clone(), figures };
            let kernel = figure(results, cores, memory, way).map(|kernel| {
                let rate = kernel.payload_bps.filter(|_| kernel.quality.is_measured());
                row(&kernel.case, &kernel.quality, figures(rate, None))
            });
            let chase = chases.iter().filter(|row| row.case.cpus == cores && row.case.memory == memory);
            let chase = chase.max_by_key(|row| row.case.working_set).filter(|_| way == Way::Latency);
            let chase = chase.map(|chase| {
                let cost = chase.latency_ns.filter(|_| chase.quality.is_measured());
                row(&chase.case, &chase.quality, figures(None, cost))
            });
            let row = kernel.or(chase);
            rows.extend(row.map(|mut row| {
                let caches = caches_of(machine, &row.case.cpus);
                row.quality.flag([(Flag::MayBeCached, row.case.working_set.0 < MEMORY_TO_CACHE * caches.0)]);
                row
            }));
        }
    }
    rows
}

/// The result for these cores: of several working sets that which most ways have, of those the largest.
fn figure<'a>(results: &'a [BandwidthRow], cores: &[u32], memory: MemorySpec, way: Way) -> Option<&'a BandwidthRow> {
    let ours = || results.iter().filter(|r| r.case.cpus == cores && r.case.memory == memory);
    let mut sizes: BTreeMap<Bytes, usize> = BTreeMap::new();
    ours().for_each(|result| *sizes.entry(result.case.working_set).or_default() += 1);
    let (usual, _) = sizes.into_iter().max_by_key(|(size, count)| (*count, *size))?;
    let is_way = |result: &&BandwidthRow| is_way(result, way);
    ours()
        .filter(is_way)
        .find(|r| r.case.working_set == usual)
        .or_else(|| ours().filter(is_way).max_by_key(|result| result.case.working_set))
}

fn is_way(row: &BandwidthRow, way: Way) -> bool {
    way.kernel() == Some((row.kernel(), row.store()))
        && row.element() == Element::Double
        && row.load() == LoadKind::Regular
}

/// Curves over cores: where a domain was measured with one core, all, and every doubling between. Two cores make no
/// curve, unless there are no more: then the first of its kind stands for the others.
fn saturation(numa: &Numa, results: &[BandwidthRow]) -> Vec<Saturation> {
    let is_first = |index: usize| {
        let kind = numa.initiators[index].domain;
        numa.initiators[..index].iter().all(|other| other.domain != kind)
    };
    let drawn = numa.initiators.iter().enumerate().filter(|(index, initiator)| match initiator.cores.len() {
        0 | 1 => false,
        2 => is_first(*index),
        _ => true,
    });
    let mut found = Vec::new();
    for (_, initiator) in drawn {
        for (&memory, &node) in numa.memory.iter().flat_map(|memory| numa.nodes.iter().map(move |node| (memory, node)))
        {
            let ways = [Way::Load, Way::Triad];
            let curve = |way: &Way| curve(numa, results, initiator, MemorySpec::on(memory, node), *way);
            found.extend(ways.iter().filter_map(curve));
        }
    }
    found
}

fn curve(
    numa: &Numa,
    results: &[BandwidthRow],
    initiator: &NumaInitiator,
    memory: MemorySpec,
    way: Way,
) -> Option<Saturation> {
    let all = initiator.cores.len();
    let rate = |count: usize| {
        let result = figure(results, &initiator.cores[..count], memory, way)?;
        result.payload_bps.filter(|_| result.quality.is_measured())
    };
    let points: Vec<(usize, Rate)> = (1..=all).filter_map(|count| Some((count, rate(count)?))).collect();
    let steps = (0..).take_while(|k| 1usize << k < all).count() + 1;
    if points.len() < steps {
        return None;
    }
    let best = points.iter().map(|(_, rate)| rate.value()).fold(0.0, f64::max);
    let (cores, rate) = *points.iter().find(|(_, rate)| rate.value() >= SATURATED * best)?;
    let node = memory.node()?;
    let deciding = points.iter().filter(|(count, at)| *count == cores || *count == all || at.value() >= best);
    let limit = match deciding.map(|(_, rate)| rate).any(is_uncertain) {
        true => Limit::Unclear,
        false => limit(numa, initiator, memory.kind, node, way, cores == all, &rate),
    };
    Some(Saturation { initiator: initiator.name.clone(), node, memory: memory.kind, way, points, cores, limit })
}

/// Whether an interval is so wide that the rate may well be on the other side of [`SATURATED`].
fn is_uncertain(rate: &Rate) -> bool {
    (rate.ends()[1] - rate.ends()[0]) / 2.0 > 2.0 * (1.0 - SATURATED) * rate.value()
}

/// A domain whose cores still add is limited by them. Else what more cores get out of the same memory decides.
fn limit(
    numa: &Numa,
    initiator: &NumaInitiator,
    memory: MemoryKind,
    node: u32,
    way: Way,
    is_rising: bool,
    own: &Rate,
) -> Limit {
    if is_rising {
        return Limit::Cores;
    }
    let holds = |other: &&NumaInitiator| {
        other.cores.len() > initiator.cores.len() && initiator.cores.iter().all(|core| other.cores.contains(core))
    };
    let around = numa.initiators.iter().filter(holds);
    let rates = around.filter_map(|other| numa.row(memory, &other.name, node, way, true)?.payload_bps);
    match rates.map(|rate| rate.ends()[0]).reduce(f64::max) {
        Some(low) if low > own.ends()[1] => Limit::Domain,
        Some(_) => Limit::Memory,
        None => Limit::Open,
    }
}

/// Working sets and rates.
type Curve = Vec<(Bytes, Rate)>;

/// Loads over working sets on nodes that have a memory-side cache, or must have one.
fn side_caches(machine: &Machine, numa: &Numa, results: &[BandwidthRow]) -> Vec<SideCache> {
    let mut found = Vec::new();
    for &node in &numa.nodes {
        let (caches, is_inferred) = machine.node(node).map(|node| machine.side_cache_sizes(node)).unwrap_or_default();
        for claimed in caches {
            let mut curves: BTreeMap<(&Vec<u32>, MemorySpec), Curve> = BTreeMap::new();
            for result in
                results.iter().filter(|result| result.case.memory.node() == Some(node) && is_way(result, Way::Load))
            {
                let points = curves.entry((&result.case.cpus, result.case.memory)).or_default();
                points.extend(result.payload_bps.map(|rate| (result.case.working_set, rate)));
            }
            let Some(mut points) = curves.into_values().max_by_key(Vec::len) else { continue };
            points.order_by_key(|point| point.0);
            let (is_seen, gain) = seen(&points, claimed);
            found.push(SideCache { node, claimed, is_inferred, points, is_seen, gain });
        }
    }
    found
}

/// Whether the working sets that fit are all faster than those of at least one and a half times the cache.
fn seen(points: &[(Bytes, Rate)], claimed: Bytes) -> (Option<bool>, Option<f64>) {
    // A direct-mapped cache that is nearly full holds only a part. Working sets are whole pages of each core: a little less than asked.
    let within = points.iter().filter(|(size, _)| size.0 <= claimed.0 / 4 * 3 && size.0 >= claimed.0 / 8);
    let beyond = points.iter().filter(|(size, _)| size.0 >= claimed.0 / 200 * 297);
    let slowest = within.map(|(_, rate)| rate).min_by(|a, b| a.ends()[0].total_cmp(&b.ends()[0]));
    let fastest = beyond.map(|(_, rate)| rate).max_by(|a, b| a.ends()[1].total_cmp(&b.ends()[1]));
    match (slowest, fastest) {
        (Some(within), Some(beyond)) => {
            (Some(within.ends()[0] > beyond.ends()[1]), Some(within.value() / beyond.value()))
        }
        _ => (None, None),
    }
}

fn left_out(record: &Record, numa: &Numa) -> Vec<String> {
    let missing = record.header.machine.nodes_with_memory().filter(|node| !numa.nodes.contains(&node.id));
    let text = |node: &membound_core::machine::nodes::Node| {
        let free = node.free.get().map_or_else(String::new, |free| format!("; {free} were free there"));
        format!("node {} has memory and was not measured{free}", node.id)
    };
    missing.map(text).collect()
}
