//! CUDA: devices of NVIDIA's driver, by its own library. Nothing is linked; the library is loaded by who needs it, which is a
//! process of its own, since a driver may crash it or never return.

pub(crate) mod calls;
pub(crate) mod failure;
pub(crate) mod kernels;

use std::sync::Arc;

use crate::cuda::calls::{Id, LIBRARY, Loaded, Memory, Reach, Session, flags};
use crate::cuda::failure::{
    CODES, COMPAT_NOT_SUPPORTED, NO_DEVICE, STUB_LIBRARY, SYSTEM_DRIVER_MISMATCH, SYSTEM_NOT_READY,
};
use crate::cuda::kernels::Kernels;
use crate::driver::failure::Failure;
use crate::driver::functions::NoLibrary;
use crate::driver::host_memory::HostMemory;
use crate::driver::{Copying, Driver, attached, named};
use crate::no_visit::NoVisit;
use membound_core::machine::devices::{Api, Device, DeviceKind, DeviceName};
use membound_core::machine::source::Source;
use membound_core::units::Bytes;
use membound_core::work::device::Buffer;

/// CUdevice_attribute (cuda.h).
mod ask {
    pub const MULTIPROCESSORS: i32 = 16;
    pub const INTEGRATED: i32 = 18;
    pub const CAN_MAP_HOST_MEMORY: i32 = 19;
    pub const MEMORY_CLOCK_KHZ: i32 = 36;
    pub const BUS_WIDTH_BITS: i32 = 37;
    pub const L2_CACHE_BYTES: i32 = 38;
    pub const ONE_ADDRESS_SPACE: i32 = 41;
    pub const CAPABILITY: [i32; 2] = [75, 76];
    pub const MANAGED_MEMORY: i32 = 83;
    pub const PAGEABLE_ACCESS: i32 = 88;
    pub const CONCURRENT_MANAGED_ACCESS: i32 = 89;
    pub const HOST_REGISTER: i32 = 99;
}

/// The first version whose library has all that is called here.
const LEAST_VERSION: &str = "CUDA 11";

/// All devices, with what makes them usable; or why there are none.
pub(crate) fn devices() -> Result<Vec<(Device, Id)>, String> {
    let driver = Loaded::load().map_err(|why| match why {
        NoLibrary::Absent(why) => format!("no CUDA driver ({why}); install NVIDIA's driver for this kernel"),
        NoLibrary::TooOld(missing) => {
            format!("the CUDA driver is too old: {LIBRARY} has no {missing}; install one of {LEAST_VERSION} or later")
        }
    })?;
    driver.init().map_err(no_start)?;
    let (version, found) = driver.version().and_then(|version| Ok((version, driver.devices()?))).map_err(no_start)?;
    if found.is_empty() {
        return Err(no_start(CODES.failure("cuDeviceGetCount", NO_DEVICE)));
    }
    let source = crate::machine::source();
    Ok((0..).zip(found).map(|(number, id)| (describe(number, id, version, &source), id)).collect())
}

/// Why a driver that is there has no devices, with the cure.
fn no_start(failure: Failure) -> String {
    let (what, cure) = match failure.code {
        NO_DEVICE => ("the CUDA driver finds no device", "a container must be given its devices, /dev/nvidia*"),
        SYSTEM_DRIVER_MISMATCH => (
            "the CUDA library and the kernel's driver are of two versions",
            "restart the machine, or install both anew",
        ),
        COMPAT_NOT_SUPPORTED => {
            ("the CUDA library is one for data centers, which this device can't use", "take it out of LD_LIBRARY_PATH")
        }
        SYSTEM_NOT_READY => ("the CUDA driver's services do not run", "start nvidia-fabricmanager"),
        STUB_LIBRARY => ("the CUDA library is the one to link with, not to run", "take it out of LD_LIBRARY_PATH"),
        _ => ("the CUDA driver does not start", "see whether nvidia-smi works, and the kernel's log"),
    };
    format!("{what}: {failure}; {cure}")
}

