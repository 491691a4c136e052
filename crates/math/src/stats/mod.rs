//! Statistics of samples: median, spread, interval, outliers, modes, ratios and crossings. Knows no files and no memory.
//!
//! Samples come in *batches*: a batch is taken in one visit, batches lie apart in time. On a shared machine samples of
//! one visit resemble each other more than samples of two visits (the neighbours change, a core clock settles, two
//! threads fall into another rhythm), so a hundred samples of two visits are not a hundred independent ones. Every
//! interval here is widened by as much as the batches differ; see `interval.rs`.
//!
//! Samples that are not finite are left out; samples that lie far off are counted and kept.

pub mod change_point;
pub mod cohort;
pub mod compare;
pub mod draws;
pub mod family;
pub mod interval;
pub mod least_squares;
pub mod line;
pub mod modes;
pub mod quantiles;
pub mod states;
pub mod student;

#[cfg(test)]
mod truth;

use crate::stats::quantiles::{Modes, OUTER_FENCE, quantile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Samples that an adaptive run takes at least, whatever they look like.
pub const SETTLED_SAMPLES_MIN: usize = 11;

/// Half of a 95 % interval over the standard deviation, for normal values: the quantile of 97.5 % as it is usually rounded.
pub const Z95: f64 = 1.96;
/// Standard deviation over median absolute deviation, for normal values.
pub const NORMAL_DEVIATION: f64 = 1.4826;

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
    /// 95 % interval of the median. Below six samples no interval reaches 95 %: it is then all that was seen.
    pub ci95: [f64; 2],
    /// Samples outside the outer fences (3 interquartile ranges beyond the quartiles).
    pub outliers: usize,
    /// The two modes, if the samples fall into two clearly separate groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
}

/// What the samples of all batches say together. `None` if no sample is finite.
pub fn summarize(batches: &[&[f64]]) -> Option<Summary> {
    let sorted = pooled(batches);
    let (&least, &greatest) = (sorted.first()?, sorted.last()?);
    let median = quantile(&sorted, 0.5);
    Some(Summary {
        samples: sorted.len(),
        least,
        greatest,
        median,
        mad: median_deviation(&sorted, median),
        ci95: interval::of_median(&sorted, batches),
        outliers: outliers(&sorted),
        modes: modes::find(&sorted),
    })
}

/// Whether an adaptive run may stop: there are [`SETTLED_SAMPLES_MIN`] samples, and the interval's half-width relative
/// to the median is at most `target` (0.01 for 1 %), which the earlier half of the samples must have foretold.
///
/// A rule that looks after each sample stops by preference where the interval is too narrow by chance: a plain one
/// covers the truth in 91.5 % of runs instead of 95 %. Samples that come after the one that decides are not chosen in
/// this way, so the earlier half decides (by its interval, scaled for the double number of samples), and the whole
/// answers. Batches and samples are taken to be in order of time. Costs two sorts: some microseconds for a hundred.
pub fn is_settled(batches: &[&[f64]], target: f64) -> bool {
    let sorted = pooled(batches);
    if sorted.len() < SETTLED_SAMPLES_MIN || half_width(&sorted, batches) > target {
        return false;
    }
    let earlier = earlier_half(batches);
    half_width(&pooled(&earlier), &earlier) * 0.5f64.sqrt() <= target
}

/// The value fitted to what was measured, with the 95 % interval of the same fitted to points that were drawn again by their
/// noise: [value, low, high]. It holds the value; draws that are not a number are left out.
pub fn with_draws(value: f64, draws: impl IntoIterator<Item = f64>) -> [f64; 3] {
    let mut all: Vec<f64> = draws.into_iter().filter(|draw| !draw.is_nan()).collect();
    all.sort_unstable_by(f64::total_cmp);
    if all.is_empty() {
        return [value; 3];
    }
    [value, quantile(&all, 0.025).min(value), quantile(&all, 0.975).max(value)]
}

/// A standard normal deviate, but never beyond six: the sum of twelve uniform ones has variance 1 (Irwin and Hall, 1927).
pub fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// Half-width of the interval relative to the median.
fn half_width(sorted: &[f64], batches: &[&[f64]]) -> f64 {
    let [low, high] = interval::of_median(sorted, batches);
    // A half, first: the whole may overflow.
    let width = high / 2.0 - low / 2.0;
    if width == 0.0 { 0.0 } else { width / quantile(sorted, 0.5).abs() }
}

/// The earlier half of the samples, at least one.
fn earlier_half<'a>(batches: &[&'a [f64]]) -> Vec<&'a [f64]> {
    let mut left = batches.iter().copied().flatten().filter(|x| x.is_finite()).count().div_ceil(2);
    let mut earlier = Vec::new();
    for batch in batches {
        let mut end = 0;
        while end < batch.len() && left > 0 {
            left -= usize::from(batch[end].is_finite());
            end += 1;
        }
        earlier.push(&batch[..end]);
    }
    earlier
}

/// All finite samples, rising.
fn pooled(batches: &[&[f64]]) -> Vec<f64> {
    let mut all: Vec<f64> = batches.iter().copied().flatten().copied().filter(|x| x.is_finite()).collect();
    all.sort_unstable_by(f64::total_cmp);
    all
}

fn median_deviation(sorted: &[f64], median: f64) -> f64 {
    crate::stats::quantiles::median(sorted.iter().map(|x| (x - median).abs())).unwrap_or(0.0)
}

