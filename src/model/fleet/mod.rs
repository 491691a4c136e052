//! A fleet: many machines that should be alike, and which of them are not.
//!
//! Records are reduced to what is compared, one at a time (`gather.rs`). Machines of the same hardware are a cohort
//! (`cohorts.rs`). Each figure of a node is held against its cohort's, figures that belong together are held against them
//! together, and what chance does not explain (`distances.rs`, `stats/cohort.rs`) becomes one finding a node, with the cause that
//! its pattern and the node's own facts show (`causes.rs`). Nodes under one switch, where they lie is known, can be slow together
//! (`switches.rs`); and an earlier fleet is a cohort of one for each of today's nodes (`since.rs`).

mod causes;
mod cells;
mod cohorts;
mod distances;
mod gather;
mod rows;
mod since;
mod switches;
mod topology;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::verdict::CauseKind;
use crate::units::words;

pub use cells::{Backing, Cell, Kind};
pub use cohorts::{COHORT_LEAST, Hardware};
pub use gather::{Gathered, Unread, gather};
pub use rows::{Metric, ScreenRow, rows};
pub use since::{Change, NodeChange, Since};
pub use switches::SwitchLine;
pub use topology::{Switch, Topology, TopologyError, hosts};

use self::distances::Distances;

/// A fleet, reduced: what records told, ready to be compared.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// What was measured, on any node.
    pub cells: Vec<Cell>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// One machine of a fleet: one record.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name. Of several records with one host name, with the record's name behind it.
    pub host: String,
    /// The record.
    pub file: String,
    /// Start of the record, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// What makes it comparable.
    pub hardware: Arc<Hardware>,
    /// What may explain its speed.
    pub facts: Facts,
    /// Its figures, by rising cell.
    pub figures: Vec<Figure>,
}

/// A figure of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Which cell of the fleet.
    pub cell: u32,
    /// Natural logarithm of the figure, in the cell's unit.
    pub log: f32,
    /// Standard error of that, by the node's own samples.
    pub error: f32,
}

/// What a node's record tells beside its figures. Shares are of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Median core clock during samples, hertz.
    pub clock_hz: Option<f64>,
    /// Memory modules fitted.
    pub modules: Option<u32>,
    /// Whether they are of several sizes.
    pub has_uneven_modules: bool,
    /// The slowest speed that the firmware has set for a module, mega-transfers a second.
    pub module_mt_s: Option<u32>,
    /// The slowest that one of them is made for.
    pub module_rated_mt_s: Option<u32>,
    /// Memory of the machine, bytes.
    pub memory_bytes: Option<u64>,
    /// Locality domains with CPUs.
    pub numa_nodes: Option<u32>,
    /// Of the memory that was wanted in huge pages, the share that came in them.
    pub huge_share: Option<f64>,
    /// Pages on another node than the one that was named.
    pub stray_share: Option<f64>,
    /// Page cache before the run, of all memory.
    pub page_cache_share: Option<f64>,
    /// The least share of a node's memory that was free before the run.
    pub least_free_share: Option<f64>,
    /// Time that the hypervisor took, of all CPUs' time.
    pub steal_share: Option<f64>,
    /// Samples during which another task ran.
    pub disturbed_share: Option<f64>,
    /// By how much the fast tenth of samples in memory is above their median.
    pub unsteady_memory: Option<f64>,
    /// The same in the first two caches.
    pub unsteady_caches: Option<f64>,
    /// Runnable tasks before the run, averaged over a minute.
    pub load_average: Option<f64>,
    /// CPUs whose time a control group allows.
    pub cpu_time: Option<f64>,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
    /// Settings by name, as far as they could be read, in the same order on all nodes.
    pub settings: Vec<(&'static str, Arc<str>)>,
}

impl Facts {
    /// A setting's value.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.0 == name).map(|setting| &*setting.1)
    }
}

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
    /// Which way a node deviates.
    Direction, "direction" {
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
    /// Slower or faster.
    pub direction: Direction,
    /// What deviates, most first.
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
        let deviating: Vec<String> = self
            .deviations
            .iter()
            .take(NAMED)
            .map(|deviation| format!("{} {}", deviation.group, signed(deviation.deviation)))
            .collect();
        let alike = match &self.alike[..] {
            [] => String::new(),
            levels => format!(", {} as its neighbours", levels.join(", ")),
        };
        format!("{}: {}: {}{alike}", self.host, self.why, deviating.join(", "))
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
        crate::stats::cohort::median(&mut all).unwrap_or(f64::NAN)
    }

    /// Its worst deviation.
    pub fn worst(&self, place: usize) -> f64 {
        self.deviations[place].iter().copied().filter(|d| d.is_finite()).fold(f64::INFINITY, f64::min)
    }
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

