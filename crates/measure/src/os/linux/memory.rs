//! Mapping memory, and saying what is to become of its pages.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::{io, ptr};

use crate::os::advice::Advice;
pub(crate) use crate::os::alike::Mapped;
use membound_core::memory::MemoryKind;

/// Memory types that programs may ask for: none without page tables of their own.
pub(crate) const TYPES: &[MemoryKind] = &[];

/// Maps so many bytes at a fresh address.
pub(crate) fn map(what: Mapped, bytes: usize, is_writable: bool) -> io::Result<usize> {
    let protection = if is_writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    let sharing = |shared: bool| if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let (file, flags, offset) = match what {
        // Pool pages are reserved now, so that touching them later can't fail with SIGBUS.
        Mapped::Anonymous { shared, pool_page: Some(page), .. } => {
            let size = (page.trailing_zeros() as libc::c_int) << libc::MAP_HUGE_SHIFT;
            (-1, sharing(shared) | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size, 0)
        }
        Mapped::Anonymous { shared, .. } => (-1, sharing(shared) | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, 0),
        Mapped::File { file, shared, offset } => (file.as_raw_fd(), sharing(shared), offset as libc::off_t),
    };
    // SAFETY: a fresh mapping at no fixed address; nothing existing is touched.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, file, offset) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start as usize) }
}

/// What helps where memory of a kind was refused.
pub(crate) fn cure(kind: MemoryKind) -> &'static str {
    use MemoryKind as Kind;
    match kind {
        // The pool that sysctl means has larger pages there.
        Kind::Huge2M if base_page() != 4096 => {
            "; reserve pages with `echo N >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"
        }
        Kind::Huge2M => "; reserve pages with `sysctl vm.nr_hugepages=N` (2 MiB each)",
        Kind::Huge1G => "; reserve pages with `hugepagesz=1G hugepages=N` on the kernel's command line",
        Kind::Locked => "; raise the limit with `ulimit -l` or ask for less with --size",
        Kind::Bar | Kind::BarWc => "; a driver, the lockdown mode or a device that is off keeps this BAR from us",
        Kind::Udmabuf => "; ask for less with --size, or raise /sys/module/udmabuf/parameters/size_limit_mb",
        _ => "; ask for less with --size",
    }
}

/// Ends a mapping.
///
/// # Safety
/// [`map`] or [`code`] made it with this length, and nothing refers to it.
pub(crate) unsafe fn unmap(start: usize, bytes: usize) {
    // SAFETY: as promised.
    unsafe { libc::munmap(start as *mut libc::c_void, bytes) };
}

/// From now on malloc maps each large block, and ends its mapping when it is freed: so its pages are fresh. glibc would raise
/// what it calls large to the size of each mapped block that is freed, up to 32 MiB, and hand out pages that were touched
/// before. What is large at the end of a thread's heap goes back, too, which `malloc_trim` looks for in the first heap alone.
#[cfg(target_env = "gnu")]
pub(crate) fn map_large_blocks() {
    /// glibc's own, before it moves.
    const LARGE: libc::c_int = 128 << 10;
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for number in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
            // SAFETY: changes a number of the allocator, which locks itself for that.
            unsafe { libc::mallopt(number, LARGE) };
        }
    });
}

/// musl does that anyway, from 128 KiB on.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn map_large_blocks() {}

/// What malloc gives.
pub(crate) fn allocate(bytes: usize) -> io::Result<usize> {
    map_large_blocks();
    // SAFETY: asks for fresh memory.
    let start = unsafe { libc::malloc(bytes) };
    if start.is_null() { Err(io::Error::last_os_error()) } else { Ok(start as usize) }
}

