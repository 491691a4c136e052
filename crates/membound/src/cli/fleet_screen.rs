//! `membound fleet screen`: the nodes that are not like their neighbours.

use std::path::PathBuf;

use clap::Args;

use crate::cli::args::{Done, Format, with_page};
use crate::cli::count::percentage;
use crate::cli::report::files;
use crate::cli::say;
use crate::cli::usage;
use crate::now::since_1970;
use membound_analyze::across::fleet;
use membound_analyze::across::fleet::finding::{Direction, Options};
use membound_analyze::across::fleet::gather::{Gathered, Table};
use membound_analyze::across::fleet::topology::Topology;
use membound_analyze::across::fleet::{gather, rows};
use membound_analyze::across::sections::fleet as sections;
use membound_analyze::output as view;
use membound_core::units::counted;

/// Flags of `membound fleet screen`.
#[derive(Debug, Clone, Args)]
pub struct ScreenArgs {
    /// Records (.jsonl), one per node, and folders that hold them
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Records of an earlier fleet, or a folder with them: what got slower since
    #[arg(long, value_name = "FLEET")]
    pub baseline: Vec<PathBuf>,
    /// Slurm's topology.conf: are all nodes under one switch slow?
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// Deviations up to this many percent are no finding, however certain they are
    #[arg(long, value_name = "PERCENT", default_value = "1.5%", value_parser = noise)]
    pub noise: f64,
    /// Share of findings that may be false, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = rate)]
    pub false_findings: f64,
    /// End with exit code 1 if a node is slower than its neighbours, or cases crashed on it or came to wrong results
    #[arg(long)]
    pub fail_on_findings: bool,
    /// List all findings, nodes and switches
    #[arg(long)]
    pub all: bool,
    /// Write a page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print as
    #[arg(long, value_parser = Format::of_rows(), default_value = "table")]
    pub format: Format,
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
    let table = Table::default();
    let Gathered { fleet, mut unread, mut notes } = read(&args.records, &table)?;
    let then = match &args.baseline[..] {
        [] => None,
        paths => {
            let then = read(paths, &table)?;
            unread.extend(then.unread);
            notes.extend(then.notes.iter().map(|note| format!("Earlier fleet: {note}")));
            Some(then.fleet)
        }
    };
    let options = Options { noise: args.noise / 100.0, rate: args.false_findings / 100.0 };
    let screening = fleet::screen(&fleet, then.as_ref(), topology.as_ref(), options);
    let document = |all| sections::document(&fleet, &screening, &unread, &notes, all);
    let text = match args.format {
        Format::Csv => view::csv::fleet(&rows::rows(&fleet, &screening, &unread)),
        Format::Json => view::json::fleet(&rows::rows(&fleet, &screening, &unread)),
        format => format.drawn(&document(args.all)),
    };
    if args.format.is_for_programs() {
        // Rows alone on stdout; what they can't say is talk.
        for line in screening.sentences.iter().chain(&notes).chain(&screening.notes) {
            say::remark(line);
        }
        unread.iter().for_each(|unread| say::note(&unread.reason));
    }
    let is_worse = screening.findings.iter().any(|finding| finding.direction != Direction::Faster);
    let is_gate = args.fail_on_findings;
    let done = Done { text, failed: if is_gate { is_worse } else { !unread.is_empty() } };
    let done = with_page(done, args.html.as_deref(), args.format, is_gate, || document(true))?;
    let is_none_screened = screening.screened().next().is_none();
    match is_gate && !is_worse {
        true if is_none_screened => {
            done.unjudged("no node was screened, as too few are alike; give records of more nodes of a kind")
        }
        true if !unread.is_empty() => {
            let records = counted(unread.len() as u64, "record");
            done.unjudged(&format!("{records} could not be used; mend or remove what is named above"))
        }
        _ => Ok(done),
    }
}

/// The fleet that stands at some paths, with the cells of a table. No record at all, or none that can be used, is wrong usage.
fn read(paths: &[PathBuf], table: &Table) -> anyhow::Result<Gathered> {
    let files = files(paths)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let gathered = gather::gather(&files, threads, since_1970().as_secs(), table);
    if gathered.fleet.nodes.is_empty() {
        let reasons: Vec<&str> = gathered.unread.iter().take(3).map(|unread| unread.reason.as_str()).collect();
        let none =
            if files.len() == 1 { String::new() } else { format!("none of {} records can be used: ", files.len()) };
        return Err(usage(none + &reasons.join("; ")));
    }
    Ok(gathered)
}
