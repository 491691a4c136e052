//! Finds the levels of a memory system in a curve of bandwidth over working sets.
//!
//! The curve of one thread is a staircase with worn edges: flat while the working set fits a level, then a few points
//! of transition (a shared and hashed last level can take two octaves), then flat again and slower. Tiny working sets
//! are slow too, because of the loop around them. On top there is noise, and points that something disturbed.
//!
//! A curve is explained as: points of ramp, then plateaus with points of transition between them. Of all explanations
//! the cheapest is taken; it is found exactly by dynamic programming over where plateaus begin and end (Bellman, 1961;
//! as for change points in Jackson et al., IEEE Signal Processing Letters 12, 2005):
//!
//! ```text
//! best[j] = min over i, g:  best[i - g] + g points of transition + one plateau + misfit of points i..j
//! ```
//!
//! Speeds are compared in logarithms, against their noise. The noise is what neighbours differ by, or the interval of
//! a point where that is wider; the misfit of one point is bounded (Huber's, cut off), so that a disturbed point is
//! cheaper to bear than to explain. Last, plateaus that differ by less than [`STEP_MIN`] or rise again are one level,
//! and a slow plateau in front is the ramp.
//!
//! A level's capacity is read off where the curve has gone [`CAPACITY_WAY`] of the way down, in logarithms. What this
//! should be depends on the cache: one that is hashed or shared wears off on both sides of its capacity and is halfway
//! down, by time, when it is full; one that evicts at random starts to fall when it is full and is halfway down at 1.4
//! times its capacity. A curve can't tell them apart, so the point lies between and is off by some 15 % for either.

use crate::in_order::InOrder;
use crate::stats;
use crate::stats::{NORMAL_DEVIATION, Z95};
use crate::units::Bytes;

/// A level of the memory system, as the curve shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plateau {
    /// Smallest working set that runs at this level's speed.
    pub from: Bytes,
    /// Largest one.
    pub to: Bytes,
    /// Median speed, in the unit of the curve.
    pub speed: f64,
    /// Working set at which the curve has gone 40 % of the way (by ratio) to the next level; absent for the last level.
    pub capacity: Option<Bytes>,
}

/// Least ratio of the speeds of two levels. L2 and L3 have been seen as close as 1.15.
const STEP_MIN: f64 = 1.12;
/// Least width of a plateau in octaves; between two levels of a memory system there is at least a factor of four. The
/// last plateau is cut off by the end of the curve and may be shorter.
const OCTAVES_MIN: f64 = 1.0;
/// Least number of points of a plateau.
const POINTS_MIN: usize = 3;
/// Longest transition, in octaves.
const TRANSITION_OCTAVES_MAX: f64 = 3.0;
/// Plateaus are not flatter than this, however quiet the machine: relative deviation that costs nothing much.
const FLATNESS: f64 = 0.02;
/// Noise is not taken to be larger than this, so that many steps close together are not mistaken for it.
const NOISE_MAX: f64 = 0.1;
/// Costs, in units of a squared standard deviation's half (a log-likelihood). Found by simulation (see the tests).
const PLATEAU_COST: f64 = 6.0;
/// A point of ramp or transition: dearer than noise (1/2), cheaper than a point that is off.
const TRANSITION_COST: f64 = 3.0;
/// A point of transition after which the curve ends: dear, because the curve is planned to end on a plateau, whose few
/// points would otherwise cost less if they were left over.
const END_COST: f64 = 6.0;
/// Most that one point's misfit costs: a deviation of some 4.5 standard deviations.
const MISFIT_MAX: f64 = 5.0;
/// Deviation, in standard deviations, beyond which misfit grows linearly (Huber, 1964: 95 % efficient at 1.345).
const HUBER: f64 = 1.345;

/// See the essay: halfway would be 35 % too large where a cache evicts at random and the step is small, a third of the
/// way 35 % too small where an edge is worn over two octaves and the step is large.
const CAPACITY_WAY: f64 = 0.4;

