//! The rules of the house that no compiler checks: who may import whom, where `unsafe` may stand, who prints, and that
//! ARCHITECTURE.md tells of the tree and the dependencies there are. Each rule is a function from text to faults, and
//! each has seen a planted fault.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The stages; each may use those of a smaller rank. Stages of one rank are siblings that do not see each other.
const RANKS: [(&str, u32); 16] = [
    ("units", 0),
    ("machine", 1),
    ("memory", 2),
    ("kernel", 2),
    ("placement", 2),
    ("mpi", 2),
    ("plan", 3),
    ("record", 4),
    ("run", 5),
    ("stats", 5),
    ("model", 6),
    ("view", 7),
    ("fleet", 8),
    ("cli", 9),
    ("lib", 10),
    ("main", 10),
];

/// The same order, as ARCHITECTURE.md states it.
const ORDER: &str = "units < machine < {memory, kernel, placement, mpi} < plan < record < {run, stats} < model < view < fleet < cli < main";

/// The only files of `src` that may hold `unsafe`.
const UNSAFE: [&str; 17] = [
    "src/kernel/code.rs",
    "src/memory/numa.rs",
    "src/memory/os.rs",
    "src/memory/region.rs",
    "src/mpi/calls.rs",
    "src/run/chase.rs",
    "src/run/conflict.rs",
    "src/run/flops.rs",
    "src/run/handover.rs",
    "src/run/loaded.rs",
    "src/run/microvm/guest.rs",
    "src/run/microvm/mod.rs",
    "src/run/microvm/watchdog.rs",
    "src/run/native.rs",
    "src/run/scan.rs",
    "src/run/streams.rs",
    "src/run/sys.rs",
];

/// What ARCHITECTURE.md's tree tells of, file by file.
const TREE: [&str; 5] = ["src", "tests", "benches", "examples", "lab"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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

/// Applies a rule to every Rust file of `src`, and fails with all it finds.
fn check(rule: impl Fn(&str, &str) -> Vec<String>, cure: &str) {
    let sources: Vec<String> = files("src").into_iter().filter(|path| path.ends_with(".rs")).collect();
    assert!(sources.len() > 20, "src was not found");
    let faults: Vec<String> = sources.iter().flat_map(|path| rule(path, &read(path))).collect();
    assert!(faults.is_empty(), "{}\n{cure}\n", faults.join("\n"));
}

/// Rust without its comments and without what stands inside literals; every line stays a line, every byte a byte.
fn bare(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let inside = match rest[0] {
            b'/' if rest.starts_with(b"//") => Some((at, at + find(rest, b"\n", 0))),
            b'/' if rest.starts_with(b"/*") => Some((at, at + find(rest, b"*/", 2) + 2)),
            b'"' => {
                let mut end = 1;
                while end < rest.len() && rest[end] != b'"' {
                    end += if rest[end] == b'\\' { 2 } else { 1 };
                }
                Some((at + 1, at + end))
            }
            b'r' if rest.starts_with(b"r\"") || rest.starts_with(b"r#") => {
                let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
                let end = ["\"", &"#".repeat(hashes)].concat();
                let is_string = rest.get(1 + hashes) == Some(&b'"') && !is_word(at.checked_sub(1).map(|i| bytes[i]));
                is_string.then(|| (at + 2 + hashes, at + find(rest, end.as_bytes(), 2 + hashes)))
            }
            // A character, not a lifetime.
            b'\'' if rest.get(1) == Some(&b'\\') => Some((at + 1, at + find(rest, b"'", 3))),
            b'\'' => {
                let width =
                    std::str::from_utf8(&rest[1..]).ok().and_then(|s| s.chars().next()).map_or(0, char::len_utf8);
                (rest.get(1 + width) == Some(&b'\'')).then_some((at + 1, at + 1 + width))
            }
            _ => None,
        };
        let Some((from, to)) = inside else {
            at += 1;
            continue;
        };
        let to = to.min(bytes.len());
        out[from..to].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = if bytes.get(to).is_some_and(|byte| b"\"'".contains(byte)) { to + 1 } else { to };
    }
    String::from_utf8(out).unwrap()
}

fn find(text: &[u8], what: &[u8], from: usize) -> usize {
    let found = text[from.min(text.len())..].windows(what.len()).position(|window| window == what);
    found.map_or(text.len(), |at| from + at)
}

fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Bare Rust without its tests: `#[cfg(test)]` takes away the module or item that follows. A file that another names as
/// a test module is empty.
fn shipped(path: &str, text: &str) -> String {
    const TEST: &str = "#[cfg(test)]";
    if is_test_module(path) {
        return String::new();
    }
    let mut code = bare(text);
    while let Some(start) = code.find(TEST) {
        let rest = &code[start + TEST.len()..];
        let end = match (rest.find('{'), rest.find(';')) {
            (Some(brace), semicolon) if semicolon.is_none_or(|semicolon| brace < semicolon) => closing(rest, brace),
            (_, semicolon) => semicolon.unwrap_or(rest.len() - 1),
        };
        let range = start..start + TEST.len() + end + 1;
        let blank: String = code[range.clone()].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        code.replace_range(range, &blank);
    }
    code
}

/// Where the brace at `open` is closed.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        depth += match byte {
            b'{' => 1,
            b'}' => -1,
            _ => 0,
        };
        if depth == 0 {
            return at;
        }
    }
    code.len() - 1
}

fn is_test_module(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = fs::read_to_string(root().join(folder).join("mod.rs")).unwrap_or_default();
    parent.contains(&format!("#[cfg(test)]\nmod {};", name.trim_end_matches(".rs")))
}

/// Places of `what` in bare code, as whole words: (line from 1, code from there on).
fn places<'a>(code: &'a str, what: &str) -> Vec<(usize, &'a str)> {
    let starts = code.match_indices(what).map(|(at, _)| at);
    let whole = starts.filter(|&at| {
        let before = at.checked_sub(1).map(|i| code.as_bytes()[i]);
        let starts_word = is_word(what.bytes().next());
        let ends_word = is_word(what.bytes().last());
        let after = code.as_bytes().get(at + what.len()).copied();
        !(starts_word && is_word(before) || ends_word && is_word(after))
    });
    whole.map(|at| (code[..at].matches('\n').count() + 1, &code[at..])).collect()
}

