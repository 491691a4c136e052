//! The time of a message over its size: regimes, caches and chunks, fitted to a ping-pong.
//!
//! ```text
//! T(n) = latency of its regime + n / bandwidth of its regime
//!      + (n - K) x what a byte costs more          for n beyond a cache that holds K
//!      + (chunks of n - 1) x turn-around           for n beyond the limit C of a chunk
//! ```
//!
//! Once it is known where regimes change, which K and which C, the rest is linear: relative deviations are minimised, points
//! that are off counting less (noise has the tails of Student's t). Where is found by trying: one thing more is taken as long
//! as the Bayesian information criterion (Schwarz, Annals of Statistics 6, 1978) gains by it, each place that was searched
//! for counting as three parameters, since the best of many places fits noise better than one that was known before. Then each
//! thing is taken away and everything that could stand there instead is tried.
//!
//! At powers of two the steps of chunks lie on a straight line, so that chunks look like a cache that is full at C. Where both
//! explain as much the cache is taken: it claims less. Sizes between the powers of two tell the two apart.

use crate::in_order::InOrder;
use std::cmp::Ordering;

use crate::stats::least_squares::{NormalEquations, values};
use crate::stats::quantiles::median;
use crate::stats::{NORMAL_DEVIATION, normal, with_draws};

/// A size and the time of one way: median and 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Bytes of the message.
    pub bytes: f64,
    /// Seconds: [median, low, high].
    pub one_way_s: [f64; 3],
}

/// Sizes that are sent in one way. Values are [value, low, high] with 95 %.
#[derive(Debug, Clone, PartialEq)]
pub struct Regime {
    /// Smallest size measured in it.
    pub from: f64,
    /// Largest size measured in it, and the first beyond: it ends between the two. Absent for the last.
    pub to: Option<[f64; 2]>,
    /// Seconds for a message without bytes; absent where the sizes of the regime would have it below 0, and it was held there.
    pub latency_s: Option<[f64; 3]>,
    /// Bytes a second that are added to that; absent where the sizes of the regime do not determine it.
    pub bytes_per_s: Option<[f64; 3]>,
}

/// A cache on the path: what goes beyond it is slower.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// Bytes of a message that it holds.
    pub capacity: [f64; 3],
    /// Bytes a second beyond.
    pub bytes_per_s: [f64; 3],
}

/// Long messages go in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunks {
    /// Bytes of a chunk.
    pub limit: [f64; 3],
    /// Seconds that each further chunk costs.
    pub turnaround_s: [f64; 3],
}

/// What a ping-pong of one pair says.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// By size; never empty.
    pub regimes: Vec<Regime>,
    /// By capacity.
    pub caches: Vec<Cache>,
    /// Whether and where messages are cut, as far as one pair alone tells.
    pub chunks: Option<Chunks>,
    /// Bytes a second of messages of any length, in the long run; absent where the sizes do not determine it.
    pub asymptote: Option<[f64; 3]>,
    /// What is left: typical relative deviation of a point (1.48 x the median of absolute ones).
    pub residual: f64,
    /// The relative standard error that points have by their own intervals: median.
    pub noise: f64,
    /// The greatest relative deviation, and the size that it is at.
    pub worst: [f64; 2],
    model: Model,
}

/// Residuals up to this share are a fit, however small the noise: the model leaves much out.
const GOOD: f64 = 0.05;
/// And up to so many standard errors of the points.
const NOISES: f64 = 3.0;
/// But never more than this: of points that are known to a factor of two no curve tells anything.
pub(crate) const MOST_ALLOWED: f64 = 0.3;

impl Fit {
    /// Seconds for one way of a message.
    pub fn one_way_s(&self, bytes: f64) -> f64 {
        self.model.time(bytes)
    }

    /// Latency of the regime that a size belongs to, in seconds.
    pub fn latency_s(&self, bytes: f64) -> f64 {
        self.model.linear[2 * self.model.regime_of(bytes)]
    }

