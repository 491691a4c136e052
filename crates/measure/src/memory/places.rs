//! Where memory comes from that has a place.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::memory::allowance::Allowance;
use membound_core::units::Bytes;

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

/// What of them another process is told that measures a part of a case. No device: processes know nothing of each other's parts
/// of its memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedPlaces {
    // Paths need not be text, and as paths they could not be told then.
    folder: OsString,
    tmpfs: OsString,
    dax: Option<OsString>,
    allowance: Bytes,
}

impl Places {
    /// What each of so many processes is told: of what the run may still take they have equal shares.
    pub(crate) fn shared_by(&self, processes: usize) -> SharedPlaces {
        SharedPlaces {
            folder: self.folder.clone().into(),
            tmpfs: self.tmpfs.clone().into(),
            dax: self.dax.clone().map(OsString::from),
            allowance: Bytes(self.allowance.left().0 / processes.max(1) as u64),
        }
    }
}

impl From<SharedPlaces> for Places {
    fn from(shared: SharedPlaces) -> Self {
        Places {
            folder: shared.folder.into(),
            tmpfs: shared.tmpfs.into(),
            dax: shared.dax.map(PathBuf::from),
            allowance: Allowance::of(shared.allowance),
            ..Places::default()
        }
    }
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use membound_core::json;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn processes_are_told_places_and_share_what_is_left() {
        let folder = PathBuf::from(OsString::from_vec(b"/mnt/caf\xe9".to_vec()));
        let (tmpfs, dax, allowance) = ("/run".into(), Some("/mnt/dax".into()), Allowance::of(Bytes::mib(100)));
        let places = Places { folder, tmpfs, dax, allowance, ..Places::default() };
        let taken = places.allowance.claim(Bytes::mib(40)).unwrap();
        let text = json::text(&places.shared_by(3));
        let there = Places::from(serde_json::from_str::<SharedPlaces>(&text).unwrap());
        assert_eq!((&there.folder, &there.tmpfs, &there.dax), (&places.folder, &places.tmpfs, &places.dax));
        assert_eq!(there.allowance.left(), Bytes::mib(20));
        drop(taken);
        assert_eq!(Places::from(places.shared_by(1)).allowance.left(), Bytes::mib(100));
    }
}
