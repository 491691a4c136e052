//! Two sides held against each other, cell by cell: what differs by more than chance, by how much, and what else is not
//! the same on both. A side is one record or several (runs of the same), or figures by hand.
//!
//! Cells are found on the other side by the first rule that fits: the same case; the same but for the numbers of CPUs,
//! which mean nothing on another machine; the same in the same level, where caches, and so working sets, have other sizes.

mod aligned;
pub(in crate::model) mod cells;
pub(in crate::model) mod environment;
mod figures;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::aligned::{Pair, align};
use self::cells::{Cell, Visit};
use crate::model::{Report, rows};
use crate::record::Record;
use crate::stats::{Difference, Sides, differences};
use crate::units::{percent, words};

pub use environment::Change;
pub use figures::{Figure, FigureError};

/// A corrected probability below this is no chance.
const SIGNIFICANT: f64 = 0.05;

words! {
    /// Which way a figure is better.
    Better, "direction" {
        /// More is better: bandwidths.
        Higher = "higher",
        /// Less is better: latencies, costs.
        Lower = "lower",
    }
}

words! {
    /// What is to be said of a cell. Families are all cells of a comparison.
    Verdict, "verdict" {
        /// B is better, by more than chance (family-wise 95 %) and noise.
        Faster = "faster",
        /// B is worse, by more than chance and noise.
        Slower = "slower",
        /// B differs by more than chance, but not beyond the noise that was allowed.
        WithinNoise = "within-noise",
        /// The difference may be chance.
        NotSignificant = "not-significant",
        /// Too few visits or records to tell.
        TooFew = "too-few",
        /// There is a figure of A alone.
        OnlyA = "only-a",
        /// There is a figure of B alone.
        OnlyB = "only-b",
    }
}

words! {
    /// By which rule the two sides of a cell were found to be the same.
    Matched, "rule" {
        /// All is the same.
        Case = "case",
        /// All but the numbers of the CPUs; where several CPUs mean the same, they are one cell.
        Meaning = "meaning",
        /// All but numbers of CPUs and the working set: the largest in the same level of each side.
        Level = "level",
        /// Figures by hand: name and unit.
        Name = "name",
    }
}

/// One side of a comparison.
#[derive(Debug, Clone)]
pub enum Source {
    /// Runs of the same, one record each.
    Records(Vec<Record>),
    /// Figures by hand.
    Figures(Vec<Figure>),
}

/// A side with its name.
#[derive(Debug, Clone)]
pub struct Side {
    /// How it is called: its file or folder.
    pub name: String,
    /// What it holds.
    pub source: Source,
}

/// A cell of the comparison: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparisonRow {
    /// `comparison`.
    pub metric: String,
    /// The level or experiment that it belongs to: `L1`, `memory`, `pages`, ...; two levels where they are not the same.
    pub group: String,
    /// What was measured, in words.
    pub what: String,
    /// By which rule the sides were matched; absent for a figure of one side.
    pub matched: Option<Matched>,
    /// Unit of `a` and `b`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Side A: geometric mean of the medians of its visits, or of its runs where a side has several.
    pub a: Option<f64>,
    /// Side B.
    pub b: Option<f64>,
    /// Speed of B against A: above 1 B is better, whichever way figures are better (b / a, or a / b).
    pub speed: Option<f64>,
    /// Its 95 % interval, of this cell for itself: [low, high]. Absent where there are too few draws.
    pub speed_ci95: Option<[f64; 2]>,
    /// Probability of such a difference by chance, of this cell for itself.
    pub p: Option<f64>,
    /// The same corrected for the number of cells (Holm): below 0.05 it is significant.
    pub p_family: Option<f64>,
    /// What is to be said.
    pub verdict: Verdict,
    /// Speed of B against A if both cores had the same clock (`a` and `b` in core clock cycles). Absent where a clock is not
    /// known.
    pub speed_at_equal_clock: Option<f64>,
    /// Its 95 % interval.
    pub speed_at_equal_clock_ci95: Option<[f64; 2]>,
    /// Core clock of each side in hertz.
    pub clock_hz: Option<[f64; 2]>,
    /// Independent observations of each side: visits, or runs where a side has several.
    pub draws: [usize; 2],
    /// Why one side has no figure, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A whole comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Names of the sides.
    pub names: [String; 2],
    /// What each side is, in words.
    pub about: [String; 2],
    /// The noise that was allowed: a share, 0.01 for 1 %.
    pub noise: f64,
    /// Whether figures are by hand.
    pub is_by_hand: bool,
    /// What is not the same on both sides.
    pub changes: Vec<Change>,
    /// Cells of both sides, by group, and in it from the largest difference to the least.
    pub rows: Vec<ComparisonRow>,
    /// Cells of one side.
    pub one_sided: Vec<ComparisonRow>,
    /// The answer in sentences, most important first.
    pub findings: Vec<String>,
    /// What to know about it.
    pub notes: Vec<String>,
    /// Reports of all records with their names, for what stands side by side.
    pub reports: Vec<(String, Report)>,
}

