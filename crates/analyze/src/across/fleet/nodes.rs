//! A fleet as it is compared: its nodes, their figures and facts.

use membound_core::units::counted;
use std::sync::Arc;

use crate::across::fleet::cells::Cell;
/// A fleet, reduced: what records told, ready to be compared.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// What was measured, on any node.
    pub cells: Vec<Cell>,
    /// The nodes.
    pub nodes: Vec<Node>,
}
/// One machine of a fleet: one record.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name. Of several records with one host name, with the record's name behind it.
    pub host: String,
    /// The record.
    pub file: String,
    /// Start of the record, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// What makes it comparable.
    pub hardware: Arc<Hardware>,
    /// What may explain its speed.
    pub facts: Facts,
    /// Its figures, by rising cell.
    pub figures: Vec<Figure>,
}
/// A figure of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Which cell of the fleet.
    pub cell: u32,
    /// Natural logarithm of the figure, in the cell's unit.
    pub log: f32,
    /// Standard error of that, by the node's own samples.
    pub error: f32,
}
/// What a node's record tells beside its figures. Shares are of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Median core clock during samples, hertz.
    pub clock_hz: Option<f64>,
    /// Memory modules fitted.
    pub modules: Option<u32>,
    /// Whether they are of several sizes.
    pub has_uneven_modules: bool,
    /// The slowest speed that the firmware has set for a module, mega-transfers a second.
    pub module_mt_s: Option<u32>,
    /// The slowest that one of them is made for.
    pub module_rated_mt_s: Option<u32>,
    /// Memory of the machine, bytes.
    pub memory_bytes: Option<u64>,
    /// Locality domains with CPUs.
    pub numa_nodes: Option<u32>,
    /// Of the memory that was wanted in huge pages, the share that came in them.
    pub huge_share: Option<f64>,
    /// Pages on another node than the one that was named.
    pub stray_share: Option<f64>,
    /// Page cache before the run, of all memory.
    pub page_cache_share: Option<f64>,
    /// The least share of a node's memory that was free before the run.
    pub least_free_share: Option<f64>,
    /// Time that the hypervisor took, of all CPUs' time.
    pub steal_share: Option<f64>,
    /// Samples during which another task ran.
    pub disturbed_share: Option<f64>,
    /// By how much the fast tenth of samples in memory is above their median.
    pub unsteady_memory: Option<f64>,
    /// The same in the first two caches.
    pub unsteady_caches: Option<f64>,
    /// Runnable tasks before the run, averaged over a minute.
    pub load_average: Option<f64>,
    /// CPUs whose time a control group allows.
    pub cpu_time: Option<f64>,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
    /// Cases that crashed or came to wrong results.
    pub failed_cases: usize,
    /// Settings by name, as far as they could be read, in the same order on all nodes.
    pub settings: Vec<(&'static str, Arc<str>)>,
}
/// The setting that says how many CPUs' time a control group allows,
pub(crate) const CPU_TIME_LIMIT: &str = "limit of CPU time";
/// and its value where that is all.
pub(crate) const NO_LIMIT: &str = "none";

impl Facts {
    /// A setting's value.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.0 == name).map(|setting| &*setting.1)
    }
}

/// What makes machines comparable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hardware {
    /// The processor's name.
    pub processor: String,
    /// Its family, model and stepping; empty where not known.
    pub signature: String,
    /// Packages.
    pub packages: usize,
    /// Cores.
    pub cores: usize,
    /// Caches of the first CPU: `L1 32 KiB, L2 1 MiB`.
    pub caches: String,
}
impl Hardware {
    /// In words: processor, packages, cores.
    pub(crate) fn name(&self) -> String {
        let mut parts = vec![self.processor.split_whitespace().collect::<Vec<_>>().join(" ")];
        parts.extend((self.packages > 0).then(|| counted(self.packages, "package")));
        parts.push(counted(self.cores, "core"));
        parts.join(", ")
    }
}
