//! Commands on latency, whole but for the measuring: plan, simulated machine, record, file, report, every view of it.

mod common;

use common::simulated;
use membound::model::{self, AnyRow, Report};
use membound::plan::{self, Detail, Home, Load};
use membound::record::Outcome;
use membound::run::fake::Fake;
use membound::view::{csv, json};

/// Each row fits the published schema, and CSV has a column for each field but what memory was obtained and lists of lists.
fn check_rows(report: &Report, metric: &str) -> usize {
    let rows: Vec<AnyRow> = report.any_rows().collect();
    let schema = serde_json::to_value(schemars::schema_for!(AnyRow)).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let values: Vec<serde_json::Value> = serde_json::from_str(&json::rows(&rows)).unwrap();
    for row in &values {
        assert!(validator.is_valid(row), "{row}");
        assert_eq!(row["metric"], metric);
        let kept: AnyRow = serde_json::from_value(row.clone()).unwrap();
        assert_eq!(serde_json::to_value(&kept).unwrap(), *row, "a row comes back as it went");
    }
    let text = csv::rows(&rows);
    let mut lines = ::csv::Reader::from_reader(text.as_bytes());
    let heads: Vec<String> = lines.headers().unwrap().iter().map(String::from).collect();
    for (line, row) in lines.records().zip(&values) {
        assert_eq!(line.unwrap().len(), heads.len());
        for field in
            row.as_object().unwrap().keys().filter(|field| !["obtained", "mask_bits"].contains(&field.as_str()))
        {
            assert!(
                heads.iter().any(|head| head == field || head.starts_with(&format!("{field}_"))),
                "{field}: {heads:?}"
            );
        }
    }
    values.len()
}

#[test]
fn latency_comes_back_from_its_file() {
    let machine = simulated::machine(1, false);
    let mut fake = simulated::fake();
    let cases = plan::latency(&simulated::frame(&machine), Detail::Full).unwrap();
    let record = simulated::run(&machine, &cases, &mut fake);
    assert_eq!(common::by_hand::written_and_read(&record), record);
    let report = model::report(&record);
    assert_eq!(check_rows(&report, "latency"), cases.len());
    for row in &report.latency.rows {
        let (footprint, ns) = (row.working_set_bytes.0 / u64::from(row.stride_bytes) * 64, row.latency_ns.unwrap());
        let truth = fake.latency_ns(footprint, row.chains);
        assert!((ns.median / truth - 1.0).abs() < 0.01, "{truth} is not {row:?}");
    }
    let names: Vec<&str> = report.latency.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names, ["L1", "L2", "L3", "memory"]);
    let parallelism = report.latency.parallelism.as_ref().unwrap();
    assert!((parallelism.lines_in_flight / 10.0 - 1.0).abs() < 0.02, "{parallelism:?}");
}

#[test]
fn a_map_has_a_line_a_node() {
    let report = simulated::map(4);
    assert_eq!(check_rows(&report, "latency"), 4 * 2 * 3);
    let lines: Vec<_> = report.latency.map.iter().map(|line| (line.node, line.cores.len())).collect();
    assert_eq!(lines, [(Some(0), 4), (Some(1), 4)]);
}

#[test]
fn hand_overs_come_back_from_their_file() {
    let report = simulated::c2c(4, true);
    assert_eq!(check_rows(&report, "c2c"), 4 * 3 * 2);
    for row in &report.handovers {
        let truth = Fake::handover_ns(row.from, row.to.unwrap());
        assert!((row.latency_ns.unwrap().median / truth - 1.0).abs() < 0.01, "{row:?}");
    }
    let kinds: Vec<String> =
        report.handover_groups.iter().map(|group| group.kinds.map(|[a, b]| format!("{a}, {b}")).unwrap()).collect();
    assert_eq!(kinds, ["performance, performance", "performance, efficiency", "efficiency, efficiency"]);
    assert_eq!(report.handover_groups.iter().map(|group| group.rows).collect::<Vec<_>>(), [4, 16, 4]);
}

