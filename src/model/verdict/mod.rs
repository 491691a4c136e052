//! The verdict: why memory-bound code is not faster on this machine. A rule (`rules.rs`) looks at a report for one cause and
//! gives its evidence, what it would give back, its cure and the command that tests it; here they are ranked.
//!
//! *The plain case* is what a program does that nobody tuned: the triad with regular stores, in memory, by as many threads as
//! were measured. *The gap* is the limit less what the plain case reaches, both in payload bytes a second: a program wants
//! its payload, and a write-allocate is one of the causes. The limit is the peak of the memory where that is known, else
//! the best that any case in memory reached. *A cause's share* is what its own experiment shows it to give back, against
//! the gap. Causes overlap, and what lies between the best and the peak may have no cure, so shares need not add up to one.

mod rules;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::{Kernel, StoreKind};
use crate::memory::MemoryKind;
use crate::model::rows::is_in_memory;
use crate::model::warnings::head;
use crate::model::{Report, Row, Status, Warning};
use crate::plan::Protocol;
use crate::units::{BytesPerSecond, percent, words};

pub(in crate::model) use rules::cure;

words! {
    /// What keeps memory-bound code from being faster.
    CauseKind, "cause" {
        /// The working sets do not reach memory, so that the figures are not memory's.
        InCache = "working set in cache",
        /// The processor's instructions are carried out by software.
        Emulated = "emulated machine",
        /// A control group gives less CPU time than there are threads.
        CpuTime = "limit on CPU time",
        /// The memory is not cached, or only written through buffers.
        MemoryType = "memory type",
        /// Cores or domains are left idle.
        FewCores = "too few cores",
        /// Memory channels are left empty or filled unevenly.
        FewChannels = "memory modules",
        /// Regular stores read the lines that they write.
        WriteAllocate = "write-allocate",
        /// Small pages where there could be huge ones.
        PageSize = "page size",
        /// Pages lie on another node than the threads that use them.
        WrongNode = "wrong node",
        /// Page cache drives pages away.
        PageCache = "page cache",
        /// Cores run below the clock that they should have.
        Clock = "core clock",
        /// Hardware threads of a core get in each other's way.
        Smt = "threads of one core",
        /// Streams that start off a line.
        Alignment = "stream alignment",
        /// The kernel takes pages away to see who uses them.
        NumaBalancing = "NUMA balancing",
        /// The host, or the operating system, interrupts.
        TimeTaken = "time taken by others",
        /// Others use the same memory.
        Neighbour = "neighbour on the memory",
    }
}

impl CauseKind {
    /// Whether it makes figures those of something else: such a cause stands first, whatever its share.
    fn spoils_figures(self) -> bool {
        use CauseKind::{CpuTime, Emulated, InCache, MemoryType};
        matches!(self, InCache | Emulated | CpuTime | MemoryType)
    }

    /// How the warnings begin that are evidence of this cause.
    fn warnings(self) -> &'static [&'static str] {
        match self {
            CauseKind::Clock => &[head::GOVERNOR, head::SLOW_CLOCK],
            CauseKind::NumaBalancing => &[head::NUMA_BALANCING],
            CauseKind::PageSize => &[head::NO_HUGE_PAGES],
            CauseKind::PageCache => &[head::PAGE_CACHE, head::STRAY_PAGES],
            CauseKind::WrongNode => &[head::STRAY_PAGES],
            CauseKind::FewChannels => &[head::UNEVEN_MODULES, head::UNEVEN_NODES],
            CauseKind::Smt => &[head::SIBLINGS],
            CauseKind::TimeTaken => &[head::STEAL],
            _ => &[],
        }
    }
}

words! {
    /// How what a cause gives back is known.
    Basis, "basis" {
        /// Both ways were measured in this record.
        Measured = "measured",
        /// By what was measured and how it should scale.
        Estimated = "estimated",
        /// Nothing measured here tells.
        Unknown = "not measured",
    }
}

/// What the plain case reaches of the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The plain case's kernel.
    pub kernel: String,
    /// Its threads.
    pub threads: usize,
    /// Index of its row.
    pub row: usize,
    /// Its payload bytes a second: median.
    #[serde(rename = "reached_Bps")]
    pub reached_bps: f64,
    /// What it is held against.
    #[serde(rename = "limit_Bps")]
    pub limit_bps: f64,
    /// Where the limit comes from.
    pub limit: String,
}

