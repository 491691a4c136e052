//! Records to answers: what a view shows is a [`Report`], worked out here from records alone.

pub mod addrmap;
pub mod advisor;
pub mod check;
pub mod compare;
pub mod energy;
mod findings;
pub mod fleet;
mod flops;
mod handover;
mod hierarchy;
mod kinds;
pub mod ladder;
mod latency;
pub mod levels;
pub mod limits;
mod loaded;
mod nodes;
mod numa;
mod offsets;
pub mod page_cache;
mod pages;
pub mod pingpong;
mod quality;
pub mod roofline;
pub mod rounding;
mod rows;
mod stores;
pub mod streams;
mod threads;
pub mod tiers;
mod traffic;
pub mod verdict;
pub mod warnings;
mod weights;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::nodes::MeasuredNode;
pub use self::numa::{Limit, Numa, NumaInitiator, NumaRow, Saturation, SideCache};
pub use self::quality::{Quality, Rated, Status};
pub use self::traffic::{Traffic, Witness, witness};
pub use self::verdict::Verdict;

use self::addrmap::Remainder;
use self::energy::EnergyRow;
use self::limits::Limits;
use self::page_cache::{PageCacheReport, PageCacheRow};
use self::pingpong::{Messages, PathModel, PathRow, PingPongRow};
use self::roofline::Roofline;
use self::rounding::{Rounding, RoundingRow};
use self::streams::{Congestion, StreamsRow};
pub use self::weights::{Tried, Weighting};
use crate::kernel::chase::Order;
use crate::kernel::mix::Mix;
use crate::kernel::scan::Scan;
use crate::kernel::{Element, LoadKind, StoreKind, Width};
use crate::machine::{Balance, CoreKind, Machine, Relation, Sheet};
use crate::memory::{MemoryKind, MemorySpec, Obtained, Policy};
use crate::plan::{Home, Load, PageWork, Protocol, StreamMemory};
use crate::record::{Clock, End, Environment, Record};
use crate::stats::{Modes, Summary};
use crate::units::Bytes;

/// Everything a view can show of one record.
#[derive(Debug, Clone)]
pub struct Report {
    /// The host's name.
    pub host: String,
    /// The tool that measured.
    pub tool: String,
    /// Start, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// Seed of the order of visits.
    pub seed: u64,
    /// The clock.
    pub clock: Clock,
    /// The machine.
    pub machine: Machine,
    /// Its state before the run.
    pub before: Environment,
    /// How the run ended; absent where it was killed.
    pub end: Option<End>,
    /// One row a case, by kernel, threads, memory, size, and way of touching it.
    pub rows: Vec<Row>,
    /// What pages cost: one row a case, by work, memory and threads.
    pub pages: Vec<PageRow>,
    /// What offsets cost: one row for each access and place.
    pub offsets: Vec<OffsetRow>,
    /// What passing a line between cores costs: one row a pair and home.
    pub handovers: Vec<HandoverRow>,
    /// The same by how near cores are, nearest first.
    pub handover_groups: Vec<HandoverGroup>,
    /// Latency of memory under load: one row a load.
    pub loaded: Vec<LoadedRow>,
    /// The same as a curve for each mix.
    pub load_curves: Vec<LoadCurve>,
    /// Where lines live: one row a memory that was asked about.
    pub addrmap: Vec<AddrmapRow>,
    /// What work costs in energy: one row a case and meter.
    pub energy: Vec<EnergyRow>,
    /// One sum in many ways, if that was asked for.
    pub rounding: Rounding,
    /// Many streams at once, by their offsets.
    pub congestion: Congestion,
    /// Messages between processes, and the models of their paths.
    pub messages: Messages,
    /// What chases tell.
    pub latency: Latency,
    /// Memory from everywhere, if that was measured.
    pub numa: Option<Numa>,
    /// What page cache does to a program beside it.
    pub page_cache: PageCacheReport,
    /// Memory kinds side by side, if their first use and steady state were measured.
    pub kinds: Option<Kinds>,
    /// What cores compute in registers: one row a kind of arithmetic and thread count.
    pub flops: Vec<FlopsRow>,
    /// Kernels against what bounds them; empty where nothing was computed.
    pub roofline: Roofline,
    /// What the machine can do at most, and how that is known.
    pub limits: Limits,
    /// Levels of the memory system as the curve shows them, fastest first.
    pub levels: Vec<Level>,
    /// Where non-temporal stores overtake regular ones.
    pub crossovers: Vec<Crossover>,
    /// Bandwidth over threads.
    pub scaling: Vec<Scaling>,
    /// What the write-allocate costs.
    pub write_allocate: Vec<WriteAllocate>,
    /// Pages on two nodes: which ratio is best.
    pub weightings: Vec<Weighting>,
    /// The STREAM table, if its kernels were measured.
    pub stream: Option<StreamTable>,
    /// The answer, most important first: whole sentences with their numbers.
    pub findings: Vec<String>,
    /// What disturbed or limits the figures.
    pub warnings: Vec<Warning>,
    /// Why memory-bound code is not faster here.
    pub verdict: Verdict,
}

