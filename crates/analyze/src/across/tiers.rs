//! Nodes as tiers: what records say of how fast some CPUs load from each node and store to it.

use std::collections::BTreeSet;

use crate::across::advisor::{Speed, Tier};
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::report::Report;
use membound_core::case::Protocol;
use membound_core::kernel::StoreKind;
use membound_core::machine::cpuset::CpuSet;
use membound_core::units::Bytes;

/// What records tell of the nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Tiers {
    /// One a node, ascending.
    pub tiers: Vec<Tier>,
    /// The CPUs whose rates they are.
    pub cpus: Vec<u32>,
    /// The node of the first CPU, or the first node that has figures.
    pub default: u32,
}

/// Why records tell too little; the text names what would tell more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTiers {
    /// No loads from a known node.
    #[error(
        "no record tells how fast {whose} load from a node's memory (working sets in a cache do not); measure with \
         `membound numa --record FILE`, or give the nodes by hand with --tier"
    )]
    NoLoads {
        /// Whose loads.
        whose: String,
    },
    /// No stores of the kind.
    #[error(
        "no record tells how fast CPUs {cpus} write to node {node} with {store} stores; measure it with `membound \
         bandwidth --kernel load,store --store {store} --node {node} --cpus {cpus} --record FILE`, or choose another --store"
    )]
    NoStores {
        /// The CPUs.
        cpus: CpuSet,
        /// The node.
        node: u32,
        /// The store kind.
        store: StoreKind,
    },
    /// Free memory unknown.
    #[error("no record tells how much memory was free on node {node}; give the nodes by hand with --tier")]
    NoFree {
        /// The node.
        node: u32,
    },
}

/// The tiers that reports tell of, as seen by one set of CPUs: by `cpus`, or by those that reach the most nodes (of these,
/// the most CPUs; of these, the first). Figures are those of the largest working set.
///
/// # Errors
/// If no such CPUs loaded from a node, or a node lacks the stores or its free memory.
pub fn tiers(reports: &[Report], store: StoreKind, cpus: Option<&CpuSet>) -> Result<Tiers, NoTiers> {
    let rows: Vec<&BandwidthRow> = reports
        .iter()
        .flat_map(|report| report.rows.iter().chain(report.numa.iter().flat_map(|numa| &numa.kernels)))
        .filter(|row| tells(row))
        .collect();
    let Some(cpus) = initiator(&rows, cpus) else {
        let whose = cpus.map_or_else(|| "any CPUs".into(), |cpus| format!("CPUs {cpus}"));
        return Err(NoTiers::NoLoads { whose });
    };
    let tier = |node: u32| -> Result<Tier, NoTiers> {
        let set = || cpus.iter().copied().collect();
        let speed = |is_ours: &dyn Fn(&BandwidthRow) -> bool| {
            let rate = |kernel: &str, store| rate(&rows, node, kernel, store, is_ours);
            rate("load", StoreKind::Regular).map(|load_bps| (load_bps, rate("store", store)))
        };
        let (load_bps, store_bps) =
            speed(&|row| row.case.cpus == cpus).ok_or_else(|| NoTiers::NoLoads { whose: format!("CPUs {}", set()) })?;
        let store_bps = store_bps.ok_or_else(|| NoTiers::NoStores { cpus: set(), node, store })?;
        let one = speed(&|row| row.threads() == 1 && row.case.cpus.iter().all(|cpu| cpus.contains(cpu)));
        let one = one.and_then(|(load_bps, store_bps)| Some(Speed { load_bps, store_bps: store_bps? }));
        let free = free(reports, node).ok_or(NoTiers::NoFree { node })?;
        Ok(Tier { node, free, all: Speed { load_bps, store_bps }, one })
    };
    let nodes: BTreeSet<u32> =
        rows.iter().filter(|row| row.kernel() == "load" && row.case.cpus == cpus).filter_map(|row| row.node).collect();
    let tiers = nodes.iter().map(|&node| tier(node)).collect::<Result<Vec<Tier>, NoTiers>>()?;
    let first = *cpus.first().unwrap_or(&0);
    let own = reports.iter().find_map(|report| report.machine.cpu(first)?.node.get()).filter(|n| nodes.contains(n));
    let default = own.or(nodes.first().copied()).unwrap_or_default();
    Ok(Tiers { tiers, cpus, default })
}

/// Whether a row is a plain figure of one node's memory.
fn tells(row: &BandwidthRow) -> bool {
    row.payload_bps.is_some()
        && row.quality.is_measured()
        && row.node.is_some()
        && row.case.streams.is_empty()
        && row.case.protocol == Protocol::Steady
        && !row.case.memory.kind.is_memory_type()
        && row.level.as_deref().is_none_or(|level| level == "memory")
        && ["load", "store"].contains(&row.kernel())
}

fn initiator(rows: &[&BandwidthRow], asked: Option<&CpuSet>) -> Option<Vec<u32>> {
    let loads = || rows.iter().filter(|row| row.kernel() == "load");
    let candidates: BTreeSet<&Vec<u32>> = loads().map(|row| &row.case.cpus).collect();
    let is_asked = |cpus: &&&Vec<u32>| asked.is_none_or(|asked| cpus.iter().copied().collect::<CpuSet>() == *asked);
    let nodes =
        |cpus: &Vec<u32>| loads().filter(|row| row.case.cpus == *cpus).map(|row| row.node).collect::<BTreeSet<_>>();
    let key = |cpus: &&&Vec<u32>| (nodes(cpus).len(), cpus.len(), std::cmp::Reverse((**cpus).clone()));
    candidates.iter().filter(is_asked).max_by_key(key).map(|cpus| (*cpus).clone())
}

/// The fastest way at the largest working set: [median, low, high].
fn rate(
    rows: &[&BandwidthRow],
    node: u32,
    kernel: &str,
    store: StoreKind,
    is_ours: &dyn Fn(&BandwidthRow) -> bool,
) -> Option<[f64; 3]> {
    let is_wanted =
        |row: &&&BandwidthRow| row.node == Some(node) && row.kernel() == kernel && row.store() == store && is_ours(row);
    let rows = rows.iter().filter(is_wanted).filter_map(|row| Some((row.case.working_set, row.payload_bps?)));
    let (_, rate) = rows.max_by(|a, b| a.0.cmp(&b.0).then(a.1.value().total_cmp(&b.1.value())))?;
    Some(rate.interval())
}

/// Free memory of a node when it was measured.
fn free(reports: &[Report], node: u32) -> Option<Bytes> {
    let before = |report: &Report| report.before.node_free.iter().find(|(id, _)| *id == node).map(|(_, free)| *free);
    let read = |report: &Report| report.machine.nodes.iter().find(|n| n.id == node)?.free.get();
    reports.iter().find_map(|report| before(report).or_else(|| read(report)))
}
