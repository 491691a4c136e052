//! Cases: what will be measured. Everything the tool does is a list of them, shown by `--list` before anything runs.

use crate::work::c2c::Handover;
use crate::work::common::Common;
use crate::work::copies::CopyWork;
use crate::work::device::{Action, Buffer, DeviceWork};
use crate::work::loaded::Loaded;
use crate::work::pages::PageWork;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::chase::{Chase, Order};
use crate::kernel::flops::Flops;
use crate::kernel::scan::Scan;
use crate::kernel::streams::Streams;
use crate::kernel::{Element, LoadKind, StoreKind, Variant, Width};
use crate::memory::{MemoryKind, MemorySpec};
use crate::plain::Plain;
use crate::units::{Bytes, counted};
use crate::work::addrmap::Conflict;
use crate::work::page_cache::PageCache;
use crate::work::pingpong::PingPong;
use crate::work::rounding::{Arithmetic, SumOrder, Summation};

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A kernel over its streams: a bandwidth.
    Kernel(Variant),
    /// Something done to the pages of a fresh mapping: a cost for each page.
    Page(PageWork),
    /// The same accesses at one offset after another: a cost for each offset.
    Scan(Scan),
    /// A line passed back and forth by two CPUs: a cost for each hand-over.
    Handover(Handover),
    /// A pointer chase by the first CPU while the others load the memory: a latency at a bandwidth.
    Loaded(Loaded),
    /// Pairs of lines loaded together: a time for each pair.
    Conflict(Conflict),
    /// Loads of which each needs the one before: a latency.
    Chase(Chase),
    /// A kernel over fresh memory beside a filled page cache: a bandwidth, and where pages come to lie.
    PageCache(PageCache),
    /// Arithmetic in registers alone: flops per second.
    Flops(Flops),
    /// Nothing: the thread sleeps. What the machine draws then is what a kernel's energy is held against.
    Idle,
    /// One sum in one of many ways: a result, and how far it is from the exact one.
    Rounding(Summation),
    /// Many streams at once, each so many bytes from the next: a bandwidth.
    Streams(Streams),
    /// A kernel over arrays in one block at an offset: a bandwidth.
    Common(Common),
    /// Work of a plain experiment: a bandwidth.
    Plain(Plain),
    /// Messages between pairs of processes: a time and a bandwidth.
    PingPong(PingPong),
    /// Work on memory that a device shares with the processor: a cost, and a bandwidth where bytes move.
    Device(DeviceWork),
    /// A copy between the host's memory and a device's, or between two devices': a time and a bandwidth.
    Copies(CopyWork),
}

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// After a warm-up, many short samples.
    Steady,
    /// The same, but before each sample the whole working set is read once, in the order of the chase: what other
    /// tenants of a cache evicted meanwhile is there again. For chases only.
    Refilled,
    /// STREAM's: each sample is one pass, none is left out but the first, the best counts.
    Stream,
    /// The first pass over fresh memory, faults and all: before each sample the named streams (all, where none is
    /// named) are unmapped and mapped again. Work on pages: before each sample every thread's mapping is made anew and
    /// brought to the state that the work starts from.
    FirstUse,
    /// As `Steady`, but each sample lasts as long as meters of energy need, and they are read around it.
    Energy,
}

/// A stream in a memory of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct StreamMemory {
    /// The stream's name in the loop's text.
    pub stream: String,
    /// Its memory.
    pub memory: MemorySpec,
}

/// One thing to measure: kernel x memory x placement x working set x protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// What is done.
    pub work: Work,
    /// What kind of memory it is done to.
    pub memory: MemorySpec,
    /// Streams that lie in memory of another kind, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamMemory>,
    /// One thread on each of these CPUs; the first leads.
    pub cpus: Vec<u32>,
    /// Bytes touched by one repetition, over all threads and streams.
    pub working_set: Bytes,
    /// Bytes that every stream starts beyond its aligned place, in whole elements; 8 makes all vector accesses unaligned.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub misaligned_bytes: u32,
    /// How samples are taken.
    pub protocol: Protocol,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A sample that takes longer is worth a visit by itself: what the machine does to the next one, another visit will meet.
