//! A line that two cores pass back and forth, as machine code.
//!
//! ```text
//! for each repetition
//!   until [line] was `mine` and has become `theirs`: swap [line], `mine` -> `theirs`   (at most 65536 attempts)
//! ```
//! Both sides run the same code with `mine` and `theirs` exchanged, on one word of one line. An attempt needs the line
//! exclusively, so one transfer of the line is one hand-over. Waiting by plain loads would fetch the line to read and
//! once more to write, and with a word for each way two lines would travel: both measure something else.
//!
//! There is no `pause` between attempts: it takes 40 to 140 cycles, by which a waiting core would notice the line late.
//! An attempt that fails has the line already, or its request for it is under way, which is the least a hand-over needs.

use membound_core::kernel::Unsupported;
use membound_core::kernel::isa::Isa;

use crate::asm::instruction_set::InstructionSet;
use crate::code::{Call, MachineCode};

/// Attempts at one hand-over after which the code returns, so that its caller can see whether to go on: below 1 ms.
pub const ATTEMPTS: u32 = 1 << 16;

/// Which of the two values of the line says that it is one's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The value of fresh memory.
    First,
    /// The other.
    Second,
}

/// The code of one side.
pub(crate) fn handover<S: InstructionSet>(isa: Isa) -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(isa);
    let (passed, stop) = (asm.label(), asm.label());
    let words = [S::POINTERS[0], S::POINTERS[1], S::POINTERS[2]];
    asm.prologue();
    for (k, word) in words.into_iter().enumerate() {
        asm.load_word(word, S::of_call(Call::POINTERS + 8 * k as i32));
    }
    let again = asm.here();
    let attempt = asm.attempt(words, ATTEMPTS, passed);
    asm.jump(stop);
    asm.place(passed);
    asm.count_down(S::REPETITIONS, again);
    asm.place(stop);
    asm.store_word(S::of_call(Call::POINTERS + 24), S::REPETITIONS);
    asm.end(attempt)
}

/// The arguments for so many hand-overs of the line at this address by one side.
pub fn call(line: u64, side: Side, handovers: u64) -> Call {
    let mut call = Call::empty(handovers.max(1));
    let [mine, theirs] = match side {
        Side::First => [0, 1],
        Side::Second => [1, 0],
    };
    call.pointers[..3].copy_from_slice(&[line, mine, theirs]);
    call
}

/// After a call: the hand-overs that it did not come to, because the other side did not answer.
pub fn left(call: &Call) -> u64 {
    call.pointers[3]
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    /// Nothing but the attempt, its outcome and its count stands in the loop, and nothing else touches memory there.
    #[test]
    fn the_loop_is_tight() {
        let code = crate::asm::handover().unwrap();
        let listing = crate::asm::listing(&code);
        let from = listing.find("mov rax, rcx").unwrap();
        let until = listing[from..].find("jmp").unwrap() + from;
        let body: Vec<&str> = listing[from..until].lines().map(str::trim).collect();
        assert_eq!(listing[from..until].matches('[').count(), 1, "{listing}");
        assert_eq!(listing.matches("lock cmpxchg [rbx], rdx").count(), 1, "{listing}");
        assert!(body.iter().filter(|line| !line.is_empty()).count() <= 6, "{listing}");
    }
}
