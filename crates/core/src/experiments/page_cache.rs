//! Page cache beside a program: the triad over fresh memory while a file of growing size fills the page cache, and the
//! cures side by side where that hurt most.

use crate::work::page_cache::{Cure, PageCache, Workers};

use crate::case::{Case, Work, usual};
use crate::experiments::frame::{Frame, PlanError};
use crate::kernel::StoreKind;
use crate::machine::Machine;
use crate::machine::room::margin;
use crate::memory::filler::Filler;
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::Bytes;

/// What the user chose. What is left open is chosen here.
#[derive(Debug, Clone)]
pub struct CacheChoice {
    /// Share of the memory that the file takes at most, and of the available memory that the kernel takes: 0 to 1. Where it is left
    /// open the file may fill all memory, and the kernel takes [`KERNEL_SHARE`].
    pub share: Option<f64>,
    /// File sizes above zero; up to half of the memory where the share is left open.
    pub steps: u32,
    /// How files get into the page cache.
    pub filler: Filler,
    /// Kind of the kernel's memory.
    pub memory: MemoryKind,
    /// Threads, or processes; as many as CPUs by default.
    pub threads: Option<usize>,
    /// What each CPU runs: one kind after the other, beside each file.
    pub workers: Vec<Workers>,
    /// Working set; by default half the memory of the threads' nodes, as far as `share` allows.
    pub size: Option<Bytes>,
}

/// Share of the available memory that the kernel takes if none is given.
pub const KERNEL_SHARE: f64 = 0.4;

/// The triad with no file, then beside one of growing size, up to the share: cases that are measured in any case, and those
/// beside larger files that follow for as long as their answer is not there.
///
/// # Errors
/// More threads than CPUs, or more memory than there is to spare.
pub fn page_cache(frame: &Frame, machine: &Machine, choice: &CacheChoice) -> Result<[Vec<Case>; 2], PlanError> {
    let cpus = frame.placement.first(choice.threads.unwrap_or(frame.placement.most()))?;
    let available = machine.available_memory().get().unwrap_or(Bytes::gib(1));
    let all = machine.memory.total.get().unwrap_or(available);
    let part = |of: Bytes, share: f64| Bytes((of.0 as f64 * share) as u64);
    let homes = machine
        .nodes
        .iter()
        .filter(|node| node.cpus.known().is_some_and(|local| cpus.iter().any(|cpu| local.contains(*cpu))));
    let near = homes.map(|node| Some(node.total.get()?.0)).sum::<Option<u64>>().filter(|near| *near > 0);
    let limit = part(available, choice.share.unwrap_or(KERNEL_SHARE));
    let working_set = choice.size.unwrap_or(Bytes(limit.0.min(near.unwrap_or(all.0) / 2)));
    if working_set > limit {
        return Err(PlanError::TooLarge { size: working_set, limit });
    }
    // Page cache counts against a control group's limit too. There it is given up in time, but fills no node.
    let group = machine.memory_limit().and_then(|limit| limit.headroom().get());
    let beside = group.map_or(all, |group| Bytes(group.0.saturating_sub(working_set.0 + margin(group).0)));
    let largest = part(all, choice.share.unwrap_or(1.0)).min(beside);
    // The minimum of two domains is at half of the memory: beyond is for what has not recovered by then.
    let steps = if choice.share.is_some() { choice.steps } else { 2 * choice.steps };
    let case = |step: u32, workers: Workers| {
        let variant = usual("triad", frame.widest(), StoreKind::Regular);
        let file = whole(largest, step, steps);
        let work = PageCache { variant, file, filler: choice.filler, cure: Cure::Nothing, workers };
        Case::new(Work::PageCache(work), MemorySpec::of(choice.memory), cpus.clone(), working_set)
    };
    let cases = |steps: std::ops::RangeInclusive<u32>| {
        steps
            .flat_map(|step| choice.workers.iter().map(move |workers| (step, *workers)))
            .map(|(step, workers)| case(step, workers))
            .collect()
    };
    Ok([cases(0..=choice.steps), cases(choice.steps + 1..=steps)])
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
