//! Work on memory that a device shares with the processor: which buffer, and what is done to it by whom.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::{LoadKind, StoreKind};
use crate::machine::devices::{Api, DeviceName, MemoryFlag, MemoryType};
use crate::memory::MemoryKind;
use crate::units::{Bytes, words};

words! {
    /// A kind of buffer, by how it is asked for. Flags are wishes: what a driver makes of them, its behaviour shows.
    Buffer, "kind of buffer" {
        /// No device's buffer: what malloc gives, for comparison.
        Regular = "regular",
        /// No flag: wherever the driver likes. With CUDA the device's own memory (cuMemAlloc), with Vulkan its first type that is
        /// device-local: the host does not touch it.
        Plain = "plain",
        /// CL_MEM_ALLOC_HOST_PTR: memory that the host can reach, pinned as a rule.
        AllocHost = "alloc-host",
        /// CL_MEM_USE_HOST_PTR on memory that begins with a page.
        UseHostPage = "use-host-4k",
        /// The same 64 bytes into a page.
        UseHostLine = "use-host-64",
        /// The same 8 bytes into a page.
        UseHostUnaligned = "use-host-8",
        /// CL_MEM_COPY_HOST_PTR: the driver's own memory, filled when it is made.
        CopyHost = "copy-host",
        /// Shared virtual memory of OpenCL 2.0, mapped for each access by the host.
        SvmCoarse = "svm-coarse",
        /// The same without mapping (CL_MEM_SVM_FINE_GRAIN_BUFFER).
        SvmFine = "svm-fine",
        /// cuMemHostAlloc: pinned memory, copied to the device before it reads it.
        Pinned = "pinned",
        /// The same write-combined (CU_MEMHOSTALLOC_WRITECOMBINED).
        PinnedWc = "pinned-wc",
        /// The same that the device reads where it lies (CU_MEMHOSTALLOC_DEVICEMAP).
        Mapped = "mapped",
        /// cuMemAllocManaged: one address for both, the driver moves pages.
        Managed = "managed",
        /// The same, moved in advance (cuMemPrefetchAsync).
        ManagedPrefetch = "managed-prefetch",
        /// The same that is to stay with the host, and to be reached from there (cuMemAdvise).
        ManagedAdvised = "managed-advised",
        /// cuMemHostRegister on memory in base pages, copied to the device before it reads it.
        Registered4k = "registered-4k",
        /// The same in transparent huge pages.
        RegisteredThp = "registered-thp",
        /// The same in huge pages from the pool.
        RegisteredHuge = "registered-huge-2m",
        /// Vulkan's memory that the host maps and sees without flushing (host-visible, host-coherent).
        Coherent = "coherent",
        /// The same cached, and flushed or invalidated by calls (host-visible, host-cached).
        Cached = "cached",
        /// The same cached, and seen without flushing.
        CoherentCached = "coherent+cached",
        /// The device's own memory that the host maps (device-local, host-visible, host-coherent).
        LocalCoherent = "device-local+coherent",
        /// The same cached, and flushed or invalidated by calls.
        LocalCached = "device-local+cached",
        /// The same cached, and seen without flushing.
        LocalCoherentCached = "device-local+coherent+cached",
    }
}

