//! Limits of memory, held against what was published of machines with one memory and with several.

use crate::common::by_hand;
use crate::common::planted::volume;
use crate::numa::Made;
use membound_analyze::across::limits::limits;
use membound_analyze::across::sections;
use membound_analyze::across::tiers::tiers;
use membound_analyze::experiments::bandwidth::stream::StreamTable;
use membound_analyze::of_record::report;
use membound_analyze::output::terminal;
use membound_analyze::quality::Status;
use membound_analyze::report::Report;
use membound_core::case::{Case, Protocol, steady};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::machine::nature::NodeKind;
use membound_core::memory::policy::Policy;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{Measured, Measurement, Record, Sample, Samples};
use membound_core::units::Bytes;

const HZ: f64 = 1e9;

/// A visit to a case of 64 GiB whose samples are all of this rate of payload.
fn visit(case: &Case, payload_bps: f64) -> Measurement {
    let volume = volume(case);
    let ticks = (volume.payload() as f64 / payload_bps * HZ) as u64;
    let samples = Samples::from_iter([Sample { ticks, ..Sample::default() }; 21]);
    let obtained = Obtained { bytes: case.working_set, ..Obtained::default() };
    let measured = Measured { volume, repetitions: 1, core_clock_links: 0, samples, obtained };
    Measurement::new(case.clone(), 0, measured)
}

pub fn case(machine: &Machine, kernel: &str, store: StoreKind, place: &str) -> Case {
    let policy: Policy = place.parse().unwrap();
    let memory = MemorySpec { kind: MemoryKind::Thp, policy };
    let cpus = machine.online_cpus().iter().collect();
    steady(kernel, Width::W512, store, memory, cpus, Bytes::gib(64))
}

pub fn measured(machine: &Machine, cases: &[(Case, f64)]) -> Report {
    report(&record(machine, cases))
}

pub fn record(machine: &Machine, cases: &[(Case, f64)]) -> Record {
    let visits = cases.iter().map(|(case, gb_s)| visit(case, gb_s * 1e9)).collect();
    by_hand::record(by_hand::clock(HZ), machine.clone(), visits)
}

/// Nodes of so many CPUs and GiB each, in packages of one node but where told otherwise.
pub fn made(cpuinfo: &'static str, nodes: &[(&'static str, u64)], package: u32) -> Made {
    let distances: &[&str] = match nodes.len() {
        1 => &["10"],
        2 => &["10 21", "21 10"],
        3 => &["10 21 13", "21 10 23", "13 23 10"],
        4 => &["10 12 12 12", "12 10 12 12", "12 12 10 12", "12 12 12 10"],
        _ => panic!("write the distances"),
    };
    let last = nodes.iter().filter_map(|node| node.0.rsplit('-').next()?.parse::<u32>().ok()).max().unwrap();
    Made {
        nodes: nodes.iter().map(|(cpus, gib)| (*cpus, gib << 10)).collect(),
        distances: distances.to_vec(),
        cpus: last + 1,
        threads: 1,
        package,
        cache: (1, 1024),
        cpuinfo,
        files: Vec::new(),
    }
}

macro_rules! intel {
    ($model:literal, $name:literal) => {
        concat!(
            "vendor_id : GenuineIntel\ncpu family : 6\nmodel : ",
            $model,
            "\nmodel name : ",
            $name,
            "\nstepping : 1\n"
        )
    };
}

macro_rules! amd {
    ($family:literal, $model:literal, $name:literal) => {
        concat!(
            "vendor_id : AuthenticAMD\ncpu family : ",
            $family,
            "\nmodel : ",
            $model,
            "\nmodel name : ",
            $name,
            "\nstepping : 1\n"
        )
    };
}

macro_rules! arm {
    ($implementer:literal, $part:literal) => {
        concat!("CPU implementer : ", $implementer, "\nCPU part : ", $part, "\n")
    };
}

const KNL: &str = intel!("87", "Intel(R) Xeon Phi(TM) CPU 7250 @ 1.40GHz");
pub const XEON_MAX: &str = intel!("143", "Intel(R) Xeon(R) CPU Max 9480");

pub fn product(name: &'static str, vendor: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![("sys/class/dmi/id/product_name", name), ("sys/class/dmi/id/sys_vendor", vendor)]
}

