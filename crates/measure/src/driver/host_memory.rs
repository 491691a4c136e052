//! Memory that a program brings along for a buffer of a device: so many bytes beyond the start of a page, or in pages of a kind.

use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::no_visit::NoVisit;
use crate::os::memory::map_large_blocks;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::units::Bytes;

const PAGE: usize = 4096;

/// Fresh memory: its pages are made when they are first touched.
pub(crate) struct HostMemory {
    backing: Backing,
    length: usize,
}

enum Backing {
    Heap { words: Vec<f64>, first: usize },
    Pages(Box<Region>),
}

impl HostMemory {
    /// `bytes`, rounded up to whole words, that begin `offset` bytes into a page; whole words too.
    pub fn new(bytes: usize, offset: usize) -> Self {
        map_large_blocks();
        let length = bytes.div_ceil(8);
        let words = vec![0f64; length + 2 * PAGE / 8];
        let beyond = words.as_ptr() as usize % PAGE;
        let first = (PAGE - beyond + offset) / 8;
        HostMemory { backing: Backing::Heap { words, first }, length }
    }

    /// As a program's array lies: behind the 16 bytes that the allocator keeps before a large block. A driver may copy by the processor,
    /// whose copies can depend on how both ends lie in their pages.
    pub fn of_a_program(bytes: usize) -> Self {
        Self::new(bytes, 16)
    }

    /// In pages of a kind.
    pub fn in_pages(kind: MemoryKind, bytes: usize) -> Result<Self, NoVisit> {
        let region = Region::new(MemorySpec::of(kind), Bytes(bytes as u64), &Places::default())?;
        Ok(HostMemory { backing: Backing::Pages(Box::new(region)), length: bytes.div_ceil(8) })
    }

    /// In large pages, where there are any: what gigabytes are filled by in a fraction of the time.
    pub fn in_large_pages(bytes: usize) -> Self {
        Self::in_pages(MemoryKind::Thp, bytes).unwrap_or_else(|_| Self::new(bytes, 0))
    }

    /// Full of a number, so that its pages are made.
    pub fn full_of(mut self, value: f64) -> Self {
        self.words().fill(value);
        self
    }

    pub fn words(&mut self) -> &mut [f64] {
        let (words, first) = match &mut self.backing {
            Backing::Heap { words, first } => (&mut words[..], *first),
            Backing::Pages(region) => (region.words(), 0),
        };
        &mut words[first..][..self.length]
    }

    /// What pages it got, where it was made in pages of a kind; they must have been touched.
    pub fn inspect(&self) -> Option<Obtained> {
        match &self.backing {
            Backing::Heap { .. } => None,
            Backing::Pages(region) => Some(region.inspect(Bytes(8 * self.length as u64))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::thread::ThreadUsage;

    /// Whatever was freed before: what is measured as first use would else be of pages that were used.
    #[cfg(target_env = "gnu")]
    #[test]
    fn memory_is_fresh_each_time() {
        let faults = || {
            let before = ThreadUsage::now();
            let _memory = HostMemory::new(1 << 20, 0).full_of(1.0);
            ThreadUsage::now().faults - before.faults
        };
        let [first, later @ ..] = [0; 5].map(|_| faults());
        if first == 0 {
            crate::skip::skip("this system counts no page faults (getrusage)");
            return;
        }
        assert!(later.iter().all(|faults| *faults > first / 2), "{first}, {later:?}");
    }

    #[test]
    fn memory_begins_where_it_was_to() {
        for offset in [0, 8, 64, 4088] {
            let mut memory = HostMemory::new(100, offset);
            let words = memory.words();
            assert_eq!((words.as_ptr() as usize % PAGE, words.len()), (offset, 13));
        }
        assert_eq!(HostMemory::of_a_program(100).words().as_ptr() as usize % PAGE, 16);
        let mut memory = HostMemory::in_pages(MemoryKind::Base, 100).unwrap().full_of(1.0);
        let words = memory.words();
        assert_eq!((words.as_ptr() as usize % PAGE, words.len(), words[12]), (0, 13, 1.0));
        assert_eq!(memory.inspect().unwrap().bytes, Bytes(104));
    }
}
