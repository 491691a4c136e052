//! Memory of devices: a PCI device's BAR, DMA buffers.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::memory::file;
use crate::memory::no_memory::NoMemory;
use crate::memory::part::Part;
use crate::memory::places::Places;
use crate::memory::recipe::{Backing, Cached, Provider, Recipe};
use crate::os::files;
use crate::os::files::FileSystem;
use crate::os::memory::base_page;
use membound_core::memory::MemoryKind;
use membound_core::memory::proof::Proof;
use membound_core::units::Bytes;

/// A PCI device's memory, through one of its resource files.
pub(crate) struct Bar {
    kind: MemoryKind,
    /// What is behind `resource2` in the name of the file that is mapped.
    suffix: &'static str,
}

impl Bar {
    pub const UNCACHED: Bar = Bar { kind: MemoryKind::Bar, suffix: "" };
    pub const WRITE_COMBINING: Bar = Bar { kind: MemoryKind::BarWc, suffix: "_wc" };
}

impl Provider for Bar {
    fn recipe(&self, bytes: Bytes, places: &Places) -> Result<Recipe, NoMemory> {
        let Some(named) = &places.bar else {
            let cure = "name a BAR with --device /sys/bus/pci/devices/.../resourceN";
            return Err(NoMemory::absent("no device was named", cure));
        };
        let resource = Resource::of(named)?;
        let path = resource.file(self.suffix)?;
        resource.must_be_memory()?;
        resource.must_be_enabled()?;
        let hint =
            if places.bar_writes { "; it takes root to write to a device" } else { "; it takes root to read it" };
        let fault = |source| NoMemory::File { path: path.clone(), source, hint };
        let file = OpenOptions::new().read(true).write(places.bar_writes).open(&path).map_err(fault)?;
        let size = Bytes(file.metadata().map_err(fault)?.len());
        let bytes = Bytes(Recipe::whole_pages(bytes, 4096) as u64);
        let cure = "give a smaller --size, or name a larger BAR with --device";
        if size < bytes {
            return Err(NoMemory::absent(format!("{} has {size}, {bytes} are needed", path.display()), cure));
        }
        let part = Part::take((resource.folder.clone(), resource.index), resource.line().first().copied(), size, bytes)
            .ok_or_else(|| {
                let why =
                    format!("{} has {size}; other streams, threads or kinds leave no {bytes} of it", path.display());
                NoMemory::absent(why, cure)
            })?;
        let proof = self.proof(&path, &file);
        let backing = Backing::File { file, shared: true, cached: Cached::Unasked };
        let recipe = Recipe::new(self.kind, backing, bytes, 4096);
        Ok(Recipe { writable: places.bar_writes, part: Some(part), proofs: vec![proof], ..recipe })
    }
}

impl Bar {
    /// The kernel makes a `_wc` file where it can map the BAR write-combining, and for no other BAR.
    fn proof(&self, path: &Path, file: &File) -> Proof {
        let claim = if self.kind == MemoryKind::BarWc { "a BAR, mapped write-combining" } else { "a BAR" };
        let is_sysfs = FileSystem::of(file).is_ok_and(|found| found.name() == "sysfs");
        Proof::new(claim, "sysfs", path.display().to_string(), is_sysfs)
    }
}

/// One of a PCI device's resources, by the folder that sysfs has for the device.
struct Resource {
    folder: PathBuf,
    index: usize,
}

/// A resource's flag: I/O ports (linux/ioport.h).
const IO_PORTS: u64 = 0x100;

