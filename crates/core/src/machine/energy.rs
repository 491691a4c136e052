//! Meters of energy and power: which there are, and whether this user may read them.
//!
//! RAPL counts what a package, its cores and its memory have used, in the power capping tree (powercap) and in the power
//! PMU: two ways to one counter. Sensors (hwmon) and batteries tell what somebody wired them to. The units are those of
//! the kernel's documents: microjoules and microwatts (Documentation/ABI/testing/sysfs-class-powercap,
//! Documentation/hwmon/sysfs-interface, Documentation/ABI/testing/sysfs-class-power).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::counting;
use crate::machine::fact::Fact;
use crate::machine::source::Source;
use crate::units::words;

words! {
    /// What a meter tells the energy of.
    EnergyPart, "part" {
        /// All of a package: cores, caches, memory controllers; not its memory modules.
        Package = "package",
        /// Memory modules.
        Dram = "dram",
        /// The cores of a package, which are in its figure too.
        Cores = "cores",
        /// What else is on a package, which is in its figure too: graphics, on client processors.
        Uncore = "uncore",
        /// The whole platform, as its board measures it.
        Platform = "platform",
        /// All that a battery feeds.
        Battery = "battery",
        /// Whatever a sensor is wired to: its name tells.
        Sensor = "sensor",
    }
}

/// How a meter is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeterKind {
    /// Microjoules so far, in a file.
    Counter {
        /// The file, from the root.
        file: String,
        /// The greatest value before it starts again from 0; absent where that is not told.
        range_uj: Option<u64>,
    },
    /// Microwatts now, in a file.
    Power {
        /// The file, from the root.
        file: String,
    },
    /// Microamperes and microvolts now.
    Current {
        /// The file with the current, from the root.
        current: String,
        /// The file with the voltage.
        voltage: String,
    },
    /// A counter of the kernel's power PMU.
    Event {
        /// The PMU's number.
        pmu: u32,
        /// The event's.
        config: u64,
        /// Joules of one count.
        scale_j: f64,
        /// A CPU of the package that is counted.
        cpu: u32,
    },
}

/// A meter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnergyMeter {
    /// Its own name, such as `intel-rapl:0 package-0`.
    pub name: String,
    /// What it tells the energy of.
    pub part: EnergyPart,
    /// How it is read.
    pub kind: MeterKind,
    /// Microseconds from one change of its value to the next.
    pub update_us: u64,
    /// Its value when it was looked at, or why it can't be read. Of the power PMU, which is no file: 0.
    pub reading: Fact<u64>,
}

/// RAPL's registers change about once a millisecond (Intel 64 and IA-32 Architectures Software Developer's Manual,
/// volume 3B, Package RAPL Domain; for AMD the kernel's Documentation/hwmon/amd_energy.rst).
const RAPL_UPDATE_US: u64 = 1000;
/// Sensors that do not tell their period are taken to have this one: an assumption.
const SENSOR_UPDATE_US: u64 = 1_000_000;
/// The same of batteries.
const BATTERY_UPDATE_US: u64 = 5_000_000;

/// Whoever may read them can spy on others: so since Linux 5.10 root alone may (CVE-2020-8694, PLATYPUS).
const ROOT_ONLY: &str = "since the PLATYPUS attack root alone may read it; `chmod a+r` that file as root, or a udev rule \
                         that does so at each start, lets you";

/// All meters there are.
pub(crate) fn read(source: &Source, is_virtual: bool) -> Fact<Vec<EnergyMeter>> {
    let mut meters = powercap(source);
    meters.extend(power_pmu(source));
    meters.extend(sensors(source));
    meters.extend(batteries(source));
    if !meters.is_empty() {
        return Fact::Known(meters);
    }
    let why = "no zone in /sys/class/powercap, no power PMU, no hwmon sensor of power and no battery";
    Fact::absent(match is_virtual {
        true => format!("{why}: a virtual machine has none, its host may; ask there"),
        false => format!("{why}; `modprobe intel_rapl_msr` as root brings RAPL, on Intel and on AMD since Zen"),
    })
}

/// The meters to read: of each part one way to the counter, readable ones first; sensors and batteries as they are. The
/// power PMU may refuse only when it is asked, so it is kept unless powercap has the same part.
pub fn usable(meters: &[EnergyMeter]) -> Vec<&EnergyMeter> {
    let is_readable = |meter: &&EnergyMeter| meter.reading.known().is_some();
    let is_event = |meter: &EnergyMeter| matches!(meter.kind, MeterKind::Event { .. });
    let counted = |part: EnergyPart| meters.iter().any(|m| m.part == part && !is_event(m) && is_readable(&m));
    meters.iter().filter(is_readable).filter(|meter| !is_event(meter) || !counted(meter.part)).collect()
}

