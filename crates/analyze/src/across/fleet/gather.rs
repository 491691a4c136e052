//! From record files to a fleet: each is read, reduced to its figures and facts, and let go, so that memory does not grow with what
//! records hold but with how many there are. Files are shared out among threads; what is alike in many (cases, lists of
//! CPUs, modules) is parsed once a thread.

use membound_core::in_order::InOrder;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::across::compare::cells::{Meaning, Quantity, Site, Visit, quantities};
use crate::across::compare::environment;
use crate::across::compare::environment::FACTS;
use crate::across::fleet::Fleet;
use crate::across::fleet::cells::{Cell, Kind};
use crate::across::fleet::nodes::{CPU_TIME_LIMIT, Facts, Figure, Hardware, NO_LIMIT, Node};
use crate::visits::fast_tenth;
use crate::wording::some;
use membound_core::case::Case;
use membound_core::input::{self, RECORD_MOST};
use membound_core::machine::limits::Limits;
use membound_core::machine::pages::Memory;
use membound_core::machine::{Machine, nodes};
use membound_core::record::hand_overs::{Distance, Distances, HandOvers};
use membound_core::record::skim::{Cases, Skim, SkimmedMachine, SkimmedVisit};
use membound_core::record::{Measured, Outcome, Record, RecordError, is_cut_off};
use membound_core::stats::cohort;
use membound_core::stats::quantiles::median;
use membound_core::units::{counted, utc};

/// A record whose run began later than this many seconds from now is from the future.
const CLOCKS_APART_S: u64 = 300;
/// Records that are longer are read one at a time, bytes: each thread holds one.
const LARGE: u64 = 256 << 20;
/// More classes of machines than this are not kept at once: then machines are hardly alike, and keeping them saves nothing.
const CLASSES_MOST: usize = 64;

/// The facts of a machine that are settings, or a fault's first trace, as comparisons name them.
const SETTINGS: [&str; 15] = [
    "machine",
    "memory modules",
    "microcode",
    "hypervisor",
    "kernel",
    "clock source of the kernel",
    "transparent huge pages",
    "their defragmentation",
    "NUMA balancing",
    "zone reclaim",
    "demotion of cold pages",
    "governor",
    "boost",
    "SMT",
    "isolated CPUs",
];

/// A record that was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// The file.
    pub file: String,
    /// Why, and what helps.
    pub reason: String,
}

/// What files gave.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// The fleet.
    pub fleet: Fleet,
    /// Files that were not used.
    pub unread: Vec<Unread>,
    /// What to know about the others.
    pub notes: Vec<String>,
}

/// Reads records with as many threads as asked for. `now_unix_s` is the time, seconds since 1970: no run began later. The order of
/// nodes is that of the files. Fleets that are to be compared share a table.
pub fn gather(files: &[PathBuf], threads: usize, now_unix_s: u64, table: &Table) -> Gathered {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut reader, mut found) = (Reader::new(table, now_unix_s), Vec::new());
        while let Some((index, file)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            files.get(index).map(|file| (index, file))
        } {
            found.push((index, reader.node(file)));
        }
        found
    };
    let mut all: Vec<(usize, Result<Gleaned, String>)> = std::thread::scope(|scope| {
        // This thread works too, so a system that refuses others is slower and no worse.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads.min(files.len())).filter_map(start).collect();
        let own = work();
        others.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).chain(own).collect()
    });
    all.order_by_key(|found| found.0);
    gathered(files, all, table.known().cells.clone())
}

/// What came of one file.
struct Gleaned {
    node: Node,
    /// Whether its end is missing.
    is_cut: bool,
    was_interrupted: bool,
}

fn gathered(files: &[PathBuf], all: Vec<(usize, Result<Gleaned, String>)>, cells: Vec<Cell>) -> Gathered {
    let mut gathered = Gathered { fleet: Fleet { cells, nodes: Vec::new() }, ..Gathered::default() };
    let (mut cut, mut stopped) = (Vec::new(), Vec::new());
    for (index, found) in all {
        match found {
            Ok(found) => {
                let place = gathered.fleet.nodes.len();
                cut.extend(found.is_cut.then_some(place));
                stopped.extend(found.was_interrupted.then_some(place));
                gathered.fleet.nodes.push(found.node);
            }
            Err(reason) => gathered.unread.push(Unread { file: files[index].display().to_string(), reason }),
        }
    }
    let apart = keep_apart(&mut gathered.fleet.nodes);
    let records = |places: &[usize], what: &str| {
        let names: Vec<String> = places.iter().map(|place| gathered.fleet.nodes[*place].host.clone()).collect();
        (!places.is_empty()).then(|| format!("{} {what}: {}.", counted(places.len(), "record"), some(&names, 4)))
    };
    let ends = if cut.len() == 1 { "its end" } else { "their end" };
    let cut = records(&cut, &format!("did not come to {ends}, what is whole counts"));
    let stopped = records(&stopped, "stopped early, what was measured counts");
    gathered.notes.extend(cut.into_iter().chain(stopped).chain(apart));
    gathered
}

