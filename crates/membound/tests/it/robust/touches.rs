//! What the program touches, as SECURITY.md states it by command: system calls of real runs, traced by strace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::skip::skip;
use crate::robust::{p, recorded, run};

/// What is run, and under which of the table's commands. A word in capitals is a file or folder of the run's own.
const RUNS: [(&str, &str); 9] = [
    ("membound", "--budget 3s --quiet --out OUT"),
    ("latency", "latency --size 64KiB --samples 3 --budget 5s --quiet --record RECORD"),
    (
        "kinds",
        "kinds --memory 4k,memfd,tmpfs,file-shared,wb --size 64KiB --samples 3 --budget 5s --quiet --dir DIR --record RECORD",
    ),
    ("machine", "machine"),
    ("report", "report INPUT --all --html PAGE"),
    ("compare", "compare INPUT INPUT --html PAGE"),
    ("watch", "watch --for 3s --every 1s --size 1MiB --quiet --lock LOCK --record RECORD --prometheus METRICS"),
    ("check", "check --force --budget 3s --lock LOCK --prometheus METRICS"),
    ("check", "check --force --budget 3s --lock LOCK --record RECORD"),
];

/// Calls that name what they open; those that name what they change; those that only speak with what is open already.
const OPENS: [&str; 4] = ["open", "openat", "openat2", "creat"];
const CHANGES: [&str; 20] = [
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "mknod",
    "mknodat",
    "truncate",
    "chmod",
    "fchmodat",
    "chown",
    "fchownat",
    "mount",
];
const SPEAKS: [&str; 9] =
    ["sendto", "recvfrom", "sendmsg", "recvmsg", "shutdown", "getsockopt", "setsockopt", "getsockname", "getpeername"];

/// One command's row: below which paths it may read, and write.
#[derive(Debug, Default, Clone)]
struct Allowed {
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
}

impl Allowed {
    fn may_read(&self, path: &Path) -> bool {
        [&self.reads, &self.writes].into_iter().flatten().any(|allowed| path.starts_with(allowed))
    }

    /// A file that replaces its older self is written beside it.
    fn may_write(&self, path: &Path) -> bool {
        let name = path.file_name().map_or("".into(), |name| name.to_string_lossy());
        let is_beside = |allowed: &PathBuf| name.starts_with(".membound-") && path.parent() == allowed.parent();
        self.writes.iter().any(|allowed| path.starts_with(allowed) || is_beside(allowed))
    }
}

/// The table of SECURITY.md, its words in capitals as files below `folder`.
fn table(security: &str, folder: &Path) -> BTreeMap<String, Allowed> {
    let (_, table) =
        security.split_once("| command | may read | may write |\n|---|---|---|\n").expect("SECURITY.md has the table");
    let paths = |cell: &str| cell.split('`').skip(1).step_by(2).map(|word| named(word, folder)).collect();
    let mut rows: BTreeMap<String, Allowed> = BTreeMap::new();
    for line in table.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').collect();
        for command in cells[1].split('`').skip(1).step_by(2) {
            rows.insert(command.into(), Allowed { reads: paths(cells[2]), writes: paths(cells[3]) });
        }
        if cells[1].trim() == "all" {
            rows.insert("all".into(), Allowed { reads: paths(cells[2]), writes: paths(cells[3]) });
        }
    }
    rows
}

fn named(word: &str, folder: &Path) -> PathBuf {
    let is_word = word.chars().all(|c| c.is_ascii_uppercase());
    if is_word { folder.join(word.to_lowercase()) } else { word.into() }
}

/// A line of a trace: the call, and what follows its bracket. Nothing for the rest of a call that was told before.
fn call(line: &str) -> Option<(&str, &str)> {
    let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    call.split_once('(').filter(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// The paths that a call names, each from the folder that stands before it, as `strace -y` shows it.
fn paths(arguments: &str) -> Vec<PathBuf> {
    let mut base = PathBuf::from("/");
    let mut found = Vec::new();
    for (index, part) in arguments.split('"').enumerate() {
        match part.split_once('<').and_then(|(_, rest)| rest.split_once('>')) {
            Some((folder, _)) if index % 2 == 0 => base = folder.into(),
            _ if index % 2 == 1 => found.push(base.join(part)),
            _ => {}
        }
    }
    found
}

/// Lines that tell of more than is allowed.
fn faults(trace: &str, program: &Path, allowed: &Allowed) -> Vec<String> {
    let is_fault = |line: &&str| {
        let Some((name, arguments)) = call(line) else { return false };
        let paths = paths(arguments);
        let may_write = |path: &PathBuf| allowed.may_write(path);
        match name {
            "execve" => paths.first().is_none_or(|path| path != program && path != Path::new("/proc/self/exe")),
            "socketpair" => !arguments.starts_with("AF_UNIX,"),
            _ if SPEAKS.contains(&name) => false,
            _ if CHANGES.contains(&name) => !paths.iter().all(may_write),
            _ if OPENS.contains(&name) => {
                let writes = name == "creat"
                    || ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| arguments.contains(flag));
                // What is open already was held against the table when it was opened.
                let is_open = |path: &Path| path.starts_with("/proc/self/fd");
                let may = |path: &PathBuf| if writes { allowed.may_write(path) } else { allowed.may_read(path) };
                !paths.first().is_some_and(|path| is_open(path) || may(path))
            }
            _ => true,
        }
    };
    trace.lines().filter(is_fault).map(str::to_string).collect()
}

/// Calls of a run, or why there is no trace.
fn traced(folder: &Path, arguments: &str) -> Result<String, String> {
    let trace = folder.join("trace");
    let calls = format!("trace=%network,execve,{},{}", OPENS.join(","), CHANGES.join(","));
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-y", "-s", "4096", "-e", "signal=none", "-e", &calls, "-o", p(&trace)]);
    command.arg(env!("CARGO_BIN_EXE_membound")).current_dir(folder);
    // Where a test's own libraries are searched is nothing of the program's.
    command.env_remove("LD_LIBRARY_PATH");
    command.args(arguments.split_whitespace().map(|word| named(word, folder)));
    let ended = run(&mut command);
    // Too little may be measured for an answer; what is touched for it is touched.
    let is_too_short = ended.code() == Some(2) && ended.stderr.contains("give a longer --budget");
    let has_run = matches!(ended.code(), Some(0..=1)) || is_too_short;
    assert!(has_run, "{arguments}: {:?}\n{}", ended.code(), ended.stderr);
    std::fs::read_to_string(trace).map_err(|fault| fault.to_string())
}

fn can_trace() -> bool {
    Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|status| status.success())
}

