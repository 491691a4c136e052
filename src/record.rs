//! Records: what was measured, as it was measured. A record is a JSON Lines file: a [`Header`], then a [`Measurement`]
//! each time a case was visited, then an [`End`]. Lines are written as they happen, so a record whose run was killed
//! still opens and holds every finished visit; it lacks only its end.

mod skim;

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::{CpuSet, EnergyPart, Machine, Sheet};
use crate::memory::Obtained;
use crate::memory::behaviour::IGNORED;
use crate::mpi::{Launcher, Library, ThreadLevel};
use crate::plan::{Case, Work};
use crate::units::{Bytes, Hertz};

pub use skim::{Cases, Skim, SkimmedMachine, SkimmedVisit};

/// Version of the record's schema; raised when a reader of the old one would misread the new one.
pub const SCHEMA: u32 = 1;

/// One line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Header(Box<Header>),
    /// One visit to a case.
    Measurement(Box<Measurement>),
    /// The last line of a run that came to its end (or was interrupted and could still say so).
    End(End),
}

/// Where, when, how and with what a record was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name and version of the tool: `membound 0.1.0`.
    pub tool: String,
    /// Host name.
    pub host: String,
    /// Start, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// The command line.
    pub command: Vec<String>,
    /// Seed of the order in which cases were visited.
    pub seed: u64,
    /// The clock that samples are counted in.
    pub clock: Clock,
    /// The machine.
    pub machine: Machine,
    /// Its state before the run.
    pub before: Environment,
    /// The processes that took part; absent where it was this one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<World>,
    /// The sheet whose limits the user named instead of the machine's own; absent where none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sheet: Option<Sheet>,
}

/// Processes that an MPI launcher started, and what they speak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct World {
    /// Who started them.
    pub launcher: Launcher,
    /// What they send messages by.
    pub library: Library,
    /// The thread level that it was asked for.
    pub threads: ThreadLevel,
    /// How many there are.
    pub ranks: usize,
    /// The hosts that they run on, that of rank 0 first.
    pub hosts: Vec<WorldHost>,
}

/// A host that some of a world's processes run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorldHost {
    /// Its name.
    pub name: String,
    /// The processes on it.
    pub ranks: Vec<usize>,
    /// CPUs that they may use.
    pub cpus: CpuSet,
}

/// A clock, and what it was checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// `tsc` or `CLOCK_MONOTONIC_RAW`.
    pub name: String,
    /// Ticks a second, calibrated against CLOCK_MONOTONIC_RAW.
    pub hz: Hertz,
    /// Ticks between two readings with nothing in between: the least of many.
    pub overhead_ticks: u64,
}

/// State that changes: read before and after a run. A field is absent where it can't be read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Memory that could be had without swapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<Bytes>,
    /// File pages in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<Bytes>,
    /// Free memory of each node: (node, bytes).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_free: Vec<(u32, Bytes)>,
    /// Runnable tasks, averaged over a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Time that the hypervisor took from all CPUs since boot, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_s: Option<f64>,
}

/// One visit to a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// What was measured.
    pub case: Case,
    /// Which round of visits this one belongs to; rounds lie apart in time.
    pub round: u32,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a visit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was measured.
    Measured(Box<Measured>),
    /// This machine can't.
    Unavailable {
        /// Why not.
        reason: String,
    },
    /// The kernel was stopped by a signal.
    Crashed {
        /// By which.
        reason: String,
    },
    /// It ran, but the result can't be: the data check failed.
    Invalid {
        /// What was wrong.
        reason: String,
    },
}

impl Outcome {
    /// Whether something went wrong. A host that ignores memory types makes their cases invalid, but that is what it
    /// does, as lacking memory is.
    pub fn is_failure(&self) -> bool {
        match self {
            Outcome::Measured(_) | Outcome::Unavailable { .. } => false,
            Outcome::Crashed { .. } => true,
            Outcome::Invalid { reason } => !reason.starts_with(IGNORED),
        }
    }
}

