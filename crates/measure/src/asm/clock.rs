//! Additions that tell the core's clock, and how much of the core a thread has, as machine code.

use membound_core::kernel::Unsupported;

use crate::asm::instruction_set::InstructionSet;
use crate::code::MachineCode;

/// Additions in one trip of [`core_clock_chain`].
pub const CHAIN_LINKS: u64 = 100;
/// Sums that [`wide_additions`] has, as many as any core adds in a cycle.
const SUMS: u64 = 8;
/// Additions in one trip of [`wide_additions`].
pub const WIDE_ADDS: u64 = 96;

/// A dependent chain of additions: one link takes one core cycle on every core, so timing it gives the true core
/// clock without counters. Register plus register: some cores fold added constants while renaming.
/// Runs `repetitions` x [`CHAIN_LINKS`] links.
pub(crate) fn core_clock_chain<S: InstructionSet>() -> Result<MachineCode, Unsupported> {
    additions::<S>(CHAIN_LINKS, 1)
}

/// Independent additions: as many in a cycle as the core can. Runs `repetitions` x [`WIDE_ADDS`].
pub(crate) fn wide_additions<S: InstructionSet>() -> Result<MachineCode, Unsupported> {
    additions::<S>(WIDE_ADDS, SUMS)
}

/// So many additions in a trip, to so many sums in turns.
fn additions<S: InstructionSet>(count: u64, sums: u64) -> Result<MachineCode, Unsupported> {
    let mut asm = S::new(S::BASELINE);
    let one = S::POINTERS[1];
    let others: Vec<S::Register> =
        S::POINTERS.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, r)| *r).rev().collect();
    asm.prologue();
    asm.set(one, 1);
    let again = asm.here();
    (0..count).for_each(|i| asm.add(others[(i % sums) as usize], one));
    asm.count_down(S::REPETITIONS, again);
    asm.end(again)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    /// No addition of a trip needs one of the seven before it.
    #[test]
    fn wide_additions_are_independent() {
        let listing = crate::asm::listing(&crate::asm::wide_additions().unwrap());
        let sums: Vec<&str> = listing.lines().filter_map(|line| line.split("add ").nth(1)).collect();
        assert_eq!(sums.len() as u64, super::WIDE_ADDS, "{listing}");
        for eight in sums.windows(8) {
            let distinct: std::collections::HashSet<_> = eight.iter().collect();
            assert_eq!(distinct.len(), 8, "{eight:?}");
        }
    }
}
