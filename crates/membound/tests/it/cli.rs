//! The command as a user meets it: real, short runs; bad input; interruption. No figure is asserted, only its shape.

use crate::common::program::{TOO_BUSY, in_time, membound, run, run_in, text};
use crate::common::schema::Validator;
use crate::common::signals::send;
use crate::common::skip::skip;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Exit 2, nothing on stdout, and a message with each of `parts`.
fn refuses(arguments: &[&str], parts: &[&str]) {
    let output = run(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    parts.iter().for_each(|part| assert!(stderr.contains(part), "{arguments:?}: '{part}' is not in: {stderr}"));
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Time that is over before anything is measured is no success with nothing to show.
#[test]
fn a_budget_too_short_for_the_first_case_is_a_failure() {
    for metric in ["bandwidth", "latency", "stream", "addrmap"] {
        let output = run(&[metric, "--budget", "0.001ms", "--format", "json"]);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).trim()), (Some(1), "[]"), "{metric}: {stderr}");
        assert!(stderr.contains("nothing was measured; give a longer --budget"), "{metric}: {stderr}");
    }
}

#[test]
fn bad_input_is_refused_with_a_cure() {
    let folder = tempfile::tempdir().unwrap();
    refuses(&["bandwidth", "--kernel", "traid"], &["traid", "kernel --list", "triad"]);
    refuses(&["bandwidth", "--size", "0"], &["0 bytes measures nothing"]);
    refuses(&["bandwidth", "--size", "8", "--kernel", "triad"], &["give at least 24 B"]);
    refuses(&["bandwidth", "--size", "800TiB"], &["give a smaller --size"]);
    refuses(&["bandwidth", "--size", "12 parsecs"], &["24KiB"]);
    refuses(&["bandwidth", "--cpus", "99999"], &["CPU 99999", "usable CPUs are"]);
    refuses(&["bandwidth", "--cpus", "3-1"], &["3-1"]);
    refuses(&["bandwidth", "--cpus", ""], &["the list of CPUs is empty", "leave --cpus out"]);
    refuses(&["bandwidth", "--threads", "100000"], &["--threads"]);
    refuses(&["bandwidth", "--threads", "0"], &["--threads 1"]);
    refuses(&["bandwidth", "--store", "fast"], &["regular, nt, nt-masked, rep"]);
    refuses(&["bandwidth", "--misalign", "3"], &["8-byte elements"]);
    refuses(&["bandwidth", "--memory", "velvet"], &["unknown memory kind 'velvet'", "file-shared"]);
    refuses(&["bandwidth", "--kernel", "copy", "--memory", "z=thp"], &["no kernel here has a stream 'z'", "a, b"]);
    refuses(&["bandwidth", "--memory", "weigted:0=3,1=1"], &["no place for memory", "node1", "weighted:0=3,1=1"]);
    refuses(&["bandwidth", "--memory", "thp@interleave:1-0"], &["'1-0' names no nodes", "0-1,4"]);
    refuses(&["bandwidth", "--node", "1024"], &["--node"]);
    refuses(&["latency", "--memory", "a=node0"], &["no streams here", "membound bandwidth"]);
    refuses(&["stream", "--memory", "a=4k"], &["--memory STREAM=KIND does not apply"]);
    refuses(&["kinds", "--memory", "thp,leather"], &["unknown memory kind 'leather'"]);
    refuses(&["kinds", "--size", "800TiB"], &["give a smaller --size"]);
    refuses(&["kinds", "--allow-device-writes", "/dev/null"], &["must name the same file as --device"]);
    refuses(&["bandwidth", "--misalign", "4"], &["8-byte elements"]);
    refuses(&["bandwidth", "--misalign", "64"], &["from 0 to 56"]);
    refuses(&["bandwidth", "--misalign", "62", "--element", "float"], &["4-byte elements"]);
    refuses(&["bandwidth", "--size", "8", "--kernel", "triad", "--element", "float"], &["give at least 12 B"]);
    refuses(&["bandwidth", "--element", "half"], &["double, float"]);
    refuses(&["stream", "--element", "float"], &["--element float does not apply"]);
    refuses(&["stream", "--kernel", "dot"], &["--kernel does not apply"]);
    refuses(&["stores", "--store", "nt"], &["--store does not apply"]);
    refuses(&["latency", "--order", "sideways"], &["sideways", "page-ordered"]);
    refuses(&["latency", "--chains", "33"], &["give a number from 1 to 32"]);
    refuses(&["latency", "--stride", "12"], &["multiple of 8"]);
    refuses(&["latency", "--stride", "far"], &["'far' is no stride; give bytes, such as 64 or 4KiB"]);
    refuses(&["latency", "--stride", "8GiB"], &["'8GiB' is no stride"]);
    let far = |stride: &str| succeeds(&["latency", "--size", "1MiB", "--stride", stride, "--list"]);
    assert_eq!(far("4KiB"), far("4096"));
    refuses(&["latency", "--size", "64"], &["give at least 128 B"]);
    refuses(&["latency", "--size", "800TiB"], &["give a smaller --size"]);
    refuses(&["latency", "--map", "--order", "random"], &["--map", "--order"]);
    refuses(&["latency", "--memory", "velvet"], &["unknown memory kind 'velvet'"]);
    refuses(&["latency", "--cpus", "99999"], &["CPU 99999", "usable CPUs are"]);
    refuses(&["c2c", "--home", "third"], &["third", "first, second"]);
    refuses(&["c2c", "--cpus", "99999"], &["CPU 99999", "usable CPUs are"]);
    refuses(&["loaded", "--mix", "90:10"], &["90:10", "75:25"]);
    refuses(&["loaded", "--steps", "0"], &["give a number from 1 to 100"]);
    refuses(&["bandwidth", "--samples", "0"], &["give a number from 3 to 10000"]);
    refuses(&["loaded", "--threads", "0"], &["--threads 1"]);
    refuses(&["loaded", "--threads", "100000"], &["--threads"]);
    let advise = ["advise", "triad", "--size", "3GiB", "--tier"];
    refuses(&[&advise[..], &["0=90GB/s:96GiB", "--store", "zero"]].concat(), &["'zero'", "regular, nt"]);
    for bits in ["90Gb/s", "90 Gib/s", "90Mb/s"] {
        refuses(&[&advise[..], &[&format!("0={bits}:96GiB")]].concat(), &["is in bits", "such as 90GB/s"]);
    }
    refuses(&["addrmap", "--memory", "4k"], &["choose thp, huge-2m or huge-1g"]);
    refuses(&["addrmap", "--size", "800TiB"], &["give a smaller --size"]);
    refuses(&["--budget", "soon"], &["30s"]);
    refuses(&["--budget", "1ms"], &["--budget 2s"]);
    refuses(&["kernel", "--listing", "nothing"], &["kernel --list"]);
    refuses(&["kernel", "--listing", "triad", "--store", "rep"], &["copy and fill"]);
    refuses(&["machine", "--root", "/nowhere/at/all"], &["/nowhere/at/all"]);
    refuses(&["report", "/nowhere/at/all.jsonl"], &["cannot read"]);
    let file = folder.path().join("file");
    std::fs::write(&file, "not a record\n").unwrap();
    refuses(&["report", path(&file)], &["not a membound record", ".jsonl"]);
    refuses(&["--out", path(&file), "--budget", "2s"], &["--out"]);
    refuses(&["bandwidth", "--record", path(&file), "--size", "16KiB"], &["cannot create", "--record"]);
    std::fs::write(&file, "{\"type\":\"header\",\"schema\":99,\"tool\":\"membound 9\"}\n").unwrap();
    refuses(&["report", path(&file)], &["schema 99", "membound 9"]);
}

