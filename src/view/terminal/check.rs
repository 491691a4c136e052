//! A check: what is wrong in a line, and where it is asked for each figure beside what it was held against.

use super::{Column, head, item, note, table};
use crate::model::check::{Against, CheckRow, Checkup, Health, figure};
use crate::view::speed_figure;

/// The line for a scheduler; nothing where the node is healthy.
pub fn check_line(checkup: &Checkup) -> String {
    if checkup.is_degraded() { checkup.line() + "\n" } else { String::new() }
}

/// The same, or that it is healthy, and all figures.
pub fn check(checkup: &Checkup) -> String {
    let is_held = checkup.rows.iter().any(|row| row.against.is_some());
    let answer = match (checkup.is_degraded(), is_held) {
        (true, _) => checkup.line() + "\n\n",
        (false, true) => "healthy\n\n".into(),
        (false, false) => String::new(),
    };
    let mut text = answer + &figures(&checkup.rows);
    if !checkup.facts.is_empty() {
        text.push('\n');
        text.push_str(&head("Facts that changed"));
        text.extend(checkup.facts.iter().map(|fact| item(&format!("{}: {}, was {}", fact.what, fact.b, fact.a))));
    }
    let reasons: Vec<String> = checkup
        .rows
        .iter()
        .filter_map(|row| Some(item(&format!("{}: {}", row.quantity, row.reason.as_ref()?))))
        .collect();
    if !reasons.is_empty() {
        text.push('\n');
        text.push_str(&head("Not told"));
        text.extend(reasons);
    }
    text
}

fn figures(rows: &[CheckRow]) -> String {
    let number =
        |value: Option<f64>, row: &CheckRow| value.map_or_else(|| "-".into(), |value| figure(value, &row.unit));
    let ground = |row: &CheckRow| match row.against {
        Some(Against::Baseline) => "baseline",
        Some(Against::Sheet) => "spec",
        None => "",
    };
    let word =
        |row: &CheckRow| if row.against.is_some() || row.health == Health::Unknown { row.health.word() } else { "" };
    let is_held = rows.iter().any(|row| row.against.is_some());
    let mut columns = vec![
        Column::left("", rows.iter().map(|row| row.quantity.clone())),
        Column::right("threads", rows.iter().map(|row| row.threads.to_string())),
        Column::right("now", rows.iter().map(|row| number(row.value, row))),
    ];
    if is_held {
        columns.push(Column::right("against", rows.iter().map(|row| number(row.reference, row))));
        columns.push(Column::left("", rows.iter().map(|row| ground(row).to_string())));
        columns.push(Column::right("speed %", rows.iter().map(|row| speed_figure(row.ratio, row.ratio_ci95))));
    }
    columns.push(Column::left("", rows.iter().map(|row| word(row).to_string())));
    let about = if is_held {
        note("Speed in % of what it is held against ± the farther end of its 95 % interval; below 100 is slower.")
    } else {
        note("Nothing to hold it against: give --baseline or --spec.")
    };
    about + &table(&columns)
}
