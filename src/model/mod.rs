//! Records to answers: what a view shows is a [`Report`], worked out here from records alone.

pub mod addrmap;
pub mod advisor;
pub mod check;
pub mod compare;
pub mod energy;
mod findings;
pub mod fleet;
mod flops;
mod handover;
mod hierarchy;
mod kinds;
pub mod ladder;
mod latency;
pub mod levels;
pub mod limits;
mod loaded;
mod nodes;
mod numa;
mod offsets;
pub mod page_cache;
mod pages;
pub mod pingpong;
mod quality;
pub mod roofline;
pub mod rounding;
mod rows;
mod stores;
pub mod streams;
mod threads;
pub mod tiers;
mod traffic;
pub mod verdict;
pub mod warnings;
mod weights;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::addrmap::AddrmapRow;
pub use self::flops::FlopsRow;
pub use self::handover::{HandoverGroup, HandoverRow};
pub use self::hierarchy::{Level, LevelBest};
pub use self::kinds::{BreakEven, Kind, Kinds};
pub use self::latency::{Latency, LatencyLevel, LatencyRow, MapLine, ParallelPoint, Parallelism, TranslationLevel};
pub use self::loaded::{LoadCurve, LoadedRow};
pub use self::nodes::MeasuredNode;
pub use self::numa::{Limit, Numa, NumaInitiator, NumaRow, Saturation, SideCache};
pub use self::offsets::OffsetRow;
pub use self::pages::PageRow;
pub use self::quality::{Quality, Rated, Status};
pub use self::rows::{ControllerRates, FirstUse, Row};
pub use self::stores::Crossover;
pub use self::threads::{Scaling, StreamLine, StreamTable};
pub use self::traffic::{Traffic, Witness, WriteAllocate, witness};
pub use self::verdict::Verdict;
pub use self::weights::{Tried, Weighting};

use self::energy::EnergyRow;
use self::limits::Limits;
use self::page_cache::{PageCacheReport, PageCacheRow};
use self::pingpong::{Messages, PathModel, PathRow, PingPongRow};
use self::roofline::Roofline;
use self::rounding::{Rounding, RoundingRow};
use self::streams::{Congestion, StreamsRow};
use crate::machine::Machine;
use crate::record::{Clock, End, Environment, Record};
use crate::stats::Summary;

/// Everything a view can show of one record.
#[derive(Debug, Clone)]
pub struct Report {
    /// The host's name.
    pub host: String,
    /// The tool that measured.
    pub tool: String,
    /// Start, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// Seed of the order of visits.
    pub seed: u64,
    /// The clock.
    pub clock: Clock,
    /// The machine.
    pub machine: Machine,
    /// Its state before the run.
    pub before: Environment,
    /// How the run ended; absent where it was killed.
    pub end: Option<End>,
    /// One row a case, by kernel, threads, memory, size, and way of touching it.
    pub rows: Vec<Row>,
    /// What pages cost: one row a case, by work, memory and threads.
    pub pages: Vec<PageRow>,
    /// What offsets cost: one row for each access and place.
    pub offsets: Vec<OffsetRow>,
    /// What passing a line between cores costs: one row a pair and home.
    pub handovers: Vec<HandoverRow>,
    /// The same by how near cores are, nearest first.
    pub handover_groups: Vec<HandoverGroup>,
    /// Latency of memory under load: one row a load.
    pub loaded: Vec<LoadedRow>,
    /// The same as a curve for each mix.
    pub load_curves: Vec<LoadCurve>,
    /// Where lines live: one row a memory that was asked about.
    pub addrmap: Vec<AddrmapRow>,
    /// What work costs in energy: one row a case and meter.
    pub energy: Vec<EnergyRow>,
    /// One sum in many ways, if that was asked for.
    pub rounding: Rounding,
    /// Many streams at once, by their offsets.
    pub congestion: Congestion,
    /// Messages between processes, and the models of their paths.
    pub messages: Messages,
    /// What chases tell.
    pub latency: Latency,
    /// Memory from everywhere, if that was measured.
    pub numa: Option<Numa>,
    /// What page cache does to a program beside it.
    pub page_cache: PageCacheReport,
    /// Memory kinds side by side, if their first use and steady state were measured.
    pub kinds: Option<Kinds>,
    /// What cores compute in registers: one row a kind of arithmetic and thread count.
    pub flops: Vec<FlopsRow>,
    /// Kernels against what bounds them; empty where nothing was computed.
    pub roofline: Roofline,
    /// What the machine can do at most, and how that is known.
    pub limits: Limits,
    /// Levels of the memory system as the curve shows them, fastest first.
    pub levels: Vec<Level>,
    /// Where non-temporal stores overtake regular ones.
    pub crossovers: Vec<Crossover>,
    /// Bandwidth over threads.
    pub scaling: Vec<Scaling>,
    /// What the write-allocate costs.
    pub write_allocate: Vec<WriteAllocate>,
    /// Pages on two nodes: which ratio is best.
    pub weightings: Vec<Weighting>,
    /// The STREAM table, if its kernels were measured.
    pub stream: Option<StreamTable>,
    /// The answer, most important first: whole sentences with their numbers.
    pub findings: Vec<String>,
    /// What disturbed or limits the figures.
    pub warnings: Vec<Warning>,
    /// Why memory-bound code is not faster here.
    pub verdict: Verdict,
}

