//! What a node is: DRAM, high-bandwidth memory, a slow tier, the memory of a device; and how the machine was configured.
//!
//! Nothing names a node's memory outright. Each rule below reads one sign and is kept as evidence with what it speaks for;
//! the first rule that speaks decides, and the others may agree or not. What was measured is held against it elsewhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;
use crate::machine::nodes::{Access, Node};
use crate::units::{Bytes, words};

words! {
    /// What kind of memory a node is.
    NodeKind, "kind of node" {
        /// The memory beside the processor.
        Dram = "DRAM",
        /// High-bandwidth memory.
        Hbm = "HBM",
        /// The high-bandwidth memory of Knights Landing and Knights Mill.
        Mcdram = "MCDRAM",
        /// Slower than DRAM: persistent memory, memory behind a link.
        Slow = "slow memory",
        /// Memory of a device that the kernel uses as its own.
        Device = "device memory",
        /// Memory without CPUs about which nothing else is told.
        Unknown = "memory without CPUs",
        /// No memory at all.
        Empty = "no memory",
    }
}

/// A sign of what a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What it speaks for.
    pub kind: NodeKind,
    /// Who says so and what.
    pub says: String,
}

/// What a node is, as far as firmware, kernel and topology tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeNature {
    /// The node.
    pub node: u32,
    /// What it is.
    pub kind: NodeKind,
    /// What that rests on, and what speaks against it; strongest first.
    pub evidence: Vec<Evidence>,
}

/// A rate or latency this much better or worse than that of a node with CPUs is another kind of memory: less is how
/// modules are populated.
const OTHER_KIND: f64 = 1.5;
/// Nodes with CPUs differ more without being of another kind: half of the modules give half of the bandwidth.
const OTHER_KIND_WITH_CPUS: f64 = 3.0;
/// MCDRAM of a processor; of a cluster's node less. 16 GiB are all that was ever built in.
const MCDRAM_MOST: Bytes = Bytes::gib(16);
/// Distance that Knights Landing's firmware gives MCDRAM from the CPUs beside it.
const MCDRAM_DISTANCE: u32 = 31;
/// High-bandwidth memory of a Xeon Max package.
const XEON_MAX_HBM: Bytes = Bytes::gib(64);
/// Firmware and kernel keep some memory from the count; the parts of MCDRAM that can be cache are of 4 GiB and more.
const UNCOUNTED: Bytes = Bytes::gib(1);

/// Fast memory that is a cache in front of a node's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideCache {
    /// What the cache is made of; [`NodeKind::Unknown`] where nothing tells.
    pub kind: NodeKind,
    /// Capacity over all packages, or of this node where the firmware tells; absent where it is not known.
    pub size: Option<Bytes>,
    /// How that is known.
    pub says: String,
}

impl Machine {
    /// What each node is, in their order.
    pub fn natures(&self) -> Vec<NodeNature> {
        self.nodes.iter().map(|node| self.nature(node)).collect()
    }

    fn nature(&self, node: &Node) -> NodeNature {
        let rules = [Machine::by_processor, Machine::by_attributes, Machine::by_tier, Machine::by_device];
        let mut evidence: Vec<Evidence> = Vec::new();
        if node.total.known() == Some(&Bytes(0)) {
            evidence.push(Evidence { kind: NodeKind::Empty, says: "meminfo says 0 bytes".into() });
        }
        evidence.extend(rules.iter().filter_map(|rule| rule(self, node)));
        if !node.has_cpus() {
            evidence.extend(self.by_distance(node));
        }
        if evidence.is_empty() {
            let (kind, says) = match node.has_cpus() {
                true => (NodeKind::Dram, "it has CPUs, and nothing speaks for other memory"),
                false => (NodeKind::Unknown, "no firmware attribute, tier or known processor says more"),
            };
            evidence.push(Evidence { kind, says: says.into() });
        }
        NodeNature { node: node.id, kind: evidence[0].kind, evidence }
    }

    /// What all memory is where the kernel tells of no nodes.
    pub fn kind_without_nodes(&self) -> NodeKind {
        match self.is_knights() || self.is_xeon_max() {
            true => NodeKind::Unknown,
            false if self.is_hbm_alone() => NodeKind::Hbm,
            false => NodeKind::Dram,
        }
    }

    fn model(&self) -> &str {
        self.identity.model.known().map_or("", String::as_str)
    }

    /// Knights Landing is family 6, model 87 (57h), Knights Mill 133 (85h): Intel SDM volume 4, table 2-1.
    fn is_knights(&self) -> bool {
        let signature = self.identity.signature.known().map_or("", String::as_str);
        self.model().contains("Xeon Phi") || ["6/87/", "6/133/"].iter().any(|known| signature.starts_with(known))
    }

