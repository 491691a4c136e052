//! The command line: flags to a plan, a plan to a record, a record to a view. One file per subcommand.

// Comments of flags are their help, where a loop stands as it is typed: `a[i]` is no link.
#![allow(rustdoc::broken_intra_doc_links)]

pub mod addrmap;
pub mod advise;
pub mod args;
pub mod bandwidth;
pub mod characterise;
pub mod check;
pub mod compare;
pub mod copies;
pub mod cores;
pub mod count;
pub mod devices;
pub mod diff;
pub mod fleet;
pub mod fleet_run;
pub mod fleet_screen;
pub mod kernel;
pub mod kinds;
pub mod latency;
pub mod machine;
pub mod manual;
pub mod measure;
pub mod memory;
pub mod metrics;
pub mod numa;
pub mod page_cache;
pub mod pingpong;
pub mod plain;
pub mod report;
pub mod roofline;
pub mod rounding;
pub mod say;
pub mod sweep;
pub mod usage;
pub mod watch;
pub mod words;

use crate::cli::args::{Color, Done, RunArgs};
use crate::cli::usage::usage;
use membound_core::json;

use membound_measure::linkage::IS_STATIC;

use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

/// Measures what bounds memory-bound code: every level of the memory system, every width, every kind of store, from
/// one thread and from all.
///
/// Without a subcommand: characterises this machine within the budget, prints a summary, and writes a record (.jsonl)
/// and a report (.html).
#[derive(Debug, Parser)]
#[command(name = "membound", version, max_term_width = 100)]
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
    /// A plain experiment
    #[command(flatten)]
    Plain(plain::PlainArgs),
    /// Compare kinds of memory: first use, steady state, reading back, and how many uses it takes to pay off
    Kinds(kinds::KindsArgs),
    /// Show the devices that share memory with the processor, and what their drivers say of them
    Devices(devices::DevicesArgs),
    /// Measure copies between the host's memory and devices', and between devices: each way and both at once, over sizes
    Copies(copies::CopiesArgs),
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
    /// Compare the last two records of this host in a folder
    Diff(diff::DiffArgs),
    /// Is this node as healthy as it was, or as it should be? Exit code 0 healthy, 1 degraded, 2 unable; for schedulers and
    /// Prometheus
    Check(check::CheckArgs),
    /// Probe this node every few minutes at almost no cost, and say when its memory, a cache or its clock gets slower: a node gets slow
    /// between checks
    Watch(watch::WatchArgs),
    /// Many machines that should be alike: measure them all, started by mpirun or srun; find those that are not
    Fleet(fleet::FleetArgs),
    /// Redraw summary and report from records
    Report(report::ReportArgs),
    /// Measure a loop of your own, such as 'a[i] = b[i] + s*c[i]'; list the kernels, or the machine code that will run
    Kernel(Box<kernel::KernelArgs>),
    /// Print the JSON schema of a record's lines, of result rows, of what rows come to, of the cells of a comparison, of a check's
    /// rows, of what watching tells, of a fleet's summary, or of a screened fleet
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
    /// Print a manual page (troff): of membound, or of a command
    Man {
        /// The command, such as `latency` or `fleet run` [default: membound itself]
        command: Vec<String>,
        /// Write a page for each command to this folder, which is made if need be, instead
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        out: Option<std::path::PathBuf>,
    },
}

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// One line of a record
    Record,
    /// One row of `--format json`
    Row,
    /// One of what `report --answers` prints for each record
    Answers,
    /// One row of `compare --format json`
    Comparison,
    /// One row of `check --format json`
    Check,
    /// One line of `watch --format jsonl`
    Watch,
    /// The summary of a fleet's run, fleet.json
    Fleet,
    /// One row of `fleet screen --format json`
    Screen,
}

/// What `--version` says of a static program; `-V` and the manual say the version alone, whatever is linked.
const VERSION_OF_STATIC: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (static: it can load neither MPI nor the driver of a device)");

/// The whole command line, with what its help says beside flags.
pub fn command() -> clap::Command {
    let command = manual::dressed(Cli::command());
    if IS_STATIC { command.long_version(VERSION_OF_STATIC) } else { command }
}

/// The command line that this process was given; ends it where that is wrong, or asks for help.
pub fn parse() -> Cli {
    let matches = command().get_matches();
    let parsed = refuse_before_a_command(&matches).and_then(|()| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|fault| fault.exit())
}