/// Works a report out of a record.
pub fn report(record: &Record) -> Report {
    let header = &record.header;
    let sheet = header.sheet.as_ref();
    let (mut results, on_nodes) = numa::part(rows::merge(record), record);
    let levels = hierarchy::name_levels(&mut results, &header.machine);
    let known = limits::limits(&header.machine, sheet, &[]);
    limits::mark_impossible(&mut results, &known, &header.machine);
    let levels = rows::best_of_levels(levels, &results);
    let mut report = Report {
        host: header.host.clone(),
        tool: header.tool.clone(),
        started_unix_s: header.started_unix_s,
        seed: header.seed,
        clock: header.clock.clone(),
        machine: header.machine.clone(),
        before: header.before.clone(),
        kinds: kinds::compare(&results),
        pages: pages::rows(record),
        offsets: offsets::rows(record),
        latency: latency::latency(record),
        page_cache: page_cache::page_cache(record),
        handovers: handover::rows(record),
        handover_groups: Vec::new(),
        loaded: loaded::rows(record),
        load_curves: Vec::new(),
        addrmap: addrmap::rows(record),
        energy: energy::rows(record),
        rounding: rounding::rounding(record),
        congestion: streams::congestion(record),
        messages: pingpong::messages(record),
        end: record.end.clone(),
        levels,
        crossovers: stores::crossovers(&results),
        scaling: threads::scaling(&results),
        write_allocate: traffic::write_allocate(&results, &header.machine),
        weightings: weights::weightings(&results),
        stream: threads::stream_table(&results, record),
        findings: Vec::new(),
        warnings: Vec::new(),
        verdict: Verdict::default(),
        numa: numa::numa(record, on_nodes),
        limits: Limits::default(),
        flops: flops::rows(record),
        roofline: Roofline::default(),
        rows: results.into_iter().map(|result| result.row).collect(),
    };
    report.limits = limits::limits(&report.machine, sheet, &report.rows);
    report.roofline = roofline::roofline(&report.flops, &report.rows, &report.limits, &report.machine);
    report.handover_groups = handover::groups(&report.handovers);
    report.load_curves = loaded::curves(&report.loaded);
    report.findings = findings::sentences(&report);
    report.warnings = findings::warnings(&report, record);
    report.verdict = verdict::verdict(&report);
    report
}

/// A rate with its spread; `best` is the greatest sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Greatest sample.
    pub best: f64,
    /// Median.
    pub median: f64,
    /// 95 % interval of the median: [low, high].
    pub ci95: [f64; 2],
}

impl Rate {
    /// So many times that.
    fn times(self, factor: f64) -> Rate {
        let [low, high] = self.ci95;
        Rate { best: self.best * factor, median: self.median * factor, ci95: [low * factor, high * factor] }
    }
}

impl From<&Summary> for Rate {
    fn from(summary: &Summary) -> Rate {
        Rate { best: summary.greatest, median: summary.median, ci95: summary.ci95 }
    }
}

/// A cost in the row's unit, with its spread; `best` is the least sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Least sample.
    pub best: f64,
    /// Median.
    pub median: f64,
    /// 95 % interval of the median: [low, high].
    pub ci95: [f64; 2],
}

