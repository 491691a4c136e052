//! `membound numa`: which memory is fast from where, what is each node, and what does page cache do to a program?

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;

use super::measure::{self, Job};
use super::page_cache::{self, PageCacheArgs};
use super::{Done, RunArgs, usage, working_set};
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::memory::MemoryKind;
use crate::model::Report;
use crate::plan::{self, NumaChoice};
use crate::units::Bytes;
use crate::view::{hwloc, terminal};

/// Flags of `membound numa`.
#[derive(Debug, Clone, Args)]
pub struct NumaArgs {
    /// Only the memory of these nodes, such as 0,1 [default: all nodes with memory]
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "page_cache")]
    pub node: Vec<u32>,
    /// Memory kinds, such as 4k,thp [default: thp]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub memory: Vec<MemoryKind>,
    /// Working set of each measurement [default: 4 times the last-level caches of its CPUs, as far as the node has room;
    /// with --page-cache half the memory of the CPUs' nodes, as far as --share allows]
    #[arg(long, value_name = "SIZE", value_parser = working_set)]
    pub size: Option<Bytes>,
    /// Describe a recorded machine instead: root folder of its sys and proc; shows its cases and measures nothing
    #[arg(long, value_name = "DIR", requires = "list", conflicts_with = "page_cache")]
    pub root: Option<PathBuf>,
    /// Write the figures as memory attributes of a topology that hwloc reads (HWLOC_XMLFILE, lstopo --input)
    #[arg(long, value_name = "FILE", conflicts_with = "page_cache")]
    pub hwloc: Option<PathBuf>,
    /// Measure at which ratio of its pages on two nodes a kernel is fastest instead, such as 0,1
    #[arg(long, value_name = "NODE,NODE", value_delimiter = ',', num_args = 1)]
    #[arg(conflicts_with_all = ["page_cache", "node", "memory", "size", "root", "hwloc"])]
    pub weights: Vec<u32>,
    /// The kernel of --weights
    #[arg(long, value_name = "NAME", default_value = "triad", requires = "weights")]
    pub kernel: String,
    /// Measure the triad beside page cache of growing size instead: bandwidth, where its pages land, which cure helps
    #[arg(long)]
    pub page_cache: bool,
    /// Flags of --page-cache
    #[command(flatten)]
    pub cache: PageCacheArgs,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a record to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

const BUDGET: Duration = Duration::from_secs(30);

/// Measures and shows.
pub fn run(args: &NumaArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    if args.page_cache {
        let memory = match args.memory[..] {
            [] => MemoryKind::Thp,
            [kind] => kind,
            _ => return Err(usage("--page-cache takes one kind of memory; give one to --memory")),
        };
        return page_cache::run(&args.cache, memory, args.size, &args.run, args.record.as_ref(), started);
    }
    if !args.weights.is_empty() {
        return weights(args, started);
    }
    let machine = match &args.root {
        Some(root) => Machine::read(root).map_err(usage)?,
        None => Machine::live(),
    };
    if machine.nodes.is_empty() {
        let text = "The kernel names no NUMA nodes (/sys/devices/system/node): nothing to place. `membound bandwidth` and \
                    `membound latency` measure memory as a whole.\n";
        return Ok(Done::ok(text.into()));
    }
    let frame = args.run.frame_of(&machine)?;
    let choice = NumaChoice { nodes: args.node.clone(), memory: args.memory.clone(), size: args.size, is_brief: false };
    let (cases, left_out) = plan::numa(&frame, &machine, &choice).map_err(usage)?;
    if !args.run.quiet {
        for fault in &left_out {
            let _ = writeln!(anstream::stderr(), "membound: left out: {fault}");
        }
    }
    // Before anything is measured: a place that can't be written is found at once.
    let file = match args.hwloc.as_ref().filter(|_| !args.run.list) {
        Some(path) => Some((path, measure::create(path)?)),
        None => None,
    };
    let deadline = started + args.run.budget.unwrap_or(BUDGET);
    let mut write = |report: &Report| match &file {
        Some((path, file)) => write_topology(report, file).with_context(|| format!("writing {}", path.display())),
        None => Ok(()),
    };
    Job::new(&args.run, args.record.as_ref(), machine, deadline, terminal::numa).finish_with(&cases, &mut write)
}

/// The ratio of pages on two nodes at which a kernel is fastest.
fn weights(args: &NumaArgs, started: Instant) -> anyhow::Result<Done> {
    let tiers = match args.weights[..] {
        [first, second] if first != second => [first, second],
        _ => return Err(usage("--weights takes two nodes, such as 0,1; `membound machine` shows those there are")),
    };
    let kernel = Kernel::find(&args.kernel).map_err(usage)?;
    let (machine, frame) = args.run.frame()?;
    let cases = plan::weights(&frame, kernel, tiers).map_err(usage)?;
    let deadline = started + args.run.budget.unwrap_or(BUDGET);
    Job::new(&args.run, args.record.as_ref(), machine, deadline, terminal::weights).finish(&cases)
}

fn write_topology(report: &Report, mut file: &std::fs::File) -> anyhow::Result<()> {
    let text = hwloc::topology(report).context("nothing was measured that hwloc has an attribute for")?;
    Ok(file.write_all(text.as_bytes())?)
}
