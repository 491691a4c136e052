//! Memory modules (DIMMs), from the firmware's SMBIOS tables.
//!
//! Read by hand: a table comes from firmware or from a recorded file and may be cut short anywhere, and a structure may
//! come alone (`/sys/firmware/dmi/entries/17-N/raw`), without the entry point that parsers of whole tables start from.
//! A structure is a header (type, length, handle), `length - 4` bytes, then strings that end with two NULs; a field
//! that the length leaves out is absent. Offsets are those of the SMBIOS reference specification 3.7 (DSP0134), 7.18.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::fact::Fact;
use crate::machine::source::Source;
use crate::units::Bytes;

/// SMBIOS structure type "Memory Device".
const MEMORY_DEVICE: u8 = 17;

/// A slot for a memory module, and what is in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dimm {
    /// The label on the board, such as `DIMM_A1`.
    pub slot: Fact<String>,
    /// Capacity in bytes. Absent for an empty slot, as is all that follows.
    pub size: Fact<Bytes>,
    /// `DDR5`, `HBM2`...
    pub technology: Fact<String>,
    /// Mega-transfers a second that the module is made for.
    pub rated_mt_s: Fact<u32>,
    /// Mega-transfers a second that the firmware has set.
    pub configured_mt_s: Fact<u32>,
    /// Data bits transferred at once, without those for error correction.
    pub data_width_bits: Fact<u32>,
    /// All bits transferred at once; more than the data bits when errors are corrected.
    pub total_width_bits: Fact<u32>,
    /// Ranks.
    pub ranks: Fact<u32>,
    /// As the module says it.
    pub manufacturer: Fact<String>,
    /// As the module says it.
    pub part_number: Fact<String>,
}

/// All slots, in the order of the table.
pub(crate) fn dimms(source: &Source) -> Fact<Vec<Dimm>> {
    const ENTRIES: &str = "sys/firmware/dmi/entries";
    let entries = || {
        let parts: Vec<u8> = source
            .numbered(ENTRIES, &format!("{MEMORY_DEVICE}-"))
            .iter()
            .filter_map(|n| source.bytes(&format!("{ENTRIES}/{MEMORY_DEVICE}-{n}/raw")).known().cloned())
            .flatten()
            .collect();
        if parts.is_empty() { Fact::absent(format!("/{ENTRIES} has no memory device")) } else { Fact::Known(parts) }
    };
    source.bytes("sys/firmware/dmi/tables/DMI").or_else(entries).and_then(|table| {
        let dimms: Vec<Dimm> =
            structures(&table).filter(|s| s.kind() == Some(MEMORY_DEVICE)).map(|s| s.dimm()).collect();
        match dimms.is_empty() {
            true => Fact::absent("the SMBIOS table lists no memory device"),
            false => Fact::Known(dimms),
        }
    })
}

impl Dimm {
    /// Whether it is, or would be, in a slot for modules: not in the processor's package, nor soldered flash.
    pub(crate) fn is_in_slot(&self) -> bool {
        const ELSEWHERE: [&str; 6] = ["HBM", "ROM", "flash", "EEPROM", "FEPROM", "EPROM"];
        let is_elsewhere = |name: &String| ELSEWHERE.iter().any(|start| name.starts_with(start));
        let is_mcdram = self.slot.known().is_some_and(|slot| slot.contains("MCDRAM"));
        !is_mcdram && !self.technology.known().is_some_and(is_elsewhere)
    }

    /// Whether it keeps what it holds without power.
    pub(crate) fn is_persistent(&self) -> bool {
        self.technology.known().is_some_and(|name| name == "non-volatile")
    }
}

/// One SMBIOS structure: its fixed part, header included, and its strings.
struct Structure<'a> {
    fixed: &'a [u8],
    strings: &'a [u8],
}

