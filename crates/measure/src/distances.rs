//! How far apart the CPUs of several threads are while a run goes on: a state of the host that a run may meet seldom.

use membound_core::case::Case;
use membound_core::record::Outcome;
use membound_core::record::hand_overs::{Distance, Distances, HandOvers, Told};

/// A state of the host that fewer visits or hand-overs than this share met is rare.
pub(crate) const RARE: f64 = 0.4;
/// Distances are worked out anew when there are more visits by this factor; at once, where one tells of another state and no two
/// are known, after a few more: a host may be in it for a second.
const ANEW: f64 = 1.1;
const FEW: usize = 3;

/// How far apart the CPUs of a visit were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// Nothing tells: one thread, or no hand-over.
    Nothing,
    /// All visits so far were alike, or too few.
    Unknown,
    /// Some were close and some far apart, or at neither distance.
    Mixed,
    /// All were at this distance.
    At(Distance),
}

/// What the visits of a run told so far.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    told: HandOvers,
    known: Distances,
    /// Visits, those when distances were worked out last, and those when they are next.
    noted: usize,
    worked_out: usize,
    next: usize,
    /// Hand-overs at either distance.
    counts: [usize; 2],
}

impl Watch {
    /// Takes a visit in, and says how far apart its CPUs were.
    pub fn note(&mut self, case: &Case, outcome: &Outcome) -> Met {
        let Some(visit) = outcome.measured() else { return Met::Nothing };
        let told = self.told.note(case, visit);
        if told == Told::Nothing {
            return Met::Nothing;
        }
        self.noted += 1;
        let is_news = told == Told::Otherwise && self.known.ticks().is_none() && self.noted >= self.worked_out + FEW;
        if self.noted >= self.next || is_news {
            self.worked_out = self.noted;
            self.known = self.told.distances();
            self.counts = self.told.counts(&self.known);
            self.next = (self.noted as f64 * ANEW) as usize + 1;
        }
        match self.known.of(case, visit) {
            Some(distance) => Met::At(distance),
            None if self.known.ticks().is_none() => Met::Unknown,
            None => Met::Mixed,
        }
    }

    /// The distance that CPUs were seldom at, if they were at both.
    pub fn rare(&self) -> Option<Distance> {
        let [close, far] = self.counts;
        let is_few = |count: usize| count > 0 && (count as f64) < RARE * (close + far) as f64;
        match (is_few(close), is_few(far)) {
            (true, _) => Some(Distance::Close),
            (_, true) => Some(Distance::Far),
            _ => None,
        }
    }
}
