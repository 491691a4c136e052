//! How far apart the CPUs of several threads are while a run goes on: a state of the host that a run may meet seldom.

use membound_core::case::Case;
use membound_core::record::Outcome;
use membound_core::record::hand_overs::{Distance, Distances, HandOvers};

/// A state of the host that fewer visits or hand-overs than this share met is rare.
pub(crate) const RARE: f64 = 0.4;
/// Distances are worked out anew when there are more visits by this factor.
const ANEW: f64 = 1.1;

/// What the visits of a run told so far.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    told: HandOvers,
    known: Distances,
    noted: usize,
    next: usize,
    /// Hand-overs at either distance.
    counts: [usize; 2],
}

impl Watch {
    /// Takes a visit in, and says how far apart its CPUs were, as far as that is known by now.
    pub fn note(&mut self, case: &Case, outcome: &Outcome) -> Option<Distance> {
        let Outcome::Measured(visit) = outcome else { return None };
        if self.told.note(case, visit) {
            self.noted += 1;
            if self.noted >= self.next {
                self.known = self.told.distances();
                self.counts = self.told.counts(&self.known);
                self.next = (self.noted as f64 * ANEW) as usize + 1;
            }
        }
        self.known.of(case, visit)
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
