//! The facts about a machine. What is absent is a `-` in its place; why stands at the end, once for each sort of thing.

use std::fmt::Display;

use crate::across::sections::warnings;
use crate::across::warnings::of_machine;
use crate::section::{Document, Section, Table};
use membound_core::in_order::grouped;
use membound_core::machine::Machine;
use membound_core::machine::cpus::Frequency;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::fact::Fact;
use membound_core::machine::identity::Arm;
use membound_core::machine::nature::{NodeKind, NodeNature};
use membound_core::machine::nodes::{Access, MemorySideCache, Node};
use membound_core::machine::pages::HugePool;
use membound_core::units::{Bytes, counted, significant};

/// More reasons than this are noise; JSON has them all.
const REASONS_MAX: usize = 32;

/// The whole description.
pub fn document(machine: &Machine) -> Document {
    let mut page = Page::default();
    processor(&mut page, machine);
    caches(&mut page, machine);
    nodes(&mut page, machine);
    memory(&mut page, machine);
    modules(&mut page, machine);
    limits(&mut page, machine);
    settings(&mut page, machine);
    meters(&mut page, machine);
    page.sections.push(warnings::section(&of_machine(machine)));
    page.finish(machine)
}

fn processor(page: &mut Page, machine: &Machine) {
    let identity = &machine.identity;
    page.heading("cpu", "CPU");
    page.fact("model", &identity.model);
    page.fact("vendor", &identity.vendor);
    page.fact(if identity.is_arm() { "revision" } else { "family/model/step" }, &identity.signature);
    page.fact("microcode", &identity.microcode);
    page.fact("machine", &identity.product);
    page.fact("hypervisor", &identity.hypervisor);
    page.fact("kernel", &identity.kernel);
    page.fact("architecture", &identity.architecture);
    let online = machine.online_cpus();
    let offline: CpuSet = machine.cpus.iter().filter(|cpu| !cpu.online).map(|cpu| cpu.id).collect();
    page.line("CPUs online", &cpu_count(&online));
    if !offline.is_empty() {
        page.line("CPUs offline", &cpu_count(&offline));
    }
    page.line("CPUs usable", &cpu_count(&machine.usable_cpus()));
    page.line("packages", &machine.packages().to_string());
    page.line("cores", &cores(machine));
    if let [_, _, ..] = machine.kinds()[..] {
        for (kind, cpus) in machine.kinds() {
            page.line(&format!("{kind}"), &format!("CPUs {}", cpu_count(&cpus)));
        }
    }
    clocks(page, machine);
    page.fact("TSC invariant", &identity.tsc.invariant.clone().map(yes_no));
    page.fact("clock source", &identity.clocksource);
    identity.arm.iter().for_each(|arm| registers(page, arm));
}

fn registers(page: &mut Page, arm: &Arm) {
    page.fact("features", &arm.features);
    page.fact("data line", &arm.data_line);
    page.fact("instruction line", &arm.instruction_line);
    page.fact("block of dc zva", &arm.zero_block);
    page.fact("SVE register", &arm.sve_register);
}

/// How many cores, and how many hardware threads they have: `14 (6 with 2 threads, 8 with 1)`.
fn cores(machine: &Machine) -> String {
    let cores = machine.cores();
    let mut widths: Vec<usize> = cores.iter().map(|threads| threads.len()).collect();
    widths.sort_unstable_by(|a, b| b.cmp(a));
    let threads = |n: usize| counted(n, "thread");
    let groups = widths.chunk_by(|a, b| a == b).collect::<Vec<_>>();
    let described: Vec<String> = match groups[..] {
        [] => return "0".into(),
        [one] => vec![format!("{} each", threads(one[0]))],
        _ => groups.iter().map(|group| format!("{} with {}", group.len(), threads(group[0]))).collect(),
    };
    format!("{} ({})", cores.len(), described.join(", "))
}

/// Clock ranges, one line for all CPUs that share one.
fn clocks(page: &mut Page, machine: &Machine) {
    let online = || machine.cpus.iter().filter(|cpu| cpu.online);
    let clocks = online().filter_map(|cpu| Some((clock(cpu.frequency.known()?), cpu.id)));
    let groups = grouped(clocks, |(clock, _)| clock.clone());
    if groups.is_empty() {
        let reason = online().find_map(|cpu| cpu.frequency.reason());
        page.fact::<String>("clock", &Fact::absent(reason.unwrap_or("no CPU is online")));
    }
    for (clock, cpus) in &groups {
        let ids = || cpus.iter().map(|(_, id)| *id).collect::<CpuSet>();
        let cpus = if groups.len() == 1 { String::new() } else { format!(", CPUs {}", ids()) };
        page.line("clock", &format!("{clock}{cpus}"));
    }
}

