//! One file for each experiment.

pub mod addrmap;
pub mod c2c;
#[cfg(any(feature = "opencl", feature = "cuda", feature = "vulkan"))]
pub mod copies;
#[cfg(any(feature = "opencl", feature = "cuda", feature = "vulkan"))]
pub mod device;
pub mod energy;
pub mod flops;
pub mod latency;
pub mod loaded;
pub mod offsets;
pub mod page_cache;
pub mod pages;
pub mod pingpong;
pub mod plain;
pub mod rounding;
pub mod streams;
