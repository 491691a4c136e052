//! Where lines live: rules found on simulated memories, the loop on a simulated machine, and one real visit.

use crate::common::{by_hand, simulated};
use std::time::{Duration, Instant};

use crate::common::skip::skip;
use fastrand::Rng;
use membound_analyze::experiments::addrmap::linear::{Basis, parity};
use membound_analyze::experiments::addrmap::rows::{AddrmapRow, Experiment};
use membound_analyze::experiments::addrmap::solver::{Batch, Determined, Evidence, Solution, Space};
use membound_analyze::of_record as model;
use membound_analyze::output::{csv, terminal};
use membound_analyze::row::AnyRow;
use membound_core::case::{Case, Work};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Measurement, Outcome, Record, RecordError};
use membound_core::units::Bytes;
use membound_core::work::addrmap::{Conflict, Stage};
use membound_measure::executor::fake::{Fake, FakeLevel, Noise};
use membound_measure::memory::places::Places;
use membound_measure::schedule::{Executor, Quota, Schedule};

/// How a simulated memory chooses the target of a line.
#[derive(Debug, Clone)]
enum Map {
    /// So many targets, blocks of 2 to the power of the first number one after the other.
    Modulo(u32, u64),
    /// A bit of the target's number is the parity of what a mask picks.
    Xor(Vec<u64>),
    /// Any target, drawn for each line.
    Table(u64),
    /// Nothing gets in the way of anything.
    Apart,
}

impl Map {
    fn target(&self, address: u64) -> u64 {
        match self {
            Map::Modulo(shift, targets) => (address >> shift) % targets,
            Map::Xor(masks) => masks.iter().fold(0, |target, mask| target << 1 | u64::from(parity(address, *mask))),
            Map::Table(targets) => Rng::with_seed(address ^ 0x5bd1_e995_9d1f_3a7b).u64(0..*targets),
            Map::Apart => address,
        }
    }
}

/// A memory whose times scatter: 10 % noise, 2 % of samples three times as long.
struct Simulated {
    map: Map,
    page: Bytes,
    /// Physical address of each page.
    frames: Vec<u64>,
    /// Whether the solver is told.
    is_physical: bool,
    /// How much longer a conflict takes.
    slower: f64,
}

impl Simulated {
    fn time(&self, pair: [u32; 2], random: &mut Rng) -> f64 {
        let address = |line: u32| {
            let offset = u64::from(line) * 64;
            self.frames[(offset / self.page.0) as usize] + offset % self.page.0
        };
        let [a, b] = pair.map(address).map(|address| self.map.target(address));
        let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let outlier = if random.f64() < 0.02 { 3.0 } else { 1.0 };
        200.0 * if a == b { self.slower } else { 1.0 } * (1.0 + 0.1 * normal).max(0.1) * outlier
    }

    /// Asks until there is a verdict; with it, how many samples that took.
    fn solve(&self, seed: u64) -> (Solution, usize) {
        let mut random = Rng::with_seed(seed);
        let bytes = Bytes(self.page.0 * self.frames.len() as u64);
        let bare = Space::new(self.page, bytes);
        let mut space = bare.clone();
        let (mut evidence, mut samples) = (Evidence::default(), 0);
        while let Some((stage, pairs)) = evidence.next(&space, &mut random) {
            let times: Vec<f64> = pairs.iter().map(|pair| self.time(*pair, &mut random)).collect();
            samples += times.len();
            evidence.add(Batch { stage, pairs, times });
            if self.is_physical {
                space = bare.clone().at(&self.frames);
            }
        }
        (evidence.verdict(&space), samples)
    }

    /// Whether the rule has lines share a target exactly where they do, over many pairs that it may speak of.
    fn is_solved_by(&self, found: &Determined, random: &mut Rng) -> bool {
        let lines = self.page.0 / 64;
        (0..20_000).all(|_| {
            let first = random.usize(0..self.frames.len());
            let second = if self.is_physical { random.usize(0..self.frames.len()) } else { first };
            let [a, b] = [first, second].map(|page| self.frames[page] + random.u64(0..lines) * 64);
            found.rule.is_same([a, b]) == (self.map.target(a) == self.map.target(b))
        })
    }
}

/// A memory with a map of the published kinds: modulo 8 of the three bits above the line, even and odd lines, XOR hashes
/// of up to 20 bits, other numbers of targets; in one page of known bits or over pages at known places.
fn any(random: &mut Rng) -> Simulated {
    let is_physical = random.bool();
    let (page, pages) = [(21, 32), (30, 1)][usize::from(!is_physical && random.bool())];
    // Pages anywhere in 16 GiB.
    let frames: Vec<u64> = (0..pages).map(|_| random.u64(0..1 << (34 - page)) << page).collect();
    let top = if is_physical { 34 } else { page };
    let map = match random.u32(0..10) {
        0 => Map::Modulo(6, 8),
        1 => Map::Modulo(6, 2),
        2 | 3 => Map::Modulo(random.u32(6..13), random.u64(2..=16)),
        _ => Map::Xor(masks(random.usize(1..=4), top, random)),
    };
    Simulated { map, page: Bytes(1 << page), frames, is_physical, slower: 1.4 + random.f64() }
}

