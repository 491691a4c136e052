//! Memory that a device shares with the processor: on PoCL, where it is installed, and on an OpenCL of our own that has every
//! fault. No time is asserted, only what was found and what was refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::launched::text;
use crate::common::skip::skip;

/// A folder with a library of our own, compiled; nothing where there is no compiler.
pub(crate) fn built(source: &str, library: &str, flags: &[&str]) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(source), folder.path().join(library));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(out).args(flags).arg(source);
    match compiler.output() {
        Ok(output) if output.status.success() => Some(folder),
        Ok(output) => panic!("{}", text(&output.stderr)),
        Err(_) => None,
    }
}

/// The folder of the fake loader, built once; nothing where there is no compiler.
fn fake() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<TempDir>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| built("tests/opencl/fake.c", "libOpenCL.so.1", &[])).as_ref().map(TempDir::path);
    if folder.is_none() {
        skip("no C compiler");
    }
    folder
}

pub(crate) fn membound(library: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_membound"));
    command.env("LD_LIBRARY_PATH", library).envs(variables.iter().copied());
    command.args(arguments).output().unwrap()
}

/// On the fake device with a fault.
fn on_fake(fault: &str, arguments: &[&str]) -> Option<Output> {
    Some(membound(fake()?, &[("FAKE_OPENCL", fault)], arguments))
}

fn listed(fault: &str) -> Option<Value> {
    let output = on_fake(fault, &["devices", "--format", "json"])?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

const KINDS: [&str; 11] =
    ["kinds", "--device", "opencl:0", "--size", "256KiB", "--samples", "5", "--rounds", "1", "--format", "json"];

/// Rows of a run, and its exit code.
pub(crate) fn rows(output: &Output) -> (Vec<Value>, Option<i32>) {
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    let rows = serde_json::from_slice(&output.stdout).unwrap_or_else(|fault| panic!("{fault}: {stderr}"));
    (rows, output.status.code())
}

fn on_fake_rows(fault: &str, more: &[&str]) -> Option<(Vec<Value>, Option<i32>)> {
    on_fake(fault, &[&KINDS[..], more].concat()).map(|output| rows(&output))
}

pub(crate) fn sharing<'a>(rows: &'a [Value], buffer: &str) -> Vec<&'a str> {
    let of_kind = rows.iter().filter(|row| row["buffer"] == buffer);
    let mut found: Vec<&str> = of_kind.filter_map(|row| row["sharing"].as_str()).collect();
    found.dedup();
    found
}

/// What `membound devices` says of an interface's devices, and why there are none.
pub(crate) fn listed_by(api: &str, library: &Path, variables: &[(&str, &str)]) -> (Vec<Value>, Vec<String>) {
    let output = membound(library, variables, &["devices", "--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_of = |device: &&Value| device["name"].as_str().unwrap().split_once(':').unwrap().0 == api;
    let devices = all["devices"].as_array().unwrap().iter().filter(is_of).cloned().collect();
    let absent = all["absent"].as_array().into_iter().flatten().filter(|pair| pair[0] == api);
    (devices, absent.map(|pair| pair[1].as_str().unwrap().to_string()).collect())
}

/// The rows that have this word there.
pub(crate) fn of(rows: &[Value], key: &str, value: &str) -> Vec<Value> {
    rows.iter().filter(|row| row[key] == value).cloned().collect()
}

/// All rows have this outcome, and a reason with this text.
pub(crate) fn all_are(rows: &[Value], outcome: &str, part: &str) {
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["outcome"], outcome, "{row}");
        assert!(row["reason"].as_str().unwrap().contains(part), "{row}");
    }
}

#[test]
fn devices_are_listed_as_their_driver_describes_them() {
    let Some(one) = listed("") else { return };
    let device = &one["devices"][0];
    assert_eq!(
        (&device["name"], &device["title"], &device["kind"]),
        (&"opencl:0".into(), &"Fake GPU".into(), &"gpu".into())
    );
    assert_eq!((&device["pci"], &device["memory"]), (&"0000:3b:00.0".into(), &(1u64 << 30).into()));
    let Some(library) = fake() else { return };
    let (two, _) = listed_by("opencl", library, &[("FAKE_OPENCL", "two")]);
    assert_eq!((two.len(), &two[1]["name"]), (2, &"opencl:1".into()));
}

#[test]
fn why_there_is_no_device_is_told_with_its_cure() {
    let reason = |fault: &str| Some(listed(fault)?["absent"][0][1].as_str()?.to_string());
    let (Some(platform), Some(device)) = (reason("no-platform"), reason("no-device")) else { return };
    assert!(platform.contains("no OpenCL platform; install"), "{platform}");
    assert!(device.contains("1 OpenCL platform(s) without a device; install"), "{device}");
    let crash = reason("crash").unwrap();
    assert!(crash.contains("ended by signal 6"), "{crash}");
    // A file that is no library, and one that is another.
    let folder = tempfile::tempdir().unwrap();
    for name in ["libOpenCL.so.1", "libOpenCL.so"] {
        std::fs::write(folder.path().join(name), "nothing").unwrap();
    }
    let output = membound(folder.path(), &[], &["devices"]);
    assert!(output.status.success() && text(&output.stdout).contains("unavailable: no OpenCL loader"), "{output:?}");
}

