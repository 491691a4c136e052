//! The measured matrix as a topology that hwloc reads (`HWLOC_XMLFILE`, `lstopo --input`): its own description of the
//! machine, with memory attributes for each initiator and node.
//!
//! hwloc's attributes are integers: bandwidths in MiB/s, latencies in ns (hwloc/memattrs.h). Of a memory kind's matrix
//! `ReadBandwidth` is loads, `WriteBandwidth` the faster of regular and non-temporal stores, `Bandwidth` a copy with
//! regular stores (as the triad where that was not measured), each by all cores of the initiator; `Latency` and
//! `ReadLatency` are the chase by one of them. What was not measured is not there.

use membound_core::in_order::{InOrder, distinct};
use std::fmt::Write;

use crate::across::numa::rows::{Numa, NumaInitiator};
use crate::output::xml::escaped;
use crate::report::Report;
use membound_core::experiments::numa::Way;
use membound_core::machine::Machine;
use membound_core::machine::caches::{Cache, CacheKind};
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::nature::NodeKind;
use membound_core::units::utc;

/// A kind of object, outermost first: of objects with the same CPUs the first holds the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Machine,
    Package,
    Group,
    /// Levels fall inwards.
    Cache(std::cmp::Reverse<u32>),
    Core,
    Pu,
}

/// An object that holds CPUs.
struct Object {
    kind: Kind,
    /// The XML attributes that only this kind has, beside its type.
    attributes: String,
    cpus: CpuSet,
    parent: Option<usize>,
    /// NUMA nodes attached to it.
    nodes: Vec<u32>,
}

/// hwloc's flags of an attribute: higher (1) or lower (2) first, and with initiators (4).
const BANDWIDTH_FLAGS: u32 = 1 | 4;
const LATENCY_FLAGS: u32 = 2 | 4;
const MIB: f64 = 1_048_576.0;

/// The topology. `None` where no matrix was measured, or no CPU is known.
pub fn topology(report: &Report) -> Option<String> {
    let numa = report.numa.as_ref()?;
    let machine = &report.machine;
    let mut objects = tree(machine)?;
    attach_nodes(machine, &mut objects);
    let mut xml =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n");
    xml += "<topology version=\"2.0\">\n";
    write_object(machine, &objects, 0, report, &mut xml);
    // After the objects: an initiator may be named by its CPUs alone, a node by its object.
    for (name, flags, value) in ATTRIBUTES {
        xml += &attribute(numa, name, *flags, *value, objects.len());
    }
    xml += "</topology>\n";
    Some(xml)
}

type Value = fn(&Numa, &NumaInitiator, u32) -> Option<f64>;

/// hwloc's names, their flags, and where the value comes from: MiB/s or ns.
const ATTRIBUTES: &[(&str, u32, Value)] = &[
    ("Bandwidth", BANDWIDTH_FLAGS, |numa, from, to| {
        rate(numa, from, to, Way::Copy).or_else(|| rate(numa, from, to, Way::Triad))
    }),
    ("ReadBandwidth", BANDWIDTH_FLAGS, |numa, from, to| rate(numa, from, to, Way::Load)),
    ("WriteBandwidth", BANDWIDTH_FLAGS, |numa, from, to| {
        let stores = [Way::Store, Way::StoreNt].into_iter().filter_map(|way| rate(numa, from, to, way));
        stores.reduce(f64::max)
    }),
    ("Latency", LATENCY_FLAGS, latency),
    ("ReadLatency", LATENCY_FLAGS, latency),
];

fn rate(numa: &Numa, from: &NumaInitiator, to: u32, way: Way) -> Option<f64> {
    let row = numa.row(*numa.memory.first()?, &from.name, to, way, true)?;
    row.payload_bps.map(|rate| rate.value() / MIB)
}

fn latency(numa: &Numa, from: &NumaInitiator, to: u32) -> Option<f64> {
    let row = numa.row(*numa.memory.first()?, &from.name, to, Way::Latency, false)?;
    row.latency_ns.map(|cost| cost.value())
}

