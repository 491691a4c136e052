//! Kernels as x86-64 machine code, generated from a row's formula.
//!
//! ```text
//! if a pass is whole blocks of plain arrays: for each repetition, `blocks` times: `unroll` vectors; else
//! for each repetition                      (sums start from 0 again)
//!   for each row                           (plain arrays have one)
//!     pointers = call.pointers + row * row_bytes
//!     peel    times: one element           (until an aligned store may be used)
//!     blocks  times: `unroll` vectors
//!     vectors times: one vector
//!     tail    times: one element
//! sfence, if stores went around the cache  (inside the timed part: until then nothing is in memory)
//! ```
//!
//! The trip counts come ready from [`Call`](super::code::Call), so that alignment is decided in plain Rust and a pass
//! over a small working set costs a handful of instructions beside the loop itself. Each pointer is bumped on its own:
//! indexed addresses cost a port on some Intel cores. The main loop starts on a cache line.

use iced_x86::code_asm::*;
use iced_x86::{
    Code, Decoder, DecoderOptions, Formatter, IcedError, Instruction, IntelFormatter, MemoryOperand, Register,
};

use super::code::{Call, MachineCode, partial_sums};
use super::formula::{Access, Expr, Formula, Function, Operation, Role, Target};
use super::{Element, LoadKind, StoreKind, Unsupported, Variant, Width};

/// The instruction sets that decide which variants exist. Read with CPUID and XCR0: a set that the operating system
/// does not save is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa {
    /// 256-bit vectors and three-operand forms.
    pub avx: bool,
    /// 256-bit movntdqa.
    pub avx2: bool,
    /// Fused multiply-add.
    pub fma: bool,
    /// 512-bit vectors.
    pub avx512: bool,
    /// movntdqa.
    pub sse41: bool,
    /// movntsd and movntss: a non-temporal store of one element.
    pub sse4a: bool,
}

impl Isa {
    /// What this processor has.
    pub fn detect() -> Self {
        Isa {
            avx: is_x86_feature_detected!("avx"),
            avx2: is_x86_feature_detected!("avx2"),
            fma: is_x86_feature_detected!("fma"),
            avx512: is_x86_feature_detected!("avx512f"),
            sse41: is_x86_feature_detected!("sse4.1"),
            sse4a: is_x86_feature_detected!("sse4a"),
        }
    }

    /// The widths there are, narrow first.
    pub fn widths(self) -> Vec<Width> {
        Width::ALL.iter().copied().filter(|&w| self.has_width(w)).collect()
    }

    fn has_width(self, width: Width) -> bool {
        match width {
            Width::Scalar | Width::W128 => true,
            Width::W256 => self.avx,
            Width::W512 => self.avx512,
        }
    }
}

/// Bytes of a cache line: main loops start on one.
pub(super) const LINE: usize = 64;

/// Register of the scalars, the last that every width has; other constants lie below it.
const SCALAR: usize = 15;
/// Registers that hold addresses.
const POINTERS: [AsmRegister64; 9] = [rbx, rcx, rdx, rsi, r8, r9, r10, r11, rax];

/// Generates the machine code of `variant`.
pub fn assemble(variant: &Variant, isa: Isa) -> Result<MachineCode, Unsupported> {
    let formula = super::Kernel::find(&variant.kernel)?.formula();
    check(&formula, variant, isa)?;
    // A first pass finds how far the main loop is from a line boundary, a second one pads it there. The padding lies
    // before everything that is repeated: it costs nothing in a pass, and no jump crosses it.
    let mut code = Generator::new(&formula, variant, isa, 0)?.generate()?;
    let beyond = code.main_loop % LINE;
    if beyond > 0 {
        code = Generator::new(&formula, variant, isa, LINE - beyond)?.generate()?;
    }
    Ok(code)
}

fn check(formula: &Formula, variant: &Variant, isa: Isa) -> Result<(), Unsupported> {
    use Unsupported::{NoSuchInstruction as Never, NotOnThisProcessor as Lacks};
    if !isa.has_width(variant.width) {
        return Err(Lacks(if variant.width == Width::W512 { "AVX-512" } else { "AVX" }));
    }
    let stores = formula.store().is_some();
    match variant.store {
        StoreKind::Regular => {}
        _ if !stores => return Err(Never("this kernel stores nothing, so it has no store kind but regular")),
        StoreKind::NtMasked if variant.width > Width::W128 => {
            return Err(Never("masked non-temporal stores (maskmovdqu) are 128 bits wide"));
        }
        StoreKind::Rep if !is_copy_or_fill(formula) => {
            return Err(Never("rep movs and rep stos can only copy and fill"));
        }
        StoreKind::Rep if variant.width != Width::Scalar => {
            return Err(Never("rep movs and rep stos have no width; use --width scalar"));
        }
        StoreKind::Rep if variant.load == LoadKind::Nt => {
            return Err(Never("rep movs has no non-temporal load"));
        }
        _ => {}
    }
    if variant.load == LoadKind::Nt {
        match variant.width {
            _ if formula.loads().is_empty() => return Err(Never("this kernel loads nothing")),
            Width::Scalar => return Err(Never("there is no scalar non-temporal load")),
            Width::W128 if !isa.sse41 => return Err(Lacks("SSE4.1")),
            Width::W256 if !isa.avx2 => return Err(Lacks("AVX2")),
            _ => {}
        }
    }
    if formula.gathers() && variant.width == Width::W128 && !isa.avx2 {
        return Err(Lacks("AVX2, which gathers need; use --width scalar"));
    }
    if formula.gathers() && variant.width == Width::W256 && !isa.avx2 {
        return Err(Lacks("AVX2, which gathers need"));
    }
    if !(1..=32).contains(&variant.unroll) {
        return Err(Never("unroll must be from 1 to 32"));
    }
    Ok(())
}

/// Whether it is one array copied, element for element, or filled: what string instructions can do.
fn is_copy_or_fill(formula: &Formula) -> bool {
    let margins = formula.margins();
    match &formula.statements[..] {
        [statement] if margins.least_columns() == 1 && !formula.grid && !formula.is_in_place() => {
            matches!(statement.value, Expr::Element(_) | Expr::Scalar(_) | Expr::Number(_))
        }
        _ => false,
    }
}

/// A dependent chain of additions: one link takes one core cycle on every x86 core, so timing it gives the true core
/// clock without counters. Register plus register: some cores fold added constants while renaming.
/// Runs `repetitions` x [`Self::CHAIN_LINKS`](CHAIN_LINKS) links.
pub fn core_clock_chain() -> Result<MachineCode, Unsupported> {
    let build = || -> Result<MachineCode, IcedError> {
        let mut asm = CodeAssembler::new(64)?;
        let (mut again, mut fault_exit) = (asm.create_label(), asm.create_label());
        prologue(&mut asm)?;
        asm.mov(ecx, 1)?;
        asm.set_label(&mut again)?;
        for _ in 0..CHAIN_LINKS {
            asm.add(rax, rcx)?;
        }
        asm.dec(r14)?;
        asm.jnz(again)?;
        epilogue(&mut asm, &mut fault_exit, false)?;
        finish(&mut asm, again, fault_exit)
    };
    build().map_err(|e| Unsupported::Assembler(e.to_string()))
}