/// KNL in four modes: what each node is limited by.
pub fn knl(nodes: &[(&'static str, u64)]) -> Machine {
    Made { distances: vec!["10 31", "31 10"][..nodes.len()].to_vec(), ..made(KNL, nodes, 68) }.machine()
}

/// What was measured and published, in 1e9 bytes a second of payload.
pub struct Published {
    pub machine: Machine,
    /// Kernel, place, rate.
    pub results: Vec<(&'static str, &'static str, f64)>,
    pub source: &'static str,
}

pub fn published() -> Vec<Published> {
    let of = |machine: Machine, source, results: &[(&'static str, &'static str, f64)]| Published {
        machine,
        results: results.to_vec(),
        source,
    };
    let grace = arm!("0x41", "0xd4f");
    let of_product = |made: Made, name, vendor| Made { files: product(name, vendor), ..made }.machine();
    vec![
        of(
            knl(&[("0-67", 96)]),
            "Knights Landing MCDRAM tutorial: STREAM, 68 cores, cache mode",
            &[
                ("copy", "node0", 259.3203),
                ("scale", "node0", 261.1748),
                ("add", "node0", 286.4432),
                ("triad", "node0", 317.3121),
            ],
        ),
        of(
            knl(&[("0-67", 96), ("", 16)]),
            "K. Rupp, knl-stream-benchmark (2016), 64 threads; the tutorial: about 400 and 90 to 100",
            &[
                ("triad", "node1", 421.7),
                ("triad", "node0", 88.4),
                ("triad", "node1", 400.0),
                ("triad", "node0", 100.0),
            ],
        ),
        of(
            Made { cpuinfo: intel!("87", "Intel(R) Xeon Phi(TM) CPU 7290 @ 1.50GHz"), ..Made::knl() }.machine(),
            "Sodani et al., Knights Landing, IEEE Micro 2016: STREAM Triad",
            &[("triad", "node1", 490.0), ("triad", "node0", 90.0)],
        ),
        of(
            made(intel!("85", "Intel(R) Xeon(R) Gold 6240 CPU"), &[("0-3", 96), ("4-7", 96)], 4).machine(),
            "gjbex, Code-optimization: MLC, Cascade Lake, two packages",
            &[("load", "interleave:0-1", 224.9), ("copy", "interleave:0-1", 199.7)],
        ),
        of(
            made(intel!("106", "Intel(R) Xeon(R) Platinum 8360Y"), &[("0-3", 128), ("4-7", 128)], 4).machine(),
            "gjbex, Code-optimization: MLC, Ice Lake, two packages",
            &[("load", "interleave:0-1", 352.5), ("copy", "interleave:0-1", 293.3)],
        ),
        of(
            made(intel!("143", "Intel(R) Xeon(R) Platinum 8468"), &[("0-3", 128), ("4-7", 128)], 4).machine(),
            "gjbex, Code-optimization: MLC, Sapphire Rapids, two packages",
            &[("load", "interleave:0-1", 491.9), ("copy", "interleave:0-1", 401.3)],
        ),
        of(
            made(XEON_MAX, &[("0-7", 64)], 8).machine(),
            "Esmaili-Dokht et al., Mess (2024): Xeon Max 9480, HBM alone, half of it reads",
            &[("copy", "node0", 833.0)],
        ),
        of(
            made(amd!("23", "49", "AMD EPYC 7742 64-Core Processor"), &[("0-7", 256)], 8).machine(),
            "Esmaili-Dokht et al., Mess (2024): EPYC 7742",
            &[("load", "node0", 143.8)],
        ),
        of(
            of_product(made(grace, &[("0-71", 240)], 72), "Grace CPU Superchip", "NVIDIA"),
            "Esmaili-Dokht et al., Mess (2024): Grace, 72 cores",
            &[("load", "node0", 449.0)],
        ),
        of(
            of_product(
                Made { distances: vec!["10 80", "80 10"], ..made(grace, &[("0-71", 480), ("", 96)], 72) },
                "GH200 480GB",
                "NVIDIA",
            ),
            "Schieffer et al., First look into Grace Hopper (2024): STREAM, and copies through NVLink-C2C",
            &[("triad", "node0", 486.0), ("load", "node1", 297.0), ("store", "node1", 375.0)],
        ),
        of(
            of_product(made(arm!("0x41", "0xd0c"), &[("0-63", 256)], 64), "m6g.metal", "Amazon EC2"),
            "Arm learning path: MLC on Graviton2",
            &[("load", "node0", 169.6), ("copy", "node0", 151.7)],
        ),
        of(
            made(arm!("0x46", "0x001"), &[("0-47", 32)], 48).machine(),
            "T. Yoshida, A64FX, Hot Chips 2018: STREAM Triad over 830",
            &[("triad", "node0", 830.0)],
        ),
    ]
}

#[test]
fn no_published_figure_is_refused() {
    let all = published();
    assert!(all.len() >= 12 && all.iter().map(|one| one.results.len()).sum::<usize>() >= 20);
    for Published { machine, results, source } in &all {
        for (kernel, place, gb_s) in results {
            let case = case(machine, kernel, StoreKind::Nt, place);
            let report = measured(machine, &[(case, *gb_s)]);
            let row = &report.rows[0];
            assert_eq!(row.quality.outcome, Status::Measured, "{source}, {kernel}: {:?}", row.quality.reason);
            assert!(limits(machine, None, &[]).sheet.is_some(), "{source}: no sheet");
        }
    }
}

/// A limit that refuses nothing would pass the test above.
#[test]
fn what_no_memory_of_its_kind_can_do_is_refused() {
    let check = |machine: &Machine, place: &str, gb_s: f64, expect: &str| {
        let report = measured(machine, &[(case(machine, "load", StoreKind::Regular, place), gb_s)]);
        let reason = report.rows[0].quality.reason.clone().unwrap_or_default();
        assert!(reason.contains(expect), "{gb_s} GB/s: {reason}");
    };
    let flat = knl(&[("0-67", 96), ("", 16)]);
    check(&flat, "node0", 130.0, "faster than DDR4 (node 0) can be: the limit is 115 GB/s");
    // Two memories, of which one has no published peak.
    check(&flat, "interleave:0-1", 600.0, "");
    let max = made(XEON_MAX, &[("0-7", 256), ("", 64)], 8).machine();
    check(&max, "node0", 330.0, "faster than DDR5 (node 0) can be: the limit is 307 GB/s");
    check(&max, "node1", 1800.0, "faster than HBM2e (node 1) can be: the limit is 1.64 TB/s");
    check(&max, "interleave:0-1", 2100.0, "the limit is 1.95 TB/s");
    // One package of two moves half.
    let two = made(intel!("106", "Intel(R) Xeon(R) Platinum 8360Y"), &[("0-3", 128), ("4-7", 128)], 4).machine();
    check(&two, "node1", 230.0, "the limit is 205 GB/s");
    check(
        &two,
        "interleave:0-1",
        430.0,
        "the limit is 410 GB/s (specified, 8 channels of 64 bits DDR4 at 3200 MT/s at most each)",
    );
}

#[test]
fn each_memory_of_a_machine_has_a_limit_of_its_own() {
    let check = |machine: &Machine, expect: &[(&str, NodeKind, Option<f64>)]| {
        let found = limits(machine, None, &[]).memory;
        let found: Vec<_> = found
            .iter()
            .map(|memory| (memory.title(), memory.kind, memory.bps.as_ref().map(|limit| limit.value / 1e9)))
            .collect();
        let expect: Vec<_> = expect.iter().map(|(title, kind, gb_s)| (title.to_string(), *kind, *gb_s)).collect();
        assert_eq!(found, expect);
    };
    use NodeKind::{Device, Dram, Hbm, Mcdram};
    check(&knl(&[("0-67", 96), ("", 16)]), &[("DDR4 (node 0)", Dram, Some(115.2)), ("MCDRAM (node 1)", Mcdram, None)]);
    check(&knl(&[("0-67", 96)]), &[("MCDRAM in front of DDR4 (node 0)", Dram, None)]);
    check(
        &knl(&[("0-67", 96), ("", 8)]),
        &[("MCDRAM in front of DDR4 (node 0)", Dram, None), ("MCDRAM (node 1)", Mcdram, None)],
    );
    let max = |nodes: &[(&'static str, u64)]| made(XEON_MAX, nodes, 8).machine();
    check(
        &max(&[("0-7", 256), ("", 64)]),
        &[("DDR5 (node 0)", Dram, Some(307.2)), ("HBM2e (node 1)", Hbm, Some(1638.4))],
    );
    check(&max(&[("0-7", 256)]), &[("HBM2e in front of DDR5 (node 0)", Dram, Some(1945.6))]);
    check(&max(&[("0-7", 64)]), &[("HBM2e (node 0)", Hbm, Some(1638.4))]);
    let clusters = max(&[("0-1", 64), ("2-3", 64), ("4-5", 64), ("6-7", 64)]);
    assert!(clusters.nodes.iter().all(|node| clusters.side_cache(node).is_some()));
    let mi300a = made(amd!("25", "144", "AMD Instinct MI300A Accelerator"), &[("0-23", 128)], 24).machine();
    check(&mi300a, &[("HBM3 (node 0)", Hbm, Some(5324.8))]);
    let mrdimm = made(intel!("173", "Intel(R) Xeon(R) 6980P"), &[("0-7", 768)], 8).machine();
    check(&mrdimm, &[("MRDIMM (node 0)", Dram, Some(844.8))]);
    let gh200 = made(arm!("0x41", "0xd4f"), &[("0-71", 480), ("", 96)], 72);
    let gh200 = Made { files: product("GH200 480GB", "NVIDIA"), ..gh200 }.machine();
    check(
        &gh200,
        &[("LPDDR5X (node 0)", Dram, Some(546.112)), ("HBM3 behind NVLink-C2C (node 1)", Device, Some(900.0))],
    );
}

/// Firmware lists the modules of all packages.
#[test]
fn a_package_has_its_own_modules() {
    let of_nodes = |nodes: &[(&'static str, u64)]| {
        let machine = made("vendor_id : GenuineIntel\nmodel name : made up\n", nodes, 8).machine();
        let machine = Machine { dimms: Fact::Known(vec![by_hand::module(); 16]), ..machine };
        let found = limits(&machine, None, &[]);
        let of = |nodes: &[u32]| {
            found.of_nodes(&nodes.iter().copied().collect()).map(|limit| (limit.value / 1e9, limit.says))
        };
        [of(&[0]), of(&[1]), of(&[0, 1])].map(Option::unwrap)
    };
    let (one, all) = ("the package's memory modules", "all memory modules");
    let check = |nodes: &[(&'static str, u64)], expect: [(f64, &str); 3]| {
        for ((value, says), (expected, words)) in of_nodes(nodes).into_iter().zip(expect) {
            assert!((value / expected - 1.0).abs() < 1e-9 && says.starts_with(words), "{value} {says}, not {expected}");
        }
    };
    check(&[("0-7", 252), ("8-15", 256)], [(307.2, one), (307.2, one), (614.4, all)]);
    // Twelve of them are fitted to the second package.
    check(&[("0-7", 128), ("8-15", 384)], [(153.6, one), (460.8, one), (614.4, all)]);
}

/// 128 B a thread: what is measured is how long a pass takes besides. It refuses no larger set.
#[test]
fn a_few_lines_a_thread_refuse_nothing() {
    let machine = made("vendor_id : GenuineIntel\nmodel name : made up\n", &[("0-127", 64)], 128).machine();
    let sized = |size: Bytes| Case { working_set: size, ..case(&machine, "triad", StoreKind::Regular, "first-touch") };
    let refused = |small: Bytes| {
        let report = measured(&machine, &[(sized(small), 1800.0), (sized(Bytes(64 * small.0)), 16000.0)]);
        report.rows.iter().filter(|row| row.quality.outcome == Status::Invalid).count()
    };
    assert_eq!([refused(Bytes::kib(16)), refused(Bytes::mib(2))], [0, 1]);
}

/// Published on a Knights Landing: MCDRAM beside DDR4 in flat mode. The gap is that of one memory.
#[test]
fn the_verdict_keeps_memories_apart() {
    let machine = knl(&[("0-67", 96), ("", 16)]);
    let rows = [("triad", "node0", 75.0), ("load", "node0", 85.0), ("triad", "node1", 316.0), ("load", "node1", 380.0)];
    let cases: Vec<(Case, f64)> =
        rows.map(|(kernel, place, gb_s)| (case(&machine, kernel, StoreKind::Regular, place), gb_s)).into();
    let report = measured(&machine, &cases);
    let gap = report.verdict.gap.as_ref().unwrap();
    assert_eq!(
        (gap.kernel.as_str(), (gap.reached_bps / 1e9).round(), (gap.limit_bps / 1e9).round()),
        ("triad", 316.0, 380.0),
        "{gap:?}"
    );
    let roofs = report.roofline.bandwidth.iter().map(|roof| (roof.place(), (roof.measured.best / 1e9).round()));
    assert_eq!(roofs.collect::<Vec<_>>(), [("DDR4 (node 0)", 85.0), ("MCDRAM (node 1)", 380.0)]);
    assert!(
        report.verdict.causes.iter().all(|cause| cause.cause.word() != "working set in cache"),
        "{:?}",
        report.verdict
    );
}

/// A record of flat mode tells how fast both memories are.
#[test]
fn tiers_are_told_by_a_record_of_flat_mode() {
    let machine = knl(&[("0-67", 96), ("", 16)]);
    let rows = [("load", "node0", 85.0), ("store", "node0", 80.0), ("load", "node1", 380.0), ("store", "node1", 300.0)];
    // A load has no way to store.
    let store = |kernel| if kernel == "load" { StoreKind::Regular } else { StoreKind::Nt };
    let cases: Vec<(Case, f64)> =
        rows.map(|(kernel, place, gb_s)| (case(&machine, kernel, store(kernel), place), gb_s)).into();
    let found = tiers(&[measured(&machine, &cases)], StoreKind::Nt, None).unwrap();
    let speeds: Vec<_> = found.tiers.iter().map(|tier| (tier.node, (tier.all.load_bps[0] / 1e9).round())).collect();
    assert_eq!((speeds, found.default), (vec![(0, 85.0), (1, 380.0)], 0));
}

/// STREAM in both memories of Knights Landing in flat mode, as published: DDR4 88.4, MCDRAM 421.7 GB/s.
pub fn flat_mode(machine: &Machine) -> Vec<(Case, f64)> {
    let stream = |kernel, place, gb_s| {
        let case = case(machine, kernel, StoreKind::Regular, place);
        (Case { protocol: Protocol::Stream, working_set: Bytes::gib(12), ..case }, gb_s)
    };
    let four = |place, [copy, scale, add, triad]: [f64; 4]| {
        [("copy", copy), ("scale", scale), ("add", add), ("triad", triad)].map(|(name, gb_s)| stream(name, place, gb_s))
    };
    let both = [four("node0", [80.0, 81.0, 88.0, 88.4]), four("node1", [390.0, 391.0, 420.0, 421.7])].concat();
    // Working sets of two arrays and of three.
    both.into_iter()
        .map(|(case, gb_s)| {
            let streams = Kernel::named(&case.variant().unwrap().kernel).unwrap().formula().streams.len() as u64;
            (Case { working_set: Bytes(Bytes::gib(4).0 * streams), ..case }, gb_s)
        })
        .collect()
}

/// The four kernels in two memories of one run: a table for each, and which is how much faster.
#[test]
fn stream_has_a_table_for_each_memory() {
    let machine = knl(&[("0-67", 96), ("", 16)]);
    let both = flat_mode(&machine);
    let report = measured(&machine, &both);
    let of = |table: &StreamTable| (table.memory.clone(), table.lines.len(), table.array_elements, table.missing.len());
    let expect = [("thp on node0 (DRAM)".into(), 4, 1 << 29, 0), ("thp on node1 (MCDRAM)".into(), 4, 1 << 29, 0)];
    assert_eq!(report.stream.iter().map(of).collect::<Vec<_>>(), expect);
    let text = anstream::adapter::strip_str(&terminal::stream(&report)).to_string();
    assert_eq!(text.matches("Solution Validates").count(), 2, "{text}");
    for line in ["Triad:          88400.0", "Triad:         421700.0", "4.77 times"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // Two kernels are no STREAM.
    let two = measured(&machine, &both[..2]);
    let table = &two.stream[0];
    assert_eq!(table.validation, "Solution not validated: that takes all four kernels");
    assert_eq!(table.missing, ["not measured with regular stores: Add, Triad"]);
}

/// The question that one has beside one's own loop: how near to STREAM does it come, in the same memory?
#[test]
fn a_loop_is_told_as_a_share_of_stream() {
    let machine = knl(&[("0-67", 96), ("", 16)]);
    let stream = |place| Case {
        protocol: Protocol::Stream,
        working_set: Bytes::gib(12),
        ..case(&machine, "triad", StoreKind::Regular, place)
    };
    let own = case(&machine, "schoenauer", StoreKind::Regular, "node1");
    let report = measured(&machine, &[(own, 316.275), (stream("node0"), 88.4), (stream("node1"), 421.7)]);
    let document = sections::kernel::document(&report.rows, &report.warnings);
    assert!(document.sentences[0].contains("75% of STREAM triad here (422 GB/s)"), "{:?}", document.sentences);
    assert_eq!(document.sentences.len(), 1, "STREAM's rows are no loop of one's own");
}

/// A row that a sheet's ports do not allow is shown, with the sentence that the limit is wrong.
#[test]
fn an_exceeded_limit_is_named() {
    let machine = made(amd!("25", "17", "AMD EPYC 9654 96-Core Processor"), &[("0-7", 256)], 8).machine();
    let near = case(&machine, "load", StoreKind::Regular, "node0");
    let report = measured(&machine, &[(near, 455.0)]);
    assert!(report.warnings.iter().all(|warning| !warning.text.contains("must be wrong")), "{:?}", report.warnings);
    let mut known = limits(&machine, None, &[]);
    known.memory[0].bps.as_mut().unwrap().value = 400e9;
    let said = membound_analyze::across::limits::exceeded(&report.rows, &known, &machine);
    assert_eq!(
        said,
        [
            "load 512 regular, 8 threads, reaches 114% of a limit that must be wrong: DDR5 (node 0): 12 channels of 64 bits \
             DDR5 at 4800 MT/s at most"
        ]
    );
}
