//! Two sides held against each other: records made by hand whose differences are known, figures by hand against the
//! published table, what a user may do wrong.

use crate::common::schema::Validator;
use crate::common::{by_hand, imitation, record_of};
use std::path::{Path, PathBuf};

use membound_analyze::across::compare::compare;
use membound_analyze::across::compare::comparison::{Comparison, Side, Source};
use membound_analyze::across::compare::figures::Figure;
use membound_analyze::across::compare::row::{ComparisonRow, Matched, Verdict};
use membound_analyze::across::compare::several::{Columns, several};
use membound_analyze::across::sections;
use membound_analyze::output::{csv, json, terminal};
use membound_core::case as plan;
use membound_core::case::{Case, Work};
use membound_core::kernel::chase::{Chase, Order};
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::memory::behaviour::IGNORED;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{End, Environment, Measured, Measurement, Outcome, Record, Sample, Volume};
use membound_core::units::Bytes;
use membound_core::work::c2c::{Handover, Home};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::common::imitation::HZ;
use crate::common::program::tried;

/// Clock of the imitated cores.
const CORE_HZ: f64 = 3e9;
const LINKS: u64 = 200_000;

/// Samples of one visit: seven times about so many seconds a repetition, which last long enough for whole ticks.
fn visit(case: &Case, round: u32, seconds: f64, volume: Volume, core_hz: f64) -> Measurement {
    const REPETITIONS: u64 = 1 << 20;
    let core_clock_ticks = (LINKS as f64 / core_hz * HZ).round() as u64;
    let ticks = [0.99, 1.0, 1.01, 1.0, 0.995, 1.005, 1.0].map(|share| seconds * share * REPETITIONS as f64 * HZ);
    let sample = |ticks: f64| Sample { ticks: ticks.round() as u64, core_clock_ticks, ..Sample::default() };
    let samples = ticks.map(sample).into_iter().collect();
    let obtained = Obtained { bytes: case.working_set, ..Obtained::default() };
    let measured = Measured { volume, repetitions: REPETITIONS, core_clock_links: LINKS, samples, obtained };
    Measurement::new(case.clone(), round, measured)
}

/// A visit at so many bytes a second.
fn at(case: &Case, round: u32, bps: f64) -> Measurement {
    at_clock(case, round, bps, CORE_HZ)
}

fn at_clock(case: &Case, round: u32, bps: f64, core_hz: f64) -> Measurement {
    let volume = Volume { units: case.working_set.0 / 8, loaded: case.working_set.0, ..Volume::default() };
    visit(case, round, case.working_set.0 as f64 / bps, volume, core_hz)
}

fn kernel(name: &str, cpus: &[u32], size: Bytes) -> Case {
    let memory = MemorySpec::of(MemoryKind::Thp);
    plan::steady(name, Width::W256, StoreKind::Regular, memory, cpus.to_vec(), size)
}

/// A machine of two cores with these sizes of its second and third cache, in KiB.
fn machine(caches: [u32; 2]) -> Machine {
    let mut files = vec![
        ("sys/devices/system/cpu/online".to_string(), "0-3".to_string()),
        ("proc/sys/kernel/osrelease".to_string(), "6.1.0".to_string()),
        ("sys/kernel/mm/transparent_hugepage/enabled".to_string(), "[always] madvise never".to_string()),
    ];
    for cpu in 0..4 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        files.push((format!("{folder}/topology/physical_package_id"), "0".into()));
        files.push((format!("{folder}/topology/core_id"), (cpu / 2).to_string()));
        files.push((format!("{folder}/topology/core_cpus_list"), ["0-1", "2-3"][cpu / 2].into()));
        for (index, size) in [32, caches[0], caches[1]].into_iter().enumerate() {
            let of_cache = |name: &str| format!("{folder}/cache/index{index}/{name}");
            files.push((of_cache("level"), (index + 1).to_string()));
            files.push((of_cache("type"), if index == 0 { "Data" } else { "Unified" }.into()));
            files.push((of_cache("size"), format!("{size}K")));
            files.push((of_cache("coherency_line_size"), "64".into()));
            files.push((of_cache("shared_cpu_list"), if index == 2 { "0-3".into() } else { cpu.to_string() }));
        }
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    imitation::machine(&files)
}

fn record(measurements: Vec<Measurement>) -> Record {
    let end = End {
        wall_s: 10.0,
        interrupted: false,
        overran: false,
        planned: 1,
        peak_memory: None,
        after: Environment::default(),
    };
    Record { end: Some(end), ..imitation::record(machine([1024, 32768]), measurements) }
}

fn side(name: &str, records: Vec<Record>) -> Side {
    Side { name: name.into(), source: Source::Records(records) }
}

fn compared(a: Vec<Record>, b: Vec<Record>) -> Comparison {
    compare(&side("a", a), &side("b", b), 0.01)
}

