//! Files that a run leaves behind. Whoever runs this program may be root, and the folder may be everybody's, so: no link is
//! followed, nothing but a regular file is ever replaced, and a reader sees the old file or the new one, never a part.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::{ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};

pub use super::names::lock_holder;
use super::names::{cut, for_locks, is_at, keep_lock_to_ourselves, kind, lock_writer, warily};

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Whoever the user's mask lets.
    Usual,
    /// Everybody: its reader runs as somebody else.
    Everybody,
}

/// A new file. Whatever has that name already, be it a link that leads nowhere, is an error and stays as it is.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|fault| match fault.kind() {
        ErrorKind::AlreadyExists => io::Error::new(ErrorKind::AlreadyExists, standing(path)),
        _ => fault,
    })
}

/// What keeps a new file from its name.
fn standing(path: &Path) -> String {
    let kind = path.symlink_metadata().ok().and_then(|about| kind(&about.file_type()));
    kind.map_or_else(|| "it exists, and nothing is overwritten".into(), |kind| format!("it is {kind}"))
}

/// A new file that was made before what it is to hold is known, so that a place that can't be written is found at once. Where
/// nothing comes of it, it is gone again.
#[derive(Debug)]
pub struct Reserved {
    path: PathBuf,
    file: File,
    is_filled: bool,
}

impl Reserved {
    /// Makes the file.
    ///
    /// # Errors
    /// Those of [`create`].
    pub fn new(path: &Path) -> io::Result<Reserved> {
        Ok(Reserved { path: path.into(), file: create(path)?, is_filled: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All that it will hold.
    ///
    /// # Errors
    /// The disk may be full; then the file goes, too.
    pub fn fill(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.is_filled = true;
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.is_filled {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A file that this process created, opened once more to read and append; a link that took its place is not followed.
pub fn reopen(path: &Path) -> io::Result<File> {
    regular(warily(OpenOptions::new().read(true).append(true)).open(path)?)
}

/// A file that lines are added to over months, by one process at a time. It holds whole lines only, whatever happens: a line that
/// could not be written is taken back, and one that was cut off when its writer was killed goes when the file is mended.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    most: u64,
}

impl Journal {
    /// Opens the file, or makes it. It is to hold no more than so many bytes.
    ///
    /// # Errors
    /// It is no regular file, may not be written, or another process adds to it.
    pub fn open(path: &Path, most: u64) -> io::Result<Journal> {
        let file = match reopen(path) {
            Err(fault) if fault.kind() == ErrorKind::NotFound => {
                create(path)?;
                reopen(path)?
            }
            opened => opened?,
        };
        match lock_writer(&file) {
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(io::Error::new(ErrorKind::WouldBlock, "another process adds to it"));
            }
            // A file system without locks has one writer if its users see to it.
            Err(std::fs::TryLockError::Error(_)) | Ok(()) => {}
        }
        let length = file.metadata()?.len();
        Ok(Journal { path: path.into(), file, length, most })
    }

    /// Cuts off a last line that has no end. Only for who knows that the file is a journal of its own kind.
    ///
    /// # Errors
    /// It can't be read, or not be written.
    pub fn mend(&mut self) -> io::Result<()> {
        self.length = whole_lines(&self.file)?;
        match self.file.metadata()?.len() == self.length {
            true => Ok(()),
            false => cut(&self.file, &self.path, self.length),
        }
    }

    /// The file, to be read from its beginning: this one, whatever has its name by now.
    ///
    /// # Errors
    /// The system has no more handles.
    pub fn from_the_start(&self) -> io::Result<File> {
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        Ok(file)
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the file still has its name, and all that was written: a tool that turns logs over gives it another, or copies it
    /// and cuts it off.
    pub fn is_in_place(&self) -> bool {
        is_at(&self.file, &self.path) && self.file.metadata().is_ok_and(|about| about.len() >= self.length)
    }

    /// Adds whole lines, all or none of them.
    ///
    /// # Errors
    /// The disk may be full, or the file.
    pub fn add(&mut self, lines: &[u8]) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        if before.saturating_add(lines.len() as u64) > self.most {
            let most = self.most;
            let why = format!(
                "it would be longer than {most} bytes, which is not read again; rename it, and a new one begins"
            );
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        if let Err(fault) = self.file.write_all(lines) {
            // Where that fails as well, the next start mends it.
            let _ = cut(&self.file, &self.path, before);
            return Err(fault);
        }
        self.length = before + lines.len() as u64;
        Ok(())
    }
}

/// Up to where a file holds whole lines.
fn whole_lines(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut block = [0; 1 << 16];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - start) as usize];
        super::files::read_at(file, part, start)?;
        if let Some(last) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// A file for locks, made if need be, this user's alone where that is root: who can open a file can lock it, and nobody is to
/// keep root from measuring. Of others' files root uses none.
pub fn lock_file(path: &Path) -> io::Result<File> {
    // An existing file is only read: one that another user made can be locked all the same, and in a folder for all the
    // kernel does not let us open it as if to create it.
    let existing = || warily(OpenOptions::new().read(true)).open(path);
    let file = match existing() {
        Err(fault) if fault.kind() == ErrorKind::NotFound => {
            match for_locks(OpenOptions::new().read(true).append(true).create_new(true)).open(path) {
                Err(fault) if fault.kind() == ErrorKind::AlreadyExists => existing(),
                created => created,
            }
        }
        opened => opened,
    };
    let file = regular(file?)?;
    keep_lock_to_ourselves(&file)?;
    Ok(file)
}

/// Writes a file as a whole, beside its older self and then over it.
///
/// # Errors
/// What has that name is no regular file; or one of the steps failed, and then nothing has changed.
pub fn replace(path: &Path, bytes: &[u8], readers: Readers) -> io::Result<()> {
    may_be_replaced(path)?;
    let (unfinished, file) = unfinished(path)?;
    let write = || {
        if readers == Readers::Everybody {
            super::files::let_everybody_read(&file)?;
        }
        (&file).write_all(bytes)?;
        file.sync_all()?;
        rename(&unfinished, path)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&unfinished);
    })
}

/// Gives a finished file its name, which nothing but a regular file may have had before.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    may_be_replaced(to)?;
    std::fs::rename(from, to)
}

/// Gives a finished file its name, which nothing may have had before. The name is taken first, by an empty file of ours: not every
/// file system has links or a renaming that refuses to replace.
pub fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    create(to)?;
    std::fs::rename(from, to).inspect_err(|_| {
        let _ = std::fs::remove_file(to);
    })
}

