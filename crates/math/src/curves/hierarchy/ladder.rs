//! Fits a ladder to a curve of latency over working sets.
//!
//! Where the plateaus are is found as for bandwidth (`levels.rs`). But the points between two plateaus tell as much as
//! those on them: there a known share of the loads misses. So all points are explained together:
//!
//! ```text
//! latency(set) = rung[0] + sum over k:  (rung[k + 1] - rung[k]) * miss(set / capacity[k])
//! ```
//!
//! What share of a cyclic chase misses depends on how the cache evicts. Three shapes are tried for each edge, and the one
//! that fits best is taken: the cliff of least-recently-used eviction; random eviction, where a line survives the misses of
//! one lap with probability (1 - 1/lines)^misses, so that miss = 1 - exp(-miss * set / capacity); and an edge that is worn
//! on both sides, from hashing, from pages that fall where they may, or from sharing (a logistic curve). A coarse search
//! says where an edge begins, then rungs, places and widths move together to the least misfit (Levenberg, 1944;
//! Marquardt, 1963). Deviations are relative, and noise has the long tails of Student's t, so that disturbed points hardly
//! pull. Of a curve of plain latencies they are slow ones: nothing makes a load faster than it is, so a point that is fast costs by its
//! square, and since the end of a cache that others use too moves from visit to visit, points on an edge say less. Where a plateau is
//! too short to be found, two edges explain what one does not: such an edge is split.
//!
//! Huge pages are translated too. Where a set outgrows the pages that the first buffer holds, a load takes longer by what
//! it takes longer in base pages. That step is known (it is measured in base pages), its place is not: some processors hold
//! pages of all sizes in one buffer, some have fewer places for huge ones. So a rung is the mean over all such places, each
//! weighed by its likelihood, and its interval holds what they differ by.
//!
//! A capacity's interval is where the likelihood is not less than e^-1.92 of the greatest, all else being fitted anew
//! (Venzon and Moolgavkar, Applied Statistics 37, 1988), with whatever shape. That of a steep edge reaches from one point to
//! the next. The capacity is the middle of its interval.

use crate::curves::hierarchy::edge::{Edge, Misses, Shape};
use crate::curves::hierarchy::levels;
use crate::curves::hierarchy::noise::Noise;
use crate::in_order::InOrder;
use crate::stats;
use crate::stats::least_squares::NormalEquations;
use crate::stats::{NORMAL_DEVIATION, Z95};
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
    /// Working set that fills the level, with its 95 % interval: [value, low, high]; absent for the last.
    pub capacity: Option<[Bytes; 3]>,
}

/// What translating addresses adds to a curve that was taken in huge pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Translation {
    /// What a load takes longer beyond the first buffer, in the unit of the curve.
    pub latency: f64,
    /// Working set in huge pages that the buffer holds, if it has as many places for them as for base pages.
    pub reach: Bytes,
}

/// A curve: working set, median latency, its 95 % interval.
type Curve<'a> = &'a [(Bytes, f64, [f64; 2])];

/// Deviations below this share are not told apart from noise, nor from a shape that is not quite the cache's.
const FLATNESS: f64 = 0.01;
/// Nor is noise taken to be larger than this.
const NOISE_MAX: f64 = 0.1;
/// That of points whose interval is not known.
const UNKNOWN: f64 = 0.02;
/// How far a cache's end moves from visit to visit, in octaves, where others use it too.
const END_MOVES: f64 = 0.1;
/// Turns of choosing shapes, edge by edge: an edge's first choice was made beside rough neighbours.
const TURNS: usize = 2;
/// Least and greatest width of a worn edge, in octaves.
const WIDTHS: [f64; 2] = [0.01, 0.6];
/// Where the search for a width begins.
const WIDTH_STARTS: [f64; 3] = [0.03, 0.1, 0.3];
/// Steps of the search for an edge, in octaves, and of the walk along a likelihood.
const STEP: f64 = 1.0 / 48.0;
const PROFILE_STEP: f64 = 1.0 / 96.0;
/// How far an edge may lie outside the gap between two plateaus, in octaves.
const REACH: f64 = 0.5;
/// Octaves from where a level begins that say what it takes, and those before its end that say how it ends.
const NEAR_PART: f64 = 2.0;
const EDGE_PART: f64 = 1.0;
/// How far an edge that all curves share may lie from there in one, in octaves.
const NEAR: f64 = 0.35;
/// Standard deviation of the logarithm of a width that points say nothing of: all of [`WIDTHS`] within two of them.
const WIDTH_UNKNOWN: f64 = 1.0;
/// What the diagonal of equations is raised by that can't be solved. Rungs that are determined don't feel it.
const NEARLY_SINGULAR: f64 = 1e-9;
/// What one edge more must gain. It has three parameters; the rest is caution, since no shape is quite a cache's.
const SPLIT_COST: f64 = 20.0;
/// How far apart the two edges lie at first, in octaves. No two levels are closer than one.
const SPLITS: [f64; 3] = [1.0, 2.0, 3.0];
/// Least ratio of two rungs that a split makes, as in `levels.rs`.
const SPLIT_STEP: f64 = 1.12;
/// Intel's first buffers have a third to a half as many places for huge pages as for base pages (32 beside 64 or 96), AMD's
/// as many.
const PLACES_LEAST: f64 = 1.0 / 3.0;
/// What a place costs that is not the one where both pages have as many: there are some ten of them.
const ELSEWHERE_COST: f64 = 2.0;

