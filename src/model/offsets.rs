//! What offsets cost: from scans to rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Cost;
use super::quality::{Quality, Status, flags, rated, summarize};
use super::rows::{core_clock, measured, median, visits};
use crate::kernel::scan::Scan;
use crate::memory::MemoryKind;
use crate::plan::{Case, Work};
use crate::record::{Measured, Measurement, Record};
use crate::stats::Summary;

/// What an offset costs: one tidy row for all offsets of a scan at which an access lies alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OffsetRow {
    /// `offset`.
    pub metric: String,
    /// What was repeated.
    pub scan: Scan,
    /// How the accesses lie. Loads and stores alone: `inside a line`, and of these `aligned`, `crosses 16 B` (and not 32)
    /// and `crosses 32 B`; `crosses a line`, `crosses a page`. A load beside a store: `aliases`, `apart`. Forwarding: `same
    /// place`, `inside the store`, `overlaps partly`, `apart`. Where nothing was measured: `any`.
    pub place: String,
    /// First and last offset of that kind, in bytes.
    pub offsets: [i64; 2],
    /// How many offsets of that kind there are.
    pub count: usize,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// CPU.
    pub cpus: Vec<u32>,
    /// `cycles`.
    pub unit: String,
    /// Core clock cycles for each access (with a pair of accesses: for each pair). The median is over the offsets of that
    /// kind, each with its median over all sweeps. The interval is that of this median, widened to hold the median of
    /// each visit alone: it tells of differences between offsets and between visits. Absent where nothing was measured.
    pub cycles: Option<Cost>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Median cycles at each offset of the whole scan, for charts: on its first row only. Not part of the JSON row.
    #[serde(skip)]
    pub curve: Vec<(i64, f64)>,
}

rated!(OffsetRow, |row| row.scan.to_string());

/// One row for each scan and each way in which its accesses lie, by scan.
pub(super) fn rows(record: &Record) -> Vec<OffsetRow> {
    let hz = record.header.clock.hz.0;
    let mut all: Vec<(Case, Vec<OffsetRow>)> = Vec::new();
    for visits in visits(record) {
        let case = &visits[0].case;
        if let Work::Scan(scan) = case.work {
            all.push((case.clone(), of_scan(&visits, case, scan, hz)));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().flat_map(|(_, rows)| rows).collect()
}

/// A name, and whether accesses of a scan at an offset lie so.
type Place = (&'static str, fn(Scan, i64) -> bool);

/// The places that tell a scan's offsets apart. A place may be a part of another.
fn places(scan: Scan) -> &'static [Place] {
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

const LINE: i64 = 64;
const PAGE: i64 = 4096;

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

fn of_scan(visits: &[&Measurement], case: &Case, scan: Scan, hz: f64) -> Vec<OffsetRow> {
    let offsets: Vec<i64> = scan.offsets().collect();
    let measured = measured(visits);
    let by_visit: Vec<Sweeps> = measured.iter().map(|visit| sweeps(visit, offsets.len(), hz)).collect();
    let by_visit: Vec<Sweeps> = by_visit.into_iter().filter(|sweeps| !sweeps.is_empty()).collect();
    let mut bare = bare_row(visits, case, scan, &offsets);
    if bare.quality.is_measured() && by_visit.is_empty() {
        bare.quality.refuse(Status::Invalid, "no visit has a sample of each offset");
    }
    (bare.quality.rounds, bare.quality.samples) = (by_visit.len(), by_visit.iter().map(Vec::len).sum());
    let all: Vec<Vec<f64>> = by_visit.iter().map(|sweeps| middle(sweeps)).collect();
    let Some(summary) = summarize(&all) else { return vec![bare] };
    bare.quality.flags = scan_flags(case, &measured, &all, &summary, hz);
    let overall = middle(&by_visit.concat());
    let row = |&(place, holds): &Place| {
        let here: Vec<usize> = (0..offsets.len()).filter(|&index| holds(scan, offsets[index])).collect();
        let (first, last) = (*here.first()?, *here.last()?);
        Some(OffsetRow {
            place: place.into(),
            offsets: [offsets[first], offsets[last]],
            count: here.len(),
            cycles: cost(&by_visit, &all, &overall, &here),
            ..bare.clone()
        })
    };
    let mut rows: Vec<OffsetRow> = places(scan).iter().filter_map(row).collect();
    if let Some(first) = rows.first_mut() {
        first.curve = offsets.iter().copied().zip(overall).collect();
    }
    rows
}

fn bare_row(visits: &[&Measurement], case: &Case, scan: Scan, offsets: &[i64]) -> OffsetRow {
    OffsetRow {
        metric: "offset".into(),
        scan,
        place: "any".into(),
        offsets: [*scan.offsets().start(), *scan.offsets().end()],
        count: offsets.len(),
        memory: case.memory.kind,
        cpus: case.cpus.clone(),
        unit: "cycles".into(),
        cycles: None,
        quality: Quality::of(visits),
        curve: Vec::new(),
    }
}

/// A visit's whole sweeps. A sweep that was cut off is left out.
fn sweeps(visit: &Measured, offsets: usize, hz: f64) -> Sweeps {
    // One clock for the visit: a single reading may have been disturbed, and would fall on dozens of samples.
    let Some(clock) = core_clock(&[visit], hz) else { return Vec::new() };
    let cycles = |ticks: &u64| *ticks as f64 / hz * clock / visit.repetitions as f64;
    visit.samples.ticks.chunks_exact(offsets).map(|sweep| sweep.iter().map(cycles).collect()).collect()
}

/// The places of a scan, in the order of [`by_place`].
pub(super) fn place_names(scan: Scan) -> Vec<&'static str> {
    places(scan).iter().map(|(place, _)| *place).collect()
}

/// The cycles of one visit at each place: of each sweep the median over the place's offsets.
pub(super) fn by_place(visit: &Measured, scan: Scan, hz: f64) -> Vec<(&'static str, Vec<f64>)> {
    let offsets: Vec<i64> = scan.offsets().collect();
    let sweeps = sweeps(visit, offsets.len(), hz);
    let at = |&(place, holds): &Place| {
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
    for visit in middles.iter().filter_map(|visit| median(at(visit).into_iter())) {
        (low, high) = (low.min(visit), high.max(visit));
    }
    let best = by_visit.iter().flatten().flat_map(|sweep| at(sweep)).fold(f64::INFINITY, f64::min);
    Some(Cost { best, median: middle, ci95: [low, high] })
}

/// A scan's samples are of many quantities: that they scatter or fall into groups is what it wants to know, no flaw.
fn scan_flags(case: &Case, measured: &[&Measured], all: &[Vec<f64>], summary: &Summary, hz: f64) -> Vec<String> {
    let samples = measured.iter().map(|visit| visit.samples.ticks.len()).sum();
    let summary = Summary { samples, ..summary.clone() };
    let mut flags = flags(case, measured, all, &summary, hz);
    flags.retain(|flag| !["bimodal", "outliers", "few-samples", "wide-interval"].contains(&flag.as_str()));
    flags
}
