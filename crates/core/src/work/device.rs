//! Work on memory that a device shares with the processor: which buffer, and what is done to it by whom.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::{LoadKind, StoreKind};
use crate::machine::devices::{Api, DeviceName};
use crate::memory::MemoryKind;
use crate::units::words;

words! {
    /// A kind of buffer, by how it is asked for. Flags are wishes: what a driver makes of them, its behaviour shows.
    Buffer, "kind of buffer" {
        /// No device's buffer: what malloc gives, for comparison.
        Regular = "regular",
        /// No flag: wherever the driver likes. With CUDA the device's own memory (cuMemAlloc), which the host can't touch.
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
    }
}

impl Buffer {
    /// Kinds that the devices of an interface hand out.
    pub fn of(api: Api) -> &'static [Buffer] {
        use Buffer::{AllocHost, CopyHost, Plain, SvmCoarse, SvmFine, UseHostLine, UseHostPage, UseHostUnaligned};
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
        }
    }

    /// Whether the host can touch it, mapped or not.
    pub fn is_reached_by_host(self, api: Api) -> bool {
        (api, self) != (Api::Cuda, Buffer::Plain)
    }

    /// Whether mapping it is a command of its own.
    pub fn is_mapped_by_command(self) -> bool {
        !matches!(self, Buffer::SvmFine | Buffer::Regular) && Buffer::of(Api::OpenCl).contains(&self)
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
        /// Copying to it from regular memory (clEnqueueWriteBuffer, cuMemcpyAsync).
        Write = "write",
        /// Copying from it to regular memory (clEnqueueReadBuffer, cuMemcpyAsync).
        Read = "read",
        /// Copying from it to a plain buffer (clEnqueueCopyBuffer, cuMemcpyAsync).
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
        /// STREAM's triad in regular memory, done by the processor.
        HostTriad = "host-triad",
        /// The same while the device copies from one plain buffer to another.
        HostTriadBesideCopy = "host-triad-beside-copy",
        /// The device copies from one plain buffer to another while the processor does the triad.
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
}

impl DeviceWork {
    /// Whether the processor works alone, and waits for nobody.
    pub fn is_of_the_host(self) -> bool {
        use Action::{HostTriad, Load, LoadNt, Store, StoreNt};
        matches!(self.action, Store | StoreNt | Load | LoadNt | HostTriad)
    }
}

impl fmt::Display for DeviceWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: {}", self.device, self.buffer, self.action)
    }
}
