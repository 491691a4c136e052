//! Latency under load: rows, curves and sentences from made-up records whose memory is known; a short real visit.

use crate::common::by_hand;
use crate::common::skip::skip;
use membound_analyze::experiments::loaded::rows::LoadedRow;
use membound_analyze::flag::Flag;
use membound_analyze::of_record as model;
use membound_analyze::report::Report;
use membound_core::case::{Case, Work};
use membound_core::experiments as plan;
use membound_core::kernel::mix::Mix;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Measured, Measurement, Outcome, Record, RecordError, Sample, Samples, Volume};
use membound_core::units::Bytes;
use membound_core::work::loaded::{Load, Loaded};

const IDLE: f64 = 100.0;
const GROWTH: f64 = 30.0;
const CAPACITY: f64 = 40e9;

fn case(load: Load) -> Case {
    let cpus = if load == Load::Alone { vec![0] } else { vec![0, 1, 2, 3] };
    let work = Work::Loaded(Loaded { chase: Bytes::mib(128), load });
    Case::new(work, MemorySpec::of(MemoryKind::Thp), cpus, Bytes::mib(512))
}

/// Nine samples of 10,000 loads with 1 % of noise, on a clock of 1 GHz, while so many bytes a second are moved.
pub fn visit(load: Load, ns: f64, bytes_per_s: f64, random: &mut fastrand::Rng) -> Measurement {
    let mut samples = Samples::default();
    let [loaded, stored] = if let Load::Mixed { mix, .. } = load { mix.bytes() } else { [0, 0] };
    for _ in 0..9 {
        let mut noise = || 1.0 + 0.01 * ((0..12).map(|_| random.f64()).sum::<f64>() - 6.0);
        let ticks = (ns * 10_000.0 * noise()) as u64;
        samples.push(Sample { ticks, core_clock_ticks: 5_000, ..Sample::default() });
        if loaded + stored > 0 {
            let moved = bytes_per_s * ticks as f64 * 1e-9 / (loaded + stored) as f64;
            samples.load_repetitions.push((moved * noise()) as u64);
        }
    }
    let volume = Volume { units: 12, loaded, stored, ..Volume::default() };
    let measured = Measured { volume, repetitions: 10_000, core_clock_links: 20_000, samples, ..Measured::default() };
    Measurement::new(case(load), 0, measured)
}

/// A memory with a known queue, loaded to so much of its capacity, three rounds.
fn queue(reach: f64, idle_beside: f64) -> Vec<Measurement> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut visits = Vec::new();
    for _ in 0..3 {
        visits.push(visit(Load::Alone, IDLE, 0.0, &mut random));
        visits.push(visit(Load::Idle, idle_beside, 0.0, &mut random));
        for mix in [Mix::Read, Mix::OneToOne] {
            for (step, delay_ns) in [5120, 2560, 1280, 640, 320, 160, 80, 40, 0].into_iter().enumerate() {
                let used = reach * (1.0 - 2f64.powi(-(step as i32) - 1));
                let ns = IDLE + GROWTH * used / (1.0 - used);
                visits.push(visit(Load::Mixed { mix, delay_ns }, ns, used * CAPACITY, &mut random));
            }
        }
    }
    visits
}

fn record(measurements: Vec<Measurement>) -> Record {
    crate::common::reports::record(1e9, measurements)
}

fn report(measurements: Vec<Measurement>) -> Report {
    model::report(&record(measurements))
}

fn row(report: &Report, load: Load) -> &LoadedRow {
    report.loaded.rows.iter().find(|row| row.load() == load).unwrap()
}

