//! Memory kinds side by side: what first use costs, what later uses gain, and after how many a dearer kind pays.
//!
//! A use is one copy of a buffer from regular memory. The first one is counted from asking for the memory to the end of
//! the pass, faults and all; n uses take t_first + (n - 1) t_steady. Two kinds are level after
//! `n = 1 + (difference of first uses) / (gain of each later use)`. Both differences have an interval, and that of
//! their quotient is Fieller's (1954): it is open where the gain might be none.

use schemars::JsonSchema;
use serde::Serialize;

use super::rows::Result;
use super::{Cost, Row};
use crate::kernel::Element;
use crate::memory::{MemoryKind, MemorySpec, Proof};
use crate::plan::{Protocol, REGULAR};
use crate::stats;
use crate::units::{Bytes, BytesPerSecond, Nanoseconds, count, percent, significant};

/// Memory kinds side by side: copying a buffer to each from regular memory.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Kinds {
    /// Bytes copied in one use, over all threads.
    pub bytes: Bytes,
    /// What the buffer is an array of.
    pub element: Element,
    /// Threads.
    pub threads: usize,
    /// One a kind, in the order of kinds.
    pub kinds: Vec<Kind>,
}

/// One kind of memory as a buffer. Indices are those of [`Report::rows`](super::Report::rows).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Kind {
    /// What was asked for.
    pub memory: MemorySpec,
    /// Seconds of the first use: from asking for the memory to the end of the first copy.
    pub first_s: Option<Cost>,
    /// Seconds of each later copy.
    pub steady_s: Option<Cost>,
    /// Page faults of the first copy.
    pub faults: Option<f64>,
    /// What the first use costs more than a later one, in nanoseconds for each fault.
    pub fault_ns: Option<f64>,
    /// Speed of later copies against `against`: [ratio, low, high].
    pub gain: Option<[f64; 3]>,
    /// The kind it is held against; absent for that kind itself.
    pub against: Option<MemorySpec>,
    /// From which use on it is the better choice.
    pub break_even: Option<BreakEven>,
    /// First copy, then later copies, then everything else that was done to it alone: indices of rows.
    pub first: Option<usize>,
    /// See `first`.
    pub steady: Option<usize>,
    /// See `first`: by kernel, store kind, load kind.
    pub alone: Vec<usize>,
    /// How it is known to be of this kind, in words; or why it could not be measured.
    pub proof: String,
    /// Whether it is what it claims; false also where it was not obtained.
    pub holds: bool,
}

/// From which use on a kind is cheaper in sum, by t_first + (n - 1) t_steady.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakEven {
    /// From the first use on.
    AtOnce,
    /// After so many uses: [n, low, high]; an end that the intervals leave open is absent.
    After {
        /// Uses.
        uses: f64,
        /// Lower end of the 95 % interval.
        low: f64,
        /// Upper end; absent where it might be never.
        high: Option<f64>,
    },
    /// Cheaper to begin with, dearer after so many uses.
    Until {
        /// Uses.
        uses: f64,
    },
    /// Never: dearer to begin with and slower ever after.
    Never,
    /// Neither first use nor later uses differ by more than the intervals.
    Alike,
}

/// Normal quantile of 97.5 %: half an interval is so many standard errors.
const Z: f64 = 1.96;

/// The comparison, if some kind's copies were measured.
pub(super) fn compare(results: &[Result]) -> Option<Kinds> {
    let copies: Vec<&Result> = results.iter().filter(|result| target(result).is_some()).collect();
    let Row { threads, element, working_set_bytes, .. } = copies.first()?.row;
    let mut memories: Vec<MemorySpec> = copies.iter().filter_map(|copy| target(copy)).collect();
    memories.sort_unstable();
    memories.dedup();
    let bytes = Bytes(working_set_bytes.0 / 2);
    let kinds = memories.iter().map(|&memory| kind(results, memory, base(memory, &memories), bytes)).collect();
    Some(Kinds { bytes, element, threads, kinds })
}

/// The kind that a copy goes to, where only the target has a kind of its own.
fn target(result: &Result) -> Option<MemorySpec> {
    match &result.case.streams[..] {
        [only] if result.row.kernel == "copy" && only.stream == "a" => Some(only.memory),
        _ => None,
    }
}

/// What a kind is held against: memory types against write-back in the same micro-VM, the others against the heap.
fn base(memory: MemorySpec, all: &[MemorySpec]) -> Option<MemorySpec> {
    let write_back = MemorySpec { kind: MemoryKind::Wb, ..memory };
    let base = if memory.kind.is_memory_type() && all.contains(&write_back) { write_back } else { REGULAR };
    (memory != base && all.contains(&base)).then_some(base)
}

