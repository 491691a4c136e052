//! Machines from a few files, and records of runs that never were.
#![allow(dead_code)] // Each test file uses its part.

use crate::common::by_hand;
use std::path::Path;

use membound_core::case::Case;
use membound_core::machine::Machine;
use membound_core::memory::Obtained;
use membound_core::memory::located::NodePages;
use membound_core::record::{Measured, Measurement, Record, Sample, Volume};

/// Ticks a second of the imitated clock, and links of its dependent-add chain.
pub const HZ: f64 = 2e9;
const LINKS: u64 = 20_000;

/// Writes a file below a folder, and the folders that it lies in.
pub fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Writes files below a folder.
pub fn write(root: &Path, files: &[(&str, &str)]) {
    files.iter().for_each(|(path, text)| file(root, path, text));
}

/// The machine that these files describe.
pub fn machine(files: &[(&str, &str)]) -> Machine {
    let root = by_hand::machine_folder();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    write(root.path(), files);
    Machine::read(root.path()).unwrap()
}

/// Cores behind each last-level cache of 32 MiB, and hardware threads of a core, with its own 32 KiB and 1 MiB. CPU numbers: all
/// first threads, then all second ones.
pub fn caches([domains, cores, ways]: [u32; 3], is_virtual: bool) -> Machine {
    let all = domains * cores;
    let list = |cpus: &mut dyn Iterator<Item = u32>| cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
    let flags = if is_virtual { "flags\t: fpu sse2 hypervisor\n" } else { "flags\t: fpu sse2\n" };
    let mut files: Vec<(String, String)> = [
        ("proc/cpuinfo", flags.to_string()),
        ("proc/meminfo", "MemTotal: 268435456 kB\nMemAvailable: 260000000 kB\n".into()),
        ("sys/devices/system/cpu/online", format!("0-{}\n", all * ways - 1)),
    ]
    .map(|(path, text)| (path.into(), text))
    .into();
    for cpu in 0..all * ways {
        let (core, first) = (cpu % all, cpu % all / cores * cores);
        let siblings = list(&mut (0..ways).map(|way| way * all + core));
        let behind = list(&mut (0..ways).flat_map(|way| (first..first + cores).map(move |core| way * all + core)));
        let mut file = |path: &str, text: &str| {
            files.push((format!("sys/devices/system/cpu/cpu{cpu}/{path}"), format!("{text}\n")));
        };
        file("topology/physical_package_id", "0");
        file("topology/core_id", &core.to_string());
        file("topology/thread_siblings_list", &siblings);
        for (level, kind, size, shared) in
            [("1", "Data", "32K", &siblings), ("2", "Unified", "1024K", &siblings), ("3", "Unified", "32768K", &behind)]
        {
            file(&format!("cache/index{level}/level"), level);
            file(&format!("cache/index{level}/type"), kind);
            file(&format!("cache/index{level}/size"), size);
            file(&format!("cache/index{level}/coherency_line_size"), "64");
            file(&format!("cache/index{level}/shared_cpu_list"), shared);
        }
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    machine(&files)
}

/// A record of these visits, in this order.
pub fn record(machine: Machine, measurements: Vec<Measurement>) -> Record {
    by_hand::record(by_hand::clock(HZ), machine, measurements)
}

/// A visit that moved the working set once a sample, at about so many bytes a second, on a core of 3 GHz, with these pages
/// found on these nodes.
pub fn visit(case: &Case, bps: f64, pages: &[(u32, u64)]) -> Measurement {
    visit_at(case, bps, pages, 3e9)
}

/// The same on a core of another clock.
pub fn visit_at(case: &Case, bps: f64, pages: &[(u32, u64)], core_hz: f64) -> Measurement {
    let core_clock_ticks = (LINKS as f64 / core_hz * HZ) as u64;
    let shares = [0.99, 1.0, 1.01, 1.0, 0.995, 1.005, 1.0];
    let ticks = shares.map(|share| (case.working_set.0 as f64 / (bps * share) * HZ) as u64);
    let samples = ticks.map(|ticks| Sample { ticks, core_clock_ticks, ..Sample::default() }).into_iter().collect();
    let volume = Volume { units: case.working_set.0 / 8, loaded: case.working_set.0, ..Volume::default() };
    let pages_on_node = pages.iter().map(|&(node, pages)| NodePages { node, pages }).collect();
    let obtained = Obtained { bytes: case.working_set, pages_on_node, ..Obtained::default() };
    let measured = Measured { volume, repetitions: 1, core_clock_links: LINKS, samples, obtained };
    Measurement::new(case.clone(), 0, measured)
}
