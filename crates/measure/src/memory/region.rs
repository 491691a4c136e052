//! A mapping of one memory kind, and the proof of what it is.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use crate::memory::allowance::{Allowance, Claim};
use crate::memory::bind::Binding;
use crate::memory::huge;
use crate::memory::no_memory::NoMemory;
use crate::memory::part::Part;
use crate::memory::places::Places;
use crate::memory::providers::provider;
use crate::memory::recipe::{Backing, Cached, Recipe};
use crate::os::advice::Advice;
use crate::os::memory::Mapped;
use crate::os::pages;
use crate::os::pages::Smaps;
use crate::os::{files, memory, numa};
use membound_core::memory::located::{self, Located, NodePages, summed};
use membound_core::memory::policy::{NodeSet, Policy};
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::units::{BASE_PAGE, Bytes, HUGE_PAGE_USUAL};

/// A collapse that met a busy page goes on from there; more often than this it is not asked to.
const TRIES_MOST: u32 = 100;
/// Memory of one kind, owned, aligned to its page size (a huge page for `thp`). Pages come with the first touch, unless the
/// kind says otherwise.
#[derive(Debug)]
pub struct Region {
    recipe: Recipe,
    /// Where its pages are to lie, if anywhere.
    binding: Option<Binding>,
    /// What was mapped or allocated, from here; nothing while unmapped.
    mapping: Option<usize>,
    /// What it may take its bytes from, and that it has.
    allowance: Allowance,
    claim: Option<Claim>,
    /// First usable byte: `mapping` rounded up.
    start: usize,
    /// Bytes that were there when it was first mapped, before anything touched it; for kinds that promise that.
    populated: Option<Bytes>,
    /// What the page cache held of its file when it was mapped; where that matters. With a cold file the most ever seen.
    cached: Option<Bytes>,
}

/// Pages asked for by one inspection: enough to see what came of first touch, few enough to take a millisecond.
const PAGES_INSPECTED: usize = 4096;
/// The same where a policy must hold: all up to 4 GiB of base pages, which takes some tenths of a second.
const PAGES_VERIFIED: usize = 1 << 20;
/// Pages of one system call.
const PAGES_AT_ONCE: usize = 1 << 14;

impl Region {
    /// Maps `bytes` (rounded up to whole pages) of the kind that `spec` names.
    pub fn new(spec: MemorySpec, bytes: Bytes, places: &Places) -> Result<Self, NoMemory> {
        Region::aligned(spec, bytes, Bytes(0), places)
    }

    /// The same, aligned to and a multiple of `alignment` (a power of two, or 0) even where its pages are smaller.
    pub fn aligned(spec: MemorySpec, bytes: Bytes, alignment: Bytes, places: &Places) -> Result<Self, NoMemory> {
        let source = crate::machine::source();
        let binding = Binding::new(spec, bytes, &source)?;
        // While the recipe is made, which may fill a file: what it comes to is claimed when it is mapped.
        let claim = claim(spec.kind, Recipe::whole_pages(bytes, BASE_PAGE as usize), &places.allowance)?;
        let recipe = || provider(spec.kind).recipe(bytes, places);
        let mut recipe = match &binding {
            Some(binding) => binding.around(recipe)??,
            None => recipe()?,
        };
        let binding = binding.map(|binding| binding.suited(&recipe, bytes, &source)).transpose()?;
        if recipe.page < alignment.0 as usize && !recipe.is_of_a_file() {
            recipe.page = alignment.0 as usize;
            recipe.bytes = Recipe::whole_pages(Bytes(recipe.bytes as u64), recipe.page);
        }
        drop(claim);
        let allowance = places.allowance.clone();
        let mut region =
            Region { recipe, binding, mapping: None, allowance, claim: None, start: 0, populated: None, cached: None };
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
        if self.is_mapped() {
            self.release();
            self.cool();
        }
    }

    fn release(&mut self) {
        if !self.is_kept_by_its_file() {
            self.claim = None;
        }
        let Some(mapping) = self.mapping.take() else { return };
        if matches!(self.recipe.backing, Backing::Heap) {
            // Whoever gets these pages next has not asked for their node.
            if self.binding.is_some() {
                let (start, bytes) = (self.start, self.recipe.bytes);
                let _ = numa::mbind(start, bytes, numa::Mode::Default, &NodeSet::EMPTY, false);
            }
            // SAFETY: `mapping` came from `allocate`, was owned by `self`, and no borrow of it exists.
            unsafe { memory::free(mapping) }
        } else {
            // SAFETY: `map` made the mapping with this length, `self` owned it, and no borrow of it exists.
            unsafe { memory::unmap(mapping, self.recipe.mapped()) }
        }
    }

    /// Whether unmapping gives nothing back: buffers for devices hold their pages as long as they are open.
    fn is_kept_by_its_file(&self) -> bool {
        matches!(self.recipe.backing, Backing::File { cached: Cached::Unasked, .. })
    }

