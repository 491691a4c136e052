//! Devices that share memory with the processor: what their drivers say of them, and the memory of PCI devices that a program
//! can map.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::identity::is_virtual;
use crate::machine::source::Source;
use crate::units::{Bytes, words};

words! {
    /// The interface that a device's driver speaks.
    Api, "device interface" {
        /// OpenCL, through the system's loader of drivers.
        OpenCl = "opencl",
        /// CUDA, through the driver's own library.
        Cuda = "cuda",
        /// Vulkan, through the system's loader of drivers.
        Vulkan = "vulkan",
    }
}

/// A device: the interface that it is reached by, and its number there. Written `opencl:0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct DeviceName {
    /// The interface.
    pub api: Api,
    /// Counts the devices of all drivers of that interface, from 0.
    pub number: u32,
}

/// What is no device's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no device; `membound devices` lists what there is, such as opencl:0")]
pub struct NoDevice(String);

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.api, self.number))
    }
}

impl FromStr for DeviceName {
    type Err = NoDevice;

    fn from_str(text: &str) -> Result<Self, NoDevice> {
        let parts = text.split_once(':').and_then(|(api, number)| Some((api.parse().ok()?, number.parse().ok()?)));
        parts.map(|(api, number)| DeviceName { api, number }).ok_or_else(|| NoDevice(text.into()))
    }
}

impl TryFrom<String> for DeviceName {
    type Error = NoDevice;

    fn try_from(text: String) -> Result<Self, NoDevice> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> String {
        name.to_string()
    }
}

words! {
    /// What a device is, as its driver says.
    DeviceKind, "kind of device" {
        /// Processor cores.
        Cpu = "cpu",
        /// A graphics processor.
        Gpu = "gpu",
        /// Another accelerator.
        Accelerator = "accelerator",
        /// Something else.
        Other = "other",
    }
}

/// The state of a PCI Express link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkState {
    /// Megatransfers per second of a lane: 16000 in generation 4.
    #[serde(rename = "lane_MTps")]
    pub lane_mtps: u32,
    /// Lanes.
    pub lanes: u32,
}

/// The slowest link between a device and the processor, as sysfs tells it. What is idle may have been slowed down to save power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// As it was when it was asked.
    pub now: LinkState,
    /// The most that both ends of a link can do, of whichever link on the way can do least; absent where that is not known. In a
    /// virtual machine it is the most that the device can do: what lies above it there is made up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<LinkState>,
}

impl LinkState {
    /// A link between what can do this and what can do that.
    fn and(self, other: LinkState) -> LinkState {
        LinkState { lane_mtps: self.lane_mtps.min(other.lane_mtps), lanes: self.lanes.min(other.lanes) }
    }

    /// The generation of PCI Express that has this speed.
    pub fn generation(self) -> Option<u32> {
        (1..).zip(GENERATIONS).find(|(_, mtps)| *mtps == self.lane_mtps).map(|(generation, _)| generation)
    }

    /// Bytes per second of one direction, before packets' headers: 8 of 10 bits carry data up to generation 2, 128 of 130
    /// up to generation 5, 242 of 256 bytes from generation 6 on (PCI Express Base Specification).
    pub fn bps(self) -> f64 {
        let coding = match self.generation() {
            Some(1 | 2) => 0.8,
            Some(3..=5) => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        f64::from(self.lane_mtps) * 1e6 * f64::from(self.lanes) * coding / 8.0
    }
}

/// Megatransfers per second of a lane, by generation of PCI Express, from 1 on.
const GENERATIONS: [u32; 7] = [2500, 5000, 8000, 16_000, 32_000, 64_000, 128_000];

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation() {
            Some(generation) => write!(f, "PCIe {generation} x{}", self.lanes),
            None => write!(f, "{} MT/s x{}", self.lane_mtps, self.lanes),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.most.filter(|most| *most != self.now);
        write!(f, "{}", self.now)?;
        most.map_or(Ok(()), |most| write!(f, " of {most}"))
    }
}

