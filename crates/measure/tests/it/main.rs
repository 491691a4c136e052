//! Tests of how samples are made: generated code against plain Rust, memory of every kind, the micro-VM.

mod common;

#[cfg(target_arch = "x86_64")]
mod chases;
#[cfg(target_arch = "x86_64")]
mod kernels;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod memory;
#[cfg(all(feature = "kvm", target_os = "linux", target_arch = "x86_64"))]
mod microvm;
#[cfg(target_arch = "x86_64")]
mod scans;
