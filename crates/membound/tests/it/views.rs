//! The text views, as they look.

use std::collections::BTreeSet;

use anstream::adapter::strip_str;
use membound_analyze::across::roofline::RooflinePoint;
use membound_analyze::answer::Answer;
use membound_analyze::flag::Flag;
use membound_analyze::output::terminal::text::at_width;
use membound_analyze::output::{csv, json, markdown, terminal};
use membound_analyze::report::Report;
use membound_analyze::row::AnyRow;
use membound_core::json::parsed;
use membound_core::kernel::{Element, StoreKind, Width};
use membound_core::memory::MemoryKind;

/// Text as a pipe gets it. No line is wider than the terminal, and nothing had to be replaced to be shown.
fn plain(text: &str) -> String {
    let text = strip_str(text).to_string();
    assert!(!text.contains('\u{fffd}'), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    text
}

fn some_rows() -> Report {
    let report = crate::common::reports::rich();
    let is_shown = |index: usize| index % 17 == 3 || index + 2 >= report.rows.len();
    let rows = report.rows.iter().enumerate().filter(|(index, _)| is_shown(*index)).map(|(_, row)| row.clone());
    Report { rows: rows.collect(), ..crate::common::reports::empty() }
}

fn any(report: &Report) -> Vec<&dyn AnyRow> {
    report.any_rows().collect()
}

#[test]
fn summary() {
    insta::assert_snapshot!(plain(&terminal::summary(&crate::common::reports::rich())));
}

/// The first screen: forty lines with the files written, and all else on demand.
#[test]
fn overview() {
    let report = crate::common::reports::rich();
    let text = plain(&terminal::overview(&report));
    assert!(text.lines().count() <= 38, "{text}");
    insta::assert_snapshot!(text);
    // A record that characterises no machine is shown whole.
    let few = Report { rows: some_rows().rows, ..crate::common::reports::empty() };
    assert_eq!(terminal::overview(&few), terminal::summary(&few));
    let chosen = plain(&terminal::chosen(&report, &["latency".into(), "verdict".into()]));
    assert!(!chosen.contains("Store kinds"), "{chosen}");
}

/// As wide as the terminal, and never more than forty lines.
#[test]
fn overview_follows_the_terminal() {
    let report = crate::common::reports::rich();
    for (columns, asked) in [(80, 20), (80, 80), (120, 120), (200, 200), (200, 9999)] {
        let coloured = at_width(asked, || terminal::overview(&report));
        let text = strip_str(&coloured).to_string();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= columns && widest + 12 > columns, "{widest} of {columns} columns:\n{text}");
        assert!(text.lines().count() <= 38, "{text}");
        assert_ne!(coloured, text, "colour is there until a pipe takes it away");
        if columns == asked {
            insta::assert_snapshot!(format!("overview-{columns}"), text);
            insta::assert_snapshot!(format!("overview-{columns}-colour"), coloured);
        }
    }
}

/// What was not visited is said in the first line, and figures that rest on little are marked.
#[test]
fn a_short_run_says_what_it_left_out() {
    let mut report = Report { visited: 60, ..crate::common::reports::rich() };
    report.end.as_mut().unwrap().planned = 934;
    let text = plain(&terminal::overview(&report));
    assert!(text.lines().next().unwrap().ends_with(", 60 of 934 cases"), "{text}");
    let words = crate::common::on_one_line(&text);
    assert!(words.contains("Left out for lack of time: 874 of 934 cases, with all of arithmetic, "), "{text}");
    assert!(!text.contains('~'), "{text}");
    let copies = report.rows.iter_mut().filter(|row| row.kernel() == "copy");
    for rate in copies.filter_map(|row| row.payload_bps.as_mut()) {
        rate.capability.ends = membound_core::stats::states::Ends::Range;
    }
    let text = plain(&terminal::overview(&report));
    // Of one core and of all, in four levels with regular stores and in memory with non-temporal ones.
    assert_eq!(text.matches(" ~").count(), 10, "{text}");
    assert!(text.contains("10 (~) rest on fewer than 5"), "{text}");
}

