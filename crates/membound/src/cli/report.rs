//! `membound report`: redraws summary and page from records.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::args;
use crate::cli::args::{DetailArgs, Done, Format};
use crate::cli::say;
use crate::cli::usage;
use membound_analyze::across::sections;
use membound_analyze::report::Report;
use membound_analyze::section::Section;
use membound_analyze::{of_record as model, output as view};
use membound_core::record::{Record, RecordError, records_in};

/// Flags of `membound report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Records (.jsonl) that membound wrote, and folders of them
    #[arg(value_name = "RECORD", required = true)]
    pub records: Vec<PathBuf>,
    /// Write a page for each record into this folder, which is made if need be
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the page of the one record to this file
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub html: Option<PathBuf>,
    /// Print the warnings alone, with their cures
    #[arg(long, conflicts_with_all = ["all", "section"])]
    pub warnings: bool,
    /// Print the verdict alone: why memory-bound code is not faster here, causes ranked
    #[arg(long, conflicts_with_all = ["warnings", "all", "section"])]
    pub verdict: bool,
    /// Print where the time of the run went
    #[arg(long, conflicts_with_all = ["warnings", "verdict", "all", "section"])]
    pub where_time_went: bool,
    /// Print what the rows come to, as JSON: levels, limits, roofline, what costs most, verdict, warnings
    #[arg(long, conflicts_with_all = ["warnings", "verdict", "where_time_went", "all", "section"])]
    pub answers: bool,
    /// Print as; csv and json print the rows of all records, markdown the answers
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// How much to print
    #[command(flatten)]
    pub detail: DetailArgs,
}

/// Redraws.
pub fn run(args: &ReportArgs) -> anyhow::Result<Done> {
    let records = ours(files(&args.records)?, &args.records)?;
    args.detail.refuse_unless(args.format == Format::Table)?;
    for (flag, is_given) in [("--html", args.html.is_some()), ("--out", args.out.is_some())] {
        if is_given && cfg!(not(feature = "report")) {
            return Err(args::no_pages(flag));
        }
    }
    if args.html.is_some() && records.len() > 1 {
        return Err(usage(format!("--html writes one page, and there are {} records; give --out DIR", records.len())));
    }
    if args.out.is_some() {
        refuse_equal_names(&records)?;
    }
    let (records, faults) = readable(&records)?;
    let reports: Vec<_> = records.iter().map(|(path, record)| (*path, model::report(record))).collect();
    let text = match args.where_time_went {
        true => where_time_went(&records, args.format)?,
        false => shown(args, &reports)?,
    };
    let done = write_pages(args, &reports, Done::ok(text))?;
    Ok(faults.iter().fold(done, Done::lacking))
}

type Named<'a> = (&'a PathBuf, Record);

/// Those that can be read, and what is wrong with others; it is wrong usage where there is nothing else.
fn readable(paths: &[PathBuf]) -> anyhow::Result<(Vec<Named<'_>>, Vec<anyhow::Error>)> {
    let (mut records, mut faults) = (Vec::new(), Vec::new());
    for path in paths {
        match Record::read(path) {
            Ok(record) => records.push((path, record)),
            Err(fault) => faults.push(usage(fault)),
        }
    }
    match faults.pop_if(|_| records.is_empty()) {
        Some(fault) => Err(fault),
        None => Ok((records, faults)),
    }
}

/// A page is named like its record: two records of one name would have one page.
fn refuse_equal_names(records: &[PathBuf]) -> anyhow::Result<()> {
    let mut named: HashMap<_, &PathBuf> = HashMap::new();
    for record in records {
        if let Some(other) = named.insert(record.file_stem(), record) {
            return Err(usage(format!(
                "the pages of {} and {} would have one name; draw them into folders of their own, or give one record and \
                 --html FILE",
                other.display(),
                record.display()
            )));
        }
    }
    Ok(())
}

/// What goes to stdout.
fn shown(args: &ReportArgs, reports: &[(&PathBuf, Report)]) -> anyhow::Result<String> {
    if args.answers {
        return answers(reports, args.format);
    }
    if args.warnings {
        return warnings(reports, args.format);
    }
    if args.verdict {
        return verdicts(reports, args.format);
    }
    let rows = || reports.iter().flat_map(|(_, report)| report.any_rows()).collect::<Vec<_>>();
    Ok(match args.format {
        Format::Markdown => of_each(reports, view::markdown::report),
        Format::Json => view::json::rows(&rows()),
        Format::Jsonl => view::json::lines(&rows()),
        Format::Csv => view::csv::rows(&rows()),
        Format::Table => {
            let mut text: String = reports.iter().map(|(_, report)| args.detail.text(report)).collect();
            if reports.len() > 1 {
                text.push_str(&maps(reports));
            }
            text
        }
    })
}

/// The pages that were asked for.
fn write_pages(args: &ReportArgs, reports: &[(&PathBuf, Report)], mut done: Done) -> anyhow::Result<Done> {
    if let Some(folder) = &args.out {
        args::make_folder(folder)?;
    }
    for (path, report) in reports {
        let stem = path.file_stem().map_or_else(|| "report".into(), |stem| stem.to_string_lossy().into_owned());
        let (page, flag) = match (&args.html, &args.out) {
            (Some(page), _) => (page.clone(), "--html"),
            (None, Some(folder)) => (folder.join(format!("{stem}.html")), "--out"),
            (None, None) => return Ok(done),
        };
        match write_page(report, &page, flag) {
            Ok(()) if args.format == Format::Table => {
                done.text.push_str(&format!("\nWritten: {}\n", page.display()));
            }
            Ok(()) => {}
            Err(fault) => done = done.lacking(&fault),
        }
    }
    Ok(done)
}

