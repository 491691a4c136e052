//! OpenCL: devices of whatever drivers the system has. Nothing is linked; the loader is loaded by who needs it, which is a
//! process of its own, since a driver may crash it or never return.

pub(crate) mod calls;
pub(crate) mod failure;
pub(crate) mod kernels;

use std::sync::Arc;

use crate::driver::functions::NoLibrary;
use crate::driver::host_memory::HostMemory;
use crate::driver::{Copying, Driver, attached, named, pci_address};
use crate::linkage::{IS_STATIC, STATIC};
use crate::no_visit::NoVisit;
use crate::opencl::calls::{Id, LIBRARY, Loader, Memory, Session, flags};
use crate::opencl::kernels::Kernels;
use membound_core::machine::devices::{Api, Device, DeviceKind, DeviceName};
use membound_core::machine::source::Source;
use membound_core::units::Bytes;
use membound_core::work::device::Buffer;

/// What cl_device_info and cl_platform_info call what is asked (cl.h).
mod ask {
    pub const PLATFORM_NAME: u32 = 0x902;
    pub const TYPE: u32 = 0x1000;
    pub const COMPUTE_UNITS: u32 = 0x1002;
    pub const LARGEST_BUFFER: u32 = 0x1010;
    pub const CACHE: u32 = 0x101e;
    pub const MEMORY: u32 = 0x101f;
    pub const NAME: u32 = 0x102b;
    pub const DRIVER: u32 = 0x102d;
    pub const VERSION: u32 = 0x102f;
    pub const DOUBLE: u32 = 0x1032;
    pub const UNIFIED: u32 = 0x1035;
    pub const SVM: u32 = 0x1053;
    /// cl_khr_pci_bus_info: domain, bus, device, function.
    pub const PCI: u32 = 0x410f;
    /// cl_nv_device_attribute_query: bus; slot, which is the device shifted by 3 and the function; domain.
    pub const PCI_NV: [u32; 3] = [0x4008, 0x4009, 0x400a];
}

/// What to install where there is none, by the names of Debian's packages.
const CURE: &str = "install the device's driver, or pocl-opencl-icd for the processor";

/// All devices, with what makes them usable; or why there are none.
pub(crate) fn devices() -> Result<Vec<(Device, Id)>, String> {
    if IS_STATIC {
        return Err(format!("no OpenCL: {STATIC}"));
    }
    let loader = Loader::load().map_err(|why| {
        let why = match why {
            NoLibrary::Absent(why) => why,
            NoLibrary::TooOld(missing) => format!("{} has no {missing}", LIBRARY[0]),
        };
        format!("no OpenCL loader ({why}); install ocl-icd-libopencl1")
    })?;
    let (platforms, devices) = loader.devices().map_err(|failure| format!("OpenCL's loader answers {failure}"))?;
    match (platforms, &devices[..]) {
        (0, _) => return Err(format!("no OpenCL platform; {CURE}")),
        (_, []) => return Err(format!("{platforms} OpenCL platform(s) without a device; {CURE}")),
        _ => {}
    }
    let source = crate::machine::source();
    Ok((0..).zip(devices).map(|(number, id)| (describe(number, id, &source), id)).collect())
}

fn describe(number: u32, id: Id, source: &Source) -> Device {
    let (pci, kind) = (pci(id), kind(id.number(ask::TYPE)));
    let is_unified = id.words(ask::UNIFIED).first().is_some_and(|unified| *unified != 0);
    let (node, link) = attached(source, pci.as_deref(), is_unified);
    Device {
        name: DeviceName { api: Api::OpenCl, number },
        title: id.text(ask::NAME),
        kind,
        driver: format!("{} {}", id.platform_text(ask::PLATFORM_NAME), id.text(ask::DRIVER)),
        version: id.text(ask::VERSION),
        memory: Bytes(id.number(ask::MEMORY)),
        largest_buffer: Bytes(id.number(ask::LARGEST_BUFFER)),
        // Of a graphics card NVIDIA's driver tells the sum of the first caches.
        cache: Some(Bytes(id.number(ask::CACHE))).filter(|cache| cache.0 > 0 && kind == DeviceKind::Cpu),
        is_unified,
        units: id.words(ask::COMPUTE_UNITS).first().copied().unwrap_or(0),
        has_double: id.number(ask::DOUBLE) != 0,
        svm: svm(id.number(ask::SVM)),
        memory_types: Vec::new(),
        node,
        link,
        pci,
        peak_bps: None,
    }
}

