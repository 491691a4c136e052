//! What to distrust, each with its cure.

use crate::section::{Item, Section};
use crate::warning::Warning;

/// All of them; empty where there is nothing.
pub fn section<'a>(warnings: impl IntoIterator<Item = &'a Warning>) -> Section {
    let item = |w: &Warning| Item { text: w.text.clone(), below: vec![("cure", w.cure.clone())] };
    Section {
        id: "warnings",
        title: "Warnings, each with its cure".into(),
        items: warnings.into_iter().map(item).collect(),
        ..Section::default()
    }
}
