//! What offsets cost: from scans to rows.

use membound_core::in_order::InOrder;
use schemars::JsonSchema;
use serde::Serialize;

use crate::flag::Flag;
use crate::quality::{Quality, Status, flags, summarize};
use crate::rate::Cost;
use crate::row::{Metric, Row};
use crate::visits::{Visits, core_clock, measured};
use membound_core::case::{Case, Work};
use membound_core::kernel::scan::Scan;
use membound_core::memory::MemoryKind;
use membound_core::record::{Measured, Measurement};
use membound_core::stats::Summary;
use membound_core::stats::quantiles::median;
use membound_core::units;

/// All offsets of a scan at which an access lies alike.
pub type OffsetRow = Row<OffsetFigures>;

/// What an offset costs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OffsetFigures {
    /// How the accesses lie.
    #[serde(skip)]
    pub place: &'static str,
    /// First and last offset of that kind, in bytes.
    #[serde(skip)]
    pub offsets: [i64; 2],
    /// How many offsets of that kind there are.
    #[serde(skip)]
    pub count: usize,
    /// Core clock cycles for each access (with a pair of accesses: for each pair). The median is over the offsets of that
    /// kind, each with its median over all sweeps. The interval is that of this median, widened to hold the median of
    /// each visit alone: it tells of differences between offsets and between visits. Absent where nothing was measured.
    pub cycles: Option<Cost>,
    /// Median cycles at each offset of the whole scan, for charts: on its first row only.
    #[serde(skip)]
    pub curve: Vec<(i64, f64)>,
}

/// What tells rows of offsets from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OffsetKeys {
    /// What was repeated.
    scan: Scan,
    /// How the accesses lie. Loads and stores alone: `inside a line`, and of these `aligned`, `crosses 16 B` (and not 32)
    /// and `crosses 32 B`; `crosses a line`, `crosses a page`. A load beside a store: `aliases`, `apart`. Forwarding: `same
    /// place`, `inside the store`, `overlaps partly`, `apart`. Where nothing was measured: `any`.
    place: &'static str,
    /// First and last offset of that kind, in bytes.
    offsets: [i64; 2],
    /// How many offsets of that kind there are.
    count: usize,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// CPU.
    cpus: Vec<u32>,
}

impl Metric for OffsetFigures {
    const NAME: &'static str = "offset";
    const UNIT: &'static str = "cycles";
    type Keys = OffsetKeys;

    fn keys(row: &OffsetRow) -> OffsetKeys {
        let OffsetFigures { place, offsets, count, .. } = row.figures;
        let (memory, cpus) = (row.case.memory.kind, row.case.cpus.clone());
        OffsetKeys { scan: row.scan(), place, offsets, count, memory, cpus }
    }

    fn what(row: &OffsetRow) -> String {
        row.scan().to_string()
    }
}

impl OffsetRow {
    /// What was repeated.
    pub fn scan(&self) -> Scan {
        let scan = if let Work::Scan(scan) = self.case.work { Some(scan) } else { None };
        scan.expect("rows of offsets are made of scans alone")
    }
}

/// One row for each scan and each way in which its accesses lie, by scan.
pub(crate) fn rows(visits: &Visits<'_>) -> Vec<OffsetRow> {
    let hz = visits.hz();
    let mut all: Vec<OffsetRow> = visits.cases.iter().flat_map(|visits| of_scan(visits, hz)).collect();
    all.order_by(|a, b| a.case.cmp(&b.case));
    all
}

/// A name, and whether accesses of a scan at an offset lie so.
type Crossing = (&'static str, fn(Scan, i64) -> bool);

/// The places that tell a scan's offsets apart. A place may be a part of another.
fn places(scan: Scan) -> &'static [Crossing] {
    match scan {
        Scan::Load { .. } | Scan::Store { .. } => &[
            ("inside a line", |scan, at| !crosses(scan, at, LINE)),
            ("aligned", |scan, at| at % accessed(scan) == 0),
            ("crosses 16 B", |scan, at| crosses(scan, at, 16) && !crosses(scan, at, 32)),
            ("crosses 32 B", |scan, at| crosses(scan, at, 32) && !crosses(scan, at, LINE)),
            ("crosses a line", |scan, at| crosses(scan, at, LINE) && !crosses(scan, at, PAGE)),
            ("crosses a page", |scan, at| crosses(scan, at, PAGE)),
        ],
        Scan::Aliasing { .. } => {
            &[("aliases", |scan, at| !is_apart(scan, at)), ("apart", |scan, at| is_apart(scan, at))]
        }
        Scan::Forwarding { .. } => &[
            ("same place", |scan, at| is_inside(scan, at) && at == 0),
            ("inside the store", |scan, at| is_inside(scan, at) && at > 0),
            ("overlaps partly", |scan, at| !is_inside(scan, at) && !is_apart(scan, at)),
            ("apart", |scan, at| is_apart(scan, at)),
        ],
    }
}

const LINE: i64 = units::LINE as i64;
const PAGE: i64 = units::BASE_PAGE as i64;

/// Bytes of an access of a scan of loads or stores alone.
fn accessed(scan: Scan) -> i64 {
    scan.bytes().into_iter().max().unwrap_or(0) as i64
}

/// Whether an access crosses a boundary between blocks of so many bytes that it would fit into.
fn crosses(scan: Scan, at: i64, block: i64) -> bool {
    accessed(scan) <= block && at % block + accessed(scan) > block
}

/// Whether a load so many bytes beyond a store has no byte in common with it.
fn is_apart(scan: Scan, at: i64) -> bool {
    let [stored, loaded] = scan.bytes().map(|bytes| bytes as i64);
    at + loaded <= 0 || stored <= at
}

