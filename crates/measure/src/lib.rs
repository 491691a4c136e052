//! Makes samples: all machine code, every call of the operating system and all `unsafe` is here.

pub mod answers;
pub mod arena;
pub mod asm;
#[cfg(any(
    not(all(feature = "kvm", target_os = "linux", target_arch = "x86_64")),
    any(feature = "opencl", feature = "cuda", feature = "vulkan")
))]
mod behaviour;
pub mod bench;
pub mod chaser;
pub mod code;
pub mod controllers;
pub mod crew;
#[cfg(feature = "cuda")]
pub mod cuda;
mod distances;
#[cfg(any(feature = "opencl", feature = "cuda", feature = "vulkan"))]
pub mod driver;
pub mod executor;
pub mod experiments;
pub mod linkage;
pub mod machine;
pub mod memory;
pub mod meters;
pub mod mpi;
pub mod no_visit;
#[cfg(feature = "opencl")]
pub mod opencl;
pub mod os;
pub mod schedule;
pub mod solo;
pub mod team;
pub mod threads;
pub mod turn;
#[cfg(feature = "vulkan")]
pub mod vulkan;
pub mod warm_up;

#[cfg(test)]
#[path = "../../core/tests/it/common/skip.rs"]
mod skip;
