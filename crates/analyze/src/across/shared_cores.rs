//! Threads that have less than their core: how often, and what it costs kernels.
//!
//! Beside each sample a probe tells each thread's share of its core. Two threads of a guest on one core get half of it each, and so does
//! one whose core's other hyperthread works for somebody else. Of each case the samples with less than the core are held against those
//! with all of it, so that nothing else differs but the time; all cases together tell by how much.

use std::collections::HashMap;

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

/// How often samples of several threads had less than their cores, and what that did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SharedCores {
    /// Samples of several threads whose cores were probed.
    pub probed: usize,
    /// Those of them in which a thread had less than its core.
    pub shared: usize,
    /// The speed of kernels in caches of their own with less than their cores, against that with all of them: [ratio, low, high].
    pub in_caches: Option<[f64; 3]>,
    /// The same of kernels in memory.
    pub in_memory: Option<[f64; 3]>,
}

impl SharedCores {
    pub(crate) fn of(visits: &Visits<'_>, rows: &[BandwidthRow], machine: &Machine) -> SharedCores {
        let is_of_several = |cpus: &[u32]| cpus.len() > 1 && !share_cores(machine, cpus);
        // Once a case: hundreds of threads have as many cores to look at.
        let of_several = visits.cases.iter().filter(|of_case| is_of_several(&of_case[0].case.cpus)).flatten();
        let all = of_several.filter_map(|visit| Some((&visit.case.cpus, visit.outcome.measured()?)));
        let shares = all.flat_map(|(cpus, visit)| visit.samples.shares(cpus, &visits.gauge.undisturbed));
        let count = |[known, shared]: [usize; 2], share: f64| [known + 1, shared + usize::from(share < WHOLE)];
        let [probed, shared] = shares.flatten().fold([0, 0], count);
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
