//! The memory system's levels: found in the curve, named after what the operating system claims, and told to each row.

use std::ops::Deref;

use schemars::JsonSchema;
use serde::Serialize;

use membound_core::case::Case;
use membound_core::curves::hierarchy::model::End;
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::stats::states::Ends;
use membound_core::units::Bytes;

/// A level of the memory system: all that is said of it anywhere is read from here.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Level {
    /// `L1`, `L2`, `L3`, `memory`; of a level that nobody claims, its size.
    pub name: String,
    /// Smallest and largest working set of one thread that ran at this level's speed.
    pub from: Bytes,
    /// See `from`.
    pub to: Bytes,
    /// Working set that fills the level, by all curves together; absent for memory.
    pub capacity: Option<Bytes>,
    /// Its 95 % interval: the level is full somewhere in it.
    pub capacity_ci95: Option<[Bytes; 2]>,
    /// What the operating system says the capacity is; absent for memory and where it says nothing.
    pub claimed: Option<Bytes>,
    /// Probability that there is such a level; absent where nothing was found and the claims stand for it.
    pub probability: Option<f64>,
    /// How long a load from it takes, if that was measured.
    pub latency: Option<LevelLatency>,
    /// The row that stands for each kernel, by one thread, then by all.
    pub best: Vec<LevelBest>,
}

impl Deref for Levels {
    type Target = [Level];

    fn deref(&self) -> &[Level] {
        &self.all
    }
}

/// How long a load that waits for the one before takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct LevelLatency {
    /// Nanoseconds, without what translating huge pages adds: fitted to the level's plateau and the edges beside it. For the
    /// last cache, where that was measured, of working sets that were read right before. Of memory, the figure of the chase that was
    /// visited more often than all others there together, if there is one.
    pub ns: [f64; 3],
    /// What the ends of `ns` are: a range where too few undisturbed visits stand behind them.
    pub ends: Ends,
    /// Core clock cycles, undisturbed.
    pub cycles: Option<f64>,
    /// Where `ns` is right after a read: the same working sets without, evictions by others and all, by the median of what that makes each
    /// of them slower; with its 95 % interval.
    pub disturbed_ns: Option<[f64; 3]>,
}

/// The levels as found, and where in them translating addresses costs more.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Levels {
    /// Fastest first.
    pub all: Vec<Level>,
    /// Working sets beyond which a chase pays for translation, with intervals: [value, low, high].
    pub translated_beyond: Vec<[Bytes; 3]>,
    /// Caches that are claimed and that no curve shows: `L2`.
    pub unseen: Vec<String>,
}

/// The row that stands for a kernel at a level.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LevelBest {
    /// The kernel.
    pub kernel: String,
    /// Threads.
    pub threads: usize,
    /// Its place in [`Report::rows`](crate::report::Report::rows).
    pub row: usize,
    /// The share of its limit that it reached; absent where no limit is known without measuring.
    pub share: Option<f64>,
}

