//! Memory kinds side by side: what first use costs, what later uses gain, and after how many a dearer kind pays.
//!
//! A use is one copy of a buffer from regular memory. The first one is counted from asking for the memory to the end of
//! the pass, faults and all; n uses take t_first + (n - 1) t_steady. Two kinds are level after
//! `n = 1 + (difference of first uses) / (gain of each later use)`. Both differences have an interval, and that of
//! their quotient is Fieller's (1954): it is open where the gain might be none.

use crate::quality::Quality;
use crate::rate::{Cost, Rate};
use membound_core::case::{Case, Protocol};
use membound_core::experiments::kinds::REGULAR;
use membound_core::kernel::{Element, LoadKind, StoreKind};
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::stats::compare;
use membound_core::units::{Bytes, percent};

/// What came of a kernel, as it is handed in: figures of all kernels are worked out elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass<'a> {
    /// What was measured.
    pub case: &'a Case,
    /// How far that can be trusted.
    pub quality: &'a Quality,
    /// Payload bytes per second.
    pub payload_bps: Option<Rate>,
    /// Seconds of a first use, and its page faults.
    pub first_use: Option<(Cost, f64)>,
    /// Memory obtained.
    pub obtained: Option<&'a Obtained>,
    /// Payload B/s of each sample of each visit.
    pub batches: &'a [Vec<f64>],
}

/// Memory kinds side by side: copying a buffer to each from regular memory.
#[derive(Debug, Clone, PartialEq)]
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

/// One kind of memory as a buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// What was asked for.
    pub memory: MemorySpec,
    /// Seconds of the first use: from asking for the memory to the end of the first copy.
    pub first_s: Option<Cost>,
    /// Seconds of each later copy.
    pub steady_s: Option<Cost>,
    /// Samples of the first use, or where there are none, of later ones.
    pub samples: usize,
    /// Payload bytes per second of each way of touching it alone, in the order of [`ALONE`].
    pub alone: [Option<Rate>; ALONE.len()],
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
    /// How it is known to be of this kind, in words; or why it could not be measured.
    pub proof: String,
    /// Whether it is what it claims; false also where it was not obtained.
    pub holds: bool,
}

impl Kind {
    /// Whether there are figures of it.
    pub fn is_measured(&self) -> bool {
        self.first_s.is_some() || self.steady_s.is_some()
    }
}

/// Ways of touching a kind alone: name in tables, kernel, store kind, load kind.
pub const ALONE: [(&str, &str, StoreKind, LoadKind); 5] = [
    ("store", "store", StoreKind::Regular, LoadKind::Regular),
    ("store nt", "store", StoreKind::Nt, LoadKind::Regular),
    ("store masked", "store", StoreKind::NtMasked, LoadKind::Regular),
    ("load", "load", StoreKind::Regular, LoadKind::Regular),
    ("load nt", "load", StoreKind::Regular, LoadKind::Nt),
];

