//! Cases: what will be measured. Everything the tool does is a list of them, shown by `--list` before anything runs.

mod conflict;
mod cores;
mod kinds;
mod latency;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::chase::Chase;
use crate::kernel::mix::Mix;
use crate::kernel::scan::Scan;
use crate::kernel::{CATALOG, Element, Isa, Kernel, LoadKind, StoreKind, Variant, Width};
use crate::machine::{CpuSet, Machine};
use crate::memory::{MemoryKind, MemorySpec};
use crate::placement::{Placement, PlacementError};
use crate::units::{Bytes, words};

pub use conflict::{Conflict, LINE, Stage, conflict, known_page};
pub use cores::{STEPS, handovers, loaded};
pub use kinds::{BUFFER, Breadth, REGULAR, kinds};
pub use latency::{LatencyChoice, MAP_STRIDE, SPARSE_STRIDE, latency, latency_choice, latency_map};

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
}

words! {
    /// Which of two threads touches a page first, and so decides where it lies.
    Home, "home" {
        /// The first, which leads and is timed.
        First = "first",
        /// The second, which answers.
        Second = "second",
    }
}

/// A line passed back and forth by the case's two CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Handover {
    /// Who touches the line's page first.
    pub home: Home,
}

/// A pointer chase in memory, and what the other CPUs do meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Loaded {
    /// Bytes of the chase; what is left of the case's working set is divided among the other threads.
    pub chase: Bytes,
    /// What the other threads do.
    pub load: Load,
}

/// What loads the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// There is no other thread.
    Alone,
    /// The other threads run, and leave memory alone.
    Idle,
    /// They walk over memory of their own.
    Mixed {
        /// What they do to it.
        mix: Mix,
        /// Nanoseconds that each pauses after a few KiB; 0: flat out.
        delay_ns: u32,
    },
}

words! {
    /// What is done to the pages of a mapping.
    PageWork, "page work" {
        /// Writes a word to each base page of a fresh mapping: faults and zeroing.
        Touch = "touch",
        /// Reads a word of each base page of a fresh mapping.
        Read = "read",
        /// Has the kernel make the pages of a fresh mapping (MADV_POPULATE_WRITE).
        Populate = "populate",
        /// Gives the pages of a touched mapping back (MADV_DONTNEED).
        Dontneed = "dontneed",
        /// Touches them again after that.
        TouchAfterDontneed = "touch-after-dontneed",
        /// Offers the pages of a touched mapping to the kernel (MADV_FREE).
        Free = "free",
        /// Touches them again after that.
        TouchAfterFree = "touch-after-free",
        /// Writes to each page of a touched mapping that a forked child shares: copy-on-write.
        CopyOnWrite = "copy-on-write",
        /// Has the kernel make huge pages of touched base pages (MADV_COLLAPSE).
        Collapse = "collapse",
        /// Unmaps a touched mapping.
        Unmap = "unmap",
        /// Reads a file into other memory without the page cache (O_DIRECT): what mapping it is held against.
        ReadDirect = "read-direct",
        /// Writes it from other memory the same way.
        WriteDirect = "write-direct",
    }
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

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Alone => f.write_str("alone"),
            Load::Idle => f.write_str("others idle"),
            Load::Mixed { mix, delay_ns: 0 } => write!(f, "others {mix} flat out"),
            Load::Mixed { mix, delay_ns } => write!(f, "others {mix} with pauses of {delay_ns} ns"),
        }
    }
}

impl Case {
    /// The kernel variant, where this is a kernel over streams.
    pub fn variant(&self) -> Option<&Variant> {
        match &self.work {
            Work::Kernel(variant) => Some(variant),
            Work::Page(_)
            | Work::Scan(_)
            | Work::Handover(_)
            | Work::Loaded(_)
            | Work::Conflict(_)
            | Work::Chase(_) => None,
        }
    }

    /// The memory of a stream.
    pub fn memory_of(&self, stream: &str) -> MemorySpec {
        self.streams.iter().find(|named| named.stream == stream).map_or(self.memory, |named| named.memory)
    }

