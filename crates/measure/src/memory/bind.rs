//! From a policy to what the kernel is told: which way, and whether that can work at all on this machine.
//!
//! Weights are the kernel's own affair where it knows them (Linux 6.9) and they have the proportions asked for; they are one
//! setting of the whole system, which only root may change, so it is read and left alone. A node gets as many pages in a row as its
//! weight there, so a round may be longer than the mapping. Else blocks of a mapping are placed by hand, which every kernel and every
//! user can:
//!
//! ```text
//! weighted:0=3,1=1 | 0 | 0 | 1 | 0 | 0 | 0 | 1 | 0 | ...   blocks of 2 MiB, or of a larger page
//! ```
//! A block prefers its node and is not bound to it: should the node fill up, the run goes on, and the pages found show
//! that shares are not as asked for.

use std::io;

use crate::memory::huge;
use crate::memory::no_memory::NoMemory;
use crate::memory::recipe::{Backing, Recipe};
use crate::os::advice::Advice;
use crate::os::numa;
use crate::os::numa::Mode;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::fact::Fact;
use membound_core::machine::nodes::{node_available, node_huge_pages};
use membound_core::machine::source::Source;
use membound_core::memory::policy::{NodeSet, Policy, Weights};
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::units::{BASE_PAGE, Bytes};

/// Smallest block that is placed by hand: a huge page stays whole.
const BLOCK: usize = 2 << 20;
/// Rounds of a mapping, at least, where the kernel places its pages: shares are then within a sixteenth of what is asked for.
const LEAST_ROUNDS: u64 = 16;
/// The kernel's usual limit on mappings of a process (vm.max_map_count).
const MAPS_USUAL: usize = 65530;

/// How memory is placed.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub policy: Policy,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The kernel places each page, in rounds of so many where it goes round.
    Kernel { mode: Mode, round: u64 },
    /// Each block is told its node; no more than so many mappings may come of it.
    Blocks { maps_most: usize },
}

/// A part of a mapping, by offset, that follows one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: usize,
    bytes: usize,
    mode: Mode,
    nodes: NodeSet,
}

impl Binding {
    /// How to place `bytes` of memory, as far as that is known before they are mapped ([`Binding::suited`] says the rest); `None` where
    /// there is nothing to do.
    ///
    /// # Errors
    /// The nodes are not there, hold no memory, are forbidden, or have no room.
    pub fn new(spec: MemorySpec, bytes: Bytes, source: &Source) -> Result<Option<Binding>, NoMemory> {
        let mode = match spec.policy {
            Policy::FirstTouch => return Ok(None),
            Policy::Bind(_) => Mode::Bind,
            Policy::Preferred(_) => Mode::Preferred,
            Policy::Interleave(_) => Mode::Interleave,
            Policy::Weighted(_) => Mode::WeightedInterleave,
        };
        check_nodes(spec.policy.nodes(), source)?;
        if let Policy::Bind(nodes) = spec.policy {
            check_room(nodes, spec.kind, bytes, source)?;
        }
        let round = match spec.policy {
            Policy::Weighted(weights) => systems_round(&weights, source),
            policy => Some(sum(policy.shares().into_iter().map(|(_, weight)| weight))),
        };
        let way = round.map_or_else(|| by_hand(source), |round| Way::Kernel { mode, round });
        Ok(Some(Binding { policy: spec.policy, way }))
    }

    /// The same, as it suits what is mapped for so many bytes: where the kernel's rounds are too long for it, blocks are placed by
    /// hand. Pages of a file are made by whoever writes it, so blocks of its mapping decide nothing.
    pub fn suited(self, recipe: &Recipe, bytes: Bytes, source: &Source) -> Result<Binding, NoMemory> {
        match self.way {
            Way::Blocks { .. } if recipe.is_of_a_file() => Err(NoMemory::absent(
                format!("files can't be placed by hand, and the system's weights are not those of {}", self.policy),
                "choose a kind without a file, such as thp, or set /sys/kernel/mm/mempolicy/weighted_interleave as root",
            )),
            Way::Kernel { mode: Mode::WeightedInterleave, round }
                if !recipe.is_of_a_file() && !is_fine(round, self.policy.shares().len(), recipe, bytes) =>
            {
                Ok(Binding { way: by_hand(source), ..self })
            }
            _ => Ok(self),
        }
    }

