//! Memory from everywhere: the matrix of initiators and nodes, how many cores saturate a domain, what memory-side caches
//! do to the curve.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::latency::row_of;
use super::nodes::{self, MeasuredNode};
use super::quality::{Quality, rated};
use super::rows::{Result as KernelResult, visits};
use super::stores::ratio_text;
use super::{AnyRow, Cost, LatencyRow, Rate, Report, Row, each};
use crate::kernel::chase::Chase;
use crate::kernel::{Element, LoadKind};
use crate::machine::{CpuSet, DomainKind, Machine};
use crate::memory::{MemoryKind, MemorySpec};
use crate::plan::{Case, NUMA_CHASE, Protocol, Way, Work, caches_of};
use crate::record::Record;
use crate::units::{Bytes, BytesPerSecond, Nanoseconds, significant, words};

/// Share of a domain's best rate at which it counts as saturated.
const SATURATED: f64 = 0.95;
/// Less than this apart, two directions are alike, however narrow their intervals.
const ASYMMETRY: f64 = 1.05;
/// A working set of so many last-level caches lies in memory.
const MEMORY_TO_CACHE: u64 = 4;

/// A figure of the matrix: one tidy row an initiator, node, way and number of cores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumaRow {
    /// `numa`.
    pub metric: String,
    /// Where memory was touched from: `node 0`, `package 1`, `cache of 0-3`, `cluster of 4-5`, or `CPUs 0-1`.
    pub initiator: String,
    /// All hardware threads of its cores.
    pub initiator_cpus: CpuSet,
    /// The node that the memory was on.
    pub node: u32,
    /// What was done.
    pub way: Way,
    /// Cores used: one thread each.
    pub cores: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// Bytes touched by one repetition.
    pub working_set_bytes: Bytes,
    /// `B/s`, or `ns` for a latency.
    pub unit: String,
    /// What the program reads and writes. Absent for a latency, and where nothing was measured.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Nanoseconds of a load that waits for the one before. Absent for bandwidths, and where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
}

rated!(NumaRow, |row| format!("{}, {} from node {}", row.initiator, row.way, row.node));

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
    /// What the firmware says that it holds.
    pub claimed: Bytes,
    /// Working sets and the rates of loads by all cores, sizes rising.
    pub points: Vec<(Bytes, Rate)>,
    /// Whether working sets within it are faster than those beyond, intervals apart; absent where none lies beyond.
    pub is_seen: Option<bool>,
    /// How much faster: the slowest within against the fastest beyond.
    pub gain: Option<f64>,
}

/// Memory from everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Numa {
    /// Where memory was touched from: nodes, packages, caches, clusters.
    pub initiators: Vec<NumaInitiator>,
    /// Nodes whose memory was touched, ascending.
    pub nodes: Vec<u32>,
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
    pub kernels: Vec<Row>,
    /// The chases behind them, alike.
    pub chases: Vec<LatencyRow>,
}

impl Numa {
    /// All rows, of all metrics.
    pub fn any_rows(&self) -> impl Iterator<Item = AnyRow> {
        let own = each(&self.kernels, AnyRow::Bandwidth).chain(each(&self.chases, AnyRow::Latency));
        own.chain(each(&self.rows, AnyRow::Numa))
    }

    /// The figure of an initiator and node: by one core, or by all.
    pub fn row(&self, memory: MemoryKind, initiator: &str, node: u32, way: Way, is_all: bool) -> Option<&NumaRow> {
        let mut rows = self
            .rows
            .iter()
            .filter(|row| (row.memory, row.initiator.as_str(), row.node, row.way) == (memory, initiator, node, way));
        // Fewer cores come first; where there is only one, it is all.
        if is_all && way != Way::Latency {
            rows.next_back()
        } else {
            rows.next().filter(|row| is_all || row.cores == 1)
        }
    }
}

/// The node that a memory is bound to.
fn bound(memory: MemorySpec) -> Option<u32> {
    memory.node()
}

