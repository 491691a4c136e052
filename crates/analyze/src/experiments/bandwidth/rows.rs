//! Visits to rows: all visits to a kernel over streams become one row, with its figures, flags and level.

use membound_core::in_order::InOrder;
use schemars::JsonSchema;
use serde::Serialize;

use std::collections::HashMap;

use crate::flag::Flag;
use crate::quality::{Sampled, Status, figure};
use crate::rate::{Cost, Rate};
use crate::row::{Metric, Row};
use crate::visits::{Place, Visits, first_use_s, imbalance, payload_bps};
use membound_core::case::{Case, Protocol, StreamMemory};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{Element, LoadKind, StoreKind, Variant, Width};
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::memory::policy::Policy;
use membound_core::memory::{MemoryKind, Obtained};
use membound_core::record::{ControllerSamples, Measured, Measurement};
use membound_core::stats::quantiles::{Modes, median};
use membound_core::stats::states::Better;
use membound_core::units::Bytes;

/// A kernel over streams: one case.
pub type BandwidthRow = Row<BandwidthFigures>;

/// How fast a kernel is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct BandwidthFigures {
    /// NUMA node of the pages: asked for, else the one node they were found on; absent where mixed or unknown.
    #[serde(skip)]
    pub node: Option<u32>,
    /// The level that the working set lies in, by the measured curve: `L1`, `L2`, `L3`, `memory`, or absent where it
    /// lies between two.
    #[serde(skip)]
    pub level: Option<String>,
    /// STREAM's convention: what the program reads and writes. Absent where nothing was measured.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Payload and write-allocate.
    #[serde(rename = "bus_Bps")]
    pub bus_bps: Option<Rate>,
    /// What the memory controllers counted while samples ran, whoever caused it; absent where nothing was counted.
    #[serde(rename = "controllers_Bps", skip_serializing_if = "Option::is_none")]
    pub controllers_bps: Option<ControllerRates>,
    /// N bytes copied / t, for copies.
    #[serde(rename = "copied_Bps", skip_serializing_if = "Option::is_none")]
    pub copied_bps: Option<Rate>,
    /// What first use cost beside the pass itself, where fresh memory was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_use: Option<FirstUse>,
    /// Payload bytes in a core clock cycle, by thread: median of the samples, each by the clock right after it.
    pub bytes_per_cycle: Option<f64>,
    /// Its 95 % interval: where the clock wanders, what is left without that.
    pub bytes_per_cycle_ci95: Option<[f64; 2]>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
    /// Floating-point operations a second: median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_s: Option<f64>,
    /// Slowest against fastest thread: median of max/min - 1.
    pub imbalance: Option<f64>,
    /// The two groups that the samples fall into (payload B/s), if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
    /// Where the host had the CPUs in the visits that the figures are of.
    #[serde(skip)]
    pub place: Place,
    /// Payload B/s of each sample of each visit that the figures are of.
    #[serde(skip)]
    pub batches: Vec<Vec<f64>>,
    /// Seconds of each repetition, by sample of every visit, in order of time.
    #[serde(skip)]
    pub seconds: Vec<f64>,
    /// Payload bytes of a repetition.
    #[serde(skip)]
    pub bytes: u64,
}

/// What tells kernels over streams from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BandwidthKeys {
    /// The kernel's name.
    kernel: String,
    /// What its streams are arrays of.
    element: Element,
    /// Store kind.
    store: StoreKind,
    /// Load kind.
    load: LoadKind,
    /// Access width; `width_bits` in words.
    width: Width,
    /// Bits of one access; those of an element where scalar.
    width_bits: u32,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// Streams with a memory kind of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    streams: Vec<StreamMemory>,
    /// The nodes asked for; absent: those of the threads that touch pages first.
    #[serde(default, skip_serializing_if = "Policy::is_first_touch")]
    policy: Policy,
    /// NUMA node of the pages: asked for, else the one node they were found on; absent where mixed or unknown.
    node: Option<u32>,
    /// Number of threads.
    threads: usize,
    /// Their CPUs.
    cpus: Vec<u32>,
    /// Bytes touched by one repetition.
    working_set_bytes: Bytes,
    /// Bytes that every stream starts beyond its aligned place.
    misaligned_bytes: u32,
    /// How samples were taken.
    protocol: Protocol,
    /// The level that the working set lies in, by the measured curve: `L1`, `L2`, `L3`, `memory`, or absent where it
    /// lies between two.
    level: Option<String>,
}

impl Metric for BandwidthFigures {
    const NAME: &'static str = "bandwidth";
    const UNIT: &'static str = "B/s";
    type Keys = BandwidthKeys;