/// Where one CPU is all, each figure is shown once.
#[test]
fn one_cpu_counts_no_figure_twice() {
    let mut report = crate::common::reports::rich();
    let text = plain(&terminal::overview(&report));
    assert!(text.contains(" of 26 figures "), "{text}");
    report.rows.retain(|row| row.threads() == 1);
    let text = plain(&terminal::overview(&report));
    assert!(text.contains(" of 13 figures "), "{text}");
}

/// A run of one experiment had no others in its plan, and the answer that it was made for is on the first screen.
#[test]
fn a_run_of_one_experiment_leaves_no_others_out() {
    let mut report = Report { visited: 60, ..crate::common::reports::rich() };
    report.end.as_mut().unwrap().planned = 934;
    report.roofline.points.push(point());
    report.command = ["membound", "--quiet", "roofline", "--budget", "5s"].map(String::from).into();
    let answer = report.roofline.answer().unwrap();
    let words = crate::common::on_one_line(&plain(&terminal::overview(&report)));
    assert!(words.contains("Left out for lack of time: 874 of 934 cases; a longer"), "{words}");
    assert!(words.contains(&answer), "{words}");
    report.command = ["membound", "--color", "never", "roofline"].map(String::from).into();
    assert!(crate::common::on_one_line(&plain(&terminal::overview(&report))).contains(&answer));
    report.command = ["membound", "--budget", "5s"].map(String::from).into();
    let words = crate::common::on_one_line(&plain(&terminal::overview(&report)));
    assert!(words.contains(", with all of arithmetic, ") && !words.contains(&answer), "{words}");
}

/// A kernel in memory, of which no arithmetic is known.
fn point() -> RooflinePoint {
    RooflinePoint {
        row: 0,
        level: "memory".into(),
        intensity: 0.0625,
        flops_per_s: [1e9, 0.9e9, 1.1e9],
        predicted: 2e9,
        fraction: [0.5, 0.45, 0.55],
        bound: None,
        ceiling: "memory, regular stores".into(),
        is_partial: true,
        is_own: false,
    }
}

#[test]
fn a_part_that_was_not_measured_names_those_that_were() {
    let text = plain(&terminal::chosen(&crate::common::reports::rich(), &["rounding".into()]));
    assert!(text.starts_with("Nothing of that was measured. The record has: bandwidth, "), "{text}");
}

/// Other stores than non-temporal ones have an answer, too.
#[test]
fn all_store_kinds_have_a_sentence() {
    let mut report = crate::common::reports::rich();
    report.crossovers.retain(|crossover| crossover.store != StoreKind::Nt || crossover.kernel != "copy");
    let stores = report.sections().flat_map(|(_, sections)| sections).find(|section| section.id == "stores").unwrap();
    let [sentence] = &stores.sentences[..] else { panic!("{:?}", stores.sentences) };
    assert!(sentence.starts_with("store, 1 thread, nt"), "{sentence}");
    // Nor is it left to silence that nothing is known of non-temporal ones.
    report.crossovers.iter_mut().for_each(|crossover| crossover.store = StoreKind::NtMasked);
    let sentences =
        report.sections().flat_map(|(_, sections)| sections).find(|section| section.id == "stores").unwrap().sentences;
    assert!(sentences[0].starts_with("nt stores: too few sizes "), "{sentences:?}");
}

/// Sixty lines of dashes say no more than why there is no figure.
#[test]
fn rows_without_a_figure_are_their_reason() {
    let text = plain(&terminal::rows(&crate::common::reports::unavailable()));
    assert!(!text.contains("GB/s  ") && !text.contains(" - "), "{text}");
    assert!(text.contains("- nt 512: "), "{text}");
}

#[test]
fn rows() {
    insta::assert_snapshot!(plain(&terminal::rows(&some_rows())));
}

#[test]
fn what_rows_share_stands_above_them_in_a_line() {
    let mut shared = some_rows();
    shared.rows.retain(|row| row.case.misaligned_bytes == 0);
    let text = crate::common::on_one_line(&plain(&terminal::rows(&shared)));
    assert!(text.contains("offset in line 0 B"), "{text}");
}

#[test]
fn stores() {
    insta::assert_snapshot!(plain(&terminal::stores(&crate::common::reports::rich())));
}