/// Additions in one trip of [`core_clock_chain`].
pub const CHAIN_LINKS: u64 = 100;

/// The instructions of `code`, decoded from its bytes, one a line: offset, bytes, text. The main loop is marked.
pub fn listing(code: &MachineCode) -> String {
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_branch_leading_zeros(false);
    let mut text = String::new();
    for instruction in &mut Decoder::new(64, &code.bytes, DecoderOptions::NONE) {
        let (start, end) = (instruction.ip() as usize, instruction.next_ip() as usize);
        if start == code.main_loop {
            text.push_str("; main loop\n");
        }
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let bytes: String = code.bytes[start..end].iter().map(|b| format!("{b:02x}")).collect();
        text.push_str(&format!("{start:5x}  {bytes:<24}{line}\n"));
    }
    text
}

pub(super) fn prologue(asm: &mut CodeAssembler) -> Result<(), IcedError> {
    for register in [rbx, rbp, r12, r13, r14, r15] {
        asm.push(register)?;
    }
    asm.mov(r15, rdi)?;
    asm.mov(qword_ptr(r15 + Call::SAVED_STACK), rsp)?;
    asm.mov(r14, qword_ptr(r15 + Call::REPETITIONS))
}

/// A fault inside the kernel is continued at `fault_exit`, with r15 still (or again) at the call and the stack restored.
pub(super) fn epilogue(asm: &mut CodeAssembler, fault_exit: &mut CodeLabel, upper: bool) -> Result<(), IcedError> {
    asm.set_label(fault_exit)?;
    asm.mov(rsp, qword_ptr(r15 + Call::SAVED_STACK))?;
    if upper {
        asm.vzeroupper()?;
    }
    asm.cld()?;
    for register in [r15, r14, r13, r12, rbp, rbx] {
        asm.pop(register)?;
    }
    asm.ret()
}

pub(super) fn finish(
    asm: &mut CodeAssembler,
    main_loop: CodeLabel,
    fault_exit: CodeLabel,
) -> Result<MachineCode, IcedError> {
    let result = asm.assemble_options(0, iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
    Ok(MachineCode {
        main_loop: result.label_ip(&main_loop)? as usize,
        fault_exit: result.label_ip(&fault_exit)? as usize,
        bytes: result.inner.code_buffer,
    })
}

/// What a vector instruction does; with a width and an instruction set it names one opcode.
#[derive(Clone, Copy)]
enum Op {
    Load,
    LoadNt,
    Store,
    StoreNt,
    Arithmetic(Operation),
    Root,
    And,
    Xor,
    MultiplyAdd,
    Gather,
    Move,
    Clear,
}

/// The opcode table for doubles: scalar, 128, 256, 512 bits.
fn opcode(op: Op, width: Width, avx: bool) -> Code {
    use Code::*;
    let legacy = |scalar, packed| if width == Width::Scalar { scalar } else { packed };
    let vex = |row: [Code; 4]| row[width as usize];
    match (op, avx) {
        (Op::Load, false) => legacy(Movsd_xmm_xmmm64, Movupd_xmm_xmmm128),
        (Op::Load, true) => {
            vex([VEX_Vmovsd_xmm_m64, VEX_Vmovupd_xmm_xmmm128, VEX_Vmovupd_ymm_ymmm256, EVEX_Vmovupd_zmm_k1z_zmmm512])
        }
        (Op::LoadNt, false) => Movntdqa_xmm_m128,
        (Op::LoadNt, true) => {
            vex([VEX_Vmovsd_xmm_m64, VEX_Vmovntdqa_xmm_m128, VEX_Vmovntdqa_ymm_m256, EVEX_Vmovntdqa_zmm_m512])
        }
        (Op::Store, false) => legacy(Movsd_xmmm64_xmm, Movupd_xmmm128_xmm),
        (Op::Store, true) => {
            vex([VEX_Vmovsd_m64_xmm, VEX_Vmovupd_xmmm128_xmm, VEX_Vmovupd_ymmm256_ymm, EVEX_Vmovupd_zmmm512_k1z_zmm])
        }
        (Op::StoreNt, false) => legacy(Movntsd_m64_xmm, Movntpd_m128_xmm),
        (Op::StoreNt, true) => {
            vex([Movntsd_m64_xmm, VEX_Vmovntpd_m128_xmm, VEX_Vmovntpd_m256_ymm, EVEX_Vmovntpd_m512_zmm])
        }
        (Op::Arithmetic(Operation::Add), false) => legacy(Addsd_xmm_xmmm64, Addpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Subtract), false) => legacy(Subsd_xmm_xmmm64, Subpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Multiply), false) => legacy(Mulsd_xmm_xmmm64, Mulpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Add), true) => vex([
            VEX_Vaddsd_xmm_xmm_xmmm64,
            VEX_Vaddpd_xmm_xmm_xmmm128,
            VEX_Vaddpd_ymm_ymm_ymmm256,
            EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Arithmetic(Operation::Subtract), true) => vex([
            VEX_Vsubsd_xmm_xmm_xmmm64,
            VEX_Vsubpd_xmm_xmm_xmmm128,
            VEX_Vsubpd_ymm_ymm_ymmm256,
            EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Arithmetic(Operation::Multiply), true) => vex([
            VEX_Vmulsd_xmm_xmm_xmmm64,
            VEX_Vmulpd_xmm_xmm_xmmm128,
            VEX_Vmulpd_ymm_ymm_ymmm256,
            EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Arithmetic(Operation::Divide), false) => legacy(Divsd_xmm_xmmm64, Divpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Minimum), false) => legacy(Minsd_xmm_xmmm64, Minpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Maximum), false) => legacy(Maxsd_xmm_xmmm64, Maxpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Divide), true) => vex([
            VEX_Vdivsd_xmm_xmm_xmmm64,
            VEX_Vdivpd_xmm_xmm_xmmm128,
            VEX_Vdivpd_ymm_ymm_ymmm256,
            EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Arithmetic(Operation::Minimum), true) => vex([
            VEX_Vminsd_xmm_xmm_xmmm64,
            VEX_Vminpd_xmm_xmm_xmmm128,
            VEX_Vminpd_ymm_ymm_ymmm256,
            EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae,
        ]),
        (Op::Arithmetic(Operation::Maximum), true) => vex([
            VEX_Vmaxsd_xmm_xmm_xmmm64,
            VEX_Vmaxpd_xmm_xmm_xmmm128,
            VEX_Vmaxpd_ymm_ymm_ymmm256,
            EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae,
        ]),
        (Op::Root, false) => legacy(Sqrtsd_xmm_xmmm64, Sqrtpd_xmm_xmmm128),
        (Op::Root, true) => vex([
            VEX_Vsqrtsd_xmm_xmm_xmmm64,
            VEX_Vsqrtpd_xmm_xmmm128,
            VEX_Vsqrtpd_ymm_ymmm256,
            EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er,
        ]),
        // Bits know no elements, and single ones are handled as whole registers.
        (Op::And, false) => Andpd_xmm_xmmm128,
        (Op::Xor, false) => Xorpd_xmm_xmmm128,
        (Op::And, true) => vex([
            VEX_Vandpd_xmm_xmm_xmmm128,
            VEX_Vandpd_xmm_xmm_xmmm128,
            VEX_Vandpd_ymm_ymm_ymmm256,
            EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64,
        ]),
        (Op::Xor, true) => vex([
            VEX_Vxorpd_xmm_xmm_xmmm128,
            VEX_Vxorpd_xmm_xmm_xmmm128,
            VEX_Vxorpd_ymm_ymm_ymmm256,
            EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64,
        ]),
        (Op::Gather, _) => {
            vex([INVALID, VEX_Vgatherqpd_xmm_vm64x_xmm, VEX_Vgatherqpd_ymm_vm64y_ymm, EVEX_Vgatherqpd_zmm_k1_vm64z])
        }
        (Op::MultiplyAdd, _) => vex([
            VEX_Vfmadd231sd_xmm_xmm_xmmm64,
            VEX_Vfmadd231pd_xmm_xmm_xmmm128,
            VEX_Vfmadd231pd_ymm_ymm_ymmm256,
            EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Move, false) => Movapd_xmm_xmmm128,
        (Op::Move, true) => vex([
            VEX_Vmovapd_xmm_xmmm128,
            VEX_Vmovapd_xmm_xmmm128,
            VEX_Vmovapd_ymm_ymmm256,
            EVEX_Vmovapd_zmm_k1z_zmmm512,
        ]),
        (Op::Clear, false) => Xorpd_xmm_xmmm128,
        // A 128-bit VEX form clears the whole register.
        (Op::Clear, true) => VEX_Vxorpd_xmm_xmm_xmmm128,
    }
}

