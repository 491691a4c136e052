//! Vulkan: types of memory of whatever drivers the system has. Nothing is linked; the loader is loaded by who needs it, which is a
//! process of its own, since a driver may crash it or never return.

pub(crate) mod calls;
pub(crate) mod failure;
pub(crate) mod transfers;
pub(crate) mod types;

use std::sync::Arc;

use ash::vk;

use crate::driver::failure::Failure;
use crate::driver::functions::NoLibrary;
use crate::driver::host_memory::HostMemory;
use crate::driver::{Copying, Driver, attached, named, pci_address};
use crate::linkage::{IS_STATIC, STATIC};
use crate::no_visit::NoVisit;
use crate::vulkan::calls::{About, Asked, Id, LIBRARY, Loader, Memory, Queues, Session};
use crate::vulkan::failure::{INCOMPATIBLE_DRIVER, INITIALIZATION_FAILED};
use crate::vulkan::transfers::Transfers;
use membound_core::machine::devices::{Api, Device, DeviceKind, DeviceName, MemoryFlag};
use membound_core::machine::source::Source;
use membound_core::units::{Bytes, counted};
use membound_core::work::device::Buffer;

/// What to install where there is none, by the names of Debian's packages.
const CURE: &str = "install the device's driver, or mesa-vulkan-drivers for the processor; if its driver lies elsewhere, name its .json \
    file in VK_DRIVER_FILES";
/// One for each of two copies at once.
const MOST_QUEUES: u32 = 2;

/// All devices, with what makes them usable; or why there are none.
pub(crate) fn devices() -> Result<Vec<(Device, Id)>, String> {
    if IS_STATIC {
        return Err(format!("no Vulkan: {STATIC}"));
    }
    let loader = Loader::load().map_err(|why| match why {
        NoLibrary::Absent(why) => {
            format!("no Vulkan loader ({why}); install libvulkan1 and the device's driver (mesa-vulkan-drivers for the processor)")
        }
        NoLibrary::TooOld(missing) => {
            format!("the Vulkan loader is too old: {} has no {missing}; install one of Vulkan 1.1 or later", LIBRARY[0])
        }
    })?;
    let found = loader.devices().map_err(no_start)?;
    if found.is_empty() {
        return Err(format!("no Vulkan device; {CURE}"));
    }
    let source = crate::machine::source();
    Ok((0..).zip(found).map(|(number, id)| (describe(number, id, &source), id)).collect())
}

/// Why a loader that is there has no devices, with the cure.
fn no_start(failure: Failure) -> String {
    match failure.code {
        INCOMPATIBLE_DRIVER | INITIALIZATION_FAILED => format!("no Vulkan driver that starts: {failure}; {CURE}"),
        _ => format!("Vulkan's loader answers {failure}; see what vulkaninfo says"),
    }
}

fn describe(number: u32, id: Id, source: &Source) -> Device {
    let (About { title, kind, version, driver, pci, largest }, memory) = (id.about(), id.memory());
    let pci = pci.map(pci_address);
    let is_unified = matches!(kind, vk::PhysicalDeviceType::INTEGRATED_GPU | vk::PhysicalDeviceType::CPU);
    let (node, link) = attached(source, pci.as_deref(), is_unified);
    let own = types::own_bytes(&memory);
    Device {
        name: DeviceName { api: Api::Vulkan, number },
        title,
        kind: device_kind(kind),
        driver,
        version: format!("{}; {}", version_text(version), copies_by(&id.families())),
        memory: Bytes(own),
        largest_buffer: Bytes(if largest == 0 { own } else { largest.min(own) }),
        cache: None,
        is_unified,
        units: 0,
        has_double: true,
        svm: Vec::new(),
        memory_types: types::types(&memory),
        node,
        link,
        pci,
        peak_bps: None,
    }
}

fn device_kind(kind: vk::PhysicalDeviceType) -> DeviceKind {
    use vk::PhysicalDeviceType as Type;
    match kind {
        Type::CPU => DeviceKind::Cpu,
        Type::DISCRETE_GPU | Type::INTEGRATED_GPU | Type::VIRTUAL_GPU => DeviceKind::Gpu,
        _ => DeviceKind::Other,
    }
}

fn version_text(version: u32) -> String {
    let [major, minor, patch] =
        [vk::api_version_major(version), vk::api_version_minor(version), vk::api_version_patch(version)];
    format!("Vulkan {major}.{minor}.{patch}")
}

/// By which queues a device copies, as a program would choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Families {
    /// What leaves or enters the device's memory: queues that do nothing else where there are such, which are copy engines.
    link: Queues,
    /// What stays in it: queues that compute where there are such, since a copy engine is no faster than a link.
    within: Queues,
}

