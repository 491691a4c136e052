//! Scans: the same accesses at one offset after another, to see where an offset costs something. Here is what a scan
//! does and where; the assembler's `scan.rs` makes machine code of it.

use std::fmt;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::BASE_PAGE as PAGE;

/// What is repeated at each offset. Accesses are of 4, 8, 16, 32 or 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scan {
    /// Loads that do not wait for each other, this many bytes beyond the start of a page.
    Load {
        /// Bytes of one load.
        bytes: u32,
    },
    /// The same with stores.
    Store {
        /// Bytes of one store.
        bytes: u32,
    },
    /// A store, and a load from another page, this many bytes further in its page than the store in its own.
    Aliasing {
        /// Bytes of either.
        bytes: u32,
    },
    /// A load that needs what the store before it wrote, this many bytes beyond the store's first; the next store
    /// stores what was loaded.
    Forwarding {
        /// Bytes of the store.
        stored: u32,
        /// Bytes of the load.
        loaded: u32,
    },
}

impl Scan {
    /// The offsets, in bytes, rising.
    pub fn offsets(self) -> RangeInclusive<i64> {
        match self {
            Scan::Load { .. } | Scan::Store { .. } => 0..=4095,
            Scan::Aliasing { .. } => -128..=128,
            Scan::Forwarding { stored, loaded } => -i64::from(loaded)..=i64::from(stored),
        }
    }
}

/// Bytes of the widest register.
pub const REGISTER: usize = 64;

impl Scan {
    /// Accesses (with a store and a load: pairs of them) in one trip.
    pub const ACCESSES: u64 = 16;
    /// Loads and stores alone go round so many places: the same offset in neighbouring pages. On x86-64 they are as good as
    /// equal to the core, since they share a set of the first-level cache (of at least 8 ways) and its banks; a cache with ways
    /// of 16 KiB, as many of Arm's have, spreads them over several sets. No store hits the line of the one before, which the
    /// store buffer might merge, and every page crossing is another one.
    pub const PLACES: u64 = 4;
    /// Bytes that the accesses lie in, from the start of a page: the places, and the page that the last one crosses into.
    pub const SCRATCH: u64 = (Scan::PLACES + 1) * PAGE;

    /// Bytes that are stored and loaded by one access or pair.
    pub fn bytes(self) -> [u64; 2] {
        let [stored, loaded] = match self {
            Scan::Load { bytes } => [0, bytes],
            Scan::Store { bytes } => [bytes, 0],
            Scan::Aliasing { bytes } => [bytes, bytes],
            Scan::Forwarding { stored, loaded } => [stored, loaded],
        };
        [u64::from(stored), u64::from(loaded)]
    }

    /// Whether there are accesses of these sizes, on some processor.
    pub fn exists(self) -> bool {
        let exists = |bytes: &u32| (4..=REGISTER as u32).contains(bytes) && bytes.is_power_of_two();
        match self {
            Scan::Load { bytes } | Scan::Store { bytes } | Scan::Aliasing { bytes } => exists(&bytes),
            Scan::Forwarding { stored, loaded } => [stored, loaded].iter().all(exists),
        }
    }

    /// Whether a trip is pairs of a store and a load.
    pub fn is_paired(self) -> bool {
        matches!(self, Scan::Aliasing { .. } | Scan::Forwarding { .. })
    }

    /// Addresses of the (first) store and the (first) load in scratch memory that starts at `scratch`, a page's start.
    /// Nothing, where the offset is none of the scan's: with any other, no access leaves the scratch memory.
    pub fn addresses(self, scratch: u64, offset: i64) -> Option<[u64; 2]> {
        // Pairs lie in the middle of a page and cross no page.
        let middle = scratch + PAGE / 2;
        // A store that is not a whole line is put where it crosses no line, and neither do loads some bytes around it.
        let home = |stored| if stored <= 32 { middle + 32 } else { middle };
        self.offsets().contains(&offset).then(|| match self {
            Scan::Load { .. } | Scan::Store { .. } => [scratch + offset as u64; 2],
            Scan::Aliasing { .. } => [middle, (middle + PAGE).wrapping_add_signed(offset)],
            Scan::Forwarding { stored, .. } => [home(stored), home(stored).wrapping_add_signed(offset)],
        })
    }

    /// What so many trips do, in plain Rust: the answer key. `memory` is the scratch memory; nothing happens with an
    /// offset that is none of the scan's.
    pub fn play(self, memory: &mut [u8], registers: &mut [[u8; REGISTER]; 4], offset: i64, trips: u64) {
        let Some([store, load]) = self.addresses(0, offset).map(|both| both.map(|address| address as usize)) else {
            return;
        };
        let [stored, loaded] = self.bytes().map(|bytes| bytes as usize);
        for access in (0..Scan::ACCESSES).cycle().take((trips * Scan::ACCESSES) as usize) {
            let place = if self.is_paired() { 0 } else { access % Scan::PLACES };
            let (page, register) = ((place * PAGE) as usize, &mut registers[place as usize]);
            memory[page + store..][..stored].copy_from_slice(&register[..stored]);
            if loaded > 0 {
                *register = [0; REGISTER];
                register[..loaded].copy_from_slice(&memory[page + load..][..loaded]);
            }
        }
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scan::Load { bytes } => write!(f, "loads of {bytes} B by offset"),
            Scan::Store { bytes } => write!(f, "stores of {bytes} B by offset"),
            Scan::Aliasing { bytes } => write!(f, "load beside a store, {bytes} B, by distance in the page"),
            Scan::Forwarding { stored, loaded } => {
                write!(f, "store of {stored} B to load of {loaded} B, by offset")
            }
        }
    }
}