/// Samples and what they are samples of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// What one repetition moves, over all threads.
    pub volume: Volume,
    /// Repetitions in each sample.
    pub repetitions: u64,
    /// Links of the dependent-add chain behind `core_clock_ticks`.
    pub core_clock_links: u64,
    /// The samples.
    pub samples: Samples,
    /// What kind of memory was obtained.
    pub obtained: Obtained,
}

/// Bytes of a base page, in which work on pages is counted whatever the pages obtained.
pub const BASE_PAGE: u64 = 4096;

/// What one repetition moves and computes, over all threads. Of messages: `elements` is how many times a message goes one
/// way (2 of a ping-pong, which is a round trip, else 1), `stored` the bytes that all pairs send, `loaded` those that they
/// receive: bandwidth as IMB counts it is `stored` over the time of a repetition. Of a chase: its accesses, over all chains. Of a chase under
/// load: what one repetition of a loading thread moves, of which `Samples` has the number; the chase's own repetitions are
/// single loads. Of a hand-over: `elements` is the hand-overs of a round trip, and nothing else is counted. Of work on
/// pages: what the kernel moves if it zeroes or
/// copies each page once; it has one repetition a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    /// Elements computed; of work on pages, base pages worked on; of a chase, accesses.
    pub elements: u64,
    /// Bytes that the program reads; of work on pages, bytes copied.
    pub loaded: u64,
    /// Bytes that the program writes; of work on pages, bytes zeroed or copied.
    pub stored: u64,
    /// Bytes read only because a regular store needs its line first.
    pub write_allocated: u64,
    /// Floating-point operations.
    pub flops: u64,
}

impl Volume {
    /// Bytes by STREAM's convention.
    pub fn payload(self) -> u64 {
        self.loaded + self.stored
    }

    /// Bytes that cross the bus.
    pub fn bus(self) -> u64 {
        self.payload() + self.write_allocated
    }
}

/// Raw samples, column by column; all columns have one entry a sample.
///
/// A scan has whole sweeps one after the other, each with one sample for each of its offsets, offsets rising (they were
/// measured in another order). One repetition is one access, or one pair. `core_clock_ticks` is the last reading before
/// the sample, and is shared by the samples between two readings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Samples {
    /// Clock ticks from the first thread's start to the last thread's end.
    pub ticks: Vec<u64>,
    /// Clock ticks that the fastest thread took for its own part: against `ticks`, the imbalance.
    pub fastest_thread_ticks: Vec<u64>,
    /// Clock ticks of the dependent-add chain that ran right after the sample on the first thread.
    pub core_clock_ticks: Vec<u64>,
    /// CPU time that the threads lost while the sample ran, in microseconds: wall time less CPU time, summed over
    /// threads. Steal does not show here (the guest's clock runs on), preemption does.
    pub lost_us: Vec<u32>,
    /// Time taken by the hypervisor, in clock ticks of the kernel (usually 10 ms), over all CPUs.
    pub steal_jiffies: Vec<u32>,
    /// Involuntary context switches, over all threads.
    pub switches: Vec<u32>,
    /// Page faults, over all threads.
    pub faults: Vec<u32>,
    /// Threads that ended on another CPU than they were pinned to.
    pub migrations: Vec<u32>,
    /// Clock ticks that mapping memory took before the sample, on the slowest thread; empty where nothing was mapped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup_ticks: Vec<u64>,
    /// Repetitions that the loading threads did while the sample ran, over all of them; empty where nothing loads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_repetitions: Vec<u64>,
    /// What meters of energy told of each sample; empty where none was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<EnergySamples>,
    /// What the memory controllers counted around each sample; absent where nothing was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<ControllerSamples>,
    /// What was computed, where that is what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Results>,
    /// Of messages: for each pair, in the case's order, the clock ticks that it took for its part of each sample. `ticks` is
    /// the slowest pair's, `fastest_thread_ticks` the fastest's. A pair on another host is timed by that host's clock, and
    /// counted in ticks of this record's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pair_ticks: Vec<Vec<u64>>,
}

