//! Memory from everywhere: what nodes are, on recorded and made-up machines; which cases there are and that they fit;
//! matrices, saturation and sentences from simulated records; what hwloc reads back; one real run.

use crate::common::program::run_in;
use crate::common::recorded::recorded;
use crate::common::{by_hand, imitation};
use std::collections::BTreeMap;
use std::process::Command;

use crate::common::skip::skip;
use membound_analyze::across::numa::rows::{Limit, Numa};
use membound_analyze::flag::Flag;
use membound_analyze::of_record as model;
use membound_analyze::output::{csv, hwloc, json, terminal};
use membound_analyze::report::Report;
use membound_core::case::{Case, Work};
use membound_core::experiments as plan;
use membound_core::experiments::frame::{Frame, PlanError};
use membound_core::experiments::numa::{NumaChoice, Way};
use membound_core::kernel::chase::Chase;
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::domains::{Domain, DomainKind};
use membound_core::machine::nature::NodeKind;
use membound_core::memory::located::NodePages;
use membound_core::memory::{MemoryKind, Obtained};
use membound_core::record::{Measured, Measurement, Outcome, Record, Sample, Samples, Volume};
use membound_core::units::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

// --- Machines ---

/// A made-up machine. CPUs are numbered through; each core has `threads` of them.
pub struct Made {
    /// CPUs and MB of each node.
    pub nodes: Vec<(&'static str, u64)>,
    /// Distances, a line a node.
    pub distances: Vec<&'static str>,
    pub cpus: u32,
    pub threads: u32,
    /// CPUs in each package, in each last-level cache and the cache's size in KiB.
    pub package: u32,
    pub cache: (u32, u64),
    pub cpuinfo: &'static str,
    pub files: Vec<(&'static str, &'static str)>,
}

impl Made {
    /// Two packages of one node each, with two caches of two cores each; and HBM beside the first.
    pub fn two_and_hbm() -> Made {
        Made {
            nodes: vec![("0-3", 16384), ("4-7", 16384), ("", 8192)],
            distances: vec!["10 21 13", "21 10 23", "13 23 10"],
            cpus: 8,
            threads: 1,
            package: 4,
            cache: (2, 4096),
            cpuinfo: "vendor_id : GenuineIntel\nmodel name : made up\n",
            files: Vec::new(),
        }
    }

    /// Knights Landing 7250 in flat mode: the published table of its nodes.
    pub fn knl() -> Made {
        Made {
            nodes: vec![("0-271", 98207), ("", 16384)],
            distances: vec!["10 31", "31 10"],
            cpus: 272,
            threads: 4,
            package: 272,
            cache: (8, 1024),
            cpuinfo: "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 87\nmodel name : Intel(R) Xeon Phi(TM) CPU 7250 @ 1.40GHz\n",
            files: Vec::new(),
        }
    }

    pub fn machine(&self) -> Machine {
        Machine::read(self.tree().path()).unwrap()
    }