    /// Whether the curve has this form: residuals no larger than what noise allows.
    pub fn holds(&self) -> bool {
        self.residual <= self.allowed()
    }

    /// The greatest residual that is a fit.
    pub fn allowed(&self) -> f64 {
        GOOD.max(NOISES * self.noise).min(MOST_ALLOWED)
    }
}

/// Fewer sizes say nothing.
const POINTS_MIN: usize = 6;
/// Points of a regime at least.
const REGIME_POINTS_MIN: usize = 3;
/// Points beyond a cache or a limit at least.
const BEYOND_MIN: usize = 3;
/// And, with bytes in them, within it.
const WITHIN_MIN: usize = 1;
/// At most so many switches and caches: with more of them any curve fits.
const BREAKS_MAX: usize = 2;
const CACHES_MAX: usize = 2;
/// Degrees of freedom of the noise.
const FREEDOM: f64 = 4.0;
/// No curve is believed to be smoother than this.
const SCALE_MIN: f64 = 0.003;
/// Smallest cache and chunk that are looked for.
const PLACE_MIN: f64 = 1024.0;
/// Places a factor of two at which they are looked for, and then how much finer.
const CACHE_PLACES: i32 = 8;
const CHUNK_PLACES: i32 = 16;
const FINER: i32 = 8;
/// A place that was searched for counts as so many parameters.
const PLACE_COST: f64 = 3.0;
/// Chunks claim more than a cache or a switch does, steps at all their multiples: they must show by so many parameters more.
const CLAIM_COST: f64 = 2.0;
/// Reweightings while searching, and for the answer.
const TURNS: [usize; 2] = [2, 8];
/// Sweeps over everything that was taken, at most.
const SWEEPS: usize = 4;
/// Draws behind the intervals.
const DRAWS: usize = 60;
/// Fall of twice the logarithm of the likelihood at the ends of a 95 % interval.
const FALL_95: f64 = 3.84;
/// An interval of a bandwidth with this ratio of its ends says that it is not determined.
const UNDETERMINED: f64 = 4.0;

/// Something beside a straight line.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Feature {
    /// A new regime begins with this size.
    Break(f64),
    /// A cache of this capacity.
    Cache(f64),
    /// Chunks of this size.
    Chunk(f64),
}

impl Feature {
    /// As so many parameters it counts; a limit that is known from elsewhere was not searched for.
    fn parameters(self, known: Option<f64>) -> f64 {
        match self {
            Feature::Break(_) => 2.0 + PLACE_COST,
            Feature::Cache(_) => 1.0 + PLACE_COST,
            Feature::Chunk(_) if known.is_some() => 1.0,
            Feature::Chunk(_) => 1.0 + PLACE_COST + CLAIM_COST,
        }
    }

    /// What its parameter counts at a size; those of a regime are two.
    fn counts(self, bytes: f64) -> f64 {
        match self {
            Feature::Break(_) => 0.0,
            Feature::Cache(capacity) => (bytes - capacity).max(0.0),
            Feature::Chunk(limit) => further_chunks(bytes, limit),
        }
    }

    fn is_break(&self) -> bool {
        matches!(self, Feature::Break(_))
    }

    fn order(&self) -> (u8, f64) {
        match *self {
            Feature::Break(at) => (0, at),
            Feature::Cache(at) => (1, at),
            Feature::Chunk(at) => (2, at),
        }
    }
}

/// Chunks beyond the first.
pub(crate) fn further_chunks(bytes: f64, limit: f64) -> f64 {
    // A size that is a whole number of chunks but for rounding is that.
    ((bytes / limit * (1.0 - 1e-9)).ceil() - 1.0).max(0.0)
}

