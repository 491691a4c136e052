//! One sum in many ways: how far results lie from the exact one and from each other, what changes them, and what a result
//! that never changes costs in speed.

use membound_core::in_order::InOrder;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::quality::Sampled;
use crate::rate::Rate;
use crate::row::{Metric, Row};
use crate::visits::{Visits, payload_bps};
use crate::wording::times;
use membound_core::case::Work;
use membound_core::kernel::Width;
use membound_core::kernel::catalog::Kernel;
use membound_core::record::{Measurement, Results};
use membound_core::units::{Bytes, count, counted};
use membound_core::work::rounding::{Arithmetic, Data, SumOrder, Summation};

/// What one way of adding up came to.
pub type RoundingRow = Row<RoundingFigures>;

/// A sum, and how far it is from the exact one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct RoundingFigures {
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
    /// Payload bytes per second.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
}

/// What tells ways of adding up from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RoundingKeys {
    /// `sum`, `dot` or `triad`.
    kernel: String,
    /// What was added up.
    data: Data,
    /// Seed of the data.
    seed: u64,
    /// Access width.
    width: Width,
    /// Accesses in one trip of the main loop; from 2 on there are several partial sums.
    unroll: u32,
    /// Whether product and sum are rounded together.
    fused: bool,
    /// What each operation leaves behind.
    arithmetic: Arithmetic,
    /// The order.
    order: SumOrder,
    /// Blocks of a blocked sum; 1 else.
    blocks: u32,
    /// CPU.
    cpus: Vec<u32>,
    /// Bytes of all streams.
    working_set_bytes: Bytes,
}

impl Metric for RoundingFigures {
    const NAME: &'static str = "rounding";
    /// Steps from one double to the next.
    const UNIT: &'static str = "ulp";
    type Keys = RoundingKeys;

    fn keys(row: &RoundingRow) -> RoundingKeys {
        let Summation { variant, data, seed, fused, arithmetic, order, blocks } = row.way().clone();
        RoundingKeys {
            kernel: variant.kernel,
            data,
            seed,
            width: variant.width,
            unroll: variant.unroll,
            fused,
            arithmetic,
            order,
            blocks,
            cpus: row.case.cpus.clone(),
            working_set_bytes: row.case.working_set,
        }
    }

    fn what(row: &RoundingRow) -> String {
        format!("{} {}", row.kernel(), row.way().data)
    }
}

impl RoundingRow {
    /// How it was added up.
    pub fn way(&self) -> &Summation {
        let way = if let Work::Rounding(way) = &self.case.work { Some(way) } else { None };
        way.expect("rows of rounding are made of sums alone")
    }

    /// `sum`, `dot` or `triad`.
    pub fn kernel(&self) -> &str {
        &self.way().variant.kernel
    }
}

/// All ways of all sums, and what they tell together.
#[derive(Debug, Clone, PartialEq, Default)]
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
    /// What flushing subnormal numbers to zero does; absent where that was not tried beside keeping them.
    pub flushing: Option<Flushing>,
}

/// What flushing subnormal numbers to zero does to one way of adding up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flushing {
    /// Share of the sum that is lost; absent of a triad.
    pub lost: Option<f64>,
    /// Speed with them flushed over speed with them kept, [ratio, low, high].
    pub faster: [f64; 3],
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
    /// Results of 64 bits of significand, rounded to a double at the end.
    Extended,
    /// The same, rounded to a double after each operation.
    RoundingTwice,
    /// Subnormal numbers taken for zero.
    Flushing,
}