/// Works a report out of a record.
pub fn report(record: &Record) -> Report {
    report_against(record, None)
}

/// The same, with the limits of a sheet that the user names instead of the machine's own.
pub fn report_against(record: &Record, sheet: Option<&Sheet>) -> Report {
    let header = &record.header;
    let (mut results, on_nodes) = numa::part(rows::merge(record), record);
    let levels = hierarchy::name_levels(&mut results, &header.machine);
    let known = limits::limits(&header.machine, sheet, &[]);
    limits::mark_impossible(&mut results, &known, &header.machine);
    let levels = rows::best_of_levels(levels, &results);
    let mut report = Report {
        host: header.host.clone(),
        tool: header.tool.clone(),
        started_unix_s: header.started_unix_s,
        seed: header.seed,
        clock: header.clock.clone(),
        machine: header.machine.clone(),
        before: header.before.clone(),
        kinds: kinds::compare(&results),
        pages: pages::rows(record),
        offsets: offsets::rows(record),
        latency: latency::latency(record),
        page_cache: page_cache::page_cache(record),
        handovers: handover::rows(record),
        handover_groups: Vec::new(),
        loaded: loaded::rows(record),
        load_curves: Vec::new(),
        addrmap: addrmap::rows(record),
        energy: energy::rows(record),
        rounding: rounding::rounding(record),
        congestion: streams::congestion(record),
        messages: pingpong::messages(record),
        end: record.end.clone(),
        levels,
        crossovers: stores::crossovers(&results),
        scaling: threads::scaling(&results),
        write_allocate: traffic::write_allocate(&results, &header.machine),
        weightings: weights::weightings(&results),
        stream: threads::stream_table(&results, record),
        findings: Vec::new(),
        warnings: Vec::new(),
        verdict: Verdict::default(),
        numa: numa::numa(record, on_nodes),
        limits: Limits::default(),
        flops: flops::rows(record),
        roofline: Roofline::default(),
        rows: results.into_iter().map(|result| result.row).collect(),
    };
    report.limits = limits::limits(&report.machine, sheet, &report.rows);
    report.roofline = roofline::roofline(&report.flops, &report.rows, &report.limits, &report.machine);
    report.handover_groups = handover::groups(&report.handovers);
    report.load_curves = loaded::curves(&report.loaded);
    report.findings = findings::sentences(&report);
    report.warnings = findings::warnings(&report, record);
    report.verdict = verdict::verdict(&report);
    report
}

/// A rate with its spread; `best` is the greatest sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Greatest sample.
    pub best: f64,
    /// Median.
    pub median: f64,
    /// 95 % interval of the median: [low, high].
    pub ci95: [f64; 2],
}

impl Rate {
    /// So many times that.
    fn times(self, factor: f64) -> Rate {
        let [low, high] = self.ci95;
        Rate { best: self.best * factor, median: self.median * factor, ci95: [low * factor, high * factor] }
    }
}

