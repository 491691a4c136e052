//! Memory kinds: what is asked for, what was obtained, and how that is known.
//!
//! A [`Provider`] says how memory of its kind is mapped (a [`Recipe`]); a [`Region`] is that memory, mapped, and reads
//! back what came of it.

mod anonymous;
pub mod behaviour;
mod bind;
mod device;
mod file;
mod filler;
mod located;
mod numa;
mod os;
mod policy;
mod region;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::NodeRoom;
use crate::units::{Bytes, words};

pub use device::Part;
pub use filler::{CachedFile, Filler, drop_page_cache};
pub use located::Located;
pub use policy::{NODES, NodeSet, Policy, PolicyError, SpecError, WEIGHTED_MOST, Weights};
pub use region::{Advice, Backing, Cached, Recipe, Region};

words! {
    /// A kind of memory that a program can get.
    MemoryKind, "memory kind" {
        /// Base pages, transparent huge pages refused.
        Base = "4k",
        /// Transparent huge pages asked for.
        Thp = "thp",
        /// 2 MiB pages of the huge page pool.
        Huge2M = "huge-2m",
        /// 1 GiB pages of the huge page pool.
        Huge1G = "huge-1g",
        /// What malloc gives.
        Heap = "heap",
        /// Anonymous memory that children share.
        Shared = "shared",
        /// A file in memory whose size is sealed.
        Memfd = "memfd",
        /// Locked: never swapped.
        Locked = "locked",
        /// Pages made when mapped, not at first touch.
        Populated = "populated",
        /// A file on a memory file system.
        Tmpfs = "tmpfs",
        /// A file on disk whose changes stay private; its pages in the page cache.
        FilePrivate = "file-private",
        /// The same, its pages dropped from the page cache before first use.
        FilePrivateCold = "file-private-cold",
        /// A file on disk whose changes reach the file; its pages in the page cache.
        FileShared = "file-shared",
        /// The same, its pages dropped from the page cache before first use.
        FileSharedCold = "file-shared-cold",
        /// A file on persistent memory, mapped without a page cache.
        Dax = "dax",
        /// A PCI device's memory (BAR), as its resource file maps it: uncached.
        Bar = "bar",
        /// The same through its write-combining file.
        BarWc = "bar-wc",
        /// A DMA buffer of the system heap.
        DmaHeap = "dma-heap",
        /// A DMA buffer of an uncached heap.
        DmaHeapUncached = "dma-heap-uncached",
        /// A DMA buffer made of a memory file.
        Udmabuf = "udmabuf",
        /// Write-back, in the micro-VM: what the memory types are held against.
        Wb = "wb",
        /// Write-combining, in the micro-VM.
        Wc = "wc",
        /// Uncacheable, in the micro-VM.
        Uc = "uc",
        /// Uncacheable unless the MTRRs say write-combining, in the micro-VM.
        UcMinus = "uc-",
        /// Write-through, in the micro-VM.
        Wt = "wt",
        /// Write-protect, in the micro-VM: writes go around the caches.
        Wp = "wp",
    }
}

impl MemoryKind {
    /// Whether this is a memory type of the processor, which only page tables of our own can ask for.
    pub fn is_memory_type(self) -> bool {
        use MemoryKind::{Uc, UcMinus, Wb, Wc, Wp, Wt};
        matches!(self, Wb | Wc | Uc | UcMinus | Wt | Wp)
    }

    /// Size of its pages, where they come from a pool of huge pages.
    pub fn pool_page(self) -> Option<Bytes> {
        match self {
            MemoryKind::Huge2M => Some(Bytes::mib(2)),
            MemoryKind::Huge1G => Some(Bytes::gib(1)),
            _ => None,
        }
    }

    /// The kind that a cold one is from its second use on; any other is itself.
    pub fn warm(self) -> MemoryKind {
        match self {
            MemoryKind::FilePrivateCold => MemoryKind::FilePrivate,
            MemoryKind::FileSharedCold => MemoryKind::FileShared,
            kind => kind,
        }
    }