/// Of two default runs on a busy host most cells have too few visits, and these differ most.
#[test]
fn cells_with_too_few_visits_hide_no_others() {
    let [a, b] = ["zen3-guest-whole-1", "zen3-guest-whole-2"].map(|name| vec![record_of(name)]);
    let comparison = compared(a, b);
    let shown = |all: bool| {
        let document = sections::compare::document(&comparison, all);
        let cells = document.sections.into_iter().find(|section| section.id == "cells").unwrap();
        let words = cells.tables.iter().flat_map(|table| &table.columns.last().unwrap().cells);
        words.map(|cell| cell.text.clone()).collect::<Vec<_>>()
    };
    let (few, all) = (shown(false), shown(true));
    assert!(few.len() > 10 && few.iter().all(|word| word != "too few"), "{few:?}");
    assert!(all.len() > 600 && all.iter().filter(|word| *word == "too few").count() > 500, "{}", all.len());
}

/// Twenty cells in three rounds that scatter by up to 0.4 %; every fourth is as many times as fast.
fn twenty(fourth: f64, shift: u64) -> Vec<Measurement> {
    let mut random = fastrand::Rng::with_seed(shift);
    let mut measurements = Vec::new();
    for round in 0..3 {
        for index in 0..20u64 {
            let speed = if index % 4 == 0 { fourth } else { 1.0 };
            let noise = 1.0 + 0.008 * (random.f64() - 0.5);
            measurements.push(at(&kernel("load", &[0], Bytes::mib(256 + index)), round, 1e10 * speed * noise));
        }
    }
    measurements
}

#[test]
fn what_differs_is_found_and_nothing_else() {
    let found = compared(vec![record(twenty(1.0, 1))], vec![record(twenty(0.9, 2))]);
    assert_eq!((found.rows.len(), found.count(Verdict::Slower), found.count(Verdict::Faster)), (20, 5, 0));
    let first = "B is faster in 0 of 20 cells and slower in 5 (family-wise 95 %, beyond 1.0%).";
    assert_eq!(found.findings[0], first);
    for row in found.rows.iter().filter(|row| row.verdict == Verdict::Slower) {
        let [low, high] = row.speed_ci95.unwrap();
        assert!(low < 0.9 && 0.9 < high && high < 0.92, "{row:?}");
        assert!((row.speed.unwrap() - row.b.unwrap() / row.a.unwrap()).abs() < 1e-12);
        assert_eq!((row.draws, row.matched), ([3, 3], Some(Matched::Case)));
    }
    let sizes: Vec<f64> = found.rows.iter().map(|row| row.speed.unwrap().ln().abs()).collect();
    assert!(sizes.is_sorted_by(|x, y| x >= y), "the largest difference first: {sizes:?}");
    assert!(found.changes.is_empty(), "{:?}", found.changes);
    // The same differences, with more noise allowed.
    let a = side("a", vec![record(twenty(1.0, 1))]);
    let allowed = compare(&a, &side("b", vec![record(twenty(0.9, 2))]), 0.2);
    assert_eq!((allowed.count(Verdict::Slower), allowed.count(Verdict::WithinNoise)), (0, 5));
}

#[test]
fn one_visit_says_nothing_of_chance() {
    let once = |bps| vec![record(vec![at(&kernel("load", &[0], Bytes::mib(256)), 0, bps)])];
    let found = compared(once(1e10), once(5e9));
    assert_eq!(found.rows[0].verdict, Verdict::TooFew);
    assert_eq!((found.rows[0].speed_ci95, found.rows[0].p_family), (None, None));
    assert!((found.rows[0].speed.unwrap() - 0.5).abs() < 1e-6);
    assert!(found.notes.iter().any(|note| note.contains("6 visits on each side needed")), "{:?}", found.notes);
    // Several records of one visit each are several draws.
    let runs = |bps: f64| [0.999, 1.0, 1.001].iter().flat_map(|share| once(bps * share)).collect::<Vec<_>>();
    let found = compared(runs(1e10), runs(5e9));
    assert_eq!((found.rows[0].verdict, found.rows[0].draws), (Verdict::Slower, [3, 3]));
}

/// A was as slow as B in three visits of eleven: the host's doing, until several runs say otherwise.
#[test]
fn a_state_of_the_host_is_no_difference() {
    let case = kernel("store", &[0, 1], Bytes::mib(256));
    let run =
        |speeds: &dyn Fn(u32) -> f64| record((0..11).map(|round| at(&case, round, 1e10 * speeds(round))).collect());
    let at_times = || run(&|round| if round % 4 == 2 { 0.55 } else { 1.0 + 0.001 * f64::from(round) });
    let always = || run(&|round| 0.55 + 0.001 * f64::from(round));
    let lone = compared(vec![at_times()], vec![always()]);
    assert_eq!(lone.rows[0].verdict, Verdict::HostState);
    let [low, high] = lone.rows[0].speed_ci95.unwrap();
    assert!(low < 0.56 && high >= 1.0, "{low} {high}");
    assert_eq!(compared(vec![always()], vec![at_times()]).rows[0].verdict, Verdict::HostState);
    let several = compared(vec![at_times(), at_times()], vec![always(), always()]);
    assert_eq!(several.rows[0].verdict, Verdict::Slower);
}

