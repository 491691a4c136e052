//! CUDA on a driver of our own that has every fault; no GPU is needed, and none is measured. No time is asserted, only what was
//! found and what was refused.

use std::path::Path;
use std::process::Output;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::skip::skip;
use crate::device::{all_are, built, listed_by, membound, of, rows, sharing};

/// The folder of the fake driver, built once; nothing where there is no compiler.
fn fake() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<TempDir>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| built("tests/cuda/fake.c", "libcuda.so.1", &[])).as_ref().map(TempDir::path);
    if folder.is_none() {
        skip("no C compiler");
    }
    folder
}

fn on_fake(fault: &str, arguments: &[&str]) -> Option<Output> {
    Some(membound(fake()?, &[("FAKE_CUDA", fault)], arguments))
}

fn listed(library: &Path, fault: &str) -> (Vec<Value>, Vec<String>) {
    listed_by("cuda", library, &[("FAKE_CUDA", fault)])
}

const KINDS: [&str; 11] =
    ["kinds", "--device", "cuda:0", "--size", "64KiB", "--samples", "3", "--rounds", "1", "--format", "json"];

fn kinds(fault: &str, more: &[&str]) -> Option<(Vec<Value>, Option<i32>)> {
    on_fake(fault, &[&KINDS[..], more].concat()).map(|output| rows(&output))
}

#[test]
fn devices_are_listed_as_their_driver_describes_them() {
    let Some(library) = fake() else { return };
    let (devices, absent) = listed(library, "two");
    assert_eq!((devices.len(), absent.len()), (2, 0), "{absent:?}");
    let [first, second] = &devices[..] else { panic!() };
    assert_eq!((&first["title"], &second["title"]), (&"Fake GPU 0".into(), &"Fake GPU 1".into()));
    assert_eq!((&first["pci"], &first["memory"]), (&"0000:3b:00.0".into(), &(1u64 << 30).into()));
    assert_eq!((&first["driver"], &first["version"]), (&"CUDA driver 12.4".into(), &"compute capability 9.0".into()));
    assert_eq!(first["peak_Bps"], 480_000_000_000u64);
}

#[test]
fn why_there_is_no_device_is_told_with_its_cure() {
    let Some(library) = fake() else { return };
    let says = |library: &Path, fault: &str, parts: [&str; 2]| {
        let (devices, absent) = listed(library, fault);
        assert!(devices.is_empty());
        for part in parts {
            assert!(absent[0].contains(part), "{absent:?}");
        }
    };
    says(library, "no-device", ["CUDA_ERROR_NO_DEVICE (100) from cuInit", "/dev/nvidia"]);
    says(library, "mismatch", ["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803) from cuInit", "restart the machine"]);
    says(library, "crash", ["ended by signal 6", "driver"]);
    let old = built("tests/cuda/fake.c", "libcuda.so.1", &["-DTOO_OLD"]).unwrap();
    says(old.path(), "", ["too old: libcuda.so.1 has no cuMemPrefetchAsync", "CUDA 8 or later"]);
    let none = tempfile::tempdir().unwrap();
    std::fs::write(none.path().join("libcuda.so.1"), "nothing").unwrap();
    says(none.path(), "", ["no CUDA driver", "install NVIDIA's driver"]);
}

#[test]
fn a_driver_that_hangs_in_its_first_call_is_ended() {
    let Some((found, code)) = kinds("hang", &["--part", "contention", "--budget", "2s"]) else { return };
    all_are(&found, "unavailable", "has not answered for 20 s");
    assert_eq!(code, Some(1), "nothing was measured");
}

