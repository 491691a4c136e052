//! One sum in many ways: by which rounding makes the results differ.

use crate::work::rounding::{Arithmetic, Data, SumOrder, Summation};

use crate::case::{Case, USUAL_MEMORY, Work, unroll, usual};
use crate::experiments::frame::{Frame, PlanError};
use crate::in_order::each_once;
use crate::kernel::catalog::Kernel;
use crate::kernel::{StoreKind, Variant, Width};
use crate::units::Bytes;

/// Kernels that are added up in many ways.
pub const SUMMED: [&str; 3] = ["sum", "dot", "triad"];
/// Working set unless one is named: long enough for partial sums to matter, short enough to be summed exactly at once.
const WORKING_SET: Bytes = Bytes::mib(2);
/// As many blocks as threads that machines commonly have.
const BLOCKS: [u32; 3] = [2, 8, 64];

/// Kernels x data x ways: every width at the usual unroll and as a single chain of additions, with and without fused
/// multiply-add, at the widest width every order, and the x87; where numbers are subnormal, with them flushed to zero and not.
pub fn rounding(frame: &Frame, kernels: &[&Kernel], size: Option<Bytes>, seed: u64) -> Result<Vec<Case>, PlanError> {
    let size = size.unwrap_or(WORKING_SET);
    if size > frame.memory_limit {
        return Err(PlanError::TooLarge { size, limit: frame.memory_limit });
    }
    let cpus = frame.placement.first(1)?;
    let mut cases = Vec::new();
    for kernel in kernels {
        crate::experiments::choice::check_size(frame, size, kernel, Default::default(), 1)?;
        let case = |summation: Summation| Case::new(Work::Rounding(summation), USUAL_MEMORY, cpus.clone(), size);
        for &data in Data::ALL {
            cases.extend(ways(frame, kernel, data, seed).into_iter().map(case));
        }
    }
    Ok(each_once(cases))
}

fn ways(frame: &Frame, kernel: &Kernel, data: Data, seed: u64) -> Vec<Summation> {
    let has_product = kernel.formula().flops() > 1;
    let way = |width: Width, unroll: u32, fused: bool| {
        let variant = Variant { unroll, ..usual(kernel.name, width, StoreKind::Regular) };
        let (arithmetic, order) = (Arithmetic::Ieee, SumOrder::Forward);
        Summation { variant, fused, arithmetic, order, blocks: 1, data, seed }
    };
    let mut ways =
        if data == Data::Subnormal { flushed(frame, &way, has_product) } else { rounded(frame, &way, kernel) };
    let chain = way(Width::Scalar, 1, false);
    ways.extend([Arithmetic::X87, Arithmetic::X87Stored].map(|arithmetic| Summation { arithmetic, ..chain.clone() }));
    ways
}

/// Forward, at a width and unroll, fused or not.
type Way<'a> = &'a dyn Fn(Width, u32, bool) -> Summation;

/// What is rounded, and in which order.
fn rounded(frame: &Frame, way: Way<'_>, kernel: &Kernel) -> Vec<Summation> {
    let has_product = kernel.formula().flops() > 1;
    let mut ways = Vec::new();
    for &width in &frame.widths {
        for unroll in [1, unroll(width)] {
            ways.push(way(width, unroll, has_product));
            if has_product {
                ways.push(way(width, unroll, false));
            }
        }
    }
    let (widest, is_sum) = (frame.widest(), kernel.formula().store().is_none());
    for (width, unroll) in [(Width::Scalar, 1), (widest, unroll(widest))].into_iter().filter(|_| is_sum) {
        let whole = way(width, unroll, has_product);
        ways.extend([SumOrder::Backward, SumOrder::Pairwise].map(|order| Summation { order, ..whole.clone() }));
        ways.extend(BLOCKS.map(|blocks| Summation { order: SumOrder::Blocked, blocks, ..whole.clone() }));
    }
    ways
}

/// The narrowest and the widest, with subnormal numbers and without.
fn flushed(frame: &Frame, way: Way<'_>, has_product: bool) -> Vec<Summation> {
    let widest = frame.widest();
    let mut ways = vec![way(Width::Scalar, 1, has_product), way(widest, unroll(widest), has_product)];
    if has_product {
        ways.push(way(Width::Scalar, 1, false));
    }
    let both = |way: Summation| [way.clone(), Summation { arithmetic: Arithmetic::FtzDaz, ..way }];
    ways.into_iter().flat_map(both).collect()
}
