//! `membound report`: redraws summary and page from records.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Done, Format, usage};
use crate::model::{self, Report};
use crate::record::Record;
use crate::view;

/// Flags of `membound report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Records (.jsonl) that membound wrote
    #[arg(value_name = "RECORD", required = true)]
    pub records: Vec<PathBuf>,
    /// Folder for the pages [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the warnings alone, with their cures, and write no page
    #[arg(long)]
    pub warnings: bool,
    /// Print the verdict alone: why memory-bound code is not faster here, causes ranked; and write no page
    #[arg(long, conflicts_with = "warnings")]
    pub verdict: bool,
    /// Print as; csv and json print the rows of all records and write no page
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Redraws.
pub fn run(args: &ReportArgs) -> anyhow::Result<Done> {
    let reports: Vec<(&PathBuf, Report)> = args.records.iter().zip(read(&args.records)?).collect();
    if args.warnings {
        return warnings(&reports, args.format).map(Done::ok);
    }
    if args.verdict {
        return verdicts(&reports, args.format).map(Done::ok);
    }
    if args.format != Format::Table {
        let rows: Vec<_> = reports.iter().flat_map(|(_, report)| report.any_rows()).collect();
        let text = if args.format == Format::Json { view::json::rows(&rows) } else { view::csv::rows(&rows) };
        return Ok(Done::ok(text));
    }
    let folder = args.out.clone().unwrap_or_else(super::here);
    let mut text = String::new();
    for (path, report) in &reports {
        text.push_str(&view::terminal::summary(report));
        let name = path.file_stem().map_or_else(|| "report".into(), |stem| stem.to_string_lossy().into_owned());
        if let Some(page) = write_page(report, &folder.join(format!("{name}.html")))? {
            text.push_str(&format!("\nWritten: {}\n", page.display()));
        }
    }
    if reports.len() > 1 {
        text.push_str(&maps(&reports));
    }
    Ok(Done::ok(text))
}

/// The reports of records. One that can't be read is wrong usage.
pub fn read(records: &[PathBuf]) -> anyhow::Result<Vec<Report>> {
    records.iter().map(|path| Ok(model::report(&Record::read(path).map_err(usage)?))).collect()
}

/// A view of several records: a text for each, below its name where there are several.
fn of_each(reports: &[(&PathBuf, Report)], view: impl Fn(&Report) -> String) -> String {
    let text = |(path, report): &(&PathBuf, Report)| {
        let text = view(report);
        if reports.len() > 1 { format!("{}\n{text}", path.display()) } else { text }
    };
    reports.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn named<'a>(reports: &'a [(&PathBuf, Report)]) -> Vec<(String, &'a Report)> {
    reports.iter().map(|(path, report)| (path.display().to_string(), report)).collect()
}

/// The warnings of all records, each with its record.
fn warnings(reports: &[(&PathBuf, Report)], format: Format) -> anyhow::Result<String> {
    let text = |report: &Report| {
        let text = view::terminal::warnings(report);
        if text.is_empty() { "No warnings.\n".into() } else { text }
    };
    match format {
        Format::Table => Ok(of_each(reports, text)),
        Format::Json => Ok(view::json::warnings(&named(reports))),
        Format::Csv => Err(usage("warnings are sentences, not a table; print them with --format table or json")),
    }
}

/// The verdicts of all records, each with its record.
fn verdicts(reports: &[(&PathBuf, Report)], format: Format) -> anyhow::Result<String> {
    match format {
        Format::Table => Ok(of_each(reports, view::terminal::verdict)),
        Format::Json => Ok(view::json::verdicts(&named(reports))),
        Format::Csv => Err(usage("a verdict is sentences, not a table; print it with --format table or json")),
    }
}

/// The latency maps of several records beside each other: of modes of a machine, say.
fn maps(reports: &[(&PathBuf, Report)]) -> String {
    let name = |path: &PathBuf| path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let named: Vec<(String, &Report)> = reports.iter().map(|(path, report)| (name(path), report)).collect();
    let table = view::terminal::latency_maps(&named);
    if table.is_empty() { table } else { format!("\n{table}") }
}

/// The report in the format asked for.
pub fn present(report: &Report, format: Format, table: fn(&Report) -> String) -> String {
    match format {
        Format::Table => table(report),
        Format::Csv => view::csv::rows(&report.any_rows().collect::<Vec<_>>()),
        Format::Json => view::json::rows(&report.any_rows().collect::<Vec<_>>()),
    }
}

/// Writes the page, where this build has pages. A page may replace its older self: it is redrawn from a record.
#[cfg(feature = "report")]
pub fn write_page<'a>(report: &Report, path: &'a Path) -> anyhow::Result<Option<&'a Path>> {
    std::fs::write(path, view::html::page(report)).map_err(|fault| {
        usage(format!("cannot write {}: {fault}; choose another folder with --out", path.display()))
    })?;
    Ok(Some(path))
}

/// This build has no pages (feature `report` is off).
#[cfg(not(feature = "report"))]
pub fn write_page<'a>(_report: &Report, _path: &'a Path) -> anyhow::Result<Option<&'a Path>> {
    Ok(None)
}
