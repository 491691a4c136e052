//! Which cell of one side is which of the other.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;

use crate::across::compare::cells::{Cell, Key, Meaning};
use crate::across::compare::row::{Matched, Verdict};
use crate::quality::Fault;
use membound_core::index::{Index, index};
use membound_core::parallel;
use membound_core::units::Bytes;

/// A cell on both sides.
#[derive(Debug, Clone)]
pub(crate) struct Pair<'a> {
    pub a: Cow<'a, Cell<'a>>,
    pub b: Cow<'a, Cell<'a>>,
    pub matched: Matched,
    /// In words that tell it from all others.
    pub what: String,
}

impl Pair<'_> {
    /// The group, or both where they differ.
    pub fn group(&self) -> String {
        if self.a.group == self.b.group { self.a.group.into() } else { format!("{} / {}", self.a.group, self.b.group) }
    }
}

/// A cell of one side, and why the other has none, where it says so.
#[derive(Debug)]
pub(crate) struct Lone<'a> {
    pub cell: &'a Cell<'a>,
    pub fault: Option<Fault>,
}

/// What was matched, and what was not.
#[derive(Debug)]
pub(crate) struct Aligned<'a> {
    pub pairs: Vec<Pair<'a>>,
    pub only: [(Verdict, Vec<Lone<'a>>); 2],
}

/// Matches cells by one rule after the other; what a rule matched is no longer there for the next. Cells without a figure
/// match nothing, but tell why. Only where caches differ is another working set the same level's.
pub(crate) fn align<'a>(a: &'a [Cell<'a>], b: &'a [Cell<'a>], caches_differ: bool) -> Aligned<'a> {
    let measured = |cells: &'a [Cell<'a>]| cells.iter().filter(|cell| cell.is_measured()).collect::<Vec<_>>();
    let mut left = [measured(a), measured(b)];
    let mut pairs = Vec::new();
    let by_name = left.iter().flatten().any(|cell| cell.site.is_none());
    let rule = if by_name { Matched::Name } else { Matched::Case };
    pairs.extend(matched(&mut left, rule, |cell| Some(cell.key)));
    // A case whose counterpart says why it has no figure is not to be matched with another.
    let reasons = [Reasons::of(b), Reasons::of(a)];
    let [told_a, told_b] = [0, 1].map(|side| {
        let is_told = |cell: &Cell| reasons[side].by_key.contains_key(&cell.key);
        let (told, free) = left[side].iter().partition::<Vec<&Cell>, _>(|cell| is_told(cell));
        left[side] = free;
        told
    });
    pairs.extend(matched(&mut left, Matched::Meaning, Cell::meaning));
    if caches_differ {
        pairs.extend(of_levels(&mut left));
    }
    tell_apart(&mut pairs);
    let [left_a, left_b] = left;
    let lone = |told: Vec<&'a Cell<'a>>, left: Vec<&'a Cell<'a>>, reasons: &Reasons| -> Vec<Lone<'a>> {
        told.into_iter().chain(left).map(|cell| Lone { cell, fault: reasons.of_other(cell) }).collect()
    };
    let [of_b, of_a] = &reasons;
    Aligned {
        pairs,
        only: [(Verdict::OnlyA, lone(told_a, left_a, of_b)), (Verdict::OnlyB, lone(told_b, left_b, of_a))],
    }
}

/// Why cells of a side have no figure.
struct Reasons<'a> {
    by_key: Index<Key<'a>, &'a Fault>,
    by_meaning: Index<Meaning<'a>, &'a Fault>,
}

impl<'a> Reasons<'a> {
    fn of(cells: &'a [Cell<'a>]) -> Reasons<'a> {
        // Of several of a meaning the first: those after it are put in first.
        let told = || cells.iter().rev().filter_map(|cell| Some((cell, cell.fault.as_ref()?)));
        Reasons {
            by_key: told().map(|(cell, fault)| (cell.key, fault)).collect(),
            by_meaning: told().filter_map(|(cell, fault)| Some((cell.meaning()?, fault))).collect(),
        }
    }

    /// Of the cell that is the same as this one of the other side.
    fn of_other(&self, cell: &Cell) -> Option<Fault> {
        let by_meaning = || self.by_meaning.get(&cell.meaning()?);
        self.by_key.get(&cell.key).or_else(by_meaning).map(|fault| (*fault).clone())
    }
}

/// Takes out of `left` what has the same key on both sides. Cells of one side with the same key become one.
fn matched<'a, K: Eq + Hash>(
    left: &mut [Vec<&'a Cell<'a>>; 2],
    rule: Matched,
    key: impl Fn(&'a Cell<'a>) -> Option<K>,
) -> Vec<Pair<'a>> {
    let mut places: Index<K, usize> = index(left[0].len());
    let mut groups: Vec<[Vec<&Cell>; 2]> = Vec::with_capacity(left[0].len());
    let mut group_of = left.each_ref().map(|cells| vec![None; cells.len()]);
    for side in [0, 1] {
        for (&cell, group) in left[side].iter().zip(&mut group_of[side]) {
            let Some(key) = key(cell) else { continue };
            // What the first side lacks matches nothing.
            *group =
                if side == 0 { Some(*places.entry(key).or_insert(groups.len())) } else { places.get(&key).copied() };
            let Some(at) = *group else { continue };
            if at == groups.len() {
                groups.push(Default::default());
            }
            groups[at][side].push(cell);
        }
    }
    let is_pair = |[a, b]: &[Vec<&Cell>; 2]| a.first().zip(b.first()).is_some_and(|(a, b)| a.better == b.better);
    for (cells, group_of) in left.iter_mut().zip(group_of) {
        let mut group_of = group_of.into_iter();
        cells.retain(|_| !group_of.next().flatten().is_some_and(|at| is_pair(&groups[at])));
    }
    groups.retain(is_pair);
    parallel::filter_map(&groups, |[a, b]| {
        let (a, b) = (Cell::pooled(a)?, Cell::pooled(b)?);
        let what = if rule == Matched::Case { a.what() } else { a.what_it_means() };
        Some(Pair { a, b, matched: rule, what })
    })
}

/// The largest working set of each side in each level, of what is else the same.
fn of_levels<'a>(left: &mut [Vec<&'a Cell<'a>>; 2]) -> Vec<Pair<'a>> {
    let place = |cell: &'a Cell<'a>| {
        let is_level = cell.group == "memory" || cell.group.starts_with('L') || cell.group == "under load";
        Some((is_level.then(|| cell.meaning())??.at_any_size(), cell.group))
    };
    let mut largest: HashSet<*const Cell> = HashSet::new();
    for side in left.iter() {
        let mut sizes: Index<(Meaning, &str), Bytes> = Index::default();
        for (place, cell) in side.iter().filter_map(|cell| Some((place(cell)?, cell))) {
            let size = sizes.entry(place).or_default();
            *size = (*size).max(cell.working_set());
        }
        let is_largest = |cell: &&&'a Cell<'a>| place(cell).is_some_and(|place| sizes[&place] == cell.working_set());
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
fn tell_apart(pairs: &mut [Pair<'_>]) {
    let mut counts: Index<&str, usize> = index(pairs.len());
    for pair in pairs.iter() {
        *counts.entry(&pair.what).or_default() += 1;
    }
    let are_several: Vec<bool> = pairs.iter().map(|pair| counts[pair.what.as_str()] > 1).collect();
    for (pair, _) in pairs.iter_mut().zip(are_several).filter(|(_, are_several)| *are_several) {
        if let Key::Case(..) = pair.a.key {
            pair.what = format!("{}, {}", pair.what, pair.a.cpus());
        }
    }
}
