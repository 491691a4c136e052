//! Latency: the ladder, what prefetchers hide, what translations cost, how many misses a core has in flight; and the
//! map over cores and nodes.

use super::{Case, Detail, Frame, PlanError, Protocol, USUAL_MEMORY, Work};
use crate::kernel::chase::{Chase, Order};
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::Bytes;

/// What `latency` was asked for; an empty list means the usual choice.
#[derive(Debug, Clone, Default)]
pub struct LatencyChoice {
    /// Working sets.
    pub sizes: Vec<Bytes>,
    /// Memory kinds.
    pub memory: Vec<MemorySpec>,
    /// Orders.
    pub orders: Vec<Order>,
    /// Bytes from place to place.
    pub strides: Vec<u32>,
    /// Numbers of chains.
    pub chains: Vec<u32>,
}

/// A page and a line: each place in a page of its own, and lines spread over the sets of the caches. They fill the caches
/// as the same number of lines does that lie side by side; what they cost more is translation.
pub const SPARSE_STRIDE: u32 = 4096 + 64;
/// Even-numbered lines: what a prefetcher fetches of a pair of lines is never asked for.
pub const MAP_STRIDE: u32 = 128;
/// Blocks within which the map permutes lines.
const MAP_BLOCKS: [u32; 3] = [64 << 10, 512 << 10, 2 << 20];
/// Pages of the largest sparse chase: more than the second-level translation buffers of today hold, by four times.
const SPARSE_PAGES: u64 = 16 << 10;
/// Chains of the parallelism curve.
const CHAINS: [u32; 14] = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32];

/// The usual cases on the first CPU.
pub fn latency(frame: &Frame, detail: Detail) -> Result<Vec<Case>, PlanError> {
    use Order::{Backward, Forward, PageOrdered, PageRandom, Random, Strided};
    let base = MemorySpec::of(MemoryKind::Base);
    let is_full = detail == Detail::Full;
    let sizes = |per_octave| frame.sweep(per_octave, frame.memory_size(1));
    let per_octave = if is_full { 4 } else { 2 };
    let mut chases: Vec<(Chase, MemorySpec, Vec<Bytes>)> = vec![(Chase::of(Random), USUAL_MEMORY, sizes(per_octave))];
    let mut add = |order, memory, sizes| chases.push((Chase::of(order), memory, sizes));
    if detail > Detail::Sketch {
        add(Random, base, sizes(1));
        for order in [Forward, Backward, Strided] {
            add(order, USUAL_MEMORY, if is_full { sizes(1) } else { probes(frame) });
        }
    }
    if is_full {
        for order in [PageOrdered, PageRandom] {
            add(order, base, sizes(1));
        }
        add(Random, MemorySpec::of(MemoryKind::Huge2M), probes(frame));
        chases.push((sparse(), base, sparse_sizes(frame)));
    }
    let mut cases = Vec::new();
    for (chase, memory, sizes) in chases {
        for size in sizes {
            cases.push(case(frame, chase, memory, size)?);
        }
    }
    for size in last_level(frame, per_octave) {
        cases.push(Case { protocol: Protocol::Refilled, ..case(frame, Chase::of(Random), USUAL_MEMORY, size)? });
    }
    let chains = CHAINS.iter().filter(|&&chains| is_full || chains.is_power_of_two());
    for &chains in chains.filter(|_| detail > Detail::Sketch) {
        cases.push(case(frame, Chase { chains, ..Chase::of(Random) }, USUAL_MEMORY, frame.memory_size(1))?);
    }
    Ok(super::distinct(cases))
}

