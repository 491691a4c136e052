//! A driver's library: loaded, and its functions looked up.

#![allow(unsafe_code)]

use crate::os::dynamic;
use crate::os::dynamic::Library;
use crate::os::functions::said;

/// Why there are no functions to call.
#[derive(Debug)]
pub(crate) enum NoLibrary {
    /// There is no library, or it can't be loaded.
    Absent(String),
    /// It lacks a function.
    TooOld(&'static str),
}

/// The functions of the first of these libraries that can be loaded, or why the first can't be. Both stay for as long as the process
/// lives: drivers leave threads behind.
///
/// # Safety
/// The names must be those of a driver's interface, and the process one that may crash: code of the library runs.
pub(crate) unsafe fn load<F>(
    names: &[&str],
    find: impl FnOnce(&Library) -> Result<F, &'static str>,
) -> Result<&'static F, NoLibrary> {
    let mut why = String::new();
    for name in names {
        // SAFETY: as the caller promises.
        match unsafe { dynamic::open(name, false) } {
            Ok(library) => {
                let functions = find(Box::leak(Box::new(library))).map_err(NoLibrary::TooOld)?;
                return Ok(Box::leak(Box::new(functions)));
            }
            Err(fault) if why.is_empty() => why = said(&fault),
            Err(_) => {}
        }
    }
    Err(NoLibrary::Absent(why))
}
