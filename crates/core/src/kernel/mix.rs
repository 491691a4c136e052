//! Mixes of reads and writes that load the memory.
//!
//! ```text
//! for each repetition: 12 lines, each loaded, every k-th then stored    (k = 3, 2, 1: 75:25, 67:33, 50:50 on the bus)
//! a fence, if stores went around the caches
//! ```
//! A line is loaded before it is stored, so a store needs no further read: what the program reads and writes is what
//! crosses the bus. `nt` stores whole lines around the caches and loads nothing. Accesses have 128 bits, which every
//! processor has; memory is slower than that.

use crate::units::{LINE, words};

words! {
    /// How the bus is loaded: bytes read to bytes written.
    Mix, "mix" {
        /// Loads alone.
        Read = "100:0",
        /// Every third line is stored too.
        ThreeToOne = "75:25",
        /// Every second line is stored too.
        TwoToOne = "67:33",
        /// Every line is stored too.
        OneToOne = "50:50",
        /// Non-temporal stores alone.
        Nt = "nt",
    }
}

/// Lines of one repetition: a whole number of each mix's rhythms.
pub const LINES: u64 = 12;
/// Bytes that one repetition walks over.
pub const STRIDE: u64 = LINES * LINE;

impl Mix {
    /// Whether a line of a repetition is stored.
    pub fn stores(self, line: u64) -> bool {
        match self {
            Mix::Read => false,
            Mix::ThreeToOne => line.is_multiple_of(3),
            Mix::TwoToOne => line.is_multiple_of(2),
            Mix::OneToOne | Mix::Nt => true,
        }
    }

    /// Bytes loaded and stored by one repetition.
    pub fn bytes(self) -> [u64; 2] {
        let stored = (0..LINES).filter(|line| self.stores(*line)).count() as u64 * LINE;
        [if self == Mix::Nt { 0 } else { STRIDE }, stored]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_what_they_are_called() {
        for mix in Mix::ALL {
            let [loaded, stored] = mix.bytes();
            let share = 100.0 * loaded as f64 / (loaded + stored) as f64;
            let name = mix.word().split_once(':').map_or(0.0, |(read, _)| read.parse().unwrap());
            assert_eq!(share.round(), name, "{mix}");
        }
    }
}
