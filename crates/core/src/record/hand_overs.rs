//! How far apart a host has the CPUs of a guest, told by what handing a line over took beside the samples of each visit.
//!
//! Hardware takes as long for it each time. A host moves the CPUs of a guest: now a line is handed over within one last-level cache,
//! now between two, which takes several times as long.

use std::collections::HashMap;

use crate::case::Case;
use crate::record::Measured;
use crate::stats::quantiles::{median, quantile};
use crate::stats::states;
use crate::units::words;

/// Fewer visits in a state say nothing of it.
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

words! {
    /// Where two CPUs are.
    Distance, "distance" {
        /// Behind one last-level cache.
        Close = "close",
        /// Behind two.
        Far = "far",
    }
}

impl Distance {
    /// The other one.
    pub fn other(self) -> Distance {
        if self == Distance::Close { Distance::Far } else { Distance::Close }
    }
}

/// What each two CPUs took in each visit, in ticks.
#[derive(Debug, Clone, Default)]
pub struct HandOvers(HashMap<[u32; 2], Vec<f64>>);

/// What a visit told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Nothing: its CPUs handed no line over.
    Nothing,
    /// About what the first visit of its CPUs did.
    AsFirst,
    /// Something that may be another state.
    Otherwise,
}

impl HandOvers {
    /// What these visits told.
    pub fn of<'a>(visits: impl Iterator<Item = (&'a Case, &'a Measured)>) -> HandOvers {
        let mut told = HandOvers::default();
        told.note_all(visits);
        told
    }

    /// Takes all of these visits in.
    pub fn note_all<'a>(&mut self, visits: impl Iterator<Item = (&'a Case, &'a Measured)>) {
        visits.for_each(|(case, visit)| _ = self.note(case, visit));
    }

    /// Takes a visit in.
    pub fn note(&mut self, case: &Case, visit: &Measured) -> Told {
        let mut told = Told::Nothing;
        for (cpus, ticks) in pairs(case, visit) {
            let all = self.0.entry(cpus).or_default();
            all.push(ticks);
            let is_off = (ticks / all[0]).ln().abs() > FACTOR_MIN.ln();
            told = if is_off || told == Told::Otherwise { Told::Otherwise } else { Told::AsFirst };
        }
        told
    }

    /// Ticks of the mean hand-over: between those of the states in which the CPUs were.
    pub fn mean(&self) -> Option<f64> {
        let (sum, count) =
            self.0.values().flatten().fold((0.0, 0usize), |(sum, count), ticks| (sum + ticks, count + 1));
        (count > 0).then(|| sum / count as f64)
    }

    /// The pairs of CPUs that were now close, now far apart.
    pub fn distances(&self) -> Distances {
        let states = self.0.iter().filter_map(|(cpus, ticks)| Some((*cpus, two_states(ticks)?)));
        Distances(states.collect())
    }

    /// The distance that most hand-overs were at; close where as many were far apart.
    pub fn usual(&self, distances: &Distances) -> Distance {
        let [close, far] = self.counts(distances);
        if far > close { Distance::Far } else { Distance::Close }
    }

    /// Hand-overs between CPUs that were close, and between CPUs that were far apart.
    pub fn counts(&self, distances: &Distances) -> [usize; 2] {
        let mut counts = [0; 2];
        for (cpus, ticks) in &self.0 {
            let all = ticks.iter().filter_map(|ticks| distances.of_pair(*cpus, *ticks));
            all.for_each(|distance| counts[distance as usize] += 1);
        }
        counts
    }
}

/// Where a host has the CPUs of a guest, if it moved them during a run.
#[derive(Debug, Clone)]
pub struct Moved {
    /// How far apart they can be.
    pub distances: Distances,
    /// How far apart they mostly were.
    pub usual: Distance,
}

impl Moved {
    /// `None` where all visits found them as far apart.
    pub fn seen<'a>(visits: impl Iterator<Item = (&'a Case, &'a Measured)>) -> Option<Moved> {
        let told = HandOvers::of(visits);
        let distances = told.distances();
        distances.ticks()?;
        Some(Moved { usual: told.usual(&distances), distances })
    }

    /// Of visits to a case, those with all CPUs at this distance; `None` where they are too few for an interval.
    pub fn at<'a>(&self, distance: Distance, case: &Case, visits: &[&'a Measured]) -> Option<Vec<&'a Measured>> {
        let is_at = |visit: &&&Measured| self.distances.of(case, visit) == Some(distance);
        let found: Vec<&Measured> = visits.iter().filter(is_at).copied().collect();
        (found.len() >= states::VISITS_MIN).then_some(found)
    }
}

/// The ticks of a hand-over of each two CPUs where they are close, and where they are far apart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distances(HashMap<[u32; 2], [f64; 2]>);

impl Distances {
    /// Of the typical pair. `None` where no pair was in two states.
    pub fn ticks(&self) -> Option<[f64; 2]> {
        let typical = |state: usize| median(self.0.values().map(|ends| ends[state]));
        Some([typical(0)?, typical(1)?])
    }

    /// How far apart the CPUs of a visit were, where that is known of each pair and the same for all.
    pub fn of(&self, case: &Case, visit: &Measured) -> Option<Distance> {
        // What its pairs typically took need not be worked out where none of them was in two states.
        if self.0.is_empty() {
            return None;
        }
        let mut all = pairs(case, visit).map(|(cpus, ticks)| self.of_pair(cpus, ticks));
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }

    fn of_pair(&self, cpus: [u32; 2], ticks: f64) -> Option<Distance> {
        let [close, far] = *self.0.get(&cpus)?;
        Some(if ticks > (close * far).sqrt() { Distance::Far } else { Distance::Close })
    }
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
fn two_states(values: &[f64]) -> Option<[f64; 2]> {
    let mut logs: Vec<f64> = values.iter().copied().map(f64::ln).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_all() {
        assert_eq!(HandOvers(HashMap::from([([0, 1], vec![40.0, 40.0, 220.0])])).mean(), Some(100.0));
        assert_eq!(HandOvers::default().mean(), None);
    }

    #[test]
    fn two_states_are_told_from_one_with_a_tail() {
        let close = (0..70).map(|at| 60.0 + f64::from(at % 7));
        let far = (0..30).map(|at| 380.0 + f64::from(at % 11) * 5.0);
        let found = two_states(&close.clone().chain(far).collect::<Vec<_>>()).unwrap();
        assert!((found[0] - 63.0).abs() < 0.5 && (found[1] - 405.0).abs() < 5.5, "{found:?}");
        // As seen on a guest: on one core, within one last-level cache, between two.
        let three = [(118, 24.0), (839, 41.0), (331, 147.0)];
        let seen =
            three.iter().flat_map(|&(count, ns)| (0..count).map(move |at| ns * (1.0 + f64::from(at % 9) / 100.0)));
        let found = two_states(&seen.collect::<Vec<_>>()).unwrap();
        assert!((found[0] - 42.6).abs() < 1.0 && (found[1] - 152.9).abs() < 2.0, "{found:?}");
        // Visits that others disturbed lie anywhere.
        let tail = (0..10).map(|at| 130.0 * 1.6f64.powi(at));
        assert_eq!(two_states(&close.clone().chain(tail).collect::<Vec<_>>()), None);
        assert_eq!(two_states(&close.clone().collect::<Vec<_>>()), None);
        assert_eq!(two_states(&close.take(10).chain([400.0; 5]).collect::<Vec<_>>()), None, "too few");
        assert_eq!(two_states(&[]), None);
    }
}
