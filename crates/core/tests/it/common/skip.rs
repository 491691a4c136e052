//! What a test does where the machine lacks what it needs: it says so, and is counted.
//!
//! Where the variable `MEMBOUND_SKIPS` names a file, each skip is a line there: `TEST: why`. `.ci/run` prints the lines and
//! holds them against `.ci/skips`.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// What starts a thread that skips by the name of the test that starts it.
#[allow(dead_code, reason = "not every crate's tests skip in threads of their own")]
pub fn thread_of_test() -> std::thread::Builder {
    std::thread::Builder::new().name(std::thread::current().name().expect("a test's thread has its name").to_string())
}

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
