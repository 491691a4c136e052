//! What a machine does when it is undisturbed, where its visits have states.
//!
//! On a shared host samples of one visit nearly agree, and visits differ: both CPUs share a core for 100 ms, a neighbour takes
//! bandwidth, the clock moves. Disturbance makes slower, never faster, so the fast visits say what the machine can do
//! (*capability*), and all of them what one gets (*experienced*). A visit counts as undisturbed if it comes within
//! [`WINDOW`] of the 90th percentile of visits, or of the second best where that lies beyond: two visits that agree show a state
//! that is rare. Where a probe told what share of its core a thread had, samples with their whole core alone count if that is more.
//! Capability is the geometric mean of the undisturbed visits: of the estimators tried, the one that two halves of a run agree on
//! best without growing with their number, as the best sample does (table in docs/method/statistics.md).
//!
//! *Interval.* Visits are what is drawn again (the bootstrap; Efron, 1979), since samples of one visit are not independent; which
//! of them count as undisturbed is chosen anew in each draw, and that is part of the error. Its width is that of Student's t with
//! as many degrees of freedom as undisturbed visits, less one. Where one visit resembles the one before, they count as fewer
//! (an autoregressive process of first order). Below [`VISITS_MIN`] visits no such interval covers: then it is a range, from the
//! least visit to the greatest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::compare::of_sorted_logs;
use crate::stats::interval::MISS;
use crate::stats::quantiles::{median, median_in_place, median_unbiased, quantile};
use crate::stats::{Z95, student};
use crate::units::words;

/// Fewer visits than this show no interval: where 40 of 100 visits run at half speed, it would cover in 88 to 92 % of runs.
pub const VISITS_MIN: usize = 5;
/// How far below the fast visits one may lie and be undisturbed, in logarithms: 10 %.
pub(crate) const WINDOW: f64 = 0.105_36;
/// The fast visits are found by this quantile of visits,
const FAST_VISITS: f64 = 0.9;
/// and the fast samples of a visit by this one: one sample that is too fast by an error of the clock decides nothing.
const FAST_SAMPLES: f64 = 0.75;
/// Share of its core with which a thread counts as undisturbed.
const WHOLE_CORE: f64 = 0.9;
/// So many visits by their samples with a whole core stand for themselves, or half of all fast ones.
const WHOLE_VISITS: usize = 3;
/// Half of the middle 98 % over the standard deviation, for normal values.
const Z98: f64 = 2.326_348;
/// Draws behind an interval.
const DRAWS: usize = 199;
/// From so many undisturbed visits on it can be seen that visits resemble the ones before.
const SERIES_MIN: usize = 8;

words! {
    /// Which way a figure is better.
    Better, "direction" {
        /// More is better: bandwidths.
        Higher = "higher",
        /// Less is better: latencies, costs.
        Lower = "lower",
    }
}

words! {
    /// What two ends mean.
    Ends, "kind of interval" {
        /// A 95 % interval.
        Ci95 = "ci95",
        /// The least and greatest visit: too few for an interval.
        Range = "range",
    }
}

/// What the machine does when it is undisturbed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capability {
    /// Geometric mean of the undisturbed visits.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What the ends are.
    pub ends: Ends,
}

impl Capability {
    /// The ends of the interval that holds for so many figures together: with 95 % not one of them misses (Bonferroni). So many visits
    /// were undisturbed. `None` where the ends are those of a range.
    pub fn of_family(self, figures: usize, undisturbed: f64) -> Option<[f64; 2]> {
        let freedom = (undisturbed - 1.0).max(1.0);
        let reach = |miss: f64| student::quantile(miss, freedom);
        let wider = reach(MISS / figures.max(1) as f64) / reach(MISS);
        (self.ends == Ends::Ci95).then(|| [self.low, self.high].map(|end| self.value * (end / self.value).powf(wider)))
    }
}

/// What visits whose states differ say together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct States {
    /// What the machine does when it is undisturbed.
    pub capability: Capability,
    /// What one gets, all visits together: work over time.
    pub experienced: f64,
    /// Share of the visits that were undisturbed.
    pub undisturbed: f64,
}

/// The samples of a visit.
#[derive(Debug, Clone, Copy)]
pub struct Visit<'a> {
    /// Their values. What is not positive and finite is left out.
    pub values: &'a [f64],
    /// The share of its core that the slowest thread had around each; nothing where that is not known.
    pub shares: &'a [Option<f64>],
}