impl Gap {
    /// Limit less what is reached, bytes a second.
    pub fn bps(&self) -> f64 {
        (self.limit_bps - self.reached_bps).max(0.0)
    }
}

/// A cause, with its evidence and its cure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// What it is.
    pub cause: CauseKind,
    /// How that is known, with its numbers.
    pub evidence: String,
    /// Payload bytes a second that the plain case would gain without it. Absent where nothing tells.
    #[serde(rename = "gives_back_Bps")]
    pub gives_back_bps: Option<f64>,
    /// The same as a share of the gap, 0 to 1.
    pub share: Option<f64>,
    /// How that is known.
    pub basis: Basis,
    /// What helps.
    pub cure: String,
    /// The command that tests it.
    pub test: String,
}

/// Why memory-bound code is not faster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Absent where nothing was measured in memory.
    pub gap: Option<Gap>,
    /// Causes, those that matter most first.
    pub causes: Vec<Cause>,
}

/// Looks for every cause.
pub fn verdict(report: &Report) -> Verdict {
    let Some(scene) = Scene::of(report) else { return Verdict::default() };
    let mut causes: Vec<Cause> =
        rules::RULES.iter().filter_map(|(kind, rule)| rule(&scene)?.cause(*kind, &scene)).collect();
    causes.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(std::cmp::Ordering::Equal));
    Verdict { gap: Some(scene.gap), causes }
}

/// What spoils figures first, then by share; what has no share last.
fn rank(cause: &Cause) -> (bool, f64) {
    (cause.cause.spoils_figures(), cause.share.unwrap_or(-1.0))
}

/// The most that the memory can move, in bytes a second, and who says so.
fn peak(report: &Report) -> Option<(f64, String)> {
    let limit = report.limits.memory_bps.as_ref().filter(|limit| limit.is_known())?;
    Some((limit.value, limit.says.clone()))
}

/// What rules look at.
struct Scene<'a> {
    report: &'a Report,
    plain: &'a Row,
    gap: Gap,
}

/// What a rule found.
struct Found {
    evidence: String,
    gives_back: GivesBack,
    cure: String,
    test: String,
}

/// Payload bytes a second.
enum GivesBack {
    Measured(f64),
    Estimated(f64),
    Unknown,
}

impl Found {
    /// The cause, with its share of the gap.
    fn cause(self, cause: CauseKind, scene: &Scene<'_>) -> Option<Cause> {
        let (gives_back_bps, basis) = match self.gives_back {
            GivesBack::Measured(bps) => (Some(bps), Basis::Measured),
            GivesBack::Estimated(bps) => (Some(bps), Basis::Estimated),
            GivesBack::Unknown => (None, Basis::Unknown),
        };
        let share = |bps: f64| if scene.gap.bps() > 0.0 { (bps / scene.gap.bps()).clamp(0.0, 1.0) } else { 0.0 };
        let Found { evidence, cure, test, .. } = self;
        Some(Cause { cause, evidence, gives_back_bps, share: gives_back_bps.map(share), basis, cure, test })
    }
}

impl<'a> Scene<'a> {
    fn of(report: &'a Report) -> Option<Self> {
        let (row, plain) = plain(report)?;
        let reached_bps = rate(plain);
        let best = memory_rows(report).max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(plain);
        let measured = || {
            let what = format!("the best measured: {}", what_ran(&best.kernel, best.store, best.threads));
            (rate(best).max(reached_bps), what)
        };
        // A peak that was exceeded is none: the figures are a cache's, or the modules not all there are.
        let (limit_bps, limit) = peak(report).filter(|peak| peak.0 >= rate(best)).unwrap_or_else(measured);
        let gap = Gap { kernel: plain.kernel.clone(), threads: plain.threads, row, reached_bps, limit_bps, limit };
        Some(Scene { report, plain, gap })
    }
}

