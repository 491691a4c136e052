//! The statistics must find the truth: whole runs on simulated memories whose speed is known.

use crate::common::by_hand;
use std::time::{Duration, Instant};

use membound_analyze::flag::Flag;
use membound_analyze::of_record as model;
use membound_core::case::Case;
use membound_core::kernel::{StoreKind, Width};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Clock, Measurement, Outcome, Record};
use membound_core::stats::quantiles::quantile;
use membound_core::stats::states;
use membound_core::stats::states::{Better, Ends, Visit};
use membound_core::units::Bytes;
use membound_core::{case as plan, stats};
use membound_measure::executor::fake::{Fake, FakeLevel, Noise};
use membound_measure::schedule as run;
use membound_measure::schedule::{Executor, Quota, Schedule};

const MEMORY: MemorySpec = MemorySpec::of(MemoryKind::Base);

fn levels() -> Vec<FakeLevel> {
    let level = |capacity, bytes_per_s| FakeLevel { capacity, bytes_per_s, shared_bytes_per_s: 2.0 * bytes_per_s };
    vec![
        level(Bytes::kib(32), 200e9),
        level(Bytes::mib(1), 100e9),
        level(Bytes::mib(32), 50e9),
        FakeLevel { capacity: Bytes(u64::MAX), bytes_per_s: 20e9, shared_bytes_per_s: 30e9 },
    ]
}

fn case(kernel: &str, store: StoreKind, threads: u32, size: Bytes) -> Case {
    plan::steady(kernel, Width::W256, store, MEMORY, (0..threads).collect(), size)
}

/// Runs `cases` as the tool does: rounds, adaptive stop, seeded order.
fn measure(cases: &[Case], fake: &mut Fake, seed: u64, target: f64, rounds: u32) -> Vec<Measurement> {
    let settled = |batches: &[Vec<f64>]| {
        let batches: Vec<&[f64]> = batches.iter().map(Vec::as_slice).collect();
        batches.len() >= 3 && stats::is_settled(&batches, target)
    };
    let schedule = Schedule {
        seed,
        started: Instant::now(),
        deadline: Instant::now() + Duration::from_secs(3600),
        samples: 7,
        most_rounds: rounds,
        settled: &settled,
        interrupted: &|| false,
    };
    let mut found = Vec::new();
    let mut sink = |measurement| {
        found.push(measurement);
        Ok(())
    };
    run::run(cases, fake, &schedule, &mut sink, &mut |_| {}).unwrap();
    found
}

fn record(fake: &Fake, measurements: Vec<Measurement>) -> Record {
    by_hand::record(fake.clock(), by_hand::unknown_machine(), measurements)
}

/// Durations of the samples of each visit.
fn durations(visits: &[Measurement]) -> Vec<Vec<f64>> {
    let of_visit = |visit: &Measurement| match &visit.outcome {
        Outcome::Measured(measured) => measured.samples.ticks.iter().map(|ticks| *ticks as f64).collect(),
        other => panic!("{other:?}"),
    };
    visits.iter().map(of_visit).collect()
}

/// Visits without end: the geometric mean of the undisturbed ones.
fn true_capability(case: &Case, noise: Noise) -> f64 {
    let mut fake = Fake::new(levels(), noise, 1);
    let quota = Quota { least_samples: 7, most_samples: 7, time: Duration::from_secs(1), interrupted: &|| false };
    let visits: Vec<Measurement> =
        (0..20_000).map(|round| Measurement::new(case.clone(), round, fake.visit(case, &quota))).collect();
    let mut logs: Vec<f64> =
        durations(&visits).into_iter().filter_map(|visit| states::level(visit, Better::Lower)).collect();
    logs.sort_by(f64::total_cmp);
    let least = quantile(&logs, 0.9) + 0.9f64.ln();
    let fast: Vec<f64> = logs.into_iter().filter(|log| *log >= least).collect();
    (-fast.iter().sum::<f64>() / fast.len() as f64).exp()
}

