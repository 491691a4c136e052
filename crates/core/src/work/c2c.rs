//! A line passed back and forth by two CPUs.

use crate::units::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// Which of two threads touches a page first, and so decides where it lies.
    Home, "home" {
        /// The first, which leads and is timed.
        First = "first",
        /// The second, which answers.
        Second = "second",
    }
}

/// A line passed back and forth by the case's two CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Handover {
    /// Who touches the line's page first.
    pub home: Home,
}
