//! Linux.

pub mod busy;
pub mod clock;
pub mod counters;
pub mod faults;
pub mod files;
pub mod library;
pub mod machine;
pub mod memory;
pub mod numa;
pub mod outfile;
pub mod pages;
pub mod processes;
pub mod signals;
#[cfg(target_arch = "aarch64")]
pub mod sve;
pub mod terminal;
pub mod thread;
