//! A fleet that was screened: the answer, findings, the slowest and the fastest nodes, how healthy ones spread.

use crate::across::fleet::finding::{Finding, Odd, PERCENTILES, signed};
use crate::across::fleet::gather::Unread;
use crate::across::fleet::nodes::Fleet;
use crate::across::fleet::screening::{CohortReport, Screening};
use crate::across::fleet::since::Since;
use crate::across::fleet::switches::SwitchLine;
use crate::chart::{Axis, Chart, Limit, Point, Scale, Series, Shape, line, rounded};
use crate::section::{Cell, Document, Item, Room, Section, Table};
use crate::wording::some;
use membound_core::in_order::{InOrder, distinct};
use membound_core::units::counted;

/// Findings that are shown unless all are asked for.
const SHOWN: usize = 20;
/// Slowest and fastest nodes of a cohort.
const RANKED: usize = 5;
/// Switches that are shown.
const SWITCHES: usize = 10;
/// Values of an odd setting, and nodes that have one.
const NAMED: usize = 4;
/// More groups beside each other do not fit a terminal.
const GROUPS: usize = 5;
/// Nodes of a cohort in a table, if all are asked for: of the others the charts tell.
const MAPPED: usize = 60;
/// Kinds of hardware that are named on top.
const KINDS: usize = 8;
/// A deviation that has the deepest colour.
const DEEPEST: f64 = 0.15;
/// More findings can't stand beside each other in a chart.
const CHARTED: usize = 24;
/// Points of a curve over nodes: more are not told apart.
const POINTS: usize = 200;

/// The whole answer; `all` shows every finding and switch.
pub fn document(fleet: &Fleet, screening: &Screening, unread: &[Unread], notes: &[String], all: bool) -> Document {
    let screened: Vec<&CohortReport> = screening.screened().collect();
    let sections = [
        findings(screening, all),
        changes(screening, all),
        spreads(&screened),
        nodes(fleet, &screened, all),
        switches(screening, all),
        list("odd", "Not the same on all nodes of a kind", screening.odd.iter().map(odd), usize::MAX, ""),
        list(
            "unread",
            "Records that were not used",
            unread.iter().map(|unread| unread.reason.clone()),
            SHOWN,
            "--format json has",
        ),
        list("notes", "Notes", notes.iter().chain(&screening.notes).cloned(), usize::MAX, ""),
    ];
    let title = format!("A fleet of {}", counted(fleet.nodes.len(), "node"));
    let kinds: Vec<String> =
        screening.cohorts.iter().map(|cohort| format!("{} x {}", cohort.nodes.len(), cohort.name)).collect();
    let more = kinds.len().saturating_sub(KINDS);
    let facts = kinds.into_iter().take(KINDS).chain((more > 0).then(|| format!("and {more} more kinds")));
    let unused = (!unread.is_empty()).then(|| format!("{} could not be used.", counted(unread.len(), "record")));
    let sentences = screening.sentences.iter().cloned().chain(unused).collect();
    Document { facts: facts.collect(), ..Document::new(title, sentences, sections) }
}

fn list(id: &'static str, title: &str, lines: impl Iterator<Item = String>, most: usize, rest: &str) -> Section {
    let mut notes: Vec<String> = lines.collect();
    let left = notes.len().saturating_sub(most);
    notes.truncate(most);
    notes.extend(and_more(left, rest));
    Section { id, title: title.into(), notes, ..Section::default() }
}

/// How many were left out, and what shows them.
fn and_more(left: usize, what: &str) -> Option<String> {
    (left > 0).then(|| format!("and {left} more; {what} them{}", if what.starts_with("--all") { "" } else { " all" }))
}

fn findings(screening: &Screening, all: bool) -> Section {
    let most = if all { usize::MAX } else { SHOWN };
    let title = "Findings: what failed, then what deviates most from the median of nodes of the same hardware";
    let about = "Deviations are of speed: below zero is slower, also where a lower figure is better.";
    Section {
        id: "findings",
        title: title.into(),
        about: about.into(),
        items: screening.findings.iter().take(most).map(finding).collect(),
        notes: and_more(screening.findings.len().saturating_sub(most), "--all lists").into_iter().collect(),
        charts: findings_chart(screening).into_iter().collect(),
        ..Section::default()
    }
}

