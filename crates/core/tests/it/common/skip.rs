//! What a test does where the machine lacks what it needs: it says so, and is counted.
//!
//! Where the variable `MEMBOUND_SKIPS` names a file, each skip is a line there: `TEST: why`. `.ci/run` prints the lines and
//! holds them against `.ci/skips`.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Says why the test that runs skips, whole or in part.
pub fn skip(why: impl Display) {
    let thread = std::thread::current();
    // One line each, whatever a reason quotes.
    let why = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("{}: {why}", thread.name().unwrap_or("a thread"));
    eprintln!("skipped: {line}");
    if let Some(path) = std::env::var_os("MEMBOUND_SKIPS") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
