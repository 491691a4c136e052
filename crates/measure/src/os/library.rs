//! Functions of the C library that move and fill memory.

#![allow(unsafe_code)]

use membound_core::plain::library::Library;

/// Calls a function of the C library: from `from`, which a fill leaves alone, to `to`.
///
/// # Panics
/// Where a copy's source is shorter than its destination: a fault of the caller.
pub fn call(function: Library, to: &mut [u8], from: &[u8], byte: u8) {
    assert!(function == Library::Memset || from.len() >= to.len());
    let (to, from, bytes) = (to.as_mut_ptr().cast(), from.as_ptr().cast(), to.len());
    // SAFETY: both are borrowed slices that do not overlap, and the source is as long as the destination, as asserted.
    unsafe {
        match function {
            Library::Memcpy => libc::memcpy(to, from, bytes),
            Library::Memmove => libc::memmove(to, from, bytes),
            Library::Memset => libc::memset(to, byte.into(), bytes),
        };
    }
}