#[test]
fn what_differs_between_runs_is_in_the_interval() {
    // Within a run 0.1 %, between runs 5 %: too few visits to have halves, so one run a side is certain of a difference that
    // several runs don't bear out.
    let run = |level: f64| {
        let case = kernel("load", &[0], Bytes::mib(256));
        record((0..3).map(|round| at(&case, round, 1e10 * level * (1.0 + 0.001 * f64::from(round)))).collect())
    };
    let lone = compared(vec![run(1.0)], vec![run(1.05)]);
    assert_eq!(lone.rows[0].verdict, Verdict::Faster);
    assert!(lone.notes.iter().any(|note| note.starts_with("One run a side")), "{:?}", lone.notes);
    let several = compared(vec![run(1.0), run(1.04), run(0.97)], vec![run(1.05), run(0.99), run(1.02)]);
    assert_eq!(several.rows[0].verdict, Verdict::NotSignificant);
    let [low, high] = several.rows[0].speed_ci95.unwrap();
    assert!(low < 0.95 && high > 1.05, "{low} {high}");
}

#[test]
fn lower_is_better_for_latency_and_clocks_are_taken_out() {
    let mut case = kernel("load", &[0], Bytes::mib(256));
    case.work = Work::Chase(Chase::of(Order::Random));
    let volume = Volume { units: Chase::LINKS, ..Volume::default() };
    let ns = |round, ns: f64, hz| visit(&case, round, ns * 1e-9 * Chase::LINKS as f64, volume, hz);
    let rounds = |latency: f64, hz: f64| vec![record((0..3).map(|round| ns(round, latency, hz)).collect())];
    let found = compared(rounds(100.0, 3e9), rounds(80.0, 3.75e9));
    let row = &found.rows[0];
    assert_eq!((row.unit.as_str(), row.verdict), ("ns", Verdict::Faster));
    // 100 ns at 3 GHz and 80 ns at 3.75 GHz are 300 cycles both.
    assert!((row.speed.unwrap() - 1.25).abs() < 1e-4, "{row:?}");
    assert!((row.speed_at_equal_clock.unwrap() - 1.0).abs() < 1e-4, "{row:?}");
    let clock = found.changes.iter().find(|change| change.what.starts_with("core clock")).unwrap();
    assert_eq!((clock.a.as_str(), clock.b.as_str()), ("3.00 GHz", "3.75 GHz"));
    // A bandwidth: 10 GB/s at 3 GHz, 11 at 3.75 GHz: 3.33 bytes a cycle against 2.93, 88 %.
    let load = kernel("load", &[0], Bytes::mib(256));
    let rounds = |bps, hz| vec![record((0..3).map(|round| at_clock(&load, round, bps, hz)).collect())];
    let row = compared(rounds(1e10, 3e9), rounds(1.1e10, 3.75e9)).rows.remove(0);
    assert!((row.speed.unwrap() - 1.1).abs() < 1e-4 && (row.speed_at_equal_clock.unwrap() - 0.88).abs() < 1e-4);
}

#[test]
fn other_numbers_of_cpus_are_no_difference() {
    let on = |cpu: u32, bps: f64| {
        let case = kernel("load", &[cpu], Bytes::mib(256));
        vec![record((0..3).map(|round| at(&case, round, bps * (1.0 + 1e-4 * f64::from(round)))).collect())]
    };
    let found = compared(on(0, 1e10), on(2, 1e10));
    assert_eq!((found.rows.len(), found.one_sided.len()), (1, 0));
    assert_eq!(found.rows[0].matched, Some(Matched::Meaning));
    assert!(found.notes.iter().any(|note| note.contains("by threads and nodes")), "{:?}", found.notes);
    // Hand-overs are matched by how near the CPUs are.
    let pair = |cpus: [u32; 2], ns: f64| {
        let mut case = kernel("load", &cpus, Bytes(64));
        case.work = Work::Handover(Handover { home: Home::First });
        let volume = Volume { units: 2, ..Volume::default() };
        (0..3).map(move |round| visit(&case, round, 2.0 * ns * 1e-9, volume, CORE_HZ)).collect::<Vec<_>>()
    };
    let a = [pair([0, 1], 10.0), pair([0, 2], 50.0)].concat();
    let b = [pair([2, 3], 10.0), pair([1, 2], 60.0)].concat();
    let found = compared(vec![record(a)], vec![record(b)]);
    let speed = |relation: &str| found.rows.iter().find(|row| row.what.contains(relation)).unwrap().speed.unwrap();
    assert!((speed("SMT siblings") - 1.0).abs() < 1e-4);
    assert!((speed("same cache domain") - 50.0 / 60.0).abs() < 1e-4);
}

