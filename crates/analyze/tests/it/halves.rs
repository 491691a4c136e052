//! Recorded runs of shared hosts: does the interval of one half of the visits hold the other half's capability, and which estimator
//! do two halves agree on?
//!
//! `cargo test -p membound-analyze --test it halves -- --nocapture` prints the tables of docs/method/statistics.md.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use membound_analyze::across::fleet::finding::Options;
use membound_analyze::across::fleet::gather::{Table, gather};
use membound_analyze::across::fleet::screen;
use membound_analyze::across::verdict::diagnosis::{CauseKind, GainBasis};
use membound_analyze::of_record::report;
use membound_analyze::report::Report;
use membound_core::case::Case;
use membound_core::record::{Outcome, Record};
use membound_core::stats::family::{Sides, differences};
use membound_core::stats::quantiles::{median, quantile};
use membound_core::stats::states::{Better, Capability, Ends, States, Visit, states};

use crate::records::{self, GUESTS, Run, headlines};

/// Payload rates, sample by sample.
type Rates = Vec<f64>;

/// Six default runs of one guest: for each case, of each run, the visits.
fn guest() -> BTreeMap<Case, Vec<Vec<Rates>>> {
    let mut cases: BTreeMap<Case, Vec<Vec<Rates>>> = BTreeMap::new();
    for (run, recorded) in records::whole().iter().enumerate() {
        for (case, visits) in rates(recorded.record()) {
            cases.entry(case).or_insert_with(|| vec![Vec::new(); 6])[run] = visits;
        }
    }
    cases.retain(|_, runs| runs.iter().all(|run| !run.is_empty()));
    cases
}

/// A way to part visits into halves.
type Division = fn(&[Vec<Rates>]) -> [Vec<Rates>; 2];

/// How the visits of a case are divided: what the machine does for seconds or for minutes is then in both halves, or between them.
const DIVISIONS: [(&str, Division); 3] = [
    ("every other visit", |runs| {
        let all = runs.concat();
        [0, 1].map(|half| all.iter().skip(half).step_by(2).cloned().collect())
    }),
    ("every other run", |runs| [0, 1].map(|half| runs.iter().skip(half).step_by(2).flatten().cloned().collect())),
    ("the first three runs, the last three", |runs| [runs[..3].concat(), runs[3..].concat()]),
];

fn told(visits: &[Rates]) -> States {
    let visits: Vec<Visit<'_>> = visits.iter().map(|values| Visit { values, shares: &[] }).collect();
    states(&visits, Better::Higher).unwrap()
}

/// Whether the difference of two halves lies in the interval that follows from both errors, in logarithms (Zou and Donner, 2008).
fn agree(a: Capability, b: Capability) -> bool {
    let ln = |of: Capability| [of.value, of.low, of.high].map(f64::ln);
    let ([a, a_low, a_high], [b, b_low, b_high]) = (ln(a), ln(b));
    let off = b - a;
    -(a - a_low).hypot(b_high - b) <= off && off <= (a_high - a).hypot(b - b_low)
}

/// With two halves of real runs 93 to 97 of 100 intervals must hold; visits of other cases are of the same minutes, so the count is
/// less sure than its number says.
#[test]
fn intervals_hold_the_other_half() {
    let cases = guest();
    println!("{} cases; halves that agree within both intervals, %", cases.len());
    for (name, divide) in DIVISIONS {
        let halves = cases.values().map(|runs| divide(runs).map(|half| told(&half)));
        let is_told = |[a, b]: &[States; 2]| [a, b].iter().all(|half| half.capability.ends == Ends::Ci95);
        let (held, all): (Vec<_>, usize) = {
            let told: Vec<[States; 2]> = halves.filter(is_told).collect();
            (told.iter().filter(|[a, b]| agree(a.capability, b.capability)).copied().collect(), told.len())
        };
        let share = 100.0 * held.len() as f64 / all as f64;
        println!("{name}: {share:.1} of {all} (others have a range)");
        assert!(all > cases.len() / 3 && (93.0..=98.5).contains(&share), "{name}: {share} of {all}");
    }
}

/// Every other visit of each case, and the others, as records of their own: what each half says goes the whole way to a row.
fn halved(record: &Record) -> [Report; 2] {
    [0, 1].map(|half| {
        let mut seen: BTreeMap<&Case, usize> = BTreeMap::new();
        let mut measurements = Vec::new();
        for visit in &record.measurements {
            let number = seen.entry(&visit.case).or_insert(0);
            if *number % 2 == half {
                measurements.push(visit.clone());
            }
            *number += 1;
        }
        report(&Record { measurements, ..record.clone() })
    })
}

