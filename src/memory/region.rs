//! A mapping of one memory kind, and the proof of what it is.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;

use super::bind::Binding;
use super::device::Part;
use super::{Located, MemoryKind, MemorySpec, NoMemory, NodePages, NodeSet, Obtained, Places, Policy, Proof};
use super::{numa, os, provider, summed};
use crate::machine::Source;
use crate::units::Bytes;

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
    /// madvise, if any. A refusal is no error: what was obtained is read back.
    pub advice: Option<libc::c_int>,
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

    /// Bytes that must be mapped to have aligned ones: the kernel aligns base and pool pages itself.
    fn mapped(&self) -> usize {
        let is_aligned = self.page == 4096 || matches!(self.backing, Backing::Anonymous { pool: true, .. });
        if is_aligned { self.bytes } else { self.bytes.saturating_add(self.page) }
    }
}

/// What the kernel is asked to do with the pages of a region (madvise).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Make them (MADV_POPULATE_WRITE, Linux 5.14).
    Populate,
    /// Take them back at once (MADV_DONTNEED).
    Dontneed,
    /// Take them back when memory is short (MADV_FREE, Linux 4.5).
    Free,
    /// Make them huge pages when it pleases (MADV_HUGEPAGE). Only this undoes the refusal that base pages were mapped
    /// with, and [`Advice::Collapse`] respects that refusal.
    Huge,
    /// Make them huge pages now (MADV_COLLAPSE, Linux 6.1).
    Collapse,
    /// Let forked children share them (MADV_DOFORK).
    Fork,
}

impl Advice {
    /// The kernel's number, its name, and whom it is for.
    fn facts(self) -> (libc::c_int, &'static str, &'static str) {
        match self {
            Advice::Populate => (libc::MADV_POPULATE_WRITE, "MADV_POPULATE_WRITE", "it needs Linux 5.14"),
            Advice::Dontneed => (libc::MADV_DONTNEED, "MADV_DONTNEED", "it does not work on locked memory or devices"),
            Advice::Free => (libc::MADV_FREE, "MADV_FREE", "it works on private anonymous memory only"),
            Advice::Huge => (libc::MADV_HUGEPAGE, "MADV_HUGEPAGE", "it needs a kernel with transparent huge pages"),
            Advice::Collapse => (
                MADV_COLLAPSE,
                "MADV_COLLAPSE",
                "it needs Linux 6.1, transparent huge pages and free memory in one piece",
            ),
            Advice::Fork => (libc::MADV_DOFORK, "MADV_DOFORK", "it does not work on devices"),
        }
    }
}

/// A collapse that met a busy page goes on from there; more often than this it is not asked to.
const TRIES_MOST: u32 = 100;
/// Newer than the C library's header.
const MADV_COLLAPSE: libc::c_int = 25;

/// Memory of one kind, owned, aligned to its page size (2 MiB for `thp`). Pages come with the first touch, unless the
/// kind says otherwise.
#[derive(Debug)]
pub struct Region {
    recipe: Recipe,
    /// Where its pages are to lie, if anywhere.
    binding: Option<Binding>,
    /// What mmap or malloc returned; null while unmapped.
    mapping: *mut libc::c_void,
    /// First usable byte: `mapping` rounded up.
    start: usize,
    /// Bytes that were there when it was first mapped, before anything touched it; for kinds that promise that.
    populated: Option<Bytes>,
    /// What the page cache held of its file when it was mapped; where that matters. With a cold file the most ever seen.
    cached: Option<Bytes>,
}

// SAFETY: the mapping is owned by this value; nothing in it is tied to a thread.
unsafe impl Send for Region {}

/// Pages asked for by one inspection: enough to see what came of first touch, few enough to take a millisecond.
const PAGES_INSPECTED: usize = 4096;
/// The same where a policy must hold: all up to 4 GiB of base pages, which takes some tenths of a second.
const PAGES_VERIFIED: usize = 1 << 20;
/// Pages of one system call.
const PAGES_AT_ONCE: usize = 1 << 14;
/// What a huge page takes of a mapping whose kind does not refuse them.
const HUGE: usize = 2 << 20;

