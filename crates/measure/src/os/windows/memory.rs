//! Mapping memory, and saying what is to become of its pages.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, ptr};

use crate::os::advice::Advice;
pub(crate) use crate::os::alike::Mapped;
use membound_core::memory::MemoryKind;
use windows_sys::Win32::System::Diagnostics::Debug::FlushInstructionCache;
use windows_sys::Win32::System::Memory::{
    GetLargePageMinimum, MEM_COMMIT, MEM_LARGE_PAGES, MEM_RELEASE, MEM_RESERVE, PAGE_EXECUTE_READ, PAGE_NOCACHE,
    PAGE_READONLY, PAGE_READWRITE, PAGE_WRITECOMBINE, VirtualAlloc, VirtualAllocExNuma, VirtualFree, VirtualLock,
    VirtualProtect,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessWorkingSetSize, SetProcessWorkingSetSize};

use super::checked;
pub(crate) use super::system::base_page;

/// Memory types that programs may ask for.
pub(crate) const TYPES: &[MemoryKind] = &[MemoryKind::Wb, MemoryKind::Wc, MemoryKind::Uc];

/// Maps so many bytes at a fresh address.
pub(crate) fn map(what: Mapped, bytes: usize, is_writable: bool) -> io::Result<usize> {
    let protection = if is_writable { PAGE_READWRITE } else { PAGE_READONLY };
    match what {
        Mapped::Anonymous { shared: true, .. } => super::lacks("anonymous memory that children share"),
        Mapped::Anonymous { pool_page: None, kind, node, .. } => {
            let caching = match kind {
                MemoryKind::Wc => PAGE_WRITECOMBINE,
                MemoryKind::Uc => PAGE_NOCACHE,
                _ => 0,
            };
            reserve(bytes, MEM_RESERVE | MEM_COMMIT, protection | caching, node)
        }
        Mapped::Anonymous { pool_page: Some(page), node, .. } => {
            // SAFETY: asks for a number.
            let large = unsafe { GetLargePageMinimum() };
            if large != page {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!("this processor's large pages have {large} bytes"),
                ));
            }
            super::system::allow_large_pages()?;
            reserve(bytes, MEM_RESERVE | MEM_COMMIT | MEM_LARGE_PAGES, protection, node)
        }
        Mapped::File { .. } => super::files::can_be_mapped().map(|()| 0),
    }
}

/// What helps where memory of a kind was refused.
pub(crate) fn cure(kind: MemoryKind) -> &'static str {
    match kind {
        // Memory goes to pieces while a system runs.
        MemoryKind::Huge2M | MemoryKind::Huge1G => "; ask for less with --size, or restart Windows and measure first",
        MemoryKind::Locked => "; ask for less with --size: a job or too little memory keeps the working set small",
        _ => "; ask for less with --size",
    }
}

fn reserve(bytes: usize, how: u32, protection: u32, node: Option<u32>) -> io::Result<usize> {
    // SAFETY: fresh memory at no fixed address, in this process; nothing existing is touched.
    let start = unsafe {
        match node {
            Some(node) => VirtualAllocExNuma(GetCurrentProcess(), ptr::null(), bytes, how, protection, node),
            None => VirtualAlloc(ptr::null(), bytes, how, protection),
        }
    };
    if start.is_null() { Err(io::Error::last_os_error()) } else { Ok(start as usize) }
}

/// Ends a mapping.
///
/// # Safety
/// [`map`] or [`code`] made it with this length, and nothing refers to it.
pub(crate) unsafe fn unmap(start: usize, bytes: usize) {
    // Before others can have the addresses.
    known_locked().forget(start, bytes);
    // SAFETY: as promised; what is released is always a whole reservation, whose length is 0 here.
    unsafe { VirtualFree(start as *mut _, 0, MEM_RELEASE) };
}

/// Windows' heaps reserve each block of more than half a MiB by itself, and release it when it is freed.
pub(crate) fn map_large_blocks() {}

/// What malloc gives.
pub(crate) fn allocate(bytes: usize) -> io::Result<usize> {
    // SAFETY: asks for fresh memory.
    let start = unsafe { libc::malloc(bytes) };
    // The heap sets no last error.
    if start.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(start as usize) }
}

/// Gives it back.
///
/// # Safety
/// It came from [`allocate`], and nothing refers to it.
pub(crate) unsafe fn free(start: usize) {
    // SAFETY: as promised.
    unsafe { libc::free(start as *mut libc::c_void) };
}

