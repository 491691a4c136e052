//! Copying and filling by one instruction.

use crate::plain::work::PlainWork;
use crate::units::words;

words! {
    /// An instruction that copies or fills a string of bytes.
    Strings, "string instruction" {
        /// Copies byte by byte; processors with ERMS or FSRM do so in lines.
        Movsb = "rep-movsb",
        /// Fills byte by byte; processors with ERMS do so in lines.
        Stosb = "rep-stosb",
    }
}

impl PlainWork for Strings {
    const ABOUT: &'static str =
        "Compare rep movsb and rep stosb with kernels that do the same by vectors, over sizes and threads";
    const TITLE: &'static str = "String instructions";

    fn fills(self) -> bool {
        self == Strings::Stosb
    }
}
