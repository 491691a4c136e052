//! Every kernel, element, width, store and load kind against its naive twin, and any loop of a user's: lengths that are no
//! multiple of anything, odd alignments, one element; and nothing outside the arrays is touched.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use iced_x86::{Decoder, DecoderOptions, OpKind};
use membound_core::case::usual;
use membound_core::kernel::catalog::{CATALOG, Kernel};
use membound_core::kernel::formula::{Formula, Role};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::naive::{Twin, index, is_same};
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Variant, Width};
use membound_measure::asm::{LineStore, assemble, lines};
use membound_measure::bench::{LineCode, Source};
use membound_measure::code::{Call, Executable, MachineCode};
use membound_measure::no_visit::NoVisit;
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
    let here = membound_measure::asm::detect();
    let no_fma = Isa { fma: false, ..here };
    if cfg!(target_arch = "aarch64") {
        return vec![here, no_fma, Isa { sve_bytes: 0, ..here }];
    }
    let no_512 = Isa { avx512: false, ..here };
    let sse = Isa { avx: false, avx2: false, fma: false, avx512: false, ..here };
    let apart = Isa { fma_delays_stores: !here.fma_delays_stores, ..here };
    vec![here, no_fma, apart, no_512, sse, Isa { sse4a: false, ..sse }, Isa { sse4a: false, ..here }]
}

/// Who starts these tests in an emulator says what length of SVE registers they are to be about.
#[test]
fn registers_are_as_long_as_the_emulator_was_asked_for() {
    if let Ok(asked) = std::env::var("MEMBOUND_SVE_BYTES") {
        assert_eq!(membound_measure::asm::detect().sve_bytes.to_string(), asked);
    }
}

/// Code for registers that are not there is not made; made all the same, it ends by a signal.
#[cfg(target_arch = "aarch64")]
#[test]
fn code_for_registers_that_are_not_there_is_refused() {
    let here = membound_measure::asm::detect();
    let wide = Variant { width: Width::W512, ..plain("triad") };
    let refused = assemble(&wide, Isa { sve_bytes: 0, ..here });
    assert_eq!(refused, Err(Unsupported::NotOnThisProcessor("SVE with registers of 512 bits or more")));
    if here.sve_bytes == 0 {
        let code = Executable::new(&assemble(&wide, Isa { sve_bytes: 64, ..here }).unwrap()).unwrap();
        // SAFETY: the prologue's first instruction of SVE ends the call; nothing is read but the call itself.
        let outcome = unsafe { code.run(&mut Call::empty(1)) };
        assert_eq!(outcome.unwrap_err().signal, libc::SIGILL);
    }
}

/// A program may be given shorter registers than the plan that it runs was made with.
#[cfg(target_arch = "aarch64")]
#[test]
fn registers_that_became_shorter_are_seen() {
    // Linux, include/uapi/linux/prctl.h; the length is this thread's alone.
    const PR_SVE_SET_VL: libc::c_int = 50;
    let shortened = std::thread::spawn(|| {
        let before = membound_measure::asm::detect();
        // SAFETY: this thread has no vector in use across the call.
        unsafe { libc::prctl(PR_SVE_SET_VL, 16) };
        (before, membound_measure::asm::detect())
    });
    let (before, after) = shortened.join().unwrap();
    assert_eq!(after.sve_bytes, before.sve_bytes.min(16));
    let wide = Variant { width: Width::W512, ..plain("triad") };
    assert!(matches!(assemble(&wide, after), Err(Unsupported::NotOnThisProcessor(_))));
    assert_eq!(assemble(&wide, before).is_ok(), before.sve_bytes >= 64);
}

