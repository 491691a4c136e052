//! The answers of several experiments together as sections.

pub mod advisor;
pub mod check;
pub mod compare;
pub mod devices;
pub mod fleet;
pub mod host_states;
pub mod kernel;
pub mod limits;
pub mod machine;
pub mod maps;
pub mod overview;
pub mod roofline;
pub mod sweep;
pub mod time;
pub mod verdict;
pub mod warnings;
