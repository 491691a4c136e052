//! What a file's name may lead to: links, devices.

#![allow(unsafe_code)]

use std::fs::{File, FileType, OpenOptions, TryLockError};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::path::Path;

use windows_sys::Win32::Foundation::{ERROR_LOCK_VIOLATION, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_FLAG_OPEN_REPARSE_POINT, FILE_GENERIC_WRITE, FILE_READ_ATTRIBUTES,
    FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, GetFileInformationByHandle, LOCKFILE_EXCLUSIVE_LOCK,
    LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, ReOpenFile,
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

/// Whether an open file still has this name: it can be given another meanwhile, since the standard library's files share deletion.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let there = || warily(OpenOptions::new().access_mode(FILE_READ_ATTRIBUTES)).open(path);
    let here = number(file);
    here.is_some() && there().ok().as_ref().and_then(number) == here
}

/// The volume and the number of a file there.
fn number(file: &File) -> Option<[u32; 3]> {
    let mut about = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the file is open; the call fills the struct.
    let is_told = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &mut about) } != 0;
    is_told.then_some([about.dwVolumeSerialNumber, about.nFileIndexHigh, about.nFileIndexLow])
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

/// Cuts off what stands behind so many bytes. Who opened a file to append may not do that here, so it is opened once more: this file,
/// whatever has its name by now.
pub(crate) fn cut(file: &File, _path: &Path, length: u64) -> io::Result<()> {
    const ALL: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: the file is open.
    let again = unsafe { ReOpenFile(file.as_raw_handle(), FILE_GENERIC_WRITE, ALL, 0) };
    if again == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh handle of a file, which nobody else has.
    let again = unsafe { File::from_raw_handle(again) };
    // Wine opens what has the name that the file had.
    if number(&again) != number(file) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it was renamed"));
    }
    again.set_len(length)
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

#[cfg(test)]
mod tests {
    use crate::os::outfile::Journal;

    #[test]
    fn a_journal_that_was_renamed_is_known_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["journal", "other"].map(|name| folder.path().join(name));
        let mut journal = Journal::open(&path, 1 << 20).unwrap();
        journal.add(b"one\ntwo").unwrap();
        assert!(journal.is_in_place());
        assert!(Journal::open(&path, 1 << 20).unwrap_err().to_string().contains("another process"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo");
        std::fs::rename(&path, &other).unwrap();
        assert!(!journal.is_in_place());
        std::fs::write(&path, "something else, which is longer\nand has no end").unwrap();
        assert!(!journal.is_in_place(), "it is another file");
        let left = if journal.mend().is_ok() { "one\n" } else { "one\ntwo" };
        assert_eq!(std::fs::read_to_string(&other).unwrap(), left);
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("no end"), "it is not ours");
        std::fs::rename(&other, &path).unwrap();
        assert!(journal.is_in_place());
        journal.mend().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
    }
}
