//! Two sides of many cells at once: which cells differ, where five of a hundred would look different by chance?
//!
//! *Draws.* Samples of one visit resemble each other, and so do visits of one run. So one observation, a draw, is the
//! level of an undisturbed visit (`states.rs`); where either side has several runs, it is the mean of a run's. How far draws lie
//! apart is then what an interval must hold, whatever makes them do so.
//!
//! *One run a side.* A host changes over minutes, so runs differ by more than their visits let expect. Of one run that can be seen in
//! its halves, each of which finds its own undisturbed visits: on recorded hosts they lie as far apart as runs do (table in
//! docs/experiments/compare.md). What they differ by beyond what their visits let expect is learnt from all cells of a group, and added.
//! And where the slower side is as fast as the faster one was in some disturbed visits, it may have met the same state of the
//! host for all its time, which is no difference between the sides.
//!
//! *States.* Where visits have states, a side of few visits may never have been seen undisturbed, and no spread of draws tells so.
//! How often a visit is disturbed is learnt from all cells of a group: of two visits that are, with a share p, disturbed or not,
//! 2p(1-p) disagree. A side of n visits that all agree was then disturbed throughout with p^n; that counts as chance does. Where
//! it is too much, more visits are needed, and it is known how many.
//!
//! *Variance.* Three draws a side estimate a variance poorly, and no resampling of six values helps: they fall into two
//! groups of three in 20 ways, so no p-value below 0.1 is to be had, where one of 0.0005 is asked for. But cells are many
//! and have something in common. What each cell's own samples let expect for the variance of a draw differs a lot between
//! cells; the factor by which draws vary more than that, much less. Smyth's moderated t (Statistical Applications in
//! Genetics and Molecular Biology 3, 2004) finds out how alike the factors are, trusts what they have in common
//! accordingly, and earns degrees of freedom for it. Cells that are not alike earn none.
//!
//! *Family.* Holm's correction (Scandinavian Journal of Statistics 6, 1979): with 95 % not one of all alarms is false,
//! however cells depend on each other. The greatest difference under resampling would use their dependence, but needs
//! more draws than there are.

use std::borrow::Cow;

use crate::in_order::InOrder;
use crate::parallel;
use std::collections::HashMap;

use crate::stats::interval::MISS;
use crate::stats::modes::squares;
use crate::stats::states::{Better, WINDOW, are_undisturbed, level_and_variance, spread, undisturbed_level};
use crate::stats::student;

/// No draw is taken to be more repeatable than this (relative standard deviation): the timing of a sample is not.
pub(crate) const REPEATABLE: f64 = 1e-4;
/// What stands for the expectation where samples are too few to show a spread. Only ratios between cells matter.
pub(crate) const UNSEEN: f64 = 1e-2;
/// Draws that agree by chance say no more than this about the factor.
const FACTOR_MIN: f64 = 1e-3;

/// A half of a run with fewer visits tells nothing.
const HALF_MIN: usize = 2;
/// Runs lie farther apart in time than halves of a run, and a host changes more in minutes than in half of one: variance of both.
const MINUTES: f64 = 1.5;
/// So many disturbed visits that agree are a state of the host.
const STATE_MIN: usize = 2;

/// By how much corrected probabilities are raised. A mix of quiet and unsteady cells fits the assumption behind the moderated
/// variance badly: with 1, up to 6.6 % of simulated families had a false alarm.
const CAUTION: f64 = 1.4;

/// The samples of one cell on both sides: of each run, of each visit. Samples that are not positive are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Sides<'a> {
    /// Which way values are better: disturbed ones are worse.
    pub better: Better,
    /// Cells of one number are disturbed as often as each other: those with as many threads.
    pub group: usize,
    /// The side that the other is held against.
    pub a: Vec<Vec<Cow<'a, [f64]>>>,
    /// The other side.
    pub b: Vec<Vec<Cow<'a, [f64]>>>,
}

/// What the two sides of a cell say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The value of `a` when undisturbed: the geometric mean of its draws.
    pub a: f64,
    /// The same of `b`.
    pub b: f64,
    /// b / a.
    pub ratio: f64,
    /// Draws of each side.
    pub draws: [usize; 2],
    /// Visits that each side would need to be surely seen undisturbed; `None` where they are enough.
    pub needed: Option<usize>,
    /// Whether the slower side may have met throughout a state of the host in which the other was in some visits.
    pub is_host_state: bool,
    /// What can be said of chance; absent where there are too few draws: two visits of each side are needed, or of
    /// several runs three.
    pub test: Option<Test>,
}