fn is_node_kernel(case: &Case) -> bool {
    case.variant().is_some()
        && bound(case.memory).is_some()
        && case.streams.is_empty()
        && case.misaligned_bytes == 0
        && case.protocol == Protocol::Steady
}

fn is_node_chase(case: &Case) -> bool {
    case.work == Work::Chase(Chase::of(NUMA_CHASE)) && bound(case.memory).is_some() && case.protocol == Protocol::Steady
}

fn has_matrix(record: &Record) -> bool {
    let has = |is_one: fn(&Case) -> bool| record.measurements.iter().any(|visit| is_one(&visit.case));
    has(is_node_chase) && has(is_node_kernel)
}

/// Whether a chase belongs to the matrix of its record, and so to no ladder.
pub(super) fn is_in_matrix(record: &Record) -> impl Fn(&Case) -> bool + use<> {
    let has_matrix = has_matrix(record);
    move |case| has_matrix && is_node_chase(case)
}

/// Parts the kernels on nodes from the others, where a record has a matrix: kernels and chases bound to nodes. They are
/// not to stand for the machine's levels and scaling.
pub(super) fn part(results: Vec<KernelResult>, record: &Record) -> (Vec<KernelResult>, Vec<KernelResult>) {
    let has_matrix = has_matrix(record);
    results.into_iter().partition(|result| !(has_matrix && is_node_kernel(&result.case)))
}

/// The matrix and what follows from it; `None` where the record has none. Tells rows that surely lie in memory so.
pub(super) fn numa(record: &Record, mut results: Vec<KernelResult>) -> Option<Numa> {
    if results.is_empty() {
        return None;
    }
    let machine = &record.header.machine;
    for result in results.iter_mut().filter(|result| is_in_memory(machine, &result.case)) {
        result.row.level = Some("memory".into());
    }
    let chases: Vec<(Case, LatencyRow)> = visits(record)
        .iter()
        .filter(|visits| is_node_chase(&visits[0].case))
        .filter_map(|visits| row_of(visits, record))
        .collect();
    let initiators = initiators(machine, &results, &chases);
    let cases = || results.iter().map(|result| &result.case).chain(chases.iter().map(|(case, _)| case));
    let nodes: BTreeSet<u32> = cases().filter_map(|case| bound(case.memory)).collect();
    let memory: BTreeSet<MemoryKind> = cases().map(|case| case.memory.kind).collect();
    let mut numa = Numa {
        initiators,
        nodes: nodes.into_iter().collect(),
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
    numa.kinds = nodes::measured(machine, &numa);
    numa.left_out = left_out(record, &numa);
    numa.kernels = results.into_iter().map(|result| result.row).collect();
    numa.chases = chases.into_iter().map(|(_, row)| row).collect();
    Some(numa)
}

fn is_in_memory(machine: &Machine, case: &Case) -> bool {
    let caches = caches_of(machine, &case.cpus);
    caches.0 > 0 && case.working_set.0 >= MEMORY_TO_CACHE * caches.0
}

/// Each list of CPUs that a domain of the machine is, or that no longer list begins with: the others are steps of a
/// scaling curve.
fn initiators(machine: &Machine, results: &[KernelResult], chases: &[(Case, LatencyRow)]) -> Vec<NumaInitiator> {
    let kernels = results.iter().map(|result| &result.case.cpus);
    let lists: BTreeSet<&Vec<u32>> = kernels.chain(chases.iter().map(|(case, _)| &case.cpus)).collect();
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
    found.sort_by_key(|(index, initiator)| (index.is_none(), *index, initiator.cores.clone()));
    found.into_iter().map(|(_, initiator)| initiator).collect()
}

/// The figures of an initiator and a node.
fn cell(
    machine: &Machine,
    initiator: &NumaInitiator,
    memory: MemorySpec,
    results: &[KernelResult],
    chases: &[(Case, LatencyRow)],
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
            let result = figure(results, cores, memory, way).map(|result| bandwidth_row(initiator, way, result));
            let chase = chases.iter().filter(|(case, _)| case.cpus == cores && case.memory == memory);
            let chase = chase.max_by_key(|(case, _)| case.working_set).filter(|_| way == Way::Latency);
            let row = result.or_else(|| chase.map(|(case, row)| latency_row(initiator, case, row)));
            rows.extend(row.map(|mut row| {
                let caches = caches_of(machine, &row.cpus);
                row.quality.flag([("may-be-cached", row.working_set_bytes.0 < MEMORY_TO_CACHE * caches.0)]);
                row
            }));
        }
    }
    rows
}

