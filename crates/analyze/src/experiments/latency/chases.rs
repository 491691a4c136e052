//! What the chases of a record tell together: what a load from each level takes, translation, lines in flight, the map over cores.

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::latency::ladder::{Chased, Curve, chased, ladder_of};
use crate::experiments::latency::map::{MapLine, map};
use crate::experiments::latency::parallelism::{Parallelism, parallelism};
use crate::experiments::latency::rows::{LatencyRow, has_matrix, is_node_chase};
use crate::experiments::latency::translation::{TranslationLevel, translation};
use crate::flag::Flag;
use crate::hierarchy::names::{self, Level, LevelLatency, Levels};
use crate::quality::summarize;
use crate::rate::Rate;
use crate::visits::Visits;
use membound_core::case::{Case, Protocol, USUAL_MEMORY};
use membound_core::curves::hierarchy::ladder::{Translation, latencies_between};
use membound_core::curves::hierarchy::model::{Curve as Shared, Touch};
use membound_core::in_order::InOrder;
use membound_core::kernel::chase::{Chase, Order};
use membound_core::machine::Machine;
use membound_core::memory::MemoryKind;
use membound_core::stats::quantiles::{median, quantile};
use membound_core::stats::states::Ends;
use membound_core::units::Bytes;

/// What the chases of a record tell together. Intervals are [value, low, high] with 95 %.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Latency {
    /// One row a chase, by memory, order, stride, chains, CPU and working set.
    pub rows: Vec<LatencyRow>,
    /// Chases by several threads at once: they share what each alone would have, and stand in no ladder.
    pub together: Vec<LatencyRow>,
    /// The levels whose latency was measured, fastest first: by chases in random order in huge pages.
    pub levels: Vec<Level>,
    /// Whether a table of levels stands elsewhere in the report, which has them and the bandwidths.
    pub is_beside_bandwidth: bool,
    /// Translation buffers for base pages, smallest first.
    pub translation: Vec<TranslationLevel>,
    /// Independent chains, if several numbers of them were measured.
    pub parallelism: Option<Parallelism>,
    /// Cores against nodes and page sizes.
    pub map: Vec<MapLine>,
}

/// The chases of a record, before their levels are known.
pub(crate) struct Chases {
    chases: Vec<Chased>,
    together: Vec<Chased>,
    translation: Vec<TranslationLevel>,
    /// Bytes of a huge page.
    huge_page: Bytes,
    /// Bytes that memory moves at once.
    line: Bytes,
}

/// The chases of a record. Those of a matrix of nodes belong to no ladder.
pub(crate) fn chases(visits: &Visits<'_>) -> Chases {
    let record = visits.record;
    let has_matrix = has_matrix(record);
    let is_own = |case: &Case| !(has_matrix && is_node_chase(case));
    let mut chases: Vec<Chased> = visits.rows(|case| chased(case, visits).filter(|chased| is_own(&chased.case)));
    chases.order_by(|a, b| (a.key(), &a.case).cmp(&(b.key(), &b.case)));
    let (chases, together): (Vec<Chased>, Vec<Chased>) =
        chases.into_iter().partition(|chased| chased.case.threads() < 2);
    let machine = &visits.header().machine;
    let pages = &machine.pages;
    let first_cpu = chases.first().and_then(|chase| chase.case.cpus.first().copied()).unwrap_or(0);
    let line = machine.line(first_cpu);
    let translation = translation(&chases, pages.base_bytes(), line);
    Chases { chases, together, translation, huge_page: pages.huge_bytes(), line }
}

impl Chases {
    /// The ladder, as a curve among those that show the levels.
    pub(crate) fn curves(&self) -> Vec<Shared> {
        let ladder = ladder_of(&self.chases);
        let point = |chased: &&Chased| Some((chased.case.working_set, chased.figure()?[0]));
        let points: Vec<(Bytes, f64)> = ladder.iter().filter_map(point).collect();
        if points.is_empty() { Vec::new() } else { vec![Shared { touch: Touch::Chase, points }] }
    }

