//! What screening found as tidy rows, for programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::across::fleet::finding::{Deviation, Direction, PERCENTILES};
use crate::across::fleet::gather::Unread;
use crate::across::fleet::nodes::Fleet;
use crate::across::fleet::screening::Screening;
use membound_core::units::words;

words! {
    /// What a row tells of.
    Metric, "metric" {
        /// A node that is not like its neighbours.
        Finding = "finding",
        /// The deviation of a node in a group of cells.
        Node = "node",
        /// How healthy nodes spread in a group.
        Spread = "spread",
        /// What is typical of a cell.
        Cell = "cell",
        /// The nodes below a switch.
        Switch = "switch",
        /// What a cohort gained or lost since an earlier fleet.
        Change = "change",
        /// A node that gained or lost otherwise than its neighbours.
        NodeChange = "node-change",
        /// A record that was not used.
        Unread = "unread",
    }
}

/// A row. A field is absent where the metric has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenRow {
    /// What it tells of.
    pub metric: Metric,
    /// The cohort in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cohort: Option<String>,
    /// The node, or the switch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// The group of cells: of a finding the one that deviates most; of a cell, what it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// Deviation from the cohort's median as a share: -0.12 is 12 % slower, whichever way figures are better.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deviation: Option<f64>,
    /// Probability of it by chance, for itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p: Option<f64>,
    /// Of a finding: failed, slower or faster.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub direction: Option<Direction>,
    /// All groups that deviate, most first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub groups: Vec<Deviation>,
    /// The cause, by the words of a verdict.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// The answer in a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sentence: Option<String>,
    /// How the cause is known, or why a record was not used.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub evidence: Vec<String>,
    /// What helps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cure: Option<String>,
    /// The command that tests it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub test: Option<String>,
    /// The slow switch that a node hangs on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub switch: Option<String>,
    /// Nodes behind the row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nodes: Option<usize>,
    /// Of a cell: the cohort's median in `unit`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub median: Option<f64>,
    /// Unit of `median`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<String>,
    /// Of a cell: relative standard deviation from node to node. Of a change: its standard error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scale: Option<f64>,
    /// Of a spread: deviations at the 1st, 5th, 25th, 50th, 75th, 95th and 99th percentile of healthy nodes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percentiles: Option<[f64; PERCENTILES.len()]>,
}

impl ScreenRow {
    fn of(metric: Metric) -> Self {
        ScreenRow {
            metric,
            cohort: None,
            host: None,
            file: None,
            direction: None,
            group: None,
            deviation: None,
            p: None,
            groups: Vec::new(),
            cause: None,
            sentence: None,
            evidence: Vec::new(),
            cure: None,
            test: None,
            switch: None,
            nodes: None,
            median: None,
            unit: None,
            scale: None,
            percentiles: None,
        }
    }
}

/// All rows: findings, switches, changes, then what they come from.
pub fn rows(fleet: &Fleet, screening: &Screening, unread: &[Unread]) -> Vec<ScreenRow> {
    let mut rows: Vec<ScreenRow> = findings(fleet, screening);
    rows.extend(switches(screening));
    rows.extend(changes(screening));
    rows.extend(cohorts(fleet, screening));
    rows.extend(unread.iter().map(|unread| ScreenRow {
        file: Some(unread.file.clone()),
        evidence: vec![unread.reason.clone()],
        ..ScreenRow::of(Metric::Unread)
    }));
    rows
}

fn findings(fleet: &Fleet, screening: &Screening) -> Vec<ScreenRow> {
    let row = |finding: &crate::across::fleet::finding::Finding| ScreenRow {
        cohort: Some(screening.cohorts[finding.cohort].name.clone()),
        host: Some(finding.host.clone()),
        file: Some(fleet.nodes[finding.node].file.clone()),
        direction: Some(finding.direction),
        group: finding.deviations.first().map(|worst| worst.group.clone()),
        deviation: finding.deviations.first().map(|worst| worst.deviation),
        p: finding.deviations.first().map(|worst| worst.p),
        groups: finding.deviations.clone(),
        cause: finding.cause.map(|cause| cause.word().into()),
        sentence: Some(finding.sentence()),
        evidence: finding.evidence.clone(),
        cure: Some(finding.cure.clone()),
        test: Some(finding.test.clone()),
        switch: finding.switch.clone(),
        ..ScreenRow::of(Metric::Finding)
    };
    screening.findings.iter().map(row).collect()
}

fn switches(screening: &Screening) -> Vec<ScreenRow> {
    let row = |line: &crate::across::fleet::switches::SwitchLine| ScreenRow {
        host: Some(line.name.clone()),
        group: Some(line.group.clone()),
        deviation: Some(line.deviation),
        p: Some(line.p),
        nodes: Some(line.nodes),
        sentence: line.is_slow.then(|| line.sentence()),
        ..ScreenRow::of(Metric::Switch)
    };
    screening.switches.iter().map(row).collect()
}

fn changes(screening: &Screening) -> Vec<ScreenRow> {
    let Some(since) = &screening.since else { return Vec::new() };
    let of_fleet = since.changes.iter().map(|change| ScreenRow {
        cohort: Some(change.cohort.clone()),
        group: Some(change.group.clone()),
        deviation: Some(change.change),
        scale: Some(change.error),
        ..ScreenRow::of(Metric::Change)
    });
    let of_nodes = since.nodes_changed.iter().map(|node| ScreenRow {
        cohort: Some(node.cohort.clone()),
        host: Some(node.host.clone()),
        group: node.deviations.first().map(|worst| worst.group.clone()),
        deviation: node.deviations.first().map(|worst| worst.deviation),
        p: node.deviations.first().map(|worst| worst.p),
        groups: node.deviations.clone(),
        sentence: Some(node.sentence()),
        evidence: node.settings.clone(),
        ..ScreenRow::of(Metric::NodeChange)
    });
    of_fleet.chain(of_nodes).collect()
}

fn cohorts(fleet: &Fleet, screening: &Screening) -> Vec<ScreenRow> {
    let mut rows = Vec::new();
    for cohort in &screening.cohorts {
        let name = Some(cohort.name.clone());
        rows.extend(cohort.spreads.iter().map(|spread| ScreenRow {
            cohort: name.clone(),
            group: Some(spread.group.clone()),
            percentiles: Some(spread.percentiles),
            nodes: Some(cohort.nodes.len()),
            ..ScreenRow::of(Metric::Spread)
        }));
        rows.extend(cohort.cells.iter().map(|cell| ScreenRow {
            cohort: name.clone(),
            group: Some(fleet.cells[cell.cell].what.clone()),
            median: Some(cell.median),
            unit: Some(fleet.cells[cell.cell].unit.into()),
            scale: Some(cell.scale),
            nodes: Some(cell.nodes),
            ..ScreenRow::of(Metric::Cell)
        }));
        for (node, deviations) in cohort.nodes.iter().zip(&cohort.deviations) {
            let node = &fleet.nodes[*node];
            let known = cohort.groups.iter().zip(deviations).filter(|(_, deviation)| deviation.is_finite());
            rows.extend(known.map(|(group, deviation)| ScreenRow {
                cohort: name.clone(),
                host: Some(node.host.clone()),
                file: Some(node.file.clone()),
                group: Some(group.clone()),
                deviation: Some(*deviation),
                ..ScreenRow::of(Metric::Node)
            }));
        }
    }
    rows
}
