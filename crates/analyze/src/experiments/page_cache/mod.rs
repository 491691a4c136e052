//! Page cache beside a kernel.

pub mod rows;
pub mod sections;
