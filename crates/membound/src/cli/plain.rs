//! Plain experiments, a subcommand each: their names and what they find out come from the list of works.

use std::time::Duration;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

use crate::cli::args::{Done, PlaceArgs, RunArgs};
use crate::cli::count::Threads;
use crate::cli::measure::Job;
use crate::cli::usage::usage;
use crate::cli::words::threads;
use membound_analyze::output::terminal;
use membound_core::experiments::choice::Choice;
use membound_core::experiments::plain::plain;
use membound_core::memory::MemorySpec;
use membound_core::plain::{EXPERIMENTS, Experiment};
use membound_core::units::Bytes;

/// Enough for the usual sizes on a quiet machine.
pub(crate) const BUDGET: Duration = Duration::from_secs(30);

/// A plain experiment, and its flags.
#[derive(Debug, Clone)]
pub struct PlainArgs {
    /// Which.
    pub experiment: &'static Experiment,
    /// Its flags.
    pub args: Flags,
}

/// Flags of all plain experiments.
#[derive(Debug, Clone, Args)]
pub struct Flags {
    /// Working sets over all threads, such as 24KiB,1GiB [default: from the first-level cache to memory]
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    pub size: Vec<Bytes>,
    /// Thread counts, such as 1,4,all [default: 1 and all]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = threads(), hide_possible_values = true)]
    pub threads: Vec<Threads>,
    /// Memory kind, with a place if need be
    #[arg(long, value_name = "KIND")]
    pub memory: Option<MemorySpec>,
    /// Where memory comes from
    #[command(flatten)]
    pub places: PlaceArgs,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

/// Measures and shows.
pub fn run(PlainArgs { experiment, args }: &PlainArgs) -> anyhow::Result<Done> {
    let (job, frame) = Job::begin(&args.run, BUDGET, |report| terminal::answer(report, &report.plain))?;
    let threads = args.threads.iter().map(|threads| threads.count(&frame)).collect();
    let (sizes, memory) = (args.size.clone(), args.memory.into_iter().collect());
    let choice = Choice { sizes, threads, memory, ..Choice::default() };
    let cases = plain(&frame, experiment, &choice).map_err(usage)?;
    job.placed(&args.places).finish(&cases)
}

impl Subcommand for PlainArgs {
    fn augment_subcommands(command: Command) -> Command {
        // Flags bring what they say of themselves; what the experiment says replaces it.
        let of = |experiment: &Experiment| Flags::augment_args(Command::new(experiment.name)).about(experiment.about);
        EXPERIMENTS.iter().fold(command, |command, experiment| command.subcommand(of(experiment)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        EXPERIMENTS.iter().any(|experiment| experiment.name == name)
    }
}

impl FromArgMatches for PlainArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let found = matches
            .subcommand()
            .and_then(|(name, flags)| Some((EXPERIMENTS.iter().find(|experiment| experiment.name == name)?, flags)));
        let (experiment, flags) = found.ok_or_else(|| Error::new(clap::error::ErrorKind::MissingSubcommand))?;
        Ok(PlainArgs { experiment, args: Flags::from_arg_matches(flags)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
