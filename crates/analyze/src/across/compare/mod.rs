//! Two sides held against each other, cell by cell: what differs by more than chance, by how much, and what else is not
//! the same on both. A side is one record or several (runs of the same), or figures by hand.
//!
//! Cells are found on the other side by the first rule that fits: the same case; the same but for the numbers of CPUs,
//! which mean nothing on another machine; the same in the same level, where caches, and so working sets, have other sizes.

pub mod aligned;
pub mod cells;
pub mod comparison;
pub mod environment;
pub mod figures;
pub mod row;
pub mod several;

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::across::compare::aligned::{Pair, align};
use crate::across::compare::cells::{Cell, Hosts, Visit};
use crate::across::compare::comparison::{Comparison, Side, Source};
use crate::across::compare::row::{ComparisonRow, Matched, Verdict};
use crate::of_record::of_visits;
use crate::report::Report;
use crate::visits::Visits;
use membound_core::in_order::{distinct, each_once};
use membound_core::parallel::{self, both};
use membound_core::record::Record;
use membound_core::record::hand_overs::Distance;
use membound_core::stats;
use membound_core::stats::family::{Difference, Sides, differences, undisturbed_value};
use membound_core::stats::states::{Better, VISITS_MIN};
use membound_core::units::{counted, percent};

/// A corrected probability below this is no chance.
const SIGNIFICANT: f64 = 0.05;

/// Compares. `noise` is the share by which figures may differ without being worth a word.
pub fn compare<'a>(a: &'a Side, b: &'a Side, noise: f64) -> Comparison {
    let worked_out = |side: &'a Side| -> Vec<(Visits<'a>, Report)> {
        let Source::Records(records) = &side.source else { return Vec::new() };
        let of_run = |record| {
            let visits = Visits::of(record);
            let report = of_visits(&visits);
            (visits, report)
        };
        records.iter().map(of_run).collect()
    };
    let runs = both(|| worked_out(a), || worked_out(b));
    let records = [a, b].into_iter().flat_map(|side| match &side.source {
        Source::Records(records) => &records[..],
        Source::Figures(_) => &[],
    });
    let hosts = Hosts::of(records);
    let cells_of = |side: &'a Side, runs| match &side.source {
        Source::Records(_) => cells::of_records(runs, &hosts),
        Source::Figures(figures) => cells::of_figures(figures),
    };
    let cells: [Vec<Cell>; 2] = both(|| cells_of(a, &runs.0), || cells_of(b, &runs.1)).into();
    let caches_differ = match (&a.source, &b.source) {
        (Source::Records(a), Source::Records(b)) => environment::caches_differ(a, b),
        _ => false,
    };
    let found = align(&cells[0], &cells[1], caches_differ);
    let mut rows = judged(&found.pairs, noise);
    by_place(&mut rows);
    let one_sided = found.only.iter().flat_map(|(verdict, cells)| cells.iter().map(|cell| lone(cell, *verdict)));
    let changes = match (&a.source, &b.source) {
        (Source::Records(a), Source::Records(b)) => environment::changes(a, b, [&cells[0], &cells[1]]),
        _ => Vec::new(),
    };
    let mut comparison = Comparison {
        names: [a.name.clone(), b.name.clone()],
        about: [about(a), about(b)],
        noise,
        is_by_hand: matches!(a.source, Source::Figures(_)),
        changes,
        rows,
        one_sided: one_sided.collect(),
        findings: Vec::new(),
        notes: Vec::new(),
        reports: named(a, b, [runs.0, runs.1].map(|runs| runs.into_iter().map(|(_, report)| report).collect())),
    };
    comparison.findings = findings(&comparison);
    comparison.notes = notes(&comparison, a, b);
    comparison
}

/// The values of a visit to a cell, as samples of one draw.
type Values<'a> = dyn Fn(&'a Visit, Better) -> Cow<'a, [f64]>;

fn plain(visit: &Visit, _: Better) -> Cow<'_, [f64]> {
    Cow::Borrowed(&visit.values)
}

/// By the clock of the visit; nothing where that was not seen.
fn in_cycles(visit: &Visit, better: Better) -> Cow<'_, [f64]> {
    let cycles = |hz: f64| visit.values.iter().map(move |x| if better == Better::Higher { x / hz } else { x * hz });
    Cow::Owned(visit.clock.map_or_else(Vec::new, |hz| cycles(hz).collect()))
}

/// The rows of matched cells, judged as one family.
fn judged(pairs: &[Pair], noise: f64) -> Vec<ComparisonRow> {
    let (plain, in_cycles) =
        both(|| differences(pairs, |pair| sides(pair, &plain)), || differences(pairs, |pair| sides(pair, &in_cycles)));
    let all: Vec<_> = pairs.iter().zip(plain.iter().zip(in_cycles)).collect();
    parallel::filter_map(&all, |(pair, (found, in_cycles))| Some(row(pair, (**found)?, *in_cycles, noise)))
}

