//! The health of a node: decisions on simulated machines, the line for a scheduler, the file for Prometheus, busy nodes,
//! bad baselines; and `membound check` as the health check of a Slurm of four nodes, which drains the faulty one.

use std::fs;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::by_hand::{clock, unknown_machine};
use crate::common::program::{self, TOO_BUSY, lacked_time, text};
use crate::common::schema::Validator;
use crate::common::skip::skip;
use crate::common::slurm::Slurm;
use crate::common::{by_hand, simulated, slurm};
use membound_analyze::across::check::{Against, CheckRow, Checkup, Criteria, Health, Probe};
use membound_analyze::across::compare::environment::Change;
use membound_analyze::across::{check, sections};
use membound_analyze::of_record as model;
use membound_analyze::output::prometheus::Told;
use membound_analyze::output::{csv, json, prometheus, terminal};
use membound_core::case::Case;
use membound_core::experiments as plan;
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::machine::firmware::Dimm;
use membound_core::machine::spec::Sheet;
use membound_core::record::{Outcome, Record};
use membound_core::units::Bytes;
use membound_measure::executor::fake::Fake;

// ---------------------------------------------------------------- decisions

/// The simulated machine; memory and what all cores get from it at so many times its usual speed.
fn fake(seed: u64, memory: f64) -> Fake {
    let mut levels = simulated::fake().levels;
    let last = levels.last_mut().unwrap();
    last.bytes_per_s *= memory;
    last.shared_bytes_per_s *= memory;
    Fake::new(levels, simulated::fake().noise, seed)
}

struct Scene {
    machine: Machine,
    probes: Vec<Probe>,
    criteria: Criteria,
}

/// A node of two cores and its baseline.
fn scene() -> Scene {
    let machine = simulated::machine(2, false);
    let frame = simulated::frame(&machine);
    let cases = plan::check::check(&frame).unwrap();
    let baseline = simulated::run(&machine, &cases, &mut fake(1, 1.0));
    let probes = check::probes(&model::report(&baseline));
    // What the record says of its cases is what they were planned for.
    let mut planned = check::planned(&cases, &frame);
    planned.sort_by(|x, y| x.quantity.cmp(&y.quantity));
    let mut found = probes.clone();
    found.sort_by(|x, y| x.quantity.cmp(&y.quantity));
    assert_eq!(found, planned);
    let criteria =
        Criteria { baseline: vec![check::trimmed(&baseline, &probes)], tolerance: 0.05, ..Criteria::default() };
    Scene { machine, probes, criteria }
}

impl Scene {
    fn measured(&self, probes: &[Probe], fake: &mut Fake) -> Record {
        let cases: Vec<Case> = probes.iter().map(|probe| probe.case.clone()).collect();
        simulated::run(&self.machine, &cases, fake)
    }

    fn look(&self, fake: &mut Fake) -> Checkup {
        check::look(&self.probes, &self.criteria, &self.measured(&self.probes, fake))
    }

    /// Held against its sheet alone, after so many visits of each case.
    fn held_to_sheet(&self, rounds: u32, fake: &mut Fake) -> Checkup {
        let cases: Vec<Case> = self.probes.iter().map(|probe| probe.case.clone()).collect();
        let record = simulated::in_rounds(&self.machine, &[(&cases, rounds)], fake);
        check::look(&self.probes, &self.criteria, &record)
    }

    fn nothing(&self) -> Record {
        by_hand::record(clock(1e9), self.machine.clone(), Vec::new())
    }
}

fn of<'a>(checkup: &'a Checkup, quantity: &str) -> &'a CheckRow {
    checkup.rows.iter().find(|row| row.quantity == quantity).unwrap_or_else(|| panic!("no {quantity}"))
}

fn degraded(checkup: &Checkup) -> Vec<&str> {
    checkup.degraded().map(|row| row.quantity.as_str()).collect()
}

#[test]
fn a_check_has_few_cases_and_looks_at_every_level() {
    let scene = scene();
    let quantities: Vec<&str> = scene.probes.iter().map(|probe| probe.quantity.as_str()).collect();
    assert_eq!(
        quantities,
        [
            "memory read",
            "memory write",
            "memory copy",
            "memory triad",
            "memory latency",
            "memory read, one core",
            "L3 read, one core",
            "L2 read, one core",
            "L1 read, one core"
        ]
    );
    let round: Duration = scene.probes.iter().map(|probe| probe.case.least_time()).sum();
    assert!(round < Duration::from_secs(3), "{round:?}");
}

#[test]
fn a_machine_of_one_cpu_has_each_case_once() {
    let machine = simulated::machine(1, false);
    let cases = plan::check::check(&simulated::frame(&machine)).unwrap();
    let record = simulated::run(&machine, &cases, &mut fake(1, 1.0));
    let probes = check::probes(&model::report(&record));
    assert_eq!((cases.len(), probes.len()), (8, 8), "{probes:#?}");
}

#[test]
fn a_default_run_is_a_baseline() {
    let machine = simulated::machine(2, false);
    let cases = plan::characterise::characterise(&simulated::frame(&machine), Duration::from_secs(60)).unwrap().cases();
    let record = simulated::run(&machine, &cases, &mut fake(1, 1.0));
    let probes = check::probes(&model::report(&record));
    assert_eq!(probes.len(), 9, "{probes:#?}");
    let trimmed = check::trimmed(&record, &probes);
    assert!(trimmed.measurements.len() < record.measurements.len() / 20);
    assert!(trimmed.measurements.len() >= 2 * probes.len(), "two visits of each and more");
}

