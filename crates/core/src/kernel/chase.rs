//! Pointer chases: loads of which each needs the one before. Here is in which order a chase visits its places and where
//! it stands after so many links; the assembler's `chase.rs` makes machine code of it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, words};

words! {
    /// The order in which a chase visits its places. After the last it begins again, so that every order is one cycle.
    Order, "order" {
        /// One random cycle over all places.
        Random = "random",
        /// Random within a block (a page), blocks one after the other: few address translations.
        PageOrdered = "page-ordered",
        /// Places in order within a block (a page), blocks in random order.
        PageRandom = "page-random",
        /// Addresses rise.
        Forward = "forward",
        /// Addresses fall.
        Backward = "backward",
        /// Every eighth place, then those after them, and so on: addresses rise, no place's neighbour comes next.
        Strided = "strided",
    }
}

/// One or more dependent chains of loads through a cycle of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Chase {
    /// Order of the places.
    pub order: Order,
    /// Bytes from one place to the next: 64 visits every line, 128 the even ones, more than a page one line a page.
    pub stride_bytes: u32,
    /// Independent chains, each as far ahead of the next in the same cycle as any other. Up to 12 (on Arm 23) live in
    /// registers; those beyond wait in memory, and a link of theirs takes a store and a load in the first-level cache longer.
    pub chains: u32,
    /// Bytes of a block, where the order has blocks.
    pub block_bytes: u32,
}

impl Chase {
    /// Most chains.
    pub const CHAINS_MOST: u32 = 32;
    /// Links of each chain in one trip of the machine code.
    pub const LINKS: u64 = 16;
    /// Step of [`Order::Strided`], in places.
    const STEP: usize = 8;
    /// Places that can be numbered: 4 GiB of them hold 256 GiB of lines.
    const PLACES_MOST: u64 = u32::MAX as u64;

    /// One chain over every line, blocks of a base page.
    pub const fn of(order: Order) -> Self {
        Chase { order, stride_bytes: 64, chains: 1, block_bytes: 4096 }
    }

    /// Whether machine code for it can be made: pointers do not overlap, and there are registers or slots for all chains.
    pub fn exists(self) -> bool {
        let fits = self.stride_bytes >= 8 && self.stride_bytes.is_multiple_of(8);
        fits && (1..=Chase::CHAINS_MOST).contains(&self.chains) && self.block_bytes >= self.stride_bytes
    }

    /// Places in a working set.
    pub fn places(self, working_set: Bytes) -> usize {
        (working_set.0 / u64::from(self.stride_bytes.max(1))).min(Chase::PLACES_MOST) as usize
    }

    /// The smallest working set in which every chain has a place of its own and goes somewhere.
    pub fn least(self) -> Bytes {
        Bytes(u64::from(self.chains.max(2)) * u64::from(self.stride_bytes))
    }

    /// The cycle through a working set. The same seed gives the same cycle.
    pub fn cycle(self, working_set: Bytes, seed: u64) -> Cycle {
        let (places, mut random) = (self.places(working_set), fastrand::Rng::with_seed(seed));
        let rising = || 0..places as u32;
        let block = (self.block_bytes / self.stride_bytes.max(1)).max(1) as usize;
        let order = match self.order {
            // Each of the cycles that Sattolo's algorithm draws from is equally likely: there are as many orders of
            // visiting for any of them.
            Order::Random => shuffled(rising().collect(), &mut random),
            Order::PageOrdered => {
                let mut order: Vec<u32> = rising().collect();
                order.chunks_mut(block).for_each(|block| random.shuffle(block));
                order
            }
            Order::PageRandom => {
                let starts = shuffled(rising().step_by(block).collect(), &mut random);
                let of_block = |start: u32| start..(start as usize + block).min(places) as u32;
                starts.into_iter().flat_map(of_block).collect()
            }
            Order::Forward => rising().collect(),
            Order::Backward => rising().rev().collect(),
            Order::Strided => {
                (0..Chase::STEP as u32).flat_map(|first| rising().skip(first as usize).step_by(Chase::STEP)).collect()
            }
        };
        Cycle { order, stride_words: self.stride_bytes as usize / 8, word: self.word() }
    }

