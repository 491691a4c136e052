//! How commands end: every situation that docs/exit-status.md names, with its code and its sentence. No figure is asserted.

use std::path::Path;
use std::process::Output;

use crate::common::by_hand;
use crate::common::program::membound;
use crate::common::skip::skip;
use membound_core::record::{Outcome, Record};

/// A line of the table: the command's words, where it may go otherwise, its code, what it says.
#[derive(Debug)]
struct Situation<'a> {
    words: Vec<&'a str>,
    proviso: &'a str,
    code: i32,
    says: &'a str,
}

/// The lines of the last table of a page.
fn situations(page: &str) -> Vec<Situation<'_>> {
    let (_, table) = page.rsplit_once("\n|---|---|---|\n").expect("a table of three columns");
    table.lines().take_while(|line| line.starts_with('|')).map(situation).collect()
}

fn situation(line: &str) -> Situation<'_> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [command, code, says] = cells[..] else { panic!("{line}") };
    let (command, proviso) = command.trim_start_matches('`').split_once('`').unwrap_or_else(|| panic!("{line}"));
    let words = command.split_whitespace().skip(1).collect();
    Situation { words, proviso: proviso.trim(), code: code.parse().unwrap(), says }
}

fn run(folder: &Path, words: &[&str]) -> Output {
    let mut command = membound();
    // Who runs the tests under a launcher must not be taken for one of several.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OMPI_") || name.starts_with("PMI")) {
        command.env_remove(name);
    }
    command.args(words).current_dir(folder).env_remove("SLURM_PROCID").output().unwrap()
}

/// What the table takes for granted.
fn furnish(folder: &Path) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("notes.txt", "not a record\n");
    write("newer.jsonl", "{\"type\":\"header\",\"schema\":99,\"tool\":\"membound 9\"}\n");
    write("fast.csv", "name,unit,better,value\nmine,GB/s,higher,20\nmine,GB/s,higher,20.1\nmine,GB/s,higher,19.9\n");
    write("slow.csv", "name,unit,better,value\nmine,GB/s,higher,10\nmine,GB/s,higher,10.1\nmine,GB/s,higher,9.9\n");
    write("once.csv", "name,unit,better,value\nmine,GB/s,higher,20\n");
    std::fs::create_dir(folder.join("empty")).unwrap();
    std::fs::create_dir(folder.join("mixed")).unwrap();
    write("mixed/list.jsonl", "{\"name\":\"somebody else's\"}\n");
    for (command, record) in [("bandwidth", "good.jsonl"), ("latency", "latency.jsonl")] {
        let kernel: &[&str] = if command == "bandwidth" { &["--kernel", "load", "--threads", "1"] } else { &[] };
        let words = [&[command, "--size", "16KiB", "--budget", "1s", "--record", record], kernel].concat();
        let output = run(folder, &words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
    }
    let good = std::fs::read_to_string(folder.join("good.jsonl")).unwrap();
    write("mixed/good.jsonl", &good);
    std::fs::create_dir(folder.join("drawn")).unwrap();
    write("drawn/good.html", "<p>\n");
    let mut broken = Record::read(&folder.join("good.jsonl")).unwrap();
    let case = broken.measurements[0].case.clone();
    for visit in broken.measurements.iter_mut().filter(|visit| visit.case == case) {
        visit.outcome = Outcome::Crashed { reason: "SIGILL".into() };
    }
    by_hand::write(&broken, &folder.join("broken.jsonl"));
    let (whole, last) = good.trim_end().rsplit_once('\n').unwrap();
    write("cut.jsonl", &format!("{whole}\n{}", &last[..last.len() / 2]));
}

#[test]
fn every_command_ends_as_documented() {
    let page = include_str!("../../../../docs/exit-status.md");
    let situations = situations(page);
    assert!(situations.len() >= 40, "{}", situations.len());
    assert!([0, 1, 2].iter().all(|code| situations.iter().filter(|one| one.code == *code).count() >= 10));
    let folder = tempfile::tempdir().unwrap();
    furnish(folder.path());
    let before = names(folder.path());
    let mut faults = Vec::new();
    for Situation { words, proviso, code, says } in &situations {
        let output = run(folder.path(), words);
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
        let flat = crate::common::on_one_line(&text);
        match output.status.code() {
            Some(0) if !proviso.is_empty() && *code == 1 => skip(format!("{words:?}: this machine can: {proviso}")),
            found if found == Some(*code) && flat.contains(says) && !flat.contains("panicked") => {}
            found => faults.push(format!("{words:?}: {found:?} for {code}, '{says}' in: {text}")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(names(folder.path()), before, "nothing that failed leaves a file behind");
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}
