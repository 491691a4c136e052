//! Fits a ladder to a curve of latency over working sets.
//!
//! Where the plateaus are is found as for bandwidth (`levels.rs`). But the points between two plateaus tell as much as
//! those on them: there a known share of the loads misses. So all points are explained together:
//!
//! ```text
//! latency(set) = rung[0] + sum over k:  (rung[k + 1] - rung[k]) * miss(set / capacity[k])
//! ```
//!
//! What share of a cyclic chase misses depends on how the cache evicts. Two shapes are tried for each edge, and the one
//! that fits better is taken: random eviction, where a line survives the misses of one lap with probability
//! (1 - 1/lines)^misses, so that miss = 1 - exp(-miss * set / capacity); and an edge that is worn on both sides, from
//! hashing, from pages that fall where they may, or from sharing (a logistic curve; very narrow, it is the cliff of
//! least-recently-used eviction). Rungs follow by least squares, edges by search, in turns. Deviations are relative and
//! their cost is bounded, as in `levels.rs`, so that disturbed points do not pull.

use super::levels;
use crate::units::Bytes;

/// A level of latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rung {
    /// Smallest working set on the plateau.
    pub from: Bytes,
    /// Largest one.
    pub to: Bytes,
    /// Latency in the unit of the curve, with its 95 % interval: [value, low, high].
    pub latency: [f64; 3],
    /// Working set that fills the level; absent for the last.
    pub capacity: Option<Bytes>,
}

/// Deviations below this share are not told apart from noise.
const FLATNESS: f64 = 0.01;
/// Nor is noise taken to be larger than this.
const NOISE_MAX: f64 = 0.1;
/// Turns of rungs and edges; nothing moves any more after three or four.
const TURNS: usize = 6;
/// Widths of a worn edge that are tried, in octaves.
const WIDTHS: [f64; 8] = [0.01, 0.02, 0.035, 0.06, 0.1, 0.17, 0.28, 0.45];
/// What any edge but the narrowest must gain: a point that is a little high by noise is no proof of a worn edge.
const SHAPE_COST: f64 = 2.0;
/// Steps of the search for a capacity, in octaves: coarse, fine. The coarse one must be so fine that the points on an edge
/// are not all beyond the greatest loss, where every edge looks alike.
const STEPS: [f64; 2] = [1.0 / 48.0, 1.0 / 240.0];

#[derive(Debug, Clone, Copy)]
struct Point {
    octave: f64,
    latency: f64,
    deviation: f64,
}

