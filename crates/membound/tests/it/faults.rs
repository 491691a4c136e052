//! What goes wrong on the way to a latency, for real: a CPU that is gone, memory that is not there. The case at fault
//! has an outcome with its reason; all others are measured.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::skip::skip;
use membound_core::case::{Case, Work};
use membound_core::experiments::frame::Frame;
use membound_core::experiments::latency::LatencyChoice;
use membound_core::kernel::chase::{Chase, Order};
use membound_core::machine::cpuset::CpuSet;
use membound_core::record::{Measurement, Outcome};
use membound_core::units::Bytes;
use membound_core::work::c2c::Home;
use membound_core::work::loaded::{Load, Loaded};
use membound_core::{case, experiments as plan};
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::schedule as run;
use membound_measure::schedule::Schedule;

/// No Linux has so many CPUs: pinning to it fails as it does where a CPU went offline, or out of the cpuset, after the
/// plan was made.
const GONE: u32 = 60_000;

fn frame() -> Frame {
    let machine = membound_measure::machine::live();
    let first: CpuSet = machine.usable_cpus().iter().take(1).collect();
    Frame::new(&machine, membound_measure::asm::detect(), Some(&first)).unwrap()
}

fn run(cases: &[Case]) -> Vec<Measurement> {
    let mut found = Vec::new();
    let schedule = Schedule {
        seed: 3,
        started: Instant::now(),
        deadline: Instant::now() + Duration::from_secs(60),
        samples: 2,
        most_rounds: 2,
        settled: &|_| false,
        interrupted: &|| false,
    };
    let mut sink = |measurement| {
        found.push(measurement);
        Ok(())
    };
    let mut here = Here::new(cases, Places::default(), false).unwrap();
    run::run(cases, &mut here, &schedule, &mut sink, &mut |_| {}).unwrap();
    found
}

/// Every kind of case, with the CPU that is gone in each place.
#[test]
fn a_cpu_that_is_gone_ends_its_own_cases_alone() {
    let frame = frame();
    let choice = LatencyChoice { sizes: vec![Bytes::kib(16), Bytes::kib(64)], ..LatencyChoice::default() };
    let sound = plan::latency::latency_choice(&frame, &choice).unwrap();
    let here = sound[0].cpus[0];
    let pair =
        |cpus: [u32; 2]| Case { cpus: cpus.into(), ..plan::c2c::handovers(&frame, &[Home::First]).unwrap()[0].clone() };
    let loaded = |cpus: [u32; 2], load| {
        let work = Work::Loaded(Loaded { chase: Bytes::kib(256), load });
        Case { work, cpus: cpus.into(), working_set: Bytes::kib(448), ..sound[0].clone() }
    };
    let broken = [
        Case { cpus: vec![GONE], ..sound[0].clone() },
        pair([here, GONE]),
        pair([GONE, here]),
        loaded([here, GONE], Load::Idle),
        loaded([GONE, here], Load::Idle),
    ];
    let found = run(&[&sound[..], &broken[..]].concat());
    let follows = |pair: &[Measurement]| pair[0].started_s + pair[0].elapsed_s <= pair[1].started_s + 1e-9;
    assert!(found[0].started_s >= 0.0 && found.windows(2).all(follows), "one visit after the other: {found:?}");
    for visit in &found {
        match &visit.outcome {
            Outcome::Measured(_) => assert!(sound.contains(&visit.case), "{}", visit.case),
            Outcome::Unavailable { reason } => {
                assert!(broken.contains(&visit.case), "{}: {reason}", visit.case);
                assert!(reason.contains("CPU 60000 can't be used") && reason.contains("--cpus"), "{reason}");
            }
            outcome => panic!("{}: {outcome:?}", visit.case),
        }
    }
    // What can't be measured is not tried again.
    assert_eq!(found.len(), 2 * sound.len() + broken.len());
}

/// Address space for the small working set, not for the large one: the larger is refused, the smaller is measured.
#[test]
fn too_little_memory_is_an_outcome() {
    let command = format!(
        "ulimit -v 600000; exec {} latency --size 16KiB,700MiB --memory 4k --budget 3s --samples 3 --quiet --format json",
        env!("CARGO_BIN_EXE_membound")
    );
    let output = Command::new("bash").args(["-c", &command]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("is more than the") {
        return skip(format!("this machine has no 700 MiB to spare: {stderr}"));
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let outcome = |size: u64| rows.iter().find(|row| row["working_set_bytes"] == size).unwrap();
    assert_eq!(outcome(16 << 10)["outcome"], "measured", "{rows:?}");
    let refused = outcome(700 << 20);
    assert_eq!(refused["outcome"], "unavailable", "{refused}");
    assert!(refused["reason"].as_str().unwrap().contains("refused"), "{refused}");
}

#[test]
fn a_plan_without_memory_names_the_cure() {
    let frame = Frame { memory_limit: Bytes::mib(32), ..frame() };
    let choice = LatencyChoice { sizes: vec![Bytes::mib(64)], ..LatencyChoice::default() };
    let fault = plan::latency::latency_choice(&frame, &choice).unwrap_err().to_string();
    assert!(fault.contains("64 MiB is more than the 32 MiB") && fault.contains("smaller --size"), "{fault}");
    let small = Chase::of(Order::Random).least();
    assert!(frame.memory_size(1) >= small, "what is planned without a size still fits");
    assert!(plan::latency::latency_map(&frame, &[case::USUAL_MEMORY], &[]).is_ok());
}
