//! What an Arm core says of itself: who designed it, and which of the designer's cores it is (register MIDR_EL1).

use std::collections::BTreeMap;

use crate::machine::source::Source;

/// Who designed a core, and its number among the designer's cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    implementer: u8,
    part: u16,
}

/// Implementer codes: Arm Architecture Reference Manual, MIDR_EL1.
const IMPLEMENTERS: [(u8, &str); 9] = [
    (0x41, "ARM"),
    (0x42, "Broadcom"),
    (0x43, "Cavium"),
    (0x46, "Fujitsu"),
    (0x48, "HiSilicon"),
    (0x4e, "NVIDIA"),
    (0x51, "Qualcomm"),
    (0x61, "Apple"),
    (0xc0, "Ampere"),
];

/// Names of designs, from the list of the Linux kernel (arch/arm64/include/asm/cputype.h), which quotes each core's
/// technical reference manual.
const NAMES: [(u8, u16, &str); 45] = [
    (0x41, 0xc09, "Cortex-A9"),
    (0x41, 0xd03, "Cortex-A53"),
    (0x41, 0xd05, "Cortex-A55"),
    (0x41, 0xd07, "Cortex-A57"),
    (0x41, 0xd08, "Cortex-A72"),
    (0x41, 0xd09, "Cortex-A73"),
    (0x41, 0xd0a, "Cortex-A75"),
    (0x41, 0xd0b, "Cortex-A76"),
    (0x41, 0xd0c, "Neoverse-N1"),
    (0x41, 0xd0d, "Cortex-A77"),
    (0x41, 0xd40, "Neoverse-V1"),
    (0x41, 0xd41, "Cortex-A78"),
    (0x41, 0xd42, "Cortex-A78AE"),
    (0x41, 0xd44, "Cortex-X1"),
    (0x41, 0xd46, "Cortex-A510"),
    (0x41, 0xd47, "Cortex-A710"),
    (0x41, 0xd48, "Cortex-X2"),
    (0x41, 0xd49, "Neoverse-N2"),
    (0x41, 0xd4b, "Cortex-A78C"),
    (0x41, 0xd4d, "Cortex-A715"),
    (0x41, 0xd4e, "Cortex-X3"),
    (0x41, 0xd4f, "Neoverse-V2"),
    (0x41, 0xd80, "Cortex-A520"),
    (0x41, 0xd81, "Cortex-A720"),
    (0x41, 0xd82, "Cortex-X4"),
    (0x41, 0xd83, "Neoverse-V3AE"),
    (0x41, 0xd84, "Neoverse-V3"),
    (0x41, 0xd85, "Cortex-X925"),
    (0x41, 0xd87, "Cortex-A725"),
    (0x41, 0xd8e, "Neoverse-N3"),
    (0x42, 0x516, "Vulcan"),
    (0x43, 0x0a1, "ThunderX"),
    (0x43, 0x0af, "ThunderX2"),
    (0x46, 0x001, "A64FX"),
    (0x48, 0xd01, "TSV110"),
    (0x4e, 0x004, "Carmel"),
    (0x51, 0x001, "Oryon"),
    (0x51, 0x802, "Kryo-3xx-Gold"),
    (0x51, 0x803, "Kryo-3xx-Silver"),
    (0x51, 0x804, "Kryo-4xx-Gold"),
    (0x51, 0x805, "Kryo-4xx-Silver"),
    (0x51, 0xc00, "Falkor"),
    (0x61, 0x022, "M1 Icestorm"),
    (0x61, 0x023, "M1 Firestorm"),
    (0xc0, 0xac3, "AmpereOne"),
];

impl Part {
    /// From a register's value, as the kernel writes it: `0x00000000410fd4f0`.
    fn of_register(text: &str) -> Option<Self> {
        let register = u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()?;
        Some(Part { implementer: (register >> 24) as u8, part: (register >> 4 & 0xfff) as u16 })
    }