/// Every kind comes out and is given back, and how it is shared is told by what both sides see, and by whether pages move.
#[test]
fn every_kind_of_memory_is_measured() {
    let Some(library) = fake() else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("most");
    let arguments = [&KINDS[..], &["--part", "buffers", "--budget", "120s"]].concat();
    let (found, code) = rows(&membound(library, &[("FAKE_CUDA_LOG", log.to_str().unwrap())], &arguments));
    let visits: u64 = found.iter().filter_map(|row| row["rounds"].as_u64()).sum();
    assert!(visits >= 50, "{visits}");
    // Both ways at once hold two buffers of the kind and two of the device's.
    let most: u32 = std::fs::read_to_string(&log).unwrap().lines().last().unwrap().parse().unwrap();
    assert!(most <= 5, "{most} pieces of memory lived at once");
    let unavailable: Vec<Value> = of(&found, "outcome", "unavailable");
    assert!(unavailable.iter().all(|row| row["buffer"] == "registered-huge-2m"), "{unavailable:?}");
    // This driver's memory is all write-back, as under a hypervisor that ignores types: nothing is shown as write-combined.
    all_are(&of(&found, "buffer", "pinned-wc"), "invalid", "ignores memory types: WC loads");
    assert_eq!(code, Some(0));
    for (buffer, expect) in [
        ("plain", &[][..]),
        ("pinned", &["zero-copy"]),
        ("mapped", &["zero-copy"]),
        ("managed", &["migrated"]),
        ("managed-prefetch", &["migrated"]),
        ("managed-advised", &["zero-copy"]),
        ("registered-4k", &["zero-copy"]),
        ("registered-thp", &["zero-copy"]),
    ] {
        assert_eq!(sharing(&found, buffer), expect, "{buffer}");
        let measured = of(&of(&found, "buffer", buffer), "outcome", "measured");
        let actions: Vec<&str> = measured.iter().map(|row| row["action"].as_str().unwrap()).collect();
        let host = ["use", "store", "store-nt", "load", "load-nt"].map(|action| actions.contains(&action));
        assert_eq!(host, [buffer != "plain"; 5], "{buffer}: {actions:?}");
        let device =
            ["allocate", "copy", "copy-back", "copy-both", "kernel-read"].map(|action| actions.contains(&action));
        assert_eq!(device, [true; 5], "{buffer}: {actions:?}");
    }
}

/// What the device says that it can't do is a named outcome, and no other kind is measured in its place.
#[test]
fn kinds_that_the_device_lacks_are_unavailable() {
    let Some((found, _)) = kinds("poor", &["--part", "buffers", "--budget", "120s"]) else { return };
    for (buffer, part) in [
        ("mapped", "no way to map the host's memory"),
        ("managed", "no managed memory"),
        ("managed-prefetch", "no managed memory"),
        ("registered-4k", "no way to register"),
    ] {
        all_are(&of(&found, "buffer", buffer), "unavailable", part);
    }
    assert!(of(&found, "buffer", "pinned").iter().all(|row| row["outcome"] == "measured"));
    let (found, _) = kinds("old", &["--part", "buffers", "--budget", "120s"]).unwrap();
    all_are(&of(&found, "buffer", "managed-advised"), "unavailable", "takes advice or moves on demand");
    assert!(of(&found, "buffer", "managed").iter().all(|row| row["outcome"] == "measured"));
}

#[test]
fn kernels_run_on_the_device() {
    let Some((found, code)) = kinds("", &["--part", "kernels,contention", "--budget", "120s"]) else { return };
    assert!(found.iter().all(|row| row["outcome"] == "measured"), "{found:?}");
    let actions: Vec<&str> = found.iter().map(|row| row["action"].as_str().unwrap()).collect();
    for action in ["kernel-copy", "kernel-scale", "kernel-add", "kernel-triad", "chase", "copy-beside-host-triad"] {
        assert!(actions.contains(&action), "{action}");
    }
    assert_eq!(code, Some(0));
}