    fn is_cold(&self) -> bool {
        matches!(self.recipe.backing, Backing::File { cached: Cached::Nothing, .. })
    }

    /// Drops a cold file from the page cache, and sees whether that worked; empties a file that is memory.
    fn cool(&mut self) {
        let Backing::File { file, cached, .. } = &self.recipe.backing else { return };
        match cached {
            Cached::Nothing => {
                files::drop_cached(file);
                self.look_for_cached(Cached::Nothing);
            }
            Cached::Itself => files::empty(file, self.bytes()),
            Cached::All | Cached::Unasked => {}
        }
    }

    /// Sees what is in the page cache, if the file is to be there like this.
    fn look_for_cached(&mut self, wanted: Cached) {
        if let Backing::File { file, cached, .. } = &self.recipe.backing
            && *cached == wanted
        {
            self.cached = self.cached.max(files::cached(file, self.recipe.bytes));
        }
    }

    /// Maps the memory again after [`Region::unmap`].
    pub fn map(&mut self) -> Result<(), NoMemory> {
        self.unmap();
        let recipe = &self.recipe;
        if self.claim.is_none() {
            self.claim = claim(recipe.kind, recipe.bytes, &self.allowance)?;
        }
        // The heap and files take no node.
        let is_anonymous = matches!(recipe.backing, Backing::Anonymous { .. });
        let node = self.binding.as_ref().and_then(Binding::node).filter(|_| is_anonymous);
        let mapping = recipe.map(node).map_err(|fault| recipe.refused(fault))?;
        self.mapping = Some(mapping);
        self.start = mapping.next_multiple_of(recipe.page);
        // A fork would else copy the page tables of all regions, and make their next writes fault.
        let hidden = (!matches!(recipe.backing, Backing::Heap)).then_some(Advice::NoFork);
        for advice in hidden.into_iter().chain(recipe.advice) {
            // SAFETY: the range lies within our own fresh mapping.
            let _ = unsafe { memory::advise(self.start, recipe.bytes, advice) };
        }
        if let (Some(binding), None) = (&self.binding, node) {
            // The heap may hand out pages that were used before.
            let moves = matches!(recipe.backing, Backing::Heap);
            binding.apply(self.start, recipe.bytes, recipe.page, moves)?;
        }
        self.make_pages()
    }

    /// Makes pages where the kind has them made in advance.
    fn make_pages(&self) -> Result<(), NoMemory> {
        let (start, bytes) = (self.start, self.recipe.bytes);
        // SAFETY: the range is our own mapping; populating it changes no contents.
        let populate = || unsafe { memory::advise(start, bytes, Advice::Populate) };
        let populated = if self.recipe.populate { populate() } else { Ok(()) };
        let lock = || if self.recipe.lock { memory::lock(start, bytes) } else { Ok(()) };
        populated.and_then(|()| lock()).map_err(|fault| self.recipe.refused(fault))
    }

    /// Says where its pages are to come from. Only those that are made afterwards heed it, until it is mapped again.
    ///
    /// # Errors
    /// The kernel's refusal: the node is gone, or may not be used.
    pub fn place(&self, policy: Policy) -> Result<(), NoMemory> {
        let (spec, bytes) = (MemorySpec { kind: self.recipe.kind, policy }, self.bytes());
        let source = crate::machine::source();
        let Some(binding) = Binding::new(spec, bytes, &source)? else { return Ok(()) };
        let binding = binding.suited(&self.recipe, bytes, &source)?;
        binding.apply(self.start, self.recipe.bytes, self.recipe.page, false)
    }

    /// Whether it is mapped.
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_some()
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
        let (name, needs) = memory::needs(advice);
        if !self.is_mapped() {
            return Ok(());
        }
        // SAFETY: the range is our own mapping, borrowed exclusively. Its contents stay or become zero, both valid.
        let advise = || unsafe { memory::advise(self.start, self.recipe.bytes, advice) };
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
        if !self.is_mapped() || !self.recipe.writable {
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
        files::open_directly(file).map_err(|fault| {
            let why = format!("its file system reads and writes through the page cache only ({fault})");
            NoMemory::absent(why, "name a folder on another disk with --dir")
        })
    }