pub const LONG_SAMPLE: Duration = Duration::from_millis(12);

/// Bytes that a thread touches for the first time in a second, and that a machine moves: of middling speed, for plans.
const TOUCHES_PER_S: f64 = 2e9;
const MACHINE_BYTES_PER_S: f64 = 100e9;

impl Case {
    /// What is usual in all else: all streams in one memory, aligned, in steady state.
    pub fn new(work: Work, memory: MemorySpec, cpus: Vec<u32>, working_set: Bytes) -> Self {
        let (streams, misaligned_bytes, protocol) = (Vec::new(), 0, Protocol::Steady);
        Case { work, memory, streams, cpus, working_set, misaligned_bytes, protocol }
    }

    /// The kernel variant, where this is a kernel over streams.
    pub fn variant(&self) -> Option<&Variant> {
        match &self.work {
            Work::Kernel(variant) => Some(variant),
            Work::Page(_)
            | Work::Scan(_)
            | Work::Handover(_)
            | Work::Loaded(_)
            | Work::Conflict(_)
            | Work::Chase(_)
            | Work::PageCache(_)
            | Work::Flops(_) => None,
            Work::Idle
            | Work::Rounding(_)
            | Work::Streams(_)
            | Work::Common(_)
            | Work::Plain(_)
            | Work::PingPong(_)
            | Work::Device(_)
            | Work::Copies(_) => None,
        }
    }

    /// The memory of a stream.
    pub fn memory_of(&self, stream: &str) -> MemorySpec {
        self.streams.iter().find(|named| named.stream == stream).map_or(self.memory, |named| named.memory)
    }