#[test]
fn a_healthy_node_is_healthy() {
    let scene = scene();
    for seed in 2..30 {
        let checkup = scene.look(&mut fake(seed, 1.0));
        assert!(!checkup.is_degraded() && !checkup.is_unable(), "{:?}", checkup.line());
        assert_eq!(checkup.line(), "");
        // Slower, but within the tolerance.
        assert!(!scene.look(&mut fake(seed, 0.97)).is_degraded());
    }
}

#[test]
fn slow_memory_is_found_and_caches_are_not_accused() {
    let scene = scene();
    let checkup = scene.look(&mut fake(2, 0.8));
    let names =
        ["memory read", "memory write", "memory copy", "memory triad", "memory latency", "memory read, one core"];
    assert_eq!(degraded(&checkup), names);
    let read = of(&checkup, "memory read");
    assert!((read.ratio.unwrap() - 0.8).abs() < 0.01, "{read:?}");
    assert_eq!((read.against, read.least_ratio), (Some(Against::Baseline), Some(0.95)));
    assert_eq!(of(&checkup, "L1 read, one core").health, Health::Healthy);
    // A latency is more, not less.
    let alone = Checkup { rows: vec![of(&checkup, "memory latency").clone()], ..Checkup::default() };
    assert!(alone.line().contains("memory latency +25 %"), "{}", alone.line());
    let faster = scene.look(&mut fake(2, 1.3));
    assert!(!faster.is_degraded(), "{}", faster.line());
}

#[test]
fn what_is_seen_once_drains_no_node() {
    let scene = scene();
    let first = scene.look(&mut fake(2, 0.7));
    let suspects = first.suspects(&scene.probes);
    assert_eq!(suspects.len(), 6);
    let again = |memory| {
        let record = scene.measured(&suspects, &mut fake(9, memory));
        check::confirmed(first.clone(), &check::look(&suspects, &scene.criteria, &record))
    };
    let recovered = again(1.0);
    assert!(!recovered.is_degraded());
    assert_eq!(of(&recovered, "memory read").health, Health::Recovered);
    // Of two looks the milder is told.
    let milder = again(0.85);
    assert_eq!(degraded(&milder).len(), 6);
    assert!((of(&milder, "memory read").ratio.unwrap() - 0.85).abs() < 0.01);
    assert!((of(&again(0.6), "memory read").ratio.unwrap() - 0.7).abs() < 0.01);
}

#[test]
fn what_cannot_be_seen_again_drains_no_node() {
    let scene = scene();
    let mut record = scene.measured(&scene.probes, &mut fake(2, 0.7));
    for visit in &mut record.measurements {
        let Outcome::Measured(measured) = &mut visit.outcome else { continue };
        measured.samples.core_clock_ticks.iter_mut().for_each(|ticks| *ticks *= 2);
    }
    let first = check::look(&scene.probes, &scene.criteria, &record);
    assert!(degraded(&first).contains(&"core clock") && degraded(&first).contains(&"memory read"), "{first:?}");
    let second = check::look(&first.suspects(&scene.probes), &scene.criteria, &scene.nothing());
    let checkup = check::confirmed(first, &second);
    assert!(!checkup.is_degraded(), "{}", checkup.line());
    let clock = of(&checkup, "core clock");
    assert_eq!((clock.health, clock.reason.as_deref()), (Health::Unknown, Some("it could not be seen again")));
}

#[test]
fn a_crash_is_degraded_and_too_little_time_is_not() {
    let scene = scene();
    let mut crashing = fake(2, 1.0);
    crashing.crashes = Some("triad".into());
    let checkup = scene.look(&mut crashing);
    assert_eq!(degraded(&checkup), ["memory triad"]);
    assert!(checkup.line().starts_with("memory triad: crashed: the kernel was stopped"), "{}", checkup.line());
    assert!(checkup.open().is_empty(), "a crash is told: {:?}", checkup.open());
    let checkup = check::look(&scene.probes, &scene.criteria, &scene.nothing());
    assert!(checkup.is_unable() && !checkup.is_degraded());
    assert!(of(&checkup, "memory read").reason.as_ref().unwrap().contains("no time"));
}

#[test]
fn one_visit_a_side_tells_nothing() {
    let mut scene = scene();
    for record in &mut scene.criteria.baseline {
        record.measurements.retain(|visit| visit.round == 0);
    }
    let checkup = scene.look(&mut fake(2, 0.5));
    assert!(of(&checkup, "memory read").health == Health::Unknown, "{checkup:?}");
    assert!(of(&checkup, "memory read").reason.as_ref().unwrap().contains("too few visits"));
    assert!(checkup.is_unable(), "the clock alone says little");
}

#[test]
fn facts_that_changed_are_told() {
    let mut scene = scene();
    let total = |scene: &mut Scene, bytes: Bytes| {
        scene.criteria.baseline[0].header.machine.memory.total = Fact::Known(bytes);
    };
    let now = scene.machine.memory.total.get().unwrap();
    // The kernel keeps a little more for itself; another host; another kernel.
    total(&mut scene, Bytes(now.0 / 100 * 101));
    scene.criteria.baseline[0].header.host = "other".into();
    scene.criteria.baseline[0].header.machine.identity.kernel = Fact::Known("6.1".into());
    assert_eq!(scene.look(&mut fake(2, 1.0)).facts, []);
    total(&mut scene, Bytes(2 * now.0));
    let checkup = scene.look(&mut fake(2, 1.0));
    assert!(checkup.is_degraded());
    assert_eq!(checkup.line(), "memory 16 GiB (baseline 32 GiB)");
    // CPUs that went offline.
    total(&mut scene, now);
    scene.criteria.baseline[0].header.machine = simulated::machine(4, false);
    let checkup = scene.look(&mut fake(2, 1.0));
    assert_eq!(checkup.line(), "CPUs 2 (baseline 4)");
    let mut modules = scene.machine.clone();
    modules.dimms = Fact::Known(vec![by_hand::module(); 8]);
    scene.criteria.baseline[0].header.machine = modules;
    scene.machine.dimms = Fact::Known(vec![by_hand::module(); 7]);
    assert_eq!(scene.look(&mut fake(2, 1.0)).line(), "7 of 8 memory modules");
    let slow = by_hand::module();
    scene.machine.dimms = Fact::Known(vec![Dimm { configured_mt_s: Fact::Known(4000), ..slow }; 8]);
    let line = scene.look(&mut fake(2, 1.0)).line();
    assert_eq!(line, "memory modules 8 of 32 GiB at 4000 MT/s (baseline 8 of 32 GiB at 4800 MT/s)");
}

