//! Who takes samples.

pub mod device;
#[cfg(any(feature = "opencl", feature = "cuda", feature = "vulkan"))]
mod drivers;
pub mod fake;
pub mod here;
#[cfg(all(feature = "kvm", target_os = "linux", target_arch = "x86_64"))]
pub mod microvm;
pub mod native;
#[cfg(not(all(feature = "kvm", target_os = "linux", target_arch = "x86_64")))]
pub mod typed;
pub mod worker;

use crate::no_visit::NoVisit;
use crate::schedule::Executor;
use membound_core::case::Case;
use membound_core::kernel::Variant;
use membound_core::memory::MemoryKind;
use membound_core::record::{Measured, Outcome};

/// A visit; where memory has no room for it that is kept for cases to come, once more without that.
fn with_room<E: Executor>(executor: &mut E, visit: impl Fn(&mut E) -> Result<Measured, NoVisit>) -> Outcome {
    let visited = match visit(executor) {
        Err(why) if why.is_beyond_allowance() => {
            executor.begin_round();
            visit(executor)
        }
        visited => visited,
    };
    visited.map_or_else(Outcome::from, Outcome::from)
}

/// The types of memory that a case asks for, each once: most cases ask for none.
pub(crate) fn memory_types(case: &Case) -> Vec<MemoryKind> {
    let streams = case.variant().and_then(Variant::row).map(|kernel| kernel.formula().streams).unwrap_or_default();
    let mut kinds: Vec<MemoryKind> = streams.iter().map(|stream| case.memory_of(&stream.name).kind).collect();
    kinds.retain(|kind| kind.is_memory_type());
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}
