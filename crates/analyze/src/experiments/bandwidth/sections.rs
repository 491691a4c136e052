//! What kernels over streams tell: the levels of the memory system, store kinds, scaling over threads, each row.

use membound_core::in_order::InOrder;
use std::collections::{BTreeSet, HashMap};

use crate::experiments::bandwidth::answer::Bandwidth;
use crate::experiments::bandwidth::charts;
use crate::experiments::bandwidth::rows::{BandwidthFigures, BandwidthRow};
use crate::experiments::bandwidth::stores::{Crossover, StoreGroup, fraction, instead_sentence, store_groups};
use crate::experiments::bandwidth::stream::Scaling;
use crate::hierarchy::names::{Level, Levels};
use crate::hierarchy::table::{hits, latencies, sizes};
use crate::missing::{Missing, gathered};
use crate::row::Metric;
use crate::section::{Cell, Room, Section, Table};
use crate::wording::{SPREAD_CAPTION, element_note, gbps, ratio, spread, threads};
use membound_core::case::{Protocol, USUAL_MEMORY};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{LoadKind, StoreKind};
use membound_core::units::{Bytes, BytesPerSecond, Hertz, percent, significant};

/// How fast memory is, and how threads and stores change that.
pub(crate) fn sentences(found: &Bandwidth<'_>) -> Vec<String> {
    [level_sentence(found), threads_sentence(found), store_sentence(found)].into_iter().flatten().collect()
}

/// What is fastest at the level of the largest working set, where there is no more to say: of the figures with an interval, if any has
/// one.
pub(crate) fn fastest(found: &Bandwidth<'_>) -> Option<String> {
    let measured = || {
        let rows = found.rows.iter().filter(|row| row.quality.is_measured());
        rows.filter_map(|row| Some((row, row.payload_bps?)))
    };
    let (largest, _) = measured().max_by_key(|(row, _)| row.case.working_set)?;
    let is_there = |row: &BandwidthRow| match &largest.level {
        Some(level) => row.level.as_ref() == Some(level),
        None => row.case.working_set == largest.case.working_set,
    };
    let there: Vec<_> = measured().filter(|(row, _)| is_there(row)).collect();
    let is_sure = there.iter().any(|(_, rate)| rate.has_interval());
    let (row, rate) = there
        .into_iter()
        .filter(|(_, rate)| rate.has_interval() || !is_sure)
        .max_by(|(_, a), (_, b)| a.value().total_cmp(&b.value()))?;
    let (what, many, size) = (BandwidthFigures::what(row), threads(row.threads()), row.case.working_set);
    let place = row.level.as_ref().map_or(String::new(), |level| format!(" in {level}"));
    let about = if is_sure { "" } else { "about " };
    Some(format!("Fastest{place}: {what} with {many} over {size}, {about}{} of payload.", BytesPerSecond(rate.value())))
}

/// The levels, store kinds side by side, scaling, samples.
pub(crate) fn sections(found: &Bandwidth<'_>) -> Vec<Section> {
    let all = [by_level(found), store_kinds(found), scaling(found), samples(found)];
    all.into_iter().filter(|section| !section.is_empty()).collect()
}

/// `57.3 GB/s`, of a kernel at a level.
fn rate(found: &Bandwidth<'_>, level: &Level, kernel: &str, threads: usize) -> Option<BytesPerSecond> {
    found.best(level, kernel, threads)?.0.payload_bps.map(|rate| BytesPerSecond(rate.value()))
}

fn level_sentence(found: &Bandwidth<'_>) -> Option<String> {
    let load = |level: &Level| Some((level.name.clone(), found.best(level, "load", 1)?.0));
    one_core(&found.levels.iter().filter_map(load).collect::<Vec<_>>())
}

/// What it loads from each level, at the clock that it had meanwhile.
fn one_core(loads: &[(String, &BandwidthRow)]) -> Option<String> {
    let part = |(level, row): &(String, &BandwidthRow)| {
        let speed = BytesPerSecond(row.payload_bps?.value());
        Some(format!("{speed} from {level}"))
    };
    let parts: Vec<String> = loads.iter().filter_map(part).collect();
    let clock = loads.iter().find_map(|(_, row)| row.core_clock_hz);
    let clock = clock.map_or(String::new(), |hz| format!(" at {}", Hertz(hz)));
    (!parts.is_empty()).then(|| format!("One core{clock} loads {}.", parts.join(", ")))
}