impl From<&Summary> for Rate {
    fn from(summary: &Summary) -> Rate {
        Rate { best: summary.greatest, median: summary.median, ci95: summary.ci95 }
    }
}

/// A result: one tidy row, as `--format json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// `bandwidth`.
    pub metric: String,
    /// The kernel's name.
    pub kernel: String,
    /// What its streams are arrays of.
    pub element: Element,
    /// Store kind.
    pub store: StoreKind,
    /// Load kind.
    pub load: LoadKind,
    /// Access width; `width_bits` in words.
    pub width: Width,
    /// Bits of one access; those of an element where scalar.
    pub width_bits: u32,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// Streams with a memory kind of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamMemory>,
    /// The nodes asked for; absent: those of the threads that touch pages first.
    #[serde(default, skip_serializing_if = "Policy::is_first_touch")]
    pub policy: Policy,
    /// NUMA node of the pages: asked for, else the one node they were found on; absent where mixed or unknown.
    pub node: Option<u32>,
    /// Number of threads.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// Bytes touched by one repetition.
    pub working_set_bytes: Bytes,
    /// Bytes that every stream starts beyond its aligned place.
    pub misaligned_bytes: u32,
    /// How samples were taken.
    pub protocol: Protocol,
    /// The level that the working set lies in, by the measured curve: `L1`, `L2`, `L3`, `memory`, or absent where it
    /// lies between two.
    pub level: Option<String>,
    /// `B/s`.
    pub unit: String,
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
    /// Payload bytes in a core clock cycle, by thread: median of the samples.
    pub bytes_per_cycle: Option<f64>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
    /// Floating-point operations a second: median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_s: Option<f64>,
    /// Slowest against fastest thread: median of max/min - 1.
    pub imbalance: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// The two groups that the samples fall into (payload B/s), if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
    /// Payload B/s of each sample, in order of time. Not part of the JSON row.
    #[serde(skip)]
    pub sample_bps: Vec<f64>,
}

impl Row {
    /// The memory asked for.
    pub fn asked(&self) -> MemorySpec {
        MemorySpec { kind: self.memory, policy: self.policy }
    }
}

/// Bytes a second that memory controllers moved: medians of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllerRates {
    /// Read from memory.
    pub read: f64,
    /// Written to memory.
    pub written: f64,
}

/// What comes with the first pass over fresh memory: medians of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FirstUse {
    /// Seconds from asking for the memory to the end of the first pass.
    pub total_s: Cost,
    /// Seconds of that which mapping took.
    pub map_s: f64,
    /// Page faults during the pass, over all threads.
    pub faults: f64,
}

/// A cost in the row's unit, with its spread; `best` is the least sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Least sample.
    pub best: f64,
    /// Median.
    pub median: f64,
    /// 95 % interval of the median: [low, high].
    pub ci95: [f64; 2],
}

impl Cost {
    /// The rates that costs are.
    fn as_rate(self, rate: impl Fn(f64) -> f64) -> Rate {
        let [low, high] = self.ci95;
        Rate { best: rate(self.best), median: rate(self.median), ci95: [rate(high), rate(low)] }
    }
}

impl From<&Summary> for Cost {
    fn from(summary: &Summary) -> Cost {
        Cost { best: summary.least, median: summary.median, ci95: summary.ci95 }
    }
}

