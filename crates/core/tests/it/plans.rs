//! Plans of machines made by hand: what is asked is planned, and working sets lie where they should.

use std::collections::BTreeSet;
use std::time::Duration;

use membound_core::case::Case;
use membound_core::experiments::bandwidth::stream_choice;
use membound_core::experiments::choice::{Choice, kernels};
use membound_core::experiments::frame::{Frame, PlanError};
use membound_core::experiments::pingpong::Sizes;
use membound_core::experiments::roofline::roofline;
use membound_core::experiments::streams::{Offsets, streams};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::placement::scaling;
use membound_core::units::Bytes;

use crate::common::imitation;

fn frame(machine: &Machine) -> Frame {
    Frame::new(machine, Isa::NONE, None).unwrap()
}

/// Working sets of so many threads that are too large for a cache that some of the threads share.
fn overfull(machine: &Machine, threads: usize) -> Vec<String> {
    let frame = frame(machine);
    let cpus = frame.placement.first(threads).unwrap();
    let mut faults = Vec::new();
    for (level, size) in frame.in_caches(threads) {
        for cache in machine.caches.iter().filter(|cache| cache.level == level) {
            let sharers = cpus.iter().filter(|cpu| cache.cpus.contains(**cpu)).count() as u64;
            let together = Bytes(size.0 / threads as u64 * sharers);
            if together > cache.size {
                faults.push(format!("{threads} threads: {together} in L{level} of {}", cache.size));
            }
        }
    }
    faults
}

#[test]
fn working_sets_of_all_threads_fit_their_caches() {
    for shape in [[1, 8, 1], [1, 8, 2], [2, 20, 2], [12, 8, 2], [2, 3, 4]] {
        let machine = imitation::caches(shape, false);
        for threads in scaling(frame(&machine).placement.most()) {
            assert_eq!(overfull(&machine, threads), [""; 0], "{shape:?}");
        }
    }
    // One domain of two: those of its cache share it, and the other is idle.
    let machine = imitation::caches([2, 8, 1], false);
    let frame = frame(&machine);
    let of = |threads| frame.in_caches(threads)[2].1.0 / threads as u64;
    assert!(of(8) == of(16) && of(8) < of(1), "{} {} {}", of(1), of(8), of(16));
}

/// Any two of its CPUs may share a core, and up to sixteen a last cache, whatever the guest is told.
#[test]
fn threads_of_a_guest_fit_caches_that_they_may_share() {
    let frame = frame(&imitation::caches([1, 8, 2], true));
    let of =
        |threads: usize| frame.in_caches(threads).into_iter().map(move |(_, size)| (size.0 / threads as u64) >> 10);
    assert_eq!(of(1).collect::<Vec<_>>(), [24, 181, 5793]);
    // 4 MiB of the last cache for each of eight: sqrt(1 x 4).
    assert_eq!(of(8).collect::<Vec<_>>(), [12, 181, 2048]);
    // Siblings, as it is told, have half of the second level; of the last one 2 MiB: sqrt(1 x 2).
    assert_eq!(of(16).collect::<Vec<_>>(), [12, 128, 1448]);
}

/// Of a processor whose packages have one cache each it lies behind two at the most: a guest of 16 CPUs that claims 300 MiB had 12 GiB to
/// fill for its memory.
#[test]
fn a_guest_lies_on_two_packages_at_the_most() {
    let guest = |vendor: &str| {
        let mut machine = imitation::caches([1, 16, 1], true);
        machine.identity.vendor = Fact::Known(vendor.into());
        frame(&machine)
    };
    let of = |frame: &Frame, threads| frame.memory_size(threads).0 >> 20;
    let (intel, amd) = (guest("GenuineIntel"), guest("AuthenticAMD"));
    assert_eq!([1, 16].map(|threads| of(&intel, threads)), [4 * 32, 4 * 2 * 32]);
    assert_eq!([1, 16].map(|threads| of(&amd, threads)), [4 * 32, 4 * 16 * 32]);
    // The middle between 1 MiB and a sixteenth of 32.
    let last = |frame: &Frame| frame.in_caches(16)[2].1.0 / 16 / 1024;
    assert_eq!([last(&intel), last(&amd)], [1448, 1448]);
}

/// Each level has its cases, and none of those for a cache lies outside of it.
#[test]
fn no_level_is_left_out_for_many_threads() {
    let frame = frame(&imitation::caches([2, 20, 1], false));
    let l3 = frame.in_caches(40)[2].1;
    let planned = kernels(&frame, &Choice::default()).unwrap();
    assert!(planned.iter().any(|case| case.threads() == 40 && case.working_set == l3), "{l3}");
    let lines = roofline(&frame, 20, Duration::from_secs(600)).unwrap();
    let is_beyond = |size: Bytes| size > Bytes::mib(32) && size < frame.memory_size(20);
    let beyond = lines.iter().filter(|case| case.threads() == 20 && is_beyond(case.working_set));
    assert_eq!(beyond.map(Case::to_string).collect::<Vec<_>>(), [""; 0]);
}

