//! Whether others use this machine now: a job of Slurm's, or any work. Who measures beside it disturbs it, and learns
//! nothing of the machine.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::os::alike;

/// How often the machine is looked at.
const LOOKS: u32 = 12;

/// What others do here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Busy {
    /// A step of a Slurm job runs: the process of its `slurmstepd`.
    Job(u32),
    /// So many CPUs of all are in use.
    Cpus {
        /// CPUs' worth of time used, all processes together.
        used: f64,
        /// Online CPUs.
        of: usize,
    },
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Busy::Job(process) => write!(f, "a Slurm job runs here (slurmstepd is process {process})"),
            Busy::Cpus { used, of } => write!(f, "others use {used:.1} of {of} CPUs"),
        }
    }
}

/// What others do during `span`, while this process sleeps. `None`: little or nothing, or it can't be read. Another check
/// would count, too: take a [`Turn`](crate::turn::Turn) first.
pub fn others(span: Duration) -> Option<Busy> {
    others_by(Path::new("/proc"), span)
}

fn others_by(proc: &Path, span: Duration) -> Option<Busy> {
    if let Some(process) = job(proc) {
        return Some(Busy::Job(process));
    }
    let read = |name: &str| std::fs::read_to_string(proc.join(name)).unwrap_or_default();
    let before = Times::of(&read("stat"));
    let mut least_running = u64::MAX;
    for _ in 0..LOOKS {
        std::thread::sleep(span / LOOKS);
        // Less one: who reads is running.
        let running = running(&read("loadavg")).map_or(0, |count| count.saturating_sub(1));
        least_running = least_running.min(running);
    }
    let after = Times::of(&read("stat"));
    let cpus = before.map_or(0, |times| times.cpus);
    let quiet = alike::quiet(cpus);
    let used = before.zip(after).and_then(|(before, after)| after.used_since(before)).unwrap_or(0.0);
    // Time in use is counted in ticks of 10 ms; tasks that were always ready to run say the same at once.
    let used = used.max(if cpus == 0 { 0.0 } else { (least_running as f64).min(cpus as f64) });
    (used > quiet).then_some(Busy::Cpus { used, of: cpus })
}

/// The process that looks after a step of a Slurm job. From version 23.11 on one named `slurmstepd infinity` is there
/// whenever slurmd is: it holds a control group.
fn job(proc: &Path) -> Option<u32> {
    let entries = std::fs::read_dir(proc).ok()?;
    let of = |entry: std::fs::DirEntry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let text = |name: &str| std::fs::read(entry.path().join(name)).ok();
        let name = text("comm")?;
        let command = text("cmdline")?;
        (name.starts_with(b"slurmstepd") && !command.windows(8).any(|word| word == b"infinity")).then_some(process)
    };
    entries.flatten().find_map(of)
}

/// Ready to run, of all tasks: `0.20 0.18 0.12 2/80 11206`.
fn running(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Ticks since boot, over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    used: u64,
    all: u64,
    cpus: usize,
}

impl Times {
    /// From `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. Time that a hypervisor took is neither in
    /// use here nor idle; guests are in user time already.
    fn of(stat: &str) -> Option<Times> {
        let line = stat.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect();
        let [user, nice, system, idle, wait, irq, softirq, rest @ ..] = &ticks[..] else { return None };
        let used = [user, nice, system, irq, softirq].into_iter().fold(0u64, |sum, ticks| sum.saturating_add(*ticks));
        let unused = idle.saturating_add(*wait).saturating_add(rest.first().copied().unwrap_or(0));
        let is_cpu =
            |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        Some(Times { used, all: used.saturating_add(unused), cpus: stat.lines().filter(is_cpu).count() })
    }

    /// CPUs' worth.
    fn used_since(self, before: Times) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|ticks| *ticks > 0)?;
        Some(self.used.saturating_sub(before.used) as f64 / all as f64 * self.cpus as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str =
        "cpu  100 10 40 800 50 3 2 5 0 0\ncpu0 50 5 20 400 25 1 1 2 0 0\ncpu1 50 5 20 400 25 2 1 3 0 0\nintr 1\n";

    #[test]
    fn times_by_hand() {
        // In use 100 + 10 + 40 + 3 + 2, of these and 800 + 50 + 5.
        let before = Times::of(STAT).unwrap();
        assert_eq!(before, Times { used: 155, all: 1010, cpus: 2 });
        // 15 more ticks in use, 25 more idle: 15 of 40 of two CPUs.
        let after = Times::of("cpu 115 10 40 825 50 3 2 5\ncpu0 1\ncpu1 1\n").unwrap();
        assert_eq!(after.used_since(before), Some(0.75));
        assert_eq!(before.used_since(before), None);
        assert_eq!((Times::of("cpu 1 2 3"), Times::of("")), (None, None));
    }

    #[test]
    fn tasks_that_run_are_read() {
        assert_eq!(running("0.20 0.18 0.12 2/80 11206\n"), Some(2));
        assert_eq!((running(""), running("1 2 3 x/y 5")), (None, None));
    }

    /// A folder that looks like /proc.
    fn proc(processes: &[(u32, &str, &str)], stat: &str, loadavg: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (process, name, command) in processes {
            let folder = root.path().join(process.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            std::fs::write(folder.join("cmdline"), command.replace(' ', "\0")).unwrap();
        }
        std::fs::write(root.path().join("stat"), stat).unwrap();
        std::fs::write(root.path().join("loadavg"), loadavg).unwrap();
        root
    }

    fn check(processes: &[(u32, &str, &str)], loadavg: &str, expect: Option<Busy>) {
        let proc = proc(processes, STAT, loadavg);
        assert_eq!(others_by(proc.path(), Duration::from_millis(1)), expect, "{processes:?} {loadavg}");
    }

    #[test]
    fn jobs_and_work_are_seen() {
        let daemon = (9, "slurmd", "/usr/sbin/slurmd -D");
        check(&[daemon], "0 0 0 1/80 1", None);
        check(&[daemon, (70, "slurmstepd", "slurmstepd: [2.0]")], "0 0 0 1/80 1", Some(Busy::Job(70)));
        check(&[daemon, (70, "slurmstepd", "/usr/sbin/slurmstepd infinity")], "0 0 0 1/80 1", None);
        // Two tasks beside the reader, on two CPUs; no more than there are CPUs.
        check(&[], "0 0 0 3/80 1", Some(Busy::Cpus { used: 2.0, of: 2 }));
        check(&[], "0 0 0 9/80 1", Some(Busy::Cpus { used: 2.0, of: 2 }));
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(others_by(nothing.path(), Duration::ZERO), None);
    }

    proptest! {
        #[test]
        fn never_panic(stat in ".{0,200}", more in any::<[u64; 8]>(), loadavg in ".{0,40}") {
            Times::of(&stat);
            running(&loadavg);
            let line = format!("cpu {}\ncpu0 1", more.map(|n| n.to_string()).join(" "));
            let times = Times::of(&line).unwrap();
            times.used_since(Times { used: 0, all: 0, cpus: 1 });
        }
    }
}
