//! The rules of the house that no compiler checks: no circle between files, the walls inside crates, where `unsafe` may
//! stand, who prints, what shipped code may not do, and that ARCHITECTURE.md tells of each dependency. Each rule is a
//! function from text to faults, and each has seen a planted fault.

mod imports;
mod rust;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use imports::{Files, Uses, circles, module};
use rust::{bare, places, shipped};

/// The crates.
const CRATES: [&str; 5] = ["math", "core", "measure", "analyze", "membound"];

/// Walls inside a crate: what stands in a row may use the rows above it and its own, nothing below. `experiments::*` is any
/// experiment. A file that no row names has no wall but the rule on circles.
const WALLS: [(&str, &[&[&str]]); 5] = [
    ("math", &[&["in_order", "parallel", "units"], &["stats"], &["curves"]]),
    ("core", &[&["machine"], &["memory", "kernel", "placement"], &["work"], &["case"], &["experiments", "record"]]),
    (
        "measure",
        &[&["asm", "code", "os", "memory"], &["bench", "team", "solo", "chaser"], &["experiments"], &["executor"]],
    ),
    (
        "analyze",
        &[
            &[
                "rate",
                "break_even",
                "row",
                "missing",
                "quality",
                "flag",
                "section",
                "chart",
                "wording",
                "answer",
                "visits",
                "warning",
                "hierarchy",
            ],
            &["experiments::*"],
            &["across", "report", "of_record", "experiments"],
            &["output"],
        ],
    ),
    ("membound", &[&["fleet", "watch"], &["cli"]]),
];

/// Files among the experiments of `core` that are none: what all of them ask of a machine, and plans that put experiments
/// together.
const NO_EXPERIMENT: [&str; 5] =
    ["experiments", "experiments::choice", "experiments::frame", "experiments::characterise", "experiments::check"];

/// The only files, and folders whole, that may hold `unsafe`. ARCHITECTURE.md says why for each.
const UNSAFE: [&str; 25] = [
    "crates/measure/src/behaviour.rs",
    "crates/measure/src/bench.rs",
    "crates/measure/src/chaser.rs",
    "crates/measure/src/code.rs",
    "crates/measure/src/driver/functions.rs",
    "crates/measure/src/driver/view.rs",
    "crates/measure/src/executor/microvm/guest.rs",
    "crates/measure/src/executor/microvm/mod.rs",
    "crates/measure/src/executor/microvm/watchdog.rs",
    "crates/measure/src/executor/native.rs",
    "crates/measure/src/experiments/addrmap.rs",
    "crates/measure/src/experiments/c2c.rs",
    "crates/measure/src/experiments/flops.rs",
    "crates/measure/src/experiments/loaded.rs",
    "crates/measure/src/experiments/offsets.rs",
    "crates/measure/src/experiments/streams.rs",
    "crates/measure/src/memory/region.rs",
    "crates/measure/src/memory/touch.rs",
    "crates/measure/src/mpi/calls.rs",
    "crates/measure/src/cuda/calls.rs",
    "crates/measure/src/cuda/kernels.rs",
    "crates/measure/src/opencl/calls.rs",
    "crates/measure/src/opencl/kernels.rs",
    "crates/measure/src/vulkan/calls.rs",
    "crates/measure/src/os/",
];

/// What core and analyze may not name: they compile for any target.
const FOREIGN_TO_PURE: [&str; 5] = ["libc", "unsafe", "target_arch", "target_os", "std::os"];

/// The workspace's root.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|fault| panic!("{path}: {fault}"))
}

/// Files below `folder`, as paths from the root.
fn files(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root().join(folder)) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// The Rust files that ship, of all crates.
fn sources() -> Vec<String> {
    let of_crate = |name: &str| files(&format!("crates/{name}/src"));
    let sources: Vec<String> = CRATES.iter().flat_map(|name| of_crate(name)).filter(|p| p.ends_with(".rs")).collect();
    assert!(sources.len() > 100, "the crates were not found");
    sources
}

/// Applies a rule to every file that ships, and fails with all it finds.
fn check(rule: impl Fn(&str, &str) -> Vec<String>, cure: &str) {
    let faults: Vec<String> = sources().iter().flat_map(|path| rule(path, &read(path))).collect();
    assert!(faults.is_empty(), "{}\n{cure}\n", faults.join("\n"));
}