/// Why none of the meters can be read.
pub fn refusal(meters: &Fact<Vec<EnergyMeter>>) -> String {
    let Some(meters) = meters.known() else { return meters.reason().unwrap_or("no meter is known").into() };
    let mut reasons: Vec<&str> = meters.iter().filter_map(|meter| meter.reading.reason()).collect();
    reasons.dedup();
    reasons.join("; ")
}

/// RAPL's zones. `intel-rapl-mmio` shows the package that `intel-rapl` shows, through other registers: it is left out
/// where both are there.
fn powercap(source: &Source) -> Vec<EnergyMeter> {
    const ROOT: &str = "sys/class/powercap";
    let zones: Vec<String> = source.names(ROOT).into_iter().filter(|name| name.contains(':')).collect();
    let has_registers = zones.iter().any(|zone| zone.starts_with("intel-rapl:"));
    let meter = |zone: &String| {
        let name = source.word(&format!("{ROOT}/{zone}/name")).known().cloned().unwrap_or_default();
        let file = format!("{ROOT}/{zone}/energy_uj");
        let reading = explained(source.number(&file));
        let range_uj = source.number(&format!("{ROOT}/{zone}/max_energy_range_uj")).get().filter(|range| *range > 0);
        EnergyMeter {
            part: zone_part(&name),
            name: format!("{zone} {name}").trim_end().into(),
            kind: MeterKind::Counter { file, range_uj },
            update_us: RAPL_UPDATE_US,
            reading,
        }
    };
    zones.iter().filter(|zone| !has_registers || !zone.starts_with("intel-rapl-mmio")).map(meter).collect()
}

/// A refusal with its reason and cure.
fn explained(reading: Fact<u64>) -> Fact<u64> {
    match reading {
        Fact::Absent { reason } if reason.contains("may not be read") => Fact::absent(format!("{reason}: {ROOT_ONLY}")),
        reading => reading,
    }
}

/// A zone's part by its name: `package-0`, `core`, `uncore`, `dram`, `psys` (drivers/powercap/intel_rapl_common.c).
fn zone_part(name: &str) -> EnergyPart {
    match name {
        "core" => EnergyPart::Cores,
        "uncore" => EnergyPart::Uncore,
        "dram" => EnergyPart::Dram,
        "psys" => EnergyPart::Platform,
        _ if name.starts_with("package") => EnergyPart::Package,
        _ => EnergyPart::Sensor,
    }
}

fn power_pmu(source: &Source) -> Vec<EnergyMeter> {
    const ROOT: &str = "sys/bus/event_source/devices/power";
    let Some(pmu) = source.number::<u32>(&format!("{ROOT}/type")).get() else { return Vec::new() };
    let reading = match counting::refusal(source) {
        None => Fact::Known(0),
        Some(why) => Fact::absent(format!("the power PMU may not be read by this user: {why}")),
    };
    let cpus = source.list(&format!("{ROOT}/cpumask")).known().map_or_else(|| vec![0], |cpus| cpus.iter().collect());
    let part = |event: &str| match event {
        "energy-pkg" => Some(EnergyPart::Package),
        "energy-ram" => Some(EnergyPart::Dram),
        "energy-cores" => Some(EnergyPart::Cores),
        "energy-gpu" => Some(EnergyPart::Uncore),
        "energy-psys" => Some(EnergyPart::Platform),
        _ => None,
    };
    let mut meters = Vec::new();
    for event in source.names(&format!("{ROOT}/events")) {
        let Some(part) = part(&event) else { continue };
        let config = source.word(&format!("{ROOT}/events/{event}")).known().and_then(|text| event_number(text));
        let scale = source.number::<f64>(&format!("{ROOT}/events/{event}.scale")).get();
        let (Some(config), Some(scale_j)) = (config, scale.filter(|scale| scale.is_finite() && *scale > 0.0)) else {
            continue;
        };
        meters.extend(cpus.iter().map(|&cpu| EnergyMeter {
            name: format!("power PMU {event}, CPU {cpu}"),
            part,
            kind: MeterKind::Event { pmu, config, scale_j, cpu },
            update_us: RAPL_UPDATE_US,
            reading: reading.clone(),
        }));
    }
    meters
}

/// `event=0x02`
fn event_number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("event=0x")?, 16).ok()
}