#[test]
fn all_kernels_can_be_watched() {
    let listed = succeeds(&["watch", "--kernel", "all", "--size", "16KiB", "--list"]);
    assert!(["load ", "triad ", "jacobi "].iter().all(|name| listed.contains(name)), "{listed}");
}

/// Flags that all commands take may stand before the command; those of the default run may not.
#[test]
fn flags_of_all_commands_stand_anywhere() {
    let list = ["bandwidth", "--list", "--size", "16KiB"];
    let listed = succeeds(&list);
    for flags in [&["--quiet"][..], &["-q"], &["--color", "never"], &["--quiet", "--color=never"]] {
        assert_eq!(succeeds(&[flags, &list].concat()), listed, "{flags:?}");
    }
    let colored = |words: &[&str]| succeeds(words).contains('\u{1b}');
    assert!(colored(&["--color", "always", "machine"]) && !colored(&["--color", "never", "machine"]));
    for flag in [&["--budget", "5s"][..], &["--out", "."], &["--all"], &["--list"]] {
        refuses(&[flag, &list].concat(), &[flag[0], "of the default run", "'bandwidth'"]);
    }
}

/// A flag that would do nothing is refused with what to do about it, or does what it says.
#[test]
fn no_flag_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.jsonl");
    let run = ["bandwidth", "--kernel", "load", "--size", "16KiB", "--threads", "1", "--budget", "1s", "--rounds", "1"];
    succeeds(&[&run[..], &["--quiet", "--record", path(&record)]].concat());
    let record = path(&record);
    for conflict in [&["--page-cache"][..], &["--node", "0"], &["--size", "1MiB"]] {
        refuses(&[&["numa", "--list", "--kernel", "copy"], conflict].concat(), &["--kernel", conflict[0]]);
    }
    refuses(&["numa", "--list", "--node", "0", "--share", "40%"], &["--node", "--share"]);
    for flag in ["--budget 1s", "--samples 9", "--rounds 2", "--seed 1", "--cpus 0", "--list", "--verify"] {
        let words: Vec<&str> = flag.split(' ').collect();
        let leave = format!("leave out {}", words[0]);
        refuses(&[&["roofline", record][..], &words].concat(), &["nothing is measured", &leave]);
        refuses(&[&["kernel", "--listing", "triad"][..], &words].concat(), &["measures nothing", &leave]);
    }
    refuses(&["kernel", "--listing", "triad", "--threads", "2"], &["leave out --threads"]);
    refuses(&["kernel", "--listing", "triad", "--format", "json"], &["leave out --format"]);
    refuses(&["kernel", "--listing", "triad", "--record", "x"], &["leave out --record"]);
    let code = succeeds(&["kernel", "--listing", "copy", "--width", "scalar,128", "--store", "regular,nt"]);
    assert_eq!(code.matches("main loop").count(), 4, "{code}");
    refuses(&["machine", "--spec", "list", "--format", "json"], &["leave out --format"]);
    refuses(&["bandwidth", "--memory", "b=thp,b=4k"], &["the stream 'b' twice"]);
    refuses(&["bandwidth", "--memory", "b=thp", "--memory", "b=4k"], &["the stream 'b' twice"]);
    for (command, one) in [(["c2c", "--home"], "first"), (["loaded", "--mix"], "100:0")] {
        let listed = |words: &str| succeeds(&[&command[..], &[words, "--list"]].concat());
        assert_eq!(listed(&format!("{one},{one}")), listed(one));
    }
    if cfg!(feature = "report") {
        let time = ["report", record, "--where-time-went"];
        let pages = folder.path().join("pages");
        let said = succeeds(&[&time[..], &["--out", path(&pages)]].concat());
        assert!(said.starts_with(&succeeds(&time)) && said.contains("Written: "), "{said}");
        assert!(pages.join("run.html").exists());
        let twin = folder.path().join("twin");
        std::fs::create_dir(&twin).unwrap();
        std::fs::copy(record, twin.join("run.jsonl")).unwrap();
        let pages = folder.path().join("other");
        refuses(&["report", record, path(&twin), "--out", path(&pages)], &["twin/run.jsonl would have one name"]);
        assert!(!pages.exists());
    }
}