/// What sums came to, sample by sample. Numbers stand as the bits of a double (binary64 of IEEE 754).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// The sum; of a triad a number that stands for all bits of its elements.
    pub bits: Vec<u64>,
    /// Steps from one double to the next between the result and the exact one, rounded once; of a triad those of its
    /// farthest element.
    pub ulps: Vec<u64>,
    /// The exact sum, rounded once; 0 of a triad.
    pub exact: u64,
    /// The exact sum of magnitudes, rounded once; 0 of a triad.
    pub magnitude: u64,
}

/// Bytes that memory controllers moved, sample by sample, over all of them and whoever asked; nothing where a counter could
/// not be read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ControllerSamples {
    /// Read from memory.
    pub read_bytes: Vec<Option<u64>>,
    /// Written to memory.
    pub written_bytes: Vec<Option<u64>>,
}

/// What a meter of energy told, sample by sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnergySamples {
    /// The meter's own name.
    pub meter: String,
    /// What it tells the energy of.
    pub part: EnergyPart,
    /// Microseconds from one change of the counter to the next; 0 of a sensor of power.
    pub update_us: u64,
    /// Microjoules from one reading of the meter to the next; nothing where it could not be read.
    pub microjoules: Vec<Option<u64>>,
    /// Clock ticks between the two readings: a little more than the sample.
    pub ticks: Vec<u64>,
}

/// One sample, as the executor hands it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // The fields are the columns of `Samples`.
pub struct Sample {
    pub ticks: u64,
    pub fastest_thread_ticks: u64,
    pub core_clock_ticks: u64,
    pub lost_us: u32,
    pub steal_jiffies: u32,
    pub switches: u32,
    pub faults: u32,
    pub migrations: u32,
    pub setup_ticks: u64,
}

impl Samples {
    /// Appends a sample.
    pub fn push(&mut self, sample: Sample) {
        self.ticks.push(sample.ticks);
        self.fastest_thread_ticks.push(sample.fastest_thread_ticks);
        self.core_clock_ticks.push(sample.core_clock_ticks);
        self.lost_us.push(sample.lost_us);
        self.steal_jiffies.push(sample.steal_jiffies);
        self.switches.push(sample.switches);
        self.faults.push(sample.faults);
        self.migrations.push(sample.migrations);
        if sample.setup_ticks > 0 {
            self.setup_ticks.push(sample.setup_ticks);
        }
    }

    /// Whether every column has one entry a sample and no duration is zero.
    pub fn is_consistent(&self) -> bool {
        let n = self.ticks.len();
        self.ticks.iter().all(|&t| t > 0)
            && [self.fastest_thread_ticks.len(), self.core_clock_ticks.len()] == [n; 2]
            && [self.setup_ticks.len(), self.load_repetitions.len()].iter().all(|length| [0, n].contains(length))
            && self.energy.iter().all(|meter| [meter.microjoules.len(), meter.ticks.len()] == [n; 2])
            && self.controllers.iter().all(|c| [c.read_bytes.len(), c.written_bytes.len()] == [n; 2])
            && self.results.iter().all(|results| [results.bits.len(), results.ulps.len()] == [n; 2])
            && self.pair_ticks.iter().all(|pair| pair.len() == n && pair.iter().all(|&ticks| ticks > 0))
            && [&self.lost_us, &self.steal_jiffies, &self.switches, &self.faults, &self.migrations]
                .iter()
                .all(|column| column.len() == n)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// Wall time of the run in seconds.
    pub wall_s: f64,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// Cases that were planned.
    pub planned: u64,
    /// Largest resident set of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<Bytes>,
    /// The machine's state after the run.
    pub after: Environment,
}

/// A record in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Where, when, how.
    pub header: Header,
    /// Visits in the order in which they were made.
    pub measurements: Vec<Measurement>,
    /// How it ended; absent where the run was killed.
    pub end: Option<End>,
}

/// Why a record can't be read, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file can't be opened or read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no record at all.
    #[error("{path} is not a membound record: {fault}; give a .jsonl file that membound wrote")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        fault: String,
    },
    /// Another schema.
    #[error("{path} has record schema {found}, this membound reads {SCHEMA}; use the version that wrote it ({tool})")]
    OtherSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u64,
        /// Its writer.
        tool: String,
    },
    /// A line in the middle is damaged.
    #[error("{path}:{line}: {fault}; the record is damaged, delete that line to read the rest")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        fault: String,
    },
    /// A folder without any.
    #[error(
        "{path} holds no record (.jsonl); name a folder that membound wrote records into (--record, --out, fleet run), or \
         that they were copied into"
    )]
    NoRecords {
        /// The folder.
        path: PathBuf,
    },
}

