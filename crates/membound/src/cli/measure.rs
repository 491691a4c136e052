//! From cases to a record: opens the record file, runs the executor, keeps the user informed.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::args::{Done, Format, PlaceArgs, RunArgs, no_pages};
use crate::cli::report::present;
use crate::cli::say;
use crate::cli::usage;
use crate::now::since_1970;
use membound_analyze::experiments::addrmap::rows::Experiment;
use membound_analyze::report::Report;
use membound_analyze::{of_record as model, output as view};
use membound_core::case::Case;
use membound_core::experiments::frame::Frame;
use membound_core::machine::Machine;
use membound_core::machine::devices::Device;
use membound_core::machine::spec::Sheet;
use membound_core::plan::Plan;
use membound_core::record::{End, Header, Line, Measurement, Outcome, Record, SCHEMA, Writer};
use membound_core::stats;
use membound_core::units::Bytes;
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::os::outfile::Reserved;
use membound_measure::os::{arguments, machine, outfile, processes, signals};
use membound_measure::schedule as run;
use membound_measure::schedule::{Executor, ROUNDS_MOST, Schedule};

/// A case is settled when its interval is within this share of its median on either side.
const TARGET: f64 = 0.01;
/// Rounds that every case is visited at least, so that its spread over time is seen.
const LEAST_ROUNDS: usize = 3;

/// Beyond three times its budget no command lives longer than this.
const PATIENCE: Duration = Duration::from_secs(8);

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
    /// Visits of each case at most.
    pub rounds: u32,
    /// Where the record goes, if anywhere.
    pub record: Option<PathBuf>,
    /// No talk on stderr.
    pub quiet: bool,
    /// Rows go to stdout as soon as they are known.
    pub streams: bool,
    /// What is measured is kept, as a record or a page, whoever reads the rows.
    pub is_kept: bool,
    /// The sheet whose limits count instead of the machine's own, if the user named one.
    pub sheet: Option<Sheet>,
    /// The device whose memory is measured, if the user named one.
    pub device: Option<Device>,
    /// The devices between which copies are measured.
    pub devices: Vec<Device>,
}

impl Session {
    /// As the flags say.
    pub fn new(args: &RunArgs, machine: Machine, deadline: Instant, record: Option<PathBuf>) -> Self {
        let usual = Session::silent(machine, deadline, args.samples as usize);
        Session {
            seed: args.seed.unwrap_or(usual.seed),
            rounds: args.rounds.unwrap_or(usual.rounds),
            is_kept: record.is_some() || args.html.is_some(),
            record,
            quiet: args.quiet,
            streams: args.format == Format::Jsonl,
            ..usual
        }
    }

    /// So many samples a visit until then, with a fresh seed; nothing is said or written meanwhile.
    pub fn silent(machine: Machine, deadline: Instant, samples: usize) -> Self {
        Session {
            machine,
            seed: fresh_seed(),
            deadline,
            samples,
            rounds: ROUNDS_MOST,
            record: None,
            quiet: true,
            streams: false,
            is_kept: false,
            sheet: None,
            device: None,
            devices: Vec::new(),
        }
    }
}

/// A finished measurement.
#[derive(Debug)]
pub struct Finished {
    /// What was measured.
    pub record: Record,
    /// Why the record file is incomplete, if it is.
    pub write_fault: Option<io::Error>,
    /// Why rows could not be printed as they came, if so. A reader that has seen enough and closes the pipe is no failure.
    pub unheard: Option<io::Error>,
    /// Cases were planned, and the time was over before the first of them was visited.
    pub is_too_short: bool,
    /// What the shortest visit takes, about.
    pub needs: Duration,
}

impl Finished {
    /// Whether the command must exit with 1.
    pub fn failed(&self) -> bool {
        self.write_fault.is_some()
            || self.print_fault().is_some()
            || self.is_too_short
            || self.nothing().is_some()
            || self.record.end.as_ref().is_some_and(|end| end.interrupted)
            || self.record.measurements.iter().any(|visit| visit.outcome.is_failure())
    }

