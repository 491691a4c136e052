//! Latency: the ladder, what prefetchers hide, what translations cost, how many misses a core has in flight; and the
//! map over cores and nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::case::{Case, Protocol, USUAL_MEMORY};
use crate::experiments::frame::{Frame, PlanError, over_chase};
use crate::in_order::each_once;
use crate::kernel::chase::{Chase, Order};
use crate::machine::caches::Cache;
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::Bytes;

/// How much a default run looks at: decided by its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The curve of loads and the main kernels at each level.
    Sketch,
    /// All kernels and store kinds, at the widest width.
    Outline,
    /// All widths.
    Full,
}

impl Detail {
    pub(crate) fn of(budget: Duration) -> Self {
        match budget.as_secs() {
            0..12 => Detail::Sketch,
            12..35 => Detail::Outline,
            _ => Detail::Full,
        }
    }
}

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
/// Even-numbered lines of 64 bytes.
const MAP_STRIDE: u32 = 128;
/// Blocks within which the map permutes lines.
const MAP_BLOCKS: [u32; 3] = [64 << 10, 512 << 10, 2 << 20];
/// Up to here a visit takes some milliseconds, so that working sets may lie close together.
const CHEAP: Bytes = Bytes::mib(64);
/// Beyond the size of the last cache no set larger than this is read before each sample: that would take longer than it.
const REFILLED_MOST: Bytes = Bytes::mib(256);
/// Working sets an octave up to there. An edge between two of them is known to 4.4 %.
const PER_OCTAVE: u32 = 8;
/// Pages of the largest sparse chase: more than the second-level translation buffers of today hold, by four times.
const SPARSE_PAGES: u64 = 16 << 10;
/// Chains of the parallelism curve.
const CHAINS: [u32; 14] = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32];

/// The usual cases on the first CPU.
pub fn latency(frame: &Frame, detail: Detail) -> Result<Vec<Case>, PlanError> {
    use Order::{Backward, Forward, PageOrdered, PageRandom, Random, Strided};
    let base = MemorySpec::of(MemoryKind::Base);
    let is_full = detail == Detail::Full;
    let far = frame.memory_size(1);
    let sizes = |per_octave| frame.sweep(per_octave, far);
    // To write a cycle over gigabytes takes seconds: beyond the ladder itself there is one working set of that size.
    let near = || sizes(1).into_iter().filter(|size| *size <= CHEAP);
    let near_and_far = || near().chain([far]).collect::<Vec<_>>();
    let mut chases: Vec<(Chase, MemorySpec, Vec<Bytes>)> = Vec::new();
    let mut add = |order, memory, sizes| chases.push((Chase::of(order), memory, sizes));
    if detail > Detail::Sketch {
        add(Random, base, near_and_far());
        for order in [Forward, Backward, Strided] {
            add(order, USUAL_MEMORY, if is_full { near_and_far() } else { frame.one_per_level() });
        }
    }
    if is_full {
        for order in [PageOrdered, PageRandom] {
            add(order, base, near().collect());
        }
        add(Random, MemorySpec::of(MemoryKind::Huge2M), frame.one_per_level());
    }
    let mut cases = Vec::new();
    let rungs = match detail {
        Detail::Full => dense(frame),
        Detail::Outline | Detail::Sketch => merged(sizes(2), around_caches(frame)),
    };
    for (size, protocol) in ladder(frame, rungs) {
        cases.push(Case { protocol, ..over_chase(frame, Chase::of(Random), USUAL_MEMORY, size)? });
    }
    for (chase, memory, sizes) in chases {
        for size in sizes {
            cases.push(over_chase(frame, chase, memory, size)?);
        }
    }
    for size in sparse_sizes(frame).into_iter().filter(|_| is_full) {
        cases.push(Case { protocol: Protocol::Refilled, ..over_chase(frame, sparse(), base, size)? });
    }
    let chains = CHAINS.iter().filter(|&&chains| is_full || chains.is_power_of_two());
    for &chains in chains.filter(|_| detail > Detail::Sketch) {
        cases.push(over_chase(frame, Chase { chains, ..Chase::of(Random) }, USUAL_MEMORY, frame.memory_size(1))?);
    }
    Ok(each_once(cases))
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
    for ((&order, &memory), (&stride_bytes, &chains)) in crate::case::product4(&orders, &memory, &strides, &chains) {
        let block_bytes = stride_bytes.max(4096);
        let chase = Chase { order, stride_bytes, chains, block_bytes };
        if !chase.exists() {
            return Err(PlanError::NoSuchChase { chase });
        }
        // A ladder begins where the chase has places; a size that was asked for must have them.
        for &size in sizes.iter().filter(|size| !choice.sizes.is_empty() || **size >= chase.least()) {
            cases.push(over_chase(frame, chase, memory, size)?);
        }
    }
    Ok(each_once(cases))
}

