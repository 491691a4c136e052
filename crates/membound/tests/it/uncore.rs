//! Counters of memory controllers. From trees made by hand: decoded as their files say, or absent with the cure. From
//! simulated controllers: what they say beside the ratio of nt to regular stores.

use crate::common::{by_hand, imitation, simulated};
use membound_analyze::across::traffic::{Traffic, Witness};
use membound_analyze::experiments::bandwidth::rows::BandwidthRow;
use membound_analyze::flag::Flag;
use membound_analyze::of_record as model;
use membound_analyze::output::{csv, terminal};
use membound_analyze::report::Report;
use membound_core::case as plan;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::fact::Fact;
use membound_core::machine::source::Source;
use membound_core::machine::uncore::{ControllerCounter, Direction, controller_counters};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::Record;
use membound_core::units::Bytes;

const DEVICES: &str = "sys/bus/event_source/devices";

/// A recorded tree made by hand: (path below the devices, text).
fn tree(files: &[(&str, &str)], paranoid: &str, capabilities: &str) -> (tempfile::TempDir, Source) {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| imitation::file(root.path(), path, text);
    write("proc/sys/kernel/perf_event_paranoid", paranoid);
    write("proc/self/status", &format!("Name:\tx\nCapEff:\t{capabilities}\n"));
    files.iter().for_each(|(path, text)| write(&format!("{DEVICES}/{path}"), text));
    let source = Source::recorded(root.path()).unwrap();
    (root, source)
}

const SERVER: [(&str, &str); 10] = [
    ("uncore_imc_0/type", "14\n"),
    ("uncore_imc_0/cpumask", "0,16\n"),
    ("uncore_imc_0/format/event", "config:0-7\n"),
    ("uncore_imc_0/format/umask", "config:8-15\n"),
    ("uncore_imc_0/events/cas_count_read", "event=0x04,umask=0x03\n"),
    ("uncore_imc_0/events/cas_count_read.scale", "6.103515625e-5\n"),
    ("uncore_imc_0/events/cas_count_read.unit", "MiB\n"),
    ("uncore_imc_0/events/cas_count_write", "event=0x04,umask=0x0c\n"),
    ("uncore_imc_0/events/cas_count_write.scale", "6.103515625e-5\n"),
    ("uncore_imc_0/events/cas_count_write.unit", "MiB\n"),
];

#[test]
fn the_controllers_of_a_server() {
    let (_root, source) = tree(&SERVER, "0\n", "0000000000000000");
    let found = controller_counters(&source, false);
    let [read, write] = &found.known().unwrap()[..] else { panic!("{found:?}") };
    // 6.103515625e-5 MiB are 64 bytes: a line.
    let expect = |config, direction| ControllerCounter {
        device: "uncore_imc_0".into(),
        kind: 14,
        cpus: CpuSet::parse("0,16").unwrap(),
        config: [config, 0, 0],
        bytes: 64.0,
        direction,
    };
    assert_eq!((read, write), (&expect(0x0304, Direction::Read), &expect(0x0c04, Direction::Write)));
}

#[test]
fn controllers_whose_events_the_kernel_does_not_name() {
    let files = [
        ("amd_umc_3/type", "25\n"),
        ("amd_umc_3/cpumask", "0\n"),
        ("amd_umc_3/format/event", "config:0-7\n"),
        ("amd_umc_3/format/rdwrmask", "config:8-9\n"),
    ];
    let (_root, source) = tree(&files, "-1\n", "0000000000000000");
    let found = controller_counters(&source, false);
    let configs: Vec<(u64, f64)> = found.known().unwrap().iter().map(|c| (c.config[0], c.bytes)).collect();
    assert_eq!(configs, [(0x10a, 64.0), (0x20a, 64.0)]);
}

