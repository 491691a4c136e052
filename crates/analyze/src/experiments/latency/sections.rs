//! Latency: the ladder, orders and page sizes, translation, chains, and the map over cores.

use membound_core::in_order::InOrder;
use std::collections::BTreeSet;

use crate::answer::Answer;
use crate::chart::{Axis, Band, Chart, LEAST_POINTS, Point, Scale, Series, line, rounded};
use crate::experiments::latency::chases::Latency;
use crate::experiments::latency::map::MapLine;
use crate::experiments::latency::parallelism::{ParallelPoint, Parallelism};
use crate::experiments::latency::rows::LatencyRow;
use crate::experiments::latency::translation::TranslationLevel;
use crate::hierarchy::names::{Level, LevelLatency};
use crate::hierarchy::table::{hits, latencies, sizes};
use crate::missing::reasons;
use crate::rate::Cost;
use crate::section::{Section, Table};
use crate::wording::{SPREAD_CAPTION, gbps, spread_of, with_own_spread, with_spread};
use membound_core::case::{Protocol, USUAL_MEMORY};
use membound_core::kernel::chase::Order;
use membound_core::memory::MemoryKind;
use membound_core::units::{Bytes, BytesPerSecond, Nanoseconds, significant};

const NS: &str = "from a load to the next, ns (log)";

impl Answer for Latency {
    /// What it comes to, in words.
    fn sentences(&self) -> Vec<String> {
        let sentences = [ladder_sentence, translation_sentence, prefetch_sentence, parallelism_sentence, map_sentence];
        sentences.into_iter().filter_map(|sentence| sentence(self)).collect()
    }

    /// All of it in one section.
    fn sections(&self) -> Vec<Section> {
        if self.rows.is_empty() && self.map.is_empty() {
            return Vec::new();
        }
        let tables = [ladder(self), orders(self), translation(self), parallelism(self)];
        let is_summed_up = !self.levels.is_empty() || !self.map.is_empty();
        let rows = if is_summed_up { every_chase(self).wide() } else { every_chase(self) };
        vec![Section {
            id: "latency",
            title: "Latency".into(),
            about: format!("dependent-load latency in ns: {SPREAD_CAPTION}."),
            sentences: self.sentences(),
            tables: tables.into_iter().flatten().chain(map(self)).chain([rows]).collect(),
            charts: [ladder_chart(self), parallelism_chart(self), map_chart(self)].into_iter().flatten().collect(),
            missing: reasons(&self.rows),
            ..Section::default()
        }]
    }
}

fn ladder_sentence(latency: &Latency) -> Option<String> {
    let of_level = |level: &Level| {
        let LevelLatency { ns, cycles, disturbed_ns, .. } = level.latency?;
        let cycles = cycles.map_or(String::new(), |cycles| format!(" ({} cycles)", significant(cycles)));
        let disturbed =
            disturbed_ns.map_or(String::new(), |[disturbed, ..]| match significant(disturbed) == significant(ns[0]) {
                true => ", whether its data were just read or not".into(),
                false => {
                    format!(
                        ", right after its data were read ({} with what others evict meanwhile)",
                        Nanoseconds(disturbed)
                    )
                }
            });
        Some(format!("{} {}{cycles}{disturbed}", level.name, Nanoseconds(ns[0])))
    };
    let parts: Vec<String> = latency.levels.iter().filter_map(of_level).collect();
    (!parts.is_empty()).then(|| format!("Dependent-load latency: {}.", parts.join("; ")))
}

fn translation_sentence(latency: &Latency) -> Option<String> {
    let of_level = |level: &TranslationLevel| {
        let TranslationLevel { pages, reach, miss_ns, .. } = level;
        format!("beyond {pages:.0} pages ({reach}) {}", Nanoseconds(miss_ns[0]))
    };
    let parts: Vec<String> = latency.translation.iter().map(of_level).collect();
    (!parts.is_empty()).then(|| format!("Translating addresses in base pages adds {}.", parts.join(", ")))
}

/// The orders that a sentence holds against each other.
const ORDERS: [Order; 4] = [Order::Forward, Order::Backward, Order::Strided, Order::Random];

/// Chases of one chain over every line, in the usual state of the caches.
fn over_lines(latency: &Latency) -> impl Iterator<Item = &LatencyRow> {
    latency.rows.iter().filter(|row| row.is_over_lines() && !row.is_hit() && row.cost().is_some())
}

