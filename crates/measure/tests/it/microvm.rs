//! Kernels in the micro-VM against their twins, guests that hang or fault, machines without a usable /dev/kvm. Skips,
//! and says why, where no virtual machine can be had.

#![allow(unsafe_code)]

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::skip::skip;
use membound_core::case as plan;
use membound_core::case::{Case, Protocol, StreamMemory, Work};
use membound_core::kernel::catalog::CATALOG;
use membound_core::kernel::{Element, LoadKind, StoreKind, Variant, Width};
use membound_core::memory::behaviour::Touch;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Measured, Outcome};
use membound_core::units::Bytes;
use membound_measure::code::{Call, MachineCode};
use membound_measure::executor::here::Here;
use membound_measure::executor::microvm::guest::{Backed, Guest};
use membound_measure::memory::places::Places;
use membound_measure::memory::region::Region;
use membound_measure::schedule::{Executor, Quota};

/// Guests one at a time: open files are counted.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A guest that sees `memory`; nothing, with a printed reason, where the machine has no virtual machines. Any other
/// refusal is a fault of ours.
fn guest(memory: &[Backed]) -> Option<Guest> {
    // SAFETY: callers hand over regions that outlive the guest.
    match unsafe { Guest::new(Path::new("/dev"), memory) }.map_err(Outcome::from) {
        Ok(guest) => Some(guest),
        Err(Outcome::Unavailable { reason }) if reason.starts_with("no ") || reason.starts_with("/dev/kvm ") => {
            skip(reason);
            None
        }
        Err(other) => panic!("{other:?}"),
    }
}

fn code(bytes: &[u8]) -> MachineCode {
    MachineCode { bytes: bytes.to_vec(), main_loop: 0, fault_exit: 0 }
}

fn backed(region: &Region, kind: MemoryKind) -> Backed {
    Backed { address: region.address(), bytes: region.bytes().0, kind, writable: true }
}

fn case(kernel: &str, width: Width, store: StoreKind, kind: MemoryKind, size: Bytes) -> Case {
    plan::steady(kernel, width, store, MemorySpec::of(kind), vec![0], size)
}

fn here(places: Places) -> Here {
    Here::new(&[], places, true).unwrap()
}

fn visit(here: &mut Here, case: &Case, samples: usize) -> Outcome {
    let quota = Quota { least_samples: samples, most_samples: samples, time: Duration::ZERO, interrupted: &|| false };
    here.visit(case, &quota)
}

/// What was measured; nothing, with a printed reason, where the case can't be.
fn measured(here: &mut Here, case: &Case) -> Option<Measured> {
    match visit(here, case, 3) {
        Outcome::Measured(measured) => Some(*measured),
        Outcome::Unavailable { reason } => {
            skip(format!("{case}: {reason}"));
            None
        }
        other => panic!("{case}: {other:?}"),
    }
}

fn every_way() -> Vec<(Element, Width, StoreKind, LoadKind)> {
    let mut ways = Vec::new();
    for width in membound_measure::asm::detect().widths() {
        for (&element, &store) in Element::ALL.iter().flat_map(|e| StoreKind::ALL.iter().map(move |store| (e, store))) {
            ways.extend(LoadKind::ALL.iter().map(|&load| (element, width, store, load)));
        }
    }
    ways
}

#[test]
fn kernels_in_the_guest_agree_with_their_twins() {
    let _alone = alone();
    if guest(&[]).is_none() {
        return;
    }
    let mut here = here(Places::default());
    let mut seen = 0;
    for row in CATALOG {
        for (element, width, store, load) in every_way() {
            let variant = Variant { element, load, ..plan::usual(row.name, width, store) };
            if membound_measure::asm::assemble(&variant, membound_measure::asm::detect()).is_err() {
                continue;
            }
            // Room for tails: no whole number of vectors.
            let mut case = case(row.name, width, store, MemoryKind::Wb, Bytes(24 * 1003));
            case.work = Work::Kernel(variant);
            let measured = measured(&mut here, &case).expect("the guest was there a moment ago");
            assert_eq!(measured.samples.ticks.len(), 3, "{case}");
            assert!(measured.samples.is_consistent(), "{case}");
            assert!(measured.obtained.proofs.iter().any(|proof| proof.by == "behaviour" && proof.holds), "{case}");
            seen += 1;
        }
    }
    assert!(seen >= 40, "{seen}");
}