impl Cause {
    const ALL: [Cause; 9] = [
        Cause::Run,
        Cause::Width,
        Cause::Unroll,
        Cause::Threads,
        Cause::Order,
        Cause::Fusing,
        Cause::Extended,
        Cause::RoundingTwice,
        Cause::Flushing,
    ];

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Run => "another run",
            Cause::Width => "another width",
            Cause::Unroll => "another unroll",
            Cause::Threads => "another number of threads",
            Cause::Order => "another order",
            Cause::Fusing => "fusing product and sum",
            Cause::Extended => "80-bit registers (x87)",
            Cause::RoundingTwice => "rounding twice (x87, stored each time)",
            Cause::Flushing => "flushing subnormal numbers (FTZ/DAZ)",
        }
    }

    /// Whether two ways differ in this alone.
    fn parts(self, a: &RoundingRow, b: &RoundingRow) -> bool {
        let (a, b) = (a.way(), b.way());
        let [width, unroll] = [a.variant.width == b.variant.width, a.variant.unroll == b.variant.unroll];
        let [order, blocks, fused] = [a.order == b.order, a.blocks == b.blocks, a.fused == b.fused];
        // A single chain stays a single chain at another width; the usual unrolls differ with the width.
        let alike_unroll = (a.variant.unroll == 1) == (b.variant.unroll == 1);
        let is_same_way = width && unroll && order && blocks && fused;
        let is_beside =
            |other| [(a, b), (b, a)].iter().any(|(a, b)| (a.arithmetic, b.arithmetic) == (Arithmetic::Ieee, other));
        let is_split = |way: &Summation| [SumOrder::Forward, SumOrder::Blocked].contains(&way.order);
        match self {
            Cause::Run => false,
            Cause::Extended => is_same_way && is_beside(Arithmetic::X87),
            Cause::RoundingTwice => is_same_way && is_beside(Arithmetic::X87Stored),
            Cause::Flushing => is_same_way && is_beside(Arithmetic::FtzDaz),
            _ if a.arithmetic != b.arithmetic => false,
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
    /// Payload bytes per second.
    pub rate: Rate,
    /// Speed of the fastest way over this: [ratio, low, high] with 95 %.
    pub slower: [f64; 3],
}

pub(crate) fn rounding(visits: &Visits<'_>) -> Rounding {
    let mut ways: Vec<RoundingRow> = visits.rows(|case| way(case, visits));
    ways.order_by_key(|row| {
        let Summation { variant, order, blocks, fused, arithmetic, .. } = row.way();
        (key(row), *order, *blocks, *arithmetic, variant.width, variant.unroll, *fused)
    });
    Rounding { verdicts: verdicts(&ways), rows: ways }
}

/// One of each sum, by the ways that came out right.
fn verdicts(ways: &[RoundingRow]) -> Vec<Verdict> {
    let sound: Vec<&RoundingRow> = ways.iter().filter(|way| way.quality.is_measured()).collect();
    sound.chunk_by(|a, b| key(a) == key(b)).filter_map(verdict).collect()
}

/// What ways must share to be ways of one sum.
fn key(row: &RoundingRow) -> (usize, String, Data, u64, Bytes) {
    (Kernel::place(row.kernel()), row.kernel().into(), row.way().data, row.way().seed, row.case.working_set)
}

fn way(visits: &[&Measurement], all: &Visits<'_>) -> Option<RoundingRow> {
    let case = &visits[0].case;
    let Work::Rounding(_) = &case.work else { return None };
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| payload_bps(visit, all.hz()));
    let payload_bps = sampled.rate();
    let Sampled { measured, quality, .. } = sampled;
    let results: Vec<&Results> = measured.iter().filter_map(|visit| visit.samples.results.as_ref()).collect();
    let mut figures = of_results(&results).unwrap_or_default();
    figures.payload_bps = payload_bps;
    Some(Row { case: case.clone(), quality, figures })
}

fn of_results(results: &[&Results]) -> Option<RoundingFigures> {
    let first = results.first()?;
    let bits = *first.bits.first()?;
    let [exact, magnitude] = [first.exact, first.magnitude].map(f64::from_bits);
    let figures = RoundingFigures {
        is_repeatable: results.iter().flat_map(|results| &results.bits).all(|other| *other == bits),
        ulps: results.iter().flat_map(|results| &results.ulps).copied().max(),
        result_bits: Some(format!("{bits:016x}")),
        ..RoundingFigures::default()
    };
    // Only a sum has magnitudes.
    if magnitude <= 0.0 {
        return Some(figures);
    }
    Some(RoundingFigures {
        result: Some(f64::from_bits(bits)).filter(|result| result.is_finite()),
        exact: Some(exact),
        condition: Some(magnitude / exact.abs()).filter(|condition| condition.is_finite()),
        ..figures
    })
}

fn verdict(ways: &[&RoundingRow]) -> Option<Verdict> {
    let rows: Vec<&RoundingRow> = ways.iter().copied().filter(|row| row.result_bits.is_some()).collect();
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
        kernel: first.kernel().into(),
        data: first.way().data,
        condition: first.condition,
        ways: rows.len(),
        results: results.len(),
        ulps: [ulps().min()?, ulps().max()?],
        changed_by,
        costs: if first.way().data == Data::Subnormal { Vec::new() } else { costs(ways) },
        flushing: flushing(ways),
    })
}

