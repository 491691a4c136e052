//! Cores beside each other: lines handed over between two of them, latency while others load the memory.

use crate::case::{Case, USUAL_MEMORY, Work};
use crate::experiments::frame::{Frame, PlanError};
use crate::kernel::mix::{Mix, STRIDE};
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::Bytes;
use crate::work::c2c::{Handover, Home};
use crate::work::loaded::{Load, Loaded};

/// Bytes of a page, of which one line is passed.
const PAGE: Bytes = Bytes::kib(4);
/// Pauses of a curve: from the longest, at which a loading thread moves 1 % of what it can, each half of the one before,
/// then none.
pub const STEPS: u32 = 11;
/// The shortest pause: some tenth of the time between two pauses, so that the last step is a small one.
const SHORTEST_NS: f64 = 40.0;
/// The longest against the shortest.
const RANGE: f64 = 512.0;
/// Least bytes that a loading thread walks over: more than its own caches hold.
const LOADER_LEAST: Bytes = Bytes::mib(16);

/// Hand-overs between all ordered pairs of CPUs, at each home. With one CPU a single case, whose outcome says why not.
pub fn handovers(frame: &Frame, homes: &[Home]) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(frame.placement.most())?;
    let ordered = cpus.iter().flat_map(|a| cpus.iter().map(move |b| vec![*a, *b])).filter(|pair| pair[0] != pair[1]);
    let pairs: Vec<Vec<u32>> = if cpus.len() < 2 { vec![cpus.clone()] } else { ordered.collect() };
    let homes = if homes.is_empty() { Home::ALL } else { homes };
    let case = |cpus: &Vec<u32>, home| {
        Case::new(Work::Handover(Handover { home }), MemorySpec::of(MemoryKind::Base), cpus.clone(), PAGE)
    };
    Ok(pairs.iter().flat_map(|cpus| homes.iter().map(move |&home| case(cpus, home))).collect())
}

/// Latency alone, beside idle threads, and beside threads that load the memory with each mix (all, if none is named) in
/// `steps` steps from nearly idle to flat out. With one CPU there is nobody to load: the second case says so.
pub fn loaded(frame: &Frame, mixes: &[Mix], steps: u32, threads: Option<usize>) -> Result<Vec<Case>, PlanError> {
    let threads = threads.unwrap_or(frame.placement.most());
    let cpus = frame.placement.first(threads)?;
    let chase = frame.memory_size(1);
    let loaders = threads as u64 - 1;
    let share = (frame.memory_size(threads).0 / threads as u64).max(LOADER_LEAST.0) / STRIDE * STRIDE;
    let total = Bytes(chase.0 + share * loaders);
    if total > frame.memory_limit {
        return Err(PlanError::TooLarge { size: total, limit: frame.memory_limit });
    }
    let case = |load| {
        let (cpus, working_set) = if load == Load::Alone { (&cpus[..1], chase) } else { (&cpus[..], total) };
        Case::new(Work::Loaded(Loaded { chase, load }), USUAL_MEMORY, cpus.to_vec(), working_set)
    };
    let mut cases = vec![case(Load::Alone), case(Load::Idle)];
    if loaders > 0 {
        let mixes = if mixes.is_empty() { Mix::ALL } else { mixes };
        cases.extend(
            mixes
                .iter()
                .flat_map(|&mix| delays(steps).into_iter().map(move |ns| (mix, ns)))
                .map(|(mix, delay_ns)| case(Load::Mixed { mix, delay_ns })),
        );
    }
    Ok(cases)
}

/// Pauses in nanoseconds, falling to none.
fn delays(steps: u32) -> Vec<u32> {
    let pauses = steps.saturating_sub(1);
    let at = |step: u32| {
        let share = if pauses > 1 { f64::from(step) / f64::from(pauses - 1) } else { 0.0 };
        (SHORTEST_NS * RANGE.powf(1.0 - share)).round() as u32
    };
    (0..pauses).map(at).chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_fall_to_none() {
        assert_eq!(delays(STEPS), [20480, 10240, 5120, 2560, 1280, 640, 320, 160, 80, 40, 0]);
        assert_eq!(delays(2), [20480, 0]);
        assert_eq!(delays(1), [0]);
    }
}