#[test]
fn other_caches_are_compared_by_level() {
    let rounds = |caches, size, bps: f64| {
        let case = kernel("load", &[0], size);
        let visits = (0..3).map(|round| at(&case, round, bps * (1.0 + 1e-4 * f64::from(round)))).collect();
        vec![Record { header: imitation::record(machine(caches), Vec::new()).header, ..record(visits) }]
    };
    let a = rounds([1024, 32768], Bytes::kib(512), 1e11);
    let b = rounds([2048, 65536], Bytes::kib(1024), 1.2e11);
    let found = compared(a.clone(), b);
    assert_eq!((found.rows.len(), found.one_sided.len()), (1, 0));
    let row = &found.rows[0];
    assert_eq!((row.matched, row.group.as_str()), (Some(Matched::Level), "L2"));
    assert!(row.what.contains("512 KiB / 1 MiB"), "{}", row.what);
    assert!((row.speed.unwrap() - 1.2).abs() < 1e-4);
    assert!(found.changes.iter().any(|change| change.what == "caches" && change.b.contains("L2 2 MiB")));
    // A working set of another level is another cell.
    let other = compared(a, rounds([2048, 65536], Bytes::mib(512), 1e10));
    assert_eq!((other.rows.len(), other.one_sided.len()), (0, 2));
}

#[test]
fn cells_of_one_side_are_listed_with_the_reason() {
    let (both, lone, refused) = (
        kernel("load", &[0], Bytes::mib(256)),
        kernel("copy", &[0], Bytes::mib(256)),
        kernel("add", &[0], Bytes::mib(256)),
    );
    let measured = |case: &Case| (0..2).map(|round| at(case, round, 1e10)).collect::<Vec<_>>();
    let a = record([measured(&both), measured(&lone), measured(&refused)].concat());
    let unavailable = Outcome::Unavailable { reason: "too little memory".into() };
    let no = Measurement::new(refused, 0, unavailable);
    let b = record([measured(&both), vec![no]].concat());
    let found = compared(vec![a], vec![b]);
    assert_eq!((found.rows.len(), found.one_sided.len()), (1, 2));
    assert!(
        found.one_sided.iter().all(|row| row.verdict == Verdict::OnlyA && (row.a.unwrap() / 1e10 - 1.0).abs() < 1e-4)
    );
    let reasons: Vec<Option<&str>> = found.one_sided.iter().map(|row| row.reason.as_deref()).collect();
    assert!(reasons.contains(&None) && reasons.contains(&Some("unavailable: too little memory")), "{reasons:?}");
    let text = terminal::section::document(&sections::compare::document(&found, false))
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(text.contains("Only in A: 2 cells") && text.contains("too little memory"), "{text}");
}

#[test]
fn what_else_differs_comes_first() {
    let (a, mut b) = (record(twenty(1.0, 1)), record(twenty(1.0, 2)));
    let settings = [("proc/sys/kernel/osrelease", "6.8.0"), ("sys/kernel/mm/transparent_hugepage/enabled", "[never]")];
    b.header.machine = imitation::machine(&settings);
    b.header.seed = 99;
    b.header.command = vec!["membound".into(), "--budget".into(), "9s".into()];
    b.header.before.page_cache = Some(Bytes::gib(9));
    let mut a = a;
    a.header.before.page_cache = Some(Bytes::gib(1));
    let found = compared(vec![a], vec![b]);
    let change =
        |what: &str| found.changes.iter().find(|change| change.what == what).map(|c| (c.a.as_str(), c.b.as_str()));
    assert_eq!(change("kernel"), Some(("6.1.0", "6.8.0")));
    assert_eq!(change("transparent huge pages"), Some(("always", "never")));
    assert_eq!(change("page cache before"), Some(("1 GiB", "9 GiB")));
    assert!(!found.changes.iter().any(|change| change.what.contains("seed") || change.a.contains("budget")));
    let text = terminal::section::document(&sections::compare::document(&found, false));
    let (causes, cells) = (text.find("look here for causes").unwrap(), text.find("Speed of B").unwrap());
    assert!(causes < cells, "{text}");
}

