//! The sentence on a loop of one's own: what holds it back, and where the figures do not say.

use crate::common::reports::{empty, row};
use membound_analyze::across::sections::kernel::document;
use membound_analyze::experiments::bandwidth::rows::BandwidthRow;
use membound_analyze::rate::Rate;
use membound_analyze::report::Report;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Width};
use membound_core::stats::states::Ends;

/// A triad at so many GB/s: [value, low, high].
fn at(bytes: u64, [value, low, high]: [f64; 3]) -> BandwidthRow {
    let mut row = row("triad", StoreKind::Regular, Width::W512, 1, bytes);
    row.figures.payload_bps = Some(Rate::plain(value * 1e9, value * 1e9, [low * 1e9, high * 1e9]));
    row
}

#[track_caller]
fn check(near: [f64; 3], far: [f64; 3], expect: &str) {
    let document = document(&[at(12 << 10, near), at(1 << 30, far)], &[]);
    let [sentence] = &document.sentences[..] else { panic!("{:?}", document.sentences) };
    let (_, held) = sentence.split_once("regular 512)").unwrap();
    assert_eq!(held, expect);
}

#[test]
fn what_holds_a_loop_back() {
    check([414.0, 410.0, 418.0], [9.4, 9.0, 9.8], ", bound by memory: from L1 it runs 44.0 times as fast.");
    check([9.5, 9.3, 9.7], [9.4, 9.2, 9.6], ", compute-bound: no faster from L1 than from memory.");
    // The far one may be the faster one: a short loop pays for its start.
    check([9.0, 8.9, 9.1], [9.4, 9.3, 9.5], ", compute-bound: no faster from L1 than from memory.");
}

/// As seen on a busy host: intervals that overlap are no equality.
#[test]
fn overlapping_intervals_are_no_equality() {
    check(
        [414.0, 9.1, 430.0],
        [9.4, 9.0, 9.8],
        "; what bounds it is not shown: 44.0 times as fast from L1, but the figures are too uncertain (9.10 to 430 GB/s and \
         9.00 to 9.80).",
    );
    // 12 % apart, each known to 10 %.
    let unsure = |text: &str| text.contains("what bounds it is not shown");
    let rows = [at(12 << 10, [10.5, 9.5, 11.5]), at(1 << 30, [9.4, 8.5, 10.3])];
    assert!(unsure(&document(&rows, &[]).sentences[0]));
}

/// A range of few visits is no interval: it reaches as far again.
#[test]
fn a_range_of_few_visits_shows_less() {
    let ranged = |mut row: BandwidthRow| {
        row.figures.payload_bps.as_mut().unwrap().capability.ends = Ends::Range;
        row
    };
    let rows = [at(12 << 10, [10.0, 9.9, 10.1]), at(1 << 30, [9.4, 9.2, 9.8])];
    assert!(document(&rows, &[]).sentences[0].contains("bound by memory"));
    assert!(document(&rows.map(ranged), &[]).sentences[0].contains("what bounds it is not shown"));
}

/// A report of a run's record answers as the run did, for loops that are nobody else's.
#[test]
fn a_report_tells_of_own_loops() {
    let text = Kernel::find("a[i] = b[i] - c[i]").unwrap().name;
    let own = [12 << 10, 1 << 30].map(|bytes| row(text, StoreKind::Regular, Width::W512, 1, bytes));
    let titles = |rows: Vec<BandwidthRow>| -> Vec<String> {
        let report = Report { rows, ..empty() };
        let (_, sections) = report.sections().find(|(name, _)| *name == "kernel").unwrap();
        sections.into_iter().map(|section| section.title).collect()
    };
    assert_eq!(titles(own.into()), [text]);
    assert!(titles(vec![at(12 << 10, [9.4, 9.3, 9.5])]).is_empty());
}
