//! `membound machine`, and the machine that runs the tests.

use std::path::Path;

use membound_core::machine::Machine;
use tempfile::TempDir;

use crate::common::facts::{check_json, check_order};
use crate::common::program;

/// Runs `membound machine --root`.
fn membound(root: &Path, format: &str) -> std::process::Output {
    let mut command = program::membound();
    command.args(["machine", "--format", format, "--root"]).arg(root).output().unwrap()
}

#[test]
fn a_root_without_a_machine_is_a_usage_error() {
    let folder = TempDir::new().unwrap();
    let output = membound(folder.path(), "table");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains("name the folder that holds them"));
}

#[test]
fn the_command_prints_json() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("proc")).unwrap();
    std::fs::write(folder.path().join("proc/meminfo"), "MemTotal: 1024 kB\n").unwrap();
    let output = membound(folder.path(), "json");
    assert_eq!(output.status.code(), Some(0));
    let machine = Machine::read(folder.path()).unwrap();
    assert_eq!(serde_json::from_slice::<Machine>(&output.stdout).unwrap(), machine);
}

#[test]
fn the_live_machine_has_the_cpus_of_this_process() {
    let machine = membound_measure::machine::live();
    let parallelism = std::thread::available_parallelism().unwrap().get();
    // Quotas lower the parallelism, not the CPUs.
    assert!(machine.usable_cpus().len() >= parallelism);
    assert!(machine.pages.base.known().is_some());
    assert!(machine.available_memory().known().is_some());
    check_json(&machine);
    check_order(&machine);
}
