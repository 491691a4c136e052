//! `membound fleet run` for real: under Open MPI and under MPICH on this machine, and in a Slurm of four nodes, which shares
//! it too. Nodes are told apart by the name that Slurm gives them. Faults are planted from outside, by signals to processes
//! that the test finds by its own mark.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::program::membound;
use crate::common::signals::send;
use crate::common::skip::skip;
use crate::common::slurm::{Options, Slurm, has, name};
use membound::fleet::summary::{FILE, Summary};
use membound::fleet::word::NodeOutcome;
use membound_core::record::Record;
use tempfile::TempDir;

/// Bears the job's folder, in the environment of all that it starts.
const MARK: &str = "MEMBOUND_TEST_FLEET";
/// Ranks are nodes of their own: what Slurm calls them, else by their number.
const NODE_EACH: &str = r#"[ -n "$SLURMD_NODENAME" ] || export SLURMD_NODENAME="n$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} + 1))"
                           exec "$0" "$@""#;
/// What no fault makes longer.
const ENDS_WITHIN: Duration = Duration::from_secs(180);

/// A launcher's command line, up to the program.
type Launcher = &'static [&'static str];

const OPEN_MPI: Launcher = &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "4"];
const MPICH: Launcher = &["mpirun.mpich", "-np", "4"];

fn is_missing(launcher: Launcher) -> bool {
    let missing = launcher.iter().find(|word| word.starts_with("mpirun") && !has(word));
    if let Some(program) = missing {
        skip(format!("no {program} here; Debian: apt-get install openmpi-bin mpich"));
    }
    missing.is_some()
}

/// A job that runs, and where its results go.
struct Job {
    process: Child,
    folder: TempDir,
}

impl Job {
    /// Starts ranks by a launcher; each is a node, or all are one.
    fn start(mut command: Command, launcher: Launcher, each_a_node: bool, flags: &[&str]) -> Job {
        let folder = tempfile::tempdir().unwrap();
        command.args(&launcher[1..]);
        if each_a_node {
            command.args(["sh", "-c", NODE_EACH]);
        }
        command.arg(env!("CARGO_BIN_EXE_membound")).args(["fleet", "run", "--out"]).arg(folder.path().join("out"));
        command.args(flags).env(MARK, folder.path()).env_remove("SLURMD_NODENAME");
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Job { process, folder }
    }

    /// The processes of this job that live, with their environments.
    fn processes(&self) -> Vec<(u32, String)> {
        let mark = format!("{MARK}={}\0", self.folder.path().display());
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let environment = |process: u32| {
            let bytes = std::fs::read(format!("/proc/{process}/environ")).ok()?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            (text.contains(&mark) && process != self.process.id()).then_some((process, text))
        };
        numbers.filter_map(environment).collect()
    }

    /// The process that measures on a node.
    fn measuring(&self, node: usize) -> Option<u32> {
        let node = format!("SLURMD_NODENAME={}\0", name(node));
        let is_it =
            |(_, environment): &&(u32, String)| environment.contains(&node) && environment.contains("MEMBOUND_LEASH=");
        self.processes().iter().find(is_it).map(|(process, _)| *process)
    }

