//! `membound check`: is this node as it was, or as it should be? For a scheduler to call, and for Prometheus to read.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::measure::{self, Session};
use super::{Done, Format, Usage, compare, usage};
use crate::kernel::Isa;
use crate::machine::{Machine, Sheet};
use crate::memory::Places;
use crate::model::check::{self, Checkup, Ground, Health, Probe};
use crate::model::report;
use crate::plan::{self, Case, Frame};
use crate::record::Record;
use crate::run::busy;
use crate::run::here::Here;
use crate::run::sys;
use crate::run::turn::{self, Turn};
use crate::units::parse_duration;
use crate::view::prometheus::{self, Told};
use crate::view::{csv, json, terminal};

/// Flags of `membound check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// A record (.jsonl) of this node in health, or a folder with several, which know better how runs differ. In it %n stands
    /// for the node's name in Slurm (else the host's), %h for the host's
    #[arg(long, value_name = "RECORD|DIR")]
    pub baseline: Option<String>,
    /// Hold figures against a specification sheet: a file, or the name of one that comes with membound
    #[arg(long, value_name = "FILE|NAME")]
    pub spec: Option<PathBuf>,
    /// How much slower than the baseline a figure may be
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    pub tolerance: f64,
    /// How much of the sheet's limits must be reached
    #[arg(long, value_name = "PERCENT", default_value = "60%", value_parser = percent)]
    pub reach: f64,
    /// Time to spend, waiting for another check included
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = budget)]
    pub budget: Duration,
    /// Check also while others use the node
    #[arg(long)]
    pub force: bool,
    /// Write the result to this file (.prom) for Prometheus' textfile collector
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// Write what was measured (the first look) to this file: a baseline for later checks
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Checks that have this file in common wait for each other [default: membound-check.lock in /run, or else in the folder
    /// for temporary files]
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Show all figures, also of a healthy node
    #[arg(long, short)]
    pub verbose: bool,
    /// Print as; rows are printed in health, too
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// What is waited and looked at before a busy node is told from an idle one.
const QUIET_SPAN: Duration = Duration::from_millis(300);
/// Share of the budget that must be left to measure; who waits longer for another check skips.
const NEEDED: f64 = 0.25;
/// Share of the time that the first look takes.
const FIRST_LOOK: f64 = 0.5;
/// A visit that began in time may end later by so much; whoever takes longer is given up. With the usual budget that makes 19 s.
const GRACE: Duration = Duration::from_secs(4);
/// Samples of one visit.
const SAMPLES: usize = 7;

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..=99.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("'{text}' is no such share; give a percentage from 0 to 99, such as 5%"))
}

fn budget(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(50);
    let time = parse_duration(text).map_err(|fault| fault.to_string())?;
    let fits = (Duration::from_secs(1)..=most).contains(&time);
    fits.then_some(time).ok_or_else(|| {
        format!("'{text}' is no budget of a check; give 1s to 50s (Slurm ends a health check after 60 s)")
    })
}

impl CheckArgs {
    /// Whether there is something to hold the node against.
    fn is_judged(&self) -> bool {
        self.baseline.is_some() || self.spec.is_some()
    }
}

/// What came of it, if it could be made.
enum Outcome {
    Checked(Checkup),
    /// The node is busy: why.
    Skipped(String),
}

/// Checks. Whatever keeps a check from being made is exit code 2, so that 1 always means a degraded node.
pub fn run(args: &CheckArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    // Dropped at the end, which calls the watch off. Who makes a baseline has no scheduler waiting.
    let _watch = args.is_judged().then(|| watch(args.prometheus.clone(), args.budget + GRACE));
    let outcome = checked(args, started);
    let told = match &outcome {
        Ok(Outcome::Checked(checkup)) => Told::Checked(checkup),
        Ok(Outcome::Skipped(_)) => Told::Skipped,
        Err(_) => Told::Unable,
    };
    let written = args.prometheus.as_ref().map_or(Ok(()), |path| write_told(path, told, started.elapsed()));
    match (outcome, written) {
        (Ok(Outcome::Checked(checkup)), written) if written.is_ok() || checkup.is_degraded() => {
            if let Err(fault) = written {
                eprintln!("membound: {fault:#}");
            }
            Ok(Done { text: text(&checkup, args), failed: checkup.is_degraded() })
        }
        (Ok(Outcome::Skipped(why)), Ok(())) => {
            eprintln!("membound: not checked: {why}; --force checks nevertheless");
            Ok(Done::ok(if args.format == Format::Json { "[]\n".into() } else { String::new() }))
        }
        (Ok(_), Err(fault)) => Err(unable(fault)),
        (Ok(_), Ok(())) => Ok(Done::ok(String::new())),
        (Err(fault), written) => {
            if let Err(other) = written {
                eprintln!("membound: {other:#}");
            }
            Err(unable(fault))
        }
    }
}

