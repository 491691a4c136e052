//! `membound numa --page-cache`: first the curve over file sizes, then the cures where it is worst.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::cli::args::{Done, RunArgs, number};
use crate::cli::count::Threads;
use crate::cli::measure::{Page, Session};
use crate::cli::words::{one_of, threads};
use crate::cli::{measure, usage};
use membound_analyze::experiments::page_cache::rows as page_cache;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::{Case, Work};
use membound_core::experiments as plan;
use membound_core::experiments::frame::Frame;
use membound_core::experiments::page_cache::CacheChoice;
use membound_core::machine::Machine;
use membound_core::memory::MemoryKind;
use membound_core::memory::filler::Filler;
use membound_core::record::Record;
use membound_core::units::Bytes;
use membound_core::work::page_cache::{Cure, Workers};
use membound_measure::executor::here::Here;
use membound_measure::memory::filler::CachedFile;
use membound_measure::memory::places::Places;

/// Flags of `membound numa --page-cache`. They need it.
#[derive(Debug, Clone, Args)]
pub struct PageCacheArgs {
    /// Share of the memory that the largest file takes, and of the available memory that the triad takes at most [default: files
    /// grow until the speed recovers or memory ends, the triad takes 0.4]
    #[arg(long, value_name = "SHARE", value_parser = share, requires = "page_cache")]
    pub share: Option<f64>,
    /// Sizes of the file, beside none at all; without --share those up to half of the memory
    #[arg(long, value_name = "N", default_value_t = 6, requires = "page_cache")]
    #[arg(value_parser = number(1, 100))]
    pub steps: u32,
    /// Threads [default: one on each CPU]
    #[arg(long, value_name = "N", requires = "page_cache", value_parser = threads(), hide_possible_values = true)]
    pub threads: Option<Threads>,
    /// What each CPU runs: threads of one process, or processes with memory of their own; both stand beside each other
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "threads", requires = "page_cache", value_parser = one_of::<Workers>(), hide_possible_values = true)]
    pub workers: Vec<Workers>,
    /// How the file gets into the page cache: write, or sparse-read, which spares the disk
    #[arg(long, value_name = "HOW", default_value_t = Filler::Write, requires = "page_cache", value_parser = one_of::<Filler>(), hide_possible_values = true)]
    pub filler: Filler,
    /// Cures to compare [default: all, where there are several nodes]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "page_cache", value_parser = one_of::<Cure>())]
    pub cure: Vec<Cure>,
    /// Folder for the file, which has no name and vanishes [default: the current folder]
    #[arg(long, value_name = "DIR", requires = "page_cache")]
    pub dir: Option<PathBuf>,
}

pub(crate) const BUDGET: Duration = Duration::from_secs(300);
/// Share of the time that the curve over file sizes gets where cures follow.
const CURVE: f64 = 0.5;

/// A share of a whole: more than nothing, no more than all.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    match share {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share is above 0% and up to 100%, such as 40%".into()),
    }
}

impl PageCacheArgs {
    fn choice(&self, frame: &Frame, memory: MemoryKind, size: Option<Bytes>) -> CacheChoice {
        let &PageCacheArgs { share, steps, filler, threads, .. } = self;
        let threads = threads.map(|threads| threads.count(frame));
        let workers = Workers::ALL.iter().copied().filter(|workers| self.workers.contains(workers)).collect();
        CacheChoice { share, steps, filler, memory, threads, workers, size }
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
    started: Instant,
) -> anyhow::Result<Done> {
    let (machine, frame) = run.frame()?;
    let [cases, further] =
        plan::page_cache::page_cache(&frame, &machine, &args.choice(&frame, memory, size)).map_err(usage)?;
    let cures = args.cures(&machine);
    if run.list {
        return Ok(Done::ok(listed(&cases, &further, &cures)));
    }
    let usual = Places::default();
    let places = Places { folder: args.dir.clone().unwrap_or(usual.folder), ..usual };
    let largest = cases.iter().filter_map(file).max().unwrap_or_default();
    CachedFile::check(&places.folder, largest, args.filler).map_err(usage)?;
    let budget = run.budget.unwrap_or(BUDGET);
    let curve = if cures.is_empty() { budget } else { budget.mul_f64(CURVE) };
    let session = Session::new(run, machine, started + budget, run.record.clone());
    let folder = places.folder.clone();
    let mut here = Here::new(&cases, places, run.verify)?;
    let all = [&cases[..], &further].concat();
    let go_on = |so_far: &Record| {
        let sizes: Vec<Bytes> = further.iter().filter_map(file).collect();
        let next = page_cache::next_file(so_far, &sizes);
        // A disk that has no room for a larger file ends the curve.
        let next = next.filter(|next| CachedFile::check(&folder, *next, args.filler).is_ok());
        further.iter().filter(|case| next.is_some() && file(case) == next).cloned().collect()
    };
    let then = |so_far: &Record| match page_cache::worst_file(so_far).filter(|_| !cures.is_empty()) {
        Some(file) => plan::page_cache::cures(&all, file, &cures),
        None => Vec::new(),
    };
    let page = Page::reserve(run)?;
    let finished = measure::measure_then(&cases, started + curve, &go_on, &then, &mut here, &session)?;
    let table = |report: &Report| terminal::answer(report, &report.page_cache);
    let (report, mut done) = finished.shown(&session, run, table);
    done.failed |= has_gap(&finished.record);
    Ok(page.write(&report, done))
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
    curve.any(|visit| visit.outcome.measured().is_none())
}

/// How far the curve goes, and where the cures are tried, is known only then.
fn listed(cases: &[Case], further: &[Case], cures: &[Cure]) -> String {
    let names: Vec<&str> = cures.iter().map(|cure| cure.word()).collect();
    let then = match names.is_empty() {
        true => String::new(),
        false => format!("then, beside the file with which it is worst, the cures {}\n", names.join(", ")),
    };
    let more = further.last().and_then(file).map_or_else(String::new, |largest| {
        format!("then, until the speed recovers or memory ends, files of up to {largest}\n")
    });
    measure::list(cases) + &more + &then
}
