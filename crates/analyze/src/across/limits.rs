//! What a machine can do at most, and how that is known: by its specification sheet, by its memory modules as they are
//! configured, or, where neither tells, by the best that was measured, which is called so.
//!
//! Limits of memory belong to a memory and not to a machine: nodes of one kind (DRAM, HBM, a device's) in one package,
//! with the memory-side cache in front of them. Several memories move at once, so their limits add. Where one of them has
//! no published peak, nothing can be too fast.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::quality::{ABOVE_A_LIMIT, Status};
use crate::wording;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{Element, StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::cpus::CoreKind;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::nature::{NodeKind, NodeNature};
use membound_core::machine::spec::{Balance, Channels, Cores, Sheet, SheetCache};
use membound_core::units::{Bytes, BytesPerSecond, Hertz, percent, words};

words! {
    /// How a limit is known, weakest last.
    LimitBasis, "basis" {
        /// The memory modules at the speed that the firmware has set.
        Configured = "configured",
        /// A specification sheet.
        Specified = "specified",
        /// Nothing tells of it: the best figure of this record.
        BestMeasured = "best measured",
    }
}

/// A limit and how it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// In the unit of its place.
    pub value: f64,
    /// How it is known.
    pub basis: LimitBasis,
    /// The arithmetic behind it, in words.
    pub says: String,
}

impl Limit {
    /// Both together: what moves at once.
    fn and(self, other: Limit) -> Limit {
        let each = format!("{} each", other.says);
        let says = match self.says == other.says || self.says == each {
            true => each,
            false => format!("{} and {}", self.says, other.says),
        };
        Limit { value: self.value + other.value, basis: self.basis.max(other.basis), says }
    }

    /// Whether it is known without measuring: a share of it says something.
    pub fn is_known(&self) -> bool {
        self.basis != LimitBasis::BestMeasured
    }
}

/// What a machine can do at most.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Limits {
    /// Name of the specification sheet; absent: none is for this machine.
    pub sheet: Option<String>,
    /// Where the sheet's figures are from.
    pub source: Option<String>,
    /// Clock of a core in hertz: the highest reading, since a core is never faster than its fastest and readings only err
    /// towards slow; else that of the sheet.
    pub clock_hz: Option<Limit>,
    /// Each memory: nodes of one kind in one package.
    pub memory: Vec<MemoryLimit>,
    /// Bytes per second of all modules together; absent where the firmware does not tell.
    pub modules_bps: Option<f64>,
    /// What one core moves from and to each cache, nearest first.
    pub caches: Vec<CacheLimit>,
    /// What one core computes, by element, width and balance.
    pub flops: Vec<FlopsLimit>,
    /// Channels of memory by the sheet, over all packages.
    #[serde(skip)]
    pub channels: Option<usize>,
    /// The highest clock by number of threads: with more of them some processors run slower.
    #[serde(skip)]
    pub clocks: Vec<(usize, f64)>,
}

/// A memory: nodes of one kind, in one package where that is known.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MemoryLimit {
    /// What it is, such as `DDR4` or `MCDRAM in front of DDR4`.
    pub name: String,
    /// Its kind.
    pub kind: NodeKind,
    /// Its nodes; empty where the kernel knows none.
    pub nodes: CpuSet,
    /// Bytes per second that it moves, reads and writes together; absent where neither sheet nor module nor measurement tells.
    pub bps: Option<Limit>,
}

/// A cache, for one core.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CacheLimit {
    /// `L1`, `L2`, `L3`.
    pub level: String,
    /// Bytes per second that it loads.
    pub load_bps: Option<Limit>,
    /// Bytes per second that it stores.
    pub store_bps: Option<Limit>,
    /// What the sheet tells of it.
    #[serde(skip)]
    pub ports: Option<SheetCache>,
}

/// Arithmetic of one core.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FlopsLimit {
    /// What is computed with.
    pub element: Element,
    /// Width of an instruction.
    pub width: Width,
    /// The mix of additions and multiplications.
    pub balance: Balance,
    /// Flops in a cycle.
    pub per_cycle: f64,
    /// Flops a second; absent where no clock is known.
    pub per_s: Option<Limit>,
}

