//! The lab: emulated machines boot, membound runs in them, and what it says is held against what each machine's file
//! declares. See lab/README.md. Without the emulator or the guest's kernel it skips. `LAB_ONLY=bar,tiny` boots some machines only, `MEMBOUND=FILE` runs another membound in them.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use crate::common::skip::skip;
use serde_json::{Value, json};

/// Machines that run side by side.
const SIDE_BY_SIDE: usize = 2;

/// A boot of a machine, and what it must come to.
#[derive(Debug, Clone, Default)]
struct Boot {
    machine: String,
    /// The guest's architecture, and maybe a kernel of it: `x86_64`, `aarch64`, `aarch64-16k`.
    arch: String,
    /// The job and its flags.
    job: Vec<String>,
    expectations: Vec<Expectation>,
}

/// What is declared of a result: the run of membound that a job gave this name.
#[derive(Debug, Clone, Default)]
struct Expectation {
    /// A name, or its beginning and `*`.
    name: String,
    exit: String,
    claims: Vec<String>,
}

impl Expectation {
    fn is_about(&self, result: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(start) => result.starts_with(start),
            None => result == self.name,
        }
    }
}

/// The boots that a machine's file declares:
///
/// ```text
/// arch aarch64               the guest's architecture, if it is not x86_64
/// test JOB FLAGS...          a boot
/// expect NAME exit CODE      a result of it; NAME may end in *
///   /nodes/id=1/cpus = ""    a claim about its output, see `holds`
/// ```
fn boots(machine: &str, text: &str) -> Vec<Boot> {
    let mut boots: Vec<Boot> = Vec::new();
    let mut arch = String::from("x86_64");
    for line in text.lines() {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let place = || panic!("{machine}: `{line}` stands before its `test` or `expect` line");
        match words.first().map(String::as_str) {
            Some("arch") => arch = words[1..].join(" "),
            Some("test") => {
                let (machine, arch) = (machine.into(), arch.clone());
                boots.push(Boot { machine, arch, job: words[1..].into(), expectations: Vec::new() });
            }
            Some("expect") => {
                assert!(words.len() == 4 && words[2] == "exit", "{machine}: `{line}` is not: expect NAME exit CODE");
                let expectation = Expectation { name: words[1].clone(), exit: words[3].clone(), claims: Vec::new() };
                boots.last_mut().unwrap_or_else(place).expectations.push(expectation);
            }
            Some(_) if line.starts_with("  ") => {
                let expectation = boots.last_mut().and_then(|boot| boot.expectations.last_mut());
                expectation
                    .unwrap_or_else(|| panic!("{machine}: `{line}` has no expectation"))
                    .claims
                    .push(line.trim().into());
            }
            Some("qemu" | "kernel" | "file" | "module" | "program" | "split") | None => {}
            Some(word) => assert!(word.starts_with('#'), "{machine}: what is `{word}`?"),
        }
    }
    boots
}

/// The values at a path: `key` or an index, `*` for each element, `key=value,key=value` for each element with these.
fn select<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![value];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let step = |value: &'a Value| -> Vec<&'a Value> {
            let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let has = |element: &Value| {
                part.split(',')
                    .filter_map(|condition| condition.split_once('='))
                    .all(|(key, wanted)| element.get(key).is_some_and(|found| *found == literal(wanted)))
            };
            match part {
                "*" => elements.iter().collect(),
                _ if part.contains('=') => elements.iter().filter(|element| has(element)).collect(),
                _ => {
                    part.parse().map_or_else(|_| value.get(part), |index: usize| value.get(index)).into_iter().collect()
                }
            }
        };
        found = found.into_iter().flat_map(step).collect();
    }
    found
}

