//! What can be asked and what is kept: quantities, machines, kinds of memory, kernels, cases, records and statistics.

pub mod case;
pub mod curves;
pub mod experiments;
pub mod in_order;
pub mod index;
pub mod input;
pub mod json;
pub mod kernel;
pub mod machine;
pub mod memory;
pub mod parallel;
pub mod placement;
pub mod plain;
pub mod plan;
pub mod record;
pub mod stats;
pub mod units;
pub mod work;
