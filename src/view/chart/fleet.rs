//! Charts of a fleet: findings as dots, nodes from the slowest to the fastest.

use super::{Axis, Chart, Limit, Point, Scale, Series, Shape, line, rounded};
use crate::model::fleet::{CohortReport, Finding, Screening};

/// More can't stand beside each other.
const SHOWN: usize = 24;
/// Points of a curve over nodes: more are not told apart.
const POINTS: usize = 200;

/// The greatest deviation of each finding.
pub(in super::super) fn findings(screening: &Screening) -> Vec<Chart> {
    let shown = &screening.findings[..screening.findings.len().min(SHOWN)];
    // A single one stands in the table.
    if shown.len() < 2 {
        return Vec::new();
    }
    let names: Vec<String> = shown.iter().map(|finding| finding.host.clone()).collect();
    let mut causes: Vec<String> = shown.iter().map(cause).collect();
    causes.sort();
    causes.dedup();
    let series = causes.iter().enumerate().map(|(colour, of)| {
        let ours = shown.iter().enumerate().filter(|(_, finding)| cause(finding) == *of);
        let points = ours.map(|(index, finding)| flat(index as f64, 100.0 * finding.worst())).collect();
        Series { shape: Shape::Dot, colour, ..line(of.clone(), points) }
    });
    let x = Axis { names, ..Axis::new("node", "", Scale::Names) };
    let y = Axis::new("greatest deviation, %", "%", Scale::Close);
    let series = series.collect();
    let limits = vec![Limit { name: "median of its likes".into(), at: 0.0 }];
    let title = if screening.findings.len() > SHOWN { "Findings: the greatest" } else { "Findings" };
    let about = "Each node's greatest deviation from the median of nodes of the same hardware, by cause.".into();
    vec![Chart { limits, ..Chart::new(title.into(), about, x, y, series) }]
}

fn cause(finding: &Finding) -> String {
    finding.cause.map_or_else(|| "no cause found".into(), |cause| cause.word().into())
}

/// Nodes of each cohort in order of their deviation, a line a group.
pub(in super::super) fn order(screening: &Screening) -> Vec<Chart> {
    screening.cohorts.iter().filter(|cohort| cohort.left_out.is_none()).filter_map(of_cohort).collect()
}

fn of_cohort(cohort: &CohortReport) -> Option<Chart> {
    let curve = |(group, name): (usize, &String)| {
        let mut all: Vec<f64> = cohort
            .deviations
            .iter()
            .map(|node| 100.0 * node[group])
            .filter(|deviation| deviation.is_finite())
            .collect();
        all.sort_by(f64::total_cmp);
        let step = all.len().div_ceil(POINTS).max(1);
        let last = all.len().saturating_sub(1);
        let points: Vec<Point> = (0..all.len())
            .filter(|rank| rank % step == 0 || *rank == last)
            .map(|rank| flat(100.0 * rank as f64 / last.max(1) as f64, all[rank]))
            .collect();
        Series { colour: group, symbol: group, dash: group / 8, shown: group < 8, ..line(name.clone(), points) }
    };
    let series: Vec<Series> = cohort.groups.iter().enumerate().map(curve).filter(|s| s.points.len() > 1).collect();
    let x = Axis::new("nodes, from the slowest to the fastest, %", "% of nodes", Scale::Linear);
    let y = Axis::new("against the median, %", "%", Scale::Close);
    let about =
        "A step at the left end is a handful of slow nodes; a step in the middle means two kinds of nodes.".into();
    (!series.is_empty())
        .then(|| Chart::new(format!("{}: {} nodes", cohort.name, cohort.nodes.len()), about, x, y, series))
}

fn flat(x: f64, y: f64) -> Point {
    let y = rounded(y);
    (rounded(x), y, y, y, 1)
}
