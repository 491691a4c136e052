//! Page cache beside a program: made-up records whose truth is known; then real, short runs into every fault that can be
//! brought about. No figure of a real run is asserted.
#![allow(unsafe_code)] // Limits and filters of children.

use crate::common::by_hand;
use crate::common::program::membound;
use membound_core::record::Unit;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::seccomp::{Where, refuse};
use crate::common::signals::send;
use crate::common::skip::skip;
use membound_analyze::experiments::page_cache::rows::{CacheEffect, PageCacheRow, next_file, worst_file};
use membound_analyze::of_record as model;
use membound_analyze::report::Report;
use membound_core::case::{Case, Work, usual};
use membound_core::experiments as plan;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::room::NodeRoom;
use membound_core::memory::filler::Filler;
use membound_core::memory::located::NodePages;
use membound_core::memory::policy::{NodeSet, Policy};
use membound_core::memory::{CacheFound, MemoryKind, MemorySpec, Obtained};
use membound_core::record::{Measured, Measurement, Outcome, Record, Sample, Samples, Volume};
use membound_core::units::Bytes;
use membound_core::work::page_cache::{Cure, PageCache, Workers};
use membound_measure::memory::filler::CachedFile;
use membound_measure::memory::places::Places;
use membound_measure::memory::region::Region;

const ROUNDS: u32 = 3;
const SPEED: f64 = 40e9;
/// Seeds, and the least number of them that must come out right: 95 %.
const SEEDS: u64 = 200;
const RIGHT: usize = 190;

fn case(file: Bytes, cure: Cure) -> Case {
    let variant = usual("triad", Width::W256, StoreKind::Regular);
    let work = PageCache { variant, file, filler: Filler::Write, cure, workers: Workers::Threads };
    Case::new(Work::PageCache(work), MemorySpec::of(MemoryKind::Base), vec![0, 1], Bytes::gib(8))
}

/// What a visit would find: speed against none, and how many of 1000 pages are remote.
pub type Truth = (f64, u64);

/// Five samples with 1 % of noise, in a visit whose pages came to lie well or badly.
fn visit(case: &Case, (speed, remote): Truth, luck: f64, random: &mut fastrand::Rng) -> Measurement {
    let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    let visit = (luck * normal()).exp();
    let mut samples = Samples::default();
    for _ in 0..5 {
        let ticks = (case.working_set.0 as f64 / (SPEED * speed * visit) * 1e9 * (0.01 * normal()).exp()) as u64;
        samples.push(Sample { ticks, core_clock_ticks: 5000, ..Sample::default() });
    }
    let room = |node, free| NodeRoom { node, total: Bytes::gib(16), free, page_cache: Bytes(0), clean_cache: Bytes(0) };
    let found = CacheFound {
        kept: None,
        file_cached: None,
        nodes: vec![room(0, Bytes::mib(100)), room(1, Bytes::gib(9))],
        remote_pages: Some(remote),
    };
    let pages = |node, pages| NodePages { node, pages };
    let obtained = Obtained {
        bytes: case.working_set,
        pages_on_node: vec![pages(0, 1000 - remote), pages(1, remote)],
        page_cache: Some(found),
        ..Obtained::default()
    };
    let (loaded, stored) = (case.working_set.0 / 3 * 2, case.working_set.0 / 3);
    let volume =
        Volume { unit: Unit::Element, units: stored / 8, loaded, stored, write_allocated: stored, flops: stored / 4 };
    let measured = Measured { volume, repetitions: 1, core_clock_links: 20_000, samples, obtained };
    Measurement::new(case.clone(), 0, measured)
}

/// A machine with two nodes of two CPUs each.
fn machine(nodes: u32) -> Machine {
    let root = tempfile::tempdir().unwrap();
    for node in 0..nodes {
        let folder = root.path().join(format!("sys/devices/system/node/node{node}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cpulist"), format!("{}-{}\n", 2 * node, 2 * node + 1)).unwrap();
    }
    Machine::read(root.path()).unwrap()
}

pub fn record(nodes: u32, measurements: Vec<Measurement>) -> Record {
    by_hand::record(by_hand::clock(1e9), machine(nodes), measurements)
}

/// Seven files, none to 24 GiB, with this truth each.
pub fn curve(truth: [Truth; 7], luck: f64, seed: u64) -> Vec<Measurement> {
    let mut random = fastrand::Rng::with_seed(seed);
    let visits = (0..ROUNDS)
        .flat_map(|_| truth.into_iter().enumerate())
        .map(|(step, truth)| visit(&case(Bytes::gib(4 * step as u64), Cure::Nothing), truth, luck, &mut random));
    visits.collect()
}

