//! Lists in order: what is there once, what is alike together, and sorting whose code does not grow with the number of types sorted.
//!
//! The standard library's sort is compiled anew for each type and each comparison, some 6 KB at a time. Lists here are short, so they are
//! sorted by their places, once for all types. What is hot (samples) uses the standard library's.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::Hash;

/// Stable sorts of a slice.
pub trait InOrder<T> {
    /// Sorts by a comparison; equal ones stay as they are.
    fn order_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts by a key, ascending; equal ones stay as they are.
    fn order_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> InOrder<T> for [T] {
    fn order_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut places: Vec<usize> = (0..self.len()).collect();
        sort(&mut places, &mut |a, b| compare(&self[a], &self[b]));
        for start in 0..places.len() {
            let mut at = start;
            // Along the cycle each gets what belongs there, and its place is done.
            while places[at] != start {
                let from = places[at];
                self.swap(at, from);
                places[at] = at;
                at = from;
            }
            places[at] = at;
        }
    }

    fn order_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.order_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// Each of them once, ascending.
pub fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = items.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Each of them once, as they first occur: cases, and pairs of a thousand CPUs, are many.
pub fn each_once<T: Eq + Hash + Clone>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

/// Those with the same key together, by keys as these first occur. Each key is held against all before it, so they should be few.
pub fn grouped<T, K: PartialEq>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

fn sort(places: &mut [usize], compare: &mut dyn FnMut(usize, usize) -> Ordering) {
    places.sort_by(|&a, &b| compare(a, b));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_twice_is_told_once() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [1, 2, 3]);
        assert_eq!(each_once([3, 1, 3, 2, 1]), [3, 1, 2]);
    }

    #[test]
    fn what_is_alike_stands_together() {
        assert_eq!(
            grouped([13, 21, 11, 32, 23], |number| number % 10),
            [(3, vec![13, 23]), (1, vec![21, 11]), (2, vec![32])]
        );
    }

    proptest::proptest! {
        #[test]
        fn as_the_standard_library_sorts(items in proptest::collection::vec((0_u8..9, 0_u32..1000), 0..60)) {
            let (mut ours, mut theirs) = (items.clone(), items);
            ours.order_by_key(|item| item.0);
            theirs.sort_by_key(|item| item.0);
            assert_eq!(ours, theirs);
            ours.order_by(|a, b| b.1.cmp(&a.1));
            theirs.sort_by_key(|item| std::cmp::Reverse(item.1));
            assert_eq!(ours, theirs);
        }
    }
}