fn stage(path: &str) -> &str {
    let inside = path.trim_start_matches("src/");
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

fn rank(stage: &str) -> Option<u32> {
    RANKS.iter().find(|(name, _)| *name == stage).map(|(_, rank)| *rank)
}

/// The stages that a `crate::` path or brace list names.
fn named(code: &str) -> Vec<String> {
    let word =
        |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let after = code.trim_start_matches("crate::").trim_start_matches("membound::");
    if !after.starts_with('{') {
        return vec![word(after)];
    }
    let (mut depth, mut names) = (0, Vec::new());
    for (at, c) in after[..closing(after, 0)].char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 1 && (c == '{' || c == ',') {
            names.push(word(&after[at + 1..]));
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Imports go left only, in tests too.
fn imports(path: &str, text: &str) -> Vec<String> {
    let own = stage(path);
    let Some(own_rank) = rank(own) else { return vec![format!("{path}: the stage `{own}` has no place in the order")] };
    let code = bare(text);
    let mut faults = Vec::new();
    for (line, at) in places(&code, "crate::").into_iter().chain(places(&code, "membound::")) {
        for name in named(at) {
            match rank(&name) {
                _ if name == own => {}
                Some(rank) if rank < own_rank => {}
                Some(_) => faults.push(format!("{path}:{line}: `{own}` uses `{name}`")),
                None => faults.push(format!("{path}:{line}: `{own}` uses `crate::{name}`, which is no stage")),
            }
        }
    }
    // A module that climbs out of its stage.
    let climb = "super::".repeat(if path.ends_with("/mod.rs") || path.matches('/').count() == 1 { 1 } else { 2 });
    let climbs = places(&shipped(path, text), &climb).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    faults.extend(climbs.into_iter().map(|line| format!("{path}:{line}: `{climb}` leaves the stage `{own}`")));
    faults
}

#[test]
fn imports_go_left_only() {
    check(imports, &format!("The order is: {ORDER}\nMove the code to the stage it belongs to, or hand the value in."));
    let planted = "use crate::units::Bytes; // crate::view\nuse crate::{view::json, plan, stats};\n";
    let faults = ["src/run/mod.rs:2: `run` uses `view`", "src/run/mod.rs:2: `run` uses `stats`"];
    assert_eq!(imports("src/run/mod.rs", planted), faults);
    assert_eq!(imports("src/run/a.rs", "use super::b;\nuse super::super::c;").len(), 1);
    assert_eq!(imports("src/novel.rs", "").len(), 1);
}

#[test]
fn the_library_names_its_stages_in_order() {
    let library = bare(&read("src/lib.rs"));
    let modules: Vec<&str> =
        places(&library, "mod").iter().map(|(_, at)| at[4..].split(';').next().unwrap_or_default()).collect();
    let ranks: Vec<Option<u32>> = modules.iter().map(|name| rank(name)).collect();
    assert!(modules.len() >= 11 && ranks.iter().all(Option::is_some) && ranks.is_sorted(), "{modules:?}: not {ORDER}");
    assert!(read("ARCHITECTURE.md").contains(ORDER), "ARCHITECTURE.md must state the order: {ORDER}");
}

fn unsafety(path: &str, text: &str) -> Vec<String> {
    let code = bare(text);
    let found = places(&code, "unsafe").into_iter().chain(places(&code, "unsafe_code")).map(|(line, _)| line);
    let is_named = UNSAFE.contains(&path);
    // The library and the binary deny it; a leaf allows it again.
    found.filter(|_| !is_named).map(|line| format!("{path}:{line}: `unsafe`")).collect()
}

#[test]
fn unsafe_stands_in_the_named_files_only() {
    check(unsafety, &format!("Only these may: {UNSAFE:?}. Use what they offer, or add the file there and say why."));
    let architecture = read("ARCHITECTURE.md");
    for path in UNSAFE {
        assert!(!places(&bare(&read(path)), "unsafe").is_empty(), "{path} needs no `unsafe` any more: strike it here");
        assert!(
            architecture.contains(&format!("- `{path}`:")),
            "ARCHITECTURE.md must say why {path} may hold `unsafe`"
        );
    }
    assert_eq!(unsafety("src/units.rs", "// unsafe\nlet x = unsafe { \"unsafe\" };").len(), 1);
}

fn prints(path: &str, text: &str) -> Vec<String> {
    if ["cli", "main"].contains(&stage(path)) {
        return Vec::new();
    }
    let code = shipped(path, text);
    let words = ["println!", "eprintln!", "print!", "eprint!", "dbg!", "stdout()", "stderr()"];
    let found = |word: &&str| places(&code, word).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    words.iter().flat_map(|word| found(word).into_iter().map(move |line| format!("{path}:{line}: {word}"))).collect()
}

#[test]
fn only_the_command_line_prints() {
    check(prints, "Views return text, everything else returns values; `cli` and `main` print.");
    let planted = "fn f() { println!(\"x\") }\n#[cfg(test)]\nmod tests { fn g() { dbg!(1); } }";
    assert_eq!(prints("src/view/json.rs", planted), ["src/view/json.rs:1: println!"]);
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
    assert_eq!(panics("src/units.rs", planted).len(), 2);
    assert_eq!(
        panics("src/units.rs", "#[cfg(test)]\nmod tests { fn f() { x.unwrap(); } }\nfn g() { todo!() }").len(),
        1
    );
}

/// The paths of a drawn tree: two blanks for each level, folders end in `/`, what follows the path is about it.
fn drawn(tree: &str) -> Vec<String> {
    let mut folders: Vec<String> = Vec::new();
    let mut paths = Vec::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let name = line.split_whitespace().next().unwrap_or_default();
        folders.truncate(depth);
        let path = folders.concat() + name;
        if name.ends_with('/') {
            folders.push(name.into());
        }
        paths.push(path);
    }
    paths
}

/// What the drawn tree and the files on disk say of each other. A folder that is drawn without its files stands for them.
fn tree_faults(drawn: &[String], disk: &[String]) -> Vec<String> {
    let whole = |folder: &&String| {
        folder.ends_with('/') && !drawn.iter().any(|other| other != *folder && other.starts_with(folder.as_str()))
    };
    let whole: Vec<&String> = drawn.iter().filter(whole).collect();
    let told = |path: &&String| drawn.contains(path) || whole.iter().any(|folder| path.starts_with(folder.as_str()));
    let is_there = |path: &&String| {
        disk.iter().any(|file| file == *path || (path.ends_with('/') && file.starts_with(path.as_str())))
    };
    let missing = disk.iter().filter(|path| !told(path)).map(|path| format!("{path}: not in the tree"));
    let gone = drawn.iter().filter(|path| !is_there(path)).map(|path| format!("{path}: in the tree, not on disk"));
    let again = |(at, path): (usize, &String)| drawn[..at].contains(path).then(|| format!("{path}: twice in the tree"));
    missing.chain(gone).chain(drawn.iter().enumerate().filter_map(again)).collect()
}

/// The fenced block of a document that follows `heading`.
fn block<'a>(document: &'a str, heading: &str) -> &'a str {
    let after = document.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("no heading `{heading}`"));
    after.split("```").nth(1).unwrap_or_default().split_once('\n').map_or("", |(_, tree)| tree)
}