/// Executors plan with the length that registers have at the start: another one is an answer, and no wrong figure.
#[cfg(target_arch = "aarch64")]
#[test]
fn registers_that_become_shorter_during_a_run_are_an_answer() {
    use membound_core::case::{USUAL_MEMORY, steady};
    use membound_core::record::Outcome;
    use membound_core::units::Bytes;
    use membound_measure::executor::native::Native;
    use membound_measure::memory::places::Places;
    use membound_measure::schedule::{Executor, Quota};
    const PR_SVE_SET_VL: libc::c_int = 50;
    let before = membound_measure::asm::detect().sve_bytes;
    let visited = std::thread::spawn(|| {
        let cpu = membound_measure::machine::live().usable_cpus().first().unwrap();
        let case = steady("triad", Width::W256, StoreKind::Regular, USUAL_MEMORY, vec![cpu], Bytes::kib(64));
        let mut native = Native::new(&[], Places::default(), false).unwrap();
        let quota = Quota {
            least_samples: 1,
            most_samples: 1,
            time: std::time::Duration::from_millis(1),
            interrupted: &|| false,
        };
        let first = native.visit(&case, &quota);
        // SAFETY: this thread has no vector in use across the call.
        unsafe { libc::prctl(PR_SVE_SET_VL, 16) };
        (first, native.visit(&case, &quota))
    });
    let (first, second) = visited.join().unwrap();
    assert!(matches!(first, Outcome::Measured(_)), "{first:?}");
    match second {
        Outcome::Measured(_) => assert!(before <= 16, "{before}"),
        Outcome::Unavailable { reason } => assert!(before > 16 && reason.contains("measure again"), "{reason}"),
        other => panic!("{other:?}"),
    }
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
    fn new(formula: &Formula, element: Element, elements: usize, shifts: &[usize]) -> Self {
        let bytes = elements * element.bytes() as usize;
        let mut arrays = Arrays { buffers: Vec::new(), starts: Vec::new(), element, bytes };
        for (stream, role) in formula.streams.iter().map(|stream| stream.role).enumerate() {
            let mut buffer = vec![CANARY; bytes + 2 * GUARD + 128];
            let start = buffer[GUARD..].as_ptr().align_offset(64) + GUARD + shifts[stream % shifts.len()];
            let places = || (0..elements).map(|i| index(formula.order, i, elements) as f64).collect::<Vec<_>>();
            let numbers: Vec<f64> = (0..elements).map(|i| value(stream, i)).collect();
            let contents = if role == Role::Index { element.encode_index(&places()) } else { element.encode(&numbers) };
            buffer[start..start + bytes].copy_from_slice(&contents);
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

    fn assert_guards_untouched(&self, what: impl Fn() -> String) {
        for (buffer, &start) in self.buffers.iter().zip(&self.starts) {
            let outside = buffer[..start].iter().chain(&buffer[start + self.bytes..]);
            assert!(outside.copied().all(|byte| byte == CANARY), "{} wrote outside its array", what());
        }
    }
}

/// A variant's machine code, checked at any length and alignment. It is mapped once: an emulator translates fresh code anew,
/// and that takes most of the time.
struct Subject<'a> {
    variant: &'a Variant,
    isa: Isa,
    formula: Formula,
    code: MachineCode,
    executable: Executable,
}

impl<'a> Subject<'a> {
    /// `None` where the instruction set has no such variant.
    fn new(kernel: &Kernel, variant: &'a Variant, isa: Isa) -> Option<Self> {
        let code = match assemble(variant, isa) {
            Ok(code) => code,
            Err(Unsupported::Assembler(fault)) => panic!("{variant}: {fault}"),
            Err(_) => return None,
        };
        let executable = Executable::new(&code).unwrap();
        Some(Subject { variant, isa, formula: kernel.formula(), code, executable })
    }

    /// One for each different machine code of the variant.
    fn all(kernel: &Kernel, variant: &'a Variant) -> Vec<Self> {
        let mut subjects: Vec<Self> = Vec::new();
        for subject in isas().into_iter().filter_map(|isa| Subject::new(kernel, variant, isa)) {
            if subjects.iter().all(|other| other.code != subject.code) {
                subjects.push(subject);
            }
        }
        subjects
    }

    fn agrees_with_its_twin(&self, rows: usize, columns: usize, shifts: &[usize]) {
        let (variant, formula, isa) = (self.variant, &self.formula, self.isa);
        let what = || format!("{variant} x{} {isa:?} {rows}x{columns} at {shifts:?}", variant.unroll);
        let elements = rows * columns;
        let mut arrays = Arrays::new(formula, variant.element, elements, shifts);
        let contents = |(stream, role): (usize, Role)| match role {
            Role::Index => (0..elements).map(|i| index(formula.order, i, elements) as f64).collect(),
            _ => arrays.values(stream),
        };
        let mut streams: Vec<Vec<f64>> = formula.streams.iter().map(|s| s.role).enumerate().map(contents).collect();
        let twin = Twin::new(formula, variant.element, 3.0, isa);
        let answer = twin.pass(&mut streams, rows, columns);

        let mut call = Call::new(formula, variant, &arrays.addresses(), rows as u64, columns as u64);
        call.scalar = 3.0;
        // Repeating changes nothing unless a stream is changed in place.
        call.repetitions = if formula.is_in_place() { 1 } else { 3 };
        let margins = formula.margins();
        let inner = (rows as u64 - margins.above - margins.below) * (columns as u64 - margins.left - margins.right);
        assert_eq!(call.elements(variant), inner, "{}", what());
        // Each addition goes to one of so many partial sums.
        let (sums, additions) = (8 * variant.width.elements(variant.element), call.most_additions(formula, variant));
        assert!(formula.sums.is_empty() || additions * sums * call.rows >= inner, "{}", what());
        // SAFETY: the addresses are those of live arrays of rows x columns elements, borrowed by nobody else; indices are
        // below that.
        unsafe { self.executable.run(&mut call) }.unwrap();
        for (stream, expect) in
            streams.iter().enumerate().filter(|(stream, _)| formula.streams[*stream].role != Role::Index)
        {
            for (i, (found, expect)) in arrays.values(stream).iter().zip(expect).enumerate() {
                assert!(is_same(*found, *expect), "{}: stream {stream}, element {i} is {found}, not {expect}", what());
            }
        }
        // Sums that leave the range of elements depend on the order of additions.
        let is_ordinary = answer.sums.iter().all(|total| total.magnitude < 1e30);
        if is_ordinary {
            let checked = answer.check(&call.results(formula, variant), variant.element, additions);
            assert_eq!(checked, Ok(()), "{}", what());
        }
        arrays.assert_guards_untouched(what);
    }
}

/// One instruction set, length and alignment.
fn check_against_twin(kernel: &Kernel, variant: &Variant, isa: Isa, rows: usize, columns: usize, shifts: &[usize]) {
    if let Some(subject) = Subject::new(kernel, variant, isa) {
        subject.agrees_with_its_twin(rows, columns, shifts);
    }
}

#[test]
fn all_variants_agree_with_their_twins_at_awkward_lengths() {
    for kernel in CATALOG {
        for variant in variants(kernel, 4) {
            for subject in Subject::all(kernel, &variant) {
                for length in [1, 2, 3, 7, 8, 9, 31, 32, 33, 64, 100, 257] {
                    let (rows, columns) = if subject.formula.grid { (5, length + 2) } else { (1, length) };
                    for shift in [0, 8, 4, 5] {
                        subject.agrees_with_its_twin(rows, columns, &[shift]);
                    }
                }
            }
        }
    }
}

/// Arrays of many blocks of zeros, at any alignment: what lies before and after whole blocks, too.
#[cfg(target_arch = "aarch64")]
#[test]
fn blocks_of_zeros_agree_with_their_twin() {
    let block = membound_measure::asm::detect().zva_bytes as usize;
    assert!(block >= 16, "the emulator lets programs use dc zva");
    for (text, element, unroll) in [("init", Element::Double, 1), ("a[i] = 0", Element::Float, 4)] {
        let variant = Variant { element, width: Width::Scalar, store: StoreKind::Zero, unroll, ..plain(text) };
        let kernel = Kernel::find(text).unwrap();
        let subject = Subject::new(kernel, &variant, membound_measure::asm::detect()).unwrap();
        let elements = block / element.bytes() as usize;
        for length in [1, elements - 1, elements, elements + 1, 2 * elements + 3, 9 * elements, 17 * elements - 1] {
            for shift in [0, 8, 4, 56, 5] {
                subject.agrees_with_its_twin(1, length, &[shift]);
            }
        }
        let call = Call::new(&kernel.formula(), &variant, &[block as u64 - 8], 1, 5 * elements as u64);
        let of_blocks = if unroll == 1 { call.blocks } else { 4 * call.blocks + call.vectors };
        assert_eq!((call.peel, of_blocks), (8 / element.bytes(), 4), "{call:?}");
    }
}

/// Whether this processor has instructions for strings of bytes; else the test skips.
fn has_strings() -> bool {
    let has = cfg!(target_arch = "x86_64") || membound_measure::asm::detect().mops;
    if !has {
        crate::common::skip::skip("no FEAT_MOPS in this emulator or processor");
    }
    has
}

/// Copies and zeros by the processor's own instructions, at any length and alignment.
#[cfg(target_arch = "aarch64")]
#[test]
fn strings_agree_with_their_twins() {
    if !has_strings() {
        return;
    }
    for (text, element) in [("copy", Element::Double), ("init", Element::Double), ("a[i] = b[i]", Element::Float)] {
        let variant = Variant { element, width: Width::Scalar, store: StoreKind::Rep, ..plain(text) };
        let subject = Subject::new(Kernel::find(text).unwrap(), &variant, membound_measure::asm::detect()).unwrap();
        for length in [1, 2, 3, 7, 64, 100, 4099] {
            for shifts in [[0, 0], [8, 8], [4, 12], [5, 5], [0, 5], [63, 16]] {
                subject.agrees_with_its_twin(1, length, &shifts);
            }
        }
    }
}

/// Bytes of any length, from and to any alignment; nothing before and after them.
#[test]
fn bytes_are_copied_and_filled_and_no_others() {
    use membound_measure::bench::over_bytes;
    if !has_strings() {
        return;
    }
    let code = |fills| Executable::new(&membound_measure::asm::strings(fills).unwrap()).unwrap();
    let (copy, fill) = (code(false), code(true));
    let from: Vec<u8> = (0..20_011u32).map(|at| (at * 7 + at / 251) as u8).collect();
    for length in (0..70).chain([131, 255, 256, 257, 4095, 4096, 4097, 20_000]) {
        for (first, source) in [(0, 0), (0, 1), (3, 0), (5, 11), (64, 8)] {
            let filled = vec![0xf0 | source as u8; length];
            let copied = &from[source..source + length];
            for (code, source, expect) in
                [(&copy, Source::Bytes(copied), copied), (&fill, Source::Byte(0xf0 | source as u8), &filled)]
            {
                let untouched = vec![0xee_u8; 128 + length];
                let mut to = untouched.clone();
                over_bytes(code, &mut to[first..first + length], source, 1 + length as u64 % 3).unwrap();
                let (before, after) = (&untouched[..first], &untouched[first + length..]);
                assert!(to == [before, expect, after].concat(), "{length} bytes at {first}: {to:02x?}");
            }
        }
    }
}

/// What instructions for strings find missing half-way ends the call as any other fault does.
#[test]
fn strings_that_meet_unmapped_memory_are_a_fault() {
    if !has_strings() {
        return;
    }
    for text in ["copy", "init"] {
        let (formula, variant) = (Kernel::find(text).unwrap().formula(), plain(text));
        let variant = Variant { width: Width::Scalar, store: StoreKind::Rep, ..variant };
        let code = Executable::new(&assemble(&variant, membound_measure::asm::detect()).unwrap()).unwrap();
        let mut call = Call::new(&formula, &variant, &[8, 8], 1, 100_000);
        for _ in 0..3 {
            // SAFETY: page 0 is never mapped; the call must end in a fault that is caught.
            let fault = unsafe { code.run(&mut call) }.unwrap_err();
            assert!(fault.to_string().contains("an address that is not mapped"), "{fault}");
        }
    }
}

/// Instructions that are not there end the call by a signal, and are not made.
#[cfg(target_arch = "aarch64")]
#[test]
fn string_instructions_that_are_not_there_are_refused() {
    let here = membound_measure::asm::detect();
    let copy = Variant { width: Width::Scalar, store: StoreKind::Rep, ..plain("copy") };
    let refused = assemble(&copy, Isa { mops: false, ..here }).unwrap_err();
    assert!(refused.to_string().contains("FEAT_MOPS"), "{refused}");
    if !here.mops {
        let code = Executable::new(&assemble(&copy, Isa { mops: true, ..here }).unwrap()).unwrap();
        // SAFETY: the first of these instructions ends the call, which has nothing to copy.
        let outcome = unsafe { code.run(&mut Call::empty(1)) };
        assert_eq!(outcome.unwrap_err().signal, libc::SIGILL);
    }
}

/// The code for an instruction that writes whole lines. `None` for another instruction set's, and where this processor lacks
/// it, which skips.
fn line_code(by: LineStore) -> Option<LineCode> {
    match LineCode::new(by) {
        Ok(code) => Some(code),
        Err(NoVisit::Unsupported(why)) => {
            if let Unsupported::NotOnThisProcessor(_) = *why {
                crate::common::skip::skip(why.to_string());
            }
            None
        }
        Err(other) => panic!("{by:?}: {other}"),
    }
}

/// Whole lines and what lies beside them, from and to any alignment; nothing before and after them.
#[test]
fn lines_are_copied_and_filled_and_no_other_bytes() {
    let here = membound_measure::asm::detect();
    let from: Vec<u8> = (0..20_100u32).map(|at| (at * 7 + at / 251) as u8).collect();
    for (by, code) in LineStore::ALL.into_iter().filter_map(|by| Some((by, line_code(by)?))) {
        let line = if by == LineStore::DcZva { here.zva_bytes as usize } else { 64 };
        for length in (0..=3 * line).step_by(7).chain([line, 4 * line, 5 * line + 1, 9 * line - 1, 20_000]) {
            for (first, source) in [(0, 0), (0, 1), (3, 0), (5, 11), (64, 8), (63, 64)] {
                let copied = &from[source..source + length];
                let sources: &[Source<'_>] = match by.copies() {
                    true => &[Source::Bytes(copied), Source::Byte(0xf0 | source as u8)],
                    false => &[Source::Byte(0)],
                };
                for &source in sources {
                    lines_are_written(&code, line, (first, length), source);
                }
            }
        }
    }
}

/// So many bytes from `first` on, in memory of whole lines.
fn lines_are_written(code: &LineCode, line: usize, (first, length): (usize, usize), source: Source<'_>) {
    let mut memory = vec![0xee_u8; 2 * line + first + length + line];
    let start = memory.as_ptr().align_offset(line) + first;
    let mut expect = memory.clone();
    let outcome = code.over(&mut memory[start..start + length], source, 1 + length as u64 % 3);
    let has_line = first.next_multiple_of(line) + line <= first + length;
    assert_eq!(outcome.is_ok(), has_line, "{length} bytes at {first}: {outcome:?}");
    match source {
        _ if !has_line => {}
        Source::Bytes(from) => expect[start..start + length].copy_from_slice(from),
        Source::Byte(byte) => expect[start..start + length].fill(byte),
    }
    assert!(memory == expect, "{length} bytes at {first}");
}

#[test]
fn lines_that_meet_unmapped_memory_are_a_fault() {
    for by in LineStore::ALL {
        if line_code(by).is_none() {
            continue;
        }
        let code = Executable::new(&lines(by, membound_measure::asm::detect()).unwrap()).unwrap();
        let mut call = Call::empty(1);
        (call.pointers[0], call.pointers[1], call.blocks) = (64, 128, 1);
        for _ in 0..3 {
            // SAFETY: page 0 is never mapped; the call must end in a fault that is caught.
            let fault = unsafe { code.run(&mut call) }.unwrap_err();
            assert!(fault.to_string().contains("an address that is not mapped"), "{by:?}: {fault}");
        }
    }
}

/// Another instruction set's, or what this processor lacks; made all the same, it ends the call as any fault does.
#[test]
fn instructions_for_lines_that_are_not_there_are_refused() {
    let here = membound_measure::asm::detect();
    let none = Isa { movdir64b: false, clzero: false, zva_bytes: 0, ..here };
    for (by, name) in LineStore::ALL.into_iter().zip(["movdir64b", "clzero", "dc zva"]) {
        let refused = lines(by, none).unwrap_err().to_string();
        assert!(refused.to_lowercase().contains(name), "{refused}");
        let lacks = matches!(lines(by, here), Err(Unsupported::NotOnThisProcessor(_)));
        if lacks && by != LineStore::DcZva {
            let code = lines(by, Isa { movdir64b: true, clzero: true, ..here }).unwrap();
            let mut line = [0u64; 16];
            let mut call = Call::empty(1);
            let address = (line.as_mut_ptr() as u64).next_multiple_of(64);
            (call.pointers[0], call.pointers[1], call.vectors) = (address, address, 1);
            // SAFETY: the line at the address lies in `line`, which nobody else uses; the call is to end before it is written.
            let ran = unsafe { Executable::new(&code).unwrap().run(&mut call) };
            match ran.map_err(|fault| fault.to_string()) {
                // A hypervisor may hide what the processor has (movdir64b, on an Emerald Rapids guest): then it does its work.
                Ok(()) => assert!(is_virtual() && line == [0; 16], "{by:?} ran: {line:?}"),
                Err(fault) => assert!(fault.contains("an instruction this processor does not have"), "{by:?}: {fault}"),
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn is_virtual() -> bool {
    raw_cpuid::CpuId::new().get_feature_info().is_some_and(|features| features.has_hypervisor())
}

#[cfg(not(target_arch = "x86_64"))]
fn is_virtual() -> bool {
    false
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

/// An expression over streams at several offsets, gathered elements, scalars and numbers, zeros among them: quotients and
/// roots of what is not ordinary must agree bit for bit, too.
fn expression() -> impl Strategy<Value = String> {
    let leaves = ["b[i]", "b[i-1]", "c[i+2]", "d[i-3]", "e[k[i+1]]", "s", "t", "0.5", "3", "-1.25"];
    let leaf = prop::sample::select(leaves.to_vec()).prop_map(String::from);
    leaf.prop_recursive(4, 12, 3, |inner| {
        let two = || (inner.clone(), inner.clone());
        prop_oneof![
            (two(), prop::sample::select(vec!["+", "-", "*", "/"]))
                .prop_map(|((x, y), sign)| format!("({x}) {sign} ({y})")),
            (two(), prop::sample::select(vec!["min", "max"])).prop_map(|((x, y), name)| format!("{name}({x}, {y})")),
            (inner.clone(), prop::sample::select(vec!["sqrt", "abs", "-"]))
                .prop_map(|(x, name)| format!("{name}({x})")),
            (two(), inner.clone()).prop_map(|((x, y), z)| format!("fma({x}, {y}, {z})")),
        ]
    })
}

/// Loops that store, add up, change a stream in place, or several of these.
fn any_loop() -> impl Strategy<Value = String> {
    let forms = [
        "a[i] = E",
        "a[i+2] = E",
        "a[i] += E",
        "x += b[i]*(E)",
        "x += E + b[i]; y += c[i]",
        "b[i-2]*(E)",
        "a[i] = E; f[i] = b[i]*(E)",
        "a[i-1] = E; x += c[i] - (E); x += d[i]",
        "f[i] = a[i]; a[i] = a[i]*0.5 + (E)",
    ];
    (prop::sample::select(forms.to_vec()), expression(), any::<bool>()).prop_map(|(form, text, sequential)| {
        let text = form.replace('E', &text);
        let order = if sequential && text.contains("k[") { " with sequential index" } else { "" };
        text + order
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn any_loop_of_ones_own_is_right(
        text in any_loop(), pick in any::<prop::sample::Index>(), isa in any::<prop::sample::Index>(),
        unroll in 1u32..17, length in 1usize..200, shifts in prop::collection::vec(0usize..16, 4),
    ) {
        // Elements lie at multiples of their size or not at all.
        let Ok(kernel) = Kernel::find(&text) else { return Ok(()) };
        let (all, isas) = (variants(kernel, unroll), isas());
        let columns = length + kernel.least_elements() as usize - 1;
        let shifts: Vec<usize> = shifts.iter().map(|shift| shift * 8).collect();
        check_against_twin(kernel, &all[pick.index(all.len())], isas[isa.index(isas.len())], 1, columns, &shifts);
    }
}

/// Every width, store and load kind of loops that are likely to be asked for.
#[test]
fn loops_of_ones_own_agree_with_their_twins_at_awkward_lengths() {
    for text in [
        "y[i] = alpha*x[i] + beta*z[i]",
        "a[i] = b[i+1] - 2*b[i] + b[i-1]",
        "a[i] = sqrt(b[i]*b[i] + c[i]*c[i])/s",
        "a[i] = -min(abs(b[i]), max(c[i], 0.5))",
        "a[i] = fma(b[i], c[i], fma(d[i], e[i], f[i]))",
        "a[i+3] = b[i]; c[i-5] = b[i]*s",
        "x += b[i]*c[i]; y += b[i]*b[i]; z += c[i]",
        "a[i] = b[k[i]]",
        "a[i] += v[i]*x[col[i]] with sequential index",
        "x += v[i]*u[k[i+1]]",
    ] {
        let kernel = Kernel::find(text).unwrap();
        for variant in variants(kernel, 4) {
            for subject in Subject::all(kernel, &variant) {
                for length in [1, 3, 8, 33, 100] {
                    let columns = length + kernel.least_elements() as usize - 1;
                    subject.agrees_with_its_twin(1, columns, &[0, 8]);
                }
            }
        }
    }
}

/// The same tree is the same machine code, whatever streams and scalars are called.
#[test]
fn a_users_loop_is_the_built_in_kernels_machine_code() {
    for (name, texts) in [
        ("triad", vec!["a[i] = b[i] + s*c[i]", "out[i]=(x[i])+alpha*y_2[i]", "c[i] = a[i] + s*b[i];"]),
        ("daxpy", vec!["a[i] += s*b[i]", "y[i] = y[i] + alpha*x[i]"]),
        ("dot", vec!["sum += b[i]*c[i]", "r += x[i] * y[i]"]),
        ("schoenauer", vec!["p[i] = q[i] + r[i]*t[i]"]),
    ] {
        for text in texts {
            let own = Kernel::find(text).unwrap();
            assert_ne!(own.name, name);
            for isa in isas() {
                for variant in variants(Kernel::find(name).unwrap(), 8) {
                    let code = |kernel: &str| assemble(&Variant { kernel: kernel.into(), ..variant.clone() }, isa);
                    assert_eq!(code(own.name), code(name), "{text} {variant} {isa:?}");
                }
            }
        }
    }
    let code =
        |kernel: &str| assemble(&plain(Kernel::find(kernel).unwrap().name), membound_measure::asm::detect()).unwrap();
    assert_ne!(code("a[i] = s*b[i] - c[i]"), code("triad"));
}

#[test]
fn loops_that_need_too_many_registers_are_refused() {
    let of = |text: &str| assemble(&plain(Kernel::find(text).unwrap().name), membound_measure::asm::detect()).map(drop);
    // Beside one for the scalar.
    let most = if cfg!(target_arch = "x86_64") { 15 } else { 14 };
    let nested = |depth: usize| format!("a[i] = {}b[i]{}", "(b[i]/".repeat(depth), ")".repeat(depth));
    assert_eq!(of(&nested(most - 1)), Ok(()));
    let fault = of(&nested(most)).unwrap_err().to_string();
    assert!(fault.contains("vector registers than there are (1"), "{fault}");
    let numbers = |count: usize| (1..=count).map(|n| format!(" + b[i]*{n}")).collect::<String>();
    assert_eq!(of(&format!("a[i] = b[i]{}", numbers(most - 3))), Ok(()));
    assert!(of(&format!("a[i] = b[i]{}", numbers(16))).is_err());
}

/// As many passes as there are whole numbers, and some more: what the check of timed passes relies on.
#[test]
fn counting_in_floats_is_exact_and_comes_to_rest() {
    let most = Element::Float.exact_up_to();
    let kernel = Kernel::find("daxpy").unwrap();
    for isa in [
        membound_measure::asm::detect(),
        Isa { avx: false, avx2: false, fma: false, avx512: false, ..membound_measure::asm::detect() },
    ] {
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
#[cfg(target_arch = "x86_64")]
#[test]
fn the_load_kernels_main_loop_reads_every_byte_once() {
    for &width in &membound_measure::asm::detect().widths() {
        let variant = Variant { width, unroll: 8, ..plain("load") };
        let code = assemble(&variant, membound_measure::asm::detect()).unwrap();
        assert_eq!(code.main_loop % 64, 0);
        let mut read = Vec::new();
        let main_loop = &code.bytes[code.main_loop..];
        for instruction in &mut Decoder::new(64, main_loop, DecoderOptions::NONE) {
            if instruction.op0_kind() == OpKind::NearBranch64 {
                break;
            }
            if let Some(operand) = instruction.op_kinds().position(|kind| kind == OpKind::Memory) {
                assert!(operand > 0, "{width}: an instruction's first operand is what it writes");
                let start = instruction.memory_displacement64() as usize;
                read.extend(start..start + instruction.memory_size().size());
            }
        }
        assert_eq!(read, (0..8 * width.bytes(variant.element) as usize).collect::<Vec<_>>(), "{width}");
    }
}

#[test]
fn a_fault_ends_the_call_and_not_the_process() {
    let isa = membound_measure::asm::detect();
    let kernel = Kernel::find("copy").unwrap();
    for width in isa.widths() {
        let variant = Variant { width, ..plain("copy") };
        let executable = Executable::new(&assemble(&variant, isa).unwrap()).unwrap();
        let mut call = Call::new(&kernel.formula(), &variant, &[8, 8], 1, 1000);
        for _ in 0..3 {
            // SAFETY: page 0 is never mapped; the call must end in a fault that is caught.
            let fault = unsafe { executable.run(&mut call) }.unwrap_err();
            assert!(fault.to_string().contains("an address that is not mapped"), "{fault}");
        }
    }
}

/// Arrays that end where memory does, at any length and unrolling.
#[cfg(unix)]
#[test]
fn nothing_is_accessed_beyond_the_end_of_arrays() {
    const PAGES: usize = 1 << 16;
    let map = || {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: fresh memory, the second half of which is then taken away; it stays mapped until the process ends.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), 2 * PAGES, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.byte_add(PAGES), PAGES, libc::PROT_NONE), 0);
            start as u64 + PAGES as u64
        }
    };
    let ends = [map(), map(), map()];
    for (name, unroll) in [("copy", 1), ("copy", 4), ("triad", 4), ("store", 1)] {
        let kernel = Kernel::find(name).unwrap();
        for variant in variants(kernel, unroll) {
            for subject in Subject::all(kernel, &variant) {
                for length in (1..40).chain([512]) {
                    let addresses = ends.map(|end| end - length * variant.element.bytes());
                    let mut call = Call::new(&subject.formula, &variant, &addresses, 1, length);
                    assert_eq!(call.elements(&variant), length);
                    // SAFETY: the addresses are those of memory of this test alone, which ends where the arrays do; beyond it
                    // accesses fault, and the call ends.
                    let outcome = unsafe { subject.executable.run(&mut call) };
                    assert_eq!(outcome, Ok(()), "{variant} x{unroll}: {length} elements");
                }
            }
        }
    }
}

/// Loads at an offset and by an index stay regular, so that they are no figure of non-temporal ones.
#[test]
fn kernels_without_loads_that_may_be_non_temporal_are_refused() {
    let isa = Isa { avx: true, avx2: true, ..membound_measure::asm::detect() };
    let of = |text: &str| assemble(&Variant { load: LoadKind::Nt, width: Width::W256, ..plain(text) }, isa);
    for text in ["a[i] = b[i+1]", "t += x[k[i]]"] {
        let fault = of(text).unwrap_err().to_string();
        assert!(fault.contains("at an offset or by an index"), "{text}: {fault}");
    }
    assert!(of("a[i] = b[i+1] + b[i]").is_ok() && of("copy").is_ok());
}

fn plain(kernel: &str) -> Variant {
    Variant { unroll: 4, ..usual(kernel, Width::W128, StoreKind::Regular) }
}

fn load_code() -> MachineCode {
    assemble(&plain("load"), membound_measure::asm::detect()).unwrap()
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
    // ud2, and udf #0.
    let undefined: &[u8] = if cfg!(target_arch = "x86_64") { &[0x0f, 0x0b] } else { &[0; 4] };
    code.bytes[at..at + undefined.len()].copy_from_slice(undefined);
    let data = vec![0f64; 1000];
    assert!(load_fault(&code, data.as_ptr() as u64, 1000).contains("an instruction this processor does not have"));
}

#[cfg(unix)]
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
