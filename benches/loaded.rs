//! Latency beside idle threads against latency alone: the same chase, in turns, in random order within a turn. Threads that leave memory alone must not
//! change it, or what a load adds would be wrong from the start.
//!
//! `cargo bench --bench loaded [-- --rounds N --seconds S]`
//!
//! The latencies count as equal if the 95 % interval of their ratio holds 1. The exit code does not depend on that.

mod common;

use std::time::Duration;

use clap::Parser;
use common::{Bench, print_row, stop};
use membound::plan;
use membound::stats;

#[derive(Parser)]
struct Options {
    /// Turns: alone, beside idle threads, ...
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Seconds of one visit
    #[arg(long, default_value_t = 0.02)]
    seconds: f64,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    let mut bench = Bench::new();
    println!("{}\n", bench.machine.summary());
    let cases = plan::loaded(&bench.frame, &[], 1, None).unwrap_or_else(|fault| stop(fault));
    let mut figures: [Vec<Vec<f64>>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds {
        // The plan's first two: alone, and beside idle threads.
        let is_alone_first = fastrand::bool();
        for side in [usize::from(!is_alone_first), usize::from(is_alone_first)] {
            let case = &cases[side];
            let visit = bench.visit(case, Duration::from_secs_f64(options.seconds));
            figures[side].push(visit.unwrap_or_else(|reason| stop(format!("{case}: {reason}"))).load_ns());
        }
    }
    let [alone, idle] = figures.each_ref().map(|side| side.iter().map(Vec::as_slice).collect::<Vec<&[f64]>>());
    let [ratio, low, high] = stats::ratio(&idle, &alone);
    let median = |side: &[&[f64]]| stats::summarize(side).map_or(f64::NAN, |summary| summary.median);
    print_row(&[
        (&"alone, ns", 10),
        (&"beside idle threads", 19),
        (&"ratio", 7),
        (&"95 % interval", 16),
        (&"equal", 5),
    ]);
    print_row(&[
        (&format!("{:.1}", median(&alone)), 10),
        (&format!("{:.1}", median(&idle)), 19),
        (&format!("{ratio:.4}"), 7),
        (&format!("[{low:.4}, {high:.4}]"), 16),
        (&if low <= 1.0 && 1.0 <= high { "yes" } else { "no" }, 5),
    ]);
}
