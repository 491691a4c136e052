//! The command line: flags to a plan, a plan to a record, a record to a view. One file a subcommand.

pub mod addrmap;
pub mod advise;
pub mod bandwidth;
pub mod characterise;
pub mod compare;
pub mod cores;
pub mod kernel;
pub mod kinds;
pub mod latency;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod numa;
pub mod page_cache;
pub mod pingpong;
pub mod report;
pub mod roofline;
pub mod rounding;
pub mod sweep;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::kernel::{Element, Isa, Kernel, LoadKind, StoreKind, Width};
use crate::machine::{CpuSet, Machine};
use crate::memory::{NODES, Places};
use crate::plan::{Choice, Frame, USUAL_MEMORY};
use crate::units::{Bytes, parse_duration};

use self::memory::MemoryList;

/// Measures what bounds memory-bound code: every level of the memory system, every width, every kind of store, from
/// one thread and from all.
///
/// Without a subcommand: characterises this machine within the budget, prints a summary, and writes a record (.jsonl)
/// and a report (.html).
#[derive(Debug, Parser)]
#[command(name = "membound", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Cli {
    /// What to do; nothing: characterise this machine
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of the default run
    #[command(flatten)]
    pub characterise: characterise::CharacteriseArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what this machine is: cores, caches, nodes, memory, limits and settings
    Machine(machine::MachineArgs),
    /// Measure kernels over sizes, store kinds, widths, memory kinds and threads
    Bandwidth(bandwidth::BandwidthArgs),
    /// Compare regular, non-temporal, masked and rep stores over sizes: where does which one win?
    Stores(bandwidth::BandwidthArgs),
    /// Run the STREAM benchmark by its own rules and print its own table
    Stream(bandwidth::BandwidthArgs),
    /// Compare kinds of memory: first use, steady state, reading back, and after how many uses a dearer kind pays
    Kinds(kinds::KindsArgs),
    /// Measure what passing a line between each two CPUs costs
    C2c(cores::C2cArgs),
    /// Measure memory latency while other CPUs load the memory: latency over bandwidth, its knee, where it saturates
    Loaded(cores::LoadedArgs),
    /// Find out which address bits choose the channel, bank or slice of a line, from timing alone
    Addrmap(addrmap::AddrmapArgs),
    /// Measure latency: the ladder, what prefetchers hide, lines in flight; or --map: each CPU against each node
    Latency(latency::LatencyArgs),
    /// Measure the memory of each node from each set of CPUs; say what each node is and how many cores saturate it; or
    /// --page-cache: what page cache does to a program beside it
    Numa(numa::NumaArgs),
    /// Measure messages between the processes of an MPI launcher: latency and bandwidth over sizes, pairs and places; run it by
    /// mpirun or srun
    Pingpong(pingpong::PingPongArgs),
    /// What bounds loops, arithmetic or bandwidth, and how near they come: ceilings measured and specified, as a chart too
    Roofline(roofline::RooflineArgs),
    /// Add up the same numbers in many ways: which widths, orders and threads change the result, by how much, and what a
    /// result that never changes costs in speed
    Rounding(rounding::RoundingArgs),
    /// Push page cache out of the nodes: touches what memory can be had, and gives it back
    Sweep(sweep::SweepArgs),
    /// Which stream of a loop should lie on which node, and what that gains: from records of the nodes' speed
    Advise(advise::AdviseArgs),
    /// What differs between two records, or two folders of records, by more than chance; and what else is not the same
    Compare(compare::CompareArgs),
    /// Redraw summary and report from records
    Report(report::ReportArgs),
    /// Measure a loop of your own, such as 'a[i] = b[i] + s*c[i]'; list the kernels, or the machine code that will run
    Kernel(Box<kernel::KernelArgs>),
    /// Print the JSON schema of a record's lines, of result rows, or of the cells of a comparison
    Schema {
        /// Which schema
        #[arg(value_enum, default_value_t = SchemaOf::Record)]
        of: SchemaOf,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (troff)
    Man,
}

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// One line of a record
    Record,
    /// One row of `--format json`
    Row,
    /// One row of `compare --format json`
    Comparison,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people
    Table,
    /// Comma-separated rows
    Csv,
    /// One JSON array of rows
    Json,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Color {
    Auto,
    Always,
    Never,
}