/// The result for these cores: of several working sets that which most ways have, of those the largest.
fn figure<'a>(results: &'a [KernelResult], cores: &[u32], memory: MemorySpec, way: Way) -> Option<&'a KernelResult> {
    let ours = || results.iter().filter(|r| r.case.cpus == cores && r.case.memory == memory);
    let mut sizes: BTreeMap<Bytes, usize> = BTreeMap::new();
    ours().for_each(|result| *sizes.entry(result.case.working_set).or_default() += 1);
    let (usual, _) = sizes.into_iter().max_by_key(|(size, count)| (*count, *size))?;
    let is_way = |result: &&KernelResult| is_way(result, way);
    ours()
        .filter(is_way)
        .find(|r| r.case.working_set == usual)
        .or_else(|| ours().filter(is_way).max_by_key(|result| result.case.working_set))
}

fn is_way(result: &KernelResult, way: Way) -> bool {
    let row = &result.row;
    way.kernel() == Some((row.kernel.as_str(), row.store))
        && row.element == Element::Double
        && row.load == LoadKind::Regular
}

fn bandwidth_row(initiator: &NumaInitiator, way: Way, result: &KernelResult) -> NumaRow {
    let row = &result.row;
    NumaRow {
        metric: "numa".into(),
        initiator: initiator.name.clone(),
        initiator_cpus: initiator.cpus.clone(),
        node: bound(result.case.memory).unwrap_or_default(),
        way,
        cores: result.case.threads(),
        cpus: result.case.cpus.clone(),
        memory: result.case.memory.kind,
        working_set_bytes: result.case.working_set,
        unit: "B/s".into(),
        payload_bps: row.payload_bps.filter(|_| row.quality.is_measured()),
        latency_ns: None,
        quality: row.quality.clone(),
    }
}

fn latency_row(initiator: &NumaInitiator, case: &Case, row: &LatencyRow) -> NumaRow {
    NumaRow {
        metric: "numa".into(),
        initiator: initiator.name.clone(),
        initiator_cpus: initiator.cpus.clone(),
        node: bound(case.memory).unwrap_or_default(),
        way: Way::Latency,
        cores: 1,
        cpus: case.cpus.clone(),
        memory: case.memory.kind,
        working_set_bytes: case.working_set,
        unit: "ns".into(),
        payload_bps: None,
        latency_ns: row.latency_ns.filter(|_| row.quality.is_measured()),
        quality: row.quality.clone(),
    }
}

/// Curves over cores: where a domain was measured with one core, all, and every doubling between. Two cores make no
/// curve, unless there are no more: then the first of its kind stands for the others.
fn saturation(numa: &Numa, results: &[KernelResult]) -> Vec<Saturation> {
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
    results: &[KernelResult],
    initiator: &NumaInitiator,
    memory: MemorySpec,
    way: Way,
) -> Option<Saturation> {
    let all = initiator.cores.len();
    let rate = |count: usize| {
        let result = figure(results, &initiator.cores[..count], memory, way)?;
        result.row.payload_bps.filter(|_| result.row.quality.is_measured())
    };
    let points: Vec<(usize, Rate)> = (1..=all).filter_map(|count| Some((count, rate(count)?))).collect();
    let steps = (0..).take_while(|k| 1usize << k < all).count() + 1;
    if points.len() < steps {
        return None;
    }
    let best = points.iter().map(|(_, rate)| rate.median).fold(0.0, f64::max);
    let (cores, rate) = *points.iter().find(|(_, rate)| rate.median >= SATURATED * best)?;
    let node = bound(memory)?;
    let deciding = points.iter().filter(|(count, at)| *count == cores || *count == all || at.median >= best);
    let limit = match deciding.map(|(_, rate)| rate).any(is_uncertain) {
        true => Limit::Unclear,
        false => limit(numa, initiator, memory.kind, node, way, cores == all, &rate),
    };
    Some(Saturation { initiator: initiator.name.clone(), node, memory: memory.kind, way, points, cores, limit })
}