#[test]
fn cases_are_listed_and_nothing_is_done() {
    let folder = tempfile::tempdir().unwrap();
    for command in [&["--list"][..], &["bandwidth", "--list"], &["stores", "--list"], &["stream", "--list"]] {
        let output = membound().args(command).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success());
        let cases = text(&output.stdout);
        assert!(cases.contains("triad") || cases.contains("schoenauer"), "{cases}");
        assert!(cases.lines().last().unwrap().ends_with(" cases"));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "--list leaves nothing behind");
}

const SMALL: [&str; 9] =
    ["bandwidth", "--kernel", "load,copy,dot", "--size", "16KiB", "--threads", "1", "--budget", "2s"];

#[test]
fn json_is_an_array_of_rows_that_follow_the_published_schema() {
    let rows: serde_json::Value =
        serde_json::from_str(&succeeds(&[&SMALL[..], &["--format", "json"]].concat())).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&succeeds(&["schema", "row"])).unwrap();
    let validator = Validator::of(&schema).unwrap();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 3);
    for row in rows {
        assert!(validator.is_valid(row), "{row}");
        assert_eq!(row["outcome"], "measured");
        let [payload, bus] = ["payload_Bps", "bus_Bps"].map(|name| row[name]["median"].as_f64().unwrap());
        let ratio = if row["kernel"] == "copy" { 1.5 } else { 1.0 };
        assert!((bus / payload - ratio).abs() < 1e-9);
        assert_eq!(row["working_set_bytes"], 16384);
    }
}

#[test]
fn chases_are_rows_and_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("chases.jsonl");
    let arguments =
        ["latency", "--size", "16KiB,96KiB", "--order", "random,forward", "--chains", "1,13", "--memory", "4k"];
    let run = ["--budget", "2s", "--format", "json", "--record", path(&record)];
    let rows: serde_json::Value = serde_json::from_str(&succeeds(&[&arguments[..], &run[..]].concat())).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 8);
    let schema: serde_json::Value = serde_json::from_str(&succeeds(&["schema", "row"])).unwrap();
    let validator = Validator::of(&schema).unwrap();
    for row in rows {
        assert!(validator.is_valid(row) && row["metric"] == "latency" && row["outcome"] == "measured", "{row}");
        let cost = &row["latency_ns"];
        assert!(cost["best"].as_f64().unwrap() > 0.0 && cost["best"].as_f64() <= cost["median"].as_f64(), "{row}");
    }
    let again = succeeds(&["report", path(&record), "--format", "csv"]);
    assert!(again.starts_with("metric,order,stride_bytes") && again.lines().count() == 9, "{again}");
    assert!(succeeds(&["latency", "--map", "--size", "1MiB", "--list"]).contains("chase page-ordered, stride 128 B"));
}

#[test]
fn cases_on_latency_are_listed() {
    for (arguments, expect) in [
        (&["latency", "--list"][..], "chase random"),
        (&["latency", "--map", "--list"], "chase page-ordered, stride 128 B"),
        (&["c2c", "--list"], "hand-over, CPU "),
        (&["c2c", "--home", "second", "--list"], "the second's page"),
        (&["loaded", "--mix", "nt", "--steps", "2", "--list"], "latency, alone"),
        (&["addrmap", "--list"], "further cases follow from the answers"),
    ] {
        let text = succeeds(arguments);
        assert!(text.contains(expect), "{arguments:?}: {text}");
    }
}