/// What a page costs: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageRow {
    /// `page`.
    pub metric: String,
    /// What was done to the pages.
    pub work: PageWork,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// NUMA node asked for.
    pub node: Option<u32>,
    /// Number of threads, each on a mapping of its own.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// Bytes of all mappings together.
    pub working_set_bytes: Bytes,
    /// `ns`.
    pub unit: String,
    /// Bytes of the page that the cost is for: the kind's own, or for `thp` that which was obtained.
    pub page_bytes: Bytes,
    /// Nanoseconds for each page, by thread. Absent where nothing was measured.
    pub page_ns: Option<Cost>,
    /// The same as bytes a second over all threads: where pages are made, the rate of zeroing.
    #[serde(rename = "Bps")]
    pub bps: Option<Rate>,
    /// Page faults for each page.
    pub faults_per_page: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What an offset costs: one tidy row for all offsets of a scan at which an access lies alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OffsetRow {
    /// `offset`.
    pub metric: String,
    /// What was repeated.
    pub scan: Scan,
    /// How the accesses lie. Loads and stores alone: `inside a line`, and of these `aligned`, `crosses 16 B` (and not 32)
    /// and `crosses 32 B`; `crosses a line`, `crosses a page`. A load beside a store: `aliases`, `apart`. Forwarding: `same
    /// place`, `inside the store`, `overlaps partly`, `apart`. Where nothing was measured: `any`.
    pub place: String,
    /// First and last offset of that kind, in bytes.
    pub offsets: [i64; 2],
    /// How many offsets of that kind there are.
    pub count: usize,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// CPU.
    pub cpus: Vec<u32>,
    /// `cycles`.
    pub unit: String,
    /// Core clock cycles for each access (with a pair of accesses: for each pair). The median is over the offsets of that
    /// kind, each with its median over all sweeps. The interval is that of this median, widened to hold the median of
    /// each visit alone: it tells of differences between offsets and between visits. Absent where nothing was measured.
    pub cycles: Option<Cost>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Median cycles at each offset of the whole scan, for charts: on its first row only. Not part of the JSON row.
    #[serde(skip)]
    pub curve: Vec<(i64, f64)>,
}

/// What passing a line between two cores costs: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HandoverRow {
    /// `c2c`.
    pub metric: String,
    /// The CPU that leads and is timed.
    pub from: u32,
    /// The CPU that answers; absent where there was no second one.
    pub to: Option<u32>,
    /// How near they are.
    pub relation: Relation,
    /// Their kinds of core, on a machine with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<[CoreKind; 2]>,
    /// Which of the two touched the line's page first.
    pub home: Home,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// NUMA node of the page: asked for, else found; absent where unknown.
    pub node: Option<u32>,
    /// `ns`.
    pub unit: String,
    /// Nanoseconds of one hand-over: half a round trip. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The median in core clock cycles of the first CPU.
    pub latency_cycles: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// Hand-overs between pairs that are equally near.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HandoverGroup {
    /// How near.
    pub relation: Relation,
    /// Their kinds of core, stronger first, on a machine with several.
    pub kinds: Option<[CoreKind; 2]>,
    /// Rows: both directions and homes of all pairs.
    pub rows: usize,
    /// Least median, in nanoseconds.
    pub least_ns: f64,
    /// Median of the medians.
    pub median_ns: f64,
    /// Greatest median.
    pub greatest_ns: f64,
    /// Median of the medians in core clock cycles.
    pub median_cycles: Option<f64>,
}

/// Latency of memory beside a load: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedRow {
    /// `loaded`.
    pub metric: String,
    /// What the other threads did.
    pub load: Load,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// NUMA node asked for.
    pub node: Option<u32>,
    /// Number of threads; the first chases, the others load.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// Bytes of the chase.
    pub chase_bytes: Bytes,
    /// Bytes of all threads.
    pub working_set_bytes: Bytes,
    /// How many times the first CPU's last-level cache the chase is; absent where that cache is unknown.
    pub caches: Option<f64>,
    /// `ns`.
    pub unit: String,
    /// Nanoseconds of a load that waits for the one before. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The median in core clock cycles.
    pub latency_cycles: Option<f64>,
    /// Bytes a second that the loading threads read and wrote while the chase ran. Absent where none did.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// What of that crossed the bus: the same, since lines are loaded before they are stored.
    #[serde(rename = "bus_Bps")]
    pub bus_bps: Option<Rate>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// Latency over bandwidth for one mix, with a queue's fit. Figures of the fit are [value, low, high].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LoadCurve {
    /// The mix.
    pub mix: Mix,
    /// Threads.
    pub threads: usize,
    /// Rows' indices into [`Report::loaded`], by rising load; beside idle threads first, if that was measured.
    pub rows: Vec<usize>,
    /// Greatest bandwidth measured, bytes a second on the bus.
    pub greatest_bps: f64,
    /// Latency without load, by the fit.
    pub idle_ns: Option<[f64; 3]>,
    /// Bandwidth at which latency would grow beyond all bounds; absent where the curve does not determine it.
    pub saturation_bps: Option<[f64; 3]>,
    /// Bandwidth at which bandwidth over latency is greatest; absent where that lies beyond what was measured.
    pub knee_bps: Option<[f64; 3]>,
    /// Latency there, by the fit.
    pub knee_ns: Option<f64>,
}

