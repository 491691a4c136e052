//! Who takes samples.

pub mod device;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod drivers;
pub mod fake;
pub mod here;
#[cfg(all(feature = "kvm", target_os = "linux", target_arch = "x86_64"))]
pub mod microvm;
pub mod native;
#[cfg(not(all(feature = "kvm", target_os = "linux", target_arch = "x86_64")))]
pub mod typed;
pub mod worker;
