//! Hand-overs of a line between cores: from visits to rows, and what pairs that are equally near have in common.

use super::rows::{core_clock, flags, measured, median, outcome, visits};
use super::{Cost, HandoverGroup, HandoverRow, Report};
use crate::machine::{CoreKind, Machine, Relation};
use crate::plan::{Case, Home, Work};
use crate::record::{Measured, Measurement, Record};
use crate::stats;
use crate::units::{Nanoseconds, significant};

/// One row a pair and home, by CPUs.
pub(super) fn rows(record: &Record) -> Vec<HandoverRow> {
    let (hz, machine) = (record.header.clock.hz.0, &record.header.machine);
    let mut rows: Vec<HandoverRow> = visits(record).iter().filter_map(|visits| row(visits, machine, hz)).collect();
    rows.sort_by_key(|row| (row.from, row.to, row.home, row.memory, row.node));
    mark_asymmetric(&mut rows);
    rows
}

fn row(visits: &[&Measurement], machine: &Machine, hz: f64) -> Option<HandoverRow> {
    let case = &visits[0].case;
    let Work::Handover(work) = case.work else { return None };
    let measured = measured(visits);
    let mut row = bare_row(case, work.home, machine)?;
    (row.outcome, row.reason) = outcome(visits);
    let batches: Vec<Vec<f64>> = measured.iter().map(|visit| latency_ns(visit, hz)).collect();
    let views: Vec<&[f64]> = batches.iter().map(Vec::as_slice).collect();
    if let Some(summary) = stats::summarize(&views) {
        row.latency_ns = Some(Cost { best: summary.least, median: summary.median, ci95: summary.ci95 });
        row.latency_cycles = core_clock(&measured, hz).map(|clock| summary.median * 1e-9 * clock);
        (row.samples, row.rounds) = (summary.samples, measured.len());
        row.flags = flags(case, &measured, &batches, &summary, hz);
        row.obtained = measured.last().map(|last| last.obtained.clone());
        if let (None, Some([only])) = (row.node, row.obtained.as_ref().map(|o| &o.pages_on_node[..])) {
            row.node = Some(only.node);
        }
    }
    Some(row)
}

fn bare_row(case: &Case, home: Home, machine: &Machine) -> Option<HandoverRow> {
    let (from, to) = (*case.cpus.first()?, case.cpus.get(1).copied());
    let kind = |cpu: u32| machine.cpu(cpu)?.kind.get().filter(|kind| *kind != CoreKind::Uniform);
    Some(HandoverRow {
        metric: "c2c".into(),
        from,
        to,
        relation: to.map_or(Relation::Unknown, |to| machine.relation(from, to)),
        kinds: to.and_then(|to| Some([kind(from)?, kind(to)?])),
        home,
        memory: case.memory.kind,
        node: case.memory.node(),
        unit: "ns".into(),
        latency_ns: None,
        latency_cycles: None,
        samples: 0,
        rounds: 0,
        outcome: String::new(),
        reason: None,
        flags: Vec::new(),
        obtained: None,
    })
}

/// Nanoseconds of one hand-over: half a round trip.
pub(super) fn latency_ns(visit: &Measured, hz: f64) -> Vec<f64> {
    let handovers = visit.repetitions as f64 * visit.volume.elements.max(1) as f64;
    visit.samples.ticks.iter().map(|ticks| *ticks as f64 / hz * 1e9 / handovers).collect()
}

/// A line takes as long from a to b as from b to a, as half a round trip holds one of each. Which of the two is timed
/// must not matter: with the same CPU touching the page first, or where that was not measured, at the same home.
fn mark_asymmetric(rows: &mut [HandoverRow]) {
    let other = |home| if home == Home::First { Home::Second } else { Home::First };
    let find = |row: &HandoverRow, home: Home| {
        let is_mirror = |mirror: &&HandoverRow| {
            (Some(mirror.from), mirror.to, mirror.home) == (row.to, Some(row.from), home)
                && (mirror.memory, mirror.latency_ns.is_some()) == (row.memory, true)
        };
        rows.iter().find(is_mirror)
    };
    let differs = |row: &HandoverRow| {
        let mirror = find(row, other(row.home)).or_else(|| find(row, row.home));
        let both = row.latency_ns.zip(mirror.and_then(|mirror| mirror.latency_ns));
        both.is_some_and(|(a, b)| a.ci95[0] > b.ci95[1] || b.ci95[0] > a.ci95[1])
    };
    let verdicts: Vec<bool> = rows.iter().map(differs).collect();
    for (row, _) in rows.iter_mut().zip(verdicts).filter(|(_, differs)| *differs) {
        row.flags.push("asymmetric".into());
    }
}

/// Pairs that are equally near, nearest first; on a machine with several kinds of cores by kinds too.
pub(super) fn groups(rows: &[HandoverRow]) -> Vec<HandoverGroup> {
    let of_row = |row: &HandoverRow| (row.relation, row.kinds.map(|[a, b]| if a <= b { [a, b] } else { [b, a] }));
    let mut keys: Vec<_> = rows.iter().filter(|row| is_measured(row)).map(of_row).collect();
    keys.sort_unstable();
    keys.dedup();
    let group = |key| {
        let ours = || rows.iter().filter(move |row| is_measured(row) && of_row(row) == key);
        let medians = || ours().filter_map(|row| row.latency_ns).map(|cost| cost.median);
        Some(HandoverGroup {
            relation: key.0,
            kinds: key.1,
            rows: ours().count(),
            least_ns: medians().min_by(f64::total_cmp)?,
            median_ns: median(medians())?,
            greatest_ns: medians().max_by(f64::total_cmp)?,
            median_cycles: median(ours().filter_map(|row| row.latency_cycles)),
        })
    };
    keys.into_iter().filter_map(group).collect()
}

fn is_measured(row: &HandoverRow) -> bool {
    row.outcome == "measured"
}

/// What passing a line costs, by how near cores are.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let part = |group: &HandoverGroup| {
        let between = between(group.relation);
        let kinds = group.kinds.map_or_else(String::new, |[a, b]| format!(" ({a} and {b})"));
        let cycles = group.median_cycles.map_or_else(String::new, |cycles| format!(", {} cycles", significant(cycles)));
        let [least, most] = [group.least_ns, group.greatest_ns].map(|ns| Nanoseconds(ns).to_string());
        let range = if least == most { String::new() } else { format!("; {least} to {most} over pairs and homes") };
        format!("between {between}{kinds} in {} ({}{range})", Nanoseconds(group.median_ns), trimmed(&cycles))
    };
    let parts: Vec<String> = report.handover_groups.iter().map(part).collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let told = if report.machine.is_virtual() { " How near they are is what the hypervisor tells." } else { "" };
    let mut all = vec![format!("A line passes {}, one way.{told}", parts.join(", "))];
    let asymmetric = report.handovers.iter().filter(|row| row.flags.iter().any(|flag| flag == "asymmetric")).count();
    if asymmetric > 0 {
        all.push(format!(
            "{asymmetric} of {} hand-overs differ from their mirror image by more than the intervals: something else \
             than distance is in them.",
            report.handovers.len()
        ));
    }
    all
}

fn trimmed(cycles: &str) -> &str {
    cycles.trim_start_matches(", ")
}

fn between(relation: Relation) -> &'static str {
    match relation {
        Relation::Siblings => "two hardware threads of one core",
        Relation::Cluster => "two cores of one cluster",
        Relation::CacheDomain => "two cores of one cache domain",
        Relation::Package => "two cache domains of one package",
        Relation::OtherPackage => "two packages",
        Relation::Unknown => "two cores",
    }
}