#[derive(Debug, Clone, Copy)]
struct LatencyPoint {
    octave: f64,
    latency: f64,
    deviation: f64,
}

/// The model: latencies of the levels, and the edges between them.
#[derive(Debug, Clone)]
struct Ladder {
    rungs: Vec<f64>,
    edges: Vec<Edge>,
    /// What translation adds beyond a working set, and log2 of that.
    translation: Option<(f64, f64)>,
    noise: Noise,
    /// What its misfit costs.
    loss: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Parameter {
    Rung(usize),
    Place(usize),
    Width(usize),
}

impl Ladder {
    fn new(rungs: Vec<f64>, edges: Vec<Edge>, noise: Noise) -> Self {
        Ladder { rungs, edges, translation: None, noise, loss: f64::INFINITY }
    }

    fn latency(&self, octave: f64) -> f64 {
        let steps = self.rungs.windows(2).map(|pair| pair[1] - pair[0]);
        let caches = self.edges.iter().zip(steps).map(|(edge, step)| edge.misses(octave).share * step).sum::<f64>();
        self.rungs[0] + caches + self.translated(octave)
    }

    fn translated(&self, octave: f64) -> f64 {
        self.translation.filter(|(_, reach)| octave > *reach).map_or(0.0, |(latency, _)| latency)
    }

    /// How far a point is off, in standard deviations, and by how much more these are than its own: where others take of a cache, its
    /// end moves from visit to visit.
    fn off(&self, point: &LatencyPoint) -> (f64, f64) {
        let latency = self.latency(point.octave).max(1e-12);
        let deviation = self.deviation(point, latency);
        ((point.latency / latency).ln() / deviation, deviation / point.deviation)
    }

    fn deviation(&self, point: &LatencyPoint, latency: f64) -> f64 {
        if self.noise == Noise::Either {
            return point.deviation;
        }
        let steps = self.rungs.windows(2).map(|pair| pair[1] - pair[0]);
        let slope: f64 =
            self.edges.iter().zip(steps).map(|(edge, step)| edge.misses(point.octave).by_place * step).sum();
        point.deviation.hypot(END_MOVES * slope / latency)
    }

    fn judged(mut self, points: &[LatencyPoint]) -> Self {
        let loss = |point: &LatencyPoint| {
            let (off, wider) = self.off(point);
            // A law that is wider is less likely everywhere.
            self.noise.loss(off) + wider.ln()
        };
        self.loss = points.iter().map(loss).sum();
        self
    }

    fn parameters(&self, held: Option<usize>) -> Vec<Parameter> {
        let rungs = (0..self.rungs.len()).map(Parameter::Rung);
        let is_smooth = |k: &usize| self.edges[*k].shape != Shape::Cliff;
        let places = (0..self.edges.len()).filter(is_smooth).filter(|k| held != Some(*k)).map(Parameter::Place);
        let is_worn = |k: &usize| matches!(self.edges[*k].shape, Shape::Worn(_));
        rungs.chain(places).chain((0..self.edges.len()).filter(is_worn).map(Parameter::Width)).collect()
    }

    /// The latency at a working set, and what it changes by with each parameter.
    fn slopes(&self, octave: f64, parameters: &[Parameter]) -> (f64, Vec<f64>) {
        let misses: Vec<Misses> = self.edges.iter().map(|edge| edge.misses(octave)).collect();
        let step = |k: usize| self.rungs[k + 1] - self.rungs[k];
        let share = |k: usize| {
            let before = if k == 0 { 1.0 } else { misses[k - 1].share };
            before - misses.get(k).map_or(0.0, |miss| miss.share)
        };
        let slope = |parameter: &Parameter| match *parameter {
            Parameter::Rung(k) => share(k),
            Parameter::Place(k) => misses[k].by_place * step(k),
            Parameter::Width(k) => misses[k].by_width * step(k),
        };
        let caches: f64 = (0..self.rungs.len()).map(|k| share(k) * self.rungs[k]).sum();
        (caches + self.translated(octave), parameters.iter().map(slope).collect())
    }

