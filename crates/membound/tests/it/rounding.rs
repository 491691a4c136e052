//! One sum in many ways: verdicts by hand from made-up records, and real sums by the machine code.

use crate::common::program::run;
use crate::common::schema::Validator;
use crate::common::simulated;
use anstream::adapter::strip_str;
use membound_analyze::experiments::rounding::rows::Cause;
use membound_analyze::of_record as model;
#[cfg(feature = "report")]
use membound_analyze::output::html;
use membound_analyze::output::{csv, json, terminal};
use membound_analyze::row::AnyRow;
use membound_core::case::{Case, Work};
use membound_core::experiments as plan;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::exact::Exact;
use membound_core::record::{Measured, Measurement, Outcome, Record, Results, Sample, Samples, Volume};
use membound_core::units::Bytes;
use membound_core::work::rounding::{Arithmetic, Data, SumOrder, Summation};
use membound_measure::executor::here::Here;
use membound_measure::memory::places::Places;
use membound_measure::schedule::{Executor, Quota};

fn cases(kernel: &str, size: Bytes) -> Vec<Case> {
    let machine = simulated::machine(1, false);
    plan::rounding::rounding(&simulated::frame(&machine), &[Kernel::find(kernel).unwrap()], Some(size), 7).unwrap()
}

fn way(case: &Case) -> &Summation {
    let Work::Rounding(way) = &case.work else { panic!("{case}") };
    way
}

/// Visits that came to `bits(way)` in so many ticks of a nanosecond for 8000 bytes.
fn record(cases: &[Case], bits: impl Fn(&Summation, u32) -> f64, ticks: impl Fn(&Summation) -> u64) -> Record {
    let mut visits = Vec::new();
    for (case, round) in cases.iter().flat_map(|case| (0..3).map(move |round| (case, round))) {
        let (way, mut samples) = (way(case), Samples::default());
        let mut results =
            Results { exact: 1f64.to_bits(), magnitude: way.data.condition().to_bits(), ..Results::default() };
        for _ in 0..3 {
            let ticks = ticks(way);
            samples.push(Sample { ticks, core_clock_ticks: 1, ..Sample::default() });
            let sum = bits(way, round);
            results.bits.push(sum.to_bits());
            results.ulps.push(membound_core::kernel::exact::ulps_apart(sum, 1.0));
        }
        samples.results = Some(results);
        let volume = Volume { units: 1000, loaded: 8000, flops: 1000, ..Volume::default() };
        let measured = Measured { volume, repetitions: 1, core_clock_links: 1, samples, ..Measured::default() };
        visits.push(Measurement::new(case.clone(), round, measured));
    }
    crate::common::reports::record(1e9, visits)
}

fn conditioned() -> Vec<Case> {
    cases("sum", Bytes(8000)).into_iter().filter(|case| way(case).data == Data::Condition1e4).collect()
}

/// Blocks alone change the result, by three steps; a single chain takes four times as long.
pub fn blocks_alone() -> Record {
    let bits = |way: &Summation, _| if way.blocks > 1 { 1.0 + 3.0 * f64::EPSILON } else { 1.0 };
    let ticks = |way: &Summation| if way.variant.unroll == 1 { 400_000 } else { 100_000 };
    record(&conditioned(), bits, ticks)
}

