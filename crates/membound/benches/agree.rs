//! How well two default runs agree: rows are matched, and their figures should be the same within 3 %.
//!
//! `cargo bench --bench agree`                           makes two runs in a row and compares them
//! `cargo bench --bench agree -- --budget 20s`           the same, with less time for each
//! `cargo bench --bench agree -- A.jsonl B.jsonl`        compares two records
//!
//! A row agrees if its two figures lie within 3 % of each other, however wide their intervals are. Rows that do not agree
//! although both intervals promised it are those where the tool was more certain than it should have been: those without a
//! flag are listed. Rows that have a range, and no interval, are counted apart.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use common::{print_row, stop};
use membound_analyze::experiments::bandwidth::rows::BandwidthRow;
use membound_analyze::of_record as model;
use membound_core::record::Record;
use membound_core::stats::states::Ends;

/// Figures that differ by no more agree.
const AGREEMENT: f64 = 0.03;

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

fn rows(path: &Path) -> Vec<BandwidthRow> {
    model::report(&Record::read(path).unwrap_or_else(|fault| stop(fault))).rows
}

/// What makes two rows the same case.
fn key(row: &BandwidthRow) -> String {
    let (width, store, memory) = (row.width(), row.store(), row.case.memory.kind.word());
    let loads = if row.load().word() == "regular" { "" } else { ", nt load" };
    let more = if row.case.misaligned_bytes > 0 { ", unaligned" } else { "" };
    let threads = row.threads();
    format!(
        "{} {width} {store}{loads}, {}, {memory}, {threads} threads, {:?}{more}",
        row.kernel(),
        row.case.working_set,
        row.case.protocol
    )
    .to_lowercase()
}

/// The same case in both runs, measured.
struct Pair<'a> {
    key: String,
    first: &'a BandwidthRow,
    second: &'a BandwidthRow,
}

fn pairs<'a>(first: &'a [BandwidthRow], second: &'a [BandwidthRow]) -> Vec<Pair<'a>> {
    let measured = |row: &&BandwidthRow| row.payload_bps.is_some() && row.quality.is_measured();
    let seconds: BTreeMap<String, &BandwidthRow> = second.iter().filter(measured).map(|row| (key(row), row)).collect();
    let pair = |first: &'a BandwidthRow| {
        let key = key(first);
        seconds.get(&key).map(|second| Pair { key, first, second })
    };
    first.iter().filter(measured).filter_map(pair).collect()
}

impl Pair<'_> {
    fn figures(&self) -> [[f64; 3]; 2] {
        let figure = |row: &BandwidthRow| row.payload_bps.map_or([f64::NAN; 3], |rate| rate.interval());
        [figure(self.first), figure(self.second)]
    }

    fn agrees(&self) -> bool {
        self.change().abs() <= AGREEMENT
    }

    /// Whether an interval stands beside both figures.
    fn is_sure(&self) -> bool {
        [self.first, self.second]
            .iter()
            .all(|row| row.payload_bps.is_some_and(|rate| rate.capability.ends == Ends::Ci95))
    }

    /// Whether both intervals hold one value.
    fn overlaps(&self) -> bool {
        let [a, b] = self.figures();
        a[1] <= b[2] && b[1] <= a[2]
    }

    /// Second against first figure, less one.
    fn change(&self) -> f64 {
        let [a, b] = self.figures();
        b[0] / a[0] - 1.0
    }

    /// What the tool says of either row; a core clock that differs between the runs explains a change as well.
    fn reasons(&self) -> Vec<String> {
        let flags = self.first.quality.flags.iter().chain(&self.second.quality.flags);
        let mut reasons: Vec<String> = flags.map(ToString::to_string).collect();
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
    let percent = |n: usize, of: usize| format!("{:.1} %", n as f64 / of.max(1) as f64 * 100.0);
    let agreeing = pairs.iter().filter(|pair| pair.agrees()).count();
    println!("{} rows in both; {agreeing} agree within 3 %: {}", pairs.len(), percent(agreeing, pairs.len()));
    let sure: Vec<&Pair<'_>> = pairs.iter().filter(|pair| pair.is_sure()).collect();
    let agreeing = sure.iter().filter(|pair| pair.agrees()).count();
    println!("{} of them with an interval; {agreeing} agree: {}", sure.len(), percent(agreeing, sure.len()));
    let apart: Vec<&Pair<'_>> = sure.into_iter().filter(|pair| !pair.agrees() && !pair.overlaps()).collect();
    let mut changes: Vec<f64> = pairs.iter().map(|pair| pair.change().abs()).collect();
    changes.sort_by(f64::total_cmp);
    let quantile = |q: f64| changes[((changes.len() - 1) as f64 * q) as usize] * 100.0;
    println!(
        "figures differ by {:.2} % (median), {:.2} % (90 % of rows), {:.2} % (most)",
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
