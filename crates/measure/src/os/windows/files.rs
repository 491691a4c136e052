//! Files and devices, as far as this program uses them here: kinds of memory that are files are Linux's.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::Path;

use membound_core::units::Bytes;

use super::lacks;

/// A file without a name.
pub(crate) fn unnamed(_folder: &Path) -> io::Result<File> {
    lacks("files without a name")
}

/// Refused, before a file is filled in vain: this program maps none here.
pub(crate) fn can_be_mapped() -> io::Result<()> {
    lacks("mappings of files in this program yet")
}

/// Whether [`unnamed`] failed because the file system has no such files.
pub(crate) fn lacks_unnamed(fault: &io::Error) -> bool {
    fault.kind() == io::ErrorKind::Unsupported
}

/// A new file, in a folder that is mostly this user's alone.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// A new folder; who may enter it, the folder above says.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().create(path)
}

/// The user that a file or folder belongs to: not a number here.
pub fn owner(_about: &Metadata) -> u32 {
    user()
}

/// The user that this process runs as: not a number here.
pub(crate) fn user() -> u32 {
    1
}

/// Who may read a file, its folder says.
pub(crate) fn let_everybody_read(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Refused.
pub(crate) fn open_directly(_file: &File) -> io::Result<File> {
    lacks("way to open an open file once more around its cache")
}

/// Reads all of `to` from so many bytes into a file.
pub(crate) fn read_at(file: &File, mut to: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !to.is_empty() {
        let read = file.seek_read(to, offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (to, offset) = (&mut to[read..], offset + read as u64);
    }
    Ok(())
}

/// Writes all of `from` at so many bytes into a file.
pub(crate) fn write_at(file: &File, mut from: &[u8], mut offset: u64) -> io::Result<()> {
    while !from.is_empty() {
        let written = file.seek_write(from, offset)?;
        (from, offset) = (&from[written..], offset + written as u64);
    }
    Ok(())
}

/// Who made a DMA buffer: there are none.
pub(crate) fn exporter(_buffer: &File) -> Option<String> {
    None
}

/// Refused.
pub(crate) fn memory_file() -> io::Result<File> {
    lacks("memory files (memfd)")
}

/// No seals.
pub(crate) const SEALS: i32 = 0;

/// Refused.
pub(crate) fn seal(_file: &File) -> io::Result<()> {
    lacks("seals")
}

/// Refused.
pub(crate) fn seals(_file: &File) -> io::Result<i32> {
    lacks("seals")
}

/// Makes `file` this long.
pub(crate) fn allocate(file: &File, bytes: Bytes) -> io::Result<()> {
    file.set_len(bytes.0)
}

/// Gives nothing up.
pub(crate) fn empty(_file: &File, _bytes: Bytes) {}

/// A file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// Room for this user, which is not asked.
    pub free: Option<Bytes>,
}

impl FileSystem {
    /// The one that a file lies on.
    pub fn of(_file: &File) -> io::Result<FileSystem> {
        Ok(FileSystem { free: None })
    }

    /// Its name.
    pub fn name(self) -> String {
        "a file system of Windows".into()
    }

    /// Whether its files are memory and nothing else: not known.
    pub fn is_memory(self) -> Option<bool> {
        None
    }
}

/// Writes what is dirty of a file to its disk; its pages stay in the cache.
pub(crate) fn drop_cached(file: &File) {
    let _ = file.sync_data();
}

/// Nothing writes everything for programs without rights.
pub(crate) fn sync() {}

/// How much of a file is in the cache: not told.
pub(crate) fn cached(_file: &File, _bytes: usize) -> Option<Bytes> {
    None
}

/// No.
pub(crate) fn maps_synchronously(_file: &File, _bytes: usize) -> bool {
    false
}

/// No.
pub(crate) fn is_dax(_file: &File) -> bool {
    false
}

/// Refused.
pub(crate) fn allocate_dma_buffer(_heap: &File, _bytes: Bytes) -> io::Result<File> {
    lacks("DMA heaps")
}

/// Refused.
pub(crate) fn make_dma_buffer(_device: &File, _memory: &File, _bytes: Bytes) -> io::Result<File> {
    lacks("DMA buffers (udmabuf)")
}

/// Refused.
pub(crate) fn begin_processor_access(_buffer: &File) -> io::Result<()> {
    lacks("DMA buffers")
}
