//! `membound addrmap`: which address bits choose the channel, bank or slice of a line?

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::measure::{self, Session};
use super::report::present;
use super::{Done, RunArgs, memory, node_number, usage, working_set};
use crate::memory::{MemoryKind, Places};
use crate::model::{self, addrmap::Experiment};
use crate::plan;
use crate::run::Executor;
use crate::run::here::Here;
use crate::units::Bytes;
use crate::view::terminal;

/// Flags of `membound addrmap`.
#[derive(Debug, Clone, Args)]
pub struct AddrmapArgs {
    /// Kind of memory: thp, huge-2m or huge-1g
    #[arg(long, value_name = "KIND", default_value_t = MemoryKind::Thp)]
    pub memory: MemoryKind,
    /// Bind its pages to this NUMA node
    #[arg(long, value_name = "NODE", value_parser = node_number())]
    pub node: Option<u32>,
    /// Memory that pairs of lines are taken from [default: 64MiB, or a page if that is more]
    #[arg(long, value_name = "SIZE", value_parser = working_set)]
    pub size: Option<Bytes>,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a record to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

const BUDGET: Duration = Duration::from_secs(30);

/// Asks, and shows.
pub fn run(args: &AddrmapArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    if plan::known_page(args.memory).is_none() {
        let fault = format!("{} memory brings no known address bits; choose thp, huge-2m or huge-1g", args.memory);
        return Err(usage(fault));
    }
    let (machine, frame) = args.run.frame()?;
    let spec = memory::on(args.memory, args.node);
    let about = plan::conflict(&frame, spec, args.size).map_err(usage)?;
    let session = Session::new(&args.run, machine, started + args.run.budget.unwrap_or(BUDGET), args.record.clone());
    let mut here = Here::new(&[], Places::default(), args.run.verify)?;
    let mut experiment = Experiment::new(&about, here.clock().hz, &session.machine, session.seed);
    if args.run.list {
        let first = experiment.next().map_or_else(String::new, |case| format!("{case}\n"));
        return Ok(Done::ok(first + "further cases follow from the answers\n"));
    }
    let finished = measure::follow(&mut experiment, &mut here, &session)?;
    measure::tell(&finished, &session);
    let report = model::report(&finished.record);
    measure::warn(&report, &args.run);
    Ok(Done { text: present(&report, args.run.format, terminal::addrmap), failed: finished.failed() })
}