/// Gives nodes of one name the name of their record as well.
fn keep_apart(nodes: &mut [Node]) -> Option<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    nodes.iter().for_each(|node| *counts.entry(node.host.clone()).or_insert(0) += 1);
    let mut names: Vec<String> = counts.iter().filter(|(_, count)| **count > 1).map(|(name, _)| name.clone()).collect();
    names.sort();
    for node in nodes.iter_mut().filter(|node| counts[&node.host] > 1) {
        let file = Path::new(&node.file);
        let name = file.file_stem().map_or_else(|| node.file.clone(), |stem| stem.to_string_lossy().into_owned());
        node.host = format!("{} ({name})", node.host);
    }
    let what = if names.len() == 1 { "has" } else { "have" };
    (!names.is_empty())
        .then(|| format!("{} {what} several records: they are kept apart, by the records' names.", some(&names, 4)))
}

/// Cells that any thread met, in any fleet: a cell has the same number in all of them.
#[derive(Debug, Default)]
pub struct Table {
    known: Mutex<KnownCells>,
    /// Whose turn it is to hold a large record.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownCells {
    places: HashMap<(Meaning<'static>, String, Distance), u32>,
    cells: Vec<Cell>,
}

impl Table {
    fn known(&self) -> MutexGuard<'_, KnownCells> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a cell. What it is called is what the first case of it was called.
    fn place(&self, meaning: Meaning<'static>, distance: Distance, cell: Cell) -> u32 {
        let KnownCells { places, cells } = &mut *self.known();
        *places.entry((meaning, cell.level.clone(), distance)).or_insert_with(|| {
            cells.push(cell);
            cells.len() as u32 - 1
        })
    }
}

/// Machines that are the same but for what is running on them.
struct Class {
    machine: Machine,
    hardware: Arc<Hardware>,
    settings: Vec<(&'static str, Arc<str>)>,
    /// What of the facts is the same for the whole class.
    facts: Facts,
}

/// What a thread keeps from record to record.
struct Reader<'a> {
    table: &'a Table,
    now_unix_s: u64,
    buffer: Vec<u8>,
    cases: Cases,
    classes: HashMap<[Box<str>; 5], usize>,
    known: Vec<Class>,
    /// Of a class, a case and a distance of its CPUs, what it is compared as.
    cells: HashMap<(usize, usize, Distance), Known>,
}

/// What a case is compared as.
struct Known {
    /// The cells of its figures.
    cells: Vec<u32>,
    steadiness: Option<Steadiness>,
}

/// Of what the scatter of a case's samples tells.
#[derive(Clone, Copy)]
enum Steadiness {
    Memory,
    Caches,
}

impl<'a> Reader<'a> {
    fn new(table: &'a Table, now_unix_s: u64) -> Self {
        Reader {
            table,
            now_unix_s,
            buffer: Vec::new(),
            cases: Cases::default(),
            classes: HashMap::new(),
            known: Vec::new(),
            cells: HashMap::new(),
        }
    }