#[test]
fn views_are_whole_and_narrow() {
    let found = compared(vec![record(twenty(1.0, 1))], vec![record(twenty(0.9, 2))]);
    let (short, long) = (
        terminal::section::document(&sections::compare::document(&found, false)),
        terminal::section::document(&sections::compare::document(&found, true)),
    );
    println!("{short}");
    let plain = |text: &str| anstream::adapter::strip_str(text).to_string();
    for text in [&short, &long] {
        assert!(plain(text).lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(plain(text).starts_with("B is faster in 0 of 20 cells and slower in 5"), "{text}");
    }
    assert!(short.contains("and 15 more; --all lists them") && !long.contains("more; --all"), "{short}");
    let rows: Vec<ComparisonRow> = serde_json::from_str(&json::comparison(&found)).unwrap();
    assert_eq!(rows.len(), 20);
    let schema = schemars::schema_for!(ComparisonRow).to_value();
    let validator = Validator::of(&schema).unwrap();
    assert!(rows.iter().all(|row| validator.is_valid(&serde_json::to_value(row).unwrap())));
    let table = csv::comparison(&found);
    assert_eq!(table.lines().count(), 21);
    assert!(table.starts_with("metric,group,what,matched,unit,better,a,b,speed,"), "{table}");
    #[cfg(feature = "report")]
    for part in ["b against a", "B is faster in 0 of 20 cells", "speed of B, % of A's", "noise allowed"] {
        assert!(
            membound_analyze::output::html::section::document(sections::compare::document(&found, true)).contains(part),
            "{part}"
        );
    }
}

pub const K10: &str = "name,unit,better,value,clock\nEuler3D,Hz,higher,1.41,1.5GHz\nCinebench 11.5,points,higher,1.9,1.5GHz\n\
                   Kraken,ms,lower,5883,1.5GHz\n7-zip compress,MIPS,higher,5317,1.5GHz\n7-zip decompress,MIPS,higher,6152,1.5GHz\n";
pub const JAGUAR: &str = "name,unit,better,value,clock\nEuler3D,Hz,higher,0.971,1.5GHz\nCinebench 11.5,points,higher,1.5,1.5GHz\n\
                      Kraken,ms,lower,6512.7,1.5GHz\n7-zip compress,MIPS,higher,3793,1.5GHz\n7-zip decompress,MIPS,higher,5397,1.5GHz\n";

fn figures(name: &str, text: &str) -> Side {
    Side { name: name.into(), source: Source::Figures(Figure::parse(text.as_bytes(), Path::new("x.csv")).unwrap()) }
}

/// R. Garg's table of two chips at 1.5 GHz (2013): 68.9, 78.9, 90, 71.3 and 87.7 %.
#[test]
fn the_published_table_at_equal_clock_is_reproduced() {
    let found = compare(&figures("k10", K10), &figures("jaguar", JAGUAR), 0.01);
    // 0.971 / 1.41, 1.5 / 1.9, 5883 / 6512.7 (less is better), 3793 / 5317, 5397 / 6152.
    let expect = [
        ("Euler3D", 0.688_652, "68.9"),
        ("Cinebench 11.5", 0.789_474, "78.9"),
        ("Kraken", 0.903_312, "90.3"),
        ("7-zip compress", 0.713_372, "71.3"),
        ("7-zip decompress", 0.877_276, "87.7"),
    ];
    let text = terminal::section::document(&sections::compare::document(&found, false));
    for (name, speed, shown) in expect {
        let row = found.rows.iter().find(|row| row.what == name).unwrap();
        assert!((row.speed.unwrap() - speed).abs() < 1e-6, "{row:?}");
        assert!((row.speed_at_equal_clock.unwrap() - speed).abs() < 1e-6, "{row:?}");
        assert_eq!((row.verdict, row.matched), (Verdict::TooFew, Some(Matched::Name)));
        assert!(text.lines().any(|line| line.starts_with(name) && line.trim_end().ends_with(shown)), "{name}: {text}");
    }
    // Another clock on one side: per cycle, the speed is as many times greater as the clock is lower.
    let half = JAGUAR.replace("1.5GHz", "750MHz");
    let found = compare(&figures("k10", K10), &figures("jaguar", &half), 0.01);
    let row = found.rows.iter().find(|row| row.what == "Kraken").unwrap();
    assert!((row.speed_at_equal_clock.unwrap() - 2.0 * 0.903_312).abs() < 1e-6, "{row:?}");
}

#[test]
fn figures_of_several_runs_are_judged() {
    let runs = |values: [f64; 3]| {
        values.iter().fold("name,unit,better,value\n".to_string(), |text, value| text + &format!("x,s,lower,{value}\n"))
    };
    let found = compare(&figures("a", &runs([10.0, 10.1, 9.9])), &figures("b", &runs([12.0, 12.1, 11.9])), 0.01);
    assert_eq!((found.rows.len(), found.rows[0].verdict, found.rows[0].draws), (1, Verdict::Slower, [3, 3]));
    assert!((found.rows[0].speed.unwrap() - 10.0 / 12.0).abs() < 1e-3);
}

/// One name in two units is two figures: 90 points are twice the speed of 45, and so are 10 s of 20.
#[test]
fn sides_in_columns_keep_units_apart() {
    let sides = [("a", 45, 20), ("b", 90, 10), ("c", 45, 40)].map(|(name, points, seconds)| {
        figures(name, &format!("name,unit,better,value\nx,points,higher,{points}\nx,s,lower,{seconds}\n"))
    });
    let shown = |figure: &Option<(f64, f64)>| figure.map(|(value, speed)| format!("{value:.1} at {speed:.2}"));
    let columns = |cell: &Columns| (cell.row.unit.clone(), cell.figures.iter().map(shown).collect::<Option<Vec<_>>>());
    let mut found: Vec<_> = several(&sides, 0.01).cells.iter().map(columns).collect();
    found.sort();
    let expect = |unit: &str, figures: [&str; 3]| (unit.to_string(), Some(figures.map(String::from).to_vec()));
    let points = expect("points", ["45.0 at 1.00", "90.0 at 2.00", "45.0 at 1.00"]);
    assert_eq!(found, [points, expect("s", ["20.0 at 1.00", "10.0 at 2.00", "40.0 at 0.50"])]);
}

#[test]
fn figures_that_are_none_are_refused_with_the_line() {
    let refuses = |text: &str, part: &str| {
        let fault = Figure::parse(text.as_bytes(), Path::new("x.csv")).unwrap_err().to_string();
        assert!(fault.contains(part), "'{part}' is not in: {fault}");
    };
    let head = "name,unit,better,value,clock\n";
    refuses("", "holds no figures");
    refuses(head, "holds no figures");
    refuses(&format!("{head}a,s,lower,1,\nb,s,lower,zero,\n"), "x.csv:3: 'zero' is no number above zero");
    refuses(&format!("{head}a,s,lower,-1,\n"), "no number above zero");
    refuses(&format!("{head}a,s,best,1,\n"), "higher, lower");
    refuses(&format!("{head}a,s,lower,1,fast\n"), "such as 1.5GHz");
    refuses(&format!("{head}a,s\n"), "x.csv:2");
    // Comments and empty lines are lines too, before a record and behind it.
    refuses(&format!("# by hand\n{head}\na,s,lower,1,\n# and\n\nb,s,lower,zero,\n"), "x.csv:7: 'zero' is no number");
    refuses(&format!("{head}\r\n# x\r\na,s,lower,zero,\r\n"), "x.csv:4: 'zero' is no number");
    refuses(&format!("{head}# x\na,s,lower,zero,"), "x.csv:3: 'zero' is no number");
    refuses(&format!("{head}# x\n\na,s\n# y\n"), "x.csv:4: 2 fields where the head has 5");
    refuses("what,value\na,1\n", "missing field");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sides_change_places(speeds in prop::collection::vec((0.2..5.0f64, 0..4u8, 1..4u32), 1..8)) {
        let of_side = |number: u8| {
            let mut measurements = Vec::new();
            for (index, (speed, sides, rounds)) in speeds.iter().enumerate() {
                // A cell of both sides, of one, or of none.
                if *sides == 3 || *sides == number {
                    let speed = if number == 1 { *speed } else { 1.0 };
                    let case = kernel("load", &[0], Bytes::mib(256 + index as u64));
                    measurements.extend((0..*rounds).map(|round| at(&case, round, 1e10 * speed * (1.0 + 0.01 * f64::from(round)))));
                }
            }
            vec![record(measurements)]
        };
        let (there, back) = (compared(of_side(1), of_side(2)), compared(of_side(2), of_side(1)));
        prop_assert_eq!((there.rows.len(), there.one_sided.len()), (back.rows.len(), back.one_sided.len()));
        for row in &there.rows {
            let other = back.rows.iter().find(|other| other.what == row.what).unwrap();
            prop_assert!((row.speed.unwrap() * other.speed.unwrap() - 1.0).abs() < 1e-9);
            let mirrored = match row.verdict {
                Verdict::Faster => Verdict::Slower,
                Verdict::Slower => Verdict::Faster,
                same => same,
            };
            prop_assert_eq!(other.verdict, mirrored);
        }
    }

    #[test]
    fn no_figures_panic(text in "(name|unit|better|value|clock|,|\n|higher|1|x| |\"){0,40}") {
        let _ = Figure::parse(text.as_bytes(), Path::new("x.csv"));
    }
}

fn written(folder: &TempDir, name: &str, record: &Record) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    by_hand::write(record, &path);
    path
}