/// The opcodes of [`opcode`], each with its counterpart for floats.
const SINGLE_PRECISION: &[(Code, Code)] = {
    use Code::*;
    &[
        (Movsd_xmm_xmmm64, Movss_xmm_xmmm32),
        (Movupd_xmm_xmmm128, Movups_xmm_xmmm128),
        (VEX_Vmovsd_xmm_m64, VEX_Vmovss_xmm_m32),
        (VEX_Vmovupd_xmm_xmmm128, VEX_Vmovups_xmm_xmmm128),
        (VEX_Vmovupd_ymm_ymmm256, VEX_Vmovups_ymm_ymmm256),
        (EVEX_Vmovupd_zmm_k1z_zmmm512, EVEX_Vmovups_zmm_k1z_zmmm512),
        // Non-temporal loads know no elements.
        (Movntdqa_xmm_m128, Movntdqa_xmm_m128),
        (VEX_Vmovntdqa_xmm_m128, VEX_Vmovntdqa_xmm_m128),
        (VEX_Vmovntdqa_ymm_m256, VEX_Vmovntdqa_ymm_m256),
        (EVEX_Vmovntdqa_zmm_m512, EVEX_Vmovntdqa_zmm_m512),
        (Movsd_xmmm64_xmm, Movss_xmmm32_xmm),
        (Movupd_xmmm128_xmm, Movups_xmmm128_xmm),
        (VEX_Vmovsd_m64_xmm, VEX_Vmovss_m32_xmm),
        (VEX_Vmovupd_xmmm128_xmm, VEX_Vmovups_xmmm128_xmm),
        (VEX_Vmovupd_ymmm256_ymm, VEX_Vmovups_ymmm256_ymm),
        (EVEX_Vmovupd_zmmm512_k1z_zmm, EVEX_Vmovups_zmmm512_k1z_zmm),
        (Movntsd_m64_xmm, Movntss_m32_xmm),
        (Movntpd_m128_xmm, Movntps_m128_xmm),
        (VEX_Vmovntpd_m128_xmm, VEX_Vmovntps_m128_xmm),
        (VEX_Vmovntpd_m256_ymm, VEX_Vmovntps_m256_ymm),
        (EVEX_Vmovntpd_m512_zmm, EVEX_Vmovntps_m512_zmm),
        (Addsd_xmm_xmmm64, Addss_xmm_xmmm32),
        (Addpd_xmm_xmmm128, Addps_xmm_xmmm128),
        (VEX_Vaddsd_xmm_xmm_xmmm64, VEX_Vaddss_xmm_xmm_xmmm32),
        (VEX_Vaddpd_xmm_xmm_xmmm128, VEX_Vaddps_xmm_xmm_xmmm128),
        (VEX_Vaddpd_ymm_ymm_ymmm256, VEX_Vaddps_ymm_ymm_ymmm256),
        (EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er),
        (Subsd_xmm_xmmm64, Subss_xmm_xmmm32),
        (Subpd_xmm_xmmm128, Subps_xmm_xmmm128),
        (VEX_Vsubsd_xmm_xmm_xmmm64, VEX_Vsubss_xmm_xmm_xmmm32),
        (VEX_Vsubpd_xmm_xmm_xmmm128, VEX_Vsubps_xmm_xmm_xmmm128),
        (VEX_Vsubpd_ymm_ymm_ymmm256, VEX_Vsubps_ymm_ymm_ymmm256),
        (EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er),
        (Mulsd_xmm_xmmm64, Mulss_xmm_xmmm32),
        (Mulpd_xmm_xmmm128, Mulps_xmm_xmmm128),
        (VEX_Vmulsd_xmm_xmm_xmmm64, VEX_Vmulss_xmm_xmm_xmmm32),
        (VEX_Vmulpd_xmm_xmm_xmmm128, VEX_Vmulps_xmm_xmm_xmmm128),
        (VEX_Vmulpd_ymm_ymm_ymmm256, VEX_Vmulps_ymm_ymm_ymmm256),
        (EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er),
        (Divsd_xmm_xmmm64, Divss_xmm_xmmm32),
        (Divpd_xmm_xmmm128, Divps_xmm_xmmm128),
        (VEX_Vdivsd_xmm_xmm_xmmm64, VEX_Vdivss_xmm_xmm_xmmm32),
        (VEX_Vdivpd_xmm_xmm_xmmm128, VEX_Vdivps_xmm_xmm_xmmm128),
        (VEX_Vdivpd_ymm_ymm_ymmm256, VEX_Vdivps_ymm_ymm_ymmm256),
        (EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er),
        (Minsd_xmm_xmmm64, Minss_xmm_xmmm32),
        (Minpd_xmm_xmmm128, Minps_xmm_xmmm128),
        (VEX_Vminsd_xmm_xmm_xmmm64, VEX_Vminss_xmm_xmm_xmmm32),
        (VEX_Vminpd_xmm_xmm_xmmm128, VEX_Vminps_xmm_xmm_xmmm128),
        (VEX_Vminpd_ymm_ymm_ymmm256, VEX_Vminps_ymm_ymm_ymmm256),
        (EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae, EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae),
        (Maxsd_xmm_xmmm64, Maxss_xmm_xmmm32),
        (Maxpd_xmm_xmmm128, Maxps_xmm_xmmm128),
        (VEX_Vmaxsd_xmm_xmm_xmmm64, VEX_Vmaxss_xmm_xmm_xmmm32),
        (VEX_Vmaxpd_xmm_xmm_xmmm128, VEX_Vmaxps_xmm_xmm_xmmm128),
        (VEX_Vmaxpd_ymm_ymm_ymmm256, VEX_Vmaxps_ymm_ymm_ymmm256),
        (EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae, EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae),
        (Sqrtsd_xmm_xmmm64, Sqrtss_xmm_xmmm32),
        (Sqrtpd_xmm_xmmm128, Sqrtps_xmm_xmmm128),
        (VEX_Vsqrtsd_xmm_xmm_xmmm64, VEX_Vsqrtss_xmm_xmm_xmmm32),
        (VEX_Vsqrtpd_xmm_xmmm128, VEX_Vsqrtps_xmm_xmmm128),
        (VEX_Vsqrtpd_ymm_ymmm256, VEX_Vsqrtps_ymm_ymmm256),
        (EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er, EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er),
        (Andpd_xmm_xmmm128, Andps_xmm_xmmm128),
        (VEX_Vandpd_xmm_xmm_xmmm128, VEX_Vandps_xmm_xmm_xmmm128),
        (VEX_Vandpd_ymm_ymm_ymmm256, VEX_Vandps_ymm_ymm_ymmm256),
        (VEX_Vxorpd_ymm_ymm_ymmm256, VEX_Vxorps_ymm_ymm_ymmm256),
        (EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64, EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32),
        (EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64, EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32),
        (VEX_Vgatherqpd_xmm_vm64x_xmm, VEX_Vgatherdps_xmm_vm32x_xmm),
        (VEX_Vgatherqpd_ymm_vm64y_ymm, VEX_Vgatherdps_ymm_vm32y_ymm),
        (EVEX_Vgatherqpd_zmm_k1_vm64z, EVEX_Vgatherdps_zmm_k1_vm32z),
        (VEX_Vfmadd231sd_xmm_xmm_xmmm64, VEX_Vfmadd231ss_xmm_xmm_xmmm32),
        (VEX_Vfmadd231pd_xmm_xmm_xmmm128, VEX_Vfmadd231ps_xmm_xmm_xmmm128),
        (VEX_Vfmadd231pd_ymm_ymm_ymmm256, VEX_Vfmadd231ps_ymm_ymm_ymmm256),
        (EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er),
        (Movapd_xmm_xmmm128, Movaps_xmm_xmmm128),
        (VEX_Vmovapd_xmm_xmmm128, VEX_Vmovaps_xmm_xmmm128),
        (VEX_Vmovapd_ymm_ymmm256, VEX_Vmovaps_ymm_ymmm256),
        (EVEX_Vmovapd_zmm_k1z_zmmm512, EVEX_Vmovaps_zmm_k1z_zmmm512),
        (Xorpd_xmm_xmmm128, Xorps_xmm_xmmm128),
        (VEX_Vxorpd_xmm_xmm_xmmm128, VEX_Vxorps_xmm_xmm_xmmm128),
    ]
};