fn threads_sentence(found: &Bandwidth<'_>) -> Option<String> {
    let threads = found.most_threads();
    let memory = found.levels.iter().find(|level| level.name == "memory")?;
    let (one, all) = (rate(found, memory, "load", 1)?, rate(found, memory, "load", threads)?);
    if threads == 1 {
        return None;
    }
    let mut text = format!("{threads} threads load {all} from memory, {} x one thread", significant(all.0 / one.0));
    if let Some(modes) = found.best(memory, "load", threads)?.0.modes {
        text.push_str(&format!(
            "; it flips between {} and {} ({:.0} % of samples fast)",
            BytesPerSecond(modes.low),
            BytesPerSecond(modes.high),
            modes.high_share * 100.0
        ));
    }
    Some(text + ".")
}

fn store_sentence(found: &Bandwidth<'_>) -> Option<String> {
    let of = |count: usize| {
        let is_ours = |c: &&Crossover| c.kernel == "copy" && c.threads == count && c.store == StoreKind::Nt;
        let place = |c: &Crossover| match c.memory == USUAL_MEMORY {
            true => threads(count),
            false => format!("{}, {}", threads(count), c.memory),
        };
        found.crossovers.iter().find(is_ours).map(|c| format!("{} ({})", c.says, place(c)))
    };
    let mut parts: Vec<String> = [1, found.most_threads()].into_iter().filter_map(of).collect();
    parts.dedup();
    match parts.is_empty() {
        true => instead_sentence(found.rows, found.crossovers),
        false => Some(format!("Copying, {}.", parts.join("; "))),
    }
}

fn by_level(found: &Bandwidth<'_>) -> Section {
    let is_bare = found.levels.iter().all(|level| level.best.is_empty());
    Section {
        id: "bandwidth",
        title: "Levels".into(),
        about: format!(
            "GB/s of payload: what the program reads and writes, without write-allocates. Regular stores{}, {SPREAD_CAPTION}{}.",
            if has_other_stores(found) { " where a column names no others" } else { "" },
            if is_bare { "" } else { hits(found.levels) }
        ),
        sentences: [level_sentence(found), threads_sentence(found)].into_iter().flatten().collect(),
        tables: if is_bare {
            Vec::new()
        } else {
            hierarchy(found).into_iter().chain([level_table(found)]).chain(shares(found)).collect()
        },
        notes: if is_bare { Vec::new() } else { conflicts(found.hierarchy) },
        charts: [charts::over_working_sets(found), charts::widths(found)].concat(),
        ..Section::default()
    }
}

/// The levels: size, and latency where that was measured; nothing where sizes are all there is, and only claimed.
fn hierarchy(found: &Bandwidth<'_>) -> Option<Table> {
    let levels = found.levels;
    let names = Table::default().left("", levels.iter().map(|level| level.name.clone()));
    let load = |level: &Level| found.best(level, "load", 1).and_then(|best| best.0.payload_bps);
    let is_measured = |level: &Level| level.capacity.is_some() || level.latency.is_some() || load(level).is_some();
    let table = latencies(sizes(names, levels), levels)
        .right("load, 1 thread", levels.iter().map(|level| load(level).map(|rate| gbps(rate.value()))));
    levels.iter().any(is_measured).then(|| table.without_blanks())
}

/// What the curves say that the claims do not, and how sure a level is that is not plain.
fn conflicts(found: &Levels) -> Vec<String> {
    const SURE: f64 = 0.99;
    let translation = found.translated_beyond.iter().map(|[size, ..]| {
        format!("beyond {size} dependent loads take longer inside a level: probably address translation")
    });
    let doubted = found.all.iter().filter_map(|level| {
        let probability = level.probability.filter(|probability| *probability < SURE)?;
        Some(format!("{}: there is such a level with a probability of {}", level.name, percent(probability)))
    });
    let unseen = found.unseen.iter().map(|name| format!("{name} is claimed, and no curve shows where it ends"));
    translation.chain(doubted).chain(unseen).collect()
}

/// Kernels of the table of levels: the usual four, or all where none of those was measured.
fn level_kernels(found: &Bandwidth<'_>) -> Vec<String> {
    let names: BTreeSet<&String> = found.levels.iter().flat_map(|l| &l.best).map(|b| &b.kernel).collect();
    let mut kernels: Vec<String> = names.into_iter().cloned().collect();
    kernels.order_by_key(|name| Kernel::place(name));
    let usual = kernels.iter().filter(|name| ["load", "store", "copy", "triad"].contains(&name.as_str()));
    let usual: Vec<String> = usual.cloned().collect();
    if usual.is_empty() { kernels } else { usual }
}

