//! Folders in which somebody has put something of every name that is about to be written.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::program::{TOO_BUSY, in_time, text};
use crate::common::skip::skip;
use crate::robust::{membound, p, recorded, run};

/// What stands in the way.
const KINDS: [&str; 6] = ["link", "dangling link", "pipe", "socket", "device", "folder"];

/// Puts it there; false where this user can't make such a thing.
fn plant(kind: &str, at: &Path, victim: &Path, nowhere: &Path) -> bool {
    let made =
        |program: &str, arguments: &[&str]| Command::new(program).args(arguments).output().unwrap().status.success();
    match kind {
        "link" => symlink(victim, at).is_ok(),
        "dangling link" => symlink(nowhere, at).is_ok(),
        "pipe" => made("mkfifo", &[p(at)]),
        "socket" => std::os::unix::net::UnixListener::bind(at).is_ok(),
        "device" => made("mknod", &[p(at), "c", "1", "3"]),
        _ => std::fs::create_dir(at).is_ok(),
    }
}

/// Whatever is written: nothing outside the folder changes, what stands in the way stays, nothing is waited for, and what
/// was worked out is printed.
#[test]
fn nothing_but_a_regular_file_is_ever_replaced() {
    let top = tempfile::tempdir().unwrap();
    let base = recorded(top.path(), "base.jsonl");
    let (victim, nowhere) = (top.path().join("victim"), top.path().join("nowhere"));
    std::fs::write(&victim, "untouched").unwrap();
    // Arguments, in which OUT is the file and DIR its folder; its name; whether there is an answer besides.
    let commands: [(&[&str], &str, bool); 9] = [
        (&["report", "BASE", "--out", "DIR"], "base.html", true),
        (&["compare", "BASE", "BASE", "--html", "OUT"], "page.html", true),
        (&["fleet", "screen", "BASE", "--html", "OUT"], "page.html", true),
        (&["--budget", "2s", "--out", "DIR", "--html", "OUT"], "page.html", false),
        (&["roofline", "BASE", "--svg", "OUT"], "chart.svg", false),
        (&["latency", "--size", "16KiB", "--budget", "1s", "--record", "OUT"], "run.jsonl", false),
        (&["check", "--spec", "no-such-sheet", "--prometheus", "OUT"], "node.prom", false),
        (&["check", "--spec", "grace", "--budget", "1s", "--lock", "OUT"], "turn", false),
        (&["numa", "--size", "1MiB", "--budget", "1s", "--hwloc", "OUT"], "numa.xml", false),
    ];
    for kind in KINDS {
        for (arguments, name, answers) in commands {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join(name);
            if !plant(kind, &out, &victim, &nowhere) {
                skip(format!("this user can't make a {kind}"));
                break;
            }
            let before = out.symlink_metadata().unwrap();
            let named = |word: &&str| match *word {
                "OUT" => p(&out).to_string(),
                "DIR" => p(folder.path()).to_string(),
                "BASE" => p(&base).to_string(),
                word => word.to_string(),
            };
            let ended = run(membound().args(arguments.iter().map(named)));
            let what = format!("{kind}: {arguments:?}: {:?} {}{}", ended.code(), ended.stdout, ended.stderr);
            assert!(ended.is_orderly() && ended.code() != Some(0), "{what}");
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched", "{what}");
            assert!(!nowhere.exists(), "{what}");
            let after = out.symlink_metadata().unwrap();
            assert_eq!((after.ino(), after.file_type()), (before.ino(), before.file_type()), "{what}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something unfinished is left: {what}");
            assert!(ended.stderr.contains(name), "the file is named: {what}");
            assert!(!answers || !ended.stdout.is_empty(), "the answer is lost: {what}");
        }
    }
}

/// A default run whose page turns out to be larger than this user's files may be: it was made before anything was measured, and can't
/// be filled.
#[test]
fn a_page_that_cannot_be_written_costs_no_summary() {
    let small_files = |folder: &Path, budget: &str| {
        let program = env!("CARGO_BIN_EXE_membound");
        let command = format!("ulimit -f 30; exec {program} --budget {budget} --cpus 0 --out {}", p(folder));
        Command::new("bash").args(["-c", &command]).output().unwrap()
    };
    let Some((folder, ended)) = in_time(["3s", "30s"], small_files) else { return skip(TOO_BUSY) };
    let (stdout, stderr) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stdout.contains("Written: ") && stdout.contains(".jsonl"), "{stdout}");
    assert!(stderr.contains("File too large") && stderr.contains("membound report"), "{stderr}");
    let mut left = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    assert!(left.all(|path| path.extension().is_some_and(|end| end == "jsonl")), "no part of a page stays");
}

/// Whoever can open a lock can hold it: root's is root's alone, and root waits for nobody else's.
#[test]
fn the_lock_of_root_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("turn");
    let check = || run(membound().args(["check", "--spec", "grace", "--budget", "2s", "--lock", p(&lock)]));
    std::fs::write(&lock, "").unwrap();
    if lock.metadata().unwrap().uid() != 0 {
        return skip("this user is not root");
    }
    std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o644)).unwrap();
    check();
    assert_eq!(lock.metadata().unwrap().mode() & 0o777, 0o600, "one of an older version is closed to others");
    std::fs::remove_file(&lock).unwrap();
    check();
    assert_eq!(lock.metadata().unwrap().mode() & 0o777, 0o600);
    std::os::unix::fs::chown(&lock, Some(65534), Some(65534)).unwrap();
    let ended = check();
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("belongs to another user") && ended.stderr.contains("--lock"), "{}", ended.stderr);
}
