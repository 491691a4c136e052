//! A server with a queue, fitted to delays at several rates: where does it saturate, and where is its knee?
//!
//! With one server and random arrivals the delay at a rate x is a + b u/(1 - u), u = x/c: a is the delay without load, c
//! the capacity, b how fast the queue grows (M/M/1 has b = a, M/D/1 half of that; Kleinrock, Queueing Systems 1, 1975). A
//! memory is neither, so b is free. For a given c the other two follow from linear least squares; c itself is searched
//! for. Rates have errors as delays have, and near saturation they matter more: each point counts by the error of its
//! delay together with that of its rate times the curve's slope there (effective variance; Orear, American Journal of
//! Physics 50, 1982).
//!
//! The knee is where power, rate over delay, is greatest (Kleinrock, ICC 1979): a(1 - u)^2 = b u^2, so that
//! u = 1/(1 + sqrt(b/a)). Beyond it delay grows faster than rate.
//!
//! Errors: the fit is done again for points drawn from their own intervals; the middle 95 % of what comes out is the
//! interval. Draws have a fixed seed, so one record has one answer.

use crate::stats::line::Sums;
use crate::stats::{Z95, normal, with_draws};

/// What a fit says; each as [value, low, high] with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queue {
    /// Delay without load.
    pub idle: [f64; 3],
    /// How fast the queue grows; in the unit of the delay.
    pub growth: [f64; 3],
    /// Rate that is never reached.
    pub capacity: [f64; 3],
    /// Rate of greatest power.
    pub knee: [f64; 3],
}

impl Queue {
    /// The delay at a rate below the capacity, by the middle values.
    pub fn delay(&self, rate: f64) -> f64 {
        let used = rate / self.capacity[0];
        self.idle[0] + self.growth[0] * used / (1.0 - used)
    }
}

/// Fewer points than this leave nothing to judge a fit of three parameters by.
const POINTS_MIN: usize = 5;
/// The capacity is looked for from this far beyond the greatest rate, as a share of it,
const NEAREST: f64 = 1e-4;
/// to this far. What comes out there is no saturation: it was not seen.
const FARTHEST: f64 = 4.0;
/// Places looked at between the two; between the best place's neighbours it is then narrowed down.
const PLACES: usize = 100;
const NARROWINGS: usize = 30;
/// Points are drawn again so often.
const DRAWS: usize = 200;
/// Errors below this share of a value are not believed: the model itself is no better.
const LEAST_ERROR: f64 = 1e-3;

/// Fits a queue to points of (rate, delay), each [median, low, high]. `None` where there are fewer than five points, where
/// delays do not rise, or where capacity is not determined: the points end long before it.
pub fn queue(points: &[([f64; 3], [f64; 3])]) -> Option<Queue> {
    let is_usable = |v: &[f64; 3]| v.iter().all(|v| v.is_finite()) && v[0] >= 0.0;
    let points: Vec<_> = points.iter().copied().filter(|(x, y)| is_usable(x) && is_usable(y) && y[0] > 0.0).collect();
    if points.len() < POINTS_MIN {
        return None;
    }
    let points: Vec<LoadPoint> = points.iter().map(|(rate, delay)| LoadPoint::new(*rate, *delay)).collect();
    let middle = fit(&points)?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut draw = || -> Vec<LoadPoint> { points.iter().map(|point| point.drawn(&mut random)).collect() };
    let drawn: Vec<Fit> = (0..DRAWS).filter_map(|_| fit(&draw())).collect();
    if (drawn.len() as f64) < 0.95 * DRAWS as f64 {
        return None;
    }
    let interval = |of: fn(&Fit) -> f64| with_draws(of(&middle), drawn.iter().map(of));
    let most = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let capacity = interval(|fit| fit.capacity);
    (capacity[2] < most * (1.0 + 0.9 * FARTHEST)).then(|| Queue {
        idle: interval(|fit| fit.idle),
        growth: interval(|fit| fit.growth),
        capacity,
        knee: interval(Fit::knee),
    })
}

/// A point with the standard deviations of both its values.
#[derive(Debug, Clone, Copy)]
struct LoadPoint {
    rate: f64,
    delay: f64,
    rate_deviation: f64,
    delay_deviation: f64,
}

impl LoadPoint {
    fn new(rate: [f64; 3], delay: [f64; 3]) -> Self {
        let deviation = |[value, low, high]: [f64; 3]| ((high - low) / (2.0 * Z95)).max(LEAST_ERROR * value);
        let (rate_deviation, delay_deviation) = (deviation(rate), deviation(delay));
        LoadPoint { rate: rate[0], delay: delay[0], rate_deviation, delay_deviation }
    }

    fn drawn(self, random: &mut fastrand::Rng) -> Self {
        let rate = (self.rate + normal(random) * self.rate_deviation).max(0.0);
        let delay = (self.delay + normal(random) * self.delay_deviation).max(self.delay / 10.0);
        LoadPoint { rate, delay, ..self }
    }
}

#[derive(Debug, Clone, Copy)]
struct Fit {
    idle: f64,
    growth: f64,
    capacity: f64,
    /// Twice the negative logarithm of the likelihood, but for a constant.
    error: f64,
}

impl Fit {
    fn knee(&self) -> f64 {
        self.capacity / (1.0 + (self.growth / self.idle).sqrt())
    }
}

