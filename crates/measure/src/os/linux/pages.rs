//! What the kernel tells of a process's pages.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

pub(crate) use crate::os::alike::Smaps;
use crate::os::memory::base_page;
use membound_core::units::BASE_PAGE;

/// Who tells what [`Smaps`] holds.
pub(crate) const SOURCE: &str = "smaps";

impl Smaps {
    /// Of a range of addresses of this process; absent where it can't be read.
    pub fn read(range: Range<u64>) -> Option<Smaps> {
        let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
        Some(Smaps::of(&text, range.start, range.end))
    }

    /// Of the mappings inside [start, end), according to the text of smaps.
    fn of(text: &str, start: u64, end: u64) -> Smaps {
        // The kernel merges neighbours that are alike: of what it counts no more than the part inside is ours.
        let mut inside = 0;
        let mut found = Smaps::default();
        for line in text.lines() {
            if let Some((from, to)) = mapping_range(line) {
                inside = to.min(end).saturating_sub(from.max(start));
            } else if inside > 0
                && let Some((name, value)) = line.split_once(':')
            {
                let kib = value.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
                let bytes = (kib << 10).min(inside);
                match name {
                    "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" | "Private_Hugetlb" | "Shared_Hugetlb" => {
                        found.huge.0 += bytes;
                    }
                    "Rss" => found.resident.0 += bytes,
                    "Locked" => found.locked.0 += bytes,
                    _ => {}
                }
            }
        }
        found
    }
}

fn mapping_range(line: &str) -> Option<(u64, u64)> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
}

/// Physical addresses of this process's pages, as far as the kernel tells them: to root. Others read zeros.
pub(crate) struct Frames(File);

impl Frames {
    /// Nothing, where there is no such list.
    pub fn open() -> Option<Frames> {
        File::open("/proc/self/pagemap").ok().map(Frames)
    }

    /// That of the 4 KiB at this address; absent where it is not in memory or not told.
    pub fn of(&self, address: u64) -> Option<u64> {
        const PRESENT: u64 = 1 << 63;
        const FRAME_NUMBER: u64 = (1 << 55) - 1;
        let page = base_page() as u64;
        let mut entry = [0; 8];
        self.0.read_exact_at(&mut entry, address / page * 8).ok()?;
        let entry = u64::from_le_bytes(entry);
        let physical = (entry & FRAME_NUMBER) * page;
        (entry & PRESENT != 0 && physical != 0).then_some(physical + address % page / BASE_PAGE * BASE_PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::units::Bytes;

    #[test]
    fn smaps_are_read_inside_the_range_only() {
        let text = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nRss: 4096 kB\nAnonHugePages:      2048 kB\n\
                    Locked: 4 kB\n\
                    7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \nAnonHugePages:      4096 kB\nPrivate_Hugetlb: 0 kB\n";
        let first = Smaps { huge: Bytes::mib(2), resident: Bytes::mib(4), locked: Bytes::kib(4) };
        assert_eq!(Smaps::of(text, 0x7f0000000000, 0x7f0000400000), first);
        assert_eq!(Smaps::of(text, 0x7f0000000000, 0x7f0000800000).huge, Bytes::mib(6));
        // Half of the second mapping, which is all huge: a neighbour's part is not ours.
        assert_eq!(Smaps::of(text, 0x7f0000400000, 0x7f0000600000).huge, Bytes::mib(2));
    }
}
