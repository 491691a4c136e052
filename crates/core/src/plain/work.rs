//! What a plain experiment says of its work.

use std::fmt::{Debug, Display};

use schemars::JsonSchema;
use serde::Serialize;

/// Work that each thread does in memory of its own, again and again, and that a kernel of the catalog does too.
pub trait PlainWork: Copy + Ord + Debug + Display + Serialize + JsonSchema + 'static {
    /// What the experiment finds out, in a line.
    const ABOUT: &'static str;
    /// The title of its answer.
    const TITLE: &'static str;

    /// Whether memory is filled, not copied. The kernel that does the same is measured beside it, with regular and with
    /// non-temporal stores.
    fn fills(self) -> bool;

    /// What memory is filled with, if it is filled: usually a byte that is not zero, since some processors shorten the writing
    /// of zeros.
    fn byte(self) -> u8 {
        0x5a
    }

    /// That kernel's name in the catalog.
    fn kernel(self) -> &'static str {
        match self.fills() {
            false => "copy",
            true if self.byte() == 0 => "init",
            true => "store",
        }
    }

    /// Whether its stores first read the lines they write, as far as is known. What may avoid that from some length on is counted as
    /// if it did not, as [`StoreKind::write_allocates`](crate::kernel::StoreKind::write_allocates) does.
    fn write_allocates(self) -> bool {
        true
    }

    /// Arrays that it touches: source and destination, or the destination alone.
    fn arrays(self) -> u64 {
        if self.fills() { 1 } else { 2 }
    }
}
