//! Hand-overs: rows, groups and sentences from made-up records; how near CPUs of known machines are; real visits.

use crate::common::{by_hand, imitation};

use crate::common::skip::skip;
use membound_analyze::flag::Flag;
use membound_analyze::of_record as model;
use membound_analyze::report::Report;
use membound_core::case::{Case, Work};
use membound_core::experiments as plan;
use membound_core::machine::Machine;
use membound_core::machine::topology::Relation;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Measured, Measurement, Outcome, Record, Sample, Volume};
use membound_core::units::Bytes;
use membound_core::work::c2c::{Handover, Home};

pub fn case(from: u32, to: u32, home: Home) -> Case {
    Case::new(Work::Handover(Handover { home }), MemorySpec::of(MemoryKind::Base), vec![from, to], Bytes::kib(4))
}

/// Samples of 1000 round trips in which each hand-over took so many nanoseconds, on a clock of 2 GHz and a core of 4 GHz.
pub fn visit(case: Case, ns: &[f64]) -> Measurement {
    let ticks = ns.iter().map(|ns| (ns * 2.0 * 2000.0).round() as u64);
    let samples = ticks.map(|ticks| Sample { ticks, core_clock_ticks: 10_000, ..Sample::default() }).collect();
    let volume = Volume { units: 2, ..Volume::default() };
    let measured = Measured { volume, repetitions: 1000, core_clock_links: 20_000, samples, ..Measured::default() };
    Measurement::new(case, 0, measured)
}

/// A machine of four CPUs: 0 and 2 are one core, all share a last-level cache but 3.
fn machine() -> Machine {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| imitation::file(root.path(), path, text);
    write("sys/devices/system/cpu/online", "0-3\n");
    write("proc/cpuinfo", "flags : hypervisor\n");
    for cpu in 0..4 {
        let (core, threads) = if cpu % 2 == 0 && cpu < 3 { (0, "0,2".into()) } else { (cpu, cpu.to_string()) };
        let shared = if cpu == 3 { "3" } else { "0-2" };
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        write(&format!("{folder}/topology/physical_package_id"), "0\n");
        write(&format!("{folder}/topology/core_id"), &format!("{core}\n"));
        write(&format!("{folder}/topology/thread_siblings_list"), &format!("{threads}\n"));
        write(&format!("{folder}/topology/core_cpus_list"), &format!("{threads}\n"));
        let cache = format!("{folder}/cache/index3");
        let facts = [("level", "3"), ("type", "Unified"), ("size", "32768K"), ("shared_cpu_list", shared)];
        for (name, value) in facts.into_iter().chain([("coherency_line_size", "64")]) {
            write(&format!("{cache}/{name}"), &format!("{value}\n"));
        }
    }
    Machine::read(root.path()).unwrap()
}

pub fn report(measurements: Vec<Measurement>) -> Report {
    model::report(&record(measurements))
}

pub fn record(measurements: Vec<Measurement>) -> Record {
    by_hand::record(by_hand::clock(2e9), machine(), measurements)
}

#[test]
fn a_round_trip_is_two_handovers() {
    let report =
        report(vec![visit(case(0, 1, Home::First), &[62.0; 9]), visit(case(0, 1, Home::First), &[60.0, 64.0])]);
    let [row] = &report.handovers.rows[..] else { panic!("{:?}", report.handovers.rows) };
    let cost = row.latency_ns.unwrap();
    assert_eq!((row.from(), row.to(), cost.best, cost.median), (0, Some(1), 60.0, 62.0));
    assert_eq!((row.quality.samples, row.quality.rounds), (11, 2));
    // The geometric mean of 62 ns and of what lies between 60 and 64 ns, by 4 cycles per nanosecond.
    assert!((row.latency_cycles.unwrap() - 248.0).abs() < 0.1, "{:?}", row.latency_cycles);
    assert_eq!(row.relation, Relation::CacheDomain);
    let says = "A line passes between two cores of one cache domain in 62.0 ns (248 cycles), one way.";
    assert!(report.findings.iter().any(|text| text.starts_with(says)), "{:?}", report.findings);
}

#[test]
fn pairs_are_told_apart_by_how_near_they_are() {
    let machine = machine();
    let relation = |a, b| machine.relation(a, b);
    assert_eq!(
        [relation(0, 2), relation(0, 1), relation(1, 2)],
        [Relation::Siblings, Relation::CacheDomain, Relation::CacheDomain]
    );
    assert_eq!([relation(0, 3), relation(0, 99)], [Relation::Package, Relation::Unknown]);
    let pairs = [(0, 2, 10.0), (0, 1, 30.0), (1, 2, 40.0), (0, 3, 90.0)];
    let report = report(pairs.map(|(a, b, ns)| visit(case(a, b, Home::First), &[ns; 9])).into());
    let groups: Vec<_> = report
        .handovers
        .groups
        .iter()
        .map(|group| (group.relation, group.rows, group.least_ns.round(), group.greatest_ns.round()))
        .collect();
    assert_eq!(
        groups,
        [
            (Relation::Siblings, 1, 10.0, 10.0),
            (Relation::CacheDomain, 2, 30.0, 40.0),
            (Relation::Package, 1, 90.0, 90.0)
        ]
    );
}

