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
//! Between the two, the ratio alone decides nothing, and the answer is `unclear`. And nt stores may gain more than the bytes: a
//! regular store waits for its line, and a bus that turns between reads and writes loses time.

use schemars::JsonSchema;
use serde::Serialize;

use super::rows::{Result as KernelResult, is_in_memory};
use super::stores::{bound, groups, usable};
use crate::kernel::{Element, Kernel, StoreKind};
use crate::machine::Machine;
use crate::stats;
use crate::units::words;

/// A regular and a non-temporal figure for the same kernel at memory level.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WriteAllocate {
    /// The kernel.
    pub kernel: String,
    /// Threads.
    pub threads: usize,
    /// Index of the row with regular stores.
    pub regular: usize,
    /// Index of the row with non-temporal stores.
    pub nt: usize,
    /// Payload bytes of an element.
    pub payload_bytes: u64,
    /// Bytes on the bus of an element with regular stores, each of which allocates.
    pub bus_bytes: u64,
    /// Payload speed, nt against regular: [ratio, low, high].
    pub gain: [f64; 3],
    /// The ratio of the bytes: `bus_bytes` / `payload_bytes`.
    pub bound: f64,
    /// Whether so many threads load at 95 % or more of the best rate; false also where one number of threads was measured.
    pub saturates: bool,
    /// What the ratio says.
    pub traffic: Traffic,
    /// Bytes of an element that the memory controllers moved with regular stores; absent where nothing was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_bytes: Option<f64>,
    /// What they say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
}

/// Ratios and rates that differ by less are the same: reads and writes do not mix for free.
const ALIKE: f64 = 0.05;
/// Share of the best rate of loads from which on a number of threads counts as saturating memory.
const SATURATED: f64 = 0.95;

words! {
    /// What the ratio of nt to regular stores says of the write-allocate.
    Traffic, "traffic" {
        /// The ratio is that of the bytes counted.
        AsCounted = "as counted",
        /// nt stores gain more than the bytes that they save.
        AboveCount = "above count",
        /// Regular stores move more than the bus could carry with write-allocates.
        Evaded = "evaded",
        /// nt stores are slower than regular ones.
        NtHeldBack = "nt held back",
        /// Neither shows.
        Unclear = "unclear",
    }
}

/// Regular against non-temporal stores in memory, for every kernel that was measured with both.
pub(super) fn write_allocate(results: &[KernelResult], machine: &Machine) -> Vec<WriteAllocate> {
    let in_memory: Vec<&KernelResult> = results.iter().filter(|r| usable(r) && is_in_memory(&r.row, machine)).collect();
    let carried = carried(&in_memory);
    let saturating = saturating_threads(&in_memory);
    let mut found = Vec::new();
    for (kernel, threads) in groups(results) {
        let (Some(row), Some(slow), Some(fast)) = (
            Kernel::named(&kernel),
            fastest(&in_memory, &kernel, threads, StoreKind::Regular),
            fastest(&in_memory, &kernel, threads, StoreKind::Nt),
        ) else {
            continue;
        };
        if slow.case.working_set != fast.case.working_set || slow.row.element != fast.row.element {
            continue;
        }
        let index = |one: &KernelResult| results.iter().position(|other| std::ptr::eq(one, other));
        let (Some(regular), Some(nt)) = (index(slow), index(fast)) else { continue };
        let traffic = row.traffic(StoreKind::Regular, slow.row.element);
        let (gain, bound) = (stats::ratio(&fast.batches(), &slow.batches()), bound(&kernel));
        let (payload, speed) = (traffic.payload() as f64, median(slow));
        let moved_bytes =
            slow.row.controllers_bps.filter(|_| speed > 0.0).map(|c| (c.read + c.written) / speed * payload);
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
            moved_bytes,
            witness: moved_bytes.and_then(|moved| witness(moved, payload, traffic.bus() as f64)),
        });
    }
    found.sort_by_key(|w| (w.threads, Kernel::place(&w.kernel)));
    found
}

/// The largest working set of a kernel and store kind, and of that the fastest width.
fn fastest<'a>(
    in_memory: &[&'a KernelResult],
    kernel: &str,
    threads: usize,
    store: StoreKind,
) -> Option<&'a KernelResult> {
    let is_ours = |r: &&KernelResult| (r.row.kernel.as_str(), r.row.threads, r.row.store) == (kernel, threads, store);
    let better = |a: &&KernelResult, b: &&KernelResult| {
        a.case.working_set.cmp(&b.case.working_set).then(median(a).total_cmp(&median(b)))
    };
    in_memory.iter().copied().filter(is_ours).max_by(better)
}

