//! From cases to a record: opens the record file, runs the executor, keeps the user informed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::report::present;
use super::{Done, Format, PlaceArgs, RunArgs, usage};
use crate::machine::{Machine, Sheet};
use crate::memory::Places;
use crate::model::addrmap::Experiment;
use crate::model::{self, Report};
use crate::plan::Case;
use crate::record::{End, Header, Line, Measurement, Record, SCHEMA, Writer};
use crate::run::here::Here;
use crate::run::{self, Executor, Schedule, sys};
use crate::stats;
use crate::units::Bytes;
use crate::view;

/// A case is settled when its interval is within this share of its median on either side.
const TARGET: f64 = 0.01;
/// Rounds that every case is visited at least, so that its spread over time is seen.
const LEAST_ROUNDS: usize = 3;

/// How to measure.
#[derive(Debug, Clone)]
pub struct Session {
    /// The machine.
    pub machine: Machine,
    /// Seed of the order of visits.
    pub seed: u64,
    /// When to stop.
    pub deadline: Instant,
    /// Samples of one visit.
    pub samples: usize,
    /// Where the record goes, if anywhere.
    pub record: Option<PathBuf>,
    /// No talk on stderr.
    pub quiet: bool,
    /// The sheet whose limits count instead of the machine's own, if the user named one.
    pub sheet: Option<Sheet>,
}

impl Session {
    /// As the flags say.
    pub fn new(args: &RunArgs, machine: Machine, deadline: Instant, record: Option<PathBuf>) -> Self {
        let seed = args.seed.unwrap_or_else(fresh_seed);
        Session { machine, seed, deadline, samples: args.samples as usize, record, quiet: args.quiet, sheet: None }
    }
}

/// A finished measurement.
#[derive(Debug)]
pub struct Finished {
    /// What was measured.
    pub record: Record,
    /// Why the record file is incomplete, if it is.
    pub write_fault: Option<io::Error>,
    /// Cases were planned, and the time was over before the first of them was visited.
    pub is_too_short: bool,
}

impl Finished {
    /// Whether the command must exit with 1.
    pub fn failed(&self) -> bool {
        self.write_fault.is_some()
            || self.is_too_short
            || self.record.end.as_ref().is_some_and(|end| end.interrupted)
            || self.record.measurements.iter().any(|visit| visit.outcome.is_failure())
    }
}

/// A seed from the clock, small enough to type again.
pub fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::from(since.subsec_nanos()) % 1_000_000)
}

/// Creates a file that must not exist yet, with an error that names the cure.
pub fn create(path: &Path) -> anyhow::Result<File> {
    let open = File::options().write(true).create_new(true).open(path);
    open.map_err(|fault| {
        usage(format!("cannot create {}: {fault}; choose another place with --out or --record", path.display()))
    })
}

/// What a command does once it has its cases: lists them, or measures and shows them.
#[derive(Debug)]
pub struct Job<'a> {
    args: &'a RunArgs,
    session: Session,
    table: fn(&Report) -> String,
    places: Option<&'a PlaceArgs>,
}

impl<'a> Job<'a> {
    /// To be done by `deadline`, and shown as a table if not as rows.
    pub fn new(
        args: &'a RunArgs,
        record: Option<&PathBuf>,
        machine: Machine,
        deadline: Instant,
        table: fn(&Report) -> String,
    ) -> Self {
        Job { args, session: Session::new(args, machine, deadline, record.cloned()), table, places: None }
    }

    /// With streams where the user wants them.
    pub fn placed(self, places: &'a PlaceArgs) -> Self {
        Job { places: Some(places), ..self }
    }

    /// Held against a sheet that the user named, if any.
    pub fn against(mut self, sheet: Option<Sheet>) -> Self {
        self.session.sheet = sheet;
        self
    }

    /// Does it.
    pub fn finish(self, cases: &[Case]) -> anyhow::Result<Done> {
        self.finish_with(cases, &mut |_| Ok(()))
    }