fn regular(file: File) -> io::Result<File> {
    kind(&file.metadata()?.file_type()).map_or(Ok(file), |kind| Err(refused(kind)))
}

fn may_be_replaced(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(about) => kind(&about.file_type()).map_or(Ok(()), |kind| Err(refused(kind))),
        Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(()),
        Err(fault) => Err(fault),
    }
}

fn refused(kind: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("it is {kind}; only a regular file is replaced"))
}

/// A new file beside another. Its name ends in none that a reader of records, pages or metrics looks for.
fn unfinished(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut fault = io::Error::from(ErrorKind::AlreadyExists);
    for n in 0..100 {
        let beside = path.with_file_name(format!(".membound-{}-{n}.tmp", std::process::id()));
        match create(&beside) {
            Ok(file) => return Ok((beside, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => fault = error,
            Err(error) => return Err(error),
        }
    }
    Err(fault)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_reader_sees_the_old_file_or_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.prom");
        for text in ["one\n", "two\n"] {
            replace(&path, text.as_bytes(), Readers::Everybody).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
        assert!(replace(&folder.path().join("no/such/folder"), b"x", Readers::Usual).is_err());
        assert!(replace(Path::new("/"), b"x", Readers::Usual).is_err());
    }

    #[test]
    fn a_journal_holds_whole_lines_of_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path, 100_008).unwrap();
        assert!(journal.is_empty() && journal.is_in_place());
        journal.add(b"one\ntwo\n").unwrap();
        assert!(Journal::open(&path, 100_008).unwrap_err().to_string().contains("another process"));
        drop(journal);
        let long = [b'x'; 100_000];
        std::fs::write(&path, [b"one\ntwo\n", &long[..]].concat()).unwrap();
        let mut journal = Journal::open(&path, 100_008).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 100_008, "nothing goes before it is known what the file is");
        assert_eq!(io::read_to_string(journal.from_the_start().unwrap()).unwrap().len(), 100_008);
        journal.mend().unwrap();
        journal.add(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
        File::options().write(true).open(&path).unwrap().set_len(4).unwrap();
        assert!(!journal.is_in_place(), "it was copied and cut off");
        journal.add(b"four\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\nfour\n");
        assert!(journal.is_in_place());
        let full = journal.add(&long).unwrap_err().to_string();
        assert!(full.contains("longer than 100008 bytes") && full.contains("rename it"), "{full}");
        std::fs::rename(&path, folder.path().join("turned over")).unwrap();
        assert!(!journal.is_in_place());
        std::fs::write(&path, "other\n").unwrap();
        assert!(!journal.is_in_place());
        assert!(Journal::open(folder.path(), 100_008).is_err());
    }

    #[test]
    fn what_is_no_regular_file_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("victim"), "untouched").unwrap();
        std::os::unix::fs::symlink("victim", at("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::fs::write(at("new"), "x").unwrap();
        for (name, kind) in [("link", "a link"), ("dangling", "a link"), ("folder", "a folder"), ("socket", "a socket")]
        {
            let before = at(name).symlink_metadata().unwrap().ino();
            let fault = replace(&at(name), b"x", Readers::Usual).unwrap_err().to_string();
            assert!(fault.contains(kind), "{name}: {fault}");
            assert!(rename(&at("new"), &at(name)).is_err() && rename_to_new(&at("new"), &at(name)).is_err());
            assert!(create(&at(name)).is_err() && reopen(&at(name)).is_err());
            assert_eq!(at(name).symlink_metadata().unwrap().ino(), before);
        }
        assert_eq!(std::fs::read_to_string(at("victim")).unwrap(), "untouched");
        assert!(!at("nowhere").exists());
        assert!(replace(Path::new("/dev/null"), b"x", Readers::Usual).unwrap_err().to_string().contains("a device"));
    }
}