/// Whether the store wrote every byte that the load wants.
fn is_inside(scan: Scan, at: i64) -> bool {
    let [stored, loaded] = scan.bytes().map(|bytes| bytes as i64);
    0 <= at && at + loaded <= stored
}

/// Cycles for each access, sweep by sweep: in each sweep one number an offset.
type Sweeps = Vec<Vec<f64>>;

fn of_scan(visits: &[&Measurement], hz: f64) -> Vec<OffsetRow> {
    let case = &visits[0].case;
    let Work::Scan(scan) = case.work else { return Vec::new() };
    let offsets: Vec<i64> = scan.offsets().collect();
    let measured = measured(visits);
    let by_visit: Vec<Sweeps> = measured.iter().map(|visit| sweeps(visit, offsets.len(), hz)).collect();
    let by_visit: Vec<Sweeps> = by_visit.into_iter().filter(|sweeps| !sweeps.is_empty()).collect();
    let mut quality = Quality::of(visits);
    if quality.is_measured() && by_visit.is_empty() {
        quality.refuse(Status::Invalid, "no visit has a sample of each offset");
    }
    (quality.rounds, quality.samples) = (by_visit.len(), by_visit.iter().map(Vec::len).sum());
    let all: Vec<Vec<f64>> = by_visit.iter().map(|sweeps| middle(sweeps)).collect();
    let (ends, count) = ([*scan.offsets().start(), *scan.offsets().end()], offsets.len());
    let bare = OffsetFigures { place: "any", offsets: ends, count, cycles: None, curve: Vec::new() };
    let row = |quality: &Quality, figures| Row { case: case.clone(), quality: quality.clone(), figures };
    let Some(summary) = summarize(&all) else { return vec![row(&quality, bare)] };
    quality.flags = scan_flags(case, &measured, &all, &summary, hz);
    let overall = middle(&by_visit.concat());
    let at = |&(place, holds): &Crossing| {
        let here: Vec<usize> = (0..offsets.len()).filter(|&index| holds(scan, offsets[index])).collect();
        let ends = [offsets[*here.first()?], offsets[*here.last()?]];
        let cycles = cost(&by_visit, &all, &overall, &here);
        Some(row(&quality, OffsetFigures { place, offsets: ends, count: here.len(), cycles, curve: Vec::new() }))
    };
    let mut rows: Vec<OffsetRow> = places(scan).iter().filter_map(at).collect();
    if let Some(first) = rows.first_mut() {
        first.curve = offsets.iter().copied().zip(overall).collect();
    }
    rows
}

/// A visit's whole sweeps. A sweep that was cut off is left out.
fn sweeps(visit: &Measured, offsets: usize, hz: f64) -> Sweeps {
    // One clock for the visit: a single reading may have been disturbed, and would fall on dozens of samples.
    let Some(clock) = core_clock(&[visit], hz) else { return Vec::new() };
    let cycles = |ticks: &u64| *ticks as f64 / hz * clock / visit.repetitions as f64;
    visit.samples.ticks.chunks_exact(offsets).map(|sweep| sweep.iter().map(cycles).collect()).collect()
}

/// The places of a scan, in the order of [`by_place`].
pub(crate) fn place_names(scan: Scan) -> Vec<&'static str> {
    places(scan).iter().map(|(place, _)| *place).collect()
}

/// The cycles of one visit at each place: of each sweep the median over the place's offsets.
pub(crate) fn by_place(visit: &Measured, scan: Scan, hz: f64) -> Vec<(&'static str, Vec<f64>)> {
    let offsets: Vec<i64> = scan.offsets().collect();
    let sweeps = sweeps(visit, offsets.len(), hz);
    let at = |&(place, holds): &Crossing| {
        let here: Vec<usize> = (0..offsets.len()).filter(|&index| holds(scan, offsets[index])).collect();
        (place, sweeps.iter().filter_map(|sweep| median(here.iter().map(|&index| sweep[index]))).collect())
    };
    places(scan).iter().map(at).collect()
}

/// The median of each offset over sweeps, of which there is at least one.
fn middle(sweeps: &[Vec<f64>]) -> Vec<f64> {
    let at = |index: usize| median(sweeps.iter().map(|sweep| sweep[index])).unwrap_or(f64::NAN);
    (0..sweeps.first().map_or(0, Vec::len)).map(at).collect()
}

/// What the offsets with these indices cost. `middles` are the visits' medians, `overall` those of all visits.
fn cost(by_visit: &[Sweeps], middles: &[Vec<f64>], overall: &[f64], here: &[usize]) -> Option<Cost> {
    let at = |values: &[f64]| -> Vec<f64> { here.iter().map(|&index| values[index]).collect() };
    let Summary { median: middle, ci95: [mut low, mut high], .. } = summarize(&[at(overall)])?;
    // Samples of one visit are not independent, and three visits are too few for more than the range of what they say.
    for visit in middles.iter().filter_map(|visit| median(at(visit))) {
        (low, high) = (low.min(visit), high.max(visit));
    }
    let best = by_visit.iter().flatten().flat_map(|sweep| at(sweep)).fold(f64::INFINITY, f64::min);
    Some(Cost::plain(best, middle, [low, high]))
}

/// A scan's samples are of many quantities: that they scatter or fall into groups is what it wants to know, no flaw.
fn scan_flags(case: &Case, measured: &[&Measured], all: &[Vec<f64>], summary: &Summary, hz: f64) -> Vec<Flag> {
    let samples = measured.iter().map(|visit| visit.samples.ticks.len()).sum();
    let summary = Summary { samples, ..summary.clone() };
    let mut flags = flags(case, measured, all, &summary, hz);
    let of_figures = [Flag::Bimodal, Flag::Outliers, Flag::FewSamples, Flag::WideInterval];
    flags.retain(|flag| !of_figures.contains(flag));
    flags
}