fn describe(number: u32, id: Id, version: i32, source: &Source) -> Device {
    let has = |what| id.attribute(what).is_some_and(|value| value != 0);
    // sysfs writes its hexadecimal digits small.
    let pci = id.pci().map(|address| address.to_lowercase());
    let is_unified = has(ask::INTEGRATED);
    let (node, link) = attached(source, pci.as_deref(), is_unified);
    let [major, minor] = ask::CAPABILITY.map(|what| id.attribute(what).unwrap_or(0));
    let memory = Bytes(id.memory());
    Device {
        name: DeviceName { api: Api::Cuda, number },
        title: id.name(),
        kind: DeviceKind::Gpu,
        driver: format!("CUDA driver {}.{}", version / 1000, version % 1000 / 10),
        version: format!("compute capability {major}.{minor}"),
        memory,
        largest_buffer: memory,
        cache: id
            .attribute(ask::L2_CACHE_BYTES)
            .and_then(|bytes| bytes.try_into().ok())
            .filter(|bytes| *bytes > 0)
            .map(Bytes),
        is_unified,
        units: id.attribute(ask::MULTIPROCESSORS).and_then(|units| units.try_into().ok()).unwrap_or(0),
        has_double: true,
        svm: [
            (ask::MANAGED_MEMORY, "managed memory"),
            (ask::CONCURRENT_MANAGED_ACCESS, "managed memory at the same time"),
            (ask::PAGEABLE_ACCESS, "all of the host's memory"),
        ]
        .into_iter()
        .filter(|(what, _)| has(*what))
        .map(|(_, name)| name.to_string())
        .collect(),
        node,
        memory_types: Vec::new(),
        link,
        pci,
        peak_bps: peak(id.attribute(ask::MEMORY_CLOCK_KHZ), id.attribute(ask::BUS_WIDTH_BITS)),
    }
}

/// Bytes per second of memory that moves data twice a cycle of its clock, as all kinds do that devices have.
fn peak(clock_khz: Option<i32>, bus_bits: Option<i32>) -> Option<u64> {
    let [clock, bits] = [clock_khz?, bus_bits?].map(|value| u64::try_from(value).unwrap_or(0));
    let bps = 2 * clock * 1000 * bits / 8;
    (bps > 0).then_some(bps)
}

/// A device that is open: its buffers by the functions that make them.
pub(crate) struct Cuda {
    session: Arc<Session>,
    device: Device,
    id: Id,
    /// Both ways between it and the device that it was opened beside.
    _reaches: Vec<Reach>,
}

impl Cuda {
    /// Refuses a kind that the device says it can't do.
    fn must_have(&self, what: i32, words: &'static str) -> Result<(), NoVisit> {
        match self.id.attribute(what) {
            Some(value) if value != 0 => Ok(()),
            _ => Err(NoVisit::impossible(format!("the device says that it has no {words}"))),
        }
    }
}

impl Driver for Cuda {
    type Memory = Memory;
    type Kernels = Kernels;

    fn open(name: DeviceName) -> Result<Self, NoVisit> {
        let (device, id) = named(devices(), name)?;
        Ok(Cuda { session: Session::new(id)?, device, id, _reaches: Vec::new() })
    }

