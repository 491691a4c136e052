//! R. Garg's experiment (2013) as visits made by hand: copies from the heap to regular, write-combined and uncached memory.
#![allow(dead_code)] // Each test file uses its part.

use membound_core::case::{Case, Protocol, StreamMemory, Work, usual};
use membound_core::experiments::kinds::REGULAR;
use membound_core::kernel::{StoreKind, Width};
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{Measured, Measurement, Sample, Samples, Unit, Volume};
use membound_core::units::Bytes;

/// 4 million doubles.
pub const BUFFER: u64 = 32_000_000;

/// Visits to the copy from the heap to `kind`, each sample of so many nanoseconds.
pub fn copies(kind: MemoryKind, protocol: Protocol, ticks: u64) -> Measurement {
    let variant = usual("copy", Width::Scalar, StoreKind::Regular);
    let samples = Samples::from_iter([Sample { ticks, core_clock_ticks: 1000, ..Sample::default() }; 9]);
    let volume = Volume {
        unit: Unit::Element,
        units: BUFFER / 8,
        loaded: BUFFER,
        stored: BUFFER,
        write_allocated: BUFFER,
        flops: 0,
    };
    let case = Case {
        streams: vec![StreamMemory { stream: "a".into(), memory: MemorySpec::of(kind) }],
        protocol,
        ..Case::new(Work::Kernel(variant), REGULAR, vec![0], Bytes(2 * BUFFER))
    };
    let obtained = Obtained { bytes: Bytes(2 * BUFFER), ..Obtained::default() };
    let measured = Measured { volume, repetitions: 1, core_clock_links: 1000, samples, obtained };
    Measurement::new(case, 0, measured)
}

/// R. Garg, 2013 (REFERENCE S0), on an AMD A10-5750M: first copy 22, 81, 164 ms; later ones 3.8, 5.7, 0.33 GB/s.
pub fn published() -> Vec<Measurement> {
    let kinds = [(MemoryKind::Heap, 22, 3.8), (MemoryKind::Wc, 81, 5.7), (MemoryKind::Uc, 164, 0.33)];
    let visits = |(kind, first_ms, gbps): (MemoryKind, u64, f64)| {
        let steady = (BUFFER as f64 / gbps) as u64;
        [copies(kind, Protocol::FirstUse, first_ms * 1_000_000), copies(kind, Protocol::Steady, steady)]
    };
    rounds(kinds.into_iter().flat_map(visits).collect())
}

/// The same visits in three rounds.
fn rounds(visits: Vec<Measurement>) -> Vec<Measurement> {
    let round = |round| visits.iter().cloned().map(move |visit| Measurement { round, ..visit });
    (0..3).flat_map(round).collect()
}
