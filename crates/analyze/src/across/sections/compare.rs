//! Two sides held against each other: the answer, what else is not the same, then the cells by level.

use crate::across::compare::comparison::Comparison;
use crate::across::compare::row::{ComparisonRow, Verdict};
use crate::across::compare::several::{Columns, Several};
use crate::across::sections::maps::latency_maps;
use crate::chart::{Axis, Chart, Limit, Point, Scale, Series, Shape, line, rounded};
use crate::report::Report;
use crate::section::{Document, Section, Table};
use crate::wording::speed_figure;
use membound_core::units::{BytesPerSecond, Nanoseconds, counted, significant};

/// Cells that a group shows unless all are asked for.
const SHOWN: usize = 8;
/// Cells of one side that are named.
const NAMED: usize = 5;
/// More names can't stand beside each other in a chart.
const CHARTED: usize = 16;

/// Both sides are one record, perhaps under two names: there is nothing to compare.
const ITSELF: &str = "A and B are the same record: nothing can differ. Give another record.";

/// The whole comparison; `all` shows every cell. Of a record held against itself only that is said, unless all is asked for.
pub fn document(comparison: &Comparison, all: bool) -> Document {
    let whole = whole(comparison, all);
    match (is_with_itself(comparison), all) {
        (false, _) => whole,
        (true, false) => Document { sentences: vec![ITSELF.into()], sections: Vec::new(), ..whole },
        (true, true) => {
            let sentences = std::iter::once(ITSELF.into()).chain(whole.sentences).collect();
            Document { sentences, ..whole }
        }
    }
}

/// Whether both sides are of one run, and have the same figures.
fn is_with_itself(comparison: &Comparison) -> bool {
    let [(_, a), (_, b)] = &comparison.reports[..] else { return false };
    let run = |report: &Report| (report.host.clone(), report.started_unix_s, report.seed, report.visited);
    run(a) == run(b) && comparison.rows.iter().all(|row| row.a == row.b) && comparison.one_sided.is_empty()
}

fn whole(comparison: &Comparison, all: bool) -> Document {
    let [a, b] = &comparison.names;
    let named: Vec<_> =
        comparison.reports.iter().map(|(name, report)| (name.clone(), &report.latency.map[..])).collect();
    let sections = [
        Some(changes(comparison)),
        Some(cells(comparison, all)),
        one_sided(comparison, Verdict::OnlyA, all),
        one_sided(comparison, Verdict::OnlyB, all),
        latency_maps(&named),
        Some(notes(comparison)),
    ];
    Document {
        facts: [0, 1]
            .map(|side| format!("{}: {}, {}", ["A", "B"][side], comparison.names[side], comparison.about[side]))
            .into(),
        ..Document::new(format!("{b} against {a}"), comparison.findings.clone(), sections.into_iter().flatten())
    }
}

/// Several sides as columns, each figure with its speed against the first side's; `all` shows every cell.
pub fn columns(several: &Several, all: bool) -> Document {
    let named: Vec<_> = several.reports.iter().map(|(name, report)| (name.clone(), &report.latency.map[..])).collect();
    let table = |cells: &[Columns]| {
        let name = &cells[0].row.group;
        let left = if all { 0 } else { cells.len().saturating_sub(SHOWN) };
        let cells = &cells[..cells.len() - left];
        let rows: Vec<&ComparisonRow> = cells.iter().map(|cell| &cell.row).collect();
        let common = common_words(&rows);
        let caption = if common.is_empty() { name.clone() } else { format!("{name}: {}", common.join(", ")) };
        let more = (left > 0).then(|| format!("and {left} more; --all lists them"));
        let table = Table::new(caption).left("", rows.iter().map(|row| own_words(&row.what, &common)));
        let table = several.names.iter().enumerate().fold(table, |table, (side, name)| {
            let text = |cell: &Columns| {
                cell.figures[side].map(|(value, speed)| match side {
                    0 => figure(Some(value), &cell.row),
                    _ => format!("{} ({:.0} %)", figure(Some(value), &cell.row), 100.0 * speed),
                })
            };
            table.right(name, cells.iter().map(text))
        });
        table.with_notes(more.into_iter().collect())
    };
    let cells = Section {
        id: "cells",
        title: "Cells".into(),
        about: format!(
            "A column for each side; in brackets its speed in % of that of {}, above 100 also where a lower figure is \
             better. `membound compare A B` tells of two sides what is more than chance.",
            several.names.first().map_or("the first", String::as_str)
        ),
        tables: several.cells.chunk_by(|a, b| a.row.group == b.row.group).map(table).collect(),
        ..Section::default()
    };
    let notes = Section { id: "notes", title: "Notes".into(), notes: several.notes.clone(), ..Section::default() };
    let facts = several.names.iter().zip(&several.about).map(|(name, about)| format!("{name}: {about}")).collect();
    let answer = format!("{} side by side: {} cells.", several.names.join(", "), several.cells.len());
    let sections = [latency_maps(&named), Some(cells), Some(notes)];
    Document { facts, ..Document::new("Side by side", vec![answer], sections.into_iter().flatten()) }
}