    /// The end of a command that measures: says what did not go to plan, and draws what was measured.
    pub fn shown(&self, session: &Session, args: &RunArgs, table: impl Fn(&Report) -> String) -> (Report, Done) {
        tell(self, session);
        let report = model::report(&self.record);
        warn(&report, args);
        let done = Done { text: present(&report, args.format, table), failed: self.failed() };
        (report, done)
    }

    /// Why rows could not be printed, where it is a failure.
    fn print_fault(&self) -> Option<&io::Error> {
        self.unheard.as_ref().filter(|fault| fault.kind() != io::ErrorKind::BrokenPipe)
    }

    /// Why nothing was measured at all, where all that was visited could not be.
    pub fn nothing(&self) -> Option<&str> {
        let mut reason = None;
        for visit in &self.record.measurements {
            match &visit.outcome {
                Outcome::Measured(_) => return None,
                Outcome::Unavailable { reason: why }
                | Outcome::Crashed { reason: why }
                | Outcome::Invalid { reason: why } => reason = reason.or(Some(why.as_str())),
            }
        }
        reason
    }
}

/// A seed from the clock, small enough to type again.
fn fresh_seed() -> u64 {
    u64::from(since_1970().subsec_nanos()) % 1_000_000
}

/// Creates the file of a record, which must not exist yet, with an error that names the cure.
pub fn create(path: &Path) -> anyhow::Result<File> {
    outfile::create(path)
        .map_err(|fault| usage(format!("cannot create {}: {fault}; choose another file with --record", path.display())))
}

/// The same of one that is filled after the run, and vanishes where it is not.
pub fn reserve(path: &Path, flag: &str) -> anyhow::Result<Reserved> {
    Reserved::new(path)
        .map_err(|fault| usage(format!("cannot create {}: {fault}; choose another file with {flag}", path.display())))
}

/// What a command does once it has its cases: lists them, or measures and shows them.
#[derive(Debug)]
pub struct Job<'a> {
    args: &'a RunArgs,
    session: Session,
    table: fn(&Report) -> String,
    places: Option<&'a PlaceArgs>,
    no_device: Option<String>,
    is_last: fn(&Case) -> bool,
}

impl<'a> Job<'a> {
    /// One that begins now, with what a plan needs of this machine. It has `usual` time unless the user gave another.
    pub fn begin(args: &'a RunArgs, usual: Duration, table: fn(&Report) -> String) -> anyhow::Result<(Self, Frame)> {
        let deadline = Instant::now() + args.budget.unwrap_or(usual);
        let (machine, frame) = args.frame()?;
        Ok((Job::new(args, machine, deadline, table), frame))
    }

    /// To be done by `deadline`, and shown as a table if not as rows.
    pub fn new(args: &'a RunArgs, machine: Machine, deadline: Instant, table: fn(&Report) -> String) -> Self {
        Job {
            args,
            session: Session::new(args, machine, deadline, args.record.clone()),
            table,
            places: None,
            no_device: None,
            is_last: |_| false,
        }
    }

    /// With all of its time from now on: drivers take some seconds to start, which are no part of it.
    pub fn from_now(mut self, usual: Duration) -> Self {
        self.session.deadline = Instant::now() + self.args.budget.unwrap_or(usual);
        self
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.session.machine
    }

    /// With these cases visited once all others were.
    pub fn last(self, is_last: fn(&Case) -> bool) -> Self {
        Job { is_last, ..self }
    }

    /// With streams where the user wants them.
    pub fn placed(self, places: &'a PlaceArgs) -> Self {
        Job { places: Some(places), ..self }
    }

    /// On a device; or why the one that the user named can't be used.
    pub fn on(mut self, device: Result<Device, String>) -> Self {
        match device {
            Ok(device) => self.session.device = Some(device),
            Err(why) => self.no_device = Some(why),
        }
        self
    }

    /// Between these devices.
    pub fn between(mut self, devices: Vec<Device>) -> Self {
        self.session.devices = devices;
        self
    }

    /// Held against a sheet that the user named, if any.
    pub fn against(mut self, sheet: Option<Sheet>) -> Self {
        self.session.sheet = sheet;
        self
    }

