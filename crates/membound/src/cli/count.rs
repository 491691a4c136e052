//! Numbers that may be said by a word, or with a unit.

use std::str::FromStr;

use membound_core::experiments::frame::Frame;

/// How many threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// So many.
    Count(usize),
    /// One on each CPU that may be used.
    All,
}

impl Threads {
    /// As a number.
    pub fn count(self, frame: &Frame) -> usize {
        match self {
            Threads::Count(count) => count,
            Threads::All => frame.placement.most(),
        }
    }
}

/// `5`, `5%` or `5 %`, within these bounds.
pub(crate) fn percentage(text: &str, least: f64, most: f64) -> Option<f64> {
    let text = text.trim();
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>().ok();
    number.filter(|percent| (least..=most).contains(percent))
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "all" | "max" => Ok(Threads::All),
            text => text
                .parse()
                .map(Threads::Count)
                .map_err(|_| format!("'{text}' is no number of threads; give 1, 4 or all")),
        }
    }
}