/// Eight channels of 8 bytes at so many MT/s.
fn sheet(mt_s: u32) -> Sheet {
    let text = format!(
        "name = \"test\"\nsource = \"made up\"\n[[memory]]\nname = \"DDR\"\nchannels = 8\nmt_s = {mt_s}\nwidth_bits = 64\n"
    );
    Sheet::parse(&text, "test").unwrap()
}

#[test]
fn a_sheet_is_a_ground_too() {
    let mut scene = scene();
    scene.criteria.baseline.clear();
    // Memory gives 12 GB/s together; the sheet promises 8 x 8 x 250 MT/s = 16 GB/s.
    scene.criteria.sheet = Some(sheet(250));
    scene.criteria.reach = 0.6;
    let checkup = scene.held_to_sheet(5, &mut fake(2, 1.0));
    let read = of(&checkup, "memory read");
    assert!((read.ratio.unwrap() - 0.75).abs() < 0.01, "{read:?}");
    assert_eq!((checkup.rows.len(), checkup.is_degraded(), checkup.is_unable()), (1, false, false));
    scene.criteria.reach = 0.9;
    let line = scene.held_to_sheet(5, &mut fake(2, 1.0)).line();
    assert_eq!(line, "memory read 75 % of 16.0 GB/s (spec, limit 90 %)");
    scene.criteria.reach = 0.6;
    let mut crashing = fake(2, 1.0);
    crashing.crashes = Some("triad".into());
    let line = scene.held_to_sheet(5, &mut crashing).line();
    assert!(line.contains("crashed"), "no sheet tells of a triad, and it must run all the same: {line}");
    scene.machine.dimms = Fact::Known(vec![by_hand::module(); 7]);
    let line = scene.held_to_sheet(5, &mut fake(2, 1.0)).line();
    assert!(line.ends_with("7 of 8 channels"), "{line}");
}

#[test]
fn a_sheet_judges_by_what_visits_tell_and_what_is_seen_again() {
    let mut scene = scene();
    scene.criteria = Criteria { sheet: Some(sheet(250)), reach: 0.9, ..Criteria::default() };
    let first = scene.held_to_sheet(5, &mut fake(2, 1.0));
    assert_eq!(degraded(&first), ["memory read"]);
    assert!(of(&first, "memory read").ratio_ci95.is_some());
    // Of four visits there is a range and no interval; of one there is nothing.
    let few = scene.held_to_sheet(4, &mut fake(2, 1.0));
    let read = of(&few, "memory read");
    assert_eq!((read.health, read.ratio_ci95), (Health::Degraded, None));
    let one = scene.held_to_sheet(1, &mut fake(2, 1.0));
    let read = of(&one, "memory read");
    assert_eq!((read.health, one.is_unable()), (Health::Unknown, true));
    assert!(read.reason.as_ref().is_some_and(|why| why.contains("2 needed")), "{read:?}");
    // Less than that, and too near to it for a few visits.
    scene.criteria.reach = 0.755;
    assert_eq!(of(&scene.held_to_sheet(4, &mut fake(2, 1.0)), "memory read").health, Health::TooNoisy);
    scene.criteria.reach = 0.9;
    let again = |first: &Checkup| {
        check::confirmed(first.clone(), &check::look(&scene.probes, &scene.criteria, &scene.nothing()))
    };
    assert_eq!(of(&again(&first), "memory read").health, Health::Unknown);
    let mut crashing = fake(2, 1.0);
    crashing.crashes = Some("triad".into());
    let crashed = scene.held_to_sheet(5, &mut crashing);
    assert!(degraded(&crashed).contains(&"memory triad"), "{crashed:?}");
    let reason = of(&again(&crashed), "memory triad").reason.clone().unwrap();
    assert!(reason.starts_with("crashed") && reason.ends_with("it could not be seen again"), "{reason}");
    // No sheet judges a triad: it need only run.
    let recovered = check::confirmed(crashed, &scene.held_to_sheet(5, &mut fake(2, 1.0)));
    assert_eq!(of(&recovered, "memory triad").health, Health::Recovered);
}

/// Eight channels of DDR as in [`sheet`], and ports: 64 B in a cycle from L1, 32 B from L2.
fn sheet_with_caches(mt_s: u32) -> Sheet {
    let text = format!(
        "name = \"test\"\nsource = \"made up\"\n[[memory]]\nname = \"DDR\"\nchannels = 8\nmt_s = {mt_s}\nwidth_bits = 64\n\
         [[cores]]\nname = \"core\"\nclock_ghz = 3.0\n[[cores.caches]]\nlevel = 1\nsize = \"32KiB\"\nload_bytes = 64\n\
         [[cores.caches]]\nlevel = 2\nsize = \"1MiB\"\nload_bytes = 32\n"
    );
    Sheet::parse(&text, "test").unwrap()
}

