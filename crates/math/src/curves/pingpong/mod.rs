//! Messages between processes, by their time over their size.

pub mod engine;
pub mod fit;
pub mod path;