/// Of 1,000 runs the share whose interval holds the truth, and the share that has an interval.
fn coverage(noise: Noise, target: f64) -> [f64; 2] {
    let case = case("load", StoreKind::Regular, 1, Bytes::mib(256));
    let truth = true_capability(&case, noise);
    let (mut told, mut hits) = (0, 0);
    for seed in 0..1000 {
        let visits =
            measure(std::slice::from_ref(&case), &mut Fake::new(levels(), noise, 1000 + seed), seed, target, 20);
        let durations = durations(&visits);
        let visits: Vec<Visit<'_>> = durations.iter().map(|values| Visit { values, shares: &[] }).collect();
        let found = states::states(&visits, Better::Lower).unwrap().capability;
        told += usize::from(found.ends == Ends::Ci95);
        hits += usize::from(found.ends == Ends::Ci95 && (found.low..=found.high).contains(&truth));
    }
    [hits as f64 / told as f64, told as f64 / 1000.0]
}

#[test]
fn the_interval_covers_what_the_machine_can() {
    let check = |what: &str, noise: Noise, target: f64| {
        let [share, told] = coverage(noise, target);
        println!("{what}: covered in {:.1} % of intervals; {:.0} % of runs have one", share * 100.0, told * 100.0);
        // Two standard errors of 1.5 % beyond 93 to 97.
        assert!((0.92..=0.98).contains(&share), "{what}: {share}");
    };
    let plain = Noise { sigma: 0.02, drift: 0.01, ..Noise::default() };
    check("2 % noise", plain, 0.01);
    check("5 % noise", Noise { sigma: 0.05, ..plain }, 0.02);
    check("2 % noise, 5 % outliers", Noise { outliers: 0.05, ..plain }, 0.01);
    for share in [0.1, 0.2, 0.4] {
        let states = Noise { slow_mode: (share, 2.0), ..plain };
        check(&format!("{:.0} % of visits at half speed", 100.0 * share), states, 0.01);
    }
}

/// With an interval of zero width the test above must fail; so must one that never ends.
#[test]
fn a_run_stops_when_its_interval_is_narrow_and_not_before() {
    let case = [case("load", StoreKind::Regular, 1, Bytes::mib(256))];
    let visits = |sigma| {
        let mut fake = Fake::new(levels(), Noise { sigma, ..Noise::default() }, 7);
        measure(&case, &mut fake, 7, 0.01, 40).len()
    };
    assert_eq!(visits(0.0001), 3);
    assert!((4..40).contains(&visits(0.02)));
    assert_eq!(visits(0.5), 40);
}

#[test]
fn a_default_run_finds_levels_crossover_and_scaling() {
    let mut cases = Vec::new();
    for threads in [1, 2] {
        for step in 0..33 {
            let size = Bytes((4096.0 * 2f64.powf(f64::from(step) / 2.0)) as u64 / 1024 * 1024);
            let total = Bytes(size.0 * u64::from(threads));
            cases.push(case("load", StoreKind::Regular, threads, total));
            cases.push(case("copy", StoreKind::Regular, threads, total));
            cases.push(case("copy", StoreKind::Nt, threads, total));
        }
    }
    let noise = Noise { sigma: 0.02, outliers: 0.02, drift: 0.01, ..Noise::default() };
    let mut fake = Fake::new(levels(), noise, 3);
    let visits = measure(&cases, &mut fake, 3, 0.01, 6);
    let report = model::report(&record(&fake, visits));

    let names: Vec<&str> = report.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    for (level, truth) in report.levels.iter().zip([32.0 * 1024.0, 1048576.0, 33554432.0]) {
        let found = level.capacity.unwrap().0 as f64;
        assert!((0.7..1.5).contains(&(found / truth)), "{}: {found} for {truth}", level.name);
    }
    // nt runs at memory speed everywhere: 20 GB/s of bus, all payload; regular copies pay 3/2 in the caches above, so
    // nt wins only in memory, beyond 32 MiB.
    let crossover = report.crossovers.iter().find(|c| c.threads == 1 && c.kernel == "copy").unwrap();
    let at = crossover.at.unwrap()[0];
    assert!((32e6..50e6).contains(&at), "{at}");
    let gain = crossover.gain.unwrap();
    assert!(gain[1] <= 1.5 && 1.5 <= gain[2], "{gain:?}");
    assert!((gain[0] - 1.5).abs() < 0.05);
    assert!(report.warnings.iter().any(|w| w.text.contains("simulated")));
    let scaling = &report.scaling[0];
    let rate = |i: usize| report.rows[scaling.rows[i]].payload_bps.unwrap().median;
    assert!((rate(1) / rate(0) - 1.5).abs() < 0.05, "30 over 20 GB/s");
}

