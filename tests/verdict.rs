//! The verdict: each cause planted in machines of random parameters is found, and healthy machines have none. What it says
//! of a record made by hand, with numbers worked out by hand. The commands that it names are commands.

#[path = "common/imitation.rs"]
mod imitation;
#[path = "common/planted.rs"]
mod planted;

use std::process::Command;

use membound::model::verdict::{Cause, CauseKind, Verdict};
use membound::model::{self, Report};
use planted::{Machines, Simulated};

/// Healthy machines, and machines of each cause: seeds count from these.
const HEALTHY: std::ops::Range<u64> = 1000..1100;
const PLANTED: std::ops::Range<u64> = 2000..2024;

fn causes(verdict: &Verdict) -> Vec<CauseKind> {
    verdict.causes.iter().map(|cause| cause.cause).collect()
}

fn simulated(machines: &mut Machines, cause: Option<CauseKind>, seed: u64) -> (Simulated, Report) {
    let mut machine = Simulated::new(machines, cause, seed);
    let report = model::report(&machine.record());
    (machine, report)
}

#[test]
fn healthy_machines_have_no_cause() {
    let mut machines = Machines::default();
    let mut wrong = Vec::new();
    for seed in HEALTHY {
        let (_, report) = simulated(&mut machines, None, seed);
        assert!(report.verdict.gap.is_some(), "seed {seed}: nothing in memory");
        if !report.verdict.causes.is_empty() {
            wrong.push(format!("seed {seed}: {:#?}", report.verdict.causes));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), HEALTHY.count(), wrong.join("\n"));
}

#[test]
fn each_cause_is_found() {
    let mut machines = Machines::default();
    let mut wrong = Vec::new();
    let (mut first, mut all) = (0, 0);
    for &cause in CauseKind::ALL {
        for seed in PLANTED {
            let (machine, report) = simulated(&mut machines, Some(cause), seed);
            let found = causes(&report.verdict);
            let place = found.iter().position(|other| *other == cause);
            all += 1;
            first += usize::from(place == Some(0));
            // A write-allocate is planted beside other causes on every second machine.
            let other =
                |other: &CauseKind| *other != cause && !(machine.allocates && *other == CauseKind::WriteAllocate);
            if place.is_none_or(|place| place > 1) || found.iter().any(other) {
                wrong.push(format!("seed {seed}, {cause}: {found:?}, CPUs {}", machine.used()));
            }
        }
    }
    println!("planted causes: {all}, found first {first}, wrong {}", wrong.len());
    assert!(wrong.is_empty(), "{} of {all}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Shares are shares, and every cause has all that a reader needs.
fn is_whole(cause: &Cause) {
    assert!(!cause.evidence.is_empty() && !cause.cure.is_empty(), "{cause:?}");
    assert!(cause.share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{cause:?}");
    assert_eq!(cause.share.is_some(), cause.gives_back_bps.is_some(), "{cause:?}");
    assert!(cause.test.starts_with("membound "), "{cause:?}");
}

#[test]
fn the_commands_that_test_a_cause_are_commands() {
    let mut machines = Machines::default();
    for &cause in CauseKind::ALL {
        let (_, report) = simulated(&mut machines, Some(cause), 2001);
        let found = report.verdict.causes.iter().find(|found| found.cause == cause).unwrap();
        is_whole(found);
        let mut arguments: Vec<&str> = found.test.split_whitespace().skip(1).collect();
        // The plan is refused where this machine has fewer CPUs or nodes, never the words.
        arguments.push(if arguments == ["machine"] { "--help" } else { "--list" });
        let output = Command::new(env!("CARGO_BIN_EXE_membound")).args(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("Usage:") && !said.contains("unexpected"), "{}: {said}", found.test);
    }
}