/// Files of tests that nothing makes a module: they are never compiled.
fn orphans(files: &[(String, String)]) -> Vec<&str> {
    let is_named = |path: &str| {
        let folder = path.strip_suffix("/mod.rs").unwrap_or(path.strip_suffix(".rs").unwrap());
        let (above, name) = folder.rsplit_once('/').unwrap();
        let parents = [format!("{above}/main.rs"), format!("{above}/mod.rs"), format!("{above}.rs")];
        // Another crate may include it by its path.
        let included = format!("/{}/{name}.rs\"]", above.rsplit('/').next().unwrap());
        files.iter().any(|(other, text)| {
            parents.contains(other) && !places(&bare(text), &format!("mod {name};")).is_empty()
                || text.contains(&included)
        })
    };
    files
        .iter()
        .map(|(path, _)| path.as_str())
        .filter(|path| !path.ends_with("/it/main.rs") && !is_named(path))
        .collect()
}

#[test]
fn every_file_of_tests_is_a_module() {
    let of_crate = |krate: &&str| files(&format!("crates/{krate}/tests/it"));
    let paths = CRATES.iter().flat_map(of_crate).filter(|path| path.ends_with(".rs"));
    let all: Vec<(String, String)> = paths.map(|path| (path.clone(), read(&path))).collect();
    assert!(all.len() > 100, "{}", all.len());
    assert_eq!(orphans(&all), [] as [&str; 0], "name them in main.rs, or strike them");
    let planted = [("t/it/main.rs", "mod a;\n// mod b;"), ("t/it/a.rs", ""), ("t/it/b.rs", ""), ("t/it/c/mod.rs", "")];
    let planted = planted.map(|(path, text)| (path.to_string(), text.to_string()));
    assert_eq!(orphans(&planted), ["t/it/b.rs", "t/it/c/mod.rs"]);
}

/// A crate's name and the path below its `src`.
fn parts(path: &str) -> (&str, &str) {
    path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")).unwrap_or(("", path))
}

/// Which file of a crate uses which.
fn uses(krate: &str) -> Uses {
    let mut found = Files::default();
    for path in sources().iter().filter(|path| parts(path).0 == krate) {
        found.add(parts(path).1, shipped(path, &read(path)));
    }
    found.uses()
}

#[test]
fn files_form_no_circle() {
    let of_crate =
        |krate: &&str| circles(&uses(krate)).into_iter().map(|c| format!("{krate}: {}", c.join(", "))).collect();
    let faults: Vec<String> = CRATES.iter().flat_map::<Vec<String>, _>(of_crate).collect();
    assert!(faults.is_empty(), "{faults:#?}\nMove what both sides need into a file of its own, below them.");
}

/// The walls of a crate.
fn walls(krate: &str) -> &'static [&'static [&'static str]] {
    WALLS.iter().find(|(name, _)| *name == krate).unwrap().1
}

/// The row of a crate's walls in which a module stands.
fn row(rows: &[&[&str]], module: &str) -> Option<usize> {
    let is_within = |name: &str| module == name || module.strip_prefix(name).is_some_and(|rest| rest.starts_with("::"));
    let stands = |name: &&str| match name.strip_suffix("::*") {
        Some(folder) => module != folder && is_within(folder),
        None => is_within(name),
    };
    rows.iter().position(|row| row.iter().any(stands))
}

/// The experiment that a module belongs to.
fn experiment(module: &str) -> Option<&str> {
    let is_none = NO_EXPERIMENT.contains(&module);
    if is_none { None } else { module.strip_prefix("experiments::")?.split("::").next() }
}

/// Uses that go through a wall.
fn breaches(rows: &[&[&str]], uses: &Uses) -> Vec<String> {
    let pairs = uses.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let is_breach = |(from, to): &(&String, &String)| {
        let is_below = matches!((row(rows, from), row(rows, to)), (Some(from), Some(to)) if from < to);
        let is_sibling = matches!((experiment(from), experiment(to)), (Some(from), Some(to)) if from != to);
        is_below || is_sibling
    };
    pairs.filter(is_breach).map(|(from, to)| format!("{from} uses {to}")).collect()
}

