//! How long until a change is told where there is none, and how soon one is told where there is: the noise is that of shared hosts and
//! not the model's. `cargo test -p membound-math change_point -- --nocapture` prints the table of docs/experiments/watch.md. Seeds are
//! fixed: results do not vary.

use proptest::prelude::*;

use super::*;
use crate::stats::normal;
use crate::stats::states::undisturbed_level;

/// Samples of a probe, seconds apart: each meets a state of its own.
const SAMPLES: usize = 20;

/// What a host's figures are like: each is what the undisturbed ones of a probe's samples come to.
struct Host {
    name: &'static str,
    /// What all samples of a probe have in common, and what each has of its own.
    shared: fn(&mut fastrand::Rng) -> f64,
    sample: fn(&mut fastrand::Rng) -> f64,
}

fn half_speed(random: &mut fastrand::Rng, share: f64) -> f64 {
    0.01 * normal(random) - if random.f64() < share { 2f64.ln() } else { 0.0 }
}

/// A neighbour takes some of the bandwidth, always another part.
fn contended(random: &mut fastrand::Rng) -> f64 {
    -(-0.15 * (1.0 - random.f64()).ln()).ln_1p()
}

const HOSTS: [Host; 7] = [
    Host { name: "quiet, 1 %", shared: |_| 0.0, sample: |random| 0.01 * normal(random) },
    Host { name: "10 % of samples at half speed", shared: |_| 0.0, sample: |random| half_speed(random, 0.1) },
    Host { name: "40 % of samples at half speed", shared: |_| 0.0, sample: |random| half_speed(random, 0.4) },
    Host {
        name: "contended, 15 % on average",
        shared: |_| 0.0,
        sample: |random| 0.01 * normal(random) + contended(random),
    },
    Host {
        name: "contended, and 40 % at half speed",
        shared: |_| 0.0,
        sample: |random| half_speed(random, 0.4) + contended(random),
    },
    Host {
        name: "5 % of probes at half speed throughout",
        shared: |random| if random.f64() < 0.05 { -2f64.ln() } else { 0.0 },
        sample: |random| half_speed(random, 0.2),
    },
    Host { name: "probes 2 % apart", shared: |random| 0.02 * normal(random), sample: |random| 0.01 * normal(random) },
];

impl Host {
    fn figure(&self, random: &mut fastrand::Rng) -> f64 {
        let shared = (self.shared)(random);
        let samples: Vec<f64> = (0..SAMPLES).map(|_| shared + (self.sample)(random)).collect();
        undisturbed_level(&samples).unwrap()
    }
}

/// A watcher that has seen a host for so many figures.
fn acquainted(host: &Host, figures: usize, random: &mut fastrand::Rng) -> Watcher {
    let mut watcher = Watcher::new(0.05);
    for _ in 0..figures {
        watcher.note(host.figure(random));
    }
    watcher
}

#[test]
fn a_host_that_does_not_change_is_let_be_and_a_fall_is_told_soon() {
    const FIGURES: usize = 30_000;
    const FALLS: usize = 200;
    println!(
        "host, changes told in {FIGURES} figures without one; figures until a fall of 10 % is told: median, 95th, within 5"
    );
    for (seed, host) in HOSTS.iter().enumerate() {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let mut watcher = Watcher::new(0.05);
        let false_ones = (0..FIGURES).filter(|_| watcher.note(host.figure(&mut random)).is_some()).count();
        let mut delays: Vec<usize> = Vec::new();
        for _ in 0..FALLS {
            let mut watcher = acquainted(host, 60, &mut random);
            let told = (1..=50).find_map(|n| Some((n, watcher.note(host.figure(&mut random) + 0.9f64.ln())?)));
            let (delay, change) = told.expect("a fall of 10 % is told within 50 figures");
            assert_eq!(change.turn, Turn::Fall, "{}", host.name);
            delays.push(delay);
        }
        delays.sort_unstable();
        let soon = delays.iter().filter(|delay| **delay <= 5).count();
        println!(
            "{:40} {false_ones:3}; {} {} {:.1} %",
            host.name,
            delays[FALLS / 2],
            delays[FALLS * 95 / 100],
            100.0 * soon as f64 / FALLS as f64
        );
        assert_eq!(false_ones, 0, "{}", host.name);
        assert!(soon >= FALLS * 95 / 100, "{}: {soon} of {FALLS}", host.name);
    }
}

#[test]
fn a_fall_is_told_once_with_its_size_and_a_recovery_ends_it() {
    for (seed, host) in HOSTS.iter().enumerate() {
        let mut random = fastrand::Rng::with_seed(100 + seed as u64);
        let mut watcher = acquainted(host, 60, &mut random);
        let mut told = Vec::new();
        for n in 0..4000 {
            let level = if n < 2000 { 0.9f64.ln() } else { 0.0 };
            told.extend(watcher.note(host.figure(&mut random) + level).map(|change| (n, change)));
        }
        let turns: Vec<Turn> = told.iter().map(|(_, change)| change.turn).collect();
        assert_eq!(turns, [Turn::Fall, Turn::Recovered], "{}: {told:?}", host.name);
        let [shift, low, high] = told[0].1.shift;
        assert!(low <= shift && shift <= high && (shift - 0.9f64.ln()).abs() < 0.05, "{}: {shift}", host.name);
        assert!(told[0].1.after.count <= told[0].0 + 2, "{}: it is dated to where it was: {told:?}", host.name);
        assert!(watcher.fallen_from().is_none());
    }
}

