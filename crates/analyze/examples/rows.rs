//! A record's rows in Rust: `cargo run -p membound-analyze --example rows -- run.jsonl`.
//!
//! A report is worked out from a record alone, on any machine; its rows are the same that `--format json` prints.

use std::error::Error;
use std::path::Path;

use membound_analyze::of_record::report;
use membound_analyze::report::Report;
use membound_core::record::Record;

/// Payload bandwidth of each case that was measured: kernel, threads, level, GB/s with its interval.
fn bandwidths(report: &Report) -> Vec<String> {
    let line = |row: &membound_analyze::experiments::bandwidth::rows::BandwidthRow| {
        let rate = row.payload_bps.filter(|_| row.quality.is_measured())?;
        let [value, low, high] = rate.interval().map(|bps| bps / 1e9);
        let level = row.level.as_deref().unwrap_or("between levels");
        let threads = row.case.threads();
        Some(format!("{}\t{threads}\t{level}\t{value:.1} GB/s [{low:.1}, {high:.1}]", row.kernel()))
    };
    report.rows.iter().filter_map(line).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo test --examples` runs this with no record: there is nothing to show then.
    let Some(path) = std::env::args().nth(1) else {
        println!("name a record: rows run.jsonl");
        return Ok(());
    };
    let report = report(&Record::read(Path::new(&path))?);
    for line in bandwidths(&report) {
        println!("{line}");
    }
    // Rows of every experiment, as JSON objects.
    println!("{} rows of all kinds", report.any_rows().count());
    Ok(())
}