    /// What a load from each level takes.
    pub(crate) fn measure(&self, levels: &mut Levels) {
        let ladder = ladder_of(&self.chases);
        if ladder.is_empty() {
            return;
        }
        // The range of a few visits is no interval.
        let point = |chased: &&Chased| {
            let [ns, low, high] = chased.figure()?;
            let is_sure = chased.latency_ns?.has_interval();
            Some((chased.case.working_set, ns, if is_sure { [low, high] } else { [ns; 2] }))
        };
        let curve: Curve = ladder.iter().filter_map(point).collect();
        let huge = |level: &TranslationLevel| {
            let reach = Bytes((level.pages * self.huge_page.0 as f64) as u64);
            Translation { latency: level.miss_ns[0], reach }
        };
        let is_huge = ladder[0].case.memory.kind != MemoryKind::Base;
        let translation = self.translation.first().filter(|_| is_huge).map(huge);
        let capacities = levels.iter().filter_map(|level| level.capacity);
        let mut ends: Vec<Bytes> = capacities.chain(levels.translated_beyond.iter().map(|beyond| beyond[0])).collect();
        ends.sort_unstable();
        let rungs = latencies_between(&curve, &ends, translation);
        let mut from = Bytes(0);
        for level in &mut levels.all {
            // A level with a step inside, of translation, has the latency before it.
            let rung = ends.partition_point(|end| *end <= from);
            from = level.capacity.unwrap_or(from);
            let fitted = |ns: [f64; 3]| LevelLatency {
                ns,
                ends: Ends::Ci95,
                cycles: cycles_of(&ladder, level, ns[0]),
                disturbed_ns: None,
            };
            let fitted = rungs.get(rung).copied().flatten().map(fitted);
            level.latency = of_one_chase(&ladder, level).or(fitted);
        }
    }

    /// All that they tell. `streaming`: what loads of one core get from memory, to hold against it.
    pub(crate) fn latency(
        self,
        levels: &mut Levels,
        streaming: Option<Rate>,
        is_beside_bandwidth: bool,
        machine: &Machine,
    ) -> Latency {
        let Chases { mut chases, mut together, translation, line, .. } = self;
        chases.iter_mut().for_each(|chase| chase.row.level = level_of(chase, &levels.all));
        // Threads share caches, and each may have some of its own.
        together.iter_mut().for_each(|chase| chase.row.level = names::level_of(&chase.case, &levels.all, machine));
        // A cache is the last one if nothing but memory comes after it.
        let last = levels.iter().rev().find(|level| level.name != "memory").map(|level| level.name.clone());
        for chase in chases.iter_mut().filter(|chase| chase.level.is_some() && chase.level == last) {
            let is_hit = chase.case.protocol == Protocol::Refilled;
            chase.row.last_level = Some(if is_hit { "hit" } else { "disturbed" });
        }
        disturbed(&mut levels.all, &chases);
        for chase in &mut chases {
            let is_outlier = is_off_level(&chase.row, &levels.all) && !chase.quality.has(Flag::Outliers);
            chase.row.quality.flag([(Flag::Outliers, is_outlier)]);
        }
        Latency {
            translation,
            parallelism: parallelism(&chases, streaming, line),
            map: map(&chases, machine),
            levels: levels.iter().filter(|level| level.latency.is_some()).cloned().collect(),
            is_beside_bandwidth,
            rows: chases.into_iter().map(|chased| chased.row).collect(),
            together: together.into_iter().map(|chased| chased.row).collect(),
        }
    }
}

/// What a load from memory takes by the one chase that was visited more often than all others there together, if there is one. Nothing
/// fits better: memory has no end, and chases just beyond the last cache find some of their lines in it.
fn of_one_chase(ladder: &[&Chased], level: &Level) -> Option<LevelLatency> {
    let is_there = |chased: &&&Chased| level.name == "memory" && chased.case.working_set >= level.from;
    let there = || ladder.iter().filter(is_there);
    let visits: usize = there().map(|chased| chased.quality.rounds).sum();
    let most = there().max_by_key(|chased| chased.quality.rounds)?;
    let stands = most.quality.is_of_headline() && 2 * most.quality.rounds > visits;
    let figure = most.latency_ns.filter(|_| stands)?;
    let (ns, ends) = (figure.interval(), figure.capability.ends);
    Some(LevelLatency { ns, ends, cycles: most.latency_cycles, disturbed_ns: None })
}

