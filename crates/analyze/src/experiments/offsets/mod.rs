//! What offsets cost.

pub mod rows;
pub mod sections;
