//! Many streams at once, by their offsets from each other.

pub mod rows;
pub mod sections;
