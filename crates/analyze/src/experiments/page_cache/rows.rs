//! Page cache beside a kernel: bandwidth and the share of remote pages over the size of a file, and which cure helps.

use schemars::JsonSchema;
use serde::Serialize;

use crate::flag::Flag;
use crate::quality::Sampled;
use crate::rate::Rate;
use crate::row::{Metric, Row};
use crate::visits::{Visits, payload_bps};
use membound_core::case::{Case, Work};
use membound_core::in_order::grouped;
use membound_core::machine::Machine;
use membound_core::machine::room::NodeRoom;
use membound_core::memory::filler::Filler;
use membound_core::memory::{CacheFound, MemoryKind, Obtained};
use membound_core::record::{Measured, Measurement, Record};
use membound_core::stats::draws;
use membound_core::units::Bytes;
use membound_core::work::page_cache::{Cure, PageCache, Workers};

/// Remote pages count as moved from this share more than without a file: the kernel puts some pages elsewhere anyway.
pub(super) const MOVED: f64 = 0.01;
/// Less of the file in the page cache than this share, and it was not what was asked for.
const CACHED: f64 = 0.9;

/// A kernel beside a filled page cache.
pub type PageCacheRow = Row<PageCacheFigures>;

/// What page cache did to it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PageCacheFigures {
    /// NUMA node of the first CPU, whose thread fills the page cache; absent where it is not known.
    #[serde(skip)]
    pub home: Option<u32>,
    /// What the program reads and writes. Absent where nothing was measured.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Speed against that without a file: [ratio, low, high]. The intervals of all files hold together with 95 %, and so do
    /// those of all cures. Absent without two visits.
    pub against_no_file: Option<[f64; 3]>,
    /// Share of the pages that lie on another node than the CPU that touched them first; absent where that is not known.
    pub remote_share: Option<f64>,
    /// Whether the cure undid what the page cache did; absent where it did nothing, or that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helps: Option<bool>,
    /// How much of the file was in the page cache when the kernel's memory was mapped, at the visit with least.
    pub cached_bytes: Option<Bytes>,
    /// Each node's memory right before the kernel's memory was mapped, at the last visit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRoom>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What tells rows beside page cache from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PageCacheKeys {
    /// The kernel's name.
    kernel: String,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// Number of threads, or of processes.
    threads: usize,
    /// Which of both they are.
    workers: Workers,
    /// Their CPUs.
    cpus: Vec<u32>,
    /// NUMA node of the first CPU, whose thread fills the page cache; absent where it is not known.
    home: Option<u32>,
    /// Bytes touched by one repetition.
    working_set_bytes: Bytes,
    /// Bytes of the file that fills the page cache; 0: none.
    file_bytes: Bytes,
    /// How its pages got there.
    filler: Filler,
    /// What was done against it.
    cure: Cure,
}

impl Metric for PageCacheFigures {
    const NAME: &'static str = "page-cache";
    const UNIT: &'static str = "B/s";
    type Keys = PageCacheKeys;

    fn keys(row: &PageCacheRow) -> PageCacheKeys {
        let PageCache { variant, file, filler, cure, workers } = row.work();
        PageCacheKeys {
            kernel: variant.kernel.clone(),
            memory: row.case.memory.kind,
            threads: row.case.threads(),
            workers: *workers,
            cpus: row.case.cpus.clone(),
            home: row.home,
            working_set_bytes: row.case.working_set,
            file_bytes: *file,
            filler: *filler,
            cure: *cure,
        }
    }

    fn what(row: &PageCacheRow) -> String {
        format!("{} of page cache, cure {}", row.work().file, row.work().cure)
    }
}

impl PageCacheRow {
    /// The kernel, the file beside it, and what was done against that.
    pub fn work(&self) -> &PageCache {
        let work = if let Work::PageCache(work) = &self.case.work { Some(work) } else { None };
        work.expect("rows beside page cache are made of such work alone")
    }

    /// The memory of the node whose CPU fills the page cache.
    pub fn home_room(&self) -> Option<&NodeRoom> {
        self.nodes.iter().find(|room| Some(room.node) == self.home)
    }
}

