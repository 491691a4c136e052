//! Page cache beside a kernel: bandwidth and the share of remote pages over the size of a file, and which cure helps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quality::{Quality, Sampled, rated};
use super::rows::{payload_bps, visits};
use super::{Rate, Report, Warning};
use crate::machine::{Machine, NodeRoom};
use crate::memory::{CacheFound, Filler, MemoryKind, Obtained};
use crate::plan::{Case, Cure, PageCache, Work};
use crate::record::{Measured, Measurement, Record};
use crate::stats;
use crate::units::{Bytes, BytesPerSecond, percent, significant};

/// Remote pages count as moved from this share more than without a file: the kernel puts some pages elsewhere anyway.
const MOVED: f64 = 0.01;
/// Less of the file in the page cache than this share, and it was not what was asked for.
const CACHED: f64 = 0.9;
/// A fall to this share of the speed that would not have shown is worth saying.
const UNSEEN: f64 = 0.9;
/// A node with more of its memory free than this share is not full.
const FREE: f64 = 0.1;

/// A kernel beside a filled page cache: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageCacheRow {
    /// `page-cache`.
    pub metric: String,
    /// The kernel's name.
    pub kernel: String,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// Number of threads.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<u32>,
    /// NUMA node of the first CPU, whose thread fills the page cache; absent where it is not known.
    pub home: Option<u32>,
    /// Bytes touched by one repetition.
    pub working_set_bytes: Bytes,
    /// Bytes of the file that fills the page cache; 0: none.
    pub file_bytes: Bytes,
    /// How its pages got there.
    pub filler: Filler,
    /// What was done against it.
    pub cure: Cure,
    /// `B/s`.
    pub unit: String,
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
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

rated!(PageCacheRow, |row| format!("{} of page cache, cure {}", row.file_bytes, row.cure));

impl PageCacheRow {
    /// The memory of the node whose CPU fills the page cache.
    pub fn home_room(&self) -> Option<&NodeRoom> {
        self.nodes.iter().find(|room| Some(room.node) == self.home)
    }
}

/// What page cache does to a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
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
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
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

/// All that was measured beside page cache.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct PageCacheReport {
    /// One row a case: by kernel, cure and file size.
    pub rows: Vec<PageCacheRow>,
    /// One a kernel.
    pub curves: Vec<CacheCurve>,
    /// Why the page cache could not be emptied first, where it could not.
    pub kept: Option<String>,
}

/// A row, the case behind it, and B/s of each sample of each visit.
struct Drawn {
    case: Case,
    row: PageCacheRow,
    batches: Vec<Vec<f64>>,
}

impl Drawn {
    fn views(&self) -> Vec<&[f64]> {
        self.batches.iter().map(Vec::as_slice).collect()
    }

