//! Bandwidth over threads, and STREAM's table.

use membound_core::in_order::{InOrder, each_once, grouped};
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiments::bandwidth::rows::{BandwidthRow, main_width};
use crate::experiments::bandwidth::stores::usable;
use crate::section::Section;
use crate::wording;
use membound_core::case::Protocol;
use membound_core::kernel::{Element, LoadKind, StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::nature::{NodeKind, NodeNature};
use membound_core::memory::MemorySpec;
use membound_core::record::Record;
use membound_core::units::{Bytes, BytesPerSecond, significant};

/// Bandwidth over threads for one kernel at one level.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Scaling {
    /// The kernel variant in words.
    pub what: String,
    /// The level.
    pub level: String,
    /// Rows' indices, by rising thread count.
    pub rows: Vec<usize>,
}

/// STREAM's table of one memory.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StreamTable {
    /// `STREAM` where every rule is met, else `STREAM-style`.
    pub title: String,
    /// Kind of memory, place and what that is, such as `thp on node1 (MCDRAM)`.
    pub memory: String,
    /// Rules that are not met, in words.
    pub unmet: Vec<String>,
    /// Kernels that are missing, with the reason where there is one.
    pub missing: Vec<String>,
    /// Elements of each array.
    pub array_elements: u64,
    /// Threads.
    pub threads: usize,
    /// Function, best rate MB/s, average, minimum and maximum time in seconds.
    pub lines: Vec<StreamLine>,
    /// The validation line.
    pub validation: String,
    /// Width of its accesses.
    #[serde(skip)]
    pub width: Width,
    /// The best rate of Triad, bytes a second, of runs that came out right.
    #[serde(skip)]
    pub triad_bps: Option<f64>,
}

/// One line of STREAM's table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StreamLine {
    /// `Copy`, `Scale`, `Add`, `Triad`.
    pub function: String,
    /// Store kind and width.
    pub variant: String,
    /// Best rate in 1e6 bytes a second.
    pub best_mbps: f64,
    /// Mean time of a pass, without the first.
    pub avg_s: f64,
    /// Least time.
    pub min_s: f64,
    /// Greatest time.
    pub max_s: f64,
}

/// Scaling curves in memory: one for each variant that was measured with at least two thread counts.
pub(crate) fn scaling(rows: &[BandwidthRow]) -> Vec<Scaling> {
    let is_ours = |index: &usize| {
        let row = &rows[*index];
        row.level.as_deref() == Some("memory") && usable(row)
    };
    let alike = grouped((0..rows.len()).filter(is_ours), |index| rows[*index].variant().to_string());
    let curve = |(what, rows)| Scaling { what, level: "memory".into(), rows };
    let mut curves: Vec<Scaling> = alike.into_iter().map(curve).collect();
    for curve in &mut curves {
        // Of several working sets with the same threads the one that stands for memory elsewhere, too: visited often, then the largest.
        let place = |row: &BandwidthRow| (row.quality.is_of_headline(), row.case.working_set);
        curve.rows.order_by_key(|&i| (rows[i].threads(), std::cmp::Reverse(place(&rows[i]))));
        curve.rows.dedup_by_key(|i| rows[*i].threads());
    }
    curves.retain(|curve| curve.rows.len() > 1);
    let most = curves.iter().map(|curve| curve.rows.len()).max().unwrap_or(0);
    // Where a run drew real curves, pairs that other parts of the plan happen to give are left out.
    curves.retain(|curve| curve.rows.len() == most && is_main(&rows[curve.rows[0]]));
    // The main width stands for all widths of a kernel.
    let main = main_width(rows);
    let variant = |curve: &Scaling| {
        let row = &rows[curve.rows[0]];
        (row.kernel(), Some(row.width()) == main, row.width())
    };
    curves.order_by_key(|curve| std::cmp::Reverse(variant(curve)));
    curves.dedup_by_key(|curve| variant(curve).0);
    curves.reverse();
    curves
}

/// The variants that a default run scales, at the width it uses for them or any other.
fn is_main(row: &BandwidthRow) -> bool {
    let ways = [("load", StoreKind::Regular), ("copy", StoreKind::Nt), ("triad", StoreKind::Regular)];
    ways.contains(&(row.kernel(), row.store())) && row.load() == LoadKind::Regular
}

