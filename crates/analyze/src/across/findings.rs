//! Sentences: the answer, and what limits or disturbs it.

use std::collections::BTreeMap;

use crate::across::limits;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::flag::Flag;
use crate::quality::{Quality, Status};
use crate::report::Report;
use crate::visits::Visits;
use crate::warning::Warning;
use membound_core::case::Case;
use membound_core::in_order::distinct;
use membound_core::memory::behaviour::IGNORED;
use membound_core::units::counted;

/// What disturbed or limits the figures, with its cure.
pub(crate) fn warnings(report: &Report, visits: &Visits<'_>) -> Vec<Warning> {
    let mut all = Vec::new();
    all.extend(simulated(report));
    all.extend(faults(report));
    all.extend(flagged(report));
    all.extend(levels_differ(report));
    all.extend(exceeded(report));
    let said = |words: Vec<Words>| words.into_iter().map(|(text, cure)| Warning { text, cure });
    let (machine, run) =
        (crate::across::warnings::of_machine(&report.machine), crate::across::warnings::of_run(visits));
    let page_cache = crate::experiments::page_cache::sections::warnings(&report.page_cache);
    said(all).chain(machine).chain(run).chain(said(unfinished(report, visits))).chain(page_cache).collect()
}

type Words = (String, String);

fn words(text: impl Into<String>, cure: impl Into<String>) -> Words {
    (text.into(), cure.into())
}

fn simulated(report: &Report) -> Option<Words> {
    (report.clock.name == "simulated")
        .then(|| words("these figures are simulated, nothing was measured", "measure on a machine"))
}

fn faults(report: &Report) -> Vec<Words> {
    let mut found = Vec::new();
    let is_ignored = |quality: &Quality| quality.reason.as_ref().is_some_and(|reason| reason.starts_with(IGNORED));
    let kinds = |row: &BandwidthRow| {
        row.case.streams.iter().map(|named| named.memory.kind).chain([row.case.memory.kind]).collect::<Vec<_>>()
    };
    let ignored = report.rows.iter().filter(|row| is_ignored(&row.quality)).flat_map(kinds);
    let ignored = distinct(ignored.filter(|kind| kind.is_memory_type()));
    if !ignored.is_empty() {
        let names = ignored.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ");
        found.push(words(
            format!("{IGNORED}: {names} behave as write-back, so they were not measured"),
            "measure them on a host of your own, or where KVM heeds the guest's page attributes",
        ));
    }
    for outcome in [Status::Crashed, Status::Invalid] {
        let own = report.any_rows().filter(|row| !row.is_repeated()).filter_map(|row| Some((row, row.quality()?)));
        let is_so = |(_, quality): &(_, &Quality)| quality.outcome == outcome && !is_ignored(quality);
        let rows: Vec<_> = own.filter(is_so).collect();
        if let Some((first, quality)) = rows.first() {
            let reason = quality.reason.as_deref().unwrap_or_default();
            found.push(words(
                format!("{} {outcome}; the first: {}: {reason}", counted(rows.len() as u64, "case"), first.what()),
                "do not use their figures; run with --verify and report it",
            ));
        }
    }
    found
}

/// How far each case's figures can be trusted: a case may have several rows.
fn qualities(report: &Report) -> Vec<Vec<&Quality>> {
    let own = report.any_rows().filter(|row| !row.is_repeated());
    let mut cases: BTreeMap<&Case, Vec<&Quality>> = BTreeMap::new();
    for (case, quality) in own.filter_map(|row| Some((row.case()?, row.quality()?))) {
        if quality.samples > 0 {
            cases.entry(case).or_default().push(quality);
        }
    }
    cases.into_values().collect()
}

fn count(cases: &[Vec<&Quality>], flag: Flag) -> usize {
    cases.iter().filter(|rows| rows.iter().any(|quality| quality.has(flag))).count()
}

/// A flag that at least this share of cases carries is worth a warning of its own.
const MANY: f64 = 0.05;