fn kind(results: &[Result], memory: MemorySpec, against: Option<MemorySpec>, bytes: Bytes) -> Kind {
    let of = |memory: MemorySpec, protocol: Protocol| {
        results.iter().position(|r| target(r) == Some(memory) && r.case.protocol == protocol)
    };
    let first_of = |memory: MemorySpec| of(memory, Protocol::FirstUse).map(|index| &results[index]);
    // A cold file is warm once it was used.
    let warm = |memory: MemorySpec| MemorySpec { kind: memory.kind.warm(), ..memory };
    let steady_of = |memory: MemorySpec| of(warm(memory), Protocol::Steady).map(|index| &results[index]);
    let (first, steady) = (first_of(memory), steady_of(memory));
    let (first_s, steady_s) = (first.and_then(total), steady.and_then(each));
    let faults = first.and_then(|first| first.row.first_use).map(|first| first.faults);
    let more = first_s.zip(steady_s).map(|(first, steady)| (first.median - steady.median) * 1e9);
    let gain = against.and_then(|base| gain(steady?, steady_of(base)?));
    let break_even = against.and_then(|base| {
        let firsts = (first_s?, total(first_of(base)?)?);
        break_even(firsts, (steady_s?, each(steady_of(base)?)?), gain?)
    });
    let is_alone = |r: &Result| r.case.streams.is_empty() && r.case.memory == memory && r.case.working_set == bytes;
    let alone = results.iter().filter(|r| is_alone(r));
    let rows = alone.chain(results.iter().filter(|r| target(r) == Some(memory))).map(|r| &r.row);
    let (proof, holds) = proof(memory.kind, rows);
    Kind {
        memory,
        first_s,
        steady_s,
        faults,
        fault_ns: more.zip(faults).filter(|(_, faults)| *faults >= 1.0).map(|(more, faults)| (more / faults).max(0.0)),
        gain,
        against,
        break_even,
        first: of(memory, Protocol::FirstUse),
        steady: of(memory, Protocol::Steady),
        alone: (0..results.len()).filter(|&index| is_alone(&results[index])).collect(),
        proof,
        holds,
    }
}

/// Seconds of the first use.
fn total(first: &Result) -> Option<Cost> {
    first.row.first_use.filter(|_| first.row.quality.is_measured()).map(|first| first.total_s)
}

/// Seconds of one copy.
fn each(steady: &Result) -> Option<Cost> {
    let (rate, payload) = (steady.row.payload_bps?, steady.case.working_set.0 as f64);
    let seconds = |bps: f64| payload / bps;
    let [low, high] = rate.ci95;
    (steady.row.quality.is_measured()).then(|| Cost {
        best: seconds(rate.best),
        median: seconds(rate.median),
        ci95: [seconds(high), seconds(low)],
    })
}

/// Each visit has pages of its own: where they came to lie moves a figure by several percent, and does not cancel.
fn gain(steady: &Result, base: &Result) -> Option<[f64; 3]> {
    let gain = stats::ratio_of_draws(&steady.batches(), &base.batches());
    gain[0].is_finite().then_some(gain)
}

fn standard_error(low: f64, high: f64) -> f64 {
    (high - low) / (2.0 * Z)
}

/// From (this kind's, the base's) first and later uses, and this kind's speed against the base's.
fn break_even(first: (Cost, Cost), steady: (Cost, Cost), gain: [f64; 3]) -> Option<BreakEven> {
    let error = |cost: Cost| standard_error(cost.ci95[0], cost.ci95[1]);
    let dearer = first.0.median - first.1.median;
    let dearer_error = error(first.0).hypot(error(first.1));
    let share = 1.0 - 1.0 / gain[0];
    let saved = steady.1.median * share;
    let share_error = standard_error(1.0 - 1.0 / gain[1], 1.0 - 1.0 / gain[2]);
    let saved_error = (steady.1.median * share_error).hypot(share * error(steady.1));
    let is_dearer = dearer > Z * dearer_error;
    let is_cheaper = dearer < -Z * dearer_error;
    let is_faster = gain[1] > 1.0;
    let is_slower = gain[2] < 1.0;
    let uses = 1.0 + dearer / saved;
    Some(match (is_dearer, is_cheaper) {
        (true, _) if is_faster => {
            let [low, high] = quotient(dearer, dearer_error, saved, saved_error);
            BreakEven::After { uses, low: 1.0 + low?.max(0.0), high: high.map(|high| 1.0 + high) }
        }
        (true, _) => BreakEven::Never,
        (_, true) if is_slower => BreakEven::Until { uses },
        (_, true) => BreakEven::AtOnce,
        _ if is_faster => BreakEven::AtOnce,
        _ if is_slower => BreakEven::Never,
        _ => BreakEven::Alike,
    })
}

