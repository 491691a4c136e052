//! Works a report out of a record.

use crate::across::first_touch::FirstTouchSpeed;
use crate::across::limits::Limits;
use crate::across::roofline::Roofline;
use crate::across::shared_cores::SharedCores;
use crate::across::verdict::diagnosis::Diagnosis;
use crate::experiments::bandwidth;
use crate::experiments::bandwidth::rows::{BandwidthRow, FirstUse};
use crate::experiments::kinds::rows::{First, Pass};
use crate::experiments::latency::chases::Chases;
use crate::hierarchy::names::{Level, Levels, assumed, named};
use crate::rate::Rate;
use crate::report::Report;
use crate::visits::Visits;
use membound_core::curves::hierarchy::model::Curve;
use membound_core::curves::hierarchy::model::ends;
use membound_core::record::Record;
use membound_core::units::Bytes;

/// Works a report out of a record.
pub fn report(record: &Record) -> Report {
    of_visits(&Visits::of(record))
}

/// The same where they are grouped already.
pub(crate) fn of_visits(visits: &Visits<'_>) -> Report {
    let record = visits.record;
    let header = &record.header;
    let sheet = header.sheet.as_ref();
    let (mut rows, on_nodes) = crate::across::numa::rows::part(bandwidth::rows::rows(visits), record);
    let chases = crate::experiments::latency::chases::chases(visits);
    let mut levels = levels(&rows, &chases, record);
    bandwidth::levels::name_levels(&mut rows, &levels.all, &header.machine);
    let known = crate::across::limits::limits(&header.machine, sheet, &[]);
    crate::across::limits::mark_impossible(&mut rows, &known, &header.machine);
    bandwidth::levels::best_of_levels(&mut levels.all, &rows);
    let streaming = streaming(&levels.all, &rows);
    let is_beside_bandwidth = levels.iter().any(|level| !level.best.is_empty());
    let mut report = Report {
        host: header.host.clone(),
        tool: header.tool.clone(),
        command: header.command.clone(),
        started_unix_s: header.started_unix_s,
        seed: header.seed,
        clock: header.clock.clone(),
        machine: header.machine.clone(),
        before: header.before.clone(),
        kinds: crate::experiments::kinds::rows::compare(&passes(&rows)),
        device: crate::experiments::device::rows::on_device(visits),
        copies: crate::experiments::copies::rows::copies(visits),
        pages: crate::experiments::pages::rows::rows(visits),
        offsets: crate::experiments::offsets::rows::rows(visits),
        latency: chases.latency(&mut levels, streaming, is_beside_bandwidth, &header.machine),
        page_cache: crate::experiments::page_cache::rows::page_cache(visits),
        handovers: crate::experiments::c2c::rows::handovers(visits),
        loaded: crate::experiments::loaded::rows::under_load(visits),
        addrmap: crate::experiments::addrmap::rows::rows(visits),
        energy: crate::experiments::energy::rows::rows(visits),
        rounding: crate::experiments::rounding::rows::rounding(visits),
        congestion: crate::experiments::streams::rows::congestion(visits),
        plain: crate::experiments::plain::Plain::of(visits),
        messages: crate::experiments::pingpong::rows::messages(visits),
        end: record.end.clone(),
        visited: visits.cases.len() as u64,
        levels,
        shared_cores: SharedCores::of(visits, &rows, &header.machine),
        host_states: crate::across::host_states::host_states(visits, &rows),
        first_touch: FirstTouchSpeed::of(record),
        crossovers: bandwidth::stores::crossovers(&rows),
        scaling: bandwidth::stream::scaling(&rows),
        write_allocate: crate::across::traffic::write_allocate(&rows, &header.machine),
        weightings: crate::across::weights::weightings(&rows),
        stream: bandwidth::stream::stream_tables(&rows, record),
        findings: Vec::new(),
        warnings: Vec::new(),
        verdict: Diagnosis::default(),
        numa: crate::across::numa::numa(visits, on_nodes),
        limits: Limits::default(),
        flops: crate::experiments::flops::rows(visits),
        roofline: Roofline::default(),
        rows,
    };
    report.limits = crate::across::limits::limits(&report.machine, sheet, &report.rows);
    for best in report.levels.all.iter_mut().flat_map(|level| &mut level.best) {
        best.share = report.limits.share(&report.rows[best.row], &report.machine);
    }
    let line = report.machine.line(first_cpu(record));
    report.roofline = crate::across::roofline::roofline(&report.flops, &report.rows, &report.limits, &report.machine)
        .with_chases(line, report.latency.rows.iter().chain(&report.latency.together));
    report.findings = crate::experiments::sentences(&report);
    report.warnings = crate::across::findings::warnings(&report, visits);
    report.verdict = crate::across::verdict::verdict(&report);
    report
}

fn first_cpu(record: &Record) -> u32 {
    record.measurements.first().and_then(|visit| visit.case.cpus.first().copied()).unwrap_or(0)
}

/// The levels of the memory system by all curves together; without a curve (a handful of sizes) the caches that the operating
/// system claims.
fn levels(rows: &[BandwidthRow], chases: &Chases, record: &Record) -> Levels {
    let cpu = first_cpu(record);
    let machine = &record.header.machine;
    let told: Vec<Bytes> = machine.data_caches(cpu).iter().map(|cache| cache.size).collect();
    let curves: Vec<Curve> = [chases.curves(), bandwidth::levels::curves(rows)].concat();
    let sizes = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    let Some((least, most)) = sizes().min().zip(sizes().max()) else { return assumed(&told) };
    // A curve that ends within a cache needs claims, be they made up.
    let is_whole = told.last().is_some_and(|last| most.0 > last.0.saturating_mul(4));
    let claimed = if is_whole && machine.has_caches_of_qemu(cpu) { Vec::new() } else { told };
    let mut levels = named(&ends(&curves, &claimed), &claimed, [least, most]);
    chases.measure(&mut levels);
    levels
}

/// What streaming loads of one core get from memory.
fn streaming(levels: &[Level], rows: &[BandwidthRow]) -> Option<Rate> {
    let level = levels.iter().find(|level| level.name == "memory")?;
    let best = level.best.iter().find(|best| (best.kernel.as_str(), best.threads) == ("load", 1))?;
    rows.get(best.row)?.payload_bps
}

/// What memory kinds are compared by.
fn passes(rows: &[BandwidthRow]) -> Vec<Pass<'_>> {
    fn pass(row: &BandwidthRow) -> Pass<'_> {
        Pass {
            case: &row.case,
            quality: &row.quality,
            payload_bps: row.payload_bps,
            first_use: row.first_use.map(|FirstUse { total_s, map_s, faults }| First { total_s, map_s, faults }),
            obtained: row.obtained.as_ref(),
            batches: &row.batches,
        }
    }
    rows.iter().map(pass).collect()
}