/// Copies code to fresh pages, then makes them read-and-execute: never both writable and executable.
pub(crate) fn code(bytes: &[u8]) -> io::Result<(usize, usize)> {
    let length = bytes.len().next_multiple_of(base_page());
    let start = reserve(length, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE, None)?;
    // SAFETY: the memory is at least as long as the code, writable and ours alone.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
    let mut before = 0;
    // SAFETY: the whole of it is ours; no reference to it exists.
    let protected = checked(unsafe { VirtualProtect(start as *const _, length, PAGE_EXECUTE_READ, &mut before) });
    // SAFETY: drops what was fetched as instructions from our own memory.
    let flushed = || checked(unsafe { FlushInstructionCache(GetCurrentProcess(), start as *const _, length) });
    if let Err(fault) = protected.and_then(|()| flushed()) {
        // SAFETY: nobody else knows of it yet.
        unsafe { unmap(start, length) };
        return Err(fault);
    }
    Ok((start, length))
}

/// The name of a piece of advice, and what it needs.
pub(crate) fn needs(_advice: Advice) -> (&'static str, &'static str) {
    ("madvise", "it needs Linux")
}

/// Refused but for what always holds here: base pages are never made huge, and there are no forked children.
///
/// # Safety
/// The range is the caller's own mapping, and nothing relies on what it holds: that stays or becomes zero.
pub(crate) unsafe fn advise(_start: usize, _bytes: usize, advice: Advice) -> io::Result<()> {
    match advice {
        Advice::NoHuge | Advice::Fork | Advice::NoFork => Ok(()),
        _ => super::lacks("such advice on pages (madvise)"),
    }
}

/// Ranges of memory that are locked.
#[derive(Debug)]
struct Locked {
    /// Where each begins, and its bytes.
    ranges: BTreeMap<usize, usize>,
    /// Bytes that the working set held at least before any was locked; absent until that was asked.
    least: Option<usize>,
}

static LOCKED: Mutex<Locked> = Mutex::new(Locked { ranges: BTreeMap::new(), least: None });

fn known_locked() -> MutexGuard<'static, Locked> {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Locked {
    /// Takes out the ranges of a mapping that ended.
    fn forget(&mut self, start: usize, bytes: usize) {
        self.ranges.retain(|at, _| !(start..start.saturating_add(bytes)).contains(at));
    }

    /// Bytes that the working set must hold at least, which is so many now.
    fn needed(&mut self, now: usize) -> usize {
        /// What is needed beside locked pages, which are rounded up, too.
        const BESIDE: usize = 64 << 20;
        let all = self.ranges.values().fold(0usize, |sum, bytes| sum.saturating_add(*bytes));
        self.least.get_or_insert(now).saturating_add(all).saturating_add(BESIDE).max(now)
    }
}

/// Locks the pages of a range in memory. A process may lock as much as its working set holds at least, all ranges together: where they
/// are more, that grows first. What was unmapped since counts no more.
pub(crate) fn lock(start: usize, bytes: usize) -> io::Result<()> {
    // What others lock meanwhile is to count.
    known_locked().ranges.insert(start, bytes);
    // SAFETY: makes pages of our own and keeps them; it changes nothing of what they hold.
    let locked = || checked(unsafe { VirtualLock(start as *const _, bytes) });
    locked().or_else(|_| grow_working_set().and_then(|()| locked())).inspect_err(|_| {
        known_locked().ranges.remove(&start);
    })
}

/// Has the working set hold all that is to be locked.
fn grow_working_set() -> io::Result<()> {
    let mut known = known_locked();
    let (mut least, mut most) = (0, 0);
    // SAFETY: writes two numbers.
    checked(unsafe { GetProcessWorkingSetSize(GetCurrentProcess(), &mut least, &mut most) })?;
    let least = known.needed(least);
    // SAFETY: changes a limit of this process.
    checked(unsafe { SetProcessWorkingSetSize(GetCurrentProcess(), least, most.max(least.saturating_mul(2))) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_set_grows_by_what_is_locked_at_once() {
        const MIB: usize = 1 << 20;
        let mut locked = Locked { ranges: BTreeMap::new(), least: None };
        locked.ranges.insert(4096, 100 * MIB);
        assert_eq!(locked.needed(MIB), 165 * MIB);
        locked.ranges.insert(200 * MIB, 10 * MIB);
        assert_eq!(locked.needed(165 * MIB), 175 * MIB);
        // A mapping ended that began before what was locked of it: the next one needs no more.
        locked.forget(0, 101 * MIB);
        locked.ranges.insert(4096, 100 * MIB);
        assert_eq!(locked.needed(175 * MIB), 175 * MIB);
        locked.ranges.insert(400 * MIB, 10 * MIB);
        assert_eq!(locked.needed(175 * MIB), 185 * MIB);
    }

    #[test]
    fn memory_on_a_node_is_memory() {
        let what = Mapped::Anonymous { shared: false, pool_page: None, kind: MemoryKind::Base, node: Some(0) };
        let start = map(what, 4096, true).unwrap();
        // SAFETY: a fresh page of our own, which nobody else knows.
        unsafe {
            *(start as *mut u8) = 1;
            assert_eq!(crate::os::numa::locate(&[start]).unwrap(), [Some(0)]);
            unmap(start, 4096);
        }
    }
}