/// A difference against chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    /// 95 % interval of the ratio, of this cell for itself: [low, high].
    pub ci95: [f64; 2],
    /// The same of all cells together: with 95 % not one of them misses.
    pub ci95_family: [f64; 2],
    /// Probability of such a difference if there were none, of this cell for itself.
    pub p: f64,
    /// The same corrected for the number of cells: below 0.05, not one of all cells below 0.05 is there by chance, with 95 %.
    pub p_family: f64,
}

/// Differences of all cells, in their order. `None` for a cell without a positive sample on a side. Costs some
/// microseconds a cell. Samples are asked for once, and not kept.
pub fn differences<'a, T: Sync>(cells: &'a [T], sides: impl Fn(&'a T) -> Sides<'a> + Sync) -> Vec<Option<Difference>> {
    let seen = parallel::map(cells, |cell| Seen::of(&sides(cell)));
    let hosts = Hosts::of(&seen);
    let drawn = parallel::map(&seen, |seen| Drawn::of(seen, &hosts));
    let factors: Vec<(f64, f64)> = drawn.iter().flatten().filter_map(Drawn::factor).collect();
    let common = Common::of(&factors);
    let mut found = parallel::map(&drawn, |drawn| drawn.as_ref().map(|drawn| drawn.difference(&common, &hosts)));
    let tests: Vec<&mut Test> = found.iter_mut().flatten().filter_map(|found| found.test.as_mut()).collect();
    correct(tests);
    found
}