impl Buffer {
    /// Kinds that the devices of an interface hand out.
    pub fn of(api: Api) -> &'static [Buffer] {
        use Buffer::{AllocHost, CopyHost, Plain, SvmCoarse, SvmFine, UseHostLine, UseHostPage, UseHostUnaligned};
        use Buffer::{Cached, Coherent, CoherentCached, LocalCached, LocalCoherent, LocalCoherentCached};
        use Buffer::{
            Managed, ManagedAdvised, ManagedPrefetch, Mapped, Pinned, PinnedWc, Registered4k, RegisteredHuge,
            RegisteredThp,
        };
        match api {
            Api::OpenCl => {
                &[Plain, AllocHost, UseHostPage, UseHostLine, UseHostUnaligned, CopyHost, SvmCoarse, SvmFine]
            }
            Api::Cuda => &[
                Plain,
                Pinned,
                PinnedWc,
                Mapped,
                Managed,
                ManagedPrefetch,
                ManagedAdvised,
                Registered4k,
                RegisteredThp,
                RegisteredHuge,
            ],
            Api::Vulkan => &[Plain, Coherent, Cached, CoherentCached, LocalCoherent, LocalCached, LocalCoherentCached],
        }
    }

    /// What memory of a type that the host can map is called; nothing where it can't, or where a program must ask for more than the
    /// type.
    pub fn of_flags(flags: &[MemoryFlag]) -> Option<Buffer> {
        use MemoryFlag::{DeviceLocal, HostCached, HostCoherent, HostVisible};
        let is_usual = |flag: &MemoryFlag| matches!(flag, DeviceLocal | HostVisible | HostCoherent | HostCached);
        if !flags.contains(&HostVisible) || !flags.iter().all(is_usual) {
            return None;
        }
        match [DeviceLocal, HostCoherent, HostCached].map(|flag| flags.contains(&flag)) {
            [false, true, false] => Some(Buffer::Coherent),
            [false, false, true] => Some(Buffer::Cached),
            [false, true, true] => Some(Buffer::CoherentCached),
            [true, true, false] => Some(Buffer::LocalCoherent),
            [true, false, true] => Some(Buffer::LocalCached),
            [true, true, true] => Some(Buffer::LocalCoherentCached),
            // No driver may have it.
            [_, false, false] => None,
        }
    }

    /// The numbers of the types of memory that it may lie in, the best first: a driver lists the faster of two alike before the other.
    /// A plain buffer lies in memory of the device's own that the host can't map, where there is such.
    pub fn types(self, types: &[MemoryType]) -> Vec<u32> {
        let numbers = |will_do: &dyn Fn(&[MemoryFlag]) -> bool| {
            (0..).zip(types).filter(|(_, of)| will_do(&of.flags)).map(|(number, _)| number).collect::<Vec<u32>>()
        };
        if self != Buffer::Plain {
            return numbers(&|flags| Buffer::of_flags(flags) == Some(self));
        }
        let is_local = |flags: &[MemoryFlag]| flags.contains(&MemoryFlag::DeviceLocal);
        let mut all = numbers(&|flags| flags == [MemoryFlag::DeviceLocal]);
        all.extend(numbers(&|flags| is_local(flags) && Buffer::of_flags(flags).is_some()));
        all
    }

    /// Memory of the host's that Vulkan's commands copy from and to: cached by the processor where there is such a type.
    pub fn beside_device(types: &[MemoryType]) -> Option<Buffer> {
        let kinds = [Buffer::CoherentCached, Buffer::Cached, Buffer::Coherent];
        kinds.into_iter().find(|kind| !kind.types(types).is_empty())
    }

    /// Whether a copy names the buffer, not the address that the host has of it.
    pub fn is_copied_as_buffer(self) -> bool {
        Buffer::of(Api::Vulkan).contains(&self)
    }

    /// Whether the host can touch it, mapped or not.
    pub fn is_reached_by_host(self, api: Api) -> bool {
        api == Api::OpenCl || self != Buffer::Plain
    }

    /// Whether mapping it is a command of its own.
    pub fn is_mapped_by_command(self) -> bool {
        let is_of = |api| Buffer::of(api).contains(&self);
        !matches!(self, Buffer::SvmFine | Buffer::Regular) && (is_of(Api::OpenCl) || is_of(Api::Vulkan))
    }

    /// Whether a program copies it to the device before the device works on it.
    pub fn is_staged(self) -> bool {
        matches!(self, Buffer::Pinned | Buffer::PinnedWc) || self.backing().is_some()
    }

    /// The pages of memory that the program brings along, where it chooses them.
    pub fn backing(self) -> Option<MemoryKind> {
        Some(match self {
            Buffer::Registered4k => MemoryKind::Base,
            Buffer::RegisteredThp => MemoryKind::Thp,
            Buffer::RegisteredHuge => MemoryKind::Huge2M,
            _ => return None,
        })
    }

    /// The type of memory that is asked for, where one is: whether it is obtained, a hypervisor or a driver decides.
    pub fn memory_type(self) -> Option<MemoryKind> {
        (self == Buffer::PinnedWc).then_some(MemoryKind::Wc)
    }

    /// Kinds that a device hands out.
    pub fn of_devices() -> impl Iterator<Item = Buffer> {
        Buffer::ALL.iter().copied().filter(|buffer| *buffer != Buffer::Regular)
    }

    /// Whether it is shared virtual memory, which has other calls than buffers.
    pub fn is_svm(self) -> bool {
        matches!(self, Buffer::SvmCoarse | Buffer::SvmFine)
    }

    /// Bytes by which memory that the program brings along lies beyond the start of a page; absent where the driver brings it.
    pub fn host_offset(self) -> Option<usize> {
        match self {
            Buffer::UseHostPage | Buffer::CopyHost => Some(0),
            Buffer::UseHostLine => Some(64),
            Buffer::UseHostUnaligned => Some(8),
            _ => None,
        }
    }
}