/// Sensors of energy (`energyN_input`), else of power (`powerN_average`, else `powerN_input`).
fn sensors(source: &Source) -> Vec<EnergyMeter> {
    const ROOT: &str = "sys/class/hwmon";
    let mut meters = Vec::new();
    for chip in source.names(ROOT) {
        let folder = format!("{ROOT}/{chip}");
        let names = source.names(&folder);
        let chip_name = source.word(&format!("{folder}/name")).known().cloned().unwrap_or(chip);
        let period = |file: &str| source.number::<u64>(&format!("{folder}/{file}")).get().filter(|ms| *ms > 0);
        let has_energy = names.iter().any(|name| number_of(name, "energy", "_input").is_some());
        for name in &names {
            let energy = number_of(name, "energy", "_input");
            let average = number_of(name, "power", "_average");
            let now =
                number_of(name, "power", "_input").filter(|number| !names.contains(&format!("power{number}_average")));
            let Some(number) = energy.or(average.or(now).filter(|_| !has_energy)) else { continue };
            let what = if energy.is_some() { "energy" } else { "power" };
            let label = source.word(&format!("{folder}/{what}{number}_label")).known().cloned();
            let file = format!("{folder}/{name}");
            let averaged = average.and_then(|number| period(&format!("power{number}_average_interval")));
            meters.push(EnergyMeter {
                part: label.as_deref().map_or(EnergyPart::Sensor, sensor_part),
                name: format!("{chip_name} {}", label.unwrap_or_else(|| format!("{what}{number}"))),
                reading: source.number(&file),
                kind: match energy {
                    Some(_) => MeterKind::Counter { file, range_uj: None },
                    None => MeterKind::Power { file },
                },
                update_us: averaged.or(period("update_interval")).map_or(SENSOR_UPDATE_US, |ms| ms * 1000),
            });
        }
    }
    meters
}

fn number_of(name: &str, start: &str, end: &str) -> Option<u32> {
    name.strip_prefix(start)?.strip_suffix(end)?.parse().ok()
}

/// The driver amd_energy calls its counters `Ecore000` and `Esocket0`.
fn sensor_part(label: &str) -> EnergyPart {
    match label {
        _ if label.starts_with("Esocket") => EnergyPart::Package,
        _ if label.starts_with("Ecore") => EnergyPart::Cores,
        _ => EnergyPart::Sensor,
    }
}

/// A battery tells what the machine draws only while nothing else feeds it.
fn batteries(source: &Source) -> Vec<EnergyMeter> {
    const ROOT: &str = "sys/class/power_supply";
    let is_battery =
        |name: &String| source.text(&format!("{ROOT}/{name}/type")).known().is_some_and(|t| t == "Battery");
    let meter = |name: String| {
        let file = |leaf: &str| format!("{ROOT}/{name}/{leaf}");
        let (power, current) = (source.number::<u64>(&file("power_now")), source.number::<i64>(&file("current_now")));
        let (kind, value) = match (power.known(), current.known()) {
            (None, Some(current)) => {
                let kind = MeterKind::Current { current: file("current_now"), voltage: file("voltage_now") };
                (kind, source.number::<u64>(&file("voltage_now")).map(|v| watts(current.unsigned_abs(), v)))
            }
            _ => (MeterKind::Power { file: file("power_now") }, power.clone()),
        };
        let reading = source.text(&file("status")).and_then(|status| match status.as_str() {
            "Discharging" => value,
            _ => Fact::absent(format!(
                "the battery {name} is {status}: only while it is Discharging does it feed the machine; unplug it"
            )),
        });
        EnergyMeter { part: EnergyPart::Battery, kind, update_us: BATTERY_UPDATE_US, reading, name }
    };
    source.names(ROOT).into_iter().filter(is_battery).map(meter).collect()
}

/// Microwatts of microamperes at microvolts.
pub fn watts(microamperes: u64, microvolts: u64) -> u64 {
    (u128::from(microamperes) * u128::from(microvolts) / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_cure() {
        let refused =
            explained(Fact::absent("/sys/class/powercap/intel-rapl:0/energy_uj may not be read by this user"));
        let reason = refused.reason().unwrap();
        assert!(reason.contains("PLATYPUS") && reason.contains("chmod a+r") && reason.contains("udev"), "{reason}");
        assert_eq!(explained(Fact::absent("it is not there")), Fact::absent("it is not there"));
        assert_eq!(explained(Fact::Known(7)), Fact::Known(7));
    }

    #[test]
    fn numbers_of_files_and_events() {
        assert_eq!(number_of("power12_average", "power", "_average"), Some(12));
        for name in ["power_average", "power1_average_interval", "energy1_input", "power1_averagex"] {
            assert_eq!(number_of(name, "power", "_average"), None, "{name}");
        }
        assert_eq!(event_number("event=0x02"), Some(2));
        assert_eq!(event_number("event=2"), None);
        assert_eq!(watts(1_500_000, 12_000_000), 18_000_000, "1.5 A at 12 V are 18 W");
    }
}