    /// From the paragraph of a CPU in `/proc/cpuinfo`.
    pub(crate) fn of_paragraph(text: &str) -> Option<Self> {
        let number = |name| u16::from_str_radix(field(text, name)?.strip_prefix("0x")?, 16).ok();
        let implementer = u8::try_from(number("CPU implementer")?).ok()?;
        Some(Part { implementer, part: number("CPU part")? })
    }

    /// What it is called, with its number, by which sheets know it.
    pub(crate) fn name(self) -> String {
        let Part { implementer, part } = self;
        let name = NAMES.iter().find(|known| (known.0, known.1) == (implementer, part));
        name.map_or_else(|| format!("part {part:#05x}"), |(_, _, name)| format!("{name} ({part:#05x})"))
    }
}

/// Variant and revision of the core, as its designer's manuals write them: `r0p1`.
pub(crate) fn revision(text: &str) -> Option<String> {
    let variant = u8::from_str_radix(field(text, "CPU variant")?.strip_prefix("0x")?, 16).ok()?;
    let revision: u8 = field(text, "CPU revision")?.parse().ok()?;
    Some(format!("r{variant}p{revision}"))
}

/// Whose code this is.
pub(crate) fn vendor(implementer: u8) -> String {
    let name = IMPLEMENTERS.iter().find(|(code, _)| *code == implementer);
    name.map_or_else(|| format!("implementer {implementer:#x}"), |(_, name)| name.to_string())
}

/// The parts of those CPUs that tell theirs: from a register that the kernel shows (Linux 4.10), or from `/proc/cpuinfo`.
pub(crate) fn parts(source: &Source, cpus: impl Iterator<Item = u32>) -> BTreeMap<u32, Part> {
    let register = |cpu| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        Part::of_register(source.text(&path).known()?)
    };
    let shown: BTreeMap<u32, Part> = cpus.filter_map(|cpu| Some((cpu, register(cpu)?))).collect();
    if !shown.is_empty() {
        return shown;
    }
    let cpuinfo = source.text("proc/cpuinfo");
    let paragraphs = cpuinfo.known().map(String::as_str).unwrap_or_default().split("\n\n");
    let told = |text| Some((field(text, "processor")?.parse().ok()?, Part::of_paragraph(text)?));
    paragraphs.filter_map(told).collect()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_by_register_and_by_text() {
        // Neoverse V2, revision r0p1: implementer 0x41, variant 0, architecture 0xf, part 0xd4f, revision 1.
        let part = Part::of_register("0x00000000410fd4f1\n").unwrap();
        assert_eq!((vendor(part.implementer), part.name()), ("ARM".into(), "Neoverse-V2 (0xd4f)".into()));
        let text =
            "processor\t: 3\nCPU implementer\t: 0x46\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0x001";
        let part = Part::of_paragraph(text).unwrap();
        assert_eq!(revision(text), None);
        assert_eq!(revision(&format!("{text}\nCPU revision\t: 13")), Some("r1p13".into()));
        assert_eq!((vendor(part.implementer), part.name()), ("Fujitsu".into(), "A64FX (0x001)".into()));
        let unknown = Part { implementer: 0x70, part: 0x661 };
        assert_eq!((vendor(unknown.implementer), unknown.name()), ("implementer 0x70".into(), "part 0x661".into()));
        assert_eq!(["", "0x", "410fd4f1", "0xdeadbeefdeadbeefde"].map(Part::of_register), [None; 4]);
        assert_eq!(Part::of_paragraph("CPU implementer : 0x141\nCPU part : 0x1"), None);
    }

    #[test]
    fn no_part_has_two_names() {
        let mut numbers: Vec<_> = NAMES.iter().map(|(implementer, part, _)| (implementer, part)).collect();
        numbers.sort();
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(NAMES.iter().all(|(implementer, ..)| IMPLEMENTERS.iter().any(|(code, _)| code == implementer)));
    }
}
