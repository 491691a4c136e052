//! Arithmetic in registers as x86-64 machine code.
//!
//! ```text
//! factor, addend, all chains = call.lanes[0], call.lanes[1], call.lanes[2]
//! for each repetition: 8 times: for each of 12 chains
//!   fma:      chain = chain * factor + addend
//!   add:      chain = chain + addend
//!   multiply: chain = chain * factor
//! call.lanes[3] = the sum of all chains
//! ```
//!
//! Neighbouring instructions belong to different chains, so that none waits for its neighbour. No instruction touches
//! memory inside the loop, and its 96 instructions fit the cache of decoded ones.

use iced_x86::code_asm::*;
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

use super::code::{Call, MachineCode};
use super::flops::Flops;
use super::scan::REGISTER;
use super::x86_64::{LINE, epilogue, finish, prologue, vector};
use super::{Element, Isa, Unsupported, Width};
use crate::machine::Balance;

/// Registers of the operands; the chains have those below.
const FACTOR: usize = 12;
const ADDEND: usize = 13;

impl Flops {
    /// Generates the machine code of one trip after another.
    pub fn assemble(self, isa: Isa) -> Result<MachineCode, Unsupported> {
        if !isa.widths().contains(&self.width) {
            return Err(Unsupported::NotOnThisProcessor(if self.width == Width::W512 { "AVX-512" } else { "AVX" }));
        }
        if self.balance == Balance::Fma && !isa.fma {
            return Err(Unsupported::NotOnThisProcessor("FMA"));
        }
        let generate = |padding| self.generate(isa, padding).map_err(|e| Unsupported::Assembler(e.to_string()));
        // As for kernels: the second pass pads the loop to a line boundary.
        let code = generate(0)?;
        match code.main_loop % LINE {
            0 => Ok(code),
            beyond => generate(LINE - beyond),
        }
    }

    fn generate(self, isa: Isa, padding: usize) -> Result<MachineCode, IcedError> {
        let mut asm = CodeAssembler::new(64)?;
        let (mut again, mut fault_exit) = (asm.create_label(), asm.create_label());
        prologue(&mut asm)?;
        let load = |register: usize, from: usize| {
            Instruction::with2(self.moves(isa.avx)[0], vector(self.width, register), lane(from))
        };
        asm.add_instruction(load(FACTOR, 0)?)?;
        asm.add_instruction(load(ADDEND, 1)?)?;
        for chain in 0..Flops::CHAINS as usize {
            asm.add_instruction(load(chain, 2)?)?;
        }
        if padding > 0 {
            asm.nops_with_size(padding)?;
        }
        asm.set_label(&mut again)?;
        for _ in 0..Flops::LINKS {
            for chain in 0..Flops::CHAINS {
                // Where chains differ, the two halves take turns.
                let half = Flops::CHAINS / 2;
                let chain = chain / 2 + chain % 2 * half;
                asm.add_instruction(self.link_code(chain, isa.avx)?)?;
            }
        }
        asm.dec(r14)?;
        asm.jnz(again)?;
        for chain in 1..Flops::CHAINS as usize {
            asm.add_instruction(self.instruction(Balance::Add, 0, chain, isa.avx)?)?;
        }
        let sum = vector(self.width, 0);
        asm.add_instruction(Instruction::with2(self.moves(isa.avx)[1], lane(3), sum)?)?;
        epilogue(&mut asm, &mut fault_exit, isa.avx)?;
        finish(&mut asm, again, fault_exit)
    }

    fn link_code(self, chain: u64, avx: bool) -> Result<Instruction, IcedError> {
        let link = self.link(chain);
        let operand = if link == Balance::Add { ADDEND } else { FACTOR };
        self.instruction(link, chain as usize, operand, avx)
    }

