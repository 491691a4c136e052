//! From records to cells: what was measured, by which key it is found on another machine, and its samples, visit by visit.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::across::compare::figures::Figure;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::experiments::c2c::rows as handover;
use crate::experiments::latency::rows as latency;
use crate::experiments::latency::rows::LatencyRow;
use crate::experiments::loaded::rows as loaded;
use crate::experiments::{copies, device, flops, offsets, pages};
use crate::quality::{Fault, Quality, Status};
use crate::report::Report;
use crate::visits::{Visits, core_clock, first_use_s, payload_bps};
use membound_core::case::{Case, Protocol, StreamMemory, Work};
use membound_core::in_order::distinct;
use membound_core::index::Index;
use membound_core::machine::Machine;
use membound_core::machine::topology::Relation;
use membound_core::memory::MemorySpec;
use membound_core::memory::policy::Policy;
use membound_core::parallel;
use membound_core::record::hand_overs::{Distance, Distances, HandOvers};
use membound_core::record::{Measured, Measurement, Record};
use membound_core::stats::states::Better;
use membound_core::units::{BASE_PAGE, Bytes, Hertz};
use membound_core::work::loaded::Loaded;

/// What is compared: a case or a part of one on one side, with all its samples.
#[derive(Debug, Clone)]
pub(crate) struct Cell<'a> {
    pub key: Key<'a>,
    /// Where it was measured; absent for figures by hand.
    pub site: Option<Site<'a>>,
    /// The level or the experiment that it belongs to.
    pub group: &'a str,
    /// Of figures by hand, whatever they say.
    pub unit: &'a str,
    pub better: Better,
    /// Of each run, the visits. A run that lacks the cell has none.
    pub runs: Vec<Vec<Visit>>,
    /// Why there are no figures, where there are none.
    pub fault: Option<Fault>,
}

/// The samples of one visit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visit {
    pub round: u32,
    pub values: Vec<f64>,
    /// The core's clock during the visit, in hertz; absent where it was not seen.
    pub clock: Option<f64>,
    /// Where the host had the CPUs, if it is known to move them.
    pub distance: Option<Distance>,
}

/// Where a case was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    machine: &'a Machine,
    /// Of a hand-over.
    relation: Option<Relation>,
}

impl<'a> Site<'a> {
    pub fn of(case: &Case, machine: &'a Machine, relation: &dyn Fn(u32, u32) -> Relation) -> Site<'a> {
        let relation = match (&case.work, &case.cpus[..]) {
            (Work::Handover(_), [a, b, ..]) => Some(relation(*a, *b)),
            _ => None,
        };
        Site { machine, relation }
    }

    pub fn is_guest(self) -> bool {
        self.machine.is_virtual()
    }
}

/// What makes a cell the same on the same machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key<'a> {
    /// A case, and of its figures the named one.
    Case(&'a Case, &'static str),
    /// A figure by hand: name and unit.
    Figure(&'a str, &'a str),
}

/// What makes cells mean the same on two machines: all that is asked for, but for the numbers of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Meaning<'a> {
    work: Cow<'a, Work>,
    memory: MemorySpec,
    streams: Cow<'a, [StreamMemory]>,
    threads: usize,
    /// The nodes of the CPUs, where the case names the node of its memory.
    nodes: Vec<u32>,
    /// Of a hand-over.
    relation: Option<Relation>,
    working_set: Bytes,
    misaligned_bytes: u32,
    protocol: Protocol,
    part: &'static str,
}

impl<'a> Meaning<'a> {
    /// Of one figure of a case.
    pub fn of(case: &'a Case, part: &'static str, Site { machine, relation }: Site<'_>) -> Meaning<'a> {
        let node = |cpu: &u32| machine.cpu(*cpu).and_then(|cpu| cpu.node.get());
        let is_named = case.memory.policy != Policy::FirstTouch;
        let nodes: Vec<u32> = distinct(case.cpus.iter().filter(|_| is_named).filter_map(node));
        // CPUs of another machine have other numbers, and its caches need other pools.
        let work = if let Work::PingPong(messages) = &case.work {
            let mut messages = messages.clone();
            messages.pairs.iter_mut().flatten().for_each(|seat| seat.cpu = None);
            messages.pool = Bytes(0);
            Cow::Owned(Work::PingPong(messages))
        } else {
            Cow::Borrowed(&case.work)
        };
        Meaning {
            work,
            memory: case.memory,
            streams: Cow::Borrowed(&case.streams),
            threads: case.threads(),
            nodes,
            relation,
            working_set: case.working_set,
            misaligned_bytes: case.misaligned_bytes,
            protocol: case.protocol,
            part,
        }
    }

    /// The same whatever the working set.
    pub fn at_any_size(&self) -> Meaning<'a> {
        let mut work = self.work.clone();
        if let Work::Loaded(loaded) = &*work {
            work = Cow::Owned(Work::Loaded(Loaded { chase: Bytes(0), ..*loaded }));
        }
        Meaning { work, working_set: Bytes(0), ..self.clone() }
    }