/// The records in a folder, by name. One that was still being gathered when its run was ended (`.jsonl.part`) is one too,
/// unless the whole of it is there.
///
/// # Errors
/// Where the folder can't be read, or holds none.
pub fn records_in(folder: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let unreadable = |source| RecordError::Unreadable { path: folder.into(), source };
    let mut records = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.to_string_lossy();
        match name.strip_suffix(".part") {
            _ if name.ends_with(".jsonl") => drop(records.insert(name.into_owned(), path)),
            Some(whole) if whole.ends_with(".jsonl") => drop(records.entry(whole.into()).or_insert(path)),
            _ => {}
        }
    }
    if records.is_empty() {
        return Err(RecordError::NoRecords { path: folder.into() });
    }
    Ok(records.into_values().collect())
}

impl Record {
    /// Reads a record. A last line that was cut off is left out (the run was killed in the middle of writing it);
    /// any other damage is an error that names the line.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let unreadable = |source| RecordError::Unreadable { path: path.into(), source };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut lines = io::BufReader::new(file).split(b'\n').enumerate().peekable();
        let first = match lines.next() {
            Some((_, line)) => line.map_err(unreadable)?,
            None => return Err(RecordError::Foreign { path: path.into(), fault: "it is empty".into() }),
        };
        let mut record = Record { header: read_header(path, &first)?, measurements: Vec::new(), end: None };
        while let Some((index, line)) = lines.next() {
            let line = line.map_err(unreadable)?;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let damaged = |fault: String| RecordError::Damaged { path: path.into(), line: index + 1, fault };
            match serde_json::from_slice(&line) {
                Ok(Line::Measurement(measurement)) => record.measurements.push(checked(*measurement).map_err(damaged)?),
                Ok(Line::End(end)) => record.end = Some(end),
                Ok(Line::Header(_)) => return Err(damaged("a second header".into())),
                Err(_) if lines.peek().is_none() => break,
                Err(fault) => return Err(damaged(fault.to_string())),
            }
        }
        Ok(record)
    }
}

fn read_header(path: &Path, line: &[u8]) -> Result<Header, RecordError> {
    let foreign = |fault: String| RecordError::Foreign { path: path.into(), fault };
    let value: serde_json::Value = serde_json::from_slice(line).map_err(|e| foreign(e.to_string()))?;
    if value["type"] != "header" {
        return Err(foreign("its first line is no header".into()));
    }
    match value["schema"].as_u64() {
        Some(found) if found == u64::from(SCHEMA) => {}
        Some(found) => {
            let tool = value["tool"].as_str().unwrap_or("unknown").into();
            return Err(RecordError::OtherSchema { path: path.into(), found, tool });
        }
        None => return Err(foreign("its header names no schema".into())),
    }
    match serde_json::from_value(value) {
        Ok(Line::Header(header)) => Ok(*header),
        Ok(_) => Err(foreign("its first line is no header".into())),
        Err(fault) => Err(foreign(fault.to_string())),
    }
}

fn checked(measurement: Measurement) -> Result<Measurement, String> {
    match fault(&measurement.case, &measurement.outcome) {
        Some(fault) => Err(fault.into()),
        None => Ok(measurement),
    }
}

/// What no visit can be.
fn fault(case: &Case, outcome: &Outcome) -> Option<&'static str> {
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

/// Appends lines to a record file, each on disk (handed to the kernel) before the next case starts.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// A writer to an open file or buffer.
    pub fn new(to: W) -> Self {
        Writer { to }
    }

    /// Writes one line at once, so that a killed process leaves at most one incomplete line.
    pub fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.to.write_all(&bytes)?;
        self.to.flush()
    }
}

/// The published schema of a record's line.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Line).to_value()
}
