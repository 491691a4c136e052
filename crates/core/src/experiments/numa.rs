//! Memory from everywhere: each set of CPUs against each node with memory, and how many cores it takes to saturate one.

use crate::case::{Case, USUAL_MEMORY, steady};
use crate::experiments::frame::{Frame, MEMORY_TO_CACHE, NoTarget, PlanError, over_chase};
use crate::in_order::each_once;
use crate::kernel::StoreKind;
use crate::kernel::chase::{Chase, Order};
use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;
use crate::machine::domains::{Domain, DomainKind};
use crate::machine::nodes::Node;
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::{Bytes, words};

words! {
    /// A way of touching memory that a matrix has a figure for.
    Way, "way" {
        /// Loads.
        Load = "load",
        /// Regular stores.
        Store = "store",
        /// Non-temporal stores.
        StoreNt = "nt store",
        /// Copying with regular stores.
        Copy = "copy",
        /// STREAM's triad with regular stores.
        Triad = "triad",
        /// Loads that wait for the one before, by one core.
        Latency = "latency",
    }
}

impl Way {
    /// The kernel and its stores; `None` for the chase.
    pub fn kernel(self) -> Option<(&'static str, StoreKind)> {
        match self {
            Way::Load => Some(("load", StoreKind::Regular)),
            Way::Store => Some(("store", StoreKind::Regular)),
            Way::StoreNt => Some(("store", StoreKind::Nt)),
            Way::Copy => Some(("copy", StoreKind::Regular)),
            Way::Triad => Some(("triad", StoreKind::Regular)),
            Way::Latency => None,
        }
    }
}

/// The chase behind a latency.
pub const NUMA_CHASE: Order = Order::Random;
/// Share of a node's free memory that all working sets there take together: as of the whole machine's.
const NODE_SHARE: f64 = 0.4;
/// Least working set that stands for memory where caches are small or unknown.
const MEMORY_LEAST: Bytes = Bytes::mib(64);
/// Least bytes of each thread: less is no memory of anyone's.
const THREAD_LEAST: Bytes = Bytes::kib(64);
/// Caches or clusters that are measured in each node: more of them are more of the same.
const DOMAINS_MOST: usize = 8;
/// What an initiator's memory on a node holds at the same time, in working sets: the streams of one core and those of
/// all, each with room for loads and for stores, and a chase.
const SETS: u64 = 5;
/// Working sets around a memory-side cache, in quarters of its size.
const SIDE_CACHE_QUARTERS: [u64; 7] = [1, 2, 3, 4, 6, 8, 16];

/// What `numa` was asked for; an empty list means the usual choice.
#[derive(Debug, Clone, Default)]
pub struct NumaChoice {
    /// Nodes whose memory is measured.
    pub nodes: Vec<u32>,
    /// Memory kinds.
    pub memory: Vec<MemoryKind>,
    /// Bytes of each working set; absent: four times the last-level caches of its CPUs, as far as the node has room.
    pub size: Option<Bytes>,
    /// Only nodes against nodes, in the most telling ways.
    pub is_brief: bool,
}

/// The CPUs of a domain, and the nodes that they are measured against.
struct Initiator {
    domain: Domain,
    /// One CPU a core, in the order in which threads take them.
    cores: Vec<u32>,
    targets: Vec<u32>,
}

/// A node that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    node: u32,
    /// Bytes of a working set, if the user named them.
    wanted: Option<Bytes>,
    /// Most bytes of one working set.
    room: Bytes,
    /// Most bytes of a working set around its memory-side cache.
    side_room: Bytes,
}

/// Initiators x nodes, working sets around memory-side caches, and rising numbers of cores. Nodes that can't be measured
/// come back with the reason.
pub fn numa(frame: &Frame, machine: &Machine, choice: &NumaChoice) -> Result<(Vec<Case>, Vec<NoTarget>), PlanError> {
    let (targets, left_out) = targets(frame, machine, choice)?;
    let initiators = initiators(frame, machine, &targets, choice)?;
    let kinds = if choice.memory.is_empty() { vec![USUAL_MEMORY.kind] } else { choice.memory.clone() };
    let mut cases = Vec::new();
    for &kind in &kinds {
        for initiator in &initiators {
            for target in targets.iter().filter(|target| initiator.targets.contains(&target.node)) {
                cases.extend(cell(frame, machine, initiator, target, kind, choice.is_brief)?);
            }
        }
        if !choice.is_brief {
            cases.extend(scaling(frame, machine, &initiators, &targets, kind));
            cases.extend(side_caches(frame, machine, &initiators, &targets, kind));
        }
    }
    Ok((each_once(cases), left_out))
}

/// Whether there is more than one place to put memory, or to touch it from.
pub fn has_places(machine: &Machine) -> bool {
    machine.nodes_with_memory().count() > 1 || machine.nodes.iter().filter(|node| node.has_cpus()).count() > 1
}

