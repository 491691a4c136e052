//! On which nodes pages are to lie, and how that is written: the kernel's memory policies by numactl's names.
//!
//! ```text
//! PLACE  = first-touch | nodeN            all on one node: short for bind:N
//!        | bind:NODES | preferred:N | interleave:NODES | weighted:N=W,N=W...
//! NODES  = numbers and ranges with commas     0-1,4
//! ```

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::cpuset::CpuSet;

/// The most nodes that any Linux is built for (NODES_SHIFT is 10 at most): they are numbered from 0 to 1023.
pub const NODES: usize = 1024;
/// The most nodes that weights are given for.
pub const WEIGHTED_MOST: usize = 16;

/// A set of NUMA nodes, numbered from 0 to 1023; numbers may be sparse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet([u64; NODES / 64]);

impl NodeSet {
    /// No node.
    pub const EMPTY: NodeSet = NodeSet([0; NODES / 64]);

    /// A node alone. A number that no Linux has makes the empty set, on which nothing can be placed.
    pub const fn one(node: u32) -> NodeSet {
        let mut bits = [0; NODES / 64];
        if (node as usize) < NODES {
            bits[node as usize / 64] = 1 << (node % 64);
        }
        NodeSet(bits)
    }

    /// Whether `node` is in it.
    pub fn contains(&self, node: u32) -> bool {
        self.0.get(node as usize / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    /// The nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let of_word = |(at, word): (usize, &u64)| {
            let (first, mut left) = (64 * at as u32, *word);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(first + bit)
            })
        };
        self.0.iter().enumerate().flat_map(of_word)
    }

    /// The only node; none where there are several, or none.
    pub fn only(&self) -> Option<u32> {
        let mut nodes = self.iter();
        nodes.next().filter(|_| nodes.next().is_none())
    }

    /// As the system calls take it: 1024 bits.
    pub fn mask(&self) -> &[u64; NODES / 64] {
        &self.0
    }
}

impl FromIterator<u32> for NodeSet {
    fn from_iter<I: IntoIterator<Item = u32>>(nodes: I) -> Self {
        let join = |a: NodeSet, b: NodeSet| NodeSet(std::array::from_fn(|word| a.0[word] | b.0[word]));
        nodes.into_iter().map(NodeSet::one).fold(NodeSet::EMPTY, join)
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().collect::<CpuSet>().fmt(f)
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeSet({self})")
    }
}

/// Shares of nodes as whole numbers from 1 to 255 (the kernel's), for at most 16 nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weights {
    /// (node, weight), nodes ascending; the rest has weight 0.
    entries: [(u16, u8); WEIGHTED_MOST],
}

impl Weights {
    /// Weights of nodes. `None` where a node is named twice or has no such number, a weight is 0, or there are none or
    /// too many.
    pub fn new(entries: &[(u32, u8)]) -> Option<Weights> {
        let mut sorted = entries.to_vec();
        sorted.sort_unstable();
        let is_twice = sorted.windows(2).any(|pair| pair[0].0 == pair[1].0);
        let is_odd = sorted.iter().any(|&(node, weight)| node as usize >= NODES || weight == 0);
        if is_twice || is_odd || sorted.is_empty() || sorted.len() > WEIGHTED_MOST {
            return None;
        }
        let entry = |k: usize| sorted.get(k).map_or((0, 0), |&(node, weight)| (node as u16, weight));
        Some(Weights { entries: std::array::from_fn(entry) })
    }

    /// (node, weight), nodes ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u8)> + '_ {
        self.entries.iter().filter(|entry| entry.1 > 0).map(|&(node, weight)| (node.into(), weight))
    }

    /// The nodes.
    pub fn nodes(&self) -> NodeSet {
        self.iter().map(|(node, _)| node).collect()
    }
}

/// On which nodes pages are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub enum Policy {
    /// On the node of the thread that touches a page first, as far as it has room.
    #[default]
    FirstTouch,
    /// On these nodes and no others.
    Bind(NodeSet),
    /// On this node while it has room.
    Preferred(u32),
    /// On these nodes in turn.
    Interleave(NodeSet),
    /// On these nodes in turn, on some more often than on others.
    Weighted(Weights),
}

