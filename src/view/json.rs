//! Rows as JSON.

use crate::model::Report;

/// One array of tidy rows, a row on each line.
pub fn rows(report: &Report) -> String {
    let row = |row| serde_json::to_string(row).expect("a row has string keys only");
    let lines: Vec<String> = report.rows.iter().map(row).collect();
    if lines.is_empty() { "[]\n".into() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}
