//! membound once more, as a child that measures alone: in a process group of its own, ended when its time is over, and ended by
//! the kernel should the rank die.

use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::fleet::arriving::ends;
use crate::fleet::word::{NodeOutcome, State, shortened};
use crate::fleet::{Awake, Measuring};
use membound_measure::os::{files, outfile, processes, thread};

/// What launchers tell ranks by, as the beginnings of names: a child is no rank. Open MPI and what it stands on, MPICH's Hydra
/// and what derives from it, Slurm's steps, Cray, Flux. (`SLURMD_NODENAME` stays: it names the node.)
const LAUNCHERS: [&str; 17] = [
    "OMPI_", "OPAL_", "ORTE_", "PRTE_", "PMIX_", "PMI_", "PMI2_", "HYDRA_", "HYDI_", "MPI_", "MPICH_", "MPIR_",
    "I_MPI_", "MV2_", "SLURM_", "PALS_", "FLUX_",
];

/// From asking a child to end to ending it.
const GRACE: Duration = Duration::from_secs(3);

/// In a child: from now on it ends with its parent and has nothing open that the parent had. One that measures for a rank may use
/// every CPU that its control group allows, whatever the launcher bound the parent to; a worker keeps to those of its parent. To be
/// called first of all. Without a parent that asked for it, nothing happens.
pub fn accept_leash() {
    if let Some(parent) = std::env::var(processes::LEASH).ok().and_then(|parent| parent.parse().ok()) {
        processes::live_with(parent);
        processes::close_inherited();
        if !processes::is_worker() {
            thread::unbind();
        }
    }
}

/// A child that measures.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    folder: PathBuf,
    /// Says that the folder is in use, for as long as this process lives.
    _in_use: File,
    record: Option<PathBuf>,
    /// Bytes up to the end of the last complete line.
    complete: u64,
    /// Time as this process lives through it: what stood still with it has not taken too long.
    awake: Awake,
    timeout: Duration,
    /// When it was asked to end, and why.
    ending: Option<(Duration, NodeOutcome)>,
    /// When it was first killed.
    killed: Option<Duration>,
    ended: Option<State>,
}

impl Child {
    /// Starts membound with these arguments and those of `output`, which name a place in the folder they are given. An error
    /// says why this node can't.
    pub fn start(
        arguments: &[String],
        output: impl FnOnce(&Path, &[String]) -> Vec<String>,
        timeout: Duration,
    ) -> Result<Self, String> {
        let place = std::env::temp_dir();
        let (folder, in_use) = folder(&place).map_err(|fault| {
            format!("no folder for its record can be made in {}: {fault}; set TMPDIR", place.display())
        })?;
        // Those of ranks that were killed.
        let _ = sweep(&place, &folder);
        let arguments = output(&folder, arguments);
        match spawn(&arguments, &folder) {
            Ok(process) => Ok(Child::of(process, folder, in_use, timeout)),
            Err(fault) => {
                let _ = std::fs::remove_dir_all(&folder);
                Err(format!("membound can't be started once more: {fault}"))
            }
        }
    }

    fn of(process: std::process::Child, folder: PathBuf, in_use: File, timeout: Duration) -> Self {
        Child {
            process,
            folder,
            _in_use: in_use,
            record: None,
            complete: 0,
            awake: Awake::new(),
            timeout,
            ending: None,
            killed: None,
            ended: None,
        }
    }

    /// Asks it to end, in the way that keeps what is finished; a child that stands still is killed later.
    fn end(&mut self, outcome: NodeOutcome) {
        if self.ending.is_none() {
            processes::ask_group_to_end(self.process.id());
            self.ending = Some((self.awake.now(), outcome));
        }
    }

    fn watch(&mut self) {
        let now = self.awake.now();
        let is_over = |since: Option<Duration>| since.is_some_and(|since| now >= since + GRACE);
        match self.process.try_wait() {
            Ok(Some(status)) => self.ended = Some(self.judged(status)),
            Ok(None) if is_over(self.killed) => {
                // It waits in the kernel, for a disk or memory that does not answer. Nobody waits for it.
                let outcome = self.ending.as_ref().map_or(NodeOutcome::Crashed, |(_, outcome)| *outcome);
                let reason = "its process can't be ended: it waits in the kernel (state D)";
                self.ended = Some(State::Ended { outcome, reason: Some(reason.into()) });
            }
            Ok(None) if is_over(self.ending.map(|(since, _)| since)) => {
                processes::kill_group(self.process.id());
                self.killed.get_or_insert(now);
            }
            Ok(None) if now >= self.timeout => self.end(NodeOutcome::TimedOut),
            Ok(None) => {}
            Err(fault) => {
                let reason = Some(format!("its process can't be watched: {fault}"));
                self.ended = Some(State::Ended { outcome: NodeOutcome::Crashed, reason });
            }
        }
    }

