//! What is done: one file for each experiment whose work is not a kernel of `kernel`.

pub mod addrmap;
pub mod c2c;
pub mod common;
pub mod copies;
pub mod device;
pub mod loaded;
pub mod page_cache;
pub mod pages;
pub mod pingpong;
pub mod rounding;
pub mod sweep;