/// Twenty figures of a level that is known exactly, and four of another.
#[test]
fn a_change_by_hand() {
    let mut watcher = Watcher::new(0.05);
    (0..20).for_each(|n| assert_eq!(watcher.note(if n % 2 == 0 { 1.0 } else { 1.004 }), None));
    assert_eq!((watcher.needed(), watcher.level()), (0, Some(1.002)));
    assert_eq!([0.8; 3].map(|figure| watcher.note(figure)), [None; 3]);
    let change = watcher.note(0.8).unwrap();
    assert_eq!((change.turn, change.before.count, change.after), (Turn::Fall, 20, Side { count: 4, median: 0.8 }));
    assert!((change.shift[0] + 0.202).abs() < 1e-9, "{change:?}");
    assert_eq!(watcher.fallen_from(), Some(1.002));
    // Half of the way back, then all of it, then beyond.
    let mut after = |level: f64| (0..40).find_map(|_| watcher.note(level)).map(|change| change.turn);
    assert_eq!(after(0.9), Some(Turn::PartlyRecovered));
    assert_eq!(after(1.0), Some(Turn::Recovered));
    assert_eq!(after(1.3), Some(Turn::Rise));
    assert_eq!(after(1.29), None, "1 % is less than is told");
}

#[test]
fn what_is_not_known_yet_is_not_judged() {
    let mut watcher = Watcher::new(0.05);
    assert_eq!((watcher.needed(), watcher.level()), (LEAST, None));
    (0..LEAST).for_each(|n| assert_eq!(watcher.note(-(n as f64)), None));
    assert!(watcher.is_ready());
    let mut watcher = Watcher::new(0.05);
    assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|figure| watcher.note(figure)), [None; 3]);
    assert_eq!(watcher.needed(), LEAST);
}

/// What is told of levels that last so long each. Figures are 0.2 % apart.
fn told_of(levels: &[f64], lasting: usize) -> Vec<Turn> {
    let mut watcher = Watcher::new(0.05);
    let figures = levels.iter().flat_map(|level| (0..lasting).map(move |n| level + 0.002 * (n % 2) as f64));
    figures.filter_map(|figure| watcher.note(figure)).map(|change| change.turn).collect()
}

/// Each step is less than what is told, both together are more.
#[test]
fn a_fall_in_small_steps_is_told() {
    for lasting in [20, 150] {
        assert_eq!(told_of(&[0.0, -0.04], lasting), [], "one step is too small");
        assert_eq!(told_of(&[0.0, -0.04, -0.08], lasting), [Turn::Fall]);
        assert_eq!(told_of(&[0.0, -0.04, -0.08, -0.12, -0.16], lasting), [Turn::Fall; 2], "each by as much as is told");
        assert_eq!(told_of(&[0.0, -0.04, 0.0, -0.04, 0.0], lasting), [], "there and back");
    }
    let mut watcher = Watcher::new(0.05);
    (0..60).for_each(|_| assert_eq!(watcher.note(0.0), None));
    (0..60).for_each(|_| assert_eq!(watcher.note(-0.04), None));
    let change = (0..60).find_map(|_| watcher.note(-0.08)).unwrap();
    assert_eq!(
        (change.before, change.shift[0]),
        (Side { count: 60, median: 0.0 }, -0.08),
        "against what was told last"
    );
    assert_eq!(watcher.fallen_from(), Some(0.0));
}

#[test]
fn a_fall_ends_however_small_the_step_that_ends_it() {
    for lasting in [20, 150] {
        assert_eq!(told_of(&[0.0, -0.08, -0.04], lasting), [Turn::Fall, Turn::Recovered]);
        // In steps that are each too small to be told, of which the last one ends it.
        assert_eq!(told_of(&[0.0, -0.12, -0.08, -0.04], lasting), [Turn::Fall, Turn::Recovered]);
        assert_eq!(told_of(&[0.0, -0.04, -0.08, -0.04, 0.0], lasting), [Turn::Fall, Turn::Recovered]);
    }
}

/// Of no change, of one that nothing is as great as, of none of these.
#[test]
fn whatever_is_asked_for_is_watched_for() {
    for least in [0.0, -1.0, 0.9, 0.99, 1.0, 2.0, f64::NAN, f64::INFINITY] {
        let mut watcher = Watcher::new(least);
        (0..60).for_each(|_| assert_eq!(watcher.note(0.0), None));
        assert!((0..60).any(|_| watcher.note(-3.0).is_some()), "{least}");
    }
}

proptest! {
    #[test]
    fn never_panics(figures in prop::collection::vec(prop_oneof![any::<f64>(), -1.0..1.0, Just(0.0)], 0..200), least in 0.0..0.99f64) {
        let mut watcher = Watcher::new(least);
        for figure in figures {
            if let Some(change) = watcher.note(figure) {
                assert!(change.shift[1] <= change.shift[2]);
            }
        }
    }
}