#[test]
fn walls_inside_crates_hold() {
    let mut faults = Vec::new();
    for (krate, rows) in WALLS {
        faults.extend(breaches(rows, &uses(krate)).into_iter().map(|fault| format!("{krate}: {fault}")));
    }
    assert!(faults.is_empty(), "{faults:#?}\nMove what is shared below, or hand the value in.");

    let planted = |from: &str, to: &str| Uses::from([(from.into(), [to.to_string()].into())]);
    let analyze = walls("analyze");
    assert_eq!(breaches(analyze, &planted("rate", "output::csv")), ["rate uses output::csv"]);
    assert_eq!(breaches(analyze, &planted("experiments::c2c", "experiments::numa")).len(), 1);
    assert_eq!(breaches(analyze, &planted("experiments::c2c", "across::limits")).len(), 1);
    assert!(breaches(analyze, &planted("experiments", "experiments::c2c")).is_empty());
    assert!(breaches(analyze, &planted("output::html", "report")).is_empty());
}

#[test]
fn every_module_of_analyze_has_its_place() {
    let rows = walls("analyze");
    let lost: Vec<String> =
        uses("analyze").into_keys().filter(|module| !module.is_empty() && row(rows, module).is_none()).collect();
    assert!(lost.is_empty(), "{lost:?}: name them in WALLS");
    assert_eq!(row(rows, &module("experiments/c2c/rows.rs")), Some(1));
}

fn impure(path: &str, text: &str) -> Vec<String> {
    if !["math", "core", "analyze"].contains(&parts(path).0) {
        return Vec::new();
    }
    let code = bare(text);
    let found = |word: &&str| places(&code, word).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    let told = |word: &'static str| move |line| format!("{path}:{line}: {word}");
    FOREIGN_TO_PURE.iter().flat_map(|word| found(word).into_iter().map(told(word))).collect()
}

#[test]
fn core_and_analyze_know_no_system() {
    check(impure, "Systems and instruction sets belong into crates/measure.");
    assert_eq!(impure("crates/core/src/a.rs", "use std::os::fd; // libc\n#[cfg(target_arch = \"x\")]").len(), 2);
    assert!(impure("crates/measure/src/a.rs", "use libc;").is_empty());
}

fn unsafety(path: &str, text: &str) -> Vec<String> {
    let code = bare(text);
    let found = places(&code, "unsafe").into_iter().chain(places(&code, "unsafe_code")).map(|(line, _)| line);
    let is_named = UNSAFE.iter().any(|named| path == *named || named.ends_with('/') && path.starts_with(named));
    // The library and the binary deny it; a leaf allows it again.
    found.filter(|_| !is_named).map(|line| format!("{path}:{line}: `unsafe`")).collect()
}

#[test]
fn unsafe_stands_in_the_named_files_only() {
    check(unsafety, &format!("Only these may: {UNSAFE:?}. Use what they offer, or add the file there and say why."));
    let architecture = read("ARCHITECTURE.md");
    for path in UNSAFE {
        let holds = |file: &String| file.starts_with(path) && !places(&bare(&read(file)), "unsafe").is_empty();
        assert!(sources().iter().any(holds), "{path} needs no `unsafe` any more: strike it here");
        assert!(
            architecture.contains(&format!("- `{path}`:")),
            "ARCHITECTURE.md must say why {path} may hold `unsafe`"
        );
    }
    assert_eq!(unsafety("crates/math/src/units.rs", "// unsafe\nlet x = unsafe { \"unsafe\" };").len(), 1);
}

fn prints(path: &str, text: &str) -> Vec<String> {
    let words = ["println!", "eprintln!", "print!", "eprint!", "dbg!", "stdout()", "stderr()"];
    if path == "crates/membound/src/cli/say.rs" { Vec::new() } else { says(path, text, &words) }
}

fn says(path: &str, text: &str, words: &[&str]) -> Vec<String> {
    let code = shipped(path, text);
    let found = |word: &&str| places(&code, word).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    words.iter().flat_map(|word| found(word).into_iter().map(move |line| format!("{path}:{line}: {word}"))).collect()
}

