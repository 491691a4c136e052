//! `membound bandwidth`, `membound stores` and `membound stream`: three choices of cases and their tables.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::measure;
use super::memory::MemoryList;
use super::{ChoiceArgs, Done, PlaceArgs, RunArgs, usage};
use crate::kernel::Element;
use crate::model::Report;
use crate::plan::{self, Case, Frame};
use crate::view::terminal;

/// Flags of the three.
#[derive(Debug, Clone, Args)]
pub struct BandwidthArgs {
    /// What to measure
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// Where memory comes from
    #[command(flatten)]
    pub places: PlaceArgs,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a record to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

/// Which of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Any cases.
    Bandwidth,
    /// Store kinds side by side.
    Stores,
    /// STREAM.
    Stream,
}

impl What {
    fn cases(self, frame: &Frame, args: &ChoiceArgs) -> anyhow::Result<Vec<Case>> {
        self.refuse_what_does_not_apply(args)?;
        let choice = args.choice()?;
        let cases = match self {
            What::Bandwidth => plan::bandwidth(frame, &choice),
            What::Stores => plan::stores(frame, &choice),
            What::Stream => plan::stream_choice(frame, &choice),
        };
        cases.map_err(usage)
    }

    /// A flag that would be ignored is refused: the user meant something by it.
    fn refuse_what_does_not_apply(self, args: &ChoiceArgs) -> anyhow::Result<()> {
        let common =
            [("--load", !args.load.is_empty()), ("--unroll", args.unroll.is_some()), ("--misalign", args.misalign > 0)];
        let own = match self {
            What::Bandwidth => return Ok(()),
            What::Stores => vec![("--store", !args.store.is_empty())],
            What::Stream => vec![
                ("--kernel", !args.kernel.is_empty()),
                ("--size", !args.size.is_empty()),
                ("--element float", args.element != Element::Double),
            ],
        };
        let own = [own, vec![("--memory STREAM=KIND", args.memory.iter().any(MemoryList::names_streams))]].concat();
        match common.iter().chain(&own).find(|(_, given)| *given) {
            Some((flag, _)) => Err(usage(format!("{flag} does not apply here; `membound bandwidth` takes it"))),
            None => Ok(()),
        }
    }

    fn view(self) -> fn(&Report) -> String {
        match self {
            What::Bandwidth => terminal::rows,
            What::Stores => terminal::stores,
            What::Stream => terminal::stream,
        }
    }

    /// Enough for the usual choice on a quiet machine; a run ends sooner when every interval is narrow.
    fn budget(self) -> Duration {
        Duration::from_secs(if self == What::Stores { 30 } else { 15 })
    }
}

/// Measures and shows.
pub fn run(args: &BandwidthArgs, what: What) -> anyhow::Result<Done> {
    let started = Instant::now();
    let (machine, frame) = args.run.frame()?;
    let cases = what.cases(&frame, &args.choice)?;
    let deadline = started + args.run.budget.unwrap_or(what.budget());
    measure::finish(&args.run, Some(&args.places), args.record.as_ref(), machine, &cases, deadline, what.view())
}
