//! A record read quickly, for whoever looks at thousands of them. The same lines as [`Record::read`](crate::record::Record::read)
//! reads, with the same checks and the same faults, but not all of each: a case that was met before, in this record or
//! in another, is known by its text and not parsed again, and a machine stays text until somebody asks: a fault in it shows
//! then. (Records of one plan on alike machines hold the same cases and the same lists of CPUs again and again.)

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::case::Case;
use crate::record::read::{Part, Visit, fault, read_header};
use crate::record::{Clock, End, Environment, Header, Outcome, RecordError, SCHEMA};

/// Cases that were met, each once, by their text.
#[derive(Debug, Default)]
pub struct Cases {
    places: HashMap<Box<str>, usize>,
    cases: Vec<Case>,
}

impl Cases {
    /// A case by its place.
    pub fn get(&self, place: usize) -> Option<&Case> {
        self.cases.get(place)
    }

    /// The place of the case that a text tells of.
    fn of(&mut self, text: &str) -> Result<usize, String> {
        if let Some(place) = self.places.get(text) {
            return Ok(*place);
        }
        self.cases.push(serde_json::from_str(text).map_err(|fault| fault.to_string())?);
        self.places.insert(text.into(), self.cases.len() - 1);
        Ok(self.cases.len() - 1)
    }
}

/// A record, as far as it was read.
#[derive(Debug)]
pub struct Skim<'a> {
    /// Host name.
    pub host: Cow<'a, str>,
    /// Name and version of the tool.
    pub tool: Cow<'a, str>,
    /// The command line.
    pub command: Vec<String>,
    /// Start, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// The clock that samples are counted in.
    pub clock: Clock,
    /// The machine, as text.
    pub machine: SkimmedMachine<'a>,
    /// Its state before the run.
    pub before: Environment,
    /// Visits in the order in which they were made.
    pub visits: Vec<SkimmedVisit>,
    /// How it ended; absent where the run was killed.
    pub end: Option<End>,
    /// The header's line.
    line: &'a str,
}

/// What of a machine says something about its speed: the JSON of each part.
#[derive(Debug, Deserialize)]
#[allow(missing_docs)] // The fields of `Machine`.
pub struct SkimmedMachine<'a> {
    #[serde(borrow)]
    pub identity: &'a RawValue,
    #[serde(borrow)]
    pub cpus: &'a RawValue,
    #[serde(borrow)]
    pub caches: &'a RawValue,
    #[serde(borrow)]
    pub nodes: &'a RawValue,
    #[serde(borrow)]
    pub memory: &'a RawValue,
    #[serde(borrow)]
    pub dimms: &'a RawValue,
    #[serde(borrow)]
    pub limits: &'a RawValue,
    #[serde(borrow)]
    pub settings: &'a RawValue,
}

/// One visit.
#[derive(Debug)]
pub struct SkimmedVisit {
    /// The place of its case among the [`Cases`].
    pub case: usize,
    /// Which round it belongs to.
    pub round: u32,
    /// What came of it.
    pub outcome: Outcome,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    schema: u32,
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    host: Cow<'a, str>,
    started_unix_s: u64,
    command: Vec<String>,
    clock: Clock,
    #[serde(borrow)]
    machine: SkimmedMachine<'a>,
    before: Environment,
}

/// A visit's case by its place.
fn known(part: Part<&RawValue>, cases: &mut Cases) -> Result<Part<usize>, String> {
    Ok(match part {
        Part::Header => Part::Header,
        Part::End(end) => Part::End(end),
        Part::Visit(visit) => {
            let Visit { case, round, started_s, elapsed_s, outcome } = *visit;
            let case = cases.of(case.get())?;
            Part::Visit(Box::new(Visit { case, round, started_s, elapsed_s, outcome }))
        }
    })
}

impl<'a> Skim<'a> {
    /// Reads the bytes of a record; `path` is for what is said of faults. A last line that was cut off is left out.
    pub fn read(path: &Path, bytes: &'a [u8], cases: &mut Cases) -> Result<Skim<'a>, RecordError> {
        if bytes.is_empty() {
            return Err(RecordError::Foreign { path: path.into(), fault: "it is empty".into() });
        }
        let whole = bytes.strip_suffix(b"\n");
        let mut lines = whole.unwrap_or(bytes).split(|byte| *byte == b'\n').enumerate().peekable();
        let first = lines.next().map_or(&[][..], |(_, line)| line);
        let mut skim = Skim::of_header(path, first)?;
        while let Some((index, line)) = lines.next() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let damaged = |fault: String| RecordError::Damaged { path: path.into(), line: index + 1, fault };
            match Part::of(line).and_then(|part| known(part, cases)) {
                Ok(Part::Visit(visit)) => {
                    let Visit { case, round, outcome, .. } = *visit;
                    if let Some(fault) = fault(&cases.cases[case], &outcome) {
                        return Err(damaged(fault.into()));
                    }
                    skim.visits.push(SkimmedVisit { case, round, outcome });
                }
                Ok(Part::End(end)) => skim.end = Some(end),
                Ok(Part::Header) => return Err(damaged("a second header".into())),
                // What the writer had no time to end.
                Err(_) if whole.is_none() && lines.peek().is_none() => break,
                Err(fault) => return Err(damaged(fault)),
            }
        }
        Ok(skim)
    }

    /// A header that can't be skimmed is read in full: that says what is wrong with it.
    fn of_header(path: &Path, line: &'a [u8]) -> Result<Skim<'a>, RecordError> {
        let foreign = |fault: &str| RecordError::Foreign { path: path.into(), fault: fault.into() };
        let text = std::str::from_utf8(line).ok();
        let head = text.and_then(|text| serde_json::from_str::<Head>(text).ok());
        let head = head.filter(|head| head.kind == "header" && head.schema == SCHEMA);
        let (Some(head), Some(line)) = (head, text) else {
            read_header(path, line)?;
            return Err(foreign("its header is no text"));
        };
        let Head { tool, host, command, started_unix_s, clock, machine, before, .. } = head;
        Ok(Skim { host, tool, command, started_unix_s, clock, machine, before, visits: Vec::new(), end: None, line })
    }

    /// The whole header.
    pub fn header(&self) -> Result<Header, String> {
        let header: Header = serde_json::from_str(self.line).map_err(|fault| fault.to_string())?;
        header.machine.excess().map_or(Ok(header), Err)
    }
}