/// The structures of a table, up to the first that is cut short.
fn structures(table: &[u8]) -> impl Iterator<Item = Structure<'_>> {
    let mut rest = table;
    std::iter::from_fn(move || {
        let length = usize::from(*rest.get(1)?).max(4);
        let (fixed, behind) = rest.split_at_checked(length)?;
        let end = behind.windows(2).position(|pair| pair == [0, 0])?;
        rest = &behind[end + 2..];
        Some(Structure { fixed, strings: &behind[..end] })
    })
}

impl Structure<'_> {
    fn kind(&self) -> Option<u8> {
        self.fixed.first().copied()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.fixed.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.fixed.get(at..at + 2)?.try_into().ok()?))
    }

    fn double(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.fixed.get(at..at + 4)?.try_into().ok()?))
    }

    /// The string whose number (from 1) stands at an offset.
    fn string(&self, at: usize, name: &str) -> Fact<String> {
        let text = self.byte(at).and_then(|number| {
            let part = self.strings.split(|byte| *byte == 0).nth(usize::from(number).checked_sub(1)?)?;
            let text = String::from_utf8_lossy(part).trim().to_string();
            (!text.is_empty()).then_some(text)
        });
        Fact::from_option(text, || format!("the firmware leaves out the {name}"))
    }

    fn dimm(&self) -> Dimm {
        let size = self.size();
        let filled = size.known().is_some();
        let number = |value: Option<u32>, name: &str| match filled {
            true => Fact::from_option(value, || format!("the firmware leaves out the {name}")),
            false => Fact::absent("the slot is empty"),
        };
        let text = |at, name| if filled { self.string(at, name) } else { Fact::absent("the slot is empty") };
        let width = |at| self.word(at).filter(|bits| !matches!(bits, 0 | 0xFFFF)).map(u32::from);
        Dimm {
            slot: self.string(0x10, "label"),
            technology: match filled {
                true => Fact::from_option(self.technology(), || "the firmware's code for it is not known".into()),
                false => Fact::absent("the slot is empty"),
            },
            rated_mt_s: number(self.speed(0x15, 0x54), "speed"),
            configured_mt_s: number(self.speed(0x20, 0x58), "configured speed"),
            data_width_bits: number(width(0x0A), "data width"),
            total_width_bits: number(width(0x08), "total width"),
            ranks: number(self.byte(0x1B).map(|byte| u32::from(byte & 15)).filter(|ranks| *ranks > 0), "ranks"),
            manufacturer: text(0x17, "manufacturer"),
            part_number: text(0x1A, "part number"),
            size,
        }
    }

    /// Bit 15 of the size says KiB instead of MiB; 0x7FFF sends to a field of 31 bits.
    fn size(&self) -> Fact<Bytes> {
        match self.word(0x0C) {
            Some(0) => Fact::absent("the slot is empty"),
            None | Some(0xFFFF) => Fact::absent("the firmware leaves out the size"),
            Some(0x7FFF) => match self.double(0x1C).map(|mib| mib & 0x7FFF_FFFF) {
                Some(mib) if mib > 0 => Fact::Known(Bytes::mib(mib.into())),
                _ => Fact::absent("the firmware leaves out the extended size"),
            },
            Some(size) if size & 0x8000 != 0 => Fact::Known(Bytes::kib((size & 0x7FFF).into())),
            Some(size) => Fact::Known(Bytes::mib(size.into())),
        }
    }

    /// 0xFFFF in the short field sends to the long one.
    fn speed(&self, short: usize, long: usize) -> Option<u32> {
        match self.word(short)? {
            0 => None,
            0xFFFF => self.double(long).map(|speed| speed & 0x7FFF_FFFF).filter(|speed| *speed > 0),
            speed => Some(speed.into()),
        }
    }

    fn technology(&self) -> Option<String> {
        /// DSP0134 (SMBIOS 3.7), type of a memory device; dmidecode knows the same.
        const NAMES: [(u8, &str); 21] = [
            (0x08, "ROM"),
            (0x09, "flash"),
            (0x0A, "EEPROM"),
            (0x0B, "FEPROM"),
            (0x0C, "EPROM"),
            (0x0F, "SDRAM"),
            (0x12, "DDR"),
            (0x13, "DDR2"),
            (0x14, "DDR2 FB-DIMM"),
            (0x18, "DDR3"),
            (0x1A, "DDR4"),
            (0x1B, "LPDDR"),
            (0x1C, "LPDDR2"),
            (0x1D, "LPDDR3"),
            (0x1E, "LPDDR4"),
            (0x1F, "non-volatile"),
            (0x20, "HBM"),
            (0x21, "HBM2"),
            (0x22, "DDR5"),
            (0x23, "LPDDR5"),
            (0x24, "HBM3"),
        ];
        let code = self.byte(0x12)?;
        NAMES.iter().find(|(number, _)| *number == code).map(|(_, name)| name.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A memory device of SMBIOS 3.3 with its long fields in use: 64 GiB DDR5 at 70000 MT/s, and an empty slot.
    fn table() -> Vec<u8> {
        let mut long = [0u8; 0x5C];
        long[0] = MEMORY_DEVICE;
        long[1] = 0x5C;
        long[0x08..0x0E].copy_from_slice(&[80, 0, 64, 0, 0xFF, 0x7F]);
        long[0x10] = 1;
        long[0x12] = 0x22;
        long[0x15..0x17].copy_from_slice(&[0xFF, 0xFF]);
        long[0x1C..0x20].copy_from_slice(&65536u32.to_le_bytes());
        long[0x20..0x22].copy_from_slice(&4800u16.to_le_bytes());
        long[0x54..0x58].copy_from_slice(&70000u32.to_le_bytes());
        let mut empty = [0u8; 0x15];
        empty[0] = MEMORY_DEVICE;
        empty[1] = 0x15;
        empty[0x10] = 1;
        [&long[..], b"P0 A1\0\0", &[127, 4, 0, 0, 0, 0], &empty[..], b"P0 A2\0\0"].concat()
    }

    #[test]
    fn memory_devices_are_read() {
        let table = table();
        let dimms: Vec<Dimm> = structures(&table).filter(|s| s.kind() == Some(17)).map(|s| s.dimm()).collect();
        assert_eq!(dimms.len(), 2);
        assert_eq!(dimms[0].slot, Fact::Known("P0 A1".into()));
        assert_eq!(dimms[0].size, Fact::Known(Bytes::gib(64)));
        assert_eq!(dimms[0].technology, Fact::Known("DDR5".into()));
        assert_eq!(dimms[0].rated_mt_s, Fact::Known(70000));
        assert_eq!(dimms[0].configured_mt_s, Fact::Known(4800));
        assert_eq!(dimms[0].data_width_bits, Fact::Known(64));
        assert_eq!(dimms[0].manufacturer.reason(), Some("the firmware leaves out the manufacturer"));
        assert_eq!(dimms[1].slot, Fact::Known("P0 A2".into()));
        assert_eq!(dimms[1].size.reason(), Some("the slot is empty"));
    }

    #[test]
    fn types_of_memory_devices_have_names() {
        let of = |code: u8| {
            let mut table = table();
            table[0x12] = code;
            let name = structures(&table).next().and_then(|device| device.technology());
            name.unwrap_or_default()
        };
        assert_eq!([0x08, 0x09, 0x0A, 0x0B, 0x0C].map(of), ["ROM", "flash", "EEPROM", "FEPROM", "EPROM"]);
        assert_eq!([0x1F, 0x20, 0x21, 0x24].map(of), ["non-volatile", "HBM", "HBM2", "HBM3"]);
        assert_eq!([0x02, 0x07, 0xFF].map(of), ["", "", ""]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            for structure in structures(&bytes) {
                structure.dimm();
            }
            let table = table();
            bytes.splice(0..0, table[..cut.min(table.len())].iter().copied());
            for structure in structures(&bytes) {
                structure.dimm();
            }
        }
    }
}
