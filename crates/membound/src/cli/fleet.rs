//! `membound fleet`: many machines that should be alike.

use clap::{Args, Subcommand};

use crate::cli::args::Done;
use crate::cli::{fleet_run, fleet_screen};

/// Flags of `membound fleet`.
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    /// What to do
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// What can be done with a fleet.
#[derive(Debug, Clone, Subcommand)]
pub enum FleetCommand {
    /// Measure all nodes of a job at the same time, one rank per node; gather their records in one folder
    Run(fleet_run::FleetRunArgs),
    /// Find the nodes that are not like others of the same hardware, and why: from a folder of records, one per node
    Screen(Box<fleet_screen::ScreenArgs>),
}

impl FleetArgs {
    /// Whether exit code 1 is its verdict.
    pub(crate) fn is_gate(&self) -> bool {
        matches!(&self.command, FleetCommand::Screen(args) if args.fail_on_findings)
    }
}

/// Runs the subcommand; `read` knows all commands that a plan may be.
pub fn run(args: &FleetArgs, read: fleet_run::Read) -> anyhow::Result<Done> {
    match &args.command {
        FleetCommand::Run(args) => fleet_run::run(args, read),
        FleetCommand::Screen(args) => fleet_screen::run(args),
    }
}