    pub fn tree(&self) -> TempDir {
        let root = by_hand::machine_folder();
        let write = |path: &str, text: &str| imitation::file(root.path(), path, text);
        write("proc/cpuinfo", self.cpuinfo);
        let total: u64 = self.nodes.iter().map(|node| node.1 * 1024).sum();
        write("proc/meminfo", &format!("MemTotal: {total} kB\nMemFree: {total} kB\nMemAvailable: {total} kB\n"));
        write("sys/devices/system/cpu/online", &format!("0-{}\n", self.cpus - 1));
        for cpu in 0..self.cpus {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            let range = |size: u32| format!("{}-{}", cpu / size * size, cpu / size * size + size - 1);
            write(&format!("{folder}/topology/physical_package_id"), &format!("{}\n", cpu / self.package));
            write(&format!("{folder}/topology/core_id"), &format!("{}\n", cpu / self.threads));
            write(&format!("{folder}/topology/thread_siblings_list"), &range(self.threads));
            let cache = format!("{folder}/cache/index2");
            let facts = [("level", "2".into()), ("type", "Unified".into()), ("size", format!("{}K", self.cache.1))];
            for (name, value) in facts.into_iter().chain([("shared_cpu_list", range(self.cache.0))]) {
                write(&format!("{cache}/{name}"), &value);
            }
            write(&format!("{cache}/coherency_line_size"), "64");
        }
        for (id, ((cpus, mb), distances)) in self.nodes.iter().zip(&self.distances).enumerate() {
            let folder = format!("sys/devices/system/node/node{id}");
            write(&format!("{folder}/cpulist"), cpus);
            write(&format!("{folder}/distance"), distances);
            let kb = mb * 1024;
            write(&format!("{folder}/meminfo"), &format!("Node {id} MemTotal: {kb} kB\nNode {id} MemFree: {kb} kB\n"));
        }
        self.files.iter().for_each(|(path, text)| write(path, text));
        root
    }
}

fn kinds(machine: &Machine) -> Vec<(u32, NodeKind)> {
    machine.natures().into_iter().map(|nature| (nature.node, nature.kind)).collect()
}

const SIDE_CACHE: [(&str, &str); 2] = [
    ("sys/devices/system/node/node0/memory_side_cache/index1/size", "8589934592"),
    ("sys/devices/system/node/node0/memory_side_cache/index1/line_size", "64"),
];

// --- What a node is ---

#[test]
fn knights_landing_in_flat_mode_is_recognised() {
    let machine = Made::knl().machine();
    assert_eq!(kinds(&machine), [(0, NodeKind::Dram), (1, NodeKind::Mcdram)]);
    let says = machine.memory_modes();
    assert!(says[0].starts_with("Flat mode") && says[1].contains("quadrant"), "{says:?}");
    // Two signs: the processor, and size and distance.
    assert_eq!(machine.natures()[1].evidence.len(), 2);
}

#[test]
fn mcdram_is_recognised_by_size_and_distance_where_the_processor_is_hidden() {
    let machine = Made { cpuinfo: "model name : QEMU Virtual CPU\n", ..Made::knl() }.machine();
    assert_eq!(kinds(&machine)[1].1, NodeKind::Mcdram);
    let large = Made { nodes: vec![("0-271", 98207), ("", 16385)], cpuinfo: "", ..Made::knl() }.machine();
    assert_eq!(kinds(&large)[1].1, NodeKind::Unknown);
    let near = Made { distances: vec!["10 20", "20 10"], cpuinfo: "", ..Made::knl() }.machine();
    assert_eq!(kinds(&near)[1].1, NodeKind::Unknown);
}

#[test]
fn modes_of_fast_memory_are_told_apart() {
    let first = |made: Made| made.machine().memory_modes().first().cloned().unwrap_or_default();
    let cache = Made { nodes: vec![("0-271", 98207)], distances: vec!["10"], files: SIDE_CACHE.into(), ..Made::knl() };
    assert_eq!(first(cache), "Cache mode: memory-side caches of 8 GiB in front of node 0.");
    let hidden = Made { nodes: vec![("0-271", 98207)], distances: vec!["10"], ..Made::knl() };
    let says = first(hidden);
    assert!(
        says.starts_with("Cache mode: memory-side caches of 16 GiB. Inferred: this processor has 16 GiB"),
        "{says}"
    );
    // As real firmware has it: half of the MCDRAM is a node, and nothing tells of the other half.
    let half = first(Made { nodes: vec![("0-271", 98207), ("", 8192)], ..Made::knl() });
    assert!(half.starts_with("Hybrid mode: a part of the fast memory is a cache (8 GiB)"), "{half}");
    assert!(half.contains("8 GiB of it are nodes; the firmware tells of no cache"), "{half}");
    let quarter = first(Made { nodes: vec![("0-271", 98207), ("", 12288)], ..Made::knl() });
    assert!(quarter.contains("is a cache (4 GiB)"), "{quarter}");
    let hybrid = Made { nodes: vec![("0-271", 98207), ("", 8192)], files: SIDE_CACHE.into(), ..Made::knl() };
    assert!(first(hybrid).starts_with("Hybrid mode"), "a cache and a node");
    let snc = Made {
        nodes: vec![("0-67", 24000), ("68-135", 24000), ("136-203", 24000), ("204-271", 24000), ("", 4096), ("", 4096)],
        distances: vec![
            "10 21 21 21 31 41",
            "21 10 21 21 41 31",
            "21 21 10 21 41 41",
            "21 21 21 10 41 41",
            "31 41 41 41 10 41",
            "41 31 41 41 41 10",
        ],
        ..Made::knl()
    };
    let machine = snc.machine();
    assert_eq!(kinds(&machine)[4..], [(4, NodeKind::Mcdram), (5, NodeKind::Mcdram)]);
    assert_eq!(machine.memory_modes()[1], "4 nodes with CPUs in each package: SNC-4.");
    assert_eq!(machine.nearest_with_cpus(5), [1]);
}

#[test]
fn processors_name_their_memory() {
    let max = Made { cpuinfo: "model name : Intel(R) Xeon(R) CPU Max 9480\n", ..Made::two_and_hbm() };
    assert_eq!(kinds(&max.machine()), [(0, NodeKind::Dram), (1, NodeKind::Dram), (2, NodeKind::Hbm)]);
    let grace = Made {
        cpuinfo: "",
        files: vec![("sys/class/dmi/id/product_name", "GH200 480GB"), ("sys/class/dmi/id/sys_vendor", "NVIDIA")],
        ..Made::two_and_hbm()
    };
    let machine = grace.machine();
    assert_eq!(kinds(&machine)[2].1, NodeKind::Device, "{:?}", machine.identity.product);
}

#[test]
fn tiers_and_devices_are_signs_too() {
    let tiers = |own: &'static str| Made {
        files: vec![
            ("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1"),
            (
                if own == "slow" {
                    "sys/devices/virtual/memory_tiering/memory_tier22/nodelist"
                } else {
                    "sys/devices/virtual/memory_tiering/memory_tier2/nodelist"
                },
                "2",
            ),
        ],
        ..Made::two_and_hbm()
    };
    assert_eq!(kinds(&tiers("slow").machine())[2].1, NodeKind::Slow);
    assert_eq!(kinds(&tiers("fast").machine())[2].1, NodeKind::Hbm);
    let nothing = Made::two_and_hbm().machine();
    assert_eq!(kinds(&nothing)[2].1, NodeKind::Unknown);
    let empty = Made { nodes: vec![("0-3", 16384), ("4-7", 16384), ("", 0)], ..Made::two_and_hbm() }.machine();
    assert_eq!(kinds(&empty)[2].1, NodeKind::Empty);
}

