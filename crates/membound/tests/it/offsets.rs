//! What offsets cost, worked out from made-up records whose groups were counted by hand; and one real visit.

use crate::common::by_hand;
use crate::common::skip::skip;
use membound_analyze::experiments::offsets::rows::OffsetRow;
use membound_analyze::flag::Flag;
use membound_analyze::of_record as model;
use membound_core::case::{Case, Work};
use membound_core::experiments as plan;
use membound_core::experiments::choice::Breadth;
use membound_core::kernel::scan::Scan;
use membound_core::machine::Machine;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Measured, Measurement, Outcome, Record, RecordError, Sample, Samples};
use membound_core::units::Bytes;

fn case(scan: Scan) -> Case {
    Case::new(Work::Scan(scan), MemorySpec::of(MemoryKind::Base), vec![0], Bytes(Scan::SCRATCH))
}

/// Samples on a core of 4 GHz with a clock of 2 GHz: a tick is two cycles, a sample a thousand accesses.
fn sweeps(scan: Scan, count: u32, cycles: impl Fn(i64) -> f64) -> Samples {
    let ticks = (0..count).flat_map(|_| scan.offsets()).map(|at| (cycles(at) * 500.0) as u64);
    ticks.map(|ticks| Sample { ticks, core_clock_ticks: 10_000, ..Sample::default() }).collect()
}

fn visit(scan: Scan, samples: Samples) -> Measurement {
    let measured = Measured { repetitions: 1000, core_clock_links: 20_000, samples, ..Measured::default() };
    Measurement::new(case(scan), 0, measured)
}

fn cannot(scan: Scan, outcome: Outcome) -> Measurement {
    Measurement::new(case(scan), 0, outcome)
}

fn record(measurements: Vec<Measurement>) -> Record {
    crate::common::reports::record(2e9, measurements)
}

fn row<'a>(rows: &'a [OffsetRow], place: &str) -> &'a OffsetRow {
    rows.iter().find(|row| row.place == place).unwrap_or_else(|| panic!("no row {place}"))
}

/// What a load of 8 bytes costs on the made-up core.
fn load_of_8(at: i64) -> f64 {
    match at % 64 {
        _ if at > 4088 => 20.0,
        57.. => 2.0,
        25..32 => 1.5,
        _ => 1.0,
    }
}

#[test]
fn loads_are_grouped_by_what_they_cross() {
    let scan = Scan::Load { bytes: 8 };
    // One of three visits was slow from end to end.
    let visits = [1.0, 3.0, 1.0].map(|slow| visit(scan, sweeps(scan, 1, |at| slow * load_of_8(at))));
    let report = model::report(&record(visits.into()));
    let expect: [(&str, usize, [i64; 2], f64); 6] = [
        ("inside a line", 57 * 64, [0, 4088], 1.0),
        ("aligned", 512, [0, 4088], 1.0),
        ("crosses 16 B", 14 * 64, [9, 4079], 1.0),
        ("crosses 32 B", 7 * 64, [25, 4063], 1.5),
        ("crosses a line", 7 * 63, [57, 4031], 2.0),
        ("crosses a page", 7, [4089, 4095], 20.0),
    ];
    assert_eq!(report.offsets.len(), expect.len());
    for (row, (place, count, offsets, cycles)) in report.offsets.iter().zip(expect) {
        let cost = row.cycles.unwrap();
        assert_eq!((row.place, row.count, row.offsets), (place, count, offsets));
        assert_eq!((cost.best, cost.median), (cycles, cycles), "{place}");
        // The slow visit widens the interval as far as its own median, no further.
        assert_eq!(cost.ci95, [cycles, 3.0 * cycles], "{place}");
        assert_eq!((row.quality.samples, row.quality.rounds, row.quality.outcome.word()), (3, 3, "measured"));
        assert!(row.quality.has(Flag::Drift), "{:?}", row.quality.flags);
    }
    let says = "a load of 8 B that crosses 32 B takes 1.50 cycles instead of 1.00";
    assert!(!report.findings.iter().any(|text| text.contains(says)), "a slow visit leaves it open whether that is so");
    let report = model::report(&record(vec![visit(scan, sweeps(scan, 3, load_of_8))]));
    assert!(report.findings.iter().any(|text| text.contains(says)), "{:?}", report.findings);
    assert_eq!(report.offsets[0].curve, scan.offsets().map(|at| (at, load_of_8(at))).collect::<Vec<_>>());
    assert!(report.offsets[1..].iter().all(|row| row.curve.is_empty()));
}

#[test]
fn pairs_are_grouped_by_how_they_overlap() {
    let scan = Scan::Forwarding { stored: 16, loaded: 8 };
    let cycles = |at: i64| match at {
        -8 | 16 => 1.0,
        0 => 8.0,
        1..=8 => 9.0,
        _ => 21.0,
    };
    let aliasing = Scan::Aliasing { bytes: 8 };
    let waits = |at: i64| if at.abs() < 8 { 7.0 } else { 2.0 };
    let visits = vec![visit(aliasing, sweeps(aliasing, 5, waits)), visit(scan, sweeps(scan, 5, cycles))];
    let report = model::report(&record(visits));
    let expect: [(&str, usize, f64); 7] = [
        ("aliases before", 7, 7.0),
        ("aliases inside", 8, 7.0),
        ("apart", 242, 2.0),
        ("same place", 1, 8.0),
        ("inside the store", 8, 9.0),
        ("overlaps partly", 14, 21.0),
        ("apart", 2, 1.0),
    ];
    let found: Vec<_> = report.offsets.iter().map(|r| (r.place, r.count, r.cycles.unwrap().median)).collect();
    assert_eq!(found, expect);
    assert!(report.offsets.iter().all(|row| (row.quality.samples, row.quality.rounds) == (5, 1)));
    assert!(
        report.findings.iter().any(|text| text.contains("take 7.00 cycles per pair instead of 2.00")),
        "{:?}",
        report.findings
    );
    assert!(report.findings.iter().any(|text| text.contains("overlaps it partly 21.0")), "{:?}", report.findings);
}

