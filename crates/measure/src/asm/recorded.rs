//! Tests that the code of every generator is, byte for byte, what was recorded: a changed line here is a changed
//! measurement, and must be meant.

use membound_core::kernel::catalog::CATALOG;
use membound_core::kernel::chase::{Chase, Order};
use membound_core::kernel::flops::Flops;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::mix::Mix;
use membound_core::kernel::scan::Scan;
use membound_core::kernel::streams::{Streams, Touch};
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Variant, Width};
use membound_core::machine::spec::Balance;
use membound_core::memory::behaviour::Touch as Probe;

use crate::asm::{
    LineStore, assemble, chase, core_clock_chain, flops, flushing, handover, lines, mix, pair, scan, streams, strings,
    timed_calls, touch, wide_additions, x87,
};
use crate::code::MachineCode;

const EVERY: Isa = Isa { avx: true, avx2: true, fma: true, avx512: true, sse41: true, sse4a: true, ..Isa::NONE };
const SSE: Isa = Isa::NONE;
const SETS: [Isa; 4] = [EVERY, SSE, Isa { sse41: true, sse4a: true, ..SSE }, Isa { avx: true, sse41: true, ..SSE }];
/// What the catalog's kernels do not ask for.
const LOOPS: [&str; 6] = [
    "a[i] = sqrt(b[i]) - 2*abs(c[i])",
    "a[i] = b[c[i]]",
    "sum += a[i]*b[i] + 0.5",
    "a[i] = -b[i] / max(c[i], 3)",
    "a[i] = min(b[i+1], b[i-1]) * s + 0",
    // Of nine pointers, the last is rax, which has encodings of its own.
    "a[i] = b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i] + k[i]",
];

/// FNV-1a over codes, or over the reasons why there are none.
struct Hash(u64);

impl Hash {
    fn eat(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }

    fn of(codes: impl IntoIterator<Item = Result<MachineCode, Unsupported>>) -> Self {
        let mut hash = Hash(0xcbf2_9ce4_8422_2325);
        for code in codes {
            match code {
                Ok(code) => {
                    hash.eat(&code.bytes);
                    hash.eat(&[code.main_loop, code.fault_exit].map(usize::to_le_bytes).concat());
                }
                Err(reason) => hash.eat(reason.to_string().as_bytes()),
            }
        }
        hash
    }
}

/// A kernel's code in all ways, unrolled by these.
fn in_all_ways(kernel: &str, unrolls: &[u32]) -> Vec<Result<MachineCode, Unsupported>> {
    let mut codes = Vec::new();
    // Blocks of zeros are Arm's.
    let stores = StoreKind::ALL.iter().filter(|store| **store != StoreKind::Zero);
    for isa in SETS {
        for (&width, &store) in Width::ALL.iter().flat_map(|width| stores.clone().map(move |s| (width, s))) {
            for (&load, element) in LoadKind::ALL.iter().flat_map(|l| [(l, Element::Double), (l, Element::Float)]) {
                let variant = Variant { kernel: kernel.into(), element, width, store, load, unroll: 1 };
                codes.extend(unrolls.iter().map(|&unroll| assemble(&Variant { unroll, ..variant.clone() }, isa)));
            }
        }
    }
    codes
}

fn of_kernel(kernel: &str) -> Hash {
    let codes = in_all_ways(kernel, &[1, 4, 33]);
    assert!(codes[0].is_ok(), "{kernel}: {:?}", codes[0]);
    Hash::of(codes)
}

fn of_flops() -> Hash {
    let mut codes = Vec::new();
    for (isa, &width) in SETS.into_iter().flat_map(|isa| Width::ALL.iter().map(move |width| (isa, width))) {
        for &balance in Balance::ALL {
            codes
                .extend([Element::Double, Element::Float].map(|element| flops(Flops { element, width, balance }, isa)));
        }
    }
    Hash::of(codes)
}

