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
use crate::memory::Obtained;
use crate::record::{
    Clock, End, Environment, Header, Line, Measured, Outcome, RecordError, SCHEMA, Samples, Volume, fault,
};
use crate::units::Bytes;

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

    /// The case that a text tells of, and its place.
    fn of(&mut self, text: &str) -> Result<(usize, &Case), String> {
        let place = match self.places.get(text) {
            Some(place) => *place,
            None => {
                self.cases.push(serde_json::from_str(text).map_err(|fault| fault.to_string())?);
                self.places.insert(text.into(), self.cases.len() - 1);
                self.cases.len() - 1
            }
        };
        Ok((place, &self.cases[place]))
    }
}

/// A record, as far as it was read.
#[derive(Debug)]
pub struct Skim<'a> {
    /// Host name.
    pub host: Cow<'a, str>,
    /// Name and version of the tool.
    pub tool: Cow<'a, str>,
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
    clock: Clock,
    #[serde(borrow)]
    machine: SkimmedMachine<'a>,
    before: Environment,
}

/// Any other line, without the detour that an enum by tag takes.
#[derive(Deserialize)]
struct Flat<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    case: Option<&'a RawValue>,
    round: Option<u32>,
    started_s: Option<f64>,
    elapsed_s: Option<f64>,
    #[serde(borrow)]
    outcome: Option<Cow<'a, str>>,
    reason: Option<String>,
    volume: Option<Volume>,
    repetitions: Option<u64>,
    core_clock_links: Option<u64>,
    samples: Option<Samples>,
    obtained: Option<Obtained>,
    wall_s: Option<f64>,
    interrupted: Option<bool>,
    planned: Option<u64>,
    peak_memory: Option<Bytes>,
    after: Option<Environment>,
}

enum Part {
    Visit(SkimmedVisit),
    End(End),
}

/// What is wrong with a line.
enum Fault {
    /// It may have been cut off.
    Form(String),
    /// It is whole, and can't be.
    Content(String),
}

impl Flat<'_> {
    fn part(self, cases: &mut Cases) -> Result<Part, Fault> {
        let lacks = |field: &str| Fault::Form(format!("missing field `{field}`"));
        match &*self.kind {
            "measurement" => {
                let (place, case) = cases.of(self.case.ok_or_else(|| lacks("case"))?.get()).map_err(Fault::Form)?;
                let round = self.round.ok_or_else(|| lacks("round"))?;
                self.started_s.ok_or_else(|| lacks("started_s"))?;
                self.elapsed_s.ok_or_else(|| lacks("elapsed_s"))?;
                let reason = || self.reason.ok_or_else(|| lacks("reason"));
                let outcome = match self.outcome.as_deref().ok_or_else(|| lacks("outcome"))? {
                    "measured" => Outcome::Measured(Box::new(Measured {
                        volume: self.volume.ok_or_else(|| lacks("volume"))?,
                        repetitions: self.repetitions.ok_or_else(|| lacks("repetitions"))?,
                        core_clock_links: self.core_clock_links.ok_or_else(|| lacks("core_clock_links"))?,
                        samples: self.samples.ok_or_else(|| lacks("samples"))?,
                        obtained: self.obtained.ok_or_else(|| lacks("obtained"))?,
                    })),
                    "unavailable" => Outcome::Unavailable { reason: reason()? },
                    "crashed" => Outcome::Crashed { reason: reason()? },
                    "invalid" => Outcome::Invalid { reason: reason()? },
                    other => return Err(Fault::Form(format!("unknown outcome `{other}`"))),
                };
                match fault(case, &outcome) {
                    Some(fault) => Err(Fault::Content(fault.into())),
                    None => Ok(Part::Visit(SkimmedVisit { case: place, round, outcome })),
                }
            }
            "end" => Ok(Part::End(End {
                wall_s: self.wall_s.ok_or_else(|| lacks("wall_s"))?,
                interrupted: self.interrupted.ok_or_else(|| lacks("interrupted"))?,
                planned: self.planned.ok_or_else(|| lacks("planned"))?,
                peak_memory: self.peak_memory,
                after: self.after.ok_or_else(|| lacks("after"))?,
            })),
            "header" => Err(Fault::Content("a second header".into())),
            other => Err(Fault::Form(format!("unknown line `{other}`"))),
        }
    }
}

impl<'a> Skim<'a> {
    /// Reads the bytes of a record; `path` is for what is said of faults. A last line that was cut off is left out.
    pub fn read(path: &Path, bytes: &'a [u8], cases: &mut Cases) -> Result<Skim<'a>, RecordError> {
        if bytes.is_empty() {
            return Err(RecordError::Foreign { path: path.into(), fault: "it is empty".into() });
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut lines = bytes.split(|byte| *byte == b'\n').enumerate().peekable();
        let first = lines.next().map_or(&[][..], |(_, line)| line);
        let mut skim = Skim::of_header(path, first)?;
        while let Some((index, line)) = lines.next() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let flat = serde_json::from_slice::<Flat>(line).map_err(|fault| Fault::Form(fault.to_string()));
            match flat.and_then(|flat| flat.part(cases)) {
                Ok(Part::Visit(visit)) => skim.visits.push(visit),
                Ok(Part::End(end)) => skim.end = Some(end),
                // What the writer had no time to end.
                Err(Fault::Form(_)) if lines.peek().is_none() => break,
                Err(Fault::Form(fault) | Fault::Content(fault)) => {
                    return Err(RecordError::Damaged { path: path.into(), line: index + 1, fault });
                }
            }
        }
        Ok(skim)
    }

    /// A header that can't be skimmed is read in full: that says what is wrong with it.
    fn of_header(path: &Path, line: &'a [u8]) -> Result<Skim<'a>, RecordError> {
        let foreign = |fault: &str| RecordError::Foreign { path: path.into(), fault: fault.into() };
        let head = serde_json::from_slice::<Head>(line).ok();
        let head = head.filter(|head| head.kind == "header" && head.schema == SCHEMA);
        let (Some(head), Ok(line)) = (head, std::str::from_utf8(line)) else {
            crate::record::read_header(path, line)?;
            return Err(foreign("its header is no text"));
        };
        let Head { tool, host, started_unix_s, clock, machine, before, .. } = head;
        Ok(Skim { host, tool, started_unix_s, clock, machine, before, visits: Vec::new(), end: None, line })
    }

    /// The whole header.
    pub fn header(&self) -> Result<Header, String> {
        match serde_json::from_str(self.line) {
            Ok(Line::Header(header)) => header.machine.excess().map_or(Ok(*header), Err),
            Ok(_) => Err("its first line is no header".into()),
            Err(fault) => Err(fault.to_string()),
        }
    }
}