/// Where things are, and what follows: latency and seconds a byte of each regime, then seconds a byte more of each cache, then
/// seconds a further chunk.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    features: Vec<Feature>,
    linear: Vec<f64>,
    /// Scale of the relative deviations.
    scale: f64,
    /// Twice the negative logarithm of the likelihood, but for a constant.
    misfit: f64,
    /// The same and what the features cost.
    cost: f64,
}

impl Model {
    fn breaks(features: &[Feature]) -> impl Iterator<Item = f64> + '_ {
        features.iter().filter_map(|feature| if let Feature::Break(at) = feature { Some(*at) } else { None })
    }

    fn regime_of(&self, bytes: f64) -> usize {
        Model::breaks(&self.features).filter(|at| bytes >= *at).count()
    }

    fn time(&self, bytes: f64) -> f64 {
        let own = 2 * self.regime_of(bytes);
        let others = self.others().map(|(feature, by)| by * feature.counts(bytes)).sum::<f64>();
        self.linear[own] + bytes * self.linear[own + 1] + others
    }

    /// What is not a switch, with its parameter. Features are in order.
    fn others(&self) -> impl Iterator<Item = (Feature, f64)> {
        let breaks = Model::breaks(&self.features).count();
        self.features[breaks..].iter().copied().zip(self.linear[2 * (breaks + 1)..].iter().copied())
    }

    /// Seconds a byte of ever longer messages.
    fn last_slope(&self) -> f64 {
        let regimes = Model::breaks(&self.features).count() + 1;
        let per_byte = |(feature, by)| if let Feature::Chunk(limit) = feature { by / limit } else { by };
        self.linear[2 * regimes - 1] + self.others().map(per_byte).sum::<f64>()
    }
}

/// What each parameter counts at these sizes. Features are in order.
fn columns(features: &[Feature], sizes: &[f64]) -> Vec<Vec<f64>> {
    let over = |counts: &dyn Fn(f64) -> f64| sizes.iter().map(|&bytes| counts(bytes)).collect::<Vec<f64>>();
    let begins: Vec<f64> = [f64::NEG_INFINITY].into_iter().chain(Model::breaks(features)).collect();
    let mut columns = Vec::with_capacity(2 * begins.len() + features.len());
    for (regime, &from) in begins.iter().enumerate() {
        let to = begins.get(regime + 1).copied().unwrap_or(f64::INFINITY);
        let own = |bytes: f64| f64::from(u8::from(bytes >= from && bytes < to));
        columns.extend([over(&own), over(&|bytes| bytes * own(bytes))]);
    }
    let others = features.iter().filter(|feature| !feature.is_break());
    columns.extend(others.map(|feature| over(&|bytes| feature.counts(bytes))));
    columns
}

/// Points as the fit wants them, by size.
#[derive(Clone)]
struct Data {
    sizes: Vec<f64>,
    times: Vec<f64>,
    /// Relative standard errors over that of the typical point.
    errors: Vec<f64>,
    noise: f64,
    /// Limit of a chunk, where it is known from elsewhere.
    known: Option<f64>,
}

impl Data {
    fn of(points: &[Point], known: Option<f64>) -> Option<Data> {
        let is_usable = |point: &&Point| {
            let [time, low, high] = point.one_way_s;
            point.bytes.is_finite()
                && point.bytes >= 0.0
                && time.is_finite()
                && time > 0.0
                && low.is_finite()
                && high.is_finite()
        };
        let mut usable: Vec<&Point> = points.iter().filter(is_usable).collect();
        usable.order_by(|a, b| a.bytes.total_cmp(&b.bytes));
        usable.dedup_by(|a, b| a.bytes == b.bytes);
        if usable.len() < POINTS_MIN {
            return None;
        }
        let error =
            |point: &&Point| ((point.one_way_s[2] - point.one_way_s[1]) / (2.0 * 1.96 * point.one_way_s[0])).max(0.0);
        let noise = median(usable.iter().map(error)).unwrap_or(0.0);
        // One point's interval is a rough estimate: no point counts four times as much as the typical one.
        let relative = |point: &&Point| if noise > 0.0 { (error(point) / noise).clamp(0.5, 4.0) } else { 1.0 };
        Some(Data {
            sizes: usable.iter().map(|point| point.bytes).collect(),
            times: usable.iter().map(|point| point.one_way_s[0]).collect(),
            errors: usable.iter().map(relative).collect(),
            noise,
            known,
        })
    }