    /// Whether both are the same kernel beside other files or with other cures.
    fn is_alike(&self, other: &Drawn) -> bool {
        let bare = |case: &Case| Case { work: kernel_of(&case.work), ..case.clone() };
        bare(&self.case) == bare(&other.case)
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
pub fn page_cache(record: &Record) -> PageCacheReport {
    let hz = record.header.clock.hz.0;
    let visits = visits(record);
    let mut drawn: Vec<Drawn> = visits.iter().filter_map(|visits| row(visits, &record.header.machine, hz)).collect();
    drawn
        .sort_by_cached_key(|one| (kernel_of(&one.case.work), one.case.cpus.clone(), one.row.cure, one.row.file_bytes));
    let mut curves: Vec<Vec<usize>> = Vec::new();
    for index in 0..drawn.len() {
        match curves.iter_mut().find(|curve| drawn[curve[0]].is_alike(&drawn[index])) {
            Some(curve) => curve.push(index),
            None => curves.push(vec![index]),
        }
    }
    let curves = curves.into_iter().map(|members| curve(&members, &mut drawn)).collect();
    let found = |one: &Drawn| one.row.obtained.as_ref()?.page_cache.as_ref()?.kept.clone();
    let kept = drawn.iter().find_map(found);
    PageCacheReport { rows: drawn.into_iter().map(|one| one.row).collect(), curves, kept }
}

/// The file size beside which the cures are to be compared: where page cache did most, so far. None without files.
pub fn worst_file(record: &Record) -> Option<Bytes> {
    let report = page_cache(record);
    let curve = report.curves.first()?;
    let worst = curve.worst.or_else(|| curve.rows.last().copied())?;
    report.rows.get(worst).map(|row| row.file_bytes).filter(|file| file.0 > 0)
}

fn home(machine: &Machine, cpu: u32) -> Option<u32> {
    machine.nodes.iter().find(|node| node.cpus.known().is_some_and(|cpus| cpus.contains(cpu))).map(|node| node.id)
}

fn row(visits: &[&Measurement], machine: &Machine, hz: f64) -> Option<Drawn> {
    let case = visits[0].case.clone();
    let Work::PageCache(work) = &case.work else { return None };
    let mut sampled = Sampled::of(visits, hz, |visit| payload_bps(visit, hz));
    let caches = sampled.measured.iter().filter_map(|visit| visit.obtained.page_cache.as_ref());
    let found: Vec<&CacheFound> = caches.collect();
    let cached_bytes = found.iter().filter_map(|found| found.file_cached).min();
    let is_short = |cached: Bytes| (cached.0 as f64) < CACHED * work.file.0 as f64;
    let is_asked = !matches!(work.cure, Cure::DropCaches | Cure::Sweep);
    let is_kept = found.iter().any(|found| found.kept.is_some());
    sampled.quality.flag([("cache-kept", is_kept), ("cache-short", is_asked && cached_bytes.is_some_and(is_short))]);
    let row = PageCacheRow {
        metric: "page-cache".into(),
        kernel: work.variant.kernel.clone(),
        memory: case.memory.kind,
        threads: case.threads(),
        cpus: case.cpus.clone(),
        home: case.cpus.first().and_then(|&cpu| home(machine, cpu)),
        working_set_bytes: case.working_set,
        file_bytes: work.file,
        filler: work.filler,
        cure: work.cure,
        unit: "B/s".into(),
        payload_bps: sampled.rate(),
        against_no_file: None,
        remote_share: remote_share(&sampled.measured),
        helps: None,
        cached_bytes,
        nodes: found.last().map(|found| found.nodes.clone()).unwrap_or_default(),
        obtained: sampled.obtained(),
        quality: sampled.quality,
    };
    Some(Drawn { row, batches: sampled.batches, case })
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
        members.iter().partition(|&&index| drawn[index].row.cure == Cure::Nothing);
    let base = rows.first().copied().filter(|&first| drawn[first].row.file_bytes == Bytes(0));
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
    let ratios = stats::ratios_of_draws(&drawn[base].views(), &others);
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
    let speed = |index: usize| row(index).payload_bps.map_or(f64::INFINITY, |rate| rate.median);
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
    let gains = stats::ratios_of_draws(&drawn[worst].views(), &others);
    let of = |(&index, gain): (&usize, [f64; 3])| match effect {
        _ if drawn[index].row.payload_bps.is_none() || drawn[index].row.file_bytes != drawn[worst].row.file_bytes => {
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

/// What page cache does to a program, and what helps.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let found = &report.page_cache;
    found.curves.iter().filter_map(|curve| sentence(found, curve, &report.machine)).collect()
}

fn sentence(found: &PageCacheReport, curve: &CacheCurve, machine: &Machine) -> Option<String> {
    let row = |index: usize| found.rows.get(index);
    let (base, largest) = (row(*curve.rows.first()?)?, row(*curve.rows.last()?)?);
    let kernel = &base.kernel;
    let worst = curve.worst.and_then(row);
    let beside = |row: &PageCacheRow| format!("Beside {} of page cache", row.file_bytes);
    let remote = |row: &PageCacheRow| match row.remote_share {
        Some(share) if share > MOVED => {
            format!("{} of the {kernel}'s pages lie on another node than their thread", percent(share))
        }
        Some(_) => "no page moved to another node".into(),
        None => "where its pages lie is not known".into(),
    };
    let text = match (curve.effect, worst) {
        (CacheEffect::Minimum, Some(worst)) => {
            let speed = BytesPerSecond(worst.payload_bps?.median);
            let against = super::stores::ratio_text(worst.against_no_file?);
            format!(
                "{} the {kernel} has its minimum: {speed}, {against} its speed without; {}",
                beside(worst),
                remote(worst)
            )
        }
        (CacheEffect::Moved, Some(worst)) => {
            let against = worst.against_no_file.map(super::stores::ratio_text);
            let against = against.map_or_else(String::new, |ratio| format!(" ({ratio} its speed without)"));
            format!("{} {}; its speed stays within the intervals{against}", beside(worst), remote(worst))
        }
        (CacheEffect::Flat, _) => {
            let ratios = || curve.rows.iter().filter_map(|&index| row(index)?.against_no_file);
            let low = ratios().map(|ratio| ratio[1]).fold(f64::INFINITY, f64::min);
            let high = ratios().map(|ratio| ratio[2]).fold(0.0, f64::max);
            let nowhere = if machine.nodes.len() == 1 { ": this machine has one node" } else { "" };
            let [low_text, high_text] = [low, high].map(significant);
            let unseen = if low < UNSEEN {
                format!("; a fall to {low_text} x would not have shown, a longer --budget narrows that")
            } else {
                String::new()
            };
            format!(
                "Flat: page cache up to {} leaves the {kernel} between {low_text} and {high_text} x its speed without, and no \
                 page moves{nowhere}{unseen}",
                largest.file_bytes
            )
        }
        _ => format!("What page cache does to the {kernel} can't be told: each file size takes two visits or more"),
    };
    Some(text + &cure_words(found, curve) + ".")
}

/// `; bind and sweep help, preferred does not`
fn cure_words(found: &PageCacheReport, curve: &CacheCurve) -> String {
    let named = |helps: bool| -> Vec<&str> {
        let rows = curve.cured.iter().filter_map(|&index| found.rows.get(index));
        rows.filter(|row| row.helps == Some(helps)).map(|row| row.cure.word()).collect()
    };
    let verb = |names: &[&str], one: &str, many: &str| {
        let listed = match names {
            [] => return None,
            [first] => (*first).to_string(),
            [first @ .., last] => format!("{} and {last}", first.join(", ")),
        };
        Some(format!("{listed} {}", if names.len() == 1 { one } else { many }))
    };
    let parts = [verb(&named(true), "helps", "help"), verb(&named(false), "does not help", "do not help")];
    let said: Vec<String> = parts.into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!("; against that {}", said.join(", ")) }
}

/// What limits the answer.
pub(super) fn warnings(report: &Report) -> Vec<Warning> {
    let found = &report.page_cache;
    let kept = found.kept.iter().map(|why| Warning {
        text: format!("the page cache could not be emptied before each file ({why})"),
        cure: "what others keep in it stands beside every figure, without a file too; run as root, or `membound sweep` first"
            .into(),
    });
    kept.chain(found.curves.iter().filter_map(|curve| unfilled(found, curve, &report.machine))).collect()
}

/// A file that fills no node can't show what a full one does.
fn unfilled(found: &PageCacheReport, curve: &CacheCurve, machine: &Machine) -> Option<Warning> {
    let largest = found.rows.get(*curve.rows.last()?)?;
    let room = largest.home_room()?;
    let is_filled = (room.free.0 as f64) < FREE * room.total.0 as f64;
    if is_filled || machine.nodes.len() < 2 || curve.effect != CacheEffect::Flat {
        return None;
    }
    Some(Warning {
        text: format!(
            "the largest file ({}) left {} of node {} free: what a full node does was not seen",
            largest.file_bytes, room.free, room.node
        ),
        cure: "give a greater --share".into(),
    })
}
