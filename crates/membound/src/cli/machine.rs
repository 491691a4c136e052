//! `membound machine`: the facts about this machine, about a recorded one, or about one on paper.

use std::path::{Path, PathBuf};

use crate::cli::args::Format;
use crate::cli::usage::usage;
use crate::cli::words::sheets;
use membound_analyze::across::limits::limits;
use membound_analyze::across::sections;
use membound_analyze::output as view;
use membound_core::machine::Machine;
use membound_core::machine::spec::Sheet;

/// Show what this machine is: cores, caches, nodes, memory, limits and settings.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// Describe the machine recorded in this folder (its sys and proc folders) instead of this one
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Show the peaks and the balance of a specification sheet and of no machine: a file, or the name of one that comes
    /// with membound; `list` shows those
    #[arg(long, value_name = "FILE", conflicts_with = "root", value_parser = sheets(), hide_possible_values = true)]
    pub spec: Option<PathBuf>,

    /// How to write it; json is one object, in which what is not known is {"absent": "why"}
    #[arg(long, value_parser = Format::of_answers(), default_value = "table")]
    pub format: Format,
}

/// The text to print. A root that holds no machine is a [`MachineError`](membound_core::machine::source::MachineError): wrong usage.
pub fn run(args: &MachineArgs) -> anyhow::Result<String> {
    match args.spec.as_deref() {
        Some(spec) if spec == Path::new("list") && args.format != Format::Table => {
            return Err(usage("the list of sheets is text for people; leave out --format, or name one of the sheets"));
        }
        Some(spec) if spec == Path::new("list") => {
            let line = |(name, sheet): (&str, Sheet)| format!("{name:<18}{}\n", sheet.name);
            return Ok(Sheet::all().map(line).collect());
        }
        Some(spec) if args.format == Format::Json => return Ok(view::json::sheet(&Sheet::find(spec).map_err(usage)?)),
        Some(spec) => return Ok(args.format.drawn(&sections::limits::sheet(&Sheet::find(spec).map_err(usage)?))),
        None => {}
    }
    let machine = match &args.root {
        Some(root) => Machine::read(root)?,
        None => membound_measure::machine::live(),
    };
    if args.format == Format::Json {
        return Ok(view::json::machine(&machine));
    }
    let mut document = sections::machine::document(&machine);
    document.sections.push(sections::limits::section(&limits(&machine, None, &[])));
    Ok(args.format.drawn(&document))
}
