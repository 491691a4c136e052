//! Where a host has the CPUs of a guest: how far apart two of them are, from one visit to the next.
//!
//! Beside each sample of several threads each two of them hand a line to each other. Hardware takes as long for it each time. A host
//! moves the CPUs of a guest: now a line is handed over within one last-level cache, now between two, which takes several times as
//! long. What is shared then is a link to memory, too, so kernels of several threads have two speeds.

use membound_core::in_order::InOrder;
use std::collections::HashMap;

use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::quality::states_of;
use crate::visits::{Visits, measured};
use membound_core::case::{Case, Work};
use membound_core::record::Measured;
use membound_core::stats::quantiles::{median, quantile};
use membound_core::stats::states::{Better, Ends};

/// Fewer visits than this in a state say nothing of it.
const VISITS_MIN: usize = 3;
/// Fewer visits of a pair of CPUs show no states,
const PAIR_MIN: usize = 20;
/// and a state that fewer than this share of them were in may be chance.
const SHARE_MIN: f64 = 0.01;
/// Far apart takes this factor longer at least,
const FACTOR_MIN: f64 = 2.0;
/// hardly any hand-over lies between the two (from nine tenths of those that are close to a tenth of the others),
const VALLEY_MIN: f64 = 1.5;
/// and those of CPUs far apart agree, by the middle 80 %: what others disturbed lies anywhere. CPUs that are close may be on one core or
/// on two.
const FAR_WITHIN: f64 = 1.5;

/// How far apart the CPUs of a guest were.
#[derive(Debug, Clone, PartialEq)]
pub struct HostStates {
    /// Nanoseconds of a hand-over where they were close together, and where they were far apart.
    pub hand_over_ns: [f64; 2],
    /// Visits with all pairs close together, and with all far apart.
    pub visits: [usize; 2],
    /// What that did to kernels, most first.
    pub effects: Vec<Effect>,
}

/// A kernel in both states.
#[derive(Debug, Clone, PartialEq)]
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
    let mut told: HashMap<[u32; 2], Vec<f64>> = HashMap::new();
    for (case, visit) in all(visits) {
        for (cpus, ticks) in pairs(case, visit) {
            told.entry(cpus).or_default().push(ticks);
        }
    }
    let states: HashMap<[u32; 2], [f64; 2]> =
        told.into_iter().filter_map(|(cpus, ticks)| Some((cpus, two_states(ticks)?))).collect();
    if states.is_empty() {
        return None;
    }
    let class = |case: &Case, visit: &Measured| {
        let of_pair = |(cpus, ticks): ([u32; 2], f64)| {
            let [close, far] = *states.get(&cpus)?;
            Some(usize::from(ticks > (close * far).sqrt()))
        };
        let mut classes = pairs(case, visit).map(of_pair);
        let first = classes.next()??;
        classes.all(|class| class == Some(first)).then_some(first)
    };
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
    let typical = |state: usize| median(states.values().map(|ends| ends[state] / visits.hz() * 1e9));
    Some(HostStates { hand_over_ns: [typical(0)?, typical(1)?], visits: counts, effects })
}

fn all<'a>(visits: &'a Visits<'_>) -> impl Iterator<Item = (&'a Case, &'a Measured)> {
    visits.cases.iter().flat_map(|case| measured(case).into_iter().map(|visit| (&case[0].case, visit)))
}

/// Each two CPUs that handed a line over, and the ticks that it typically took.
fn pairs<'a>(case: &'a Case, visit: &'a Measured) -> impl Iterator<Item = ([u32; 2], f64)> + 'a {
    let columns = visit.samples.probes.iter().flat_map(|probes| &probes.hand_over_ticks);
    case.cpus.chunks_exact(2).zip(columns).filter_map(|(cpus, column)| {
        let typical = median(column.iter().filter(|ticks| **ticks > 0).map(|ticks| f64::from(*ticks)))?;
        Some(([cpus[0], cpus[1]], typical))
    })
}

/// The middle of the low and of the high values, where they fall into two groups: cut so that what is within them differs least
/// (Otsu, 1979), in logarithms. `None` where they are one group, or too few.
fn two_states(values: Vec<f64>) -> Option<[f64; 2]> {
    let mut logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
    logs.sort_unstable_by(f64::total_cmp);
    let least = VISITS_MIN.max((SHARE_MIN * logs.len() as f64).ceil() as usize);
    let sums: Vec<f64> = logs
        .iter()
        .scan(0.0, |sum, log| {
            *sum += log;
            Some(*sum)
        })
        .collect();
    let all = *sums.last().filter(|_| logs.len() >= PAIR_MIN)?;
    let between = |cut: &usize| {
        let (low, high) = (*cut as f64, (logs.len() - cut) as f64);
        low * high * ((all - sums[cut - 1]) / high - sums[cut - 1] / low).powi(2)
    };
    let cut = (least..=logs.len() - least).max_by(|a, b| between(a).total_cmp(&between(b)))?;
    let (low, high) = logs.split_at(cut);
    let [middle, far] = [quantile(low, 0.5), quantile(high, 0.5)];
    let valley = quantile(high, 0.1) - quantile(low, 0.9);
    let within = quantile(high, 0.9) - quantile(high, 0.1);
    let are_two = far - middle > FACTOR_MIN.ln() && valley > VALLEY_MIN.ln() && within < FAR_WITHIN.ln();
    are_two.then(|| [middle, far].map(f64::exp))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_states_are_told_from_one_with_a_tail() {
        let close = (0..70).map(|at| 60.0 + f64::from(at % 7));
        let far = (0..30).map(|at| 380.0 + f64::from(at % 11) * 5.0);
        let found = two_states(close.clone().chain(far).collect()).unwrap();
        assert!((found[0] - 63.0).abs() < 0.5 && (found[1] - 405.0).abs() < 5.5, "{found:?}");
        // As seen on a guest: on one core, within one last-level cache, between two.
        let three = [(118, 24.0), (839, 41.0), (331, 147.0)];
        let seen =
            three.iter().flat_map(|&(count, ns)| (0..count).map(move |at| ns * (1.0 + f64::from(at % 9) / 100.0)));
        let found = two_states(seen.collect()).unwrap();
        assert!((found[0] - 42.6).abs() < 1.0 && (found[1] - 152.9).abs() < 2.0, "{found:?}");
        // Visits that others disturbed lie anywhere.
        let tail = (0..10).map(|at| 130.0 * 1.6f64.powi(at));
        assert_eq!(two_states(close.clone().chain(tail).collect()), None);
        assert_eq!(two_states(close.clone().collect()), None);
        assert_eq!(two_states(close.take(10).chain([400.0; 5]).collect()), None, "too few");
        assert_eq!(two_states(Vec::new()), None);
    }
}
