//! What `GetLogicalProcessorInformationEx` tells of cores, caches, packages and nodes: records one behind the other, each with
//! its kind, its length and groups of CPUs (winnt.h). Read as bytes, so that it is tested wherever this program is built.

use std::collections::BTreeMap;
use std::fmt::Write;

use membound_core::machine::cpuset::CpuSet;

/// CPUs of a processor group, at most: CPU 3 of group 1 has number 67.
const GROUP: u32 = 64;

/// What several CPUs have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shared {
    Core,
    Package,
    Die,
    Node(u32),
    Cache { level: u8, ways: u8, line: u16, bytes: u32, kind: u32 },
}

/// All that is told; what is cut off or unknown is left out.
pub(crate) fn parse(mut told: &[u8]) -> Vec<(Shared, CpuSet)> {
    let mut found = Vec::new();
    while let (Some(kind), Some(length)) = (u32_at(told, 0), u32_at(told, 4)) {
        let length = length as usize;
        if length < 8 || length > told.len() {
            break;
        }
        let (record, rest) = told.split_at(length);
        found.extend(one(kind, &record[8..]));
        told = rest;
    }
    found
}

fn one(kind: u32, body: &[u8]) -> Option<(Shared, CpuSet)> {
    // Where the number of groups stands, and the groups.
    const USUAL: (usize, usize) = (22, 24);
    let (shared, (count, groups)) = match kind {
        0 => (Shared::Core, USUAL),
        1 | 6 => (Shared::Node(u32_at(body, 0)?), USUAL),
        3 => (Shared::Package, USUAL),
        5 => (Shared::Die, USUAL),
        2 => {
            let [level, ways] = [*body.first()?, *body.get(1)?];
            let cache =
                Shared::Cache { level, ways, line: u16_at(body, 2)?, bytes: u32_at(body, 4)?, kind: u32_at(body, 8)? };
            (cache, (30, 32))
        }
        _ => return None,
    };
    // Before Windows 10 nodes and caches had one group, and no number of them.
    let count = usize::from(u16_at(body, count)?).max(1);
    let of = |at: usize| Some((u64_at(body, groups + 16 * at)?, u16_at(body, groups + 16 * at + 8)?));
    let all = (0..count).map_while(of).flat_map(|(mask, group)| {
        (0..GROUP).filter(move |bit| mask >> bit & 1 == 1).map(move |bit| u32::from(group) * GROUP + bit)
    });
    let cpus: CpuSet = all.collect();
    // A node may be of memory alone.
    let is_told = matches!(shared, Shared::Node(_)) || !cpus.is_empty();
    is_told.then_some((shared, cpus))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The same by the names and in the form of Linux' files.
pub(crate) fn texts(told: &[(Shared, CpuSet)]) -> BTreeMap<String, String> {
    const CPU: &str = "sys/devices/system/cpu";
    let mut texts = BTreeMap::new();
    let mut put = |path: String, text: String| drop(texts.insert(path, text));
    let cores = || told.iter().filter(|(shared, _)| *shared == Shared::Core).map(|(_, cpus)| cpus);
    let all: CpuSet = cores().flat_map(|cpus| cpus.iter()).collect();
    put(format!("{CPU}/online"), all.to_string());
    for (number, cpus) in cores().enumerate() {
        for cpu in cpus.iter() {
            put(format!("{CPU}/cpu{cpu}/topology/core_id"), number.to_string());
            put(format!("{CPU}/cpu{cpu}/topology/thread_siblings_list"), cpus.to_string());
        }
    }
    for (kind, file) in [(Shared::Package, "physical_package_id"), (Shared::Die, "die_id")] {
        for (number, (_, cpus)) in told.iter().filter(|(shared, _)| *shared == kind).enumerate() {
            cpus.iter().for_each(|cpu| put(format!("{CPU}/cpu{cpu}/topology/{file}"), number.to_string()));
        }
    }
    let mut nodes: BTreeMap<u32, CpuSet> = BTreeMap::new();
    let mut caches: BTreeMap<u32, u32> = BTreeMap::new();
    for (shared, cpus) in told {
        match shared {
            // With several groups a node is told once for each.
            Shared::Node(node) => {
                let before = nodes.entry(*node).or_insert_with(|| CpuSet::from_iter([]));
                *before = before.iter().chain(cpus.iter()).collect();
            }
            Shared::Cache { level, ways, line, bytes, kind } => {
                let Some(kind) = ["Unified", "Instruction", "Data"].get(*kind as usize) else { continue };
                for cpu in cpus.iter() {
                    let index = caches.entry(cpu).or_default();
                    let folder = format!("{CPU}/cpu{cpu}/cache/index{index}");
                    *index += 1;
                    put(format!("{folder}/level"), level.to_string());
                    put(format!("{folder}/type"), (*kind).into());
                    put(format!("{folder}/size"), bytes.to_string());
                    put(format!("{folder}/coherency_line_size"), line.to_string());
                    // 255 means fully associative, which has as many ways as lines.
                    let ways = if *ways == u8::MAX { bytes / u32::from(*line).max(1) } else { u32::from(*ways) };
                    put(format!("{folder}/ways_of_associativity"), ways.to_string());
                    put(format!("{folder}/shared_cpu_list"), cpus.to_string());
                }
            }
            _ => {}
        }
    }
    if !nodes.is_empty() {
        put("sys/devices/system/node/online".into(), nodes.keys().copied().collect::<CpuSet>().to_string());
    }
    for (node, cpus) in nodes {
        put(format!("sys/devices/system/node/node{node}/cpulist"), cpus.to_string());
    }
    texts
}

/// Memory, as `/proc/meminfo` and the nodes' own files have it.
pub(crate) fn meminfo(prefix: &str, fields: &[(&str, u64)]) -> String {
    fields.iter().fold(String::new(), |mut text, (name, bytes)| {
        let _ = writeln!(text, "{prefix}{name}: {} kB", bytes >> 10);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::machine::Machine;
    use membound_core::machine::source::{Processor, Source};
    use membound_core::units::Bytes;
    use proptest::prelude::*;

    /// A record: its kind, its body up to the number of groups, and the groups.
    fn record(kind: u32, body: &[u8], groups: &[(u64, u16)]) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes.extend(body);
        bytes.extend((groups.len() as u16).to_le_bytes());
        for (mask, group) in groups {
            bytes.extend(mask.to_le_bytes());
            bytes.extend(group.to_le_bytes());
            bytes.extend([0; 6]);
        }
        let length = bytes.len() as u32;
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    fn cache(level: u8, kind: u8, bytes: u32, groups: &[(u64, u16)]) -> Vec<u8> {
        let mut body = vec![level, 8, 64, 0];
        body.extend(bytes.to_le_bytes());
        body.extend([kind, 0, 0, 0]);
        body.extend([0; 18]);
        record(2, &body, groups)
    }

    fn node(number: u8, groups: &[(u64, u16)]) -> Vec<u8> {
        let mut body = vec![0; 22];
        body[0] = number;
        record(1, &body, groups)
    }

    /// Two packages of two cores with two threads each, the second in a processor group of its own.
    fn two_groups() -> Vec<u8> {
        let group = |group: u16| {
            let all = [(0b1111, group)];
            let mut bytes = [record(3, &[0; 22], &all), node(group as u8, &all)].concat();
            for core in [0b11, 0b1100] {
                bytes.extend(record(0, &[0; 22], &[(core, group)]));
                bytes.extend(cache(1, 2, 32 << 10, &[(core, group)]));
                bytes.extend(cache(1, 1, 32 << 10, &[(core, group)]));
                bytes.extend(cache(2, 0, 1 << 20, &[(core, group)]));
            }
            bytes.extend(cache(3, 0, 32 << 20, &all));
            bytes
        };
        [group(0), group(1)].concat()
    }

    #[test]
    fn a_machine_of_two_groups_is_described() {
        let mut texts = texts(&parse(&two_groups()));
        texts.insert("proc/meminfo".into(), meminfo("", &[("MemTotal", 64 << 30), ("MemAvailable", 48 << 30)]));
        let node = "sys/devices/system/node/node1/meminfo";
        texts.insert(node.into(), meminfo("Node 1 ", &[("MemTotal", 32 << 30), ("MemFree", 16 << 30)]));
        let machine = Machine::from_source(&Source::told("Windows", texts, Processor::default()));
        let ids: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 64, 65, 66, 67]);
        assert_eq!((machine.packages(), machine.cores().len()), (2, 4));
        assert_eq!(machine.cpus[5].core_cpus.to_string(), "64-65");
        assert_eq!(machine.cpus[5].node.get(), Some(1));
        let sizes: Vec<(u32, Bytes)> = machine.data_caches(66).iter().map(|cache| (cache.level, cache.size)).collect();
        assert_eq!(sizes, [(1, Bytes::kib(32)), (2, Bytes::mib(1)), (3, Bytes::mib(32))]);
        assert_eq!(machine.nodes[1].total.get(), Some(Bytes::gib(32)));
        assert_eq!(machine.memory.available.get(), Some(Bytes::gib(48)));
        assert!(machine.settings.thp.reason().unwrap().contains("Windows does not tell it"));
    }

    #[test]
    fn a_node_may_span_groups() {
        let told = parse(&node(0, &[(0b11, 0), (0b1, 1)]));
        assert_eq!(told, [(Shared::Node(0), CpuSet::from_iter([0, 1, 64]))]);
        // Or be told once for each.
        let twice = [node(0, &[(0b11, 0)]), node(0, &[(0b1, 1)])].concat();
        assert_eq!(texts(&parse(&twice))["sys/devices/system/node/node0/cpulist"], "0-1,64");
    }

    #[test]
    fn a_node_may_be_of_memory_alone() {
        let told = parse(&[node(0, &[(0b11, 0)]), node(2, &[(0, 0)]), node(3, &[])].concat());
        let texts = texts(&told);
        assert_eq!(texts["sys/devices/system/node/online"], "0,2-3");
        assert_eq!(
            (&*texts["sys/devices/system/node/node0/cpulist"], &*texts["sys/devices/system/node/node2/cpulist"]),
            ("0-1", "")
        );
        let machine = Machine::from_source(&Source::told("Windows", texts, Processor::default()));
        assert_eq!(machine.nodes[1].cpus.known(), Some(&CpuSet::from_iter([])));
    }

    proptest! {
        #[test]
        fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0..400usize, to in any::<u8>()) {
            texts(&parse(&bytes));
            bytes.splice(0..0, two_groups());
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
            texts(&parse(&bytes));
        }
    }
}