/// The counterpart of a double's opcode. One without a counterpart becomes an opcode that no assembler takes.
fn single_precision(double: Code) -> Code {
    SINGLE_PRECISION.iter().find(|pair| pair.0 == double).map_or(Code::INVALID, |pair| pair.1)
}

/// An operand that an arithmetic instruction can take last.
#[derive(Clone, Copy)]
enum Operand {
    Register(usize),
    Memory(MemoryOperand),
}

struct Generator<'a> {
    asm: CodeAssembler,
    formula: &'a Formula,
    variant: &'a Variant,
    isa: Isa,
    /// Bytes of padding before the repeated part, for the main loop to start on a line.
    pad: usize,
    /// (stream, row) of each pointer register.
    pointers: Vec<(usize, i32)>,
    registers: Registers,
}

/// Who lives in which vector register: partial sums at the bottom, then temporaries; at the top the scalars, below them
/// other constants, maskmovdqu's masks, and the sums of single elements.
struct Registers {
    /// Bits of elements; each lies below the one before.
    constants: Vec<u64>,
    /// Registers of each sum.
    partial_sums: usize,
    /// First register of sums of single elements.
    singles: usize,
    /// maskmovdqu's masks: the whole register, and its first element.
    masks: [usize; 2],
    /// First temporary.
    free: usize,
}

impl Registers {
    /// Nothing, if there are not enough.
    fn new(formula: &Formula, variant: &Variant) -> Option<Self> {
        let mut constants = Vec::new();
        let mut need = 0;
        for statement in &formula.statements {
            collect_constants(&statement.value, variant.element, &mut constants);
            need = need.max(temporaries(&statement.value));
        }
        let masks = if variant.store == StoreKind::NtMasked { 2 } else { 0 };
        let above_masks = SCALAR.checked_sub(constants.len())?;
        let singles = above_masks.checked_sub(masks + formula.sums.len())?;
        let partial_sums = partial_sums(formula.sums.len());
        let free = formula.sums.len() * partial_sums;
        let masks = [above_masks.saturating_sub(1), above_masks.saturating_sub(2)];
        (free + need <= singles).then_some(Registers { constants, partial_sums, singles, masks, free })
    }

    fn constant(&self, bits: u64) -> usize {
        SCALAR - 1 - self.constants.iter().position(|known| *known == bits).expect("all constants are collected first")
    }
}

impl<'a> Generator<'a> {
    fn new(formula: &'a Formula, variant: &'a Variant, isa: Isa, pad: usize) -> Result<Self, Unsupported> {
        let pointers = formula.lanes_of_access();
        if pointers.len() > POINTERS.len() {
            return Err(Unsupported::NoSuchInstruction("more streams than address registers (9)"));
        }
        let registers = Registers::new(formula, variant).ok_or(Unsupported::NoSuchInstruction(
            "the loop needs more vector registers than there are (16); write it with fewer different numbers, sums or \
             brackets on the right of operators",
        ))?;
        let asm = CodeAssembler::new(64).map_err(|e| Unsupported::Assembler(e.to_string()))?;
        Ok(Generator { asm, formula, variant, isa, pad, pointers, registers })
    }

    fn generate(mut self) -> Result<MachineCode, Unsupported> {
        self.emit().map_err(|e| Unsupported::Assembler(e.to_string()))
    }

    fn emit(&mut self) -> Result<MachineCode, IcedError> {
        let (mut done, mut fault_exit) = (self.asm.create_label(), self.asm.create_label());
        prologue(&mut self.asm)?;
        self.constants()?;
        let even = if self.has_even_passes() { Some(self.even_passes(done)?) } else { None };
        let general = self.passes(even.is_none())?;
        self.asm.set_label(&mut done)?;
        self.asm.zero_bytes()?;
        if self.variant.store.bypasses_caches() {
            self.asm.sfence()?;
        }
        self.results()?;
        epilogue(&mut self.asm, &mut fault_exit, self.isa.avx)?;
        finish(&mut self.asm, even.unwrap_or(general), fault_exit)
    }

    /// Passes of whole blocks need nothing from memory but their streams, if their pointers fit in registers twice.
    /// Loops that only load gain nothing from it: their pairs of loads then fell into a rhythm of 60 instead of 63 bytes
    /// a cycle on Zen 4, which the fetches between passes break up.
    fn has_even_passes(&self) -> bool {
        let stores = self.formula.store().is_some() && self.variant.store != StoreKind::Rep;
        stores && !self.formula.grid && 2 * self.pointers.len() <= POINTERS.len()
    }