    /// Whether first use finds the page cache empty: its steady state is that of the kind without `-cold`.
    pub fn is_cold(self) -> bool {
        matches!(self, MemoryKind::FilePrivateCold | MemoryKind::FileSharedCold)
    }
}

/// What kind of memory a case asks for, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(from = "policy::Written", into = "policy::Written")]
#[schemars(with = "policy::Written")]
pub struct MemorySpec {
    /// Its kind.
    pub kind: MemoryKind,
    /// The nodes of its pages.
    pub policy: Policy,
}

impl MemorySpec {
    /// Memory of this kind, wherever its pages come to lie.
    pub const fn of(kind: MemoryKind) -> Self {
        MemorySpec { kind, policy: Policy::FirstTouch }
    }

    /// Memory of this kind, all of it on one node.
    pub const fn on(kind: MemoryKind, node: u32) -> Self {
        MemorySpec { kind, policy: Policy::Bind(NodeSet::one(node)) }
    }

    /// The one node that all pages are bound to, if so.
    pub fn node(&self) -> Option<u32> {
        match self.policy {
            Policy::Bind(nodes) => nodes.only(),
            _ => None,
        }
    }
}

/// Where kinds of memory come from that have a place: what the user named, or the system's usual places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Folder on the disk whose files are to be measured. Files made there have no name and vanish with the process.
    pub folder: PathBuf,
    /// Folder on a memory file system; the same holds.
    pub tmpfs: PathBuf,
    /// Folder on a file system for persistent memory, if the user named one.
    pub dax: Option<PathBuf>,
    /// Resource file of a PCI device (`/sys/bus/pci/devices/0000:00:04.0/resource2`), if the user named one.
    pub bar: Option<PathBuf>,
    /// Whether that device may be written to.
    pub bar_writes: bool,
    /// Where device nodes are: `/dev`.
    pub devices: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Places {
            folder: ".".into(),
            tmpfs: "/dev/shm".into(),
            dax: None,
            bar: None,
            bar_writes: false,
            devices: "/dev".into(),
        }
    }
}

/// Says how memory of one kind is had. One a kind, or a family of kinds; stateless.
pub trait Provider: Sync {
    /// How to map at least `bytes` of it. May open and fill files; maps nothing.
    fn recipe(&self, bytes: Bytes, places: &Places) -> Result<Recipe, NoMemory>;
}

/// The provider of a kind.
fn provider(kind: MemoryKind) -> &'static dyn Provider {
    use MemoryKind as Kind;
    use anonymous::Anonymous;
    use device::{Bar, DmaHeap};
    use file::Disk;
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
        Kind::Wb | Kind::Wc | Kind::Uc | Kind::UcMinus | Kind::Wt | Kind::Wp => &Nowhere,
    }
}

/// No memory of this process.
struct Nowhere;

impl Provider for Nowhere {
    fn recipe(&self, _bytes: Bytes, _places: &Places) -> Result<Recipe, NoMemory> {
        Err(NoMemory::absent("only the micro-VM has memory types", "use `membound kinds`"))
    }
}

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
    fn absent(why: impl Into<String>, cure: &str) -> Self {
        NoMemory::Absent { why: why.into(), cure: cure.into() }
    }

    fn refused(kind: MemoryKind, bytes: usize, source: io::Error) -> Self {
        use MemoryKind as Kind;
        let hint = match kind {
            Kind::Huge2M => "; reserve pages with `sysctl vm.nr_hugepages=N` (2 MiB each)",
            Kind::Huge1G => "; reserve pages with `hugepagesz=1G hugepages=N` on the kernel's command line",
            Kind::Locked => "; raise the limit with `ulimit -l` or ask for less with --size",
            Kind::Bar | Kind::BarWc => "; a driver, the lockdown mode or a device that is off keeps this BAR from us",
            Kind::Udmabuf => "; ask for less with --size, or raise /sys/module/udmabuf/parameters/size_limit_mb",
            _ => "; ask for less with --size",
        };
        NoMemory::Refused { bytes: Bytes(bytes as u64), kind, source, hint }
    }
}