/// A point of the curve: working set and its log2, log of the speed, standard deviation of the latter.
#[derive(Debug, Clone, Copy)]
struct SpeedPoint {
    size: Bytes,
    octave: f64,
    speed: f64,
    deviation: f64,
}

/// Points `from..to` that one level explains.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    from: usize,
    to: usize,
}

/// The levels in `curve`, fastest first: working set, median speed, 95 % interval of the median. Points may come in any
/// order; those that are not positive and finite are left out. Empty if there are too few points to tell.
pub fn find(curve: &[(Bytes, f64, [f64; 2])]) -> Vec<Plateau> {
    let points = points(curve);
    let segments = joined(&points, cheapest(&points));
    let level = |s: &Segment| middle(&points[s.from..s.to]).exp();
    let plateau = |(index, s): (usize, &Segment)| Plateau {
        from: points[s.from].size,
        to: points[s.to - 1].size,
        speed: level(s),
        capacity: segments.get(index + 1).map(|next| capacity(&points, *s, *next)),
    };
    segments.iter().enumerate().map(plateau).collect()
}

fn points(curve: &[(Bytes, f64, [f64; 2])]) -> Vec<SpeedPoint> {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    let mut points: Vec<SpeedPoint> = (curve.iter())
        .filter(|(size, speed, _)| size.0 > 0 && positive(*speed))
        .map(|&(size, speed, [low, high])| {
            let interval = if positive(low) && positive(high) { (high / low).ln().abs() / (2.0 * Z95) } else { 0.0 };
            SpeedPoint { size, octave: (size.0 as f64).log2(), speed: speed.ln(), deviation: interval }
        })
        .collect();
    points.order_by_key(|p| p.size);
    let noise = noise(&points);
    for point in &mut points {
        point.deviation = point.deviation.max(noise).clamp(FLATNESS, NOISE_MAX);
    }
    points
}

/// What a point deviates by from the middle of its neighbours: for noise alone, 1.5 times its variance. The median
/// passes over steps and disturbed points.
fn noise(points: &[SpeedPoint]) -> f64 {
    let off = points.windows(3).map(|w| (w[1].speed - (w[0].speed + w[2].speed) / 2.0).abs());
    stats::quantiles::median(off).map_or(0.0, |median| NORMAL_DEVIATION * median / 1.5f64.sqrt())
}

/// Median of their speeds, of which there is at least one.
fn middle(points: &[SpeedPoint]) -> f64 {
    stats::quantiles::median(points.iter().map(|p| p.speed)).unwrap_or(f64::NAN)
}

fn misfit(points: &[SpeedPoint]) -> f64 {
    let level = middle(points);
    points.iter().map(|p| loss((p.speed - level) / p.deviation)).sum()
}

/// What a point costs that is so many standard deviations off.
pub(crate) fn loss(off: f64) -> f64 {
    let off = off.abs();
    let huber = if off < HUBER { off * off / 2.0 } else { HUBER * (off - HUBER / 2.0) };
    huber.min(MISFIT_MAX)
}

/// The best explanation of the points before some point, which ends in a plateau.
#[derive(Debug, Clone, Copy)]
struct Explained {
    cost: f64,
    last: Segment,
}

/// The plateaus of the cheapest explanation.
fn cheapest(points: &[SpeedPoint]) -> Vec<Segment> {
    let n = points.len();
    let mut best: Vec<Option<Explained>> = vec![None; n + 1];
    // Cheapest way to everything before a plateau that begins at a point, and where the plateau before it ends.
    let mut before: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); n + 1];
    for i in 0..=n {
        before[i] = cheapest_before(points, &best, i);
        for from in 0..i {
            if !is_wide(points, from, i) || !before[from].0.is_finite() {
                continue;
            }
            let cost = before[from].0 + PLATEAU_COST + misfit(&points[from..i]);
            if best[i].is_none_or(|b| cost < b.cost) {
                best[i] = Some(Explained { cost, last: Segment { from, to: i } });
            }
        }
    }
    let end = (0..=n).filter_map(|j| Some((best[j]?.cost + END_COST * (n - j) as f64, j)));
    let Some((_, mut end)) = end.min_by(|a, b| a.0.total_cmp(&b.0)) else { return Vec::new() };
    let mut segments = Vec::new();
    while let Some(explained) = best[end] {
        segments.push(explained.last);
        end = before[explained.last.from].1;
    }
    segments.reverse();
    segments
}

