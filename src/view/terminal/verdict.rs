//! The verdict: what the plain case reaches of the limit, and the causes that keep it from more.

use super::{head, paragraph};
use crate::model::Report;

/// The answer, then each cause: what it gives back, its evidence, its cure, the command that tests it. Empty where nothing
/// was measured in memory.
pub(super) fn section(report: &Report) -> String {
    let Some(sentence) = report.verdict.sentence() else { return String::new() };
    let mut text = head("Verdict") + &paragraph(&sentence, "");
    for (index, cause) in report.verdict.causes.iter().enumerate() {
        let title = paragraph(&format!("{}: {}.", cause.cause, cause.gain_words()), "   ");
        text += &format!("{}. {}", index + 1, title.trim_start());
        text += &paragraph(&format!("Seen: {}.", cause.evidence), "   ");
        text += &paragraph(&format!("Cure: {}.", cause.cure), "   ");
        text += &paragraph(&format!("Test: {}", cause.test), "   ");
    }
    if report.verdict.causes.len() > 1 {
        text += &paragraph("Causes overlap: what they give back does not add up.", "");
    }
    text
}

/// The verdict alone.
pub fn verdict(report: &Report) -> String {
    let text = section(report);
    if text.is_empty() { "No verdict: nothing was measured in memory.\n".into() } else { text }
}
