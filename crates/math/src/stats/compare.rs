//! Ratios of two medians, and the size at which one curve overtakes another.
//!
//! *Ratio.* In logarithms a ratio is a difference, and the interval of a difference follows from the two intervals by
//! the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008): the squares of the
//! parts that face each other add up. It needs no symmetry and no shape.
//!
//! Alternatives are visited in turns, so a drift of the machine moves both by the same factor and leaves the ratio of
//! each round alone, while it widens the two intervals. If batches differ by more than chance explains, the rounds'
//! own log-ratios are therefore used instead: their spread from round to round is what matters, and it contains
//! whatever does not cancel. A few rounds estimate a spread poorly, so it is moderated with what the samples within
//! rounds let expect (Smyth, 2004, as in `interval.rs`). Which of the two intervals is shown is decided by the drift,
//! and then by width.
//!
//! *Crossing.* The crossing of the middle curves is the answer. Its interval is the set of sizes at which the curves
//! *could* cross within the intervals of their ratio, which is Fieller's way to bound a root.

use crate::stats::interval::{MISS, widening};
use crate::stats::quantiles::quantile;
use crate::stats::{NORMAL_DEVIATION, median_deviation, pooled, student, summarize};

/// How many rounds' worth of trust the spread gets that samples within rounds let expect.
const PRIOR_ROUNDS: f64 = 2.0;
/// Variance of a median times n, over variance of a sample, for normal samples: pi / 2.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

/// median(a) / median(b) and its 95 % interval: [ratio, low, high]. Batches of the same index are taken to be of one round
/// if there are as many of `a` as of `b`. Where the machine drifted, the ratio is the typical one within a round,
/// which may then differ from median(a) / median(b). NaN where a median is not positive or there are no samples.
pub fn ratio(a: &[&[f64]], b: &[&[f64]]) -> [f64; 3] {
    let Some(apart) = of_medians(a, b) else { return [f64::NAN; 3] };
    match within_rounds(a, b) {
        Some(paired) if drifts(a) || drifts(b) => narrower(paired, apart),
        _ => apart,
    }
}

/// The ratio of two figures that are known by their intervals alone, each [value, low, high]. NaN where a value is not positive.
pub fn of_figures(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    log_ratio(a, b).map_or([f64::NAN; 3], |ratio| ratio.map(f64::exp))
}

/// The same as [`ratio`] where each batch is one draw of something that does not cancel within a round, such as where pages came to
/// lie: then a batch is one observation, however many samples it has. Welch's interval of the difference of mean
/// log-medians; NaN with fewer than two batches on a side.
pub fn ratio_of_draws(a: &[&[f64]], b: &[&[f64]]) -> [f64; 3] {
    let draws = |batches: &[&[f64]]| -> Vec<f64> {
        let median = |batch: &&[f64]| Some(quantile(&pooled(&[batch]), 0.5).ln());
        batches.iter().filter(|batch| batch.iter().any(|x| x.is_finite())).filter_map(median).collect()
    };
    let moments = |draws: &[f64]| {
        let n = draws.len() as f64;
        let mean = draws.iter().sum::<f64>() / n;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance / n, n - 1.0)
    };
    let (a, b) = (draws(a), draws(b));
    if a.len() < 2 || b.len() < 2 {
        return [f64::NAN; 3];
    }
    let ((a_mean, a_square, a_freedom), (b_mean, b_square, b_freedom)) = (moments(&a), moments(&b));
    let (middle, square) = (a_mean - b_mean, a_square + b_square);
    // Welch and Satterthwaite.
    let freedom = square.powi(2) / (a_square.powi(2) / a_freedom + b_square.powi(2) / b_freedom);
    let reach = if square > 0.0 { student::quantile(MISS, freedom) * square.sqrt() } else { 0.0 };
    [middle.exp(), (middle - reach).exp(), (middle + reach).exp()]
}

fn drifts(batches: &[&[f64]]) -> bool {
    widening(&pooled(batches), batches) > 1.0
}

fn narrower(x: [f64; 3], y: [f64; 3]) -> [f64; 3] {
    if x[2] / x[1] < y[2] / y[1] { x } else { y }
}

fn of_medians(a: &[&[f64]], b: &[&[f64]]) -> Option<[f64; 3]> {
    let interval = |batches| summarize(batches).map(|s| [s.median, s.ci95[0], s.ci95[1]]);
    Some(log_ratio(interval(a)?, interval(b)?)?.map(f64::exp))
}

/// ln(a / b) of two [value, low, high], by variance estimates recovery. `None` if a value is not positive.
fn log_ratio(a: [f64; 3], b: [f64; 3]) -> Option<[f64; 3]> {
    let positive = |x: [f64; 3]| x.iter().all(|x| x.is_finite()) && x[0] > 0.0;
    if !positive(a) || !positive(b) {
        return None;
    }
    let ln = |x: [f64; 3]| x.map(|v| v.max(f64::MIN_POSITIVE).ln());
    let (a, b) = (ln(a), ln(b));
    let middle = a[0] - b[0];
    Some([middle, middle - (a[0] - a[1]).hypot(b[2] - b[0]), middle + (a[2] - a[0]).hypot(b[0] - b[1])])
}