#[test]
fn recorded_tiers_are_named_by_their_attributes() {
    let machine = recorded("fakeheteromemtiers");
    use NodeKind::{Dram, Hbm, Slow};
    assert_eq!(kinds(&machine), [(0, Dram), (1, Dram), (2, Hbm), (4, Hbm), (6, Slow), (8, Slow), (9, Slow)]);
}

#[test]
fn recorded_memory_side_caches_are_cache_mode_and_snc() {
    let machine = recorded("memorysidecaches");
    let says = machine.memory_modes();
    assert!(says[0].starts_with("Cache mode: memory-side caches of 96 GiB in front of node 0"), "{says:?}");
    assert_eq!(says[1], "2 nodes with CPUs in each package: SNC-2.");
}

// --- Domains ---

#[test]
fn domains_are_distinct_sets() {
    let machine = Made::two_and_hbm().machine();
    let all: CpuSet = (0..8).collect();
    let names: Vec<String> = machine.domains(&all).iter().map(Domain::to_string).collect();
    // Packages are the nodes once more.
    assert_eq!(names, ["node 0", "node 1", "cache of 0-1", "cache of 2-3", "cache of 4-5", "cache of 6-7"]);
    let some: CpuSet = [0, 1, 4].into_iter().collect();
    let names: Vec<String> = machine.domains(&some).iter().map(Domain::to_string).collect();
    assert_eq!(names, ["node 0", "node 1"]);
    assert_eq!(Made::knl().machine().one_per_core(&(0..12).collect()), [0, 4, 8]);
}

#[test]
fn recorded_clusters_are_domains() {
    let machine = recorded("128arm-2pa2n8cluster4co");
    let domains = machine.domains(&machine.online_cpus());
    let of = |kind| domains.iter().filter(|domain| domain.kind == kind).count();
    assert_eq!((of(DomainKind::Node), of(DomainKind::Package), of(DomainKind::Cluster)), (4, 2, 32));
}

// --- Cases ---

fn frame(machine: &Machine) -> Frame {
    Frame::new(machine, membound_measure::asm::detect(), None).unwrap()
}

fn cases(machine: &Machine) -> Vec<Case> {
    plan::numa::numa(&frame(machine), machine, &NumaChoice::default()).unwrap().0
}

/// Bytes that an executor keeps on each node at the same time: of each CPU, room for the largest streams stored and
/// loaded, and for its largest chase.
fn kept(cases: &[Case]) -> BTreeMap<u32, u64> {
    let mut streams: BTreeMap<(u32, u32, bool), u64> = BTreeMap::new();
    for case in cases {
        let share = case.working_set.0 / case.cpus.len() as u64;
        for &cpu in &case.cpus {
            let largest = streams.entry((case.memory.node().unwrap(), cpu, case.variant().is_some())).or_default();
            *largest = (*largest).max(share);
        }
    }
    let mut of_node = BTreeMap::new();
    for ((node, _, is_kernel), bytes) in streams {
        *of_node.entry(node).or_default() += if is_kernel { 2 * bytes } else { bytes };
    }
    of_node
}

fn check_room(machine: &Machine) {
    for (node, bytes) in kept(&cases(machine)) {
        let free = machine.node(node).unwrap().free.get().unwrap();
        // Of loads beside a memory-side cache nothing is stored.
        let most = if machine.node(node).unwrap().memory_side_caches.is_empty() { 0.4 } else { 0.8 };
        assert!(bytes as f64 <= most * free.0 as f64, "node {node}: {bytes} of {free}");
    }
}

#[test]
fn every_node_with_memory_is_a_target() {
    let cases = cases(&Made::two_and_hbm().machine());
    let has = |cpus: &[u32], node: u32, kernel: &str| {
        cases.iter().any(|case| {
            case.cpus == cpus && case.memory.node() == Some(node) && case.variant().is_some_and(|v| v.kernel == kernel)
        })
    };
    for node in 0..3 {
        for cpus in [&[0][..], &[4], &[0, 1, 2, 3], &[4, 5, 6, 7]] {
            for kernel in ["load", "store", "copy", "triad"] {
                assert!(has(cpus, node, kernel), "{cpus:?} {node} {kernel}");
            }
        }
    }
    // A cache meets its own node and what is nearest to that.
    assert!(has(&[0, 1], 0, "copy") && has(&[0, 1], 2, "copy") && !has(&[0, 1], 1, "copy"));
    assert!(has(&[4, 5], 1, "copy") && !has(&[4, 5], 2, "copy"));
    let chases = cases.iter().filter(|case| matches!(case.work, Work::Chase(_))).count();
    // Four first cores; those of two caches beside the nodes' own meet three nodes in all.
    assert_eq!(chases, 2 * 3 + 3);
    assert!(!cases.iter().any(|case| case.memory.kind != MemoryKind::Thp));
}

#[test]
fn working_sets_fit() {
    check_room(&Made::two_and_hbm().machine());
    check_room(&Made::knl().machine());
    let small = Made { nodes: vec![("0-3", 128), ("4-7", 96), ("", 64)], ..Made::two_and_hbm() };
    check_room(&small.machine());
    for name in ["fakeheteromemtiers", "memorysidecaches", "16amd64-8n2c", "48amd64-4pa2n6c-sparse"] {
        check_room(&recorded(name));
    }
}

