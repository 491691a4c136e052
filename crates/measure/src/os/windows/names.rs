//! What a file's name may lead to: links, devices.

#![allow(unsafe_code)]

use std::fs::{File, FileType, OpenOptions, TryLockError};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;

use windows_sys::Win32::Foundation::ERROR_LOCK_VIOLATION;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_OPEN_REPARSE_POINT, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
};
use windows_sys::Win32::System::IO::{OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0};

/// Opens so that no link is followed.
pub(crate) fn warily(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
}

/// What something is, if it is no regular file.
pub(crate) fn kind(of: &FileType) -> Option<&'static str> {
    match of {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_symlink() => Some("a link, and links are not followed"),
        _ => Some("a device"),
    }
}

/// Whether an open file still has this name: nobody can give it another while it is open.
pub(crate) fn is_at(_file: &File, path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Takes the lock of a file's one writer, without waiting. What is locked here nobody else can read, so it is a byte that the file will
/// never have.
pub(crate) fn lock_writer(file: &File) -> Result<(), TryLockError> {
    const HIGH: u32 = 1 << 30;
    let place = OVERLAPPED_0 { Anonymous: OVERLAPPED_0_0 { Offset: 0, OffsetHigh: HIGH } };
    let mut at = OVERLAPPED { Anonymous: place, ..OVERLAPPED::default() };
    let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    // SAFETY: the file is open, and not for overlapped calls, so this one has ended when it returns; `at` lives until then.
    if unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut at) } != 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        fault if fault.raw_os_error() == Some(ERROR_LOCK_VIOLATION as i32) => Err(TryLockError::WouldBlock),
        fault => Err(TryLockError::Error(fault)),
    }
}

/// Cuts off what stands behind so many bytes. Who opened a file to append may not do that here.
pub(crate) fn cut(_file: &File, path: &Path, length: u64) -> io::Result<()> {
    warily(OpenOptions::new().write(true)).open(path)?.set_len(length)
}

/// Makes a file for locks. Who may open it, its folder says.
pub(crate) fn for_locks(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Files for locks lie in the user's own folder.
pub(crate) fn keep_lock_to_ourselves(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Who holds the lock on a file: Windows does not say.
pub fn lock_holder(_path: &Path) -> String {
    "another process".into()
}