    fn is_xeon_max(&self) -> bool {
        self.model().contains("CPU Max")
    }

    /// Processors that have high-bandwidth memory and nothing beside it: MI300A, and A64FX by its part number.
    fn is_hbm_alone(&self) -> bool {
        let is_fujitsu = self.identity.vendor.known().is_some_and(|vendor| vendor == "Fujitsu");
        self.model().contains("MI300A") || (is_fujitsu && self.model().contains("0x001"))
    }

    fn has_nodes_without_cpus(&self) -> bool {
        self.nodes_with_memory().any(|node| !node.has_cpus())
    }

    fn has_side_caches(&self) -> bool {
        self.nodes.iter().any(|node| !node.memory_side_caches.is_empty())
    }

    /// Processors whose packages hold memory of a known kind.
    fn by_processor(&self, node: &Node) -> Option<Evidence> {
        let total = node.total.get().unwrap_or_default();
        let said = |kind, says: String| Some(Evidence { kind, says });
        if self.is_knights() && !node.has_cpus() && total <= MCDRAM_MOST {
            return said(NodeKind::Mcdram, format!("{} with a node of {total} without CPUs", self.model()));
        }
        if self.is_hbm_alone() {
            return said(NodeKind::Hbm, format!("{} has no other memory", self.model()));
        }
        if self.is_xeon_max() && !node.has_cpus() {
            return said(NodeKind::Hbm, format!("{} with a node without CPUs", self.model()));
        }
        // Of all nodes: as sub-NUMA clusters, DDR behind HBM has no more on each than a package has HBM.
        let all = self.nodes.iter().map(|node| node.total.get().unwrap_or_default().0).sum::<u64>();
        let built_in = XEON_MAX_HBM.0 * self.packages().max(1) as u64;
        let is_hbm_only = !self.has_nodes_without_cpus() && !self.has_side_caches() && all <= built_in;
        if self.is_xeon_max() && is_hbm_only {
            return said(NodeKind::Hbm, format!("{} with {total} and no other memory", self.model()));
        }
        // The device's memory comes as nodes without CPUs; several of them are empty until its instances are divided.
        let product = self.identity.product.known().map_or("", String::as_str);
        let is_grace = ["Grace", "GH200", "GB200", "GB300"].iter().any(|name| product.contains(name));
        if is_grace && !node.has_cpus() {
            return said(NodeKind::Device, format!("{product} with a node without CPUs"));
        }
        None
    }

    /// What the firmware says about bandwidth and latency. A node without CPUs is held against the CPUs' own memory that it
    /// is told for; one with CPUs against the slowest other.
    fn by_attributes(&self, node: &Node) -> Option<Evidence> {
        let own = access(node)?;
        let near = self.nearest_with_cpus(node.id);
        let is_against = |other: &&Node| match (node.has_cpus(), own.initiators.is_empty()) {
            (true, _) => other.id != node.id,
            (false, false) => own.initiators.contains(other.id),
            (false, true) => near.contains(&other.id),
        };
        let others = self.nodes.iter().filter(|other| other.has_cpus()).filter(is_against);
        let others: Vec<&Access> = others.filter_map(access).collect();
        let rate = |access: &Access| access.read_bandwidth.get().map(|rate| rate.0);
        let delay = |access: &Access| access.read_latency.get().map(|delay| delay.0);
        let rates = others.iter().filter_map(|access| rate(access));
        let other_rate = if node.has_cpus() { rates.reduce(f64::min) } else { rates.reduce(f64::max) };
        let other_delay = others.iter().filter_map(|access| delay(access)).reduce(f64::min);
        let wider = rate(own).zip(other_rate).map(|(own, other)| own / other);
        let slower = delay(own).zip(other_delay).map(|(own, other)| own / other);
        let mut words = Vec::new();
        words.extend(wider.map(|ratio| format!("{ratio:.2} x the read bandwidth")));
        words.extend(slower.map(|ratio| format!("{ratio:.2} x the latency")));
        let whose = if node.has_cpus() { "the slowest other node with CPUs" } else { "the CPUs' own node" };
        let says = format!("firmware attributes: {} of {whose}", words.join(" at "));
        let least = if node.has_cpus() { OTHER_KIND_WITH_CPUS } else { OTHER_KIND };
        let is_narrow = wider.is_some_and(|ratio| ratio * OTHER_KIND <= 1.0);
        let is_late = slower.is_some_and(|ratio| ratio >= OTHER_KIND) && wider.is_none_or(|ratio| ratio < OTHER_KIND);
        match wider {
            Some(ratio) if ratio >= least => Some(Evidence { kind: NodeKind::Hbm, says }),
            _ if !node.has_cpus() && (is_narrow || is_late) => Some(Evidence { kind: NodeKind::Slow, says }),
            _ => None,
        }
    }