    /// Which word of a place leads to the next one. Random cycles and others have different ones where places have room for both:
    /// writing one over gigabytes then leaves the other, whatever their working sets and strides.
    pub fn word(self) -> usize {
        usize::from(self.shares_places() && self.order != Order::Random)
    }

    /// Whether its places begin at even words and leave odd ones alone, so that a cycle in those stays.
    pub fn shares_places(self) -> bool {
        self.stride_bytes.is_multiple_of(16)
    }
}

fn shuffled(mut order: Vec<u32>, random: &mut fastrand::Rng) -> Vec<u32> {
    random.shuffle(&mut order);
    order
}

impl fmt::Display for Chase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chase {}", self.order)?;
        if self.stride_bytes != 64 {
            write!(f, ", stride {} B", self.stride_bytes)?;
        }
        if self.block_bytes != 4096 {
            write!(f, ", blocks of {}", Bytes(self.block_bytes.into()))?;
        }
        if self.chains > 1 { write!(f, ", {} chains", self.chains) } else { Ok(()) }
    }
}

/// The places of a working set in the order in which they are visited; after the last comes the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    order: Vec<u32>,
    stride_words: usize,
    /// Of a place, the word that leads to the next.
    word: usize,
}

impl Cycle {
    /// Number of places.
    pub fn places(&self) -> usize {
        self.order.len()
    }

    /// Words of memory from the first place to the end of the last.
    pub fn words(&self) -> usize {
        self.order.len() * self.stride_words
    }

    /// Writes into every place the address of the next. `words` start at `address`; too few of them are left as they are.
    pub fn write(&self, words: &mut [f64], address: u64) {
        if words.len() < self.words() {
            return;
        }
        let next = self.order.iter().cycle().skip(1);
        for (&place, &next) in self.order.iter().zip(next) {
            words[self.at(place)] = f64::from_bits(self.address(address, next));
        }
    }

    /// Index of a place's word.
    fn at(&self, place: u32) -> usize {
        place as usize * self.stride_words + self.word
    }

    fn address(&self, start: u64, place: u32) -> u64 {
        start + self.at(place) as u64 * 8
    }

    /// Where each of `chains` chains begins: equally far from each other.
    pub fn starts(&self, address: u64, chains: u32) -> Vec<u64> {
        self.after(address, chains, 0)
    }

    /// Where each of `chains` chains stands after so many links, by counting: the answer key.
    pub fn after(&self, address: u64, chains: u32, links: u64) -> Vec<u64> {
        let places = self.order.len().max(1) as u64;
        let at = |chain: u32| (u64::from(chain) * places / u64::from(chains.max(1)) + links % places) % places;
        (0..chains).filter_map(|chain| Some(self.address(address, *self.order.get(at(chain) as usize)?))).collect()
    }

    /// Reads every place once in the order of the cycle, beginning after `links` links. The reads do not wait for each
    /// other, so this takes a fraction of the time of a chase. Returns something that depends on all of them.
    pub fn read(&self, words: &[f64], links: u64) -> u64 {
        if words.len() < self.words() || self.order.is_empty() {
            return 0;
        }
        let (before, from) = self.order.split_at((links % self.order.len() as u64) as usize);
        let of = |order: &[u32]| order.iter().fold(0, |sum: u64, &place| sum ^ words[self.at(place)].to_bits());
        of(from) ^ of(before)
    }
}

