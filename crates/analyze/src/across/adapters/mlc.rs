//! Intel Memory Latency Checker: tables of idle latencies (ns), peak injection bandwidths and bandwidths between nodes, and loaded
//! latencies. It says itself that its MB are 1e6 bytes. A figure off the diagonal is a pair of nodes; mixes of reads and writes are no
//! kernel of ours, but for the triad, whose stores are non-temporal.

use super::tool::{Asks, Fault, Loop, MB, Reading, Tool, lines, number};
use membound_core::kernel::StoreKind;
use membound_core::kernel::chase::Order;

pub(super) const TOOL: Tool = Tool {
    name: "Intel MLC",
    counts: "nanoseconds of a dependent load, and reads and writes of all threads in 1e6 bytes per second",
    is_output: |text| text.contains("Memory Latency Checker"),
    readings,
};

/// What a table is a table of.
#[derive(Clone, Copy)]
enum Table {
    Matrix(&'static Matrix),
    Peak,
    Loaded,
    None,
}

/// Nodes against nodes: what its figures are, and what those of a node's own memory ask for.
struct Matrix {
    what: &'static str,
    unit: &'static str,
    scale: f64,
    own: Asks,
}

const IDLE: Matrix = Matrix {
    what: "idle latency",
    unit: "ns",
    scale: 1.0,
    own: Asks::Latency { orders: &[Order::Random], stride_bytes: 64, bytes: None },
};
const READS: Matrix =
    Matrix { what: "reads", unit: "GB/s", scale: MB / 1e9, own: in_memory("load", &[StoreKind::Regular]) };

/// Its headings.
const TABLES: [(&str, Table); 5] = [
    ("Measuring idle latencies", Table::Matrix(&IDLE)),
    ("Measuring Peak Injection", Table::Peak),
    ("Measuring Maximum Memory Bandwidths", Table::Peak),
    ("Measuring Memory Bandwidths between", Table::Matrix(&READS)),
    ("Measuring Loaded Latencies", Table::Loaded),
];
const MIX: &str = "no kernel of ours mixes reads and writes like this; `membound loaded` has such mixes beside a chase";
const PAIR: &str = "it is a pair of nodes: `membound numa` has its own table of them";
const LOADED: &str = "delays are its own: hold its curve against that of `membound loaded`";

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let (mut found, mut table) = (Vec::new(), Table::None);
    for (at, line) in lines(text) {
        if line.starts_with("Measuring ") {
            table = TABLES.iter().find(|(words, _)| line.starts_with(words)).map_or(Table::None, |(_, table)| *table);
            continue;
        }
        match table {
            Table::Peak => found.extend(peak(at, line)?),
            Table::Matrix(of) => found.extend(matrix(at, line, of)?),
            Table::Loaded => found.extend(loaded(at, line)?),
            Table::None => {}
        }
    }
    Ok(found)
}

/// `ALL Reads        :  158844.5`.
fn peak(at: usize, line: &str) -> Result<Option<Reading>, Fault> {
    let Some((name, rate)) = line.rsplit_once(':') else { return Ok(None) };
    if !name.contains("Reads") && !name.contains("triad") {
        return Ok(None);
    }
    let asks = match name.trim() {
        "ALL Reads" => in_memory("load", &[StoreKind::Regular]),
        "Stream-triad like" => in_memory("triad", &[StoreKind::Nt]),
        _ => Asks::Nothing("GB/s", MIX),
    };
    Ok(Some(Reading { name: name.trim().into(), value: number(rate.trim(), at)? * MB / 1e9, asks }))
}

/// A kernel in memory by all threads.
const fn in_memory(kernel: &'static str, stores: &'static [StoreKind]) -> Asks {
    Asks::Bandwidth(Loop { kernel, stores, width: None, threads: None, bytes: None, is_best: false })
}

/// `       0   82.1   141.0`: a row of nodes against nodes.
fn matrix(at: usize, line: &str, of: &Matrix) -> Result<Vec<Reading>, Fault> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some((from, cells)) = words.split_first().filter(|(from, _)| from.parse::<u16>().is_ok()) else {
        return Ok(Vec::new());
    };
    // The head has numbers of nodes alone, which are whole.
    if cells.is_empty() || cells.iter().all(|cell| cell.parse::<u16>().is_ok()) {
        return Ok(Vec::new());
    }
    let reading = |(to, cell): (usize, &&str)| {
        let is_own = from.parse() == Ok(to);
        let asks = if is_own { of.own.clone() } else { Asks::Nothing(of.unit, PAIR) };
        let name = format!("{}, node {from} to {to}", of.what);
        Ok(Reading { name, value: number(cell, at)? * of.scale, asks })
    };
    cells.iter().enumerate().map(reading).collect()
}

/// ` 00100  325.98  158992.6`: delay, latency, bandwidth.
fn loaded(at: usize, line: &str) -> Result<Vec<Reading>, Fault> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [delay, latency, rate] = words[..] else { return Ok(Vec::new()) };
    if delay.len() != 5 || !delay.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Vec::new());
    }
    let reading = |what: &str, value, unit| {
        let asks = Asks::Nothing(unit, LOADED);
        Reading { name: format!("{what}, delay {delay}"), value, asks }
    };
    Ok(vec![
        reading("loaded latency", number(latency, at)?, "ns"),
        reading("load", number(rate, at)? * MB / 1e9, "GB/s"),
    ])
}