    /// Waits until all of these nodes have finished some visits, as far as rank 0 knows.
    fn wait_for_visits(&mut self, nodes: &[usize]) {
        let part = |node: &usize| self.folder.path().join("out").join(format!("{}.jsonl.part", name(*node)));
        let parts: Vec<_> = nodes.iter().map(part).collect();
        let deadline = Instant::now() + ENDS_WITHIN;
        // A header and two visits.
        let has_visits = |part: &PathBuf| std::fs::read_to_string(part).is_ok_and(|text| text.lines().count() > 2);
        while !parts.iter().all(has_visits) {
            assert!(Instant::now() < deadline, "no visits of {nodes:?}");
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("the job ended with {status} before visits of {nodes:?} were here");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until rank 0 has written what became of all nodes. What is left of the job then is its launcher.
    fn wait_for_summary(&mut self) {
        let deadline = Instant::now() + ENDS_WITHIN;
        let file = self.folder.path().join("out").join(FILE);
        let is_complete = || {
            let text = std::fs::read_to_string(&file).ok()?;
            serde_json::from_str::<Summary>(&text).ok().map(|summary| summary.complete)
        };
        while is_complete() != Some(true) && self.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "no summary");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn signal(&self, node: usize, signal: i32) {
        let process = self.measuring(node).unwrap_or_else(|| panic!("nothing measures on n{node}"));
        assert!(send(signal, process), "{signal} to {process}");
    }

    /// Waits for its end; then nothing of it may be left, and its folder holds records and a summary alone.
    fn end(mut self) -> Ended {
        let deadline = Instant::now() + ENDS_WITHIN;
        while self.process.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let left = self.processes();
                left.iter().for_each(|(process, _)| assert!(send(libc::SIGKILL, *process)));
                let _ = self.process.kill();
                panic!("it hangs; what ran: {:?}", left.iter().map(|(process, _)| process).collect::<Vec<_>>());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // What is killed takes a moment to be gone.
        while !self.processes().is_empty() {
            assert!(Instant::now() < deadline, "processes are left: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(50));
        }
        let Job { process, folder } = self;
        Ended { output: process.wait_with_output().unwrap(), folder }
    }
}

struct Ended {
    output: Output,
    folder: TempDir,
}

impl Ended {
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn summary(&self) -> Summary {
        let text = std::fs::read_to_string(self.out().join(FILE));
        let text = text.unwrap_or_else(|fault| panic!("{fault}\n{}\n{}", self.stdout(), self.stderr()));
        serde_json::from_str(&text).unwrap()
    }

    /// Each node's outcome, by name; a measured node's record is whole, all others hold what their nodes had finished.
    fn outcomes(&self) -> Vec<(String, NodeOutcome)> {
        let summary = self.summary();
        assert!(summary.complete, "{}", self.stderr());
        for node in &summary.nodes {
            let record = node.record.as_ref().map(|file| Record::read(&self.out().join(file)).unwrap());
            let visits = record.as_ref().map_or(0, |record| record.measurements.len());
            assert_eq!(visits as u64, node.visits, "{}", node.name);
            if node.outcome == NodeOutcome::Measured {
                let record = record.unwrap_or_else(|| panic!("{} has no record", node.name));
                assert!(record.end.is_some() && visits > 0, "{}", node.name);
            }
        }
        let mut outcomes: Vec<_> = summary.nodes.into_iter().map(|node| (node.name, node.outcome)).collect();
        outcomes.sort();
        outcomes
    }

    /// Files that are there, without the summary.
    fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.out()).unwrap();
        let mut files: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.retain(|file| file != FILE);
        files.sort();
        files
    }
}

fn named(outcomes: &[(usize, NodeOutcome)]) -> Vec<(String, NodeOutcome)> {
    outcomes.iter().map(|(node, outcome)| (name(*node), *outcome)).collect()
}

/// One case, measured in an instant.
const SHORT: &[&str] = &["--", "bandwidth", "--kernel", "load", "--size", "16KiB", "--threads", "1", "--budget", "2s"];
/// Hundreds of cases, of which a node measures one after the other until it is told otherwise. What hangs is ended a while
/// after the others are done; a node that is gone is missed sooner.
const LONG: &[&str] = &[
    "--node-timeout",
    "16s",
    "--silence",
    "5s",
    "--",
    "bandwidth",
    "--kernel",
    "all",
    "--size",
    "16KiB,64KiB,256KiB,1MiB",
    "--width",
    "scalar,128",
    "--threads",
    "1",
    "--budget",
    "10s",
];

use NodeOutcome::{Crashed, Lost, Measured, TimedOut};

fn one_host_is_one_node(launcher: Launcher) {
    if is_missing(launcher) {
        return;
    }
    let ended = Job::start(Command::new(launcher[0]), launcher, false, SHORT).end();
    let (stdout, stderr) = (ended.stdout(), ended.stderr());
    assert_eq!(ended.output.status.code(), Some(0), "{stdout}\n{stderr}");
    assert_eq!((ended.outcomes().len(), ended.files().len()), (1, 1));
    assert_eq!((ended.summary().ranks, ended.summary().nodes[0].ranks), (4, 4));
    assert!(stdout.starts_with("1 node: 1 measured\nWritten: ") && stdout.lines().count() == 2, "{stdout}");
    // What measured was no rank, and knew the launcher's names no more.
    let record = Record::read(&ended.out().join(&ended.files()[0])).unwrap();
    assert_eq!(record.header.command[..2], ["membound", "bandwidth"]);
}

#[test]
fn one_host_is_one_node_under_open_mpi() {
    one_host_is_one_node(OPEN_MPI);
}

#[test]
fn one_host_is_one_node_under_mpich() {
    one_host_is_one_node(MPICH);
}

fn what_crashes_or_hangs_costs_no_other_record(launcher: Launcher) {
    if is_missing(launcher) {
        return;
    }
    let mut job = Job::start(Command::new(launcher[0]), launcher, true, LONG);
    job.wait_for_visits(&[1, 2, 3, 4]);
    job.signal(2, libc::SIGSTOP);
    job.signal(3, libc::SIGKILL);
    let ended = job.end();
    assert_eq!(ended.outcomes(), named(&[(1, Measured), (2, TimedOut), (3, Crashed), (4, Measured)]));
    assert_eq!(ended.files(), ["n1.jsonl", "n2.jsonl", "n3.jsonl", "n4.jsonl"], "what was finished is kept");
    assert_eq!(ended.output.status.code(), Some(1), "{}", ended.stderr());
    let stdout = ended.stdout();
    assert!(stdout.contains("4 nodes: 2 measured, 1 crashed, 1 timed out\n  n2: not done after 16 s; "), "{stdout}");
    assert!(stdout.contains("  n3: signal 9; "), "{stdout}");
    assert!(ended.stderr().contains("membound: n3: crashed: signal 9"), "{}", ended.stderr());
}

#[test]
fn what_crashes_or_hangs_costs_no_other_record_under_open_mpi() {
    what_crashes_or_hangs_costs_no_other_record(OPEN_MPI);
}

#[test]
fn what_crashes_or_hangs_costs_no_other_record_under_mpich() {
    what_crashes_or_hangs_costs_no_other_record(MPICH);
}

#[test]
fn an_interrupted_job_keeps_what_is_here() {
    if is_missing(MPICH) {
        return;
    }
    let mut job = Job::start(Command::new(MPICH[0]), MPICH, true, LONG);
    job.wait_for_visits(&[1, 2, 3, 4]);
    assert!(send(libc::SIGTERM, job.process.id()));
    let ended = job.end();
    assert_ne!(ended.output.status.code(), Some(0), "{}", ended.stderr());
    // Rank 0 may be killed before it has tidied up: a part is a record too.
    for file in ended.files() {
        let record = Record::read(&ended.out().join(&file)).unwrap();
        assert!(!record.measurements.is_empty(), "{file}");
        assert!(record.end.is_none_or(|end| end.interrupted), "{file} is not whole, and does not say that it is");
    }
    assert_eq!(ended.files().len(), 4);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_found_before_anything_is_measured() {
    if is_missing(MPICH) {
        return;
    }
    // A file where a folder should be.
    let mut command = Command::new(MPICH[0]);
    command.args(["-np", "2", env!("CARGO_BIN_EXE_membound"), "fleet", "run", "--out", "/proc/version"]).args(SHORT);
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stderr.contains("cannot use /proc/version for results"), "{stderr}");
    assert!(stderr.contains("choose another folder with --out"), "{stderr}");
    assert_eq!(stderr.matches("cannot use").count(), 1, "one rank says it: {stderr}");
    assert_eq!((output.status.code(), stdout.as_ref()), (Some(2), ""), "{stderr}");
}

#[test]
fn results_of_another_run_are_not_overwritten() {
    if is_missing(MPICH) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE), "{}").unwrap();
    let mut command = Command::new(MPICH[0]);
    command.args(["-np", "1", env!("CARGO_BIN_EXE_membound"), "fleet", "run", "--out"]).arg(folder.path()).args(SHORT);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("holds the results of another run"), "{stderr}");
    assert_eq!(std::fs::read_to_string(folder.path().join(FILE)).unwrap(), "{}");
}

