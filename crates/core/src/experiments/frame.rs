//! What a plan must know of the machine, and why a plan can't be made.

use crate::case::{Case, Work};
use crate::kernel::Width;
use crate::kernel::chase::Chase;
use crate::kernel::isa::Isa;
use crate::machine::Machine;
use crate::machine::caches::{Cache, is_beside};
use crate::machine::cpuset::CpuSet;
use crate::machine::room;
use crate::memory::MemorySpec;
use crate::placement::{Placement, PlacementError};
use crate::units::Bytes;

/// Why the memory of a node can't be measured; the text names the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    /// No such node.
    #[error("there is no node {node}; nodes with memory are {known}")]
    Unknown {
        /// The node asked for.
        node: u32,
        /// Those there are.
        known: CpuSet,
    },
    /// A node without memory.
    #[error("node {node} has no memory; nodes with memory are {known}")]
    Empty {
        /// The node.
        node: u32,
        /// Those that have some.
        known: CpuSet,
    },
    /// A node that this process may not use.
    #[error(
        "node {node} is outside of the nodes that may be used here, {allowed}; ask for it in the cpuset (cpuset.mems)"
    )]
    NotAllowed {
        /// The node.
        node: u32,
        /// Those that may be used.
        allowed: CpuSet,
    },
    /// Too little memory that may be used.
    #[error(
        "node {node} has {free} free, of which {share} may be used (40 %, or less where the machine's limit says so), and \
         working sets there need {needed}; free memory (drop caches), or use fewer CPUs with --cpus"
    )]
    NoRoom {
        /// The node.
        node: u32,
        /// Its free memory.
        free: Bytes,
        /// What of that may be used.
        share: Bytes,
        /// What the least working sets of all initiators need.
        needed: Bytes,
    },
}

/// What a plan must know of the machine.
#[derive(Debug, Clone)]
pub struct Frame {
    /// CPUs to place threads on.
    pub placement: Placement,
    /// Data caches that the first CPU sees, as the operating system claims: (level, bytes), small first.
    pub caches: Vec<(u32, Bytes)>,
    /// Data caches of all CPUs, each with how many threads may share it, whoever is said to ([`Machine::hidden_sharers`]).
    pub shared: Vec<(Cache, usize)>,
    /// Widths there are, narrow first.
    pub widths: Vec<Width>,
    /// Most memory that a run may take.
    pub memory_limit: Bytes,
    /// Last-level cache claimed for (one thread, all threads).
    pub last_level: [Bytes; 2],
}

/// A plan that can't be made; the text names the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Threads or CPUs.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Nothing to work on.
    #[error(
        "a working set of {size} holds no element for each of {threads} thread(s) and stream; give at least {least}"
    )]
    TooSmall {
        /// The size asked for.
        size: Bytes,
        /// Threads.
        threads: usize,
        /// What would do.
        least: Bytes,
    },
    /// Nowhere to go.
    #[error("a working set of {size} has too few places for {chase}; give at least {least}")]
    TooFewPlaces {
        /// The size asked for.
        size: Bytes,
        /// The chase.
        chase: Chase,
        /// What would do.
        least: Bytes,
    },
    /// A chase that can't be.
    #[error("{chase}: a stride is a multiple of 8 bytes, no more than a block; there are 1 to 32 chains")]
    NoSuchChase {
        /// The chase.
        chase: Chase,
    },
    /// Arrays that would begin inside an element or a line.
    #[error("an offset of {offset} is no whole number of {unit}; give others to --offsets")]
    OddOffset {
        /// The offset asked for.
        offset: Bytes,
        /// What it must be a multiple of.
        unit: Bytes,
    },
    /// A loop whose places are not its own.
    #[error(
        "'{text}' reads where an index says, so that arrays in one block have no places of their own; leave out --offsets"
    )]
    GatheringBlock {
        /// The loop.
        text: &'static str,
    },
    /// A stream that no kernel has.
    #[error("no kernel here has a stream '{stream}'; theirs are {known}")]
    UnknownStream {
        /// The name asked for.
        stream: String,
        /// The streams there are.
        known: String,
    },
    /// A node whose memory can't be measured.
    #[error(transparent)]
    Target(#[from] NoTarget),
    /// More than may be taken.
    #[error(
        "a working set of {size} is more than the {limit} that may be used (40 % of the free memory, less under a cgroup's limit); give a smaller --size, or fewer --threads"
    )]
    TooLarge {
        /// The size asked for.
        size: Bytes,
        /// What may be used.
        limit: Bytes,
    },
}

/// A working set in memory is this many times the last-level caches used. The curve goes to twice that, to see that it
/// is flat there: a virtual machine may see less cache than there is.
pub const MEMORY_TO_CACHE: u64 = 4;
/// A set is surely in a cache beyond so many times the one before, and up to such a part of its own.
const BEYOND: f64 = 1.25;
const FULL: f64 = 0.75;
/// The smallest working set of a curve, bytes.
const SMALLEST: f64 = 4096.0;

