//! Machines that give little: control groups, limits on processes and address space, a hidden /sys, a child that is frozen.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::skip::skip;
use crate::robust::{Ended, p, run};
use membound::fleet::Measuring;
use membound::fleet::child::Child;
use membound::fleet::word::{NodeOutcome, State};

/// A control group of version 1, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str) -> Option<Group> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own =
            own.lines().find_map(|line| line.split_once(&format!(":{controller}:"))?.1.strip_prefix('/'))?.to_string();
        let name = format!("membound-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = Path::new("/sys/fs/cgroup").join(controller).join(own).join(name);
        std::fs::create_dir(&path).ok().map(|()| Group(path))
    }

    fn set(&self, file: &str, value: &str) -> bool {
        std::fs::write(self.0.join(file), value).is_ok()
    }

    fn get(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap_or_default().trim().into()
    }

    /// membound in this group.
    fn membound(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo $$ > \"$0\" && exec \"$@\"",
            p(&self.0.join("cgroup.procs")),
            env!("CARGO_BIN_EXE_membound"),
        ]);
        command.args(arguments);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A default run takes no more than 40 % of what its control group leaves, or says what it needs.
#[test]
fn a_run_takes_its_share_of_a_small_control_group_or_is_refused() {
    let Some(group) = Group::new("memory") else { return skip("no memory control group can be made") };
    for megabytes in [64u64, 80, 200, 400, 1000] {
        let folder = tempfile::tempdir().unwrap();
        let limit = megabytes * 1_000_000;
        if !group.set("memory.limit_in_bytes", &limit.to_string()) {
            return skip("the limit of a control group can't be set");
        }
        group.set("memory.force_empty", "0");
        group.set("memory.max_usage_in_bytes", "0");
        let ended = run(&mut group.membound(&["--budget", "4s", "--out", p(folder.path()), "--format", "json"]));
        let what = format!("{megabytes} MB: {:?} {}", ended.status, ended.stderr);
        assert!(ended.is_orderly(), "{what}");
        let failures = group.get("memory.failcnt");
        let share = ended.peak as f64 / limit as f64;
        eprintln!(
            "{megabytes} MB: exit {:?}, {:.0} MB at most, {:.0} %, {failures} failures",
            ended.code(),
            ended.peak as f64 / 1e6,
            100.0 * share
        );
        match ended.code() {
            Some(2) => assert!(ended.stderr.contains("a default run needs") && megabytes < 200, "{what}"),
            _ => assert!(share <= 0.4, "{what}: {share}"),
        }
        // What is asked for by size is measured in any of them.
        let small = ["bandwidth", "--size", "256KiB", "--kernel", "copy", "--threads", "1", "--budget", "2s"];
        let ended = run(&mut group.membound(&small));
        assert_eq!(ended.code(), Some(0), "{megabytes} MB: {}", ended.stderr);
    }
}

/// The address space counts as memory does.
#[test]
fn a_small_address_space_ends_no_run_by_a_signal() {
    for kib in [150_000u64, 300_000, 600_000, 1_500_000] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
        let program = env!("CARGO_BIN_EXE_membound");
        for arguments in [
            &["--budget", "3s", "--out", p(folder.path())][..],
            &["latency", "--budget", "2s"],
            &["bandwidth", "--size", "64MiB", "--budget", "2s"],
        ] {
            let ended = run(Command::new("sh").args(["-c", &script, program]).args(arguments));
            assert!(ended.is_orderly(), "{kib} KiB: {arguments:?}: {:?} {}", ended.status, ended.stderr);
            assert!(ended.code() == Some(0) || !ended.stderr.is_empty(), "{kib} KiB: {arguments:?}");
        }
    }
}

/// A refused thread is an outcome with a cure, and nobody waits for it.
#[test]
fn a_refused_thread_ends_its_case_alone() {
    let Some(group) = Group::new("pids") else { return skip("no control group of processes can be made") };
    for most in ["1", "2", "3"] {
        group.set("pids.max", most);
        for arguments in [
            &["latency", "--size", "16KiB"][..],
            &["bandwidth", "--size", "256KiB", "--kernel", "copy"],
            &["c2c"],
            &["loaded", "--steps", "2"],
            &["stream"],
            &["check", "--spec", "grace", "--force"],
        ] {
            let ended = run(&mut group.membound(&[arguments, &["--budget", "2s", "--format", "json"]].concat()));
            let what = format!("{most}: {arguments:?}: {:?} {}{}", ended.status, ended.stdout, ended.stderr);
            assert!(ended.is_orderly(), "{what}");
            assert!(ended.took < Duration::from_secs(30), "{:?} {what}", ended.took);
            let said = ended.stdout.contains("could not be started")
                || !ended.stderr.is_empty()
                || ended.stdout.contains("\"measured\"")
                || ended.stdout.contains("\"health\"");
            assert!(said, "{what}");
        }
    }
}

/// Without /sys the CPUs are those that the process may run on, and a run without any says why.
#[test]
fn a_hidden_sys_is_named_and_measured_without() {
    let hidden = |script: &str, arguments: &[&str]| -> Option<Ended> {
        let script = format!("mount -t tmpfs none /sys && {script} exec \"$0\" \"$@\"");
        let unshared = ["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_membound")];
        let is_there = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/sys"]).output();
        is_there
            .is_ok_and(|output| output.status.success())
            .then(|| run(Command::new("unshare").args(unshared).args(arguments)))
    };
    let latency = ["latency", "--size", "16KiB", "--budget", "2s"];
    let Some(ended) = hidden("", &latency) else { return skip("this user can't hide /sys") };
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let ended = hidden("", &["machine"]).unwrap();
    let words = crate::common::on_one_line(&ended.stdout);
    assert!(words.contains("those are taken that this process may run on"), "{words}");
}

/// What a frozen child does.
#[test]
#[ignore = "it is started by another test"]
fn a_child_that_stays() {
    if std::env::var_os("MEMBOUND_LEASH").is_some() {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// A child that a frozen control group keeps from ending, whatever signal it gets: nobody waits for it.
#[test]
fn a_frozen_child_is_given_up() {
    let Some(group) = Group::new("freezer") else { return skip("no control group can be frozen") };
    // A child is this very program once more: here that is the tests.
    let arguments = ["robust::limits::a_child_that_stays", "--exact", "--ignored"].map(String::from);
    let output = |_: &Path, arguments: &[String]| arguments.to_vec();
    let mut child = Child::start(&arguments, output, Duration::from_secs(1)).unwrap();
    let is_ours = |pid: &String| {
        let text = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        text("cmdline").contains(&arguments[0]) && text("status").contains(&format!("PPid:\t{}\n", std::process::id()))
    };
    let names =
        || std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let started = Instant::now();
    let pid = loop {
        match names().find(is_ours) {
            Some(pid) => break pid,
            None => assert!(started.elapsed() < Duration::from_secs(10), "there is no child"),
        }
    };
    assert!(group.set("cgroup.procs", &pid) && group.set("freezer.state", "FROZEN"), "{pid}");
    let started = Instant::now();
    let ended = loop {
        match child.state() {
            State::Running => assert!(started.elapsed() < Duration::from_secs(60), "it is waited for"),
            ended => break ended,
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let State::Ended { outcome, reason } = ended else { panic!() };
    assert_eq!(outcome, NodeOutcome::TimedOut);
    assert!(reason.as_deref().is_some_and(|reason| reason.contains("state D")), "{reason:?}");
    drop(child);
    assert!(started.elapsed() < Duration::from_secs(60));
    group.set("freezer.state", "THAWED");
    let _ = Command::new("kill").args(["-9", &pid]).status();
}
