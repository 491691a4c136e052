//! The loop that times calls inside the micro-VM.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use membound_core::kernel::Unsupported;

use crate::asm::x86_64::encode::finish;
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
    const CALL: i32 = 8;
    const START: i32 = 16;
    const END: i32 = 24;
    const BYTES: i32 = 32;
}

/// Calls the steps listed at `steps` one after another, each between two readings of the clock, then stores to
/// `doorbell`; and again, whenever it is continued after that store.
pub fn timed_calls(steps: u64, doorbell: u64) -> Result<MachineCode, Unsupported> {
    let build = || {
        let mut asm = CodeAssembler::new(64)?;
        let mut again = asm.create_label();
        let (mut step, mut done) = (asm.create_label(), asm.create_label());
        asm.set_label(&mut again)?;
        asm.mov(r12, steps)?;
        asm.set_label(&mut step)?;
        asm.mov(rax, qword_ptr(r12))?;
        asm.test(rax, rax)?;
        asm.jz(done)?;
        asm.mov(rdi, qword_ptr(r12 + Step::CALL))?;
        read_clock(&mut asm, Step::START)?;
        asm.call(qword_ptr(r12))?;
        read_clock(&mut asm, Step::END)?;
        asm.add(r12, Step::BYTES)?;
        asm.jmp(step)?;
        asm.set_label(&mut done)?;
        asm.mov(rbx, doorbell)?;
        asm.mov(dword_ptr(rbx), eax)?;
        asm.jmp(again)?;
        finish(&mut asm, step, done)
    };
    build().map_err(|fault: IcedError| Unsupported::Assembler(fault.to_string()))
}

/// As the native clock is read: after all earlier instructions are done and before any later one starts.
fn read_clock(asm: &mut CodeAssembler, to: i32) -> Result<(), IcedError> {
    asm.mfence()?;
    asm.rdtscp()?;
    asm.lfence()?;
    asm.shl(rdx, 32)?;
    asm.or(rax, rdx)?;
    asm.mov(qword_ptr(r12 + to), rax)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn the_assembler_knows_the_layout_of_a_step() {
        assert_eq!(offset_of!(Step, code), 0);
        assert_eq!(offset_of!(Step, call) as i32, Step::CALL);
        assert_eq!(offset_of!(Step, start) as i32, Step::START);
        assert_eq!(offset_of!(Step, end) as i32, Step::END);
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
