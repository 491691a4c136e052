//! Commands on latency, whole but for the measuring: plan, simulated machine, record, file, report, every view of it.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use crate::common::schema::Validator;
use crate::common::simulated;
use membound_analyze::across::compare::compare;
use membound_analyze::across::compare::comparison::{Side, Source};
use membound_analyze::across::compare::row::Verdict;
use membound_analyze::across::losses::losses;
use membound_analyze::flag::Flag;
use membound_analyze::hierarchy::names::LevelBest;
use membound_analyze::of_record as model;
use membound_analyze::output::{csv, json};
use membound_analyze::report::Report;
use membound_analyze::row::{AnyRow, Metric, Row};
use membound_core::case::{Case, USUAL_MEMORY, Work, steady};
use membound_core::experiments as plan;
use membound_core::experiments::latency::Detail;
use membound_core::json::parsed;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::fact::Fact;
use membound_core::machine::source::Hypervisor;
use membound_core::record::probes::ProbeSamples;
use membound_core::record::{FirstTouch, Measurement, Outcome, Record};
use membound_core::units::Bytes;
use membound_core::work::c2c::Home;
use membound_core::work::loaded::Load;
use membound_measure::executor::fake::Fake;

/// Each row fits the published schema, and CSV has a column for each field but what memory was obtained and lists of lists.
fn check_rows(report: &Report, metric: &str) -> usize {
    let rows: Vec<&dyn AnyRow> = report.any_rows().collect();
    let schema = serde_json::to_value(schemars::schema_for!(dyn AnyRow)).unwrap();
    let validator = Validator::of(&schema).unwrap();
    let values: Vec<serde_json::Value> = serde_json::from_str(&json::rows(&rows)).unwrap();
    let kept: Vec<serde_json::Value> = rows.iter().map(|row| parsed(&row.json())).collect();
    assert_eq!(kept, values, "rows come back as they went");
    for row in &values {
        assert!(validator.is_valid(row), "{row}");
        assert_eq!(row["metric"], metric);
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
    let cases = plan::latency::latency(&simulated::frame(&machine), Detail::Full).unwrap();
    let record = simulated::run(&machine, &cases, &mut fake);
    assert_eq!(crate::common::by_hand::written_and_read(&record), record);
    let report = model::report(&record);
    assert_eq!(check_rows(&report, "latency"), cases.len());
    for row in &report.latency.rows {
        let (footprint, ns) =
            (row.case.working_set.0 / u64::from(row.chase().stride_bytes) * 64, row.latency_ns.unwrap());
        let truth = fake.latency_ns(footprint, row.chase().chains);
        assert!((ns.median / truth - 1.0).abs() < 0.01, "{truth} is not {row:?}");
    }
    let names: Vec<&str> = report.latency.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names, ["L1", "L2", "L3", "memory"]);
    let parallelism = report.latency.parallelism.as_ref().unwrap();
    assert!((parallelism.lines_in_flight / 10.0 - 1.0).abs() < 0.02, "{parallelism:?}");
}

/// With five seconds the table of levels comes first, then its curve, then the ladder; a minute leaves nothing out.
#[test]
fn a_short_budget_begins_with_the_first_screen() {
    let machine = simulated::machine(2, false);
    let plan =
        |seconds| plan::characterise::characterise(&simulated::frame(&machine), Duration::from_secs(seconds)).unwrap();
    let (quick, whole) = (plan(5), plan(60));
    // Loads, copies and copies with nt stores in memory, loads and copies in three caches, all by one and by two threads; four
    // chases.
    assert_eq!(quick.headline.len(), 2 * (3 + 2 * 3) + 4);
    let is_load = |case: &Case| case.variant().is_some_and(|variant| variant.kernel == "load") && case.threads() == 1;
    assert!(quick.stages[0].iter().all(is_load) && quick.stages[0].len() > 20, "the curve");
    assert!(quick.stages[1].iter().all(|case| matches!(case.work, Work::Chase(_))), "the ladder");
    assert_eq!((quick.cases().len() + quick.left_out, whole.left_out), (whole.cases().len(), 0));
    assert!(quick.headline.iter().all(|(case, _)| whole.headline.iter().any(|(other, _)| other == case)));
}

