//! `membound roofline`: what bounds a loop, arithmetic or bandwidth, and how near it comes.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;

use super::measure::{self, Job};
use super::{Done, Format, RunArgs, usage};
use crate::machine::{Machine, Sheet};
use crate::model::{self, Report};
use crate::plan;
use crate::record::Record;
use crate::view::{svg, terminal};

/// Flags of `membound roofline`.
#[derive(Debug, Clone, Args)]
pub struct RooflineArgs {
    /// Draw these records (.jsonl) and measure nothing [default: measure]
    #[arg(value_name = "RECORD")]
    pub records: Vec<PathBuf>,
    /// Limits by this specification sheet: a file, or the name of one that comes with membound [default: the machine's]
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// Draw the chart of all threads into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a record to this file
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    pub record: Option<PathBuf>,
}

const BUDGET: Duration = Duration::from_secs(30);

/// Measures or reads, and shows.
pub fn run(args: &RooflineArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    let sheet = args.spec.as_deref().map(Sheet::find).transpose().map_err(usage)?;
    if args.svg.is_some() && args.records.len() > 1 {
        return Err(usage("--svg draws one record; give a single one"));
    }
    // Before anything is measured: a place that can't be written is found at once.
    let chart = match args.svg.as_ref().filter(|_| !args.run.list) {
        Some(path) => Some((path, measure::create(path)?)),
        None => None,
    };
    let draw = |report: &Report| match &chart {
        Some((path, file)) => write_chart(report, file).with_context(|| format!("drawing {}", path.display())),
        None => Ok(()),
    };
    if args.records.is_empty() {
        return measured(args, sheet, started, &draw);
    }
    let mut reports = Vec::new();
    for path in &args.records {
        let mut record = Record::read(path).map_err(usage)?;
        record.header.sheet = sheet.clone().or(record.header.sheet);
        let report = model::report(&record);
        draw(&report)?;
        reports.push(report);
    }
    Ok(Done::ok(shown(&reports, args.run.format)))
}

fn measured(
    args: &RooflineArgs,
    sheet: Option<Sheet>,
    started: Instant,
    draw: &dyn Fn(&Report) -> anyhow::Result<()>,
) -> anyhow::Result<Done> {
    let (machine, frame) = args.run.frame()?;
    let budget = args.run.budget.unwrap_or(BUDGET);
    let cases = plan::roofline(&frame, domain(&machine, args), budget).map_err(usage)?;
    let deadline = started + budget;
    let job = Job::new(&args.run, args.record.as_ref(), machine, deadline, terminal::roofline).against(sheet);
    job.finish_with(&cases, &mut |report| draw(report))
}

/// Cores behind the last-level cache of the first.
fn domain(machine: &Machine, args: &RooflineArgs) -> usize {
    let usable = args.run.cpus.clone().unwrap_or_else(|| machine.usable_cpus());
    let first = machine.topology_order(&usable).first().copied();
    let behind = first.and_then(|cpu| machine.last_level(cpu)).map(|cache| cache.cpus.intersection(&usable));
    behind.map_or(1, |cpus| machine.one_per_core(&cpus).len())
}

fn shown(reports: &[Report], format: Format) -> String {
    let texts: Vec<String> = match (format, reports) {
        (Format::Table, _) => reports.iter().map(terminal::roofline).collect(),
        (format, reports) => {
            let rows: Vec<_> = reports.iter().flat_map(Report::any_rows).collect();
            vec![if format == Format::Json { crate::view::json::rows(&rows) } else { crate::view::csv::rows(&rows) }]
        }
    };
    texts.join("\n")
}

fn write_chart(report: &Report, mut file: &std::fs::File) -> anyhow::Result<()> {
    let chart = svg::roofline(report).context("nothing was measured that a roofline has a place for")?;
    Ok(file.write_all(chart.as_bytes())?)
}
