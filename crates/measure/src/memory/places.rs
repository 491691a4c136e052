//! Where memory comes from that has a place.

use std::path::PathBuf;

use crate::memory::allowance::Allowance;

/// Where kinds of memory come from that have a place: what the user named, or the system's usual places.
#[derive(Debug, Clone)]
pub struct Places {
    /// Folder on the disk whose files are to be measured. Files made there have no name and vanish with the process.
    pub folder: PathBuf,
    /// Folder on a memory file system; the same holds.
    pub tmpfs: PathBuf,
    /// Folder on a file system for persistent memory, if the user named one.
    pub dax: Option<PathBuf>,
    /// Resource file of a PCI device (`/sys/bus/pci/devices/0000:00:04.0/resource2`), if the user named one.
    pub bar: Option<PathBuf>,
    /// Whether that device may be written to.
    pub bar_writes: bool,
    /// Why the device with a driver that the user named can't be used, where that is known already.
    pub no_device: Option<String>,
    /// Where device nodes are: `/dev`.
    pub devices: PathBuf,
    /// What may be mapped of all of them together.
    pub allowance: Allowance,
}

impl Default for Places {
    fn default() -> Self {
        Places {
            folder: ".".into(),
            tmpfs: "/dev/shm".into(),
            dax: None,
            bar: None,
            bar_writes: false,
            no_device: None,
            devices: "/dev".into(),
            allowance: Allowance::default(),
        }
    }
}