    fn keys(row: &BandwidthRow) -> BandwidthKeys {
        let Variant { kernel, element, width, store, load, .. } = row.variant().clone();
        let case = &row.case;
        BandwidthKeys {
            kernel,
            element,
            store,
            load,
            width,
            width_bits: width.bits(element),
            memory: case.memory.kind,
            streams: case.streams.clone(),
            policy: case.memory.policy,
            node: row.node,
            threads: case.threads(),
            cpus: case.cpus.clone(),
            working_set_bytes: case.working_set,
            misaligned_bytes: case.misaligned_bytes,
            protocol: case.protocol,
            level: row.level.clone(),
        }
    }

    fn what(row: &BandwidthRow) -> String {
        format!("{} {} {}", row.kernel(), row.width(), row.store())
    }
}

impl BandwidthRow {
    /// The kernel and the way of touching its streams.
    pub fn variant(&self) -> &Variant {
        self.case.variant().expect("rows of bandwidth are made of kernels over streams alone")
    }

    /// The kernel's name.
    pub fn kernel(&self) -> &str {
        &self.variant().kernel
    }

    /// What its streams are arrays of.
    pub fn element(&self) -> Element {
        self.variant().element
    }

    /// How it writes.
    pub fn store(&self) -> StoreKind {
        self.variant().store
    }

    /// How it reads.
    pub fn load(&self) -> LoadKind {
        self.variant().load
    }

    /// Width of each access.
    pub fn width(&self) -> Width {
        self.variant().width
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.case.threads()
    }

    /// Payload B/s when undisturbed; 0 where nothing was measured.
    pub fn undisturbed_bps(&self) -> f64 {
        self.payload_bps.map_or(0.0, |rate| rate.value())
    }

    /// Its figure over that of another row: [ratio, low, high].
    pub(crate) fn gain_over(&self, other: &Self) -> [f64; 3] {
        self.payload_bps.zip(other.payload_bps).map_or([f64::NAN; 3], |(ours, theirs)| ours.over(theirs))
    }

    /// Its figure with the ends between which it can be taken to lie: [value, low, high].
    pub(crate) fn widened(&self) -> Option<[f64; 3]> {
        self.payload_bps.map(|rate| rate.widened())
    }

    /// Whether it writes zeros, which some processors shorten: no evidence of what other data cost.
    pub(crate) fn writes_zeros(&self) -> bool {
        self.kernel() == "init"
    }

    /// `copy`, or `copy (nt)`.
    pub(crate) fn kernel_and_store(&self) -> String {
        let is_regular = self.store() == StoreKind::Regular;
        if is_regular { self.kernel().into() } else { format!("{} ({})", self.kernel(), self.store()) }
    }

    /// Whether write-allocates are counted among its bytes.
    pub(crate) fn write_allocates(&self) -> bool {
        let traffic = Kernel::named(self.kernel()).map(|kernel| kernel.traffic(self.store(), self.element()));
        traffic.is_none_or(|traffic| traffic.write_allocated > 0)
    }

    /// Whether it stands for its kernel: all streams in one memory of this process, already in use.
    pub(crate) fn is_plain(&self) -> bool {
        self.case.streams.is_empty()
            && self.case.protocol != Protocol::FirstUse
            && !self.case.memory.kind.is_memory_type()
    }

    /// Whether that is measured pass by pass.
    pub(crate) fn is_steady(&self) -> bool {
        self.is_plain() && self.case.protocol == Protocol::Steady
    }

    /// Whether its working set lies in memory: by its level; where it has none, by STREAM's rule of four times the caches,
    /// which holds where the caches are as claimed.
    pub(crate) fn is_in_memory(&self, machine: &Machine) -> bool {
        let beyond = || {
            let caches = machine.last_level_bytes(&self.case.cpus.iter().copied().collect());
            !machine.is_virtual() && caches.is_some_and(|caches| self.case.working_set.0 >= caches.0.saturating_mul(4))
        };
        self.level.as_ref().map_or_else(beyond, |level| level == "memory")
    }

    /// The nodes of its pages, of all streams: asked for, else found. Empty where they are not known.
    pub(crate) fn nodes(&self) -> CpuSet {
        let specs = || self.case.streams.iter().map(|named| named.memory).chain([self.case.memory]);
        let found = || self.obtained.iter().flat_map(|obtained| &obtained.pages_on_node).map(|pages| pages.node);
        match specs().all(|spec| !spec.policy.is_first_touch()) {
            true => specs().flat_map(|spec| spec.policy.nodes().iter().collect::<Vec<_>>()).collect(),
            false => found().chain(self.node).collect(),
        }
    }

