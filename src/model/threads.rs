//! Bandwidth over threads, and STREAM's table.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;
use super::rows::Result;
use crate::kernel::{Element, LoadKind, StoreKind};
use crate::plan::Protocol;
use crate::record::Record;
use crate::units::Bytes;

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

/// STREAM's table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StreamTable {
    /// `STREAM` where every rule is met, else `STREAM-style`.
    pub title: String,
    /// Rules that are not met, in words.
    pub unmet: Vec<String>,
    /// Elements of each array.
    pub array_elements: u64,
    /// Threads.
    pub threads: usize,
    /// Function, best rate MB/s, average, minimum and maximum time in seconds.
    pub lines: Vec<StreamLine>,
    /// The validation line.
    pub validation: String,
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
pub(super) fn scaling(results: &[Result]) -> Vec<Scaling> {
    let mut curves: Vec<Scaling> = Vec::new();
    for (index, result) in results.iter().enumerate() {
        let row = &result.row;
        if row.level.as_deref() != Some("memory")
            || row.payload_bps.is_none()
            || result.case.protocol != Protocol::Steady
            || !result.is_plain()
        {
            continue;
        }
        let Some(what) = result.case.variant().map(ToString::to_string) else { continue };
        match curves.iter_mut().find(|curve| curve.what == what) {
            Some(curve) => curve.rows.push(index),
            None => curves.push(Scaling { what, level: "memory".into(), rows: vec![index] }),
        }
    }
    for curve in &mut curves {
        // Of several working sets with the same threads the largest counts.
        curve.rows.sort_by_key(|&i| (results[i].row.threads, std::cmp::Reverse(results[i].row.working_set_bytes)));
        curve.rows.dedup_by_key(|i| results[*i].row.threads);
    }
    curves.retain(|curve| curve.rows.len() > 1);
    let most = curves.iter().map(|curve| curve.rows.len()).max().unwrap_or(0);
    // Where a run drew real curves, pairs that other parts of the plan happen to give are left out.
    curves.retain(|curve| curve.rows.len() == most && is_main(&results[curve.rows[0]].row));
    // The widest stands for all widths of a kernel.
    let variant = |curve: &Scaling| (results[curve.rows[0]].row.kernel.clone(), results[curve.rows[0]].row.width);
    curves.sort_by_key(|curve| std::cmp::Reverse(variant(curve)));
    curves.dedup_by_key(|curve| variant(curve).0);
    curves.reverse();
    curves
}

/// The variants that a default run scales, at the width it uses for them or any other.
fn is_main(row: &Row) -> bool {
    let ways = [("load", StoreKind::Regular), ("copy", StoreKind::Nt), ("triad", StoreKind::Regular)];
    ways.contains(&(row.kernel.as_str(), row.store)) && row.load == LoadKind::Regular
}

/// STREAM's functions in its own order.
const FUNCTIONS: [(&str, &str); 4] = [("copy", "Copy"), ("scale", "Scale"), ("add", "Add"), ("triad", "Triad")];

/// STREAM's table, if its kernels were run by its protocol.
pub(super) fn stream_table(results: &[Result], record: &Record) -> Option<StreamTable> {
    let runs: Vec<&Result> = results
        .iter()
        .filter(|r| r.case.protocol == Protocol::Stream && r.is_plain() && !r.seconds.is_empty())
        .collect();
    let threads = runs.iter().map(|r| r.row.threads).max()?;
    let runs: Vec<&Result> = runs.into_iter().filter(|r| r.row.threads == threads).collect();
    let mut lines = Vec::new();
    for store in [StoreKind::Regular, StoreKind::Nt] {
        for (kernel, function) in FUNCTIONS {
            if let Some(run) = runs.iter().find(|r| r.row.kernel == kernel && r.row.store == store) {
                lines.push(line(function, run));
            }
        }
    }
    let copy = runs.first()?;
    let streams = copy.case.variant().and_then(|v| v.row()).map_or(1, |kernel| kernel.formula().streams.len() as u64);
    let array = Bytes(copy.case.working_set.0 / streams);
    let unmet = unmet_rules(array, &runs, record);
    let valid = runs.iter().all(|r| r.row.quality.is_measured());
    Some(StreamTable {
        title: if unmet.is_empty() && valid { "STREAM".into() } else { "STREAM-style".into() },
        unmet,
        array_elements: array.0 / Element::Double.bytes(),
        threads,
        lines,
        validation: if valid {
            "Solution Validates: avg error less than 1.000000e-13 on all three arrays".into()
        } else {
            "Solution does not validate: a data check failed".into()
        },
    })
}

fn line(function: &str, run: &Result) -> StreamLine {
    let min_s = run.seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let max_s = run.seconds.iter().copied().fold(0.0, f64::max);
    let best = run.row.payload_bps.map_or(0.0, |rate| rate.best);
    StreamLine {
        function: function.into(),
        variant: format!("{} {}", run.row.width, run.row.store),
        best_mbps: best / 1e6,
        avg_s: run.seconds.iter().sum::<f64>() / run.seconds.len() as f64,
        min_s,
        max_s,
    }
}

/// STREAM's run rules: arrays of four times the last-level caches, ten passes of which the first does not count, a
/// clock fine enough for each pass, the four kernels in turn over the same arrays. Source: the comments of stream.c.
fn unmet_rules(array: Bytes, runs: &[&Result], record: &Record) -> Vec<String> {
    let mut unmet =
        vec!["all passes of a kernel follow each other; stream.c runs the four kernels in turn".to_string()];
    if runs.iter().any(|run| run.row.threads > 1) {
        unmet.push("each thread has its part of an array to itself; stream.c divides one array".into());
    }
    let machine = &record.header.machine;
    let cpus = runs[0].case.cpus.iter().copied().collect();
    match machine.last_level_bytes(&cpus) {
        Some(cache) if array.0 < 4 * cache.0 => {
            unmet.push(format!("arrays of {array} are less than four times the last-level cache of {cache}"));
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
