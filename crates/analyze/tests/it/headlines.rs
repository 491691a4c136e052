//! What is said first must not contradict the tables below it, nor be surer than they are.

use membound_analyze::across::roofline::Bound;
use membound_analyze::of_record as model;
use membound_analyze::report::Report;
use membound_core::case::{Case, Protocol, USUAL_MEMORY, Work, steady};
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::devices::{Device, DeviceName};
use membound_core::record::{Measurement, Outcome};
use membound_core::units::Bytes;
use membound_core::work::copies::{CopyWork, Route};
use membound_core::work::device::Buffer;

use crate::common::imitation;

fn machine() -> Machine {
    imitation::caches([1, 2, 1], false)
}

/// A visit to a kernel that only loads, in memory; all but `load` compute with what they load.
fn visit(kernel: &str, bps: f64) -> Measurement {
    let case = steady(kernel, Width::W128, StoreKind::Regular, USUAL_MEMORY, vec![0, 1], Bytes::gib(1));
    let mut visit = imitation::visit(&case, bps, &[]);
    if let Outcome::Measured(measured) = &mut visit.outcome {
        measured.volume.flops = if kernel == "load" { 0 } else { measured.volume.units };
    }
    visit
}

fn report(visits: Vec<Measurement>) -> Report {
    model::report(&imitation::record(machine(), visits))
}

/// Two threads load 9 GB/s, and `dot`, which loads too, 20: memory gives 20, and that is the roof of `dot` because `dot` reached it.
#[test]
fn memory_gives_what_any_kernel_got() {
    let found = report(vec![visit("load", 9e9), visit("dot", 20e9)]).roofline;
    let most = found.memory(2).unwrap();
    assert!((most / 20e9 - 1.0).abs() < 0.02, "{most}");
    assert!(found.points.iter().all(|point| point.is_own), "{:?}", found.points);
    // Loads that are faster make a roof that `dot` has not made itself.
    let found = report(vec![visit("load", 25e9), visit("dot", 20e9)]).roofline;
    assert!((found.memory(2).unwrap() / 25e9 - 1.0).abs() < 0.02);
    assert!(!found.points.is_empty() && found.points.iter().all(|point| !point.is_own), "{:?}", found.points);
}

/// Figures that set their own roof stand at 100 % whatever they are.
#[test]
fn a_kernel_that_is_its_own_roof_is_left_out_of_the_median() {
    let mut found = report(vec![visit("load", 9e9), visit("dot", 20e9), visit("sum", 10e9)]).roofline;
    // As if arithmetic had been measured, too.
    for point in &mut found.points {
        (point.is_partial, point.bound) = (false, Some(Bound::Bandwidth));
    }
    let answer = found.answer().unwrap();
    assert!(answer.contains("reaches 50% of its roof (1, whose own figure is its roof, left out)"), "{answer}");
    found.points.retain(|point| point.is_own);
    let answer = found.answer().unwrap();
    assert!(answer.contains("each is its own roof"), "{answer}");
}

/// Ceilings of arithmetic alone lead to no sentence, and an empty one is none.
#[test]
fn no_kernel_no_answer() {
    let mut found = report(Vec::new()).roofline;
    let ceiling = membound_analyze::across::roofline::ArithmeticCeiling {
        element: membound_core::kernel::Element::Double,
        width: Width::W128,
        balance: membound_core::machine::spec::Balance::Fma,
        threads: 1,
        measured: None,
        specified: Some(1e9),
    };
    found.arithmetic.push(ceiling);
    assert_eq!(found.answer(), None);
    assert!(membound_analyze::across::sections::roofline::brief(&found, &[]).is_empty());
}

/// Copies of 2 MiB are faster than the largest: the sentence tells of both, and calls only the faster one best.
#[test]
fn the_best_size_of_copies_is_the_best() {
    let device: DeviceName = "vulkan:0".parse().unwrap();
    let visit = |size: Bytes, bps: f64| {
        let work = CopyWork { device, route: Route::ToDevice, host: Some(Buffer::Regular), peer: None };
        let case = Case {
            work: Work::Copies(work),
            memory: USUAL_MEMORY,
            streams: Vec::new(),
            cpus: vec![0],
            working_set: size,
            misaligned_bytes: 0,
            protocol: Protocol::Steady,
        };
        imitation::visit(&case, bps, &[])
    };
    let told = |small_bps| {
        let visits = vec![visit(Bytes::mib(2), small_bps), visit(Bytes::mib(64), 1.6e9)];
        let mut record = imitation::record(machine(), visits);
        record.header.devices = vec![Device::unknown(device)];
        model::report(&record).findings.remove(0)
    };
    assert_eq!(
        told(10.5e9),
        "vulkan:0: 64 MiB, the largest copied to it, go there at 1.60 GB/s (from regular memory); the best size is 2 MiB, with 10.5 GB/s \
         (from regular memory)."
    );
    assert_eq!(told(1.0e9), "vulkan:0: 64 MiB, the largest copied to it, go there at 1.60 GB/s (from regular memory).");
}
