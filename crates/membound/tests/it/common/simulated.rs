//! Whole commands on a simulated machine: plan, run, record, file, report. Nothing of it is a measurement.

use std::time::{Duration, Instant};

use crate::common::{by_hand, imitation};
use membound_analyze::experiments::addrmap::rows::Experiment;
use membound_analyze::of_record as model;
use membound_analyze::report::Report;
use membound_core::case::Case;
use membound_core::experiments as plan;
use membound_core::experiments::frame::Frame;
use membound_core::experiments::latency::Detail;
use membound_core::machine::Machine;
use membound_core::record::{Clock, End, Environment, Measurement, Record};
use membound_core::units::Bytes;
use membound_measure::executor::fake::{Fake, FakeLevel, Noise};
use membound_measure::schedule as run;
use membound_measure::schedule::{Executor, Schedule};

/// A machine of so many cores behind one last-level cache of 32 MiB; where it is hybrid, the second half of them is
/// weaker.
pub fn machine(cpus: u32, is_hybrid: bool) -> Machine {
    let root = by_hand::machine_folder();
    let write = |path: &str, text: &str| imitation::file(root.path(), path, text);
    let all = if cpus == 1 { "0".into() } else { format!("0-{}", cpus - 1) };
    write("sys/devices/system/cpu/online", &all);
    write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    if is_hybrid {
        write("sys/devices/cpu_core/cpus", &format!("0-{}", cpus / 2 - 1));
        write("sys/devices/cpu_atom/cpus", &format!("{}-{}", cpus / 2, cpus - 1));
    }
    for cpu in 0..cpus {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        let own = cpu.to_string();
        for (name, value) in [("physical_package_id", "0"), ("core_id", &own), ("core_cpus_list", &own)] {
            write(&format!("{folder}/topology/{name}"), value);
        }
        for (index, level, size, shared) in [(0, "1", "32K", &own), (2, "2", "1024K", &own), (3, "3", "32768K", &all)] {
            let kind = if index == 0 { "Data" } else { "Unified" };
            let facts = [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)];
            for (name, value) in facts.into_iter().chain([("coherency_line_size", "64")]) {
                write(&format!("{folder}/cache/index{index}/{name}"), value);
            }
        }
    }
    Machine::read(root.path()).unwrap()
}

pub fn frame(machine: &Machine) -> Frame {
    Frame::new(machine, membound_measure::asm::detect(), None).unwrap()
}

/// Levels of 1.6, 4, 16 and 80 ns.
pub fn fake() -> Fake {
    let level = |capacity, bytes_per_s| FakeLevel { capacity, bytes_per_s, shared_bytes_per_s: 1.5 * bytes_per_s };
    let levels = vec![
        level(Bytes::kib(32), 400e9),
        level(Bytes::mib(1), 160e9),
        level(Bytes::mib(32), 40e9),
        level(Bytes(u64::MAX), 8e9),
    ];
    Fake::new(levels, Noise { sigma: 0.002, ..Noise::default() }, 7)
}

/// Runs `cases` in three rounds.
pub fn run(machine: &Machine, cases: &[Case], fake: &mut Fake) -> Record {
    in_rounds(machine, &[(cases, 3)], fake)
}

/// Runs each of these lists in so many rounds.
pub fn in_rounds(machine: &Machine, lists: &[(&[Case], u32)], executor: &mut dyn Executor) -> Record {
    let mut measurements = Vec::new();
    let mut sink = |measurement| {
        measurements.push(measurement);
        Ok(())
    };
    for (cases, rounds) in lists {
        run::run(cases, executor, &schedule(*rounds), &mut sink, &mut |_| {}).unwrap();
    }
    record(machine, executor.clock(), measurements, lists.iter().map(|(cases, _)| cases.len()).sum())
}

fn schedule(rounds: u32) -> Schedule<'static> {
    Schedule {
        seed: 1,
        started: Instant::now(),
        deadline: Instant::now() + Duration::from_secs(3600),
        samples: 9,
        most_rounds: rounds,
        settled: &|_| false,
        interrupted: &|| false,
    }
}

fn record(machine: &Machine, clock: Clock, measurements: Vec<Measurement>, planned: usize) -> Record {
    let end = End {
        wall_s: 1.0,
        interrupted: false,
        overran: false,
        planned: planned as u64,
        peak_memory: None,
        after: Environment::default(),
    };
    Record { end: Some(end), ..super::by_hand::record(clock, machine.clone(), measurements) }
}

fn report(machine: &Machine, cases: &[Case]) -> Report {
    model::report(&run(machine, cases, &mut fake()))
}

/// `membound latency`.
pub fn latency() -> Report {
    let machine = machine(1, false);
    report(&machine, &plan::latency::latency(&frame(&machine), Detail::Full).unwrap())
}

/// The record of a short ladder.
pub fn latency_record() -> Record {
    let machine = machine(1, false);
    let frame = frame(&machine);
    run(&machine, &plan::latency::latency(&frame, Detail::Sketch).unwrap(), &mut fake())
}

/// `membound latency --map` on so many CPUs.
pub fn map(cpus: u32) -> Report {
    use membound_core::memory::{MemoryKind, MemorySpec};
    let machine = machine(cpus, false);
    let memory = [0, 1].map(|node| MemorySpec::on(MemoryKind::Thp, node));
    report(&machine, &plan::latency::latency_map(&frame(&machine), &memory, &[]).unwrap())
}

/// `membound c2c` on so many CPUs.
pub fn c2c(cpus: u32, is_hybrid: bool) -> Report {
    let machine = machine(cpus, is_hybrid);
    report(&machine, &plan::c2c::handovers(&frame(&machine), &[]).unwrap())
}

/// `membound loaded` on so many CPUs.
pub fn loaded(cpus: u32) -> Report {
    let machine = machine(cpus, false);
    report(&machine, &plan::c2c::loaded(&frame(&machine), &[], 5, None).unwrap())
}

/// Runs an adaptive experiment to its end.
pub fn asked(experiment: &mut Experiment, executor: &mut dyn Executor, schedule: &Schedule<'_>) -> Vec<Measurement> {
    let mut measurements = Vec::new();
    let mut sink = |measurement| {
        measurements.push(measurement);
        Ok(())
    };
    let mut next = |measurement: Option<&Measurement>| {
        measurement.iter().for_each(|measurement| experiment.note(measurement));
        experiment.next()
    };
    run::follow(&mut next, executor, schedule, &mut sink, &mut |_| {}).unwrap();
    measurements
}

/// `membound addrmap`, on memory whose lines go to targets by this rule.
pub fn addrmap(target: Option<fn(u64) -> u64>) -> Report {
    use membound_core::memory::{MemoryKind, MemorySpec};
    let machine = machine(1, false);
    let mut fake = fake();
    fake.target = target;
    let spec = MemorySpec::of(MemoryKind::Thp);
    let about = plan::addrmap::conflict(&frame(&machine), spec, None).unwrap();
    let mut experiment = Experiment::new(&about, fake.clock().hz, &machine, 5);
    let measurements = asked(&mut experiment, &mut fake, &schedule(1));
    let planned = measurements.len();
    model::report(&record(&machine, fake.clock(), measurements, planned))
}