#[test]
fn saturation_and_knee_are_found() {
    let report = report(queue(0.95, IDLE));
    assert_eq!(report.loaded.curves.len(), 2);
    for curve in &report.loaded.curves {
        let knee = CAPACITY / (1.0 + (GROWTH / IDLE).sqrt());
        for ([found, low, high], truth) in
            [(curve.saturation_bps, CAPACITY), (curve.knee_bps, knee), (curve.idle_ns, IDLE)]
                .map(|(found, truth)| (found.unwrap(), truth))
        {
            assert!((found / truth - 1.0).abs() < 0.05, "{found} is not {truth}");
            assert!(low <= truth * 1.01 && truth * 0.99 <= high, "{truth} is not in [{low}, {high}]");
        }
        // Idle threads first, then nine loads, each heavier than the one before.
        assert_eq!(curve.rows.len(), 10);
        let latencies: Vec<f64> =
            curve.rows.iter().map(|&at| report.loaded.rows[at].latency_ns.unwrap().median).collect();
        assert!(latencies[1..].is_sorted(), "{latencies:?}");
    }
    let no_flag = |row: &LoadedRow| !row.quality.has(Flag::NotMonotone) && !row.quality.has(Flag::IdleDiffers);
    assert!(report.loaded.rows.iter().all(no_flag), "{:?}", report.loaded.rows);
    assert!(report.findings.iter().any(|text| text.contains("the bus saturates at")), "{:?}", report.findings);
}

#[test]
fn latency_without_load_is_the_idle_latency() {
    let flag = |report: &Report| row(report, Load::Idle).quality.has(Flag::IdleDiffers);
    let same = report(queue(0.9, IDLE));
    let (idle, alone) = (row(&same, Load::Idle).latency_ns.unwrap(), row(&same, Load::Alone).latency_ns.unwrap());
    assert!(idle.ci95[0] <= alone.ci95[1] && alone.ci95[0] <= idle.ci95[1], "{idle:?} {alone:?}");
    assert!(!flag(&same));
    assert!(flag(&report(queue(0.9, 1.1 * IDLE))), "a tenth more beside idle threads must show");
}

#[test]
fn bandwidth_is_what_was_moved_in_the_same_time() {
    let mut random = fastrand::Rng::with_seed(1);
    let load = Load::Mixed { mix: Mix::ThreeToOne, delay_ns: 0 };
    let report = report(vec![visit(load, 200.0, 20e9, &mut random)]);
    let row = row(&report, load);
    let rate = row.bus_bps.unwrap();
    assert!((rate.median / 20e9 - 1.0).abs() < 0.01, "{rate:?}");
    assert_eq!(row.payload_bps, row.bus_bps);
    assert!((row.latency_ns.unwrap().median / 200.0 - 1.0).abs() < 0.01);
    // 20,000 links in 5,000 ticks of a nanosecond: 4 GHz.
    assert!((row.latency_cycles.unwrap() / 800.0 - 1.0).abs() < 0.01);
}

#[test]
fn a_curve_that_falls_is_flagged() {
    let mut visits = queue(0.9, IDLE);
    let heavy = Load::Mixed { mix: Mix::Read, delay_ns: 0 };
    visits.retain(|visit| visit.case != case(heavy));
    visits.push(visit(heavy, 105.0, 0.9 * CAPACITY, &mut fastrand::Rng::with_seed(2)));
    let report = report(visits);
    assert!(row(&report, heavy).quality.has(Flag::NotMonotone));
    let others = report.loaded.rows.iter().filter(|row| row.load() != heavy);
    assert!(others.into_iter().all(|row| !row.quality.has(Flag::NotMonotone)));
}

/// On a core of 4 GHz a visit met half of the load that the others met: both columns are of those others.
#[test]
fn nanoseconds_and_cycles_are_of_the_same_visits() {
    let mut random = fastrand::Rng::with_seed(1);
    let load = Load::Mixed { mix: Mix::ThreeToOne, delay_ns: 0 };
    let heavy = (0..3).map(|_| visit(load, 300.0, 20e9, &mut random)).collect::<Vec<_>>();
    let light = (0..3).map(|_| visit(load, 150.0, 8e9, &mut random)).collect::<Vec<_>>();
    let visits = heavy.into_iter().chain(light).zip(0..);
    let report = report(visits.map(|(visit, round)| Measurement { round, ..visit }).collect());
    let row = row(&report, load);
    let (ns, cycles) = (row.latency_ns.unwrap().value(), row.latency_cycles.unwrap());
    assert!((ns / 300.0 - 1.0).abs() < 0.02, "{ns}");
    assert!((cycles / ns / 4.0 - 1.0).abs() < 0.02, "{cycles} cycles in {ns} ns");
}

