//! Machines from a few files, and records of runs that never were.
#![allow(dead_code)] // Each test file uses its part.

use crate::common::by_hand;
use std::path::Path;

use membound_core::case::Case;
use membound_core::machine::Machine;
use membound_core::memory::Obtained;
use membound_core::memory::located::NodePages;
use membound_core::record::{Measured, Measurement, Outcome, Record, Sample, Samples, Volume};

/// Ticks a second of the imitated clock, and links of its dependent-add chain.
pub const HZ: f64 = 2e9;
const LINKS: u64 = 20_000;

/// Writes files below a folder.
pub fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// The machine that these files describe.
pub fn machine(files: &[(&str, &str)]) -> Machine {
    let root = by_hand::machine_folder();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    write(root.path(), files);
    Machine::read(root.path()).unwrap()
}

/// A record of these visits, in this order.
pub fn record(machine: Machine, measurements: Vec<Measurement>) -> Record {
    by_hand::record(by_hand::clock(HZ), machine, measurements)
}

/// A visit that moved the working set once a sample, at about so many bytes a second, on a core of 3 GHz, with these pages
/// found on these nodes.
pub fn visit(case: &Case, bps: f64, pages: &[(u32, u64)]) -> Measurement {
    visit_at(case, bps, pages, 3e9)
}

/// The same on a core of another clock.
pub fn visit_at(case: &Case, bps: f64, pages: &[(u32, u64)], core_hz: f64) -> Measurement {
    let mut samples = Samples::default();
    for share in [0.99, 1.0, 1.01, 1.0, 0.995, 1.005, 1.0] {
        let ticks = (case.working_set.0 as f64 / (bps * share) * HZ) as u64;
        let core_clock_ticks = (LINKS as f64 / core_hz * HZ) as u64;
        samples.push(Sample { ticks, core_clock_ticks, ..Sample::default() });
    }
    let measured = Measured {
        volume: Volume { units: case.working_set.0 / 8, loaded: case.working_set.0, ..Volume::default() },
        repetitions: 1,
        core_clock_links: LINKS,
        samples,
        obtained: Obtained {
            bytes: case.working_set,
            pages_on_node: pages.iter().map(|&(node, pages)| NodePages { node, pages }).collect(),
            ..Obtained::default()
        },
    };
    Measurement::new(case.clone(), 0, Outcome::Measured(Box::new(measured)))
}