/// Where lines live: one tidy row a memory that was asked about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AddrmapRow {
    /// `addrmap`.
    pub metric: String,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// NUMA node asked for.
    pub node: Option<u32>,
    /// CPU.
    pub cpus: Vec<u32>,
    /// Bytes that pairs were taken from.
    pub working_set_bytes: Bytes,
    /// `ns`.
    pub unit: String,
    /// Which address the bits are of: `physical`, or where that is hidden or a hypervisor's, the place `in the page`.
    pub address: String,
    /// First and last address bit that the experiment could see.
    pub known_bits: [u32; 2],
    /// `determined` or `undetermined`.
    pub verdict: String,
    /// Why it is undetermined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Targets that the rule tells apart. What they are (channels, banks, slices), timing does not tell.
    pub targets: Option<u64>,
    /// Masks in hexadecimal: each halves the lines, by the parity of the address bits that it picks.
    pub masks: Vec<String>,
    /// The same as lists of bits.
    pub mask_bits: Vec<Vec<u32>>,
    /// A remainder by an odd number, beside the masks.
    pub remainder: Option<Remainder>,
    /// Masks and remainder as one modulo of consecutive bits, where they are that.
    pub modulo: Option<Remainder>,
    /// Lower end of the 95 % interval of the share of new pairs that the rule foretells.
    pub confidence: Option<f64>,
    /// New pairs that behaved as the rule foretold.
    pub agreed: Option<usize>,
    /// New pairs that it was held against.
    pub checked: Option<usize>,
    /// Nanoseconds of two loads from memory that do not conflict, flushes included: median of the group.
    pub apart_ns: Option<f64>,
    /// The same of two that do.
    pub conflict_ns: Option<f64>,
    /// Different pairs that were asked.
    pub pairs: usize,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
}

/// A latency: one tidy row a chase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRow {
    /// `latency`.
    pub metric: String,
    /// Order of the places.
    pub order: Order,
    /// Bytes from one place to the next.
    pub stride_bytes: u32,
    /// Bytes of a block, where the order has blocks.
    pub block_bytes: u32,
    /// Independent chains.
    pub chains: u32,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// NUMA node of the pages: asked for, else the one node they were found on; absent where mixed or unknown.
    pub node: Option<u32>,
    /// CPU.
    pub cpus: Vec<u32>,
    /// Bytes from the first place to the end of the last.
    pub working_set_bytes: Bytes,
    /// The level that the lines of the places lie in, by the measured ladder; absent where they lie between two.
    pub level: Option<String>,
    /// `hit`: the working set was read right before each sample, so that the last level has it. `disturbed`: it lies in
    /// the last level and was not, so that a share of the loads may go to memory, as much as others evict. Else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_level: Option<String>,
    /// `ns`.
    pub unit: String,
    /// Nanoseconds from one load of a chain to its next. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The same in core clock cycles: median, by the clock of each visit.
    pub latency_cycles: Option<f64>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What the chases of a record tell together. Intervals are [value, low, high] with 95 %.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Latency {
    /// One row a chase, by memory, order, stride, chains, CPU and working set.
    pub rows: Vec<LatencyRow>,
    /// The ladder's levels, fastest first: found in the curve of a random order in huge pages.
    pub levels: Vec<LatencyLevel>,
    /// Translation buffers for base pages, smallest first.
    pub translation: Vec<TranslationLevel>,
    /// Independent chains, if several numbers of them were measured.
    pub parallelism: Option<Parallelism>,
    /// Cores against nodes and page sizes.
    pub map: Vec<MapLine>,
}

