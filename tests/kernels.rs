//! Every kernel, element, width, store and load kind against its naive twin: lengths that are no multiple of anything, odd
//! alignments, one element; and nothing outside the arrays is touched.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

use iced_x86::{Decoder, DecoderOptions, OpAccess};
use membound::kernel::code::{Call, Executable, MachineCode};
use membound::kernel::{
    CATALOG, Element, Isa, Kernel, LoadKind, StoreKind, Unsupported, Variant, Width, assemble, naive,
};
use proptest::prelude::*;

fn variants(kernel: &Kernel, unroll: u32) -> Vec<Variant> {
    let mut all = Vec::new();
    for &element in Element::ALL {
        for &width in Width::ALL {
            for &store in StoreKind::ALL {
                for &load in LoadKind::ALL {
                    all.push(Variant { kernel: kernel.name.into(), element, width, store, load, unroll });
                }
            }
        }
    }
    all
}

/// The instruction sets to test: this processor's own and everything below it.
fn isas() -> Vec<Isa> {
    let here = Isa::detect();
    let no_fma = Isa { fma: false, ..here };
    let no_512 = Isa { avx512: false, ..here };
    let sse = Isa { avx: false, avx2: false, fma: false, avx512: false, ..here };
    vec![here, no_fma, no_512, sse, Isa { sse4a: false, ..sse }, Isa { sse4a: false, ..here }]
}

const GUARD: usize = 256;
const CANARY: u8 = 0xa5;

/// Small whole numbers: every result is exact, whatever the order of operations and with or without fusing.
fn value(stream: usize, i: usize) -> f64 {
    ((i * 7 + stream * 5) % 13) as f64 - 3.0
}

struct Arrays {
    buffers: Vec<Vec<u8>>,
    starts: Vec<usize>,
    element: Element,
    bytes: usize,
}

impl Arrays {
    fn new(streams: usize, element: Element, elements: usize, shifts: &[usize]) -> Self {
        let bytes = elements * element.bytes() as usize;
        let mut arrays = Arrays { buffers: Vec::new(), starts: Vec::new(), element, bytes };
        for stream in 0..streams {
            let mut buffer = vec![CANARY; bytes + 2 * GUARD + 128];
            let start = buffer[GUARD..].as_ptr().align_offset(64) + GUARD + shifts[stream % shifts.len()];
            let numbers: Vec<f64> = (0..elements).map(|i| value(stream, i)).collect();
            buffer[start..start + bytes].copy_from_slice(&element.encode(&numbers));
            arrays.buffers.push(buffer);
            arrays.starts.push(start);
        }
        arrays
    }

    fn addresses(&mut self) -> Vec<u64> {
        self.buffers.iter_mut().zip(&self.starts).map(|(b, &s)| b[s..].as_mut_ptr() as u64).collect()
    }

    fn values(&self, stream: usize) -> Vec<f64> {
        self.element.decode(&self.buffers[stream][self.starts[stream]..][..self.bytes])
    }

    fn assert_guards_untouched(&self, what: &str) {
        for (buffer, &start) in self.buffers.iter().zip(&self.starts) {
            let outside = buffer[..start].iter().chain(&buffer[start + self.bytes..]);
            assert!(outside.copied().all(|byte| byte == CANARY), "{what} wrote outside its array");
        }
    }
}

