//! Records, topologies and figures from elsewhere: made to take memory, time or the terminal.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::skip::skip;
use crate::robust::{Ended, membound, p, record, recorded, run};
use membound_core::machine::cpuset::CpuSet;
use membound_core::record::Record;

/// What any input may cost.
const MEMORY: u64 = 256 << 20;
/// The same of time, with room for a machine that is busy with other tests and a build that is not optimised.
const TIME: Duration = Duration::from_secs(20);

fn is_cheap(ended: &Ended, what: &str) {
    let Ended { peak, took, stderr, .. } = ended;
    assert!(ended.is_orderly(), "{what}: {:?} {stderr}", ended.status);
    assert!(*peak <= MEMORY && *took <= TIME, "{what}: {peak} bytes, {took:?}: {stderr}");
}

/// Everything that reads records.
fn readers(path: &Path) -> Vec<Command> {
    let commands = [
        &["report", "--format", "json"][..],
        &["report", "--verdict"],
        &["fleet", "screen"],
        &["advise", "--size", "1GiB", "a[i] = b[i]"],
    ];
    let with = |arguments: &&[&str]| {
        let mut command = membound();
        command.args(*arguments).arg(path);
        command
    };
    let mut compare = membound();
    compare.arg("compare").args([path, path]);
    commands.iter().map(with).chain([compare]).collect()
}

#[test]
fn a_hostile_header_takes_neither_memory_nor_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.jsonl");
    let text = std::fs::read_to_string(recorded(folder.path(), "base.jsonl")).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let header: serde_json::Value = serde_json::from_str(header).unwrap();
    let check = |cpus: &str, caches: usize| {
        let mut hostile = header.clone();
        let machine = &mut hostile["machine"];
        let mut cache = machine["caches"][0].clone();
        cache["cpus"] = cpus.into();
        machine["caches"] = vec![cache; caches].into();
        std::fs::write(&path, format!("{hostile}\n{rest}")).unwrap();
        for mut reader in readers(&path) {
            is_cheap(&run(&mut reader), &format!("{caches} caches of {cpus}: {reader:?}"));
        }
    };
    check("0-1048575", 600);
    check("0-65535", 600);
    check("0-65535", 5000);
    check("0-1", 20_000);
}

#[test]
fn what_is_no_regular_file_or_never_ends_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe.jsonl")).status().unwrap().success());
    let long = std::fs::File::create(at("long.jsonl")).unwrap();
    long.set_len(1 << 40).unwrap();
    let line = std::fs::File::create(at("line.jsonl")).unwrap();
    line.set_len(1 << 30).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("zero.jsonl")).unwrap();
    for name in ["pipe.jsonl", "zero.jsonl", "long.jsonl", "line.jsonl"] {
        for mut reader in readers(&at(name)) {
            let ended = run(&mut reader);
            is_cheap(&ended, &format!("{reader:?}"));
            assert_eq!(ended.code(), Some(2), "{reader:?}: {}", ended.stderr);
        }
    }
    for flags in [&["--topology"][..], &["--baseline"]] {
        let base = recorded(folder.path(), "base.jsonl");
        let ended = run(membound().args(["fleet", "screen", p(&base)]).args(flags).arg(at("zero.jsonl")));
        is_cheap(&ended, "a device beside a record");
        assert!(ended.code() != Some(0) && ended.stderr.contains("regular file"), "{}", ended.stderr);
    }
    for arguments in [["machine", "--spec"], ["compare", "/dev/zero"]] {
        let ended = run(membound().args(arguments).arg("/dev/zero"));
        assert!(ended.code() == Some(2) && ended.stderr.contains("regular file"), "{}", ended.stderr);
    }
}

#[test]
fn a_hostile_topology_takes_neither_memory_nor_time() {
    let folder = tempfile::tempdir().unwrap();
    let (base, path) = (recorded(folder.path(), "base.jsonl"), folder.path().join("topology.conf"));
    let check = |what: &str, text: &str| {
        std::fs::write(&path, text).unwrap();
        is_cheap(&run(membound().args(["fleet", "screen", p(&base), "--topology", p(&path)])), what);
    };
    check("300,000 brackets", &format!("SwitchName=s Nodes=n{}", "[1]".repeat(300_000)));
    let mut lines = String::new();
    for n in 0..200_000 {
        writeln!(lines, "SwitchName=s{n} Nodes=n{n}").unwrap();
    }
    check("200,000 switches", &lines);
    let mut chain = "SwitchName=s0 Nodes=n0\n".to_string();
    for n in 1..19_000 {
        writeln!(chain, "SwitchName=s{n} Switches=s{}", n - 1).unwrap();
    }
    check("a chain of switches", &chain);
    let wide: String = (0..60).map(|n| format!("SwitchName=s{n} Nodes=n[0-999999]\n")).collect();
    check("60 million nodes", &wide);
    let wide: String = (0..60).map(|n| format!("SwitchName=s{n} Nodes=n[0-100000]\n")).collect();
    check("6 million nodes", &wide);
    check("long names", &format!("SwitchName=s Nodes=n[0-99999]{}", "x".repeat(100_000)));
    check("one line that goes on", &"SwitchName=s Nodes=n \\\n".repeat(200_000));
}