    /// With parameters moved by so much; nothing, where that is no ladder.
    fn moved(&self, parameters: &[Parameter], by: &[f64]) -> Option<Self> {
        const FARTHEST: f64 = 0.25;
        let mut moved = self.clone();
        for (parameter, by) in parameters.iter().zip(by) {
            match *parameter {
                Parameter::Rung(k) => moved.rungs[k] += by,
                Parameter::Place(k) => moved.edges[k].octave += by.clamp(-FARTHEST, FARTHEST),
                Parameter::Width(k) => {
                    let Shape::Worn(width) = &mut moved.edges[k].shape else { continue };
                    *width = (*width * by.clamp(-1.0, 1.0).exp()).clamp(WIDTHS[0], WIDTHS[1]);
                }
            }
        }
        let is_ladder = moved.rungs[0] > 0.0
            && moved.rungs.is_sorted()
            && moved.edges.windows(2).all(|pair| pair[0].octave <= pair[1].octave);
        is_ladder.then_some(moved)
    }

    /// What points say about a step of the parameters, those that are off counting less.
    fn equations(&self, points: &[LatencyPoint], parameters: &[Parameter]) -> NormalEquations {
        let mut columns = vec![Vec::with_capacity(points.len()); parameters.len()];
        let (mut target, mut weights) = (Vec::with_capacity(points.len()), Vec::with_capacity(points.len()));
        for point in points {
            let (latency, slopes) = self.slopes(point.octave, parameters);
            let latency = latency.max(1e-12);
            let deviation = self.deviation(point, latency);
            let scale = deviation * latency;
            let off = (point.latency / latency).ln() / deviation;
            columns.iter_mut().zip(&slopes).for_each(|(column, slope)| column.push(slope / scale));
            target.push(off);
            weights.push(self.noise.weight(off));
        }
        NormalEquations::of(&columns, &target, &weights)
    }

    /// Standard errors of the rungs, all else being fitted too. None, where the points do not determine them.
    fn errors(&self, points: &[LatencyPoint]) -> Vec<f64> {
        let parameters = self.parameters(None);
        let mut equations = self.equations(points, &parameters);
        // Slightly raised, where a parameter does not matter.
        equations.raise(0.0, 1e-12);
        let known = equations.clone().variances();
        if known.is_none() {
            equations.raise(NEARLY_SINGULAR, 0.0);
        }
        // An edge that points do not determine is still not just anywhere. Else the rungs beside it would be as unknown.
        for (at, parameter) in parameters.iter().enumerate() {
            let most = match parameter {
                Parameter::Rung(_) => continue,
                Parameter::Place(_) => NEAR,
                Parameter::Width(_) => WIDTH_UNKNOWN,
            };
            if known.as_ref().is_none_or(|variances| variances[at] > most * most) {
                equations.inform(at, 1.0 / (most * most));
            }
        }
        let variances = equations.variances().unwrap_or_default();
        variances.iter().take(self.rungs.len()).map(|variance| variance.sqrt()).collect()
    }

    /// The levels that some point lies in for the most part.
    fn are_seen(&self, points: &[LatencyPoint]) -> Vec<bool> {
        let rungs: Vec<Parameter> = (0..self.rungs.len()).map(Parameter::Rung).collect();
        let mut most = vec![0.0f64; rungs.len()];
        for point in points {
            let (_, shares) = self.slopes(point.octave, &rungs);
            most.iter_mut().zip(shares).for_each(|(most, share)| *most = most.max(share));
        }
        most.into_iter().map(|share| share >= 0.5).collect()
    }

