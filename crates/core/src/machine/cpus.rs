//! CPUs (hardware threads), the cores, dies and packages they belong to, and their clock.

use crate::in_order::InOrder;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::arm::{self, Part};
use crate::machine::caches::Cache;
use crate::machine::cpuset::CpuSet;
use crate::machine::fact::{Fact, Unread};
use crate::machine::source::Source;
use crate::units::Hertz;

const FOLDER: &str = "sys/devices/system/cpu";

/// One hardware thread, as the kernel numbers them. Numbers may be sparse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// The kernel's number.
    pub id: u32,
    /// Whether the kernel runs anything on it. The rest is absent for an offline CPU.
    pub online: bool,
    /// Number of its package (socket); any number, not a count from 0.
    pub package: Fact<u32>,
    /// Number of its die, unique within the package. Absent where the firmware tells of no dies.
    pub die: Fact<u32>,
    /// Number of its cluster of cores, unique within the package. Absent where the firmware tells of none.
    pub cluster: Fact<u32>,
    /// The kernel's number of its core. Not unique: it may repeat in each package or node; `core_cpus` tells cores apart.
    pub core: Fact<u32>,
    /// The hardware threads of its core, itself included.
    pub core_cpus: CpuSet,
    /// The node it belongs to.
    pub node: Fact<u32>,
    /// Its kind of core on a machine with several.
    pub kind: Fact<CoreKind>,
    /// Computing power where the biggest core of the machine has 1024. Absent where the kernel tells of none.
    pub capacity: Fact<u32>,
    /// Absent where the kernel does not control the clock, as in most virtual machines.
    pub frequency: Fact<Frequency>,
}

/// The clock of a core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frequency {
    /// Lowest frequency the governor may choose now, Hz.
    pub min: Fact<Hertz>,
    /// Highest frequency the governor may choose now, Hz.
    pub max: Fact<Hertz>,
    /// Highest frequency of the hardware, Hz, boost included.
    pub hardware_max: Fact<Hertz>,
    /// Frequency without boost, Hz.
    pub base: Fact<Hertz>,
    /// Who chooses: `performance`, `powersave`, `schedutil`...
    pub governor: Fact<String>,
}

/// Kinds of core, from the strongest. A machine with one kind has only `uniform` ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoreKind {
    /// All cores of the machine are alike.
    Uniform,
    /// The strongest kind: P-core, big.
    Performance,
    /// The second kind: E-core, LITTLE; the one between, of three.
    Efficiency,
    /// The third kind and those below.
    LowPower,
}

impl fmt::Display for CoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CoreKind::Uniform => "uniform",
            CoreKind::Performance => "performance",
            CoreKind::Efficiency => "efficiency",
            CoreKind::LowPower => "low-power",
        })
    }
}

impl CoreKind {
    /// The kind that comes `rank`th in strength.
    fn ranked(rank: usize) -> Self {
        match rank {
            0 => CoreKind::Performance,
            1 => CoreKind::Efficiency,
            _ => CoreKind::LowPower,
        }
    }
}

/// All CPUs, ascending; nodes and kinds are filled in by [`place`] and [`classify`], which need other stages' facts.
pub(crate) fn read(source: &Source, allowed: Option<&CpuSet>, unread: &mut Vec<Unread>) -> Vec<Cpu> {
    let mut ids = source.numbered(FOLDER, "cpu");
    let listed = seen_or_allowed(source, &ids, allowed, unread);
    if ids.is_empty() {
        ids = listed.known().map(|online| online.iter().collect()).unwrap_or_default();
    }
    if ids.is_empty() {
        let allowed = source.processor().and_then(|processor| processor.may_run_on.as_ref());
        ids = allowed.map(|allowed| allowed.iter().collect()).unwrap_or_default();
        let instead = if ids.is_empty() { "" } else { "; those are taken that this process may run on" };
        Unread::note(unread, "CPUs".into(), format!("/{FOLDER} tells of none{instead}"));
    }
    let online = |id| match &listed {
        Fact::Known(online) => online.contains(id),
        // CPU 0 often has no such file: it cannot be switched off.
        Fact::Absent { .. } => source.number::<u32>(&format!("{FOLDER}/cpu{id}/online")).get() != Some(0),
    };
    let policies = Policies::read(source);
    let mut cpus: Vec<Cpu> = ids.iter().map(|&id| one(source, id, online(id), &policies)).collect();
    split_core_cpus(&mut cpus);
    cpus
}

/// The CPUs that are said to be online. Where others run that this process may use, or none of these, the list is another view,
/// such as that of lxcfs, which counts a container's CPUs from 0: those are taken that it may run on and that have a folder.
fn seen_or_allowed(source: &Source, ids: &[u32], allowed: Option<&CpuSet>, unread: &mut Vec<Unread>) -> Fact<CpuSet> {
    let online = source.list(&format!("{FOLDER}/online"));
    let (Some(seen), Some(allowed)) = (online.known(), allowed) else { return online };
    // One that was switched off has a folder, without its place in it.
    let is_running = |id: u32| source.text(&format!("{FOLDER}/cpu{id}/topology/core_id")).known().is_some();
    let is_foreign = seen.intersection(allowed).is_empty();
    let is_there = |id: &u32| allowed.contains(*id) && (is_foreign || seen.contains(*id) || is_running(*id));
    let there: CpuSet = ids.iter().copied().filter(is_there).collect();
    if there.iter().all(|id| seen.contains(id)) {
        return online;
    }
    let reason = format!("/{FOLDER}/online says {seen}, but this process may run on {there}: those are taken");
    Unread::note(unread, "online CPUs".into(), reason);
    Fact::Known(there)
}