#[test]
fn a_verdict_by_hand() {
    let (cases, report) = (conditioned(), model::report(&blocks_alone()));
    let [verdict] = &report.rounding.verdicts[..] else { panic!("{:?}", report.rounding.verdicts) };
    assert_eq!((verdict.ways, verdict.results, verdict.ulps), (cases.len(), 2, [0, 3]));
    let changed: Vec<Cause> =
        verdict.changed_by.iter().filter(|(_, changed)| *changed).map(|(cause, _)| *cause).collect();
    assert_eq!(changed, [Cause::Threads]);
    let kept: Vec<Cause> =
        verdict.changed_by.iter().filter(|(_, changed)| !*changed).map(|(cause, _)| *cause).collect();
    let all = [Cause::Run, Cause::Width, Cause::Unroll, Cause::Order, Cause::Extended, Cause::RoundingTwice];
    assert_eq!(kept, all, "a sum has no product to fuse");
    let costs: Vec<(f64, f64)> = verdict.costs.iter().map(|cost| (cost.rate.median, cost.slower[0])).collect();
    // 8000 B in 400 us and in 100 us.
    assert_eq!(costs.len(), 3);
    for (found, expect) in costs.iter().zip([(20e6, 4.0), (80e6, 1.0), (80e6, 1.0)]) {
        assert!((found.0 / expect.0 - 1.0).abs() < 1e-9 && (found.1 / expect.1 - 1.0).abs() < 1e-9, "{found:?}");
    }
    let sentence = &report.findings[0];
    assert!(
        sentence.starts_with("sum, condition 10000: ") && sentence.contains("2 different results, 0 to 3 ULP"),
        "{sentence}"
    );
    assert!(sentence.contains("; changed by another number of threads; not changed by another run"), "{sentence}");
}

/// By hand: kept at 1 in 400 us, flushed at 3/4 in 100 us.
#[test]
fn what_flushing_takes_is_told() {
    let cases: Vec<Case> =
        cases("sum", Bytes(8000)).into_iter().filter(|case| way(case).data == Data::Subnormal).collect();
    let is_flushed = |way: &Summation| way.arithmetic == Arithmetic::FtzDaz;
    let bits = |way: &Summation, _| if is_flushed(way) { 0.75 } else { 1.0 };
    let ticks = |way: &Summation| if is_flushed(way) { 100_000 } else { 400_000 };
    let report = model::report(&record(&cases, bits, ticks));
    let [verdict] = &report.rounding.verdicts[..] else { panic!("{:?}", report.rounding.verdicts) };
    assert_eq!((verdict.results, verdict.costs.len()), (2, 0));
    let changed: Vec<Cause> =
        verdict.changed_by.iter().filter(|(_, changed)| *changed).map(|(cause, _)| *cause).collect();
    assert_eq!(changed, [Cause::Flushing]);
    let flushing = verdict.flushing.as_ref().unwrap();
    assert_eq!((flushing.lost, (flushing.faster[0] * 1e3).round()), (Some(0.25), 4000.0));
    let [said] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert!(
        said.contains("flushing them to zero (FTZ/DAZ) takes 25% off a sum; speed") && said.contains("4.0"),
        "{said}"
    );
    // A record from before there was another arithmetic has none in it.
    let usual = serde_json::to_value(way(&cases[0])).unwrap();
    assert!(usual.get("arithmetic").is_none());
    let read: Summation = serde_json::from_value(usual).unwrap();
    assert_eq!(read.arithmetic, Arithmetic::Ieee);
}

#[test]
fn a_sum_that_differs_between_runs_is_said_to() {
    let cases = &cases("sum", Bytes(8000))[..1];
    let report = model::report(&record(cases, |_, round| 1.0 + f64::from(round) * f64::EPSILON, |_| 100));
    assert!(!report.rounding.rows[0].is_repeatable);
    assert_eq!(report.rounding.verdicts[0].changed_by, [(Cause::Run, true)]);
    assert_eq!(report.rounding.rows[0].ulps, Some(2), "the farthest of all runs");
}

