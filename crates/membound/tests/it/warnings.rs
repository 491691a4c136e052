//! Warnings: each rule on a machine or a run that has the cause, and on one like it that has not.

use crate::common::{by_hand, imitation};

use crate::common::imitation::{HZ, record, visit, visit_at};
use crate::common::program::tried;
use membound_analyze::across::warnings::of_machine;
use membound_analyze::of_record as model;
use membound_analyze::warning::Warning;
use membound_core::case::{Case, Work, steady};
use membound_core::kernel::chase::{Chase, Order};
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{End, Environment, Measurement, Outcome, Record};
use membound_core::units::{Bytes, Hertz};

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

/// Two packages of two cores, a node and a last-level cache each, with nothing to complain about.
fn healthy() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = [
        ("proc/cpuinfo", "flags\t: fpu sse2\n"),
        ("proc/meminfo", "MemTotal: 33554432 kB\nSwapTotal: 8388608 kB\nSwapFree: 8380000 kB\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n"),
        ("proc/sys/kernel/numa_balancing", "0\n"),
        ("proc/sys/vm/zone_reclaim_mode", "0\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ]
    .map(|(path, text)| (path.into(), text.into()))
    .into();
    for cpu in 0..4 {
        let (package, domain) = (cpu / 2, if cpu < 2 { "0-1" } else { "2-3" });
        let mut file = |path: &str, text: &str| files.push((format!("{CPU}/cpu{cpu}/{path}"), format!("{text}\n")));
        file("topology/physical_package_id", &package.to_string());
        file("topology/core_id", &cpu.to_string());
        file("topology/thread_siblings_list", &cpu.to_string());
        file("cpufreq/scaling_governor", "performance");
        file("cpufreq/cpuinfo_max_freq", "3500000");
        file("cpufreq/base_frequency", "2500000");
        for (index, level, size, shared) in [(0, 1, "32K", cpu.to_string()), (3, 3, "32768K", domain.into())] {
            file(&format!("cache/index{index}/level"), &level.to_string());
            file(&format!("cache/index{index}/type"), "Unified");
            file(&format!("cache/index{index}/size"), size);
            file(&format!("cache/index{index}/coherency_line_size"), "64");
            file(&format!("cache/index{index}/shared_cpu_list"), &shared);
        }
    }
    for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
        files.push((format!("{NODE}/node{node}/cpulist"), format!("{cpus}\n")));
        files.push((format!("{NODE}/node{node}/meminfo"), meminfo(node, 16, 10, 4)));
    }
    files
}

/// Total, free and page cache in GiB.
fn meminfo(node: u32, total: u64, free: u64, cache: u64) -> String {
    let line = |name: &str, gib: u64| format!("Node {node} {name}: {} kB\n", gib << 20);
    line("MemTotal", total) + &line("MemFree", free) + &line("FilePages", cache)
}

/// The healthy machine with some files changed.
fn machine(changes: &[(&str, &str)]) -> Machine {
    let mut files = healthy();
    files.retain(|(path, _)| changes.iter().all(|(changed, _)| changed != path));
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    imitation::machine(&[&files[..], changes].concat())
}

/// The only warning there is; each of `parts` is in it.
fn only(warnings: &[Warning], parts: &[&str]) {
    let [Warning { text, cure }] = warnings else { panic!("not one warning: {warnings:#?}") };
    let whole = format!("{text} -> {cure}");
    parts.iter().for_each(|part| assert!(whole.contains(part), "'{part}' is not in: {whole}"));
}

fn none(warnings: &[Warning]) {
    assert!(warnings.is_empty(), "{warnings:#?}");
}

#[test]
fn a_healthy_machine_has_none() {
    let machine = machine(&[]);
    assert_eq!((machine.nodes.len(), machine.usable_cpus().len(), machine.cores().len()), (2, 4, 4));
    none(&of_machine(&machine));
}

