//! Do the statistics find the truth? Simulated memories with a known median, noise, outliers, modes and drift.
//! `cargo test stats::truth -- --nocapture` prints what the book quotes. Seeds are fixed: results do not vary.

use super::*;
use crate::stats::compare::ratio;
use crate::stats::states::{Better, Ends, VISITS_MIN, Visit, states};

/// Runs of each simulated memory. The standard error of a coverage of 95 % is then 0.5 %, so a limit is set 0.5 %
/// beyond the 93 to 97 % that are wanted: among the many cells of a table one lies two standard errors off.
const RUNS: usize = 2000;
const COVERAGE: std::ops::RangeInclusive<f64> = 92.5..=97.5;

struct Source(fastrand::Rng);

impl Source {
    fn new(seed: usize) -> Self {
        Source(fastrand::Rng::with_seed(seed as u64))
    }

    /// Box and Muller, 1958.
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.0.f64()).ln()).sqrt() * (std::f64::consts::TAU * self.0.f64()).cos()
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.0.f64()).ln()
    }

    fn one_in(&mut self, share: f64) -> bool {
        self.0.f64() < share
    }

    fn samples(&mut self, memory: &Memory, n: usize) -> Vec<f64> {
        (0..n).map(|_| (memory.sample)(self)).collect()
    }
}

/// A simulated memory.
struct Memory {
    name: &'static str,
    sample: fn(&mut Source) -> f64,
}

const MEMORIES: [Memory; 6] = [
    Memory { name: "normal, 2 %", sample: |s| 1.0 + 0.02 * s.normal() },
    Memory { name: "lognormal, 50 %", sample: |s| (0.5 * s.normal()).exp() },
    Memory { name: "exponential tail, 10 %", sample: |s| 1.0 + 0.1 * s.exponential() },
    Memory { name: "normal, 2 % outliers", sample: |s| disturbed(s, 0.02) },
    Memory { name: "normal, 5 % outliers", sample: |s| disturbed(s, 0.05) },
    Memory { name: "two modes, 70/30", sample: |s| 1.0 + 0.01 * s.normal() + if s.one_in(0.3) { 0.2 } else { 0.0 } },
];

fn disturbed(s: &mut Source, share: f64) -> f64 {
    let late = if s.one_in(share) { 0.2 + s.exponential() } else { 0.0 };
    1.0 + 0.02 * s.normal() + late
}

/// The median, from so many samples that its error is a hundredth of any interval here.
fn true_median(memory: &Memory) -> f64 {
    let mut samples = Source::new(1).samples(memory, 200_000);
    let middle = samples.len() / 2;
    *samples.select_nth_unstable_by(middle, f64::total_cmp).1
}

fn visits(samples: &[f64], size: usize) -> Vec<&[f64]> {
    samples.chunks(size).collect()
}

fn covers(batches: &[&[f64]], truth: f64) -> bool {
    let [low, high] = interval::of_median(&pooled(batches), batches);
    low <= truth && truth <= high
}

fn percent(hits: usize) -> f64 {
    100.0 * hits as f64 / RUNS as f64
}

#[test]
fn a_fixed_number_of_samples_covers() {
    println!("coverage, %: fixed n            n = 11    21    31    51");
    for (index, memory) in MEMORIES.iter().enumerate() {
        let truth = true_median(memory);
        for batches in [1, 3, 5] {
            print!("{:24} {batches} batches ", memory.name);
            for n in [11, 21, 31, 51] {
                let mut source = Source::new(index * 1000 + n + batches);
                let run = |_: &usize| covers(&visits(&source.samples(memory, n), n.div_ceil(batches)), truth);
                let coverage = percent((0..RUNS).filter(run).count());
                print!("{coverage:6.1}");
                assert!(COVERAGE.contains(&coverage), "{}, {n} samples in {batches} batches", memory.name);
            }
            println!();
        }
    }
}

