//! `membound c2c` and `membound loaded`: what cores cost each other, by a line that they share and by a memory.

use std::time::Duration;

use clap::Args;

use crate::cli::args::{Done, RunArgs, number};
use crate::cli::count::Threads;
use crate::cli::measure::Job;
use crate::cli::usage::usage;
use crate::cli::words::{one_of, threads};
use membound_analyze::output::terminal;
use membound_core::experiments::c2c;
use membound_core::experiments::c2c::STEPS;
use membound_core::in_order::each_once;
use membound_core::kernel::mix::Mix;
use membound_core::work::c2c::Home;

/// Flags of `membound c2c`.
#[derive(Debug, Clone, Args)]
pub struct C2cArgs {
    /// Which of the two CPUs touches the line's page first [default: both, one after the other]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<Home>())]
    pub home: Vec<Home>,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

/// Flags of `membound loaded`.
#[derive(Debug, Clone, Args)]
pub struct LoadedArgs {
    /// What the others do, reads to writes on the bus [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<Mix>())]
    pub mix: Vec<Mix>,
    /// Loads of each mix, from nearly idle to flat out
    #[arg(long, value_name = "N", default_value_t = STEPS, value_parser = number(1, 100))]
    pub steps: u32,
    /// Threads: one chases, the others load [default: all CPUs]
    #[arg(long, value_name = "N", value_parser = threads(), hide_possible_values = true)]
    pub threads: Option<Threads>,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

pub(crate) const BUDGET: Duration = Duration::from_secs(30);

/// Passes lines, and shows what it costs.
pub fn c2c(args: &C2cArgs) -> anyhow::Result<Done> {
    let (job, frame) = Job::begin(&args.run, BUDGET, |report| terminal::answer(report, &report.handovers))?;
    job.finish(&c2c::handovers(&frame, &each_once(args.home.iter().copied())).map_err(usage)?)
}

/// Chases under load, and shows what it costs.
pub fn loaded(args: &LoadedArgs) -> anyhow::Result<Done> {
    let (job, frame) = Job::begin(&args.run, BUDGET, |report| terminal::answer(report, &report.loaded))?;
    let threads = args.threads.map(|threads| threads.count(&frame));
    job.finish(&c2c::loaded(&frame, &each_once(args.mix.iter().copied()), args.steps, threads).map_err(usage)?)
}
