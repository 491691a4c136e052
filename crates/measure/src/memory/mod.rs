//! Memory of every kind, mapped, and the proof of what it is.

pub mod allowance;
pub mod anonymous;
pub mod bind;
pub mod device;
pub mod file;
pub mod filler;
pub(crate) mod huge;
pub mod no_memory;
pub mod part;
pub mod places;
pub mod providers;
pub mod recipe;
pub mod region;
pub mod sweep;
pub mod touch;