/// A level of the ladder.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LatencyLevel {
    /// `L1`, `L2`, `L3`, `memory`.
    pub name: String,
    /// Nanoseconds, without what translating huge pages adds: fitted to the level's plateau and the edges beside it. For the last cache, where that was measured, of
    /// working sets that were read right before.
    pub latency_ns: [f64; 3],
    /// The same in core clock cycles.
    pub latency_cycles: Option<f64>,
    /// Where `latency_ns` is right after a read: the same working sets without, evictions by others and all; median.
    pub disturbed_ns: Option<[f64; 3]>,
    /// Smallest and largest working set on the plateau.
    pub from: Bytes,
    /// See `from`.
    pub to: Bytes,
    /// Where the fit says that the level is full; absent for the last one.
    pub capacity: Option<Bytes>,
    /// Its 95 % interval: the level is full somewhere in it.
    pub capacity_ci95: Option<[Bytes; 2]>,
    /// What the operating system says; absent for memory and where it says nothing.
    pub claimed: Option<Bytes>,
}

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

/// Independent chains by one core.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Parallelism {
    /// Memory kind.
    pub memory: MemoryKind,
    /// Working set.
    pub working_set: Bytes,
    /// Chains, nanoseconds from link to link, bytes of lines a second (Little's law: chains x 64 B / latency).
    pub points: Vec<ParallelPoint>,
    /// The fewest chains with 95 % of the greatest rate.
    pub knee: u32,
    /// Greatest rate: bytes a second.
    pub greatest_bps: f64,
    /// Lines in flight at that rate, by Little's law with the latency of a single chain.
    pub lines_in_flight: f64,
    /// Greatest number of chains measured: where the knee is there, there may be more to find.
    pub most_chains: u32,
}

/// One number of chains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ParallelPoint {
    /// Independent chains.
    pub chains: u32,
    /// Nanoseconds from link to link.
    pub latency_ns: [f64; 3],
    /// Bytes of lines a second.
    pub bps: f64,
}

/// Latency of one node and memory kind over cores.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MapLine {
    /// Memory kind.
    pub memory: MemoryKind,
    /// Node of the pages; absent where unknown.
    pub node: Option<u32>,
    /// Greatest of the cores, ns.
    pub max: f64,
    /// Mean of the cores, ns.
    pub avg: f64,
    /// Least of the cores, ns.
    pub min: f64,
    /// Standard deviation of the cores (n - 1), ns; 0 for a single core.
    pub sd: f64,
    /// CPU, and its latency: the mean over blocks of their medians, ns.
    pub cores: Vec<(u32, f64)>,
    /// Sizes of the blocks within which lines were permuted.
    pub blocks: Vec<Bytes>,
}

/// What cores compute when they wait for no data: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlopsRow {
    /// `flops`.
    pub metric: String,
    /// What is computed with.
    pub element: Element,
    /// Width of an instruction.
    pub width: Width,
    /// The mix of additions and multiplications.
    pub balance: Balance,
    /// Number of threads.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// `flop/s`.
    pub unit: String,
    /// Floating-point operations a second, over all threads. Absent where nothing was measured.
    pub flops_per_s: Option<Rate>,
    /// The same in a core clock cycle, by thread: median.
    pub flops_per_cycle: Option<f64>,
    /// True core clock during the samples.
    pub core_clock_hz: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
}

/// Any row, as `--format json` prints them one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AnyRow {
    /// `bandwidth`
    Bandwidth(Box<Row>),
    /// `page`
    Page(Box<PageRow>),
    /// `offset`
    Offset(Box<OffsetRow>),
    /// `c2c`
    Handover(Box<HandoverRow>),
    /// `loaded`
    Loaded(Box<LoadedRow>),
    /// `addrmap`
    Addrmap(Box<AddrmapRow>),
    /// `latency`
    Latency(Box<LatencyRow>),
    /// `numa`
    Numa(Box<NumaRow>),
    /// `page-cache`
    PageCache(Box<PageCacheRow>),
    /// `flops`
    Flops(Box<FlopsRow>),
    /// `energy`
    Energy(Box<EnergyRow>),
    /// `rounding`
    Rounding(Box<RoundingRow>),
    /// `streams`
    Streams(Box<StreamsRow>),
    /// `pingpong`
    PingPong(Box<PingPongRow>),
    /// `pingpong-model`
    PingPongModel(Box<PathRow>),
}

