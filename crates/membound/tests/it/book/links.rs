//! Links between pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{files, pages, root};

/// Where a link leads, inside the project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The file.
    pub path: PathBuf,
    /// The heading, as its anchor; empty for the page's begin.
    pub anchor: String,
}

/// A text without its fences and without what stands in backquotes.
fn prose(text: &str) -> String {
    let fenced: String = text.split("```").step_by(2).collect();
    fenced.split('`').step_by(2).collect()
}

/// The links of a page that lead to files.
pub fn of(page: &Path) -> Vec<Link> {
    let text = prose(&std::fs::read_to_string(page).unwrap());
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.trim());
    targets.filter(|target| !target.contains("://")).map(|target| link(page, target)).collect()
}

fn link(page: &Path, target: &str) -> Link {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { page.to_path_buf() } else { flat(&page.parent().unwrap().join(path)) };
    Link { path, anchor: anchor.into() }
}

/// A path without `..`, whether the file is there or not.
fn flat(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(found.pop()),
            std::path::Component::CurDir => {}
            other => found.push(other),
        }
    }
    found
}

/// The anchors of a page's headings, as the book and code hosts make them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let outside: String = text.split("```").step_by(2).collect();
    let headings = outside.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(anchor).collect()
}

/// A heading as an anchor.
pub fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_somewhere() {
    let root = root();
    let front = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "lab/README.md"];
    let docs = root.join("docs");
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages(&docs).into_iter().chain(front.map(|name| root.join(name))) {
        for link in of(&page) {
            count += 1;
            let leaves = page.starts_with(&docs) && !link.path.starts_with(&docs);
            let is_page = link.path.extension().is_some_and(|end| end == "md");
            let fault = match () {
                () if !link.path.exists() => "is not there",
                // What is outside of it is not in the book that mdbook builds.
                () if leaves => "leaves the book",
                () if is_page && !link.anchor.is_empty() && !anchors(&link.path).contains(&link.anchor) => "no heading",
                () => continue,
            };
            wrong.push(format!("{}: {}#{}: {fault}", page.display(), link.path.display(), link.anchor));
        }
    }
    assert!(count > 200, "{count} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn headings_become_anchors() {
    assert_eq!(anchor("What to do with a finding"), "what-to-do-with-a-finding");
    assert_eq!(anchor("rep movsb, rep stosb?"), "rep-movsb-rep-stosb");
    assert_eq!(prose("a `b[i](c)` [d](e)\n```\n[f](g)\n```\n[h](i)"), "a  [d](e)\n\n[h](i)");
}

/// What a newcomer wants to do, and the page that says how.
const TASKS: [(&str, &str); 10] = [
    ("run it on this laptop", "docs/start/laptop.md"),
    ("run it in a rented guest", "docs/start/cloud.md"),
    ("run it on a cluster", "docs/start/cluster.md"),
    ("find out why a triad reaches half of STREAM", "docs/recipes/half-of-stream.md"),
    ("find the slow node", "docs/recipes/slow-node.md"),
    ("choose a kind of buffer", "docs/recipes/buffer-kind.md"),
    ("compare before and after a kernel update", "docs/recipes/kernel-update.md"),
    ("read what a figure's flags mean", "docs/reading.md"),
    ("look a field of a row up", "docs/reference/rows.md"),
    ("hold old figures of another tool against ours", "docs/recipes/other-tools.md"),
];

#[test]
fn ten_tasks_are_two_clicks_away() {
    let root = root();
    let readme = root.join("README.md");
    let text = std::fs::read_to_string(&readme).unwrap();
    assert!(text.lines().count() <= 150, "{} lines", text.lines().count());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let first: BTreeSet<PathBuf> = of(&readme).into_iter().map(|link| link.path).filter(is_page).collect();
    let second: BTreeSet<PathBuf> = first.iter().flat_map(|page| of(page)).map(|link| link.path).collect();
    for (task, page) in TASKS {
        let page = root.join(page);
        assert!(first.contains(&page) || second.contains(&page), "{task}: {}", page.display());
    }
}

/// The project's source files that a text names in backquotes.
fn sources(text: &str) -> Vec<&str> {
    let words = text.split(['`', '\n']).flat_map(str::split_whitespace);
    words.filter(|word| word.contains('/') && word.ends_with(".rs") && !word.contains('*')).collect()
}

#[test]
fn source_files_that_pages_name_are_there() {
    let root = root();
    let there = files(&root.join("crates"));
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages(&root.join("docs")) {
        let text = std::fs::read_to_string(&page).unwrap();
        let named = sources(&text);
        count += named.len();
        let is_gone = |name: &&&str| {
            !there.iter().any(|path| {
                path.to_string_lossy().replace("/src/", "/").ends_with(&format!("/{}", name.replace("/src/", "/")))
            })
        };
        wrong.extend(named.iter().filter(is_gone).map(|name| format!("{}: {name}", page.display())));
    }
    assert!(count > 20, "{count} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