/// Whoever joins rows of two runs does so by their keys.
#[test]
fn rows_of_a_default_run_differ_in_their_keys() {
    fn differ<F: Metric>(rows: &[Row<F>]) {
        let keys: HashSet<String> = rows.iter().map(|row| serde_json::to_string(&F::keys(row)).unwrap()).collect();
        assert_eq!(keys.len(), rows.len(), "{}", F::NAME);
    }
    let machine = simulated::machine(2, false);
    let plan = plan::characterise::characterise(&simulated::frame(&machine), Duration::from_secs(60)).unwrap();
    let report = model::report(&simulated::run(&machine, &plan.cases(), &mut simulated::fake()));
    assert!(report.rows.len() > 100 && report.latency.rows.len() > 50);
    differ(&report.rows);
    differ(&report.latency.rows);
    differ(&report.pages);
    differ(&report.flops);
}

/// The table of levels stands on one width, that of the curves.
#[test]
fn the_first_screen_is_of_one_width() {
    let machine = simulated::machine(2, false);
    for seconds in [5, 60] {
        let plan = plan::characterise::characterise(&simulated::frame(&machine), Duration::from_secs(seconds)).unwrap();
        // A short run does not reach the matrix of widths.
        let (_, reached) = plan.stages.split_last().unwrap();
        let first = plan.headline.iter().map(|(case, _)| case);
        let cases: Vec<Case> = first.chain(reached.iter().flatten()).cloned().collect();
        let report = model::report(&simulated::run(&machine, &cases, &mut simulated::fake()));
        let of_table = |best: &&LevelBest| ["load", "copy"].contains(&best.kernel.as_str());
        let best = report.levels.all.iter().flat_map(|level| &level.best).filter(of_table);
        let widths: BTreeSet<_> = best.map(|best| report.rows[best.row].width()).collect();
        assert_eq!(widths.len(), 1, "{seconds} s: {widths:?}");
    }
}

/// The headline is visited again and again, a curve twice: the table of levels stands on what was visited often.
#[test]
fn levels_stand_on_rows_with_intervals() {
    let machine = simulated::machine(2, false);
    let plan = plan::characterise::characterise(&simulated::frame(&machine), Duration::from_secs(60)).unwrap();
    let headline: Vec<Case> = plan.headline.iter().map(|(case, _)| case.clone()).collect();
    let mut record = simulated::run(&machine, &plan.cases(), &mut simulated::fake());
    let again = simulated::run(&machine, &headline, &mut simulated::fake());
    record.measurements.extend(again.measurements);
    let report = model::report(&record);
    let of_table = |best: &&LevelBest| ["load", "copy"].contains(&best.kernel.as_str());
    let best = report.levels.all.iter().flat_map(|level| &level.best).filter(of_table);
    let sizes: Vec<_> = best.map(|best| (report.rows[best.row].quality.rounds, &report.rows[best.row].case)).collect();
    assert!(sizes.len() >= 12);
    for (rounds, case) in sizes {
        assert!(rounds == 6 && headline.contains(case), "{rounds} visits: {case}");
    }
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
    for row in &report.handovers.rows {
        let truth = Fake::handover_ns(row.from(), row.to().unwrap());
        assert!((row.latency_ns.unwrap().median / truth - 1.0).abs() < 0.01, "{row:?}");
    }
    let kinds: Vec<String> =
        report.handovers.groups.iter().map(|group| group.kinds.map(|[a, b]| format!("{a}, {b}")).unwrap()).collect();
    assert_eq!(kinds, ["performance, performance", "performance, efficiency", "efficiency, efficiency"]);
    assert_eq!(report.handovers.groups.iter().map(|group| group.rows).collect::<Vec<_>>(), [4, 16, 4]);
}

