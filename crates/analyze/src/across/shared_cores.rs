//! Threads that have less than their core: how often, and what it costs kernels.
//!
//! Beside each sample a probe tells each thread's share of its core. Two threads of a guest on one core get half of it each, and so does
//! one whose core's other hyperthread works for somebody else. Of each case the samples with less than the core are held against those
//! with all of it, so that nothing else differs but the time; all cases together tell by how much. Who is there, another thread of the
//! run or somebody else, is told by samples of one thread alone, and by hand-overs: CPUs that are far apart share no core.

use std::collections::{BTreeMap, HashMap};

use crate::across::host_states::HostStates;
use crate::across::traffic::slope;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::visits::{Visits, measured, payload_bps};
use membound_core::case::Case;
use membound_core::machine::Machine;
use membound_core::record::Measurement;
use membound_core::stats::quantiles::median;

/// Two threads that compute get a half each.
const WHOLE: f64 = 0.75;
/// Samples of a case on either side.
const SAMPLES: usize = 5;
/// Cases that tell a cost together.
const CASES: usize = 4;

/// Samples with a probe that a share needs.
const PROBED: usize = 50;
/// Share of samples, or of visits, that is more than a chance.
pub(crate) const SHARED: f64 = 0.05;

/// How often threads had less than their cores, and what that did to kernels of several.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SharedCores {
    /// Samples of several threads whose cores were probed.
    pub probed: usize,
    /// Those of them in which a thread had less than its core.
    pub shared: usize,
    /// Of one thread alone, whose core no other thread of the run used: samples probed, and those with less than the core.
    pub alone: [usize; 2],
    /// In which share of the samples of several threads one would have less than its core, were each hit as often as one alone.
    pub expected: f64,
    /// The speed of kernels in caches of their own with less than their cores, against that with all of them: [ratio, low, high].
    pub in_caches: Option<[f64; 3]>,
    /// The same of kernels in memory.
    pub in_memory: Option<[f64; 3]>,
}

impl SharedCores {
    pub(crate) fn of(visits: &Visits<'_>, rows: &[BandwidthRow], machine: &Machine) -> SharedCores {
        // Samples probed and with less than the core, by threads.
        let mut counts: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
        // Once a case: hundreds of threads have as many cores to look at.
        let apart = visits.cases.iter().filter(|of_case| !share_cores(machine, &of_case[0].case.cpus)).flatten();
        for (cpus, visit) in apart.filter_map(|visit| Some((&visit.case.cpus, visit.outcome.measured()?))) {
            let [probed, shared] = counts.entry(cpus.len()).or_default();
            for share in visit.samples.shares(cpus, &visits.gauge.undisturbed).into_iter().flatten() {
                *probed += 1;
                *shared += usize::from(share < WHOLE);
            }
        }
        let alone = counts.remove(&1).unwrap_or_default();
        let [probed, shared] = counts.values().fold([0, 0], |all, own| [all[0] + own[0], all[1] + own[1]]);
        let expected = expected(alone, &counts);
        let rows: HashMap<&Case, &BandwidthRow> =
            rows.iter().filter(|row| is_asked(row, machine)).map(|row| (&row.case, row)).collect();
        let ratios: Vec<(&BandwidthRow, f64)> = visits
            .cases
            .iter()
            .filter_map(|of_case| Some((*rows.get(&of_case.first()?.case)?, ratio(of_case, visits)?)))
            .collect();
        let cost = |is_ours: &dyn Fn(&BandwidthRow) -> bool| {
            let own = ratios.iter().filter(|(row, _)| is_ours(row));
            let points: Vec<(f64, f64)> = own.map(|(_, ratio)| (1.0, ratio.ln())).collect();
            (points.len() >= CASES).then(|| slope(&points).map(f64::exp))
        };
        SharedCores {
            probed,
            shared,
            alone,
            expected,
            in_caches: cost(&|row| matches!(row.level.as_deref(), Some("L1" | "L2"))),
            in_memory: cost(&|row| row.is_in_memory(machine)),
        }
    }

    /// Whether so many samples were probed that a share says something.
    pub fn are_probed(&self) -> bool {
        self.probed >= PROBED
    }

    /// Whether threads had less than their cores more often than by chance.
    pub fn are_seen(&self) -> bool {
        self.are_probed() && self.share() > SHARED
    }

    /// In which share of the samples a thread had less than its core.
    pub fn share(&self) -> f64 {
        self.shared as f64 / self.probed.max(1) as f64
    }

