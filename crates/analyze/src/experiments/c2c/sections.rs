//! Hand-overs between cores: a heat map for each home, and what pairs that are equally near have in common.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::answer::Answer;
use crate::experiments::c2c::rows::{HandoverGroup, HandoverRow, Handovers};
use crate::flag::Flag;
use crate::missing::reasons;
use crate::section::{Cell, Section, Table};
use crate::wording::flag_notes;
use membound_core::machine::cpus::CoreKind;
use membound_core::machine::topology::Relation;
use membound_core::stats::quantiles::median;
use membound_core::units::{Nanoseconds, significant};
use membound_core::work::c2c::Home;

const ABOUT: &str = "Half of a round trip of one line between two CPUs, ns, undisturbed: the CPU on the left is timed, the one above answers. \
    Colour deepens from the least latency to the greatest, or to twice the least if that is more; * has a flag.";
/// The colour is full at so many times the least latency or beyond: else a difference of one per cent would glow.
const HEAT_RANGE: f64 = 2.0;

impl Answer for Handovers {
    /// What passing a line costs, by how near cores are.
    fn sentences(&self) -> Vec<String> {
        let part = |group: &HandoverGroup| {
            let between = between(group.relation);
            let kinds = group.kinds.map_or_else(String::new, |[a, b]| format!(" ({a} and {b})"));
            let cycles = group.median_cycles.map(|cycles| format!("{} cycles", significant(cycles)));
            let [least, most] = [group.least_ns, group.greatest_ns].map(|ns| Nanoseconds(ns).to_string());
            let range = (least != most).then(|| format!("{least} to {most} over pairs and homes"));
            let more: Vec<String> = cycles.into_iter().chain(range).collect();
            let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
            format!("between {between}{kinds} in {}{more}", Nanoseconds(group.median_ns))
        };
        let parts: Vec<String> = self.groups.iter().map(part).collect();
        if parts.is_empty() {
            return Vec::new();
        }
        let told = if self.is_virtual { " How near they are is what the hypervisor tells." } else { "" };
        let mut all = vec![format!("A line passes {}, one way.{told}", parts.join(", "))];
        let asymmetric = self.rows.iter().filter(|row| row.quality.has(Flag::Asymmetric)).count();
        if asymmetric > 0 {
            all.push(format!(
                "{asymmetric} of {} hand-overs differ from their mirror image by more than the intervals: something else \
                 than distance is in them.",
                self.rows.len()
            ));
        }
        all.extend(moved(self));
        all
    }

    /// The matrices and the groups.
    fn sections(&self) -> Vec<Section> {
        let rows = &self.rows;
        if rows.is_empty() {
            return Vec::new();
        }
        let groups = (!self.groups.is_empty()).then(|| by_nearness(&self.groups));
        vec![Section {
            id: "c2c",
            title: "Core to core".into(),
            about: ABOUT.into(),
            sentences: self.sentences(),
            tables: Home::ALL.iter().filter_map(|home| heat_map(rows, *home)).chain(groups).collect(),
            notes: flag_notes(rows),
            missing: reasons(rows),
            ..Section::default()
        }]
    }
}

