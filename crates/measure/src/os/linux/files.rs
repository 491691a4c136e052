//! System calls about files and devices that the standard library lacks, each made safe.

#![allow(unsafe_code)]

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::{io, ptr};

use crate::os::memory::base_page;
use membound_core::units::Bytes;

/// The answer of a call that returns -1 and sets errno.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A file in this folder without a name, which nobody can give it later; gone when it is closed.
pub(crate) fn unnamed(folder: &Path) -> io::Result<File> {
    let flags = libc::O_TMPFILE | libc::O_EXCL;
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(folder)
}

/// Whether memory can be files.
pub(crate) fn can_be_mapped() -> io::Result<()> {
    Ok(())
}

/// Whether [`unnamed`] failed because the file system has no such files.
pub(crate) fn lacks_unnamed(fault: &io::Error) -> bool {
    matches!(fault.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR))
}

/// A new file that is this user's alone.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).mode(0o600).create_new(true).open(path)
}

/// A new folder that is this user's alone.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// The user that a file or folder belongs to.
pub fn owner(about: &Metadata) -> u32 {
    about.uid()
}

/// The user that this process runs as.
pub(crate) fn user() -> u32 {
    // SAFETY: it takes nothing, touches nothing and can't fail.
    unsafe { libc::geteuid() }
}

/// Lets everybody read a file, and its owner write it.
pub(crate) fn let_everybody_read(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o644))
}

/// An open file, opened once more to be read and written around the page cache.
pub(crate) fn open_directly(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Reads all of `to` from so many bytes into a file.
pub(crate) fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(to, offset)
}

/// Writes all of `from` at so many bytes into a file.
pub(crate) fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(from, offset)
}

/// Who made a DMA buffer; absent for other files.
pub(crate) fn exporter(buffer: &File) -> Option<String> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", buffer.as_raw_fd())).ok()?;
    about.lines().find_map(|line| line.strip_prefix("exp_name:")).map(|name| name.trim().into())
}

/// An empty memory file whose size may be sealed.
pub(crate) fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a C string; the call touches nothing else of ours.
    let fd = checked(unsafe { libc::memfd_create(c"membound".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    // SAFETY: the kernel just made `fd` for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Seals of a memory file: its size, and the seals themselves.
pub(crate) const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Fixes the size of a memory file for good.
pub(crate) fn seal(file: &File) -> io::Result<()> {
    // SAFETY: a call about an open file; no memory is involved.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) }).map(drop)
}

/// The seals that a memory file has.
pub(crate) fn seals(file: &File) -> io::Result<libc::c_int> {
    // SAFETY: as in `seal`.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })
}

/// Makes `file` this long with all its blocks allocated, so that touching them later can't fail for want of room.
pub(crate) fn allocate(file: &File, bytes: Bytes) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes.0).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    loop {
        // SAFETY: as in `seal`. Unlike its neighbours this call returns the error number.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
            0 => return Ok(()),
            libc::EINTR => {}
            fault => return Err(io::Error::from_raw_os_error(fault)),
        }
    }
}

/// Gives up a memory file's pages; it stays as long as it was. A refusal changes nothing but that its pages stay.
pub(crate) fn empty(file: &File, bytes: Bytes) {
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: as in `seal`.
    unsafe { libc::fallocate(file.as_raw_fd(), hole, 0, bytes.0 as libc::off_t) };
}

/// A file system, as statfs tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystem {
    magic: u32,
    /// Room for this user; absent where the file system does not count it.
    pub free: Option<Bytes>,
}