fn one(source: &Source, id: u32, online: bool, policies: &Policies) -> Cpu {
    let here = |file: &str| format!("{FOLDER}/cpu{id}/{file}");
    let number = |file: &str| match online {
        true => topology_number(source, &here(file)),
        false => Fact::absent("the CPU is offline"),
    };
    let siblings = source.list(&here("topology/thread_siblings_list"));
    let siblings = siblings.or_else(|| source.list(&here("topology/core_cpus_list"))).known().cloned();
    Cpu {
        id,
        online,
        package: number("topology/physical_package_id"),
        die: number("topology/die_id"),
        cluster: number("topology/cluster_id"),
        core: number("topology/core_id"),
        core_cpus: siblings.filter(|set| set.contains(id)).unwrap_or_else(|| CpuSet::from_iter([id])),
        node: Fact::absent("no node's cpulist names the CPU"),
        kind: Fact::absent("the CPU is offline"),
        capacity: number("cpu_capacity"),
        frequency: if online { policies.of(source, id) } else { Fact::absent("the CPU is offline") },
    }
}

/// A topology number; the kernel writes -1 (or that cut to 16 bits) where the firmware tells of none.
fn topology_number(source: &Source, path: &str) -> Fact<u32> {
    source.number::<i64>(path).and_then(|number| match u32::try_from(number) {
        Ok(number) if number != u32::from(u16::MAX) => Fact::Known(number),
        _ => Fact::absent(format!("/{path} says {number}, which means not reported")),
    })
}

/// Keeps in `core_cpus` only the siblings with the same core number: kernels of their time list the two cores of an AMD
/// Bulldozer module, which share a floating-point unit, as sibling threads.
fn split_core_cpus(cpus: &mut [Cpu]) {
    let cores: BTreeMap<u32, Option<u32>> = cpus.iter().map(|cpu| (cpu.id, cpu.core.get())).collect();
    for cpu in cpus {
        let core = cpu.core.get();
        cpu.core_cpus = cpu.core_cpus.iter().filter(|id| cores.get(id).is_some_and(|other| *other == core)).collect();
    }
}

/// Clock domains. A domain may span many CPUs, so each is read once.
struct Policies(BTreeMap<u32, Frequency>);

impl Policies {
    fn read(source: &Source) -> Self {
        let mut of_cpu = BTreeMap::new();
        for policy in source.numbered(&format!("{FOLDER}/cpufreq"), "policy") {
            let folder = format!("{FOLDER}/cpufreq/policy{policy}");
            let cpus = source.list(&format!("{folder}/related_cpus")).known().cloned();
            let frequency = frequency(source, &folder, policy);
            // `related_cpus` of old kernels has blanks instead of commas; the policy's own number is its first CPU.
            for cpu in cpus.unwrap_or_else(|| CpuSet::from_iter([policy])).iter() {
                of_cpu.insert(cpu, frequency.clone());
            }
        }
        Policies(of_cpu)
    }

    fn of(&self, source: &Source, cpu: u32) -> Fact<Frequency> {
        if let Some(frequency) = self.0.get(&cpu) {
            return Fact::Known(frequency.clone());
        }
        let folder = format!("{FOLDER}/cpu{cpu}/cpufreq");
        match source.names(&folder).is_empty() {
            true => Fact::absent(format!("/{folder} is not there: the kernel does not control this clock")),
            false => Fact::Known(frequency(source, &folder, cpu)),
        }
    }
}

/// `cpu` is one of those whose clock the folder is about.
fn frequency(source: &Source, folder: &str, cpu: u32) -> Frequency {
    let hertz = |file: &str| source.number::<u64>(&format!("{folder}/{file}")).map(|khz| Hertz(khz as f64 * 1e3));
    Frequency {
        min: hertz("scaling_min_freq"),
        max: hertz("scaling_max_freq"),
        hardware_max: hertz("cpuinfo_max_freq"),
        base: hertz("base_frequency").or_else(|| nominal(source, cpu)),
        governor: source.word(&format!("{folder}/scaling_governor")),
    }
}

/// What the firmware (ACPI, CPPC) calls the nominal frequency, which is written in MHz; zero is none.
fn nominal(source: &Source, cpu: u32) -> Fact<Hertz> {
    let path = format!("{FOLDER}/cpu{cpu}/acpi_cppc/nominal_freq");
    source.number::<u64>(&path).and_then(|mhz| {
        Fact::from_option((mhz > 0).then_some(Hertz(mhz as f64 * 1e6)), || {
            format!("/{path} says 0, which means not reported")
        })
    })
}

