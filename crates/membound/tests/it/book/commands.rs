//! The commands that pages show: each of them runs, in small, in a folder that holds what pages name. What a page prints below a
//! command has the form of what comes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex};

use membound::cli;
use tempfile::TempDir;

use super::{files, pages, root};
use crate::common::program;
use crate::common::readme_record;
use crate::common::skip::{skip, thread_of_test};
use crate::compare as published;

/// What begins a block of commands that no `$` marks.
const PROGRAMS: [&str; 7] = ["membound", "mpirun", "srun", "salloc", "ssh", "scp", "for"];

/// What stands for programs that start the program elsewhere, see `stand-in`.
const STAND_INS: [&str; 6] = ["membound", "mpirun", "srun", "salloc", "ssh", "scp"];

/// Programs that commands of pages need, and that a machine may lack.
const OTHERS: [(&str, &str); 5] = [
    ("| jq", "jq"),
    ("| man", "man"),
    ("lstopo --", "lstopo"),
    ("srun", "mpirun.openmpi"),
    ("mpirun", "mpirun.openmpi"),
];

/// Folders of a system, below the folder of the test instead.
const SYSTEM: [&str; 4] = ["/etc/", "/data", "/shared/", "/var/"];

/// Pages name these records; a run of this machine stands for each.
const RECORDS: [&str; 19] = [
    "numa.jsonl",
    "before.jsonl",
    "after.jsonl",
    "A.jsonl",
    "B.jsonl",
    "healthy.jsonl",
    "suspect.jsonl",
    "quadrant.jsonl",
    "all2all.jsonl",
    "snc4-local.jsonl",
    "snc4-remote.jsonl",
    "before/one.jsonl",
    "after/one.jsonl",
    "type-a/one.jsonl",
    "type-b/one.jsonl",
    "records/one.jsonl",
    "march/one.jsonl",
    "after-installation/one.jsonl",
    "results/membound-one.jsonl",
];

/// Commands that a machine as small as this one refuses, or after a run as short as these, and how.
const REFUSED: [(&str, &str); 8] = [
    // A busy machine, or one whose memory takes seconds to fill, gets to little in a budget of a second.
    ("compare before.jsonl after.jsonl", "have nothing in common"),
    ("--fail-on-regression", "has values enough to tell slower from chance"),
    ("check --baseline", "has no figure that a check looks at"),
    ("check --spec", "did not end within 10 s"),
    ("--weights 0,1", "node 1 is none"),
    ("sin(c[i])", "unknown function 'sin'"),
    ("membound check", "give a longer --budget"),
    ("numa.jsonl", "no record tells how fast"),
];

/// Commands that come to no figure on a machine as small as this one, or in a time as short as these have, and what is said of it.
const FAILED: [(&str, &str); 13] = [
    ("huge-", " memory were refused"),
    ("--map --memory huge-2m", "in free huge pages"),
    ("node1", "there is no node 1"),
    ("--energy", "nothing could be measured: no zone in /sys/class/powercap"),
    ("--energy", "stood still for 200 ms, as a virtual machine's may"),
    ("--device opencl", "no OpenCL"),
    ("--device cuda", "no CUDA driver"),
    ("--device vulkan", "no Vulkan"),
    // A budget of a second may be over before the first case, or before a driver has compiled what it runs.
    ("membound", "so nothing was measured; give a longer --budget"),
    ("membound", "stopped after twice its budget"),
    ("membound", "ended by its watchdog"),
    ("numa --hwloc", "nothing was measured that hwloc has an attribute for"),
    // The machine is busier than when it was recorded as healthy.
    ("membound check", "degraded"),
];

/// Commands whose output can't come in the shown form here, and why.
const ELSEWHERE: [(&str, &str); 5] = [
    ("bandwidth --energy", "why there is no meter differs"),
    ("membound --version", "a static program"),
    ("mpirun -np 2 membound pingpong", "a static program, which has no MPI"),
    ("check --baseline /etc/membound/n3.jsonl", "a node that has lost a memory module"),
    ("compare before.jsonl after.jsonl", "columns follow how the two runs differ"),
];

/// A command, and what its page says that it prints.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    page: PathBuf,
    command: String,
    output: Vec<String>,
}

/// The commands of a page's blocks.
fn shown(page: &Path, text: &str) -> Vec<Shown> {
    text.split("```").skip(1).step_by(2).flat_map(|block| of_block(page, block)).collect()
}

