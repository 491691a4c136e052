//! Traffic: what stores move beside the payload. Regular stores read each line before they write it (write-allocate), nt
//! stores do not, so in memory the two differ by a ratio that follows from counting streams: 2 for a store, 3/2 for a
//! copy, 4/3 for a triad, 1 for a kernel that changes its stream in place. Where a machine shows another ratio, that has
//! one of two reasons, and they are told apart here:
//!
//! - The processor *evades* the write-allocate: it sees that whole lines are written and claims them unread. Intel from
//!   Ice Lake servers on does that on a busy bus (SpecI2M), ThunderX2 and other Arm designs always. Source: G. Hager's
//!   blog, "SpecI2M" (blogs.fau.de/hager), after Intel's slides at Hot Chips 2020. Then regular stores move more payload
//!   than the bus could carry if each line were read first: that is the proof asked for. What the bus can carry, loads tell where so many
//!   threads load that memory limits them; without those nothing is proved, since nt stores themselves may be what is slow.
//! - Something *holds nt stores back*: one thread has few buffers for them. Then nt stores are slower than regular ones
//!   although they move no more bytes than any way of storing must.
//!
//! Between the two, the ratio alone decides nothing, and the answer is `unclear`. And nt stores may gain more than the bytes: a
//! regular store waits for its line, and a bus that turns between reads and writes loses time.

use membound_core::in_order::InOrder;
use schemars::JsonSchema;
use serde::Serialize;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::experiments::bandwidth::rows::{BandwidthRow, NEAR, is_moved, main_width};
use crate::experiments::bandwidth::stores::{bound, fraction, usable};
use crate::rate::Rate;
use crate::section::{Cell, Room, Section, Table};
use crate::wording::{about_times, gbps, is_known, ratio, threads};
use membound_core::case::{Case, Work};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Variant};
use membound_core::machine::Machine;
use membound_core::memory::MemorySpec;
use membound_core::stats::quantiles::median;
use membound_core::stats::{NORMAL_DEVIATION, student};
use membound_core::units::{significant, words};

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
    /// Whether so many threads load at 95 % or more of the best rate, where threads beyond the fewest added less than half of their
    /// part: more threads that load as many times as fast do not tell what memory carries.
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
/// Share of the best rate from which on a number of threads, or of a domain's cores, counts as saturating memory.
pub(crate) const SATURATED: f64 = 0.95;

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
pub(crate) fn write_allocate(rows: &[BandwidthRow], machine: &Machine) -> Vec<WriteAllocate> {
    let in_memory: Vec<&BandwidthRow> = rows.iter().filter(|r| usable(r) && r.is_in_memory(machine)).collect();
    let saturating = saturating_threads(&in_memory);
    let mut found = Vec::new();
    let main = main_width(rows);
    let mut own: BTreeMap<(&str, usize), Vec<Pair<'_>>> = BTreeMap::new();
    for pair in pairs(&in_memory) {
        own.entry((pair.0.kernel(), pair.0.threads())).or_default().push(pair);
    }
    for ((kernel, threads), own) in own {
        let rank = |(slow, _): &Pair<'_>| (Some(slow.width()) == main, slow.width(), slow.case.working_set);
        let (Some(row), Some((slow, fast))) = (Kernel::named(kernel), own.into_iter().max_by_key(rank)) else {
            continue;
        };
        let index = |one: &BandwidthRow| rows.iter().position(|other| std::ptr::eq(one, other));
        let (Some(regular), Some(nt)) = (index(slow), index(fast)) else { continue };
        let traffic = row.traffic(StoreKind::Regular, slow.element());
        let (gain, bound) = (fast.gain_over(slow), bound(kernel));
        let (payload, speed) = (traffic.payload() as f64, slow.undisturbed_bps());
        let moved_bytes = slow.controllers_bps.filter(|_| speed > 0.0).map(|c| (c.read + c.written) / speed * payload);
        let with_allocates = slow.bus_bps.map_or(0.0, |rate| rate.value());
        found.push(WriteAllocate {
            kernel: kernel.into(),
            threads,
            regular,
            nt,
            payload_bytes: traffic.payload(),
            bus_bytes: traffic.bus(),
            gain,
            bound,
            saturates: saturating.is_some_and(|least| threads >= least),
            traffic: judge(gain, bound, with_allocates, carried(&in_memory, slow.case.memory)),
            moved_bytes,
            witness: moved_bytes.and_then(|moved| witness(moved, payload, traffic.bus() as f64)),
        });
    }
    found.order_by_key(|w| (w.threads, Kernel::place(&w.kernel)));
    found
}

