//! What stops the process from outside, for real: SIGSTOP in the middle of its visits.

use crate::common::program::membound;
use crate::common::signals::send;
use std::process::Stdio;
use std::time::Duration;

use membound_analyze::flag::Flag;
use membound_analyze::of_record as model;
use membound_core::record::{Outcome, Record};

/// Each stop lasts so long: more than the program takes for another task's turn.
const STOP: Duration = Duration::from_millis(300);

/// Samples of long passes take nearly all of the run, so that of several stops some fall into one. Wherever a sample holds
/// a stop, its row says so.
#[test]
fn a_stop_in_a_sample_is_never_silent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let mut command = membound();
    command.args(["bandwidth", "--kernel", "load", "--size", "256MiB", "--threads", "1", "--width", "scalar"]);
    command.args(["--samples", "10000", "--budget", "6s", "--quiet", "--record"]).arg(&path);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(400));
        send(libc::SIGSTOP, child.id());
        std::thread::sleep(STOP);
        send(libc::SIGCONT, child.id());
    }
    let record = Record::read(&path).unwrap();
    let samples = record.measurements.iter().filter_map(|visit| match &visit.outcome {
        Outcome::Measured(measured) => Some(&measured.samples),
        _ => None,
    });
    let stopped =
        samples.flat_map(|samples| &samples.lost_us).filter(|us| **us as u128 >= STOP.as_micros() / 2).count();
    assert!(stopped > 0, "no stop fell into a sample: this test has shown nothing");
    let report = model::report(&record);
    assert!(report.bandwidth().rows.iter().any(|row| row.quality.has(Flag::Stopped)), "{stopped} samples");
}
