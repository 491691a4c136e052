//! What this machine is, by the names that Linux has for it, and what changes from moment to moment.

use std::collections::BTreeMap;

use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::source::{Processor, Source};
use membound_core::record::Environment;
use membound_core::units::Bytes;

use super::{system, topology};

/// The host's name; empty where it has none.
pub fn host_name() -> String {
    system::host_name().unwrap_or_default()
}

/// What no other machine and no other boot has: not told; empty.
pub fn boot_id() -> String {
    String::new()
}

/// Reads the machine's changing state.
pub fn environment() -> Environment {
    Environment {
        available: system::memory().map(|memory| Bytes(memory.available)),
        page_cache: None,
        node_free: nodes(&topology::parse(&system::processors()))
            .into_iter()
            .filter_map(|node| Some((node, Bytes(system::node_free(node)?))))
            .collect(),
        load_average: None,
        steal_s: None,
    }
}

fn nodes(told: &[(topology::Shared, CpuSet)]) -> Vec<u32> {
    let nodes = told.iter().filter_map(|(shared, _)| match shared {
        topology::Shared::Node(node) => Some(*node),
        _ => None,
    });
    let mut nodes: Vec<u32> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Steal time: Windows tells its guests none.
pub(crate) fn steal_jiffies() -> Option<u64> {
    None
}

/// No file of Windows drops its cache.
pub(crate) const DROP_CACHES: &str = "drop_caches (Linux)";

/// The facts of this machine.
pub(crate) fn source(processor: Processor) -> Source {
    Source::told("Windows", texts(), processor)
}

/// Where the registry describes the first CPU.
const PROCESSOR: &str = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0";

fn texts() -> BTreeMap<String, String> {
    const WINDOWS: &str = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion";
    const BIOS: &str = r"HARDWARE\DESCRIPTION\System\BIOS";
    let told = topology::parse(&system::processors());
    let mut texts = topology::texts(&told);
    let online = texts.get("sys/devices/system/cpu/online").cloned();
    let mut put = |path: &str, text: Option<String>| drop(text.map(|text| texts.insert(path.into(), text)));
    put("proc/cpuinfo", Some(cpuinfo()));
    let build = system::registry_text(WINDOWS, "CurrentBuildNumber").unwrap_or_default();
    let major = system::registry_number(WINDOWS, "CurrentMajorVersionNumber").unwrap_or(10);
    put("proc/sys/kernel/osrelease", Some(format!("Windows {}, build {build}", release(major, &build))));
    put("sys/class/dmi/id/sys_vendor", system::registry_text(BIOS, "SystemManufacturer"));
    put("sys/class/dmi/id/product_name", system::registry_text(BIOS, "SystemProductName"));
    put(
        "proc/meminfo",
        system::memory().map(|memory| {
            let main = [("MemTotal", memory.total), ("MemFree", memory.available), ("MemAvailable", memory.available)];
            let swap =
                system::page_files().map(|(all, used)| [("SwapTotal", all), ("SwapFree", all.saturating_sub(used))]);
            let fields: Vec<(&str, u64)> = main.into_iter().chain(swap.into_iter().flatten()).collect();
            topology::meminfo("", &fields)
        }),
    );
    let all = nodes(&told);
    // A node of which nothing is told may have some.
    let has_memory = |node: &u32| system::node_free(*node).is_none_or(|free| free > 0);
    let with_memory: CpuSet = all.iter().copied().filter(has_memory).collect();
    put("sys/devices/system/node/has_memory", (!with_memory.is_empty()).then(|| with_memory.to_string()));
    for node in &all {
        let free = system::node_free(*node);
        // Windows tells what a node has free, and what it has in all only where there is one node.
        let total = system::memory().filter(|_| all.len() == 1).map(|memory| ("MemTotal", memory.total));
        let fields: Vec<(&str, u64)> = total.into_iter().chain(free.map(|free| ("MemFree", free))).collect();
        let text = topology::meminfo(&format!("Node {node} "), &fields);
        put(&format!("sys/devices/system/node/node{node}/meminfo"), Some(text));
        put(&format!("sys/devices/system/node/node{node}/distance"), (all.len() == 1).then(|| "10".into()));
    }
    if let Some(mhz) = system::registry_number(PROCESSOR, "~MHz") {
        put("sys/devices/system/cpu/cpufreq/policy0/base_frequency", Some((u64::from(mhz) * 1000).to_string()));
        put("sys/devices/system/cpu/cpufreq/policy0/related_cpus", online);
    }
    texts
}

/// The number that Windows goes by: 11 still calls itself 10, and has builds from 22000 on.
fn release(major: u32, build: &str) -> u32 {
    const ELEVEN: u32 = 22_000;
    if major == 10 && build.parse().is_ok_and(|build: u32| build >= ELEVEN) { 11 } else { major }
}

/// What CPUID says, as Linux' file has it.
#[cfg(target_arch = "x86_64")]
fn cpuinfo() -> String {
    let cpuid = raw_cpuid::CpuId::new();
    let vendor = cpuid.get_vendor_info().map(|vendor| vendor.as_str().to_string()).unwrap_or_default();
    let model = cpuid.get_processor_brand_string().map(|brand| brand.as_str().trim().to_string()).unwrap_or_default();
    let (family, number, stepping) = cpuid
        .get_feature_info()
        .map(|about| (about.family_id(), about.model_id(), about.stepping_id()))
        .unwrap_or_default();
    let invariant = cpuid.get_advanced_power_mgmt_info().is_some_and(|about| about.has_invariant_tsc());
    let flags = if invariant { "lm constant_tsc nonstop_tsc" } else { "lm" };
    format!(
        "vendor_id: {vendor}\ncpu family: {family}\nmodel: {number}\nmodel name: {model}\nstepping: {stepping}\nflags: {flags}\n"
    )
}

/// What the registry says, as Linux' file has it on x86.
#[cfg(not(target_arch = "x86_64"))]
fn cpuinfo() -> String {
    let told = |name: &str| system::registry_text(PROCESSOR, name).unwrap_or_default().trim().to_string();
    format!("vendor_id: {}\nmodel name: {}\n", told("VendorIdentifier"), told("ProcessorNameString"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_goes_by_its_build() {
        let check = |major, build: &str, expect| assert_eq!(release(major, build), expect, "{major} {build}");
        check(10, "19045", 10);
        check(10, "22000", 11);
        check(10, "", 10);
        check(12, "30000", 12);
    }
}