/// Core clock cycles of a load that takes so many nanoseconds. Memory takes fewer the lower the clock is, or seems to be beside a busy
/// hyperthread, so there the visits say nothing more.
fn cycles_of(ladder: &[&Chased], level: &Level, ns: f64) -> Option<f64> {
    let of_visits = || cycles(ladder.iter().map(|chased| (chased.case.working_set, &chased.visits[..])), level, ns);
    let by_clock = || median(ladder.iter().filter_map(|chased| chased.core_clock_hz)).map(|hz| ns * 1e-9 * hz);
    level.capacity.and_then(|_| of_visits()).or_else(by_clock)
}

/// Cycles of a load from a cache, by the visits to its plateau or by those to all that fits in, whichever are faster. Nanoseconds say
/// which of them were undisturbed, those near the least tenth, and of their cycles it is the median: what falls into a reading of the
/// clock makes cycles too few. A set at the edge of the level before is partly in that one: what takes far less than the level's own
/// `ns` is not of it.
fn cycles<'a>(ladder: impl Iterator<Item = (Bytes, &'a [[f64; 2]])> + Clone, level: &Level, ns: f64) -> Option<f64> {
    const NEAR: f64 = 1.03;
    const OF_LEVEL: f64 = 0.85;
    let fastest = |to: Bytes| {
        let inside = ladder.clone().filter(|(set, _)| (level.from..=to).contains(set));
        let visits = inside.flat_map(|(_, visits)| visits.iter().copied());
        let mut visits: Vec<[f64; 2]> = visits.filter(|[of_visit, _]| *of_visit >= OF_LEVEL * ns).collect();
        visits.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]));
        let ns: Vec<f64> = visits.iter().map(|[ns, _]| *ns).collect();
        let tenth = (!ns.is_empty()).then(|| quantile(&ns, 0.1))?;
        let near = visits.iter().take_while(|[ns, _]| *ns <= NEAR * tenth);
        Some((tenth, median(near.map(|[_, cycles]| *cycles))?))
    };
    let found = [level.to, level.capacity.unwrap_or(level.to)].into_iter().filter_map(fastest);
    found.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, cycles)| cycles)
}

/// The level that a chase's lines lie in.
fn level_of(chased: &Chased, levels: &[Level]) -> Option<String> {
    let footprint = chased.footprint();
    let last = levels.len().saturating_sub(1);
    let inside = |(index, level): &(usize, &Level)| {
        (footprint >= level.from.0 || *index == 0) && (footprint <= level.to.0 || *index == last)
    };
    levels.iter().enumerate().find(inside).map(|(_, level)| level.name.clone())
}

/// Whether a chase as the ladder's are takes a time that is none of its level's.
fn is_off_level(row: &LatencyRow, levels: &[Level]) -> bool {
    const OFF: f64 = 3.0;
    let is_of_ladder = row.chase() == Chase::of(Order::Random) && row.case.memory.kind == USUAL_MEMORY.kind;
    let level = levels.iter().find(|level| Some(&level.name) == row.level.as_ref()).filter(|_| is_of_ladder);
    let Some((latency, cost)) = level.and_then(|level| level.latency).zip(row.cost()) else { return false };
    let disturbed = latency.disturbed_ns.filter(|_| row.last_level == Some("disturbed"));
    let factor = cost.value() / disturbed.unwrap_or(latency.ns)[0];
    !(1.0 / OFF..=OFF).contains(&factor)
}