/// A row of each is as the schema says, and comes back from the record.
#[test]
fn hand_overs_and_where_lines_live_are_rows_and_records() {
    let folder = tempfile::tempdir().unwrap();
    let schema: serde_json::Value = serde_json::from_str(&succeeds(&["schema", "row"])).unwrap();
    let validator = Validator::of(&schema).unwrap();
    for (metric, budget) in [("c2c", "1s"), ("addrmap", "2s")] {
        let record = folder.path().join(format!("{metric}.jsonl"));
        let json = succeeds(&[metric, "--budget", budget, "--format", "json", "--quiet", "--record", path(&record)]);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert!(!rows.is_empty());
        for row in &rows {
            assert!(validator.is_valid(row) && row["metric"] == metric, "{row}");
        }
        let again: Vec<serde_json::Value> =
            serde_json::from_str(&succeeds(&["report", path(&record), "--format", "json"])).unwrap();
        assert_eq!(again, rows);
        let summary = succeeds(&["report", path(&record), "--out", path(folder.path())]);
        let is_narrow = |line: &str| line.chars().count() <= 80 || line.contains("Written: ");
        assert!(summary.lines().all(is_narrow), "{summary}");
    }
}

/// With one CPU there is nobody to hand a line to: nothing was measured.
#[test]
fn one_cpu_has_no_other() {
    let cpu = membound_measure::machine::live().usable_cpus().first().unwrap().to_string();
    let output = run(&["c2c", "--cpus", &cpu, "--budget", "1s", "--quiet"]);
    let (said, talk) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{talk}");
    assert!(said.contains("unavailable: it needs two cores") && said.contains("--cpus"), "{said}");
    assert!(talk.contains("nothing could be measured: it needs two cores"), "{talk}");
    let list = succeeds(&["loaded", "--cpus", &cpu, "--list"]);
    assert!(list.contains("latency, others idle") && list.ends_with("2 cases\n"), "{list}");
}

#[test]
fn every_store_and_load_kind_runs_or_says_why_not() {
    for (element, misalign) in [("double", "8"), ("float", "4")] {
        every_way_runs_or_says_why_not(element, misalign);
    }
}

fn every_way_runs_or_says_why_not(element: &str, misalign: &str) {
    let arguments = [
        "bandwidth",
        "--element",
        element,
        "--kernel",
        "all",
        "--size",
        "20KiB,100KiB",
        "--threads",
        "1",
        "--store",
        "regular,nt,nt-masked,rep",
        "--load",
        "regular,nt",
        "--width",
        "scalar,128,256,512",
        "--misalign",
        misalign,
        "--samples",
        "3",
        "--verify",
        "--memory",
        "4k",
        "--budget",
        "20s",
        "--format",
        "json",
    ];
    let rows: serde_json::Value = serde_json::from_str(&succeeds(&arguments)).unwrap();
    for row in rows.as_array().unwrap() {
        assert_eq!(row["element"], element);
        match row["outcome"].as_str().unwrap() {
            "measured" => assert!(row["payload_Bps"]["median"].as_f64().unwrap() > 0.0),
            "unavailable" => assert!(!row["reason"].as_str().unwrap().is_empty()),
            other => panic!("{other}: {row}"),
        }
    }
}

#[test]
fn places_of_memory_are_listed() {
    let lists = ["--memory", "4k@interleave:0,1,a=huge-2m@node1,b=weighted:0=3,1=1", "--memory", "thp", "--node", "2"];
    let listed = succeeds(
        &[&["bandwidth", "--list", "--kernel", "copy", "--size", "1MiB", "--threads", "1"][..], &lists].concat(),
    );
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].contains(", 4k@interleave:0-1, a in huge-2m@node1, b in thp@weighted:0=3,1=1, "), "{listed}");
    assert!(listed.contains(", thp@node2, a in huge-2m@node1, "), "{listed}");
}

#[test]
fn memory_that_is_not_there_is_a_recorded_outcome() {
    // No machine reserves 40 GiB of 1 GiB pages for a test.
    let arguments =
        ["bandwidth", "--memory", "huge-1g", "--kernel", "load", "--size", "16KiB", "--threads", "1", "--budget", "1s"];
    let output = run(&[&arguments[..], &["--format", "json"]].concat());
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert!(!rows.is_empty(), "{}", text(&output.stderr));
    let has_none = rows.iter().all(|row| row["outcome"] == "unavailable");
    assert_eq!(output.status.code(), Some(i32::from(has_none)), "{}", text(&output.stderr));
    for row in rows {
        assert!(row["outcome"] == "measured" || row["reason"].as_str().unwrap().contains("hugepages"), "{row}");
    }
}

