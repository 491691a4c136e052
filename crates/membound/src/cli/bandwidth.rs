//! `membound bandwidth`, `membound stores` and `membound stream`: three choices of cases and their tables.

use std::time::Duration;

use clap::Args;

use crate::cli::args::{ChoiceArgs, Done, PlaceArgs, RunArgs};
use crate::cli::measure::Job;
use crate::cli::memory::{self, MemoryList};
use crate::cli::usage::usage;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::Case;
use membound_core::experiments::frame::Frame;
use membound_core::experiments::streams::Offsets;
use membound_core::experiments::{bandwidth, choice, energy, streams};
use membound_core::kernel::Element;

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
    /// Measure energy instead of speed: watts at rest and under each kernel, joules per gigabyte and a flop, by the meters
    /// that `membound machine` lists; with `membound bandwidth` alone
    #[arg(long)]
    pub energy: bool,
    /// Measure at each offset between arrays: does it matter how they lie to each other, and which padding is best? `scan`
    /// (each twice the one before, up to 64 KiB), or offsets and ranges such as 0..8KiB:64B. --kernel load, store and copy
    /// walk 1 to 32 streams; any other kernel or loop runs over arrays in one block, as in a Fortran COMMON
    #[arg(long, value_name = "scan|LIST", conflicts_with = "energy")]
    pub offsets: Option<Offsets>,
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
    fn cases(self, frame: &Frame, flags: &BandwidthArgs) -> anyhow::Result<Vec<Case>> {
        let args = &flags.choice;
        self.refuse_what_does_not_apply(args)?;
        let choice = args.choice(frame)?;
        let cases = match self {
            What::Bandwidth => choice::kernels(frame, &choice),
            What::Stores => bandwidth::stores(frame, &choice),
            What::Stream => bandwidth::stream_choice(frame, &choice),
            What::Energy => energy::energy(frame, &choice),
            What::Streams => streams::streams(frame, &choice, &flags.offsets.clone().unwrap_or_else(Offsets::usual)),
        };
        cases.map_err(usage)
    }

    /// A flag that would be ignored is refused: the user meant something by it.
    fn refuse_what_does_not_apply(self, args: &ChoiceArgs) -> anyhow::Result<()> {
        let common =
            [("--load", !args.load.is_empty()), ("--unroll", args.unroll.is_some()), ("--misalign", args.misalign > 0)];
        let own = match self {
            What::Bandwidth | What::Energy => return Ok(()),
            What::Stores => vec![
                ("--store", !args.store.is_empty()),
                // Kinds of stores are compared in one memory, at one width.
                ("a second --memory", memory::chosen(&args.memory, None)?.0.len() > 1),
                ("a second --width", args.width.len() > 1),
            ],
            What::Streams => {
                // Streams are walked in one way; a kernel over a block has all of its own.
                let walks = args.kernel.is_empty() || args.kernel.iter().any(|k| streams::touch_of(k).is_some());
                vec![
                    ("--store", walks && !args.store.is_empty()),
                    ("--width", walks && !args.width.is_empty()),
                    ("--element float", walks && args.element != Element::Double),
                ]
            }
            What::Stream => {
                vec![("--kernel", !args.kernel.is_empty()), ("--element float", args.element != Element::Double)]
            }
        };
        let own = [own, vec![("--memory STREAM=KIND", args.memory.iter().any(MemoryList::names_streams))]].concat();
        match common.iter().chain(&own).find(|(_, given)| *given) {
            Some((flag, _)) => Err(usage(format!("{flag} does not apply here; `membound bandwidth` takes it"))),
            None => Ok(()),
        }
    }

    /// Energy instead of speed, or streams by their offsets.
    fn or_special(self, args: &BandwidthArgs) -> anyhow::Result<What> {
        let (what, flag) = match (args.energy, &args.offsets) {
            (true, _) => (What::Energy, "--energy"),
            (_, Some(_)) => (What::Streams, "--offsets"),
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
            What::Energy => |report| terminal::answer(report, &report.energy),
            What::Streams => |report| terminal::answer(report, &report.congestion),
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

/// What a run takes without `--budget`.
pub(crate) fn usual_budget(args: &BandwidthArgs, what: What) -> Duration {
    what.or_special(args).unwrap_or(what).budget()
}

/// Measures and shows.
pub fn run(args: &BandwidthArgs, what: What) -> anyhow::Result<Done> {
    let what = what.or_special(args)?;
    let (job, frame) = Job::begin(&args.run, what.budget(), what.view())?;
    let (job, cases) = (job.placed(&args.places), what.cases(&frame, args)?);
    if what == What::Stores { job.last(bandwidth::stores_rarely) } else { job }.finish(&cases)
}