/// The machine's limits by a sheet (its own, where none is given) and by what was measured.
pub fn limits(machine: &Machine, sheet: Option<&Sheet>, rows: &[BandwidthRow]) -> Limits {
    let own = || Sheet::of(machine);
    let sheet = sheet.cloned().or_else(own);
    let cores = sheet.as_ref().and_then(|sheet| sheet.cores.first());
    let clocks = clocks(rows);
    let clock = clock(cores, &clocks);
    Limits {
        sheet: sheet.as_ref().map(|sheet| sheet.name.clone()),
        source: sheet.as_ref().map(|sheet| sheet.source.clone()),
        memory: memories(machine, sheet.as_ref(), rows),
        modules_bps: machine.dimm_peak().map(|peak| peak.0),
        caches: caches(cores, clock.as_ref(), rows),
        flops: cores.map(|cores| flops(cores, clock.as_ref())).unwrap_or_default(),
        channels: sheet.as_ref().and_then(|sheet| channels(sheet, machine)),
        clock_hz: clock,
        clocks,
    }
}

/// The highest reading of the core clock, by number of threads.
fn clocks(rows: &[BandwidthRow]) -> Vec<(usize, f64)> {
    let mut highest = BTreeMap::new();
    for (threads, hz) in rows.iter().filter_map(|row| Some((row.threads(), row.core_clock_hz?))) {
        let held: &mut f64 = highest.entry(threads).or_default();
        *held = held.max(hz);
    }
    highest.into_iter().collect()
}

/// The clock measured with the fewest threads, else that of the sheet.
fn clock(cores: Option<&Cores>, clocks: &[(usize, f64)]) -> Option<Limit> {
    let says = "the highest reading of a chain of dependent additions";
    let measured = clocks.first().map(|(_, hz)| (*hz, LimitBasis::BestMeasured, says));
    let specified = || Some((cores?.clock_ghz? * 1e9, LimitBasis::Specified, "by the sheet"));
    let (value, basis, says) = measured.or_else(specified)?;
    Some(Limit { value, basis, says: format!("{} {says}", Hertz(value)) })
}

/// Whether all of these CPUs are cores that limits are of: a sheet's first, which are a machine's strongest.
pub(crate) fn are_of_sheet(machine: &Machine, cpus: &CpuSet) -> bool {
    let kinds = cpus.iter().filter_map(|cpu| machine.cpu(cpu)?.kind.get());
    kinds.into_iter().all(|kind| [CoreKind::Uniform, CoreKind::Performance].contains(&kind))
}

/// Nodes of one kind, one side cache and one package are one memory.
fn memories(machine: &Machine, sheet: Option<&Sheet>, rows: &[BandwidthRow]) -> Vec<MemoryLimit> {
    let mut found: BTreeMap<(Option<u32>, NodeKind, Option<NodeKind>), Vec<u32>> = BTreeMap::new();
    for nature in machine.natures().iter().filter(|nature| nature.kind != NodeKind::Empty) {
        let cache = machine.node(nature.node).and_then(|node| machine.side_cache(node)).map(|cache| cache.kind);
        found.entry((machine.package_of(nature.node), nature.kind, cache)).or_default().push(nature.node);
    }
    if found.is_empty() {
        found.insert((None, machine.kind_without_nodes(), None), Vec::new());
    }
    let one = |((package, kind, cache), nodes): ((Option<u32>, NodeKind, Option<NodeKind>), Vec<u32>)| {
        let [behind, front] = [Some(kind), cache].map(|kind| kind.map(|kind| memory(machine, sheet, kind, package)));
        let (behind, front) = (behind.unwrap_or_default(), front);
        let name = match &front {
            Some(front) => format!("{} in front of {}", front.0, behind.0),
            None => behind.0,
        };
        let nodes: CpuSet = nodes.into_iter().collect();
        // What hits the cache and what misses it can move at once.
        let bps = match front {
            Some(front) => front.1.zip(behind.1).map(|(front, behind)| front.and(behind)),
            None => behind.1,
        };
        let bps = bps.or_else(|| best_of_memory(rows, &nodes));
        MemoryLimit { name, kind, nodes, bps }
    };
    found.into_iter().map(one).collect()
}

