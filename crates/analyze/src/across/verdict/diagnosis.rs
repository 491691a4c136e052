//! Causes, and what they come to.

use membound_core::kernel::catalog::Kernel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::across::warnings::head;
use membound_core::units::{counted, percent, words};

use crate::warning::Warning;
use membound_core::kernel::StoreKind;
use membound_core::units::BytesPerSecond;

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
        /// The host runs two of the CPUs on one core for a part of the time.
        SharedCore = "CPUs that share a core",
        /// Others' threads run on the cores: another guest's, on the other hyperthread.
        CoreNeighbour = "neighbour on the core",
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
    pub(crate) fn spoils_figures(self) -> bool {
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
    GainBasis, "basis" {
        /// Both ways were measured in this record.
        Measured = "measured",
        /// By what was measured and how it should scale.
        Estimated = "estimated",
        /// Nothing measured here tells.
        Unknown = "not measured",
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
    /// The same as a share of the gap, 0 to 1; absent where there is no gap.
    pub share: Option<f64>,
    /// How that is known.
    pub basis: GainBasis,
    /// What helps.
    pub cure: String,
    /// The command that tests it.
    pub test: String,
}

/// Why memory-bound code is not faster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// Absent where nothing was measured in memory.
    pub gap: Option<Gap>,
    /// Causes, those that matter most first.
    pub causes: Vec<Cause>,
}

impl Diagnosis {
    /// The answer in a sentence. `None` where nothing was measured in memory.
    pub fn sentence(&self) -> Option<String> {
        let gap = self.gap.as_ref()?;
        let (reached, limit) = (BytesPerSecond(gap.reached_bps), BytesPerSecond(gap.limit_bps));
        let plain = what_ran(&gap.kernel, StoreKind::Regular, gap.threads);
        let share = percent(gap.reached_bps / gap.limit_bps);
        let why = match self.causes.first() {
            None => "no cause that is looked for shows, in one kernel or in all together".to_string(),
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
    /// `gives back 12.0 GB/s, 34% of the gap (measured)`; without a share where there is no gap.
    pub fn gain_words(&self) -> String {
        match (self.gives_back_bps, self.share) {
            (Some(bps), Some(share)) => {
                format!("gives back {}, {} of the gap ({})", BytesPerSecond(bps), percent(share), self.basis)
            }
            (Some(bps), None) => format!("gives back {} ({})", BytesPerSecond(bps), self.basis),
            (None, _) => "what it gives back was not measured".into(),
        }
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
    /// Its payload bytes a second, undisturbed.
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

/// `triad, regular stores, 8 threads`
pub(crate) fn what_ran(kernel: &str, store: StoreKind, threads: usize) -> String {
    let stores = Kernel::named(kernel).is_some_and(|row| row.formula().store().is_some());
    let store = if stores { format!(", {store} stores") } else { String::new() };
    format!("{kernel}{store}, {}", counted(threads, "thread"))
}