/// Fieller's 95 % interval of a / b for independent a, b > 0; an open end is absent.
fn quotient(a: f64, a_error: f64, b: f64, b_error: f64) -> [Option<f64>; 2] {
    let (p, q, r) = (a * a - (Z * a_error).powi(2), a * b, b * b - (Z * b_error).powi(2));
    let root = (q * q - p * r).max(0.0).sqrt();
    if r > 0.0 { [Some((q - root) / r), Some((q + root) / r)] } else { [Some(p / (q + root)), None] }
}

/// How a kind is known to be what it claims; where nothing was measured, the reason. `rows` holds those first in which
/// it stands alone: what was obtained for a copy is that of both streams.
fn proof<'a>(kind: MemoryKind, rows: impl Iterator<Item = &'a Row> + Clone) -> (String, bool) {
    let measured = rows.clone().filter(|row| row.quality.is_measured());
    let Some(obtained) = measured.clone().find_map(|row| row.obtained.as_ref()) else {
        let reason = rows.clone().find_map(|row| row.quality.fault());
        return (reason.unwrap_or_else(|| "not measured".into()), false);
    };
    // A promise that was not kept in one row is not kept.
    let broken = measured.filter_map(|row| row.obtained.as_ref()).flat_map(|obtained| &obtained.proofs);
    let mut proofs: Vec<&Proof> = broken.filter(|proof| !proof.holds).collect();
    proofs.extend(obtained.proofs.iter().filter(|proof| proof.holds));
    proofs.dedup_by_key(|proof| &proof.claim);
    let holds = proofs.iter().all(|proof| proof.holds);
    let mut words: Vec<String> = proofs
        .iter()
        .map(|proof| {
            let not = if proof.holds { "" } else { "NOT " };
            format!("{not}{} ({}: {})", proof.claim, proof.by, proof.seen)
        })
        .collect();
    let Some((huge, promises)) = obtained.huge_bytes.zip(promises_huge_pages(kind)) else {
        return (words.join("; "), holds);
    };
    // smaps counts whole pages, `bytes` those that were used.
    let share = (huge.0 as f64 / obtained.bytes.0.max(1) as f64).min(1.0);
    words.push(format!("{} in huge pages (smaps)", percent(share)));
    (words.join("; "), holds && if promises { share >= 0.9 } else { share == 0.0 })
}

/// Whether a kind promises huge pages, or promises none; nothing where it promises neither.
fn promises_huge_pages(kind: MemoryKind) -> Option<bool> {
    match kind {
        MemoryKind::Base => Some(false),
        MemoryKind::Thp | MemoryKind::Huge2M | MemoryKind::Huge1G => Some(true),
        _ => None,
    }
}

/// Which kind a buffer should be, in words.
pub(super) fn sentences(kinds: &Kinds) -> Vec<String> {
    let mut all = Vec::new();
    for base in [REGULAR.kind, MemoryKind::Wb] {
        let Some(regular) = kinds.kinds.iter().find(|kind| kind.memory.kind == base) else { continue };
        let (Some(first), Some(steady)) = (regular.first_s, regular.steady_s) else { continue };
        let others: Vec<&Kind> = kinds.kinds.iter().filter(|kind| kind.against == Some(regular.memory)).collect();
        let verdicts = verdicts(&others);
        if verdicts.is_empty() {
            continue;
        }
        let rate = BytesPerSecond(kinds.bytes.0 as f64 / steady.median);
        all.push(format!(
            "Copying {} to {} takes {} the first time, then {} ({rate} copied). {}.",
            kinds.bytes,
            name(regular.memory),
            seconds(first.median),
            seconds(steady.median),
            verdicts.join("; ")
        ));
    }
    all
}

/// Kinds with the same verdict share a clause; the most useful verdicts come first.
fn verdicts(kinds: &[&Kind]) -> Vec<String> {
    let mut clauses = Vec::new();
    for kind in kinds {
        if let (Some(BreakEven::After { uses, low, high }), Some(gain)) = (kind.break_even, kind.gain) {
            let high = high.map_or_else(|| "never".into(), count);
            clauses.push(format!(
                "{} wins in steady state, {} times as fast, and pays after about {} copies [{}, {high}]",
                name(kind.memory),
                significant(gain[0]),
                count(uses),
                count(low),
            ));
        }
    }
    let at_once = |kind: &&&Kind| kind.break_even == Some(BreakEven::AtOnce);
    let times = |kind: &&Kind| {
        Some(format!(
            "{} ({}, then {})",
            name(kind.memory),
            seconds(kind.first_s?.median),
            seconds(kind.steady_s?.median)
        ))
    };
    let quick = kinds.iter().filter(at_once).filter_map(times);
    clauses.extend(clause(
        quick.collect(),
        "is the better choice from the first copy on",
        "are better from the first copy on",
    ));
    for kind in kinds {
        if let Some(BreakEven::Until { uses }) = kind.break_even {
            clauses.push(format!("{} is cheaper for up to {} copies", name(kind.memory), count(uses.floor())));
        }
    }
    let with =
        |verdict| kinds.iter().filter(move |kind| kind.break_even == Some(verdict)).map(|kind| name(kind.memory));
    clauses.extend(clause(with(BreakEven::Never).collect(), "never pays", "never pay"));
    clauses.extend(clause(with(BreakEven::Alike).collect(), "makes no difference", "make no difference"));
    if let Some(first) = clauses.first_mut() {
        *first = first[..1].to_uppercase() + &first[1..];
    }
    clauses
}

