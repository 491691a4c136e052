//! Memory without a file: base and huge pages, shared, locked, populated; and the heap.

use std::fs;
use std::path::Path;

use super::{Backing, MemoryKind, NoMemory, Places, Provider, Recipe};
use crate::units::Bytes;

/// Anonymous memory, and what sets it apart.
pub(super) struct Anonymous {
    kind: MemoryKind,
    page: usize,
    /// Whether pages come from the pool of huge pages.
    pool: bool,
    shared: bool,
    advice: Option<libc::c_int>,
    populate: bool,
    lock: bool,
}

const PLAIN: Anonymous = Anonymous {
    kind: MemoryKind::Base,
    page: 4096,
    pool: false,
    shared: false,
    advice: Some(libc::MADV_NOHUGEPAGE),
    populate: false,
    lock: false,
};

impl Anonymous {
    pub const BASE: Anonymous = PLAIN;
    pub const THP: Anonymous =
        Anonymous { kind: MemoryKind::Thp, page: 2 << 20, advice: Some(libc::MADV_HUGEPAGE), ..PLAIN };
    pub const HUGE_2M: Anonymous =
        Anonymous { kind: MemoryKind::Huge2M, page: 2 << 20, pool: true, advice: None, ..PLAIN };
    pub const HUGE_1G: Anonymous =
        Anonymous { kind: MemoryKind::Huge1G, page: 1 << 30, pool: true, advice: None, ..PLAIN };
    /// The system decides on huge pages (`shmem_enabled`).
    pub const SHARED: Anonymous = Anonymous { kind: MemoryKind::Shared, shared: true, advice: None, ..PLAIN };
    pub const LOCKED: Anonymous = Anonymous { kind: MemoryKind::Locked, lock: true, ..PLAIN };
    pub const POPULATED: Anonymous = Anonymous { kind: MemoryKind::Populated, populate: true, ..PLAIN };
}

impl Provider for Anonymous {
    fn recipe(&self, bytes: Bytes, _places: &Places) -> Result<Recipe, NoMemory> {
        let backing = Backing::Anonymous { shared: self.shared, pool: self.pool };
        Ok(Recipe {
            advice: self.advice,
            populate: self.populate,
            lock: self.lock,
            ..Recipe::new(self.kind, backing, bytes, self.page)
        })
    }
}

/// What malloc gives.
pub(super) struct Heap;

impl Provider for Heap {
    fn recipe(&self, bytes: Bytes, _places: &Places) -> Result<Recipe, NoMemory> {
        Ok(Recipe::new(MemoryKind::Heap, Backing::Heap, bytes, 4096))
    }
}

/// Whether a node's own pool has the pages. A mapping reserves pages of the machine's pool, wherever they lie: where a
/// bound mapping finds none on its node, touching it ends in SIGBUS.
///
/// # Errors
/// It has fewer; the text says how many there are. A pool that can't be read is believed to have them.
pub(super) fn pool_must_have(node: u32, page: usize, bytes: usize) -> Result<(), NoMemory> {
    pool_below(Path::new("/sys/devices/system/node"), node, page, bytes)
}

fn pool_below(nodes: &Path, node: u32, page: usize, bytes: usize) -> Result<(), NoMemory> {
    let pool = nodes.join(format!("node{node}/hugepages/hugepages-{}kB", page / 1024));
    let text = fs::read_to_string(pool.join("free_hugepages")).unwrap_or_default();
    let needed = bytes.div_ceil(page);
    let free = text.trim().parse().unwrap_or(needed);
    if needed <= free {
        return Ok(());
    }
    let why = format!("node {node} has {free} free huge pages of {}, {needed} are needed", Bytes(page as u64));
    let cure = format!("write a larger number to {}/nr_hugepages as root, or ask for less with --size", pool.display());
    Err(NoMemory::absent(why, &cure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_of_a_node_has_enough_pages_or_says_how_many() {
        let nodes = tempfile::tempdir().unwrap();
        let pool = nodes.path().join("node1/hugepages/hugepages-2048kB");
        fs::create_dir_all(&pool).unwrap();
        fs::write(pool.join("free_hugepages"), "3\n").unwrap();
        let of = |node, page, bytes| pool_below(nodes.path(), node, page, bytes).map_err(|fault| fault.to_string());
        assert_eq!(of(1, 2 << 20, 6 << 20), Ok(()));
        let reason = of(1, 2 << 20, (6 << 20) + 1).unwrap_err();
        assert!(reason.starts_with("node 1 has 3 free huge pages of 2 MiB, 4 are needed"), "{reason}");
        assert!(reason.contains("node1/hugepages/hugepages-2048kB/nr_hugepages"), "{reason}");
        // What can't be read refuses nothing.
        assert_eq!(of(0, 2 << 20, 6 << 20), Ok(()));
        assert_eq!(of(1, 1 << 30, 6 << 20), Ok(()));
    }
}
