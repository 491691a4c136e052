//! `membound sweep`: pushes page cache out of the nodes.

use clap::{Args, ValueEnum};

use super::page_cache::share;
use super::{Done, usage};
use crate::machine::{CpuSet, Room, Source};
use crate::run::sweep::{NodeSweep, sweep};
use crate::run::sys;
use crate::view::terminal;

/// Flags of `membound sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepArgs {
    /// Nodes to sweep, such as 0,2 [default: all with memory]
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    pub node: Option<CpuSet>,
    /// Share of each node's memory to touch at most; less is touched where less can be had
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = share)]
    pub share: f64,
    /// Print results as
    #[arg(long, value_enum, default_value_t = SweepFormat::Table)]
    pub format: SweepFormat,
}

/// How the result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SweepFormat {
    /// Text for people
    Table,
    /// One JSON array with an object for each node
    Json,
}

/// Sweeps and shows. Ctrl-C gives back what was taken and shows what was done until then.
pub fn run(args: &SweepArgs) -> anyhow::Result<Done> {
    let source = Source::live();
    let there: Vec<u32> = Room::read(&source).nodes.iter().map(|room| room.node).collect();
    let known = || there.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if there.is_empty() {
        anyhow::bail!("the nodes of this machine can't be read below /sys/devices/system/node; nothing was swept");
    }
    let nodes: Vec<u32> = args.node.as_ref().map_or_else(|| there.clone(), |asked| asked.iter().collect());
    if let Some(missing) = nodes.iter().find(|node| !there.contains(node)) {
        return Err(usage(format!("there is no node {missing} with memory; give --node {}", known())));
    }
    sys::catch_interrupts();
    let swept = sweep(&source, &nodes, args.share, &sys::interrupted);
    let failed = swept.len() < nodes.len() || swept.iter().any(NodeSweep::is_failure);
    let text = match args.format {
        SweepFormat::Table => terminal::sweep(&swept),
        SweepFormat::Json => serde_json::to_string_pretty(&swept)? + "\n",
    };
    Ok(Done { text, failed })
}