/// Follows so many links in plain Rust, from the place with this address: what the machine code must do. Absent where a
/// link leads out of `words`, which start at `address`.
pub fn walk(words: &[f64], address: u64, from: u64, links: u64) -> Option<u64> {
    (0..links).try_fold(from, |at, _| Some(words.get((at.checked_sub(address)? / 8) as usize)?.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(set: Bytes) -> impl Iterator<Item = (Chase, Cycle)> {
        let chases = Order::ALL.iter().flat_map(|&order| {
            [64, 128, 4160].map(|stride_bytes| Chase { stride_bytes, block_bytes: 8192, ..Chase::of(order) })
        });
        chases.map(move |chase| (chase, chase.cycle(set, 7)))
    }

    #[test]
    fn every_order_is_one_cycle_over_all_places() {
        for (chase, cycle) in all(Bytes(300_000)) {
            let mut words = vec![0.0; 300_000 / 8];
            cycle.write(&mut words, 4096);
            let (places, start) = (cycle.places() as u64, cycle.starts(4096, 1)[0]);
            assert_eq!(places, 300_000 / u64::from(chase.stride_bytes), "{chase}");
            let mut seen: Vec<u64> = (0..places).filter_map(|links| walk(&words, 4096, start, links)).collect();
            assert_eq!(walk(&words, 4096, start, places), Some(start), "{chase}: closed");
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len() as u64, places, "{chase}: no place twice");
        }
    }

    #[test]
    fn counting_agrees_with_walking() {
        for (chase, cycle) in all(Bytes(100_000)) {
            let mut words = vec![0.0; 100_000 / 8];
            cycle.write(&mut words, 64);
            for (links, chains) in [(0, 1), (1, 3), (1000, 7), (12_345, 2)] {
                let walked = cycle.starts(64, chains).into_iter().map(|from| walk(&words, 64, from, links).unwrap());
                assert_eq!(cycle.after(64, chains, links), walked.collect::<Vec<_>>(), "{chase}, {links} links");
            }
        }
    }

    #[test]
    fn a_random_cycle_and_an_ordered_one_lie_in_the_same_memory() {
        let mut words = vec![0.0; 100_000 / 8];
        let [random, forward] = [Order::Random, Order::Forward].map(|order| Chase::of(order).cycle(Bytes(100_000), 3));
        let wide = Chase { stride_bytes: 128, ..Chase::of(Order::Strided) }.cycle(Bytes(50_000), 3);
        random.write(&mut words, 64);
        for other in [&forward, &wide] {
            other.write(&mut words, 64);
            assert_eq!(walk(&words, 64, random.starts(64, 1)[0], 777), Some(random.after(64, 1, 777)[0]));
            assert_eq!(walk(&words, 64, other.starts(64, 1)[0], 77), Some(other.after(64, 1, 77)[0]));
        }
        let dense = [8, 24].map(|stride_bytes| Chase { stride_bytes, ..Chase::of(Order::Forward) });
        assert!(dense.iter().all(|chase| chase.word() == 0 && !chase.shares_places()), "no room for two");
    }

    #[test]
    fn orders_are_what_they_say() {
        let order = |order| Chase::of(order).cycle(Bytes::kib(64), 1).order;
        assert_eq!(order(Order::Forward)[..3], [0, 1, 2]);
        assert_eq!(order(Order::Backward)[..3], [1023, 1022, 1021]);
        assert_eq!(order(Order::Strided)[..3], [0, 8, 16]);
        assert_eq!(order(Order::Strided)[128..130], [1, 9]);
        let pages: Vec<u32> = order(Order::PageOrdered).iter().map(|line| line / 64).collect();
        assert!(pages.is_sorted() && !order(Order::PageOrdered)[..64].is_sorted());
        let random = order(Order::PageRandom);
        assert!(random.chunks(64).all(|page| page.windows(2).all(|w| w[0] + 1 == w[1])) && !random.is_sorted());
        let changes = order(Order::Random).windows(2).filter(|w| w[0] / 64 != w[1] / 64).count();
        assert!(changes > 900, "random over pages too: {changes}");
    }

    #[test]
    fn nothing_panics_on_sets_without_places() {
        for (_, cycle) in all(Bytes(0)) {
            cycle.write(&mut [], 0);
            assert_eq!((cycle.starts(0, 2), cycle.read(&[], 5)), (Vec::new(), 0));
        }
        let odd = Chase { stride_bytes: 0, chains: 0, ..Chase::of(Order::Random) };
        assert!(!odd.exists() && odd.cycle(Bytes(64), 0).after(0, 0, 3).is_empty());
    }
}