/// Writing goes through `outfile`, reading what others wrote through `input`. Devices and `/proc` are no such files.
fn goes_round(path: &str, text: &str) -> Vec<String> {
    const OF_THE_SYSTEM: [&str; 3] =
        ["crates/measure/src/os/", "crates/measure/src/memory/device.rs", "crates/measure/src/memory/filler.rs"];
    if OF_THE_SYSTEM.iter().any(|file| path.starts_with(file)) || path == "crates/core/src/input.rs" {
        return Vec::new();
    }
    let writes = ["fs::write(", "fs::rename(", "File::create(", "File::options(", "OpenOptions"];
    let reads = ["File::open(", "fs::read(", "read_to_string("];
    let is_pure =
        ["crates/core/", "crates/analyze/src/", "crates/membound/src/cli/"].iter().any(|part| path.starts_with(part));
    [says(path, text, &writes), if is_pure { says(path, text, &reads) } else { Vec::new() }].concat()
}

#[test]
fn files_are_read_and_written_in_one_place_each() {
    check(goes_round, "What may be replaced says `os::outfile`, what may be read `core::input`.");
    assert_eq!(goes_round("crates/membound/src/fleet/x.rs", "fn f() { std::fs::write(a, b); }").len(), 1);
    assert_eq!(goes_round("crates/analyze/src/x.rs", "fn f() { std::fs::read_to_string(a); }").len(), 1);
}

#[test]
fn only_one_file_prints() {
    check(prints, "Outputs return text, everything else returns values; what leaves goes through `cli/say.rs`.");
    let planted = "fn f() { println!(\"x\") }\n#[cfg(test)]\nmod tests { fn g() { dbg!(1); } }";
    assert_eq!(prints("crates/analyze/src/output/json.rs", planted), ["crates/analyze/src/output/json.rs:1: println!"]);
}

fn panics(path: &str, text: &str) -> Vec<String> {
    const REASON: usize = 12;
    let code = shipped(path, text);
    let words = [".unwrap()", "panic!", "todo!", "unimplemented!", "unreachable!"];
    let mut faults = Vec::new();
    for word in words {
        faults.extend(places(&code, word).into_iter().map(|(line, _)| format!("{path}:{line}: {word}")));
    }
    for (line, at) in places(&code, ".expect(\"") {
        let reason = at[".expect(\"".len()..].find('"').unwrap_or(0);
        if reason < REASON {
            faults.push(format!("{path}:{line}: `expect` without a reason why it holds"));
        }
    }
    faults
}

#[test]
fn shipped_code_does_not_panic_lightly() {
    check(panics, "Return an error with its values and its cure, or `expect(\"the fact that makes it hold\")`.");
    let planted = "fn f() {\n  x.unwrap();\n  y.expect(\"set\");\n  z.expect(\"a test parses every row\");\n  s.expect(cases);\n}\n";
    assert_eq!(panics("crates/math/src/units.rs", planted).len(), 2);
    assert_eq!(
        panics("crates/math/src/units.rs", "#[cfg(test)]\nmod tests { fn f() { x.unwrap(); } }\nfn g() { todo!() }")
            .len(),
        1
    );
}

/// Names under the `dependencies` headings of Cargo.toml.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        match line.split_once('=') {
            _ if line.starts_with('[') => inside = line.ends_with("dependencies]"),
            Some((name, _)) if inside && !line.starts_with('#') => {
                names.insert(name.trim().trim_end_matches(".workspace").trim_matches('"').to_string());
            }
            _ => {}
        }
    }
    names
}

/// Names at the head of the list lines under `## Dependencies`: "- `name`, `other`: why".
fn explained(document: &str) -> BTreeSet<String> {
    let section =
        document.split("\n## Dependencies\n").nth(1).unwrap_or_default().split("\n## ").next().unwrap_or_default();
    let heads = section.lines().filter_map(|line| line.strip_prefix("- ")?.split_once(':'));
    heads.flat_map(|(names, _)| names.split('`').skip(1).step_by(2)).map(str::to_string).collect()
}

/// A crate's dependencies, but for our own crates.
fn foreign_crates(krate: &str) -> BTreeSet<String> {
    let mut names = dependencies(&read(&format!("crates/{krate}/Cargo.toml")));
    names.retain(|name| !name.starts_with("membound"));
    names
}

