//! Every plain experiment of the list, by its own command and for real: each work is measured or says why not, the kernels
//! that do the same stand beside it, and every output shows it.

use std::path::Path;
use std::process::Output;

use crate::common::program::{run, text};
use crate::common::skip::skip;
use membound_core::plain::EXPERIMENTS;
use serde_json::Value;

fn rows(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One thread at a size that every cache holds, measured to a record. Returns its rows.
fn measured(name: &str, record: &Path) -> Vec<Value> {
    let record = record.to_str().unwrap();
    let flags = ["--size", "64KiB", "--threads", "1", "--budget", "3s", "--quiet", "--format", "json", "--verify"];
    rows(&run(&[&[name, "--record", record], &flags[..]].concat()))
}

#[test]
fn every_work_is_measured_or_says_why_not() {
    for experiment in EXPERIMENTS {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("record.jsonl");
        let rows = measured(experiment.name, &record);
        let own: Vec<&Value> = rows.iter().filter(|row| row["metric"] == experiment.name).collect();
        assert_eq!(own.len(), (experiment.works)().len(), "{}: {rows:?}", experiment.name);
        for row in &own {
            match row["outcome"].as_str().unwrap() {
                "measured" => {
                    let rate = row["payload_Bps"]["median"].as_f64().unwrap();
                    let copied = row["copied_Bps"]["median"].as_f64().unwrap();
                    // A fill writes what it touches, a copy reads as much again.
                    assert!([1.0, 2.0].iter().any(|share| (rate / copied - share).abs() < 1e-9), "{row}");
                    assert!(
                        row["over_regular"][0].as_f64().unwrap() > 0.0 && row["over_nt"][0].as_f64().unwrap() > 0.0,
                        "{row}"
                    );
                }
                "unavailable" => skip(format!("{}: {}", row["work"], row["reason"])),
                other => panic!("{other}: {row}"),
            }
        }
        for kernel in ["copy", "init", "store"] {
            let beside = |row: &&Value| row["metric"] == "bandwidth" && row["kernel"] == kernel;
            let is_needed = (experiment.works)().iter().any(|work| work.kernel() == kernel);
            assert_eq!(rows.iter().filter(beside).count(), if is_needed { 2 } else { 0 }, "{}", experiment.name);
        }
        outputs_show_it(&record, &own);
    }
}

/// The record alone gives the same rows, and every output names every work. What could not be measured has no table of dashes.
fn outputs_show_it(record: &Path, own: &[&Value]) {
    let folder = record.parent().unwrap().to_str().unwrap();
    let report = |format: &str| run(&["report", record.to_str().unwrap(), "--format", format, "--out", folder]);
    let again = rows(&report("json"));
    assert!(own.iter().all(|row| again.contains(row)));
    for format in ["table", "markdown", "csv"] {
        let shown = text(&report(format).stdout);
        for row in own {
            let work = row["work"].as_str().unwrap();
            assert!(shown.contains(work), "{format}: {shown}");
            let has_table = shown.contains(&format!("{work}, 1 thread"));
            assert!(format == "csv" || has_table == (row["outcome"] == "measured"), "{format}: {shown}");
        }
    }
}

#[test]
fn wrong_flags_are_usage() {
    for experiment in EXPERIMENTS {
        for flags in [["--size", "64"], ["--size", "1EiB"], ["--threads", "100000"], ["--memory", "paper"]] {
            let refused = run(&[&[experiment.name], &flags[..]].concat());
            assert_eq!(refused.status.code(), Some(2), "{} {flags:?}: {}", experiment.name, text(&refused.stderr));
        }
        let listed = text(&run(&[experiment.name, "--list", "--size", "1MiB"]).stdout);
        for work in (experiment.works)() {
            assert!(listed.contains(&work.to_string()), "{listed}");
        }
    }
}
