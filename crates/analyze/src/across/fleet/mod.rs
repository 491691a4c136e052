//! A fleet: many machines that should be alike, and which of them are not.
//!
//! Records are reduced to what is compared, one at a time (`gather.rs`). Machines of the same hardware are a cohort
//! (`cohorts.rs`). Each figure of a node is held against its cohort's, figures that belong together are held against them
//! together, and what chance does not explain (`distances.rs`, `stats/cohort.rs`) becomes one finding a node, with the cause that
//! its pattern and the node's own facts show (`causes.rs`). What crashed on a node is a finding of its own. Nodes under one
//! switch, where they lie is known, can be slow together (`switches.rs`); and an earlier fleet is a cohort of one for each of
//! today's nodes (`since.rs`).

pub mod causes;
pub mod cells;
pub mod cohorts;
pub mod distances;
pub mod finding;
pub mod gather;
pub mod nodes;
pub mod rows;
pub mod screening;
pub mod since;
pub mod switches;
pub mod topology;

use crate::across::fleet::causes::Found;
use crate::across::fleet::cohorts::COHORT_LEAST;
use crate::across::fleet::distances::Distances;
use crate::across::fleet::finding::{Direction, Finding, Options};
use crate::across::fleet::nodes::{Fleet, Hardware};
use crate::across::fleet::screening::{CohortReport, Screening};
use crate::across::fleet::since::Since;
use crate::across::fleet::switches::SwitchLine;
use crate::across::fleet::topology::Topology;
use crate::wording::some;
use membound_core::in_order::InOrder;
use membound_core::units::counted;

/// Screens a fleet; an earlier one to compare it with, which was gathered with the same table, and where its nodes lie, may be
/// given.
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
        screening.findings.extend(failures(fleet, &cohort.nodes, screening.cohorts.len()));
        if let Some(left_out) = cohort.left_out(fleet) {
            screening.cohorts.push(CohortReport::unscreened(cohort.name, cohort.nodes, left_out));
            continue;
        }
        let distances = Distances::of(fleet, &cohort.nodes, options);
        let index = screening.cohorts.len();
        let mut findings = findings(fleet, &distances, &cohort.hardware, index, options);
        let lines = topology.map(|topology| switches::lines(fleet, &distances, topology, options)).unwrap_or_default();
        switches::mark(&mut findings, &lines);
        screening.findings.extend(findings);
        screening.switches.extend(lines);
        screening.odd.extend(causes::odd(fleet, &cohort.nodes));
        screening.cohorts.push(CohortReport::of(fleet, cohort.name, &distances));
    }
    screening.findings.order_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal));
    screening.switches.order_by(|a, b| a.deviation.total_cmp(&b.deviation));
    screening.since = then.map(|then| since::since(fleet, then, options));
    screening.sentences = sentences(fleet, &screening);
    screening.notes = notes(fleet, &screening, topology);
    screening
}

fn rank(finding: &Finding) -> (Direction, f64) {
    (finding.direction, -finding.worst().abs())
}

/// Nodes on which cases crashed or came to wrong results: alone of their kind or not, they need no neighbours.
fn failures(fleet: &Fleet, nodes: &[usize], cohort: usize) -> Vec<Finding> {
    let of = |node: &usize| {
        let found = causes::failed_cases(&fleet.nodes[*node])?;
        Some(finding(fleet, *node, cohort, Direction::Failed, found))
    };
    nodes.iter().filter_map(of).collect()
}

/// Of a node of which no more is known than what was found.
fn finding(fleet: &Fleet, node: usize, cohort: usize, direction: Direction, found: Found) -> Finding {
    let Found { cause, why, evidence, cure, test } = found;
    Finding {
        node,
        host: fleet.nodes[node].host.clone(),
        cohort,
        direction,
        deviations: Vec::new(),
        alike: Vec::new(),
        cause,
        why,
        evidence,
        cure,
        test,
        switch: None,
    }
}

