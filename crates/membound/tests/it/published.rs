//! Figures from elsewhere, through records made by hand: what was published must come out. The table in
//! `docs/published/README.md` names the test for each row of the reference; here stand those that no experiment's own
//! module has.

use crate::common::by_hand::unknown_machine;
use crate::common::program::membound;
use crate::{handover, latency, limits, loaded, numa};
use membound_analyze::across::advisor::{Question, advise, streams};
use membound_analyze::across::tiers::tiers;
use membound_analyze::of_record as model;
use membound_analyze::quality::Status;
use membound_core::case::{Case, Protocol, USUAL_MEMORY, Work};
use membound_core::kernel::catalog::{Kernel, Rows};
use membound_core::kernel::chase::{Chase, Order};
use membound_core::kernel::mix::Mix;
use membound_core::kernel::{Element, LoadKind, StoreKind};
use membound_core::machine::Machine;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::Record;
use membound_core::units::Bytes;
use membound_core::work::c2c::Home;
use membound_core::work::loaded::Load;

#[track_caller]
fn near(found: f64, expect: f64, share: f64) {
    assert!((found / expect - 1.0).abs() <= share, "{found} is not {expect}");
}

/// Arithmetic, and the README of TheBandwidthBenchmark: bytes on the bus with regular stores over those with non-temporal ones.
#[test]
fn traffic_ratios() {
    let bus = |kernel: &str, store| Kernel::named(kernel).unwrap().traffic(store, Element::Double).bus() as f64;
    for (kernel, expect) in [
        ("store", 2.0),
        ("copy", 1.5),
        ("scale", 1.5),
        ("add", 4.0 / 3.0),
        ("triad", 4.0 / 3.0),
        ("schoenauer", 1.25),
        ("update", 1.0),
    ] {
        near(bus(kernel, StoreKind::Regular) / bus(kernel, StoreKind::Nt), expect, 1e-12);
    }
}

/// G. Hager: the Schoenauer triad was switched to non-temporal stores at N = 1e6 by hand, 32 MB of doubles. Here regular stores
/// win below that, and it is found.
pub fn stores_that_cross() -> Record {
    let machine = unknown_machine();
    let sizes = (18..29).map(|power| Bytes(1 << power));
    // Equal at 32 MB, straight in the logarithm of the size on both sides.
    let regular = |size: Bytes| 20.0 * (size.0 as f64 / 32e6).powf(-0.2);
    let visits: Vec<(Case, f64)> = sizes
        .flat_map(|size| {
            [(StoreKind::Regular, regular(size)), (StoreKind::Nt, 20.0)].map(|(store, gb_s)| (size, store, gb_s))
        })
        .map(|(working_set, store, gb_s)| {
            let case = Case {
                working_set,
                memory: USUAL_MEMORY,
                cpus: vec![0],
                ..limits::case(&machine, "schoenauer", store, "first-touch")
            };
            (case, gb_s)
        })
        .collect();
    limits::record(&machine, &visits)
}

#[test]
fn the_switch_to_non_temporal_stores_is_measured() {
    let report = model::report(&stores_that_cross());
    let [found] = &report.crossovers[..] else { panic!("{:?}", report.crossovers) };
    near(found.at.unwrap()[0] / 32.0, 1e6, 0.02);
    assert_eq!((found.store, found.bound), (StoreKind::Nt, 1.25));
}

/// gjbex, Code-optimization (MLC): two packages. Idle latency from a node to itself and to the other.
pub const TWO_PACKAGES: [(&str, f64, f64); 3] =
    [("Cascade Lake", 67.0, 131.0), ("Ice Lake", 88.9, 143.0), ("Sapphire Rapids SNC4", 96.0, 188.0)];

pub fn near_and_far(local: f64, remote: f64) -> Record {
    let chase = Chase { stride_bytes: 128, block_bytes: 2 << 20, ..Chase::of(Order::PageOrdered) };
    let case = |node| {
        let case = latency::case(chase, MemoryKind::Huge2M, 0, Bytes::mib(512));
        Case { memory: MemorySpec::on(MemoryKind::Huge2M, node), ..case }
    };
    latency::record([(0, local), (1, remote)].map(|(node, ns)| latency::visit(&case(node), 0, &[ns; 5])).into())
}

