//! Traffic: what stores move beside the payload. Regular stores read each line before they write it (write-allocate), nt
//! stores do not, so in memory the two differ by a ratio that follows from counting streams: 2 for a store, 3/2 for a
//! copy, 4/3 for a triad, 1 for a kernel that changes its stream in place. Where a machine shows another ratio, that has
//! one of two reasons, and they are told apart here:
//!
//! - The processor *evades* the write-allocate: it sees that whole lines are written and claims them unread. Intel from
//!   Ice Lake servers on does that on a busy bus (SpecI2M), ThunderX2 and other Arm designs always. Source: G. Hager's
//!   blog, "SpecI2M" (blogs.fau.de/hager), after Intel's slides at Hot Chips 2020. Then regular stores move more payload
//!   than the bus could carry if each line were read first: that is the proof asked for.
//! - Something *holds nt stores back*: one thread has few buffers for them. Then nt stores are slower than regular ones
//!   although they move no more bytes than any way of storing must.
//!
//! Between the two, the ratio alone decides nothing, and the answer is `unclear`.

use super::rows::Result as KernelResult;
use super::stores::{bound, groups, usable};
use super::{Rate, WriteAllocate};
use crate::kernel::{Element, Kernel, StoreKind};
use crate::stats;
use crate::units::words;

/// Ratios and rates that differ by less are the same: reads and writes do not mix for free.
const ALIKE: f64 = 0.05;
/// Share of the best rate of loads from which on a number of threads counts as saturating memory.
const SATURATED: f64 = 0.95;

words! {
    /// What the ratio of nt to regular stores says of the write-allocate.
    Traffic, "traffic" {
        /// The ratio is that of the bytes counted.
        AsCounted = "as counted",
        /// Regular stores move more than the bus could carry with write-allocates.
        Evaded = "evaded",
        /// nt stores are slower than regular ones.
        NtHeldBack = "nt held back",
        /// Neither shows.
        Unclear = "unclear",
    }
}

/// Regular against non-temporal stores in memory, for every kernel that was measured with both.
pub(super) fn write_allocate(results: &[KernelResult]) -> Vec<WriteAllocate> {
    let carried = carried(results);
    let saturating = saturating_threads(results);
    let mut found = Vec::new();
    for (kernel, threads) in groups(results) {
        let (Some(row), Some(regular), Some(nt)) = (
            Kernel::named(&kernel),
            fastest(results, &kernel, threads, StoreKind::Regular),
            fastest(results, &kernel, threads, StoreKind::Nt),
        ) else {
            continue;
        };
        let (slow, fast) = (&results[regular], &results[nt]);
        if slow.case.working_set != fast.case.working_set || slow.row.element != fast.row.element {
            continue;
        }
        let traffic = row.traffic(StoreKind::Regular, slow.row.element);
        let (gain, bound) = (stats::ratio(&fast.batches(), &slow.batches()), bound(&kernel));
        let with_allocates = slow.row.bus_bps.map_or(0.0, |rate| rate.median);
        found.push(WriteAllocate {
            kernel,
            threads,
            regular,
            nt,
            payload_bytes: traffic.payload(),
            bus_bytes: traffic.bus(),
            gain,
            bound,
            saturates: saturating.is_some_and(|least| threads >= least),
            traffic: judge(gain, bound, with_allocates, carried),
        });
    }
    found.sort_by_key(|w| (w.threads, Kernel::place(&w.kernel)));
    found
}

/// The largest working set in memory of a kernel and store kind, and of that the fastest width.
fn fastest(results: &[KernelResult], kernel: &str, threads: usize, store: StoreKind) -> Option<usize> {
    let is_ours = |r: &KernelResult| {
        let row = &r.row;
        usable(r)
            && (row.kernel.as_str(), row.threads, row.store) == (kernel, threads, store)
            && row.level.as_deref() == Some("memory")
    };
    let key = |i: &usize| (results[*i].case.working_set, median(results[*i].row.payload_bps));
    let better = |a: &usize, b: &usize| key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1));
    (0..results.len()).filter(|i| is_ours(&results[*i])).max_by(better)
}

