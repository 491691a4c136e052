//! `membound sweep`: pushes page cache out of the nodes.

use clap::Args;
use membound_core::json;

use crate::cli::args::{Done, Format};
use crate::cli::page_cache::share;
use crate::cli::usage;
use membound_analyze::across::sections::sweep as sections;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::room::Room;
use membound_core::work::sweep::NodeSweep;
use membound_measure::memory::sweep::sweep;
use membound_measure::os::signals;

/// Flags of `membound sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepArgs {
    /// Nodes to sweep, such as 0,2 [default: all with memory]
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    pub node: Option<CpuSet>,
    /// Share of each node's memory to touch at most; less is touched where less can be had
    #[arg(long, value_name = "SHARE", default_value = "95%", value_parser = share)]
    pub share: f64,
    /// Print results as; json has an object for each node
    #[arg(long, value_parser = Format::of_answers(), default_value = "table")]
    pub format: Format,
}

/// Sweeps and shows. Ctrl-C gives back what was taken and shows what was done until then.
pub fn run(args: &SweepArgs) -> anyhow::Result<Done> {
    let source = membound_measure::machine::source();
    let there: Vec<u32> = Room::read(&source).nodes.iter().map(|room| room.node).collect();
    let known = || there.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if there.is_empty() {
        anyhow::bail!("the nodes of this machine can't be read below /sys/devices/system/node; nothing was swept");
    }
    let nodes: Vec<u32> = args.node.as_ref().map_or_else(|| there.clone(), |asked| asked.iter().collect());
    if let Some(missing) = nodes.iter().find(|node| !there.contains(node)) {
        return Err(usage(format!("there is no node {missing} with memory; give --node {}", known())));
    }
    if nodes.is_empty() {
        return Err(usage(format!("--node names no node; give --node {}", known())));
    }
    signals::catch_interrupts();
    let swept = sweep(&source, &nodes, args.share, &signals::interrupted);
    let failed = swept.len() < nodes.len() || swept.iter().any(NodeSweep::is_failure);
    let text = match args.format {
        Format::Json => json::pretty(&swept) + "\n",
        format => format.drawn(&sections::document(&swept)),
    };
    Ok(Done { text, failed })
}