/// Nodes whose figures stand out, and those that lack cores, whatever the others of theirs still do.
fn findings(fleet: &Fleet, distances: &Distances, usual: &Hardware, cohort: usize, options: Options) -> Vec<Finding> {
    let flagged = distances.flagged();
    let typical = causes::Typical::of(fleet, distances);
    let of = |place: usize| {
        let is_flagged = flagged.binary_search(&place).is_ok();
        let cause = is_flagged.then(|| causes::cause(fleet, distances, &typical, place, options));
        let lost = causes::lost_cores(&fleet.nodes[distances.nodes[place]].hardware, usual);
        let deviations = if is_flagged { distances.deviations_of(fleet, place) } else { Vec::new() };
        let is_slower = lost.is_some() || deviations.first().is_some_and(|worst| worst.deviation < 0.0);
        let found = match (cause, lost) {
            (Some(found), Some(lost)) => found.beside(lost),
            (found, lost) => found.or(lost)?,
        };
        let direction = if is_slower { Direction::Slower } else { Direction::Faster };
        let alike = distances.levels_alike(fleet, place, options.noise);
        let finding = finding(fleet, distances.nodes[place], cohort, direction, found);
        Some(Finding { alike, deviations, ..finding })
    };
    (0..distances.nodes.len()).filter_map(of).collect()
}

fn sentences(fleet: &Fleet, screening: &Screening) -> Vec<String> {
    // Of some that came to no figure it is known all the same that they lack cores.
    let is_slower = |node: usize| screening.findings.iter().any(|f| f.node == node && f.direction == Direction::Slower);
    let is_screened = |node: &&usize| !fleet.nodes[**node].figures.is_empty() || is_slower(**node);
    let of_cohort = |cohort: &CohortReport| cohort.nodes.iter().filter(is_screened).count();
    let screened: usize = screening.screened().map(of_cohort).sum();
    let of = |direction| screening.findings.iter().filter(|finding| finding.direction == direction).count();
    let (failed, slower, faster) = (of(Direction::Failed), of(Direction::Slower), of(Direction::Faster));
    let cohorts = screening.screened().count();
    let among = format!("{} of {} of hardware", counted(screened, "node"), counted(cohorts, "kind"));
    let are_slower = if slower == 1 { "is slower than its neighbours" } else { "are slower than their neighbours" };
    let first = match (screened, slower, faster) {
        (0, ..) if fleet.nodes.iter().all(|node| node.figures.is_empty()) => {
            format!("{} read, none screened: nothing was measured.", counted(fleet.nodes.len(), "node"))
        }
        (0, ..) => format!("{} read, none screened: no {COHORT_LEAST} are alike.", counted(fleet.nodes.len(), "node")),
        (_, 0, 0) => {
            let all_alike = if failed == 0 { "All alike: none" } else { "None" };
            format!("{all_alike} of {among} deviates from its neighbours by more than chance.")
        }
        (_, 0, faster) => format!("{faster} of {among} faster than their neighbours, none slower."),
        (_, slower, 0) => format!("{slower} of {among} {are_slower}: {}.", named(screening, Direction::Slower)),
        (_, slower, faster) => {
            format!("{slower} of {among} {are_slower}, {faster} faster: {}.", named(screening, Direction::Slower))
        }
    };
    let mut sentences: Vec<String> = Vec::new();
    sentences.extend((failed > 0).then(|| {
        let (all, named) = (counted(fleet.nodes.len(), "node"), named(screening, Direction::Failed));
        format!("Cases failed on {failed} of {all}: {named}.")
    }));
    sentences.push(first);
    sentences.extend(screening.switches.iter().filter(|line| line.is_slow).map(SwitchLine::sentence));
    sentences.extend(screening.since.iter().flat_map(Since::sentences));
    sentences
}

/// The nodes that deviate most this way, and why: `n3 (15 of 16 memory modules), n8 (no cause found) and 4 more`.
fn named(screening: &Screening, direction: Direction) -> String {
    let ours = screening.findings.iter().filter(|finding| finding.direction == direction);
    let named: Vec<String> = ours.map(|finding| format!("{} ({})", finding.host, finding.why)).collect();
    some(&named, 2)
}

/// Which nodes came to no figure, though their neighbours did.
fn unmeasured(fleet: &Fleet, screening: &Screening) -> Option<String> {
    let screened = screening.screened().flat_map(|cohort| &cohort.nodes);
    let nodes = screened.map(|node| &fleet.nodes[*node]).filter(|node| node.figures.is_empty());
    let names: Vec<String> = nodes.map(|node| node.host.clone()).collect();
    (!names.is_empty()).then(|| format!("{}: nothing was measured that could be compared.", some(&names, 4)))
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
    notes.extend(unmeasured(fleet, screening));
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