/// Ends the process where a check does not end by itself: a disk or memory that does not answer, a crowd on every CPU. A
/// scheduler waits for it.
fn watch(prometheus: Option<PathBuf>, span: Duration) -> mpsc::Sender<()> {
    let (ended, waits) = mpsc::channel();
    std::thread::spawn(move || {
        if waits.recv_timeout(span) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("membound: the check did not end within {:.0} s and is given up", span.as_secs_f64());
            if let Some(path) = prometheus
                && let Err(fault) = write_told(&path, Told::Unable, span)
            {
                eprintln!("membound: {fault:#}");
            }
            std::process::exit(2);
        }
    });
    ended
}

fn write_told(path: &Path, told: Told<'_>, took: Duration) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    write_whole(path, &prometheus::check(told, now, took.as_secs_f64()))
}

fn unable(fault: anyhow::Error) -> anyhow::Error {
    if fault.is::<Usage>() { fault } else { usage(format!("{fault:#}")) }
}

fn text(checkup: &Checkup, args: &CheckArgs) -> String {
    match (args.format, args.verbose) {
        (Format::Json, _) => json::check(checkup),
        (Format::Csv, _) => csv::check(checkup),
        (Format::Table, true) => terminal::check(checkup),
        (Format::Table, false) => terminal::check_line(checkup),
    }
}

fn checked(args: &CheckArgs, started: Instant) -> anyhow::Result<Outcome> {
    if !args.is_judged() && args.record.is_none() && args.prometheus.is_none() {
        return Err(usage(
            "there is nothing to hold this node against; give --baseline RECORD or --spec NAME, or make a baseline with \
             --record FILE while the node is healthy",
        ));
    }
    let sheet = args.spec.as_deref().map(Sheet::find).transpose().map_err(usage)?;
    let machine = Machine::live();
    let (probes, baseline) = match &args.baseline {
        Some(path) => of_baseline(path, &machine)?,
        None => (of_machine(&machine)?, Vec::new()),
    };
    let ground = Ground { baseline, tolerance: args.tolerance, sheet, reach: args.reach };
    let deadline = started + args.budget;
    let lock = args.lock.clone().unwrap_or_else(turn::usual_path);
    let turn = Turn::take(&lock, deadline - args.budget.mul_f64(NEEDED))
        .map_err(|fault| usage(format!("cannot lock {}: {fault}; choose another file with --lock", lock.display())))?;
    if turn.is_none() {
        return Ok(Outcome::Skipped("another check was measuring all the time".into()));
    }
    if let Some(busy) = busy::others(Path::new("/proc"), QUIET_SPAN).filter(|_| !args.force) {
        return Ok(Outcome::Skipped(busy.to_string()));
    }
    let checkup = looked(args, &machine, &probes, &ground, deadline)?;
    if args.record.is_some() && checkup.rows.iter().any(|row| row.health == Health::Unknown) {
        eprintln!(
            "membound: some figures were not measured (see --verbose): for a good baseline give a longer --budget"
        );
    }
    if checkup.is_unable() {
        let reason = checkup.rows.iter().find_map(|row| Some(format!("{}: {}", row.quantity, row.reason.as_ref()?)));
        let reason = reason.unwrap_or_else(|| "no figure was measured".into());
        return Err(usage(format!("nothing can be told of this node: {reason}; give a longer --budget")));
    }
    Ok(Outcome::Checked(checkup))
}

/// Looks once, and at what seems degraded once more.
fn looked(
    args: &CheckArgs,
    machine: &Machine,
    probes: &[Probe],
    ground: &Ground,
    deadline: Instant,
) -> anyhow::Result<Checkup> {
    let left = deadline.saturating_duration_since(Instant::now());
    let first = if args.is_judged() { Instant::now() + left.mul_f64(FIRST_LOOK) } else { deadline };
    let measured = |probes: &[Probe], deadline: Instant, record: Option<&PathBuf>| {
        let cases: Vec<Case> = probes.iter().map(|probe| probe.case.clone()).collect();
        measure_cases(&cases, machine, deadline, record)
    };
    let checkup = check::look(probes, ground, &measured(probes, first, args.record.as_ref())?);
    let suspects = checkup.suspects(probes);
    if suspects.is_empty() {
        return Ok(checkup);
    }
    let again = check::look(&suspects, ground, &measured(&suspects, deadline, None)?);
    Ok(check::confirmed(checkup, &again))
}