    fn node(&mut self, file: &Path) -> Result<Gleaned, String> {
        // What is no record takes no memory.
        if std::fs::metadata(file).is_ok_and(|about| about.len() > LARGE) {
            Record::header(file).map_err(|fault| fault.to_string())?;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let unreadable = |source| RecordError::Unreadable { path: file.into(), source }.to_string();
        let turn = read(file, LARGE, &mut buffer, &self.table.turn).map_err(unreadable)?;
        let found = self.node_of(file, &buffer);
        // What a large one took is given back before the next.
        match turn {
            Some(_turn) => drop(buffer),
            None => self.buffer = buffer,
        }
        found
    }

    fn node_of(&mut self, file: &Path, buffer: &[u8]) -> Result<Gleaned, String> {
        let skim = Skim::read(file, buffer, &mut self.cases).map_err(|fault| fault.to_string())?;
        if skim.started_unix_s > self.now_unix_s + CLOCKS_APART_S {
            return Err(format!(
                "{} is from the future: its run began {}; set the clock of that node (chrony, ntpd), or of this one",
                file.display(),
                utc(skim.started_unix_s)
            ));
        }
        let class = self.class(&skim)?;
        let (figures, facts) = self.reduced(&skim, class);
        let node = Node {
            host: skim.host.to_string(),
            file: file.display().to_string(),
            started_unix_s: skim.started_unix_s,
            hardware: self.known[class].hardware.clone(),
            facts,
            figures,
        };
        let was_interrupted = skim.end.as_ref().is_some_and(|end| end.interrupted);
        Ok(Gleaned { node, is_cut: is_cut_off(&skim.command, skim.end.as_ref()), was_interrupted })
    }

    /// The class of a record's machine.
    fn class(&mut self, skim: &Skim<'_>) -> Result<usize, String> {
        let SkimmedMachine { identity, cpus, caches, dimms, settings, .. } = &skim.machine;
        let key = [identity, cpus, caches, dimms, settings].map(|part| Box::from(part.get()));
        if let Some(class) = self.classes.get(&key) {
            return Ok(*class);
        }
        if self.known.len() >= CLASSES_MOST {
            (self.classes, self.known, self.cells) = Default::default();
        }
        let header = skim.header()?;
        let record = Record { header, measurements: Vec::new(), end: None };
        let wanted = FACTS.iter().filter(|(name, _)| SETTINGS.contains(name));
        let settings = wanted.filter_map(|(name, value)| Some((*name, Arc::from(value(&record)?)))).collect();
        let machine = record.header.machine;
        self.known.push(Class { hardware: Arc::new(hardware(&machine)), settings, facts: of_class(&machine), machine });
        self.classes.insert(key, self.known.len() - 1);
        Ok(self.known.len() - 1)
    }

    /// The figures of a record, and what explains them.
    fn reduced(&mut self, skim: &Skim<'_>, class: usize) -> (Vec<Figure>, Facts) {
        let mut figures: Vec<Figure> = Vec::new();
        let mut seen = Seen::default();
        let distances = HandOvers::of(self.measured(skim)).distances();
        let (cases, failed_cases) = by_case(&skim.visits);
        for (place, visits) in cases {
            let Some(case) = self.cases.get(place) else { continue };
            for (distance, visits) in by_distance(case, visits, &distances) {
                let quantities = quantities(case, &visits, skim.clock.hz.0, None);
                let known = self
                    .cells
                    .entry((class, place, distance))
                    .or_insert_with(|| known(self.table, case, distance, &quantities, &self.known[class].machine));
                for (cell, (_, _, better, visits)) in known.cells.iter().zip(&quantities) {
                    let batches: Vec<&[f64]> = visits.iter().map(|visit| visit.values.as_slice()).collect();
                    if let Some((log, error)) = cohort::figure(&batches, *better) {
                        figures.push(Figure { cell: *cell, log: log as f32, error: error as f32 });
                    }
                }
                if let Some((.., visits)) = quantities.first() {
                    seen.note(known.steadiness, visits);
                }
            }
        }
        (merged(figures), Facts { failed_cases, ..self.facts(skim, class, seen) })
    }

    /// The visits of a record that came to figures, with their cases.
    fn measured<'s>(&'s self, skim: &'s Skim<'_>) -> impl Iterator<Item = (&'s Case, &'s Measured)> {
        skim.visits.iter().filter_map(|visit| Some((self.cases.get(visit.case)?, visit.outcome.measured()?)))
    }

