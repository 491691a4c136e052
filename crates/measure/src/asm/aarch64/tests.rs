//! The table of instructions against an independent assembler, and all code that is generated against an independent
//! disassembler. Both are LLVM's; they run on any host.

use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};

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

use crate::asm::aarch64::Assembler;
use crate::asm::aarch64::isa::NEON;
use crate::asm::aarch64::listing::listing;
use crate::asm::aarch64::opcodes::{ALL, text};
use crate::asm::{LineStore, chase, clock, flops, handover, kernel, lines, mix, pair, probe, scan, streams, strings};
use crate::code::MachineCode;
use crate::skip::skip;

/// An offset that no jump reaches back from to before the start.
const AT: usize = 1 << 28;
const LSE: Isa = Isa { lse: true, ..NEON };
/// As on Neoverse V1, as on A64FX, and the longest registers and blocks of zeros that there may be.
const SVE: [Isa; 3] = [
    Isa { sve_bytes: 32, zva_bytes: 64, ..NEON },
    Isa { sve_bytes: 64, zva_bytes: 256, ..NEON },
    Isa { sve_bytes: 256, zva_bytes: 2048, ..MOPS },
];
const MOPS: Isa = Isa { mops: true, ..NEON };

/// What LLVM's assembler makes of these lines: a word each. `None`, where it is not installed.
fn assembled(lines: &[String]) -> Option<Vec<u32>> {
    let names = ["llvm-mc", "llvm-mc-14", "llvm-mc-15", "llvm-mc-16", "llvm-mc-17", "llvm-mc-18", "llvm-mc-19"];
    let arguments = ["-triple=aarch64", "-mattr=+v8.2a,+sve,+mops", "-show-encoding"];
    let text = lines.join("\n") + "\n";
    let printed = names.iter().find_map(|name| printed(Command::new(name).args(arguments), text.clone()))?;
    let word = |line: &str| {
        let bytes = line.split_once("encoding: [")?.1.trim_end_matches(']').split(',');
        let bytes: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte.trim_start_matches("0x"), 16).unwrap()).collect();
        Some(u32::from_le_bytes(bytes.try_into().unwrap()))
    };
    Some(printed.lines().filter_map(word).collect())
}

/// What a program prints of this input. `None`, where it is not installed.
pub(super) fn printed(command: &mut Command, text: String) -> Option<String> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// LLVM reads `0` as the target of a jump, where a listing has an offset of the code.
pub(super) fn for_llvm(listed: &str, at: usize) -> String {
    match listed.strip_suffix('h').and_then(|text| text.rsplit_once(' ')) {
        Some((before, target)) => {
            let distance = i64::from_str_radix(target, 16).unwrap() - at as i64;
            format!("{before} #{distance}")
        }
        None => listed.to_string(),
    }
}

