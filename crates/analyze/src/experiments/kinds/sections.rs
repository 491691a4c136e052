//! Memory kinds side by side: which one a buffer should be.

use crate::answer::Answer;
use crate::break_even::BreakEven;
use crate::chart::{Axis, Chart, MOST_LINES, Mark, Scale, Series, Shape, line, rounded};
use crate::experiments::kinds::rows::{ALONE, Kind, Kinds};
use crate::missing::{said_once, together};
use crate::rate::Cost;
use crate::section::{Cell, Room, Section, Table};
use crate::wording::{SPREAD_CAPTION, gbps, ratio, spread, threads};
use membound_core::experiments::kinds::REGULAR;
use membound_core::in_order::InOrder;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::units::{BytesPerSecond, Nanoseconds, count, significant};

impl Answer for Option<Kinds> {
    fn sentences(&self) -> Vec<String> {
        self.iter().flat_map(sentences).collect()
    }

    fn sections(&self) -> Vec<Section> {
        self.iter().map(section).collect()
    }
}

fn section(kinds: &Kinds) -> Section {
    let (measured, missing): (Vec<&Kind>, Vec<&Kind>) = kinds.kinds.iter().partition(|kind| kind.is_measured());
    let (sure, broken): (Vec<&Kind>, Vec<&Kind>) =
        measured.iter().filter(|kind| !kind.proof.is_empty()).partition(|kind| kind.holds);
    fn proofs(kinds: Vec<&Kind>) -> impl Iterator<Item = (String, String)> {
        kinds.into_iter().map(|kind| (kind.memory.to_string(), kind.proof.clone()))
    }
    let element = if kinds.element.is_usual() { String::new() } else { format!(", {}", kinds.element) };
    Section {
        id: "kinds",
        title: format!("Memory kinds, a buffer of {}, {}{element}", kinds.bytes, threads(kinds.threads)),
        about: format!(
            "First and later: a copy to the buffer from regular memory; first counts from asking for the memory: mapping, page \
             faults, zeroing. Then GB/s of later copies, each byte counted once though it is read and written ({SPREAD_CAPTION}), and of \
             each way of touching the buffer alone. What a kind is was read back or proved, never taken on trust."
        ),
        sentences: sentences(kinds),
        tables: if measured.is_empty() { Vec::new() } else { vec![table(kinds, &measured)] },
        charts: speeds(kinds).into_iter().chain(averages(kinds)).collect(),
        notes: said_once(proofs(broken)),
        details: said_once(proofs(sure)),
        missing: together(proofs(missing)),
        ..Section::default()
    }
}

fn table(kinds: &Kinds, measured: &[&Kind]) -> Table {
    let time = |cost: Option<Cost>| {
        let [low, high] = cost?.ends().map(seconds);
        let hint = format!("{} {low} to {high}", cost?.ends_word());
        Some(Cell { text: seconds(cost?.value()), hint, ..Cell::default() })
    };
    let copied = |kind: &&Kind| {
        let rate = kind.steady_s?.each(|seconds| kinds.bytes.0 as f64 / seconds);
        Some(format!("{} {}", gbps(rate.value()), spread(&rate)))
    };
    let table = Table::new("")
        .left("kind", measured.iter().map(|kind| kind.memory.to_string()))
        .right("first", measured.iter().map(|kind| time(kind.first_s)))
        .right("later", measured.iter().map(|kind| time(kind.steady_s)))
        .right("copied", measured.iter().map(copied))
        .right("gain", measured.iter().map(|kind| kind.gain.map(ratio)))
        .in_room(Room::Wide);
    let alone = |table: Table, (place, (name, ..)): (usize, &(&str, _, _, _))| {
        let rate = |kind: &&Kind| {
            let rate = kind.alone[place]?;
            Some(Cell { text: gbps(rate.value()), hint: spread(&rate), ..Cell::default() })
        };
        table.right(&name.replace(' ', "\n"), measured.iter().map(rate))
    };
    ALONE
        .iter()
        .enumerate()
        .fold(table, alone)
        .right("faults", measured.iter().map(|kind| kind.faults.map(count)))
        .in_room(Room::Wide)
        .right("ns per\nfault", measured.iter().map(|kind| kind.fault_ns.map(significant)))
        .in_room(Room::Wide)
        .left("pays\nafter", measured.iter().map(|kind| kind.break_even.map_or_else(|| "".into(), BreakEven::cell)))
        .without_blanks()
}

