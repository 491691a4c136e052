//! Types of memory: what a driver promises of each.

use ash::vk;

use membound_core::machine::devices::{MemoryFlag, MemoryType};
use membound_core::units::Bytes;
use membound_core::work::device::Buffer;

/// VkMemoryPropertyFlagBits.
const FLAGS: [(vk::MemoryPropertyFlags, MemoryFlag); 9] = [
    (vk::MemoryPropertyFlags::DEVICE_LOCAL, MemoryFlag::DeviceLocal),
    (vk::MemoryPropertyFlags::HOST_VISIBLE, MemoryFlag::HostVisible),
    (vk::MemoryPropertyFlags::HOST_COHERENT, MemoryFlag::HostCoherent),
    (vk::MemoryPropertyFlags::HOST_CACHED, MemoryFlag::HostCached),
    (vk::MemoryPropertyFlags::LAZILY_ALLOCATED, MemoryFlag::LazilyAllocated),
    (vk::MemoryPropertyFlags::PROTECTED, MemoryFlag::Protected),
    (vk::MemoryPropertyFlags::DEVICE_COHERENT_AMD, MemoryFlag::DeviceCoherent),
    (vk::MemoryPropertyFlags::DEVICE_UNCACHED_AMD, MemoryFlag::DeviceUncached),
    (vk::MemoryPropertyFlags::RDMA_CAPABLE_NV, MemoryFlag::RdmaCapable),
];

/// A device's types of memory, in its order.
pub(super) fn types(found: &vk::PhysicalDeviceMemoryProperties) -> Vec<MemoryType> {
    let heaps = found.memory_heaps;
    let heap_bytes = |heap: u32| Bytes(heaps.get(heap as usize).map_or(0, |heap| heap.size));
    let types = found.memory_types.iter().take(found.memory_type_count as usize);
    types
        .map(|of| MemoryType {
            flags: flags(of.property_flags),
            heap: of.heap_index,
            heap_bytes: heap_bytes(of.heap_index),
        })
        .collect()
}

fn flags(bits: vk::MemoryPropertyFlags) -> Vec<MemoryFlag> {
    let known = FLAGS.iter().fold(vk::MemoryPropertyFlags::empty(), |known, (bit, _)| known | *bit);
    let unknown = (!(bits & !known).is_empty()).then_some(MemoryFlag::Unknown);
    FLAGS.iter().filter(|(bit, _)| bits.contains(*bit)).map(|(_, flag)| *flag).chain(unknown).collect()
}

/// Bytes of the heaps that are the device's own.
pub(super) fn own_bytes(found: &vk::PhysicalDeviceMemoryProperties) -> u64 {
    let heaps = found.memory_heaps.iter().take(found.memory_heap_count as usize);
    heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL)).map(|heap| heap.size).sum()
}

/// What programs stage by: coherent memory, cached where there is such, so that reading it back is fast, too.
pub(super) fn staging(types: &[MemoryType]) -> Vec<u32> {
    const PREFERRED: [Buffer; 4] =
        [Buffer::CoherentCached, Buffer::Coherent, Buffer::LocalCoherentCached, Buffer::LocalCoherent];
    PREFERRED.into_iter().flat_map(|buffer| buffer.types(types)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bits: &[u32]) -> Vec<MemoryType> {
        let of = |bits: &u32| MemoryType {
            flags: flags(vk::MemoryPropertyFlags::from_raw(*bits)),
            heap: 0,
            heap_bytes: Bytes::gib(1),
        };
        bits.iter().map(of).collect()
    }

    #[test]
    fn flags_are_read_by_hand() {
        assert_eq!(
            flags(vk::MemoryPropertyFlags::from_raw(1 | 4)),
            [MemoryFlag::DeviceLocal, MemoryFlag::HostCoherent]
        );
        assert_eq!(flags(vk::MemoryPropertyFlags::from_raw(1 << 30)), [MemoryFlag::Unknown]);
        assert!(flags(vk::MemoryPropertyFlags::empty()).is_empty());
    }

    #[test]
    fn memory_to_stage_by_is_cached_where_it_can_be() {
        let types = of(&[0, 1, 2 | 4, 2 | 4 | 8, 1 | 2 | 4, 2 | 4 | 64, 1]);
        assert_eq!(staging(&types), [3, 2, 4]);
        assert_eq!(staging(&of(&[1 | 2 | 4 | 8])), [0]);
    }
}
