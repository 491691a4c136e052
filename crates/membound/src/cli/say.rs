//! Where text leaves: stdout, stderr and files. Everything that is said goes through here, and is [`visible`].

use std::fmt::Display;
use std::io;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use membound_analyze::output::visible::visible;
use membound_measure::mpi::launcher::launched;
use membound_measure::os::outfile::{Readers, Reserved};
use membound_measure::os::{outfile, terminal};

/// Data: to stdout.
pub fn answer(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout();
    stdout.write_all(visible(text).as_bytes()).and_then(|()| stdout.flush())
}

/// A note: to stderr, with the program's name. Where nobody listens any more, nothing is said.
pub fn note(text: impl Display) {
    talk(&format!("membound: {text}\n"));
}

/// What is good to know and no fault: nothing where `--quiet` was given.
pub fn remark(text: impl Display) {
    if !HUSHED.load(Ordering::Relaxed) {
        note(text);
    }
}

/// No more remarks in this process.
pub fn hush() {
    HUSHED.store(true, Ordering::Relaxed);
}

static HUSHED: AtomicBool = AtomicBool::new(false);

/// Talk that has its form already: to stderr.
pub fn talk(text: &str) {
    let _ = anstream::stderr().write_all(visible(text).as_bytes());
}

/// From now on a panic, whichever thread it is on, ends the process with exit code 1, or that of [`end_faults_with`]: it is a
/// fault of this program, and what was measured is on disk.
pub fn end_at_a_panic() {
    std::panic::set_hook(Box::new(|panic| {
        note(format_args!(
            "a fault of this program, please report it: {panic}\nwhat was measured is in the record; `membound report` shows it"
        ));
        std::process::exit(i32::from(FAULT_CODE.load(Ordering::Relaxed)));
    }));
}

/// The exit code of a panic from now on.
pub fn end_faults_with(code: u8) {
    FAULT_CODE.store(code, Ordering::Relaxed);
}

static FAULT_CODE: AtomicU8 = AtomicU8::new(1);

/// Columns that an answer has: those of the terminal, or what `COLUMNS` says; 80 where there is neither.
pub fn columns() -> usize {
    const USUAL: usize = 80;
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let seen = if launched().is_some() { None } else { terminal::columns() };
    told.or(seen).unwrap_or(USUAL)
}

/// Whether somebody watches stderr.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// A file as a whole, which may replace its older self.
pub fn file(path: &Path, text: &str, readers: Readers) -> io::Result<()> {
    outfile::replace(path, visible(text).as_bytes(), readers)
}

/// All that a file made for it will hold.
pub fn into(file: &mut Reserved, text: &str) -> io::Result<()> {
    file.fill(visible(text).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "MEMBOUND_TEST_PANICS";

    /// In a process of its own: this test's binary once more, a thread of which panics.
    #[test]
    fn a_panic_of_any_thread_ends_the_process_with_a_sentence() {
        if let Ok(code) = std::env::var(CHILD) {
            end_at_a_panic();
            code.parse().into_iter().for_each(end_faults_with);
            let _ = std::thread::spawn(|| panic!("planted")).join();
        }
        for (code, expect) in [("usual", 1), ("2", 2)] {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let name = "cli::say::tests::a_panic_of_any_thread_ends_the_process_with_a_sentence";
            let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, code).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(expect), "{said}");
            assert!(said.contains("please report it") && said.contains("planted"), "{said}");
        }
    }
}
