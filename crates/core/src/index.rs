//! Maps that are asked millions of times: a record of all pairs of a thousand CPUs has a million cases.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A map whose hash costs a third of the standard library's, and is as hard to foresee from outside: its seed differs from map to map.
pub type Index<K, V> = HashMap<K, V, RandomState>;

/// An empty one that holds so many without growing.
pub fn index<K, V>(room: usize) -> Index<K, V> {
    HashMap::with_capacity_and_hasher(room, RandomState::default())
}
