//! How memory of a kind is mapped.

use membound_core::memory::proof::Proof;
use std::fs::File;

use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;

use crate::memory::no_memory::NoMemory;
use crate::memory::part::Part;
use crate::memory::places::Places;
use crate::os::advice::Advice;
use crate::os::memory::base_page;

/// Says how memory of one kind is had. One a kind, or a family of kinds; stateless.
pub trait Provider: Sync {
    /// How to map at least `bytes` of it. May open and fill files; maps nothing.
    fn recipe(&self, bytes: Bytes, places: &Places) -> Result<Recipe, NoMemory>;
}

/// What stands behind a mapping.
#[derive(Debug)]
pub enum Backing {
    /// Nothing but memory.
    Anonymous {
        /// Whether children share it.
        shared: bool,
        /// Whether pages come from the pool of huge pages.
        pool: bool,
    },
    /// A file or device, from its start.
    File {
        /// It, long enough.
        file: File,
        /// Whether writes reach it.
        shared: bool,
        /// What the page cache holds of it whenever it is mapped.
        cached: Cached,
    },
    /// malloc.
    Heap,
}

/// What the page cache holds of a file before its first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cached {
    /// All of it.
    All,
    /// Nothing: its pages are dropped before each mapping.
    Nothing,
    /// It is the file: whenever it is unmapped its pages are given up, so that first use makes new ones.
    Itself,
    /// It does not matter: a device.
    Unasked,
}

/// How memory of a kind is mapped.
#[derive(Debug)]
pub struct Recipe {
    /// The kind.
    pub kind: MemoryKind,
    /// What stands behind it.
    pub backing: Backing,
    /// Bytes to map: whole pages.
    pub bytes: usize,
    /// Alignment and, with a pool, page size.
    pub page: usize,
    /// Advice on its pages, if any. A refusal is no error: what was obtained is read back.
    pub advice: Option<Advice>,
    /// Have the kernel make all pages when mapping.
    pub populate: bool,
    /// Lock it in memory.
    pub lock: bool,
    /// Whether it may be written to.
    pub writable: bool,
    /// The part of a device's memory that this is; absent where there is no such device.
    pub part: Option<Part>,
    /// What the provider itself can show.
    pub proofs: Vec<Proof>,
}

impl Recipe {
    /// Writable memory with nothing special about it: `bytes` rounded up to whole pages.
    pub fn new(kind: MemoryKind, backing: Backing, bytes: Bytes, page: usize) -> Self {
        let bytes = Recipe::whole_pages(bytes, page);
        Recipe {
            kind,
            backing,
            bytes,
            page,
            advice: None,
            populate: false,
            lock: false,
            writable: true,
            part: None,
            proofs: Vec::new(),
        }
    }

    /// At least one page. What is more than an address space has stays more: it will be refused.
    pub fn whole_pages(bytes: Bytes, page: usize) -> usize {
        let most = usize::MAX - (page - 1);
        usize::try_from(bytes.0.max(1)).ok().and_then(|bytes| bytes.checked_next_multiple_of(page)).unwrap_or(most)
    }

    /// Whether its pages are those of a file or a device.
    pub(crate) fn is_of_a_file(&self) -> bool {
        matches!(self.backing, Backing::File { .. })
    }

    /// Bytes that must be mapped to have aligned ones: the kernel aligns base and pool pages itself.
    pub(crate) fn mapped(&self) -> usize {
        let is_aligned = self.page <= base_page() || matches!(self.backing, Backing::Anonymous { pool: true, .. });
        if is_aligned { self.bytes } else { self.bytes.saturating_add(self.page) }
    }
}
