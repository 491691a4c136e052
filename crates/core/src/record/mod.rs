//! Records: what was measured, as it was measured. A record is a JSON Lines file: a [`Header`], then a [`Measurement`]
//! each time a case was visited, then an [`End`]. Lines are written as they happen, so a record whose run was killed
//! still opens and holds every finished visit; it lacks only its end.

pub mod hand_overs;
pub mod probes;
pub mod read;
pub mod skim;
pub mod world;

use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::input::{HEADER_MOST, LINE_MOST, is_readable};
use crate::json;
use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;
use crate::machine::devices::Device;
use crate::machine::energy::EnergyPart;
use crate::machine::spec::Sheet;
use crate::memory::Obtained;
use crate::memory::behaviour::IGNORED;
use crate::record::probes::{ProbeSamples, Reading, Undisturbed};
use crate::record::world::{Launcher, Library, ThreadLevel};
use crate::units::{Bytes, Hertz, words};

/// Version of the record's schema; raised when a reader of the old one would misread the new one.
pub const SCHEMA: u32 = 2;

/// One line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
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
    /// The device that shares memory with the processor; absent where none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// The devices between which copies were measured; empty where none were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
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
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Measurement {
    /// What was measured.
    pub case: Case,
    /// Which round of visits this one belongs to; rounds lie apart in time.
    pub round: u32,
    /// Seconds from the run's start to the visit's.
    pub started_s: f64,
    /// Seconds that the visit took, preparations included.
    pub elapsed_s: f64,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Measurement {
    /// A visit that has no place in time: both times are 0.
    pub fn new(case: Case, round: u32, outcome: impl Into<Outcome>) -> Self {
        Measurement { case, round, started_s: 0.0, elapsed_s: 0.0, outcome: outcome.into() }
    }
}

/// What came of a visit.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
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

impl From<Measured> for Outcome {
    fn from(measured: Measured) -> Self {
        Outcome::Measured(Box::new(measured))
    }
}

impl Outcome {
    /// What was measured, if anything.
    pub fn measured(&self) -> Option<&Measured> {
        match self {
            Outcome::Measured(measured) => Some(measured),
            _ => None,
        }
    }

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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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

impl Measured {
    /// Core cycles per clock tick in each sample, a mean over its threads: the one way to count cycles. Of the readings
    /// around a sample the higher clock counts: what falls into a reading makes it too low, nothing makes it too high.
    /// `None` where no clock was read.
    pub fn cycles_per_tick(&self) -> Vec<Option<f64>> {
        self.cycles_per_tick_on(&[], &Undisturbed::default())
    }

    /// The same, where it is known what the CPUs can: a clock at which a core had done more independent additions than it can
    /// in a cycle was read too low. (A chain of additions was seen to take 1.5 cycles each through a whole sample.)
    pub fn cycles_per_tick_on(&self, cpus: &[u32], undisturbed: &Undisturbed) -> Vec<Option<f64>> {
        let of_threads = |sample: usize| self.samples.probes.as_ref()?.clock(sample, cpus, undisturbed);
        let alone =
            |ticks: u64| (ticks > 0 && self.core_clock_links > 0).then(|| self.core_clock_links as f64 / ticks as f64);
        let clocks = self.samples.core_clock_ticks.iter().enumerate();
        clocks.map(|(sample, &ticks)| of_threads(sample).or_else(|| alone(ticks))).collect()
    }
}

words! {
    /// What a repetition's work is counted in.
    #[derive(Default)]
    Unit, "unit" {
        /// An element of each stream.
        #[default]
        Element = "element",
        /// A load or store by itself; of a chase, over all chains.
        Access = "access",
        /// A cache line.
        Line = "line",
        /// A line passed from one CPU to another; a round trip has two.
        HandOver = "hand-over",
        /// A base page.
        Page = "page",
        /// The way of a message from one process to another: a round trip has two, messages that cross are on one.
        Message = "message",
        /// A trip of a thread through a loop over registers.
        Trip = "trip",
        /// An operation on a whole buffer of a device.
        Operation = "operation",
    }
}

/// What one repetition moves and computes, over all threads. Of messages: `stored` is the bytes that all pairs send,
/// `loaded` those that they receive: bandwidth as IMB counts it is `stored` over the time of a repetition. Of a chase under
/// load: what one repetition of a loading thread moves, of which `Samples` has the number; the chase's own repetitions are
/// single loads. Of work on pages: what the kernel moves if it zeroes or copies each page once; it has one repetition a
/// sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    /// How many units are worked on.
    pub units: u64,
    /// What is counted.
    pub unit: Unit,
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
        self.loaded.saturating_add(self.stored)
    }

    /// Bytes that cross the bus.
    pub fn bus(self) -> u64 {
        self.payload().saturating_add(self.write_allocated)
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
    /// Clock ticks of the dependent-add chain that ran right after the sample on the first thread.
    pub core_clock_ticks: Vec<u64>,
    /// CPU time that the threads lost while the sample ran, in microseconds: wall time less CPU time, and how late a thread began, summed over
    /// threads. Steal after that does not show here (the guest's clock runs on), preemption does.
    pub lost_us: Vec<u32>,
    /// Time taken by the hypervisor, in clock ticks of the kernel (usually 10 ms), over all CPUs.
    pub steal_jiffies: Vec<u32>,
    /// Involuntary context switches, over all threads.
    pub switches: Vec<u32>,
    /// Page faults, over all threads.
    pub faults: Vec<u32>,
    /// Threads that ended on another CPU than they were pinned to.
    pub migrations: Vec<u32>,
    /// Clock ticks that each thread took for its own part of each sample, one column a thread in the order of the case's
    /// CPUs: the fastest against `ticks` is the imbalance. Empty where one thread works, or only the first is timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thread_ticks: Vec<Vec<u64>>,
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
    /// the slowest pair's. A pair on another host is timed by that host's clock, and counted in ticks of this record's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pair_ticks: Vec<Vec<u64>>,
    /// Memory that the visit was the first to touch; absent where it all was there, or that was not noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_touch: Option<FirstTouch>,
    /// Clock ticks from when memory was ready to the first sample kept: finding how many repetitions make one, filling
    /// caches, waiting for the clock. 0 where that was not noted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up_ticks: u64,
    /// Clock ticks from then to the end of the last sample, with all that lies between samples; 0 likewise.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sampling_ticks: u64,
    /// How much of its core each thread had, right before and right after each sample; absent where that was not probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeSamples>,
}

/// Memory that was touched for the first time since it was mapped, by all threads at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FirstTouch {
    /// Bytes, over all threads.
    pub bytes: u64,
    /// Clock ticks of the slowest thread.
    pub ticks: u64,
}

