//! Files that others wrote: records from other machines, sheets, topologies. None of them may hang this program or take its
//! memory, so only regular files are read, and no more of a file or a line than it can sensibly have.

use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// No record is longer: 1,024 CPUs that hand a line to each other make 700 MB.
pub const RECORD_MOST: u64 = 2 << 30;
/// No line of a record is longer: a thousand samples of a thousand threads make 29 MB, ten thousand 290.
pub const LINE_MOST: usize = 512 << 20;
/// The first line of a record is shorter: a machine of 1,024 CPUs takes 1 MB.
pub const HEADER_MOST: usize = 4 << 20;

/// Opens a regular file.
///
/// # Errors
/// It can't be opened, or is no regular file: a pipe would be waited for, a device never ends.
pub fn open(path: &Path) -> io::Result<File> {
    let regular = |about: std::fs::Metadata| if about.is_file() { Ok(()) } else { Err(not_regular()) };
    // Opening a pipe waits for its writer, so it is looked at before as well.
    regular(std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// All of a regular file, appended to `to`; an error where it is longer than `most` bytes.
pub fn read(path: &Path, most: u64, to: &mut Vec<u8>) -> io::Result<()> {
    let (before, file) = (to.len() as u64, open(path)?);
    if file.metadata()?.len() > most {
        return Err(too_long("the file", most));
    }
    // A file that grows, or one in /proc, holds more than it says.
    file.take(most.saturating_add(1)).read_to_end(to)?;
    if to.len() as u64 - before > most { Err(too_long("the file", most)) } else { Ok(()) }
}

/// As [`read`], of text.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    read(path, most, &mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is no text (UTF-8)"))
}

/// The lines of a regular file, one in memory at a time.
#[derive(Debug)]
pub struct Lines {
    reader: BufReader<io::Take<File>>,
    most: u64,
    line: Vec<u8>,
}

impl Lines {
    /// Of a file of at most so many bytes.
    pub fn open(path: &Path, most: u64) -> io::Result<Self> {
        Lines::of(open(path)?, most)
    }

    /// The same of a regular file that is open, from where it stands.
    pub fn of(file: File, most: u64) -> io::Result<Self> {
        if file.metadata()?.len() > most {
            return Err(too_long("the file", most));
        }
        Ok(Lines { reader: BufReader::with_capacity(64 << 10, file.take(most)), most, line: Vec::new() })
    }

    /// The next line without its end, of at most so many bytes, and whether it had one: the last may have been cut off.
    pub fn next(&mut self, most: usize) -> io::Result<Option<(&[u8], bool)>> {
        self.line.clear();
        // What a long line took is given back.
        self.line.shrink_to(64 << 10);
        let read = (&mut self.reader).take(most as u64 + 2).read_until(b'\n', &mut self.line)?;
        let had_end = self.line.pop_if(|byte| *byte == b'\n').is_some();
        if self.line.len() > most {
            return Err(too_long("a line", most as u64));
        }
        let is_last = self.reader.fill_buf()?.is_empty();
        if is_last && self.reader.get_ref().limit() == 0 && self.most > 0 && !had_end {
            return Err(too_long("the file", self.most));
        }
        Ok((read > 0).then_some((self.line.as_slice(), had_end)))
    }
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is no regular file; copy what it holds into one")
}

/// Refuses to write what nobody would read: a line of so many bytes (its end is one of them) where no more than `most` are read, behind
/// so many in the file of a record.
pub fn is_readable(before: u64, line: usize, most: usize) -> io::Result<()> {
    if line > most.saturating_add(1) {
        return Err(unreadable("a line", most as u64));
    }
    match before.checked_add(line as u64) {
        Some(length) if length <= RECORD_MOST => Ok(()),
        _ => Err(unreadable("the file", RECORD_MOST)),
    }
}

fn unreadable(what: &str, most: u64) -> io::Error {
    io::Error::new(
        ErrorKind::FileTooLarge,
        format!("{what} would be longer than {most} bytes, which is not read again"),
    )
}

fn too_long(what: &str, most: u64) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("{what} is longer than {most} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_and_none_is_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let check = |text: &str, most: usize, expect: &[(&str, bool)]| {
            std::fs::write(&path, text).unwrap();
            let mut lines = Lines::open(&path, 100).unwrap();
            for (line, had_end) in expect {
                assert_eq!(lines.next(most).unwrap(), Some((line.as_bytes(), *had_end)), "{text:?}");
            }
            lines.next(most).map(|line| line.is_none()).map_err(|fault| fault.to_string())
        };
        assert_eq!(check("", 9, &[]), Ok(true));
        assert_eq!(check("a\n\nbc\n", 9, &[("a", true), ("", true), ("bc", true)]), Ok(true));
        assert_eq!(check("a\nbc", 2, &[("a", true), ("bc", false)]), Ok(true));
        assert_eq!(check("ab\nabc\n", 2, &[("ab", true)]), Err("a line is longer than 2 bytes".into()));
        assert_eq!(check("ab\nabc", 2, &[("ab", true)]), Err("a line is longer than 2 bytes".into()));
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        let told = |before: u64, line: usize| is_readable(before, line, 100).map_err(|fault| fault.to_string());
        assert_eq!((told(0, 101), told(RECORD_MOST - 101, 101)), (Ok(()), Ok(())));
        assert_eq!(told(0, 102), Err("a line would be longer than 100 bytes, which is not read again".into()));
        let file = Err("the file would be longer than 2147483648 bytes, which is not read again".to_string());
        assert_eq!((told(RECORD_MOST - 100, 101), told(u64::MAX, 1)), (file.clone(), file));
    }

    #[test]
    fn what_never_ends_is_not_begun() {
        for path in ["/dev/zero", "/dev/null", "/"] {
            if Path::new(path).exists() {
                let fault = text(Path::new(path), 10).unwrap_err().to_string();
                assert!(fault.contains("no regular file"), "{path}: {fault}");
                assert!(Lines::open(Path::new(path), 10).is_err());
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, "0123456789a").unwrap();
        assert!(text(&path, 11).is_ok());
        assert_eq!(text(&path, 10).unwrap_err().to_string(), "the file is longer than 10 bytes");
        assert!(Lines::open(&path, 10).is_err());
        std::fs::write(&path, [0xff]).unwrap();
        assert!(text(&path, 10).unwrap_err().to_string().contains("no text"));
    }
}