/// JSON; what is no JSON is a string.
fn literal(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// Whether a claim about a result holds; if not, why.
///
/// ```text
/// out TEXT, err TEXT         the output or the talk has this text, however its lines were broken
/// empty                      there is no output
/// PATH = JSON                each value there is this; there is one at least
/// PATH > NUMBER, PATH < NUMBER
/// PATH well-below PATH       the middle value there is less than two thirds of the other's: for times on a busy host
/// PATH has TEXT              each value there is a string with this text
/// PATH some TEXT             one of the strings there has this text
/// PATH none TEXT             none of them has it
/// PATH count NUMBER          there are so many
/// PATH absent                nothing is there, or the reason why nothing is
/// ```
fn holds(claim: &str, out: &str, err: &str) -> Result<(), String> {
    let words: Vec<&str> = claim.splitn(3, ' ').collect();
    let text = claim.split_once(' ').map_or("", |(_, text)| text);
    let is = |good: bool, found: String| if good { Ok(()) } else { Err(format!("`{claim}`, but found: {found}")) };
    match words[0] {
        "out" => return is(crate::common::on_one_line(out).contains(&crate::common::on_one_line(text)), out.into()),
        "err" => return is(crate::common::on_one_line(err).contains(&crate::common::on_one_line(text)), err.into()),
        "empty" => return is(out.is_empty(), out.into()),
        _ => {}
    }
    let value: Value =
        serde_json::from_str(out).map_err(|fault| format!("`{claim}`, but the output is no JSON: {fault}"))?;
    let found = select(&value, words[0]);
    let seen = format!("{} value(s): {}", found.len(), serde_json::to_string(&found).unwrap_or_default());
    let wanted = words.get(2).copied().unwrap_or_default();
    let each = |holds: &dyn Fn(&Value) -> bool| !found.is_empty() && found.iter().all(|value| holds(value));
    let has_text = |value: &Value| value.as_str().is_some_and(|value| value.contains(wanted));
    let number = || wanted.parse::<f64>().map_err(|_| format!("`{claim}`: {wanted} is no number"));
    let good = match words.get(1).copied() {
        Some("=") => each(&|value| {
            *value == literal(wanted) || value.as_f64().is_some_and(|v| literal(wanted).as_f64() == Some(v))
        }),
        Some(">") => {
            let n = number()?;
            each(&|value| value.as_f64().is_some_and(|value| value > n))
        }
        Some("<") => {
            let n = number()?;
            each(&|value| value.as_f64().is_some_and(|value| value < n))
        }
        Some("well-below") => {
            let (here, there) = (middle(&found), middle(&select(&value, wanted)));
            here.zip(there).is_some_and(|(here, there)| here < there * 2.0 / 3.0)
        }
        Some("has") => each(&has_text),
        Some("some") => found.iter().any(|value| has_text(value)),
        Some("none") => !found.iter().any(|value| has_text(value)),
        Some("count") => found.len() as f64 == number()?,
        Some("absent") => found.iter().all(|value| value.is_null() || value.get("absent").is_some()),
        _ => return Err(format!("`{claim}` is no claim")),
    };
    is(good, seen)
}

/// The middle one of some numbers, the lower one of two: what disturbs a time makes it longer.
fn middle(values: &[&Value]) -> Option<f64> {
    let mut numbers: Vec<f64> = values.iter().filter_map(|value| value.as_f64()).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len().saturating_sub(1) / 2).copied()
}

/// What a processor, an instruction set or a kernel has not: nothing cures it.
const INCURABLE: [&str; 6] = [
    "not invariant",
    "this processor has no ",
    "are x86's alone",
    "chosen by x86's page tables",
    "are of two registers",
    "this kernel stores nothing",
];

/// Why a figure can't be, by its speed alone: in an emulator the host's other work makes such figures.
const BY_SPEED: &str = "faster than the same loop in a working set 64 times smaller";