#[test]
fn a_wrong_result_in_the_guest_is_seen() {
    let _alone = alone();
    let mut region = Region::new(MemorySpec::of(MemoryKind::Thp), Bytes::mib(2), &Places::default()).unwrap();
    region.words().fill(7.0);
    let Some(mut guest) = guest(&[backed(&region, MemoryKind::Wb)]) else { return };
    let variant = Variant { unroll: 4, ..plan::usual("sum", Width::Scalar, StoreKind::Regular) };
    let row = variant.row().unwrap();
    let code =
        guest.load(&membound_measure::asm::assemble(&variant, membound_measure::asm::detect()).unwrap()).unwrap();
    let address = guest.address(region.address() + 800).unwrap();
    assert_eq!(address, guest.window(0) + 800);
    let mut call = Call::new(&row.formula(), &variant, &[address], 1, 100);
    guest.run(&mut [(code, &mut call)], Duration::from_secs(2)).unwrap();
    assert_eq!(call.result(&row.formula(), &variant), 700.0);
    assert_eq!(guest.address(region.address() + (2 << 20)), None);
}

#[test]
fn first_use_maps_memory_anew_for_each_sample() {
    let _alone = alone();
    if guest(&[]).is_none() {
        return;
    }
    let mut here = here(Places::default());
    for name in ["store", "copy"] {
        let mut case = case(name, Width::Scalar, StoreKind::Regular, MemoryKind::Wb, Bytes::mib(4));
        case.protocol = Protocol::FirstUse;
        let samples = measured(&mut here, &case).expect("the guest was there a moment ago").samples;
        assert_eq!(samples.setup_ticks.len(), samples.ticks.len(), "{case}");
        assert!(samples.faults.iter().all(|faults| *faults > 0), "{case}: {:?}", samples.faults);
    }
}

#[test]
fn streams_of_other_kinds_lie_beside_typed_ones() {
    let _alone = alone();
    if guest(&[]).is_none() {
        return;
    }
    let mut here = here(Places::default());
    for kind in [MemoryKind::Base, MemoryKind::Thp, MemoryKind::Heap] {
        let mut case = case("copy", Width::W128, StoreKind::Regular, MemoryKind::Wb, Bytes::kib(100));
        case.streams = vec![StreamMemory { stream: "b".into(), memory: MemorySpec::of(kind) }];
        assert!(measured(&mut here, &case).is_some(), "{case}");
    }
}

#[test]
fn types_are_proved_or_invalid() {
    let _alone = alone();
    if guest(&[]).is_none() {
        return;
    }
    let mut here = here(Places::default());
    for &kind in MemoryKind::ALL.iter().filter(|kind| kind.is_memory_type()) {
        let case = case("load", Width::Scalar, StoreKind::Regular, kind, Bytes::kib(16));
        match visit(&mut here, &case, 2) {
            Outcome::Measured(measured) => {
                let name = kind.to_string().to_uppercase();
                let proves = |p: &membound_core::memory::proof::Proof| {
                    p.by == "behaviour" && p.holds && p.claim.starts_with(&name)
                };
                assert!(measured.obtained.proofs.iter().any(proves), "{kind}: {:?}", measured.obtained.proofs);
            }
            Outcome::Invalid { reason } => eprintln!("{kind}: {reason}"),
            other => panic!("{kind}: {other:?}"),
        }
    }
}

#[test]
fn the_guest_times_what_the_host_times() {
    let _alone = alone();
    let Some(mut guest) = guest(&[]) else { return };
    let chain = guest.load(&membound_measure::asm::core_clock_chain().unwrap()).unwrap();
    let ticker = membound_measure::os::clock::Ticker::detect();
    if ticker != membound_measure::os::clock::Ticker::Tsc {
        skip("the time stamp counter is not invariant here");
        return;
    }
    for trips in [1, 1000, 100_000] {
        let before = ticker.now();
        let run = guest.run(&mut [(chain, &mut Call::empty(trips))], Duration::from_secs(2)).unwrap();
        let around = ticker.now() - before;
        // The guest's span lies inside the host's; entering and leaving only add to the latter.
        assert!(run.ticks[0] <= around + around / 1000, "{trips}: {} {around}", run.ticks[0]);
    }
}

