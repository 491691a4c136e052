//! The program: from flags to cases to sections; the same plan on many nodes.

pub mod cli;
pub mod fleet;
mod now;
pub mod watch;