#[test]
fn ranks_of_other_plans_are_refused_and_named() {
    if is_missing(MPICH) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut command = Command::new(MPICH[0]);
    for (node, kernel) in [("n1", "load"), ("n2", "copy")] {
        let program = env!("CARGO_BIN_EXE_membound");
        command.args(["-np", "1", "-env", "SLURMD_NODENAME", node, program, "fleet", "run", "--out"]).arg(&out);
        command.args(["--", "bandwidth", "--kernel", kernel, "--size", "16KiB", "--threads", "1", "--budget", "2s"]);
        command.args((node == "n1").then_some(":"));
    }
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let ended = Ended { output, folder };
    assert_eq!(ended.outcomes(), named(&[(1, Measured), (2, NodeOutcome::Refused)]), "{stdout}");
    let reason = ended.summary().nodes[1].reason.clone().unwrap();
    assert!(reason.contains("--kernel copy") && reason.contains("give all ranks one plan"), "{reason}");
    assert_eq!(ended.output.status.code(), Some(1));
}

#[test]
fn without_a_launcher_a_sentence_says_what_to_do() {
    let mut command = membound();
    for (name, _) in
        std::env::vars().filter(|(name, _)| ["OMPI_", "PMI", "SLURM"].iter().any(|own| name.starts_with(own)))
    {
        command.env_remove(name);
    }
    let output = command.args(["fleet", "run"]).args(SHORT).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
    assert!(
        stderr.contains("mpirun -np 2 membound") && stderr.contains("copy the records into one folder"),
        "{stderr}"
    );
}