    /// The same, of a case that is not kept.
    pub fn into_owned(self) -> Meaning<'static> {
        let work = Cow::Owned(self.work.into_owned());
        Meaning { work, streams: Cow::Owned(self.streams.into_owned()), ..self }
    }
}

impl<'a> Cell<'a> {
    /// What stands for the key where CPUs have other numbers; none of figures by hand.
    pub fn meaning(&self) -> Option<Meaning<'a>> {
        match self.key {
            Key::Case(case, part) => Some(Meaning::of(case, part, self.site?)),
            Key::Figure(..) => None,
        }
    }

    pub fn working_set(&self) -> Bytes {
        match &self.key {
            Key::Case(case, _) => case.working_set,
            Key::Figure(..) => Bytes(0),
        }
    }

    /// Threads that worked; none where nobody says.
    pub fn threads(&self) -> usize {
        match &self.key {
            Key::Case(case, _) => case.threads(),
            Key::Figure(..) => 0,
        }
    }

    pub fn is_measured(&self) -> bool {
        self.runs.iter().flatten().any(|visit| !visit.values.is_empty())
    }

    /// In words, without the numbers of CPUs.
    pub fn what(&self) -> String {
        match &self.key {
            Key::Case(case, "") => case.to_string(),
            Key::Case(case, part) => format!("{case}, {part}"),
            Key::Figure(name, _) => name.to_string(),
        }
    }

    /// The same where CPUs have no numbers: of a hand-over how near they are.
    pub fn what_it_means(&self) -> String {
        match (&self.key, &self.site) {
            (Key::Case(case, _), Some(Site { relation: Some(relation), .. })) => {
                let Work::Handover(handover) = &case.work else { return self.what() };
                format!("hand-over, {relation}, the {}'s page, {}", handover.home, case.memory)
            }
            _ => self.what(),
        }
    }

    /// `CPU 0 3`.
    pub fn cpus(&self) -> String {
        match &self.key {
            Key::Case(case, _) => {
                format!("CPU {}", case.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            }
            Key::Figure(..) => String::new(),
        }
    }

    /// Several cells that mean the same, as one: the samples of one round are one visit.
    pub fn pooled<'b>(cells: &[&'b Cell<'a>]) -> Option<Cow<'b, Cell<'a>>> {
        let mut whole = match cells {
            [] => return None,
            [only] => return Some(Cow::Borrowed(only)),
            [first, ..] => (*first).clone(),
        };
        let faults = || cells.iter().filter_map(|cell| cell.fault.as_ref());
        whole.fault = faults().find(|fault| fault.is_failure()).or_else(|| faults().next()).cloned();
        for other in &cells[1..] {
            for (run, more) in whole.runs.iter_mut().zip(&other.runs) {
                for visit in more {
                    match run.iter_mut().find(|own| own.round == visit.round) {
                        Some(own) => own.values.extend(&visit.values),
                        None => run.push(visit.clone()),
                    }
                }
            }
        }
        Some(Cow::Owned(whole))
    }
}

/// How far apart each host's CPUs can be. Of all its runs together, since one of them may have met one state alone.
pub(crate) struct Hosts<'a>(HashMap<&'a str, Distances>);

