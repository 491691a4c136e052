//! A record on its way to rank 0: written to `NODE.jsonl.part` as it arrives, and called `NODE.jsonl` once no more will come.

use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use membound_core::record::read::is_end;
use membound_measure::os::outfile;

/// A record that arrives in pieces.
#[derive(Debug)]
pub struct Arriving {
    part: PathBuf,
    whole: PathBuf,
    /// Bytes written.
    bytes: u64,
    /// Bytes up to the end of the last complete line.
    complete: u64,
    /// Complete lines.
    lines: u64,
}

/// A record of which no more will come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The file's name; nothing, if not one line came.
    pub file: Option<String>,
    /// Its bytes.
    pub bytes: u64,
    /// Visits in it.
    pub visits: u64,
}

impl Arriving {
    /// The record of this node, in this folder. No file is made before the first piece comes.
    pub fn new(folder: &Path, node: &str) -> Self {
        let part = folder.join(format!("{node}.jsonl.part"));
        Arriving { part, whole: folder.join(format!("{node}.jsonl")), bytes: 0, complete: 0, lines: 0 }
    }

    /// Bytes here.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a piece to the disk. The file is open only for so long: a fleet has more nodes than a process may have files.
    pub fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        let mut file = if self.bytes == 0 { outfile::create(&self.part) } else { outfile::reopen(&self.part) }?;
        if let Err(fault) = file.write_all(piece) {
            // What was written of it is asked for again, if at all.
            let _ = file.set_len(self.bytes);
            return Err(fault);
        }
        if let Some(last) = piece.iter().rposition(|byte| *byte == b'\n') {
            self.complete = self.bytes + last as u64 + 1;
        }
        self.lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Cuts off a line that is not complete, makes sure that the rest is on disk, and gives the file its name.
    pub fn finish(&self) -> io::Result<Arrived> {
        if self.bytes == 0 {
            return Ok(Arrived::default());
        }
        let file = outfile::reopen(&self.part)?;
        file.set_len(self.complete)?;
        file.sync_all()?;
        if self.complete == 0 {
            std::fs::remove_file(&self.part)?;
            return Ok(Arrived::default());
        }
        outfile::rename_to_new(&self.part, &self.whole)?;
        let ends = ends(&file, self.complete)?;
        let name = self.whole.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Arrived { file: name, bytes: self.complete, visits: self.lines.saturating_sub(1 + u64::from(ends)) })
    }
}

/// Whether a record of so many bytes has its last line, the one that says how the run ended.
pub fn ends(mut record: &File, bytes: u64) -> io::Result<bool> {
    /// No such line is longer.
    const MOST: u64 = 64 << 10;
    let from = bytes.saturating_sub(MOST);
    record.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    record.take(bytes - from).read_to_end(&mut tail)?;
    let last = tail.strip_suffix(b"\n").unwrap_or(&tail).rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(is_end(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = "{\"type\":\"end\",\"wall_s\":1.0,\"interrupted\":false,\"planned\":2,\"after\":{}}\n";

    fn arrived(pieces: &[&str]) -> (Arrived, Option<String>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let mut arriving = Arriving::new(folder.path(), "n1");
        pieces.iter().for_each(|piece| arriving.append(piece.as_bytes()).unwrap());
        let arrived = arriving.finish().unwrap();
        let text = std::fs::read_to_string(folder.path().join("n1.jsonl")).ok();
        (arrived, text, std::fs::read_dir(folder.path()).unwrap().count())
    }

    #[test]
    fn pieces_make_a_record() {
        let (arrived, text, files) = arrived(&["head", "er\nvis", "it\nvisit\n", END]);
        let expect = format!("header\nvisit\nvisit\n{END}");
        assert_eq!((arrived.visits, arrived.bytes, files), (2, expect.len() as u64, 1));
        assert_eq!((arrived.file.as_deref(), text), (Some("n1.jsonl"), Some(expect)));
    }

    #[test]
    fn half_a_line_is_cut_off_and_nothing_is_no_file() {
        let (half, text, files) = arrived(&["header\nvisit\nvis"]);
        assert_eq!((half.visits, half.bytes, files, text.as_deref()), (1, 13, 1, Some("header\nvisit\n")));
        for nothing in [&[][..], &["", "half a header"]] {
            let (none, text, files) = arrived(nothing);
            assert_eq!((none, text, files), (Arrived::default(), None, 0));
        }
    }

    #[test]
    fn a_record_that_is_there_already_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("n1.jsonl"), "of another run\n").unwrap();
        let mut arriving = Arriving::new(folder.path(), "n1");
        arriving.append(b"header\n").unwrap();
        assert!(arriving.finish().unwrap_err().to_string().contains("nothing is overwritten"));
        let texts = ["n1.jsonl", "n1.jsonl.part"].map(|name| std::fs::read_to_string(at(name)).unwrap());
        assert_eq!(texts, ["of another run\n", "header\n"]);
    }

    #[test]
    fn a_folder_that_is_gone_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut arriving = Arriving::new(&folder.path().join("gone"), "n1");
        assert!(arriving.append(b"x\n").is_err());
        assert_eq!(arriving.bytes(), 0);
    }
}
