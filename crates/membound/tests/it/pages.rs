//! Every work on pages, for real on small mappings: it is measured or says why not, the faults are those that the pages
//! obtained must cause, and no child, mapping or page is left behind. Nothing is timed.

use std::time::Duration;

use crate::common::alone::alone;
use crate::common::skip::skip;
use membound_core::case::{Case, Protocol, Work};
use membound_core::experiments as plan;
use membound_core::experiments::choice::Breadth;
use membound_core::experiments::frame::Frame;
use membound_core::in_order::each_once;
use membound_core::machine::Machine;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{Measured, Measurement, Outcome, Sample, Samples, Volume};
use membound_core::units::{BASE_PAGE, Bytes};
use membound_core::work::pages::PageWork;
use membound_measure::executor::native::Native;
use membound_measure::memory::places::Places;
use membound_measure::schedule::{Executor, Quota};

const MAPPING: Bytes = Bytes::mib(8);

fn cpus() -> Vec<u32> {
    let machine = Machine::read(std::path::Path::new("/")).unwrap();
    let frame = Frame::new(&machine, membound_measure::asm::detect(), None).unwrap();
    frame.placement.first(frame.placement.most().min(2)).unwrap()
}

fn case(work: PageWork, kind: MemoryKind, cpus: &[u32]) -> Case {
    Case {
        protocol: Protocol::FirstUse,
        ..Case::new(Work::Page(work), MemorySpec::of(kind), cpus.to_vec(), Bytes(MAPPING.0 * cpus.len() as u64))
    }
}

fn visit(case: &Case, interrupted: &(dyn Fn() -> bool + Sync)) -> Outcome {
    let mut native = Native::new(std::slice::from_ref(case), Places::default(), false).unwrap();
    let quota = Quota { least_samples: 2, most_samples: 3, time: Duration::from_secs(5), interrupted };
    native.visit(case, &quota)
}

/// What was measured; or nothing, where the outcome names what this machine lacks.
fn measured(work: PageWork, kind: MemoryKind, cpus: &[u32]) -> Option<Measured> {
    match visit(&case(work, kind, cpus), &|| false) {
        Outcome::Measured(measured) => Some(*measured),
        Outcome::Unavailable { reason } => {
            assert!(reason.contains("; "), "no cure in: {reason}");
            skip(format!("{work} of {kind}: {reason}"));
            None
        }
        other => panic!("{work} of {kind}: {other:?}"),
    }
}

/// Faults for each base page, in the sample that has the fewest.
fn faults_per_page(measured: &Measured) -> f64 {
    f64::from(*measured.samples.faults.iter().min().unwrap()) / measured.volume.units as f64
}

fn is_huge(measured: &Measured) -> bool {
    measured.obtained.huge_bytes == Some(measured.obtained.bytes)
}

#[test]
fn every_work_is_measured_or_says_why_not() {
    let cpus = cpus();
    for &work in PageWork::ALL {
        for kind in [MemoryKind::Base, MemoryKind::Thp] {
            for threads in 1..=cpus.len() {
                let Some(measured) = measured(work, kind, &cpus[..threads]) else { continue };
                let what = format!("{work} of {kind}, {threads} threads: {measured:?}");
                assert!((2..=3).contains(&measured.samples.ticks.len()) && measured.samples.is_consistent(), "{what}");
                assert_eq!(measured.samples.setup_ticks.len(), measured.samples.ticks.len(), "{what}");
                let columns = if threads > 1 { threads } else { 0 };
                assert_eq!(measured.samples.thread_ticks.len(), columns, "{what}");
                assert!(measured.samples.slowest_and_fastest().all(|(all, part)| part <= all), "{what}");
                assert_eq!(measured.volume.units, threads as u64 * MAPPING.0 / BASE_PAGE, "{what}");
                assert_eq!(measured.obtained.bytes, Bytes(threads as u64 * MAPPING.0), "{what}");
                assert!(measured.core_clock_links > 0 && measured.repetitions == 1, "{what}");
            }
        }
    }
}

