//! Chases as x86-64 machine code.
//!
//! ```text
//! registers = call.slots of the first 12 chains
//! for each repetition, 16 times:
//!   each of the first 12 chains: register = [register]
//!   each chain beyond:           r13 = call.slot; r13 = [r13]; call.slot = r13
//! call.slots = registers
//! ```
//!
//! `mov register, [register]` is the shortest dependence that there is from load to load: a base register and nothing
//! else, which is what published load-to-use latencies are about.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::Unsupported;
use super::chase::Chase;
use super::code::{Call, MachineCode};
use super::x86_64::{LINE, epilogue, finish, prologue};

/// Registers of the first chains: all but the stack, the counter, the call and [`SPILL`].
const CHAINS: [AsmRegister64; 12] = [rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12];
/// Passes the chains through that have no register of their own.
const SPILL: AsmRegister64 = r13;

impl Chase {
    /// Generates the machine code. Positions come in and go out through [`Call`].
    pub fn assemble(self) -> Result<MachineCode, Unsupported> {
        if !self.exists() {
            return Err(Unsupported::NoSuchInstruction("a chase has 1 to 32 chains and a stride of whole words"));
        }
        let generate = |padding| self.generate(padding).map_err(|e| Unsupported::Assembler(e.to_string()));
        // As for kernels: the second pass pads the loop to a line boundary.
        let code = generate(0)?;
        match code.main_loop % LINE {
            0 => Ok(code),
            beyond => generate(LINE - beyond),
        }
    }

    fn generate(self, padding: usize) -> Result<MachineCode, IcedError> {
        let mut asm = CodeAssembler::new(64)?;
        let (mut again, mut fault_exit) = (asm.create_label(), asm.create_label());
        let slot = |chain: usize| qword_ptr(r15 + Call::LANES + 8 * chain as i32);
        let chains = self.chains as usize;
        let in_registers = || CHAINS.iter().copied().enumerate().take(chains);
        prologue(&mut asm)?;
        for (chain, register) in in_registers() {
            asm.mov(register, slot(chain))?;
        }
        if padding > 0 {
            asm.nops_with_size(padding)?;
        }
        asm.set_label(&mut again)?;
        for _ in 0..Chase::LINKS {
            for (_, register) in in_registers() {
                asm.mov(register, qword_ptr(register))?;
            }
            for chain in CHAINS.len()..chains {
                asm.mov(SPILL, slot(chain))?;
                asm.mov(SPILL, qword_ptr(SPILL))?;
                asm.mov(slot(chain), SPILL)?;
            }
        }
        asm.dec(r14)?;
        asm.jnz(again)?;
        for (chain, register) in in_registers() {
            asm.mov(slot(chain), register)?;
        }
        epilogue(&mut asm, &mut fault_exit, false)?;
        finish(&mut asm, again, fault_exit)
    }
}