fn clock(frequency: &Frequency) -> String {
    let base = frequency.base.known().map(|base| format!(", base {base}")).unwrap_or_default();
    let most = frequency.max.clone().or_else(|| frequency.hardware_max.clone());
    format!("{} to {}{base}", or_dash(&frequency.min), or_dash(&most))
}

/// One row for all caches that are alike.
fn caches(page: &mut Page, machine: &Machine) {
    page.heading("caches", "Caches");
    if machine.caches.is_empty() {
        // Why is among what could not be read.
        return page.line("caches", "-");
    }
    let groups = grouped(&machine.caches, |c| (c.level, c.kind, c.size, c.line, c.ways.get(), c.cpus.len()));
    let mut rows = vec![row(["level", "kind", "size", "line", "ways", "number", "CPUs each", "the first's CPUs"])];
    rows.extend(groups.iter().map(|(_, group)| {
        let first = group[0];
        vec![
            format!("L{}", first.level),
            first.kind.to_string(),
            first.size.to_string(),
            first.line.to_string(),
            or_dash(&first.ways),
            group.len().to_string(),
            first.cpus.len().to_string(),
            first.cpus.to_string(),
        ]
    }));
    page.table(rows);
}

fn nodes(page: &mut Page, machine: &Machine) {
    page.heading("nodes", "Nodes");
    if machine.nodes.is_empty() {
        return page.fact::<String>("nodes", &Fact::absent("/sys/devices/system/node tells of none"));
    }
    let mut rows = vec![row(["node", "total", "free", "page cache", "CPUs"])];
    rows.extend(machine.nodes.iter().map(|node| {
        page.note(&format!("node {} CPUs", node.id), &node.cpus);
        page.note(&format!("node {} memory", node.id), &node.total);
        let cpus = node.cpus.known().map(|cpus| if cpus.is_empty() { "none".into() } else { cpu_count(cpus) });
        let [total, free, cache] = [&node.total, &node.free, &node.page_cache].map(or_dash);
        vec![node.id.to_string(), total, free, cache, cpus.unwrap_or_else(|| "-".into())]
    }));
    page.table(rows);
    distances(page, machine);
    natures(page, machine);
    for node in &machine.nodes {
        for cache in &node.memory_side_caches {
            page.line(&format!("node {} cache", node.id), &memory_side_cache(cache));
        }
        for access in node.access.iter().filter(|access| says_something(access)) {
            page.line(&format!("node {} access", node.id), &attributes(access));
        }
        pools(page, &format!("node {} huge", node.id), &node.huge_pools);
    }
    for tier in &machine.tiers {
        page.line(&format!("tier {}", tier.id), &format!("nodes {}", or_dash(&tier.nodes)));
    }
    for dax in &machine.dax {
        let [size, node, driver] =
            [or_dash(&dax.size), or_dash(&dax.target_node), or_dash(&dax.driver)].map(|text| text.to_string());
        page.line(&dax.name, &format!("{size}, node {node}, driver {driver}"));
    }
}

/// The matrix, unless there is but one node.
fn distances(page: &mut Page, machine: &Machine) {
    let numbers = |node: &Node| Some(node.distances.known()?.iter().map(|d| d.distance.to_string()).collect());
    let mut rows = vec![vec!["distance".to_string()]];
    rows[0].extend(machine.nodes.iter().map(|node| node.id.to_string()));
    for node in &machine.nodes {
        page.note(&format!("node {} distances", node.id), &node.distances);
        let numbers: Vec<String> = numbers(node).unwrap_or_else(|| vec!["-".into()]);
        rows.push([vec![node.id.to_string()], numbers].concat());
    }
    if machine.nodes.len() > 1 {
        page.table(rows);
    }
}

/// What each node is and why, one line for all that are the same by the same signs; and how memory was configured.
fn natures(page: &mut Page, machine: &Machine) {
    for (text, natures) in grouped(machine.natures(), kind) {
        let nodes: CpuSet = natures.iter().map(|nature| nature.node).collect();
        let label = if nodes.len() == 1 { "node" } else { "nodes" };
        page.line(&format!("{label} {nodes} kind"), &text);
    }
    for mode in machine.memory_modes() {
        page.line("memory mode", &mode);
    }
}

/// `slow memory: a sign of it; another; but HBM: a sign of that`.
fn kind(nature: &NodeNature) -> String {
    // MCDRAM is high-bandwidth memory.
    let agrees = |kind: NodeKind| kind == nature.kind || (nature.kind, kind) == (NodeKind::Mcdram, NodeKind::Hbm);
    let signs = nature.evidence.iter().map(|evidence| match agrees(evidence.kind) {
        true => evidence.says.clone(),
        false => format!("but {}: {}", evidence.kind, evidence.says),
    });
    format!("{}: {}", nature.kind, signs.collect::<Vec<_>>().join("; "))
}