    /// All repetitions, where blocks are all there is. A short pass over L1 feels every load beside its own: with trip
    /// counts and pointers fetched each time, the triad over 24 KiB ran at 94 % of the ports' limit.
    fn even_passes(&mut self, done: CodeLabel) -> Result<CodeLabel, IcedError> {
        let (mut repeat, mut again, mut general) =
            (self.asm.create_label(), self.asm.create_label(), self.asm.create_label());
        let count = self.pointers.len();
        self.asm.cmp(qword_ptr(r15 + Call::EVEN), 0)?;
        self.asm.je(general)?;
        for (k, home) in POINTERS[count..2 * count].iter().enumerate() {
            self.asm.mov(*home, qword_ptr(r15 + Call::POINTERS + 8 * k as i32))?;
        }
        self.asm.mov(rbp, qword_ptr(r15 + Call::BLOCKS))?;
        if self.pad > 0 {
            self.asm.nops_with_size(self.pad)?;
        }
        self.asm.set_label(&mut repeat)?;
        self.clear_sums()?;
        for k in 0..count {
            self.asm.mov(POINTERS[k], POINTERS[count + k])?;
        }
        self.asm.mov(r13, rbp)?;
        self.asm.set_label(&mut again)?;
        self.trip(self.variant.width, self.variant.unroll)?;
        self.asm.dec(r13)?;
        self.asm.jnz(again)?;
        self.asm.dec(r14)?;
        self.asm.jnz(repeat)?;
        self.asm.jmp(done)?;
        self.asm.set_label(&mut general)?;
        self.asm.zero_bytes()?;
        Ok(again)
    }

    fn opcode(&self, op: Op, width: Width) -> Code {
        let double = opcode(op, width, self.isa.avx);
        match self.variant.element {
            Element::Double => double,
            Element::Float => single_precision(double),
        }
    }

    /// All repetitions, whatever their shape.
    fn passes(&mut self, padded: bool) -> Result<CodeLabel, IcedError> {
        let (mut repeat, mut next_row) = (self.asm.create_label(), self.asm.create_label());
        if padded && self.pad > 0 {
            self.asm.nops_with_size(self.pad)?;
        }
        self.asm.set_label(&mut repeat)?;
        self.clear_sums()?;
        let grid = self.formula.grid;
        if grid {
            self.asm.xor(r12d, r12d)?;
            self.asm.mov(rbp, qword_ptr(r15 + Call::ROWS))?;
            self.asm.set_label(&mut next_row)?;
        }
        for (k, pointer) in POINTERS.iter().enumerate().take(self.pointers.len()) {
            self.asm.mov(*pointer, qword_ptr(r15 + Call::POINTERS + 8 * k as i32))?;
            if grid {
                self.asm.add(*pointer, r12)?;
            }
        }
        let main_loop = if self.variant.store == StoreKind::Rep { self.string_copy()? } else { self.sweep()? };
        if grid {
            self.asm.add(r12, qword_ptr(r15 + Call::ROW_BYTES))?;
            self.asm.dec(rbp)?;
            self.asm.jnz(next_row)?;
        }
        self.asm.dec(r14)?;
        self.asm.jnz(repeat)?;
        Ok(main_loop)
    }

    /// The loops over one row: peel, blocks, vectors, tail.
    fn sweep(&mut self) -> Result<CodeLabel, IcedError> {
        let (width, unroll) = (self.variant.width, self.variant.unroll);
        self.counted_loop(Call::PEEL, Width::Scalar, 1)?;
        let main_loop = self.counted_loop(Call::BLOCKS, width, unroll)?;
        if width != Width::Scalar || unroll > 1 {
            self.counted_loop(Call::VECTORS, width, 1)?;
        }
        self.counted_loop(Call::TAIL, Width::Scalar, 1)?;
        Ok(main_loop)
    }

    fn counted_loop(&mut self, count: i32, width: Width, unroll: u32) -> Result<CodeLabel, IcedError> {
        let (mut again, mut done) = (self.asm.create_label(), self.asm.create_label());
        self.asm.mov(r13, qword_ptr(r15 + count))?;
        self.asm.test(r13, r13)?;
        self.asm.jz(done)?;
        self.asm.set_label(&mut again)?;
        self.trip(width, unroll)?;
        self.asm.dec(r13)?;
        self.asm.jnz(again)?;
        self.asm.set_label(&mut done)?;
        // A label must stand before an instruction of its own.
        self.asm.zero_bytes()?;
        Ok(again)
    }

    /// One trip of a loop: `unroll` accesses to each stream, then the pointers move on.
    fn trip(&mut self, width: Width, unroll: u32) -> Result<(), IcedError> {
        for k in 0..u64::from(unroll) {
            self.element(width, k)?;
        }
        let step = (u64::from(unroll) * width.bytes(self.variant.element)) as i32;
        for (pointer, (stream, _)) in POINTERS.iter().zip(&self.pointers) {
            // Indices count from a gathered stream's first element.
            if self.formula.streams[*stream].role != Role::Gathered {
                self.asm.add(*pointer, step)?;
            }
        }
        Ok(())
    }

    /// The k-th access of a trip: load, compute, store or add up.
    fn element(&mut self, width: Width, k: u64) -> Result<(), IcedError> {
        let (formula, free) = (self.formula, self.registers.free);
        for statement in &formula.statements {
            match statement.target {
                Target::Nothing => {
                    self.evaluate(&statement.value, free, width, k)?;
                }
                Target::Element(access) => {
                    let register = self.evaluate(&statement.value, free, width, k)?;
                    self.store(access, register, width, k)?;
                }
                Target::Sum(sum) => {
                    let partial = self.registers.partial_sums;
                    // Single elements have a sum of their own, unless all are single.
                    let is_whole = width == self.variant.width;
                    let register =
                        if is_whole { sum * partial + k as usize % partial } else { self.registers.singles + sum };
                    self.add_to(register, &statement.value, free, width, k)?;
                }
            }
        }
        Ok(())
    }

    /// `sum += value`, fused where it can be.
    fn add_to(&mut self, sum: usize, value: &Expr, free: usize, width: Width, k: u64) -> Result<(), IcedError> {
        match value {
            Expr::Binary(Operation::Multiply, left, right) if self.isa.fma => {
                self.add_product(sum, [left, right], free, width, k)
            }
            _ => {
                let value = self.operand(value, free, width, k)?;
                self.three(Op::Arithmetic(Operation::Add), width, sum, sum, value)
            }
        }
    }

    /// `sum += x * y`, fused.
    fn add_product(
        &mut self,
        sum: usize,
        [x, y]: [&Expr; 2],
        free: usize,
        width: Width,
        k: u64,
    ) -> Result<(), IcedError> {
        let x = self.evaluate(x, free, width, k)?;
        let y = self.operand(y, free + 1, width, k)?;
        self.three(Op::MultiplyAdd, width, sum, x, y)
    }