    /// Whether a stream is mapped anew before each sample.
    pub fn is_fresh(&self, stream: &str) -> bool {
        let is_named = self.streams.is_empty() || self.streams.iter().any(|named| named.stream == stream);
        self.protocol == Protocol::FirstUse && is_named
    }

    /// The same over streams of another element.
    fn over(mut self, element: Element) -> Case {
        if let Work::Kernel(variant) = &mut self.work {
            variant.element = element;
        }
        self
    }

    /// Threads used.
    pub fn threads(&self) -> usize {
        self.cpus.len()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads();
        let plural = if threads == 1 { "" } else { "s" };
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
        }
        write!(f, ", {}, {}", self.working_set, self.memory)?;
        for StreamMemory { stream, memory } in &self.streams {
            write!(f, ", {stream} in {memory}")?;
        }
        write!(f, ", {threads} thread{plural}")?;
        match self.protocol {
            Protocol::FirstUse => f.write_str(", first use")?,
            Protocol::Stream => f.write_str(", STREAM passes")?,
            Protocol::Refilled => f.write_str(", refilled")?,
            Protocol::Steady => {}
        }
        if self.misaligned_bytes > 0 { write!(f, ", unaligned") } else { Ok(()) }
    }
}

/// What a plan must know of the machine.
#[derive(Debug, Clone)]
pub struct Frame {
    /// CPUs to place threads on.
    pub placement: Placement,
    /// Data caches that the first CPU sees, as the operating system claims: (level, bytes), small first.
    pub caches: Vec<(u32, Bytes)>,
    /// Widths there are, narrow first.
    pub widths: Vec<Width>,
    /// Most memory that a run may take.
    pub memory_limit: Bytes,
    /// Last-level cache claimed for (one thread, all threads).
    pub last_level: [Bytes; 2],
}

/// A plan that can't be made; the text names the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Threads or CPUs.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Nothing to work on.
    #[error(
        "a working set of {size} holds no element for each of {threads} thread(s) and stream; give at least {least}"
    )]
    TooSmall {
        /// The size asked for.
        size: Bytes,
        /// Threads.
        threads: usize,
        /// What would do.
        least: Bytes,
    },
    /// Nowhere to go.
    #[error("a working set of {size} has too few places for {chase}; give at least {least}")]
    TooFewPlaces {
        /// The size asked for.
        size: Bytes,
        /// The chase.
        chase: Chase,
        /// What would do.
        least: Bytes,
    },
    /// A chase that can't be.
    #[error("{chase}: a stride is a multiple of 8 bytes, no more than a block; there are 1 to 32 chains")]
    NoSuchChase {
        /// The chase.
        chase: Chase,
    },
    /// A stream that no kernel has.
    #[error("no kernel here has a stream '{stream}'; theirs are {known}")]
    UnknownStream {
        /// The name asked for.
        stream: String,
        /// The streams there are.
        known: String,
    },
    /// More than may be taken.
    #[error(
        "a working set of {size} is more than the {limit} that may be used (40 % of the free memory, less under a cgroup's limit); give a smaller --size"
    )]
    TooLarge {
        /// The size asked for.
        size: Bytes,
        /// What may be used.
        limit: Bytes,
    },
}

/// Share of the available memory that a run takes at most.
const MEMORY_SHARE: f64 = 0.4;
/// A working set in memory is this many times the last-level caches used. The curve goes to twice that, to see that it
/// is flat there: a virtual machine may see less cache than there is.
const MEMORY_TO_CACHE: u64 = 4;
/// Without any known cache: more than any last-level cache of a single core complex.
const CACHE_UNKNOWN: Bytes = Bytes::mib(32);

