//! Are all nodes under one switch slow? A switch moves no memory traffic, but what hangs on one switch mostly shares a rack: its
//! power, its cooling, a delivery, a firmware.

use crate::across::fleet::distances::Distances;
use crate::across::fleet::finding::{Finding, Options, signed};
use crate::across::fleet::nodes::Fleet;
use crate::across::fleet::topology::Topology;
use membound_core::stats;
use membound_core::stats::cohort;

/// Fewer nodes have nothing in common.
const NODES_LEAST: usize = 3;
/// Share of a switch's nodes that must be slow, by half of what is asked of the middle one.
const SLOW: f64 = 0.8;
/// Where a node's score is cut, so that a single one does not speak for all.
const CUT: f64 = 4.0;

/// A switch, and how the nodes below it deviate.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchLine {
    /// Its name.
    pub name: String,
    /// Nodes of a cohort below it.
    pub nodes: usize,
    /// How many of them are slow in `group`.
    pub slow: usize,
    /// The group of cells in which its nodes deviate most.
    pub group: String,
    /// Their median deviation in it.
    pub deviation: f64,
    /// Median deviation in each group that stands side by side, in the cohort's order; NaN where nothing was measured.
    pub deviations: Vec<f64>,
    /// Probability of the score of its nodes together by chance, in the worst group.
    pub p: f64,
    /// Whether that is a finding.
    pub is_slow: bool,
    /// The nodes, by index in the fleet.
    members: Vec<usize>,
}

impl SwitchLine {
    /// `all 12 nodes under switch s3 are slow: memory read -4.1% (median)`
    pub fn sentence(&self) -> String {
        let count = if self.slow == self.nodes {
            format!("all {}", self.nodes)
        } else {
            format!("{} of {}", self.slow, self.nodes)
        };
        format!(
            "{count} nodes under switch {} are slow: {} {} (median): look at what they share: rack, power, cooling, firmware.",
            self.name,
            self.group,
            signed(self.deviation)
        )
    }
}

/// All switches with nodes of a cohort below them.
pub(crate) fn lines(fleet: &Fleet, distances: &Distances, topology: &Topology, options: Options) -> Vec<SwitchLine> {
    let at: Vec<Option<usize>> =
        distances.nodes.iter().map(|node| topology.switch_of(&fleet.nodes[*node].host)).collect();
    let members = |switch: usize| -> Vec<usize> {
        let below = topology.below(switch);
        (0..at.len()).filter(|place| at[*place].is_some_and(|at| below.contains(&at))).collect()
    };
    let mut lines: Vec<SwitchLine> = (0..topology.switches.len())
        .filter_map(|switch| line(distances, &topology.switches[switch].name, &members(switch), options))
        .collect();
    let tests = lines.len() * distances.side_by_side().len();
    let mut chances: Vec<f64> = lines.iter().map(|line| line.p).collect();
    let least = cohort::least_chance(&mut chances, tests, options.rate);
    for line in &mut lines {
        let is_most = 2 * line.nodes > distances.nodes.len();
        line.is_slow = line.is_slow && !is_most && line.p <= least;
    }
    // Where a larger switch says it all, the smaller ones below it need not.
    let slow: Vec<Vec<usize>> = lines.iter().filter(|line| line.is_slow).map(|line| line.members.clone()).collect();
    for line in &mut lines {
        let is_part = |whole: &Vec<usize>| {
            whole.len() > line.members.len() && line.members.iter().all(|node| whole.contains(node))
        };
        line.is_slow = line.is_slow && !slow.iter().any(is_part);
    }
    lines
}

fn line(distances: &Distances, name: &str, places: &[usize], options: Options) -> Option<SwitchLine> {
    let shown = distances.side_by_side();
    let effects =
        |set: usize| places.iter().map(move |place| distances.effect(*place, set)).filter(|effect| effect.is_finite());
    let middle = |set: usize| stats::quantiles::median(effects(set)).unwrap_or(f64::NAN);
    let deviations: Vec<f64> = shown.iter().map(|set| middle(*set)).collect();
    let (worst, deviation) = shown
        .iter()
        .zip(&deviations)
        .filter(|(_, deviation)| deviation.is_finite())
        .min_by(|a, b| a.1.total_cmp(b.1))
        .map(|(set, deviation)| (*set, *deviation))?;
    let scores: Vec<f64> = places
        .iter()
        .map(|place| distances.score(*place, worst).clamp(-CUT, CUT))
        .filter(|score| score.is_finite())
        .collect();
    let together = scores.iter().sum::<f64>() / (scores.len() as f64).sqrt();
    let slow = effects(worst).filter(|effect| *effect <= -options.noise / 2.0).count();
    let is_slow =
        places.len() >= NODES_LEAST && deviation <= -options.noise && slow as f64 >= SLOW * places.len() as f64;
    Some(SwitchLine {
        name: name.into(),
        nodes: places.len(),
        slow,
        group: distances.sets[worst].name.clone(),
        deviation,
        deviations,
        p: cohort::chance(together, cohort::FREEDOM_MOST),
        is_slow,
        members: places.iter().map(|place| distances.nodes[*place]).collect(),
    })
}

/// Tells the nodes below a slow switch so.
pub(crate) fn mark(findings: &mut [Finding], lines: &[SwitchLine]) {
    for finding in findings {
        let slow = lines.iter().find(|line| line.is_slow && line.members.contains(&finding.node));
        finding.switch = slow.map(|line| line.name.clone());
    }
}
