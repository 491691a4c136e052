//! Which provider has memory of a kind.

use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;

use crate::memory::anonymous::Anonymous;
use crate::memory::device::{Bar, DmaHeap};
use crate::memory::file::Disk;
use crate::memory::no_memory::NoMemory;
use crate::memory::places::Places;
use crate::memory::recipe::{Provider, Recipe};
use crate::memory::{anonymous, device, file};
use crate::os::memory::TYPES;

/// The provider of a kind.
pub(crate) fn provider(kind: MemoryKind) -> &'static dyn Provider {
    use MemoryKind as Kind;
    match kind {
        Kind::Base => &Anonymous::BASE,
        Kind::Thp => &Anonymous::THP,
        Kind::Huge2M => &Anonymous::HUGE_2M,
        Kind::Huge1G => &Anonymous::HUGE_1G,
        Kind::Shared => &Anonymous::SHARED,
        Kind::Locked => &Anonymous::LOCKED,
        Kind::Populated => &Anonymous::POPULATED,
        Kind::Heap => &anonymous::Heap,
        Kind::Memfd => &file::Memfd,
        Kind::Tmpfs => &file::Tmpfs,
        Kind::FilePrivate => &Disk::PRIVATE,
        Kind::FilePrivateCold => &Disk::PRIVATE_COLD,
        Kind::FileShared => &Disk::SHARED,
        Kind::FileSharedCold => &Disk::SHARED_COLD,
        Kind::Dax => &file::Dax,
        Kind::Bar => &Bar::UNCACHED,
        Kind::BarWc => &Bar::WRITE_COMBINING,
        Kind::DmaHeap => &DmaHeap::SYSTEM,
        Kind::DmaHeapUncached => &DmaHeap::UNCACHED,
        Kind::Udmabuf => &device::Udmabuf,
        Kind::Wb if is_mapped(kind) => &Anonymous::WRITE_BACK,
        Kind::Wc if is_mapped(kind) => &Anonymous::WRITE_COMBINING,
        Kind::Uc if is_mapped(kind) => &Anonymous::UNCACHED,
        Kind::Wb | Kind::Wc | Kind::Uc | Kind::UcMinus | Kind::Wt | Kind::Wp => &Nowhere,
    }
}

/// Whether the system maps memory of this type for any program.
fn is_mapped(kind: MemoryKind) -> bool {
    TYPES.contains(&kind)
}

/// No memory of this process.
struct Nowhere;

impl Provider for Nowhere {
    fn recipe(&self, _bytes: Bytes, _places: &Places) -> Result<Recipe, NoMemory> {
        Err(NoMemory::absent("only the micro-VM has memory types", "use `membound kinds`"))
    }
}