impl Frame {
    /// Reads the frame off a machine, restricted to `cpus` where given.
    pub fn new(machine: &Machine, isa: Isa, cpus: Option<&CpuSet>) -> Result<Self, PlacementError> {
        let placement = Placement::new(machine, cpus)?;
        let all = placement.first(placement.most())?;
        let last_level = |cpus: &[u32]| {
            let claimed = machine.last_level_bytes(&cpus.iter().copied().collect()).unwrap_or(CACHE_UNKNOWN);
            let one = machine.last_level(cpus[0]).map_or(claimed, |cache| cache.size);
            // The CPUs of a virtual machine may lie on cache domains of their own, whatever the guest is told.
            if machine.is_virtual() { Bytes(one.0 * cpus.len() as u64) } else { claimed }
        };
        let available = machine.available_memory().get().unwrap_or(Bytes::gib(1));
        Ok(Frame {
            caches: machine.data_caches(all[0]).iter().map(|cache| (cache.level, cache.size)).collect(),
            widths: isa.widths(),
            memory_limit: Bytes((available.0 as f64 * MEMORY_SHARE) as u64),
            last_level: [last_level(&all[..1]), last_level(&all)],
            placement,
        })
    }

    /// A working set that lies in memory, for so many threads.
    pub fn memory_size(&self, threads: usize) -> Bytes {
        let cache = self.last_level[usize::from(threads > 1)];
        // Arenas of one thread and of all threads stand side by side, each with room for loads and for stores.
        let most = Bytes(self.memory_limit.0 / 4);
        Bytes((cache.0 * MEMORY_TO_CACHE).max(Bytes::mib(64).0)).min(most)
    }

    /// A working set of one thread in the middle of each claimed cache, and one in memory: (level, bytes).
    pub fn probes(&self) -> Vec<(u32, Bytes)> {
        let mut probes: Vec<(u32, Bytes)> = Vec::new();
        for (k, &(level, size)) in self.caches.iter().enumerate() {
            // Three quarters of the first level: pages of all streams fit beside each other. Of a larger cache half,
            // since it also holds other things; of a shared one no more than a thread's share.
            let part = if k == 0 { size.0 / 4 * 3 } else { size.0 / 2 };
            probes.push((level, Bytes(part)));
        }
        probes
    }

    fn widest(&self) -> Width {
        self.widths.last().copied().unwrap_or(Width::Scalar)
    }

    /// Working sets of one thread from 4 KiB to memory, `per_octave` for each doubling.
    pub fn sweep(&self, per_octave: u32, last: Bytes) -> Vec<Bytes> {
        let (mut sizes, first) = (Vec::new(), 4096.0f64);
        for step in 0.. {
            let size = first * 2f64.powf(f64::from(step) / f64::from(per_octave));
            if size > last.0 as f64 * 1.01 {
                break;
            }
            // Whole kilobytes, so that every stream of up to four has whole lines.
            sizes.push(Bytes((size / 1024.0).round() as u64 * 1024));
        }
        sizes
    }
}

/// The unroll of the main loop: 512 bytes of each stream in one trip, at most 16 accesses. More gained nothing on
/// Zen 4; less lost up to 4 % in the first-level cache.
pub fn unroll(width: Width) -> u32 {
    if width == Width::W512 { 8 } else { 16 }
}

/// A case with the usual protocol.
pub fn steady(
    kernel: &str,
    width: Width,
    store: StoreKind,
    memory: MemorySpec,
    cpus: Vec<u32>,
    working_set: Bytes,
) -> Case {
    let (element, load) = (Element::Double, LoadKind::Regular);
    let variant = Variant { kernel: kernel.into(), element, width, store, load, unroll: unroll(width) };
    Case {
        work: Work::Kernel(variant),
        memory,
        streams: Vec::new(),
        cpus,
        working_set,
        misaligned_bytes: 0,
        protocol: Protocol::Steady,
    }
}

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
    fn of(budget: std::time::Duration) -> Self {
        match budget.as_secs() {
            0..12 => Detail::Sketch,
            12..35 => Detail::Outline,
            _ => Detail::Full,
        }
    }
}

