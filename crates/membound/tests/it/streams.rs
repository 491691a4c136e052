//! Streams and offsets: simulated controllers whose period must be found, flat machines where nothing must be, and real
//! walks.

use crate::common::program::run;
use crate::common::simulated;
use anstream::adapter::strip_str;
use membound_analyze::answer::Answer;
use membound_analyze::of_record as model;
#[cfg(feature = "report")]
use membound_analyze::output::html;
use membound_analyze::output::{csv, json, markdown, terminal};
use membound_analyze::report::Report;
use membound_analyze::row::AnyRow;
use membound_core::case::{Case, Work};
use membound_core::experiments as plan;
use membound_core::experiments::choice::Choice;
use membound_core::experiments::streams::Offsets;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::streams::{Streams, Touch};
use membound_core::record::{Measurement, Outcome, Record};
use membound_core::units::Bytes;
use membound_core::work::common::Common;
use membound_measure::executor::fake::{Fake, FakeLevel, Noise};
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::schedule::{Executor, Quota};

fn cases() -> Vec<Case> {
    let machine = simulated::machine(2, false);
    let choice = Choice { sizes: vec![Bytes::mib(512)], ..Choice::default() };
    plan::streams::streams(&simulated::frame(&machine), &choice, &Offsets::usual()).unwrap()
}

/// Memory at 20 GB/s whose samples scatter by 2 % and whose visits by 3 %.
fn fake(target: Option<fn(u64) -> u64>, seed: u64) -> Fake {
    let level = FakeLevel { capacity: Bytes(u64::MAX), bytes_per_s: 10e9, shared_bytes_per_s: 20e9 };
    let mut fake = Fake::new(vec![level], Noise { sigma: 0.02, drift: 0.03, ..Noise::default() }, seed);
    fake.target = target;
    fake
}

fn report(target: Option<fn(u64) -> u64>, seed: u64) -> Report {
    model::report(&record(target, seed))
}

pub fn record(target: Option<fn(u64) -> u64>, seed: u64) -> Record {
    simulated::run(&simulated::machine(2, false), &cases(), &mut fake(target, seed))
}

#[test]
fn the_plan_is_streams_by_offsets() {
    let cases = cases();
    // Read: 1 stream at 0, five numbers at 12 offsets; copy: no single stream.
    assert_eq!(cases.len(), 1 + 5 * 12 + 5 * 12);
    let told = cases[1].to_string();
    assert_eq!(told, "read 2 streams, each 0 B further, 512 MiB, thp, 2 threads");
}

/// Eight controllers by address bits: a line's controller is (address / granule) mod 8, so that streams at equal places
/// modulo 8 granules meet in one, as on the UltraSPARC T2, and run at an eighth of the speed.
#[test]
fn the_period_and_the_padding_are_found() {
    type Controller = (u32, fn(u64) -> u64);
    let machines: [Controller; 4] =
        [(64, |a| a / 64 % 8), (128, |a| a / 128 % 8), (256, |a| a / 256 % 8), (512, |a| a / 512 % 8)];
    for (granule, target) in machines {
        let report = report(Some(target), 5);
        for map in &report.congestion.maps {
            let eight = map.effects.iter().find(|effect| effect.streams == 8).unwrap();
            let (offset, [gain, low, high]) = eight.best.unwrap();
            assert_eq!((offset, eight.period), (granule, Some(8 * granule)), "{map:?}");
            assert!(low <= 8.0 && 8.0 <= high && (6.5..9.5).contains(&gain), "{gain} [{low}, {high}]");
            // Two streams can be at most twice as fast as one controller.
            let two = map.effects.iter().find(|effect| effect.streams == 2).unwrap().best.unwrap().1;
            assert!(two[1] <= 2.0 && 2.0 <= two[2], "{two:?}");
        }
        let sentence = report.findings.iter().find(|sentence| sentence.starts_with("read streams")).unwrap();
        assert!(sentence.contains(&format!("pad by {}", Bytes(granule.into()))), "{sentence}");
        let period = format!("again after {}", Bytes(8 * u64::from(granule)));
        assert!(sentence.contains(&period), "{sentence}");
    }
}

/// Of 200 runs on a flat machine at most 5 % may claim an effect, for any of the 110 offsets compared.
#[test]
fn a_flat_machine_has_no_effect() {
    let claims = |seed: u64| report(None, seed).congestion.maps.iter().any(|map| !map.effects.is_empty());
    // Two maps a run, each of which may err in 5 %.
    let one = |seed: u64| {
        let report = report(None, seed);
        let read = report.congestion.maps.iter().find(|map| map.what.touch() == Some(Touch::Read)).unwrap();
        assert_eq!(read.compared, 55);
        !read.effects.is_empty()
    };
    let false_alarms = (0..200).filter(|seed| one(*seed)).count();
    assert!(false_alarms <= 10, "{false_alarms} of 200");
    let quiet = (0..200).find(|seed| !claims(*seed)).unwrap();
    let findings = report(None, quiet).findings;
    let said =
        "read streams, 2 threads: how they lie to each other has no effect beyond noise (55 offsets compared at once; ";
    assert!(findings.iter().any(|sentence| sentence.starts_with(said)), "{findings:?}");
}