/// What page cache does to a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheEffect {
    /// Nothing that shows: no interval lies below that without a file, and no page moved.
    Flat,
    /// Bandwidth has a minimum that no chance explains.
    Minimum,
    /// Pages went to other nodes; bandwidth stayed within its intervals.
    Moved,
    /// Too little was measured to tell.
    Undetermined,
}

/// A kernel beside files of rising size. Numbers are indices into [`PageCacheReport::rows`].
#[derive(Debug, Clone, PartialEq)]
pub struct CacheCurve {
    /// Without a cure, by rising file size.
    pub rows: Vec<usize>,
    /// With each cure.
    pub cured: Vec<usize>,
    /// What page cache does to it.
    pub effect: CacheEffect,
    /// Where it does most: the lowest bandwidth, or the most remote pages.
    pub worst: Option<usize>,
}

impl PageCacheReport {
    /// Curves that differ in what the CPUs run alone, threads or processes, stand together.
    pub(super) fn sides(&self) -> Vec<Vec<&CacheCurve>> {
        let key = |curve: &CacheCurve| {
            let case = &self.rows.get(*curve.rows.first().or(curve.cured.first())?)?.case;
            let Work::PageCache(work) = kernel_of(&case.work) else { return None };
            let work = Work::PageCache(PageCache { workers: Workers::Threads, ..work });
            Some(Case { work, ..case.clone() })
        };
        grouped(&self.curves, |curve| key(curve)).into_iter().map(|(_, side)| side).collect()
    }
}

/// All that was measured beside page cache.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PageCacheReport {
    /// One row a case: by kernel, cure and file size.
    pub rows: Vec<PageCacheRow>,
    /// One a kernel.
    pub curves: Vec<CacheCurve>,
    /// Why the page cache could not be emptied first, where it could not.
    pub kept: Option<String>,
    /// NUMA nodes of the machine.
    pub nodes: usize,
}

/// A row, and B/s of each sample of each visit.
struct Drawn {
    row: PageCacheRow,
    batches: Vec<Vec<f64>>,
}

impl Drawn {
    fn views(&self) -> Vec<&[f64]> {
        self.batches.iter().map(Vec::as_slice).collect()
    }
}

/// The work with no file and no cure.
fn kernel_of(work: &Work) -> Work {
    match work {
        Work::PageCache(work) => Work::PageCache(PageCache { file: Bytes(0), cure: Cure::Nothing, ..work.clone() }),
        work => work.clone(),
    }
}

/// Rows, curves and what they say.
pub(crate) fn page_cache(visits: &Visits<'_>) -> PageCacheReport {
    let machine = &visits.header().machine;
    let mut drawn: Vec<Drawn> = visits.rows(|case| row(case, visits));
    drawn.sort_by_cached_key(|Drawn { row, .. }| {
        (kernel_of(&row.case.work), row.case.cpus.clone(), row.work().cure, row.work().file)
    });
    // The same kernel beside other files or with other cures.
    let kernel = |case: &Case| Case { work: kernel_of(&case.work), ..case.clone() };
    let alike = grouped(0..drawn.len(), |index| kernel(&drawn[*index].row.case));
    let curves = alike.into_iter().map(|(_, members)| curve(&members, &mut drawn)).collect();
    let found = |one: &Drawn| one.row.obtained.as_ref()?.page_cache.as_ref()?.kept.clone();
    let kept = drawn.iter().find_map(found);
    let rows = drawn.into_iter().map(|one| one.row).collect();
    PageCacheReport { rows, curves, kept, nodes: machine.nodes.len() }
}

/// The file size beside which the cures are to be compared: where page cache did most, so far. None without files.
pub fn worst_file(record: &Record) -> Option<Bytes> {
    let report = page_cache(&Visits::of(record));
    let curve = report.curves.first()?;
    let worst = curve.worst.or_else(|| curve.rows.last().copied())?;
    report.rows.get(worst).map(|row| row.work().file).filter(|file| file.0 > 0)
}

/// The next of these sizes of files, rising, that a curve still needs: until the node is full, and what page cache did there
/// is undone again. None where the answer is there.
pub fn next_file(record: &Record, sizes: &[Bytes]) -> Option<Bytes> {
    let report = page_cache(&Visits::of(record));
    let next = |curve: &CacheCurve| {
        let largest = &report.rows[*curve.rows.last()?];
        let next = sizes.iter().copied().find(|size| *size > largest.work().file)?;
        let is_measured = largest.payload_bps.is_some();
        (is_measured && report.nodes > 1 && !is_answered(curve, &report.rows)).then_some(next)
    };
    report.curves.iter().filter_map(next).min()
}