/// First use against later ones.
fn speeds(kinds: &Kinds) -> Option<Chart> {
    let copied: Vec<&Kind> = kinds.kinds.iter().filter(|kind| kind.is_copied()).collect();
    let bars = |name: &str, colour, cost: fn(&Kind) -> Option<Cost>| {
        let bar = |(index, kind): (usize, &&Kind)| {
            let rate = cost(kind)?.each(|seconds| rounded(kinds.bytes.0 as f64 / seconds / 1e9));
            Some((index as f64, rate.value(), rate.ends()[0], rate.ends()[1], kind.samples))
        };
        let points = copied.iter().enumerate().filter_map(bar).collect();
        Series { shape: Shape::Bar, colour, ..line(name.into(), points) }
    };
    let series = vec![bars("first copy", 1, |kind| kind.first_s), bars("later copies", 0, |kind| kind.steady_s)];
    let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    let names = copied.iter().map(|kind| kind.memory.to_string()).collect();
    let x = Axis { names, ..Axis::new("kind of the buffer", "", Scale::Names) };
    let y = Axis::new("bytes copied, GB/s (log)", "GB/s", Scale::Log);
    let about = "From asking for the memory to the end of the copy, against copies after the first.".into();
    let title = format!("Copying {} to each kind, {}", kinds.bytes, threads(kinds.threads));
    (!series.is_empty()).then(|| Chart::new(title, about, x, y, series))
}

/// Average cost of a use over the number of uses: where two lines cross, two kinds are level.
fn averages(kinds: &Kinds) -> Option<Chart> {
    const USES: [u32; 13] = [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000];
    let average = |kind: &Kind| {
        let (first, later) = (kind.first_s?.value() * 1e3, kind.steady_s?.value() * 1e3);
        let at = |&uses: &u32| {
            let uses = f64::from(uses);
            let average = rounded((first + (uses - 1.0) * later) / uses);
            (uses, average, average, average, 0)
        };
        Some(line(kind.memory.to_string(), USES.iter().map(at).collect()))
    };
    // What the others are held against, then those that are level with it somewhere.
    let rank = |kind: &&Kind| match (kind.against, kind.break_even) {
        (None, _) => 0,
        (_, Some(BreakEven::After { .. } | BreakEven::Until { .. })) => 1,
        (_, Some(BreakEven::AtOnce)) => 2,
        _ => 3,
    };
    let mut all: Vec<&Kind> = kinds.kinds.iter().collect();
    all.order_by_key(rank);
    let mut series: Vec<Series> = all.into_iter().filter_map(average).collect();
    for (index, series) in series.iter_mut().enumerate() {
        (series.colour, series.symbol, series.dash) = (index, index, index / 8);
        series.shown = index < MOST_LINES;
    }
    let mark = |kind: &Kind| match kind.break_even {
        Some(BreakEven::After { uses, low, high: Some(high) }) if (1.0..1000.0).contains(&uses) => {
            Some(Mark { name: format!("{}: {}", kind.memory, count(uses)), at: uses, from: low, to: high.min(1000.0) })
        }
        _ => None,
    };
    let (x, y) =
        (Axis::new("copies", "copies", Scale::Log), Axis::new("average cost of a copy, ms (log)", "ms", Scale::Log));
    let about =
        "The first copy's cost spread over all: t_first + (n - 1) t_later, over n. Marks are break-evens.".into();
    let marks = kinds.kinds.iter().filter_map(mark).collect();
    let chart = Chart::new("After how many copies a kind pays".into(), about, x, y, series);
    (chart.series.len() > 1).then_some(Chart { marks, ..chart })
}