#[test]
fn views_show_every_way() {
    let all: Vec<Case> = ["sum", "dot", "triad"].into_iter().flat_map(|kernel| cases(kernel, Bytes(8000))).collect();
    let bits = |way: &Summation, _| 1.0 + f64::from(way.variant.unroll) * way.data.condition() * f64::EPSILON;
    let report = model::report(&record(&all, bits, |way| 1000 / u64::from(way.variant.unroll)));
    let text = strip_str(&terminal::answer(&report, &report.rounding)).to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.starts_with("- sum, condition 1.00e12: "), "{text}");
    #[cfg(feature = "report")]
    {
        let page = html::page(&report);
        assert!(page.contains("Rounding of one dot in many ways") && page.contains("0x"));
    }
    let rows: Vec<&dyn AnyRow> = report.any_rows().collect();
    assert_eq!(rows.len(), all.len());
    assert!(json::rows(&rows).contains("\"metric\":\"rounding\"") && csv::rows(&rows).contains("is_repeatable"));
}

/// The machine code itself: uniform numbers, where nothing cancels, stay within the bound of every order of summation; a
/// single chain gives what plain Rust gives; and every way repeats itself.
#[test]
fn real_sums_stay_within_their_bounds() {
    let mut cases = cases("sum", Bytes(80_000));
    cases.extend(self::cases("dot", Bytes(80_000)));
    cases.extend(self::cases("triad", Bytes(80_000)));
    let cpu = membound_measure::os::thread::current_cpu().unwrap();
    cases.iter_mut().for_each(|case| case.cpus = vec![cpu]);
    let mut here = Here::new(&cases, Places::default(), false).unwrap();
    let quota = Quota { least_samples: 2, most_samples: 2, time: std::time::Duration::ZERO, interrupted: &|| false };
    let mut measured = 0;
    for case in &cases {
        let visit = match here.visit(case, &quota) {
            Outcome::Measured(visit) => visit,
            Outcome::Unavailable { .. } => continue,
            fault => panic!("{case}: {fault:?}"),
        };
        measured += 1;
        let results = visit.samples.results.clone().unwrap();
        assert_eq!(results.bits[0], results.bits[1], "{case}");
        let (way, elements) = (way(case), visit.volume.units as f64);
        let [found, exact, magnitude] = [results.bits[0], results.exact, results.magnitude].map(f64::from_bits);
        match way.variant.kernel.as_str() {
            // Half of the numbers lie below h = 2^-1022, evenly up to 2 h, and count for nothing: a quarter of the sum. Products
            // that are rounded apart are flushed too, those below h by factors f from 0.5 to 1.5: of h in all, h / (4 f) are lost
            // where f < 1, else f h / 4, on average (ln 2 + 5/8) h / 4.
            "sum" | "dot" if way.arithmetic == Arithmetic::FtzDaz => {
                let is_apart = way.variant.kernel == "dot" && !way.fused;
                let lost = if is_apart { (2f64.ln() + 0.625) / 4.0 } else { 0.25 };
                assert!((1.0 - found / exact - lost).abs() < 0.02, "{case}: {found:e} of {exact:e}");
            }
            "triad" if way.data == Data::Subnormal => {
                let is_lost = way.arithmetic == Arithmetic::FtzDaz;
                // Below 2^-1022 a step is 2^-1074, and no product is off by more than one.
                assert!(
                    (results.ulps[0] > 1 << 40) == is_lost && (is_lost || results.ulps[0] <= 1),
                    "{case}: {results:?}"
                );
            }
            // A chain of additions, of which each is rounded once to 64 bits, and the last to a double:
            // |error| <= n 2^-64 sum of magnitudes + half a step.
            "sum" | "dot" if way.arithmetic == Arithmetic::X87 => {
                let bound = 2.0 * (elements + 1.0) * magnitude * 2f64.powi(-64) + exact.abs() * 2f64.powi(-52);
                assert!((found - exact).abs() <= bound, "{case}: {found} {exact}");
            }
            // a = b + s c is one rounding if fused, two if not: then up to half a step of the product more. The x87's first one
            // is of 64 bits.
            "triad" if way.fused => assert_eq!(results.ulps[0], 0, "{case}"),
            "triad" if way.arithmetic == Arithmetic::X87 => {
                assert!(results.ulps[0] <= 1 || way.data.condition() > 1e3, "{case}: {results:?}");
            }
            "triad" => assert!(results.ulps[0] > 0 || way.data == Data::Uniform, "{case}"),
            // |error| <= (n + 1) u sum of magnitudes, u = 2^-53 (Higham, Accuracy and Stability, section 4.2).
            _ => assert!(
                (found - exact).abs() <= (elements + 1.0) * magnitude * 2f64.powi(-53),
                "{case}: {found} {exact}"
            ),
        }
    }
    assert!(measured >= 20, "{measured}");
    // On x86 each of the unusual ways is there.
    #[cfg(target_arch = "x86_64")]
    for arithmetic in Arithmetic::ALL {
        let own = cases.iter().filter(|case| way(case).arithmetic == *arithmetic && !way(case).fused);
        let visits: Vec<Outcome> = own.map(|case| here.visit(case, &quota)).collect();
        assert!(visits.iter().any(|visit| matches!(visit, Outcome::Measured(_))), "{arithmetic}: {:?}", visits.first());
    }
}