/// Files as they are named, of folders all records, by name; each once.
pub(crate) fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() { files.extend(records_in(path).map_err(usage)?) } else { files.push(path.clone()) }
    }
    // A file that is named beside its folder counts once.
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(file.clone()));
    Ok(files)
}

/// Without what others keep as `.jsonl` in folders that were named, unless there is nothing else.
fn ours(found: Vec<PathBuf>, named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let (mut own, mut foreign) = (Vec::new(), Vec::new());
    for path in found {
        // What is wrong with one of ours, or with one that was named, is said when it is read.
        let fault = if named.contains(&path) { None } else { Record::header(&path).err() };
        match fault {
            Some(fault @ RecordError::Foreign { .. }) => foreign.push(fault),
            _ => own.push(path),
        }
    }
    if own.is_empty() {
        return foreign.into_iter().next().map_or(Ok(own), |fault| Err(usage(fault)));
    }
    for fault in foreign {
        say::note(format_args!("passed over: {fault}"));
    }
    Ok(own)
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

/// What each record comes to.
fn answers(reports: &[(&PathBuf, Report)], format: Format) -> anyhow::Result<String> {
    match format {
        // What people read of it is the report itself.
        Format::Table | Format::Json => Ok(view::json::answers(&named(reports))),
        Format::Csv | Format::Jsonl | Format::Markdown => {
            Err(usage("answers are objects in objects; print them with --format json"))
        }
    }
}

/// The warnings of all records, each with its record.
fn warnings(reports: &[(&PathBuf, Report)], format: Format) -> anyhow::Result<String> {
    let section = |report: &Report| sections::warnings::section(&report.warnings);
    match format {
        Format::Json => Ok(view::json::warnings(&named(reports))),
        Format::Csv | Format::Jsonl => {
            Err(usage("warnings are sentences, not a table; print them with --format table, json or markdown"))
        }
        format => Ok(of_each(reports, |report| alone(section(report), "No warnings.", format))),
    }
}

/// The verdicts of all records, each with its record.
fn verdicts(reports: &[(&PathBuf, Report)], format: Format) -> anyhow::Result<String> {
    let section = |report: &Report| sections::verdict::section(&report.verdict);
    match format {
        Format::Json => Ok(view::json::verdicts(&named(reports))),
        Format::Csv | Format::Jsonl => {
            Err(usage("a verdict is sentences, not a table; print it with --format table, json or markdown"))
        }
        format => Ok(of_each(reports, |report| {
            alone(
                section(report),
                "No verdict: it needs triad, copy, add, scale, store or load in memory, with\n\
                 regular stores in usual pages -> membound stores",
                format,
            )
        })),
    }
}

/// Where the time of each record went.
fn where_time_went(records: &[Named<'_>], format: Format) -> anyhow::Result<String> {
    let mut text = String::new();
    for (path, record) in records {
        if records.len() > 1 {
            text.push_str(&format!("{}\n", path.display()));
        }
        let section = sections::time::section(record);
        text.push_str(&match format {
            Format::Table => view::terminal::section::drawn(&section),
            Format::Markdown => view::markdown::section(&section),
            Format::Csv | Format::Json | Format::Jsonl => {
                return Err(usage(
                    "where the time went is a table for people; print it with --format table or markdown",
                ));
            }
        });
    }
    Ok(text)
}

/// A section by itself, or that there is nothing in it.
fn alone(section: Section, nothing: &str, format: Format) -> String {
    match format {
        _ if section.is_empty() => format!("{nothing}\n"),
        Format::Markdown => view::markdown::section(&section),
        _ => view::terminal::section::drawn(&section),
    }
}

/// The latency maps of several records beside each other: of modes of a machine, say.
fn maps(reports: &[(&PathBuf, Report)]) -> String {
    let name = |path: &PathBuf| path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let named: Vec<_> = reports.iter().map(|(path, report)| (name(path), &report.latency.map[..])).collect();
    let table = sections::maps::latency_maps(&named);
    table.map_or_else(String::new, |table| format!("\n{}", view::terminal::section::drawn(&table)))
}

/// The report of what was just measured, in the format asked for.
pub fn present(report: &Report, format: Format, table: impl Fn(&Report) -> String) -> String {
    match format {
        Format::Table => table(report),
        Format::Markdown => view::markdown::report(report),
        Format::Csv => view::csv::rows(&report.any_rows().collect::<Vec<_>>()),
        Format::Json => view::json::rows(&report.any_rows().collect::<Vec<_>>()),
        // They are out already.
        Format::Jsonl => String::new(),
    }
}

/// Writes the page, a new file; the flag chooses another place.
#[cfg(feature = "report")]
fn write_page(report: &Report, path: &Path, flag: &str) -> anyhow::Result<()> {
    args::new_page(&view::html::page(report), path, flag)
}

/// This build has no pages.
#[cfg(not(feature = "report"))]
fn write_page(_report: &Report, _path: &Path, flag: &str) -> anyhow::Result<()> {
    Err(args::no_pages(flag))
}
