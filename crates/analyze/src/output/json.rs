//! Rows, warnings and facts as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::across::check::Checkup;
use crate::across::compare::comparison::Comparison;
use crate::across::compare::row::ComparisonRow;
use crate::across::first_touch::FirstTouchSpeed;
use crate::across::fleet::rows::ScreenRow;
use crate::across::host_states::HostStates;
use crate::across::limits::Limits;
use crate::across::losses::{Loss, losses};
use crate::across::roofline::Roofline;
use crate::across::traffic::WriteAllocate;
use crate::across::verdict::diagnosis::Diagnosis;
use crate::across::warnings::of_machine;
use crate::across::watch::WatchRow;
use crate::experiments::bandwidth::stores::Crossover;
use crate::hierarchy::names::Levels;
use crate::report::Report;
use crate::row::AnyRow;
use crate::warning::Warning;
use membound_core::json::{pretty, text};
use membound_core::machine::Machine;
use membound_core::machine::nature::NodeNature;
use membound_core::machine::spec::Sheet;

/// One array of tidy rows, a row on each line.
pub fn rows(rows: &[&dyn AnyRow]) -> String {
    lines_of(rows.iter().map(|row| row.json()))
}

/// The same rows, each an object of its own.
pub fn lines(rows: &[&dyn AnyRow]) -> String {
    rows.iter().map(|row| format!("{}\n", row.json())).collect()
}

/// One array of the cells of a comparison, those of one side last.
pub fn comparison(comparison: &Comparison) -> String {
    array(&comparison.all().collect::<Vec<&ComparisonRow>>())
}

/// One array of the figures of a check.
pub fn check(checkup: &Checkup) -> String {
    array(&checkup.rows)
}

/// What is told of a machine that is watched, as an object on a line.
pub fn watch(row: &WatchRow) -> String {
    text(row) + "\n"
}

/// One array of what screening a fleet found.
pub fn fleet(rows: &[ScreenRow]) -> String {
    array(rows)
}

/// One array of warnings, a warning on each line, each with the name of its record.
pub fn warnings(reports: &[(String, &Report)]) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        record: &'a str,
        #[serde(flatten)]
        warning: &'a Warning,
    }
    let mut lines = Vec::new();
    for (record, report) in reports {
        lines.extend(report.warnings.iter().map(|warning| Line { record, warning }));
    }
    array(&lines)
}

/// One array of verdicts, one on each line, each with the name of its record.
pub fn verdicts(reports: &[(String, &Report)]) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        record: &'a str,
        sentence: Option<String>,
        #[serde(flatten)]
        verdict: &'a Diagnosis,
    }
    let mut lines = Vec::new();
    for (record, report) in reports {
        lines.push(Line { record, sentence: report.verdict.sentence(), verdict: &report.verdict });
    }
    array(&lines)
}

/// What a record comes to beside its rows. A `row` in it is the place of a row among those that `--format json` prints of the
/// record, from 0.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Answers<'a> {
    /// The record's file.
    record: &'a str,
    /// The host's name.
    host: &'a str,
    /// The tool that measured.
    tool: &'a str,
    /// Start, seconds since 1970 (UTC).
    started_unix_s: u64,
    /// The machine in a line.
    machine: String,
    /// The answer in whole sentences.
    sentences: &'a [String],
    /// Levels of the memory system as all curves show them.
    levels: &'a Levels,
    /// What the machine can do at most, and how that is known.
    limits: &'a Limits,
    /// Kernels against what bounds them.
    roofline: &'a Roofline,
    /// Where non-temporal stores overtake regular ones.
    crossovers: &'a [Crossover],
    /// What the write-allocate costs.
    write_allocate: &'a [WriteAllocate],
    /// What costs most, and the cure.
    losses: Vec<Loss>,
    /// What the first touch of the run's own memory cost; absent where it touched little.
    first_touch: Option<&'a FirstTouchSpeed>,
    /// Where a host had the CPUs of a guest; absent where that did not change.
    host_states: Option<&'a HostStates>,
    /// Why memory-bound code is not faster here.
    verdict: &'a Diagnosis,
    /// What disturbed or limits the figures.
    warnings: &'a [Warning],
}

impl<'a> Answers<'a> {
    /// Those of a record with this name.
    pub fn of(record: &'a str, report: &'a Report) -> Self {
        Answers {
            record,
            host: &report.host,
            tool: &report.tool,
            started_unix_s: report.started_unix_s,
            machine: report.machine.summary(),
            sentences: &report.findings,
            levels: &report.levels,
            limits: &report.limits,
            roofline: &report.roofline,
            crossovers: &report.crossovers,
            write_allocate: &report.write_allocate,
            losses: losses(report),
            first_touch: report.first_touch.as_ref(),
            host_states: report.host_states.as_ref(),
            verdict: &report.verdict,
            warnings: &report.warnings,
        }
    }
}

/// One array of what records come to.
pub fn answers(reports: &[(String, &Report)]) -> String {
    array(&reports.iter().map(|(record, report)| Answers::of(record, report)).collect::<Vec<_>>())
}

/// The facts about a machine, and with them what follows: what each node is (`natures`), how memory was configured
/// (`memory_modes`), and what the facts do to figures (`warnings`).
pub fn machine(machine: &Machine) -> String {
    #[derive(Serialize)]
    struct Described<'a> {
        #[serde(flatten)]
        machine: &'a Machine,
        natures: Vec<NodeNature>,
        memory_modes: Vec<String>,
        warnings: Vec<Warning>,
    }
    let described = Described {
        machine,
        natures: machine.natures(),
        memory_modes: machine.memory_modes(),
        warnings: of_machine(machine),
    };
    pretty(&described) + "\n"
}

/// A machine on paper; what its source does not tell is null.
pub fn sheet(sheet: &Sheet) -> String {
    pretty(sheet) + "\n"
}

fn array<T: Serialize>(items: &[T]) -> String {
    lines_of(items.iter().map(text))
}

/// One array of items that are text.
fn lines_of(items: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = items.collect();
    if lines.is_empty() { "[]\n".into() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}
