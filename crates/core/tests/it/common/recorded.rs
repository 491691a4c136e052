//! Recorded machines: see `crates/core/tests/machines`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use membound_core::machine::Machine;
use tempfile::TempDir;

/// All recorded machines, by name.
#[allow(dead_code)] // Not each crate's tests go through all.
pub const ALL: [&str; 15] = [
    "16amd64-8n2c",
    "64amd64-4s2n4ca2co",
    "48amd64-4pa2n6c-sparse",
    "20em64t-hybrid-1p6c2t+2ca4co1t",
    "fakeheteromemtiers",
    "memorysidecaches",
    "32em64t-2n8c+dax+nvme+mic+dimms",
    "32amd64-4s2n4c-cgroup2",
    "128arm-2pa2n8cluster4co",
    "nvidia-dgx-gb10",
    "2arm-2c",
    "9arm-google-pixel-8",
    "8arm-samsung-galaxy-s9",
    "4arm-google-pixel-c",
    "6arm-cavium-thunderx",
];

/// A recorded machine. It is unpacked and read once: thousands of files that come and go keep a file system busy.
pub fn recorded(name: &'static str) -> Machine {
    static READ: LazyLock<Mutex<HashMap<&str, Machine>>> = LazyLock::new(Mutex::default);
    let mut read = READ.lock().unwrap();
    let machine = read.entry(name).or_insert_with(|| {
        let folder = unpacked(name);
        let top = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        Machine::read(&top).unwrap()
    });
    machine.clone()
}

/// Its files, but for the thousands about devices that are no memory.
fn unpacked(name: &str) -> TempDir {
    // Beside each crate that includes this file.
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/machines");
    let file = fs::File::open(machines.join(format!("{name}.tar.bz2"))).unwrap();
    let folder = TempDir::new().unwrap();
    let mut archive = tar::Archive::new(bzip2::read::MultiBzDecoder::new(file));
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        if !["/pci", "/power/", "/cpuidle/", "vmstat"].iter().any(|part| path.contains(part)) {
            entry.unpack_in(folder.path()).unwrap();
        }
    }
    folder
}