    /// How it stores: kind, width, and whether its streams start off their aligned places.
    pub(crate) fn store_words(&self) -> String {
        let unaligned = if self.case.misaligned_bytes > 0 { " unaligned" } else { "" };
        format!("{} {}{unaligned}", self.store(), self.width())
    }
}

/// Bytes per second that memory controllers moved: medians of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ControllerRates {
    /// Read from memory.
    pub read: f64,
    /// Written to memory.
    pub written: f64,
}

/// What comes with the first pass over fresh memory: medians of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct FirstUse {
    /// Seconds from asking for the memory to the end of the first pass.
    pub total_s: Cost,
    /// Seconds of that which mapping took.
    pub map_s: f64,
    /// Page faults during the pass, over all threads.
    pub faults: f64,
}

/// The width that stands for a kernel where one figure is asked for: that of most rows, of several the widest. It is chosen
/// by what was planned and not by what was fastest, so chance does not flatter it.
pub(crate) fn main_width(rows: &[BandwidthRow]) -> Option<Width> {
    let own = || rows.iter().filter(|row| row.is_steady());
    let count = |width: Width| own().filter(|row| row.width() == width).count();
    Width::ALL.iter().copied().filter(|width| count(*width) > 0).max_by_key(|width| (count(*width), *width))
}

/// One row a case, ordered as a reader looks for them: kernel, threads, memory, size, then the way of touching it.
pub(crate) fn rows(visits: &Visits<'_>) -> Vec<BandwidthRow> {
    let mut rows: Vec<BandwidthRow> = visits.rows(|case| row_of(case, visits));
    mark_impossible(&mut rows);
    rows.sort_by_cached_key(|row| {
        let case = row.case.clone();
        let place =
            (Kernel::place(row.kernel()), row.kernel().to_string(), row.threads(), case.memory, case.working_set);
        (place, case.protocol, row.store(), row.load(), row.element(), row.width(), case)
    });
    rows
}

/// The row of a case that is a kernel over streams. Samples around which meters were read have rows of their own.
fn row_of(visits: &[&Measurement], all: &Visits<'_>) -> Option<BandwidthRow> {
    let hz = all.hz();
    let case = visits[0].case.clone();
    let variant = case.variant().filter(|_| case.protocol != Protocol::Energy)?;
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| payload_bps(visit, hz));
    let payload = sampled.rate();
    let rate_of = |what| sampled.rate_of(payload, what);
    let measured = &sampled.measured;
    let seconds = |visit: &&Measured| {
        let of_repetition = |ticks: &u64| *ticks as f64 / hz / visit.repetitions as f64;
        visit.samples.ticks.iter().map(of_repetition).collect::<Vec<_>>()
    };
    let per_cycle = sampled.per_cycle(case.threads(), hz);
    let figures = BandwidthFigures {
        node: sampled.node(&case),
        level: None,
        payload_bps: payload,
        bus_bps: rate_of(|volume| volume.bus()),
        copied_bps: rate_of(|volume| volume.stored).filter(|_| variant.kernel == "copy"),
        first_use: first_use(&case, measured, hz),
        controllers_bps: controllers(measured, hz),
        bytes_per_cycle: per_cycle.map(|figure| figure.value()),
        bytes_per_cycle_ci95: per_cycle.map(|figure| figure.ends()),
        core_clock_hz: sampled.core_clock(hz),
        flops_per_s: rate_of(|volume| volume.flops).map(|rate| rate.value()).filter(|flops| *flops > 0.0),
        imbalance: imbalance(measured),
        modes: sampled.summary.as_ref().and_then(|summary| summary.modes),
        obtained: sampled.obtained(),
        seconds: crate::visits::measured(visits).iter().flat_map(seconds).collect(),
        bytes: crate::visits::measured(visits).first().map_or(0, |visit| visit.volume.payload()),
        place: sampled.place(&case, &all.gauge),
        batches: sampled.batches,
    };
    let mut row = Row { case, quality: sampled.quality, figures };
    let disagree = controllers_disagree(&row);
    row.quality.flag([(Flag::ControllersDisagree, disagree)]);
    Some(row)
}