/// Each CPU x memory kind x block: even lines in random order within a block, blocks one after the other.
pub fn latency_map(frame: &Frame, memory: &[MemorySpec], sizes: &[Bytes]) -> Result<Vec<Case>, PlanError> {
    let sizes = if sizes.is_empty() { vec![frame.memory_size(1)] } else { sizes.to_vec() };
    let stride_bytes = map_stride(frame.shared.iter().map(|(cache, _)| cache));
    let mut cases = Vec::new();
    for &cpu in &frame.placement.first(frame.placement.most())? {
        for ((&memory, &size), block_bytes) in
            crate::case::product(memory, &sizes).flat_map(|at| MAP_BLOCKS.map(|b| (at, b)))
        {
            let chase = Chase { stride_bytes, block_bytes, ..Chase::of(Order::PageOrdered) };
            cases.push(Case { cpus: vec![cpu], ..over_chase(frame, chase, memory, size)? });
        }
    }
    Ok(each_once(cases))
}

/// Bytes from place to place of a map on a machine with these data caches: even-numbered lines of the largest size, so that what a
/// prefetcher fetches of a pair of lines is never asked for.
pub fn map_stride<'a>(caches: impl Iterator<Item = &'a Cache>) -> u32 {
    caches.map(|cache| 2 * cache.line.0 as u32).fold(MAP_STRIDE, u32::max)
}

/// One line in each page: blocks hold one place.
fn sparse() -> Chase {
    Chase { stride_bytes: SPARSE_STRIDE, block_bytes: SPARSE_STRIDE, ..Chase::of(Order::Random) }
}

/// Working sets of the whole ladder, in lines: close together where they are cheap.
fn dense(frame: &Frame) -> Vec<Bytes> {
    let last = frame.memory_size(1);
    let cheap = eighths(64, last.min(CHEAP).0 / 64).map(|lines| Bytes(lines * 64));
    cheap.chain(frame.sweep(4, last).into_iter().filter(|size| *size > CHEAP)).collect()
}

/// Working sets about as large as each claimed cache but the last, which tenants share: where a level ends is known no better than its
/// curve has points beside it.
fn around_caches(frame: &Frame) -> Vec<Bytes> {
    let own = frame.caches.split_last().map_or(&[][..], |(_, own)| own);
    let around = |size: Bytes| {
        (-2..=2).map(move |step| {
            let bytes = size.0 as f64 * (f64::from(step) / f64::from(PER_OCTAVE)).exp2();
            Bytes(bytes as u64 / 64 * 64)
        })
    };
    own.iter().flat_map(|(_, size)| around(*size)).collect()
}

fn merged(sizes: Vec<Bytes>, more: Vec<Bytes>) -> Vec<Bytes> {
    BTreeSet::from_iter(sizes.into_iter().chain(more)).into_iter().collect()
}

/// [`PER_OCTAVE`] numbers for each doubling.
fn eighths(first: u64, last: u64) -> impl Iterator<Item = u64> {
    let number = move |step: u32| (first as f64 * (f64::from(step) / f64::from(PER_OCTAVE)).exp2()).round() as u64;
    (0..).map(number).take_while(move |number| *number <= last)
}

/// As many pages as the ladder's cheap working sets have lines, up to [`SPARSE_PAGES`], and some fewer.
fn sparse_sizes(frame: &Frame) -> Vec<Bytes> {
    let sizes = eighths(16, SPARSE_PAGES).map(|pages| Bytes(pages * u64::from(SPARSE_STRIDE)));
    sizes.filter(|size| size.0 <= frame.memory_limit.0 / 4).collect()
}

/// The ladder's cases. Working sets that need the last cache, or lie at its edges, are read before each sample: from half of
/// the cache before it to twice its own size, since it is not full at once. Up to its own size they are taken without, too,
/// for what others evict; of those that lie close together every other one will do.
fn ladder(frame: &Frame, sizes: Vec<Bytes>) -> Vec<(Bytes, Protocol)> {
    let [inner, last] = match frame.caches[..] {
        [.., (_, inner), (_, last)] => [inner.0, last.0],
        _ => [u64::MAX, 0],
    };
    let is_refilled = |size: Bytes| (inner / 2..=last.max((2 * last).min(REFILLED_MOST.0))).contains(&size.0);
    let is_close = sizes.len() > 1 && sizes[1].0 * 4 < sizes[0].0 * 5;
    let protocols = |(index, size): (usize, Bytes)| {
        let is_spared = is_close && size <= CHEAP && index % 2 == 1;
        let steady = !is_refilled(size) || size.0 <= last && !is_spared;
        let of = [(steady, Protocol::Steady), (is_refilled(size), Protocol::Refilled)];
        of.into_iter().filter(|(is_one, _)| *is_one).map(move |(_, protocol)| (size, protocol))
    };
    sizes.into_iter().enumerate().flat_map(protocols).collect()
}
