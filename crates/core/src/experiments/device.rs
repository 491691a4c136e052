//! Memory that a device shares with the processor: which buffer to use, what the device does with its own memory, and what
//! both cost each other.

use crate::case::{Case, Protocol, USUAL_MEMORY, Work};
use crate::experiments::frame::{Frame, PlanError};
use crate::in_order::each_once;
use crate::machine::devices::{Api, Device};
use crate::units::Bytes;
use crate::work::device::{Action, Buffer, DeviceWork};

/// Bytes of a buffer: those of the published experiment (32 MB of doubles).
pub const BUFFER: Bytes = Bytes::mib(32);
/// A buffer so small that mapping it costs what mapping costs whatever the size.
pub const SMALL: Bytes = Bytes::kib(64);
/// Buffers that are held at the same time: source, destination, memory of the program's own, copies of the driver's.
const HELD: u64 = 8;
/// Buffers are whole pages.
const PAGE: u64 = 4096;
/// Working sets of the device's kernels, over all arrays.
const WORKING_SETS: [Bytes; 6] =
    [Bytes::kib(96), Bytes::kib(768), Bytes::mib(6), Bytes::mib(24), Bytes::mib(96), Bytes::mib(768)];
/// The smallest working set of a chase.
const LEAST_CHASED: Bytes = Bytes::kib(32);
/// A working set that is nearer to another than this shows nothing more, and a chase over gigabytes takes seconds to make.
const ALIKE: f64 = 1.1;
/// So many times its last-level cache lie in a device's memory, even the two of three arrays that a copy touches.
const OWN_MEMORY_TO_CACHE: u64 = 8;

/// Percent of the time in which what runs beside another thing works.
const DUTIES: [u8; 5] = [20, 40, 60, 80, 100];

/// What is asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// Each kind of buffer: what it costs, how fast it is touched, how it is shared.
    pub buffers: bool,
    /// STREAM's kernels and a pointer chase, done by the device.
    pub kernels: bool,
    /// What the device's copies cost the processor, and the other way round.
    pub contention: bool,
}

/// The cases that answer. `size` is the buffers'.
pub fn device(frame: &Frame, device: &Device, size: Option<Bytes>, parts: Parts) -> Result<Vec<Case>, PlanError> {
    let most = largest(frame.memory_limit, device);
    let bytes = buffer(size, most)?;
    // Twice the last-level cache for each array: what both move comes from memory.
    let contended = whole_pages(Bytes(frame.memory_size(1).0 / 2).min(most));
    let all = frame.placement.first(frame.placement.most())?;
    let plan = Plan { device, bytes, contended, cpus: frame.placement.first(1)?, all };
    let mut cases = Vec::new();
    if parts.buffers {
        cases.extend(plan.buffers());
    }
    if parts.contention {
        cases.extend(plan.contention());
    }
    if parts.kernels {
        cases.extend(plan.kernels(Bytes(most.0 * 3)));
    }
    Ok(each_once(cases))
}

/// Whole pages that a buffer may have.
fn largest(memory_limit: Bytes, device: &Device) -> Bytes {
    let most = Bytes(memory_limit.0.min(device.memory.0) / HELD).min(device.largest_buffer);
    Bytes(most.0 / PAGE * PAGE)
}

/// Bytes of a buffer, at most so many whole pages.
fn buffer(size: Option<Bytes>, most: Bytes) -> Result<Bytes, PlanError> {
    let size = size.unwrap_or(BUFFER.min(most)).max(Bytes(PAGE));
    if size > most {
        return Err(PlanError::TooLarge { size, limit: most });
    }
    Ok(whole_pages(size))
}

/// Two working sets in each octave up to the largest, from one that each first cache holds: where levels end shows.
fn curve(largest: Option<Bytes>) -> impl Iterator<Item = Bytes> {
    let sizes =
        (0..).map(|half: i32| whole_pages(Bytes((LEAST_CHASED.0 as f64 * (f64::from(half) / 2.0).exp2()) as u64)));
    sizes.take_while(move |size| largest.is_some_and(|largest| *size < largest))
}

/// At least one, so that every action has something to do.
fn whole_pages(bytes: Bytes) -> Bytes {
    Bytes(bytes.0.next_multiple_of(PAGE).max(PAGE))
}

struct Plan<'a> {
    device: &'a Device,
    bytes: Bytes,
    /// Bytes of each array where both work at once.
    contended: Bytes,
    /// The CPU that works and waits.
    cpus: Vec<u32>,
    /// All there are.
    all: Vec<u32>,
}