/// To touch a working set beyond this once takes as long as to measure many small ones.
const LARGE: Bytes = Bytes::mib(128);
/// Without any known cache: more than any last-level cache of a single core complex.
const CACHE_UNKNOWN: Bytes = Bytes::mib(32);

impl Frame {
    /// Reads the frame off a machine, restricted to `cpus` where given.
    pub fn new(machine: &Machine, isa: Isa, cpus: Option<&CpuSet>) -> Result<Self, PlacementError> {
        let placement = Placement::new(machine, cpus)?;
        let all = placement.first(placement.most())?;
        let domains = |cpus: usize| if machine.is_virtual() { machine.last_levels_of_guest(cpus) } else { 1 };
        let unknown = |cpus: usize| Bytes(CACHE_UNKNOWN.0 * domains(cpus) as u64);
        let last_level = |cpus: &[u32]| machine.last_level_most(cpus).unwrap_or_else(|| unknown(cpus.len()));
        let shared = machine.caches.iter().filter(|cache| cache.holds_data());
        // A little less than may be taken: until it is, others may have taken some.
        let allowance = room::allowance(machine.available_memory().get());
        Ok(Frame {
            caches: machine.data_caches(all[0]).iter().map(|cache| (cache.level, cache.size)).collect(),
            shared: shared.map(|cache| (cache.clone(), machine.hidden_sharers(cache))).collect(),
            widths: isa.widths(),
            memory_limit: Bytes(allowance.0 / 16 * 15),
            last_level: [last_level(&all[..1]), last_level(&all)],
            placement,
        })
    }

    /// A working set that lies in memory, for so many threads.
    pub fn memory_size(&self, threads: usize) -> Bytes {
        let cache = self.last_level[usize::from(threads > 1)];
        // Arenas of one thread and of all threads stand side by side, each with room for loads and for stores.
        let most = Bytes(self.memory_limit.0 / 4);
        Bytes(cache.0.saturating_mul(MEMORY_TO_CACHE).max(Bytes::mib(64).0)).min(most)
    }

    /// What a thread gets of its caches of a level where so many run, at the least and at the most: of siblings, or of all behind one
    /// cache, one alone. Where it is not known who shares which, at the least as many as may, and at the most nobody.
    fn part(&self, (level, claimed): (u32, Bytes), threads: usize) -> [f64; 2] {
        let cpus = self.placement.first(threads).unwrap_or_default();
        let is_known = self.is_known();
        let parts = |(cache, hidden): &(Cache, usize)| {
            let sharers = cpus.iter().filter(|cpu| cache.cpus.contains(**cpu)).count();
            let size = cache.size.0 as f64;
            let most = if is_known { size / sharers as f64 } else { size };
            (sharers > 0).then(|| [size / sharers.max(threads.min(*hidden)) as f64, most])
        };
        let all = self.shared.iter().filter(|(cache, _)| cache.level == level).filter_map(parts);
        let ends = |[least, most]: [f64; 2], [low, high]: [f64; 2]| [least.min(low), most.max(high)];
        all.reduce(ends).unwrap_or([claimed.0 as f64; 2])
    }

    /// Whether threads share what they are said to.
    fn is_known(&self) -> bool {
        self.shared.iter().all(|(_, hidden)| *hidden == 1)
    }

    /// A working set of so many threads in each claimed cache, where nothing else is likely to show: (level, bytes). Those of all
    /// threads that share a cache fit it together.
    ///
    /// Three quarters of the first level: pages of all streams fit beside each other. Of a larger cache the middle between it and
    /// the one before, as a curve over working sets shows them, whose points these are: neighbours of a shared host, and other
    /// cores, leave less than is claimed. Loads of half of a last level of 32 MiB ran at 77 to 82 GB/s in ten runs of a guest, and
    /// at 97 to 100 over 5.7 MiB, as over all between 2 and 8. Left out where threads have no room in it beside the one before.
    pub fn in_caches(&self, threads: usize) -> Vec<(u32, Bytes)> {
        let parts: Vec<[f64; 2]> = self.caches.iter().map(|cache| self.part(*cache, threads)).collect();
        let sets = self.caches.iter().zip(middles(&parts, self.is_known()));
        sets.filter_map(|((level, _), share)| Some((*level, Bytes(share?.0 * threads as u64)))).collect()
    }

    /// One working set of a thread at each level, from the first cache to memory.
    pub fn one_per_level(&self) -> Vec<Bytes> {
        self.in_caches(1).into_iter().map(|(_, size)| size).chain([self.memory_size(1)]).collect()
    }

    /// The widest of them.
    pub fn widest(&self) -> Width {
        self.widths.last().copied().unwrap_or(Width::Scalar)
    }

    /// Working sets of one thread from 4 KiB to memory, `per_octave` for each doubling, but no more than one for each
    /// beyond [`LARGE`].
    pub fn sweep(&self, per_octave: u32, last: Bytes) -> Vec<Bytes> {
        let all = (0..).map(|step| (step, swept(f64::from(per_octave), f64::from(step))));
        let sizes = all.take_while(|(_, size)| size.0 as f64 <= last.0 as f64 * 1.01);
        sizes.filter(|(step, size)| *size <= LARGE || step % per_octave == 0).map(|(_, size)| size).collect()
    }
}