/// Totals, and what of them is mapping and faults.
fn first_use(case: &Case, measured: &[&Measured], hz: f64) -> Option<FirstUse> {
    let totals: Vec<Vec<f64>> = measured.iter().map(|visit| first_use_s(visit, hz)).collect();
    let total_s = figure(&totals, &[], Better::Lower).filter(|_| case.protocol == Protocol::FirstUse)?;
    let samples = || measured.iter().map(|visit| &visit.samples);
    Some(FirstUse {
        total_s,
        map_s: median(samples().flat_map(|s| &s.setup_ticks).map(|ticks| *ticks as f64 / hz)).unwrap_or(0.0),
        faults: median(samples().flat_map(|s| &s.faults).map(|faults| f64::from(*faults)))?,
    })
}

/// What the memory controllers counted, over the time of each sample.
fn controllers(measured: &[&Measured], hz: f64) -> Option<ControllerRates> {
    let rates = |column: fn(&ControllerSamples) -> &Vec<Option<u64>>| {
        median(measured.iter().flat_map(|visit| {
            let counted = visit.samples.controllers.iter().flat_map(column);
            counted.zip(&visit.samples.ticks).filter_map(|(bytes, ticks)| Some((*bytes)? as f64 / *ticks as f64 * hz))
        }))
    };
    Some(ControllerRates { read: rates(|c| &c.read_bytes)?, written: rates(|c| &c.written_bytes)? })
}

/// Whether the controllers moved neither what the loop must move nor what it moves if its stores allocate.
fn controllers_disagree(row: &BandwidthRow) -> bool {
    let rate = |rate: Option<Rate>| rate.map_or(0.0, |rate| rate.value());
    row.controllers_bps.is_some_and(|moved| {
        let moved = moved.read + moved.written;
        ![rate(row.payload_bps), rate(row.bus_bps)].into_iter().any(|counted| is_moved(moved, counted))
    })
}

/// Others use the memory as well: programs, tables of pages.
pub(crate) const NEAR: f64 = 0.08;

/// Whether the controllers moved what was counted from a loop.
pub(crate) fn is_moved(moved: f64, counted: f64) -> bool {
    counted > 0.0 && (moved / counted - 1.0).abs() <= NEAR
}

/// A cached working set can't be slower than the same loop in memory by its own nature: figures that say so are wrong.
fn mark_impossible(rows: &mut [BandwidthRow]) {
    /// Faster than this against the cache is impossible; less can be noise.
    const MARGIN: f64 = 1.25;
    let speed = |row: &BandwidthRow| row.payload_bps.map(|rate| rate.ends());
    let alike = |row: &BandwidthRow| Case { working_set: Bytes(0), misaligned_bytes: 0, ..row.case.clone() };
    // By what is else the same: working sets, rising, each with the fastest so far.
    let mut smaller: HashMap<Case, Vec<(Bytes, f64)>> = HashMap::new();
    // A thread's few lines tell what a pass costs besides.
    for row in rows.iter().filter(|row| row.case.share() >= Bytes::kib(16)) {
        if let Some([_, fastest]) = speed(row) {
            smaller.entry(alike(row)).or_default().push((row.case.working_set, fastest));
        }
    }
    for sizes in smaller.values_mut() {
        sizes.order_by_key(|(size, _)| *size);
        let mut most = f64::MIN;
        for (_, fastest) in sizes {
            most = most.max(*fastest);
            *fastest = most;
        }
    }
    let is_impossible = |large: &BandwidthRow| {
        let sizes = smaller.get(&alike(large))?;
        let count = sizes.partition_point(|(size, _)| size.0.saturating_mul(64) <= large.case.working_set.0);
        let (_, cache) = sizes.get(count.checked_sub(1)?)?;
        Some(speed(large)?[0] > cache * MARGIN)
    };
    let is_asked = |row: &BandwidthRow| row.store().write_allocates() && row.case.protocol != Protocol::FirstUse;
    let verdict = |(at, row): (usize, &BandwidthRow)| (is_asked(row) && is_impossible(row) == Some(true)).then_some(at);
    let verdicts: Vec<usize> = rows.iter().enumerate().filter_map(verdict).collect();
    for i in verdicts {
        let reason = "faster than the same loop in a working set 64 times smaller";
        rows[i].quality.refuse(Status::Invalid, reason);
    }
}

#[cfg(test)]
impl BandwidthRow {
    /// As if its case had been measured in memory, with payload B/s [value, low, high].
    pub(crate) fn in_memory(case: Case, [value, low, high]: [f64; 3]) -> BandwidthRow {
        let payload_bps = Some(Rate::plain(value, value, [low, high]));
        let figures = BandwidthFigures { level: Some("memory".into()), payload_bps, ..BandwidthFigures::default() };
        Row::made_up(case, Status::Measured, figures)
    }
}