    /// The kernel's tiers: a lower number is faster.
    fn by_tier(&self, node: &Node) -> Option<Evidence> {
        let tier_of = |id: u32| {
            let holds =
                |tier: &&crate::machine::nodes::Tier| tier.nodes.known().is_some_and(|nodes| nodes.contains(id));
            self.tiers.iter().find(holds).map(|tier| tier.id)
        };
        let own = tier_of(node.id).filter(|_| !node.has_cpus())?;
        let best = self.nodes.iter().filter(|other| other.has_cpus()).filter_map(|other| tier_of(other.id)).min()?;
        let says = format!("memory tier {own}, nodes with CPUs are in tier {best}");
        match own.cmp(&best) {
            std::cmp::Ordering::Less => Some(Evidence { kind: NodeKind::Hbm, says }),
            std::cmp::Ordering::Greater => Some(Evidence { kind: NodeKind::Slow, says }),
            std::cmp::Ordering::Equal => None,
        }
    }

    /// Memory that came from a DAX device: persistent memory, CXL memory, or set aside by the firmware.
    fn by_device(&self, node: &Node) -> Option<Evidence> {
        let is_ours = |device: &&crate::machine::nodes::DaxDevice| {
            device.target_node.get() == Some(node.id) && device.driver.known().is_some_and(|driver| driver == "kmem")
        };
        let device = self.dax.iter().find(is_ours).filter(|_| !node.has_cpus())?;
        let says =
            format!("{} is used as memory: persistent, behind a link, or set aside by the firmware", device.name);
        Some(Evidence { kind: NodeKind::Slow, says })
    }

    /// The distance that Knights Landing gives its MCDRAM, and no more of it than was ever built in. A processor of any
    /// name: virtual machines hide it.
    fn by_distance(&self, node: &Node) -> Option<Evidence> {
        let near = self.nearest_with_cpus(node.id);
        let distance = near.first().and_then(|from| self.distance(*from, node.id))?;
        let total = node.total.get().filter(|total| (1..=MCDRAM_MOST.0).contains(&total.0))?;
        let says = format!("{total} without CPUs at distance {distance}, as Knights Landing has it");
        (distance == MCDRAM_DISTANCE).then_some(Evidence { kind: NodeKind::Mcdram, says })
    }

    /// How the machine's memory was configured, as far as its topology shows: a sentence each.
    pub fn memory_modes(&self) -> Vec<String> {
        self.side_cache_mode().into_iter().chain(self.clustering()).collect()
    }

    /// The cache of fast memory in front of a node: as the firmware tells; else what of a processor's fast memory shows as
    /// no node, since it can be nothing else. Real Knights Landings and many a Xeon Max tell of no such cache.
    pub fn side_cache(&self, node: &Node) -> Option<SideCache> {
        let (kind, built_in) = if self.is_knights() {
            (NodeKind::Mcdram, MCDRAM_MOST)
        } else if self.is_xeon_max() {
            (NodeKind::Hbm, XEON_MAX_HBM)
        } else {
            (NodeKind::Unknown, Bytes(0))
        };
        if !node.memory_side_caches.is_empty() {
            let size = node.memory_side_caches.iter().map(|cache| Some(cache.size.get()?.0)).sum::<Option<u64>>();
            return Some(SideCache { kind, size: size.map(Bytes), says: "the firmware tells of it".into() });
        }
        let of = |node: &&Node| self.nature(node).kind == kind;
        let total = |node: &Node| node.total.get().unwrap_or_default().0;
        let all = Bytes(built_in.0 * self.packages().max(1) as u64);
        let shown = Bytes(self.nodes.iter().filter(of).map(total).sum());
        let hidden = Bytes(all.0.saturating_sub(shown.0));
        // A virtual machine need not be given the fast memory.
        let is_hidden = hidden > UNCOUNTED && !self.is_virtual() && !self.has_side_caches();
        let is_behind = is_hidden && node.has_cpus() && self.nature(node).kind != kind && total(node) > 0;
        is_behind.then(|| SideCache {
            kind,
            size: Some(hidden),
            says: format!(
                "this processor has {all} of {kind} and {shown} of it are nodes; the firmware tells of no cache, but the \
                 rest can be nothing else"
            ),
        })
    }

