//! The default run: characterises this machine within a budget; summary, record and report.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::measure::{self, Session};
use super::report::{present, write_page};
use super::{Done, Format, RunArgs, usage};
use crate::machine::energy;
use crate::memory::Places;
use crate::model;
use crate::plan::{self, Choice, NumaChoice};
use crate::run::here::Here;
use crate::units::utc_compact;

/// Flags of the default run.
#[derive(Debug, Clone, Args)]
pub struct CharacteriseArgs {
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
    /// Folder for the record and the report [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

const BUDGET: Duration = Duration::from_secs(60);
/// Kept for working out and writing the report.
const REPORT_TIME: Duration = Duration::from_millis(700);
/// Less can't hold even a sketch of the machine.
const LEAST_BUDGET: Duration = Duration::from_secs(2);

/// Characterises this machine.
pub fn run(args: &CharacteriseArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    let budget = args.run.budget.unwrap_or(BUDGET);
    if budget < LEAST_BUDGET {
        return Err(usage("a default run needs at least 2 s; give --budget 2s or more"));
    }
    let (machine, frame) = args.run.frame()?;
    let mut cases = plan::characterise(&frame, budget).map_err(usage)?;
    if plan::has_places(&machine) {
        // A machine whose nodes have no room is still characterised.
        let brief = NumaChoice { is_brief: true, ..NumaChoice::default() };
        cases.extend(plan::numa(&frame, &machine, &brief).map(|(cases, _)| cases).unwrap_or_default());
    }
    if machine.energy.known().is_some_and(|meters| !energy::usable(meters).is_empty()) {
        cases.extend(plan::energy(&frame, &Choice::default()).map_err(usage)?);
    }
    if args.run.list {
        return Ok(Done::ok(measure::list(&cases)));
    }
    let folder = args.out.clone().unwrap_or_else(super::here);
    std::fs::create_dir_all(&folder).map_err(|fault| {
        usage(format!("cannot use {} for results: {fault}; choose another with --out", folder.display()))
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let name = format!("membound-{}-{}", measure::host(), utc_compact(now));
    let page = folder.join(format!("{name}.html"));
    let record = folder.join(format!("{name}.jsonl"));
    let session = Session::new(&args.run, machine, started + budget - REPORT_TIME, Some(record));
    let mut here = Here::new(&cases, Places::default(), args.run.verify)?;
    let finished = measure::measure(&cases, &mut here, &session)?;
    measure::tell(&finished, &session);
    let report = model::report(&finished.record);
    measure::warn(&report, &args.run);
    let mut text = present(&report, args.run.format, crate::view::terminal::summary);
    let page = write_page(&report, &page)?;
    if args.run.format == Format::Table {
        let record = session.record.iter().map(|path| path.display().to_string());
        let files: Vec<String> = record.chain(page.map(|path| path.display().to_string())).collect();
        text.push_str(&format!("\nWritten: {}\n", files.join("\n         ")));
    }
    Ok(Done { text, failed: finished.failed() })
}