/// Independent masks of up to 20 bits, from the line to below `top`.
fn masks(count: usize, top: u32, random: &mut Rng) -> Vec<u64> {
    loop {
        let mut mask = || {
            let bits = random.usize(1..=20);
            let mut choice: Vec<u32> = (6..top).collect();
            random.shuffle(&mut choice);
            choice.iter().take(bits).fold(0, |mask, bit| mask | 1u64 << bit)
        };
        let masks: Vec<u64> = (0..count).map(|_| mask()).collect();
        if Basis::of(masks.iter().copied()).rank() == count {
            return masks;
        }
    }
}

/// The recorded seed of the maps.
const SEED: u64 = 20261121;

#[test]
fn rules_are_recovered() {
    let mut random = Rng::with_seed(SEED);
    let (mut missed, mut wrong, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    for case in 0..200 {
        let memory = any(&mut random);
        let (verdict, asked) = memory.solve(case);
        samples.push(asked);
        match verdict {
            Solution::Determined(found) if memory.is_solved_by(&found, &mut random) => {
                assert!(found.confidence() > 0.8, "{found:?}");
            }
            Solution::Determined(found) => wrong.push((memory.map, found)),
            Solution::Undetermined(why) => missed.push((memory.map, why)),
        }
    }
    samples.sort_unstable();
    println!("missed {missed:?}, wrong {wrong:?}; samples: median {}, most {}", samples[100], samples[199]);
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(missed.len() <= 2, "{missed:?}");
}

#[test]
fn maps_without_a_rule_are_undetermined() {
    for (case, targets) in [2, 3, 4, 8, 16].into_iter().cycle().enumerate().take(40) {
        let memory = simple(Map::Table(targets));
        let (verdict, _) = memory.solve(case as u64);
        assert!(
            matches!(&verdict, Solution::Undetermined(why) if why.contains("by no rule")),
            "{targets}: {verdict:?}"
        );
    }
}

#[test]
fn memory_without_conflicts_is_undetermined() {
    for case in 0..20 {
        for map in [Map::Apart, Map::Modulo(30, 2)] {
            let (verdict, _) = simple(map.clone()).solve(case);
            assert!(matches!(verdict, Solution::Undetermined(_)), "{map:?}: {verdict:?}");
        }
    }
}

/// Sixteen pages of 2 MiB at unknown places, conflicts half as long again.
fn simple(map: Map) -> Simulated {
    let frames = (0..16).map(|page| page << 21).collect();
    Simulated { map, page: Bytes::mib(2), frames, is_physical: false, slower: 1.5 }
}

fn case(kind: MemoryKind, pairs: &[[u32; 2]]) -> Case {
    let work = Work::Conflict(Conflict { stage: Stage::Screen, pairs: pairs.to_vec() });
    Case::new(work, MemorySpec::of(kind), vec![0], Bytes::mib(16))
}

fn record(executor: &dyn Executor, measurements: Vec<Measurement>) -> Record {
    by_hand::record(executor.clock(), by_hand::unknown_machine(), measurements)
}

/// Runs the whole loop on an executor; the record.
fn asked(executor: &mut dyn Executor, kind: MemoryKind) -> Record {
    let mut experiment = Experiment::new(&case(kind, &[]), executor.clock().hz, &by_hand::unknown_machine(), 5);
    let schedule = Schedule {
        seed: 0,
        started: Instant::now(),
        deadline: Instant::now() + Duration::from_secs(20),
        samples: 7,
        most_rounds: 1,
        settled: &|_| true,
        interrupted: &|| false,
    };
    let measurements = simulated::asked(&mut experiment, executor, &schedule);
    record(executor, measurements)
}

fn fake(target: Option<fn(u64) -> u64>) -> Fake {
    let level = FakeLevel { capacity: Bytes(u64::MAX), bytes_per_s: 1e10, shared_bytes_per_s: 1e10 };
    let noise = Noise { sigma: 0.1, outliers: 0.02, ..Noise::default() };
    let mut fake = Fake::new(vec![level], noise, 11);
    fake.target = target;
    fake
}

fn only_row(record: &Record) -> AddrmapRow {
    let rows = model::report(record).addrmap;
    assert_eq!(rows.len(), 1);
    rows[0].clone()
}

#[test]
fn the_loop_finds_the_rule_and_the_record_keeps_it() {
    let record = asked(&mut fake(Some(|address| address >> 6 & 7)), MemoryKind::Thp);
    let row = only_row(&record);
    assert_eq!((row.targets, row.rule_words().as_str()), (Some(8), "address / 64 modulo 8"), "{row:?}");
    assert_eq!(
        (row.masks.join(" ").as_str(), row.known_bits, row.address.as_str()),
        ("0x40 0x80 0x100", [6, 20], "in the page")
    );
    assert!(row.confidence > Some(0.9) && row.agreed > Some(120) && row.checked == Some(128), "{row:?}");
    let (apart, conflict) = (row.apart_ns.unwrap(), row.conflict_ns.unwrap());
    assert!((190.0..210.0).contains(&apart) && (285.0..315.0).contains(&conflict), "{apart} {conflict}");

    // The same answer from the file.
    let read = by_hand::written_and_read(&record);
    assert_eq!(read, record);
    assert_eq!(only_row(&read), row);

    let report = model::report(&record);
    assert!(report.findings.iter().any(|line| line.contains("8 targets, chosen by address / 64 modulo 8")));
    let text = anstream::adapter::strip_str(&terminal::summary(&report)).to_string();
    assert!(text.contains("thp: mask 0x100: bits 8"), "{text}");
    let rows: Vec<&dyn AnyRow> = report.any_rows().collect();
    assert!(csv::rows(&rows).lines().nth(1).unwrap().starts_with("addrmap,thp,"));
}

#[test]
fn xor_and_remainder_are_told_in_words() {
    // Two targets by the parity of bits 6 and 13, three by the remainder of blocks of 4 KiB.
    let target = |address: u64| u64::from(parity(address, 0x2040)) + 2 * (address / 4096 % 3);
    let row = only_row(&asked(&mut fake(Some(target)), MemoryKind::Thp));
    assert_eq!(row.rule_words(), "XOR of bits 6+13 and address / 4096 modulo 3", "{row:?}");
    assert_eq!((row.targets, row.modulo), (Some(6), None));
    let row = only_row(&asked(&mut fake(Some(|address| address % (1 << 21) / 64 % 12)), MemoryKind::Thp));
    assert_eq!((row.rule_words().as_str(), row.targets), ("address / 64 modulo 12", Some(12)));
}

#[test]
fn what_was_cut_off_says_so() {
    let mut record = asked(&mut fake(Some(|address| address >> 6 & 7)), MemoryKind::Thp);
    for left in [5, 4, 3, 2, 1] {
        record.measurements.truncate(left);
        let row = only_row(&record);
        assert!(row.why.as_ref().is_some_and(|why| why.contains("--budget")) && row.targets.is_none(), "{row:?}");
    }
    let row = only_row(&asked(&mut fake(None), MemoryKind::Thp));
    assert!(row.why.as_ref().is_some_and(|why| why.contains("clearly slower")), "{row:?}");
}

#[test]
fn a_record_with_pairs_beyond_its_memory_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let outcome = Outcome::Unavailable { reason: "made up".into() };
    let measurement = Measurement::new(case(MemoryKind::Thp, &[[0, 16 << 14]]), 0, outcome);
    by_hand::write(&record(&fake(None), vec![measurement; 2]), &path);
    assert!(matches!(Record::read(&path), Err(RecordError::Damaged { line: 2, .. })));
}