#[test]
fn every_dependency_is_explained() {
    let used: BTreeSet<String> = CRATES.iter().flat_map(|krate| foreign_crates(krate)).collect();
    let told = explained(&read("ARCHITECTURE.md"));
    assert!(used.len() > 10, "{used:?}");
    let (silent, stale): (Vec<_>, Vec<_>) = (used.difference(&told).collect(), told.difference(&used).collect());
    assert!(
        silent.is_empty() && stale.is_empty(),
        "ARCHITECTURE.md, Dependencies: no reason for {silent:?}; no such dependency {stale:?}"
    );
    let manifest = "[package]\nname = \"x\"\n[target.'cfg(unix)'.dependencies]\n# why\na.workspace = true\n[dev-dependencies]\nb = { version = \"2\" }\n";
    assert_eq!(dependencies(manifest), ["a", "b"].map(String::from).into());
    assert_eq!(
        explained("\n## Dependencies\n- `a`, `b`: why `c`\n\n## Next\n- `d`: no\n"),
        ["a", "b"].map(String::from).into()
    );
}

#[test]
fn every_dependency_is_used() {
    for krate in CRATES {
        let folders = ["src", "tests", "benches"].map(|folder| format!("crates/{krate}/{folder}"));
        let paths = folders.iter().flat_map(|folder| files(folder)).filter(|path| path.ends_with(".rs"));
        let mut code: String = paths.map(|path| read(&path)).collect();
        code += &fs::read_to_string(root().join(format!("crates/{krate}/build.rs"))).unwrap_or_default();
        // Helpers that a crate's tests take from another's.
        code += &files("crates/core/tests/it/common").iter().map(|path| read(path)).collect::<String>();
        let is_used = |name: &&String| !places(&code, &name.replace('-', "_")).is_empty();
        let idle: Vec<String> = foreign_crates(krate).into_iter().filter(|name| !is_used(&name)).collect();
        assert!(idle.is_empty(), "nothing in {krate} uses {idle:?}: strike them from its Cargo.toml");
    }
    let listed = read("Cargo.toml");
    let listed = dependencies(&listed);
    let taken: BTreeSet<String> =
        CRATES.iter().flat_map(|krate| dependencies(&read(&format!("crates/{krate}/Cargo.toml")))).collect();
    let idle: Vec<&String> = listed.difference(&taken).collect();
    assert!(idle.is_empty(), "no crate takes {idle:?}: strike them from Cargo.toml");
}

/// Words that tell of one developer's machine or of work not done.
fn foreign(path: &str, text: &str) -> Vec<String> {
    // In two halves, so that this file passes its own test.
    let words = [
        ("/wo", "rk/"),
        ("/ho", "me/"),
        ("/ro", "ot/"),
        ("/Us", "ers/"),
        ("crates", ".io"),
        ("FIX", "ME"),
        ("XX", "X"),
    ];
    let found = |(line, content): (usize, &str)| {
        let begins = |at: usize| at == 0 || !content.as_bytes()[at - 1].is_ascii_alphanumeric();
        let is_in = |word: &String| content.match_indices(word.as_str()).any(|(at, _)| begins(at));
        let hit = words.iter().map(|(a, b)| [*a, *b].concat()).find(is_in);
        hit.map(|word| format!("{path}:{}: {word}", line + 1))
    };
    text.lines().enumerate().filter_map(found).collect()
}

#[test]
fn files_speak_of_the_project_alone() {
    let folders = ["crates", "contrib", "lab", "docs", ".ci"].into_iter().flat_map(files);
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().to_str().unwrap().to_string());
    let top = top.filter(|name| [".md", ".rs", ".toml"].iter().any(|end| name.ends_with(end)));
    let texts = folders.chain(top).filter_map(|path| Some((fs::read_to_string(root().join(&path)).ok()?, path)));
    let faults: Vec<String> = texts.flat_map(|(text, path)| foreign(&path, &text)).collect();
    assert!(
        faults.is_empty(),
        "{}\nWrite paths relative to the project, and finish or strike the rest.",
        faults.join("\n")
    );
    let planted = ["see /ho", "me/me/x\nfine\n"].concat();
    assert_eq!(foreign("a.md", &planted).len(), 1);
    assert!(foreign("a.md", &["src/wo", "rk/x.rs"].concat()).is_empty(), "a folder of ours");
}
