//! Facts about a machine, read from its `/sys` and `/proc`.
//!
//! [`Machine::read`] reads any root folder with recorded files: a recorded machine is described from its own files alone.
//! The machine that the program runs on is another [`Source`], which knows what the processor says as well. What cannot be read is a [`Fact::Absent`] with its reason, never a zero
//! and never a guess. Nothing here fails for a file that is missing or says nonsense.

mod arm;
pub mod caches;
mod counting;
pub mod cpus;
pub mod cpuset;
pub mod devices;
pub mod domains;
pub mod energy;
pub mod fact;
pub mod firmware;
pub mod identity;
pub mod libraries;
pub mod limits;
pub mod nature;
pub mod nodes;
pub mod pages;
pub mod room;
pub mod settings;
pub mod source;
pub mod spec;
pub mod topology;
pub mod uncore;

use crate::machine::fact::Unread;
use crate::machine::source::MachineError;
use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::caches::Cache;
use crate::machine::cpus::Cpu;
use crate::machine::cpuset::IDS_MAX;
use crate::machine::energy::EnergyMeter;
use crate::machine::fact::Fact;
use crate::machine::firmware::Dimm;
use crate::machine::identity::Identity;
use crate::machine::libraries::Libraries;
use crate::machine::limits::{Limits, MemoryLimit};
use crate::machine::nodes::{DaxDevice, Node, Tier};
use crate::machine::pages::{Memory, Pages};
use crate::machine::settings::Settings;
use crate::machine::source::{Hypervisor, Source};
use crate::units::{Bytes, BytesPerSecond, counted};

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

impl Machine {
    /// A recorded machine: `root` holds its `sys` and `proc` folders.
    pub fn read(root: &Path) -> Result<Self, MachineError> {
        Source::recorded(root).map(|source| Machine::from_source(&source))
    }

    /// The machine that a source shows. Takes a few milliseconds; more with hundreds of CPUs.
    pub fn from_source(source: &Source) -> Self {
        let mut unread = Vec::new();
        let identity = identity::read(source);
        let is_virtual = matches!(identity.hypervisor.known(), Some(Hypervisor::Unnamed | Hypervisor::Vendor(_)));
        let limits = limits::read(source);
        let allowed = limits.allowed_cpus.known().or(limits.cpuset_cpus.known());
        let mut cpus = cpus::read(source, allowed, &mut unread);
        let online = cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect();
        let caches = caches::read(source, &online, &mut unread);
        let nodes = nodes::read(source);
        cpus::place(&mut cpus, nodes.iter().filter_map(|node| Some((node.id, node.cpus.known()?))));
        cpus::classify(source, &mut cpus, &caches, identity.vendor.known().map(String::as_str));
        Machine {
            memory: pages::memory(source),
            pages: pages::pages(source, &identity.architecture),
            tiers: nodes::tiers(source),
            dax: nodes::dax(source),
            dimms: firmware::dimms(source),
            limits,
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

    /// What a machine from elsewhere has more of than any machine, if anything: working with it would take long.
    pub fn excess(&self) -> Option<String> {
        let shared: usize = self.caches.iter().map(|cache| cache.cpus.len()).sum();
        let counts = [
            (self.cpus.len(), "CPUs"),
            (self.caches.len(), "caches"),
            (self.nodes.len(), "nodes"),
            (shared, "sharers of caches"),
        ];
        let most = [IDS_MAX as usize, IDS_MAX as usize, 4096, 64 * IDS_MAX as usize];
        let excess = counts.into_iter().zip(most).find(|((count, _), most)| count > most);
        if let Some(((count, what), most)) = excess {
            return Some(format!("its machine has {count} {what}; no machine has more than {most}"));
        }
        // Levels are matched with caches in every way there is.
        const OF_A_CPU_MOST: usize = 8;
        let mut of_a_cpu: BTreeMap<u32, usize> = BTreeMap::new();
        let cpus = self.caches.iter().flat_map(|cache| cache.cpus.iter());
        cpus.for_each(|cpu| *of_a_cpu.entry(cpu).or_default() += 1);
        let crowded = of_a_cpu.into_iter().find(|(_, caches)| *caches > OF_A_CPU_MOST);
        crowded.map(|(cpu, caches)| format!("its CPU {cpu} has {caches} caches; no CPU has more than {OF_A_CPU_MOST}"))
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

    /// The modules of DRAM beside the processor. Firmware lists high-bandwidth memory in its package, persistent memory in the
    /// same slots, and the flash that it lies in itself, too. Those of a virtual machine are made up.
    pub fn modules(&self) -> Option<Vec<&Dimm>> {
        if self.is_virtual() {
            return None;
        }
        let is_module = |dimm: &&Dimm| dimm.size.known().is_some() && dimm.is_in_slot() && !dimm.is_persistent();
        Some(self.dimms.known()?.iter().filter(is_module).collect())
    }

    /// How many slots for modules there are: empty ones, and those with persistent memory, are among them.
    pub fn module_slots(&self) -> Option<usize> {
        Some(self.dimms.known()?.iter().filter(|dimm| dimm.is_in_slot()).count())
    }

    /// The transfer rate of all memory modules together at their configured speed: no machine is faster, and one with two
    /// modules to a channel is at most half as fast. `None` unless every filled slot tells its width and speed.
    pub fn dimm_peak(&self) -> Option<BytesPerSecond> {
        let modules = self.modules()?;
        let rates = modules.iter().map(|dimm| {
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
            parts.push(counted(packages, "package"));
        }
        parts.push(counted(cores, "core"));
        if threads > cores {
            parts.push(counted(threads, "thread"));
        }
        let first = self.usable_cpus().first().or_else(|| self.online_cpus().first());
        for cache in first.map(|cpu| self.data_caches(cpu)).unwrap_or_default() {
            parts.push(format!("L{} {}", cache.level, cache.size));
        }
        parts.extend(self.total_memory().map(|total| rounded(total).to_string()));
        if !self.nodes.is_empty() {
            parts.push(counted(self.nodes.len(), "node"));
        }
        parts.join(", ")
    }

    /// Memory of the machine; the sum of its nodes where the machine as a whole does not tell.
    fn total_memory(&self) -> Option<Bytes> {
        let add = |sum: u64, node: &Node| Some(sum.saturating_add(node.total.get()?.0));
        let nodes = || self.nodes.iter().try_fold(0, add);
        self.memory.total.get().or_else(|| nodes().filter(|sum| *sum > 0).map(Bytes))
    }
}

fn unknown_meters() -> Fact<Vec<EnergyMeter>> {
    Fact::absent("the record is older than the reading of meters")
}

/// To the nearest GiB, as machines are sold: firmware and kernel keep some memory from the count.
fn rounded(total: Bytes) -> Bytes {
    let gib = total.0.saturating_add(1 << 29) >> 30;
    if gib >= 8 { Bytes::gib(gib) } else { total }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record may claim anything.
    #[test]
    fn memory_is_rounded_whatever_its_size() {
        assert_eq!(rounded(Bytes(u64::MAX)), Bytes::gib((1 << 34) - 1));
        assert_eq!(rounded(Bytes(24_500_000_000)), Bytes::gib(23));
        assert_eq!(rounded(Bytes::mib(900)), Bytes::mib(900));
    }
}
