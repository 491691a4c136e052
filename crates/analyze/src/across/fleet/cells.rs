//! What is compared over a fleet: cells, and the groups that they form.

use crate::across::compare::cells::experiment;
use crate::hierarchy::names as hierarchy;
use membound_core::case::{Case, Work};
use membound_core::in_order::InOrder;
use membound_core::kernel::Variant;
use membound_core::machine::Machine;
use membound_core::memory::MemoryKind;
use membound_core::stats::states::Better;
use membound_core::units::{Bytes, words};

words! {
    /// What a cell says of its level.
    Kind, "kind of cell" {
        /// Loads alone.
        Read = "read",
        /// Stores alone.
        Write = "write",
        /// Loads and stores.
        Copy = "copy",
        /// A time, of one access after the other.
        Latency = "latency",
        /// Neither: works on pages, hand-overs, arithmetic.
        Other = "other",
    }
}

words! {
    /// What pages a cell asked for.
    Backing, "backing" {
        /// Huge ones.
        Huge = "huge pages",
        /// Base pages.
        Base = "base pages",
        /// Something else.
        Other = "other",
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// In words.
    pub what: String,
    /// Its level (`L1`, `memory`), or the experiment that it is a part of.
    pub level: String,
    /// What it says of it.
    pub kind: Kind,
    /// Threads.
    pub threads: usize,
    /// Pages asked for.
    pub backing: Backing,
    /// Working set.
    pub working_set: Bytes,
    /// Unit of its figures.
    pub unit: &'static str,
    /// Which way they are better.
    pub better: Better,
}

impl Cell {
    /// The cell of one figure of a case on a machine.
    pub(crate) fn of(case: &Case, part: &str, unit: &'static str, better: Better, machine: &Machine) -> Cell {
        let what = case.to_string();
        Cell {
            what: if part.is_empty() { what } else { format!("{what}, {part}") },
            level: level(case, machine),
            kind: kind(case),
            threads: case.threads(),
            backing: backing(case),
            working_set: case.working_set,
            unit,
            better,
        }
    }

    /// Whether it says how fast a level of the memory system is.
    pub fn is_of_level(&self) -> bool {
        self.kind != Kind::Other
    }

    /// +1 where more is better, -1 where less is.
    pub(crate) fn sign(&self) -> f64 {
        if self.better == Better::Higher { 1.0 } else { -1.0 }
    }
}

/// The level by the caches that the machine tells of. Names only: a node is held against nodes with the same caches.
fn level(case: &Case, machine: &Machine) -> String {
    if let Some(name) = experiment(case) {
        return name.into();
    }
    let first = case.cpus.first().copied().unwrap_or(0);
    let claimed: Vec<Bytes> = machine.data_caches(first).iter().map(|cache| cache.size).collect();
    let levels = hierarchy::assumed(&claimed);
    hierarchy::level_of(case, &levels.all, machine).unwrap_or_else(|| "between levels".into())
}

fn kind(case: &Case) -> Kind {
    let of_kernel = |variant: &Variant| {
        let Some(traffic) = variant.row().map(|row| row.traffic(variant.store, variant.element)) else {
            return Kind::Copy;
        };
        match (traffic.loaded, traffic.stored) {
            (_, 0) => Kind::Read,
            (0, _) => Kind::Write,
            _ => Kind::Copy,
        }
    };
    match &case.work {
        Work::Kernel(_) if experiment(case).is_some() => Kind::Other,
        Work::Kernel(variant) => of_kernel(variant),
        Work::Chase(_) => Kind::Latency,
        _ => Kind::Other,
    }
}

fn backing(case: &Case) -> Backing {
    match case.memory.kind {
        MemoryKind::Thp | MemoryKind::Huge2M | MemoryKind::Huge1G => Backing::Huge,
        MemoryKind::Base => Backing::Base,
        _ => Backing::Other,
    }
}

/// Cells that are held against the cohort together. Places are those of a cohort's columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Set {
    pub name: String,
    pub columns: Vec<usize>,
    /// Whether it stands beside others in a map: a level and a kind.
    pub is_shown: bool,
}

/// Levels in the order in which a reader goes through a machine, then experiments.
const ORDER: [&str; 6] = ["L1", "L2", "L3", "L4", "memory", "between levels"];

/// The sets of a cohort's cells: each level's kinds, levels as a whole, one thread and several apart, what large working sets do
/// in huge pages and in base pages, everything. Of sets with the same cells, the first.
pub(crate) fn sets(cells: &[&Cell]) -> Vec<Set> {
    let mut levels: Vec<&str> = cells.iter().map(|cell| cell.level.as_str()).collect();
    let place = |level: &str| ORDER.iter().position(|known| *known == level).unwrap_or(ORDER.len());
    levels.order_by_key(|level| (place(level), *level));
    levels.dedup();
    let mut sets: Vec<Set> = Vec::new();
    let mut add = |name: String, is_shown: bool, is_ours: &dyn Fn(&Cell) -> bool| {
        let columns: Vec<usize> = (0..cells.len()).filter(|column| is_ours(cells[*column])).collect();
        if !columns.is_empty() && !sets.iter().any(|set| set.columns == columns) {
            sets.push(Set { name, columns, is_shown });
        }
    };
    for level in &levels {
        for kind in Kind::ALL {
            let name = if *kind == Kind::Other { (*level).to_string() } else { format!("{level} {kind}") };
            add(name, true, &|cell| cell.level == *level && cell.kind == *kind);
        }
    }
    for level in &levels {
        add((*level).into(), false, &|cell| cell.level == *level);
        for kind in Kind::ALL {
            for (threads, word) in [(true, "one thread"), (false, "several threads")] {
                let is_ours = |cell: &Cell| {
                    cell.level == *level && cell.kind == *kind && cell.is_of_level() && (cell.threads == 1) == threads
                };
                add(format!("{level} {kind}, {word}"), false, &is_ours);
            }
        }
    }
    for backing in [Backing::Huge, Backing::Base] {
        let is_large = |cell: &Cell| cell.is_of_level() && place(&cell.level) > 1;
        add(format!("large working sets, {backing}"), false, &|cell| cell.backing == backing && is_large(cell));
    }
    add("all levels".into(), false, &Cell::is_of_level);
    add("everything".into(), false, &|_| true);
    sets
}
