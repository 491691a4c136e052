//! `membound roofline`: what bounds a loop, arithmetic or bandwidth, and how near it comes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::cli::args::{Done, Format, RunArgs, refuse};
use crate::cli::measure::{Job, reserve};
use crate::cli::say;
use crate::cli::usage;
use crate::cli::words::sheets;
use membound_analyze::across::sections::roofline as sections;
use membound_analyze::of_record as model;
use membound_analyze::output::{csv, json, svg, terminal};
use membound_analyze::report::Report;
use membound_core::experiments::roofline;
use membound_core::machine::Machine;
use membound_core::machine::spec::Sheet;
use membound_core::record::Record;
use membound_measure::os::outfile::Reserved;

/// Flags of `membound roofline`.
#[derive(Debug, Clone, Args)]
pub struct RooflineArgs {
    /// Draw these records (.jsonl) and measure nothing [default: measure]
    #[arg(value_name = "RECORD")]
    pub records: Vec<PathBuf>,
    /// Limits by this specification sheet: a file, or the name of one that comes with membound [default: the machine's]
    #[arg(long, value_name = "FILE", value_parser = sheets(), hide_possible_values = true)]
    pub spec: Option<PathBuf>,
    /// Draw the chart of all threads into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

pub(crate) const BUDGET: Duration = Duration::from_secs(30);

/// Measures or reads, and shows.
pub fn run(args: &RooflineArgs) -> anyhow::Result<Done> {
    let sheet = args.spec.as_deref().map(Sheet::find).transpose().map_err(usage)?;
    if !args.records.is_empty() {
        refuse_what_measures(&args.run)?;
    }
    if args.svg.is_some() && args.records.len() > 1 {
        return Err(usage("--svg draws one record; give a single one"));
    }
    // Before anything is measured: a place that can't be written is found at once.
    let mut chart = args.svg.as_ref().filter(|_| !args.run.list).map(|path| reserve(path, "--svg")).transpose()?;
    let mut draw = |report: &Report| chart.as_mut().map_or(Ok(()), |file| write_chart(report, file));
    if args.records.is_empty() {
        return measured(args, sheet, &mut draw);
    }
    let (mut reports, mut faults) = (Vec::new(), Vec::new());
    for path in &args.records {
        let mut record = Record::read(path).map_err(usage)?;
        record.header.sheet = sheet.clone().or(record.header.sheet);
        let report = model::report(&record);
        faults.extend(draw(&report).err());
        reports.push(report);
    }
    let done = Done::ok(shown(&reports, args.run.format));
    Ok(faults.iter().fold(done, Done::lacking))
}

/// A flag that would be ignored is refused.
fn refuse_what_measures(run: &RunArgs) -> anyhow::Result<()> {
    if run.html.is_some() {
        return Err(usage(
            "records are drawn and nothing is measured; draw pages with membound report instead of --html",
        ));
    }
    refuse(run.flags_of_measuring(), "records are drawn and nothing is measured")
}

fn measured(
    args: &RooflineArgs,
    sheet: Option<Sheet>,
    draw: &mut dyn FnMut(&Report) -> anyhow::Result<()>,
) -> anyhow::Result<Done> {
    let (job, frame) = Job::begin(&args.run, BUDGET, table)?;
    let budget = args.run.budget.unwrap_or(BUDGET);
    let cases = roofline::roofline(&frame, domain(job.machine(), args), budget).map_err(usage)?;
    job.against(sheet).finish_with(&cases, draw)
}

/// Cores behind the last-level cache of the first.
fn domain(machine: &Machine, args: &RooflineArgs) -> usize {
    let usable = args.run.cpus.clone().unwrap_or_else(|| machine.usable_cpus());
    let first = machine.topology_order(&usable).first().copied();
    let behind = first.and_then(|cpu| machine.last_level(cpu)).map(|cache| cache.cpus.intersection(&usable));
    behind.map_or(1, |cpus| machine.one_per_core(&cpus).len())
}

fn table(report: &Report) -> String {
    let Report { roofline, rows, limits, warnings, .. } = report;
    terminal::section::document(&sections::document(roofline, rows, limits, warnings))
}

fn shown(reports: &[Report], format: Format) -> String {
    let texts: Vec<String> = match (format, reports) {
        (Format::Table, _) => reports.iter().map(table).collect(),
        (Format::Markdown, _) => reports.iter().map(membound_analyze::output::markdown::report).collect(),
        (format, reports) => {
            let rows: Vec<_> = reports.iter().flat_map(Report::any_rows).collect();
            vec![match format {
                Format::Json => json::rows(&rows),
                Format::Jsonl => json::lines(&rows),
                _ => csv::rows(&rows),
            }]
        }
    };
    texts.join("\n")
}

fn write_chart(report: &Report, file: &mut Reserved) -> anyhow::Result<()> {
    let lacks =
        || format!("{} was not drawn: nothing was measured that a roofline has a place for", file.path().display());
    let chart = svg::roofline(report).with_context(lacks)?;
    say::into(file, &chart).with_context(|| format!("drawing {}", file.path().display()))
}
