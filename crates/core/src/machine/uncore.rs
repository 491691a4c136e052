//! Counters in the memory controllers (uncore counters), as the kernel offers them below `/sys/bus/event_source/devices`:
//! which there are, how each is asked for, and how many bytes a count is. Nothing is counted here.
//!
//! A device's folder has `type` (what perf_event_open wants to know), `cpumask` (one CPU to ask for each package), `format`
//! (a file a term: the bits of the request that it fills) and `events` (a file an event: its terms; `NAME.scale` and
//! `NAME.unit`). Source: Linux, Documentation/ABI/testing, sysfs-bus-event_source-devices-events and -format.
//!
//! Intel's server controllers name `cas_count_read` and `cas_count_write` there, in MiB. AMD's (`amd_umc_N`) name no events;
//! theirs are those that Linux's perf knows from Zen 4 on (tools/perf/pmu-events/arch/x86/amdzen4): CAS commands, event 0x0a,
//! `rdwrmask` 1 or 2, each of a line of 64 bytes.

use crate::machine::counting;
use crate::machine::cpuset::CpuSet;
use crate::machine::fact::Fact;
use crate::machine::source::Source;

const DEVICES: &str = "sys/bus/event_source/devices";
/// Bytes of a CAS command of a controller for DDR.
const CAS_BYTES: f64 = 64.0;

/// Which way bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From memory.
    Read,
    /// To memory.
    Write,
}

/// A counter of bytes that a memory controller moved.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerCounter {
    /// The controller: `uncore_imc_0`.
    pub device: String,
    /// The number by which perf_event_open knows it.
    pub kind: u32,
    /// A CPU of each package, on which it is to be asked for.
    pub cpus: CpuSet,
    /// What is asked for: the fields `config`, `config1` and `config2` of the request.
    pub config: [u64; 3],
    /// Bytes of one count.
    pub bytes: f64,
    /// Which way.
    pub direction: Direction,
}

/// An event that counts bytes: its name below `events`, or its terms where the kernel names none.
struct Event {
    prefix: &'static str,
    name: &'static str,
    terms: Option<&'static str>,
    direction: Direction,
}

const EVENTS: [Event; 4] = [
    Event { prefix: "uncore_imc_", name: "cas_count_read", terms: None, direction: Direction::Read },
    Event { prefix: "uncore_imc_", name: "cas_count_write", terms: None, direction: Direction::Write },
    Event { prefix: "amd_umc_", name: "", terms: Some("event=0x0a,rdwrmask=0x1"), direction: Direction::Read },
    Event { prefix: "amd_umc_", name: "", terms: Some("event=0x0a,rdwrmask=0x2"), direction: Direction::Write },
];

/// The counters of all memory controllers; absent, with the cure, where there are none or they may not be read.
pub fn controller_counters(source: &Source, is_virtual: bool) -> Fact<Vec<ControllerCounter>> {
    let devices = source.names(DEVICES);
    let of_device = |device: &String| -> Vec<ControllerCounter> {
        EVENTS
            .iter()
            .filter(|event| device.starts_with(event.prefix))
            .filter_map(|e| counter(source, device, e))
            .collect()
    };
    let found: Vec<ControllerCounter> = devices.iter().flat_map(of_device).collect();
    if found.is_empty() {
        return Fact::absent(match is_virtual {
            true => "no counters of the memory controllers: a virtual machine is given none; measure on the host",
            false => {
                "no counters of the memory controllers: the kernel offers none (modprobe intel_uncore or amd_uncore)"
            }
        });
    }
    match counting::refusal(source) {
        Some(why) => Fact::absent(format!("the counters of the memory controllers may not be read: {why}")),
        None => Fact::Known(found),
    }
}

fn counter(source: &Source, device: &str, event: &Event) -> Option<ControllerCounter> {
    let folder = format!("{DEVICES}/{device}");
    let file = |name: &str| source.text(&format!("{folder}/{name}")).known().cloned();
    let (terms, bytes) = match event.terms {
        Some(terms) => (terms.to_string(), CAS_BYTES),
        None => {
            let scale: f64 = file(&format!("events/{}.scale", event.name))?.parse().ok()?;
            let unit = unit_bytes(&file(&format!("events/{}.unit", event.name))?)?;
            (file(&format!("events/{}", event.name))?, scale * unit)
        }
    };
    let mut config = [0; 3];
    for (term, value) in parse_terms(&terms)? {
        fill(&mut config, &file(&format!("format/{term}"))?, value)?;
    }
    Some(ControllerCounter {
        device: device.into(),
        kind: file("type")?.parse().ok()?,
        cpus: CpuSet::parse(&file("cpumask")?).ok().filter(|cpus| !cpus.is_empty())?,
        config,
        bytes: (bytes.is_finite() && bytes > 0.0).then_some(bytes)?,
        direction: event.direction,
    })
}

fn unit_bytes(unit: &str) -> Option<f64> {
    [("MiB", 1048576.0), ("Bytes", 1.0), ("B", 1.0)].iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes)
}

/// `event=0x04,umask=0x03`; a term without a value has the value 1. `None` if a value is no number.
fn parse_terms(text: &str) -> Option<Vec<(&str, u64)>> {
    let term = |term: &'_ str| -> Option<u64> {
        match term.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => term.parse().ok(),
        }
    };
    let pair = |part| match str::split_once(part, '=') {
        Some((name, value)) => Some((name.trim(), term(value.trim())?)),
        None => Some((str::trim(part), 1)),
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

/// Puts a term's value into the bits that its format names, `config:0-7,32-35` or `config1:3`: its lowest bits into the first
/// of them. `None` if the format is no such list, or has no room for the value.
fn fill(config: &mut [u64; 3], format: &str, mut value: u64) -> Option<()> {
    let (field, bits) = format.split_once(':')?;
    let field = ["config", "config1", "config2"].iter().position(|name| *name == field)?;
    for range in bits.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= u64::BITS {
            return None;
        }
        for bit in first..=last {
            config[field] |= (value & 1) << bit;
            value >>= 1;
        }
    }
    (value == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_fill_the_bits_of_their_format() {
        let check = |format: &str, value, expect: Option<[u64; 3]>| {
            let mut config = [0; 3];
            assert_eq!(fill(&mut config, format, value).map(|()| config), expect, "{format} {value:#x}");
        };
        check("config:0-7", 0x04, Some([0x04, 0, 0]));
        check("config:8-15", 0xcf, Some([0xcf00, 0, 0]));
        check("config1:3", 1, Some([0, 8, 0]));
        // AMD's event numbers have their upper part elsewhere.
        check("config:0-7,32-35", 0xa12, Some([0xa_0000_0012, 0, 0]));
        check("config:0-7", 0x100, None);
        check("config:0-64", 1, None);
        check("config3:0-7", 1, None);
        check("config", 1, None);
        assert_eq!(parse_terms("event=0x04,umask=0x03"), Some(vec![("event", 4), ("umask", 3)]));
        assert_eq!(parse_terms("event=12,edge"), Some(vec![("event", 12), ("edge", 1)]));
        assert_eq!(parse_terms("event=?"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(format in ".{0,24}", terms in ".{0,24}", value: u64) {
            let _ = fill(&mut [0; 3], &format, value);
            let _ = parse_terms(&terms);
        }
    }
}
