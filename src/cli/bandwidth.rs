//! `membound bandwidth`, `membound stores` and `membound stream`: three choices of cases and their tables.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::measure::Job;
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
    /// Measure energy instead of speed: watts at rest and under each kernel, joules a gigabyte and a flop, by the meters
    /// that `membound machine` lists; with `membound bandwidth` alone
    #[arg(long)]
    pub energy: bool,
    /// Measure many streams at once, at each offset between them: does it matter how arrays lie to each other, and which
    /// padding is best? Of --kernel it takes load, store and copy
    #[arg(long, value_enum, value_name = "scan", conflicts_with = "energy")]
    pub offsets: Option<Offsets>,
}

/// Which offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Offsets {
    /// From one line to 64 KiB, each twice the one before
    Scan,
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
    /// Any cases, with meters of energy around each sample.
    Energy,
    /// Many streams at each offset between them.
    Streams,
}

impl What {
    fn cases(self, frame: &Frame, args: &ChoiceArgs) -> anyhow::Result<Vec<Case>> {
        self.refuse_what_does_not_apply(args)?;
        let choice = args.choice()?;
        let cases = match self {
            What::Bandwidth => plan::bandwidth(frame, &choice),
            What::Stores => plan::stores(frame, &choice),
            What::Stream => plan::stream_choice(frame, &choice),
            What::Energy => plan::energy(frame, &choice),
            What::Streams => plan::streams(frame, &choice),
        };
        cases.map_err(usage)
    }

    /// A flag that would be ignored is refused: the user meant something by it.
    fn refuse_what_does_not_apply(self, args: &ChoiceArgs) -> anyhow::Result<()> {
        let common =
            [("--load", !args.load.is_empty()), ("--unroll", args.unroll.is_some()), ("--misalign", args.misalign > 0)];
        let own = match self {
            What::Bandwidth | What::Energy => return Ok(()),
            What::Stores => vec![("--store", !args.store.is_empty())],
            What::Streams => vec![
                ("--store", !args.store.is_empty()),
                ("--width", !args.width.is_empty()),
                ("--element float", args.element != Element::Double),
                ("a kernel other than load, store and copy", args.kernel.iter().any(|k| plan::touch_of(k).is_none())),
            ],
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

    /// Energy instead of speed, or streams by their offsets.
    fn or_special(self, args: &BandwidthArgs) -> anyhow::Result<What> {
        let (what, flag) = match (args.energy, args.offsets) {
            (true, _) => (What::Energy, "--energy"),
            (_, Some(Offsets::Scan)) => (What::Streams, "--offsets"),
            (false, None) => return Ok(self),
        };
        match self {
            What::Bandwidth => Ok(what),
            _ => Err(usage(format!("{flag} does not apply here; `membound bandwidth` takes it"))),
        }
    }

    fn view(self) -> fn(&Report) -> String {
        match self {
            What::Bandwidth => terminal::rows,
            What::Stores => terminal::stores,
            What::Stream => terminal::stream,
            What::Energy => terminal::energy,
            What::Streams => terminal::stream_map,
        }
    }

    /// Enough for the usual choice on a quiet machine; a run ends sooner when every interval is narrow.
    fn budget(self) -> Duration {
        Duration::from_secs(match self {
            What::Stores | What::Energy => 30,
            What::Streams => 90,
            What::Bandwidth | What::Stream => 15,
        })
    }
}

/// Measures and shows.
pub fn run(args: &BandwidthArgs, what: What) -> anyhow::Result<Done> {
    let started = Instant::now();
    let (machine, frame) = args.run.frame()?;
    let what = what.or_special(args)?;
    let cases = what.cases(&frame, &args.choice)?;
    let deadline = started + args.run.budget.unwrap_or(what.budget());
    Job::new(&args.run, args.record.as_ref(), machine, deadline, what.view()).placed(&args.places).finish(&cases)
}
