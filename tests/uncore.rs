//! Counters of memory controllers, from trees made by hand: decoded as their files say, or absent with the cure.

use membound::machine::{ControllerCounter, CpuSet, Direction, Fact, Source, controller_counters};

const DEVICES: &str = "sys/bus/event_source/devices";

/// A recorded tree made by hand: (path below the devices, text).
fn tree(files: &[(&str, &str)], paranoid: &str, capabilities: &str) -> (tempfile::TempDir, Source) {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
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
