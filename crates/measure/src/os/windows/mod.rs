//! Windows 10 and later.

pub mod busy;
pub mod counters;
pub(crate) mod dynamic;
pub mod faults;
pub mod files;
pub mod machine;
pub mod memory;
pub(crate) mod names;
pub mod numa;
pub mod pages;
pub mod processes;
pub mod signals;
mod system;
pub mod terminal;
pub mod thread;
pub(crate) mod time;
mod topology;

/// What is asked for, and Windows has not.
fn lacks<T>(what: &str) -> std::io::Result<T> {
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, format!("Windows has no {what}")))
}

/// The answer of a call that returns 0 and sets the last error.
fn checked(result: windows_sys::core::BOOL) -> std::io::Result<()> {
    if result == 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
