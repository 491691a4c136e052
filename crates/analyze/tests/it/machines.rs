//! Machines: recorded ones (`crates/core/tests/machines`), and made-up ones for what can go wrong; facts and how they look.

use std::fs;

use membound_analyze::across::sections;
use membound_analyze::output as view;
use membound_core::experiments as plan;
use membound_core::experiments::frame::Frame;
use membound_core::kernel::isa::Isa;
use membound_core::machine::Machine;
use membound_core::machine::cpus::CoreKind;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::fact::Fact;
use membound_core::machine::nature::NodeKind;
use membound_core::machine::source::{Hypervisor, MachineError};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::units::{Bytes, BytesPerSecond, Hertz};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use crate::common::facts::{check_json, check_order};
use crate::common::recorded;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

fn text(machine: &Machine) -> String {
    let drawn = view::terminal::section::document(&sections::machine::document(machine));
    anstream::adapter::strip_str(&drawn).to_string()
}

/// Reads a recorded machine, compares its view and key facts with the snapshots, and its JSON with the schema.
fn recorded(name: &'static str) -> Machine {
    let machine = recorded::recorded(name);
    let text = text(&machine);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(format!("{name}-text"), text);
    insta::assert_snapshot!(format!("{name}-json"), serde_json::to_string_pretty(&key_facts(&machine)).unwrap());
    check_json(&machine);
    check_order(&machine);
    machine
}

fn key_facts(machine: &Machine) -> serde_json::Value {
    let kinds: Vec<_> = machine.kinds().into_iter().map(|(kind, cpus)| json!([kind, cpus])).collect();
    let nodes: Vec<_> = machine.nodes.iter().map(|node| json!([node.id, node.cpus, node.total])).collect();
    let usable = machine.usable_cpus();
    let mut facts = json!({
        "identity": machine.identity,
        "first_cpu": machine.cpus[0],
        "kinds": kinds,
        "nodes": nodes,
        "usable": usable,
        "order": machine.topology_order(&usable).into_iter().take(24).map(|id| id.to_string()).collect::<Vec<_>>().join(" "),
        "last_level_bytes": machine.last_level_bytes(&usable),
        "available": machine.available_memory(),
        "limits": machine.limits,
        "unread": machine.unread,
    });
    facts.sort_all_objects();
    facts
}

fn distances(machine: &Machine, node: usize) -> Vec<u32> {
    machine.nodes[node].distances.known().unwrap().iter().map(|distance| distance.distance).collect()
}

#[test]
fn eight_nodes_of_two_cores() {
    let machine = recorded("16amd64-8n2c");
    assert_eq!((machine.packages(), machine.cores().len(), machine.nodes.len()), (8, 16, 8));
    assert!(machine.nodes.iter().all(|node| node.cpus.known().unwrap().len() == 2));
    assert_eq!(distances(&machine, 0), [10, 20, 20, 20, 20, 20, 20, 20]);
    // No third level: each core's own second level is its last.
    assert_eq!(machine.last_level_bytes(&set("0-15")), Some(Bytes::mib(16)));
    assert_eq!(machine.identity.tsc.invariant, Fact::Known(false));
    assert_eq!(machine.memory.total.reason(), Some("/proc/meminfo is not there"));
}

#[test]
fn four_sockets_of_paired_cores() {
    let machine = recorded("64amd64-4s2n4ca2co");
    // Two cores share a floating-point unit and a second-level cache, but they are cores.
    assert_eq!((machine.packages(), machine.cores().len(), machine.nodes.len()), (4, 64, 8));
    let caches = machine.data_caches(9);
    let levels: Vec<_> = caches.iter().map(|cache| (cache.level, cache.size, cache.cpus.to_string())).collect();
    assert_eq!(
        levels,
        [(1, Bytes::kib(16), "9".into()), (2, Bytes::mib(2), "8-9".into()), (3, Bytes::mib(6), "8-15".to_string())]
    );
    assert_eq!(machine.last_level_bytes(&set("0-63")), Some(Bytes::mib(112)));
}

#[test]
fn sparse_node_numbers() {
    let machine = recorded("48amd64-4pa2n6c-sparse");
    assert_eq!((machine.packages(), machine.cores().len()), (4, 48));
    let ids: Vec<u32> = machine.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, [0, 1, 2, 33, 34, 45, 72, 73]);
    assert!(machine.nodes.iter().all(|node| node.cpus.known().unwrap().len() == 6));
    let far = &machine.nodes[7].distances.known().unwrap()[6];
    assert_eq!((far.node, far.distance), (72, 16));
}

