//! Memory kinds side by side: what first use costs, what later uses gain, and after how many a dearer kind pays.
//!
//! A use is one copy of a buffer from regular memory. The first one is counted from asking for the memory to the end of
//! the pass, faults and all.

use crate::break_even::{BreakEven, break_even};
use crate::quality::{Quality, is_thp};
use crate::rate::{Cost, Rate};
use membound_core::case::{Case, Protocol};
use membound_core::experiments::kinds::REGULAR;
use membound_core::in_order::distinct;
use membound_core::kernel::{Element, LoadKind, StoreKind};
use membound_core::memory::policy::Policy;
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec, Obtained};
use membound_core::stats::compare;
use membound_core::units::{Bytes, percent};

/// What a first use took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct First {
    /// Seconds, with mapping.
    pub total_s: Cost,
    /// Seconds of mapping.
    pub map_s: f64,
    /// Page faults of the pass.
    pub faults: f64,
}

/// What came of a kernel, as it is handed in: figures of all kernels are worked out elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass<'a> {
    /// What was measured.
    pub case: &'a Case,
    /// How far that can be trusted.
    pub quality: &'a Quality,
    /// Payload bytes per second.
    pub payload_bps: Option<Rate>,
    /// What a first use took.
    pub first_use: Option<First>,
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
    /// What the first pass, without the mapping before it, costs more than a later one, in nanoseconds for each fault. Absent where a driver
    /// makes the pages as it maps them.
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
        self.is_copied() || self.alone.iter().any(Option::is_some)
    }

    /// Whether there are figures of copies to it.
    pub fn is_copied(&self) -> bool {
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

/// The comparison, if some kind's copies were measured.
pub(crate) fn compare(passes: &[Pass<'_>]) -> Option<Kinds> {
    let copies: Vec<&Pass<'_>> = passes.iter().filter(|pass| target(pass).is_some()).collect();
    let first = copies.first()?.case;
    let bytes = Bytes(first.working_set.0 / 2);
    let copied = || copies.iter().filter_map(|copy| target(copy));
    // Of some there may have been no time for a copy.
    let policies: Vec<Policy> = copied().map(|memory| memory.policy).collect();
    let is_touched = |pass: &&Pass<'_>| {
        let Case { memory, cpus, .. } = pass.case;
        way(pass).is_some()
            && is_alone(pass, *memory, bytes)
            && *cpus == first.cpus
            && policies.contains(&memory.policy)
    };
    let touched = passes.iter().filter(is_touched).map(|pass| pass.case.memory);
    let memories: Vec<MemorySpec> = distinct(copied().chain(touched));
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
    let first_use = first.and_then(|first| first.first_use);
    let faults = first_use.map(|first| first.faults);
    let gain = against.and_then(|base| gain(steady?, steady_of(base)?));
    let break_even = against.and_then(|base| {
        let firsts = (first_s?, total(first_of(base)?)?);
        break_even(firsts, (steady_s?, each(steady_of(base)?)?), gain?)
    });
    let lone: Vec<&Pass<'_>> = passes.iter().filter(|pass| is_alone(pass, memory, bytes)).collect();
    let alone = std::array::from_fn(|place| {
        let is_so = |pass: &&&Pass<'_>| way(pass) == Some(place) && pass.quality.is_measured();
        lone.iter().find(is_so)?.payload_bps
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
        fault_ns: first_use.filter(|_| first_s.is_some()).and_then(|first| fault_ns(memory.kind, first, steady_s?)),
        gain,
        against,
        break_even,
        proof,
        holds,
    }
}

/// A driver's pages are there once it has mapped them: what the few faults cost, the time of a pass does not show.
fn fault_ns(kind: MemoryKind, first: First, steady_s: Cost) -> Option<f64> {
    use MemoryKind::{Bar, BarWc, DmaHeap, DmaHeapUncached, Udmabuf};
    let is_of_a_driver = matches!(kind, Bar | BarWc | DmaHeap | DmaHeapUncached | Udmabuf);
    let more = (first.total_s.value() - first.map_s - steady_s.value()) * 1e9;
    (!is_of_a_driver && first.faults >= 1.0).then(|| (more / first.faults).max(0.0))
}

/// Whether it touches a buffer of that kind and size and nothing else.
fn is_alone(pass: &Pass<'_>, memory: MemorySpec, bytes: Bytes) -> bool {
    pass.case.streams.is_empty() && (pass.case.memory, pass.case.working_set) == (memory, bytes)
}

/// Its place in [`ALONE`].
fn way(pass: &Pass<'_>) -> Option<usize> {
    let own = pass.case.variant().filter(|_| pass.case.protocol == Protocol::Steady)?;
    let own = (own.kernel.as_str(), own.store, own.load);
    ALONE.iter().position(|&(_, kernel, store, load)| (kernel, store, load) == own)
}

/// Seconds of the first use.
fn total(first: &Pass<'_>) -> Option<Cost> {
    first.first_use.filter(|_| first.quality.is_measured()).map(|first| first.total_s)
}

/// Seconds of one copy.
fn each(steady: &Pass<'_>) -> Option<Cost> {
    let (rate, payload) = (steady.payload_bps?, steady.case.working_set.0 as f64);
    steady.quality.is_measured().then(|| rate.each(|bps| payload / bps))
}

/// Each visit has pages of its own: where they came to lie moves a figure by several percent, and does not cancel.
fn gain(steady: &Pass<'_>, base: &Pass<'_>) -> Option<[f64; 3]> {
    let [ours, theirs] = [steady, base].map(|pass| pass.batches.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let gain = compare::ratio_of_draws(&ours, &theirs);
    gain[0].is_finite().then_some(steady.payload_bps?.over_as_sure_as(base.payload_bps?, gain))
}

/// How a kind is known to be what it claims; where nothing was measured, the reason. `passes` holds those first in which
/// it stands alone: what was obtained for a copy is that of both streams.
fn proof<'a>(kind: MemoryKind, mut passes: impl Iterator<Item = &'a Pass<'a>> + Clone) -> (String, bool) {
    let measured = passes.clone().filter(|pass| pass.quality.is_measured()).filter_map(|pass| pass.obtained);
    let Some(obtained) = measured.clone().next() else {
        let reason = passes.find_map(|pass| pass.quality.fault());
        return (reason.map_or_else(|| "not measured".into(), |fault| fault.to_string()), false);
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
    words.push(format!("{} in huge pages", percent(share)));
    let keeps = if promises { is_thp(obtained) != Some(false) } else { share == 0.0 };
    (words.join("; "), holds && keeps)
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

    /// 5 ms of which mapping took 1 ms, against 2 ms: 2 ms for 1000 faults are 2 us each.
    #[test]
    fn mapping_is_no_fault() {
        let cost = |seconds: f64| Cost::plain(seconds, seconds, [seconds; 2]);
        let first = First { total_s: cost(5e-3), map_s: 1e-3, faults: 1000.0 };
        let found = fault_ns(MemoryKind::Base, first, cost(2e-3)).unwrap();
        assert!((found - 2000.0).abs() < 1e-6, "{found}");
        assert_eq!(fault_ns(MemoryKind::DmaHeap, First { faults: 16.0, ..first }, cost(2e-3)), None);
        assert_eq!(fault_ns(MemoryKind::Base, First { faults: 0.0, ..first }, cost(2e-3)), None);
    }
}
