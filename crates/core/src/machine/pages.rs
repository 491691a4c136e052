//! Memory of the whole machine, page sizes and pools of huge pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::fact::Fact;
use crate::machine::source::Source;
use crate::units::{BASE_PAGE, Bytes, HUGE_PAGE_USUAL};

/// Memory of the whole machine, bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Memory the kernel manages.
    pub total: Fact<Bytes>,
    /// Memory that holds nothing.
    pub free: Fact<Bytes>,
    /// What a new program can have without swapping, as the kernel estimates it.
    pub available: Fact<Bytes>,
    /// Swap space. Zero when there is none.
    pub swap_total: Fact<Bytes>,
    /// Unused swap space.
    pub swap_free: Fact<Bytes>,
}

impl Memory {
    /// Memory that lies in swap space, bytes.
    pub fn swap_used(&self) -> Fact<Bytes> {
        let total = self.swap_total.clone();
        total.and_then(|total| self.swap_free.clone().map(|free| Bytes(total.0.saturating_sub(free.0))))
    }
}

/// Page sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pages {
    /// Bytes in a page of the processor's page tables.
    pub base: Fact<Bytes>,
    /// Bytes in a transparent huge page that one entry of the page directory maps.
    pub thp: Fact<Bytes>,
    /// Settings of each size of transparent huge page. Empty before kernel 6.8.
    pub thp_sizes: Vec<ThpSize>,
    /// Pools of huge pages of the whole machine, by page size.
    pub huge_pools: Vec<HugePool>,
}

/// A size of transparent huge page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThpSize {
    /// Bytes in a page.
    pub page: Bytes,
    /// `always`, `inherit`, `madvise` or `never`.
    pub mode: Fact<String>,
}

/// A pool of huge pages (hugetlbfs).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HugePool {
    /// Bytes in a page.
    pub page: Bytes,
    /// Pages in the pool.
    pub total: Fact<u64>,
    /// Pages that hold nothing.
    pub free: Fact<u64>,
    /// Pages reserved by someone, but not yet touched. Absent in the pools of a node: the kernel keeps one count.
    pub reserved: Fact<u64>,
    /// Pages beyond the pool's set size.
    pub surplus: Fact<u64>,
}

impl Pages {
    /// Bytes in a base page; where nothing tells it, what most machines have.
    pub fn base_bytes(&self) -> Bytes {
        self.base.get().unwrap_or(Bytes(BASE_PAGE))
    }

    /// Bytes in a transparent huge page; where nothing tells it, what goes with base pages of 4 KiB.
    pub fn huge_bytes(&self) -> Bytes {
        self.thp.get().unwrap_or(HUGE_PAGE_USUAL)
    }
}

pub(crate) fn memory(source: &Source) -> Memory {
    const FILE: &str = "proc/meminfo";
    let text = source.text(FILE);
    let field = |name| meminfo(&text, FILE, name);
    Memory {
        total: field("MemTotal"),
        free: field("MemFree"),
        available: field("MemAvailable"),
        swap_total: field("SwapTotal"),
        swap_free: field("SwapFree"),
    }
}

/// One line of a `meminfo`: `MemTotal: 123 kB`, or `Node 0 MemTotal: 123 kB`. Here kB are KiB.
pub(crate) fn meminfo(text: &Fact<String>, path: &str, name: &str) -> Fact<Bytes> {
    text.clone().and_then(|text| {
        let value = text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.split_whitespace().last() == Some(name)).then_some(value)
        });
        let Some(value) = value else { return Fact::absent(format!("/{path} has no {name}")) };
        let kib = value.trim().trim_end_matches("kB").trim().parse::<u64>().ok();
        Fact::from_option(kib.and_then(|kib| kib.checked_mul(1024)).map(Bytes), || {
            format!("/{path} has a {name} that is not a size")
        })
    })
}

/// Where a recording by hwloc-gather-topology has what no file of the kernel's tells.
const GATHERED: &str = "proc/hwloc-nofile-info";

/// `architecture`: x86-64 has one base page size.
pub(crate) fn pages(source: &Source, architecture: &Fact<String>) -> Pages {
    const THP: &str = "sys/kernel/mm/transparent_hugepage";
    let sizes = page_folders(source, THP);
    Pages {
        base: base(source, architecture),
        thp: source.size(&format!("{THP}/hpage_pmd_size")),
        thp_sizes: sizes
            .map(|(page, folder)| ThpSize { page, mode: source.choice(&format!("{folder}/enabled")) })
            .collect(),
        huge_pools: huge_pools(source, "sys/kernel/mm/hugepages"),
    }
}

fn base(source: &Source, architecture: &Fact<String>) -> Fact<Bytes> {
    let told = source
        .bytes("proc/self/auxv")
        .and_then(|auxv| Fact::from_option(auxv_page_size(&auxv), || "/proc/self/auxv has no page size".into()));
    let gathered = || {
        let text = source.text(GATHERED);
        let page =
            text.known()?.lines().find_map(|line| line.strip_prefix("PageSize: "))?.trim().parse::<u64>().ok()?;
        page.is_power_of_two().then_some(Bytes(page))
    };
    if let Some(page) = told.get().or_else(gathered) {
        return Fact::Known(page);
    }
    told.or_else(|| match architecture.known().map(String::as_str) {
        Some("x86_64") => Fact::Known(Bytes(4096)),
        _ => Fact::absent("only the running machine tells its page size"),
    })
}

/// The auxiliary vector is pairs of 64-bit words; key 6 is `AT_PAGESZ` (include/uapi/linux/auxvec.h).
fn auxv_page_size(auxv: &[u8]) -> Option<Bytes> {
    let words: Vec<u64> =
        auxv.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?))).collect();
    let pair = words.chunks_exact(2).find(|pair| pair[0] == 6)?;
    pair[1].is_power_of_two().then_some(Bytes(pair[1]))
}

/// The folders `hugepages-NkB`, by page size.
fn page_folders<'a>(source: &Source, folder: &'a str) -> impl Iterator<Item = (Bytes, String)> + use<'a> {
    let names = source.names(folder).into_iter();
    let mut found: Vec<(Bytes, String)> = names
        .filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            Some((Bytes(kib.checked_mul(1024)?), format!("{folder}/{name}")))
        })
        .collect();
    found.sort();
    found.into_iter()
}

/// The pools under a `hugepages` folder, by page size.
pub(crate) fn huge_pools(source: &Source, folder: &str) -> Vec<HugePool> {
    let pools = page_folders(source, folder).map(|(page, folder)| HugePool {
        page,
        total: source.number(&format!("{folder}/nr_hugepages")),
        free: source.number(&format!("{folder}/free_hugepages")),
        reserved: source.number(&format!("{folder}/resv_hugepages")),
        surplus: source.number(&format!("{folder}/surplus_hugepages")),
    });
    pools.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_meminfo() {
        let text =
            Fact::Known("MemTotal:  16 kB\nNode 0 MemFree: 8 kB\nBad: x kB\nBig: 99999999999999999999 kB".into());
        let check =
            |name: &str, expect: Option<u64>| assert_eq!(meminfo(&text, "f", name).get(), expect.map(Bytes), "{name}");
        check("MemTotal", Some(16384));
        check("MemFree", Some(8192));
        check("Bad", None);
        check("Big", None);
        check("Total", None);
    }

    #[test]
    fn the_page_size_in_an_auxiliary_vector() {
        let auxv: Vec<u8> = [3u64, 99, 6, 65536, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(auxv_page_size(&auxv), Some(Bytes::kib(64)));
        assert_eq!(auxv_page_size(&auxv[..17]), None);
    }
}
