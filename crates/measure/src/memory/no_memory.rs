//! Why memory can't be had.

use std::io;
use std::path::PathBuf;

use crate::os::memory;
use membound_core::memory::MemoryKind;
use membound_core::memory::policy::Policy;
use membound_core::units::Bytes;

/// Why a memory kind can't be had.
#[derive(Debug, thiserror::Error)]
pub enum NoMemory {
    /// The mapping was refused.
    #[error("{bytes} of {kind} memory were refused: {source}{hint}")]
    Refused {
        /// How much was asked for.
        bytes: Bytes,
        /// Which kind.
        kind: MemoryKind,
        /// The system's answer.
        source: io::Error,
        /// What helps.
        hint: &'static str,
    },
    /// The policy was refused.
    #[error("memory could not be placed ({policy}): {source}{hint}")]
    Policy {
        /// It.
        policy: Box<Policy>,
        /// The system's answer.
        source: io::Error,
        /// What helps.
        hint: &'static str,
    },
    /// A file or device that the kind needs can't be used.
    #[error("{path}: {source}{hint}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
        /// What helps.
        hint: &'static str,
    },
    /// A run may not take so much.
    #[error(
        "{bytes} more is not to be had: {taken} of the {most} that a run may take are in use (40 % of what is free, or of what \
         its control group or its ulimit -v leaves); ask for less with --size, or for fewer --threads"
    )]
    Allowance {
        /// How much was asked for.
        bytes: Bytes,
        /// What the run has already.
        taken: Bytes,
        /// What it may have.
        most: Bytes,
    },
    /// This machine (or what the user named) has no such memory.
    #[error("{why}; {cure}")]
    Absent {
        /// What is missing.
        why: String,
        /// What helps.
        cure: String,
    },
}

impl NoMemory {
    pub(crate) fn absent(why: impl Into<String>, cure: &str) -> Self {
        NoMemory::Absent { why: why.into(), cure: cure.into() }
    }

    pub(crate) fn refused(kind: MemoryKind, bytes: usize, source: io::Error) -> Self {
        // What is not the kernel's words is ours, which say all.
        let hint = if source.raw_os_error().is_some() { memory::cure(kind) } else { "" };
        NoMemory::Refused { bytes: Bytes(bytes as u64), kind, source, hint }
    }
}
