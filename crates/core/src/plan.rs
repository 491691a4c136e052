//! A plan: cases, and which of them matter how much.

use std::collections::HashSet;

use crate::case::Case;
use crate::in_order::each_once;

/// Cases in the order in which time goes to them.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// What the summary says, each with its weight there: visited again and again, apart in time, until it is sure.
    pub headline: Vec<(Case, f64)>,
    /// All others. Those of a stage are visited once before any of the next.
    pub stages: Vec<Vec<Case>>,
    /// Cases that a longer budget has room for, and this one has not.
    pub left_out: usize,
}

impl Plan {
    /// A plan of these stages, each case once: where it matters most.
    pub fn new(headline: Vec<(Case, f64)>, stages: Vec<Vec<Case>>) -> Plan {
        let mut seen: HashSet<Case> = HashSet::new();
        let headline = headline.into_iter().filter(|(case, _)| seen.insert(case.clone())).collect();
        let stages =
            stages.into_iter().map(|stage| stage.into_iter().filter(|case| seen.insert(case.clone())).collect());
        Plan { stages: stages.collect(), headline, left_out: 0 }
    }

    /// Cases that all matter alike.
    pub fn of(cases: &[Case]) -> Plan {
        Plan { stages: vec![cases.to_vec()], ..Plan::default() }
    }

    /// All cases, the headline first.
    pub fn cases(&self) -> Vec<Case> {
        each_once(self.headline.iter().map(|(case, _)| case).chain(self.stages.iter().flatten()).cloned())
    }
}