/// A row with regular stores, and its twin.
type Pair<'a> = (&'a BandwidthRow, &'a BandwidthRow);

/// Rows with regular stores, each with its twin that differs by nt stores alone: not by where the host had the CPUs.
fn pairs<'a>(in_memory: &[&'a BandwidthRow]) -> impl Iterator<Item = Pair<'a>> {
    let rows: HashMap<&Case, &BandwidthRow> = in_memory.iter().map(|row| (&row.case, *row)).collect();
    let twin = |row: &BandwidthRow| {
        let with_nt = Variant { store: StoreKind::Nt, ..row.variant().clone() };
        let case = Case { work: Work::Kernel(with_nt), ..row.case.clone() };
        rows.get(&case).copied().filter(|twin| twin.place.meets(row.place))
    };
    let regular = in_memory.iter().filter(|row| row.store() == StoreKind::Regular);
    regular.filter_map(|row| Some((*row, twin(row)?))).collect::<Vec<_>>().into_iter()
}

/// What nt stores gain over all kernels together, as a share (in logarithms) of what the bytes that they save allow: 1 where
/// each regular store reads its line first, 0 where none does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Pooled {
    /// The share: [value, low, high] with 95 %.
    pub share: [f64; 3],
    /// Pairs of rows that differ by the store kind alone.
    pub pairs: usize,
    /// Kernels among them.
    pub kernels: usize,
}

/// Kernels that evidence over kernels needs, and pairs.
const LEAST_POOLED: [usize; 2] = [3, 4];

/// The evidence of all kernels with so many threads. Writing zeros is left out: some processors shorten it.
pub(crate) fn pooled(rows: &[BandwidthRow], machine: &Machine, threads: usize) -> Option<Pooled> {
    let in_memory: Vec<&BandwidthRow> = rows.iter().filter(|r| usable(r) && r.is_in_memory(machine)).collect();
    let own = pairs(&in_memory).filter(|(slow, _)| slow.threads() == threads && !slow.writes_zeros());
    let mut points = Vec::new();
    let mut kernels = BTreeSet::new();
    for (slow, fast) in own {
        let bound = bound(slow.kernel());
        if let (Some(slow_bps), Some(fast_bps), true) = (slow.payload_bps, fast.payload_bps, bound > 1.0) {
            points.push((bound.ln(), (fast_bps.value() / slow_bps.value()).ln()));
            kernels.insert(slow.kernel());
        }
    }
    let is_enough = kernels.len() >= LEAST_POOLED[0] && points.len() >= LEAST_POOLED[1];
    let share = is_enough.then(|| slope(&points))?;
    Some(Pooled { share, pairs: points.len(), kernels: kernels.len() })
}

/// The slope of a line through the origin with its 95 % interval. Points far off count less (Huber's weights): a pair of
/// which one side was disturbed all the time.
pub(crate) fn slope(points: &[(f64, f64)]) -> [f64; 3] {
    const HUBER: f64 = 1.345;
    const TURNS: usize = 10;
    let mut weights = vec![1.0; points.len()];
    let mut slope = 0.0;
    let squares = |weights: &[f64]| points.iter().zip(weights).map(|((x, _), w)| w * x * x).sum::<f64>();
    for _ in 0..TURNS {
        slope = points.iter().zip(&weights).map(|((x, y), w)| w * x * y).sum::<f64>() / squares(&weights);
        let off = |(x, y): &(f64, f64)| (y - slope * x).abs();
        let scale = NORMAL_DEVIATION * median(points.iter().map(off)).unwrap_or(0.0);
        weights = points.iter().map(|point| (HUBER * scale / off(point).max(1e-12)).clamp(1e-3, 1.0)).collect();
    }
    let left: f64 = points.iter().zip(&weights).map(|((x, y), w)| w * (y - slope * x).powi(2)).sum();
    let free = points.len() as f64 - 1.0;
    let error = student::quantile(0.05, free) * (left / free / squares(&weights)).sqrt();
    [slope, slope - error, slope + error]
}