fn of_scans() -> Hash {
    let sizes = [4, 8, 16, 32, 64, 5];
    let of = |&bytes: &u32| {
        let forwarding = sizes.map(|loaded| Scan::Forwarding { stored: bytes, loaded });
        [Scan::Load { bytes }, Scan::Store { bytes }, Scan::Aliasing { bytes }].into_iter().chain(forwarding)
    };
    let scans: Vec<Scan> = sizes.iter().flat_map(of).collect();
    Hash::of(SETS.iter().flat_map(|&isa| scans.iter().map(move |&of| scan(of, isa))))
}

fn of_lines() -> Hash {
    let isas = [Isa { movdir64b: true, clzero: true, ..Isa::NONE }, Isa::NONE];
    Hash::of(isas.into_iter().flat_map(|isa| LineStore::ALL.map(|by| lines(by, isa))))
}

fn of_streams() -> Hash {
    let of = |touch| (1..=33).map(move |count| streams(Streams { streams: count, touch, offset_bytes: 0 }, 1 << 20));
    Hash::of([Touch::Read, Touch::Write, Touch::Copy].into_iter().flat_map(of))
}

fn found() -> String {
    let chases = (0..=33).map(|chains| chase(Chase { chains, ..Chase::of(Order::Random) }));
    let mut hashes = vec![
        ("chase".to_string(), Hash::of(chases)),
        ("clock".to_string(), Hash::of([core_clock_chain()])),
        ("flops".to_string(), of_flops()),
        ("flushing".to_string(), Hash::of([pair().and_then(flushing)])),
        ("handover".to_string(), Hash::of([handover()])),
        ("lines".to_string(), of_lines()),
        ("mix".to_string(), Hash::of(Mix::ALL.iter().map(|&of| mix(of)))),
        ("pair".to_string(), Hash::of([pair()])),
        ("scan".to_string(), of_scans()),
        ("streams".to_string(), of_streams()),
        ("strings".to_string(), Hash::of([false, true].map(strings))),
        ("timed calls".to_string(), Hash::of([timed_calls(1 << 20, 1 << 40)])),
        ("touch".to_string(), Hash::of(Probe::ALL.map(touch))),
        ("wide".to_string(), Hash::of([wide_additions()])),
        (
            "x87".to_string(),
            Hash::of([1, 2, 3].into_iter().flat_map(|of| [false, true].map(|is_stored| x87(of, is_stored)))),
        ),
    ];
    let kernels = CATALOG.iter().map(|kernel| kernel.name).chain(LOOPS);
    hashes.extend(kernels.map(|kernel| (kernel.to_string(), of_kernel(kernel))));
    hashes.iter().map(|(name, hash)| format!("{:016x} {name}\n", hash.0)).collect()
}

#[test]
fn all_code_is_as_recorded() {
    let found = found();
    assert!(found == include_str!("recorded.txt"), "recorded.txt would have to be:\n{found}");
}

#[test]
fn main_loops_start_on_a_line() {
    for kernel in CATALOG.iter().map(|kernel| kernel.name) {
        let codes = in_all_ways(kernel, &[4, 8, 16]);
        let off = codes.iter().flatten().filter(|code| code.main_loop % 64 > 0).count();
        assert_eq!(off, 0, "{kernel}: {off} of {}", codes.len());
    }
}

#[test]
fn what_exists_for_doubles_exists_for_floats() {
    let sse = Isa { sse41: true, sse4a: true, ..SSE };
    for isa in [EVERY, Isa { fma: false, ..EVERY }, sse, Isa { sse4a: false, ..EVERY }, Isa { sse4a: false, ..sse }] {
        for kernel in CATALOG {
            for (&width, (&store, &load)) in Width::ALL.iter().flat_map(|width| {
                StoreKind::ALL
                    .iter()
                    .flat_map(|store| LoadKind::ALL.iter().map(move |load| (store, load)))
                    .map(move |ways| (width, ways))
            }) {
                let of = |element| {
                    let kernel = kernel.name.into();
                    assemble(&Variant { kernel, element, width, store, load, unroll: 4 }, isa).map(drop)
                };
                assert_eq!(of(Element::Float), of(Element::Double), "{} {width} {store} {load} {isa:?}", kernel.name);
            }
        }
    }
}
