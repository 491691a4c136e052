//! One sum in many ways: how far results lie from the exact one and from each other, what changes them, and what a result
//! that never changes costs in speed.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Rate;
use super::quality::{Quality, Sampled, rated};
use super::rows::{payload_bps, visits};
use super::stores::ratio_text;
use crate::kernel::{Kernel, Width};
use crate::plan::{Data, SUMMED, SumOrder, Work};
use crate::record::{Measurement, Record, Results};
use crate::stats;
use crate::units::{Bytes, count};

/// What one way of adding up came to: a tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundingRow {
    /// `rounding`.
    pub metric: String,
    /// `sum`, `dot` or `triad`.
    pub kernel: String,
    /// What was added up.
    pub data: Data,
    /// Seed of the data.
    pub seed: u64,
    /// Access width.
    pub width: Width,
    /// Accesses in one trip of the main loop; from 2 on there are several partial sums.
    pub unroll: u32,
    /// Whether product and sum are rounded together.
    pub fused: bool,
    /// The order.
    pub order: SumOrder,
    /// Blocks of a blocked sum; 1 else.
    pub blocks: u32,
    /// CPU.
    pub cpus: Vec<u32>,
    /// Bytes of all streams.
    pub working_set_bytes: Bytes,
    /// `ulp`: steps from one double to the next.
    pub unit: String,
    /// The sum; absent of a triad, and where nothing was measured.
    pub result: Option<f64>,
    /// Its bits in hexadecimal; of a triad a number that stands for the bits of all its elements.
    pub result_bits: Option<String>,
    /// The exact sum, rounded once; absent of a triad.
    pub exact: Option<f64>,
    /// Sum of magnitudes over magnitude of the sum, as found; absent of a triad.
    pub condition: Option<f64>,
    /// Doubles from the result to the exact one; of a triad those of its farthest element.
    pub ulps: Option<u64>,
    /// Whether all samples of all visits came to the same bits.
    pub is_repeatable: bool,
    /// Payload bytes a second.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
}

rated!(RoundingRow, |row| format!("{} {}", row.kernel, row.data));

/// All ways of all sums, and what they tell together.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Rounding {
    /// One row a way, by kernel, data, order, width.
    pub rows: Vec<RoundingRow>,
    /// One verdict a kernel and data.
    pub verdicts: Vec<Verdict>,
}

/// What all ways of one sum tell together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The kernel.
    pub kernel: String,
    /// The data.
    pub data: Data,
    /// Condition as found; absent of a triad.
    pub condition: Option<f64>,
    /// Ways that were measured.
    pub ways: usize,
    /// Different results among them.
    pub results: usize,
    /// Doubles from the exact result to the nearest and to the farthest.
    pub ulps: [u64; 2],
    /// What was changed alone, and whether the bits changed with it: never where it is false.
    pub changed_by: Vec<(Cause, bool)>,
    /// What fixing the order costs: speed of the fastest way over speed of this, [ratio, low, high].
    pub costs: Vec<Cost>,
}

/// Something that may change a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Another run of the same code.
    Run,
    /// Another width.
    Width,
    /// Another unroll: another number of partial sums.
    Unroll,
    /// Another number of blocks, as another number of threads makes.
    Threads,
    /// From the end to the beginning, or pairwise.
    Order,
    /// Product and sum rounded together or apart.
    Fusing,
}

impl Cause {
    const ALL: [Cause; 6] = [Cause::Run, Cause::Width, Cause::Unroll, Cause::Threads, Cause::Order, Cause::Fusing];

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Run => "another run",
            Cause::Width => "another width",
            Cause::Unroll => "another unroll",
            Cause::Threads => "another number of threads",
            Cause::Order => "another order",
            Cause::Fusing => "fusing product and sum",
        }
    }

    /// Whether two ways differ in this alone.
    fn parts(self, a: &RoundingRow, b: &RoundingRow) -> bool {
        let same =
            [a.width == b.width, a.unroll == b.unroll, a.order == b.order, a.blocks == b.blocks, a.fused == b.fused];
        // A single chain stays a single chain at another width; the usual unrolls differ with the width.
        let [width, unroll, order, blocks, fused] = same;
        let alike_unroll = (a.unroll == 1) == (b.unroll == 1);
        let is_split = |row: &RoundingRow| [SumOrder::Forward, SumOrder::Blocked].contains(&row.order);
        match self {
            Cause::Run => false,
            Cause::Width => !width && alike_unroll && order && blocks && fused,
            Cause::Unroll => width && !unroll && order && blocks && fused,
            Cause::Threads => width && unroll && !blocks && fused && is_split(a) && is_split(b),
            Cause::Order => width && unroll && !order && fused && a.blocks == 1 && b.blocks == 1,
            Cause::Fusing => width && unroll && order && blocks && !fused,
        }
    }
}