/// A work that did nothing, or did it before the clock started, would show here.
#[test]
fn faults_are_those_of_the_pages() {
    use PageWork::{CopyOnWrite, Dontneed, Free, Read, Touch, TouchAfterDontneed, TouchAfterFree, Unmap};
    let cpus = cpus();
    if measured(Touch, MemoryKind::Base, &cpus).is_none_or(|touch| touch.samples.faults.iter().all(|n| *n == 0)) {
        skip("this system counts no page faults (getrusage)");
        return;
    }
    for (work, least, most) in [
        (Touch, 0.99, 1.05),
        (Read, 0.99, 1.05),
        (TouchAfterDontneed, 0.99, 1.05),
        (CopyOnWrite, 0.99, 1.05),
        (Dontneed, 0.0, 0.01),
        (Free, 0.0, 0.01),
        (TouchAfterFree, 0.0, 0.05),
        (Unmap, 0.0, 0.01),
    ] {
        let Some(measured) = measured(work, MemoryKind::Base, &cpus) else { continue };
        let faults = faults_per_page(&measured);
        assert!((least..most).contains(&faults), "{work}: {faults} faults for each page");
    }
    for work in [Touch, TouchAfterDontneed] {
        let Some(measured) = measured(work, MemoryKind::Thp, &cpus) else { continue };
        if !is_huge(&measured) {
            skip(format!("thp was not obtained: {:?}", measured.obtained));
            continue;
        }
        let faults = faults_per_page(&measured) * 512.0;
        assert!((0.99..2.0).contains(&faults), "{work}: {faults} faults for each huge page");
    }
}

#[test]
fn what_a_kind_can_not_do_has_its_reason() {
    let cpu = &cpus()[..1];
    for (work, kind, reason) in [
        (PageWork::Free, MemoryKind::Shared, "private anonymous"),
        (PageWork::CopyOnWrite, MemoryKind::Shared, "not copied on write"),
        (PageWork::Collapse, MemoryKind::Thp, "choose 4k"),
    ] {
        let outcome = visit(&case(work, kind, cpu), &|| false);
        assert!(matches!(&outcome, Outcome::Unavailable { reason: found } if found.contains(reason)), "{outcome:?}");
    }
}

/// Lines of a file below /proc that hold `what`.
fn count(path: &str, what: &str) -> usize {
    std::fs::read_to_string(path).unwrap().lines().filter(|line| line.contains(what)).count()
}

/// Processes whose parent this one is.
fn children() -> usize {
    let id = std::process::id();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.unwrap().path().join("children");
        std::fs::read_to_string(path).unwrap_or_default().split_whitespace().count()
    };
    let listed: usize = tasks.map(of).sum();
    // A child of a thread that ended is listed nowhere, but knows its parent.
    let parent = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(parent).filter(|parent| *parent == id).count();
    listed.max(all)
}

#[test]
fn nothing_is_left_behind() {
    if !alone("pages::nothing_is_left_behind", |_| ()) {
        return;
    }
    let cpus = cpus();
    // Mappings of whole mebibytes are ours; the allocator's and the threads' stacks come and go.
    let large = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let size = |line: &str| {
            let (from, to) = line.split_whitespace().next()?.split_once('-')?;
            Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
        };
        maps.lines().filter(|line| size(line).is_some_and(|size| size >= MAPPING.0 / 2)).count()
    };
    // Threads make the allocator's arenas, which stay.
    let run = |interrupted: &(dyn Fn() -> bool + Sync)| {
        for &work in PageWork::ALL {
            for kind in [MemoryKind::Base, MemoryKind::Thp, MemoryKind::Shared] {
                let _ = visit(&case(work, kind, &cpus), interrupted);
            }
        }
    };
    run(&|| false);
    let before = (large(), count("/proc/self/maps", "-"), children());
    run(&|| false);
    run(&|| true);
    let after = (large(), count("/proc/self/maps", "-"), children());
    assert_eq!((before.0, before.2), (after.0, 0), "large mappings, children");
    assert!(after.1 <= before.1 + 4, "{} mappings before, {} after", before.1, after.1);
}

