//! The default run: curves and a matrix of kernels, and in brief what the other commands measure.

use std::collections::HashSet;
use std::time::Duration;

use crate::case::{Case, USUAL_MEMORY, Work, steady};
use crate::experiments::bandwidth::stream;
use crate::experiments::choice::{Breadth, CURVES, Choice, best_widths, tidy};
use crate::experiments::frame::{Frame, PlanError, all_and_one, over_chase};
use crate::experiments::kinds::kinds;
use crate::experiments::latency;
use crate::experiments::latency::Detail;
use crate::experiments::offsets::alignment;
use crate::experiments::pages::first_touch;
use crate::experiments::roofline::arithmetic_cases;
use crate::kernel::catalog::{CATALOG, Kernel};
use crate::kernel::chase::{Chase, Order};
use crate::kernel::flops::Flops;
use crate::kernel::{Element, StoreKind, Width};
use crate::machine::spec::Balance;
use crate::placement::scaling;
use crate::plan::Plan;
use crate::units::Bytes;

/// Share of the budget that one visit to each case beyond the headline may take: the headline has the rest.
const FIRST_ROUND: f64 = 0.35;
/// Weights in the summary.
const IN_MEMORY: f64 = 2.0;
const ELSEWHERE: f64 = 1.0;
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

/// The plan of a default run: the headline, then curves and what the other commands measure, then the matrix; in as much
/// detail as the budget has room for. A machine with large caches needs large working sets to get past them.
pub fn characterise(frame: &Frame, budget: Duration) -> Result<Plan, PlanError> {
    let small = Detail::of(budget);
    let whole = Details { small: Detail::Full, large: Detail::Full };
    let mut plan = Plan::default();
    for large in [Detail::Full, Detail::Outline, Detail::Sketch].into_iter().filter(|large| *large <= small) {
        plan = Plan::new(headline(frame, small)?, in_detail(frame, Details { small, large })?);
        if plan.stages.iter().flatten().map(Case::least_time).sum::<Duration>() <= budget.mul_f64(FIRST_ROUND) {
            break;
        }
    }
    let planned: HashSet<Case> = plan.cases().into_iter().collect();
    let whole = Plan::new(headline(frame, Detail::Full)?, in_detail(frame, whole)?).cases();
    plan.left_out = whole.iter().filter(|case| !planned.contains(case)).count();
    Ok(plan)
}

/// What the first screen says: each cache, arithmetic, latencies, memory by one thread and by all. All at the widest. What takes
/// long comes last. A short budget has room for the table of levels alone.
fn headline(frame: &Frame, detail: Detail) -> Result<Vec<(Case, f64)>, PlanError> {
    use StoreKind::{Nt, Regular};
    let mut cases = Vec::new();
    let in_table = [("load", Regular), ("copy", Regular), ("copy", Nt)];
    let beside = [("store", Regular), ("triad", Regular), ("store", Nt), ("triad", Nt)];
    let beside = beside.into_iter().filter(|_| detail > Detail::Sketch);
    let kernels: Vec<_> = in_table.into_iter().chain(beside).collect();
    for threads in all_and_one(frame) {
        let cpus = frame.placement.first(threads)?;
        for (_, size) in frame.in_caches(threads) {
            for name in ["load", "store", "copy"].into_iter().filter(|name| detail > Detail::Sketch || *name != "store")
            {
                let size = sized(name, size, threads);
                cases.push((steady(name, frame.widest(), Regular, USUAL_MEMORY, cpus.clone(), size), ELSEWHERE));
            }
        }
        let widest = arithmetic_cases(frame, cpus).filter(|case| {
            let fused = |flops: &Flops| flops.width == frame.widest() && flops.balance == Balance::Fma;
            matches!(&case.work, Work::Flops(flops) if fused(flops) && flops.element == Element::Double)
        });
        cases.extend(widest.filter(|_| detail > Detail::Sketch).map(|case| (case, ELSEWHERE)));
    }
    for size in frame.one_per_level() {
        cases.push((over_chase(frame, Chase::of(Order::Random), USUAL_MEMORY, size)?, ELSEWHERE));
    }
    if detail > Detail::Sketch {
        // What random order costs is the largest loss of most machines.
        cases.push((over_chase(frame, Chase::of(Order::Forward), USUAL_MEMORY, frame.memory_size(1))?, ELSEWHERE));
    }
    for threads in all_and_one(frame) {
        let cpus = frame.placement.first(threads)?;
        for &(name, store) in &kernels {
            let size = sized(name, frame.memory_size(threads), threads);
            cases.push((steady(name, frame.widest(), store, USUAL_MEMORY, cpus.clone(), size), IN_MEMORY));
        }
    }
    Ok(cases)
}

fn sized(kernel: &str, size: Bytes, threads: usize) -> Bytes {
    Kernel::named(kernel).map_or(size, |kernel| tidy(kernel, size, threads))
}

/// Curves and what other commands measure; then the matrix. Where there may be no time for all of them, the curve of the first
/// screen and the ladder come before the others.
fn in_detail(frame: &Frame, details: Details) -> Result<Vec<Vec<Case>>, PlanError> {
    let detail = details.small;
    let counts = all_and_one(frame);
    let ladder = latency::latency(frame, details.large.min(Detail::Outline))?;
    let (mut first, mut cases) = match detail {
        Detail::Sketch => (vec![loads(frame)?, ladder], Vec::new()),
        _ => (Vec::new(), ladder),
    };
    let mut widths = Vec::new();
    for &threads in &counts {
        cases.extend(curves(frame, threads, details)?);
        widths.extend(matrix(frame, threads, details)?);
    }
    cases.extend(stream(frame, frame.placement.most(), USUAL_MEMORY, frame.widest(), None)?);
    for threads in scaling(frame.placement.most()) {
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
    first.extend([cases, widths]);
    Ok(first)
}

/// The curve of the first screen: loads of one thread.
fn loads(frame: &Frame) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(1)?;
    let case = |size| steady("load", frame.widest(), StoreKind::Regular, USUAL_MEMORY, cpus.clone(), size);
    Ok(frame.sweep(2, Bytes(2 * frame.memory_size(1).0)).into_iter().map(case).collect())
}

/// Kernels x widths x store kinds in the middle of each level.
fn matrix(frame: &Frame, threads: usize, details: Details) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(threads)?;
    let mut cases = Vec::new();
    let mut sizes: Vec<(Bytes, bool)> = frame.in_caches(threads).into_iter().map(|(_, size)| (size, false)).collect();
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
    let width = frame.widest();
    let last = Bytes(frame.memory_size(threads).0 / threads as u64);
    let per_octave = if details.small == Detail::Full { 2 } else { 1 };
    let mut cases = Vec::new();
    for kernel in CURVES {
        // Beyond what is surely memory, where its pages are soon filled.
        let beyond = if details.large == Detail::Full { Bytes(2 * last.0) } else { last };
        let (per_octave, last) = if kernel == "load" { (2, beyond) } else { (per_octave, last) };
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