/// What was really obtained, read back after the run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Obtained {
    /// Bytes of the mappings.
    pub bytes: Bytes,
    /// Bytes backed by huge pages (transparent or from a pool), by smaps; absent where smaps can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_bytes: Option<Bytes>,
    /// Pages found on each node, by move_pages, nodes ascending; empty where that is refused. At most 4096 pages of each
    /// mapping are looked up; a million of those with a policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages_on_node: Vec<NodePages>,
    /// Where the pages of each policy were found; one entry a policy. What it proves stands in `proofs` too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub located: Vec<Located>,
    /// Physical address of each huge page, from the first on, by pagemap; empty where it was not asked for or is hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<u64>,
    /// What else shows that the memory is of the kind asked for, or is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
    /// The page cache that stood beside it, where a case asked for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<CacheFound>,
}

/// The page cache beside which memory was asked for, read right before that.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CacheFound {
    /// Why the page cache could not be emptied first; absent where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// How much of the file was in the page cache then, by mincore; absent where there was no file or the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_cached: Option<Bytes>,
    /// Each node's memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRoom>,
    /// Pages that were looked up and lie on another node than the CPU that touched them first; absent where that is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_pages: Option<u64>,
}

/// Pages found on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePages {
    /// The node.
    pub node: u32,
    /// Pages.
    pub pages: u64,
}

/// A property of memory, and how it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// What the kind promises: `locked in memory`.
    pub claim: String,
    /// Who says so: `smaps`, `statfs`, `behaviour`.
    pub by: String,
    /// What it said: `32 MiB of 32 MiB`.
    pub seen: String,
    /// Whether that bears the claim out.
    pub holds: bool,
}

impl Proof {
    /// A claim and what was seen of it.
    pub fn new(claim: &str, by: &str, seen: impl Into<String>, holds: bool) -> Self {
        Proof { claim: claim.into(), by: by.into(), seen: seen.into(), holds }
    }
}

impl Obtained {
    /// Both together.
    pub fn and(mut self, other: Obtained) -> Obtained {
        self.bytes.0 += other.bytes.0;
        self.huge_bytes = self.huge_bytes.zip(other.huge_bytes).map(|(a, b)| Bytes(a.0 + b.0));
        self.pages_on_node = summed(&[&self.pages_on_node, &other.pages_on_node]);
        // Counts of both together make new proofs of where pages lie.
        self.proofs.retain(|proof| !self.located.iter().any(|located| located.proof() == *proof));
        let known = |proof: &Proof| other.located.iter().any(|located| located.proof() == *proof);
        let others: Vec<Proof> = other.proofs.iter().filter(|proof| !known(proof)).cloned().collect();
        self.located = located::merged(std::mem::take(&mut self.located), other.located);
        for proof in others.into_iter().chain(self.located.iter().map(Located::proof)) {
            if !self.proofs.contains(&proof) {
                self.proofs.push(proof);
            }
        }
        self
    }

    /// Why this is not what was asked for, where pages were seen on nodes that the policy rules out.
    pub fn misplaced(&self) -> Option<String> {
        self.located.iter().find_map(Located::fault)
    }
}

/// Pages on each node over all counts, nodes ascending.
fn summed(counts: &[&[NodePages]]) -> Vec<NodePages> {
    let mut sum: BTreeMap<u32, u64> = BTreeMap::new();
    for found in counts.iter().copied().flatten() {
        *sum.entry(found.node).or_insert(0) += found.pages;
    }
    sum.into_iter().map(|(node, pages)| NodePages { node, pages }).collect()
}
