//! Memory that a device shares with the processor: on PoCL, where it is installed, and on an OpenCL of our own that has every
//! fault. No time is asserted, only what was found and what was refused.

use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

use crate::common::fake_driver::{FakeDriver, ONCE, all_are, membound, not_measured, of, rows, sharing};
use crate::common::launched::text;
use crate::common::program::run;
use crate::common::skip::skip;

static FAKE: LazyLock<FakeDriver> = LazyLock::new(|| FakeDriver::new("opencl", "libOpenCL.so.1"));

#[test]
fn devices_are_listed_as_their_driver_describes_them() {
    let Some((one, _)) = FAKE.listed("") else { return };
    let device = &one[0];
    assert_eq!(
        (&device["name"], &device["title"], &device["kind"]),
        (&"opencl:0".into(), &"Fake GPU".into(), &"gpu".into())
    );
    assert_eq!((&device["pci"], &device["memory"]), (&"0000:3b:00.0".into(), &(1u64 << 30).into()));
    let (two, _) = FAKE.listed("two").unwrap();
    assert_eq!((two.len(), &two[1]["name"]), (2, &"opencl:1".into()));
}

#[test]
fn why_there_is_no_device_is_told_with_its_cure() {
    let reason = |fault: &str| FAKE.listed(fault).map(|(_, absent)| absent[0].clone());
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
    FAKE.hang_is_ended();
}

/// Aligned memory is shared and other memory is copied: by what both sides see, whatever the flags say.
#[test]
fn zero_copy_is_told_from_copying_by_behaviour() {
    let Some((found, code)) = FAKE.kinds("", &["--part", "buffers"]) else { return };
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
    let Some((_, _, most)) = FAKE.counted() else { return };
    // A visit holds a buffer, what it is copied to, and the word of the probe.
    assert!(most <= 4, "{most} buffers lived at once");
}

#[test]
fn a_lost_device_and_too_little_memory_are_outcomes() {
    let Some((found, code)) = FAKE.kinds("lost", &["--part", "kernels"]) else { return };
    // A visit of two slow samples may be done before.
    all_are(&not_measured(found), "crashed", "the device was lost: CL_INVALID_COMMAND_QUEUE (-36) from clFinish");
    assert_eq!(code, Some(1));
    let (found, code) = FAKE.copies("lost", &[0]).unwrap();
    all_are(&not_measured(found), "crashed", "the device was lost: CL_INVALID_COMMAND_QUEUE (-36) from clFinish");
    assert_eq!(code, Some(1));
    let (found, code) = FAKE.kinds("memory", &["--part", "kernels"]).unwrap();
    all_are(
        &found,
        "unavailable",
        "too little memory: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4) from clCreateBuffer; give a smaller --size",
    );
    assert_eq!(code, Some(1), "nothing was measured");
    let (found, _) = FAKE.kinds("no-compiler", &["--part", "kernels"]).unwrap();
    all_are(
        &found,
        "unavailable",
        "compiler refuses our kernels: CL_BUILD_PROGRAM_FAILURE (-11) from clBuildProgram: line 1: no",
    );
}

/// A device that refuses buffers of more than 32 MiB does its kernels over three of these.
#[test]
fn kernels_fit_where_no_buffer_holds_the_whole_working_set() {
    let Some((found, code)) = FAKE.kinds("small-buffers", &["--part", "kernels"]) else { return };
    assert_eq!((not_measured(found.clone()), code), (vec![], Some(0)));
    let largest =
        |action: &str| of(&found, "action", action).iter().filter_map(|row| row["working_set_bytes"].as_u64()).max();
    assert!(largest("kernel-triad") > Some(32 << 20) && largest("chase") <= Some(32 << 20), "{found:?}");
}

/// NVIDIA's driver refuses a buffer where a kernel was given shared virtual memory before; all kinds are measured all the same.
#[test]
fn a_kernel_takes_buffers_after_shared_virtual_memory() {
    let Some((found, code)) = FAKE.kinds("svm", &["--part", "buffers"]) else { return };
    for buffer in ["plain", "alloc-host", "svm-coarse"] {
        assert_eq!(not_measured(of(&found, "buffer", buffer)), [] as [Value; 0]);
    }
    assert_eq!((sharing(&found, "svm-coarse"), code), (vec!["zero-copy"], Some(0)));
}

#[test]
fn a_device_that_computes_wrongly_is_invalid() {
    let Some((found, code)) = FAKE.kinds("wrong", &["--part", "kernels"]) else { return };
    let (wrong, right): (Vec<Value>, Vec<Value>) = found.into_iter().partition(|row| row["action"] == "kernel-triad");
    all_are(&wrong, "invalid", "data check failed: element 0 is 12, must be 11");
    assert!(right.iter().all(|row| row["outcome"] == "measured"), "{right:?}");
    assert_eq!(code, Some(1));
}