/// The published curve: falls until the file is as large as a node, then recovers.
pub const MINIMUM: [Truth; 7] = [(1.0, 0), (1.0, 0), (0.95, 80), (0.75, 500), (0.55, 1000), (0.75, 500), (0.98, 20)];
pub const FLAT: [Truth; 7] = [(1.0, 0); 7];

fn effect(report: &Report) -> (CacheEffect, Option<Bytes>) {
    let [curve] = &report.page_cache.curves[..] else { panic!("{:?}", report.page_cache.curves) };
    (curve.effect, curve.worst.map(|worst| report.page_cache.rows[worst].work().file))
}

/// A node with so much of its 16 GiB free.
fn with_free(mut visits: Vec<Measurement>, free: Bytes) -> Vec<Measurement> {
    for visit in &mut visits {
        let Outcome::Measured(measured) = &mut visit.outcome else { panic!() };
        measured.obtained.page_cache.as_mut().unwrap().nodes[0].free = free;
    }
    visits
}

/// The published minimum lies at half of the memory: a curve that ends there has not seen it recover.
#[test]
fn a_curve_goes_on_until_its_answer_is_there() {
    let sizes: Vec<Bytes> = (1..=8).map(|step| Bytes::gib(4 * step)).collect();
    let next = |truth: [Truth; 7], steps: usize, nodes: u32, free: u64| {
        let mut visits = with_free(curve(truth, 0.0, 3), Bytes::gib(free));
        visits.retain(
            |visit| matches!(&visit.case.work, Work::PageCache(work) if work.file <= Bytes::gib(4 * steps as u64)),
        );
        next_file(&record(nodes, visits), &sizes)
    };
    // Up to 16 GiB it falls; beside 20 GiB 44 % of the fall are made up, beside 24 GiB 96 %.
    assert_eq!(next(MINIMUM, 4, 2, 0), Some(Bytes::gib(20)));
    assert_eq!(next(MINIMUM, 5, 2, 0), Some(Bytes::gib(24)));
    assert_eq!(next(MINIMUM, 6, 2, 0), None);
    // Flat: as long as the node is not full, a larger file may tell; with one node there is nowhere else to go.
    assert_eq!(next(FLAT, 4, 2, 8), Some(Bytes::gib(20)));
    assert_eq!(next(FLAT, 4, 2, 1), None);
    assert_eq!(next(FLAT, 4, 1, 8), None);
    // Pages alone move, and move back.
    let moved = [(1.0, 0), (1.0, 0), (1.0, 80), (1.0, 500), (1.0, 1000), (1.0, 700), (1.0, 400)];
    assert_eq!((next(moved, 5, 2, 0), next(moved, 6, 2, 0)), (Some(Bytes::gib(24)), None));
}

/// By hand: 40 GB/s are 40e9 / 24 elements of two flops: 3333 MFlop/s. The published figures are in flops, too.
#[test]
fn speed_is_told_in_flops() {
    let report = model::report(&record(2, curve(FLAT, 0.0, 1)));
    let flops = report.page_cache.rows[0].flops_per_s().unwrap() / 1e6;
    assert!((flops / 3333.3 - 1.0).abs() < 0.02, "{flops}");
    let section = &membound_analyze::answer::Answer::sections(&report.page_cache)[0];
    assert!(section.charts.iter().any(|chart| chart.y.name == "MFlop/s"));
    assert!(section.tables[0].columns.iter().any(|column| column.head == "MFlop/s"));
}

