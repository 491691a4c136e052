//! Mutated input for every parser, for as long as it is told to: `cargo test --test fuzz -- --seconds 60 --seed 7`, or
//! `--inputs 1000000`. Without `--seed` one is drawn and told. Seeds of inputs are what the program itself writes and reads. An input that makes it panic, takes more than 2 s or
//! more than 256 MiB is kept in target/tmp, and the exit code is 1.

#![allow(unsafe_code)] // The allocator that counts.

#[path = "../it/common/mod.rs"]
#[allow(dead_code, unused_imports)] // Its helpers are the tests'.
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{by_hand, recorded, simulated};
use membound::fleet::word::{Hello, NodeOutcome, Piece, State, Word, shortened};
use membound_analyze::across::adapters;
use membound_analyze::across::compare::figures::Figure;
use membound_analyze::across::fleet::gather::{Table, gather};
use membound_analyze::across::fleet::topology::{Topology, hosts};
use membound_analyze::across::sections;
use membound_analyze::of_record::report;
use membound_analyze::output::visible::visible;
use membound_analyze::output::{csv, json, markdown, terminal};
use membound_core::experiments as plan;
use membound_core::kernel::formula::Formula;
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::spec::Sheet;
use membound_core::memory::MemorySpec;
use membound_core::record::Record;
use membound_core::units::{Bytes, Hertz, parse_duration};

/// What one input may take.
const MEMORY: usize = 256 << 20;
const TIME: Duration = Duration::from_secs(2);

/// Counts bytes that are allocated, and the most there were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is the system's own, with its arguments; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A parser: its name, how many of a hundred inputs are its own, its seeds, and what is done with an input. True where it was
/// taken for good.
struct Target {
    name: &'static str,
    share: u64,
    seeds: Vec<Vec<u8>>,
    parse: Box<dyn Fn(&[u8]) -> bool>,
}

/// What came of its inputs.
#[derive(Default)]
struct Tally {
    inputs: u64,
    accepted: u64,
    slowest: Duration,
    most: usize,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn records(folder: &Path) -> Target {
    let machine = simulated::machine(2, false);
    let frame = simulated::frame(&machine);
    let mut cases = plan::characterise::characterise(&frame, Duration::from_secs(60)).unwrap().cases();
    cases.extend(plan::c2c::handovers(&frame, &[]).unwrap());
    cases.extend(plan::c2c::loaded(&frame, &[], 2, None).unwrap());
    let mut seeds = Vec::new();
    for name in ["", "16amd64-8n2c", "fakeheteromemtiers"] {
        let some: Vec<_> = cases.iter().step_by(1 + cases.len() / 12).cloned().collect();
        let mut record = simulated::run(&machine, &some, &mut simulated::fake());
        if !name.is_empty() {
            record.header.machine = recorded::recorded(name);
        }
        let path = folder.join("seed.jsonl");
        by_hand::write(&record, &path);
        seeds.push(std::fs::read(&path).unwrap());
    }
    let path = folder.join("input.jsonl");
    let parse = move |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        gather(std::slice::from_ref(&path), 1, u64::MAX / 2, &Table::default());
        let Ok(record) = Record::read(&path) else { return false };
        let report = report(&record);
        let rows: Vec<_> = report.any_rows().collect();
        let texts = [json::rows(&rows), csv::rows(&rows), terminal::summary(&report), markdown::report(&report)];
        texts.iter().for_each(|text| drop(visible(text)));
        true
    };
    Target { name: "records", share: 4, seeds, parse: Box::new(parse) }
}

fn loops() -> Target {
    let seeds = [
        "a[i] = b[i] + s*c[i]",
        "s += a[i]*b[i]",
        "a[k[i]] = b[i]",
        "a[i] = (b[i-1] + b[i+1]) * 0.25",
        "a[i][j] = b[j][i]",
    ];
    let parse = |bytes: &[u8]| Formula::parse(&text(bytes)).is_ok();
    Target {
        name: "loops",
        share: 25,
        seeds: seeds.map(|seed| seed.as_bytes().to_vec()).into(),
        parse: Box::new(parse),
    }
}

fn sheets() -> Target {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/specs");
    let seeds = std::fs::read_dir(specs).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    let parse = |bytes: &[u8]| {
        let sheet = Sheet::parse(&text(bytes), "input");
        sheet.is_ok_and(|sheet| !terminal::section::document(&sections::limits::sheet(&sheet)).is_empty())
    };
    Target { name: "sheets", share: 10, seeds, parse: Box::new(parse) }
}