    /// The same, and `also` gets the report; where it fails, what was measured is shown nevertheless.
    pub fn finish_with(
        self,
        cases: &[Case],
        also: &mut dyn FnMut(&Report) -> anyhow::Result<()>,
    ) -> anyhow::Result<Done> {
        let Job { args, session, table, places } = self;
        if args.list {
            return Ok(Done::ok(list(cases)));
        }
        let places = places.map_or_else(|| Ok(Places::default()), PlaceArgs::places)?;
        let mut here = Here::new(cases, places, args.verify)?;
        let finished = measure(cases, &mut here, &session)?;
        tell(&finished, &session);
        let report = model::report(&finished.record);
        let fault = also(&report).err();
        if let Some(fault) = &fault {
            let _ = writeln!(anstream::stderr(), "membound: {fault:#}");
        }
        warn(&report, args);
        Ok(Done { text: present(&report, args.format, table), failed: finished.failed() || fault.is_some() })
    }
}

/// Measures `cases` and records them as they are done. Ctrl-C ends the run and keeps what is finished.
pub fn measure(cases: &[Case], executor: &mut dyn Executor, session: &Session) -> anyhow::Result<Finished> {
    let run = |executor: &mut dyn Executor, schedule: &Schedule<'_>, sink: Sink<'_>, progress: Show<'_>| {
        run::run(cases, executor, schedule, sink, progress)
    };
    record(&|| Some(cases.len()), run, executor, session)
}

/// Measures `cases` until `turn`, then those that follow from what came of them.
pub fn measure_then(
    cases: &[Case],
    turn: Instant,
    then: &dyn Fn(&Record) -> Vec<Case>,
    executor: &mut dyn Executor,
    session: &Session,
) -> anyhow::Result<Finished> {
    let header = header(executor, session);
    let planned = Cell::new(cases.len());
    let run = |executor: &mut dyn Executor, schedule: &Schedule<'_>, sink: Sink<'_>, progress: Show<'_>| {
        let mut so_far = Record { header, measurements: Vec::new(), end: None };
        let mut keep = |measurement: Measurement| {
            so_far.measurements.push(measurement.clone());
            sink(measurement)
        };
        let first = Schedule { deadline: turn.min(schedule.deadline), ..*schedule };
        run::run(cases, executor, &first, &mut keep, progress)?;
        let more = then(&so_far);
        planned.set(cases.len() + more.iter().filter(|case| !cases.contains(case)).count());
        run::run(&more, executor, schedule, sink, progress)
    };
    record(&|| Some(planned.get()), run, executor, session)
}

/// Measures the cases that an experiment names one after the other, each by the answers so far.
pub fn follow(experiment: &mut Experiment, executor: &mut dyn Executor, session: &Session) -> anyhow::Result<Finished> {
    let mut next = |measurement: Option<&Measurement>| {
        measurement.iter().for_each(|measurement| experiment.note(measurement));
        experiment.next()
    };
    let run = |executor: &mut dyn Executor, schedule: &Schedule<'_>, sink: Sink<'_>, progress: Show<'_>| {
        run::follow(&mut next, executor, schedule, sink, progress)
    };
    record(&|| None, run, executor, session)
}