/// What holds of every row on any machine: a row that names a node has its pages there and nowhere else, huge pages were
/// obtained where a pool was asked for, nothing that was proved turned out to be otherwise, and nothing crashed.
fn rules(row: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut rule = |good: bool, text: &str| {
        if !good {
            faults.push(format!("{text}: {row}"))
        }
    };
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    // A sweep is no measurement: it says how it ended.
    if text("metric") == "sweep" {
        rule(!text("end").is_empty(), "a sweep does not say how it ended");
        return faults;
    }
    let reason = text("reason");
    let is_too_fast = text("outcome") == "invalid" && reason == BY_SPEED;
    let is_an_answer = is_too_fast || ["measured", "unavailable"].contains(&text("outcome"));
    rule(is_an_answer, "the outcome is neither measured nor unavailable");
    let has_cure = reason.contains("; ") || INCURABLE.iter().any(|what| reason.contains(what));
    rule(text("outcome") != "unavailable" || has_cure, "a reason names no cure");
    let obtained = &row["obtained"];
    let lies_on = obtained["pages_on_node"].as_array().map(Vec::as_slice).unwrap_or_default();
    if text("outcome") == "measured" && !obtained.is_null() {
        let asked = row["node"].as_u64();
        rule(
            asked.is_none() || lies_on.iter().all(|found| found["node"].as_u64() == asked),
            "pages lie on another node",
        );
        rule(asked.is_none() || !lies_on.is_empty(), "no page was looked up");
        let pool = text("memory").starts_with("huge-");
        rule(!pool || obtained["huge_bytes"].as_u64() >= obtained["bytes"].as_u64(), "not all pages are huge");
        let proofs = obtained["proofs"].as_array().map(Vec::as_slice).unwrap_or_default();
        // A guest without a disk has its files in memory, and is told so.
        let no_disk = proofs.iter().any(|proof| proof["claim"] == "a file on disk" && proof["seen"] == "tmpfs");
        rule(no_disk || proofs.iter().all(|proof| proof["holds"] == true), "a proof does not hold");
    }
    faults
}

/// Latencies measured from a node's CPUs to a node that hwloc does not tell as they are, to the nanosecond, once it has read
/// the file that `numa` wrote.
fn misread(numa: &str, hwloc: &str) -> Vec<String> {
    let rows: Vec<Value> = serde_json::from_str(numa).unwrap_or_default();
    let latencies = rows
        .iter()
        .filter(|row| row["metric"] == "numa")
        .filter_map(|row| row["latency_ns"]["capability"]["value"].as_f64());
    let told: Vec<&str> = hwloc.lines().filter(|line| line.contains(" from cpuset ")).collect();
    // As they are written for hwloc: a half goes to the even number.
    let is_lost = |latency: &f64| !told.iter().any(|line| line.contains(&format!(" = {latency:.0} from")));
    latencies.filter(is_lost).map(|latency| format!("hwloc does not read back {latency} ns: {told:?}")).collect()
}

