//! What a file's name may lead to: links, pipes, files of other users.

use std::fs::{File, FileType, OpenOptions, Permissions, TryLockError};
use std::io;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::files::user;

/// Opens so that neither a link is followed, nor a pipe's other end waited for.
pub(crate) fn warily(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
}

/// What something is, if it is no regular file.
pub(crate) fn kind(of: &FileType) -> Option<&'static str> {
    match of {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_symlink() => Some("a link, and links are not followed"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// Whether an open file still has this name.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let number = |about: std::fs::Metadata| (about.dev(), about.ino());
    let here = file.metadata().map(number).ok();
    here.is_some() && path.symlink_metadata().map(number).ok() == here
}

/// Takes the lock of a file's one writer, without waiting. Who reads does not ask for it.
pub(crate) fn lock_writer(file: &File) -> Result<(), TryLockError> {
    file.try_lock()
}

/// Cuts off what stands behind so many bytes.
pub(crate) fn cut(file: &File, _path: &Path, length: u64) -> io::Result<()> {
    file.set_len(length)
}

/// Makes a file for locks: whoever can open it can lock it.
pub(crate) fn for_locks(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(if user() == 0 { 0o600 } else { 0o644 })
}

/// Refuses root a file for locks that somebody else could hold for ever.
pub(crate) fn keep_lock_to_ourselves(file: &File) -> io::Result<()> {
    let about = file.metadata()?;
    if user() == 0 && about.uid() != 0 {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "it belongs to another user, who could lock it for ever",
        ));
    }
    if user() == 0 && about.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Who holds the lock on a file, in words, as far as the kernel tells.
pub fn lock_holder(path: &Path) -> String {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let inode = path.symlink_metadata().map_or(0, |about| about.ino()).to_string();
    let holder = locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1).filter(|word| *word != "->");
        let (kind, pid, file) = (words.next()?, words.nth(2)?, words.next()?);
        (kind == "FLOCK" && file.rsplit(':').next() == Some(&inode)).then_some(pid)
    });
    match holder.and_then(|pid| Some((pid, std::fs::metadata(format!("/proc/{pid}")).ok()?.uid()))) {
        Some((pid, user)) => format!("process {pid} of user {user}"),
        None => "another process".into(),
    }
}