/// The relative half-width of the interval that `n` samples have on average.
fn typical_half_width(memory: &Memory, n: usize) -> f64 {
    let mut source = Source::new(n);
    (0..100).map(|_| source.samples(memory, n)).map(|s| half_width(&pooled(&[&s]), &[&s])).sum::<f64>() / 100.0
}

/// One adaptive run: samples in visits of `visit`, until settled or 101.
fn adaptive(source: &mut Source, memory: &Memory, visit: usize, target: f64) -> Vec<f64> {
    let mut samples = Vec::new();
    while samples.len() < 101 && !is_settled(&visits(&samples, visit), target) {
        samples.push((memory.sample)(source));
    }
    samples
}

fn stopping_covers(visit: usize) {
    println!(
        "coverage, % (mean n): adaptive, visits of {visit}, target = half-width at n =   11        21        31        51"
    );
    for (index, memory) in MEMORIES.iter().enumerate() {
        let truth = true_median(memory);
        let mut line = format!("{:60}", memory.name);
        for n in [11, 21, 31, 51] {
            let target = typical_half_width(memory, n);
            let mut source = Source::new(index * 1000 + n + visit);
            let mut taken = 0;
            let run = |_: &usize| {
                let samples = adaptive(&mut source, memory, visit, target);
                taken += samples.len();
                covers(&visits(&samples, visit), truth)
            };
            let coverage = percent((0..RUNS).filter(run).count());
            line += &format!("{coverage:6.1} ({:2})", taken / RUNS);
            assert!(COVERAGE.contains(&coverage), "{}, {n}", memory.name);
        }
        println!("{line}");
    }
}

#[test]
fn stopping_when_settled_covers_in_one_visit() {
    stopping_covers(101);
}

#[test]
fn stopping_when_settled_covers_in_many_visits() {
    stopping_covers(7);
}

/// Batches whose levels differ by `drift` standard deviations of a sample, around 100.
fn drifting(source: &mut Source, batches: usize, drift: f64) -> Vec<Vec<f64>> {
    let batch = |_| {
        let level = 100.0 + drift * source.normal();
        (0..10).map(|_| level + source.normal()).collect()
    };
    (0..batches).map(batch).collect()
}

fn slices(batches: &[Vec<f64>]) -> Vec<&[f64]> {
    batches.iter().map(Vec::as_slice).collect()
}

#[test]
fn drift_between_batches_widens() {
    println!("coverage, % (as one batch): batches of 10 that differ by so many standard deviations");
    // Two batches on one side of the truth are half of all runs, and an interval does not leave its samples.
    let least = |batches, drift| match (batches, drift) {
        (_, 0.0) => 93.0,
        (2, _) => 70.0,
        (3, _) => 85.0,
        _ => 90.0,
    };
    for drift in [0.0, 0.3, 1.0, 3.0] {
        print!("{drift:3.1} ");
        for batches in [2, 3, 4, 6] {
            let mut source = Source::new(batches);
            let (mut hits, mut naive) = (0, 0);
            for _ in 0..RUNS {
                let samples = drifting(&mut source, batches, drift);
                hits += usize::from(covers(&slices(&samples), 100.0));
                naive += usize::from(covers(&[&samples.concat()], 100.0));
            }
            print!("   {batches} batches {:.1} ({:.1})", percent(hits), percent(naive));
            assert!(percent(hits) >= least(batches, drift) && hits >= naive, "{batches} batches, {drift}");
        }
        println!();
    }
}

