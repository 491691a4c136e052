//! When a level changes: figures come one after the other, and each may be the first that is not as those before.
//!
//! *Evidence.* Of each figure it is asked how much likelier it is if the level has shifted by so much than if it has not. The
//! logarithms of these ratios are added up from where they were last zero (Page's cumulative sum, Biometrika 41, 1954), for a
//! fall and for a rise by each of some sizes; the sum that reaches [`EVIDENCE`] first tells of a change, and where it was last
//! zero is when that happened.
//!
//! *Noise.* The level is the median of up to [`MEMORY`] figures before, their scale the median absolute deviation, their
//! distribution Student's t with [`FREEDOM`] degrees: a figure that lies far from both levels hardly speaks for one of them.
//! No figure counts for more than [`EVIDENCE_OF_ONE`], so four must agree whatever they are, and a lone visit to a machine that
//! was disturbed tells nothing.
//!
//! *Steps.* A change that is less than is told becomes the level all the same. So what is held against the level that was told last
//! is also all such steps together, and against the one before a fall each of them.
//!
//! *Why this one.* Ranks (Wilcoxon's, or a cumulative sum of normal scores) throw away how far a figure lies from the others,
//! which on a shared host is most of what tells a fall of 10 % from a neighbour who takes a half. How long it takes until a change
//! is told where there is none, and how soon one is told where there is, is simulated in `change_point/tests.rs`, with noise that
//! is not the model's: `docs/experiments/watch.md` has the table.
//!
//! Figures are logarithms, greater for better: differences are ratios of speeds.

use std::collections::VecDeque;

use crate::stats::quantiles::{median, quantile};
use crate::stats::{NORMAL_DEVIATION, Z95};

/// Figures without which no level is known.
pub const LEAST: usize = 20;
/// Figures that a level is remembered by.
pub const MEMORY: usize = 100;
/// Evidence that tells of a change: the logarithm of a likelihood ratio. If the model were exact, a change would be told where there
/// is none after e^11 (60,000) figures on average at the least (Lorden, Annals of Mathematical Statistics 42, 1971).
const EVIDENCE: f64 = 11.0;
/// What one figure may add.
const EVIDENCE_OF_ONE: f64 = 3.0;
/// Degrees of freedom of the noise.
const FREEDOM: f64 = 3.0;
/// Figures differ by this at the least, in logarithms: a quiet hour says little of the next.
const LEAST_SCALE: f64 = 0.005;
/// A change is told from so many scales on, however many figures agree: what drifts by less is no change of the machine.
const LEAST_SCALES: f64 = 2.5;
/// Each size of a change that is looked for is this many times the one before.
const FINENESS: f64 = 1.5;
/// The greatest: to a tenth of the speed.
const GREATEST: f64 = 2.3;
/// The least share that may be told, and the greatest: each size costs time, and the greatest must be one of a change's.
pub const LEASTS: [f64; 2] = [0.001, 0.8];
/// Undecided figures beyond so many are taken to be of the level: nothing that lasts stays undecided so long.
const UNDECIDED: usize = 12;

/// What happened to a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It fell.
    Fall,
    /// It rose above all that was known.
    Rise,
    /// It rose after a fall, and not to where it was.
    PartlyRecovered,
    /// It is back where it was before the first fall.
    Recovered,
}

/// The figures on one side of a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Side {
    /// How many.
    pub count: usize,
    /// Their median.
    pub median: f64,
}

/// A change that was noticed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// What happened.
    pub turn: Turn,
    /// The figures before: those that the level is remembered by. Of a fall in steps that are each less than is told, those
    /// before the first step.
    pub before: Side,
    /// The figures since: the last ones, with the one that decided.
    pub after: Side,
    /// By how much figures differ, with its 95 % interval: [shift, low, high]. Hodges and Lehmann's estimate.
    pub shift: [f64; 3],
}