impl FileSystem {
    /// The one that a file lies on.
    pub fn of(file: &File) -> io::Result<FileSystem> {
        let mut found = MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: fstatfs fills the struct it is given.
        checked(unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) })?;
        // SAFETY: the call succeeded; and all-zero is valid.
        let found = unsafe { found.assume_init() };
        let unit = if found.f_frsize > 0 { found.f_frsize } else { found.f_bsize } as u64;
        let free = Bytes(found.f_bavail.saturating_mul(unit));
        // Magic numbers have 32 bits; the field is wider, and signed in some C libraries.
        Ok(FileSystem { magic: found.f_type as u32, free: (found.f_blocks > 0).then_some(free) })
    }

    /// Its name: `ext4`; a number where it is not known.
    pub fn name(self) -> String {
        let known = FILE_SYSTEMS.iter().find(|(magic, ..)| *magic == self.magic);
        known.map_or_else(|| format!("file system {:#x}", self.magic), |(_, name, _)| (*name).into())
    }

    /// Whether its files are memory and nothing else; absent where it is not known.
    pub fn is_memory(self) -> Option<bool> {
        FILE_SYSTEMS.iter().find(|(magic, ..)| *magic == self.magic).map(|(.., is_memory)| *is_memory)
    }
}

/// Magic numbers, names, and whether files are nothing but memory: linux/magic.h, and those that other file systems'
/// sources give.
const FILE_SYSTEMS: [(u32, &str, bool); 22] = [
    (0x0000_ef53, "ext4", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683e, "btrfs", false),
    (0xf2f5_2010, "f2fs", false),
    (0xca45_1a4e, "bcachefs", false),
    (0x2fc1_2fc1, "zfs", false),
    (0x0000_4d44, "vfat", false),
    (0x2011_bab0, "exfat", false),
    (0x7366_746e, "ntfs3", false),
    (0x794c_7630, "overlayfs", false),
    (0x0000_6969, "nfs", false),
    (0xff53_4d42, "cifs", false),
    (0xfe53_4d42, "smb", false),
    (0x00c3_6400, "ceph", false),
    (0x0bd0_0bd0, "lustre", false),
    (0x4750_4653, "gpfs", false),
    (0x6573_5546, "fuse", false),
    (0x0102_1997, "9p", false),
    (0x0102_1994, "tmpfs", true),
    (0x8584_58f6, "ramfs", true),
    (0x9584_58f6, "hugetlbfs", true),
    (0x6265_6572, "sysfs", false),
];

