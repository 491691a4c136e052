//! What a machine's settings and state do to figures, and what a run did to itself: each with its evidence and its cure.
//!
//! A text begins with what is the case, and after a colon says how that is known. [`of_machine`] needs no run; what a run
//! must show first is [`of_run`]. Flags, faults and missing cases are told of elsewhere (`findings.rs`).

use std::collections::{BTreeMap, BTreeSet};

use crate::visits::{Visits, core_clock, measured};
use crate::warning::Warning;
use membound_core::case::{Case, Work};
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::nodes::Node;
use membound_core::machine::source::Hypervisor;
use membound_core::parallel;
use membound_core::record::{Clock, End, Environment, Measured, Measurement, Record};
use membound_core::stats::quantiles::median;
use membound_core::units::{BASE_PAGE, Bytes, Hertz, percent, significant};

/// Thresholds: shares of one, or ratios.
mod threshold {
    /// A node is full of page cache if no more than this share of it is free,
    pub const NODE_FREE: f64 = 0.25;
    /// and there is this many times as much page cache.
    pub const CACHE_TO_FREE: f64 = 2.0;
    /// Swap in use, against memory: below this it is what the kernel puts out by the way.
    pub const SWAP: f64 = 0.01;
    /// Least against greatest memory of nodes with CPUs. The first node lacks some that the kernel took at boot.
    pub const UNEVEN: f64 = 0.6;
    /// Share of a case's pages on other nodes.
    pub const STRAY_PAGES: f64 = 0.01;
    /// Core clock against the base clock, and against the greatest where no base is known: all-core boost with wide vectors
    /// stays above.
    pub const BASE_CLOCK: f64 = 0.9;
    /// See [`BASE_CLOCK`].
    pub const GREATEST_CLOCK: f64 = 0.6;
    /// Core clock at the end of a run against that at its start.
    pub const FALLEN_CLOCK: f64 = 0.95;
    /// Share of a run's CPU time that the hypervisor took; the kernel counts it in steps of 10 ms.
    pub const STEAL: f64 = 0.005;
    /// And seconds of it at least.
    pub const STEAL_S: f64 = 0.05;
}

/// How those warnings begin of which a verdict may have more to say.
pub(crate) mod head {
    pub const GOVERNOR: &str = "the frequency governor is not performance";
    pub const NUMA_BALANCING: &str = "NUMA balancing is on";
    pub const NO_HUGE_PAGES: &str = "transparent huge pages are off";
    pub const UNEVEN_NODES: &str = "memory is unevenly populated";
    pub const UNEVEN_MODULES: &str = "memory modules differ";
    pub const STRAY_PAGES: &str = "pages lie on the wrong node";
    pub const SIBLINGS: &str = "threads shared a core";
    pub const SLOW_CLOCK: &str = "cores were slower than they should be";
    pub const STEAL: &str = "the hypervisor took time";
    pub const PAGE_CACHE: &str = "page cache fills node";
}

/// A warning: what is the case, how that is known, and what helps.
fn warning(what: &str, evidence: impl AsRef<str>, cure: impl Into<String>) -> Warning {
    Warning { text: format!("{what}: {}", evidence.as_ref()), cure: cure.into() }
}

/// What disturbs or limits figures on this machine, whatever is run.
pub fn of_machine(machine: &Machine) -> Vec<Warning> {
    let one = [
        hypervisor(machine),
        governor(machine),
        numa_balancing(machine),
        zone_reclaim(machine),
        thp(machine),
        base_pages(machine),
        swap(machine),
        split_domains(machine),
        uneven_nodes(machine),
        uneven_modules(machine),
    ];
    one.into_iter().flatten().chain(page_cache(machine)).collect()
}

/// What disturbed or limited the figures of a record.
pub(crate) fn of_run(visits: &Visits<'_>) -> Vec<Warning> {
    let clocks = parallel::map(&visits.cases, |case| core_clock(&measured(case), visits.hz()));
    let one = [
        stray_pages(visits),
        siblings(visits),
        slow_clock(visits, &clocks),
        falling_clock(visits, &clocks),
        steal(visits.record),
    ];
    one.into_iter().flatten().collect()
}

