//! Facts about a machine, read from its `/sys` and `/proc`.
//!
//! [`Machine::live`] reads the machine this runs on, [`Machine::read`] any root folder with recorded files: a recorded
//! machine is described from its own files alone. What cannot be read is a [`Fact::Absent`] with its reason, never a zero
//! and never a guess. Nothing here fails for a file that is missing or says nonsense.

mod caches;
mod cpus;
mod cpuset;
mod domains;
pub mod energy;
mod fact;
mod firmware;
mod identity;
mod libraries;
mod limits;
mod nature;
mod nodes;
mod pages;
mod room;
mod settings;
mod source;
mod spec;
mod topology;
mod uncore;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use caches::{Cache, CacheKind};
pub use cpus::{CoreKind, Cpu, Frequency};
pub use cpuset::{CpuSet, CpuSetError};
pub use domains::{Domain, DomainKind};
pub use energy::{EnergyMeter, EnergyPart, MeterKind};
pub use fact::Fact;
pub use firmware::Dimm;
pub use identity::{Hypervisor, Identity, Tsc};
pub use libraries::Libraries;
pub use limits::{CpuTimeLimit, Limits, MemoryLimit};
pub use nature::{Evidence, NodeKind, NodeNature};
pub use nodes::{Access, DaxDevice, Distance, MemorySideCache, Node, Tier, node_available, node_huge_pages};
pub use pages::{HugePool, Memory, Pages, ThpSize};
pub use room::{NodeRoom, Room, margin};
pub use settings::Settings;
pub use source::Source;
pub use spec::{Arithmetic, Balance, Channels, Cores, Sheet, SheetCache, SheetError, Signs};
pub use topology::Relation;
pub use uncore::{ControllerCounter, Direction, controller_counters};

use crate::units::{Bytes, BytesPerSecond};

/// All facts about a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Processor, kernel, hypervisor.
    pub identity: Identity,
    /// Hardware threads, ascending, offline ones included.
    pub cpus: Vec<Cpu>,
    /// Caches, each once, by level, kind and first CPU.
    pub caches: Vec<Cache>,
    /// Locality domains, ascending. Empty where the kernel knows none.
    pub nodes: Vec<Node>,
    /// Memory of the whole machine.
    pub memory: Memory,
    /// Page sizes and pools of huge pages.
    pub pages: Pages,
    /// Memory tiers; empty before kernel 6.1.
    pub tiers: Vec<Tier>,
    /// DAX devices; empty on most machines.
    pub dax: Vec<DaxDevice>,
    /// Memory modules. Usually only root may read them, and a virtual machine has none.
    pub dimms: Fact<Vec<Dimm>>,
    /// What this process may use.
    pub limits: Limits,
    /// Settings of the kernel.
    pub settings: Settings,
    /// Libraries that place memory.
    #[serde(default)]
    pub libraries: Libraries,
    /// Meters of energy and power; absent where there is none.
    #[serde(default = "unknown_meters")]
    pub energy: Fact<Vec<EnergyMeter>>,
    /// Things the machine has, but that could not be understood, and so are in none of the lists above.
    pub unread: Vec<Unread>,
}

/// Something that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unread {
    /// What it is.
    pub what: String,
    /// Why it could not be understood.
    pub reason: String,
}

impl Unread {
    fn note(unread: &mut Vec<Unread>, what: String, reason: String) {
        unread.push(Unread { what, reason });
    }
}

/// Why there is no machine to read; the text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The root is no folder.
    #[error("'{}' is not a folder; name one that holds a machine's sys and proc folders", root.display())]
    NoFolder {
        /// The folder asked for.
        root: PathBuf,
    },
    /// The root is the root of no machine.
    #[error(
        "'{}' has neither a sys nor a proc folder, so it holds no recorded machine; name the folder that holds them \
         (an unpacked recording often has it one level down)",
        root.display()
    )]
    NoTree {
        /// The folder asked for.
        root: PathBuf,
    },
}

impl Machine {
    /// The machine this runs on. Takes a few milliseconds; more with hundreds of CPUs.
    pub fn live() -> Self {
        Machine::from_source(&Source::live())
    }

    /// A recorded machine: `root` holds its `sys` and `proc` folders.
    pub fn read(root: &Path) -> Result<Self, MachineError> {
        Source::recorded(root).map(|source| Machine::from_source(&source))
    }

