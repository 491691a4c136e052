//! Who takes samples.

pub mod fake;
pub mod here;
#[cfg(feature = "kvm")]
pub mod microvm;
pub mod native;
pub mod worker;