    fn largest(&self) -> f64 {
        self.sizes.last().copied().unwrap_or(0.0)
    }

    /// Whether sizes on both sides of a place show what changes there.
    fn surrounds(&self, place: f64) -> bool {
        let beyond = self.sizes.iter().filter(|bytes| **bytes > place).count();
        let within = self.sizes.iter().filter(|bytes| **bytes > 0.0 && **bytes <= place).count();
        beyond >= BEYOND_MIN && within >= WITHIN_MIN
    }

    /// Whether each regime has points enough.
    fn is_possible(&self, features: &[Feature]) -> bool {
        let mut counts = vec![0; Model::breaks(features).count() + 1];
        for bytes in &self.sizes {
            counts[Model::breaks(features).filter(|at| bytes >= at).count()] += 1;
        }
        counts.iter().all(|count| *count >= REGIME_POINTS_MIN)
    }

    /// The best parameters for these features; nothing where they make no sense there.
    fn solved(&self, mut features: Vec<Feature>, turns: usize) -> Option<Model> {
        features.order_by(|a, b| a.order().partial_cmp(&b.order()).unwrap_or(Ordering::Equal));
        let regimes = Model::breaks(&features).count() + 1;
        let columns = columns(&features, &self.sizes);
        let deviations: Vec<f64> = self.times.iter().zip(&self.errors).map(|(time, error)| time * error).collect();
        let mut is_used = vec![true; columns.len()];
        let mut weights = vec![1.0; deviations.len()];
        let (mut linear, mut scale, mut off) = (Vec::new(), 1.0, Vec::new());
        let mut turn = 0;
        while turn <= turns {
            linear = self.least_squares(&columns, &deviations, &weights, &is_used)?;
            if let Some(negative) = linear.iter().position(|by| *by < 0.0) {
                if negative >= 2 * regimes {
                    return None;
                }
                // No message takes less than no time.
                is_used[negative] = false;
                continue;
            }
            let found = values(&columns, &linear);
            off =
                self.times.iter().zip(&found).zip(&deviations).map(|((time, found), by)| (time - found) / by).collect();
            let rough = if turn == 0 { deviation(&off) } else { scale };
            scale = likeliest_scale(&off, rough.max(SCALE_MIN));
            weights = off.iter().map(|x| weight(*x, scale)).collect();
            turn += 1;
        }
        let (n, misfit) = (off.len() as f64, misfit_at(&off, scale));
        let parameters: f64 = features.iter().map(|feature| feature.parameters(self.known)).sum();
        Some(Model { features, linear, scale, misfit, cost: misfit + parameters * n.ln() })
    }

    /// Parameters of the columns in use; the others are 0.
    fn least_squares(
        &self,
        columns: &[Vec<f64>],
        deviations: &[f64],
        weights: &[f64],
        is_used: &[bool],
    ) -> Option<Vec<f64>> {
        let weights: Vec<f64> = weights.iter().zip(deviations).map(|(weight, by)| weight / (by * by)).collect();
        let mut equations = NormalEquations::of(columns, &self.times, &weights);
        (0..columns.len()).filter(|&column| !is_used[column]).for_each(|column| equations.hold(column));
        equations.raise(1e-12, 0.0);
        equations.solved()
    }

