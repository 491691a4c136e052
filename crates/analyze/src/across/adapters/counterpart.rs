//! What our record has beside the figures of another tool: the row that was asked for most nearly, or why there is none.

use std::collections::BTreeMap;

use super::tool::{Asks, Foreign, Loop, Reading};
use crate::across::compare::figures::Figure;
use crate::experiments::bandwidth::rows::{BandwidthRow, main_width};
use crate::experiments::latency::rows::LatencyRow;
use crate::report::Report;
use membound_core::case::{Protocol, USUAL_MEMORY};
use membound_core::kernel::chase::Order;
use membound_core::kernel::{Element, LoadKind, StoreKind};
use membound_core::units::Bytes;
use membound_core::work::copies::CopyWork;
use membound_core::work::pingpong::MessageMode;

/// Sizes that differ by less are held against each other: a level is mostly some octaves wide.
const SIZE_APART: f64 = 2.0;

/// Their figures and ours, by the same names, and what to know about them.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// All of theirs; those with a counterpart once for each.
    pub theirs: Vec<Figure>,
    /// Ours, by the names of theirs.
    pub ours: Vec<Figure>,
    /// What each counts, and what has no counterpart.
    pub notes: Vec<String>,
}

/// Our rows beside the figures of a tool.
pub fn held(foreign: &Foreign, report: &Report) -> Held {
    let (mut theirs, mut ours, mut missing) = (Vec::new(), Vec::new(), BTreeMap::<String, Vec<&str>>::new());
    for reading in &foreign.readings {
        let (found, lacking) = answers(reading, report);
        for why in lacking {
            missing.entry(why).or_default().push(&reading.name);
        }
        if found.is_empty() {
            theirs.push(reading.figure(reading.name.clone()));
        }
        for (words, value) in found {
            let name = format!("{}, {words}", reading.name);
            theirs.push(reading.figure(name.clone()));
            ours.push(Figure { value: rounded(value), ..reading.figure(name) });
        }
    }
    let tool = foreign.tool;
    let mut notes = vec![
        format!("{} counts {}.", tool.name, tool.counts),
        "Behind each of its names stands what it is held against here: our row of the nearest size.".into(),
    ];
    notes.extend(missing.into_iter().map(|(why, names)| format!("Without a counterpart: {}: {why}.", few(&names))));
    Held { theirs, ours, notes }
}

/// To four digits: figures by hand are shown as they are.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A list in words, cut where it is long.
fn few(names: &[&str]) -> String {
    match names {
        [first, second, third, rest @ ..] if rest.len() > 1 => {
            format!("{first}; {second}; {third} and {} more", rest.len())
        }
        _ => names.join("; "),
    }
}

/// What answers, in words and as a value; and why what else was asked for has no answer.
type Answers = (Vec<(String, f64)>, Vec<String>);

fn answers(reading: &Reading, report: &Report) -> Answers {
    let mut answers = Answers::default();
    let mut add = |found: Result<(String, f64), String>| match found {
        Ok(found) => answers.0.push(found),
        Err(why) => answers.1.push(why),
    };
    match &reading.asks {
        Asks::Bandwidth(of) => of.stores.iter().for_each(|store| add(bandwidth(of, *store, report))),
        Asks::Latency { orders, stride_bytes, bytes } => {
            orders.iter().for_each(|order| add(latency(*order, *stride_bytes, *bytes, report)));
        }
        Asks::Message(mode, size) => add(message(*mode, *size, report)),
        Asks::Copy(work) => add(copy(*work, report)),
        Asks::Nothing(_, why) => add(Err((*why).into())),
    }
    answers
}

/// How far two sizes are from each other: a ratio, 1 where they are equal.
fn apart(a: Bytes, b: Bytes) -> f64 {
    (a.0.max(1) as f64 / b.0.max(1) as f64).ln().abs().exp()
}

/// How far a row's size is from the one asked for; none where it cannot stand for it. What is larger than ours in memory is in
/// memory, too.
fn distance(size: Bytes, is_in_memory: bool, asked: Option<Bytes>) -> Option<f64> {
    match asked {
        None => is_in_memory.then_some(1.0 / size.0.max(1) as f64),
        Some(asked) if is_in_memory && asked.0 >= size.0 => Some(apart(size, asked)),
        Some(asked) => Some(apart(size, asked)).filter(|apart| *apart <= SIZE_APART),
    }
}

