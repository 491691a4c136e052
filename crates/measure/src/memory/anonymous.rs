//! Memory without a file: base and huge pages, shared, locked, populated; and the heap.

use crate::memory::huge;
use crate::memory::no_memory::NoMemory;
use crate::memory::places::Places;
use crate::memory::recipe::{Backing, Provider, Recipe};
use crate::os::advice::Advice;
use crate::os::memory::base_page;
use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;

/// Anonymous memory, and what sets it apart.
pub(crate) struct Anonymous {
    kind: MemoryKind,
    /// Bytes of its pages, where these are no transparent huge pages.
    page: usize,
    /// Whether pages come from the pool of huge pages.
    pool: bool,
    shared: bool,
    advice: Option<Advice>,
    populate: bool,
    lock: bool,
}

const PLAIN: Anonymous = Anonymous {
    kind: MemoryKind::Base,
    page: 4096,
    pool: false,
    shared: false,
    advice: Some(Advice::NoHuge),
    populate: false,
    lock: false,
};

impl Anonymous {
    pub const BASE: Anonymous = PLAIN;
    pub const THP: Anonymous = Anonymous { kind: MemoryKind::Thp, advice: Some(Advice::Huge), ..PLAIN };
    pub const HUGE_2M: Anonymous =
        Anonymous { kind: MemoryKind::Huge2M, page: 2 << 20, pool: true, advice: None, ..PLAIN };
    pub const HUGE_1G: Anonymous =
        Anonymous { kind: MemoryKind::Huge1G, page: 1 << 30, pool: true, advice: None, ..PLAIN };
    pub const WRITE_BACK: Anonymous = Anonymous { kind: MemoryKind::Wb, ..PLAIN };
    pub const WRITE_COMBINING: Anonymous = Anonymous { kind: MemoryKind::Wc, ..PLAIN };
    pub const UNCACHED: Anonymous = Anonymous { kind: MemoryKind::Uc, ..PLAIN };
    /// The system decides on huge pages (`shmem_enabled`).
    pub const SHARED: Anonymous = Anonymous { kind: MemoryKind::Shared, shared: true, advice: None, ..PLAIN };
    pub const LOCKED: Anonymous = Anonymous { kind: MemoryKind::Locked, lock: true, ..PLAIN };
    pub const POPULATED: Anonymous = Anonymous { kind: MemoryKind::Populated, populate: true, ..PLAIN };
}

impl Provider for Anonymous {
    fn recipe(&self, bytes: Bytes, _places: &Places) -> Result<Recipe, NoMemory> {
        let backing = Backing::Anonymous { shared: self.shared, pool: self.pool };
        let page = match self.kind {
            MemoryKind::Thp => huge::granule(bytes, huge::transparent()),
            _ => self.page,
        };
        if self.pool {
            huge::check_pool(Bytes(page as u64), &crate::machine::source())?;
        }
        Ok(Recipe {
            advice: self.advice,
            populate: self.populate,
            lock: self.lock,
            ..Recipe::new(self.kind, backing, bytes, page)
        })
    }
}

/// What malloc gives.
pub(crate) struct Heap;

impl Provider for Heap {
    fn recipe(&self, bytes: Bytes, _places: &Places) -> Result<Recipe, NoMemory> {
        Ok(Recipe::new(MemoryKind::Heap, Backing::Heap, bytes, base_page()))
    }
}
