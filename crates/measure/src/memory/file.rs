//! Memory that is a file: in memory, on disk through the page cache, on persistent memory without one. All files are
//! unnamed, so nobody else opens them by accident and none outlives its region.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

use crate::memory::no_memory::NoMemory;
use crate::memory::places::Places;
use crate::memory::recipe::{Backing, Cached, Provider, Recipe};
use crate::os::files;
use crate::os::files::FileSystem;
use membound_core::memory::MemoryKind;
use membound_core::memory::proof::Proof;
use membound_core::units::Bytes;

const SMALLER_OR_ELSEWHERE: &str = "give a smaller --size, or another folder with --dir";

/// A memory file whose size is sealed.
pub(crate) struct Memfd;

impl Provider for Memfd {
    fn recipe(&self, bytes: Bytes, _places: &Places) -> Result<Recipe, NoMemory> {
        let bytes = Recipe::whole_pages(bytes, 4096);
        let made = sealed(Bytes(bytes as u64));
        let (file, seals) = made.map_err(|source| NoMemory::refused(MemoryKind::Memfd, bytes, source))?;
        let proof = Proof::new(
            "its size is sealed",
            "F_GET_SEALS",
            format!("{seals:#x}"),
            seals & files::SEALS == files::SEALS,
        );
        let backing = Backing::File { file, shared: true, cached: Cached::Itself };
        Ok(Recipe { proofs: vec![proof], ..Recipe::new(MemoryKind::Memfd, backing, Bytes(bytes as u64), 4096) })
    }
}

/// A memory file of this size, and its seals. Nobody can shrink it under a mapping.
pub(crate) fn sealed(bytes: Bytes) -> io::Result<(File, i32)> {
    let file = files::memory_file()?;
    file.set_len(bytes.0)?;
    files::seal(&file)?;
    let seals = files::seals(&file)?;
    Ok((file, seals))
}

/// A file on a memory file system.
pub(crate) struct Tmpfs;

impl Provider for Tmpfs {
    fn recipe(&self, bytes: Bytes, places: &Places) -> Result<Recipe, NoMemory> {
        check_files(MemoryKind::Tmpfs, bytes)?;
        let place = Folder { folder: &places.tmpfs, hint: "; name a folder on a tmpfs" };
        let file = place.unnamed_file()?;
        let bytes = Recipe::whole_pages(bytes, 4096);
        let hint = "; give a smaller --size, or enlarge that file system (mount -o remount,size=...)";
        // A page that can't be had later would be a SIGBUS in the middle of a sample.
        files::allocate(&file, Bytes(bytes as u64)).map_err(Folder { hint, ..place }.fault())?;
        let found = place.file_system(&file)?;
        let proof = Proof::new("a file on a tmpfs", "statfs", found.name(), found.name() == "tmpfs");
        let backing = Backing::File { file, shared: true, cached: Cached::Itself };
        Ok(Recipe { proofs: vec![proof], ..Recipe::new(MemoryKind::Tmpfs, backing, Bytes(bytes as u64), 4096) })
    }
}

/// A file on disk, and what sets it apart.
pub(crate) struct Disk {
    kind: MemoryKind,
    shared: bool,
    cached: Cached,
}

impl Disk {
    pub const PRIVATE: Disk = Disk { kind: MemoryKind::FilePrivate, shared: false, cached: Cached::All };
    pub const PRIVATE_COLD: Disk = Disk { kind: MemoryKind::FilePrivateCold, shared: false, cached: Cached::Nothing };
    pub const SHARED: Disk = Disk { kind: MemoryKind::FileShared, shared: true, cached: Cached::All };
    pub const SHARED_COLD: Disk = Disk { kind: MemoryKind::FileSharedCold, shared: true, cached: Cached::Nothing };
}

impl Provider for Disk {
    fn recipe(&self, bytes: Bytes, places: &Places) -> Result<Recipe, NoMemory> {
        check_files(self.kind, bytes)?;
        let place = Folder { folder: &places.folder, hint: "; name another folder with --dir" };
        let bytes = Bytes(Recipe::whole_pages(bytes, 4096) as u64);
        // Asked of an empty file first: a full one takes long.
        if files::is_dax(&place.unnamed_file()?) {
            let why = format!("files in {} have no page cache (DAX, statx says)", place.folder.display());
            return Err(NoMemory::absent(why, "name a folder on another file system with --dir, or --memory dax"));
        }
        let (file, found) = place.full_file(bytes, SMALLER_OR_ELSEWHERE)?;
        let proof = Proof::new("a file on disk", "statfs", found.name(), found.is_memory() != Some(true));
        let backing = Backing::File { file, shared: self.shared, cached: self.cached };
        Ok(Recipe { proofs: vec![proof], ..Recipe::new(self.kind, backing, bytes, 4096) })
    }
}

/// A file on persistent memory.
pub(crate) struct Dax;

