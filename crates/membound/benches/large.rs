//! How working out an answer grows with a record: hand-overs between all pairs of up to 1,024 CPUs, and up to 100,000 cases of
//! bandwidth. Records are made up, in memory; each line also has the time of a quarter (or half) of it.
//!
//! `cargo bench --bench large`                     1,024 CPUs and 100,000 cases
//! `cargo bench --bench large -- --cpus 256 --cases 20000`

mod common;

use std::time::Instant;

use clap::Parser;
use membound_analyze::across::compare;
use membound_analyze::across::compare::comparison::{Side, Source};
use membound_analyze::of_record::report;
use membound_analyze::output::{json, terminal};
use membound_core::case::{Case, Work, steady};
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::caches::{Cache, CacheKind};
use membound_core::machine::cpus::Cpu;
use membound_core::machine::fact::Fact;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::record::{
    Clock, Environment, Header, Measured, Measurement, Record, SCHEMA, Sample, Samples, Unit, Volume,
};
use membound_core::units::{Bytes, Hertz};
use membound_core::work::c2c::{Handover, Home};

#[derive(Parser)]
struct Options {
    /// CPUs that hand lines over
    #[arg(long, default_value_t = 1024)]
    cpus: u32,
    /// Cases of bandwidth
    #[arg(long, default_value_t = 100_000)]
    cases: u64,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const HZ: f64 = 2e9;

/// This machine, as if it had so many CPUs, eight behind each last-level cache.
fn header(cpus: u32) -> Header {
    let mut machine = membound_measure::machine::live();
    let first = machine.cpus[0].clone();
    let cpu = |id: u32| Cpu {
        id,
        core_cpus: [id].into_iter().collect(),
        core: Fact::Known(id),
        package: Fact::Known(0),
        ..first.clone()
    };
    machine.cpus = (0..cpus).map(cpu).collect();
    let cache = |level, kib, cpus| {
        let (size, line, ways) = (Bytes::kib(kib), Bytes(64), Fact::Known(8));
        Cache { level, kind: CacheKind::Unified, size, line, ways, cpus }
    };
    let private = (1..3)
        .flat_map(|level| (0..cpus).map(move |cpu| cache(level, 32 << (5 * (level - 1)), [cpu].into_iter().collect())));
    let shared = (0..cpus).step_by(8).map(|cpu| cache(3, 32 << 10, (cpu..cpu + 8).collect()));
    machine.caches = private.chain(shared).collect();
    Header {
        schema: SCHEMA,
        tool: "membound bench".into(),
        host: "made up".into(),
        started_unix_s: 0,
        command: Vec::new(),
        seed: 1,
        clock: Clock { name: "made up".into(), hz: Hertz(HZ), overhead_ticks: 20 },
        machine,
        before: Environment::default(),
        world: None,
        sheet: None,
        device: None,
        devices: Vec::new(),
    }
}

fn visit(case: Case, unit: Unit, round: u32, random: &mut fastrand::Rng) -> Measurement {
    let mut samples = Samples::default();
    for _ in 0..7 {
        let ticks = 200_000 + random.u64(..4_000);
        samples.push(Sample { ticks, core_clock_ticks: 20_000, ..Sample::default() });
    }
    let bytes = case.working_set.0;
    let volume = Volume { units: bytes / 64, unit, loaded: bytes, stored: bytes / 2, write_allocated: 0, flops: 0 };
    let obtained = Obtained { bytes: Bytes(bytes), ..Obtained::default() };
    let measured = Measured { volume, repetitions: 10, core_clock_links: 20_000, samples, obtained };
    Measurement::new(case, round, measured)
}

/// All ordered pairs, the line's page touched by the first.
fn handovers(cpus: u32, seed: u64) -> Record {
    let mut random = fastrand::Rng::with_seed(seed);
    let (work, memory) = (Work::Handover(Handover { home: Home::First }), MemorySpec::of(MemoryKind::Base));
    let case = |from: u32, to: u32| Case::new(work.clone(), memory, vec![from, to], Bytes::kib(4));
    let pairs = (0..cpus).flat_map(|from| (0..cpus).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let measurements = pairs.map(|(from, to)| visit(case(from, to), Unit::HandOver, 0, &mut random)).collect();
    Record { header: header(cpus), measurements, end: None }
}

fn bandwidths(cases: u64, seed: u64) -> Record {
    let mut random = fastrand::Rng::with_seed(seed);
    let case = |n: u64| {
        let (kernel, store) =
            [("load", StoreKind::Regular), ("copy", StoreKind::Regular), ("copy", StoreKind::Nt)][n as usize % 3];
        steady(kernel, Width::W256, store, MemorySpec::of(MemoryKind::Thp), vec![0], Bytes(16_384 + 1_024 * (n / 3)))
    };
    let measurements = (0..cases).map(|n| visit(case(n), Unit::Element, 0, &mut random)).collect();
    Record { header: header(8), measurements, end: None }
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    println!("{what:<60}{:>8.2} s", started.elapsed().as_secs_f64());
    result
}

fn all(what: &str, record: impl Fn(u64) -> Record) {
    let [a, b] = [record(1), record(2)];
    let answer = timed(&format!("{what}: report"), || report(&a));
    timed(&format!("{what}: summary"), || terminal::summary(&answer).len());
    timed(&format!("{what}: rows"), || json::rows(&answer.any_rows().collect::<Vec<_>>()).len());
    // `compare` has the two records in memory, and nothing else.
    drop(answer);
    let side = |name: &str, record: Record| Side { name: name.into(), source: Source::Records(vec![record]) };
    let sides = [side("A", a), side("B", b)];
    timed(&format!("{what}: compare of two"), || compare::compare(&sides[0], &sides[1], 0.01).rows.len());
}

fn main() {
    let Options { cpus, cases, .. } = Options::parse();
    for cpus in [cpus / 4, cpus / 2, cpus] {
        all(&format!("hand-overs of {cpus} CPUs"), |seed| handovers(cpus, seed));
    }
    for cases in [cases / 4, cases / 2, cases] {
        all(&format!("{cases} cases of bandwidth"), |seed| bandwidths(cases, seed));
    }
}
