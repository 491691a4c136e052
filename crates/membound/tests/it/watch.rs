//! A machine that is watched: a fall is told once and a recovery ends it, on a simulated machine whose time is simulated, too; a new start
//! goes on; what can't be written is not lost; others are waited for. And the command for real, for some seconds.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use crate::common::program::{membound, run_in};
use crate::common::signals::send;
use crate::common::skip::skip;
use crate::common::{by_hand, simulated};
use membound::watch::diary::Diary;
use membound::watch::{Plan, Watched, World, watch};
use membound_analyze::across::check::Probe;
use membound_analyze::across::watch::{Event, Standing, Watch, WatchRow, named};
use membound_analyze::of_record::report;
use membound_core::case::Case;
use membound_core::experiments as plan;
use membound_core::input::RECORD_MOST;
use membound_core::record::{Clock, Line, Measurement, Outcome, Record};
use membound_measure::executor::fake::Fake;
use membound_measure::schedule::{Executor, Quota};

/// Seconds of a simulated world.
type Time = Rc<Cell<f64>>;

/// A machine whose memory has so much of its speed at a time; 0 is one that can't be measured, and where it is negative others run
/// on its CPU.
struct Machine {
    time: Time,
    speed: fn(f64) -> f64,
    fake: Fake,
}

impl Executor for Machine {
    fn clock(&self) -> Clock {
        self.fake.clock()
    }

    fn expect(&mut self, cases: &[Case]) {
        self.fake.expect(cases);
    }

    fn visit(&mut self, case: &Case, quota: &Quota<'_>) -> Outcome {
        self.time.set(self.time.get() + 1.0);
        let speed = (self.speed)(self.time.get());
        if speed == 0.0 {
            return Outcome::Unavailable { reason: "CPU 0 can't be used any more".into() };
        }
        let usual = simulated::fake().levels.last().unwrap().bytes_per_s;
        self.fake.levels.last_mut().unwrap().bytes_per_s = usual * speed.abs();
        let mut outcome = self.fake.visit(case, quota);
        if let Outcome::Measured(measured) = &mut outcome
            && speed < 0.0
        {
            measured.samples.lost_us.iter_mut().for_each(|lost| *lost = 1_000_000);
        }
        outcome
    }
}

/// At which probes something happens.
type When = fn(f64) -> bool;

/// Others are there at some times; at some the record's folder is not.
struct Around {
    time: Time,
    busy: fn(f64) -> bool,
    folder: Option<(std::path::PathBuf, When)>,
}

impl World for Around {
    type Turn = ();

    fn now_unix_s(&self) -> f64 {
        self.time.get()
    }

    fn sleep(&mut self, time: Duration) {
        self.time.set(self.time.get() + time.as_secs_f64());
        if let Some((folder, is_gone)) = &self.folder {
            let away = folder.with_extension("away");
            match (is_gone(self.time.get()), folder.exists()) {
                (true, true) => std::fs::rename(folder, &away).unwrap(),
                (false, false) => std::fs::rename(&away, folder).unwrap(),
                _ => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        false
    }

    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }

    fn others(&mut self) -> Option<String> {
        (self.busy)(self.time.get()).then(|| "others use 2.0 of 2 CPUs".into())
    }

    fn turn(&mut self) -> Result<(), String> {
        Ok(())
    }
}

struct Scene {
    probes: Vec<Probe>,
    speed: fn(f64) -> f64,
    busy: fn(f64) -> bool,
    is_gone: Option<fn(f64) -> bool>,
    /// From and to, in hours.
    hours: [f64; 2],
}

const HOUR: f64 = 3600.0;

fn scene() -> Scene {
    let frame = simulated::frame(&simulated::machine(2, false));
    let all = plan::check::check(&frame).unwrap();
    let alone = all.into_iter().filter(|case| case.threads() == 1);
    let cases: Vec<Case> = alone.filter(|case| case.working_set.0 < 1 << 16 || case.working_set.0 > 1 << 26).collect();
    let probes = named(&cases, &frame);
    let quantities: Vec<&str> = probes.iter().map(|probe| probe.quantity.as_str()).collect();
    assert_eq!(quantities, ["memory latency", "memory read, one core", "L1 read, one core"]);
    Scene { probes, speed: |_| 1.0, busy: |_| false, is_gone: None, hours: [0.0, 8.0] }
}

impl Scene {
    /// What is told, and what came of it.
    fn play(&self, path: &Path) -> (Vec<WatchRow>, Watched) {
        let (told, came, _) = self.played(path);
        (told, came)
    }

