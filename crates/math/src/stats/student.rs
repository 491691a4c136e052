//! Student's t for any number of degrees of freedom, and the functions behind a fit of variances.

/// Terms of the continued fraction at most; it settles within some twenty.
const TERMS: usize = 300;

/// Probability that |t| is exceeded, on both sides together. Any positive number of degrees of freedom, also infinite.
pub(crate) fn outside(t: f64, freedom: f64) -> f64 {
    // Beyond this the normal distribution is the same to seven digits.
    let freedom = freedom.min(1e7);
    beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The value that is exceeded with this probability, on both sides together.
pub fn quantile(outside_share: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while outside(high, freedom) > outside_share && high < 1e12 {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if outside(middle, freedom) > outside_share { low = middle } else { high = middle }
    }
    high
}

/// Regularised incomplete beta function, by the continued fraction 8.17.22 of the NIST Digital Library of Mathematical
/// Functions, evaluated by Lentz's method (Applied Optics 15, 1976).
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let away_from_zero = |x: f64| if x.abs() < 1e-300 { 1e-300 } else { x };
    let (mut c, mut d) = (1.0, 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for term in 1..TERMS {
        let m = term as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for factor in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + factor * d);
            c = away_from_zero(1.0 + factor / c);
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < 1e-14 {
            break;
        }
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    (front.exp() * fraction / a).clamp(0.0, 1.0)
}

/// Where the asymptotic series below are good to twelve digits.
const LARGE: f64 = 12.0;

/// Logarithm of the gamma function of a positive number: Stirling's series (DLMF 5.11.1), after stepping up to a large one.
fn ln_gamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < LARGE {
        below += x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - below
}

/// Its derivative (DLMF 5.11.2).
pub(crate) fn digamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < LARGE {
        below += 1.0 / x;
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 120.0 - (1.0 / 252.0 - 1.0 / (240.0 * square)) / square) / square) / square;
    x.ln() - 0.5 / x - series - below
}

/// The derivative of that.
pub(crate) fn trigamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < LARGE {
        below += 1.0 / (x * x);
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 6.0 - (1.0 / 30.0 - (1.0 / 42.0 - 1.0 / (30.0 * square)) / square) / square) / square;
    (1.0 + 0.5 / x + series) / x + below
}

/// Where [`trigamma`], which falls, has this positive value.
pub(crate) fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6f64.ln(), 1e8f64.ln());
    for _ in 0..80 {
        let middle: f64 = (low + high) / 2.0;
        if trigamma(middle.exp()) > value { low = middle } else { high = middle }
    }
    high.exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{ContinuousCDF, StudentsT};

    #[test]
    fn t_against_statrs() {
        for freedom in [0.5, 1.0, 2.0, 4.0, 7.3, 30.0, 400.0] {
            let exact = StudentsT::new(0.0, 1.0, freedom).unwrap();
            for t in [0.1, 0.7, 1.0, 2.0, 5.0, 20.0] {
                let expect = 2.0 * exact.cdf(-t);
                assert!((outside(t, freedom) / expect - 1.0).abs() < 1e-8, "t {t}, {freedom} degrees of freedom");
            }
            for share in [0.5, 0.05, 5e-4, 1e-6] {
                assert!((outside(quantile(share, freedom), freedom) / share - 1.0).abs() < 1e-6);
            }
        }
        assert_eq!(outside(0.0, 3.0), 1.0);
        assert!((quantile(0.05, f64::INFINITY) - 1.959_964).abs() < 1e-5);
    }

    #[test]
    fn known_values() {
        let near = |value: f64, expect: f64| assert!((value - expect).abs() < 1e-10, "{value} {expect}");
        near(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln());
        near(ln_gamma(5.0), 24f64.ln());
        // Minus Euler's constant; pi squared over six, over two.
        near(digamma(1.0), -0.577_215_664_901_532_9);
        near(trigamma(1.0), std::f64::consts::PI.powi(2) / 6.0);
        near(trigamma(0.5), std::f64::consts::PI.powi(2) / 2.0);
        near(inverse_trigamma(trigamma(2.5)), 2.5);
    }
}