impl Report {
    /// All rows of all metrics.
    pub fn any_rows(&self) -> impl Iterator<Item = AnyRow> {
        let all = each(&self.rows, AnyRow::Bandwidth).chain(each(&self.pages, AnyRow::Page));
        let all = all.chain(each(&self.offsets, AnyRow::Offset)).chain(each(&self.handovers, AnyRow::Handover));
        let all = all.chain(each(&self.loaded, AnyRow::Loaded)).chain(each(&self.addrmap, AnyRow::Addrmap));
        let all = all.chain(each(&self.latency.rows, AnyRow::Latency)).chain(self.numa.iter().flat_map(Numa::any_rows));
        let all = all.chain(each(&self.page_cache.rows, AnyRow::PageCache)).chain(each(&self.flops, AnyRow::Flops));
        let all = all.chain(each(&self.energy, AnyRow::Energy)).chain(each(&self.rounding.rows, AnyRow::Rounding));
        let all = all.chain(each(&self.congestion.rows, AnyRow::Streams));
        let all = all.chain(each(&self.messages.rows, AnyRow::PingPong));
        let parameters = self.messages.models.iter().flat_map(PathModel::rows);
        all.chain(parameters.map(|row| AnyRow::PingPongModel(Box::new(row))))
    }

    /// All rows of all metrics, each figure once: those of the matrix of nodes are its kernels' and chases'.
    fn rated(&self) -> impl Iterator<Item = &dyn Rated> {
        let numa = self.numa.iter().flat_map(|numa| rated(&numa.kernels).chain(rated(&numa.chases)));
        let all = rated(&self.rows).chain(numa).chain(rated(&self.pages)).chain(rated(&self.offsets));
        let all = all.chain(rated(&self.handovers)).chain(rated(&self.loaded)).chain(rated(&self.addrmap));
        let all = all.chain(rated(&self.latency.rows)).chain(rated(&self.page_cache.rows)).chain(rated(&self.flops));
        let all = all.chain(rated(&self.energy)).chain(rated(&self.rounding.rows));
        all.chain(rated(&self.congestion.rows)).chain(rated(&self.messages.rows))
    }
}

fn each<R: Clone>(rows: &[R], any: fn(Box<R>) -> AnyRow) -> impl Iterator<Item = AnyRow> {
    rows.iter().cloned().map(move |row| any(Box::new(row)))
}

fn rated<R: Rated>(rows: &[R]) -> impl Iterator<Item = &dyn Rated> {
    rows.iter().map(|row| row as &dyn Rated)
}

/// A level of the memory system./// A level of the memory system.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Level {
    /// `L1`, `L2`, `L3`, `memory`.
    pub name: String,
    /// Smallest and largest working set of one thread that ran at this level's speed.
    pub from: Bytes,
    /// See `from`.
    pub to: Bytes,
    /// Where the curve says that the level ends: between the last working set inside and the first outside, found by
    /// interpolation; absent for memory.
    pub capacity: Option<Bytes>,
    /// What the operating system says the capacity is; absent for memory and where it says nothing.
    pub claimed: Option<Bytes>,
    /// Best figure of each kernel, one thread then all threads: rows' indices into [`Report::rows`].
    pub best: Vec<LevelBest>,
}

/// The fastest variant of a kernel at a level.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LevelBest {
    /// The kernel.
    pub kernel: String,
    /// Threads.
    pub threads: usize,
    /// Index of the row.
    pub row: usize,
}