/// Which kind a buffer should be, in words.
fn sentences(kinds: &Kinds) -> Vec<String> {
    let mut all = Vec::new();
    for base in [REGULAR.kind, MemoryKind::Wb] {
        let Some(regular) = kinds.kinds.iter().find(|kind| kind.memory.kind == base) else { continue };
        let (Some(first), Some(steady)) = (regular.first_s, regular.steady_s) else { continue };
        let others: Vec<&Kind> = kinds.kinds.iter().filter(|kind| kind.against == Some(regular.memory)).collect();
        let verdicts = verdicts(&others);
        if verdicts.is_empty() {
            continue;
        }
        let rate = BytesPerSecond(kinds.bytes.0 as f64 / steady.value());
        all.push(format!(
            "Copying {} to {} takes {} the first time, then {} ({rate} copied). {}.",
            kinds.bytes,
            name(regular.memory),
            seconds(first.value()),
            seconds(steady.value()),
            verdicts.join("; ")
        ));
    }
    all
}

/// Kinds with the same verdict share a clause; the most useful verdicts come first.
fn verdicts(kinds: &[&Kind]) -> Vec<String> {
    let mut clauses = Vec::new();
    for kind in kinds {
        if let (Some(BreakEven::After { uses, low, high }), Some(gain)) = (kind.break_even, kind.gain) {
            let high = high.map_or_else(|| "never".into(), count);
            clauses.push(format!(
                "{} wins in steady state, {} times as fast, and pays after about {} copies [{}, {high}]",
                name(kind.memory),
                significant(gain[0]),
                count(uses),
                count(low),
            ));
        }
    }
    let at_once = |kind: &&&Kind| kind.break_even == Some(BreakEven::AtOnce);
    let times = |kind: &&Kind| {
        Some(format!(
            "{} ({}, then {})",
            name(kind.memory),
            seconds(kind.first_s?.value()),
            seconds(kind.steady_s?.value())
        ))
    };
    let quick = kinds.iter().filter(at_once).filter_map(times);
    clauses.extend(clause(
        quick.collect(),
        "is the better choice from the first copy on",
        "are better from the first copy on",
    ));
    for kind in kinds {
        if let Some(BreakEven::Until { uses }) = kind.break_even {
            clauses.push(format!("{} is cheaper for up to {} copies", name(kind.memory), count(uses.floor())));
        }
    }
    let with =
        |verdict| kinds.iter().filter(move |kind| kind.break_even == Some(verdict)).map(|kind| name(kind.memory));
    clauses.extend(clause(with(BreakEven::Never).collect(), "never pays", "never pay"));
    clauses.extend(clause(with(BreakEven::Alike).collect(), "makes no difference", "make no difference"));
    if let Some(first) = clauses.first_mut() {
        *first = first[..1].to_uppercase() + &first[1..];
    }
    clauses
}

fn clause(names: Vec<String>, one: &str, many: &str) -> Option<String> {
    match &names[..] {
        [] => None,
        [only] => Some(format!("{only} {one}")),
        [most @ .., last] => Some(format!("{} and {last} {many}", most.join(", "))),
    }
}

/// The kind as the field calls it.
fn name(memory: MemorySpec) -> String {
    let long = match memory.kind {
        MemoryKind::Heap => "regular memory",
        MemoryKind::Wb => "write-back memory",
        MemoryKind::Wc => "write-combining memory",
        MemoryKind::Uc | MemoryKind::UcMinus => "uncacheable memory",
        MemoryKind::Wt => "write-through memory",
        MemoryKind::Wp => "write-protect memory",
        _ => return memory.to_string(),
    };
    format!("{long} ({memory})")
}

fn seconds(seconds: f64) -> String {
    Nanoseconds(seconds * 1e9).to_string()
}