#[test]
fn ratios_cover() {
    println!("ratio, coverage, % (mean half-width, %): rounds of 10, samples vary by 1 %, rounds by");
    for (shared, own) in [(0.0, 0.0), (0.01, 0.0), (0.05, 0.0), (0.01, 0.01)] {
        print!("{:.0} % together, {:.0} % each  ", 100.0 * shared, 100.0 * own);
        for rounds in [2, 3, 4, 6] {
            let mut source = Source::new(rounds);
            let (mut hits, mut width) = (0, 0.0);
            for _ in 0..RUNS {
                let together: Vec<f64> = (0..rounds).map(|_| shared * source.normal()).collect();
                let mut side = |level: f64| -> Vec<Vec<f64>> {
                    let round = |drift: &f64| {
                        let level = level * (drift + own * source.normal()).exp();
                        (0..10).map(|_| level * (0.01 * source.normal()).exp()).collect()
                    };
                    together.iter().map(round).collect()
                };
                let (a, b) = (side(3.0), side(2.0));
                let [middle, low, high] = ratio(&slices(&a), &slices(&b));
                assert!(low <= middle && middle <= high);
                hits += usize::from(low <= 1.5 && 1.5 <= high);
                width += 100.0 * (high / low).ln() / 2.0 / RUNS as f64;
            }
            print!("   {rounds} rounds {:.1} ({width:.2})", percent(hits));
            let least = if own > 0.0 && rounds == 2 {
                70.0
            } else if own > 0.0 {
                80.0
            } else {
                93.0
            };
            assert!(percent(hits) >= least, "{rounds} rounds");
        }
        println!();
    }
}

fn modes_found(n: usize, sample: impl Fn(&mut Source) -> f64) -> f64 {
    let mut source = Source::new(n);
    let run = |_: &usize| {
        let samples: Vec<f64> = (0..n).map(|_| sample(&mut source)).collect();
        modes::find(&pooled(&[&samples])).is_some()
    };
    percent((0..RUNS).filter(run).count())
}

#[test]
fn one_mode_is_not_two() {
    println!("false modes, %                n = 16    21    31    51   101");
    for memory in &MEMORIES[..5] {
        print!("{:30}", memory.name);
        for n in [16, 21, 31, 51, 101] {
            let found = modes_found(n, memory.sample);
            print!("{found:6.2}");
            assert!(found <= 1.5, "{} at {n}", memory.name); // 1 %, and two standard errors.
        }
        println!();
    }
}

#[test]
fn two_modes_are_found() {
    println!("modes found, %                n = 21    31    51   101");
    for (high_share, apart, least) in [
        (0.3, 6.0, [70.0, 88.0, 96.0, 95.0]),
        (0.5, 6.0, [85.0, 95.0, 97.0, 95.0]),
        (0.3, 10.0, [90.0, 95.0, 98.0, 99.0]),
    ] {
        print!("{:2.0} % high, {apart:2} deviations apart", 100.0 * high_share);
        for (n, least) in [21, 31, 51, 101].into_iter().zip(least) {
            let found =
                modes_found(n, |s| 10.0 + 0.1 * s.normal() + if s.one_in(high_share) { 0.1 * apart } else { 0.0 });
            print!("{found:6.1}");
            assert!(found >= least, "{high_share} {apart} at {n}");
        }
        println!();
    }
}

/// A simulated host whose visits have states: the logarithms of the speeds of so many visits, in the order of time.
struct Host {
    name: &'static str,
    visits: fn(&mut Source, usize) -> Vec<f64>,
}

/// A share of visits at half speed, the others 1 % apart.
fn stateful(source: &mut Source, count: usize, share: f64) -> Vec<f64> {
    (0..count).map(|_| 0.01 * source.normal() - if source.one_in(share) { 2f64.ln() } else { 0.0 }).collect()
}

/// Takes some of the bandwidth, always another part.
fn contended(source: &mut Source) -> f64 {
    0.01 * source.normal() - (0.15 * source.exponential()).ln_1p()
}

/// Moves by 3 % and is forgotten within a twentieth of the run.
fn drifting_slowly(source: &mut Source, count: usize) -> Vec<f64> {
    let kept = (-20.0 / count as f64).exp();
    let mut drift = source.normal();
    let mut next = || {
        drift = kept * drift + (1.0 - kept * kept).sqrt() * source.normal();
        0.03 * drift + 0.01 * source.normal()
    };
    (0..count).map(|_| next()).collect()
}

const DRIFT: &str = "drift of 3 %";