    /// The node to map memory on, on systems that take it then; nothing is left to [apply](Binding::apply).
    pub fn node(&self) -> Option<u32> {
        let Way::Kernel { mode, .. } = self.way else { return None };
        numa::mapped_on(mode, &self.policy.nodes())
    }

    /// Has the pages that `work` makes follow the policy, as far as the kernel can do that.
    pub fn around<R>(&self, work: impl FnOnce() -> R) -> Result<R, NoMemory> {
        match self.way {
            Way::Kernel { mode, .. } if self.node().is_none() => {
                numa::with_policy(mode, &self.policy.nodes(), work).map_err(|fault| self.refused(fault))
            }
            _ => Ok(work()),
        }
    }

    /// Tells the kernel about a mapping whose pages have this size. What is there already moves if `moves`.
    pub fn apply(&self, start: usize, bytes: usize, page: usize, moves: bool) -> Result<(), NoMemory> {
        for span in self.spans(bytes, page) {
            let placed = numa::mbind(start + span.start, span.bytes, span.mode, &span.nodes, moves);
            placed.map_err(|fault| self.refused(fault))?;
        }
        Ok(())
    }

    fn spans(&self, bytes: usize, page: usize) -> Vec<Span> {
        match (self.way, &self.policy) {
            (Way::Blocks { maps_most }, Policy::Weighted(weights)) => {
                blocks(weights, bytes, block(bytes, page, maps_most))
            }
            (Way::Kernel { mode, .. }, policy) => vec![Span { start: 0, bytes, mode, nodes: policy.nodes() }],
            (Way::Blocks { .. }, _) => Vec::new(),
        }
    }

    /// Bytes by which a node's share of a mapping may differ from its weight: the kernel goes round by whole pages, so a
    /// mapping ends within a round; blocks keep every node within a block of its share.
    pub fn slack(&self, bytes: usize, page: usize) -> usize {
        match self.way {
            Way::Kernel { round, .. } => page * round as usize,
            Way::Blocks { maps_most } => block(bytes, page, maps_most) * self.policy.shares().len(),
        }
    }

    /// Which way weights are kept.
    pub fn proof(&self, bytes: usize, page: usize) -> Option<Proof> {
        let Policy::Weighted(_) = self.policy else { return None };
        let seen = match self.way {
            Way::Kernel { round, .. } => {
                format!("by the kernel (MPOL_WEIGHTED_INTERLEAVE); the system's weights are so, {round} pages a round")
            }
            Way::Blocks { maps_most } => {
                format!("by hand, in blocks of {}", Bytes(block(bytes, page, maps_most) as u64))
            }
        };
        Some(Proof::new(&format!("placed as {}", self.policy), "mbind", seen, true))
    }

    fn refused(&self, source: io::Error) -> NoMemory {
        let hint = numa::cure(source.kind());
        NoMemory::Policy { policy: Box::new(self.policy), source, hint }
    }
}

/// Bytes of a block: as small as pages and the number of mappings allow.
fn block(bytes: usize, page: usize, maps_most: usize) -> usize {
    let mut block = page.max(BLOCK);
    while bytes.div_ceil(block) > maps_most.max(1) {
        block *= 2;
    }
    block
}

/// Blocks of a mapping in turn, each to the node that is furthest behind its share; neighbours of one node are one span.
fn blocks(weights: &Weights, bytes: usize, block: usize) -> Vec<Span> {
    let mut had: Vec<(u32, i64, i64)> = weights.iter().map(|(node, weight)| (node, i64::from(weight), 0)).collect();
    let total: i64 = had.iter().map(|(_, weight, _)| weight).sum();
    let mut spans: Vec<Span> = Vec::new();
    for (turn, start) in (1..).zip((0..bytes).step_by(block)) {
        // The first of those that are equally far behind.
        let due = had.iter_mut().rev().max_by_key(|(_, weight, had)| weight * turn - total * *had);
        let Some((node, _, had)) = due else { return spans };
        *had += 1;
        let (nodes, bytes) = (NodeSet::one(*node), block.min(bytes - start));
        match spans.last_mut() {
            Some(last) if last.nodes == nodes => last.bytes += bytes,
            _ => spans.push(Span { start, bytes, mode: Mode::Preferred, nodes }),
        }
    }
    spans
}