#[test]
fn what_does_not_saturate_is_not_said_to() {
    let report = report(queue(0.1, IDLE));
    assert!(report.loaded.curves.iter().all(|curve| curve.saturation_bps.is_none() && curve.knee_bps.is_none()));
    assert!(
        report.findings.last().is_some_and(|text| text == "None of the curves shows where the bus saturates."),
        "{:?}",
        report.findings
    );
}

#[test]
fn a_record_whose_columns_do_not_line_up_is_refused() {
    let mut damaged = visit(Load::Mixed { mix: Mix::Nt, delay_ns: 0 }, 100.0, 1e9, &mut fastrand::Rng::with_seed(1));
    if let Outcome::Measured(measured) = &mut damaged.outcome {
        measured.samples.load_repetitions.pop();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.jsonl");
    by_hand::write(&record(vec![damaged]), &path);
    assert!(matches!(Record::read(&path), Err(RecordError::Damaged { line: 2, .. })));
}

#[cfg(target_arch = "x86_64")]
mod here {
    use std::time::Duration;

    use membound_core::experiments::frame::Frame;

    use membound_core::machine::cpuset::CpuSet;
    use membound_measure::executor::here::Here;
    use membound_measure::memory::places::Places;
    use membound_measure::schedule::{Executor, Quota};

    use super::*;

    fn go_on() -> bool {
        false
    }

    /// Small cases, whatever the plan's sizes: what is asked here is whether they run and are checked.
    fn small(case: &Case) -> Case {
        let Work::Loaded(work) = case.work else { panic!("{case}") };
        let working_set = Bytes(Bytes::mib(1).0 + (case.threads() as u64 - 1) * Bytes::kib(768).0);
        Case { work: Work::Loaded(Loaded { chase: Bytes::mib(1), ..work }), working_set, ..case.clone() }
    }

    fn visit(here: &mut Here, case: &Case) -> Outcome {
        let time = Duration::from_millis(5);
        here.visit(case, &Quota { least_samples: 2, most_samples: 3, time, interrupted: &go_on })
    }

    #[test]
    fn every_mix_runs_and_leaves_what_it_should() {
        let frame = Frame::new(&membound_measure::machine::live(), membound_measure::asm::detect(), None).unwrap();
        if frame.placement.most() < 2 {
            return skip("one CPU only");
        }
        // Every element of the chase is checked, and what each loading thread stored last.
        let mut here = Here::new(&[], Places::default(), true).unwrap();
        for case in plan::c2c::loaded(&frame, &[], 2, Some(2)).unwrap().iter().map(small) {
            let outcome = visit(&mut here, &case);
            let Outcome::Measured(measured) = outcome else { panic!("{case}: {outcome:?}") };
            let loads = matches!(case.work, Work::Loaded(Loaded { load: Load::Mixed { .. }, .. }));
            assert!(measured.samples.is_consistent(), "{case}");
            assert_eq!(measured.samples.load_repetitions.len(), if loads { measured.samples.ticks.len() } else { 0 });
            assert_eq!(measured.volume.payload() > 0, loads, "{case}");
            assert!(measured.obtained.bytes >= case.working_set, "{case}: {:?}", measured.obtained);
        }
        here.begin_round();
    }

    #[test]
    fn one_cpu_has_nobody_to_load() {
        let machine = membound_measure::machine::live();
        let first: CpuSet = machine.usable_cpus().iter().take(1).collect();
        let frame = Frame::new(&machine, membound_measure::asm::detect(), Some(&first)).unwrap();
        let cases: Vec<Case> = plan::c2c::loaded(&frame, &[], 3, None).unwrap().iter().map(small).collect();
        let mut here = Here::new(&[], Places::default(), false).unwrap();
        let outcomes: Vec<Outcome> = cases.iter().map(|case| visit(&mut here, case)).collect();
        let [Outcome::Measured(_), Outcome::Unavailable { reason }] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(reason.contains("needs two cores"), "{reason}");
    }
}
