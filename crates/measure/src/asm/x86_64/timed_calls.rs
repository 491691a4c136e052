//! The loop that times calls inside the micro-VM.

use iced_x86::Register::{self, EAX, R12, RAX, RBX, RDI, RDX};
use iced_x86::{Code, Instruction, MemoryOperand};
use membound_core::kernel::Unsupported;

use crate::asm::instruction_set::{Address, InstructionSet};
use crate::asm::x86_64::encode::{Assembler, short};
use crate::code::MachineCode;

/// One call to be timed. The layout is known to [`timed_calls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Step {
    /// Address of the code; 0 ends the list.
    pub code: u64,
    /// Address of its `Call`.
    pub call: u64,
    /// Ticks of the time stamp counter before the call.
    pub start: u64,
    /// The same after it.
    pub end: u64,
}

impl Step {
    const CODE: i64 = 0;
    const CALL: i64 = 8;
    const START: i64 = 16;
    const END: i64 = 24;
    const BYTES: i32 = 32;
}

/// Calls the steps listed at `steps` one after another, each between two readings of the clock, then stores to
/// `doorbell`; and again, whenever it is continued after that store.
pub fn timed_calls(steps: u64, doorbell: u64) -> Result<MachineCode, Unsupported> {
    let mut asm = Assembler::new(Assembler::BASELINE);
    let done = asm.label();
    let again = asm.here();
    asm.emit(Instruction::with2(Code::Mov_r64_imm64, R12, steps));
    let step = asm.here();
    asm.load_word(RAX, of_step(Step::CODE));
    asm.jump_if_zero(RAX, done);
    asm.load_word(RDI, of_step(Step::CALL));
    read_clock(&mut asm, Step::START);
    asm.emit(Instruction::with1(Code::Call_rm64, short(of_step(Step::CODE))));
    read_clock(&mut asm, Step::END);
    asm.advance(R12, Step::BYTES);
    asm.jump(step);
    asm.place(done);
    asm.emit(Instruction::with2(Code::Mov_r64_imm64, RBX, doorbell));
    asm.emit(Instruction::with2(Code::Mov_rm32_r32, MemoryOperand::with_base(RBX), EAX));
    asm.jump(again);
    asm.finish(step, done)
}

/// A word of the current step.
fn of_step(offset: i64) -> Address<Register> {
    Address { base: R12, offset }
}

/// As the native clock is read: after all earlier instructions are done and before any later one starts.
fn read_clock(asm: &mut Assembler, to: i64) {
    asm.op0(Code::Mfence);
    asm.op0(Code::Rdtscp);
    asm.op0(Code::Lfence);
    asm.emit(Instruction::with2(Code::Shl_rm64_imm8, RDX, 32));
    asm.emit(Instruction::with2(Code::Or_rm64_r64, RAX, RDX));
    asm.store_word(of_step(to), RAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn the_assembler_knows_the_layout_of_a_step() {
        assert_eq!(offset_of!(Step, code) as i64, Step::CODE);
        assert_eq!(offset_of!(Step, call) as i64, Step::CALL);
        assert_eq!(offset_of!(Step, start) as i64, Step::START);
        assert_eq!(offset_of!(Step, end) as i64, Step::END);
        assert_eq!(size_of::<Step>() as i32, Step::BYTES);
    }

    #[test]
    fn the_whole_clock_is_read_before_and_after_each_call() {
        let listing = crate::asm::x86_64::listing::listing(&timed_calls(0x1234, 0x5678).unwrap());
        let order = ["mfence", "rdtscp", "lfence", "shl rdx, 20h", "or rax, rdx", "mov [r12+10h], rax", "call"];
        let after = ["mfence", "rdtscp", "lfence", "shl rdx, 20h", "or rax, rdx", "mov [r12+18h], rax"];
        let mut rest = listing.as_str();
        for what in order.iter().chain(&after) {
            let at = rest.find(what);
            assert!(at.is_some(), "{what} is missing or misplaced:\n{listing}");
            rest = &rest[at.unwrap_or(0) + what.len()..];
        }
    }
}