fn of_block(page: &Path, block: &str) -> Vec<Shown> {
    let lines: Vec<&str> = block.lines().skip(1).collect();
    // Tables of results and screens name the program, too.
    let is_output =
        |line: &str| line.starts_with("membound 0.") || line.split("  #").next().unwrap().trim_end().contains("   ");
    if lines.first().is_some_and(|line| is_output(line)) {
        return Vec::new();
    }
    let is_marked = lines.iter().any(|line| line.starts_with("$ "));
    let first = lines.first().and_then(|line| line.split_whitespace().next()).unwrap_or_default();
    if !is_marked && !PROGRAMS.contains(&first) {
        return Vec::new();
    }
    let mut found: Vec<Shown> = Vec::new();
    for line in lines {
        let typed = if is_marked { line.strip_prefix("$ ") } else { Some(line.trim()) };
        match (typed, found.last_mut()) {
            (Some(""), _) => {}
            (Some(typed), _) => {
                found.push(Shown { page: page.into(), command: typed.into(), output: Vec::new() });
            }
            (None, Some(last)) => last.output.push(line.into()),
            (None, None) => {}
        }
    }
    found.retain(|one| STAND_INS.iter().any(|name| one.command.contains(name)));
    found
}

/// A small record of this machine.
static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let record = folder.path().join("one.jsonl");
    let cases = ["--kernel", "load,copy,triad", "--size", "16KiB,256KiB,64MiB", "--threads", "1", "--budget", "3s"];
    membound(&[&["bandwidth", "--quiet", "--record", record.to_str().unwrap()], &cases[..]].concat());
    fs::read(record).unwrap()
});

/// A whole run.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(readme_record);

