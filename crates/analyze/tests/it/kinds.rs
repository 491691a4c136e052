//! The experiment that the project is named for, from a record made by hand: what does the report make of it?

use crate::common::by_hand;
use crate::common::copies::{BUFFER, copies, published};
use membound_analyze::break_even::BreakEven;
use membound_analyze::experiments::bandwidth::rows::BandwidthRow;
use membound_analyze::experiments::kinds::rows::Kind;
use membound_analyze::of_record as model;
use membound_analyze::output::terminal;
use membound_analyze::report::Report;
use membound_core::case::{Protocol, Work};
use membound_core::memory::MemoryKind;
use membound_core::record::{Measurement, Outcome};
use membound_core::units::Bytes;

/// Every visit to copies into `kind` came to another end.
fn replaced(measurements: &mut [Measurement], kind: MemoryKind, protocol: Protocol, outcome: &Outcome) {
    for visit in measurements {
        if visit.case.memory_of("a").kind == kind && visit.case.protocol == protocol {
            visit.outcome = outcome.clone();
        }
    }
}

/// Through a file, as a user's record comes.
fn report(measurements: Vec<Measurement>) -> Report {
    let record = by_hand::record(by_hand::clock(1e9), by_hand::unknown_machine(), measurements);
    model::report(&by_hand::written_and_read(&record))
}

fn kind(report: &Report, kind: MemoryKind) -> Kind {
    let kinds = report.kinds.as_ref().unwrap();
    kinds.kinds.iter().find(|found| found.memory.kind == kind).unwrap().clone()
}

#[test]
fn the_published_experiment_is_understood() {
    let report = report(published());
    let wc = kind(&report, MemoryKind::Wc);
    // 1 + (81 - 22) / (32 / 3.8 - 32 / 5.7) = 22.0 copies.
    let Some(BreakEven::After { uses, low, high }) = wc.break_even else { panic!("{:?}", wc.break_even) };
    assert!(
        (uses - 22.0).abs() < 0.1 && low <= uses * 1.000_001 && uses <= high.unwrap() * 1.000_001,
        "{uses} [{low}, {high:?}]"
    );
    assert!((wc.gain.unwrap()[0] - 1.5).abs() < 0.01, "{:?}", wc.gain);
    assert_eq!(kind(&report, MemoryKind::Uc).break_even, Some(BreakEven::Never));
    assert_eq!(kind(&report, MemoryKind::Heap).break_even, None, "it is what the others are held against");
    let said = report.findings.join(" ");
    for words in [
        "regular memory (heap) takes 22.0 ms the first time, then 8.42 ms (3.80 GB/s copied)",
        "Write-combining memory (wc) wins in steady state, 1.50 times as fast, and pays after about 22 copies",
        "uncacheable memory (uc) never pays",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// By the other convention (N bytes read and N written) rates are double, and nothing else changes.
#[test]
fn both_conventions_are_shown() {
    let report = report(published());
    let is_steady = |row: &&BandwidthRow| {
        row.case.protocol == Protocol::Steady && row.case.streams[0].memory.kind == MemoryKind::Wc
    };
    let row = report.rows.iter().find(is_steady).unwrap();
    let (copied, payload) = (row.copied_bps.unwrap().median, row.payload_bps.unwrap().median);
    let later = kind(&report, MemoryKind::Wc).steady_s.unwrap().median;
    assert!((BUFFER as f64 / later / copied - 1.0).abs() < 1e-9);
    assert!((copied / 5.7e9 - 1.0).abs() < 1e-6 && (payload / copied - 2.0).abs() < 1e-9);
}

/// Were later copies no faster, first use could never be earned back, however small the difference.
#[test]
fn a_dearer_kind_that_gains_nothing_never_pays() {
    let mut measurements = published();
    let slow = copies(MemoryKind::Wc, Protocol::Steady, (BUFFER as f64 / 3.8) as u64).outcome;
    replaced(&mut measurements, MemoryKind::Wc, Protocol::Steady, &slow);
    assert_eq!(kind(&report(measurements), MemoryKind::Wc).break_even, Some(BreakEven::Never));
}

#[test]
fn kinds_that_cannot_be_had_say_why() {
    let mut measurements = published();
    let ignored = Outcome::Invalid { reason: "the hypervisor ignores memory types".into() };
    assert!(!ignored.is_failure(), "a limit of the machine is no fault of the run");
    for protocol in [Protocol::FirstUse, Protocol::Steady] {
        replaced(&mut measurements, MemoryKind::Wc, protocol, &ignored);
    }
    let report = report(measurements);
    let wc = kind(&report, MemoryKind::Wc);
    assert!(!wc.holds && wc.first_s.is_none() && wc.break_even.is_none());
    assert_eq!(wc.proof, "invalid: the hypervisor ignores memory types");
    let text = terminal::answers(&report, &["kinds"]);
    assert!(text.contains("- wc: invalid: the hypervisor ignores memory types"), "{text}");
    assert!(!report.findings.join(" ").contains("wc"), "{:?}", report.findings);
}

/// A budget that ended before copies to a kind left what was measured of it out of the table.
#[test]
fn a_kind_that_was_only_loaded_has_its_line() {
    let mut load = copies(MemoryKind::Tmpfs, Protocol::Steady, (BUFFER as f64 / 7.91) as u64);
    load.case.memory = load.case.streams.remove(0).memory;
    load.case.working_set = Bytes(BUFFER);
    let Work::Kernel(variant) = &mut load.case.work else { panic!("copies are kernels") };
    variant.kernel = "load".into();
    let mut measurements = published();
    measurements.push(load);
    let report = report(measurements);
    let tmpfs = kind(&report, MemoryKind::Tmpfs);
    assert!(tmpfs.is_measured() && !tmpfs.is_copied() && tmpfs.alone[3].is_some(), "{tmpfs:?}");
    assert_eq!((tmpfs.gain, tmpfs.break_even), (None, None));
    let text = terminal::answers(&report, &["kinds"]);
    assert!(text.lines().any(|line| line.starts_with("tmpfs ")), "{text}");
}