/// What a sheet would judge, and could not be measured, is told, and no healthy figure stands in for it.
#[test]
fn what_a_sheet_would_judge_and_nobody_measured_is_unknown() {
    let mut scene = scene();
    scene.criteria = Criteria { sheet: Some(sheet_with_caches(250)), reach: 0.01, ..Criteria::default() };
    let cases: Vec<Case> = scene.probes.iter().map(|probe| probe.case.clone()).collect();
    let record = simulated::in_rounds(&scene.machine, &[(&cases, 5)], &mut fake(2, 1.0));
    let read = scene.probes[0].case.clone();
    let mut unvisited = record.clone();
    unvisited.measurements.retain(|visit| visit.case != read);
    let mut unavailable = record;
    let of_read = unavailable.measurements.iter_mut().filter(|visit| visit.case == read);
    of_read.for_each(|visit| visit.outcome = Outcome::Unavailable { reason: "too little free memory".into() });
    for (record, why) in [(unvisited, "no time was left for it"), (unavailable, "unavailable: too little free memory")]
    {
        let checkup = check::look(&scene.probes, &scene.criteria, &record);
        let read = of(&checkup, "memory read");
        assert_eq!((read.health, read.against, read.value), (Health::Unknown, Some(Against::Sheet), None));
        assert_eq!(checkup.open(), [format!("memory read: {why}")]);
        assert_eq!((checkup.is_degraded(), checkup.is_unable()), (false, false), "{checkup:?}");
        assert_eq!(of(&checkup, "L1 read, one core").health, Health::Healthy);
    }
    // Where memory alone has a limit, nothing is left that could be told.
    scene.criteria.sheet = Some(sheet(250));
    let nothing = check::look(&scene.probes, &scene.criteria, &scene.nothing());
    assert!(nothing.is_unable());
    assert_eq!(nothing.why_unable(), "memory read: no time was left for it; give a longer --budget");
    // A sheet that limits nothing is no lack of time.
    let cores = "name = \"test\"\nsource = \"made up\"\n[[cores]]\nname = \"core\"\n";
    scene.criteria.sheet = Some(Sheet::parse(cores, "test").unwrap());
    let unlimited = scene.held_to_sheet(5, &mut fake(2, 1.0));
    assert!(unlimited.is_unable() && unlimited.why_unable().starts_with("the sheet has no limit"), "{unlimited:?}");
}

/// Nothing says that it is the node, and not its sheet, that is wrong.
#[test]
fn faster_than_its_sheet_is_healthy() {
    let mut scene = scene();
    // Memory gives 12 GB/s together; the sheet promises 8 x 8 x 100 MT/s = 6.4 GB/s.
    scene.criteria = Criteria { sheet: Some(sheet(100)), ..Criteria::default() };
    let checkup = scene.held_to_sheet(5, &mut fake(2, 1.0));
    assert_eq!(degraded(&checkup), [""; 0], "{checkup:?}");
    let read = of(&checkup, "memory read");
    assert_eq!((read.health, read.ratio.map(|ratio| ratio > 1.8)), (Health::Healthy, Some(true)));
    // Baseline and now were measured alike, whatever a sheet says that is wrong: 9.6 of 12 GB/s are four fifths.
    scene.criteria = Criteria { sheet: scene.criteria.sheet, reach: 0.6, ..self::scene().criteria };
    assert_eq!(of(&scene.held_to_sheet(5, &mut fake(2, 1.0)), "memory read").health, Health::Healthy);
    let slower = scene.held_to_sheet(5, &mut fake(2, 0.8));
    let read = of(&slower, "memory read");
    assert_eq!((read.against, read.health), (Some(Against::Baseline), Health::Degraded));
    assert!((read.ratio.unwrap() - 0.8).abs() < 0.01, "{read:?}");
}

#[test]
fn a_crash_in_one_visit_is_not_healthy_whatever_the_others_reached() {
    let mut scene = scene();
    scene.criteria = Criteria { sheet: Some(sheet(250)), reach: 0.6, ..Criteria::default() };
    let cases: Vec<Case> = scene.probes.iter().map(|probe| probe.case.clone()).collect();
    let mut record = simulated::in_rounds(&scene.machine, &[(&cases, 5)], &mut fake(2, 1.0));
    let visit = record.measurements.iter_mut().find(|visit| visit.case == scene.probes[0].case).unwrap();
    visit.outcome = Outcome::Crashed { reason: "SIGILL".into() };
    let checkup = check::look(&scene.probes, &scene.criteria, &record);
    assert_eq!(degraded(&checkup), ["memory read"], "{checkup:?}");
    assert_eq!(checkup.line(), "memory read: crashed: SIGILL");
    // Slow in the first look, and crashed in the second, is nothing that could not be seen again.
    scene.criteria.reach = 0.9;
    let slow = scene.held_to_sheet(5, &mut fake(2, 1.0));
    assert_eq!(degraded(&check::confirmed(slow.clone(), &checkup)), ["memory read"]);
    // Nor is a crash in the first mended by being slow in the second.
    assert_eq!(degraded(&check::confirmed(checkup.clone(), &slow)), ["memory read"]);
    // Nor is it where a baseline, against which it was healthy, tells of the crash.
    scene.criteria.baseline = self::scene().criteria.baseline;
    scene.criteria.tolerance = 0.05;
    let first = scene.held_to_sheet(5, &mut fake(2, 1.0));
    let against: Vec<Option<Against>> = first.degraded().map(|row| row.against).collect();
    assert_eq!(against, [Some(Against::Sheet)]);
    let second = check::look(&scene.probes, &scene.criteria, &record);
    assert_eq!(degraded(&check::confirmed(first, &second)), ["memory read"]);
}