impl Policy {
    /// The nodes that it names; none with first touch.
    pub fn nodes(&self) -> NodeSet {
        match self {
            Policy::FirstTouch => NodeSet::EMPTY,
            Policy::Bind(nodes) | Policy::Interleave(nodes) => *nodes,
            Policy::Preferred(node) => NodeSet::one(*node),
            Policy::Weighted(weights) => weights.nodes(),
        }
    }

    /// The share of pages that each node must have, as (node, weight); none where any share will do.
    pub fn shares(&self) -> Vec<(u32, u8)> {
        match self {
            Policy::FirstTouch | Policy::Bind(_) | Policy::Preferred(_) => Vec::new(),
            Policy::Interleave(nodes) => nodes.iter().map(|node| (node, 1)).collect(),
            Policy::Weighted(weights) => weights.iter().collect(),
        }
    }

    /// Whether this is the usual one, which nobody needs to be told.
    pub fn is_first_touch(&self) -> bool {
        *self == Policy::FirstTouch
    }
}

/// How a place is written, for those who wrote it otherwise.
const GRAMMAR: &str = "write node1, bind:0-1, preferred:1, interleave:0-1, weighted:0=3,1=1 or first-touch";

/// A place that could not be read; its text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy's name.
    #[error("'{0}' is no place for memory; {GRAMMAR}")]
    Unknown(String),
    /// No list of nodes.
    #[error("'{0}' names no nodes; write numbers from 0 to 1023 and ranges with commas, such as 0-1,4")]
    Nodes(String),
    /// Not one node.
    #[error("'{0}' is not one node; write a number from 0 to 1023 (several can be bound to, or interleaved over)")]
    OneNode(String),
    /// No weights.
    #[error(
        "'{0}' are no weights; write node=weight with commas, such as 0=3,1=1: weights from 1 to 255, each node once, \
         16 nodes at most"
    )]
    Weights(String),
}

fn one_node(text: &str) -> Result<u32, PolicyError> {
    nodes(text).ok().and_then(|nodes| nodes.only()).ok_or_else(|| PolicyError::OneNode(text.into()))
}

fn nodes(text: &str) -> Result<NodeSet, PolicyError> {
    let set = CpuSet::parse(text).ok().filter(|set| !set.is_empty() && set.iter().all(|node| node < NODES as u32));
    Ok(set.ok_or_else(|| PolicyError::Nodes(text.into()))?.iter().collect())
}

fn weights(text: &str) -> Result<Weights, PolicyError> {
    let entry = |part: &str| {
        let (node, weight) = part.split_once('=')?;
        let is_number = !weight.is_empty() && weight.bytes().all(|byte| byte.is_ascii_digit());
        Some((one_node(node).ok()?, weight.parse().ok().filter(|_| is_number)?))
    };
    let entries: Option<Vec<(u32, u8)>> = text.split(',').map(entry).collect();
    entries.and_then(|entries| Weights::new(&entries)).ok_or_else(|| PolicyError::Weights(text.into()))
}

impl FromStr for Policy {
    type Err = PolicyError;

    /// `node1`, `bind:0-1`, `preferred:1`, `interleave:0-1`, `weighted:0=3,1=1`, `first-touch`
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text.split_once(':') {
            Some(("bind", list)) => nodes(list).map(Policy::Bind),
            Some(("preferred", node)) => one_node(node).map(Policy::Preferred),
            Some(("interleave", list)) => nodes(list).map(Policy::Interleave),
            Some(("weighted", list)) => weights(list).map(Policy::Weighted),
            None if text == "first-touch" => Ok(Policy::FirstTouch),
            None if text.starts_with("node") => one_node(&text[4..]).map(|node| Policy::Bind(NodeSet::one(node))),
            _ => Err(PolicyError::Unknown(text.into())),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::FirstTouch => f.pad("first-touch"),
            Policy::Bind(nodes) => match nodes.only() {
                Some(node) => f.pad(&format!("node{node}")),
                None => f.pad(&format!("bind:{nodes}")),
            },
            Policy::Preferred(node) => f.pad(&format!("preferred:{node}")),
            Policy::Interleave(nodes) => f.pad(&format!("interleave:{nodes}")),
            Policy::Weighted(weights) => {
                let entries: Vec<String> = weights.iter().map(|(node, weight)| format!("{node}={weight}")).collect();
                f.pad(&format!("weighted:{}", entries.join(",")))
            }
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = PolicyError;

    fn try_from(text: String) -> Result<Self, PolicyError> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        policy.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryKind, MemorySpec};
    use proptest::prelude::*;

