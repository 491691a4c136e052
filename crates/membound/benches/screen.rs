//! How screening grows with a fleet: time and memory over the number of records, 200 cells each.
//!
//! `cargo bench --bench screen`                          100 and 1,000 records
//! `cargo bench --bench screen -- --records 10000`       that many (about 165 KB of disk each)
//! `cargo bench --bench screen -- --records 100000 --files 10000`    the records over again from fewer files: reading costs the same
//!
//! Records are written into a folder that vanishes, in the form that a run writes; nothing is measured in them.

mod common;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use common::print_row;
use membound_analyze::across::fleet::finding::Options as Screen;
use membound_analyze::across::fleet::gather::{Table, gather};
use membound_analyze::across::fleet::screen;
use membound_core::case::{Case, steady};
use membound_core::kernel::{StoreKind, Width};
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{
    Clock, End, Environment, Header, Line, Measured, Measurement, SCHEMA, Sample, Samples, Volume,
};
use membound_core::units::{Bytes, Hertz};

#[derive(Parser)]
struct Options {
    /// Records to screen
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    records: Vec<usize>,
    /// Files to write; more records than that are the same files over again
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    /// Threads that read
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const HZ: f64 = 2e9;
const LINKS: u64 = 20_000;

/// Two hundred: kernels over sizes, widths, one thread and two.
fn cases() -> Vec<Case> {
    let memory = MemorySpec::of(MemoryKind::Thp);
    let mut cases = Vec::new();
    for step in 0..10 {
        for kernel in ["load", "store", "copy", "triad", "add"] {
            for width in [Width::W128, Width::W256] {
                for cpus in [vec![0], vec![0, 1]] {
                    let size = Bytes::kib(16 << (2 * step).min(16));
                    let size = Bytes(size.0 + 4096 * step);
                    cases.push(steady(kernel, width, StoreKind::Regular, memory, cpus, size));
                }
            }
        }
    }
    cases
}

fn visit(case: &Case, random: &mut fastrand::Rng, node: f64) -> Measurement {
    let mut samples = Samples::default();
    let level = 1e-3 * node * (1.0 + 0.02 * (random.f64() - 0.5));
    for _ in 0..7 {
        let ticks = (level * (1.0 + 0.01 * (random.f64() - 0.5)) * HZ) as u64;
        let core_clock_ticks = (LINKS as f64 / 3e9 * HZ) as u64;
        samples.push(Sample { ticks, core_clock_ticks, ..Sample::default() });
    }
    let volume = Volume { units: case.working_set.0 / 8, loaded: case.working_set.0, ..Volume::default() };
    let obtained = Obtained { bytes: case.working_set, ..Obtained::default() };
    let measured = Measured { volume, repetitions: 100, core_clock_links: LINKS, samples, obtained };
    Measurement::new(case.clone(), 0, measured)
}

/// Writes records of nodes that are alike but for chance, and returns their paths.
fn write(folder: &std::path::Path, count: usize) -> Vec<PathBuf> {
    let (cases, machine) = (cases(), membound_measure::machine::live());
    let mut paths = Vec::new();
    for index in 0..count {
        let mut random = fastrand::Rng::with_seed(index as u64);
        let header = Header {
            schema: SCHEMA,
            tool: "bench".into(),
            host: format!("n{index}"),
            started_unix_s: 0,
            command: Vec::new(),
            seed: 0,
            clock: Clock { name: "tsc".into(), hz: Hertz(HZ), overhead_ticks: 20 },
            machine: machine.clone(),
            before: Environment::default(),
            world: None,
            sheet: None,
            device: None,
            devices: Vec::new(),
        };
        let node = if index % 1000 == 7 { 1.1 } else { 1.0 };
        let after = Environment::default();
        let end = End {
            wall_s: 1.0,
            interrupted: false,
            overran: false,
            planned: cases.len() as u64,
            peak_memory: None,
            after,
        };
        let lines = std::iter::once(Line::Header(Box::new(header)))
            .chain(cases.iter().map(|case| Line::Measurement(Box::new(visit(case, &mut random, node)))))
            .chain(std::iter::once(Line::End(end)));
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, &line).expect("a Vec takes everything");
            text.push(b'\n');
        }
        let path = folder.join(format!("n{index}.jsonl"));
        std::fs::File::create(&path)
            .and_then(|mut file| file.write_all(&text))
            .expect("the temporary folder is writable");
        paths.push(path);
    }
    paths
}

/// The largest resident set so far, in MiB.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}

fn main() {
    let options = Options::parse();
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let most = options.records.iter().copied().max().unwrap_or(0).min(options.files);
    let files = write(folder.path(), most);
    let size = files.first().and_then(|file| file.metadata().ok()).map_or(0, |file| file.len());
    println!("{} cells, {size} bytes a record, {} threads", cases().len(), options.threads);
    let head: [&dyn std::fmt::Display; 6] = [&"records", &"read s", &"screen s", &"all s", &"us a record", &"peak MiB"];
    print_row(&head.map(|word| (word, 12)));
    for count in options.records {
        let paths: Vec<PathBuf> = files.iter().cycle().take(count).cloned().collect();
        let start = Instant::now();
        let gathered = gather(&paths, options.threads, u64::MAX / 2, &Table::default());
        let read = start.elapsed().as_secs_f64();
        let screening = screen(&gathered.fleet, None, None, Screen::default());
        let all = start.elapsed().as_secs_f64();
        let per_record = all / count as f64 * 1e6;
        let [reading, screening_s, whole] = [read, all - read, all].map(|seconds| format!("{seconds:.2}"));
        let [per_record, peak] = [per_record, peak_mib()].map(|number| format!("{number:.0}"));
        print_row(&[(&count, 12), (&reading, 12), (&screening_s, 12), (&whole, 12), (&per_record, 12), (&peak, 12)]);
        assert_eq!(gathered.fleet.nodes.len(), count);
        println!("{}", screening.sentences[0]);
    }
}
