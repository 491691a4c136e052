//! The verdict: why memory-bound code is not faster on this machine. A rule (`rules.rs`) looks at a report for one cause and
//! gives its evidence, what it would give back, its cure and the command that tests it; here they are ranked.
//!
//! *The plain case* is what a program does that nobody tuned: the triad with regular stores, in memory, by as many threads as
//! were measured. *The gap* is the limit less what the plain case reaches, both in payload bytes a second: a program wants
//! its payload, and a write-allocate is one of the causes. The limit is the peak of the memory where that is known, else
//! the best that a loop by as many threads with as many reads to each write reached in memory (where none was faster, any loop). *A
//! cause's share* is what its own experiment shows it to give back, against the gap. Causes overlap, and what lies between the best
//! and the peak may have no cure, so shares need not add up to one.

pub mod diagnosis;
pub mod rules;
pub mod scene;

use crate::across::verdict::scene::Scene;
use membound_core::in_order::InOrder;

use crate::across::verdict::diagnosis::{Cause, Diagnosis};
use crate::report::Report;

/// Looks for every cause.
pub fn verdict(report: &Report) -> Diagnosis {
    let Some(scene) = Scene::of(report) else { return Diagnosis::default() };
    let mut causes: Vec<Cause> =
        rules::RULES.iter().filter_map(|(kind, rule)| rule(&scene)?.cause(*kind, &scene)).collect();
    causes.order_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(std::cmp::Ordering::Equal));
    Diagnosis { gap: Some(scene.gap), causes }
}

/// What spoils figures first, then by share, and of those that are all of the gap by what they give back; what has no share last.
fn rank(cause: &Cause) -> (bool, f64, f64) {
    (cause.cause.spoils_figures(), cause.share.unwrap_or(-1.0), cause.gives_back_bps.unwrap_or(-1.0))
}
