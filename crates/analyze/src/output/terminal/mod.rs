//! Text for a terminal of 80 to 200 columns; of 80 where nothing is known of it. Bold and dim only help the eye: a pipe strips
//! them and nothing is lost.

pub mod section;
pub mod text;

use crate::output::terminal::text::{BOLD, item, joined, paragraph, styled};
use anstyle::Style;

use crate::across::sections;
use crate::across::sections::overview::Screen;
use crate::answer::Answer;
use crate::experiments::bandwidth::sections::{all_rows, side_by_side};
use crate::experiments::bandwidth::stream;
use crate::output::{ending, machine_line};
use crate::report::Report;
use crate::section::Section;
use membound_core::units::utc;

/// The first screen of a whole run; all of a record that characterises no machine.
pub fn overview(report: &Report) -> String {
    match first_screen(report, false) {
        none if none.is_empty() => summary(report),
        first => first,
    }
}

/// Empty where no machine was characterised.
fn first_screen(report: &Report, is_whole: bool) -> String {
    let screen = Screen { columns: text::columns_across(), is_whole };
    joined(sections::overview::sections(report, screen).iter().map(section::drawn))
}

/// What the named parts of a report say; see [`names`](crate::output::parts).
pub fn chosen(report: &Report, names: &[String]) -> String {
    let is_chosen = |name: &str| names.iter().any(|one| one == name);
    let of_experiments = report.sections().filter(|(name, _)| is_chosen(name)).flat_map(|(_, sections)| sections);
    let [warnings, host, brief, verdict] = ending(report);
    // Ceilings alone come to no answer in brief, and stand here nevertheless.
    let roofline = if brief.is_empty() { sections::roofline::section(&report.roofline, &report.rows) } else { brief };
    let others = [warnings, host, roofline, verdict];
    let ids: Vec<&str> = others.iter().filter(|one| !one.is_empty()).map(|one| one.id).collect();
    let others = others.into_iter().filter(|section| is_chosen(section.id));
    let with_sentences = |one: Section| {
        let sentences: String = one.sentences.iter().map(|text| item(text)).collect();
        joined([sentences, section::drawn(&one)])
    };
    let text = joined(of_experiments.chain(others).map(with_sentences));
    if !text.is_empty() {
        return text;
    }
    let of_experiments = report.sections().filter(|(_, sections)| sections.iter().any(|one| !one.is_empty()));
    let there: Vec<&str> = of_experiments.map(|(name, _)| name).chain(ids).collect();
    paragraph(&format!("Nothing of that was measured. The record has: {}.", there.join(", ")), "")
}

/// The answer of a whole run: the first screen, then sentences and the tables that they come from, then what to distrust.
pub fn summary(report: &Report) -> String {
    let mut parts = vec![first_screen(report, true), heading(report), findings(report)];
    for (_, sections) in report.sections() {
        parts.extend(sections.into_iter().map(|one| section::drawn(&Section { details: Vec::new(), ..one })));
    }
    parts.extend(ending(report).iter().map(section::drawn));
    joined(parts)
}

/// One experiment of a report: the answer, what it comes from, what disturbed it.
pub fn answer(report: &Report, answer: &impl Answer) -> String {
    let sections = answer.sections();
    joined(std::iter::once(findings(report)).chain(sections.iter().map(section::drawn)).chain([warnings(report)]))
}

/// The same of several experiments.
pub fn answers(report: &Report, names: &[&str]) -> String {
    let sections = report.sections().filter(|(name, _)| names.contains(name)).flat_map(|(_, sections)| sections);
    joined(std::iter::once(findings(report)).chain(sections.map(|one| section::drawn(&one))).chain([warnings(report)]))
}

/// A line a row.
pub fn rows(report: &Report) -> String {
    if report.rows.is_empty() {
        "No rows: nothing was measured.\n".into()
    } else {
        section::drawn(&all_rows(&report.rows))
    }
}

/// Store kinds side by side over working sets.
pub fn stores(report: &Report) -> String {
    let section = side_by_side(&report.bandwidth());
    if section.tables.is_empty() {
        return "No kernel was measured with two store kinds: nothing to compare.\n".into();
    }
    section::drawn(&section)
}

/// STREAM's table and validation line in STREAM's own format.
pub fn stream(report: &Report) -> String {
    match &report.stream[..] {
        [] => "The STREAM kernels were not measured.\n".into(),
        tables => {
            let answer = stream::sentence(tables).map_or(String::new(), |sentence| paragraph(&sentence, "") + "\n");
            answer + &section::drawn(&stream::section(tables))
        }
    }
}

/// Pages on two nodes: the answer and the ratios. Where fewer than two were measured, the rows say why.
pub fn weights(report: &Report) -> String {
    if report.weightings.is_empty() { rows(report) } else { answer(report, &report.weightings) }
}

fn heading(report: &Report) -> String {
    let line = format!("{} on {}, {}", report.tool, report.host, utc(report.started_unix_s));
    paragraph(&line, "") + &paragraph(&machine_line(&report.machine), "")
}

fn findings(report: &Report) -> String {
    let style = |index| if index == 0 { BOLD } else { Style::new() };
    report.findings.iter().enumerate().map(|(index, text)| styled(style(index), &item(text))).collect()
}

/// What to distrust, and what helps. Empty where there is nothing.
pub fn warnings(report: &Report) -> String {
    section::drawn(&sections::warnings::section(&report.warnings))
}
