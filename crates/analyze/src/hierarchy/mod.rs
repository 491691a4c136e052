//! Levels of the memory system: their names and their table.

pub mod names;
pub mod table;
