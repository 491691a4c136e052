//! One sum in many ways: what results have in common, and how far they lie from the exact one.

use crate::answer::Answer;
use crate::chart::{Axis, Chart, Limit, Scale, Series, Shape, line, rounded};
use crate::experiments::rounding::rows::{Cost, Flushing, Rounding, RoundingRow, Verdict};
use crate::missing::reasons;
use crate::section::{Room, Section, Table};
use crate::wording::{gbps, ratio, times};
use membound_core::experiments::rounding::SUMMED;
use membound_core::in_order::each_once;
use membound_core::kernel::Width;
use membound_core::units::{count, percent};
use membound_core::work::rounding::{Arithmetic, Data, SumOrder, Summation};

const ABOUT: &str = "The same seeded numbers, added up at each width, unroll and order, in the x87's registers of 80 bits, and with \
    subnormal numbers flushed to zero (FTZ/DAZ). ULP: doubles from the result to the exact one (of a triad: of its farthest \
    element). Same bits have the same letter. Fixed: an order that every machine can keep.";

impl Answer for Rounding {
    /// One sentence a kernel: the worst of its data; and one on subnormal numbers.
    fn sentences(&self) -> Vec<String> {
        let worst = |kernel: &&str| {
            let ours = self.verdicts.iter().filter(|verdict| verdict.kernel == **kernel);
            let rounded = ours.filter(|verdict| verdict.data != Data::Subnormal);
            rounded.max_by_key(|verdict| verdict.ulps[1]).map(Verdict::sentence)
        };
        SUMMED.iter().filter_map(worst).chain(flushing(self)).collect()
    }

    /// A table for each sum, below what it tells.
    fn sections(&self) -> Vec<Section> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let kernels = each_once(self.verdicts.iter().map(|verdict| verdict.kernel.as_str()));
        vec![Section {
            id: "rounding",
            title: "One sum in many ways".into(),
            about: ABOUT.into(),
            // The verdicts stand above their tables: the worst of them need not be said again.
            tables: self.verdicts.iter().map(|verdict| of_sum(self, verdict)).collect(),
            charts: kernels.into_iter().filter_map(|kernel| chart(self, kernel)).collect(),
            missing: reasons(&self.rows),
            ..Section::default()
        }]
    }
}

/// `Where half of the numbers are subnormal, flushing them to zero (FTZ/DAZ) takes 25 % off a sum, 25 % off a dot; ...`
fn flushing(rounding: &Rounding) -> Option<String> {
    let found: Vec<(&str, &Flushing)> =
        rounding.verdicts.iter().filter_map(|verdict| Some((&*verdict.kernel, verdict.flushing.as_ref()?))).collect();
    let each =
        |of: &dyn Fn(&(&str, &Flushing)) -> Option<String>| found.iter().filter_map(of).collect::<Vec<_>>().join(", ");
    let lost = each(&|(kernel, flushing)| Some(format!("{} off a {kernel}", percent(flushing.lost?))));
    let faster = each(&|(kernel, flushing)| {
        flushing.faster.iter().all(|end| end.is_finite()).then(|| format!("{kernel} {}", times(flushing.faster)))
    });
    let lost = if lost.is_empty() { "changes a triad alone".into() } else { format!("takes {lost}") };
    let faster = if faster.is_empty() { String::new() } else { format!("; speed against keeping them: {faster}") };
    let text = format!("Where half of the numbers are subnormal, flushing them to zero (FTZ/DAZ) {lost}{faster}.");
    (!found.is_empty()).then_some(text)
}

fn of_sum(rounding: &Rounding, verdict: &Verdict) -> Table {
    let is_ours = |row: &&RoundingRow| {
        row.kernel() == verdict.kernel
            && row.way().data == verdict.data
            && row.sound(row.result_bits.as_ref()).is_some()
    };
    let rows: Vec<&RoundingRow> = rounding.rows.iter().filter(is_ours).collect();
    let fixed = |cost: &Cost| {
        let Cost { way, rate, slower } = cost;
        format!("fixed: {way}: {} GB/s; the fastest is {} x as fast", gbps(rate.value()), ratio(*slower))
    };
    Table::new(verdict.sentence())
        .left("way", rows.iter().map(|row| way(row.way())))
        .left("bits", letters(&rows))
        .right("result", rows.iter().map(|row| row.result.map(|result| result.to_string())))
        .in_room(Room::Wide)
        .right("ULP", rows.iter().map(|row| row.ulps.map(|ulps| count(ulps as f64))))
        .left("runs", rows.iter().map(|row| if row.is_repeatable { "same" } else { "differ" }))
        .right("GB/s", rows.iter().map(|row| row.payload_bps.map(|rate| gbps(rate.value()))))
        .right("samples", rows.iter().map(|row| row.quality.samples.to_string()))
        .in_room(Room::Wide)
        .flags(rows.iter().copied())
        .with_notes(verdict.costs.iter().map(fixed).collect())
        .folded()
}