#[test]
fn working_sets_lie_around_a_memory_side_cache() {
    let machine = recorded("memorysidecaches");
    let sizes: Vec<f64> = cases(&machine)
        .iter()
        .filter(|case| case.memory.node() == Some(0) && case.working_set > Bytes::gib(20))
        .map(|case| case.working_set.0 as f64 / (96u64 << 30) as f64)
        .map(|share| (share * 4.0).round() / 4.0)
        .collect();
    assert_eq!(sizes, [0.25, 0.5, 0.75, 1.0]);
}

#[test]
fn what_cannot_be_a_target_says_why() {
    let small = Made { nodes: vec![("0-3", 16384), ("4-7", 0), ("", 2)], ..Made::two_and_hbm() };
    let machine = small.machine();
    let (cases, left_out) = plan::numa::numa(&frame(&machine), &machine, &NumaChoice::default()).unwrap();
    assert!(cases.iter().all(|case| case.memory.node() == Some(0)));
    let [fault] = &left_out[..] else { panic!("{left_out:?}") };
    assert!(fault.to_string().starts_with("node 2 has 2 MiB free, of which"), "{fault}");
    let ask = |node: u32| {
        let choice = NumaChoice { nodes: vec![node], ..NumaChoice::default() };
        plan::numa::numa(&frame(&machine), &machine, &choice).unwrap_err()
    };
    let says = |fault: PlanError| fault.to_string();
    assert_eq!(says(ask(1)), "node 1 has no memory; nodes with memory are 0,2");
    assert_eq!(says(ask(7)), "there is no node 7; nodes with memory are 0,2");
    assert!(says(ask(2)).contains("free memory (drop caches)"));
    let cut = Made {
        files: vec![("proc/self/status", "Cpus_allowed_list: 0-7\nMems_allowed_list: 0\n")],
        ..Made::two_and_hbm()
    };
    let machine = cut.machine();
    let (_, left_out) = plan::numa::numa(&frame(&machine), &machine, &NumaChoice::default()).unwrap();
    assert_eq!(left_out.len(), 2);
    assert!(left_out[0].to_string().contains("outside of the nodes that may be used here, 0;"), "{}", left_out[0]);
}