#[test]
fn settings_are_warned_of() {
    let warned = |path: &str, text: &str, parts: &[&str]| only(&of_machine(&machine(&[(path, text)])), parts);
    warned(
        "proc/sys/kernel/numa_balancing",
        "1\n",
        &["NUMA balancing is on", "is 1 on 2 nodes", "sysctl kernel.numa_balancing=0"],
    );
    warned(
        "proc/sys/vm/zone_reclaim_mode",
        "1\n",
        &["zone reclaim is on", "is 1 on 2 nodes", "sysctl vm.zone_reclaim_mode=0"],
    );
    warned(
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always madvise [never]\n",
        &["huge pages are off", "says never", "echo madvise"],
    );
    warned(
        "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor",
        "powersave\n",
        &["governor is not performance", "powersave on CPUs 2", "cpupower"],
    );
    warned("proc/cpuinfo", "flags\t: hypervisor\n", &["this is a virtual machine (unnamed)", "repeat"]);
}

/// With one node there is none to move pages to, or to take memory from instead.
#[test]
fn one_node_has_nothing_to_balance() {
    let files: Vec<(String, String)> = healthy().into_iter().filter(|(path, _)| !path.contains("/node1/")).collect();
    let mut files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let full = meminfo(0, 16, 1, 14);
    let file = format!("{NODE}/node0/meminfo");
    files.retain(|(path, _)| !path.starts_with("proc/sys/") && *path != file);
    files.extend([("proc/sys/kernel/numa_balancing", "1\n"), ("proc/sys/vm/zone_reclaim_mode", "1\n"), (&file, &full)]);
    none(&of_machine(&imitation::machine(&files)));
}

#[test]
fn page_cache_that_fills_a_node() {
    let warnings =
        |free, cache| of_machine(&machine(&[(&format!("{NODE}/node1/meminfo"), &meminfo(1, 16, free, cache))]));
    only(
        &warnings(1, 14),
        &[
            "page cache fills node 1",
            "of 16 GiB there 14 GiB are page cache and 1 GiB are",
            "drop_caches",
            "--membind=1",
        ],
    );
    none(&warnings(5, 9));
    // Full, but of programs.
    none(&warnings(2, 3));
}

#[test]
fn swap_in_use() {
    let warnings = |free: u64| {
        let text = format!("MemTotal: 33554432 kB\nSwapTotal: 8388608 kB\nSwapFree: {free} kB\n");
        of_machine(&machine(&[("proc/meminfo", &text)]))
    };
    only(
        &warnings(8388608 - 2097152),
        &["swap is in use", "2 GiB are swapped out on a machine of 32 GiB", "swapoff -a"],
    );
    none(&warnings(8388608 - 200_000));
    none(&of_machine(&machine(&[("proc/meminfo", "MemTotal: 33554432 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")])));
}

#[test]
fn a_cpuset_that_splits_a_last_level_cache() {
    let warnings = |cpus: &str| of_machine(&machine(&[("proc/self/status", &format!("Cpus_allowed_list:\t{cpus}\n"))]));
    only(
        &warnings("0-2"),
        &["split a last-level cache", "CPUs 2 may be used here, of 2-3", "all of CPUs 2-3", "--cpus 0-1"],
    );
    only(&warnings("1,2"), &["CPUs 1 may be used here, of 0-1", "and 1 more such", "all of CPUs 0-3"]);
    none(&warnings("2-3"));
    // A CPU that is offline is nobody's.
    let offline = [("sys/devices/system/cpu/online", "0-2\n"), ("proc/self/status", "Cpus_allowed_list:\t0-2\n")];
    none(&of_machine(&machine(&offline)));
}

#[test]
fn memory_that_is_unevenly_populated() {
    let warnings = |total| of_machine(&machine(&[(&format!("{NODE}/node1/meminfo"), &meminfo(1, total, total, 0))]));
    only(&warnings(8), &["memory is unevenly populated", "node 1 has 8 GiB, node 0 has 16 GiB", "--membind"]);
    none(&warnings(15));
    // High-bandwidth memory without CPUs may have any size.
    let far = meminfo(1, 4, 4, 0);
    let flat = [
        (&*format!("{NODE}/node1/cpulist"), "\n"),
        (&*format!("{NODE}/node1/meminfo"), &far),
        (&*format!("{NODE}/node0/cpulist"), "0-3\n"),
    ];
    none(&of_machine(&machine(&flat)));
}