/// Unlike the sum in doubles, the x87's holds small summands beside a large one: real machine code, and more exact by far.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_x87_is_more_exact_where_much_cancels() {
    let cpu = membound_measure::os::thread::current_cpu().unwrap();
    let is_asked = |case: &Case| {
        let Summation { data, variant, order, blocks, .. } = way(case);
        (*data, variant.width, variant.unroll, *order, *blocks)
            == (Data::Condition1e8, membound_core::kernel::Width::Scalar, 1, SumOrder::Forward, 1)
    };
    let mut cases: Vec<Case> = cases("sum", Bytes(800_000)).into_iter().filter(is_asked).collect();
    cases.iter_mut().for_each(|case| case.cpus = vec![cpu]);
    let mut here = Here::new(&cases, Places::default(), false).unwrap();
    let quota = Quota { least_samples: 1, most_samples: 1, time: std::time::Duration::ZERO, interrupted: &|| false };
    let mut ulps = std::collections::BTreeMap::new();
    for case in &cases {
        let outcome = here.visit(case, &quota);
        let Outcome::Measured(visit) = outcome else { panic!("{case}: {outcome:?}") };
        ulps.insert(way(case).arithmetic, visit.samples.results.unwrap().ulps[0]);
    }
    // 64 bits against 53: an error some 2^11 times smaller.
    assert!(ulps[&Arithmetic::X87] * 100 < ulps[&Arithmetic::Ieee], "{ulps:?}");
}

/// A pairwise sum of numbers that do not cancel errs less than a single chain of additions.
#[test]
fn the_plan_has_every_order() {
    let cases = cases("sum", Bytes(8000));
    let orders: std::collections::BTreeSet<SumOrder> = cases.iter().map(|case| way(case).order).collect();
    assert_eq!(orders.len(), SumOrder::ALL.len());
    assert!(cases.iter().all(|case| !way(case).fused), "a sum has no product");
    let fused: Vec<bool> = self::cases("dot", Bytes(8000)).iter().map(|case| way(case).fused).collect();
    assert!(fused.contains(&true) && fused.contains(&false));
    let mut exact = Exact::default();
    [0.1; 10].iter().for_each(|x| exact.add(*x));
    assert_eq!(exact.value(), 1.0, "ten times the double nearest to 0.1, rounded once");
}

#[test]
fn the_command_adds_up_for_real() {
    let out = run(&["rounding", "--kernel", "sum", "--size", "64KiB", "--budget", "3s", "--quiet", "--format", "json"]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).unwrap();
    let schema = serde_json::to_value(schemars::schema_for!(dyn AnyRow)).unwrap();
    let validator = Validator::of(&schema).unwrap();
    assert!(rows.iter().all(|row| validator.is_valid(row)) && rows.iter().any(|row| row["outcome"] == "measured"));
    let wrong = run(&["rounding", "--kernel", "copy"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("use one of: sum, dot, triad"));
}