    fn facts(&self, skim: &Skim<'_>, class: usize, seen: Seen) -> Facts {
        let class = &self.known[class];
        let memory: Option<Memory> = serde_json::from_str(skim.machine.memory.get()).ok();
        let nodes: Vec<nodes::Node> = serde_json::from_str(skim.machine.nodes.get()).unwrap_or_default();
        let limits: Option<Limits> = serde_json::from_str(skim.machine.limits.get()).ok();
        let total = memory.as_ref().and_then(|memory| memory.total.get());
        let free_of = |(id, free): &(u32, membound_core::units::Bytes)| {
            let total = nodes.iter().find(|node| node.id == *id)?.total.get()?;
            (total.0 > 0).then(|| free.0 as f64 / total.0 as f64)
        };
        let cpus = class.machine.online_cpus().len().max(1) as f64;
        let limit = limits.as_ref().and_then(|limits| limits.cpu_time.known());
        let least = limit.into_iter().flatten().map(|limit| limit.cpus).min_by(f64::total_cmp);
        let mut settings = class.settings.clone();
        settings.push((CPU_TIME_LIMIT, least.map_or(NO_LIMIT.into(), |cpus| Arc::from(format!("{cpus} CPUs")))));
        settings.push(("tool", Arc::from(&*skim.tool)));
        Facts {
            clock_hz: median(seen.clocks),
            memory_bytes: total.map(|total| total.0),
            numa_nodes: (!nodes.is_empty()).then(|| nodes.iter().filter(|node| node.has_cpus()).count() as u32),
            huge_share: environment::huge_obtained(self.measured(skim)),
            stray_share: environment::pages_elsewhere(self.measured(skim)),
            page_cache_share: skim
                .before
                .page_cache
                .zip(total)
                .map(|(cache, total)| cache.0 as f64 / total.0.max(1) as f64),
            least_free_share: skim.before.node_free.iter().filter_map(free_of).min_by(f64::total_cmp),
            steal_share: environment::stolen(&skim.before, skim.end.as_ref()).map(|stolen| stolen / cpus),
            disturbed_share: environment::disturbed_samples(self.measured(skim).map(|(_, measured)| measured)),
            unsteady_memory: median(seen.unsteady_memory),
            unsteady_caches: median(seen.unsteady_caches),
            load_average: skim.before.load_average,
            cpu_time: least,
            settings,
            ..class.facts.clone()
        }
    }
}

/// A record in place of what a buffer held; with the turn of whoever holds one that is longer than `large` bytes.
fn read<'a>(file: &Path, large: u64, to: &mut Vec<u8>, turn: &'a Mutex<()>) -> io::Result<Option<MutexGuard<'a, ()>>> {
    to.clear();
    match input::read(file, large, to) {
        Err(fault) if fault.kind() == io::ErrorKind::FileTooLarge => {}
        done => return done.map(|()| None),
    }
    let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    to.clear();
    input::read(file, RECORD_MOST, to).map(|()| Some(turn))
}

/// What the visits of a record show beside their figures.
#[derive(Default)]
struct Seen {
    clocks: Vec<f64>,
    unsteady_memory: Vec<f64>,
    unsteady_caches: Vec<f64>,
}

impl Seen {
    fn note(&mut self, steadiness: Option<Steadiness>, visits: &[Visit]) {
        self.clocks.extend(visits.iter().filter_map(|visit| visit.clock));
        let into = match steadiness {
            Some(Steadiness::Caches) => &mut self.unsteady_caches,
            Some(Steadiness::Memory) => &mut self.unsteady_memory,
            None => return,
        };
        let values: Vec<f64> = visits.iter().flat_map(|visit| visit.values.iter().copied()).collect();
        into.extend(fast_tenth(&values).map(|times| times - 1.0).filter(|more| more.is_finite()));
    }
}

/// The visits of a case, apart by where the host of a guest had its CPUs. A guest whose CPUs nobody moved is taken for one with its CPUs
/// close together, which is what it is told of them; where they were moved, visits at no known place are left out.
fn by_distance<'a>(
    case: &Case,
    visits: Vec<(u32, &'a Measured)>,
    distances: &Distances,
) -> Vec<(Distance, Vec<(u32, &'a Measured)>)> {
    let mut told: Vec<_> = Distance::ALL.iter().map(|distance| (*distance, Vec::new())).collect();
    for visit in &visits {
        let found = distances.of(case, visit.1);
        told.iter_mut().filter(|(distance, _)| found == Some(*distance)).for_each(|(_, all)| all.push(*visit));
    }
    told.retain(|(_, visits)| !visits.is_empty());
    if told.is_empty() { vec![(Distance::Close, visits)] } else { told }
}

/// What a case is compared as on a machine.
fn known(table: &Table, case: &Case, distance: Distance, quantities: &[Quantity], machine: &Machine) -> Known {
    let of = |(part, unit, better, _): &Quantity| {
        let mut cell = Cell::of(case, part, unit, *better, machine);
        if distance == Distance::Far {
            cell.what.push_str(", CPUs far apart");
        }
        cell
    };
    let steadiness = quantities.first().map(of).filter(|cell| cell.is_of_level() && cell.kind != Kind::Latency);
    let steadiness = steadiness.and_then(|cell| match cell.level.as_str() {
        "L1" | "L2" => Some(Steadiness::Caches),
        "memory" => Some(Steadiness::Memory),
        _ => None,
    });
    let site = Site::of(case, machine, &|a, b| machine.relation(a, b));
    let meaning = |quantity: &Quantity| Meaning::of(case, quantity.0, site).into_owned();
    let place = |quantity: &Quantity| table.place(meaning(quantity), distance, of(quantity));
    Known { cells: quantities.iter().map(place).collect(), steadiness }
}

/// The place of a case, and its visits that came to figures, with their rounds.
type OfCase<'a> = (usize, Vec<(u32, &'a Measured)>);