/// Headline intervals of one half of a run hold the other half's figure.
#[test]
fn headline_intervals_hold_the_other_half() {
    let mut counts = Counts::new();
    for run in ["zen4", "zen3"].into_iter().flat_map(headlines) {
        let [a, b] = halved(run.record());
        compare(&a, &b, &mut counts);
    }
    let (share, all) = told_of(&counts);
    assert!(all > 200 && (93.0..=98.0).contains(&share), "{share} of {all}");
}

/// All these runs reached memory, by sizes of which some were visited often and those between not at all; their hosts' states are not
/// what costs a triad most.
#[test]
fn each_recorded_run_names_the_write_allocate_first() {
    for guest in GUESTS {
        for (number, run) in headlines(guest).iter().enumerate() {
            let causes: Vec<CauseKind> = run.report().verdict.causes.iter().map(|cause| cause.cause).collect();
            assert_eq!(causes.first(), Some(&CauseKind::WriteAllocate), "{guest} {number}: {causes:?}");
        }
    }
}

/// Ten runs of one guest, taken for ten nodes: its host's states, of which each run met others, make no fleet of odd nodes.
#[test]
fn ten_runs_of_a_guest_are_no_ten_odd_nodes() {
    /// Seconds since 1970: after all of them.
    const LATER: u64 = 4_000_000_000;
    for guest in GUESTS {
        let folder = tempfile::tempdir().unwrap();
        let unpacked = |(number, run): (usize, &Run)| {
            let path = folder.path().join(format!("run-{number}.jsonl"));
            run.unpack(&path);
            path
        };
        let files: Vec<PathBuf> = headlines(guest).iter().enumerate().map(unpacked).collect();
        let fleet = gather(&files, 2, LATER, &Table::default()).fleet;
        let findings = screen(&fleet, None, None, Options::default()).findings;
        assert_eq!(fleet.nodes.len(), 10);
        assert!(findings.len() <= 3, "{guest}: {} of 10 stand out", findings.len());
    }
}

/// A gain is that of the two figures beside it, and what the verdict says that nt stores give back leads no further than to what
/// they reach.
#[test]
fn what_nt_stores_gain_is_the_ratio_of_what_is_shown() {
    let mut checked = 0;
    for report in GUESTS.into_iter().flat_map(headlines).map(Run::report) {
        let shown = |row: usize| report.rows[row].payload_bps.unwrap().capability.value;
        for pair in &report.write_allocate {
            let ratio = shown(pair.nt) / shown(pair.regular);
            assert!(
                (pair.gain[0] / ratio - 1.0).abs() < 1e-9 && pair.gain[1] <= ratio && ratio <= pair.gain[2],
                "{pair:?}"
            );
        }
        let gap = report.verdict.gap.as_ref().unwrap();
        let cause = report.verdict.causes.iter().find(|cause| cause.cause == CauseKind::WriteAllocate).unwrap();
        if cause.basis == GainBasis::Measured && gap.limit.contains("nt stores") {
            checked += 1;
            assert!(gap.reached_bps + cause.gives_back_bps.unwrap() <= 1.000_001 * gap.limit_bps, "{gap:?}: {cause:?}");
        }
    }
    assert!(checked > 15, "{checked}");
}

/// Those of one run hold the next run's figure, two minutes later: less often, since a host changes between runs in ways that no visit
/// of one of them met.
#[test]
fn headline_intervals_hold_the_next_run() {
    for guest in ["zen4", "emr"] {
        println!("{guest}");
        let mut counts = Counts::new();
        headlines(guest).windows(2).for_each(|pair| compare(pair[0].report(), pair[1].report(), &mut counts));
        let (share, all) = told_of(&counts);
        assert!(all > 150 && share >= 85.0, "{guest}: {share} of {all}");
    }
}

/// Ten runs of one machine make 45 pairs that do not differ. One run a side, of which five in a hundred may be told apart by error.
#[test]
fn runs_of_one_machine_are_seldom_told_apart() {
    let (mut alarms, mut pairs) = (0, 0);
    for guest in GUESTS {
        let runs: Vec<BTreeMap<Case, Vec<Rates>>> = headlines(guest).iter().map(|run| rates(run.record())).collect();
        let of_pair = |(a, b): (usize, usize)| {
            let both = runs[a].iter().filter_map(|(case, visits)| Some((case, visits, runs[b].get(case)?)));
            let families: Vec<Sides<'_>> = both.map(|(case, a, b)| sides(case, a, b)).collect();
            let found = differences(&families, Sides::clone).into_iter().flatten();
            found.filter_map(|found| found.test).any(|test| test.p_family < 0.05)
        };
        let of_guest: Vec<bool> = (0..10).flat_map(|a| (a + 1..10).map(move |b| (a, b))).map(of_pair).collect();
        let told_apart = of_guest.iter().filter(|is_alarm| **is_alarm).count();
        println!("{guest}: {told_apart} of {} pairs", of_guest.len());
        (alarms, pairs) = (alarms + told_apart, pairs + of_guest.len());
    }
    assert!(pairs == 135 && 20 * alarms <= pairs, "{alarms} of {pairs}");
}

