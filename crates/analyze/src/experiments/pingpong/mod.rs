//! Messages between processes.

pub mod engine;
pub mod fit;
pub mod path;
pub mod rows;
pub mod sections;
