//! Memory kinds: what is asked for, what was obtained, and how that is known.

mod region;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

pub use region::{NoMemory, Region};

/// How memory is backed by pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum MemoryKind {
    /// Base pages, transparent huge pages refused.
    #[serde(rename = "4k")]
    Base,
    /// Transparent huge pages asked for.
    #[serde(rename = "thp")]
    Thp,
    /// 2 MiB pages of the huge page pool.
    #[serde(rename = "huge-2m")]
    Huge2M,
    /// 1 GiB pages of the huge page pool.
    #[serde(rename = "huge-1g")]
    Huge1G,
}

/// What kind of memory a case asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct MemorySpec {
    /// Page backing.
    pub kind: MemoryKind,
    /// NUMA node that pages are bound to; absent: the node of the thread that touches them first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
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
    /// mapping are looked up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages_on_node: Vec<NodePages>,
}

/// Pages found on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePages {
    /// The node.
    pub node: u32,
    /// Pages.
    pub pages: u64,
}

impl Obtained {
    /// Both together.
    pub fn and(mut self, other: Obtained) -> Obtained {
        self.bytes.0 += other.bytes.0;
        self.huge_bytes = self.huge_bytes.zip(other.huge_bytes).map(|(a, b)| Bytes(a.0 + b.0));
        let mut sum: BTreeMap<u32, u64> = BTreeMap::new();
        for found in self.pages_on_node.iter().chain(&other.pages_on_node) {
            *sum.entry(found.node).or_insert(0) += found.pages;
        }
        self.pages_on_node = sum.into_iter().map(|(node, pages)| NodePages { node, pages }).collect();
        self
    }
}

impl MemoryKind {
    /// All kinds.
    pub const ALL: &'static [MemoryKind] = &[MemoryKind::Base, MemoryKind::Thp, MemoryKind::Huge2M, MemoryKind::Huge1G];

    /// The word used on the command line and in records.
    pub fn word(self) -> &'static str {
        match self {
            MemoryKind::Base => "4k",
            MemoryKind::Thp => "thp",
            MemoryKind::Huge2M => "huge-2m",
            MemoryKind::Huge1G => "huge-1g",
        }
    }
}

impl fmt::Display for MemorySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "{} on node {node}", self.kind.word()),
            None => f.write_str(self.kind.word()),
        }
    }
}

impl std::str::FromStr for MemoryKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.iter().copied().find(|kind| kind.word() == text).ok_or_else(|| UnknownKind(text.into()))
    }
}

/// A word that names no memory kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown memory kind '{0}'; use one of: 4k, thp, huge-2m, huge-1g")]
pub struct UnknownKind(String);
