//! `membound fleet`: many machines that should be alike.

use clap::{Args, Subcommand};

use super::Done;
use super::fleet_screen::{self, ScreenArgs};

/// Flags of `membound fleet`.
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    /// What to do with the fleet
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// The subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum FleetCommand {
    /// Find the nodes that are not like others of the same hardware, and why: from a folder of records, one a node
    Screen(Box<ScreenArgs>),
}

/// Runs one of them.
pub fn run(args: &FleetArgs) -> anyhow::Result<Done> {
    match &args.command {
        FleetCommand::Screen(args) => fleet_screen::run(args),
    }
}