/// What an order takes in memory, in usual pages.
fn of_order(latency: &Latency, order: Order, size: Bytes) -> Option<f64> {
    let wanted = (order, size, USUAL_MEMORY.kind);
    let is_ours = |row: &&LatencyRow| {
        (row.chase().order, row.case.working_set, row.case.memory.kind) == wanted
            && row.level.as_deref() == Some("memory")
    };
    over_lines(latency).find(is_ours)?.cost().map(Cost::value)
}

/// The largest working set in memory that all of these orders have.
fn size_of_orders(latency: &Latency) -> Option<Bytes> {
    let sizes: BTreeSet<Bytes> = latency.rows.iter().map(|row| row.case.working_set).collect();
    sizes.into_iter().rev().find(|size| ORDERS.iter().all(|order| of_order(latency, *order, *size).is_some()))
}

/// The same lines in several orders.
fn prefetch_sentence(latency: &Latency) -> Option<String> {
    let size = size_of_orders(latency)?;
    let text = |order: &Order| Some(format!("{order} {}", Nanoseconds(of_order(latency, *order, size)?)));
    let parts: Vec<String> = ORDERS.iter().filter_map(text).collect();
    Some(format!("In memory the order of the same lines decides: over {size} {}.", parts.join(", ")))
}

fn parallelism_sentence(latency: &Latency) -> Option<String> {
    let parallel = latency.parallelism.as_ref()?;
    let Parallelism { knee, greatest_bps, lines_in_flight, most_chains, streaming, is_shared, .. } = parallel;
    let held =
        streaming.map_or(String::new(), |rate| format!("; streaming loads reach {}", BytesPerSecond(rate.value())));
    let least = parallel.least();
    let tried = if knee == most_chains { ", the most tried," } else { "" };
    let rate = BytesPerSecond(*greatest_bps);
    let shared = if *is_shared { ", which others used too," } else { "" };
    Some(format!(
        "One core{shared} has {least}{lines_in_flight:.0} lines in flight: with {knee} independent chains{tried} it reads {rate} of random lines{held}."
    ))
}

fn map_sentence(latency: &Latency) -> Option<String> {
    let of_line = |line: &MapLine| {
        let (name, MapLine { max, avg, min, sd, cores, .. }) = (line.name(), line);
        match &cores[..] {
            [(cpu, _)] => format!("{name}: {avg:.1} ns from CPU {cpu}"),
            _ => {
                let count = cores.len();
                format!("{name}: {avg:.1} ns on average over {count} CPUs, {min:.1} to {max:.1}, sd {sd:.1}")
            }
        }
    };
    let parts: Vec<String> = latency.map.iter().map(of_line).collect();
    (!parts.is_empty()).then(|| format!("Memory latency from CPU to node: {}.", parts.join("; ")))
}

/// The ladder, where no other table has it.
fn ladder(latency: &Latency) -> Option<Table> {
    let levels = &latency.levels;
    let hits = hits(levels);
    let about =
        format!("The ladder, lines in random order: latencies and capacities are fitted to the whole curve{hits}");
    let table = sizes(
        latencies(Table::new(about).left("level", levels.iter().map(|level| level.name.clone())), levels),
        levels,
    );
    (!levels.is_empty() && !latency.is_beside_bandwidth).then(|| table.without_blanks())
}

/// Chases of one chain over every line, in the usual state of the caches: of each order and cache the one nearest to the cache's
/// middle, since others evict most near its end; in memory the working set of the sentence about orders, or the nearest to it. Nothing where
/// there is one order alone, or no ladder.
fn orders(latency: &Latency) -> Option<Table> {
    let key = |row: &LatencyRow| (row.case.memory.kind, row.chase().order);
    let rows = || over_lines(latency);
    let keys: BTreeSet<(MemoryKind, Order)> = rows().map(key).collect();
    let about = "By order and page size, ns, undisturbed, each of one working set, in the middle of each cache and in memory in sets \
                 about alike, with what others evict meanwhile: what prefetchers hide of the latency, and what translating addresses \
                 adds. A level's own latency is fitted to the curve";
    let mut table = Table::new(about)
        .left("memory", keys.iter().map(|(memory, _)| memory.to_string()))
        .left("order", keys.iter().map(|(_, order)| order.to_string()));
    for level in &latency.levels {
        let there = || rows().filter(|row| row.level.as_ref() == Some(&level.name)).map(|row| row.case.working_set);
        let most = size_of_orders(latency).or_else(|| there().max());
        let target = match level.capacity {
            Some(_) => (level.from.0.max(1) as f64 * level.to.0.max(1) as f64).sqrt(),
            None => most.map_or(1.0, |size| size.0 as f64),
        };
        let off = |row: &LatencyRow| (row.case.working_set.0 as f64 / target).ln().abs();
        let row = |own: &(MemoryKind, Order)| {
            let ours = rows().filter(|row| key(row) == *own && row.level.as_ref() == Some(&level.name));
            ours.min_by(|a, b| off(a).total_cmp(&off(b)))
        };
        let figure = |own| row(own)?.latency_ns.map(|cost| significant(cost.value()));
        let sizes: BTreeSet<Bytes> = keys.iter().filter_map(|own| Some(row(own)?.case.working_set)).collect();
        let head = match sizes.iter().collect::<Vec<_>>()[..] {
            [only] => format!("{}\n{only}", level.name),
            _ => level.name.clone(),
        };
        table = table.right(&head, keys.iter().map(figure));
    }
    (keys.len() > 1 && !latency.levels.is_empty()).then_some(table)
}