impl Visit<'_> {
    fn usable(self) -> impl Iterator<Item = (f64, bool)> {
        let values = self.values.iter().enumerate().filter(|(_, value)| value.is_finite() && **value > 0.0);
        let is_whole = move |at: usize| self.shares.get(at).copied().flatten().is_none_or(|share| share >= WHOLE_CORE);
        values.map(move |(at, value)| (*value, is_whole(at)))
    }

    /// `None` where no sample can be used.
    fn seen(self, better: Better) -> Option<Seen> {
        let mut logs = sorted_logs(self.usable().map(|(value, _)| value), better);
        let (worst, best) = (*logs.first()?, *logs.last()?);
        let every = level_of(&mut logs)?;
        let is_whole = |(value, is_whole): (f64, bool)| is_whole.then_some(value);
        let whole = if self.usable().all(|sample| is_whole(sample).is_some()) {
            Some(every)
        } else {
            level(self.usable().filter_map(is_whole), better)
        };
        let cost = self.usable().map(|(value, _)| better.cost(value)).sum::<f64>() / logs.len() as f64;
        Some(Seen { whole, every, worst, best, cost })
    }
}

/// What a visit comes to. Logarithms are greater for better values.
struct Seen {
    /// Of its typical sample with a whole core. `None` where every sample was disturbed.
    whole: Option<f64>,
    /// Of its typical sample.
    every: f64,
    /// Of its worst and its best sample.
    worst: f64,
    best: f64,
    /// Mean cost of its samples.
    cost: f64,
}

/// The same of values of which nothing else is known.
pub fn level(values: impl IntoIterator<Item = f64>, better: Better) -> Option<f64> {
    level_of(&mut sorted_logs(values, better))
}

/// The same of a visit, and its variance as the samples let expect, where they show one.
pub(crate) fn level_and_variance(values: &[f64], better: Better) -> Option<(f64, Option<f64>)> {
    let mut logs = sorted_logs(values.iter().copied(), better);
    let variance = of_sorted_logs(&logs).map(|found| found.1);
    Some((level_of(&mut logs)?, variance))
}

/// The logarithms of what is positive and finite, greater for better values, in their order.
fn sorted_logs(values: impl IntoIterator<Item = f64>, better: Better) -> Vec<f64> {
    let usable = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
    let mut logs: Vec<f64> = usable.map(|value| better.up(value.ln())).collect();
    logs.sort_unstable_by(f64::total_cmp);
    logs
}

/// The level of values of which these are the logarithms.
fn level_of(sorted_logs: &mut [f64]) -> Option<f64> {
    let fast = near(sorted_logs, median_unbiased(sorted_logs, FAST_SAMPLES)?);
    median_in_place(&mut sorted_logs[fast..])
}

impl Better {
    /// What means add up: a cost, or of a rate its inverse; and back.
    fn cost(self, value: f64) -> f64 {
        if self == Better::Higher { value.recip() } else { value }
    }

    /// A logarithm turned so that more is better; and back.
    pub fn up(self, log: f64) -> f64 {
        if self == Better::Higher { log } else { -log }
    }

    /// The value whose turned logarithm this is, to twelve digits: what is lost on the way through logarithms is no figure's.
    pub(crate) fn value(self, level: f64) -> f64 {
        let value = self.up(level).exp();
        let places = 11i32.saturating_sub(value.log10().floor() as i32);
        // Whole numbers and powers of ten as small as these are exact, so one rounding leads to the decimal number.
        match places {
            0..=22 => (value * 10f64.powi(places)).round() / 10f64.powi(places),
            -4..0 => (value / 10f64.powi(-places)).round() * 10f64.powi(-places),
            _ => value,
        }
    }
}

