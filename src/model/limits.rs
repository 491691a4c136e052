//! What a machine can do at most, and how that is known: by its specification sheet, by its memory modules as they are
//! configured, or, where neither tells, by the best that was measured, which is called so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::median;
use super::{Row, Status, rows};
use crate::kernel::{Element, Kernel, Traffic, Width};
use crate::machine::{Balance, Channels, Cores, CpuSet, Dimm, Machine, Sheet};
use crate::units::{Bytes, Hertz, words};

words! {
    /// How a limit is known, weakest last.
    Basis, "basis" {
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
    pub basis: Basis,
    /// The arithmetic behind it, in words.
    pub says: String,
}

impl Limit {
    /// Whether it is known without measuring: a share of it says something.
    pub fn is_known(&self) -> bool {
        self.basis != Basis::BestMeasured
    }
}

/// What a machine can do at most.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Limits {
    /// Name of the specification sheet; absent: none is for this machine.
    pub sheet: Option<String>,
    /// Where the sheet's figures are from.
    pub source: Option<String>,
    /// Clock of a core in hertz: measured where it was, since sheets and virtual machines tell another.
    pub clock_hz: Option<Limit>,
    /// Bytes a second that all memory moves, reads and writes together.
    pub memory_bps: Option<Limit>,
    /// What one core moves from and to each cache, nearest first.
    pub caches: Vec<CacheLimit>,
    /// What one core computes, by element, width and balance.
    pub flops: Vec<FlopsLimit>,
}

/// A cache, for one core.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CacheLimit {
    /// `L1`, `L2`, `L3`.
    pub level: String,
    /// Bytes a second that it loads.
    pub load_bps: Option<Limit>,
    /// Bytes a second that it stores.
    pub store_bps: Option<Limit>,
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
pub fn limits(machine: &Machine, sheet: Option<&Sheet>, rows: &[Row]) -> Limits {
    let own = || Sheet::of(machine);
    let sheet = sheet.cloned().or_else(own);
    let cores = sheet.as_ref().and_then(|sheet| sheet.cores.first());
    let clock = clock(cores, rows);
    Limits {
        sheet: sheet.as_ref().map(|sheet| sheet.name.clone()),
        source: sheet.as_ref().map(|sheet| sheet.source.clone()),
        memory_bps: memory(machine, sheet.as_ref()).or_else(|| best_of_memory(rows)),
        caches: caches(cores, clock.as_ref(), rows),
        flops: cores.map(|cores| flops(cores, clock.as_ref())).unwrap_or_default(),
        clock_hz: clock,
    }
}

/// The clock measured on one thread, else that of the sheet.
fn clock(cores: Option<&Cores>, rows: &[Row]) -> Option<Limit> {
    let measured = median(rows.iter().filter(|row| row.threads == 1).filter_map(|row| row.core_clock_hz))
        .or_else(|| median(rows.iter().filter_map(|row| row.core_clock_hz)));
    let measured = measured.map(|hz| (hz, Basis::BestMeasured, "measured with a chain of dependent additions"));
    let specified = || Some((cores?.clock_ghz? * 1e9, Basis::Specified, "by the sheet"));
    let (value, basis, says) = measured.or_else(specified)?;
    Some(Limit { value, basis, says: format!("{} {says}", Hertz(value)) })
}

/// Channels x transfers x width of all packages: at the modules' speed where the firmware tells it.
fn memory(machine: &Machine, sheet: Option<&Sheet>) -> Option<Limit> {
    let model = machine.identity.model.known().map_or("", String::as_str);
    let channels = sheet.and_then(|sheet| sheet.memory_of(model));
    let packages = machine.packages().max(1) as f64;
    let modules = machine.dimm_peak().map(|peak| peak.0);
    let at_speed = slowest(machine).and_then(|mt_s| Some((channels?.at(Some(mt_s))? * packages, mt_s)));
    match (at_speed, modules) {
        // With two modules to a channel, the modules together promise twice what the channels can.
        (Some((value, mt_s)), Some(modules)) if value < modules => {
            let says = format!("{} at {mt_s} MT/s as configured", channel_words(channels?, packages));
            Some(Limit { value, basis: Basis::Configured, says })
        }
        (_, Some(value)) => {
            let says = "all memory modules at their configured speed".into();
            Some(Limit { value, basis: Basis::Configured, says })
        }
        _ => {
            let value = channels?.bytes_per_s()? * packages;
            let speed = channels?.mt_s.map_or(String::new(), |mt_s| format!(" at {mt_s} MT/s"));
            let says = format!("{}{speed} at most", channel_words(channels?, packages));
            Some(Limit { value, basis: Basis::Specified, says })
        }
    }
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
    let filled = |dimm: &&Dimm| dimm.size.known().is_some();
    machine
        .dimms
        .known()?
        .iter()
        .filter(filled)
        .map(|dimm| dimm.configured_mt_s.get())
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .min()
}

