//! Kernels: what is done to memory. A kernel is a row of [`CATALOG`]; its text decides its streams, its traffic and
//! the machine code that runs. [`Variant`] adds how the streams are touched: width, store kind, load kind, unroll.

mod catalog;
pub mod chase;
#[cfg(target_arch = "x86_64")]
mod chase_x86_64;
pub mod code;
pub mod formula;
pub mod naive;
#[cfg(target_arch = "x86_64")]
pub mod probe;
pub mod scan;
#[cfg(target_arch = "x86_64")]
mod scan_x86_64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::words;

pub use catalog::{CATALOG, Kernel, Rows, Traffic};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{CHAIN_LINKS, Isa, assemble, core_clock_chain, listing};

/// Bytes of one element: every stream is an array of double-precision numbers.
pub const ELEMENT_BYTES: u64 = 8;

words! {
    /// How many bits one instruction loads or stores.
    Width, "width" {
        /// One double at a time.
        Scalar = "scalar",
        /// Two doubles: SSE2, or AVX's 128-bit forms.
        W128 = "128",
        /// Four doubles: AVX.
        W256 = "256",
        /// Eight doubles: AVX-512.
        W512 = "512",
    }
}

words! {
    /// How a stream is written.
    StoreKind, "store kind" {
        /// Through the caches, with a write-allocate.
        Regular = "regular",
        /// Non-temporal (streaming): around the caches through write-combining buffers.
        Nt = "nt",
        /// maskmovdqu: non-temporal, byte-masked, at any alignment.
        NtMasked = "nt-masked",
        /// rep movs / rep stos: the processor's own string copy.
        Rep = "rep",
    }
}

words! {
    /// How a stream is read.
    LoadKind, "load kind" {
        /// Through the caches.
        Regular = "regular",
        /// movntdqa: a hint that matters on write-combining memory only.
        Nt = "nt",
    }
}

impl Width {
    /// Bits in one access.
    pub fn bits(self) -> u32 {
        match self {
            Width::Scalar => 64,
            Width::W128 => 128,
            Width::W256 => 256,
            Width::W512 => 512,
        }
    }

    /// Elements in one access.
    pub fn elements(self) -> u64 {
        u64::from(self.bits()) / 64
    }
}

impl StoreKind {
    /// Whether a store first reads the line it writes (read for ownership). `rep` is counted as if it did: processors
    /// avoid it from some length on, and the difference is what the measurement shows.
    pub fn write_allocates(self) -> bool {
        matches!(self, StoreKind::Regular | StoreKind::Rep)
    }

    /// Whether a store goes around the caches, through buffers that a fence must empty.
    pub fn bypasses_caches(self) -> bool {
        matches!(self, StoreKind::Nt | StoreKind::NtMasked)
    }
}

/// A kernel and how it touches its streams: exactly one piece of machine code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// The kernel's name in the catalog.
    pub kernel: String,
    /// Width of each access.
    pub width: Width,
    /// How streams are written.
    pub store: StoreKind,
    /// How streams are read.
    pub load: LoadKind,
    /// Accesses of `width` to each stream in one trip of the main loop.
    pub unroll: u32,
}

impl Variant {
    /// The kernel's row, or nothing where the name is foreign (a record from another version).
    pub fn row(&self) -> Option<&'static Kernel> {
        Kernel::named(&self.kernel)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kernel, self.width, self.store)?;
        if self.load == LoadKind::Nt { write!(f, ", nt load") } else { Ok(()) }
    }
}

/// Why a variant does not exist, here or anywhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The processor (or the operating system) lacks the instructions.
    #[error("this processor has no {0}")]
    NotOnThisProcessor(&'static str),
    /// No such instruction exists.
    #[error("{0}")]
    NoSuchInstruction(&'static str),
    /// The catalog has no such row.
    #[error("unknown kernel '{name}'; `membound kernel --list` shows all: {known}")]
    UnknownKernel {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The assembler refused: a fault of this program.
    #[error("the assembler refused the kernel: {0}")]
    Assembler(String),
}