fn finding(finding: &Finding) -> Item {
    let switch = finding.switch.as_ref().map_or_else(String::new, |name| format!(" (as all of switch {name})"));
    let evidence = (!finding.evidence.is_empty()).then(|| ("seen", finding.evidence.join("; ")));
    let rest = [("cure", finding.cure.clone()), ("test", finding.test.clone())];
    Item { text: format!("{}{switch}", finding.sentence()), below: evidence.into_iter().chain(rest).collect() }
}

fn changes(screening: &Screening, all: bool) -> Section {
    let Some(since) = screening.since.as_ref().filter(|since| since.nodes > 0) else { return Section::default() };
    let most = if all { usize::MAX } else { SHOWN };
    let nodes = since.nodes_changed.iter().map(|node| node.sentence());
    let about = "Each node against itself earlier: what the fleet gained or lost, median over nodes, %.";
    let tables = if since.changes.is_empty() { Vec::new() } else { vec![changed_groups(since)] };
    Section { about: about.into(), tables, ..list("since", "Since the earlier fleet", nodes, most, "--all lists") }
}

fn changed_groups(since: &Since) -> Table {
    let changes = &since.changes;
    Table::new("")
        .left("group", changes.iter().map(|change| change.group.clone()))
        .right("change", changes.iter().map(|change| heated(change.change)))
        .right("± error", changes.iter().map(|change| format!("{:.2}", 100.0 * change.error)))
        .left("nodes of", changes.iter().map(|change| change.cohort.clone()))
        .in_room(Room::Spare)
        .left("", changes.iter().map(|change| if change.is_certain { "beyond chance" } else { "" }))
}

fn spreads(screened: &[&CohortReport]) -> Section {
    let of = |cohort: &&CohortReport| {
        let spreads = &cohort.spreads;
        let table = Table::new(format!("{}: {} nodes", cohort.name, cohort.nodes.len()))
            .left("", spreads.iter().map(|spread| spread.group.clone()))
            .right("cells", spreads.iter().map(|spread| spread.cells.to_string()));
        PERCENTILES.iter().enumerate().fold(table, |table, (index, percent)| {
            table.right(&format!("p{percent}"), spreads.iter().map(|spread| tight(spread.percentiles[index])))
        })
    };
    Section {
        id: "spreads",
        title: "Healthy nodes".into(),
        about: "Against the median, in %: percentiles over nodes. What to expect from one node to the next.".into(),
        tables: screened.iter().filter(|cohort| !cohort.spreads.is_empty()).map(of).collect(),
        ..Section::default()
    }
}

/// The nodes with the lowest and the highest deviations.
fn nodes(fleet: &Fleet, screened: &[&CohortReport], all: bool) -> Section {
    let tables = |cohort: &&CohortReport| {
        let mut places: Vec<usize> = (0..cohort.nodes.len()).filter(|place| cohort.worst(*place).is_finite()).collect();
        places.order_by(|a, b| cohort.worst(*a).total_cmp(&cohort.worst(*b)));
        let most = if all { MAPPED } else { RANKED };
        // No node stands in two tables.
        if places.len() <= most + RANKED {
            return vec![ranked(fleet, cohort, &places, "all")];
        }
        let slowest = ranked(fleet, cohort, &places[..most], "the slowest");
        // The best have no weak side.
        places.reverse();
        places.truncate(RANKED);
        vec![slowest, ranked(fleet, cohort, &places, "the fastest")]
    };
    Section {
        id: "map",
        title: "Nodes and groups".into(),
        about: "How far each group of figures is from the median, in %: the groups in which these nodes differ most. Nodes are in the order \
                of the group in which each is slowest."
            .into(),
        tables: screened.iter().flat_map(tables).collect(),
        charts: screened.iter().filter_map(|cohort| order(cohort)).collect(),
        ..Section::default()
    }
}

/// The groups in which these nodes differ most; a terminal has room for a few, in their usual order.
fn ranked(fleet: &Fleet, cohort: &CohortReport, places: &[usize], which: &str) -> Table {
    let size = |group: usize| {
        places.iter().map(|place| cohort.deviations[*place][group].abs()).filter(|d| d.is_finite()).fold(0.0, f64::max)
    };
    let mut groups: Vec<usize> = (0..cohort.groups.len()).collect();
    groups.order_by(|a, b| size(*b).total_cmp(&size(*a)));
    let most = groups.len().min(GROUPS);
    groups[..most].sort_unstable();
    let table = Table::new(format!("{}: {which} of {} nodes", cohort.name, cohort.nodes.len()))
        .left("", places.iter().map(|place| fleet.nodes[cohort.nodes[*place]].host.clone()))
        .right("overall", places.iter().map(|place| heated(cohort.overall(*place))));
    groups.into_iter().enumerate().fold(table, |table, (rank, group)| {
        let cells = places.iter().map(|place| heated(cohort.deviations[*place][group]));
        let room = if rank < most { Room::Any } else { Room::Wide };
        table.right(&cohort.groups[group].replace(' ', "\n"), cells).in_room(room)
    })
}