    fn beside(&self, peer: DeviceName) -> Result<Self, NoVisit> {
        let peer = Cuda::open(peer)?;
        // Where one can't reach the other, the driver copies by way of the host's memory.
        let both = [self.session.reach(&peer.session)?, peer.session.reach(&self.session)?];
        Ok(Cuda { _reaches: both.into_iter().flatten().collect(), ..peer })
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn kernels(&self) -> Result<Kernels, NoVisit> {
        Kernels::new(&self.session)
    }

    fn make(&self, buffer: Buffer, bytes: usize, host: Option<HostMemory>) -> Result<Memory, NoVisit> {
        let session = &self.session;
        if !matches!(buffer, Buffer::Plain) {
            self.must_have(ask::ONE_ADDRESS_SPACE, "address space in common with the host")?;
        }
        match (buffer, host) {
            (Buffer::Plain, None) => Ok(Memory::of_device(session, bytes)?),
            (Buffer::Pinned, None) => Ok(Memory::pinned(session, flags::PORTABLE, bytes)?),
            (Buffer::PinnedWc, None) => {
                // Mapped, so that the driver tells where: not at the host's address.
                Ok(Memory::pinned(session, flags::PORTABLE | flags::WRITE_COMBINED | flags::DEVICE_MAP, bytes)?)
            }
            (Buffer::Mapped, None) => {
                self.must_have(ask::CAN_MAP_HOST_MEMORY, "way to map the host's memory")?;
                Ok(Memory::pinned(session, flags::PORTABLE | flags::DEVICE_MAP, bytes)?)
            }
            (Buffer::Managed, None) => {
                self.must_have(ask::MANAGED_MEMORY, "managed memory")?;
                Ok(Memory::managed(session, bytes, false)?)
            }
            (Buffer::ManagedPrefetch | Buffer::ManagedAdvised, None) => {
                self.must_have(ask::MANAGED_MEMORY, "managed memory")?;
                self.must_have(ask::CONCURRENT_MANAGED_ACCESS, "managed memory that takes advice or moves on demand")?;
                let memory = Memory::managed(session, bytes, buffer == Buffer::ManagedPrefetch)?;
                Ok(if buffer == Buffer::ManagedAdvised { memory.stays_with_host()? } else { memory })
            }
            (Buffer::Registered4k | Buffer::RegisteredThp | Buffer::RegisteredHuge, Some(host)) => {
                self.must_have(ask::HOST_REGISTER, "way to register the host's memory")?;
                Ok(Memory::registered(session, bytes, host)?)
            }
            (other, _) => Err(NoVisit::impossible(format!("{other} is no buffer of CUDA"))),
        }
    }

    fn both(&self, copies: [Copying<'_, Memory>; 2]) -> Result<(), NoVisit> {
        Ok(self.session.both(copies)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;
    use std::process::Command;

    /// 5 GHz x 2 x 384 bits / 8 = 480 GB/s.
    #[test]
    fn the_peak_of_a_devices_memory_by_hand() {
        assert_eq!(peak(Some(5_000_000), Some(384)), Some(480_000_000_000));
        assert_eq!(
            (peak(None, Some(384)), peak(Some(5_000_000), Some(0)), peak(Some(-1), Some(384))),
            (None, None, None)
        );
    }

    #[test]
    fn drivers_that_do_not_start_are_told_with_their_cure() {
        let told = |code| no_start(CODES.failure("cuInit", code));
        assert!(told(100).contains("finds no device: CUDA_ERROR_NO_DEVICE (100) from cuInit; a container"));
        assert!(told(803).contains("of two versions: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"));
        assert!(told(999).contains("does not start"));
    }

    /// The kernels' text is accepted by NVIDIA's assembler for the oldest devices that it knows and for newer ones.
    #[test]
    fn kernels_are_accepted_by_ptxas() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda/kernels.ptx");
        let ptxas = |text: &[&str]| Command::new("ptxas").args(text).output();
        if ptxas(&["--version"]).is_err() {
            return skip("no ptxas");
        }
        let mut accepted = 0;
        for arch in ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let output = ptxas(&["-arch", arch, "-o", "/dev/null", source]).unwrap();
            let said = String::from_utf8_lossy(&output.stderr).to_string();
            // An assembler knows a span of devices.
            let is_unknown = said.contains("not defined for option");
            assert!(output.status.success() || is_unknown, "{arch}: {said}");
            accepted += usize::from(output.status.success());
        }
        assert!(accepted > 0, "it knows none of these devices");
    }
}
