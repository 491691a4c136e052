//! What all systems are told, or tell, in one form.

use std::fs::File;

use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;

/// Names the process that a child lives with, in the child's environment.
pub const LEASH: &str = "MEMBOUND_LEASH";
/// CPUs that daemons, services and kernel threads may use together: so many, or this share of all, whichever is more.
const QUIET_CPUS: f64 = 0.5;
const QUIET_SHARE: f64 = 0.01;

/// CPUs that are used on a quiet machine at most, of so many.
pub(super) fn quiet(cpus: usize) -> f64 {
    QUIET_CPUS.max(QUIET_SHARE * cpus as f64)
}

/// What is mapped. Some of it is read by some systems alone.
#[allow(dead_code)]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mapped<'a> {
    /// Memory without a file.
    Anonymous {
        /// Whether children share it.
        shared: bool,
        /// Bytes of a page, where pages come from a pool of huge pages.
        pool_page: Option<usize>,
        /// The kind, where the system maps memory types.
        kind: MemoryKind,
        /// The node to lie on, where the system takes it when memory is mapped.
        node: Option<u32>,
    },
    /// A file or device.
    File {
        /// It, long enough.
        file: &'a File,
        /// Whether writes reach it.
        shared: bool,
        /// Where to start, bytes.
        offset: u64,
    },
}

/// What is told of the pages of a range of addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Smaps {
    /// In huge pages.
    pub huge: Bytes,
    /// In memory.
    pub resident: Bytes,
    /// Locked there.
    pub locked: Bytes,
}

/// What is done with a set of nodes, by Linux' numbers (linux/mempolicy.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing of our own.
    Default = 0,
    /// The node first, others when it is full.
    Preferred = 1,
    /// No other nodes.
    Bind = 2,
    /// In turn.
    Interleave = 3,
    /// In turn by the system's weights (Linux 6.9).
    WeightedInterleave = 6,
}

/// Counters of the calling thread since it started; 0 where the system does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadUsage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
    /// Involuntary context switches.
    pub switches: u64,
    /// Page faults.
    pub faults: u64,
}