impl Region {
    /// Maps `bytes` (rounded up to whole pages) of the kind that `spec` names.
    pub fn new(spec: MemorySpec, bytes: Bytes, places: &Places) -> Result<Self, NoMemory> {
        Region::aligned(spec, bytes, Bytes(0), places)
    }

    /// The same, aligned to and a multiple of `alignment` (a power of two, or 0) even where its pages are smaller.
    pub fn aligned(spec: MemorySpec, bytes: Bytes, alignment: Bytes, places: &Places) -> Result<Self, NoMemory> {
        let binding = Binding::new(spec, bytes, &Source::live())?;
        let recipe = || provider(spec.kind).recipe(bytes, places);
        let mut recipe = match &binding {
            Some(binding) => binding.around(recipe)??,
            None => recipe()?,
        };
        if let (Some(binding), Backing::File { .. }) = (&binding, &recipe.backing) {
            binding.check_file()?;
        }
        if recipe.page < alignment.0 as usize && !matches!(recipe.backing, Backing::File { .. }) {
            recipe.page = alignment.0 as usize;
            recipe.bytes = Recipe::whole_pages(Bytes(recipe.bytes as u64), recipe.page);
        }
        let mapping = ptr::null_mut();
        let mut region = Region { recipe, binding, mapping, start: 0, populated: None, cached: None };
        // Memory that was just allocated stays: whether there is enough must show now, not at first touch.
        if region.is_cold() {
            region.cool();
        }
        region.map()?;
        region.look_for_cached(Cached::All);
        if region.recipe.populate {
            region.populated = region.smaps().map(|smaps| smaps.resident);
        }
        Ok(region)
    }

    /// Gives the memory back, all but its file; with a cold kind the file's pages too. [`Region::map`] brings it back as
    /// it first was, at another address. Until then only `map` may be called.
    pub fn unmap(&mut self) {
        if !self.mapping.is_null() {
            self.release();
            self.cool();
        }
    }

    fn release(&mut self) {
        let mapping = std::mem::replace(&mut self.mapping, ptr::null_mut());
        match self.recipe.backing {
            _ if mapping.is_null() => {}
            Backing::Heap => {
                // Whoever gets these pages next has not asked for their node.
                if self.binding.is_some() {
                    let (start, bytes) = (self.start, self.recipe.bytes);
                    let _ = numa::mbind(start, bytes, numa::Mode::Default, &NodeSet::EMPTY, false);
                }
                // SAFETY: `mapping` came from malloc, is owned by `self`, and no borrow of it exists.
                unsafe { libc::free(mapping) }
            }
            // SAFETY: the mapping was made by `map` with this length, is owned by `self`, and no borrow of it exists.
            _ => unsafe {
                libc::munmap(mapping, self.recipe.mapped());
            },
        }
    }

    fn is_cold(&self) -> bool {
        matches!(self.recipe.backing, Backing::File { cached: Cached::Nothing, .. })
    }

    /// Drops a cold file from the page cache, and sees whether that worked; empties a file that is memory.
    fn cool(&mut self) {
        let Backing::File { file, cached, .. } = &self.recipe.backing else { return };
        match cached {
            Cached::Nothing => {
                os::drop_cached(file);
                self.look_for_cached(Cached::Nothing);
            }
            Cached::Itself => os::empty(file, self.bytes()),
            Cached::All | Cached::Unasked => {}
        }
    }

    /// Sees what is in the page cache, if the file is to be there like this.
    fn look_for_cached(&mut self, wanted: Cached) {
        if let Backing::File { file, cached, .. } = &self.recipe.backing
            && *cached == wanted
        {
            self.cached = self.cached.max(os::cached(file, self.recipe.bytes));
        }
    }

