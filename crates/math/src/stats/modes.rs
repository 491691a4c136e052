//! Two modes: samples that fall into two groups with nothing in between, such as a bandwidth that flips between two
//! values as two threads fall in and out of step. Their median describes neither group.
//!
//! Sorted samples are cut at their widest gap, with a share of at least [`SHARE_MIN`] on either side, so that outliers
//! alone are no mode. The two sides are modes if the gap is wide against the spread within them, and if two normal
//! groups explain the samples better than any one group of the shapes that timings have: normal, lognormal, or an
//! exponential tail to either side. "Better" is a log-likelihood ratio (outliers of each side left out), as in the
//! information criteria; an exponential tail is the hard case, a handful of its samples often stand apart. The limits
//! come from the simulations in `truth.rs`: fewer than 1 % false modes, and six within-mode deviations are seen nine
//! times in ten at 31 samples, nearly always at 51.

use crate::stats::quantiles::{Modes, OUTER_FENCE, quantile};

/// Least share of either group.
const SHARE_MIN: f64 = 0.15;
/// Least number of samples of either group.
const GROUP_MIN: usize = 4;
/// Least width of the gap, in interquartile ranges of the wider group.
const GAP_SPREADS_MIN: f64 = 0.5;
/// Least log-likelihood ratio. The two groups have two parameters more than one; BIC at n = 50 would ask for 3.9.
const EVIDENCE_MIN: f64 = 4.0;
/// Least distance of the two groups' medians relative to the upper one. Less does not matter to anybody, and may be
/// the step of a clock.
const DISTANCE_MIN: f64 = 0.01;
/// ln(2 pi)/2 + 1/2: the rest of a normal log-likelihood at its maximum, by sample.
const NORMAL_REST: f64 = 1.418_938_533;

/// The two modes of sorted samples, if there are two.
pub(crate) fn find(sorted: &[f64]) -> Option<Modes> {
    let n = sorted.len();
    let group = GROUP_MIN.max((SHARE_MIN * n as f64).ceil() as usize);
    let cut = (group..=n.checked_sub(group)?).max_by(|&i, &j| gap(sorted, i).total_cmp(&gap(sorted, j)))?;
    let (lower, upper) = sorted.split_at(cut);
    let modes =
        Modes { low: quantile(lower, 0.5), high: quantile(upper, 0.5), high_share: upper.len() as f64 / n as f64 };
    let matters = modes.high - modes.low >= DISTANCE_MIN * modes.high.abs().max(modes.low.abs());
    let apart = gap(sorted, cut) >= GAP_SPREADS_MIN * spread(lower).max(spread(upper));
    let found = matters && apart && evidence(without_outliers(lower), without_outliers(upper)) >= EVIDENCE_MIN;
    found.then_some(modes)
}

fn gap(sorted: &[f64], cut: usize) -> f64 {
    sorted[cut] - sorted[cut - 1]
}

fn spread(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.75) - quantile(sorted, 0.25)
}

fn without_outliers(group: &[f64]) -> &[f64] {
    let reach = OUTER_FENCE * spread(group);
    let (low, high) = (quantile(group, 0.25) - reach, quantile(group, 0.75) + reach);
    &group[group.partition_point(|&x| x < low)..group.partition_point(|&x| x <= high)]
}

/// Log-likelihood of two normal groups of one width, less that of the best single group. Infinite where both groups
/// are single values.
fn evidence(lower: &[f64], upper: &[f64]) -> f64 {
    let all: Vec<f64> = lower.iter().chain(upper).copied().collect();
    let n = all.len() as f64;
    let share = |group: &[f64]| group.len() as f64 * (group.len() as f64 / n).ln();
    let within = ((squares(lower) + squares(upper)) / n).sqrt();
    let two = share(lower) + share(upper) - n * (within.ln() + NORMAL_REST);
    let normal = -n * ((squares(&all) / n).sqrt().ln() + NORMAL_REST);
    let (least, greatest) = (all[0], all[all.len() - 1]);
    let tail = -n * ((mean(&all) - least).min(greatest - mean(&all)).ln() + 1.0);
    two - normal.max(tail).max(lognormal(&all))
}

fn lognormal(all: &[f64]) -> f64 {
    if all[0] <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let logs: Vec<f64> = all.iter().map(|x| x.ln()).collect();
    let n = all.len() as f64;
    -n * ((squares(&logs) / n).sqrt().ln() + NORMAL_REST + mean(&logs))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Squared distances from the mean, all together.
pub(crate) fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|x| (x - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_values() {
        let modes = find(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]).unwrap();
        assert_eq!((modes.low, modes.high, modes.high_share), (1.0, 2.0, 0.4));
    }

    #[test]
    fn a_step_of_the_clock_is_no_mode() {
        assert_eq!(find(&[1000.0, 1000.0, 1000.0, 1000.0, 1001.0, 1001.0, 1001.0, 1001.0]), None);
    }

    #[test]
    fn too_few() {
        for n in 0..8 {
            let samples: Vec<f64> = (0..n).map(|i| if i < n / 2 { 1.0 } else { 2.0 }).collect();
            assert_eq!(find(&samples), None);
        }
    }
}
