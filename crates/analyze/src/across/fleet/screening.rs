//! What screening a fleet found.

use crate::across::fleet::distances::Distances;
use crate::across::fleet::finding::{CellSpread, Finding, GroupSpread, Odd, Options};
use crate::across::fleet::nodes::Fleet;
use crate::across::fleet::since::Since;
use crate::across::fleet::switches::SwitchLine;
/// Machines of the same hardware.
#[derive(Debug, Clone, PartialEq)]
pub struct CohortReport {
    /// In words.
    pub name: String,
    /// Indices of its nodes.
    pub nodes: Vec<usize>,
    /// Why it was not screened, where it was not.
    pub left_out: Option<String>,
    /// The groups that stand side by side: level and kind.
    pub groups: Vec<String>,
    /// The deviation of each node in each of them, node by node; NaN where it was not measured.
    pub deviations: Vec<Vec<f64>>,
    /// How healthy nodes spread in them.
    pub spreads: Vec<GroupSpread>,
    /// What is typical.
    pub cells: Vec<CellSpread>,
    /// Student's degrees of freedom of the tails: of groups and of single cells.
    pub freedom: [f64; 2],
    /// Tests made.
    pub tests: usize,
}
impl CohortReport {
    /// The median deviation of a node (by its place in the cohort) over the groups; NaN where it has none.
    pub fn overall(&self, place: usize) -> f64 {
        let mut all: Vec<f64> = self.deviations[place].iter().copied().filter(|d| d.is_finite()).collect();
        membound_core::stats::quantiles::median_in_place(&mut all).unwrap_or(f64::NAN)
    }

    /// Its worst deviation.
    pub fn worst(&self, place: usize) -> f64 {
        self.deviations[place].iter().copied().filter(|d| d.is_finite()).fold(f64::INFINITY, f64::min)
    }
}
/// What screening found.
#[derive(Debug, Clone)]
pub struct Screening {
    /// Cohorts, the largest first.
    pub cohorts: Vec<CohortReport>,
    /// Findings: what failed, then what is slower, each by its greatest deviation.
    pub findings: Vec<Finding>,
    /// Switches, where their file was given.
    pub switches: Vec<SwitchLine>,
    /// What is not the same on all nodes of a cohort.
    pub odd: Vec<Odd>,
    /// Against an earlier fleet.
    pub since: Option<Since>,
    /// The answer in sentences.
    pub sentences: Vec<String>,
    /// What to know about it.
    pub notes: Vec<String>,
    /// How it was screened.
    pub options: Options,
}
impl Screening {
    /// The cohorts that were not left out.
    pub fn screened(&self) -> impl Iterator<Item = &CohortReport> {
        self.cohorts.iter().filter(|cohort| cohort.left_out.is_none())
    }
}
impl CohortReport {
    /// Of a cohort that was not screened.
    pub(crate) fn unscreened(name: String, nodes: Vec<usize>, left_out: String) -> Self {
        CohortReport {
            name,
            deviations: vec![Vec::new(); nodes.len()],
            nodes,
            left_out: Some(left_out),
            groups: Vec::new(),
            spreads: Vec::new(),
            cells: Vec::new(),
            freedom: [f64::NAN; 2],
            tests: 0,
        }
    }

    /// Of one that was.
    pub(crate) fn of(fleet: &Fleet, name: String, distances: &Distances) -> Self {
        let shown = distances.side_by_side();
        CohortReport {
            name,
            nodes: distances.nodes.clone(),
            left_out: None,
            groups: shown.iter().map(|set| distances.sets[*set].name.clone()).collect(),
            deviations: (0..distances.nodes.len())
                .map(|place| shown.iter().map(|set| distances.effect(place, *set)).collect())
                .collect(),
            spreads: shown.iter().filter_map(|set| distances.spread(*set)).collect(),
            cells: distances.typical(fleet),
            freedom: distances.freedom,
            tests: distances.tests,
        }
    }
}
