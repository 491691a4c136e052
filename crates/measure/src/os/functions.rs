//! Functions of libraries that are loaded while the program runs.

/// Makes `Functions`, a table of functions that are looked up by their names: each with what it takes and answers. Those after the
/// semicolon may be missing.
macro_rules! functions {
    ($($field:ident = $name:literal: $function:ty),+ $(,)?; $($later:ident = $later_name:literal: $later_function:ty),* $(,)?) => {
        #[allow(missing_debug_implementations)]
        #[derive(Clone, Copy)]
        struct Functions {
            $($field: $function,)+
            $($later: Option<$later_function>,)*
        }

        impl Functions {
            /// Looks all of them up; the name of the first that is missing.
            ///
            /// # Safety
            /// The library's functions must have the types that the table says, and it must stay loaded for as long as the table lives.
            unsafe fn find(library: &$crate::os::dynamic::Library) -> Result<Self, &'static str> {
                // SAFETY: as the caller promises.
                unsafe {
                    Ok(Functions {
                        $($field: *library.get::<$function>(concat!($name, "\0").as_bytes()).map_err(|_| $name)?,)+
                        $($later: library.get::<$later_function>(concat!($later_name, "\0").as_bytes()).ok().map(|found| *found),)*
                    })
                }
            }
        }
    };
    ($($field:ident = $name:literal($($argument:ty),*) -> $result:ty),+ $(,)?; $($later:ident = $later_name:literal($($later_argument:ty),*) -> $later_result:ty),* $(,)?) => {
        $crate::os::functions::functions! {
            $($field = $name: unsafe extern "C" fn($($argument),*) -> $result,)+;
            $($later = $later_name: unsafe extern "C" fn($($later_argument),*) -> $later_result,)*
        }
    };
}

pub(crate) use functions;

/// The loader's own words, which stand behind those of the crate.
pub(crate) fn said(fault: &dyn std::error::Error) -> String {
    fault.source().map_or_else(|| fault.to_string(), ToString::to_string)
}
