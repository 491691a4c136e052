//! The page of a fleet: findings, the map of nodes and groups, spreads.

use maud::{Markup, html};

use super::{Section, boxed, charts, document, text};
use crate::model::fleet::{CohortReport, Finding, Fleet, PERCENTILES, Screening, SwitchLine, Unread, signed};
use crate::view::chart;

/// Nodes of a cohort in the map: the slowest; of the others the charts tell.
const MAPPED: usize = 60;
/// Findings in the table.
const LISTED: usize = 500;
/// Kinds of hardware on the first screen.
const KINDS: usize = 8;
/// Share of the heat's colour in the deepest cell: text on it must stay readable, in light and dark.
const HEAT_MOST: f64 = 60.0;
/// A deviation that has the deepest colour.
const DEEPEST: f64 = 0.15;

const FINDINGS: &str = "Nodes that are not like others of the same hardware by more than chance, what deviates most first. Deviations \
    are of speed: below zero is slower, also where a lower figure is better.";
const MAP: &str = "The slowest nodes of each kind and how far each group of figures is from the median, in %. The deeper the colour, \
    the slower.";
const SPREADS: &str = "Healthy nodes alone: what to expect from one node to the next.";

/// The page.
pub fn fleet(fleet: &Fleet, screening: &Screening, unread: &[Unread], notes: &[String]) -> String {
    let sections = [
        findings(screening),
        switches(screening),
        since(screening),
        map(fleet, screening),
        spreads(screening),
        odd(screening),
        remarks(screening, unread, notes),
    ];
    let sections: Vec<Section> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    let tool = concat!("membound ", env!("CARGO_PKG_VERSION"), " fleet screen");
    document("fleet", first_screen(fleet, screening), tool, &sections).into_string()
}

fn first_screen(fleet: &Fleet, screening: &Screening) -> Markup {
    html! {
        h1 { "A fleet of " (fleet.nodes.len()) @if fleet.nodes.len() == 1 { " node" } @else { " nodes" } }
        p.facts {
            @for cohort in screening.cohorts.iter().take(KINDS) { (cohort.nodes.len()) " × " (cohort.name) br; }
            @if screening.cohorts.len() > KINDS { "and " (screening.cohorts.len() - KINDS) " more kinds" }
        }
        @for (index, sentence) in screening.sentences.iter().enumerate() {
            p.lead[index == 0].finding[index > 0] { (sentence) }
        }
    }
}

fn findings(screening: &Screening) -> Section {
    let table = || {
        boxed(
            "Findings, each with its evidence, its cure and the command that tests it",
            html! {
                thead { tr { th { "node" } th.num { "%" } th { "in" } th { "why" } th { "known by" } th { "cure" } th { "test" } } }
                tbody { @for finding in screening.findings.iter().take(LISTED) { (line(finding)) } }
            },
        )
    };
    let body = (!screening.findings.is_empty()).then(table);
    Section { body, ..charts("findings", "Findings", FINDINGS, chart::fleet_findings(screening)) }
}

fn line(finding: &Finding) -> Markup {
    html! { tr {
        th { (finding.host) @if let Some(switch) = &finding.switch { br; small { "switch " (switch) } } }
        td.num { (share(finding.worst())) }
        td.wrap { @for (index, deviation) in finding.deviations.iter().enumerate() {
            @if index > 0 { br; }
            (deviation.group) " " small { (signed(deviation.deviation)) }
        } }
        td.wrap { (finding.why) @if !finding.alike.is_empty() { br; small { (finding.alike.join(", ")) " as its neighbours" } } }
        td.wrap { @for (index, evidence) in finding.evidence.iter().enumerate() { @if index > 0 { br; } (evidence) } }
        td.wrap { (finding.cure) }
        td.wrap { code { (finding.test) } }
    } }
}

/// `-12.1`, in percent.
fn share(deviation: f64) -> String {
    if deviation.is_finite() { signed(deviation).trim_end_matches('%').into() } else { "–".into() }
}

fn heat(deviation: f64) -> Markup {
    let depth = (-deviation / DEEPEST).clamp(0.0, 1.0);
    let depth = if depth.is_finite() { HEAT_MOST * depth } else { 0.0 };
    html! { td.num.heat style={ "--heat: " (format!("{depth:.0}%")) } { (share(deviation)) } }
}

fn map(fleet: &Fleet, screening: &Screening) -> Section {
    let screened = || screening.cohorts.iter().filter(|cohort| cohort.left_out.is_none());
    let body = || html! { @for cohort in screened() { (heat_map(fleet, cohort)) } };
    let body = screened().next().is_some().then(body);
    Section { body, ..charts("map", "Nodes and groups", MAP, chart::fleet_order(screening)) }
}

