//! `membound c2c` and `membound loaded`: what cores cost each other, by a line that they share and by a memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::measure::{self, Session};
use super::report::present;
use super::{Done, RunArgs, usage};
use crate::kernel::mix::Mix;
use crate::machine::Machine;
use crate::memory::Places;
use crate::model::{self, Report};
use crate::plan::{self, Case, Home, STEPS};
use crate::run::here::Here;
use crate::view::terminal;

/// Flags of `membound c2c`.
#[derive(Debug, Clone, Args)]
pub struct C2cArgs {
    /// Which of the two CPUs touches the line's page first: first, second [default: both, one after the other]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub home: Vec<Home>,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a record to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

/// Flags of `membound loaded`.
#[derive(Debug, Clone, Args)]
pub struct LoadedArgs {
    /// What the others do, reads to writes on the bus: 100:0, 75:25, 67:33, 50:50, nt [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub mix: Vec<Mix>,
    /// Loads of each mix, from nearly idle to flat out
    #[arg(long, value_name = "N", default_value_t = STEPS, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub steps: u32,
    /// Threads: one chases, the others load [default: all CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a record to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

const BUDGET: Duration = Duration::from_secs(30);

/// Passes lines, and shows what it costs.
pub fn c2c(args: &C2cArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    let (machine, frame) = args.run.frame()?;
    let cases = plan::handovers(&frame, &args.home).map_err(usage)?;
    finish(started, machine, &cases, &args.run, args.record.as_ref(), terminal::c2c)
}

/// Chases under load, and shows what it costs.
pub fn loaded(args: &LoadedArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    let (machine, frame) = args.run.frame()?;
    let cases = plan::loaded(&frame, &args.mix, args.steps, args.threads).map_err(usage)?;
    finish(started, machine, &cases, &args.run, args.record.as_ref(), terminal::loaded)
}

fn finish(
    started: Instant,
    machine: Machine,
    cases: &[Case],
    run: &RunArgs,
    record: Option<&PathBuf>,
    table: fn(&Report) -> String,
) -> anyhow::Result<Done> {
    if run.list {
        return Ok(Done::ok(measure::list(cases)));
    }
    let session = Session {
        machine,
        seed: run.seed.unwrap_or_else(measure::fresh_seed),
        deadline: started + run.budget.unwrap_or(BUDGET),
        samples: run.samples as usize,
        record: record.cloned(),
        quiet: run.quiet,
    };
    let mut here = Here::new(cases, Places::default(), run.verify)?;
    let finished = measure::measure(cases, &mut here, &session)?;
    measure::tell(&finished, &session);
    let report = model::report(&finished.record);
    Ok(Done { text: present(&report, run.format, table), failed: finished.failed() })
}