    /// The same of one thread alone, where enough of its samples were probed.
    pub fn share_alone(&self) -> Option<f64> {
        let [probed, shared] = self.alone;
        (probed >= PROBED).then(|| shared as f64 / probed as f64)
    }

    /// Whether it is others who use the cores: the run's own threads, on one core, explain less than half of it. They can't where the
    /// host had them far apart, and one thread alone has none beside it.
    pub(crate) fn are_of_others(&self, states: Option<&HostStates>) -> bool {
        let is_alone_alike = self.share_alone().is_some() && self.expected >= self.share() / 2.0;
        self.are_seen() && (is_alone_alike || states.is_some_and(|states| self.are_apart(states)))
    }

    /// Whether the host had the CPUs close together too seldom for half of it.
    pub(crate) fn are_apart(&self, states: &HostStates) -> bool {
        states.close_share() < self.share() / 2.0
    }
}

/// Of n threads, each hit in a share s of the time, one is hit in 1 - (1 - s)^n of it.
fn expected([probed, shared]: [usize; 2], counts: &BTreeMap<usize, [usize; 2]>) -> f64 {
    let kept = 1.0 - shared as f64 / probed.max(1) as f64;
    let hit = |(threads, [probed, _]): (&usize, &[usize; 2])| *probed as f64 * (1.0 - kept.powf(*threads as f64));
    let all: usize = counts.values().map(|[probed, _]| probed).sum();
    counts.iter().map(hit).sum::<f64>() / all.max(1) as f64
}

/// Whether two of these CPUs are hardware threads of one core: each then has a part of it, as was asked for.
pub(crate) fn share_cores(machine: &Machine, cpus: &[u32]) -> bool {
    let other =
        |cpu: &u32| machine.cpu(*cpu).is_some_and(|c| c.core_cpus.iter().any(|id| id != *cpu && cpus.contains(&id)));
    cpus.iter().any(other)
}

/// Rows of several threads in the steady state, each on a core of its own.
fn is_asked(row: &BandwidthRow, machine: &Machine) -> bool {
    row.threads() > 1
        && !share_cores(machine, &row.case.cpus)
        && row.quality.is_measured()
        && row.is_steady()
        && !row.writes_zeros()
}

/// The speed of a case with less than its cores, against that with all of them.
fn ratio(visits: &[&Measurement], all: &Visits<'_>) -> Option<f64> {
    let case = &visits[0].case;
    let visits = measured(visits);
    let usual = all.gauge.usual(case, &visits).unwrap_or(visits);
    let (mut shared, mut whole) = (Vec::new(), Vec::new());
    for visit in usual {
        let shares = visit.samples.shares(&case.cpus, &all.gauge.undisturbed);
        for (bps, share) in payload_bps(visit, all.hz()).into_iter().zip(shares) {
            match share {
                Some(share) if share < WHOLE => shared.push(bps),
                Some(_) => whole.push(bps),
                None => {}
            }
        }
    }
    let is_enough = shared.len().min(whole.len()) >= SAMPLES;
    is_enough.then(|| Some(median(shared)? / median(whole)?))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::record::hand_overs::Distance;

    fn of(alone: [usize; 2], two: [usize; 2]) -> SharedCores {
        let expected = expected(alone, &BTreeMap::from([(2, two)]));
        SharedCores { probed: two[0], shared: two[1], alone, expected, ..SharedCores::default() }
    }

    /// One thread alone is hit half of the time, so one of two is hit 1 - 0.5^2 = 75 % of it.
    #[test]
    fn one_thread_alone_tells_of_others() {
        let others = of([100, 50], [100, 78]);
        assert_eq!((others.expected, others.share_alone()), (0.75, Some(0.5)));
        assert!(others.are_of_others(None));
        // Each of two is hit 19 % of the time by others: less than half of what was seen.
        let own = of([100, 10], [100, 50]);
        assert!((own.expected - 0.19).abs() < 1e-12 && !own.are_of_others(None), "{own:?}");
        let unknown = of([49, 49], [100, 78]);
        assert!(unknown.share_alone().is_none() && !unknown.are_of_others(None));
        assert!(!of([100, 50], [100, 4]).are_of_others(None), "chance");
    }

    /// Close together in 2 of 100 visits, threads can't have shared a core beside half of the samples.
    #[test]
    fn cpus_far_apart_share_no_core() {
        let states =
            |visits| HostStates { hand_over_ns: [10.0, 78.0], visits, usual: Distance::Far, effects: Vec::new() };
        let half = of([0, 0], [100, 50]);
        assert!(half.are_of_others(Some(&states([2, 98]))));
        assert!(!half.are_of_others(Some(&states([40, 60]))), "they may be those that were close");
    }
}
