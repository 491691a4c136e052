//! What a user chooses, and what follows where nothing was chosen.

use crate::case::{Case, StreamMemory, USUAL_MEMORY, Work, product, product4, unroll};
use crate::experiments::frame::{Frame, PlanError, all_and_one};
use crate::in_order::each_once;
use crate::kernel::catalog::Kernel;
use crate::kernel::{Element, LoadKind, StoreKind, Variant, Width};
use crate::memory::MemorySpec;
use crate::units::Bytes;

/// The kernels whose curve over working sets a default run draws, with regular and non-temporal stores.
pub(crate) const CURVES: [&str; 4] = ["load", "store", "copy", "triad"];

/// What `bandwidth` was asked for; an empty list means the usual choice.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Kernels.
    pub kernels: Vec<&'static Kernel>,
    /// Working sets over all threads.
    pub sizes: Vec<Bytes>,
    /// Store kinds.
    pub stores: Vec<StoreKind>,
    /// Load kinds.
    pub loads: Vec<LoadKind>,
    /// Widths.
    pub widths: Vec<Width>,
    /// What streams are arrays of.
    pub element: Element,
    /// Memory kinds.
    pub memory: Vec<MemorySpec>,
    /// Streams with a memory of their own.
    pub streams: Vec<StreamMemory>,
    /// Thread counts.
    pub threads: Vec<usize>,
    /// Unroll; absent: the usual one.
    pub unroll: Option<u32>,
    /// Bytes off alignment.
    pub misaligned_bytes: u32,
}

pub(crate) fn level_sizes(frame: &Frame, threads: usize) -> Vec<Bytes> {
    let caches = frame.in_caches(threads).into_iter().map(|(_, size)| size);
    caches.filter(|size| size.0 < frame.memory_size(threads).0 / 4).chain([frame.memory_size(threads)]).collect()
}

pub(crate) fn check_size(
    frame: &Frame,
    size: Bytes,
    kernel: &Kernel,
    element: Element,
    threads: usize,
) -> Result<(), PlanError> {
    let streams = kernel.formula().streams.len() as u64;
    let least = Bytes(streams * threads as u64 * element.bytes() * kernel.least_elements());
    if size < least {
        return Err(PlanError::TooSmall { size, threads, least });
    }
    if size > frame.memory_limit {
        return Err(PlanError::TooLarge { size, limit: frame.memory_limit });
    }
    Ok(())
}

/// In the first level whole pages for each stream, so that they lie alike (see `Layout`).
pub(crate) fn tidy(kernel: &Kernel, size: Bytes, threads: usize) -> Bytes {
    let threads = threads as u64;
    let unit = 4096 * kernel.formula().streams.len() as u64 * threads;
    if (unit..(128 << 10) * threads).contains(&size.0) { Bytes(size.0 / unit * unit) } else { size }
}

/// The two widest: a core that splits its widest accesses may be faster with the next.
pub(crate) fn best_widths(frame: &Frame) -> Vec<Width> {
    frame.widths.iter().rev().take(2).rev().copied().collect()
}

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breadth {
    /// The main figures: the part of a default run. Of a kind, first use and copying.
    Brief,
    /// Every way of touching.
    Whole,
}

/// Kernels x sizes x stores x loads x widths x memory x threads.
pub fn kernels(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let usual = |names: &[&str]| names.iter().filter_map(|name| Kernel::named(name)).collect::<Vec<_>>();
    let kernels = if choice.kernels.is_empty() { usual(&CURVES) } else { choice.kernels.clone() };
    let stores = if choice.stores.is_empty() { vec![StoreKind::Regular] } else { choice.stores.clone() };
    let loads = if choice.loads.is_empty() { vec![LoadKind::Regular] } else { choice.loads.clone() };
    let widths = if choice.widths.is_empty() { best_widths(frame) } else { choice.widths.clone() };
    let memory = if choice.memory.is_empty() { vec![USUAL_MEMORY] } else { choice.memory.clone() };
    let counts = if choice.threads.is_empty() { all_and_one(frame) } else { choice.threads.clone() };
    check_streams(&kernels, &choice.streams)?;
    let mut cases = Vec::new();
    for &threads in &counts {
        let cpus = frame.placement.first(threads)?;
        let sizes = if choice.sizes.is_empty() { level_sizes(frame, threads) } else { choice.sizes.clone() };
        for (&size, &kernel) in product(&sizes, &kernels) {
            check_size(frame, size, kernel, choice.element, threads)?;
            for ((&store, &load), (&width, &memory)) in product4(&stores, &loads, &widths, &memory) {
                // Naming no store kind must not make a case of a kernel that stores nothing fail.
                let store = if kernel.formula().store().is_none() && choice.stores.is_empty() {
                    StoreKind::Regular
                } else {
                    store
                };
                let size = if choice.sizes.is_empty() { tidy(kernel, size, threads) } else { size };
                let unroll = choice.unroll.unwrap_or(unroll(width));
                let variant =
                    Variant { element: choice.element, load, unroll, ..crate::case::usual(kernel.name, width, store) };
                cases.push(Case {
                    streams: streams_of(kernel, &choice.streams),
                    misaligned_bytes: choice.misaligned_bytes,
                    ..Case::new(Work::Kernel(variant), memory, cpus.clone(), size)
                });
            }
        }
    }
    Ok(each_once(cases))
}

/// Every name must be a stream of some kernel: else the user meant something else by it.
fn check_streams(kernels: &[&Kernel], streams: &[StreamMemory]) -> Result<(), PlanError> {
    let mut known: Vec<String> =
        kernels.iter().flat_map(|kernel| kernel.formula().streams).map(|stream| stream.name).collect();
    known.sort();
    known.dedup();
    match streams.iter().find(|named| !known.contains(&named.stream)) {
        Some(named) => Err(PlanError::UnknownStream { stream: named.stream.clone(), known: known.join(", ") }),
        None => Ok(()),
    }
}

/// Those of the streams that the kernel has.
fn streams_of(kernel: &Kernel, streams: &[StreamMemory]) -> Vec<StreamMemory> {
    let has = |named: &&StreamMemory| kernel.formula().streams.iter().any(|stream| stream.name == named.stream);
    streams.iter().filter(has).cloned().collect()
}
