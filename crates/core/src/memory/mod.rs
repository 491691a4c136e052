//! Memory kinds: what is asked for, what was obtained, and how that is known.
//!
//! ```text
//! SPEC   = KIND | KIND@PLACE              thp    huge-2m@node1
//! ```
//! PLACE is a [`Policy`].

pub mod behaviour;
pub mod filler;
pub mod located;
pub mod policy;
pub mod proof;
pub mod sharing;

use crate::memory::located::{NodePages, summed};
use crate::memory::proof::Proof;
use crate::memory::sharing::Sharing;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::room::NodeRoom;
use crate::memory::located::Located;
use crate::memory::policy::{NodeSet, Policy, PolicyError};
use crate::units::{Bytes, HUGE_PAGE_USUAL, UnknownWord, words};

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

    /// Whether it is a file on disk.
    pub fn is_on_disk(self) -> bool {
        use MemoryKind::{FilePrivate, FilePrivateCold, FileShared, FileSharedCold};
        matches!(self, FilePrivate | FilePrivateCold | FileShared | FileSharedCold)
    }

    /// Whether it is the memory of a PCI device.
    pub fn is_of_a_device(self) -> bool {
        matches!(self, MemoryKind::Bar | MemoryKind::BarWc)
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
#[serde(from = "Written", into = "Written")]
#[schemars(with = "Written")]
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

/// Memory that could not be read; its text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Its kind.
    #[error("{0}; or KIND@PLACE, such as thp@node1")]
    Kind(#[from] UnknownWord),
    /// Its place.
    #[error(transparent)]
    Place(#[from] PolicyError),
}

impl FromStr for MemorySpec {
    type Err = SpecError;

    /// `thp`, `thp@node1`
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (kind, policy) = match text.split_once('@') {
            Some((kind, place)) => (kind, place.parse()?),
            None => (text, Policy::FirstTouch),
        };
        Ok(MemorySpec { kind: kind.parse()?, policy })
    }
}

impl fmt::Display for MemorySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            Policy::FirstTouch => write!(f, "{}", self.kind),
            policy => write!(f, "{}@{policy}", self.kind),
        }
    }
}

/// A [`MemorySpec`] as records hold it.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Written {
    /// Its kind.
    kind: MemoryKind,
    /// The one NUMA node that pages are bound to; absent with any other policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    /// Any other policy; absent: the node of the thread that touches a page first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
}

impl From<MemorySpec> for Written {
    fn from(spec: MemorySpec) -> Written {
        let node = spec.node();
        let policy = Some(spec.policy).filter(|policy| node.is_none() && !policy.is_first_touch());
        Written { kind: spec.kind, node, policy }
    }
}

impl From<Written> for MemorySpec {
    fn from(written: Written) -> MemorySpec {
        let bound = written.node.map(|node| Policy::Bind(NodeSet::one(node)));
        MemorySpec { kind: written.kind, policy: bound.or(written.policy).unwrap_or_default() }
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
    /// Bytes of a transparent huge page; absent where it is one of 2 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_page: Option<Bytes>,
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

impl Obtained {
    /// Bytes of a transparent huge page of the system that it is of.
    pub fn huge_page(&self) -> Bytes {
        self.huge_page.unwrap_or(HUGE_PAGE_USUAL)
    }

    /// Both together.
    pub fn and(mut self, other: Obtained) -> Obtained {
        self.bytes.0 += other.bytes.0;
        self.huge_bytes = self.huge_bytes.zip(other.huge_bytes).map(|(a, b)| Bytes(a.0 + b.0));
        self.huge_page = self.huge_page.max(other.huge_page);
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

    /// How a device shares it, where its behaviour told.
    pub fn sharing(&self) -> Option<Sharing> {
        self.proofs.iter().find_map(|proof| proof.claim.parse().ok())
    }

    /// Why this is not what was asked for, where pages were seen on nodes that the policy rules out.
    pub fn misplaced(&self) -> Option<String> {
        self.located.iter().find_map(Located::fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_kind_and_perhaps_a_place() {
        assert_eq!("thp".parse(), Ok(MemorySpec::of(MemoryKind::Thp)));
        assert_eq!("huge-2m@node1".parse(), Ok(MemorySpec::on(MemoryKind::Huge2M, 1)));
        assert!("fast@node1".parse::<MemorySpec>().unwrap_err().to_string().contains("huge-2m"));
        assert!("thp@1".parse::<MemorySpec>().unwrap_err().to_string().contains("node1"));
    }

    #[test]
    fn records_of_the_first_version_are_read() {
        let read = |text: &str| serde_json::from_str::<MemorySpec>(text).unwrap();
        assert_eq!(read(r#"{"kind":"thp"}"#), MemorySpec::of(MemoryKind::Thp));
        let bound = r#"{"kind":"4k","node":1}"#;
        assert_eq!(read(bound), MemorySpec::on(MemoryKind::Base, 1));
        assert_eq!(serde_json::to_string(&read(bound)).unwrap(), bound);
        let spread = r#"{"kind":"4k","policy":"interleave:0-1"}"#;
        assert_eq!(serde_json::to_string(&read(spread)).unwrap(), spread);
    }
}
