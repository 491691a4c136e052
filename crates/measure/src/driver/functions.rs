//! The table of a library's functions: each by its name, and what it takes and answers.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use crate::os::dynamic;
use crate::os::dynamic::Library;

/// Loads the first of these libraries that can be, for as long as the process lives: drivers leave threads behind. Or why the first
/// can't be.
///
/// # Safety
/// The names must be those of a driver's interface, and the process one that may crash: code of the library runs.
pub(crate) unsafe fn load(names: &[&str]) -> Result<&'static Library, String> {
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
    Err(why)
}

/// Where a library has the function of that name; nothing where it has none.
pub(crate) fn of_library(library: &Library, name: &CStr) -> Option<*const c_void> {
    // SAFETY: only its address is taken.
    unsafe { library.get::<*const c_void>(name.to_bytes_with_nul()) }.ok().map(|found| *found)
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
            /// Looks all of them up; the name of the first that is missing.
            ///
            /// # Safety
            /// `find` must give the function of that name, which must have the type that the table says, for as long as the
            /// table lives.
            unsafe fn find(find: impl Fn(&CStr) -> Option<*const c_void>) -> Result<Self, &'static str> {
                // A name with its end is a text.
                let find = |name: &'static str| CStr::from_bytes_with_nul(name.as_bytes()).ok().and_then(&find);
                // SAFETY: as the caller promises; a pointer to a function is one to its code, and is not null.
                unsafe {
                    Ok(Functions {
                        $($field: std::mem::transmute::<*const c_void, $function>(
                            find(concat!($name, "\0")).ok_or($name)?,
                        ),)+
                        $($later: find(concat!($later_name, "\0"))
                            .map(|found| std::mem::transmute::<*const c_void, $later_function>(found)),)*
                    })
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
