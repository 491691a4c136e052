//! Copies between the host's memory and devices', and between devices: each way, and both at once, over sizes.

use crate::case::{Case, Protocol, USUAL_MEMORY, Work};
use crate::experiments::frame::{Frame, PlanError};
use crate::machine::devices::{Api, Device, DeviceName};
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
        let works = works(device.name, devices);
        let limit = Bytes(frame.memory_limit.0.min(device.memory.0) / HELD).min(device.largest_buffer);
        let named = sizes.iter().map(|size| Bytes(size.0.max(1).next_multiple_of(WORD)));
        let all: Vec<Bytes> = if sizes.is_empty() { SIZES.to_vec() } else { named.collect() };
        if let Some(&size) = all.iter().find(|size| !sizes.is_empty() && **size > limit) {
            return Err(PlanError::TooLarge { size, limit });
        }
        for working_set in all.into_iter().filter(|size| *size <= limit) {
            cases.extend(works.iter().map(|&work| Case {
                work: Work::Copies(work),
                memory: USUAL_MEMORY,
                streams: Vec::new(),
                cpus: cpus.clone(),
                working_set,
                misaligned_bytes: 0,
                protocol: Protocol::Steady,
            }));
        }
    }
    Ok(crate::case::distinct(cases))
}

/// The kind of the host's memory that a driver pins, for each interface whose copies begin at any address of the host.
fn pinned(api: Api) -> Option<Buffer> {
    match api {
        Api::OpenCl => Some(Buffer::AllocHost),
        Api::Cuda => Some(Buffer::Pinned),
        Api::Vulkan => None,
    }
}

/// What is copied by a device: to and from the host, within it, and to all others that its interface knows.
fn works(device: DeviceName, devices: &[Device]) -> Vec<CopyWork> {
    let kinds = std::iter::once(Buffer::Regular).chain(pinned(device.api));
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

    #[test]
    fn a_matrix_of_two_devices() {
        let devices = ["cuda:0", "cuda:1", "opencl:0", "vulkan:0"].map(|name| Device::unknown(name.parse().unwrap()));
        let all: Vec<CopyWork> = devices.iter().flat_map(|device| works(device.name, &devices)).collect();
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
}
