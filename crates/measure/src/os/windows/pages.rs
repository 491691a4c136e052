//! What the system tells of a process's pages.

#![allow(unsafe_code)]

use std::ops::Range;

use membound_core::units::{BASE_PAGE, Bytes};
use windows_sys::Win32::System::ProcessStatus::{K32QueryWorkingSetEx, PSAPI_WORKING_SET_EX_INFORMATION};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// Who tells what [`Smaps`] holds.
pub(crate) const SOURCE: &str = "QueryWorkingSetEx";

/// What the working set says of a range of addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Smaps {
    /// In large pages.
    pub huge: Bytes,
    /// In memory.
    pub resident: Bytes,
    /// Locked there.
    pub locked: Bytes,
}

impl Smaps {
    /// Of a range of addresses of this process; absent where it can't be read.
    pub fn read(range: Range<u64>) -> Option<Smaps> {
        let addresses: Vec<usize> = range.step_by(BASE_PAGE as usize).map(|address| address as usize).collect();
        let mut found = Smaps::default();
        for page in attributes(&addresses)?.into_iter().filter(|page| page.is_valid()) {
            found.resident.0 += BASE_PAGE;
            found.locked.0 += if page.is_locked() { BASE_PAGE } else { 0 };
            found.huge.0 += if page.is_large() { BASE_PAGE } else { 0 };
        }
        Some(found)
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
