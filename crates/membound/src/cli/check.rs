//! `membound check`: is this node as it was, or as it should be? For a scheduler to call, and for Prometheus to read.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Args;

use crate::cli::args::{Done, Format};
use crate::cli::count::percentage;
use crate::cli::measure::Session;
use crate::cli::say;
use crate::cli::usage::{Usage, usage};
use crate::cli::words::sheets;
use crate::cli::{compare, measure, metrics};
use crate::now::since_1970;
use membound_analyze::across::check;
use membound_analyze::across::check::{Checkup, Criteria, Health, Probe};
use membound_analyze::output::{csv, json};

use membound_analyze::across::sections::check as sections;
use membound_analyze::of_record::report;
use membound_analyze::output::prometheus;
use membound_analyze::output::prometheus::Told;
use membound_core::case::Case;
use membound_core::experiments as plan;
use membound_core::experiments::frame::Frame;
use membound_core::input;
use membound_core::machine::Machine;
use membound_core::machine::spec::Sheet;
use membound_core::record::Record;
use membound_core::units::parse_duration;
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::os::outfile::Readers;
use membound_measure::os::{busy, outfile, signals};
use membound_measure::turn;
use membound_measure::turn::Turn;

/// Flags of `membound check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// A record (.jsonl) of this node in health, or a folder with several, which know better how runs differ. In it %n stands
    /// for the node's name in Slurm (else the host's), %h for the host's
    #[arg(long, value_name = "RECORD|DIR")]
    pub baseline: Option<String>,
    /// Hold figures against a specification sheet: a file, or the name of one that comes with membound
    #[arg(long, value_name = "FILE|NAME", value_parser = sheets(), hide_possible_values = true)]
    pub spec: Option<PathBuf>,
    /// How much slower than the baseline a figure may be
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent, allow_hyphen_values = true, requires = "baseline")]
    pub tolerance: f64,
    /// How much of the sheet's limits must be reached
    #[arg(long, value_name = "PERCENT", default_value = "60%", value_parser = percent, allow_hyphen_values = true, requires = "spec")]
    pub reach: f64,
    /// Time to spend, waiting for another check included
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = budget, allow_hyphen_values = true)]
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
    #[arg(long, value_parser = Format::of_rows(), default_value = "table")]
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

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    percentage(text, 0.0, 99.0)
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

    fn lock(&self) -> PathBuf {
        self.lock.clone().unwrap_or_else(turn::usual_path)
    }

    /// Refuses to write the result over something else, such as the baseline, or over what the check is about to make.
    fn refuse_other(&self) -> anyhow::Result<()> {
        let Some(path) = &self.prometheus else { return Ok(()) };
        metrics::refuse_other(path, &[("--record", self.record.as_deref()), ("--lock", Some(self.lock().as_path()))])
    }
}

/// Outcome of the check.
enum Outcome {
    Checked(Checkup),
    /// The node is busy: why.
    Skipped(String),
}

