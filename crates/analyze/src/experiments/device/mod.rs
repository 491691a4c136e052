//! Memory that a device shares with the processor.

pub mod rows;
pub mod sections;