words! {
    /// What Vulkan promises of a type of memory (VkMemoryPropertyFlagBits).
    MemoryFlag, "property of memory" {
        /// The device reaches it fastest.
        DeviceLocal = "device-local",
        /// The processor can map it.
        HostVisible = "host-visible",
        /// Each side sees the other's stores without a call to flush or invalidate caches.
        HostCoherent = "host-coherent",
        /// The processor's loads go through its caches.
        HostCached = "host-cached",
        /// Made when it is used, for images of tiles.
        LazilyAllocated = "lazily-allocated",
        /// Out of the processor's reach, for content that must not be copied.
        Protected = "protected",
        /// The device's caches are kept coherent (AMD).
        DeviceCoherent = "device-coherent",
        /// The device does not cache it (AMD).
        DeviceUncached = "device-uncached",
        /// Other devices reach it (NVIDIA).
        RdmaCapable = "rdma-capable",
        /// A flag that this version does not know.
        Unknown = "unknown",
    }
}

/// A type of memory, and the heap that it comes from. Its place in the list of types is its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryType {
    /// What is promised of it.
    pub flags: Vec<MemoryFlag>,
    /// The number of its heap.
    pub heap: u32,
    /// Bytes of that heap.
    pub heap_bytes: Bytes,
}

/// A device, as its driver describes it. None of that is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// What `--device` calls it.
    pub name: DeviceName,
    /// The vendor's name for it.
    pub title: String,
    /// What it is.
    pub kind: DeviceKind,
    /// The driver: its platform and version.
    pub driver: String,
    /// Version of the interface that it offers.
    pub version: String,
    /// Its global memory.
    pub memory: Bytes,
    /// The largest buffer that it allows.
    pub largest_buffer: Bytes,
    /// The last cache before its memory; absent where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Bytes>,
    /// Whether it says that it shares its memory with the host; the measurement tells what it does.
    pub is_unified: bool,
    /// Compute units.
    pub units: u32,
    /// Whether it computes in double precision; kernels on it use single precision otherwise.
    pub has_double: bool,
    /// Kinds of shared virtual memory that it offers.
    pub svm: Vec<String>,
    /// Types of memory that it hands out, in its own order; none where its interface has no such thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_types: Vec<MemoryType>,
    /// Its PCI address; absent where the driver does not tell, or it is no PCI device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// The NUMA node that it is attached to, by sysfs; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Its link to the processor; absent where sysfs does not tell, or where it has the host's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// What its memory can move by its own figures, clock and width of the bus; absent where the driver does not tell.
    #[serde(default, rename = "peak_Bps", skip_serializing_if = "Option::is_none")]
    pub peak_bps: Option<u64>,
}

impl Device {
    /// A device of which nothing is known: it limits no plan.
    pub fn unknown(name: DeviceName) -> Device {
        Device {
            name,
            title: String::new(),
            kind: DeviceKind::Other,
            driver: String::new(),
            version: String::new(),
            memory: Bytes(u64::MAX),
            largest_buffer: Bytes(u64::MAX),
            cache: None,
            is_unified: false,
            units: 0,
            has_double: true,
            svm: Vec::new(),
            memory_types: Vec::new(),
            pci: None,
            node: None,
            link: None,
            peak_bps: None,
        }
    }
}

/// Memory of a PCI device that a program can map: a BAR.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PciMemory {
    /// What `--device` calls it: its resource file.
    pub path: String,
    /// Vendor and device, in hexadecimal: `8086:1572`.
    pub id: String,
    /// Its size.
    pub bytes: Bytes,
    /// Whether it can be mapped write-combining too.
    pub is_prefetchable: bool,
    /// Whether the device decodes its addresses.
    pub is_enabled: bool,
    /// The NUMA node that it is attached to; absent where the kernel does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// All that `--device` can name, and why there is nothing where there is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Devices {
    /// Devices with drivers.
    pub devices: Vec<Device>,
    /// Memory of PCI devices.
    #[serde(default)]
    pub pci_memory: Vec<PciMemory>,
    /// Why an interface has no device; with its name.
    #[serde(default)]
    pub absent: Vec<(Api, String)>,
}