/// A node with less free than this share of it is full.
const FULL: f64 = 0.1;
/// The speed has recovered when this share of the fall is made up.
const RECOVERED: f64 = 0.5;

fn is_answered(curve: &CacheCurve, rows: &[PageCacheRow]) -> bool {
    let Some((worst, largest)) = curve.worst.zip(curve.rows.last().copied()) else { return false };
    let beyond =
        || curve.rows.iter().map(|index| &rows[*index]).filter(|row| row.work().file > rows[worst].work().file);
    match curve.effect {
        CacheEffect::Minimum => beyond().any(|row| {
            let fallen = rows[worst].against_no_file.map_or(1.0, |[ratio, ..]| 1.0 - ratio);
            row.against_no_file.is_some_and(|[ratio, ..]| 1.0 - ratio <= (1.0 - RECOVERED) * fallen)
        }),
        CacheEffect::Moved => beyond().any(|row| row.remote_share <= rows[worst].remote_share.map(|share| share / 2.0)),
        CacheEffect::Flat | CacheEffect::Undetermined => {
            let room = rows[largest].home_room();
            room.is_none_or(|room| (room.free.0 as f64) < FULL * room.total.0 as f64)
        }
    }
}

impl PageCacheRow {
    /// Flops a second of the kernel.
    pub fn flops_per_s(&self) -> Option<f64> {
        let variant = &self.work().variant;
        let kernel = variant.row()?;
        let traffic = kernel.traffic(variant.store, variant.element);
        Some(self.payload_bps?.value() / traffic.payload() as f64 * f64::from(kernel.formula().flops()))
    }
}

fn home(machine: &Machine, cpu: u32) -> Option<u32> {
    machine.nodes.iter().find(|node| node.cpus.known().is_some_and(|cpus| cpus.contains(cpu))).map(|node| node.id)
}

fn row(visits: &[&Measurement], all: &Visits<'_>) -> Option<Drawn> {
    let machine = &all.header().machine;
    let case = visits[0].case.clone();
    let Work::PageCache(work) = &case.work else { return None };
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| payload_bps(visit, all.hz()));
    let caches = sampled.measured.iter().filter_map(|visit| visit.obtained.page_cache.as_ref());
    let found: Vec<&CacheFound> = caches.collect();
    let cached_bytes = found.iter().filter_map(|found| found.file_cached).min();
    let is_short = |cached: Bytes| (cached.0 as f64) < CACHED * work.file.0 as f64;
    let is_asked = !matches!(work.cure, Cure::DropCaches | Cure::Sweep);
    let is_kept = found.iter().any(|found| found.kept.is_some());
    sampled
        .quality
        .flag([(Flag::CacheKept, is_kept), (Flag::CacheShort, is_asked && cached_bytes.is_some_and(is_short))]);
    let figures = PageCacheFigures {
        home: case.cpus.first().and_then(|&cpu| home(machine, cpu)),
        payload_bps: sampled.rate(),
        against_no_file: None,
        remote_share: remote_share(&sampled.measured),
        helps: None,
        cached_bytes,
        nodes: found.last().map(|found| found.nodes.clone()).unwrap_or_default(),
        obtained: sampled.obtained(),
    };
    let row = Row { quality: sampled.quality, figures, case };
    Some(Drawn { row, batches: sampled.batches })
}

/// Over all visits together; unknown where it is of one.
fn remote_share(measured: &[&Measured]) -> Option<f64> {
    let of_visit = |visit: &&Measured| {
        let found: u64 = visit.obtained.pages_on_node.iter().map(|node| node.pages).sum();
        Some((visit.obtained.page_cache.as_ref()?.remote_pages?, found))
    };
    let pairs = measured.iter().map(of_visit).collect::<Option<Vec<_>>>()?;
    let (remote, found) = pairs.iter().fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    (found > 0).then(|| remote as f64 / found as f64)
}

