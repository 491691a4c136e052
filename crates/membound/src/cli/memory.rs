//! `--memory`: kinds of memory and where they lie, for all streams or for single ones.
//!
//! ```text
//! LIST = ITEM,ITEM...        ITEM = [STREAM=]WHAT        WHAT = KIND | KIND@PLACE | PLACE
//! thp,huge-2m@node1          a=node1,b=node0             weighted:0=3,1=1
//! ```
//! A place alone has memory of the usual kind; how a place is written stands in `memory/policy.rs`. Lists of nodes have
//! commas too: what follows one and has only digits, `-` and `=` goes on with the place before it.

use std::str::FromStr;

use crate::cli::usage::usage;
use membound_core::case::{StreamMemory, USUAL_MEMORY};
use membound_core::memory::policy::Policy;
use membound_core::memory::{MemoryKind, MemorySpec, SpecError};

/// One `--memory`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryList(Vec<MemoryItem>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct MemoryItem {
    stream: Option<String>,
    /// Absent: the usual one.
    kind: Option<MemoryKind>,
    /// Absent: what `--node` says.
    policy: Option<Policy>,
}

impl MemoryList {
    /// Whether it has memory for single streams.
    pub fn names_streams(&self) -> bool {
        self.0.iter().any(|item| item.stream.is_some())
    }
}

impl FromStr for MemoryList {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut items: Vec<String> = Vec::new();
        for part in text.split(',') {
            let goes_on = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit() || b"-=".contains(&byte));
            match items.last_mut().filter(|_| goes_on) {
                Some(item) => *item = format!("{item},{part}"),
                None => items.push(part.into()),
            }
        }
        items.iter().map(|item| item.parse()).collect::<Result<_, _>>().map(MemoryList)
    }
}

impl FromStr for MemoryItem {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let (stream, what) = match text.split_once('=') {
            Some((name, what)) if is_name(name) => (Some(name.into()), what),
            _ => (None, text),
        };
        let is_place = what == "first-touch" || what.starts_with("node") || what.contains(':');
        if is_place && !what.contains('@') {
            return Ok(MemoryItem { stream, kind: None, policy: Some(what.parse()?) });
        }
        let spec: MemorySpec = what.parse()?;
        Ok(MemoryItem { stream, kind: Some(spec.kind), policy: Some(spec.policy).filter(|_| what.contains('@')) })
    }
}

impl MemoryItem {
    fn spec(&self, node: Option<u32>) -> MemorySpec {
        let kind = self.kind.unwrap_or(USUAL_MEMORY.kind);
        let spec = on(kind, node);
        MemorySpec { policy: self.policy.unwrap_or(spec.policy), ..spec }
    }
}

/// Memory of this kind where `--node` says.
pub fn on(kind: MemoryKind, node: Option<u32>) -> MemorySpec {
    node.map_or(MemorySpec::of(kind), |node| MemorySpec::on(kind, node))
}

/// The memory that lists ask for: of all streams, and of single ones. `node` is the place of those that name none.
///
/// # Errors
/// A stream has two.
pub fn chosen(lists: &[MemoryList], node: Option<u32>) -> anyhow::Result<(Vec<MemorySpec>, Vec<StreamMemory>)> {
    let (mut all, mut single): (Vec<_>, Vec<StreamMemory>) = (Vec::new(), Vec::new());
    for item in lists.iter().flat_map(|list| &list.0) {
        match &item.stream {
            Some(stream) if single.iter().any(|other| other.stream == *stream) => {
                return Err(usage(format!(
                    "--memory names the stream '{stream}' twice, and it lies in one kind of memory; give one, and run once \
                     for each"
                )));
            }
            Some(stream) => single.push(StreamMemory { stream: stream.clone(), memory: item.spec(node) }),
            None => all.push(item.spec(node)),
        }
    }
    Ok((all, single))
}

/// The same where there are no streams to choose from.
pub fn without_streams(lists: &[MemoryList], node: Option<u32>) -> anyhow::Result<Vec<MemorySpec>> {
    match chosen(lists, node)? {
        (all, single) if single.is_empty() => Ok(all),
        (_, single) => Err(usage(format!(
            "there are no streams here to put in memory of their own: leave '{}=' out, or use `membound bandwidth`",
            single.first().map_or("", |named| &named.stream)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, node: Option<u32>, all: &[&str], single: &[(&str, &str)]) {
        let spec = |text: &&str| text.parse::<MemorySpec>().unwrap();
        let named = |(stream, memory): &(&str, &str)| StreamMemory { stream: (*stream).into(), memory: spec(memory) };
        let (found, streams) = chosen(&[text.parse().unwrap()], node).unwrap();
        assert_eq!(found, all.iter().map(spec).collect::<Vec<_>>(), "{text}");
        assert_eq!(streams, single.iter().map(named).collect::<Vec<_>>(), "{text}");
    }

    #[test]
    fn kinds_and_places_go_together() {
        check("4k,thp", None, &["4k", "thp"], &[]);
        check("node1", None, &["thp@node1"], &[]);
        check("huge-2m@node1,4k", None, &["huge-2m@node1", "4k"], &[]);
        check("a=node1,b=node0", None, &[], &[("a", "thp@node1"), ("b", "thp@node0")]);
        check("a=huge-2m@node1,4k", None, &["4k"], &[("a", "huge-2m@node1")]);
        check("a=weighted:0=3,1=1", None, &[], &[("a", "thp@weighted:0=3,1=1")]);
    }

    #[test]
    fn lists_of_nodes_have_commas_of_their_own() {
        check("interleave:0,2-3,4k", None, &["thp@interleave:0,2-3", "4k"], &[]);
        check("4k@weighted:0=3,1=1,thp@bind:0,1", None, &["4k@weighted:0=3,1=1", "thp@bind:0-1"], &[]);
        check("a=bind:0,1,b=preferred:1", None, &[], &[("a", "thp@bind:0-1"), ("b", "thp@preferred:1")]);
    }

    #[test]
    fn a_node_is_the_place_of_what_names_none() {
        check(
            "4k,thp@node0,a=4k,b=first-touch",
            Some(1),
            &["4k@node1", "thp@node0"],
            &[("a", "4k@node1"), ("b", "thp")],
        );
    }

    #[test]
    fn wrong_lists_name_what_would_be_right() {
        let fault = |text: &str| text.parse::<MemoryList>().unwrap_err().to_string();
        assert!(fault("fast").contains("huge-2m") && fault("fast").contains("KIND@PLACE"), "{}", fault("fast"));
        assert!(fault("").contains("unknown memory kind"), "{}", fault(""));
        assert!(fault("thp,8").contains("'thp,8'"), "{}", fault("thp,8"));
        assert!(fault("weigted:0=3,1=1").contains("weighted:0=3,1=1"));
        assert!(fault("a=node").contains("is not one node"));
        assert!(fault("thp@2").contains("node1"));
        assert!(without_streams(&["a=thp".parse().unwrap()], None).unwrap_err().to_string().contains("'a='"));
    }
}
