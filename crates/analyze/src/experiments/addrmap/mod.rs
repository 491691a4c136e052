//! Where lines live.

pub mod linear;
pub mod rows;
pub mod rule;
pub mod sections;
pub mod solver;