#[test]
fn an_interrupted_visit_has_no_samples() {
    if !alone("pages::an_interrupted_visit_has_no_samples", |_| ()) {
        return;
    }
    let outcome = visit(&case(PageWork::CopyOnWrite, MemoryKind::Base, &cpus()), &|| true);
    assert!(matches!(outcome, Outcome::Unavailable { .. }), "{outcome:?}");
    assert_eq!(children(), 0);
}

/// Samples of so many ticks of a nanosecond over 64 MiB a thread, and the faults of each.
fn made_up(work: PageWork, kind: MemoryKind, threads: u32, ticks: u64, faults: u32) -> Measurement {
    let cpus: Vec<u32> = (0..threads).collect();
    let working_set = Bytes(u64::from(threads) * Bytes::mib(64).0);
    let samples = Samples::from_iter([Sample { ticks, core_clock_ticks: 1, faults, ..Sample::default() }; 9]);
    let huge_bytes = Some(if kind == MemoryKind::Thp { working_set } else { Bytes(0) });
    let obtained = Obtained { bytes: working_set, huge_bytes, ..Obtained::default() };
    let volume = Volume { units: working_set.0 / BASE_PAGE, ..Volume::default() };
    let measured = Measured { volume, repetitions: 1, core_clock_links: 1, samples, obtained };
    let case = Case { working_set, ..case(work, kind, &cpus) };
    Measurement::new(case, 0, measured)
}

/// 64 MiB are 16384 base pages or 32 huge ones: 4.096 ms are 250 ns or 128 us a page.
#[test]
fn the_answer_is_made_of_measured_rows() {
    use MemoryKind::{Base, Thp};
    use PageWork::{CopyOnWrite, Populate, Touch};
    let answer = |measurements: Vec<Measurement>| {
        membound_analyze::of_record::report(&crate::common::reports::record(1e9, measurements)).findings
    };
    let touch = made_up(Touch, Base, 1, 4_096_000, 16384);
    let full = vec![
        touch.clone(),
        made_up(Touch, Thp, 1, 3_276_800, 32),
        made_up(Populate, Base, 1, 3_276_800, 16384),
        made_up(CopyOnWrite, Base, 1, 9_830_400, 16384),
        made_up(Touch, Base, 2, 5_120_000, 32768),
    ];
    assert_eq!(
        answer(full),
        ["First touch of a 4 KiB page costs 250 ns (16.4 GB/s), of a 2 MiB page 102 us (20.5 GB/s): \
          512 times fewer faults, about 1.25 x as fast by the byte; populating in advance costs 200 ns per page; \
          copy-on-write costs 600 ns per page; 2 threads against one: first touch about 1.60 x."]
    );
    assert_eq!(answer(vec![touch.clone()]), ["First touch of a 4 KiB page costs 250 ns (16.4 GB/s)."]);
    let reason = "the data check failed".to_string();
    let spoiled = vec![touch.clone(), Measurement { outcome: Outcome::Invalid { reason }, ..touch }];
    assert_eq!(answer(spoiled), ["No findings: nothing was measured that an answer could rest on."]);
}

#[test]
fn the_plan_holds_every_work_once() {
    let machine = Machine::read(std::path::Path::new("/")).unwrap();
    let frame = Frame::new(&machine, membound_measure::asm::detect(), None).unwrap();
    let cases = plan::pages::first_touch(&frame, Breadth::Whole).unwrap();
    assert_eq!(each_once(cases.clone()).len(), cases.len());
    for &work in PageWork::ALL {
        assert!(cases.iter().any(|case| case.work == Work::Page(work)), "{work}");
    }
    assert!(plan::pages::first_touch(&frame, Breadth::Brief).unwrap().len() < cases.len());
    let tiny = Frame { memory_limit: Bytes::mib(1), ..frame };
    let share = |case: &Case| case.working_set.0 / case.threads() as u64;
    let small = plan::pages::first_touch(&tiny, Breadth::Whole).unwrap();
    assert!(
        small.iter().all(|case| share(case) == if case.memory.kind == MemoryKind::Huge1G { 1 << 30 } else { 2 << 20 })
    );
}
