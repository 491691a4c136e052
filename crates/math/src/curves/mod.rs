//! Models of curves. They know sizes, rates and times, but no record and no row: `analyze` gives them the points of its rows.

pub mod hierarchy;
pub mod pingpong;
pub mod queue;
