//! A machine that is watched: noise of recorded runs of a shared host, played again as probes. Nothing changed, so nothing may be told;
//! where a fall is planted, it must be.
//!
//! `cargo test -p membound-analyze --test it watch -- --nocapture` prints the lines of docs/experiments/watch.md.

use std::collections::BTreeMap;

use membound_core::case::Case;
use membound_core::record::Outcome;
use membound_core::stats::change_point::{Turn, Watcher};
use membound_core::stats::states::{Better, level, undisturbed_level};
use membound_core::units::Bytes;

use crate::records;

/// Probes that are played, and samples of one.
const PROBES: usize = 10_000;
const SAMPLES: usize = 20;
/// From one sample to the next, so many visits of the recorded run: 60 s had some 200, so a probe takes some 12 s.
const APART: usize = 2;

/// How far each visit of a thread alone lay from what its case comes to over all runs, in the order of time, run by run.
fn noise(is_own: impl Fn(&Case) -> bool) -> Vec<Vec<f64>> {
    let mut visits: Vec<(usize, &Case, f64)> = Vec::new();
    for (run, recorded) in records::whole().iter().enumerate() {
        let own = recorded.record().measurements.iter();
        for visit in own.filter(|visit| visit.case.threads() == 1 && is_own(&visit.case)) {
            let Outcome::Measured(measured) = &visit.outcome else { panic!("only measured visits are kept") };
            let costs = measured.samples.ticks.iter().map(|ticks| *ticks as f64 / measured.repetitions as f64);
            visits.push((run, &visit.case, level(costs, Better::Lower).unwrap()));
        }
    }
    let mut cases: BTreeMap<&Case, Vec<f64>> = BTreeMap::new();
    visits.iter().for_each(|(_, case, level)| cases.entry(case).or_default().push(*level));
    // What a handful of visits come to is itself uncertain, and would be noise that no probe has.
    let cases: BTreeMap<&Case, f64> = cases
        .into_iter()
        .filter(|(_, all)| all.len() >= 8)
        .map(|(case, all)| (case, undisturbed_level(&all).unwrap()))
        .collect();
    let mut runs = vec![Vec::new(); 6];
    for (run, case, level) in &visits {
        runs[*run].extend(cases.get(case).map(|usual| level - usual));
    }
    runs
}

/// A probe of a machine that does what the recorded one did for some seconds.
fn probe(runs: &[Vec<f64>], random: &mut fastrand::Rng) -> f64 {
    let run = &runs[random.usize(..runs.len())];
    let first = random.usize(..run.len());
    let samples: Vec<f64> = (0..SAMPLES).map(|n| run[(first + APART * n) % run.len()]).collect();
    undisturbed_level(&samples).unwrap()
}

/// What is told in so many probes without a change, and probes until a fall of 10 % is told, sorted.
fn played(runs: &[Vec<f64>]) -> (usize, Vec<usize>) {
    let mut random = fastrand::Rng::with_seed(7);
    let mut watcher = Watcher::new(0.05);
    let told = (0..PROBES).filter(|_| watcher.note(probe(runs, &mut random)).is_some()).count();
    let mut delay = |_| {
        let mut watcher = Watcher::new(0.05);
        (0..60).for_each(|_| {
            watcher.note(probe(runs, &mut random));
        });
        let fall = (1..=60).find_map(|n| Some((n, watcher.note(probe(runs, &mut random) + 0.9f64.ln())?)));
        let (delay, change) = fall.expect("a fall of 10 % is told within 60 probes");
        assert_eq!(change.turn, Turn::Fall);
        delay
    };
    let mut delays: Vec<usize> = (0..200).map(&mut delay).collect();
    delays.sort_unstable();
    (told, delays)
}

fn check(name: &str, runs: &[Vec<f64>], least_soon: usize) {
    let visits: Vec<f64> = runs.concat();
    let slow = visits.iter().filter(|off| **off < 0.8f64.ln()).count();
    let (told, delays) = played(runs);
    let soon = delays.iter().filter(|delay| **delay <= 5).count();
    println!(
        "{name}: {} visits, {:.0} % of them slower by a fifth; told {told} times in {PROBES} probes; a fall of 10 % after {} \
         probes (median), {} (95 %), within 5: {:.0} %",
        visits.len(),
        100.0 * slow as f64 / visits.len() as f64,
        delays[delays.len() / 2],
        delays[delays.len() * 95 / 100],
        100.0 * soon as f64 / delays.len() as f64
    );
    assert_eq!(told, 0, "{name}");
    assert!(soon * 100 >= least_soon * delays.len(), "{name}: {soon} of {}", delays.len());
}

#[test]
fn recorded_noise_of_memory_tells_nothing_and_hides_no_fall() {
    check("one thread in memory", &noise(|case| case.working_set >= Bytes::mib(64)), 85);
}

#[test]
fn recorded_noise_of_the_first_cache_tells_nothing_and_hides_no_fall() {
    check("one thread in the first cache", &noise(|case| case.working_set <= Bytes::kib(32)), 95);
}