    /// `register = register op operand`; fused: `register = register * operand + addend`.
    fn instruction(self, op: Balance, register: usize, operand: usize, avx: bool) -> Result<Instruction, IcedError> {
        let code = self.code(op, avx);
        let [to, operand] = [register, operand].map(|index| vector(self.width, index));
        match (op, avx) {
            (Balance::Fma, _) => Instruction::with3(code, to, operand, vector(self.width, ADDEND)),
            (_, true) => Instruction::with3(code, to, to, operand),
            (_, false) => Instruction::with2(code, to, operand),
        }
    }

    /// Load and store of a whole register: unused parts of a scalar's hold the same numbers.
    fn moves(self, avx: bool) -> [Code; 2] {
        use Code::*;
        match (self.width, avx) {
            (Width::W512, _) => [EVEX_Vmovups_zmm_k1z_zmmm512, EVEX_Vmovups_zmmm512_k1z_zmm],
            (Width::W256, _) => [VEX_Vmovups_ymm_ymmm256, VEX_Vmovups_ymmm256_ymm],
            (_, true) => [VEX_Vmovups_xmm_xmmm128, VEX_Vmovups_xmmm128_xmm],
            (_, false) => [Movups_xmm_xmmm128, Movups_xmmm128_xmm],
        }
    }

    fn code(self, op: Balance, avx: bool) -> Code {
        use Code::*;
        let is_double = self.element == Element::Double;
        let pick = |double: [Code; 4], single: [Code; 4]| {
            let codes = if is_double { double } else { single };
            codes[self.width as usize]
        };
        let legacy = |double: [Code; 2], single: [Code; 2]| {
            let codes = if is_double { double } else { single };
            codes[usize::from(self.width != Width::Scalar)]
        };
        match (op, avx) {
            (Balance::Fma, _) => pick(
                [
                    VEX_Vfmadd213sd_xmm_xmm_xmmm64,
                    VEX_Vfmadd213pd_xmm_xmm_xmmm128,
                    VEX_Vfmadd213pd_ymm_ymm_ymmm256,
                    EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er,
                ],
                [
                    VEX_Vfmadd213ss_xmm_xmm_xmmm32,
                    VEX_Vfmadd213ps_xmm_xmm_xmmm128,
                    VEX_Vfmadd213ps_ymm_ymm_ymmm256,
                    EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er,
                ],
            ),
            (Balance::Multiply, true) => pick(
                [
                    VEX_Vmulsd_xmm_xmm_xmmm64,
                    VEX_Vmulpd_xmm_xmm_xmmm128,
                    VEX_Vmulpd_ymm_ymm_ymmm256,
                    EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er,
                ],
                [
                    VEX_Vmulss_xmm_xmm_xmmm32,
                    VEX_Vmulps_xmm_xmm_xmmm128,
                    VEX_Vmulps_ymm_ymm_ymmm256,
                    EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er,
                ],
            ),
            (_, true) => pick(
                [
                    VEX_Vaddsd_xmm_xmm_xmmm64,
                    VEX_Vaddpd_xmm_xmm_xmmm128,
                    VEX_Vaddpd_ymm_ymm_ymmm256,
                    EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er,
                ],
                [
                    VEX_Vaddss_xmm_xmm_xmmm32,
                    VEX_Vaddps_xmm_xmm_xmmm128,
                    VEX_Vaddps_ymm_ymm_ymmm256,
                    EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er,
                ],
            ),
            (Balance::Multiply, false) => {
                legacy([Mulsd_xmm_xmmm64, Mulpd_xmm_xmmm128], [Mulss_xmm_xmmm32, Mulps_xmm_xmmm128])
            }
            (_, false) => legacy([Addsd_xmm_xmmm64, Addpd_xmm_xmmm128], [Addss_xmm_xmmm32, Addps_xmm_xmmm128]),
        }
    }
}

/// Where a register comes in and goes out.
fn lane(index: usize) -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::R15, i64::from(Call::LANES) + (index * REGISTER) as i64)
}
