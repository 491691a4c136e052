//! Where a host has the CPUs of a guest: how far apart two of them are, from one visit to the next.
//!
//! Beside each sample of several threads each two of them hand a line to each other. Hardware takes as long for it each time. A host
//! moves the CPUs of a guest: now a line is handed over within one last-level cache, now between two, which takes several times as
//! long. What is shared then is a link to memory, too, so kernels of several threads have two speeds.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::quality::figure;
use crate::rate::Rate;
use crate::visits::{Visits, measured, payload_bps};
use membound_core::case::{Case, Work};
use membound_core::in_order::InOrder;
use membound_core::record::hand_overs::{Distance, Moved};
use membound_core::record::{Measured, Measurement};
use membound_core::stats::states::Better;

/// States in which a kernel differs by no more than this share are the same to it.
const ALIKE: f64 = 0.1;

/// How far apart the CPUs of a guest were.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HostStates {
    /// Nanoseconds of a hand-over where they were close together, and where they were far apart.
    pub hand_over_ns: [f64; 2],
    /// Visits with all pairs close together, and with all far apart.
    pub visits: [usize; 2],
    /// How far apart they mostly were: rows of several threads are of those visits, where a case has enough.
    pub usual: Distance,
    /// What that did to kernels, most first.
    pub effects: Vec<Effect>,
}

/// A kernel in both states.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Effect {
    /// Its row.
    pub row: usize,
    /// Visits in each state.
    pub visits: [usize; 2],
    /// Payload bytes per second with CPUs close together, and with CPUs far apart.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: [Rate; 2],
    /// Speed with CPUs far apart against that with CPUs close together: [ratio, low, high].
    pub factor: [f64; 3],
}

impl HostStates {
    /// Share of the visits with CPUs close together.
    pub fn close_share(&self) -> f64 {
        self.visits[0] as f64 / (self.visits[0] + self.visits[1]).max(1) as f64
    }

    /// What a row comes to in the state that the host was seldom in, and by how many visits, where that is not about the same.
    pub fn seldom(&self, row: usize) -> Option<(Rate, usize)> {
        let differs = |effect: &&Effect| effect.factor[0].ln().abs() > ALIKE.ln_1p();
        let effect = self.effects.iter().find(|effect| effect.row == row).filter(differs)?;
        let seldom = self.usual.other() as usize;
        Some((effect.payload_bps[seldom], effect.visits[seldom]))
    }
}

/// How far apart, if that changed from visit to visit.
pub(crate) fn host_states(visits: &Visits<'_>, rows: &[BandwidthRow]) -> Option<HostStates> {
    let moved = visits.gauge.moved.as_ref()?;
    let mut counts = [0; 2];
    let distances = visits.record.measured().filter_map(|(case, visit)| moved.distances.of(case, visit));
    distances.for_each(|distance| counts[distance as usize] += 1);
    if counts.contains(&0) {
        return None;
    }
    let index: HashMap<&Case, usize> = rows.iter().enumerate().map(|(at, row)| (&row.case, at)).collect();
    let effect = |visits_to_case: &Vec<&Measurement>| {
        let case: &Case = &visits_to_case.first()?.case;
        let row = *index.get(case).filter(|_| matches!(case.work, Work::Kernel(_)))?;
        effect(row, case, &measured(visits_to_case), moved, visits)
    };
    let mut effects: Vec<Effect> = visits.cases.iter().filter_map(effect).collect();
    effects.order_by(|a, b| b.factor[0].ln().abs().total_cmp(&a.factor[0].ln().abs()));
    let hand_over_ns = moved.distances.ticks()?.map(|ticks| ticks / visits.hz() * 1e9);
    Some(HostStates { hand_over_ns, visits: counts, usual: moved.usual, effects })
}

fn effect(row: usize, case: &Case, measured: &[&Measured], moved: &Moved, all: &Visits<'_>) -> Option<Effect> {
    let at = |distance| moved.at(distance, case, measured);
    let (close, far) = (at(Distance::Close)?, at(Distance::Far)?);
    let of = |visits: &[&Measured]| {
        let batches: Vec<Vec<f64>> = visits.iter().map(|visit| payload_bps(visit, all.hz())).collect();
        let shares: Vec<_> =
            visits.iter().map(|visit| visit.samples.shares(&case.cpus, &all.gauge.undisturbed)).collect();
        figure(&batches, &shares, Better::Higher)
    };
    let payload_bps = [of(&close)?, of(&far)?];
    let factor = payload_bps[1].over(payload_bps[0]);
    Some(Effect { row, visits: [close.len(), far.len()], payload_bps, factor })
}