    /// The best model with one feature more.
    fn extended(&self, features: &[Feature]) -> Option<Model> {
        let count = |of: fn(&Feature) -> bool| features.iter().filter(|feature| of(feature)).count();
        let mut candidates: Vec<Feature> = Vec::new();
        if count(Feature::is_break) < BREAKS_MAX {
            candidates.extend(self.sizes.iter().skip(1).copied().map(Feature::Break));
        }
        if count(|feature| matches!(feature, Feature::Cache(_))) < CACHES_MAX {
            candidates.extend(self.places(CACHE_PLACES).map(Feature::Cache));
        }
        if count(|feature| matches!(feature, Feature::Chunk(_))) == 0 {
            candidates.extend(self.chunk_candidates());
        }
        self.best_of(features, candidates)
    }

    fn chunk_candidates(&self) -> Vec<Feature> {
        match self.known {
            Some(limit) => vec![Feature::Chunk(limit)],
            None => self.places(CHUNK_PLACES).map(Feature::Chunk).collect(),
        }
    }

    /// The best model with these features and one of the candidates.
    fn best_of(&self, features: &[Feature], candidates: Vec<Feature>) -> Option<Model> {
        let with = |candidate: Feature| {
            let with: Vec<Feature> = features.iter().copied().chain([candidate]).collect();
            if self.is_possible(&with) { self.solved(with, TURNS[0]) } else { None }
        };
        candidates
            .into_iter()
            .filter_map(with)
            .reduce(|best, next| if next.cost < best.cost - 1e-6 { next } else { best })
    }

    fn places(&self, by_octave: i32) -> impl Iterator<Item = f64> + '_ {
        let place = move |step: i32| PLACE_MIN * (f64::from(step) / f64::from(by_octave)).exp2();
        (0..).map(place).take_while(|place| *place < self.largest()).filter(|place| self.surrounds(*place))
    }

    fn grown(&self, mut model: Model) -> Model {
        while let Some(next) = self.extended(&model.features).filter(|next| next.cost < model.cost) {
            model = next;
        }
        model
    }

    /// The model that costs least.
    fn searched(&self) -> Option<Model> {
        let best = self.swept(self.grown(self.solved(Vec::new(), TURNS[0])?));
        let best = match self.with_chunks(&best).map(|cut| self.swept(self.grown(cut))) {
            Some(cut) if cut.cost < best.cost - 1e-6 => cut,
            _ => best,
        };
        let best = self.solved(best.features.clone(), TURNS[1]).unwrap_or(best);
        Some(self.placed(best, FINER, 1, TURNS[1]))
    }

    /// Chunks in the place of up to two other features: a switch and a cache together can look like them.
    fn with_chunks(&self, best: &Model) -> Option<Model> {
        let base: Vec<Feature> =
            best.features.iter().copied().filter(|feature| !matches!(feature, Feature::Chunk(_))).collect();
        let pairs = (0..base.len()).flat_map(|i| (i..base.len()).map(move |j| [i, j]));
        let without = |[i, j]: [usize; 2]| {
            base.iter()
                .enumerate()
                .filter(|(at, _)| *at != i && *at != j)
                .map(|(_, feature)| *feature)
                .collect::<Vec<_>>()
        };
        let all = std::iter::once(base.clone()).chain(pairs.map(without));
        let cut = all.filter_map(|features| self.best_of(&features, self.chunk_candidates()));
        cut.reduce(|best, next| if next.cost < best.cost - 1e-6 { next } else { best })
    }

    /// Takes away each feature, tries everything that could stand there instead, and goes on as long as that gains.
    fn swept(&self, mut best: Model) -> Model {
        for _ in 0..SWEEPS {
            let before = best.cost;
            for feature in best.features.clone() {
                let without: Vec<Feature> = best.features.iter().copied().filter(|other| *other != feature).collect();
                if without.len() == best.features.len() {
                    continue;
                }
                let others = [self.solved(without.clone(), TURNS[0]), self.extended(&without)];
                best = others
                    .into_iter()
                    .flatten()
                    .fold(best, |best, next| if next.cost < best.cost - 1e-6 { next } else { best });
            }
            best = self.grown(best);
            if best.cost > before - 1e-6 {
                break;
            }
        }
        best
    }

    /// The model with its caches and chunks at the best of places nearby: so many steps each way, each `1/finer` of those of the
    /// search.
    fn placed(&self, mut best: Model, finer: i32, reach: i32, turns: usize) -> Model {
        for index in 0..best.features.len() {
            let step = |by_octave: i32| (1.0 / f64::from(by_octave * finer)).exp2();
            let near = |place: f64, by: f64| (-reach * finer..=reach * finer).map(move |n| place * by.powi(n));
            let candidates: Vec<Feature> = match best.features[index] {
                Feature::Break(_) => continue,
                Feature::Cache(at) => near(at, step(CACHE_PLACES)).map(Feature::Cache).collect(),
                Feature::Chunk(_) if self.known.is_some() => continue,
                Feature::Chunk(at) => near(at, step(CHUNK_PLACES)).map(Feature::Chunk).collect(),
            };
            for candidate in candidates {
                let mut features = best.features.clone();
                features[index] = candidate;
                if let Some(next) = self.solved(features, turns).filter(|next| next.cost < best.cost) {
                    best = next;
                }
            }
        }
        best
    }

    /// A limit of chunks with its interval: of all that are about as likely, the roundest.
    fn round_limit(&self, best: &Model) -> (Model, Option<[f64; 3]>) {
        let is_chunk = |feature: &Feature| matches!(feature, Feature::Chunk(_));
        let Some(index) = best.features.iter().position(is_chunk).filter(|_| self.known.is_none()) else {
            return (best.clone(), None);
        };
        let Feature::Chunk(limit) = best.features[index] else { return (best.clone(), None) };
        let at = |limit: f64| {
            let mut features = best.features.clone();
            features[index] = Feature::Chunk(limit);
            self.solved(features, TURNS[1])
        };
        let limit = round_place(limit, best.misfit, |limit| at(limit).map_or(f64::INFINITY, |model| model.misfit));
        (at(limit[0]).unwrap_or_else(|| best.clone()), Some(limit))
    }
}