/// Where one store kind overtakes another as working sets grow.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Crossover {
    /// The kernel.
    pub kernel: String,
    /// Threads.
    pub threads: usize,
    /// The store kind that wins beyond.
    pub store: StoreKind,
    /// The width compared.
    pub width: Width,
    /// Working set of equal speed, with its 95 % interval; absent where there is none in the range measured.
    pub at: Option<[f64; 3]>,
    /// In words: `regular is faster everywhere`, `beyond 24 MiB`, ...
    pub says: String,
    /// Speed against regular stores at the largest working set: median ratio with interval.
    pub gain: Option<[f64; 3]>,
    /// The gain that the write-allocate's arithmetic allows: 2, 3/2, 4/3, 5/4.
    pub bound: f64,
}

/// Bandwidth over threads for one kernel at one level.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Scaling {
    /// The kernel variant in words.
    pub what: String,
    /// The level.
    pub level: String,
    /// Rows' indices, by rising thread count.
    pub rows: Vec<usize>,
}

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

/// Memory kinds side by side: copying a buffer to each from regular memory.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Kinds {
    /// Bytes copied in one use, over all threads.
    pub bytes: Bytes,
    /// What the buffer is an array of.
    pub element: Element,
    /// Threads.
    pub threads: usize,
    /// One a kind, in the order of kinds.
    pub kinds: Vec<Kind>,
}

/// One kind of memory as a buffer. Indices are those of [`Report::rows`].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Kind {
    /// What was asked for.
    pub memory: MemorySpec,
    /// Seconds of the first use: from asking for the memory to the end of the first copy.
    pub first_s: Option<Cost>,
    /// Seconds of each later copy.
    pub steady_s: Option<Cost>,
    /// Page faults of the first copy.
    pub faults: Option<f64>,
    /// What the first use costs more than a later one, in nanoseconds for each fault.
    pub fault_ns: Option<f64>,
    /// Speed of later copies against `against`: [ratio, low, high].
    pub gain: Option<[f64; 3]>,
    /// The kind it is held against; absent for that kind itself.
    pub against: Option<MemorySpec>,
    /// From which use on it is the better choice.
    pub break_even: Option<BreakEven>,
    /// First copy, then later copies, then everything else that was done to it alone: indices of rows.
    pub first: Option<usize>,
    /// See `first`.
    pub steady: Option<usize>,
    /// See `first`: by kernel, store kind, load kind.
    pub alone: Vec<usize>,
    /// How it is known to be of this kind, in words; or why it could not be measured.
    pub proof: String,
    /// Whether it is what it claims; false also where it was not obtained.
    pub holds: bool,
}

/// From which use on a kind is cheaper in sum, by t_first + (n - 1) t_steady.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakEven {
    /// From the first use on.
    AtOnce,
    /// After so many uses: [n, low, high]; an end that the intervals leave open is absent.
    After {
        /// Uses.
        uses: f64,
        /// Lower end of the 95 % interval.
        low: f64,
        /// Upper end; absent where it might be never.
        high: Option<f64>,
    },
    /// Cheaper to begin with, dearer after so many uses.
    Until {
        /// Uses.
        uses: f64,
    },
    /// Never: dearer to begin with and slower ever after.
    Never,
    /// Neither first use nor later uses differ by more than the intervals.
    Alike,
}

/// STREAM's table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StreamTable {
    /// `STREAM` where every rule is met, else `STREAM-style`.
    pub title: String,
    /// Rules that are not met, in words.
    pub unmet: Vec<String>,
    /// Elements of each array.
    pub array_elements: u64,
    /// Threads.
    pub threads: usize,
    /// Function, best rate MB/s, average, minimum and maximum time in seconds.
    pub lines: Vec<StreamLine>,
    /// The validation line.
    pub validation: String,
}

/// One line of STREAM's table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StreamLine {
    /// `Copy`, `Scale`, `Add`, `Triad`.
    pub function: String,
    /// Store kind and width.
    pub variant: String,
    /// Best rate in 1e6 bytes a second.
    pub best_mbps: f64,
    /// Mean time of a pass, without the first.
    pub avg_s: f64,
    /// Least time.
    pub min_s: f64,
    /// Greatest time.
    pub max_s: f64,
}

/// Something that disturbed or limits the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Warning {
    /// What was seen, with its evidence.
    pub text: String,
    /// What helps.
    pub cure: String,
}
