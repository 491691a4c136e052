//! From ranks to nodes: which ranks share one, what it is called, and whether it may take part.

use std::collections::{HashMap, HashSet};

use crate::fleet::word::{Hello, shortened};

/// A node: ranks that share a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name, which no other node here has, fit for a file name.
    pub name: String,
    /// Its ranks, rising; the first measures.
    pub ranks: Vec<usize>,
    /// What the first rank said of itself; nothing, if it said nothing.
    pub hello: Option<Hello>,
}

/// Sorts ranks into nodes, in the order of their lowest ranks. Ranks are of one node if both the node's name (Slurm's, where
/// there is one: it tells apart nodes on one host) and the boot's random number agree (which tells apart hosts of one name).
/// A rank that said nothing is a node of its own.
pub fn nodes(hellos: &[Option<Hello>]) -> Vec<Node> {
    let mut found: Vec<Node> = Vec::new();
    let mut place: HashMap<(&str, &str), usize> = HashMap::new();
    for (rank, hello) in hellos.iter().enumerate() {
        let Some(hello) = hello else {
            found.push(Node { name: format!("rank{rank}"), ranks: vec![rank], hello: None });
            continue;
        };
        let node = *place.entry((called(hello), hello.boot_id.as_str())).or_insert(found.len());
        match found.get_mut(node) {
            Some(node) => node.ranks.push(rank),
            None => found.push(Node { name: file_name(called(hello)), ranks: vec![rank], hello: Some(hello.clone()) }),
        }
    }
    number(&mut found);
    found
}

/// What a rank's node is called.
fn called(hello: &Hello) -> &str {
    hello.slurm_node.as_deref().unwrap_or(&hello.host)
}

/// A name that another machine gave, fit for a file here: no folders, nothing hidden, not too long.
fn file_name(name: &str) -> String {
    let clean: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(100).collect();
    let clean = clean.trim_start_matches('.');
    if clean.is_empty() { "node".into() } else { clean.into() }
}

/// Numbers nodes of one name: n1, n1-2, n1-3.
fn number(nodes: &mut [Node]) {
    let mut taken: HashSet<String> = HashSet::new();
    for node in nodes {
        let mut name = node.name.clone();
        let mut next = 2;
        // Some file systems know no case.
        while !taken.insert(name.to_ascii_lowercase()) {
            name = format!("{}-{next}", node.name);
            next += 1;
        }
        node.name = name;
    }
}

/// Why a node may not take part in what rank 0 leads, if it may not.
pub fn refusal(node: &Hello, lead: &Hello) -> Option<String> {
    if node.tool != lead.tool || node.protocol != lead.protocol || node.record_schema != lead.record_schema {
        let builds = if node.tool == lead.tool { " (another build)" } else { "" };
        return Some(format!(
            "it runs {}{builds}, rank 0 {}: install one version on all nodes",
            shortened(&node.tool, 40),
            lead.tool
        ));
    }
    let plan = |hello: &Hello| match hello.arguments.is_empty() {
        true => "the default run".into(),
        false => format!("'{}'", shortened(&hello.arguments.join(" "), 60)),
    };
    (node.arguments != lead.arguments)
        .then(|| format!("its plan is {}, that of rank 0 {}: give all ranks one plan", plan(node), plan(lead)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(host: &str, slurm: Option<&str>, boot: &str) -> Option<Hello> {
        let (host, slurm_node, boot_id) = (host.into(), slurm.map(Into::into), boot.into());
        Some(Hello { protocol: 1, tool: "membound 1".into(), host, slurm_node, boot_id, ..Hello::default() })
    }

    fn told(hellos: &[Option<Hello>]) -> Vec<(String, Vec<usize>)> {
        nodes(hellos).into_iter().map(|node| (node.name, node.ranks)).collect()
    }

    #[test]
    fn ranks_of_one_host_are_one_node() {
        let ranks = [hello("a", None, "1"), hello("b", None, "2"), hello("a", None, "1"), hello("b", None, "2")];
        assert_eq!(told(&ranks), [("a".into(), vec![0, 2]), ("b".into(), vec![1, 3])]);
    }

    #[test]
    fn nodes_are_told_apart_by_slurm_and_by_boot() {
        // Several nodes of Slurm on one host, and two hosts of one name.
        let slurm = [hello("lab", Some("n2"), "1"), hello("lab", Some("n1"), "1"), hello("lab", Some("n2"), "1")];
        assert_eq!(told(&slurm), [("n2".into(), vec![0, 2]), ("n1".into(), vec![1])]);
        let twins = [hello("lab", None, "1"), hello("lab", None, "2"), None, hello("LAB", None, "3")];
        // LAB-2 would overwrite lab-2 on file systems that know no case.
        let expect = [("lab", 0), ("lab-2", 1), ("rank2", 2), ("LAB-3", 3)];
        assert_eq!(told(&twins), expect.map(|(name, rank)| (name.into(), vec![rank])));
    }

    #[test]
    fn names_are_fit_for_files() {
        let check = |name: &str, expect: &str| assert_eq!(file_name(name), expect, "{name}");
        check("n1.cluster-a", "n1.cluster-a");
        check("../../etc/passwd", "etcpasswd");
        check(".hidden", "hidden");
        check("..", "node");
        check("", "node");
        check(&"x".repeat(300), &"x".repeat(100));
    }

    #[test]
    fn who_differs_is_refused_with_a_cure() {
        let lead = hello("a", None, "1").unwrap();
        assert_eq!(refusal(&lead, &lead), None);
        let older = Hello { tool: "membound 0.0.9".into(), ..lead.clone() };
        let reason = refusal(&older, &lead).unwrap();
        assert_eq!(reason, "it runs membound 0.0.9, rank 0 membound 1: install one version on all nodes");
        let build = Hello { record_schema: 7, ..lead.clone() };
        assert!(refusal(&build, &lead).unwrap().starts_with("it runs membound 1 (another build), rank 0"));
        let other = Hello { arguments: vec!["latency".into(), "--budget".into(), "5s".into()], ..lead.clone() };
        let reason = refusal(&other, &lead).unwrap();
        assert_eq!(
            reason,
            "its plan is 'latency --budget 5s', that of rank 0 the default run: give all ranks one plan"
        );
    }
}
