//! One among many that should be alike: how far is it from them, and would chance take it so far?
//!
//! *Distance.* The middle of the many is their median, their scale the median absolute deviation. Both hold while fewer than
//! half of the values are faulty; the faulty ones widen neither.
//!
//! *Tails.* What lies far out among healthy machines is seldom as rare as a normal distribution says. So the tail is measured:
//! of all distances on the side where faults don't lead (faults make slower), the 99th percentile against the median. Student's
//! t with as many degrees of freedom as have that ratio then says how probable a distance is. It is asked
//! for probabilities far smaller than those that were seen, so it is never taken to be better than [`FREEDOM_MOST`].
//!
//! *Many tests.* Benjamini and Yekutieli's rule (Annals of Statistics 29, 2001): of all that is called a finding the expected
//! share of false ones is at most the rate asked for, however tests depend on each other: the figures of one machine do,
//! since it is faster or slower as a whole.

use crate::stats::family::{REPEATABLE, UNSEEN};
use crate::stats::quantiles::{median_in_place, quantile};
use crate::stats::states::{Better, are_undisturbed, level_and_variance};
use crate::stats::{NORMAL_DEVIATION, student};

/// By how much the median absolute deviation of so few values, from 2 on, falls short (Croux and Rousseeuw, Computational
/// Statistics 1, 1992); of more, n / (n - 0.8).
const FEW: [f64; 8] = [1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107];
/// Where the tail is looked at: this share of one side's values lies below.
const TAIL: f64 = 0.99;
/// Tails are never taken to be lighter than those of so many degrees of freedom, nor heavier than those of
/// [`FREEDOM_LEAST`].
pub const FREEDOM_MOST: f64 = 50.0;
/// See [`FREEDOM_MOST`]. Student's t has no variance below.
pub const FREEDOM_LEAST: f64 = 2.0;
/// Values on one side without which a tail can't be seen.
const TAIL_VALUES: usize = 200;

/// The middle of values and their scale (a standard deviation, if they are normal).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Median.
    pub middle: f64,
    /// Median absolute deviation as a standard deviation.
    pub scale: f64,
}