fn attribute(numa: &Numa, name: &str, flags: u32, value: Value, objects: usize) -> String {
    let mut values = String::new();
    // hwloc takes a set of CPUs that lies within a known one for the same: small ones must come first, or their values
    // replace those of what holds them (hwloc 2.9, match_internal_location).
    let mut initiators: Vec<&NumaInitiator> = numa.initiators.iter().collect();
    initiators.order_by_key(|initiator| initiator.cpus.len());
    for initiator in initiators {
        for &node in &numa.nodes {
            if let Some(value) = value(numa, initiator, node) {
                let (target, cpus) = (node_index(node, objects), mask(&initiator.cpus));
                let _ = writeln!(
                    values,
                    "    <memattr_value target_obj_type=\"NUMANode\" target_obj_gp_index=\"{target}\" value=\"{value:.0}\" \
                     initiator_cpuset=\"{cpus}\"/>"
                );
            }
        }
    }
    if values.is_empty() {
        return values;
    }
    format!("  <memattr name=\"{name}\" flags=\"{flags}\">\n{values}  </memattr>\n")
}

/// The objects that hold CPUs, each after its parent. `None` without any.
fn tree(machine: &Machine) -> Option<Vec<Object>> {
    let all = machine.online_cpus();
    if all.is_empty() {
        return None;
    }
    let object =
        |kind, cpus: CpuSet, attributes: String| Object { kind, attributes, cpus, parent: None, nodes: Vec::new() };
    let index = |number: u32| format!(" os_index=\"{number}\"");
    let mut objects = vec![object(Kind::Machine, all.clone(), index(0))];
    for package in distinct(machine.cpus.iter().filter_map(|cpu| cpu.package.get())) {
        let cpus = machine.cpus.iter().filter(|cpu| cpu.online && cpu.package.get() == Some(package)).map(|cpu| cpu.id);
        objects.push(object(Kind::Package, cpus.collect(), index(package)));
    }
    for node in machine.nodes.iter().filter_map(|node| node.cpus.known()).map(|cpus| cpus.intersection(&all)) {
        let is_known = objects.iter().any(|object| object.cpus == node);
        if !node.is_empty() && !is_known {
            // hwloc's kind of groups that stand for a NUMA node.
            objects.push(object(Kind::Group, node, " kind=\"1001\" subkind=\"0\"".into()));
        }
    }
    for cache in machine.caches.iter().filter(|cache| cache.holds_data()) {
        let kind = Kind::Cache(std::cmp::Reverse(cache.level));
        objects.push(object(kind, cache.cpus.intersection(&all), cache_attributes(cache)));
    }
    for core in machine.cores() {
        let number = core.first().and_then(|cpu| machine.cpu(cpu)?.core.get()).or(core.first()).unwrap_or_default();
        objects.push(object(Kind::Core, core.intersection(&all), index(number)));
    }
    objects.extend(all.iter().map(|cpu| object(Kind::Pu, CpuSet::from_iter([cpu]), index(cpu))));
    objects.order_by_key(|object| (std::cmp::Reverse(object.cpus.len()), object.kind, object.cpus.first()));
    Some(nested(objects))
}

/// Tells each object its parent: the last before it that holds all its CPUs. One that overlaps another without holding
/// it, or being held, has no place in a tree and is left out.
fn nested(sorted: Vec<Object>) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    for mut object in sorted.into_iter().filter(|object| !object.cpus.is_empty()) {
        let shared = |other: &Object| other.cpus.intersection(&object.cpus).len();
        let is_crossed = objects.iter().any(|other| ![0, object.cpus.len()].contains(&shared(other)));
        if is_crossed {
            continue;
        }
        object.parent = objects.iter().rposition(|other| shared(other) == object.cpus.len());
        objects.push(object);
    }
    objects
}

fn cache_attributes(cache: &Cache) -> String {
    let kind = match cache.kind {
        CacheKind::Unified => 0,
        CacheKind::Data => 1,
        CacheKind::Instruction => 2,
    };
    let ways = cache.ways.get().unwrap_or(0);
    format!(
        " cache_size=\"{}\" depth=\"{}\" cache_linesize=\"{}\" cache_associativity=\"{ways}\" cache_type=\"{kind}\"",
        cache.size.0, cache.level, cache.line.0
    )
}

/// Attaches each node where its CPUs are: to the package or group that has just these, else to the machine. A node
/// without CPUs stands beside the nearest node that has some, if there is one nearest.
fn attach_nodes(machine: &Machine, objects: &mut [Object]) {
    for node in &machine.nodes {
        let near = machine.nearest_with_cpus(node.id);
        let cpus = match near[..] {
            [only] => machine.node(only).and_then(|node| node.cpus.known()),
            _ => None,
        };
        let is_place = |object: &Object| {
            matches!(object.kind, Kind::Package | Kind::Group) && cpus.is_some_and(|cpus| object.cpus == *cpus)
        };
        let at = objects.iter().position(is_place).unwrap_or(0);
        objects[at].nodes.push(node.id);
    }
}

