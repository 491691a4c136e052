//! `membound numa --page-cache`: first the curve over file sizes, then the cures where it is worst.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::measure::{self, Session};
use super::report::present;
use super::{Done, RunArgs, usage};
use crate::machine::Machine;
use crate::memory::{CachedFile, Filler, MemoryKind, Places};
use crate::model::{self, page_cache};
use crate::plan::{self, CacheChoice, Case, Cure, Work};
use crate::record::{Outcome, Record};
use crate::run::here::Here;
use crate::units::Bytes;
use crate::view::terminal;

/// Flags of `membound numa --page-cache`. They need it.
#[derive(Debug, Clone, Args)]
pub struct PageCacheArgs {
    /// Share of the memory that the largest file takes, and of the available memory that the triad takes at most
    #[arg(long, value_name = "SHARE", default_value_t = 0.4, value_parser = share, requires = "page_cache")]
    pub share: f64,
    /// Sizes of the file, beside none at all
    #[arg(long, value_name = "N", default_value_t = 6, requires = "page_cache")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub steps: u32,
    /// Threads [default: one on each CPU]
    #[arg(long, value_name = "N", requires = "page_cache")]
    pub threads: Option<usize>,
    /// How the file gets into the page cache: write, or sparse-read, which spares the disk
    #[arg(long, value_name = "HOW", default_value_t = Filler::Write, requires = "page_cache")]
    pub filler: Filler,
    /// Cures to compare: drop-caches, sweep, bind, preferred, interleave [default: all, where there are several nodes]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "page_cache")]
    pub cure: Vec<Cure>,
    /// Folder for the file, which has no name and vanishes [default: the current folder]
    #[arg(long, value_name = "DIR", requires = "page_cache")]
    pub dir: Option<PathBuf>,
}

const BUDGET: Duration = Duration::from_secs(300);
/// Share of the time that the curve over file sizes gets where cures follow.
const CURVE: f64 = 0.5;

/// A share of a whole: more than nothing, no more than all.
pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share is a number above 0 and up to 1, such as 0.4".into()),
    }
}

impl PageCacheArgs {
    fn choice(&self, memory: MemoryKind, size: Option<Bytes>) -> CacheChoice {
        let &PageCacheArgs { share, steps, filler, threads, .. } = self;
        CacheChoice { share, steps, filler, memory, threads, size }
    }

    fn cures(&self, machine: &Machine) -> Vec<Cure> {
        let all = Cure::ALL.iter().copied().filter(|cure| *cure != Cure::Nothing);
        match self.cure.is_empty() {
            true if machine.nodes.len() < 2 => Vec::new(),
            true => all.collect(),
            false => all.filter(|cure| self.cure.contains(cure)).collect(),
        }
    }
}

/// Measures and shows: a triad in `memory`, of this working set if one is given.
pub fn run(
    args: &PageCacheArgs,
    memory: MemoryKind,
    size: Option<Bytes>,
    run: &RunArgs,
    record: Option<&PathBuf>,
    started: Instant,
) -> anyhow::Result<Done> {
    let (machine, frame) = run.frame()?;
    let cases = plan::page_cache(&frame, &machine, &args.choice(memory, size)).map_err(usage)?;
    let cures = args.cures(&machine);
    if run.list {
        return Ok(Done::ok(listed(&cases, &cures)));
    }
    let usual = Places::default();
    let places = Places { folder: args.dir.clone().unwrap_or(usual.folder), ..usual };
    let largest = cases.iter().filter_map(file).max().unwrap_or_default();
    CachedFile::check(&places.folder, largest, args.filler).map_err(usage)?;
    let budget = run.budget.unwrap_or(BUDGET);
    let curve = if cures.is_empty() { budget } else { budget.mul_f64(CURVE) };
    let session = Session::new(run, machine, started + budget, record.cloned());
    let mut here = Here::new(&cases, places, run.verify)?;
    let then = |so_far: &Record| match page_cache::worst_file(so_far).filter(|_| !cures.is_empty()) {
        Some(file) => plan::cures(&cases, file, &cures),
        None => Vec::new(),
    };
    let finished = measure::measure_then(&cases, started + curve, &then, &mut here, &session)?;
    measure::tell(&finished, &session);
    let report = model::report(&finished.record);
    let failed = finished.failed() || has_gap(&finished.record);
    Ok(Done { text: present(&report, run.format, terminal::page_cache), failed })
}

fn file(case: &Case) -> Option<Bytes> {
    match &case.work {
        Work::PageCache(work) => Some(work.file),
        _ => None,
    }
}

/// A cure that this machine lacks is an answer; a file that could not be made leaves the question open.
fn has_gap(record: &Record) -> bool {
    let is_curve = |case: &Case| matches!(&case.work, Work::PageCache(work) if work.cure == Cure::Nothing);
    let mut curve = record.measurements.iter().filter(|visit| is_curve(&visit.case));
    curve.any(|visit| !matches!(visit.outcome, Outcome::Measured(_)))
}

/// Where the cures are tried is known only then.
fn listed(cases: &[Case], cures: &[Cure]) -> String {
    let names: Vec<&str> = cures.iter().map(|cure| cure.word()).collect();
    let then = match names.is_empty() {
        true => String::new(),
        false => format!("then, beside the file with which it is worst, the cures {}\n", names.join(", ")),
    };
    measure::list(cases) + &then
}
