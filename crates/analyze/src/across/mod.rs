//! What several experiments say together.

pub mod adapters;
pub mod advisor;
pub mod check;
pub mod compare;
pub mod findings;
pub mod first_touch;
pub mod fleet;
pub mod host_states;
pub mod limits;
pub mod losses;
pub mod numa;
pub mod recipes;
pub mod roofline;
pub mod sections;
pub mod shared_cores;
pub mod tiers;
pub mod traffic;
pub mod verdict;
pub mod warnings;
pub mod watch;
pub mod weights;
