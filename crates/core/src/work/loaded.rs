//! A pointer chase in memory while other CPUs load it.

use crate::kernel::mix::Mix;
use crate::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A pointer chase in memory, and what the other CPUs do meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Loaded {
    /// Bytes of the chase; what is left of the case's working set is divided among the other threads.
    pub chase: Bytes,
    /// What the other threads do.
    pub load: Load,
}

/// What loads the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// There is no other thread.
    Alone,
    /// The other threads run, and leave memory alone.
    Idle,
    /// They walk over memory of their own.
    Mixed {
        /// What they do to it.
        mix: Mix,
        /// Nanoseconds that each pauses after a few KiB; 0: flat out.
        delay_ns: u32,
    },
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Alone => f.write_str("alone"),
            Load::Idle => f.write_str("others idle"),
            Load::Mixed { mix, delay_ns: 0 } => write!(f, "others {mix} flat out"),
            Load::Mixed { mix, delay_ns } => write!(f, "others {mix} with pauses of {delay_ns} ns"),
        }
    }
}