#[test]
fn faults_of_the_device_are_outcomes() {
    let part = ["--part", "kernels", "--budget", "120s"];
    let Some((found, code)) = kinds("lost", &part) else { return };
    // A visit of two slow samples may be done before.
    let lost: Vec<Value> = found.into_iter().filter(|row| row["outcome"] != "measured").collect();
    all_are(&lost, "crashed", "the device was lost: CUDA_ERROR_LAUNCH_FAILED (719) from cuStreamSynchronize");
    assert_eq!(code, Some(1));
    let (found, code) = kinds("memory", &part).unwrap();
    all_are(
        &found,
        "unavailable",
        "too little memory: CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemAlloc; give a smaller --size",
    );
    assert_eq!(code, Some(1), "nothing was measured");
    let (found, _) = kinds("no-compiler", &part).unwrap();
    all_are(
        &found,
        "unavailable",
        "refuses our kernels: CUDA_ERROR_INVALID_PTX (218) from cuModuleLoadDataEx: line 1: no",
    );
    let (found, _) = kinds("no-pinning", &["--part", "buffers", "--budget", "120s"]).unwrap();
    all_are(&of(&found, "buffer", "pinned"), "unavailable", "could not be pinned: CUDA_ERROR_OUT_OF_MEMORY (2)");
}

#[test]
fn a_device_that_computes_wrongly_is_invalid() {
    let Some((found, code)) = kinds("wrong", &["--part", "kernels", "--budget", "120s"]) else { return };
    all_are(&of(&found, "action", "kernel-triad"), "invalid", "data check failed");
    assert_eq!(code, Some(1));
}

const COPIES: [&str; 9] = ["copies", "--sizes", "64,256KiB", "--samples", "3", "--rounds", "1", "--format", "json"];

/// Two devices: each with the host and itself, and with each other both ways.
#[test]
fn copies_go_between_all_devices() {
    let arguments = [&COPIES[..], &["--device", "cuda:0,cuda:1", "--budget", "120s"]].concat();
    let Some((found, code)) = on_fake("two", &arguments).map(|output| rows(&output)) else { return };
    assert!(found.iter().all(|row| row["outcome"] == "measured"), "{found:?}");
    assert_eq!(code, Some(0));
    let between: Vec<[&str; 3]> = found
        .iter()
        .filter(|row| row["bytes"] == 64 && row["host"].is_null())
        .map(|row| ["device", "route", "peer"].map(|key| row[key].as_str().unwrap()))
        .collect();
    assert_eq!(
        between,
        [
            ["cuda:0", "between-devices", "cuda:0"],
            ["cuda:0", "between-devices", "cuda:1"],
            ["cuda:0", "devices-both-ways", "cuda:1"],
            ["cuda:1", "between-devices", "cuda:0"],
            ["cuda:1", "between-devices", "cuda:1"],
        ]
    );
    let (wrong, code) = on_fake("wrong", &[&COPIES[..], &["--device", "cuda:0", "--budget", "120s"]].concat())
        .map(|output| rows(&output))
        .unwrap();
    all_are(&of(&wrong, "host", "pinned"), "invalid", "data check failed");
    assert_eq!(code, Some(1));
    let (gone, code) = on_fake("", &[&COPIES[..], &["--device", "cuda:1", "--budget", "120s"]].concat())
        .map(|output| rows(&output))
        .unwrap();
    all_are(&gone, "unavailable", "there is no cuda:1; `membound devices` lists what there is");
    assert_eq!(code, Some(1));
}

/// What was copied before is measured, what comes after is an outcome: the process that lost its device is replaced.
#[test]
fn a_device_that_is_lost_in_the_middle_of_copies_is_an_outcome() {
    let arguments = [&COPIES[..], &["--device", "cuda:0", "--budget", "120s"]].concat();
    let Some((found, code)) = on_fake("lost", &arguments).map(|output| rows(&output)) else { return };
    let lost: Vec<Value> = found.into_iter().filter(|row| row["outcome"] != "measured").collect();
    all_are(&lost, "crashed", "the device was lost: CUDA_ERROR_LAUNCH_FAILED (719) from cuStreamSynchronize");
    assert_eq!(code, Some(1));
}