    /// The memory that it asks for: its own, and that of single streams.
    pub fn memories(&self) -> impl Iterator<Item = MemorySpec> + '_ {
        [self.memory].into_iter().chain(self.streams.iter().map(|named| named.memory))
    }

    /// Whether a stream is mapped anew before each sample.
    pub fn is_fresh(&self, stream: &str) -> bool {
        let is_named = self.streams.is_empty() || self.streams.iter().any(|named| named.stream == stream);
        self.protocol == Protocol::FirstUse && is_named
    }

    /// The same over streams of another element.
    pub(crate) fn over(mut self, element: Element) -> Case {
        if let Work::Kernel(variant) = &mut self.work {
            variant.element = element;
        }
        self
    }

    /// Threads used.
    pub fn threads(&self) -> usize {
        self.cpus.len()
    }

    /// What each of its threads has of the working set.
    pub fn share(&self) -> Bytes {
        Bytes(self.working_set.0 / self.threads().max(1) as u64)
    }

    /// About what the shortest visit takes, on a machine of middling speed. For plans and the order of visits alone: how
    /// long it really takes is known after the first.
    pub fn least_time(&self) -> Duration {
        /// Anything at all: pinning threads, finding how many repetitions make a sample.
        const VISIT_S: f64 = 4e-3;
        const THREAD_BYTES_PER_S: f64 = 14e9;
        let bytes = self.working_set.0 as f64;
        let pass = bytes / (THREAD_BYTES_PER_S * self.threads() as f64).min(MACHINE_BYTES_PER_S);
        // A warm-up or two, and two samples; a warm-up and a sample where those are long; STREAM has ten passes.
        let passes = if pass > LONG_SAMPLE.as_secs_f64() { 2.0 } else { 4.0 };
        let work = match (&self.work, self.protocol) {
            (Work::Page(_), _) | (_, Protocol::FirstUse) => 2.0 * bytes / TOUCHES_PER_S,
            // Writes the cycle, and reads it once; each thread its own.
            (Work::Chase(_), _) => bytes / (TOUCHES_PER_S * self.threads() as f64).min(MACHINE_BYTES_PER_S),
            (_, Protocol::Stream) => 10.0 * pass,
            // The device's program is compiled and its buffers are filled before anything is timed.
            (Work::Device(_) | Work::Copies(_), _) => 0.05 + 4.0 * pass,
            // A warm-up and two samples of a fifth of a second.
            (_, Protocol::Energy) => 0.6 + 4.0 * pass,
            _ => passes * pass,
        };
        Duration::from_secs_f64(VISIT_S + work)
    }

    /// About what filling its memory takes besides, where no other case has filled it; zero where [`Case::least_time`] counts
    /// that.
    pub fn filling_time(&self) -> Duration {
        let is_counted = matches!(self.work, Work::Page(_) | Work::Chase(_)) || self.protocol == Protocol::FirstUse;
        let rate = (TOUCHES_PER_S * self.threads() as f64).min(MACHINE_BYTES_PER_S);
        let filled = if self.moves_memory() && !is_counted { self.working_set.0 as f64 / rate } else { 0.0 };
        Duration::from_secs_f64(filled)
    }

    /// Whether it needs memory of this process as large as its working set.
    pub fn moves_memory(&self) -> bool {
        use Work::{Copies, Device, Flops, Idle, PingPong};
        !matches!(self.work, PingPong(_) | Device(_) | Copies(_) | Flops(_) | Idle)
    }

    /// What it is visited together with: cases that have the same here. They share what the first visit prepares, or are held against
    /// each other: what a device and the processor do alone, and at once. STREAM is four kernels: a short run has all of one store kind. A
    /// CPU of the map has several blocks, of which a mean is taken.
    pub fn group(&self) -> Option<Case> {
        if let (Protocol::Stream, Work::Kernel(variant)) = (self.protocol, &self.work) {
            let first = Variant { kernel: "copy".into(), ..variant.clone() };
            return Some(Case { work: Work::Kernel(first), working_set: Bytes(0), ..self.clone() });
        }
        if let (Work::Chase(chase), Some(shared)) = (&self.work, self.shares())
            && chase.order == Order::PageOrdered
        {
            return Some(Case { work: Work::Chase(Chase { block_bytes: 0, chains: 1, ..*chase }), ..shared });
        }
        let Work::Device(work) = self.work else { return self.shares() };
        let alone = DeviceWork::new(work.device, Buffer::Regular, Action::HostTriad);
        let is_held_against = work.action == alone.action || work.action.is_contended();
        let cpus = self.cpus.iter().take(1).copied().collect();
        is_held_against.then(|| Case { work: Work::Device(alone), cpus, working_set: Bytes(0), ..self.clone() })
    }

    /// What the first visit of several cases prepares for all of them.
    pub fn shares(&self) -> Option<Case> {
        let (chase, working_set, threads) = match self.work {
            Work::Chase(chase) => (Chase { chains: 1, ..chase }, self.working_set, self.threads()),
            // The ladder's own chase, so that latency without load is one quantity in both.
            Work::Loaded(loaded) => (Chase::of(Order::Random), loaded.chase, 1),
            // The numbers, and their exact sum.
            Work::Rounding(ref way) => {
                let ground = Summation {
                    variant: Variant { width: Width::Scalar, unroll: 1, ..way.variant.clone() },
                    fused: false,
                    arithmetic: Arithmetic::Ieee,
                    order: SumOrder::Forward,
                    blocks: 1,
                    ..way.clone()
                };
                return Some(Case { work: Work::Rounding(ground), ..self.clone() });
            }
            _ => return None,
        };
        let cpus = self.cpus.iter().take(threads).copied().collect();
        Some(Case { work: Work::Chase(chase), cpus, working_set, protocol: Protocol::Steady, ..self.clone() })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = counted(self.threads(), "thread");
        match &self.work {
            Work::Kernel(variant) => write!(f, "{variant}")?,
            Work::Page(work) => write!(f, "pages: {work}")?,
            Work::Scan(scan) => write!(f, "{scan}")?,
            Work::Handover(Handover { home }) => {
                let cpus: Vec<String> = self.cpus.iter().map(ToString::to_string).collect();
                return write!(f, "hand-over, CPU {}, the {home}'s page, {}", cpus.join(" to "), self.memory);
            }
            Work::Loaded(Loaded { load, .. }) => write!(f, "latency, {load}")?,
            Work::Conflict(batch) => write!(f, "{} pairs of lines ({})", batch.pairs.len(), batch.stage)?,
            Work::Chase(chase) => write!(f, "{chase}")?,
            Work::PageCache(work) => write!(f, "{work}")?,
            Work::Flops(flops) => return write!(f, "{flops}, {threads}"),
            Work::Streams(streams) => write!(f, "{streams}")?,
            Work::Common(work) => write!(f, "{work}")?,
            Work::Plain(work) => write!(f, "{work}")?,
            Work::Idle => return f.write_str("idle, energy"),
            Work::Rounding(way) => return write!(f, "{way}, {}", self.working_set),
            Work::PingPong(work) => return write!(f, "{work}, {}", self.working_set),
            Work::Copies(work) => return write!(f, "{work}, {}", self.working_set),
            Work::Device(work) => {
                let first = if self.protocol == Protocol::FirstUse { ", first use" } else { "" };
                return write!(f, "{work}, {}{first}", self.working_set);
            }
        }
        write!(f, ", {}, {}", self.working_set, self.memory)?;
        for StreamMemory { stream, memory } in &self.streams {
            write!(f, ", {stream} in {memory}")?;
        }
        write!(f, ", {threads}")?;
        match self.protocol {
            Protocol::FirstUse => f.write_str(", first use")?,
            Protocol::Stream => f.write_str(", STREAM passes")?,
            Protocol::Refilled => f.write_str(", refilled")?,
            Protocol::Energy => f.write_str(", energy")?,
            Protocol::Steady => {}
        }
        if self.misaligned_bytes > 0 { write!(f, ", unaligned") } else { Ok(()) }
    }
}

