//! The roofline: ceilings, and kernels below them. What a sheet promises.

use super::limits::known;
use super::{Column, head, joined, note, number, paragraph, table, threads, warnings};
use crate::kernel::StoreKind;
use crate::model::roofline::{ArithmeticCeiling, BandwidthCeiling, RooflinePoint};
use crate::model::{Report, Row};
use crate::units::{percent, significant};
use crate::view::gbps;

/// The answer, ceilings and kernels of every thread count, what to distrust.
pub fn roofline(report: &Report) -> String {
    let section = section(report);
    if section.is_empty() {
        return "No roofline: neither arithmetic nor a kernel with arithmetic was measured.\n".into();
    }
    let answer = report.roofline.answer().map_or_else(String::new, |answer| paragraph(&answer, ""));
    joined([answer, section, warnings(report)])
}

/// For the end of a whole run: the answer, and each kernel's best way in the first level and in memory, by all threads.
pub(super) fn brief(report: &Report) -> String {
    let roofline = &report.roofline;
    let (Some(answer), Some(most)) = (roofline.answer(), roofline.threads().last().copied()) else {
        return String::new();
    };
    let mut best: Vec<(RooflinePoint, &Row)> = Vec::new();
    for (point, row) in points_of(report, most).filter(|(point, _)| point.level == "L1" || point.level == "memory") {
        match best.iter_mut().find(|(other, held)| (&other.level, &held.kernel) == (&point.level, &row.kernel)) {
            Some(held) if held.0.flops_per_s[0] >= point.flops_per_s[0] => {}
            Some(held) => *held = (point, row),
            None => best.push((point, row)),
        }
    }
    let table = if best.is_empty() { String::new() } else { below_the_roof(most, &best) };
    head("Roofline") + &paragraph(&answer, "") + &table
}

/// Empty where nothing was computed.
pub(super) fn section(report: &Report) -> String {
    let roofline = &report.roofline;
    if roofline.arithmetic.is_empty() && roofline.points.is_empty() {
        return String::new();
    }
    let counts = roofline.threads();
    let parts =
        counts.iter().map(|&count| arithmetic(report, count) + &bandwidth(report, count) + &points(report, count));
    parts.chain([known(&report.limits)]).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn share(measured: Option<f64>, specified: Option<f64>) -> String {
    number(measured.zip(specified).map(|(measured, specified)| measured / specified), percent)
}

fn arithmetic(report: &Report, count: usize) -> String {
    let ours: Vec<&ArithmeticCeiling> =
        report.roofline.arithmetic.iter().filter(|ceiling| ceiling.threads == count).collect();
    if ours.is_empty() {
        return String::new();
    }
    let measured = |ceiling: &&ArithmeticCeiling| ceiling.measured.map(|rate| rate.best);
    let giga = |value: Option<f64>| number(value.map(|flops| flops / 1e9), significant);
    let columns = [
        Column::left("arithmetic", ours.iter().map(|ceiling| ceiling.balance.to_string())),
        Column::left("width", ours.iter().map(|ceiling| ceiling.width.to_string())),
        Column::left("element", ours.iter().map(|ceiling| ceiling.element.to_string())),
        Column::right("GF/s", ours.iter().map(|ceiling| giga(measured(ceiling)))),
        Column::right("specified", ours.iter().map(|ceiling| giga(ceiling.specified))),
        Column::right("reached", ours.iter().map(|ceiling| share(measured(ceiling), ceiling.specified))),
    ];
    head(&format!("Arithmetic in registers, {}", threads(count))) + &note("The best sample of each.") + &table(&columns)
}

fn bandwidth(report: &Report, count: usize) -> String {
    let ours: Vec<&BandwidthCeiling> =
        report.roofline.bandwidth.iter().filter(|ceiling| ceiling.threads == count).collect();
    if ours.is_empty() {
        return String::new();
    }
    let store =
        |ceiling: &&BandwidthCeiling| if ceiling.kernel == "load" { "-".into() } else { ceiling.store.to_string() };
    let columns = [
        Column::left("level", ours.iter().map(|ceiling| ceiling.level.clone())),
        Column::left("kernel", ours.iter().map(|ceiling| ceiling.kernel.clone())),
        Column::left("stores", ours.iter().map(store)),
        Column::left("width", ours.iter().map(|ceiling| ceiling.width.to_string())),
        Column::right("GB/s", ours.iter().map(|ceiling| gbps(ceiling.measured.best))),
        Column::right("specified", ours.iter().map(|ceiling| number(ceiling.specified, gbps))),
        Column::right("reached", ours.iter().map(|ceiling| share(Some(ceiling.measured.best), ceiling.specified))),
    ];
    let about = "The best sample of each: bytes of loads and stores in L1, of the bus beyond.";
    "\n".to_string() + &head(&format!("Bandwidth, {}", threads(count))) + &note(about) + &table(&columns)
}

fn points(report: &Report, count: usize) -> String {
    let ours: Vec<(RooflinePoint, &Row)> = points_of(report, count).collect();
    if ours.is_empty() { String::new() } else { below_the_roof(count, &ours) }
}

fn points_of(report: &Report, count: usize) -> impl Iterator<Item = (RooflinePoint, &Row)> {
    let with_row = |point: &RooflinePoint| Some((point.clone(), report.rows.get(point.row)?));
    report.roofline.points.iter().filter_map(with_row).filter(move |(_, row)| row.threads == count)
}

fn below_the_roof(count: usize, ours: &[(RooflinePoint, &Row)]) -> String {
    let name = |row: &Row| match row.store {
        StoreKind::Regular => format!("{} {}", row.kernel, row.width),
        store => format!("{} {} {store}", row.kernel, row.width),
    };
    let below = |point: &RooflinePoint| format!("{}{}", point.ceiling, if point.is_partial { "*" } else { "" });
    let columns = [
        Column::left("kernel", ours.iter().map(|(_, row)| name(row))),
        Column::left("level", ours.iter().map(|(point, _)| point.level.clone())),
        Column::right("flop/B", ours.iter().map(|(point, _)| significant(point.intensity))),
        Column::right("GF/s", ours.iter().map(|(point, _)| significant(point.flops_per_s[0] / 1e9))),
        Column::right("roof", ours.iter().map(|(point, _)| significant(point.predicted / 1e9))),
        Column::right("reached", ours.iter().map(|(point, _)| percent(point.fraction[0]))),
        Column::left("below", ours.iter().map(|(point, _)| below(point))),
    ];
    let about =
        "GF/s: median. The roof is what arithmetic and bandwidth, each measured alone, allow for the kernel's mix.";
    let is_partial = ours.iter().any(|(point, _)| point.is_partial);
    let half = if is_partial { " *: only one of the two is known." } else { "" };
    let title = format!("Kernels below the roof, {}", threads(count));
    "\n".to_string() + &head(&title) + &note(&format!("{about}{half}")) + &table(&columns)
}
