//! A 95 % interval of the median that assumes no shape, and knows that samples of one visit resemble each other.
//!
//! *One batch.* Between the d-th least and the d-th greatest of n independent samples the median lies with a
//! probability that is binomial whatever the distribution, but whole d give 98.8 % or 93.5 % at n = 11, never 95 %.
//! Hettmansperger and Sheather (Statistics & Probability Letters 4, 1986) interpolate between two neighbouring d so
//! that 95 % comes out closely for any smooth distribution; coverage can't leave the two binomial values even where
//! the distribution is not smooth, such as two modes. (The exact bootstrap, Efron 1979, takes whole d: by the binomial it
//! covers 93.5 % at n = 11 and 92.2 % at n = 21.)
//!
//! *Several batches.* The indicator "this sample is below the common median" has variance 1/4; if batches differ, its
//! mean over a batch varies more than by 1/4m. How much more is the *design effect*, known from cluster samples
//! (Kish, Survey Sampling, 1965; Woodruff, JASA 47, 1952, for quantiles); its estimate is Mood's median test divided
//! by its degrees of freedom. Ranks then lie as many times further from the middle as the root of the design effect.
//! With two to six batches the estimate itself is poor. So it is moderated as variances of few samples are (Smyth,
//! 2004): averaged with its value for independent samples, which counts as [`PRIOR_BATCHES`], and paid for with
//! Student's t. And nothing is done where chance alone would explain the difference one time in five: otherwise
//! samples that *are* independent would get intervals that are too wide. The interval never leaves the samples, so
//! two batches that lie apart say "anything between them", which is all they can say.

use crate::stats::student;

/// Probability left below the interval, and above it. Not 2.5 %: the interpolation loses up to 1 % of coverage where
/// the density is curved, and stopping at will up to 2 %; with 95.5 % nominal both kinds of runs lie around 95 %.
const TAIL_MAX: f64 = 0.0225;
/// Normal quantile of 1 - [`TAIL_MAX`].
const Z_TAIL: f64 = 2.004_654_5;
/// Probability that an interval misses, on both sides together.
pub(crate) const MISS: f64 = 0.05;
/// Normal quantile of 97.5 %.
const Z: f64 = 1.959_963_985;
/// Normal quantile of 80 %: batches count as different where independent samples would differ less in 4 of 5 runs.
/// By arithmetic this can't push the coverage of independent samples above 0.8 * 95.5 % + 0.2 = 96.4 %.
const Z_DIFFERENT: f64 = 0.841_621_23;
/// How many batches' worth of trust the design effect 1 gets. With 2, four batches that drift by one to three standard
/// deviations cover in 92 to 94 % of runs, with 4 in 89 to 90 %; with 1, Student's t is so long for two batches that
/// their interval is everything seen as soon as they differ at all.
const PRIOR_BATCHES: f64 = 2.0;
/// Above this, the binomial is normal to four digits (and 2^-n still far from underflow).
const BINOMIAL_SAMPLES_MAX: usize = 1000;

/// The interval; `sorted` holds the finite samples of `batches`, at least one.
pub(crate) fn of_median(sorted: &[f64], batches: &[&[f64]]) -> [f64; 2] {
    let middle = (sorted.len() - 1) as f64 / 2.0;
    let reach = (reach(sorted.len()) * widening(sorted, batches)).min(middle);
    [crate::stats::quantiles::at_rank(sorted, middle - reach), crate::stats::quantiles::at_rank(sorted, middle + reach)]
}

/// How many ranks the interval of `n` independent samples reaches to either side of the middle.
fn reach(n: usize) -> f64 {
    let middle = (n as f64 + 1.0) / 2.0;
    if n > BINOMIAL_SAMPLES_MAX {
        return Z_TAIL * (n as f64).sqrt() / 2.0;
    }
    // `tail` = P(fewer than d of n samples are below the median); coverage of [x_d, x_(n+1-d)] is 1 - 2 tail.
    let (mut d, mut term) = (1.0, 0.5f64.powi(n as i32));
    let mut tail = term;
    if tail > TAIL_MAX {
        return middle - 1.0; // Five samples or fewer: from the least to the greatest.
    }
    loop {
        term *= (n as f64 - d + 1.0) / d;
        if tail + term > TAIL_MAX {
            let part = (TAIL_MAX - tail) / term;
            return middle - d - (n as f64 - d) * part / (d + (n as f64 - 2.0 * d) * part);
        }
        tail += term;
        d += 1.0;
    }
}