    /// The same, and whether it showed itself paused.
    fn played(&self, path: &Path) -> (Vec<WatchRow>, Watched, Vec<bool>) {
        let time: Time = Rc::new(Cell::new(self.hours[0] * HOUR));
        let mut machine = Machine { time: time.clone(), speed: self.speed, fake: simulated::fake() };
        let header = by_hand::record(machine.clock(), simulated::machine(2, false), Vec::new()).header;
        let mut known = Watch::new(&self.probes, 0.05, &header);
        let (mut diary, before) = Diary::open(path, header).unwrap();
        for visit in before.iter().flat_map(|before| &before.visits) {
            known.note(visit, visit.started_s as u64);
        }
        let folder = self.is_gone.map(|is_gone| (path.parent().unwrap().to_path_buf(), is_gone));
        let mut around = Around { time, busy: self.busy, folder };
        let plan = Plan {
            probes: self.probes.clone(),
            every: Duration::from_secs(300),
            is_thrifty: true,
            samples: 12,
            lasts: Some(Duration::from_secs_f64((self.hours[1] - self.hours[0]) * HOUR)),
        };
        let mut told = Vec::new();
        let mut tell = |row: &WatchRow| told.push(row.clone());
        let mut pauses = Vec::new();
        let mut show = |standing: &Standing<'_>| pauses.push(standing.is_paused);
        let came = watch(&plan, known, &mut diary, &mut machine, &mut around, &mut tell, &mut show);
        (told, came, pauses)
    }
}

fn events(told: &[WatchRow]) -> Vec<Event> {
    told.iter().map(|row| row.event).collect()
}

#[test]
fn a_fall_is_told_once_across_a_new_start_and_a_recovery_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch.jsonl");
    let slow = |time: f64| if (6.0 * HOUR..15.0 * HOUR).contains(&time) { 0.9 } else { 1.0 };
    let (told, came) = Scene { speed: slow, ..scene() }.play(&path);
    assert_eq!(events(&told), [Event::Started, Event::Fall, Event::Fall, Event::Ended], "{told:#?}");
    assert_eq!(came.falls, 2);
    for (row, quantity) in told[1..3].iter().zip(["memory latency", "memory read, one core"]) {
        assert_eq!(row.quantity.as_deref(), Some(quantity));
        assert!((row.ratio.unwrap() - 0.9).abs() < 0.01, "{row:?}");
        let since = row.since_unix_s.unwrap() as f64 - 6.0 * HOUR;
        assert!((0.0..350.0).contains(&since), "it is dated to the first probe after it: {since}");
        assert!(row.unix_s as f64 <= 6.0 * HOUR + 5.0 * 340.0, "within five probes: {row:?}");
    }
    let line = told[1].line();
    assert!(
        line.contains("fall memory latency +11") && line.contains("(95 % CI +") && line.contains(" probes) since"),
        "{line}"
    );
    // Twelve hours later, in a new process: the fall is known, and it ends.
    let (told, came) = Scene { speed: slow, hours: [12.0, 20.0], ..scene() }.play(&path);
    assert_eq!(events(&told), [Event::Started, Event::Recovered, Event::Recovered, Event::Ended], "{told:#?}");
    assert!(!told[0].line().contains("needed") && came.falls == 0);
    // The record is one like all others: a line for each case and probe.
    let record = Record::read(&path).unwrap();
    assert!(record.measurements.len() > 3 * 150);
    assert!(report(&record).rows.iter().all(|row| row.quality.is_measured()));
}

#[test]
fn others_are_waited_for_and_what_fails_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let busy = |time: f64| (2.0 * HOUR..4.0 * HOUR).contains(&time);
    let (told, _) = Scene { busy, ..scene() }.play(&folder.path().join("busy.jsonl"));
    assert_eq!(events(&told), [Event::Started, Event::Paused, Event::Resumed, Event::Ended], "{told:#?}");
    let record = Record::read(&folder.path().join("busy.jsonl")).unwrap();
    assert!(!record.measurements.iter().any(|visit| busy(visit.started_s)), "nothing is probed meanwhile");
    let gone = |time: f64| if (2.0 * HOUR..4.0 * HOUR).contains(&time) { 0.0 } else { 1.0 };
    let (told, _) = Scene { speed: gone, ..scene() }.play(&folder.path().join("gone.jsonl"));
    let faults = told.iter().filter(|row| row.event == Event::Fault).count();
    let mended = told.iter().filter(|row| row.event == Event::Mended).count();
    assert_eq!((faults, mended, told.len()), (3, 3, 8), "one of each case: {told:#?}");
}

