//! Statistics of samples: best, median, spread, interval, outliers, modes. Knows no files and no memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a set of samples says. Values are durations or rates; the statistics do not care.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Number of samples.
    pub samples: usize,
    /// Least sample.
    pub least: f64,
    /// Greatest sample.
    pub greatest: f64,
    /// Median.
    pub median: f64,
    /// Median absolute deviation from the median.
    pub mad: f64,
    /// 95 % interval of the median.
    pub ci95: [f64; 2],
    /// Samples outside the outer fences (3 interquartile ranges beyond the quartiles).
    pub outliers: usize,
    /// The two modes, if the samples fall into two clearly separate groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
}

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
