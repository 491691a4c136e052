//! Pages on two tiers of memory: at which ratio is a kernel fastest?

use std::collections::BTreeSet;

use serde::Serialize;

use super::Rate;
use super::rows::Result;
use crate::memory::{MemorySpec, Policy};
use crate::stats;
use crate::units::{BytesPerSecond, significant};

/// A kernel over pages on two nodes, at several ratios.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Weighting {
    /// The kernel's name.
    pub kernel: String,
    /// Number of threads.
    pub threads: usize,
    /// The two nodes, ascending.
    pub tiers: [u32; 2],
    /// What was measured, from most on the first node to least.
    pub tried: Vec<Tried>,
    /// Index of the fastest.
    pub best: usize,
    /// Indices of others that may be as fast: the 95 % interval of the ratio of medians does not exclude it.
    pub ties: Vec<usize>,
}

/// A ratio that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// Weights of the two nodes.
    pub weights: [u8; 2],
    /// Share of pages found on the first node; absent where they were not looked up.
    pub first_share: Option<f64>,
    /// Payload B/s.
    pub rate: Rate,
    /// Index of its row in [`super::Report::rows`].
    pub row: usize,
    /// The fastest against this: [ratio, low, high].
    pub gain: [f64; 3],
}

impl Tried {
    /// `3:1`, or `all on node 4`.
    fn name(&self, tiers: [u32; 2]) -> String {
        match self.weights {
            [_, 0] => format!("all on node {}", tiers[0]),
            [0, _] => format!("all on node {}", tiers[1]),
            [first, second] => format!("{first}:{second}"),
        }
    }

    fn share_asked(&self) -> f64 {
        let [first, second] = self.weights.map(f64::from);
        first / (first + second)
    }
}

/// The nodes and weights of memory over two nodes.
fn split(memory: MemorySpec) -> Option<([u32; 2], [u8; 2])> {
    match memory.policy.shares()[..] {
        [(first, a), (second, b)] => Some(([first, second], [a, b])),
        _ => None,
    }
}

/// The weights of memory on two nodes or on one of them.
fn weights_of(memory: MemorySpec, tiers: [u32; 2]) -> Option<[u8; 2]> {
    match (memory.policy, memory.node()) {
        (Policy::Bind(_), Some(node)) if node == tiers[0] => Some([1, 0]),
        (Policy::Bind(_), Some(node)) if node == tiers[1] => Some([0, 1]),
        _ => split(memory).filter(|(nodes, _)| *nodes == tiers).map(|(_, weights)| weights),
    }
}

/// All searches in a record: cases that differ in nothing but the ratio in which two nodes have the pages.
pub(super) fn weightings(results: &[Result]) -> Vec<Weighting> {
    let key = |result: &Result| {
        let mut case = result.case.clone();
        case.memory = MemorySpec::of(case.memory.kind);
        case
    };
    let is_measured = |result: &Result| result.row.quality.is_measured() && result.row.payload_bps.is_some();
    let searches: BTreeSet<_> = results
        .iter()
        .filter(|result| is_measured(result))
        .filter_map(|result| Some((key(result), split(result.case.memory)?.0)))
        .collect();
    let of = |(case, tiers): (_, [u32; 2])| {
        let tried = results.iter().enumerate().filter(|(_, result)| is_measured(result) && key(result) == case);
        let tried = tried.filter_map(|(row, result)| Some((row, result, weights_of(result.case.memory, tiers)?)));
        weighting(tiers, tried.collect())
    };
    searches.into_iter().filter_map(of).collect()
}

/// The best of what was tried, where that is at least two ratios.
fn weighting(tiers: [u32; 2], tried: Vec<(usize, &Result, [u8; 2])>) -> Option<Weighting> {
    let median = |result: &Result| result.row.payload_bps.map_or(0.0, |rate| rate.median);
    let (_, fastest, _) = *tried.iter().max_by(|a, b| median(a.1).total_cmp(&median(b.1)))?;
    let (kernel, threads) = (fastest.row.kernel.clone(), fastest.row.threads);
    let found = |result: &Result| {
        let on = &result.row.obtained.as_ref()?.pages_on_node;
        let all: u64 = on.iter().map(|found| found.pages).sum();
        let first: u64 = on.iter().filter(|found| found.node == tiers[0]).map(|found| found.pages).sum();
        (all > 0).then(|| first as f64 / all as f64)
    };
    let one = |&(row, result, weights): &(usize, &Result, [u8; 2])| {
        let gain = stats::ratio(&fastest.batches(), &result.batches());
        Some(Tried { weights, first_share: found(result), rate: result.row.payload_bps?, row, gain })
    };
    let mut tried: Vec<Tried> = tried.iter().filter_map(one).collect();
    tried.sort_by(|a, b| b.share_asked().total_cmp(&a.share_asked()));
    let best = (0..tried.len()).max_by(|&a, &b| tried[a].rate.median.total_cmp(&tried[b].rate.median))?;
    // Without enough samples for an interval nothing is excluded.
    let is_tie = |index: &usize| {
        let is_slower = tried[*index].gain[1] > 1.0;
        *index != best && !is_slower
    };
    let ties = (0..tried.len()).filter(is_tie).collect();
    (tried.len() > 1).then_some(Weighting { kernel, threads, tiers, tried, best, ties })
}

impl Weighting {
    /// The answer with its figures, what is as good, and what one node alone would do.
    pub(super) fn sentence(&self) -> String {
        let Weighting { kernel, threads, tiers, tried, best, ties } = self;
        let fastest = &tried[*best];
        let (rate, plural) = (fastest.rate, if *threads == 1 { "" } else { "s" });
        let [median, low, high] = [rate.median, rate.ci95[0], rate.ci95[1]].map(BytesPerSecond);
        let mut text = format!(
            "{kernel}, {threads} thread{plural}, pages on nodes {} and {}: fastest is {}, {median} [{low}, {high}]",
            tiers[0],
            tiers[1],
            fastest.name(*tiers)
        );
        if !ties.is_empty() {
            let names: Vec<String> = ties.iter().map(|&tie| tried[tie].name(*tiers)).collect();
            text += &format!(" (no slower within the interval: {})", names.join(", "));
        }
        for alone in tried.iter().filter(|tried| tried.weights.contains(&0) && tried.row != fastest.row) {
            let [gain, low, high] = alone.gain.map(significant);
            text += &format!("; {gain} x [{low}, {high}] the speed of {}", alone.name(*tiers));
        }
        text + "."
    }
}
