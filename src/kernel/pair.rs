//! Two lines loaded from memory again and again, as x86-64 machine code.
//!
//! ```text
//! for each repetition:
//!   load a; load b      they do not wait for each other: what serves both can do so at once, or not
//!   flush a; flush b    out of all caches, so that the next loads go to memory
//!   mfence              the flushes are done before the next loads
//! ```

use iced_x86::code_asm::*;

use super::Unsupported;
use super::code::{Call, MachineCode};
use super::x86_64::{epilogue, finish, prologue};

/// The code; its [`Call`] has the two addresses as its first pointers and writes nothing.
pub fn pair() -> Result<MachineCode, Unsupported> {
    generate().map_err(|fault| Unsupported::Assembler(fault.to_string()))
}

fn generate() -> Result<MachineCode, iced_x86::IcedError> {
    let mut asm = CodeAssembler::new(64)?;
    let (mut again, mut exit) = (asm.create_label(), asm.create_label());
    prologue(&mut asm)?;
    asm.mov(rbx, qword_ptr(r15 + Call::POINTERS))?;
    asm.mov(rcx, qword_ptr(r15 + Call::POINTERS + 8))?;
    asm.set_label(&mut again)?;
    asm.mov(rax, qword_ptr(rbx))?;
    asm.mov(rdx, qword_ptr(rcx))?;
    asm.clflush(byte_ptr(rbx))?;
    asm.clflush(byte_ptr(rcx))?;
    asm.mfence()?;
    asm.dec(r14)?;
    asm.jnz(again)?;
    epilogue(&mut asm, &mut exit, false)?;
    finish(&mut asm, again, exit)
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_lines_are_loaded_flushed_and_waited_for() {
        let listing = super::super::listing(&super::pair().unwrap());
        let mut rest = listing.as_str();
        for what in ["mov rax, [rbx]", "mov rdx, [rcx]", "clflush", "[rbx]", "clflush", "[rcx]", "mfence", "jne"] {
            let at = rest.find(what);
            assert!(at.is_some(), "{what} is missing or misplaced:\n{listing}");
            rest = &rest[at.unwrap_or(0) + what.len()..];
        }
    }
}
