//! A mapping of one memory kind, and the proof of what it is.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::ptr;

use super::{MemoryKind, MemorySpec, NodePages, Obtained};
use crate::units::Bytes;

/// Memory of one kind, owned, aligned to its page size (2 MiB for `thp`). Pages come with the first touch.
#[derive(Debug)]
pub struct Region {
    mapping: *mut libc::c_void,
    mapped: usize,
    /// First usable byte: `mapping` rounded up.
    start: usize,
    length: usize,
    kind: MemoryKind,
}

// SAFETY: the mapping is private to the process and owned by this value; nothing in it is tied to a thread.
unsafe impl Send for Region {}

/// Why a memory kind can't be had.
#[derive(Debug, thiserror::Error)]
pub enum NoMemory {
    /// The mapping was refused.
    #[error("{bytes} of {kind} memory were refused: {source}{hint}")]
    Refused {
        /// How much was asked for.
        bytes: Bytes,
        /// Which kind.
        kind: &'static str,
        /// The system's answer.
        source: io::Error,
        /// What helps.
        hint: &'static str,
    },
    /// The node was refused.
    #[error("memory could not be bound to node {node}: {source}")]
    Node {
        /// The node.
        node: u32,
        /// The system's answer.
        source: io::Error,
    },
}

const HUGE_2M: usize = 2 << 20;
/// Pages asked for by one inspection: enough to see a wrong placement, few enough to take a millisecond.
const PAGES_INSPECTED: usize = 4096;

impl Region {
    /// Maps `bytes` (rounded up to whole pages) of the kind that `spec` names. Touches nothing.
    pub fn new(spec: MemorySpec, bytes: Bytes) -> Result<Self, NoMemory> {
        let (page, flags) = match spec.kind {
            MemoryKind::Base => (4096, 0),
            MemoryKind::Thp => (HUGE_2M, 0),
            MemoryKind::Huge2M => (HUGE_2M, libc::MAP_HUGETLB | (21 << libc::MAP_HUGE_SHIFT)),
            MemoryKind::Huge1G => (1 << 30, libc::MAP_HUGETLB | (30 << libc::MAP_HUGE_SHIFT)),
        };
        let length = (bytes.0.max(1) as usize).next_multiple_of(page);
        // The kernel aligns pool pages itself; transparent ones need room to align within.
        let mapped = if spec.kind == MemoryKind::Thp { length + page } else { length };
        // Pool pages are reserved now, so that touching them later can't fail with SIGBUS.
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let flags = if flags & libc::MAP_HUGETLB == 0 { flags | libc::MAP_NORESERVE } else { flags };
        // SAFETY: a fresh mapping at no fixed address; nothing existing is touched.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(refused(spec.kind, bytes));
        }
        let start = (mapping as usize).next_multiple_of(page);
        let region = Region { mapping, mapped, start, length, kind: spec.kind };
        region.advise();
        match spec.node {
            Some(node) => region.bind(node).map(|()| region),
            None => Ok(region),
        }
    }

    fn advise(&self) {
        let advice = match self.kind {
            MemoryKind::Base => libc::MADV_NOHUGEPAGE,
            MemoryKind::Thp => libc::MADV_HUGEPAGE,
            MemoryKind::Huge2M | MemoryKind::Huge1G => return,
        };
        // A refusal (no THP in this kernel) is not an error: `inspect` says what was obtained.
        // SAFETY: the range lies within our own mapping; advice does not change its contents.
        unsafe { libc::madvise(self.start as *mut libc::c_void, self.length, advice) };
    }

    fn bind(&self, node: u32) -> Result<(), NoMemory> {
        const MPOL_BIND: libc::c_long = 2;
        let mut mask = [0u64; 16];
        let refused = |source| NoMemory::Node { node, source };
        let word = mask.get_mut(node as usize / 64).ok_or_else(|| refused(io::ErrorKind::InvalidInput.into()))?;
        *word |= 1 << (node % 64);
        // SAFETY: mbind reads 1024 bits of `mask` and sets the policy of our own, untouched mapping.
        let result = unsafe {
            libc::syscall(libc::SYS_mbind, self.start, self.length, MPOL_BIND, mask.as_ptr(), 1024usize, 0usize)
        };
        if result == 0 { Ok(()) } else { Err(refused(io::Error::last_os_error())) }
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// Usable bytes.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.length as u64)
    }

    /// The memory as numbers. Touching them makes pages.
    pub fn words(&mut self) -> &mut [f64] {
        // SAFETY: the range is mapped readable and writable for as long as `self` lives, page-aligned, zeroed by the
        // kernel (all bits zero is a valid f64), and borrowed exclusively through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut f64, self.length / 8) }
    }

    /// What was obtained for the first `touched` bytes: huge pages by smaps, nodes by move_pages.
    pub fn inspect(&self, touched: Bytes) -> Obtained {
        Obtained {
            bytes: touched,
            huge_bytes: self.huge_bytes(),
            pages_on_node: self.pages_on_node(touched.0 as usize),
        }
    }

    fn huge_bytes(&self) -> Option<Bytes> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        Some(huge_bytes_in(&smaps, self.start as u64, (self.start + self.length) as u64))
    }

    fn pages_on_node(&self, touched: usize) -> Vec<NodePages> {
        let pages = touched.min(self.length) / 4096;
        let step = pages.div_ceil(PAGES_INSPECTED).max(1);
        let addresses: Vec<usize> = (0..pages).step_by(step).map(|page| self.start + page * 4096).collect();
        let mut status = vec![-1i32; addresses.len()];
        // SAFETY: with no target nodes move_pages only reports; both arrays have the length given.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                addresses.len(),
                addresses.as_ptr(),
                ptr::null::<i32>(),
                status.as_mut_ptr(),
                0,
            )
        };
        let mut count: BTreeMap<u32, u64> = BTreeMap::new();
        if result == 0 {
            for node in status.into_iter().filter_map(|s| u32::try_from(s).ok()) {
                *count.entry(node).or_insert(0) += 1;
            }
        }
        count.into_iter().map(|(node, pages)| NodePages { node, pages }).collect()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, is owned by `self`, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}