/// Sizes that a curve needs before levels are believed.
pub(crate) const SIZES_FOR_LEVELS: usize = 8;
/// The smallest part of a shared last cache that a tenant is thought to get.
const TENANTS_MOST: u64 = 16;
/// Names what lies before, between and behind `ends`. What lies behind the last is memory if it begins beyond the caches and
/// `sizes`, those that were measured, reach well beyond all of them. Ends that translation makes are inside a level.
pub fn named(ends: &[End], claimed: &[Bytes], sizes: [Bytes; 2]) -> Levels {
    let caches: Vec<&End> = ends.iter().filter(|end| !end.is_translation).collect();
    let middle = |a: Bytes, b: Bytes| Bytes((a.0 as f64 * b.0 as f64).sqrt() as u64);
    let mut levels: Vec<Level> = Vec::new();
    for (index, end) in caches.iter().enumerate() {
        let [capacity, low, high] = end.capacity;
        let name = match end.claim {
            Some(k) => format!("L{}", k + 1),
            None if claimed.is_empty() => format!("L{}", index + 1),
            None => format!("level of {capacity}"),
        };
        let before = index.checked_sub(1).map(|before| caches[before]);
        // Lines of a first cache lie where their addresses say, so nothing wears off far from its end, whatever disturbed the curve.
        let center = before.map_or(Bytes(capacity.0 / 8 * 7), |before| middle(before.capacity[0], capacity));
        levels.push(Level {
            name,
            from: before.map_or(sizes[0], |before| before.wear[1].min(center)),
            to: end.wear[0].max(center),
            capacity: Some(capacity),
            capacity_ci95: Some([low, high]),
            claimed: end.claim.map(|k| claimed[k]),
            probability: Some(end.probability),
            ..Level::default()
        });
    }
    let last_cache = claimed.last().map_or(0, |size| size.0);
    // A tenant may get a small part of a last cache that others share; but a plateau that begins nearer to the cache
    // before it is that cache, or lacks points.
    let beyond = [last_cache / TENANTS_MOST, claimed.iter().rev().nth(1).map_or(0, |size| 4 * size.0)];
    let from = caches.last().map_or(sizes[0], |end| end.wear[1].min(middle(end.capacity[0], sizes[1])));
    let is_memory = sizes[1].0 > last_cache / 2 * 3 && from.0 >= beyond[0].max(beyond[1]).min(last_cache / 2);
    // One plateau alone is the last of the caches that it reaches.
    let only = claimed.iter().rposition(|size| *size <= sizes[1]).unwrap_or(0);
    let next = caches.iter().filter_map(|end| end.claim).max().map_or(only, |claim| claim + 1);
    let rest = claimed.get(next).filter(|_| !is_memory);
    let name = rest.map_or("memory".into(), |_| format!("L{}", next + 1));
    levels.push(Level { name, from, to: sizes[1], claimed: rest.copied(), ..Level::default() });
    let is_seen = |k: usize| ends.iter().any(|end| end.claim == Some(k));
    let unseen = (0..claimed.len()).filter(|k| is_memory && !is_seen(*k)).map(|k| format!("L{}", k + 1)).collect();
    let translated_beyond = ends.iter().filter(|end| end.is_translation).map(|end| end.capacity).collect();
    Levels { all: levels, translated_beyond, unseen }
}

/// Levels as claimed: nothing was found, so they have no capacity.
pub(crate) fn assumed(claimed: &[Bytes]) -> Levels {
    let mut from = Bytes(0);
    let mut all = Vec::new();
    for (index, &size) in claimed.iter().enumerate() {
        let (name, to) = (format!("L{}", index + 1), Bytes(size.0 / 8 * 7));
        all.push(Level { name, from, to, claimed: Some(size), ..Level::default() });
        from = Bytes((size.0 / 4).saturating_mul(5));
    }
    let from = Bytes(from.0.max(claimed.last().map_or(0, |size| size.0.saturating_mul(2))));
    all.push(Level { name: "memory".into(), from, to: Bytes(u64::MAX), ..Level::default() });
    Levels { all, ..Levels::default() }
}

/// The level that a row's working set lies in. A private cache holds one thread's share; what threads share must hold their
/// sum, less what their own caches hold beside it, and is left behind where that sum is too large for it. Memory begins at four times
/// the caches, from where on they no longer help (STREAM's rule). In a virtual machine the threads may lie behind more caches than it
/// is told: spread evenly over as many as there may be, those behind one must have too much for it as well. Between two levels there is
/// none, nor where kinds of cores differ.
pub(crate) fn level_of(case: &Case, levels: &[Level], machine: &Machine) -> Option<String> {
    let cpus: CpuSet = case.cpus.iter().copied().collect();
    let of_kinds: Vec<u32> = machine.kinds().iter().filter_map(|(_, own)| own.intersection(&cpus).first()).collect();
    let firsts = if of_kinds.is_empty() { vec![cpus.first()?] } else { of_kinds };
    let mut found = firsts.into_iter().map(|first| level_seen_from(first, &cpus, case, levels, machine));
    let level = found.next()??;
    found.all(|other| other.as_ref() == Some(&level)).then_some(level)
}