/// Flags of everything that measures.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Time to spend, such as 30s or 2min
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub budget: Option<Duration>,
    /// Samples of one case and visit
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub samples: u32,
    /// Seed of the order in which cases are visited; drawn and recorded if not given
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Use these CPUs only, such as 0-3,8
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    pub cpus: Option<CpuSet>,
    /// Show the cases and measure nothing
    #[arg(long)]
    pub list: bool,
    /// Check every element after each case, not only windows
    #[arg(long)]
    pub verify: bool,
    /// Print results as
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// No progress and no notes on stderr
    #[arg(long, short)]
    pub quiet: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true)]
    pub color: Color,
}

/// Flags that choose cases.
#[derive(Debug, Clone, Args)]
pub struct ChoiceArgs {
    /// Working sets over all threads, such as 24KiB,1MiB [default: one in each level, or a sweep]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = working_set)]
    pub size: Vec<Bytes>,
    /// Kernels (see `membound kernel --list`), or all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub kernel: Vec<String>,
    /// Store kinds: regular, nt, nt-masked, rep
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub store: Vec<StoreKind>,
    /// Load kinds: regular, nt
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub load: Vec<LoadKind>,
    /// Widths: scalar, 128, 256, 512 [default: the two widest]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub width: Vec<Width>,
    /// What streams are arrays of: double (8 bytes), float (4 bytes)
    #[arg(long, default_value_t = Element::Double)]
    pub element: Element,
    /// Memory kinds, such as 4k,thp,huge-2m,file-shared [default: thp], and where they lie: KIND@PLACE or PLACE, a place
    /// being node1, bind:0-1, preferred:1, interleave:0-1, weighted:0=3,1=1 or first-touch; or the memory of single
    /// streams: a=huge-2m,b=node1
    #[arg(long, value_name = "LIST")]
    pub memory: Vec<MemoryList>,
    /// Bind all pages to this NUMA node, where --memory names no place
    #[arg(long, value_name = "NODE", value_parser = node_number())]
    pub node: Option<u32>,
    /// Thread counts [default: 1 and all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Accesses in one trip of the main loop
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub unroll: Option<u32>,
    /// Start every stream this many bytes beyond a line: less than 64, in whole elements
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub misalign: u32,
}

/// Where memory comes from that has a place.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// Folder on the disk whose files are measured; they have no name and vanish [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Folder on a file system for persistent memory (DAX)
    #[arg(long, value_name = "DIR")]
    pub dax: Option<PathBuf>,
    /// Resource file of a PCI device, such as /sys/bus/pci/devices/0000:00:04.0/resource2; it is only read
    #[arg(long, value_name = "FILE")]
    pub device: Option<PathBuf>,
    /// The same file again: this device may be written to, which destroys what is in its memory
    #[arg(long, value_name = "DEVICE")]
    pub allow_device_writes: Option<PathBuf>,
}

impl PlaceArgs {
    /// The places that the user named, and the usual ones for the rest.
    pub fn places(&self) -> anyhow::Result<Places> {
        if self.allow_device_writes.is_some() && self.allow_device_writes != self.device {
            return Err(usage(
                "--allow-device-writes must name the same file as --device; only that one is written to",
            ));
        }
        let usual = Places::default();
        Ok(Places {
            folder: self.dir.clone().unwrap_or(usual.folder),
            dax: self.dax.clone(),
            bar: self.device.clone(),
            bar_writes: self.allow_device_writes.is_some(),
            ..usual
        })
    }
}

fn misalignment(bytes: u32, element: Element) -> anyhow::Result<u32> {
    let size = element.bytes() as u32;
    if bytes < 64 && bytes.is_multiple_of(size) {
        return Ok(bytes);
    }
    Err(usage(format!(
        "--misalign {bytes} is no multiple of {size} from 0 to {}: streams are arrays of {size}-byte elements",
        64 - size
    )))
}

/// A node's number, as far as Linux has them.
fn node_number() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..NODES as i64)
}

fn working_set(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err("a working set of 0 bytes measures nothing; give at least 1KiB".into()),
        Ok(size) => Ok(size),
        Err(fault) => Err(fault.to_string()),
    }
}

/// A fault of the command's words or files, for exit code 2; every other fault is exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Wraps an error as wrong usage.
pub fn usage(fault: impl std::fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Usage(fault.to_string()))
}

