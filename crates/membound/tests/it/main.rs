//! All tests that drive the whole program, in one binary. They start it, stop it and look at its files as Unix does.
#![cfg(unix)]

mod common;

mod addrmap;
mod advisor;
mod book;
mod check;
mod cli;
mod compare;
mod contention;
mod cuda;
mod device;
mod energy;
mod exits;
#[cfg(target_arch = "x86_64")]
mod faults;
mod fleet;
mod fleet_jobs;
mod gpu;
mod handover;
mod lab;
mod latency;
mod levels;
mod limits;
mod loaded;
mod machine;
mod manual;
mod mpi;
mod numa;
mod offsets;
mod own_loop;
mod page_cache;
#[cfg(target_arch = "x86_64")]
mod pages;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod placement;
mod plain;
mod published;
mod published_commands;
#[cfg(feature = "report")]
mod report;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod robust;
mod roofline;
mod rounding;
#[cfg(target_arch = "x86_64")]
mod rows;
mod screen;
mod simulated;
mod sockets;
mod stops;
mod streams;
mod sweep;
mod tidy;
mod truth;
mod uncore;
mod verdict;
mod views;
mod vulkan;
mod warnings;
mod watch;
mod whole_runs;
mod words;