    fn set(nodes: &[u32]) -> NodeSet {
        nodes.iter().copied().collect()
    }

    #[test]
    fn places_are_read_and_written() {
        let check = |text: &str, policy: Policy, written: &str| {
            assert_eq!(text.parse(), Ok(policy), "{text}");
            assert_eq!(policy.to_string(), written);
        };
        let weights = |entries: &[(u32, u8)]| Policy::Weighted(Weights::new(entries).unwrap());
        check("first-touch", Policy::FirstTouch, "first-touch");
        check("node1", Policy::Bind(set(&[1])), "node1");
        check("bind:1", Policy::Bind(set(&[1])), "node1");
        check("bind:8,0-1", Policy::Bind(set(&[0, 1, 8])), "bind:0-1,8");
        check("preferred:1023", Policy::Preferred(1023), "preferred:1023");
        check("interleave:0,2", Policy::Interleave(set(&[0, 2])), "interleave:0,2");
        check("weighted:1=1,0=3", weights(&[(0, 3), (1, 1)]), "weighted:0=3,1=1");
        check("weighted:700=255", weights(&[(700, 255)]), "weighted:700=255");
    }

    #[test]
    fn what_is_no_place_is_told_what_would_be() {
        let check = |text: &str, cure: &str| {
            let fault = text.parse::<Policy>().unwrap_err().to_string();
            assert!(fault.contains(cure), "{text}: {fault}");
        };
        for text in ["", "nod1", "1", "interleave", "weigted:0=1,1=1", "Node1", ":"] {
            check(text, "write node1, bind:0-1");
        }
        for text in ["bind:", "bind:a", "interleave:0-1024", "bind:1-0", "interleave:4294967296"] {
            check(text, "names no nodes");
        }
        for text in ["node", "node1024", "node-1", "node+1", "preferred:0-1", "preferred:0,1", "node1,2"] {
            check(text, "is not one node");
        }
        let many = (0..17).map(|node| format!("{node}=1")).collect::<Vec<_>>().join(",");
        for text in ["", "0", "0=0", "0=256", "0=+1", "0=1,0=2", "0-1=1", "0=1,", "0=", &many] {
            check(&format!("weighted:{text}"), "weights from 1 to 255");
        }
    }

    #[test]
    fn a_node_that_no_linux_has_is_no_node() {
        assert_eq!(NodeSet::one(1024), NodeSet::EMPTY);
        assert_eq!(NodeSet::one(u32::MAX), NodeSet::EMPTY);
        assert!(!NodeSet::EMPTY.contains(u32::MAX));
        assert_eq!(Weights::new(&[(1024, 1)]), None);
    }

    fn policies() -> impl Strategy<Value = Policy> {
        let nodes = || prop::collection::btree_set(0u32..1024, 1..40).prop_map(|ids| ids.into_iter().collect());
        let weights = prop::collection::btree_map(0u32..1024, 1u8.., 1..WEIGHTED_MOST);
        prop_oneof![
            Just(Policy::FirstTouch),
            nodes().prop_map(Policy::Bind),
            (0u32..1024).prop_map(Policy::Preferred),
            nodes().prop_map(Policy::Interleave),
            weights.prop_map(|map| Policy::Weighted(Weights::new(&map.into_iter().collect::<Vec<_>>()).unwrap())),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(policy in policies(), kind in 0..MemoryKind::ALL.len()) {
            prop_assert_eq!(policy.to_string().parse::<Policy>(), Ok(policy));
            let spec = MemorySpec { kind: MemoryKind::ALL[kind], policy };
            prop_assert_eq!(spec.to_string().parse::<MemorySpec>(), Ok(spec));
            let json = serde_json::to_string(&spec).unwrap();
            prop_assert_eq!(serde_json::from_str::<MemorySpec>(&json).unwrap(), spec);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-z0-9@:=,é\\- ]{0,24}") {
            let _ = text.parse::<Policy>();
            let _ = text.parse::<MemorySpec>();
        }
    }
}