/// All that is wrong with the results of a boot.
fn judge(boot: &Boot, results: &Path) -> Vec<String> {
    let read = |name: &str| fs::read_to_string(results.join(name)).unwrap_or_default();
    let files = fs::read_dir(results).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> =
        files.filter_map(|name| Some(name.to_str()?.strip_suffix(".exit")?.to_string())).collect();
    names.sort();
    let mut faults = Vec::new();
    for expectation in &boot.expectations {
        if !names.iter().any(|name| expectation.is_about(name)) {
            faults.push(format!("{}: there is no such result", expectation.name));
        }
    }
    for name in &names {
        let (out, err) = (read(&format!("{name}.out")), read(&format!("{name}.err")));
        let code = read(&format!("{name}.exit"));
        let mut wrong = |fault: String| faults.push(format!("{name}: {fault}"));
        if err.contains("panicked") {
            wrong(err.clone());
        }
        let rows: Vec<Value> = serde_json::from_str(&out).unwrap_or_default();
        rows.iter().flat_map(rules).for_each(&mut wrong);
        let own: Vec<&Expectation> = boot.expectations.iter().filter(|own| own.is_about(name)).collect();
        if own.is_empty() {
            wrong("nothing is declared about this result".into());
        }
        for expectation in own {
            if code.trim() != expectation.exit {
                wrong(format!("exit code {}, not {}: {err}", code.trim(), expectation.exit));
            }
            expectation.claims.iter().filter_map(|claim| holds(claim, &out, &err).err()).for_each(&mut wrong);
        }
    }
    if names.iter().any(|name| name == "hwloc") {
        faults.extend(misread(&read("numa.out"), &read("hwloc.out")));
    }
    let mishaps = ["segfault", "Out of memory", "oom-kill", "general protection"];
    let dmesg = read("dmesg");
    faults.extend(
        dmesg
            .lines()
            .filter(|line| mishaps.iter().any(|word| line.contains(word)))
            .map(|line| format!("dmesg: {line}")),
    );
    faults
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn results(boot: &Boot) -> PathBuf {
    root().join(format!("target/lab/results/{}-{}", boot.machine, boot.job[0]))
}

/// Boots a machine and returns what is wrong, and a line on how it went.
fn run(boot: &Boot) -> (Vec<String>, String) {
    let started = Instant::now();
    let membound = std::env::var_os("MEMBOUND").unwrap_or_else(|| env!("CARGO_BIN_EXE_membound").into());
    let mut command = Command::new(root().join("lab/run"));
    command.arg(&boot.machine).args(&boot.job).env("MEMBOUND", membound);
    let output = command.output().expect("lab/run can be started");
    let mut faults = Vec::new();
    if output.status.success() {
        faults.extend(judge(boot, &results(boot)));
    } else {
        let talk = String::from_utf8_lossy(&output.stderr);
        let job = fs::read_to_string(results(boot).join("job.err")).unwrap_or_default();
        faults.push(format!("lab/run ended with {:?}: {talk}{job}", output.status.code()));
    }
    let name = format!("{} {}", boot.machine, boot.job.join(" "));
    let verdict = if faults.is_empty() { "as declared".into() } else { format!("{} faults", faults.len()) };
    let line = format!("lab: {name:<40} {:>4} s  {verdict}", started.elapsed().as_secs());
    (faults.into_iter().map(|fault| format!("{name}: {fault}")).collect(), line)
}

/// Boots a machine, says how it went, and returns what is wrong.
fn told(boot: &Boot) -> Vec<String> {
    let (wrong, line) = run(boot);
    eprintln!("{line}");
    wrong.iter().for_each(|fault| eprintln!("  {fault}"));
    wrong
}

fn declared() -> Vec<Boot> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(root().join("lab/machines")).expect("lab/machines").map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let of = |file: &PathBuf| boots(file.file_name().unwrap().to_str().unwrap(), &fs::read_to_string(file).unwrap());
    files.iter().flat_map(of).collect()
}

/// What the lab lacks here for guests of an architecture, if anything, and what gets it.
fn lacking(arch: &str) -> Option<String> {
    let on_path = |name: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(name).exists())
    };
    let lab = root().join("target/lab");
    if arch == "x86_64" {
        if !on_path("qemu-system-x86_64") || !on_path("cpio") || !on_path("busybox") {
            return Some("qemu-system-x86_64, cpio or busybox; lab/fetch gets it".into());
        }
        return (!lab.join("kernel/.done").exists()).then(|| "the guest's kernel; lab/fetch gets it".into());
    }
    let program = std::env::var_os("MEMBOUND_AARCH64")
        .map_or_else(|| root().join("target/aarch64-unknown-linux-gnu/release/membound"), PathBuf::from);
    if !program.exists() {
        return Some("a membound for aarch64; .ci/aarch64 build --release makes it".into());
    }
    let is_there = on_path("qemu-system-aarch64")
        && on_path("cpio")
        && lab.join("aarch64/tools/.done").exists()
        && lab.join(arch).join("kernel/.done").exists();
    (!is_there).then(|| format!("an emulator, a busybox or a kernel of {arch}; lab/fetch {arch} gets it"))
}

