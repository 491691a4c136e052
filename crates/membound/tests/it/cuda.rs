//! CUDA on a driver of our own that has every fault; no GPU is needed, and none is measured. No time is asserted, only what was
//! found and what was refused.

use std::sync::LazyLock;

use serde_json::Value;

use crate::common::fake_driver::{FakeDriver, ONCE, all_are, not_measured, of, rows, sharing};

static FAKE: LazyLock<FakeDriver> = LazyLock::new(|| FakeDriver::new("cuda", "libcuda.so.1"));

#[test]
fn devices_are_listed_as_their_driver_describes_them() {
    let Some((devices, absent)) = FAKE.listed("two") else { return };
    assert_eq!((devices.len(), absent.len()), (2, 0), "{absent:?}");
    let [first, second] = &devices[..] else { panic!() };
    assert_eq!((&first["title"], &second["title"]), (&"Fake GPU 0".into(), &"Fake GPU 1".into()));
    assert_eq!((&first["pci"], &first["memory"]), (&"0000:3b:00.0".into(), &(1u64 << 30).into()));
    assert_eq!((&first["driver"], &first["version"]), (&"CUDA driver 12.4".into(), &"compute capability 9.0".into()));
    assert_eq!(first["peak_Bps"], 480_000_000_000u64);
}

#[test]
fn why_there_is_no_device_is_told_with_its_cure() {
    let Some(library) = FAKE.folder() else { return };
    FAKE.has_none(library, "no-device", ["CUDA_ERROR_NO_DEVICE (100) from cuInit", "/dev/nvidia"]);
    FAKE.has_none(library, "mismatch", ["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803) from cuInit", "restart the machine"]);
    FAKE.has_none(library, "crash", ["ended by signal 6", "driver"]);
    let old = FAKE.with("-DTOO_OLD");
    FAKE.has_none(old.path(), "", ["too old: libcuda.so.1 has no cuMemPrefetchAsync", "CUDA 11 or later"]);
    let none = tempfile::tempdir().unwrap();
    std::fs::write(none.path().join("libcuda.so.1"), "nothing").unwrap();
    FAKE.has_none(none.path(), "", ["no CUDA driver", "install NVIDIA's driver"]);
}

#[test]
fn a_driver_that_hangs_in_its_first_call_is_ended() {
    FAKE.hang_is_ended();
}

/// Every kind comes out and is given back, and how it is shared is told by what both sides see, and by whether pages move.
#[test]
fn every_kind_of_memory_is_measured() {
    let Some((found, code, most)) = FAKE.counted() else { return };
    // Both ways at once hold two buffers of the kind and two of the device's.
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
    let Some((found, _)) = FAKE.kinds("poor", &["--part", "buffers"]) else { return };
    for (buffer, part) in [
        ("mapped", "no way to map the host's memory"),
        ("managed", "no managed memory"),
        ("managed-prefetch", "no managed memory"),
        ("registered-4k", "no way to register"),
    ] {
        all_are(&of(&found, "buffer", buffer), "unavailable", part);
    }
    assert!(of(&found, "buffer", "pinned").iter().all(|row| row["outcome"] == "measured"));
    let (found, _) = FAKE.kinds("old", &["--part", "buffers"]).unwrap();
    all_are(&of(&found, "buffer", "managed-advised"), "unavailable", "takes advice or moves on demand");
    assert!(of(&found, "buffer", "managed").iter().all(|row| row["outcome"] == "measured"));
}

#[test]
fn kernels_run_on_the_device() {
    let Some((found, code)) = FAKE.kinds("", &["--part", "kernels,contention"]) else { return };
    assert!(found.iter().all(|row| row["outcome"] == "measured"), "{found:?}");
    let actions: Vec<&str> = found.iter().map(|row| row["action"].as_str().unwrap()).collect();
    for action in ["kernel-copy", "kernel-scale", "kernel-add", "kernel-triad", "chase", "copy-beside-host-triad"] {
        assert!(actions.contains(&action), "{action}");
    }
    assert_eq!(code, Some(0));
}