/// `members` are in order of cure and file size: those without a cure and without a file come first.
fn curve(members: &[usize], drawn: &mut [Drawn]) -> CacheCurve {
    let (rows, cured): (Vec<usize>, Vec<usize>) =
        members.iter().partition(|&&index| drawn[index].row.work().cure == Cure::Nothing);
    let base = rows.first().copied().filter(|&first| drawn[first].row.work().file == Bytes(0));
    for group in [rows.get(1..).unwrap_or_default(), &cured] {
        compare(base, group, drawn);
    }
    let (effect, worst) = effect(base, &rows, drawn);
    let helps: Vec<Option<bool>> = helps(effect, worst, &cured, drawn);
    cured.iter().zip(helps).for_each(|(&index, helps)| drawn[index].row.helps = helps);
    CacheCurve { rows, cured, effect, worst }
}

/// Holds each of a group against the case without a file.
fn compare(base: Option<usize>, group: &[usize], drawn: &mut [Drawn]) {
    let Some(base) = base else { return };
    let others: Vec<Vec<&[f64]>> = group.iter().map(|&index| drawn[index].views()).collect();
    let ratios = draws::ratios_of_draws(&drawn[base].views(), &others);
    for (&index, ratio) in group.iter().zip(ratios) {
        drawn[index].row.against_no_file = ratio.iter().all(|end| end.is_finite()).then_some(ratio);
    }
}

/// What page cache did, and where most. `rows` are those without a cure.
fn effect(base: Option<usize>, rows: &[usize], drawn: &[Drawn]) -> (CacheEffect, Option<usize>) {
    let row = |index: usize| &drawn[index].row;
    let Some(uncached) = base.map(row).filter(|row| row.payload_bps.is_some()) else {
        return (CacheEffect::Undetermined, None);
    };
    let beside = || rows.iter().copied().filter(|&index| row(index).payload_bps.is_some() && Some(index) != base);
    let remote = |index: usize| row(index).remote_share.unwrap_or(0.0) - uncached.remote_share.unwrap_or(0.0);
    let speed = |index: usize| row(index).payload_bps.map_or(f64::INFINITY, |rate| rate.value());
    let slowest =
        |of: &dyn Fn(usize) -> bool| beside().filter(|&i| of(i)).min_by(|a, b| speed(*a).total_cmp(&speed(*b)));
    let most_moved = beside().max_by(|a, b| remote(*a).total_cmp(&remote(*b))).filter(|&index| remote(index) > MOVED);
    let is_below = |index: usize| row(index).against_no_file.is_some_and(|[_, _, high]| high < 1.0);
    let is_known = |index: usize| row(index).against_no_file.is_some();
    if let Some(lowest) = slowest(&is_below) {
        (CacheEffect::Minimum, Some(lowest))
    } else if let Some(moved) = most_moved {
        (CacheEffect::Moved, Some(moved))
    } else if beside().count() > 0 && beside().all(is_known) {
        (CacheEffect::Flat, slowest(&|_| true))
    } else {
        (CacheEffect::Undetermined, slowest(&|_| true))
    }
}

/// Whether each cure undid it: faster than without it where bandwidth fell, at most half as many remote pages where only
/// those show.
fn helps(effect: CacheEffect, worst: Option<usize>, cured: &[usize], drawn: &[Drawn]) -> Vec<Option<bool>> {
    let Some(worst) = worst else { return vec![None; cured.len()] };
    let others: Vec<Vec<&[f64]>> = cured.iter().map(|&index| drawn[index].views()).collect();
    let gains = draws::ratios_of_draws(&drawn[worst].views(), &others);
    let of = |(&index, gain): (&usize, [f64; 3])| match effect {
        _ if drawn[index].row.payload_bps.is_none() || drawn[index].row.work().file != drawn[worst].row.work().file => {
            None
        }
        CacheEffect::Minimum => gain[1].is_finite().then_some(gain[1] > 1.0),
        CacheEffect::Moved => {
            drawn[index].row.remote_share.zip(drawn[worst].row.remote_share).map(|(cured, worst)| cured <= worst / 2.0)
        }
        CacheEffect::Flat | CacheEffect::Undetermined => None,
    };
    cured.iter().zip(gains).map(of).collect()
}
