//! The operating system: one folder each, with the same files, and what is the same on all of them.

mod active;
pub mod advice;
mod alike;
pub mod arguments;
pub mod clock;
pub(crate) mod functions;
pub mod library;
pub mod outfile;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(windows)]
mod windows;

#[cfg(windows)]
pub use windows::*;

#[cfg(all(test, not(windows)))]
#[path = "windows/topology.rs"]
mod topology_of_windows;

#[cfg(not(any(target_os = "linux", windows)))]
compile_error!(
    "nothing can be measured on this operating system: it needs a folder beside os/linux with the same files"
);