#[test]
fn a_default_run_has_the_matrix_in_brief() {
    let machine = Made::two_and_hbm().machine();
    assert!(plan::numa::has_places(&machine));
    let brief = NumaChoice { is_brief: true, ..NumaChoice::default() };
    let (cases, _) = plan::numa::numa(&frame(&machine), &machine, &brief).unwrap();
    // Two nodes' CPUs x three nodes x (three kernels by one and by all, and a chase).
    assert_eq!(cases.len(), 2 * 3 * 7);
    let one = Made { nodes: vec![("0-7", 16384)], distances: vec!["10"], ..Made::two_and_hbm() };
    assert!(!plan::numa::has_places(&one.machine()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn working_sets_fit_on_any_machine(mb in prop::collection::vec(0u64..40_000, 3), cpus in 1u32..5, cache in 1u64..200_000) {
        let made = Made {
            nodes: vec![("0-3", mb[0]), ("4-7", mb[1]), ("", mb[2])],
            cache: (cpus, cache),
            ..Made::two_and_hbm()
        };
        let machine = made.machine();
        if let Ok((cases, _)) = plan::numa::numa(&frame(&machine), &machine, &NumaChoice::default()) {
            for (node, bytes) in kept(&cases) {
                let free = machine.node(node).unwrap().free.get().unwrap();
                prop_assert!(bytes as f64 <= 0.4 * free.0 as f64, "node {}: {} of {}", node, bytes, free);
            }
        }
    }
}

// --- Records ---

const HZ: f64 = 1e12;
const LINKS: u64 = 1 << 20;

/// Nine samples within 0.4 % of a duration in seconds.
fn samples(seconds: f64) -> Samples {
    let ticks = (0..9).map(|step| (seconds * (0.998 + 0.0005 * f64::from(step * 5 % 9)) * HZ) as u64);
    ticks.map(|ticks| Sample { ticks, core_clock_ticks: 5_000_000_000, ..Sample::default() }).collect()
}

/// What a simulated memory does: bytes a second of these CPUs on that node, and nanoseconds of a load.
pub type Truth = fn(&Case) -> f64;

fn visit(case: &Case, truth: Truth) -> Measurement {
    let (volume, seconds, repetitions) = match &case.work {
        Work::Chase(_) => {
            let volume = Volume { units: Chase::LINKS, ..Volume::default() };
            (volume, truth(case) * 1e-9 * LINKS as f64, LINKS / Chase::LINKS)
        }
        _ => (Volume { loaded: case.working_set.0, ..Volume::default() }, case.working_set.0 as f64 / truth(case), 1),
    };
    let pages_on_node = vec![NodePages { node: case.memory.node().unwrap_or(0), pages: 4096 }];
    let obtained = Obtained { bytes: case.working_set, pages_on_node, ..Obtained::default() };
    let measured = Measured { volume, repetitions, core_clock_links: 20_000, samples: samples(seconds), obtained };
    Measurement::new(case.clone(), 0, measured)
}

fn record(machine: Machine, measurements: Vec<Measurement>) -> Record {
    by_hand::record(by_hand::simulated_clock(HZ), machine, measurements)
}

pub fn report(machine: Machine, truth: Truth) -> Report {
    model::report(&record_of(machine, truth))
}

pub fn record_of(machine: Machine, truth: Truth) -> Record {
    let visits = cases(&machine).iter().map(|case| visit(case, truth)).collect();
    record(machine, visits)
}

/// Each core moves 10 GB/s; a cache of two cores 12, a node's own memory 20, the way between the nodes 8 (and 6 back),
/// HBM 80 (reached from node 1 like remote memory).
fn truth(case: &Case) -> f64 {
    let (home, node) = (case.cpus[0] / 4, case.memory.node().unwrap());
    if matches!(case.work, Work::Chase(_)) {
        return match (home, node) {
            (0, 2) => 120.0,
            (home, node) if home == node => 100.0,
            _ => 180.0,
        };
    }
    let caches = case.cpus.iter().map(|cpu| cpu / 2).collect::<std::collections::BTreeSet<_>>().len() as f64;
    let memory = match (home, node) {
        (0, 2) => 80.0,
        (0, 1) => 8.0,
        (1, 0) => 6.0,
        (home, node) if home == node => 20.0,
        _ => 7.0,
    };
    (10.0 * case.cpus.len() as f64).min(12.0 * caches).min(memory) * 1e9
}

fn median(numa: &Numa, from: &str, to: u32, way: Way, is_all: bool) -> f64 {
    let row = numa.row(MemoryKind::Thp, from, to, way, is_all).unwrap();
    let figure = row.payload_bps.map(|rate| rate.median / 1e9).or(row.latency_ns.map(|cost| cost.median));
    (figure.unwrap() * 10.0).round() / 10.0
}

#[test]
fn the_matrix_holds_what_was_measured() {
    let report = report(Made::two_and_hbm().machine(), truth);
    let numa = report.numa.as_ref().unwrap();
    let names: Vec<&str> = numa.initiators.iter().map(|initiator| initiator.name.as_str()).collect();
    assert_eq!(names, ["node 0", "node 1", "cache of 0-1", "cache of 2-3", "cache of 4-5", "cache of 6-7"]);
    assert_eq!(numa.nodes, [0, 1, 2]);
    let loads = |from: &str, is_all| [0, 1, 2].map(|to| median(numa, from, to, Way::Load, is_all));
    assert_eq!(loads("node 0", true), [20.0, 8.0, 24.0]);
    assert_eq!(loads("node 1", true), [6.0, 20.0, 7.0]);
    assert_eq!(loads("node 0", false), [10.0, 8.0, 10.0]);
    assert_eq!([0, 1, 2].map(|to| median(numa, "node 0", to, Way::Latency, true)), [100.0, 180.0, 120.0]);
    assert!(numa.row(MemoryKind::Thp, "cache of 0-1", 1, Way::Load, true).is_none());
    // Neither do they stand for the machine's levels, nor do their chases for its ladder.
    assert!(report.levels.iter().all(|level| level.best.is_empty()) && report.scaling.is_empty());
    assert!(report.rows.is_empty() && report.latency.rows.is_empty());
    assert!(numa.kernels.iter().all(|row| row.level.as_deref() == Some("memory")));
    let text = anstream::adapter::strip_str(&terminal::answer(&report, &report.numa)).to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    #[cfg(feature = "report")]
    {
        let page = membound_analyze::output::html::page(&report);
        // For people to look at.
        std::fs::write(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("numa.html"), &page).unwrap();
        let best = "<td class=\"heat\" style=\"--heat: 60%\"";
        assert!(page.contains("<h2>NUMA</h2>") && page.matches(best).count() >= 6, "{}", page.matches(best).count());
        assert!(page.contains("<b>24.0*</b>"), "the best of node 0's row");
    }
    insta::assert_snapshot!("numa-terminal", text);
}

/// However many figures are just narrow enough with their spread, flags beside them must fit too.
#[test]
fn many_flags_leave_tables_narrow() {
    let flags = Flag::ALL.iter().copied().filter(|flag| "bodcnisw".contains(flag.letter()));
    let flags: Vec<Flag> = flags.collect();
    for ways in 1..=Way::ALL.len() {
        let mut report = report(Made::two_and_hbm().machine(), truth);
        let numa = report.numa.as_mut().unwrap();
        numa.rows.retain(|row| Way::ALL[..ways].contains(&row.way));
        numa.rows.iter_mut().for_each(|row| row.quality.flags = flags.clone());
        let text = anstream::adapter::strip_str(&terminal::answer(&report, &report.numa)).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{ways} ways: {text}");
    }
}

#[test]
fn what_limits_a_domain_is_told() {
    let report = report(Made::two_and_hbm().machine(), truth);
    let numa = report.numa.as_ref().unwrap();
    let load = |from: &str| {
        let is_ours = |curve: &&membound_analyze::across::numa::rows::Saturation| {
            (curve.initiator.as_str(), curve.way) == (from, Way::Load)
        };
        let curve = numa.saturation.iter().find(is_ours).unwrap();
        (curve.points.iter().map(|point| point.0).collect::<Vec<_>>(), curve.cores, curve.limit)
    };
    // Two cores of a cache get 12 of their 20, and four cores of two caches the node's 20.
    assert_eq!(load("node 0"), (vec![1, 2, 4], 4, Limit::Cores));
    assert_eq!(load("cache of 0-1"), (vec![1, 2], 2, Limit::Cores));
    fn wide(case: &Case) -> f64 {
        // One core saturates its cache; two caches the node.
        if matches!(case.work, Work::Chase(_)) { 100.0 } else { truth(case).max(11.8e9) }
    }
    let report = super_report(wide);
    let numa = report.numa.as_ref().unwrap();
    let curve =
        numa.saturation.iter().find(|curve| curve.initiator == "cache of 0-1" && curve.way == Way::Load).unwrap();
    assert_eq!((curve.cores, curve.limit), (1, Limit::Domain));
    fn narrow(case: &Case) -> f64 {
        if matches!(case.work, Work::Chase(_)) { 100.0 } else { 5e9 }
    }
    let report = super_report(narrow);
    let limits = |from: &str| {
        let numa = report.numa.as_ref().unwrap();
        numa.saturation.iter().find(|curve| curve.initiator == from).unwrap().limit
    };
    assert_eq!((limits("cache of 0-1"), limits("node 0")), (Limit::Memory, Limit::Open));
}

#[test]
fn uncertain_rates_name_no_limit() {
    let machine = Made::two_and_hbm().machine();
    let mut visits: Vec<Measurement> = cases(&machine).iter().map(|case| visit(case, truth)).collect();
    for visit in &mut visits {
        let Outcome::Measured(measured) = &mut visit.outcome else { continue };
        for (index, ticks) in measured.samples.ticks.iter_mut().enumerate() {
            *ticks += *ticks * (index as u64 % 3) / 3;
        }
    }
    let report = model::report(&record(machine, visits));
    let numa = report.numa.as_ref().unwrap();
    assert!(!numa.saturation.is_empty() && numa.saturation.iter().all(|curve| curve.limit == Limit::Unclear));
    assert!(report.findings.iter().all(|sentence| !sentence.contains("Cores and bandwidth")), "{:?}", report.findings);
}

fn super_report(truth: Truth) -> Report {
    report(Made::two_and_hbm().machine(), truth)
}

fn has(report: &Report, start: &str) -> bool {
    report.findings.iter().any(|text| text.starts_with(start))
}

#[test]
fn the_answer_comes_first() {
    let max = Made { cpuinfo: "model name : Intel(R) Xeon(R) CPU Max 9480\n", ..Made::two_and_hbm() };
    let seen = report(max.machine(), truth);
    assert!(seen.findings[0].starts_with("Node 2 is HBM without CPUs: 1.20 x ["), "{:?}", seen.findings);
    assert!(seen.findings[0].contains("the load bandwidth of node 0 at 1.20 x ["), "{:?}", seen.findings);
    let remote =
        "From a node's cores to the memory of another: 0.300 to 0.400 x the load bandwidth of the own at 1.80 x its";
    assert!(has(&seen, remote), "{:?}", seen.findings);
    let apart =
        "Not symmetric, intervals apart: node 0 loads 8.00 GB/s from node 1, node 1 loads 6.00 GB/s from node 0.";
    assert!(has(&seen, apart), "{:?}", seen.findings);
}

#[test]
fn a_claim_is_confirmed_or_contradicted_by_intervals() {
    fn level(case: &Case) -> f64 {
        if matches!(case.work, Work::Chase(_)) { 100.0 } else { 10e9 }
    }
    fn wide(case: &Case) -> f64 {
        if case.memory.node() == Some(1) && case.variant().is_some() { 4.0 * level(case) } else { level(case) }
    }
    let verdict = |truth: Truth| {
        let report = report(Made::knl().machine(), truth);
        let kind = report.numa.as_ref().unwrap().kinds[1].clone();
        (kind.is_confirmed, kind.against, has(&report, "Node 1 is called MCDRAM"), has(&report, "Node 1 is MCDRAM"))
    };
    assert_eq!(verdict(wide), (Some(true), Some(0), false, true));
    assert_eq!(verdict(level), (Some(false), Some(0), true, true));
}

#[test]
fn one_node_has_nothing_to_place() {
    let one = Made {
        nodes: vec![("0-7", 16384)],
        distances: vec!["10"],
        package: 8,
        cache: (8, 4096),
        ..Made::two_and_hbm()
    };
    let report =
        report(
            one.machine(),
            |case| {
                if matches!(case.work, Work::Chase(_)) { 100.0 } else { 10e9 * case.cpus.len() as f64 }
            },
        );
    let says = "One node: nothing to place. Its 8 cores load 80.0 GB/s, one 10.0 GB/s; a load that waits takes 100 ns.";
    assert_eq!(report.findings[0], says);
    let text = terminal::answer(&report, &report.numa);
    assert!(!text.contains("from \\ to"), "{text}");
}

#[test]
fn memory_side_caches_are_seen_where_sizes_reach_beyond() {
    let made = Made {
        nodes: vec![("0-7", 160_000)],
        distances: vec!["10"],
        package: 8,
        files: SIDE_CACHE.into(),
        ..Made::two_and_hbm()
    };
    fn cached(case: &Case) -> f64 {
        match case.work {
            Work::Chase(_) => 100.0,
            _ if case.working_set <= Bytes::gib(8) => 80e9,
            _ => 20e9,
        }
    }
    let seen = report(made.machine(), cached);
    let cache = &seen.numa.as_ref().unwrap().side_caches[0];
    assert_eq!((cache.claimed, cache.is_seen), (Bytes::gib(8), Some(true)));
    assert!(
        has(&seen, "The memory-side cache of node 0 (8 GiB) shows: loads within it are 4.00 x"),
        "{:?}",
        seen.findings
    );
    let flat = report(made.machine(), |case| if matches!(case.work, Work::Chase(_)) { 100.0 } else { 20e9 });
    assert_eq!(flat.numa.as_ref().unwrap().side_caches[0].is_seen, Some(false));
    let short = Made { nodes: vec![("0-7", 20_000)], ..made };
    let open = report(short.machine(), cached);
    assert_eq!(open.numa.as_ref().unwrap().side_caches[0].is_seen, None);
}

/// As real firmware has hybrid mode: 8 of 16 GiB of MCDRAM are a node, and nothing tells of the rest. By size and part it must be
/// a cache; working sets around 8 GiB show whether it is, and the answer says how sure that makes it.
#[test]
fn hybrid_mode_without_a_word_from_the_firmware() {
    let machine = || {
        Made { nodes: vec![("0-67", 98207), ("", 8192)], cpus: 68, threads: 1, package: 68, ..Made::knl() }.machine()
    };
    fn hybrid(case: &Case) -> f64 {
        match (&case.work, case.memory.node()) {
            (Work::Chase(_), _) => 150.0,
            (_, Some(1)) => 380e9,
            _ if case.working_set <= Bytes::gib(8) => 300e9,
            _ => 85e9,
        }
    }
    fn without_cache(case: &Case) -> f64 {
        if matches!(case.work, Work::Chase(_)) { 150.0 } else { 300e9 }
    }
    let sizes = machine().side_cache_sizes(machine().node(0).unwrap());
    assert_eq!(sizes, (vec![Bytes::gib(8)], true));
    assert!(machine().side_cache_sizes(machine().node(1).unwrap()).0.is_empty());
    let seen = report(machine(), hybrid);
    let cache = &seen.numa.as_ref().unwrap().side_caches[0];
    assert_eq!((cache.node, cache.claimed, cache.is_inferred, cache.is_seen), (0, Bytes::gib(8), true, Some(true)));
    let said = seen.findings.join(" ");
    let shown = "inferred from the processor and the sizes of nodes) shows: loads within it are 3.53 x as fast as beyond it. So it is";
    assert!(
        said.contains(shown) && said.contains("Hybrid mode: a part of the fast memory is a cache (8 GiB)"),
        "{said}"
    );
    let flat = report(machine(), without_cache);
    assert_eq!(flat.numa.as_ref().unwrap().side_caches[0].is_seen, Some(false));
    assert!(flat.findings.join(" ").contains("the memory mode is in doubt"), "{:?}", flat.findings);
    // Four nodes have a quarter of it each.
    let snc = Made {
        nodes: vec![("0-16", 24000), ("17-33", 24000), ("34-50", 24000), ("51-67", 24000)],
        distances: vec!["10 21 21 21", "21 10 21 21", "21 21 10 21", "21 21 21 10"],
        cpus: 68,
        threads: 1,
        package: 68,
        ..Made::knl()
    };
    let snc = snc.machine();
    assert_eq!(snc.side_cache_sizes(snc.node(2).unwrap()), (vec![Bytes::gib(4)], true));
}

#[test]
fn memory_that_is_missing_is_told() {
    let machine = Made::two_and_hbm().machine();
    let refused = |case: &Case| {
        let reason = "memory could not be bound to node 1: Invalid argument".to_string();
        Measurement::new(case.clone(), 0, Outcome::Unavailable { reason })
    };
    let visits = cases(&machine)
        .iter()
        .filter(|case| case.memory.node() != Some(2))
        .map(|case| if case.memory.node() == Some(1) { refused(case) } else { visit(case, truth) })
        .collect();
    let report = model::report(&record(machine, visits));
    let text = terminal::answer(&report, &report.numa);
    assert!(text.contains("node 2 has memory and was not measured; 8 GiB were free there"), "{text}");
    let flowing = crate::common::on_one_line(&text);
    assert!(flowing.contains("unavailable: memory could not be bound to node 1"), "{text}");
}

#[test]
fn rows_are_tidy() {
    let report = report(Made::two_and_hbm().machine(), truth);
    let rows: Vec<_> = report.any_rows().collect();
    let text = json::rows(&rows);
    let back: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(back.len(), rows.len());
    let numa = back.iter().filter(|row| row["metric"] == "numa").count();
    assert_eq!(numa, report.numa.as_ref().unwrap().rows.len());
    let csv = csv::rows(&rows);
    let is_ours =
        |line: &&str| line.starts_with("numa,") && line.contains(",node 0,0-3,") && line.contains(",nt store,4");
    assert_eq!(csv.lines().filter(is_ours).count(), 3, "a row for each node");
}

// --- hwloc ---

/// Runs a tool of hwloc's; `None`, saying so, where there is none. Where CI installs it, it must be there.
fn hwloc_tool(tool: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(tool).args(arguments).env_remove("HWLOC_XMLFILE").output() {
        Ok(output) => {
            let (text, fault) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && fault.is_empty(), "{tool} {arguments:?}: {fault}");
            Some(text)
        }
        Err(_) => {
            skip(format!("{tool} is not there"));
            None
        }
    }
}

fn topology_file(report: &Report) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("topology.xml").display().to_string();
    std::fs::write(&path, hwloc::topology(report).unwrap()).unwrap();
    (folder, path)
}