    /// Lists the cases, or measures and shows them.
    pub fn finish(self, cases: &[Case]) -> anyhow::Result<Done> {
        self.finish_with(cases, &mut |_| Ok(()))
    }

    /// The same, and `also` gets the report; where it fails, what was measured is shown nevertheless.
    pub fn finish_with(
        self,
        cases: &[Case],
        also: &mut dyn FnMut(&Report) -> anyhow::Result<()>,
    ) -> anyhow::Result<Done> {
        let Job { args, session, table, places, no_device, is_last } = self;
        let places = places.map_or_else(|| Ok(Places::default()), |places| places.of(cases))?;
        if args.list {
            return Ok(Done::ok(list(cases)));
        }
        let mut here = Here::new(cases, Places { no_device, ..places }, args.verify)?;
        let page = Page::reserve(args)?;
        let (last, first): (Vec<Case>, Vec<Case>) = cases.iter().cloned().partition(is_last);
        let finished = measure_plan(&Plan::new(Vec::new(), vec![first, last]), &mut here, &session)?;
        let (report, done) = finished.shown(&session, args, table);
        let done = also(&report).err().iter().fold(done, Done::lacking);
        Ok(page.write(&report, done))
    }
}

/// The page that a run was asked for. Its file is made before anything is measured, so that a place that can't be written is
/// found at once.
#[derive(Debug)]
pub struct Page(Option<Reserved>);

impl Page {
    /// As the flags say.
    ///
    /// # Errors
    /// The file can't be made, or this build has no pages.
    pub fn reserve(args: &RunArgs) -> anyhow::Result<Page> {
        match &args.html {
            Some(_) if cfg!(not(feature = "report")) => Err(no_pages("--html")),
            path => Ok(Page(path.as_ref().map(|path| reserve(path, "--html")).transpose()?)),
        }
    }

    /// The same; without the flag it is in the usual place, where this build has pages.
    ///
    /// # Errors
    /// Those of [`Page::reserve`].
    pub fn reserve_or(args: &RunArgs, usual: &Path) -> anyhow::Result<Page> {
        match &args.html {
            Some(_) => Page::reserve(args),
            None if cfg!(not(feature = "report")) => Ok(Page(None)),
            None => Ok(Page(Some(reserve(usual, "--out")?))),
        }
    }

    /// Writes it; where that fails the command has failed, and what it has to show is shown.
    pub fn write(self, report: &Report, done: Done) -> Done {
        self.filled(report).err().iter().fold(done, Done::lacking)
    }

    /// Writes it, and says where it is.
    ///
    /// # Errors
    /// It can't be written.
    pub fn filled(self, report: &Report) -> anyhow::Result<Option<PathBuf>> {
        let Page(Some(mut file)) = self else { return Ok(None) };
        fill(report, &mut file).with_context(|| format!("writing {}", file.path().display()))?;
        Ok(Some(file.path().into()))
    }
}

#[cfg(feature = "report")]
fn fill(report: &Report, file: &mut Reserved) -> io::Result<()> {
    say::into(file, &view::html::page(report))
}

#[cfg(not(feature = "report"))]
fn fill(_report: &Report, _file: &mut Reserved) -> io::Result<()> {
    Ok(())
}

/// Measures `cases` and records them as they are done. Ctrl-C ends the run and keeps what is finished.
pub fn measure(cases: &[Case], executor: &mut dyn Executor, session: &Session) -> anyhow::Result<Finished> {
    measure_plan(&Plan::of(cases), executor, session)
}

/// The same, what matters most first.
pub fn measure_plan(plan: &Plan, executor: &mut dyn Executor, session: &Session) -> anyhow::Result<Finished> {
    let run = |executor: &mut dyn Executor, schedule: &Schedule<'_>, sink: Sink<'_>, progress: Show<'_>| {
        run::run_plan(plan, executor, schedule, sink, progress)
    };
    let cases = plan.cases();
    let needs = cases.iter().map(|case| case.least_time() + case.filling_time()).min().unwrap_or_default();
    Ok(Finished { needs, ..record(&|| Some(cases.len() + plan.left_out), run, executor, session)? })
}

