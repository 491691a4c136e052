//! Memory from everywhere: heat maps, each pair with all its figures, what each node is, what saturates a domain.

use membound_core::in_order::{InOrder, grouped};
use std::collections::BTreeSet;

use crate::across::numa::nodes;
use crate::across::numa::rows::{Limit, MeasuredNode, Numa, NumaInitiator, NumaRow, Saturation, SideCache};
use crate::flag::Flag;
use crate::missing::reasons;
use crate::rate::{Figure, Rate};
use crate::section::{Cell, Room, Section, Table};
use crate::wording::{gbps, ratio, spread, spread_in};
use membound_core::experiments::numa::Way;
use membound_core::machine::domains::DomainKind;
use membound_core::memory::MemoryKind;
use membound_core::units::{Bytes, BytesPerSecond, Nanoseconds, significant};

const ABOUT: &str = "Each set of CPUs, one thread a core, against the memory of each node: GB/s payload and ns, undisturbed. The deeper the \
    colour, the better; * is the best of its row.";
/// Less than this apart, two directions are alike, however narrow their intervals.
const ASYMMETRY: f64 = 1.05;
/// Pairs of initiator and node that a terminal has room for, figure by figure; of more the matrices must do.
const PAIRS_MOST: usize = 24;

/// What it comes to, in words: what differs first.
pub(crate) fn sentences(numa: &Numa) -> Vec<String> {
    let Some(&memory) = numa.memory.first() else { return Vec::new() };
    let mut all = nodes::sentences(numa);
    all.extend(places(numa, memory));
    all.extend(asymmetries(numa, memory));
    all.extend(saturation_sentence(numa));
    all.extend(numa.side_caches.iter().map(side_cache_sentence));
    all.extend(numa.modes.iter().cloned());
    all.extend(nodes::contradictions(numa));
    all
}

/// One place, or what it costs to be in another.
fn places(numa: &Numa, memory: MemoryKind) -> Option<String> {
    let nodes: Vec<&NumaInitiator> = numa.initiators.iter().filter(|i| i.domain == Some(DomainKind::Node)).collect();
    if numa.is_one && numa.nodes.len() == 1 && nodes.len() < 2 {
        let initiator = numa.initiators.first()?;
        let rate = |is_all| numa.row(memory, &initiator.name, numa.nodes[0], Way::Load, is_all)?.payload_bps;
        let cores = initiator.cores.len();
        let mut text = "One node: nothing to place.".to_string();
        if let Some(all) = rate(true) {
            let plural = if cores == 1 { "core loads" } else { "cores load" };
            text += &format!(" Its {cores} {plural} {}", BytesPerSecond(all.value()));
            text += &rate(false)
                .filter(|_| cores > 1)
                .map_or_else(String::new, |one| format!(", one {}", BytesPerSecond(one.value())));
            let chase = numa.row(memory, &initiator.name, numa.nodes[0], Way::Latency, false);
            text += &chase
                .and_then(|row| row.latency_ns)
                .map_or_else(String::new, |cost| format!("; a load that waits takes {}", Nanoseconds(cost.value())));
            text.push('.');
        }
        return Some(text);
    }
    let of_pair = |from: &NumaInitiator, to: u32| {
        let own = from.node.filter(|own| *own != to)?;
        let figure = |node, way, is_all| numa.row(memory, &from.name, node, way, is_all);
        let rate = |node| figure(node, Way::Load, true)?.payload_bps;
        let cost = |node| figure(node, Way::Latency, false)?.latency_ns;
        let bandwidth = rate(to)?.value() / rate(own)?.value();
        Some((bandwidth, cost(to).zip(cost(own)).map(|(to, own)| to.value() / own.value())))
    };
    let remote = |to: &&u32| numa.with_cpus.contains(to);
    let pairs = nodes.iter().flat_map(|from| numa.nodes.iter().filter(remote).filter_map(|&to| of_pair(from, to)));
    let (rates, costs): (Vec<f64>, Vec<Option<f64>>) = pairs.unzip();
    let bandwidth = range(&rates)?;
    let latency = range(&costs.into_iter().flatten().collect::<Vec<_>>());
    let latency = latency.map_or_else(String::new, |range| format!(" at {range} x its latency"));
    Some(format!("From a node's cores to the memory of another: {bandwidth} x the load bandwidth of the own{latency}."))
}