fn switches(screening: &Screening, all: bool) -> Section {
    let most = if all { usize::MAX } else { SWITCHES };
    let lines: Vec<&SwitchLine> = screening.switches.iter().take(most).collect();
    if lines.is_empty() {
        return Section::default();
    }
    let table = Table::new("")
        .left("switch", lines.iter().map(|line| line.name.clone()))
        .right("nodes", lines.iter().map(|line| line.nodes.to_string()))
        .right("slow", lines.iter().map(|line| line.slow.to_string()))
        .right("median, %", lines.iter().map(|line| heated(line.deviation)))
        .left("in", lines.iter().map(|line| line.group.clone()))
        .left("", lines.iter().map(|line| if line.is_slow { "all slow" } else { "" }));
    let about = "What hangs on one switch mostly shares a rack: its power, its cooling, a delivery, a firmware.";
    Section {
        id: "switches",
        title: "Switches, by the group in which their nodes are slowest".into(),
        about: about.into(),
        tables: vec![table],
        notes: and_more(screening.switches.len() - lines.len(), "--all lists").into_iter().collect(),
        ..Section::default()
    }
}

fn odd(odd: &Odd) -> String {
    let others = odd.others.iter().take(NAMED).map(|(value, names)| format!("{value} on {}", some(names, NAMED)));
    format!("{}: {}; usual is {}", odd.what, others.collect::<Vec<_>>().join(", "), odd.usual)
}

/// `-12.1`, in percent.
fn tight(share: f64) -> String {
    if share.is_finite() { signed(share).trim_end_matches('%').into() } else { "-".into() }
}

/// The same; the slower, the deeper its colour.
fn heated(share: f64) -> Cell {
    Cell::heated(tight(share), (-share / DEEPEST).clamp(0.0, 1.0))
}

/// The greatest deviation of each finding; a single one needs no chart.
fn findings_chart(screening: &Screening) -> Option<Chart> {
    // A node that only lost cores has none.
    let deviating: Vec<&Finding> = screening.findings.iter().filter(|finding| !finding.deviations.is_empty()).collect();
    let shown = deviating.get(..deviating.len().min(CHARTED)).filter(|shown| shown.len() > 1)?;
    let cause = |of: &Finding| of.cause.map_or_else(|| "no cause found".to_string(), |cause| cause.word().into());
    let causes = distinct(shown.iter().map(|finding| cause(finding)));
    let series = causes.iter().enumerate().map(|(colour, of)| {
        let ours = shown.iter().enumerate().filter(|(_, finding)| cause(finding) == *of);
        let points = ours.map(|(index, finding)| flat(index as f64, 100.0 * finding.worst())).collect();
        Series { shape: Shape::Dot, colour, ..line(of.clone(), points) }
    });
    let names: Vec<String> = shown.iter().map(|finding| finding.host.clone()).collect();
    let x = Axis { names, ..Axis::new("node", "", Scale::Names) };
    let y = Axis::new("greatest deviation, %", "%", Scale::Close);
    let limits = vec![Limit { name: "median of its likes".into(), at: 0.0 }];
    let title = if deviating.len() > CHARTED { "Findings: the greatest" } else { "Findings" };
    let about = "Each node's greatest deviation from the median of nodes of the same hardware, by cause.".into();
    Some(Chart { limits, ..Chart::new(title.into(), about, x, y, series.collect()) })
}

/// The nodes of a cohort from the slowest to the fastest, a line a group.
fn order(cohort: &CohortReport) -> Option<Chart> {
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
    let about = "A step at the left end is a handful of slow nodes; a step in the middle means two kinds of nodes.";
    let title = format!("{}: {} nodes", cohort.name, cohort.nodes.len());
    (!series.is_empty()).then(|| Chart::new(title, about.into(), x, y, series))
}

fn flat(x: f64, y: f64) -> Point {
    let y = rounded(y);
    (rounded(x), y, y, y, 1)
}