/// As published: processes, beside the threads of one process. Both stand in one table and one chart.
#[test]
fn processes_stand_beside_threads() {
    let mut visits = curve(MINIMUM, 0.0, 1);
    visits.extend(curve(FLAT, 0.0, 2).into_iter().map(|mut visit| {
        let Work::PageCache(work) = &mut visit.case.work else { panic!() };
        work.workers = Workers::Processes;
        visit
    }));
    let report = model::report(&record(2, visits));
    let effects: Vec<CacheEffect> = report.page_cache.curves.iter().map(|curve| curve.effect).collect();
    assert_eq!(effects, [CacheEffect::Minimum, CacheEffect::Flat]);
    let section = &membound_analyze::answer::Answer::sections(&report.page_cache)[0];
    let [table] = &section.tables[..] else { panic!("{} tables", section.tables.len()) };
    assert_eq!((table.height(), table.columns[1].head.as_str()), (14, "as"));
    let kinds: Vec<&str> = table.columns[1].cells.iter().map(|cell| cell.text.as_str()).collect();
    assert_eq!(kinds[..4], ["threads", "processes", "threads", "processes"]);
    assert_eq!(section.charts.len(), 3, "two speeds and remote pages");
    let names: Vec<&str> = section.charts[0].series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["threads", "processes"]);
    let said = report.findings.join(" ");
    for part in [
        "16 GiB of page cache the triad has its minimum",
        "leaves the triad of 2 processes between",
        "2 processes reach 4",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let text = anstream::adapter::strip_str(&membound_analyze::output::terminal::answer(&report, &report.page_cache))
        .to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // With intervals as wide as a busy host makes them, the table still fits.
    let mut wide = curve(MINIMUM, 0.5, 1);
    wide.extend(curve(FLAT, 0.5, 2).into_iter().map(|mut visit| {
        let Work::PageCache(work) = &mut visit.case.work else { panic!() };
        work.workers = Workers::Processes;
        visit
    }));
    let report = model::report(&record(2, wide));
    let text = membound_analyze::output::terminal::answer(&report, &report.page_cache);
    assert!(!text.contains("Wider than a terminal"), "{text}");
    // A record from before there were processes says nothing of workers.
    let old = serde_json::to_value(&case(Bytes(0), Cure::Nothing).work).unwrap();
    assert!(!old.to_string().contains("workers"), "{old}");
    assert_eq!(serde_json::from_value::<Work>(old).unwrap(), case(Bytes(0), Cure::Nothing).work);
}

#[test]
fn a_planted_minimum_is_found() {
    let found = |seed| effect(&model::report(&record(2, curve(MINIMUM, 0.05, seed))));
    let right = (0..SEEDS).filter(|&seed| found(seed) == (CacheEffect::Minimum, Some(Bytes::gib(16)))).count();
    println!("the minimum at the right file: {right} of {SEEDS}");
    assert!(right >= RIGHT, "{right}");
}

#[test]
fn noise_is_no_minimum() {
    for luck in [0.0, 0.03, 0.2] {
        let report = |seed| model::report(&record(1, curve(FLAT, luck, seed)));
        let right = (0..SEEDS).filter(|&seed| effect(&report(seed)).0 == CacheEffect::Flat).count();
        println!("flat with {luck} of luck: {right} of {SEEDS}");
        assert!(right >= RIGHT, "{luck}: {right}");
    }
    let said = model::report(&record(1, curve(FLAT, 0.01, 1))).findings;
    assert!(said.iter().any(|text| text.starts_with("Flat: page cache up to 24 GiB")), "{said:?}");
    assert!(said.iter().any(|text| text.contains("this machine has one node")), "{said:?}");
}

#[test]
fn pages_that_move_without_loss_of_speed_are_told() {
    let mut truth = FLAT;
    truth[5].1 = 700;
    let report = model::report(&record(2, curve(truth, 0.05, 3)));
    assert_eq!(effect(&report), (CacheEffect::Moved, Some(Bytes::gib(20))));
    assert!(report.findings[0].contains("70% of the triad's pages lie on another node"), "{:?}", report.findings);
}

#[test]
fn too_little_is_not_called_flat() {
    let mut visits = curve(FLAT, 0.05, 1);
    visits.truncate(7);
    assert_eq!(effect(&model::report(&record(1, visits))).0, CacheEffect::Undetermined);
    // Without the case that all others are held against.
    let visits = curve(FLAT, 0.05, 1).into_iter().filter(|visit| visit.case != case(Bytes(0), Cure::Nothing)).collect();
    assert_eq!(effect(&model::report(&record(1, visits))).0, CacheEffect::Undetermined);
}

/// Each cure as the virtual machines saw it: bound memory, a dropped and a swept page cache help, a preference does not.
fn cured(minimum: [Truth; 7], seed: u64) -> Record {
    let mut visits = curve(minimum, 0.03, seed);
    let mut random = fastrand::Rng::with_seed(seed + 1000);
    let truth = |cure| match cure {
        Cure::Preferred => minimum[4],
        Cure::Interleave => (0.75f64.max(minimum[4].0), 500),
        _ => (1.0, 0),
    };
    for _ in 0..ROUNDS {
        for cure in Cure::ALL.iter().filter(|cure| **cure != Cure::Nothing) {
            visits.push(visit(&case(Bytes::gib(16), *cure), truth(*cure), 0.03, &mut random));
        }
    }
    record(2, visits)
}

