//! The text views, as they look.

mod common;

use anstream::adapter::strip_str;
use membound::kernel::{Element, StoreKind, Width};
use membound::memory::MemoryKind;
use membound::model::{AnyRow, Report};
use membound::view::{csv, json, terminal};

/// Text as a pipe gets it. No line is wider than the terminal.
fn plain(text: &str) -> String {
    let text = strip_str(text).to_string();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    text
}

fn some_rows() -> Report {
    let report = common::rich();
    let is_shown = |index: usize| index % 17 == 3 || index + 2 >= report.rows.len();
    let rows = report.rows.iter().enumerate().filter(|(index, _)| is_shown(*index)).map(|(_, row)| row.clone());
    Report { rows: rows.collect(), ..common::empty() }
}

fn any(report: &Report) -> Vec<AnyRow> {
    report.any_rows().collect()
}

#[test]
fn summary() {
    insta::assert_snapshot!(plain(&terminal::summary(&common::rich())));
}

#[test]
fn rows() {
    insta::assert_snapshot!(plain(&terminal::rows(&some_rows())));
}

#[test]
fn stores() {
    insta::assert_snapshot!(plain(&terminal::stores(&common::rich())));
}

#[test]
fn stream() {
    insta::assert_snapshot!(plain(&terminal::stream(&common::rich())));
}

#[test]
fn pages() {
    insta::assert_snapshot!(plain(&terminal::pages(&common::rich())));
}

#[test]
fn csv_page_rows() {
    let pages = common::pages();
    let pages = vec![pages[0].clone(), pages[pages.len() - 1].clone()];
    insta::assert_snapshot!(csv::rows(&any(&Report { pages, ..common::empty() })));
}

/// The longest kind with every flag.
#[test]
fn pages_of_the_longest_kind_fit() {
    let mut report = Report { pages: common::pages(), ..common::empty() };
    let flags = ["outliers", "steal", "switches", "drift", "clock-changed", "few-samples", "wide-interval"];
    let row = &mut report.pages[0];
    (row.memory, row.quality.flags) = (MemoryKind::DmaHeapUncached, flags.map(String::from).into());
    row.page_ns.as_mut().unwrap().ci95 = [1.0, 1e12];
    assert!(plain(&terminal::pages(&report)).contains("oswdcni"));
    report.pages.retain(|row| !row.quality.is_measured());
    assert!(plain(&terminal::pages(&report)).contains("Nothing was measured."));
}

#[test]
fn kinds() {
    insta::assert_snapshot!(plain(&terminal::kinds(&common::kinds())));
    let summary = plain(&terminal::summary(&common::kinds()));
    assert!(summary.contains("- Not measured: huge-1g;"), "{summary}");
    assert!(summary.contains("- file-private-cold: ") && !summary.contains("- wc: "), "only broken proofs: {summary}");
}

#[test]
fn offsets() {
    let text = plain(&terminal::offsets(&common::offsets()));
    assert!(plain(&terminal::summary(&common::offsets())).contains(&text));
    assert_eq!(terminal::offsets(&common::empty()), "");
    insta::assert_snapshot!(text);
}

#[test]
fn latency() {
    insta::assert_snapshot!(plain(&terminal::latency(&common::simulated::latency())));
}

#[test]
fn latency_map() {
    let reports = [2, 4, 8].map(|cpus| (format!("{cpus} CPUs"), common::simulated::map(cpus)));
    let named: Vec<(String, &Report)> = reports.iter().map(|(name, report)| (name.clone(), report)).collect();
    insta::assert_snapshot!(plain(&terminal::latency_maps(&named)));
    let lone = plain(&terminal::latency(&common::simulated::map(1)));
    assert!(lone.contains("ns from CPU 0;") && lone.contains("ns over 1 CPU:"), "{lone}");
}

#[test]
fn core_to_core() {
    insta::assert_snapshot!(plain(&terminal::c2c(&common::simulated::c2c(4, true))));
}

