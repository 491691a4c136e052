//! Records to answers: what a view shows is a [`Report`], worked out here from records alone.

use crate::warning::Warning;

use crate::across::first_touch::FirstTouchSpeed;
use crate::across::host_states::HostStates;
use crate::across::limits::Limits;
use crate::across::numa::rows::Numa;
use crate::across::roofline::Roofline;
use crate::across::shared_cores::SharedCores;
use crate::across::traffic::WriteAllocate;
use crate::across::verdict::diagnosis::Diagnosis;
use crate::across::weights::Weighting;
use crate::experiments::addrmap::rows::AddrmapRow;
use crate::experiments::bandwidth::answer::Bandwidth;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::bandwidth::stores::Crossover;
use crate::experiments::bandwidth::stream::{Scaling, StreamTable};
use crate::experiments::c2c::rows::Handovers;
use crate::experiments::copies::rows::Copies;
use crate::experiments::device::rows::OnDevice;
use crate::experiments::energy::rows::EnergyRow;
use crate::experiments::flops::FlopsRow;
use crate::experiments::kinds::rows::Kinds;
use crate::experiments::latency::chases::Latency;
use crate::experiments::loaded::rows::UnderLoad;
use crate::experiments::offsets::rows::OffsetRow;
use crate::experiments::page_cache::rows::PageCacheReport;
use crate::experiments::pages::rows::PageRow;
use crate::experiments::pingpong::rows::Messages;
use crate::experiments::plain::Plain;
use crate::experiments::rounding::rows::Rounding;
use crate::experiments::streams::rows::Congestion;
use crate::hierarchy::names::Levels;
use membound_core::machine::Machine;
use membound_core::record;
use membound_core::record::{Clock, End, Environment};

/// Everything a view can show of one record.
#[derive(Debug, Clone)]
pub struct Report {
    /// The host's name.
    pub host: String,
    /// The tool that measured.
    pub tool: String,
    /// The command line.
    pub command: Vec<String>,
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
    /// Cases that were visited, each counted once.
    pub visited: u64,
    /// One row a case, by kernel, threads, memory, size, and way of touching it.
    pub rows: Vec<BandwidthRow>,
    /// Memory that a device shares with the processor.
    pub device: OnDevice,
    /// Copies between the host's memory and devices'.
    pub copies: Copies,
    /// What pages cost: one row a case, by work, memory and threads.
    pub pages: Vec<PageRow>,
    /// What offsets cost: one row for each access and place.
    pub offsets: Vec<OffsetRow>,
    /// What passing a line between cores costs.
    pub handovers: Handovers,
    /// Latency of memory under load.
    pub loaded: UnderLoad,
    /// Where lines live: one row a memory that was asked about.
    pub addrmap: Vec<AddrmapRow>,
    /// What work costs in energy: one row a case and meter.
    pub energy: Vec<EnergyRow>,
    /// One sum in many ways, if that was asked for.
    pub rounding: Rounding,
    /// Many streams at once, by their offsets.
    pub congestion: Congestion,
    /// Plain experiments.
    pub plain: Plain,
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
    /// Levels of the memory system as all curves show them.
    pub levels: Levels,
    /// Threads that have less than their core.
    pub shared_cores: SharedCores,
    /// Where a host had the CPUs of a guest, if that changed.
    pub host_states: Option<HostStates>,
    /// What the first touch of the run's own memory cost, if it touched much.
    pub first_touch: Option<FirstTouchSpeed>,
    /// Where non-temporal stores overtake regular ones.
    pub crossovers: Vec<Crossover>,
    /// Bandwidth over threads.
    pub scaling: Vec<Scaling>,
    /// What the write-allocate costs.
    pub write_allocate: Vec<WriteAllocate>,
    /// Pages on two nodes: which ratio is best.
    pub weightings: Vec<Weighting>,
    /// STREAM's tables, one for each memory, if its kernels were measured.
    pub stream: Vec<StreamTable>,
    /// The answer, most important first: whole sentences with their numbers.
    pub findings: Vec<String>,
    /// What disturbed or limits the figures.
    pub warnings: Vec<Warning>,
    /// Why memory-bound code is not faster here.
    pub verdict: Diagnosis,
}

impl Report {
    /// Whether all experiments were planned: the command line names none. So it is taken to be where there is no command line.
    pub(crate) fn is_of_all(&self) -> bool {
        record::subcommand(&self.command).is_none()
    }

    /// Whether the run was killed.
    pub(crate) fn is_cut_off(&self) -> bool {
        record::is_cut_off(&self.command, self.end.as_ref())
    }

    /// What kernels over streams tell.
    pub fn bandwidth(&self) -> Bandwidth<'_> {
        let Report { rows, levels, crossovers, scaling, machine, .. } = self;
        let known = self.limits.memory.iter().filter_map(|memory| Some((memory, memory.bps.as_ref()?)));
        let words = known.filter(|(_, limit)| limit.is_known()).map(|(memory, limit)| match &self.limits.memory[..] {
            [_] => format!("{}, {}", limit.basis, limit.says),
            _ => format!("{}: {}, {}", memory.title(), limit.basis, limit.says),
        });
        let memory_limit = words.reduce(|all, next| format!("{all}; {next}"));
        Bandwidth { rows, levels: &levels.all, hierarchy: levels, crossovers, scaling, machine, memory_limit }
    }
}
