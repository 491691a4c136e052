//! Libraries that are loaded while the program runs.

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::path::Path;

use libloading::os::windows::LOAD_LIBRARY_SEARCH_SYSTEM32;
pub(crate) use libloading::os::windows::Library;

/// Loads a library; one that is named without a folder from Windows' own, where drivers put theirs, and not from wherever this program
/// was started. All libraries see each other's functions by the library's name.
///
/// # Safety
/// Code of the library runs: it must be one that may be loaded.
pub(crate) unsafe fn open(name: impl AsRef<OsStr>, _is_global: bool) -> Result<Library, libloading::Error> {
    let name = name.as_ref();
    let flags = if Path::new(name).components().count() > 1 { 0 } else { LOAD_LIBRARY_SEARCH_SYSTEM32 };
    // SAFETY: as promised.
    unsafe { Library::load_with_flags(name, flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_one_of_the_systems() {
        // SAFETY: a library of the system that every process has.
        assert!(unsafe { open("kernel32.dll", false) }.is_ok());
        // This program's folder is searched for none.
        let name = "membound-test-bare.dll";
        let path = std::env::current_exe().unwrap().with_file_name(name);
        std::fs::copy(r"C:\windows\system32\version.dll", &path).unwrap();
        // SAFETY: a library of the system under another name, should it be found.
        assert!(unsafe { open(name, false) }.is_err());
        std::fs::remove_file(path).unwrap();
    }
}