fn families(all: &[vk::QueueFamilyProperties]) -> Option<Families> {
    use vk::QueueFlags;
    const COMPUTES: QueueFlags = QueueFlags::from_raw(QueueFlags::GRAPHICS.as_raw() | QueueFlags::COMPUTE.as_raw());
    // Beside copying these say how, not what else.
    const HOW: QueueFlags = QueueFlags::from_raw(QueueFlags::SPARSE_BINDING.as_raw() | QueueFlags::PROTECTED.as_raw());
    let used = || (0..).zip(all).filter(|(_, of)| of.queue_count > 0);
    let queues = |(family, of): (u32, &vk::QueueFamilyProperties)| Queues { family, count: of.queue_count };
    let engine = used().find(|(_, of)| (of.queue_flags & !HOW) == QueueFlags::TRANSFER).map(queues);
    let computes = || used().filter(|(_, of)| of.queue_flags.intersects(COMPUTES)).map(queues);
    let most = computes().find(|queues| queues.count >= MOST_QUEUES).or(computes().next());
    let any = most.or(engine)?;
    Some(Families { link: engine.unwrap_or(any), within: any })
}

/// `copies by queue family 1 (2 queues), within the device by family 0 (16 queues)`
fn copies_by(all: &[vk::QueueFamilyProperties]) -> String {
    let Some(Families { link, within }) = families(all) else { return "no queue that copies".into() };
    let copies = format!("copies by queue family {} ({})", link.family, counted(link.count, "queue"));
    match link == within {
        true => copies,
        false => {
            format!("{copies}, within the device by family {} ({})", within.family, counted(within.count, "queue"))
        }
    }
}

/// A device that is open: its buffers by types of memory.
pub(crate) struct Vulkan {
    session: Arc<Session>,
    device: Device,
}

impl Driver for Vulkan {
    type Memory = Memory;
    type Kernels = Transfers;

    fn open(name: DeviceName) -> Result<Self, NoVisit> {
        let (device, id) = named(devices(), name)?;
        let Families { link, within } =
            families(&id.families()).ok_or_else(|| NoVisit::impossible("the device has no queue that copies"))?;
        let opened = |queues: Queues| Queues { count: queues.count.min(MOST_QUEUES), ..queues };
        let staging = types::staging(&device.memory_types);
        Ok(Vulkan { session: Session::new(id, opened(link), opened(within), staging)?, device })
    }

    fn beside(&self, _peer: DeviceName) -> Result<Self, NoVisit> {
        Err(NoVisit::impossible("Vulkan copies from no device to another: memory belongs to the device that made it"))
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn kernels(&self) -> Result<Transfers, NoVisit> {
        Ok(Transfers)
    }

    fn make(&self, buffer: Buffer, bytes: usize, host: Option<HostMemory>) -> Result<Memory, NoVisit> {
        if host.is_some() || !Buffer::of(Api::Vulkan).contains(&buffer) {
            return Err(NoVisit::impossible(format!("{buffer} is no buffer of Vulkan")));
        }
        let all = &self.device.memory_types;
        let types = buffer.types(all);
        let Some(first) = types.first().and_then(|number| all.get(*number as usize)) else {
            return Err(NoVisit::impossible(format!("the device has no type of memory that is {buffer}")));
        };
        let is_coherent = first.flags.contains(&MemoryFlag::HostCoherent);
        let asked = Asked { types: &types, is_coherent, is_mappable: buffer != Buffer::Plain };
        Memory::new(&self.session, asked, bytes)
    }

    fn both(&self, copies: [Copying<'_, Memory>; 2]) -> Result<(), NoVisit> {
        self.session.both(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vulkan::failure::CODES;

    #[test]
    fn drivers_that_do_not_start_are_told_with_their_cure() {
        let told = |code| no_start(CODES.failure("vkCreateInstance", code));
        assert!(
            told(-9).contains("VK_ERROR_INCOMPATIBLE_DRIVER (-9) from vkCreateInstance; install the device's driver")
        );
        assert!(told(-1).contains("VK_ERROR_OUT_OF_HOST_MEMORY (-1) from vkCreateInstance; see what vulkaninfo"));
    }

    /// Bits of VkQueueFlagBits: graphics 1, compute 2, transfer 4, sparse binding 8, video 32.
    #[test]
    fn copies_go_by_queues_for_copies() {
        let all = |families: &[(u32, u32)]| {
            let one = |(bits, queue_count): &(u32, u32)| vk::QueueFamilyProperties {
                queue_flags: vk::QueueFlags::from_raw(*bits),
                queue_count: *queue_count,
                ..vk::QueueFamilyProperties::default()
            };
            families.iter().map(one).collect::<Vec<_>>()
        };
        let card = all(&[(1 | 2 | 4 | 8, 16), (4 | 32, 1), (4 | 8, 2), (2 | 4, 8)]);
        assert_eq!(copies_by(&card), "copies by queue family 2 (2 queues), within the device by family 0 (16 queues)");
        assert_eq!(copies_by(&all(&[(32, 1), (1 | 2, 1)])), "copies by queue family 1 (1 queue)");
        assert_eq!(copies_by(&all(&[(1 | 2, 1), (2, 4)])), "copies by queue family 1 (4 queues)");
        assert_eq!(copies_by(&all(&[(32, 1), (4, 3)])), "copies by queue family 1 (3 queues)");
        assert_eq!(copies_by(&all(&[(1, 0)])), "no queue that copies");
    }

    #[test]
    fn versions_are_read_by_hand() {
        // 1 << 22 | 3 << 12 | 230.
        assert_eq!(version_text(4_206_822), "Vulkan 1.3.230");
    }
}