/// The cases that came to figures, in the order in which they were first visited, and how many crashed or came to wrong results. A
/// fault in any visit makes the case faulty, as in its row.
fn by_case(visits: &[SkimmedVisit]) -> (Vec<OfCase<'_>>, usize) {
    let mut places: HashMap<usize, usize> = HashMap::new();
    let mut found: Vec<OfCase> = Vec::new();
    let (mut faulty, mut failed): (HashSet<usize>, HashSet<usize>) = Default::default();
    for visit in visits {
        failed.extend(visit.outcome.is_failure().then_some(visit.case));
        let at = *places.entry(visit.case).or_insert_with(|| {
            found.push((visit.case, Vec::new()));
            found.len() - 1
        });
        match &visit.outcome {
            Outcome::Measured(measured) => found[at].1.push((visit.round, measured)),
            Outcome::Unavailable { .. } => {}
            Outcome::Crashed { .. } | Outcome::Invalid { .. } => {
                faulty.insert(visit.case);
            }
        }
    }
    found.retain(|(case, visits)| !faulty.contains(case) && !visits.is_empty());
    (found, failed.len())
}

/// By rising cell; figures that mean the same (of one CPU and of another) become one.
fn merged(mut figures: Vec<Figure>) -> Vec<Figure> {
    figures.order_by_key(|figure| figure.cell);
    let one = |alike: &[Figure]| {
        let count = alike.len() as f32;
        let squares: f32 = alike.iter().map(|figure| figure.error * figure.error).sum();
        Figure {
            cell: alike[0].cell,
            log: alike.iter().map(|figure| figure.log).sum::<f32>() / count,
            error: squares.sqrt() / count,
        }
    };
    figures.chunk_by(|a, b| a.cell == b.cell).map(one).collect()
}

fn hardware(machine: &Machine) -> Hardware {
    Hardware {
        processor: machine.identity.model.known().map_or_else(|| "unknown processor".into(), Clone::clone),
        signature: machine.identity.signature.known().cloned().unwrap_or_default(),
        packages: machine.packages(),
        cores: machine.cores().len(),
        caches: environment::caches(machine),
    }
}

fn of_class(machine: &Machine) -> Facts {
    let modules = machine.modules();
    let filled = modules.as_deref().unwrap_or_default();
    let sizes: std::collections::BTreeSet<_> = filled.iter().filter_map(|dimm| dimm.size.get()).collect();
    Facts {
        modules: modules.as_ref().map(|modules| modules.len() as u32),
        has_uneven_modules: sizes.len() > 1,
        module_mt_s: filled.iter().filter_map(|dimm| dimm.configured_mt_s.get()).min(),
        module_rated_mt_s: filled.iter().filter_map(|dimm| dimm.rated_mt_s.get()).min(),
        is_virtual: machine.is_virtual(),
        ..Facts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_record_is_read_in_its_turn() {
        let folder = tempfile::tempdir().unwrap();
        let (file, turn) = (folder.path().join("x"), Mutex::new(()));
        let mut buffer = b"what was there".to_vec();
        for (text, is_large) in [("0123456789", false), ("0123456789a", true)] {
            std::fs::write(&file, text).unwrap();
            let has_turn = read(&file, 10, &mut buffer, &turn).unwrap().is_some();
            assert_eq!((buffer.as_slice(), has_turn), (text.as_bytes(), is_large));
        }
        // As long as `fleet run` takes them, and no longer; with a hole, so that it takes no room.
        std::fs::File::create(&file).unwrap().set_len(RECORD_MOST + 1).unwrap();
        assert_eq!(read(&file, 10, &mut buffer, &turn).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