/// Transparent huge pages: what a program that cares about bandwidth asks for.
pub const USUAL_MEMORY: MemorySpec = MemorySpec { kind: MemoryKind::Thp, node: None };

/// The kernels whose curve over working sets a default run draws, with regular and non-temporal stores.
const CURVES: [&str; 4] = ["load", "store", "copy", "triad"];

/// The cases of a default run.
pub fn characterise(frame: &Frame, budget: std::time::Duration) -> Result<Vec<Case>, PlanError> {
    let detail = Detail::of(budget);
    let counts = if frame.placement.most() > 1 { vec![1, frame.placement.most()] } else { vec![1] };
    let mut cases = Vec::new();
    for &threads in &counts {
        cases.extend(matrix(frame, threads, detail)?);
        cases.extend(curves(frame, threads, detail)?);
    }
    cases.extend(stream(frame, frame.placement.most(), USUAL_MEMORY, frame.widest())?);
    for threads in frame.placement.scaling() {
        for (kernel, store) in [("load", StoreKind::Regular), ("copy", StoreKind::Nt), ("triad", StoreKind::Regular)] {
            let cpus = frame.placement.first(threads)?;
            cases.push(steady(kernel, frame.widest(), store, USUAL_MEMORY, cpus, frame.memory_size(threads)));
        }
    }
    if detail > Detail::Sketch {
        cases.extend(kinds(frame, &Choice::default(), Breadth::Brief)?);
    }
    if detail == Detail::Full {
        cases.extend(first_touch(frame, Breadth::Brief)?);
        cases.extend(alignment(frame, Breadth::Brief));
    }
    Ok(distinct(cases))
}

/// Drops cases that were listed before.
pub fn distinct(cases: Vec<Case>) -> Vec<Case> {
    let mut seen = std::collections::HashSet::new();
    cases.into_iter().filter(|case| seen.insert(case.clone())).collect()
}

/// Kernels x widths x store kinds in the middle of each level.
fn matrix(frame: &Frame, threads: usize, detail: Detail) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(threads)?;
    let mut cases = Vec::new();
    let share = |size: Bytes| Bytes(size.0 * threads as u64);
    // A last level that all threads share holds no more for more threads.
    let shared = frame.last_level[1] == frame.last_level[0];
    let last = frame.caches.last().map(|c| c.0);
    let mut sizes: Vec<(Bytes, bool)> = frame
        .probes()
        .into_iter()
        .map(|(level, size)| {
            (if shared && Some(level) == last && frame.caches.len() > 1 { size } else { share(size) }, false)
        })
        .collect();
    sizes.push((frame.memory_size(threads), true));
    for (size, in_memory) in sizes {
        for kernel in CATALOG {
            for (width, store) in ways(kernel, frame, in_memory, detail) {
                cases.push(steady(kernel.name, width, store, USUAL_MEMORY, cpus.clone(), tidy(kernel, size, threads)));
            }
        }
    }
    Ok(cases)
}

/// In the first level whole pages for each stream, so that they lie alike (see `Layout`).
fn tidy(kernel: &Kernel, size: Bytes, threads: usize) -> Bytes {
    let threads = threads as u64;
    let unit = 4096 * kernel.formula().streams.len() as u64 * threads;
    if (unit..(128 << 10) * threads).contains(&size.0) { Bytes(size.0 / unit * unit) } else { size }
}

/// The widths and store kinds worth measuring for a kernel.
fn ways(kernel: &Kernel, frame: &Frame, in_memory: bool, detail: Detail) -> Vec<(Width, StoreKind)> {
    let main = CURVES.contains(&kernel.name);
    let stores = kernel.formula().store().is_some();
    let widths: Vec<Width> = match detail {
        // In memory width matters little: the main kernels show that.
        Detail::Full if main || !in_memory => frame.widths.clone(),
        _ => best_widths(frame),
    };
    if detail == Detail::Sketch && !main {
        return Vec::new();
    }
    let mut ways: Vec<(Width, StoreKind)> = widths.iter().map(|&w| (w, StoreKind::Regular)).collect();
    if stores {
        ways.extend(widths.iter().map(|&w| (w, StoreKind::Nt)));
    }
    if ["store", "copy"].contains(&kernel.name) && detail > Detail::Sketch {
        ways.push((Width::W128, StoreKind::NtMasked));
        ways.push((Width::Scalar, StoreKind::Rep));
        if detail == Detail::Full {
            ways.push((Width::Scalar, StoreKind::NtMasked));
        }
    }
    ways
}

