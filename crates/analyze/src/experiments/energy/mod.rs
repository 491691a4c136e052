//! What work costs in energy.

pub mod rows;
pub mod sections;