/// `0.55 to 0.61`
fn range(values: &[f64]) -> Option<String> {
    let least = significant(values.iter().copied().reduce(f64::min)?);
    let most = significant(values.iter().copied().reduce(f64::max)?);
    Some(if least == most { least } else { format!("{least} to {most}") })
}

/// Two nodes that do not treat each other alike, or whose own memory differs: the three widest differences.
fn asymmetries(numa: &Numa, memory: MemoryKind) -> Option<String> {
    let nodes: Vec<(&NumaInitiator, u32)> = numa
        .initiators
        .iter()
        .filter(|initiator| initiator.domain == Some(DomainKind::Node))
        .filter_map(|initiator| Some((initiator, initiator.node.filter(|node| numa.nodes.contains(node))?)))
        .collect();
    let mut found: Vec<(f64, String)> = Vec::new();
    for (index, (a, a_node)) in nodes.iter().enumerate() {
        for (b, b_node) in nodes[..index].iter().filter(|(b, _)| b.cores.len() == a.cores.len()) {
            for (from, to) in [([b, a], [*a_node, *b_node]), ([b, a], [*b_node, *a_node])] {
                found.extend(asymmetry(numa, memory, from.map(|i| *i), to));
            }
        }
    }
    found.order_by(|x, y| y.0.total_cmp(&x.0));
    let more = if found.len() > 3 { format!("; {} more", found.len() - 3) } else { String::new() };
    let parts: Vec<String> = found.into_iter().take(3).map(|(_, text)| text).collect();
    (!parts.is_empty()).then(|| format!("Not symmetric, intervals apart: {}{more}.", parts.join("; ")))
}

fn asymmetry(numa: &Numa, memory: MemoryKind, from: [&NumaInitiator; 2], to: [u32; 2]) -> Option<(f64, String)> {
    let rows = [0, 1].map(|k| numa.row(memory, &from[k].name, to[k], Way::Load, true).and_then(|row| row.payload_bps));
    let [Some(a), Some(b)] = rows else { return None };
    let factor = (a.value() / b.value()).max(b.value() / a.value());
    let part =
        |k: usize, rate: Rate| format!("{} loads {} from node {}", from[k].name, BytesPerSecond(rate.value()), to[k]);
    (a.is_apart(b) && factor >= ASYMMETRY).then(|| (factor, format!("{}, {}", part(0, a), part(1, b))))
}

/// Where cores stop adding, loads only: the triad is in the table.
fn saturation_sentence(numa: &Numa) -> Option<String> {
    // In the memory beside it, the first domain of each kind: the others are in the table.
    let mut told: Vec<DomainKind> = Vec::new();
    let is_told = |curve: &&Saturation| {
        let initiator = numa.initiators.iter().find(|initiator| initiator.name == curve.initiator);
        let is_own = initiator.is_some_and(|initiator| initiator.node.is_none_or(|own| own == curve.node));
        let kind = initiator.and_then(|initiator| initiator.domain);
        let is_new = kind.is_some_and(|kind| !told.contains(&kind));
        let is_told = curve.way == Way::Load && is_own && is_new;
        told.extend(kind.filter(|_| is_told));
        is_told
    };
    let loads = numa.saturation.iter().filter(is_told);
    let part = |curve: &Saturation| {
        let (all, _) = *curve.points.last()?;
        let best = curve.points.iter().map(|(_, rate)| rate.value()).fold(0.0, f64::max);
        let Saturation { initiator, node, cores, limit, .. } = curve;
        let plural = if *cores == 1 { "core loads" } else { "cores load" };
        Some(match limit {
            Limit::Unclear => return None,
            Limit::Cores => {
                format!("all {all} cores of {initiator} are needed for its {} from node {node}", BytesPerSecond(best))
            }
            limit => format!(
                "{cores} of {all} {plural} 95 % of what {initiator} can from node {node} ({}): the limit is {limit}",
                BytesPerSecond(best)
            ),
        })
    };
    let parts: Vec<String> = loads.filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("Cores and bandwidth: {}.", parts.join("; ")))
}

