//! likwid-bench: `MByte/s: 16536.51`, 1e6 bytes per second of all iterations together, counted without write-allocate. Its output does not
//! name the test (stream and daxpy have the same counts), so the command line must stand above it.

use super::tool::{Asks, Fault, Loop, MB, Reading, Tool, between, bytes, lines, number};
use membound_core::kernel::{StoreKind, Width};

pub(super) const TOOL: Tool = Tool {
    name: "likwid-bench",
    counts: "payload without write-allocate, in 1e6 bytes per second, of all its passes together",
    is_output: |text| text.contains("MByte/s:") && text.contains("Cycles per cacheline:"),
    readings,
};

/// Its names and ours. Its `triad` is Schoenauer's; STREAM's is its `stream`.
const KERNELS: [(&str, &str); 9] = [
    ("load", "load"),
    ("store", "store"),
    ("copy", "copy"),
    ("stream", "triad"),
    ("triad", "schoenauer"),
    ("daxpy", "daxpy"),
    ("update", "update"),
    ("sum", "sum"),
    ("ddot", "dot"),
];
/// What stands behind `-t` where nothing does.
const UNNAMED: &str =
    "its output does not name the test: write the command line, such as `likwid-bench -t stream_avx`, above it";

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let (mut found, mut test, mut block) = (Vec::new(), None, String::new());
    for (at, line) in lines(text) {
        if let Some((_, flags)) = line.split_once("likwid-bench ") {
            test = flags.split_whitespace().skip_while(|word| *word != "-t").nth(1).map(String::from);
            block.clear();
        }
        block.push_str(line);
        block.push('\n');
        let Some(rate) = line.strip_prefix("MByte/s:") else { continue };
        let value = number(rate.trim(), at)? * MB / 1e9;
        let asks = test.as_deref().map_or(Asks::Nothing("GB/s", UNNAMED), |test| asks(test, &block));
        found.push(Reading { name: test.clone().unwrap_or_else(|| "a test without a name".into()), value, asks });
        (test, block) = (None, String::new());
    }
    Ok(found)
}

/// A test's name as ours: `copy_mem_avx512` is a copy with non-temporal stores of 512 bits.
fn asks(test: &str, block: &str) -> Asks {
    let mut words = test.split('_');
    let own = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    let Some((_, kernel)) = KERNELS.iter().find(|(name, _)| *name == own) else {
        return Asks::Nothing("GB/s", "no kernel of ours is the same loop");
    };
    let width = match () {
        () if words.contains(&"avx512") => Width::W512,
        () if words.contains(&"avx") => Width::W256,
        () if words.contains(&"sse") => Width::W128,
        () => Width::Scalar,
    };
    let stores: &[StoreKind] = if words.contains(&"mem") { &[StoreKind::Nt] } else { &[StoreKind::Regular] };
    Asks::Bandwidth(Loop {
        kernel,
        stores,
        width: Some(width),
        threads: threads(block),
        bytes: between(block, "Size (Byte):", "\n").map(bytes),
        is_best: false,
    })
}

/// `Using 2 threads`; a line before it counts work groups.
fn threads(block: &str) -> Option<usize> {
    block.lines().find_map(|line| line.strip_prefix("Using ")?.strip_suffix(" threads")?.parse().ok())
}
