//! How long a load from memory takes while others use it.

pub mod rows;
pub mod sections;