/// Flags of the default run are none of a command's: before its name stand only those that all take.
fn refuse_before_a_command(matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((name, _)) = matches.subcommand() else { return Ok(()) };
    let mut command = command();
    let is_given = |flag: &&Arg| {
        let is_typed = matches.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine);
        is_typed && !flag.is_global_set()
    };
    let given = command.get_arguments().find(is_given).map(|flag| flag.get_id().as_str().replace('_', "-"));
    match given {
        None => Ok(()),
        Some(flag) => Err(command.error(
            ErrorKind::ArgumentConflict,
            format!("--{flag} is a flag of the default run; write it behind '{name}' if that takes it"),
        )),
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
        Some(Command::Plain(args)) => plain::run(args),
        Some(Command::Kinds(args)) => kinds::run(args),
        Some(Command::Devices(args)) => devices::run(args),
        Some(Command::Copies(args)) => copies::run(args),
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
        Some(Command::Diff(args)) => diff::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Watch(args)) => watch::run(args),
        Some(Command::Fleet(args)) => fleet::run(args, planned),
        Some(Command::Report(args)) => report::run(args),
        Some(Command::Kernel(args)) => kernel::run(args),
        Some(Command::Schema { of }) => {
            let schema = match of {
                SchemaOf::Record => membound_core::record::schema(),
                SchemaOf::Row => schemars::schema_for!(dyn membound_analyze::row::AnyRow).to_value(),
                SchemaOf::Answers => schemars::schema_for!(membound_analyze::output::json::Answers<'_>).to_value(),
                SchemaOf::Comparison => {
                    schemars::schema_for!(membound_analyze::across::compare::row::ComparisonRow).to_value()
                }
                SchemaOf::Check => schemars::schema_for!(membound_analyze::across::check::CheckRow).to_value(),
                SchemaOf::Watch => schemars::schema_for!(membound_analyze::across::watch::WatchRow).to_value(),
                SchemaOf::Fleet => crate::fleet::summary::schema(),
                SchemaOf::Screen => schemars::schema_for!(membound_analyze::across::fleet::rows::ScreenRow).to_value(),
            };
            Ok(Done::ok(json::pretty(&schema) + "\n"))
        }
        Some(Command::Completions { shell }) => {
            // Into memory first: writing to a closed pipe would panic inside the generator.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command(), "membound", &mut script);
            Ok(Done::ok(String::from_utf8(script)?))
        }
        Some(Command::Man { out: Some(folder), .. }) => manual::write(command(), folder),
        Some(Command::Man { command: names, .. }) => manual::page(command(), names).map(Done::ok),
    }
}

/// A fleet's plan, read as a command line of its own.
fn planned(plan: &[String]) -> Result<fleet_run::Planned, clap::Error> {
    let matches = Cli::command().try_get_matches_from([String::from("membound")].iter().chain(plan))?;
    refuse_before_a_command(&matches)?;
    let cli = Cli::from_arg_matches(&matches)?;
    if cli.command.is_some() && plan.first().is_some_and(|word| word.starts_with('-')) {
        let fault = "begin with the command, and write its flags behind it";
        return Err(Cli::command().error(ErrorKind::ArgumentConflict, fault));
    }
    Ok(match cli.command {
        Some(Command::Pingpong(args)) => fleet_run::Planned { run: None, pingpong: Some(args) },
        _ if cli.measures() => {
            let run = cli.run_args().map(|(run, usual)| (run.clone(), run.budget.unwrap_or(usual)));
            fleet_run::Planned { run, pingpong: None }
        }
        _ => fleet_run::Planned { run: None, pingpong: None },
    })
}

impl Cli {
    /// The colour choice, wherever the flag stood.
    pub fn color(&self) -> Color {
        self.run_args().map_or(&self.characterise.run, |(run, _)| run).color
    }

    /// Whether notes are left out, wherever the flag stood.
    pub fn quiet(&self) -> bool {
        self.run_args().map_or(&self.characterise.run, |(run, _)| run).quiet
    }

    /// How the process ends where it can't do what it should: of a check 1 means that the node is degraded, of watching that a figure
    /// fell, of a comparison or a screening that is a gate that something is slower, and nothing else.
    pub fn fault_code(&self) -> u8 {
        let is_verdict = match &self.command {
            Some(Command::Check(_) | Command::Watch(_)) => true,
            Some(Command::Compare(args)) => args.how.fail_on_regression,
            Some(Command::Diff(args)) => args.how.fail_on_regression,
            Some(Command::Fleet(args)) => args.is_gate(),
            _ => false,
        };
        if is_verdict { 2 } else { 1 }
    }

    /// Whether there is anything to measure: some commands with flags of a run only draw what there is, too.
    fn measures(&self) -> bool {
        match &self.command {
            Some(Command::Kernel(args)) => args.text.is_some(),
            Some(Command::Roofline(args)) => args.records.is_empty(),
            _ => true,
        }
    }

