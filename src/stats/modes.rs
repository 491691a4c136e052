//! Two modes: samples that fall into two groups with nothing in between, such as a bandwidth that flips between two
//! values as two threads fall in and out of step. Their median describes neither group.
//!
//! Sorted samples are cut at their widest gap, with a share of at least [`SHARE_MIN`] on either side (so outliers
//! alone are no mode); the two sides are modes if the gap is wide against the spread of *both* of them. The spread is
//! the interquartile range, which outliers of a side can't stretch. The limits were found by simulation in `truth.rs`.

use super::{Modes, quantile};

/// Least share of either group.
const SHARE_MIN: f64 = 0.12;
/// Least number of samples of either group.
const GROUP_MIN: usize = 4;
/// Least width of the gap, in interquartile ranges of the wider group.
const GAP_SPREADS_MIN: f64 = 1.0;
/// Least distance of the two groups' medians relative to the upper one. Less does not matter to anybody, and may be
/// the step of a clock.
const DISTANCE_MIN: f64 = 0.01;

/// The two modes of sorted samples, if there are two.
pub(super) fn find(sorted: &[f64]) -> Option<Modes> {
    let n = sorted.len();
    let group = GROUP_MIN.max((SHARE_MIN * n as f64).ceil() as usize);
    let cut = (group..=n.checked_sub(group)?).max_by(|&i, &j| gap(sorted, i).total_cmp(&gap(sorted, j)))?;
    let (lower, upper) = sorted.split_at(cut);
    let modes =
        Modes { low: quantile(lower, 0.5), high: quantile(upper, 0.5), high_share: upper.len() as f64 / n as f64 };
    let apart = gap(sorted, cut) > GAP_SPREADS_MIN * spread(lower).max(spread(upper));
    let matters = modes.high - modes.low >= DISTANCE_MIN * modes.high.abs().max(modes.low.abs());
    (apart && matters).then_some(modes)
}

fn gap(sorted: &[f64], cut: usize) -> f64 {
    sorted[cut] - sorted[cut - 1]
}

fn spread(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.75) - quantile(sorted, 0.25)
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