#[test]
fn a_guest_that_never_ends_is_stopped() {
    let _alone = alone();
    let started = Instant::now();
    let Some(mut guest) = guest(&[]) else { return };
    let forever = guest.load(&code(&[0xeb, 0xfe])).unwrap();
    let outcome = guest.run(&mut [(forever, &mut Call::empty(1))], Duration::from_millis(300)).map_err(Outcome::from);
    let Err(Outcome::Crashed { reason }) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("did not end") && reason.contains("into its code"), "{reason}");
    // Nor does it run again.
    assert!(guest.run(&mut [], Duration::from_secs(1)).is_err());
    drop(guest);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_guest_that_faults_has_crashed() {
    let _alone = alone();
    let ud2 = [0x0f, 0x0b];
    // mov [0x10], eax: not mapped. mov [0x10000000], eax twice over would ring; 0x10000008 lies beside the bell.
    let store_unmapped = [0x89, 0x04, 0x25, 0x10, 0, 0, 0];
    let store_beside = [0x89, 0x04, 0x25, 0x08, 0, 0, 0x10];
    let load_beside = [0x8b, 0x04, 0x25, 0x08, 0, 0, 0x10];
    let privileged = [0xf4];
    let expected: [(&[u8], &str); 5] = [
        (&ud2, "crashed"),
        (&store_unmapped, "page fault at 0x10"),
        (&store_beside, "0x10000008"),
        (&load_beside, "0x10000008"),
        (&privileged, "crashed"),
    ];
    for (bytes, expect) in expected {
        let Some(mut guest) = guest(&[]) else { return };
        let faulty = guest.load(&code(bytes)).unwrap();
        let outcome = guest.run(&mut [(faulty, &mut Call::empty(1))], Duration::from_secs(2)).map_err(Outcome::from);
        let Err(Outcome::Crashed { reason }) = outcome else { panic!("{bytes:x?}: {outcome:?}") };
        eprintln!("{bytes:x?}: {reason}");
        assert!(reason.contains(expect) && !reason.contains("did not end"), "{bytes:x?}: {reason}");
    }
}

#[test]
fn a_guest_may_not_write_where_it_may_only_read() {
    let _alone = alone();
    let region = Region::new(MemorySpec::of(MemoryKind::Base), Bytes::kib(4), &Places::default()).unwrap();
    let read_only = Backed { writable: false, ..backed(&region, MemoryKind::Wb) };
    let Some(mut guest) = guest(&[read_only]) else { return };
    let store = guest.load(&membound_measure::asm::touch(Touch::StoreWord).unwrap()).unwrap();
    let load = guest.load(&membound_measure::asm::touch(Touch::Load).unwrap()).unwrap();
    let mut call = Call::empty(1);
    call.pointers[0] = guest.window(0);
    call.blocks = 1;
    guest.run(&mut [(load, &mut call)], Duration::from_secs(2)).unwrap();
    assert!(guest.run(&mut [(store, &mut call)], Duration::from_secs(2)).is_err_and(|why| why.is_crash()));
}

fn reason_with(devices: &Path) -> String {
    let mut here = here(Places { devices: devices.into(), ..Places::default() });
    let case = case("load", Width::Scalar, StoreKind::Regular, MemoryKind::Wb, Bytes::kib(16));
    match visit(&mut here, &case, 2) {
        Outcome::Unavailable { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_machine_without_the_device_says_so() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let reason = reason_with(folder.path());
    assert!(reason.starts_with("no ") && reason.contains("kvm_intel or kvm_amd"), "{reason}");
    let reason = reason_with(&folder.path().join("none"));
    assert!(reason.starts_with("no "), "{reason}");
}

#[test]
fn a_file_that_is_no_device_is_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kvm"), "no device").unwrap();
    let reason = reason_with(folder.path());
    assert!(reason.contains("is no KVM device"), "{reason}");
    std::fs::remove_file(folder.path().join("kvm")).unwrap();
    std::fs::create_dir(folder.path().join("kvm")).unwrap();
    let reason = reason_with(folder.path());
    assert!(reason.contains("can't be opened"), "{reason}");
}

#[test]
fn several_threads_are_refused() {
    let _alone = alone();
    let mut here = here(Places::default());
    let mut case = case("load", Width::Scalar, StoreKind::Regular, MemoryKind::Uc, Bytes::kib(16));
    case.cpus = vec![0, 1];
    let Outcome::Unavailable { reason } = visit(&mut here, &case, 2) else { panic!() };
    assert!(reason.contains("--threads 1"), "{reason}");
}

#[test]
fn nothing_leaks() {
    let _alone = alone();
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().matches("kvm").count();
    if guest(&[]).is_none() {
        return;
    }
    let before = (count("/proc/self/fd"), mappings());
    for _ in 0..20 {
        let mut guest = guest(&[]).unwrap();
        let chain = guest.load(&membound_measure::asm::core_clock_chain().unwrap()).unwrap();
        guest.run(&mut [(chain, &mut Call::empty(1))], Duration::from_secs(2)).unwrap();
    }
    assert_eq!((count("/proc/self/fd"), mappings()), before);
    let watchdogs = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let named = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    assert!(!watchdogs.map(named).any(|name| name.trim() == "watchdog"));
}