/// The best fit; `None` where delays do not rise with the rate.
fn fit(points: &[LoadPoint]) -> Option<Fit> {
    let most = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let step = (FARTHEST / NEAREST).ln() / PLACES as f64;
    let at = |place: f64| at_capacity(points, most * (1.0 + NEAREST * (step * place).exp()));
    let error = |place: f64| at(place).map_or(f64::INFINITY, |fit| fit.error);
    let errors: Vec<f64> = (0..=PLACES).map(|place| error(place as f64)).collect();
    let best = (0..=PLACES).min_by(|a, b| errors[*a].total_cmp(&errors[*b]))? as f64;
    let (mut low, mut high) = ((best - 1.0).max(0.0), (best + 1.0).min(PLACES as f64));
    for _ in 0..NARROWINGS {
        let third = (high - low) / 3.0;
        if error(low + third) < error(high - third) { high -= third } else { low += third }
    }
    at((low + high) / 2.0)
}

/// Least squares with this capacity. What a point counts depends on the slope, and so on the fit: it is done thrice.
fn at_capacity(points: &[LoadPoint], capacity: f64) -> Option<Fit> {
    let mut fit = Fit { idle: 0.0, growth: 0.0, capacity, error: 0.0 };
    for _ in 0..3 {
        fit = refit(points, fit)?;
    }
    Some(fit)
}

fn refit(points: &[LoadPoint], before: Fit) -> Option<Fit> {
    let capacity = before.capacity;
    let mut sums = Sums::default();
    // Points count by their weight; a constant factor of all weights is nothing, but the fit prefers none that has less:
    // the logarithm of the variance is what likelihood adds.
    let mut likelihood = 0.0;
    for point in points {
        let free = 1.0 - point.rate / capacity;
        let queued = point.rate / capacity / free;
        let slope = before.growth / (capacity * free * free);
        let variance = point.delay_deviation.powi(2) + (slope * point.rate_deviation).powi(2);
        sums.add(queued, point.delay, 1.0 / variance);
        likelihood += variance.ln();
    }
    let [idle, growth] = sums.line()?;
    (idle > 0.0 && growth > 0.0).then_some(Fit {
        idle,
        growth,
        capacity,
        error: sums.squares([idle, growth]) + likelihood,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve points of a known queue up to `reach` of its capacity, with so much noise.
    fn curve(idle: f64, growth: f64, capacity: f64, reach: f64, sigma: f64, seed: u64) -> Vec<([f64; 3], [f64; 3])> {
        let mut random = fastrand::Rng::with_seed(seed);
        let point = |step: u32| {
            let used = reach * (1.0 - 2f64.powi(-(step as i32)));
            let mut noisy = |value: f64| value * (1.0 + sigma * normal(&mut random));
            let (rate, delay) = (noisy(used * capacity), noisy(idle + growth * used / (1.0 - used)));
            let around = |value: f64| [value, value * (1.0 - Z95 * sigma), value * (1.0 + Z95 * sigma)];
            (around(rate), around(delay))
        };
        (0..12).map(point).collect()
    }

    #[test]
    fn exact_curves_are_recovered() {
        for (idle, growth, capacity) in [(100.0, 100.0, 30e9), (90.0, 20.0, 200e9), (120.0, 5.0, 1e9)] {
            let found = queue(&curve(idle, growth, capacity, 0.95, 0.0, 1)).unwrap();
            let knee = capacity / (1.0 + (growth / idle).sqrt());
            for (found, truth) in
                [(found.idle, idle), (found.growth, growth), (found.capacity, capacity), (found.knee, knee)]
            {
                assert!((found[0] / truth - 1.0).abs() < 0.01, "{found:?} is not {truth}");
            }
        }
    }

    /// The intervals hold the truth in most of 100 noisy curves, and are not so wide that they would hold anything.
    #[test]
    fn intervals_hold_the_truth() {
        let (idle, growth, capacity) = (100.0, 30.0, 40e9);
        let knee = capacity / (1.0 + f64::sqrt(growth / idle));
        let (mut held, mut widths) = ([0; 3], Vec::new());
        for seed in 0..100 {
            let Some(found) = queue(&curve(idle, growth, capacity, 0.9, 0.01, seed)) else { continue };
            for (held, (found, truth)) in
                held.iter_mut().zip([(found.idle, idle), (found.capacity, capacity), (found.knee, knee)])
            {
                *held += usize::from((found[1]..=found[2]).contains(&truth));
            }
            widths.push((found.capacity[2] - found.capacity[1]) / capacity);
        }
        assert!(widths.len() >= 95 && held.iter().all(|held| *held >= 88), "{held:?} of {}", widths.len());
        widths.sort_by(f64::total_cmp);
        assert!(widths[widths.len() / 2] < 0.1, "{}", widths[widths.len() / 2]);
    }

    #[test]
    fn what_was_not_seen_is_not_claimed() {
        // A tenth of the capacity: delays hardly rise.
        assert_eq!(queue(&curve(100.0, 30.0, 40e9, 0.1, 0.02, 3)), None);
        let flat: Vec<_> = (1..12).map(|x| ([f64::from(x); 3], [100.0; 3])).collect();
        assert_eq!(queue(&flat), None);
        let falling: Vec<_> = (1..12).map(|x| ([f64::from(x); 3], [100.0 - f64::from(x); 3])).collect();
        assert_eq!(queue(&falling), None);
        assert_eq!(queue(&curve(100.0, 30.0, 40e9, 0.9, 0.0, 1)[..4]), None, "too few");
        assert_eq!(queue(&[([f64::NAN; 3], [f64::NAN; 3]); 12]), None);
    }
}
