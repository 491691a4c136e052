//! Hand-overs of a line between cores: from visits to rows, and what pairs that are equally near have in common.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quality::{Sampled, rated};
use super::rows::{median, visits};
use super::{Cost, Quality, Report};
use crate::machine::{CoreKind, Machine, Relation};
use crate::memory::{MemoryKind, Obtained};
use crate::plan::{Home, Work};
use crate::record::{Measured, Measurement, Record};
use crate::units::{Nanoseconds, significant};

/// What passing a line between two cores costs: one tidy row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HandoverRow {
    /// `c2c`.
    pub metric: String,
    /// The CPU that leads and is timed.
    pub from: u32,
    /// The CPU that answers; absent where there was no second one.
    pub to: Option<u32>,
    /// How near they are.
    pub relation: Relation,
    /// Their kinds of core, on a machine with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<[CoreKind; 2]>,
    /// Which of the two touched the line's page first.
    pub home: Home,
    /// Memory kind asked for.
    pub memory: MemoryKind,
    /// NUMA node of the page: asked for, else found; absent where unknown.
    pub node: Option<u32>,
    /// `ns`.
    pub unit: String,
    /// Nanoseconds of one hand-over: half a round trip. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The median in core clock cycles of the first CPU.
    pub latency_cycles: Option<f64>,
    /// How far the figures can be trusted.
    #[serde(flatten)]
    pub quality: Quality,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

rated!(HandoverRow, |row| match row.to {
    Some(to) => format!("CPU {} to {to}", row.from),
    None => format!("CPU {}", row.from),
});

/// Hand-overs between pairs that are equally near.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HandoverGroup {
    /// How near.
    pub relation: Relation,
    /// Their kinds of core, stronger first, on a machine with several.
    pub kinds: Option<[CoreKind; 2]>,
    /// Rows: both directions and homes of all pairs.
    pub rows: usize,
    /// Least median, in nanoseconds.
    pub least_ns: f64,
    /// Median of the medians.
    pub median_ns: f64,
    /// Greatest median.
    pub greatest_ns: f64,
    /// Median of the medians in core clock cycles.
    pub median_cycles: Option<f64>,
}

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
    let (from, to) = (*case.cpus.first()?, case.cpus.get(1).copied());
    let kind = |cpu: u32| machine.cpu(cpu)?.kind.get().filter(|kind| *kind != CoreKind::Uniform);
    let sampled = Sampled::of(visits, hz, |visit| latency_ns(visit, hz));
    Some(HandoverRow {
        metric: "c2c".into(),
        from,
        to,
        relation: to.map_or(Relation::Unknown, |to| machine.relation(from, to)),
        kinds: to.and_then(|to| Some([kind(from)?, kind(to)?])),
        home: work.home,
        memory: case.memory.kind,
        node: sampled.node(case),
        unit: "ns".into(),
        latency_ns: sampled.cost(),
        latency_cycles: sampled.cycles(hz),
        obtained: sampled.obtained(),
        quality: sampled.quality,
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
    for (row, differs) in rows.iter_mut().zip(verdicts) {
        row.quality.flag([("asymmetric", differs)]);
    }
}

/// Pairs that are equally near, nearest first; on a machine with several kinds of cores by kinds too.
pub(super) fn groups(rows: &[HandoverRow]) -> Vec<HandoverGroup> {
    let of_row = |row: &HandoverRow| (row.relation, row.kinds.map(|[a, b]| if a <= b { [a, b] } else { [b, a] }));
    let mut keys: Vec<_> = rows.iter().filter(|row| row.quality.is_measured()).map(of_row).collect();
    keys.sort_unstable();
    keys.dedup();
    let group = |key| {
        let ours = || rows.iter().filter(move |row| row.quality.is_measured() && of_row(row) == key);
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
    let asymmetric = report.handovers.iter().filter(|row| row.quality.has("asymmetric")).count();
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
