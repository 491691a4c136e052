//! Pages on two nodes at several ratios: which is the fastest?

use super::{Column, gbps, head, joined, note, ratio, rows, table};
use crate::model::{Report, Tried, Weighting};
use crate::units::percent;
use crate::view::{spread, threads as threads_word};

/// The answer and the ratios. Where fewer than two were measured, the rows say why.
pub fn weights(report: &Report) -> String {
    match report.weightings[..] {
        [] => rows(report),
        _ => joined([super::findings(report), section(report), super::warnings(report)]),
    }
}

/// A table for each kernel. Empty where no ratios were measured.
pub(super) fn section(report: &Report) -> String {
    report.weightings.iter().map(of_kernel).collect::<Vec<_>>().join("\n")
}

fn of_kernel(weighting: &Weighting) -> String {
    let Weighting { kernel, threads, tiers: [first, second], tried, best, ties } = weighting;
    let cells = |cell: fn(&Tried) -> String| tried.iter().map(cell);
    let word = |index: usize| match index {
        _ if index == *best => "fastest",
        _ if ties.contains(&index) => "may be as fast",
        _ => "",
    };
    let columns = [
        Column::left("ratio", cells(|tried| format!("{}:{}", tried.weights[0], tried.weights[1]))),
        Column::right("found", cells(|tried| tried.first_share.map_or_else(|| "-".into(), percent))),
        Column::right("GB/s", cells(|tried| format!("{} {}", gbps(tried.rate.median), spread(&tried.rate)))),
        Column::right("fastest / this", cells(|tried| ratio(tried.gain))),
        Column::left("", (0..tried.len()).map(|index| word(index).to_string())),
    ];
    head(&format!("{kernel} over nodes {first} and {second}, {}", threads_word(*threads)))
        + &note(&format!(
            "Pages on node {first} to pages on node {second}; share found on node {first}; payload, median ± the farther \
             end of its 95 % interval; how much faster the fastest is, with its 95 % interval."
        ))
        + &table(&columns)
}