    /// Maps the memory again after [`Region::unmap`].
    pub fn map(&mut self) -> Result<(), NoMemory> {
        self.unmap();
        let recipe = &self.recipe;
        self.mapping = match &recipe.backing {
            // SAFETY: asks for fresh memory, with room to align it.
            Backing::Heap => unsafe { libc::malloc(recipe.bytes.saturating_add(recipe.page)) },
            _ => recipe.mmap(),
        };
        if self.mapping == libc::MAP_FAILED || self.mapping.is_null() {
            self.mapping = ptr::null_mut();
            return Err(recipe.refused());
        }
        self.start = (self.mapping as usize).next_multiple_of(recipe.page);
        if !matches!(recipe.backing, Backing::Heap) {
            // A fork would else copy the page tables of all regions, and make their next writes fault.
            // SAFETY: the range lies within our own mapping; children of this process never touch it.
            unsafe { libc::madvise(self.start as *mut libc::c_void, recipe.bytes, libc::MADV_DONTFORK) };
        }
        if let Some(advice) = recipe.advice {
            // SAFETY: the range lies within our own mapping; advice does not change its contents.
            unsafe { libc::madvise(self.start as *mut libc::c_void, recipe.bytes, advice) };
        }
        if let Some(binding) = &self.binding {
            // The heap may hand out pages that were used before.
            let moves = matches!(recipe.backing, Backing::Heap);
            binding.apply(self.start, recipe.bytes, recipe.page, moves)?;
        }
        self.make_pages()
    }