fn within_rounds(a: &[&[f64]], b: &[&[f64]]) -> Option<[f64; 3]> {
    let rounds: Vec<Round> =
        if a.len() == b.len() { a.iter().zip(b).filter_map(|(a, b)| Round::of(a, b)).collect() } else { vec![] };
    let n = rounds.len() as f64;
    if n < 2.0 {
        return None;
    }
    let middle = rounds.iter().map(|r| r.log_ratio).sum::<f64>() / n;
    let squares: f64 = rounds.iter().map(|r| (r.log_ratio - middle).powi(2)).sum();
    let expected = rounds.iter().map(|r| r.variance).sum::<f64>() / n;
    let freedom = PRIOR_ROUNDS + n - 1.0;
    let variance = (PRIOR_ROUNDS * expected + squares) / freedom;
    let reach = student::quantile(MISS, freedom) * (variance / n).sqrt();
    Some([middle.exp(), (middle - reach).exp(), (middle + reach).exp()])
}

/// The log-ratio of one round's medians, and its variance by the samples' spread within the round.
struct Round {
    log_ratio: f64,
    variance: f64,
}

impl Round {
    /// `None` for a round without at least three positive samples of either side: they show no spread.
    fn of(a: &[f64], b: &[f64]) -> Option<Round> {
        let (a, b) = (log_median(a)?, log_median(b)?);
        Some(Round { log_ratio: a.0 - b.0, variance: a.1 + b.1 })
    }
}

/// The logarithm of a batch's median, and its variance by the samples' spread. `None` below three positive samples.
pub(crate) fn log_median(batch: &[f64]) -> Option<(f64, f64)> {
    let logs: Vec<f64> = batch.iter().filter(|&&x| x > 0.0).map(|x| x.ln()).collect();
    of_sorted_logs(&pooled(&[&logs]))
}

/// The same of logarithms in their order.
pub(crate) fn of_sorted_logs(sorted: &[f64]) -> Option<(f64, f64)> {
    if sorted.len() < 3 {
        return None;
    }
    let (n, median) = (sorted.len() as f64, quantile(sorted, 0.5));
    // n/(n-1): a median runs after its own samples, as a mean does.
    let deviation = NORMAL_DEVIATION * median_deviation(sorted, median) * n / (n - 1.0);
    Some((median, MEDIAN_VARIANCE * deviation * deviation / n))
}

/// The size from which on `a` stays above `b`, with its 95 % interval: [size, low, high]. `a` and `b` are
/// [value, low, high] at rising `sizes`; between two sizes both are interpolated in logarithms. If they cross several
/// times, the last crossing counts. `None` if `a` is above from the first size on, or not above at the last. An end of
/// the interval that lies outside the measured sizes is the first or last size. Points that are not positive and
/// finite are left out.
pub fn crossing(sizes: &[f64], a: &[[f64; 3]], b: &[[f64; 3]]) -> Option<[f64; 3]> {
    let points: Vec<(f64, [f64; 3])> = (sizes.iter().zip(a).zip(b))
        .filter(|((size, _), _)| size.is_finite() && **size > 0.0)
        .filter_map(|((size, a), b)| Some((size.ln(), log_ratio(*a, *b)?)))
        .collect();
    let root = |which: usize| last_rise(&points.iter().map(|(size, d)| (*size, d[which])).collect::<Vec<_>>());
    let (first, last) = (points.first()?.0, points.last()?.0);
    let Rise::At(middle) = root(0) else { return None };
    let within = |rise| match rise {
        Rise::Always => first,
        Rise::At(size) => size,
        Rise::Never => last,
    };
    Some([middle.exp(), within(root(2)).min(middle).exp(), within(root(1)).max(middle).exp()])
}

/// Where a curve rises above zero for good.
enum Rise {
    Always,
    At(f64),
    Never,
}