/// Numbers of objects begin at 1; those of nodes come after them.
fn node_index(node: u32, objects: usize) -> u64 {
    objects as u64 + 1 + u64::from(node)
}

/// Nodes that an object sees: its own, those of what holds it, and those of what it holds.
fn nodes_of(objects: &[Object], at: usize) -> CpuSet {
    let ancestors = std::iter::successors(Some(at), |&at| objects[at].parent);
    let is_below =
        |&below: &usize| std::iter::successors(Some(below), |&at| objects[at].parent).any(|above| above == at);
    let below = (0..objects.len()).filter(is_below);
    ancestors.chain(below).flat_map(|at| objects[at].nodes.iter().copied()).collect()
}

fn write_object(machine: &Machine, objects: &[Object], at: usize, report: &Report, xml: &mut String) {
    let object = &objects[at];
    let depth = std::iter::successors(Some(at), |&at| objects[at].parent).count();
    let indent = "  ".repeat(depth);
    let name = match object.kind {
        Kind::Machine => "Machine".into(),
        Kind::Package => "Package".into(),
        Kind::Group => "Group".into(),
        Kind::Cache(level) => format!("L{}Cache", level.0),
        Kind::Core => "Core".into(),
        Kind::Pu => "PU".into(),
    };
    let sets = sets(&object.cpus, &nodes_of(objects, at), object.kind == Kind::Machine);
    let _ = writeln!(xml, "{indent}<object type=\"{name}\"{}{sets} gp_index=\"{}\">", object.attributes, at + 1);
    if object.kind == Kind::Machine {
        let measured = format!("{} on {}, {}", report.tool, report.host, utc(report.started_unix_s));
        let _ = writeln!(xml, "{indent}  <info name=\"MemoryAttributesMeasuredBy\" value=\"{}\"/>", escaped(&measured));
    }
    for &id in &object.nodes {
        let _ = writeln!(xml, "{indent}  {}", node_object(machine, id, object, objects.len()));
    }
    let mut children: Vec<usize> = (0..objects.len()).filter(|&child| objects[child].parent == Some(at)).collect();
    children.order_by_key(|&child| objects[child].cpus.first());
    for child in children {
        write_object(machine, objects, child, report, xml);
    }
    let _ = writeln!(xml, "{indent}</object>");
}

fn node_object(machine: &Machine, id: u32, at: &Object, objects: usize) -> String {
    let nature = machine.natures().into_iter().find(|nature| nature.node == id).map(|nature| nature.kind);
    let subtype = match nature {
        Some(NodeKind::Dram) => " subtype=\"DRAM\"",
        Some(NodeKind::Hbm) => " subtype=\"HBM\"",
        Some(NodeKind::Mcdram) => " subtype=\"MCDRAM\"",
        Some(NodeKind::Device) => " subtype=\"GPUMemory\"",
        _ => "",
    };
    let memory = machine.node(id).and_then(|node| node.total.get()).map_or(0, |total| total.0);
    let sets = sets(&at.cpus, &CpuSet::from_iter([id]), false);
    let index = node_index(id, objects);
    format!(
        "<object type=\"NUMANode\" os_index=\"{id}\"{subtype}{sets} gp_index=\"{index}\" local_memory=\"{memory}\"/>"
    )
}

fn sets(cpus: &CpuSet, nodes: &CpuSet, is_machine: bool) -> String {
    let (cpus, nodes) = (mask(cpus), mask(nodes));
    let mut text =
        format!(" cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\"");
    if is_machine {
        let _ = write!(text, " allowed_cpuset=\"{cpus}\" allowed_nodeset=\"{nodes}\"");
    }
    text
}

/// `0x00000001,0xffffffff`: words of 32 bits, the highest first.
fn mask(set: &CpuSet) -> String {
    let words = set.iter().last().map_or(1, |last| last as usize / 32 + 1);
    let mut bits = vec![0u32; words];
    for id in set.iter() {
        bits[id as usize / 32] |= 1 << (id % 32);
    }
    bits.iter().rev().map(|word| format!("0x{word:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_words_of_32_bits() {
        let check = |list: &str, text: &str| assert_eq!(mask(&CpuSet::parse(list).unwrap()), text);
        check("", "0x00000000");
        check("0-3", "0x0000000f");
        check("0,33", "0x00000002,0x00000001");
    }
}