    /// The flags of a run, where this command line has them, and the time that it takes without `--budget`.
    fn run_args(&self) -> Option<(&RunArgs, Duration)> {
        Some(match self.command.as_ref() {
            None => (&self.characterise.run, self.characterise.usual_budget()),
            Some(Command::Bandwidth(args)) => (&args.run, bandwidth::usual_budget(args, bandwidth::What::Bandwidth)),
            Some(Command::Stores(args)) => (&args.run, bandwidth::usual_budget(args, bandwidth::What::Stores)),
            Some(Command::Stream(args)) => (&args.run, bandwidth::usual_budget(args, bandwidth::What::Stream)),
            Some(Command::Plain(args)) => (&args.args.run, plain::BUDGET),
            Some(Command::Kinds(args)) => (&args.run, args.usual_budget()),
            Some(Command::Copies(args)) => (&args.run, copies::BUDGET),
            Some(Command::Kernel(args)) => (&args.run, kernel::BUDGET),
            Some(Command::C2c(args)) => (&args.run, cores::BUDGET),
            Some(Command::Loaded(args)) => (&args.run, cores::BUDGET),
            Some(Command::Addrmap(args)) => (&args.run, addrmap::BUDGET),
            Some(Command::Latency(args)) => (&args.run, latency::BUDGET),
            Some(Command::Numa(args)) => (&args.run, args.usual_budget()),
            Some(Command::Pingpong(args)) => (&args.run, pingpong::BUDGET),
            Some(Command::Roofline(args)) => (&args.run, roofline::BUDGET),
            Some(Command::Rounding(args)) => (&args.run, rounding::BUDGET),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn help_tells_what_a_command_takes() {
        let all = command();
        let measures = |one: &&clap::Command| one.get_name() != "check" && budget(one).is_some();
        let names = all.get_subcommands().filter(measures).map(|one| (one.get_name(), one));
        let mut count = 0;
        for (name, one) in names.chain([("", &all)]) {
            let line = if name == "kernel" { "membound kernel a[i]=b[i]".into() } else { format!("membound {name}") };
            let usual = Cli::try_parse_from(words(&line)).unwrap().run_args().unwrap().1;
            let help = budget(one).unwrap().get_help().unwrap().to_string();
            let told = help.split("[default: ").nth(1).unwrap_or_else(|| panic!("{name}: {help}"));
            let told = membound_core::units::parse_duration(told.split([';', ']']).next().unwrap());
            assert_eq!(told, Ok(usual), "{name}: {help}");
            count += 1;
        }
        assert!(count > 15, "{count}");
    }

    #[test]
    fn where_1_is_a_verdict_a_fault_is_2() {
        let code = |line: &str| Cli::try_parse_from(words(line)).unwrap().fault_code();
        for gate in ["compare a b", "diff", "fleet screen a"] {
            let flag = if gate.starts_with("fleet") { "--fail-on-findings" } else { "--fail-on-regression" };
            assert_eq!((code(&format!("membound {gate}")), code(&format!("membound {gate} {flag}"))), (1, 2), "{gate}");
        }
        assert_eq!((code("membound check --spec zen4"), code("membound watch"), code("membound latency")), (2, 2, 1));
    }

    fn budget(command: &clap::Command) -> Option<&Arg> {
        command.get_arguments().find(|arg| arg.get_id() == "budget")
    }

    #[test]
    fn plans_that_measure_nothing_are_refused() {
        let minute = Duration::from_secs(60);
        for plan in ["--quick", "--budget 5s", "latency", "bandwidth --size 1MiB --kernel copy", "kernel a[i]=b[i]"] {
            assert!(fleet_run::check(&words(plan), minute, planned).is_ok(), "{plan}");
        }
        let refuses = |plan: &str, part: &str| {
            let said = fleet_run::check(&words(plan), minute, planned).unwrap_err().to_string();
            assert!(said.contains(part), "{plan}: {said}");
        };
        refuses("machine", "measures nothing that one node can");
        refuses("fleet run", "measures nothing that one node can");
        refuses("bandwith", "unrecognized subcommand 'bandwith'");
        refuses("--quiet latency", "begin with the command");
        refuses("--budget 5s latency", "flag of the default run");
        refuses("latency --list", "try it alone: membound latency --list");
        refuses("latency --record x", "fleet run --out DIR");
        refuses("--out=x", "fleet run --out DIR");
        refuses("roofline --svg x.svg", "leave --svg out of the plan");
        refuses("numa --hwloc=x.xml", "leave --hwloc=x.xml out of the plan");
        refuses("latency --budget 2min", "longer --node-timeout");
        refuses("", "the plan takes 60 s and a node may take 60 s");
        refuses("numa --page-cache", "the plan takes 300 s");
        refuses("kernel --listing triad", "measures nothing that one node can");
        refuses("roofline run.jsonl", "measures nothing that one node can");
    }
}