fn bandwidth(of: &Loop, store: StoreKind, report: &Report) -> Result<(String, f64), String> {
    let rows = || report.rows.iter().filter(|row| is_candidate(row, of, store));
    let threads = of.threads.or_else(|| rows().map(BandwidthRow::threads).max());
    let width = of.width.or_else(|| main_width(&report.rows));
    let rank = |row: &BandwidthRow| {
        let away = distance(row.case.working_set, row.is_in_memory(&report.machine), of.bytes)?;
        let is_usual = row.case.memory == USUAL_MEMORY;
        Some((!is_usual, away, Some(row.width()) != width))
    };
    let fit = rows().filter(|row| Some(row.threads()) == threads).filter_map(|row| Some((rank(row)?, row)));
    let best = fit.min_by(|(x, _), (y, _)| x.0.cmp(&y.0).then(x.1.total_cmp(&y.1)).then(x.2.cmp(&y.2)));
    let Some((rate, row)) = best.and_then(|(_, row)| Some((row.payload_bps?, row))) else {
        return Err(lacks(of, store, threads));
    };
    let value = if of.is_best { rate.best } else { rate.value() };
    let threads = counted(row.threads(), "thread");
    Ok((format!("{} {}, {threads}, {}", row.kernel(), row.store_words(), row.case.working_set), value / 1e9))
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn is_candidate(row: &BandwidthRow, of: &Loop, store: StoreKind) -> bool {
    row.kernel() == of.kernel
        && row.store() == store
        && (row.load(), row.element()) == (LoadKind::Regular, Element::Double)
        && row.case.protocol == Protocol::Steady
        && row.case.misaligned_bytes == 0
        && row.is_plain()
        && row.quality.is_measured()
}

/// What the record lacks, and the command that measures it.
fn lacks(of: &Loop, store: StoreKind, threads: Option<usize>) -> String {
    let size = of.bytes.map(|size| format!(" --size {}", flag(size))).unwrap_or_default();
    let threads = threads.map_or("all".into(), |count| count.to_string());
    format!(
        "the record has no such row; `membound bandwidth --kernel {} --store {store} --threads {threads}{size}` measures it",
        of.kernel
    )
}

/// A size as `--size` takes it: whole KiB.
fn flag(size: Bytes) -> String {
    format!("{}KiB", (size.0 / 1024).max(1))
}

fn latency(order: Order, stride_bytes: u32, bytes: Option<Bytes>, report: &Report) -> Result<(String, f64), String> {
    let is_ours = |row: &&LatencyRow| {
        let chase = row.chase();
        (chase.order, chase.stride_bytes, chase.chains) == (order, stride_bytes, 1) && row.figure().is_some()
    };
    let rank = |row: &LatencyRow| {
        let is_in_memory = row.level.as_deref() == Some("memory");
        distance(row.case.working_set, is_in_memory, bytes).map(|away| (row.case.memory != USUAL_MEMORY, away))
    };
    let fit = report.latency.rows.iter().filter(is_ours).filter_map(|row| Some((rank(row)?, row)));
    let best = fit.min_by(|(x, _), (y, _)| x.0.cmp(&y.0).then(x.1.total_cmp(&y.1)));
    let found = best.and_then(|(_, row)| Some((row.figure()?[0], row)));
    let Some((value, row)) = found else {
        let size = bytes.map(|size| format!(" --size {}", flag(size))).unwrap_or_default();
        return Err(format!(
            "the record has no such row; `membound latency --order {order} --stride {stride_bytes}{size}` measures it"
        ));
    };
    Ok((format!("{order} order, {}", row.case.working_set), value))
}

fn message(mode: MessageMode, size: Bytes, report: &Report) -> Result<(String, f64), String> {
    let rows = report.messages.rows.iter().filter(|row| row.way() == (mode, 1) && row.quality.is_measured());
    let best = rows.min_by(|x, y| apart(x.case.working_set, size).total_cmp(&apart(y.case.working_set, size)));
    let near = best.filter(|row| apart(row.case.working_set, size) <= SIZE_APART.sqrt());
    let value = near.and_then(|row| match mode {
        MessageMode::PingPong => row.one_way_ns.map(|cost| cost.value()),
        _ => row.payload_bps.map(|rate| rate.value() / 1e9),
    });
    near.zip(value).map(|(row, value)| (format!("{mode} of {}", row.case.working_set), value)).ok_or_else(|| {
        format!("the record has no such row; `mpirun -np 2 membound pingpong --mode {mode} --record FILE` measures it")
    })
}

/// By the largest copies, since the other tool's are larger still.
fn copy(work: CopyWork, report: &Report) -> Result<(String, f64), String> {
    let rows = report.copies.rows.iter().filter(|row| row.work() == work);
    let found = rows.filter_map(|row| Some((row.sound(row.copied_bps)?, row)));
    let found = found.max_by_key(|(_, row)| row.case.working_set);
    let devices = || match work.peer.filter(|peer| *peer != work.device) {
        Some(peer) => format!("{},{peer}", work.device),
        None => work.device.to_string(),
    };
    let lacks =
        || format!("the record has no such row; `membound copies --device {} --size 512MiB` measures it", devices());
    let (rate, row) = found.ok_or_else(lacks)?;
    Ok((format!("{}, {}", work.ends(), row.case.working_set), rate.value() / 1e9))
}