/// The targets, and why others are none.
fn targets(frame: &Frame, machine: &Machine, choice: &NumaChoice) -> Result<(Vec<Target>, Vec<NoTarget>), PlanError> {
    let known = || -> CpuSet { machine.nodes_with_memory().map(|node| node.id).collect() };
    let asked: Vec<u32> = match choice.nodes.is_empty() {
        true => machine.nodes_with_memory().map(|node| node.id).collect(),
        false => choice.nodes.clone(),
    };
    let (mut targets, mut left_out): (Vec<Target>, Vec<NoTarget>) = (Vec::new(), Vec::new());
    for &id in &asked {
        let found = match machine.node(id) {
            None => Err(NoTarget::Unknown { node: id, known: known() }),
            Some(node) if node.total.known() == Some(&Bytes(0)) => Err(NoTarget::Empty { node: id, known: known() }),
            Some(node) => target(frame, machine, node, asked.len(), choice),
        };
        match found {
            Ok(target) if targets.iter().any(|known| known.node == target.node) => {}
            Ok(target) => targets.push(target),
            // What the user named must be there.
            Err(fault) if !choice.nodes.is_empty() => return Err(fault.into()),
            Err(fault) => left_out.push(fault),
        }
    }
    match left_out.first().filter(|_| targets.is_empty()) {
        Some(fault) => Err(fault.clone().into()),
        None => Ok((targets, left_out)),
    }
}

/// A node, and how large working sets there may be, so that those of all initiators fit side by side.
fn target(
    frame: &Frame,
    machine: &Machine,
    node: &Node,
    targets: usize,
    choice: &NumaChoice,
) -> Result<Target, NoTarget> {
    let allowed = machine.limits.allowed_nodes.known().filter(|allowed| !allowed.contains(node.id));
    if let Some(allowed) = allowed {
        return Err(NoTarget::NotAllowed { node: node.id, allowed: allowed.clone() });
    }
    let domains = initiators_of(machine, &usable(frame), choice.is_brief);
    let here: Vec<&Domain> = domains.iter().filter(|domain| is_against(machine, domain, node.id)).collect();
    let threads = here.iter().map(|domain| machine.one_per_core(&domain.cpus).len()).max().unwrap_or(1) as u64;
    let sets = SETS * here.len().max(1) as u64;
    let free = node.free.get().unwrap_or(frame.memory_limit);
    let share = ((free.0 as f64 * NODE_SHARE) as u64).min(frame.memory_limit.0 / targets.max(1) as u64);
    // A memory-side cache is large: most of the share goes to seeing it.
    let for_matrix = if machine.side_cache_sizes(node).0.is_empty() { share } else { share / 4 };
    let (room, least) = (for_matrix / sets, choice.size.unwrap_or(Bytes(THREAD_LEAST.0 * threads)).0);
    if room < least {
        return Err(NoTarget::NoRoom { node: node.id, free, share: Bytes(for_matrix), needed: Bytes(least * sets) });
    }
    Ok(Target { node: node.id, wanted: choice.size, room: Bytes(room), side_room: Bytes(share - for_matrix) })
}

fn usable(frame: &Frame) -> CpuSet {
    frame.placement.first(frame.placement.most()).unwrap_or_default().into_iter().collect()
}

/// Nodes and packages; and, unless in brief, some of the caches and clusters of each node.
fn initiators_of(machine: &Machine, cpus: &CpuSet, is_brief: bool) -> Vec<Domain> {
    let mut counts = std::collections::BTreeMap::new();
    let mut is_one = |domain: &Domain| match domain.kind {
        DomainKind::Node => true,
        _ if is_brief => false,
        DomainKind::Package => true,
        DomainKind::Cache | DomainKind::Cluster => {
            let count = counts.entry((domain.kind, node_of(machine, domain))).or_insert(0);
            *count += 1;
            *count <= DOMAINS_MOST
        }
    };
    let domains = machine.domains(cpus);
    let chosen: Vec<Domain> = domains.iter().filter(|domain| is_one(domain)).cloned().collect();
    // A kernel without nodes for its CPUs still has CPUs.
    if chosen.is_empty() { domains.into_iter().take(1).collect() } else { chosen }
}

fn node_of(machine: &Machine, domain: &Domain) -> Option<u32> {
    domain.cpus.first().and_then(|cpu| machine.cpu(cpu)?.node.get())
}

/// Nodes and packages meet every node. A cache or cluster meets its own node, and those without CPUs that are nearest to
/// that: from elsewhere it is no other than its neighbours.
fn is_against(machine: &Machine, domain: &Domain, target: u32) -> bool {
    match (domain.kind, node_of(machine, domain)) {
        (DomainKind::Node | DomainKind::Package, _) | (_, None) => true,
        (_, Some(own)) => own == target || machine.nearest_with_cpus(target).contains(&own),
    }
}

fn initiators(
    frame: &Frame,
    machine: &Machine,
    targets: &[Target],
    choice: &NumaChoice,
) -> Result<Vec<Initiator>, PlanError> {
    let initiator = |domain: Domain| Initiator {
        cores: machine.one_per_core(&domain.cpus),
        targets: targets.iter().map(|target| target.node).filter(|&node| is_against(machine, &domain, node)).collect(),
        domain,
    };
    let domains = initiators_of(machine, &usable(frame), choice.is_brief);
    let found: Vec<Initiator> = domains.into_iter().map(initiator).filter(|one| !one.cores.is_empty()).collect();
    if found.is_empty() { Err(crate::placement::PlacementError::NoThread.into()) } else { Ok(found) }
}

