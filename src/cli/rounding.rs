//! `membound rounding`: the same numbers added up in many ways.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::measure::Job;
use super::{Done, RunArgs, usage, working_set};
use crate::kernel::Kernel;
use crate::plan;
use crate::units::Bytes;
use crate::view::terminal;

/// Flags of `membound rounding`.
#[derive(Debug, Clone, Args)]
pub struct RoundingArgs {
    /// Kernels: sum, dot, triad [default: all three]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub kernel: Vec<String>,
    /// Working set [default: 2MiB]
    #[arg(long, value_name = "SIZE", value_parser = working_set)]
    pub size: Option<Bytes>,
    /// Seed of the numbers that are added up
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub data_seed: u64,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a record to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

const BUDGET: Duration = Duration::from_secs(15);

/// Measures and shows.
pub fn run(args: &RoundingArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    let names: Vec<&str> =
        if args.kernel.is_empty() { plan::SUMMED.to_vec() } else { args.kernel.iter().map(String::as_str).collect() };
    let mut kernels = Vec::new();
    for name in names {
        if !plan::SUMMED.contains(&name) {
            return Err(usage(format!(
                "'{name}' is not added up in many ways; use one of: {}",
                plan::SUMMED.join(", ")
            )));
        }
        kernels.push(Kernel::find(name).map_err(usage)?);
    }
    let (machine, frame) = args.run.frame()?;
    let cases = plan::rounding(&frame, &kernels, args.size, args.data_seed).map_err(usage)?;
    let deadline = started + args.run.budget.unwrap_or(BUDGET);
    Job::new(&args.run, args.record.as_ref(), machine, deadline, terminal::rounding).finish(&cases)
}
