//! The roofline: what cores compute in registers, what each level delivers without any arithmetic, and kernels between
//! the two.

use std::time::Duration;

use crate::case::{Case, USUAL_MEMORY, Work, steady};
use crate::experiments::choice::{check_size, level_sizes, tidy};
use crate::experiments::frame::{Frame, PlanError};
use crate::in_order::each_once;
use crate::kernel::catalog::Kernel;
use crate::kernel::chase::{Chase, Order};
use crate::kernel::flops::Flops;
use crate::kernel::{Element, StoreKind, Width};
use crate::machine::spec::Balance;
use crate::units::Bytes;

/// Kernels next to without arithmetic: only reads, only writes, as much of either; beyond the first level, where a store
/// may wait for its line, in place as well.
const CEILINGS: [&str; 4] = ["load", "store", "copy", "rewrite"];
/// Kernels that are held against the ceilings, most telling first.
const POINTS: [&str; 9] = ["triad", "daxpy", "dot", "schoenauer", "sum", "scale", "add", "update", "jacobi"];
/// So many of them in the caches between the first level and memory.
const BETWEEN: usize = 3;
/// Kernels whose non-temporal stores are looked at in memory.
const NT: [&str; 4] = ["store", "copy", "triad", "schoenauer"];

/// All cases, for one thread, for those behind one last-level cache (`domain` of them) and for all: with as many kernels as
/// the budget has room for. A machine with large caches needs large working sets to get past them.
pub fn roofline(frame: &Frame, domain: usize, budget: Duration) -> Result<Vec<Case>, PlanError> {
    /// Share of the budget that the first round may take; the others are what intervals are made of.
    const FIRST_ROUND: f64 = 0.5;
    let mut cases = Vec::new();
    for kernels in [POINTS.len(), 4, 2, 1] {
        cases = with_kernels(frame, domain, kernels)?;
        let first_round: Duration = cases.iter().map(Case::least_time).sum();
        if first_round <= budget.mul_f64(FIRST_ROUND) {
            break;
        }
    }
    Ok(cases)
}

/// So many kernels with arithmetic in the first level and in memory.
fn with_kernels(frame: &Frame, domain: usize, kernels: usize) -> Result<Vec<Case>, PlanError> {
    let most = frame.placement.most();
    let mut cases = curve(frame)?;
    for threads in [1, domain.clamp(1, most), most] {
        let cpus = frame.placement.first(threads)?;
        cases.extend(arithmetic_cases(frame, cpus.clone()));
        let sizes = level_sizes(frame, threads);
        let last = sizes.len().saturating_sub(1);
        for (index, &size) in sizes.iter().enumerate() {
            let points = match index {
                0 => &POINTS[..],
                _ if index == last => &POINTS[..kernels],
                _ => &POINTS[..BETWEEN],
            };
            let ceilings = if index == 0 { &CEILINGS[..3] } else { &CEILINGS[..] };
            for name in ceilings.iter().chain(points) {
                cases.push(over(frame, name, StoreKind::Regular, &cpus, size)?);
            }
            let is_asked = |name: &&&str| index == last && (CEILINGS.contains(*name) || points.contains(*name));
            for name in NT.iter().filter(is_asked) {
                cases.push(over(frame, name, StoreKind::Nt, &cpus, size)?);
            }
        }
    }
    for threads in [1, most] {
        cases.extend(without_prefetch(frame, threads)?);
    }
    Ok(each_once(cases))
}

/// Loads from memory in random order by each thread: followed like a list, many independent ones, and pages in random order.
fn without_prefetch(frame: &Frame, threads: usize) -> Result<Vec<Case>, PlanError> {
    /// About as many lines as cores keep in flight.
    const CHAINS: u32 = 16;
    let cpus = frame.placement.first(threads)?;
    let chase = |order: Order, chains: u32| {
        let work = Work::Chase(Chase { chains, ..Chase::of(order) });
        Case::new(work, USUAL_MEMORY, cpus.clone(), frame.memory_size(threads))
    };
    Ok([(Order::Random, 1), (Order::Random, CHAINS), (Order::PageRandom, 1)]
        .map(|(order, chains)| chase(order, chains))
        .into())
}

/// One thread's loads over working sets: they show where levels begin and end, whatever a virtual machine claims.
fn curve(frame: &Frame) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(1)?;
    frame
        .sweep(2, frame.memory_size(1))
        .into_iter()
        .map(|size| over(frame, "load", StoreKind::Regular, &cpus, size))
        .collect()
}

/// Arithmetic in registers on these CPUs.
pub(crate) fn arithmetic_cases(frame: &Frame, cpus: Vec<u32>) -> impl Iterator<Item = Case> {
    arithmetic(frame).map(move |flops| in_registers(flops, cpus.clone()))
}

/// Every width and balance in double precision; single precision at the widest.
fn arithmetic(frame: &Frame) -> impl Iterator<Item = Flops> {
    let widest = frame.widest();
    let of =
        |element: Element, width: Width| Balance::ALL.iter().map(move |&balance| Flops { element, width, balance });
    let doubles = frame.widths.clone().into_iter().flat_map(move |width| of(Element::Double, width));
    doubles.chain(of(Element::Float, widest))
}

fn in_registers(flops: Flops, cpus: Vec<u32>) -> Case {
    Case::new(Work::Flops(flops), USUAL_MEMORY, cpus, Bytes(0))
}

fn over(frame: &Frame, name: &str, store: StoreKind, cpus: &[u32], size: Bytes) -> Result<Case, PlanError> {
    let size = match Kernel::named(name) {
        Some(kernel) => {
            check_size(frame, size, kernel, Element::Double, cpus.len())?;
            tidy(kernel, size, cpus.len())
        }
        None => size,
    };
    Ok(steady(name, frame.widest(), store, USUAL_MEMORY, cpus.to_vec(), size))
}
