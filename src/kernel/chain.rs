//! A pointer chase: each load's address is what the load before it delivered, so that one load follows another and the
//! time of a load is its latency.
//!
//! ```text
//! for each repetition, 16 times: address = [address]
//! call.pointers[0] = address                (so that the next call goes on from there)
//! ```

use iced_x86::code_asm::*;

use super::Unsupported;
use super::code::{Call, MachineCode};
use super::probe::build;
use super::x86_64::{epilogue, finish, prologue};

pub use super::probe::LINE;

/// Loads in one repetition: the loop's own two instructions hide behind them.
pub const LOADS: u64 = 16;
/// Words of a line.
const LINE_WORDS: usize = LINE as usize / 8;

/// The code of a chase: its [`Call`]'s first pointer is where it starts and, afterwards, where it has come to.
pub fn chase() -> Result<MachineCode, Unsupported> {
    build(|asm| {
        let (mut again, mut exit) = (asm.create_label(), asm.create_label());
        prologue(asm)?;
        asm.mov(rbx, qword_ptr(r15 + Call::POINTERS))?;
        asm.set_label(&mut again)?;
        for _ in 0..LOADS {
            asm.mov(rbx, qword_ptr(rbx))?;
        }
        asm.dec(r14)?;
        asm.jnz(again)?;
        asm.mov(qword_ptr(r15 + Call::POINTERS), rbx)?;
        epilogue(asm, &mut exit, false)?;
        finish(asm, again, exit)
    })
}

/// Links the lines of `words`, which start at `address`, to one cycle in random order (Sattolo, Information Processing
/// Letters 22, 1986): the first word of each line is the address of the next one. A chase comes back to a line only
/// after it has been at all others. Returns the number of lines.
pub fn link(words: &mut [f64], address: u64, seed: u64) -> u64 {
    let lines = u32::try_from(words.len() / LINE_WORDS).unwrap_or(u32::MAX);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next: Vec<u32> = (0..lines).collect();
    for last in (1..next.len()).rev() {
        next.swap(last, random.usize(..last));
    }
    for (line, next) in words.chunks_exact_mut(LINE_WORDS).zip(&next) {
        line[0] = f64::from_bits(address + u64::from(*next) * LINE);
    }
    u64::from(lines)
}

/// Whether a walk from the first line comes back to it after all lines, and not before.
pub fn is_one_cycle(words: &[f64], address: u64) -> bool {
    let lines = words.len() / LINE_WORDS;
    let mut line = 0;
    for step in 1..=lines {
        let offset = words[line * LINE_WORDS].to_bits().wrapping_sub(address);
        line = (offset / LINE) as usize;
        if !offset.is_multiple_of(LINE) || line >= lines || (line == 0) != (step == lines) {
            return false;
        }
    }
    lines > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_linked_to_one_cycle() {
        for lines in [1, 2, 3, 64, 1000] {
            let mut words = vec![0.0; lines * LINE_WORDS];
            assert_eq!(link(&mut words, 0x7000, 7), lines as u64);
            assert!(is_one_cycle(&words, 0x7000), "{lines}");
        }
        // Two cycles of two lines each.
        let mut words = vec![0.0; 4 * LINE_WORDS];
        for (line, next) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
            words[line * LINE_WORDS] = f64::from_bits(0x7000 + next * LINE);
        }
        assert!(!is_one_cycle(&words, 0x7000));
        assert!(!is_one_cycle(&[], 0x7000));
    }

    #[test]
    fn a_chase_is_dependent_loads() {
        let listing = super::super::listing(&chase().unwrap());
        assert_eq!(listing.matches("mov rbx, [rbx]").count() as u64, LOADS, "{listing}");
    }
}