/// Writes what is dirty of a file to its disk and drops its pages from the page cache. What can't be dropped stays; ask
/// [`cached`].
pub(crate) fn drop_cached(file: &File) {
    // Dirty pages can't be dropped.
    let _ = file.sync_data();
    // SAFETY: advice about an open file; no memory is involved.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Writes everything that is dirty to its disk.
pub(crate) fn sync() {
    // SAFETY: no arguments and no answer.
    unsafe { libc::sync() };
}

/// How much of a file's first `bytes` is in the page cache; absent where the kernel does not say.
pub(crate) fn cached(file: &File, bytes: usize) -> Option<Bytes> {
    let view = View::new(file, bytes, libc::MAP_SHARED)?;
    let page = base_page();
    let mut pages = vec![0u8; bytes.div_ceil(page)];
    // SAFETY: the range is mapped by `view`, and `pages` has a byte for each of its pages.
    checked(unsafe { libc::mincore(view.start, bytes, pages.as_mut_ptr()) }).ok()?;
    Some(Bytes(pages.iter().filter(|page| **page & 1 == 1).count() as u64 * page as u64))
}

/// Whether a mapping may be asked to keep the file's metadata on persistent memory in step: only files that are mapped
/// without a page cache can.
pub(crate) fn maps_synchronously(file: &File, bytes: usize) -> bool {
    View::new(file, bytes, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC).is_some()
}

/// A mapping that is asked about and never touched.
struct View {
    start: *mut libc::c_void,
    bytes: usize,
}

impl View {
    fn new(file: &File, bytes: usize, flags: libc::c_int) -> Option<View> {
        // SAFETY: a fresh mapping at no fixed address; nothing existing is touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        (start != libc::MAP_FAILED).then_some(View { start, bytes })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping with this length, and nothing refers to it.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// Whether a file is mapped without a page cache, by statx.
pub(crate) fn is_dax(file: &File) -> bool {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, which with AT_EMPTY_PATH means the file itself; statx fills the struct.
    let result = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_TYPE, found.as_mut_ptr())
    };
    // SAFETY: all-zero is valid should the call have failed.
    let found = unsafe { found.assume_init() };
    result == 0 && found.stx_attributes & libc::STATX_ATTR_DAX as u64 != 0
}

/// linux/dma-heap.h
#[repr(C)]
struct DmaHeapAllocation {
    bytes: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

/// linux/udmabuf.h
#[repr(C)]
struct UdmabufCreation {
    memfd: u32,
    flags: u32,
    offset: u64,
    bytes: u64,
}

/// linux/dma-buf.h
#[repr(C)]
struct DmaBufSync {
    flags: u64,
}

const DMA_HEAP_ALLOC: libc::Ioctl = libc::_IOWR::<DmaHeapAllocation>(b'H' as u32, 0);
const UDMABUF_CREATE: libc::Ioctl = libc::_IOW::<UdmabufCreation>(b'u' as u32, 0x42);
const DMA_BUF_SYNC: libc::Ioctl = libc::_IOW::<DmaBufSync>(b'b' as u32, 0);

/// A DMA buffer of an opened heap.
pub(crate) fn allocate_dma_buffer(heap: &File, bytes: Bytes) -> io::Result<File> {
    let fd_flags = (libc::O_RDWR | libc::O_CLOEXEC) as u32;
    let mut request = DmaHeapAllocation { bytes: bytes.0, fd: 0, fd_flags, heap_flags: 0 };
    // SAFETY: the request reads and writes one DmaHeapAllocation.
    checked(unsafe { libc::ioctl(heap.as_raw_fd(), DMA_HEAP_ALLOC, &raw mut request) })?;
    // SAFETY: the kernel just made `fd` for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(request.fd as i32) }.into())
}

/// A DMA buffer made of all of a memory file.
pub(crate) fn make_dma_buffer(device: &File, memory: &File, bytes: Bytes) -> io::Result<File> {
    const CLOEXEC: u32 = 1;
    let request = UdmabufCreation { memfd: memory.as_raw_fd() as u32, flags: CLOEXEC, offset: 0, bytes: bytes.0 };
    // SAFETY: the request reads one UdmabufCreation.
    let fd = checked(unsafe { libc::ioctl(device.as_raw_fd(), UDMABUF_CREATE, &raw const request) })?;
    // SAFETY: the kernel just made `fd` for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Tells a DMA buffer's exporter that the processor is about to read and write it.
pub(crate) fn begin_processor_access(buffer: &File) -> io::Result<()> {
    const READ_AND_WRITE: u64 = 3;
    let request = DmaBufSync { flags: READ_AND_WRITE };
    // SAFETY: the request reads one DmaBufSync.
    checked(unsafe { libc::ioctl(buffer.as_raw_fd(), DMA_BUF_SYNC, &raw const request) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the kernel's headers make.
    #[test]
    fn requests_have_the_kernels_numbers() {
        assert_eq!(DMA_HEAP_ALLOC as u32, 0xc018_4800);
        assert_eq!(UDMABUF_CREATE as u32, 0x4018_7542);
        assert_eq!(DMA_BUF_SYNC as u32, 0x4008_6200);
    }

    #[test]
    fn a_file_systems_name_is_known_or_a_number() {
        let of = |magic| FileSystem { magic, free: None };
        assert_eq!(of(0x0102_1994).name(), "tmpfs");
        assert_eq!(of(0x1234).name(), "file system 0x1234");
        let sysfs = FileSystem::of(&File::open("/sys/devices").unwrap()).unwrap();
        assert!(sysfs.name() == "sysfs" || sysfs.name() == "overlayfs", "{sysfs:?}");
    }

    #[test]
    fn the_page_cache_is_counted() {
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, &[1; 5 * 4096]).unwrap();
        file.set_len(16 * 4096).unwrap();
        assert_eq!(cached(&file, 16 * 4096), Some(Bytes::kib(20)));
    }
}