/// Every kind is measured, or says why it is not; nothing stays behind where files were measured.
#[test]
fn every_memory_kind_comes_to_an_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let json = succeeds(&[
        "kinds",
        "--part",
        "buffers",
        "--size",
        "1MiB",
        "--budget",
        "20s",
        "--samples",
        "3",
        "--dir",
        path(folder.path()),
        "--format",
        "json",
        "--quiet",
    ]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    for kind in membound_core::memory::MemoryKind::ALL {
        let copies = |row: &&serde_json::Value| row["streams"][0]["memory"]["kind"] == kind.word();
        let row = rows.iter().find(copies).unwrap_or_else(|| panic!("no row for {kind}"));
        match row["outcome"].as_str().unwrap() {
            "measured" => assert!(row["copied_Bps"]["median"].as_f64().unwrap() > 0.0, "{row}"),
            "unavailable" | "invalid" => assert!(row["reason"].as_str().unwrap().len() > 20, "{row}"),
            other => panic!("{kind}: {other}: {row}"),
        }
    }
    for kind in ["4k", "thp", "heap", "shared", "memfd", "populated", "file-private", "file-shared-cold"] {
        let is_first = |row: &&serde_json::Value| {
            row["protocol"] == "first_use" && row["streams"][0]["memory"]["kind"] == kind && row["kernel"] == "copy"
        };
        let row = rows.iter().find(is_first).unwrap();
        assert_eq!(row["outcome"], "measured", "{row}");
        assert!(row["first_use"]["total_s"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    // Faults are counted, not timed: 256 base pages, or none that are faulted in during the pass.
    let faults = |kind: &str| {
        let is_ours =
            |row: &&serde_json::Value| row["streams"][0]["memory"]["kind"] == kind && row["first_use"].is_object();
        rows.iter().find(is_ours).unwrap()["first_use"]["faults"].as_f64().unwrap()
    };
    assert!((256.0..300.0).contains(&faults("4k")) && faults("populated") < 20.0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files that were measured have no names");
}

#[test]
fn streams_lie_where_they_are_told() {
    let json = succeeds(&[
        "bandwidth",
        "--kernel",
        "triad",
        "--memory",
        "a=shared,b=4k,thp",
        "--size",
        "3MiB",
        "--threads",
        "1",
        "--width",
        "128",
        "--budget",
        "2s",
        "--format",
        "json",
        "--quiet",
    ]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!((rows.len(), &rows[0]["memory"]), (1, &"thp".into()));
    let streams = rows[0]["streams"].as_array().unwrap();
    let named =
        |index: usize| (streams[index]["stream"].as_str().unwrap(), streams[index]["memory"]["kind"].as_str().unwrap());
    assert_eq!((named(0), named(1)), (("a", "shared"), ("b", "4k")));
    assert_eq!(rows[0]["outcome"], "measured", "{}", rows[0]);
}

#[test]
fn a_record_is_redrawn() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.jsonl");
    let table = succeeds(&[&SMALL[..], &["--record", path(&record), "--seed", "5"]].concat());
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let redrawn = succeeds(&["report", path(&record), "--out", path(folder.path())]);
    assert!(redrawn.contains("copy") && redrawn.contains("L1"), "{redrawn}");
    if cfg!(feature = "report") {
        let page = std::fs::read_to_string(folder.path().join("run.html")).unwrap();
        assert!(page.len() < 1 << 20);
    }
    let csv = succeeds(&["report", path(&record), "--format", "csv"]);
    assert!(csv.starts_with("metric,kernel,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 6, "three kernels at two widths");
}

/// Loads alone come to ceilings and to no chart: they are shown, whatever else was asked for.
#[test]
fn ceilings_are_shown_without_an_answer_and_without_a_chart() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.jsonl");
    let run = ["bandwidth", "--kernel", "load", "--size", "16KiB", "--threads", "1", "--budget", "1s", "--rounds", "2"];
    succeeds(&[&run[..], &["--quiet", "--record", path(&record)]].concat());
    let record = path(&record);
    let ceilings = "Bandwidth without arithmetic";
    let section = succeeds(&["report", record, "--section", "roofline"]);
    assert!(section.contains(ceilings), "{section}");
    let chart = folder.path().join("new.svg");
    let output = run_in_words(&["roofline", record, "--svg", path(&chart)]);
    assert!(output.1.contains(ceilings) && output.2.contains("was not drawn"), "{output:?}");
    assert!(output.0 == Some(1) && !chart.exists());
    let markdown = succeeds(&["report", record, "--format", "markdown"]);
    let mut lines = markdown.lines().filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let is_alone = line.starts_with("## ") && lines.peek().is_none_or(|next| next.starts_with("## "));
        assert!(!is_alone, "{line} has nothing below it: {markdown}");
    }
}

/// Who names kinds of memory asks about those: beside them there is only what they are held against.
#[test]
fn kinds_that_are_named_are_all_that_is_measured() {
    let listed = |flags: &[&str]| text(&run(&[&["kinds", "--list", "--memory", "memfd"], flags].concat()).stdout);
    let alone = listed(&[]);
    let cases: Vec<&str> = alone.lines().filter(|line| line.contains(", ")).collect();
    assert!(cases.len() > 10 && cases.iter().all(|case| case.contains("memfd") || case.contains("heap")), "{alone}");
    assert!(listed(&["--part", "offsets"]).lines().count() > 2);
}

/// Exit code, stdout and stderr.
fn run_in_words(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(arguments);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn an_interrupted_or_killed_run_keeps_what_is_finished() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("run.jsonl");
        let mut child = membound()
            .args(["stores", "--budget", "60s", "--record", path(&record)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = || std::fs::read_to_string(&record).map_or(0, |text| text.lines().count());
        let patience = Instant::now() + Duration::from_secs(50);
        while lines() < 4 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(lines() >= 4, "nothing was recorded");
        send(signal, child.id());
        let status = child.wait().unwrap();
        assert_eq!(status.code(), if signal == libc::SIGINT { Some(1) } else { None });
        let summary = succeeds(&["report", path(&record), "--out", path(folder.path())]);
        let expect = if signal == libc::SIGINT { "interrupted" } else { "no end" };
        assert!(summary.contains(expect), "{summary}");
    }
}

/// A default run, and one whose cases follow from its answers: what is finished is recorded, drawn and told.
#[test]
fn what_is_interrupted_tells_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let [out, record, page] = ["out", "run.jsonl", "run.html"].map(|name| folder.path().join(name));
    let adaptive = ["addrmap", "--record", path(&record), "--html", path(&page)];
    // Without the feature there is no page to ask for.
    let adaptive = if cfg!(feature = "report") { &adaptive[..] } else { &adaptive[..3] };
    for (arguments, into, told) in
        [(&["--out", path(&out)][..], out.as_path(), "Written: "), (adaptive, folder.path(), "Where lines live")]
    {
        let mut command = membound();
        command.args(arguments).args(["--budget", "60s"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let of_kind = |end: &str| {
            let mut files = std::fs::read_dir(into).ok()?.map(|file| file.unwrap().path());
            files.find(|file| file.extension().is_some_and(|own| own == end))
        };
        let lines = || std::fs::read_to_string(of_kind("jsonl")?).ok().map(|text| text.lines().count());
        let patience = Instant::now() + Duration::from_secs(50);
        // A header and two visits.
        while lines().unwrap_or(0) < 3 {
            assert!(Instant::now() < patience, "{arguments:?}: nothing was recorded");
            std::thread::sleep(Duration::from_millis(5));
        }
        send(libc::SIGINT, child.id());
        let output = child.wait_with_output().unwrap();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains("interrupted; every finished case is kept"), "{arguments:?}: {stderr}");
        assert!(stdout.contains(told), "{arguments:?}: {stdout}");
        let read = membound_core::record::Record::read(&of_kind("jsonl").unwrap()).unwrap();
        assert!(read.end.unwrap().interrupted && !read.measurements.is_empty(), "{arguments:?}");
        if cfg!(feature = "report") {
            let page = std::fs::read_to_string(of_kind("html").unwrap()).unwrap();
            assert!(page.contains("the run was interrupted"), "{arguments:?}");
        }
    }
}

/// The shortest run of all, for real: its record alone gives the same summary again.
#[test]
fn a_quick_run_is_redrawn() {
    // Its page lies where it is called.
    let quick = |folder: &Path, length: &str| run_in(folder, &[length, "--record", path(&folder.join("run.jsonl"))]);
    let Some((folder, output)) = in_time(["--quick", "--budget=40s"], quick) else { return skip(TOO_BUSY) };
    let record = folder.path().join("run.jsonl");
    let noted = text(&output.stderr);
    assert!(output.status.success(), "{noted}");
    let said = text(&output.stdout);
    let again = succeeds(&["report", path(&record)]);
    // Beside other tests it may be too few visits for the first screen; then the plain answers stand there.
    assert!(said.starts_with("membound ") && said.contains("GB/s"), "{said}");
    assert!(said.starts_with(&again), "{said}\n--- again:\n{again}");
}

/// A terminal that goes ends a run as SIGTERM does, so that no empty page stays behind; under nohup it ends nothing.
#[test]
fn a_hangup_is_an_interruption_unless_it_is_ignored() {
    // These tests may run where a hangup is ignored, and a shell cannot undo that.
    for (start, budget, code) in [("exec env --default-signal=HUP", "60s", 1), ("trap '' HUP; exec", "4s", 0)] {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("run.jsonl");
        let run = format!("stores --budget {budget} --quiet --record {}", record.display());
        let command = format!("{start} {} {run}", env!("CARGO_BIN_EXE_membound"));
        let page = folder.path().join("run.html");
        let page = if cfg!(feature = "report") { format!(" --html {}", page.display()) } else { String::new() };
        let mut child = Command::new("bash").args(["-c", &(command + &page)]).stdout(Stdio::null()).spawn().unwrap();
        let lines = || std::fs::read_to_string(&record).map_or(0, |text| text.lines().count());
        let patience = Instant::now() + Duration::from_secs(50);
        while lines() < 2 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Both the shell and the kernel tell a terminal's foreground job.
        let twice = format!("kill -HUP {0}; sleep 0.001; kill -HUP {0}", child.id());
        Command::new("bash").args(["-c", &twice]).stderr(Stdio::null()).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{start}");
        let end = membound_core::record::Record::read(&record).unwrap().end.unwrap();
        assert_eq!(end.interrupted, code == 1, "{start}");
        let is_empty = |entry: std::fs::DirEntry| entry.metadata().unwrap().len() == 0;
        assert!(!std::fs::read_dir(folder.path()).unwrap().any(|entry| is_empty(entry.unwrap())), "{start}");
    }
}

#[test]
fn a_record_that_may_not_grow_is_told_and_still_opens() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.jsonl");
    let command = format!(
        "ulimit -f 24; exec {} stores --budget 20s --quiet --record {}",
        env!("CARGO_BIN_EXE_membound"),
        record.display()
    );
    let output = Command::new("bash").args(["-c", &command]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("could not be written to its end"), "{}", text(&output.stderr));
    succeeds(&["report", path(&record), "--out", path(folder.path())]);
}

#[test]
fn kernels_are_listed_with_their_code() {
    let list = succeeds(&["kernel", "--list"]);
    assert!(list.contains("a[i] = b[i] + s*c[i]") && list.contains("L2 S1 WA"));
    let code = succeeds(&["kernel", "--listing", "copy", "--width", "128", "--store", "nt"]);
    assert!(code.contains("main loop") && code.contains("movntpd") && code.contains("sfence"), "{code}");
    let code = succeeds(&["kernel", "--listing", "scale", "--width", "128", "--store", "nt", "--element", "float"]);
    assert!(code.contains("cvtsd2ss") && code.contains("mulps") && code.contains("movntps"), "{code}");
    let code = succeeds(&["kernel", "--listing", "a[i]=sqrt(b[i])/t", "--set", "t=2", "--width", "128"]);
    assert!(code.contains("a[i] = sqrt(b[i])/2") && code.contains("sqrtpd") && code.contains("divpd"), "{code}");
}

const SHORT: [&str; 7] = ["--size", "16KiB,256KiB", "--threads", "1", "--budget", "1s", "--quiet"];

#[test]
fn a_loop_of_ones_own_is_measured() {
    let text = succeeds(&[&["kernel", "a[i]=b[i] + s*c[i]"][..], &SHORT].concat());
    let needs = "a[i] = b[i] + s*c[i]: 2 flops, 24 B payload (32 B with write-allocate) an element, 16.0 B/flop on the bus \
                 (0.0625 flop/B);";
    assert!(text.replace('\n', " ").starts_with(needs), "{text}");
    assert!(text.contains("GF/s") && text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let own = ["kernel", "x += b[i]*c[k[i]]; y += 0.1*b[i+1]", "--element", "float", "--format", "json"];
    let rows: serde_json::Value = serde_json::from_str(&succeeds(&[&own[..], &SHORT].concat())).unwrap();
    for row in rows.as_array().unwrap() {
        assert_eq!(row["kernel"], "x += b[i]*c[k[i]]; y += 0.1*b[i+1]");
        assert_eq!(row["outcome"], "measured", "{row}");
        // 4 flops for 12 bytes.
        let [payload, flops] =
            [&row["payload_Bps"]["capability"]["value"], &row["flops_per_s"]].map(|v| v.as_f64().unwrap());
        assert!((flops / payload * 3.0 - 1.0).abs() < 1e-9, "{row}");
    }

    let list = succeeds(&[&["kernel", "a[i] = s*b[i]", "--set", "s=0.5", "--list"][..], &SHORT].concat());
    assert!(list.contains("a[i] = 0.5*b[i]") && list.contains("4 cases"), "{list}");
}

#[test]
fn loops_changed_in_place_are_checked_however_often_they_ran() {
    for text in ["a[i] += b[i]*c[i]", "a[i] = 0.7*a[i] + 0.25*b[i] + 1", "x += a[i]; a[i] = max(a[i], b[i]/c[i])"] {
        let rows = succeeds(&[&["kernel", text, "--format", "json"][..], &SHORT].concat());
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert!(rows.as_array().unwrap().iter().all(|row| row["outcome"] == "measured"), "{rows}");
    }
    let output = run(&[&["kernel", "a[i] = 1e-60*a[i] + 1e-320", "--format", "json"][..], &SHORT].concat());
    assert!(text(&output.stdout).contains("compute with such numbers far slower"), "{}", text(&output.stdout));
}

#[test]
fn a_loop_that_cannot_be_is_shown_with_the_place() {
    refuses(&["kernel"], &["give a loop", "--list"]);
    refuses(&["kernel", "a[i] = sin(b[i])"], &["unknown function 'sin'", "\n  a[i] = sin(b[i])\n         ^"]);
    refuses(&["kernel", "a[i] = a[i-1] + b[i]"], &["depend on each other", "\n         ^"]);
    refuses(&["kernel", "a[i] = b[i]", "--set", "s=2"], &["no scalar 's'"]);
    refuses(&["kernel", "a[i] = s*b[i]", "--set", "s=1", "--set", "s=2"], &["the scalar 's' two values; give it one"]);
    refuses(&["kernel", "a[i] = b[i]", "--index", "random"], &["no index stream"]);
    refuses(&["kernel", "a[i] = b[i]", "--kernel", "triad"], &["--kernel does not apply"]);
    refuses(&["kernel", "a[i] = b[i]*c[i]", "--store", "rep", "--width", "scalar"], &["copy and fill"]);
    refuses(&["kernel", "a[i] = b[i+9] + b[i-9]", "--size", "100"], &["give at least 304 B"]);
}

#[test]
fn the_manual_and_completions_are_printed() {
    assert!(succeeds(&["man"]).contains(".TH membound"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeeds(&["completions", shell]).contains("membound"));
    }
    let schema: serde_json::Value = serde_json::from_str(&succeeds(&["schema"])).unwrap();
    Validator::of(&schema).unwrap();
}

#[test]
fn shells_know_the_words_of_flags() {
    let (script, help) = (succeeds(&["completions", "bash"]), succeeds(&["bandwidth", "--help"]));
    let words = ["regular nt nt-masked rep", "scalar 128 256 512", "double float", "4k thp huge-2m", "table csv json"];
    for words in words.into_iter().chain(["auto always never"]) {
        assert!(script.contains(&format!("compgen -W \"{words}")), "{words}");
        // Spaces end a line of help where they must.
        let listed: Vec<&str> = words.split(' ').collect();
        let text = crate::common::on_one_line(&help);
        assert!(
            text.contains(&listed.join(", ")) || words.contains("table") || words.contains("auto"),
            "{words}: {help}"
        );
    }
    for words in
        ["load store init copy", "sapphire-rapids", "page-ordered", "100:0 75:25", "drop-caches sweep", "funneled"]
    {
        assert!(script.contains(words), "{words}");
    }
    assert!(succeeds(&["bandwidth", "--list", "--store", "regular,nt", "--memory", "4k,thp@node0"]).contains("nt"));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let command = format!("set -o pipefail; {} kernel --list | true", env!("CARGO_BIN_EXE_membound"));
    assert!(Command::new("bash").args(["-c", &command]).status().unwrap().success());
}

/// Rows as they come, to whom the command line after it leads them.
fn streamed(flags: &str, to: &str) -> Output {
    let run =
        "bandwidth --size 16KiB,32KiB --threads 1 --width 128 --kernel load,copy --budget 1s --rounds 2 --format jsonl";
    let command = format!("set -o pipefail; {} {run} {flags} {to}", env!("CARGO_BIN_EXE_membound"));
    Command::new("bash").args(["-c", &command]).output().unwrap()
}

/// Who reads the first row and goes has a whole record, whoever else prints into it.
#[test]
fn a_reader_who_goes_early_cuts_no_record() {
    let folder = tempfile::tempdir().unwrap();
    for (name, to, code) in [("head", "| head -1", 0), ("full", ">/dev/full", 1)] {
        let path = folder.path().join(name);
        let output = streamed(&format!("--record {}", path.display()), to);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{to}: {said}");
        assert!(!said.contains("could not be written to its end"), "{to}: {said}");
        assert_eq!(said.contains("the result can't be printed: "), code == 1, "{to}: {said}");
        let record = membound_core::record::Record::read(&path).unwrap();
        assert!(record.end.is_some_and(|end| end.planned == 4) && record.measurements.len() > 1, "{to}");
    }
}

/// A name that is no text: the record has it as far as it is.
#[cfg(unix)]
#[test]
fn names_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"n\xff.jsonl"));
    let run = ["bandwidth", "--size", "16KiB", "--threads", "1", "--kernel", "load", "--budget", "1s", "--rounds", "1"];
    let output = membound().args(run).arg("--record").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = membound_core::record::Record::read(&path).unwrap();
    assert!(record.header.command.last().is_some_and(|word| word.ends_with("n\u{fffd}.jsonl")));
}

/// Where nothing is kept, nobody waits for a run that nobody reads; and time is not what it lacked.
#[test]
fn a_run_that_nobody_reads_is_left() {
    let output = streamed("", "| head -1");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = streamed("", ">/dev/full");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the result can't be printed: ") && !said.contains("the budget ended"), "{said}");
}

#[test]
fn a_default_run_leaves_summary_record_and_report() {
    let default = |folder: &Path, budget: &str| run(&["--budget", budget, "--out", path(folder), "--quiet", "--all"]);
    let Some((folder, output)) = in_time(["4s", "40s"], default) else { return skip(TOO_BUSY) };
    let summary = text(&output.stdout);
    let noted = text(&output.stderr);
    assert!(output.status.success(), "{noted}");
    assert!(summary.lines().all(|line| line.chars().count() <= 80 || line.contains("membound-")), "{summary}");
    // How far a short run gets on a busy machine is not asserted.
    assert!(summary.contains("One core at") && summary.contains("Levels"), "{summary}");
    let names: Vec<String> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let pages = usize::from(cfg!(feature = "report"));
    assert_eq!(names.len(), 1 + pages, "{names:?}");
    for name in names.iter().filter(|name| name.ends_with(".jsonl")) {
        let schema: serde_json::Value = serde_json::from_str(&succeeds(&["schema", "record"])).unwrap();
        let validator = Validator::of(&schema).unwrap();
        for line in std::fs::read_to_string(folder.path().join(name)).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(validator.is_valid(&line), "{line}");
        }
    }
}

/// A page that can't be written is found before the budget is spent, and told with the flag that was given.
#[cfg(feature = "report")]
#[test]
fn a_default_run_finds_out_at_once_that_its_page_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(&page, "mine\n").unwrap();
    let out = folder.path().join("out");
    let run = ["--budget", "2s", "--out", path(&out), "--html", path(&page)];
    refuses(&run, &["page.html: it exists", "choose another file with --html"]);
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "mine\n");
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0, "nothing was measured");
}

/// One `--format` for all: Markdown is headings, lists and tables, never a text in a fence; and who has no rows says so.
#[test]
fn every_answer_is_markdown_or_says_what_it_can_be() {
    let advise = ["advise", "triad", "--size", "3GiB", "--tier", "0=90GB/s:96GiB,1=400GB/s:16GiB"];
    for (arguments, part) in
        [(&["machine"][..], "## CPU\n"), (&["machine", "--spec", "knc"], "| cores |"), (&advise, "## Streams\n")]
    {
        let text = succeeds(&[arguments, &["--format", "markdown"]].concat());
        assert!(text.starts_with("# ") && text.contains(part) && !text.contains("```"), "{text}");
        refuses(&[arguments, &["--format", "csv"]].concat(), &["--format", "table, json, markdown"]);
    }
    refuses(&["sweep", "--format", "csv"], &["--format", "table, json, markdown"]);
}