/// Share of the time until `turn` that the first cases get where others may follow.
const FIRST: f64 = 0.6;

/// Measures `cases`, then by and by what `go_on` adds, all until `turn`; then those that follow from what came of them.
pub fn measure_then(
    cases: &[Case],
    turn: Instant,
    go_on: &dyn Fn(&Record) -> Vec<Case>,
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
        let turn = turn.min(schedule.deadline);
        let part = |share: f64| {
            let now = Instant::now();
            now + turn.saturating_duration_since(now).mul_f64(share)
        };
        let until = |deadline: Instant| Schedule { deadline, ..*schedule };
        run::run(cases, executor, &until(part(FIRST)), &mut keep, progress)?;
        let mut all = cases.to_vec();
        while Instant::now() < turn {
            // What others may follow leaves them half of what is left.
            let more = go_on(&so_far);
            if more.is_empty() {
                break;
            }
            all.extend(more.iter().filter(|case| !cases.contains(case)).cloned().collect::<Vec<_>>());
            planned.set(all.len());
            let mut keep = |measurement: Measurement| {
                so_far.measurements.push(measurement.clone());
                sink(measurement)
            };
            run::run(&more, executor, &until(part(0.5)), &mut keep, progress)?;
        }
        let more = then(&so_far);
        planned.set(all.len() + more.iter().filter(|case| !all.contains(case)).count());
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
    let (mut write_fault, mut unheard) = (None, None);
    if let Some(writer) = &mut writer {
        writer.line(&Line::Header(Box::new(header.clone()))).context("the record can't be written")?;
    }
    signals::catch_interrupts();
    let mut record = Record { header, measurements: Vec::new(), end: None };
    let bar = progress_bar(session);
    let schedule = Schedule {
        seed: session.seed,
        started,
        deadline: session.deadline,
        samples: session.samples,
        most_rounds: session.rounds,
        settled: &settled,
        interrupted: &signals::interrupted,
    };
    let mut sink = |measurement: Measurement| {
        let line = Line::Measurement(Box::new(measurement));
        let written = writer.as_mut().map_or(Ok(()), |writer| writer.line(&line));
        if let Line::Measurement(measurement) = line {
            record.measurements.push(*measurement);
        }
        written?;
        if session.streams && unheard.is_none() {
            unheard = say::answer(&latest(&record)).err();
        }
        // What nobody hears and nothing keeps is not worth the time.
        match &unheard {
            Some(fault) if !session.is_kept => Err(fault.kind().into()),
            _ => Ok(()),
        }
    };
    let budget = session.deadline.saturating_duration_since(started);
    signals::watch(2 * budget + PATIENCE / 2, 3 * budget + PATIENCE);
    let mut progress = |at: run::Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_position(started.elapsed().min(budget).as_millis() as u64);
            let left = budget.saturating_sub(started.elapsed()).as_secs();
            bar.set_message(format!("{left:3} s left, round {}, {}", at.round + 1, at.case));
        }
    };
    let ended = visit(executor, &schedule, &mut sink, &mut progress);
    let is_left = unheard.is_some() && !session.is_kept;
    if let Err(fault) = ended
        && !is_left
    {
        write_fault = Some(fault);
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    signals::dismiss_watchdog();
    let end = End {
        wall_s: started.elapsed().as_secs_f64(),
        interrupted: signals::interrupted(),
        overran: signals::has_overrun(),
        // A run that was left for want of a reader lacks no time.
        planned: match planned() {
            _ if is_left => visited(&record),
            planned => planned.unwrap_or(record.measurements.len()),
        } as u64,
        peak_memory: Some(Bytes(processes::peak_memory())),
        after: machine::environment(),
    };
    if let Some(writer) = writer.as_mut().filter(|_| write_fault.is_none()) {
        write_fault = writer.line(&Line::End(end.clone())).err();
    }
    // Who asks for nothing gets nothing: an experiment asks for one case at least.
    let has_plan = planned() != Some(0);
    let is_too_short = has_plan && record.measurements.is_empty() && !end.interrupted && write_fault.is_none();
    record.end = Some(end);
    Ok(Finished { record, write_fault, unheard, is_too_short, needs: Duration::ZERO })
}

