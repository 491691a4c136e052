//! Records read from files. A line's fields are read all at one level: an enum that is told apart by a field would be read twice,
//! once into pieces of any type and then from these, with code for each.

use std::io;
use std::path::Path;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::case::{Case, Work};
use crate::input::{HEADER_MOST, LINE_MOST, Lines, RECORD_MOST};
use crate::memory::Obtained;
use crate::record::{
    End, Environment, Header, Measured, Measurement, Outcome, Record, RecordError, SCHEMA, Samples, Volume,
};
use crate::units::Bytes;

impl Record {
    /// Reads what stands above its visits.
    ///
    /// # Errors
    /// Where the file can't be read, or its first line is no header that this version knows.
    pub fn header(path: &Path) -> Result<Header, RecordError> {
        Record::header_of(path, Lines::open(path, RECORD_MOST))
    }

    /// The same of an open file; `path` is for what is said of faults.
    ///
    /// # Errors
    /// Those of [`Record::header`].
    pub fn header_of(path: &Path, lines: io::Result<Lines>) -> Result<Header, RecordError> {
        let unreadable = |source| RecordError::Unreadable { path: path.into(), source };
        match lines.map_err(unreadable)?.next(HEADER_MOST).map_err(unreadable)? {
            Some((first, _)) => read_header(path, first),
            None => read_header(path, b""),
        }
    }

    /// Reads a record. A last line that was cut off is left out (the run was killed in the middle of writing it);
    /// any other damage is an error that names the line.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        Record::read_of(path, Lines::open(path, RECORD_MOST))
    }

    /// The same of an open file; `path` is for what is said of faults.
    ///
    /// # Errors
    /// Those of [`Record::read`].
    pub fn read_of(path: &Path, lines: io::Result<Lines>) -> Result<Self, RecordError> {
        let unreadable = |source| RecordError::Unreadable { path: path.into(), source };
        let mut lines = lines.map_err(unreadable)?;
        let mut record = match lines.next(HEADER_MOST).map_err(unreadable)? {
            Some((first, _)) => Record { header: read_header(path, first)?, measurements: Vec::new(), end: None },
            None => return Err(RecordError::Foreign { path: path.into(), fault: "it is empty".into() }),
        };
        let mut number = 1;
        while let Some((line, had_end)) = lines.next(LINE_MOST).map_err(unreadable)? {
            number += 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let damaged = |fault: String| RecordError::Damaged { path: path.into(), line: number, fault };
            match Part::of(line) {
                Ok(Part::Visit(visit)) => record.measurements.push(checked(*visit).map_err(damaged)?),
                Ok(Part::End(end)) => record.end = Some(end),
                Ok(Part::Header) => return Err(damaged("a second header".into())),
                // What the writer had no time to end.
                Err(_) if !had_end => break,
                Err(fault) => return Err(damaged(fault)),
            }
        }
        Ok(record)
    }
}

/// How packed files begin.
const PACKED: [(&[u8], &str); 4] =
    [(b"BZh", "bzip2"), (b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ", "xz")];

pub(super) fn read_header(path: &Path, line: &[u8]) -> Result<Header, RecordError> {
    let foreign = |fault: String| RecordError::Foreign { path: path.into(), fault };
    if let Some((_, packer)) = PACKED.iter().find(|(start, _)| line.starts_with(start)) {
        return Err(foreign(format!("it is packed by {packer}, unpack it first")));
    }
    let text = std::str::from_utf8(line).map_err(|fault| foreign(fault.to_string()))?;
    let head: Head = serde_json::from_str(text).map_err(|fault| foreign(fault.to_string()))?;
    if head.kind.as_deref() != Some("header") {
        return Err(foreign("its first line is no header".into()));
    }
    match head.schema {
        Some(found) if found == u64::from(SCHEMA) => {}
        Some(found) => {
            let tool = head.tool.unwrap_or_else(|| "unknown".into());
            return Err(RecordError::OtherSchema { path: path.into(), found, tool });
        }
        None => return Err(foreign("its header names no schema".into())),
    }
    let header: Header = serde_json::from_str(text).map_err(|fault| foreign(fault.to_string()))?;
    match header.machine.excess() {
        Some(excess) => Err(foreign(excess)),
        None => Ok(header),
    }
}

/// What a line after the header is, with the case or its text.
pub(super) enum Part<C> {
    Header,
    Visit(Box<Visit<C>>),
    End(End),
}

impl<'a, C: Deserialize<'a>> Part<C> {
    pub fn of(line: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|fault| fault.to_string())?;
        let flat: Flat<C> = serde_json::from_str(text).map_err(|fault| fault.to_string())?;
        Ok(match flat.kind {
            Some(Kind::Header) => Part::Header,
            Some(Kind::Measurement) => Part::Visit(Box::new(flat.visit()?)),
            Some(Kind::End) => Part::End(flat.end()?),
            None => return Err("missing field `type`".into()),
        })
    }
}

/// Whether a line is the one that says how a run ended.
pub fn is_end(line: &[u8]) -> bool {
    matches!(Part::<Case>::of(line), Ok(Part::End(_)))
}

/// What is looked at of a header before the rest: other schemas may lack the rest.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: Option<String>,
    schema: Option<u64>,
    tool: Option<String>,
}

