//! Libraries that let programs choose where their memory lies, as the loader would find them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::fact::Fact;
use crate::machine::source::Source;

/// Paths of shared libraries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Libraries {
    /// libnuma: memory on chosen nodes; numactl comes with it.
    pub libnuma: Fact<String>,
    /// memkind: an allocator for high-bandwidth and other special memory.
    pub memkind: Fact<String>,
}

impl Default for Libraries {
    /// Of a record that does not tell.
    fn default() -> Self {
        let untold = || Fact::absent("the record does not tell");
        Libraries { libnuma: untold(), memkind: untold() }
    }
}

/// Folders that a loader without a cache looks into.
const USUAL: [&str; 5] = ["lib", "usr/lib", "lib64", "usr/lib64", "usr/local/lib"];

pub(crate) fn read(source: &Source) -> Libraries {
    let named = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let named = if source.is_live() { named } else { String::new() };
    let cache = source.bytes("etc/ld.so.cache");
    let find = |name: &str, cure: &str| {
        let folders = named.split(':').map(|folder| folder.trim_start_matches('/')).filter(|folder| !folder.is_empty());
        let has = |folder: &&str| source.names(folder).iter().any(|file| file == name);
        let path = |folder: &str| format!("/{folder}/{name}");
        let cached = || cache.known().and_then(|cache| cached(cache, name));
        let found = folders.clone().find(has).map(path).or_else(cached);
        let found = found.or_else(|| USUAL.into_iter().find(has).map(path));
        Fact::from_option(found, || format!("{name} is not where the loader looks; {cure}"))
    };
    Libraries {
        libnuma: find("libnuma.so.1", "numactl's packages bring it"),
        memkind: find("libmemkind.so.0", "memkind's packages bring it"),
    }
}

/// The path of a library by what ldconfig found. The file is a table of offsets, and then the names and paths that they
/// point to, each ended by a NUL.
fn cached(cache: &[u8], name: &str) -> Option<String> {
    let paths = cache.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let is_it = |path: &&str| path.starts_with('/') && path.rsplit('/').next() == Some(name);
    paths.into_iter().find(is_it).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_in_the_loaders_cache() {
        let cache =
            b"glibc-ld.so.cache1.1\0\x02\xff\0libnuma.so.1.0\0/lib/libnuma.so.1.0\0libnuma.so.1\0/lib/x/libnuma.so.1\0";
        assert_eq!(cached(cache, "libnuma.so.1").as_deref(), Some("/lib/x/libnuma.so.1"));
        assert_eq!(cached(cache, "libmemkind.so.0"), None);
        assert_eq!(cached(b"", "libnuma.so.1"), None);
    }

    #[test]
    fn a_library_is_found_in_the_usual_folders_or_absent_with_a_cure() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("usr/lib64")).unwrap();
        std::fs::create_dir_all(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join("usr/lib64/libmemkind.so.0"), "").unwrap();
        let found = read(&Source::recorded(folder.path()).unwrap());
        assert_eq!(found.memkind.known().map(String::as_str), Some("/usr/lib64/libmemkind.so.0"));
        assert!(found.libnuma.reason().unwrap().contains("; numactl's packages bring it"));
    }
}