/// Checks. Whatever keeps a check from being made is exit code 2, so that 1 always means a degraded node.
pub fn run(args: &CheckArgs) -> anyhow::Result<Done> {
    let started = Instant::now();
    // Dropped at the end, which calls the watch off. Who makes a baseline has no scheduler waiting.
    let _watch = match args.is_judged().then(|| watch(args.prometheus.clone(), args.budget + GRACE)) {
        Some(Err(fault)) => {
            return Err(usage(format!("the check can't be watched, as no thread can be started: {fault}")));
        }
        watch => watch,
    };
    args.refuse_other()?;
    let outcome = checked(args, started);
    let in_a_row = 1 + skips_before(args);
    let told = match &outcome {
        Ok(Outcome::Checked(checkup)) => Told::Checked(checkup),
        Ok(Outcome::Skipped(_)) => Told::Skipped { in_a_row },
        Err(_) => Told::Unable,
    };
    let written = args.prometheus.as_ref().map_or(Ok(()), |path| write_told(path, told, started.elapsed()));
    match (outcome, written) {
        (Ok(Outcome::Checked(checkup)), written) if written.is_ok() || checkup.is_degraded() => {
            if let Err(fault) = written {
                say::note(format_args!("{fault:#}"));
            }
            Ok(Done { text: text(&checkup, args), failed: checkup.is_degraded() })
        }
        (Ok(Outcome::Skipped(why)), Ok(())) => {
            let row = if in_a_row > 1 { format!(", {in_a_row} times in a row by now") } else { String::new() };
            // Who asked for a baseline alone has nothing.
            if let (Some(path), false) = (&args.record, args.is_judged()) {
                let path = path.display();
                return Err(usage(format!("{path} was not written{row}: {why}; --force measures nevertheless")));
            }
            let record = args.record.as_ref().map_or(String::new(), |path| format!(", {} not written", path.display()));
            say::note(format_args!("not checked{record}{row}: {why}; --force checks nevertheless"));
            Ok(Done::ok(if args.format == Format::Json { "[]\n".into() } else { String::new() }))
        }
        (Ok(Outcome::Checked(checkup)), Err(fault)) => {
            // Who can't read the file reads what was found.
            let _ = say::answer(&text(&checkup, args));
            Err(unable(fault))
        }
        (Ok(_), Err(fault)) => Err(unable(fault)),
        (Ok(_), Ok(())) => Ok(Done::ok(String::new())),
        (Err(fault), written) => {
            if let Err(other) = written {
                say::note(format_args!("{other:#}"));
            }
            Err(unable(fault))
        }
    }
}

/// Checks that were left out one after the other before this one, as the file for Prometheus tells.
fn skips_before(args: &CheckArgs) -> u64 {
    const MOST: u64 = 1 << 20;
    let earlier = args.prometheus.as_ref().and_then(|path| input::text(path, MOST).ok());
    earlier.map_or(0, |text| prometheus::skips_in_a_row(&text))
}

/// Ends the process where a check does not end by itself: a disk or memory that does not answer, a crowd on every CPU. A
/// scheduler waits for it.
fn watch(prometheus: Option<PathBuf>, span: Duration) -> std::io::Result<mpsc::Sender<()>> {
    let (ended, waits) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        if waits.recv_timeout(span) == Err(mpsc::RecvTimeoutError::Timeout) {
            say::note(format_args!("the check did not end within {:.0} s and is given up", span.as_secs_f64()));
            if let Some(path) = prometheus
                && let Err(fault) = write_told(&path, Told::Unable, span)
            {
                say::note(format_args!("{fault:#}"));
            }
            std::process::exit(2);
        }
    })?;
    Ok(ended)
}

fn write_told(path: &Path, told: Told<'_>, took: Duration) -> anyhow::Result<()> {
    let text = prometheus::check(told, since_1970().as_secs(), took.as_secs_f64());
    say::file(path, &text, Readers::Everybody).map_err(|fault| {
        usage(format!("cannot write {}: {fault}; choose another file with --prometheus", path.display()))
    })
}

fn unable(fault: anyhow::Error) -> anyhow::Error {
    if fault.is::<Usage>() { fault } else { usage(format!("{fault:#}")) }
}