/// Gives it back, and what malloc has free to the system: a large block may have come from free memory of the heap, whose pages the
/// next one would find made.
///
/// # Safety
/// It came from [`allocate`], and nothing refers to it.
pub(crate) unsafe fn free(start: usize) {
    // SAFETY: as promised.
    unsafe { libc::free(start as *mut libc::c_void) };
    #[cfg(target_env = "gnu")]
    // SAFETY: touches free memory alone, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Bytes of a page of the processor's page tables: 4, 16 or 64 KiB on Arm.
pub(crate) fn base_page() -> usize {
    // SAFETY: asks for a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|page| page.is_power_of_two()).unwrap_or(4096)
}

/// Copies code to fresh pages, then makes them read-and-execute: never both writable and executable.
pub(crate) fn code(bytes: &[u8]) -> io::Result<(usize, usize)> {
    let length = bytes.len().next_multiple_of(base_page());
    let fresh = Mapped::Anonymous { shared: false, pool_page: None, kind: MemoryKind::Base, node: None };
    let start = map(fresh, length, true)?;
    // SAFETY: the mapping is at least as long as the code, writable and ours alone.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
    // SAFETY: the whole mapping is ours; no reference to it exists.
    if unsafe { libc::mprotect(start as *mut libc::c_void, length, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
        let why = io::Error::last_os_error();
        // SAFETY: made above with this length; nothing refers to it.
        unsafe { unmap(start, length) };
        return Err(why);
    }
    make_coherent(start, bytes.len());
    Ok((start, length))
}

/// x86 processors see to it that instructions are fetched as they were written.
#[cfg(target_arch = "x86_64")]
fn make_coherent(_start: usize, _bytes: usize) {}

/// Writes fresh code back to where instructions are fetched from, and drops what was fetched there before: first all
/// lines of data, then all of instructions, as the Arm Architecture Reference Manual (B2.4.4) tells.
#[cfg(target_arch = "aarch64")]
fn make_coherent(start: usize, bytes: usize) {
    use core::arch::asm;
    let [instructions, data] = super::registers::lines().map(|bytes| bytes as usize);
    for line in (start & !(data - 1)..start + bytes).step_by(data) {
        // SAFETY: cleans a line of the caller's mapping; what it holds stays.
        unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for line in (start & !(instructions - 1)..start + bytes).step_by(instructions) {
        // SAFETY: drops a line of the caller's mapping from the instruction cache; what it holds stays.
        unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// Newer than the C library's header.
const MADV_COLLAPSE: libc::c_int = 25;

/// The name of a piece of advice, and what the kernel needs for it.
pub(crate) fn needs(advice: Advice) -> (&'static str, &'static str) {
    let (_, name, needs) = facts(advice);
    (name, needs)
}

/// The kernel's number, its name, and whom it is for.
fn facts(advice: Advice) -> (libc::c_int, &'static str, &'static str) {
    const THP: &str = "it needs a kernel with transparent huge pages";
    const FORK: &str = "it does not work on devices";
    match advice {
        Advice::Populate => (libc::MADV_POPULATE_WRITE, "MADV_POPULATE_WRITE", "it needs Linux 5.14"),
        Advice::Dontneed => (libc::MADV_DONTNEED, "MADV_DONTNEED", "it does not work on locked memory or devices"),
        Advice::Free => (libc::MADV_FREE, "MADV_FREE", "it works on private anonymous memory only"),
        Advice::NoHuge => (libc::MADV_NOHUGEPAGE, "MADV_NOHUGEPAGE", THP),
        Advice::Huge => (libc::MADV_HUGEPAGE, "MADV_HUGEPAGE", THP),
        Advice::Collapse => {
            (MADV_COLLAPSE, "MADV_COLLAPSE", "it needs Linux 6.1, transparent huge pages and free memory in one piece")
        }
        Advice::Fork => (libc::MADV_DOFORK, "MADV_DOFORK", FORK),
        Advice::NoFork => (libc::MADV_DONTFORK, "MADV_DONTFORK", FORK),
    }
}

/// Asks the kernel to do something with all pages of a range.
///
/// # Safety
/// The range is the caller's own mapping, and nothing relies on what it holds: that stays or becomes zero.
pub(crate) unsafe fn advise(start: usize, bytes: usize, advice: Advice) -> io::Result<()> {
    // SAFETY: as promised.
    checked(unsafe { libc::madvise(start as *mut libc::c_void, bytes, facts(advice).0) })
}

/// Locks the pages of a range in memory.
pub(crate) fn lock(start: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: makes pages of our own and keeps them; it changes nothing of what they hold.
    checked(unsafe { libc::mlock(start as *const libc::c_void, bytes) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