impl<'a> Hosts<'a> {
    pub fn of(records: impl Iterator<Item = &'a Record>) -> Hosts<'a> {
        let mut told: HashMap<&str, HandOvers> = HashMap::new();
        for record in records {
            told.entry(&record.header.host).or_default().note_all(record.measured());
        }
        Hosts(told.into_iter().map(|(host, told)| (host, told.distances())).collect())
    }
}

/// The cells of several runs of one side, in the order in which they were first visited.
pub(crate) fn of_records<'a>(runs: &'a [(Visits<'a>, Report)], hosts: &Hosts<'_>) -> Vec<Cell<'a>> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut places: Index<Key, usize> = Index::default();
    for (run, (visits, report)) in runs.iter().enumerate() {
        let (relation, rows) = (visits.header().machine.relations(), RowsByCase::of(report));
        let distances = hosts.0.get(&*visits.header().host);
        let found = parallel::map(&visits.cases, |case| of_case(case, visits, &rows, &relation, distances));
        // No case is there twice in one run.
        if let [_] = runs {
            cells.reserve(found.iter().map(Vec::len).sum());
            cells.extend(found.into_iter().flatten());
            return cells;
        }
        for found in found.into_iter().flatten() {
            let at = *places.entry(found.key).or_insert_with(|| {
                cells.push(Cell { runs: vec![Vec::new(); runs.len()], ..found.clone() });
                cells.len() - 1
            });
            cells[at].runs[run] = found.runs.concat();
            if cells[at].fault.is_none() {
                cells[at].fault = found.fault;
            }
        }
    }
    cells
}

/// Figures by hand: lines of one name are several runs.
pub(crate) fn of_figures(figures: &[Figure]) -> Vec<Cell<'_>> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut places: Index<Key, usize> = Index::default();
    for figure in figures {
        let key = Key::Figure(&figure.name, &figure.unit);
        let run =
            vec![Visit { values: vec![figure.value], clock: figure.clock.map(|Hertz(hz)| hz), ..Visit::default() }];
        let at = *places.entry(key).or_insert(cells.len());
        match cells.get_mut(at) {
            Some(cell) => cell.runs.push(run),
            None => cells.push(Cell {
                key,
                site: None,
                group: "figures",
                unit: &figure.unit,
                better: figure.better,
                runs: vec![run],
                fault: None,
            }),
        }
    }
    cells
}

/// What one kind of work is measured in: part, unit, direction, visits.
pub(crate) type Quantity = (&'static str, &'static str, Better, Vec<Visit>);

fn of_case<'a>(
    visits: &[&'a Measurement],
    all: &Visits<'a>,
    rows: &RowsByCase<'a>,
    relation: &dyn Fn(u32, u32) -> Relation,
    distances: Option<&Distances>,
) -> Vec<Cell<'a>> {
    let case = &visits[0].case;
    let (group, fault) = place(case, rows);
    let fault = fault.or_else(|| Quality::of(visits).fault());
    let measured: Vec<(u32, &Measured)> =
        visits.iter().filter_map(|visit| Some((visit.round, visit.outcome.measured()?))).collect();
    let quantities = quantities(case, &measured, all.hz(), distances);
    let site = Site::of(case, &all.header().machine, relation);
    let cell = |(part, unit, better, visits): Quantity| Cell {
        key: Key::Case(case, part),
        site: Some(site),
        group,
        unit,
        better,
        // A fault in one visit makes the case faulty, as in its row.
        runs: vec![if fault.is_none() { visits } else { Vec::new() }],
        fault: fault.clone(),
    };
    quantities.into_iter().map(cell).collect()
}

/// The figures of a case, from its visits with their rounds; with the distances of the host's CPUs, if it moves them.
pub(crate) fn quantities(
    case: &Case,
    visits: &[(u32, &Measured)],
    hz: f64,
    distances: Option<&Distances>,
) -> Vec<Quantity> {
    use Better::{Higher, Lower};
    let each = |values: &dyn Fn(&Measured) -> Vec<f64>| -> Vec<Visit> {
        let visit = |(round, measured): &(u32, &Measured)| {
            let clock = core_clock(&[measured], hz);
            let distance = distances.and_then(|distances| distances.of(case, measured));
            Visit { round: *round, values: values(measured), clock, distance }
        };
        visits.iter().map(visit).collect()
    };
    match &case.work {
        Work::Kernel(_) if case.protocol == Protocol::FirstUse => {
            vec![("", "s", Lower, each(&|visit| first_use_s(visit, hz)))]
        }
        Work::Device(_) => vec![("", "ns", Lower, each(&|visit| device::rows::ns(visit, hz)))],
        Work::Copies(_) => vec![("", "ns", Lower, each(&|visit| copies::rows::ns(visit, hz)))],
        Work::Kernel(_) | Work::PageCache(_) | Work::Streams(_) | Work::Common(_) | Work::Plain(_) => {
            vec![("", "B/s", Higher, each(&|visit| payload_bps(visit, hz)))]
        }
        Work::Flops(_) => vec![("", "flop/s", Higher, each(&|visit| flops::flops_per_s(visit, hz)))],
        // By base page, so that a side that got huge pages is comparable with one that did not.
        Work::Page(_) => {
            vec![("by 4 KiB", "ns", Lower, each(&|visit| pages::rows::page_ns(visit, case, Bytes(BASE_PAGE), hz)))]
        }
        // One way: half a round trip, of a line as of a message.
        Work::Handover(_) | Work::PingPong(_) => {
            vec![("", "ns", Lower, each(&|visit| handover::latency_ns(visit, hz)))]
        }
        Work::Chase(chase) => vec![("", "ns", Lower, each(&|visit| latency::link_ns(visit, *chase, hz)))],
        Work::Loaded(_) => {
            let load = each(&|visit| loaded::load_bps(visit, hz, |visit| visit.volume.payload()));
            let is_loaded = load.iter().any(|visit| !visit.values.is_empty());
            let latency = ("", "ns", Lower, each(&|visit| loaded::latency_ns(visit, hz)));
            std::iter::once(latency).chain(is_loaded.then_some(("load", "B/s", Higher, load))).collect()
        }
        Work::Scan(scan) => {
            let at = |index: usize| {
                each(&|visit| offsets::rows::by_place(visit, *scan, hz).swap_remove(index).1)
                    .into_iter()
                    // Cycles already: the clock is out of them.
                    .map(|visit| Visit { clock: None, ..visit })
                    .collect()
            };
            let names = offsets::rows::place_names(*scan);
            names.into_iter().enumerate().map(|(index, name)| (name, "cycles", Lower, at(index))).collect()
        }
        // Verdicts, the ground of others' energy, errors of sums: no speeds.
        Work::Conflict(_) | Work::Idle | Work::Rounding(_) => Vec::new(),
    }
}