#[test]
fn a_driver_that_hangs_in_its_first_call_is_ended() {
    let Some((found, code)) = on_fake_rows("hang", &["--part", "contention", "--budget", "2s"]) else { return };
    all_are(&found, "unavailable", "has not answered for 20 s");
    assert_eq!(code, Some(1), "nothing was measured");
}

/// Aligned memory is shared and other memory is copied: by what both sides see, whatever the flags say.
#[test]
fn zero_copy_is_told_from_copying_by_behaviour() {
    let Some((found, code)) = on_fake_rows("", &["--part", "buffers", "--budget", "120s"]) else { return };
    assert_eq!(code, Some(0));
    for (buffer, expect) in [
        ("plain", "copied"),
        ("alloc-host", "copied"),
        ("use-host-4k", "zero-copy"),
        ("use-host-64", "copied"),
        ("use-host-8", "copied"),
    ] {
        assert_eq!(sharing(&found, buffer), [expect], "{buffer}");
    }
    let svm: Vec<Value> =
        found.iter().filter(|row| row["buffer"].as_str().unwrap().starts_with("svm")).cloned().collect();
    all_are(&svm, "unavailable", "shared virtual memory");
}

#[test]
fn buffers_are_given_back() {
    let Some(library) = fake() else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("most");
    let arguments = [&KINDS[..], &["--part", "buffers", "--budget", "120s"]].concat();
    let output = membound(library, &[("FAKE_OPENCL_LOG", log.to_str().unwrap())], &arguments);
    let (found, _) = rows(&output);
    let visits: u64 = found.iter().filter_map(|row| row["rounds"].as_u64()).sum();
    assert!(visits >= 50, "{visits}");
    // A visit holds a buffer, what it is copied to, and the word of the probe.
    let most: u32 = std::fs::read_to_string(&log).unwrap().lines().last().unwrap().parse().unwrap();
    assert!(most <= 4, "{most} buffers lived at once");
}

#[test]
fn a_lost_device_and_too_little_memory_are_outcomes() {
    let Some((found, code)) = on_fake_rows("lost", &["--part", "kernels", "--budget", "120s"]) else { return };
    // A visit of two slow samples may be done before.
    let lost: Vec<Value> = found.into_iter().filter(|row| row["outcome"] != "measured").collect();
    all_are(&lost, "crashed", "the device was lost: CL_INVALID_COMMAND_QUEUE (-36) from clFinish");
    assert_eq!(code, Some(1));
    let copies = [
        "copies",
        "--device",
        "opencl:0",
        "--sizes",
        "64,256KiB",
        "--rounds",
        "1",
        "--budget",
        "120s",
        "--format",
        "json",
    ];
    let (found, code) = rows(&on_fake("lost", &copies).unwrap());
    let lost: Vec<Value> = found.into_iter().filter(|row| row["outcome"] != "measured").collect();
    all_are(&lost, "crashed", "the device was lost: CL_INVALID_COMMAND_QUEUE (-36) from clFinish");
    assert_eq!(code, Some(1));
    let (found, code) = on_fake_rows("memory", &["--part", "kernels", "--budget", "120s"]).unwrap();
    all_are(
        &found,
        "unavailable",
        "too little memory: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4) from clCreateBuffer; give a smaller --size",
    );
    assert_eq!(code, Some(1), "nothing was measured");
    let (found, _) = on_fake_rows("no-compiler", &["--part", "kernels", "--budget", "120s"]).unwrap();
    all_are(
        &found,
        "unavailable",
        "compiler refuses our kernels: CL_BUILD_PROGRAM_FAILURE (-11) from clBuildProgram: line 1: no",
    );
}

/// NVIDIA's driver refuses a buffer where a kernel was given shared virtual memory before; all kinds are measured all the same.
#[test]
fn a_kernel_takes_buffers_after_shared_virtual_memory() {
    let Some((found, code)) = on_fake_rows("svm", &["--part", "buffers", "--budget", "120s"]) else { return };
    for buffer in ["plain", "alloc-host", "svm-coarse"] {
        let others = of(&found, "buffer", buffer).into_iter().filter(|row| row["outcome"] != "measured");
        assert_eq!(others.collect::<Vec<_>>(), [] as [Value; 0]);
    }
    assert_eq!((sharing(&found, "svm-coarse"), code), (vec!["zero-copy"], Some(0)));
}

#[test]
fn a_device_that_computes_wrongly_is_invalid() {
    let Some((found, code)) = on_fake_rows("wrong", &["--part", "kernels", "--budget", "120s"]) else { return };
    let (wrong, right): (Vec<Value>, Vec<Value>) = found.into_iter().partition(|row| row["action"] == "kernel-triad");
    all_are(&wrong, "invalid", "data check failed: element 0 is 12, must be 11");
    assert!(right.iter().all(|row| row["outcome"] == "measured"), "{right:?}");
    assert_eq!(code, Some(1));
}

