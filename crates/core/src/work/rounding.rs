//! One sum in one of many ways.

use crate::kernel::Variant;
use crate::units::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
        /// Uniform from 0 to twice the least normal double: half of them are subnormal, and make up a quarter of their sum.
        Subnormal = "subnormal",
    }
}

impl Data {
    /// Sum of magnitudes over magnitude of the sum, as aimed at.
    pub fn condition(self) -> f64 {
        match self {
            Data::Uniform | Data::Subnormal => 1.0,
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

words! {
    /// What an addition or a multiplication leaves behind.
    #[derive(Default)]
    Arithmetic, "arithmetic" {
        /// The nearest double, however small (IEEE 754's binary64).
        #[default]
        Ieee = "ieee",
        /// What a register of the x87 holds, 64 bits of significand: rounded to a double once, when the sum is done.
        X87 = "x87",
        /// The same stored as a double after each operation: rounded twice each time.
        X87Stored = "x87-stored",
        /// The nearest double, but zero instead of a subnormal one, and zero for each subnormal operand: flush to zero (FTZ)
        /// and denormals are zero (DAZ).
        FtzDaz = "ftz-daz",
    }
}

impl Arithmetic {
    /// Whether it is the usual one, which records before this field had.
    fn is_usual(&self) -> bool {
        *self == Arithmetic::Ieee
    }
}

/// A way to add up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Summation {
    /// The machine code: `sum`, `dot` or `triad` at a width and unroll.
    pub variant: Variant,
    /// Whether a product and a sum are rounded together (fused multiply-add), where the code has both.
    pub fused: bool,
    /// What each operation leaves behind.
    #[serde(default, skip_serializing_if = "Arithmetic::is_usual")]
    pub arithmetic: Arithmetic,
    /// The order.
    pub order: SumOrder,
    /// Blocks of a blocked sum; 1 else.
    pub blocks: u32,
    /// What is added up.
    pub data: Data,
    /// Seed of the data.
    pub seed: u64,
}

impl std::fmt::Display for Summation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Summation { variant, fused, arithmetic, order, blocks, data, .. } = self;
        write!(f, "{} {} x {}, {order}", variant.kernel, variant.width, variant.unroll)?;
        if *blocks > 1 {
            write!(f, " in {blocks}")?;
        }
        if !arithmetic.is_usual() {
            write!(f, ", {arithmetic}")?;
        }
        write!(f, "{}, {data}", if *fused { ", fused" } else { "" })
    }
}