fn changes(comparison: &Comparison) -> Section {
    let changes = &comparison.changes;
    let notes: Vec<String> = match changes.is_empty() && !comparison.is_by_hand {
        true => vec!["Machine, settings and state are the same on both sides, as far as records tell.".into()],
        false => {
            changes.iter().map(|change| format!("{}: {} in A, {} in B", change.what, change.a, change.b)).collect()
        }
    };
    let title = "Not the same on both sides: look here for causes first";
    let title = if changes.is_empty() { "Machines and settings" } else { title };
    Section { id: "changes", title: title.into(), notes, ..Section::default() }
}

fn cells(comparison: &Comparison, all: bool) -> Section {
    let groups = comparison.rows.chunk_by(|a, b| a.group == b.group);
    let groups = groups.map(|rows| (&*rows[0].group, rows.len(), telling(comparison, rows, all)));
    let groups: Vec<(&str, usize, Vec<&ComparisonRow>)> = groups.filter(|(.., rows)| !rows.is_empty()).collect();
    let about = "Speed of B in % of A's ± the farther end of its 95 % interval; above 100 B is better, also where a lower \
                 figure is. Figures are geometric means of the medians of visits, or of runs. At equal clock: both in core \
                 clock cycles.";
    Section {
        id: "cells",
        title: "Cells".into(),
        about: about.into(),
        tables: groups.iter().map(|(name, of, rows)| group(comparison, name, rows, *of, all)).collect(),
        charts: groups.iter().map(|(name, _, rows)| chart(comparison, name, rows)).collect(),
        ..Section::default()
    }
}

/// The cells of a group with visits enough to tell, which may be none; all where not one of the comparison has enough, or all are asked
/// for. What differs most among those with too few is noise.
fn telling<'a>(comparison: &Comparison, rows: &'a [ComparisonRow], all: bool) -> Vec<&'a ComparisonRow> {
    let is_enough = |row: &ComparisonRow| row.verdict != Verdict::TooFew;
    let none_is = !comparison.rows.iter().any(is_enough);
    rows.iter().filter(|row| all || none_is || is_enough(row)).collect()
}

fn group(comparison: &Comparison, name: &str, rows: &[&ComparisonRow], of: usize, all: bool) -> Table {
    let all = all || comparison.is_by_hand;
    let tells = rows.iter().any(|row| row.is_significant());
    let most = if all { usize::MAX } else { SHOWN };
    let shown: Vec<&ComparisonRow> =
        rows.iter().copied().filter(|row| all || !tells || row.is_significant()).take(most).collect();
    let common = common_words(&shown);
    let caption = if common.is_empty() { name.to_string() } else { format!("{name}: {}", common.join(", ")) };
    let mut table = Table::new(caption)
        .left("", shown.iter().map(|row| own_words(&row.what, &common)))
        .right("A", shown.iter().map(|row| figure(row.a, row)))
        .right("B", shown.iter().map(|row| figure(row.b, row)))
        .right("B's\nspeed", shown.iter().map(|row| speed_figure(row.speed, row.speed_ci95)));
    if shown.iter().any(|row| is_another_at_equal_clock(row)) {
        let cells = shown.iter().map(|row| speed_figure(row.speed_at_equal_clock, None));
        table = table.right("at equal\nclock", cells);
    }
    if !comparison.is_by_hand {
        table = table.left("", shown.iter().map(|row| verdict_word(row.verdict)));
    }
    let left = of - shown.len();
    table.with_notes((left > 0).then(|| format!("and {left} more; --all lists them")).into_iter().collect())
}