#[test]
fn hybrid_cores() {
    let machine = recorded("20em64t-hybrid-1p6c2t+2ca4co1t");
    let kinds = machine.kinds();
    assert_eq!(kinds, [(CoreKind::Performance, set("0-11")), (CoreKind::Efficiency, set("12-19"))]);
    let threads =
        |kind: usize| kinds[kind].1.iter().map(|id| machine.cpu(id).unwrap().core_cpus.len()).collect::<Vec<_>>();
    assert_eq!(threads(0), [2; 12]);
    assert_eq!(threads(1), [1; 8]);
    assert_eq!(machine.cores().len(), 14);
    let order = machine.topology_order(&set("0-19"));
    assert_eq!(order, [0, 2, 4, 6, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19, 1, 3, 5, 7, 9, 11]);
    let clusters: Vec<_> = (12..20).map(|id| machine.cpu(id).unwrap().cluster.get().unwrap()).collect();
    assert_eq!(clusters, [48, 48, 48, 48, 56, 56, 56, 56]);
    assert_eq!(machine.data_caches(0)[0].size, Bytes::kib(48));
    assert_eq!(machine.data_caches(12)[0].size, Bytes::kib(32));
    let clock = machine.cpus[4].frequency.known().unwrap();
    assert_eq!((clock.hardware_max.get(), clock.base.get()), (Some(Hertz(5.2e9)), Some(Hertz(1.9e9))));
    assert_eq!(machine.identity.hypervisor, Fact::Known(Hypervisor::None));
    assert_eq!(machine.identity.microcode, Fact::Known("0x4119".into()));
    assert_eq!(machine.settings.boost, Fact::Known(true));
}

#[test]
fn kinds_of_memory() {
    let machine = recorded("fakeheteromemtiers");
    let ids: Vec<u32> = machine.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, [0, 1, 2, 4, 6, 8, 9]);
    let bare: Vec<u32> = machine.nodes.iter().filter(|n| n.cpus.known().unwrap().is_empty()).map(|n| n.id).collect();
    assert_eq!(bare, [4, 6, 8, 9]);
    let read: Vec<u64> =
        machine.nodes.iter().map(|n| n.access[0].read_bandwidth.get().unwrap().0 as u64 >> 20).collect();
    assert_eq!(read, [1000, 1000, 10000, 10000, 100, 100, 100]);
    assert_eq!(machine.nodes[3].access[0].write_bandwidth, Fact::Known(BytesPerSecond(10000.0 * 1048576.0)));
    assert!(machine.nodes[0].access[0].read_latency.reason().unwrap().contains("says 0"));
    assert_eq!(machine.nodes[3].access[0].initiators, set("1"));
    let taken = machine.dax.iter().filter(|dax| dax.driver == Fact::Known("kmem".into()));
    assert_eq!(taken.map(|dax| dax.target_node.get().unwrap()).collect::<CpuSet>(), set("2,4,6,8-9"));
    assert_eq!(machine.dax.len(), 8);
    assert_eq!(machine.identity.hypervisor, Fact::Known(Hypervisor::Vendor("QEMU".into())));
    assert!(machine.limits.memory.known().unwrap().is_empty());
}

#[test]
fn memory_side_caches() {
    let machine = recorded("memorysidecaches");
    assert_eq!((machine.packages(), machine.cores().len(), machine.cpus.len()), (2, 40, 80));
    for node in &machine.nodes {
        let [cache] = &node.memory_side_caches[..] else { panic!("node {}", node.id) };
        assert_eq!((cache.level, cache.size.get(), cache.line.get()), (1, Some(Bytes::gib(96)), Some(Bytes(64))));
        assert_eq!(cache.indexing, Fact::Known("direct-mapped".into()));
        assert_eq!(cache.write_policy, Fact::Known("write-back".into()));
    }
    assert_eq!(machine.nodes.len(), 4);
    assert_eq!(distances(&machine, 1), [21, 10, 21, 11]);
    assert_eq!(machine.nodes[0].cpus.known().unwrap().len(), 20);
    // CPUs are dealt out to the nodes like cards; threads stay together all the same.
    let order = machine.topology_order(&set("0-79"));
    assert_eq!(order[..4], [0, 2, 4, 6]);
    let package = |id: &u32| machine.cpu(*id).unwrap().package.get();
    assert!(order[..20].iter().all(|id| package(id) == package(&order[0])));
}

#[test]
fn memory_modules_and_dax() {
    let machine = recorded("32em64t-2n8c+dax+nvme+mic+dimms");
    assert_eq!((machine.packages(), machine.cores().len(), machine.nodes.len()), (2, 16, 2));
    let dimms = machine.dimms.known().unwrap();
    assert_eq!(dimms.len(), 24);
    let filled: Vec<_> = dimms.iter().filter(|dimm| dimm.size.known().is_some()).collect();
    assert_eq!(filled.len(), 8);
    for dimm in &filled {
        assert_eq!(
            (dimm.size.get(), dimm.configured_mt_s.get(), dimm.ranks.get()),
            (Some(Bytes::gib(4)), Some(1600), Some(2))
        );
        assert_eq!((dimm.data_width_bits.get(), dimm.total_width_bits.get()), (Some(64), Some(72)));
        assert_eq!(dimm.technology, Fact::Known("DDR3".into()));
        assert_eq!(dimm.part_number, Fact::Known("HMT351R7CFR8C-PB".into()));
    }
    assert_eq!(filled[0].slot, Fact::Known("DIMM_A1".into()));
    // 8 modules x 8 bytes x 1600 MT/s
    assert_eq!(machine.dimm_peak(), Some(BytesPerSecond(102.4e9)));
    let names: Vec<_> = machine.dax.iter().map(|dax| (dax.name.as_str(), dax.target_node.get())).collect();
    assert_eq!(names, [("dax0.0", Some(4)), ("dax1.3", Some(5)), ("dax1.4", Some(5))]);
    assert_eq!(machine.dax[2].driver, Fact::Known("kmem".into()));
    assert_eq!(machine.dax[0].size, Fact::Known(Bytes(107808292864)));
}

