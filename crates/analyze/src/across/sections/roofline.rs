//! The roofline: ceilings, and kernels below them.

use crate::across::limits::Limits;
use crate::across::roofline::{ArithmeticCeiling, BandwidthCeiling, Roofline, RooflinePoint, ScatteredCeiling};
use crate::across::sections::{limits, warnings};
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::section::{Document, Room, Section, Table};
use crate::warning::Warning;
use crate::wording::{gbps, threads};
use membound_core::in_order::InOrder;
use membound_core::kernel::StoreKind;
use membound_core::units::{percent, significant};

const ABOUT: &str = "What a loop computes over what it moves. Its roof is what arithmetic and bandwidth, each measured alone, \
    allow for its own mix of instructions and of reads and writes.";

/// The answer, ceilings and kernels of every thread count, limits, what to distrust.
pub fn document(roofline: &Roofline, rows: &[BandwidthRow], known: &Limits, distrust: &[Warning]) -> Document {
    let section = section(roofline, rows);
    if section.is_empty() {
        let nothing = "No roofline: neither arithmetic nor a kernel with arithmetic was measured.";
        return Document::new("Roofline", vec![nothing.into()], []);
    }
    let sections = [section, limits::section(known), warnings::section(distrust)];
    Document::new("Roofline", roofline.answer().into_iter().collect(), sections)
}

/// The ceilings and kernels of every thread count. Empty where nothing was computed.
pub fn section(roofline: &Roofline, rows: &[BandwidthRow]) -> Section {
    let points = points(roofline, rows);
    let tables = [arithmetic(roofline), bandwidth(roofline), without_prefetch(roofline), below_the_roof(&points)];
    let (id, title) = ("roofline", "Roofline".into());
    let tables: Vec<Table> = tables.into_iter().filter(|table| table.height() > 0).collect();
    if tables.is_empty() {
        return Section::default();
    }
    let sentences = roofline.answer().into_iter().collect();
    Section { id, title, about: ABOUT.into(), sentences, tables, ..Section::default() }
}

/// For the end of a whole run: the answer, and each kernel's best way in the first level and in memory, by all threads.
pub fn brief(roofline: &Roofline, rows: &[BandwidthRow]) -> Section {
    let (Some(about), Some(most)) = (roofline.answer(), roofline.threads().last().copied()) else {
        return Section::default();
    };
    let mut best: Vec<(&RooflinePoint, &BandwidthRow)> = Vec::new();
    let is_wanted = |(point, row): &(&RooflinePoint, &BandwidthRow)| {
        row.threads() == most && ["L1", "memory"].contains(&&*point.level)
    };
    for (point, row) in points(roofline, rows).into_iter().filter(is_wanted) {
        match best.iter_mut().find(|(other, held)| (&other.level, held.kernel()) == (&point.level, row.kernel())) {
            Some(held) if held.0.flops_per_s[0] >= point.flops_per_s[0] => {}
            Some(held) => *held = (point, row),
            None => best.push((point, row)),
        }
    }
    let tables = if best.is_empty() { Vec::new() } else { vec![below_the_roof(&best)] };
    // The answer is to be read even where there is no table.
    let notes = if tables.is_empty() { vec![about.clone()] } else { Vec::new() };
    let about = if tables.is_empty() { String::new() } else { about };
    Section { id: "roofline", title: "Roofline".into(), about, tables, notes, ..Section::default() }
}

/// A table whose lines stand below their thread counts.
fn by_threads<T>(caption: &str, lines: &[T], count: impl Fn(&T) -> usize) -> Table {
    let is_first = |index: &usize| *index == 0 || count(&lines[*index - 1]) != count(&lines[*index]);
    let titles = (0..lines.len()).filter(is_first).map(|index| (index, threads(count(&lines[index]))));
    Table { titles: titles.collect(), ..Table::new(caption) }
}

fn share(measured: Option<f64>, specified: Option<f64>) -> Option<String> {
    measured.zip(specified).map(|(measured, specified)| percent(measured / specified))
}

fn arithmetic(roofline: &Roofline) -> Table {
    let mut all: Vec<&ArithmeticCeiling> = roofline.arithmetic.iter().collect();
    all.order_by_key(|ceiling| ceiling.threads);
    let measured = |ceiling: &&ArithmeticCeiling| ceiling.measured.map(|rate| rate.best);
    let giga = |value: Option<f64>| value.map(|flops| significant(flops / 1e9));
    by_threads("Arithmetic in registers: the best sample of each", &all, |ceiling| ceiling.threads)
        .left("arithmetic", all.iter().map(|ceiling| ceiling.balance.to_string()))
        .left("width", all.iter().map(|ceiling| ceiling.width.to_string()))
        .left("element", all.iter().map(|ceiling| ceiling.element.to_string()))
        .right("GF/s", all.iter().map(|ceiling| giga(measured(ceiling))))
        .right("specified", all.iter().map(|ceiling| giga(ceiling.specified)))
        .right("reached", all.iter().map(|ceiling| share(measured(ceiling), ceiling.specified)))
}