    /// What was obtained for the first `touched` bytes: huge pages by smaps, nodes by the system, and what the kind
    /// promises beyond that.
    pub fn inspect(&self, touched: Bytes) -> Obtained {
        let smaps = self.smaps();
        let mut proofs = self.recipe.proofs.clone();
        let of = |part: Bytes| (format!("{part} of {}", self.bytes()), part >= self.bytes());
        if let (true, Some(smaps)) = (self.recipe.lock, &smaps) {
            let (seen, holds) = of(smaps.locked);
            proofs.push(Proof::new("locked in memory", pages::SOURCE, seen, holds));
        }
        if let Some(populated) = self.populated {
            let (seen, holds) = of(populated);
            proofs.push(Proof::new("present before the first touch", pages::SOURCE, seen, holds));
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
            huge_page: Some(huge::transparent()).filter(|page| *page != HUGE_PAGE_USUAL),
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
        Smaps::read(self.start as u64..(self.start + self.recipe.bytes) as u64)
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
            Err(fault) => (Vec::new(), Some(format!("{} was refused ({fault})", located::BY))),
        };
        let refuses_huge = recipe.advice == Some(Advice::NoHuge);
        let granule = if refuses_huge { page } else { page.max(huge::transparent().0 as usize) };
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

/// Takes what memory of a kind takes of what is free: a device's own, and pools that were set aside, take nothing of it.
fn claim(kind: MemoryKind, bytes: usize, allowance: &Allowance) -> Result<Option<Claim>, NoMemory> {
    if kind.pool_page().is_some() || kind.is_of_a_device() {
        return Ok(None);
    }
    allowance.claim(Bytes(bytes as u64)).map(Some)
}

impl Drop for Region {
    fn drop(&mut self) {
        self.release();
    }
}

impl Recipe {
    fn refused(&self, source: io::Error) -> NoMemory {
        NoMemory::refused(self.kind, self.bytes, source)
    }

    /// Memory with room to align it, on a node where the system takes one.
    fn map(&self, node: Option<u32>) -> io::Result<usize> {
        let what = match &self.backing {
            Backing::Heap => return memory::allocate(self.bytes.saturating_add(self.page)),
            Backing::Anonymous { shared, pool } => {
                Mapped::Anonymous { shared: *shared, pool_page: pool.then_some(self.page), kind: self.kind, node }
            }
            Backing::File { file, shared, .. } => {
                Mapped::File { file, shared: *shared, offset: self.part.as_ref().map_or(0, Part::offset) }
            }
        };
        memory::map(what, self.mapped(), self.writable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let of_linux = if cfg!(windows) { &[][..] } else { &[MemoryKind::Shared, MemoryKind::Populated] };
        for &kind in [MemoryKind::Base].iter().chain(of_linux) {
            let mut region = region(kind);
            region.words().fill(1.0);
            region.unmap();
            region.map().unwrap();
            assert!(region.words().iter().all(|word| *word == 0.0), "{kind}");
        }
    }

    /// Filling a file of too many bytes takes long, or all of a memory file system.
    #[cfg(not(windows))]
    #[test]
    fn the_allowance_is_asked_before_a_file_is_made() {
        let (allowance, tmpfs) = (Allowance::of(Bytes::mib(1)), "/no/such/folder".into());
        let places = Places { allowance: allowance.clone(), tmpfs, ..Places::default() };
        let of = |mib| Region::new(MemorySpec::of(MemoryKind::Tmpfs), Bytes::mib(mib), &places).unwrap_err();
        assert!(matches!(of(2), NoMemory::Allowance { .. }));
        assert!(matches!(of(1), NoMemory::File { .. }));
        assert_eq!(allowance.left(), Bytes::mib(1));
    }

    #[cfg(windows)]
    #[test]
    fn files_are_refused_before_they_are_filled() {
        let places = Places { folder: "/no/such/folder".into(), ..Places::default() };
        let spec = MemorySpec::of(MemoryKind::FileShared);
        let reason = Region::new(spec, Bytes::kib(100), &places).unwrap_err().to_string();
        assert!(reason.ends_with("Windows has no mappings of files in this program yet"), "{reason}");
    }

    #[cfg(windows)]
    #[test]
    fn memory_lies_on_the_node_that_is_asked_for() {
        let of = |spec: &str| Region::new(spec.parse().unwrap(), Bytes::kib(100), &Places::default());
        for spec in ["4k@node0", "thp@preferred:0"] {
            let mut region = of(spec).unwrap();
            region.words().fill(1.0);
            let proofs = region.inspect(region.bytes()).proofs;
            let seen = proofs.iter().find(|proof| proof.by == located::BY).unwrap();
            assert!(seen.holds && seen.seen.starts_with(char::is_numeric), "{spec}: {seen:?}");
        }
        assert!(of("4k@node63").unwrap_err().to_string().starts_with("there is no node 63"));
        for spec in ["4k@interleave:0", "heap@node0", "4k@weighted:0=1"] {
            let reason = of(spec).unwrap_err().to_string();
            assert!(reason.contains("; name one node"), "{reason}");
        }
    }

    #[cfg(not(windows))]
    #[test]
    fn populated_memory_proves_it() {
        let region = region(MemoryKind::Populated);
        assert!(region.inspect(region.bytes()).proofs.iter().all(|proof| proof.holds));
    }
}