/// Name and limit of a kind of memory: channels x transfers x width, at the modules' speed where the firmware tells it.
fn memory(machine: &Machine, sheet: Option<&Sheet>, kind: NodeKind, package: Option<u32>) -> (String, Option<Limit>) {
    let model = machine.identity.model.known().map_or("", String::as_str);
    let channels = sheet.and_then(|sheet| sheet.memory_of(kind, model));
    let is_beside = kind == NodeKind::Dram;
    let technology = || machine.modules()?.first()?.technology.known().cloned().filter(|_| is_beside);
    let name = channels.map(|channels| channels.name.clone()).or_else(technology).unwrap_or_else(|| kind.to_string());
    (name, peak(machine, channels, is_beside, package))
}

/// Of the memory of a package, or of all.
fn peak(machine: &Machine, channels: Option<&Channels>, is_beside: bool, package: Option<u32>) -> Option<Limit> {
    let packages = if package.is_some() { 1.0 } else { machine.packages().max(1) as f64 };
    // What firmware lists of soldered memory are no modules: neither their number nor their width tells of channels.
    let is_beside = is_beside && !channels.is_some_and(Channels::is_soldered);
    let mt_s = slowest(machine).filter(|_| is_beside);
    let at_speed = mt_s.and_then(|mt_s| Some((channels?.at(Some(mt_s))? * packages, mt_s)));
    let tells = is_beside && (at_speed.is_some() || !may_share_channels(machine));
    let modules = modules_peak(machine, package).filter(|_| tells);
    match (at_speed, modules) {
        // With two modules to a channel, the modules together promise twice what the channels can.
        (Some((value, mt_s)), Some(modules)) if value < modules => {
            let says = format!("{} at {mt_s} MT/s as configured", channel_words(channels?, packages));
            Some(Limit { value, basis: LimitBasis::Configured, says })
        }
        (_, Some(value)) => {
            let says =
                if package.is_some() && machine.packages() > 1 { MODULES_OF_PACKAGE } else { ALL_MODULES }.into();
            Some(Limit { value, basis: LimitBasis::Configured, says })
        }
        _ => {
            let value = channels?.bytes_per_s()? * packages;
            let speed = channels?.mt_s.map_or(String::new(), |mt_s| format!(" at {mt_s} MT/s"));
            let says = format!("{}{speed} at most", channel_words(channels?, packages));
            Some(Limit { value, basis: LimitBasis::Specified, says })
        }
    }
}

/// Whether two modules may share a channel, so that all together promise twice what the channels can: more than half of the slots are
/// filled, and labels such as `A1` and `A2` differ in their number alone. A board with two slots has a channel for each.
fn may_share_channels(machine: &Machine) -> bool {
    let (Some(modules), Some(slots)) = (machine.modules(), machine.module_slots()) else { return false };
    let labels: BTreeSet<&str> = modules.iter().filter_map(|dimm| Some(dimm.slot.known()?.as_str())).collect();
    let stems: BTreeSet<&str> =
        labels.iter().map(|label| label.trim_end_matches(|c: char| c.is_ascii_digit())).collect();
    slots > 2 && modules.len() > slots / 2 && stems.len() < labels.len()
}

const ALL_MODULES: &str = "all memory modules at their configured speed";
const MODULES_OF_PACKAGE: &str = "the package's memory modules at their configured speed";

/// What the modules of a package can move together, or all. Firmware does not tell whose a module is: a package has as large a part of
/// them as of the memory, in whole modules.
fn modules_peak(machine: &Machine, package: Option<u32>) -> Option<f64> {
    let all = machine.dimm_peak()?.0;
    let (Some(package), Some(modules)) = (package, machine.modules()) else { return Some(all) };
    let is_beside = |nature: &&NodeNature| nature.kind == NodeKind::Dram;
    let natures = machine.natures();
    let bytes = |is_wanted: &dyn Fn(u32) -> bool| -> Option<f64> {
        let nodes = natures.iter().filter(is_beside).filter(|nature| is_wanted(nature.node));
        nodes.map(|nature| Some(machine.node(nature.node)?.total.get()?.0 as f64)).sum()
    };
    let own = bytes(&|node| machine.package_of(node) == Some(package)).zip(bytes(&|_| true).filter(|all| *all > 0.0));
    let share = own.map_or(1.0 / machine.packages().max(1) as f64, |(own, all)| own / all);
    let count = modules.len() as f64;
    Some(all * (count * share).round().max(1.0) / count)
}

/// The memory channels of all packages by a sheet, where a module fills one. Of a socket's a guest has a part that nobody names.
pub(crate) fn channels(sheet: &Sheet, machine: &Machine) -> Option<usize> {
    let model = machine.identity.model.known().map_or("", String::as_str);
    let of_package = sheet.memory_of(NodeKind::Dram, model)?.channels_of_modules()?;
    (!machine.is_virtual()).then(|| of_package as usize * machine.packages().max(1))
}

