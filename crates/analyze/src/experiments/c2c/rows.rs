//! Hand-overs of a line between cores: from visits to rows, and what pairs that are equally near have in common.

use membound_core::in_order::{InOrder, distinct};
use membound_core::index::{Index, index};

use schemars::JsonSchema;
use serde::Serialize;

use crate::flag::Flag;
use crate::quality::Sampled;
use crate::rate::Cost;
use crate::row::{Metric, Row};
use crate::visits::Visits;
use membound_core::case::Work;
use membound_core::machine::cpus::CoreKind;
use membound_core::machine::topology::Relation;
use membound_core::memory::{MemoryKind, Obtained};
use membound_core::record::{Measured, Measurement};
use membound_core::stats::quantiles::median;
use membound_core::work::c2c::Home;

/// What passing a line between two cores costs: one tidy row.
pub type HandoverRow = Row<HandoverFigures>;

/// How long a line takes to the other core.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HandoverFigures {
    /// How near they are.
    #[serde(skip)]
    pub relation: Relation,
    /// Their kinds of core, on a machine with several.
    #[serde(skip)]
    pub kinds: Option<[CoreKind; 2]>,
    /// NUMA node of the page: asked for, else found; absent where unknown.
    #[serde(skip)]
    pub node: Option<u32>,
    /// Nanoseconds of one hand-over: half a round trip. Absent where nothing was measured.
    pub latency_ns: Option<Cost>,
    /// The same in core clock cycles of the first CPU, each sample by its own clock: the median of the visits that were undisturbed
    /// by their nanoseconds.
    pub latency_cycles: Option<f64>,
    /// Memory obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Obtained>,
}

/// What tells hand-overs from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HandoverKeys {
    /// The CPU that leads and is timed.
    from: u32,
    /// The CPU that answers; absent where there was no second one.
    to: Option<u32>,
    /// How near they are.
    relation: Relation,
    /// Their kinds of core, on a machine with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<[CoreKind; 2]>,
    /// Which of the two touched the line's page first.
    home: Home,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// NUMA node of the page: asked for, else found; absent where unknown.
    node: Option<u32>,
}

impl Metric for HandoverFigures {
    const NAME: &'static str = "c2c";
    const UNIT: &'static str = "ns";
    type Keys = HandoverKeys;

    fn keys(row: &HandoverRow) -> HandoverKeys {
        HandoverKeys {
            from: row.from(),
            to: row.to(),
            relation: row.relation,
            kinds: row.kinds,
            home: row.home(),
            memory: row.case.memory.kind,
            node: row.node,
        }
    }

    fn what(row: &HandoverRow) -> String {
        match row.to() {
            Some(to) => format!("CPU {} to {to}", row.from()),
            None => format!("CPU {}", row.from()),
        }
    }
}

impl HandoverRow {
    /// The CPU that leads and is timed.
    pub fn from(&self) -> u32 {
        self.case.cpus[0]
    }

    /// The CPU that answers; absent where there was no second one.
    pub fn to(&self) -> Option<u32> {
        self.case.cpus.get(1).copied()
    }

    /// Which of the two touched the line's page first.
    pub fn home(&self) -> Home {
        let home = if let Work::Handover(work) = self.case.work { Some(work.home) } else { None };
        home.expect("rows of hand-overs are made of hand-overs alone")
    }
}

/// All hand-overs of a record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Handovers {
    /// One row a pair and home, by CPUs.
    pub rows: Vec<HandoverRow>,
    /// The same by how near cores are, nearest first.
    pub groups: Vec<HandoverGroup>,
    /// Whether how near they are is what a hypervisor tells.
    pub is_virtual: bool,
}

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

/// All hand-overs, by CPUs.
pub(crate) fn handovers(visits: &Visits<'_>) -> Handovers {
    let machine = &visits.header().machine;
    let relation = machine.relations();
    let mut rows: Vec<HandoverRow> = visits.rows(|case| row(case, visits, &relation));
    rows.order_by_key(|row| (row.from(), row.to(), row.home(), row.case.memory.kind, row.node));
    mark_asymmetric(&mut rows);
    Handovers { groups: groups(&rows), rows, is_virtual: machine.is_virtual() }
}

fn row(visits: &[&Measurement], all: &Visits<'_>, relation: &dyn Fn(u32, u32) -> Relation) -> Option<HandoverRow> {
    let (hz, machine) = (all.hz(), &all.header().machine);
    let case = &visits[0].case;
    let Work::Handover(_) = case.work else { return None };
    let (from, to) = (*case.cpus.first()?, case.cpus.get(1).copied());
    let kind = |cpu: u32| machine.cpu(cpu)?.kind.get().filter(|kind| *kind != CoreKind::Uniform);
    let mut sampled = Sampled::of(visits, &all.gauge, |visit| latency_ns(visit, hz));
    let figures = HandoverFigures {
        relation: to.map_or(Relation::Unknown, |to| relation(from, to)),
        kinds: to.and_then(|to| Some([kind(from)?, kind(to)?])),
        node: sampled.node(case),
        latency_ns: sampled.cost(),
        latency_cycles: sampled.cycles(hz),
        obtained: sampled.obtained(),
    };
    Some(Row { case: case.clone(), quality: sampled.quality, figures })
}

/// Nanoseconds of one hand-over: half a round trip.
pub(crate) fn latency_ns(visit: &Measured, hz: f64) -> Vec<f64> {
    let handovers = visit.repetitions as f64 * visit.volume.units.max(1) as f64;
    visit.samples.ns_each(handovers, hz)
}

/// A line takes as long from a to b as from b to a, as half a round trip holds one of each. Which of the two is timed
/// must not matter: with the same CPU touching the page first, or where that was not measured, at the same home.
fn mark_asymmetric(rows: &mut [HandoverRow]) {
    let other = |home| if home == Home::First { Home::Second } else { Home::First };
    // Of several nodes the first, as rows are sorted.
    let mut measured: Index<_, &HandoverRow> = index(rows.len());
    for row in rows.iter().filter(|row| row.latency_ns.is_some()) {
        measured.entry((Some(row.from()), row.to(), row.home(), row.case.memory.kind)).or_insert(row);
    }
    let find = |row: &HandoverRow, home: Home| {
        measured.get(&(row.to(), Some(row.from()), home, row.case.memory.kind)).copied()
    };
    let differs = |row: &HandoverRow| {
        let mirror = find(row, other(row.home())).or_else(|| find(row, row.home()));
        let both = row.latency_ns.zip(mirror.and_then(|mirror| mirror.latency_ns));
        both.is_some_and(|(a, b)| a.is_apart(b))
    };
    let verdicts: Vec<bool> = rows.iter().map(differs).collect();
    for (row, differs) in rows.iter_mut().zip(verdicts) {
        row.quality.flag([(Flag::Asymmetric, differs)]);
    }
}

/// Pairs that are equally near, nearest first; on a machine with several kinds of cores by kinds too.
fn groups(rows: &[HandoverRow]) -> Vec<HandoverGroup> {
    let of_row = |row: &HandoverRow| (row.relation, row.kinds.map(|[a, b]| if a <= b { [a, b] } else { [b, a] }));
    let keys = distinct(rows.iter().filter(|row| row.quality.is_measured()).map(of_row));
    let group = |key| {
        let ours = || rows.iter().filter(move |row| row.quality.is_measured() && of_row(row) == key);
        let medians = || ours().filter_map(|row| row.latency_ns).map(|cost| cost.value());
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
