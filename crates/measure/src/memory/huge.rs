//! How large huge pages are: both kinds follow from the base page, which on Arm may have 4, 16 or 64 KiB.
//!
//! ```text
//! base page   transparent   pools
//!     4 KiB         2 MiB   64 KiB, 2 MiB, 32 MiB, 1 GiB     (x86-64: 2 MiB, 1 GiB)
//!    16 KiB        32 MiB   2 MiB, 32 MiB, 1 GiB
//!    64 KiB       512 MiB   2 MiB, 512 MiB, 16 GiB
//! ```
//!
//! Source: Linux, Documentation/arch/arm64/hugetlbpage.rst.

use std::sync::OnceLock;

use crate::memory::no_memory::NoMemory;
use membound_core::machine::source::Source;
use membound_core::units::{Bytes, HUGE_PAGE_USUAL};

/// Bytes of a transparent huge page here.
pub(crate) fn transparent() -> Bytes {
    static PAGE: OnceLock<Bytes> = OnceLock::new();
    *PAGE.get_or_init(|| transparent_of(&crate::machine::source()))
}

fn transparent_of(source: &Source) -> Bytes {
    let told = source.size("sys/kernel/mm/transparent_hugepage/hpage_pmd_size").get();
    told.filter(|page| page.0.is_power_of_two()).unwrap_or(HUGE_PAGE_USUAL)
}

/// What memory that wants huge pages is aligned to and a multiple of: a huge page. Where these are larger than usual, less
/// memory than one of them stays as small as it is: it has none, and would else take 512 MiB for each array.
pub(crate) fn granule(bytes: Bytes, huge: Bytes) -> usize {
    let granule = if bytes < huge { huge.min(HUGE_PAGE_USUAL) } else { huge };
    granule.0 as usize
}

/// Why no pool can have pages of this size, where the kernel tells which sizes there are.
pub(crate) fn check_pool(page: Bytes, source: &Source) -> Result<(), NoMemory> {
    let names = source.names("sys/kernel/mm/hugepages");
    let size = |name: &String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok().map(Bytes::kib);
    let mut sizes: Vec<Bytes> = names.iter().filter_map(size).collect();
    if sizes.is_empty() || sizes.contains(&page) {
        return Ok(());
    }
    sizes.sort_unstable();
    let sizes: Vec<String> = sizes.iter().map(Bytes::to_string).collect();
    Err(NoMemory::Absent {
        why: format!("this kernel has no pool of pages of {page}: its base pages allow {}", sizes.join(", ")),
        cure: "choose thp, or another size of huge pages".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these files.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Source) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys")).unwrap();
        for (path, text) in files {
            let path = root.path().join("sys/kernel/mm").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let source = Source::recorded(root.path()).unwrap();
        (root, source)
    }

    #[test]
    fn a_transparent_page_is_as_long_as_the_kernel_says() {
        let check = |said: &str, expect: Bytes| {
            let (_root, source) = machine(&[("transparent_hugepage/hpage_pmd_size", said)]);
            assert_eq!(transparent_of(&source), expect, "{said}");
        };
        check("33554432\n", Bytes::mib(32));
        check("536870912\n", Bytes::mib(512));
        check("2097152\n", Bytes::mib(2));
        check("0\n", Bytes::mib(2));
        check("many\n", Bytes::mib(2));
        assert_eq!(transparent_of(&machine(&[]).1), Bytes::mib(2));
    }

    #[test]
    fn small_memory_is_not_rounded_up_to_a_page_that_it_cannot_fill() {
        let check = |bytes, huge, expect: Bytes| assert_eq!(granule(bytes, huge) as u64, expect.0, "{bytes} of {huge}");
        check(Bytes::kib(32), Bytes::mib(2), Bytes::mib(2));
        check(Bytes::mib(64), Bytes::mib(2), Bytes::mib(2));
        check(Bytes::kib(32), Bytes::mib(32), Bytes::mib(2));
        check(Bytes::mib(33), Bytes::mib(32), Bytes::mib(32));
        check(Bytes::mib(512), Bytes::mib(512), Bytes::mib(512));
        check(Bytes::mib(511), Bytes::mib(512), Bytes::mib(2));
        check(Bytes::kib(32), Bytes::mib(1), Bytes::mib(1));
    }

    #[test]
    fn a_size_that_no_pool_has_is_named_with_those_that_there_are() {
        let (_root, source) = machine(&[
            ("hugepages/hugepages-2048kB/nr_hugepages", "0"),
            ("hugepages/hugepages-524288kB/nr_hugepages", "0"),
            ("hugepages/hugepages-16777216kB/nr_hugepages", "0"),
        ]);
        assert!(check_pool(Bytes::mib(2), &source).is_ok());
        let fault = check_pool(Bytes::gib(1), &source).unwrap_err().to_string();
        assert!(
            fault.contains("no pool of pages of 1 GiB: its base pages allow 2 MiB, 512 MiB, 16 GiB; choose "),
            "{fault}"
        );
        assert!(check_pool(Bytes::gib(1), &machine(&[]).1).is_ok());
    }
}
