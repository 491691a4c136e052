//! The default run: characterises this machine within a budget; summary, record and report.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::cli::args;
use crate::cli::args::{DetailArgs, Done, Format, RunArgs};
use crate::cli::measure;
use crate::cli::measure::{Page, Session};
use crate::cli::usage::usage;
use crate::now::since_1970;
use membound_core::experiments;
use membound_core::experiments::choice::Choice;
use membound_core::experiments::numa::NumaChoice;
use membound_core::experiments::{characterise, numa};
use membound_core::machine::limits::MemoryLimit;
use membound_core::machine::{Machine, energy, room};
use membound_core::units::{Bytes, utc_compact};
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;

/// Flags of the default run.
#[derive(Debug, Clone, Args)]
pub struct CharacteriseArgs {
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Spend 5 s, on the table of levels first: same as --budget 5s
    #[arg(long, conflicts_with = "budget")]
    pub quick: bool,
    /// Folder for the record and the report [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How much to print
    #[command(flatten)]
    pub detail: DetailArgs,
}

const BUDGET: Duration = Duration::from_secs(60);
const QUICK: Duration = Duration::from_secs(5);
/// Kept for working out and writing the report.
const REPORT_TIME: Duration = Duration::from_millis(700);
/// Less can't hold even a sketch of the machine.
const LEAST_BUDGET: Duration = Duration::from_secs(2);

impl CharacteriseArgs {
    /// What a run takes without `--budget`.
    pub(crate) fn usual_budget(&self) -> Duration {
        if self.quick { QUICK } else { BUDGET }
    }
}

/// What a default run must have to get beyond small caches.
const LEAST_MEMORY: Bytes = Bytes::mib(32);

/// Refuses a machine, or a control group, that is too small for a run which takes no more than its share.
fn has_room(machine: &Machine) -> anyhow::Result<()> {
    let free = machine.available_memory().get();
    if room::allowance(free) >= LEAST_MEMORY {
        return Ok(());
    }
    let whose = machine.memory_limit().map_or_else(|| "this machine".to_string(), MemoryLimit::whose);
    let (needed, free) = (room::needed(LEAST_MEMORY), free.unwrap_or_default());
    Err(usage(format!(
        "a default run needs {needed} of free memory, of which it takes 40 %, and {whose} leaves {free}; raise that limit, or \
         measure less, such as `membound bandwidth --size 1MiB`"
    )))
}

/// Characterises this machine.
pub fn run(args: &CharacteriseArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    args.detail.refuse_unless(args.run.format == Format::Table)?;
    let is_idle = args.out.is_some() && args.run.record.is_some() && args.run.html.is_some();
    args::refuse([("--out", is_idle)], "--record and --html say where the record and the page go")?;
    let budget = args.run.budget.unwrap_or(args.usual_budget());
    if budget < LEAST_BUDGET {
        return Err(usage("a default run needs at least 2 s; give --budget 2s or more"));
    }
    let (machine, frame) = args.run.frame()?;
    has_room(&machine)?;
    let mut plan = characterise::characterise(&frame, budget).map_err(usage)?;
    let mut more = Vec::new();
    if numa::has_places(&machine) {
        // A machine whose nodes have no room is still characterised.
        let brief = NumaChoice { is_brief: true, ..NumaChoice::default() };
        more.extend(numa::numa(&frame, &machine, &brief).map(|(cases, _)| cases).unwrap_or_default());
    }
    if machine.energy.known().is_some_and(|meters| !energy::usable(meters).is_empty()) {
        more.extend(experiments::energy::energy(&frame, &Choice::default()).map_err(usage)?);
    }
    // Before the matrix, which is large and tells least.
    plan.stages.insert(plan.stages.len() - 1, more);
    let cases = plan.cases();
    if args.run.list {
        return Ok(Done::ok(measure::list(&cases)));
    }
    let folder = args.out.clone().unwrap_or_else(crate::cli::args::here);
    args::make_folder(&folder)?;
    let name = format!("membound-{}-{}", measure::host(), utc_compact(since_1970().as_secs()));
    // Before anything is measured: a place that can't be written is found at once.
    let page = Page::reserve_or(&args.run, &folder.join(format!("{name}.html")))?;
    let record = args.run.record.clone().unwrap_or_else(|| folder.join(format!("{name}.jsonl")));
    let session = Session::new(&args.run, machine, started + budget - REPORT_TIME, Some(record.clone()));
    let mut here = Here::new(&cases, Places::default(), args.run.verify)?;
    let finished = measure::measure_plan(&plan, &mut here, &session)?;
    let (report, done) = finished.shown(&session, &args.run, |report| args.detail.text(report));
    let mut files = vec![record.display().to_string()];
    let mut done = match page.filled(&report) {
        Ok(path) => {
            files.extend(path.map(|path| path.display().to_string()));
            done
        }
        Err(fault) => done.lacking(&fault.context(format!(
            "the record is written; draw its page with: membound report {} --out DIR",
            record.display()
        ))),
    };
    if args.run.format == Format::Table {
        done.text.push_str(&format!("\nWritten: {}\n", files.join("\n         ")));
    }
    Ok(done)
}