#[test]
fn stream() {
    insta::assert_snapshot!(plain(&terminal::stream(&crate::common::reports::rich())));
}

fn just_pages() -> Report {
    Report { pages: crate::common::reports::pages(), ..crate::common::reports::empty() }
}

#[test]
fn pages() {
    insta::assert_snapshot!(plain(&terminal::answers(&just_pages(), &["pages"])));
}

#[test]
fn csv_page_rows() {
    let pages = crate::common::reports::pages();
    let pages = vec![pages[0].clone(), pages[pages.len() - 1].clone()];
    insta::assert_snapshot!(csv::rows(&any(&Report { pages, ..crate::common::reports::empty() })));
}

/// The longest kind with every flag.
#[test]
fn pages_of_the_longest_kind_fit() {
    let mut report = just_pages();
    let flags = Flag::ALL.iter().copied().filter(|flag| "oswdcni".contains(flag.letter()));
    let row = &mut report.pages[0];
    (row.case.memory.kind, row.quality.flags) = (MemoryKind::DmaHeapUncached, flags.collect());
    row.page_ns.as_mut().unwrap().ci95 = [1.0, 1e12];
    assert!(plain(&terminal::answers(&report, &["pages"])).contains("oswdcni"));
    report.pages.retain(|row| !row.quality.is_measured());
    assert!(plain(&terminal::answers(&report, &["pages"])).contains("Nothing was measured."));
}

#[test]
fn kinds() {
    insta::assert_snapshot!(plain(&terminal::answers(&crate::common::reports::kinds(), &["kinds"])));
    let summary = plain(&terminal::summary(&crate::common::reports::kinds()));
    assert!(summary.contains("- huge-1g: unavailable: "), "{summary}");
    assert!(summary.contains("- file-private-cold: ") && !summary.contains("- wc: "), "only broken proofs: {summary}");
}

#[test]
fn offsets() {
    let text = plain(&terminal::answers(&crate::common::reports::offsets(), &["offsets"]));
    let (_, tables) = text.split_once("\n\n").unwrap();
    assert!(plain(&terminal::summary(&crate::common::reports::offsets())).contains(tables));
    assert!(crate::common::reports::empty().offsets.sections().is_empty());
    insta::assert_snapshot!(text);
}

fn latency_of(report: &Report) -> String {
    terminal::answer(report, &report.latency)
}

fn c2c_of(report: &Report) -> String {
    terminal::answer(report, &report.handovers)
}

fn loaded_of(report: &Report) -> String {
    terminal::answer(report, &report.loaded)
}

#[test]
fn latency() {
    insta::assert_snapshot!(plain(&latency_of(&crate::common::simulated::latency())));
}

#[test]
fn latency_map() {
    let reports = [2, 4, 8].map(|cpus| (format!("{cpus} CPUs"), crate::common::simulated::map(cpus)));
    insta::assert_snapshot!(plain(&crate::common::reports::latency_maps(&reports)));
    let lone = plain(&latency_of(&crate::common::simulated::map(1)));
    assert!(lone.contains("ns from CPU 0;") && lone.contains("ns over CPUs:"), "{lone}");
}

#[test]
fn core_to_core() {
    insta::assert_snapshot!(plain(&c2c_of(&crate::common::simulated::c2c(4, true))));
}

/// A matrix that no terminal holds is said to be elsewhere; the groups are there.
#[test]
fn core_to_core_of_many_cpus() {
    let text = plain(&c2c_of(&crate::common::simulated::c2c(32, false)));
    let words = crate::common::on_one_line(&text);
    assert!(words.contains("a matrix of 32 x 32 CPUs - Wider than a terminal"), "{text}");
    assert!(text.contains("same cache domain  1984"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with(" 31 ")), "{text}");
}

#[test]
fn loaded() {
    insta::assert_snapshot!(plain(&loaded_of(&crate::common::simulated::loaded(4))));
}

#[test]
fn where_lines_live() {
    let mut report = crate::common::simulated::addrmap(Some(|address| address >> 6 & 7));
    report.addrmap.extend(crate::common::simulated::addrmap(None).addrmap);
    insta::assert_snapshot!(plain(&terminal::answer(&report, &report.addrmap)));
}

