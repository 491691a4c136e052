//! Whole lines copied or filled with zeros, each by one instruction, as machine code.
//!
//! ```text
//! for each repetition:
//!   take the pointers (the instructions' own move on, line by line)
//!   for each of the call's blocks: write four lines
//!   for each of the call's vectors: write one line
//! wait for stores that went around the caches
//! ```

use membound_core::kernel::Unsupported;
use membound_core::kernel::isa::Isa;

use crate::asm::instruction_set::{Ability, InstructionSet, LineStore};
use crate::code::{Call, MachineCode};

/// Lines of one trip of the main loop: the loop itself is then little beside them.
pub(crate) const LINES_PER_TRIP: u64 = 4;

/// The code; its [`Call`]'s first pointers are the destination, the source, and how far the source moves from line to line.
pub(crate) fn lines<S: InstructionSet>(by: LineStore, isa: Isa) -> Result<MachineCode, Unsupported> {
    S::check(Ability::Line(by), isa)?;
    let mut asm = S::new(isa);
    asm.prologue();
    let again = asm.here();
    asm.load_pointers(3);
    let main_loop = trips(&mut asm, by, Call::BLOCKS, LINES_PER_TRIP);
    trips(&mut asm, by, Call::VECTORS, 1);
    asm.count_down(S::REPETITIONS, again);
    if by.is_weakly_ordered() {
        asm.fence_stores();
    }
    asm.end(main_loop)
}

/// As many trips of so many lines as this word of the call says.
fn trips<S: InstructionSet>(asm: &mut S, by: LineStore, count: i32, lines: u64) -> S::Label {
    let [to, from, step] = [S::POINTERS[0], S::POINTERS[1], S::POINTERS[2]];
    let trips = asm.begin_trips(count);
    for _ in 0..lines {
        asm.write_line(by, to, from);
        if by.copies() {
            asm.add(from, step);
        }
    }
    asm.end_trips(trips)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// What LLVM's assembler makes of `movdir64b rbx, [rcx]` and of `clzero`.
    #[test]
    fn lines_are_written_by_the_instruction_asked_for() {
        let isa = Isa { movdir64b: true, clzero: true, ..Isa::NONE };
        for (by, word, moves) in [(LineStore::Movdir64b, "660f38f819", 5), (LineStore::Clzero, "0f01fc", 0)] {
            let listing = crate::asm::listing(&crate::asm::lines(by, isa).unwrap());
            let count = |what: &str| listing.matches(what).count();
            assert_eq!([count(word), count("add rbx, 40h"), count("add rcx, rdx")], [5, 5, moves], "{listing}");
            assert_eq!(count("sfence"), 1, "{listing}");
        }
    }
}
