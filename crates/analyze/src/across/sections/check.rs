//! A check: what is wrong in a line, and each figure beside what it was held against.

use crate::across::check::{Against, CheckRow, Checkup, Health, figure};
use crate::section::{Cell, Document, Section, Table};
use crate::wording::speed_figure;

/// The line for a scheduler, or that the node is healthy; and all figures.
pub fn document(checkup: &Checkup) -> Document {
    let is_held = checkup.rows.iter().any(|row| row.against.is_some());
    let open = checkup.open();
    let answer = match (checkup.is_degraded(), is_held) {
        (true, _) => Some(checkup.line()),
        (false, true) if open.is_empty() => Some("healthy".into()),
        (false, true) => Some(format!(
            "nothing slower was found, but {} of {} figures can't be told",
            open.len(),
            checkup.rows.len()
        )),
        (false, false) => None,
    };
    let facts = checkup.facts.iter().map(|fact| format!("{}: {}, was {}", fact.what, fact.b, fact.a));
    let list = |id, title: &str, notes| Section { id, title: title.into(), notes, ..Section::default() };
    let sections = [
        figures(&checkup.rows, is_held),
        list("facts", "Facts that changed", facts.collect()),
        list("reasons", "Not told", open),
    ];
    Document::new("membound check", answer.into_iter().collect(), sections)
}

fn figures(rows: &[CheckRow], is_held: bool) -> Section {
    let number = |value: Option<f64>, row: &CheckRow| value.map(|value| figure(value, &row.unit));
    let against = |row: &CheckRow| match row.against {
        Some(Against::Baseline) => "baseline",
        Some(Against::Sheet) => "spec",
        None => "",
    };
    let word =
        |row: &CheckRow| if row.against.is_some() || row.health == Health::Unknown { row.health.word() } else { "" };
    let mut table = Table::new("")
        .left("", rows.iter().map(|row| row.quantity.clone()))
        .right("threads", rows.iter().map(|row| row.threads.to_string()))
        .right("now", rows.iter().map(|row| number(row.value, row)));
    if is_held {
        table = table
            .right("against", rows.iter().map(|row| number(row.reference, row)))
            .left("", rows.iter().map(against))
            .right("speed %", rows.iter().map(|row| Cell::from(speed_figure(row.ratio, row.ratio_ci95))));
    }
    let about = match is_held {
        true => {
            "Speed in % of what it is held against ± the farther end of its interval (95 %, all figures together); below 100 is slower."
        }
        false => "Nothing to hold it against: give --baseline or --spec.",
    };
    let tables = vec![table.left("", rows.iter().map(word))];
    Section { id: "figures", title: "Figures".into(), about: about.into(), tables, ..Section::default() }
}
