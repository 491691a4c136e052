//! Tests of how samples are made: generated code against plain Rust, memory of every kind, the micro-VM.

#[cfg_attr(not(unix), allow(dead_code))]
mod common;

mod chases;
mod kernels;
#[cfg(unix)]
mod memory;
#[cfg(all(feature = "kvm", target_os = "linux", target_arch = "x86_64"))]
mod microvm;
mod scans;
mod walks;