/// Cases that were visited.
fn visited(record: &Record) -> usize {
    record.measurements.iter().map(|visit| &visit.case).collect::<HashSet<_>>().len()
}

/// What all visits so far to the case that was visited last come to, a row on each line. What only all cases together tell, such
/// as the level of a working set, is not in it.
fn latest(record: &Record) -> String {
    let Some(last) = record.measurements.last() else { return String::new() };
    let own = record.measurements.iter().filter(|visit| visit.case == last.case).cloned().collect();
    let report = model::report(&Record { header: record.header.clone(), measurements: own, end: None });
    let rows: Vec<_> = report.any_rows().filter(|row| row.quality().is_some()).collect();
    view::json::lines(&rows)
}

fn settled(batches: &[Vec<f64>]) -> bool {
    let batches: Vec<&[f64]> = batches.iter().map(Vec::as_slice).collect();
    batches.len() >= LEAST_ROUNDS && stats::is_settled(&batches, TARGET)
}

/// What stands above the visits of a record that begins now.
pub(crate) fn header(executor: &dyn Executor, session: &Session) -> Header {
    Header {
        schema: SCHEMA,
        tool: format!("membound {}", env!("CARGO_PKG_VERSION")),
        host: host(),
        started_unix_s: since_1970().as_secs(),
        command: arguments::command_line(),
        seed: session.seed,
        clock: executor.clock(),
        machine: session.machine.clone(),
        before: machine::environment(),
        world: executor.world(),
        sheet: session.sheet.clone(),
        device: session.device.clone(),
        devices: session.devices.clone(),
    }
}

/// The host's name, fit for a file name.
pub fn host() -> String {
    let clean: String =
        machine::host_name().chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    if clean.is_empty() { "host".into() } else { clean }
}

fn progress_bar(session: &Session) -> Option<ProgressBar> {
    if session.quiet || !say::is_watched() {
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
fn tell(finished: &Finished, session: &Session) {
    if let (Some(fault), Some(path)) = (&finished.write_fault, &session.record) {
        say::note(format_args!(
            "{} could not be written to its end ({fault}); it holds every case finished before that",
            path.display()
        ));
    }
    if let Some(fault) = finished.print_fault() {
        say::note(format_args!("the result can't be printed: {fault}"));
    }
    if let Some(reason) = finished.nothing() {
        say::note(format_args!("nothing could be measured: {reason}"));
    }
    if finished.is_too_short {
        let needs = match finished.needs {
            Duration::ZERO => String::new(),
            needs => format!(" (the shortest visit takes some {:.1} s)", 2.0 * needs.as_secs_f64()),
        };
        say::note(format_args!(
            "the time was over before the first case was visited, so nothing was measured; give a longer --budget{needs}"
        ));
    }
    if finished.record.end.as_ref().is_some_and(|end| end.interrupted) {
        let [why, cure] = stopped();
        say::note(format_args!("{why}; every finished case is kept{cure}"));
    }
}

/// Why a run ended before its time, and what helps.
pub fn stopped() -> [&'static str; 2] {
    match signals::has_overrun() {
        false => ["interrupted", ""],
        true => {
            ["stopped after twice its budget, since visits take longer here than planned", "; give a longer --budget"]
        }
    }
}

/// Rows for programs hold no warnings: people are told on stderr.
fn warn(report: &Report, args: &RunArgs) {
    if args.format.is_for_programs() && !args.quiet && !report.warnings.is_empty() {
        say::talk(&view::terminal::warnings(report));
    }
}

/// One line per case, and how long a round of all takes at the least.
pub fn list(cases: &[Case]) -> String {
    let mut text: String = cases.iter().map(|case| format!("{case}\n")).collect();
    text.push_str(&format!("{} cases\n", cases.len()));
    text
}