#[test]
fn two_modes_are_reported_with_their_speeds() {
    let case = case("load", StoreKind::Regular, 2, Bytes::mib(256));
    let noise = Noise { sigma: 0.01, slow_mode: (0.4, 2.0), ..Noise::default() };
    let mut fake = Fake::new(levels(), noise, 5);
    let truth = fake.truth(&case);
    let report = model::report(&record(&fake, measure(&[case], &mut fake.clone(), 5, 0.001, 100)));
    fake.crashes = None;
    let modes = report.rows[0].modes.expect("60 to 40 is bimodal");
    assert!((modes.high / truth - 1.0).abs() < 0.01 && (modes.low / truth - 0.5).abs() < 0.01, "{modes:?}");
    assert!((modes.high_share - 0.6).abs() < 0.15);
    assert!(report.rows[0].quality.has(Flag::Bimodal));
}

#[test]
fn threads_that_take_unequal_time_are_flagged() {
    let flags = |fastest_share: f64| {
        let case = case("load", StoreKind::Regular, 2, Bytes::mib(256));
        let mut fake = Fake::new(levels(), Noise { sigma: 0.01, ..Noise::default() }, 5);
        let mut visits = measure(&[case], &mut fake, 5, 0.01, 4);
        for visit in &mut visits {
            let Outcome::Measured(measured) = &mut visit.outcome else { panic!("it is measured") };
            let samples = &mut measured.samples;
            let fastest = samples.ticks.iter().map(|t| (*t as f64 * fastest_share) as u64).collect();
            samples.thread_ticks = vec![samples.ticks.clone(), fastest];
        }
        model::report(&record(&fake, visits)).rows[0].quality.has(Flag::Imbalanced)
    };
    assert!(flags(0.5));
    assert!(!flags(0.95));
}

#[test]
fn a_crash_is_an_outcome_and_the_rest_is_measured() {
    let cases =
        [case("copy", StoreKind::Regular, 1, Bytes::kib(16)), case("triad", StoreKind::Regular, 1, Bytes::kib(16))];
    let mut fake = Fake::new(levels(), Noise::default(), 1);
    fake.crashes = Some("copy".into());
    let visits = measure(&cases, &mut fake, 1, 0.01, 5);
    let report = model::report(&record(&fake, visits));
    let of = |kernel: &str| report.rows.iter().find(|row| row.kernel() == kernel).unwrap();
    assert_eq!((of("copy").quality.outcome.word(), of("triad").quality.outcome.word()), ("crashed", "measured"));
    assert!(of("copy").quality.reason.as_ref().unwrap().contains("SIGILL"));
    assert!(report.warnings.iter().any(|w| w.text.contains("crashed")));
}

#[test]
fn figures_that_cannot_be_are_invalid() {
    // Memory faster than the first-level cache: no machine is like that.
    let upside_down = vec![
        FakeLevel { capacity: Bytes::kib(64), bytes_per_s: 10e9, shared_bytes_per_s: 20e9 },
        FakeLevel { capacity: Bytes(u64::MAX), bytes_per_s: 50e9, shared_bytes_per_s: 90e9 },
    ];
    let cases =
        [case("load", StoreKind::Regular, 1, Bytes::kib(24)), case("load", StoreKind::Regular, 1, Bytes::mib(256))];
    let mut fake = Fake::new(upside_down, Noise { sigma: 0.01, ..Noise::default() }, 1);
    let visits = measure(&cases, &mut fake, 1, 0.01, 5);
    let report = model::report(&record(&fake, visits));
    let large = report.rows.iter().find(|row| row.case.working_set == Bytes::mib(256)).unwrap();
    assert_eq!(large.quality.outcome.word(), "invalid");
}

#[test]
fn the_simulated_clock_is_named_so() {
    let clock: Clock = Fake::new(levels(), Noise::default(), 1).clock();
    assert_eq!(clock.name, "simulated");
}
