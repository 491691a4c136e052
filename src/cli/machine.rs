//! `membound machine`: the facts about this machine, or about a recorded one.

use std::path::PathBuf;

use crate::machine::Machine;
use crate::view;

/// Show what this machine is: cores, caches, nodes, memory, limits and settings.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// Describe the machine recorded in this folder (its sys and proc folders) instead of this one
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// How to write it
    #[arg(long, value_enum, default_value_t = MachineFormat::Table)]
    pub format: MachineFormat,
}

/// How the facts are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineFormat {
    /// Text for people
    Table,
    /// One JSON object; what is not known is {"absent": "why"}
    Json,
}

/// The text to print. A root that holds no machine is a [`MachineError`](crate::machine::MachineError): wrong usage.
pub fn run(args: &MachineArgs) -> anyhow::Result<String> {
    let machine = match &args.root {
        Some(root) => Machine::read(root)?,
        None => Machine::live(),
    };
    Ok(match args.format {
        MachineFormat::Table => view::machine::text(&machine),
        MachineFormat::Json => view::json::machine(&machine),
    })
}