/// Whether an interval is so wide that the rate may well be on the other side of [`SATURATED`].
fn is_uncertain(rate: &Rate) -> bool {
    (rate.ci95[1] - rate.ci95[0]) / 2.0 > 2.0 * (1.0 - SATURATED) * rate.median
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
    match rates.map(|rate| rate.ci95[0]).reduce(f64::max) {
        Some(low) if low > own.ci95[1] => Limit::Domain,
        Some(_) => Limit::Memory,
        None => Limit::Open,
    }
}

/// Working sets and rates.
type Curve = Vec<(Bytes, Rate)>;

/// Loads over working sets on nodes that have a memory-side cache.
fn side_caches(machine: &Machine, numa: &Numa, results: &[KernelResult]) -> Vec<SideCache> {
    let mut found = Vec::new();
    for &node in &numa.nodes {
        let caches = machine.node(node).map(|node| &node.memory_side_caches[..]).unwrap_or_default();
        for claimed in caches.iter().filter_map(|cache| cache.size.get()) {
            let mut curves: BTreeMap<(&Vec<u32>, MemorySpec), Curve> = BTreeMap::new();
            for result in
                results.iter().filter(|result| bound(result.case.memory) == Some(node) && is_way(result, Way::Load))
            {
                let points = curves.entry((&result.case.cpus, result.case.memory)).or_default();
                points.extend(result.row.payload_bps.map(|rate| (result.case.working_set, rate)));
            }
            let Some(mut points) = curves.into_values().max_by_key(Vec::len) else { continue };
            points.sort_by_key(|point| point.0);
            let (is_seen, gain) = seen(&points, claimed);
            found.push(SideCache { node, claimed, points, is_seen, gain });
        }
    }
    found
}

/// Whether the working sets that fit are all faster than those of at least one and a half times the cache.
fn seen(points: &[(Bytes, Rate)], claimed: Bytes) -> (Option<bool>, Option<f64>) {
    // A direct-mapped cache that is nearly full holds only a part.
    let within = points.iter().filter(|(size, _)| size.0 <= claimed.0 / 4 * 3 && size.0 >= claimed.0 / 8);
    let beyond = points.iter().filter(|(size, _)| size.0 >= claimed.0 / 2 * 3);
    let slowest = within.map(|(_, rate)| rate).min_by(|a, b| a.ci95[0].total_cmp(&b.ci95[0]));
    let fastest = beyond.map(|(_, rate)| rate).max_by(|a, b| a.ci95[1].total_cmp(&b.ci95[1]));
    match (slowest, fastest) {
        (Some(within), Some(beyond)) => (Some(within.ci95[0] > beyond.ci95[1]), Some(within.median / beyond.median)),
        _ => (None, None),
    }
}

fn left_out(record: &Record, numa: &Numa) -> Vec<String> {
    let missing = record.header.machine.nodes_with_memory().filter(|node| !numa.nodes.contains(&node.id));
    let text = |node: &crate::machine::Node| {
        let free = node.free.get().map_or_else(String::new, |free| format!("; {free} were free there"));
        format!("node {} has memory and was not measured{free}", node.id)
    };
    missing.map(text).collect()
}

/// a against b, each with its interval: [ratio, low, high].
pub(super) fn rate_ratio(a: &Rate, b: &Rate) -> [f64; 3] {
    [a.median / b.median, a.ci95[0] / b.ci95[1], a.ci95[1] / b.ci95[0]]
}

/// The same of latencies.
pub(super) fn cost_ratio(a: &Cost, b: &Cost) -> [f64; 3] {
    [a.median / b.median, a.ci95[0] / b.ci95[1], a.ci95[1] / b.ci95[0]]
}

