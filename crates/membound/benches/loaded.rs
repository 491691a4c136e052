//! Latency without load, three ways: the ladder's chase, the same alone as `loaded` begins with, and the same beside idle
//! threads. Same code, same pages, same cycle, visits in turns and in random order within a turn, new pages every few
//! turns. What a load adds would be wrong from the start if these were not one quantity.
//!
//! `cargo bench --bench loaded [-- --rounds N --turns N --seconds S]`
//!
//! Each is compared with the ladder's. They count as equal if the 95 % interval of the ratio holds 1; beside them stands
//! the ratio of core clocks. The exit code does not depend on any of it.

mod common;

use std::time::Duration;

use clap::Parser;
use common::{Bench, Visit, print_row, stop};
use membound_core::case::Case;
use membound_core::experiments::latency::Detail;
use membound_core::experiments::{c2c, latency};
use membound_core::stats;
use membound_core::stats::compare;

#[derive(Parser)]
struct Options {
    /// Times that memory is made anew
    #[arg(long, default_value_t = 4)]
    rounds: u32,
    /// Turns between: the ladder's chase, alone, beside idle threads
    #[arg(long, default_value_t = 10)]
    turns: u32,
    /// Seconds of one visit
    #[arg(long, default_value_t = 0.05)]
    seconds: f64,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const SIDES: [&str; 3] = ["the ladder's chase", "loaded: alone", "loaded: beside idle threads"];

/// What one side's visits came to.
#[derive(Default)]
struct Side {
    ns: Vec<Vec<f64>>,
    clock_hz: Vec<Vec<f64>>,
}

fn main() {
    let options = Options::parse();
    let mut bench = Bench::new();
    println!("{}\n", bench.machine.summary());
    let cases = cases(&bench);
    bench.expect(&cases);
    let (mut sides, mut order) = ([Side::default(), Side::default(), Side::default()], [0, 1, 2]);
    for _ in 0..options.rounds {
        bench.begin_round();
        // What the first visit to new memory costs falls on none of them.
        for case in &cases {
            visit(&mut bench, case, 0.0);
        }
        for _ in 0..options.turns {
            fastrand::shuffle(&mut order);
            for side in order {
                let visit = visit(&mut bench, &cases[side], options.seconds);
                sides[side].ns.push(visit.access_ns());
                sides[side].clock_hz.push(visit.core_clock_hz());
            }
        }
    }
    print(&cases[0], &sides);
}

/// The ladder's case in memory, and the first two of `loaded`.
fn cases(bench: &Bench) -> Vec<Case> {
    let loaded = c2c::loaded(&bench.frame, &[], 1, None).unwrap_or_else(|fault| stop(fault));
    let ladder = loaded.first().and_then(Case::shares).unwrap_or_else(|| stop("latency under load has no chase"));
    let is_planned = latency::latency(&bench.frame, Detail::Full).is_ok_and(|cases| cases.contains(&ladder));
    if !is_planned {
        stop(format!("the ladder has no such case: {ladder}"));
    }
    std::iter::once(ladder).chain(loaded.into_iter().take(2)).collect()
}

fn visit(bench: &mut Bench, case: &Case, seconds: f64) -> Visit {
    bench.visit(case, Duration::from_secs_f64(seconds)).unwrap_or_else(|reason| stop(format!("{case}: {reason}")))
}

fn print(ladder: &Case, sides: &[Side; 3]) {
    println!("{ladder}\n");
    print_row(&[(&"", -27), (&"ns", 20), (&"ratio", 7), (&"95 % interval", 16), (&"equal", 5), (&"clock", 7)]);
    fn views(batches: &[Vec<f64>]) -> Vec<&[f64]> {
        batches.iter().map(Vec::as_slice).collect()
    }
    for (name, side) in SIDES.iter().zip(sides) {
        let Some(summary) = stats::summarize(&views(&side.ns)) else { stop("no figures") };
        let [low, high] = summary.ci95;
        let ns = format!("{:.1} [{low:.1}, {high:.1}]", summary.median);
        let [ratio, low, high] = compare::ratio(&views(&side.ns), &views(&sides[0].ns));
        let [clock, ..] = compare::ratio(&views(&side.clock_hz), &views(&sides[0].clock_hz));
        let is_equal = if low <= 1.0 && 1.0 <= high { "yes" } else { "no" };
        let interval = format!("[{low:.4}, {high:.4}]");
        let (ratio, clock) = (format!("{ratio:.4}"), format!("{clock:.4}"));
        print_row(&[(name, -27), (&ns, 20), (&ratio, 7), (&interval, 16), (&is_equal, 5), (&clock, 7)]);
    }
}