    /// Computes `expr` and returns the register it is in: `free` or, for a constant, the constant's own.
    fn evaluate(&mut self, expr: &Expr, free: usize, width: Width, k: u64) -> Result<usize, IcedError> {
        match expr {
            Expr::Scalar(_) => return Ok(SCALAR),
            Expr::Number(number) => return Ok(self.registers.constant(bits(self.variant.element, *number))),
            Expr::Element(access) => {
                let nt = self.variant.load == LoadKind::Nt && width == self.variant.width && access.column == 0;
                self.load(if nt { Op::LoadNt } else { Op::Load }, *access, free, width, k)?;
            }
            Expr::Gathered { stream, index } => self.gather(*stream, *index, free, width, k)?,
            Expr::Unary(function, operand) => {
                let operand = self.evaluate(operand, free, width, k)?;
                self.unary(*function, free, operand, width)?;
            }
            Expr::MultiplyAdd(operands) if self.isa.fma => {
                let [x, y, z] = &**operands;
                self.multiply_add([x, y], z, free, width, k)?;
            }
            Expr::MultiplyAdd(operands) => {
                let [x, y, z] = &**operands;
                self.binary(Operation::Multiply, [x, y], free, width, k)?;
                let z = self.operand(z, free + 1, width, k)?;
                self.three(Op::Arithmetic(Operation::Add), width, free, free, z)?;
            }
            Expr::Binary(operation, left, right) => match Expr::fused(left, right) {
                Some((factors, addend)) if *operation == Operation::Add && self.isa.fma => {
                    self.multiply_add(factors, addend, free, width, k)?;
                }
                _ => self.binary(*operation, [left, right], free, width, k)?,
            },
        }
        Ok(free)
    }

    /// `free = left op right`
    fn binary(
        &mut self,
        operation: Operation,
        [left, right]: [&Expr; 2],
        free: usize,
        width: Width,
        k: u64,
    ) -> Result<(), IcedError> {
        let left = self.evaluate(left, free, width, k)?;
        let right = self.operand(right, free + 1, width, k)?;
        self.three(Op::Arithmetic(operation), width, free, left, right)
    }

    /// `free = x * y + addend`, fused.
    fn multiply_add(
        &mut self,
        factors: [&Expr; 2],
        addend: &Expr,
        free: usize,
        width: Width,
        k: u64,
    ) -> Result<(), IcedError> {
        let addend = self.evaluate(addend, free, width, k)?;
        self.copy(free, addend, width)?;
        self.add_product(free, factors, free + 1, width, k)
    }

    fn unary(&mut self, function: Function, to: usize, from: usize, width: Width) -> Result<(), IcedError> {
        let mask = |mask: u64| Operand::Register(self.registers.constant(mask));
        let [sign, others] = sign_masks(self.variant.element);
        match function {
            Function::Negate => self.three(Op::Xor, width, to, from, mask(sign)),
            Function::Absolute => self.three(Op::And, width, to, from, mask(others)),
            // Of single elements, AVX takes the register's rest from another one.
            Function::Root if self.isa.avx && width == Width::Scalar => {
                self.three(Op::Root, width, to, from, Operand::Register(from))
            }
            Function::Root => {
                let code = self.opcode(Op::Root, width);
                self.asm.add_instruction(Instruction::with2(code, vector(width, to), vector(width, from))?)
            }
        }
    }

    fn load(&mut self, op: Op, access: Access, to: usize, width: Width, k: u64) -> Result<(), IcedError> {
        let memory = self.memory(access, width, k);
        let code = self.opcode(op, width);
        self.asm.add_instruction(Instruction::with2(code, vector(width, to), memory)?)
    }

    /// Loads the elements whose numbers stand in the index stream. Indices are of an element's size.
    fn gather(&mut self, stream: usize, index: Access, to: usize, width: Width, k: u64) -> Result<(), IcedError> {
        let element = self.variant.element;
        let base: Register = self.pointer(stream, 0).into();
        let by = |index: Register| MemoryOperand::new(base, index, element.bytes() as u32, 0, 0, false, Register::None);
        if width == Width::Scalar {
            let place = self.memory(index, width, k);
            self.asm.add_instruction(match element {
                Element::Double => Instruction::with2(Code::Mov_r64_rm64, Register::RDI, place)?,
                // No index is negative: the upper half is zero.
                Element::Float => Instruction::with2(Code::Mov_r32_rm32, Register::EDI, place)?,
            })?;
            let load = self.opcode(Op::Load, width);
            let instruction = Instruction::with2(load, vector(width, to), by(Register::RDI))?;
            return self.asm.add_instruction(instruction);
        }
        let (places, mask) = (to + 1, vector(width, to + 2));
        self.load(Op::Load, index, places, width, k)?;
        // A gather keeps what its mask leaves out: without this it waits for the register's last use.
        self.clear(to)?;
        let (code, to, memory) = (self.opcode(Op::Gather, width), vector(width, to), by(vector(width, places)));
        // A gather clears its mask.
        let gather = match width {
            Width::W512 => {
                self.asm.kxnorw(k1, k1, k1)?;
                let mut gather = Instruction::with2(code, to, memory)?;
                gather.set_op_mask(Register::K1);
                gather
            }
            _ => {
                let ones = if width == Width::W256 {
                    Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256
                } else {
                    Code::VEX_Vpcmpeqd_xmm_xmm_xmmm128
                };
                self.asm.add_instruction(Instruction::with3(ones, mask, mask, mask)?)?;
                Instruction::with3(code, to, memory, mask)?
            }
        };
        self.asm.add_instruction(gather)
    }

    /// As [`Self::evaluate`], but an element stays in memory where the instruction can read it from there: VEX forms
    /// accept any alignment.
    fn operand(&mut self, expr: &Expr, free: usize, width: Width, k: u64) -> Result<Operand, IcedError> {
        match expr {
            Expr::Element(access) if self.isa.avx && self.variant.load == LoadKind::Regular => {
                Ok(Operand::Memory(self.memory(*access, width, k)))
            }
            _ => self.evaluate(expr, free, width, k).map(Operand::Register),
        }
    }

    /// `to = left op right`; the two-operand forms before AVX copy first.
    fn three(&mut self, op: Op, width: Width, to: usize, left: usize, right: Operand) -> Result<(), IcedError> {
        let code = self.opcode(op, width);
        let (to_register, left_register) = (vector(width, to), vector(width, left));
        let instruction = if self.isa.avx {
            match right {
                Operand::Register(right) => Instruction::with3(code, to_register, left_register, vector(width, right))?,
                Operand::Memory(memory) => Instruction::with3(code, to_register, left_register, memory)?,
            }
        } else {
            self.copy(to, left, width)?;
            match right {
                Operand::Register(right) => Instruction::with2(code, to_register, vector(width, right))?,
                Operand::Memory(memory) => Instruction::with2(code, to_register, memory)?,
            }
        };
        self.asm.add_instruction(instruction)
    }

    fn copy(&mut self, to: usize, from: usize, width: Width) -> Result<(), IcedError> {
        if to == from {
            return Ok(());
        }
        let code = self.opcode(Op::Move, width);
        self.asm.add_instruction(Instruction::with2(code, vector(width, to), vector(width, from))?)
    }