/// Share of loads that miss over the working set.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Random,
    /// Width in octaves.
    Worn(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Edge {
    shape: Shape,
    /// log2 of the capacity.
    octave: f64,
}

impl Edge {
    fn misses(self, octave: f64) -> f64 {
        let beyond = octave - self.octave;
        match self.shape {
            Shape::Worn(width) => 1.0 / (1.0 + (-beyond / width).exp()),
            Shape::Random => random_misses(beyond.exp2()),
        }
    }
}

/// The positive solution of miss = 1 - exp(-miss * ratio), by Newton's method from above, where the function is convex.
fn random_misses(ratio: f64) -> f64 {
    if ratio <= 1.0 {
        return 0.0;
    }
    let mut miss: f64 = 1.0;
    for _ in 0..30 {
        let survive = (-miss * ratio).exp();
        let step = (miss - 1.0 + survive) / (1.0 - ratio * survive).max(1e-9);
        miss = (miss - step).clamp(0.0, 1.0);
        if step.abs() < 1e-6 {
            break;
        }
    }
    miss
}

/// The rungs in `curve`, lowest first: working set, median latency, its 95 % interval. Empty if there are too few points.
pub fn fit(curve: &[(Bytes, f64, [f64; 2])]) -> Vec<Rung> {
    let speeds: Vec<_> =
        curve.iter().map(|&(set, latency, [low, high])| (set, 1.0 / latency, [1.0 / high, 1.0 / low])).collect();
    let plateaus = levels::find(&speeds);
    let Some(first) = plateaus.first() else { return Vec::new() };
    let points = points(curve, first.from);
    let mut rungs: Vec<f64> = plateaus.iter().map(|plateau| 1.0 / plateau.speed).collect();
    let capacities = plateaus.iter().filter_map(|plateau| plateau.capacity);
    let octave = |bytes: Bytes| (bytes.0.max(1) as f64).log2();
    let mut edges: Vec<Edge> =
        capacities.map(|capacity| Edge { shape: Shape::Worn(WIDTHS[4]), octave: octave(capacity) }).collect();
    let mut errors = vec![0.0; rungs.len()];
    for _ in 0..TURNS {
        for k in 0..edges.len() {
            // The edge lies between the middles of the two plateaus.
            let middle = |k: usize| (octave(plateaus[k].from) + octave(plateaus[k].to)) / 2.0;
            edges[k] = search(&points, &rungs, &edges, k, [middle(k), middle(k + 1)]);
        }
        let Some(solved) = solve(&points, &rungs, &edges) else { break };
        (rungs, errors) = solved;
    }
    let rung = |(k, plateau): (usize, &levels::Plateau)| {
        let (latency, error) = (rungs[k], 1.96 * errors[k]);
        let capacity = edges.get(k).map(|edge| Bytes(edge.octave.exp2().round() as u64));
        Rung { from: plateau.from, to: plateau.to, latency: [latency, latency - error, latency + error], capacity }
    };
    plateaus.iter().enumerate().map(rung).collect()
}

/// The points from the first plateau on, by working set.
fn points(curve: &[(Bytes, f64, [f64; 2])], first: Bytes) -> Vec<Point> {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    let mut points: Vec<Point> = curve
        .iter()
        .filter(|(set, latency, _)| *set >= first && set.0 > 0 && positive(*latency))
        .map(|&(set, latency, [low, high])| {
            let interval = if positive(low) && positive(high) { (high / low).ln().abs() / (2.0 * 1.96) } else { 0.0 };
            Point { octave: (set.0 as f64).log2(), latency, deviation: interval.clamp(FLATNESS, NOISE_MAX) }
        })
        .collect();
    points.sort_by(|a, b| a.octave.total_cmp(&b.octave));
    points
}

/// Share of the loads that each rung serves.
fn shares(octave: f64, edges: &[Edge]) -> Vec<f64> {
    let misses: Vec<f64> =
        std::iter::once(1.0).chain(edges.iter().map(|edge| edge.misses(octave))).chain([0.0]).collect();
    misses.windows(2).map(|pair| pair[0] - pair[1]).collect()
}

fn model(octave: f64, rungs: &[f64], edges: &[Edge]) -> f64 {
    shares(octave, edges).iter().zip(rungs).map(|(share, rung)| share * rung).sum()
}

/// How far a point is off, in standard deviations.
fn off(point: &Point, rungs: &[f64], edges: &[Edge]) -> f64 {
    (point.latency / model(point.octave, rungs, edges).max(1e-12)).ln() / point.deviation
}

/// The best shape and place of edge `k` within `range`, all else as it is.
fn search(points: &[Point], rungs: &[f64], edges: &[Edge], k: usize, range: [f64; 2]) -> Edge {
    let near: Vec<Point> =
        points.iter().copied().filter(|p| p.octave > range[0] - 1.0 && p.octave < range[1] + 1.0).collect();
    let mut trial = edges.to_vec();
    let mut cost = |edge: Edge| {
        trial[k] = edge;
        let shape = if edge.shape == Shape::Worn(WIDTHS[0]) { 0.0 } else { SHAPE_COST };
        near.iter().map(|point| levels::loss(off(point, rungs, &trial))).sum::<f64>() + shape
    };
    let shapes = || WIDTHS.iter().map(|&width| Shape::Worn(width)).chain([Shape::Random]);
    let (mut best, mut least) = (edges[k], f64::INFINITY);
    let [coarse, fine] = STEPS;
    let mut ranges: Vec<(Shape, [f64; 2])> = shapes().map(|shape| (shape, range)).collect();
    for step in [coarse, fine] {
        for (shape, [from, to]) in std::mem::take(&mut ranges) {
            let octaves = (0..).map(|n| from + f64::from(n) * step).take_while(|&octave| octave <= to);
            for edge in octaves.map(|octave| Edge { shape, octave }) {
                let cost = cost(edge);
                if cost < least {
                    (best, least) = (edge, cost);
                }
            }
        }
        ranges = shapes().map(|shape| (shape, [best.octave - coarse, best.octave + coarse])).collect();
    }
    centre(best, least, fine, range, &mut cost)
}

/// A narrow edge between two points costs the same anywhere between them: its middle is the best guess.
fn centre(best: Edge, least: f64, step: f64, range: [f64; 2], cost: &mut impl FnMut(Edge) -> f64) -> Edge {
    const SAME: f64 = 0.5;
    let mut reach = |direction: f64| {
        let places = (1..).map(|n| best.octave + direction * f64::from(n) * step);
        let inside = places.take_while(|octave| (range[0]..=range[1]).contains(octave));
        inside.take_while(|&octave| cost(Edge { octave, ..best }) < least + SAME).last().unwrap_or(best.octave)
    };
    Edge { octave: (reach(-1.0) + reach(1.0)) / 2.0, ..best }
}

/// Rungs by weighted least squares, with their standard errors; points that are off count less, as `levels::loss` says.
/// Nothing, where the points do not determine them.
fn solve(points: &[Point], rungs: &[f64], edges: &[Edge]) -> Option<(Vec<f64>, Vec<f64>)> {
    const HUBER: f64 = 1.345;
    const CUT_OFF: f64 = 4.5;
    let n = rungs.len();
    // The normal matrix, the right side, the identity beside it.
    let mut rows = vec![vec![0.0; 2 * n + 1]; n];
    for point in points {
        let distance = off(point, rungs, edges).abs();
        let robust = if distance > CUT_OFF { 0.0 } else { (HUBER / distance.max(HUBER)).min(1.0) };
        let weight = robust / (point.deviation * point.latency).powi(2);
        let shares = shares(point.octave, edges);
        for i in 0..n {
            for j in 0..n {
                rows[i][j] += weight * shares[i] * shares[j];
            }
            rows[i][n] += weight * shares[i] * point.latency;
        }
    }
    for i in 0..n {
        rows[i][n + 1 + i] = 1.0;
    }
    eliminate(&mut rows)?;
    let solved: Vec<f64> = rows.iter().map(|row| row[n]).collect();
    let is_ladder = solved.iter().all(|rung| *rung > 0.0) && solved.is_sorted();
    let errors = (0..n).map(|i| rows[i][n + 1 + i].max(0.0).sqrt()).collect();
    is_ladder.then_some((solved, errors))
}

/// Gauss-Jordan elimination with partial pivots. Nothing, where the matrix is singular.
fn eliminate(rows: &mut [Vec<f64>]) -> Option<()> {
    for i in 0..rows.len() {
        let pivot = (i..rows.len()).max_by(|&a, &b| rows[a][i].abs().total_cmp(&rows[b][i].abs()))?;
        rows.swap(i, pivot);
        let by = rows[i][i];
        if !by.is_normal() {
            return None;
        }
        rows[i].iter_mut().for_each(|cell| *cell /= by);
        let row = rows[i].clone();
        for (_, other) in rows.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = other[i];
            other.iter_mut().zip(&row).for_each(|(cell, of_row)| *cell -= factor * of_row);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn random_eviction_misses_as_simulated() {
        // A cache of 64 lines that evicts at random, under laps over 1.5 and 3 times as many.
        for ratio in [1.5, 3.0] {
            let (mut rng, lines) = (fastrand::Rng::with_seed(1), 64);
            let (mut cache, mut misses, laps) = (vec![usize::MAX; lines], 0, 4000);
            let set = (lines as f64 * ratio) as usize;
            for line in (0..laps).flat_map(|_| 0..set) {
                if !cache.contains(&line) {
                    (cache[rng.usize(..lines)], misses) = (line, misses + 1);
                }
            }
            let simulated = misses as f64 / (laps * set) as f64;
            assert!((random_misses(ratio) - simulated).abs() < 0.01, "{ratio}: {simulated}");
        }
        assert_eq!((random_misses(0.5), random_misses(1.0)), (0.0, 0.0));
    }

    #[test]
    fn degenerate_curves() {
        assert_eq!(fit(&[]), []);
        let flat: Vec<_> = (2..12).map(|i| (Bytes::kib(1 << i), 5.0, [5.0, 5.0])).collect();
        let found = fit(&flat);
        assert_eq!((found.len(), found[0].capacity), (1, None));
        assert!((found[0].latency[0] - 5.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn never_panics(curve in prop::collection::vec((any::<u64>(), any::<f64>(), any::<[f64; 2]>()), 0..40)) {
            let curve: Vec<_> = curve.into_iter().map(|(s, v, i)| (Bytes(s), v, i)).collect();
            fit(&curve);
        }
    }
}
