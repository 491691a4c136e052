//! What pushing page cache out of a node came to.

use crate::machine::room::NodeRoom;
use crate::units::{Bytes, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// Why a sweep of a node ended.
    SweepEnd, "end" {
        /// All was touched that can be had of the node.
        Swept = "swept",
        /// The share that the user allows was touched.
        Share = "share",
        /// A control group or the machine as a whole has no more to spare.
        Limit = "limit",
        /// Other memory began to move to swap.
        Swap = "swap",
        /// The machine hardly got on for want of memory.
        Pressure = "pressure",
        /// The user stopped it.
        Interrupted = "interrupted",
        /// The kernel refused the memory, or took it away.
        Refused = "refused",
    }
}

/// What a sweep did to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSweep {
    /// `sweep`.
    pub metric: String,
    /// The node.
    pub node: u32,
    /// Its memory before.
    pub before: NodeRoom,
    /// And after all was given back; absent where the node is gone.
    pub after: Option<NodeRoom>,
    /// Bytes touched.
    pub touched_bytes: Bytes,
    /// Why it ended there.
    pub end: SweepEnd,
    /// The same in words, where it ended early.
    pub reason: Option<String>,
}

impl NodeSweep {
    /// Whether the node was not swept as asked.
    pub fn is_failure(&self) -> bool {
        matches!(self.end, SweepEnd::Refused | SweepEnd::Interrupted)
    }
}