/// Whether a host moved CPUs: pairs that were at times far nearer than most, and at times as far apart.
fn moved(handovers: &Handovers) -> Option<String> {
    /// Shares of the usual latency: below the first two CPUs are nearer, above the second they are not.
    const NEAR: f64 = 1.0 / 3.0;
    const FAR: f64 = 2.0 / 3.0;
    let mut pairs: BTreeMap<[u32; 2], Vec<f64>> = BTreeMap::new();
    for row in &handovers.rows {
        if let (&[a, b], Some(cost)) = (&row.case.cpus[..], row.sound(row.latency_ns)) {
            pairs.entry([a.min(b), a.max(b)]).or_default().push(cost.value());
        }
    }
    let usual = median(pairs.values().flatten().copied()).filter(|_| handovers.is_virtual)?;
    let met = |all: &&Vec<f64>| all.iter().any(|ns| *ns < NEAR * usual) && all.iter().any(|ns| *ns > FAR * usual);
    let moved: Vec<&Vec<f64>> = pairs.values().filter(met).collect();
    let near = || moved.iter().copied().flatten().copied().filter(|ns| *ns < NEAR * usual);
    let [least, most] = [near().reduce(f64::min)?, near().reduce(f64::max)?].map(|ns| Nanoseconds(ns).to_string());
    let range = if least == most { least } else { format!("{least} to {most}") };
    Some(format!(
        "The host moves the CPUs: {} of {} pairs were at times far nearer ({range}) than at others, so the matrix shows moments, not \
         places.",
        moved.len(),
        pairs.len(),
    ))
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

/// All pairs at one home.
fn heat_map(all: &[HandoverRow], home: Home) -> Option<Table> {
    let is_ours = |row: &&HandoverRow| row.home() == home && row.sound(row.latency_ns).is_some();
    let rows: Vec<&HandoverRow> = all.iter().filter(is_ours).collect();
    let cpus: BTreeSet<u32> = rows.iter().flat_map(|row| row.case.cpus.iter().copied()).collect();
    let latencies = || all.iter().filter_map(|row| row.sound(row.latency_ns)).map(|cost| cost.value());
    let least = latencies().fold(f64::INFINITY, f64::min);
    let most = latencies().fold(HEAT_RANGE * least, f64::max);
    let mut by_cpus: HashMap<&[u32], &HandoverRow> = HashMap::new();
    for row in &rows {
        by_cpus.entry(&row.case.cpus).or_insert(row);
    }
    let cell = |from: u32, to: u32| -> Option<Cell> {
        let row = by_cpus.get(&[from, to][..])?;
        let cost = row.latency_ns?;
        let [low, high] = cost.ends().map(|ns| Nanoseconds(ns).to_string());
        let kinds = row.kinds.map_or_else(String::new, |[a, b]| format!(" ({a} to {b})"));
        let flags: String = row.quality.flags.iter().map(|flag| format!("; {flag}")).collect();
        Some(Cell {
            text: significant(cost.value()) + if flags.is_empty() { " " } else { "*" },
            heat: Some((cost.value() - least) / (most - least).max(1e-9)),
            hint: format!("{}{kinds}; {} {low} to {high}{flags}", row.relation, cost.ends_word()),
            ..Cell::default()
        })
    };
    let count = cpus.len();
    let caption = format!("The {home} CPU touched the page first: a matrix of {count} x {count} CPUs");
    let mut table = Table::new(caption).right("CPU", cpus.iter().map(ToString::to_string));
    for &to in &cpus {
        table = table.right(&format!("{to} "), cpus.iter().map(|&from| cell(from, to)));
    }
    (!rows.is_empty()).then_some(table)
}

fn by_nearness(groups: &[HandoverGroup]) -> Table {
    let kinds = |kinds: Option<[CoreKind; 2]>| kinds.map_or_else(String::new, |[a, b]| format!(" ({a}, {b})"));
    let figures = |figure: fn(&HandoverGroup) -> Option<f64>| groups.iter().map(move |g| figure(g).map(significant));
    Table::new("By how near CPUs are: ns, over both directions and homes of all pairs")
        .left("pairs", groups.iter().map(|group| format!("{}{}", group.relation, kinds(group.kinds))))
        .right("rows", groups.iter().map(|group| group.rows.to_string()))
        .right("least", figures(|group| Some(group.least_ns)))
        .right("median", figures(|group| Some(group.median_ns)))
        .right("greatest", figures(|group| Some(group.greatest_ns)))
        .right("cycles", figures(|group| group.median_cycles))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::c2c::rows::HandoverFigures;
    use crate::quality::Status;
    use crate::rate::Cost;
    use membound_core::case::{Case, USUAL_MEMORY, Work, steady};
    use membound_core::kernel::{StoreKind, Width};
    use membound_core::units::Bytes;
    use membound_core::work::c2c::Handover;

    fn row(cpus: [u32; 2], home: Home, ns: f64, outcome: Status) -> HandoverRow {
        let case = steady("load", Width::Scalar, StoreKind::Regular, USUAL_MEMORY, cpus.to_vec(), Bytes(64));
        let figures = HandoverFigures {
            relation: Relation::Package,
            kinds: None,
            node: None,
            latency_ns: Some(Cost::plain(ns, ns, [ns; 2])),
            latency_cycles: None,
            obtained: None,
        };
        HandoverRow::made_up(Case { work: Work::Handover(Handover { home }), ..case }, outcome, figures)
    }

    #[test]
    fn what_cannot_be_right_moves_no_cpus_and_is_in_no_matrix() {
        let of = |outcome| {
            let rows = vec![
                row([0, 1], Home::First, 20.0, outcome),
                row([0, 1], Home::Second, 100.0, Status::Measured),
                row([0, 2], Home::First, 100.0, Status::Measured),
                row([0, 2], Home::Second, 100.0, Status::Measured),
            ];
            Handovers { rows, groups: Vec::new(), is_virtual: true }
        };
        let (sound, wrong) = (of(Status::Measured), of(Status::Invalid));
        assert!(moved(&sound).unwrap().contains("1 of 2 pairs were at times far nearer (20.0 ns)"));
        assert_eq!(moved(&wrong), None);
        let text = |handovers: &Handovers| format!("{:?}", heat_map(&handovers.rows, Home::First));
        assert!(text(&sound).contains("\"20.0 \"") && !text(&wrong).contains("20.0"), "{}", text(&wrong));
    }
}