/// The rows that name levels.
struct RowsByCase<'a> {
    latency: Index<&'a Case, &'a LatencyRow>,
    bandwidth: Index<&'a Case, &'a BandwidthRow>,
}

impl<'a> RowsByCase<'a> {
    fn of(report: &'a Report) -> Self {
        // Of several rows of a case the first: those after it are put in first.
        RowsByCase {
            latency: report.latency.rows.iter().rev().map(|row| (&row.case, row)).collect(),
            bandwidth: report.rows.iter().rev().map(|row| (&row.case, row)).collect(),
        }
    }
}

/// The group of a case, and why its row says that its figures can't be.
fn place<'a>(case: &Case, rows: &RowsByCase<'a>) -> (&'a str, Option<Fault>) {
    if let Some(name) = experiment(case) {
        return (name, None);
    }
    let found = match &case.work {
        Work::Chase(_) => rows.latency.get(case).map(|row| (&row.level, None)),
        _ => rows.bandwidth.get(case).map(|row| {
            // A limit that was exceeded may be what is wrong, and both sides were measured alike.
            let fault = row.quality.fault().filter(|fault| fault.outcome == Status::Invalid && fault.is_failure());
            (&row.level, fault)
        }),
    };
    let Some((level, fault)) = found else { return ("nodes", None) };
    (level.as_deref().unwrap_or("between levels"), fault)
}

/// The experiment that a case belongs to; nothing for what a level's speed is measured by.
pub(crate) fn experiment(case: &Case) -> Option<&'static str> {
    Some(match &case.work {
        Work::Kernel(_) if case.protocol == Protocol::FirstUse => "first use",
        Work::Kernel(_) | Work::Chase(_) => return None,
        Work::Page(_) => "pages",
        Work::Scan(_) => "offsets",
        Work::Handover(_) => "cores",
        Work::Loaded(_) => "under load",
        Work::PageCache(_) => "page cache",
        Work::Conflict(_) => "address maps",
        Work::Flops(_) => "arithmetic",
        Work::Idle => "idle",
        Work::Rounding(_) => "rounding",
        Work::Streams(_) | Work::Common(_) => "streams",
        Work::Plain(_) => "plain experiments",
        Work::PingPong(_) => "messages",
        Work::Device(_) => "devices",
        Work::Copies(_) => "copies",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_of_one_is_a_crash_of_all_that_mean_the_same() {
        let figure =
            |name: &str| Figure { name: name.into(), unit: "s".into(), better: Better::Lower, value: 1.0, clock: None };
        let figures = ["a", "b"].map(figure);
        let mut cells = of_figures(&figures);
        cells[1].fault = Some(Fault { outcome: Status::Crashed, reason: "SIGILL".into() });
        for first in [None, Some(Fault { outcome: Status::Unavailable, reason: "no time".into() })] {
            cells[0].fault = first;
            let whole = Cell::pooled(&[&cells[0], &cells[1]]).unwrap();
            assert_eq!(whole.fault, cells[1].fault);
        }
    }
}