/// Without offset 0, or with one visit each, nothing can be compared, and nothing may be claimed.
#[test]
fn what_was_not_compared_is_not_called_noise() {
    let machine = simulated::machine(2, false);
    let whole = simulated::run(&machine, &cases(), &mut fake(None, 5));
    let says = |keep: &dyn Fn(&Measurement) -> bool| {
        let mut record = whole.clone();
        record.measurements.retain(keep);
        let report = model::report(&record);
        assert!(report.congestion.maps.iter().all(|map| map.compared == 0 && map.effects.is_empty()));
        report.findings.iter().any(|said| said.starts_with("read streams, 2 threads: too few visits to tell"))
    };
    let offset = |visit: &Measurement| match visit.case.work {
        Work::Streams(streams) => streams.offset_bytes,
        _ => panic!(),
    };
    assert!(says(&|visit| offset(visit) > 0));
    assert!(says(&|visit| visit.round == 0));
}

#[test]
fn views_show_the_map() {
    let report = report(Some(|a| a / 64 % 8), 5);
    let text = strip_str(&terminal::answer(&report, &report.congestion)).to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("streams", text);
    #[cfg(feature = "report")]
    {
        let page = html::page(&report);
        assert!(page.contains("Streams and offsets") && page.contains("x offset 0 ["));
    }
    let markdown = markdown::report(&report);
    assert!(markdown.contains("## Streams and offsets\n") && markdown.contains("| offset | 1 | 2 |"), "{markdown}");
    assert!(markdown.contains("| 64 B | - | **20.2+** |"), "{markdown}");
    let rows: Vec<&dyn AnyRow> = report.any_rows().collect();
    assert!(json::rows(&rows).contains("\"over_aligned\":[") && csv::rows(&rows).contains("over_aligned_ci95_low"));
}

/// A triad and a loop of one's own in blocks: `c` and `a` of three arrays meet at half of the period, too.
#[test]
fn any_kernel_is_scanned_in_a_block() {
    let machine = simulated::machine(2, false);
    let own = Kernel::find("a[i] = b[i] + c[i]*d[i]").unwrap();
    let kernels = vec![Kernel::named("triad").unwrap(), own, Kernel::named("sum").unwrap()];
    let choice = Choice { kernels, sizes: vec![Bytes::mib(512)], threads: vec![1, 2], ..Choice::default() };
    let offsets: Offsets = "0..2KiB:64B".parse().unwrap();
    let frame = simulated::frame(&machine);
    let cases = plan::streams::streams(&frame, &choice, &offsets).unwrap();
    // 33 offsets of two kernels, and one of what has but one array, by one thread and by two.
    assert_eq!(cases.len(), 2 * (2 * 33 + 1));
    let triad = format!("triad {} regular", frame.widest());
    assert_eq!(
        cases[1].to_string(),
        format!("{triad}, arrays in one block, each 64 B further, 512 MiB, thp, 1 thread")
    );
    let report = model::report(&simulated::run(&machine, &cases, &mut fake(Some(|a| a / 64 % 8), 5)));
    let names: Vec<(String, usize)> =
        report.congestion.maps.iter().map(|map| (map.what.to_string(), map.threads)).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    for map in report.congestion.maps.iter().filter(|map| map.what.to_string().starts_with("triad")) {
        let [effect] = &map.effects[..] else { panic!("{map:?}") };
        let (offset, [gain, low, high]) = effect.best.unwrap();
        assert_eq!((effect.streams, offset, effect.period), (3, 64, Some(512)), "{map:?}");
        assert!(low <= 3.0 && 3.0 <= high && (2.7..3.4).contains(&gain), "{gain} [{low}, {high}]");
    }
    let blocks = format!("{triad} with its arrays in one block, 2");
    let said = report.findings.iter().find(|said| said.starts_with(&blocks));
    assert!(
        said.is_some_and(|said| said.contains("pad by 64 B: it then runs 3") && said.contains("after 512 B")),
        "{said:?}"
    );
    let text = strip_str(&terminal::answer(&report, &report.congestion)).to_string();
    assert!(text.contains("Kernels with their arrays in one block, 512 MiB"), "{text}");
    let section = &report.congestion.sections()[0];
    let chart = &section.charts[0];
    assert_eq!((chart.series.len(), chart.series[0].points.len()), (4, 33));
    let captions: std::collections::BTreeSet<&str> = section.tables.iter().map(|table| &*table.caption).collect();
    assert_eq!(captions.len(), section.tables.len(), "{captions:?}");
}