    /// The machine that a source shows.
    pub fn from_source(source: &Source) -> Self {
        let mut unread = Vec::new();
        let identity = identity::read(source);
        let is_virtual = matches!(identity.hypervisor.known(), Some(Hypervisor::Unnamed | Hypervisor::Vendor(_)));
        let mut cpus = cpus::read(source, &mut unread);
        let online = cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect();
        let caches = caches::read(source, &online, &mut unread);
        let nodes = nodes::read(source);
        cpus::place(&mut cpus, nodes.iter().filter_map(|node| Some((node.id, node.cpus.known()?))));
        cpus::classify(source, &mut cpus, &caches);
        Machine {
            memory: pages::memory(source),
            pages: pages::pages(source, &identity.architecture),
            tiers: nodes::tiers(source),
            dax: nodes::dax(source),
            dimms: firmware::dimms(source),
            limits: limits::read(source),
            settings: settings::read(source, &cpus),
            libraries: libraries::read(source),
            energy: energy::read(source, is_virtual),
            identity,
            cpus,
            caches,
            nodes,
            unread,
        }
    }

    /// Whether it is known to be a virtual machine.
    pub fn is_virtual(&self) -> bool {
        matches!(self.identity.hypervisor.known(), Some(Hypervisor::Unnamed | Hypervisor::Vendor(_)))
    }

    /// The memory limit that leaves least, of all control groups above this process. `None` when there is none.
    pub fn memory_limit(&self) -> Option<&MemoryLimit> {
        let limits = self.limits.memory.known()?.iter();
        limits.min_by_key(|limit| (limit.headroom().get().unwrap_or(limit.limit), limit.limit))
    }

    /// What this process can still have: what the kernel says is available, or what the tightest control group leaves,
    /// whichever is less. Bytes.
    pub fn available_memory(&self) -> Fact<Bytes> {
        let headroom = self.memory_limit().map(|limit| limit.headroom().get().unwrap_or(limit.limit));
        self.memory.available.clone().map(|available| headroom.map_or(available, |headroom| headroom.min(available)))
    }

    /// The transfer rate of all memory modules together at their configured speed: no machine is faster, and one with two
    /// modules to a channel is at most half as fast. `None` unless every filled slot tells its width and speed.
    pub fn dimm_peak(&self) -> Option<BytesPerSecond> {
        let filled: Vec<&Dimm> = self.dimms.known()?.iter().filter(|dimm| dimm.size.known().is_some()).collect();
        let rates = filled.iter().map(|dimm| {
            let bytes = f64::from(dimm.data_width_bits.get()?) / 8.0;
            Some(bytes * f64::from(dimm.configured_mt_s.get()?) * 1e6)
        });
        let sum = rates.sum::<Option<f64>>().filter(|sum| *sum > 0.0)?;
        Some(BytesPerSecond(sum))
    }

    /// One line: processor, packages, cores, caches of the first CPU, memory, nodes.
    pub fn summary(&self) -> String {
        let model = self.identity.model.known().map_or("unknown processor", String::as_str);
        let mut parts = vec![model.split_whitespace().collect::<Vec<_>>().join(" ")];
        let (packages, cores, threads) = (self.packages(), self.cores().len(), self.online_cpus().len());
        if packages > 0 {
            parts.push(count(packages, "package"));
        }
        parts.push(count(cores, "core"));
        if threads > cores {
            parts.push(count(threads, "thread"));
        }
        let first = self.usable_cpus().first().or_else(|| self.online_cpus().first());
        for cache in first.map(|cpu| self.data_caches(cpu)).unwrap_or_default() {
            parts.push(format!("L{} {}", cache.level, cache.size));
        }
        parts.extend(self.total_memory().map(|total| rounded(total).to_string()));
        if !self.nodes.is_empty() {
            parts.push(count(self.nodes.len(), "node"));
        }
        parts.join(", ")
    }

    /// Memory of the machine; the sum of its nodes where the machine as a whole does not tell.
    fn total_memory(&self) -> Option<Bytes> {
        let nodes = || self.nodes.iter().map(|node| Some(node.total.get()?.0)).sum::<Option<u64>>();
        self.memory.total.get().or_else(|| nodes().filter(|sum| *sum > 0).map(Bytes))
    }
}

fn unknown_meters() -> Fact<Vec<EnergyMeter>> {
    Fact::absent("the record is older than the reading of meters")
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// To the nearest GiB, as machines are sold: firmware and kernel keep some memory from the count.
fn rounded(total: Bytes) -> Bytes {
    let gib = (total.0 + (1 << 29)) >> 30;
    if gib >= 8 { Bytes::gib(gib) } else { total }
}
