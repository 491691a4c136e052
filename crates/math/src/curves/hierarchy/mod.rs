//! Levels of the memory system, by bandwidth and latency over working sets.

mod edge;
pub mod ladder;
pub mod levels;
pub mod model;
mod noise;
