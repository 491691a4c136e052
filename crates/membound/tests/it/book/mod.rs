//! The book (`docs/`): each page is in its table of contents, each link leads somewhere, what is generated is current, and
//! a newcomer finds ten tasks in two clicks from the README. `mdbook build` makes pages of it, where that program is there.

mod commands;
mod links;
mod reference;
mod schema;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::skip::skip;

/// The folder of the whole project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files below a folder, sorted.
pub fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { BTreeSet::from([path]) }).collect()
}

/// The pages below a folder, sorted.
pub fn pages(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    let listed: Vec<PathBuf> = links::of(&summary).into_iter().map(|link| link.path).collect();
    let once: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let there: BTreeSet<PathBuf> = pages(&docs).into_iter().filter(|path| *path != summary).collect();
    assert_eq!(once.into_iter().cloned().collect::<BTreeSet<_>>(), there);
}

/// An experiment's page has its parts, in their order.
#[test]
fn every_experiment_has_its_parts() {
    for path in pages(&root().join("docs/experiments")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut from = 0;
        for part in ["\n**Question.** ", "\n```\n", "\n## How to read it\n", "\n## Method\n"] {
            let at = text[from..].find(part);
            from += at.unwrap_or_else(|| panic!("{}: no {part:?}, or not in this order", path.display()));
        }
    }
}

/// The real generator takes it, and warns of nothing.
#[test]
fn the_book_is_built() {
    if Command::new("mdbook").arg("--version").output().is_err() {
        return skip("no mdbook (cargo install mdbook --locked)");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("mdbook").arg("build").arg(root()).arg("--dest-dir").arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
    assert!(folder.path().join("recipes/half-of-stream.html").exists(), "{said}");
}
