//! Code that runs without subnormal numbers: MXCSR's bits FTZ and DAZ are set before it and what MXCSR held is restored
//! after it, be that by its last instruction or from a fault.

use iced_x86::Register::{EAX, RSP};
use iced_x86::{Code, Instruction, MemoryOperand};
use membound_core::kernel::Unsupported;

use crate::asm::instruction_set::{InstructionSet, on_a_line};
use crate::asm::x86_64::encode::Assembler;
use crate::code::MachineCode;

/// Flush to zero (bit 15) and denormals are zero (bit 6): Intel SDM volume 1, section 10.2.3. Every processor with 64 bits has
/// both.
const FTZ_DAZ: u32 = 1 << 15 | 1 << 6;

/// `code`, called with both bits set.
pub(super) fn flushing(code: MachineCode) -> Result<MachineCode, Unsupported> {
    // Main loops stay where they were in a line.
    let around = on_a_line(around)?.bytes;
    let [main_loop, fault_exit] = [code.main_loop, code.fault_exit].map(|offset| offset + around.len());
    Ok(MachineCode { bytes: [around, code.bytes].concat(), main_loop, fault_exit })
}

/// What calls the code right behind it, and so many bytes of padding between them.
fn around(padding: usize) -> Result<MachineCode, Unsupported> {
    let mut asm = Assembler::new(Assembler::BASELINE);
    let code = asm.label();
    let [kept, flushing] = [MemoryOperand::with_base(RSP), MemoryOperand::with_base_displ(RSP, 4)];
    // The call finds the stack as any call must: 16 bytes and a return address beyond a multiple of 16.
    asm.emit(Instruction::with2(Code::Sub_rm64_imm8, RSP, 24));
    asm.emit(Instruction::with1(Code::Stmxcsr_m32, kept));
    asm.emit(Instruction::with2(Code::Mov_r32_rm32, EAX, kept));
    asm.emit(Instruction::with2(Code::Or_EAX_imm32, EAX, FTZ_DAZ));
    asm.emit(Instruction::with2(Code::Mov_rm32_r32, flushing, EAX));
    asm.emit(Instruction::with1(Code::Ldmxcsr_m32, flushing));
    asm.branch(Code::Call_rel32_64, code);
    asm.emit(Instruction::with1(Code::Ldmxcsr_m32, kept));
    asm.advance(RSP, 24);
    asm.op0(Code::Retnq);
    asm.pad(padding);
    asm.place(code);
    asm.finish(code, code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::units::LINE;

    #[test]
    fn the_control_word_is_set_before_and_restored_after() {
        let inner = crate::asm::pair().unwrap();
        let (offsets, bytes) = ([inner.main_loop, inner.fault_exit], inner.bytes.clone());
        let code = flushing(inner).unwrap();
        let before = code.bytes.len() - bytes.len();
        assert!(code.bytes.ends_with(&bytes) && before.is_multiple_of(LINE as usize), "{before}");
        assert_eq!([code.main_loop, code.fault_exit], offsets.map(|offset| offset + before));
        let listing = crate::asm::listing(&code);
        let order = ["stmxcsr", "or eax, 8040h", "ldmxcsr [rsp+4]", "call", "ldmxcsr [rsp]", "ret", "push rbx"];
        let mut rest = listing.as_str();
        for what in order {
            let at = rest.find(what);
            assert!(at.is_some(), "{what} is missing or misplaced:\n{listing}");
            rest = &rest[at.unwrap_or(0) + what.len()..];
        }
    }
}