#[test]
fn modules_of_several_sizes() {
    fn unknown<T>() -> Fact<T> {
        Fact::absent("imitated")
    }
    let module = |gib: Option<u64>| membound_core::machine::firmware::Dimm {
        slot: unknown(),
        size: gib.map_or_else(unknown, |gib| Fact::Known(Bytes::gib(gib))),
        technology: unknown(),
        rated_mt_s: unknown(),
        configured_mt_s: unknown(),
        data_width_bits: unknown(),
        total_width_bits: unknown(),
        ranks: unknown(),
        manufacturer: unknown(),
        part_number: unknown(),
    };
    let warnings = |sizes: &[Option<u64>]| {
        let dimms = sizes.iter().map(|gib| module(*gib)).collect();
        of_machine(&Machine { dimms: Fact::Known(dimms), ..machine(&[]) })
    };
    only(
        &warnings(&[Some(32), Some(16), Some(32), None]),
        &["memory modules differ: 1 of 16 GiB, 2 of 32 GiB", "dmidecode"],
    );
    none(&warnings(&[Some(32), Some(32), None]));
}

fn triad(cpus: &[u32], memory: MemorySpec) -> Case {
    steady("triad", Width::W256, StoreKind::Regular, memory, cpus.into(), Bytes::gib(1))
}

const FIRST_TOUCH: MemorySpec = MemorySpec::of(MemoryKind::Thp);

/// What a whole report warns of, but for what its few samples are blamed for.
fn warnings(machine: Machine, visits: Vec<Measurement>) -> Vec<Warning> {
    of_record(&ended(record(machine, visits), 0.0))
}

fn of_record(record: &Record) -> Vec<Warning> {
    model::report(record).warnings
}

/// A run of 10 s that came to its end, on a host that took so many seconds.
fn ended(record: Record, steal_s: f64) -> Record {
    let state = |steal_s| Environment { steal_s: Some(steal_s), ..Environment::default() };
    let planned = record.measurements.len() as u64;
    let end = End {
        wall_s: 10.0,
        interrupted: false,
        overran: false,
        planned: planned.min(1),
        peak_memory: None,
        after: state(5.0 + steal_s),
    };
    let header = membound_core::record::Header { before: state(5.0), ..record.header };
    Record { header, end: Some(end), ..record }
}

fn rounds(case: &Case, pages: &[(u32, u64)]) -> Vec<Measurement> {
    (0..3).map(|round| Measurement { round, ..visit(case, 40e9, pages) }).collect()
}

#[test]
fn a_healthy_run_has_none() {
    none(&warnings(machine(&[]), rounds(&triad(&[0, 1, 2, 3], FIRST_TOUCH), &[(0, 5000), (1, 5000)])));
}

#[test]
fn pages_on_the_wrong_node() {
    let run = |cpus: &[u32], memory, pages: &[(u32, u64)]| warnings(machine(&[]), rounds(&triad(cpus, memory), pages));
    let parts = [
        "pages lie on the wrong node: in 1 of 1 cases",
        "30% of them elsewhere, most on node 1",
        "triad",
        "drop_caches",
        "--node",
    ];
    only(&run(&[0, 1], FIRST_TOUCH, &[(0, 7000), (1, 3000)]), &parts);
    none(&run(&[0, 1], FIRST_TOUCH, &[(0, 9999), (1, 1)]));
    none(&run(&[0, 1], MemorySpec::on(MemoryKind::Thp, 1), &[(1, 10_000)]));
    let bound = run(&[0, 1], MemorySpec::on(MemoryKind::Thp, 1), &[(0, 10_000)]);
    assert!(bound.iter().any(|warning| warning.text.contains("100% of them elsewhere, most on node 0")), "{bound:?}");
    // A node without memory has no pages to offer.
    let bare = machine(&[(&format!("{NODE}/node0/meminfo"), &meminfo(0, 0, 0, 0))]);
    let bare = warnings(bare, rounds(&triad(&[0], FIRST_TOUCH), &[(1, 10_000)]));
    assert!(bare.iter().all(|warning| !warning.text.contains("wrong node")), "{bare:?}");
}

