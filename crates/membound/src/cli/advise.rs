//! `membound advise`: which stream of a loop should lie on which node.

use membound_core::json;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::cli::args::Format;
use crate::cli::words::only;
use crate::cli::{report, usage};
use membound_analyze::across::advisor;
use membound_analyze::across::advisor::{Question, Speed, Tier};
use membound_analyze::across::sections::advisor as sections;
use membound_analyze::across::tiers::tiers;
use membound_core::kernel::StoreKind;
use membound_core::kernel::catalog::{Kernel, Rows};
use membound_core::kernel::formula::Formula;
use membound_core::machine::cpuset::CpuSet;
use membound_core::units::{Bytes, BytesPerSecond};

/// Flags of `membound advise`.
#[derive(Debug, Clone, Args)]
pub struct AdviseArgs {
    /// The loop: a kernel's name (see `membound kernel --list`), or its text, such as 'a[i] = b[i] + s*c[i]'
    #[arg(value_name = "LOOP")]
    pub kernel: String,
    /// Records (.jsonl) that tell how fast each node is: of `membound numa`, or of `bandwidth` with --node
    #[arg(value_name = "RECORD", conflicts_with = "tier")]
    pub records: Vec<PathBuf>,
    /// Bytes of all streams together, equal parts each
    #[arg(long, value_name = "SIZE", required_unless_present = "streams", conflicts_with = "streams")]
    pub size: Option<Bytes>,
    /// Bytes of each stream, such as a=2GiB,b=2GiB,c=512MiB
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = stream_size)]
    pub streams: Vec<(String, Bytes)>,
    /// Nodes by hand, NODE=RATE:FREE, such as 0=90GB/s:96GiB,1=400GB/s:16GiB; the rate is what the bus moves. Loads and
    /// stores apart: NODE=LOAD:STORE:FREE
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tier: Vec<TierArg>,
    /// Store kind
    #[arg(long, default_value_t = StoreKind::Regular, value_parser = only::<StoreKind>(vec!["regular", "nt"]))]
    pub store: StoreKind,
    /// The CPUs that run the loop, of those that the records tell of [default: those that reach the most nodes]
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse, conflicts_with = "tier")]
    pub cpus: Option<CpuSet>,
    /// The node on which streams lie if nothing is done [default: that of the CPUs; with --tier: the first]
    #[arg(long, value_name = "NODE")]
    pub default_node: Option<u32>,
    /// Print as; json is one object
    #[arg(long, value_parser = Format::of_answers(), default_value = "table")]
    pub format: Format,
}

/// `0=90GB/s:96GiB`, or with stores apart `0=90GB/s:40GB/s:96GiB`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierArg {
    node: u32,
    load: BytesPerSecond,
    /// Absent: what the bus leaves to stores.
    store: Option<BytesPerSecond>,
    free: Bytes,
}

impl FromStr for TierArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no node; write NODE=RATE:FREE, such as 1=400GB/s:16GiB, or NODE=LOAD:STORE:FREE");
        let (node, rest) = text.split_once('=').ok_or_else(wrong)?;
        let node = node.trim().parse().map_err(|_| wrong())?;
        let parts: Vec<&str> = rest.split(':').collect();
        let (load, store, free) = match parts[..] {
            [load, free] => (load, None, free),
            [load, store, free] => (load, Some(store), free),
            _ => return Err(wrong()),
        };
        let rate = |text: &str| text.parse::<BytesPerSecond>().map_err(|fault| fault.to_string());
        let free = free.parse::<Bytes>().map_err(|fault| fault.to_string())?;
        Ok(TierArg { node, load: rate(load)?, store: store.map(rate).transpose()?, free })
    }
}

impl TierArg {
    /// A rate of the bus moves a regular store's payload at half of it: the line is read first, then written.
    fn tier(self, store: StoreKind) -> Tier {
        let bus_per_byte = if store.write_allocates() { 2.0 } else { 1.0 };
        let store = self.store.map_or(self.load.0 / bus_per_byte, |rate| rate.0);
        Tier {
            node: self.node,
            free: self.free,
            all: Speed { load_bps: [self.load.0; 3], store_bps: [store; 3] },
            one: None,
        }
    }
}

fn stream_size(text: &str) -> Result<(String, Bytes), String> {
    let (name, size) =
        text.split_once('=').ok_or_else(|| format!("'{text}' is no stream with a size, such as a=2GiB"))?;
    Ok((name.trim().into(), size.parse::<Bytes>().map_err(|fault| fault.to_string())?))
}

/// The text to print.
pub fn run(args: &AdviseArgs) -> anyhow::Result<String> {
    let row = Kernel::named(&args.kernel);
    let (formula, rows) = match row {
        Some(kernel) => (kernel.formula(), kernel.rows),
        None if args.kernel.contains('[') => (Formula::parse(&args.kernel).map_err(usage)?, Rows::None),
        None => {
            return Err(usage(Kernel::find(&args.kernel).err().map_or_else(String::new, |fault| fault.to_string())));
        }
    };
    let each = |total: Bytes| {
        let share = Bytes(total.0 / formula.streams.len().max(1) as u64);
        formula.streams.iter().map(|stream| (stream.name.clone(), share)).collect()
    };
    let sizes = args.size.map_or_else(|| args.streams.clone(), each);
    let streams = advisor::streams(&formula, rows, args.store, &sizes).map_err(usage)?;
    let (tiers, cores, default) = places(args)?;
    let default = args.default_node.unwrap_or(default);
    let advice = advisor::advise(&Question { streams, tiers, cores, default }).map_err(usage)?;
    Ok(match args.format {
        Format::Json => json::pretty(&advice) + "\n",
        format => format.drawn(&sections::document(&advice, row.map(|kernel| (kernel.name, args.store)))),
    })
}

/// The nodes, the cores that share them, and the default node.
fn places(args: &AdviseArgs) -> anyhow::Result<(Vec<Tier>, usize, u32)> {
    if let Some(first) = args.tier.first() {
        return Ok((args.tier.iter().map(|tier| tier.tier(args.store)).collect(), 1, first.node));
    }
    if args.records.is_empty() {
        return Err(usage(
            "there is no memory to choose from; give a record of `membound numa`, or --tier NODE=RATE:SIZE",
        ));
    }
    let reports: Vec<membound_analyze::report::Report> = report::read(&args.records)?;
    let found = tiers(&reports, args.store, args.cpus.as_ref()).map_err(usage)?;
    Ok((found.tiers, found.cpus.len(), found.default))
}