/// Limits are set by people: of places that fit about as well as the best one, that with the fewest binary digits, up to two,
/// where each digit counts as a fair coin; where none is round, the middle of the best ones. With it the 95 % interval:
/// [place, low, high].
pub(crate) fn round_place(best: f64, least: f64, misfit: impl Fn(f64) -> f64) -> [f64; 3] {
    /// Steps in which the interval is walked, and how far it may reach.
    const STEP: f64 = 1.005;
    const STEPS: i32 = 140;
    const ROUND_DIGITS: i32 = 2;
    /// An interval may have holes: places beyond bad ones count if one as good comes within so many steps.
    const HOLE: i32 = 24;
    /// Digits of a place that is not round: it is known to about 1 %.
    const DIGITS: i32 = 7;
    /// Fall of twice the logarithm of the likelihood within one standard error.
    const FALL_68: f64 = 1.0;
    let end = |by: f64, fall: f64| {
        let mut last = 0;
        for n in 1..=STEPS {
            if misfit(best * by.powi(n)) <= least + fall {
                last = n;
            } else if n > last + HOLE {
                break;
            }
        }
        best * by.powi(last)
    };
    let [low, high] = [1.0 / STEP, STEP].map(|by| end(by, FALL_95));
    let middle = [1.0 / STEP, STEP].map(|by| end(by, FALL_68)).iter().product::<f64>().sqrt();
    let price = |digits: i32| 2.0 * std::f64::consts::LN_2 * f64::from(digits);
    let mut found = (least + price(DIGITS), middle);
    for digits in 1..=ROUND_DIGITS {
        let unit = f64::from((low.log2().floor() as i32 - digits + 1).max(0)).exp2();
        // Numbers at the ends of the interval belong to it but for rounding.
        let first = (low / STEP / unit).ceil() as i64;
        for multiple in first..=(high * STEP / unit).floor() as i64 {
            let place = multiple as f64 * unit;
            let all = misfit(place) + price(digits);
            if all < found.0 - 1e-9 {
                found = (all, place);
            }
        }
    }
    let place = found.1;
    [place, low.min(place), high.max(place)]
}

