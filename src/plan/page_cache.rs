//! Page cache beside a program: the triad over fresh memory while a file of growing size fills the page cache, and the
//! cures side by side where that hurt most.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bandwidth::best_widths;
use super::{Case, Frame, PlanError, Protocol, Work, unroll};
use crate::kernel::{Element, LoadKind, StoreKind, Variant};
use crate::machine::{Machine, margin};
use crate::memory::{Filler, MemoryKind, MemorySpec};
use crate::units::{Bytes, words};

words! {
    /// What is done against page cache that took a program's memory.
    Cure, "cure" {
        /// Nothing.
        Nothing = "nothing",
        /// The kernel drops the page cache first; takes root.
        DropCaches = "drop-caches",
        /// A sweep pushes the page cache out first.
        Sweep = "sweep",
        /// Each thread's memory comes from its own node alone.
        Bind = "bind",
        /// Each thread's memory comes from its own node first.
        Preferred = "preferred",
        /// Memory comes from one node after the other.
        Interleave = "interleave",
    }
}

/// A kernel over fresh memory, and the page cache beside it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct PageCache {
    /// The kernel.
    pub variant: Variant,
    /// Bytes of the file that fills the page cache; 0: none.
    pub file: Bytes,
    /// How its pages get there.
    pub filler: Filler,
    /// What is done against it.
    pub cure: Cure,
}

impl fmt::Display for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            Bytes(0) => write!(f, "{}, beside no file", self.variant)?,
            file => write!(f, "{}, beside {file} of page cache ({})", self.variant, self.filler)?,
        }
        if self.cure == Cure::Nothing { Ok(()) } else { write!(f, ", cure: {}", self.cure) }
    }
}

/// What the user chose. What is left open is chosen here.
#[derive(Debug, Clone)]
pub struct CacheChoice {
    /// Share of the memory that the file takes at most, and of the available memory that the kernel takes: 0 to 1.
    pub share: f64,
    /// File sizes above zero.
    pub steps: u32,
    /// How files get into the page cache.
    pub filler: Filler,
    /// Kind of the kernel's memory.
    pub memory: MemoryKind,
    /// Threads; all by default.
    pub threads: Option<usize>,
    /// Working set; by default half the memory of the threads' nodes, as far as `share` allows.
    pub size: Option<Bytes>,
}

/// The triad with no file, then beside one of growing size, up to the share.
///
/// # Errors
/// More threads than CPUs, or more memory than there is to spare.
pub fn page_cache(frame: &Frame, machine: &Machine, choice: &CacheChoice) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(choice.threads.unwrap_or(frame.placement.most()))?;
    let available = machine.available_memory().get().unwrap_or(Bytes::gib(1));
    let all = machine.memory.total.get().unwrap_or(available);
    let part = |of: Bytes| Bytes((of.0 as f64 * choice.share) as u64);
    let homes = machine
        .nodes
        .iter()
        .filter(|node| node.cpus.known().is_some_and(|local| cpus.iter().any(|cpu| local.contains(*cpu))));
    let near = homes.map(|node| Some(node.total.get()?.0)).sum::<Option<u64>>().filter(|near| *near > 0);
    let limit = part(available);
    let working_set = choice.size.unwrap_or(Bytes(limit.0.min(near.unwrap_or(all.0) / 2)));
    if working_set > limit {
        return Err(PlanError::TooLarge { size: working_set, limit });
    }
    // Page cache counts against a control group's limit too. There it is given up in time, but fills no node.
    let group = machine.memory_limit().and_then(|limit| limit.headroom().get());
    let beside = group.map_or(all, |group| Bytes(group.0.saturating_sub(working_set.0 + margin(group).0)));
    let largest = part(all).min(beside);
    let width = best_widths(frame)[0];
    let variant = Variant {
        kernel: "triad".into(),
        element: Element::Double,
        width,
        store: StoreKind::Regular,
        load: LoadKind::Regular,
        unroll: unroll(width),
    };
    let case = |step: u32| Case {
        work: Work::PageCache(PageCache {
            variant: variant.clone(),
            file: whole(largest, step, choice.steps),
            filler: choice.filler,
            cure: Cure::Nothing,
        }),
        memory: MemorySpec::of(choice.memory),
        streams: Vec::new(),
        cpus: cpus.clone(),
        working_set,
        misaligned_bytes: 0,
        protocol: Protocol::Steady,
    };
    Ok((0..=choice.steps).map(case).collect())
}

/// So many steps out of all, in whole megabytes.
fn whole(largest: Bytes, step: u32, steps: u32) -> Bytes {
    let bytes = u128::from(largest.0) * u128::from(step) / u128::from(steps.max(1));
    Bytes((bytes as u64) >> 20 << 20)
}

/// The same beside a file of this size with each cure, and without one; and without a file. Other cases are left out.
pub fn cures(cases: &[Case], file: Bytes, cures: &[Cure]) -> Vec<Case> {
    let of = |size: Bytes| move |case: &&Case| matches!(&case.work, Work::PageCache(work) if work.file == size);
    let none = cases.iter().find(of(Bytes(0)));
    let beside = cases.iter().find(of(file));
    let cured = |case: &Case| -> Vec<Case> {
        let with = |cure: &Cure| match &case.work {
            Work::PageCache(work) => {
                Case { work: Work::PageCache(PageCache { cure: *cure, ..work.clone() }), ..case.clone() }
            }
            _ => case.clone(),
        };
        cures.iter().map(with).collect()
    };
    none.into_iter().cloned().chain(beside.cloned()).chain(beside.map(cured).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_grow_in_equal_steps_of_whole_megabytes() {
        let sizes: Vec<Bytes> = (0..=4).map(|step| whole(Bytes(1000 << 20 | 7), step, 4)).collect();
        assert_eq!(sizes, [0, 250, 500, 750, 1000].map(Bytes::mib));
        assert_eq!(whole(Bytes(u64::MAX), 3, 3).0, u64::MAX >> 20 << 20);
        assert_eq!(whole(Bytes::mib(3), 0, 0), Bytes(0));
    }
}
