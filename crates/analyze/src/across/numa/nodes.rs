//! What a node is, by what it does: the firmware's claim held against the measured matrix.

use crate::across::numa::rows::{MeasuredNode, Numa, NumaInitiator};
use crate::wording::times;
use membound_core::experiments::numa::Way;
use membound_core::machine::Machine;
use membound_core::machine::domains::DomainKind;
use membound_core::machine::nature::{NodeKind, NodeNature};

/// High-bandwidth memory gives all cores at least this much more than the memory beside it.
const WIDER: f64 = 1.2;
/// A slow tier takes at least this much longer.
const SLOWER: f64 = 1.2;

/// One a node of the machine.
pub(crate) fn measured(machine: &Machine, numa: &Numa) -> Vec<MeasuredNode> {
    machine.natures().into_iter().map(|nature| one(machine, numa, nature)).collect()
}

fn one(machine: &Machine, numa: &Numa, nature: NodeNature) -> MeasuredNode {
    let blank = MeasuredNode { against: None, bandwidth: None, latency: None, is_confirmed: None, nature };
    let node = blank.nature.node;
    if machine.node(node).is_none_or(|node| node.has_cpus()) {
        return blank;
    }
    let near = machine.nearest_with_cpus(node);
    let is_near = |initiator: &&NumaInitiator| {
        initiator.domain == Some(DomainKind::Node) && initiator.node.is_some_and(|own| near.contains(&own))
    };
    // A package is as near, where its only node has no name of its own.
    let Some((initiator, own)) = numa.initiators.iter().find(is_near).and_then(|i| Some((i, i.node?))) else {
        return blank;
    };
    let Some(&memory) = numa.memory.first() else { return blank };
    let figure = |node, way, is_all| Some(numa.row(memory, &initiator.name, node, way, is_all)?.figure()?.interval());
    let over = |way, is_all| {
        let ([this, low, high], own) = (figure(node, way, is_all)?, figure(own, way, is_all)?);
        Some([this / own[0], low / own[2], high / own[1]])
    };
    let (bandwidth, latency) = (over(Way::Load, true), over(Way::Latency, false));
    let against = Some(own).filter(|_| bandwidth.is_some() || latency.is_some());
    let is_confirmed = confirmed(blank.nature.kind, bandwidth, latency);
    MeasuredNode { against, bandwidth, latency, is_confirmed, ..blank }
}

/// Intervals decide, not medians: where one holds the threshold, nothing is decided.
fn confirmed(kind: NodeKind, bandwidth: Option<[f64; 3]>, latency: Option<[f64; 3]>) -> Option<bool> {
    let above = |ratio: [f64; 3], least: f64| {
        if ratio[1] >= least { Some(true) } else { (ratio[2] < least).then_some(false) }
    };
    let is_wider = bandwidth.and_then(|ratio| above(ratio, WIDER));
    let is_slower = latency.and_then(|ratio| above(ratio, SLOWER));
    let is_narrower = bandwidth.and_then(|[value, low, high]| above([1.0 / value, 1.0 / high, 1.0 / low], WIDER));
    match kind {
        NodeKind::Hbm | NodeKind::Mcdram => is_wider,
        NodeKind::Slow => match (is_slower, is_narrower) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        },
        NodeKind::Dram | NodeKind::Device | NodeKind::Unknown | NodeKind::Empty => None,
    }
}

/// What nodes without CPUs are worth, against the memory of the cores nearest to them.
pub(crate) fn sentences(numa: &Numa) -> Vec<String> {
    numa.kinds.iter().filter_map(sentence).collect()
}

fn sentence(measured: &MeasuredNode) -> Option<String> {
    let (NodeNature { node, kind, .. }, own) = (&measured.nature, measured.against?);
    let what = match kind {
        NodeKind::Unknown => "is memory without CPUs".to_string(),
        kind => format!("is {kind} without CPUs"),
    };
    let mut parts = Vec::new();
    parts.extend(measured.bandwidth.map(|ratio| format!("{} the load bandwidth of node {own}", times(ratio))));
    parts.extend(measured.latency.map(|ratio| format!("{} its latency", times(ratio))));
    let like = match behaves_like(measured).filter(|_| *kind == NodeKind::Unknown) {
        Some(kind) => format!(" It behaves like {kind}."),
        None => String::new(),
    };
    Some(format!("Node {node} {what}: {}.{like}", parts.join(" at ")))
}

fn behaves_like(measured: &MeasuredNode) -> Option<NodeKind> {
    let is = |kind| confirmed(kind, measured.bandwidth, measured.latency) == Some(true);
    [NodeKind::Hbm, NodeKind::Slow].into_iter().find(|kind| is(*kind))
}

/// Claims that what was measured speaks against.
pub(crate) fn contradictions(numa: &Numa) -> Vec<String> {
    let wrong = numa.kinds.iter().filter(|measured| measured.is_confirmed == Some(false));
    let text = |measured: &MeasuredNode| {
        let NodeNature { node, kind, evidence } = &measured.nature;
        let says = evidence.first().map_or("", |evidence| &evidence.says);
        format!(
            "Node {node} is called {kind} ({says}), but what was measured does not bear that out: a hypervisor or emulator \
             may only imitate it, or the firmware is wrong."
        )
    };
    wrong.map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_intervals_beyond_the_threshold_decide() {
        let (wide, level, narrow) = ([4.2, 4.0, 4.4], [1.2, 1.0, 1.4], [0.4, 0.38, 0.42]);
        assert_eq!(confirmed(NodeKind::Mcdram, Some(wide), None), Some(true));
        assert_eq!(confirmed(NodeKind::Hbm, Some(level), None), None);
        assert_eq!(confirmed(NodeKind::Hbm, Some(narrow), None), Some(false));
        assert_eq!(confirmed(NodeKind::Slow, Some(narrow), Some(level)), Some(true));
        assert_eq!(confirmed(NodeKind::Slow, Some(wide), Some([1.0, 0.99, 1.01])), Some(false));
        assert_eq!(confirmed(NodeKind::Slow, Some(wide), Some(level)), None);
        assert_eq!(confirmed(NodeKind::Unknown, Some(wide), Some(wide)), None);
    }
}