/// Both sides of a cell, by these values of each visit.
fn sides<'a>(Pair { a, b, .. }: &'a Pair, values: &Values<'a>) -> Sides<'a> {
    let distance = met_by([a, b]);
    Sides { better: a.better, group: a.threads(), a: runs(a, distance, values), b: runs(b, distance, values) }
}

/// Where the hosts of both sides had the CPUs often enough, so that like is held against like; close together where that is the same.
fn met_by(sides: [&Cell; 2]) -> Option<Distance> {
    let fewer = |distance: &Distance| sides.map(|cell| visits_at(cell, *distance)).into_iter().min();
    let most = Distance::ALL.iter().copied().rev().max_by_key(fewer)?;
    Some(most).filter(|most| fewer(most) >= Some(VISITS_MIN))
}

fn visits_at(cell: &Cell, distance: Distance) -> usize {
    cell.runs.iter().flatten().filter(|visit| visit.distance == Some(distance)).count()
}

/// Whether hosts had the CPUs of both guests at known places, of which none is common.
fn were_elsewhere(Pair { a, b, .. }: &Pair) -> bool {
    let is_told = |cell: &Cell| {
        let told = Distance::ALL.iter().any(|distance| visits_at(cell, *distance) >= VISITS_MIN);
        told && cell.site.is_some_and(|site| site.is_guest())
    };
    is_told(a) && is_told(b) && met_by([a, b]).is_none()
}

/// The runs in which a cell was measured, with CPUs at this distance where one is given.
fn runs<'a>(cell: &'a Cell, distance: Option<Distance>, values: &Values<'a>) -> Vec<Vec<Cow<'a, [f64]>>> {
    let is_meant = |visit: &&Visit| distance.is_none_or(|distance| visit.distance == Some(distance));
    let of_run = |run: &'a Vec<Visit>| -> Vec<_> {
        run.iter().filter(is_meant).map(|visit| values(visit, cell.better)).collect()
    };
    cell.runs.iter().map(of_run).filter(|run| !run.is_empty()).collect()
}

fn row(pair: &Pair, found: Difference, equal_clock: Option<Difference>, noise: f64) -> ComparisonRow {
    let better = pair.a.better;
    let speed = |ratio: f64| if better == Better::Higher { ratio } else { 1.0 / ratio };
    let were_elsewhere = were_elsewhere(pair);
    // What a place makes of one machine may be no difference.
    let turned = |ends: [f64; 2]| {
        let [low, high] = ends.map(speed);
        let [low, high] = [low.min(high), low.max(high)];
        if were_elsewhere { [low.min(1.0), high.max(1.0)] } else { [low, high] }
    };
    let interval = |found: &Difference| Some(turned(found.test?.ci95));
    let clock = |cell: &Cell| {
        let clocks = cell.runs.iter().flatten().filter_map(|visit| visit.clock);
        stats::quantiles::median(clocks)
    };
    let ratio = speed(found.ratio);
    let row = ComparisonRow {
        matched: Some(pair.matched),
        a: Some(found.a),
        b: Some(found.b),
        speed: Some(ratio),
        speed_ci95: interval(&found),
        speed_ci95_family: found.test.map(|test| turned(test.ci95_family)),
        p: found.test.map(|test| test.p),
        p_family: found.test.map(|test| test.p_family),
        verdict: verdict(ratio, &found, were_elsewhere, noise),
        needed: found.needed,
        speed_at_equal_clock: equal_clock.map(|found| speed(found.ratio)),
        speed_at_equal_clock_ci95: equal_clock.as_ref().and_then(interval),
        clock_hz: clock(&pair.a).zip(clock(&pair.b)).map(|(a, b)| [a, b]),
        draws: found.draws,
        group: pair.group(),
        ..bare(&pair.a, pair.what.clone())
    };
    // Other runs of the side have figures.
    let [a, b] = [&pair.a, &pair.b].map(|cell| cell.fault.as_ref().filter(|fault| fault.is_failure()));
    row.because_of(b.filter(|_| a.is_none()))
}

fn verdict(speed: f64, found: &Difference, were_elsewhere: bool, noise: f64) -> Verdict {
    match found.test.map(|test| test.p_family) {
        None => Verdict::TooFew,
        Some(p) if p >= SIGNIFICANT && found.needed.is_some() => Verdict::TooFew,
        Some(_) if found.is_host_state => Verdict::HostState,
        Some(p) if p >= SIGNIFICANT => Verdict::NotSignificant,
        Some(_) if were_elsewhere => Verdict::HostState,
        // In logarithms, so that it is the same whichever side is called A.
        Some(_) if speed.ln().abs() <= noise.ln_1p() => Verdict::WithinNoise,
        Some(_) if speed > 1.0 => Verdict::Faster,
        Some(_) => Verdict::Slower,
    }
}

