//! Which cell of one side is which of the other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use crate::across::compare::cells::{Cell, Key, Meaning};
use crate::across::compare::row::{Matched, Verdict};
use membound_core::units::Bytes;

/// A cell on both sides.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub a: Cell,
    pub b: Cell,
    pub matched: Matched,
    /// In words that tell it from all others.
    pub what: String,
}

impl Pair {
    /// The group, or both where they differ.
    pub fn group(&self) -> String {
        if self.a.group == self.b.group { self.a.group.clone() } else { format!("{} / {}", self.a.group, self.b.group) }
    }
}

/// A cell of one side, and why the other has none, where it says so.
#[derive(Debug)]
pub(crate) struct Lone<'a> {
    pub cell: &'a Cell,
    pub reason: Option<String>,
}

/// What was matched, and what was not.
#[derive(Debug)]
pub(crate) struct Aligned<'a> {
    pub pairs: Vec<Pair>,
    pub only: [(Verdict, Vec<Lone<'a>>); 2],
}

/// Matches cells by one rule after the other; what a rule matched is no longer there for the next. Cells without a figure
/// match nothing, but tell why. Only where caches differ is another working set the same level's.
pub(crate) fn align<'a>(a: &'a [Cell], b: &'a [Cell], caches_differ: bool) -> Aligned<'a> {
    let measured = |cells: &'a [Cell]| cells.iter().filter(|cell| cell.is_measured()).collect::<Vec<_>>();
    let mut left = [measured(a), measured(b)];
    let mut pairs = Vec::new();
    let by_name = left.iter().flatten().any(|cell| cell.meaning.is_none());
    let rule = if by_name { Matched::Name } else { Matched::Case };
    pairs.extend(matched(&mut left, rule, |cell| Some(cell.key.clone())));
    // A case whose counterpart says why it has no figure is not to be matched with another.
    let is_told =
        |cell: &Cell, others: &[Cell]| others.iter().any(|other| other.key == cell.key && other.reason.is_some());
    let [told_a, told_b] = [(0, b), (1, a)].map(|(side, others)| {
        let (told, free) = left[side].iter().partition::<Vec<&Cell>, _>(|cell| is_told(cell, others));
        left[side] = free;
        told
    });
    pairs.extend(matched(&mut left, Matched::Meaning, |cell| cell.meaning.clone()));
    if caches_differ {
        pairs.extend(of_levels(&mut left));
    }
    tell_apart(&mut pairs);
    let [left_a, left_b] = left;
    let lone = |told: Vec<&'a Cell>, left: Vec<&'a Cell>, others: &[Cell]| -> Vec<Lone<'a>> {
        let reason = |cell: &Cell| {
            let is_same =
                |other: &&Cell| other.key == cell.key || (other.meaning.is_some() && other.meaning == cell.meaning);
            others.iter().filter(is_same).find_map(|other| other.reason.clone())
        };
        told.into_iter().chain(left).map(|cell| Lone { cell, reason: reason(cell) }).collect()
    };
    Aligned { pairs, only: [(Verdict::OnlyA, lone(told_a, left_a, b)), (Verdict::OnlyB, lone(told_b, left_b, a))] }
}

/// Takes out of `left` what has the same key on both sides. Cells of one side with the same key become one.
fn matched<K: Eq + Hash>(left: &mut [Vec<&Cell>; 2], rule: Matched, key: impl Fn(&Cell) -> Option<K>) -> Vec<Pair> {
    let mut found: HashMap<K, [Vec<&Cell>; 2]> = HashMap::new();
    let mut order = Vec::new();
    for side in [0, 1] {
        for &cell in &left[side] {
            let Some(key) = key(cell) else { continue };
            let both = found.entry(key).or_default();
            if both[0].is_empty() && side == 0 {
                order.push(cell);
            }
            both[side].push(cell);
        }
    }
    let mut taken: BTreeSet<*const Cell> = BTreeSet::new();
    let mut pairs = Vec::new();
    for first in order {
        let Some([a, b]) = key(first).and_then(|key| found.remove(&key)) else { continue };
        let (Some(one), Some(other)) = (Cell::pooled(&a), Cell::pooled(&b)) else { continue };
        if one.better != other.better {
            continue;
        }
        taken.extend(a.iter().chain(&b).map(|&cell| std::ptr::from_ref(cell)));
        let what = if rule == Matched::Case { one.what() } else { one.what_it_means() };
        pairs.push(Pair { what, a: one, b: other, matched: rule });
    }
    for side in left.iter_mut() {
        side.retain(|&cell| !taken.contains(&std::ptr::from_ref(cell)));
    }
    pairs
}

/// The largest working set of each side in each level, of what is else the same.
fn of_levels(left: &mut [Vec<&Cell>; 2]) -> Vec<Pair> {
    let place = |cell: &Cell| {
        let is_level = cell.group == "memory" || cell.group.starts_with('L') || cell.group == "under load";
        Some((cell.meaning.as_ref().filter(|_| is_level)?.at_any_size(), cell.group.clone()))
    };
    let mut largest: BTreeSet<*const Cell> = BTreeSet::new();
    for side in left.iter() {
        let mut sizes: HashMap<(Meaning, String), Bytes> = HashMap::new();
        for (place, cell) in side.iter().filter_map(|cell| Some((place(cell)?, cell))) {
            let size = sizes.entry(place).or_default();
            *size = (*size).max(cell.working_set());
        }
        let is_largest = |cell: &&&Cell| place(cell).is_some_and(|place| sizes[&place] == cell.working_set());
        largest.extend(side.iter().filter(is_largest).map(|&cell| std::ptr::from_ref(cell)));
    }
    let mut pairs =
        matched(left, Matched::Level, |cell| place(cell).filter(|_| largest.contains(&std::ptr::from_ref(cell))));
    for pair in &mut pairs {
        let [a, b] = [pair.a.working_set(), pair.b.working_set()];
        pair.what = pair.what.replacen(&format!(", {a}"), &format!(", {a} / {b}"), 1);
    }
    pairs
}

/// Where several pairs have the same words, their CPUs are told.
fn tell_apart(pairs: &mut [Pair]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for pair in pairs.iter() {
        *counts.entry(pair.what.clone()).or_default() += 1;
    }
    for pair in pairs.iter_mut().filter(|pair| counts[&pair.what] > 1) {
        if let Key::Case(..) = pair.a.key {
            pair.what = format!("{}, {}", pair.what, pair.a.cpus());
        }
    }
}
