//! Copies between the host's memory and devices', and between devices: each way, and both at once, over sizes.

use crate::case::{Case, USUAL_MEMORY, Work};
use crate::experiments::frame::{Frame, PlanError};
use crate::in_order::each_once;
use crate::machine::devices::{Api, Device};
use crate::units::Bytes;
use crate::work::copies::{CopyWork, Route};
use crate::work::device::Buffer;

/// Sizes where none are named: the smallest show what a copy costs whatever its size, the largest what the path moves.
pub const SIZES: [Bytes; 8] = [
    Bytes(64),
    Bytes(512),
    Bytes::kib(4),
    Bytes::kib(32),
    Bytes::kib(256),
    Bytes::mib(2),
    Bytes::mib(16),
    Bytes::mib(64),
];
/// Memory that is held at once: source and destination of both ways, and copies of the driver's.
const HELD: u64 = 8;
/// Bytes of a word: data is checked word by word.
const WORD: u64 = 8;

/// The cases that answer, of all these devices. Sizes that memory has no room for are left out where they are ours, and refused
/// where they are the user's.
pub fn copies(frame: &Frame, devices: &[Device], sizes: &[Bytes]) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(1)?;
    let mut cases = Vec::new();
    for device in devices {
        let works = works(device, devices);
        let limit = Bytes(frame.memory_limit.0.min(device.memory.0) / HELD).min(device.largest_buffer);
        let named = sizes.iter().map(|&size| whole_words(size));
        let all: Vec<Bytes> = if sizes.is_empty() { SIZES.to_vec() } else { named.collect() };
        if let Some(&size) = all.iter().find(|size| !sizes.is_empty() && **size > limit) {
            return Err(PlanError::TooLarge { size, limit });
        }
        for size in all.into_iter().filter(|size| *size <= limit) {
            let case = |work: &CopyWork| Case::new(Work::Copies(*work), USUAL_MEMORY, cpus.clone(), size);
            cases.extend(works.iter().map(case));
        }
    }
    Ok(each_once(cases))
}

/// Whole words, of which there is at least one; what is beyond all memory stays so.
fn whole_words(size: Bytes) -> Bytes {
    Bytes(size.0.max(1).checked_next_multiple_of(WORD).unwrap_or(u64::MAX))
}

/// The kind of the host's memory that a device reaches by itself.
fn pinned(device: &Device) -> Option<Buffer> {
    match device.name.api {
        Api::OpenCl => Some(Buffer::AllocHost),
        Api::Cuda => Some(Buffer::Pinned),
        Api::Vulkan => Buffer::beside_device(&device.memory_types),
    }
}

/// What is copied by a device: to and from the host, within it, and to all others that its interface knows.
fn works(of: &Device, devices: &[Device]) -> Vec<CopyWork> {
    let device = of.name;
    let kinds = std::iter::once(Buffer::Regular).chain(pinned(of));
    let with_host = kinds.flat_map(|host| {
        let routes = [Route::ToDevice, Route::FromDevice, Route::HostBothWays];
        routes.map(|route| CopyWork { device, route, host: Some(host), peer: None })
    });
    let peers = devices.iter().map(|peer| peer.name).filter(|peer| peer.api == device.api);
    let between = peers.flat_map(|peer| {
        let one_way = CopyWork { device, route: Route::BetweenDevices, host: None, peer: Some(peer) };
        // Both ways are one case of the two devices.
        let both = (device < peer).then_some(CopyWork { route: Route::DevicesBothWays, ..one_way });
        std::iter::once(one_way).chain(both)
    });
    with_host.chain(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::devices::{MemoryFlag, MemoryType};

    #[test]
    fn sizes_are_whole_words_and_never_wrap() {
        let words = [0, 1, 8, 9, u64::MAX - 3].map(|bytes| whole_words(Bytes(bytes)).0);
        assert_eq!(words, [8, 8, 8, 16, u64::MAX]);
    }

    #[test]
    fn a_matrix_of_two_devices() {
        let devices = ["cuda:0", "cuda:1", "opencl:0", "vulkan:0"].map(|name| Device::unknown(name.parse().unwrap()));
        let all: Vec<CopyWork> = devices.iter().flat_map(|device| works(device, &devices)).collect();
        let between: Vec<String> = all.iter().filter(|work| work.host.is_none()).map(CopyWork::ends).collect();
        assert_eq!(
            between,
            [
                "cuda:0 -> cuda:0",
                "cuda:0 -> cuda:1",
                "cuda:0 <-> cuda:1",
                "cuda:1 -> cuda:0",
                "cuda:1 -> cuda:1",
                "opencl:0 -> opencl:0",
                "vulkan:0 -> vulkan:0",
            ]
        );
        let host =
            |name: &str| all.iter().filter(|work| work.host.is_some() && work.device.to_string() == name).count();
        assert_eq!(["cuda:0", "cuda:1", "opencl:0", "vulkan:0"].map(host), [6, 6, 6, 3]);
    }

    /// What the processor reads quickly goes before what it writes quickly.
    #[test]
    fn vulkan_copies_from_memory_that_the_host_maps() {
        use MemoryFlag::{HostCached, HostCoherent, HostVisible};
        let of_types = |types: &[&[MemoryFlag]]| {
            let memory_types =
                types.iter().map(|flags| MemoryType { flags: flags.to_vec(), heap: 0, heap_bytes: Bytes(0) }).collect();
            let card = Device { memory_types, ..Device::unknown("vulkan:0".parse().unwrap()) };
            works(&card, std::slice::from_ref(&card)).iter().map(CopyWork::ends).collect::<Vec<_>>()
        };
        let coherent = [HostVisible, HostCoherent];
        assert_eq!(
            of_types(&[&coherent, &[HostVisible, HostCoherent, HostCached]])[3..6],
            [
                "host (coherent+cached) -> vulkan:0",
                "vulkan:0 -> host (coherent+cached)",
                "host (coherent+cached) <-> vulkan:0"
            ]
        );
        assert_eq!(of_types(&[&coherent])[3], "host (coherent) -> vulkan:0");
    }
}
