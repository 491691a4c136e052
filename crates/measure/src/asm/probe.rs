//! The touches whose cost tells memory types apart, as machine code.

use membound_core::kernel::Unsupported;
use membound_core::memory::behaviour::Touch;
use membound_core::units::LINE;

use crate::asm::instruction_set::{Address, InstructionSet};
use crate::code::{Call, MachineCode};

/// The code that touches `blocks` lines from the first pointer of its [`Call`] on.
pub(crate) fn touch<S: InstructionSet>(touch: Touch) -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(S::BASELINE);
    let done = asm.label();
    let [base, lines, loaded] = [S::POINTERS[0], S::POINTERS[1], S::POINTERS[8]];
    let word = |word: i64| Address { base, offset: 8 * word };
    asm.prologue();
    asm.load_word(base, S::of_call(Call::POINTERS));
    asm.load_word(lines, S::of_call(Call::BLOCKS));
    asm.jump_if_zero(lines, done);
    let again = asm.here();
    match touch {
        Touch::Load => asm.load_word(loaded, word(0)),
        Touch::StoreWord => asm.store_word(word(0), lines),
        Touch::StoreLine => (0..8).for_each(|k| asm.store_word(word(k), lines)),
        Touch::Flush => asm.flush(word(0)),
    }
    asm.advance(base, LINE as i32);
    asm.count_down(lines, again);
    asm.place(done);
    asm.end(again)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn touches_are_what_they_say() {
        let listing = |kind| crate::asm::listing(&crate::asm::touch(kind).unwrap());
        let count = |text: &str, what: &str| text.matches(what).count();
        assert_eq!(count(&listing(Touch::StoreLine), "mov [rbx"), 8);
        assert_eq!(count(&listing(Touch::StoreWord), "mov [rbx"), 1);
        assert_eq!(count(&listing(Touch::Load), "mov rax, [rbx]"), 1);
        assert_eq!(count(&listing(Touch::Flush), "clflush"), 1);
    }
}
