//! Translation buffers, by chases over one line in each page.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::latency::ladder::{Chased, Curve, ladders};
use membound_core::case::USUAL_MEMORY;
use membound_core::curves::hierarchy::ladder::{Rung, fit};
use membound_core::experiments::latency::SPARSE_STRIDE;
use membound_core::kernel::chase::Order;
use membound_core::memory::MemoryKind;
use membound_core::stats::quantiles::median;
use membound_core::units::{BASE_PAGE, Bytes, LINE};

/// Working sets that say what the nearest cache takes: the first eight fit in it.
const NEAREST_POINTS: usize = 8;

/// A level of translation buffers (TLB).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct TranslationLevel {
    /// 1 is the nearest.
    pub level: usize,
    /// Base pages that it holds.
    pub pages: f64,
    /// Their 95 % interval.
    pub pages_ci95: [f64; 2],
    /// Memory that they are.
    pub reach: Bytes,
    /// Nanoseconds that a load waits longer when its page is beyond this level (and in the next, if there is one).
    pub miss_ns: [f64; 3],
    /// The same in core clock cycles.
    pub miss_cycles: Option<f64>,
}

/// Translation buffers: chases over one line, of so many bytes, in each base page, against as many lines side by side in huge pages. Both
/// fill the caches alike. Huge pages with one line in each would not do instead: where a host backs them with base pages,
/// the processor translates them as such.
pub(super) fn translation(chases: &[Chased], base_page: Bytes, line: Bytes) -> Vec<TranslationLevel> {
    let all = ladders(chases);
    let side_by_side = all.iter().find(|((memory, _), _)| memory.kind == USUAL_MEMORY.kind).map(|(_, ladder)| ladder);
    let dense: BTreeMap<usize, [f64; 3]> =
        side_by_side.into_iter().flat_map(BTreeMap::values).filter_map(|c| Some((c.places(), c.figure()?))).collect();
    // The nearest cache, by several points: a disturbed one would shift all that follows.
    let nearest = median(dense.values().take(NEAREST_POINTS).map(|figure| figure[0]));
    let Some((&fewest, nearest)) = dense.keys().next().zip(nearest) else { return Vec::new() };
    let is_sparse = |c: &&Chased| {
        (c.chase().order, c.chase().stride_bytes, c.chase().chains) == (Order::Random, SPARSE_STRIDE, 1)
            && c.case.memory.kind == MemoryKind::Base
    };
    let sparse: Vec<&Chased> = chases.iter().filter(is_sparse).collect();
    let more = |c: &&Chased| {
        // Fewer lines than the smallest working set has lie in the same cache.
        let [base, low, high] = c.figure()?;
        // Places side by side that fill as many lines.
        let filled = c.places() * (line.0.max(LINE) / LINE) as usize;
        let other = if filled < fewest { [nearest; 3] } else { *dense.get(&filled)? };
        // As a curve of latencies: what a load would take from the nearest cache.
        let latency = nearest + base - other[0];
        let error = ((high - low) / 2.0).hypot((other[2] - other[1]) / 2.0);
        Some((c.case.working_set, latency, [latency - error, latency + error]))
    };
    let curve: Curve = sparse.iter().filter_map(more).collect();
    let clock = median(sparse.iter().filter_map(|c| c.core_clock_hz));
    let rungs = fit(&curve, None);
    let level = |(index, pair): (usize, &[Rung])| {
        // A place lies in each 4 KiB, so that larger pages have several.
        let pages_of = |bytes: Bytes| bytes.0 as f64 / f64::from(SPARSE_STRIDE) * BASE_PAGE as f64 / base_page.0 as f64;
        let [pages, low, high] = pair[0].capacity?.map(pages_of);
        let miss_ns = pair[1].latency.map(|ns| ns - rungs[0].latency[0]);
        Some(TranslationLevel {
            level: index + 1,
            pages,
            pages_ci95: [low, high],
            reach: Bytes((pages * base_page.0 as f64) as u64),
            miss_ns,
            miss_cycles: clock.map(|hz| miss_ns[0] * 1e-9 * hz),
        })
    };
    rungs.windows(2).enumerate().filter_map(level).collect()
}