/// Median payload rate; 0 without one.
fn median(result: &KernelResult) -> f64 {
    result.row.payload_bps.map_or(0.0, |rate| rate.median)
}

/// The most that the bus was seen to carry, in bytes a second: by kernels whose traffic holds no write-allocate.
fn carried(in_memory: &[&KernelResult]) -> f64 {
    let is_sure = |r: &&&KernelResult| {
        let traffic = Kernel::named(&r.row.kernel).map(|row| row.traffic(r.row.store, Element::Double));
        traffic.is_some_and(|traffic| traffic.write_allocated == 0)
    };
    in_memory.iter().filter(is_sure).map(|r| median(r)).fold(0.0, f64::max)
}

/// The fewest threads that load nearly as fast as any number measured; absent where only one number was.
fn saturating_threads(in_memory: &[&KernelResult]) -> Option<usize> {
    let loads = || in_memory.iter().filter(|r| r.row.kernel == "load").map(|r| (r.row.threads, median(r)));
    let (best, first) = (loads().map(|load| load.1).fold(0.0, f64::max), loads().next()?.0);
    let is_several = loads().any(|load| load.0 != first);
    loads().filter(|load| is_several && load.1 >= SATURATED * best).map(|load| load.0).min()
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
    } else if low > bound * (1.0 + ALIKE) {
        Traffic::AboveCount
    } else {
        Traffic::Unclear
    }
}

words! {
    /// What bytes counted in the memory controllers say of the write-allocate: a second witness beside the ratio.
    Witness, "witness" {
        /// They are payload and write-allocates.
        Allocates = "allocates",
        /// They are the payload alone.
        Evades = "evades",
        /// They are neither.
        Neither = "neither",
    }
}

/// Others use the memory as well: programs, tables of pages.
const NEAR: f64 = 0.08;

/// Whether the controllers moved what was counted from a loop.
pub(super) fn is_moved(moved: f64, counted: f64) -> bool {
    counted > 0.0 && (moved / counted - 1.0).abs() <= NEAR
}

/// What the controllers moved against what was counted from the loop, bytes over the same time. `None` where the two ways
/// differ too little to tell them apart, as for kernels without a write-allocate.
pub fn witness(moved: f64, payload: f64, bus: f64) -> Option<Witness> {
    let tells = payload > 0.0 && bus > payload * (1.0 + 2.0 * NEAR);
    let says = match (is_moved(moved, bus), is_moved(moved, payload)) {
        (true, _) => Witness::Allocates,
        (_, true) => Witness::Evades,
        _ => Witness::Neither,
    };
    tells.then_some(says)
}

impl Witness {
    /// Whether it speaks against what the ratio said. An unclear ratio says nothing that could be denied.
    pub fn disagrees(self, traffic: Traffic) -> bool {
        match traffic {
            Traffic::AsCounted | Traffic::AboveCount => self != Witness::Allocates,
            Traffic::Evaded => self != Witness::Evades,
            Traffic::NtHeldBack | Traffic::Unclear => false,
        }
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
        check([1.8, 1.78, 1.82], 1.5, 26.0, Traffic::AboveCount);
        check([1.8, 1.4, 2.2], 1.5, 26.0, Traffic::AsCounted);
        check([f64::NAN; 3], 1.5, 26.0, Traffic::Unclear);
    }

    /// A triad of 24 bytes of payload and 32 on the bus.
    #[test]
    fn the_second_witness() {
        assert_eq!(witness(32.9, 24.0, 32.0), Some(Witness::Allocates));
        assert_eq!(witness(24.5, 24.0, 32.0), Some(Witness::Evades));
        assert_eq!(witness(28.0, 24.0, 32.0), Some(Witness::Neither));
        assert_eq!(witness(16.0, 16.0, 16.0), None, "an update has no write-allocate");
        assert!(Witness::Evades.disagrees(Traffic::AsCounted) && Witness::Allocates.disagrees(Traffic::Evaded));
        assert!(!Witness::Allocates.disagrees(Traffic::AsCounted) && !Witness::Neither.disagrees(Traffic::Unclear));
    }
}
