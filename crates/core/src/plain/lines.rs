//! Copying and filling by instructions that write whole lines.

use crate::plain::work::PlainWork;
use crate::units::words;

words! {
    /// What an instruction that writes a whole line is used for.
    Lines, "instruction for lines" {
        /// Copies: x86's movdir64b, a direct store of 64 bytes.
        Movdir64b = "movdir64b",
        /// Fills with a byte that is not zero, by the same instruction: it copies one line again and again.
        Movdir64bFill = "movdir64b-fill",
        /// Fills with zeros: clzero of AMD's processors.
        Clzero = "clzero",
        /// Fills with zeros, block by block: Arm's dc zva.
        DcZva = "dc-zva",
    }
}

impl PlainWork for Lines {
    const ABOUT: &'static str =
        "Compare movdir64b, clzero and dc zva, which write whole lines, with kernels that do the same by vectors";
    const TITLE: &'static str = "Instructions that write whole lines";

    fn fills(self) -> bool {
        self != Lines::Movdir64b
    }

    /// Whole lines need nothing of what was there.
    fn write_allocates(self) -> bool {
        false
    }

    fn byte(self) -> u8 {
        if self == Lines::Movdir64bFill { 0x5a } else { 0 }
    }
}
