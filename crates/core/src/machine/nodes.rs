//! Locality domains (NUMA nodes): their CPUs, memory and what the firmware says about its speed; memory tiers; DAX devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::cpuset::CpuSet;
use crate::machine::fact::Fact;
use crate::machine::pages::{HugePool, huge_pools, meminfo};
use crate::machine::source::Source;
use crate::units::{Bytes, BytesPerSecond, Nanoseconds};

const FOLDER: &str = "sys/devices/system/node";

/// A locality domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// The kernel's number. Numbers may be sparse.
    pub id: u32,
    /// Its CPUs: the empty set for a node of memory alone.
    pub cpus: Fact<CpuSet>,
    /// Relative distance to every node, 10 being local.
    pub distances: Fact<Vec<Distance>>,
    /// Memory the kernel manages there, bytes. May be less than the machine has while the kernel still initialises it.
    pub total: Fact<Bytes>,
    /// Free memory, bytes, without the page cache.
    pub free: Fact<Bytes>,
    /// Page cache, bytes.
    pub page_cache: Fact<Bytes>,
    /// Pools of huge pages of this node.
    pub huge_pools: Vec<HugePool>,
    /// Caches between the processor's caches and this memory. None on most machines.
    pub memory_side_caches: Vec<MemorySideCache>,
    /// What the firmware says about the speed of this memory. None where it says nothing.
    pub access: Vec<Access>,
}

/// A relative distance as the firmware gives it; no unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distance {
    /// Number of the other node.
    pub node: u32,
    /// 10 is local, 20 twice as far.
    pub distance: u32,
}

/// A cache in front of a node's memory, such as HBM in cache mode or DRAM in front of persistent memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySideCache {
    /// 1 is the nearest to the memory.
    pub level: u32,
    /// Capacity in bytes.
    pub size: Fact<Bytes>,
    /// Bytes in a line.
    pub line: Fact<Bytes>,
    /// `direct-mapped`, `indexed` (complex) or `other`.
    pub indexing: Fact<String>,
    /// `write-back`, `write-through` or `other`.
    pub write_policy: Fact<String>,
}

/// What the firmware (ACPI HMAT or CDAT) says about the speed of a node's memory, seen from its best initiators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Access {
    /// 0: from the nearest initiators of any sort; 1: from the nearest CPUs.
    pub class: u32,
    /// The nodes that these values hold for.
    pub initiators: CpuSet,
    /// Bytes per second.
    pub read_bandwidth: Fact<BytesPerSecond>,
    /// Bytes per second.
    pub write_bandwidth: Fact<BytesPerSecond>,
    /// Nanoseconds.
    pub read_latency: Fact<Nanoseconds>,
    /// Nanoseconds.
    pub write_latency: Fact<Nanoseconds>,
}

/// Nodes of similar speed, as the kernel groups them; a lower number is faster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tier {
    /// The kernel's number.
    pub id: u32,
    /// Numbers of its nodes.
    pub nodes: Fact<CpuSet>,
}

/// Memory that is (or was) a device: persistent memory, HBM or CXL memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DaxDevice {
    /// Such as `dax0.0`.
    pub name: String,
    /// Capacity in bytes.
    pub size: Fact<Bytes>,
    /// The node it becomes when the kernel takes it as memory.
    pub target_node: Fact<u32>,
    /// `kmem` when the kernel has taken it as memory, `device_dax` when programs map it themselves.
    pub driver: Fact<String>,
}

/// All online nodes, ascending.
pub(crate) fn read(source: &Source) -> Vec<Node> {
    let ids = source.numbered(FOLDER, "node");
    ids.iter().map(|&id| one(source, id, &ids)).collect()
}

fn one(source: &Source, id: u32, ids: &[u32]) -> Node {
    let folder = format!("{FOLDER}/node{id}");
    let file = format!("{folder}/meminfo");
    let text = source.text(&file);
    Node {
        id,
        cpus: source.list(&format!("{folder}/cpulist")),
        distances: distances(source, &folder, ids),
        total: meminfo(&text, &file, "MemTotal"),
        free: meminfo(&text, &file, "MemFree"),
        page_cache: meminfo(&text, &file, "FilePages"),
        huge_pools: huge_pools(source, &format!("{folder}/hugepages")),
        memory_side_caches: memory_side_caches(source, &format!("{folder}/memory_side_cache")),
        access: (0..2)
            .filter_map(|class| access(source, &format!("{folder}/access{class}/initiators"), class))
            .collect(),
    }
}

/// The file has one number for each online node, in ascending order, however sparse their numbers are.
fn distances(source: &Source, folder: &str, ids: &[u32]) -> Fact<Vec<Distance>> {
    source.text(&format!("{folder}/distance")).and_then(|text| {
        let numbers: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
        match numbers {
            Ok(numbers) if numbers.len() == ids.len() => {
                let pairs = ids.iter().zip(numbers);
                Fact::Known(pairs.map(|(&node, distance)| Distance { node, distance }).collect())
            }
            _ => Fact::absent(format!("/{folder}/distance has not one number for each of {} nodes", ids.len())),
        }
    })
}

