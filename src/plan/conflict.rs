//! Questions about addresses: which lines get in each other's way?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, Frame, PlanError, Protocol, Work};
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::{Bytes, words};

/// Bytes of a cache line.
pub const LINE: u64 = 64;

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

/// Bytes of the pages of a kind of memory that bring known address bits along; nothing, where pages are too small for
/// the bits that matter or are whatever the system gives.
pub fn known_page(kind: MemoryKind) -> Option<Bytes> {
    match kind {
        MemoryKind::Thp | MemoryKind::Huge2M => Some(Bytes::mib(2)),
        MemoryKind::Huge1G => Some(Bytes::gib(1)),
        _ => None,
    }
}

/// Memory that pairs are taken from, where no size is named: enough pages that no single one decides.
const MEMORY: Bytes = Bytes::mib(64);

/// A case without questions: where they go. `size` is rounded up to whole pages.
pub fn conflict(frame: &Frame, memory: MemorySpec, size: Option<Bytes>) -> Result<Case, PlanError> {
    let page = known_page(memory.kind).unwrap_or(Bytes::mib(2));
    let pages = size.unwrap_or(MEMORY).0.div_ceil(page.0).max(1);
    // Lines are counted in 32 bits.
    let limit = Bytes(frame.memory_limit.0.min(u64::from(u32::MAX) * LINE));
    let working_set = Bytes(pages.saturating_mul(page.0));
    if working_set > limit {
        return Err(PlanError::TooLarge { size: working_set, limit });
    }
    Ok(Case {
        work: Work::Conflict(Conflict { stage: Stage::Screen, pairs: Vec::new() }),
        memory,
        streams: Vec::new(),
        cpus: frame.placement.first(1)?,
        working_set,
        misaligned_bytes: 0,
        protocol: Protocol::Steady,
    })
}