#[test]
fn a_cpuset_hides_cpus() {
    let machine = recorded("32amd64-4s2n4c-cgroup2");
    assert_eq!((machine.packages(), machine.online_cpus(), machine.nodes.len()), (4, set("0-31"), 8));
    assert_eq!(machine.limits.cpuset_cpus, Fact::Known(set("0-5")));
    assert_eq!(machine.limits.cpuset_nodes, Fact::Known(set("0-5")));
    assert_eq!(machine.usable_cpus(), set("0-5"));
    assert_eq!(machine.topology_order(&machine.usable_cpus()).len(), 6);
}

#[test]
fn arm_with_clusters() {
    let machine = recorded("128arm-2pa2n8cluster4co");
    assert_eq!((machine.packages(), machine.cores().len(), machine.nodes.len()), (2, 128, 4));
    assert_eq!(machine.kinds(), [(CoreKind::Uniform, set("0-127"))]);
    assert_eq!(machine.identity.architecture, Fact::Known("aarch64".into()));
    assert_eq!(machine.identity.model, Fact::Known("HiSilicon TSV110 (0xd01)".into()));
    let arm = machine.identity.arm.as_ref().unwrap();
    assert!(arm.features.known().is_some_and(|names| names.split(' ').any(|name| name == "atomics")), "{arm:?}");
    let clusters: std::collections::BTreeSet<_> =
        machine.cpus.iter().map(|cpu| (cpu.package.get(), cpu.cluster.get().unwrap())).collect();
    assert_eq!(clusters.len(), 32);
    assert!(machine.cpus.iter().all(|cpu| cpu.die.reason().is_some_and(|reason| reason.contains("says -1"))));
    assert_eq!(machine.last_level(0).unwrap().line, Bytes(128));
    assert_eq!(machine.last_level_bytes(&set("0-127")), Some(Bytes::mib(128)));
    assert_eq!(machine.pages.base, Fact::Known(Bytes::kib(4)), "hwloc's own file tells it");
}

#[test]
fn arm_with_two_designs_of_cores() {
    let machine = recorded("nvidia-dgx-gb10");
    assert_eq!((machine.packages(), machine.cores().len(), machine.nodes.len()), (1, 20, 1));
    // Ten X925 and ten A725, of which some have a higher clock, and with it a higher capacity.
    assert_eq!(machine.kinds(), [(CoreKind::Performance, set("5-9,15-19")), (CoreKind::Efficiency, set("0-4,10-14"))]);
    let capacities: std::collections::BTreeSet<_> = machine.cpus.iter().map(|cpu| cpu.capacity.get()).collect();
    assert!(capacities.len() > 2, "{capacities:?}");
    assert_eq!(machine.identity.model, Fact::Known("ARM Cortex-X925 (0xd85) + Cortex-A725 (0xd87)".into()));
    assert_eq!(machine.identity.product, Fact::Known("NVIDIA_DGX_Spark".into()));
    assert_eq!(machine.pages.base, Fact::Known(Bytes::kib(4)));
    let clock = |cpu: usize| machine.cpus[cpu].frequency.known().unwrap().base.get();
    assert_eq!((clock(5), clock(0)), (Some(Hertz(3.9e9)), Some(Hertz(2.808e9))), "the firmware's nominal frequencies");
    assert_eq!(machine.last_level(0).unwrap().size, Bytes::mib(8));
    assert_eq!(machine.last_level(19).unwrap().size, Bytes::mib(16));
    assert_eq!(machine.caches.iter().filter(|cache| cache.level == 2).count(), 20);
}

/// A phone, whose kernel names the greatest frequency of the hardware and not of the governor.
#[test]
fn arm_with_three_designs_of_cores() {
    let machine = recorded("9arm-google-pixel-8");
    let designs = "ARM Cortex-A510 (0xd46) + Cortex-A715 (0xd4d) + Cortex-X3 (0xd4e)";
    assert_eq!(machine.identity.model, Fact::Known(designs.into()));
    assert_eq!(machine.identity.signature, Fact::Known("r1p1 + r1p0 + r1p0".into()));
    let kinds =
        [(CoreKind::Performance, set("8")), (CoreKind::Efficiency, set("4-7")), (CoreKind::LowPower, set("0-3"))];
    assert_eq!(machine.kinds(), kinds);
    let clock = machine.cpus[0].frequency.known().unwrap();
    assert_eq!((clock.max.get(), clock.hardware_max.get()), (None, Some(Hertz(1.704e9))));
    assert!(text(&machine).contains("324 MHz to 1.7"), "{}", text(&machine));
}

