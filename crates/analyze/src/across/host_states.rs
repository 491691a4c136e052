//! Where a host has the CPUs of a guest: how far apart two of them are, from one visit to the next.
//!
//! Beside each sample of several threads each two of them hand a line to each other. Hardware takes as long for it each time. A host
//! moves the CPUs of a guest: now a line is handed over within one last-level cache, now between two, which takes several times as
//! long. What is shared then is a link to memory, too, so kernels of several threads have two speeds.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::quality::states_of;
use crate::visits::{Visits, measured};
use membound_core::case::{Case, Work};
use membound_core::in_order::InOrder;
use membound_core::record::Measured;
use membound_core::record::hand_overs::{HandOvers, VISITS_MIN};
use membound_core::stats::states::{Better, Ends};

/// How far apart the CPUs of a guest were.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HostStates {
    /// Nanoseconds of a hand-over where they were close together, and where they were far apart.
    pub hand_over_ns: [f64; 2],
    /// Visits with all pairs close together, and with all far apart.
    pub visits: [usize; 2],
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
    /// Speed with CPUs close together, payload bytes per second.
    pub close_bps: f64,
    /// Speed with CPUs far apart against that: [ratio, low, high].
    pub factor: [f64; 3],
}

impl HostStates {
    /// Share of the visits with CPUs close together.
    pub fn close_share(&self) -> f64 {
        self.visits[0] as f64 / (self.visits[0] + self.visits[1]).max(1) as f64
    }
}

/// How far apart, if that changed from visit to visit.
pub(crate) fn host_states(visits: &Visits<'_>, rows: &[BandwidthRow]) -> Option<HostStates> {
    let mut told = HandOvers::default();
    all(visits).for_each(|(case, visit)| _ = told.note(case, visit));
    let distances = told.distances();
    let ticks = distances.ticks()?;
    let class = |case: &Case, visit: &Measured| distances.of(case, visit).map(|distance| distance as usize);
    let mut counts = [0; 2];
    all(visits).filter_map(|(case, visit)| class(case, visit)).for_each(|class| counts[class] += 1);
    if counts.contains(&0) {
        return None;
    }
    let index: HashMap<&Case, usize> = rows.iter().enumerate().map(|(at, row)| (&row.case, at)).collect();
    let effect = |case: &Vec<_>| {
        let measured = measured(case);
        let of: &Case = &case.first()?.case;
        let classes: Vec<Option<usize>> = measured.iter().map(|visit| class(of, visit)).collect();
        let row = *index.get(of).filter(|_| matches!(of.work, Work::Kernel(_)))?;
        effect(row, &rows[row], &classes)
    };
    let mut effects: Vec<Effect> = visits.cases.iter().filter_map(effect).collect();
    effects.order_by(|a, b| b.factor[0].ln().abs().total_cmp(&a.factor[0].ln().abs()));
    let hand_over_ns = ticks.map(|ticks| ticks / visits.hz() * 1e9);
    Some(HostStates { hand_over_ns, visits: counts, effects })
}

fn all<'a>(visits: &'a Visits<'_>) -> impl Iterator<Item = (&'a Case, &'a Measured)> {
    visits.cases.iter().flat_map(|case| measured(case).into_iter().map(|visit| (&case[0].case, visit)))
}

fn effect(at: usize, row: &BandwidthRow, classes: &[Option<usize>]) -> Option<Effect> {
    let of_class = |class: usize| -> Vec<Vec<f64>> {
        let own = row.batches.iter().zip(classes).filter(|(_, found)| **found == Some(class));
        own.map(|(batch, _)| batch.clone()).collect()
    };
    let batches = [0, 1].map(of_class);
    let visits = batches.each_ref().map(Vec::len);
    if visits.iter().any(|visits| *visits < VISITS_MIN) {
        return None;
    }
    let [close, far] = batches.map(|batches| states_of(&batches, &[], Better::Higher).map(|states| states.capability));
    let (close, far) = (close?, far?);
    let is_sure = close.ends == Ends::Ci95 && far.ends == Ends::Ci95;
    let ends = if is_sure { [far.low / close.high, far.high / close.low] } else { [far.value / close.value; 2] };
    let factor = [far.value / close.value, ends[0], ends[1]];
    Some(Effect { row: at, visits, close_bps: close.value, factor })
}