    fn store(&mut self, access: Access, register: usize, width: Width, k: u64) -> Result<(), IcedError> {
        let memory = self.memory(access, width, k);
        let op = match self.variant.store {
            StoreKind::NtMasked => return self.store_masked(memory, register, width),
            StoreKind::Nt if width == Width::Scalar && !self.isa.sse4a => {
                let movnti = match self.variant.element {
                    Element::Double => Instruction::with2(Code::Movnti_m64_r64, memory, Register::RDI)?,
                    Element::Float => Instruction::with2(Code::Movnti_m32_r32, memory, Register::EDI)?,
                };
                self.move_first([Register::RDI, Register::EDI], register)?;
                return self.asm.add_instruction(movnti);
            }
            StoreKind::Nt => Op::StoreNt,
            StoreKind::Regular | StoreKind::Rep => Op::Store,
        };
        let code = self.opcode(op, width);
        self.asm.add_instruction(Instruction::with2(code, memory, vector(width, register))?)
    }

    /// Moves a register's first element to a general register, given by its names for 8 and for 4 bytes.
    fn move_first(&mut self, [wide, narrow]: [Register; 2], register: usize) -> Result<(), IcedError> {
        let (code, to) = match (self.variant.element, self.isa.avx) {
            (Element::Double, false) => (Code::Movq_rm64_xmm, wide),
            (Element::Double, true) => (Code::VEX_Vmovq_rm64_xmm, wide),
            (Element::Float, false) => (Code::Movd_rm32_xmm, narrow),
            (Element::Float, true) => (Code::VEX_Vmovd_rm32_xmm, narrow),
        };
        self.asm.add_instruction(Instruction::with2(code, to, vector(Width::Scalar, register))?)
    }

    /// maskmovdqu writes to [rdi], always.
    fn store_masked(&mut self, memory: MemoryOperand, register: usize, width: Width) -> Result<(), IcedError> {
        self.asm.add_instruction(Instruction::with2(Code::Lea_r64_m, Register::RDI, memory)?)?;
        let mask = self.registers.masks[usize::from(width == Width::Scalar)];
        let (register, mask) = (vector(Width::W128, register), vector(Width::W128, mask));
        let instruction = if self.isa.avx {
            Instruction::with_vmaskmovdqu(64, register, mask, Register::None)?
        } else {
            Instruction::with_maskmovdqu(64, register, mask, Register::None)?
        };
        self.asm.add_instruction(instruction)
    }

    /// rep movs or rep stos over `tail` elements.
    fn string_copy(&mut self) -> Result<CodeLabel, IcedError> {
        let mut here = self.asm.create_label();
        self.asm.set_label(&mut here)?;
        // POINTERS[0] is `a`, POINTERS[1] is `b` (in rcx, which the count needs next).
        self.asm.mov(rdi, rbx)?;
        self.asm.mov(rsi, rcx)?;
        self.asm.mov(rcx, qword_ptr(r15 + Call::TAIL))?;
        let (value, element) = (&self.formula.statements[0].value, self.variant.element);
        let is_copy = matches!(value, Expr::Element(_));
        if !is_copy {
            let constant = self.evaluate(value, 0, Width::Scalar, 0)?;
            self.move_first([Register::RAX, Register::EAX], constant)?;
        }
        match (is_copy, element) {
            (true, Element::Double) => self.asm.rep().movsq()?,
            (true, Element::Float) => self.asm.rep().movsd()?,
            (false, Element::Double) => self.asm.rep().stosq()?,
            (false, Element::Float) => self.asm.rep().stosd()?,
        }
        Ok(here)
    }

    fn constants(&mut self) -> Result<(), IcedError> {
        self.constant(SCALAR, MemoryOperand::with_base_displ(Register::R15, i64::from(Call::SCALAR)))?;
        // Below the stack pointer lies the red zone: free for a leaf function.
        let red_zone = MemoryOperand::with_base_displ(Register::RSP, -8);
        for bits in self.registers.constants.clone() {
            let register = self.registers.constant(bits);
            if bits == 0 {
                self.clear(register)?;
            } else {
                self.asm.mov(rax, bits)?;
                self.asm.mov(qword_ptr(rsp - 8), rax)?;
                self.broadcast(register, red_zone)?;
            }
        }
        if self.variant.store == StoreKind::NtMasked {
            self.masks()?;
        }
        Ok(())
    }

    /// Fills a register with the double at `from`, as elements.
    fn constant(&mut self, register: usize, from: MemoryOperand) -> Result<(), IcedError> {
        if self.variant.element == Element::Double {
            return self.broadcast(register, from);
        }
        let first = vector(Width::Scalar, register);
        let convert = if self.isa.avx {
            Instruction::with3(Code::VEX_Vcvtsd2ss_xmm_xmm_xmmm64, first, first, from)?
        } else {
            Instruction::with2(Code::Cvtsd2ss_xmm_xmmm64, first, from)?
        };
        self.asm.add_instruction(convert)?;
        // By way of memory: before AVX2 a broadcast takes nothing else.
        let red_zone = MemoryOperand::with_base_displ(Register::RSP, -8);
        let store = self.opcode(Op::Store, Width::Scalar);
        self.asm.add_instruction(Instruction::with2(store, red_zone, first)?)?;
        self.broadcast(register, red_zone)
    }

    fn masks(&mut self) -> Result<(), IcedError> {
        for mask in self.registers.masks {
            let mask = vector(Width::W128, mask);
            let ones = if self.isa.avx {
                Instruction::with3(Code::VEX_Vpcmpeqd_xmm_xmm_xmmm128, mask, mask, mask)?
            } else {
                Instruction::with2(Code::Pcmpeqd_xmm_xmmm128, mask, mask)?
            };
            self.asm.add_instruction(ones)?;
        }
        let mask = vector(Width::W128, self.registers.masks[1]);
        let beyond = 16 - self.variant.element.bytes() as u32;
        let shift = if self.isa.avx {
            Instruction::with3(Code::VEX_Vpsrldq_xmm_xmm_imm8, mask, mask, beyond)?
        } else {
            Instruction::with2(Code::Psrldq_xmm_imm8, mask, beyond)?
        };
        self.asm.add_instruction(shift)
    }

    fn broadcast(&mut self, register: usize, from: MemoryOperand) -> Result<(), IcedError> {
        let width = self.variant.width.max(Width::W128);
        let code = match (self.variant.element, width) {
            (Element::Double, Width::W512) => Code::EVEX_Vbroadcastsd_zmm_k1z_xmmm64,
            (Element::Float, Width::W512) => Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
            (Element::Double, Width::W256) => Code::VEX_Vbroadcastsd_ymm_m64,
            (Element::Float, Width::W256) => Code::VEX_Vbroadcastss_ymm_m32,
            (Element::Double, _) if self.isa.avx => Code::VEX_Vmovddup_xmm_xmmm64,
            (Element::Float, _) if self.isa.avx => Code::VEX_Vbroadcastss_xmm_m32,
            _ => self.opcode(Op::Load, Width::Scalar),
        };
        let register = vector(width, register);
        self.asm.add_instruction(Instruction::with2(code, register, from)?)?;
        if self.isa.avx {
            return Ok(());
        }
        self.asm.add_instruction(match self.variant.element {
            Element::Double => Instruction::with2(Code::Unpcklpd_xmm_xmmm128, register, register)?,
            Element::Float => Instruction::with3(Code::Shufps_xmm_xmmm128_imm8, register, register, 0)?,
        })
    }

    fn clear(&mut self, register: usize) -> Result<(), IcedError> {
        self.three(Op::Clear, Width::W128, register, register, Operand::Register(register))
    }