const MEMORY: [MemoryKind; 2] = [MemoryKind::Thp, MemoryKind::Base];

fn listed() -> Choice {
    Choice {
        memory: MEMORY.map(MemorySpec::of).into(),
        widths: vec![Width::Scalar, Width::W128],
        sizes: vec![Bytes::mib(1), Bytes::mib(2)],
        threads: vec![1],
        ..Choice::default()
    }
}

/// Memory kinds, widths of regular stores and sizes of cases.
fn spread(cases: &[Case]) -> [usize; 3] {
    let count = |mut all: Vec<String>| {
        all.sort();
        all.dedup();
        all.len()
    };
    let is_regular = |case: &&Case| case.variant().is_some_and(|variant| variant.store == StoreKind::Regular);
    let width = |case: &Case| case.variant().map(|variant| variant.width.to_string());
    [
        count(cases.iter().map(|case| case.memory.to_string()).collect()),
        count(cases.iter().filter(is_regular).filter_map(width).collect()),
        count(cases.iter().map(|case| case.working_set.to_string()).collect()),
    ]
}

#[test]
fn nothing_of_a_list_is_dropped() {
    let frame = frame(&imitation::caches([1, 2, 1], false));
    // Of two and of three arrays each.
    assert_eq!(spread(&stream_choice(&frame, &listed()).unwrap())[..2], [2, 2]);
    let offsets: Offsets = "0,64".parse().unwrap();
    let walks = streams(&frame, &Choice { widths: Vec::new(), ..listed() }, &offsets).unwrap();
    assert_eq!((spread(&walks)[0], spread(&walks)[2]), (2, 2));
    let triad = membound_core::kernel::catalog::Kernel::named("triad").unwrap();
    let blocks = streams(&frame, &Choice { kernels: vec![triad], ..listed() }, &offsets).unwrap();
    assert_eq!((spread(&blocks)[0], spread(&blocks)[2]), (2, 2));
}

/// A run that ends early has all four kernels of one store kind, or it is no STREAM.
#[test]
fn kernels_of_stream_are_visited_together() {
    let cases = stream_choice(&frame(&imitation::caches([1, 2, 1], false)), &Choice::default()).unwrap();
    let groups = |store: StoreKind| -> BTreeSet<Case> {
        let own = cases.iter().filter(|case| case.variant().is_some_and(|variant| variant.store == store));
        own.map(|case| case.group().unwrap()).collect()
    };
    let [regular, nt] = [StoreKind::Regular, StoreKind::Nt].map(groups);
    assert_eq!((regular.len(), nt.len(), regular == nt), (1, 1, false), "{cases:?}");
}

/// Three arrays of 100 bytes are no line for each of two threads.
#[test]
fn arrays_without_a_line_for_each_thread_are_refused() {
    let frame = frame(&imitation::caches([1, 2, 1], false));
    let of = |bytes| Choice { sizes: vec![Bytes(bytes)], threads: vec![2], ..Choice::default() };
    let refused = stream_choice(&frame, &of(300)).unwrap_err();
    assert_eq!(refused, PlanError::TooSmall { size: Bytes(300), threads: 2, least: Bytes(384) });
    assert!(stream_choice(&frame, &of(384)).unwrap().iter().all(|case| case.working_set.0 >= 256));
}

#[test]
fn a_range_of_messages_has_both_its_ends() {
    let all = |text: &str| {
        let sizes: Vec<Sizes> = text.split(',').map(|size| size.parse().unwrap()).collect();
        Sizes::all(&sizes, 1).into_iter().map(|size| size.0).collect::<Vec<_>>()
    };
    assert_eq!(all("5..7"), [5, 7]);
    assert_eq!(all("3..10"), [3, 4, 8, 10]);
    assert_eq!(all("6..6,1..2"), [1, 2, 6]);
    assert_eq!(all("0..4"), [0, 1, 2, 4]);
}

/// Any CPUs of a guest may share its last level, but of AMD's chiplets no more than have one: eight cores, sixteen of Zen 5c.
#[test]
fn a_guest_shares_as_much_as_its_processor_can() {
    let of = |vendor: &str, signature: &str| {
        let mut machine = imitation::caches([1, 64, 1], true);
        machine.identity.vendor = Fact::Known(vendor.into());
        machine.identity.signature = Fact::Known(signature.into());
        let last = machine.last_level(0).unwrap();
        assert_eq!(last.level, 3);
        machine.hidden_sharers(last)
    };
    assert_eq!(of("AuthenticAMD", "25/17/1"), 16);
    assert_eq!(of("AuthenticAMD", "26/17/0"), 32);
    assert_eq!(of("HygonGenuine", "24/1/1"), 16);
    for vendor in ["ARM", "Fujitsu", "GenuineIntel"] {
        assert_eq!(of(vendor, "r0p1"), usize::MAX, "{vendor}");
    }
}