/// Beside a level whose plateau is of hits: what the same working sets cost as others leave them. Each set is held against itself, since
/// they differ by more than that, and evictions make none faster.
fn disturbed(levels: &mut [Level], chases: &[Chased]) {
    let is_one = |c: &&Chased| c.chase() == Chase::of(Order::Random) && c.case.memory.kind == USUAL_MEMORY.kind;
    for level in levels {
        let Some(latency) = &mut level.latency else { continue };
        let of_level = |word: &'static str| {
            let is_there = |c: &&Chased| c.last_level == Some(word) && c.level.as_ref() == Some(&level.name);
            chases.iter().filter(is_one).filter(is_there).filter_map(|c| Some((&c.case, c.latency_ns?.experienced)))
        };
        let ratio = |(case, disturbed): (&Case, f64)| {
            let twin = Case { protocol: Protocol::Refilled, ..case.clone() };
            of_level("hit").find(|(case, _)| **case == twin).map(|(_, hit)| disturbed / hit)
        };
        let ratios: Vec<f64> = of_level("disturbed").filter_map(ratio).collect();
        let slower = summarize(&[ratios]).map(|found| [found.median, found.ci95[0], found.ci95[1]]);
        latency.disturbed_ns = slower.map(|slower| slower.map(|ratio| latency.ns[0] * ratio.max(1.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::latency::rows::LatencyFigures;
    use crate::quality::{Quality, Status};
    use crate::rate::Cost;
    use crate::row::Row;
    use membound_core::case::{USUAL_MEMORY, Work};
    use membound_core::memory::MemorySpec;

    /// 84.3 ns among sets of an L2 that takes 5.24 ns; 15 is less than three times that. Other orders have times of their own.
    #[test]
    fn a_chase_far_off_its_level_is_an_outlier() {
        let latency = Some(LevelLatency { ends: Ends::Ci95, ns: [5.24; 3], cycles: None, disturbed_ns: None });
        let levels = [Level { name: "L2".into(), latency, ..Level::default() }];
        let row = |order, ns: f64| {
            let case =
                Case::new(Work::Chase(Chase::of(order)), MemorySpec::of(USUAL_MEMORY.kind), vec![0], Bytes::kib(724));
            let figures = LatencyFigures {
                node: None,
                level: Some("L2".into()),
                last_level: None,
                latency_ns: Some(Cost::plain(ns, ns, [ns; 2])),
                latency_cycles: None,
                core_clock_hz: None,
                obtained: None,
            };
            let quality = Quality { samples: 9, rounds: 5, outcome: Status::Measured, reason: None, flags: Vec::new() };
            Row { case, quality, figures }
        };
        let is_off = |order, ns| is_off_level(&row(order, ns), &levels);
        assert!(is_off(Order::Random, 84.3) && is_off(Order::Random, 1.7));
        assert!(!is_off(Order::Random, 15.0) && !is_off(Order::Forward, 84.3));
    }

    /// As on a guest with somebody on the other hyperthread: most visits are disturbed, and the case that is visited most lies beyond the
    /// part of the plateau that is sure.
    #[test]
    fn cycles_are_of_all_that_fits() {
        let level =
            Level { from: Bytes::kib(4), to: Bytes::kib(18), capacity: Some(Bytes::kib(34)), ..Level::default() };
        // At 2 GHz, but one clock was read too low.
        let of = |cycles: &[f64]| cycles.iter().map(|cycles| [cycles / 2.0, *cycles]).collect::<Vec<_>>();
        let headline = [of(&[4.05; 6]), vec![[4.05 / 2.0, 2.6]], of(&[4.9; 11])].concat();
        let ladder = [(8, of(&[4.22, 4.25])), (24, headline), (32, of(&[8.5, 9.7])), (46, of(&[11.0, 3.5]))];
        let visits = || ladder.iter().map(|(kib, visits)| (Bytes::kib(*kib), &visits[..]));
        assert_eq!(cycles(visits(), &level, 2.0), Some(4.05));
        // A plateau without disturbance is not worse for what lies beyond it.
        let ladder = [(8, of(&[4.0; 2])), (32, of(&[9.0; 30]))];
        let apart = ladder.iter().map(|(kib, visits)| (Bytes::kib(*kib), &visits[..]));
        assert_eq!(cycles(apart, &level, 2.0), Some(4.0));
        assert_eq!(cycles(visits().skip(3), &level, 2.0), None);
    }

    /// "L3 37.0 ns, 58.3 cycles" of some 3 GHz: the set just beyond the second level's end was for the most part in it.
    #[test]
    fn cycles_are_of_no_set_that_the_level_before_partly_holds() {
        let [from, to, end] = [2176, 12 << 10, 40 << 10].map(Bytes::kib);
        let level = Level { from, to, capacity: Some(end), ..Level::default() };
        let ladder =
            [(2233, vec![[27.9, 58.3]]), (2896, vec![[36.5, 108.5], [35.8, 106.3]]), (4096, vec![[36.0, 107.6]])];
        let visits = || ladder.iter().map(|(kib, visits)| (Bytes::kib(*kib), &visits[..]));
        assert_eq!(cycles(visits(), &level, 37.0), Some(107.6));
        assert_eq!(cycles(visits().take(1), &level, 37.0), None);
    }
}