    fn clear_sums(&mut self) -> Result<(), IcedError> {
        let (partial, singles) = (self.registers.free, self.registers.singles);
        for register in (0..partial).chain(singles..singles + self.formula.sums.len()) {
            self.clear(register)?;
        }
        Ok(())
    }

    /// Leaves the sums, or the last vector loaded, where the caller can check them.
    fn results(&mut self) -> Result<(), IcedError> {
        let width = self.variant.width;
        let (whole, singles): (usize, Vec<usize>) = match self.formula.sums.len() {
            0 if self.formula.stores().is_empty() => (1, vec![0]),
            sums => (self.registers.free, (0..sums).map(|sum| self.registers.singles + sum).collect()),
        };
        let store = self.opcode(Op::Store, width);
        for k in 0..whole {
            let at = Call::LANES + (k as u64 * width.bytes(self.variant.element)) as i32;
            let memory = MemoryOperand::with_base_displ(Register::R15, i64::from(at));
            self.asm.add_instruction(Instruction::with2(store, memory, vector(width, k))?)?;
        }
        let store = self.opcode(Op::Store, Width::Scalar);
        for (sum, register) in singles.into_iter().enumerate() {
            let memory = MemoryOperand::with_base_displ(Register::R15, i64::from(Call::SINGLES) + 8 * sum as i64);
            self.asm.add_instruction(Instruction::with2(store, memory, vector(Width::Scalar, register))?)?;
        }
        Ok(())
    }

    fn pointer(&self, stream: usize, row: i32) -> AsmRegister64 {
        let pointer = self.pointers.iter().position(|p| *p == (stream, row)).expect("all accesses have one");
        POINTERS[pointer]
    }

    fn memory(&self, access: Access, width: Width, k: u64) -> MemoryOperand {
        let element = self.variant.element;
        let base: Register = self.pointer(access.stream, access.row).into();
        let column = i64::from(access.column) * element.bytes() as i64;
        MemoryOperand::with_base_displ(base, (k * width.bytes(element)) as i64 + column)
    }
}

/// The bits of a number as an element.
fn bits(element: Element, number: f64) -> u64 {
    match element {
        Element::Double => number.to_bits(),
        Element::Float => (number as f32).to_bits().into(),
    }
}

/// The bit of an element's sign, and all its others.
fn sign_masks(element: Element) -> [u64; 2] {
    let sign = 1 << (8 * element.bytes() - 1);
    [sign, sign - 1]
}

/// Registers that computing `expr` takes at most, fused or not: a fused operation holds its sum while both factors are
/// computed.
fn temporaries(expr: &Expr) -> usize {
    match expr {
        Expr::Scalar(_) | Expr::Number(_) => 0,
        Expr::Element(_) => 1,
        // The elements, their places and a mask.
        Expr::Gathered { .. } => 3,
        Expr::Unary(_, operand) => temporaries(operand).max(1),
        Expr::MultiplyAdd(operands) => {
            let [x, y, z] = operands.each_ref().map(temporaries);
            1 + z.max(x).max(1 + y)
        }
        Expr::Binary(operation, left, right) => {
            let apart = temporaries(left).max(1 + temporaries(right));
            match Expr::fused(left, right) {
                Some(([x, y], addend)) if *operation == Operation::Add => {
                    let product = temporaries(x).max(1 + temporaries(y));
                    apart.max(temporaries(addend)).max(1 + product)
                }
                _ => apart,
            }
        }
    }
}

/// The bits of all elements that instructions take from registers of their own, each once.
fn collect_constants(expr: &Expr, element: Element, found: &mut Vec<u64>) {
    let [sign, others] = sign_masks(element);
    expr.each(&mut |expr| {
        let bits = match expr {
            Expr::Number(number) => bits(element, *number),
            Expr::Unary(Function::Negate, _) => sign,
            Expr::Unary(Function::Absolute, _) => others,
            _ => return,
        };
        if !found.contains(&bits) {
            found.push(bits);
        }
    });
}

pub(super) fn vector(width: Width, index: usize) -> Register {
    let first = match width {
        Width::Scalar | Width::W128 => Register::XMM0,
        Width::W256 => Register::YMM0,
        Width::W512 => Register::ZMM0,
    };
    first + index as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::CATALOG;

    const OPERATIONS: [Operation; 6] = [
        Operation::Add,
        Operation::Subtract,
        Operation::Multiply,
        Operation::Divide,
        Operation::Minimum,
        Operation::Maximum,
    ];
    const PLAIN: [Op; 9] =
        [Op::Load, Op::LoadNt, Op::Store, Op::StoreNt, Op::Move, Op::Clear, Op::Root, Op::And, Op::Xor];

    #[test]
    fn every_opcode_has_a_counterpart_of_single_precision() {
        let mut reachable = Vec::new();
        let arithmetic = OPERATIONS.map(Op::Arithmetic);
        for &op in PLAIN.iter().chain(&arithmetic) {
            for &width in Width::ALL {
                reachable.push(opcode(op, width, true));
                if width <= Width::W128 {
                    reachable.push(opcode(op, width, false));
                }
            }
        }
        reachable.extend(Width::ALL.iter().map(|&width| opcode(Op::MultiplyAdd, width, true)));
        let gathers = Width::ALL.iter().skip(1).map(|&width| opcode(Op::Gather, width, true));
        reachable.extend(gathers);
        for code in &reachable {
            assert_ne!(single_precision(*code), Code::INVALID, "{code:?}");
        }
        for (double, _) in SINGLE_PRECISION {
            assert!(reachable.contains(double), "{double:?} is never used");
        }
    }

    /// By the names that the processors' makers gave them: only the letter of the precision and the size differ.
    #[test]
    fn counterparts_differ_in_nothing_but_precision() {
        for (double, single) in SINGLE_PRECISION {
            let name = |code: &Code| format!("{:?}", code.mnemonic());
            let expect = match name(double) {
                // Bits and places are as wide as elements.
                name if name.ends_with("gatherqpd") => name.replace("qpd", "dps"),
                name if name.ends_with("pandq") || name.ends_with("pxorq") => name.replace('q', "d"),
                name if name.ends_with("sd") => name.replace("sd", "ss"),
                name if name.ends_with("pd") => name.replace("pd", "ps"),
                name => name,
            };
            assert_eq!(name(single), expect);
            let operands = |code: &Code| {
                let text = format!("{code:?}");
                text.replace("m64", "m").replace("m32", "m").replace("b64", "b").replace("b32", "b")
            };
            let rest = |text: String| text.split_once("mm").map(|(_, rest)| rest.to_string());
            assert_eq!(rest(operands(single)), rest(operands(double)));
        }
    }

    #[test]
    fn what_exists_for_doubles_exists_for_floats() {
        let every = Isa { avx: true, avx2: true, fma: true, avx512: true, sse41: true, sse4a: true };
        let sse = Isa { avx: false, avx2: false, fma: false, avx512: false, ..every };
        for isa in [every, Isa { fma: false, ..every }, sse, Isa { sse4a: false, ..every }, Isa { sse4a: false, ..sse }]
        {
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
                    assert_eq!(
                        of(Element::Float),
                        of(Element::Double),
                        "{} {width} {store} {load} {isa:?}",
                        kernel.name
                    );
                }
            }
        }
    }
}
