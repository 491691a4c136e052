//! One sum in many ways: by which rounding makes the results differ.

use crate::work::rounding::{Data, SumOrder, Summation};

use crate::case::{Case, Protocol, USUAL_MEMORY, Work, distinct, steady, unroll};
use crate::experiments::frame::{Frame, PlanError};
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
/// multiply-add, and at the widest width every order.
pub fn rounding(frame: &Frame, kernels: &[&Kernel], size: Option<Bytes>, seed: u64) -> Result<Vec<Case>, PlanError> {
    let size = size.unwrap_or(WORKING_SET);
    if size > frame.memory_limit {
        return Err(PlanError::TooLarge { size, limit: frame.memory_limit });
    }
    let cpus = frame.placement.first(1)?;
    let mut cases = Vec::new();
    for kernel in kernels {
        crate::experiments::choice::check_size(frame, size, kernel, Default::default(), 1)?;
        let case = |summation: Summation| Case {
            work: Work::Rounding(summation),
            protocol: Protocol::Steady,
            ..steady(kernel.name, Width::Scalar, StoreKind::Regular, USUAL_MEMORY, cpus.clone(), size)
        };
        for &data in Data::ALL {
            cases.extend(ways(frame, kernel, data, seed).into_iter().map(case));
        }
    }
    Ok(distinct(cases))
}

fn ways(frame: &Frame, kernel: &Kernel, data: Data, seed: u64) -> Vec<Summation> {
    let way = |width: Width, unroll: u32, fused: bool, order: SumOrder, blocks: u32| {
        let (store, load) = (StoreKind::Regular, crate::kernel::LoadKind::Regular);
        let variant = Variant { kernel: kernel.name.into(), element: Default::default(), width, store, load, unroll };
        Summation { variant, fused, order, blocks, data, seed }
    };
    let has_product = kernel.formula().flops() > 1;
    let is_sum = kernel.formula().store().is_none();
    let mut ways = Vec::new();
    for &width in &frame.widths {
        for unroll in [1, unroll(width)] {
            ways.push(way(width, unroll, has_product, SumOrder::Forward, 1));
            if has_product {
                ways.push(way(width, unroll, false, SumOrder::Forward, 1));
            }
        }
    }
    let widest = frame.widest();
    if is_sum {
        for (width, unroll) in [(Width::Scalar, 1), (widest, unroll(widest))] {
            ways.extend(
                [SumOrder::Backward, SumOrder::Pairwise].map(|order| way(width, unroll, has_product, order, 1)),
            );
            ways.extend(BLOCKS.map(|blocks| way(width, unroll, has_product, SumOrder::Blocked, blocks)));
        }
    }
    ways
}
