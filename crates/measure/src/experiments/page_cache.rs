//! What surrounds a kernel that runs beside page cache: the cache is emptied, a file fills it, a cure is tried; then each
//! thread maps fresh memory, and where its pages came to lie is read back.

use std::collections::BTreeMap;

use crate::memory::filler::{CachedFile, drop_page_cache};
use crate::memory::places::Places;
use crate::memory::sweep::sweep;
use crate::no_visit::NoVisit;
use crate::os::processes;
use crate::schedule::Quota;
use crate::threads;
use membound_core::case::Case;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::fact::Fact;
use membound_core::machine::room::{Room, margin};
use membound_core::machine::source::Source;
use membound_core::memory::policy::{NodeSet, Policy};
use membound_core::memory::{CacheFound, Obtained};
use membound_core::units::Bytes;
use membound_core::work::page_cache::{Cure, PageCache};
use membound_core::work::sweep::SweepEnd;

/// Share of a node that the sweep as a cure touches at most: what it can get ends it before.
const SWEPT: f64 = 1.0;

/// The filled page cache, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Surroundings {
    _file: Option<CachedFile>,
    found: CacheFound,
    /// The node of each CPU.
    homes: BTreeMap<u32, u32>,
    nodes: Vec<u32>,
}

impl Surroundings {
    /// Brings the page cache to where the case wants it.
    ///
    /// # Errors
    /// What can't be had, with its cure: room on the disk or in memory, the right to drop caches, the time.
    pub fn new(case: &Case, work: &PageCache, places: &Places, quota: &Quota<'_>) -> Result<Self, NoVisit> {
        let source = crate::machine::source();
        processes::be_first_to_go();
        let kept = drop_page_cache().err().map(|fault| fault.to_string());
        let cpu = case.cpus.first().copied().unwrap_or_default();
        let file = match work.file {
            Bytes(0) => None,
            // The pages of a file come from the node of whoever makes them.
            bytes => Some(threads::pinned(cpu, || {
                Ok(CachedFile::fill(&places.folder, bytes, work.filler, &|| !(quota.interrupted)())?)
            })?),
        };
        let nodes: Vec<u32> = Room::read(&source).nodes.iter().map(|room| room.node).collect();
        match work.cure {
            Cure::DropCaches => drop_page_cache()?,
            Cure::Sweep => swept(&source, &nodes, quota)?,
            Cure::Nothing | Cure::Bind | Cure::Preferred | Cure::Interleave => {}
        }
        let room = Room::read(&source);
        enough(&room, case.working_set)?;
        let file_cached = file.as_ref().and_then(CachedFile::cached);
        let found = CacheFound { kept, file_cached, nodes: room.nodes, remote_pages: None };
        Ok(Surroundings { _file: file, found, homes: homes(&source, &nodes), nodes })
    }

    /// Where the memory of the thread on `cpu` is to come from; none: wherever the kernel likes.
    pub fn policy(&self, cure: Cure, cpu: u32) -> Result<Option<Policy>, NoVisit> {
        let home = || {
            let home = self.homes.get(&cpu).copied();
            home.ok_or_else(|| {
                NoVisit::impossible(format!("the node of CPU {cpu} is not known; see `membound machine`"))
            })
        };
        Ok(match cure {
            Cure::Nothing | Cure::DropCaches | Cure::Sweep => None,
            Cure::Bind => Some(Policy::Bind(NodeSet::one(home()?))),
            Cure::Preferred => Some(Policy::Preferred(home()?)),
            Cure::Interleave => Some(Policy::Interleave(self.nodes.iter().copied().collect())),
        })
    }

    /// What was found, with the pages that each thread obtained: (its CPU, its memory).
    pub fn found(&self, threads: &[(u32, Obtained)]) -> CacheFound {
        let remote = |(cpu, obtained): &(u32, Obtained)| {
            let home = self.homes.get(cpu)?;
            if obtained.pages_on_node.is_empty() {
                return None;
            }
            Some(
                obtained.pages_on_node.iter().filter(|found| found.node != *home).map(|found| found.pages).sum::<u64>(),
            )
        };
        CacheFound { remote_pages: threads.iter().map(remote).sum(), ..self.found.clone() }
    }
}