fn text(checkup: &Checkup, args: &CheckArgs) -> String {
    match (args.format, args.verbose) {
        (Format::Json, _) => json::check(checkup),
        (Format::Csv, _) => csv::check(checkup),
        // Only what a scheduler is to read.
        (Format::Table, false) if checkup.is_degraded() => checkup.line() + "\n",
        (Format::Table, false) => String::new(),
        (format, _) => format.drawn(&sections::document(checkup)),
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
    let machine = membound_measure::machine::live();
    let (probes, baseline) = match &args.baseline {
        Some(path) => of_baseline(path, &machine)?,
        None => (of_machine(&machine)?, Vec::new()),
    };
    let criteria = Criteria { baseline, tolerance: args.tolerance, sheet, reach: args.reach };
    let deadline = started + args.budget;
    let lock = args.lock();
    let turn = Turn::take(&lock, deadline - args.budget.mul_f64(NEEDED))
        .map_err(|fault| usage(format!("cannot lock {}: {fault}; choose another file with --lock", lock.display())));
    let no_turn = match turn {
        Ok(Some(ref _turn)) => None,
        Ok(None) => Some(format!("{} held {} all the time", outfile::lock_holder(&lock), lock.display())),
        Err(fault) if !args.force => return Err(fault),
        Err(ref fault) => Some(fault.to_string()),
    };
    match no_turn {
        Some(why) if args.force => say::note(format_args!("{why}: others may be measuring beside this check")),
        Some(why) => return Ok(Outcome::Skipped(why)),
        None => {}
    }
    if let Some(busy) = busy::others(QUIET_SPAN).filter(|_| !args.force) {
        return Ok(Outcome::Skipped(busy.to_string()));
    }
    let checkup = looked(args, &machine, &probes, &criteria, deadline)?;
    if args.record.is_some() && checkup.rows.iter().any(|row| row.health == Health::Unknown) {
        say::remark("some figures were not measured (see --verbose): for a good baseline give a longer --budget");
    }
    if checkup.is_unable() {
        return Err(usage(format!("nothing can be told of this node: {}", checkup.why_unable())));
    }
    if args.is_judged() && !args.verbose {
        checkup.open().iter().for_each(say::remark);
    }
    Ok(Outcome::Checked(checkup))
}

/// Looks once, and at what seems degraded once more.
fn looked(
    args: &CheckArgs,
    machine: &Machine,
    probes: &[Probe],
    criteria: &Criteria,
    deadline: Instant,
) -> anyhow::Result<Checkup> {
    let left = deadline.saturating_duration_since(Instant::now());
    let first = if args.is_judged() { Instant::now() + left.mul_f64(FIRST_LOOK) } else { deadline };
    let measured = |probes: &[Probe], deadline: Instant, record: Option<&PathBuf>| {
        let cases: Vec<Case> = probes.iter().map(|probe| probe.case.clone()).collect();
        measure_cases(&cases, machine, deadline, record)
    };
    let checkup = check::look(probes, criteria, &measured(probes, first, args.record.as_ref())?);
    let suspects = checkup.suspects(probes);
    if suspects.is_empty() {
        return Ok(checkup);
    }
    let again = check::look(&suspects, criteria, &measured(&suspects, deadline, None)?);
    Ok(check::confirmed(checkup, &again))
}

fn measure_cases(
    cases: &[Case],
    machine: &Machine,
    deadline: Instant,
    record: Option<&PathBuf>,
) -> anyhow::Result<Record> {
    let session = Session { record: record.cloned(), ..Session::silent(machine.clone(), deadline, SAMPLES) };
    let mut here = Here::new(cases, Places::default(), false)?;
    let finished = measure::measure(cases, &mut here, &session)?;
    if signals::interrupted() {
        return Err(usage(measure::stopped().concat()));
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
    let probes = records.iter().map(|record| check::probes(&report(record))).find(|probes| !probes.is_empty());
    let probes = probes.ok_or_else(|| {
        wrong(&"it has no figure that a check looks at; measure one here with membound check --record FILE")
    })?;
    let trimmed = records.iter().map(|record| check::trimmed(record, &probes));
    let trimmed = trimmed.filter(|record| !record.measurements.is_empty()).collect();
    Ok((probes, trimmed))
}

/// The probes of a machine without a baseline. What each case stands for is known before it is measured.
fn of_machine(machine: &Machine) -> anyhow::Result<Vec<Probe>> {
    let frame = Frame::new(machine, membound_measure::asm::detect(), None).map_err(usage)?;
    let cases = plan::check::check(&frame).map_err(usage)?;
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
}