/// A probe beside others does not show whether what failed before works again.
#[test]
fn a_disturbed_probe_mends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let speed = |time: f64| match time / HOUR {
        hours if (2.0..3.0).contains(&hours) || (4.0..5.0).contains(&hours) => 0.0,
        hours if (3.0..4.0).contains(&hours) => -1.0,
        _ => 1.0,
    };
    let (told, _) = Scene { speed, ..scene() }.play(&folder.path().join("watch.jsonl"));
    let count = |event: Event| told.iter().filter(|row| row.event == event).count();
    assert_eq!([Event::Fault, Event::Mended, Event::Paused].map(count), [3, 3, 1], "{told:#?}");
    let mended = told.iter().find(|row| row.event == Event::Mended).unwrap();
    assert!(mended.unix_s as f64 >= 5.0 * HOUR, "{mended:?}");
}

#[test]
fn what_cannot_be_written_is_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let path = inner.join("watch.jsonl");
    let is_gone: fn(f64) -> bool = |time| (2.0 * HOUR..4.0 * HOUR).contains(&time);
    let (told, came) = Scene { is_gone: Some(is_gone), ..scene() }.play(&path);
    assert_eq!(events(&told), [Event::Started, Event::Fault, Event::Mended, Event::Ended], "{told:#?}");
    let record = Record::read(&path).unwrap();
    assert_eq!(record.measurements.len() as u64, 3 * came.probes, "nothing is lost");
    assert!(record.measurements.is_sorted_by(|a, b| a.started_s <= b.started_s));
}

#[test]
fn an_end_is_shown_as_no_pause() {
    let folder = tempfile::tempdir().unwrap();
    let busy = |time: f64| time > 6.0 * HOUR;
    let (_, _, pauses) = Scene { busy, ..scene() }.played(&folder.path().join("watch.jsonl"));
    assert_eq!(pauses[pauses.len() - 2..], [true, false], "{pauses:?}");
}

/// A file that took the record's place: a copy is gone on with, another record is not.
#[test]
fn what_is_measured_goes_into_no_other_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch.jsonl");
    let visit = || {
        let case = scene().probes[0].case.clone();
        Line::Measurement(Box::new(Measurement::new(case, 0, Outcome::Unavailable { reason: "no".into() })))
    };
    let clock = simulated::fake().clock();
    let own = by_hand::record(clock, simulated::machine(2, false), Vec::new());
    let (mut diary, _) = Diary::open(&path, own.header.clone()).unwrap();
    let replace = |record: &Record| {
        by_hand::write(&Record { end: None, ..record.clone() }, &folder.path().join("new"));
        std::fs::rename(folder.path().join("new"), &path).unwrap();
    };
    let visits = || Record::read(&path).unwrap().measurements.len();
    replace(&own);
    assert!(diary.keep(visit()).is_ok() && visits() == 1);
    let mut host = own.clone();
    host.header.host = "another".into();
    let mut start = own.clone();
    start.header.started_unix_s += 1;
    for other in [host, start] {
        replace(&other);
        assert!(diary.keep(visit()).unwrap_err().to_string().contains("another record"));
        assert_eq!(visits(), 0);
    }
    replace(&own);
    assert!(diary.keep(visit()).is_ok() && visits() == 3, "what was kept in memory is written");
    // As `copytruncate` of logrotate does: it begins anew, with its header.
    std::fs::write(&path, "").unwrap();
    assert!(diary.keep(visit()).is_ok() && visits() == 1);
    // As long as a record may be: the next one takes what is kept in memory.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(RECORD_MOST).unwrap();
    assert!(diary.keep(visit()).unwrap_err().to_string().contains("rename it, and a new one begins"));
    std::fs::rename(&path, folder.path().join("full")).unwrap();
    assert!(diary.keep(visit()).is_ok() && visits() == 2);
}