/// The two widest: a core that splits its widest accesses may be faster with the next.
fn best_widths(frame: &Frame) -> Vec<Width> {
    frame.widths.iter().rev().take(2).rev().copied().collect()
}

/// Bandwidth over working sets.
fn curves(frame: &Frame, threads: usize, detail: Detail) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(threads)?;
    let width = best_widths(frame)[0];
    let last = Bytes(frame.memory_size(threads).0 / threads as u64);
    let per_octave = if detail == Detail::Full { 2 } else { 1 };
    let mut cases = Vec::new();
    for kernel in CURVES {
        let (per_octave, last) = if kernel == "load" { (2, Bytes(2 * last.0)) } else { (per_octave, last) };
        let stores: &[StoreKind] = match (kernel, detail) {
            ("load", _) => &[StoreKind::Regular],
            (_, Detail::Sketch) if threads > 1 || kernel != "copy" => &[],
            _ => &[StoreKind::Regular, StoreKind::Nt],
        };
        for size in frame.sweep(per_octave, last) {
            for &store in stores {
                let set = Bytes(size.0 * threads as u64);
                cases.push(steady(kernel, width, store, USUAL_MEMORY, cpus.clone(), set));
            }
        }
    }
    Ok(cases)
}

/// STREAM's four kernels by its rules: arrays of at least four times the last-level caches each.
pub fn stream(frame: &Frame, threads: usize, memory: MemorySpec, width: Width) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(threads)?;
    let array = 4 * frame.last_level[usize::from(threads > 1)].0.max(Bytes::mib(8).0);
    let array = array.min(frame.memory_limit.0 / 8) / (64 * threads as u64) * (64 * threads as u64);
    let mut cases = Vec::new();
    for store in [StoreKind::Regular, StoreKind::Nt] {
        for kernel in ["copy", "scale", "add", "triad"] {
            let streams = Kernel::named(kernel).map_or(3, |k| k.formula().streams.len() as u64);
            let mut case = steady(kernel, width, store, memory, cpus.clone(), Bytes(array * streams));
            case.protocol = Protocol::Stream;
            cases.push(case);
        }
    }
    Ok(cases)
}

/// STREAM for a choice of threads, memory and width; sizes follow from STREAM's rule unless given.
pub fn stream_choice(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let memory = choice.memory.first().copied().unwrap_or(USUAL_MEMORY);
    let width = choice.widths.first().copied().unwrap_or(frame.widest());
    let counts = if choice.threads.is_empty() { vec![frame.placement.most()] } else { choice.threads.clone() };
    let mut cases = Vec::new();
    for threads in counts {
        cases.extend(stream(frame, threads, memory, width)?);
    }
    if !choice.stores.is_empty() {
        cases.retain(|case| case.variant().is_some_and(|variant| choice.stores.contains(&variant.store)));
    }
    Ok(cases)
}

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

/// Kernels x sizes x stores x loads x widths x memory x threads.
pub fn bandwidth(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
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
                let element = choice.element;
                let variant = Variant { kernel: kernel.name.into(), element, width, store, load, unroll };
                cases.push(Case {
                    work: Work::Kernel(variant),
                    streams: streams_of(kernel, &choice.streams),
                    misaligned_bytes: choice.misaligned_bytes,
                    ..steady(kernel.name, width, store, memory, cpus.clone(), size)
                });
            }
        }
    }
    Ok(distinct(cases))
}

