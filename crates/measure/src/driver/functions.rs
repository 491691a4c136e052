//! The table of a library's functions: each by its name, and what it takes and answers.

#![allow(unsafe_code)]

use std::ffi::c_void;

use crate::os::dynamic;
use crate::os::dynamic::Library;

/// Why there are no functions to call.
#[derive(Debug)]
pub(crate) enum NoLibrary {
    /// There is no library, or it can't be loaded.
    Absent(String),
    /// It lacks a function.
    TooOld(&'static str),
}

/// Loads the first of these libraries that can be, for as long as the process lives: drivers leave threads behind. Or why the first
/// can't be.
///
/// # Safety
/// The names must be those of a driver's interface, and the process one that may crash: code of the library runs.
pub(crate) unsafe fn load(names: &[&str]) -> Result<&'static Library, NoLibrary> {
    let mut why = String::new();
    for name in names {
        // SAFETY: as the caller promises.
        match unsafe { dynamic::open(name, false) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(fault) if why.is_empty() => {
                why = std::error::Error::source(&fault).map_or_else(|| fault.to_string(), ToString::to_string);
            }
            Err(_) => {}
        }
    }
    Err(NoLibrary::Absent(why))
}

/// Where a library has the function of that name; nothing where it has none.
pub(crate) fn find(library: &Library, name: &str) -> Option<*const c_void> {
    // SAFETY: only its address is taken.
    unsafe { library.get::<*const c_void>(name.as_bytes()) }.ok().map(|found| *found)
}

/// Makes `Functions`, a table of functions that are looked up at run time. Those after the semicolon may be missing.
macro_rules! functions {
    ($($field:ident = $name:literal: $function:ty),+ $(,)?; $($later:ident = $later_name:literal: $later_function:ty),* $(,)?) => {
        #[allow(missing_debug_implementations)]
        struct Functions {
            $($field: $function,)+
            $($later: Option<$later_function>,)*
        }

        impl Functions {
            /// Looks all of them up in the first of these libraries that can be loaded.
            ///
            /// # Safety
            /// As of `load`; and each function must have the type that the table says.
            unsafe fn load(names: &[&str]) -> Result<&'static Self, $crate::driver::functions::NoLibrary> {
                use std::{ffi::c_void, mem::transmute};
                use $crate::driver::functions::{NoLibrary, find, load};
                // SAFETY: as the caller promises; a pointer to a function is one to its code, and is not null.
                unsafe {
                    let library = load(names)?;
                    Ok(Box::leak(Box::new(Functions {
                        $($field: transmute::<*const c_void, $function>(
                            find(library, $name).ok_or(NoLibrary::TooOld($name))?,
                        ),)+
                        $($later: find(library, $later_name)
                            .map(|found| transmute::<*const c_void, $later_function>(found)),)*
                    })))
                }
            }
        }
    };
    ($($field:ident = $name:literal($($argument:ty),*) -> $result:ty),+ $(,)?; $($later:ident = $later_name:literal($($later_argument:ty),*) -> $later_result:ty),* $(,)?) => {
        $crate::driver::functions::functions! {
            $($field = $name: unsafe extern "C" fn($($argument),*) -> $result,)+;
            $($later = $later_name: unsafe extern "C" fn($($later_argument),*) -> $later_result,)*
        }
    };
}

pub(crate) use functions;