    /// What its end says.
    fn judged(&mut self, status: ExitStatus) -> State {
        let said = last_line(&self.folder.join("stderr"));
        let with = |what: String| Some(if said.is_empty() { what } else { format!("{what}: {said}") });
        let complete = self.scan();
        let is_end = |record: &Path| File::open(record).and_then(|file| ends(&file, complete)).unwrap_or(false);
        let is_whole = self.record().is_some_and(is_end);
        let (outcome, reason) = match (&self.ending, status.code(), processes::signal_of(status)) {
            (Some((_, NodeOutcome::TimedOut)), ..) => {
                (NodeOutcome::TimedOut, Some(format!("not done after {} s", self.timeout.as_secs_f64())))
            }
            (Some((_, outcome)), ..) => (*outcome, None),
            (None, Some(0), _) if is_whole => (NodeOutcome::Measured, None),
            (None, Some(0), _) => (NodeOutcome::Refused, Some("this plan leaves no record".into())),
            (None, Some(1), _) if is_whole => {
                (NodeOutcome::Faulty, with("cases failed, are invalid or were interrupted".into()))
            }
            (None, Some(2), _) => (NodeOutcome::Refused, with("exit code 2".into())),
            (None, Some(code), _) => (NodeOutcome::Crashed, with(format!("exit code {code}"))),
            (None, None, signal) => (NodeOutcome::Crashed, with(format!("signal {}", signal.unwrap_or(0)))),
        };
        State::Ended { outcome, reason }
    }

    /// The record's path, once there is one: it alone ends in .jsonl.
    fn record(&mut self) -> Option<&Path> {
        if self.record.is_none() {
            let mut paths = std::fs::read_dir(&self.folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
            self.record = paths.find(|path| path.extension().is_some_and(|end| end == "jsonl"));
        }
        self.record.as_deref()
    }

    /// Looks how far complete lines reach by now.
    fn scan(&mut self) -> u64 {
        let from = self.complete;
        let reach = |record: &Path| complete_lines(record, from).unwrap_or(from);
        self.complete = self.record().map_or(from, reach);
        self.complete
    }
}

impl Measuring for Child {
    fn state(&mut self) -> State {
        if self.ended.is_none() {
            self.watch();
        }
        self.ended.clone().unwrap_or(State::Running)
    }