#[test]
fn siblings_of_one_core() {
    let smt = || {
        let mut files = Vec::new();
        for cpu in 0..4u32 {
            let file = |name: &str| format!("{CPU}/cpu{cpu}/topology/{name}");
            files.push((file("core_id"), (cpu / 2).to_string()));
            files.push((file("thread_siblings_list"), ["0-1", "2-3"][cpu as usize / 2].into()));
        }
        machine(&files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect::<Vec<_>>())
    };
    let pages = [(0, 5000), (1, 5000)];
    let mut both = rounds(&triad(&[0, 2, 1, 3], FIRST_TOUCH), &pages);
    both.extend(rounds(&triad(&[0, 2], FIRST_TOUCH), &pages));
    only(&warnings(smt(), both), &["threads shared a core", "CPUs 0 and 1", "1 of 2 cases", "--cpus 0,2"]);
    none(&warnings(smt(), rounds(&triad(&[0, 2], FIRST_TOUCH), &pages)));
}

#[test]
fn slow_and_falling_clocks() {
    let case = triad(&[0], FIRST_TOUCH);
    let at = |case: &Case, ghz: f64| visit_at(case, 40e9, &[(0, 10_000)], ghz * 1e9);
    let run = |ghz: &[f64]| ghz.iter().map(|ghz| at(&case, *ghz)).collect::<Vec<_>>();
    only(
        &warnings(machine(&[]), run(&[2.0; 3])),
        &["slower than they should be", "2.00 GHz, 80% of the base clock of 2.50 GHz", "turbostat"],
    );
    none(&warnings(machine(&[]), run(&[2.4; 3])));
    // Without a base clock, the time stamp counter of 2 GHz runs at it.
    let no_base = || {
        machine(
            &[0, 1, 2, 3]
                .map(|cpu| format!("{CPU}/cpu{cpu}/cpufreq/base_frequency"))
                .each_ref()
                .map(|path| (path.as_str(), "\n")),
        )
    };
    only(&warnings(no_base(), run(&[1.7; 3])), &["85% of the time stamp counter of 2.00 GHz"]);
    none(&warnings(no_base(), run(&[2.0; 3])));
    let mut raw = record(no_base(), run(&[1.7; 3]));
    raw.header.clock.name = "CLOCK_MONOTONIC_RAW".into();
    only(&of_record(&ended(raw, 0.0)), &["49% of the greatest clock of 3.50 GHz"]);

    let fell =
        |warnings: Vec<Warning>| warnings.into_iter().filter(|w| w.text.contains("fell during")).collect::<Vec<_>>();
    let falling: Vec<f64> = (0..16).map(|n| 3.5 - 0.04 * f64::from(n)).collect();
    only(
        &fell(warnings(machine(&[]), run(&falling))),
        &["the core clock fell during the run", "86% of that", "turbostat"],
    );
    none(&fell(warnings(machine(&[]), run(&falling[..8]))));
    none(&fell(warnings(machine(&[]), run(&[3.5, 3.4].repeat(8)))));
    // Other work at another clock, later, is no fall.
    let wide = Case { working_set: Bytes::mib(512), ..case.clone() };
    let (early, late) = ((0..8).map(|_| at(&case, 3.5)), (0..8).map(|_| at(&wide, 3.0)));
    none(&fell(warnings(machine(&[]), early.chain(late).collect())));
    assert_eq!(record(machine(&[]), Vec::new()).header.clock.hz, Hertz(HZ));
}

