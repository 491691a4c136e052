//! Write-back memory in the micro-VM against huge pages natively: what the guest costs where nothing but the guest
//! differs.
//!
//! Loads and stores in the first and second level, both in one run, in turns. The ratio is that of speeds, guest over
//! native, with its 95 % interval; it counts as equal if the whole interval lies within 3 %. What counts is bytes in a
//! core clock cycle, so a core that changes its clock does not blur it.

mod common;

use std::time::Duration;

use clap::Parser;
use common::{Bench, print_row, stop};
use membound_core::case::Case;
use membound_core::kernel::{StoreKind, Width};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::stats;
use membound_core::stats::compare;

#[derive(Parser)]
struct Options {
    /// Turns: guest, native, guest, native, ...
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Seconds of one visit
    #[arg(long, default_value_t = 0.02)]
    seconds: f64,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Speeds this close are called equal.
const EQUAL: f64 = 0.03;

fn main() {
    let options = Options::parse();
    let mut bench = Bench::new();
    println!("{}\n", bench.machine.summary());
    heading();
    let mut all_equal = true;
    for kernel in ["load", "store"] {
        for (level, size) in bench.levels(kernel, 1).into_iter().filter(|(level, _)| level == "L1" || level == "L2") {
            for width in widths(&bench) {
                let cpus = bench.frame.placement.first(1).unwrap_or_else(|fault| stop(fault));
                let native = bench.case(kernel, width, StoreKind::Regular, &cpus, size);
                all_equal &= compare(&mut bench, &level, &native, &options);
            }
        }
    }
    println!("\nall within {:.0} %: {}", EQUAL * 100.0, if all_equal { "yes" } else { "no" });
}

/// The widest width, and 256 bits.
fn widths(bench: &Bench) -> Vec<Width> {
    let widest = bench.frame.widths.last().copied();
    bench.frame.widths.iter().copied().filter(|&width| width == Width::W256 || Some(width) == widest).collect()
}

fn heading() {
    print_row(&[
        (&"kernel", -6),
        (&"level", -5),
        (&"width", -6),
        (&"set", -7),
        (&"guest", 8),
        (&"native", 8),
        (&"ratio", 7),
        (&"95 % interval", 16),
        (&"equal", 5),
    ]);
}

/// Prints one row. Returns whether both are equal.
fn compare(bench: &mut Bench, level: &str, native: &Case, options: &Options) -> bool {
    let guest = Case { memory: MemorySpec::of(MemoryKind::Wb), ..native.clone() };
    bench.expect(&[guest.clone(), native.clone()]);
    let [mut in_guest, mut natively]: [Vec<Vec<f64>>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds {
        // Where pages come to lie in the second level moves either side by 2 %: each round draws anew.
        bench.begin_round();
        for (case, figures) in [(&guest, &mut in_guest), (native, &mut natively)] {
            let visit = bench.visit(case, Duration::from_secs_f64(options.seconds));
            figures.push(visit.unwrap_or_else(|reason| stop(format!("{case}: {reason}"))).bytes_per_cycle());
        }
    }
    let [a, b] = [&in_guest, &natively].map(|figures| figures.iter().map(Vec::as_slice).collect::<Vec<&[f64]>>());
    let [ratio, low, high] = compare::ratio(&a, &b);
    let equal = low > 1.0 - EQUAL && high < 1.0 + EQUAL;
    let median = |batches: &[&[f64]]| stats::summarize(batches).map_or(f64::NAN, |summary| summary.median);
    print_row(&[
        (&common::variant(native).kernel, -6),
        (&level, -5),
        (&common::variant(native).width, -6),
        (&native.working_set, -7),
        (&format!("{:.2}", median(&a)), 8),
        (&format!("{:.2}", median(&b)), 8),
        (&format!("{ratio:.4}"), 7),
        (&format!("[{low:.4}, {high:.4}]"), 16),
        (&if equal { "yes" } else { "no" }, 5),
    ]);
    equal
}
