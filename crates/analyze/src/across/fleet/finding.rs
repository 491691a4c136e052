//! What is told of a node or a group of cells, and how numbers and names are written in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::across::verdict::diagnosis::CauseKind;
use membound_core::units::words;
/// How a fleet is screened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Deviations of groups up to this share are no finding, however certain: 0.015.
    pub noise: f64,
    /// Share of findings that may be false: 0.05.
    pub rate: f64,
}
impl Default for Options {
    /// Half of the smallest deficit that is to be found for certain, 3 %; and one false finding in twenty.
    fn default() -> Self {
        Options { noise: 0.015, rate: 0.05 }
    }
}
words! {
    /// Which way a node deviates, worst first.
    Direction, "direction" {
        /// Cases crashed or came to wrong results, however fast the others are.
        Failed = "failed",
        /// Slower than its likes.
        Slower = "slower",
        /// Faster than its likes.
        Faster = "faster",
    }
}
/// A group of cells of a node that deviates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// The group: `memory read`, `L1`, or a single cell in words.
    pub group: String,
    /// Median deviation of its cells from the cohort: -0.12 is 12 % slower.
    pub deviation: f64,
    /// Probability of it by chance, for itself.
    pub p: f64,
}
/// One node that is not like its neighbours.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Index of the node in the fleet.
    pub node: usize,
    /// Its name.
    pub host: String,
    /// Index of its cohort.
    pub cohort: usize,
    /// Failed, slower or faster.
    pub direction: Direction,
    /// What deviates, most first; empty where a fact alone is the finding.
    pub deviations: Vec<Deviation>,
    /// Levels that are as its neighbours'.
    pub alike: Vec<String>,
    /// Why; absent where nothing tells.
    pub cause: Option<CauseKind>,
    /// The cause in a few words: `7 of 8 memory modules`.
    pub why: String,
    /// How that is known.
    pub evidence: Vec<String>,
    /// What helps.
    pub cure: String,
    /// The command that tests it.
    pub test: String,
    /// The switch all of whose nodes are slow.
    pub switch: Option<String>,
}
impl Finding {
    /// The greatest deviation, as a share.
    pub fn worst(&self) -> f64 {
        self.deviations.first().map_or(0.0, |deviation| deviation.deviation)
    }

    /// `n3: 7 of 8 memory modules: memory read -12.1%, L3 as its neighbours`
    pub fn sentence(&self) -> String {
        /// More would not be read.
        const NAMED: usize = 2;
        let named = self.deviations.iter().take(NAMED);
        let mut figures: Vec<String> =
            named.map(|deviation| format!("{} {}", deviation.group, signed(deviation.deviation))).collect();
        if !self.alike.is_empty() {
            figures.push(format!("{} as its neighbours", self.alike.join(", ")));
        }
        let parts = [self.host.clone(), self.why.clone(), figures.join(", ")];
        parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(": ")
    }
}
/// A deviation as people read it: `-12.1%`.
pub fn signed(share: f64) -> String {
    format!("{:+.1}%", 100.0 * share)
}
/// How the healthy nodes of a cohort spread in a group of cells. Shares of the cohort's median.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSpread {
    /// The group.
    pub group: String,
    /// Cells in it.
    pub cells: usize,
    /// The 1st, 5th, 25th, 50th, 75th, 95th and 99th percentile.
    pub percentiles: [f64; 7],
}
/// What [`GroupSpread::percentiles`] are.
pub const PERCENTILES: [u32; 7] = [1, 5, 25, 50, 75, 95, 99];
/// The cohort's figure of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSpread {
    /// Index of the cell.
    pub cell: usize,
    /// Median over nodes, in the cell's unit.
    pub median: f64,
    /// Relative standard deviation from node to node, by the median absolute deviation.
    pub scale: f64,
    /// Nodes that have it.
    pub nodes: usize,
}
/// Settings in which a node is not as most of its cohort.
#[derive(Debug, Clone, PartialEq)]
pub struct Odd {
    /// What.
    pub what: String,
    /// What most have.
    pub usual: String,
    /// What these have: value and nodes' names.
    pub others: Vec<(String, Vec<String>)>,
}
