//! What offsets cost: from scans to rows.

use membound_core::in_order::InOrder;
use schemars::JsonSchema;
use serde::Serialize;

use crate::flag::Flag;
use crate::quality::{DISTURBED, Quality, Status, flags, states_of, summarize};
use crate::rate::Cost;
use crate::row::{Metric, Row};
use crate::visits::{Gauge, Visits, core_clock, measured};
use membound_core::case::{Case, Work};
use membound_core::kernel::scan::Scan;
use membound_core::memory::MemoryKind;
use membound_core::record::{Measured, Measurement};
use membound_core::stats::Summary;
use membound_core::stats::quantiles::median;
use membound_core::stats::states::Better;
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
    /// kind, each with its median over all sweeps. `ci95` is that of this median, widened to hold the median of
    /// each visit alone: it tells of differences between offsets and between visits. The capability is of sweeps: the median of each
    /// over the offsets of that kind. Absent where nothing was measured.
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
    /// and `crosses 32 B`; `crosses a line`, `crosses a page`. A load beside a store to another page: `aliases before` (it begins
    /// before the store's place and reaches into it), `aliases inside`, `apart`. Forwarding: `same place`, `inside the store`,
    /// `overlaps partly`, `apart`. Where nothing was measured: `any`.
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
    let gauge = &visits.gauge;
    let mut all: Vec<OffsetRow> = visits.cases.iter().flat_map(|visits| of_scan(visits, gauge)).collect();
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
        // Cores may compare the places alone, or the bytes: where the load begins before the store, a pair may cost more.
        Scan::Aliasing { .. } => &[
            ("aliases before", |scan, at| !is_apart(scan, at) && at < 0),
            ("aliases inside", |scan, at| !is_apart(scan, at) && at >= 0),
            ("apart", |scan, at| is_apart(scan, at)),
        ],
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
/// The share of its core around each sample, sweep by sweep.
type Shares = Vec<Vec<Option<f64>>>;

