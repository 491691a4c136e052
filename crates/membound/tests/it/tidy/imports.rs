//! Which file of a crate uses which: `use` trees and paths in the code, led to the file that they name.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::{closing, is_word};

/// A crate's files by their module's path (`experiments::latency`; "" is the root), as bare code that ships.
#[derive(Debug, Default)]
pub struct Files(BTreeMap<String, String>);

/// Which module uses which.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

impl Files {
    /// `path` is relative to the crate's `src`.
    pub fn add(&mut self, path: &str, code: String) {
        self.0.insert(module(path), code);
    }

    /// Every use of another file.
    pub fn uses(&self) -> Uses {
        let named = |(module, code): (&String, &String)| {
            let targets = self.paths(module, code).into_iter().filter_map(|path| self.file(&path));
            (module.clone(), targets.filter(|target| target != module).collect())
        };
        self.0.iter().map(named).collect()
    }

    /// The file that holds what a path names: the longest part of it that is a file.
    fn file(&self, path: &[String]) -> Option<String> {
        (1..=path.len()).rev().map(|length| path[..length].join("::")).find(|path| self.0.contains_key(path))
    }

    /// All paths in the code, from the crate's root.
    fn paths(&self, module: &str, code: &str) -> Vec<Vec<String>> {
        let starts = code.char_indices().filter(|(at, c)| {
            let before = at.checked_sub(1).map(|i| code.as_bytes()[i]);
            (c.is_alphabetic() || *c == '_') && !is_word(before) && before != Some(b':')
        });
        let written = starts.flat_map(|(at, _)| tree(&code[at..]));
        written.filter(|path| path.len() > 1).filter_map(|path| self.rooted(module, path)).collect()
    }

    /// A path as written in `module`, from the root; nothing where it leads out of the crate.
    fn rooted(&self, module: &str, path: Vec<String>) -> Option<Vec<String>> {
        let mut base: Vec<String> = module.split("::").filter(|part| !part.is_empty()).map(str::to_string).collect();
        match path[0].as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => return Some([&base[..], &path[1..]].concat()),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                base.truncate(base.len().saturating_sub(up));
                return Some([&base[..], &path[up..]].concat());
            }
            _ => base.extend(path),
        }
        // A child of this module, or else something of another crate.
        let depth = module.split("::").filter(|part| !part.is_empty()).count() + 1;
        self.0.contains_key(&base[..depth].join("::")).then_some(base)
    }
}

/// The module of a file.
pub fn module(path: &str) -> String {
    let path = path.trim_end_matches(".rs").replace('/', "::");
    let root = ["lib", "main"].contains(&path.as_str());
    if root { String::new() } else { path.trim_end_matches("::mod").to_string() }
}

/// The paths of a tree at the start of `code`: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn tree(code: &str) -> Vec<Vec<String>> {
    let word: String = code.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if word.is_empty() {
        return Vec::new();
    }
    let Some(rest) = code[word.len()..].strip_prefix("::") else { return vec![vec![word]] };
    let below = match rest.strip_prefix('{') {
        Some(inside) => branches(&inside[..closing(rest, 0) - 1]).into_iter().flat_map(tree).collect(),
        None => tree(rest),
    };
    if below.is_empty() {
        return vec![vec![word]];
    }
    below
        .into_iter()
        .map(|mut path| {
            path.insert(0, word.clone());
            path
        })
        .collect()
}

/// What stands between the commas of a brace list, not of those inside it.
fn branches(list: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            found.push(list[from..at].trim());
            from = at + 1;
        }
    }
    found.push(list[from..].trim());
    found
}

/// Files that use each other in a circle, each circle whole.
pub fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|from| (from.as_str(), reach(uses, from))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (from, seen) in &reached {
        let back = |to: &&&str| reached.get(**to).is_some_and(|seen| seen.contains(from));
        let circle: Vec<String> = seen.iter().filter(back).map(|to| to.to_string()).collect();
        if !circle.is_empty() && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

/// All that a file uses, and what that uses in turn.
fn reach<'a>(uses: &'a Uses, from: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        for next in uses.get(at).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    seen
}

#[test]
fn paths_lead_to_files() {
    let mut files = Files::default();
    files.add("lib.rs", String::new());
    files.add("a/mod.rs", "use std::fs; use b::X; pub use crate::{c, a::b::{self, Y as Z}};".into());
    files.add("a/b.rs", "fn f() -> super::W { crate::c::g::<d::E>(self::h()) }".into());
    files.add("c.rs", "b::x(); $crate::a::v!();".into());
    let own = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
    let uses = files.uses();
    assert_eq!(uses["a"], own(&["a::b", "c"]));
    assert_eq!(uses["a::b"], own(&["a", "c"]));
    assert_eq!(uses["c"], own(&["a"]));
    assert_eq!(circles(&uses), [["a", "a::b", "c"]]);
}
