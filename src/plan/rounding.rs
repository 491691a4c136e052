//! One sum in many ways: by which rounding makes the results differ.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, Frame, PlanError, Protocol, USUAL_MEMORY, Work, distinct, steady, unroll};
use crate::kernel::{Kernel, StoreKind, Variant, Width};
use crate::units::{Bytes, words};

words! {
    /// What is added up.
    Data, "data" {
        /// Uniform from 0 to 1: nothing cancels.
        Uniform = "uniform",
        /// Mixed signs; the sum of magnitudes is about 1e4 times the magnitude of the sum.
        Condition1e4 = "condition-1e4",
        /// The same, about 1e8 times.
        Condition1e8 = "condition-1e8",
        /// The same, about 1e12 times.
        Condition1e12 = "condition-1e12",
    }
}

impl Data {
    /// Sum of magnitudes over magnitude of the sum, as aimed at.
    pub fn condition(self) -> f64 {
        match self {
            Data::Uniform => 1.0,
            Data::Condition1e4 => 1e4,
            Data::Condition1e8 => 1e8,
            Data::Condition1e12 => 1e12,
        }
    }
}

words! {
    /// In which order a sum is added up.
    SumOrder, "order" {
        /// From the first element to the last, in as many partial sums as the machine code keeps.
        Forward = "forward",
        /// From the last to the first.
        Backward = "backward",
        /// Halves, each of which is halved again, down to 256 elements.
        Pairwise = "pairwise",
        /// Equal blocks as threads would share them; the blocks' sums are added in order.
        Blocked = "blocked",
    }
}

/// A way to add up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Summation {
    /// The machine code: `sum`, `dot` or `triad` at a width and unroll.
    pub variant: Variant,
    /// Whether a product and a sum are rounded together (fused multiply-add), where the code has both.
    pub fused: bool,
    /// The order.
    pub order: SumOrder,
    /// Blocks of a blocked sum; 1 else.
    pub blocks: u32,
    /// What is added up.
    pub data: Data,
    /// Seed of the data.
    pub seed: u64,
}

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
        super::bandwidth::check_size(frame, size, kernel, Default::default(), 1)?;
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

impl std::fmt::Display for Summation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Summation { variant, fused, order, blocks, data, .. } = self;
        write!(f, "{} {} x {}, {order}", variant.kernel, variant.width, variant.unroll)?;
        if *blocks > 1 {
            write!(f, " in {blocks}")?;
        }
        write!(f, "{}, {data}", if *fused { ", fused" } else { "" })
    }
}
