//! `membound fleet screen`: the nodes that are not like their neighbours.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use super::{Done, Format, usage};
use crate::model::fleet::{self, Fleet, Gathered, Options, Screening, Topology, Unread};
use crate::record::records_in;
use crate::view;

/// Flags of `membound fleet screen`.
#[derive(Debug, Clone, Args)]
pub struct ScreenArgs {
    /// Records (.jsonl), one a node, and folders that hold them
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Records of an earlier fleet, or a folder with them: what got slower since
    #[arg(long, value_name = "FLEET")]
    pub baseline: Vec<PathBuf>,
    /// Slurm's topology.conf: are all nodes under one switch slow?
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// Deviations up to this many percent are no finding, however certain they are
    #[arg(long, value_name = "PERCENT", default_value_t = 1.5, value_parser = noise)]
    pub noise: f64,
    /// Share of findings that may be false, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = rate)]
    pub false_findings: f64,
    /// End with exit code 1 if a node is slower than its neighbours
    #[arg(long)]
    pub fail_on_findings: bool,
    /// List all findings, nodes and switches
    #[arg(long)]
    pub all: bool,
    /// Write a page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print as
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

fn percentage(text: &str, least: f64, most: f64) -> Option<f64> {
    let percent = text.trim().trim_end_matches('%').parse::<f64>().ok();
    percent.filter(|percent| (least..=most).contains(percent))
}

fn noise(text: &str) -> Result<f64, String> {
    percentage(text, 0.0, 100.0)
        .ok_or_else(|| format!("'{text}' is no noise; give a percentage from 0 to 100, such as 2"))
}

fn rate(text: &str) -> Result<f64, String> {
    percentage(text, 1e-6, 50.0)
        .ok_or_else(|| format!("'{text}' is no share of false findings; give a percentage up to 50, such as 5"))
}

/// Screens.
pub fn run(args: &ScreenArgs) -> anyhow::Result<Done> {
    let topology = args.topology.as_deref().map(Topology::read).transpose().map_err(usage)?;
    let Gathered { fleet, mut unread, mut notes } = read(&args.records)?;
    let then = match &args.baseline[..] {
        [] => None,
        paths => {
            let then = read(paths)?;
            unread.extend(then.unread);
            notes.extend(then.notes.iter().map(|note| format!("Earlier fleet: {note}")));
            Some(then.fleet)
        }
    };
    let options = Options { noise: args.noise / 100.0, rate: args.false_findings / 100.0 };
    let screening = fleet::screen(&fleet, then.as_ref(), topology.as_ref(), options);
    let mut text = match args.format {
        Format::Table => view::terminal::fleet(&fleet, &screening, &unread, &notes, args.all),
        Format::Csv => view::csv::fleet(&fleet::rows(&fleet, &screening, &unread)),
        Format::Json => view::json::fleet(&fleet::rows(&fleet, &screening, &unread)),
    };
    if args.format != Format::Table {
        // Rows alone on stdout; what they can't say is talk.
        for line in screening.sentences.iter().chain(&notes).chain(&screening.notes) {
            eprintln!("membound: {line}");
        }
        unread.iter().for_each(|unread| eprintln!("membound: {}", unread.reason));
    }
    if let Some(path) = &args.html {
        write_page(&fleet, &screening, &unread, &notes, path)?;
        if args.format == Format::Table {
            text.push_str(&format!("\nWritten: {}\n", path.display()));
        }
    }
    let is_slower = screening.findings.iter().any(|finding| finding.direction == fleet::Direction::Slower);
    Ok(Done { text, failed: !unread.is_empty() || args.fail_on_findings && is_slower })
}

/// The fleet that stands at some paths. No record at all, or none that can be used, is wrong usage.
fn read(paths: &[PathBuf]) -> anyhow::Result<Gathered> {
    let files = files(paths)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let gathered = fleet::gather(&files, threads, now);
    if gathered.fleet.nodes.is_empty() {
        let reasons: Vec<&str> = gathered.unread.iter().take(3).map(|unread| unread.reason.as_str()).collect();
        return Err(usage(format!("none of {} can be used: {}", records(files.len()), reasons.join("; "))));
    }
    Ok(gathered)
}

fn records(count: usize) -> String {
    if count == 1 { "1 record".into() } else { format!("{count} records") }
}

/// Files as they are named, of folders all records, by name.
fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() { files.extend(records_in(path).map_err(usage)?) } else { files.push(path.clone()) }
    }
    // A file that is named beside its folder counts once.
    let mut seen = std::collections::HashSet::new();
    files.retain(|file| seen.insert(file.clone()));
    Ok(files)
}

/// Writes the page, which may replace its older self.
#[cfg(feature = "report")]
fn write_page(
    fleet: &Fleet,
    screening: &Screening,
    unread: &[Unread],
    notes: &[String],
    path: &Path,
) -> anyhow::Result<()> {
    std::fs::write(path, view::html::fleet(fleet, screening, unread, notes))
        .map_err(|fault| usage(format!("cannot write {}: {fault}; choose another file with --html", path.display())))
}

/// This build has no pages.
#[cfg(not(feature = "report"))]
fn write_page(_: &Fleet, _: &Screening, _: &[Unread], _: &[String], _: &Path) -> anyhow::Result<()> {
    Err(usage("this build of membound writes no pages (feature `report` is off); leave out --html"))
}
