//! What pages cost.

pub mod rows;
pub mod sections;