/// Store kinds side by side over working sets: where does which one win?
pub fn stores(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let named = |names: &[&str]| names.iter().filter_map(|name| Kernel::named(name)).collect::<Vec<_>>();
    let kernels =
        if choice.kernels.is_empty() { named(&["store", "copy", "schoenauer"]) } else { choice.kernels.clone() };
    let memory = choice.memory.first().copied().unwrap_or(USUAL_MEMORY);
    let counts = if choice.threads.is_empty() { all_and_one(frame) } else { choice.threads.clone() };
    let width = choice.widths.first().copied().unwrap_or(best_widths(frame)[0]);
    let mut cases = Vec::new();
    for &threads in &counts {
        let cpus = frame.placement.first(threads)?;
        let last = Bytes(frame.memory_size(threads).0 / threads as u64);
        let sizes = if choice.sizes.is_empty() {
            frame.sweep(1, last).into_iter().map(|size| Bytes(size.0 * threads as u64)).collect()
        } else {
            choice.sizes.clone()
        };
        for (&size, &kernel) in product(&sizes, &kernels) {
            check_size(frame, size, kernel, choice.element, threads)?;
            let case =
                |width, store| steady(kernel.name, width, store, memory, cpus.clone(), size).over(choice.element);
            cases.push(case(width, StoreKind::Regular));
            cases.push(case(width, StoreKind::Nt));
            cases.push(case(Width::Scalar, StoreKind::NtMasked));
            cases.push(Case { misaligned_bytes: 8, ..case(Width::W128, StoreKind::NtMasked) });
            if kernel.formula().loads().len() <= 1 && kernel.formula().flops() == 0 {
                cases.push(case(Width::Scalar, StoreKind::Rep));
            }
        }
    }
    Ok(distinct(cases))
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

/// Works on pages that give pages back, or come after that, or need pages that are there.
const PAGE_STATES: [PageWork; 6] = [
    PageWork::Dontneed,
    PageWork::TouchAfterDontneed,
    PageWork::Free,
    PageWork::TouchAfterFree,
    PageWork::CopyOnWrite,
    PageWork::Unmap,
];

/// What pages cost: works on pages x memory kinds, by one thread and by all. In brief: without what happens to pages
/// that are there already, but copy-on-write.
pub fn first_touch(frame: &Frame, breadth: Breadth) -> Result<Vec<Case>, PlanError> {
    use MemoryKind::{Base, FileShared, FileSharedCold, Heap, Huge1G, Huge2M, Memfd, Shared, Thp, Tmpfs};
    let is_whole = breadth == Breadth::Whole;
    let mut works = Vec::new();
    let mut add = |work: PageWork, kinds: &[MemoryKind]| works.extend(kinds.iter().map(|&kind| (work, kind)));
    add(PageWork::Touch, &[Base, Thp, Huge2M, Huge1G]);
    add(PageWork::Populate, &[Base, Thp]);
    if is_whole {
        add(PageWork::Touch, &[Shared, Memfd, Tmpfs, Heap]);
        add(PageWork::Read, &[Base, Thp]);
        add(PageWork::Collapse, &[Base]);
    }
    for work in PAGE_STATES.into_iter().filter(|work| is_whole || *work == PageWork::CopyOnWrite) {
        add(work, &[Base, Thp]);
    }
    works.sort_unstable();
    let mut cases = Vec::new();
    for ((work, kind), threads) in
        works.into_iter().flat_map(|work| all_and_one(frame).into_iter().map(move |n| (work, n)))
    {
        cases.push(pages(frame, work, kind, threads)?);
    }
    // One disk is no faster for many.
    let on_disk = [
        (PageWork::Read, FileShared),
        (PageWork::Read, FileSharedCold),
        (PageWork::ReadDirect, FileShared),
        (PageWork::WriteDirect, FileShared),
    ];
    for (work, kind) in on_disk.into_iter().filter(|_| is_whole) {
        cases.push(pages(frame, work, kind, 1)?);
    }
    Ok(cases)
}

/// A case that works on pages: 64 MiB a thread, less where memory is small; a 1 GiB page is one in any case.
fn pages(frame: &Frame, work: PageWork, kind: MemoryKind, threads: usize) -> Result<Case, PlanError> {
    let cpus = frame.placement.first(threads)?;
    // Copying doubles it.
    let most = frame.memory_limit.0 / 4 / threads as u64 / Bytes::mib(2).0 * Bytes::mib(2).0;
    let share = match kind {
        MemoryKind::Huge1G => Bytes::gib(1).0,
        _ => most.clamp(Bytes::mib(2).0, Bytes::mib(64).0),
    };
    Ok(Case {
        work: Work::Page(work),
        memory: MemorySpec::of(kind),
        streams: Vec::new(),
        cpus,
        working_set: Bytes(share * threads as u64),
        misaligned_bytes: 0,
        protocol: Protocol::FirstUse,
    })
}

/// What crossing a line, crossing a page, 4 KiB aliasing and store-to-load forwarding cost, offset by offset.
///
/// In base pages, where every page crossing needs two translations: what a program can count on. (Crossing 4 KiB inside
/// a huge page costs the same on Zen 4.)
pub fn alignment(frame: &Frame, breadth: Breadth) -> Vec<Case> {
    let exists = |bytes: &u32| bytes * 8 <= frame.widest().bits(Element::Double).max(128);
    let mut sizes: Vec<u32> = [4, 8, 16, 32, 64].into_iter().filter(exists).collect();
    let widest = sizes[sizes.len() - 1];
    if breadth == Breadth::Brief {
        sizes = vec![8, widest];
    }
    let alone = sizes.iter().copied().filter(|bytes| *bytes >= 8);
    let mut scans: Vec<Scan> = alone.flat_map(|bytes| [Scan::Load { bytes }, Scan::Store { bytes }]).collect();
    scans.extend([8, widest].map(|bytes| Scan::Aliasing { bytes }));
    scans.extend(product(&sizes, &sizes).map(|(&stored, &loaded)| Scan::Forwarding { stored, loaded }));
    let case = |scan| Case {
        work: Work::Scan(scan),
        memory: MemorySpec::of(MemoryKind::Base),
        streams: Vec::new(),
        cpus: frame.placement.first(1).unwrap_or_default(),
        working_set: Bytes(Scan::SCRATCH),
        misaligned_bytes: 0,
        protocol: Protocol::Steady,
    };
    scans.into_iter().map(case).collect()
}

fn all_and_one(frame: &Frame) -> Vec<usize> {
    let most = frame.placement.most();
    if most > 1 { vec![1, most] } else { vec![1] }
}

fn level_sizes(frame: &Frame, threads: usize) -> Vec<Bytes> {
    let caches = frame.probes().into_iter().map(|(_, size)| Bytes(size.0 * threads as u64));
    caches.filter(|size| size.0 < frame.memory_size(threads).0 / 4).chain([frame.memory_size(threads)]).collect()
}

fn check_size(frame: &Frame, size: Bytes, kernel: &Kernel, element: Element, threads: usize) -> Result<(), PlanError> {
    let streams = kernel.formula().streams.len() as u64;
    let least = Bytes(streams * threads as u64 * element.bytes());
    if size < least {
        return Err(PlanError::TooSmall { size, threads, least });
    }
    if size > frame.memory_limit {
        return Err(PlanError::TooLarge { size, limit: frame.memory_limit });
    }
    Ok(())
}

fn product<'a, A, B>(left: &'a [A], right: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    left.iter().flat_map(move |a| right.iter().map(move |b| (a, b)))
}

#[allow(clippy::type_complexity)] // Two pairs; a name would say less.
fn product4<'a, A, B, C, D>(a: &'a [A], b: &'a [B], c: &'a [C], d: &'a [D]) -> Vec<((&'a A, &'a B), (&'a C, &'a D))> {
    product(a, b).flat_map(|left| product(c, d).map(move |right| (left, right))).collect()
}
