//! `membound numa`: which memory is fast from where, what is each node, and what does page cache do to a program?

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;

use crate::cli::args::{Done, RunArgs, working_set};
use crate::cli::measure::{Job, reserve};
use crate::cli::page_cache;
use crate::cli::page_cache::PageCacheArgs;
use crate::cli::say;
use crate::cli::usage::usage;
use crate::cli::words::{kernel, one_of};
use membound_analyze::output::{hwloc, terminal};
use membound_analyze::report::Report;
use membound_core::experiments::numa::NumaChoice;
use membound_core::experiments::{numa, weights};
use membound_core::kernel::catalog::Kernel;
use membound_core::machine::Machine;
use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;
use membound_measure::os::outfile::Reserved;

/// Flags of `membound numa`.
#[derive(Debug, Clone, Args)]
pub struct NumaArgs {
    /// Only the memory of these nodes, such as 0,1 [default: all nodes with memory]
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = OF_THE_CACHE)]
    pub node: Vec<u32>,
    /// Memory kinds, such as 4k,thp [default: thp]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<MemoryKind>())]
    pub memory: Vec<MemoryKind>,
    /// Working set of each measurement [default: 4 times the last-level caches of its CPUs, as far as the node has room;
    /// with --page-cache half the memory of the CPUs' nodes, as far as --share allows]
    #[arg(long, value_name = "SIZE", value_parser = working_set)]
    pub size: Option<Bytes>,
    /// Describe a recorded machine instead: root folder of its sys and proc; shows its cases and measures nothing
    #[arg(long, value_name = "DIR", requires = "list", conflicts_with_all = OF_THE_CACHE)]
    pub root: Option<PathBuf>,
    /// Write the figures as memory attributes of a topology that hwloc reads (HWLOC_XMLFILE, lstopo --input)
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_THE_CACHE)]
    pub hwloc: Option<PathBuf>,
    /// Measure at which ratio of its pages on two nodes a kernel is fastest instead, such as 0,1
    #[arg(long, value_name = "NODE,NODE", value_delimiter = ',', num_args = 1)]
    #[arg(conflicts_with_all = ["node", "memory", "size", "root", "hwloc"], conflicts_with_all = OF_THE_CACHE)]
    pub weights: Vec<u32>,
    /// The kernel of --weights
    #[arg(long, value_name = "NAME", default_value = "triad", requires = "weights", value_parser = kernel(), hide_possible_values = true)]
    // What conflicts with --weights makes clap forget that it is required.
    #[arg(conflicts_with_all = ["page_cache", "node", "memory", "size", "root", "hwloc"])]
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
}

const BUDGET: Duration = Duration::from_secs(30);

impl NumaArgs {
    /// What a run takes without `--budget`.
    pub(crate) fn usual_budget(&self) -> Duration {
        if self.page_cache { page_cache::BUDGET } else { BUDGET }
    }
}

/// `--page-cache` and what requires it: clap forgets that where a flag conflicts with what is required.
const OF_THE_CACHE: [&str; 8] = ["page_cache", "share", "steps", "threads", "workers", "filler", "cure", "dir"];

/// Measures and shows.
pub fn run(args: &NumaArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    if args.page_cache {
        let memory = match args.memory[..] {
            [] => MemoryKind::Thp,
            [kind] => kind,
            _ => return Err(usage("--page-cache takes one kind of memory; give one to --memory")),
        };
        return page_cache::run(&args.cache, memory, args.size, &args.run, started);
    }
    if !args.weights.is_empty() {
        return weights(args);
    }
    let machine = match &args.root {
        Some(root) => Machine::read(root).map_err(usage)?,
        None => membound_measure::machine::live(),
    };
    if machine.nodes.is_empty() {
        anyhow::bail!(
            "the kernel names no NUMA nodes (/sys/devices/system/node), so nothing was measured; `membound bandwidth` and \
             `membound latency` measure memory as a whole"
        );
    }
    let frame = args.run.frame_of(&machine)?;
    let choice = NumaChoice { nodes: args.node.clone(), memory: args.memory.clone(), size: args.size, is_brief: false };
    let (cases, left_out) = numa::numa(&frame, &machine, &choice).map_err(usage)?;
    if !args.run.quiet {
        for fault in &left_out {
            say::note(format_args!("left out: {fault}"));
        }
    }
    // Before anything is measured: a place that can't be written is found at once.
    let mut file = args.hwloc.as_ref().filter(|_| !args.run.list).map(|path| reserve(path, "--hwloc")).transpose()?;
    let deadline = started + args.run.budget.unwrap_or(BUDGET);
    let mut write = |report: &Report| file.as_mut().map_or(Ok(()), |file| write_topology(report, file));
    let table = |report: &Report| match report.numa {
        None => "Too little was measured for a matrix; give a longer --budget, or a smaller --size.\n".into(),
        Some(_) => terminal::answer(report, &report.numa),
    };
    Job::new(&args.run, machine, deadline, table).finish_with(&cases, &mut write)
}

/// The ratio of pages on two nodes at which a kernel is fastest.
fn weights(args: &NumaArgs) -> anyhow::Result<Done> {
    let tiers = match args.weights[..] {
        [first, second] if first != second => [first, second],
        _ => return Err(usage("--weights takes two nodes, such as 0,1; `membound machine` shows those there are")),
    };
    let kernel = Kernel::find(&args.kernel).map_err(usage)?;
    let (job, frame) = Job::begin(&args.run, BUDGET, terminal::weights)?;
    let known: Vec<u32> = job.machine().nodes_with_memory().map(|node| node.id).collect();
    if let Some(missing) = tiers.iter().find(|node| !known.contains(node)) {
        let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(usage(format!(
            "--weights compares two nodes with memory, and node {missing} is none; nodes with memory: {known}"
        )));
    }
    job.finish(&weights::weights(&frame, kernel, tiers).map_err(usage)?)
}

fn write_topology(report: &Report, file: &mut Reserved) -> anyhow::Result<()> {
    let lacks =
        || format!("{} was not written: nothing was measured that hwloc has an attribute for", file.path().display());
    let text = hwloc::topology(report).with_context(lacks)?;
    say::into(file, &text).with_context(|| format!("writing {}", file.path().display()))
}