/// The scale of Student's t under which deviations are likeliest.
pub(crate) fn likeliest_scale(off: &[f64], mut scale: f64) -> f64 {
    for _ in 0..6 {
        let squares: f64 = off.iter().map(|x| weight(*x, scale) * x * x).sum();
        scale = (squares / off.len().max(1) as f64).sqrt().max(SCALE_MIN);
    }
    scale
}

/// Twice the negative logarithm of the likelihood of deviations, at their likeliest scale.
pub(crate) fn misfit(off: &[f64]) -> f64 {
    misfit_at(off, likeliest_scale(off, deviation(off).max(SCALE_MIN)))
}

fn misfit_at(off: &[f64], scale: f64) -> f64 {
    let tails: f64 = off.iter().map(|x| (FREEDOM + 1.0) * ((x / scale).powi(2) / FREEDOM).ln_1p()).sum();
    off.len() as f64 * (scale * scale).ln() + tails
}

/// What is left of a point's weight that is so far off.
fn weight(off: f64, scale: f64) -> f64 {
    (FREEDOM + 1.0) / (FREEDOM + (off / scale).powi(2))
}

/// The standard deviation that deviations would have if they were normal, by their median; 0 of none.
fn deviation(off: &[f64]) -> f64 {
    NORMAL_DEVIATION * median(off.iter().map(|off| off.abs())).unwrap_or(0.0)
}

/// Fits a ping-pong of one pair. `limit` is that of a chunk, where it is known from elsewhere. `None` below six sizes.
pub fn fit(points: &[Point], limit: Option<f64>) -> Option<Fit> {
    let data = Data::of(points, limit)?;
    let (model, limit) = data.round_limit(&data.searched()?);
    let drawn = draws(&data, &model);
    Some(told(&data, model, &drawn, limit))
}

/// The same features fitted to points that are drawn again by the model and its scale. Draws have a fixed seed.
fn draws(data: &Data, model: &Model) -> Vec<Model> {
    let mut random = fastrand::Rng::with_seed(1);
    let times: Vec<f64> = data.sizes.iter().map(|&bytes| model.time(bytes)).collect();
    let mut draw = |(time, error): (&f64, &f64)| time * (1.0 + model.scale * error * normal(&mut random)).max(0.1);
    let mut again = Data { known: data.known.or(limit_of(model)), ..data.clone() };
    let mut all = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        again.times = times.iter().zip(&data.errors).map(&mut draw).collect();
        let solved = again.solved(model.features.clone(), TURNS[0]);
        all.extend(solved.map(|solved| again.placed(solved, 3, 2, TURNS[0])));
    }
    all
}

fn limit_of(model: &Model) -> Option<f64> {
    model.features.iter().find_map(|feature| if let Feature::Chunk(limit) = feature { Some(*limit) } else { None })
}

