//! nvbandwidth's JSON (`-j`): test cases, each with a matrix of GB/s (1e9 bytes per second), as strings, `N/A` where there is no such pair.
//! What its copy engines (`_ce`) move one way is what a row of `membound copies` moves; the rest is held against another of its files.

use super::tool::{Asks, Fault, Reading, Tool, number};
use membound_core::machine::devices::{Api, DeviceName};
use membound_core::work::copies::{CopyWork, Route};
use membound_core::work::device::Buffer;
use serde_json::Value;

pub(super) const TOOL: Tool = Tool {
    name: "nvbandwidth",
    counts: "copies to, from and between GPUs, in 1e9 bytes per second",
    is_output: |text| text.trim_start().starts_with('{') && text.contains("\"nvbandwidth\""),
    readings,
};

const OTHERS: &str = "rows of `membound copies` are one way by a copy engine that the source's GPU commands, and both ways in sum; for others give two outputs of nvbandwidth";

/// What a test copies by copy engines, one way, at a place of its matrix; nothing where no row of ours is the same. Its host's memory is pinned,
/// and it reads from a peer where ours writes to it.
fn asks(test: &str, from: usize, to: usize) -> Asks {
    let gpu = |number: usize| DeviceName { api: Api::Cuda, number: number as u32 };
    let host = |route, gpu| CopyWork { device: gpu, route, host: Some(Buffer::Pinned), peer: None };
    let within = |from, to| CopyWork { device: from, route: Route::BetweenDevices, host: None, peer: Some(to) };
    match test {
        // The processor's is the only row of the matrix, whatever the way.
        "host_to_device_memcpy_ce" => Asks::Copy(host(Route::ToDevice, gpu(to))),
        "device_to_host_memcpy_ce" => Asks::Copy(host(Route::FromDevice, gpu(to))),
        "device_to_device_memcpy_write_ce" => Asks::Copy(within(gpu(from), gpu(to))),
        "device_local_copy" => Asks::Copy(within(gpu(to), gpu(to))),
        _ => Asks::Nothing("GB/s", OTHERS),
    }
}

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let fault = |fault: &serde_json::Error| Fault { line: fault.line(), what: "it is no valid JSON".into() };
    let whole: Value = serde_json::from_str(text).map_err(|error| fault(&error))?;
    let tests = whole["nvbandwidth"]["testcases"].as_array();
    let tests = tests.ok_or_else(|| Fault { line: 1, what: "it has no list of testcases".into() })?;
    let mut found = Vec::new();
    for test in tests {
        let test_name = test["name"].as_str().unwrap_or("a test without a name");
        let rows = test["bandwidth_matrix"].as_array().into_iter().flatten();
        for (from, row) in rows.enumerate() {
            for (to, cell) in row.as_array().into_iter().flatten().enumerate() {
                // Other versions may print numbers.
                let word = cell.as_str().map_or_else(|| cell.to_string(), String::from);
                if word == "N/A" || word.parse() == Ok(0.0) {
                    continue;
                }
                let name = format!("{test_name}, {from} to {to}");
                found.push(Reading { name, value: number(&word, 1)?, asks: asks(test_name, from, to) });
            }
        }
    }
    Ok(found)
}