fn run(arguments: &[&Path]) -> (Option<i32>, String, String) {
    tried(&[&[Path::new("compare")], arguments].concat())
}

#[test]
fn the_command_and_its_exit_codes() {
    let folder = TempDir::new().unwrap();
    let a = written(&folder, "a.jsonl", &record(twenty(1.0, 1)));
    let b = written(&folder, "b.jsonl", &record(twenty(0.9, 2)));
    let [fail, format, as_json, noise, much] =
        ["--fail-on-regression", "--format", "json", "--noise", "50"].map(Path::new);
    let (code, text, _) = run(&[&a, &b]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("B is faster in 0 of 20 cells and slower in 5"), "{text}");
    assert_eq!(run(&[&a, &b, fail]).0, Some(1));
    assert_eq!(run(&[&b, &a, fail]).0, Some(0), "faster is no regression");
    assert_eq!(run(&[&a, &b, fail, noise, much]).0, Some(0));
    // What crashes is worse than slow; what is merely not to be had is not.
    for (outcome, expect) in [
        (Outcome::Crashed { reason: "SIGILL".into() }, 1),
        (Outcome::Invalid { reason: "wrong results".into() }, 1),
        // A hypervisor that ignores memory types is no fault of the program's.
        (Outcome::Invalid { reason: format!("{IGNORED}: WC loads as WB does") }, 0),
        (Outcome::Unavailable { reason: "no AVX".into() }, 0),
    ] {
        let mut other = record(twenty(1.0, 2));
        let case = other.measurements[0].case.clone();
        let ours = other.measurements.iter_mut().filter(|visit| visit.case == case);
        ours.for_each(|visit| visit.outcome = outcome.clone());
        let path = written(&folder, "other.jsonl", &other);
        let (code, text, talk) = run(&[&a, &path, fail]);
        assert_eq!(code, Some(expect), "{outcome:?}: {text}{talk}");
        assert_eq!(text.contains("1 cell of A crashed or came to wrong results in B: "), expect == 1, "{text}");
        std::fs::remove_file(path).unwrap();
    }
    // One run of several is enough.
    let crash = |mut record: Record, crashes: bool| {
        let case = record.measurements[0].case.clone();
        let ours = record.measurements.iter_mut().filter(|visit| crashes && visit.case == case);
        ours.for_each(|visit| visit.outcome = Outcome::Crashed { reason: "SIGILL".into() });
        record
    };
    for each in 0..3 {
        written(&folder, &format!("fa/{each}.jsonl"), &record(twenty(1.0, 10 + each)));
        written(&folder, &format!("fb/{each}.jsonl"), &crash(record(twenty(1.0, 20 + each)), each == 1));
    }
    let [several, broken] = ["fa", "fb"].map(|name| folder.path().join(name));
    let (code, _, talk) = run(&[&several, &broken, fail, format, as_json]);
    assert!(code == Some(1) && talk.contains("1 cell of A crashed or came to wrong results in B: "), "{talk}");
    assert_eq!(run(&[&a, &b, &a, fail]).0, Some(2), "a gate has two sides");
    let (code, rows, talk) = run(&[&a, &b, format, as_json]);
    assert_eq!(code, Some(0));
    assert_eq!(serde_json::from_str::<Vec<ComparisonRow>>(&rows).unwrap().len(), 20);
    assert!(talk.contains("slower in 5"), "{talk}");
    let (code, text, _) = run(&[&a, &a]);
    assert_eq!(code, Some(0));
    assert!(text.starts_with("A and B are the same record: nothing can differ."), "{text}");
    assert!(!text.contains("slower in") && !text.contains("Cells"), "{text}");
    // A gate through which all would go is none: what there is is shown, and nothing passes.
    let [first, second] = [("c", 1), ("d", 2)].map(|(name, seed)| {
        let mut one = record(vec![at(&kernel("load", &[0], Bytes::kib(16)), 0, 1e10)]);
        one.header.seed = seed;
        written(&folder, &format!("{name}.jsonl"), &one)
    });
    let by_hand = folder.path().join("one.csv");
    std::fs::write(&by_hand, "name,unit,better,value\nmine,GB/s,higher,20\n").unwrap();
    for [a, b] in [[&first, &second], [&by_hand, &by_hand]] {
        assert_eq!(run(&[a, b]).0, Some(0));
        let (code, text, talk) = run(&[a, b, fail]);
        assert!(code == Some(2) && talk.contains("can't be judged: none of 1 cell"), "{talk}");
        assert!(text.contains("of A's speed in 1 "), "{text}");
    }
    // The same figure in another unit.
    let slower = folder.path().join("other.csv");
    std::fs::write(&slower, "name,unit,better,value\nmine,MB/s,higher,20000\n").unwrap();
    let (code, _, talk) = run(&[&by_hand, &slower]);
    assert!(code == Some(2) && talk.contains("'mine' is in GB/s in A and in MB/s in B"), "{talk}");
    // Folders: three runs a side.
    for each in 0..3 {
        written(&folder, &format!("before/{each}.jsonl"), &record(twenty(1.0, 10 + each)));
        written(&folder, &format!("after/{each}.jsonl"), &record(twenty(0.9, 20 + each)));
    }
    let (code, text, talk) = run(&[&folder.path().join("before"), &folder.path().join("after"), fail]);
    assert_eq!(code, Some(1), "{talk}");
    assert!(text.contains("slower in 5") && text.contains("3 records of made up"), "{text}");
    if cfg!(feature = "report") {
        let page = folder.path().join("x.html");
        assert_eq!(run(&[&a, &b, Path::new("--html"), &page]).0, Some(0));
        assert!(std::fs::read_to_string(&page).unwrap().contains("b.jsonl against a.jsonl"));
    }
}

