//! The record of a machine that is watched: one line for each case and probe, over months and restarts.
//!
//! What can't be written is kept in memory and written later; a file that was taken away is made again, with its header. No
//! file is longer than a record that is read.

use std::io;
use std::path::{Path, PathBuf};

use membound_core::input::{Lines, RECORD_MOST};
use membound_core::record::{Header, Line, Measurement, Record, Writer};
use membound_measure::os::outfile::Journal;

/// Lines that wait for a disk with room: 3 a probe, so two weeks of probes every 5 minutes. Then the oldest go.
const WAITING_MOST: usize = 12_000;

/// The record.
#[derive(Debug)]
pub struct Diary {
    path: PathBuf,
    journal: Option<Journal>,
    header: Header,
    waiting: Vec<Line>,
    /// Lines that had to go.
    lost: usize,
}

/// What a record held before.
#[derive(Debug)]
pub struct Before {
    /// Its header: what is added is dated from its start.
    pub header: Header,
    /// Its visits.
    pub visits: Vec<Measurement>,
}

impl Diary {
    /// Opens a record, or begins one with this header. With it comes what it held.
    ///
    /// # Errors
    /// It can't be opened, is no record, or that of another command.
    pub fn open(path: &Path, header: Header) -> anyhow::Result<(Diary, Option<Before>)> {
        let mut journal = Journal::open(path, RECORD_MOST)?;
        if journal.is_empty() {
            journal.add(&bytes(&Line::Header(Box::new(header.clone())))?)?;
            return Ok((Diary::of(path, journal, header), None));
        }
        let Record { header, measurements, end } = Record::read_of(path, lines(&journal))?;
        if end.is_some() || !is_of_watch(&header) {
            anyhow::bail!(OTHERS);
        }
        journal.mend()?;
        let before = Before { header: header.clone(), visits: measurements };
        Ok((Diary::of(path, journal, header), Some(before)))
    }

    fn of(path: &Path, journal: Journal, header: Header) -> Diary {
        Diary { path: path.into(), journal: Some(journal), header, waiting: Vec::new(), lost: 0 }
    }

    /// When it began, in seconds since 1970.
    pub fn started_unix_s(&self) -> u64 {
        self.header.started_unix_s
    }

    /// Lines that could not be written yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Lines that could not be written, and were too many to be kept.
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// Adds a line, and before it what could not be written earlier.
    ///
    /// # Errors
    /// It can't be written now; it is kept.
    pub fn keep(&mut self, line: Line) -> io::Result<()> {
        self.waiting.push(line);
        if self.waiting.len() > WAITING_MOST {
            self.waiting.remove(0);
            self.lost += 1;
        }
        self.write_down()
    }

    /// Why a file that took the record's place is not written to: it is not a copy of it.
    fn refuse(&self, found: &Header) -> Option<&'static str> {
        let is_own = (&found.host, found.started_unix_s) == (&self.header.host, self.header.started_unix_s);
        if !is_of_watch(found) { Some(OTHERS) } else { (!is_own).then_some(ANOTHER) }
    }

    fn write_down(&mut self) -> io::Result<()> {
        if !self.journal.as_ref().is_some_and(Journal::is_in_place) {
            self.journal = None;
            let mut journal = Journal::open(&self.path, RECORD_MOST)?;
            if journal.is_empty() {
                journal.add(&bytes(&Line::Header(Box::new(self.header.clone())))?)?;
            } else {
                let header = Record::header_of(&self.path, lines(&journal)).map_err(io::Error::other)?;
                self.refuse(&header).map_or(Ok(()), |why| Err(io::Error::other(why)))?;
                journal.mend()?;
            }
            self.journal = Some(journal);
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let lines: Vec<Vec<u8>> = self.waiting.iter().map(bytes).collect::<io::Result<_>>()?;
        journal.add(&lines.concat())?;
        self.waiting.clear();
        Ok(())
    }
}

/// Why nothing is added to the record of another command.
const OTHERS: &str = "it is not a record of watch";
/// Why nothing is added to a file that took the record's place: what is added is dated from the record's start.
const ANOTHER: &str = "it is another record than the one that was begun";

/// Whether watching wrote it, as far as is known.
fn is_of_watch(header: &Header) -> bool {
    header.command.is_empty() || header.subcommand() == Some("watch")
}

/// What the record holds, by its own handle.
fn lines(journal: &Journal) -> io::Result<Lines> {
    Lines::of(journal.from_the_start()?, RECORD_MOST)
}

fn bytes(line: &Line) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).line(line)?;
    Ok(bytes)
}