#[test]
fn machines_are_as_they_declare() {
    let only = std::env::var("LAB_ONLY").unwrap_or_default();
    let mut meant = declared();
    meant.retain(|boot| only.is_empty() || only.split(',').any(|name| name == boot.machine));
    let architectures: BTreeSet<String> = meant.iter().map(|boot| boot.arch.clone()).collect();
    for (arch, what) in architectures.iter().filter_map(|arch| Some((arch, lacking(arch)?))) {
        skip(format!("the lab lacks {what}"));
        meant.retain(|boot| boot.arch != *arch);
    }
    let queue: Mutex<VecDeque<Boot>> = Mutex::new(meant.into());
    let faults = Mutex::new(Vec::new());
    let work = || {
        while let Some(boot) = { queue.lock().unwrap().pop_front() } {
            // An interval misses one time in twenty, and a busy host makes it more: what is wrong is wrong twice.
            let mut wrong = told(&boot);
            if !wrong.is_empty() {
                wrong = told(&boot);
            }
            faults.lock().unwrap().extend(wrong);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(work);
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} faults:\n{}\n", faults.len(), faults.join("\n"));
}

/// Every machine is booted, by a job that there is, and declares what `membound machine` must say of it.
#[test]
fn every_machine_declares_something() {
    let boots = declared();
    for file in fs::read_dir(root().join("lab/machines")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let own: Vec<&Boot> = boots.iter().filter(|boot| boot.machine == name).collect();
        assert!(!own.is_empty(), "{name} is never booted");
        for boot in own {
            assert!(root().join("lab/jobs").join(&boot.job[0]).exists(), "{name}: there is no job {}", boot.job[0]);
            let about = boot.expectations.iter().find(|expectation| expectation.name == "machine");
            assert!(about.is_some_and(|about| !about.claims.is_empty()), "{name}: nothing is declared of `machine`");
        }
    }
}

#[test]
fn claims_hold_or_do_not() {
    let out = r#"{"nodes":[{"id":0,"cpus":"0-3","total":10},{"id":1,"cpus":"","total":4.5,"free":{"absent":"why"}}],"x":null}"#;
    let check = |claim: &str, good: bool| assert_eq!(holds(claim, out, "some talk").is_ok(), good, "{claim}");
    check(r#"/nodes/id=1/cpus = """#, true);
    check(r#"/nodes/id=0/cpus = """#, false);
    check("/nodes/1/total > 4", true);
    check("/nodes/*/total > 5", false);
    check("/nodes/*/total < 11", true);
    check("/nodes/id=0,total=10/cpus has 0-", true);
    check("/nodes/id=0,total=11/cpus has 0-", false);
    check("/nodes/id=1/total well-below /nodes/id=0/total", true);
    check("/nodes/id=0/total well-below /nodes/id=1/total", false);
    check("/nodes/id=0/total well-below /nodes/id=0/total", false);
    check("/nodes/id=0/total well-below /nothing", false);
    check("/nodes/* count 2", true);
    check("/nodes/* count 3", false);
    check("/nodes/id=1/free absent", true);
    check("/nodes/id=1/cpus absent", false);
    check("/x absent", true);
    check("/y = 1", false);
    check("/nodes/id=0/total = 10.0", true);
    check("err talk", true);
    check("err walk", false);
    check("out 0-3", true);
    check("out {\"nodes\":[{\"id\":0,", true);
    check("err some   talk", true);
    check("empty", false);
    check("/nodes/*/cpus some 0-", true);
    check("/nodes/*/cpus some 0-4", false);
    check("/nodes/*/cpus none 0-4", true);
    check("/nodes/*/cpus none 0-", false);
    check("/nodes ~ 1", false);
    assert!(holds("/nodes count 1", "no JSON", "").is_err());
    assert!(holds("out some words", "some\n    words", "").is_ok());
    assert!(holds("empty", "", "talk").is_ok());
}

#[test]
fn what_hwloc_reads_back_is_what_was_measured() {
    let numa = r#"[{"metric":"latency","latency_ns":{"capability":{"value":9}}},{"metric":"numa","latency_ns":{"capability":{"value":473.6}}}]"#;
    let misread = |told: &str| misread(numa, told).len();
    assert_eq!(misread("  NUMANode L#0 = 474 from cpuset 0x0000000f (Machine L#0)"), 0);
    assert_eq!(misread("  NUMANode L#0 = 1474 from cpuset 0x0000000f (Machine L#0)"), 1);
    assert_eq!(misread("  NUMANode L#0 = 474"), 1);
    let half = r#"[{"metric":"numa","latency_ns":{"capability":{"value":114.5}}}]"#;
    assert!(self::misread(half, "  NUMANode L#0 = 114 from cpuset 0x0000000c (Package L#1)").is_empty());
}

#[test]
fn rules_find_planted_faults() {
    let good = json!({"outcome": "measured", "node": 1, "memory": "huge-2m", "obtained":
        {"bytes": 100, "huge_bytes": 200, "pages_on_node": [{"node": 1, "pages": 5}], "proofs": [{"holds": true}]}});
    assert_eq!(rules(&good), Vec::<String>::new());
    let planted = [
        ("/outcome", json!("crashed"), "outcome"),
        ("/node", json!(0), "another node"),
        ("/obtained/pages_on_node", json!([]), "no page"),
        ("/obtained/huge_bytes", json!(99), "not all pages"),
        ("/obtained/proofs/0/holds", json!(false), "proof"),
    ];
    for (path, value, fault) in planted {
        let mut row = good.clone();
        *row.pointer_mut(path).unwrap() = value;
        assert!(rules(&row).iter().any(|found| found.contains(fault)), "{path}");
    }
    let mut diskless = good.clone();
    diskless["obtained"]["proofs"] = json!([{"claim": "a file on disk", "seen": "tmpfs", "holds": false}]);
    assert_eq!(rules(&diskless), Vec::<String>::new());
    let invalid = |reason: &str| rules(&json!({"outcome": "invalid", "reason": reason})).len();
    assert_eq!((invalid(BY_SPEED), invalid("the data check failed")), (0, 1));
    assert_eq!(rules(&json!({"metric": "sweep", "end": "limit"})), Vec::<String>::new());
    assert_eq!(rules(&json!({"metric": "sweep"})).len(), 1);
    assert_eq!(rules(&json!({"outcome": "unavailable", "reason": "no"})).len(), 1);
    assert_eq!(rules(&json!({"outcome": "unavailable", "reason": "no; do this"})).len(), 0);
}

#[test]
fn results_are_held_against_declarations() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let boot =
        &boots("m", "# a machine\nqemu -m 1\ntest job --timeout 9\nexpect a* exit 0\n  /x = 1\nexpect b exit 2\n")[0];
    assert_eq!((boot.machine.as_str(), &boot.job[..]), ("m", &["job", "--timeout", "9"].map(String::from)[..]));
    assert_eq!(
        (boot.arch.as_str(), boots("m", "arch aarch64-16k\ntest job")[0].arch.as_str()),
        ("x86_64", "aarch64-16k")
    );
    let judged = |count: usize| {
        let faults = judge(boot, folder.path());
        assert_eq!(faults.len(), count, "{faults:?}");
    };
    judged(2);
    for (name, out, exit) in [("a1", r#"{"x":1}"#, "0\n"), ("b", "", "2\n")] {
        write(&format!("{name}.out"), out);
        write(&format!("{name}.exit"), exit);
    }
    judged(0);
    write("a1.out", r#"{"x":2}"#);
    judged(1);
    write("b.exit", "101\n");
    judged(2);
    write("b.err", "thread 'main' panicked at");
    judged(3);
    write("c.exit", "0");
    judged(4);
    write("dmesg", "fine\nmembound[77]: segfault at 0\n");
    judged(5);
}