#[test]
fn faults_of_the_device_are_outcomes() {
    let part = ["--part", "kernels"];
    let Some((found, code)) = FAKE.kinds("lost", &part) else { return };
    // A visit of two slow samples may be done before.
    all_are(
        &not_measured(found),
        "crashed",
        "the device was lost: CUDA_ERROR_LAUNCH_FAILED (719) from cuStreamSynchronize",
    );
    assert_eq!(code, Some(1));
    let (found, code) = FAKE.kinds("memory", &part).unwrap();
    all_are(
        &found,
        "unavailable",
        "too little memory: CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemAlloc; give a smaller --size",
    );
    assert_eq!(code, Some(1), "nothing was measured");
    let (found, _) = FAKE.kinds("no-compiler", &part).unwrap();
    all_are(
        &found,
        "unavailable",
        "refuses our kernels: CUDA_ERROR_INVALID_PTX (218) from cuModuleLoadDataEx: line 1: no",
    );
    let (found, _) = FAKE.kinds("no-pinning", &["--part", "buffers"]).unwrap();
    all_are(&of(&found, "buffer", "pinned"), "unavailable", "could not be pinned: CUDA_ERROR_OUT_OF_MEMORY (2)");
}

#[test]
fn a_device_that_computes_wrongly_is_invalid() {
    let Some((found, code)) = FAKE.kinds("wrong", &["--part", "kernels"]) else { return };
    all_are(&of(&found, "action", "kernel-triad"), "invalid", "data check failed");
    assert_eq!(code, Some(1));
}

/// What a driver leaves where it was.
#[test]
fn what_never_arrives_is_invalid() {
    let Some((found, code)) = FAKE.kinds("stale", &["--part", "buffers"]) else { return };
    let plain = of(&of(&found, "buffer", "plain"), "first_use", false);
    for action in ["use-written", "write"] {
        all_are(&of(&plain, "action", action), "invalid", "data check failed: element 0 is 1, must be 3");
    }
    assert_eq!(code, Some(1));
}

/// Two devices: each with the host and itself, and with each other both ways.
#[test]
fn copies_go_between_all_devices() {
    let Some((found, code)) = FAKE.copies("two", &[0, 1]) else { return };
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
    let (wrong, code) = FAKE.copies("wrong", &[0]).unwrap();
    all_are(&of(&wrong, "host", "pinned"), "invalid", "data check failed");
    assert_eq!(code, Some(1));
    let (gone, code) = FAKE.copies("", &[1]).unwrap();
    all_are(&gone, "unavailable", "there is no cuda:1; `membound devices` lists what there is");
    assert_eq!(code, Some(1));
}

/// A device reaches eight others at once: the ninth takes the place of these.
#[test]
fn a_device_copies_to_more_peers_than_it_reaches_at_once() {
    let devices: Vec<String> = (0..10).map(|number| format!("cuda:{number}")).collect();
    let arguments = ["copies", "--size", "64", "--device", &devices.join(",")];
    let Some(output) = FAKE.run("ten", &[&arguments[..], &ONCE].concat()) else { return };
    let (found, code) = rows(&output);
    assert_eq!((not_measured(found.clone()), code), (vec![], Some(0)));
    let peers = of(&of(&found, "device", "cuda:0"), "route", "between-devices");
    assert_eq!(peers.len(), 10);
}

/// What was copied before is measured, what comes after is an outcome: the process that lost its device is replaced.
#[test]
fn a_device_that_is_lost_in_the_middle_of_copies_is_an_outcome() {
    let Some((found, code)) = FAKE.copies("lost", &[0]) else { return };
    all_are(
        &not_measured(found),
        "crashed",
        "the device was lost: CUDA_ERROR_LAUNCH_FAILED (719) from cuStreamSynchronize",
    );
    assert_eq!(code, Some(1));
}