fn side_cache_sentence(cache: &SideCache) -> String {
    let SideCache { node, claimed, is_inferred, points, is_seen, gain } = cache;
    let source = if *is_inferred { ", inferred from the processor and the sizes of nodes" } else { "" };
    let what = format!("The memory-side cache of node {node} ({claimed}{source})");
    let [sure, doubt] = match is_inferred {
        true => [" So it is there.", " So it may be switched off or set aside, and the memory mode is in doubt."],
        false => [""; 2],
    };
    let gain = gain.map_or_else(String::new, significant);
    match is_seen {
        Some(true) => format!("{what} shows: loads within it are {gain} x as fast as beyond it.{sure}"),
        Some(false) => format!(
            "{what} does not show: loads within it are {gain} x as fast as beyond it, intervals overlapping.{doubt}"
        ),
        None => {
            let largest = points.last().map_or(Bytes(0), |point| point.0);
            format!("{what} can't show: the largest working set that fits the share of memory was {largest}.")
        }
    }
}

/// All of it in one section.
pub(crate) fn section(numa: &Numa) -> Section {
    let kinds = (numa.kinds.len() > 1).then(|| kinds(numa));
    let saturation = (!numa.saturation.is_empty()).then(|| saturation(&numa.saturation));
    let tables = kinds.into_iter().chain(matrices(numa)).chain([pairs(numa)]).chain(saturation);
    Section {
        id: "numa",
        title: "NUMA".into(),
        about: ABOUT.into(),
        sentences: sentences(numa),
        tables: tables.chain(numa.side_caches.iter().map(side_cache)).collect(),
        notes: numa.left_out.clone(),
        missing: reasons(&numa.rows),
        ..Section::default()
    }
}

/// What each node is, and why.
fn kinds(numa: &Numa) -> Table {
    let kinds = &numa.kinds;
    let verdict = |is_confirmed| match is_confirmed {
        Some(true) => "confirmed",
        Some(false) => "contradicted",
        None => "",
    };
    let why = |kind: &MeasuredNode| {
        let says: Vec<&str> = kind.nature.evidence.iter().map(|evidence| evidence.says.as_str()).collect();
        format!("node {}: {}", kind.nature.node, says.join("; "))
    };
    Table::new("What each node is: by firmware and topology, and against the node of the nearest cores [95 %]")
        .right("node", kinds.iter().map(|kind| kind.nature.node.to_string()))
        .left("kind", kinds.iter().map(|kind| kind.nature.kind.to_string()))
        .right("bandwidth", kinds.iter().map(|kind| kind.bandwidth.map(ratio)))
        .right("latency", kinds.iter().map(|kind| kind.latency.map(ratio)))
        .left("measured", kinds.iter().map(|kind| verdict(kind.is_confirmed)))
        .without_blanks()
        .with_notes(kinds.iter().map(why).collect())
}

/// A matrix for each way of touching memory, where there is more than one place on a side: bandwidths of all cores,
/// latency of one.
fn matrices(numa: &Numa) -> Vec<Table> {
    if numa.initiators.len() < 2 && numa.nodes.len() < 2 {
        return Vec::new();
    }
    let ways = numa.memory.iter().flat_map(|memory| Way::ALL.iter().map(move |way| (*memory, *way)));
    ways.filter_map(|(memory, way)| matrix(numa, memory, way)).collect()
}

fn matrix(numa: &Numa, memory: MemoryKind, way: Way) -> Option<Table> {
    let is_latency = way == Way::Latency;
    let row = |from: &NumaInitiator, to: u32| numa.row(memory, &from.name, to, way, !is_latency);
    let value = |from: &NumaInitiator, to: u32| row(from, to)?.figure().map(Figure::value);
    let own = |from: &NumaInitiator| numa.nodes.iter().filter_map(|&to| value(from, to)).collect::<Vec<_>>();
    let all: Vec<f64> = numa.initiators.iter().flat_map(own).collect();
    let (least, most) = (all.iter().copied().reduce(f64::min)?, all.iter().copied().reduce(f64::max)?);
    let cell = |from: &NumaInitiator, to: u32| -> Option<Cell> {
        let (row, value) = (row(from, to)?, value(from, to)?);
        let own = own(from);
        // With a single node there is nothing to mark.
        let is_best =
            own.len() > 1 && own.iter().all(|&other| if is_latency { value <= other } else { value >= other });
        // One value alone is neither good nor bad.
        let share = if most > least { (value - least) / (most - least) } else { 0.0 };
        let heat = Some(if is_latency && most > least { 1.0 - share } else { share });
        let cell = figure(row);
        Some(Cell { text: cell.text + if is_best { "*" } else { " " }, is_strong: is_best, heat, ..cell })
    };
    let kind = if numa.memory.len() > 1 { format!(", {memory}") } else { String::new() };
    let title =
        if is_latency { format!("latency, ns, one core{kind}") } else { format!("{way}, GB/s, all cores{kind}") };
    let mut table = Table::new(title).left("from \\ to", numa.initiators.iter().map(|from| from.name.clone()));
    for &to in &numa.nodes {
        // A cache or cluster meets only the nodes beside it.
        table = table.right(&format!("node {to} "), numa.initiators.iter().map(|from| cell(from, to)));
    }
    Some(table.without_blanks())
}