/// The sum of the system's weights for these nodes, where they have the proportions asked for.
fn systems_round(weights: &Weights, source: &Source) -> Option<u64> {
    const FOLDER: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
    let pair = |(node, weight): (u32, u8)| Some((weight, source.number::<u8>(&format!("{FOLDER}/node{node}")).get()?));
    let pairs = weights.iter().map(pair).collect::<Option<Vec<_>>>()?;
    let fits = |(asked, has): &(u8, u8)| {
        let (first_asked, first_has) = pairs[0];
        *has > 0 && u16::from(*asked) * u16::from(first_has) == u16::from(*has) * u16::from(first_asked)
    };
    pairs.iter().all(fits).then(|| sum(pairs.iter().map(|(_, has)| *has)))
}

/// Whether rounds of so many pages on so many nodes are small parts of so many bytes, or no larger than those of blocks would be.
fn is_fine(round: u64, nodes: usize, recipe: &Recipe, bytes: Bytes) -> bool {
    let page = match recipe.backing {
        Backing::Anonymous { pool: true, .. } => recipe.page as u64,
        _ if recipe.advice == Some(Advice::NoHuge) => BASE_PAGE,
        // Of all others the kernel may make huge pages.
        _ => huge::transparent().0,
    };
    let by_hand = page.max(BLOCK as u64) * nodes as u64;
    page * round <= by_hand.max(bytes.0 / LEAST_ROUNDS)
}

fn by_hand(source: &Source) -> Way {
    Way::Blocks { maps_most: maps_left(source) / 2 }
}

fn sum(weights: impl Iterator<Item = u8>) -> u64 {
    weights.map(u64::from).sum()
}

/// Mappings that this process may still make.
fn maps_left(source: &Source) -> usize {
    let most = source.number::<usize>("proc/sys/vm/max_map_count").get().unwrap_or(MAPS_USUAL);
    most.saturating_sub(source.text("proc/self/maps").known().map_or(0, |maps| maps.lines().count()))
}

/// Every node must be there, hold memory and be allowed: of several nodes the kernel would silently drop those that are
/// not. Where the system does not tell, the kernel will.
fn check_nodes(nodes: NodeSet, source: &Source) -> Result<(), NoMemory> {
    const FOLDER: &str = "sys/devices/system/node";
    if nodes == NodeSet::EMPTY {
        return Err(NoMemory::absent("there is no such node: Linux numbers them from 0 to 1023", "name one of those"));
    }
    let online = source.list(&format!("{FOLDER}/online"));
    let with_memory = source.list(&format!("{FOLDER}/has_memory"));
    let allowed = source.text("proc/self/status").and_then(|text| {
        let list = text.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
        Fact::from_option(list.and_then(|list| CpuSet::parse(list).ok()), || "no Mems_allowed_list".into())
    });
    let lacks = |set: &Fact<CpuSet>, node: u32| set.known().is_some_and(|set| !set.contains(node));
    let choice = |set: &Fact<CpuSet>| format!("choose from nodes {}", set.known().cloned().unwrap_or_default());
    for node in nodes.iter() {
        if lacks(&online, node) {
            return Err(NoMemory::absent(format!("there is no node {node}"), &choice(&with_memory)));
        }
        if lacks(&with_memory, node) {
            return Err(NoMemory::absent(format!("node {node} has no memory"), &choice(&with_memory)));
        }
        if lacks(&allowed, node) {
            let cure = format!("{}, or have its cpuset widened", choice(&allowed));
            return Err(NoMemory::absent(format!("this process may not use memory of node {node}"), &cure));
        }
    }
    Ok(())
}

