//! Machine code of the micro-VM: the loop that times calls inside the guest, and the touches whose cost tells memory
//! types apart.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::Unsupported;
use super::code::{Call, MachineCode};
use super::x86_64::{epilogue, finish, prologue};

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// What is done to one line after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Loads its first word.
    Load,
    /// Stores its first word.
    StoreWord,
    /// Stores all its words, one by one.
    StoreLine,
    /// Drops it from all caches, writing it back.
    Flush,
}

/// The code that touches `blocks` lines from the first pointer of its [`Call`] on.
pub fn touch(touch: Touch) -> Result<MachineCode, Unsupported> {
    build(|asm| {
        let (mut again, mut exit) = (asm.create_label(), asm.create_label());
        prologue(asm)?;
        asm.mov(rbx, qword_ptr(r15 + Call::POINTERS))?;
        asm.mov(rcx, qword_ptr(r15 + Call::BLOCKS))?;
        asm.test(rcx, rcx)?;
        asm.jz(exit)?;
        asm.set_label(&mut again)?;
        match touch {
            Touch::Load => asm.mov(rax, qword_ptr(rbx))?,
            Touch::StoreWord => asm.mov(qword_ptr(rbx), rcx)?,
            Touch::StoreLine => (0..8).try_for_each(|word| asm.mov(qword_ptr(rbx + 8 * word), rcx))?,
            Touch::Flush => asm.clflush(byte_ptr(rbx))?,
        }
        asm.add(rbx, LINE as i32)?;
        asm.dec(rcx)?;
        asm.jnz(again)?;
        epilogue(asm, &mut exit, false)?;
        finish(asm, again, exit)
    })
}

/// One call to be timed. The layout is known to [`timed_calls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Step {
    /// Address of the code; 0 ends the list.
    pub code: u64,
    /// Address of its [`Call`].
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
    build(|asm| {
        let mut again = asm.create_label();
        let (mut step, mut done) = (asm.create_label(), asm.create_label());
        asm.set_label(&mut again)?;
        asm.mov(r12, steps)?;
        asm.set_label(&mut step)?;
        asm.mov(rax, qword_ptr(r12))?;
        asm.test(rax, rax)?;
        asm.jz(done)?;
        asm.mov(rdi, qword_ptr(r12 + Step::CALL))?;
        read_clock(asm, Step::START)?;
        asm.call(qword_ptr(r12))?;
        read_clock(asm, Step::END)?;
        asm.add(r12, Step::BYTES)?;
        asm.jmp(step)?;
        asm.set_label(&mut done)?;
        asm.mov(rbx, doorbell)?;
        asm.mov(dword_ptr(rbx), eax)?;
        asm.jmp(again)?;
        finish(asm, step, done)
    })
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

pub(super) fn build(
    emit: impl Fn(&mut CodeAssembler) -> Result<MachineCode, IcedError>,
) -> Result<MachineCode, Unsupported> {
    let built = CodeAssembler::new(64).and_then(|mut asm| emit(&mut asm));
    built.map_err(|e| Unsupported::Assembler(e.to_string()))
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
        let listing = super::super::listing(&timed_calls(0x1234, 0x5678).unwrap());
        let order = ["mfence", "rdtscp", "lfence", "shl rdx, 20h", "or rax, rdx", "mov [r12+10h], rax", "call"];
        let after = ["mfence", "rdtscp", "lfence", "shl rdx, 20h", "or rax, rdx", "mov [r12+18h], rax"];
        let mut rest = listing.as_str();
        for what in order.iter().chain(&after) {
            let at = rest.find(what);
            assert!(at.is_some(), "{what} is missing or misplaced:\n{listing}");
            rest = &rest[at.unwrap_or(0) + what.len()..];
        }
    }

    #[test]
    fn touches_are_what_they_say() {
        let listing = |kind| super::super::listing(&touch(kind).unwrap());
        let count = |text: &str, what: &str| text.matches(what).count();
        assert_eq!(count(&listing(Touch::StoreLine), "mov [rbx"), 8);
        assert_eq!(count(&listing(Touch::StoreWord), "mov [rbx"), 1);
        assert_eq!(count(&listing(Touch::Load), "mov rax, [rbx]"), 1);
        assert_eq!(count(&listing(Touch::Flush), "clflush"), 1);
    }
}