/// STREAM's functions in its own order.
const FUNCTIONS: [(&str, &str); 4] = [("copy", "Copy"), ("scale", "Scale"), ("add", "Add"), ("triad", "Triad")];

/// STREAM's tables: one for each memory, thread count, size and width that its kernels were run with.
pub(crate) fn stream_tables(rows: &[BandwidthRow], record: &Record) -> Vec<StreamTable> {
    let mut groups: BTreeMap<(MemorySpec, usize, Bytes, Width), Vec<&BandwidthRow>> = BTreeMap::new();
    for run in rows.iter().filter(|row| row.case.protocol == Protocol::Stream && row.is_plain()) {
        groups.entry((run.case.memory, run.threads(), array(run), run.width())).or_default().push(run);
    }
    groups.into_values().map(|runs| table(&runs, record)).collect()
}

/// Bytes of each array. Working sets of two arrays and of three are rounded alike.
fn array(run: &BandwidthRow) -> Bytes {
    let streams = run.variant().row().map_or(1, |kernel| kernel.formula().streams.len() as u64);
    Bytes(run.case.working_set.0 / streams)
}

fn table(runs: &[&BandwidthRow], record: &Record) -> StreamTable {
    let stores: BTreeSet<StoreKind> = runs.iter().map(|run| run.store()).collect();
    let (mut lines, mut missing) = (Vec::new(), Vec::new());
    for &store in &stores {
        let (mut names, mut why) = (Vec::new(), None);
        for (kernel, function) in FUNCTIONS {
            let run = runs.iter().find(|run| run.kernel() == kernel && run.store() == store);
            match run.filter(|run| !run.seconds.is_empty()) {
                Some(run) => lines.push(line(function, run)),
                None => {
                    names.push(function);
                    why = why.or_else(|| run?.quality.reason.clone());
                }
            }
        }
        if !names.is_empty() {
            let why = why.map_or(String::new(), |why| format!(" ({why})"));
            missing.push(format!("not measured with {store} stores: {}{why}", names.join(", ")));
        }
    }
    let array = array(runs[0]);
    let unmet = unmet_rules(array, runs, record);
    let wrong = runs.iter().find(|run| !run.quality.is_measured() && !run.seconds.is_empty());
    let reason = |run: &BandwidthRow| run.quality.reason.clone().unwrap_or_else(|| run.quality.outcome.to_string());
    StreamTable {
        title: if unmet.is_empty() && missing.is_empty() && wrong.is_none() { "STREAM" } else { "STREAM-style" }.into(),
        memory: memory_words(runs[0], &record.header.machine),
        unmet,
        array_elements: array.0 / Element::Double.bytes(),
        threads: runs[0].threads(),
        lines,
        validation: match wrong {
            Some(run) => format!("Solution does not validate: {}", reason(run)),
            None if missing.is_empty() => {
                "Solution Validates: all elements of all three arrays equal the naive loop's".into()
            }
            None => "Solution not validated: that takes all four kernels".into(),
        },
        missing,
        width: runs[0].width(),
        triad_bps: triad_bps(runs),
    }
}

fn triad_bps(runs: &[&BandwidthRow]) -> Option<f64> {
    let holds = |run: &&&BandwidthRow| run.kernel() == "triad" && run.quality.is_measured() && !run.seconds.is_empty();
    runs.iter().filter(holds).map(|run| best_bps(run)).reduce(f64::max)
}

/// `thp on node1 (MCDRAM)`: kind, place, and what kinds of memory its nodes are.
fn memory_words(run: &BandwidthRow, machine: &Machine) -> String {
    let MemorySpec { kind, policy } = run.case.memory;
    let nodes = run.nodes();
    let is_ours = |nature: &NodeNature| nodes.contains(nature.node);
    let kinds: BTreeSet<NodeKind> = machine.natures().into_iter().filter(is_ours).map(|nature| nature.kind).collect();
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
    let place = if policy.is_first_touch() { ", first touch".into() } else { format!(" on {policy}") };
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    format!("{kind}{place}{kinds}")
}