/// Transparent huge pages: what a program that cares about bandwidth asks for.
pub const USUAL_MEMORY: MemorySpec = MemorySpec::of(MemoryKind::Thp);

/// The unroll of the main loop: 512 bytes of each stream in one trip, at most 16 accesses. More gained nothing on
/// Zen 4; less lost up to 4 % in the first-level cache.
pub fn unroll(width: Width) -> u32 {
    if width == Width::W512 { 8 } else { 16 }
}

/// A kernel on doubles, with regular loads and the usual unroll.
pub fn usual(kernel: &str, width: Width, store: StoreKind) -> Variant {
    let (element, load) = (Element::Double, LoadKind::Regular);
    Variant { kernel: kernel.into(), element, width, store, load, unroll: unroll(width) }
}

/// A case of the usual variant of a kernel, with the usual protocol.
pub fn steady(
    kernel: &str,
    width: Width,
    store: StoreKind,
    memory: MemorySpec,
    cpus: Vec<u32>,
    working_set: Bytes,
) -> Case {
    Case::new(Work::Kernel(usual(kernel, width, store)), memory, cpus, working_set)
}

pub(crate) fn product<'a, A, B>(left: &'a [A], right: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    left.iter().flat_map(move |a| right.iter().map(move |b| (a, b)))
}

#[allow(clippy::type_complexity)] // Two pairs; a name would say less.
pub(crate) fn product4<'a, A, B, C, D>(
    a: &'a [A],
    b: &'a [B],
    c: &'a [C],
    d: &'a [D],
) -> Vec<((&'a A, &'a B), (&'a C, &'a D))> {
    product(a, b).flat_map(|left| product(c, d).map(move |right| (left, right))).collect()
}