/// The process would be ended in the middle of the case, or others would.
fn enough(room: &Room, working_set: Bytes) -> Result<(), NoVisit> {
    match room.to_spare() {
        Some((spare, whose)) if spare < working_set => Err(NoVisit::impossible(format!(
            "{working_set} of memory are needed, and {whose} has {spare} left beyond {} that stay free: the OOM killer \
             would end the run; give a smaller --size or --share",
            margin(room.total.get().unwrap_or_default())
        ))),
        _ => Ok(()),
    }
}

fn swept(source: &Source, nodes: &[u32], quota: &Quota<'_>) -> Result<(), NoVisit> {
    let failed = |node: &membound_core::work::sweep::NodeSweep| node.is_failure() || node.end == SweepEnd::Pressure;
    match sweep(source, nodes, SWEPT, &|| (quota.interrupted)()).into_iter().find(failed) {
        Some(node) => {
            let why = node.reason.unwrap_or_else(|| node.end.to_string());
            Err(NoVisit::impossible(format!("node {} could not be swept: {why}", node.node)))
        }
        None => Ok(()),
    }
}

fn homes(source: &Source, nodes: &[u32]) -> BTreeMap<u32, u32> {
    let cpus = |&node: &u32| -> Fact<CpuSet> { source.list(&format!("sys/devices/system/node/node{node}/cpulist")) };
    let pairs = nodes.iter().filter_map(|node| Some((*node, cpus(node).known()?.clone())));
    pairs.flat_map(|(node, cpus)| cpus.iter().map(|cpu| (cpu, node)).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::memory::located::NodePages;

    fn surroundings() -> Surroundings {
        let homes = [(0, 0), (1, 0), (2, 1)].into();
        Surroundings { _file: None, found: CacheFound::default(), homes, nodes: vec![0, 1] }
    }

    fn pages(node: u32, pages: u64) -> NodePages {
        NodePages { node, pages }
    }

    #[test]
    fn pages_are_remote_to_the_thread_that_touched_them() {
        let of = |pages_on_node| Obtained { pages_on_node, ..Obtained::default() };
        let remote = |threads: &[(u32, Obtained)]| surroundings().found(threads).remote_pages;
        // Each thread has one page on either node: together they look even, and half of them are remote.
        let even = || of(vec![pages(0, 1), pages(1, 1)]);
        assert_eq!(remote(&[(0, even()), (2, even())]), Some(2));
        assert_eq!(remote(&[(0, of(vec![pages(1, 5)])), (2, of(vec![pages(0, 7)]))]), Some(12));
        assert_eq!(remote(&[(1, of(vec![pages(0, 5)]))]), Some(0));
        assert_eq!(remote(&[(9, even())]), None, "a CPU of no node");
        assert_eq!(remote(&[(0, of(Vec::new()))]), None, "pages that can't be looked up");
    }

    #[test]
    fn policies_follow_the_thread() {
        let of = |cure, cpu| surroundings().policy(cure, cpu).unwrap();
        assert_eq!(of(Cure::Bind, 2), Some(Policy::Bind(NodeSet::one(1))));
        assert_eq!(of(Cure::Preferred, 1), Some(Policy::Preferred(0)));
        assert_eq!(of(Cure::Interleave, 1), Some(Policy::Interleave([0, 1].into_iter().collect())));
        assert_eq!(of(Cure::Sweep, 1), None);
        assert!(surroundings().policy(Cure::Bind, 9).is_err());
    }

    #[test]
    fn too_little_memory_is_said_before_it_is_taken() {
        let room = Room {
            available: Fact::Known(Bytes::gib(2)),
            total: Fact::Known(Bytes::gib(8)),
            swap_free: Fact::Known(Bytes(0)),
            limits: Vec::new(),
            stalled: Fact::absent("made up"),
            nodes: Vec::new(),
        };
        assert!(enough(&room, Bytes::gib(1)).is_ok());
        let Err(NoVisit::Impossible(reason)) = enough(&room, Bytes::gib(2)) else { panic!() };
        assert!(reason.contains("OOM killer") && reason.contains("--size"), "{reason}");
    }
}