fn hypervisor(machine: &Machine) -> Option<Warning> {
    let name = match machine.identity.hypervisor.known()? {
        Hypervisor::Vendor(name) => name.as_str(),
        Hypervisor::Unnamed => "unnamed",
        Hypervisor::None => return None,
    };
    Some(Warning {
        text: format!("this is a virtual machine ({name}): caches and memory are shared with unknown neighbours"),
        cure: "repeat, and believe intervals more than medians".into(),
    })
}

fn governor(machine: &Machine) -> Option<Warning> {
    let slow = |governor: &&String| governor.as_str() != "performance";
    let governor = machine.settings.governors.known()?.iter().find(slow)?;
    let of_cpu = |cpu: &&membound_core::machine::cpus::Cpu| {
        cpu.frequency.known().and_then(|frequency| frequency.governor.known()) == Some(governor)
    };
    let cpus: CpuSet = machine.cpus.iter().filter(of_cpu).map(|cpu| cpu.id).collect();
    let evidence = format!("scaling_governor is {governor} on CPUs {cpus}");
    Some(warning(head::GOVERNOR, evidence, "cpupower frequency-set -g performance"))
}

fn numa_balancing(machine: &Machine) -> Option<Warning> {
    let (mode, nodes) = (machine.settings.numa_balancing.get()?, machine.nodes_with_memory().count());
    let evidence =
        format!("kernel.numa_balancing is {mode} on {nodes} nodes, so pages may move while they are measured");
    (mode > 0 && nodes > 1).then(|| warning(head::NUMA_BALANCING, evidence, "sysctl kernel.numa_balancing=0"))
}

fn zone_reclaim(machine: &Machine) -> Option<Warning> {
    let (mode, nodes) = (machine.settings.zone_reclaim_mode.get()?, machine.nodes_with_memory().count());
    let evidence = format!(
        "vm.zone_reclaim_mode is {mode} on {nodes} nodes, so a full node is searched for pages to give up before memory of \
         another is used"
    );
    (mode > 0 && nodes > 1).then(|| warning("zone reclaim is on", evidence, "sysctl vm.zone_reclaim_mode=0"))
}

/// `4k` is the name of the memory that everybody gets, whatever its pages have.
fn base_pages(machine: &Machine) -> Option<Warning> {
    let page = machine.pages.base.get().filter(|page| page.0 != BASE_PAGE)?;
    Some(warning(
        "base pages are larger than usual",
        format!("this kernel's base pages have {page}, so memory of kind `4k` has pages of that size"),
        "compare it with machines whose base pages have the same size",
    ))
}

