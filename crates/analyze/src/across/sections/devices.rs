//! What `--device` can name: a line a device.

use crate::missing::Missing;
use crate::section::{Document, Room, Section, Table};
use crate::wording::{gbps, memory_types};
use membound_core::machine::devices::{Api, Device, Devices, PciMemory};
use membound_core::units::count;

/// What there is, and why there is nothing where there is not.
pub fn document(devices: &Devices) -> Document {
    Document::new("membound devices", Vec::new(), [with_drivers(devices), pci_memory(&devices.pci_memory)])
}

fn with_drivers(all: &Devices) -> Section {
    let devices = &all.devices;
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    let table = Table::new("")
        .left("--device", devices.iter().map(|device| device.name.to_string()))
        .left("type", devices.iter().map(|device| device.kind.to_string()))
        .left("device", devices.iter().map(|device| device.title.clone()))
        .right("memory", devices.iter().map(|device| device.memory.to_string()))
        .left("the\nhost's", devices.iter().map(|device| yes(device.is_unified)))
        .left("PCI address", devices.iter().map(|device| device.pci.clone()))
        .left("link", devices.iter().map(|device| device.link.map(|link| link.to_string())))
        .in_room(Room::Wide)
        .right("memory\nGB/s", devices.iter().map(|device| device.peak_bps.map(|bps| gbps(bps as f64))))
        .in_room(Room::Wide)
        .right("node", devices.iter().map(|device| device.node.map(|node| node.to_string())))
        .without_blanks();
    Section {
        id: "devices",
        title: "Devices that share memory with the processor".into(),
        about: "As their drivers describe them: \"the host's\" is what a device says of its memory, and \
                `membound kinds --device NAME` measures what it does."
            .into(),
        tables: if devices.is_empty() { Vec::new() } else { vec![table] },
        notes: devices.iter().flat_map(|device| std::iter::once(driver(device)).chain(memory_types(device))).collect(),
        missing: all.absent.iter().map(absent).collect(),
        ..Section::default()
    }
}

fn absent((api, why): &(Api, String)) -> Missing {
    Missing { names: vec![api.to_string()], why: format!("unavailable: {why}") }
}

/// `opencl:0: Portable Computing Language 3.1; OpenCL 3.0; 2 compute units; no shared virtual memory`
fn driver(device: &Device) -> String {
    let Device { name, driver, version, largest_buffer, .. } = device;
    let head = format!("{name}: {driver}; {version}");
    let svm = if device.svm.is_empty() { "none".to_string() } else { device.svm.join(", ") };
    let mut told = vec![head];
    told.extend((name.api != Api::Vulkan).then(|| format!("{} compute units", count(device.units.into()))));
    told.extend(device.link.map(|link| format!("{link}, {} GB/s one way", gbps(link.now.bps()))));
    told.extend(device.cache.map(|cache| format!("last-level cache of {cache}")));
    told.extend(device.peak_bps.map(|peak| format!("memory of {} GB/s", gbps(peak as f64))));
    told.push(format!("buffers of {largest_buffer} at most"));
    told.extend((name.api != Api::Vulkan).then(|| format!("shared virtual memory: {svm}")));
    told.extend((!device.has_double).then(|| "no double precision".into()));
    told.join("; ")
}

fn pci_memory(bars: &[PciMemory]) -> Section {
    let table = Table::new("")
        .left("--device", bars.iter().map(|bar| bar.path.clone()))
        .left("vendor:device", bars.iter().map(|bar| bar.id.clone()))
        .in_room(Room::Spare)
        .right("size", bars.iter().map(|bar| bar.bytes.to_string()))
        .left("kinds", bars.iter().map(kinds))
        .right("node", bars.iter().map(|bar| bar.node.map(|node| node.to_string())))
        .in_room(Room::Spare);
    Section {
        id: "pci-memory",
        title: "Memory of PCI devices that a program can map".into(),
        about: "It takes root to read it; `membound kinds --memory bar --device FILE` measures it.".into(),
        tables: if bars.is_empty() { Vec::new() } else { vec![table.without_blanks()] },
        notes: if bars.is_empty() { vec!["The kernel lists none (/sys/bus/pci/devices).".into()] } else { Vec::new() },
        ..Section::default()
    }
}

/// The memory kinds that it can be.
fn kinds(bar: &PciMemory) -> &'static str {
    match (bar.is_enabled, bar.is_prefetchable) {
        (false, _) => "none: disabled",
        (true, true) => "bar, bar-wc",
        (true, false) => "bar",
    }
}