#[test]
fn latency_under_load_comes_back_from_its_file() {
    let machine = simulated::machine(2, false);
    let mut fake = simulated::fake();
    let cases = plan::c2c::loaded(&simulated::frame(&machine), &[], 4, None).unwrap();
    let record = simulated::run(&machine, &cases, &mut fake);
    assert_eq!(crate::common::by_hand::written_and_read(&record), record);
    let report = model::report(&record);
    assert_eq!(check_rows(&report, "loaded"), 2 + 5 * 4);
    for row in &report.loaded.rows {
        let (rate, ns) = fake.loaded(row.load(), row.case.threads() - 1);
        assert!((row.latency_ns.unwrap().median / ns - 1.0).abs() < 0.01, "{row:?}");
        let found = row.bus_bps.map_or(0.0, |bus| bus.median);
        assert!((found - rate).abs() <= 0.01 * rate, "{rate} is not {row:?}");
        assert!(!row.quality.has(Flag::Starved) && !row.quality.has(Flag::NotMonotone), "{row:?}");
    }
    assert_eq!(report.loaded.curves.len(), 5);
}

/// The ladder's chase in memory and that of `loaded` without load are one case in all but what the others do.
#[test]
fn latency_without_load_is_the_ladders() {
    let machine = simulated::machine(2, false);
    let frame = simulated::frame(&machine);
    let loaded = plan::c2c::loaded(&frame, &[], 4, None).unwrap();
    let chases: Vec<_> = loaded.iter().map(|case| case.shares().unwrap()).collect();
    assert!(chases.windows(2).all(|pair| pair[0] == pair[1]), "all loads share one chase");
    assert!(plan::latency::latency(&frame, Detail::Full).unwrap().contains(&chases[0]), "{}", chases[0]);
}

/// Samples during which the others did not run are no point of a curve.
#[test]
fn loads_that_did_not_run_are_no_loads() {
    let machine = simulated::machine(2, false);
    let cases = plan::c2c::loaded(&simulated::frame(&machine), &[], 4, None).unwrap();
    let mut record = simulated::run(&machine, &cases, &mut simulated::fake());
    let heaviest = cases.last().unwrap();
    for visit in record.measurements.iter_mut().filter(|visit| visit.case == *heaviest) {
        let Outcome::Measured(measured) = &mut visit.outcome else { panic!("{visit:?}") };
        measured.samples.load_repetitions.iter_mut().skip(4).for_each(|repetitions| *repetitions = 0);
    }
    let report = model::report(&record);
    let starved: Vec<Load> =
        report.loaded.rows.iter().filter(|row| row.quality.has(Flag::Starved)).map(|row| row.load()).collect();
    let membound_core::case::Work::Loaded(work) = heaviest.work else { panic!("{heaviest}") };
    assert_eq!(starved, [work.load]);
    let of_curve = |row: &usize| report.loaded.rows[*row].load() != work.load;
    assert!(report.loaded.curves.iter().flat_map(|curve| &curve.rows).all(of_curve));
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
        [plan::c2c::handovers(&frame, &[Home::First]).unwrap(), plan::c2c::loaded(&frame, &[], 4, None).unwrap()]
            .concat();
    let record = simulated::run(&machine, &cases, &mut simulated::fake());
    let outcomes: Vec<bool> = cases
        .iter()
        .map(|case| record.measurements.iter().find(|visit| visit.case == *case).unwrap())
        .map(|visit| matches!(&visit.outcome, Outcome::Unavailable { reason } if reason.contains("needs two cores")))
        .collect();
    assert_eq!(outcomes, [true, false, true]);
    assert!(!record.measurements.iter().any(|visit| visit.outcome.is_failure()));
}