fn of_cure(report: &Report, cure: Cure) -> &PageCacheRow {
    report.page_cache.rows.iter().find(|row| row.work().cure == cure).unwrap()
}

#[test]
fn cures_are_told_apart() {
    let report = model::report(&cured(MINIMUM, 1));
    let helps = |cure| of_cure(&report, cure).helps;
    for cure in [Cure::DropCaches, Cure::Sweep, Cure::Bind, Cure::Interleave] {
        assert_eq!(helps(cure), Some(true), "{cure}");
    }
    assert_eq!(helps(Cure::Preferred), Some(false));
    let [ratio, low, high] = of_cure(&report, Cure::Bind).against_no_file.unwrap();
    assert!((ratio - 1.0).abs() < 0.1 && low < 1.0 && 1.0 < high, "{ratio} [{low}, {high}]");
    let said = &report.findings[0];
    assert!(said.starts_with("Beside 16 GiB of page cache the triad has its minimum"), "{said}");
    assert!(said.contains("drop-caches, sweep, bind and interleave help, preferred does not help."), "{said}");
    // Where only pages tell: half of them remote is no less than half.
    let mut moved = FLAT;
    moved[4].1 = 1000;
    let report = model::report(&cured(moved, 2));
    assert_eq!(of_cure(&report, Cure::Preferred).helps, Some(false));
    assert_eq!(of_cure(&report, Cure::Bind).helps, Some(true));
}

#[test]
fn cures_follow_where_it_is_worst() {
    let cases: Vec<Case> = (0..7).map(|step| case(Bytes::gib(4 * step), Cure::Nothing)).collect();
    let file = worst_file(&record(2, curve(MINIMUM, 0.02, 5))).unwrap();
    assert_eq!(file, Bytes::gib(16));
    let follow = plan::page_cache::cures(&cases, file, &[Cure::Bind, Cure::Sweep]);
    let expect = [(0, Cure::Nothing), (16, Cure::Nothing), (16, Cure::Bind), (16, Cure::Sweep)];
    assert_eq!(follow, expect.map(|(gib, cure)| case(Bytes::gib(gib), cure)));
    // The first round alone: nothing is certain yet, but where most pages moved is known.
    let mut first = curve(MINIMUM, 0.0, 5);
    first.truncate(7);
    assert_eq!(worst_file(&record(2, first)), Some(Bytes::gib(16)));
    assert_eq!(worst_file(&record(2, Vec::new())), None);
}

#[test]
fn a_record_tells_the_same_again() {
    let record = cured(MINIMUM, 4);
    let again = by_hand::written_and_read(&record);
    assert_eq!(again, record);
    let report = model::report(&again);
    assert_eq!(report.page_cache, model::report(&record).page_cache);
    assert!(report.rows.is_empty(), "what ran beside page cache is no plain bandwidth");
    let table = membound_analyze::output::terminal::answer(&report, &report.page_cache);
    let table = anstream::adapter::strip_str(&table).to_string();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("preferred") && table.contains("Cures, beside 16 GiB"), "{table}");
}

/// Where the user may not drop caches: as nobody, if the test runs as root. None where that can't be arranged.
fn nobody(folder: &Path) -> Command {
    // A copy, since nobody may not be able to see the build folder. A child makes it: what this process has open for writing, a child
    // that another test is about to start has open, too, and a program that is open for writing does not start.
    let copy = folder.join("membound");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_membound")).arg(&copy).status().unwrap().success());
    for path in [folder, &copy] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(copy);
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    command
}

/// A folder that anybody may write to.
fn open_folder(parent: &Path) -> PathBuf {
    let folder = parent.join("files");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

const SHORT: [&str; 9] =
    ["numa", "--page-cache", "--size", "12MiB", "--steps", "1", "--share", "0.002", "--format=json"];

fn short(command: &mut Command, folder: &Path, more: &[&str]) -> Output {
    command.args(SHORT).arg("--dir").arg(folder).args(["--budget", "10s", "--samples", "3", "--threads", "1"]);
    command.args(more).output().unwrap()
}

fn rows(output: &Output) -> Vec<serde_json::Value> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&out).unwrap_or_else(|fault| panic!("{fault}: {out}\n{err}"))
}

fn row<'a>(rows: &'a [serde_json::Value], cure: &str, with_file: bool) -> &'a serde_json::Value {
    let is_it =
        |row: &&serde_json::Value| row["cure"] == cure && (row["file_bytes"].as_u64().unwrap() > 0) == with_file;
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no {cure} in {rows:#?}"))
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().count() == 0
}