/// A way of adding up, in few words.
fn way(way: &Summation) -> String {
    let Summation { variant, order, blocks, fused, arithmetic, .. } = way;
    let arithmetic = match arithmetic {
        Arithmetic::Ieee => "",
        Arithmetic::X87 => ", x87",
        Arithmetic::X87Stored => ", x87 stored",
        Arithmetic::FtzDaz => ", FTZ/DAZ",
    };
    let order = if *blocks == 1 { order.to_string() } else { format!("{order} in {blocks}") };
    let width = if variant.width == Width::Scalar { "scalar".into() } else { format!("{} bits", variant.width) };
    let chain = if variant.unroll == 1 { "one chain" } else { "partial sums" };
    let apart = if variant.kernel != "sum" && !fused { ", mul + add" } else { "" };
    format!("{width}, {chain}, {order}{apart}{arithmetic}")
}

/// A letter for each result, in the order in which they first come.
fn letters(rows: &[&RoundingRow]) -> Vec<String> {
    let mut seen: Vec<&str> = Vec::new();
    let mut letters = Vec::new();
    for bits in rows.iter().map(|row| row.result_bits.as_deref().unwrap_or_default()) {
        let at = seen.iter().position(|known| *known == bits).unwrap_or(seen.len());
        if at == seen.len() {
            seen.push(bits);
        }
        let name = char::from(b'a' + (at % 26) as u8);
        letters.push(if at < 26 { name.to_string() } else { format!("{name}{}", at / 26) });
    }
    letters
}

fn is_chain(way: &Summation) -> bool {
    way.variant.unroll == 1 && way.order != SumOrder::Pairwise
}

/// A name, and which ways it stands for.
type Group = (&'static str, fn(&Summation) -> bool);

/// How far sums lie from the exact one, over the condition of what is added up: a dot each way.
fn chart(rounding: &Rounding, kernel: &str) -> Option<Chart> {
    // Flushing loses far more than any order, at no condition at all.
    let is_ours = |row: &&RoundingRow| row.kernel() == kernel && row.way().data != Data::Subnormal;
    let rows: Vec<&RoundingRow> = rounding.rows.iter().filter(is_ours).collect();
    let dot = |row: &&RoundingRow| {
        // A logarithmic axis has no zero: exact results stand at a half.
        let ulps = row.sound(row.ulps).map(|ulps| rounded((ulps as f64).max(0.5)))?;
        Some((rounded(row.condition?.max(1.0)), ulps, ulps, ulps, row.quality.samples))
    };
    const GROUPS: [Group; 4] = [
        ("one chain", |way| is_chain(way) && way.arithmetic == Arithmetic::Ieee),
        ("partial sums", |way| way.variant.unroll > 1 && way.order != SumOrder::Pairwise),
        ("pairwise", |way| way.order == SumOrder::Pairwise),
        ("one chain, x87", |way| is_chain(way) && way.arithmetic != Arithmetic::Ieee),
    ];
    let series = |(colour, (name, is_ours)): (usize, &Group)| {
        let points = rows.iter().filter(|row| is_ours(row.way())).filter_map(dot).collect();
        Series { shape: Shape::Dot, colour, symbol: colour, ..line((*name).into(), points) }
    };
    let all: Vec<Series> = GROUPS.iter().enumerate().map(series).filter(|series| !series.points.is_empty()).collect();
    let x = Axis::new("condition: sum of magnitudes over magnitude of the sum (log)", "", Scale::Log);
    let y = Axis::new("ULP from the exact sum (log; 0.5: exact)", "ULP", Scale::Log);
    let limits = vec![Limit { name: "no correct digit".into(), at: rounded(2f64.powi(52)) }];
    let chart = Chart::new(format!("Rounding of one {kernel} in many ways"), String::new(), x, y, all);
    (!chart.series.is_empty()).then_some(Chart { limits, ..chart })
}
