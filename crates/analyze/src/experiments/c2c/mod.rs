//! What passing a line from core to core costs.

pub mod rows;
pub mod sections;
