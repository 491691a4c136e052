//! Messages between two processes against NetPIPE under the same Open MPI (`NPopenmpi`, Debian's package netpipe-openmpi): same
//! CPUs, same sizes, the same buffers for each message, in turns.
//!
//! `cargo bench --bench pingpong [-- --size 8,64KiB,1MiB --rounds N --seconds S]`
//!
//! Both sides send a message there and back and halve the time, both through `MPI_Send` and `MPI_Recv`. NetPIPE repeats a
//! message for about a quarter of a second, takes the mean, does so several times and prints the least of these means. So a
//! run's figure is the least mean of its visits on our side too, and visits are long (100 samples of a millisecond). Each
//! run is a new pair of processes. The times count as equal if the whole 95 % interval of their ratio lies within 5 %, as
//! better where it lies below.
//!
//! NetPIPE sends a message from where it received the last one, hence `--buffers in-place`. `--buffers same` (as IMB, a buffer
//! to send from and one to receive to) shows what that makes. The exit code is 2 where one of the two can't run, and does not depend on the ratio.

mod common;

use std::path::Path;
use std::process::Command;

use clap::Parser;
use common::{print_row, stop};
use membound_core::record::{Outcome, Record};
use membound_core::stats;
use membound_core::stats::compare;
use membound_core::units::{Bytes, significant};

#[derive(Parser)]
struct Options {
    /// Sizes of messages
    #[arg(long, value_delimiter = ',', default_value = "8,1KiB,16KiB,64KiB,256KiB,1MiB,4MiB")]
    sizes: Vec<Bytes>,
    /// Turns: ours and the peer's
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Our buffers
    #[arg(long, default_value = "in-place")]
    buffers: String,
    /// Seconds of one of our runs
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Times this close are called equal.
const EQUAL: f64 = 0.05;
const LAUNCHER: [&str; 6] = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "core", "-np", "2"];

fn main() {
    let options = Options::parse();
    let folder = std::env::temp_dir().join(format!("membound-pingpong-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap_or_else(|fault| stop(format!("{}: {fault}", folder.display())));
    println!("{}\n", membound_measure::machine::live().summary());
    let head: [(&dyn std::fmt::Display, isize); 7] = [
        (&"message", 8),
        (&"membound, us", 24),
        (&"NetPIPE, us", 24),
        (&"MB/s", 7),
        (&"ratio", 6),
        (&"95 % interval", 16),
        (&"", -6),
    ];
    print_row(&head);
    for size in &options.sizes {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let is_ours_first = fastrand::bool();
            for is_ours in [is_ours_first, !is_ours_first] {
                match is_ours {
                    true => ours.push(membound(*size, &options, &folder)),
                    false => theirs.push(netpipe(*size, &folder)),
                }
            }
        }
        compare(*size, &ours, &theirs);
    }
    let _ = std::fs::remove_dir_all(&folder);
}

fn launch(program: &str, arguments: &[&str]) {
    let output = Command::new(LAUNCHER[0]).args(&LAUNCHER[1..]).arg(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => stop(format!("{program}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(fault) => stop(format!("{}: {fault}; install openmpi-bin and netpipe-openmpi", LAUNCHER[0])),
    }
}

/// Microseconds of a message one way: the least mean of a visit.
fn membound(size: Bytes, options: &Options, folder: &Path) -> f64 {
    let file = folder.join("run.jsonl");
    let _ = std::fs::remove_file(&file);
    let (size, budget, path) = (size.0.to_string(), format!("{}s", options.seconds), file.to_string_lossy());
    let case = ["pingpong", "--size", &size, "--buffers", &options.buffers];
    let how = ["--samples", "100", "--budget", &budget, "--record", &path, "-q"];
    launch(env!("CARGO_BIN_EXE_membound"), &[&case[..], &how].concat());
    let record = Record::read(&file).unwrap_or_else(|fault| stop(fault));
    let hz = record.header.clock.hz.0;
    let mean = |outcome: &Outcome| match outcome {
        Outcome::Measured(measured) => {
            let ticks: u64 = measured.samples.ticks.iter().sum();
            let ways = measured.volume.units * measured.repetitions * measured.samples.ticks.len() as u64;
            ticks as f64 / hz / ways as f64 * 1e6
        }
        other => stop(format!("{other:?}")),
    };
    record.measurements.iter().map(|visit| mean(&visit.outcome)).fold(f64::INFINITY, f64::min)
}

/// The same from the peer's own file: bytes, Mbit/s, seconds.
fn netpipe(size: Bytes, folder: &Path) -> f64 {
    let file = folder.join("np.out");
    let (size, path) = (size.0.to_string(), file.to_string_lossy());
    launch("NPopenmpi", &["-l", &size, "-u", &size, "-p", "0", "-o", &path]);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|fault| stop(format!("{}: {fault}", file.display())));
    let seconds = text.split_whitespace().nth(2).and_then(|word| word.parse::<f64>().ok());
    seconds.unwrap_or_else(|| stop(format!("NPopenmpi wrote no time: {text:?}"))) * 1e6
}

fn compare(size: Bytes, ours: &[f64], theirs: &[f64]) {
    let [ratio, low, high] = compare::ratio(&[ours], &[theirs]);
    let summary = |figures: &[f64]| {
        let Some(summary) = stats::summarize(&[figures]) else { stop("no figures") };
        let [low, high] = summary.ci95.map(significant);
        (format!("{} [{low}, {high}]", significant(summary.median)), summary.median)
    };
    let ((ours, us), (theirs, _)) = (summary(ours), summary(theirs));
    let verdict = match (low, high) {
        (low, high) if low > 1.0 - EQUAL && high < 1.0 + EQUAL => "equal",
        (_, high) if high < 1.0 + EQUAL => "better",
        (low, _) if low > 1.0 + EQUAL => "worse",
        _ => "open",
    };
    print_row(&[
        (&size, 8),
        (&ours, 24),
        (&theirs, 24),
        (&significant(size.0 as f64 / us), 7),
        (&format!("{ratio:.3}"), 6),
        (&format!("[{low:.3}, {high:.3}]"), 16),
        (&verdict, -6),
    ]);
}
