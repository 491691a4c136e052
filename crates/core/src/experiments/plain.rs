//! Plain experiments: each work over working sets from the first level to memory, with one thread and all, beside the kernel
//! that does the same with regular and with non-temporal stores.

use crate::case::{Case, Protocol, USUAL_MEMORY, Work, steady};
use crate::experiments::choice::Choice;
use crate::experiments::frame::{Frame, PlanError, all_and_one};
use crate::in_order::each_once;
use crate::kernel::StoreKind;
use crate::plain::Experiment;
use crate::units::{Bytes, LINE};

/// The cases of `experiment`, for the memory, width, threads and sizes of `choice`.
///
/// # Errors
/// More threads than CPUs; a size that is too small to share, or more than there is.
pub fn plain(frame: &Frame, experiment: &Experiment, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let memory = choice.memory.first().copied().unwrap_or(USUAL_MEMORY);
    let width = choice.widths.first().copied().unwrap_or(frame.widest());
    let counts = if choice.threads.is_empty() { all_and_one(frame) } else { choice.threads.clone() };
    let mut cases = Vec::new();
    for threads in counts {
        let cpus = frame.placement.first(threads)?;
        for size in sizes(frame, choice, threads)? {
            for work in (experiment.works)() {
                let kernel = |store| steady(work.kernel(), width, store, memory, cpus.clone(), size);
                let [regular, nt] = [StoreKind::Regular, StoreKind::Nt].map(kernel);
                let own = Case { work: Work::Plain(work), protocol: Protocol::Steady, ..regular.clone() };
                cases.extend([own, regular, nt]);
            }
        }
    }
    Ok(each_once(cases))
}

/// Working sets over all threads: those named, or the usual sweep. Each thread has a line of two arrays at least.
fn sizes(frame: &Frame, choice: &Choice, threads: usize) -> Result<Vec<Bytes>, PlanError> {
    let last = Bytes(frame.memory_size(threads).0 / threads as u64);
    let swept = || frame.sweep(1, last).into_iter().map(|size| Bytes(size.0 * threads as u64)).collect();
    let sizes: Vec<Bytes> = if choice.sizes.is_empty() { swept() } else { choice.sizes.clone() };
    let least = Bytes(2 * LINE * threads as u64);
    match sizes.iter().find(|size| **size < least || **size > frame.memory_limit) {
        Some(&size) if size < least => Err(PlanError::TooSmall { size, threads, least }),
        Some(&size) => Err(PlanError::TooLarge { size, limit: frame.memory_limit }),
        None => Ok(sizes),
    }
}