/// Whether a kernel was not measured with regular stores, so that another way stands for it.
fn has_other_stores(found: &Bandwidth<'_>) -> bool {
    level_kernels(found).iter().any(|kernel| !other_store(found, kernel).is_empty())
}

/// The way to store that stands for a kernel at all levels: `\nnt`; empty for regular stores.
fn other_store(found: &Bandwidth<'_>, kernel: &str) -> String {
    let mut best = found.levels.iter().flat_map(|level| &level.best).filter(|best| best.kernel == kernel);
    let store = best.find_map(|best| Some(found.rows.get(best.row)?.store()));
    store.filter(|store| *store != StoreKind::Regular).map_or_else(String::new, |store| format!("\n{store}"))
}

/// For each number of threads the levels that have a cell, and a column for each kernel.
fn level_cells(table: Table, found: &Bandwidth<'_>, cell: impl Fn(&Level, &str, usize) -> Cell) -> Table {
    let (kernels, mut titles) = (level_kernels(found), Vec::new());
    let counts: BTreeSet<usize> = found.levels.iter().flat_map(|l| &l.best).map(|b| b.threads).collect();
    let mut lines: Vec<(&Level, Vec<Cell>)> = Vec::new();
    for &count in &counts {
        let cells = |level| kernels.iter().map(|kernel| cell(level, kernel, count)).collect::<Vec<Cell>>();
        let of_count = found.levels.iter().map(|level| (level, cells(level)));
        let of_count: Vec<(&Level, Vec<Cell>)> =
            of_count.filter(|(_, cells)| cells.iter().any(|cell| !cell.is_blank())).collect();
        if !of_count.is_empty() {
            titles.push((lines.len(), threads(count)));
        }
        lines.extend(of_count);
    }
    let mut table = table.left("", lines.iter().map(|(level, _)| level.name.clone()));
    for (at, kernel) in kernels.iter().enumerate() {
        let head = format!("{kernel}{}", other_store(found, kernel));
        table = table.right(&head, lines.iter().map(|(_, cells)| cells[at].clone()));
    }
    Table { titles, ..table }
}

fn level_table(found: &Bandwidth<'_>) -> Table {
    level_cells(Table::default(), found, |level, kernel, count| {
        let best = found.best(level, kernel, count);
        let Some((row, rate)) = best.and_then(|(row, _)| Some((row, row.payload_bps?))) else { return Cell::none() };
        let [low, high] = rate.ends().map(BytesPerSecond);
        let hint = format!("{} stores, width {}; {} {low} to {high}", row.store(), row.width(), rate.ends_word());
        Cell { text: figure(row), hint, ..Cell::default() }
    })
}

/// How near the levels come to what is known of them without measuring, in caches and in memory; nothing where nothing is.
fn shares(found: &Bandwidth<'_>) -> Option<Table> {
    let memory = found.memory_limit.as_ref().map_or(String::new(), |limit| format!(" Memory: {limit}."));
    let table = Table::new(format!("The same as a share of what a core's ports move at its clock.{memory}"));
    let share = |level: &Level, kernel: &str, count| found.best(level, kernel, count).and_then(|best| best.1);
    let table = level_cells(table, found, |level, kernel, count| share(level, kernel, count).map(percent).into());
    (!table.titles.is_empty()).then_some(table)
}

fn store_kinds(found: &Bandwidth<'_>) -> Section {
    let all = found.crossovers;
    let table = || {
        Table::default()
            .left("kernel", all.iter().map(|c| c.kernel.clone()))
            .right("threads", all.iter().map(|c| c.threads.to_string()))
            .left("store", all.iter().map(|c| format!("{} {}{}", c.store, c.width, element_note(c.element))))
            .left("load", all.iter().map(|c| (c.load != LoadKind::Regular).then(|| c.load.to_string())))
            .left("memory", all.iter().map(|c| (c.memory != USUAL_MEMORY).then(|| c.memory.to_string())))
            .right("as fast as regular at", all.iter().map(crossing))
            .right("speed-up", all.iter().map(|c| c.gain.map(ratio)))
            .right("by bytes", all.iter().map(|c| fraction(c.bound)))
            .without_blanks()
    };
    Section {
        id: "stores",
        title: "Store kinds against regular stores".into(),
        about:
            "Crossover size; speed-up at the largest working set; each with its 95 % interval (of a few visits: what \
                their ranges allow for). By bytes: what the write-allocates that are saved make of it by themselves."
                .into(),
        sentences: store_sentence(found).into_iter().collect(),
        tables: if all.is_empty() { Vec::new() } else { vec![table()] },
        charts: charts::store_kinds(found),
        ..Section::default()
    }
}

