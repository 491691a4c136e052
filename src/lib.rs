//! membound measures what bounds memory-bound code: how fast every level of the memory system is, for each kind of
//! memory, each way of touching it and each place it is touched from, how far that is from the limit, and why.
//!
//! The modules stand in reading order; each may use only those above it (see ARCHITECTURE.md). Blank lines keep
//! rustfmt from sorting them.

pub mod units;

pub mod machine;

pub mod kernel;
pub mod memory;
pub mod mpi;
pub mod placement;

pub mod plan;

pub mod record;

pub mod run;
pub mod stats;

pub mod model;

pub mod view;

pub mod cli;