impl ChoiceArgs {
    /// The choice in the plan's terms.
    pub fn choice(&self) -> anyhow::Result<Choice> {
        let mut kernels: Vec<&'static Kernel> = Vec::new();
        for name in &self.kernel {
            match name.as_str() {
                "all" => kernels.extend(crate::kernel::CATALOG),
                name => kernels.push(Kernel::find(name).map_err(usage)?),
            }
        }
        let (mut memory, streams) = memory::chosen(&self.memory, self.node);
        if memory.is_empty() {
            memory.push(memory::on(USUAL_MEMORY.kind, self.node));
        }
        Ok(Choice {
            kernels,
            sizes: self.size.clone(),
            stores: self.store.clone(),
            loads: self.load.clone(),
            widths: self.width.clone(),
            element: self.element,
            memory,
            streams,
            threads: self.threads.clone(),
            unroll: self.unroll,
            misaligned_bytes: misalignment(self.misalign, self.element)?,
        })
    }
}

impl RunArgs {
    /// Reads the machine and what a plan needs of it.
    pub fn frame(&self) -> anyhow::Result<(Machine, Frame)> {
        let machine = Machine::live();
        let frame = self.frame_of(&machine)?;
        Ok((machine, frame))
    }

    /// What a plan needs of a machine.
    pub fn frame_of(&self, machine: &Machine) -> anyhow::Result<Frame> {
        Frame::new(machine, Isa::detect(), self.cpus.as_ref()).map_err(usage)
    }
}

/// What a finished command leaves to `main`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Text for stdout.
    pub text: String,
    /// Whether a measurement failed, is invalid, or the run was interrupted: exit code 1.
    pub failed: bool,
}

impl Done {
    /// Text and success.
    pub fn ok(text: String) -> Self {
        Done { text, failed: false }
    }
}

/// Runs a command line.
pub fn execute(cli: &Cli) -> anyhow::Result<Done> {
    match &cli.command {
        None => characterise::run(&cli.characterise),
        Some(Command::Machine(args)) => Ok(Done::ok(machine::run(args)?)),
        Some(Command::Bandwidth(args)) => bandwidth::run(args, bandwidth::What::Bandwidth),
        Some(Command::Stores(args)) => bandwidth::run(args, bandwidth::What::Stores),
        Some(Command::Stream(args)) => bandwidth::run(args, bandwidth::What::Stream),
        Some(Command::Kinds(args)) => kinds::run(args),
        Some(Command::C2c(args)) => cores::c2c(args),
        Some(Command::Loaded(args)) => cores::loaded(args),
        Some(Command::Addrmap(args)) => addrmap::run(args),
        Some(Command::Latency(args)) => latency::run(args),
        Some(Command::Numa(args)) => numa::run(args),
        Some(Command::Pingpong(args)) => pingpong::run(args),
        Some(Command::Roofline(args)) => roofline::run(args),
        Some(Command::Rounding(args)) => rounding::run(args),
        Some(Command::Sweep(args)) => sweep::run(args),
        Some(Command::Advise(args)) => Ok(Done::ok(advise::run(args)?)),
        Some(Command::Compare(args)) => compare::run(args),
        Some(Command::Report(args)) => report::run(args),
        Some(Command::Kernel(args)) => kernel::run(args),
        Some(Command::Schema { of }) => {
            let schema = match of {
                SchemaOf::Record => crate::record::schema(),
                SchemaOf::Row => schemars::schema_for!(crate::model::AnyRow).to_value(),
                SchemaOf::Comparison => schemars::schema_for!(crate::model::compare::ComparisonRow).to_value(),
            };
            Ok(Done::ok(serde_json::to_string_pretty(&schema)? + "\n"))
        }
        Some(Command::Completions { shell }) => {
            // Into memory first: writing to a closed pipe would panic inside the generator.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "membound", &mut script);
            Ok(Done::ok(String::from_utf8(script)?))
        }
        Some(Command::Man) => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            Ok(Done::ok(String::from_utf8(page)?))
        }
    }
}

impl Cli {
    /// The colour choice, wherever the flag stood.
    pub fn color(&self) -> Color {
        match &self.command {
            Some(Command::Bandwidth(args) | Command::Stores(args) | Command::Stream(args)) => args.run.color,
            Some(Command::Kinds(args)) => args.run.color,
            Some(Command::Kernel(args)) => args.run.color,
            Some(Command::C2c(args)) => args.run.color,
            Some(Command::Loaded(args)) => args.run.color,
            Some(Command::Addrmap(args)) => args.run.color,
            Some(Command::Latency(args)) => args.run.color,
            Some(Command::Numa(args)) => args.run.color,
            Some(Command::Pingpong(args)) => args.run.color,
            Some(Command::Roofline(args)) => args.run.color,
            Some(Command::Rounding(args)) => args.run.color,
            _ => self.characterise.run.color,
        }
    }
}

/// The current folder, for default paths.
fn here() -> PathBuf {
    PathBuf::from(".")
}
