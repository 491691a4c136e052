//! The OSU micro-benchmarks' osu_latency (microseconds, half a round trip) and osu_bw (1e6 bytes per second, windows of messages one way).

use super::tool::{Asks, Fault, MB, Reading, Tool, bytes, lines, number};
use membound_core::work::pingpong::MessageMode;

pub(super) const TOOL: Tool = Tool {
    name: "OSU",
    counts: "half a round trip in microseconds (osu_latency), or windows of messages one way in 1e6 bytes per second (osu_bw)",
    is_output: |text| text.contains("# OSU MPI") && (text.contains("Latency Test") || text.contains("Bandwidth Test")),
    readings,
};

const OTHER: &str = "no mode of ours is the same: both ways at once, or several pairs";

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let (mut found, mut table) = (Vec::new(), None);
    for (at, line) in lines(text) {
        if let Some(title) = line.strip_prefix("# OSU MPI") {
            let is_latency = title.contains("Latency");
            let is_plain = ["Latency Test", "Bandwidth Test"].iter().any(|plain| title.trim().starts_with(plain));
            table = Some((is_latency, is_plain));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some((is_latency, is_plain)), [size, value, ..]) = (table, &words[..]) else { continue };
        let Ok(size) = size.parse::<u64>() else { continue };
        let (what, unit, mode, scale) = match is_latency {
            true => ("latency", "ns", MessageMode::PingPong, 1e3),
            false => ("bandwidth", "GB/s", MessageMode::OneWay, MB / 1e9),
        };
        let size = bytes(size as f64);
        let asks = if is_plain { Asks::Message(mode, size) } else { Asks::Nothing(unit, OTHER) };
        found.push(Reading { name: format!("{what}, {size}"), value: number(value, at)? * scale, asks });
    }
    Ok(found)
}
