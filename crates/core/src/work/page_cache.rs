//! A kernel over fresh memory beside a filled page cache.

use crate::kernel::Variant;
use crate::memory::filler::Filler;
use crate::units::{Bytes, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// What is done against page cache that took a program's memory.
    Cure, "cure" {
        /// Nothing.
        Nothing = "nothing",
        /// The kernel drops the page cache first; takes root.
        DropCaches = "drop-caches",
        /// A sweep pushes the page cache out first.
        Sweep = "sweep",
        /// Each thread's memory comes from its own node alone.
        Bind = "bind",
        /// Each thread's memory comes from its own node first.
        Preferred = "preferred",
        /// Memory comes from one node after the other.
        Interleave = "interleave",
    }
}

words! {
    /// What the CPUs of a kernel run.
    #[derive(Default)]
    Workers, "kind of worker" {
        /// Threads of one process.
        #[default]
        Threads = "threads",
        /// A process each, with memory of its own.
        Processes = "processes",
    }
}

impl Workers {
    /// Whether they are what records before this field had.
    fn is_usual(&self) -> bool {
        *self == Workers::Threads
    }
}

/// A kernel over fresh memory, and the page cache beside it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct PageCache {
    /// The kernel.
    pub variant: Variant,
    /// Bytes of the file that fills the page cache; 0: none.
    pub file: Bytes,
    /// How its pages get there.
    pub filler: Filler,
    /// What is done against it.
    pub cure: Cure,
    /// What each CPU runs.
    #[serde(default, skip_serializing_if = "Workers::is_usual")]
    pub workers: Workers,
}

impl fmt::Display for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            Bytes(0) => write!(f, "{}, beside no file", self.variant)?,
            file => write!(f, "{}, beside {file} of page cache ({})", self.variant, self.filler)?,
        }
        if self.workers == Workers::Processes {
            f.write_str(", as processes")?;
        }
        if self.cure == Cure::Nothing { Ok(()) } else { write!(f, ", cure: {}", self.cure) }
    }
}