/// From which use on a kind is cheaper in sum, by t_first + (n - 1) t_steady.
#[derive(Debug, Clone, Copy, PartialEq)]
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
pub(crate) fn compare(passes: &[Pass<'_>]) -> Option<Kinds> {
    let copies: Vec<&Pass<'_>> = passes.iter().filter(|pass| target(pass).is_some()).collect();
    let first = copies.first()?.case;
    let mut memories: Vec<MemorySpec> = copies.iter().filter_map(|copy| target(copy)).collect();
    memories.sort_unstable();
    memories.dedup();
    let bytes = Bytes(first.working_set.0 / 2);
    let kinds = memories.iter().map(|&memory| kind(passes, memory, base(memory, &memories), bytes)).collect();
    Some(Kinds { bytes, element: first.variant()?.element, threads: first.threads(), kinds })
}

/// The kind that a copy goes to, where only the target has a kind of its own.
fn target(pass: &Pass<'_>) -> Option<MemorySpec> {
    match &pass.case.streams[..] {
        [only] if only.stream == "a" && pass.case.variant()?.kernel == "copy" => Some(only.memory),
        _ => None,
    }
}

/// What a kind is held against: memory types against write-back in the same micro-VM, the others against the heap.
fn base(memory: MemorySpec, all: &[MemorySpec]) -> Option<MemorySpec> {
    let write_back = MemorySpec { kind: MemoryKind::Wb, ..memory };
    let base = if memory.kind.is_memory_type() && all.contains(&write_back) { write_back } else { REGULAR };
    (memory != base && all.contains(&base)).then_some(base)
}

fn kind(passes: &[Pass<'_>], memory: MemorySpec, against: Option<MemorySpec>, bytes: Bytes) -> Kind {
    let of = |memory: MemorySpec, protocol: Protocol| {
        passes.iter().find(|pass| target(pass) == Some(memory) && pass.case.protocol == protocol)
    };
    let first_of = |memory: MemorySpec| of(memory, Protocol::FirstUse);
    // A cold file is warm once it was used.
    let warm = |memory: MemorySpec| MemorySpec { kind: memory.kind.warm(), ..memory };
    let steady_of = |memory: MemorySpec| of(warm(memory), Protocol::Steady);
    let (first, steady) = (first_of(memory), steady_of(memory));
    let (first_s, steady_s) = (first.and_then(total), steady.and_then(each));
    let faults = first.and_then(|first| first.first_use).map(|(_, faults)| faults);
    let more = first_s.zip(steady_s).map(|(first, steady)| (first.value() - steady.value()) * 1e9);
    let gain = against.and_then(|base| gain(steady?, steady_of(base)?));
    let break_even = against.and_then(|base| {
        let firsts = (first_s?, total(first_of(base)?)?);
        break_even(firsts, (steady_s?, each(steady_of(base)?)?), gain?)
    });
    let is_alone =
        |pass: &Pass<'_>| pass.case.streams.is_empty() && (pass.case.memory, pass.case.working_set) == (memory, bytes);
    let lone: Vec<&Pass<'_>> = passes.iter().filter(|pass| is_alone(pass)).collect();
    let alone = ALONE.map(|(_, kernel, store, load)| {
        let steady = lone.iter().filter(|pass| pass.case.protocol == Protocol::Steady && pass.quality.is_measured());
        let is_so = |pass: &&&Pass<'_>| {
            pass.case.variant().is_some_and(|v| (v.kernel.as_str(), v.store, v.load) == (kernel, store, load))
        };
        steady.clone().find(is_so)?.payload_bps
    });
    let (proof, holds) =
        proof(memory.kind, lone.into_iter().chain(passes.iter().filter(|pass| target(pass) == Some(memory))));
    Kind {
        memory,
        first_s,
        steady_s,
        samples: first.or(steady).map_or(0, |pass| pass.quality.samples),
        alone,
        faults,
        fault_ns: more.zip(faults).filter(|(_, faults)| *faults >= 1.0).map(|(more, faults)| (more / faults).max(0.0)),
        gain,
        against,
        break_even,
        proof,
        holds,
    }
}

/// Seconds of the first use.
fn total(first: &Pass<'_>) -> Option<Cost> {
    first.first_use.filter(|_| first.quality.is_measured()).map(|(total, _)| total)
}

/// Seconds of one copy.
fn each(steady: &Pass<'_>) -> Option<Cost> {
    let (rate, payload) = (steady.payload_bps?, steady.case.working_set.0 as f64);
    steady.quality.is_measured().then(|| rate.each(|bps| payload / bps))
}

/// Each visit has pages of its own: where they came to lie moves a figure by several percent, and does not cancel.
fn gain(steady: &Pass<'_>, base: &Pass<'_>) -> Option<[f64; 3]> {
    let [steady, base] = [steady, base].map(|pass| pass.batches.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let gain = compare::ratio_of_draws(&steady, &base);
    gain[0].is_finite().then_some(gain)
}

fn standard_error(low: f64, high: f64) -> f64 {
    (high - low) / (2.0 * Z)
}

/// From (this kind's, the base's) first and later uses, and this kind's speed against the base's.
fn break_even(first: (Cost, Cost), steady: (Cost, Cost), gain: [f64; 3]) -> Option<BreakEven> {
    let error = |cost: Cost| standard_error(cost.ends()[0], cost.ends()[1]);
    let dearer = first.0.value() - first.1.value();
    let dearer_error = error(first.0).hypot(error(first.1));
    let share = 1.0 - 1.0 / gain[0];
    let saved = steady.1.value() * share;
    let share_error = standard_error(1.0 - 1.0 / gain[1], 1.0 - 1.0 / gain[2]);
    let saved_error = (steady.1.value() * share_error).hypot(share * error(steady.1));
    let is_dearer = dearer > Z * dearer_error;
    let is_cheaper = dearer < -Z * dearer_error;
    let is_faster = gain[1] > 1.0;
    let is_slower = gain[2] < 1.0;
    let uses = 1.0 + dearer / saved;
    Some(match (is_dearer, is_cheaper) {
        (true, _) if is_faster => {
            let [low, high] = quotient(dearer, dearer_error, saved, saved_error);
            // By Fieller's formula and by division the same number may differ in its last digit.
            BreakEven::After { uses, low: (1.0 + low?.max(0.0)).min(uses), high: high.map(|h| (1.0 + h).max(uses)) }
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

/// How a kind is known to be what it claims; where nothing was measured, the reason. `passes` holds those first in which
/// it stands alone: what was obtained for a copy is that of both streams.
fn proof<'a>(kind: MemoryKind, mut passes: impl Iterator<Item = &'a Pass<'a>> + Clone) -> (String, bool) {
    let measured = passes.clone().filter(|pass| pass.quality.is_measured()).filter_map(|pass| pass.obtained);
    let Some(obtained) = measured.clone().next() else {
        let reason = passes.find_map(|pass| pass.quality.fault());
        return (reason.unwrap_or_else(|| "not measured".into()), false);
    };
    // A promise that was not kept in one row is not kept.
    let broken = measured.flat_map(|obtained| &obtained.proofs);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(value: f64) -> Cost {
        Cost::plain(value, value, [value; 2])
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
        let loose = |value: f64| Cost::plain(value, value, [value * 0.9, value * 1.1]);
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