fn least_s(run: &BandwidthRow) -> f64 {
    run.seconds.iter().copied().fold(f64::INFINITY, f64::min)
}

fn best_bps(run: &BandwidthRow) -> f64 {
    run.bytes as f64 / least_s(run)
}

fn line(function: &str, run: &BandwidthRow) -> StreamLine {
    let max_s = run.seconds.iter().copied().fold(0.0, f64::max);
    StreamLine {
        function: function.into(),
        variant: format!("{} {}", run.width(), run.store()),
        best_mbps: best_bps(run) / 1e6,
        avg_s: run.seconds.iter().sum::<f64>() / run.seconds.len() as f64,
        min_s: least_s(run),
        max_s,
    }
}

/// STREAM's run rules: arrays of four times the last-level caches, ten passes of which the first does not count, a
/// clock fine enough for each pass, the four kernels in turn over the same arrays. Source: the comments of stream.c.
fn unmet_rules(array: Bytes, runs: &[&BandwidthRow], record: &Record) -> Vec<String> {
    let mut unmet =
        vec!["all passes of a kernel follow each other; stream.c runs the four kernels in turn".to_string()];
    if runs.iter().any(|run| run.threads() > 1) {
        unmet.push("each thread has its part of an array to itself; stream.c divides one array".into());
    }
    let machine = &record.header.machine;
    let cpus = runs[0].case.cpus.iter().copied().collect();
    match machine.last_level_bytes(&cpus) {
        Some(cache) if array.0 < cache.0.saturating_mul(4) => {
            unmet.push(format!("arrays of {array} are less than four times the caches of {cache}"));
        }
        Some(_) => {}
        None => unmet.push("the last-level cache is unknown, so arrays can't be held against it".into()),
    }
    if runs.iter().any(|r| r.seconds.len() < 9) {
        unmet.push("fewer than nine passes counted".into());
    }
    let tick = 1.0 / record.header.clock.hz.0;
    if runs.iter().any(|r| r.seconds.iter().any(|s| *s < 20.0 * tick)) {
        unmet.push("a pass lasts less than 20 ticks of the clock".into());
    }
    unmet
}

impl StreamTable {
    fn head(&self) -> String {
        let StreamTable { memory, array_elements, threads, .. } = self;
        format!("{memory}: arrays of {array_elements} elements, {}", wording::threads(*threads))
    }

    /// In STREAM's own format, to the digit: such tables are compared by eye and read by scripts. The variant stands at the
    /// end of each line. A pass of less than 0.1 ms is told in whole nanoseconds, in the same columns.
    fn verbatim(&self) -> Vec<String> {
        let rule = "-".repeat(61);
        let head = "Function    Best Rate MB/s  Avg time     Min time     Max time".to_string();
        let line = |line: &StreamLine| {
            let StreamLine { function, variant, best_mbps, avg_s, min_s, max_s } = line;
            let name = format!("{function}:");
            let digits = if *min_s < 1e-4 { 9 } else { 6 };
            format!("{name:<11}{best_mbps:12.1}  {avg_s:11.digits$}  {min_s:11.digits$}  {max_s:11.digits$}  {variant}")
        };
        let ends = [rule.clone(), self.validation.clone(), rule.clone()];
        [rule, head].into_iter().chain(self.lines.iter().map(line)).chain(ends).collect()
    }
}

/// Which memory is how much faster, where several were measured alike: with the most threads, of those with the largest arrays.
pub(crate) fn sentence(tables: &[StreamTable]) -> Option<String> {
    let triads = tables.iter().filter_map(|table| Some((table.triad_bps?, table)));
    let alike = grouped(triads, |(_, table)| (table.threads, table.array_elements, table.width));
    let several = alike.into_iter().filter(|(_, triads)| triads.len() > 1);
    let ((threads, ..), mut triads) = several.max_by_key(|(place, _)| *place)?;
    triads.order_by(|a, b| b.0.total_cmp(&a.0));
    let ((first, fastest), (last, slowest)) = (triads.first()?, triads.last()?);
    (fastest.memory != slowest.memory).then(|| {
        let (fast, slow) = (BytesPerSecond(*first), BytesPerSecond(*last));
        let (threads, times) = (wording::threads(threads), significant(first / last));
        let (fastest, slowest) = (&fastest.memory, &slowest.memory);
        format!("STREAM Triad, {threads}: {fast} from {fastest}, {slow} from {slowest}: {times} times.")
    })
}

