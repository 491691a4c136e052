//! Scans as x86-64 machine code.
//!
//! ```text
//! registers 0 to 3 = call.lanes
//! for each repetition: 16 accesses, or 16 pairs
//!   load:  register k = [load + k pages]    (k = 0, 1, 2, 3, 0, ...)
//!   store: [store + k pages] = register k
//!   pair:  [store] = register 0; register 0 = [load]
//! call.lanes = registers 0 to 3
//! ```
//!
//! Loads alone and stores alone wait for nothing but the load and store units: that is throughput. 16 of them hide the
//! loop's own two instructions even where a core does three accesses a cycle.
//!
//! A pair stores what the pair before has loaded. Where the load needs what the store wrote, that is a chain, and a
//! pair takes the whole way from register to register: the latency of forwarding, or of waiting until the store is in
//! the cache. The chain holds however store and load overlap, if only in a byte: a load delivers its register as a
//! whole, and a store waits for its register as a whole. Where they do not overlap there is no chain, and pairs take
//! as long as their throughput allows. A load that is only thought to need the store (because the low 12 bits of their
//! addresses overlap) waits for the store's data all the same. That data comes from the load before: so the pairs form
//! a chain, and what a wait costs can be seen.
//!
//! Values stay in vector registers at all sizes, so that none pays for a transfer between register files. Addresses are
//! in two registers: some cores forward from store to load by the text of the address, before it is computed.

use iced_x86::code_asm::*;
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

use super::code::{Call, MachineCode};
use super::scan::{REGISTER, Scan};
use super::x86_64::{LINE, epilogue, finish, prologue, vector};
use super::{Isa, Unsupported, Width};

impl Scan {
    /// Generates the machine code of one trip after another. Registers come in and go out through [`Call`].
    pub fn assemble(self, isa: Isa) -> Result<MachineCode, Unsupported> {
        if !self.exists() {
            return Err(Unsupported::NoSuchInstruction("a scan's accesses are of 4, 8, 16, 32 or 64 bytes"));
        }
        match self.bytes().into_iter().max() {
            Some(64) if !isa.avx512 => return Err(Unsupported::NotOnThisProcessor("AVX-512")),
            Some(32) if !isa.avx => return Err(Unsupported::NotOnThisProcessor("AVX")),
            _ => {}
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
        let [stored, loaded] = self.bytes();
        let widest = stored.max(loaded);
        prologue(&mut asm)?;
        asm.mov(rbx, qword_ptr(r15 + Call::POINTERS))?;
        asm.mov(rcx, qword_ptr(r15 + Call::POINTERS + 8))?;
        for register in 0..Scan::PLACES {
            asm.add_instruction(load(widest, register, lane(register), isa.avx)?)?;
        }
        if padding > 0 {
            asm.nops_with_size(padding)?;
        }
        asm.set_label(&mut again)?;
        for access in 0..Scan::ACCESSES {
            let place = if self.is_paired() { 0 } else { access % Scan::PLACES };
            let at = |base| MemoryOperand::with_base_displ(base, place as i64 * 4096);
            if stored > 0 {
                asm.add_instruction(store(stored, place, at(Register::RBX), isa.avx)?)?;
            }
            if loaded > 0 {
                asm.add_instruction(load(loaded, place, at(Register::RCX), isa.avx)?)?;
            }
        }
        asm.dec(r14)?;
        asm.jnz(again)?;
        for register in 0..Scan::PLACES {
            asm.add_instruction(store(widest, register, lane(register), isa.avx)?)?;
        }
        epilogue(&mut asm, &mut fault_exit, isa.avx)?;
        finish(&mut asm, again, fault_exit)
    }
}

/// Where a register comes in and goes out.
fn lane(register: u64) -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::R15, i64::from(Call::LANES) + (register as usize * REGISTER) as i64)
}

fn load(bytes: u64, register: u64, from: MemoryOperand, avx: bool) -> Result<Instruction, IcedError> {
    use Code::*;
    let code = match (bytes, avx) {
        (4, false) => Movd_xmm_rm32,
        (8, false) => Movq_xmm_xmmm64,
        (4, true) => VEX_Vmovd_xmm_rm32,
        (8, true) => VEX_Vmovq_xmm_xmmm64,
        (32, _) => VEX_Vmovups_ymm_ymmm256,
        (64, _) => EVEX_Vmovups_zmm_k1z_zmmm512,
        (_, false) => Movups_xmm_xmmm128,
        (_, true) => VEX_Vmovups_xmm_xmmm128,
    };
    Instruction::with2(code, vector(width(bytes), register as usize), from)
}

fn store(bytes: u64, register: u64, to: MemoryOperand, avx: bool) -> Result<Instruction, IcedError> {
    use Code::*;
    let code = match (bytes, avx) {
        (4, false) => Movd_rm32_xmm,
        (8, false) => Movq_xmmm64_xmm,
        (4, true) => VEX_Vmovd_rm32_xmm,
        (8, true) => VEX_Vmovq_xmmm64_xmm,
        (32, _) => VEX_Vmovups_ymmm256_ymm,
        (64, _) => EVEX_Vmovups_zmmm512_k1z_zmm,
        (_, false) => Movups_xmmm128_xmm,
        (_, true) => VEX_Vmovups_xmmm128_xmm,
    };
    Instruction::with2(code, to, vector(width(bytes), register as usize))
}

fn width(bytes: u64) -> Width {
    match bytes {
        64 => Width::W512,
        32 => Width::W256,
        _ => Width::W128,
    }
}