/// The same by the caches of one of the CPUs.
fn level_seen_from(first: u32, cpus: &CpuSet, case: &Case, levels: &[Level], machine: &Machine) -> Option<String> {
    let share = case.share().0;
    let is_virtual = machine.is_virtual();
    let number = |level: &Level| level.name.strip_prefix('L')?.parse::<u32>().ok();
    let sharers = |level: &Level| {
        let caches = machine.data_caches(first);
        let cache = caches.iter().find(|cache| Some(cache.level) == number(level))?;
        // In a first level undisturbed visits tell who had a core alone.
        let hidden = if cache.level == 1 { 1 } else { machine.hidden_sharers(cache).min(case.threads()) };
        Some(cache.cpus.intersection(cpus).len().max(hidden) as u64)
    };
    // Which threads of a virtual machine share what, nobody knows.
    let own = |level: &Level| number(level).filter(|_| !is_virtual);
    let beside = |level: &Level| own(level).map_or(0, |number| machine.beside(first, number, cpus).0);
    let claimed = machine.last_level_bytes(cpus).map_or(0, |size| size.0);
    // Where a tenant gets a part of the last cache, that part counts: of each thread's own, at the most.
    let found = levels.iter().rev().find_map(|level| level.capacity).filter(|_| is_virtual);
    let caches = found.map_or(claimed, |found| claimed.min(found.0.saturating_mul(case.threads() as u64)));
    // What lies beyond a cache that nobody claims is shared by as many as that cache at least.
    let before = |index: usize| match is_virtual {
        true if levels[index].name == "memory" => {
            (case.threads() / machine.last_levels_of_guest(case.threads()).max(1)) as u64
        }
        true => 1,
        false => levels[..index].iter().rev().find_map(sharers).unwrap_or(1).max(1),
    };
    let inside = |(index, level): &(usize, &Level)| {
        let sum = share * sharers(level).unwrap_or(1).max(1);
        let fits = match level.name.as_str() {
            "memory" => case.working_set.0 >= caches.saturating_mul(4),
            _ => sum <= level.to.0.saturating_add(beside(level)),
        };
        (share.saturating_mul(before(*index)) >= level.from.0 || *index == 0) && fits
    };
    levels.iter().enumerate().find(inside).map(|(_, level)| level.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(kib: u64, claim: Option<usize>) -> End {
        let size = Bytes::kib(kib);
        let wear = [Bytes::kib(kib * 9 / 10), Bytes::kib(kib * 5 / 4)];
        End { capacity: [size; 3], claim, is_translation: false, probability: 1.0, wear, step: 2.0 }
    }

    const CLAIMED: [Bytes; 3] = [Bytes::kib(32), Bytes::mib(1), Bytes::mib(32)];

    fn names(ends: &[End], largest: Bytes) -> Vec<String> {
        named(ends, &CLAIMED, [Bytes::kib(4), largest]).all.into_iter().map(|level| level.name).collect()
    }

    #[test]
    fn levels_are_named_after_the_ends_claimed() {
        let [l1, l2, l3] = [end(34, Some(0)), end(900, Some(1)), end(17_000, Some(2))];
        let large = Bytes::mib(256);
        assert_eq!(names(&[l1.clone(), l2.clone(), l3.clone()], large), ["L1", "L2", "L3", "memory"]);
        let found = named(&[l1.clone(), l3.clone()], &CLAIMED, [Bytes::kib(4), large]);
        assert_eq!((found.all.len(), found.unseen), (3, vec!["L2".to_string()]));
        let step = End { is_translation: true, ..end(256, None) };
        let found = named(&[l1.clone(), step, l2.clone(), l3.clone()], &CLAIMED, [Bytes::kib(4), large]);
        assert_eq!((found.all.len(), found.translated_beyond), (4, vec![[Bytes::kib(256); 3]]));
        assert_eq!((found.all[1].from, found.all[1].to), (Bytes::kib(42), Bytes::kib(810)));
        // Nobody claims it, and it is no small step.
        let side = end(131_072, None);
        assert_eq!(names(&[l1, l2, l3, side], Bytes::gib(1)), ["L1", "L2", "L3", "level of 128 MiB", "memory"]);
    }

    /// A run that ended early has the small sizes of the curve and one or two large ones.
    #[test]
    fn a_cache_is_not_called_memory() {
        assert_eq!(names(&[end(34, Some(0)), end(900, Some(1))], Bytes::mib(24)), ["L1", "L2", "L3"]);
        assert_eq!(names(&[], Bytes::mib(256)), ["L3"]);
        assert_eq!(named(&[end(34, None)], &[], [Bytes::kib(4), Bytes::mib(1)]).all[1].name, "memory");
    }
}