/// Writes into each CPU the node whose list names it.
pub(crate) fn place<'a>(cpus: &mut [Cpu], nodes: impl Iterator<Item = (u32, &'a CpuSet)>) {
    let of_cpu: BTreeMap<u32, u32> = nodes.flat_map(|(node, set)| set.iter().map(move |cpu| (cpu, node))).collect();
    for cpu in cpus {
        if let Some(node) = of_cpu.get(&cpu.id) {
            cpu.node = Fact::Known(*node);
        }
    }
}

/// Writes into each online CPU its kind of core. Sources, best first: the kernel's own lists for hybrid Intel machines;
/// the designs that ARM cores are of; `cpu_capacity`; otherwise cores with different first-level caches or base
/// frequencies are different kinds. Maximum frequencies alone don't tell: favoured cores of one kind have a higher one, and
/// with it a higher capacity. Nor do base frequencies of Intel's: Speed Select (SST-BF) gives some of like cores a higher one.
pub(crate) fn classify(source: &Source, cpus: &mut [Cpu], caches: &[Cache], vendor: Option<&str>) {
    let lists = ["cpu_core", "cpu_atom", "cpu_lowpower"].map(|name| source.list(&format!("sys/devices/{name}/cpus")));
    if lists[..2].iter().all(|list| list.known().is_some_and(|list| !list.is_empty())) {
        for cpu in cpus.iter_mut().filter(|cpu| cpu.online) {
            let rank = lists.iter().rposition(|list| list.known().is_some_and(|list| list.contains(cpu.id)));
            cpu.kind = Fact::from_option(rank.map(CoreKind::ranked), || {
                format!("neither /sys/devices/cpu_core/cpus nor its siblings name CPU {}", cpu.id)
            });
        }
        return;
    }
    let kinds = kinds_by_build(source, cpus, caches, vendor != Some("GenuineIntel"));
    for (cpu, kind) in cpus.iter_mut().filter(|cpu| cpu.online).zip(kinds) {
        cpu.kind = kind;
    }
}

/// Kinds of the online CPUs, in order, told apart by what they are built of.
fn kinds_by_build(source: &Source, cpus: &[Cpu], caches: &[Cache], base_tells: bool) -> Vec<Fact<CoreKind>> {
    let online: Vec<&Cpu> = cpus.iter().filter(|cpu| cpu.online).collect();
    let parts = arm::parts(source, online.iter().map(|cpu| cpu.id));
    let all_tell = online.iter().all(|cpu| parts.contains_key(&cpu.id));
    let part = |cpu: &Cpu| parts.get(&cpu.id).copied().filter(|_| all_tell);
    let builds: Vec<Build> = online.iter().map(|cpu| Build::of(cpu, caches, part(cpu), base_tells)).collect();
    if builds.iter().all(|build| *build == builds[0]) {
        return vec![Fact::Known(CoreKind::Uniform); builds.len()];
    }
    let mut strengths: BTreeMap<&Build, Option<u64>> = BTreeMap::new();
    for (cpu, build) in online.iter().zip(&builds) {
        let best = strengths.entry(build).or_default();
        *best = (*best).max(strength(source, cpu));
    }
    if strengths.values().any(Option::is_none) {
        let reason = "cores differ, but neither cpu_capacity, acpi_cppc nor cpufreq says which are stronger";
        return vec![Fact::absent(reason); builds.len()];
    }
    let mut order: Vec<&Build> = strengths.keys().copied().collect();
    order.order_by_key(|build| std::cmp::Reverse(strengths[build]));
    let rank = |build| order.iter().position(|other| *other == build).unwrap_or_default();
    builds.iter().map(|build| Fact::Known(CoreKind::ranked(rank(build)))).collect()
}

/// What tells kinds of core apart: their designs; where those are not told, capacity, bytes of first-level caches, base
/// frequency in Hz where it tells.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Build {
    Design(Part),
    Traits(Option<u32>, Vec<u64>, Option<u64>),
}

impl Build {
    fn of(cpu: &Cpu, caches: &[Cache], part: Option<Part>, base_tells: bool) -> Self {
        if let Some(part) = part {
            return Build::Design(part);
        }
        let first = caches.iter().filter(|cache| cache.level == 1 && cache.cpus.contains(cpu.id));
        let base = cpu.frequency.known().and_then(|frequency| frequency.base.get()).filter(|_| base_tells);
        Build::Traits(cpu.capacity.get(), first.map(|cache| cache.size.0).collect(), base.map(|hertz| hertz.0 as u64))
    }
}

/// A number that is greater for a stronger core, comparable within one machine.
fn strength(source: &Source, cpu: &Cpu) -> Option<u64> {
    let performance = || source.number::<u64>(&format!("{FOLDER}/cpu{}/acpi_cppc/highest_perf", cpu.id)).get();
    let clock = || Some(cpu.frequency.known()?.hardware_max.get()?.0 as u64);
    cpu.capacity.get().map(u64::from).or_else(performance).or_else(clock)
}
