//! A file whose pages fill the page cache, for those who ask what that does to memory beside it. It has no name, so
//! nothing is left of it however the process ends.

use membound_core::memory::filler::Filler;
use std::fs::File;
use std::io;
use std::path::Path;

use crate::memory::file::Folder;
use crate::memory::no_memory::NoMemory;
use crate::os::files;
use crate::os::machine::DROP_CACHES;
use membound_core::machine::room::margin;
use membound_core::units::Bytes;

/// Bytes written or read at once; between two such pieces somebody may stop it.
const CHUNK: usize = 1 << 20;
const HINT: &str = "; give a smaller --share, another folder with --dir, or --filler sparse-read";

/// A file with its pages in the page cache, until it is dropped.
#[derive(Debug)]
pub struct CachedFile {
    file: File,
    bytes: Bytes,
}

impl CachedFile {
    /// Whether `folder` can hold such a file, asked before anything is written.
    ///
    /// # Errors
    /// It may not be written to, has too little room, or keeps its files in memory, where they are no page cache that
    /// could be given up.
    pub fn check(folder: &Path, bytes: Bytes, filler: Filler) -> Result<(), NoMemory> {
        let place = Folder { folder, hint: "; name another folder with --dir" };
        let system = place.file_system(&place.unnamed_file()?)?;
        let (name, folder) = (system.name(), folder.display());
        if system.is_memory() == Some(true) {
            let why = format!("{folder} ({name}) keeps its files in memory for good");
            return Err(NoMemory::absent(why, "name a folder on a disk with --dir"));
        }
        let needed = Bytes(bytes.0 + margin(bytes).0);
        match system.free.filter(|free| filler == Filler::Write && *free < needed) {
            Some(free) => {
                let why = format!("{folder} ({name}) has {free} free, {needed} are needed");
                Err(NoMemory::absent(why, HINT.trim_start_matches("; ")))
            }
            None => Ok(()),
        }
    }

    /// Makes a file of `bytes` and brings its pages into the page cache, all of them on disk where it is written. Pages
    /// come from the node of the calling thread, as long as that has some. Ends early when `go_on` says so.
    ///
    /// # Errors
    /// The folder or its disk refuses, or it was stopped. Nothing of the file is left then.
    pub fn fill(folder: &Path, bytes: Bytes, filler: Filler, go_on: &dyn Fn() -> bool) -> Result<Self, NoMemory> {
        let place = Folder { folder, hint: HINT };
        let file = place.unnamed_file()?;
        let filled = match filler {
            Filler::Write => write(&file, bytes, go_on).and_then(|()| file.sync_all()),
            Filler::SparseRead => file.set_len(bytes.0).and_then(|()| read(&file, bytes, go_on)),
        };
        filled.map_err(place.fault())?;
        Ok(CachedFile { file, bytes })
    }

    /// How much of it the page cache holds now; absent where the kernel does not say.
    pub fn cached(&self) -> Option<Bytes> {
        files::cached(&self.file, self.bytes.0 as usize)
    }
}

impl Drop for CachedFile {
    /// Its pages go now, not when the kernel gets to it.
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
    }
}

/// Numbers that no file system can compress or share.
fn write(mut file: &File, bytes: Bytes, go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(bytes.0);
    let mut chunk = vec![0; CHUNK];
    pieces(bytes, go_on, |length| {
        random.fill(&mut chunk);
        io::Write::write_all(&mut file, &chunk[..length])
    })
}

fn read(mut file: &File, bytes: Bytes, go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    pieces(bytes, go_on, |length| io::Read::read_exact(&mut file, &mut chunk[..length]))
}

fn pieces(bytes: Bytes, go_on: &dyn Fn() -> bool, mut work: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
    let mut left = bytes.0;
    while left > 0 {
        if !go_on() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped before the page cache was full"));
        }
        let length = left.min(CHUNK as u64);
        work(length as usize)?;
        left -= length;
    }
    Ok(())
}

/// Writes back what is dirty and has the kernel drop its clean page cache, of all files on this machine.
///
/// # Errors
/// The kernel's refusal: this takes root, and a container's root may not do it either.
pub fn drop_page_cache() -> Result<(), NoMemory> {
    files::sync();
    // 1: page cache. Not 3: inodes and directory entries hold no file's pages.
    let hint = "; run as root outside containers to drop the page cache, or push it out with `membound sweep`";
    std::fs::write(DROP_CACHES, "1").map_err(|source| NoMemory::File { path: DROP_CACHES.into(), source, hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elsewhere a file's name may stay until it is closed.
    #[cfg(unix)]
    #[test]
    fn a_file_fills_the_page_cache_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for filler in Filler::ALL {
            let file = CachedFile::fill(folder.path(), Bytes::mib(5), *filler, &|| true).unwrap();
            assert!(file.cached().is_none_or(|cached| cached == Bytes::mib(5)), "{filler}: {:?}", file.cached());
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{filler}");
        }
    }

    #[test]
    fn a_stopped_fill_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let pieces = std::cell::Cell::new(0);
        let go_on = || pieces.replace(pieces.get() + 1) < 3;
        let fault = CachedFile::fill(folder.path(), Bytes::gib(1), Filler::Write, &go_on).unwrap_err().to_string();
        assert!(fault.contains("stopped before"), "{fault}");
        assert_eq!((pieces.get(), std::fs::read_dir(folder.path()).unwrap().count()), (4, 0));
    }

    /// Windows is not asked how much room there is.
    #[cfg(unix)]
    #[test]
    fn what_can_not_be_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |folder: &Path, bytes, filler| CachedFile::check(folder, bytes, filler).unwrap_err().to_string();
        let fault = refused(folder.path(), Bytes(1 << 60), Filler::Write);
        assert!(fault.contains("are needed") && fault.contains("--filler sparse-read"), "{fault}");
        assert!(CachedFile::check(folder.path(), Bytes::mib(1), Filler::Write).is_ok());
        assert!(refused(Path::new("/nowhere/at/all"), Bytes(1), Filler::Write).contains("--dir"));
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            assert!(refused(memory, Bytes(1), Filler::SparseRead).contains("keeps its files in memory"));
        }
    }
}