fn bare(cell: &Cell, what: String) -> ComparisonRow {
    ComparisonRow {
        metric: "comparison".into(),
        group: cell.group.into(),
        what,
        matched: None,
        unit: cell.unit.into(),
        better: cell.better,
        a: None,
        b: None,
        speed: None,
        speed_ci95: None,
        speed_ci95_family: None,
        p: None,
        p_family: None,
        verdict: Verdict::TooFew,
        speed_at_equal_clock: None,
        speed_at_equal_clock_ci95: None,
        clock_hz: None,
        draws: [0, 0],
        needed: None,
        reason: None,
        is_failure: false,
    }
}

/// A cell without a counterpart.
fn lone(lone: &aligned::Lone, verdict: Verdict) -> ComparisonRow {
    let distance = met_by([lone.cell; 2]);
    let value = undisturbed_value(lone.cell.better, &runs(lone.cell, distance, &plain));
    let (a, b) = if verdict == Verdict::OnlyA { (value, None) } else { (None, value) };
    ComparisonRow { a, b, verdict, ..bare(lone.cell, lone.cell.what()) }.because_of(lone.fault.as_ref())
}

/// Groups in the order in which a reader goes through a machine.
fn place(group: &str) -> (usize, &str) {
    const ORDER: [&str; 14] = [
        "L1",
        "L2",
        "L3",
        "L4",
        "memory",
        "between levels",
        "nodes",
        "under load",
        "cores",
        "first use",
        "pages",
        "offsets",
        "page cache",
        "figures",
    ];
    let first = group.split(" / ").next().unwrap_or_default();
    (ORDER.iter().position(|name| *name == first).unwrap_or(ORDER.len()), group)
}

/// By group, and in it from the largest difference to the least.
fn by_place(rows: &mut [ComparisonRow]) {
    let places = distinct(each_once(rows.iter().map(|row| &*row.group)).into_iter().map(place));
    let groups: Vec<String> = places.into_iter().map(|(_, group)| group.to_string()).collect();
    let rank = |row: &ComparisonRow| groups.iter().position(|group| *group == row.group);
    // Sizes are not negative, so their bits are in their order.
    rows.sort_by_cached_key(|row| (rank(row), Reverse(size(row).to_bits())));
}

/// How much a cell differs, whichever way.
fn size(row: &ComparisonRow) -> f64 {
    row.speed.map_or(0.0, |speed| speed.ln().abs())
}

fn named(a: &Side, b: &Side, reports: [Vec<Report>; 2]) -> Vec<(String, Report)> {
    let [of_a, of_b] = reports;
    let name = |side: &Side, index: usize, count: usize| {
        if count > 1 { format!("{} {}", side.name, index + 1) } else { side.name.clone() }
    };
    let with_names = |side: &Side, reports: Vec<Report>| -> Vec<(String, Report)> {
        let count = reports.len();
        reports.into_iter().enumerate().map(|(index, report)| (name(side, index, count), report)).collect()
    };
    with_names(a, of_a).into_iter().chain(with_names(b, of_b)).collect()
}

fn about(side: &Side) -> String {
    match &side.source {
        Source::Figures(figures) => format!("{} by hand", counted(figures.len() as u64, "figure")),
        Source::Records(records) => {
            let count = if records.len() == 1 { "1 record".into() } else { format!("{} records", records.len()) };
            let hosts = distinct(records.iter().map(|record| record.header.host.as_str()));
            let first = records.iter().map(|record| record.header.started_unix_s).min().unwrap_or(0);
            let at = membound_core::units::utc(first);
            format!("{count} of {}, {at}", hosts.join(", "))
        }
    }
}