/// Results are checked against plain Rust: arrays that overlapped, or began elsewhere than the code thinks, would be wrong.
#[test]
fn real_blocks_hold_their_arrays_apart() {
    let cpu = membound_measure::os::thread::current_cpu().unwrap();
    let variant = |kernel: &str| {
        let case = membound_core::case::steady(
            kernel,
            membound_core::kernel::Width::W128,
            membound_core::kernel::StoreKind::Regular,
            membound_core::case::USUAL_MEMORY,
            vec![cpu],
            Bytes::mib(3),
        );
        case.variant().unwrap().clone()
    };
    let of = |kernel: &str, offset_bytes: u32| Case {
        work: Work::Common(Common { variant: variant(kernel), offset_bytes }),
        ..cases_of_one(cpu)
    };
    let own = Kernel::find("a[i] = b[i] + c[i]*d[i]; x += e[i]").unwrap();
    let cases = [of("triad", 0), of("triad", 8), of("daxpy", 4096), of("schoenauer", 1 << 20), of(own.name, 72)];
    let mut here = Here::new(&cases, Places::default(), true).unwrap();
    let quota = Quota { least_samples: 2, most_samples: 2, time: std::time::Duration::ZERO, interrupted: &|| false };
    for case in &cases {
        let outcome = here.visit(case, &quota);
        assert!(matches!(outcome, Outcome::Measured(_)), "{case}: {outcome:?}");
    }
}

/// The walkers themselves check what they leave behind; a wrong pitch or count would be `invalid`.
#[test]
fn real_walks_touch_every_line_and_no_other() {
    let cpu = membound_measure::os::thread::current_cpu().unwrap();
    let mut cases = Vec::new();
    for (touch, streams, offset_bytes) in
        [(Touch::Read, 1, 0), (Touch::Read, 32, 64), (Touch::Write, 3, 65536), (Touch::Copy, 8, 4096)]
    {
        let streams = Streams { touch, streams, offset_bytes };
        let case = cases_of_one(cpu);
        cases.push(Case { work: Work::Streams(streams), ..case });
    }
    let mut here = Here::new(&cases, Places::default(), false).unwrap();
    let quota = Quota { least_samples: 1, most_samples: 1, time: std::time::Duration::ZERO, interrupted: &|| false };
    for case in &cases {
        let Outcome::Measured(visit) = here.visit(case, &quota) else {
            panic!("{case}: {:?}", here.visit(case, &quota))
        };
        let Work::Streams(streams) = case.work else { panic!() };
        let [loaded, stored, _] = streams.bytes(case.working_set);
        assert_eq!((visit.volume.loaded, visit.volume.stored), (loaded, stored));
    }
}

fn cases_of_one(cpu: u32) -> Case {
    Case { cpus: vec![cpu], working_set: Bytes::mib(1), ..cases()[0].clone() }
}

#[test]
fn the_command_walks_for_real() {
    let brief = ["--size", "1MiB", "--threads", "1", "--budget", "2s", "--quiet", "--format", "json"];
    let out = run(&[&["bandwidth", "--offsets", "scan", "--kernel", "store"], &brief[..]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).unwrap();
    assert!(rows.iter().any(|row| row["metric"] == "streams" && row["outcome"] == "measured"));
    for (args, says) in [
        (&["bandwidth", "--offsets", "scan", "--kernel", "load", "--store", "nt"][..], "--store does not apply here"),
        (&["bandwidth", "--offsets", "0..1KiB:8B"], "no whole number of 64 B"),
        (&["bandwidth", "--offsets", "0..1KiB:4B", "--kernel", "triad"], "no whole number of 8 B"),
        (&["bandwidth", "--offsets", "scan", "--kernel", "a[i] = b[k[i]]"], "no places of their own"),
        (&["bandwidth", "--offsets", "much"], "much"),
        (&["stores", "--offsets", "scan"], "`membound bandwidth` takes it"),
        (&["stores", "--memory", "thp,4k"], "a second --memory does not apply here"),
        (&["stores", "--width", "scalar,128"], "a second --width does not apply here"),
        (&["bandwidth", "--offsets", "scan", "--size", "1KiB"], "give at least"),
    ] {
        let wrong = run(args);
        let talk = String::from_utf8_lossy(&wrong.stderr).to_string();
        assert!(wrong.status.code() == Some(2) && talk.contains(says), "{args:?}: {talk}");
    }
}