/// A resource's flags: memory, and prefetchable (linux/ioport.h).
const MEMORY: u64 = 0x200;
const PREFETCHABLE: u64 = 0x2000;
/// BARs that a PCI device can have.
const BARS: usize = 6;
const PCI: &str = "sys/bus/pci/devices";

/// The node that a PCI device is attached to.
pub fn node_of(source: &Source, address: &str) -> Option<u32> {
    source.text(&format!("{PCI}/{address}/numa_node")).known()?.trim().parse().ok()
}

/// The slowest link between a PCI device and the processor, now and at most.
pub fn link_of(source: &Source, address: &str) -> Option<Link> {
    // The ports that a hypervisor makes up have any speed.
    let ends = if is_virtual(source) { vec![address.to_string()] } else { ends_to(source, address) };
    let slowest = |which| {
        // From the device on every link has two ends, of which each tells what it can do itself.
        let links = ends.chunks(2).filter_map(|ends| {
            let states = ends.iter().filter_map(|end| link_state(source, end, which));
            states.reduce(|one, other| one.and(other))
        });
        links.min_by(|one, other| one.bps().total_cmp(&other.bps()))
    };
    link_state(source, address, "current")?;
    Some(Link { now: slowest("current")?, most: slowest("max") })
}

/// The ends of all links from a PCI device up to the root port, by their addresses.
fn ends_to(source: &Source, address: &str) -> Vec<String> {
    // `../../../devices/pci0000:00/0000:00:01.0/0000:3b:00.0`: buses have fewer colons.
    let path = source.link_parts(&format!("{PCI}/{address}"));
    let ports = path.into_iter().rev().skip(1).filter(|part| part.matches(':').count() == 2);
    std::iter::once(address.to_string()).chain(ports).collect()
}

/// What a PCI device says of its end of a link.
fn link_state(source: &Source, address: &str, which: &str) -> Option<LinkState> {
    let text = |file: &str| source.text(&format!("{PCI}/{address}/{which}_link_{file}")).known().cloned();
    // `16.0 GT/s PCIe`, and `Unknown` of what has no link.
    let speed: f64 = text("speed")?.split_whitespace().next()?.parse().ok()?;
    let lanes = text("width")?.parse().ok().filter(|lanes| (1..=32).contains(lanes))?;
    let is_speed = speed.is_finite() && (0.1..1e5).contains(&speed);
    is_speed.then_some(LinkState { lane_mtps: (speed * 1e3).round() as u32, lanes })
}

/// The memory of all PCI devices.
pub fn pci_memory(source: &Source) -> Vec<PciMemory> {
    let mut addresses = source.names(PCI);
    addresses.sort();
    addresses.iter().flat_map(|address| bars(source, address)).collect()
}