/// What it comes to, in words: what differs first.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let Some(numa) = &report.numa else { return Vec::new() };
    let Some(&memory) = numa.memory.first() else { return Vec::new() };
    let mut all = nodes::sentences(numa);
    all.extend(places(numa, memory, &report.machine));
    all.extend(asymmetries(numa, memory));
    all.extend(saturation_sentence(numa));
    all.extend(numa.side_caches.iter().map(side_cache_sentence));
    all.extend(numa.modes.iter().cloned());
    all.extend(nodes::contradictions(numa));
    all
}

/// One place, or what it costs to be in another.
fn places(numa: &Numa, memory: MemoryKind, machine: &Machine) -> Option<String> {
    let is_only = |numa: &Numa| numa.nodes.len() == 1 && machine.nodes_with_memory().count() == 1;
    let nodes: Vec<&NumaInitiator> = numa.initiators.iter().filter(|i| i.domain == Some(DomainKind::Node)).collect();
    if is_only(numa) && nodes.len() < 2 {
        let initiator = numa.initiators.first()?;
        let rate = |is_all| numa.row(memory, &initiator.name, numa.nodes[0], Way::Load, is_all)?.payload_bps;
        let cores = initiator.cores.len();
        let mut text = "One node: nothing to place.".to_string();
        if let Some(all) = rate(true) {
            let plural = if cores == 1 { "core loads" } else { "cores load" };
            text += &format!(" Its {cores} {plural} {}", BytesPerSecond(all.median));
            text += &rate(false)
                .filter(|_| cores > 1)
                .map_or_else(String::new, |one| format!(", one {}", BytesPerSecond(one.median)));
            let latency = numa.row(memory, &initiator.name, numa.nodes[0], Way::Latency, false)?.latency_ns;
            text += &latency
                .map_or_else(String::new, |cost| format!("; a load that waits takes {}", Nanoseconds(cost.median)));
            text.push('.');
        }
        return Some(text);
    }
    let of_pair = |from: &NumaInitiator, to: u32| {
        let own = from.node.filter(|own| *own != to)?;
        let figure = |node, way, is_all| numa.row(memory, &from.name, node, way, is_all);
        let rate = |node| figure(node, Way::Load, true)?.payload_bps;
        let cost = |node| figure(node, Way::Latency, false)?.latency_ns;
        let bandwidth = rate(to)?.median / rate(own)?.median;
        Some((bandwidth, cost(to).zip(cost(own)).map(|(to, own)| to.median / own.median)))
    };
    let remote = |to: &&u32| machine.node(**to).is_some_and(|node| node.has_cpus());
    let pairs = nodes.iter().flat_map(|from| numa.nodes.iter().filter(remote).filter_map(|&to| of_pair(from, to)));
    let (rates, costs): (Vec<f64>, Vec<Option<f64>>) = pairs.unzip();
    let bandwidth = range(&rates)?;
    let latency = range(&costs.into_iter().flatten().collect::<Vec<_>>());
    let latency = latency.map_or_else(String::new, |range| format!(" at {range} x its latency"));
    Some(format!("From a node's cores to the memory of another: {bandwidth} x the load bandwidth of the own{latency}."))
}

/// `0.55 to 0.61`
fn range(values: &[f64]) -> Option<String> {
    let least = significant(values.iter().copied().reduce(f64::min)?);
    let most = significant(values.iter().copied().reduce(f64::max)?);
    Some(if least == most { least } else { format!("{least} to {most}") })
}