/// The greatest median that the bus reached.
fn best_of_memory(rows: &[Row]) -> Option<Limit> {
    let of =
        |row: &Row| row.bus_bps.filter(|_| is_measured(row, "memory")).map(|rate| (rate.median, row.kernel.clone()));
    let (value, kernel) = rows.iter().filter_map(of).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let says = format!("the best measured, by `{kernel}`: no sheet or memory module tells the limit");
    Some(Limit { value, basis: Basis::BestMeasured, says })
}

fn is_measured(row: &Row, level: &str) -> bool {
    row.quality.is_measured() && row.level.as_deref() == Some(level)
}

/// Bytes in a cycle x clock, else the best of one thread.
fn caches(cores: Option<&Cores>, clock: Option<&Limit>, rows: &[Row]) -> Vec<CacheLimit> {
    let specified = |bytes: Option<f64>| {
        let (bytes, clock) = (bytes?, clock?);
        let says = format!("{bytes} B in a cycle x {}", clock.says);
        Some(Limit { value: bytes * clock.value, basis: Basis::Specified, says })
    };
    let best = |kernel: &str, level: &str| {
        let ours = |row: &&Row| row.kernel == kernel && row.threads == 1 && is_measured(row, level);
        let value = rows.iter().filter(ours).filter_map(|row| Some(row.payload_bps?.median)).reduce(f64::max)?;
        Some(Limit { value, basis: Basis::BestMeasured, says: format!("the best measured, by `{kernel}`") })
    };
    let sheet = |level: u32| cores.and_then(|cores| cores.caches.iter().find(|cache| cache.level == level));
    let of = |level: u32| {
        let (name, told) = (format!("L{level}"), sheet(level));
        let load_bps = specified(told.and_then(|cache| cache.load_bytes)).or_else(|| best("load", &name));
        let store_bps = specified(told.and_then(|cache| cache.store_bytes)).or_else(|| best("store", &name));
        CacheLimit { level: name, load_bps, store_bps }
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
                basis: Basis::Specified,
                says: format!("{per_cycle} flops in a cycle x {}", clock.says),
            });
            flops.push(FlopsLimit { element, width, balance, per_cycle, per_s });
        }
    }
    flops
}

impl Limits {
    /// Payload bytes a second that a row could reach at most at its level; nothing where no limit is known without
    /// measuring.
    pub fn of_row(&self, row: &Row, machine: &Machine) -> Option<f64> {
        let traffic = Kernel::named(&row.kernel)?.traffic(row.store, row.element);
        let level = row.level.as_deref()?;
        if level == "memory" {
            let memory = self.memory_bps.as_ref().filter(|limit| limit.is_known())?;
            return Some(memory.value * traffic.payload() as f64 / traffic.bus() as f64);
        }
        let cache = self.caches.iter().find(|cache| cache.level == level)?;
        // Threads of one core share its ports.
        let cpus: CpuSet = row.cpus.iter().copied().collect();
        let cores = machine.one_per_core(&cpus).len().max(1) as f64;
        Some(cores * traffic.payload() as f64 / seconds(cache, traffic, level)?)
    }

    /// The share of its limit that a row reached.
    pub fn share(&self, row: &Row, machine: &Machine) -> Option<f64> {
        let reached = row.payload_bps.filter(|_| row.quality.is_measured())?.median;
        Some(reached / self.of_row(row, machine)?)
    }
}

/// Least seconds that a cache takes for an element: loads and stores have ports of their own.
fn seconds(cache: &CacheLimit, traffic: Traffic, level: &str) -> Option<f64> {
    // A write-allocate brings a line into the first level from beyond.
    let loaded = traffic.loaded + if level == "L1" { 0 } else { traffic.write_allocated };
    let time = |bytes: u64, limit: &Option<Limit>| match (bytes, limit) {
        (0, _) => Some(0.0),
        (bytes, Some(limit)) if limit.is_known() => Some(bytes as f64 / limit.value),
        _ => None,
    };
    let seconds = time(loaded, &cache.load_bps)?.max(time(traffic.stored, &cache.store_bps)?);
    (seconds > 0.0).then_some(seconds)
}

/// More payload than the memory's wires can carry was not moved by memory. Payload, not bus bytes: some processors avoid
/// write-allocates. What the caches may have kept is left out.
pub(super) fn mark_impossible(results: &mut [rows::Result], limits: &Limits, machine: &Machine) {
    /// Clocks of memory and of this machine differ by less.
    const MARGIN: f64 = 1.01;
    let Some(limit) = limits.memory_bps.as_ref().filter(|limit| limit.is_known()) else { return };
    for result in results.iter_mut().filter(|result| is_measured(&result.row, "memory")) {
        let cpus: CpuSet = result.case.cpus.iter().copied().collect();
        let cached = machine.last_level_bytes(&cpus).unwrap_or(Bytes(0)).0 as f64;
        let beyond = (1.0 - cached / result.case.working_set.0.max(1) as f64).max(0.0);
        let Some(rate) = result.row.payload_bps else { continue };
        if rate.ci95[0] * beyond > limit.value * MARGIN {
            result.row.quality.refuse(
                Status::Invalid,
                format!(
                    "faster than memory can be: the limit is {} ({}, {})",
                    crate::units::BytesPerSecond(limit.value),
                    limit.basis,
                    limit.says
                ),
            );
        }
    }
}
