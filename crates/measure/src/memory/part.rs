//! The parts of a PCI device's memory that regions share out among themselves.

use membound_core::in_order::InOrder;
use membound_core::memory::proof::Proof;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::os::memory::base_page;
use membound_core::memory::MemoryKind;
use membound_core::units::Bytes;

/// A part of a BAR that one region has to itself.
///
/// Every region of a device has the same memory behind it, so two that both began at its start would overwrite each
/// other's data. And the kernel gives an address one memory type at a time: a page that is mapped uncached already is
/// mapped uncached again, without a word, where write-combining is asked for.
#[derive(Debug)]
pub struct Part {
    of: WholeBar,
    /// From the start of the BAR, bytes.
    range: Range<u64>,
    /// Physical address of its first byte; absent where the device does not tell.
    physical: Option<u64>,
}

/// The device's folder and the number of its resource.
type WholeBar = (PathBuf, usize);

/// The parts that regions of this process have.
static TAKEN: Mutex<Vec<(WholeBar, Range<u64>)>> = Mutex::new(Vec::new());

impl Part {
    /// The first free part with this many bytes, whole pages, of a BAR with this physical address and size. `None` where what is free is in smaller pieces.
    pub(crate) fn take((folder, index): WholeBar, address: Option<u64>, size: Bytes, bytes: Bytes) -> Option<Part> {
        let of = (folder.canonicalize().unwrap_or(folder), index);
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<Range<u64>> =
            taken.iter().filter(|(own, _)| *own == of).map(|(_, range)| range.clone()).collect();
        let start =
            first_gap(others, bytes.0).filter(|start| start.checked_add(bytes.0).is_some_and(|end| end <= size.0))?;
        let range = start..end_of_part(start, bytes.0, base_page() as u64);
        taken.push((of.clone(), range.clone()));
        let physical = address.filter(|address| *address > 0).and_then(|address| address.checked_add(start));
        Some(Part { of, range, physical })
    }

    /// Where it begins in the BAR, bytes.
    pub fn offset(&self) -> u64 {
        self.range.start
    }

    /// Which memory type the kernel gave it, now that it is mapped. Absent where the list can't be read: it takes root and
    /// debugfs.
    pub(crate) fn memory_type(&self, kind: MemoryKind) -> Option<Proof> {
        const LIST: &str = "/sys/kernel/debug/x86/pat_memtype_list";
        let list = fs::read_to_string(LIST).ok()?;
        let found = type_in(&list, self.physical?)?;
        let (claim, holds) = match kind {
            MemoryKind::BarWc => ("its memory type is write-combining", found == "write-combining"),
            _ => ("its memory type is uncached", found.starts_with("uncached")),
        };
        Some(Proof::new(claim, "pat_memtype_list", found, holds))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|(of, range)| (of, range) != (&self.of, &self.range));
    }
}

/// The next part begins there: a page of the kernel may be larger than those that parts are made of, and it maps whole ones.
fn end_of_part(start: u64, bytes: u64, page: u64) -> u64 {
    (start + bytes).next_multiple_of(page)
}

/// The least address from which `bytes` are in none of the ranges.
fn first_gap(mut taken: Vec<Range<u64>>, bytes: u64) -> Option<u64> {
    taken.order_by_key(|range| range.start);
    taken.iter().try_fold(0u64, |start, range| {
        let fits = range.start >= start.checked_add(bytes)?;
        Some(if fits { start } else { start.max(range.end) })
    })
}

/// The type of the range that holds an address: `PAT: [mem 0x00000000fd000000-0x00000000fd001000] write-combining`; the
/// end is the first byte beyond.
fn type_in(list: &str, address: u64) -> Option<&str> {
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    list.lines().find_map(|line| {
        let (range, kind) = line.split_once("[mem ")?.1.split_once(']')?;
        let (from, to) = range.split_once('-')?;
        (number(from)?..number(to)?).contains(&address).then_some(kind.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_between_before_and_behind() {
        let check = |taken: &[(u64, u64)], bytes: u64, expect: u64| {
            let taken = taken.iter().map(|&(start, end)| start..end).collect();
            assert_eq!(first_gap(taken, bytes), Some(expect));
        };
        check(&[], 4096, 0);
        check(&[(0, 4096)], 4096, 4096);
        check(&[(8192, 12288), (0, 4096)], 4096, 4096);
        check(&[(8192, 12288), (0, 4096)], 8192, 12288);
        check(&[(4096, 8192)], 4096, 0);
        check(&[(0, u64::MAX)], 4096, u64::MAX);
    }

    #[test]
    fn parts_begin_with_a_page_of_the_kernel() {
        assert_eq!(end_of_part(0, 4096, 4096), 4096);
        assert_eq!(end_of_part(0, 4096, 65536), 65536);
        assert_eq!(end_of_part(65536, 65536 + 4096, 65536), 3 * 65536);
    }

    #[test]
    fn a_memory_type_is_found_by_address() {
        let list = "PAT memtype list:\n\
                    PAT: [mem 0x00000000fd000000-0x00000000fd001000] write-combining\n\
                    PAT: [mem 0x00000000fd001000-0x00000000fd002000] uncached-minus\n";
        assert_eq!(type_in(list, 0xfd00_0000), Some("write-combining"));
        assert_eq!(type_in(list, 0xfd00_1000), Some("uncached-minus"));
        assert_eq!(type_in(list, 0xfd00_2000), None);
        assert_eq!(type_in("PAT: [mem nonsense] x", 0), None);
    }
}