/// All ways of an initiator and a node: by one core and by all.
fn cell(
    frame: &Frame,
    machine: &Machine,
    initiator: &Initiator,
    target: &Target,
    kind: MemoryKind,
    is_brief: bool,
) -> Result<Vec<Case>, PlanError> {
    let ways: &[Way] = if is_brief { &[Way::Load, Way::StoreNt, Way::Triad, Way::Latency] } else { Way::ALL };
    let (one, all) = (&initiator.cores[..1], &initiator.cores[..]);
    let mut cases = Vec::new();
    for &way in ways {
        match way.kernel() {
            Some((kernel, store)) => {
                cases.extend([one, all].map(|cores| kernel_case(frame, machine, cores, target, kind, kernel, store)));
            }
            None => {
                let chase = Chase::of(NUMA_CHASE);
                let (memory, size) = (MemorySpec::on(kind, target.node), working_set(machine, one, target));
                cases.push(Case { cpus: one.to_vec(), ..over_chase(frame, chase, memory, size)? });
            }
        }
    }
    Ok(cases)
}

fn kernel_case(
    frame: &Frame,
    machine: &Machine,
    cores: &[u32],
    target: &Target,
    kind: MemoryKind,
    kernel: &str,
    store: StoreKind,
) -> Case {
    let memory = MemorySpec::on(kind, target.node);
    steady(kernel, frame.widest(), store, memory, cores.to_vec(), working_set(machine, cores, target))
}

/// More than the caches of these cores hold, as far as the node has room.
fn working_set(machine: &Machine, cores: &[u32], target: &Target) -> Bytes {
    let usual = Bytes(caches_of(machine, cores).0.saturating_mul(MEMORY_TO_CACHE).max(MEMORY_LEAST.0));
    let wanted = target.wanted.unwrap_or(usual);
    let unit = 4096 * cores.len().max(1) as u64;
    Bytes((wanted.min(target.room).0 / unit * unit).max(unit))
}

/// Last-level cache that these CPUs may have together; none where none is claimed.
pub fn caches_of(machine: &Machine, cores: &[u32]) -> Bytes {
    machine.last_level_most(cores).unwrap_or_default()
}

/// Rising numbers of cores of the first domain of each kind, against the nearest memory.
fn scaling(
    frame: &Frame,
    machine: &Machine,
    initiators: &[Initiator],
    targets: &[Target],
    kind: MemoryKind,
) -> Vec<Case> {
    let first = |kind: &DomainKind| {
        initiators.iter().find(|initiator| initiator.domain.kind == *kind && initiator.cores.len() > 1)
    };
    let mut cases = Vec::new();
    for initiator in DomainKind::ALL.iter().filter_map(first) {
        let distance = |target: &&Target| {
            let from = node_of(machine, &initiator.domain);
            from.and_then(|from| machine.distance(from, target.node)).unwrap_or(u32::MAX)
        };
        let reached = targets.iter().filter(|target| initiator.targets.contains(&target.node));
        let Some(target) = reached.min_by_key(distance) else { continue };
        for count in counts(initiator.cores.len()) {
            for way in [Way::Load, Way::Triad] {
                let Some((kernel, store)) = way.kernel() else { continue };
                let cores = &initiator.cores[..count];
                cases.push(kernel_case(frame, machine, cores, target, kind, kernel, store));
            }
        }
    }
    cases
}

/// 1, 2, 4 ... and all.
fn counts(cores: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..).map(|k| 1usize << k).take_while(|n| *n < cores).collect();
    counts.push(cores);
    counts
}

/// Loads by all cores nearest to a node with a memory-side cache, over working sets around that cache's size: as many as
/// the node's share of memory allows.
fn side_caches(
    frame: &Frame,
    machine: &Machine,
    initiators: &[Initiator],
    targets: &[Target],
    kind: MemoryKind,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for target in targets {
        let near = machine.nearest_with_cpus(target.node);
        let is_near =
            |initiator: &&Initiator| initiator.domain.kind == DomainKind::Node && near.contains(&initiator.domain.id);
        let Some(initiator) = initiators.iter().find(is_near) else { continue };
        let caches = machine.node(target.node).map(|node| machine.side_cache_sizes(node).0).unwrap_or_default();
        for cache in caches {
            let unit = 4096 * initiator.cores.len() as u64;
            let sizes = SIDE_CACHE_QUARTERS.map(|quarters| cache.0 / 4 * quarters / unit * unit);
            for size in sizes.into_iter().filter(|size| (unit..=target.side_room.0).contains(size)) {
                let memory = MemorySpec::on(kind, target.node);
                cases.push(steady(
                    "load",
                    frame.widest(),
                    StoreKind::Regular,
                    memory,
                    initiator.cores.clone(),
                    Bytes(size),
                ));
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_double_and_end_with_all() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }
}