/// The most that the bus of a memory was seen to carry, in bytes a second: by kernels whose traffic holds no write-allocate. Nothing where
/// loads do not show that it was the memory that limited them: a core has buffers for so many lines at once, whatever the bus could carry.
fn carried(in_memory: &[&BandwidthRow], memory: MemorySpec) -> Option<f64> {
    let is_ours = |row: &&&BandwidthRow| row.case.memory == memory && !row.write_allocates() && !row.writes_zeros();
    let ours = || in_memory.iter().filter(is_ours);
    let loads: Vec<(usize, f64)> =
        ours().filter(|row| row.kernel() == "load").map(|row| (row.threads(), row.undisturbed_bps())).collect();
    let most = ours().map(|row| row.undisturbed_bps()).fold(0.0, f64::max);
    is_saturated(&loads).then_some(most)
}

/// Whether loads by numbers of threads saturate memory: those beyond the fewest add, at best, less than half of their part.
fn is_saturated(loads: &[(usize, f64)]) -> bool {
    const PART: f64 = 0.5;
    let counts = || loads.iter().map(|load| load.0);
    let (Some(fewest), Some(most)) = (counts().min(), counts().max()) else { return false };
    let best = |threads: usize| loads.iter().filter(|load| load.0 <= threads).map(|load| load.1).fold(0.0, f64::max);
    most > fewest && part_added(most as f64 / fewest as f64, best(most) / best(fewest)) < PART
}

/// With so many times the threads so many times the rate: the share of its part that each one more added.
pub(crate) fn part_added(threads: f64, times: f64) -> f64 {
    (times - 1.0) / (threads - 1.0)
}

/// The fewest threads that load nearly as fast as any number measured; absent where loads do not show that memory is saturated.
fn saturating_threads(in_memory: &[&BandwidthRow]) -> Option<usize> {
    let loads = in_memory.iter().filter(|r| r.kernel() == "load").map(|r| (r.threads(), r.undisturbed_bps()));
    let loads: Vec<(usize, f64)> = loads.collect();
    let best = loads.iter().map(|load| load.1).fold(0.0, f64::max);
    let fast = loads.iter().filter(|load| load.1 >= SATURATED * best).map(|load| load.0);
    fast.min().filter(|_| is_saturated(&loads))
}