/// Visits to copies by two threads that hand a line to each other: each is given the nanoseconds of a hand-over, and by how much it is
/// slower than the fastest.
fn handing_over(visits: impl IntoIterator<Item = (f64, u64)>) -> Record {
    let mut machine = simulated::machine(2, false);
    machine.identity.hypervisor = Fact::Known(Hypervisor::Unnamed);
    let case = steady("copy", Width::W256, StoreKind::Nt, USUAL_MEMORY, vec![0, 1], Bytes::mib(512));
    let record = simulated::run(&machine, &[case], &mut simulated::fake());
    let hz = record.header.clock.hz.0;
    let visit = |(round, (ns, slower)): (usize, (f64, u64))| {
        let mut visit = Measurement { round: round as u32, ..record.measurements[0].clone() };
        let Outcome::Measured(measured) = &mut visit.outcome else { panic!("{visit:?}") };
        measured.samples.ticks.iter_mut().for_each(|ticks| *ticks *= slower);
        measured.samples.thread_ticks.iter_mut().flatten().for_each(|ticks| *ticks *= slower);
        let ticks = (ns * 1e-9 * hz) as u32;
        let hand_over_ticks = vec![vec![ticks; measured.samples.ticks.len()]];
        measured.samples.probes = Some(ProbeSamples { hand_over_ticks, ..ProbeSamples::default() });
        visit
    };
    Record { measurements: visits.into_iter().enumerate().map(visit).collect(), ..record }
}

const CLOSE: (f64, u64) = (25.0, 2);
const FAR: (f64, u64) = (150.0, 1);

/// One visit of three is in the second state.
fn mostly(usual: (f64, u64), seldom: (f64, u64)) -> Record {
    handing_over((0..30).map(|round| if round % 3 == 0 { seldom } else { usual }))
}

#[test]
fn where_a_host_had_the_cpus_is_told() {
    let report = model::report(&mostly(CLOSE, FAR));
    let states = report.host_states.as_ref().unwrap();
    assert_eq!((states.visits, states.effects.len()), ([20, 10], 1));
    assert!((states.hand_over_ns[0] - 25.0).abs() < 1.0 && (states.hand_over_ns[1] - 150.0).abs() < 1.0, "{states:?}");
    assert!((states.effects[0].factor[0] - 2.0).abs() < 0.05 && states.effects[0].visits == [20, 10], "{states:?}");
    let losses = losses(&report);
    assert!(losses.iter().any(|loss| loss.what.contains("67% of the visits")), "{losses:?}");
    // The same two CPUs were as far apart each time.
    let near = mostly(CLOSE, (CLOSE.0, FAR.1));
    assert_eq!(model::report(&near).host_states, None);
}

/// What few visits reached between two caches is no limit of what many reach behind one.
#[test]
fn a_limit_is_of_where_the_cpus_mostly_were() {
    let mut record = mostly(CLOSE, FAR);
    let with = |kernel: &str, store: StoreKind, slower: f64| {
        let of_other = move |visit: &Measurement| {
            let mut visit = visit.clone();
            visit.case = steady(kernel, Width::W256, store, USUAL_MEMORY, vec![0, 1], Bytes::mib(512));
            let Outcome::Measured(measured) = &mut visit.outcome else { panic!("{visit:?}") };
            let ticks = measured.samples.ticks.iter_mut().chain(measured.samples.thread_ticks.iter_mut().flatten());
            ticks.for_each(|ticks| *ticks = (*ticks as f64 * slower) as u64);
            visit
        };
        record.measurements.iter().map(of_other).collect::<Vec<_>>()
    };
    let (plain, others) = (with("copy", StoreKind::Regular, 1.5), with("load", StoreKind::Regular, 0.5));
    // Two visits of the loads, both far apart.
    record.measurements.extend(plain.into_iter().chain([others[0].clone(), others[3].clone()]));
    let report = model::report(&record);
    let rate = |kernel, store| report.rows.iter().find(|row| (row.kernel(), row.store()) == (kernel, store)).unwrap();
    let (nt, load) =
        (rate("copy", StoreKind::Nt).undisturbed_bps(), rate("load", StoreKind::Regular).undisturbed_bps());
    let gap = report.verdict.gap.as_ref().unwrap();
    assert_eq!((gap.kernel.as_str(), gap.limit_bps), ("copy", nt), "{gap:?}, loads {load}");
    assert!(load > 1.5 * nt);
}