#[test]
fn latency_under_load_comes_back_from_its_file() {
    let machine = simulated::machine(2, false);
    let mut fake = simulated::fake();
    let cases = plan::loaded(&simulated::frame(&machine), &[], 4, None).unwrap();
    let record = simulated::run(&machine, &cases, &mut fake);
    assert_eq!(common::by_hand::written_and_read(&record), record);
    let report = model::report(&record);
    assert_eq!(check_rows(&report, "loaded"), 2 + 5 * 4);
    for row in &report.loaded {
        let (rate, ns) = fake.loaded(row.load, row.threads - 1);
        assert!((row.latency_ns.unwrap().median / ns - 1.0).abs() < 0.01, "{row:?}");
        let found = row.bus_bps.map_or(0.0, |bus| bus.median);
        assert!((found - rate).abs() <= 0.01 * rate, "{rate} is not {row:?}");
        assert!(!row.quality.has("starved") && !row.quality.has("not-monotone"), "{row:?}");
    }
    assert_eq!(report.load_curves.len(), 5);
}

/// The ladder's chase in memory and that of `loaded` without load are one case in all but what the others do.
#[test]
fn latency_without_load_is_the_ladders() {
    let machine = simulated::machine(2, false);
    let frame = simulated::frame(&machine);
    let loaded = plan::loaded(&frame, &[], 4, None).unwrap();
    let chases: Vec<_> = loaded.iter().map(|case| case.shares().unwrap()).collect();
    assert!(chases.windows(2).all(|pair| pair[0] == pair[1]), "all loads share one chase");
    assert!(plan::latency(&frame, Detail::Full).unwrap().contains(&chases[0]), "{}", chases[0]);
}

/// Samples during which the others did not run are no point of a curve.
#[test]
fn loads_that_did_not_run_are_no_loads() {
    let machine = simulated::machine(2, false);
    let cases = plan::loaded(&simulated::frame(&machine), &[], 4, None).unwrap();
    let mut record = simulated::run(&machine, &cases, &mut simulated::fake());
    let heaviest = cases.last().unwrap();
    for visit in record.measurements.iter_mut().filter(|visit| visit.case == *heaviest) {
        let Outcome::Measured(measured) = &mut visit.outcome else { panic!("{visit:?}") };
        measured.samples.load_repetitions.iter_mut().skip(4).for_each(|repetitions| *repetitions = 0);
    }
    let report = model::report(&record);
    let starved: Vec<Load> =
        report.loaded.iter().filter(|row| row.quality.has("starved")).map(|row| row.load).collect();
    let membound::plan::Work::Loaded(work) = heaviest.work else { panic!("{heaviest}") };
    assert_eq!(starved, [work.load]);
    let of_curve = |row: &usize| report.loaded[*row].load != work.load;
    assert!(report.load_curves.iter().flat_map(|curve| &curve.rows).all(of_curve));
}

#[test]
fn where_lines_live_is_a_row_whatever_comes_of_it() {
    for target in [Some((|address| address >> 6 & 7) as fn(u64) -> u64), None] {
        assert_eq!(check_rows(&simulated::addrmap(target), "addrmap"), 1);
    }
}

/// What needs two cores says so; what does not, is measured.
#[test]
fn one_core_is_an_outcome() {
    let machine = simulated::machine(1, false);
    let frame = simulated::frame(&machine);
    let cases: Vec<_> =
        [plan::handovers(&frame, &[Home::First]).unwrap(), plan::loaded(&frame, &[], 4, None).unwrap()].concat();
    let record = simulated::run(&machine, &cases, &mut simulated::fake());
    let outcomes: Vec<bool> = cases
        .iter()
        .map(|case| record.measurements.iter().find(|visit| visit.case == *case).unwrap())
        .map(|visit| matches!(&visit.outcome, Outcome::Unavailable { reason } if reason.contains("needs two cores")))
        .collect();
    assert_eq!(outcomes, [true, false, true]);
    assert!(!record.measurements.iter().any(|visit| visit.outcome.is_failure()));
}
