//! Levels of the memory system.

pub mod ladder;
pub mod levels;
pub mod model;
pub mod names;
pub mod table;