fn clause(names: Vec<String>, one: &str, many: &str) -> Option<String> {
    match &names[..] {
        [] => None,
        [only] => Some(format!("{only} {one}")),
        [most @ .., last] => Some(format!("{} and {last} {many}", most.join(", "))),
    }
}

/// The kind as the field calls it.
fn name(memory: MemorySpec) -> String {
    let long = match memory.kind {
        MemoryKind::Heap => "regular memory",
        MemoryKind::Wb => "write-back memory",
        MemoryKind::Wc => "write-combining memory",
        MemoryKind::Uc | MemoryKind::UcMinus => "uncacheable memory",
        MemoryKind::Wt => "write-through memory",
        MemoryKind::Wp => "write-protect memory",
        _ => return memory.to_string(),
    };
    format!("{long} ({memory})")
}

fn seconds(seconds: f64) -> String {
    Nanoseconds(seconds * 1e9).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(value: f64) -> Cost {
        Cost { best: value, median: value, ci95: [value, value] }
    }

    /// R. Garg's figures (REFERENCE S0): steady 3.8, 5.7, 0.33 GB/s; first 22, 81, 164 ms; 32 MB.
    #[test]
    fn the_published_experiment() {
        let seconds = |gbps: f64| exact(32e6 / (gbps * 1e9));
        let compare = |first: f64, gbps: f64| {
            let gain = [gbps / 3.8; 3];
            break_even((exact(first), exact(0.022)), (seconds(gbps), seconds(3.8)), gain).unwrap()
        };
        // (81 - 22) / (8.421 - 5.614) = 21.0 copies after the first.
        let BreakEven::After { uses, low, high } = compare(0.081, 5.7) else { panic!("{:?}", compare(0.081, 5.7)) };
        assert!((uses - 22.02).abs() < 0.01 && (low - uses).abs() < 1e-9 && (high.unwrap() - uses).abs() < 1e-9);
        assert_eq!(compare(0.164, 0.33), BreakEven::Never);
    }

    #[test]
    fn every_case_has_its_answer() {
        let loose = |value: f64| Cost { best: value, median: value, ci95: [value * 0.9, value * 1.1] };
        let of = |first: f64, steady: f64| {
            let gain = [1.0 / steady, 0.95 / steady, 1.05 / steady];
            break_even((loose(first), loose(5.0)), (loose(steady), loose(1.0)), gain).unwrap()
        };
        assert_eq!(of(4.0, 1.0), BreakEven::AtOnce);
        assert_eq!(of(5.0, 0.8), BreakEven::AtOnce);
        assert_eq!(of(5.0, 1.0), BreakEven::Alike);
        assert_eq!(of(5.0, 1.3), BreakEven::Never);
        assert_eq!(of(9.0, 1.0), BreakEven::Never);
        // 3 saved at first, 1 lost each time: level after 4 uses.
        assert_eq!(of(2.0, 2.0), BreakEven::Until { uses: 4.0 });
        assert!(matches!(of(9.0, 0.5), BreakEven::After { high: Some(_), .. }));
    }

    #[test]
    fn a_gain_that_may_be_none_leaves_the_break_even_open() {
        assert_eq!(quotient(10.0, 0.0, 2.0, 0.0), [Some(5.0), Some(5.0)]);
        let [low, high] = quotient(10.0, 0.0, 2.0, 1.5);
        assert!((low.unwrap() - 10.0 / (2.0 + Z * 1.5)).abs() < 1e-9 && high.is_none());
        // By hand: ends are 10 / (2 +- 1.96 * 0.5).
        let [low, high] = quotient(10.0, 0.0, 2.0, 0.5);
        assert!((low.unwrap() - 10.0 / 2.98).abs() < 1e-9 && (high.unwrap() - 10.0 / 1.02).abs() < 1e-9);
    }
}