impl Provider for Dax {
    fn recipe(&self, bytes: Bytes, places: &Places) -> Result<Recipe, NoMemory> {
        check_files(MemoryKind::Dax, bytes)?;
        let Some(folder) = &places.dax else {
            let cure = "name one with --dax DIR (a file system on persistent memory, mounted with -o dax)";
            return Err(NoMemory::absent("no folder on persistent memory was named", cure));
        };
        let place = Folder { folder, hint: "; name another folder with --dax" };
        let bytes = Bytes(Recipe::whole_pages(bytes, 4096) as u64);
        // Asked of an empty file first: a full one takes long.
        let empty = place.unnamed_file()?;
        if !files::is_dax(&empty) {
            let on = place.file_system(&empty)?.name();
            let why = format!("files in {} ({on}) go through the page cache, statx says", folder.display());
            return Err(NoMemory::absent(why, "mount it with -o dax=always, or name another folder with --dax"));
        }
        let (file, found) = place.full_file(bytes, "give a smaller --size, or another folder with --dax")?;
        let mut proofs = vec![Proof::new("mapped without a page cache", "statx", found.name(), files::is_dax(&file))];
        // Not every DAX device can do that, so its absence proves nothing.
        if files::maps_synchronously(&file, bytes.0 as usize) {
            proofs.push(Proof::new("mapped without a page cache", "mmap", "MAP_SYNC is granted", true));
        }
        let backing = Backing::File { file, shared: true, cached: Cached::Unasked };
        Ok(Recipe { proofs, ..Recipe::new(MemoryKind::Dax, backing, bytes, 4096) })
    }
}

/// Refuses memory that is a file where none is mapped: filling it takes long.
fn check_files(kind: MemoryKind, bytes: Bytes) -> Result<(), NoMemory> {
    files::can_be_mapped().map_err(|fault| NoMemory::refused(kind, Recipe::whole_pages(bytes, 4096), fault))
}

/// Bytes written at once.
const CHUNK: usize = 1 << 20;

/// A folder to make files in, and what helps where that fails.
#[derive(Clone, Copy)]
pub(crate) struct Folder<'a> {
    pub folder: &'a Path,
    pub hint: &'static str,
}

impl Folder<'_> {
    pub fn fault(self) -> impl Fn(io::Error) -> NoMemory {
        move |source| NoMemory::File { path: self.folder.into(), source, hint: self.hint }
    }

    pub fn file_system(self, file: &File) -> Result<FileSystem, NoMemory> {
        FileSystem::of(file).map_err(self.fault())
    }

    /// A file without a name; gone when it is closed.
    pub fn unnamed_file(self) -> Result<File, NoMemory> {
        let unnamed = files::unnamed(self.folder);
        let made = match unnamed {
            Err(fault) if files::lacks_unnamed(&fault) => named_for_a_moment(self.folder),
            made => made,
        };
        made.map_err(self.fault())
    }

    /// A file that holds `bytes` of numbers, all of them on disk: a hole would be read without the disk, and writing
    /// back what is dirty would go on during the measurement.
    fn full_file(self, bytes: Bytes, cure: &str) -> Result<(File, FileSystem), NoMemory> {
        let file = self.unnamed_file()?;
        let found = self.file_system(&file)?;
        if let Some(free) = found.free.filter(|free| *free < bytes) {
            let folder = self.folder.display();
            return Err(NoMemory::absent(
                format!("{folder} ({}) has {free} free, {bytes} are needed", found.name()),
                cure,
            ));
        }
        fill(&file, bytes).and_then(|()| file.sync_data()).map_err(self.fault())?;
        Ok((file, found))
    }
}

/// For file systems that can't make unnamed files, such as NFS.
fn named_for_a_moment(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".membound-{:016x}", fastrand::u64(..)));
    let file = files::create_private(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Writes numbers from 1 to 2 with random digits: ordinary operands for any kernel, and nothing that a file system could
/// compress or share.
fn fill(mut file: &File, bytes: Bytes) -> io::Result<()> {
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    let mut random = fastrand::Rng::with_seed(1);
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut left = bytes.0;
    while left > 0 {
        let length = left.min(CHUNK as u64) as usize;
        chunk.clear();
        chunk.extend((0..length / 8).flat_map(|_| (ONE | random.u64(..) >> 12).to_le_bytes()));
        file.write_all(&chunk)?;
        left -= length as u64;
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_full_file_has_no_holes_and_ordinary_numbers() {
        let file = tempfile::tempfile().unwrap();
        let bytes = CHUNK + 4096;
        fill(&file, Bytes(bytes as u64)).unwrap();
        file.sync_all().unwrap();
        let about = file.metadata().unwrap();
        assert_eq!(about.len(), bytes as u64);
        assert!(about.blocks() * 512 >= bytes as u64, "{} blocks", about.blocks());
        let mut text = vec![0; bytes];
        file.read_exact_at(&mut text, 0).unwrap();
        let numbers: Vec<f64> = text.chunks(8).map(|word| f64::from_le_bytes(word.try_into().unwrap())).collect();
        assert!(numbers.iter().all(|number| (1.0..2.0).contains(number)));
        assert!(numbers[..CHUNK / 8] != numbers[4096 / 8..]);
    }

    #[test]
    fn a_file_that_had_a_name_leaves_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = named_for_a_moment(folder.path()).unwrap();
        fill(&file, Bytes::kib(4)).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
