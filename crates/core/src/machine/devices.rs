//! Devices that share memory with the processor: what their drivers say of them, and the memory of PCI devices that a program
//! can map.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::source::Source;
use crate::units::{Bytes, words};

words! {
    /// The interface that a device's driver speaks.
    Api, "device interface" {
        /// OpenCL, through the system's loader of drivers.
        OpenCl = "opencl",
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
    /// Whether it says that it shares its memory with the host; the measurement tells what it does.
    pub is_unified: bool,
    /// Compute units.
    pub units: u32,
    /// Whether it computes in double precision; kernels on it use single precision otherwise.
    pub has_double: bool,
    /// Kinds of shared virtual memory that it offers.
    pub svm: Vec<String>,
    /// Its PCI address; absent where the driver does not tell, or it is no PCI device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// The NUMA node that it is attached to, by sysfs; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
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
            is_unified: false,
            units: 0,
            has_double: true,
            svm: Vec::new(),
            pci: None,
            node: None,
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
        for text in ["", "opencl", "opencl:", "opencl:-1", "cuda:0", "0"] {
            let said = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(said.contains("membound devices"), "{said}");
        }
    }
}
