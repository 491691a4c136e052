//! Pages on two tiers of memory: at which ratio is a kernel fastest?

use membound_core::in_order::InOrder;
use std::collections::BTreeSet;

use serde::Serialize;

use crate::answer::Answer;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::rate::Rate;
use crate::section::{Section, Table};
use crate::wording::{SPREAD_CAPTION, gbps, ratio, spread, threads, times};
use membound_core::memory::MemorySpec;
use membound_core::memory::policy::Policy;
use membound_core::units::{BytesPerSecond, percent};

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
    /// Indices of others that may be as fast: their figures are not apart.
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
    /// Index of its row in [`crate::report::Report::rows`].
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
pub(crate) fn weightings(rows: &[BandwidthRow]) -> Vec<Weighting> {
    let key = |result: &BandwidthRow| {
        let mut case = result.case.clone();
        case.memory = MemorySpec::of(case.memory.kind);
        case
    };
    let is_measured = |result: &BandwidthRow| result.quality.is_measured() && result.payload_bps.is_some();
    let searches: BTreeSet<_> = rows
        .iter()
        .filter(|result| is_measured(result))
        .filter_map(|result| Some((key(result), split(result.case.memory)?.0)))
        .collect();
    let of = |(case, tiers): (_, [u32; 2])| {
        let tried = rows.iter().enumerate().filter(|(_, result)| is_measured(result) && key(result) == case);
        let tried = tried.filter_map(|(row, result)| Some((row, result, weights_of(result.case.memory, tiers)?)));
        weighting(tiers, tried.collect())
    };
    searches.into_iter().filter_map(of).collect()
}

/// The best of what was tried, where that is at least two ratios.
fn weighting(tiers: [u32; 2], tried: Vec<(usize, &BandwidthRow, [u8; 2])>) -> Option<Weighting> {
    let (_, fastest, _) = *tried.iter().max_by(|a, b| a.1.undisturbed_bps().total_cmp(&b.1.undisturbed_bps()))?;
    let (kernel, threads) = (fastest.kernel().to_string(), fastest.threads());
    let found = |result: &BandwidthRow| {
        let on = &result.obtained.as_ref()?.pages_on_node;
        let all: u64 = on.iter().map(|found| found.pages).sum();
        let first: u64 = on.iter().filter(|found| found.node == tiers[0]).map(|found| found.pages).sum();
        (all > 0).then(|| first as f64 / all as f64)
    };
    let one = |&(row, result, weights): &(usize, &BandwidthRow, [u8; 2])| {
        let gain = fastest.gain_over(result);
        Some(Tried { weights, first_share: found(result), rate: result.payload_bps?, row, gain })
    };
    let mut tried: Vec<Tried> = tried.iter().filter_map(one).collect();
    tried.order_by(|a, b| b.share_asked().total_cmp(&a.share_asked()));
    let best = (0..tried.len()).max_by(|&a, &b| tried[a].rate.value().total_cmp(&tried[b].rate.value()))?;
    // A few visits that agree exclude nothing.
    let is_tie = |index: &usize| *index != best && !tried[best].rate.is_apart(tried[*index].rate);
    let ties = (0..tried.len()).filter(is_tie).collect();
    (tried.len() > 1).then_some(Weighting { kernel, threads, tiers, tried, best, ties })
}

impl Weighting {
    /// The answer with its figures, what is as good, and what one node alone would do.
    pub(crate) fn sentence(&self) -> String {
        let Weighting { kernel, tiers, tried, best, ties, .. } = self;
        let fastest = &tried[*best];
        let rate = fastest.rate;
        let [median, low, high] = rate.interval().map(BytesPerSecond);
        let mut text = format!(
            "{kernel}, {}, pages on nodes {} and {}: fastest is {}, {median} [{low}, {high}]",
            threads(self.threads),
            tiers[0],
            tiers[1],
            fastest.name(*tiers)
        );
        if !ties.is_empty() {
            let names: Vec<String> = ties.iter().map(|&tie| tried[tie].name(*tiers)).collect();
            text += &format!(" (no slower within the interval: {})", names.join(", "));
        }
        for alone in tried.iter().filter(|tried| tried.weights.contains(&0) && tried.row != fastest.row) {
            text += &format!("; {} the speed of {}", times(alone.gain), alone.name(*tiers));
        }
        text + "."
    }
}

impl Answer for Vec<Weighting> {
    fn sentences(&self) -> Vec<String> {
        self.iter().map(Weighting::sentence).collect()
    }

    fn sections(&self) -> Vec<Section> {
        let section = || Section {
            id: "weights",
            title: "Pages on two nodes".into(),
            about: format!(
                "Ratio of pages on the one node to pages on the other; share found on the first; GB/s of payload, \
                 {SPREAD_CAPTION}; how much faster the fastest is, with its 95 % interval."
            ),
            sentences: self.sentences(),
            tables: self.iter().map(table).collect(),
            ..Section::default()
        };
        (!self.is_empty()).then(section).into_iter().collect()
    }
}

fn table(weighting: &Weighting) -> Table {
    let Weighting { kernel, tiers: [first, second], tried, best, ties, .. } = weighting;
    let word = |index: usize| match index {
        _ if index == *best => "fastest",
        _ if ties.contains(&index) => "may be as fast",
        _ => "",
    };
    Table::new(format!("{kernel} over nodes {first} and {second}, {}", threads(weighting.threads)))
        .left("ratio", tried.iter().map(|tried| format!("{}:{}", tried.weights[0], tried.weights[1])))
        .right("found", tried.iter().map(|tried| tried.first_share.map(percent)))
        .right("GB/s", tried.iter().map(|tried| format!("{} {}", gbps(tried.rate.value()), spread(&tried.rate))))
        .right("fastest / this", tried.iter().map(|tried| ratio(tried.gain)))
        .left("", (0..tried.len()).map(word))
}