/// A row shows where the CPUs mostly were, and the other place stands beside it; what one gets is both: of three visits two take twice
/// as long, so a mean visit takes 5/3 times as long as a fast one.
#[test]
fn figures_are_of_where_the_cpus_mostly_were() {
    let fast = model::report(&handing_over([FAR; 30])).rows[0].undisturbed_bps();
    for (record, share, experienced) in [(mostly(CLOSE, FAR), 0.5, 0.6), (mostly(FAR, CLOSE), 1.0, 0.75)] {
        let report = model::report(&record);
        let row = report.rows[0].payload_bps.unwrap();
        let (seldom, visits) = report.host_states.as_ref().unwrap().seldom(0).unwrap();
        assert!((row.value() / fast - share).abs() < 0.02, "{} {fast}", row.value());
        assert!((row.experienced / fast - experienced).abs() < 0.02, "{} {fast}", row.experienced);
        assert!((seldom.value() / fast - (1.5 - share)).abs() < 0.02 && visits == 10, "{seldom:?}");
        let quality = &report.rows[0].quality;
        assert!(quality.rounds == 30 && !quality.has(Flag::Drift) && !quality.has(Flag::Bimodal), "{quality:?}");
    }
    // Four visits show no interval.
    let few = model::report(&handing_over((0..30).map(|round| if round < 26 { FAR } else { CLOSE })));
    assert_eq!(few.host_states.unwrap().effects, []);
}

/// Each of two runs is held against the other where both met it, even one that met nothing else.
#[test]
fn what_is_compared_was_at_one_place() {
    let runs = [mostly(CLOSE, FAR), mostly(FAR, CLOSE), handing_over([CLOSE; 30]), handing_over([FAR; 30])];
    let side = |run: &Record| Side { name: "run".into(), source: Source::Records(vec![run.clone()]) };
    let speed = |a: usize, b: usize| compare(&side(&runs[a]), &side(&runs[b]), 0.01).rows[0].speed.unwrap();
    for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)] {
        assert!((speed(a, b) - 1.0).abs() < 0.02, "{a} {b}: {}", speed(a, b));
    }
    // These two have no place in common, and are no slower or faster machines for it.
    let rows = compare(&side(&runs[2]), &side(&runs[3]), 0.01).rows;
    assert!((rows[0].speed.unwrap() - 2.0).abs() < 0.04 && rows[0].verdict == Verdict::HostState, "{rows:?}");
    assert!(rows[0].speed_ci95_family.unwrap()[0] == 1.0, "{rows:?}");
}

/// A guest's run whose memory the host had taken back, and the same where it was at hand: 1 GiB of each of two threads.
#[test]
fn first_touch_of_memory_that_a_host_took_back_is_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    std::fs::write(&path, crate::common::readme_record()).unwrap();
    let mut record = Record::read(&path).unwrap();
    let hz = record.header.clock.hz.0;
    let at = record.measurements.iter().position(|visit| visit.case.threads() == 2).unwrap();
    let mut loss = |seconds: f64| {
        let Outcome::Measured(measured) = &mut record.measurements[at].outcome else { panic!() };
        measured.samples.first_touch = Some(FirstTouch { bytes: 2 << 30, ticks: (seconds * hz) as u64 });
        let report = model::report(&record);
        losses(&report).into_iter().find(|loss| loss.what.contains("had taken it back"))
    };
    let slow = loss(4.0).unwrap();
    assert!(slow.what.starts_with("first touch of 2 GiB") && slow.what.contains("0.268 GB/s per thread"), "{slow:?}");
    assert!(slow.factor[0] > 10.0, "{slow:?}");
    assert_eq!(loss(0.3), None);
}
