//! The program that is tested, run as a user runs it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// It, to be told what to do.
pub fn membound() -> Command {
    Command::new(env!("CARGO_BIN_EXE_membound"))
}

/// Runs it to its end.
pub fn run(arguments: &[&str]) -> Output {
    membound().args(arguments).output().unwrap()
}

/// The same in a folder.
pub fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    membound().args(arguments).current_dir(folder).output().unwrap()
}

/// Runs it to its end: exit code, stdout and stderr.
pub fn tried<A: AsRef<OsStr>>(arguments: &[A]) -> (Option<i32>, String, String) {
    let output = membound().args(arguments).output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Whether a run that was told to be short did not come to its end: beside others a visit can take several times as long as it was
/// planned to, which the run says. What it lacks then is no fault.
pub fn lacked_time(stderr: &str) -> bool {
    let said =
        ["stopped after twice its budget", "ended by its watchdog", "did not end within", "so nothing was measured"];
    said.iter().any(|part| stderr.contains(part))
}

/// A run in a new folder, by the first of these lengths in which it came to its end; none if there is none.
pub fn in_time(lengths: [&str; 2], run: impl Fn(&Path, &str) -> Output) -> Option<(TempDir, Output)> {
    let tried = |length| {
        let folder = tempfile::tempdir().unwrap();
        let output = run(folder.path(), length);
        (folder, output)
    };
    let came_to_its_end =
        |(_, output): &(TempDir, Output)| output.status.success() || !lacked_time(&text(&output.stderr));
    lengths.into_iter().map(tried).find(came_to_its_end)
}

/// Why a test skips what a run lacks whose time ended.
pub const TOO_BUSY: &str = "this machine is too busy for a run as short as this";

/// What it wrote, which is always UTF-8.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