/// In Slurm: n2 may hang, n3 crashes, and n4 loses its power or only its slurmd.
fn in_slurm(slurm: &mut Slurm, launcher: Launcher, hangs: bool, has_power: bool) {
    if is_missing(launcher) {
        return;
    }
    let _ = slurm.output("scontrol", &["update", "nodename=n[1-4]", "state=resume"]);
    slurm.wait_for("all nodes are idle", ENDS_WITHIN, |slurm| slurm.states().iter().all(|state| state == "idle"));
    let mut job = Job::start(slurm.command(launcher[0]), launcher, false, LONG);
    job.wait_for_visits(&[1, 2, 3, 4]);
    if hangs {
        job.signal(2, libc::SIGSTOP);
    }
    job.signal(3, libc::SIGKILL);
    if has_power {
        assert!(send(libc::SIGKILL, slurm.node(4).unwrap()));
    } else {
        slurm.stop_node(4);
        job.wait_for_summary();
        // What Slurm does by itself after a minute: only then does a launcher stop waiting for the node.
        let said = slurm.output("scontrol", &["update", "nodename=n4", "state=down", "reason=power"]);
        assert_eq!(said, "");
    }
    let ended = job.end();
    let second = if hangs { TimedOut } else { Measured };
    let last = if has_power { Measured } else { Lost };
    let said = format!("{launcher:?}\n{}\n{}", ended.stdout(), ended.stderr());
    assert_eq!(ended.outcomes(), named(&[(1, Measured), (2, second), (3, Crashed), (4, last)]), "{said}");
    assert_eq!(ended.files(), ["n1.jsonl", "n2.jsonl", "n3.jsonl", "n4.jsonl"], "{said}");
    // A fault alone is told in the first line.
    let third =
        if hangs || !has_power { "\n  n3: signal 9; " } else { "4 nodes: 3 measured, 1 crashed (n3: signal 9; " };
    assert!(ended.stdout().contains(third), "{said}");
    assert_eq!(ended.stdout().contains("  n4: no word for 5 s; "), !has_power, "{said}");
    slurm.stop_node(4);
    slurm.start_node(4);
}

/// That a node which hangs costs no other record is shown under both MPIs without a Slurm, too: here it hangs under srun alone.
#[test]
fn a_slurm_of_four_nodes() {
    let Some(mut slurm) = Slurm::start(&Options::default()) else { return };
    in_slurm(&mut slurm, &["srun", "--mpi=pmi2", "--no-kill", "--kill-on-bad-exit=0", "-N4", "-n4"], true, false);
    in_slurm(&mut slurm, &["salloc", "--no-kill", "-N4", "-n4", "mpirun.mpich"], false, true);
    let open_mpi: Launcher =
        &["salloc", "--no-kill", "-N4", "-n4", "mpirun.openmpi", "--allow-run-as-root", "--enable-recovery"];
    in_slurm(&mut slurm, open_mpi, false, false);
}

#[test]
fn a_plan_that_measures_nothing_is_refused_by_one_rank() {
    if is_missing(MPICH) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("never");
    let mut command = Command::new(MPICH[0]);
    command.args(["-np", "3", env!("CARGO_BIN_EXE_membound"), "fleet", "run", "--out"]).arg(&out);
    let output = command.args(["--", "machine"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("measures nothing").count(), 1, "{stderr}");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(!out.exists());
}
