//! nvbandwidth's JSON (`-j`): test cases, each with a matrix of GB/s (1e9 bytes per second), as strings, `N/A` where there is no such pair.
//! It measures copies to, from and between GPUs, which membound does not: two of its files are held against each other.

use super::tool::{Asks, Fault, Reading, Tool, number};
use serde_json::Value;

pub(super) const TOOL: Tool = Tool {
    name: "nvbandwidth",
    counts: "copies to, from and between GPUs, in 1e9 bytes per second",
    is_output: |text| text.trim_start().starts_with('{') && text.contains("\"nvbandwidth\""),
    readings,
};

const GPU: &str = "no row has one way of a copy by itself; look at `membound copies --device cuda:0`, or give two outputs of nvbandwidth";

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let fault = |fault: &serde_json::Error| Fault { line: fault.line(), what: "it is no valid JSON".into() };
    let whole: Value = serde_json::from_str(text).map_err(|error| fault(&error))?;
    let tests = whole["nvbandwidth"]["testcases"].as_array();
    let tests = tests.ok_or_else(|| Fault { line: 1, what: "it has no list of testcases".into() })?;
    let mut found = Vec::new();
    for test in tests {
        let name = test["name"].as_str().unwrap_or("a test without a name");
        let rows = test["bandwidth_matrix"].as_array().into_iter().flatten();
        for (from, row) in rows.enumerate() {
            for (to, cell) in row.as_array().into_iter().flatten().enumerate() {
                // Other versions may print numbers.
                let word = cell.as_str().map_or_else(|| cell.to_string(), String::from);
                if word == "N/A" || word.parse() == Ok(0.0) {
                    continue;
                }
                let name = format!("{name}, {from} to {to}");
                found.push(Reading { name, value: number(&word, 1)?, asks: Asks::Nothing("GB/s", GPU) });
            }
        }
    }
    Ok(found)
}