#[test]
fn a_user_who_may_not_drop_caches_is_told_and_measures() {
    let top = tempfile::tempdir().unwrap();
    let folder = open_folder(top.path());
    let output = short(&mut nobody(top.path()), &folder, &["--cure", "drop-caches,bind", "--filler", "write"]);
    let rows = rows(&output);
    assert_eq!(output.status.code(), Some(0), "a cure that this user lacks is an answer: {rows:#?}");
    let plain = row(&rows, "nothing", true);
    assert_eq!((&plain["metric"], &plain["outcome"]), (&"page-cache".into(), &"measured".into()));
    assert!(plain["flags"].as_array().unwrap().contains(&"cache-kept".into()), "{plain:#?}");
    assert!(plain["obtained"]["page_cache"]["kept"].as_str().unwrap().contains("drop_caches"), "{plain:#?}");
    // The kernel may have taken some back for others.
    let [cached, file] = ["cached_bytes", "file_bytes"].map(|name| plain[name].as_u64().unwrap());
    assert!(cached > file / 10 * 9 && cached <= file, "{plain:#?}");
    let drop = row(&rows, "drop-caches", true);
    assert_eq!(drop["outcome"], "unavailable");
    assert!(drop["reason"].as_str().unwrap().contains("run as root"), "{drop:#?}");
    assert!(is_empty(&folder));
}

/// Real processes, two on one CPU where there is one alone: what they obtain and move is summed up, and none is left.
#[test]
fn processes_measure_for_real() {
    let top = tempfile::tempdir().unwrap();
    let folder = open_folder(top.path());
    let more = ["--filler", "sparse-read", "--workers", "threads,processes", "--cure", "bind"];
    let output = short(&mut nobody(top.path()), &folder, &more);
    let rows = rows(&output);
    assert_eq!(output.status.code(), Some(0), "{rows:#?}");
    let of = |workers: &str| {
        rows.iter().filter(|row| row["workers"] == workers && row["cure"] == "nothing").collect::<Vec<_>>()
    };
    let (threads, processes) = (of("threads"), of("processes"));
    assert_eq!((threads.len(), processes.len()), (2, 2), "{rows:#?}");
    for row in processes {
        assert_eq!(row["outcome"], "measured", "{row:#?}");
        assert!(
            row["payload_Bps"]["best"].as_f64().unwrap() > 0.0 && row["obtained"]["bytes"].as_u64() >= Some(12_000_000),
            "{row:#?}"
        );
    }
    assert!(is_empty(&folder));
}

#[test]
fn a_disk_that_is_full_meanwhile_is_a_failure_with_a_cure() {
    let top = tempfile::tempdir().unwrap();
    let folder = open_folder(top.path());
    let mut command = nobody(top.path());
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: setrlimit is async-signal-safe and reads the struct it is given.
    unsafe {
        command.pre_exec(move || {
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        });
    }
    let output = short(&mut command, &folder, &["--filler", "write"]);
    let rows = rows(&output);
    assert_eq!(output.status.code(), Some(1), "{rows:#?}");
    let beside = row(&rows, "nothing", true);
    assert_eq!(beside["outcome"], "unavailable");
    let reason = beside["reason"].as_str().unwrap();
    assert!(reason.contains("File too large") && reason.contains("--filler sparse-read"), "{reason}");
    assert_eq!(row(&rows, "nothing", false)["outcome"], "measured", "what needs no file is measured");
    assert!(is_empty(&folder));
}