/// STREAM's triad of 480 MB by two threads at 18.9388 GB/s, and ours of 256 MiB whose best sample is 20 GB/s / 0.99 = 20.2: 106.7 %.
#[test]
fn output_of_another_tool_stands_beside_our_rows() {
    let folder = TempDir::new().unwrap();
    let triad = kernel("triad", &[0, 1], Bytes::mib(256));
    let ours = written(&folder, "ours.jsonl", &record((0..3).map(|round| at(&triad, round, 20e9)).collect()));
    let theirs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analyze/tests/it/adapters/stream.txt");
    let (code, text, talk) = run(&[&theirs, &ours]);
    assert_eq!(code, Some(0), "{talk}");
    for part in [
        "4 figures of STREAM",
        "regular 256",
        "2 threads, 256 MiB",
        "18.9388 GB/s",
        "20.2",
        "106.7",
        "STREAM counts payload without write-allocate",
        "Without a counterpart",
        "membound bandwidth --kernel copy --store regular --threads 2",
    ] {
        assert!(crate::common::on_one_line(&text).contains(part), "'{part}' is not in: {text}");
    }
    let (code, text, _) = run(&[&ours, &theirs]);
    assert!(code == Some(0) && crate::common::on_one_line(&text).contains("93.8"), "{text}");
    let (code, text, _) = run(&[&theirs, &theirs]);
    assert!(code == Some(0) && text.contains("100.0") && !text.contains("by hand"), "{text}");
    let copy = written(&folder, "copy.jsonl", &record(vec![at(&kernel("jacobi", &[0], Bytes::mib(1)), 0, 1e10)]));
    let (code, _, talk) = run(&[&theirs, &copy]);
    assert!(code == Some(2) && talk.contains("nothing in common") && talk.contains("measures it"), "{talk}");
    let unknown = folder.path().join("notes.txt");
    std::fs::write(&unknown, "hello\n").unwrap();
    let (code, _, talk) = run(&[&unknown, &ours]);
    assert!(code == Some(2) && talk.contains("neither a record") && talk.contains("NetPIPE"), "{talk}");
}