fn bars(source: &Source, address: &str) -> Vec<PciMemory> {
    let folder = format!("{PCI}/{address}");
    let text = |file: &str| source.text(&format!("{folder}/{file}")).known().map(|text| text.trim().to_string());
    let id = |file: &str| text(file).map_or_else(|| "?".into(), |id| id.trim_start_matches("0x").to_string());
    let id = format!("{}:{}", id("vendor"), id("device"));
    let (is_enabled, node) = (text("enable").as_deref() != Some("0"), node_of(source, address));
    let resources = text("resource").unwrap_or_default();
    let bar = |(index, line): (usize, &str)| {
        let words = line.split_whitespace().map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16));
        let [first, last, flags] = words.collect::<Result<Vec<u64>, _>>().ok()?.try_into().ok()?;
        let path = format!("/{folder}/resource{index}");
        let is_prefetchable = flags & PREFETCHABLE != 0;
        let bytes = Bytes(last.checked_sub(first)?.checked_add(1)?);
        (flags & MEMORY != 0).then(|| PciMemory { path, id: id.clone(), bytes, is_prefetchable, is_enabled, node })
    };
    resources.lines().take(BARS).enumerate().filter_map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        let name: DeviceName = "opencl:1".parse().unwrap();
        assert_eq!((name.api, name.number, name.to_string()), (Api::OpenCl, 1, "opencl:1".to_string()));
        assert_eq!(serde_json::from_str::<DeviceName>("\"opencl:1\"").unwrap(), name);
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"opencl:1\"");
        for text in ["", "opencl", "opencl:", "opencl:-1", "metal:0", "0"] {
            let said = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(said.contains("membound devices"), "{said}");
        }
    }

    /// A folder that looks as /sys does.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(PCI).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn memory_of_pci_devices_by_hand() {
        let lines = "0x00000000e0000000 0x00000000e0ffffff 0x0000000000040200\n\
                     0x000000000000c000 0x000000000000c01f 0x0000000000040101\n\
                     0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                     0x0000004000000000 0x00000043ffffffff 0x000000000014220c\n\
                     not a resource\n\
                     0x0000000000000010 0x000000000000000f 0x0000000000000200\n\
                     0x00000000e1000000 0x00000000e100ffff 0x0000000000046200\n";
        let folder = tree(&[
            ("0000:3b:00.0/resource", lines),
            ("0000:3b:00.0/vendor", "0x10de\n"),
            ("0000:3b:00.0/device", "0x2330\n"),
            ("0000:3b:00.0/enable", "1\n"),
            ("0000:3b:00.0/numa_node", "1\n"),
            ("0000:02:00.0/resource", "0xfe000000 0xfe000fff 0x40200\n"),
            ("0000:02:00.0/enable", "0\n"),
            ("0000:02:00.0/numa_node", "-1\n"),
        ]);
        let found = pci_memory(&Source::recorded(folder.path()).unwrap());
        let told: Vec<_> = found.iter().map(|bar| (bar.path.as_str(), bar.bytes, bar.is_prefetchable)).collect();
        // Ports, empty slots, what is no resource or ends before it begins, and the ROM after the six BARs are left out.
        assert_eq!(
            told,
            [
                ("/sys/bus/pci/devices/0000:02:00.0/resource0", Bytes::kib(4), false),
                ("/sys/bus/pci/devices/0000:3b:00.0/resource0", Bytes::mib(16), false),
                ("/sys/bus/pci/devices/0000:3b:00.0/resource3", Bytes::gib(16), true),
            ]
        );
        assert_eq!((found[0].is_enabled, found[0].node, found[0].id.as_str()), (false, None, "?:?"));
        assert_eq!((found[1].is_enabled, found[1].node, found[1].id.as_str()), (true, Some(1), "10de:2330"));
    }

    #[test]
    fn links_by_hand() {
        let folder = tree(&[
            ("0000:3b:00.0/current_link_speed", "2.5 GT/s PCIe\n"),
            ("0000:3b:00.0/current_link_width", "16\n"),
            ("0000:3b:00.0/max_link_speed", "32.0 GT/s PCIe\n"),
            ("0000:3b:00.0/max_link_width", "16\n"),
            ("0000:00:01.0/current_link_speed", "Unknown\n"),
            ("0000:00:01.0/current_link_width", "0\n"),
        ]);
        let source = Source::recorded(folder.path()).unwrap();
        let link = link_of(&source, "0000:3b:00.0").unwrap();
        assert_eq!(link.to_string(), "PCIe 1 x16 of PCIe 5 x16");
        // 2.5 GT/s x 16 lanes x 8/10 / 8 bits = 4 GB/s; 32 GT/s x 16 x 128/130 / 8 = 63.0 GB/s.
        assert_eq!(link.now.bps(), 4e9);
        assert_eq!((link.most.unwrap().bps() / 1e8).round(), 630.0);
        assert_eq!((link_of(&source, "0000:00:01.0"), link_of(&source, "0000:99:00.0")), (None, None));
    }
}