/// What a record says reaches the terminal, a file or a spreadsheet as text.
#[test]
fn no_text_of_a_record_acts() {
    const EVIL: &str = "=evil\u{1b}[2J\u{1b}]0;t\u{7}\u{202e}\u{9b}31m\u{200b}\r";
    let folder = tempfile::tempdir().unwrap();
    let mut evil: Record = record();
    evil.header.host = EVIL.into();
    evil.header.tool = EVIL.into();
    evil.header.command = vec![EVIL.into()];
    evil.header.machine.identity.model = membound_core::machine::fact::Fact::Known(EVIL.into());
    evil.header.machine.identity.kernel = membound_core::machine::fact::Fact::Known(EVIL.into());
    let path = folder.path().join("evil\u{202e}\u{1b}[2J.jsonl");
    crate::common::by_hand::write(&evil, &path);
    let base = recorded(folder.path(), "base.jsonl");
    let broken = folder.path().join("broken.jsonl");
    std::fs::write(&broken, format!("{{\"type\":\"header\",\"schema\":99,\"tool\":{}}}\n", serde_json::json!(EVIL)))
        .unwrap();
    let topology = folder.path().join("topology.conf");
    std::fs::write(&topology, format!("SwitchName={EVIL} Nodes=n1 {EVIL}=x")).unwrap();
    let formats = ["table", "csv", "json", "markdown"];
    let mut commands: Vec<Vec<String>> = Vec::new();
    for format in formats {
        for arguments in [
            &["report", p(&path), "--out", p(folder.path())][..],
            &["compare", p(&path), p(&base)],
            &["fleet", "screen", p(&path), p(&base)],
            &["roofline", p(&path)],
        ] {
            commands.push(arguments.iter().copied().chain(["--format", format]).map(String::from).collect());
        }
    }
    for arguments in [
        &["report", p(&broken)][..],
        &["fleet", "screen", p(&broken), p(&base)],
        &["fleet", "screen", p(&base), "--topology", p(&topology)],
    ] {
        commands.push(arguments.iter().copied().map(String::from).collect());
    }
    let mut seen = 0;
    for arguments in commands {
        // Colour that nothing takes away: what is left of escape sequences is the program's own.
        let ended = run(membound().args(&arguments).env("CLICOLOR_FORCE", "1"));
        assert!(ended.is_orderly(), "{arguments:?}: {}", ended.stderr);
        for text in [&ended.stdout, &ended.stderr] {
            let plain = ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[0m"]
                .iter()
                .fold(text.clone(), |text, style| text.replace(style, ""));
            let acts = plain.chars().find(|letter| {
                letter.is_control() && !"\n\t".contains(*letter) || "\u{202e}\u{200b}".contains(*letter)
            });
            assert_eq!(acts, None, "{arguments:?}: {plain:?}");
            seen += usize::from(text.contains("evil"));
        }
        if arguments.ends_with(&["--format".into(), "csv".into()]) {
            assert!(
                !ended.stdout.split(['\n', ',']).any(|cell| cell.trim_matches('"').starts_with("=evil")),
                "{}",
                ended.stdout
            );
        }
        if arguments.ends_with(&["--format".into(), "json".into()]) {
            serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap();
        }
    }
    assert!(seen > 6, "the texts were never shown: {seen}");
    let page = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|end| end == "html"));
    if let Some(page) = page {
        let page = std::fs::read_to_string(page.path()).unwrap();
        assert!(page.contains("evil") && !page.contains(['\u{1b}', '\u{202e}', '\u{9b}', '\u{200b}']));
    } else if cfg!(feature = "report") {
        panic!("no page was written");
    } else {
        skip("this build writes no pages");
    }
}

/// What overflows a clock, and what can't be done in its time.
#[test]
fn times_that_cannot_be_are_refused() {
    for budget in ["5e18", "5000000000000000000", "9999999999999999999h", "1e400s"] {
        let ended = run(membound().args(["latency", "--size", "16KiB", "--budget", budget]));
        assert!(ended.is_orderly() && ended.code() == Some(2), "{budget}: {}", ended.stderr);
    }
    let ended = run(membound().args(["latency", "--size", "16KiB", "--budget", "8760h", "--list"]));
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let most = membound_measure::machine::live().available_memory().get().unwrap_or_default();
    if most.0 < 6 << 30 {
        return skip("less than 6 GiB of memory is free");
    }
    let ended =
        run(membound().args(["bandwidth", "--kernel", "copy", "--threads", "1", "--size", "2GiB", "--budget", "1s"]));
    assert_eq!(ended.code(), Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("give a longer --budget (the shortest visit takes some"), "{}", ended.stderr);
    assert!(ended.took < Duration::from_secs(5), "{:?}", ended.took);
}

#[test]
fn a_set_of_cpus_costs_its_text() {
    let set = CpuSet::parse("0-65535").unwrap();
    let sets = vec![set; 100_000];
    assert_eq!(sets.iter().map(CpuSet::len).sum::<usize>(), 6_553_600_000);
}