/// A folder with what pages name, and with stand-ins for programs.
fn furnished(commands: &[Shown]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    fs::write(at("one.jsonl"), &*SMALL).unwrap();
    // What a page has its reader measure is not there before.
    let is_made = |name: &str| commands.iter().any(|one| one.command.contains(&format!("--record {name}")));
    for name in RECORDS.into_iter().filter(|name| !is_made(name)) {
        fs::write(at(name), &*SMALL).unwrap();
    }
    let whole = ["RECORD", "run.jsonl", "today/membound-node1-20261123T080000Z.jsonl"];
    for name in whole.into_iter().filter(|name| !is_made(name)) {
        fs::write(at(name), &*WHOLE).unwrap();
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    fs::create_dir_all(at(&format!("etc/membound/{}", host.trim()))).unwrap();
    let own = (!commands.iter().any(|one| one.command.contains("--record /etc/membound/$(hostname).jsonl")))
        .then(|| host.trim());
    for name in own.into_iter().chain(["n3"]) {
        fs::write(at(&format!("etc/membound/{name}.jsonl")), &*SMALL).unwrap();
    }
    fs::copy(root().join("crates/core/specs/zen4.toml"), at("my-machine.toml")).unwrap();
    fs::write(at("etc/slurm/topology.conf"), "SwitchName=s0 Nodes=n[0-9]\n").unwrap();
    for folder in
        ["data", "var/lib/membound", "var/lib/prometheus/node-exporter", ".local/share/bash-completion/completions"]
    {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for year in ["2023", "2026"] {
        fs::write(at(&format!("stream-{year}.txt")), include_str!("../../../../analyze/tests/it/adapters/stream.txt"))
            .unwrap();
    }
    fs::write(at("k10.csv"), published::K10).unwrap();
    fs::write(at("jaguar.csv"), published::JAGUAR).unwrap();
    for name in STAND_INS {
        symlink(root().join("crates/membound/tests/it/book/stand-in"), at(&format!("bin/{name}"))).unwrap();
    }
    folder
}

/// Measures, as a page's reader has done before.
fn membound(arguments: &[&str]) {
    let output = program::membound().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Subcommands that take a flag, between blanks.
fn take(flag: &str) -> String {
    let command = cli::command();
    let all = command.get_subcommands().flat_map(|one| std::iter::once(one).chain(one.get_subcommands()));
    let takes = |one: &&clap::Command| one.get_arguments().any(|own| own.get_long() == Some(flag));
    all.filter(takes).fold(String::from(" membound "), |text, one| format!("{text}{} ", one.get_name()))
}

/// Runs a command as a shell would in this folder, whose own folders stand for the system's. What is neither shown nor recorded is
/// visited once.
fn run(folder: &Path, one: &Shown) -> Output {
    let typed = SYSTEM.iter().fold(one.command.clone(), |typed, path| typed.replace(path, &path[1..]));
    let is_kept = !one.output.is_empty() || one.command.contains("--record");
    let take_one_round = if is_kept { String::new() } else { take("rounds") };
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("timeout");
    shell.args(["120", "bash", "-c", &typed]).current_dir(folder).env("PATH", path).env("HOME", folder);
    shell.env("MEMBOUND", env!("CARGO_BIN_EXE_membound")).env("TAKES_BUDGET", take("budget"));
    shell.env("TAKES_ONE_ROUND", take_one_round).output().unwrap()
}

fn lacks(command: &str) -> Option<&'static str> {
    let is_there =
        |name: &str| std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|at| at.join(name).exists());
    OTHERS.iter().find(|(part, name)| command.contains(part) && !is_there(name)).map(|(_, name)| *name)
}

/// What is wrong with how a command ended: it must have done what its page says, or have said why this machine can't.
fn fault(command: &str, output: &Output) -> Option<String> {
    let (said, noted) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let unwrapped = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_in = |known: &[(&str, &str)], told: &str| {
        known.iter().any(|(part, why)| command.contains(part) && unwrapped(told).contains(why))
    };
    let is_understood = match output.status.code() {
        Some(0) => true,
        Some(1) => is_in(&FAILED, &noted) || is_in(&FAILED, &said),
        Some(2) => is_in(&REFUSED, &noted),
        _ => false,
    };
    let is_fine = is_understood && !noted.contains("panicked");
    (!is_fine).then(|| format!("{}\n{said}\n{noted}", output.status))
}

/// A line as the words in it, with `#` for each figure.
fn form(line: &str) -> Vec<String> {
    let has_digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    line.split_whitespace().map(|word| if has_digit(word) { "#".into() } else { word.to_string() }).collect()
}

/// The length of the longest sequence of words that two texts have in common.
fn common(a: &[String], b: &[String]) -> usize {
    let mut before = vec![0; b.len() + 1];
    for word in a {
        let mut row = vec![0; b.len() + 1];
        for (at, other) in b.iter().enumerate() {
            row[at + 1] = if word == other { before[at] + 1 } else { before[at + 1].max(row[at]) };
        }
        before = row;
    }
    before[b.len()]
}

/// What a page shows that did not come in that form: a table's head that is not there word for word, or a text (up to `...`) of which
/// fewer than two words in three are. Figures, and how many rows there are, differ from machine to machine.
fn differs(shown: &[String], came: &str) -> Option<String> {
    // Rows of a quiet machine have no flag, and their table no column for it.
    let head_form = |line: &str| form(line.trim_end().trim_end_matches("flag"));
    let lines: Vec<Vec<String>> = came.lines().map(form).collect();
    let all: Vec<String> = lines.concat();
    for part in shown.split(|line| line.trim() == "...") {
        let head = part.iter().find(|line| line.trim().contains("  ") && form(line).iter().all(|word| word != "#"));
        if let Some(head) = head.filter(|head| !came.lines().any(|line| head_form(line) == head_form(head))) {
            return Some(format!("no such head of a table: {head}"));
        }
        let words: Vec<String> = part.iter().flat_map(|line| form(line)).collect();
        let found = common(&words, &all);
        if found * 3 < words.len() * 2 {
            return Some(format!("{found} of {} words of: {}", words.len(), part.join("\n")));
        }
    }
    None
}

/// Runs a page's commands one after another.
fn try_page(commands: &[Shown]) -> Vec<String> {
    let folder = furnished(commands);
    let mut wrong = Vec::new();
    for one in commands {
        if let Some(program) = lacks(&one.command) {
            skip(format!("no {program} for `{}`", one.command));
            continue;
        }
        let fault = fault_of(folder.path(), one);
        if fault.as_ref().is_some_and(|why| is_full(why)) {
            skip(format!("no room on this disk for `{}`", one.command));
            continue;
        }
        wrong.extend(fault.map(|why| format!("{}: {}: {why}", one.page.display(), one.command)));
    }
    wrong
}

/// What is wrong with a command. A check has ten seconds, and says so where a busy machine takes them: whatever went wrong is tried once
/// more, without the records that the first try has begun, since nothing is overwritten.
fn fault_of(folder: &Path, one: &Shown) -> Option<String> {
    let before = files(folder);
    tried(folder, one).and_then(|_| {
        for begun in files(folder).difference(&before) {
            let _ = fs::remove_file(begun);
        }
        tried(folder, one)
    })
}

fn takes_turns(one: &Shown) -> bool {
    ["membound check", "membound watch"].iter().any(|command| one.command.contains(command))
}

/// Whether a command was refused since the disk has too little room for its files, which take half of all memory.
fn is_full(why: &str) -> bool {
    why.contains(" free, ") && why.contains(" are needed; give a smaller --share")
}

/// What was wrong with what came of a command.
fn tried(folder: &Path, one: &Shown) -> Option<String> {
    let start = std::time::Instant::now();
    let output = run(folder, one);
    let page = one.page.file_name().unwrap().display();
    println!("{:6.1} s, {}: {page}: {}", start.elapsed().as_secs_f64(), output.status, one.command);
    let came = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let is_elsewhere = ELSEWHERE.iter().any(|(part, _)| one.command.contains(part));
    let shown: &[String] = if is_elsewhere { &[] } else { &one.output };
    let form = || differs(shown, &came).map(|why| format!("{why}\n--- came:\n{came}"));
    fault(&one.command, &output).or_else(form)
}

/// Each command once, by page.
fn by_page() -> Vec<Vec<Shown>> {
    let mut seen = BTreeSet::new();
    let of_page = |page: PathBuf| {
        let mut all = shown(&page, &fs::read_to_string(&page).unwrap());
        all.retain(|one| {
            !one.output.is_empty() || seen.insert(one.command.split("  #").next().unwrap().trim().to_string())
        });
        all
    };
    let pages = std::iter::once(root().join("README.md")).chain(pages(&root().join("docs")));
    pages.map(of_page).filter(|commands| !commands.is_empty()).collect()
}

/// The pages that one thread must try one after another, since a check waits while another one measures, or a watch; and the others.
/// The longest are last.
fn shared_out(pages: &[Vec<Shown>]) -> (Vec<&Vec<Shown>>, Vec<&Vec<Shown>>) {
    let mut pages: Vec<&Vec<Shown>> = pages.iter().collect();
    pages.sort_by_key(|page| page.len());
    pages.into_iter().partition(|page| page.iter().any(takes_turns))
}

#[test]
fn what_pages_show_runs() {
    let pages = by_page();
    let count: usize = pages.iter().map(Vec::len).sum();
    assert!(count > 180, "{count} commands");
    let (in_turn, others) = shared_out(&pages);
    let (others, wrong) = (Mutex::new(others), Mutex::new(Vec::new()));
    let work = |mut own: Vec<&Vec<Shown>>| {
        // The queue is not held while a page is tried.
        let mut next = || own.pop().or_else(|| others.lock().unwrap().pop());
        while let Some(page) = next() {
            let found = try_page(page);
            wrong.lock().unwrap().extend(found);
        }
    };
    std::thread::scope(|scope| {
        for own in [in_turn, Vec::new(), Vec::new()] {
            let work = &work;
            thread_of_test().spawn_scoped(scope, move || work(own)).unwrap();
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {count} commands:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn readme_shows_its_record() {
    let folder = TempDir::new().unwrap();
    let record = folder.path().join("readme.jsonl");
    fs::write(&record, readme_record()).unwrap();
    let output = program::membound().arg("report").arg(&record).output().unwrap();
    let came = String::from_utf8(output.stdout).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let shown = readme.split("<!-- screen -->\n```\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(came.starts_with(shown), "docs/refresh makes it anew:\n{came}");
}

#[test]
fn forms_are_compared() {
    let lines = |text: &str| text.lines().map(String::from).collect::<Vec<_>>();
    let came = "load at 12.5 GB/s\nsize   read  copy\nL1     12.5  13.5\n";
    assert_eq!(differs(&lines("load at 99 GB/s\nsize     read    copy\nL1  1  2"), came), None);
    assert_eq!(differs(&lines("load at 99 GB/s\n...\nL1  1  2"), came), None);
    assert!(differs(&lines("size  read  write"), came).unwrap().contains("head"));
    assert!(differs(&lines("stores of 99 MB a second"), came).unwrap().contains("words"));
    let page = Path::new("page");
    let found = shown(
        page,
        "x\n```\nmembound a  # why\nmembound b\n```\ny\n```\n$ membound c\nout\n```\n```\nno command\n```\n",
    );
    let commands: Vec<&str> = found.iter().map(|one| one.command.as_str()).collect();
    assert_eq!(commands, ["membound a  # why", "membound b", "membound c"]);
    assert_eq!(found[2].output, ["out"]);
}