/// What visits say, in the order of time. `None` where no sample is positive and finite. Costs some 2 us a visit.
pub fn states(visits: &[Visit<'_>], better: Better) -> Option<States> {
    let seen: Vec<Seen> = visits.iter().filter_map(|visit| visit.seen(better)).collect();
    let is_known = seen.iter().any(|visit| visit.whole.is_some());
    let (level, fast) = faster(&seen)?;
    let levels: Vec<f64> = seen.iter().filter_map(level).collect();
    let (ends, [low, high]) = match fast.interval(&levels).filter(|_| is_known) {
        // What was never as slow is not slower when undisturbed; it may be faster than all that was seen.
        Some(reach) => {
            let slowest = seen.iter().map(|visit| visit.worst).fold(f64::INFINITY, f64::min);
            (Ends::Ci95, [slowest.max(fast.mean - reach), fast.mean + reach].map(|level| better.value(level)))
        }
        None => (Ends::Range, range(&levels, &seen, better)),
    };
    let value = better.value(fast.mean);
    Some(States {
        capability: Capability { value, low: low.min(high), high: low.max(high), ends },
        // All visits count alike, as they lie anywhere in time.
        experienced: better.cost(seen.iter().map(|visit| visit.cost).sum::<f64>() / seen.len() as f64),
        undisturbed: if is_known { fast.count as f64 / seen.len() as f64 } else { 0.0 },
    })
}

/// Which visits are those that [`states`] takes a capability from.
pub fn undisturbed(visits: &[Visit<'_>], better: Better) -> Vec<bool> {
    let seen: Vec<Option<Seen>> = visits.iter().map(|visit| visit.seen(better)).collect();
    let Some((level, fast)) = faster(seen.iter().flatten()) else { return vec![false; visits.len()] };
    seen.iter().map(|seen| seen.as_ref().and_then(level).is_some_and(|level| level >= fast.least)).collect()
}

/// Which of a visit's levels counts.
type Level = fn(&Seen) -> Option<f64>;

/// Of the visits by their samples with a whole core and by all samples, those that show more. What shares a core slows arithmetic
/// and caches, and memory hardly: there a sample is not worse for it, and most visits would be left out for nothing.
fn faster<'a>(seen: impl IntoIterator<Item = &'a Seen> + Clone) -> Option<(Level, Fast)> {
    let of = |level: Level| {
        let levels: Vec<f64> = seen.clone().into_iter().filter_map(level).collect();
        Some((level, Fast::of(&levels)?))
    };
    let every = of(|visit| Some(visit.every))?;
    let is_more = |(_, of_whole): &(_, Fast)| {
        let more = of_whole.mean - every.1.mean;
        let are_enough = of_whole.count >= WHOLE_VISITS.min(every.1.count.div_ceil(2));
        more > WINDOW || more > 0.0 && are_enough
    };
    Some(of(|visit| visit.whole).filter(is_more).unwrap_or(every))
}

/// The least and greatest visit; of a single one, sample.
fn range(levels: &[f64], seen: &[Seen], better: Better) -> [f64; 2] {
    let samples: Vec<f64> = seen.iter().flat_map(|visit| [visit.worst, visit.best]).collect();
    let all = if levels.len() > 1 { levels } else { &samples };
    [f64::min, f64::max].map(|of| better.value(all.iter().copied().reduce(of).unwrap_or(f64::NAN)))
}

/// Where, in sorted logarithms, those of undisturbed visits begin. Two visits that agree on more than [`WINDOW`] above the
/// others show a state that fewer than one visit of ten is in.
fn undisturbed_visits(sorted: &[f64]) -> usize {
    let usual = median_unbiased(sorted, FAST_VISITS).unwrap_or(f64::NEG_INFINITY);
    let second = sorted.iter().rev().nth(1).copied().filter(|second| *second > usual + WINDOW);
    near(sorted, second.unwrap_or(usual))
}

/// Where, in sorted logarithms, those begin that come within [`WINDOW`] of this one.
fn near(sorted: &[f64], fast: f64) -> usize {
    sorted.partition_point(|level| *level < fast - WINDOW)
}

/// Which of these logarithms (greater is better) are those of undisturbed visits.
pub fn are_undisturbed(levels: &[f64]) -> Vec<bool> {
    let Some(fast) = Fast::of(levels) else { return Vec::new() };
    levels.iter().map(|level| *level >= fast.least).collect()
}

/// What the undisturbed ones of visits come to, each of which has this level: the capability without its interval.
pub fn undisturbed_level(levels: &[f64]) -> Option<f64> {
    Fast::of(levels).map(|fast| fast.mean)
}

/// The undisturbed ones of some visits.
struct Fast {
    mean: f64,
    count: usize,
    least: f64,
}

impl Fast {
    fn of(levels: &[f64]) -> Option<Fast> {
        let mut sorted = levels.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Fast::of_sorted(&sorted)
    }

    fn of_sorted(sorted: &[f64]) -> Option<Fast> {
        let fast = &sorted[undisturbed_visits(sorted)..];
        let least = *fast.first()?;
        Some(Fast { mean: fast.iter().sum::<f64>() / fast.len() as f64, count: fast.len(), least })
    }

    /// Half of the 95 % interval of the mean; `None` where there are too few visits. That visits count as fewer makes it no wider
    /// than [`WINDOW`]: a drift that undisturbed visits show together stays within that.
    fn interval(&self, levels: &[f64]) -> Option<f64> {
        if levels.len() < VISITS_MIN || self.count < 2 {
            return None;
        }
        let spread = spread(levels);
        let half = |alike: f64| {
            let freedom = (self.count as f64 / alike - 1.0).max(1.0);
            student::quantile(MISS, freedom) * spread * alike.sqrt()
        };
        Some(half(self.likeness(levels)).min(half(1.0).max(WINDOW)))
    }

    /// How many visits count as one, since each resembles the one before.
    fn likeness(&self, levels: &[f64]) -> f64 {
        if self.count < SERIES_MIN {
            return 1.0;
        }
        let off: Vec<f64> =
            levels.iter().filter(|level| **level >= self.least).map(|level| level - self.mean).collect();
        let squares: f64 = off.iter().map(|off| off * off).sum();
        let products: f64 = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let count = self.count as f64;
        // The estimate falls short by 1/n.
        let correlation = (products / squares.max(f64::MIN_POSITIVE) + 1.0 / count).min(0.9);
        // Half a standard error, or chance would widen every other interval.
        if correlation > 0.5 / count.sqrt() { (1.0 + correlation) / (1.0 - correlation) } else { 1.0 }
    }
}

/// Standard error of the mean of the undisturbed, by drawing visits again. Draws have a fixed seed: one record has one answer.
pub(crate) fn spread(levels: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = levels.iter().copied().filter(|level| level.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut random = fastrand::Rng::with_seed(1);
    let mut times = vec![0u32; sorted.len()];
    let mut drawn = Vec::with_capacity(sorted.len());
    let mut draw = || {
        times.fill(0);
        (0..sorted.len()).for_each(|_| times[random.usize(..sorted.len())] += 1);
        drawn.clear();
        drawn.extend(sorted.iter().zip(&times).flat_map(|(level, times)| std::iter::repeat_n(*level, *times as usize)));
        Fast::of_sorted(&drawn).map(|fast| fast.mean)
    };
    let mut means: Vec<f64> = (0..DRAWS).filter_map(|_| draw()).collect();
    means.sort_unstable_by(f64::total_cmp);
    let n = sorted.len() as f64;
    // Not by a standard deviation, which one draw without any undisturbed visit would rule: by the middle 95 or 98 %.
    let middle = |outside: f64, z: f64| (quantile(&means, 1.0 - outside) - quantile(&means, outside)) / (2.0 * z);
    middle(0.025, Z95).max(middle(0.01, Z98)) * (n / (n - 1.0)).sqrt()
}

/// How unsure the fast mode of durations is: the half-width of its 95 % interval against itself, by visits. 1 where fewer
/// than [`VISITS_MIN`] visits have reached it: a machine that others share may not have shown yet what it can.
pub fn uncertainty(batches: &[Vec<f64>]) -> f64 {
    const IN_MODE: f64 = 1.1;
    let mut visits: Vec<f64> = batches.iter().filter_map(|batch| median(batch.iter().copied())).collect();
    visits.sort_by(f64::total_cmp);
    let Some(&least) = visits.first() else { return 1.0 };
    let fast: Vec<f64> = visits.into_iter().take_while(|visit| *visit <= least * IN_MODE).collect();
    if fast.len() < VISITS_MIN {
        return 1.0;
    }
    let n = fast.len() as f64;
    let mean = fast.iter().sum::<f64>() / n;
    let variance = fast.iter().map(|visit| (visit / mean - 1.0).powi(2)).sum::<f64>() / (n - 1.0);
    Z95 * (variance / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As by the decimal text, which is the definition; and for what no figure comes to, without a fault.
    #[test]
    fn values_come_back_from_logarithms_as_they_were() {
        for better in [Better::Higher, Better::Lower] {
            for value in [4.0, 0.3, 1.1e-9, 379e9, 22.4e9, 1.0, 1e11, 99_999.5, 1.25e13, 6.02e14] {
                assert_eq!(better.value(better.up(f64::ln(value))), value);
            }
            let mut random = fastrand::Rng::with_seed(7);
            for _ in 0..10_000 {
                let exact = 10f64.powf(random.f64() * 26.0 - 11.0);
                let text: f64 = format!("{exact:.11e}").parse().unwrap();
                let through = better.value(better.up(text.ln()));
                assert!((through / text - 1.0).abs() < 1.1e-11, "{text} {through}");
                let digits = format!("{through}").replace('.', "").trim_matches('0').len();
                assert!(digits <= 12, "{through}");
            }
            for level in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 800.0, -800.0] {
                better.value(level);
            }
        }
    }

    const WHOLE: Option<f64> = Some(1.0);
    const HALF: Option<f64> = Some(0.5);

    fn of(visits: &[(f64, Option<f64>)]) -> States {
        let samples: Vec<([f64; 3], [Option<f64>; 3])> =
            visits.iter().map(|(x, share)| ([*x; 3], [*share; 3])).collect();
        let visits: Vec<Visit<'_>> = samples.iter().map(|(values, shares)| Visit { values, shares }).collect();
        states(&visits, Better::Higher).unwrap()
    }

    /// 2 of 30 visits at twice the speed: the 90th percentile is of the others.
    #[test]
    fn a_rare_fast_state_is_found_by_two_visits_and_not_by_one() {
        let mut visits = vec![(50.0, None); 30];
        visits[7].0 = 100.0;
        // It counts as one of thirty: 50 x 2^(1/30).
        assert!((of(&visits).capability.value - 51.169).abs() < 1e-3);
        visits[20].0 = 104.0;
        let found = of(&visits);
        assert!((found.capability.value - 104f64.sqrt() * 10.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.undisturbed, 2.0 / 30.0);
    }

    #[test]
    fn a_shared_core_leaves_out_what_is_slower_for_it_and_nothing_else() {
        // Memory: the fast visits had half a core each.
        let memory = [(100.0, HALF), (101.0, HALF), (50.0, WHOLE), (99.0, HALF), (51.0, WHOLE), (100.0, HALF)];
        assert!((of(&memory).capability.value - 100.0).abs() < 0.1);
        // A cache: those with a whole core are the fast ones, few as they are.
        let mut cache = [(50.0, HALF); 40];
        cache[3] = (100.0, WHOLE);
        assert_eq!(of(&cache).capability.value, 100.0);
        // A little faster: three visits say so, one may be chance.
        let mut cache = [(97.0, HALF); 12];
        cache[3] = (100.0, WHOLE);
        assert!(of(&cache).capability.value < 98.0);
        (cache[5], cache[8]) = (cache[3], cache[3]);
        assert_eq!(of(&cache).capability.value, 100.0);
    }

    /// Copies in the L2 of a guest whose host let its core clock rise by 7 % within a run.
    #[test]
    fn a_drift_does_not_promise_what_no_visit_came_near() {
        let rising = [75.4, 78.1, 78.2, 77.6, 77.4, 80.4, 83.0, 82.7, 82.4, 82.9].map(|gbps| (gbps, None));
        let found = of(&rising).capability;
        assert!((79.0..81.0).contains(&found.value) && found.ends == Ends::Ci95, "{found:?}");
        assert!(found.low == 75.4 && (83.0..89.0).contains(&found.high), "{found:?}");
    }

    #[test]
    fn where_no_sample_had_a_whole_core_there_is_a_range() {
        let found = of(&[(50.0, HALF); 12]);
        assert_eq!((found.capability.ends, found.undisturbed), (Ends::Range, 0.0));
    }

    /// Visits of 100 and 102 in turns: their standard deviation is 1.03 of 101, over the square root of how many there are.
    #[test]
    fn the_fast_mode_decides() {
        let visits = |values: &[f64]| values.iter().map(|v| vec![*v; 5]).collect::<Vec<_>>();
        let fast = [100.0, 102.0, 100.0, 102.0, 100.0, 102.0, 100.0, 102.0];
        let expect = 1.96 * (1.069 / 101.0) / 8f64.sqrt();
        assert!((uncertainty(&visits(&fast)) - expect).abs() < 1e-4);
        let halved: Vec<f64> = fast.iter().copied().chain([200.0; 8]).collect();
        assert_eq!(uncertainty(&visits(&halved)), uncertainty(&visits(&fast)), "a slow state makes it no less sure");
        assert_eq!(uncertainty(&visits(&[100.0, 101.0, 200.0, 200.0, 99.0, 100.0])), 1.0, "seen too seldom");
        assert_eq!(uncertainty(&[]), 1.0);
    }
}