/// Two nodes that do not treat each other alike, or whose own memory differs: the three widest differences.
fn asymmetries(numa: &Numa, memory: MemoryKind) -> Option<String> {
    let nodes: Vec<(&NumaInitiator, u32)> = numa
        .initiators
        .iter()
        .filter(|initiator| initiator.domain == Some(DomainKind::Node))
        .filter_map(|initiator| Some((initiator, initiator.node.filter(|node| numa.nodes.contains(node))?)))
        .collect();
    let mut found: Vec<(f64, String)> = Vec::new();
    for (index, (a, a_node)) in nodes.iter().enumerate() {
        for (b, b_node) in nodes[..index].iter().filter(|(b, _)| b.cores.len() == a.cores.len()) {
            for (from, to) in [([b, a], [*a_node, *b_node]), ([b, a], [*b_node, *a_node])] {
                found.extend(asymmetry(numa, memory, from.map(|i| *i), to));
            }
        }
    }
    found.sort_by(|x, y| y.0.total_cmp(&x.0));
    let more = if found.len() > 3 { format!("; {} more", found.len() - 3) } else { String::new() };
    let parts: Vec<String> = found.into_iter().take(3).map(|(_, text)| text).collect();
    (!parts.is_empty()).then(|| format!("Not symmetric, intervals apart: {}{more}.", parts.join("; ")))
}

fn asymmetry(numa: &Numa, memory: MemoryKind, from: [&NumaInitiator; 2], to: [u32; 2]) -> Option<(f64, String)> {
    let rows = [0, 1].map(|k| numa.row(memory, &from[k].name, to[k], Way::Load, true).and_then(|row| row.payload_bps));
    let [Some(a), Some(b)] = rows else { return None };
    let factor = (a.median / b.median).max(b.median / a.median);
    let is_apart = a.ci95[0] > b.ci95[1] || b.ci95[0] > a.ci95[1];
    let part =
        |k: usize, rate: Rate| format!("{} loads {} from node {}", from[k].name, BytesPerSecond(rate.median), to[k]);
    (is_apart && factor >= ASYMMETRY).then(|| (factor, format!("{}, {}", part(0, a), part(1, b))))
}

/// Where cores stop adding, loads only: the triad is in the table.
fn saturation_sentence(numa: &Numa) -> Option<String> {
    // In the memory beside it, the first domain of each kind: the others are in the table.
    let mut told: Vec<DomainKind> = Vec::new();
    let is_told = |curve: &&Saturation| {
        let initiator = numa.initiators.iter().find(|initiator| initiator.name == curve.initiator);
        let is_own = initiator.is_some_and(|initiator| initiator.node.is_none_or(|own| own == curve.node));
        let kind = initiator.and_then(|initiator| initiator.domain);
        let is_new = kind.is_some_and(|kind| !told.contains(&kind));
        let is_told = curve.way == Way::Load && is_own && is_new;
        told.extend(kind.filter(|_| is_told));
        is_told
    };
    let loads = numa.saturation.iter().filter(is_told);
    let part = |curve: &Saturation| {
        let (all, _) = *curve.points.last()?;
        let best = curve.points.iter().map(|(_, rate)| rate.median).fold(0.0, f64::max);
        let Saturation { initiator, node, cores, limit, .. } = curve;
        let plural = if *cores == 1 { "core loads" } else { "cores load" };
        Some(match limit {
            Limit::Unclear => return None,
            Limit::Cores => {
                format!("all {all} cores of {initiator} are needed for its {} from node {node}", BytesPerSecond(best))
            }
            limit => format!(
                "{cores} of {all} {plural} 95 % of what {initiator} can from node {node} ({}): the limit is {limit}",
                BytesPerSecond(best)
            ),
        })
    };
    let parts: Vec<String> = loads.filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("Cores and bandwidth: {}.", parts.join("; ")))
}

fn side_cache_sentence(cache: &SideCache) -> String {
    let SideCache { node, claimed, points, is_seen, gain } = cache;
    let what = format!("The memory-side cache of node {node} ({claimed})");
    let gain = gain.map_or_else(String::new, significant);
    match is_seen {
        Some(true) => format!("{what} shows: loads within it are {gain} x as fast as beyond it."),
        Some(false) => {
            format!("{what} does not show: loads within it are {gain} x as fast as beyond it, intervals overlapping.")
        }
        None => {
            let largest = points.last().map_or(Bytes(0), |point| point.0);
            format!("{what} can't show: the largest working set that fits the share of memory was {largest}.")
        }
    }
}

/// Ratios with their intervals, for the sentences of `nodes.rs`.
pub(super) fn ratio_words(ratio: [f64; 3]) -> String {
    ratio_text(ratio)
}
