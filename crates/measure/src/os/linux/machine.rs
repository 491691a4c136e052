//! What changes from boot to boot and from moment to moment.

use std::io::Read;

use membound_core::machine::source::{Processor, Source};
use membound_core::record::Environment;
use membound_core::units::Bytes;

/// The facts of this machine: its files.
pub(crate) fn source(processor: Processor) -> Source {
    Source::live(processor)
}

/// The host's name; empty where it has none.
pub fn host_name() -> String {
    line("/proc/sys/kernel/hostname")
}

/// What no other machine and no other boot has; empty where the kernel does not say.
pub fn boot_id() -> String {
    line("/proc/sys/kernel/random/boot_id")
}

fn line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().into()
}

/// Reads the machine's changing state.
pub fn environment() -> Environment {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(Bytes::kib)
    };
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    Environment {
        available: field("MemAvailable:"),
        page_cache: field("Cached:"),
        node_free: node_free(),
        load_average: load.and_then(|text| text.split_whitespace().next()?.parse().ok()),
        steal_s: steal_jiffies().map(|jiffies| jiffies as f64 / 100.0),
    }
}

fn node_free() -> Vec<(u32, Bytes)> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/node") else { return Vec::new() };
    let free = |entry: std::fs::DirEntry| {
        let node: u32 = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let text = std::fs::read_to_string(entry.path().join("meminfo")).ok()?;
        let line = text.lines().find(|line| line.contains("MemFree:"))?;
        let kib = line.split_whitespace().rev().nth(1)?.parse().ok()?;
        Some((node, Bytes::kib(kib)))
    };
    let mut nodes: Vec<_> = entries.flatten().filter_map(free).collect();
    nodes.sort_unstable();
    nodes
}

/// Steal time of all CPUs since boot, in the kernel's ticks; absent where /proc/stat does not say.
pub(crate) fn steal_jiffies() -> Option<u64> {
    let mut head = [0u8; 256];
    let mut file = std::fs::File::open("/proc/stat").ok()?;
    let read = file.read(&mut head).ok()?;
    let text = std::str::from_utf8(&head[..read]).ok()?;
    text.lines().next()?.split_whitespace().nth(8)?.parse().ok()
}

/// What has the kernel drop its clean page cache, of all files on this machine, when 1 is written to it.
pub(crate) const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
