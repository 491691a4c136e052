//! The default run: curves and a matrix of kernels, and in brief what the other commands measure.

use std::time::Duration;

use super::bandwidth::{best_widths, stream, tidy};
use super::roofline::arithmetic_cases;
use super::{
    Breadth, Case, Choice, Frame, PlanError, USUAL_MEMORY, alignment, distinct, first_touch, kinds, latency, steady,
};
use crate::kernel::{CATALOG, Kernel, StoreKind, Width};
use crate::units::Bytes;

/// How much a default run looks at: decided by its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The curve of loads and the main kernels at each level.
    Sketch,
    /// All kernels and store kinds, at the widest width.
    Outline,
    /// All widths.
    Full,
}

impl Detail {
    fn of(budget: Duration) -> Self {
        match budget.as_secs() {
            0..12 => Detail::Sketch,
            12..35 => Detail::Outline,
            _ => Detail::Full,
        }
    }
}

/// The kernels whose curve over working sets a default run draws, with regular and non-temporal stores.
pub(super) const CURVES: [&str; 4] = ["load", "store", "copy", "triad"];

/// Share of the budget that the first round may take; the others are what intervals are made of.
const FIRST_ROUND: f64 = 0.5;
/// Working sets beyond this are looked at in less detail where the budget is short of them.
const LARGE: Bytes = Bytes::mib(64);

/// How much is looked at, by working set.
#[derive(Debug, Clone, Copy)]
struct Details {
    small: Detail,
    large: Detail,
}

impl Details {
    fn of(self, working_set: Bytes) -> Detail {
        if working_set > LARGE { self.large } else { self.small }
    }
}

/// The cases of a default run: in as much detail as the budget has room for. A machine with large caches needs large
/// working sets to get past them.
pub fn characterise(frame: &Frame, budget: Duration) -> Result<Vec<Case>, PlanError> {
    let small = Detail::of(budget);
    let mut cases = Vec::new();
    for large in [Detail::Full, Detail::Outline, Detail::Sketch].into_iter().filter(|large| *large <= small) {
        cases = in_detail(frame, Details { small, large })?;
        if cases.iter().map(Case::least_time).sum::<Duration>() <= budget.mul_f64(FIRST_ROUND) {
            break;
        }
    }
    Ok(cases)
}

fn in_detail(frame: &Frame, details: Details) -> Result<Vec<Case>, PlanError> {
    let detail = details.small;
    let counts = if frame.placement.most() > 1 { vec![1, frame.placement.most()] } else { vec![1] };
    let mut cases = latency(frame, details.large.min(Detail::Outline))?;
    for &threads in &counts {
        // Where memory begins is known from the curve: if time is short, that comes first.
        cases.extend(curves(frame, threads, details)?);
        cases.extend(matrix(frame, threads, details)?);
    }
    cases.extend(stream(frame, frame.placement.most(), USUAL_MEMORY, frame.widest())?);
    for threads in frame.placement.scaling() {
        for (kernel, store) in [("load", StoreKind::Regular), ("copy", StoreKind::Nt), ("triad", StoreKind::Regular)] {
            let cpus = frame.placement.first(threads)?;
            cases.push(steady(kernel, frame.widest(), store, USUAL_MEMORY, cpus, frame.memory_size(threads)));
        }
    }
    if detail > Detail::Sketch {
        for &threads in &counts {
            cases.extend(arithmetic_cases(frame, frame.placement.first(threads)?));
        }
        cases.extend(kinds(frame, &Choice::default(), Breadth::Brief)?);
    }
    if detail == Detail::Full {
        cases.extend(first_touch(frame, Breadth::Brief)?);
        cases.extend(alignment(frame, Breadth::Brief));
    }
    Ok(distinct(cases))
}

/// Kernels x widths x store kinds in the middle of each level.
fn matrix(frame: &Frame, threads: usize, details: Details) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(threads)?;
    let mut cases = Vec::new();
    let share = |size: Bytes| Bytes(size.0 * threads as u64);
    // A last level that all threads share holds no more for more threads.
    let shared = frame.last_level[1] == frame.last_level[0];
    let last = frame.caches.last().map(|c| c.0);
    let mut sizes: Vec<(Bytes, bool)> = frame
        .probes()
        .into_iter()
        .map(|(level, size)| {
            (if shared && Some(level) == last && frame.caches.len() > 1 { size } else { share(size) }, false)
        })
        .collect();
    sizes.push((frame.memory_size(threads), true));
    for (size, in_memory) in sizes {
        for kernel in CATALOG {
            for (width, store) in ways(kernel, frame, in_memory, details.of(size)) {
                cases.push(steady(kernel.name, width, store, USUAL_MEMORY, cpus.clone(), tidy(kernel, size, threads)));
            }
        }
    }
    Ok(cases)
}

/// The widths and store kinds worth measuring for a kernel.
fn ways(kernel: &Kernel, frame: &Frame, in_memory: bool, detail: Detail) -> Vec<(Width, StoreKind)> {
    let main = CURVES.contains(&kernel.name);
    let stores = kernel.formula().store().is_some();
    let widths: Vec<Width> = match detail {
        // In memory width matters little: the main kernels show that.
        Detail::Full if main || !in_memory => frame.widths.clone(),
        _ => best_widths(frame),
    };
    if detail == Detail::Sketch && !main {
        return Vec::new();
    }
    let mut ways: Vec<(Width, StoreKind)> = widths.iter().map(|&w| (w, StoreKind::Regular)).collect();
    if stores {
        ways.extend(widths.iter().map(|&w| (w, StoreKind::Nt)));
    }
    if ["store", "copy"].contains(&kernel.name) && detail > Detail::Sketch {
        ways.push((Width::W128, StoreKind::NtMasked));
        ways.push((Width::Scalar, StoreKind::Rep));
        if detail == Detail::Full {
            ways.push((Width::Scalar, StoreKind::NtMasked));
        }
    }
    ways
}

/// Bandwidth over working sets.
fn curves(frame: &Frame, threads: usize, details: Details) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(threads)?;
    let width = best_widths(frame)[0];
    let last = Bytes(frame.memory_size(threads).0 / threads as u64);
    let per_octave = if details.small == Detail::Full { 2 } else { 1 };
    let mut cases = Vec::new();
    for kernel in CURVES {
        let (per_octave, last) = if kernel == "load" { (2, Bytes(2 * last.0)) } else { (per_octave, last) };
        for size in frame.sweep(per_octave, last) {
            let set = Bytes(size.0 * threads as u64);
            let stores: &[StoreKind] = match (kernel, details.of(set)) {
                ("load", _) => &[StoreKind::Regular],
                (_, Detail::Sketch) if threads > 1 || kernel != "copy" => &[],
                _ => &[StoreKind::Regular, StoreKind::Nt],
            };
            let case = |&store| steady(kernel, width, store, USUAL_MEMORY, cpus.clone(), set);
            cases.extend(stores.iter().map(case));
        }
    }
    Ok(cases)
}
