//! STREAM (J. McCalpin, `stream.c` 5.10 and those before): `Triad:  18938.8  0.035517 ...`, a best rate in 1e6 bytes per second. It
//! counts what the loop reads and writes, without write-allocate, and does not say whether its compiler made non-temporal stores.

use super::tool::{Asks, Fault, Loop, MB, Reading, Tool, between, bytes, lines, number};
use membound_core::kernel::StoreKind;

pub(super) const TOOL: Tool = Tool {
    name: "STREAM",
    counts: "payload without write-allocate, in 1e6 bytes per second, of the best pass: our best sample stands beside it",
    is_output: |text| text.contains("STREAM version") && text.contains("Function"),
    readings,
};

/// Its names, ours, and how many of its arrays each touches.
const KERNELS: [(&str, &str, f64); 4] =
    [("Copy:", "copy", 2.0), ("Scale:", "scale", 2.0), ("Add:", "add", 3.0), ("Triad:", "triad", 3.0)];

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let threads =
        between(text, "Number of Threads counted =", "\n").or(between(text, "Number of Threads requested =", "\n"));
    let elements = between(text, "Array size =", "(elements)");
    let size = between(text, "This system uses", "bytes per").unwrap_or(8.0);
    let mut found = Vec::new();
    for (at, line) in lines(text) {
        let Some((label, kernel, arrays)) = KERNELS.iter().find(|(label, ..)| line.starts_with(label)) else {
            continue;
        };
        let rate = line[label.len()..].split_whitespace().next().unwrap_or_default();
        let asks = Asks::Bandwidth(Loop {
            kernel,
            stores: &[StoreKind::Regular, StoreKind::Nt],
            width: None,
            threads: Some(threads.map_or(1, |count| count as usize)),
            bytes: elements.map(|count| bytes(count * size * arrays)),
            is_best: true,
        });
        let asks = if size == 8.0 { asks } else { Asks::Nothing("GB/s", "elements of another size than a double's") };
        found.push(Reading { name: label.trim_end_matches(':').into(), value: number(rate, at)? * MB / 1e9, asks });
    }
    Ok(found)
}