fn checked(visit: Visit<Case>) -> Result<Measurement, String> {
    let Visit { case, round, started_s, elapsed_s, outcome } = visit;
    match fault(&case, &outcome) {
        Some(fault) => Err(fault.into()),
        None => Ok(Measurement { case, round, started_s, elapsed_s, outcome }),
    }
}

/// What no visit can be.
pub(super) fn fault(case: &Case, outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Measured(measured) if !measured.samples.is_consistent() => Some("its samples do not line up"),
        Outcome::Measured(measured) if measured.repetitions == 0 => Some("it has no repetitions"),
        _ if case.cpus.is_empty() => Some("it has no CPU"),
        Outcome::Measured(_) if matches!(case.work, Work::Handover(_)) && case.threads() != 2 => {
            Some("it is a hand-over of other than two CPUs")
        }
        _ if matches!(case.work, Work::Scan(scan) if !scan.exists()) => {
            Some("its accesses have a size that no access has")
        }
        _ if matches!(&case.work, Work::Conflict(batch) if !batch.fits(case.working_set)) => {
            Some("its pairs lie beyond its memory")
        }
        _ if matches!(case.work, Work::Streams(streams) if !streams.exists()) => {
            Some("its streams have a number or an offset that no streams have")
        }
        _ if matches!(&case.work, Work::Common(work) if !work.exists()) => {
            Some("its block has a loop or an offset that no block has")
        }
        _ if matches!(&case.work, Work::PingPong(work) if work.pairs.is_empty()) => Some("it has messages and no pair"),
        Outcome::Measured(measured) if matches!(&case.work, Work::PingPong(work) if measured.samples.pair_ticks.len() != work.pairs.len()) => {
            Some("it has not one column of ticks a pair")
        }
        _ if matches!(case.work, Work::Chase(chase) if !chase.exists()) => {
            Some("its chase has chains or a stride that no chase has")
        }
        _ => None,
    }
}

/// Which line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Header,
    Measurement,
    End,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Measured,
    Unavailable,
    Crashed,
    Invalid,
}

/// Any line but a header, of which only the kind is read. `C` is a [`Case`] or its text.
#[derive(Deserialize)]
struct Flat<C> {
    /// Absent where an outcome stands by itself.
    #[serde(rename = "type")]
    pub kind: Option<Kind>,
    case: Option<C>,
    round: Option<u32>,
    started_s: Option<f64>,
    elapsed_s: Option<f64>,
    outcome: Option<What>,
    reason: Option<String>,
    volume: Option<Volume>,
    repetitions: Option<u64>,
    core_clock_links: Option<u64>,
    samples: Option<Samples>,
    obtained: Option<Obtained>,
    wall_s: Option<f64>,
    interrupted: Option<bool>,
    overran: Option<bool>,
    planned: Option<u64>,
    peak_memory: Option<Bytes>,
    after: Option<Environment>,
}

/// A visit whose case may still be text.
pub(super) struct Visit<C> {
    pub case: C,
    pub round: u32,
    pub started_s: f64,
    pub elapsed_s: f64,
    pub outcome: Outcome,
}

/// A field that must be there.
fn needed<T>(field: Option<T>, name: &str) -> Result<T, String> {
    field.ok_or_else(|| format!("missing field `{name}`"))
}

impl<C> Flat<C> {
    pub fn visit(mut self) -> Result<Visit<C>, String> {
        Ok(Visit {
            case: needed(self.case.take(), "case")?,
            round: needed(self.round, "round")?,
            started_s: needed(self.started_s, "started_s")?,
            elapsed_s: needed(self.elapsed_s, "elapsed_s")?,
            outcome: self.outcome()?,
        })
    }

    fn outcome(self) -> Result<Outcome, String> {
        let reason = || needed(self.reason, "reason");
        Ok(match needed(self.outcome, "outcome")? {
            What::Measured => Outcome::Measured(Box::new(Measured {
                volume: needed(self.volume, "volume")?,
                repetitions: needed(self.repetitions, "repetitions")?,
                core_clock_links: needed(self.core_clock_links, "core_clock_links")?,
                samples: needed(self.samples, "samples")?,
                obtained: needed(self.obtained, "obtained")?,
            })),
            What::Unavailable => Outcome::Unavailable { reason: reason()? },
            What::Crashed => Outcome::Crashed { reason: reason()? },
            What::Invalid => Outcome::Invalid { reason: reason()? },
        })
    }

    pub fn end(self) -> Result<End, String> {
        Ok(End {
            wall_s: needed(self.wall_s, "wall_s")?,
            interrupted: needed(self.interrupted, "interrupted")?,
            overran: self.overran.unwrap_or(false),
            planned: needed(self.planned, "planned")?,
            peak_memory: self.peak_memory,
            after: needed(self.after, "after")?,
        })
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Flat::<Case>::deserialize(from)?.outcome().map_err(D::Error::custom)
    }
}
