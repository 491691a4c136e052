//! What a file's name may lead to: links, devices.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;

use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_OPEN_REPARSE_POINT;

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
