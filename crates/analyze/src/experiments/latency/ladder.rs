//! Chases and the ladders that they make: random ones over rising working sets.

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::experiments::latency::rows::{LatencyFigures, LatencyRow, link_ns};
use crate::hierarchy::names::SIZES_FOR_LEVELS;
use crate::quality::Sampled;
use crate::row::Row;
use crate::visits::Visits;
use membound_core::case::{Protocol, Work};
use membound_core::kernel::chase::{Chase, Order};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::Measurement;
use membound_core::units::Bytes;

/// A chase's row and what stands behind it.
pub(super) struct Chased {
    pub(super) row: LatencyRow,
    /// Nanoseconds and core clock cycles of each visit.
    pub(super) visits: Vec<[f64; 2]>,
}

impl Deref for Chased {
    type Target = LatencyRow;

    fn deref(&self) -> &LatencyRow {
        &self.row
    }
}

impl Chased {
    pub(super) fn key(&self) -> impl Ord + use<> {
        let Chase { order, stride_bytes, chains, block_bytes } = self.chase();
        (self.case.memory, order, stride_bytes, block_bytes, chains, self.case.cpus.clone(), self.case.protocol)
    }
}

/// The row of a case that is a chase.
pub(crate) fn row_of(visits: &[&Measurement], all: &Visits<'_>) -> Option<LatencyRow> {
    chased(visits, all).map(|chased| chased.row)
}

pub(super) fn chased(visits: &[&Measurement], all: &Visits<'_>) -> Option<Chased> {
    let hz = all.hz();
    let case = &visits[0].case;
    let Work::Chase(chase) = case.work else { return None };
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| link_ns(visit, chase, hz));
    let figures = LatencyFigures {
        node: sampled.node(case),
        level: None,
        last_level: None,
        latency_ns: sampled.cost(),
        latency_cycles: sampled.cycles(hz),
        core_clock_hz: sampled.core_clock(hz),
        obtained: sampled.obtained(),
    };
    let visits = sampled.visits_by_clock(hz);
    Some(Chased { row: Row { case: case.clone(), quality: sampled.quality, figures }, visits })
}

/// A curve for the fit: bytes, median, interval.
pub(super) type Curve = Vec<(Bytes, f64, [f64; 2])>;

/// The random chases over all lines, by memory and CPUs, then by working set. Where a working set was read before each
/// sample, that is its point: what others evict is no property of a cache.
pub(super) fn ladders(chases: &[Chased]) -> BTreeMap<(MemorySpec, &[u32]), BTreeMap<Bytes, &Chased>> {
    let is_ladder = |c: &&Chased| c.chase() == Chase::of(Order::Random) && c.figure().is_some();
    let mut ladders: BTreeMap<_, BTreeMap<Bytes, &Chased>> = BTreeMap::new();
    for chased in chases.iter().filter(is_ladder) {
        let ladder = ladders.entry((chased.case.memory, &chased.case.cpus[..])).or_default();
        let point = ladder.entry(chased.case.working_set).or_insert(chased);
        if chased.case.protocol == Protocol::Refilled {
            *point = chased;
        }
    }
    ladders
}

/// The ladder is the one with the most working sets; of several, in the memory with the largest pages, where translations
/// cost least. Empty, where it is too short.
pub(super) fn ladder_of(chases: &[Chased]) -> Vec<&Chased> {
    let rank =
        |((memory, _), ladder): &((MemorySpec, _), BTreeMap<_, _>)| (ladder.len(), memory.kind != MemoryKind::Base);
    let longest = ladders(chases).into_iter().max_by_key(rank).filter(|(_, ladder)| ladder.len() >= SIZES_FOR_LEVELS);
    longest.map_or(Vec::new(), |(_, ladder)| ladder.into_values().collect())
}
