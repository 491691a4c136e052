//! More than two sides: a column for each, as modes of one machine are published. Each side is compared with the first;
//! which difference is more than chance is a question for two sides.

use std::collections::HashMap;

use crate::across::compare::comparison::{Comparison, Side};
use crate::across::compare::row::{ComparisonRow, Verdict};
use crate::across::compare::{compare, place};
use crate::report::Report;
use membound_core::in_order::InOrder;

/// Sides in columns.
#[derive(Debug, Clone, Default)]
pub struct Several {
    /// Names of the sides.
    pub names: Vec<String>,
    /// What each side is, in words.
    pub about: Vec<String>,
    /// Cells that the first side shares with another, by group.
    pub cells: Vec<Columns>,
    /// Reports of all records with their names.
    pub reports: Vec<(String, Report)>,
    /// What is not the same, and what to know.
    pub notes: Vec<String>,
}

/// A cell of several sides.
#[derive(Debug, Clone)]
pub struct Columns {
    /// The cell, with the first side's figure as `a`.
    pub row: ComparisonRow,
    /// The figure of each side, and its speed against the first; absent where a side lacks the cell.
    pub figures: Vec<Option<(f64, f64)>>,
}

/// Holds all sides against the first. Each comparison is a family of its own.
pub fn several(sides: &[Side], noise: f64) -> Several {
    let Some((first, others)) = sides.split_first() else { return Several::default() };
    let pairs: Vec<Comparison> = others.iter().map(|side| compare(first, side, noise)).collect();
    let mut cells: Vec<Columns> = Vec::new();
    let mut places: HashMap<[String; 3], usize> = HashMap::new();
    for (at, pair) in pairs.iter().enumerate() {
        for row in &pair.rows {
            // Figures by hand of one name are several where their units differ.
            let key = [&row.group, &row.what, &row.unit].map(String::clone);
            let place = *places.entry(key).or_insert_with(|| {
                let mut figures = vec![None; sides.len()];
                figures[0] = row.a.map(|a| (a, 1.0));
                cells.push(Columns { row: row.clone(), figures });
                cells.len() - 1
            });
            cells[place].figures[at + 1] = row.b.zip(row.speed);
        }
    }
    cells.order_by(|x, y| place(&x.row.group).cmp(&place(&y.row.group)));
    let mut notes: Vec<String> = Vec::new();
    for (pair, side) in pairs.iter().zip(others) {
        let changes = pair
            .changes
            .iter()
            .map(|change| format!("{}: {} in {}, {} in {}", change.what, change.a, first.name, change.b, side.name));
        notes.extend(changes);
        let [faster, slower] = [Verdict::Faster, Verdict::Slower].map(|verdict| pair.count(verdict));
        notes.push(format!(
            "{} against {}: faster in {faster} of {} cells, slower in {slower} (family-wise 95 % for these two).",
            side.name,
            first.name,
            pair.rows.len()
        ));
    }
    let mut reports: Vec<(String, Report)> = Vec::new();
    for (name, report) in pairs.iter().flat_map(|pair| &pair.reports) {
        if !reports.iter().any(|(known, _)| known == name) {
            reports.push((name.clone(), report.clone()));
        }
    }
    let about = pairs.iter().take(1).map(|pair| pair.about[0].clone());
    Several {
        names: sides.iter().map(|side| side.name.clone()).collect(),
        about: about.chain(pairs.iter().map(|pair| pair.about[1].clone())).collect(),
        cells,
        reports,
        notes,
    }
}
