//! The statistics must find the truth: whole runs on simulated memories whose speed is known.

#[path = "common/by_hand.rs"]
mod by_hand;

use std::time::{Duration, Instant};

use membound::kernel::{StoreKind, Width};
use membound::memory::{MemoryKind, MemorySpec};
use membound::model;
use membound::plan::{self, Case};
use membound::record::{Clock, Measurement, Outcome, Record};
use membound::run::fake::{Fake, FakeLevel, Noise};
use membound::run::{self, Executor, Schedule};
use membound::stats;
use membound::units::Bytes;

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

/// Share of 2,000 runs whose interval holds the true median time of a repetition.
fn coverage(noise: Noise, target: f64, true_median: f64) -> f64 {
    let case = case("load", StoreKind::Regular, 1, Bytes::mib(256));
    let hits = (0..2000).filter(|&seed| {
        let mut fake = Fake::new(levels(), noise, 1000 + seed);
        let clean = 256.0 * 1024.0 * 1024.0 / fake.truth(&case) * fake.clock().hz.0;
        let visits = measure(std::slice::from_ref(&case), &mut fake, seed, target, 40);
        let ticks: Vec<Vec<f64>> = visits
            .iter()
            .map(|visit| match &visit.outcome {
                Outcome::Measured(measured) => measured.samples.ticks.iter().map(|t| *t as f64).collect(),
                other => panic!("{other:?}"),
            })
            .collect();
        let batches: Vec<&[f64]> = ticks.iter().map(Vec::as_slice).collect();
        let [low, high] = stats::summarize(&batches).unwrap().ci95;
        (low..=high).contains(&(clean * true_median))
    });
    hits.count() as f64 / 2000.0
}

/// Quantile of the standard normal distribution, by bisection of the same Irwin-Hall sum that the simulation draws
/// would be: of 12 uniforms it is normal to within a thousandth in the middle.
fn median_shift(tail_share: f64, sigma: f64) -> f64 {
    // With a share `p` of samples far above, the median of all is the 0.5 / (1 - p) quantile of the rest.
    let normal = statrs::distribution::Normal::new(0.0, 1.0).unwrap();
    let z = statrs::distribution::ContinuousCDF::inverse_cdf(&normal, 0.5 / (1.0 - tail_share));
    (z * sigma).exp()
}

#[test]
fn the_interval_covers_the_true_median() {
    let check = |what: &str, noise: Noise, target: f64, median: f64| {
        let share = coverage(noise, target, median);
        println!("{what}: covered in {:.1} % of 2,000 runs", share * 100.0);
        assert!((0.93..=0.97).contains(&share), "{what}: {share}");
    };
    let plain = Noise { sigma: 0.02, ..Noise::default() };
    check("2 % noise", plain, 0.01, 1.0);
    check("5 % noise", Noise { sigma: 0.05, ..plain }, 0.02, 1.0);
    check("2 % noise, 5 % outliers", Noise { outliers: 0.05, ..plain }, 0.01, median_shift(0.05, 0.02));
    let modes = Noise { slow_mode: (0.3, 1.8), ..plain };
    check("two modes, 70 to 30", modes, 0.01, median_shift(0.3, 0.02));
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
    let report = model::report(&record(&fake, measure(&[case], &mut fake.clone(), 5, 0.001, 12)));
    fake.crashes = None;
    let modes = report.rows[0].modes.expect("60 to 40 is bimodal");
    assert!((modes.high / truth - 1.0).abs() < 0.01 && (modes.low / truth - 0.5).abs() < 0.01, "{modes:?}");
    assert!((modes.high_share - 0.6).abs() < 0.15);
    assert!(report.rows[0].quality.has("bimodal"));
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
            samples.fastest_thread_ticks = samples.ticks.iter().map(|t| (*t as f64 * fastest_share) as u64).collect();
        }
        model::report(&record(&fake, visits)).rows[0].quality.has("imbalanced")
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
    let of = |kernel: &str| report.rows.iter().find(|row| row.kernel == kernel).unwrap();
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
    let large = report.rows.iter().find(|row| row.working_set_bytes == Bytes::mib(256)).unwrap();
    assert_eq!(large.quality.outcome.word(), "invalid");
}

#[test]
fn the_simulated_clock_is_named_so() {
    let clock: Clock = Fake::new(levels(), Noise::default(), 1).clock();
    assert_eq!(clock.name, "simulated");
}