/// A way whose result depends on the data alone, and what it costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// What it is.
    pub way: String,
    /// Payload bytes a second.
    pub rate: Rate,
    /// Speed of the fastest way over this: [ratio, low, high] with 95 %.
    pub slower: [f64; 3],
}

/// A row, and what it was worked out from.
struct Way {
    row: RoundingRow,
    /// Payload B/s, visit by visit.
    batches: Vec<Vec<f64>>,
}

pub(super) fn rounding(record: &Record) -> Rounding {
    let hz = record.header.clock.hz.0;
    let mut ways: Vec<Way> = visits(record).iter().filter_map(|visits| way(visits, hz)).collect();
    ways.sort_by_key(|Way { row, .. }| {
        (
            Kernel::place(&row.kernel),
            row.data,
            row.seed,
            row.working_set_bytes,
            row.order,
            row.blocks,
            row.width,
            row.unroll,
            row.fused,
        )
    });
    let sums: BTreeSet<_> = ways.iter().map(|way| key(&way.row)).collect();
    let verdicts =
        sums.iter().filter_map(|sum| verdict(&ways.iter().filter(|way| key(&way.row) == *sum).collect::<Vec<_>>()));
    Rounding { verdicts: verdicts.collect(), rows: ways.into_iter().map(|way| way.row).collect() }
}

/// What ways must share to be ways of one sum.
fn key(row: &RoundingRow) -> (usize, String, Data, u64, Bytes) {
    (Kernel::place(&row.kernel), row.kernel.clone(), row.data, row.seed, row.working_set_bytes)
}

fn way(visits: &[&Measurement], hz: f64) -> Option<Way> {
    let case = &visits[0].case;
    let Work::Rounding(summation) = &case.work else { return None };
    let Sampled { measured, batches, summary, quality } = Sampled::of(visits, hz, |visit| payload_bps(visit, hz));
    let mut row = RoundingRow {
        metric: "rounding".into(),
        kernel: summation.variant.kernel.clone(),
        data: summation.data,
        seed: summation.seed,
        width: summation.variant.width,
        unroll: summation.variant.unroll,
        fused: summation.fused,
        order: summation.order,
        blocks: summation.blocks,
        cpus: case.cpus.clone(),
        working_set_bytes: case.working_set,
        unit: "ulp".into(),
        result: None,
        result_bits: None,
        exact: None,
        condition: None,
        ulps: None,
        is_repeatable: false,
        payload_bps: summary.as_ref().map(Rate::from),
        quality,
    };
    fill(&mut row, &measured.iter().filter_map(|visit| visit.samples.results.as_ref()).collect::<Vec<_>>());
    Some(Way { row, batches })
}

fn fill(row: &mut RoundingRow, results: &[&Results]) {
    let Some((first, bits)) = results.first().and_then(|first| Some((first, *first.bits.first()?))) else { return };
    row.is_repeatable = results.iter().flat_map(|results| &results.bits).all(|other| *other == bits);
    row.ulps = results.iter().flat_map(|results| &results.ulps).copied().max();
    row.result_bits = Some(format!("{bits:016x}"));
    let [exact, magnitude] = [first.exact, first.magnitude].map(f64::from_bits);
    // Only a sum has magnitudes.
    if magnitude > 0.0 {
        row.result = Some(f64::from_bits(bits)).filter(|result| result.is_finite());
        row.exact = Some(exact);
        row.condition = Some(magnitude / exact.abs()).filter(|condition| condition.is_finite());
    }
}