#[cfg(target_arch = "x86_64")]
mod real {
    use super::*;
    use membound_measure::executor::native::Native;

    fn visit(case: &Case) -> Outcome {
        let quota = Quota { least_samples: 1, most_samples: 7, time: Duration::from_secs(5), interrupted: &|| false };
        Native::new(&[], Places::default(), false).unwrap().visit(case, &quota)
    }

    #[test]
    fn a_visit_is_measured_or_says_why_not() {
        let pairs = [[0, 1], [5, 4000], [5, 4000], [32767, 131_072]];
        for kind in [MemoryKind::Thp, MemoryKind::Huge2M] {
            match visit(&case(kind, &pairs)) {
                Outcome::Measured(measured) => {
                    assert_eq!(measured.samples.ticks.len(), pairs.len());
                    assert!(measured.samples.is_consistent() && measured.repetitions > 0);
                    // To root each page's place is known, and no two lie at the same.
                    let mut frames = measured.obtained.frames.clone();
                    assert!([0, 8].contains(&frames.len()), "{frames:?}");
                    assert!(frames.iter().all(|frame| frame % (2 << 20) == 0));
                    frames.sort_unstable();
                    frames.dedup();
                    assert_eq!(frames.len(), measured.obtained.frames.len());
                }
                Outcome::Unavailable { reason } => skip(format!("{kind}: {reason}")),
                outcome => panic!("{kind}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_asked_says_why() {
        let reason = |case: &Case| match visit(case) {
            Outcome::Unavailable { reason } => reason,
            outcome => panic!("{outcome:?}"),
        };
        assert!(reason(&case(MemoryKind::Base, &[[0, 1]])).contains("choose thp"));
        let two = Case { cpus: vec![0, 1], ..case(MemoryKind::Thp, &[[0, 1]]) };
        assert!(reason(&two).contains("one CPU"));
        let beyond = reason(&case(MemoryKind::Thp, &[[0, u32::MAX]]));
        assert!(beyond.contains("--size") || beyond.contains("huge pages"), "{beyond}");
    }

    #[test]
    fn the_whole_experiment_comes_to_a_verdict() {
        let mut native = Native::new(&[], Places::default(), false).unwrap();
        let row = only_row(&asked(&mut native, MemoryKind::Thp));
        println!("{row:?}");
        match row.quality.outcome.word() {
            "measured" => assert!(row.targets.is_some() != row.why.is_some(), "{row:?}"),
            "unavailable" => assert!(row.quality.reason.is_some()),
            _ => panic!("{row:?}"),
        }
    }
}