fn topologies() -> Target {
    let seeds = [
        "SwitchName=s1 Nodes=n[1-4,07],login LinkSpeed=100\nSwitchName=s2 \\\n Nodes=r[1-2]n[08-10] # more\nSwitchName=top Switches=s[1-2]\n",
        "switchname=a nodes=n1 switches=b\nswitchname=b switches=a\n",
    ];
    let parse = |bytes: &[u8]| {
        let text = text(bytes);
        let _ = hosts(&text);
        Topology::parse(&text)
            .is_ok_and(|topology| (0..topology.switches.len().min(50)).all(|at| !topology.below(at).is_empty()))
    };
    Target {
        name: "topologies",
        share: 20,
        seeds: seeds.map(|seed| seed.as_bytes().to_vec()).into(),
        parse: Box::new(parse),
    }
}

fn words() -> Target {
    let hello = Hello {
        host: "h".into(),
        boot_id: "b".into(),
        ..Hello::here("membound 1", "h".into(), vec!["latency".into()])
    };
    let state = State::Ended { outcome: NodeOutcome::Crashed, reason: Some("signal 11".into()) };
    let words = [
        Word::Hello(Box::new(hello)),
        Word::Pong { turn: 1, unix_ns: 7 },
        Word::Piece(Piece { at: 7, bytes: 9, state }),
        Word::Bye,
    ];
    let seeds = words.iter().map(|word| word.pack(b"{\"type\":\"end\"}\n")).collect();
    let parse = |bytes: &[u8]| {
        shortened(&text(bytes), 100);
        Word::unpack(bytes).is_some()
    };
    Target { name: "messages", share: 20, seeds, parse: Box::new(parse) }
}

fn figures() -> Target {
    let seeds = [
        "name,unit,better,value,clock\nEuler3D,Hz,higher,0.971,1.5GHz\nKraken,ms,lower,6512.7,\n",
        "0-3,8",
        "00000000,0000000f",
        "1.5GiB",
        "30s",
        "2100MHz",
        "thp@weighted:0=3,1=1",
    ];
    let parse = |bytes: &[u8]| {
        let text = text(bytes);
        let units = [text.parse::<Bytes>().is_ok(), text.parse::<Hertz>().is_ok(), parse_duration(&text).is_ok()];
        let sets =
            [CpuSet::parse(&text).is_ok_and(|set| set.len() == set.iter().count()), CpuSet::parse_mask(&text).is_ok()];
        let memory = text.parse::<MemorySpec>().is_ok();
        Figure::parse(bytes, Path::new("input")).is_ok() || memory || units.contains(&true) || sets.contains(&true)
    };
    Target {
        name: "figures",
        share: 20,
        seeds: seeds.map(|seed| seed.as_bytes().to_vec()).into(),
        parse: Box::new(parse),
    }
}

/// What other tools print, as it was recorded.
fn tools() -> Target {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analyze/tests/it/adapters");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let outputs = files.filter(|path| path.extension().is_none_or(|extension| extension != "md"));
    let seeds = outputs.map(|path| std::fs::read(path).unwrap()).collect();
    let parse = |bytes: &[u8]| {
        let text = text(bytes);
        adapters::parse(&text, Path::new("input"))
            .is_ok_and(|foreign| !foreign.figures().is_empty() && !visible(&foreign.about()).is_empty())
    };
    Target { name: "tools", share: 10, seeds, parse: Box::new(parse) }
}

