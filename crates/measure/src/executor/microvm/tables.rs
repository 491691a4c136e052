//! The guest's page tables. They name the memory type of each page, through the page attribute table (PAT).
//!
//! Guest-virtual addresses equal guest-physical ones, so a table says nothing but which pages there are, how large they
//! are, and of which type.

use membound_core::memory::MemoryKind;

/// Bytes of a small page and of a table.
pub const PAGE: u64 = 4096;
/// Bytes of a large page.
pub const LARGE_PAGE: u64 = 2 << 20;
/// Bytes that one root table reaches, in its lower half.
pub const END: u64 = 1 << 47;

/// The types in the order of their PAT indices, and how the PAT encodes them (Intel SDM 3A, table "Memory Types That Can
/// Be Encoded With PAT"; AMD APM 2, "PAT Type Encodings"). Write-back comes first: walks of the tables use index 0.
const TYPES: [(MemoryKind, u8); 6] = [
    (MemoryKind::Wb, 6),
    (MemoryKind::Wt, 4),
    (MemoryKind::UcMinus, 7),
    (MemoryKind::Uc, 0),
    (MemoryKind::Wc, 1),
    (MemoryKind::Wp, 5),
];

/// The value of the IA32_PAT register for these tables. Indices beyond the types are write-back.
pub fn pat() -> u64 {
    let encoding = |index: usize| TYPES.get(index).unwrap_or(&TYPES[0]).1;
    u64::from_le_bytes(std::array::from_fn(encoding))
}

/// The index of a type; that of write-back for kinds that are no type.
fn pat_index(kind: MemoryKind) -> u64 {
    TYPES.iter().position(|(known, _)| *known == kind).unwrap_or(0) as u64
}

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
// Set in advance, so that the processor need not.
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The tables, growing as pages are mapped.
#[derive(Debug)]
pub struct Tables {
    /// All tables, the root first.
    words: Vec<u64>,
    base: u64,
}

const ENTRIES: usize = 512;

impl Tables {
    /// Tables that map nothing and will lie at `base`.
    pub fn new(base: u64) -> Self {
        Tables { words: vec![0; ENTRIES], base }
    }

    /// The tables' contents; the root comes first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Maps `bytes` from `start` as memory of type `kind`: in large pages where both are multiples of one. Addresses
    /// from [`END`] on are left out.
    pub fn map(&mut self, start: u64, bytes: u64, kind: MemoryKind, writable: bool) {
        let large = start.is_multiple_of(LARGE_PAGE) && bytes.is_multiple_of(LARGE_PAGE);
        let page = if large { LARGE_PAGE } else { PAGE };
        let index = pat_index(kind);
        let pat = (index & 3) << 3 | (index >> 2) << if large { 12 } else { 7 };
        let access = PRESENT | USER | ACCESSED | DIRTY | if writable { WRITABLE } else { 0 };
        let flags = access | pat | if large { LARGE } else { 0 };
        for address in (start..start.saturating_add(bytes).min(END)).step_by(page as usize) {
            let table = if large { self.table(address, 2) } else { self.table(address, 3) };
            let shift = if large { 21 } else { 12 };
            self.words[table + entry(address, shift)] = address | flags;
        }
    }

    /// Index of the first word of the table `depth` steps below the root that `address` leads to.
    fn table(&mut self, address: u64, depth: u32) -> usize {
        (0..depth).fold(0, |table, step| {
            let at = table + entry(address, 39 - 9 * step);
            if self.words[at] == 0 {
                let next = self.base + self.words.len() as u64 * 8;
                self.words.resize(self.words.len() + ENTRIES, 0);
                self.words[at] = next | PRESENT | WRITABLE | USER | ACCESSED;
            }
            ((self.words[at] & ADDRESS) - self.base) as usize / 8
        })
    }
}

fn entry(address: u64, shift: u32) -> usize {
    (address >> shift) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page walk as the processor does it: the physical address, the PAT entry in force, whether it may be written.
    fn walk(tables: &Tables, address: u64) -> Option<(u64, u8, bool)> {
        let word = |table: u64, shift: u32| tables.words[(table - tables.base) as usize / 8 + entry(address, shift)];
        let mut table = tables.base;
        for shift in [39, 30, 21, 12] {
            let found = word(table, shift);
            if found & PRESENT == 0 {
                return None;
            }
            let is_page = shift == 12 || (shift == 21 && found & LARGE != 0);
            if is_page {
                let high = found >> if shift == 12 { 7 } else { 12 } & 1;
                let index = high << 2 | found >> 3 & 3;
                let offset = address % (1 << shift);
                let frame = found & ADDRESS & !((1 << shift) - 1);
                return Some((frame + offset, pat().to_le_bytes()[index as usize], found & WRITABLE != 0));
            }
            table = found & ADDRESS;
        }
        None
    }

    #[test]
    fn every_page_has_its_address_and_type() {
        for &(kind, encoding) in &TYPES {
            for (start, bytes) in [(5 << 30, 4 * LARGE_PAGE), (7 << 30, 3 * PAGE), ((1 << 39) + PAGE, 600 * PAGE)] {
                let mut tables = Tables::new(0x1_2340_0000);
                tables.map(start, bytes, kind, true);
                for address in [start, start + 8, start + bytes / 2, start + bytes - 1] {
                    assert_eq!(walk(&tables, address), Some((address, encoding, true)), "{kind} {address:x}");
                }
                assert_eq!(walk(&tables, start - 1), None);
                assert_eq!(walk(&tables, start + bytes), None);
            }
        }
    }

    #[test]
    fn several_mappings_share_tables() {
        let mut tables = Tables::new(1 << 32);
        tables.map(4 << 30, LARGE_PAGE, MemoryKind::Wb, true);
        tables.map((4 << 30) + LARGE_PAGE, PAGE, MemoryKind::Uc, false);
        // Root, one for 512 GiB, one for 1 GiB, one for 2 MiB of small pages.
        assert_eq!(tables.words().len(), 4 * ENTRIES);
        assert_eq!(walk(&tables, (4 << 30) + LARGE_PAGE), Some(((4 << 30) + LARGE_PAGE, 0, false)));
    }

    #[test]
    fn addresses_out_of_reach_are_left_out() {
        let mut tables = Tables::new(1 << 32);
        tables.map(END - PAGE, 2 * PAGE, MemoryKind::Wb, true);
        assert!(walk(&tables, END - 1).is_some());
        tables.map(u64::MAX - PAGE + 1, PAGE, MemoryKind::Wb, true);
    }

    #[test]
    fn the_page_attribute_table_names_all_types() {
        assert_eq!(pat(), 0x0606_0501_0007_0406);
    }
}
