//! `membound machine`: the facts about this machine, about a recorded one, or about one on paper.

use std::path::{Path, PathBuf};

use super::usage;
use crate::machine::{Machine, Sheet};
use crate::model::limits::limits;
use crate::view;
use crate::view::terminal;

/// Show what this machine is: cores, caches, nodes, memory, limits and settings.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// Describe the machine recorded in this folder (its sys and proc folders) instead of this one
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Show the peaks and the balance of a specification sheet and of no machine: a file, or the name of one that comes
    /// with membound; `list` shows those
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "format"])]
    pub spec: Option<PathBuf>,

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
    match args.spec.as_deref() {
        Some(spec) if spec == Path::new("list") => {
            let line = |(name, sheet): (&str, Sheet)| format!("{name:<18}{}\n", sheet.name);
            return Ok(Sheet::all().map(line).collect());
        }
        Some(spec) => return Ok(terminal::sheet(&Sheet::find(spec).map_err(usage)?)),
        None => {}
    }
    let machine = match &args.root {
        Some(root) => Machine::read(root)?,
        None => Machine::live(),
    };
    Ok(match args.format {
        MachineFormat::Table => view::machine::text(&machine) + "\n" + &terminal::limits(&limits(&machine, None, &[])),
        MachineFormat::Json => view::json::machine(&machine),
    })
}