fn outliers(sorted: &[f64]) -> usize {
    let (q1, q3) = (quantile(sorted, 0.25), quantile(sorted, 0.75));
    let reach = OUTER_FENCE * (q3 - q1);
    sorted.iter().filter(|&&x| x < q1 - reach || x > q3 + reach).count()
}

#[cfg(test)]
mod tests {
    use crate::stats::quantiles::median;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        let s = summarize(&[&[3.0, 1.0, 2.0], &[5.0, f64::NAN, 4.0, 100.0]]).unwrap();
        assert_eq!((s.samples, s.least, s.greatest), (6, 1.0, 100.0));
        assert_eq!((s.median, s.mad), (3.5, 1.5));
        // Quartiles 2.25 and 4.75: the upper outer fence is 4.75 + 3 * 2.5 = 12.25.
        assert_eq!(s.outliers, 1);
        assert_eq!(s.modes, None);
    }

    #[test]
    fn medians_by_hand() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median([9.0, 5.0]), Some(7.0), "of two not the greater");
        assert_eq!(median([]), None);
        assert_eq!(median([f64::MAX, f64::MAX]), Some(f64::MAX));
    }

    #[test]
    fn draws_make_an_interval() {
        // Of 41 draws from 0 to 40, a fortieth lies below 1 and above 39.
        let draws = || (0..41).map(f64::from).chain([f64::NAN]);
        assert_eq!(with_draws(20.0, draws()), [20.0, 1.0, 39.0]);
        assert_eq!(with_draws(50.0, draws()), [50.0, 1.0, 50.0]);
        assert_eq!(with_draws(5.0, []), [5.0; 3]);
    }

    #[test]
    fn deviates_are_standard() {
        let mut random = fastrand::Rng::with_seed(1);
        let drawn: Vec<f64> = (0..20_000).map(|_| normal(&mut random)).collect();
        let moment = |power: i32| drawn.iter().map(|x| x.powi(power)).sum::<f64>() / drawn.len() as f64;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.03, "{} {}", moment(1), moment(2));
    }

    #[test]
    fn degenerate_samples() {
        assert_eq!(summarize(&[]), None);
        assert_eq!(summarize(&[&[], &[f64::NAN, f64::INFINITY]]), None);
        let one = summarize(&[&[7.0]]).unwrap();
        assert_eq!((one.median, one.mad, one.ci95, one.outliers), (7.0, 0.0, [7.0; 2], 0));
        assert_eq!(summarize(&[&[1.0], &[3.0]]).unwrap().ci95, [1.0, 3.0]);
        let same = summarize(&[&[2.0; 9], &[2.0; 9]]).unwrap();
        assert_eq!((same.ci95, same.outliers, same.modes), ([2.0; 2], 0, None));
        assert!(is_settled(&[&[2.0; 9], &[2.0; 9]], 0.01));
        assert!(!is_settled(&[&[2.0; 9]], 0.01), "too few");
        assert!(!is_settled(&[], 0.01));
    }

    fn anything() -> impl Strategy<Value = f64> {
        prop_oneof![
            8 => 0.1..1e3f64,
            1 => any::<f64>(),
            1 => Just(f64::NAN),
            1 => Just(5.0),
        ]
    }

    fn refs(batches: &[Vec<f64>]) -> Vec<&[f64]> {
        batches.iter().map(Vec::as_slice).collect()
    }

    proptest! {
        #[test]
        fn never_panics_and_stays_ordered(batches in prop::collection::vec(prop::collection::vec(anything(), 0..30), 0..7)) {
            is_settled(&refs(&batches), 0.01);
            if let Some(s) = summarize(&refs(&batches)) {
                prop_assert!(s.least <= s.ci95[0] && s.ci95[0] <= s.median, "{s:?}");
                prop_assert!(s.median <= s.ci95[1] && s.ci95[1] <= s.greatest, "{s:?}");
            }
        }

        #[test]
        fn order_within_a_batch_is_nothing(batches in prop::collection::vec(prop::collection::vec(anything(), 0..30), 0..7)) {
            let turned: Vec<Vec<f64>> = batches.iter().map(|b| b.iter().rev().copied().collect()).collect();
            prop_assert_eq!(summarize(&refs(&batches)), summarize(&refs(&turned)));
        }

        #[test]
        fn a_unit_is_nothing(batches in prop::collection::vec(prop::collection::vec(0.1..1e3f64, 0..30), 0..7), power in -20i32..20) {
            // Powers of two scale without rounding, so the answers agree to the last bit.
            let scale = 2f64.powi(power);
            let scaled: Vec<Vec<f64>> = batches.iter().map(|b| b.iter().map(|x| x * scale).collect()).collect();
            let expect = summarize(&refs(&batches)).map(|s| Summary {
                least: s.least * scale,
                greatest: s.greatest * scale,
                median: s.median * scale,
                mad: s.mad * scale,
                ci95: s.ci95.map(|x| x * scale),
                modes: s.modes.map(|m| Modes { low: m.low * scale, high: m.high * scale, ..m }),
                ..s
            });
            prop_assert_eq!(summarize(&refs(&scaled)), expect);
            prop_assert_eq!(is_settled(&refs(&scaled), 0.02), is_settled(&refs(&batches), 0.02));
        }
    }
}
