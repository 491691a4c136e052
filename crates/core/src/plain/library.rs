//! Copying and filling by the C library's own functions.

use crate::plain::work::PlainWork;
use crate::units::words;

words! {
    /// A function of the C library that moves or fills memory.
    Library, "library function" {
        /// Copies memory that does not overlap.
        Memcpy = "memcpy",
        /// Copies memory that may overlap.
        Memmove = "memmove",
        /// Fills memory with one byte.
        Memset = "memset",
    }
}

impl PlainWork for Library {
    const ABOUT: &'static str =
        "Compare memcpy, memmove and memset of the C library with kernels that do the same, over sizes and threads";
    const TITLE: &'static str = "The C library's functions";

    fn fills(self) -> bool {
        self == Library::Memset
    }
}
