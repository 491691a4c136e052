//! The words of every text that a person reads: help, views, docs. docs/glossary.md holds the list.

use std::path::{Path, PathBuf};

use membound::cli;

/// What is counted somewhere, for plurals.
const NOUNS: [&str; 24] = [
    "case", "row", "record", "node", "thread", "core", "CPU", "sample", "visit", "round", "figure", "warning",
    "kernel", "pair", "page", "run", "byte", "line", "cycle", "level", "side", "file", "rank", "host",
];
/// What stands before `a` where `per` is meant.
const UNITS: [&str; 15] = [
    "bytes", "ns", "us", "ms", "flop", "flops", "cycles", "GB/s", "rows", "lines", "pages", "visits", "samples",
    "joules", "watts",
];

/// A text as its words, whatever its lines.
fn flat(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    crate::common::on_one_line(&text)
}

/// What is not to be written, as the glossary lists it.
fn banned() -> Vec<String> {
    let glossary = include_str!("../../../../docs/glossary.md");
    let (_, list) = glossary.split_once("| not | but |\n|---|---|\n").expect("a list at the end");
    list.lines().filter_map(|line| Some(line.trim_matches('|').split('|').next()?.trim().to_string())).collect()
}

/// What is wrong with a text.
fn faults(text: &str, banned: &[String]) -> Vec<String> {
    let text = flat(text);
    let lower = text.to_lowercase();
    let is_word = |at: usize, len: usize| {
        let apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '-');
        apart(lower[..at].chars().next_back()) && apart(lower[at + len..].chars().next())
    };
    let around =
        |at: usize| text.chars().skip(lower[..at].chars().count().saturating_sub(30)).take(80).collect::<String>();
    let mut found = Vec::new();
    for word in banned {
        let hit = lower.match_indices(&word.to_lowercase()).find(|(at, hit)| is_word(*at, hit.len()));
        found.extend(hit.map(|(at, _)| format!("'{word}' in: {}", around(at))));
    }
    let words: Vec<&str> = text.split(' ').collect();
    for (index, pair) in words.windows(2).enumerate() {
        let [first, second] = pair else { continue };
        let bare = second.trim_end_matches(|c: char| !c.is_alphanumeric());
        let plural = NOUNS.iter().any(|noun| bare.strip_suffix('s') == Some(noun));
        let singular = NOUNS.contains(&bare);
        let number = first.trim_start_matches('(').parse::<u64>();
        let before = index.checked_sub(1).map_or("", |at| words[at]);
        // `CPU 1 cores 2` is a name with its number, `of 2 case` no count of cases.
        if number == Ok(1) && plural && (before.is_empty() || !before.ends_with(|c: char| c.is_alphanumeric())) {
            found.push(format!("'{first} {bare}'"));
        }
        if number.is_ok_and(|count| count > 1) && singular && bare == *second && words.get(index + 2) == Some(&"were") {
            found.push(format!("'{first} {bare} were'"));
        }
        if UNITS.contains(first) && ["a", "an"].contains(second) && !before.starts_with("--") {
            found.push(format!(
                "'{first} {second}' for per: {}",
                words[index.saturating_sub(3)..].iter().take(9).copied().collect::<Vec<_>>().join(" ")
            ));
        }
    }
    found
}

#[test]
fn faults_are_found() {
    let banned = banned();
    assert!(banned.len() >= 15, "{banned:?}");
    for (text, expect) in [
        ("1 cases crashed", 2),
        ("1 case crashed", 0),
        ("11 cases, 21 cases", 0),
        ("24 bytes a\nsecond", 2),
        ("24 bytes per second", 0),
        ("124 ns a page", 1),
        ("the middle one reaches 95%", 1),
        ("in the middle ones", 0),
        ("the background of the ground", 1),
    ] {
        assert_eq!(faults(text, &banned).len(), expect, "{text}: {:?}", faults(text, &banned));
    }
}

/// All help, flags and examples included.
fn helps(command: &mut clap::Command, name: &str, texts: &mut Vec<(String, String)>) {
    texts.push((format!("{name} --help"), command.render_long_help().to_string()));
    texts.push((format!("{name} -h"), command.render_help().to_string()));
    for one in command.get_subcommands_mut() {
        let name = format!("{name} {}", one.get_name());
        helps(one, &name, texts);
    }
}

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(end));
    found.sort();
    found
}

#[test]
fn texts_keep_to_the_glossary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    helps(&mut cli::command(), "membound", &mut texts);
    let views = files(&root.join("crates/membound/tests/it/snapshots"), ".snap");
    let docs = crate::book::pages(&root.join("docs"));
    assert!(texts.len() > 40 && views.len() > 15 && docs.len() >= 5, "{} {} {}", texts.len(), views.len(), docs.len());
    let readme = root.join("README.md");
    for path in views.iter().chain(&docs).chain([&readme]) {
        // The list itself names what it bans.
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.split("## Words to write").next().unwrap().to_string();
        texts.push((path.display().to_string(), text));
    }
    let flags = membound_analyze::flag::Flag::ALL.iter();
    texts.extend(flags.map(|flag| (format!("flag {flag}"), format!("{} {}", flag.means(), flag.cure()))));
    let banned = banned();
    let found: Vec<String> = texts
        .iter()
        .flat_map(|(name, text)| faults(text, &banned).into_iter().map(move |fault| format!("{name}: {fault}")))
        .collect();
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
}
