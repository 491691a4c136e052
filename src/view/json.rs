//! Rows as JSON.

use crate::model::AnyRow;

/// One array of tidy rows, a row on each line.
pub fn rows(rows: &[AnyRow]) -> String {
    let row = |row| serde_json::to_string(row).expect("a row has string keys only");
    let lines: Vec<String> = rows.iter().map(row).collect();
    if lines.is_empty() { "[]\n".into() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}