/// The logarithm of a figure when undisturbed and its standard error, from the samples of each visit; what undisturbed visits differ
/// is in the error. `None` without a positive sample.
pub fn figure(visits: &[&[f64]], better: Better) -> Option<(f64, f64)> {
    let of_visit = |visit: &&[f64]| level_and_variance(visit, better);
    let draws: Vec<(f64, Option<f64>)> = visits.iter().filter_map(of_visit).collect();
    let is_fast = are_undisturbed(&draws.iter().map(|draw| draw.0).collect::<Vec<_>>());
    let draws: Vec<_> = draws.into_iter().zip(is_fast).filter(|(_, is_fast)| *is_fast).map(|(draw, _)| draw).collect();
    let count = draws.len() as f64;
    let middle = draws.iter().map(|draw| draw.0).sum::<f64>() / count;
    let seen: Vec<f64> = draws.iter().filter_map(|draw| draw.1).collect();
    let within = match seen.len() {
        0 => UNSEEN * UNSEEN,
        n => seen.iter().sum::<f64>() / n as f64,
    };
    let between = draws.iter().map(|draw| (draw.0 - middle).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let variance = within.max(between).max(REPEATABLE * REPEATABLE) / count;
    (!draws.is_empty()).then(|| (better.up(middle), variance.sqrt()))
}

/// Median and scale of finite values, whose order is lost. `None` where there are none. Costs time in proportion to their number.
pub fn spread(values: &mut [f64]) -> Option<Spread> {
    let middle = median_in_place(values)?;
    values.iter_mut().for_each(|value| *value = (*value - middle).abs());
    let deviation = median_in_place(values)?;
    let count = values.len();
    let short = FEW.get(count.wrapping_sub(2)).copied().unwrap_or(count as f64 / (count as f64 - 0.8));
    Some(Spread { middle, scale: NORMAL_DEVIATION * short * deviation })
}

/// Student's degrees of freedom by which the tail of distances (their amounts) falls. `None` where there are too few.
pub fn tail(amounts: &mut [f64]) -> Option<f64> {
    if amounts.len() < TAIL_VALUES {
        return None;
    }
    amounts.sort_unstable_by(f64::total_cmp);
    let ratio = quantile(amounts, TAIL) / quantile(amounts, 0.5).max(f64::MIN_POSITIVE);
    let of = |freedom: f64| student::quantile(1.0 - TAIL, freedom) / student::quantile(0.5, freedom);
    let (mut heavy, mut light) = (FREEDOM_LEAST, FREEDOM_MOST);
    if ratio <= of(light) {
        return Some(light);
    }
    for _ in 0..40 {
        let between = f64::sqrt(heavy * light);
        if of(between) > ratio { heavy = between } else { light = between }
    }
    Some(heavy)
}

/// Probability of at least this distance, in scales, on either side.
pub fn chance(distance: f64, freedom: f64) -> f64 {
    student::outside(distance.abs(), freedom)
}

/// Up to which probability one is a finding among `tests` (of which those left out are greater), at a rate of false findings among
/// all; 0 where none is.
pub fn least_chance(chances: &mut [f64], tests: usize, rate: f64) -> f64 {
    chances.sort_unstable_by(f64::total_cmp);
    let tests = tests.max(chances.len()).max(1) as f64;
    // The harmonic number, by Euler's constant.
    let dependent = if tests < 2.0 { 1.0 } else { tests.ln() + 0.577_215_664_9 + 0.5 / tests };
    let allowed = |rank: usize| (rank + 1) as f64 * rate / (tests * dependent);
    chances
        .iter()
        .enumerate()
        .rev()
        .find(|(rank, chance)| **chance <= allowed(*rank))
        .map_or(0.0, |(rank, _)| allowed(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Deviations from 3 are 2, 1, 0, 1, 7: their median is 1; of five values it falls short by 1.206.
        let found = spread(&mut [1.0, 2.0, 3.0, 4.0, 10.0]).unwrap();
        assert_eq!(found.middle, 3.0);
        assert!((found.scale - 1.4826 * 1.206).abs() < 1e-12);
        // Two visits of a cost, 2 % to either side of e: the variance is 2 (0.02)^2 and the error of the mean of two 0.02. The
        // third took twice as long: it was disturbed.
        let visit = |log: f64| [log.exp(); 3];
        let (log, error) = figure(&[&visit(0.98), &visit(1.02), &visit(1.7)], Better::Lower).unwrap();
        assert!((log - 1.0).abs() < 1e-12 && (error - 0.02).abs() < 1e-12, "{log} {error}");
        assert_eq!(figure(&[&[]], Better::Lower), None);
        assert!(figure(&[&[1.0]], Better::Lower).unwrap().1 > 0.0);
    }

    /// With one test there is nothing to correct. With four the harmonic number is 25/12, so the least may be 0.05 / 4 / (25/12) =
    /// 0.006 and the second 0.012.
    #[test]
    fn false_findings_by_hand() {
        let check = |chances: &[f64], tests: usize, findings: usize, least: f64| {
            let found = least_chance(&mut chances.to_vec(), tests, 0.05);
            assert_eq!(chances.iter().filter(|chance| **chance <= found).count(), findings, "{chances:?}: {found}");
            assert!((found - least).abs() < 1e-4, "{chances:?}: {found}");
        };
        check(&[0.049], 1, 1, 0.05);
        check(&[0.051], 1, 0, 0.0);
        check(&[0.5, 0.005, 0.9, 0.8], 4, 1, 0.006);
        check(&[0.5, 0.0115, 0.0119, 0.8], 4, 2, 0.012);
        check(&[0.5, 0.0125, 0.0129, 0.8], 4, 0, 0.0);
        // Those left out count.
        check(&[0.005], 400, 0, 0.0);
    }

    #[test]
    fn tails_are_measured() {
        for freedom in [3.0, 5.0, 12.0] {
            // Quantiles of Student's t.
            let mut amounts: Vec<f64> = (1..2000).map(|i| student::quantile(f64::from(i) / 2000.0, freedom)).collect();
            let found = tail(&mut amounts).unwrap();
            assert!((found / freedom - 1.0).abs() < 0.1, "{freedom}: {found}");
        }
        let mut normal: Vec<f64> = (1..2000).map(|i| student::quantile(f64::from(i) / 2000.0, 1e7)).collect();
        assert_eq!(tail(&mut normal), Some(FREEDOM_MOST));
        assert_eq!(tail(&mut normal[..100]), None);
    }
}