fn one_sided(comparison: &Comparison, verdict: Verdict, all: bool) -> Option<Section> {
    let rows: Vec<&ComparisonRow> = comparison.one_sided.iter().filter(|row| row.verdict == verdict).collect();
    let line = |row: &&ComparisonRow| {
        let reason = row.reason.as_ref().map_or_else(String::new, |reason| format!(" (other side: {reason})"));
        format!("{}: {}{reason}", row.what, figure(row.a.or(row.b), row))
    };
    let (id, name) = if verdict == Verdict::OnlyA { ("only-a", "A") } else { ("only-b", "B") };
    let most = if all { usize::MAX } else { NAMED };
    let mut notes: Vec<String> = rows.iter().take(most).map(line).collect();
    let left = rows.len() - notes.len();
    notes.extend((left > 0).then(|| format!("and {left} more; --all lists them")));
    let title = format!("Only in {name}: {}", counted(rows.len(), "cell"));
    (!rows.is_empty()).then(|| Section { id, title, notes, ..Section::default() })
}

fn notes(comparison: &Comparison) -> Section {
    let notes = comparison.notes.clone();
    Section { id: "notes", title: "Notes".into(), notes, ..Section::default() }
}

/// How much cells differ, the largest differences first.
fn chart(comparison: &Comparison, name: &str, rows: &[&ComparisonRow]) -> Chart {
    let rows = &rows[..rows.len().min(CHARTED)];
    let common = common_words(rows);
    let names = rows.iter().map(|row| own_words(&row.what, &common)).collect();
    let points = rows.iter().enumerate().filter_map(|(index, row)| point(index, row)).collect();
    let series = vec![Series { shape: Shape::Dot, ..line("B".into(), points) }];
    let x = Axis { names, ..Axis::new("cell", "", Scale::Names) };
    let y = Axis::new("speed of B, % of A's", "%", Scale::Close);
    let noise = 100.0 * comparison.noise;
    let limit = |name: &str, at: f64| Limit { name: name.into(), at: rounded(at) };
    let mut limits = vec![limit("alike", 100.0)];
    if noise > 0.0 && !comparison.is_by_hand {
        limits = vec![limit("noise allowed", 1e4 / (100.0 + noise)), limit("", 100.0 + noise)];
    }
    let about = if common.is_empty() { String::new() } else { format!("All: {}.", common.join(", ")) };
    let left = if rows.len() == CHARTED { ", the largest differences" } else { "" };
    Chart { limits, ..Chart::new(format!("{name}{left}"), about, x, y, series) }
}

fn point(index: usize, row: &ComparisonRow) -> Option<Point> {
    let speed = 100.0 * row.speed?;
    let [low, high] = row.speed_ci95.map_or([speed; 2], |ends| ends.map(|end| 100.0 * end));
    Some((index as f64, rounded(speed), rounded(low), rounded(high), row.draws[0] + row.draws[1]))
}

/// A figure of one side with its unit.
fn figure(value: Option<f64>, row: &ComparisonRow) -> String {
    let Some(value) = value else { return "-".into() };
    match row.unit.as_str() {
        "B/s" => BytesPerSecond(value).to_string(),
        "s" => Nanoseconds(value * 1e9).to_string(),
        "ns" => Nanoseconds(value).to_string(),
        "" => value.to_string(),
        "cycles" => format!("{} cycles", significant(value)),
        // As it was written by hand, or a mean of several.
        unit if row.draws == [1, 1] => format!("{} {unit}", (value * 1e9).round() / 1e9),
        unit => format!("{} {unit}", significant(value)),
    }
}

fn is_another_at_equal_clock(row: &ComparisonRow) -> bool {
    row.speed.zip(row.speed_at_equal_clock).is_some_and(|(speed, equal)| (equal / speed).ln().abs() > 5e-3)
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NotSignificant => "-",
        Verdict::WithinNoise => "in noise",
        Verdict::TooFew => "too few",
        Verdict::HostState => "host state",
        verdict => verdict.word(),
    }
}

/// The parts of their words that all cells have in common, where there are several.
fn common_words(rows: &[&ComparisonRow]) -> Vec<String> {
    let Some((first, others)) = rows.split_first().filter(|(_, others)| !others.is_empty()) else { return Vec::new() };
    let is_common = |part: &&str| others.iter().all(|row| row.what.split(", ").any(|other| other == *part));
    first.what.split(", ").filter(is_common).map(str::to_string).collect()
}

/// The words of a cell without those.
fn own_words(what: &str, common: &[String]) -> String {
    what.split(", ").filter(|part| !common.iter().any(|word| word == part)).collect::<Vec<_>>().join(", ")
}
