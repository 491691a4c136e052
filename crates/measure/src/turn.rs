//! One at a time: who measures holds a lock on a file, and others wait for it. The kernel gives the lock back when its
//! holder ends, however it ends, so nothing is ever left locked.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::os::outfile::lock_file;

/// Between two tries.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// The usual name of the file.
const NAME: &str = "membound-check.lock";

/// The right to measure, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    /// Holds the lock.
    _file: File,
}

impl Turn {
    /// Waits for the turn until `deadline`; `None`: somebody else had it all the time.
    ///
    /// # Errors
    /// The file can't be opened, or its file system has no locks.
    pub fn take(path: &Path, deadline: Instant) -> io::Result<Option<Turn>> {
        let file = lock_file(path)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Turn { _file: file })),
                Err(TryLockError::Error(fault)) => return Err(fault),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(TRY_EVERY),
            }
        }
    }
}

/// The usual file: in `/run`, or where that may not be written to, in the folder for temporary files.
pub fn usual_path() -> PathBuf {
    let run = Path::new("/run").join(NAME);
    if lock_file(&run).is_ok() { run } else { std::env::temp_dir().join(NAME) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_taken_once_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turn");
        let take = || Turn::take(&path, Instant::now()).unwrap();
        let first = take();
        assert!(first.is_some() && take().is_none());
        drop(first);
        assert!(take().is_some());
        assert!(Turn::take(&folder.path().join("no/such/folder"), Instant::now()).is_err());
    }

    #[test]
    fn the_second_waits_for_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turn");
        let first = Turn::take(&path, Instant::now()).unwrap();
        let second = std::thread::spawn({
            let path = path.clone();
            move || Turn::take(&path, Instant::now() + Duration::from_secs(60)).unwrap().is_some()
        });
        std::thread::sleep(3 * TRY_EVERY);
        assert!(!second.is_finished());
        drop(first);
        assert!(second.join().unwrap());
    }
}