/// Sizes x memory x orders x strides x chains, on the first CPU. Without sizes, a ladder.
pub fn latency_choice(frame: &Frame, choice: &LatencyChoice) -> Result<Vec<Case>, PlanError> {
    fn or<T: Copy>(given: &[T], usual: T) -> Vec<T> {
        if given.is_empty() { vec![usual] } else { given.to_vec() }
    }
    let sizes = if choice.sizes.is_empty() { frame.sweep(4, frame.memory_size(1)) } else { choice.sizes.clone() };
    let (memory, orders) = (or(&choice.memory, USUAL_MEMORY), or(&choice.orders, Order::Random));
    let (strides, chains) = (or(&choice.strides, 64), or(&choice.chains, 1));
    let mut cases = Vec::new();
    for ((&order, &memory), (&stride_bytes, &chains)) in super::product4(&orders, &memory, &strides, &chains) {
        let block_bytes = stride_bytes.max(4096);
        let chase = Chase { order, stride_bytes, chains, block_bytes };
        if !chase.exists() {
            return Err(PlanError::NoSuchChase { chase });
        }
        // A ladder begins where the chase has places; a size that was asked for must have them.
        for &size in sizes.iter().filter(|size| !choice.sizes.is_empty() || **size >= chase.least()) {
            cases.push(case(frame, chase, memory, size)?);
        }
    }
    Ok(super::distinct(cases))
}

/// Each CPU x memory kind x block: even lines in random order within a block, blocks one after the other.
pub fn latency_map(frame: &Frame, memory: &[MemorySpec], sizes: &[Bytes]) -> Result<Vec<Case>, PlanError> {
    let sizes = if sizes.is_empty() { vec![frame.memory_size(1)] } else { sizes.to_vec() };
    let mut cases = Vec::new();
    for &cpu in &frame.placement.first(frame.placement.most())? {
        for ((&memory, &size), block_bytes) in super::product(memory, &sizes).flat_map(|at| MAP_BLOCKS.map(|b| (at, b)))
        {
            let chase = Chase { stride_bytes: MAP_STRIDE, block_bytes, ..Chase::of(Order::PageOrdered) };
            cases.push(Case { cpus: vec![cpu], ..case(frame, chase, memory, size)? });
        }
    }
    Ok(super::distinct(cases))
}

pub(super) fn case(frame: &Frame, chase: Chase, memory: MemorySpec, working_set: Bytes) -> Result<Case, PlanError> {
    if working_set < chase.least() {
        return Err(PlanError::TooFewPlaces { size: working_set, chase, least: chase.least() });
    }
    if working_set > frame.memory_limit {
        return Err(PlanError::TooLarge { size: working_set, limit: frame.memory_limit });
    }
    Ok(Case {
        work: Work::Chase(chase),
        memory,
        streams: Vec::new(),
        cpus: frame.placement.first(1)?,
        working_set,
        misaligned_bytes: 0,
        protocol: Protocol::Steady,
    })
}

/// One working set in each level.
fn probes(frame: &Frame) -> Vec<Bytes> {
    frame.probes().into_iter().map(|(_, size)| size).chain([frame.memory_size(1)]).collect()
}

/// One line in each page: blocks hold one place.
fn sparse() -> Chase {
    Chase { stride_bytes: SPARSE_STRIDE, block_bytes: SPARSE_STRIDE, ..Chase::of(Order::Random) }
}

/// As many pages as the ladder's working sets have lines, up to [`SPARSE_PAGES`], and some fewer.
fn sparse_sizes(frame: &Frame) -> Vec<Bytes> {
    let as_lines = frame.sweep(4, Bytes(64 * SPARSE_PAGES)).into_iter().map(|size| size.0 / 64);
    let sizes = [16, 19, 23, 27, 32, 38, 45, 54]
        .into_iter()
        .chain(as_lines)
        .map(|pages| Bytes(pages * u64::from(SPARSE_STRIDE)));
    sizes.filter(|size| size.0 <= frame.memory_limit.0 / 4).collect()
}

/// The ladder's working sets that need the last cache, or lie at its edges: from half of the cache before it to its own
/// size.
fn last_level(frame: &Frame, per_octave: u32) -> Vec<Bytes> {
    let [.., (_, inner), (_, last)] = frame.caches[..] else { return Vec::new() };
    let most = last.min(frame.memory_size(1));
    frame.sweep(per_octave, most).into_iter().filter(|size| size.0 >= inner.0 / 2).collect()
}
