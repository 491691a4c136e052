//! Questions about addresses: which lines get in each other's way?

use crate::work::addrmap::{Conflict, Stage};

use crate::case::{Case, Work};
use crate::experiments::frame::{Frame, PlanError};
use crate::memory::{MemoryKind, MemorySpec};
use crate::units::{Bytes, LINE};

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
    let work = Work::Conflict(Conflict { stage: Stage::Screen, pairs: Vec::new() });
    Ok(Case::new(work, memory, frame.placement.first(1)?, working_set))
}