/// The value of a side alone when undisturbed: the geometric mean of its draws.
pub fn undisturbed_value(better: Better, runs: &[Vec<Cow<'_, [f64]>>]) -> Option<f64> {
    let (draws, _) = draws(&seen(better, runs), (runs.len() > 1).then_some(runs.len()));
    Some(better.value(mean(draws.into_iter().map(|draw| draw.0))?))
}

/// What the visits to a cell come to.
struct Seen {
    better: Better,
    group: usize,
    /// Runs of each side.
    runs: [usize; 2],
    visits: [Vec<SeenVisit>; 2],
}

/// A visit with a positive sample.
#[derive(Clone, Copy)]
struct SeenVisit {
    run: usize,
    /// More is better.
    level: f64,
    /// Variance of the level, as the samples let expect.
    expected: Option<f64>,
}

impl Seen {
    fn of(Sides { better, group, a, b }: &Sides<'_>) -> Seen {
        let visits = [a, b].map(|runs| seen(*better, runs));
        Seen { better: *better, group: *group, runs: [a.len(), b.len()], visits }
    }

    fn is_of_one_run(&self) -> bool {
        self.runs.iter().all(|runs| *runs <= 1)
    }
}

/// Variance of half a run beyond what its visits let expect; below zero by chance. `None` of a run with too few visits.
fn beyond_visits(visits: &[SeenVisit]) -> Option<f64> {
    let half = |visits: &[SeenVisit]| {
        let levels = levels(&undisturbed(visits));
        let count = levels.len() as f64;
        Some((mean(levels.iter().copied())?, squares(&levels) / (count - 1.0).max(1.0) / count))
    };
    if visits.len() < 2 * HALF_MIN {
        return None;
    }
    let (first, second) = visits.split_at(visits.len() / 2);
    let ((a, a_square), (b, b_square)) = (half(first)?, half(second)?);
    Some(((a - b).powi(2) - a_square - b_square) / 2.0)
}

/// Whether one of two sides is as fast as the other was when it was disturbed.
fn is_as_a_state([a, b]: &[Vec<SeenVisit>; 2]) -> bool {
    let was = |of: &[SeenVisit], slower: &[SeenVisit]| {
        let [levels, slower] = [of, slower].map(levels);
        let slow = undisturbed_level(&slower).unwrap_or(f64::NAN);
        let disturbed = levels.iter().zip(are_undisturbed(&levels)).filter(|(_, is_fast)| !is_fast);
        disturbed.filter(|(level, _)| (*level - slow).abs() < WINDOW / 2.0).count() >= STATE_MIN
    };
    was(a, b) || was(b, a)
}

fn seen(better: Better, runs: &[Vec<Cow<'_, [f64]>>]) -> Vec<SeenVisit> {
    let visit = |run: usize, samples: &[f64]| {
        let (level, expected) = level_and_variance(samples, better)?;
        Some(SeenVisit { run, level, expected })
    };
    let runs = runs.iter().enumerate();
    runs.flat_map(|(run, visits)| visits.iter().filter_map(move |samples| visit(run, samples))).collect()
}

fn undisturbed(visits: &[SeenVisit]) -> Vec<SeenVisit> {
    let all = visits.iter().zip(are_undisturbed(&levels(visits)));
    all.filter(|(_, is_fast)| *is_fast).map(|(visit, _)| *visit).collect()
}

fn levels(visits: &[SeenVisit]) -> Vec<f64> {
    visits.iter().map(|visit| visit.level).collect()
}

/// What hosts do to the cells of a group.
struct Hosts {
    /// How often visits are disturbed.
    disturbed: HashMap<usize, f64>,
    /// Variance between runs beyond that of their visits.
    runs: HashMap<usize, f64>,
    /// Sides in all.
    sides: f64,
}

impl Hosts {
    fn of(cells: &[Seen]) -> Hosts {
        // One pair that agrees and one that does not are there from the beginning.
        let mut pairs: HashMap<usize, (f64, f64)> = HashMap::new();
        for cell in cells {
            let (all, apart) = pairs.entry(cell.group).or_insert((2.0, 1.0));
            for visits in &cell.visits {
                *all += (visits.len() * visits.len().saturating_sub(1) / 2) as f64;
                *apart += pairs_apart(visits.iter().map(|visit| visit.level).collect()) as f64;
            }
        }
        // 2p(1-p) disagree; the fast state is taken to be the more frequent.
        let share = |(all, apart): (f64, f64)| (1.0 - (1.0 - 2.0 * apart / all).max(0.0).sqrt()) / 2.0;
        let disturbed = pairs.into_iter().map(|(group, pairs)| (group, share(pairs))).collect();
        Hosts { disturbed, runs: Hosts::runs(cells), sides: 2.0 * cells.len().max(1) as f64 }
    }

    /// As far as one run a side can tell.
    fn runs(cells: &[Seen]) -> HashMap<usize, f64> {
        let mut halves: HashMap<usize, Vec<f64>> = HashMap::new();
        for cell in cells.iter().filter(|cell| cell.is_of_one_run()) {
            halves.entry(cell.group).or_default().extend(cell.visits.iter().filter_map(|visits| beyond_visits(visits)));
        }
        let variance = |all: Vec<f64>| MINUTES * mean(all.into_iter()).unwrap_or(0.0).max(0.0);
        halves.into_iter().map(|(group, all)| (group, variance(all))).collect()
    }

    fn disturbed(&self, group: usize) -> f64 {
        self.disturbed.get(&group).copied().unwrap_or(0.5)
    }

    /// Visits of a side with which, with [`MISS`] at most, not one of all sides was disturbed throughout.
    fn needed(&self, group: usize) -> usize {
        ((MISS / CAUTION / self.sides).ln() / self.disturbed(group).ln()).ceil().max(1.0) as usize
    }
}

/// The draws of a cell.
struct Drawn {
    sides: [Vec<f64>; 2],
    /// Variance of a draw of each side, as its samples let expect.
    expected: [f64; 2],
    is_of_runs: bool,
    better: Better,
    group: usize,
    /// Probability that each side was never undisturbed.
    unseen: [f64; 2],
    /// Variance of each side's mean, where it holds which visits count as undisturbed.
    choice: [f64; 2],
    /// As in [`Difference`].
    is_host_state: bool,
}

impl Drawn {
    fn of(cell: &Seen, hosts: &Hosts) -> Option<Drawn> {
        let is_of_runs = !cell.is_of_one_run();
        let of_side = |side: usize| draws(&cell.visits[side], is_of_runs.then_some(cell.runs[side]));
        let [(a, a_agree), (b, b_agree)] = [of_side(0), of_side(1)];
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let seen = [&a, &b].map(|draws| mean(draws.iter().filter_map(|draw| draw.1)));
        let expected = [0, 1].map(|side| seen[side].or(seen[1 - side]).unwrap_or(UNSEEN * UNSEEN));
        let sides = [a, b].map(|draws| draws.into_iter().map(|draw| draw.0).collect());
        // Who saw two states saw the better one.
        let unseen = [a_agree, b_agree].map(|agree| {
            agree.map_or(0.0, |visits| hosts.disturbed(cell.group).powi(i32::try_from(visits).unwrap_or(i32::MAX)))
        });
        let choice = [0, 1].map(|side| match [a_agree, b_agree][side] {
            Some(_) => 0.0,
            None => spread(&levels(&cell.visits[side])).powi(2),
        });
        let expected = expected.map(|v| v.max(REPEATABLE * REPEATABLE));
        let is_disturbed = [a_agree, b_agree].contains(&None);
        let is_host_state = is_disturbed && !is_of_runs && is_as_a_state(&cell.visits);
        Some(Drawn {
            sides,
            expected,
            is_of_runs,
            better: cell.better,
            group: cell.group,
            unseen,
            choice,
            is_host_state,
        })
    }

    fn is_enough(&self) -> bool {
        let [a, b] = self.sides.each_ref().map(Vec::len);
        if self.is_of_runs { a + b > 2 } else { a > 1 && b > 1 }
    }

    /// By which factor draws vary more than expected, and the degrees of freedom it has.
    fn factor(&self) -> Option<(f64, f64)> {
        let freedom = (self.sides[0].len() + self.sides[1].len() - 2) as f64;
        let squares = |side: usize| squares(&self.sides[side]) / self.expected[side];
        self.is_enough().then(|| (((squares(0) + squares(1)) / freedom).max(FACTOR_MIN), freedom))
    }

    fn difference(&self, common: &Common, hosts: &Hosts) -> Difference {
        let [a, b] = self.sides.each_ref().map(|draws| mean(draws.iter().copied()).unwrap_or(f64::NAN));
        let draws = self.sides.each_ref().map(Vec::len);
        let unseen = self.unseen[0] + self.unseen[1];
        let value = |level: f64| self.better.up(level).exp();
        let test = self.factor().map(|own| {
            let (factor, freedom) = common.moderate(own);
            let variance =
                |side: usize| (factor * self.expected[side]).max(REPEATABLE * REPEATABLE) / draws[side] as f64;
            let of_runs = hosts.runs.get(&self.group).copied().filter(|_| !self.is_of_runs).unwrap_or(0.0);
            let variance = |side: usize| variance(side).max(self.choice[side]) + of_runs;
            let error = (variance(0) + variance(1)).sqrt();
            let ends = |miss: f64| {
                let reach = error * student::quantile(miss, freedom);
                let (low, high) = (b - a - reach, b - a + reach);
                let (low, high) = if self.is_host_state { (low.min(0.0), high.max(0.0)) } else { (low, high) };
                let [low, high] = [low, high].map(value);
                [low.min(high), low.max(high)]
            };
            let by_chance = student::outside((b - a) / error, freedom) + unseen;
            let p = if self.is_host_state { 1.0 } else { by_chance.min(1.0) };
            Test { ci95: ends(MISS), ci95_family: ends(2.0 * MISS / CAUTION / hosts.sides), p, p_family: p }
        });
        let is_blind = CAUTION * hosts.sides / 2.0 * unseen >= MISS;
        let needed = is_blind.then(|| hosts.needed(self.group));
        Difference {
            a: value(a),
            b: value(b),
            ratio: value(b - a),
            draws,
            needed,
            is_host_state: self.is_host_state,
            test,
        }
    }
}

/// The draws of a side, each with the variance that its samples let expect, where they show one; and how many visits there were, if
/// none was disturbed. A draw is a visit, or one of so many runs.
fn draws(visits: &[SeenVisit], runs: Option<usize>) -> (Vec<(f64, Option<f64>)>, Option<usize>) {
    let fast = undisturbed(visits);
    let agree = (fast.len() == visits.len()).then_some(visits.len());
    let Some(runs) = runs else {
        return (fast.iter().map(|visit| (visit.level, visit.expected)).collect(), agree);
    };
    let of_run = |run: usize| {
        let own = || fast.iter().filter(|visit| visit.run == run);
        let variance = mean(own().filter_map(|visit| visit.expected)).map(|v| v / own().count() as f64);
        Some((mean(own().map(|visit| visit.level))?, variance))
    };
    ((0..runs).filter_map(of_run).collect(), agree)
}

/// How many pairs of levels lie more than [`WINDOW`] apart.
fn pairs_apart(mut levels: Vec<f64>) -> usize {
    levels.retain(|level| !level.is_nan());
    levels.sort_unstable_by(f64::total_cmp);
    // From one level to the next those that lie too far below become more.
    let mut below = 0;
    let apart = |level: &f64| {
        while level - levels[below] > WINDOW {
            below += 1;
        }
        below
    };
    levels.iter().map(apart).sum()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// What the factors of all cells have in common.
struct Common {
    factor: f64,
    /// Degrees of freedom that it is worth beside a cell's own.
    freedom: f64,
    /// Those of all cells together, beyond which nothing can be known.
    all: f64,
}

impl Common {
    /// Smyth's fit: the logarithm of an estimated variance scatters by the trigamma function of half its degrees of
    /// freedom; what the logarithms of the factors scatter more is what cells truly differ.
    fn of(factors: &[(f64, f64)]) -> Common {
        let all = factors.iter().map(|(_, freedom)| freedom).sum();
        let logs = || {
            factors.iter().map(|(factor, freedom)| factor.ln() - student::digamma(freedom / 2.0) + (freedom / 2.0).ln())
        };
        let count = factors.len() as f64;
        let Some(middle) = mean(logs()).filter(|_| count > 1.0) else {
            return Common { factor: 1.0, freedom: 0.0, all };
        };
        let scatter = logs().map(|log| (log - middle).powi(2)).sum::<f64>() / (count - 1.0);
        let by_chance = mean(factors.iter().map(|(_, freedom)| student::trigamma(freedom / 2.0))).unwrap_or(0.0);
        if scatter <= by_chance {
            return Common { factor: middle.exp(), freedom: f64::INFINITY, all };
        }
        let half = student::inverse_trigamma(scatter - by_chance);
        Common { factor: (middle + student::digamma(half) - half.ln()).exp(), freedom: 2.0 * half, all }
    }

    /// A cell's own factor between itself and the common one, and the degrees of freedom it now has.
    fn moderate(&self, (own, freedom): (f64, f64)) -> (f64, f64) {
        if self.freedom.is_infinite() {
            return (self.factor, self.all);
        }
        let factor = (self.freedom * self.factor + freedom * own) / (self.freedom + freedom);
        (factor, (self.freedom + freedom).min(self.all))
    }
}

/// Holm, with caution: the least p counts as many times as there are cells, the next one time less, and none less than the one before.
fn correct(mut tests: Vec<&mut Test>) {
    tests.order_by(|x, y| x.p.total_cmp(&y.p));
    let (mut left, mut greatest) = (tests.len() as f64, 0f64);
    for test in tests {
        greatest = greatest.max(CAUTION * left * test.p).min(1.0);
        test.p_family = greatest;
        left -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How the samples of a cell come about: all numbers are relative standard deviations.
    #[derive(Debug, Clone, Copy)]
    struct Noise {
        sample: f64,
        visit: f64,
        run: f64,
        /// Share of visits at half speed.
        slow: f64,
        /// Share of samples that are late by a fifth and more.
        late: f64,
    }

    const QUIET: Noise = Noise { sample: 0.01, visit: 0.0, run: 0.0, slow: 0.0, late: 0.0 };

    /// Runs, visits a run, samples a visit, on each side.
    type Shape = [usize; 3];

    struct Source(fastrand::Rng);

    fn all_of(family: &[Sides<'static>]) -> Vec<Option<Difference>> {
        differences(family, Sides::clone)
    }

    fn owned(runs: Vec<Vec<Vec<f64>>>) -> Vec<Vec<Cow<'static, [f64]>>> {
        runs.into_iter().map(|visits| visits.into_iter().map(Cow::Owned).collect()).collect()
    }

    /// Times: less is better.
    fn of_times(a: Vec<Vec<Vec<f64>>>, b: Vec<Vec<Vec<f64>>>) -> Sides<'static> {
        Sides { better: Better::Lower, group: 1, a: owned(a), b: owned(b) }
    }

    fn of_rates(a: Vec<Vec<Vec<f64>>>, b: Vec<Vec<Vec<f64>>>) -> Sides<'static> {
        Sides { better: Better::Higher, group: 1, a: owned(a), b: owned(b) }
    }

    impl Source {
        /// Box and Muller, 1958.
        fn normal(&mut self) -> f64 {
            (-2.0 * (1.0 - self.0.f64()).ln()).sqrt() * (std::f64::consts::TAU * self.0.f64()).cos()
        }

        fn side(&mut self, noise: Noise, scale: f64, [runs, visits, samples]: Shape) -> Vec<Vec<Vec<f64>>> {
            (0..runs)
                .map(|_| {
                    let run = scale * (noise.run * self.normal()).exp();
                    (0..visits)
                        .map(|_| {
                            let state = if self.0.f64() < noise.slow { 2.0 } else { 1.0 };
                            let visit = state * run * (noise.visit * self.normal()).exp();
                            (0..samples).map(|_| visit * self.sample(noise)).collect()
                        })
                        .collect()
                })
                .collect()
        }

        fn sample(&mut self, noise: Noise) -> f64 {
            let late = if self.0.f64() < noise.late { 0.2 - self.0.f64().ln() } else { 0.0 };
            1.0 + noise.sample * self.normal() + late
        }

        fn cell(&mut self, noise: Noise, effect: f64, shape: Shape) -> Sides<'static> {
            of_times(self.side(noise, 1.0, shape), self.side(noise, effect, shape))
        }
    }

    /// What the cells of a family have for noise.
    type Family = (&'static str, fn(usize) -> Noise);

    const FAMILIES: [Family; 9] = [
        ("all alike, 1 %", |_| QUIET),
        ("0.1 to 5 %", |cell| Noise { sample: 0.001 * 50f64.powf((cell % 100) as f64 / 99.0), ..QUIET }),
        ("visits differ by 1 %", |_| Noise { visit: 0.01, ..QUIET }),
        ("visits of every fourth cell by 3 %", |cell| Noise { visit: if cell % 4 == 0 { 0.03 } else { 0.0 }, ..QUIET }),
        ("5 % of samples late", |_| Noise { late: 0.05, ..QUIET }),
        ("visits differ by 0.1 to 5 %", |cell| Noise {
            visit: 0.001 * 50f64.powf((cell % 100) as f64 / 99.0),
            ..QUIET
        }),
        ("10 % of visits at half speed", |_| Noise { slow: 0.1, visit: 0.01, ..QUIET }),
        ("20 % of visits at half speed", |_| Noise { slow: 0.2, visit: 0.01, ..QUIET }),
        ("40 % of visits at half speed", |_| Noise { slow: 0.4, visit: 0.01, ..QUIET }),
    ];

    /// Share of families, in percent, in which at least one cell is called different although none is.
    fn false_alarms((_, noise): Family, cells: usize, shape: Shape, families: usize) -> f64 {
        let mut source = Source(fastrand::Rng::with_seed(11));
        let is_alarmed = |_: &usize| {
            let family: Vec<Sides> = (0..cells).map(|cell| source.cell(noise(cell), 1.0, shape)).collect();
            all_of(&family).into_iter().flatten().any(|d| d.test.is_some_and(|test| test.p_family < 0.05))
        };
        100.0 * (0..families).filter(is_alarmed).count() as f64 / families as f64
    }

    fn table(kinds: &[Family], shapes: &[Shape], counts: &[usize], families: usize, most: f64) {
        println!("families with a false alarm, %, of {families}; nominal 5");
        let mut faults = Vec::new();
        for &family in kinds {
            for &shape in shapes {
                for &cells in counts {
                    let found = false_alarms(family, cells, shape, families);
                    println!("{:36} {shape:?} {cells:4} cells: {found:.1}", family.0);
                    if found > most {
                        faults.push((family.0, shape, cells, found));
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn chance_seldom_looks_like_a_difference() {
        // Of so many tables some lie above 5 by chance.
        table(&FAMILIES, &[[1, 3, 7]], &[100], 500, 6.5);
    }

    #[test]
    fn states_of_visits_seldom_look_like_a_difference() {
        table(&FAMILIES[FAMILIES.len() - 4..], &[[1, 2, 7], [6, 1, 7], [6, 3, 7]], &[10, 100], 300, 7.0);
    }

    #[test]
    #[ignore = "takes ten minutes: all shapes and sizes of families"]
    fn chance_seldom_looks_like_a_difference_anywhere() {
        // Of so many tables some lie above 5 by chance: with 5 % in truth, one in forty above 6.4.
        table(
            &FAMILIES,
            &[[1, 2, 7], [1, 3, 7], [1, 10, 7], [3, 3, 7], [6, 3, 7]],
            &[1, 2, 3, 5, 10, 30, 100, 300],
            1000,
            6.4,
        );
    }

    /// Share of the cells of a family, in percent, that truly differ by so much and are found; every tenth of 100 does.
    fn found(noise: Noise, by: f64, shape: Shape, families: usize) -> f64 {
        let mut source = Source(fastrand::Rng::with_seed(12));
        let (mut hits, mut all) = (0, 0);
        for _ in 0..families {
            let effect = |cell: usize| if cell.is_multiple_of(10) { by } else { 1.0 };
            let family: Vec<Sides> = (0..100).map(|cell| source.cell(noise, effect(cell), shape)).collect();
            for difference in all_of(&family).into_iter().step_by(10).flatten() {
                all += 1;
                hits += usize::from(difference.test.is_some_and(|test| test.p_family < 0.05) && difference.ratio > 1.0);
            }
        }
        100.0 * f64::from(hits as u32) / f64::from(all)
    }

    #[test]
    fn a_true_difference_is_found() {
        println!("cells found, %, that differ by 3 %; noise of 1 %");
        for shape in [[1, 2, 7], [1, 3, 7], [1, 5, 7], [1, 10, 7]] {
            let (steady, unsteady) =
                (found(QUIET, 1.03, shape, 100), found(Noise { visit: 0.01, ..QUIET }, 1.03, shape, 100));
            println!("{shape:?}: of samples {steady:.1}, of samples and of visits {unsteady:.1}");
            assert!(steady >= 95.0 || shape[1] < 3, "{shape:?}: {steady}");
            assert!(unsteady >= 95.0 || shape[1] < 10, "{shape:?}: {unsteady}");
        }
    }

    #[test]
    fn five_percent_are_found_with_six_runs_whatever_the_states() {
        println!("cells found, %, that differ by 5 %; visits differ by 1 %, runs by 1 %; six runs of three visits");
        for slow in [0.0, 0.1, 0.2, 0.4] {
            let share = found(Noise { slow, visit: 0.01, run: 0.01, ..QUIET }, 1.05, [6, 3, 7], 100);
            println!("{:.0} % of visits at half speed: {share:.1}", 100.0 * slow);
            assert!(share >= 90.0, "{slow}: {share}");
        }
    }

    fn side(runs: &[&[&[f64]]]) -> Vec<Vec<Vec<f64>>> {
        runs.iter().map(|run| run.iter().map(|visit| visit.to_vec()).collect()).collect()
    }

    #[test]
    fn one_cell_by_hand() {
        // Logarithms of the draws in hundredths: 0 and 2 against 1 and 5. Alone, a cell has nothing to lean on: the variance
        // is (2 + 8) / 2 = 5, of the difference of means 5, t = 2 / sqrt 5 with two degrees of freedom.
        let e = |hundredths: f64| (0.01 * hundredths).exp();
        let cell = of_rates(side(&[&[&[e(0.0)], &[e(2.0)]]]), side(&[&[&[e(1.0)], &[e(5.0)]]]));
        let found = all_of(std::slice::from_ref(&cell))[0].unwrap();
        let near = |value: f64, expect: f64| assert!((value / expect - 1.0).abs() < 1e-6, "{value} is not {expect}");
        near(found.a, e(1.0));
        near(found.b, e(3.0));
        near(found.ratio, e(2.0));
        let test = found.test.unwrap();
        // With two degrees of freedom P(|T| > t) = 1 - t / sqrt(2 + t^2); 95 % lie within 4.302653. One pair of four is taken to
        // disagree: 2p(1-p) = 1/4, and each side of two visits that agree was disturbed throughout with p^2.
        let (t, disturbed) = (2.0 / 5f64.sqrt(), (1.0 - 0.5f64.sqrt()) / 2.0);
        near(test.p, 1.0 - t / (2.0 + t * t).sqrt() + 2.0 * disturbed * disturbed);
        near(test.ci95[0], e(2.0 - 4.302_653 * 5f64.sqrt()));
        near(test.ci95[1], e(2.0 + 4.302_653 * 5f64.sqrt()));
        near(test.p_family, CAUTION * test.p);
        assert_eq!(found.needed, Some(3));
    }

    #[test]
    fn two_draws_a_side_are_needed() {
        let draws = |a: &[&[&[f64]]], b: &[&[&[f64]]]| {
            all_of(&[of_rates(side(a), side(b))])[0].map(|found| (found.draws, found.test.is_some()))
        };
        assert_eq!(draws(&[&[&[1.0; 7]]], &[&[&[2.0; 7]]]), Some(([1, 1], false)));
        assert_eq!(draws(&[&[&[1.0; 7], &[1.1; 7]]], &[&[&[2.0; 7]]]), Some(([2, 1], false)));
        assert_eq!(draws(&[&[&[1.0; 7], &[1.1; 7]]], &[&[&[2.0; 7], &[2.1; 7]]]), Some(([2, 2], true)));
        // Several runs: a run is a draw, however many visits it has.
        assert_eq!(draws(&[&[&[1.0], &[1.01]], &[&[1.02], &[1.03]]], &[&[&[2.0], &[2.1]]]), Some(([2, 1], true)));
        assert_eq!(draws(&[], &[&[&[2.0]]]), None);
        assert_eq!(draws(&[&[&[f64::NAN, -1.0]]], &[&[&[2.0]]]), None);
    }

    /// Of one run a side: halves at 0 and 4 hundredths, the visits of each 2 apart, so that its level is known with a variance of 1.
    #[test]
    fn what_halves_of_a_run_differ_by_widens_the_interval() {
        let seen = |hundredths: &[f64]| -> Vec<SeenVisit> {
            hundredths.iter().map(|level| SeenVisit { run: 0, level: 0.01 * level, expected: None }).collect()
        };
        let beyond = |hundredths: &[f64]| beyond_visits(&seen(hundredths)).map(|variance| 1e4 * variance);
        let near = |value: Option<f64>, expect: f64| assert!((value.unwrap() - expect).abs() < 1e-6, "{value:?}");
        near(beyond(&[-1.0, 1.0, 3.0, 5.0]), (16.0 - 1.0 - 1.0) / 2.0);
        near(beyond(&[-1.0, 1.0, -1.0, 1.0]), (0.0 - 1.0 - 1.0) / 2.0);
        // Disturbed visits count in neither half.
        near(beyond(&[-1.0, 1.0, -70.0, 3.0, 5.0, -70.0]), (16.0 - 1.0 - 1.0) / 2.0);
        assert_eq!(beyond(&[0.0, 4.0, 8.0]), None, "half of three visits is one");

        let rates = |hundredths: &[f64]| vec![hundredths.iter().map(|x| vec![(0.01 * x).exp(); 7]).collect::<Vec<_>>()];
        let width = |a: &[f64]| {
            let [low, high] = all_of(&[of_rates(rates(a), rates(a))])[0].unwrap().test.unwrap().ci95;
            (high / low).ln()
        };
        assert!(
            width(&[-1.0, 1.0, 3.0, 5.0]) > 1.2 * width(&[-1.0, 3.0, 1.0, 5.0]),
            "the same visits in another order"
        );
    }

    /// A ran at 1 in eight visits and at a half in three; B at a half in all: perhaps the state that A had a quarter of the time.
    #[test]
    fn what_one_side_was_in_some_visits_is_no_difference() {
        let visits = |speeds: &[f64]| vec![speeds.iter().map(|speed| vec![*speed; 7]).collect::<Vec<_>>()];
        let a = [1.0, 1.01, 0.5, 1.0, 0.99, 0.51, 1.0, 1.01, 0.5, 1.0, 0.99];
        let told = |b: f64, is_host_state: bool| {
            let b: Vec<f64> = (0..11).map(|at| b * [1.0, 1.01][at % 2]).collect();
            let [one, other] = [(&a[..], &b[..]), (&b[..], &a[..])].map(|(a, b)| {
                let found = all_of(&[of_rates(visits(a), visits(b))])[0].unwrap();
                assert_eq!(found.is_host_state, is_host_state);
                found.test.unwrap()
            });
            assert!((one.p - other.p).abs() < 1e-9, "sides change places");
            one
        };
        let as_before = told(0.5, true);
        assert!(as_before.p == 1.0 && as_before.ci95[1] >= 1.0, "{as_before:?}");
        let slower = told(0.7, false);
        assert!(slower.p_family < 0.05 && slower.ci95[1] < 0.8, "{slower:?}");
    }

    #[test]
    fn holm_by_hand() {
        let mut tests =
            [0.01, 0.2, 0.004, 0.011].map(|p| Test { ci95: [1.0; 2], ci95_family: [1.0; 2], p, p_family: p });
        correct(tests.iter_mut().collect());
        // 4 x 0.004, 3 x 0.01, then 2 x 0.011 = 0.022, which may not be less than 0.03; 1 x 0.2. All times the caution.
        for (test, expect) in tests.iter().zip([0.03, 0.2, 0.016, 0.03]) {
            assert!((test.p_family - CAUTION * expect).abs() < 1e-12, "{test:?}");
        }
    }

    proptest! {
        /// Levels on a grid, so that many are the same, or apart by the window to the last digit.
        #[test]
        fn pairs_that_disagree_are_counted_as_one_by_one(
            levels in prop::collection::vec(
                prop_oneof![
                    -0.3..0.3f64,
                    (-9..9i32).prop_map(|n| f64::from(n) * WINDOW / 2.0),
                    Just(f64::NAN),
                    Just(f64::INFINITY),
                    Just(f64::NEG_INFINITY),
                ],
                0..60,
            ),
        ) {
            let pairs = levels.iter().enumerate().flat_map(|(at, one)| levels[..at].iter().map(move |other| (one, other)));
            let naive = pairs.filter(|(one, other)| (*one - *other).abs() > WINDOW).count();
            assert_eq!(pairs_apart(levels.clone()), naive);
        }

        #[test]
        fn sides_change_places(cells in prop::collection::vec(prop::collection::vec(prop::collection::vec(0.1..9.0f64, 1..5), 1..5), 2..9)) {
            let half = cells.len() / 2;
            let side = |cell: &Vec<Vec<f64>>| vec![cell.clone()];
            let pairs: Vec<Sides> = (0..half).map(|at| of_rates(side(&cells[at]), side(&cells[half + at]))).collect();
            let turned: Vec<Sides> = pairs.iter().map(|pair| Sides { a: pair.b.clone(), b: pair.a.clone(), ..pair.clone() }).collect();
            for (one, other) in all_of(&pairs).into_iter().zip(all_of(&turned)) {
                let (one, other) = (one.unwrap(), other.unwrap());
                prop_assert!((one.ratio * other.ratio - 1.0).abs() < 1e-9);
                prop_assert_eq!(one.test.is_some(), other.test.is_some());
                if let (Some(one), Some(other)) = (one.test, other.test) {
                    prop_assert!((one.p_family - other.p_family).abs() < 1e-9);
                    // With next to no draws an interval holds any ratio: 0 and infinity change places.
                    let is_mirrored = match (one.ci95[0], other.ci95[1]) {
                        (0.0, high) => high == f64::INFINITY,
                        (low, high) => (low * high - 1.0).abs() < 1e-6,
                    };
                    prop_assert!(is_mirrored, "{:?} {:?}", one.ci95, other.ci95);
                }
            }
        }

        #[test]
        fn never_panics(a in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<f64>(), 0..4), 0..4), 0..3),
                        b in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<f64>(), 0..4), 0..4), 0..3)) {
            prop_assert_eq!(all_of(&[of_rates(a.clone(), b.clone()), of_rates(b, a)]).len(), 2);
        }
    }
}
