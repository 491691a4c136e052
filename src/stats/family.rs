//! Two sides of many cells at once: which cells differ, where five of a hundred would look different by chance?
//!
//! *Draws.* Samples of one visit resemble each other, and so do visits of one run. So one observation, a draw, is the
//! logarithm of a visit's median; where either side has several runs, it is the mean of a run's. How far draws lie apart
//! is then what an interval must hold, whatever makes them do so. Between runs more changes than between visits (where
//! pages lie, what else runs): of one run a side nothing of that can be known.
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

use super::compare::log_median;
use super::{pooled, quantile, student};

/// Probability that an interval misses.
const MISS: f64 = 0.05;
/// No draw is taken to be more repeatable than this (relative standard deviation): the timing of a sample is not.
pub(super) const REPEATABLE: f64 = 1e-4;
/// What stands for the expectation where samples are too few to show a spread. Only ratios between cells matter.
pub(super) const UNSEEN: f64 = 1e-2;
/// Draws that agree by chance say no more than this about the factor.
const FACTOR_MIN: f64 = 1e-3;

/// By how much corrected probabilities are raised. A mix of quiet and unsteady cells fits the assumption behind the moderated
/// variance badly: with 1, up to 6.6 % of simulated families had a false alarm, with this at most 5.
const CAUTION: f64 = 1.25;

/// The samples of one cell on both sides: of each run, of each visit. Samples that are not positive are left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sides {
    /// The side that the other is held against.
    pub a: Vec<Vec<Vec<f64>>>,
    /// The other side.
    pub b: Vec<Vec<Vec<f64>>>,
}

/// What the two sides of a cell say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The typical value of `a`: the geometric mean of its draws.
    pub a: f64,
    /// The same of `b`.
    pub b: f64,
    /// b / a.
    pub ratio: f64,
    /// Draws of each side.
    pub draws: [usize; 2],
    /// What can be said of chance; absent where there are too few draws: two visits of each side are needed, or of
    /// several runs three.
    pub test: Option<Test>,
}

/// A difference against chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    /// 95 % interval of the ratio, of this cell for itself: [low, high].
    pub ci95: [f64; 2],
    /// Probability of such a difference if there were none, of this cell for itself.
    pub p: f64,
    /// The same corrected for the number of cells: below 0.05, not one of all cells below 0.05 is there by chance, with 95 %.
    pub p_family: f64,
}

/// Differences of all cells, in their order. `None` for a cell without a positive sample on a side. Costs some
/// microseconds a cell.
pub fn differences(cells: &[Sides]) -> Vec<Option<Difference>> {
    let drawn: Vec<Option<Drawn>> = cells.iter().map(Drawn::of).collect();
    let factors: Vec<(f64, f64)> = drawn.iter().flatten().filter_map(Drawn::factor).collect();
    let common = Common::of(&factors);
    let mut found: Vec<Option<Difference>> =
        drawn.iter().map(|drawn| drawn.as_ref().map(|drawn| drawn.difference(&common))).collect();
    let tests: Vec<&mut Test> = found.iter_mut().flatten().filter_map(|found| found.test.as_mut()).collect();
    correct(tests);
    found
}

/// The draws of a cell.
struct Drawn {
    sides: [Vec<f64>; 2],
    /// Variance of a draw of each side, as its samples let expect.
    expected: [f64; 2],
    is_of_runs: bool,
}

impl Drawn {
    fn of(cell: &Sides) -> Option<Drawn> {
        let is_of_runs = cell.a.len() > 1 || cell.b.len() > 1;
        let [a, b] = [&cell.a, &cell.b].map(|runs| draws(runs, is_of_runs));
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let seen = [&a, &b].map(|draws| mean(draws.iter().filter_map(|draw| draw.1)));
        let expected = [0, 1].map(|side| seen[side].or(seen[1 - side]).unwrap_or(UNSEEN * UNSEEN));
        let sides = [a, b].map(|draws| draws.into_iter().map(|draw| draw.0).collect());
        Some(Drawn { sides, expected: expected.map(|v| v.max(REPEATABLE * REPEATABLE)), is_of_runs })
    }