#[test]
fn latencies_of_two_packages() {
    for (machine, local, remote) in TWO_PACKAGES {
        let report = model::report(&near_and_far(local, remote));
        for (node, ns) in [(0, local), (1, remote)] {
            let line = report.latency.map.iter().find(|line| line.node == Some(node)).unwrap();
            near(line.avg, ns, 1e-3);
        }
        let said = report.findings.join(" ");
        assert!(said.contains(&format!("{local:.1} ns")), "{machine}: {said}");
    }
}

/// Mess (Esmaili-Dokht et al., 2024) and gjbex's MLC: idle latency, bandwidth where it saturates, latency there.
pub type UnderLoad = (&'static str, f64, f64, f64, Mix);
pub const UNDER_LOAD: [UnderLoad; 4] = [
    ("Ice Lake, two packages", 88.9, 261.0, 352.5, Mix::Read),
    ("Xeon Max 9480, HBM", 128.0, 300.0, 833.0, Mix::OneToOne),
    ("EPYC 7742", 120.0, 300.0, 143.8, Mix::Read),
    ("Grace, 72 cores", 176.0, 645.0, 449.0, Mix::Read),
];

pub fn under_load((_, idle, saturated, gb_s, mix): UnderLoad) -> Record {
    let mut random = fastrand::Rng::with_seed(3);
    // The heaviest load uses 95 % of what the memory can.
    let growth = (saturated - idle) * (1.0 - 0.95) / 0.95;
    let mut visits = Vec::new();
    for _ in 0..3 {
        visits.push(loaded::visit(Load::Alone, idle, 0.0, &mut random));
        visits.push(loaded::visit(Load::Idle, idle, 0.0, &mut random));
        for (step, delay_ns) in [5120, 2560, 1280, 640, 320, 160, 80, 40, 0].into_iter().enumerate() {
            let used = 0.95 * (1.0 - 2f64.powi(-(step as i32) - 1)) / (1.0 - 2f64.powi(-9));
            let ns = idle + growth * used / (1.0 - used);
            visits.push(loaded::visit(Load::Mixed { mix, delay_ns }, ns, used * gb_s * 1e9, &mut random));
        }
    }
    crate::common::reports::record(1e9, visits)
}

#[test]
fn latency_under_load() {
    for published in UNDER_LOAD {
        let (machine, idle, saturated, gb_s, _) = published;
        let report = model::report(&under_load(published));
        let [curve] = &report.loaded.curves[..] else { panic!("{machine}: {:?}", report.loaded.curves) };
        near(curve.idle_ns.unwrap()[0], idle, 0.05);
        near(curve.saturation_bps.unwrap()[0] / 1e9, gb_s, 0.05);
        let last = &report.loaded.rows[*curve.rows.last().unwrap()];
        near(last.latency_ns.unwrap().value(), saturated, 0.05);
    }
}

/// nviennot, core-to-core-latency: one way between two cores.
pub const CORE_TO_CORE: [(&str, f64); 4] =
    [("7950X", 68.0), ("Milan-X", 115.0), ("Cascade Lake", 48.0), ("Knights Landing", 91.0)];

#[test]
fn core_to_core() {
    for (machine, ns) in CORE_TO_CORE {
        let report = handover::report(vec![handover::visit(handover::case(0, 1, Home::First), &[ns; 9])]);
        let digits = if ns < 100.0 { format!("{ns:.1}") } else { format!("{ns:.0}") };
        let says = format!("in {digits} ns");
        assert!(report.findings.iter().any(|text| text.contains(&says)), "{machine}: {:?}", report.findings);
    }
}

/// CXL (arXiv 2405.14209): a node without CPUs at two to five times the local latency, and much narrower.
pub fn link(case: &Case) -> f64 {
    match (&case.work, case.memory.node()) {
        (Work::Chase(_), Some(2)) => 250.0,
        (Work::Chase(_), _) => 100.0,
        (_, Some(2)) => 8e9,
        _ => 30e9,
    }
}

#[test]
fn memory_behind_a_link_is_told_by_its_latency() {
    let report = numa::report(numa::Made::two_and_hbm().machine(), link);
    let said = report.findings.join(" ");
    assert!(said.contains("at 2.5") && said.contains("It behaves like slow memory."), "{said}");
}

/// Public GPU issue threads: reads from write-combined memory, 0.2 to 0.24 GB/s by plain loads, over 10 by non-temporal ones.
pub fn write_combined_reads() -> Record {
    let machine = unknown_machine();
    let case = |load: LoadKind| {
        let mut case = limits::case(&machine, "load", StoreKind::Regular, "first-touch");
        let Work::Kernel(variant) = &mut case.work else { panic!() };
        variant.load = load;
        Case { memory: MemorySpec::of(MemoryKind::Wc), cpus: vec![0], working_set: Bytes::mib(32), ..case }
    };
    limits::record(&machine, &[(case(LoadKind::Regular), 0.22), (case(LoadKind::Nt), 10.4)])
}

#[test]
fn reads_from_write_combined_memory() {
    let report = model::report(&write_combined_reads());
    let rate = |load| report.rows.iter().find(|row| row.load() == load).unwrap().payload_bps.unwrap().value() / 1e9;
    near(rate(LoadKind::Regular), 0.22, 1e-3);
    near(rate(LoadKind::Nt), 10.4, 1e-3);
}

/// The table of the pages names tests that there are.
#[test]
fn every_test_of_the_table_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(root.join("docs/published/README.md")).unwrap();
    let names: Vec<&str> = table.split('`').filter(|part| part.contains("::") && !part.contains(' ')).collect();
    assert!(names.len() >= 30, "{names:?}");
    for name in names {
        let (module, test) = name.split_once("::").unwrap();
        let places = ["analyze", "membound"].map(|krate| root.join(format!("crates/{krate}/tests/it/{module}.rs")));
        let is_there = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("#[test]\nfn {test}()")))
        };
        assert!(places.iter().any(is_there), "{name}");
    }
}

