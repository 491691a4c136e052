//! How well two default runs agree: rows are matched, and their 95 % intervals should overlap.
//!
//! `cargo bench --bench agree`                           makes two runs in a row and compares them
//! `cargo bench --bench agree -- --budget 20s`           the same, with less time for each
//! `cargo bench --bench agree -- A.jsonl B.jsonl`        compares two records
//!
//! Where the medians do not differ, two 95 % intervals overlap in far more than 95 % of rows. Rows that do not overlap
//! are explained by what the tool itself says of them (its flags); those without a flag are listed: there the tool was
//! more certain than it should have been.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use common::{print_row, stop};
use membound::model::{self, Row};
use membound::record::Record;

#[derive(Parser)]
struct Options {
    /// Two records of one machine [default: two runs are made]
    records: Vec<PathBuf>,
    /// Time for each run that is made
    #[arg(long, default_value = "60s")]
    budget: String,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    let paths = match options.records.as_slice() {
        [] => ["first", "second"].map(|name| run(name, &options.budget)),
        [first, second] => [first.clone(), second.clone()],
        _ => stop("give two records, or none to make them"),
    };
    let [first, second] = paths.each_ref().map(|path| rows(path));
    println!("{}\n{}\n", paths[0].display(), paths[1].display());
    report(&pairs(&first, &second));
}

/// Makes a default run; returns its record.
fn run(name: &str, budget: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("agree-{}", std::process::id())).join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_membound"));
    let done = command.args(["--quiet", "--budget", budget, "--out"]).arg(&folder).output();
    match done {
        Ok(output) if output.status.success() => {}
        Ok(output) => eprintln!("the {name} run: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)),
        Err(fault) => stop(format!("cannot run membound: {fault}")),
    }
    let files = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let record = files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    record.unwrap_or_else(|| stop(format!("the {name} run left no record in {}", folder.display())))
}

fn rows(path: &Path) -> Vec<Row> {
    model::report(&Record::read(path).unwrap_or_else(|fault| stop(fault))).rows
}

/// What makes two rows the same case.
fn key(row: &Row) -> String {
    let (width, store, memory) = (row.width, row.store, row.memory.word());
    let loads = if row.load.word() == "regular" { "" } else { ", nt load" };
    let more = if row.misaligned_bytes > 0 { ", unaligned" } else { "" };
    let threads = row.threads;
    format!(
        "{} {width} {store}{loads}, {}, {memory}, {threads} threads, {:?}{more}",
        row.kernel, row.working_set_bytes, row.protocol
    )
    .to_lowercase()
}

/// The same case in both runs, measured.
struct Pair<'a> {
    key: String,
    first: &'a Row,
    second: &'a Row,
}

fn pairs<'a>(first: &'a [Row], second: &'a [Row]) -> Vec<Pair<'a>> {
    let measured = |row: &&Row| row.payload_bps.is_some() && row.quality.is_measured();
    let seconds: BTreeMap<String, &Row> = second.iter().filter(measured).map(|row| (key(row), row)).collect();
    let pair = |first: &'a Row| {
        let key = key(first);
        seconds.get(&key).map(|second| Pair { key, first, second })
    };
    first.iter().filter(measured).filter_map(pair).collect()
}

impl Pair<'_> {
    fn figures(&self) -> [[f64; 3]; 2] {
        let figure =
            |row: &Row| row.payload_bps.map_or([f64::NAN; 3], |rate| [rate.median, rate.ci95[0], rate.ci95[1]]);
        [figure(self.first), figure(self.second)]
    }

    fn overlaps(&self) -> bool {
        let [a, b] = self.figures();
        a[1] <= b[2] && b[1] <= a[2]
    }

    /// Second against first median, less one.
    fn change(&self) -> f64 {
        let [a, b] = self.figures();
        b[0] / a[0] - 1.0
    }

    /// What the tool says of either row; a core clock that differs between the runs explains a change as well.
    fn reasons(&self) -> Vec<String> {
        let mut reasons = [self.first.quality.flags.as_slice(), self.second.quality.flags.as_slice()].concat();
        if let (Some(a), Some(b)) = (self.first.core_clock_hz, self.second.core_clock_hz)
            && (a / b - 1.0).abs() > 0.01
        {
            reasons.push("another core clock".into());
        }
        reasons.sort_unstable();
        reasons.dedup();
        reasons
    }
}

fn report(pairs: &[Pair<'_>]) {
    if pairs.is_empty() {
        stop("the two records have no measured case in common; compare two runs of one machine and one budget");
    }
    let apart: Vec<&Pair<'_>> = pairs.iter().filter(|pair| !pair.overlaps()).collect();
    let overlapping = pairs.len() - apart.len();
    let percent = |n: usize| format!("{:.1} %", n as f64 / pairs.len() as f64 * 100.0);
    println!("{} rows in both; the intervals of {overlapping} overlap: {}", pairs.len(), percent(overlapping));
    let mut changes: Vec<f64> = pairs.iter().map(|pair| pair.change().abs()).collect();
    changes.sort_by(f64::total_cmp);
    let quantile = |q: f64| changes[((changes.len() - 1) as f64 * q) as usize] * 100.0;
    println!(
        "medians differ by {:.2} % (median), {:.2} % (90 % of rows), {:.2} % (most)",
        quantile(0.5),
        quantile(0.9),
        quantile(1.0)
    );
    let (explained, unexplained): (Vec<&Pair<'_>>, Vec<&Pair<'_>>) =
        apart.iter().partition(|pair| !pair.reasons().is_empty());
    count_reasons(&explained);
    list_unexplained(&unexplained);
}

fn count_reasons(explained: &[&Pair<'_>]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in explained.iter().flat_map(|pair| pair.reasons()) {
        *counts.entry(reason).or_insert(0) += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts: Vec<String> = counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    println!(
        "apart, with a reason: {} ({})",
        explained.len(),
        if counts.is_empty() { "-".into() } else { counts.join(", ") }
    );
}

fn list_unexplained(unexplained: &[&Pair<'_>]) {
    println!("apart, unexplained:   {}", unexplained.len());
    let mut sorted = unexplained.to_vec();
    sorted.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()));
    for pair in sorted {
        let [a, b] = pair.figures().map(|[_, low, high]| format!("[{:.2}, {:.2}]", low / 1e9, high / 1e9));
        let change = format!("{:+.1} %", pair.change() * 100.0);
        print_row(&[(&change, 8), (&a, 18), (&b, 18), (&"GB/s", -4), (&pair.key, -60)]);
    }
}
