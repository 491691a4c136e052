//! The OSU micro-benchmarks' osu_latency (microseconds, half a round trip) and osu_bw (1e6 bytes per second, windows of messages one way).

use super::tool::{Asks, Fault, MB, Reading, Tool, bytes, lines, number};
use membound_core::work::pingpong::MessageMode;

pub(super) const TOOL: Tool = Tool {
    name: "OSU",
    counts: "half a round trip in microseconds (osu_latency), or windows of messages one way in 1e6 bytes per second (osu_bw)",
    is_output: |text| text.contains("# OSU MPI") && (text.contains("Latency Test") || text.contains("Bandwidth Test")),
    readings,
};

/// A benchmark: a word of its title, how the title of its plain form begins, and what its figures are.
struct Benchmark {
    word: &'static str,
    plain: &'static str,
    what: &'static str,
    unit: &'static str,
    mode: MessageMode,
    scale: f64,
}

/// All of them; what has no other word is a bandwidth.
const BENCHMARKS: [Benchmark; 2] = [
    Benchmark {
        word: "Latency",
        plain: "Latency Test",
        what: "latency",
        unit: "ns",
        mode: MessageMode::PingPong,
        scale: 1e3,
    },
    Benchmark {
        word: "",
        plain: "Bandwidth Test",
        what: "bandwidth",
        unit: "GB/s",
        mode: MessageMode::OneWay,
        scale: MB / 1e9,
    },
];

const OTHER: &str = "no mode of ours is the same: both ways at once, or several pairs";

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let (mut found, mut table) = (Vec::new(), None);
    for (at, line) in lines(text) {
        if let Some(title) = line.strip_prefix("# OSU MPI") {
            let benchmark = BENCHMARKS.iter().find(|benchmark| title.contains(benchmark.word));
            table = benchmark.map(|benchmark| (benchmark, title.trim().starts_with(benchmark.plain)));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some((of, is_plain)), [size, value, ..]) = (table, &words[..]) else { continue };
        let Ok(size) = size.parse::<u64>() else { continue };
        let size = bytes(size as f64);
        let asks = if is_plain { Asks::Message(of.mode, size) } else { Asks::Nothing(of.unit, OTHER) };
        found.push(Reading { name: format!("{}, {size}", of.what), value: number(value, at)? * of.scale, asks });
    }
    Ok(found)
}
