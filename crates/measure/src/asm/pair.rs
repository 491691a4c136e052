//! Two lines loaded from memory again and again, as machine code.
//!
//! ```text
//! for each repetition:
//!   load a; load b      they do not wait for each other: what serves both can do so at once, or not
//!   flush a; flush b    out of all caches, so that the next loads go to memory
//!   fence               the flushes are done before the next loads
//! ```

use membound_core::kernel::Unsupported;

use crate::asm::instruction_set::{Address, InstructionSet};
use crate::code::{Call, MachineCode};

/// The code; its [`Call`] has the two addresses as its first pointers and writes nothing.
pub(crate) fn pair<S: InstructionSet>() -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(S::BASELINE);
    let lines = [S::POINTERS[0], S::POINTERS[1]];
    let at = |base| Address { base, offset: 0 };
    asm.prologue();
    asm.load_word(lines[0], S::of_call(Call::POINTERS));
    asm.load_word(lines[1], S::of_call(Call::POINTERS + 8));
    let again = asm.here();
    asm.load_word(S::POINTERS[8], at(lines[0]));
    asm.load_word(S::POINTERS[2], at(lines[1]));
    lines.into_iter().for_each(|line| asm.flush(at(line)));
    asm.fence();
    asm.count_down(S::REPETITIONS, again);
    asm.end(again)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    #[test]
    fn both_lines_are_loaded_flushed_and_waited_for() {
        let listing = crate::asm::listing(&crate::asm::pair().unwrap());
        let mut rest = listing.as_str();
        for what in ["mov rax, [rbx]", "mov rdx, [rcx]", "clflush", "[rbx]", "clflush", "[rcx]", "mfence", "jne"] {
            let at = rest.find(what);
            assert!(at.is_some(), "{what} is missing or misplaced:\n{listing}");
            rest = &rest[at.unwrap_or(0) + what.len()..];
        }
    }
}
