//! A node's health in a few cases: memory by all CPUs and by one, each cache by one, and the latency of memory.

use crate::case::{Case, USUAL_MEMORY, steady};
use crate::experiments::frame::{Frame, PlanError, over_chase};
use crate::in_order::each_once;
use crate::kernel::StoreKind;
use crate::kernel::chase::{Chase, Order};

/// What all CPUs do to memory.
const TOGETHER: [&str; 4] = ["load", "store", "copy", "triad"];

/// The cases of a check without a baseline: some ten, of which a round takes about a second. In order of importance.
pub fn check(frame: &Frame) -> Result<Vec<Case>, PlanError> {
    let case = |kernel: &str, threads: usize, size| -> Result<Case, PlanError> {
        let cpus = frame.placement.first(threads)?;
        Ok(steady(kernel, frame.widest(), StoreKind::Regular, USUAL_MEMORY, cpus, size))
    };
    let most = frame.placement.most();
    let mut cases = Vec::new();
    for kernel in TOGETHER {
        cases.push(case(kernel, most, frame.memory_size(most))?);
    }
    cases.push(over_chase(frame, Chase::of(Order::Random), USUAL_MEMORY, frame.memory_size(1))?);
    cases.push(case("load", 1, frame.memory_size(1))?);
    for (_, size) in frame.in_caches(1) {
        cases.push(case("load", 1, size)?);
    }
    Ok(each_once(cases))
}