/// As on a guest of 16 CPUs, whose pairs met on one core now and then: 8 to 17 ns instead of 75.
#[test]
fn a_host_that_moves_the_cpus_is_said() {
    let says = |pairs: &[(u32, u32, Home, f64)]| {
        let visits = pairs.iter().map(|&(a, b, home, ns)| visit(case(a, b, home), &[ns; 9]));
        let findings = report(visits.collect()).findings;
        findings.into_iter().find(|text| text.starts_with("The host moves"))
    };
    let apart = [(0, 1, Home::First, 75.0), (0, 3, Home::First, 76.0), (1, 3, Home::First, 74.0)];
    let moved = [&apart[..], &[(0, 1, Home::Second, 8.6), (3, 1, Home::Second, 16.0)]].concat();
    let expect = "The host moves the CPUs: 2 of 3 pairs were at times far nearer (8.60 ns to 16.0 ns) than at others, so the matrix \
                  shows moments, not places.";
    assert_eq!(says(&moved).as_deref(), Some(expect));
    // Two threads of one core are always near; a pair in between is neither.
    assert_eq!(says(&[&apart[..], &[(0, 2, Home::First, 8.6), (0, 2, Home::Second, 8.7)]].concat()), None);
    assert_eq!(says(&[&apart[..], &[(0, 1, Home::Second, 40.0)]].concat()), None);
}

/// The mirror image has the same home: the CPU that touched the page first is the second one there.
#[test]
fn what_differs_from_its_mirror_image_is_flagged() {
    let noisy = |ns: f64| [ns, ns + 1.0, ns - 1.0, ns + 0.5, ns - 0.5, ns, ns, ns + 0.2, ns - 0.2];
    let both = |mirror: f64| {
        report(vec![
            visit(case(0, 1, Home::First), &noisy(30.0)),
            visit(case(1, 0, Home::Second), &noisy(mirror)),
            visit(case(1, 0, Home::First), &noisy(50.0)),
            visit(case(0, 1, Home::Second), &noisy(50.0)),
        ])
    };
    let flagged = |report: &Report| -> Vec<bool> {
        report.handovers.rows.iter().map(|row| row.quality.has(Flag::Asymmetric)).collect()
    };
    assert_eq!(flagged(&both(30.3)), [false; 4]);
    let report = both(40.0);
    assert_eq!(flagged(&report), [true, false, false, true], "{:?}", report.handovers.rows);
    assert!(report.findings.iter().any(|text| text.starts_with("2 of 4 hand-overs differ")), "{:?}", report.findings);
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

    fn quota(time: Duration) -> Quota<'static> {
        Quota { least_samples: 2, most_samples: 5, time, interrupted: &go_on }
    }

    fn play(case: &Case) -> Outcome {
        Here::new(&[], Places::default(), false).unwrap().visit(case, &quota(Duration::from_millis(20)))
    }

    #[test]
    fn lines_are_passed_between_all_cpus_that_there_are() {
        let frame = Frame::new(&membound_measure::machine::live(), membound_measure::asm::detect(), None).unwrap();
        if frame.placement.most() < 2 {
            return skip("one CPU only");
        }
        for case in plan::c2c::handovers(&frame, &[]).unwrap().iter().take(4) {
            let Outcome::Measured(measured) = play(case) else { panic!("{case}: {:?}", play(case)) };
            assert!(measured.samples.is_consistent() && measured.samples.ticks.len() >= 2, "{case}");
            assert!(measured.repetitions > 1 && measured.volume.units == 2);
            assert_eq!(measured.obtained.bytes, Bytes::kib(4));
        }
    }

    #[test]
    fn one_cpu_passes_nothing() {
        let machine = membound_measure::machine::live();
        let first: CpuSet = machine.usable_cpus().iter().take(1).collect();
        let frame = Frame::new(&machine, membound_measure::asm::detect(), Some(&first)).unwrap();
        let cases = plan::c2c::handovers(&frame, &[Home::First]).unwrap();
        let Outcome::Unavailable { reason } = play(&cases[0]) else { panic!("{cases:?}") };
        assert!(cases.len() == 1 && reason.contains("needs two cores"), "{reason}");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let first = membound_measure::machine::live().usable_cpus().first().unwrap();
        for (from, to) in [(first, 60_000), (60_000, first)] {
            let Outcome::Unavailable { reason } = play(&case(from, to, Home::Second)) else { panic!("played") };
            assert!(reason.contains("CPU 60000"), "{reason}");
        }
    }
}
