//! A fleet against its earlier self: each node is compared with itself, by its name, so that what has always been different cancels.
//! The differences are a fleet of their own, and are screened as one: what most nodes lost is the fleet's, what one lost
//! beyond that is its own.

use membound_core::in_order::InOrder;
use membound_core::units::counted;
use std::collections::HashMap;

use crate::across::fleet::cohorts::cohorts;
use crate::across::fleet::distances::Distances;
use crate::across::fleet::finding::{Deviation, Options, signed};
use crate::across::fleet::nodes::{Figure, Fleet, Node};
use crate::wording::some;

/// Standard errors of the fleet's median that a change must exceed.
const ERRORS: f64 = 4.0;

/// What changed since an earlier fleet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Since {
    /// Nodes that are in both, in cohorts large enough to be compared.
    pub nodes: usize,
    /// Nodes that are in both and in a cohort that is not.
    pub left_out: usize,
    /// What the fleet as a whole gained or lost, by cohort and group.
    pub changes: Vec<Change>,
    /// Nodes that changed otherwise than the fleet, those that lost most first.
    pub nodes_changed: Vec<NodeChange>,
    /// What to know about it.
    pub notes: Vec<String>,
}

/// The change of a cohort in a group of cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The cohort in words.
    pub cohort: String,
    /// The group.
    pub group: String,
    /// Median change over nodes, as a share: -0.04 is 4 % slower than earlier.
    pub change: f64,
    /// Its standard error.
    pub error: f64,
    /// Whether that is more than chance and noise.
    pub is_certain: bool,
}

/// A node that changed otherwise than its neighbours.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeChange {
    /// Its name.
    pub host: String,
    /// The cohort in words.
    pub cohort: String,
    /// Against what its neighbours changed; most first.
    pub deviations: Vec<Deviation>,
    /// What differs in its settings: `governor: performance earlier, powersave now`.
    pub settings: Vec<String>,
}

impl NodeChange {
    /// `n3: memory read -12.0% since then, beyond what its neighbours changed; modules: 16 earlier, 15 now`
    pub fn sentence(&self) -> String {
        let parts: Vec<String> = self
            .deviations
            .iter()
            .take(2)
            .map(|deviation| format!("{} {}", deviation.group, signed(deviation.deviation)))
            .collect();
        let settings = match &self.settings[..] {
            [] => String::new(),
            settings => format!("; {}", some(settings, 3)),
        };
        format!("{}: {} since then, beyond what its neighbours changed{settings}", self.host, parts.join(", "))
    }
}

impl Since {
    /// The answer.
    pub fn sentences(&self) -> Vec<String> {
        if self.nodes == 0 {
            let left_out = counted(self.left_out, "node");
            let sentence =
                format!("Since the earlier fleet: none of {left_out} could be compared with its neighbours.");
            return if self.left_out == 0 { Vec::new() } else { vec![sentence] };
        }
        let certain = self.changes.iter().filter(|change| change.is_certain);
        let mut sentences: Vec<String> = certain
            .map(|change| {
                format!("Since the earlier fleet: {} {} over {}.", change.group, signed(change.change), change.cohort)
            })
            .collect();
        let slower = self
            .nodes_changed
            .iter()
            .filter(|node| node.deviations.first().is_some_and(|deviation| deviation.deviation < 0.0))
            .count();
        sentences.push(match slower {
            0 => format!(
                "Since the earlier fleet: none of {} lost speed against its neighbours.",
                counted(self.nodes, "node")
            ),
            n => format!(
                "Since the earlier fleet: {n} of {} lost speed against their neighbours.",
                counted(self.nodes, "node")
            ),
        });
        sentences
    }
}

/// Compares each node with itself. Cells have the same numbers in both fleets.
pub(crate) fn since(now: &Fleet, then: &Fleet, options: Options) -> Since {
    let earlier: HashMap<&str, &Node> = then.nodes.iter().map(|node| (node.host.as_str(), node)).collect();
    let nodes: Vec<Node> = now
        .nodes
        .iter()
        .filter_map(|node| Some(Node { figures: changes(node, earlier.get(node.host.as_str())?), ..node.clone() }))
        .collect();
    let changed = Fleet { cells: now.cells.clone(), nodes };
    let mut since = Since { notes: left_out(now, then), ..Since::default() };
    for cohort in cohorts(&changed) {
        if let Some(why) = cohort.left_out(&changed) {
            since.notes.push(format!("Against the earlier fleet, {}: {why}.", cohort.name));
            since.left_out += cohort.nodes.len();
            continue;
        }
        since.nodes += cohort.nodes.len();
        let distances = Distances::of(&changed, &cohort.nodes, options);
        for set in distances.side_by_side() {
            let Some((change, error)) = distances.middle(set) else { continue };
            let is_certain = change.abs() > options.noise.max(ERRORS * error);
            let group = distances.sets[set].name.clone();
            since.changes.push(Change { cohort: cohort.name.clone(), group, change, error, is_certain });
        }
        for place in distances.flagged() {
            let node = &changed.nodes[distances.nodes[place]];
            let settings = earlier.get(node.host.as_str()).map(|before| settings(before, node)).unwrap_or_default();
            let deviations = distances.deviations_of(&changed, place);
            since.nodes_changed.push(NodeChange {
                host: node.host.clone(),
                cohort: cohort.name.clone(),
                deviations,
                settings,
            });
        }
    }
    let worst = |node: &NodeChange| node.deviations.first().map_or(0.0, |deviation| deviation.deviation);
    since.nodes_changed.order_by(|a, b| worst(a).total_cmp(&worst(b)));
    since
}

fn changes(now: &Node, then: &Node) -> Vec<Figure> {
    let before: HashMap<u32, &Figure> = then.figures.iter().map(|figure| (figure.cell, figure)).collect();
    let change = |figure: &Figure| {
        let before = before.get(&figure.cell)?;
        Some(Figure { log: figure.log - before.log, error: figure.error.hypot(before.error), ..*figure })
    };
    now.figures.iter().filter_map(change).collect()
}

fn settings(then: &Node, now: &Node) -> Vec<String> {
    let change = |(name, value): &(&'static str, std::sync::Arc<str>)| {
        let before = then.facts.setting(name)?;
        (before != &**value).then(|| format!("{name}: {before} earlier, {value} now"))
    };
    now.facts.settings.iter().filter_map(change).collect()
}

fn left_out(now: &Fleet, then: &Fleet) -> Vec<String> {
    let only = |a: &Fleet, b: &Fleet| -> Vec<String> {
        let known: std::collections::HashSet<&str> = b.nodes.iter().map(|node| node.host.as_str()).collect();
        a.nodes.iter().filter(|node| !known.contains(node.host.as_str())).map(|node| node.host.clone()).collect()
    };
    let (new, gone) = (only(now, then), only(then, now));
    let mut notes = Vec::new();
    notes.extend((!new.is_empty()).then(|| format!("Not in the earlier fleet: {}.", some(&new, 4))));
    notes.extend((!gone.is_empty()).then(|| format!("In the earlier fleet alone: {}.", some(&gone, 4))));
    notes
}