fn memory_side_cache(cache: &MemorySideCache) -> String {
    let [size, line] = [&cache.size, &cache.line].map(or_dash);
    let [indexing, policy] = [&cache.indexing, &cache.write_policy].map(or_dash);
    format!("memory-side L{}, {size}, line {line}, {indexing}, {policy}", cache.level)
}

/// Firmware may list a node and fill in no value.
fn says_something(access: &Access) -> bool {
    let bandwidths = [&access.read_bandwidth, &access.write_bandwidth];
    let latencies = [&access.read_latency, &access.write_latency];
    bandwidths.iter().any(|fact| fact.known().is_some()) || latencies.iter().any(|fact| fact.known().is_some())
}

fn attributes(access: &Access) -> String {
    let [read, write] = [&access.read_bandwidth, &access.write_bandwidth].map(or_dash);
    let [read_latency, write_latency] = [&access.read_latency, &access.write_latency].map(or_dash);
    format!(
        "from node {}: read {read}, {read_latency}; write {write}, {write_latency} (class {})",
        access.initiators, access.class
    )
}

fn memory(page: &mut Page, machine: &Machine) {
    page.heading("memory", "Memory and pages");
    let (memory, pages) = (&machine.memory, &machine.pages);
    page.fact("total", &memory.total);
    page.fact("free", &memory.free);
    page.fact("available", &memory.available);
    page.fact("available here", &machine.available_memory());
    page.fact("swap", &memory.swap_total.clone().map(|total| swap(total, memory.swap_used().get())));
    page.fact("page", &pages.base);
    page.fact("transparent huge", &pages.thp);
    let sizes = pages.thp_sizes.iter().filter_map(|size| Some(format!("{} {}", size.page, size.mode.known()?)));
    let sizes: Vec<String> = sizes.collect();
    if !sizes.is_empty() {
        page.line("", &sizes.join(", "));
    }
    if pages.huge_pools.is_empty() {
        page.fact::<String>("huge pages", &Fact::absent("/sys/kernel/mm/hugepages has no pool"));
    }
    for pool in &pages.huge_pools {
        page.line("huge pages", &huge_pool(pool));
    }
}

fn swap(total: Bytes, used: Option<Bytes>) -> String {
    match used {
        _ if total == Bytes(0) => "none".into(),
        Some(used) => format!("{total}, {used} used"),
        None => total.to_string(),
    }
}

/// The pools of a node that have pages; empty ones say nothing that the machine's pools don't.
fn pools(page: &mut Page, label: &str, pools: &[HugePool]) {
    for pool in pools.iter().filter(|pool| pool.total.get() != Some(0)) {
        page.line(label, &huge_pool(pool));
    }
}

fn huge_pool(pool: &HugePool) -> String {
    format!("{}: {} pages, {} free", pool.page, or_dash(&pool.total), or_dash(&pool.free))
}

/// One row for all modules that are alike.
fn modules(page: &mut Page, machine: &Machine) {
    page.heading("modules", "Memory modules");
    let Fact::Known(dimms) = &machine.dimms else {
        return page.fact("modules", &machine.dimms.clone().map(|_| ""));
    };
    let groups = grouped(dimms, |dimm| (&dimm.size, &dimm.configured_mt_s, &dimm.part_number));
    let mut rows = vec![row(["number", "size", "type", "MT/s", "rated", "data bits", "ranks", "part"])];
    rows.extend(groups.iter().map(|(_, group)| {
        let first = group[0];
        let [configured, rated, width, ranks] =
            [&first.configured_mt_s, &first.rated_mt_s, &first.data_width_bits, &first.ranks].map(or_dash);
        let size = first.size.known().map_or("empty".into(), Bytes::to_string);
        let (technology, part) = (or_dash(&first.technology), or_dash(&first.part_number));
        vec![group.len().to_string(), size, technology, configured, rated, width, ranks, part]
    }));
    page.table(rows);
    if let Some(peak) = machine.dimm_peak() {
        page.line("all at once", &format!("{peak}, if each module has a channel of its own"));
    }
}

fn limits(page: &mut Page, machine: &Machine) {
    page.heading("limits", "Limits of this process");
    let limits = &machine.limits;
    page.fact("CPUs allowed", &limits.allowed_cpus.as_ref().map(cpu_count));
    page.fact("nodes allowed", &limits.allowed_nodes);
    page.fact("cpuset CPUs", &limits.cpuset_cpus.as_ref().map(cpu_count));
    page.fact("cpuset nodes", &limits.cpuset_nodes);
    page.fact(
        "memory",
        &limits.memory.as_ref().map(|_| match machine.memory_limit() {
            None => "no limit".to_string(),
            Some(limit) => format!("{} in {}, {} used", limit.limit, limit.group, or_dash(&limit.used)),
        }),
    );
    let least = |limits: &Vec<_>| {
        limits.iter().map(|limit: &membound_core::machine::limits::CpuTimeLimit| limit.cpus).reduce(f64::min)
    };
    page.fact(
        "CPU time",
        &limits
            .cpu_time
            .as_ref()
            .map(|limits| least(limits).map_or("no limit".to_string(), |cpus| format!("{} CPUs", significant(cpus)))),
    );
}