/// Watches one level.
#[derive(Debug, Clone)]
pub struct Watcher {
    /// The least change that is told.
    least: f64,
    /// Figures of the level, the last ones.
    level: VecDeque<f64>,
    /// The scale of the level before, while this one has too few figures to show its own.
    scale_before: Option<f64>,
    /// Figures since evidence was last zero everywhere.
    undecided: Vec<f64>,
    sums: Vec<Sum>,
    /// The level before the first fall that has not recovered.
    fallen_from: Option<f64>,
    /// Figures of the level that was told last, where the level has changed since by less than is told.
    told: Option<Vec<f64>>,
}

/// Evidence for a change by this much.
#[derive(Debug, Clone, Copy)]
struct Sum {
    shift: f64,
    evidence: f64,
    /// Undecided figures that it is the sum over.
    count: usize,
}

impl Watcher {
    /// Tells changes by this share of the speed at the least, which is one of [`LEASTS`].
    pub fn new(least: f64) -> Watcher {
        let least = if least.is_nan() { LEASTS[0] } else { least.clamp(LEASTS[0], LEASTS[1]) };
        let least = -(1.0 - least).ln();
        let sizes =
            std::iter::successors(Some(least), |size| Some(size * FINENESS)).take_while(|size| *size < GREATEST);
        let sums = sizes.flat_map(|size| [-size, size]).map(|shift| Sum { shift, evidence: 0.0, count: 0 }).collect();
        Watcher {
            least,
            level: VecDeque::new(),
            scale_before: None,
            undecided: Vec::new(),
            sums,
            fallen_from: None,
            told: None,
        }
    }

    /// Whether enough is known to tell a change.
    pub fn is_ready(&self) -> bool {
        self.scale_before.is_some() || self.level.len() >= LEAST
    }

    /// Figures that are still needed before a change can be told.
    pub fn needed(&self) -> usize {
        if self.is_ready() { 0 } else { LEAST - self.level.len() }
    }

    /// The level now: median of what it is remembered by. `None` before the first figure.
    pub fn level(&self) -> Option<f64> {
        median(self.level.iter().copied())
    }

    /// The level before the first fall that has not recovered.
    pub fn fallen_from(&self) -> Option<f64> {
        self.fallen_from
    }

    /// Takes note of a figure. What is not finite is left out.
    pub fn note(&mut self, figure: f64) -> Option<Change> {
        if !figure.is_finite() {
            return None;
        }
        if !self.is_ready() {
            self.level.push_back(figure);
            return None;
        }
        let (level, scale) = self.model()?;
        self.undecided.push(figure);
        for sum in &mut self.sums {
            sum.add(figure - level, scale);
        }
        if let Some(count) = self.decided() {
            return self.change(count);
        }
        if self.sums.iter().all(|sum| sum.count == 0) || self.undecided.len() > UNDECIDED {
            let decided = std::mem::take(&mut self.undecided);
            self.remember(decided);
        }
        None
    }

    /// The level, and the scale of what the next figure may differ from it.
    fn model(&self) -> Option<(f64, f64)> {
        let level = self.level()?;
        let own = NORMAL_DEVIATION * median(self.level.iter().map(|figure| (figure - level).abs()))?;
        let scale = if self.level.len() < LEAST { self.scale_before.unwrap_or(own).max(own) } else { own };
        // The level itself is known no better than by its figures: the variance of a median is pi/2 that of a mean.
        let error = 1.0 + std::f64::consts::FRAC_PI_2 / self.level.len() as f64;
        Some((level, scale.max(LEAST_SCALE) * error.sqrt()))
    }

    /// The figures since the change that there is most evidence for, if that is enough.
    fn decided(&self) -> Option<usize> {
        let best = self.sums.iter().max_by(|x, y| x.evidence.total_cmp(&y.evidence))?;
        (best.evidence >= EVIDENCE).then_some(best.count)
    }