impl Resource {
    /// `.../resource2`, or `.../resource2_wc`.
    fn of(path: &Path) -> Result<Resource, NoMemory> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let index = name.strip_prefix("resource").map(|rest| rest.strip_suffix("_wc").unwrap_or(rest));
        match (index.and_then(|index| index.parse().ok()), path.parent()) {
            (Some(index), Some(folder)) => Ok(Resource { folder: folder.into(), index }),
            _ => {
                let why = format!("{} is no BAR", path.display());
                Err(NoMemory::absent(why, "name one with --device /sys/bus/pci/devices/.../resourceN"))
            }
        }
    }

    fn file(&self, suffix: &str) -> Result<PathBuf, NoMemory> {
        let plain = self.folder.join(format!("resource{}", self.index));
        let path = self.folder.join(format!("resource{}{suffix}", self.index));
        let there = |path: &Path| fs::metadata(path).map(drop);
        let hint = "; `ls /sys/bus/pci/devices/*/resource?` shows what there is";
        there(&plain).map_err(|source| NoMemory::File { path: plain.clone(), source, hint })?;
        there(&path).map_err(|_| {
            let why =
                format!("{} has no {suffix} file: the device does not say that it is prefetchable", plain.display());
            NoMemory::absent(why, "name a prefetchable BAR with --device, or measure `bar`")
        })?;
        Ok(path)
    }

    /// Its line of `resource`: first byte, last byte, flags. Empty where it can't be read.
    fn line(&self) -> Vec<u64> {
        let lines = fs::read_to_string(self.folder.join("resource")).unwrap_or_default();
        let words = lines.lines().nth(self.index).unwrap_or_default().split_whitespace();
        words.map_while(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()).collect()
    }

    fn must_be_memory(&self) -> Result<(), NoMemory> {
        if self.line().get(2).is_some_and(|flags| flags & IO_PORTS != 0) {
            let why = format!("BAR {} of {} is I/O ports, not memory", self.index, self.folder.display());
            return Err(NoMemory::absent(why, "name a memory BAR with --device"));
        }
        Ok(())
    }

    /// A device that does not decode its addresses reads as ones.
    fn must_be_enabled(&self) -> Result<(), NoMemory> {
        let path = self.folder.join("enable");
        if fs::read_to_string(&path).is_ok_and(|text| text.trim() == "0") {
            let cure = "load its driver, or write 1 to that file as root";
            return Err(NoMemory::absent(format!("the device is disabled: {} says 0", path.display()), cure));
        }
        Ok(())
    }
}

/// A DMA buffer of one of the kernel's heaps.
pub(crate) struct DmaHeap {
    kind: MemoryKind,
    heap: &'static str,
    cure: &'static str,
}

impl DmaHeap {
    pub const SYSTEM: DmaHeap =
        DmaHeap { kind: MemoryKind::DmaHeap, heap: "system", cure: "a kernel with CONFIG_DMABUF_HEAPS_SYSTEM has it" };
    pub const UNCACHED: DmaHeap = DmaHeap {
        kind: MemoryKind::DmaHeapUncached,
        heap: "system-uncached",
        cure: "Android's and some vendors' kernels have it; mainline has no uncached heap",
    };
}

impl Provider for DmaHeap {
    fn recipe(&self, bytes: Bytes, places: &Places) -> Result<Recipe, NoMemory> {
        let heap = node(&places.devices.join("dma_heap").join(self.heap), self.cure)?;
        let bytes = Recipe::whole_pages(bytes, base_page());
        let refused = |source| NoMemory::refused(self.kind, bytes, source);
        let buffer = files::allocate_dma_buffer(&heap, Bytes(bytes as u64)).map_err(refused)?;
        dma_buffer(self.kind, buffer, self.heap, bytes)
    }
}

/// A DMA buffer made of a memory file.
pub(crate) struct Udmabuf;

impl Provider for Udmabuf {
    fn recipe(&self, bytes: Bytes, places: &Places) -> Result<Recipe, NoMemory> {
        let device = node(&places.devices.join("udmabuf"), "a kernel with CONFIG_UDMABUF has it")?;
        // The kernel refuses a part of a page.
        let bytes = Recipe::whole_pages(bytes, base_page());
        let refused = |source| NoMemory::refused(MemoryKind::Udmabuf, bytes, source);
        let (memory, _) = file::sealed(Bytes(bytes as u64)).map_err(refused)?;
        let buffer = files::make_dma_buffer(&device, &memory, Bytes(bytes as u64)).map_err(refused)?;
        dma_buffer(MemoryKind::Udmabuf, buffer, "udmabuf", bytes)
    }
}

/// Opens a device node. Buffers are made by requests, which need no right to write.
fn node(path: &Path, cure: &str) -> Result<File, NoMemory> {
    File::open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            NoMemory::absent(format!("{} is not there", path.display()), cure)
        }
        _ => {
            NoMemory::File { path: path.into(), source, hint: "; it takes root, or a udev rule that lets you read it" }
        }
    })
}

/// A buffer is begun to be accessed once and for all: no device ever works on it.
fn dma_buffer(kind: MemoryKind, buffer: File, exporter: &str, bytes: usize) -> Result<Recipe, NoMemory> {
    files::begin_processor_access(&buffer).map_err(|source| NoMemory::refused(kind, bytes, source))?;
    let found = files::exporter(&buffer).unwrap_or_else(|| "no DMA buffer".into());
    let proof = Proof::new(&format!("a DMA buffer of {exporter}"), "fdinfo", found.as_str(), found == exporter);
    let backing = Backing::File { file: buffer, shared: true, cached: Cached::Unasked };
    Ok(Recipe { proofs: vec![proof], ..Recipe::new(kind, backing, Bytes(bytes as u64), 4096) })
}
