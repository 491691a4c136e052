//! What is compared, and what came of it.

use crate::across::compare::environment::Change;
use crate::across::compare::figures::Figure;
use crate::across::compare::row::{ComparisonRow, Verdict};
use crate::report::Report;
use crate::wording::some;
use membound_core::record::Record;
use membound_core::units::counted;

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

impl Comparison {
    /// Cells of both sides with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Cells of A that crashed or computed wrong results in a run of B.
    pub fn broken(&self) -> impl Iterator<Item = &ComparisonRow> {
        self.all().filter(|row| row.verdict != Verdict::OnlyB && row.is_failure)
    }

    /// The same in a sentence.
    pub fn broken_sentence(&self) -> Option<String> {
        let names: Vec<String> = self.broken().map(|row| row.what.clone()).collect();
        let cells = counted(names.len() as u64, if self.is_by_hand { "figure" } else { "cell" });
        (!names.is_empty()).then(|| format!("{cells} of A crashed or came to wrong results in B: {}.", some(&names, 2)))
    }

    /// What helps where figures are too few to tell a change from chance.
    pub fn more_values(&self) -> &'static str {
        match self.is_by_hand {
            true => "give each figure a line for each of several runs",
            false => "give a longer --budget, or folders with the records of several runs",
        }
    }

    /// All rows: those of both sides, then those of one.
    pub fn all(&self) -> impl Iterator<Item = &ComparisonRow> {
        self.rows.iter().chain(&self.one_sided)
    }
}
