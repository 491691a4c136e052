//! Latency against what is known: the first two levels against the core's published cycles, and memory against a chase
//! in C that shares no code with the tool.
//!
//! What is published, and where, stands in [`CORES`]. On another core the figures are shown without a verdict.
//!
//! The witness is compiled by gcc when the bench runs. It makes its own memory (transparent huge pages), its own random
//! cycle and its own timing. Its samples are about as short as the tool's, so that the median of both leaves out what a
//! host takes away in between. Both run in turns, so that a slow spell of the machine falls on both; the ratio is the
//! tool's latency over the witness's, with its 95 % interval.

mod common;

use std::process::Command;
use std::time::Duration;

use clap::Parser;
use common::{Bench, print_row, stop};
use membound_core::case::{Case, USUAL_MEMORY, Work};
use membound_core::kernel::chase::{Chase, Order};
use membound_core::machine::Machine;
use membound_core::stats;
use membound_core::stats::compare;
use membound_core::units::Bytes;

#[derive(Parser)]
struct Options {
    /// Turns: tool, witness, tool, witness, ...
    #[arg(long, default_value_t = 12)]
    rounds: u32,
    /// Seconds of one visit
    #[arg(long, default_value_t = 0.05)]
    seconds: f64,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Working set in the middle of a level. The second is small enough for the first-level translation buffer even where a
/// host backs our huge pages with base pages.
const LEVELS: [(&str, Bytes); 2] = [("L1", Bytes::kib(16)), ("L2", Bytes::kib(192))];

/// Cycles from load to use of an integer load with simple addressing, as published.
struct Core {
    name: &'static str,
    is_this: fn(&Machine) -> bool,
    /// L1, L2.
    cycles: [f64; 2],
    source: &'static str,
}

const CORES: [Core; 2] = [
    Core {
        name: "Zen 4",
        is_this: is_zen4,
        cycles: [4.0, 14.0],
        source: "AMD, Software Optimization Guide for the AMD Zen4 Microarchitecture, 57647, 2.6 and 2.6.2",
    },
    Core {
        name: "Golden Cove and its successors with 2 MiB of L2",
        is_this: is_golden_cove,
        cycles: [5.0, 16.0],
        source: "Chips and Cheese, Going Armchair Quarterback on Golden Cove's Caches (2022-02-11) and A Preview of Raptor \
                 Lake's Improved L2 Caches (2022-08-23)",
    },
];
/// This close to what is published, or to the witness, counts as equal.
const PUBLISHED: f64 = 0.02;
const WITNESS: f64 = 0.03;

fn main() {
    let options = Options::parse();
    let mut bench = Bench::new();
    println!("{}\n", bench.machine.summary());
    levels(&mut bench, &options);
    memory(&mut bench, &options);
}

fn case(bench: &Bench, working_set: Bytes) -> Case {
    let cpus = bench.frame.placement.first(1).unwrap_or_else(|fault| stop(fault));
    Case::new(Work::Chase(Chase::of(Order::Random)), USUAL_MEMORY, cpus, working_set)
}

/// The first two levels in core clock cycles.
fn levels(bench: &mut Bench, options: &Options) {
    let core = CORES.iter().find(|core| (core.is_this)(&bench.machine));
    match core {
        Some(core) => println!("{}: {}", core.name, core.source),
        None => println!("nothing published is known for this core"),
    }
    print_row(&[
        (&"level", -6),
        (&"set", -8),
        (&"cycles", 8),
        (&"95 % interval", 18),
        (&"published", 9),
        (&"equal", 5),
    ]);
    for (index, (level, size)) in LEVELS.into_iter().enumerate() {
        let case = case(bench, size);
        let batches: Vec<Vec<f64>> = (0..options.rounds)
            .map(|_| {
                let visit = bench.visit(&case, Duration::from_secs_f64(options.seconds));
                visit.unwrap_or_else(|reason| stop(format!("{case}: {reason}"))).access_cycles()
            })
            .collect();
        let Some(summary) = summary(&batches) else { stop("no samples") };
        let [low, high] = summary.ci95;
        let published = core.map(|core| core.cycles[index]);
        let verdict = published
            .map_or("-", |cycles| if (summary.median / cycles - 1.0).abs() < PUBLISHED { "yes" } else { "no" });
        let published = published.map_or("-".into(), |cycles| format!("{cycles:.0}"));
        print_row(&[
            (&level, -6),
            (&size, -8),
            (&format!("{:.3}", summary.median), 8),
            (&format!("[{low:.3}, {high:.3}]"), 18),
            (&published, 9),
            (&verdict, 5),
        ]);
    }
}

/// Family 19h, models 10h to 1Fh, 60h to 7Fh and A0h to AFh.
fn is_zen4(machine: &Machine) -> bool {
    let Some(signature) = machine.identity.signature.known() else { return false };
    let mut numbers = signature.split('/').map_while(|number| number.parse::<u32>().ok());
    let (family, model) = (numbers.next(), numbers.next());
    is_of(machine, "AuthenticAMD")
        && family == Some(0x19)
        && matches!(model, Some(0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf))
}

/// By its caches: hypervisors make up model numbers. (The L1 of Sunny Cove is as large, its L2 is not.)
fn is_golden_cove(machine: &Machine) -> bool {
    let caches: Vec<Bytes> = machine.data_caches(0).iter().map(|cache| cache.size).take(2).collect();
    is_of(machine, "GenuineIntel") && caches == [Bytes::kib(48), Bytes::mib(2)]
}

fn is_of(machine: &Machine, vendor: &str) -> bool {
    machine.identity.vendor.known().is_some_and(|name| name == vendor)
}

fn summary(batches: &[Vec<f64>]) -> Option<stats::Summary> {
    stats::summarize(&batches.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Memory, in turns with the witness.
fn memory(bench: &mut Bench, options: &Options) {
    let size = bench.frame.memory_size(1);
    let case = case(bench, size);
    let folder = std::env::temp_dir().join(format!("membound-witness-{}", std::process::id()));
    let witness = match compile(&folder) {
        Ok(witness) => witness,
        Err(reason) => return println!("\nno witness: {reason}"),
    };
    let (mut tool, mut other): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        bench.begin_round();
        let visit = bench.visit(&case, Duration::from_secs_f64(options.seconds));
        tool.push(visit.unwrap_or_else(|reason| stop(format!("{case}: {reason}"))).access_ns());
        // Given back, so that both have the same pages to choose from: a host may back some better than others.
        bench.begin_round();
        other.push(run(&witness, case.cpus[0], size, round).unwrap_or_else(|reason| stop(reason)));
    }
    let _ = std::fs::remove_dir_all(&folder);
    let [a, b] = [&tool, &other].map(|batches| batches.iter().map(Vec::as_slice).collect::<Vec<&[f64]>>());
    let [ratio, low, high] = compare::ratio(&a, &b);
    let ns = |batches: &[Vec<f64>]| summary(batches).map_or(f64::NAN, |summary| summary.median);
    println!("\n{size} in random order: {:.1} ns, witness {:.1} ns", ns(&tool), ns(&other));
    let equal = if (ratio - 1.0).abs() < WITNESS { "yes" } else { "no" };
    println!("ratio {ratio:.4} [{low:.4}, {high:.4}], within {:.0} %: {equal}", WITNESS * 100.0);
}

/// Bytes, CPU, seed; prints nanoseconds a link, a line a sample.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t state;
static uint64_t draw(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC_RAW, &t); return t.tv_sec * 1e9 + t.tv_nsec; }

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t bytes = strtoull(argv[1], 0, 10), lines = bytes / 64, huge = 2 << 20;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[2]), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus)) return 3;
    state = 88172645463325252u + strtoull(argv[3], 0, 10);
    char *map = mmap(0, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return 4;
    char *start = (char *)(((uintptr_t)map + huge - 1) & ~(uintptr_t)(huge - 1));
    madvise(start, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < lines; i++) *(size_t *)(start + 64 * i) = i;
    for (size_t i = lines - 1; i > 0; i--) { /* Sattolo */
        size_t j = draw() % i, *a = (size_t *)(start + 64 * i), *b = (size_t *)(start + 64 * j), t = *a;
        *a = *b; *b = t;
    }
    for (size_t i = 0; i < lines; i++) { size_t *a = (size_t *)(start + 64 * i); *(void **)a = start + 64 * *a; }
    void **p = (void **)start;
    for (size_t i = 0; i < lines / 4; i++) p = *p;
    static double taken[2000];
    for (int sample = 0; sample < 2000; sample++) {
        double from = now();
        for (int i = 0; i < 64; i++) p = *(void *volatile *)p;
        taken[sample] = (now() - from) / 64;
    }
    for (int sample = 0; sample < 2000; sample++) printf("%.4f\n", taken[sample]);
    return p == 0;
}
"#;

fn compile(folder: &std::path::Path) -> Result<std::path::PathBuf, String> {
    std::fs::create_dir_all(folder).map_err(|fault| fault.to_string())?;
    let (source, program) = (folder.join("witness.c"), folder.join("witness"));
    std::fs::write(&source, SOURCE).map_err(|fault| fault.to_string())?;
    let output = Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(&source).output();
    let output = output.map_err(|fault| format!("gcc could not be run ({fault}); install gcc"))?;
    if output.status.success() { Ok(program) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Nanoseconds of each sample.
fn run(witness: &std::path::Path, cpu: u32, size: Bytes, seed: u32) -> Result<Vec<f64>, String> {
    let output = Command::new(witness).args([size.0.to_string(), cpu.to_string(), seed.to_string()]).output();
    let output = output.map_err(|fault| format!("the witness could not be run ({fault})"))?;
    if !output.status.success() {
        return Err(format!("the witness failed: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.parse().ok()).collect())
}
