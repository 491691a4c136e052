//! `membound latency`: dependent-load latency of each level, from where, and what hides it.

use std::time::Duration;

use clap::Args;

use crate::cli::args::{Done, PlaceArgs, RunArgs, node_number, number, working_set};
use crate::cli::measure::Job;
use crate::cli::memory::MemoryList;
use crate::cli::usage::usage;
use crate::cli::words::one_of;
use crate::cli::{memory, words};
use membound_analyze::output::terminal;
use membound_core::case::{Case, USUAL_MEMORY};
use membound_core::experiments::frame::Frame;
use membound_core::experiments::latency;
use membound_core::experiments::latency::{Detail, LatencyChoice};
use membound_core::kernel::chase::{Chase, Order};
use membound_core::machine::Machine;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::units::Bytes;

/// Flags of `membound latency`.
#[derive(Debug, Clone, Args)]
pub struct LatencyArgs {
    /// Working sets, such as 24KiB,1MiB [default: from 4 KiB to memory]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = working_set)]
    pub size: Vec<Bytes>,
    /// Memory kinds, such as 4k,thp,huge-2m [default: thp, and 4k and huge-2m for what pages cost], and where they lie,
    /// such as node1 or 4k@interleave:0-1 (see `membound bandwidth --help`)
    #[arg(long, value_name = "LIST", value_parser = words::memory())]
    pub memory: Vec<MemoryList>,
    /// Bind all pages to this NUMA node, where --memory names no place
    #[arg(long, value_name = "NODE", value_parser = node_number())]
    pub node: Option<u32>,
    /// Orders
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of::<Order>())]
    pub order: Vec<Order>,
    /// Bytes from place to place, multiples of 8 [default: 64]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = stride)]
    pub stride: Vec<u32>,
    /// Independent chains, 1 to 32
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = number(1, Chase::CHAINS_MOST))]
    pub chains: Vec<u32>,
    /// Memory latency of each CPU to each node
    #[arg(long, conflicts_with_all = ["order", "stride", "chains"])]
    pub map: bool,
    /// Where memory comes from
    #[command(flatten)]
    pub places: PlaceArgs,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

/// With planning and drawing a whole run ends within 15 s.
pub(crate) const BUDGET: Duration = Duration::from_millis(14_500);

fn stride(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<Bytes>().ok().and_then(|bytes| u32::try_from(bytes.0).ok());
    bytes.ok_or_else(|| format!("'{text}' is no stride; give bytes, such as 64 or 4KiB"))
}

impl LatencyArgs {
    fn cases(&self, frame: &Frame, machine: &Machine) -> anyhow::Result<Vec<Case>> {
        let mut memory = memory::without_streams(&self.memory, self.node)?;
        if self.map {
            return latency::latency_map(frame, &self.map_memory(memory, machine), &self.size).map_err(usage);
        }
        let is_usual = self.size.is_empty()
            && self.memory.is_empty()
            && self.order.is_empty()
            && self.stride.is_empty()
            && self.chains.is_empty();
        if is_usual {
            let mut cases = latency::latency(frame, Detail::Full).map_err(usage)?;
            cases.iter_mut().for_each(|case| case.memory = memory::on(case.memory.kind, self.node));
            return Ok(cases);
        }
        if memory.is_empty() {
            memory.push(memory::on(USUAL_MEMORY.kind, self.node));
        }
        let choice = LatencyChoice {
            sizes: self.size.clone(),
            memory,
            orders: self.order.clone(),
            strides: self.stride.clone(),
            chains: self.chains.clone(),
        };
        latency::latency_choice(frame, &choice).map_err(usage)
    }

    /// Memory kinds x nodes with memory, unless they name a place. A machine that names no nodes has one, and nothing to
    /// bind to.
    fn map_memory(&self, mut memory: Vec<MemorySpec>, machine: &Machine) -> Vec<MemorySpec> {
        if memory.is_empty() {
            memory = [MemoryKind::Base, USUAL_MEMORY.kind].map(|kind| memory::on(kind, self.node)).into();
        }
        let nodes: Vec<u32> = machine.nodes_with_memory().map(|node| node.id).collect();
        let everywhere = |spec: MemorySpec| match spec.policy.is_first_touch() && !nodes.is_empty() {
            true => nodes.iter().map(|&node| MemorySpec::on(spec.kind, node)).collect(),
            false => vec![spec],
        };
        memory.into_iter().flat_map(everywhere).collect()
    }
}

/// Measures and shows.
pub fn run(args: &LatencyArgs) -> anyhow::Result<Done> {
    let (job, frame) = Job::begin(&args.run, BUDGET, |report| terminal::answer(report, &report.latency))?;
    let cases = args.cases(&frame, job.machine())?;
    job.placed(&args.places).finish(&cases)
}