fn findings(comparison: &Comparison) -> Vec<String> {
    let all = comparison.rows.len();
    let count = |verdict| comparison.count(verdict);
    let cells = counted(all as u64, if comparison.is_by_hand { "figure" } else { "cell" });
    let mut findings = Vec::new();
    if count(Verdict::TooFew) == all {
        let speeds = || comparison.rows.iter().filter_map(|row| row.speed);
        let (least, most) = speeds().fold((f64::INFINITY, 0f64), |(low, high), x| (low.min(x), high.max(x)));
        let range = if all == 1 { percent(least) } else { format!("{} to {}", percent(least), percent(most)) };
        let cure = comparison.more_values();
        findings.push(format!("B has {range} of A's speed in {cells}; whether that is chance can't be said: {cure}."));
    } else {
        let noise = percent(comparison.noise);
        findings.push(format!(
            "B is faster in {} of {cells} and slower in {} (family-wise 95 %, beyond {noise}).",
            count(Verdict::Faster),
            count(Verdict::Slower)
        ));
    }
    findings.extend(comparison.broken_sentence());
    findings.extend([Verdict::Slower, Verdict::Faster].into_iter().filter_map(|verdict| most(comparison, verdict)));
    let mut rest = Vec::new();
    for (verdict, words) in [
        (Verdict::NotSignificant, "without a significant difference"),
        (Verdict::WithinNoise, "with one within the noise allowed"),
        (Verdict::HostState, "that a state of a host explains"),
        (Verdict::TooFew, "with too few visits to tell"),
    ] {
        if count(verdict) > 0 && count(verdict) < all {
            rest.push(format!("{} {words}", count(verdict)));
        }
    }
    if !rest.is_empty() {
        findings.push(format!("The others: {}.", rest.join(", ")));
    }
    if let Some(reach) = half_width(comparison) {
        findings.push(format!(
            "Half of the 95 % intervals reach {} or farther to a side: what is smaller may hide there.",
            percent(reach)
        ));
    }
    findings
}

/// The typical half-width of an interval.
fn half_width(comparison: &Comparison) -> Option<f64> {
    let width = |row: &ComparisonRow| row.speed_ci95.map(|[low, high]| (high / low).sqrt() - 1.0);
    stats::quantiles::median(comparison.rows.iter().filter_map(width))
}

/// A share as people compare machines: `68.9 %`.
fn share(speed: f64) -> String {
    format!("{:.1} %", 100.0 * speed)
}

/// The cell that differs most in one direction.
fn most(comparison: &Comparison, verdict: Verdict) -> Option<String> {
    let rows = comparison.rows.iter().filter(|row| row.verdict == verdict);
    let row = rows.max_by(|x, y| size(x).total_cmp(&size(y)))?;
    let interval = row.speed_ci95.map_or_else(String::new, |[low, high]| format!(" [{}, {}]", share(low), share(high)));
    Some(format!("Most {verdict}: {} ({}), {}{interval} of A's speed.", row.what, row.group, share(row.speed?)))
}

fn notes(comparison: &Comparison, a: &Side, b: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    let few = comparison.count(Verdict::TooFew);
    if few > 0 && comparison.is_by_hand {
        notes.push(format!(
            "Figures with one value a side, and so without an interval: {few}. Give each run a line of the same name."
        ));
    } else if few > 0 {
        let needed = comparison.rows.iter().filter_map(|row| row.needed).max();
        let visits =
            needed.map_or_else(|| "two rounds or more".into(), |needed| format!("{needed} visits on each side"));
        notes.push(format!(
            "{few} cells have too few visits to tell a difference from chance or from disturbed visits: {visits} needed (a \
             larger --budget, or folders of several records)."
        ));
    }
    for (word, side) in [("A", a), ("B", b)] {
        let Source::Records(records) = &side.source else { continue };
        let broken = records.iter().filter(|record| record.is_cut_off()).count();
        if broken > 0 {
            notes.push(format!(
                "{word}: {broken} of {} records did not come to their end; the visits that are whole count.",
                records.len()
            ));
        }
        let stopped = records.iter().filter(|record| record.end.as_ref().is_some_and(|end| end.interrupted)).count();
        if stopped > 0 {
            notes.push(format!("{word}: {stopped} of {} records were stopped before their end.", records.len()));
        }
    }
    if let (Source::Records(a), Source::Records(b)) = (&a.source, &b.source) {
        if a.len() == 1 && b.len() == 1 {
            notes.push(
                "One run a side: how far runs differ is only guessed from how far the halves of each do. Folders with several \
                 records show it, and find smaller differences."
                    .into(),
            );
        } else if a.len() == 1 || b.len() == 1 {
            notes.push(
                "One side has a single run: runs of it are taken to differ as much as those of the other.".into(),
            );
        }
        if a.iter().chain(b).any(has_addrmap) {
            notes.push("Address maps are verdicts and are not compared here; see membound report.".into());
        }
    }
    for (matched, words) in [
        (Matched::Meaning, "by threads and nodes, as the sides have other CPUs"),
        (Matched::Level, "by level, as their working sets differ: the largest in each level"),
    ] {
        let count = comparison.rows.iter().filter(|row| row.matched == Some(matched)).count();
        if count > 0 {
            notes.push(format!("{count} cells were matched {words}."));
        }
    }
    notes
}

fn has_addrmap(record: &Record) -> bool {
    record.measurements.iter().any(|visit| matches!(visit.case.work, membound_core::case::Work::Conflict(_)))
}