fn memory_side_caches(source: &Source, folder: &str) -> Vec<MemorySideCache> {
    let levels = source.numbered(folder, "index");
    let caches = levels.iter().map(|level| {
        let folder = format!("{folder}/index{level}");
        MemorySideCache {
            level: *level,
            size: source.size(&format!("{folder}/size")),
            line: source.size(&format!("{folder}/line_size")),
            indexing: code(source, &format!("{folder}/indexing"), ["direct-mapped", "indexed", "other"]),
            write_policy: code(source, &format!("{folder}/write_policy"), ["write-back", "write-through", "other"]),
        }
    });
    caches.collect()
}

/// Codes of the kernel's `enum cache_indexing` and `cache_write_policy` (include/linux/node.h).
fn code(source: &Source, path: &str, names: [&str; 3]) -> Fact<String> {
    source.number::<usize>(path).and_then(|code| {
        let name = names.get(code).map(|name| name.to_string());
        Fact::from_option(name, || format!("/{path} says {code}, which is no known code"))
    })
}

fn access(source: &Source, folder: &str, class: u32) -> Option<Access> {
    let names = source.names(folder);
    if names.is_empty() {
        return None;
    }
    // The kernel's unit is MiB/s (Documentation/admin-guide/mm/numaperf.rst).
    let bandwidth = |file| reported(source, folder, file).map(|mib| BytesPerSecond(mib as f64 * 1048576.0));
    let latency = |file| reported(source, folder, file).map(|ns| Nanoseconds(ns as f64));
    Some(Access {
        class,
        initiators: source.numbered(folder, "node").into_iter().collect(),
        read_bandwidth: bandwidth("read_bandwidth"),
        write_bandwidth: bandwidth("write_bandwidth"),
        read_latency: latency("read_latency"),
        write_latency: latency("write_latency"),
    })
}

fn reported(source: &Source, folder: &str, file: &str) -> Fact<u64> {
    let path = format!("{folder}/{file}");
    source.number(&path).and_then(|value| match value {
        0 => Fact::absent(format!("/{path} says 0: the firmware reports none")),
        _ => Fact::Known(value),
    })
}

/// What programs can have of a node's memory at most: what is free, and the page cache, which can be dropped. Bytes.
pub fn node_available(source: &Source, id: u32) -> Fact<Bytes> {
    let file = format!("{FOLDER}/node{id}/meminfo");
    let text = source.text(&file);
    let field = |name| meminfo(&text, &file, name);
    let cached = field("FilePages").and_then(|all| field("Shmem").map(|shared| all.0.saturating_sub(shared.0)));
    field("MemFree").and_then(|free| cached.map(|cached| Bytes(free.0.saturating_add(cached))))
}

/// Huge pages of this size that programs can have on a node: those that are free there, and those that may be made beyond
/// the pools.
pub fn node_huge_pages(source: &Source, id: u32, page: Bytes) -> Fact<u64> {
    let name = format!("hugepages-{}kB", page.0 >> 10);
    let all = format!("sys/kernel/mm/hugepages/{name}");
    let count = |path: String| source.number::<u64>(&path).get().unwrap_or(0);
    let more = count(format!("{all}/nr_overcommit_hugepages"));
    let more = more.saturating_sub(count(format!("{all}/surplus_hugepages")));
    source.number::<u64>(&format!("{FOLDER}/node{id}/hugepages/{name}/free_hugepages")).map(|free| free + more)
}

/// The kernel's memory tiers. None on kernels before 6.1.
pub(crate) fn tiers(source: &Source) -> Vec<Tier> {
    const TIERS: &str = "sys/devices/virtual/memory_tiering";
    let ids = source.numbered(TIERS, "memory_tier");
    ids.into_iter().map(|id| Tier { id, nodes: source.list(&format!("{TIERS}/memory_tier{id}/nodelist")) }).collect()
}

/// DAX devices, by name.
pub(crate) fn dax(source: &Source) -> Vec<DaxDevice> {
    const DEVICES: &str = "sys/bus/dax/devices";
    let device = |name: String| DaxDevice {
        size: source.size(&format!("{DEVICES}/{name}/size")),
        target_node: source.number::<i64>(&format!("{DEVICES}/{name}/target_node")).and_then(|node| {
            Fact::from_option(u32::try_from(node).ok(), || format!("{name} has no node of its own ({node})"))
        }),
        driver: source.link_name(&format!("{DEVICES}/{name}/driver")),
        name,
    };
    source.names(DEVICES).into_iter().map(device).collect()
}