/// Each instruction of the table with operands at both ends and between: what it prints, LLVM assembles to the same word.
#[test]
fn an_independent_assembler_agrees_with_the_table() {
    let (mut lines, mut words) = (Vec::new(), Vec::new());
    for opcode in ALL {
        for pattern in [0, u32::MAX, 0x5555_5555, 0x1357_9bdf, 0x1234_5698, 0x0862_1084, 0x8642_0842] {
            // Operands alone vary; registers of number 31 have other names there.
            let word = opcode.with_operands(pattern);
            lines.push(for_llvm(&text(word, AT).unwrap(), AT));
            words.push(word);
        }
    }
    let Some(found) = assembled(&lines) else { return skip("llvm-mc is not installed") };
    assert_eq!(found.len(), words.len());
    for ((line, word), found) in lines.iter().zip(&words).zip(&found) {
        assert_eq!(found, word, "{line}: {found:08x}, not {word:08x}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    use crate::asm::aarch64::opcodes::{B_NE, LDP_Q, LDR_D, LDUR_D};
    for (opcode, fits, does_not) in
        [(LDR_D, vec![0, 8, 32760], vec![-8, 4, 32768]), (LDUR_D, vec![-256, 255], vec![-257, 256])]
    {
        fits.iter().for_each(|&offset| assert!(opcode.encode(&[1, 2, offset]).is_some(), "{} {offset}", opcode.text));
        does_not
            .iter()
            .for_each(|&offset| assert_eq!(opcode.encode(&[1, 2, offset]), None, "{} {offset}", opcode.text));
    }
    assert!(LDP_Q.encode(&[0, 1, 2, -1024]).is_some() && LDP_Q.encode(&[0, 1, 2, 1008]).is_some());
    assert_eq!([-1040, 1024, 8].map(|offset| LDP_Q.encode(&[0, 1, 2, offset])), [None; 3]);
    assert_eq!([1 << 20, 2].map(|distance| B_NE.encode(&[distance])), [None; 2]);
    assert_eq!(LDR_D.encode(&[32, 0, 0]), None);
}

/// Every variant of a loop, and why there is none.
fn of_kernel(kernel: &str) -> Vec<Result<MachineCode, Unsupported>> {
    let mut codes = Vec::new();
    for (&width, &store) in Width::ALL.iter().flat_map(|width| StoreKind::ALL.iter().map(move |s| (width, s))) {
        for (&load, &element) in LoadKind::ALL.iter().flat_map(|l| Element::ALL.iter().map(move |e| (l, e))) {
            for isa in SVE.into_iter().chain([NEON, Isa { fma: false, ..NEON }]) {
                for unroll in [1, 4, 32] {
                    let variant = Variant { kernel: kernel.into(), element, width, store, load, unroll };
                    codes.push(kernel::assemble::<Assembler>(&variant, isa));
                }
            }
        }
    }
    codes
}

fn of_generators() -> Vec<Result<MachineCode, Unsupported>> {
    let mut codes: Vec<_> =
        (1..=32).map(|chains| chase::chase::<Assembler>(Chase { chains, ..Chase::of(Order::Random) })).collect();
    codes.extend([clock::core_clock_chain::<Assembler>(), clock::wide_additions::<Assembler>()]);
    codes.extend([NEON, LSE].map(handover::handover::<Assembler>));
    codes.extend(Mix::ALL.iter().map(|&of| mix::mix::<Assembler>(of)));
    codes.push(pair::pair::<Assembler>());
    codes.extend([false, true].map(|fills| strings::strings::<Assembler>(fills, MOPS)));
    codes.extend(SVE.map(|isa| lines::lines::<Assembler>(LineStore::DcZva, isa)));
    codes.extend(Probe::ALL.map(probe::touch::<Assembler>));
    for (&width, &balance) in Width::ALL.iter().flat_map(|w| Balance::ALL.iter().map(move |b| (w, b))) {
        for isa in [NEON, SVE[0], SVE[1], SVE[2]] {
            let of = |&element| flops::flops::<Assembler>(Flops { element, width, balance }, isa);
            codes.extend(Element::ALL.iter().map(of));
        }
    }
    let sizes = [4, 8, 16, 32, 64];
    for &bytes in &sizes {
        let forwarding = sizes.map(|loaded| Scan::Forwarding { stored: bytes, loaded });
        let scans =
            [Scan::Load { bytes }, Scan::Store { bytes }, Scan::Aliasing { bytes }].into_iter().chain(forwarding);
        for of in scans {
            codes.extend([NEON, SVE[0], SVE[1], SVE[2]].map(|isa| scan::scan::<Assembler>(of, isa)));
        }
    }
    for touch in [Touch::Read, Touch::Write, Touch::Copy] {
        let of = |streams| Streams { streams, touch, offset_bytes: 0 };
        codes.extend([2, 4, 32].map(|count| streams::streams::<Assembler>(of(count), 1 << 20)));
        codes.push(streams::streams::<Assembler>(of(2), (16 << 20) + 4096 + 64));
    }
    codes
}

/// All code is made of instructions that the listing knows, and LLVM makes the same words of the listing. What there is
/// no code for has a reason, and it is never a fault of the assembler.
#[test]
fn listings_say_what_runs() {
    let loops = [
        "a[i] = sqrt(b[i]) - 2*abs(c[i])",
        "a[i] = b[c[i]]",
        "sum += a[i]*b[i] + 0.5",
        "a[i] = -b[i] / max(c[i], 3)",
        "a[i] = min(b[i+1], b[i-1]) * s + 0",
        "a[i] = fma(b[i], c[i+100], fma(d[i-200], e[i], 1.25))",
    ];
    let kernels = CATALOG.iter().map(|kernel| kernel.name).chain(loops);
    let codes: Vec<_> = kernels.flat_map(of_kernel).chain(of_generators()).collect();
    let (mut lines, mut words) = (Vec::new(), Vec::new());
    let mut made = 0;
    for code in codes {
        let code = match code {
            Ok(code) => code,
            Err(Unsupported::Assembler(fault)) => panic!("{fault}"),
            Err(_) => continue,
        };
        made += 1;
        assert_eq!(code.bytes.len() % 4, 0);
        for line in listing(&code).lines().filter(|line| !line.starts_with(';')) {
            let mut parts = line.trim().splitn(3, "  ");
            let at = usize::from_str_radix(parts.next().unwrap(), 16).unwrap();
            let word = u32::from_str_radix(parts.next().unwrap(), 16).unwrap();
            lines.push(for_llvm(parts.next().unwrap(), at));
            words.push(word);
        }
    }
    assert!(made > 500, "{made}");
    assert!(lines.iter().all(|line| !line.contains(".word")));
    // The same line is the same word wherever it stands.
    let mut both: Vec<_> = lines.into_iter().zip(words).collect();
    both.sort();
    both.dedup();
    let (lines, words): (Vec<_>, Vec<_>) = both.into_iter().unzip();
    let Some(found) = assembled(&lines) else { return skip("llvm-mc is not installed") };
    assert_eq!(found.len(), words.len());
    for ((line, word), found) in lines.iter().zip(&words).zip(&found) {
        assert_eq!(found, word, "{line}: {found:08x}, not {word:08x}");
    }
}

#[test]
fn main_loops_start_on_a_line() {
    for &width in [Width::Scalar, Width::W128, Width::W256].iter() {
        let (store, load) = (StoreKind::Regular, LoadKind::Regular);
        let variant = Variant { kernel: "triad".into(), element: Element::Double, width, store, load, unroll: 4 };
        assert_eq!(kernel::assemble::<Assembler>(&variant, NEON).unwrap().main_loop % 64, 0);
    }
}

fn count(code: &MachineCode, what: &str) -> u64 {
    listing(code).lines().filter(|line| line.contains(what)).count() as u64
}

#[test]
fn a_mix_moves_the_bytes_it_claims() {
    for of in Mix::ALL {
        let code = mix::mix::<Assembler>(*of).unwrap();
        let at_streams = |what| count(&code, what) - count(&code, &format!("{what}0, [x0"));
        let stored = at_streams("  str q") + count(&code, "stnp d");
        assert_eq!([16 * at_streams("  ldr q"), 16 * stored], of.bytes(), "{of}:\n{}", listing(&code));
    }
}

/// Pairs of registers are accessed by one instruction, around the caches or not.
#[test]
fn a_triad_of_256_bits_is_made_of_pairs() {
    for (store, load, what) in [
        (StoreKind::Regular, LoadKind::Regular, ["ldp q", "stp q"]),
        (StoreKind::Nt, LoadKind::Nt, ["ldnp q", "stnp q"]),
    ] {
        let (element, width) = (Element::Double, Width::W256);
        let variant = Variant { kernel: "triad".into(), element, width, store, load, unroll: 4 };
        let code = kernel::assemble::<Assembler>(&variant, NEON).unwrap();
        let text = listing(&code);
        let main_loop = text.split_once("; main loop\n").unwrap().1.split_once("b.ne").unwrap().0;
        assert_eq!(what.map(|what| main_loop.matches(what).count()), [8, 4], "{text}");
        // Loads, sums of products, stores, pointers, the count; and what stands before its jump.
        assert_eq!(main_loop.lines().count(), 8 + 2 * 4 + 4 + 3 + 1 + 1, "{text}");
    }
}

/// On registers as wide as the width, an address is computed once for 16 offsets of a stream.
#[test]
fn a_triad_of_sve_is_made_of_whole_registers() {
    for (isa, width) in [(SVE[0], Width::W256), (SVE[1], Width::W512)] {
        let (store, load) = (StoreKind::Nt, LoadKind::Nt);
        let variant = Variant { kernel: "triad".into(), element: Element::Float, width, store, load, unroll: 16 };
        let code = kernel::assemble::<Assembler>(&variant, isa).unwrap();
        let text = listing(&code);
        let main_loop = text.split_once("; main loop\n").unwrap().1.split_once("b.ne").unwrap().0;
        let counts = ["ldnt1w", "stnt1w", "fmla", "add x"].map(|what| main_loop.matches(what).count());
        assert_eq!(counts, [32, 16, 16, 3 + 3], "{text}");
    }
}

/// 24 chains keep 2 pipes of 9 cycles busy; neither they nor the operands share a register.
#[test]
fn chains_of_arithmetic_have_registers_of_their_own() {
    let check = |width, isa, name: &str, expect: usize| {
        let flops = Flops { element: Element::Double, width, balance: Balance::Add };
        let text = listing(&flops::flops::<Assembler>(flops, isa).unwrap());
        let main_loop = text.split_once("; main loop\n").unwrap().1.split_once("b.ne").unwrap().0;
        let operands = |line: &str| -> Vec<String> {
            let words = line.split_once(name).unwrap().1;
            words
                .split([',', ' '])
                .map(|word| word.split('.').next().unwrap().into())
                .filter(|w: &String| !w.is_empty())
                .collect()
        };
        let links: Vec<Vec<String>> = main_loop.lines().filter(|line| line.contains(name)).map(operands).collect();
        let sums: HashSet<&String> = links.iter().map(|link| &link[0]).collect();
        let addends: HashSet<&String> = links.iter().filter_map(|link| link.last()).collect();
        assert_eq!((sums.len(), links.len()), (expect, 8 * expect), "{text}");
        assert!(sums.is_disjoint(&addends), "{text}");
    };
    check(Width::Scalar, NEON, "fadd ", 24);
    check(Width::W128, NEON, "fadd ", 24);
    check(Width::W256, NEON, "fadd ", 24);
    check(Width::W512, SVE[2], "fadd ", 24);
}

#[test]
fn a_hand_over_is_one_instruction_where_there_is_one() {
    let code = handover::handover::<Assembler>(LSE).unwrap();
    assert_eq!([count(&code, "casal"), count(&code, "ldaxr")], [1, 0], "{}", listing(&code));
    let code = handover::handover::<Assembler>(NEON).unwrap();
    assert_eq!([count(&code, "casal"), count(&code, "ldaxr"), count(&code, "stlxr")], [0, 1, 1]);
}

#[test]
fn a_flush_is_done_before_the_next_load() {
    let text = listing(&pair::pair::<Assembler>().unwrap());
    let mut rest = text.as_str();
    for what in ["ldr x10, [x2", "ldr x4, [x3", "dc civac, x2", "dc civac, x3", "dsb sy", "b.ne"] {
        let at = rest.find(what);
        assert!(at.is_some(), "{what} is missing or misplaced:\n{text}");
        rest = &rest[at.unwrap_or(0) + what.len()..];
    }
}

#[test]
fn what_x86_alone_has_is_refused_with_its_reason() {
    let check = |store, load, width, reason: &str| {
        let variant = Variant { kernel: "copy".into(), element: Element::Double, width, store, load, unroll: 4 };
        let fault = kernel::assemble::<Assembler>(&variant, NEON).unwrap_err().to_string();
        assert!(fault.contains(reason), "{fault}");
    };
    check(StoreKind::NtMasked, LoadKind::Regular, Width::W128, "x86's alone");
    check(StoreKind::Nt, LoadKind::Regular, Width::W128, "stnp");
    check(StoreKind::Regular, LoadKind::Nt, Width::W128, "ldnp");
    check(StoreKind::Regular, LoadKind::Regular, Width::W512, "SVE with registers of 512 bits");
}

/// By words of Arm's own encodings, each put together by hand (Arm Architecture Reference Manual, C6.2: CPYFP, CPYFM, CPYFE; SETP,
/// SETM, SETE): of a copy, sz 00, 011 0 01, op1, 0, Rs, 0000 01, Rn, Rd; of a set, op1 11 and the part in bits 15 to 12.
#[test]
fn strings_are_three_instructions_in_a_row() {
    let check = |fills: bool, expect: [u32; 3]| {
        let code = strings::strings::<Assembler>(fills, MOPS).unwrap();
        let words: Vec<u32> = code.bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        assert!(words.windows(3).any(|three| three == expect), "{expect:08x?} in\n{}", listing(&code));
    };
    // To x2, from x3 or the byte in x4, x11 bytes.
    let both = 0b011 << 27 | 0b01 << 24 | 0b01 << 10 | 11 << 5 | 2;
    let copy = |op1: u32| both | op1 << 22 | 3 << 16;
    let set = |part: u32| both | 0b11 << 22 | 4 << 16 | part << 12;
    check(false, [0b00, 0b01, 0b10].map(copy));
    check(true, [0b0000, 0b0100, 0b1000].map(set));
}

/// Copies and zeros are what instructions for whole arrays can do; sizes are counted in elements.
#[test]
fn arrays_are_copied_and_zeroed_by_instructions_for_strings() {
    for (kernel, what) in [("copy", "cpyf"), ("init", "set"), ("a[i] = b[i]", "cpyf")] {
        let (element, width, store, load) = (Element::Double, Width::Scalar, StoreKind::Rep, LoadKind::Regular);
        let variant = Variant { kernel: kernel.into(), element, width, store, load, unroll: 4 };
        let code = kernel::assemble::<Assembler>(&variant, MOPS).unwrap();
        let parts = ["p", "m", "e"].map(|part| count(&code, &format!("  {what}{part} [x2]!")));
        assert_eq!((parts, count(&code, "lsl x11, x11, #3")), ([1; 3], 1), "{}", listing(&code));
        let float = Variant { element: Element::Float, ..variant };
        assert_eq!(count(&kernel::assemble::<Assembler>(&float, MOPS).unwrap(), "lsl x11, x11, #2"), 1);
    }
}

/// One instruction and one step to the next block: nothing is loaded, and nothing goes around the caches.
#[test]
fn blocks_of_zeros_are_one_instruction_each() {
    for isa in SVE {
        let (element, width) = (Element::Float, Width::Scalar);
        let (store, load) = (StoreKind::Zero, LoadKind::Regular);
        let variant = Variant { kernel: "init".into(), element, width, store, load, unroll: 4 };
        let step = format!("add x2, x2, #{}", isa.zva_bytes);
        for code in [
            kernel::assemble::<Assembler>(&variant, isa).unwrap(),
            lines::lines::<Assembler>(LineStore::DcZva, isa).unwrap(),
        ] {
            let text = listing(&code);
            let main_loop = text.split_once("; main loop\n").unwrap().1.split_once("b.ne").unwrap().0;
            let counts = ["dc zva, x2", &step, "str", "dsb"].map(|what| main_loop.matches(what).count());
            assert_eq!(counts, [4, 4, 0, 0], "{text}");
        }
    }
}

#[test]
fn stores_of_whole_blocks_are_refused_with_their_reason() {
    let check = |kernel: &str, store, width, isa, reason: &str| {
        let (element, load) = (Element::Double, LoadKind::Regular);
        let variant = Variant { kernel: kernel.into(), element, width, store, load, unroll: 4 };
        let fault = kernel::assemble::<Assembler>(&variant, isa).unwrap_err().to_string();
        assert!(fault.contains(reason), "{fault}");
    };
    check("init", StoreKind::Zero, Width::Scalar, NEON, "its system prohibits it (DCZID_EL0)");
    check("init", StoreKind::Zero, Width::W128, SVE[0], "use --width scalar");
    for kernel in ["store", "copy", "triad", "a[i] = -0"] {
        check(kernel, StoreKind::Zero, Width::Scalar, SVE[0], "writes nothing but zeros");
    }
    check("copy", StoreKind::Rep, Width::Scalar, NEON, "FEAT_MOPS");
    check("init", StoreKind::Rep, Width::W256, MOPS, "use --width scalar");
    check("store", StoreKind::Rep, Width::Scalar, MOPS, "the same byte everywhere");
    check("triad", StoreKind::Rep, Width::Scalar, MOPS, "can only copy and fill");
    assert!(strings::strings::<Assembler>(false, NEON).unwrap_err().to_string().contains("FEAT_MOPS"));
    for (by, reason) in LineStore::ALL.into_iter().zip(["x86 alone", "x86 alone", "(DCZID_EL0)"]) {
        let fault = lines::lines::<Assembler>(by, NEON).unwrap_err().to_string();
        assert!(fault.contains(reason), "{by:?}: {fault}");
    }
}
