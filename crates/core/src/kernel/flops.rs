//! Arithmetic in registers alone: what a core computes when it waits for no data. Here is what is computed;
//! the assembler's `flops.rs` makes machine code of it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::{Element, Width};
use crate::machine::spec::Balance;

/// Independent chains of floating-point instructions: each instruction needs the one before in its own chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Flops {
    /// What is computed with.
    pub element: Element,
    /// Width of an instruction.
    pub width: Width,
    /// Which instructions.
    pub balance: Balance,
}

impl Flops {
    /// Independent chains where there are 16 registers, two of which hold operands. x86-64's processors start up to 4 instructions in a
    /// cycle, which take 3 cycles, or 2 that take up to 5: these keep all units busy.
    pub const CHAINS: u64 = 12;
    /// Independent chains where there are 32 registers: A64FX has 2 x 9 instructions under way, Apple's M1 4 x 4, Cortex-X925 6 x 4.
    pub const CHAINS_OF_32: u64 = 24;
    /// Instructions of each chain in one trip.
    pub const LINKS: u64 = 8;

    /// Flops of one trip of so many chains.
    pub fn per_trip(self, chains: u64) -> u64 {
        let fused = if self.balance == Balance::Fma { 2 } else { 1 };
        chains * Flops::LINKS * self.width.elements(self.element) * fused
    }

    /// What a chain of so many does: the first half of them add where additions and multiplications take turns.
    pub fn link(self, chain: u64, chains: u64) -> Balance {
        match self.balance {
            Balance::Separate if chain < chains / 2 => Balance::Add,
            Balance::Separate => Balance::Multiply,
            balance => balance,
        }
    }

    /// What so many trips make of a number that all of so many chains start from, in plain Rust: the sum over all chains. Whole
    /// numbers stay exact as far as the element holds them, which is where `None` begins.
    pub fn play(self, chains: u64, start: f64, factor: f64, addend: f64, trips: u64) -> Option<f64> {
        let mut sum = 0.0;
        for chain in 0..chains {
            sum += self.play_chain(self.link(chain, chains), start, factor, addend, trips * Flops::LINKS)?;
        }
        self.exact(sum)
    }

    fn play_chain(self, link: Balance, start: f64, factor: f64, addend: f64, links: u64) -> Option<f64> {
        // With the factor -1 two links of any chain but of additions are none, so that any number of them is quick.
        let swings = factor == -1.0 && link != Balance::Add;
        match link {
            Balance::Add => self.exact(start + addend * links as f64),
            _ if swings && links > 2 => self.play_chain(link, start, factor, addend, links % 2),
            link => (0..links).try_fold(start, |value, _| {
                let product = value * factor;
                self.exact(if link == Balance::Fma { product + addend } else { product })
            }),
        }
    }

    fn exact(self, value: f64) -> Option<f64> {
        (value.abs() <= self.element.exact_up_to()).then_some(value)
    }
}

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in registers, {}, {}", self.balance, self.width, self.element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(balance: Balance) -> Flops {
        Flops { element: Element::Double, width: Width::W256, balance }
    }

    /// 12 chains x 8 links x 4 doubles, twice that where fused.
    #[test]
    fn flops_are_counted_by_hand() {
        assert_eq!(of(Balance::Add).per_trip(12), 384);
        assert_eq!(of(Balance::Fma).per_trip(12), 768);
        assert_eq!(Flops { element: Element::Float, ..of(Balance::Fma) }.per_trip(12), 1536);
        assert_eq!(Flops { width: Width::Scalar, ..of(Balance::Separate) }.per_trip(12), 96);
    }

    /// 24 chains x 8 links x 2 doubles x 2 flops; 24 x (3 + 8 x 5), 12 x 3 x 2^8.
    #[test]
    fn twice_the_chains_do_twice_as_much() {
        assert_eq!(Flops { width: Width::W128, ..of(Balance::Fma) }.per_trip(24), 768);
        assert_eq!(of(Balance::Add).play(24, 3.0, 2.0, 5.0, 1), Some(1032.0));
        assert_eq!(of(Balance::Separate).play(24, 3.0, 2.0, 5.0, 1), Some(516.0 + 9216.0));
    }

    #[test]
    fn chains_are_played_by_hand() {
        // 12 x (3 + 8 x 5).
        assert_eq!(of(Balance::Add).play(12, 3.0, 2.0, 5.0, 1), Some(516.0));
        // 12 x 3 x 2^8.
        assert_eq!(of(Balance::Multiply).play(12, 3.0, 2.0, 5.0, 1), Some(9216.0));
        // x -> 2x + 1 makes (x + 1) 2^8 - 1 of x in 8 links: 12 x 1023.
        assert_eq!(of(Balance::Fma).play(12, 3.0, 2.0, 1.0, 1), Some(12276.0));
        assert_eq!(of(Balance::Separate).play(12, 3.0, 2.0, 5.0, 1), Some(516.0 / 2.0 + 9216.0 / 2.0));
        // x -> 1 - x swings between 3 and -2; 8 links end where they began.
        assert_eq!(of(Balance::Fma).play(12, 3.0, -1.0, 1.0, 1 << 40), Some(36.0));
        assert_eq!(of(Balance::Multiply).play(12, 3.0, 2.0, 0.0, 100), None, "no longer exact");
    }
}
