//! The sweep: where it ends, on made-up machines and for real; always early, small and without root.

use crate::common::imitation;
use crate::common::program::tried;
use std::cell::Cell;
use std::path::Path;

use membound_core::machine::room::Room;
use membound_core::machine::source::Source;
use membound_core::units::Bytes;
use membound_core::work::sweep::{NodeSweep, SweepEnd};
use membound_measure::memory::sweep::sweep;

/// A machine of 8 GiB in nodes of 4 GiB with these numbers, in a control group that may have `limit`.
fn machine(nodes: &[u32], available_kib: u64, limit: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| imitation::file(root.path(), path, text);
    let memory = format!("MemTotal: 8388608 kB\nMemAvailable: {available_kib} kB\nSwapFree: 0 kB\n");
    write("proc/meminfo", &memory);
    write("proc/self/cgroup", "0::/job\n");
    write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("sys/fs/cgroup/job/memory.max", "max\n");
    write("sys/fs/cgroup/job/memory.high", limit);
    write("sys/fs/cgroup/job/memory.current", "209715200\n");
    write("sys/fs/cgroup/job/memory.stat", "inactive_file 0\n");
    write("proc/pressure/memory", "some avg10=1.00 total=1\nfull avg10=0.50 total=1\n");
    for node in nodes {
        let lines = ["MemTotal: 4194304", "MemFree: 1048576", "FilePages: 2097152", "Active(file): 1048576"];
        let lines = lines.iter().chain(&["Inactive(file): 524288", "Dirty: 1024", "Writeback: 1024"]);
        let text: String = lines.map(|line| format!("Node {node} {line} kB\n")).collect();
        write(&format!("sys/devices/system/node/node{node}/meminfo"), &text);
    }
    root
}

fn source(root: &Path) -> Source {
    Source::recorded(root).unwrap()
}

#[test]
fn room_is_read_from_all_who_limit_it() {
    let root = machine(&[0, 4], 6 << 20, "1073741824\n");
    let room = Room::read(&source(root.path()));
    let node = room.node(4).unwrap();
    assert_eq!((node.free, node.page_cache), (Bytes::gib(1), Bytes::gib(2)));
    assert_eq!(node.clean_cache, Bytes::mib(1024 + 512 - 2));
    // A gibibyte less the 200 MiB used, less the margin of 48 MiB.
    let (spare, whose) = room.to_spare().unwrap();
    assert_eq!((spare, whose.as_str()), (Bytes::mib(1024 - 200 - 48), "the control group /job"));
    assert_eq!(room.stalled.get(), Some(0.005));
    assert!(room.node(1).is_none());
    let free = machine(&[0], 6 << 20, "max\n");
    let (spare, whose) = Room::read(&source(free.path())).to_spare().unwrap();
    assert_eq!((spare, whose.as_str()), (Bytes::mib(6 * 1024 - 256), "the machine"));
}

fn only(swept: &[NodeSweep]) -> &NodeSweep {
    let [only] = swept else { panic!("{swept:?}") };
    only
}

#[test]
fn a_group_that_is_nearly_full_ends_it_before_the_oom_killer() {
    // 250 MiB: 50 MiB are left, of which 48 MiB stay.
    let root = machine(&[0], 6 << 20, "262144000\n");
    let swept = sweep(&source(root.path()), &[0], 1.0, &|| false);
    let node = only(&swept);
    assert_eq!((node.end, node.touched_bytes), (SweepEnd::Limit, Bytes(0)));
    assert!(node.reason.as_ref().unwrap().contains("the control group /job"), "{node:?}");
    assert!(!node.is_failure());
}

#[test]
fn the_share_is_kept_and_memory_given_back() {
    // The made-up machine never changes, so only the share ends it: 64 MiB are 2 of 64 pieces of 4 GiB.
    let root = machine(&[0], 6 << 20, "max\n");
    let swept = sweep(&source(root.path()), &[0], 1.0 / 64.0, &|| false);
    let node = only(&swept);
    assert_eq!((node.end, node.touched_bytes, &node.reason), (SweepEnd::Share, Bytes::mib(64), &None));
    assert_eq!(node.after.as_ref(), Some(&node.before));
}

#[test]
fn whoever_interrupts_gets_all_back_at_once() {
    let root = machine(&[0, 1], 6 << 20, "max\n");
    let asked = Cell::new(0);
    let interrupted = || asked.replace(asked.get() + 1) >= 2;
    let one = machine(&[0], 6 << 20, "max\n");
    let swept = sweep(&source(one.path()), &[0], 1.0, &interrupted);
    let node = only(&swept);
    assert_eq!((node.end, node.touched_bytes), (SweepEnd::Interrupted, Bytes::mib(64)));
    assert!(node.is_failure());
    // The second node is not begun.
    assert_eq!(sweep(&source(root.path()), &[0, 1], 1.0, &|| true).len(), 1);
}

#[test]
fn a_node_that_is_gone_is_refused_with_words() {
    // The files still tell of node 63, the kernel does not know it (any more).
    let root = machine(&[0, 63], 6 << 20, "max\n");
    let swept = sweep(&source(root.path()), &[63], 1.0, &|| false);
    let node = only(&swept);
    assert_eq!((node.end, node.touched_bytes), (SweepEnd::Refused, Bytes(0)));
    assert!(node.reason.as_ref().unwrap().contains("node 63"), "{node:?}");
    assert!(node.is_failure());
    assert!(sweep(&source(root.path()), &[7], 1.0, &|| false).is_empty());
}

#[test]
fn the_command_shows_before_and_after() {
    if Room::read(&membound_measure::machine::source()).nodes.is_empty() {
        let (code, _, said) = tried(&["sweep"]);
        assert_eq!(code, Some(1), "{said}");
        return;
    }
    let (code, table, said) = tried(&["sweep", "--share", "0.005"]);
    assert_eq!(code, Some(0), "{table}{said}");
    assert!(table.contains("page cache") && table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let (_, rows, _) = tried(&["sweep", "--share", "0.005", "--format", "json"]);
    let rows: Vec<NodeSweep> = serde_json::from_str(&rows).unwrap();
    for row in &rows {
        let most = row.before.total.0 as f64 * 0.005;
        assert!(row.metric == "sweep" && row.touched_bytes.0 as f64 <= most, "{row:?}");
    }
    let (code, _, said) = tried(&["sweep", "--node", "999"]);
    assert!(code == Some(2) && said.contains("no node 999") && said.contains("--node"), "{said}");
    let (code, _, said) = tried(&["sweep", "--share", "0"]);
    assert!(code == Some(2) && said.contains("above 0"), "{said}");
}