impl Plan<'_> {
    fn buffers(&self) -> Vec<Case> {
        use Action::{Load, LoadNt, Store, StoreNt, Use, UseWritten};
        let mut cases = vec![self.first(Buffer::Plain, UseWritten), self.case(Buffer::Plain, UseWritten)];
        let kinds = Buffer::of(self.device.name.api);
        let reached: Vec<Buffer> =
            kinds.iter().copied().filter(|buffer| buffer.is_reached_by_host(self.device.name.api)).collect();
        for &buffer in &reached {
            cases.extend([self.first(buffer, Use), self.case(buffer, Use)]);
        }
        for &buffer in [Buffer::Regular].iter().chain(&reached) {
            cases.push(self.first(buffer, Store));
            cases.extend([Store, StoreNt, Load, LoadNt].map(|action| self.case(buffer, action)));
        }
        kinds.iter().for_each(|&buffer| cases.extend(self.by_the_driver(buffer)));
        cases
    }

    /// What the driver does with a buffer: makes it, maps it, copies it. Making and mapping are measured at two sizes: what
    /// grows with the size makes pages, pins them or moves data.
    fn by_the_driver(&self, buffer: Buffer) -> Vec<Case> {
        use Action::{Allocate, Copy, CopyBack, CopyBoth, KernelRead, MapInvalidate, MapRead, MapWrite, Read, Write};
        let api = self.device.name.api;
        let mut sized = vec![Allocate];
        if buffer.is_mapped_by_command() && buffer.is_reached_by_host(api) {
            sized.extend([MapRead, MapWrite]);
            // Vulkan maps for whatever is to be done.
            sized.extend((api == Api::OpenCl).then_some(MapInvalidate));
        }
        let mut cases: Vec<Case> = sized.into_iter().flat_map(|action| self.small_and_large(buffer, action)).collect();
        // Buffers of CUDA and Vulkan that the host reaches are what a copy begins or ends at: nobody copies them to other memory of
        // the host by the driver.
        let by_host: &[Action] = if api == Api::OpenCl || buffer == Buffer::Plain { &[Write, Read] } else { &[] };
        // Without a kernel, what reads is the copy.
        let by_kernel: &[Action] = if api == Api::Vulkan { &[] } else { &[KernelRead] };
        let all = by_host.iter().chain(&[Copy, CopyBack, CopyBoth]).chain(by_kernel);
        cases.extend(all.map(|&action| self.case(buffer, action)));
        cases
    }

    fn small_and_large(&self, buffer: Buffer, action: Action) -> Vec<Case> {
        let large = self.case(buffer, action);
        let small = Case { working_set: SMALL.min(self.bytes), ..large.clone() };
        std::iter::once(small).chain((self.bytes > SMALL).then_some(large)).collect()
    }

    fn contention(&self) -> Vec<Case> {
        use Action::{Copy, CopyBesideHostTriad, HostTriad, HostTriadBesideCopy};
        let on = |cpus: &[u32], buffer, action, bytes: Bytes| Case {
            cpus: cpus.to_vec(),
            working_set: bytes,
            ..self.case(buffer, action)
        };
        let (buffer, most) = (self.copied_from(), self.all.len());
        let mut cases = vec![match buffer {
            Buffer::Regular => on(&self.cpus, Buffer::Plain, Action::Write, self.contended),
            buffer => on(&self.cpus, buffer, Copy, self.contended),
        }];
        // The triad by one CPU, and by all but the one that waits for the device.
        for triads in [1, most - 1] {
            let (alone, both) = (&self.all[..triads.max(1)], &self.all[..(triads + 1).min(most)]);
            let arrays = Bytes(3 * whole_pages(Bytes(self.contended.0 / triads.max(1) as u64)).0);
            cases.push(on(alone, Buffer::Regular, HostTriad, arrays));
            let duties = if triads > 0 && triads + 1 == most { &DUTIES[..] } else { &DUTIES[DUTIES.len() - 1..] };
            for (action, bytes) in [(HostTriadBesideCopy, arrays), (CopyBesideHostTriad, self.contended)] {
                let work = DeviceWork::new(self.device.name, buffer, action);
                cases.extend(duties.iter().map(|duty| Case {
                    work: Work::Device(DeviceWork { duty_percent: Some(*duty), ..work }),
                    ..on(both, buffer, action, bytes)
                }));
            }
        }
        cases
    }

    /// What a copy takes from the host's memory: plain memory where that is the device's own as well, and what drivers pin elsewhere.
    fn copied_from(&self) -> Buffer {
        if self.device.is_unified {
            return Buffer::Plain;
        }
        match self.device.name.api {
            // Drivers keep other buffers with the device.
            Api::OpenCl => Buffer::Regular,
            Api::Cuda => Buffer::Pinned,
            Api::Vulkan => Buffer::beside_device(&self.device.memory_types).unwrap_or(Buffer::Plain),
        }
    }

    /// Over three arrays, or over one of a chase: none of them is larger than a buffer can be.
    fn kernels(&self, most: Bytes) -> Vec<Case> {
        let sets = self.working_sets();
        let is_new =
            |size: &Bytes| !sets.iter().any(|set| set.0.max(size.0) as f64 <= ALIKE * set.0.min(size.0) as f64);
        let between = curve(sets.last().copied()).filter(is_new);
        let chased: Vec<Bytes> = sets.iter().copied().chain(between).collect();
        let all = Action::KERNELS.iter().map(|action| (*action, &sets)).chain([(Action::Chase, &chased)]);
        let sized = all.flat_map(|(action, sets)| sets.iter().map(move |size| (action, *size)));
        let fits = |action: Action, size: Bytes| {
            size <= most && (action != Action::Chase || size <= self.device.largest_buffer)
        };
        let cases = sized.filter(|(action, size)| fits(*action, *size));
        cases.map(|(action, working_set)| Case { working_set, ..self.case(Buffer::Plain, action) }).collect()
    }

    /// Up to one that lies in memory: for a device's own memory the next of the list, since a GPU must work for long before launching
    /// it no longer shows. What has memory of its own and does not tell may have a cache of any size.
    fn working_sets(&self) -> Vec<Bytes> {
        let is_unified = self.device.is_unified;
        let unknown = Bytes(if is_unified { 0 } else { u64::MAX });
        let enough =
            Bytes(self.device.cache.unwrap_or(unknown).0.saturating_mul(OWN_MEMORY_TO_CACHE)).max(Bytes::mib(96));
        let within = WORKING_SETS.into_iter().filter(|size| *size < enough);
        let beyond = WORKING_SETS.into_iter().find(|size| *size >= enough);
        within.chain(if is_unified { Some(enough) } else { beyond }).collect()
    }

    fn first(&self, buffer: Buffer, action: Action) -> Case {
        Case { protocol: Protocol::FirstUse, ..self.case(buffer, action) }
    }

    fn case(&self, buffer: Buffer, action: Action) -> Case {
        let work = DeviceWork::new(self.device.name, buffer, action);
        Case::new(Work::Device(work), USUAL_MEMORY, self.cpus.clone(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: an eighth of 100,000 B are 12,500 B, in which three pages lie.
    #[test]
    fn a_buffer_of_no_named_size_has_the_pages_that_there_is_room_for() {
        let device = Device::unknown("opencl:0".parse().unwrap());
        let most = largest(Bytes(100_000), &device);
        assert_eq!((most, buffer(None, most).unwrap()), (Bytes::kib(12), Bytes::kib(12)));
        assert_eq!(largest(Bytes(100_000), &Device { largest_buffer: Bytes(5000), ..device }), Bytes::kib(4));
        assert_eq!(buffer(None, Bytes::gib(1)).unwrap(), BUFFER);
        assert!(matches!(buffer(None, Bytes(0)), Err(PlanError::TooLarge { .. })), "not one page");
    }

    /// Three arrays of 32 MiB are buffers of a device whose largest is one of these; a cycle of more is none.
    #[test]
    fn kernels_have_three_buffers_and_a_chase_one() {
        let device =
            Device { largest_buffer: Bytes::mib(32), is_unified: true, ..Device::unknown("opencl:0".parse().unwrap()) };
        let plan = Plan { device: &device, bytes: BUFFER, contended: BUFFER, cpus: vec![0], all: vec![0] };
        let cases = plan.kernels(Bytes::mib(96));
        let largest = |action| {
            let is_it = |case: &&Case| matches!(case.work, Work::Device(work) if work.action == action);
            cases.iter().filter(is_it).map(|case| case.working_set).max()
        };
        assert_eq!(Action::KERNELS.map(largest), [Some(Bytes::mib(96)); 4]);
        assert_eq!(largest(Action::Chase), Some(Bytes::mib(32)));
    }

    #[test]
    fn a_named_size_is_held_against_the_room_before_it_is_rounded() {
        let most = Bytes::kib(12);
        let named = |bytes| buffer(Some(Bytes(bytes)), most);
        assert_eq!((named(0).unwrap(), named(5000).unwrap()), (Bytes::kib(4), Bytes::kib(8)));
        for bytes in [12_289, u64::MAX - 2047] {
            assert!(
                matches!(named(bytes), Err(PlanError::TooLarge { size, limit }) if (size.0, limit) == (bytes, most))
            );
        }
    }
}
