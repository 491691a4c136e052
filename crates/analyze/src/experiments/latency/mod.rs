//! How long a load takes: the ladder, translation of addresses, lines in flight, the map over cores.

pub mod chases;
pub mod ladder;
pub mod map;
pub mod parallelism;
pub mod rows;
pub mod sections;
pub mod translation;