type Sink<'a> = &'a mut dyn FnMut(Measurement) -> io::Result<()>;
type Show<'a> = &'a mut dyn FnMut(run::Progress<'_>);

/// Records what `visit` measures: so many cases, as known afterwards, or as many as it takes.
fn record(
    planned: &dyn Fn() -> Option<usize>,
    visit: impl FnOnce(&mut dyn Executor, &Schedule<'_>, Sink<'_>, Show<'_>) -> io::Result<()>,
    executor: &mut dyn Executor,
    session: &Session,
) -> anyhow::Result<Finished> {
    let started = Instant::now();
    let mut writer = match &session.record {
        Some(path) => Some(Writer::new(create(path)?)),
        None => None,
    };
    let header = header(executor, session);
    let mut write_fault = None;
    if let Some(writer) = &mut writer {
        writer.line(&Line::Header(Box::new(header.clone()))).context("the record can't be written")?;
    }
    sys::catch_interrupts();
    let mut record = Record { header, measurements: Vec::new(), end: None };
    let bar = progress_bar(session);
    let schedule = Schedule {
        seed: session.seed,
        deadline: session.deadline,
        samples: session.samples,
        most_rounds: 1000,
        settled: &settled,
        interrupted: &sys::interrupted,
    };
    let mut sink = |measurement: Measurement| {
        let line = Line::Measurement(Box::new(measurement));
        let written = writer.as_mut().map_or(Ok(()), |writer| writer.line(&line));
        if let Line::Measurement(measurement) = line {
            record.measurements.push(*measurement);
        }
        written
    };
    let budget = session.deadline.saturating_duration_since(started);
    let mut progress = |at: run::Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_position(started.elapsed().min(budget).as_millis() as u64);
            let left = budget.saturating_sub(started.elapsed()).as_secs();
            bar.set_message(format!("{left:3} s left, round {}, {}", at.round + 1, at.case));
        }
    };
    if let Err(fault) = visit(executor, &schedule, &mut sink, &mut progress) {
        write_fault = Some(fault);
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let end = End {
        wall_s: started.elapsed().as_secs_f64(),
        interrupted: sys::interrupted(),
        planned: planned().unwrap_or(record.measurements.len()) as u64,
        peak_memory: Some(Bytes(sys::peak_memory())),
        after: run::environment(),
    };
    if let Some(writer) = writer.as_mut().filter(|_| write_fault.is_none()) {
        write_fault = writer.line(&Line::End(end.clone())).err();
    }
    // Who asks for nothing gets nothing: an experiment asks for one case at least.
    let has_plan = planned() != Some(0);
    let is_too_short = has_plan && record.measurements.is_empty() && !end.interrupted && write_fault.is_none();
    record.end = Some(end);
    Ok(Finished { record, write_fault, is_too_short })
}

fn settled(batches: &[Vec<f64>]) -> bool {
    let batches: Vec<&[f64]> = batches.iter().map(Vec::as_slice).collect();
    batches.len() >= LEAST_ROUNDS && stats::is_settled(&batches, TARGET)
}

fn header(executor: &dyn Executor, session: &Session) -> Header {
    Header {
        schema: SCHEMA,
        tool: format!("membound {}", env!("CARGO_PKG_VERSION")),
        host: host(),
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        command: std::env::args().collect(),
        seed: session.seed,
        clock: executor.clock(),
        machine: session.machine.clone(),
        before: run::environment(),
        world: executor.world(),
        sheet: session.sheet.clone(),
    }
}

/// The host's name, fit for a file name.
pub fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let clean: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    if clean.is_empty() { "host".into() } else { clean }
}

fn progress_bar(session: &Session) -> Option<ProgressBar> {
    if session.quiet || !io::stderr().is_terminal() {
        return None;
    }
    let total = session.deadline.saturating_duration_since(Instant::now());
    let bar = ProgressBar::new(total.as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {percent:>3}% {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    Some(bar)
}

/// Tells on stderr what did not go to plan.
pub fn tell(finished: &Finished, session: &Session) {
    if let (Some(fault), Some(path)) = (&finished.write_fault, &session.record) {
        let note = format!(
            "membound: {} could not be written to its end ({fault}); it holds every case finished before that",
            path.display()
        );
        let _ = writeln!(anstream::stderr(), "{note}");
    }
    if finished.is_too_short {
        let note = "membound: the time was over before the first case was visited, so nothing was measured; give a longer \
                    --budget";
        let _ = writeln!(anstream::stderr(), "{note}");
    }
    if finished.record.end.as_ref().is_some_and(|end| end.interrupted) {
        let _ = writeln!(anstream::stderr(), "membound: interrupted; every finished case is kept");
    }
}

/// Rows for programs hold no warnings: people are told on stderr.
pub fn warn(report: &Report, args: &RunArgs) {
    if args.format != Format::Table && !args.quiet && !report.warnings.is_empty() {
        let _ = write!(anstream::stderr(), "{}", view::terminal::warnings(report));
    }
}

/// One line a case, and how long a round of all takes at the least.
pub fn list(cases: &[Case]) -> String {
    let mut text: String = cases.iter().map(|case| format!("{case}\n")).collect();
    text.push_str(&format!("{} cases\n", cases.len()));
    text
}