    fn is_enough(&self) -> bool {
        let [a, b] = self.sides.each_ref().map(Vec::len);
        if self.is_of_runs { a + b > 2 } else { a > 1 && b > 1 }
    }

    /// By which factor draws vary more than expected, and the degrees of freedom it has.
    fn factor(&self) -> Option<(f64, f64)> {
        let freedom = (self.sides[0].len() + self.sides[1].len() - 2) as f64;
        let squares = |side: usize| {
            let middle = mean(self.sides[side].iter().copied()).unwrap_or(0.0);
            self.sides[side].iter().map(|x| (x - middle).powi(2)).sum::<f64>() / self.expected[side]
        };
        self.is_enough().then(|| (((squares(0) + squares(1)) / freedom).max(FACTOR_MIN), freedom))
    }

    fn difference(&self, common: &Common) -> Difference {
        let [a, b] = self.sides.each_ref().map(|draws| mean(draws.iter().copied()).unwrap_or(f64::NAN));
        let draws = self.sides.each_ref().map(Vec::len);
        let test = self.factor().map(|own| {
            let (factor, freedom) = common.moderate(own);
            let variance =
                |side: usize| (factor * self.expected[side]).max(REPEATABLE * REPEATABLE) / draws[side] as f64;
            let error = (variance(0) + variance(1)).sqrt();
            let reach = error * student::quantile(MISS, freedom);
            let p = student::outside((b - a) / error, freedom);
            Test { ci95: [(b - a - reach).exp(), (b - a + reach).exp()], p, p_family: p }
        });
        Difference { a: a.exp(), b: b.exp(), ratio: (b - a).exp(), draws, test }
    }
}

/// Draws, each with the variance that its samples let expect, where they show one.
fn draws(runs: &[Vec<Vec<f64>>], is_of_runs: bool) -> Vec<(f64, Option<f64>)> {
    let visits =
        |run: &Vec<Vec<f64>>| -> Vec<(f64, Option<f64>)> { run.iter().filter_map(|visit| draw(visit)).collect() };
    let of_run = |run: &Vec<Vec<f64>>| {
        let visits = visits(run);
        let variance = mean(visits.iter().filter_map(|visit| visit.1)).map(|v| v / visits.len() as f64);
        Some((mean(visits.iter().map(|visit| visit.0))?, variance))
    };
    if is_of_runs { runs.iter().filter_map(of_run).collect() } else { runs.iter().flat_map(visits).collect() }
}

