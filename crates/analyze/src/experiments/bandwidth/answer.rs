//! What kernels over streams tell, all together.

use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::bandwidth::stores::Crossover;
use crate::experiments::bandwidth::stream::Scaling;
use crate::hierarchy::names::{Level, Levels};
use membound_core::machine::Machine;

/// A report's part that kernels over streams gave.
#[derive(Debug, Clone)]
pub struct Bandwidth<'a> {
    /// One row a case.
    pub rows: &'a [BandwidthRow],
    /// Levels of the memory system as all curves show them, fastest first.
    pub levels: &'a [Level],
    /// The same, with what is said of all of them.
    pub hierarchy: &'a Levels,
    /// Where other stores overtake regular ones.
    pub crossovers: &'a [Crossover],
    /// Bandwidth over threads.
    pub scaling: &'a [Scaling],
    /// Where they were measured.
    pub machine: &'a Machine,
    /// What memory can do at most, in words; absent where that is not known without measuring.
    pub memory_limit: Option<String>,
}

impl<'a> Bandwidth<'a> {
    /// A level's best row for a kernel and thread count, and the share of its limit that it reached.
    pub(crate) fn best(&self, level: &Level, kernel: &str, threads: usize) -> Option<(&'a BandwidthRow, Option<f64>)> {
        let best = level.best.iter().find(|best| best.kernel == kernel && best.threads == threads)?;
        Some((self.rows.get(best.row)?, best.share))
    }

    /// The most threads that were measured.
    pub(crate) fn most_threads(&self) -> usize {
        self.rows.iter().map(BandwidthRow::threads).max().unwrap_or(1)
    }
}
