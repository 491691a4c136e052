//! NetPIPE: `24:  99 bytes  12419 times -->  450.13 Mbps in  1.68 usec`. Its Mbps are 2^20 bits per second, and its time is half a round
//! trip, printed to 10 ns: the time of a message follows from the rate, which has more digits.

use super::tool::{Asks, Fault, Reading, Tool, bytes, lines, number};
use membound_core::work::pingpong::MessageMode;

pub(super) const TOOL: Tool = Tool {
    name: "NetPIPE",
    counts: "half a round trip, from rates in 2^20 bits per second",
    is_output: |text| text.contains("bytes") && text.contains("-->") && text.contains(" Mbps in "),
    readings,
};

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let mut found = Vec::new();
    // The result of the first line stands behind what the ranks print meanwhile.
    let mut size = None;
    for (at, line) in lines(text) {
        if let Some((head, _)) = line.split_once(" bytes") {
            size = head.rsplit(' ').next().and_then(|word| word.parse::<u64>().ok()).or(size);
        }
        let Some((head, _)) = line.split_once(" Mbps in ") else { continue };
        let Some(of) = size.take() else { continue };
        let rate = number(head.rsplit(' ').next().unwrap_or_default(), at)? * f64::from(1 << 20) / 8.0;
        let of = bytes(of as f64);
        let value = of.0 as f64 / rate * 1e9;
        found.push(Reading { name: format!("message, {of}"), value, asks: Asks::Message(MessageMode::PingPong, of) });
    }
    Ok(found)
}
