//! A fleet that was screened: the answer, findings, how healthy nodes spread, the worst and the best.

use super::{Column, head, item, note, paragraph, table};
use crate::model::fleet::{CohortReport, Finding, Fleet, Odd, PERCENTILES, Screening, Unread, signed};

/// Findings that are shown in full unless all are asked for.
const SHOWN: usize = 20;
/// Worst and best nodes of a cohort.
const RANKED: usize = 5;
/// Switches that are shown.
const SWITCHES: usize = 10;
/// Groups of nodes that are named with an odd setting.
const NAMED: usize = 4;
/// What is left for a name.
const NAME: usize = 24;

/// The whole answer; `all` shows every finding and node.
pub fn fleet(fleet: &Fleet, screening: &Screening, unread: &[Unread], notes: &[String], all: bool) -> String {
    let mut sections = vec![answer(screening), findings(screening, all), changes(screening, all)];
    sections.extend(screening.cohorts.iter().filter(|cohort| cohort.left_out.is_none()).map(spreads));
    sections.extend(
        screening.cohorts.iter().filter(|cohort| cohort.left_out.is_none()).map(|cohort| ranked(fleet, cohort, all)),
    );
    sections.extend([switches(screening, all), odd(screening), not_used(unread), remarks(screening, notes)]);
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

fn answer(screening: &Screening) -> String {
    let (first, rest) = screening.sentences.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    head(first) + &rest.iter().map(|text| item(text)).collect::<String>()
}

fn findings(screening: &Screening, all: bool) -> String {
    if screening.findings.is_empty() {
        return String::new();
    }
    let most = if all { usize::MAX } else { SHOWN };
    let shown: String = screening.findings.iter().take(most).map(finding).collect();
    let more = match screening.findings.len().saturating_sub(most) {
        0 => String::new(),
        left => note(&format!("and {left} more; --all lists them")),
    };
    head("Findings: what deviates most first, against the median of nodes of the same hardware") + &shown + &more
}

fn finding(finding: &Finding) -> String {
    let switch = finding.switch.as_ref().map_or_else(String::new, |name| format!(" (as all of switch {name})"));
    let evidence = finding.evidence.join("; ");
    let known = if evidence.is_empty() { String::new() } else { paragraph(&evidence, "    ") };
    item(&format!("{}{switch}", finding.sentence()))
        + &known
        + &paragraph(&format!("-> {}", finding.cure), "    ")
        + &paragraph(&format!("test: {}", finding.test), "    ")
}

fn changes(screening: &Screening, all: bool) -> String {
    let Some(since) = screening.since.as_ref().filter(|since| !since.nodes_changed.is_empty()) else {
        return String::new();
    };
    let most = if all { usize::MAX } else { SHOWN };
    let shown: String = since.nodes_changed.iter().take(most).map(|node| item(&node.sentence())).collect();
    let more = match since.nodes_changed.len().saturating_sub(most) {
        0 => String::new(),
        left => note(&format!("and {left} more; --all lists them")),
    };
    head("Nodes that changed since the earlier fleet") + &shown + &more
}

fn spreads(cohort: &CohortReport) -> String {
    let spreads = &cohort.spreads;
    let mut columns = vec![
        Column::left("", spreads.iter().map(|spread| short(&spread.group))),
        Column::right("cells", spreads.iter().map(|spread| spread.cells.to_string())),
    ];
    for (index, percent) in PERCENTILES.iter().enumerate() {
        let cells = spreads.iter().map(|spread| tight(spread.percentiles[index]));
        columns.push(Column::right(&format!("p{percent}"), cells));
    }
    head(&format!("{}: {} nodes", cohort.name, cohort.nodes.len()))
        + &note("Healthy nodes against the median, in %: percentiles over nodes.")
        + &table(&columns)
}

/// The nodes with the lowest and the highest deviations.
fn ranked(fleet: &Fleet, cohort: &CohortReport, all: bool) -> String {
    let mut places: Vec<usize> = (0..cohort.nodes.len()).filter(|place| cohort.worst(*place).is_finite()).collect();
    places.sort_by(|a, b| cohort.worst(*a).total_cmp(&cohort.worst(*b)));
    let count = if all { places.len() } else { RANKED.min(places.len()) };
    let worst = nodes(fleet, cohort, &places[..count], "Slowest nodes");
    if all || places.len() <= RANKED {
        return worst;
    }
    // The best have no weak side.
    places.reverse();
    worst + "\n" + &nodes(fleet, cohort, &places[..RANKED], "Fastest nodes")
}

/// A table as wide as fits: the groups in which these nodes differ most.
fn nodes(fleet: &Fleet, cohort: &CohortReport, places: &[usize], title: &str) -> String {
    /// More columns do not fit.
    const GROUPS: usize = 5;
    let size = |group: usize| {
        places.iter().map(|place| cohort.deviations[*place][group].abs()).filter(|d| d.is_finite()).fold(0.0, f64::max)
    };
    let mut groups: Vec<usize> = (0..cohort.groups.len()).collect();
    groups.sort_by(|a, b| size(*b).total_cmp(&size(*a)));
    groups.truncate(GROUPS);
    groups.sort_unstable();
    let name = |place: &usize| short(&fleet.nodes[cohort.nodes[*place]].host);
    let mut columns = vec![Column::left("", places.iter().map(name))];
    columns.push(Column::right("overall", places.iter().map(|place| tight(cohort.overall(*place)))));
    for group in groups {
        let cells = places.iter().map(|place| tight(cohort.deviations[*place][group]));
        columns.push(Column::right(&cohort.groups[group].replace(' ', "\n"), cells));
    }
    head(&format!("{title}, % against the median")) + &table(&columns)
}

fn switches(screening: &Screening, all: bool) -> String {
    if screening.switches.is_empty() {
        return String::new();
    }
    let most = if all { usize::MAX } else { SWITCHES };
    let lines: Vec<_> = screening.switches.iter().take(most).collect();
    let columns = [
        Column::left("switch", lines.iter().map(|line| short(&line.name))),
        Column::right("nodes", lines.iter().map(|line| line.nodes.to_string())),
        Column::right("slow", lines.iter().map(|line| line.slow.to_string())),
        Column::right("median, %", lines.iter().map(|line| tight(line.deviation))),
        Column::left("in", lines.iter().map(|line| line.group.clone())),
        Column::left("", lines.iter().map(|line| if line.is_slow { "all slow".into() } else { String::new() })),
    ];
    let more = match screening.switches.len().saturating_sub(most) {
        0 => String::new(),
        left => note(&format!("and {left} more; --all lists them")),
    };
    head("Switches, by the group in which their nodes are slowest") + &table(&columns) + &more
}

fn odd(screening: &Screening) -> String {
    let line = |odd: &Odd| {
        let others: Vec<String> =
            odd.others.iter().take(NAMED).map(|(value, names)| format!("{value} on {}", some(names))).collect();
        item(&format!("{}: {}; usual is {}", odd.what, others.join(", "), odd.usual))
    };
    let lines: String = screening.odd.iter().map(line).collect();
    if lines.is_empty() { lines } else { head("Not the same on all nodes of a kind") + &lines }
}

fn some(names: &[String]) -> String {
    match names.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        left => format!("{} and {left} more", names[..NAMED].join(", ")),
    }
}

fn not_used(unread: &[Unread]) -> String {
    let lines: String = unread.iter().take(SHOWN).map(|unread| item(&unread.reason)).collect();
    let more = match unread.len().saturating_sub(SHOWN) {
        0 => String::new(),
        left => note(&format!("and {left} more; --format json has them all")),
    };
    if lines.is_empty() { lines } else { head("Records that were not used") + &lines + &more }
}

fn remarks(screening: &Screening, notes: &[String]) -> String {
    notes.iter().chain(&screening.notes).map(|text| item(text)).collect()
}

/// `-12.1`, in percent.
fn tight(share: f64) -> String {
    if share.is_finite() { signed(share).trim_end_matches('%').into() } else { "-".into() }
}

/// The end is cut.
fn short(name: &str) -> String {
    if name.chars().count() <= NAME { name.into() } else { name.chars().take(NAME - 3).collect::<String>() + "..." }
}