fn translation(latency: &Latency) -> Option<Table> {
    let levels = &latency.translation;
    let pages = |level: &TranslationLevel| {
        let [low, high] = level.pages_ci95;
        format!("{:.0} {}", level.pages, spread_of([level.pages, low, high]))
    };
    let about = "Translation of addresses. One line in each base page, against as many lines side by side: pages that a level of \
                 translation buffers (TLB) holds, and what a load takes longer beyond it";
    let table = Table::new(about)
        .left("buffer", levels.iter().map(|level| format!("level {}", level.level)))
        .right("pages", levels.iter().map(pages))
        .right("reach", levels.iter().map(|level| level.reach.to_string()))
        .right("ns beyond", levels.iter().map(|level| with_spread(level.miss_ns)))
        .right("cycles", levels.iter().map(|level| level.miss_cycles.map(significant)));
    (!levels.is_empty()).then_some(table)
}

fn parallelism(latency: &Latency) -> Option<Table> {
    let Parallelism { points, working_set, memory, line, .. } = latency.parallelism.as_ref()?;
    let about = format!(
        "Memory-level parallelism. Independent chains through {working_set} of {memory} by one core: ns from link to link, and \
         bytes per second by Little's law (chains x {line} / latency)"
    );
    let table = Table::new(about)
        .right("chains", points.iter().map(|point| point.chains.to_string()))
        .right("ns", points.iter().map(|point| with_own_spread(&point.latency_ns)))
        .right("GB/s", points.iter().map(|point| gbps(point.bps)));
    Some(table)
}

fn map(latency: &Latency) -> Option<Table> {
    let lines = &latency.map;
    let figures = |figure: fn(&MapLine) -> f64| lines.iter().map(move |line| format!("{:.1}", figure(line)));
    let about = "Memory latency by CPU and node, ns over CPUs: greatest, mean, least, standard deviation. Of each CPU the mean \
                 over blocks within which even-numbered lines were permuted";
    let table = Table::new(about)
        .left("memory", lines.iter().map(MapLine::name))
        .right("CPUs", lines.iter().map(|line| line.cores.len().to_string()))
        .right("max", figures(|line| line.max))
        .right("avg", figures(|line| line.avg))
        .right("min", figures(|line| line.min))
        .right("sd", figures(|line| line.sd));
    (!lines.is_empty()).then_some(table)
}

/// A line a row.
fn every_chase(latency: &Latency) -> Table {
    let rows = &latency.rows;
    let level = |row: &LatencyRow| {
        let reading = row.last_level.map_or(String::new(), |reading| format!(", {reading}"));
        row.level.clone().unwrap_or_default() + &reading
    };
    Table::new("Every chase: ns from a load to the next of its chain")
        .left("memory", rows.iter().map(|row| row.case.memory.kind.to_string()))
        .left("order", rows.iter().map(|row| row.chase().order.to_string()))
        .right("stride", rows.iter().map(|row| row.chase().stride_bytes.to_string()))
        .right("chains", rows.iter().map(|row| row.chase().chains.to_string()))
        .right("size", rows.iter().map(|row| row.case.working_set.to_string()))
        .left("level", rows.iter().map(level))
        .right("ns", rows.iter().map(|row| row.latency_ns.as_ref().map(with_own_spread)))
        .right("cycles", rows.iter().map(|row| row.latency_cycles.map(significant)))
        .flags(rows)
        .folded()
}