impl Cost {
    /// The rates that costs are.
    fn as_rate(self, rate: impl Fn(f64) -> f64) -> Rate {
        let [low, high] = self.ci95;
        Rate { best: rate(self.best), median: rate(self.median), ci95: [rate(high), rate(low)] }
    }
}

impl From<&Summary> for Cost {
    fn from(summary: &Summary) -> Cost {
        Cost { best: summary.least, median: summary.median, ci95: summary.ci95 }
    }
}

/// Any row, as `--format json` prints them one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AnyRow {
    /// `bandwidth`
    Bandwidth(Box<Row>),
    /// `page`
    Page(Box<PageRow>),
    /// `offset`
    Offset(Box<OffsetRow>),
    /// `c2c`
    Handover(Box<HandoverRow>),
    /// `loaded`
    Loaded(Box<LoadedRow>),
    /// `addrmap`
    Addrmap(Box<AddrmapRow>),
    /// `latency`
    Latency(Box<LatencyRow>),
    /// `numa`
    Numa(Box<NumaRow>),
    /// `page-cache`
    PageCache(Box<PageCacheRow>),
    /// `flops`
    Flops(Box<FlopsRow>),
    /// `energy`
    Energy(Box<EnergyRow>),
    /// `rounding`
    Rounding(Box<RoundingRow>),
    /// `streams`
    Streams(Box<StreamsRow>),
    /// `pingpong`
    PingPong(Box<PingPongRow>),
    /// `pingpong-model`
    PingPongModel(Box<PathRow>),
}

impl Report {
    /// All rows of all metrics.
    pub fn any_rows(&self) -> impl Iterator<Item = AnyRow> {
        let all = each(&self.rows, AnyRow::Bandwidth).chain(each(&self.pages, AnyRow::Page));
        let all = all.chain(each(&self.offsets, AnyRow::Offset)).chain(each(&self.handovers, AnyRow::Handover));
        let all = all.chain(each(&self.loaded, AnyRow::Loaded)).chain(each(&self.addrmap, AnyRow::Addrmap));
        let all = all.chain(each(&self.latency.rows, AnyRow::Latency)).chain(self.numa.iter().flat_map(Numa::any_rows));
        let all = all.chain(each(&self.page_cache.rows, AnyRow::PageCache)).chain(each(&self.flops, AnyRow::Flops));
        let all = all.chain(each(&self.energy, AnyRow::Energy)).chain(each(&self.rounding.rows, AnyRow::Rounding));
        let all = all.chain(each(&self.congestion.rows, AnyRow::Streams));
        let all = all.chain(each(&self.messages.rows, AnyRow::PingPong));
        let parameters = self.messages.models.iter().flat_map(PathModel::rows);
        all.chain(parameters.map(|row| AnyRow::PingPongModel(Box::new(row))))
    }

    /// All rows of all metrics, each figure once: those of the matrix of nodes are its kernels' and chases'.
    fn rated(&self) -> impl Iterator<Item = &dyn Rated> {
        let numa = self.numa.iter().flat_map(|numa| rated(&numa.kernels).chain(rated(&numa.chases)));
        let all = rated(&self.rows).chain(numa).chain(rated(&self.pages)).chain(rated(&self.offsets));
        let all = all.chain(rated(&self.handovers)).chain(rated(&self.loaded)).chain(rated(&self.addrmap));
        let all = all.chain(rated(&self.latency.rows)).chain(rated(&self.page_cache.rows)).chain(rated(&self.flops));
        let all = all.chain(rated(&self.energy)).chain(rated(&self.rounding.rows));
        all.chain(rated(&self.congestion.rows)).chain(rated(&self.messages.rows))
    }
}

fn each<R: Clone>(rows: &[R], any: fn(Box<R>) -> AnyRow) -> impl Iterator<Item = AnyRow> {
    rows.iter().cloned().map(move |row| any(Box::new(row)))
}

fn rated<R: Rated>(rows: &[R]) -> impl Iterator<Item = &dyn Rated> {
    rows.iter().map(|row| row as &dyn Rated)
}

/// Something that disturbed or limits the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Warning {
    /// What was seen, with its evidence.
    pub text: String,
    /// What helps.
    pub cure: String,
}
