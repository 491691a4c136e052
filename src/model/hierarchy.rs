//! The memory system's levels: found in the curve, named after what the operating system claims, and told to each row.

use super::Level;
use super::levels::{self, Plateau};
use super::rows::Result;
use crate::kernel::StoreKind;
use crate::machine::{CpuSet, Machine};
use crate::plan::Protocol;
use crate::units::Bytes;

/// Sizes that a curve needs before levels are believed.
const LEAST_SIZES: usize = 8;

/// Finds the levels in the curve of one thread's loads and writes each row's level. Without a curve (a handful of
/// sizes) the caches that the operating system claims decide.
pub(super) fn name_levels(results: &mut [Result], machine: &Machine) -> Vec<Level> {
    let cpu = results.first().and_then(|r| r.case.cpus.first().copied()).unwrap_or(0);
    let claimed: Vec<Bytes> = machine.data_caches(cpu).iter().map(|cache| cache.size).collect();
    let curve = load_curve(results);
    let levels = if curve.len() >= LEAST_SIZES {
        named(&levels::find(&curve), &claimed, curve.last().map_or(Bytes(0), |point| point.0))
    } else {
        assumed(&claimed)
    };
    for result in results.iter_mut() {
        result.row.level = level_of(result, &levels, machine);
    }
    levels
}

/// One thread's loads over working sets, at the width that was measured at most sizes.
fn load_curve(results: &[Result]) -> Vec<(Bytes, f64, [f64; 2])> {
    let candidates: Vec<&Result> = results
        .iter()
        .filter(|r| r.row.kernel == "load" && r.row.threads == 1 && r.row.outcome == "measured")
        .filter(|r| r.row.store == StoreKind::Regular && r.case.protocol == Protocol::Steady)
        .collect();
    let count = |r: &Result| candidates.iter().filter(|c| c.case.work == r.case.work && c.case.memory == r.case.memory).count();
    let Some(most) = candidates.iter().max_by_key(|r| count(r)) else { return Vec::new() };
    let mut curve: Vec<_> = candidates
        .iter()
        .filter(|r| r.case.work == most.case.work && r.case.memory == most.case.memory)
        .filter_map(|r| r.row.payload_bps.map(|rate| (r.case.working_set, rate.median, rate.ci95)))
        .collect();
    curve.sort_by_key(|point| point.0);
    curve.dedup_by_key(|point| point.0);
    curve
}

/// Names plateaus. The last one is memory if it reaches beyond all claimed caches; each other one is the claimed
/// cache whose size is nearest, in order.
fn named(plateaus: &[Plateau], claimed: &[Bytes], largest: Bytes) -> Vec<Level> {
    let beyond = largest.0 > 2 * claimed.last().map_or(0, |size| size.0);
    let caches = plateaus.len() - usize::from(beyond && !plateaus.is_empty());
    let mut next_claim = 0;
    let mut levels = Vec::new();
    for (index, plateau) in plateaus.iter().enumerate() {
        let (mut name, mut claim) = (format!("L{}", index + 1), None);
        if index >= caches {
            name = "memory".into();
        } else if let Some(capacity) = plateau.capacity {
            // Leave enough claims for the plateaus that follow.
            let last = claimed.len().saturating_sub(caches - index - 1);
            let distance = |k: &usize| (capacity.0 as f64 / claimed[*k].0.max(1) as f64).ln().abs();
            if let Some(nearest) = (next_claim..last).min_by(|a, b| distance(a).total_cmp(&distance(b))) {
                name = format!("L{}", nearest + 1);
                claim = Some(claimed[nearest]);
                next_claim = nearest + 1;
            }
        }
        levels.push(Level {
            name,
            from: plateau.from,
            to: plateau.to,
            capacity: plateau.capacity,
            claimed: claim,
            best: Vec::new(),
        });
    }
    levels
}

/// Levels as claimed: nothing was found, so they have no capacity.
fn assumed(claimed: &[Bytes]) -> Vec<Level> {
    let mut from = Bytes(0);
    let mut levels = Vec::new();
    for (index, &size) in claimed.iter().enumerate() {
        let to = Bytes(size.0 / 8 * 7);
        levels.push(Level { name: format!("L{}", index + 1), from, to, capacity: None, claimed: Some(size), best: Vec::new() });
        from = Bytes(size.0 / 4 * 5);
    }
    let from = Bytes(from.0.max(claimed.last().map_or(0, |size| size.0 * 2)));
    levels.push(Level { name: "memory".into(), from, to: Bytes(u64::MAX), capacity: None, claimed: None, best: Vec::new() });
    levels
}

/// The level that a row's working set lies in. Caches of one core hold one thread's share; what threads share holds
/// their sum. Non-temporal stores go to memory whatever the size, and keep the level of their working set.
fn level_of(result: &Result, levels: &[Level], machine: &Machine) -> Option<String> {
    let share = result.share();
    let sharers = |level: u32| {
        let cpus: CpuSet = result.case.cpus.iter().copied().collect();
        let caches: Vec<_> = machine.data_caches(result.case.cpus[0]);
        let cache = caches.iter().find(|cache| cache.level == level)?;
        Some(cache.cpus.intersection(&cpus).len().max(1) as u64)
    };
    let last_cache = machine.data_caches(result.case.cpus[0]).last().map(|cache| cache.level);
    for level in levels {
        let own = level.name.strip_prefix('L').and_then(|n| n.parse().ok()).or(last_cache);
        let size = share.0 * own.and_then(sharers).unwrap_or(1);
        if size <= level.to.0 {
            return (size >= level.from.0 || level.from == levels[0].from).then(|| level.name.clone());
        }
    }
    // Larger than anything on the curve: as the last level, if that is memory.
    levels.last().filter(|level| level.name == "memory").map(|level| level.name.clone())
}