/// Compares. `noise` is the share by which figures may differ without being worth a word.
pub fn compare(a: &Side, b: &Side, noise: f64) -> Comparison {
    let reports = [a, b].map(|side| match &side.source {
        Source::Records(records) => cells::reports(records),
        Source::Figures(_) => Vec::new(),
    });
    let sides = [(a, &reports[0]), (b, &reports[1])];
    let cells = sides.map(|(side, reports)| match &side.source {
        Source::Records(records) => cells::of_records(records, reports),
        Source::Figures(figures) => cells::of_figures(figures),
    });
    let caches_differ = match (&a.source, &b.source) {
        (Source::Records(a), Source::Records(b)) => environment::caches_differ(a, b),
        _ => false,
    };
    let found = align(&cells[0], &cells[1], caches_differ);
    let mut rows = judged(&found.pairs, noise);
    rows.sort_by(|x, y| place(x).cmp(&place(y)).then(size(y).total_cmp(&size(x))));
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
        reports: named(a, b, reports),
    };
    comparison.findings = findings(&comparison);
    comparison.notes = notes(&comparison, a, b);
    comparison
}

impl Comparison {
    /// Cells of both sides with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// All rows: those of both sides, then those of one.
    pub fn all(&self) -> impl Iterator<Item = &ComparisonRow> {
        self.rows.iter().chain(&self.one_sided)
    }

    /// The groups of cells of both sides, in order.
    pub fn groups(&self) -> Vec<(&str, Vec<&ComparisonRow>)> {
        let mut groups: Vec<(&str, Vec<&ComparisonRow>)> = Vec::new();
        for row in &self.rows {
            match groups.last_mut() {
                Some((name, rows)) if *name == row.group => rows.push(row),
                _ => groups.push((&row.group, vec![row])),
            }
        }
        groups
    }
}

impl ComparisonRow {
    /// Whether chance does not explain the difference.
    pub fn is_significant(&self) -> bool {
        matches!(self.verdict, Verdict::Faster | Verdict::Slower | Verdict::WithinNoise)
    }
}

/// The rows of matched cells, judged as one family.
fn judged(pairs: &[Pair], noise: f64) -> Vec<ComparisonRow> {
    let found = |values: &dyn Fn(&Visit, Better) -> Vec<f64>| -> Vec<Option<Difference>> {
        let side = |cell: &Cell| -> Vec<Vec<Vec<f64>>> {
            let run = |visits: &Vec<Visit>| visits.iter().map(|visit| values(visit, cell.better)).collect();
            cell.runs.iter().filter(|run| !run.is_empty()).map(run).collect()
        };
        let cells: Vec<Sides> = pairs.iter().map(|pair| Sides { a: side(&pair.a), b: side(&pair.b) }).collect();
        differences(&cells)
    };
    let plain = found(&|visit, _| visit.values.clone());
    let in_cycles = found(&|visit, better| {
        let cycles =
            |hz: f64| visit.values.iter().map(|x| if better == Better::Higher { x / hz } else { x * hz }).collect();
        visit.clock.map_or_else(Vec::new, cycles)
    });
    let rows = pairs.iter().zip(plain.iter().zip(in_cycles));
    rows.filter_map(|(pair, (found, in_cycles))| Some(row(pair, (*found)?, in_cycles, noise))).collect()
}

fn row(pair: &Pair, found: Difference, equal_clock: Option<Difference>, noise: f64) -> ComparisonRow {
    let better = pair.a.better;
    let speed = |ratio: f64| if better == Better::Higher { ratio } else { 1.0 / ratio };
    let interval = |found: &Difference| {
        let [low, high] = found.test?.ci95.map(speed);
        Some([low.min(high), low.max(high)])
    };
    let clock = |cell: &Cell| {
        let clocks = cell.runs.iter().flatten().filter_map(|visit| visit.clock);
        rows::median(clocks)
    };
    let ratio = speed(found.ratio);
    ComparisonRow {
        matched: Some(pair.matched),
        a: Some(found.a),
        b: Some(found.b),
        speed: Some(ratio),
        speed_ci95: interval(&found),
        p: found.test.map(|test| test.p),
        p_family: found.test.map(|test| test.p_family),
        verdict: verdict(ratio, found.test.map(|test| test.p_family), noise),
        speed_at_equal_clock: equal_clock.map(|found| speed(found.ratio)),
        speed_at_equal_clock_ci95: equal_clock.as_ref().and_then(interval),
        clock_hz: clock(&pair.a).zip(clock(&pair.b)).map(|(a, b)| [a, b]),
        draws: found.draws,
        group: pair.group(),
        what: pair.what.clone(),
        ..bare(&pair.a)
    }
}