/// Each page shows commands, and the command line understands them. Clap reads all that stands before --help.
#[test]
fn commands_of_the_pages_are_understood() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/published");
    let mut pages = 0;
    for page in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&page).unwrap();
        // Fences part what is said from what is typed.
        let typed: String = text.split("```").skip(1).step_by(2).collect();
        let commands = typed.lines().filter_map(|line| {
            line.split_once("membound ").filter(|(before, _)| before.is_empty() || before.starts_with("mpirun -np"))
        });
        let mut count = 0;
        for (_, flags) in commands {
            let flags = flags.split('#').next().unwrap().trim();
            // Loops stand in quotes.
            let parts = flags.split('\'').enumerate().flat_map(|(index, part)| match index % 2 {
                0 => part.split_whitespace().map(String::from).collect::<Vec<_>>(),
                _ => vec![part.to_string()],
            });
            let mut command = membound();
            let output = command.args(parts).arg("--help").output().unwrap();
            assert!(
                output.status.success(),
                "{}: {flags}: {}",
                page.display(),
                String::from_utf8_lossy(&output.stderr)
            );
            count += 1;
        }
        let is_index = page.ends_with("README.md");
        assert!(is_index || count > 0, "{} shows no command", page.display());
        pages += usize::from(!is_index);
    }
    assert_eq!(pages, 13);
}

/// A machine with its nodes, and what must be said of it: the memory mode, and the memories that STREAM ran in, each with a
/// rate that it was measured to have or could have.
struct Several {
    machine: Machine,
    mode: Option<&'static str>,
    /// Node, how its table is called, GB/s.
    memories: &'static [(u32, &'static str, f64)],
}

