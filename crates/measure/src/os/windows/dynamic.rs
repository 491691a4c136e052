//! Libraries that are loaded while the program runs.

#![allow(unsafe_code)]

use std::ffi::OsStr;

pub(crate) use libloading::os::windows::Library;

/// Loads a library. All libraries see each other's functions by the library's name.
///
/// # Safety
/// Code of the library runs: it must be one that may be loaded.
pub(crate) unsafe fn open(name: impl AsRef<OsStr>, _is_global: bool) -> Result<Library, libloading::Error> {
    // SAFETY: as promised.
    unsafe { Library::new(name.as_ref()) }
}
