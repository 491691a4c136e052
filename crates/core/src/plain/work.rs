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

    /// That kernel's name in the catalog.
    fn kernel(self) -> &'static str {
        if self.fills() { "store" } else { "copy" }
    }

    /// Arrays that it touches: source and destination, or the destination alone.
    fn arrays(self) -> u64 {
        if self.fills() { 1 } else { 2 }
    }
}