/// The tables, one below the other, each with its head where there are several.
pub(crate) fn section(tables: &[StreamTable]) -> Section {
    let block = |table: &StreamTable| match tables {
        [_] => table.verbatim(),
        _ => [vec![table.head()], table.verbatim(), vec![String::new()]].concat(),
    };
    let notes = |table: &StreamTable| {
        let unmet = table.unmet.iter().map(|rule| format!("not met: {rule}"));
        let missing = table.missing.iter().map(|what| match tables {
            [_] => what.clone(),
            _ => format!("{}: {what}", table.memory),
        });
        unmet.chain(missing).collect::<Vec<_>>()
    };
    Section {
        id: "stream",
        title: "STREAM table".into(),
        about: match tables {
            [only] => format!("{}: {}.", only.title, only.head()),
            _ => "A table for each memory, number of threads, size and width.".into(),
        },
        sentences: sentence(tables).into_iter().collect(),
        verbatim: tables.iter().flat_map(block).collect(),
        notes: each_once(tables.iter().flat_map(notes)),
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::Status;
    use membound_core::case::{Case, steady};
    use membound_core::memory::MemoryKind;

    fn table(memory: &str, threads: usize, gbps: f64) -> StreamTable {
        StreamTable {
            title: "STREAM".into(),
            memory: memory.into(),
            unmet: Vec::new(),
            missing: Vec::new(),
            array_elements: 1 << 27,
            threads,
            lines: Vec::new(),
            validation: String::new(),
            width: Width::W512,
            triad_bps: Some(gbps * 1e9),
        }
    }

    #[test]
    fn memories_are_compared_with_as_many_threads() {
        let alone = [table("4k", 1, 12.0), table("thp", 64, 300.0)];
        assert_eq!(sentence(&alone), None);
        let all = [table("4k", 1, 12.0), table("4k", 64, 240.0), table("thp", 1, 13.0), table("thp", 64, 300.0)];
        let said = sentence(&all).unwrap();
        assert_eq!(said, "STREAM Triad, 64 threads: 300 GB/s from thp, 240 GB/s from 4k: 1.25 times.");
        let larger = StreamTable { array_elements: 1 << 28, ..table("4k", 64, 200.0) };
        assert_eq!(sentence(&[table("thp", 64, 300.0), larger]), None);
    }

    #[test]
    fn a_triad_that_does_not_validate_is_of_no_memory() {
        let row = |outcome| {
            let memory = MemorySpec::of(MemoryKind::Base);
            let case = steady("triad", Width::W512, StoreKind::Regular, memory, vec![0], Bytes::gib(1));
            let mut row = BandwidthRow::in_memory(Case { protocol: Protocol::Stream, ..case }, [12e9, 12e9, 12e9]);
            (row.seconds, row.bytes, row.quality.outcome) = (vec![0.2, 0.1], 1_200_000_000, outcome);
            row
        };
        assert_eq!(triad_bps(&[&row(Status::Measured)]), Some(12e9));
        assert_eq!(triad_bps(&[&row(Status::Invalid)]), None);
    }

    #[test]
    fn a_short_pass_has_a_time() {
        let line = |min_s: f64| StreamLine {
            function: "Copy".into(),
            variant: "nt 512".into(),
            best_mbps: 16384.0 / min_s / 1e6,
            avg_s: 1.5 * min_s,
            min_s,
            max_s: 2.0 * min_s,
        };
        let table = StreamTable { lines: vec![line(0.0071), line(512e-9)], ..table("thp", 1, 1.0) };
        let lines = table.verbatim();
        assert_eq!(lines[2], "Copy:               2.3     0.010650     0.007100     0.014200  nt 512");
        assert_eq!(lines[3], "Copy:           32000.0  0.000000768  0.000000512  0.000001024  nt 512");
    }
}
