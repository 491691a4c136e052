//! How much memory can still be had, and where: few files, read anew each time, for those who are about to take much.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::fact::Fact;
use crate::machine::limits::MemoryLimit;
use crate::machine::pages::meminfo;
use crate::machine::source::Source;
use crate::machine::{limits, pages};
use crate::units::Bytes;

/// What is free, what could be given up, and what stands in the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    /// What the kernel thinks a new program can have without swapping.
    pub available: Fact<Bytes>,
    /// Memory that the kernel manages.
    pub total: Fact<Bytes>,
    /// Unused swap space; zero where there is none.
    pub swap_free: Fact<Bytes>,
    /// Memory limits of control groups, from the process's own upwards.
    pub limits: Vec<MemoryLimit>,
    /// Share of the last ten seconds in which nothing ran for want of memory, 0 to 1.
    pub stalled: Fact<f64>,
    /// Online nodes, ascending.
    pub nodes: Vec<NodeRoom>,
}

/// A node's memory, bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRoom {
    /// The node.
    pub node: u32,
    /// Memory that the kernel manages.
    pub total: Bytes,
    /// Memory that holds nothing.
    pub free: Bytes,
    /// Page cache, files in memory included.
    pub page_cache: Bytes,
    /// Page cache that can be dropped at once: clean pages of files on disks.
    pub clean_cache: Bytes,
}

impl Room {
    /// Reads it; some 100 us, more with many nodes. A node that does not tell all its figures is left out.
    pub fn read(source: &Source) -> Self {
        let memory = pages::memory(source);
        let nodes = source.numbered(FOLDER, "node");
        Room {
            available: memory.available,
            total: memory.total,
            swap_free: memory.swap_free,
            limits: limits::memory(source).known().cloned().unwrap_or_default(),
            stalled: source
                .text("proc/pressure/memory")
                .and_then(|text| Fact::from_option(stalled(&text), || "/proc/pressure/memory does not tell".into())),
            nodes: nodes.into_iter().filter_map(|node| NodeRoom::read(source, node)).collect(),
        }
    }

    /// A node's memory; none where it is not there (any more).
    pub fn node(&self, node: u32) -> Option<&NodeRoom> {
        self.nodes.iter().find(|room| room.node == node)
    }

    /// The control group that leaves least, and what it leaves.
    pub fn tightest(&self) -> Option<(&MemoryLimit, Bytes)> {
        let left = |limit: &MemoryLimit| limit.headroom().get().unwrap_or(limit.limit);
        self.limits.iter().map(|limit| (limit, left(limit))).min_by_key(|(_, left)| *left)
    }

    /// What a run may take for what it measures.
    pub fn allowance(&self) -> Bytes {
        let group = self.tightest().map(|(_, left)| left);
        allowance(self.available.get().into_iter().chain(group).min())
    }

    /// What can be taken with a margin left over, and who says so: the machine or a control group. None where neither
    /// tells.
    pub fn to_spare(&self) -> Option<(Bytes, String)> {
        let less = |left: Bytes, all: Bytes| Bytes(left.0.saturating_sub(margin(all).0));
        let all = self.total.get().unwrap_or_default();
        let machine = self.available.get().map(|left| (less(left, all), "the machine".to_string()));
        let group = self.tightest();
        let group = group.map(|(limit, left)| (less(left, limit.limit), limit.whose()));
        machine.into_iter().chain(group).min()
    }
}

impl NodeRoom {
    fn read(source: &Source, node: u32) -> Option<Self> {
        let path = format!("{FOLDER}/node{node}/meminfo");
        let text = source.text(&path);
        let field = |name| meminfo(&text, &path, name).get();
        let cache = field("Active(file)")?.0 + field("Inactive(file)")?.0;
        let busy = field("Dirty").unwrap_or_default().0 + field("Writeback").unwrap_or_default().0;
        Some(NodeRoom {
            node,
            total: field("MemTotal")?,
            free: field("MemFree")?,
            page_cache: field("FilePages")?,
            clean_cache: Bytes(cache.saturating_sub(busy)),
        })
    }

    /// What can be taken of it alone with a margin left over, its page cache given up.
    pub fn to_spare(&self) -> Bytes {
        Bytes((self.free.0 + self.clean_cache.0).saturating_sub(margin(self.total).0))
    }
}

/// Share of the memory that is free which a run takes at most, its own included.
const SHARE: f64 = 0.4;
/// What a run takes for itself beyond what it has when it begins: records, figures, the page; the most that was seen, and half.
const OWN: Bytes = Bytes::mib(32);
/// Whoever asks for little may have it, however little is free.
const LEAST: Bytes = Bytes::mib(16);

/// What a run may take for what it measures, of so much that is free.
pub fn allowance(free: Option<Bytes>) -> Bytes {
    let free = free.unwrap_or(Bytes::gib(2));
    Bytes(((free.0 as f64 * SHARE) as u64).saturating_sub(OWN.0).max(LEAST.0))
}

/// The least that must be free so that a run may take so much.
pub fn needed(bytes: Bytes) -> Bytes {
    Bytes(((bytes.0 + OWN.0) as f64 / SHARE).ceil() as u64)
}

const FOLDER: &str = "sys/devices/system/node";

/// What is left alone of so much memory: more than the kernel's own reserves (a 384 MiB node begins to fall back on others
/// 30 to 45 MiB before its end), and enough for a neighbour's sudden wish.
pub fn margin(all: Bytes) -> Bytes {
    Bytes((all.0 / 32).clamp(Bytes::mib(48).0, Bytes::gib(1).0))
}

/// `full avg10=0.12 avg60=...`: a share.
fn stalled(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("full "))?;
    let percent: f64 = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    Some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_a_share() {
        let text = "some avg10=9.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=12.50 avg60=0.00 avg300=0.00 total=1";
        assert_eq!(stalled(text), Some(0.125));
        assert_eq!(stalled("some avg10=9.00"), None);
        assert_eq!(stalled(""), None);
    }

    #[test]
    fn margins_are_neither_nothing_nor_much() {
        assert_eq!(margin(Bytes::mib(384)), Bytes::mib(48));
        assert_eq!(margin(Bytes::gib(16)), Bytes::mib(512));
        assert_eq!(margin(Bytes::gib(512)), Bytes::gib(1));
    }
}