/// How many times wider than for independent samples: 1 unless batches differ by more than chance explains.
pub(crate) fn widening(sorted: &[f64], batches: &[&[f64]]) -> f64 {
    let (effect, batches) = design_effect(crate::stats::quantiles::quantile(sorted, 0.5), batches);
    let freedom = batches as f64 - 1.0;
    if freedom < 1.0 || effect <= chance(freedom) {
        return 1.0;
    }
    let moderated = (PRIOR_BATCHES + freedom * effect) / (PRIOR_BATCHES + freedom);
    moderated.sqrt().max(1.0) * student::quantile(MISS, PRIOR_BATCHES + freedom) / Z
}

/// Mood's median test statistic over its degrees of freedom: about 1 if batches are alike, up to their size if not.
/// Also the number of batches that hold samples.
fn design_effect(median: f64, batches: &[&[f64]]) -> (f64, usize) {
    let below = |x: &f64| match x.total_cmp(&median) {
        std::cmp::Ordering::Less => -0.5,
        std::cmp::Ordering::Equal => 0.0,
        std::cmp::Ordering::Greater => 0.5,
    };
    let (mut count, mut samples, mut sum, mut squares, mut between) = (0, 0.0, 0.0, 0.0, 0.0);
    for batch in batches {
        let (mut n, mut s) = (0.0, 0.0);
        for x in batch.iter().filter(|x| x.is_finite()) {
            n += 1.0;
            s += below(x);
            squares += below(x) * below(x);
        }
        if n > 0.0 {
            count += 1;
            samples += n;
            sum += s;
            between += s * s / n;
        }
    }
    let correction = sum * sum / samples;
    let variance = (squares - correction) / samples;
    if count < 2 || variance <= 0.0 {
        return (1.0, count);
    }
    ((between - correction) / variance / (count as f64 - 1.0), count)
}

/// 80 % quantile of chi-square over its degrees of freedom (Wilson and Hilferty, 1931; 2 % off at one degree).
fn chance(freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    (1.0 - spread + Z_DIFFERENT * spread.sqrt()).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{Binomial, ChiSquared, ContinuousCDF, DiscreteCDF, Normal};

    #[test]
    fn reach_lies_between_the_two_binomial_intervals() {
        for n in 6..400 {
            let d = ((n as f64 + 1.0) / 2.0 - reach(n)).floor();
            let tail = |d: f64| if d < 1.0 { 0.0 } else { Binomial::new(0.5, n as u64).unwrap().cdf(d as u64 - 1) };
            assert!(tail(d) <= TAIL_MAX + 1e-9 && tail(d + 1.0) > TAIL_MAX - 1e-9, "{n}: {d}");
        }
    }

    #[test]
    fn reach_has_no_seam() {
        assert!((reach(BINOMIAL_SAMPLES_MAX) / reach(BINOMIAL_SAMPLES_MAX + 1) - 1.0).abs() < 2e-3);
        assert_eq!((reach(1), reach(2), reach(5)), (0.0, 0.5, 2.0));
        // n = 11: tails 12/2048 at d = 2 and 67/2048 at d = 3; part = (46.08 - 12) / 55, 9 part / (2 + 7 part) further.
        let part = 34.08 / 55.0;
        assert!((reach(11) - (6.0 - 2.0 - 9.0 * part / (2.0 + 7.0 * part))).abs() < 1e-12);
    }

    #[test]
    fn quantiles_against_statrs() {
        let normal = Normal::standard();
        for (constant, p) in [(Z, 0.975), (Z_TAIL, 1.0 - TAIL_MAX), (Z_DIFFERENT, 0.8)] {
            assert!((normal.inverse_cdf(p) - constant).abs() < 1e-5, "{p}");
        }
        for freedom in [1.0, 2.0, 5.0, 30.0] {
            let exact = ChiSquared::new(freedom).unwrap().inverse_cdf(0.8) / freedom;
            assert!((chance(freedom) / exact - 1.0).abs() < 2e-2, "{freedom}");
        }
    }

    #[test]
    fn design_effect_by_hand() {
        // Medians 2.5: the first batch has all three below, the second all above.
        let (effect, batches) = design_effect(2.5, &[&[0.0, 1.0, 2.0], &[], &[3.0, 4.0, 5.0]]);
        assert_eq!((effect, batches), (6.0, 2));
        assert_eq!(design_effect(2.5, &[&[0.0, 1.0, 4.0, 5.0], &[2.0, 3.0]]), (0.0, 2));
        assert_eq!(design_effect(2.0, &[&[2.0; 5], &[2.0; 5]]), (1.0, 2));
    }
}