// ---------------------------------------------------------------- the line and the views

fn row(quantity: &str, unit: &str, value: f64, reference: f64, ratio: f64, health: Health) -> CheckRow {
    CheckRow {
        metric: "check".into(),
        quantity: quantity.into(),
        what: format!("{quantity}, {}", crate::common::reports::NASTY),
        kernel: Some("load".into()).filter(|_: &String| unit == "B/s"),
        level: Some("memory".into()).filter(|_: &String| unit != "Hz"),
        threads: 8,
        unit: unit.into(),
        value: Some(value),
        against: Some(Against::Baseline),
        reference: Some(reference),
        ratio: Some(ratio),
        ratio_ci95: Some([ratio - 0.01, ratio + 0.01]),
        least_ratio: Some(0.95),
        health,
        reason: None,
    }
}

fn change(what: &str, a: &str, b: &str) -> Change {
    Change { what: what.into(), a: a.into(), b: b.into() }
}

fn faulty() -> Checkup {
    let rows = vec![
        row("memory read", "B/s", 10.58e9, 12.3e9, 0.86, Health::Degraded),
        row("memory latency", "ns", 95.0, 94.0, 0.989, Health::Healthy),
        row("core clock", "Hz", 3.7e9, 3.7e9, 1.0, Health::Healthy),
    ];
    Checkup { rows, facts: vec![change("memory channels", "8", "7")], ..Checkup::default() }
}

#[test]
fn the_line_is_fit_for_a_scheduler() {
    assert_eq!(faulty().line(), "memory read -14 % (baseline 12.3 GB/s, limit -5 %); 7 of 8 channels");
    let mut many = faulty();
    many.rows.push(row("memory latency, and a long name for it", "ns", 200.0, 100.0, 0.5, Health::Degraded));
    many.rows.push(row("core clock", "Hz", 3e9, 4e9, 0.75, Health::Degraded));
    many.facts.push(change("governor", "performance", "powersave"));
    let line = many.line();
    assert!(line.chars().count() <= check::LINE_CHARACTERS, "{line}");
    assert!(line.starts_with("memory latency, and a long name for it +100 % (baseline 100 ns, limit +5 %)"), "{line}");
    assert!(line.ends_with(" more"), "{line}");
    // Nothing that a shell or a log stumbles over.
    let told = |change| Checkup { facts: vec![change], ..Checkup::default() };
    let nasty = told(change("governor", "a\n\"b\"", "$(x) `y` 'z' \\"));
    assert_eq!(nasty.line(), "governor (x) y z  (baseline a b)");
    let long = told(change("governor", "a", &"x".repeat(500)));
    assert_eq!(long.line().chars().count(), check::LINE_CHARACTERS);
}