    /// Sizes of the caches of fast memory in front of a node: told by the firmware, else the node's part of what can be nothing
    /// else; and whether that is inferred.
    pub fn side_cache_sizes(&self, node: &Node) -> (Vec<Bytes>, bool) {
        let told: Vec<Bytes> = node.memory_side_caches.iter().filter_map(|cache| cache.size.get()).collect();
        if !node.memory_side_caches.is_empty() {
            return (told, false);
        }
        let behind = self.nodes.iter().filter(|node| self.side_cache(node).is_some()).count().max(1) as u64;
        let size = self.side_cache(node).and_then(|cache| cache.size);
        (size.map(|size| Bytes(size.0 / behind)).into_iter().collect(), true)
    }

    /// Fast memory as a cache, as nodes, or both.
    fn side_cache_mode(&self) -> Option<String> {
        let is_fast = |nature: &NodeNature| matches!(nature.kind, NodeKind::Hbm | NodeKind::Mcdram);
        let is_node = |nature: &NodeNature| is_fast(nature) && self.node(nature.node).is_some_and(|n| !n.has_cpus());
        let is_flat = self.natures().iter().any(is_node);
        let cached: Vec<(u32, SideCache)> =
            self.nodes.iter().filter_map(|node| Some((node.id, self.side_cache(node)?))).collect();
        let Some((_, first)) = cached.first() else {
            return is_flat.then(|| "Flat mode: the fast memory is a node of its own.".into());
        };
        let size = |cache: &SideCache| cache.size.map_or("one".into(), |size| size.to_string());
        let is_told = self.has_side_caches();
        let sizes: Vec<String> = match is_told {
            true => cached.iter().map(|(node, cache)| format!("{} in front of node {node}", size(cache))).collect(),
            false => vec![size(first)],
        };
        let sizes = sizes.join(", ");
        let inferred = if is_told {
            String::new()
        } else {
            format!(" Inferred: {}; membound numa shows whether it is so.", first.says)
        };
        Some(match is_flat {
            true => format!(
                "Hybrid mode: a part of the fast memory is a cache ({sizes}), the rest a node of its own.{inferred}"
            ),
            false => format!("Cache mode: memory-side caches of {sizes}.{inferred}"),
        })
    }

    /// Several nodes with CPUs in one package.
    fn clustering(&self) -> Option<String> {
        let packages = self.packages();
        let with_cpus = self.nodes.iter().filter(|node| node.has_cpus());
        let one_package = |node: &&Node| {
            let cpus = node.cpus.known().into_iter().flat_map(|cpus| cpus.iter());
            let mut packages: Vec<Option<u32>> =
                cpus.map(|cpu| self.cpu(cpu).and_then(|cpu| cpu.package.get())).collect();
            packages.sort_unstable();
            packages.dedup();
            packages.len() == 1 && packages[0].is_some()
        };
        let nodes = with_cpus.filter(one_package).count();
        let each = nodes.checked_div(packages).filter(|each| each * packages == nodes)?;
        let vendor = self.identity.vendor.known().map_or("", String::as_str);
        match (each, vendor) {
            (0, _) => None,
            (1, _) if self.is_knights() => Some(
                "One node to the package: all-to-all, hemisphere or quadrant, which no topology tells apart.".into(),
            ),
            (1, _) => None,
            (each @ (2 | 4), "AuthenticAMD") if self.is_zen() && self.has_several_caches_a_node() => {
                Some(format!("{each} nodes with CPUs in each package: NPS{each}."))
            }
            // A guest has the nodes that it was given.
            (each, "GenuineIntel") if !self.is_virtual() => {
                Some(format!("{each} nodes with CPUs in each package: SNC-{each}."))
            }
            (each, _) => Some(format!("{each} nodes with CPUs in each package.")),
        }
    }

    /// Processors of AMD whose firmware has a setting for nodes in a package: from family 17h on. Those of a guest have the nodes
    /// that it was given.
    fn is_zen(&self) -> bool {
        let signature = self.identity.signature.known().map_or("", String::as_str);
        let family = signature.split('/').next().and_then(|family| family.parse::<u32>().ok());
        !self.is_virtual() && family >= Some(0x17)
    }

    /// Whether nodes are larger than a last-level cache: else each such cache may have been made a node.
    fn has_several_caches_a_node(&self) -> bool {
        let several = |cpus: &CpuSet| {
            let first = cpus.first().and_then(|cpu| self.last_level(cpu));
            first.is_some_and(|cache| cpus.iter().any(|cpu| !cache.cpus.contains(cpu)))
        };
        self.nodes.iter().filter_map(|node| node.cpus.known()).filter(|cpus| !cpus.is_empty()).all(several)
    }
}

/// From the nearest CPUs where the firmware tells those apart, else from the nearest initiators.
fn access(node: &Node) -> Option<&Access> {
    node.access.iter().max_by_key(|access| access.class)
}