/// Nanoseconds over working sets: a line for each memory kind and order, and one for what was just read.
fn ladder_chart(latency: &Latency) -> Option<Chart> {
    let is_plain = |row: &&LatencyRow| row.is_over_lines() && row.latency_ns.is_some();
    let is_just_read = |row: &LatencyRow| row.case.protocol == Protocol::Refilled;
    let key = |row: &LatencyRow| (row.case.memory.kind, row.chase().order, is_just_read(row));
    let rows = || latency.rows.iter().filter(is_plain);
    let keys: BTreeSet<(MemoryKind, Order, bool)> = rows().map(key).collect();
    let kinds: BTreeSet<MemoryKind> = keys.iter().map(|key| key.0).collect();
    let point = |row: &LatencyRow| -> Option<Point> {
        let [median, low, high] = row.latency_ns?.interval().map(rounded);
        Some((row.case.working_set.0 as f64, median, low, high, row.quality.samples))
    };
    let series = |own: &(MemoryKind, Order, bool)| {
        let mut points: Vec<Point> = rows().filter(|row| key(row) == *own).filter_map(point).collect();
        points.order_by(|a, b| a.0.total_cmp(&b.0));
        let (memory, order, is_just_read) = *own;
        Series {
            colour: order as usize + if is_just_read { Order::ALL.len() } else { 0 },
            dash: kinds.iter().position(|kind| *kind == memory).unwrap_or(0),
            symbol: usize::from(is_just_read),
            ..line(format!("{memory} {order}{}", if is_just_read { ", just read" } else { "" }), points)
        }
    };
    let series: Vec<Series> = keys.iter().map(series).filter(|series| series.points.len() > 1).collect();
    let is_curve = series.iter().any(|series| series.points.len() >= LEAST_POINTS);
    let about = "One chain. Just read: the working set was read right before each sample, so that what others evict from the \
                 last cache does not show.";
    let (x, y) = (Axis::new("working set", "", Scale::Sizes), Axis::new(NS, "ns", Scale::Log));
    let chart = Chart::new("Latency over working set".into(), about.into(), x, y, series);
    is_curve.then(|| Chart { bands: bands(&latency.levels), ..chart })
}

/// Each level from the end of the one before to its own.
fn bands(levels: &[Level]) -> Vec<Band> {
    let mut from = levels.first().map_or(Bytes(0), |level| level.from);
    let band = |level: &Level| {
        let to = level.capacity.unwrap_or(level.to).max(from);
        let band = Band { name: level.name.clone(), from: from.0 as f64, to: to.0 as f64 };
        from = to;
        band
    };
    levels.iter().map(band).collect()
}

/// Lines a second over independent chains.
fn parallelism_chart(latency: &Latency) -> Option<Chart> {
    let Parallelism { points, working_set, line: bytes, .. } = latency.parallelism.as_ref()?;
    let point = |point: &ParallelPoint| {
        let [value, low, high] = point.latency_ns.interval();
        let rate = |ns: f64| rounded(point.bps * value / ns / 1e9);
        (f64::from(point.chains), rate(value), rate(high), rate(low), 0)
    };
    let points: Vec<Point> = points.iter().map(point).collect();
    let (first, last) = (*points.first()?, *points.last()?);
    let ideal = |chains: f64| rounded(first.1 * chains / first.0);
    let straight = [first, last].map(|(chains, ..)| (chains, ideal(chains), ideal(chains), ideal(chains), 0));
    let series = vec![
        line("measured".into(), points),
        Series { colour: 7, dash: 1, ..line("in proportion".into(), straight.to_vec()) },
    ];
    let about = format!(
        "Random lines of {working_set} by one core: chains x {bytes} / latency (Little's law). Where the curve bends, its miss \
         buffers are full."
    );
    let x = Axis::new("independent chains", "chains", Scale::Linear);
    let y = Axis::new("lines read, GB/s", "GB/s", Scale::Linear);
    Some(Chart::new("Memory-level parallelism".into(), about, x, y, series))
}

/// Memory latency of each CPU: a line for each node and memory kind.
fn map_chart(latency: &Latency) -> Option<Chart> {
    let series = |(index, of_node): (usize, &MapLine)| {
        let at = |&(cpu, ns): &(u32, f64)| (f64::from(cpu), rounded(ns), rounded(ns), rounded(ns), 0);
        let points = of_node.cores.iter().map(at).collect();
        Series { colour: index, symbol: index, ..line(of_node.name(), points) }
    };
    let series: Vec<Series> = latency.map.iter().enumerate().map(series).collect();
    let about = "Mean over blocks; within a block, every other line is visited, in random order.".into();
    let (x, y) = (Axis::new("CPU", "", Scale::Close), Axis::new("memory latency, ns", "ns", Scale::Close));
    let is_chart = series.iter().any(|series| series.points.len() > 1);
    is_chart.then(|| Chart::new("Memory latency by CPU and node".into(), about, x, y, series))
}