#[test]
fn steal() {
    let run = |seconds| of_record(&ended(record(machine(&[]), rounds(&triad(&[0], FIRST_TOUCH), &[(0, 9)])), seconds));
    only(&run(2.0), &["the hypervisor took time: 2.00 s of CPU time during the run, 5.0% of all", "steal"]);
    none(&run(0.04));
    none(&run(0.15));
}

fn is_narrow(text: &str) {
    text.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
}

#[test]
fn the_machine_command_shows_them() {
    let root = tempfile::tempdir().unwrap();
    let files = healthy();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    imitation::write(root.path(), &files);
    let path = root.path().to_str().unwrap();
    assert!(!tried(&["machine", "--root", path]).1.contains("Warnings"));
    imitation::write(
        root.path(),
        &[("proc/sys/kernel/numa_balancing", "1\n"), ("proc/self/status", "Cpus_allowed_list:\t0-2\n")],
    );
    let (code, text, _) = tried(&["machine", "--root", path]);
    assert_eq!(code, Some(0));
    is_narrow(&text);
    let (_, section) = text.split_once("\nWarnings, each with its cure\n").expect("a section");
    insta::assert_snapshot!(section.split("\n\n").next().unwrap());
    let json: serde_json::Value =
        serde_json::from_str(&tried(&["machine", "--root", path, "--format", "json"]).1).unwrap();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2);
    assert_eq!(json["warnings"][0]["cure"], "sysctl kernel.numa_balancing=0");
}

#[test]
fn a_record_tells_its_warnings_alone() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, record: Record| {
        let path = folder.path().join(name);
        by_hand::write(&record, &path);
        path.to_str().unwrap().to_string()
    };
    let run = || rounds(&triad(&[0], FIRST_TOUCH), &[(0, 9)]);
    let good = write("good.jsonl", ended(record(machine(&[]), run()), 0.0));
    let bad = write("bad.jsonl", ended(record(machine(&[("proc/sys/vm/zone_reclaim_mode", "1\n")]), run()), 2.0));
    assert_eq!(tried(&["report", &good, "--warnings"]), (Some(0), "No warnings.\n".into(), String::new()));
    let (_, text, _) = tried(&["report", &bad, "--warnings"]);
    is_narrow(&text);
    assert!(text.starts_with("Warnings, each with its cure\n- zone reclaim is on: "), "{text}");
    let (_, json, _) = tried(&["report", &good, &bad, "--warnings", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let json = json.as_array().unwrap();
    assert_eq!(json.len(), 2);
    assert!(
        json.iter()
            .all(|warning| warning["record"] == *bad && warning["text"].is_string() && warning["cure"].is_string())
    );
    let (code, stdout, stderr) = tried(&["report", &bad, "--warnings", "--format", "csv"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("--format table, json or markdown"), "{stderr}");
    // They stand in the summary and on the page as well.
    let (_, summary, _) = tried(&["report", &bad, "--out", folder.path().to_str().unwrap()]);
    assert!(summary.contains("- zone reclaim is on: "), "{summary}");
    if cfg!(feature = "report") {
        let page = std::fs::read_to_string(folder.path().join("bad.html")).unwrap();
        assert!(page.contains("zone reclaim is on: "));
    }
}

/// Others at work are told of whatever was measured: here of chases alone.
#[test]
fn other_work_on_the_cpus_is_warned_of_in_a_latency_run() {
    let memory = MemorySpec::of(MemoryKind::Thp);
    let load = steady("load", Width::W256, StoreKind::Regular, memory, vec![0], Bytes::gib(1));
    let case = Case { work: Work::Chase(Chase::of(Order::Random)), ..load };
    let mut visit = visit(&case, 1e9, &[]);
    let warned = |visit: &Measurement| {
        let report = model::report(&record(machine(&[]), vec![visit.clone()]));
        report
            .warnings
            .iter()
            .any(|warning| warning.text.contains("other work ran on the measured CPUs (1 of 1 cases)"))
    };
    assert!(!warned(&visit));
    let Outcome::Measured(measured) = &mut visit.outcome else { panic!("{visit:?}") };
    measured.samples.switches.fill(3);
    assert!(warned(&visit));
}