fn verdict(ways: &[&Way]) -> Option<Verdict> {
    let rows: Vec<&RoundingRow> = ways.iter().map(|way| &way.row).filter(|row| row.result_bits.is_some()).collect();
    let first = rows.first()?;
    let ulps = || rows.iter().filter_map(|row| row.ulps);
    let results: BTreeSet<&String> = rows.iter().filter_map(|row| row.result_bits.as_ref()).collect();
    let mut changed_by = Vec::new();
    for cause in Cause::ALL {
        let pairs = || rows.iter().enumerate().flat_map(|(at, a)| rows[at + 1..].iter().map(move |b| (a, b)));
        let ours: Vec<bool> = match cause {
            Cause::Run => rows.iter().map(|row| !row.is_repeatable).collect(),
            _ => pairs().filter(|(a, b)| cause.parts(a, b)).map(|(a, b)| a.result_bits != b.result_bits).collect(),
        };
        if !ours.is_empty() {
            changed_by.push((cause, ours.contains(&true)));
        }
    }
    Some(Verdict {
        kernel: first.kernel.clone(),
        data: first.data,
        condition: first.condition,
        ways: rows.len(),
        results: results.len(),
        ulps: [ulps().min()?, ulps().max()?],
        changed_by,
        costs: costs(ways),
    })
}

/// Ways that any machine can repeat bit for bit, whatever its widest registers and however many threads it has: the loop as
/// it is written, and two lanes of 128 bits, each a single chain or in the usual number of partial sums.
fn costs(ways: &[&Way]) -> Vec<Cost> {
    let median = |way: &&&Way| way.row.payload_bps.map(|rate| rate.median);
    let fastest = ways
        .iter()
        .filter(|way| median(way).is_some())
        .max_by(|a, b| median(a).unwrap_or(0.0).total_cmp(&median(b).unwrap_or(0.0)));
    let Some(fastest) = fastest else { return Vec::new() };
    let has_fused = ways.iter().any(|way| way.row.fused);
    let cost = |(width, is_chain, name): (Width, bool, &str)| {
        let is_ours = |way: &&&Way| {
            let row = &way.row;
            row.width == width
                && (row.unroll == 1) == is_chain
                && row.order == SumOrder::Forward
                && row.fused == has_fused
        };
        let way = ways.iter().find(is_ours)?;
        let [these, those] =
            [&fastest.batches, &way.batches].map(|batches| batches.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Some(Cost { way: name.into(), rate: way.row.payload_bps?, slower: stats::ratio(&these, &those) })
    };
    let fixed = [
        (Width::Scalar, true, "the loop as written, one chain"),
        (Width::Scalar, false, "scalar, partial sums"),
        (Width::W128, false, "128 bits, partial sums"),
    ];
    fixed.into_iter().filter_map(cost).collect()
}

/// One sentence a kernel: the worst of its data.
pub(super) fn sentences(rounding: &Rounding) -> Vec<String> {
    let worst = |kernel: &&str| {
        let ours = rounding.verdicts.iter().filter(|verdict| verdict.kernel == **kernel);
        ours.max_by_key(|verdict| verdict.ulps[1]).map(Verdict::sentence)
    };
    SUMMED.iter().filter_map(worst).collect()
}

impl Verdict {
    /// The verdict in words.
    pub fn sentence(&self) -> String {
        let Verdict { kernel, ways, results, .. } = self;
        let [near, far] = self.ulps.map(|ulps| count(ulps as f64));
        let condition = self.condition.map_or_else(|| self.data.to_string(), |c| format!("condition {}", count(c)));
        let plural = if *results == 1 { "" } else { "s" };
        let mut text = format!(
            "{kernel}, {condition}: {ways} ways give {results} different result{plural}, {near} to {far} ULP from the exact one"
        );
        let causes = |changes: bool| {
            let words =
                self.changed_by.iter().filter(|(_, changed)| *changed == changes).map(|(cause, _)| cause.word());
            words.collect::<Vec<_>>().join(", ")
        };
        for (changes, verb) in [(true, "changed by"), (false, "not changed by")] {
            if !causes(changes).is_empty() {
                text += &format!("; {verb} {}", causes(changes));
            }
        }
        if let Some(cost) = self.costs.iter().min_by(|a, b| a.slower[0].total_cmp(&b.slower[0])) {
            text += &format!(
                "; the fastest way is {} as fast as the cheapest that every machine can keep ({})",
                ratio_text(cost.slower),
                cost.way
            );
        }
        text + "."
    }
}
