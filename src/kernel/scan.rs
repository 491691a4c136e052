//! Scans: the same accesses at one offset after another, to see where an offset costs something.

use std::fmt;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is repeated at each offset. Accesses are of 4, 8, 16, 32 or 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scan {
    /// Loads that do not wait for each other, this many bytes beyond the start of a page.
    Load {
        /// Bytes of one load.
        bytes: u32,
    },
    /// The same with stores.
    Store {
        /// Bytes of one store.
        bytes: u32,
    },
    /// A store, and a load from another page, this many bytes further in its page than the store in its own.
    Aliasing {
        /// Bytes of either.
        bytes: u32,
    },
    /// A load that needs what the store before it wrote, this many bytes beyond the store's first; the next store
    /// stores what was loaded.
    Forwarding {
        /// Bytes of the store.
        stored: u32,
        /// Bytes of the load.
        loaded: u32,
    },
}

impl Scan {
    /// The offsets, in bytes, rising.
    pub fn offsets(self) -> RangeInclusive<i64> {
        match self {
            Scan::Load { .. } | Scan::Store { .. } => 0..=4095,
            Scan::Aliasing { .. } => -128..=128,
            Scan::Forwarding { stored, loaded } => -i64::from(loaded)..=i64::from(stored),
        }
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scan::Load { bytes } => write!(f, "loads of {bytes} B by offset"),
            Scan::Store { bytes } => write!(f, "stores of {bytes} B by offset"),
            Scan::Aliasing { bytes } => write!(f, "load beside a store, {bytes} B, by distance in the page"),
            Scan::Forwarding { stored, loaded } => {
                write!(f, "store of {stored} B to load of {loaded} B, by offset")
            }
        }
    }
}