#[test]
fn a_name_of_no_device_and_parts_of_none_are_refused() {
    let Some((found, code)) = on_fake(
        "",
        &[
            "kinds",
            "--device",
            "opencl:7",
            "--part",
            "contention",
            "--size",
            "64KiB",
            "--budget",
            "2s",
            "--format",
            "json",
        ],
    )
    .map(|output| rows(&output)) else {
        return;
    };
    all_are(&found, "unavailable", "there is no opencl:7; `membound devices` lists what there is");
    assert_eq!(code, Some(1));
    let refuses = |arguments: &[&str], part: &str| {
        let output = membound(Path::new(""), &[], arguments);
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(part), "{stderr}");
    };
    refuses(&["kinds", "--part", "kernels"], "--part kernels is one of a device with a driver");
    refuses(&["kinds", "--device", "opencl:0", "--part", "pages"], "--part pages is one of the processor's own memory");
    refuses(&["kinds", "--device", "opencl:0", "--memory", "thp"], "leave --memory and --node out");
    refuses(&["bandwidth", "--device", "opencl:0"], "membound kinds --device opencl:0");
}

/// PoCL's device is the processor: it works on any memory of the program's, aligned or not.
#[test]
fn a_device_on_the_processor_shares_all_memory() {
    let own = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_membound")).args(arguments).output().unwrap();
    let listed: Value = serde_json::from_slice(&own(&["devices", "--format", "json"]).stdout).unwrap();
    let is_pocl = |device: &&Value| device["driver"].as_str().unwrap().starts_with("Portable Computing Language");
    let Some(device) = listed["devices"].as_array().unwrap().iter().find(is_pocl) else {
        return skip(format!("no PoCL: {}", listed["absent"]));
    };
    let name = device["name"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let measured = |parts: &str, rounds: &str| {
        let record: PathBuf = folder.path().join(rounds);
        let file = record.to_str().unwrap();
        let output = own(&[
            &["kinds", "--device", name, "--part", parts, "--rounds", rounds, "--record", file],
            &["--size", "256KiB", "--samples", "3", "--budget", "120s", "--format", "json"][..],
        ]
        .concat());
        let (found, code) = rows(&output);
        assert_eq!(code, Some(0), "{}", text(&output.stderr));
        let is_measured = |row: &Value| row["outcome"] == "measured" && row["ns"]["best"].as_f64().unwrap() > 0.0;
        assert!(found.iter().all(|row| row["outcome"] == "unavailable" || is_measured(row)), "{found:?}");
        // The record alone gives the same rows again.
        let again = own(&["report", file, "--format", "json"]);
        assert_eq!(text(&again.stdout), text(&output.stdout));
        found
    };
    let found = measured("buffers,kernels", "1");
    for buffer in ["plain", "alloc-host", "use-host-4k", "use-host-64", "use-host-8", "copy-host"] {
        assert_eq!(sharing(&found, buffer), ["zero-copy"], "{buffer}");
    }
    // What runs beside for a fifth of the time is to do ten passes.
    let beside = measured("contention", "3").iter().filter(|row| row["beside_Bps"].as_f64().is_some()).count();
    assert_eq!(beside, 10, "both sides of the contention, beside the other all the time and for a part of it");
}

/// A copy of the host's memory to the device and back, at two sizes, on PoCL; and the report of the record again.
#[test]
fn copies_go_to_a_device_on_the_processor() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.jsonl");
    let own = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_membound")).args(arguments).output().unwrap();
    let arguments = [
        "copies",
        "--device",
        "opencl:0",
        "--sizes",
        "64,256KiB",
        "--samples",
        "3",
        "--rounds",
        "1",
        "--budget",
        "120s",
    ];
    let output = own(&[&arguments[..], &["--format", "json", "--record", record.to_str().unwrap()]].concat());
    let (found, code) = rows(&output);
    if found[0]["outcome"] == "unavailable" {
        return skip(format!("no PoCL: {}", found[0]["reason"]));
    }
    assert!(found.iter().all(|row| row["outcome"] == "measured"), "{found:?}");
    assert_eq!((found.len(), code), (14, Some(0)), "six ways with the host and one within, at two sizes");
    for row in &found {
        let both = if row["route"] == "host-both-ways" { 2.0 } else { 1.0 };
        let [ns, bps] = ["ns", "copied_Bps"].map(|figure| row[figure]["median"].as_f64().unwrap());
        let bytes = row["bytes"].as_f64().unwrap() * both;
        assert!((bps * ns / 1e9 / bytes - 1.0).abs() < 1e-6, "{row}");
    }
    let again = own(&["report", record.to_str().unwrap(), "--format", "json"]);
    assert_eq!(text(&again.stdout), text(&output.stdout));
}