fn bandwidth(roofline: &Roofline) -> Table {
    let mut all: Vec<&BandwidthCeiling> = roofline.bandwidth.iter().collect();
    all.order_by_key(|ceiling| ceiling.threads);
    let store = |ceiling: &&BandwidthCeiling| (ceiling.kernel != "load").then(|| ceiling.store.to_string());
    let caption =
        "Bandwidth without arithmetic, the best sample of each: bytes of loads and stores in L1, of the bus beyond";
    by_threads(caption, &all, |ceiling| ceiling.threads)
        .left("level", all.iter().map(|ceiling| ceiling.place().to_string()))
        .left("kernel", all.iter().map(|ceiling| ceiling.kernel.clone()))
        .left("stores", all.iter().map(store))
        .left("width", all.iter().map(|ceiling| ceiling.width.to_string()))
        .right("GB/s", all.iter().map(|ceiling| gbps(ceiling.measured.best)))
        .right("specified", all.iter().map(|ceiling| ceiling.specified.map(gbps)))
        .right("reached", all.iter().map(|ceiling| share(Some(ceiling.measured.best), ceiling.specified)))
}

/// Loads in random order.
fn without_prefetch(roofline: &Roofline) -> Table {
    let all: Vec<&ScatteredCeiling> = roofline.without_prefetch.iter().collect();
    let interval = |[_, low, high]: [f64; 3]| format!("[{}, {}]", gbps(low), gbps(high));
    let caption = "Without prefetch: whole lines from memory in random order. Chains: loads of a thread that do not wait for each \
                   other.";
    by_threads(caption, &all, |ceiling| ceiling.threads)
        .left("order", all.iter().map(|ceiling| ceiling.order.to_string()))
        .right("chains", all.iter().map(|ceiling| ceiling.chains.to_string()))
        .right("GB/s", all.iter().map(|ceiling| gbps(ceiling.bps[0])))
        .right("interval", all.iter().map(|ceiling| interval(ceiling.bps)))
}

/// The kernels with their rows, by threads.
fn points<'a>(roofline: &'a Roofline, rows: &'a [BandwidthRow]) -> Vec<(&'a RooflinePoint, &'a BandwidthRow)> {
    let mut points: Vec<_> = roofline.points.iter().filter_map(|point| Some((point, rows.get(point.row)?))).collect();
    points.order_by_key(|(_, row)| row.threads());
    points
}

fn below_the_roof(points: &[(&RooflinePoint, &BandwidthRow)]) -> Table {
    let name = |row: &BandwidthRow| match row.store() {
        StoreKind::Regular => format!("{} {}", row.kernel(), row.width()),
        store => format!("{} {} {store}", row.kernel(), row.width()),
    };
    let below = |point: &RooflinePoint| {
        let marks = [(point.is_own, "+"), (point.is_partial, "*")];
        marks.iter().filter(|(is_so, _)| *is_so).fold(point.ceiling.clone(), |text, (_, mark)| text + mark)
    };
    let interval = |[_, low, high]: [f64; 3]| format!("[{}, {}]", percent(low), percent(high));
    let own = "+: its own figure is the roof: no other kernel showed as much, and its share says nothing.";
    let own = points.iter().any(|(point, _)| point.is_own).then(|| own.into());
    let half = points.iter().any(|(point, _)| point.is_partial).then(|| "*: only one of the two is known.".into());
    let caption = "Kernels below the roof. GF/s: undisturbed. The roof is what arithmetic and bandwidth, each measured alone, \
                   allow for the kernel's mix.";
    by_threads(caption, points, |(_, row)| row.threads())
        .left("kernel", points.iter().map(|(_, row)| name(row)))
        .left("level", points.iter().map(|(point, _)| point.level.clone()))
        .right("flop/B", points.iter().map(|(point, _)| significant(point.intensity)))
        .right("GF/s", points.iter().map(|(point, _)| significant(point.flops_per_s[0] / 1e9)))
        .right("roof", points.iter().map(|(point, _)| significant(point.predicted / 1e9)))
        .right("reached", points.iter().map(|(point, _)| percent(point.fraction[0])))
        .right("interval", points.iter().map(|(point, _)| interval(point.fraction)))
        .in_room(Room::Wide)
        .left("below", points.iter().map(|(point, _)| below(point)))
        .folded()
        .with_notes(own.into_iter().chain(half).collect())
}
