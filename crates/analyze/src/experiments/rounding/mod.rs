//! One sum in many ways.

pub mod rows;
pub mod sections;