fn heat_map(fleet: &Fleet, cohort: &CohortReport) -> Markup {
    let mut places: Vec<usize> = (0..cohort.nodes.len()).filter(|place| cohort.worst(*place).is_finite()).collect();
    places.sort_by(|a, b| cohort.worst(*a).total_cmp(&cohort.worst(*b)));
    let left = places.len().saturating_sub(MAPPED);
    places.truncate(MAPPED);
    let more = if left > 0 { format!("; {left} faster ones are left out") } else { String::new() };
    boxed(
        &format!("{}: the slowest of {} nodes{more}", cohort.name, cohort.nodes.len()),
        html! {
            thead { tr { th { "node" } th.num { "overall" } @for group in &cohort.groups { th.num { (group) } } } }
            tbody { @for place in &places { tr {
                th { (fleet.nodes[cohort.nodes[*place]].host) }
                (heat(cohort.overall(*place)))
                @for deviation in &cohort.deviations[*place] { (heat(*deviation)) }
            } } }
        },
    )
}

fn switches(screening: &Screening) -> Section {
    let groups = screening.cohorts.first().map(|cohort| cohort.groups.clone()).unwrap_or_default();
    let fits = |line: &&SwitchLine| line.deviations.len() == groups.len();
    let table = || {
        boxed(
            "Switches: medians over the nodes below each, %",
            html! {
                thead { tr { th { "switch" } th.num { "nodes" } th.num { "slow" } @for group in &groups { th.num { (group) } } th { "" } } }
                tbody { @for line in screening.switches.iter().filter(fits) { tr {
                    th { (line.name) }
                    td.num { (line.nodes) }
                    td.num { (line.slow) }
                    @for deviation in &line.deviations { (heat(*deviation)) }
                    td { @if line.is_slow { "all slow" } }
                } } }
            },
        )
    };
    let about = "What hangs on one switch mostly shares a rack: its power, its cooling, a delivery, a firmware.";
    text("switches", "Switches", about, (!screening.switches.is_empty()).then(table))
}

fn since(screening: &Screening) -> Section {
    let Some(since) = screening.since.as_ref().filter(|since| since.nodes > 0) else {
        return text("since", "Since then", "", None);
    };
    let body = html! {
        (boxed("What the fleet gained or lost, median over nodes, %", html! {
            thead { tr { th { "group" } th.num { "change" } th.num { "± error" } th { "nodes of" } th { "" } } }
            tbody { @for change in &since.changes { tr {
                th { (change.group) }
                (heat(change.change))
                td.num { (format!("{:.2}", 100.0 * change.error)) }
                td { (change.cohort) }
                td { @if change.is_certain { "beyond chance" } }
            } } }
        }))
        @if !since.nodes_changed.is_empty() {
            ul { @for node in since.nodes_changed.iter().take(LISTED) { li { (node.sentence()) } } }
        }
    };
    text("since", "Since the earlier fleet", "Each node against itself earlier.", Some(body))
}

fn spreads(screening: &Screening) -> Section {
    let of = |cohort: &CohortReport| {
        boxed(
            &format!("{}: percentiles over healthy nodes, % against the median", cohort.name),
            html! {
                thead { tr { th { "group" } th.num { "cells" } @for percent in PERCENTILES { th.num { (percent) } } } }
                tbody { @for spread in &cohort.spreads { tr {
                    th { (spread.group) }
                    td.num { (spread.cells) }
                    @for deviation in spread.percentiles { td.num { (share(deviation)) } }
                } } }
            },
        )
    };
    let screened: Vec<&CohortReport> = screening.cohorts.iter().filter(|cohort| !cohort.spreads.is_empty()).collect();
    let body = || html! { @for cohort in &screened { (of(cohort)) } };
    text("spreads", "Healthy nodes", SPREADS, (!screened.is_empty()).then(body))
}

fn odd(screening: &Screening) -> Section {
    let table = || {
        boxed(
            "Settings and facts that are not the same on all nodes of a kind",
            html! {
                thead { tr { th { "what" } th { "usual" } th { "other" } th.num { "nodes" } th { "on" } } }
                tbody { @for odd in &screening.odd { @for (value, names) in &odd.others { tr {
                    th { (odd.what) }
                    td { (odd.usual) }
                    td { (value) }
                    td.num { (names.len()) }
                    td.wrap { (names.iter().take(8).cloned().collect::<Vec<_>>().join(", ")) @if names.len() > 8 { " …" } }
                } } } }
            },
        )
    };
    text(
        "odd",
        "Not the same",
        "These alone are no findings: a setting that slows nothing down is none.",
        (!screening.odd.is_empty()).then(table),
    )
}

fn remarks(screening: &Screening, unread: &[Unread], notes: &[String]) -> Section {
    let is_empty = screening.notes.is_empty() && unread.is_empty() && notes.is_empty();
    let list = || {
        html! {
            @if !unread.is_empty() {
                p { (unread.len()) " records were not used:" }
                ul { @for unread in unread.iter().take(LISTED) { li { (unread.reason) } } }
            }
            ul { @for note in notes.iter().chain(&screening.notes) { li { (note) } } }
        }
    };
    text("notes", "Notes", "", (!is_empty).then(list))
}