#[test]
fn bad_input_is_refused_with_the_cure() {
    let folder = TempDir::new().unwrap();
    let good = written(&folder, "good.jsonl", &record(twenty(1.0, 1)));
    let other = written(&folder, "other.jsonl", &record(vec![at(&kernel("copy", &[0], Bytes::mib(1)), 0, 1e10)]));
    let refuses = |a: &Path, b: &Path, parts: &[&str]| {
        let (code, text, talk) = run(&[a, b]);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{talk}");
        parts.iter().for_each(|part| assert!(talk.contains(part), "'{part}' is not in: {talk}"));
    };
    refuses(&good, &other, &["nothing in common", "load", "copy", "same command"]);
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    refuses(&good, &empty, &["holds no record", "--record"]);
    let future = folder.path().join("future.jsonl");
    std::fs::write(&future, "{\"type\":\"header\",\"schema\":99,\"tool\":\"membound 9\"}\n").unwrap();
    refuses(&good, &future, &["schema 99", "membound 9"]);
    refuses(&good, &folder.path().join("none.jsonl"), &["cannot read"]);
    let by_hand = folder.path().join("x.csv");
    std::fs::write(&by_hand, K10).unwrap();
    refuses(&good, &by_hand, &["figures by hand", "all of a kind"]);
    let (code, _, talk) = run(&[&good, &good, Path::new("--noise"), Path::new("much")]);
    assert!(code == Some(2) && talk.contains("such as 2"), "{talk}");
    // A run that was killed in the middle of a line: what is whole counts, and that is said.
    let text = std::fs::read_to_string(&good).unwrap();
    let cut = folder.path().join("cut.jsonl");
    std::fs::write(&cut, &text[..text.len() / 2]).unwrap();
    let (code, text, talk) = run(&[&good, &cut]);
    assert_eq!(code, Some(0), "{talk}");
    assert!(text.contains("did not come to their end"), "{text}");
}