words! {
    /// What is done to a buffer.
    Action, "action on a buffer" {
        /// One use: the processor fills the mapped buffer, the device reads it.
        Use = "use",
        /// The same by way of regular memory: the processor fills that, it is written to the buffer, the device reads it.
        UseWritten = "use-written",
        /// Making the buffer. Memory that the program brings along is there already: pinning alone.
        Allocate = "allocate",
        /// Mapping for reading, and unmapping.
        MapRead = "map-read",
        /// Mapping for writing, and unmapping.
        MapWrite = "map-write",
        /// Mapping for writing all of it anew (CL_MAP_WRITE_INVALIDATE_REGION), and unmapping.
        MapInvalidate = "map-invalidate",
        /// The processor stores to the mapped buffer.
        Store = "store",
        /// The same by non-temporal stores.
        StoreNt = "store-nt",
        /// The processor loads from the mapped buffer.
        Load = "load",
        /// The same by non-temporal loads (movntdqa).
        LoadNt = "load-nt",
        /// Copying to it from regular memory (clEnqueueWriteBuffer, cuMemcpyAsync; with Vulkan by way of a staging buffer).
        Write = "write",
        /// Copying from it to regular memory (clEnqueueReadBuffer, cuMemcpyAsync; with Vulkan by way of a staging buffer).
        Read = "read",
        /// Copying from it to a plain buffer (clEnqueueCopyBuffer, cuMemcpyAsync, vkCmdCopyBuffer).
        Copy = "copy",
        /// Copying to it from a plain buffer.
        CopyBack = "copy-back",
        /// Both at once, by two queues.
        CopyBoth = "copy-both",
        /// The device reads it, and writes what it reads to a plain buffer.
        KernelRead = "kernel-read",
        /// STREAM's copy, done by the device.
        KernelCopy = "kernel-copy",
        /// STREAM's scale, done by the device.
        KernelScale = "kernel-scale",
        /// STREAM's add, done by the device.
        KernelAdd = "kernel-add",
        /// STREAM's triad, done by the device.
        KernelTriad = "kernel-triad",
        /// A pointer chase by one work item.
        Chase = "chase",
        /// STREAM's triad in regular memory, done by the processor: by several CPUs, each on memory of its own, of which one is timed.
        HostTriad = "host-triad",
        /// The same while the device copies from the buffer to a plain one; of regular memory the driver writes to it.
        HostTriadBesideCopy = "host-triad-beside-copy",
        /// The device copies from the buffer to a plain one while the processor does the triad.
        CopyBesideHostTriad = "copy-beside-host-triad",
    }
}

