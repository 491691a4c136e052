//! Commands started by a real MPI launcher, ended in time, and looked for afterwards.

use crate::common::signals::send;
use crate::common::skip::skip;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The launchers of the two families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpirun {
    OpenMpi,
    Mpich,
}

/// Longer than any of these commands takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Names the processes of one command, in their environment.
const MARK: &str = "MEMBOUND_TEST_MARK";

/// Processes that wait for each other by spinning need the CPUs for themselves.
static TURN: Mutex<()> = Mutex::new(());

impl Mpirun {
    /// This launcher, if it is installed; its absence is told.
    pub fn find(self) -> Option<PathBuf> {
        let name = match self {
            Mpirun::OpenMpi => "mpirun.openmpi",
            Mpirun::Mpich => "mpirun.mpich",
        };
        let found = on_path(name);
        if found.is_none() {
            skip(format!("{name} is not installed"));
        }
        found
    }

    /// The launcher with what it needs to start processes anywhere, as anyone.
    fn command(self, path: &Path) -> Command {
        let mut command = Command::new(path);
        if self == Mpirun::OpenMpi {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        command
    }

    /// Starts processes: for each of `parts` so many, with these arguments. Nothing where it is not installed.
    pub fn start(self, parts: &[(usize, &[&str])], variables: &[(&str, &str)]) -> Option<Launched> {
        let path = self.find()?;
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        static COMMANDS: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COMMANDS.fetch_add(1, Ordering::Relaxed));
        let mut command = self.command(&path);
        for (at, (processes, arguments)) in parts.iter().enumerate() {
            if at > 0 {
                command.arg(":");
            }
            command.args(["-np", &processes.to_string(), env!("CARGO_BIN_EXE_membound")]).args(*arguments);
        }
        command.env(MARK, &mark).envs(variables.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Some(Launched { child: Some(child), mark, _turn: turn })
    }

    /// Starts processes with the same arguments and waits for their end.
    pub fn run(self, processes: usize, arguments: &[&str]) -> Option<Output> {
        Some(self.start(&[(processes, arguments)], &[])?.finish())
    }
}

/// A running launcher and its processes.
pub struct Launched {
    child: Option<Child>,
    mark: String,
    _turn: MutexGuard<'static, ()>,
}

impl Launched {
    /// The processes of this command but the launcher's, each with its environment.
    pub fn processes(&self) -> Vec<(u32, BTreeMap<String, String>)> {
        let marked = |entry: fs::DirEntry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let bytes = fs::read(entry.path().join("environ")).ok()?;
            let pairs = bytes.split(|byte| *byte == 0).filter_map(|pair| {
                let (name, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
                Some((name.to_string(), value.to_string()))
            });
            let variables: BTreeMap<String, String> = pairs.collect();
            (variables.get(MARK) == Some(&self.mark)).then_some((pid, variables))
        };
        let launcher = self.child.as_ref().map(|child| child.id());
        let all = fs::read_dir("/proc").unwrap().flatten().filter_map(marked);
        all.filter(|(pid, _)| Some(*pid) != launcher).collect()
    }

    /// The process of a rank, once it runs.
    pub fn rank(&self, rank: usize) -> u32 {
        let since = Instant::now();
        loop {
            let of_rank = |(pid, variables): (u32, BTreeMap<String, String>)| {
                let own = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].iter().find_map(|name| variables.get(*name));
                (own == Some(&rank.to_string())).then_some(pid)
            };
            if let Some(pid) = self.processes().into_iter().find_map(of_rank) {
                return pid;
            }
            assert!(since.elapsed() < PATIENCE, "rank {rank} never ran");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for its end, and makes sure that it leaves no process behind. One that does not end is a failure, and ended.
    pub fn finish(mut self) -> Output {
        let mut child = self.child.take().unwrap();
        let launcher = child.id();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let watch = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let since = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    if since.elapsed() > PATIENCE {
                        send(libc::SIGTERM, launcher);
                        return true;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                false
            })
        };
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || read(stderr));
        let (stdout, status) = (read(stdout), child.wait().unwrap());
        stop.store(true, Ordering::Relaxed);
        let output = Output { status, stdout, stderr: reader.join().unwrap() };
        assert!(!watch.join().unwrap(), "it did not end: {}", text(&output.stderr));
        self.nothing_left();
        output
    }

    fn nothing_left(&self) {
        let since = Instant::now();
        while !self.processes().is_empty() {
            let left: Vec<u32> = self.processes().iter().map(|(pid, _)| *pid).collect();
            if since.elapsed() > Duration::from_secs(20) {
                left.iter().for_each(|pid| {
                    send(libc::SIGKILL, *pid);
                });
                panic!("left behind: {left:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            send(libc::SIGTERM, child.id());
            let _ = child.wait();
        }
    }
}

fn read(mut from: impl std::io::Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    bytes
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}