fn several() -> Vec<Several> {
    let knl = |nodes: Vec<(&'static str, u64)>, distances: &[&'static str]| {
        numa::Made { nodes, distances: distances.to_vec(), ..numa::Made::knl() }.machine()
    };
    let snc = || {
        let near = ["0-67", "68-135", "136-203", "204-271", "", "", "", ""];
        let nodes = near.into_iter().map(|cpus| (cpus, if cpus.is_empty() { 4096 } else { 24000 })).collect();
        let distances = [
            "10 21 21 21 31 41 41 41",
            "21 10 21 21 41 31 41 41",
            "21 21 10 21 41 41 31 41",
            "21 21 21 10 41 41 41 31",
            "31 41 41 41 10 41 41 41",
            "41 31 41 41 41 10 41 41",
            "41 41 31 41 41 41 10 41",
            "41 41 41 31 41 41 41 10",
        ];
        knl(nodes, &distances)
    };
    let max = |nodes: &[(&'static str, u64)]| limits::made(limits::XEON_MAX, nodes, 8).machine();
    let gh200 = numa::Made {
        files: limits::product("GH200 480GB", "NVIDIA"),
        ..limits::made("CPU implementer : 0x41\nCPU part : 0xd4f\n", &[("0-71", 480), ("", 96)], 72)
    };
    let of = |machine, mode, memories| Several { machine, mode, memories };
    vec![
        of(
            knl(vec![("0-271", 98207), ("", 16384)], &["10 31", "31 10"]),
            Some("Flat mode"),
            &[(0, "thp on node0 (DRAM)", 88.4), (1, "thp on node1 (MCDRAM)", 421.7)],
        ),
        of(knl(vec![("0-271", 98207)], &["10"]), Some("Cache mode"), &[(0, "thp on node0 (DRAM)", 317.3)]),
        of(
            knl(vec![("0-271", 98207), ("", 8192)], &["10 31", "31 10"]),
            Some("Hybrid mode"),
            &[(0, "thp on node0 (DRAM)", 300.0), (1, "thp on node1 (MCDRAM)", 400.0)],
        ),
        of(snc(), Some("Flat mode"), &[(0, "thp on node0 (DRAM)", 22.0), (4, "thp on node4 (MCDRAM)", 100.0)]),
        of(
            max(&[("0-7", 256), ("", 64)]),
            Some("Flat mode"),
            &[(0, "thp on node0 (DRAM)", 230.0), (1, "thp on node1 (HBM)", 833.0)],
        ),
        of(max(&[("0-7", 256)]), Some("Cache mode"), &[(0, "thp on node0 (DRAM)", 700.0)]),
        of(gh200.machine(), None, &[(0, "thp on node0 (DRAM)", 486.0), (1, "thp on node1 (device memory)", 297.0)]),
    ]
}

/// Limits refuse nothing, STREAM has a table for each memory, the verdict blames no cache, and advice goes to the fast memory.
#[test]
fn machines_of_several_memories_are_told_right() {
    for Several { machine, mode, memories } in several() {
        let modes = machine.memory_modes();
        match mode {
            Some(mode) => assert!(modes[0].starts_with(mode), "{mode}: {modes:?}"),
            None => assert!(!modes.iter().any(|said| said.contains("mode:")), "{modes:?}"),
        }
        let at = |kernel: &str, store, node: u32, protocol| {
            let streams = Kernel::named(kernel).unwrap().formula().streams.len() as u64;
            let working_set = Bytes(Bytes::mib(512).0 * streams);
            Case { protocol, working_set, ..limits::case(&machine, kernel, store, &format!("node{node}")) }
        };
        let of_node = |&(node, _, gb_s): &(u32, &str, f64)| {
            let stream = ["copy", "scale", "add", "triad"]
                .map(|kernel| (at(kernel, StoreKind::Regular, node, Protocol::Stream), gb_s));
            let plain = [
                (at("triad", StoreKind::Regular, node, Protocol::Steady), gb_s),
                (at("load", StoreKind::Regular, node, Protocol::Steady), gb_s),
                (at("store", StoreKind::Nt, node, Protocol::Steady), gb_s),
            ];
            stream.into_iter().chain(plain).collect::<Vec<_>>()
        };
        let report = limits::measured(&machine, &memories.iter().flat_map(of_node).collect::<Vec<_>>());
        let refused = report.rows.iter().find(|row| row.quality.outcome != Status::Measured);
        assert!(refused.is_none(), "{mode:?}: {:?}", refused.map(|row| &row.quality));
        let tables: Vec<&str> = report.stream.iter().map(|table| table.memory.as_str()).collect();
        assert_eq!(tables, memories.iter().map(|memory| memory.1).collect::<Vec<_>>(), "{mode:?}");
        assert!(report.stream.iter().all(|table| table.validation.starts_with("Solution Validates")), "{mode:?}");
        let causes: Vec<&str> = report.verdict.causes.iter().map(|cause| cause.cause.word()).collect();
        assert!(!causes.contains(&"working set in cache"), "{mode:?}: {causes:?}");
        let found = tiers(&[report], StoreKind::Nt, None).unwrap();
        assert_eq!((found.tiers.len(), found.default), (memories.len(), memories[0].0), "{mode:?}");
        if let [own, other] = memories {
            let sizes: Vec<(String, Bytes)> = ["a", "b", "c"].map(|name| (name.into(), Bytes::gib(1))).into();
            let formula = Kernel::named("triad").unwrap().formula();
            let streams = streams(&formula, Rows::None, StoreKind::Nt, &sizes).unwrap();
            let (tiers, cores, default) = (found.tiers, machine.cores().len(), found.default);
            let advice = advise(&Question { streams, tiers, cores, default }).unwrap();
            let moved = advice.streams.iter().filter(|placed| placed.node == other.0).count();
            // Both at once are faster than either; most goes to the faster one.
            assert!(if other.2 > own.2 { moved >= 2 } else { moved == 1 }, "{mode:?}: {moved}, {}", advice.says);
        }
    }
}