impl Action {
    /// The kernels of STREAM that the device does.
    pub const KERNELS: [Action; 4] = [Action::KernelCopy, Action::KernelScale, Action::KernelAdd, Action::KernelTriad];

    /// The kernel of the catalog that the processor or the device does, if it is one.
    pub fn kernel(self) -> Option<&'static str> {
        Some(match self {
            Action::Store | Action::StoreNt => "store",
            Action::Load | Action::LoadNt => "load",
            Action::KernelCopy => "copy",
            Action::KernelScale => "scale",
            Action::KernelAdd => "add",
            Action::KernelTriad | Action::HostTriad | Action::HostTriadBesideCopy => "triad",
            _ => return None,
        })
    }

    /// How the processor stores and loads.
    pub fn access(self) -> (StoreKind, LoadKind) {
        let store = if self == Action::StoreNt { StoreKind::Nt } else { StoreKind::Regular };
        (store, if self == Action::LoadNt { LoadKind::Nt } else { LoadKind::Regular })
    }

    /// Of so many CPUs of a case those that do the triad, of which one is timed or counts: all but that which waits for the device.
    pub fn triads(self, cpus: usize) -> usize {
        (cpus - usize::from(self.is_contended() && cpus > 1)).max(1)
    }

    /// Bytes of each array of each CPU's triad.
    pub fn triad_array(self, cpus: usize, working_set: Bytes) -> Bytes {
        match self {
            Action::CopyBesideHostTriad => Bytes(working_set.0 / self.triads(cpus) as u64),
            _ => Bytes(working_set.0 / 3),
        }
    }

    /// Bytes that the device copies while a triad runs: as many as the CPUs' arrays of one name have.
    pub fn copied_beside(self, cpus: usize, working_set: Bytes) -> Bytes {
        match self {
            Action::CopyBesideHostTriad => working_set,
            _ => Bytes((working_set.0 / 3).saturating_mul(self.triads(cpus) as u64)),
        }
    }

    /// Whether the device works on memory of its own, over working sets of which each has a figure.
    pub fn is_on_own_memory(self) -> bool {
        Action::KERNELS.contains(&self) || self == Action::Chase
    }

    /// Whether something else runs meanwhile.
    pub fn is_contended(self) -> bool {
        matches!(self, Action::HostTriadBesideCopy | Action::CopyBesideHostTriad)
    }
}

/// What is done to a buffer of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct DeviceWork {
    /// The device.
    pub device: DeviceName,
    /// The buffer.
    pub buffer: Buffer,
    /// What is done to it.
    pub action: Action,
    /// Percent of the time in which what runs beside it works, by sixteenths of its memory; absent where nothing does, or where it works
    /// all the time and by whole passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty_percent: Option<u8>,
}

/// Passes in which what has a duty goes through its memory, with a pause after each where it pauses: short against a sample.
const SLICES: u64 = 16;

impl DeviceWork {
    /// An action, beside which nothing is told to pause.
    pub fn new(device: DeviceName, buffer: Buffer, action: Action) -> DeviceWork {
        DeviceWork { device, buffer, action, duty_percent: None }
    }

    /// Percent of the time in which what runs beside works, where it pauses.
    pub fn pauses(self) -> Option<u8> {
        self.duty_percent.filter(|percent| *percent < 100)
    }

    /// Passes in which what runs beside goes through its memory once.
    pub fn slices(self) -> u64 {
        if self.duty_percent.is_some() { SLICES } else { 1 }
    }

    /// Whether the processor works alone, and waits for nobody.
    pub fn is_of_the_host(self) -> bool {
        use Action::{HostTriad, Load, LoadNt, Store, StoreNt};
        matches!(self.action, Store | StoreNt | Load | LoadNt | HostTriad)
    }
}