fn channel_words(memory: &Channels, packages: f64) -> String {
    let packages = if packages > 1.0 { format!("{packages} packages x ") } else { String::new() };
    match (memory.channels, memory.width_bits) {
        (Some(channels), Some(bits)) => format!("{packages}{channels} channels of {bits} bits {}", memory.name),
        _ => format!("{packages}{}", memory.name),
    }
}

/// Configured mega-transfers a second of the slowest module: all run as fast as that.
fn slowest(machine: &Machine) -> Option<u32> {
    machine.modules()?.iter().map(|dimm| dimm.configured_mt_s.get()).collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// The greatest rate of the bus in the memory of these nodes: of kernels all of whose bytes are asked for, where there are any, since
/// a write-allocate that is counted need not have happened. Some processors shorten the writing of zeros, so `init` does not count.
fn best_of_memory(rows: &[BandwidthRow], nodes: &CpuSet) -> Option<Limit> {
    let is_ours = |row: &&BandwidthRow| {
        is_measured(row, "memory") && !row.writes_zeros() && row.nodes().iter().all(|node| nodes.contains(node))
    };
    let of = |row: &BandwidthRow| Some((!row.write_allocates(), row.bus_bps?.best, row.kernel().to_string()));
    let fastest = rows.iter().filter(is_ours).filter_map(of).max_by(|a, b| (a.0.cmp(&b.0)).then(a.1.total_cmp(&b.1)));
    let (_, value, kernel) = fastest?;
    let says = format!("the best measured, by `{kernel}`: no sheet or memory module tells the limit");
    Some(Limit { value, basis: LimitBasis::BestMeasured, says })
}

fn is_measured(row: &BandwidthRow, level: &str) -> bool {
    row.quality.is_measured() && row.level.as_deref() == Some(level)
}

/// Bytes in a cycle x clock, else the best of one thread.
fn caches(cores: Option<&Cores>, clock: Option<&Limit>, rows: &[BandwidthRow]) -> Vec<CacheLimit> {
    let specified = |bytes: Option<f64>| {
        let (bytes, clock) = (bytes?, clock?);
        let says = format!("{bytes} B in a cycle x {}", clock.says);
        Some(Limit { value: bytes * clock.value, basis: LimitBasis::Specified, says })
    };
    let best = |kernel: &str, level: &str| {
        let ours = |row: &&BandwidthRow| row.kernel() == kernel && row.threads() == 1 && is_measured(row, level);
        let value = rows.iter().filter(ours).filter_map(|row| Some(row.payload_bps?.value())).reduce(f64::max)?;
        Some(Limit { value, basis: LimitBasis::BestMeasured, says: format!("the best measured, by `{kernel}`") })
    };
    let sheet = |level: u32| cores.and_then(|cores| cores.caches.iter().find(|cache| cache.level == level));
    let of = |level: u32| {
        let (name, told) = (format!("L{level}"), sheet(level));
        let load_bps = specified(told.and_then(|cache| cache.load_bytes)).or_else(|| best("load", &name));
        let store_bps = specified(told.and_then(|cache| cache.store_bytes)).or_else(|| best("store", &name));
        CacheLimit { level: name, load_bps, store_bps, ports: told.cloned() }
    };
    (1..=4).map(of).filter(|cache| cache.load_bps.is_some() || cache.store_bps.is_some()).collect()
}

fn flops(cores: &Cores, clock: Option<&Limit>) -> Vec<FlopsLimit> {
    let mut flops = Vec::new();
    for (&element, &width) in Element::ALL.iter().flat_map(|e| Width::ALL.iter().map(move |w| (e, w))) {
        let bits = 8 * element.bytes() as u32;
        let Some(row) = cores.arithmetic(bits, width.bits(element)) else { continue };
        for &balance in Balance::ALL {
            let Some(per_cycle) = row.flops_per_cycle(balance, bits) else { continue };
            let per_s = clock.map(|clock| Limit {
                value: per_cycle * clock.value,
                basis: LimitBasis::Specified,
                says: format!("{per_cycle} flops in a cycle x {}", clock.says),
            });
            flops.push(FlopsLimit { element, width, balance, per_cycle, per_s });
        }
    }
    flops
}

impl MemoryLimit {
    /// What it is and its nodes, such as `DDR4 (node 0)`.
    pub fn title(&self) -> String {
        match (&self.name, &self.nodes) {
            (name, nodes) if nodes.is_empty() => name.clone(),
            (name, nodes) if nodes.len() == 1 => format!("{name} (node {nodes})"),
            (name, nodes) => format!("{name} (nodes {nodes})"),
        }
    }
}

impl Limits {
    /// What the memory of some nodes can do together; of all memory, where the nodes are not known. Nothing where a part of
    /// it has no limit that is known without measuring.
    pub fn of_nodes(&self, nodes: &CpuSet) -> Option<Limit> {
        let known = |memory: &MemoryLimit| Some((memory.kind, memory.bps.clone().filter(Limit::is_known)?));
        let parts: Vec<_> = self.memory_of(nodes).map(known).collect::<Option<_>>()?;
        let (beside, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.0 == NodeKind::Dram);
        let sum = |parts: Vec<(NodeKind, Limit)>| parts.into_iter().map(|part| part.1).reduce(Limit::and);
        let modules = self.modules_bps.unwrap_or(f64::INFINITY);
        // Parts of all modules together may be off by a rounding.
        let is_all = |limit: &Limit| limit.value > modules * (1.0 - 1e-9) && limit.basis == LimitBasis::Configured;
        let beside = sum(beside).map(|limit| match is_all(&limit) {
            true => Limit { value: modules, says: ALL_MODULES.into(), ..limit },
            false => limit,
        });
        beside.into_iter().chain(sum(others)).reduce(Limit::and)
    }

    /// The names of the memory that some nodes are, such as `DDR4 (node 0)`.
    pub fn names(&self, nodes: &CpuSet) -> String {
        self.memory_of(nodes).map(|memory| memory.title()).collect::<Vec<_>>().join(" and ")
    }

    /// The memories that some nodes are part of; all, where the nodes are not known.
    pub fn memory_of<'a>(&'a self, nodes: &'a CpuSet) -> impl Iterator<Item = &'a MemoryLimit> {
        let is_ours = |memory: &&MemoryLimit| {
            nodes.is_empty() || memory.nodes.is_empty() || !memory.nodes.intersection(nodes).is_empty()
        };
        self.memory.iter().filter(is_ours)
    }

    /// The highest clock of a core while so many threads run.
    pub(crate) fn clock(&self, threads: usize) -> Option<f64> {
        let measured = self.clocks.iter().find(|(count, _)| *count == threads).map(|(_, hz)| *hz);
        measured.or_else(|| Some(self.clock_hz.as_ref()?.value))
    }

    /// Payload bytes per second that a row could reach at most at its level; nothing where no limit is known without
    /// measuring.
    pub fn of_row(&self, row: &BandwidthRow, machine: &Machine) -> Option<f64> {
        let traffic = Kernel::named(row.kernel())?.traffic(row.store(), row.element());
        let level = row.level.as_deref()?;
        let payload = traffic.payload() as f64;
        if level == "memory" {
            let limit = self.of_nodes(&row.nodes())?.value;
            let with_allocates = limit * payload / traffic.bus() as f64;
            // Write-allocates that the wires could not have carried did not take place.
            let is_avoided = row.payload_bps.is_some_and(|rate| rate.ends()[0] > with_allocates);
            return Some(if is_avoided { limit } else { with_allocates });
        }
        // A write-allocate brings a line into the first level from beyond.
        let allocated = if level == "L1" { 0 } else { traffic.write_allocated };
        Some(payload / self.seconds(row, machine, (traffic.loaded + allocated) as f64, traffic.stored as f64)?)
    }

    /// Least seconds in which the cores of a row move so many bytes from and to its cache, by the ports that the sheet tells
    /// of. Non-temporal stores go past the caches. Nothing where the level before it keeps a part, which comes faster.
    pub fn seconds(&self, row: &BandwidthRow, machine: &Machine, loaded: f64, stored: f64) -> Option<f64> {
        let level = row.level.as_deref()?;
        let (nearer, from) = self.caches.split_at(self.caches.iter().position(|cache| cache.level == level)?);
        let ports = from.first()?.ports.as_ref()?;
        let kept = nearer.last().and_then(|cache| cache.ports.as_ref()?.bytes());
        if row.case.share().0 < kept.map_or(0, |kept| kept.0.saturating_mul(HARDLY_KEPT)) {
            return None;
        }
        let cpus: CpuSet = row.case.cpus.iter().copied().collect();
        if !are_of_sheet(machine, &cpus) {
            return None;
        }
        let is_cached = stored == 0.0 || row.store() == StoreKind::Regular;
        let cycles = ports.cycles(loaded, stored, row.width().bytes(row.element()) as f64).filter(|_| is_cached)?;
        // Threads of one core share its ports.
        let cores = machine.one_per_core(&cpus).len().max(1) as f64;
        Some(cycles / self.clock(row.threads())? / cores)
    }

    /// The share of its limit that a row reached.
    pub fn share(&self, row: &BandwidthRow, machine: &Machine) -> Option<f64> {
        let reached = row.payload_bps.filter(|_| row.quality.is_measured())?.value();
        Some(reached / self.of_row(row, machine)?)
    }

    /// What a row's limit rests on, for those who read that it was exceeded.
    pub fn source_of(&self, row: &BandwidthRow) -> String {
        match row.level.as_deref() {
            Some("memory") | None => {
                let says = self.of_nodes(&row.nodes()).map_or(String::new(), |limit| format!(": {}", limit.says));
                format!("{}{says}", self.names(&row.nodes()))
            }
            Some(level) => {
                let clock = self.clock(row.threads()).map_or(String::new(), |hz| format!(" at {}", Hertz(hz)));
                format!(
                    "the ports of {level}{clock} on the sheet {}",
                    self.sheet.as_deref().unwrap_or("without a name")
                )
            }
        }
    }
}

/// Of so many times what a cache holds it keeps next to nothing from pass to pass: h of it, where it replaces at random and a line stays
/// with h = exp(-4 (1 - h)), a fiftieth. Of 1.4 times as much it is a half.
const HARDLY_KEPT: u64 = 4;

/// More than this share of a limit cannot be: the limit is wrong. Clocks of memory and of this machine differ by less.
pub const WRONG_ABOVE: f64 = 1.03;

/// The limits that rows exceeded, each once with the row that exceeded it most: what is wrong is the limit.
pub fn exceeded(rows: &[BandwidthRow], limits: &Limits, machine: &Machine) -> Vec<String> {
    let mut worst: BTreeMap<String, (f64, &BandwidthRow)> = BTreeMap::new();
    for row in rows {
        let Some(share) = limits.share(row, machine).filter(|share| *share > WRONG_ABOVE) else { continue };
        let held = worst.entry(limits.source_of(row)).or_insert((share, row));
        if share > held.0 {
            *held = (share, row);
        }
    }
    let sentence = |(limit, (share, row)): (String, (f64, &BandwidthRow))| {
        let what = wording::threads(row.threads());
        let (kernel, width, store) = (row.kernel(), row.width(), row.store());
        format!("{kernel} {width} {store}, {what}, reaches {} of a limit that must be wrong: {limit}", percent(share))
    };
    worst.into_iter().map(sentence).collect()
}

/// More payload than the memory's wires can carry was not moved by memory. Payload, not bus bytes: some processors avoid
/// write-allocates. What the caches may have kept is left out.
pub(crate) fn mark_impossible(rows: &mut [BandwidthRow], limits: &Limits, machine: &Machine) {
    for row in rows.iter_mut().filter(|row| is_measured(row, "memory")) {
        let nodes = row.nodes();
        let Some((limit, rate)) = limits.of_nodes(&nodes).zip(row.payload_bps) else { continue };
        let beyond = |cpus: &[u32]| {
            let cached = machine.last_level_bytes(&cpus.iter().copied().collect()).unwrap_or(Bytes(0)).0 as f64;
            (1.0 - cached / row.case.working_set.0.max(1) as f64).max(0.0)
        };
        let most = limit.value * WRONG_ABOVE;
        // Few rows are fast enough for what the caches may hold of them to matter.
        if rate.ends()[0] > most && rate.ends()[0] * beyond(&row.case.cpus) > most {
            let (memory, value) = (limits.names(&nodes), BytesPerSecond(limit.value));
            let reason = format!("faster than {memory}{ABOVE_A_LIMIT}{value} ({}, {})", limit.basis, limit.says);
            row.quality.refuse(Status::Invalid, reason);
        }
    }
}