fn check_against_twin(kernel: &Kernel, variant: &Variant, isa: Isa, rows: usize, columns: usize, shifts: &[usize]) {
    let code = match assemble(variant, isa) {
        Ok(code) => code,
        Err(Unsupported::Assembler(fault)) => panic!("{variant}: {fault}"),
        Err(_) => return,
    };
    let what = format!("{variant} x{} {isa:?} {rows}x{columns} at {shifts:?}", variant.unroll);
    let formula = kernel.formula();
    let elements = rows * columns;
    let mut arrays = Arrays::new(formula.streams.len(), variant.element, elements, shifts);
    let mut twin: Vec<Vec<f64>> = (0..formula.streams.len()).map(|s| arrays.values(s)).collect();
    let answer = naive::run(kernel, &mut twin, 3.0, rows, columns).unwrap_or_else(|| panic!("{what}: no twin"));

    let executable = Executable::new(&code).unwrap();
    let mut call = Call::new(&formula, variant, &arrays.addresses(), rows as u64, columns as u64);
    call.scalar = 3.0;
    // Repeating changes nothing unless a stream is changed in place.
    let in_place = formula.streams.iter().any(|stream| stream.loaded && stream.stored);
    call.repetitions = if in_place { 1 } else { 3 };
    let inner = if formula.grid { (rows - 2) * (columns - 2) } else { elements };
    assert_eq!(call.elements(variant), inner as u64, "{what}");
    // Each addition goes to one of so many partial sums.
    let sums = 8 * variant.width.elements(variant.element);
    assert!(call.most_additions(variant) * sums * call.rows >= inner as u64, "{what}");
    // SAFETY: the addresses are those of live arrays of rows x columns elements, borrowed by nobody else.
    unsafe { executable.run(&mut call) }.unwrap();
    for (stream, expect) in twin.iter().enumerate() {
        assert_eq!(&arrays.values(stream), expect, "{what}: stream {stream}");
    }
    match answer {
        naive::Answer::Sum(expect) | naive::Answer::Last(expect) => {
            assert_eq!(call.result(&formula, variant), expect, "{what}");
        }
        naive::Answer::Stored => {}
    }
    arrays.assert_guards_untouched(&what);
}