/// The widest way with subnormal numbers flushed, beside the same with them kept.
fn flushing(ways: &[&RoundingRow]) -> Option<Flushing> {
    let is_measured = |way: &&RoundingRow| way.result_bits.is_some();
    let flushed = ways.iter().copied().filter(|way| way.way().arithmetic == Arithmetic::FtzDaz).filter(is_measured);
    let flushed = flushed.max_by_key(|way| way.way().variant.width)?;
    let usual = Summation { arithmetic: Arithmetic::Ieee, ..flushed.way().clone() };
    let kept = ways.iter().copied().filter(is_measured).find(|way| *way.way() == usual)?;
    let both = flushed.result.zip(kept.result);
    let faster = flushed.payload_bps?.over(kept.payload_bps?);
    Some(Flushing { lost: both.map(|(flushed, kept)| 1.0 - flushed / kept).filter(|lost| lost.is_finite()), faster })
}

/// Ways that any machine can repeat bit for bit, whatever its widest registers and however many threads it has: the loop as
/// it is written, and two lanes of 128 bits, each a single chain or in the usual number of partial sums.
fn costs(ways: &[&RoundingRow]) -> Vec<Cost> {
    let median = |way: &&RoundingRow| way.payload_bps.map(|rate| rate.value());
    let is_usual = |way: &&RoundingRow| way.way().arithmetic == Arithmetic::Ieee;
    let fastest = ways
        .iter()
        .copied()
        .filter(|way| median(way).is_some() && is_usual(way))
        .max_by(|a, b| median(a).unwrap_or(0.0).total_cmp(&median(b).unwrap_or(0.0)));
    let Some(fastest) = fastest else { return Vec::new() };
    let has_fused = ways.iter().any(|way| way.way().fused);
    // The x87 is a scalar chain too.
    let cost = |(width, is_chain, name): (Width, bool, &str)| {
        let is_ours = |way: &&RoundingRow| {
            let Summation { variant, order, fused, .. } = way.way();
            variant.width == width
                && (variant.unroll == 1) == is_chain
                && *order == SumOrder::Forward
                && *fused == has_fused
        };
        let way = ways.iter().copied().filter(is_usual).find(is_ours)?;
        let rate = way.payload_bps?;
        Some(Cost { way: name.into(), rate, slower: fastest.payload_bps?.over(rate) })
    };
    let fixed = [
        (Width::Scalar, true, "the loop as written, one chain"),
        (Width::Scalar, false, "scalar, partial sums"),
        (Width::W128, false, "128 bits, partial sums"),
    ];
    fixed.into_iter().filter_map(cost).collect()
}

impl Verdict {
    /// The verdict in words.
    pub fn sentence(&self) -> String {
        let Verdict { kernel, ways, results, .. } = self;
        let [near, far] = self.ulps.map(|ulps| count(ulps as f64));
        let condition = match self.condition {
            Some(condition) if self.data != Data::Subnormal => format!("condition {}", count(condition)),
            _ => self.data.to_string(),
        };
        let mut text = format!(
            "{kernel}, {condition}: {ways} ways give {}, {near} to {far} ULP from the exact one",
            counted(*results, "different result")
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
                times(cost.slower),
                cost.way
            );
        }
        text + "."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::Status;
    use membound_core::case::{Case, USUAL_MEMORY, steady, usual};
    use membound_core::kernel::StoreKind;

    /// A wide sum that crashed after a sample: its bits are none of the results, and its speed is not the fastest.
    #[test]
    fn what_crashed_is_no_way_of_adding_up() {
        let row = |width, bits: &str, ulps, bps: f64, outcome| {
            let summation = Summation {
                variant: usual("sum", width, StoreKind::Regular),
                fused: false,
                arithmetic: Arithmetic::Ieee,
                order: SumOrder::Forward,
                blocks: 1,
                data: Data::Uniform,
                seed: 1,
            };
            let case = steady("load", width, StoreKind::Regular, USUAL_MEMORY, vec![0], Bytes::kib(16));
            let figures = RoundingFigures {
                result_bits: Some(bits.into()),
                ulps: Some(ulps),
                is_repeatable: true,
                payload_bps: Some(Rate::plain(bps, bps, [bps; 2])),
                ..RoundingFigures::default()
            };
            RoundingRow::made_up(Case { work: Work::Rounding(summation), ..case }, outcome, figures)
        };
        let of = |outcome| {
            let scalar = row(Width::Scalar, "a", 1, 10e9, Status::Measured);
            verdicts(&[scalar, row(Width::W512, "b", 9, 80e9, outcome)])
        };
        let (sound, wrong) = (of(Status::Measured), of(Status::Crashed));
        let told = |all: &[Verdict]| {
            all.iter().map(|v| (v.ways, v.results, v.ulps, v.costs[0].slower[0].round())).collect::<Vec<_>>()
        };
        assert_eq!(told(&sound), [(2, 2, [1, 9], 8.0)]);
        assert_eq!(told(&wrong), [(1, 1, [1, 1], 1.0)]);
    }
}