#[test]
fn hwloc_reads_the_attributes_back() {
    let max = Made { cpuinfo: "model name : Intel(R) Xeon(R) CPU Max 9480\n", ..Made::two_and_hbm() };
    let (_folder, path) = topology_file(&report(max.machine(), truth));
    let Some(text) = hwloc_tool("lstopo-no-graphics", &["--input", &path, "--memattrs"]) else { return };
    let part = |name: &str| -> Vec<String> {
        let from = text.split(&format!("name `{name}'")).nth(1).unwrap_or_else(|| panic!("{name}: {text}"));
        from.lines().skip(1).take_while(|line| line.starts_with("  ")).map(|line| line.trim().to_string()).collect()
    };
    // 20 GB/s are 19073 MiB/s; HBM stands second, beside the node it is nearest to.
    let read = part("ReadBandwidth");
    assert!(read.contains(&"NUMANode L#0 = 19073 from cpuset 0x0000000f (Package L#0)".into()), "{text}");
    assert!(read.contains(&"NUMANode L#1 = 22888 from cpuset 0x0000000f (Package L#0)".into()), "{text}");
    assert!(read.contains(&"NUMANode L#2 = 7629 from cpuset 0x0000000f (Package L#0)".into()), "{text}");
    let latency = part("Latency");
    assert!(latency.contains(&"NUMANode L#2 = 180 from cpuset 0x0000000f (Package L#0)".into()), "{text}");
    assert!(part("WriteLatency").is_empty());
    assert!(part("WriteBandwidth").len() == read.len() && part("Bandwidth").len() == read.len());
    let shape = hwloc_tool("lstopo-no-graphics", &["--input", &path, "--of", "console"]).unwrap();
    assert!(shape.contains("NUMANode(HBM) L#1 (P#2 8192MB)"), "{shape}");
    // The best memory for loads, asked for as an application would.
    let best = hwloc_tool("hwloc-calc", &["--input", &path, "--best-memattr", "ReadBandwidth", "package:0"]);
    let nodes = hwloc_tool("hwloc-info", &["--input", &path, "numa:2"]);
    if let (Some(best), Some(nodes)) = (best, nodes) {
        assert_eq!(best.trim(), "1", "{best}");
        assert!(nodes.contains("os index = 1"), "{nodes}");
    }
}