fn last_rise(curve: &[(f64, f64)]) -> Rise {
    let Some(below) = curve.iter().rposition(|(_, d)| *d <= 0.0) else { return Rise::Always };
    let Some(&(size_above, above)) = curve.get(below + 1) else { return Rise::Never };
    let (size_below, below) = curve[below];
    Rise::At(size_below + (size_above - size_below) * -below / (above - below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(actual: [f64; 3], expect: [f64; 3]) {
        let near = actual.iter().zip(expect).all(|(a, e)| (a / e - 1.0).abs() < 1e-9);
        assert!(near, "{actual:?} is not {expect:?}");
    }

    #[test]
    fn ratio_by_hand() {
        // Intervals are [1, 4] around 2 (five samples or fewer: all of them) and exactly 1.
        check(ratio(&[&[1.0, 2.0, 4.0]], &[&[1.0; 3]]), [2.0, 1.0, 4.0]);
        // Each end is sqrt(2) ln 2 away: two equal parts that face each other.
        let reach = (2f64.sqrt() * 2f64.ln()).exp();
        check(ratio(&[&[1.0, 2.0, 4.0]], &[&[1.0, 2.0, 4.0]]), [1.0, 1.0 / reach, reach]);
        assert!(ratio(&[], &[&[1.0]])[0].is_nan());
        assert!(ratio(&[&[0.0]], &[&[1.0]])[0].is_nan());
    }

    #[test]
    fn draws_by_hand() {
        // Log-medians 0, 2 and 0, 0 (in units of ln 2): means 1 and 0, squared errors 1 and 0, one degree of freedom.
        let [middle, low, high] = ratio_of_draws(&[&[1.0; 9], &[4.0; 9]], &[&[1.0], &[1.0]]);
        let reach = (student::quantile(MISS, 1.0) * 2f64.ln()).exp();
        check([middle, low, high], [2.0, 2.0 / reach, 2.0 * reach]);
        check(ratio_of_draws(&[&[2.0], &[2.0]], &[&[1.0], &[1.0]]), [2.0; 3]);
        assert!(ratio_of_draws(&[&[2.0; 9]], &[&[1.0; 9]])[0].is_nan(), "one draw shows no spread");
    }

    #[test]
    fn drift_that_moves_both_cancels() {
        let shape = [0.99, 0.995, 1.0, 1.002, 1.01, 1.0, 0.998];
        let round = |speed: f64| shape.map(|x| x * speed).to_vec();
        let a: Vec<Vec<f64>> = [20.0, 24.0, 30.0, 18.0].map(round).to_vec();
        let b: Vec<Vec<f64>> = [10.0, 12.0, 15.0, 9.0].map(round).to_vec();
        let (a, b): (Vec<&[f64]>, Vec<&[f64]>) =
            (a.iter().map(Vec::as_slice).collect(), b.iter().map(Vec::as_slice).collect());
        let [middle, low, high] = ratio(&a, &b);
        assert!((middle - 2.0).abs() < 1e-9 && low > 1.98 && high < 2.02, "{middle} {low} {high}");
        let [_, low, high] = ratio(&a, &b[..3]);
        assert!(low < 1.5 && high > 2.5, "without pairs the drift stays: {low} {high}");
    }

    #[test]
    fn crossings() {
        let sizes = [1.0, 4.0, 16.0, 64.0];
        let exact = |x: f64| [x, x, x];
        let flat = [exact(1.0); 4];
        let curve = |values: [f64; 4]| values.map(exact);
        let at = |values| crossing(&sizes, &curve(values), &flat);
        check(at([0.5, 0.5, 2.0, 2.0]).unwrap(), [8.0; 3]);
        assert_eq!(at([2.0, 2.0, 2.0, 2.0]), None, "always above");
        assert_eq!(at([0.5, 0.5, 0.5, 0.5]), None, "never above");
        assert_eq!(at([0.5, 2.0, 2.0, 0.5]), None, "not above at the last");
        check(at([0.5, 2.0, 0.5, 2.0]).unwrap(), [32.0; 3]); // The last of three.
        assert_eq!(crossing(&[], &[], &[]), None);
        assert_eq!(at([f64::NAN, 0.0, -1.0, 2.0]), None);
        // Ratio 1/4, 1, 4, 16, known within a factor of 2: at 4, between 2 and 8.
        let loose = [0.25, 0.99999, 4.0, 16.0].map(|x| [x, x / 2.0, x * 2.0]);
        let [middle, low, high] = crossing(&sizes, &loose, &flat).unwrap();
        assert!((middle - 4.0).abs() < 1e-3 && (low - 2.0).abs() < 1e-3 && (high - 8.0).abs() < 1e-3);
    }

    proptest! {
        #[test]
        fn never_panic(a in prop::collection::vec(prop::collection::vec(any::<f64>(), 0..9), 0..5),
                       b in prop::collection::vec(prop::collection::vec(any::<f64>(), 0..9), 0..5),
                       curve in prop::collection::vec((any::<f64>(), any::<[f64; 3]>(), any::<[f64; 3]>()), 0..9)) {
                    let (a, b): (Vec<&[f64]>, Vec<&[f64]>) =
                (a.iter().map(Vec::as_slice).collect(), b.iter().map(Vec::as_slice).collect());
            ratio(&a, &b);
            let sizes: Vec<f64> = curve.iter().map(|p| p.0).collect();
            let (a, b): (Vec<[f64; 3]>, Vec<[f64; 3]>) = curve.iter().map(|p| (p.1, p.2)).unzip();
            crossing(&sizes, &a, &b);
        }
    }
}