/// The working set of equal speed with its interval: `30.8 MiB [26.0 MiB, 52.3 MiB]`.
fn crossing(crossover: &Crossover) -> Cell {
    let text = crossover.at.map_or_else(
        || "none".into(),
        |at| {
            let [at, low, high] = at.map(|bytes| Bytes(bytes as u64));
            format!("{at} [{low}, {high}]")
        },
    );
    Cell { text, hint: crossover.sentence(), ..Cell::default() }
}

/// Store kinds side by side over working sets, a table for each kernel and thread count, and the cross-over below.
pub(crate) fn side_by_side(found: &Bandwidth<'_>) -> Section {
    let of_group = |group: &StoreGroup<'_>| {
        let rows = || group.curves.iter().flatten();
        let sizes: BTreeSet<Bytes> = rows().map(|row| row.case.working_set).collect();
        let mut first: HashMap<Bytes, &BandwidthRow> = HashMap::new();
        for row in rows() {
            first.entry(row.case.working_set).or_insert(row);
        }
        let level = |size: &Bytes| first.get(size).map_or("", |row| level(row));
        let mut table = Table::new(group.title())
            .right("size", sizes.iter().map(ToString::to_string))
            .left("level", sizes.iter().map(|size| level(size).to_string()));
        for curve in &group.curves {
            let by_size: HashMap<Bytes, _> = curve.iter().rev().map(|row| (row.case.working_set, row)).collect();
            let cell = |size: &Bytes| by_size.get(size).map(|row| figure(row));
            // One word a line: five kinds side by side are as much as fits.
            table = table.right(&curve[0].store_words().replacen(' ', "\n", 1), sizes.iter().map(cell));
        }
        table.with_notes(group.own(found.crossovers).map(Crossover::sentence).collect())
    };
    Section {
        title: "Store kinds side by side".into(),
        about: format!("GB/s of payload, {SPREAD_CAPTION}."),
        tables: store_groups(found.rows).iter().map(of_group).collect(),
        missing: kernel_reasons(found.rows),
        ..Section::default()
    }
}

fn scaling(found: &Bandwidth<'_>) -> Section {
    let line = |scaling: &Scaling| {
        let rows = scaling.rows.iter().filter_map(|&index| found.rows.get(index));
        let points: Vec<(usize, f64)> =
            rows.filter_map(|row| row.payload_bps.map(|rate| (row.threads(), rate.value()))).collect();
        let (first, last) = (points.first()?, points.last()?);
        let steps: Vec<String> = points.iter().map(|(count, rate)| format!("{count}: {}", gbps(*rate))).collect();
        let times = format!("{} times from {} to {}", significant(last.1 / first.1), first.0, threads(last.0));
        Some(format!("{}, {}: {} GB/s; {times}", scaling.level, scaling.what, steps.join(", ")))
    };
    Section {
        id: "scaling",
        title: "Scaling over threads".into(),
        about: "Threads: GB/s of payload, undisturbed.".into(),
        notes: found.scaling.iter().filter_map(line).collect(),
        charts: charts::scaling(found),
        ..Section::default()
    }
}

fn samples(found: &Bandwidth<'_>) -> Section {
    Section {
        id: "samples",
        title: "Samples".into(),
        about: "Each dot is one sample. A trend, steps or two groups mean that a single figure says too little.".into(),
        charts: charts::distributions(found),
        ..Section::default()
    }
}