#[test]
fn one_core_says_so() {
    let c2c = plain(&c2c_of(&crate::common::simulated::c2c(1, false)));
    assert!(c2c.contains("CPU 0: unavailable: it needs two cores"), "{c2c}");
    let loaded = plain(&loaded_of(&crate::common::simulated::loaded(1)));
    assert!(loaded.contains("others idle: unavailable: it needs two cores") && loaded.contains("none"), "{loaded}");
}

#[test]
fn csv_rows() {
    let report =
        Report { rows: some_rows().rows.into_iter().rev().take(4).collect(), ..crate::common::reports::empty() };
    insta::assert_snapshot!(csv::rows(&any(&report)));
}

#[test]
fn little_or_nothing_is_shown_without_fuss() {
    for report in
        [crate::common::reports::empty(), crate::common::reports::single(), crate::common::reports::unavailable()]
    {
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
    let variant = crate::common::reports::variant(row);
    (variant.kernel, variant.store, variant.width) = ("jacobi-long".into(), StoreKind::NtMasked, Width::Scalar);
    row.quality.flags = Flag::ALL[..7].to_vec();
    row.payload_bps.as_mut().unwrap().ci95 = [1.0, 1e12];
    plain(&terminal::rows(&report));
}

#[test]
fn elements_are_named_where_they_are_not_doubles() {
    let shown = |report: &Report| plain(&terminal::rows(report)) + &plain(&terminal::stores(report));
    let mut report = crate::common::reports::rich();
    assert!(!shown(&report).contains("float") && !shown(&report).contains("double"));
    crate::common::reports::variant(&mut report.rows[3]).element = Element::Float;
    assert!(shown(&report).contains("double") && shown(&report).contains("float"), "each row says which");
    report.rows.iter_mut().for_each(|row| crate::common::reports::variant(row).element = Element::Float);
    // Where a line breaks does not matter.
    let text = shown(&report).replace('\n', " ");
    assert!(text.contains("element float") && text.contains("thp, float"), "{text}");
    assert!(!text.contains("double"), "{text}");
}

#[test]
fn json_rows_are_the_rows() {
    let report = crate::common::reports::rich();
    let rows: serde_json::Value = serde_json::from_str(&json::rows(&any(&report))).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), report.rows.len() + report.pages.len());
    assert_eq!(rows[0]["payload_Bps"]["median"], report.rows[0].payload_bps.unwrap().median);
}

/// The CSV's columns are the JSON row's fields, flattened, for each metric alone.
#[test]
fn csv_and_json_have_the_same_names() {
    let report = crate::common::reports::rich();
    let metrics: BTreeSet<&str> = report.any_rows().map(|row| row.metric()).collect();
    assert!(metrics.len() > 1, "{metrics:?}");
    for metric in metrics {
        let rows: Vec<&dyn AnyRow> = report.any_rows().filter(|row| row.metric() == metric).collect();
        let text = csv::rows(&rows);
        let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        for row in rows.iter().map(|row| parsed(&row.json())) {
            for field in row.as_object().unwrap().keys() {
                assert!(names.iter().any(|name| name == field || name.starts_with(&format!("{field}_"))), "{field}");
            }
        }
    }
}

/// What no row has a value for has its columns nevertheless.
#[test]
fn absent_figures_keep_their_columns() {
    let text = csv::rows(&any(&crate::common::reports::unavailable()));
    let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    for name in ["payload_Bps_median", "payload_Bps_ci95_high", "bytes_per_cycle_ci95_low", "reason"] {
        assert_eq!(names.iter().filter(|known| **known == name).count(), 1, "{name}: {names:?}");
    }
}

/// Markdown holds what the terminal says, whatever names there are.
#[test]
fn markdown_is_whole() {
    for report in [
        crate::common::reports::rich(),
        crate::common::reports::kinds(),
        crate::common::reports::offsets(),
        crate::common::reports::empty(),
    ] {
        let text = markdown::report(&report);
        assert!(report.findings.iter().all(|said| text.contains(said.split([' ', '<']).next().unwrap())), "{text}");
        assert!(!text.split("```").step_by(2).any(|outside| outside.contains("<script")), "{text}");
    }
}
