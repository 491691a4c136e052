//! `membound c2c` and `membound loaded`: what cores cost each other, by a line that they share and by a memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::measure::Job;
use super::{Done, RunArgs, usage};
use crate::kernel::mix::Mix;
use crate::plan::{self, Home, STEPS};
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
    let deadline = started + args.run.budget.unwrap_or(BUDGET);
    Job::new(&args.run, args.record.as_ref(), machine, deadline, terminal::c2c).finish(&cases)
}

/// Chases under load, and shows what it costs.
pub fn loaded(args: &LoadedArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    let (machine, frame) = args.run.frame()?;
    let cases = plan::loaded(&frame, &args.mix, args.steps, args.threads).map_err(usage)?;
    let deadline = started + args.run.budget.unwrap_or(BUDGET);
    Job::new(&args.run, args.record.as_ref(), machine, deadline, terminal::loaded).finish(&cases)
}
