//! Is a loop of a user's own as fast as the built-in kernel of the same tree?
//!
//! `cargo bench --bench own_loop [-- --rounds N --seconds S --seed N]`
//!
//! The built-in triad and `y[i] = x[i] + alpha*z[i]`, one thread, the widest width, regular and non-temporal stores, one
//! working set in each level. Both are visited in turns, in random order, in the same memory; what counts is the ratio of
//! their rates, round by round. Their machine code is the same, as `tests/kernels.rs` shows: so this tells what else may
//! differ, and how far a ratio of one may be from 1.

mod common;

use std::time::Duration;

use clap::Parser;
use common::{Bench, print_row, stop};
use membound_core::case::Case;
use membound_core::kernel::StoreKind;
use membound_core::kernel::catalog::Kernel;
use membound_core::stats;

#[derive(Parser)]
struct Options {
    /// Times that each case is visited
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Seconds of one visit
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Seed of the order of visits
    #[arg(long)]
    seed: Option<u64>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const OWN: &str = "y[i] = x[i] + alpha*z[i]";

/// The same case by both, and their rates round by round.
struct Pair {
    level: String,
    cases: [Case; 2],
    rates: [Vec<f64>; 2],
}

fn main() {
    let options = Options::parse();
    let mut random = fastrand::Rng::with_seed(options.seed.unwrap_or_else(common::fresh_seed));
    let mut bench = Bench::new();
    let own = Kernel::find(OWN).unwrap_or_else(|fault| stop(fault));
    let mut pairs = pairs(&bench, own);
    bench.expect(&pairs.iter().flat_map(|pair| pair.cases.clone()).collect::<Vec<_>>());
    for _ in 0..options.rounds {
        random.shuffle(&mut pairs);
        for pair in &mut pairs {
            let first = random.usize(..2);
            for which in [first, 1 - first] {
                match bench.visit(&pair.cases[which], Duration::from_secs_f64(options.seconds)) {
                    Ok(visit) => pair.rates[which].push(visit.payload_bps_median()),
                    Err(reason) => eprintln!("{}: {reason}", pair.cases[which]),
                }
            }
        }
    }
    pairs.sort_by(|a, b| a.cases[0].cmp(&b.cases[0]));
    println!("{}\n{OWN} against the built-in triad\n", bench.machine.summary());
    print_row(&[(&"level", -7), (&"store", -8), (&"triad GB/s", 11), (&"own GB/s", 11), (&"own / triad", 24)]);
    pairs.iter().for_each(show);
}

fn pairs(bench: &Bench, own: &Kernel) -> Vec<Pair> {
    let cpus = bench.frame.placement.first(1).unwrap_or_else(|fault| stop(fault));
    let Some(&width) = bench.frame.widths.last() else { stop("no width") };
    let of = |(level, size): (String, _)| {
        [StoreKind::Regular, StoreKind::Nt].map(|store| Pair {
            level: level.clone(),
            cases: ["triad", own.name].map(|kernel| bench.case(kernel, width, store, &cpus, size)),
            rates: [Vec::new(), Vec::new()],
        })
    };
    bench.levels("triad", 1).into_iter().flat_map(of).collect()
}

fn show(pair: &Pair) {
    let [Some(triad), Some(own)] = pair.rates.each_ref().map(|rates| stats::summarize(&[rates])) else { return };
    let ratios: Vec<f64> = pair.rates[1].iter().zip(&pair.rates[0]).map(|(own, triad)| own / triad).collect();
    let Some(ratio) = stats::summarize(&[&ratios]) else { return };
    let [low, high] = ratio.ci95;
    print_row(&[
        (&pair.level, -7),
        (&common::variant(&pair.cases[0]).store, -8),
        (&format!("{:.2}", triad.median / 1e9), 11),
        (&format!("{:.2}", own.median / 1e9), 11),
        (&format!("{:.3} [{low:.3}, {high:.3}]", ratio.median), 24),
    ]);
}