/// The model in words, with intervals from the draws.
fn told(data: &Data, model: Model, drawn: &[Model], limit: Option<[f64; 3]>) -> Fit {
    let interval = |of: &dyn Fn(&Model) -> f64| with_draws(of(&model), drawn.iter().map(of));
    let breaks: Vec<f64> = Model::breaks(&model.features).collect();
    let sizes = &data.sizes;
    let last_below = |place: f64| sizes.iter().copied().filter(|bytes| *bytes < place).fold(0.0, f64::max);
    let is_determined = |rate: &[f64; 3]| rate.iter().all(|rate| rate.is_finite()) && rate[2] < UNDETERMINED * rate[1];
    let regime = |index: usize| {
        let rate = interval(&|model| 1.0 / model.linear[2 * index + 1]);
        Regime {
            from: if index == 0 { sizes[0] } else { breaks[index - 1] },
            to: breaks.get(index).map(|&next| [last_below(next), next]),
            latency_s: (model.linear[2 * index] > 0.0).then(|| interval(&|model| model.linear[2 * index])),
            bytes_per_s: Some(rate).filter(is_determined),
        }
    };
    let regimes: Vec<Regime> = (0..=breaks.len()).map(regime).collect();
    let others: Vec<Feature> = model.features[breaks.len()..].to_vec();
    let first = 2 * regimes.len();
    let cache = |(at, feature): (usize, &Feature)| {
        let Feature::Cache(_) = feature else { return None };
        let capacity = |model: &Model| match model.features[breaks.len() + at] {
            Feature::Cache(capacity) => capacity,
            _ => f64::NAN,
        };
        let slope = |model: &Model| {
            let own = 2 * model.regime_of(capacity(model)) + 1;
            model.linear[own] + model.linear[first..=first + at].iter().sum::<f64>()
        };
        Some(Cache { capacity: interval(&capacity), bytes_per_s: interval(&|model| 1.0 / slope(model)) })
    };
    let chunk = |(at, feature): (usize, &Feature)| {
        let Feature::Chunk(own) = *feature else { return None };
        Some(Chunks { limit: limit.unwrap_or([own; 3]), turnaround_s: interval(&|model| model.linear[first + at]) })
    };
    let off: Vec<f64> = data.times.iter().zip(sizes).map(|(time, &bytes)| time / model.time(bytes) - 1.0).collect();
    let worst = off.iter().zip(sizes).max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    Fit {
        caches: others.iter().enumerate().filter_map(cache).collect(),
        chunks: others.iter().enumerate().find_map(chunk),
        asymptote: Some(interval(&|model| 1.0 / model.last_slope())).filter(is_determined),
        residual: deviation(&off),
        noise: data.noise,
        worst: worst.map_or([0.0; 2], |(off, bytes)| [*off, *bytes]),
        regimes,
        model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 us and 10 GB/s: up to 512 bytes a byte's time is lost in noise, up to 16 MiB it is nearly all.
    #[test]
    fn an_asymptote_is_told_where_bytes_determine_it() {
        let alone = |largest: u32| {
            let mut random = fastrand::Rng::with_seed(3);
            let point = |octave: u32| {
                let bytes = 2f64.powi(octave as i32);
                let seconds = (1e-6 + bytes / 1e10) * (1.0 + 0.05 * normal(&mut random));
                Point { bytes, one_way_s: [seconds, 0.96 * seconds, 1.04 * seconds] }
            };
            fit(&(3..=largest).map(point).collect::<Vec<_>>(), None).unwrap()
        };
        let short = alone(9);
        assert_eq!((short.asymptote, short.regimes[0].bytes_per_s), (None, None));
        let [rate, low, high] = alone(24).asymptote.unwrap();
        assert!(low < 1e10 && 1e10 < high && (rate / 1e10 - 1.0).abs() < 0.1, "{rate} [{low}, {high}]");
        let [latency, ..] = alone(24).regimes[0].latency_s.unwrap();
        assert!((latency / 1e-6 - 1.0).abs() < 0.1, "{latency}");
    }

    /// 1 ns for a byte less 4 ns: 0.4 % of the smallest, which no curve is expected to follow, but a line would begin below 0.
    #[test]
    fn a_latency_that_was_held_at_zero_is_not_told() {
        let point = |octave: i32| {
            let bytes = 2f64.powi(octave);
            let seconds = bytes * 1e-9 - 4e-9;
            Point { bytes, one_way_s: [seconds, 0.9 * seconds, 1.1 * seconds] }
        };
        let fit = fit(&(10..=15).map(point).collect::<Vec<_>>(), None).unwrap();
        assert_eq!((fit.regimes[0].latency_s, fit.latency_s(1024.0)), (None, 0.0));
    }
}
