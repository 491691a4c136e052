//! Drivers of devices: what experiments need of any interface. OpenCL, CUDA and Vulkan are three of them; each is a folder of its own
//! that says how its calls do this, and nothing else knows which it is.
//!
//! Every command is waited for before the function that gave it returns (loops on the device are given all at once, and the last is
//! waited for): so nothing that is borrowed for a call is touched after it, and a sample holds what a program waits for.

pub(crate) mod failure;
pub(crate) mod functions;
pub(crate) mod host_memory;
pub(crate) mod tools;
pub(crate) mod view;

use crate::driver::host_memory::HostMemory;
use crate::driver::view::{View, Word};
use crate::no_visit::NoVisit;
use membound_core::kernel::chase;
use membound_core::machine::devices::{Device, DeviceName, Link, link_of, node_of};
use membound_core::machine::source::Source;
use membound_core::work::device::Buffer;

/// Of an interface's devices that with this name, and what its driver calls it; or why there is none.
pub(crate) fn named<I>(devices: Result<Vec<(Device, I)>, String>, name: DeviceName) -> Result<(Device, I), NoVisit> {
    let found = devices.map_err(NoVisit::impossible)?.into_iter().find(|(device, _)| device.name == name);
    found.ok_or_else(|| NoVisit::no_device(name))
}

/// A PCI address as sysfs writes it: `0000:3b:00.0`.
#[cfg(any(feature = "opencl", feature = "vulkan"))]
pub(crate) fn pci_address([domain, bus, device, function]: [u32; 4]) -> String {
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}

/// Where the PCI device at this address is attached, as sysfs tells: its node, and its link where it has memory of its own.
pub(crate) fn attached(source: &Source, address: Option<&str>, is_unified: bool) -> (Option<u32>, Option<Link>) {
    let link = address.filter(|_| !is_unified).and_then(|address| link_of(source, address));
    (address.and_then(|address| node_of(source, address)), link)
}

/// STREAM's scalar, which single precision holds exactly, too.
pub(crate) const SCALAR: f64 = 3.0;

/// STREAM's loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loop {
    Copy,
    Scale,
    Add,
    Triad,
}

/// What memory is mapped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    ReadWrite,
    /// All of it will be written: what it held may be lost.
    Renew,
}

/// A device that is open.
pub(crate) trait Driver: Sized + Sync {
    type Memory: Memory;
    type Kernels: Kernels<Memory = Self::Memory>;

    /// Opens a device, by whatever its interface needs.
    fn open(name: DeviceName) -> Result<Self, NoVisit>;
    /// Opens another device, which this one is to copy to.
    fn beside(&self, peer: DeviceName) -> Result<Self, NoVisit>;
    /// The device, as it describes itself.
    fn device(&self) -> &Device;
    /// The kernels, compiled for it.
    fn kernels(&self) -> Result<Self::Kernels, NoVisit>;
    /// Makes a buffer; `host` is memory of the program's, where the kind works on that.
    fn make(&self, buffer: Buffer, bytes: usize, host: Option<HostMemory>) -> Result<Self::Memory, NoVisit>;
    /// Does two copies at once, each by a queue of its own, and waits for both.
    fn both(&self, copies: [Copying<'_, Self::Memory>; 2]) -> Result<(), NoVisit>;
}

/// A copy of all that the shorter side holds.
pub(crate) enum Copying<'a, M> {
    Write { from: &'a [f64], to: &'a mut M },
    Read { from: &'a mut M, to: &'a mut [f64] },
    Within { from: &'a mut M, to: &'a mut M },
}

impl<M: Memory> Copying<'_, M> {
    /// Does it, and waits for it.
    pub fn alone(self) -> Result<(), NoVisit> {
        match self {
            Copying::Write { from, to } => to.write(from),
            Copying::Read { from, to } => from.read(to),
            Copying::Within { from, to } => from.copy(to),
        }
    }
}

/// Memory of a device, or that a device shares.
pub(crate) trait Memory: Send {
    /// Its size.
    fn bytes(&self) -> usize;
    /// What the host sees of it; nothing while it sees none.
    fn view(&mut self) -> Option<&mut View>;
    /// Has the host see all of it, and waits until it does.
    fn map(&mut self, access: Access) -> Result<(), NoVisit>;
    /// Hands it to the device, and waits until that is done.
    fn unmap(&mut self) -> Result<(), NoVisit>;
    /// The words that the host sees; none while it sees nothing.
    fn contents(&mut self) -> &mut [f64] {
        self.view().map_or_else(Default::default, View::words)
    }
    /// Stores its first word, where the host sees it, so that the device may.
    fn host_store(&mut self, word: u64) -> Result<(), NoVisit> {
        self.view().into_iter().for_each(|view| view.store(word));
        Ok(())
    }
    /// Loads its first word, as the device may have left it; 0 where the host does not see it.
    fn host_load(&mut self) -> Result<u64, NoVisit> {
        Ok(self.view().map_or(0, View::load))
    }
    /// Copies `from` to its start.
    fn write<W: Word>(&mut self, from: &[W]) -> Result<(), NoVisit>;
    /// Copies its start to `to`.
    fn read<W: Word>(&mut self, to: &mut [W]) -> Result<(), NoVisit>;
    /// Copies all of it to `to`, which is as long: by the device, if it does so itself.
    fn copy(&mut self, to: &mut Self) -> Result<(), NoVisit>;
}