fn flagged(report: &Report) -> Vec<Words> {
    let all = qualities(report);
    let measured = all.len().max(1);
    let mut found = Vec::new();
    let about = [
        (Flag::Bimodal, "samples fall into two groups: the speed flips between two values"),
        (Flag::Drift, "the speed changed by more than 10 % from round to round"),
        (Flag::Steal, "the hypervisor took CPU time away"),
        (Flag::Switches, "other work ran on the measured CPUs"),
        (Flag::ClockChanged, "the core clock changed"),
        (Flag::Faults, "pages were taken away and faulted in again"),
        (Flag::Imbalanced, "threads with equal work took unequal time"),
        (Flag::Migrated, "threads ran on other CPUs than asked for"),
        (Flag::PagesDiffer, "other pages were obtained than asked for"),
    ];
    for (flag, seen) in about {
        let cases = count(&all, flag);
        if cases as f64 > MANY * measured as f64 {
            found.push(words(format!("{seen} ({cases} of {measured} cases)"), flag.cure()));
        }
    }
    found
}

fn levels_differ(report: &Report) -> Vec<Words> {
    let mut found = Vec::new();
    let (machine, levels) = (&report.machine, &report.levels.all);
    let is_by_curves = !levels.is_empty() && levels.iter().all(|level| level.claimed.is_none());
    if is_by_curves && machine.cpus.first().is_some_and(|cpu| machine.has_caches_of_qemu(cpu.id)) {
        found.push(words(
            "the caches claimed are QEMU's own, not the processor's: levels are named by the curves alone",
            "let QEMU pass on the host's (-cpu host,host-cache-info=on; libvirt: <cache mode='passthrough'/>)",
        ));
    }
    for level in &report.levels.all {
        if let (Some(capacity), Some(claimed)) = (level.capacity, level.claimed) {
            let ratio = capacity.0 as f64 / claimed.0.max(1) as f64;
            if !(0.6..=1.6).contains(&ratio) {
                found.push(words(
                    format!("{} ends at {capacity} in the curve, the system says {claimed}", level.name),
                    "a shared or partitioned cache gives each tenant less, a hypervisor may misstate it; the curve is what programs get",
                ));
            }
        }
    }
    found
}

/// A figure cannot be above its limit: the limit is wrong, and named.
fn exceeded(report: &Report) -> Vec<Words> {
    let Report { rows, limits, machine, roofline, .. } = report;
    let of_rows = limits::exceeded(rows, limits, machine);
    let of_arithmetic = roofline.exceeded(limits.sheet.as_deref());
    let cure = "name the right sheet with --spec, and report it: no view trusts this limit";
    of_rows.into_iter().chain(of_arithmetic).map(|text| words(text, cure)).collect()
}

fn unfinished(report: &Report, visits: &Visits<'_>) -> Vec<Words> {
    let mut found = Vec::new();
    match &report.end {
        None if !report.is_cut_off() => {}
        None => found.push(words(
            "the record has no end: the run was killed",
            "its finished cases are complete; run again for the rest",
        )),
        Some(end) => {
            if end.overran {
                found.push(words(
                    "the run was stopped after twice its budget, since visits took longer than planned",
                    "its finished cases are complete; give a longer --budget",
                ));
            } else if end.interrupted {
                found.push(words("the run was interrupted", "its finished cases are complete; run again for the rest"));
            }
            let missing = end.planned.saturating_sub(visits.cases.len() as u64);
            if missing > 0 && !end.interrupted {
                found.push(words(
                    format!("the budget ended before {missing} of {} cases were visited", end.planned),
                    "give a longer --budget",
                ));
            }
        }
    }
    let all = qualities(report);
    let wide = count(&all, Flag::WideInterval);
    if wide > 0 {
        found.push(words(
            format!("{wide} of {} cases have intervals wider than ±5 %", all.len()),
            Flag::WideInterval.cure(),
        ));
    }
    found
}
