//! What differs between the machines, settings and states of two sides: the first suspects for any difference of figures.
//! Flags that choose what is measured, and how long, are none.

use schemars::JsonSchema;
use serde::Serialize;

use crate::across::compare::cells::Cell;
use membound_core::case::Case;
use membound_core::in_order::distinct;
use membound_core::machine::Machine;
use membound_core::machine::caches::Cache;
use membound_core::machine::fact::Fact;
use membound_core::machine::firmware::Dimm;
use membound_core::memory::policy::Policy;
use membound_core::record::hand_overs::HandOvers;
use membound_core::record::{End, Environment, Measured, Record};
use membound_core::stats::quantiles::median;
use membound_core::units::{Bytes, Hertz, percent, significant};

/// Something that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// What.
    pub what: String,
    /// On side A, over all its records; `unknown` where it could not be read.
    pub a: String,
    /// On side B.
    pub b: String,
}

/// All that differs, most lasting first: machine, firmware and kernel, settings, state.
pub(crate) fn changes(a: &[Record], b: &[Record], cells: [&[Cell<'_>]; 2]) -> Vec<Change> {
    let facts = FACTS.iter().filter_map(|(what, value)| {
        let all = |records: &[Record]| {
            distinct(records.iter().map(|record| value(record).unwrap_or_else(|| UNKNOWN.into()))).join(" or ")
        };
        change(what, all(a), all(b))
    });
    let states = STATES.iter().filter_map(|state| {
        let middle = |records: &[Record]| median(records.iter().filter_map(state.value));
        state.change(middle(a), middle(b))
    });
    let clocks = cells
        .map(|cells| median(cells.iter().flat_map(|cell| cell.runs.iter().flatten()).filter_map(|visit| visit.clock)));
    facts.chain(CLOCK.change(clocks[0], clocks[1])).chain(states).collect()
}

/// Whether the first records' machines have other caches.
pub(crate) fn caches_differ(a: &[Record], b: &[Record]) -> bool {
    let of = |records: &[Record]| records.first().map(|record| caches(&record.header.machine));
    of(a) != of(b)
}

const UNKNOWN: &str = "unknown";

fn change(what: &str, a: String, b: String) -> Option<Change> {
    (a != b).then(|| Change { what: what.into(), a, b })
}

/// A name, and a text that is the same where the thing is.
pub(crate) type Named = (&'static str, fn(&Record) -> Option<String>);

pub(crate) const FACTS: &[Named] = &[
    ("host", |record| Some(record.header.host.clone())),
    ("processor", |record| record.header.machine.identity.model.known().cloned()),
    ("processor's family, model and stepping", |record| record.header.machine.identity.signature.known().cloned()),
    ("machine", |record| record.header.machine.identity.product.known().cloned()),
    ("CPUs", |record| Some(record.header.machine.online_cpus().len().to_string())),
    ("CPUs to use", |record| Some(record.header.machine.usable_cpus().to_string())),
    ("caches", |record| Some(caches(&record.header.machine))),
    ("nodes", |record| Some(record.header.machine.nodes.len().to_string())),
    ("memory", |record| Some(total(&record.header.machine)?.to_string())),
    ("memory modules", |record| modules(&record.header.machine)),
    ("microcode", |record| record.header.machine.identity.microcode.known().cloned()),
    ("hypervisor", |record| text(&record.header.machine.identity.hypervisor)),
    ("kernel", |record| record.header.machine.identity.kernel.known().cloned()),
    ("clock source of the kernel", |record| record.header.machine.identity.clocksource.known().cloned()),
    ("tool", |record| Some(record.header.tool.clone())),
    ("MPI", |record| Some(record.header.world.as_ref()?.library.version.clone())),
    ("clock of the samples", |record| Some(record.header.clock.name.clone())),
    ("transparent huge pages", |record| record.header.machine.settings.thp.known().cloned()),
    ("their defragmentation", |record| record.header.machine.settings.thp_defrag.known().cloned()),
    ("NUMA balancing", |record| text(&record.header.machine.settings.numa_balancing)),
    ("zone reclaim", |record| text(&record.header.machine.settings.zone_reclaim_mode)),
    ("demotion of cold pages", |record| on_off(&record.header.machine.settings.demotion)),
    ("overcommit", |record| text(&record.header.machine.settings.overcommit_memory)),
    ("governor", |record| Some(record.header.machine.settings.governors.known()?.join(" "))),
    ("boost", |record| on_off(&record.header.machine.settings.boost)),
    ("SMT", |record| record.header.machine.settings.smt.known().cloned()),
    ("isolated CPUs", |record| text(&record.header.machine.settings.isolated)),
    ("huge page pools", |record| Some(pools(&record.header.machine))),
    ("limit of CPU time", |record| Some(cpu_time(&record.header.machine))),
    ("limit of memory", |record| {
        Some(record.header.machine.memory_limit().map_or("none".into(), |l| l.limit.to_string()))
    }),
];

fn text<T: ToString>(fact: &Fact<T>) -> Option<String> {
    fact.known().map(ToString::to_string)
}

fn on_off(fact: &Fact<bool>) -> Option<String> {
    fact.get().map(|on| if on { "on" } else { "off" }.into())
}

pub(crate) fn caches(machine: &Machine) -> String {
    let cpu = machine.online_cpus().first().unwrap_or(0);
    let cache = |cache: &Cache| format!("L{} {}", cache.level, cache.size);
    let caches: Vec<String> = machine.data_caches(cpu).into_iter().map(cache).collect();
    if caches.is_empty() { UNKNOWN.into() } else { caches.join(", ") }
}

/// In whole GiB: the kernel keeps a part for itself, a little more or less each time.
fn total(machine: &Machine) -> Option<Bytes> {
    let total = machine.memory.total.get()?;
    let gib = (total.0 + (1 << 29)) >> 30;
    Some(if gib >= 4 { Bytes::gib(gib) } else { Bytes::mib(total.0 >> 20) })
}

fn modules(machine: &Machine) -> Option<String> {
    let filled: Vec<_> = machine.dimms.known()?.iter().filter(|dimm| dimm.size.known().is_some()).collect();
    let kind = |dimm: &&Dimm| {
        let rate = dimm.configured_mt_s.get().map_or_else(String::new, |rate| format!(" at {rate} MT/s"));
        format!("{}{rate}", dimm.size.get().unwrap_or(Bytes(0)))
    };
    Some(format!("{} of {}", filled.len(), distinct(filled.iter().map(kind)).join(" and ")))
}

fn pools(machine: &Machine) -> String {
    let pool = |pool: &membound_core::machine::pages::HugePool| {
        pool.total.get().filter(|pages| *pages > 0).map(|pages| format!("{pages} of {}", pool.page))
    };
    let pools: Vec<String> = machine.pages.huge_pools.iter().filter_map(pool).collect();
    if pools.is_empty() { "none".into() } else { pools.join(", ") }
}

fn cpu_time(machine: &Machine) -> String {
    let limits = machine.limits.cpu_time.known();
    let least = limits.into_iter().flatten().map(|limit| limit.cpus).min_by(f64::total_cmp);
    least.map_or_else(|| "none".into(), |cpus| format!("{} CPUs", significant(cpus)))
}

/// A number that is never twice the same: what counts as a difference.
struct State {
    what: &'static str,
    value: fn(&Record) -> Option<f64>,
    /// Relative to the greater of both, and in its own unit: both must be exceeded.
    share: f64,
    least: f64,
    text: fn(f64) -> String,
}

impl State {
    fn change(&self, a: Option<f64>, b: Option<f64>) -> Option<Change> {
        let (a, b) = (a?, b?);
        let apart = (a - b).abs();
        let differs = apart > self.share * a.abs().max(b.abs()) && apart > self.least;
        differs.then(|| Change { what: self.what.into(), a: (self.text)(a), b: (self.text)(b) })
    }
}

const MIB_256: f64 = (256u64 << 20) as f64;

/// Seen by the dependent chain beside every sample.
const CLOCK: State = State {
    what: "core clock during samples (median)",
    value: |_| None,
    share: 0.005,
    least: 0.0,
    text: |hz| Hertz(hz).to_string(),
};

const STATES: &[State] = &[
    State {
        what: "memory available before",
        value: |record| record.header.before.available.map(|bytes| bytes.0 as f64),
        share: 0.1,
        least: MIB_256,
        text: bytes,
    },
    State {
        what: "page cache before",
        value: |record| record.header.before.page_cache.map(|bytes| bytes.0 as f64),
        share: 0.1,
        least: MIB_256,
        text: bytes,
    },
    State {
        what: "least free memory of a node before",
        value: |record| least_free(&record.header.before),
        share: 0.1,
        least: MIB_256,
        text: bytes,
    },
    State {
        what: "load average before",
        value: |record| record.header.before.load_average,
        share: 0.1,
        least: 0.5,
        text: significant,
    },
    State {
        what: "load average after",
        value: |record| record.end.as_ref()?.after.load_average,
        share: 0.1,
        least: 0.5,
        text: significant,
    },
    State { what: "steal, of one CPU's time", value: steal, share: 0.1, least: 0.002, text: percent },
    // A host that moves the CPUs of a guest gives threads another speed.
    State {
        what: "handing a line from one CPU to another (mean)",
        value: hand_over_s,
        share: 0.1,
        least: 5e-9,
        text: |seconds| format!("{} ns", significant(seconds * 1e9)),
    },
    State { what: "samples disturbed by other tasks", value: disturbed, share: 0.1, least: 0.02, text: percent },
    State { what: "memory in huge pages, where asked for", value: huge, share: 0.02, least: 0.0, text: percent },
    State { what: "pages on another node than asked for", value: elsewhere, share: 0.02, least: 0.001, text: percent },
];

fn bytes(value: f64) -> String {
    Bytes(value as u64).to_string()
}

pub(crate) fn least_free(state: &Environment) -> Option<f64> {
    state.node_free.iter().map(|(_, free)| free.0 as f64).min_by(f64::total_cmp)
}

fn steal(record: &Record) -> Option<f64> {
    stolen(&record.header.before, record.end.as_ref())
}

/// Of one CPU's time, what the hypervisor took during a run.
pub(crate) fn stolen(before: &Environment, end: Option<&End>) -> Option<f64> {
    let end = end?;
    Some((end.after.steal_s? - before.steal_s?) / end.wall_s).filter(|share| share.is_finite())
}

fn hand_over_s(record: &Record) -> Option<f64> {
    let told = HandOvers::of(record.measured());
    Some(told.mean()? / record.header.clock.hz.0)
}

fn disturbed(record: &Record) -> Option<f64> {
    disturbed_samples(record.measured().map(|(_, measured)| measured))
}

/// Share of samples during which another task ran on a CPU of ours.
pub(crate) fn disturbed_samples<'a>(visits: impl Iterator<Item = &'a Measured>) -> Option<f64> {
    let (mut all, mut hit) = (0usize, 0usize);
    for visit in visits {
        all += visit.samples.switches.len();
        hit += visit.samples.switches.iter().filter(|switches| **switches > 0).count();
    }
    (all > 0).then(|| hit as f64 / all as f64)
}

fn huge(record: &Record) -> Option<f64> {
    huge_obtained(record.measured())
}

/// Share of the bytes that came in huge pages, over the visits that wanted them and were told.
pub(crate) fn huge_obtained<'a>(visits: impl Iterator<Item = (&'a Case, &'a Measured)>) -> Option<f64> {
    use membound_core::memory::MemoryKind::{Huge1G, Huge2M, Thp};
    let (mut all, mut got) = (0u64, 0u64);
    for (_, measured) in visits.filter(|(case, _)| matches!(case.memory.kind, Thp | Huge2M | Huge1G)) {
        if let Some(huge) = measured.obtained.huge_bytes
            && measured.obtained.bytes >= measured.obtained.huge_page()
        {
            all += measured.obtained.bytes.0;
            got += huge.0;
        }
    }
    (all > 0).then(|| (got as f64 / all as f64).min(1.0))
}

fn elsewhere(record: &Record) -> Option<f64> {
    pages_elsewhere(record.measured())
}

/// Share of pages on another node, over the visits that named one.
pub(crate) fn pages_elsewhere<'a>(visits: impl Iterator<Item = (&'a Case, &'a Measured)>) -> Option<f64> {
    let (mut all, mut other) = (0u64, 0u64);
    for (case, measured) in visits.filter(|(case, _)| case.memory.policy != Policy::FirstTouch) {
        let Some(node) = case.memory.node() else { continue };
        for found in &measured.obtained.pages_on_node {
            all += found.pages;
            other += if found.node == node { 0 } else { found.pages };
        }
    }
    (all > 0).then(|| other as f64 / all as f64)
}