fn settings(page: &mut Page, machine: &Machine) {
    page.heading("settings", "Settings");
    let settings = &machine.settings;
    page.fact("THP", &settings.thp);
    page.fact("THP defrag", &settings.thp_defrag);
    page.fact("NUMA balancing", &settings.numa_balancing);
    page.fact("zone_reclaim_mode", &settings.zone_reclaim_mode);
    page.fact("demotion", &settings.demotion.clone().map(yes_no));
    page.fact("overcommit", &settings.overcommit_memory);
    page.fact("governor", &settings.governors.as_ref().map(|names| names.join(", ")));
    page.fact("boost", &settings.boost.clone().map(yes_no));
    page.fact("SMT", &settings.smt);
    page.fact("isolated CPUs", &settings.isolated.as_ref().map(cpu_count));
    page.fact("libnuma", &machine.libraries.libnuma);
    page.fact("memkind", &machine.libraries.memkind);
}

/// Meters of energy; why one can't be read stands at the end.
fn meters(page: &mut Page, machine: &Machine) {
    page.heading("meters", "Energy meters");
    let Fact::Known(meters) = &machine.energy else {
        return page.fact("meters", &machine.energy.clone().map(|_| ""));
    };
    let mut rows = vec![row(["part", "meter", "readable"])];
    for meter in meters {
        page.note(&meter.name, &meter.reading);
        let readable = yes_no(meter.reading.known().is_some());
        rows.push(row([meter.part.word(), &meter.name, readable]));
    }
    page.table(rows);
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn or_dash<T: Display>(fact: &Fact<T>) -> String {
    fact.known().map_or("-".into(), T::to_string)
}

/// `6 (0-3,8-9)`, or `none`.
fn cpu_count(set: &CpuSet) -> String {
    if set.is_empty() { "none".into() } else { format!("{} ({set})", set.len()) }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).into()
}

/// Sections in the making, with the reasons of what was absent.
#[derive(Default)]
struct Page {
    sections: Vec<Section>,
    absent: Vec<(String, String)>,
}

impl Page {
    fn heading(&mut self, id: &'static str, title: &str) {
        self.sections.push(Section { id, title: title.into(), ..Section::default() });
    }

    fn section(&mut self) -> &mut Section {
        self.sections.last_mut().expect("a heading comes first")
    }

    fn line(&mut self, label: &str, value: &str) {
        self.section().facts.push((label.into(), value.into()));
    }

    fn fact<T: Display>(&mut self, label: &str, fact: &Fact<T>) {
        self.note(label, fact);
        self.line(label, &or_dash(fact));
    }

    /// Remembers why a fact is absent, if it is.
    fn note<T>(&mut self, label: &str, fact: &Fact<T>) {
        if let Some(reason) = fact.reason() {
            self.absent.push((label.into(), reason.into()));
        }
    }

    /// Heads, and rows below them; what a row lacks at its end is absent.
    fn table(&mut self, rows: Vec<Vec<String>>) {
        let Some((heads, rows)) = rows.split_first() else { return };
        let column = |at: usize| rows.iter().map(move |row| row.get(at).cloned());
        let table = heads.iter().enumerate().fold(Table::new(""), |table, (at, head)| table.left(head, column(at)));
        self.section().tables.push(table);
    }

    fn finish(mut self, machine: &Machine) -> Document {
        let unread = machine.unread.iter().map(|unread| (unread.what.clone(), unread.reason.clone()));
        let reasons: Vec<(String, String)> = std::mem::take(&mut self.absent).into_iter().chain(unread).collect();
        self.heading("absent", "Absent (-)");
        // Each reason once, with what it is the reason for.
        let groups = grouped(&reasons, |(_, reason)| reason);
        for (reason, absent) in groups.iter().take(REASONS_MAX) {
            let labels: Vec<&str> = absent.iter().map(|(label, _)| label.as_str()).collect();
            let others = labels[1..].join(", ");
            let also = if others.is_empty() { others } else { format!(" (also: {others})") };
            self.line(labels[0], &format!("{reason}{also}"));
        }
        if groups.len() > REASONS_MAX {
            self.line("", &format!("and {} more; --format json has them all", groups.len() - REASONS_MAX));
        }
        Document::new("Machine", vec![machine.summary()], self.sections)
    }
}
