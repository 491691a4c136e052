//! The memory system's levels: found in the curve, named after what the operating system claims, and told to each row.

use schemars::JsonSchema;
use serde::Serialize;

use super::levels::{self, Plateau};
use super::rows::Result;
use crate::kernel::StoreKind;
use crate::machine::{CpuSet, Machine};
use crate::plan::{Case, Protocol};
use crate::units::Bytes;

/// A level of the memory system./// A level of the memory system.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Level {
    /// `L1`, `L2`, `L3`, `memory`.
    pub name: String,
    /// Smallest and largest working set of one thread that ran at this level's speed.
    pub from: Bytes,
    /// See `from`.
    pub to: Bytes,
    /// Where the curve says that the level ends: between the last working set inside and the first outside, found by
    /// interpolation; absent for memory.
    pub capacity: Option<Bytes>,
    /// What the operating system says the capacity is; absent for memory and where it says nothing.
    pub claimed: Option<Bytes>,
    /// Best figure of each kernel, one thread then all threads: rows' indices into [`Report::rows`](super::Report::rows).
    pub best: Vec<LevelBest>,
}

/// The fastest variant of a kernel at a level.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LevelBest {
    /// The kernel.
    pub kernel: String,
    /// Threads.
    pub threads: usize,
    /// Index of the row.
    pub row: usize,
}

/// Sizes that a curve needs before levels are believed.
pub(super) const LEAST_SIZES: usize = 8;
/// The smallest part of a shared last cache that a tenant is thought to get.
const TENANTS_MOST: u64 = 16;
/// A cache is at least so many times as fast as the next.
const STEP: f64 = 1.5;
/// What it costs to leave a plateau without a name, in octaves: so much, and its own length.
const NAMELESS: f64 = 2.0;

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
        result.row.level = level_of(&result.case, &levels, machine);
    }
    levels
}

