//! What can be asked and what is kept: machines, kinds of memory, kernels, cases and records.

pub mod case;
pub mod experiments;
pub mod index;
pub mod input;
pub mod json;
pub mod kernel;
pub mod machine;
pub mod memory;
pub mod placement;
pub mod plain;
pub mod plan;
pub mod record;
pub mod work;

pub use membound_math::{curves, in_order, parallel, stats, units};