fn measure_cases(
    cases: &[Case],
    machine: &Machine,
    deadline: Instant,
    record: Option<&PathBuf>,
) -> anyhow::Result<Record> {
    let session = Session {
        machine: machine.clone(),
        seed: measure::fresh_seed(),
        deadline,
        samples: SAMPLES,
        record: record.cloned(),
        quiet: true,
        sheet: None,
    };
    let mut here = Here::new(cases, Places::default(), false)?;
    let finished = measure::measure(cases, &mut here, &session)?;
    if sys::interrupted() {
        return Err(usage("interrupted"));
    }
    if let Some(fault) = finished.write_fault {
        return Err(usage(format!("the record can't be written: {fault}")));
    }
    Ok(finished.record)
}

/// The probes of a baseline, and what of it they need.
fn of_baseline(path: &str, machine: &Machine) -> anyhow::Result<(Vec<Probe>, Vec<Record>)> {
    let path = PathBuf::from(named(path, &measure::host(), std::env::var("SLURMD_NODENAME").ok().as_deref()));
    let wrong = |fault: &dyn Display| usage(format!("the baseline {} can't be used: {fault}", path.display()));
    let records = compare::records(&path)?;
    if let Some(fault) = records.iter().find_map(|record| check::stranger(&record.header.machine, machine)) {
        return Err(wrong(&format!("{fault}; measure one here with membound check --record FILE")));
    }
    // Of several records the first that has figures names the cases.
    let probes = records.iter().map(|record| check::probes(&report(record), record)).find(|probes| !probes.is_empty());
    let probes = probes.ok_or_else(|| {
        wrong(&"it has no figure that a check looks at; measure one here with membound check --record FILE")
    })?;
    let trimmed = records.iter().map(|record| check::trimmed(record, &probes));
    let trimmed = trimmed.filter(|record| !record.measurements.is_empty()).collect();
    Ok((probes, trimmed))
}

/// The probes of a machine without a baseline. What each case stands for is known before it is measured.
fn of_machine(machine: &Machine) -> anyhow::Result<Vec<Probe>> {
    let frame = Frame::new(machine, Isa::detect(), None).map_err(usage)?;
    let cases = plan::check(&frame).map_err(usage)?;
    Ok(check::planned(&cases, &frame))
}

/// A path with the node's and the host's name in it. Slurm's own configuration uses the same letters.
fn named(path: &str, host: &str, node: Option<&str>) -> String {
    let mut text = String::new();
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match (letter, letters.clone().next()) {
            ('%', Some('n')) => text.push_str(node.unwrap_or(host)),
            ('%', Some('h')) => text.push_str(host),
            ('%', Some('%')) => text.push('%'),
            (letter, _) => {
                text.push(letter);
                continue;
            }
        }
        letters.next();
    }
    text
}

/// Writes a file so that a reader sees the old one or the new one, never a part: beside it, then renamed. The name of the
/// unfinished file does not end in `.prom`, so the collector leaves it alone.
fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let unfinished = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::options().write(true).create_new(true).open(&unfinished)?;
        // For the collector, which runs as somebody else.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    };
    write().map_err(|fault| {
        let _ = std::fs::remove_file(&unfinished);
        usage(format!("cannot write {}: {fault}; choose another file with --prometheus", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_paths() {
        let check = |path: &str, node, expect: &str| assert_eq!(named(path, "host7", node), expect, "{path}");
        check("/etc/%n.jsonl", Some("n3"), "/etc/n3.jsonl");
        check("/etc/%n.jsonl", None, "/etc/host7.jsonl");
        check("%h/%n/100%%", Some("n3"), "host7/n3/100%");
        check("a%x%", Some("n3"), "a%x%");
        check("%%n", Some("n3"), "%n");
    }

    #[test]
    fn shares_and_budgets_are_parsed() {
        assert_eq!((percent("5%"), percent(" 12.5 %"), percent("0")), (Ok(0.05), Ok(0.125), Ok(0.0)));
        for text in ["", "100", "-1%", "NaN", "inf", "five"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!(budget("20s"), Ok(Duration::from_secs(20)));
        for text in ["0", "0.5s", "51s", "2min", "soon"] {
            assert!(budget(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("membound.prom");
        write_whole(&path, "one\n").unwrap();
        write_whole(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
        assert!(write_whole(&folder.path().join("no/such/folder.prom"), "x").is_err());
        assert!(write_whole(folder.path(), "x").is_err(), "a folder");
    }
}
