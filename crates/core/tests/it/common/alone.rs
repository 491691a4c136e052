//! Children, mappings, open files and limits belong to a process, and so to all tests that run beside each other in it. A test
//! that counts or changes them runs in a process of its own.

use std::process::Command;

/// Whether this is the named test's own process. If not, one is started, changed by `prepare`, and must pass.
pub fn alone(test: &str, prepare: impl FnOnce(&mut Command)) -> bool {
    const MARK: &str = "MEMBOUND_TEST_ALONE";
    if std::env::var(MARK).is_ok_and(|name| name == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
    command.args(["--exact", test, "--test-threads=1", "--nocapture"]).env(MARK, test);
    prepare(&mut command);
    let output = command.output().expect("a program that runs can be started again");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    print!("{text}");
    false
}