/// Cost of the points before `from`, if a plateau begins there, and the end of the plateau before it (0: none).
fn cheapest_before(points: &[SpeedPoint], best: &[Option<Explained>], from: usize) -> (f64, usize) {
    let ramp = (TRANSITION_COST * from as f64, 0);
    let gap =
        |end: usize| from == points.len() || points[from].octave - points[end - 1].octave <= TRANSITION_OCTAVES_MAX;
    let after = (1..from)
        .filter(|&end| gap(end))
        .filter_map(|end| Some((best[end]?.cost + TRANSITION_COST * (from - end) as f64, end)));
    after.chain([ramp]).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or(ramp)
}

fn is_wide(points: &[SpeedPoint], from: usize, to: usize) -> bool {
    let octaves = points[to - 1].octave - points[from].octave;
    to - from >= POINTS_MIN && (octaves >= OCTAVES_MIN || to == points.len())
}

/// Plateaus that are one level made one; each is slower than the one before.
fn joined(points: &[SpeedPoint], segments: Vec<Segment>) -> Vec<Segment> {
    let level = |s: &Segment| middle(&points[s.from..s.to]);
    let mut levels: Vec<Segment> = Vec::new();
    for mut segment in segments {
        while let Some(previous) = levels.last().copied() {
            if level(&previous) - level(&segment) >= STEP_MIN.ln() {
                break;
            }
            levels.pop();
            let ramp = levels.is_empty() && level(&segment) - level(&previous) >= STEP_MIN.ln();
            if !ramp {
                segment.from = previous.from;
            }
        }
        levels.push(segment);
    }
    levels
}