/// A driver that believes that a buffer holds already what it was told last: each action that writes finds something else in it before.
#[test]
fn what_never_arrives_is_invalid() {
    let Some((found, code)) = FAKE.kinds("stale", &["--part", "buffers"]) else { return };
    let plain = of(&of(&found, "buffer", "plain"), "first_use", false);
    for action in ["use", "use-written", "store", "store-nt", "write"] {
        all_are(&of(&plain, "action", action), "invalid", "data check failed: element 0 is 1, must be 3");
    }
    assert_eq!(code, Some(1));
}

#[test]
fn a_name_of_no_device_and_parts_of_none_are_refused() {
    let absent = ["kinds", "--device", "opencl:7", "--part", "contention", "--size", "64KiB"];
    let Some(output) = FAKE.run("", &[&absent[..], &ONCE].concat()) else { return };
    let (found, code) = rows(&output);
    all_are(&found, "unavailable", "there is no opencl:7; `membound devices` lists what there is");
    assert_eq!(code, Some(1));
    let refuses = |arguments: &[&str], part: &str| {
        let output = membound(Path::new(""), &[], arguments);
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(part), "{stderr}");
    };
    refuses(&["kinds", "--part", "kernels"], "--part kernels is one of a device with a driver");
    refuses(&["kinds", "--device", "opencl:0", "--part", "pages"], "--part pages is one of the processor's own memory");
    refuses(&["kinds", "--device", "opencl:0", "--memory", "thp"], "leave out --memory");
    refuses(&["bandwidth", "--device", "opencl:0"], "membound kinds --device opencl:0");
}

/// Visits each case of these parts once on PoCL's device, whose rows the record alone then gives again; nothing where there is none.
/// All is measured; older versions of PoCL have less shared virtual memory.
fn on_pocl(parts: &str, samples: &str) -> Option<Vec<Value>> {
    let listed: Value = serde_json::from_slice(&run(&["devices", "--format", "json"]).stdout).unwrap();
    let is_pocl = |device: &&Value| device["driver"].as_str().unwrap().starts_with("Portable Computing Language");
    let Some(device) = listed["devices"].as_array().unwrap().iter().find(is_pocl) else {
        skip(format!("no PoCL: {}", listed["absent"]));
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.jsonl");
    let (device, file) = (device["name"].as_str().unwrap(), record.to_str().unwrap());
    let kinds = ["kinds", "--device", device, "--part", parts, "--size", "256KiB", "--record", file];
    let once = ["--samples", samples, "--rounds", "1", "--budget", "10min", "--format", "json"];
    let output = run(&[&kinds[..], &once].concat());
    let (found, code) = rows(&output);
    assert_eq!(code, Some(0), "{}", text(&output.stderr));
    let is_measured = |row: &Value| row["outcome"] == "measured" && row["ns"]["best"].as_f64().unwrap() > 0.0;
    let may_lack = |row: &Value| {
        row["outcome"] == "unavailable" && row["buffer"].as_str().is_some_and(|buffer| buffer.starts_with("svm"))
    };
    let other = found.iter().find(|row| !is_measured(row) && !may_lack(row));
    assert_eq!(other, None);
    let again = run(&["report", file, "--format", "json"]);
    assert_eq!(text(&again.stdout), text(&output.stdout));
    Some(found)
}

/// PoCL's device is the processor: it works on any memory of the program's, aligned or not.
#[test]
fn a_device_on_the_processor_shares_all_memory() {
    let Some(found) = on_pocl("buffers,kernels", "3") else { return };
    for buffer in ["plain", "alloc-host", "use-host-4k", "use-host-64", "use-host-8", "copy-host"] {
        assert_eq!(sharing(&found, buffer), ["zero-copy"], "{buffer}");
    }
    for action in ["kernel-read", "kernel-copy", "kernel-scale", "kernel-add", "kernel-triad", "chase"] {
        assert_eq!(not_measured(of(&of(&found, "action", action), "buffer", "plain")), [] as [Value; 0]);
    }
}

#[test]
fn both_sides_of_a_device_on_the_processor_are_measured_beside_the_other() {
    // What runs beside for a fifth of the time is to do ten passes, all samples together: on a busy machine in more of them.
    let beside = |samples: &str| {
        let found = on_pocl("contention", samples)?;
        Some(found.iter().filter(|row| row["beside_Bps"].as_f64().is_some()).count())
    };
    let Some(few) = beside("9") else { return };
    let count = if few == 10 { few } else { beside("36").unwrap() };
    assert_eq!(count, 10, "both sides of the contention, beside the other all the time and for a part of it");
}

/// A copy of the host's memory to the device and back, at two sizes, on PoCL; and the report of the record again.
#[test]
fn copies_go_to_a_device_on_the_processor() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.jsonl");
    let arguments = ["copies", "--device", "opencl:0", "--size", "64,256KiB", "--record", record.to_str().unwrap()];
    let output = run(&[&arguments[..], &ONCE].concat());
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
    let again = run(&["report", record.to_str().unwrap(), "--format", "json"]);
    assert_eq!(text(&again.stdout), text(&output.stdout));
}
