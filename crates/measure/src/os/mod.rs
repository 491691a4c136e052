//! The operating system: one folder each, with the same files.

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(not(target_os = "linux"))]
compile_error!(
    "nothing can be measured on this operating system: it needs a folder beside os/linux with the same files"
);