#[test]
fn hwloc_reads_every_recorded_machine() {
    for name in [
        "48amd64-4pa2n6c-sparse",
        "fakeheteromemtiers",
        "memorysidecaches",
        "20em64t-hybrid-1p6c2t+2ca4co1t",
        "128arm-2pa2n8cluster4co",
    ] {
        let machine = recorded(name);
        let (cpus, nodes) = (machine.online_cpus().len(), machine.nodes.len());
        let measured = report(machine, |case| if matches!(case.work, Work::Chase(_)) { 100.0 } else { 10e9 });
        let (_folder, path) = topology_file(&measured);
        let Some(text) = hwloc_tool("lstopo-no-graphics", &["--input", &path, "--of", "console"]) else { return };
        assert_eq!(text.matches("PU L#").count(), cpus, "{name}: {text}");
        assert_eq!(text.matches("NUMANode").count(), nodes, "{name}: {text}");
        let values = hwloc_tool("lstopo-no-graphics", &["--input", &path, "--memattrs"]).unwrap();
        assert!(values.contains(" = 9537 from cpuset "), "{name}: {values}");
    }
}

// --- The command ---

#[test]
fn the_command_measures_this_machine() {
    let folder = TempDir::new().unwrap();
    let arguments = ["numa", "--size", "1MiB", "--budget", "12s", "--hwloc", "here.xml", "--record", "here.jsonl"];
    let output = run_in(folder.path(), &arguments);
    let (text, talk) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    // A machine that is busy enough gets nowhere in any budget.
    if text.is_empty() || text.starts_with("Too little was measured") {
        skip(text);
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}{talk}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let read = Record::read(&folder.path().join("here.jsonl")).unwrap();
    let is_bound = |visit: &Measurement| match &visit.outcome {
        Outcome::Measured(measured) => {
            measured.obtained.pages_on_node.iter().all(|found| Some(found.node) == visit.case.memory.node())
        }
        _ => true,
    };
    assert!(read.measurements.iter().all(is_bound), "pages on another node than asked for");
    let xml = folder.path().join("here.xml").display().to_string();
    if let Some(values) = hwloc_tool("lstopo-no-graphics", &["--input", &xml, "--memattrs"]) {
        assert!(values.split("ReadBandwidth").nth(1).is_some_and(|rest| rest.contains(" from cpuset ")), "{values}");
    }
    // Nothing is overwritten.
    let again = run_in(folder.path(), &["numa", "--hwloc", "here.xml"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8(again.stderr).unwrap().contains("cannot create here.xml"));
}

#[test]
fn the_command_refuses_what_is_not_there() {
    let folder = TempDir::new().unwrap();
    let output = run_in(folder.path(), &["numa", "--node", "977"]);
    let fault = String::from_utf8(output.stderr).unwrap();
    if fault.contains("names no NUMA nodes") {
        skip("the kernel names no NUMA nodes");
        return;
    }
    assert_eq!(output.status.code(), Some(2));
    assert!(fault.contains("there is no node 977; nodes with memory are"), "{fault}");
    let output = run_in(folder.path(), &["numa", "--root", "."]);
    assert_eq!(output.status.code(), Some(2), "a recorded machine can't be measured");
}