/// A 32-bit program's view of a phone: the kernel's model name names no model.
#[test]
fn arm_with_two_designs_and_a_cache_that_they_share() {
    let machine = recorded("8arm-samsung-galaxy-s9");
    let designs = "Qualcomm Kryo-3xx-Gold (0x802) + Kryo-3xx-Silver (0x803)";
    assert_eq!(machine.identity.model, Fact::Known(designs.into()));
    assert_eq!(machine.identity.signature, Fact::Known("r6p13 + r7p12".into()));
    assert_eq!(machine.identity.product, Fact::Known("Qualcomm Technologies, Inc SDM845".into()));
    assert_eq!(machine.kinds(), [(CoreKind::Performance, set("4-7")), (CoreKind::Efficiency, set("0-3"))]);
    let caches = |cpu| machine.data_caches(cpu).iter().map(|cache| cache.size).collect::<Vec<_>>();
    assert_eq!(caches(0), [Bytes::kib(32), Bytes::kib(128), Bytes::mib(2)]);
    assert_eq!(caches(7), [Bytes::kib(64), Bytes::kib(256), Bytes::mib(2)]);
    // The last one, and four times 128 and 256 KiB beside it.
    assert_eq!(machine.last_level_bytes(&set("0-7")), Some(Bytes::kib(2048 + 4 * (128 + 256))));
}

#[test]
fn arm_with_one_design() {
    let machine = recorded("4arm-google-pixel-c");
    assert_eq!(machine.identity.model, Fact::Known("ARM Cortex-A57 (0xd07)".into()));
    assert_eq!(machine.identity.signature, Fact::Known("r1p1".into()));
    assert_eq!(machine.last_level(3).unwrap().cpus, set("0-3"));
    assert!(text(&machine).contains("204 MHz to 1.9"), "{}", text(&machine));
    let machine = recorded("6arm-cavium-thunderx");
    assert_eq!((machine.packages(), machine.cores().len(), machine.caches.len()), (1, 6, 0));
    assert_eq!(machine.identity.model, Fact::Known("Cavium ThunderX (0x0a1)".into()));
    assert_eq!(machine.identity.arm.as_ref().unwrap().features.known().map(|f| f.contains("atomics")), Some(true));
}

/// A board without firmware tables says what it is in its device tree.
#[test]
fn an_arm_boards_name_is_in_its_device_tree() {
    let cpuinfo = ("proc/cpuinfo", "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0b\n");
    let tree = Tree::new(&[cpuinfo, ("sys/firmware/devicetree/base/model", "Raspberry Pi 5 Model B Rev 1.0\0")]);
    tree.cpu(0, "64K");
    assert_eq!(tree.machine().identity.product, Fact::Known("Raspberry Pi 5 Model B Rev 1.0".into()));
}

/// No flag of an ARM processor says so; firmware does, by a list of words with zero bytes between them.
#[test]
fn an_arm_guest_is_known_by_its_device_tree() {
    let cpuinfo = ("proc/cpuinfo", "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0c\n");
    let hypervisor = |file: &str, words: &str| {
        let tree = Tree::new(&[cpuinfo, (&format!("sys/firmware/devicetree/base/{file}"), words)]);
        tree.cpu(0, "64K");
        tree.machine().identity.hypervisor
    };
    let named = |name: &str| Fact::Known(Hypervisor::Vendor(name.into()));
    assert_eq!(hypervisor("compatible", "linux,dummy-virt\0"), named("QEMU"));
    assert_eq!(hypervisor("hypervisor/compatible", "xen,xen-4.17\0xen,xen\0"), named("Xen"));
    let reason = hypervisor("compatible", "nvidia,p3737\0nvidia,tegra234\0");
    assert_eq!(reason.reason(), Some("an ARM processor has no such flag"));
}

/// A kernel that tells in a paragraph of its own what all cores are.
#[test]
fn arm_of_32_bits() {
    let machine = recorded("2arm-2c");
    assert_eq!((machine.packages(), machine.cores().len(), machine.nodes.len()), (1, 2, 0));
    assert_eq!(machine.identity.architecture, Fact::Known("arm".into()));
    assert_eq!(machine.identity.arm, None, "what 64-bit processors tell");
    assert_eq!(machine.identity.vendor, Fact::Known("ARM".into()));
    assert_eq!(machine.identity.model, Fact::Known("ARM Cortex-A9 (0xc09)".into()));
    assert_eq!(machine.kinds(), [(CoreKind::Uniform, set("0-1"))]);
}

/// A made-up machine: files and what they say.
struct Tree(TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Tree(TempDir::new().unwrap());
        fs::create_dir_all(tree.0.path().join("proc")).unwrap();
        for (path, text) in files {
            tree.write(path, text.as_bytes());
        }
        tree
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A CPU with a core of its own and a private cache.
    fn cpu(&self, id: u32, cache: &str) {
        let folder = format!("sys/devices/system/cpu/cpu{id}");
        let id = id.to_string();
        let files = [
            ("topology/physical_package_id", "0"),
            ("topology/core_id", &id),
            ("topology/thread_siblings_list", &id),
            ("cache/index0/level", "1"),
            ("cache/index0/type", "Data"),
            ("cache/index0/size", cache),
            ("cache/index0/coherency_line_size", "64"),
            ("cache/index0/shared_cpu_list", &id),
        ];
        for (file, text) in files {
            self.write(&format!("{folder}/{file}"), text.as_bytes());
        }
    }

    fn machine(&self) -> Machine {
        let machine = Machine::read(self.0.path()).unwrap();
        check_json(&machine);
        assert!(text(&machine).lines().all(|line| line.chars().count() <= 80));
        machine
    }
}