/// One thread's loads over working sets, at the width that was measured at most sizes.
fn load_curve(results: &[Result]) -> Vec<(Bytes, f64, [f64; 2])> {
    let candidates: Vec<&Result> = results
        .iter()
        .filter(|r| r.row.kernel == "load" && r.row.threads == 1 && r.row.quality.is_measured())
        .filter(|r| r.row.store == StoreKind::Regular && r.case.protocol == Protocol::Steady && r.is_plain())
        .collect();
    let count =
        |r: &Result| candidates.iter().filter(|c| c.case.work == r.case.work && c.case.memory == r.case.memory).count();
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

/// Names plateaus. The last one is memory if it begins beyond the caches and reaches well beyond all of them. The others
/// are matched in order with the claimed caches of nearest size; a plateau too many is where a working set partly fits (a
/// shared or victim cache lets go slowly) and has no name, unless it is long enough to be a level that nobody claimed. A
/// long one that is little faster than the next is the same cache, before translating addresses costs more: a hypervisor
/// may back our huge pages with small ones.
pub(super) fn named(plateaus: &[Plateau], claimed: &[Bytes], largest: Bytes) -> Vec<Level> {
    let last_cache = claimed.last().map_or(0, |size| size.0);
    // A tenant may get a small part of a last cache that others share; but a plateau that begins nearer to the cache
    // before it is that cache, or lacks points.
    let beyond = [last_cache / TENANTS_MOST, claimed.iter().rev().nth(1).map_or(0, |size| 4 * size.0)];
    let begins = beyond[0].max(beyond[1]).min(last_cache / 2);
    let is_memory = |plateau: &Plateau| largest.0 > last_cache / 2 * 3 && plateau.from.0 >= begins;
    let caches = plateaus.len() - usize::from(plateaus.last().is_some_and(is_memory));
    let matched = match_in_order(&plateaus[..caches], claimed);
    let mut levels: Vec<Level> = Vec::new();
    let mut step: Option<&Plateau> = None;
    for (index, plateau) in plateaus.iter().enumerate() {
        let (name, claim) = match matched.get(index) {
            None => ("memory".into(), None),
            Some(Some(k)) => (format!("L{}", k + 1), Some(claimed[*k])),
            Some(None) if claimed.is_empty() => (format!("L{}", index + 1), None),
            Some(None) if plateau.to.0 < 4 * plateau.from.0 => continue,
            Some(None) if plateaus.get(index + 1).is_some_and(|next| plateau.speed < STEP * next.speed) => {
                step = Some(plateau);
                continue;
            }
            Some(None) => (format!("unclaimed-{}", index + 1), None),
        };
        let from = step.take().unwrap_or(plateau).from;
        let (to, capacity) = (plateau.to, plateau.capacity);
        levels.push(Level { name, from, to, capacity, claimed: claim, best: Vec::new() });
    }
    levels
}

/// For each plateau the claimed cache it is, in order, so that sizes differ least and long plateaus have names. There are
/// a handful of each, so all ways are tried.
fn match_in_order(plateaus: &[Plateau], claimed: &[Bytes]) -> Vec<Option<usize>> {
    let Some((_, rest)) = plateaus.split_first() else { return Vec::new() };
    let unmatched = [vec![None], match_in_order(rest, claimed)].concat();
    let matched = (0..claimed.len()).map(|k| {
        let later = match_in_order(rest, &claimed[k + 1..]).into_iter().map(|m| m.map(|later| later + k + 1));
        std::iter::once(Some(k)).chain(later).collect()
    });
    let cost = |choice: &Vec<Option<usize>>| -> f64 {
        let of = |(choice, plateau): (&Option<usize>, &Plateau)| {
            let size = plateau.capacity.unwrap_or(plateau.to);
            let octaves = |to: Bytes, from: Bytes| (to.0.max(1) as f64 / from.0.max(1) as f64).log2().abs();
            choice.map_or(NAMELESS + octaves(plateau.to, plateau.from), |k| octaves(size, claimed[k]))
        };
        choice.iter().zip(plateaus).map(of).sum()
    };
    std::iter::once(unmatched).chain(matched).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_default()
}

/// Levels as claimed: nothing was found, so they have no capacity.
pub(super) fn assumed(claimed: &[Bytes]) -> Vec<Level> {
    let mut from = Bytes(0);
    let mut levels = Vec::new();
    for (index, &size) in claimed.iter().enumerate() {
        let to = Bytes(size.0 / 8 * 7);
        levels.push(Level {
            name: format!("L{}", index + 1),
            from,
            to,
            capacity: None,
            claimed: Some(size),
            best: Vec::new(),
        });
        from = Bytes(size.0 / 4 * 5);
    }
    let from = Bytes(from.0.max(claimed.last().map_or(0, |size| size.0 * 2)));
    levels.push(Level {
        name: "memory".into(),
        from,
        to: Bytes(u64::MAX),
        capacity: None,
        claimed: None,
        best: Vec::new(),
    });
    levels
}

/// The level that a row's working set lies in. A private cache holds one thread's share. What threads share must hold
/// their sum; but only where each share alone is too large for the caches is it certainly memory, since the threads of
/// a virtual machine may have last-level caches of their own, and only from four times the caches on do they no longer
/// help (STREAM's rule). Between the two there is no level.
pub(super) fn level_of(case: &Case, levels: &[Level], machine: &Machine) -> Option<String> {
    let share = case.working_set.0 / case.threads().max(1) as u64;
    let (first, cpus): (u32, CpuSet) = (*case.cpus.first()?, case.cpus.iter().copied().collect());
    let sharers = |level: &Level| {
        let level: u32 = level.name.strip_prefix('L')?.parse().ok()?;
        let caches = machine.data_caches(first);
        caches.iter().find(|cache| cache.level == level).map(|cache| cache.cpus.intersection(&cpus).len() as u64)
    };
    let claimed = machine.last_level_bytes(&cpus).map_or(0, |size| size.0);
    // Where a tenant gets a part of the last cache, that part counts: of each thread's own, at the most.
    let found = levels.iter().rev().find_map(|level| level.capacity).filter(|_| machine.is_virtual());
    let caches = found.map_or(claimed, |found| claimed.min(found.0 * case.threads() as u64));
    let inside = |(index, level): &(usize, &Level)| {
        let sum = share * sharers(level).unwrap_or(1).max(1);
        let fits = if level.name == "memory" { case.working_set.0 >= 4 * caches } else { sum <= level.to.0 };
        (share >= level.from.0 || *index == 0) && fits
    };
    levels.iter().enumerate().find(inside).map(|(_, level)| level.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plateau(from: u64, to: u64) -> Plateau {
        Plateau { from: Bytes::kib(from), to: Bytes::kib(to), speed: 1.0, capacity: Some(Bytes::kib(to)) }
    }

    const CLAIMED: [Bytes; 3] = [Bytes::kib(32), Bytes::mib(1), Bytes::mib(32)];

    fn names(plateaus: &[Plateau]) -> Vec<String> {
        named(plateaus, &CLAIMED, Bytes::mib(256)).into_iter().map(|level| level.name).collect()
    }

    #[test]
    fn plateaus_are_named_after_the_nearest_claim() {
        let [l1, l2, l3, memory] = [plateau(4, 36), plateau(45, 800), plateau(1500, 17_000), plateau(65_000, 262_144)];
        assert_eq!(names(&[l1, l2, l3, memory]), ["L1", "L2", "L3", "memory"]);
        assert_eq!(names(&[l1, l3, memory]), ["L1", "L3", "memory"]);
        // A last level that lets go slowly looks like one more plateau.
        let slow = plateau(23_000, 47_000);
        assert_eq!(names(&[l1, l2, l3, slow, memory]), ["L1", "L2", "L3", "memory"]);
    }

    /// A tenant who gets 64 MiB of a package's 480 MiB; the curve of such a machine, and one that never got so far.
    #[test]
    fn a_part_of_the_last_cache_is_that_cache() {
        const CLAIMED: [Bytes; 3] = [Bytes::kib(48), Bytes::mib(2), Bytes::mib(480)];
        let found = [plateau(4, 52), plateau(57, 1900), plateau(2900, 71_600), plateau(131_072, 2_000_000)];
        let names = |found: &[Plateau], largest| -> Vec<String> {
            named(found, &CLAIMED, largest).into_iter().map(|level| level.name).collect()
        };
        assert_eq!(names(&found, Bytes::kib(2_000_000)), ["L1", "L2", "L3", "memory"]);
        assert_eq!(names(&found[..3], Bytes::kib(65_536)), ["L1", "L2", "L3"]);
        assert_eq!(names(&[found[0], found[2], found[3]], Bytes::kib(2_000_000)), ["L1", "L3", "memory"]);
    }

    #[test]
    fn a_level_that_nobody_claimed_has_a_name() {
        let claimed = [Bytes::kib(32), Bytes::mib(1)];
        let fast = |level: Plateau, speed| Plateau { speed, ..level };
        let [l1, l2] = [fast(plateau(4, 32), 64.0), fast(plateau(40, 1000), 16.0)];
        let found = [l1, l2, fast(plateau(2000, 32_000), 4.0), plateau(65_536, 524_288)];
        let names: Vec<String> = named(&found, &claimed, Bytes::mib(512)).into_iter().map(|level| level.name).collect();
        assert_eq!(names, ["L1", "L2", "unclaimed-3", "memory"]);
    }

    #[test]
    fn a_step_inside_a_cache_is_no_cache() {
        let claimed = [Bytes::kib(48), Bytes::mib(2)];
        let fast = |level: Plateau, speed| Plateau { speed, ..level };
        let found = [
            fast(plateau(4, 52), 1.0 / 1.39),
            fast(plateau(60, 560), 1.0 / 4.46),
            fast(plateau(700, 2200), 1.0 / 5.45),
        ];
        let levels = named(&found, &claimed, Bytes::mib(2));
        let named: Vec<_> = levels.iter().map(|l| (l.name.as_str(), l.from, l.to)).collect();
        assert_eq!(named, [("L1", Bytes::kib(4), Bytes::kib(52)), ("L2", Bytes::kib(60), Bytes::kib(2200))]);
    }

    /// A run that ended early has the small sizes of the curve and one or two large ones.
    #[test]
    fn a_cache_is_not_called_memory() {
        assert_eq!(names(&[plateau(4, 262_144)]), ["L3"]);
        assert_eq!(names(&[plateau(4, 36), plateau(1400, 262_144)]), ["L1", "L3"]);
    }
}
