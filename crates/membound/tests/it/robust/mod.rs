//! What the program does where the machine, the folder or the input is hostile: it ends, says what happened, and touches
//! nothing that is not its own. Real processes, real limits, real faults.

mod faults;
mod files;
mod fleet;
mod input;
mod limits;
mod touches;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::common::program::membound;
use crate::common::{by_hand, simulated};
use membound_core::experiments as plan;
use membound_core::experiments::latency::Detail;
use membound_core::record::Record;

/// Longer than anything here takes, on a machine that is busy with other tests: what goes on for longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command that has ended.
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
    /// Its largest resident set, bytes.
    peak: u64,
    took: Duration,
}

impl Ended {
    fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// It ended by itself, as told, and nothing in it gave up.
    fn is_orderly(&self) -> bool {
        self.code().is_some_and(|code| code <= 2) && !self.stderr.contains("panicked")
    }
}

fn p(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs it to its end; a command that does not end is killed, and the test fails.
fn run(command: &mut Command) -> Ended {
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.unwrap().read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = reader(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = reader(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_of(&child));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let took = started.elapsed();
    Ended { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap(), peak, took }
}

fn peak_of(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.unwrap_or(0) * 1024
}

/// A small record of a simulated machine.
fn record() -> Record {
    let machine = simulated::machine(2, false);
    let cases = plan::latency::latency(&simulated::frame(&machine), Detail::Sketch).unwrap();
    simulated::run(&machine, &cases, &mut simulated::fake())
}

fn recorded(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    by_hand::write(&record(), &path);
    path
}
