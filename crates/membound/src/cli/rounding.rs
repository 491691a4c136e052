//! `membound rounding`: the same numbers added up in many ways.

use std::time::Duration;

use clap::Args;

use crate::cli::args::{Done, RunArgs, working_set};
use crate::cli::measure::Job;
use crate::cli::usage::usage;
use crate::cli::words::named;
use membound_analyze::output::terminal;
use membound_core::experiments::rounding;
use membound_core::kernel::catalog::Kernel;
use membound_core::units::Bytes;

/// Flags of `membound rounding`.
#[derive(Debug, Clone, Args)]
pub struct RoundingArgs {
    /// Kernels [default: all three]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named(rounding::SUMMED))]
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
}

pub(crate) const BUDGET: Duration = Duration::from_secs(15);

/// Measures and shows.
pub fn run(args: &RoundingArgs) -> anyhow::Result<Done> {
    let names: Vec<&str> = if args.kernel.is_empty() {
        rounding::SUMMED.to_vec()
    } else {
        args.kernel.iter().map(String::as_str).collect()
    };
    let mut kernels = Vec::new();
    for name in names {
        if !rounding::SUMMED.contains(&name) {
            return Err(usage(format!(
                "'{name}' is not added up in many ways; use one of: {}",
                rounding::SUMMED.join(", ")
            )));
        }
        kernels.push(Kernel::find(name).map_err(usage)?);
    }
    let (job, frame) = Job::begin(&args.run, BUDGET, |report| terminal::answer(report, &report.rounding))?;
    job.finish(&rounding::rounding(&frame, &kernels, args.size, args.data_seed).map_err(usage)?)
}
