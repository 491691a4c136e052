//! What moving bytes costs in energy: the machine at rest, and kernels for as long as meters need.

use crate::case::{Case, Protocol, USUAL_MEMORY, Work};
use crate::experiments::choice::{Choice, kernels};
use crate::experiments::frame::{Frame, PlanError};
use crate::kernel::catalog::Kernel;
use crate::kernel::{StoreKind, Width};
use crate::units::Bytes;

/// Kernels whose energy is measured unless others are named: reading, writing, both, and arithmetic.
const KERNELS: [&str; 4] = ["load", "store", "copy", "triad"];
/// A working set of one thread for which the second-level cache is enough almost everywhere: against memory it shows what
/// the way to memory costs.
const CACHED: Bytes = Bytes::kib(256);

/// The machine at rest and each kernel of the choice; where the choice is silent: the main kernels in memory and in a
/// cache, on all CPUs, at the widest width.
pub fn energy(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let mut choice = choice.clone();
    let usual = |names: &[&str]| names.iter().filter_map(|name| Kernel::named(name)).collect::<Vec<_>>();
    if choice.kernels.is_empty() {
        choice.kernels = usual(&KERNELS);
    }
    if choice.threads.is_empty() {
        choice.threads = vec![frame.placement.most()];
    }
    if choice.widths.is_empty() {
        choice.widths = vec![frame.widest()];
    }
    if choice.sizes.is_empty() {
        let threads = choice.threads.iter().copied().max().unwrap_or(1);
        choice.sizes = vec![Bytes(CACHED.0 * threads as u64), frame.memory_size(threads)];
    }
    let mut cases = vec![idle(frame)];
    cases.extend(kernels(frame, &choice)?);
    Ok(cases.into_iter().map(|case| Case { protocol: Protocol::Energy, ..case }).collect())
}

fn idle(frame: &Frame) -> Case {
    let cpus = frame.placement.first(1).unwrap_or_default();
    let case = crate::case::steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, cpus, Bytes(0));
    Case { work: Work::Idle, ..case }
}