/// cl_device_type: bits, of which CL_DEVICE_TYPE_DEFAULT says nothing about what it is.
fn kind(bits: u64) -> DeviceKind {
    const KINDS: [(u64, DeviceKind); 3] =
        [(1 << 2, DeviceKind::Gpu), (1 << 3, DeviceKind::Accelerator), (1 << 1, DeviceKind::Cpu)];
    KINDS.into_iter().find(|(bit, _)| bits & bit != 0).map_or(DeviceKind::Other, |(_, kind)| kind)
}

/// cl_device_svm_capabilities.
fn svm(bits: u64) -> Vec<String> {
    const CAPABILITIES: [(u64, &str); 4] =
        [(1, "coarse-grained buffers"), (2, "fine-grained buffers"), (4, "fine-grained system"), (8, "atomics")];
    CAPABILITIES.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name.to_string()).collect()
}

fn pci(id: Id) -> Option<String> {
    if let Ok(place) = <[u32; 4]>::try_from(id.words(ask::PCI)) {
        return Some(pci_address(place));
    }
    let of_nvidia = ask::PCI_NV.map(|what| id.words(what).first().copied());
    let [Some(bus), Some(slot), domain] = of_nvidia else { return None };
    Some(pci_address([domain.unwrap_or(0), bus, slot >> 3, slot & 7]))
}

/// A device that is open: its buffers by their flags.
pub(crate) struct OpenCl {
    session: Arc<Session>,
    device: Device,
}

impl Driver for OpenCl {
    type Memory = Memory;
    type Kernels = Kernels;

    fn open(name: DeviceName) -> Result<Self, NoVisit> {
        let (device, id) = named(devices(), name)?;
        Ok(OpenCl { session: Session::new(id)?, device })
    }

    fn beside(&self, _peer: DeviceName) -> Result<Self, NoVisit> {
        Err(NoVisit::impossible(
            "OpenCL copies from no device to another: buffers are a context's, and the driver moves them when it likes",
        ))
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn kernels(&self) -> Result<Kernels, NoVisit> {
        Kernels::new(&self.session, self.device.has_double)
    }

    fn make(&self, buffer: Buffer, bytes: usize, host: Option<HostMemory>) -> Result<Memory, NoVisit> {
        let has = |capability: &str| self.device.svm.iter().any(|svm| svm == capability);
        let asked = match buffer {
            Buffer::SvmCoarse if !has("coarse-grained buffers") => {
                return Err(NoVisit::impossible("the device has no shared virtual memory (OpenCL 2.0)"));
            }
            Buffer::SvmFine if !has("fine-grained buffers") => {
                return Err(NoVisit::impossible("the device has no fine-grained shared virtual memory"));
            }
            Buffer::SvmCoarse => return Ok(Memory::svm(&self.session, flags::READ_WRITE, bytes)?),
            Buffer::SvmFine => {
                return Ok(Memory::svm(&self.session, flags::READ_WRITE | flags::SVM_FINE_GRAIN, bytes)?);
            }
            Buffer::Plain => 0,
            Buffer::AllocHost => flags::ALLOC_HOST_PTR,
            Buffer::UseHostPage | Buffer::UseHostLine | Buffer::UseHostUnaligned => flags::USE_HOST_PTR,
            Buffer::CopyHost => flags::COPY_HOST_PTR,
            other => return Err(NoVisit::impossible(format!("{other} is no buffer of OpenCL"))),
        };
        Ok(Memory::buffer(&self.session, flags::READ_WRITE | asked, bytes, host)?)
    }

    fn both(&self, copies: [Copying<'_, Memory>; 2]) -> Result<(), NoVisit> {
        Ok(self.session.both(copies)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_by_hand() {
        assert_eq!((kind(2), kind(4 | 1), kind(16)), (DeviceKind::Cpu, DeviceKind::Gpu, DeviceKind::Other));
        assert_eq!(svm(0b1011).len(), 3);
        assert!(svm(0).is_empty());
    }
}