/// A tree of a machine; an input is one of its files with another's text.
fn trees(folder: &Path) -> Target {
    let root = folder.join("tree");
    let files = [
        ("sys/devices/system/cpu/online", "0-1"),
        ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0"),
        ("sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_map", "3"),
        ("sys/devices/system/cpu/cpu0/cache/index0/size", "32K"),
        ("sys/devices/system/cpu/cpu0/cache/index0/level", "1"),
        ("sys/devices/system/cpu/cpu0/cache/index0/type", "Data"),
        ("sys/devices/system/cpu/cpu1/online", "1"),
        ("sys/devices/system/node/node0/cpulist", "0-1"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1024 kB\nNode 0 MemFree: 512 kB\n"),
        ("sys/devices/system/node/node0/distance", "10 20"),
        ("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0\nVmSize: 10 kB\n"),
        ("proc/self/limits", "Max address space 1000000 unlimited bytes\n"),
        ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("proc/self/cgroup", "0::/job\n"),
        ("sys/fs/cgroup/job/memory.max", "1000000"),
        ("proc/cpuinfo", "processor : 0\nvendor_id : AuthenticAMD\nmodel name : x\nflags : fpu sse2\n\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ];
    for (file, text) in files {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let at = AtomicUsize::new(0);
    let parse = move |bytes: &[u8]| {
        let (file, whole) = files[at.fetch_add(1, Ordering::Relaxed) % files.len()];
        std::fs::write(root.join(file), bytes).unwrap();
        let machine = Machine::read(&root);
        std::fs::write(root.join(file), whole).unwrap();
        machine.is_ok_and(|machine| !terminal::section::document(&sections::machine::document(&machine)).is_empty())
    };
    let seeds = files.map(|(_, text)| text.as_bytes().to_vec()).into();
    Target { name: "trees", share: 1, seeds, parse: Box::new(parse) }
}

/// What parsers stumble over.
const TOKENS: [&str; 30] = [
    "18446744073709551615",
    "9223372036854775808",
    "4294967296",
    "-1",
    "0",
    "1e308",
    "-1e-308",
    "NaN",
    "null",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "0-65535",
    "0-4294967295",
    ",",
    "\n",
    "\\",
    "\u{202e}",
    "\u{0}",
    "\u{1b}[2J",
    "=",
    "[1-999999]",
    "1e400",
    "\"absent\"",
    "((((((((",
    "%s",
    "\u{10ffff}",
    "0.0",
    "99999999999999999999999",
];

/// An input: a seed with some changes.
fn mutated(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..=random.usize(..4) {
        let at = random.usize(..=input.len());
        let end = random.usize(at..=input.len()).min(at + 64);
        match random.u8(..9) {
            0 if at < input.len() => input[at] = random.u8(..),
            1 if at < input.len() => input[at] ^= 1 << random.u8(..8),
            2 => input.truncate(at),
            3 => drop(input.drain(at..end)),
            4 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece.repeat(random.usize(1..40)));
            }
            5 => {
                let other = &seeds[random.usize(..seeds.len())];
                let from = random.usize(..=other.len());
                input.splice(at.., other[from..].iter().copied());
            }
            6 => {
                // A number becomes another.
                let digit = |byte: &u8| byte.is_ascii_digit();
                let Some(from) = input[at..].iter().position(digit).map(|step| at + step) else { continue };
                let to = input[from..].iter().position(|byte| !digit(byte)).map_or(input.len(), |step| from + step);
                input.splice(from..to, TOKENS[random.usize(..TOKENS.len())].bytes());
            }
            _ => drop(input.splice(at..at, TOKENS[random.usize(..TOKENS.len())].bytes())),
        }
    }
    input
}

/// What this thread has computed so far: other programs may hold the CPUs meanwhile.
fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether the input was fine; what is wrong with it is told and kept.
fn is_fine(target: &Target, input: &[u8], tally: &mut Tally) -> bool {
    MOST.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
    let (before, started) = (NOW.load(Ordering::Relaxed), computed());
    let result = catch_unwind(AssertUnwindSafe(|| (target.parse)(input)));
    let (took, most) = (computed() - started, MOST.load(Ordering::Relaxed).saturating_sub(before));
    tally.inputs += 1;
    tally.accepted += u64::from(matches!(result, Ok(true)));
    tally.slowest = tally.slowest.max(took);
    tally.most = tally.most.max(most);
    if result.is_ok() && took <= TIME && most <= MEMORY {
        return true;
    }
    let kept: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}-{}", target.name, tally.inputs));
    std::fs::write(&kept, input).unwrap();
    let what = if result.is_err() { "a panic" } else { "too dear" };
    eprintln!("{}: {what} ({took:?}, {most} bytes): {}", target.name, kept.display());
    false
}

fn number(name: &str) -> Option<u64> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()?.parse().ok()
}

fn main() -> ExitCode {
    let inputs = number("--inputs").unwrap_or(u64::MAX);
    let seed = number("--seed").unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    let seconds = number("--seconds").unwrap_or(if inputs == u64::MAX { 60 } else { u64::MAX / 4 });
    println!("seed {seed}; the same inputs again: cargo test -p membound --test fuzz -- --inputs N --seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let targets =
        [records(folder.path()), loops(), sheets(), topologies(), words(), figures(), tools(), trees(folder.path())];
    let mut tallies: Vec<Tally> = targets.iter().map(|_| Tally::default()).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    // What a panic says stands in the way of the table; the input is kept.
    let (started, mut faults, mut done) = (Instant::now(), 0, 0);
    while done < inputs && started.elapsed().as_secs() < seconds {
        let shares: u64 = targets.iter().map(|target| target.share).sum();
        let mut draw = random.u64(..shares);
        for (target, tally) in targets.iter().zip(&mut tallies) {
            if draw < target.share {
                faults += u64::from(!is_fine(target, &mutated(&target.seeds, &mut random), tally));
                break;
            }
            draw -= target.share;
        }
        done += 1;
    }
    println!("{:<12}{:>10}{:>10}{:>12}{:>12}", "parser", "inputs", "accepted", "slowest", "most memory");
    for (target, Tally { inputs, accepted, slowest, most }) in targets.iter().zip(&tallies) {
        let (slowest, most) =
            (format!("{:.0} ms", slowest.as_secs_f64() * 1e3), format!("{:.1} MiB", *most as f64 / (1 << 20) as f64));
        println!("{:<12}{inputs:>10}{accepted:>10}{slowest:>12}{most:>12}", target.name);
    }
    println!("{done} inputs in {:.0} s, seed {seed}: {faults} faults", started.elapsed().as_secs_f64());
    ExitCode::from(u8::from(faults > 0))
}
