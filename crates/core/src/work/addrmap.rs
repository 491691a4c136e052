//! Pairs of lines that are loaded together.

use crate::units::{Bytes, LINE, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// What a batch of pairs is asked for.
    Stage, "stage" {
        /// Pairs drawn at random, to see whether any are slow at all.
        Screen = "screen",
        /// The slower ones again, to part them from pairs that were merely disturbed.
        Heat = "heat",
        /// The slowest and ordinary ones many times: are these two groups?
        Contrast = "contrast",
        /// Further pairs, to learn the rule from.
        Ask = "ask",
        /// The slow ones among them again.
        Confirm = "confirm",
        /// Pairs that the rule makes a statement about and that it was not learnt from.
        Check = "check",
    }
}

/// A batch of pairs of lines: how long do two loads from memory take, one of each line?
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Conflict {
    /// What for.
    pub stage: Stage,
    /// Pairs in the order in which they are timed, one sample each: lines counted from the start of the memory. A pair
    /// may occur more than once.
    pub pairs: Vec<[u32; 2]>,
}

impl Conflict {
    /// Whether all its lines lie in so many bytes.
    pub fn fits(&self, bytes: Bytes) -> bool {
        self.pairs.iter().flatten().all(|&line| (u64::from(line) + 1) * LINE <= bytes.0)
    }
}
