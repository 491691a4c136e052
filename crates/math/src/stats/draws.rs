//! Several alternatives against one base, where each batch is one draw of something that does not cancel within a batch,
//! such as where pages came to lie: then a batch is one observation, however many samples it has.
//!
//! Whoever looks for the lowest of many alternatives finds one that is low by chance. So the intervals hold all at once
//! with 95 % (Bonferroni's inequality: each alone holds with 1 - 0.05/k). A few draws of one alternative estimate a spread
//! poorly, so the spread of log-medians is pooled over base and alternatives. Where one of them scatters more than the
//! others, that makes the others' intervals too wide, never too narrow.

use crate::stats::interval::MISS;
use crate::stats::quantiles::quantile;
use crate::stats::{pooled, student};

/// median(alternative) / median(base) for each alternative, with intervals that hold all together with 95 %:
/// [ratio, low, high]. Medians are geometric means over draws. NaN where one side has no positive draw; the ends are NaN
/// too where no case has two draws, which would show a spread.
pub fn ratios_of_draws(base: &[&[f64]], alternatives: &[Vec<&[f64]>]) -> Vec<[f64; 3]> {
    ratios_among(base, alternatives, alternatives.len())
}

/// The same, where `comparisons` ratios are looked at in all: those of other bases too.
pub fn ratios_among(base: &[&[f64]], alternatives: &[Vec<&[f64]>], comparisons: usize) -> Vec<[f64; 3]> {
    let base = log_medians(base);
    let others: Vec<Vec<f64>> = alternatives.iter().map(|batches| log_medians(batches)).collect();
    let all = || std::iter::once(&base).chain(&others).filter(|draws| !draws.is_empty());
    let squares: f64 = all().map(|draws| draws.iter().map(|x| (x - mean(draws)).powi(2)).sum::<f64>()).sum();
    let freedom: usize = all().map(|draws| draws.len() - 1).sum();
    // Without a degree of freedom the variance is NaN, and so are the ends.
    let quantile = student::quantile(MISS / comparisons.max(1) as f64, freedom.max(1) as f64);
    let ratio = |draws: &Vec<f64>| {
        let middle = mean(draws) - mean(&base);
        let error = (squares / freedom as f64 * (1.0 / draws.len() as f64 + 1.0 / base.len() as f64)).sqrt();
        let reach = quantile * error;
        [middle.exp(), (middle - reach).exp(), (middle + reach).exp()]
    };
    others.iter().map(ratio).collect()
}

/// The logarithm of each batch's median, where there is one.
fn log_medians(batches: &[&[f64]]) -> Vec<f64> {
    let median = |batch: &&[f64]| {
        let sorted = pooled(&[batch]);
        (!sorted.is_empty()).then(|| quantile(&sorted, 0.5).ln()).filter(|log| log.is_finite())
    };
    batches.iter().filter_map(median).collect()
}

/// NaN of nothing.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::normal;
    use proptest::prelude::*;

    #[test]
    fn ratios_by_hand() {
        // Logarithms in units of ln 2: base 0, 2; alternatives 1, 3 and 4, 4. Squares 2 + 2 + 0 over 3 degrees of freedom.
        let [base, one, two]: [[&[f64]; 2]; 3] = [[&[1.0], &[4.0]], [&[2.0], &[8.0]], [&[16.0; 3], &[16.0; 3]]];
        let found = ratios_of_draws(&base, &[one.to_vec(), two.to_vec()]);
        let reach = 2f64.powf(student::quantile(0.025, 3.0) * (4.0f64 / 3.0).sqrt());
        for (found, ratio) in found.iter().zip([2.0, 8.0]) {
            let expect = [ratio, ratio / reach, ratio * reach];
            assert!(found.iter().zip(expect).all(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{found:?} is not {expect:?}");
        }
        let lone = ratios_of_draws(&[&[2.0]], &[vec![&[1.0]]]);
        assert!(lone[0][0] == 0.5 && lone[0][1].is_nan(), "one draw each shows no spread: {lone:?}");
        assert!(ratios_of_draws(&[], &[vec![&[1.0]]])[0][0].is_nan());
    }

    #[test]
    fn chance_seldom_looks_like_a_difference() {
        // Seven alike cases of three draws each, whose medians scatter by 10 %, over 2000 seeds.
        let mut random = fastrand::Rng::with_seed(6);
        let mut draw = || (0.1 * normal(&mut random)).exp();
        let mut false_alarms = 0;
        for _ in 0..2000 {
            let cases: Vec<Vec<[f64; 1]>> = (0..7).map(|_| (0..3).map(|_| [draw()]).collect()).collect();
            let views: Vec<Vec<&[f64]>> = cases.iter().map(|case| case.iter().map(|x| &x[..]).collect()).collect();
            let ratios = ratios_of_draws(&views[0], &views[1..]);
            false_alarms += usize::from(ratios.iter().any(|[_, low, high]| *low > 1.0 || *high < 1.0));
        }
        assert!((40..=110).contains(&false_alarms), "{false_alarms} of 2000 must be about, and not above, 5 %");
    }

    proptest! {
        #[test]
        fn never_panics(base in prop::collection::vec(prop::collection::vec(any::<f64>(), 0..4), 0..4),
                        other in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<f64>(), 0..4), 0..4), 0..4)) {
            let base: Vec<&[f64]> = base.iter().map(Vec::as_slice).collect();
            let other: Vec<Vec<&[f64]>> = other.iter().map(|case| case.iter().map(Vec::as_slice).collect()).collect();
            prop_assert_eq!(ratios_of_draws(&base, &other).len(), other.len());
        }
    }
}
