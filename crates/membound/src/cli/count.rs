//! Numbers that may be said by a word.

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