#[test]
fn nothing_is_known_of_an_empty_machine() {
    let machine = Tree::new(&[]).machine();
    assert!(machine.cpus.is_empty() && machine.caches.is_empty() && machine.nodes.is_empty());
    assert_eq!(machine.available_memory().reason(), Some("/proc/meminfo is not there"));
    assert!(machine.limits.allowed_cpus.known().is_none(), "the live machine must not shine through");
    assert!(machine.identity.hypervisor.known().is_none());
    assert_eq!(machine.last_level_bytes(&set("0")), None);
    assert_eq!(machine.topology_order(&set("0-7")), [] as [u32; 0]);
    assert_eq!(machine.unread.len(), 2);
    insta::assert_snapshot!("empty-text", text(&machine));
}

#[test]
fn a_root_without_a_machine_is_an_error() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing");
    assert_eq!(Machine::read(&missing), Err(MachineError::NoFolder { root: missing }));
    assert_eq!(Machine::read(folder.path()), Err(MachineError::NoTree { root: folder.path().into() }));
}

#[test]
fn offline_cpus_are_listed_but_not_used() {
    let tree = Tree::new(&[("sys/devices/system/cpu/online", "0,2\n"), ("sys/devices/system/cpu/cpu1/online", "0")]);
    tree.cpu(0, "32K");
    tree.cpu(2, "32K");
    let machine = tree.machine();
    assert_eq!(machine.cpus.iter().map(|cpu| cpu.online).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(machine.cpus[1].package.reason(), Some("the CPU is offline"));
    assert_eq!(machine.usable_cpus(), set("0,2"));
    assert_eq!(machine.cores().len(), 2);
    assert_eq!(machine.cpus[2].kind, Fact::Known(CoreKind::Uniform));
    // Without the list, each CPU tells itself.
    fs::remove_file(tree.0.path().join("sys/devices/system/cpu/online")).unwrap();
    assert_eq!(tree.machine().online_cpus(), set("0,2"));
}

/// A device tree need not tell of lines.
#[test]
fn a_cache_without_a_line_is_a_cache() {
    let tree = Tree::new(&[]);
    tree.cpu(0, "32K");
    fs::remove_file(tree.0.path().join("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size")).unwrap();
    assert_eq!(tree.machine().last_level(0).map(|cache| (cache.size, cache.line)), Some((Bytes::kib(32), Bytes(64))));
}

#[test]
fn affinity_of_the_recorded_process_counts() {
    let tree = Tree::new(&[("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1-9\nMems_allowed_list:\t0\n")]);
    (0..4).for_each(|id| tree.cpu(id, "32K"));
    assert_eq!(tree.machine().usable_cpus(), set("1-3"));
}

/// lxcfs shows a container as many CPUs as it may use, counted from 0: those that it may run on are others.
#[test]
fn cpus_are_usable_though_another_view_of_them_is_shown() {
    let allowed = ("proc/self/status", "Cpus_allowed_list:\t8-9\n");
    let tree = Tree::new(&[allowed, ("sys/devices/system/cpu/online", "0-1\n")]);
    [0, 1, 8, 9].iter().for_each(|id| tree.cpu(*id, "32K"));
    let machine = tree.machine();
    assert_eq!(machine.usable_cpus(), set("8-9"));
    assert_eq!(machine.online_cpus(), set("8-9"));
    assert_eq!(machine.last_level(9).map(|cache| cache.size), Some(Bytes::kib(32)));
    assert!(machine.unread.iter().any(|unread| unread.reason.contains("8-9")), "{:?}", machine.unread);
    // A view that has one of them in it by chance is another all the same.
    let tree =
        Tree::new(&[("proc/self/status", "Cpus_allowed_list:\t1-2,8-9\n"), ("sys/devices/system/cpu/online", "0-1\n")]);
    [0, 1, 8, 9].iter().for_each(|id| tree.cpu(*id, "32K"));
    // Switched off.
    tree.write("sys/devices/system/cpu/cpu2/online", b"0\n");
    assert_eq!(tree.machine().usable_cpus(), set("1,8-9"));
    // Those without a folder are not there.
    let tree = Tree::new(&[allowed, ("sys/devices/system/cpu/online", "0-1\n")]);
    [0, 1].iter().for_each(|id| tree.cpu(*id, "32K"));
    assert!(tree.machine().usable_cpus().is_empty());
}

/// Nodes of one package: `caches` last-level caches on each, of a core each.
fn mode(cpuinfo: &str, nodes: u32, caches: u32) -> Vec<String> {
    let tree = Tree::new(&[("proc/cpuinfo", cpuinfo)]);
    for node in 0..nodes {
        let (first, last) = (node * caches, (node + 1) * caches - 1);
        (first..=last).for_each(|cpu| tree.cpu(cpu, "32K"));
        tree.write(&format!("sys/devices/system/node/node{node}/cpulist"), format!("{first}-{last}\n").as_bytes());
    }
    tree.machine().memory_modes()
}

/// NPS came with Zen, and is 1, 2 or 4; other reasons for many nodes in a package are no such setting.
#[test]
fn nodes_in_a_package_have_the_name_of_the_setting_alone() {
    let of = |vendor: &str, family: u32, flags: &str| {
        format!("vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 1\nstepping\t: 1\nflags\t\t: fpu{flags}\n")
    };
    let said = |cpuinfo: &str, nodes, caches| mode(cpuinfo, nodes, caches).concat();
    let epyc = of("AuthenticAMD", 25, "");
    assert_eq!(said(&epyc, 4, 2), "4 nodes with CPUs in each package: NPS4.");
    assert_eq!(said(&epyc, 2, 6), "2 nodes with CPUs in each package: NPS2.");
    // Each last-level cache as a node, and two dies of an Opteron.
    assert_eq!(said(&epyc, 12, 1), "12 nodes with CPUs in each package.");
    assert_eq!(said(&epyc, 4, 1), "4 nodes with CPUs in each package.");
    assert_eq!(said(&of("AuthenticAMD", 16, ""), 2, 6), "2 nodes with CPUs in each package.");
    assert_eq!(said(&of("AuthenticAMD", 25, " hypervisor"), 4, 2), "4 nodes with CPUs in each package.");
    assert_eq!(said(&of("GenuineIntel", 6, ""), 4, 8), "4 nodes with CPUs in each package: SNC-4.");
    assert_eq!(said(&of("GenuineIntel", 6, " hypervisor"), 3, 2), "3 nodes with CPUs in each package.");
}

/// Its device's memory is a node, as that of GH200 and GB200.
#[test]
fn a_superchips_device_memory_is_known_by_the_product() {
    let tree = Tree::new(&[
        ("sys/class/dmi/id/product_name", "NVIDIA GB300\n"),
        ("sys/devices/system/node/node0/cpulist", "0\n"),
        ("sys/devices/system/node/node1/cpulist", "\n"),
    ]);
    tree.cpu(0, "64K");
    for node in 0..2 {
        let meminfo = format!("Node {node} MemTotal: 1048576 kB\nNode {node} MemFree: 1048576 kB\n");
        tree.write(&format!("sys/devices/system/node/node{node}/meminfo"), meminfo.as_bytes());
    }
    assert_eq!(tree.machine().natures().last().map(|node| node.kind), Some(NodeKind::Device));
}

/// Intel's Speed Select gives some of like cores a higher base frequency.
#[test]
fn a_base_frequency_alone_makes_no_kind_of_core() {
    let kinds = |vendor: &str| {
        let tree = Tree::new(&[("proc/cpuinfo", &format!("vendor_id\t: {vendor}\n"))]);
        for (id, khz) in [(0, "2700000"), (1, "2100000")] {
            tree.cpu(id, "48K");
            tree.write(&format!("sys/devices/system/cpu/cpu{id}/cpufreq/base_frequency"), khz.as_bytes());
            tree.write(&format!("sys/devices/system/cpu/cpu{id}/cpufreq/cpuinfo_max_freq"), b"4000000");
        }
        tree.machine().kinds()
    };
    assert_eq!(kinds("GenuineIntel"), [(CoreKind::Uniform, set("0-1"))]);
}

#[test]
fn a_node_without_cpus() {
    let tree = Tree::new(&[
        ("sys/devices/system/node/node0/cpulist", "0\n"),
        ("sys/devices/system/node/node0/distance", "10 17\n"),
        ("sys/devices/system/node/node3/cpulist", "\n"),
        ("sys/devices/system/node/node3/distance", "17\n"),
        ("sys/devices/system/node/node3/meminfo", "Node 3 MemTotal: 1024 kB\nNode 3 MemFree: x kB\n"),
    ]);
    tree.cpu(0, "32K");
    let machine = tree.machine();
    assert_eq!(machine.nodes[1].cpus, Fact::Known(CpuSet::default()));
    assert_eq!(machine.nodes[1].total, Fact::Known(Bytes::mib(1)));
    assert!(machine.nodes[1].free.reason().unwrap().contains("not a size"));
    assert_eq!(distances(&machine, 0), [10, 17]);
    assert!(machine.nodes[1].distances.reason().unwrap().contains("2 nodes"));
    assert_eq!(machine.cpus[0].node, Fact::Known(0));
}

#[test]
fn kinds_by_capacity() {
    let tree = Tree::new(&[]);
    for (id, capacity) in [(0, "400"), (1, "1024"), (2, "750"), (3, "400")] {
        tree.cpu(id, "32K");
        tree.write(&format!("sys/devices/system/cpu/cpu{id}/cpu_capacity"), capacity.as_bytes());
    }
    let machine = tree.machine();
    let kinds = [(CoreKind::Performance, set("1")), (CoreKind::Efficiency, set("2")), (CoreKind::LowPower, set("0,3"))];
    assert_eq!(machine.kinds(), kinds);
    assert_eq!(machine.topology_order(&set("0-3")), [1, 2, 0, 3]);
}

#[test]
fn kinds_by_the_kernels_own_lists() {
    let tree = Tree::new(&[("sys/devices/cpu_core/cpus", "0"), ("sys/devices/cpu_atom/cpus", "1-2")]);
    (0..3).for_each(|id| tree.cpu(id, "32K"));
    tree.write("sys/devices/cpu_lowpower/cpus", b"2");
    let kinds = [(CoreKind::Performance, set("0")), (CoreKind::Efficiency, set("1")), (CoreKind::LowPower, set("2"))];
    assert_eq!(tree.machine().kinds(), kinds);
}

/// As on a GB10: ten Cortex-X925 in two clusters, some of which are favoured, and ten Cortex-A725 of two clocks.
#[test]
fn kinds_of_arm_cores_by_their_design() {
    let capacities =
        [718, 718, 718, 718, 718, 997, 997, 997, 997, 997, 731, 731, 731, 731, 731, 1017, 1017, 1017, 1017, 1024];
    let is_big = |id: u32| (5..10).contains(&id) || id >= 15;
    let tree = Tree::new(&[]);
    for id in 0..20 {
        tree.cpu(id, "64K");
        let capacity = capacities[id as usize].to_string();
        tree.write(&format!("sys/devices/system/cpu/cpu{id}/cpu_capacity"), capacity.as_bytes());
    }
    // By capacity alone.
    assert_eq!(tree.machine().kinds().iter().map(|(_, cpus)| cpus.len()).collect::<Vec<_>>(), [1, 4, 15]);
    let kinds = [(CoreKind::Performance, set("5-9,15-19")), (CoreKind::Efficiency, set("0-4,10-14"))];
    let of = |id| if is_big(id) { "0xd85" } else { "0xd87" };
    let cpuinfo: Vec<String> = (0..20)
        .map(|id| format!("processor : {id}\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : {}\n", of(id)))
        .collect();
    tree.write("proc/cpuinfo", cpuinfo.join("\n").as_bytes());
    let machine = tree.machine();
    assert_eq!(machine.kinds(), kinds);
    assert_eq!(machine.identity.model, Fact::Known("ARM Cortex-X925 (0xd85) + Cortex-A725 (0xd87)".into()));
    // The register says the same.
    tree.write("proc/cpuinfo", b"");
    for id in 0..20 {
        let register = if is_big(id) { "0x00000000410fd850\n" } else { "0x00000000410fd870\n" };
        let path = format!("sys/devices/system/cpu/cpu{id}/regs/identification/midr_el1");
        tree.write(&path, register.as_bytes());
    }
    assert_eq!(tree.machine().kinds(), kinds);
}

#[test]
fn cores_that_differ_without_a_ranking_have_no_kind() {
    let tree = Tree::new(&[]);
    tree.cpu(0, "32K");
    tree.cpu(1, "48K");
    assert!(tree.machine().cpus[0].kind.reason().unwrap().contains("cores differ"));
}

const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

#[test]
fn nested_limits_of_version_2() {
    let tree = Tree::new(&[
        ("proc/meminfo", "MemAvailable: 8388608 kB\n"),
        ("proc/self/mountinfo", V2),
        ("proc/self/cgroup", "0::/job/step\n"),
        ("sys/fs/cgroup/job/step/memory.max", "max\n"),
        ("sys/fs/cgroup/job/step/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/job/memory.max", "4294967296\n"),
        ("sys/fs/cgroup/job/memory.current", "3221225472\n"),
        ("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 1073741824\n"),
        ("sys/fs/cgroup/job/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/job/cpuset.cpus.effective", "1-2\n"),
        ("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n"),
    ]);
    (0..4).for_each(|id| tree.cpu(id, "32K"));
    let machine = tree.machine();
    let limit = machine.memory_limit().unwrap();
    assert_eq!((limit.group.as_str(), limit.limit), ("/job", Bytes::gib(4)));
    // 4 GiB less the 3 used, of which 1 can be given up.
    assert_eq!(machine.available_memory(), Fact::Known(Bytes::gib(2)));
    assert_eq!(machine.limits.cpu_time.known().unwrap()[0].cpus, 1.5);
    // The step has no cpuset of its own: its parent's counts.
    assert_eq!(machine.usable_cpus(), set("1-2"));
}

#[test]
fn nested_limits_of_version_1() {
    let tree = Tree::new(&[
        ("proc/meminfo", "MemAvailable: 1048576 kB\n"),
        (
            "proc/self/mountinfo",
            "1 2 0:1 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             3 2 0:2 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             4 2 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("proc/self/cgroup", "3:memory:/box/inner\n2:cpuacct,cpu:/x\n0::/\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1610612736"),
        ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712"),
        ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1"),
        ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000"),
    ]);
    let machine = tree.machine();
    assert_eq!(machine.memory_limit().unwrap().group, "/box");
    assert_eq!(machine.available_memory(), Fact::Known(Bytes::mib(512)));
    let times: Vec<_> = machine.limits.cpu_time.known().unwrap().iter().map(|l| (l.group.as_str(), l.cpus)).collect();
    assert_eq!(times, [("/", 2.0)]);
}

#[test]
fn nonsense_is_absent_with_its_reason() {
    let tree = Tree::new(&[
        ("sys/devices/system/cpu/online", "many"),
        ("sys/devices/system/cpu/cpu0/cache/index1/level", "one"),
        ("sys/devices/system/cpu/cpu0/cache/index1/shared_cpu_list", "0"),
        ("sys/devices/system/cpu/cpu0/cache/index1/type", "Data"),
        ("sys/devices/system/cpu/cpu99999999999/online", "1"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise never"),
        ("sys/kernel/mm/hugepages/hugepages-18446744073709551615kB/nr_hugepages", "1"),
        ("proc/sys/kernel/numa_balancing", "-1"),
        ("proc/meminfo", "MemTotal: 99999999999999999999 kB"),
        ("sys/firmware/dmi/tables/DMI", "\x11\x22"),
    ]);
    tree.cpu(0, "0K");
    let machine = tree.machine();
    assert_eq!(machine.online_cpus(), set("0"));
    assert!(machine.caches.is_empty());
    let reasons: Vec<_> = machine.unread.iter().map(|unread| unread.reason.as_str()).collect();
    let folder = "/sys/devices/system/cpu/cpu0/cache";
    assert_eq!(reasons[0], format!("{folder}/index0/size says '0K', which is not a size"));
    assert_eq!(reasons[1], format!("{folder}/index1/level says 'one', which is not a number"));
    assert!(machine.settings.thp.reason().unwrap().ends_with("which is not a choice"));
    assert!(machine.settings.numa_balancing.reason().unwrap().ends_with("says '-1', which is not a number"));
    assert!(machine.memory.total.known().is_none());
    assert!(machine.dimms.known().is_none());
}

const FILES: [&str; 24] = [
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/self/auxv",
    "proc/version",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu0/topology/core_id",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu1/topology/die_id",
    "sys/devices/system/cpu/cpu0/cache/index0/size",
    "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
    "sys/devices/system/cpu/cpu0/cache/index0/level",
    "sys/devices/system/cpu/cpufreq/policy0/related_cpus",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/distance",
    "sys/devices/system/node/node0/meminfo",
    "sys/devices/system/node/node0/memory_side_cache/index1/size",
    "sys/devices/system/node/node0/access0/initiators/read_bandwidth",
    "sys/firmware/dmi/tables/DMI",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/fs/cgroup/memory.max",
];

/// Bytes at random, and texts near what the files do say.
fn contents() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        "[0-9,\\-KMG \n]{0,16}".prop_map(String::into_bytes),
        "(MemTotal|Cpus_allowed_list|0:|flags)[: \t]{1,3}[0-9a-z,/\\-]{0,12}( kB)?\n".prop_map(String::into_bytes),
        "1 2 3 /[a./]{0,4} /sys/fs/cgroup[/.]{0,3} rw - cgroup2? x (memory|cpuset|cpu)\n".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_contents_make_the_reader_panic(contents in prop::collection::vec(contents(), FILES.len())) {
        let tree = Tree::new(&[]);
        for (path, bytes) in FILES.iter().zip(&contents) {
            tree.write(path, bytes);
        }
        let machine = tree.machine();
        machine.topology_order(&machine.usable_cpus());
        machine.summary();
        let _ = machine.available_memory();
        machine.dimm_peak();
    }
}

/// Which vectors there are decides nothing about a map.
fn no_vectors() -> Isa {
    Isa::NONE
}

/// The latency map: a row for each CPU that may be used, a column for each node with memory. Returns the nodes of it.
fn check_map(machine: &Machine) -> Vec<u32> {
    let frame = Frame::new(machine, no_vectors(), None).unwrap();
    let memory: Vec<MemorySpec> =
        machine.nodes_with_memory().map(|node| MemorySpec::on(MemoryKind::Thp, node.id)).collect();
    let cases = plan::latency::latency_map(&frame, &memory, &[]).unwrap();
    let cpus: CpuSet = cases.iter().flat_map(|case| case.cpus.iter().copied()).collect();
    assert_eq!(cpus, machine.usable_cpus());
    let mut nodes: Vec<u32> = cases.iter().filter_map(|case| case.memory.node()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for &id in &nodes {
        let node = machine.nodes.iter().find(|node| node.id == id).unwrap();
        assert!(node.total.known().is_none_or(|total| total.0 > 0), "node {id} has no memory");
    }
    // Each CPU against each node, with three blocks.
    assert_eq!(cases.len(), cpus.iter().count() * nodes.len() * 3);
    nodes
}

#[test]
fn maps_of_recorded_machines_have_nodes_with_memory_alone() {
    let tiers = recorded("fakeheteromemtiers");
    let nodes = check_map(&tiers);
    let has_cpus = |id: &u32| tiers.nodes.iter().any(|n| n.id == *id && n.cpus.known().is_some_and(|c| !c.is_empty()));
    assert!(!nodes.iter().all(has_cpus), "a node of memory alone is in the map: {nodes:?}");
    for name in ["16amd64-8n2c", "48amd64-4pa2n6c-sparse", "32em64t-2n8c+dax+nvme+mic+dimms"] {
        check_map(&recorded(name));
    }
}

#[test]
fn a_node_without_memory_is_not_in_the_map() {
    let folder = TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/devices/system/cpu/online", "0-1\n");
    write("sys/devices/system/node/online", "0-2\n");
    for (node, cpus, kib) in [(0, "0", 4_000_000), (1, "1", 0), (2, "", 4_000_000)] {
        write(&format!("sys/devices/system/node/node{node}/cpulist"), &format!("{cpus}\n"));
        write(&format!("sys/devices/system/node/node{node}/meminfo"), &format!("Node {node} MemTotal: {kib} kB\n"));
    }
    for cpu in 0..2 {
        write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), &format!("{cpu}\n"));
    }
    assert_eq!(check_map(&Machine::read(folder.path()).unwrap()), [0, 2]);
}
