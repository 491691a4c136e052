//! Lines in flight, by independent chains side by side.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::latency::ladder::Chased;
use crate::rate::{Cost, Rate};
use membound_core::case::Protocol;
use membound_core::in_order::InOrder;
use membound_core::kernel::chase::{Chase, Order};
use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;

/// Share of the greatest rate that the knee has reached.
const KNEE: f64 = 0.95;
/// Numbers of chains that make a curve.
const LEAST_CHAINS: usize = 3;

/// Independent chains by one core.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Parallelism {
    /// Memory kind.
    pub memory: MemoryKind,
    /// Working set.
    pub working_set: Bytes,
    /// What memory moves at once.
    pub line: Bytes,
    /// Chains, nanoseconds from link to link, bytes of lines a second (Little's law: chains x line / latency).
    pub points: Vec<ParallelPoint>,
    /// The fewest chains with 95 % of the greatest rate.
    pub knee: u32,
    /// Greatest rate: bytes a second.
    pub greatest_bps: f64,
    /// Lines in flight at that rate, by Little's law with the latency of a single chain.
    pub lines_in_flight: f64,
    /// Greatest number of chains measured: where the knee is there, there may be more to find.
    pub most_chains: u32,
    /// Whether somebody else used the core in every visit behind that rate, as on its other hyperthread: it may have more to itself.
    pub is_shared: bool,
    /// What streaming loads of one core get from memory, to hold against it; absent where they were not measured.
    pub streaming: Option<Rate>,
}

impl Parallelism {
    /// `at least `, where a core may have more lines in flight than were seen.
    pub(crate) fn least(&self) -> &'static str {
        if self.is_shared || self.knee == self.most_chains { "at least " } else { "" }
    }
}

/// One number of chains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ParallelPoint {
    /// Independent chains.
    pub chains: u32,
    /// Nanoseconds from link to link.
    pub latency_ns: Cost,
    /// Bytes of lines a second.
    pub bps: f64,
}

/// The random chases over lines that differ in their number of chains alone: of several sets the largest.
pub(super) fn parallelism(chases: &[Chased], streaming: Option<Rate>, line: Bytes) -> Option<Parallelism> {
    let is_one = |c: &&Chased| {
        c.chase() == Chase { chains: c.chase().chains, ..Chase::of(Order::Random) }
            && c.case.protocol == Protocol::Steady
    };
    let mut groups: BTreeMap<_, Vec<(&Chased, Cost)>> = BTreeMap::new();
    for chased in chases.iter().filter(is_one) {
        let key = (chased.case.working_set, chased.case.memory, &chased.case.cpus);
        groups.entry(key).or_default().extend(chased.cost().map(|cost| (chased, cost)));
    }
    let group = groups.into_values().rev().find(|group| group.len() >= LEAST_CHAINS)?;
    let point = |&(chased, latency_ns): &(&Chased, Cost)| {
        let chains = chased.chase().chains;
        ParallelPoint { chains, latency_ns, bps: f64::from(chains) * line.0 as f64 / (latency_ns.value() * 1e-9) }
    };
    let mut points: Vec<ParallelPoint> = group.iter().map(point).collect();
    points.order_by_key(|point| point.chains);
    let alone = points.first().filter(|point| point.chains == 1)?.latency_ns.value();
    let greatest = points.iter().max_by(|a, b| a.bps.total_cmp(&b.bps))?;
    let (greatest_bps, is_shared) = (greatest.bps, greatest.latency_ns.undisturbed_share == 0.0);
    Some(Parallelism {
        memory: group[0].0.case.memory.kind,
        working_set: group[0].0.case.working_set,
        line,
        knee: points.iter().find(|point| point.bps >= KNEE * greatest_bps)?.chains,
        lines_in_flight: greatest_bps * alone * 1e-9 / line.0 as f64,
        most_chains: points.last()?.chains,
        is_shared,
        greatest_bps,
        streaming,
        points,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shared_or_not_exhausted_is_a_lower_bound() {
        let of = |knee, is_shared| Parallelism {
            memory: MemoryKind::Thp,
            working_set: Bytes::mib(128),
            line: Bytes(64),
            points: Vec::new(),
            knee,
            greatest_bps: 6.4e9,
            lines_in_flight: 15.0,
            most_chains: 32,
            is_shared,
            streaming: None,
        };
        let least = [of(16, false), of(16, true), of(32, false)].map(|found| found.least());
        assert_eq!(least, ["", "at least ", "at least "]);
    }
}