    /// Makes pages where the kind has them made in advance.
    fn make_pages(&self) -> Result<(), NoMemory> {
        let (start, bytes) = (self.start as *mut libc::c_void, self.recipe.bytes);
        // SAFETY: the range is our own mapping; populating it changes no contents.
        let populated = !self.recipe.populate || unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) } == 0;
        // SAFETY: as above.
        if populated && (!self.recipe.lock || unsafe { libc::mlock(start, bytes) } == 0) {
            return Ok(());
        }
        Err(self.recipe.refused())
    }

    /// Says where its pages are to come from. Only those that are made afterwards heed it, until it is mapped again.
    ///
    /// # Errors
    /// The kernel's refusal: the node is gone, or may not be used.
    pub fn place(&self, policy: Policy) -> Result<(), NoMemory> {
        let (spec, Recipe { bytes, page, .. }) = (MemorySpec { kind: self.recipe.kind, policy }, &self.recipe);
        match Binding::new(spec, Bytes(*bytes as u64), &Source::live())? {
            Some(binding) => binding.apply(self.start, *bytes, *page, false),
            None => Ok(()),
        }
    }

    /// Whether it is mapped.
    pub fn is_mapped(&self) -> bool {
        !self.mapping.is_null()
    }

    /// Bytes of a page that may go missing alone: a whole huge page of the pool.
    pub fn page(&self) -> usize {
        self.recipe.page
    }

    /// Asks the kernel to do something with all pages; again, where it says EAGAIN: a page was busy for a moment.
    ///
    /// # Errors
    /// The kernel's refusal, with what it needs.
    pub fn advise(&mut self, advice: Advice) -> Result<(), NoMemory> {
        let (number, name, needs) = advice.facts();
        if self.mapping.is_null() {
            return Ok(());
        }
        let advise = || {
            // SAFETY: the range is our own mapping, borrowed exclusively. Its contents stay or become zero, both valid.
            match unsafe { libc::madvise(self.start as *mut libc::c_void, self.recipe.bytes, number) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let mut tries = 1;
        let result = loop {
            match advise() {
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock && tries < TRIES_MOST => tries += 1,
                result => break result,
            }
        };
        result.map_err(|fault| {
            let why = format!("{name} of {} memory was refused ({fault})", self.recipe.kind);
            NoMemory::Absent { why, cure: needs.into() }
        })
    }

    /// Whether it is memory of this process alone without a file, fresh from the kernel each time it is mapped: pages
    /// that were not written to, or were given back, read as zeros.
    pub fn is_private_anonymous(&self) -> bool {
        matches!(self.recipe.backing, Backing::Anonymous { shared: false, .. })
    }

    /// Whether a write to a page that a forked child shares has the page copied, out of memory that need not be reserved.
    pub fn is_copied_on_write(&self) -> bool {
        match self.recipe.backing {
            Backing::Anonymous { shared, pool } => !shared && !pool,
            Backing::File { shared, .. } => !shared,
            Backing::Heap => true,
        }
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// Usable bytes.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.recipe.bytes as u64)
    }

    /// Whether it may be written to.
    pub fn is_writable(&self) -> bool {
        self.recipe.writable
    }

    /// What the memory holds; nothing, where it must not be written. Touching it makes pages.
    pub fn contents(&mut self) -> &mut [u8] {
        if self.mapping.is_null() || !self.recipe.writable {
            return &mut [];
        }
        // SAFETY: the range is mapped readable and writable for as long as `self` lives and is not unmapped, which needs
        // `&mut self`; any bits are a valid u8, and it is borrowed exclusively through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut u8, self.recipe.bytes) }
    }

    /// The same as numbers.
    pub fn words(&mut self) -> &mut [f64] {
        // SAFETY: any bits are a valid f64. The region is page-aligned, so nothing is left out before the first one.
        unsafe { self.contents().align_to_mut().1 }
    }

    /// The region's file, opened once more to be read and written around the page cache.
    ///
    /// # Errors
    /// There is no file, or its file system can't do that.
    pub fn direct_file(&self) -> Result<File, NoMemory> {
        let Backing::File { file, .. } = &self.recipe.backing else {
            let why = format!("{} memory has no file", self.recipe.kind);
            return Err(NoMemory::absent(why, "choose file-shared"));
        };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let open = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
        open.map_err(|fault| {
            let why = format!("its file system reads and writes through the page cache only ({fault})");
            NoMemory::absent(why, "name a folder on another disk with --dir")
        })
    }

    /// What was obtained for the first `touched` bytes: huge pages by smaps, nodes by move_pages, and what the kind
    /// promises beyond that.
    pub fn inspect(&self, touched: Bytes) -> Obtained {
        let smaps = self.smaps();
        let mut proofs = self.recipe.proofs.clone();
        let of = |part: Bytes| (format!("{part} of {}", self.bytes()), part >= self.bytes());
        if let (true, Some(smaps)) = (self.recipe.lock, &smaps) {
            let (seen, holds) = of(smaps.locked);
            proofs.push(Proof::new("locked in memory", "smaps", seen, holds));
        }
        if let Some(populated) = self.populated {
            let (seen, holds) = of(populated);
            proofs.push(Proof::new("present before the first touch", "smaps", seen, holds));
        }
        proofs.extend(self.cached_proof());
        proofs.extend(self.recipe.part.as_ref().and_then(|part| part.memory_type(self.recipe.kind)));
        let located = self.binding.as_ref().and_then(|binding| self.located(binding, touched));
        let way = self.binding.as_ref().and_then(|binding| binding.proof(self.recipe.bytes, self.recipe.page));
        proofs.extend(way.into_iter().chain(located.as_ref().map(Located::proof)));
        let pages_on_node = match &located {
            Some(located) => located.on.clone(),
            None => self.pages_on_node(touched),
        };
        Obtained {
            bytes: touched,
            huge_bytes: smaps.map(|smaps| smaps.huge),
            pages_on_node,
            located: located.into_iter().collect(),
            frames: Vec::new(),
            proofs,
            page_cache: None,
        }
    }

    /// A cold file may keep 1 % of its pages: what others have mapped or are reading can't be dropped.
    fn cached_proof(&self) -> Option<Proof> {
        let Backing::File { cached: wanted, .. } = &self.recipe.backing else { return None };
        let (found, all) = (self.cached?, self.bytes());
        let (claim, holds) = match wanted {
            Cached::All => ("in the page cache before the first touch", found >= all),
            Cached::Nothing => ("not in the page cache before the first touch", found.0 <= all.0 / 100),
            Cached::Itself | Cached::Unasked => return None,
        };
        Some(Proof::new(claim, "mincore", format!("{found} of {all}"), holds))
    }

    fn smaps(&self) -> Option<Smaps> {
        let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
        Some(Smaps::of(&text, self.start as u64, (self.start + self.recipe.bytes) as u64))
    }

    /// Where touched pages lie that have no policy: a few, of the size of base pages.
    fn pages_on_node(&self, touched: Bytes) -> Vec<NodePages> {
        let pages = (touched.0 as usize).min(self.recipe.bytes) / 4096;
        self.locate(pages, 4096, PAGES_INSPECTED).unwrap_or_default()
    }

    /// Where touched pages lie that have a policy. `None` where there are none.
    fn located(&self, binding: &Binding, touched: Bytes) -> Option<Located> {
        let recipe = &self.recipe;
        let page = recipe.kind.pool_page().map_or(4096, |page| page.0 as usize);
        let pages = (touched.0 as usize).min(recipe.bytes).div_ceil(page);
        let (on, refusal) = match self.locate(pages, page, PAGES_VERIFIED) {
            Ok(on) if on.is_empty() => return None,
            Ok(on) => (on, None),
            Err(fault) => (Vec::new(), Some(format!("move_pages was refused ({fault})"))),
        };
        let refuses_huge = recipe.advice == Some(libc::MADV_NOHUGEPAGE);
        let granule = if refuses_huge { page } else { page.max(HUGE) };
        let slack = binding.slack(recipe.bytes, granule).div_ceil(page) as u64;
        let (page, touched) = (Bytes(page as u64), pages as u64);
        Some(Located { policy: binding.policy, page, touched, on, slack, refusal })
    }

    /// Looks up one page in each of at most `most` equal parts of the first `pages`: all of them if they are not more.
    /// Where in its part is drawn, since any fixed stride may keep step with pages that go round the nodes.
    fn locate(&self, pages: usize, page: usize, most: usize) -> io::Result<Vec<NodePages>> {
        let (parts, mut random) = (pages.min(most), fastrand::Rng::with_seed(pages as u64));
        let first = |part: usize| (part as u128 * pages as u128 / parts as u128) as usize;
        let addresses: Vec<usize> =
            (0..parts).map(|part| self.start + random.usize(first(part)..first(part + 1)) * page).collect();
        let mut found = Vec::new();
        for some in addresses.chunks(PAGES_AT_ONCE) {
            let nodes = numa::locate(some)?.into_iter().flatten();
            let mut sorted: Vec<u32> = nodes.collect();
            sorted.sort_unstable();
            let counts = sorted.chunk_by(|a, b| a == b);
            let counts: Vec<NodePages> =
                counts.map(|run| NodePages { node: run[0], pages: run.len() as u64 }).collect();
            found = summed(&[&found, &counts]);
        }
        Ok(found)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.release();
    }
}

impl Recipe {
    /// The system refused what was asked last.
    fn refused(&self) -> NoMemory {
        NoMemory::refused(self.kind, self.bytes, io::Error::last_os_error())
    }

    fn mmap(&self) -> *mut libc::c_void {
        let protection = if self.writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let sharing = |shared: bool| if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let (file, flags) = match &self.backing {
            // Pool pages are reserved now, so that touching them later can't fail with SIGBUS.
            Backing::Anonymous { shared, pool: true } => {
                let size = (self.page.trailing_zeros() as libc::c_int) << libc::MAP_HUGE_SHIFT;
                (-1, sharing(*shared) | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size)
            }
            Backing::Anonymous { shared, .. } => (-1, sharing(*shared) | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE),
            Backing::File { file, shared, .. } => (file.as_raw_fd(), sharing(*shared)),
            Backing::Heap => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        let offset = self.part.as_ref().map_or(0, Part::offset) as libc::off_t;
        // SAFETY: a fresh mapping at no fixed address; nothing existing is touched.
        unsafe { libc::mmap(ptr::null_mut(), self.mapped(), protection, flags, file, offset) }
    }
}

/// What smaps says of a range of addresses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Smaps {
    huge: Bytes,
    resident: Bytes,
    locked: Bytes,
}

impl Smaps {
    /// Of the mappings inside [start, end), according to the text of smaps.
    fn of(text: &str, start: u64, end: u64) -> Smaps {
        // The kernel merges neighbours that are alike: of what it counts no more than the part inside is ours.
        let mut inside = 0;
        let mut found = Smaps::default();
        for line in text.lines() {
            if let Some((from, to)) = mapping_range(line) {
                inside = to.min(end).saturating_sub(from.max(start));
            } else if inside > 0
                && let Some((name, value)) = line.split_once(':')
            {
                let kib = value.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
                let bytes = (kib << 10).min(inside);
                match name {
                    "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" | "Private_Hugetlb" | "Shared_Hugetlb" => {
                        found.huge.0 += bytes;
                    }
                    "Rss" => found.resident.0 += bytes,
                    "Locked" => found.locked.0 += bytes,
                    _ => {}
                }
            }
        }
        found
    }
}

fn mapping_range(line: &str) -> Option<(u64, u64)> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_are_read_inside_the_range_only() {
        let text = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nRss: 4096 kB\nAnonHugePages:      2048 kB\n\
                    Locked: 4 kB\n\
                    7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \nAnonHugePages:      4096 kB\nPrivate_Hugetlb: 0 kB\n";
        let first = Smaps { huge: Bytes::mib(2), resident: Bytes::mib(4), locked: Bytes::kib(4) };
        assert_eq!(Smaps::of(text, 0x7f0000000000, 0x7f0000400000), first);
        assert_eq!(Smaps::of(text, 0x7f0000000000, 0x7f0000800000).huge, Bytes::mib(6));
        // Half of the second mapping, which is all huge: a neighbour's part is not ours.
        assert_eq!(Smaps::of(text, 0x7f0000400000, 0x7f0000600000).huge, Bytes::mib(2));
    }

    #[test]
    fn base_pages_are_obtained_and_counted() {
        let mut region = region(MemoryKind::Base);
        region.words().fill(1.0);
        let obtained = region.inspect(region.bytes());
        assert_eq!(obtained.bytes, Bytes::kib(100));
        assert!(obtained.huge_bytes.is_none_or(|b| b == Bytes(0)));
        // Containers may refuse move_pages; where it answers, it must answer for every page.
        let pages: u64 = obtained.pages_on_node.iter().map(|found| found.pages).sum();
        assert!(pages == 0 || pages == 25, "{pages}");
    }

    fn region(kind: MemoryKind) -> Region {
        Region::new(MemorySpec::of(kind), Bytes::kib(100), &Places::default()).unwrap()
    }

    #[test]
    fn memory_mapped_again_is_fresh() {
        for kind in [MemoryKind::Base, MemoryKind::Shared, MemoryKind::Populated] {
            let mut region = region(kind);
            region.words().fill(1.0);
            region.unmap();
            region.map().unwrap();
            assert!(region.words().iter().all(|word| *word == 0.0), "{kind}");
        }
    }

    #[test]
    fn populated_memory_proves_it() {
        let region = region(MemoryKind::Populated);
        assert!(region.inspect(region.bytes()).proofs.iter().all(|proof| proof.holds));
    }
}