impl fmt::Display for DeviceWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: {}", self.device, self.buffer, self.action)?;
        self.pauses().map_or(Ok(()), |percent| write!(f, " that works {percent} % of the time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 CPUs, 15 of which do the triad over arrays of 2 MiB: the device copies 30 MiB, waited for by the last.
    #[test]
    fn what_runs_at_once_moves_as_much_on_both_sides() {
        let (triad, copy) = (Action::HostTriadBesideCopy, Action::CopyBesideHostTriad);
        assert_eq!((triad.triads(16), copy.triads(16), Action::HostTriad.triads(15)), (15, 15, 15));
        assert_eq!(triad.triad_array(16, Bytes::mib(6)), Bytes::mib(2));
        assert_eq!(triad.copied_beside(16, Bytes::mib(6)), Bytes::mib(30));
        assert_eq!(copy.triad_array(16, Bytes::mib(30)), Bytes::mib(2));
        assert_eq!(copy.copied_beside(16, Bytes::mib(30)), Bytes::mib(30));
        // One CPU does both.
        assert_eq!((triad.triads(1), copy.triad_array(1, Bytes::mib(30))), (1, Bytes::mib(30)));
    }

    /// A card of its own: other memory, its own, the host's write-combined and cached, its own that the host maps, AMD's, and its own
    /// once more. A processor that draws has one type.
    #[test]
    fn buffers_lie_in_the_first_type_that_will_do() {
        use MemoryFlag::{DeviceCoherent, DeviceLocal, HostCached, HostCoherent, HostVisible};
        let types = |all: &[&[MemoryFlag]]| {
            let of = |flags: &&[MemoryFlag]| MemoryType { flags: flags.to_vec(), heap: 0, heap_bytes: Bytes::gib(1) };
            all.iter().map(of).collect::<Vec<_>>()
        };
        let card = types(&[
            &[],
            &[DeviceLocal],
            &[HostVisible, HostCoherent],
            &[HostVisible, HostCoherent, HostCached],
            &[DeviceLocal, HostVisible, HostCoherent],
            &[HostVisible, HostCoherent, DeviceCoherent],
            &[DeviceLocal],
        ]);
        assert_eq!(Buffer::Plain.types(&card), [1, 6, 4]);
        assert_eq!((Buffer::Coherent.types(&card), Buffer::LocalCoherent.types(&card)), (vec![2], vec![4]));
        assert!(Buffer::Cached.types(&card).is_empty());
        let one = types(&[&[DeviceLocal, HostVisible, HostCoherent, HostCached]]);
        assert_eq!((Buffer::Plain.types(&one), Buffer::LocalCoherentCached.types(&one)), (vec![0], vec![0]));
    }

    /// All that the specification allows of what the host can map, and what it can't or may not.
    #[test]
    fn types_of_memory_have_names_by_their_flags() {
        use MemoryFlag::{DeviceCoherent, DeviceLocal, HostCached, HostCoherent, HostVisible, Unknown};
        let name = |flags: &[MemoryFlag]| Buffer::of_flags(flags).map(Buffer::word);
        assert_eq!(name(&[HostVisible, HostCoherent]), Some("coherent"));
        assert_eq!(name(&[HostVisible, HostCached]), Some("cached"));
        assert_eq!(name(&[DeviceLocal, HostVisible, HostCoherent, HostCached]), Some("device-local+coherent+cached"));
        for flags in [
            &[][..],
            &[DeviceLocal],
            &[HostVisible],
            &[HostVisible, HostCoherent, DeviceCoherent],
            &[HostVisible, HostCoherent, Unknown],
        ] {
            assert_eq!(name(flags), None, "{flags:?}");
        }
        for buffer in Buffer::of(Api::Vulkan).iter().skip(1) {
            assert!(buffer.is_reached_by_host(Api::Vulkan) && buffer.is_mapped_by_command());
        }
    }
}