fn refused(kind: MemoryKind, bytes: Bytes) -> NoMemory {
    let source = io::Error::last_os_error();
    let hint = match kind {
        MemoryKind::Huge2M => "; reserve pages with `sysctl vm.nr_hugepages=N` (2 MiB each)",
        MemoryKind::Huge1G => "; reserve pages with `hugepagesz=1G hugepages=N` on the kernel's command line",
        _ => "; ask for less with --size",
    };
    NoMemory::Refused { bytes, kind: kind.word(), source, hint }
}

/// Huge bytes of the mappings inside [start, end) according to the text of smaps.
fn huge_bytes_in(smaps: &str, start: u64, end: u64) -> Bytes {
    let mut inside = false;
    let mut kib = 0;
    for line in smaps.lines() {
        if let Some((from, to)) = mapping_range(line) {
            inside = from < end && start < to;
        } else if inside
            && ["AnonHugePages:", "Private_Hugetlb:", "Shared_Hugetlb:"].iter().any(|k| line.starts_with(k))
        {
            kib += line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Bytes::kib(kib)
}

fn mapping_range(line: &str) -> Option<(u64, u64)> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_counted_inside_the_range_only() {
        let smaps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nRss: 4096 kB\nAnonHugePages:      2048 kB\n\
                     7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \nAnonHugePages:      4096 kB\nPrivate_Hugetlb: 0 kB\n";
        assert_eq!(huge_bytes_in(smaps, 0x7f0000000000, 0x7f0000400000), Bytes::mib(2));
        assert_eq!(huge_bytes_in(smaps, 0x7f0000000000, 0x7f0000800000), Bytes::mib(6));
    }

    #[test]
    fn base_pages_are_obtained_and_counted() {
        let spec = MemorySpec { kind: MemoryKind::Base, node: None };
        let mut region = Region::new(spec, Bytes::kib(100)).unwrap();
        region.words().fill(1.0);
        let obtained = region.inspect(region.bytes());
        assert_eq!(obtained.bytes, Bytes::kib(100));
        assert!(obtained.huge_bytes.is_none_or(|b| b == Bytes(0)));
        // Containers may refuse move_pages; where it answers, it must answer for every page.
        let pages: u64 = obtained.pages_on_node.iter().map(|found| found.pages).sum();
        assert!(pages == 0 || pages == 25, "{pages}");
    }
}
