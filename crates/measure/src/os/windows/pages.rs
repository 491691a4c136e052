//! What the system tells of a process's pages.

#![allow(unsafe_code)]

use std::ops::Range;

pub(crate) use crate::os::alike::Smaps;
use membound_core::units::{BASE_PAGE, Bytes};
use windows_sys::Win32::System::ProcessStatus::{K32QueryWorkingSetEx, PSAPI_WORKING_SET_EX_INFORMATION};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// Who tells what [`Smaps`] holds.
pub(crate) const SOURCE: &str = "QueryWorkingSetEx";

/// Pages that are asked about at most: each is looked up by itself, which takes seconds for all those of a gigabyte.
const ASKED_MAX: u64 = 4096;

impl Smaps {
    /// Of a range of addresses of this process; absent where it can't be read. In a long one, evenly spread pages stand for
    /// those beside them.
    pub fn read(range: Range<u64>) -> Option<Smaps> {
        let pages = (range.end - range.start) / BASE_PAGE;
        let asked = pages.min(ASKED_MAX);
        let addresses: Vec<usize> =
            (0..asked).map(|k| (range.start + k * pages / asked * BASE_PAGE) as usize).collect();
        let of_all = |found: u64| Bytes(found * pages / asked.max(1) * BASE_PAGE);
        let valid: Vec<Attributes> = attributes(&addresses)?.into_iter().filter(|page| page.is_valid()).collect();
        let those = |are: fn(Attributes) -> bool| of_all(valid.iter().filter(|page| are(**page)).count() as u64);
        Some(Smaps {
            huge: those(Attributes::is_large),
            resident: those(Attributes::is_valid),
            locked: those(Attributes::is_locked),
        })
    }
}

/// What is told of one page (`PSAPI_WORKING_SET_EX_BLOCK`): nothing else holds where it is not valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes(usize);

impl Attributes {
    /// Whether it is in memory.
    pub fn is_valid(self) -> bool {
        self.0 & 1 == 1
    }

    /// Its node.
    pub fn node(self) -> u32 {
        (self.0 >> 16 & 0x3f) as u32
    }

    fn is_locked(self) -> bool {
        self.0 >> 22 & 1 == 1
    }

    fn is_large(self) -> bool {
        self.0 >> 23 & 1 == 1
    }
}

/// Of the page at each address; absent where the system refuses.
pub(super) fn attributes(addresses: &[usize]) -> Option<Vec<Attributes>> {
    // SAFETY: all-zero is a valid value of the struct.
    let empty: PSAPI_WORKING_SET_EX_INFORMATION = unsafe { std::mem::zeroed() };
    let mut pages: Vec<_> = addresses
        .iter()
        .map(|address| PSAPI_WORKING_SET_EX_INFORMATION { VirtualAddress: *address as *mut _, ..empty })
        .collect();
    let bytes = u32::try_from(size_of_val(&pages[..])).ok()?;
    // SAFETY: the call reads and writes so many bytes of `pages`.
    let is_told = unsafe { K32QueryWorkingSetEx(GetCurrentProcess(), pages.as_mut_ptr().cast(), bytes) } != 0;
    // SAFETY: the union is one word of bits, whatever its name.
    let words = pages.iter().map(|page| Attributes(unsafe { page.VirtualAttributes.Flags }));
    is_told.then(|| words.collect())
}

/// Physical addresses of this process's pages, which Windows tells nobody.
pub(crate) struct Frames;

impl Frames {
    /// Nothing.
    pub fn open() -> Option<Frames> {
        None
    }

    /// Nothing.
    pub fn of(&self, _address: u64) -> Option<u64> {
        None
    }
}