/// What the ratio [value, low, high] says, `bound` being that of the bytes, `with_allocates` the bus rate of regular stores
/// if each allocates, `carried` the most that the bus was seen to carry, where that is known.
fn judge(gain: [f64; 3], bound: f64, with_allocates: f64, carried: Option<f64>) -> Traffic {
    let [_, low, high] = gain;
    if !gain.iter().all(|value| value.is_finite()) {
        return Traffic::Unclear;
    }
    let meets = high >= bound * (1.0 - ALIKE) && low <= bound * (1.0 + ALIKE);
    // An interval that also holds the ratio without any write-allocate decides nothing; nor, without one, does one that reaches far
    // to either side.
    let decides =
        if bound > 1.0 { low > (1.0 + bound) / 2.0 } else { low > 1.0 - 2.0 * ALIKE && high < 1.0 + 2.0 * ALIKE };
    let is_beyond = carried.is_some_and(|carried| with_allocates > carried * (1.0 + ALIKE));
    if meets && decides {
        Traffic::AsCounted
    } else if bound > 1.0 && high < bound * (1.0 - ALIKE) && is_beyond {
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

impl Traffic {
    /// What that means.
    fn means(self) -> &'static str {
        match self {
            Traffic::AsCounted => "each regular store reads its line first, nt stores do not",
            Traffic::AboveCount => {
                "nt stores gain more than the bytes saved: waiting for lines, or turning the bus, costs on top"
            }
            Traffic::Evaded => "regular stores move more than the bus could carry if they read their lines first",
            Traffic::NtHeldBack => "nt stores are slower than regular ones: something else than traffic limits them",
            Traffic::Unclear => "its interval also holds what would say otherwise, or no count of bytes explains it",
        }
    }
}

impl WriteAllocate {
    /// What the memory controllers say of it, where they were read.
    fn counted_by_controllers(&self) -> Option<String> {
        let (moved, witness) = (self.moved_bytes?, self.witness?);
        let against = if witness.disagrees(self.traffic) { ", against what the ratio says" } else { "" };
        Some(format!(
            "{}, {}: the memory controllers moved {} B per element with regular stores: {witness}{against}",
            self.kernel,
            threads(self.threads),
            significant(moved)
        ))
    }
}

const ABOUT: &str = "A regular store first reads the line it writes, which nt stores save. Bytes of an element: payload, and on the \
    bus if each regular store reads its line first. GB/s, undisturbed; their ratio, and that of the bytes counted.";
/// Where a number of threads has a star.
const STARRED: &str = " With * threads saturate memory: only there is the ratio one of traffic.";
/// Where none has.
const UNSTARRED: &str = " No number of threads was seen to saturate memory: the ratio may be one of what a core can.";

/// What nt stores gain by it with the most threads.
pub(crate) fn sentences(found: &[WriteAllocate], rows: &[BandwidthRow]) -> Vec<String> {
    let most = rows.iter().map(BandwidthRow::threads).max().unwrap_or(1);
    let of = |kernel: &&str| found.iter().find(|w| w.kernel == **kernel && w.threads == most);
    let part =
        |w: &WriteAllocate| format!("{} {} ({} by the bytes)", w.kernel, about_times(w.gain), significant(w.bound));
    let (costly, others): (Vec<&WriteAllocate>, Vec<_>) =
        ["store", "copy", "triad"].iter().filter_map(of).partition(|w| w.gain[2] < 1.0);
    // What rests on one visit, or may be almost anything, is no sure gain.
    let (sure, unsure): (Vec<&WriteAllocate>, Vec<_>) = others.into_iter().partition(|w| is_known(w.gain));
    let answer = |gains: &str, parts: Vec<&WriteAllocate>| {
        let text = parts.into_iter().map(part).collect::<Vec<_>>().join(", ");
        let count = threads(most);
        let told = format!("Avoiding the write-allocate with nt stores {gains} in memory ({count}): {text}.");
        (!text.is_empty()).then_some(told)
    };
    let all = [answer("gains", sure), answer("may gain", unsure), answer("gains nothing", costly)];
    all.into_iter().flatten().collect()
}

/// A line a kernel and number of threads; `rows` are those it was found in.
pub(crate) fn sections(found: &[WriteAllocate], rows: &[BandwidthRow]) -> Vec<Section> {
    if found.is_empty() {
        return Vec::new();
    }
    let rate = |index: usize, rate: fn(&BandwidthRow) -> Option<Rate>| -> Cell {
        rows.get(index).and_then(rate).map(|rate| gbps(rate.value())).into()
    };
    let count = |w: &WriteAllocate| format!("{}{}", w.threads, if w.saturates { "*" } else { "" });
    let table = Table::default()
        .left("kernel", found.iter().map(|w| w.kernel.clone()))
        .right("threads", found.iter().map(count))
        .right("payload", found.iter().map(|w| w.payload_bytes.to_string()))
        .right("bus", found.iter().map(|w| w.bus_bytes.to_string()))
        .right("regular", found.iter().map(|w| rate(w.regular, |row| row.payload_bps)))
        .right("regular, bus", found.iter().map(|w| rate(w.regular, |row| row.bus_bps)))
        .in_room(Room::Wide)
        .right("nt", found.iter().map(|w| rate(w.nt, |row| row.payload_bps)))
        .right("nt : regular", found.iter().map(|w| ratio(w.gain)))
        .right("counted", found.iter().map(|w| fraction(w.bound)))
        .left("so", found.iter().map(|w| w.traffic.to_string()));
    let occurs = |traffic: &&Traffic| found.iter().any(|w| w.traffic == **traffic);
    let meant = Traffic::ALL.iter().filter(occurs).map(|traffic| format!("{traffic}: {}", traffic.means()));
    vec![Section {
        id: "write-allocate",
        title: "Write-allocate, at memory level".into(),
        about: ABOUT.to_string() + if found.iter().any(|w| w.saturates) { STARRED } else { UNSTARRED },
        sentences: sentences(found, rows),
        tables: vec![table],
        notes: meant.chain(found.iter().filter_map(WriteAllocate::counted_by_controllers)).collect(),
        ..Section::default()
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::steady;
    use membound_core::kernel::Width;
    use membound_core::memory::MemoryKind;
    use membound_core::units::Bytes;

    /// A bus that carries 40 GB/s, and a copy: 2 payload bytes, 3 on the bus.
    #[test]
    fn the_reason_for_a_ratio() {
        let check = |gain: [f64; 3], bound, regular_gbps: f64, expect| {
            let judged = judge(gain, bound, regular_gbps * bound, Some(40.0));
            assert_eq!(judged, expect, "{gain:?} of {bound} at {regular_gbps}");
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
        // A kernel in place: the bytes say 1, which an interval may miss by little.
        check([0.78, 0.756, 0.968], 1.0, 12.0, Traffic::Unclear);
        check([0.98, 0.92, 1.04], 1.0, 12.0, Traffic::AsCounted);
    }

    /// Without loads, or by one thread that has few buffers, nothing tells what the bus could carry: 9 GB/s of a copy prove nothing, be they
    /// 13.5 on the bus, and nt stores at 7 are what is slow.
    #[test]
    fn nothing_is_evaded_without_a_saturated_memory() {
        let row = |kernel: &str, store, threads: u32, gbps: f64| {
            let cpus = (0..threads).collect();
            let case = steady(kernel, Width::W512, store, MemorySpec::of(MemoryKind::Thp), cpus, Bytes::gib(1));
            BandwidthRow::in_memory(case, [gbps, 0.99 * gbps, 1.01 * gbps].map(|gbps| gbps * 1e9))
        };
        let (regular, nt) = (row("copy", StoreKind::Regular, 1, 9.0), row("copy", StoreKind::Nt, 1, 7.0));
        let judged = |loads: &[(u32, f64)]| {
            let loads: Vec<BandwidthRow> =
                loads.iter().map(|(threads, gbps)| row("load", StoreKind::Regular, *threads, *gbps)).collect();
            let all: Vec<&BandwidthRow> = loads.iter().chain([&regular, &nt]).collect();
            judge(nt.gain_over(&regular), 1.5, 13.5e9, carried(&all, regular.case.memory))
        };
        assert_eq!(judged(&[]), Traffic::NtHeldBack, "`stores` loads nothing");
        assert_eq!(judged(&[(1, 12.0)]), Traffic::NtHeldBack);
        assert_eq!(judged(&[(1, 12.0), (2, 23.0)]), Traffic::NtHeldBack, "two threads of many");
        assert_eq!(judged(&[(1, 12.0), (16, 100.0)]), Traffic::NtHeldBack, "the bus carries 100");
        assert_eq!(judged(&[(1, 12.0), (4, 12.5)]), Traffic::Evaded, "one thread saturates memory");
    }

    /// 36 cores of Ice Lake, 32 of ThunderX2: loads by all are far from as many times one thread's. On HBM they are not.
    #[test]
    fn loads_show_that_memory_is_saturated() {
        assert!(is_saturated(&[(1, 12e9), (36, 180e9)]) && is_saturated(&[(1, 10e9), (16, 90e9), (32, 110e9)]));
        assert!(is_saturated(&[(1, 36e9), (2, 38e9)]));
        assert!(!is_saturated(&[(1, 14e9), (56, 700e9)]) && !is_saturated(&[(8, 90e9)]) && !is_saturated(&[]));
    }

    /// On an Emerald Rapids guest: of two CPUs the second adds 95 % of its part, so that two have no star.
    #[test]
    fn threads_that_add_their_part_do_not_saturate() {
        let load = |threads: u32, gbps: f64| {
            let cpus = (0..threads).collect();
            let memory = MemorySpec::of(MemoryKind::Thp);
            let case = steady("load", Width::W512, StoreKind::Regular, memory, cpus, Bytes::gib(1));
            BandwidthRow::in_memory(case, [gbps, 0.99 * gbps, 1.01 * gbps].map(|gbps| gbps * 1e9))
        };
        let fewest = |rows: &[BandwidthRow]| saturating_threads(&rows.iter().collect::<Vec<_>>());
        assert_eq!(fewest(&[load(1, 14.3), load(2, 28.0)]), None);
        assert_eq!(fewest(&[load(1, 14.3), load(2, 18.0), load(4, 18.2)]), Some(2));
        assert_eq!(fewest(&[load(1, 14.3)]), None);
        assert_eq!(fewest(&[]), None);
    }

    /// One visit of each side, and an interval that says little: neither is told as a sure gain.
    #[test]
    fn what_is_not_known_may_be_a_gain() {
        let of = |kernel: &str, gain| WriteAllocate {
            kernel: kernel.into(),
            threads: 1,
            regular: 0,
            nt: 0,
            payload_bytes: 16,
            bus_bytes: 24,
            gain,
            bound: 1.5,
            saturates: true,
            traffic: Traffic::Unclear,
            moved_bytes: None,
            witness: None,
        };
        let found = [of("store", [3.9, 3.66, 4.16]), of("copy", [1.92; 3]), of("triad", [2.0, 1.1, 13.0])];
        assert_eq!(
            sentences(&found, &[]),
            [
                "Avoiding the write-allocate with nt stores gains in memory (1 thread): store 3.90 x [3.66, 4.16] (1.50 by the bytes).",
                "Avoiding the write-allocate with nt stores may gain in memory (1 thread): copy about 1.92 x (no interval) (1.50 by the \
                 bytes), triad between 1.10 x and 13.0 x (1.50 by the bytes)."
            ]
        );
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