fn is_zero(ticks: &u64) -> bool {
    *ticks == 0
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
    pub core_clock_ticks: u64,
    pub lost_us: u32,
    pub steal_jiffies: u32,
    pub switches: u32,
    pub faults: u32,
    pub migrations: u32,
    pub setup_ticks: u64,
    /// Right before and right after it, where one thread is probed.
    pub probes: [Reading; 2],
}

impl FromIterator<Sample> for Samples {
    fn from_iter<I: IntoIterator<Item = Sample>>(all: I) -> Self {
        let mut samples = Samples::default();
        all.into_iter().for_each(|sample| samples.push(sample));
        samples
    }
}

impl Samples {
    /// Nanoseconds of each of so many things that a sample did one after the other, on a clock of so many ticks a second.
    pub fn ns_each(&self, things: f64, hz: f64) -> Vec<f64> {
        self.ticks.iter().map(|ticks| *ticks as f64 / hz * 1e9 / things).collect()
    }

    /// Appends a sample.
    pub fn push(&mut self, sample: Sample) {
        self.ticks.push(sample.ticks);
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

    /// Each sample's share of its core, the least over its threads: see [`ProbeSamples::shares`]. Nothing where no core was probed.
    pub fn shares(&self, cpus: &[u32], undisturbed: &Undisturbed) -> Vec<Option<f64>> {
        self.probes.as_ref().map_or_else(Vec::new, |probes| probes.shares(cpus, undisturbed))
    }

    /// What each thread (or pair of processes) took of each sample; nothing where that is not known.
    fn parts(&self) -> &[Vec<u64>] {
        if self.pair_ticks.is_empty() { &self.thread_ticks } else { &self.pair_ticks }
    }

    /// Clock ticks of each sample, over all threads and of the fastest alone.
    pub fn slowest_and_fastest(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ticks.iter().enumerate().map(|(sample, &all)| {
            (all, self.parts().iter().filter_map(|part| part.get(sample).copied()).min().unwrap_or(all))
        })
    }

    /// Whether every column has one entry a sample and no duration is zero.
    pub fn is_consistent(&self) -> bool {
        let n = self.ticks.len();
        self.ticks.iter().all(|&t| t > 0)
            && self.core_clock_ticks.len() == n
            && [self.setup_ticks.len(), self.load_repetitions.len()].iter().all(|length| [0, n].contains(length))
            && self.energy.iter().all(|meter| [meter.microjoules.len(), meter.ticks.len()] == [n; 2])
            && self.controllers.iter().all(|c| [c.read_bytes.len(), c.written_bytes.len()] == [n; 2])
            && self.results.iter().all(|results| [results.bits.len(), results.ulps.len()] == [n; 2])
            && self.probes.iter().all(|probes| probes.has_samples(n))
            && self.parts().iter().all(|part| part.len() == n && part.iter().all(|&ticks| ticks > 0))
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
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Whether that was by its watchdog, after twice its budget, and not by the user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overran: bool,
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

impl Header {
    /// The subcommand that made the record; `None` of the default run, as of a record without a command line.
    pub fn subcommand(&self) -> Option<&str> {
        subcommand(&self.command)
    }
}

/// The subcommand of a command line: the first word behind the program's name that is no flag. Before it stand only those that all
/// commands take.
pub fn subcommand(command: &[String]) -> Option<&str> {
    let mut words = command.iter().skip(1).map(String::as_str);
    loop {
        match words.next()? {
            "-q" | "--quiet" => {}
            "--color" => drop(words.next()),
            word if word.starts_with("--color=") => {}
            word => return Some(word).filter(|word| !word.starts_with('-')),
        }
    }
}

/// Whether a run was killed: its record has no end. One that `membound watch` adds to never has one.
pub fn is_cut_off(command: &[String], end: Option<&End>) -> bool {
    end.is_none() && subcommand(command) != Some("watch")
}

impl Record {
    /// Whether the run was killed.
    pub fn is_cut_off(&self) -> bool {
        is_cut_off(&self.header.command, self.end.as_ref())
    }

    /// The visits that came to figures, each with its case.
    pub fn measured(&self) -> impl Iterator<Item = (&Case, &Measured)> + Clone {
        self.measurements.iter().filter_map(|visit| Some((&visit.case, visit.outcome.measured()?)))
    }
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

/// Appends lines to a record file, each on disk (handed to the kernel) before the next case starts.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// A writer to an empty file or buffer.
    pub fn new(to: W) -> Self {
        Writer { to, written: 0 }
    }

    /// Writes one line at once, so that a killed process leaves at most one incomplete line. What [`Record::read`] would not read is
    /// refused.
    pub fn line(&mut self, line: &Line) -> io::Result<()> {
        let text = json::text(line) + "\n";
        let most = if matches!(line, Line::Header(_)) { HEADER_MOST } else { LINE_MOST };
        is_readable(self.written, text.len(), most)?;
        self.to.write_all(text.as_bytes())?;
        self.written += text.len() as u64;
        self.to.flush()
    }
}

/// The published schema of a record's line.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Line).to_value()
}
