//! Quantiles, the median among them, and the two groups that samples may fall into.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Outer fences lie this many interquartile ranges beyond the quartiles (Tukey, Exploratory Data Analysis, 1977).
pub(crate) const OUTER_FENCE: f64 = 3.0;

/// Two groups of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Modes {
    /// Median of the lower group.
    pub low: f64,
    /// Median of the upper group.
    pub high: f64,
    /// Share of samples in the upper group, 0 to 1.
    pub high_share: f64,
}

/// Median: of an even number of values, the mean of the two in the middle. `None` of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    median_in_place(&mut values.into_iter().collect::<Vec<f64>>())
}

/// The same of values whose order may be lost. Costs time in proportion to their number.
pub fn median_in_place(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let is_even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(values.len() / 2, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| is_even);
    Some(lower.map_or(*upper, |lower| lower.midpoint(*upper)))
}

/// The sample of rank `rank` (from 0), interpolated between two samples where it is not whole. `sorted` is not empty.
pub(crate) fn at_rank(sorted: &[f64], rank: f64) -> f64 {
    let last = sorted.len() - 1;
    let below = (rank.max(0.0) as usize).min(last);
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    // Written so that two huge values of opposite sign do not overflow, and the result never leaves [low, high].
    let weight = (rank - below as f64).clamp(0.0, 1.0);
    (low * (1.0 - weight) + high * weight).clamp(low, high)
}

/// Quantile of sorted samples, of which there is at least one: linear between order statistics (type 7 of Hyndman and Fan,
/// 1996).
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    at_rank(sorted, q * (sorted.len() - 1) as f64)
}

/// Quantile of sorted samples whose error has the median 0 whatever their distribution (type 8 of Hyndman and Fan, 1996): of few
/// samples it lies farther out. `None` of none.
pub(crate) fn median_unbiased(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = q * (sorted.len() as f64 + 1.0 / 3.0) - 2.0 / 3.0;
    (!sorted.is_empty()).then(|| at_rank(sorted, rank.min((sorted.len() - 1) as f64)))
}
