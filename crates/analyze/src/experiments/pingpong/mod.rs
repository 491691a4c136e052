//! Messages between processes.

pub mod rows;
pub mod sections;
