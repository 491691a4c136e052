//! `sysbench memory`: `20480.00 MiB transferred (18408.01 MiB/sec)`, MiB of 2^20 bytes. It goes over one block of so many KiB again and
//! again, word by word, so the block's size says in which cache; with several threads and `scope: global` all share that block, which no
//! kernel of ours does. Versions before 1.0 wrote MB and meant 2^20 bytes, too.

use super::tool::{Asks, Fault, Loop, Reading, Tool, between, bytes, lines, number};
use membound_core::kernel::{StoreKind, Width};

pub(super) const TOOL: Tool = Tool {
    name: "sysbench memory",
    counts: "bytes read or written word by word in one block, in MiB (2^20 bytes) per second, its own loop's overhead included",
    is_output: |text| text.contains("sysbench") && text.contains("transferred ("),
    readings,
};

const SHARED: &str = "its threads share one block, and no kernel of ours does; --memory-scope=local has one for each";
const OTHER: &str = "its operation is neither read nor write";

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let threads = between(text, "Number of threads:", "\n").unwrap_or(1.0);
    let block = between(text, "block size:", "KiB").or(between(text, "block size:", "K\n")).map(|kib| kib * 1024.0);
    let word = |label: &str| lines(text).find_map(|(_, line)| line.strip_prefix(label).map(str::trim));
    let kernel = match word("operation:").or(word("Operations performed:")) {
        Some("write") => Some("store"),
        Some("read") => Some("load"),
        _ => None,
    };
    let is_shared = threads > 1.0 && word("scope:") != Some("local");
    let mut found = Vec::new();
    for (at, line) in lines(text) {
        let Some((_, rate)) = line.split_once("transferred (") else { continue };
        let rate = rate.split_whitespace().next().unwrap_or_default();
        let asks = match kernel {
            None => Asks::Nothing("GB/s", OTHER),
            Some(_) if is_shared => Asks::Nothing("GB/s", SHARED),
            Some(kernel) => Asks::Bandwidth(Loop {
                kernel,
                stores: &[StoreKind::Regular],
                width: Some(Width::Scalar),
                threads: Some(threads as usize),
                bytes: block.map(|block| bytes(block * threads)),
                is_best: false,
            }),
        };
        let name =
            format!("memory {}", kernel.map_or("operation", |kernel| if kernel == "store" { "write" } else { "read" }));
        found.push(Reading { name, value: number(rate, at)? * f64::from(1 << 20) / 1e9, asks });
    }
    Ok(found)
}