/// Where the curve last has [`CAPACITY_WAY`] of the way from one level to the next behind it.
fn capacity(points: &[SpeedPoint], level: Segment, next: Segment) -> Bytes {
    let level_speed = middle(&points[level.from..level.to]);
    let next_speed = middle(&points[next.from..next.to]);
    let edge = level_speed + CAPACITY_WAY * (next_speed - level_speed);
    let way = &points[level.to - 1..=next.from];
    let inside = way.iter().rposition(|p| p.speed >= edge).unwrap_or(0);
    let (a, b) = (way[inside], way[(inside + 1).min(way.len() - 1)]);
    let part = if a.speed > b.speed { ((a.speed - edge) / (a.speed - b.speed)).clamp(0.0, 1.0) } else { 0.5 };
    Bytes((a.octave + part * (b.octave - a.octave)).exp2().round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A simulated hierarchy.
    #[derive(Debug)]
    struct Hierarchy {
        capacities: Vec<f64>,
        speeds: Vec<f64>,
        /// Octaves over which half of the traffic moves on to the next level, by level.
        smear: Vec<f64>,
        noise: f64,
        per_octave: f64,
        /// Bytes' worth of time that the loop costs.
        ramp: f64,
        /// Whether caches evict at random instead of by a smeared capacity.
        random: bool,
    }

    const KIB: f64 = 1024.0;
    const MIB: f64 = 1024.0 * 1024.0;

    fn pick(rng: &mut fastrand::Rng, from: &[f64]) -> f64 {
        from[rng.usize(..from.len())]
    }

    fn between(rng: &mut fastrand::Rng, low: f64, high: f64) -> f64 {
        low + (high - low) * rng.f64()
    }

    fn normal(rng: &mut fastrand::Rng) -> f64 {
        (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
    }

    impl Hierarchy {
        fn any(rng: &mut fastrand::Rng, levels: usize, noise: f64) -> Self {
            let l1 = pick(rng, &[32.0 * KIB, 48.0 * KIB, 64.0 * KIB]);
            let l2 = pick(rng, &[256.0 * KIB, 512.0 * KIB, MIB, 1.25 * MIB, 2.0 * MIB, 2.5 * MIB]);
            let l3 = pick(rng, &[8.0 * MIB, 12.0 * MIB, 16.0 * MIB, 32.0 * MIB, 33.0 * MIB, 260.0 * MIB]);
            let capacities = match levels {
                2 => vec![l1],
                3 => vec![l1, l2],
                _ => vec![l1, l2, l3.max(5.0 * l2)],
            };
            let mut speeds = vec![1e11 * between(rng, 1.0, 4.0)];
            for level in 1..levels {
                let ratio = match level {
                    _ if level == levels - 1 => between(rng, 1.8, 6.0),
                    1 => between(rng, 1.4, 3.0),
                    _ => between(rng, 1.18, 2.5),
                };
                speeds.push(speeds[level - 1] / ratio);
            }
            let smear =
                (1..levels).map(|l| if l == 3 { between(rng, 0.1, 0.45) } else { between(rng, 0.05, 0.15) }).collect();
            let per_octave = pick(rng, &[2.0, 3.0, 4.0]);
            let ramp = between(rng, 0.0, 800.0);
            Hierarchy { capacities, speeds, smear, noise, per_octave, ramp, random: rng.bool() }
        }

        /// Share of traffic that a cache of one capacity does not serve.
        fn misses(&self, level: usize, size: f64) -> f64 {
            let ratio = size / self.capacities[level];
            if !self.random {
                return 1.0 / (1.0 + (-ratio.log2() / self.smear[level]).exp());
            }
            // A cyclic pass over a cache that evicts at random: a line survives the misses of one pass, hits = (1 -
            // 1/capacity)^misses = exp(-misses * ratio). Zero while all fits.
            let (mut low, mut high) = (if ratio > 1.0 { 1e-9 } else { return 0.0 }, 1.0);
            for _ in 0..40 {
                let m: f64 = (low + high) / 2.0;
                if 1.0 - (-m * ratio).exp() > m { low = m } else { high = m }
            }
            low
        }

        fn time(&self, size: f64) -> f64 {
            let mut time = 1.0 / self.speeds[0];
            for level in 0..self.capacities.len() {
                time += self.misses(level, size) * (1.0 / self.speeds[level + 1] - 1.0 / self.speeds[level]);
            }
            time * (1.0 + self.ramp / size)
        }

        fn curve(&self, rng: &mut fastrand::Rng) -> Vec<(Bytes, f64, [f64; 2])> {
            let end = (self.capacities.last().unwrap() * between(rng, 5.0, 12.0)).max(4.0 * MIB).log2();
            let mut octave: f64 = pick(rng, &[10.0, 11.0, 12.0]);
            let mut curve = Vec::new();
            while octave < end {
                let size = octave.exp2().round();
                let disturbed = if rng.f64() < 0.02 { between(rng, 0.5, 0.9) } else { 1.0 };
                let speed = disturbed * (self.noise * normal(rng)).exp() / self.time(size);
                let reach = Z95 * self.noise * between(rng, 0.7, 1.4);
                curve.push((Bytes(size as u64), speed, [speed * (1.0 - reach), speed * (1.0 + reach)]));
                octave += 1.0 / self.per_octave;
            }
            curve
        }
    }

    /// What came of many simulated curves; errors are relative.
    #[derive(Default)]
    struct Tally {
        right: usize,
        capacity_errors: Vec<f64>,
        speed_errors: Vec<f64>,
    }

    const CURVES: usize = 500;

    fn simulate(levels: usize, noise: [f64; 2]) -> Tally {
        let mut rng = fastrand::Rng::with_seed(levels as u64);
        let error = |found: f64, truth: f64| (found / truth).ln().abs().exp() - 1.0;
        let mut tally = Tally::default();
        for _ in 0..CURVES {
            let noise = between(&mut rng, noise[0], noise[1]);
            let truth = Hierarchy::any(&mut rng, levels, noise);
            let found = find(&truth.curve(&mut rng));
            if found.len() != levels {
                continue;
            }
            tally.right += 1;
            let capacities = found.iter().filter_map(|p| p.capacity).zip(&truth.capacities);
            tally.capacity_errors.extend(capacities.map(|(found, &truth)| error(found.0 as f64, truth)));
            tally.speed_errors.extend(found.iter().zip(&truth.speeds).map(|(found, &truth)| error(found.speed, truth)));
        }
        tally.capacity_errors.sort_unstable_by(f64::total_cmp);
        tally.speed_errors.sort_unstable_by(f64::total_cmp);
        tally
    }

    /// Share of errors below a limit, in percent.
    fn within(errors: &[f64], limit: f64) -> f64 {
        100.0 * errors.partition_point(|e| *e < limit) as f64 / errors.len() as f64
    }

    fn percentile(errors: &[f64], share: f64) -> f64 {
        100.0 * errors[(share * (errors.len() - 1) as f64) as usize]
    }

    #[test]
    fn levels_of_simulated_hierarchies_are_found() {
        println!("noise        levels  right   capacity: median  95 %  < 30 %   speed: median  95 %  < 5 %");
        // Speeds can't be better than the noise of the few points on the last plateau allows.
        for (noise, speed_within_5) in [([0.01, 0.03], 85.0), ([0.03, 0.05], 75.0), ([0.05, 0.08], 65.0)] {
            for levels in [2, 3, 4] {
                let Tally { right, capacity_errors: capacity, speed_errors: speed } = simulate(levels, noise);
                let right = 100.0 * right as f64 / CURVES as f64;
                println!(
                    "{:.0} to {:.0} % {levels:9} {right:8.1} {:17.1} {:6.1} {:6.1} {:16.1} {:6.1} {:6.1}",
                    100.0 * noise[0],
                    100.0 * noise[1],
                    percentile(&capacity, 0.5),
                    percentile(&capacity, 0.95),
                    within(&capacity, 0.3),
                    percentile(&speed, 0.5),
                    percentile(&speed, 0.95),
                    within(&speed, 0.05)
                );
                assert!(right >= 95.0, "{levels} levels, noise {noise:?}");
                assert!(percentile(&capacity, 0.5) < 20.0 && within(&capacity, 0.3) > 85.0, "{levels}, {noise:?}");
                assert!(percentile(&speed, 0.5) < 4.0 && within(&speed, 0.05) > speed_within_5, "{levels}, {noise:?}");
            }
        }
    }

    #[test]
    fn degenerate_curves() {
        assert_eq!(find(&[]), []);
        let point = |kib, speed| (Bytes::kib(kib), speed, [speed, speed]);
        assert_eq!(find(&[point(4, 1.0)]), []);
        assert_eq!(find(&[point(4, 1.0), point(4, 1.0), point(4, 2.0)]).len(), 1);
        let flat: Vec<_> = (2..12).map(|i| point(1 << i, 5.0)).collect();
        let found = find(&flat);
        assert_eq!((found.len(), found[0].from, found[0].to), (1, Bytes::kib(4), Bytes::mib(2)));
        assert!((found[0].speed - 5.0).abs() < 1e-9 && found[0].capacity.is_none());
        let rising: Vec<_> = (2..22).map(|i| point(1 << i, f64::from(1 << i))).collect();
        assert!(find(&rising).len() <= 1);
    }

    proptest! {
        #[test]
        fn never_panics(curve in prop::collection::vec((any::<u64>(), any::<f64>(), any::<[f64; 2]>()), 0..40)) {
            let curve: Vec<_> = curve.into_iter().map(|(s, v, i)| (Bytes(s), v, i)).collect();
            find(&curve);
        }

        #[test]
        fn levels_fall(speeds in prop::collection::vec(1.0..1e3f64, 0..40)) {
            let curve: Vec<_> = speeds.iter().enumerate().map(|(i, &v)| (Bytes(1 << i), v, [v, v])).collect();
            let found = find(&curve);
            for pair in found.windows(2) {
                prop_assert!(pair[0].speed >= 1.119 * pair[1].speed && pair[0].to < pair[1].from);
                let capacity = pair[0].capacity.unwrap();
                prop_assert!(pair[0].to <= capacity && capacity <= pair[1].from);
            }
        }
    }
}
