//! What all memory of a run may take together. Arenas, chases, loaders and what else maps memory share it, so that no sum of
//! shares that are modest by themselves fills a small control group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use membound_core::machine::room::Room;
use membound_core::units::Bytes;

use crate::memory::no_memory::NoMemory;

/// Bytes that may be mapped at one time, shared by whoever holds a clone.
#[derive(Debug, Clone)]
pub struct Allowance {
    most: Bytes,
    taken: Arc<AtomicU64>,
}

impl Allowance {
    /// So many bytes.
    pub fn of(most: Bytes) -> Self {
        Allowance { most, taken: Arc::default() }
    }

    /// What this process may take of this machine as it is now.
    pub fn here() -> Self {
        Allowance::of(Room::read(&crate::machine::source()).allowance())
    }

    /// Whether so much could be taken, were nothing taken now.
    pub(crate) fn has_room_for(&self, bytes: Bytes) -> bool {
        bytes <= self.most
    }

    /// What can still be taken.
    pub(crate) fn left(&self) -> Bytes {
        Bytes(self.most.0 - self.taken.load(Ordering::Relaxed))
    }

    /// Takes bytes, until the claim is dropped.
    pub(crate) fn claim(&self, bytes: Bytes) -> Result<Claim, NoMemory> {
        let fits = |taken: u64| taken.checked_add(bytes.0).filter(|sum| *sum <= self.most.0);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Claim { allowance: self.clone(), bytes }),
            Err(taken) => Err(NoMemory::Allowance { bytes, taken: Bytes(taken), most: self.most }),
        }
    }
}

impl Default for Allowance {
    /// Without an end.
    fn default() -> Self {
        Allowance::of(Bytes(u64::MAX))
    }
}

/// Bytes that are mapped.
#[derive(Debug)]
pub(crate) struct Claim {
    allowance: Allowance,
    bytes: Bytes,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.allowance.taken.fetch_sub(self.bytes.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::places::Places;
    use crate::memory::region::Region;
    use membound_core::memory::{MemoryKind, MemorySpec};

    #[test]
    fn all_regions_together_take_no_more() {
        let places = Places { allowance: Allowance::of(Bytes::mib(8)), ..Places::default() };
        let map = |mib| Region::new(MemorySpec::of(MemoryKind::Base), Bytes::mib(mib), &places);
        let mut first = map(6).unwrap();
        let second = map(2).unwrap();
        let fault = map(1).unwrap_err();
        let said = "1 MiB more is not to be had: 8 MiB of the 8 MiB that a run may take are in use";
        assert!(fault.to_string().starts_with(said), "{fault}");
        drop(second);
        first.unmap();
        let third = map(8).unwrap();
        assert!(matches!(first.map(), Err(NoMemory::Allowance { .. })));
        drop(third);
        first.map().unwrap();
    }
}
