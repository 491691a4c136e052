//! The verdict: what the plain case reaches of the limit, and the causes that keep it from more.

use crate::across::verdict::diagnosis::{Cause, Diagnosis};
use crate::section::{Item, Section};

/// The answer, then each cause: what it gives back, its evidence, its cure, the command that tests it. Empty where nothing
/// was measured in memory.
pub fn section(verdict: &Diagnosis) -> Section {
    let Some(sentence) = verdict.sentence() else { return Section::default() };
    let item = |cause: &Cause| Item {
        text: format!("{}: {}.", cause.cause, cause.gain_words()),
        below: vec![("seen", cause.evidence.clone()), ("cure", cause.cure.clone()), ("test", cause.test.clone())],
    };
    let overlap = (verdict.causes.len() > 1).then(|| "Causes overlap: what they give back does not add up.".into());
    Section {
        id: "verdict",
        title: "Verdict".into(),
        about: sentence,
        items: verdict.causes.iter().map(item).collect(),
        notes: overlap.into_iter().collect(),
        ..Section::default()
    }
}