#[test]
fn the_tree_in_architecture_is_the_tree_on_disk() {
    let disk: Vec<String> = TREE.iter().flat_map(|folder| files(folder)).collect();
    let told = drawn(block(&read("ARCHITECTURE.md"), "## The tree"));
    let told: Vec<String> = told.into_iter().filter(|path| TREE.iter().any(|top| path.starts_with(top))).collect();
    let faults = tree_faults(&told, &disk);
    assert!(faults.is_empty(), "{}\nCorrect the tree in ARCHITECTURE.md: a line each.", faults.join("\n"));

    let own = |paths: &[&str]| paths.iter().map(|path| path.to_string()).collect::<Vec<_>>();
    let planted = drawn("src/     all\n  a.rs   one\n  gone.rs  two\n  deep/  many\n");
    assert_eq!(planted, ["src/", "src/a.rs", "src/gone.rs", "src/deep/"]);
    assert_eq!(tree_faults(&planted, &own(&["src/a.rs", "src/new.rs", "src/deep/x", "src/deep/y"])).len(), 2);
    assert_eq!(tree_faults(&own(&["src/a.rs", "src/a.rs"]), &own(&["src/a.rs"])).len(), 1);
}

/// Names under the `dependencies` headings of Cargo.toml.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        match line.split_once('=') {
            _ if line.starts_with('[') => inside = line.ends_with("dependencies]"),
            Some((name, _)) if inside && !line.starts_with('#') => {
                names.insert(name.trim().trim_matches('"').to_string());
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

#[test]
fn every_dependency_is_explained() {
    let (used, told) = (dependencies(&read("Cargo.toml")), explained(&read("ARCHITECTURE.md")));
    assert!(used.len() > 10, "{used:?}");
    let (silent, stale): (Vec<_>, Vec<_>) = (used.difference(&told).collect(), told.difference(&used).collect());
    assert!(
        silent.is_empty() && stale.is_empty(),
        "ARCHITECTURE.md, Dependencies: no reason for {silent:?}; no such dependency {stale:?}"
    );
    let manifest = "[package]\nname = \"x\"\n[target.'cfg(unix)'.dependencies]\n# why\na = \"1\"\n[dev-dependencies]\nb = { version = \"2\" }\n";
    assert_eq!(dependencies(manifest), ["a", "b"].map(String::from).into());
    assert_eq!(
        explained("\n## Dependencies\n- `a`, `b`: why `c`\n\n## Next\n- `d`: no\n"),
        ["a", "b"].map(String::from).into()
    );
}

#[test]
fn every_dependency_is_used() {
    let folders = ["src", "tests", "benches"].into_iter().flat_map(files).filter(|path| path.ends_with(".rs"));
    let code: String = folders.chain(["build.rs".into()]).map(|path| read(&path)).collect();
    let is_used = |name: &&String| !places(&code, &name.replace('-', "_")).is_empty();
    let idle: Vec<String> = dependencies(&read("Cargo.toml")).into_iter().filter(|name| !is_used(&name)).collect();
    assert!(idle.is_empty(), "nothing uses {idle:?}: strike them from Cargo.toml and ARCHITECTURE.md");
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
        let hit = words.iter().map(|(a, b)| [*a, *b].concat()).find(|word| content.contains(word));
        hit.map(|word| format!("{path}:{}: {word}", line + 1))
    };
    text.lines().enumerate().filter_map(found).collect()
}

#[test]
fn files_speak_of_the_project_alone() {
    let folders = ["src", "tests", "benches", "examples", "lab", "docs", ".ci"].into_iter().flat_map(files);
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
}

#[test]
fn bare_code_has_no_comments_and_no_text() {
    let check = |text: &str, expect: &str| assert_eq!(bare(text), expect);
    check("a // b\nc", "a     \nc");
    check("/* a */ b", "        b");
    check(r#"f("a\"b", 'c', '\'', b"d")"#, r#"f("    ", ' ', '  ', b" ")"#);
    check("r#\"a\"b\"# + 'x: &'a str", "r#\"   \"# + 'x: &'a str");
    check("'\"' + \"//\"", "' ' + \"  \"");
    assert_eq!(
        shipped("src/none/a.rs", "a\n#[cfg(test)]\nmod t { {} }\nb\n#[cfg(test)]\nmod u;\nc")
            .split_whitespace()
            .collect::<String>(),
        "abc"
    );
}