    /// What the last `count` figures changed, if that is enough to be told. They are the level from now on, unless it takes more of
    /// them to see how far they lie off.
    fn change(&mut self, count: usize) -> Option<Change> {
        let scale = self.model()?.1;
        // A sum may be older than what is undecided: the figures before are of the level by now.
        let from = self.undecided.len().saturating_sub(count);
        let (earlier, after) = self.undecided.split_at(from);
        let before: Vec<f64> = self.level.iter().chain(earlier).copied().collect();
        let after = after.to_vec();
        let shift = shift(&before, &after);
        let is_told = shift[0].abs() >= self.least.max(LEAST_SCALES * scale);
        if !is_told && shift[0].abs() >= self.least && self.undecided.len() <= UNDECIDED {
            return None;
        }
        self.undecided.clear();
        self.level.clear();
        self.remember(after.clone());
        self.scale_before = Some(scale);
        self.sums.iter_mut().for_each(Sum::clear);
        let told =
            if is_told { self.turn(before, &after, shift) } else { self.turn_of_steps(before, &after, shift, scale) };
        if told.is_some() {
            self.told = None;
        }
        told
    }

    /// A change that is enough to be told.
    fn turn(&mut self, before: Vec<f64>, after: &[f64], shift: [f64; 3]) -> Option<Change> {
        let (before, after) = (side(&before)?, side(after)?);
        let turn = match self.fallen_from {
            _ if shift[0] < 0.0 => {
                self.fallen_from = self.fallen_from.or(Some(before.median));
                Turn::Fall
            }
            None => Turn::Rise,
            Some(_) if self.has_recovered(after) => {
                self.fallen_from = None;
                Turn::Recovered
            }
            Some(_) => Turn::PartlyRecovered,
        };
        Some(Change { turn, before, after, shift })
    }

    /// A change that is not enough by itself: it may end a fall nevertheless, and several may make one together.
    fn turn_of_steps(&mut self, before: Vec<f64>, after: &[f64], shift: [f64; 3], scale: f64) -> Option<Change> {
        let (earlier, later) = (side(&before)?, side(after)?);
        if shift[0] > 0.0 && self.has_recovered(later) {
            self.fallen_from = None;
            return Some(Change { turn: Turn::Recovered, before: earlier, after: later, shift });
        }
        let told = self.told.get_or_insert(before).clone();
        let together = self::shift(&told, after);
        let is_fall = together[0] <= -self.least.max(LEAST_SCALES * scale);
        if is_fall { self.turn(told, after, together) } else { None }
    }

    /// Whether a level is back where it was before the first fall.
    fn has_recovered(&self, level: Side) -> bool {
        self.fallen_from.is_some_and(|from| level.median >= from - self.least)
    }

    fn remember(&mut self, figures: Vec<f64>) {
        self.level.extend(figures);
        let over = self.level.len().saturating_sub(MEMORY);
        self.level.drain(..over);
    }
}

impl Sum {
    /// Adds what a figure says that lies so far from the level.
    fn add(&mut self, off: f64, scale: f64) {
        let log_density = |off: f64| -(FREEDOM + 1.0) / 2.0 * (off * off / (scale * scale * FREEDOM)).ln_1p();
        let evidence = log_density(off - self.shift) - log_density(off);
        self.evidence += evidence.clamp(-EVIDENCE_OF_ONE, EVIDENCE_OF_ONE);
        self.count += 1;
        if self.evidence <= 0.0 {
            self.clear();
        }
    }

    fn clear(&mut self) {
        (self.evidence, self.count) = (0.0, 0);
    }
}

/// `None` of no figures.
fn side(figures: &[f64]) -> Option<Side> {
    Some(Side { count: figures.len(), median: median(figures.iter().copied())? })
}

/// By how much the figures after lie above those before: the median of all differences, and the 95 % interval that goes with
/// Wilcoxon's test (Moses; Hollander and Wolfe, Nonparametric Statistical Methods). Neither side is empty. Costs time in
/// proportion to the number of pairs.
fn shift(before: &[f64], after: &[f64]) -> [f64; 3] {
    let mut differences: Vec<f64> = after.iter().flat_map(|x| before.iter().map(move |y| x - y)).collect();
    differences.sort_unstable_by(f64::total_cmp);
    let (n, m) = (before.len() as f64, after.len() as f64);
    let reach = Z95 * (n * m * (n + m + 1.0) / 12.0).sqrt();
    let low = (n * m / 2.0 - reach).max(0.0) / (n * m);
    [quantile(&differences, 0.5), quantile(&differences, low), quantile(&differences, 1.0 - low)]
}

#[cfg(test)]
mod tests;
