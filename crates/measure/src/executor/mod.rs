//! Who takes samples.

pub mod device;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod drivers;
pub mod fake;
pub mod here;
#[cfg(all(feature = "kvm", target_arch = "x86_64"))]
pub mod microvm;
pub mod native;
pub mod worker;