pub(super) fn draw(visit: &[f64]) -> Option<(f64, Option<f64>)> {
    if let Some((median, variance)) = log_median(visit) {
        return Some((median, Some(variance)));
    }
    let logs: Vec<f64> = visit.iter().filter(|x| **x > 0.0).map(|x| x.ln()).collect();
    let sorted = pooled(&[&logs]);
    (!sorted.is_empty()).then(|| (quantile(&sorted, 0.5), None))
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
    tests.sort_by(|x, y| x.p.total_cmp(&y.p));
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
        /// Share of samples that are late by a fifth and more.
        late: f64,
    }

    const QUIET: Noise = Noise { sample: 0.01, visit: 0.0, run: 0.0, late: 0.0 };

    /// Runs, visits a run, samples a visit, on each side.
    type Shape = [usize; 3];

    struct Source(fastrand::Rng);

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
                            let visit = run * (noise.visit * self.normal()).exp();
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

        fn cell(&mut self, noise: Noise, effect: f64, shape: Shape) -> Sides {
            Sides { a: self.side(noise, 1.0, shape), b: self.side(noise, effect, shape) }
        }
    }

    /// What the cells of a family have for noise.
    type Family = (&'static str, fn(usize) -> Noise);

    const FAMILIES: [Family; 6] = [
        ("all alike, 1 %", |_| QUIET),
        ("0.1 to 5 %", |cell| Noise { sample: 0.001 * 50f64.powf((cell % 100) as f64 / 99.0), ..QUIET }),
        ("visits differ by 1 %", |_| Noise { visit: 0.01, ..QUIET }),
        ("visits of every fourth cell by 3 %", |cell| Noise { visit: if cell % 4 == 0 { 0.03 } else { 0.0 }, ..QUIET }),
        ("visits differ by 0.1 to 5 %", |cell| Noise {
            visit: 0.001 * 50f64.powf((cell % 100) as f64 / 99.0),
            ..QUIET
        }),
        ("5 % of samples late", |_| Noise { late: 0.05, ..QUIET }),
    ];

    /// Share of families, in percent, in which at least one cell is called different although none is.
    fn false_alarms((_, noise): Family, cells: usize, shape: Shape, families: usize) -> f64 {
        let mut source = Source(fastrand::Rng::with_seed(11));
        let is_alarmed = |_: &usize| {
            let family: Vec<Sides> = (0..cells).map(|cell| source.cell(noise(cell), 1.0, shape)).collect();
            differences(&family).into_iter().flatten().any(|d| d.test.is_some_and(|test| test.p_family < 0.05))
        };
        100.0 * (0..families).filter(is_alarmed).count() as f64 / families as f64
    }

    fn table(shapes: &[Shape], counts: &[usize], families: usize, most: f64) {
        println!("families with a false alarm, %, of {families}; nominal 5");
        let mut faults = Vec::new();
        for family in FAMILIES {
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
        table(&[[1, 3, 7]], &[100], 1000, 5.0);
    }

    #[test]
    #[ignore = "takes ten minutes: all shapes and sizes of families"]
    fn chance_seldom_looks_like_a_difference_anywhere() {
        // Of so many tables some lie above 5 by chance: with 5 % in truth, one in forty above 6.4.
        table(&[[1, 2, 7], [1, 3, 7], [1, 10, 7], [3, 3, 7]], &[1, 2, 3, 5, 10, 30, 100, 300], 1000, 6.4);
    }

    /// Share of the cells of a family, in percent, that truly differ by 3 % and are found; every tenth of 100 does.
    fn found(noise: Noise, shape: Shape, families: usize) -> f64 {
        let mut source = Source(fastrand::Rng::with_seed(12));
        let (mut hits, mut all) = (0, 0);
        for _ in 0..families {
            let effect = |cell: usize| if cell.is_multiple_of(10) { 1.03 } else { 1.0 };
            let family: Vec<Sides> = (0..100).map(|cell| source.cell(noise, effect(cell), shape)).collect();
            for difference in differences(&family).into_iter().step_by(10).flatten() {
                all += 1;
                hits += usize::from(difference.test.unwrap().p_family < 0.05 && difference.ratio > 1.0);
            }
        }
        100.0 * f64::from(hits as u32) / f64::from(all)
    }

    #[test]
    fn a_true_difference_is_found() {
        println!("cells found, %, that differ by 3 %; noise of 1 %");
        for shape in [[1, 2, 7], [1, 3, 7], [1, 5, 7], [1, 10, 7]] {
            let (steady, unsteady) = (found(QUIET, shape, 100), found(Noise { visit: 0.01, ..QUIET }, shape, 100));
            println!("{shape:?}: of samples {steady:.1}, of samples and of visits {unsteady:.1}");
            assert!(steady >= 95.0 || shape[1] < 3, "{shape:?}: {steady}");
            assert!(unsteady >= 95.0 || shape[1] < 10, "{shape:?}: {unsteady}");
        }
    }

    fn side(runs: &[&[&[f64]]]) -> Vec<Vec<Vec<f64>>> {
        runs.iter().map(|run| run.iter().map(|visit| visit.to_vec()).collect()).collect()
    }

    #[test]
    fn one_cell_by_hand() {
        // Logarithms of the draws in units of ln 2: 0 and 2 against 1 and 5. Alone, a cell has nothing to lean on: the
        // variance is (2 + 8) / 2 = 5, of the difference of means 5, t = 2 / sqrt 5 with two degrees of freedom.
        let cell = Sides { a: side(&[&[&[1.0], &[4.0]]]), b: side(&[&[&[2.0], &[32.0]]]) };
        let found = differences(std::slice::from_ref(&cell))[0].unwrap();
        let near = |value: f64, expect: f64| assert!((value / expect - 1.0).abs() < 1e-6, "{value} is not {expect}");
        near(found.a, 2.0);
        near(found.b, 8.0);
        near(found.ratio, 4.0);
        let test = found.test.unwrap();
        // With two degrees of freedom P(|T| > t) = 1 - t / sqrt(2 + t^2); 95 % lie within 4.302653.
        let t = 2.0 / 5f64.sqrt();
        near(test.p, 1.0 - t / (2.0 + t * t).sqrt());
        near(test.ci95[0], 2f64.powf(2.0 - 4.302_653 * 5f64.sqrt()));
        near(test.ci95[1], 2f64.powf(2.0 + 4.302_653 * 5f64.sqrt()));
        near(test.p_family, CAUTION * test.p);
    }

    #[test]
    fn two_draws_a_side_are_needed() {
        let draws = |a: &[&[&[f64]]], b: &[&[&[f64]]]| {
            differences(&[Sides { a: side(a), b: side(b) }])[0].map(|found| (found.draws, found.test.is_some()))
        };
        assert_eq!(draws(&[&[&[1.0; 7]]], &[&[&[2.0; 7]]]), Some(([1, 1], false)));
        assert_eq!(draws(&[&[&[1.0; 7], &[1.1; 7]]], &[&[&[2.0; 7]]]), Some(([2, 1], false)));
        assert_eq!(draws(&[&[&[1.0; 7], &[1.1; 7]]], &[&[&[2.0; 7], &[2.1; 7]]]), Some(([2, 2], true)));
        // Several runs: a run is a draw, however many visits it has.
        assert_eq!(draws(&[&[&[1.0], &[1.1]], &[&[1.2], &[1.3]]], &[&[&[2.0], &[2.1]]]), Some(([2, 1], true)));
        assert_eq!(draws(&[], &[&[&[2.0]]]), None);
        assert_eq!(draws(&[&[&[f64::NAN, -1.0]]], &[&[&[2.0]]]), None);
    }

    #[test]
    fn holm_by_hand() {
        let mut tests = [0.01, 0.2, 0.004, 0.011].map(|p| Test { ci95: [1.0; 2], p, p_family: p });
        correct(tests.iter_mut().collect());
        // 4 x 0.004, 3 x 0.01, then 2 x 0.011 = 0.022, which may not be less than 0.03; 1 x 0.2. All times the caution.
        for (test, expect) in tests.iter().zip([0.03, 0.2, 0.016, 0.03]) {
            assert!((test.p_family - CAUTION * expect).abs() < 1e-12, "{test:?}");
        }
    }

    proptest! {
        #[test]
        fn sides_change_places(cells in prop::collection::vec(prop::collection::vec(prop::collection::vec(0.1..9.0f64, 1..5), 1..5), 2..9)) {
            let half = cells.len() / 2;
            let side = |cell: &Vec<Vec<f64>>| vec![cell.clone()];
            let pairs: Vec<Sides> = (0..half).map(|at| Sides { a: side(&cells[at]), b: side(&cells[half + at]) }).collect();
            let turned: Vec<Sides> = pairs.iter().map(|pair| Sides { a: pair.b.clone(), b: pair.a.clone() }).collect();
            for (one, other) in differences(&pairs).into_iter().zip(differences(&turned)) {
                let (one, other) = (one.unwrap(), other.unwrap());
                prop_assert!((one.ratio * other.ratio - 1.0).abs() < 1e-9);
                prop_assert_eq!(one.test.is_some(), other.test.is_some());
                if let (Some(one), Some(other)) = (one.test, other.test) {
                    prop_assert!((one.p_family - other.p_family).abs() < 1e-9);
                    prop_assert!((one.ci95[0] * other.ci95[1] - 1.0).abs() < 1e-6);
                }
            }
        }

        #[test]
        fn never_panics(a in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<f64>(), 0..4), 0..4), 0..3),
                        b in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<f64>(), 0..4), 0..4), 0..3)) {
            prop_assert_eq!(differences(&[Sides { a: a.clone(), b: b.clone() }, Sides { a: b, b: a }]).len(), 2);
        }
    }
}
