//! Every scan's machine code against plain Rust: it stores exactly the bytes at exactly the offset, loads what lies
//! there, and touches nothing else.
#![allow(unsafe_code)]

use membound_core::kernel::Unsupported;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::scan::{REGISTER, Scan};
use membound_measure::code::{Call, Executable, MachineCode};
use proptest::prelude::*;

const PAGE: usize = 4096;
const SIZES: [u32; 5] = [4, 8, 16, 32, 64];

fn scans() -> Vec<Scan> {
    let alone =
        SIZES.into_iter().flat_map(|bytes| [Scan::Load { bytes }, Scan::Store { bytes }, Scan::Aliasing { bytes }]);
    let pairs = SIZES.into_iter().flat_map(|stored| SIZES.map(|loaded| Scan::Forwarding { stored, loaded }));
    alone.chain(pairs).collect()
}

fn isas() -> Vec<Isa> {
    let here = membound_measure::asm::detect();
    if cfg!(target_arch = "aarch64") {
        return vec![here, Isa { sve_bytes: 0, ..here }];
    }
    let no_512 = Isa { avx512: false, ..here };
    vec![here, no_512, Isa { avx: false, avx2: false, fma: false, ..no_512 }]
}

/// Scratch memory between two guard pages, and registers; no two neighbouring bytes are alike.
fn ground(seed: u8) -> (Vec<u8>, usize, [[u8; REGISTER]; 4]) {
    let byte = |i: usize| (i * 131 + i / 251) as u8 ^ seed;
    let buffer: Vec<u8> = (0..Scan::SCRATCH as usize + 3 * PAGE).map(byte).collect();
    let start = PAGE + buffer[PAGE..].as_ptr().align_offset(PAGE);
    let mut registers = [[0; REGISTER]; 4];
    registers.as_flattened_mut().iter_mut().enumerate().for_each(|(i, b)| *b = byte(7 * i + 3));
    (buffer, start, registers)
}

/// The different machine codes of a scan; an emulator translates fresh code anew, so each is mapped once.
fn codes(scan: Scan) -> Vec<Executable> {
    let code = |isa| match membound_measure::asm::scan(scan, isa) {
        Ok(code) => Some(code),
        Err(Unsupported::NotOnThisProcessor(_)) => None,
        Err(fault) => panic!("{scan}: {fault}"),
    };
    let mut codes: Vec<MachineCode> = Vec::new();
    for code in isas().into_iter().filter_map(code) {
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    codes.iter().map(|code| Executable::new(code).unwrap()).collect()
}

fn run(scan: Scan, code: &Executable, offset: i64, trips: u64, seed: u8) {
    let (mut buffer, start, mut registers) = ground(seed);
    let mut twin = buffer.clone();
    let addresses = scan.addresses(buffer[start..].as_mut_ptr() as u64, offset).unwrap();
    let mut call = Call::of_scan(addresses, &registers, trips);
    // SAFETY: the addresses lie in `buffer`, which nothing else uses meanwhile.
    unsafe { code.run(&mut call) }.unwrap();
    scan.play(&mut twin[start..start + Scan::SCRATCH as usize], &mut registers, offset, trips);
    let differs = buffer.iter().zip(&twin).position(|(found, expect)| found != expect);
    assert_eq!(differs.map(|at| at as i64 - start as i64), None, "{scan}, offset {offset}: memory differs");
    let widest = scan.bytes().into_iter().max().unwrap() as usize;
    for (found, expect) in call.registers().iter().zip(&registers) {
        assert_eq!(found[..widest], expect[..widest], "{scan}, offset {offset}");
    }
}

#[test]
fn all_scans_at_their_corners() {
    for scan in scans() {
        let (first, last) = scan.offsets().into_inner();
        for code in codes(scan) {
            for offset in [first, first + 1, 0, 1, 63.min(last), last - 1, last] {
                run(scan, &code, offset, 1, 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_scan_at_any_offset(
        scan in prop::sample::select(scans()), part in 0.0..1.0, isa in 0usize..3, trips in 1u64..4, seed: u8,
    ) {
        let (first, last) = scan.offsets().into_inner();
        let codes = codes(scan);
        if !codes.is_empty() {
            let offset = first + (part * (last - first + 1) as f64) as i64;
            run(scan, &codes[isa % codes.len()], offset, trips, seed);
        }
    }
}

/// Whatever the offset, no access begins before the scratch memory or ends behind it.
#[test]
fn accesses_stay_in_the_scratch_memory() {
    for scan in scans() {
        let places = if scan.is_paired() { 1 } else { Scan::PLACES };
        for offset in scan.offsets() {
            for (address, bytes) in scan.addresses(1 << 20, offset).unwrap().into_iter().zip(scan.bytes()) {
                let last = address + (places - 1) * PAGE as u64 + bytes;
                assert!(bytes == 0 || ((1 << 20) <= address && last <= (1 << 20) + Scan::SCRATCH), "{scan}, {offset}");
            }
        }
        for offset in [scan.offsets().start() - 1, scan.offsets().end() + 1] {
            assert_eq!(scan.addresses(1 << 20, offset), None);
        }
    }
}

#[test]
fn what_does_not_exist_is_refused() {
    let isa = Isa { avx: false, avx512: false, neon: false, sve_bytes: 0, ..membound_measure::asm::detect() };
    for bytes in [32, 64] {
        assert!(matches!(
            membound_measure::asm::scan(Scan::Load { bytes }, isa),
            Err(Unsupported::NotOnThisProcessor(_))
        ));
    }
    for scan in [Scan::Load { bytes: 5 }, Scan::Forwarding { stored: 8, loaded: 128 }] {
        assert!(matches!(membound_measure::asm::scan(scan, isa), Err(Unsupported::NoSuchInstruction(_))));
    }
}
