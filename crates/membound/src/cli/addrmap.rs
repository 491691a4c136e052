//! `membound addrmap`: which address bits choose the channel, bank or slice of a line?

use std::time::{Duration, Instant};

use clap::Args;

use crate::cli::args::{Done, RunArgs, node_number, working_set};
use crate::cli::measure::{Page, Session};
use crate::cli::words::known_addresses;
use crate::cli::{measure, memory, usage};
use membound_analyze::experiments::addrmap::rows::Experiment;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::experiments::addrmap;
use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::schedule::Executor;

/// Flags of `membound addrmap`.
#[derive(Debug, Clone, Args)]
pub struct AddrmapArgs {
    /// Kind of memory: thp, huge-2m or huge-1g
    #[arg(long, value_name = "KIND", default_value_t = MemoryKind::Thp, value_parser = known_addresses(), hide_possible_values = true)]
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
}

pub(crate) const BUDGET: Duration = Duration::from_secs(30);

/// Asks, and shows.
pub fn run(args: &AddrmapArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    if addrmap::known_page(args.memory).is_none() {
        let fault = format!("{} memory brings no known address bits; choose thp, huge-2m or huge-1g", args.memory);
        return Err(usage(fault));
    }
    let (machine, frame) = args.run.frame()?;
    let spec = memory::on(args.memory, args.node);
    let about = addrmap::conflict(&frame, spec, args.size).map_err(usage)?;
    let session =
        Session::new(&args.run, machine, started + args.run.budget.unwrap_or(BUDGET), args.run.record.clone());
    let mut here = Here::new(&[], Places::default(), args.run.verify)?;
    let mut experiment = Experiment::new(&about, here.clock().hz, &session.machine, session.seed);
    if args.run.list {
        let first = experiment.next().map_or_else(String::new, |case| format!("{case}\n"));
        return Ok(Done::ok(first + "further cases follow from the answers\n"));
    }
    let page = Page::reserve(&args.run)?;
    let finished = measure::follow(&mut experiment, &mut here, &session)?;
    let table = |report: &Report| terminal::answer(report, &report.addrmap);
    let (report, done) = finished.shown(&session, &args.run, table);
    Ok(page.write(&report, done))
}
