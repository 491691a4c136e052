//! Cases: what will be measured. Everything the tool does is a list of them, shown by `--list` before anything runs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::Variant;
use crate::memory::MemorySpec;
use crate::units::Bytes;

/// What is done: for now kernels over streams; pointer chases and hand-overs are further variants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A kernel over its streams: a bandwidth.
    Kernel(Variant),
}

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// After a warm-up, many short samples.
    Steady,
    /// STREAM's: each sample is one pass, none is left out but the first, the best counts.
    Stream,
}

/// One thing to measure: kernel x memory x placement x working set x protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// What is done.
    pub work: Work,
    /// What kind of memory it is done to.
    pub memory: MemorySpec,
    /// One thread on each of these CPUs; the first leads.
    pub cpus: Vec<u32>,
    /// Bytes touched by one repetition, over all threads and streams.
    pub working_set: Bytes,
    /// How samples are taken.
    pub protocol: Protocol,
}

impl Case {
    /// The kernel variant of a bandwidth case.
    pub fn variant(&self) -> &Variant {
        let Work::Kernel(variant) = &self.work;
        variant
    }

    /// Threads used.
    pub fn threads(&self) -> usize {
        self.cpus.len()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads();
        let plural = if threads == 1 { "" } else { "s" };
        let Work::Kernel(variant) = &self.work;
        write!(f, "{variant}, {}, {}, {threads} thread{plural}", self.working_set, self.memory)
    }
}