const BRIEF: [&str; 9] = ["watch", "--every", "1s", "--samples", "3", "--size", "16KiB", "--no-latency", "--force"];

#[test]
fn a_real_watch_keeps_a_record_and_goes_on_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let arguments: Vec<&str> = BRIEF
        .into_iter()
        .chain(["--for", "3s", "--record", "w.jsonl", "--format", "jsonl", "--prometheus", "w.prom"])
        .collect();
    for round in 1..3 {
        let output = run_in(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let rows: Vec<WatchRow> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((rows[0].event, rows.last().unwrap().event), (Event::Started, Event::Ended), "{said}");
        let record = Record::read(&folder.path().join("w.jsonl")).unwrap();
        assert!(record.measurements.len() >= round, "{said}");
    }
    let metrics = std::fs::read_to_string(folder.path().join("w.prom")).unwrap();
    assert!(metrics.contains("\nmembound_watch_paused 0\n") || skipped_by_load(&metrics), "{metrics}");
    let report = run_in(folder.path(), &["report", "w.jsonl", "--format", "csv"]);
    assert!(report.status.success() && String::from_utf8_lossy(&report.stdout).contains("load"));
}

/// A machine whose CPU others hold most of the time pauses, and says so.
fn skipped_by_load(metrics: &str) -> bool {
    let is_paused = metrics.contains("\nmembound_watch_paused 1\n");
    if is_paused {
        skip("others hold this machine's CPU");
    }
    is_paused
}

#[test]
fn a_term_signal_ends_it_and_a_foreign_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = membound();
    let mut child = child.args(BRIEF).current_dir(folder.path()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    // It has said its first line once it catches signals.
    let mut first = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    assert!(first.contains("started"), "{first}");
    assert!(send(libc::SIGTERM, child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    std::fs::write(folder.path().join("notes.txt"), "no record\n").unwrap();
    let output = run_in(folder.path(), &["watch", "--record", "notes.txt", "--for", "1s"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("choose another file with --record"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.path().join("notes.txt")).unwrap(), "no record\n");
    // That of another node of the same kind stays that node's.
    let mut files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let own = files.find(|path| path.extension().is_some_and(|end| end == "jsonl")).unwrap();
    let mut elsewhere = Record::read(&own).unwrap();
    elsewhere.header.host = "n2".into();
    by_hand::write(&elsewhere, &folder.path().join("n2.jsonl"));
    let output = run_in(folder.path(), &[&BRIEF[..], &["--record", "n2.jsonl", "--for", "1s"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("it is of another host (n2)"), "{said}");
    // Another command's record, finished or cut short, keeps what it has.
    let run = "bandwidth --kernel load --size 16KiB --threads 1 --budget 1s --rounds 1 --record r.jsonl";
    assert!(run_in(folder.path(), &run.split(' ').collect::<Vec<_>>()).status.success());
    let whole = std::fs::read_to_string(folder.path().join("r.jsonl")).unwrap();
    let (cut, _) = whole.trim_end().rsplit_once('\n').unwrap();
    for (name, held) in [("whole.jsonl", whole.clone()), ("cut.jsonl", format!("{cut}\n"))] {
        std::fs::write(folder.path().join(name), &held).unwrap();
        let output = run_in(folder.path(), &["watch", "--record", name, "--for", "1s"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let expect = "not a record of watch; choose another file with --record";
        assert!(output.status.code() == Some(2) && said.contains(expect), "{said}");
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), held);
    }
}

/// The notebook's cells, as a script, on a record of a simulated machine.
#[test]
fn the_notebook_reads_rows() {
    let python = std::env::var("MEMBOUND_PYTHON").unwrap_or_else(|_| "python3".into());
    if !Command::new(&python).args(["-c", "import pandas"]).output().is_ok_and(|output| output.status.success()) {
        skip("no python3 with pandas");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let machine = simulated::machine(2, false);
    let cases = plan::check::check(&simulated::frame(&machine)).unwrap();
    by_hand::write(&simulated::run(&machine, &cases, &mut simulated::fake()), &folder.path().join("run.jsonl"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/notebook/rows.py");
    let mut run = Command::new(&python);
    let run = run.arg(script).args(["run.jsonl", env!("CARGO_BIN_EXE_membound")]).current_dir(folder.path());
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(["triad", "27 visits", "claimed"].iter().all(|word| said.contains(word)), "{said}");
}