/// Memory bound to nodes without room for it would end in the kernel killing the process, or with huge pages in SIGBUS.
fn check_room(nodes: NodeSet, kind: MemoryKind, bytes: Bytes, source: &Source) -> Result<(), NoMemory> {
    let named = nodes.only().map_or_else(|| format!("nodes {nodes}"), |node| format!("node {node}"));
    let bytes = kind.pool_page().map_or(bytes, |page| Bytes(bytes.0.div_ceil(page.0).saturating_mul(page.0)));
    let room = |node: u32| match kind.pool_page() {
        Some(page) => node_huge_pages(source, node, page).get().map(|pages| pages.saturating_mul(page.0)),
        None => node_available(source, node).get().map(|room| room.0),
    };
    // Where the system does not tell, the first touch will.
    let sum = nodes.iter().map(room).sum::<Option<u64>>();
    let Some(has) = sum.filter(|has| *has < bytes.0).map(Bytes) else { return Ok(()) };
    let (what, cure) = match kind.pool_page() {
        Some(page) => {
            let (node, kib) = (nodes.iter().next().unwrap_or_default(), page.0 >> 10);
            let pool = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/nr_hugepages");
            ("in free huge pages", format!("reserve pages there: write their number to {pool} as root"))
        }
        None => ("to give", "give a smaller --size, or prefer the node, which may overflow".into()),
    };
    Err(NoMemory::absent(format!("{named}: {has} {what}, {bytes} are needed"), &cure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::recipe::Cached;
    use crate::skip::skip;
    use proptest::prelude::*;
    use std::fs;

    /// A machine of nodes 0 and 4 with memory, 2 without, 6 that is not allowed; node 4 has 3 huge pages, two of them
    /// free. The system's weights are 6 and 2.
    fn tree() -> (tempfile::TempDir, Source) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/status", "Name:\tx\nMems_allowed_list:\t0,2,4\n");
        write("proc/self/maps", "a\nb\n");
        write("proc/sys/vm/max_map_count", "66\n");
        write("sys/devices/system/node/online", "0,2,4,6\n");
        write("sys/devices/system/node/has_memory", "0,4,6\n");
        for (node, free, file, shmem) in [(0, 1024, 1024, 512), (4, 512, 100, 100)] {
            let folder = format!("sys/devices/system/node/node{node}");
            let line = |name: &str, kib: u32| format!("Node {node} {name}: {kib} kB\n");
            write(
                &format!("{folder}/meminfo"),
                &(line("MemFree", free) + &line("FilePages", file) + &line("Shmem", shmem)),
            );
            let pool = format!("{folder}/hugepages/hugepages-2048kB");
            write(&format!("{pool}/nr_hugepages"), if node == 4 { "3" } else { "0" });
            write(&format!("{pool}/free_hugepages"), if node == 4 { "2" } else { "0" });
            let weight = format!("sys/kernel/mm/mempolicy/weighted_interleave/node{node}");
            write(&weight, if node == 4 { "2\n" } else { "6\n" });
        }
        let source = Source::recorded(folder.path()).unwrap();
        (folder, source)
    }

    fn binding(spec: &str, bytes: Bytes) -> Result<Option<Binding>, String> {
        let (_folder, source) = tree();
        Binding::new(spec.parse().unwrap(), bytes, &source).map_err(|fault| fault.to_string())
    }

    fn way(spec: &str) -> Way {
        binding(spec, Bytes::kib(4)).unwrap().unwrap().way
    }

    #[test]
    fn each_policy_has_its_way() {
        assert!(binding("thp", Bytes::gib(1)).unwrap().is_none());
        assert_eq!(way("thp@node4"), Way::Kernel { mode: Mode::Bind, round: 0 });
        assert_eq!(way("thp@preferred:4"), Way::Kernel { mode: Mode::Preferred, round: 0 });
        assert_eq!(way("thp@interleave:0,4"), Way::Kernel { mode: Mode::Interleave, round: 2 });
        // The system's weights are used where they are those asked for, in any terms; 66 mappings less 2 are 64.
        let (by_the_kernel, by_hand) =
            (Way::Kernel { mode: Mode::WeightedInterleave, round: 8 }, Way::Blocks { maps_most: 32 });
        assert_eq!((way("4k@weighted:0=3,4=1"), way("4k@weighted:0=6,4=2")), (by_the_kernel, by_the_kernel));
        assert_eq!(way("4k@weighted:0=1,4=1"), by_hand);
        let suited = |spec: &str, recipe: Recipe, bytes: Bytes| {
            binding(spec, bytes).unwrap().unwrap().suited(&recipe, bytes, &tree().1).unwrap().way
        };
        // Rounds of 8 huge pages are coarser than two blocks, and a sixteenth of 256 MiB.
        let thp = |mib| {
            let (kind, backing) = (MemoryKind::Thp, Backing::Anonymous { shared: false, pool: false });
            suited("thp@weighted:0=3,4=1", Recipe::new(kind, backing, Bytes::mib(mib), BLOCK), Bytes::mib(mib))
        };
        assert_eq!((thp(255), thp(256)), (by_hand, by_the_kernel));
        let way = suited("tmpfs@weighted:0=3,4=1", file(), Bytes::mib(64));
        assert_eq!(way, by_the_kernel, "files can't be placed by hand");
    }

    fn file() -> Recipe {
        let backing = Backing::File { file: tempfile::tempfile().unwrap(), shared: true, cached: Cached::Itself };
        Recipe::new(MemoryKind::Tmpfs, backing, Bytes::mib(64), 4096)
    }

    /// Asked for 3 and 1, the system has 6 and 2: a mapping may end 8 pages into a round, of which 6 are of one node.
    #[test]
    fn a_round_is_as_long_as_the_systems_weights() {
        let binding = binding("4k@weighted:0=3,4=1", Bytes::mib(1)).unwrap().unwrap();
        assert_eq!(binding.slack(1 << 20, 4096), 8 * 4096);
    }

    #[test]
    fn without_the_kernels_weights_blocks_are_placed_by_hand() {
        let (folder, source) = tree();
        fs::remove_dir_all(folder.path().join("sys/kernel")).unwrap();
        let spec = "thp@weighted:0=3,4=1".parse().unwrap();
        let binding = Binding::new(spec, Bytes::kib(4), &source).unwrap().unwrap();
        assert_eq!(binding.way, Way::Blocks { maps_most: 32 });
        assert!(binding.proof(8 << 20, 4096).unwrap().seen.contains("by hand, in blocks of 2 MiB"));
        let reason = binding.suited(&file(), Bytes::kib(4), &source).unwrap_err().to_string();
        assert!(reason.contains("weighted:0=3,4=1") && reason.contains("; choose a kind without a file"), "{reason}");
    }

    #[test]
    fn nodes_that_can_not_be_used_are_told_with_a_cure() {
        let check = |spec: &str, parts: &[&str]| {
            let reason = binding(spec, Bytes::kib(4)).unwrap_err();
            parts.iter().for_each(|part| assert!(reason.contains(part), "'{part}' is not in: {reason}"));
        };
        check("thp@node1", &["there is no node 1; choose from nodes 0,4"]);
        check("thp@node2", &["node 2 has no memory; choose from nodes 0,4"]);
        check("thp@interleave:0,2", &["node 2 has no memory"]);
        check("thp@preferred:6", &["may not use memory of node 6; choose from nodes 0,2,4", "cpuset"]);
        check("thp@weighted:0=1,1023=2", &["there is no node 1023"]);
        let (_folder, source) = tree();
        let spec = MemorySpec::on(MemoryKind::Thp, u32::MAX);
        assert!(Binding::new(spec, Bytes(1), &source).unwrap_err().to_string().contains("0 to 1023"));
    }

    #[test]
    fn a_bound_node_needs_room() {
        // Free and page cache without shared memory: 1536 KiB and 512 KiB.
        assert!(binding("4k@node0", Bytes::kib(1536)).is_ok());
        let reason = binding("4k@node0", Bytes::kib(1540)).unwrap_err();
        assert!(reason.contains("node 0: 1.50 MiB to give") && reason.contains("; give a smaller --size"), "{reason}");
        assert!(binding("4k@bind:0,4", Bytes::mib(2)).is_ok());
        assert!(binding("4k@preferred:4", Bytes::gib(1)).is_ok());
        assert!(binding("huge-2m@node4", Bytes::mib(4)).is_ok());
        let reason = binding("huge-2m@node4", Bytes::mib(5)).unwrap_err();
        assert!(reason.contains("4 MiB in free huge pages") && reason.contains("node4/hugepages/hugepages-2048kB"));
        assert!(binding("huge-2m@node0", Bytes::mib(2)).unwrap_err().contains("node 0: 0 B in free huge pages"));
    }

    #[test]
    fn blocks_go_to_the_node_that_is_behind() {
        let check = |entries: &[(u32, u8)], count: usize, expect: &[(u32, usize)]| {
            let spans = blocks(&Weights::new(entries).unwrap(), count * BLOCK, BLOCK);
            let found: Vec<(u32, usize)> =
                spans.iter().map(|span| (span.nodes.only().unwrap(), span.bytes / BLOCK)).collect();
            assert_eq!(found, expect);
        };
        check(&[(0, 3), (1, 1)], 8, &[(0, 2), (1, 1), (0, 3), (1, 1), (0, 1)]);
        check(&[(0, 1), (1, 1)], 4, &[(0, 1), (1, 1), (0, 1), (1, 1)]);
        check(&[(5, 9)], 6, &[(5, 6)]);
    }

    #[test]
    fn blocks_grow_where_mappings_are_few() {
        assert_eq!(block(64 * BLOCK, 4096, 64), BLOCK);
        assert_eq!(block(64 * BLOCK + 1, 4096, 64), 2 * BLOCK);
        assert_eq!(block(1 << 40, 4096, 1000), 1 << 31);
        assert_eq!(block(1 << 32, 1 << 30, 1000), 1 << 30);
        assert_eq!(block(8 * BLOCK, 4096, 0), 8 * BLOCK);
    }

    #[test]
    fn the_kernel_takes_blocks() {
        let weights = Weights::new(&[(0, 1)]).unwrap();
        let binding = Binding { policy: Policy::Weighted(weights), way: Way::Blocks { maps_most: 8 } };
        let memory = vec![0u8; 4 * BLOCK];
        let start = (memory.as_ptr() as usize).next_multiple_of(BLOCK);
        if let Err(fault) = binding.apply(start, 3 * BLOCK, 4096, false) {
            let why = if cfg!(windows) { "Windows has no policy" } else { "; a sandbox forbids it" };
            assert!(fault.to_string().contains(why), "{fault}");
            skip(fault);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn refusals_name_a_cure() {
        let binding = Binding { policy: Policy::Preferred(3), way: Way::Kernel { mode: Mode::Preferred, round: 0 } };
        for (fault, cure) in [
            (io::ErrorKind::PermissionDenied, "SYS_NICE"),
            (io::ErrorKind::InvalidInput, "a node has gone"),
            (io::ErrorKind::OutOfMemory, "vm.max_map_count"),
            (io::ErrorKind::Other, "another place"),
        ] {
            let reason = binding.refused(io::Error::from(fault)).to_string();
            assert!(
                reason.starts_with("memory could not be placed (preferred:3): ") && reason.contains(cure),
                "{reason}"
            );
        }
    }

    proptest! {
        /// Whatever part of a mapping is touched, no node is further from its share than a block for each other node;
        /// and the spans are the mapping, without a gap.
        #[test]
        fn blocks_keep_to_their_weights(weights in prop::collection::vec(1u8.., 1..6), count in 1usize..300, rest in 0..BLOCK) {
            let entries: Vec<(u32, u8)> = (0..).zip(weights.iter().copied()).collect();
            let bytes = count * BLOCK + rest / 4096 * 4096;
            let spans = blocks(&Weights::new(&entries).unwrap(), bytes, BLOCK);
            let total: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
            let (mut end, mut had) = (0, vec![0usize; weights.len()]);
            for span in &spans {
                prop_assert_eq!(span.start, end);
                end += span.bytes;
                had[span.nodes.only().unwrap() as usize] += span.bytes;
                for (had, weight) in had.iter().zip(&weights) {
                    let due = end * usize::from(*weight) / total;
                    prop_assert!(had.abs_diff(due) <= BLOCK * weights.len(), "{had} of {end} for {weights:?}");
                }
            }
            prop_assert_eq!(end, bytes);
        }
    }
}