#[test]
fn the_views_say_it() {
    let shown = |checkup: &Checkup| {
        anstream::adapter::strip_str(&terminal::section::document(&sections::check::document(checkup))).to_string()
    };
    let text = shown(&faulty());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in
        ["memory read -14 %", "86.0 ±1.0", "degraded", "12.3 GB/s", "Facts that changed", "memory channels: 7, was 8"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let healthy = Checkup { rows: faulty().rows.split_off(1), ..Checkup::default() };
    assert!(shown(&healthy).starts_with("healthy\n"));
    let rows: Vec<CheckRow> = serde_json::from_str(&json::check(&faulty())).unwrap();
    assert_eq!(rows, faulty().rows);
    let schema = serde_json::to_value(schemars::schema_for!(CheckRow)).unwrap();
    let validator = Validator::of(&schema).unwrap();
    assert!(rows.iter().all(|row| validator.is_valid(&serde_json::to_value(row).unwrap())));
    let csv = csv::check(&faulty());
    assert_eq!(csv.lines().count(), 4, "a head and three rows");
    assert!(csv.lines().next().unwrap().starts_with("metric,quantity,what,"));
}

/// What Prometheus' own tool says of a file.
fn promtool(text: &str) {
    if !slurm::has("promtool") {
        skip("no promtool here; Debian: apt-get install prometheus");
        return;
    }
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tool.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{text}", String::from_utf8_lossy(&said));
}

#[test]
fn prometheus_takes_the_file() {
    let text = prometheus::check(Told::Checked(&faulty()), 1_700_000_000, 7.25);
    for line in [
        "membound_check_healthy 0",
        "membound_check_timestamp_seconds 1700000000",
        "membound_check_skipped 0",
        "membound_check_changed_facts 1",
        "membound_memory_read_bytes_per_second{kernel=\"load\",level=\"memory\",threads=\"8\"} 10580000000",
        "membound_latency_seconds{level=\"memory\",threads=\"8\"} 0.000000095",
        "membound_core_clock_hertz 3700000000",
        "membound_check_ratio_to_baseline{quantity=\"memory read\"} 0.86",
        "membound_check_degraded{quantity=\"memory read\",against=\"baseline\"} 1",
        "membound_check_degraded{quantity=\"memory latency\",against=\"baseline\"} 0",
        "membound_check_least_ratio{against=\"baseline\"} 0.95",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    promtool(&text);
    // What was held against nothing has figures and no health, unless it crashed.
    let mut bare = faulty();
    bare.facts.clear();
    bare.rows.remove(0);
    bare.rows.iter_mut().for_each(|row| (row.against, row.ratio, row.least_ratio) = (None, None, None));
    let text = prometheus::check(Told::Checked(&bare), 1_700_000_000, 7.25);
    assert!(text.contains("\nmembound_latency_seconds{"), "{text}");
    assert!(["healthy", "changed_facts", "degraded"].iter().all(|word| !text.contains(word)), "{text}");
    promtool(&text);
    bare.rows[0].health = Health::Degraded;
    let text = prometheus::check(Told::Checked(&bare), 1_700_000_000, 7.25);
    assert!(text.contains("\nmembound_check_healthy 0\n"), "{text}");
    let scene = scene();
    promtool(&prometheus::check(Told::Checked(&scene.look(&mut fake(3, 0.8))), 1_700_000_000, 7.25));
    promtool(&prometheus::check(Told::Skipped { in_a_row: 1 }, 1_700_000_000, 0.3));
    promtool(&prometheus::check(Told::Unable, 1_700_000_000, 0.0));
}

#[test]
#[should_panic(expected = "_total")]
fn prometheus_refuses_a_broken_file() {
    if !slurm::has("promtool") {
        skip("no promtool here; Debian: apt-get install prometheus");
        panic!("nobody to ask for a name that ends in _total");
    }
    promtool("# HELP membound_x X.\n# TYPE membound_x counter\nmembound_x 1\n");
}

// ---------------------------------------------------------------- the command

fn membound(arguments: &[&str]) -> Output {
    // A run may outlast a Slurm job's variables around the tests, but must not use them.
    program::membound().args(arguments).env_remove("SLURMD_NODENAME").output().unwrap()
}

/// Exit code, stdout and stderr of `membound check` with a lock of its own in `folder`.
fn checked(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let lock = folder.join("turn").display().to_string();
    let output = membound(&[&["check", "--lock", &lock], arguments].concat());
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// A small baseline of this very machine: what one core reads from its nearest caches. Any record is one.
fn small_baseline(path: &Path) {
    let path = path.display().to_string();
    let flags = ["--kernel", "load", "--size", "16KiB,256KiB", "--threads", "1", "--budget", "3s", "--quiet"];
    let output = membound(&[&["bandwidth", "--record", &path], &flags[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The baseline of a machine that was thirty times as fast.
fn thirty_times(record: &Record) -> Record {
    let mut record = record.clone();
    for visit in &mut record.measurements {
        if let Outcome::Measured(measured) = &mut visit.outcome {
            for ticks in measured.samples.ticks.iter_mut().chain(measured.samples.thread_ticks.iter_mut().flatten()) {
                *ticks = (*ticks / 30).max(1);
            }
        }
    }
    record
}

fn p(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A busy machine is slower than itself; a machine is not thirty times as slow.
const LOOSE: [&str; 5] = ["--force", "--tolerance", "80%", "--budget", "6s"];

#[test]
fn a_real_check_passes_fails_and_writes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Where a case has its CPU for a fifth of the time, or too few visits, even so loose a check can't tell, and says so.
    macro_rules! told {
        ($flags:expr) => {{
            let found = checked(folder.path(), $flags);
            if found.2.contains("to tell") || found.1.contains("can't be told") {
                return skip("the host is too noisy for a check at 80 %");
            }
            found
        }};
    }
    small_baseline(&at("base.jsonl"));
    let healthy =
        told!(&[&["--baseline", p(&at("base.jsonl")), "--prometheus", p(&at("m.prom"))], &LOOSE[..]].concat());
    assert_eq!(healthy, (0, String::new(), String::new()), "quiet in health");
    let prom = fs::read_to_string(at("m.prom")).unwrap();
    assert!(prom.contains("\nmembound_check_healthy 1\n"), "{prom}");
    assert!(
        prom.contains("membound_cache_read_bytes_per_second{kernel=\"load\",level=\"L1\",threads=\"1\"} "),
        "{prom}"
    );
    promtool(&prom);
    let (code, shown, _) = told!(&[&["-v", "--baseline", p(&at("base.jsonl"))], &LOOSE[..]].concat());
    assert!(code == 0 && shown.starts_with("healthy\n") && shown.contains("L1 read, one core"), "{shown}");

    by_hand::write(&thirty_times(&Record::read(&at("base.jsonl")).unwrap()), &at("fast.jsonl"));
    let (fast, prom) = (at("fast.jsonl"), at("m.prom"));
    let flags = ["--baseline", p(&fast), "--prometheus", p(&prom)];
    let (code, line, talk) = told!(&[&flags, &LOOSE[..]].concat());
    assert_eq!((code, line.lines().count(), talk.as_str()), (1, 1, ""), "{line}");
    assert!(line.contains(" read, one core -") && line.contains("limit -80 %"), "{line}");
    assert!(line.trim_end().chars().count() <= check::LINE_CHARACTERS, "{line}");
    assert!(fs::read_to_string(at("m.prom")).unwrap().contains("\nmembound_check_healthy 0\n"));
    let (code, rows, _) = told!(&[&["--format", "json"], &flags[..2], &LOOSE[..]].concat());
    let rows: Vec<CheckRow> = serde_json::from_str(&rows).unwrap();
    assert!(code == 1 && rows.iter().any(|row| row.health == Health::Degraded), "{rows:?}");

    // A place that can't be written: the finding is told nevertheless; in health it is an error.
    let nowhere = ["--prometheus", "/no/such/folder/m.prom"];
    let (code, line, talk) = told!(&[&nowhere, &flags[..2], &LOOSE[..]].concat());
    assert!(code == 1 && !line.is_empty() && talk.contains("--prometheus"), "{line}{talk}");
    let (code, line, talk) = told!(&[&nowhere, &["--baseline", p(&at("base.jsonl"))], &LOOSE[..]].concat());
    assert!(code == 2 && line.is_empty() && talk.contains("cannot write"), "{talk}");
}

#[test]
fn a_check_makes_its_own_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.jsonl");
    let (code, shown, talk) = checked(folder.path(), &["--record", p(&path), "--budget", "6s", "--force", "-v"]);
    if code == 2 && lacked_time(&talk) {
        return skip(TOO_BUSY);
    }
    assert_eq!(code, 0, "{talk}");
    assert!(shown.contains("memory read") && shown.contains("Nothing to hold it against"), "{shown}");
    let record = Record::read(&path).unwrap();
    assert!(record.end.is_some() && !record.measurements.is_empty());
    let prom = folder.path().join("m.prom");
    let (code, _, talk) = checked(folder.path(), &["--prometheus", p(&prom), "--budget", "6s", "--force"]);
    if code == 2 && lacked_time(&talk) {
        return skip(TOO_BUSY);
    }
    assert_eq!(code, 0, "{talk}");
    let told = fs::read_to_string(&prom).unwrap();
    assert!(told.contains("_bytes_per_second{") && !told.contains("healthy"), "{told}");
    let (code, _, talk) = checked(folder.path(), &["--record", p(&path), "--budget", "1s", "--force"]);
    assert!(code == 2 && talk.contains("--record"), "never overwritten: {talk}");
}

/// 1 is a degraded node alone: a result that can't be printed is none.
#[test]
fn a_full_stdout_degrades_no_node() {
    let folder = tempfile::tempdir().unwrap();
    let (lock, path) = (folder.path().join("turn"), folder.path().join("base.jsonl"));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = program::membound();
    command.args(["check", "--lock", p(&lock), "--record", p(&path), "--budget", "6s", "--force", "-v"]).stdout(full);
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the result can't be printed"), "{said}");
}

#[test]
fn bad_baselines_and_words_are_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("empty.jsonl"), "").unwrap();
    fs::write(at("future.jsonl"), "{\"type\":\"header\",\"schema\":99,\"tool\":\"membound 9.9.9\"}\n").unwrap();
    fs::write(at("text.jsonl"), "hello\n").unwrap();
    fs::create_dir(at("folder")).unwrap();
    by_hand::write(&by_hand::record(clock(1e9), unknown_machine(), Vec::new()), &at("nothing.jsonl"));
    let mut stranger = Record::read(&at("nothing.jsonl")).unwrap();
    stranger.header.machine.identity.model = Fact::Known("Another CPU".into());
    by_hand::write(&stranger, &at("stranger.jsonl"));
    let refuses = |flags: &[&str], part: &str| {
        let (code, shown, talk) = checked(folder.path(), flags);
        assert_eq!((code, shown.as_str()), (2, ""), "{flags:?}: {talk}");
        assert!(talk.contains(part) && !talk.contains("panicked"), "{flags:?}: {part} is not in {talk}");
    };
    let prom = at("m.prom");
    for (name, part) in [
        ("none.jsonl", "cannot read"),
        ("empty.jsonl", "it is empty"),
        ("future.jsonl", "record schema 99"),
        ("text.jsonl", "not a membound record"),
        ("folder", "holds no record"),
        ("nothing.jsonl", "no figure that a check looks at"),
        ("%n-%h", "cannot read"),
    ] {
        refuses(&["--baseline", p(&at(name)), "--prometheus", p(&prom)], part);
        let told = fs::read_to_string(&prom).unwrap();
        assert!(told.contains("\nmembound_check_unable 1\n") && !told.contains("healthy"), "{told}");
        fs::remove_file(&prom).unwrap();
    }
    promtool(&prometheus::check(Told::Unable, 1, 0.0));
    if membound_measure::machine::live().identity.model.known().is_some() {
        refuses(&["--baseline", p(&at("stranger.jsonl"))], "of another machine (Another CPU)");
    }
    refuses(&[], "give --baseline RECORD or --spec NAME");
    refuses(&["--spec", "no-such-sheet"], "known sheets are");
    refuses(&["--baseline", "x", "--tolerance", "lots"], "such as 5%");
    refuses(&["--baseline", "x", "--budget", "5min"], "give 1s to 50s");
    let (code, _, talk) = checked(Path::new("/no/such/folder"), &["--record", p(&at("r.jsonl"))]);
    assert!(code == 2 && talk.contains("choose another file with --lock"), "{talk}");
}

/// A baseline that another process has leased: the kernel opens it for nobody else until that one lets go.
#[test]
fn a_check_that_does_not_end_is_given_up() {
    const LEASE: &str = "import fcntl, os, signal, sys\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n\
        fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)\nprint('leased', flush=True)\nsignal.pause()";
    let folder = tempfile::tempdir().unwrap();
    let (leased, prom) = (folder.path().join("leased"), folder.path().join("m.prom"));
    fs::write(&leased, "").unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", LEASE, p(&leased)]).stdout(std::process::Stdio::piped());
    let Ok(mut holder) = command.spawn().map(Spinner) else { return skip("python3 is not there") };
    let mut said = [0; 7];
    if holder.0.stdout.take().is_none_or(|mut out| out.read_exact(&mut said).is_err()) {
        return skip("files can't be leased here");
    }
    let flags = ["--baseline", p(&leased), "--budget", "1s", "--prometheus", p(&prom)];
    let (code, shown, talk) = checked(folder.path(), &flags);
    assert_eq!((code, shown.as_str()), (2, ""), "{talk}");
    assert!(talk.contains("did not end within 5 s"), "{talk}");
    assert!(fs::read_to_string(&prom).unwrap().contains("\nmembound_check_unable 1\n"));
}

/// A process that spins until it is dropped.
struct Spinner(std::process::Child);

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_node_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let prom = folder.path().join("m.prom");
    let _spinner = Spinner(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    let (record, base) = (folder.path().join("r.jsonl"), folder.path().join("base.jsonl"));
    small_baseline(&base);
    let flags = ["--record", p(&record), "--prometheus", p(&prom), "--budget", "4s"];
    let (code, shown, talk) = checked(folder.path(), &flags);
    assert_eq!((code, shown.as_str()), (2, ""), "who wants a baseline alone has none: {talk}");
    assert!(talk.contains("r.jsonl was not written"), "{talk}");
    let (code, shown, talk) = checked(folder.path(), &[&flags[..], &["--baseline", p(&base)]].concat());
    assert_eq!((code, shown.as_str()), (0, ""), "{talk}");
    assert!(
        talk.contains("r.jsonl not written") && (talk.contains(": others use") || talk.contains("Slurm job")),
        "{talk}"
    );
    assert!(!record.exists(), "nothing was measured");
    let told = fs::read_to_string(&prom).unwrap();
    assert!(told.contains("\nmembound_check_skipped 1\n") && !told.contains("healthy"), "{told}");
    promtool(&told);
}

#[test]
fn two_checks_do_not_measure_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let held = File::create(folder.path().join("turn")).unwrap();
    held.lock().unwrap();
    let record = folder.path().join("r.jsonl");
    let prom = folder.path().join("m.prom");
    let flags = ["--record", p(&record), "--budget", "1s", "--prometheus", p(&prom)];
    for row in ["", "was not written, 2 times in a row by now: "] {
        let (code, shown, talk) = checked(folder.path(), &flags);
        assert_eq!((code, shown.as_str()), (2, ""), "{talk}");
        let holder = format!("process {} of user ", std::process::id());
        assert!(talk.contains(&holder) && talk.contains("held") && talk.contains(row), "{talk}");
    }
    assert!(fs::read_to_string(&prom).unwrap().contains("\nmembound_check_skips_in_a_row 2\n") && !record.exists());
    // Whoever can open the lock could keep it for ever: --force passes.
    let (_, _, talk) = checked(folder.path(), &["--record", p(&record), "--budget", "8s", "--force"]);
    assert!(talk.contains("others may be measuring beside this check") && record.exists(), "{talk}");
}

// ---------------------------------------------------------------- Slurm

/// Four nodes with a baseline each: n3's says that it was thirty times as fast, n4 has none.
#[test]
fn slurm_drains_the_faulty_node() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let script = format!(
        "MEMBOUND={}\nBASELINE={}\nexport MEMBOUND BASELINE CHECK_FLAGS\n\
         CHECK_FLAGS=\"--force --tolerance 80% --budget 4s --lock {} --prometheus {}/$SLURMD_NODENAME.prom\"\n\
         exec {}/contrib/slurm-health-check",
        env!("CARGO_BIN_EXE_membound"),
        at("%n.jsonl").display(),
        at("turn").display(),
        folder.path().display(),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../.."),
    );
    let options = slurm::Options { health_check: Some((script, 5)), ..slurm::Options::default() };
    let Some(slurm) = Slurm::start(&options) else { return };
    assert_eq!(slurm.output("srun", &["-N4", "true"]), "");

    small_baseline(&at("base.jsonl"));
    let baseline = Record::read(&at("base.jsonl")).unwrap();
    for (node, record) in [("n1", baseline.clone()), ("n2", baseline.clone()), ("n3", thirty_times(&baseline))] {
        // Whole at once: checks are running already.
        by_hand::write(&record, &at("unfinished"));
        fs::rename(at("unfinished"), at(&format!("{node}.jsonl"))).unwrap();
    }
    let within = Duration::from_secs(240);
    slurm.wait_for("n3 is drained", within, |slurm| slurm.states()[2].starts_with("drain"));
    let reason = slurm.output("sinfo", &["-R", "-h", "-o", "%E|%N"]);
    let reason = reason.trim();
    assert!(reason.starts_with("membound: ") && reason.ends_with("|n3"), "{reason}");
    assert!(reason.contains(" read, one core -") && reason.contains("limit -80 %"), "{reason}");
    // The others were checked, or could not be, and stay.
    let says = |node: &str, what: &str| {
        let text = fs::read_to_string(at(&format!("{node}.prom"))).unwrap_or_default();
        text.lines().any(|line| line == what)
    };
    let healthy = "membound_check_healthy 1";
    slurm.wait_for("n1 and n2 are found healthy", within, |_| says("n1", healthy) && says("n2", healthy));
    assert!(says("n4", "membound_check_unable 1"));
    let states = slurm.states();
    assert_eq!([&states[0], &states[1], &states[3]], ["idle"; 3], "{states:?}");
    // A job makes a node busy.
    let mut job = slurm.command("srun").args(["-w", "n1", "sleep", "600"]).spawn().unwrap();
    // It has one of two CPUs: allocated at first, then mixed.
    let is_busy = |state: &str| state.starts_with("alloc") || state.starts_with("mix");
    slurm.wait_for("the job runs", within, |slurm| is_busy(&slurm.states()[0]));
    fs::create_dir(at("own")).unwrap();
    let (code, _, talk) = checked(&at("own"), &["--baseline", p(&at("base.jsonl"))]);
    let _ = job.kill();
    let _ = job.wait();
    assert!(code == 0 && talk.contains("a Slurm job runs here"), "{code} {talk}");
}