/// A matrix that no terminal holds is said to be elsewhere; the groups are there.
#[test]
fn core_to_core_of_many_cpus() {
    let text = plain(&terminal::c2c(&common::simulated::c2c(32, false)));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("a matrix of 32 x 32 CPUs is wider than a terminal"), "{text}");
    assert!(text.contains("same cache domain  1984"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with(" 31 ")), "{text}");
}

#[test]
fn loaded() {
    insta::assert_snapshot!(plain(&terminal::loaded(&common::simulated::loaded(4))));
}

#[test]
fn where_lines_live() {
    let mut report = common::simulated::addrmap(Some(|address| address >> 6 & 7));
    report.addrmap.extend(common::simulated::addrmap(None).addrmap);
    insta::assert_snapshot!(plain(&terminal::addrmap(&report)));
}

#[test]
fn one_core_says_so() {
    let c2c = plain(&terminal::c2c(&common::simulated::c2c(1, false)));
    assert!(c2c.contains("CPU 0: unavailable: it needs two cores"), "{c2c}");
    let loaded = plain(&terminal::loaded(&common::simulated::loaded(1)));
    assert!(loaded.contains("others idle: unavailable: it needs two cores") && loaded.contains("none"), "{loaded}");
}

#[test]
fn csv_rows() {
    let report = Report { rows: some_rows().rows.into_iter().rev().take(4).collect(), ..common::empty() };
    insta::assert_snapshot!(csv::rows(&any(&report)));
}

#[test]
fn little_or_nothing_is_shown_without_fuss() {
    for report in [common::empty(), common::single(), common::unavailable()] {
        for view in [terminal::summary, terminal::rows, terminal::stores, terminal::stream] {
            assert!(!plain(&view(&report)).trim().is_empty());
        }
    }
    assert_eq!(json::rows(&[]), "[]\n");
    assert_eq!(csv::rows(&[]).lines().count(), 1);
}

#[test]
fn the_longest_words_fit() {
    let mut report = some_rows();
    let row = &mut report.rows[0];
    (row.kernel, row.store, row.width) = ("jacobi-long".into(), StoreKind::NtMasked, Width::Scalar);
    row.quality.flags =
        ["bimodal", "outliers", "steal", "switches", "faults", "drift", "foreign"].map(String::from).into();
    row.payload_bps.as_mut().unwrap().ci95 = [1.0, 1e12];
    plain(&terminal::rows(&report));
}

#[test]
fn elements_are_named_where_they_are_not_doubles() {
    let shown = |report: &Report| plain(&terminal::rows(report)) + &plain(&terminal::stores(report));
    let mut report = common::rich();
    assert!(!shown(&report).contains("float") && !shown(&report).contains("double"));
    report.rows[3].element = Element::Float;
    assert!(shown(&report).contains("double") && shown(&report).contains("float"), "each row says which");
    report.rows.iter_mut().for_each(|row| row.element = Element::Float);
    let text = shown(&report);
    assert!(text.contains("element float") && text.contains("thp, float"), "{text}");
    assert!(!text.contains("double"), "{text}");
}

#[test]
fn json_rows_are_the_rows() {
    let report = common::rich();
    let rows: serde_json::Value = serde_json::from_str(&json::rows(&any(&report))).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), report.rows.len() + report.pages.len());
    assert_eq!(rows[0]["payload_Bps"]["median"], report.rows[0].payload_bps.unwrap().median);
}

/// The CSV's columns are the JSON row's fields, flattened.
#[test]
fn csv_and_json_have_the_same_names() {
    let text = csv::rows(&any(&common::rich()));
    let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let rows: serde_json::Value = serde_json::from_str(&json::rows(&any(&common::rich()))).unwrap();
    for row in rows.as_array().unwrap() {
        for field in row.as_object().unwrap().keys() {
            assert!(names.iter().any(|name| name == field || name.starts_with(&format!("{field}_"))), "{field}");
        }
    }
}