#[test]
fn a_missing_visit_and_a_cut_sweep_are_left_out() {
    let scan = Scan::Load { bytes: 8 };
    let mut cut = sweeps(scan, 2, load_of_8);
    let columns = [&mut cut.ticks, &mut cut.core_clock_ticks];
    columns.into_iter().for_each(|column| column.truncate(4096 + 4000));
    let gone = Outcome::Unavailable { reason: "it was interrupted".into() };
    let visits = vec![cannot(scan, gone.clone()), visit(scan, cut)];
    let rows = model::report(&record(visits)).offsets;
    let whole = row(&rows, "crosses a page");
    assert_eq!((whole.quality.rounds, whole.quality.samples, whole.quality.outcome.word()), (1, 1, "measured"));
    assert_eq!(whole.cycles.unwrap().median, 20.0);

    let rows = model::report(&record(vec![cannot(scan, gone)])).offsets;
    let [only] = &rows[..] else { panic!("{} rows", rows.len()) };
    assert_eq!((only.place, only.quality.outcome.word(), only.cycles), ("any", "unavailable", None));
    assert_eq!(only.quality.reason.as_deref(), Some("it was interrupted"));

    let mut short = sweeps(scan, 1, load_of_8);
    let columns = [&mut short.ticks, &mut short.core_clock_ticks];
    columns.into_iter().for_each(|column| column.truncate(9));
    let rows = model::report(&record(vec![visit(scan, short)])).offsets;
    assert_eq!((rows.len(), rows[0].quality.outcome.word()), (1, "invalid"));
}

#[test]
fn a_fault_spoils_the_scan() {
    let scan = Scan::Store { bytes: 8 };
    let fault = Outcome::Crashed { reason: "SIGBUS".into() };
    let report = model::report(&record(vec![visit(scan, sweeps(scan, 1, load_of_8)), cannot(scan, fault)]));
    assert!(report.offsets.iter().all(|row| row.quality.outcome.word() == "crashed"));
    assert_eq!(report.findings, ["No findings: nothing was measured that an answer could rest on."]);
    assert!(report.warnings.iter().any(|warning| warning.text.contains("SIGBUS")));
}

#[test]
fn a_size_that_no_access_has_is_damage() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let scans = [Scan::Load { bytes: 0 }, Scan::Forwarding { stored: u32::MAX, loaded: 8 }];
    by_hand::write(&record(scans.map(|scan| visit(scan, Samples::default())).into()), file.path());
    assert!(matches!(Record::read(file.path()), Err(RecordError::Damaged { line: 2, .. })));
}

#[cfg(target_arch = "x86_64")]
mod here {
    use std::time::Duration;

    use membound_core::experiments::frame::Frame;

    use membound_measure::executor::native::Native;
    use membound_measure::memory::places::Places;
    use membound_measure::schedule::{Executor, Quota};

    use super::*;

    #[test]
    fn a_visit_samples_every_offset() {
        let machine = Machine::read(std::path::Path::new("/")).unwrap();
        let frame = Frame::new(&machine, membound_measure::asm::detect(), None).unwrap();
        let cases = plan::offsets::alignment(&frame, Breadth::Whole);
        let mut native = Native::new(&cases, Places::default(), false).unwrap();
        let scan = Scan::Forwarding { stored: 8, loaded: 8 };
        let case = cases.iter().find(|case| case.work == Work::Scan(scan)).unwrap();
        let quota = Quota { least_samples: 2, most_samples: 2, time: Duration::from_secs(9), interrupted: &|| false };
        let outcome = native.visit(case, &quota);
        let Outcome::Measured(measured) = &outcome else {
            return skip(format!("{outcome:?}"));
        };
        assert!(measured.samples.is_consistent());
        assert_eq!(measured.samples.ticks.len(), 2 * scan.offsets().count());
        assert_eq!(measured.repetitions % Scan::ACCESSES, 0);
        let measurement = Measurement::new(case.clone(), 0, outcome);
        let rows = model::report(&record(vec![measurement])).offsets;
        let row = row(&rows, "same place");
        assert_eq!((row.quality.samples, row.quality.rounds, row.count), (2, 1, 1));
        assert!(row.cycles.unwrap().best > 0.0);
    }

    #[test]
    fn an_interrupted_visit_says_so() {
        let cases = [case(Scan::Load { bytes: 8 })];
        let mut native = Native::new(&cases, Places::default(), false).unwrap();
        let quota = Quota { least_samples: 2, most_samples: 2, time: Duration::from_secs(9), interrupted: &|| true };
        let two = Case { cpus: vec![0, 1], ..cases[0].clone() };
        for (case, reason) in [(&cases[0], "interrupted"), (&two, "one thread")] {
            let outcome = native.visit(case, &quota);
            let is_told = matches!(&outcome, Outcome::Unavailable { reason: told } if told.contains(reason));
            // A cpuset may forbid CPU 0.
            assert!(is_told || format!("{outcome:?}").contains("can't be used"), "{outcome:?}");
        }
    }
}