/// `triad, regular stores, 8 threads`
fn what_ran(kernel: &str, store: StoreKind, threads: usize) -> String {
    let stores = Kernel::named(kernel).is_some_and(|row| row.formula().store().is_some());
    let store = if stores { format!(", {store} stores") } else { String::new() };
    format!("{kernel}{store}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// Median payload rate; 0 without one.
fn rate(row: &Row) -> f64 {
    row.payload_bps.map_or(0.0, |rate| rate.median)
}

/// Rows that a program without special memory could be. Those that are invalid because memory can't be so fast have a cause.
fn steady_rows(report: &Report) -> impl Iterator<Item = &Row> {
    let peak = peak(report);
    let is_too_fast =
        move |row: &Row| peak.as_ref().is_some_and(|peak| row.quality.outcome == Status::Invalid && rate(row) > peak.0);
    report.rows.iter().filter(move |row| {
        (row.quality.is_measured() || is_too_fast(row))
            && row.payload_bps.is_some()
            && row.protocol == Protocol::Steady
            && row.streams.is_empty()
            && !row.memory.is_memory_type()
    })
}

fn memory_rows(report: &Report) -> impl Iterator<Item = &Row> {
    steady_rows(report).filter(|row| is_in_memory(row, &report.machine))
}

/// The plain case: see the head of this file. Where nothing reached memory, the largest working set stands for it.
fn plain(report: &Report) -> Option<(usize, &Row)> {
    /// The kernel that is asked for first is the one that stands for memory-bound code.
    const KERNELS: [&str; 6] = ["triad", "copy", "add", "scale", "store", "load"];
    let place = |row: &Row| KERNELS.iter().position(|kernel| *kernel == row.kernel);
    let is_in_memory = |row: &Row| is_in_memory(row, &report.machine);
    let is_plain = |row: &&Row| row.store == StoreKind::Regular && place(row).is_some();
    let key = |row: &Row| {
        (
            is_in_memory(row),
            std::cmp::Reverse(place(row)),
            row.threads,
            row.memory == MemoryKind::Thp,
            row.policy.is_first_touch(),
            row.misaligned_bytes == 0,
            row.working_set_bytes,
        )
    };
    let row =
        steady_rows(report).filter(is_plain).max_by(|a, b| key(a).cmp(&key(b)).then(rate(a).total_cmp(&rate(b))))?;
    let last_level = report.machine.last_level_bytes(&row.cpus.iter().copied().collect());
    // Runs that never left the caches asked another question.
    let is_about_memory = is_in_memory(row) || last_level.is_none_or(|cache| row.working_set_bytes >= cache);
    let index = report.rows.iter().position(|other| std::ptr::eq(other, row))?;
    is_about_memory.then_some((index, row))
}

impl Verdict {
    /// The answer in a sentence. `None` where nothing was measured in memory.
    pub fn sentence(&self) -> Option<String> {
        let gap = self.gap.as_ref()?;
        let (reached, limit) = (BytesPerSecond(gap.reached_bps), BytesPerSecond(gap.limit_bps));
        let plain = what_ran(&gap.kernel, StoreKind::Regular, gap.threads);
        let share = percent(gap.reached_bps / gap.limit_bps);
        let why = match self.causes.first() {
            None => "nothing measured here says why it is not faster".to_string(),
            Some(first) => match first.share {
                Some(share) => format!("first to look at: {}, {} of the gap", first.cause, percent(share)),
                None => format!("first to look at: {}", first.cause),
            },
        };
        Some(format!(
            "Memory gives {reached} of payload to the plain case ({plain}), {share} of {limit} ({}); {why}.",
            gap.limit
        ))
    }

    /// The warnings that none of the causes tells of.
    pub fn other_warnings<'a>(&'a self, warnings: &'a [Warning]) -> impl Iterator<Item = &'a Warning> {
        let told = |warning: &Warning| {
            self.causes.iter().flat_map(|cause| cause.cause.warnings()).any(|head| warning.text.starts_with(head))
        };
        warnings.iter().filter(move |warning| !told(warning))
    }
}

impl Cause {
    /// `gives back 12.0 GB/s, 34% of the gap (measured)`
    pub fn gain_words(&self) -> String {
        match (self.gives_back_bps, self.share) {
            (Some(bps), Some(share)) => {
                format!("gives back {}, {} of the gap ({})", BytesPerSecond(bps), percent(share), self.basis)
            }
            _ => "what it gives back was not measured".into(),
        }
    }
}
