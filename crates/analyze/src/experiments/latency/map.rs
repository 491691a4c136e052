//! The map: latency over cores, nodes and page sizes.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::latency::ladder::Chased;
use membound_core::experiments::latency::map_stride;
use membound_core::kernel::chase::Order;
use membound_core::machine::Machine;
use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;

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
    /// CPU, and its latency: the mean over blocks of their medians, ns. Of CPUs with all blocks.
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

/// Even lines permuted within blocks: for each memory and node a line over cores.
pub(super) fn map(chases: &[Chased], machine: &Machine) -> Vec<MapLine> {
    let stride = map_stride(machine.caches.iter().filter(|cache| cache.holds_data()));
    let is_mapped =
        |c: &&Chased| c.is_plain() && c.chase().order == Order::PageOrdered && c.chase().stride_bytes == stride;
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
    // Blocks differ more than CPUs do: means over other blocks cannot be compared.
    let all = of_core.values().map(Vec::len).max()?;
    of_core.retain(|_, blocks| blocks.len() == all);
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
