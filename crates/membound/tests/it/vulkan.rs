//! Vulkan: on Mesa's driver for the processor, where it is installed, and on a loader of our own that has every fault. No time is
//! asserted, only what was found and what was refused.

use std::sync::LazyLock;

use serde_json::Value;

use crate::common::fake_driver::{FakeDriver, ONCE, all_are, not_measured, of, rows, sharing};
use crate::common::launched::text;
use crate::common::program::run;
use crate::common::skip::skip;

static FAKE: LazyLock<FakeDriver> = LazyLock::new(|| FakeDriver::new("vulkan", "libvulkan.so.1"));

/// The kinds of buffers that the fake card has, but the one that the processor can't map.
const MAPPED: [&str; 4] = ["coherent", "cached", "coherent+cached", "device-local+coherent"];
/// The others.
const UNMAPPED: [&str; 2] = ["device-local+cached", "device-local+coherent+cached"];

#[test]
fn devices_are_listed_as_their_driver_describes_them() {
    let Some((devices, absent)) = FAKE.listed("two") else { return };
    assert_eq!((devices.len(), absent.len()), (2, 0), "{absent:?}");
    let [first, second] = &devices[..] else { panic!() };
    assert_eq!((&first["title"], &second["title"]), (&"Fake card 0".into(), &"Fake card 1".into()));
    assert_eq!((&first["kind"], &first["pci"]), (&"gpu".into(), &"0000:3b:00.1".into()));
    assert_eq!((&first["memory"], &first["largest_buffer"]), (&(1u64 << 30).into(), &(1u64 << 29).into()));
    assert_eq!(first["driver"], "fake 7.8");
    assert_eq!(
        first["version"],
        "Vulkan 1.2.99; copies by queue family 1 (2 queues), within the device by family 0 (3 queues)"
    );
    let (silent, _) = FAKE.listed("silent").unwrap();
    assert_eq!((silent[0].get("pci"), &silent[0]["driver"]), (None, &"".into()));
}