/// Where a thread looks at each cache, of which it gets these parts; nowhere if no set is surely in that one. What lies beside a cache
/// counts where it is known who shares which.
fn middles(parts: &[[f64; 2]], is_known: bool) -> Vec<Option<Bytes>> {
    let first = parts.first().map(|[least, _]| Some(Bytes((least * FULL) as u64)));
    let further = parts.windows(2).map(|pair| {
        let ([least_before, before], [own, _]) = (pair[0], pair[1]);
        let most = if is_known && is_beside(own, least_before) { least_before + own } else { own };
        let (low, high) = (BEYOND * before, FULL * most);
        let middle = 2.0 * ((before * most).sqrt().min(high) / SMALLEST).log2();
        let on_curve = [middle.round(), middle.floor(), middle.ceil()].map(|step| swept(2.0, step));
        let between = Bytes((low * high).sqrt() as u64 >> 10 << 10);
        on_curve.into_iter().chain([between]).find(|size| (low..=high).contains(&(size.0 as f64)))
    });
    first.into_iter().chain(further).collect()
}

/// A working set of a curve, so many steps beyond the smallest: whole kilobytes, so that every stream of up to four has whole lines.
fn swept(per_octave: f64, step: f64) -> Bytes {
    let size = SMALLEST * 2f64.powf(step / per_octave);
    Bytes((size / 1024.0).round() as u64 * 1024)
}

pub(crate) fn all_and_one(frame: &Frame) -> Vec<usize> {
    let most = frame.placement.most();
    if most > 1 { vec![1, most] } else { vec![1] }
}

/// The case of a chase over a working set, on the first CPU.
pub(crate) fn over_chase(
    frame: &Frame,
    chase: Chase,
    memory: MemorySpec,
    working_set: Bytes,
) -> Result<Case, PlanError> {
    if working_set < chase.least() {
        return Err(PlanError::TooFewPlaces { size: working_set, chase, least: chase.least() });
    }
    if working_set > frame.memory_limit {
        return Err(PlanError::TooLarge { size: working_set, limit: frame.memory_limit });
    }
    Ok(Case::new(Work::Chase(chase), memory, frame.placement.first(1)?, working_set))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the last cache shared by so many.
    fn kib(caches: &[Bytes], threads: usize) -> Vec<Option<u64>> {
        let mut parts: Vec<f64> = caches.iter().map(|size| size.0 as f64).collect();
        parts.last_mut().into_iter().for_each(|last| *last /= threads as f64);
        let parts: Vec<[f64; 2]> = parts.into_iter().map(|part| [part; 2]).collect();
        middles(&parts, true).into_iter().map(|size| size.map(|size| size.0 >> 10)).collect()
    }

    /// sqrt(32 x 1024) = 181 KiB, sqrt(1024 x 32768) = 5793 KiB.
    #[test]
    fn a_cache_is_looked_at_in_its_middle() {
        let caches = [Bytes::kib(32), Bytes::mib(1), Bytes::mib(32)];
        assert_eq!(kib(&caches, 1), [24, 181, 5793].map(Some));
        // 4 MiB for each of eight threads: sqrt(1 x 4) = 2 MiB.
        assert_eq!(kib(&caches, 8), [24, 181, 2048].map(Some));
        assert_eq!(kib(&[Bytes::kib(16)], 1), [Some(12)]);
        assert_eq!(kib(&[], 2), []);
    }

    /// What lies in the second levels as well is no set of the third.
    #[test]
    fn a_victim_cache_is_looked_at_beside_the_one_before() {
        let third = |second: u64, third: u64, cores| {
            *kib(&[Bytes::kib(32), Bytes::kib(second), Bytes::kib(third)], cores).last().unwrap()
        };
        // Sapphire Rapids, 2 MiB and 1.9 of each: sqrt(2 x 3.9) = 2.8 MiB. Skylake, 1 and 1.4: sqrt(1 x 2.4) = 1.5, on the grid 1.4.
        assert_eq!([third(2048, 107_520, 56), third(1024, 39_424, 28)], [Some(2896), Some(1448)]);
        // Ice Lake, 1.25 and 1.5: sqrt(1.25 x 2.75) = 1.85, on the grid 2.
        assert_eq!(third(1280, 61_440, 40), Some(2048));
        // 1.25 and 2.17: sqrt(1.25 x 3.4) = 2.1, on the grid 2. Twice 1.25: sqrt(1.25 x 2.5) = 1.77, on the grid 2, beyond three quarters
        // of 2.5, and 1.4 is no quarter beyond 1.25: between 1.56 and 1.875.
        assert_eq!([third(1280, 39_936, 18), third(1280, 40_960, 16)], [Some(2048), Some(1752)]);
        // 1 MiB and 0.75: between 1.25 and 1.3. 1 MiB and 0.25: all of both is too little beyond the first.
        assert_eq!([third(1024, 110_592, 144), third(1024, 32_768, 128)], [Some(1311), None]);
    }
}