/// Of each case the visits.
fn rates(record: &Record) -> BTreeMap<Case, Vec<Rates>> {
    let mut cases: BTreeMap<Case, Vec<Rates>> = BTreeMap::new();
    for visit in &record.measurements {
        let Outcome::Measured(measured) = &visit.outcome else { panic!("only measured visits are kept") };
        let bytes = (measured.volume.payload() * measured.repetitions) as f64;
        let rates = measured.samples.ticks.iter().map(|ticks| bytes / *ticks as f64).collect();
        cases.entry(visit.case.clone()).or_default().push(rates);
    }
    cases
}

fn sides<'a>(case: &Case, a: &'a [Rates], b: &'a [Rates]) -> Sides<'a> {
    let run = |visits: &'a [Rates]| vec![visits.iter().map(Cow::from).collect()];
    Sides { better: Better::Higher, group: case.threads(), a: run(a), b: run(b) }
}

/// Intervals that hold another figure, and all, by threads and whether memory is reached.
type Counts = BTreeMap<(usize, bool), [usize; 2]>;

fn compare(a: &Report, b: &Report, counts: &mut Counts) {
    for row in &a.rows {
        let Some(other) = b.rows.iter().find(|other| other.case == row.case) else { continue };
        let (Some(one), Some(two)) = (row.payload_bps, other.payload_bps) else { continue };
        let [one, two] = [one, two].map(|rate| rate.capability);
        if one.ends == Ends::Ci95 && two.ends == Ends::Ci95 {
            let count = counts.entry((row.case.threads(), row.case.working_set.0 > 64 << 20)).or_default();
            count[0] += usize::from(agree(one, two));
            count[1] += 1;
        }
    }
}

/// Prints them; the share of all in percent, and how many there are.
fn told_of(counts: &Counts) -> (f64, usize) {
    let percent = |held: usize, all: usize| 100.0 * held as f64 / all as f64;
    for ((threads, is_memory), [held, all]) in counts {
        let place = if *is_memory { "memory" } else { "caches" };
        println!("{place}, {threads} thread(s): {:.1} % of {all}", percent(*held, *all));
    }
    let [held, all] = counts.values().fold([0, 0], |sum, count| [sum[0] + count[0], sum[1] + count[1]]);
    println!("all: {:.1} % of {all}", percent(held, all));
    (percent(held, all), all)
}

/// An estimator of a half.
type Estimator = (&'static str, fn(&[Rates]) -> f64);

fn at(half: &[Rates], q: f64) -> f64 {
    let mut all = half.concat();
    all.sort_by(f64::total_cmp);
    quantile(&all, q)
}

const ESTIMATORS: [Estimator; 6] = [
    ("median", |half| at(half, 0.5)),
    ("mean", |half| half.iter().flatten().sum::<f64>() / half.iter().flatten().count() as f64),
    ("best sample", |half| at(half, 1.0)),
    ("90th percentile", |half| at(half, 0.9)),
    ("median within 10 % of the 90th percentile", |half| {
        let least = 0.9 * at(half, 0.9);
        median(half.iter().flatten().copied().filter(|rate| *rate >= least)).unwrap()
    }),
    ("capability", |half| told(half).capability.value),
];

/// Root mean square of the logarithms of the two halves' ratios, and their median, over cases.
#[test]
fn halves_agree_better_on_capability_than_on_the_median() {
    let cases = guest();
    println!(
        "rms (median), %, by which every other run differs from the others: caches of 1, of 2 threads, memory of 2"
    );
    let group = |case: &Case| (case.working_set.0 > 128 << 20, case.threads());
    let mut rms = Vec::new();
    for (name, estimate) in ESTIMATORS {
        print!("{name:42}");
        for wanted in [(false, 1), (false, 2), (true, 2)] {
            let ours = cases.iter().filter(|(case, _)| group(case) == wanted);
            let off: Vec<f64> = ours
                .map(|(_, runs)| {
                    let [a, b] = DIVISIONS[1].1(runs).map(|half| estimate(&half));
                    100.0 * (a / b).ln().abs()
                })
                .collect();
            let squares = (off.iter().map(|off| off * off).sum::<f64>() / off.len() as f64).sqrt();
            print!("  {squares:.1} ({:.1})", median(off).unwrap());
            rms.push((name, squares));
        }
        println!();
    }
    let of = |name: &str| rms.iter().filter(|(other, _)| *other == name).map(|(_, rms)| *rms).collect::<Vec<_>>();
    for (median, capability) in of("median").iter().zip(of("capability")) {
        assert!(capability < *median, "{capability} {median}");
    }
}