fn median(rate: Option<Rate>) -> f64 {
    rate.map_or(0.0, |rate| rate.median)
}

/// The most that the bus was seen to carry, in bytes a second: by kernels whose traffic holds no write-allocate.
fn carried(results: &[KernelResult]) -> f64 {
    let is_sure = |r: &&KernelResult| {
        let bytes = Kernel::named(&r.row.kernel).map(|row| row.traffic(r.row.store, Element::Double));
        usable(r) && r.row.level.as_deref() == Some("memory") && bytes.is_some_and(|bytes| bytes.write_allocated == 0)
    };
    results.iter().filter(is_sure).map(|r| median(r.row.payload_bps)).fold(0.0, f64::max)
}

/// The fewest threads that load nearly as fast as any number measured; absent where only one number was.
fn saturating_threads(results: &[KernelResult]) -> Option<usize> {
    let is_load = |r: &&KernelResult| usable(r) && r.row.kernel == "load" && r.row.level.as_deref() == Some("memory");
    let loads: Vec<(usize, f64)> =
        results.iter().filter(is_load).map(|r| (r.row.threads, median(r.row.payload_bps))).collect();
    let best = loads.iter().map(|load| load.1).fold(0.0, f64::max);
    let is_several = loads.iter().any(|load| load.0 != loads[0].0);
    let enough = loads.iter().filter(|load| load.1 >= SATURATED * best).map(|load| load.0).min();
    enough.filter(|_| is_several)
}

/// What the ratio [value, low, high] says, `bound` being that of the bytes, `with_allocates` the bus rate of regular stores
/// if each allocates, `carried` the most that the bus was seen to carry.
fn judge(gain: [f64; 3], bound: f64, with_allocates: f64, carried: f64) -> Traffic {
    let [_, low, high] = gain;
    if !gain.iter().all(|value| value.is_finite()) {
        return Traffic::Unclear;
    }
    let meets = high >= bound * (1.0 - ALIKE) && low <= bound * (1.0 + ALIKE);
    // An interval that also holds the ratio without any write-allocate decides nothing.
    let decides = bound <= 1.0 || low > (1.0 + bound) / 2.0;
    if meets && decides {
        Traffic::AsCounted
    } else if bound > 1.0 && high < bound * (1.0 - ALIKE) && with_allocates > carried * (1.0 + ALIKE) && carried > 0.0 {
        Traffic::Evaded
    } else if high < 1.0 - ALIKE {
        Traffic::NtHeldBack
    } else {
        Traffic::Unclear
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bus that carries 40 GB/s, and a copy: 2 payload bytes, 3 on the bus.
    #[test]
    fn the_reason_for_a_ratio() {
        let check = |gain: [f64; 3], bound, regular_gbps: f64, expect| {
            assert_eq!(judge(gain, bound, regular_gbps * bound, 40.0), expect, "{gain:?} of {bound} at {regular_gbps}");
        };
        check([1.5, 1.48, 1.52], 1.5, 26.0, Traffic::AsCounted);
        check([1.44, 1.42, 1.46], 1.5, 26.0, Traffic::AsCounted);
        check([1.0, 0.98, 1.02], 1.0, 38.0, Traffic::AsCounted);
        // 38 GB/s of payload would be 57 on the bus, which carries 40.
        check([1.02, 1.0, 1.04], 1.5, 38.0, Traffic::Evaded);
        check([1.02, 1.0, 1.04], 1.5, 25.0, Traffic::Unclear);
        check([0.6, 0.58, 0.62], 1.5, 12.0, Traffic::NtHeldBack);
        check([0.6, 0.58, 0.62], 1.0, 12.0, Traffic::NtHeldBack);
        // Slower than regular stores, and those beyond what the bus carries with write-allocates.
        check([0.6, 0.58, 0.62], 1.5, 38.0, Traffic::Evaded);
        check([1.5, 1.0, 2.0], 1.5, 26.0, Traffic::Unclear);
        check([1.8, 1.78, 1.82], 1.5, 26.0, Traffic::Unclear);
        check([f64::NAN; 3], 1.5, 26.0, Traffic::Unclear);
    }
}
