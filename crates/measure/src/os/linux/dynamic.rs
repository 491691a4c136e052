//! Libraries that are loaded while the program runs.

#![allow(unsafe_code)]

use std::ffi::OsStr;

pub(crate) use libloading::os::unix::Library;
use libloading::os::unix::{RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

/// Loads a library, all of its symbols at once; libraries that it loads itself see them if `is_global`.
///
/// # Safety
/// Code of the library runs: it must be one that may be loaded.
pub(crate) unsafe fn open(name: impl AsRef<OsStr>, is_global: bool) -> Result<Library, libloading::Error> {
    // SAFETY: as promised.
    unsafe { Library::open(Some(name.as_ref()), RTLD_NOW | if is_global { RTLD_GLOBAL } else { RTLD_LOCAL }) }
}