fn of_scan(visits: &[&Measurement], gauge: &Gauge) -> Vec<OffsetRow> {
    let (case, hz) = (&visits[0].case, gauge.hz);
    let Work::Scan(scan) = case.work else { return Vec::new() };
    let offsets: Vec<i64> = scan.offsets().collect();
    let measured = measured(visits);
    let of_visit = |visit: &&Measured| {
        let shares = visit.samples.shares(&case.cpus, &gauge.undisturbed);
        (sweeps(visit, offsets.len(), hz), shares.chunks(offsets.len()).map(<[_]>::to_vec).collect())
    };
    let whole = measured.iter().map(of_visit).filter(|(sweeps, _)| !sweeps.is_empty());
    let (by_visit, shares): (Vec<Sweeps>, Vec<Shares>) = whole.unzip();
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
        let cycles = cost(&by_visit, &shares, &overall, &here);
        let mut quality = quality.clone();
        if let Some(cost) = cycles {
            let is_disturbed = cost.undisturbed_share < DISTURBED;
            quality.flag([(Flag::Disturbed, is_disturbed), (Flag::FewSamples, !cost.has_interval())]);
        }
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

/// What the offsets with these indices cost. `overall` are the medians over all visits.
fn cost(by_visit: &[Sweeps], shares: &[Shares], overall: &[f64], here: &[usize]) -> Option<Cost> {
    let at = |values: &[f64]| -> Vec<f64> { here.iter().map(|&index| values[index]).collect() };
    let summary = summarize(&[at(overall)])?;
    let [mut low, mut high] = summary.ci95;
    // Samples of one visit are not independent, and three visits are too few for more than the range of what they say.
    for visit in by_visit.iter().filter_map(|sweeps| median(at(&middle(sweeps)))) {
        (low, high) = (low.min(visit), high.max(visit));
    }
    let of_sweeps = |sweeps: &Sweeps| sweeps.iter().filter_map(|sweep| median(at(sweep))).collect::<Vec<f64>>();
    // A median is that of whole cores where most of its samples had theirs.
    let share = |shares: &Vec<Option<f64>>| median(here.iter().filter_map(|&index| *shares.get(index)?));
    let batches: Vec<Vec<f64>> = by_visit.iter().map(of_sweeps).collect();
    let shares: Vec<Vec<Option<f64>>> = shares.iter().map(|shares| shares.iter().map(share).collect()).collect();
    let best = by_visit.iter().flatten().flat_map(|sweep| at(sweep)).fold(f64::INFINITY, f64::min);
    let summary = Summary { ci95: [low, high], ..summary };
    Some(Cost::new(best, &summary, states_of(&batches, &shares, Better::Lower)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;
    use membound_core::memory::MemorySpec;
    use membound_core::record::probes::{ProbeSamples, Reading};
    use membound_core::record::{Outcome, Sample, Samples};
    use membound_core::units::Bytes;

    /// One sweep on a core of 2 GHz by a clock of 1 GHz, on which a thousand accesses take a thousand ticks for each two cycles. A whole
    /// core does four additions per cycle.
    fn visit(scan: Scan, cycles: impl Fn(i64) -> f64, is_whole: bool) -> Measurement {
        let (mut samples, mut probes) = (Samples::default(), ProbeSamples::default());
        (probes.chain_links, probes.wide_adds) = (2000, 8000);
        for at in scan.offsets() {
            samples.push(Sample { ticks: (cycles(at) * 500.0) as u64, core_clock_ticks: 1000, ..Sample::default() });
            let reading = Reading { chain_ticks: 1000, wide_ticks: if is_whole { 1000 } else { 2000 } };
            probes.push([[reading; 2]].into_iter());
        }
        samples.probes = Some(probes);
        let measured = Measured { repetitions: 1000, core_clock_links: 2000, samples, ..Measured::default() };
        let case = Case::new(Work::Scan(scan), MemorySpec::of(MemoryKind::Base), vec![0], Bytes(Scan::SCRATCH));
        Measurement::new(case, 0, Outcome::Measured(Box::new(measured)))
    }

    fn rows(visits: &[Measurement], others: &[Measurement]) -> Vec<OffsetRow> {
        let gauge = Gauge::of(visits.iter().chain(others), 1e9);
        of_scan(&visits.iter().collect::<Vec<_>>(), &gauge)
    }

    /// A pair takes 4 cycles where the load begins before the store, 3 inside it, 2 apart; beside a busy sibling twice as many.
    fn pair(at: i64) -> f64 {
        match at {
            -7..0 => 4.0,
            0..8 => 3.0,
            _ => 2.0,
        }
    }

    #[test]
    fn offsets_of_disturbed_visits_claim_no_interval() {
        let scan = Scan::Aliasing { bytes: 8 };
        let slow = || visit(scan, |at| 2.0 * pair(at), false);
        let elsewhere = visit(Scan::Forwarding { stored: 8, loaded: 8 }, |_| 1.0, true);
        let disturbed = rows(&[slow()], &[elsewhere]);
        for row in &disturbed {
            let cost = row.cycles.unwrap();
            assert!(!cost.has_interval() && cost.undisturbed_share == 0.0, "{cost:?}");
            assert!(row.quality.has(Flag::Disturbed) && row.quality.has(Flag::FewSamples), "{:?}", row.quality.flags);
        }
        assert!(disturbed.sentences().is_empty(), "{:?}", disturbed.sentences());
        // One of three was disturbed: the figure is that of the others.
        let whole = || visit(scan, pair, true);
        let found = rows(&[whole(), slow(), whole()], &[]);
        let figures: Vec<_> = found.iter().map(|row| (row.place, row.count, row.cycles.unwrap().value())).collect();
        assert_eq!(figures, [("aliases before", 7, 4.0), ("aliases inside", 8, 3.0), ("apart", 242, 2.0)]);
        assert!(found.iter().all(|row| row.quality.has(Flag::FewSamples) && !row.quality.has(Flag::Disturbed)));
        assert!(found.iter().all(|row| (row.cycles.unwrap().undisturbed_share - 2.0 / 3.0).abs() < 1e-12));
    }

    #[test]
    fn aliasing_is_told_by_where_the_load_begins() {
        let scan = Scan::Aliasing { bytes: 8 };
        let visits: Vec<Measurement> = (0..5).map(|_| visit(scan, pair, true)).collect();
        let found = rows(&visits, &[]);
        assert!(found.iter().all(|row| row.cycles.unwrap().has_interval() && !row.quality.has(Flag::FewSamples)));
        let says = "A load of 8 B and a store to another page that overlap modulo 4 KiB take 4.00 cycles per pair instead of 2.00 (4 KiB \
                    aliasing).";
        assert_eq!(found.sentences(), [says]);
    }
}