#[test]
fn all_variants_agree_with_their_twins_at_awkward_lengths() {
    for kernel in CATALOG {
        for isa in isas() {
            for variant in variants(kernel, 4) {
                for length in [1, 2, 3, 7, 8, 9, 31, 32, 33, 64, 100, 257] {
                    let (rows, columns) = if kernel.formula().grid { (5, length + 2) } else { (1, length) };
                    for shift in [0, 8, 4, 5] {
                        check_against_twin(kernel, &variant, isa, rows, columns, &[shift]);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn any_length_alignment_and_unroll_is_right(
        row in 0..CATALOG.len(), pick in any::<prop::sample::Index>(), isa in any::<prop::sample::Index>(),
        unroll in 1u32..17, length in 1usize..400, rows in 3usize..6, shifts in prop::collection::vec(0usize..64, 4),
    ) {
        let kernel = &CATALOG[row];
        let all = variants(kernel, unroll);
        let (rows, columns) = if kernel.formula().grid { (rows, length + 2) } else { (1, length) };
        let (variant, isas) = (&all[pick.index(all.len())], isas());
        check_against_twin(kernel, variant, isas[isa.index(isas.len())], rows, columns, &shifts);
    }
}

/// As many passes as there are whole numbers, and some more: what the check of timed passes relies on.
#[test]
fn counting_in_floats_is_exact_and_comes_to_rest() {
    let most = Element::Float.exact_up_to();
    let kernel = Kernel::find("daxpy").unwrap();
    for isa in [Isa::detect(), Isa { avx: false, avx2: false, fma: false, avx512: false, ..Isa::detect() }] {
        let variant = Variant { element: Element::Float, ..plain("daxpy") };
        let code = Executable::new(&assemble(&variant, isa).unwrap()).unwrap();
        let (start, step) = ([-1.0, 0.0, 1.0, 1.0, -1.0], [1.0, -1.0, 1.0, 0.0, -1.0]);
        let mut arrays = [start, step].map(|numbers| Element::Float.encode(&numbers));
        for passes in [most - 3.0, 6.0] {
            let addresses = arrays.each_mut().map(|array| array.as_mut_ptr() as u64);
            let mut call = Call::new(&kernel.formula(), &variant, &addresses, 1, 5);
            call.scalar = 1.0;
            call.repetitions = passes as u64;
            // SAFETY: the addresses are those of live arrays of 5 elements, borrowed by nobody else.
            unsafe { code.run(&mut call) }.unwrap();
            let passes = if passes < 10.0 { most + 3.0 } else { passes };
            let expect = [0, 1, 2, 3, 4].map(|i: usize| (start[i] + passes * step[i]).clamp(-most, most));
            assert_eq!(Element::Float.decode(&arrays[0]), expect, "{isa:?}");
        }
    }
}

/// A load leaves no trace, so its coverage is read from its code: the main loop must touch every byte of a trip once.
#[test]
fn the_load_kernels_main_loop_reads_every_byte_once() {
    for &width in &Isa::detect().widths() {
        let variant = Variant { width, unroll: 8, ..plain("load") };
        let code = assemble(&variant, Isa::detect()).unwrap();
        assert_eq!(code.main_loop % 64, 0);
        let mut info = iced_x86::InstructionInfoFactory::new();
        let mut read = Vec::new();
        let main_loop = &code.bytes[code.main_loop..];
        for instruction in &mut Decoder::new(64, main_loop, DecoderOptions::NONE) {
            if instruction.is_jcc_short_or_near() {
                break;
            }
            for memory in info.info(&instruction).used_memory() {
                assert_eq!(memory.access(), OpAccess::Read);
                let start = memory.displacement() as usize;
                read.extend(start..start + memory.memory_size().size());
            }
        }
        assert_eq!(read, (0..8 * width.bytes(variant.element) as usize).collect::<Vec<_>>(), "{width}");
    }
}

#[test]
fn a_fault_ends_the_call_and_not_the_process() {
    let isa = Isa::detect();
    let kernel = Kernel::find("copy").unwrap();
    for width in isa.widths() {
        let variant = Variant { width, ..plain("copy") };
        let executable = Executable::new(&assemble(&variant, isa).unwrap()).unwrap();
        let mut call = Call::new(&kernel.formula(), &variant, &[8, 8], 1, 1000);
        for _ in 0..3 {
            // SAFETY: page 0 is never mapped; the call must end in a fault that is caught.
            let fault = unsafe { executable.run(&mut call) }.unwrap_err();
            assert!(fault.to_string().contains("SIGSEGV"), "{fault}");
        }
    }
}

fn plain(kernel: &str) -> Variant {
    let (element, width) = (Element::Double, Width::W128);
    let (store, load) = (StoreKind::Regular, LoadKind::Regular);
    Variant { kernel: kernel.into(), element, width, store, load, unroll: 4 }
}

fn load_code() -> MachineCode {
    assemble(&plain("load"), Isa::detect()).unwrap()
}

fn load_fault(code: &MachineCode, address: u64, elements: u64) -> String {
    let formula = Kernel::find("load").unwrap().formula();
    let mut call = Call::new(&formula, &plain("load"), &[address], 1, elements);
    let executable = Executable::new(code).unwrap();
    // SAFETY: the code only reads, from memory that is mapped or must fault.
    unsafe { executable.run(&mut call) }.unwrap_err().to_string()
}

#[test]
fn an_instruction_that_the_processor_lacks_is_a_fault() {
    let mut code = load_code();
    let at = code.main_loop;
    code.bytes[at..at + 2].copy_from_slice(&[0x0f, 0x0b]); // ud2
    let data = vec![0f64; 1000];
    assert!(load_fault(&code, data.as_ptr() as u64, 1000).contains("SIGILL"));
}

#[test]
fn memory_that_is_taken_away_is_a_fault() {
    use std::os::fd::AsRawFd;
    let file = tempfile::tempfile().unwrap();
    file.set_len(8192).unwrap();
    // SAFETY: a fresh shared mapping of our own file.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(address, libc::MAP_FAILED);
    file.set_len(4096).unwrap();
    assert!(load_fault(&load_code(), address as u64, 1024).contains("SIGBUS"));
}