/// The value, and on demand how sure it is.
fn figure(row: &NumaRow) -> Cell {
    let Some(figure) = row.figure() else { return Cell::none() };
    let (text, unit): (fn(f64) -> String, _) = if row.way == Way::Latency { (significant, 1.0) } else { (gbps, 1e9) };
    let ([value, low, high], kind) = (figure.interval().map(text), figure.ends_word());
    let flags = row.quality.flag_words();
    let samples = row.quality.samples;
    let hint = format!("{}; {kind} {low} to {high}; {samples} samples {flags}", spread_in(&figure, unit));
    Cell { text: value, hint: hint.trim_end().into(), ..Cell::default() }
}

/// Each initiator and node by one core and by all, all ways.
fn pairs(numa: &Numa) -> Table {
    let alike = grouped(&numa.rows, |row| (row.case.memory.kind, &row.initiator, row.node(), row.cores()));
    let lines: Vec<Vec<&NumaRow>> = alike.into_iter().map(|(_, line)| line).collect();
    let memory = |line: &Vec<&NumaRow>| (numa.memory.len() > 1).then(|| line[0].case.memory.kind.to_string());
    let mut table = Table::new("Each initiator and node")
        .left("from", lines.iter().map(|line| line[0].initiator.clone()))
        .left("memory", lines.iter().map(memory))
        .right("node", lines.iter().map(|line| line[0].node().to_string()))
        .right("cores", lines.iter().map(|line| line[0].cores().to_string()));
    for &way in Way::ALL {
        let head = if way == Way::Latency { "latency\nns".to_string() } else { way.to_string().replace(' ', "\n") };
        let cells = lines.iter().map(|line| line.iter().find(|row| row.way == way).map(|row| figure(row)));
        table = table.right(&head, cells);
    }
    let flags = |line: &Vec<&NumaRow>| {
        let all: BTreeSet<Flag> = line.iter().flat_map(|row| row.quality.flags.iter().copied()).collect();
        Cell { flags: all.into_iter().collect(), ..Cell::default() }
    };
    let table = table.left("flag", lines.iter().map(flags)).without_blanks();
    if lines.len() > 2 * PAIRS_MOST { table.wide().folded() } else { table }
}

fn saturation(curves: &[Saturation]) -> Table {
    let points = |curve: &Saturation| {
        let point = |(cores, rate): &(usize, Rate)| format!("{cores}: {}", gbps(rate.value()));
        curve.points.iter().map(point).collect::<Vec<_>>().join(", ")
    };
    Table::new(
        "How many cores saturate a domain: the fewest with 95 % of the best, what keeps it there, and GB/s by cores",
    )
    .left("from", curves.iter().map(|curve| curve.initiator.clone()))
    .right("node", curves.iter().map(|curve| curve.node.to_string()))
    .left("way", curves.iter().map(|curve| curve.way.to_string()))
    .right("95 % at", curves.iter().map(|curve| curve.cores.to_string()))
    .left("limit", curves.iter().map(|curve| curve.limit.to_string()))
    .left("cores: GB/s", curves.iter().map(points))
    .in_room(Room::Spare)
}

fn side_cache(cache: &SideCache) -> Table {
    let points = &cache.points;
    let share = |size: Bytes| significant(size.0 as f64 / cache.claimed.0.max(1) as f64);
    let rate = |rate: &Rate| format!("{} {}", gbps(rate.value()), spread(rate));
    Table::new(format!("Loads around the memory-side cache of node {}, {}", cache.node, cache.claimed))
        .right("working set", points.iter().map(|point| point.0.to_string()))
        .right("of the cache", points.iter().map(|point| share(point.0)))
        .right("GB/s", points.iter().map(|(_, own)| rate(own)))
}
