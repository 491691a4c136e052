//! Sets of CPUs that have something of the machine in common: a node, a package, a last-level cache, a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;
use crate::machine::nodes::Node;
use crate::units::words;

words! {
    /// What the CPUs of a domain have in common.
    DomainKind, "domain" {
        /// A NUMA node.
        Node = "node",
        /// A package (socket).
        Package = "package",
        /// A last-level cache.
        Cache = "cache",
        /// A cluster of cores: a second-level cache that is not the last, or what the firmware calls a cluster.
        Cluster = "cluster",
    }
}

/// A set of CPUs that have something in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Domain {
    /// What they have in common.
    pub kind: DomainKind,
    /// The kernel's number of the node or package; of a cache or cluster the first CPU.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DomainKind::Node | DomainKind::Package => write!(f, "{} {}", self.kind, self.id),
            DomainKind::Cache | DomainKind::Cluster => write!(f, "{} of {}", self.kind, self.cpus),
        }
    }
}

impl Machine {
    /// The domains that some of `among` belong to, with only those CPUs: nodes, packages, last-level caches, clusters. Of
    /// several domains with the same CPUs only the first is there.
    pub fn domains(&self, among: &CpuSet) -> Vec<Domain> {
        let mut sets: BTreeMap<(DomainKind, u32, u32), BTreeSet<u32>> = BTreeMap::new();
        for cpu in among.iter().filter_map(|id| self.cpu(id)) {
            let mut add = |kind, id, within| sets.entry((kind, id, within)).or_default().insert(cpu.id);
            if let Some(node) = cpu.node.get() {
                add(DomainKind::Node, node, 0);
            }
            if let Some(package) = cpu.package.get() {
                add(DomainKind::Package, package, 0);
            }
            let last = self.last_level(cpu.id);
            if let Some(cache) = last.and_then(|cache| cache.cpus.first()) {
                add(DomainKind::Cache, cache, 0);
            }
            let second = self.data_caches(cpu.id).into_iter().find(|cache| cache.level == 2);
            let inner = second.filter(|cache| last.is_some_and(|last| last.level > cache.level));
            if let Some(first) = inner.filter(|cache| cache.cpus != cpu.core_cpus).and_then(|cache| cache.cpus.first())
            {
                add(DomainKind::Cluster, first, 0);
            } else if let Some(cluster) = cpu.cluster.get() {
                add(DomainKind::Cluster, cluster, cpu.package.get().unwrap_or(0) + 1);
            }
        }
        let mut domains: Vec<Domain> = Vec::new();
        for ((kind, id, _), cpus) in sets {
            let cpus: CpuSet = cpus.into_iter().collect();
            // A domain of one core has nothing in common but that core, unless memory belongs to it.
            let is_core = kind > DomainKind::Package && self.one_per_core(&cpus).len() < 2;
            if !is_core && !domains.iter().any(|known| known.cpus == cpus) {
                let id = if kind > DomainKind::Package { cpus.first().unwrap_or(id) } else { id };
                domains.push(Domain { kind, id, cpus });
            }
        }
        domains
    }

    /// The first hardware thread of each core of `cpus`, in the order in which threads should take them.
    pub fn one_per_core(&self, cpus: &CpuSet) -> Vec<u32> {
        let is_first = |&id: &u32| {
            let core = self.cpu(id).map(|cpu| cpu.core_cpus.intersection(cpus));
            core.is_none_or(|core| core.first().is_none_or(|first| first == id))
        };
        self.topology_order(cpus).into_iter().filter(is_first).collect()
    }

    /// The node with a number.
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The relative distance from the CPUs of one node to the memory of another; `None` where the firmware tells none.
    pub fn distance(&self, from: u32, to: u32) -> Option<u32> {
        let distances = self.node(from)?.distances.known()?;
        distances.iter().find(|distance| distance.node == to).map(|distance| distance.distance)
    }

    /// Nodes with memory, as far as is known.
    pub fn nodes_with_memory(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.total.known().is_none_or(|total| total.0 > 0))
    }

    /// The nodes with CPUs that are nearest to a node; the node itself, if it has CPUs.
    pub fn nearest_with_cpus(&self, node: u32) -> Vec<u32> {
        let with_cpus = || self.nodes.iter().filter(|node| node.has_cpus()).map(|node| node.id);
        if with_cpus().any(|id| id == node) {
            return vec![node];
        }
        let least = with_cpus().filter_map(|from| self.distance(from, node)).min();
        with_cpus().filter(|from| self.distance(*from, node) == least).collect()
    }

    /// The package of a node's memory: that of its CPUs, or of the nearest. `None` where those lie in several, or the kernel
    /// does not tell.
    pub fn package_of(&self, node: u32) -> Option<u32> {
        let near = self.nearest_with_cpus(node).into_iter().filter_map(|id| self.node(id)?.cpus.known());
        let mut packages = near.flat_map(CpuSet::iter).map(|cpu| self.cpu(cpu)?.package.get());
        let first = packages.next()??;
        packages.all(|other| other == Some(first)).then_some(first)
    }
}

impl Node {
    /// Whether CPUs belong to it; a node whose list can't be read counts as one with CPUs.
    pub fn has_cpus(&self) -> bool {
        self.cpus.known().is_none_or(|cpus| !cpus.is_empty())
    }
}