const HOSTS: [Host; 7] = [
    Host { name: "quiet, visits 1 % apart", visits: |s, n| stateful(s, n, 0.0) },
    Host { name: "10 % of visits at half speed", visits: |s, n| stateful(s, n, 0.1) },
    Host { name: "20 % of visits at half speed", visits: |s, n| stateful(s, n, 0.2) },
    Host { name: "40 % of visits at half speed", visits: |s, n| stateful(s, n, 0.4) },
    Host { name: DRIFT, visits: drifting_slowly },
    Host { name: "contended, 15 % on average", visits: |s, n| (0..n).map(|_| contended(s)).collect() },
    Host {
        name: "contended, and 20 % at half speed",
        visits: |s, n| stateful(s, n, 0.2).into_iter().map(|level| level + contended(s)).collect(),
    },
];

/// Samples of each visit vary by 2 %, and one in fifty is late.
fn samples_of(source: &mut Source, levels: &[f64]) -> Vec<Vec<f64>> {
    let late = |source: &mut Source| if source.one_in(0.02) { 0.2 + source.exponential() } else { 0.0 };
    let sample = |source: &mut Source, level: f64| (level + 0.02 * source.normal() - late(source)).exp();
    levels.iter().map(|level| (0..7).map(|_| sample(source, *level)).collect()).collect()
}

fn told(visits: &[Vec<f64>]) -> states::States {
    let visits: Vec<Visit<'_>> = visits.iter().map(|values| Visit { values, shares: &[] }).collect();
    states(&visits, Better::Higher).unwrap()
}

/// Of so many visits that nothing is left to chance, the typical undisturbed visit and the median of samples. A drift that is
/// forgotten is one of many levels.
fn truths(host: &Host) -> [f64; 2] {
    let mut source = Source::new(1);
    let levels: Vec<f64> = match host.name {
        DRIFT => (0..50_000).map(|_| 0.03 * source.normal() + 0.01 * source.normal()).collect(),
        _ => (host.visits)(&mut source, 50_000),
    };
    let visits = samples_of(&mut source, &levels);
    let mut levels: Vec<f64> =
        visits.iter().filter_map(|visit| states::level(visit.iter().copied(), Better::Higher)).collect();
    levels.sort_by(f64::total_cmp);
    let least = quantile(&levels, 0.9) + 0.9f64.ln();
    let fast: Vec<f64> = levels.into_iter().filter(|level| *level >= least).collect();
    [(fast.iter().sum::<f64>() / fast.len() as f64).exp(), quantiles::median(visits.concat()).unwrap()]
}

/// The share of intervals that hold the truth, where an interval is told. Beside it stand how many are told, and how often the
/// interval of the median, which is of samples, holds the true median.
#[test]
fn capability_is_covered_on_hosts_whose_visits_have_states() {
    let counts = [VISITS_MIN, 6, 8, 12, 20];
    println!("coverage, % (told, %; half-width, %; the median's, %): visits {counts:?}");
    let mut faults = Vec::new();
    for (index, host) in HOSTS.iter().enumerate() {
        let [truth, median] = truths(host);
        print!("{:34}", host.name);
        for count in counts {
            let mut source = Source::new(1000 * index + count);
            let (mut intervals, mut hits, mut of_median, mut widths) = (0, 0, 0, Vec::new());
            for _ in 0..RUNS {
                let levels = (host.visits)(&mut source, count);
                let visits = samples_of(&mut source, &levels);
                let found = told(&visits).capability;
                of_median += usize::from(covers(&slices(&visits), median));
                if found.ends == Ends::Ci95 {
                    intervals += 1;
                    hits += usize::from((found.low..=found.high).contains(&truth));
                    widths.push(50.0 * (found.high / found.low - 1.0));
                }
            }
            let coverage = 100.0 * hits as f64 / intervals as f64;
            let (width, told) = (quantiles::median(widths).unwrap(), percent(intervals));
            print!("  {coverage:.1} ({told:.0}; {width:.1}; {:.1})", percent(of_median));
            if !COVERAGE.contains(&coverage) {
                faults.push((host.name, count, coverage));
            }
        }
        println!();
    }
    assert!(faults.is_empty(), "{faults:?}");
}