/// A small file system, where this user may mount one; unmounted when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Small> {
        let small = Small(tempfile::tempdir().unwrap());
        let target = std::ffi::CString::new(small.0.path().to_str().unwrap()).unwrap();
        // SAFETY: all arguments are C strings.
        let mounted =
            unsafe { libc::mount(c"none".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=3m".as_ptr().cast()) };
        if mounted == 0 {
            Some(small)
        } else {
            std::mem::forget(small);
            None
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let target = std::ffi::CString::new(self.0.path().to_str().unwrap()).unwrap();
        // SAFETY: a C string; this value mounted it.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn no_space_left_leaves_nothing() {
    let Some(small) = Small::mount() else { return skip("this user can't mount a small file system") };
    let fault = CachedFile::fill(small.0.path(), Bytes::mib(8), Filler::Write, &|| true).unwrap_err().to_string();
    assert!(fault.contains("No space left") && fault.contains("--share"), "{fault}");
    assert!(is_empty(small.0.path()));
    // The room is back.
    assert!(CachedFile::fill(small.0.path(), Bytes::mib(2), Filler::Write, &|| true).is_ok());
}

#[test]
fn too_little_room_is_refused_before_anything_is_written() {
    let Some(small) = Small::mount() else { return skip("this user can't mount a small file system") };
    let mut command = membound();
    let output = short(&mut command, small.0.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("keeps its files in memory") && said.contains("--dir"), "{said}");
}

#[test]
fn a_container_that_forbids_binding_is_told_apart() {
    let top = tempfile::tempdir().unwrap();
    let folder = open_folder(top.path());
    let mut command = nobody(top.path());
    refuse(&mut command, libc::SYS_mbind, libc::EPERM, Where::All);
    let output = short(&mut command, &folder, &["--cure", "bind,interleave", "--filler", "sparse-read"]);
    let rows = rows(&output);
    assert_eq!(output.status.code(), Some(0), "{rows:#?}");
    for cure in ["bind", "interleave"] {
        let row = row(&rows, cure, true);
        assert_eq!(row["outcome"], "unavailable", "{row:#?}");
        assert!(row["reason"].as_str().unwrap().contains("a sandbox forbids it"), "{row:#?}");
    }
    assert_eq!(row(&rows, "nothing", true)["outcome"], "measured");
}

#[test]
fn a_node_that_vanished_is_named() {
    let region = Region::new(MemorySpec::of(MemoryKind::Base), Bytes::kib(64), &Places::default()).unwrap();
    let fault = region.place(Policy::Bind(NodeSet::one(63))).unwrap_err().to_string();
    assert!(fault.contains("there is no node 63; choose from nodes"), "{fault}");
}

#[test]
fn a_killed_run_leaves_no_file() {
    let top = tempfile::tempdir().unwrap();
    let folder = open_folder(top.path());
    let mut command = nobody(top.path());
    command.args(["numa", "--page-cache", "--size", "12MiB", "--steps", "1", "--share", "0.02", "--dir"]).arg(&folder);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let fds = format!("/proc/{}/fd", child.id());
    let has_file = || {
        let links = std::fs::read_dir(&fds).into_iter().flatten().flatten();
        links.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|to| to.starts_with(&folder))
    };
    // Until its file is there, or it is done already.
    while !has_file() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let _ = child.kill();
    child.wait().unwrap();
    assert!(is_empty(&folder));
}

#[test]
fn an_interrupted_run_ends_and_leaves_no_file() {
    let top = tempfile::tempdir().unwrap();
    let folder = open_folder(top.path());
    let mut command = nobody(top.path());
    let record = top.path().join("files/record.jsonl");
    command.args(["numa", "--page-cache", "--size", "12MiB", "--steps", "1", "--share", "0.002", "--budget", "10min"]);
    command.args(["--samples", "10000", "--threads", "1", "--dir"]).arg(&folder).arg("--record").arg(&record);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The record's first line is written once Ctrl-C is about to be caught; the second, when it surely is.
    let lines = || std::fs::File::open(&record).map_or(0, |file| BufReader::new(file).lines().count());
    while lines() < 2 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    send(libc::SIGINT, child.id());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    std::fs::remove_file(&record).unwrap();
    assert!(is_empty(&folder));
}

#[test]
fn wrong_words_are_usage() {
    let refuses = |arguments: &[&str], part: &str| {
        let output = membound().args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    };
    refuses(&["numa", "--share", "0.5"], "--page-cache");
    refuses(&["numa", "--page-cache", "--share", "1.5"], "above 0% and up to 100%");
    refuses(&["numa", "--page-cache", "--cure", "prayer"], "unknown cure 'prayer'");
    refuses(&["numa", "--page-cache", "--filler", "sand"], "sparse-read");
    refuses(&["numa", "--page-cache", "--size", "800TiB"], "--size");
    refuses(&["numa", "--page-cache", "--dir", "/nowhere/at/all"], "--dir");
    let list = ["numa", "--page-cache", "--list", "--steps", "2", "--cure", "bind", "--size", "1MiB"];
    let output = membound().args(list).output().unwrap();
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(listed.contains("3 cases") && listed.contains("the cures bind"), "{listed}");
    assert!(listed.contains("then, until the speed recovers or memory ends, files of up to"), "{listed}");
    let listed = |share: &str| {
        let output = membound().args(list).args(["--share", share]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!listed("0.4").contains("until the speed recovers"), "whoever gives a share means it");
}
