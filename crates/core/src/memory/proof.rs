//! What shows that memory is of the kind that was asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A property of memory, and how it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// What the kind promises: `locked in memory`.
    pub claim: String,
    /// Who says so: `smaps`, `statfs`, `behaviour`.
    pub by: String,
    /// What it said: `32 MiB of 32 MiB`.
    pub seen: String,
    /// Whether that bears the claim out.
    pub holds: bool,
}

impl Proof {
    /// A claim and what was seen of it.
    pub fn new(claim: &str, by: &str, seen: impl Into<String>, holds: bool) -> Self {
        Proof { claim: claim.into(), by: by.into(), seen: seen.into(), holds }
    }
}