/// What screening found.
#[derive(Debug, Clone)]
pub struct Screening {
    /// Cohorts, the largest first.
    pub cohorts: Vec<CohortReport>,
    /// Findings: slower ones first, by their greatest deviation.
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

/// Screens a fleet; an earlier one to compare it with, and where its nodes lie, may be given.
pub fn screen(fleet: &Fleet, then: Option<&Fleet>, topology: Option<&Topology>, options: Options) -> Screening {
    let cohorts = cohorts::cohorts(fleet);
    let mut screening = Screening {
        cohorts: Vec::new(),
        findings: Vec::new(),
        switches: Vec::new(),
        odd: Vec::new(),
        since: None,
        sentences: Vec::new(),
        notes: Vec::new(),
        options,
    };
    for cohort in cohorts {
        if let Some(left_out) = cohort.left_out(fleet) {
            screening.cohorts.push(CohortReport::unscreened(cohort.name, cohort.nodes, left_out));
            continue;
        }
        let distances = Distances::of(fleet, &cohort.nodes, options);
        let index = screening.cohorts.len();
        let mut findings = findings(fleet, &distances, index, options);
        let lines = topology.map(|topology| switches::lines(fleet, &distances, topology, options)).unwrap_or_default();
        switches::mark(&mut findings, &lines);
        screening.findings.extend(findings);
        screening.switches.extend(lines);
        screening.odd.extend(causes::odd(fleet, &cohort.nodes));
        screening.cohorts.push(CohortReport::of(fleet, cohort.name, &distances));
    }
    screening.findings.sort_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal));
    screening.switches.sort_by(|a, b| a.deviation.total_cmp(&b.deviation));
    screening.since = then.map(|then| since::since(fleet, then, options));
    screening.sentences = sentences(fleet, &screening);
    screening.notes = notes(fleet, &screening, topology);
    screening
}

fn rank(finding: &Finding) -> (bool, f64) {
    (finding.direction == Direction::Faster, -finding.worst().abs())
}

fn findings(fleet: &Fleet, distances: &Distances, cohort: usize, options: Options) -> Vec<Finding> {
    let flagged = distances.flagged();
    let typical = causes::Typical::of(fleet, distances);
    flagged.into_iter().map(|place| finding(fleet, distances, &typical, cohort, place, options)).collect()
}

fn finding(
    fleet: &Fleet,
    distances: &Distances,
    typical: &causes::Typical,
    cohort: usize,
    place: usize,
    options: Options,
) -> Finding {
    let deviations = distances.deviations_of(fleet, place);
    let node = distances.nodes[place];
    let worst = deviations.first().map_or(0.0, |deviation| deviation.deviation);
    let found = causes::cause(fleet, distances, typical, place, options);
    Finding {
        node,
        host: fleet.nodes[node].host.clone(),
        cohort,
        direction: if worst < 0.0 { Direction::Slower } else { Direction::Faster },
        alike: distances.levels_alike(fleet, place, options.noise),
        deviations,
        cause: found.cause,
        why: found.why,
        evidence: found.evidence,
        cure: found.cure,
        test: found.test,
        switch: None,
    }
}

impl CohortReport {
    fn unscreened(name: String, nodes: Vec<usize>, left_out: String) -> Self {
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

    fn of(fleet: &Fleet, name: String, distances: &Distances) -> Self {
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

/// Names, and how many more there are.
pub(super) fn some(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        left => format!("{shown} and {left} more"),
    }
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn sentences(fleet: &Fleet, screening: &Screening) -> Vec<String> {
    let screened: usize =
        screening.cohorts.iter().filter(|cohort| cohort.left_out.is_none()).map(|cohort| cohort.nodes.len()).sum();
    let of = |direction| screening.findings.iter().filter(|finding| finding.direction == direction).count();
    let (slower, faster) = (of(Direction::Slower), of(Direction::Faster));
    let cohorts = screening.cohorts.iter().filter(|cohort| cohort.left_out.is_none()).count();
    let among = format!("{} of {} of hardware", plural(screened, "node"), plural(cohorts, "kind"));
    let are_slower = if slower == 1 { "is slower than its neighbours" } else { "are slower than their neighbours" };
    let first = match (screened, slower, faster) {
        (0, ..) => format!("{} read, none screened: no {COHORT_LEAST} are alike.", plural(fleet.nodes.len(), "node")),
        (_, 0, 0) => format!("All alike: none of {among} deviates from its neighbours by more than chance."),
        (_, 0, faster) => format!("{faster} of {among} faster than their neighbours, none slower."),
        (_, slower, 0) => format!("{slower} of {among} {are_slower}: {}.", worst(screening)),
        (_, slower, faster) => format!("{slower} of {among} {are_slower}, {faster} faster: {}.", worst(screening)),
    };
    let mut sentences = vec![first];
    sentences.extend(screening.switches.iter().filter(|line| line.is_slow).map(SwitchLine::sentence));
    sentences.extend(screening.since.iter().flat_map(Since::sentences));
    sentences
}

/// The slow nodes that deviate most, and why: `n3 (15 of 16 memory modules), n8 (no cause found) and 4 more`.
fn worst(screening: &Screening) -> String {
    let slower = screening.findings.iter().filter(|finding| finding.direction == Direction::Slower);
    let named: Vec<String> = slower.map(|finding| format!("{} ({})", finding.host, finding.why)).collect();
    some(&named, 2)
}

fn notes(fleet: &Fleet, screening: &Screening, topology: Option<&Topology>) -> Vec<String> {
    let mut notes: Vec<String> = screening
        .cohorts
        .iter()
        .filter_map(|cohort| {
            let names: Vec<String> = cohort.nodes.iter().map(|node| fleet.nodes[*node].host.clone()).collect();
            Some(format!("{}: {} ({}).", some(&names, 4), cohort.left_out.as_ref()?, cohort.name))
        })
        .collect();
    if let Some(topology) = topology {
        let unknown: Vec<String> = fleet
            .nodes
            .iter()
            .filter(|node| topology.switch_of(&node.host).is_none())
            .map(|node| node.host.clone())
            .collect();
        if !unknown.is_empty() {
            notes.push(format!("No switch in the topology names {}.", some(&unknown, 4)));
        }
    }
    if let Some(since) = &screening.since {
        notes.extend(since.notes.iter().cloned());
    }
    notes
}