fn thp(machine: &Machine) -> Option<Warning> {
    let is_off = machine.settings.thp.known().is_some_and(|mode| mode == "never");
    is_off.then(|| {
        warning(
            head::NO_HUGE_PAGES,
            "/sys/kernel/mm/transparent_hugepage/enabled says never, so `thp` memory has base pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    })
}

fn swap(machine: &Machine) -> Option<Warning> {
    let (used, total) = (machine.memory.swap_used().get()?, machine.memory.total.get()?);
    let evidence = format!("{used} are swapped out on a machine of {total}, and come back through page faults");
    let cure = "stop what fills memory, then swapoff -a && swapon -a";
    (used.0 as f64 > threshold::SWAP * total.0 as f64).then(|| warning("swap is in use", evidence, cure))
}

/// Nodes full of page cache. With a single node the kernel gives page cache up, and there is no other node that pages could
/// go to instead.
pub(crate) fn full_nodes(machine: &Machine) -> Vec<&Node> {
    let is_full = |node: &&Node| {
        let (Some(total), Some(free), Some(cache)) = (node.total.get(), node.free.get(), node.page_cache.get()) else {
            return false;
        };
        (free.0 as f64) < threshold::NODE_FREE * total.0 as f64
            && cache.0 as f64 > threshold::CACHE_TO_FREE * free.0 as f64
    };
    let nodes: Vec<&Node> = machine.nodes_with_memory().collect();
    if nodes.len() < 2 { Vec::new() } else { nodes.into_iter().filter(is_full).collect() }
}

fn page_cache(machine: &Machine) -> Vec<Warning> {
    let of_node = |node: &Node| {
        let (total, free, cache) = (node.total.get()?, node.free.get()?, node.page_cache.get()?);
        let evidence =
            format!("of {total} there {cache} are page cache and {free} are free, so new pages may go to other nodes");
        let cure = format!(
            "sync; echo 1 > /proc/sys/vm/drop_caches (as root), or keep pages there with numactl --membind={}",
            node.id
        );
        Some(warning(&format!("{} {}", head::PAGE_CACHE, node.id), evidence, cure))
    };
    full_nodes(machine).into_iter().filter_map(of_node).collect()
}

/// Last-level caches of which this process may use some CPUs only: others evict its lines.
fn split_domains(machine: &Machine) -> Option<Warning> {
    let (usable, online) = (machine.usable_cpus(), machine.online_cpus());
    let domains: BTreeSet<CpuSet> =
        usable.iter().filter_map(|cpu| machine.last_level(cpu)).map(|cache| cache.cpus.intersection(&online)).collect();
    let allowed = |domain: &CpuSet| domain.intersection(&usable);
    let (split, whole): (Vec<&CpuSet>, Vec<&CpuSet>) = domains.iter().partition(|domain| allowed(domain) != **domain);
    let first = split.first()?;
    let mut evidence = format!("CPUs {} may be used here, of {first} that share a last-level cache", allowed(first));
    if split.len() > 1 {
        evidence += &format!(" (and {} more such caches)", split.len() - 1);
    }
    let wanted: CpuSet = split.iter().flat_map(|domain| domain.iter()).collect();
    let mut cure = format!("ask for all of CPUs {wanted} (cpuset, taskset or the job's allocation)");
    if !whole.is_empty() {
        let whole: CpuSet = whole.iter().flat_map(|domain| domain.iter()).collect();
        cure += &format!(", or keep to whole caches with --cpus {whole}");
    }
    Some(warning("the CPUs allowed split a last-level cache", evidence, cure))
}

/// The evidence that nodes have too different an amount of memory, and the node that has most. Nodes without CPUs are memory of another
/// kind, and may have any size; of some it is not known.
pub(crate) fn uneven(machine: &Machine) -> Option<(String, u32)> {
    let has_cpus = |node: &&Node| node.cpus.known().is_some_and(|cpus| !cpus.is_empty());
    let with_cpus = || machine.nodes.iter().filter(has_cpus);
    let sizes = || with_cpus().filter_map(|node| Some((node.total.get()?, node.id)));
    let ((least, poorest), (greatest, richest)) = (sizes().min()?, sizes().max()?);
    // By more than what the kernel takes at boot.
    let is_uneven = (least.0 as f64) < threshold::UNEVEN * greatest.0 as f64;
    is_uneven
        .then(|| (format!("node {poorest} has {least}, node {richest} has {greatest}, and both have CPUs"), richest))
}

fn uneven_nodes(machine: &Machine) -> Option<Warning> {
    let (evidence, richest) = uneven(machine)?;
    let cure = format!(
        "fit memory alike on all nodes; until then keep to one: numactl --cpunodebind={richest} --membind={richest}"
    );
    Some(warning(head::UNEVEN_NODES, evidence, cure))
}

/// What helps where modules differ.
pub(crate) const EVEN_MODULES: &str = "fit modules of one size on all channels (dmidecode -t memory lists them)";

/// Which channel a module is on cannot be read, but modules of different sizes never fill channels alike.
fn uneven_modules(machine: &Machine) -> Option<Warning> {
    let mut sizes: BTreeMap<Bytes, usize> = BTreeMap::new();
    for size in machine.modules()?.iter().filter_map(|dimm| dimm.size.get()) {
        *sizes.entry(size).or_insert(0) += 1;
    }
    let parts: Vec<String> = sizes.iter().map(|(size, count)| format!("{count} of {size}")).collect();
    (sizes.len() > 1).then(|| warning(head::UNEVEN_MODULES, parts.join(", "), EVEN_MODULES))
}

/// The nodes on which a case's pages belong: the node they are bound to, or those of the threads that touch them first.
/// `None` where that can't be told: streams have nodes of their own, or a thread's node is unknown or has no memory.
fn home(case: &Case, machine: &Machine) -> Option<BTreeSet<u32>> {
    // Page cache beside a program drives its pages away: that is what is measured there.
    if !case.streams.is_empty() || matches!(case.work, Work::PageCache(_)) {
        return None;
    }
    if !case.memory.policy.is_first_touch() {
        return Some(case.memory.policy.nodes().iter().collect());
    }
    let has_memory = |id: u32| machine.nodes_with_memory().any(|node| node.id == id);
    let node = |cpu: &u32| machine.cpu(*cpu)?.node.get().filter(|node| has_memory(*node));
    case.cpus.iter().map(node).collect()
}

/// Pages that lie elsewhere: their share, and how many of which node. Of the visit with the greatest share.
fn strays(case: &Case, measured: &[&Measured], machine: &Machine) -> Option<(f64, u32)> {
    let home = home(case, machine)?;
    let of_visit = |visit: &&Measured| {
        let pages = &visit.obtained.pages_on_node;
        let strays = || pages.iter().filter(|found| !home.contains(&found.node));
        let most = strays().max_by_key(|found| found.pages)?;
        let (stray, all): (u64, u64) = (strays().map(|f| f.pages).sum(), pages.iter().map(|f| f.pages).sum());
        Some((stray as f64 / all.max(1) as f64, most.node))
    };
    measured.iter().filter_map(of_visit).max_by(|a, b| a.0.total_cmp(&b.0))
}

fn stray_pages(visits: &Visits<'_>) -> Option<Warning> {
    let machine = &visits.header().machine;
    let of_case = |visits: &[&Measurement]| {
        let case = &visits[0].case;
        let (share, node) = strays(case, &measured(visits), machine)?;
        (share > threshold::STRAY_PAGES).then(|| (share, node, case.to_string()))
    };
    let found: Vec<(f64, u32, String)> = visits.rows(of_case);
    let (share, node, worst) = found.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let evidence = format!(
        "in {} of {} cases; the worst has {} of them elsewhere, most on node {node} ({worst})",
        found.len(),
        visits.cases.len(),
        percent(*share)
    );
    let cure = "free the threads' own nodes (sync; echo 1 > /proc/sys/vm/drop_caches), or bind pages with --node";
    Some(warning(head::STRAY_PAGES, evidence, cure))
}

/// Kernels only: hand-overs between hardware threads of one core are measured on purpose.
fn siblings(visits: &Visits<'_>) -> Option<Warning> {
    let machine = &visits.header().machine;
    let pair = |case: &Case| -> Option<(u32, u32)> {
        let other = |cpu: u32| machine.cpu(cpu)?.core_cpus.iter().find(|id| *id > cpu && case.cpus.contains(id));
        case.cpus.iter().find_map(|&cpu| Some((cpu, other(cpu)?)))
    };
    let cases = visits.cases.iter().map(|visits| &visits[0].case);
    let cases: BTreeSet<&Case> = cases.filter(|case| matches!(case.work, Work::Kernel(_))).collect();
    let pairs: Vec<(u32, u32)> = cases.iter().filter_map(|case| pair(case)).collect();
    let (first, second) = pairs.first()?;
    let both = if pairs.iter().all(|other| other == &pairs[0]) { "both" } else { "both of some core" };
    let used: CpuSet = cases.iter().flat_map(|case| case.cpus.iter().copied()).collect();
    let is_first =
        |cpu: &u32| machine.cpu(*cpu).is_none_or(|c| c.core_cpus.iter().find(|id| used.contains(*id)) == Some(*cpu));
    let one_each: CpuSet = used.iter().filter(is_first).collect();
    let evidence = format!(
        "CPUs {first} and {second} are hardware threads of one core, and {} of {} cases ran on {both}",
        pairs.len(),
        cases.len()
    );
    Some(warning(head::SIBLINGS, evidence, format!("use one hardware thread a core: --cpus {one_each}")))
}

/// The clock that a CPU should have at least, whose it is, and the share of it that is still well: its base clock. The time
/// stamp counter runs at that of the processor.
pub(crate) fn base_clock(machine: &Machine, clock: &Clock, cpu: u32) -> Option<(Hertz, &'static str, f64)> {
    let frequency = machine.cpu(cpu).and_then(|cpu| cpu.frequency.known());
    if let Some(base) = frequency.and_then(|frequency| frequency.base.get()) {
        return Some((base, "base clock", threshold::BASE_CLOCK));
    }
    if clock.name == "tsc" && machine.kinds().len() <= 1 {
        return Some((clock.hz, "time stamp counter", threshold::BASE_CLOCK));
    }
    Some((frequency?.hardware_max.get()?, "greatest clock", threshold::GREATEST_CLOCK))
}

/// `clocks`: the core clock of each case, in hertz.
fn slow_clock(all: &Visits<'_>, clocks: &[Option<f64>]) -> Option<Warning> {
    let header = all.header();
    let of_case = |(visits, clock): (&Vec<&Measurement>, &Option<f64>)| {
        let (clock, cpu) = ((*clock)?, *visits[0].case.cpus.first()?);
        let (expected, whose, least) = base_clock(&header.machine, &header.clock, cpu)?;
        Some((clock / expected.0, least, clock, expected, whose))
    };
    let clocks: Vec<_> = all.cases.iter().zip(clocks).filter_map(of_case).collect();
    let slow: Vec<_> = clocks.iter().filter(|(ratio, least, ..)| ratio < least).collect();
    // One slow case is a disturbance, which its own flags tell of.
    if slow.len() * 2 < clocks.len() {
        return None;
    }
    let (ratio, _, clock, expected, whose) = slow.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let evidence = format!("down to {}, {} of the {whose} of {expected}", Hertz(*clock), percent(*ratio));
    Some(warning(head::SLOW_CLOCK, evidence, COOLER))
}

const COOLER: &str = "look for heat, a power limit or a cap on the clock: turbostat, cpupower frequency-info, dmesg";

/// Each visit's clock against its case's median: other work has another clock, which must not count.
/// `of_case`: these medians, in hertz.
fn falling_clock(all: &Visits<'_>, of_case: &[Option<f64>]) -> Option<Warning> {
    /// Fewer visits than this show no course.
    const VISITS: usize = 12;
    let hz = all.hz();
    let visits: Vec<_> = all.record.measurements.iter().zip(&all.case_of).collect();
    let clocks: Vec<(f64, f64)> = parallel::filter_map(&visits, |(visit, case)| {
        let clock = core_clock(&[visit.outcome.measured()?], hz)?;
        Some((clock / of_case[**case]?, clock))
    });
    let quarter = clocks.len() / 4;
    let middle = |part: &[(f64, f64)]| Some((median(part.iter().map(|c| c.0))?, median(part.iter().map(|c| c.1))?));
    let (start, end) = (middle(clocks.get(..quarter)?)?, middle(clocks.get(clocks.len() - quarter..)?)?);
    let evidence = format!(
        "{} of that at the start for the same work (medians {} and {})",
        percent(end.0 / start.0),
        Hertz(start.1),
        Hertz(end.1)
    );
    (clocks.len() >= VISITS && end.0 < threshold::FALLEN_CLOCK * start.0)
        .then(|| warning("the core clock fell during the run", evidence, COOLER))
}

/// CPU time that the hypervisor says it took during a run: seconds, and the share of all.
pub(crate) fn stolen(before: &Environment, end: &End, machine: &Machine) -> Option<(f64, f64)> {
    let stolen = end.after.steal_s? - before.steal_s?;
    let cpus = machine.online_cpus().len().max(1) as f64;
    Some((stolen, stolen / (end.wall_s * cpus).max(stolen)))
}

fn steal(record: &Record) -> Option<Warning> {
    let (stolen, share) = stolen(&record.header.before, record.end.as_ref()?, &record.header.machine)?;
    let evidence = format!("{} s of CPU time during the run, {} of all", significant(stolen), percent(share));
    let cure = "see the flag `steal` on single rows; ask for dedicated cores, or repeat when the host is quiet";
    (stolen > threshold::STEAL_S && share > threshold::STEAL).then(|| warning(head::STEAL, evidence, cure))
}