/// A line a row. What all rows have in common stands above the table.
pub(crate) fn all_rows(rows: &[BandwidthRow]) -> Section {
    if rows.is_empty() {
        return Section::default();
    }
    let cells = |cell: fn(&BandwidthRow) -> String| rows.iter().map(cell);
    let number = |value: Option<f64>, text: fn(f64) -> String| value.map(text);
    let keys = Table::default()
        .left("kernel", cells(|row| row.kernel().into()))
        .left("store", cells(|row| row.store().to_string()))
        .right("width", cells(|row| row.width().to_string()))
        .right("size", cells(|row| row.case.working_set.to_string()))
        .right("threads", cells(|row| row.threads().to_string()))
        .left("level", cells(|row| level(row).into()))
        .in_room(Room::Spare);
    let is_usual = rows.iter().all(|row| row.element().is_usual());
    let settings = Table::default()
        .left("load", cells(|row| row.load().to_string()))
        .left("memory", cells(|row| format!("{}{}", row.case.memory, streams(row))))
        .right("offset\nin line", cells(|row| Bytes(row.case.misaligned_bytes.into()).to_string()))
        .left("protocol", cells(|row| protocol_word(row.case.protocol).into()))
        .left("element", cells(|row| row.element().to_string()));
    let figures = Table::default()
        .right("GB/s", cells(figure))
        .right("bus", rows.iter().map(|row| number(row.bus_bps.map(|rate| rate.value()), gbps)))
        .in_room(Room::Wide)
        .right("B/cycle", rows.iter().map(|row| number(row.bytes_per_cycle, significant)))
        .in_room(Room::Spare)
        .right("best", rows.iter().map(|row| number(row.payload_bps.map(|rate| rate.best), gbps)))
        .in_room(Room::Spare)
        .right("samples", cells(|row| row.quality.samples.to_string()))
        .in_room(Room::Wide)
        .flags(rows);
    let (mut table, mut same) = (Table::default().folded(), Vec::new());
    for (column, is_key) in
        keys.columns.into_iter().map(|c| (c, true)).chain(settings.columns.into_iter().map(|c| (c, false)))
    {
        // Where there is a single row, the table says what it is about.
        if column.is_constant() && !(is_key && rows.len() == 1) {
            same.push(format!("{} {}", column.head_in_line(), column.cells[0].text));
        } else {
            table.columns.push(column);
        }
    }
    if is_usual {
        same.retain(|word| !word.starts_with("element "));
    }
    table.columns.extend(figures.columns);
    let missing = kernel_reasons(rows);
    // Lines of dashes say no more than the reason.
    let is_bare = !missing.is_empty() && rows.iter().all(|row| row.payload_bps.is_none());
    let caption = if rows.len() == 1 { "1 row".into() } else { format!("{} rows", rows.len()) };
    let common = if same.is_empty() { String::new() } else { format!(" All rows: {}.", same.join(", ")) };
    Section {
        id: "rows",
        title: "All rows".into(),
        about: format!("GB/s is payload; {SPREAD_CAPTION}.{common}"),
        tables: if is_bare { Vec::new() } else { vec![Table { caption, ..table }] },
        missing,
        ..Section::default()
    }
}

/// Why kernels were not measured: store kinds and widths are what may be missing.
pub(crate) fn kernel_reasons(rows: &[BandwidthRow]) -> Vec<Missing> {
    gathered(rows.iter().map(|row| (row.store_words(), &row.quality)))
}

/// The level of a row; empty where it lies between two.
pub(crate) fn level(row: &BandwidthRow) -> &str {
    row.level.as_deref().unwrap_or_default()
}

/// `57.3 ±0.7%`, in GB/s.
pub(crate) fn figure(row: &BandwidthRow) -> String {
    row.payload_bps.map_or_else(|| "-".into(), |rate| format!("{} {}", gbps(rate.value()), spread(&rate)))
}

/// Streams with a memory of their own: ` a=wc`.
fn streams(row: &BandwidthRow) -> String {
    row.case.streams.iter().map(|named| format!(" {}={}", named.stream, named.memory)).collect()
}

fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Steady => "steady",
        Protocol::Stream => "stream",
        Protocol::Refilled => "refilled",
        Protocol::FirstUse => "first use",
        Protocol::Energy => "energy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::steady;
    use membound_core::kernel::{StoreKind, Width};

    #[test]
    fn one_core_has_the_clock_of_its_loads() {
        let row = |size, gbps: f64, clock| {
            let case = steady("load", Width::W512, StoreKind::Regular, USUAL_MEMORY, vec![0], size);
            let mut row = BandwidthRow::in_memory(case, [gbps * 1e9; 3]);
            row.core_clock_hz = clock;
            row
        };
        let (near, far) = (row(Bytes::kib(16), 200.0, None), row(Bytes::gib(1), 12.0, Some(3e9)));
        let said = one_core(&[("L1".into(), &near), ("memory".into(), &far)]);
        assert_eq!(said.unwrap(), "One core at 3.00 GHz loads 200 GB/s from L1, 12.0 GB/s from memory.");
        assert_eq!(one_core(&[]), None);
    }
}
