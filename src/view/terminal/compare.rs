//! Two sides held against each other: the answer, what else is not the same, then the cells by level.

use super::{Column, head, item, latency_maps, note, table};
use crate::model::Report;
use crate::model::compare::{Comparison, ComparisonRow};
use crate::view::{
    common_words, compared_figure, compared_names, own_words, speed_figure, uncommon_speed, verdict_word,
};

/// Cells that a group shows unless all are asked for.
const SHOWN: usize = 8;
/// Cells of one side that are named.
const NAMED: usize = 5;
/// What is left for the words of a cell.
const WORDS: usize = 34;

/// The whole comparison; `all` shows every cell.
pub fn comparison(comparison: &Comparison, all: bool) -> String {
    let sections = [
        answer(comparison),
        changes(comparison),
        cells(comparison, all),
        one_sided(comparison),
        maps(comparison),
        notes(comparison),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

fn answer(comparison: &Comparison) -> String {
    let (first, rest) = comparison.findings.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    head(first) + &rest.iter().map(|text| item(text)).collect::<String>() + "\n" + &sides(comparison)
}

fn sides(comparison: &Comparison) -> String {
    compared_names(comparison).iter().map(|line| note(line)).collect()
}

fn changes(comparison: &Comparison) -> String {
    if comparison.is_by_hand {
        return String::new();
    }
    if comparison.changes.is_empty() {
        return note("Machine, settings and state are the same on both sides, as far as records tell.");
    }
    let lines =
        comparison.changes.iter().map(|change| item(&format!("{}: {} in A, {} in B", change.what, change.a, change.b)));
    head("Not the same on both sides: look here for causes first") + &lines.collect::<String>()
}

fn cells(comparison: &Comparison, all: bool) -> String {
    let groups: Vec<String> =
        comparison.groups().iter().map(|(name, rows)| group(comparison, name, rows, all)).collect();
    if groups.is_empty() {
        return String::new();
    }
    let about = "Speed of B in % of A's ± the farther end of its 95 % interval; above 100 B is better, also where a lower \
                 figure is. Figures are geometric means of the medians of visits, or of runs. At equal clock: both in core \
                 clock cycles.";
    note(about) + "\n" + &groups.join("\n")
}

fn group(comparison: &Comparison, name: &str, rows: &[&ComparisonRow], all: bool) -> String {
    let tells = rows.iter().any(|row| row.is_significant());
    let wanted = |row: &&&ComparisonRow| all || comparison.is_by_hand || !tells || row.is_significant();
    let most = if all || comparison.is_by_hand { usize::MAX } else { SHOWN };
    let shown: Vec<&ComparisonRow> = rows.iter().filter(wanted).take(most).copied().collect();
    let common = common_words(&shown);
    let title = if common.is_empty() { name.to_string() } else { format!("{name}: {}", common.join(", ")) };
    let words = |row: &&ComparisonRow| shortened(&own_words(&row.what, &common));
    let mut columns = vec![
        Column::left("", shown.iter().map(words)),
        Column::right("A", shown.iter().map(|row| compared_figure(row.a, row))),
        Column::right("B", shown.iter().map(|row| compared_figure(row.b, row))),
        Column::right("B's\nspeed", shown.iter().map(|row| speed_figure(row.speed, row.speed_ci95))),
    ];
    if shown.iter().any(|row| uncommon_speed(row)) {
        let cell = |row: &&ComparisonRow| speed_figure(row.speed_at_equal_clock, None);
        columns.push(Column::right("at equal\nclock", shown.iter().map(cell)));
    }
    if !comparison.is_by_hand {
        columns.push(Column::left("", shown.iter().map(|row| verdict_word(row.verdict).to_string())));
    }
    let text = head(&title) + &table(&columns);
    match rows.len() - shown.len() {
        0 => text,
        left => text + &note(&format!("and {left} more; --all lists them")),
    }
}

/// The end is cut: it says least.
fn shortened(words: &str) -> String {
    if words.chars().count() <= WORDS {
        return words.into();
    }
    words.chars().take(WORDS - 3).collect::<String>() + "..."
}

fn one_sided(comparison: &Comparison) -> String {
    let side = |verdict, name: &str| {
        let rows: Vec<&ComparisonRow> = comparison.one_sided.iter().filter(|row| row.verdict == verdict).collect();
        if rows.is_empty() {
            return String::new();
        }
        let line = |row: &&ComparisonRow| {
            let reason = row.reason.as_ref().map_or_else(String::new, |reason| format!(" (other side: {reason})"));
            item(&format!("{}{reason}", row.what))
        };
        let plural = if rows.len() == 1 { "" } else { "s" };
        let left = rows.len().saturating_sub(NAMED);
        let more = if left > 0 { note(&format!("and {left} more; --format csv has them all")) } else { String::new() };
        head(&format!("Only in {name}: {} cell{plural}", rows.len()))
            + &rows.iter().take(NAMED).map(line).collect::<String>()
            + &more
    };
    use crate::model::compare::Verdict::{OnlyA, OnlyB};
    side(OnlyA, "A") + &side(OnlyB, "B")
}

/// Maps of both sides beside each other, where there are any.
fn maps(comparison: &Comparison) -> String {
    let named: Vec<(String, &Report)> =
        comparison.reports.iter().map(|(name, report)| (name.clone(), report)).collect();
    latency_maps(&named)
}

fn notes(comparison: &Comparison) -> String {
    comparison.notes.iter().map(|text| item(text)).collect()
}
