//! Hand-overs against core-to-core-latency (crate of that name, by Nicolas Viennot): same pair of CPUs, in turns.
//!
//! `cargo bench --bench c2c [-- --cpus 0,1 --rounds N --peer PATH]`
//!
//! Both sides pass one word of one line by compare-and-exchange and halve the round trip. The peer prints the mean of its
//! samples, so a visit's figure is the mean on our side too: all time over all hand-overs. Visits are short (a
//! millisecond) and many, in random order within a round: what disturbs some of them does not move the median. The
//! latencies count as equal if the whole 95 % interval of their ratio lies within 5 %.
//!
//! The peer's binary is looked for on the PATH; where it is missing, `cargo install` puts it into a folder of the system's
//! temporary one. The exit code is 2 where that fails, and does not depend on the ratio.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Parser;
use common::{Bench, print_row, stop};
use membound_core::case::Case;
use membound_core::experiments::c2c;
use membound_core::machine::cpuset::CpuSet;
use membound_core::stats;
use membound_core::stats::compare;
use membound_core::work::c2c::Home;

#[derive(Parser)]
struct Options {
    /// The pair [default: the first two CPUs]
    #[arg(long, value_parser = CpuSet::parse)]
    cpus: Option<CpuSet>,
    /// Turns: ours and the peer's
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// The peer's binary
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Latencies this close are called equal.
const EQUAL: f64 = 0.05;
const PEER: &str = "core-to-core-latency";
/// Round trips in each of the peer's samples, and samples in each run: a fraction of a millisecond.
const ROUND_TRIPS: &str = "1000";
const SAMPLES: &str = "10";

fn main() {
    let options = Options::parse();
    let mut bench = Bench::new();
    let peer = options.peer.clone().or_else(on_path).unwrap_or_else(install);
    println!("{}\n", bench.machine.summary());
    let case = case(&bench, &options);
    let (mut ours, mut theirs): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let is_ours_first = fastrand::bool();
        for is_ours in [is_ours_first, !is_ours_first] {
            if is_ours {
                let visit = bench.visit(&case, Duration::from_millis(1)).unwrap_or_else(|reason| stop(reason));
                ours.push(visit.handover_ns());
            } else {
                theirs.push(run(&peer, &case));
            }
        }
    }
    compare(&case, &ours, &theirs);
}

fn case(bench: &Bench, options: &Options) -> Case {
    let wanted = |case: &Case| options.cpus.as_ref().is_none_or(|cpus| case.cpus.iter().all(|cpu| cpus.contains(*cpu)));
    let cases = c2c::handovers(&bench.frame, &[Home::First]).unwrap_or_else(|fault| stop(fault));
    let pair = cases.into_iter().find(|case| case.cpus.len() == 2 && wanted(case));
    pair.unwrap_or_else(|| stop("it needs two cores; name two CPUs that can be used with --cpus"))
}

fn on_path() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(PEER)).find(|path| path.is_file())
}

fn install() -> PathBuf {
    let root = std::env::temp_dir().join("membound-peers");
    let binary = root.join("bin").join(PEER);
    if !binary.is_file() {
        println!("installing {PEER} into {}", root.display());
        let status = Command::new("cargo").args(["install", PEER, "--quiet", "--root"]).arg(&root).status();
        if !status.is_ok_and(|status| status.success()) {
            stop(format!("{PEER} can't be installed (no registry?); install it elsewhere and name it with --peer"));
        }
    }
    binary
}

/// The peer's mean for the pair, in nanoseconds: the one number in its CSV.
fn run(peer: &PathBuf, case: &Case) -> f64 {
    let cpus: Vec<String> = case.cpus.iter().map(ToString::to_string).collect();
    let mut command = Command::new(peer);
    command.args([ROUND_TRIPS, SAMPLES, "--bench", "1", "--csv", "--cores", &cpus.join(",")]);
    let output = command.output().unwrap_or_else(|fault| stop(format!("{}: {fault}", peer.display())));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split([',', '\n']).filter_map(|cell| cell.trim().parse::<f64>().ok());
    numbers.next().unwrap_or_else(|| stop(format!("{PEER} printed no latency: {text:?}")))
}

fn compare(case: &Case, ours: &[f64], theirs: &[f64]) {
    let [ratio, low, high] = compare::ratio(&[ours], &[theirs]);
    let summary = |figures: &[f64]| {
        let Some(summary) = stats::summarize(&[figures]) else { stop("no figures") };
        let [low, high] = summary.ci95;
        format!("{:.1} [{low:.1}, {high:.1}], least {:.1}", summary.median, summary.least)
    };
    print_row(&[
        (&"pair", -8),
        (&"membound, ns", 32),
        (&PEER, 32),
        (&"ratio", 7),
        (&"95 % interval", 16),
        (&"equal", 5),
    ]);
    let is_equal = low > 1.0 - EQUAL && high < 1.0 + EQUAL;
    print_row(&[
        (&format!("{}, {}", case.cpus[0], case.cpus[1]), -8),
        (&summary(ours), 32),
        (&summary(theirs), 32),
        (&format!("{ratio:.4}"), 7),
        (&format!("[{low:.4}, {high:.4}]"), 16),
        (&if is_equal { "yes" } else { "no" }, 5),
    ]);
}