/// None is dropped without a word: which kinds of buffers lie in each, or why none does.
#[test]
fn every_type_of_memory_is_told() {
    let Some(output) = FAKE.run("", &["devices"]) else { return };
    let said = crate::common::on_one_line(&text(&output.stdout));
    for part in [
        "memory type 0 of heap 1 (4 GiB): no flags: not measured: the processor can't map it",
        "memory type 1 of heap 0 (1 GiB): device-local: the processor can't map it; of kind plain",
        "memory type 2 of heap 1 (4 GiB): host-visible, host-coherent: of kind coherent",
        "memory type 3 of heap 1 (4 GiB): host-visible, host-coherent: not measured: its flags are those of type 2",
        "memory type 4 of heap 1 (4 GiB): host-visible, host-cached: of kind cached",
        "memory type 6 of heap 0 (1 GiB): device-local, host-visible, host-coherent: of kind device-local+coherent",
        "host-coherent, device-coherent: not measured: a program must enable a feature",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn why_there_is_no_device_is_told_with_its_cure() {
    let Some(library) = FAKE.folder() else { return };
    FAKE.has_none(
        library,
        "no-driver",
        ["VK_ERROR_INCOMPATIBLE_DRIVER (-9) from vkCreateInstance", "mesa-vulkan-drivers"],
    );
    FAKE.has_none(library, "no-device", ["no Vulkan device", "mesa-vulkan-drivers"]);
    FAKE.has_none(library, "crash", ["ended by signal 6", "driver"]);
    let old = FAKE.with("-DTOO_OLD");
    FAKE.has_none(
        old.path(),
        "",
        ["too old: libvulkan.so.1 has no vkGetPhysicalDeviceProperties2", "Vulkan 1.1 or later"],
    );
    let none = tempfile::tempdir().unwrap();
    std::fs::write(none.path().join("libvulkan.so.1"), "nothing").unwrap();
    // A development file beside it would be loaded in its place.
    std::fs::write(none.path().join("libvulkan.so"), "nothing").unwrap();
    FAKE.has_none(none.path(), "", ["no Vulkan loader", "install libvulkan1"]);
}

#[test]
fn a_driver_that_hangs_in_its_first_call_is_ended() {
    FAKE.hang_is_ended();
}

/// Every type comes out and is given back. What is not coherent is flushed and invalidated, or its data would be lost here.
#[test]
fn every_type_that_can_be_mapped_is_measured() {
    let Some((found, code, most)) = FAKE.counted() else { return };
    assert_eq!(code, Some(0));
    // Both ways at once hold two buffers of the kind and two plain ones, and each plain one what it is staged by.
    assert!(most <= 8, "{most} pieces of memory lived at once");
    for buffer in UNMAPPED {
        all_are(&of(&found, "buffer", buffer), "unavailable", &format!("has no type of memory that is {buffer}"));
    }
    let measured = |buffer: &str| {
        let rows = of(&found, "buffer", buffer);
        assert!(rows.iter().all(|row| row["outcome"] == "measured"), "{rows:?}");
        rows.iter().map(|row| row["action"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    for buffer in MAPPED {
        assert_eq!(sharing(&found, buffer), ["zero-copy"], "{buffer}");
        let actions = measured(buffer);
        for action in ["use", "allocate", "map-read", "map-write", "store", "store-nt", "load", "load-nt"] {
            assert!(actions.iter().any(|found| found == action), "{buffer}: no {action} in {actions:?}");
        }
        for action in ["copy", "copy-back", "copy-both"] {
            assert!(actions.iter().any(|found| found == action), "{buffer}: no {action} in {actions:?}");
        }
    }
    let plain = measured("plain");
    for action in ["use-written", "allocate", "write", "read", "copy", "copy-back", "copy-both"] {
        assert!(plain.iter().any(|found| found == action), "no {action} in {plain:?}");
    }
    assert!(!plain.iter().any(|action| action == "store" || action == "map-read"), "{plain:?}");
}

/// A driver that copies when it maps and unmaps is found out, whatever its flags say.
#[test]
fn zero_copy_is_told_from_copying_by_behaviour() {
    let Some((found, _)) = FAKE.kinds("shadow", &["--part", "buffers"]) else { return };
    for (buffer, expect) in [("coherent", "copied"), ("coherent+cached", "copied"), ("cached", "zero-copy")] {
        assert_eq!(sharing(&found, buffer), [expect], "{buffer}");
    }
}

#[test]
fn two_copies_at_once_take_two_queues() {
    let Some((found, _)) = FAKE.kinds("one-queue", &["--part", "buffers"]) else { return };
    let (both, others): (Vec<Value>, Vec<Value>) = found.into_iter().partition(|row| row["action"] == "copy-both");
    let both: Vec<Value> = both.into_iter().filter(|row| row["buffer"] == "coherent").collect();
    all_are(&both, "unavailable", "one queue that copies, and two copies at once need two");
    assert!(of(&others, "buffer", "coherent").iter().all(|row| row["outcome"] == "measured"), "{others:?}");
}

#[test]
fn kernels_are_not_asked_of_it() {
    let Some((found, code)) = FAKE.kinds("", &["--part", "kernels"]) else { return };
    all_are(&found, "unavailable", "Vulkan runs SPIR-V");
    assert_eq!(code, Some(1), "nothing was measured");
}

#[test]
fn faults_of_the_device_are_outcomes() {
    let part = ["--part", "contention"];
    let Some((found, code)) = FAKE.kinds("lost", &["--part", "buffers"]) else { return };
    all_are(
        &not_measured(of(&found, "buffer", "coherent")),
        "crashed",
        "the device was lost: VK_ERROR_DEVICE_LOST (-4) from vkWaitForFences",
    );
    assert_eq!(code, Some(1));
    let (found, _) = FAKE.kinds("memory", &part).unwrap();
    all_are(
        &of(&found, "action", "copy"),
        "unavailable",
        "too little memory: VK_ERROR_OUT_OF_DEVICE_MEMORY (-2) from vkAllocateMemory; give a smaller --size",
    );
    let (found, _) = FAKE.kinds("no-mapping", &["--part", "buffers"]).unwrap();
    // What is never mapped works.
    let stores = of(&of(&found, "buffer", "cached"), "action", "store");
    all_are(&stores, "unavailable", "could not be mapped: VK_ERROR_MEMORY_MAP_FAILED (-5)");
}

/// What it works on is not given back: the driver aborts there.
#[test]
fn a_command_that_can_not_be_waited_for_ends_the_process() {
    let Some((found, code)) = FAKE.kinds("no-wait", &["--part", "buffers"]) else { return };
    all_are(
        &not_measured(of(&found, "buffer", "coherent")),
        "crashed",
        "a command could not be waited for: VK_ERROR_OUT_OF_HOST_MEMORY (-1) from vkWaitForFences",
    );
    assert_eq!(code, Some(1));
}

#[test]
fn what_is_never_flushed_is_invalid() {
    let Some((found, code)) = FAKE.kinds("stale", &["--part", "buffers"]) else { return };
    let cached = of(&of(&found, "buffer", "cached"), "first_use", false);
    for action in ["use", "store", "store-nt"] {
        all_are(&of(&cached, "action", action), "invalid", "data check failed: element 0 is 1, must be 3");
    }
    assert_eq!(code, Some(1));
}

#[test]
fn a_device_that_copies_wrongly_is_invalid() {
    let Some((found, code)) = FAKE.kinds("wrong", &["--part", "buffers"]) else { return };
    all_are(&of(&of(&found, "action", "copy"), "buffer", "coherent"), "invalid", "data check failed");
    assert_eq!(code, Some(1));
}

/// To and from the host by way of staging buffers, to and from memory of the host's that the device copies itself, and within the device;
/// not from one to another.
#[test]
fn copies_go_to_a_device_and_back() {
    let Some((found, _)) = FAKE.copies("two", &[0, 1]) else { return };
    let (between, own): (Vec<Value>, Vec<Value>) =
        found.into_iter().partition(|row| row["peer"].is_string() && row["peer"] != row["device"]);
    all_are(&between, "unavailable", "Vulkan copies from no device to another");
    assert!(own.iter().all(|row| row["outcome"] == "measured"), "{own:?}");
    assert_eq!(own.len(), 28, "twice three ways with the host and one within, at two sizes, of two devices");
    assert_eq!(of(&own, "host", "coherent+cached").len(), 12);
    let (found, code) = FAKE.copies("lost", &[0]).unwrap();
    all_are(&not_measured(found), "crashed", "the device was lost: VK_ERROR_DEVICE_LOST (-4) from vkWaitForFences");
    assert_eq!(code, Some(1));
}

/// Whether this is nothing that Mesa's driver for the processor, whose one type is this, could have measured.
fn lacks_on_mesa(row: &Value, kind: &str) -> bool {
    let [buffer, action] = ["buffer", "action"].map(|key| row[key].as_str().unwrap());
    let part = match (buffer, action) {
        ("plain", action) if action.starts_with("kernel-") || action == "chase" => "Vulkan runs SPIR-V",
        (_, "copy-both") if buffer == kind || buffer == "plain" => "one queue that copies",
        _ if buffer != kind && [&MAPPED[..], &UNMAPPED].concat().contains(&buffer) => {
            "the device has no type of memory that is"
        }
        _ => return false,
    };
    row["outcome"] == "unavailable" && row["reason"].as_str().unwrap().contains(part)
}

/// Mesa's driver for the processor has one type of memory, which is both the device's and the host's.
#[test]
fn a_device_on_the_processor_shares_all_memory() {
    let listed: Value = serde_json::from_slice(&run(&["devices", "--format", "json"]).stdout).unwrap();
    let is_mesa = |device: &&Value| device["driver"].as_str().unwrap().starts_with("llvmpipe");
    let Some(device) = listed["devices"].as_array().unwrap().iter().find(is_mesa) else {
        return skip(format!("no lavapipe: {}", listed["absent"]));
    };
    assert_eq!(device["kind"], "cpu");
    let name = device["name"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.jsonl");
    let arguments = ["kinds", "--device", name, "--size", "256KiB", "--record", record.to_str().unwrap()];
    let output = run(&[&arguments[..], &ONCE].concat());
    let (found, code) = rows(&output);
    assert_eq!(code, Some(0), "{}", text(&output.stderr));
    let kind = "device-local+coherent+cached";
    assert_eq!(sharing(&found, kind), ["zero-copy"]);
    let refused: Vec<Value> = of(&of(&found, "buffer", kind), "outcome", "unavailable");
    all_are(&refused, "unavailable", "one queue that copies");
    // All else is measured, but for what it has not: kernels, and its other types.
    for row in &found {
        let is_measured = row["outcome"] == "measured" && row["ns"]["best"].as_f64().unwrap() > 0.0;
        assert!(is_measured || lacks_on_mesa(row, kind), "{row}");
    }
    // The record alone gives the same rows again.
    let again = run(&["report", record.to_str().unwrap(), "--format", "json"]);
    assert_eq!(text(&again.stdout), text(&output.stdout));
}