    /// Least loss from here (Levenberg and Marquardt), the place of one edge held where that is asked for.
    fn refined(self, points: &[LatencyPoint], held: Option<usize>) -> Self {
        const STEPS: usize = 15;
        let parameters = self.parameters(held);
        let mut at = self.judged(points);
        let mut damping = 1e-3;
        for _ in 0..STEPS {
            let equations = at.equations(points, &parameters);
            let before = at.loss;
            while damping < 1e6 {
                let mut damped = equations.clone();
                damped.raise(damping, 1e-12);
                let next =
                    damped.solved().and_then(|step| at.moved(&parameters, &step)).map(|next| next.judged(points));
                match next.filter(|next| next.loss < at.loss) {
                    Some(next) => {
                        at = next;
                        damping = (damping / 10.0f64).max(1e-6);
                        break;
                    }
                    None => damping *= 10.0,
                }
            }
            if before - at.loss < 1e-3 {
                break;
            }
        }
        at
    }
}

/// The rungs in `curve`, lowest first. Empty if there are too few points.
pub fn fit(curve: Curve, translation: Option<Translation>) -> Vec<Rung> {
    let plateaus = levels::find(&speeds(curve));
    let Some(first) = plateaus.first() else { return Vec::new() };
    let points = points(curve, first.from);
    let capacities = plateaus.iter().filter_map(|plateau| plateau.capacity);
    let edges = capacities.map(|capacity| Edge { shape: Shape::Worn(WIDTH_STARTS[1]), octave: octave(capacity) });
    let rungs = plateaus.iter().map(|plateau| 1.0 / plateau.speed).collect();
    let start = Ladder::new(rungs, edges.collect(), Noise::Either).judged(&points);
    let mut ranges: Vec<[Bytes; 2]> = plateaus.iter().map(|plateau| [plateau.from, plateau.to]).collect();
    let mut ladder = chosen(&points, start, &gaps(&ranges));
    if let Some((k, split)) = split(&points, &ladder) {
        let sets: Vec<Bytes> = curve.iter().map(|point| point.0).collect();
        let inside =
            sets.iter().filter(|set| (split.edges[k].octave..=split.edges[k + 1].octave).contains(&octave(**set)));
        if let (Some(&from), Some(&to)) = (inside.clone().min(), inside.max()) {
            insert_between(&mut ranges, k, [from, to], &sets);
            ladder = chosen(&points, split, &gaps(&ranges));
        }
    }
    for _ in 1..TURNS {
        let likeliest = translated(&points, &ladder, translation).into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        ladder = chosen(&points, likeliest.map_or(ladder, |likeliest| likeliest.1), &gaps(&ranges));
    }
    let scale = scale(&points, &ladder);
    let latencies = latencies(&points, &ladder, translation, scale);
    let capacities = gaps(&ranges).into_iter().enumerate().map(|(k, gap)| capacity(&points, &ladder, k, gap, scale));
    let capacities = capacities.map(Some).chain([None]);
    let rung = |((&[from, to], latency), capacity): ((&[Bytes; 2], _), _)| Rung { from, to, latency, capacity };
    ranges.iter().zip(latencies).zip(capacities).map(rung).collect()
}

/// The latencies of the levels that end at `ends`, each with its 95 % interval, lowest first: the edges move little. A level that is
/// wide is known by its near part, before more and more of the translation misses, and by what lies around its end. `None` for a
/// level that the points do not determine.
pub fn latencies_between(curve: Curve, ends: &[Bytes], translation: Option<Translation>) -> Vec<Option<[f64; 3]>> {
    let edges: Vec<Edge> =
        ends.iter().map(|end| Edge { shape: Shape::Worn(WIDTH_STARTS[1]), octave: octave(*end) }).collect();
    let mut points = points(curve, Bytes(0));
    keep_telling(&mut points, &edges);
    if points.is_empty() {
        return Vec::new();
    }
    let gaps: Vec<[f64; 2]> = edges.iter().map(|edge| [edge.octave - NEAR, edge.octave + NEAR]).collect();
    let mut rungs: Vec<f64> = Vec::new();
    for k in 0..=edges.len() {
        let (from, to) = (k.checked_sub(1).map_or(0.0, |k| edges[k].octave), edges.get(k).map_or(64.0, |e| e.octave));
        let inside = points.iter().filter(|point| point.octave > from && point.octave <= to).map(|point| point.latency);
        let before = rungs.last().copied().unwrap_or(points[0].latency);
        rungs.push(stats::quantiles::median(inside).unwrap_or(before).max(before));
    }
    let mut ladder = Ladder::new(rungs, edges, Noise::Slow).judged(&points);
    ladder = chosen(&points, ladder, &gaps);
    for _ in 1..TURNS {
        let likeliest = translated(&points, &ladder, translation).into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        ladder = chosen(&points, likeliest.map_or(ladder, |likeliest| likeliest.1), &gaps);
    }
    let latencies = latencies(&points, &ladder, translation, scale(&points, &ladder));
    // What may as well be nothing is no latency.
    let is_known = |[_, low, high]: &[f64; 3]| *low > 0.0 && high.is_finite();
    let seen = ladder.are_seen(&points).into_iter();
    seen.zip(latencies).map(|(is_seen, latency)| Some(latency).filter(|_| is_seen).filter(is_known)).collect()
}

/// Keeps the points in the near part of their level, or around the level's end. Where none lies in the near part, the level is known
/// by what there is.
fn keep_telling(points: &mut Vec<LatencyPoint>, edges: &[Edge]) {
    let level = |point: &LatencyPoint| edges.partition_point(|edge| edge.octave < point.octave);
    let is_near = |point: &LatencyPoint| {
        level(point).checked_sub(1).is_none_or(|before| point.octave <= edges[before].octave + NEAR_PART)
    };
    let mut has_near = vec![false; edges.len() + 1];
    points.iter().filter(|point| is_near(point)).for_each(|point| has_near[level(point)] = true);
    points.retain(|point| {
        let is_around_end = edges.get(level(point)).is_some_and(|edge| point.octave >= edge.octave - EDGE_PART);
        is_near(point) || is_around_end || !has_near[level(point)]
    });
}

fn octave(bytes: Bytes) -> f64 {
    (bytes.0.max(1) as f64).log2()
}

/// Puts a plateau behind the one at `k`, and cuts its neighbours where it begins and ends: they were found without it.
fn insert_between(ranges: &mut Vec<[Bytes; 2]>, k: usize, [from, to]: [Bytes; 2], sets: &[Bytes]) {
    let before = sets.iter().copied().filter(|set| *set < from).max().unwrap_or(from);
    let beyond = sets.iter().copied().filter(|set| *set > to).min().unwrap_or(to);
    ranges[k] = ranges[k].map(|end| end.min(before));
    ranges[k + 1] = ranges[k + 1].map(|end| end.max(beyond));
    ranges.insert(k + 1, [from, to]);
}

/// Where edges are looked for, in octaves: between the middles of two plateaus, not far from where these end.
fn gaps(ranges: &[[Bytes; 2]]) -> Vec<[f64; 2]> {
    let middle = |[from, to]: [Bytes; 2]| (octave(from) + octave(to)) / 2.0;
    let gap = |pair: &[[Bytes; 2]]| {
        let (to, from) = (octave(pair[0][1]) - REACH, octave(pair[1][0]) + REACH);
        [to.max(middle(pair[0])), from.min(middle(pair[1]))]
    };
    ranges.windows(2).map(gap).collect()
}

/// The best shape of each edge, one after the other.
fn chosen(points: &[LatencyPoint], mut ladder: Ladder, gaps: &[[f64; 2]]) -> Ladder {
    for (k, &gap) in gaps.iter().enumerate() {
        ladder = shapes(points, &ladder, k, gap).into_iter().min_by(by_loss).unwrap_or(ladder);
    }
    ladder
}

fn by_loss(a: &Ladder, b: &Ladder) -> std::cmp::Ordering {
    a.loss.total_cmp(&b.loss)
}

/// The ladder with each shape of edge `k`, at its best.
fn shapes(points: &[LatencyPoint], ladder: &Ladder, k: usize, [low, high]: [f64; 2]) -> Vec<Ladder> {
    let near: Vec<LatencyPoint> =
        points.iter().copied().filter(|point| point.octave > low - 1.0 && point.octave < high + 1.0).collect();
    let placed = |shape: Shape| {
        let places = (0..).map(|n| low + f64::from(n) * STEP).take_while(|&octave| octave <= high);
        let with = |octave: f64| {
            let mut with = ladder.clone();
            with.edges[k] = Edge { shape, octave };
            with.judged(&near)
        };
        places.map(with).min_by(by_loss)
    };
    let starts = [Shape::Cliff, Shape::Random].into_iter().chain(WIDTH_STARTS.map(Shape::Worn)).filter_map(placed);
    starts.map(|start| start.refined(points, None)).collect()
}

/// An edge that two explain much better, and the ladder with the two.
fn split(points: &[LatencyPoint], ladder: &Ladder) -> Option<(usize, Ladder)> {
    let with = |(k, below, above): (usize, f64, f64)| {
        let mut with = ladder.clone();
        let edge = |by: f64| Edge { shape: Shape::Worn(WIDTH_STARTS[1]), octave: ladder.edges[k].octave + by };
        with.rungs.insert(k + 1, (ladder.rungs[k] * ladder.rungs[k + 1]).sqrt());
        with.edges.splice(k..=k, [edge(-below), edge(above)]);
        let is_ladder = with.edges.is_sorted_by(|a, b| a.octave <= b.octave);
        is_ladder.then(|| (k, with.refined(points, None)))
    };
    let starts =
        (0..ladder.edges.len()).flat_map(|k| SPLITS.into_iter().flat_map(move |by| [(k, by, 0.0), (k, 0.0, by)]));
    let is_apart = |(k, split): &(usize, Ladder)| {
        let steps = split.rungs[*k..].windows(2).take(2);
        split.edges[k + 1].octave - split.edges[*k].octave >= SPLITS[0]
            && steps.into_iter().all(|pair| pair[1] >= SPLIT_STEP * pair[0])
    };
    let best = starts.filter_map(with).filter(is_apart).min_by(|a, b| by_loss(&a.1, &b.1))?;
    (best.1.loss + SPLIT_COST < ladder.loss).then_some(best)
}

/// The ladder without a step from translation and with one at each place where it may be: its probability, and it at its best.
fn translated(points: &[LatencyPoint], ladder: &Ladder, translation: Option<Translation>) -> Vec<(f64, Ladder)> {
    let at = |translation| Ladder { translation, ..ladder.clone() }.refined(points, None);
    let without = at(None);
    let mut all = vec![(-without.loss, without)];
    if let Some(Translation { latency, reach }) = translation {
        let reach = octave(reach);
        for pair in
            points.windows(2).filter(|pair| pair[0].octave < reach && pair[1].octave > reach + PLACES_LEAST.log2())
        {
            let with = at(Some((latency, (pair[0].octave + pair[1].octave) / 2.0)));
            let cost = if pair[1].octave > reach { 0.0 } else { ELSEWHERE_COST };
            all.push((-with.loss - cost, with));
        }
    }
    let most = all.iter().map(|(likelihood, _)| *likelihood).fold(f64::NEG_INFINITY, f64::max);
    all.iter_mut().for_each(|(likelihood, _)| *likelihood = (*likelihood - most).exp());
    let sum: f64 = all.iter().map(|(likelihood, _)| likelihood).sum();
    all.into_iter().map(|(likelihood, ladder)| (likelihood / sum, ladder)).collect()
}

/// What deviations must be multiplied by to be those that are seen.
fn scale(points: &[LatencyPoint], ladder: &Ladder) -> f64 {
    let off = points.iter().map(|point| ladder.off(point).0.abs());
    stats::quantiles::median(off).map_or(1.0, |median| NORMAL_DEVIATION * median).max(1.0)
}

/// Each rung with its 95 % interval: the mean over where translation may add its step.
fn latencies(points: &[LatencyPoint], ladder: &Ladder, translation: Option<Translation>, scale: f64) -> Vec<[f64; 3]> {
    let all = translated(points, ladder, translation);
    let all: Vec<(f64, &[f64], Vec<f64>)> =
        all.iter().map(|(part, ladder)| (*part, &ladder.rungs[..], ladder.errors(points))).collect();
    let latency = |k: usize| {
        let mean: f64 = all.iter().map(|(part, rungs, _)| part * rungs[k]).sum();
        let square = |(part, rungs, errors): &(f64, &[f64], Vec<f64>)| {
            let error = scale * errors.get(k).copied().unwrap_or(f64::INFINITY);
            part * (error.powi(2) + (rungs[k] - mean).powi(2))
        };
        let error = Z95 * all.iter().map(square).sum::<f64>().sqrt();
        [mean, mean - error, mean + error]
    };
    (0..ladder.rungs.len()).map(latency).collect()
}

/// The capacity of edge `k` with its 95 % interval.
fn capacity(points: &[LatencyPoint], ladder: &Ladder, k: usize, gap: [f64; 2], scale: f64) -> [Bytes; 3] {
    const WITHIN: f64 = 1.92;
    let most = ladder.loss + WITHIN * scale * scale;
    let here = ladder.edges[k].octave;
    let (mut low, mut high) = (here, here);
    for ladder in shapes(points, ladder, k, gap).into_iter().filter(|ladder| ladder.loss <= most) {
        low = low.min(walk(points, &ladder, k, gap, -PROFILE_STEP, most));
        high = high.max(walk(points, &ladder, k, gap, PROFILE_STEP, most));
    }
    [(low + high) / 2.0, low, high].map(|octave| Bytes(octave.exp2().round() as u64))
}

/// How far edge `k` may move in one direction before even the best ladder loses more than `most`; log2.
fn walk(points: &[LatencyPoint], from: &Ladder, k: usize, [low, high]: [f64; 2], mut step: f64, most: f64) -> f64 {
    const FINEST: f64 = PROFILE_STEP / 16.0;
    let mut at = from.clone();
    while (low..=high).contains(&at.edges[k].octave) {
        let here = at.edges[k].octave;
        let mut next = at.clone();
        next.edges[k].octave += step;
        next = next.refined(points, Some(k));
        // At a steep edge the last step must be a small one.
        if next.loss > most && step.abs() > FINEST {
            step /= 2.0;
            continue;
        }
        if next.loss > most {
            return here + step * ((most - at.loss) / (next.loss - at.loss)).clamp(0.0, 1.0);
        }
        at = next;
    }
    at.edges[k].octave
}

fn speeds(curve: Curve) -> Vec<(Bytes, f64, [f64; 2])> {
    curve.iter().map(|&(set, latency, [low, high])| (set, 1.0 / latency, [1.0 / high, 1.0 / low])).collect()
}

/// The points from the first plateau on, by working set.
fn points(curve: Curve, first: Bytes) -> Vec<LatencyPoint> {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    let mut points: Vec<LatencyPoint> = curve
        .iter()
        .filter(|(set, latency, _)| *set >= first && set.0 > 0 && positive(*latency))
        .map(|&(set, latency, [low, high])| {
            let interval = if positive(low) && high > low { (high / low).ln() / (2.0 * Z95) } else { UNKNOWN };
            LatencyPoint { octave: (set.0 as f64).log2(), latency, deviation: interval.clamp(FLATNESS, NOISE_MAX) }
        })
        .collect();
    points.order_by(|a, b| a.octave.total_cmp(&b.octave));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn degenerate_curves() {
        assert_eq!(fit(&[], None), []);
        let flat: Vec<_> = (2..12).map(|i| (Bytes::kib(1 << i), 5.0, [5.0, 5.0])).collect();
        let found = fit(&flat, None);
        assert_eq!((found.len(), found[0].capacity), (1, None));
        assert!((found[0].latency[0] - 5.0).abs() < 1e-9);
    }

    /// Chases over rising sets on a guest with neighbours (AMD Zen 3, 3.24 GHz): KiB and ns of single visits, and of visits enough for an
    /// interval. Undisturbed this core's L2 takes 12 cycles, 3.7 ns, and its L3 some 50.
    fn assert_levels(single: &[f64], often: &[(f64, f64, [f64; 2])], ends: [f64; 3], expected: [[f64; 2]; 4]) {
        let bytes = |kib: f64| Bytes((kib * 1024.0) as u64);
        let mut curve: Vec<_> = single.chunks(2).map(|point| (bytes(point[0]), point[1], [point[1]; 2])).collect();
        curve.extend(often.iter().map(|&(set, ns, interval)| (bytes(set), ns, interval)));
        let found = latencies_between(&curve, &ends.map(bytes), None);
        let middle: Vec<f64> = found.iter().map(|rung| rung.unwrap()[0]).collect();
        for (found, [low, high]) in middle.iter().zip(expected) {
            assert!((low..=high).contains(found), "{middle:?}");
        }
    }

    /// Visits were disturbed at 91 KiB, at 8 MiB and around each edge.
    #[test]
    fn disturbed_points_lift_no_level() {
        let single = [
            4.0, 1.24, 6.0, 1.34, 8.0, 1.24, 11.0, 1.31, 16.0, 1.24, 23.0, 1.41, 26.9, 1.54, 29.3, 3.74, 32.0, 3.16,
            34.9, 3.46, 38.0, 4.00, 45.0, 3.72, 64.0, 3.89, 91.0, 7.42, 181.0, 4.38, 256.0, 3.87, 362.0, 8.72, 430.5,
            8.32, 469.5, 14.15, 512.0, 11.58, 558.3, 9.93, 608.8, 13.22, 724.0, 15.82, 1024.0, 17.73, 1448.0, 16.07,
            2048.0, 16.85, 2896.0, 18.59, 4096.0, 16.66, 5793.0, 17.36, 8192.0, 29.31, 11585.0, 26.28, 16384.0, 131.36,
            23170.0, 122.28, 32768.0, 137.04, 46341.0, 141.03, 65536.0, 154.56, 92682.0, 145.48,
        ];
        let often = [(24.0, 1.27, [1.24, 1.29]), (128.0, 3.82, [3.72, 3.92]), (131_072.0, 145.8, [140.7, 151.1])];
        let expected = [[1.23, 1.29], [3.65, 3.85], [15.5, 17.2], [135.0, 150.0]];
        assert_levels(&single, &often, [31.3, 498.0, 12_900.0], expected);
    }

    /// The L2 ended earlier in some visits than in others: those from 512 to 724 KiB still hit, those before miss already.
    #[test]
    fn an_end_that_moves_lowers_no_level() {
        let single = [
            4.0, 1.24, 6.0, 1.29, 8.0, 1.24, 11.0, 1.30, 16.0, 1.24, 23.0, 1.52, 26.9, 1.25, 29.3, 1.26, 32.0, 1.33,
            34.9, 2.23, 38.0, 3.65, 45.0, 3.69, 64.0, 3.73, 91.0, 3.73, 181.0, 3.76, 256.0, 3.89, 362.0, 5.67, 430.5,
            8.40, 469.5, 8.61, 512.0, 10.66, 558.3, 10.40, 608.8, 10.27, 724.0, 13.10, 1024.0, 15.91, 1448.0, 16.27,
            2048.0, 16.31, 2896.0, 16.82, 4096.0, 16.95, 5793.0, 16.93, 8192.0, 18.09, 11585.0, 72.81, 16384.0, 99.95,
            23170.0, 135.36, 32768.0, 131.00, 46341.0, 127.24, 65536.0, 128.24, 92682.0, 151.96,
        ];
        let often = [(24.0, 1.25, [1.25, 1.25]), (128.0, 3.75, [3.73, 3.76]), (131_072.0, 139.7, [137.4, 142.0])];
        let expected = [[1.23, 1.27], [3.65, 3.80], [15.5, 17.2], [125.0, 140.0]];
        assert_levels(&single, &often, [33.9, 504.0, 15_462.0], expected);
    }

    /// Latencies of the levels of the same guest by the chases of a record that was cut off: bytes and ns, and the interval of one.
    fn of_a_part(points: &[(u64, f64)], often: Option<(u64, f64, [f64; 2])>, ends: [f64; 3]) -> Vec<Option<[f64; 3]>> {
        let mut curve: Vec<_> = points.iter().map(|&(set, ns)| (Bytes(set), ns, [ns; 2])).collect();
        curve.extend(often.map(|(set, ns, interval)| (Bytes(set), ns, interval)));
        latencies_between(&curve, &ends.map(|kib| Bytes((kib * 1024.0) as u64)), None)
    }

    #[track_caller]
    fn assert_between(found: Option<[f64; 3]>, [least, most]: [f64; 2]) {
        let [ns, low, high] = found.expect("a latency");
        assert!(least <= low && low <= ns && ns <= high && high <= most, "{ns} [{low}, {high}]");
    }

    /// Memory has only chases more than two octaves beyond where it begins: it takes what they take, not what lies before it.
    #[test]
    fn a_level_is_known_by_far_points_where_there_are_no_near_ones() {
        let points = [
            (6144, 1.239),
            (24576, 1.247),
            (131_072, 3.764),
            (370_688, 6.679),
            (524_288, 9.181),
            (2_097_152, 17.97),
            (4_194_304, 16.78),
            (67_108_864, 140.8),
            (134_217_728, 138.1),
        ];
        let found = of_a_part(&points, None, [32.8, 516.0, 14_643.0]);
        assert_between(found[0], [1.1, 1.4]);
        assert_between(found[3], [120.0, 160.0]);
    }

    /// Nothing was measured beyond the last cache.
    #[test]
    fn a_level_without_points_has_no_latency() {
        let points = [
            (6144, 1.239),
            (24576, 1.247),
            (46_080, 3.75),
            (131_072, 3.764),
            (370_688, 6.679),
            (1_048_576, 16.1),
            (2_097_152, 16.5),
            (4_194_304, 16.78),
        ];
        let found = of_a_part(&points, None, [32.8, 516.0, 14_643.0]);
        assert_between(found[0], [1.1, 1.4]);
        assert_between(found[1], [3.3, 4.3]);
        assert_between(found[2], [14.0, 19.0]);
        assert_eq!(found[3], None);
        // Nor between two levels.
        let found = of_a_part(&points[..4], Some((134_217_728, 139.0, [137.0, 141.0])), [32.8, 516.0, 14_643.0]);
        assert_eq!(found[2], None);
        assert_between(found[3], [110.0, 170.0]);
        assert_eq!(of_a_part(&[], None, [32.8, 516.0, 14_643.0]), []);
    }

    /// One chase in L1, and none that tells how its end looks: that makes the others' latencies no less certain.
    #[test]
    fn an_edge_that_nothing_determines_leaves_its_neighbours_known() {
        let points = [
            (38_912, 3.909),
            (46_080, 3.698),
            (131_072, 3.733),
            (262_144, 4.009),
            (370_688, 11.99),
            (480_768, 12.85),
            (524_288, 12.19),
            (741_376, 15.48),
            (2_965_504, 17.19),
            (4_194_304, 17.63),
            (11_863_040, 30.82),
            (16_777_216, 98.77),
            (23_726_080, 106.9),
            (33_554_432, 134.05),
            (47_453_184, 153.1),
            (67_108_864, 143.8),
            (134_217_728, 138.1),
        ];
        let found = of_a_part(&points, Some((24_576, 1.247, [1.004, 1.550])), [32.0, 475.0, 17_715.0]);
        assert_between(found[0], [0.9, 1.7]);
        assert_between(found[1], [3.3, 4.3]);
        assert_between(found[2], [10.0, 19.0]);
        assert_between(found[3], [120.0, 160.0]);
    }

    /// A plateau was found from 4 to 64 KiB, then it turned out that one of 32 to 128 KiB begins in it.
    #[test]
    fn a_plateau_between_two_cuts_them() {
        let sets: Vec<Bytes> = (2..10).map(|n| Bytes::kib(1 << n)).collect();
        let kib = |[from, to]: [u64; 2]| [Bytes::kib(from), Bytes::kib(to)];
        let mut ranges = [[4, 64], [64, 512]].map(kib).to_vec();
        insert_between(&mut ranges, 0, kib([32, 128]), &sets);
        assert_eq!(ranges, [[4, 16], [32, 128], [256, 512]].map(kib));
        assert!(gaps(&ranges).iter().all(|[low, high]| low < high), "{:?}", gaps(&ranges));
        let mut apart = [[4, 8], [256, 512]].map(kib).to_vec();
        insert_between(&mut apart, 0, kib([32, 64]), &sets);
        assert_eq!(apart, [[4, 8], [32, 64], [256, 512]].map(kib));
    }

    proptest! {
        #[test]
        fn a_level_has_a_sound_interval_or_none(curve in prop::collection::vec((10.0..28.0f64, 0.5..200.0f64), 0..30)) {
            let curve: Vec<_> = curve.into_iter().map(|(set, ns)| (Bytes(set.exp2() as u64), ns, [ns; 2])).collect();
            let ends = [Bytes::kib(32), Bytes::kib(512), Bytes::mib(16)];
            let found = latencies_between(&curve, &ends, Some(Translation { latency: 1.0, reach: Bytes::mib(4) }));
            for [ns, low, high] in found.into_iter().flatten() {
                assert!(0.0 < low && low < ns && ns < high && high < 2.0 * ns, "{ns} [{low}, {high}]");
            }
        }

        #[test]
        fn never_panics(curve in prop::collection::vec((any::<u64>(), any::<f64>(), any::<[f64; 2]>()), 0..40)) {
            let curve: Vec<_> = curve.into_iter().map(|(s, v, i)| (Bytes(s), v, i)).collect();
            fit(&curve, Some(Translation { latency: 1.0, reach: Bytes(1 << 20) }));
        }
    }
}
