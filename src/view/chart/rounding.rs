//! How far sums lie from the exact one, over the condition of what is added up.

use super::{Axis, Chart, Limit, Scale, Series, Shape, line, rounded};
use crate::model::Report;
use crate::model::rounding::RoundingRow;

/// A name, and which ways it stands for.
type Group = (&'static str, fn(&RoundingRow) -> bool);

/// A chart for each kernel that is a sum; a dot each way.
pub(in crate::view) fn rounding(report: &Report) -> Vec<Chart> {
    let mut kernels: Vec<&str> = report.rounding.verdicts.iter().map(|verdict| verdict.kernel.as_str()).collect();
    kernels.dedup();
    kernels.into_iter().filter_map(|kernel| of_kernel(report, kernel)).collect()
}

fn of_kernel(report: &Report, kernel: &str) -> Option<Chart> {
    let rows: Vec<&RoundingRow> = report.rounding.rows.iter().filter(|row| row.kernel == kernel).collect();
    let dot = |row: &&&RoundingRow| {
        // A logarithmic axis has no zero: exact results stand at a half.
        let ulps = row.ulps.map(|ulps| rounded((ulps as f64).max(0.5)))?;
        Some((rounded(row.condition?.max(1.0)), ulps, ulps, ulps, row.quality.samples))
    };
    let series = |(colour, (name, is_ours)): (usize, &Group)| {
        let points = rows.iter().filter(|row| is_ours(row)).filter_map(|row| dot(&row)).collect();
        Series { shape: Shape::Dot, colour, symbol: colour, ..line((*name).into(), points) }
    };
    const KINDS: [Group; 3] = [
        ("one chain", |row| row.unroll == 1 && row.order != crate::plan::SumOrder::Pairwise),
        ("partial sums", |row| row.unroll > 1 && row.order != crate::plan::SumOrder::Pairwise),
        ("pairwise", |row| row.order == crate::plan::SumOrder::Pairwise),
    ];
    let all: Vec<Series> = KINDS.iter().enumerate().map(series).filter(|series| !series.points.is_empty()).collect();
    let x = Axis::new("condition: sum of magnitudes over magnitude of the sum (log)", "", Scale::Log);
    let y = Axis::new("ULP from the exact sum (log; 0.5: exact)", "ULP", Scale::Log);
    let limits = vec![Limit { name: "no correct digit".into(), at: rounded(2f64.powi(52)) }];
    let chart = Chart::new(format!("Rounding of one {kernel} in many ways"), String::new(), x, y, all);
    (!chart.series.is_empty()).then_some(Chart { limits, ..chart })
}
