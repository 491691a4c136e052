//! Linux.

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
#[cfg(target_arch = "aarch64")]
pub(crate) mod registers;
pub mod signals;
#[cfg(target_arch = "aarch64")]
pub mod sve;
pub mod terminal;
pub mod thread;
pub(crate) mod time;