#[test]
fn commands_touch_what_is_stated_and_nothing_else() {
    if !can_trace() {
        return skip("no strace, or none that may trace");
    }
    let security = include_str!("../../../../../SECURITY.md");
    let program = Path::new(env!("CARGO_BIN_EXE_membound"));
    for (command, arguments) in RUNS {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir(folder.join("dir")).unwrap();
        recorded(&folder, "input");
        let table = table(security, &folder);
        let (all, own) = (&table["all"], &table[command]);
        let allowed =
            Allowed { reads: [&all.reads[..], &own.reads].concat(), writes: [&all.writes[..], &own.writes].concat() };
        let trace = traced(&folder, arguments).unwrap();
        assert!(trace.contains("\"/etc/ld.so.cache\""), "{arguments}: nothing was traced");
        let faults = faults(&trace, program, &allowed);
        assert!(faults.is_empty(), "{arguments}: SECURITY.md does not state\n{}", faults.join("\n"));
        for word in
            arguments.split_whitespace().map(|word| named(word, &folder)).filter(|word| own.writes.contains(word))
        {
            assert!(trace.contains(p(&word)), "{arguments}: {} was not touched", word.display());
        }
    }
}

#[test]
fn what_is_not_stated_is_found() {
    let folder = Path::new("/run/x");
    let rows = "| command | may read | may write |\n|---|---|---|\n| all | `/proc` | |\n| `a`, `b c` | `INPUT` | `OUT`, `/dev/kvm` |\n";
    let table = table(rows, folder);
    assert_eq!(table.keys().collect::<Vec<_>>(), ["a", "all", "b c"]);
    let allowed = Allowed { reads: [&table["all"].reads[..], &table["a"].reads].concat(), ..table["a"].clone() };
    let check = |line: &str, is_fault: bool| {
        assert_eq!(faults(line, Path::new("/bin/membound"), &allowed).len(), usize::from(is_fault), "{line}");
    };
    check("12 openat(AT_FDCWD</tmp>, \"/proc/stat\", O_RDONLY|O_CLOEXEC) = 3</proc/stat>", false);
    check("12 openat(AT_FDCWD</tmp>, \"/proc/stat\", O_WRONLY) = 3", true);
    check("12 openat(AT_FDCWD</run/x>, \"input\", O_RDONLY <unfinished ...>", false);
    check("12 openat(AT_FDCWD</run/y>, \"input\", O_RDONLY) = 3", true);
    check("openat(AT_FDCWD</>, \"/etc/passwd\", O_RDONLY) = -1 ENOENT (No such file or directory)", true);
    check("12 openat(AT_FDCWD</run/x>, \"out/a.jsonl\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 4", false);
    check("12 openat(AT_FDCWD</run/x>, \".membound-1-0.tmp\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 4", false);
    check("12 openat(AT_FDCWD</run/x>, \".bashrc\", O_WRONLY|O_CREAT, 0666) = 4", true);
    check("12 rename(\"/run/x/.membound-1-0.tmp\", \"/run/x/out\") = 0", false);
    check("12 rename(\"/run/x/.membound-1-0.tmp\", \"/run/x/other\") = 0", true);
    check("12 unlink(\"/run/x/input\") = 0", true);
    check("12 openat(AT_FDCWD</>, \"/dev/kvm\", O_RDWR|O_CLOEXEC) = 5</dev/kvm>", false);
    check("12 socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, [3, 4]) = 0", false);
    check("12 socketpair(AF_TIPC, SOCK_STREAM, 0, [3, 4]) = 0", true);
    check("12 sendto(4<UNIX-STREAM:[1]>, \"x\", 1, 0, NULL, 0) = 1", false);
    check("12 socket(AF_INET, SOCK_STREAM, 0) = 3", true);
    check("12 connect(3, {sa_family=AF_UNIX, sun_path=\"/run/nscd\"}, 110) = 0", true);
    check("12 execve(\"/bin/membound\", [\"membound\"], 0x7 /* 3 vars */) = 0", false);
    check("12 execve(\"/proc/self/exe\", [\"membound\"], 0x7 /* 3 vars */) = 0", false);
    check("12 openat(AT_FDCWD, \"/proc/self/fd/4\", O_RDWR|O_DIRECT|O_CLOEXEC) = 5", false);
    check("12 execve(\"/bin/sh\", [\"sh\"], 0x7 /* 3 vars */) = 0", true);
    check("12 <... openat resumed>) = 3", false);
}
