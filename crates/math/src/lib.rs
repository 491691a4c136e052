//! What is worked out of numbers alone, whatever they were measured on: quantities, statistics and models of curves. A build for tests
//! optimises this crate further than any other.

pub mod curves;
pub mod in_order;
pub mod parallel;
pub mod stats;
pub mod units;