#[test]
fn what_cannot_be_read_says_why() {
    let check = |files: &[(&str, &str)], paranoid, capabilities, is_virtual, expect: &str| {
        let (_root, source) = tree(files, paranoid, capabilities);
        match controller_counters(&source, is_virtual) {
            Fact::Absent { reason } => assert!(!expect.is_empty() && reason.contains(expect), "{reason}"),
            Fact::Known(found) => assert!(expect.is_empty(), "{found:?}"),
        }
    };
    let (none, perfmon) = ("0000000000000000", "0000004000000000");
    check(&[], "2\n", none, true, "a virtual machine is given none");
    check(&[], "2\n", none, false, "modprobe");
    check(&SERVER, "4\n", none, false, "perf_event_paranoid is 4; sysctl");
    check(&SERVER, "4\n", perfmon, false, "");
    check(&SERVER, "0\n", none, false, "");
    // An event whose unit nobody knows counts nothing.
    let odd: Vec<(&str, &str)> =
        SERVER.iter().map(|(path, text)| (*path, if path.ends_with(".unit") { "furlong\n" } else { text })).collect();
    check(&odd, "0\n", none, false, "the kernel offers none");
}

/// Copies in memory, regular and nt, with controllers that see this share of the write-allocates.
fn copies(seen: Option<f64>) -> Report {
    model::report(&by_hand::written_and_read(&record_of_copies(seen)))
}

pub fn record_of_copies(seen: Option<f64>) -> Record {
    let machine = simulated::machine(1, false);
    let of = |kernel: &str, store, size| {
        let memory = MemorySpec::of(MemoryKind::Thp);
        plan::steady(kernel, Width::W256, store, memory, vec![0], size)
    };
    let sizes = [Bytes::kib(16), Bytes::kib(512), Bytes::mib(16), Bytes::mib(1024)];
    let mut cases: Vec<_> = sizes.into_iter().map(|size| of("load", StoreKind::Regular, size)).collect();
    cases.extend([StoreKind::Regular, StoreKind::Nt].map(|store| of("copy", store, Bytes::mib(1024))));
    let mut fake = simulated::fake();
    fake.write_allocates = seen;
    simulated::run(&machine, &cases, &mut fake)
}

/// A copy moves 16 B of payload an element and reads 8 more if its stores allocate.
#[test]
fn controllers_are_a_second_witness_of_the_write_allocate() {
    let check = |seen: f64, moved: f64, witness, is_flagged: bool| {
        let report = copies(Some(seen));
        let [case] = &report.write_allocate[..] else { panic!("{:?}", report.write_allocate) };
        assert_eq!(case.traffic, Traffic::AsCounted, "{case:?}");
        assert_eq!(case.witness, Some(witness), "{case:?}");
        assert!((case.moved_bytes.unwrap() / moved - 1.0).abs() < 0.02, "{case:?}");
        let flagged = |row: &BandwidthRow| row.quality.has(Flag::ControllersDisagree);
        assert_eq!(flagged(&report.rows[case.regular]), is_flagged, "{:?}", report.rows[case.regular].quality.flags);
        assert!(!flagged(&report.rows[case.nt]), "nt stores allocate nothing");
        let text = crate::common::on_one_line(&terminal::summary(&report));
        assert!(text.contains("the memory controllers moved"), "{text}");
        assert_eq!(text.contains("against what the ratio says"), witness != Witness::Allocates, "{text}");
        // 8 GB/s on the bus: a third of a copy's is written.
        let read = report.rows[case.regular].controllers_bps.unwrap();
        assert!((read.written / 8e9 * 3.0 - 1.0).abs() < 0.02, "{read:?}");
        assert!(csv::rows(&report.any_rows().collect::<Vec<_>>()).contains("controllers_Bps_read"));
    };
    check(1.0, 24.0, Witness::Allocates, false);
    check(0.0, 16.0, Witness::Evades, false);
    check(0.5, 20.0, Witness::Neither, true);
    let report = copies(None);
    assert_eq!((report.write_allocate[0].moved_bytes, report.write_allocate[0].witness), (None, None));
    assert!(!terminal::summary(&report).contains("memory controllers"));
}