fn verdict(speed: f64, p_family: Option<f64>, noise: f64) -> Verdict {
    match p_family {
        None => Verdict::TooFew,
        Some(p) if p >= SIGNIFICANT => Verdict::NotSignificant,
        // In logarithms, so that it is the same whichever side is called A.
        Some(_) if speed.ln().abs() <= noise.ln_1p() => Verdict::WithinNoise,
        Some(_) if speed > 1.0 => Verdict::Faster,
        Some(_) => Verdict::Slower,
    }
}

fn bare(cell: &Cell) -> ComparisonRow {
    ComparisonRow {
        metric: "comparison".into(),
        group: cell.group.clone(),
        what: cell.what(),
        matched: None,
        unit: cell.unit(),
        better: cell.better,
        a: None,
        b: None,
        speed: None,
        speed_ci95: None,
        p: None,
        p_family: None,
        verdict: Verdict::TooFew,
        speed_at_equal_clock: None,
        speed_at_equal_clock_ci95: None,
        clock_hz: None,
        draws: [0, 0],
        reason: None,
    }
}

/// A cell without a counterpart.
fn lone(lone: &aligned::Lone, verdict: Verdict) -> ComparisonRow {
    let samples = || -> Vec<Vec<Vec<f64>>> {
        lone.cell.runs.iter().map(|run| run.iter().map(|visit| visit.values.clone()).collect()).collect()
    };
    let value = differences(&[Sides { a: samples(), b: samples() }])[0].map(|found| found.a);
    let (a, b) = if verdict == Verdict::OnlyA { (value, None) } else { (None, value) };
    ComparisonRow { a, b, verdict, reason: lone.reason.clone(), ..bare(lone.cell) }
}

/// Groups in the order in which a reader goes through a machine.
fn place(row: &ComparisonRow) -> (usize, &str) {
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
    let first = row.group.split(" / ").next().unwrap_or_default();
    (ORDER.iter().position(|name| *name == first).unwrap_or(ORDER.len()), &row.group)
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
        Source::Figures(figures) => format!("{} figures by hand", figures.len()),
        Source::Records(records) => {
            let count = if records.len() == 1 { "1 record".into() } else { format!("{} records", records.len()) };
            let mut hosts: Vec<&str> = records.iter().map(|record| record.header.host.as_str()).collect();
            hosts.sort_unstable();
            hosts.dedup();
            let first = records.iter().map(|record| record.header.started_unix_s).min().unwrap_or(0);
            let at = crate::units::utc(first);
            format!("{count} of {}, {at}", hosts.join(", "))
        }
    }
}

fn findings(comparison: &Comparison) -> Vec<String> {
    let all = comparison.rows.len();
    let count = |verdict| comparison.count(verdict);
    let cells = if comparison.is_by_hand { "figures" } else { "cells" };
    let mut findings = Vec::new();
    if count(Verdict::TooFew) == all {
        let speeds = || comparison.rows.iter().filter_map(|row| row.speed);
        let (least, most) = speeds().fold((f64::INFINITY, 0f64), |(low, high), x| (low.min(x), high.max(x)));
        findings.push(format!(
            "B has {} to {} of A's speed in {all} {cells}; whether that is chance can't be said.",
            share(least),
            share(most)
        ));
    } else {
        let noise = percent(comparison.noise);
        findings.push(format!(
            "B is faster in {} of {all} {cells} and slower in {} (family-wise 95 %, beyond {noise}).",
            count(Verdict::Faster),
            count(Verdict::Slower)
        ));
    }
    findings.extend([Verdict::Slower, Verdict::Faster].into_iter().filter_map(|verdict| most(comparison, verdict)));
    let mut rest = Vec::new();
    for (verdict, words) in [
        (Verdict::NotSignificant, "without a significant difference"),
        (Verdict::WithinNoise, "with one within the noise allowed"),
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
    rows::median(comparison.rows.iter().filter_map(width))
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
            "{few} figures have one value a side and so no interval: give each run a line of the same name."
        ));
    } else if few > 0 {
        notes.push(format!(
            "{few} cells have too few visits to tell a difference from chance: measure in two rounds or more (a larger \
             --budget), or give folders of several records."
        ));
    }
    for (word, side) in [("A", a), ("B", b)] {
        let Source::Records(records) = &side.source else { continue };
        let broken = records.iter().filter(|record| record.end.is_none()).count();
        if broken > 0 {
            notes.push(format!(
                "{word}: {broken} of {} records did not come to their end; the visits that are whole count.",
                records.len()
            ));
        }
        let stopped = records.iter().filter(|record| record.end.as_ref().is_some_and(|end| end.interrupted)).count();
        if stopped > 0 {
            notes.push(format!("{word}: {stopped} of {} records were stopped by the user.", records.len()));
        }
    }
    if let (Source::Records(a), Source::Records(b)) = (&a.source, &b.source) {
        if a.len() == 1 && b.len() == 1 {
            notes.push(
                "One run a side: intervals hold how visits differ, not how runs do (where pages lie, what else runs). \
                 Give folders with several records to have that in them."
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
    record.measurements.iter().any(|visit| matches!(visit.case.work, crate::plan::Work::Conflict(_)))
}
