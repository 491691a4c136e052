//! Rows of latencies: a chase each.

use schemars::JsonSchema;
use serde::Serialize;

use crate::rate::Cost;
use crate::row::{Metric, Row};
use membound_core::case::{Case, Protocol, Work};
use membound_core::experiments::numa::NUMA_CHASE;
use membound_core::kernel::chase::{Chase, Order};
use membound_core::memory::policy::Policy;
use membound_core::memory::{MemoryKind, Obtained};
use membound_core::record::{Measured, Record};
use membound_core::units::{Bytes, LINE};

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

    fn kind(row: &LatencyRow) -> Option<String> {
        Some(row.case.memory.kind.to_string())
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
    pub(super) fn footprint(&self) -> u64 {
        self.places() as u64 * LINE.min(self.chase().stride_bytes.into())
    }

    pub(super) fn places(&self) -> usize {
        self.chase().places(self.case.working_set)
    }

    /// Whether it is a single chain, in the usual state of the caches, and has a figure.
    pub(super) fn is_plain(&self) -> bool {
        self.chase().chains == 1 && self.case.protocol == Protocol::Steady && self.figure().is_some()
    }

    /// Nanoseconds, where they hold.
    pub(super) fn cost(&self) -> Option<Cost> {
        self.latency_ns.filter(|_| self.quality.is_measured())
    }

    /// The same as [value, low, high].
    pub(crate) fn figure(&self) -> Option<[f64; 3]> {
        self.cost().map(Cost::interval)
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

/// Nanoseconds from one load of a chain to its next, sample by sample. Threads follow their chains side by side.
pub(crate) fn link_ns(visit: &Measured, chase: Chase, hz: f64) -> Vec<f64> {
    let threads = visit.samples.thread_ticks.len().max(1) as f64;
    let links = visit.repetitions as f64 * visit.volume.units as f64 / f64::from(chase.chains) / threads;
    visit.samples.ns_each(links, hz)
}