    fn read(&mut self, at: u64, most: usize) -> io::Result<Vec<u8>> {
        let complete = self.scan();
        let Some(record) = self.record() else { return Ok(Vec::new()) };
        let mut file = File::open(record)?;
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        file.take(complete.saturating_sub(at).min(most as u64)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn bytes(&mut self) -> u64 {
        self.scan()
    }

    fn stop(&mut self) {
        self.end(NodeOutcome::Interrupted);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Whatever was said of it: nothing that still runs is left behind.
        if matches!(self.process.try_wait(), Ok(None)) {
            processes::kill_group(self.process.id());
            let killed = Instant::now();
            // What waits in the kernel has been waited for.
            while self.ended.is_none() && matches!(self.process.try_wait(), Ok(None)) && killed.elapsed() < GRACE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(arguments: &[String], folder: &Path) -> io::Result<std::process::Child> {
    let mut command = processes::this_program("membound");
    for (name, _) in std::env::vars_os() {
        if LAUNCHERS.iter().any(|launcher| name.as_encoded_bytes().starts_with(launcher.as_bytes())) {
            command.env_remove(name);
        }
    }
    command
        .args(arguments)
        .env(processes::LEASH, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(outfile::create(&folder.join("stderr"))?)
        .spawn()
}

/// What folders of records are called, before the process and a number.
const FOLDER: &str = "membound-fleet-";
/// The file in such a folder that is locked while it is in use.
const LOCK: &str = "in-use";

/// A folder that nobody else can read, and that nobody can have made before, and the lock on it.
fn folder(place: &Path) -> io::Result<(PathBuf, File)> {
    let mut fault = io::Error::other("every name is taken");
    for n in 0..100 {
        let folder = place.join(format!("{FOLDER}{}-{n}", std::process::id()));
        match files::create_private_folder(&folder) {
            Ok(()) => return locked(&folder).map(|lock| (folder, lock)),
            Err(error) => fault = error,
        }
        if fault.kind() != io::ErrorKind::AlreadyExists {
            break;
        }
    }
    Err(fault)
}

/// Locks a folder. The lock has its name only once it is held: what has that name and is free is nobody's any more.
fn locked(folder: &Path) -> io::Result<File> {
    let unnamed = folder.join("lock");
    let lock = outfile::create(&unnamed)?;
    lock.lock()?;
    outfile::rename(&unnamed, &folder.join(LOCK))?;
    Ok(lock)
}

/// Removes what ranks of this user have left that were killed: their folders, which nobody holds.
fn sweep(place: &Path, own: &Path) -> io::Result<()> {
    let user = files::owner(&own.symlink_metadata()?);
    for entry in std::fs::read_dir(place)?.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(FOLDER)
            && entry.path() != own
            && entry.metadata().is_ok_and(|folder| folder.is_dir() && files::owner(&folder) == user);
        if is_ours
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && lock.try_lock().is_ok()
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// How far complete lines reach, if they reach up to `from`.
fn complete_lines(path: &Path, from: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let (mut at, mut complete) = (from, from);
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = file.read(&mut piece)?;
        let new = piece.get(..read).unwrap_or_default();
        if new.is_empty() {
            return Ok(complete);
        }
        if let Some(last) = new.iter().rposition(|byte| *byte == b'\n') {
            complete = at + last as u64 + 1;
        }
        at += new.len() as u64;
    }
}

/// The last thing that a child said.
fn last_line(path: &Path) -> String {
    let text = std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    shortened(last.trim_start_matches("membound: "), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_grow_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let long = "x".repeat(200_000);
        std::fs::write(&path, format!("one\ntwo\n{long}")).unwrap();
        assert_eq!(complete_lines(&path, 0).unwrap(), 8);
        std::fs::write(&path, format!("one\ntwo\n{long}\nthr")).unwrap();
        assert_eq!(complete_lines(&path, 8).unwrap(), 8 + 200_001);
        assert!(complete_lines(&folder.path().join("none"), 0).is_err());
    }

    #[test]
    fn the_last_thing_said_is_one_short_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stderr");
        std::fs::write(&path, "a note\nmembound: no such CPU\x1b[1m\n\n").unwrap();
        assert_eq!(last_line(&path), "no such CPU [1m");
        assert_eq!(last_line(&folder.path().join("none")), "");
    }

    /// A child that runs on whatever it is asked, and the place of its folder.
    #[cfg(unix)]
    fn stubborn() -> (Child, tempfile::TempDir) {
        use std::os::unix::process::CommandExt;
        let place = tempfile::tempdir().unwrap();
        let (folder, in_use) = folder(place.path()).unwrap();
        let mut command = std::process::Command::new("sh");
        let process = command.args(["-c", "trap '' TERM; while :; do sleep 1; done"]).process_group(0).spawn().unwrap();
        (Child::of(process, folder, in_use, Duration::from_secs(60)), place)
    }

    #[cfg(unix)]
    #[test]
    fn nobody_is_given_up_who_was_not_killed() {
        let (mut child, _place) = stubborn();
        // Nobody looked for long after it was asked to end.
        child.awake.total = 10 * GRACE;
        child.ending = Some((Duration::ZERO, NodeOutcome::TimedOut));
        assert!(matches!(child.state(), State::Running), "this look kills it");
        assert!(child.killed.is_some());
        let since = Instant::now();
        while matches!(child.state(), State::Running) && since.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let State::Ended { outcome, reason } = child.state() else { panic!("it was killed") };
        assert_eq!((outcome, reason.unwrap()), (NodeOutcome::TimedOut, "not done after 60 s".into()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_that_was_given_up_is_killed_all_the_same() {
        let (mut child, _place) = stubborn();
        child.ended = Some(State::Ended { outcome: NodeOutcome::Crashed, reason: None });
        // Gone, or a number until this process reaps it.
        let stat = format!("/proc/{}/stat", child.process.id());
        let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        assert!(!is_gone());
        drop(child);
        let since = Instant::now();
        while !is_gone() && since.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_gone());
    }

    #[cfg(unix)]
    #[test]
    fn a_job_that_was_suspended_has_not_timed_out() {
        let (mut child, _place) = stubborn();
        // An hour between two looks counts for a second.
        let hour = Duration::from_secs(3600);
        if let Some(before) = child.awake.last.checked_sub(hour) {
            child.awake.last = before;
        }
        assert!(matches!(child.state(), State::Running) && child.ending.is_none());
        // A minute of looks is a minute.
        child.awake.total = Duration::from_secs(60);
        child.state();
        assert!(child.ending.is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_is_private_and_swept_once_nobody_holds_it() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let (own, _own_lock) = folder(place.path()).unwrap();
        let (other, other_lock) = folder(place.path()).unwrap();
        assert_ne!(own, other);
        assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        // One that is just being made, and one that is another program's.
        let others = ["membound-fleet-1-0", "other"].map(|name| place.path().join(name));
        others.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        sweep(place.path(), &own).unwrap();
        assert!(other.exists(), "it is held");
        drop(other_lock);
        // A process that another test starts meanwhile has the lock, too, until it runs its program.
        let since = Instant::now();
        while other.exists() && since.elapsed() < GRACE {
            sweep(place.path(), &own).unwrap();
        }
        assert!(!other.exists() && own.exists() && others.iter().all(|folder| folder.exists()));
    }
}