/// What a device does on its own, and is waited for. One that runs no kernels of ours may copy and store all the same.
pub(crate) trait Kernels: Send {
    type Memory;
    /// Places in memory of the device, each of which tells the one after it, and where a chase through them stands.
    type Cycle: Send;

    /// Bytes of an element of STREAM's arrays.
    fn element_bytes(&self) -> usize;
    /// Fills STREAM's arrays, as the loops touch them: a processor's pages then lie where its work items run. Returns whether it did; a
    /// device with memory of its own need not.
    fn fill(&mut self, _arrays: [&Self::Memory; 3], _values: [f64; 3]) -> Result<bool, NoVisit> {
        Ok(false)
    }
    /// Runs a loop over three arrays so many times: launched one after another, so that the device waits for the host once.
    fn stream(&mut self, which: Loop, arrays: [&Self::Memory; 3], times: u64) -> Result<(), NoVisit>;
    /// Has the device read `from` into `to`, as many words as both have.
    fn words(&mut self, to: &Self::Memory, from: &Self::Memory) -> Result<(), NoVisit>;
    /// Has the device store a word to the start of `to`.
    fn put(&mut self, to: &Self::Memory, word: u64) -> Result<(), NoVisit>;
    /// One cycle over these places; a chase stands at the first. `words` are as many as it has, for what is copied to the device.
    fn cycle(&self, places: &chase::Cycle, words: &mut [f64]) -> Result<Self::Cycle, NoVisit>;
    /// Follows so many links of it.
    fn follow(&mut self, cycle: &mut Self::Cycle, links: u64) -> Result<(), NoVisit>;
    /// The index of the word at which the chase stands.
    fn stands_at(&self, cycle: &mut Self::Cycle) -> Result<u64, NoVisit>;
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    const PCI: &str = "sys/bus/pci/devices";

    /// A tree in which each of these ends of links lies below the one before: its address, gigatransfers and lanes at most.
    fn below_each_other(ends: &[(&str, u32, u32)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let mut folder = "sys/devices/pci0000:00".to_string();
        fs::create_dir_all(root.path().join(PCI)).unwrap();
        for (address, speed, lanes) in ends {
            folder += &format!("/{address}");
            let end = root.path().join(&folder);
            fs::create_dir_all(&end).unwrap();
            symlink(Path::new("../../../..").join(&folder), root.path().join(PCI).join(address)).unwrap();
            for (which, speed) in [("current", &2), ("max", speed)] {
                fs::write(end.join(format!("{which}_link_speed")), format!("{speed}.0 GT/s PCIe\n")).unwrap();
                fs::write(end.join(format!("{which}_link_width")), format!("{lanes}\n")).unwrap();
            }
        }
        root
    }

    /// A card of generation 5 in a slot of generation 4 with 8 lanes, behind a switch with 4 lanes of generation 5: both links carry
    /// 15.8 GB/s. With 2 lanes the switch's is the slower one.
    #[test]
    fn a_link_is_the_slowest_between_device_and_processor() {
        let most = |switch, is_virtual: bool| {
            let card = "0000:3c:00.0";
            let root = below_each_other(&[
                ("0000:00:01.0", 32, 16),
                ("0000:3a:00.0", 32, switch),
                ("0000:3b:00.0", 16, 8),
                (card, 32, 16),
            ]);
            if is_virtual {
                fs::create_dir(root.path().join("sys/hypervisor")).unwrap();
                fs::write(root.path().join("sys/hypervisor/type"), "xen\n").unwrap();
            }
            let source = Source::recorded(root.path()).unwrap();
            assert_eq!(attached(&source, Some(card), true).1, None, "its memory is the host's");
            attached(&source, Some(card), false).1.unwrap().most.unwrap().to_string()
        };
        assert_eq!((most(4, false), most(2, false)), ("PCIe 4 x8".into(), "PCIe 5 x2".into()));
        assert_eq!(most(2, true), "PCIe 5 x16", "ports of a hypervisor say nothing");
    }
}
