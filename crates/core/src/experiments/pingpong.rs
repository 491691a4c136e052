//! Messages between processes: which pairs of seats, which sizes, which way.
//!
//! A seat is a CPU of a host; a rank sits on it while a case is visited. The k pairs of a place are the first k of a list
//! that is the same for all k, so that what two pairs do can be held against what the first of them does alone.

use crate::work::pingpong::{Buffers, MessageMode, MessagePath, PingPong, Seat};
use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::case::{Case, Work};
use crate::in_order::{InOrder, distinct, each_once};
use crate::memory::{MemoryKind, MemorySpec};
use crate::placement::scaling;
use crate::units::{Bytes, words};

words! {
    /// Where the partner of a pair is to be.
    Locality, "place" {
        /// Behind the same last-level cache.
        Cache = "cache",
        /// In the same package, behind another last-level cache.
        Package = "package",
        /// In another package of the same host.
        Machine = "machine",
        /// On another host.
        Network = "network",
    }
}

impl Locality {
    /// What lies on the way there.
    pub fn path(self) -> MessagePath {
        match self {
            Locality::Cache => MessagePath::Cache,
            Locality::Package => MessagePath::Package,
            Locality::Machine => MessagePath::Machine,
            Locality::Network => MessagePath::Network,
        }
    }
}

/// A CPU that a rank may sit on. In the order in which ranks take them: first threads of cores first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// Which hardware thread of its core it is, from 0.
    pub thread: u32,
    /// Its package; 0 where that is unknown.
    pub package: u32,
    /// Its last-level cache, by first CPU; where that is unknown its package's.
    pub cache: u32,
    /// Its core, by first CPU; where that is unknown its own number.
    pub core: u32,
    /// Its number.
    pub cpu: u32,
}

/// A host, and the ranks that run on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Ranks that run there, least first.
    pub ranks: Vec<usize>,
    /// CPUs that they may use, in order.
    pub slots: Vec<Slot>,
    /// The largest of its last-level caches.
    pub last_level: Bytes,
    /// Memory that all its ranks together may use.
    pub memory_limit: Bytes,
}

/// What the user wants; what is empty is chosen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PingPongChoice {
    /// Numbers of pairs.
    pub pairs: Vec<usize>,
    /// Ways.
    pub modes: Vec<MessageMode>,
    /// Bytes of messages.
    pub sizes: Vec<Bytes>,
    /// Buffers.
    pub buffers: Vec<Buffers>,
    /// Places.
    pub places: Vec<Locality>,
    /// Whether several ranks may share a CPU.
    pub oversubscribe: bool,
}

/// The largest message of the default plan.
pub const LARGEST_MESSAGE: Bytes = Bytes::mib(64);

/// A list of pairs that can't be made; the text names the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPairs {
    /// Nobody to send to.
    #[error("messages need two processes, and there is one; start more, such as `mpirun -np 2 membound pingpong`")]
    OneRank,
    /// One too many, or too few.
    #[error("{ranks} processes make no pairs; start an even number, such as {}", ranks - 1)]
    Odd {
        /// Ranks there are.
        ranks: usize,
    },
    /// More ranks than CPUs.
    #[error(
        "host {host} has {ranks} processes and {cpus} CPU(s) for them: times would be the scheduler's; start at most \
         {cpus} there, or let more CPUs be used (the launcher's binding, --cpus), or give --oversubscribe, which flags every \
         row"
    )]
    Oversubscribed {
        /// The host.
        host: String,
        /// Its ranks.
        ranks: usize,
        /// CPUs that they may use.
        cpus: usize,
    },
    /// No such pair here.
    #[error("no two processes can sit so that {path} is between them: {why}")]
    NoSuchPlace {
        /// What was to lie between them.
        path: MessagePath,
        /// Why not.
        why: &'static str,
    },
    /// More pairs than there are.
    #[error(
        "{asked} pairs were asked for, and {most} can be made ({path}); start more processes, or give --pairs {most}"
    )]
    TooMany {
        /// Pairs asked for.
        asked: usize,
        /// Pairs that can be made.
        most: usize,
        /// What was to lie between them.
        path: MessagePath,
    },
    /// Not even one.
    #[error("there is nothing to do with 0 pairs; give --pairs 1 or more")]
    Zero,
    /// Two buffers in one place.
    #[error(
        "an exchange sends and receives at once, which takes two buffers: leave out --mode exchange or --buffers in-place"
    )]
    ExchangeInPlace,
    /// Buffers that don't fit.
    #[error(
        "messages of {size} need {needed} of memory on host {host} with {buffers} buffers, and {limit} may be used (40 % of \
         the free memory); give a smaller --size, or fewer --pairs"
    )]
    TooLarge {
        /// The message.
        size: Bytes,
        /// Bytes of all buffers on the host.
        needed: Bytes,
        /// The host.
        host: String,
        /// The buffers.
        buffers: Buffers,
        /// What may be used.
        limit: Bytes,
    },
}

/// Each mode, size and kind of buffers between each number of pairs at each place.
pub fn pingpong(hosts: &[Host], choice: &PingPongChoice) -> Result<Vec<Case>, NoPairs> {
    let ranks: usize = hosts.iter().map(|host| host.ranks.len()).sum();
    match ranks {
        _ if choice.pairs.contains(&0) => return Err(NoPairs::Zero),
        0 | 1 => return Err(NoPairs::OneRank),
        odd if odd % 2 == 1 => return Err(NoPairs::Odd { ranks: odd }),
        _ => {}
    }
    let crowded = hosts.iter().find(|host| host.ranks.len() > host.slots.len());
    if let Some(host) = crowded.filter(|host| !choice.oversubscribe || host.slots.is_empty()) {
        let (ranks, cpus) = (host.ranks.len(), host.slots.len());
        return Err(NoPairs::Oversubscribed { host: host.name.clone(), ranks, cpus });
    }
    let hosts: Vec<Host> = hosts.iter().map(seated).collect();
    let or = |named: &[MessageMode]| if named.is_empty() { vec![MessageMode::PingPong] } else { named.to_vec() };
    let (modes, sizes) =
        (or(&choice.modes), if choice.sizes.is_empty() { octaves(LARGEST_MESSAGE, 1) } else { choice.sizes.clone() });
    let buffers = if choice.buffers.is_empty() { vec![Buffers::Same] } else { choice.buffers.clone() };
    if modes.contains(&MessageMode::Exchange) && buffers.contains(&Buffers::InPlace) {
        return Err(NoPairs::ExchangeInPlace);
    }
    let mut cases = Vec::new();
    for (path, pairs) in groups(&hosts, choice)? {
        for (&mode, &buffers) in crate::case::product(&modes, &buffers) {
            for &size in &sizes {
                let pool = if buffers == Buffers::Rotating { pool(&hosts, &pairs, size) } else { Bytes(0) };
                let oversubscribed = crowded.is_some();
                let spread = is_spread(&hosts, path, &pairs);
                let work = PingPong { mode, buffers, path, pairs: pairs.clone(), spread, pool, oversubscribed };
                check_room(&hosts, &work, size)?;
                cases.push(case(work, size));
            }
        }
    }
    Ok(each_once(cases))
}

fn case(work: PingPong, size: Bytes) -> Case {
    let cpus = work.pairs.iter().flatten().map(|seat| seat.cpu.unwrap_or_default()).collect();
    Case::new(Work::PingPong(work), MemorySpec::of(MemoryKind::Heap), cpus, size)
}

/// The host with a slot for each rank: where there are more ranks than CPUs, CPUs come again.
fn seated(host: &Host) -> Host {
    let mut slots = host.slots.clone();
    slots.sort_unstable();
    let enough = slots.len().max(host.ranks.len());
    Host { slots: slots.iter().copied().cycle().take(enough).collect(), ..host.clone() }
}

/// Pairs at one place, with what lies between the two of each.
type Group = (MessagePath, Vec<[Seat; 2]>);

/// Each number of pairs at each place.
fn groups(hosts: &[Host], choice: &PingPongChoice) -> Result<Vec<Group>, NoPairs> {
    let places = if choice.places.is_empty() { Locality::ALL } else { &choice.places };
    let mut groups = Vec::new();
    for &place in places {
        let (pairs, path) = (pairs(hosts, place), place.path());
        let most = pairs.len();
        if most == 0 && !choice.places.is_empty() {
            return Err(NoPairs::NoSuchPlace { path, why: missing(place) });
        }
        let asked = if choice.pairs.is_empty() { scaling(most) } else { choice.pairs.clone() };
        let fitting: Vec<usize> = asked.iter().copied().filter(|count| *count <= most).collect();
        if let (false, Some(&asked)) = (choice.places.is_empty(), asked.iter().find(|count| **count > most)) {
            return Err(NoPairs::TooMany { asked, most, path });
        }
        groups.extend(fitting.into_iter().map(|count| (path, pairs[..count].to_vec())));
    }
    let largest = |count: &usize| groups.iter().any(|(_, pairs)| pairs.len() == *count);
    if let Some(&asked) = choice.pairs.iter().find(|count| !largest(count)) {
        let best = Locality::ALL.iter().map(|place| (pairs(hosts, *place).len(), place.path()));
        let (most, path) = best.max_by_key(|(most, _)| *most).unwrap_or((0, MessagePath::Cache));
        return Err(NoPairs::TooMany { asked, most, path });
    }
    match groups.is_empty() {
        true => Err(NoPairs::NoSuchPlace { path: MessagePath::Cache, why: missing(Locality::Cache) }),
        false => Ok(groups),
    }
}

fn missing(place: Locality) -> &'static str {
    match place {
        Locality::Cache => "each process of a host has a cache of its own; give another --place",
        Locality::Package => "no package here has two last-level caches whose CPUs may be used; give another --place",
        Locality::Machine => "no host here has two packages whose CPUs may be used; give another --place",
        Locality::Network => "all processes are on one host; start some on another one (mpirun --host a,b)",
    }
}

/// All pairs of a place that the ranks can make, disjoint, those on the first host first, and there those of first threads of cores.
fn pairs(hosts: &[Host], place: Locality) -> Vec<[Seat; 2]> {
    let seat = |host: usize, slot: &Slot| Seat { host: host as u32, cpu: Some(slot.cpu) };
    if place == Locality::Network {
        let across = |(at, two): (usize, &[Host])| {
            let ranks = two[0].ranks.len().min(two[1].ranks.len());
            let both = two[0].slots.iter().zip(&two[1].slots).take(ranks);
            both.map(|(a, b)| [seat(2 * at, a), seat(2 * at + 1, b)]).collect::<Vec<_>>()
        };
        return hosts.chunks_exact(2).enumerate().flat_map(across).collect();
    }
    let inside = |(at, host): (usize, &Host)| {
        let mut chosen: Vec<[Slot; 2]> = match place {
            Locality::Cache => neighbours(&host.slots),
            Locality::Package => {
                group_by(&host.slots, |slot| slot.package).flat_map(|of| between(&of, |slot| slot.cache)).collect()
            }
            Locality::Machine | Locality::Network => between(&host.slots, |slot| slot.package),
        };
        // Cores of further caches and packages before second threads; two threads of one core last: what lies between them is the core.
        chosen.order_by_key(|[a, b]| (a.core == b.core, a.thread.max(b.thread)));
        let most = host.ranks.len() / 2;
        chosen.into_iter().take(most).map(|pair| pair.map(|slot| seat(at, &slot))).collect::<Vec<_>>()
    };
    hosts.iter().enumerate().flat_map(inside).collect()
}

/// Whether some pairs have other hosts, packages or caches between them than the first.
fn is_spread(hosts: &[Host], path: MessagePath, pairs: &[[Seat; 2]]) -> bool {
    let end = |seat: Seat| {
        let slots = hosts.get(seat.host as usize).map_or(&[][..], |host| &host.slots);
        let slot = slots.iter().find(|slot| Some(slot.cpu) == seat.cpu);
        let place = slot.map(|slot| match path {
            MessagePath::Cache | MessagePath::Package => (slot.package, slot.cache),
            MessagePath::Machine => (slot.package, 0),
            MessagePath::Network => (0, 0),
        });
        (seat.host, place)
    };
    pairs.windows(2).any(|two| two[0].map(end) != two[1].map(end))
}

/// Pairs behind one cache, cache by cache.
fn neighbours(slots: &[Slot]) -> Vec<[Slot; 2]> {
    let caches = group_by(slots, |slot| (slot.package, slot.cache));
    caches.flat_map(|of| of.chunks_exact(2).map(|two| [two[0], two[1]]).collect::<Vec<_>>()).collect()
}

/// Pairs between the first and the second group, the third and the fourth, and so on.
fn between<K: Ord>(slots: &[Slot], key: impl Fn(&Slot) -> K) -> Vec<[Slot; 2]> {
    let groups: Vec<Vec<Slot>> = group_by(slots, key).collect();
    let both = |two: &[Vec<Slot>]| two[0].iter().zip(&two[1]).map(|(a, b)| [*a, *b]).collect::<Vec<_>>();
    groups.chunks_exact(2).flat_map(both).collect()
}

fn group_by<K: Ord>(slots: &[Slot], key: impl Fn(&Slot) -> K) -> impl Iterator<Item = Vec<Slot>> {
    let mut groups: BTreeMap<K, Vec<Slot>> = BTreeMap::new();
    for slot in slots {
        groups.entry(key(slot)).or_default().push(*slot);
    }
    groups.into_values()
}

/// What each process walks through: as much as the largest last-level cache, so that with the other buffer twice that
/// passes before any byte comes again; and two messages at least.
fn pool(hosts: &[Host], pairs: &[[Seat; 2]], size: Bytes) -> Bytes {
    let used = pairs.iter().flatten().filter_map(|seat| hosts.get(seat.host as usize));
    let cache = used.map(|host| host.last_level.0).max().unwrap_or(0);
    Bytes(cache.max(2 * size.0))
}

fn check_room(hosts: &[Host], work: &PingPong, size: Bytes) -> Result<(), NoPairs> {
    let buffers = if work.buffers == Buffers::InPlace { 1 } else { 2 };
    for (at, host) in hosts.iter().enumerate() {
        let seats = work.pairs.iter().flatten().filter(|seat| seat.host as usize == at).count() as u64;
        let needed = Bytes(seats.saturating_mul(buffers * size.0.max(work.pool.0)));
        if needed > host.memory_limit {
            let (host, limit, buffers) = (host.name.clone(), host.memory_limit, work.buffers);
            return Err(NoPairs::TooLarge { size, needed, host, buffers, limit });
        }
    }
    Ok(())
}

/// Sizes of messages from 0 and 1 byte to `last`, so many steps for each doubling.
pub fn octaves(last: Bytes, per_octave: u32) -> Vec<Bytes> {
    let at = |step: u32| 2f64.powf(f64::from(step) / f64::from(per_octave.max(1))).round() as u64;
    let mut sizes: Vec<u64> = (0..).map(at).take_while(|bytes| *bytes <= last.0).collect();
    sizes.insert(0, 0);
    sizes.dedup();
    sizes.into_iter().map(Bytes).collect()
}

/// Sizes of messages as the user writes them: one size, or `0..64MiB` for both and all powers of two between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// One.
    One(Bytes),
    /// From one to another.
    Range(Bytes, Bytes),
}

impl Sizes {
    /// The sizes that lists and ranges stand for, small first; a range has so many steps for each doubling.
    pub fn all(list: &[Sizes], per_octave: u32) -> Vec<Bytes> {
        let of = |sizes: &Sizes| match *sizes {
            Sizes::One(size) => vec![size],
            // Both ends, whether or not they are powers of two: an empty list would be the whole default.
            Sizes::Range(first, last) => {
                let between = octaves(last, per_octave).into_iter().filter(|size| *size >= first);
                between.chain([first, last]).collect()
            }
        };
        distinct(list.iter().flat_map(of))
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// A count of MPI is an int; half of that leaves room for two buffers in what a process can address anywhere.
        const MOST: Bytes = Bytes::gib(1);
        let size = |text: &str| match text.trim().parse::<Bytes>() {
            Ok(size) if size > MOST => Err(format!("a message of {size} is too long; give at most {MOST}")),
            Ok(size) => Ok(size),
            Err(fault) => Err(fault.to_string()),
        };
        let Some((first, last)) = text.split_once("..") else { return Ok(Sizes::One(size(text)?)) };
        match (size(first)?, size(last)?) {
            (first, last) if first <= last => Ok(Sizes::Range(first, last)),
            (first, last) => Err(format!("{first} to {last} is no range; write the smaller size first")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with `packages` packages of `caches` caches of `cores` cores each, numbered in that order.
    fn host(ranks: std::ops::Range<usize>, packages: u32, caches: u32, cores: u32) -> Host {
        let slot = |cpu: u32| {
            let (cache, package) = (cpu / cores * cores, cpu / (cores * caches));
            Slot { thread: 0, package, cache, core: cpu, cpu }
        };
        Host {
            name: "h".into(),
            ranks: ranks.collect(),
            slots: (0..packages * caches * cores).map(slot).collect(),
            last_level: Bytes::mib(32),
            memory_limit: Bytes::gib(8),
        }
    }

    fn cpus(pairs: &[[Seat; 2]]) -> Vec<[(u32, u32); 2]> {
        pairs.iter().map(|pair| pair.map(|seat| (seat.host, seat.cpu.unwrap()))).collect()
    }

    #[test]
    fn pairs_lie_where_they_were_asked_for() {
        let hosts = [host(0..8, 2, 2, 2), host(8..12, 2, 2, 2)];
        let at = |place| cpus(&pairs(&hosts, place));
        let (a, b) = (|cpu| (0, cpu), |cpu| (1, cpu));
        assert_eq!(at(Locality::Cache)[..4], [[a(0), a(1)], [a(2), a(3)], [a(4), a(5)], [a(6), a(7)]]);
        assert_eq!(at(Locality::Cache)[4..], [[b(0), b(1)], [b(2), b(3)]]);
        assert_eq!(at(Locality::Package)[..4], [[a(0), a(2)], [a(1), a(3)], [a(4), a(6)], [a(5), a(7)]]);
        assert_eq!(at(Locality::Machine)[..4], [[a(0), a(4)], [a(1), a(5)], [a(2), a(6)], [a(3), a(7)]]);
        assert_eq!(at(Locality::Network), [[a(0), b(0)], [a(1), b(1)], [a(2), b(2)], [a(3), b(3)]]);
    }

    #[test]
    fn second_threads_of_cores_come_last() {
        let mut host = host(0..4, 1, 1, 4);
        // CPUs 0 and 1 are threads of one core, 2 and 3 of another.
        let threads = |slot: &mut Slot| (slot.thread, slot.core) = (slot.cpu % 2, slot.cpu / 2 * 2);
        host.slots.iter_mut().for_each(threads);
        assert_eq!(cpus(&pairs(&[seated(&host)], Locality::Cache)), [[(0, 0), (0, 2)], [(0, 1), (0, 3)]]);
    }

    /// Cores of two threads each: the other cache's cores come before any second thread, and so do the other package's.
    #[test]
    fn cores_of_further_caches_come_before_second_threads() {
        let with_threads = |mut host: Host| {
            host.slots.iter_mut().for_each(|slot| (slot.thread, slot.core) = (slot.cpu % 2, slot.cpu / 2 * 2));
            seated(&host)
        };
        let at = |host: &Host, place| {
            let pairs = cpus(&pairs(std::slice::from_ref(host), place));
            pairs.iter().map(|pair| pair.map(|(_, cpu)| cpu)).collect::<Vec<_>>()
        };
        // Two caches of two cores: 0-1 and 2-3 | 4-5 and 6-7.
        let two = with_threads(host(0..8, 1, 2, 4));
        assert_eq!(at(&two, Locality::Cache), [[0, 2], [4, 6], [1, 3], [5, 7]]);
        assert_eq!(at(&two, Locality::Package), [[0, 4], [2, 6], [1, 5], [3, 7]]);
        // Two packages of two such caches.
        let four = with_threads(host(0..16, 2, 2, 4));
        assert_eq!(at(&four, Locality::Package)[..5], [[0, 4], [2, 6], [8, 12], [10, 14], [1, 5]]);
        assert_eq!(at(&four, Locality::Machine)[..5], [[0, 8], [2, 10], [4, 12], [6, 14], [1, 9]]);
        // Three cores behind the first cache: its last core has only a second thread to talk to.
        let mut odd = with_threads(host(0..8, 1, 1, 8));
        odd.slots.retain(|slot| slot.cpu < 6);
        assert_eq!(at(&odd, Locality::Cache), [[0, 2], [4, 1], [3, 5]]);
    }

    #[test]
    fn two_threads_of_one_core_come_last() {
        // Each cache is a core's: nothing but its own two threads share it. The third cache has two cores.
        let slot = |cpu: u32| {
            let (thread, cache, core) = (cpu % 2, (cpu / 2 * 2).min(4), cpu / 2 * 2);
            Slot { thread, package: 0, cache, core, cpu }
        };
        let host = seated(&Host { slots: (0..8).map(slot).collect(), ..host(0..8, 1, 1, 8) });
        let found = cpus(&pairs(&[host], Locality::Cache));
        assert_eq!(found, [[(0, 4), (0, 6)], [(0, 5), (0, 7)], [(0, 0), (0, 1)], [(0, 2), (0, 3)]]);
    }

    #[test]
    fn the_default_has_every_number_of_pairs_at_every_place() {
        let cases = pingpong(&[host(0..6, 1, 2, 4)], &PingPongChoice::default()).unwrap();
        let groups: Vec<_> =
            cases.iter().filter(|case| case.working_set == Bytes(0)).map(ToString::to_string).collect();
        let expect = |pairs, path| format!("pingpong, {pairs}, {path}, same buffers, 0 B");
        let all = ["same cache", "same package"].map(|path| ["1 pair", "2 pairs", "3 pairs"].map(|n| expect(n, path)));
        assert_eq!(groups, all.concat());
        assert_eq!(cases.len(), 6 * 28, "0 B, 1 B ... 64 MiB");
        assert!(cases.iter().all(|case| case.cpus.len() % 2 == 0 && !case.cpus.is_empty()));
    }

    #[test]
    fn pairs_with_other_caches_packages_or_hosts_between_them_are_spread() {
        let check = |hosts: &[Host], place, expect: &[bool]| {
            let choice = PingPongChoice { places: vec![place], sizes: vec![Bytes(8)], ..PingPongChoice::default() };
            let is_spread = |case: Case| matches!(&case.work, Work::PingPong(work) if work.spread);
            let found: Vec<bool> = pingpong(hosts, &choice).unwrap().into_iter().map(is_spread).collect();
            assert_eq!(found, expect, "{place}");
        };
        // Four ranks on each of two hosts of one cache: two pairs on the first, then those on the second.
        let hosts = [host(0..4, 1, 1, 4), host(4..8, 1, 1, 4)];
        check(&hosts, Locality::Cache, &[false, false, true, true]);
        check(&hosts, Locality::Network, &[false; 4]);
        check(&[&hosts[..], &hosts].concat(), Locality::Network, &[false, false, false, false, true, true]);
        // Two packages of two caches of two cores.
        let one = [host(0..8, 2, 2, 2)];
        check(&one, Locality::Cache, &[false, true, true, true]);
        check(&one, Locality::Package, &[false, false, true, true]);
        check(&one, Locality::Machine, &[false; 4]);
    }

    #[test]
    fn what_can_not_be_is_refused_with_the_cure() {
        let check = |hosts: &[Host], choice: PingPongChoice, cure: &str| {
            let fault = pingpong(hosts, &choice).unwrap_err().to_string();
            assert!(fault.contains(cure), "{fault}");
        };
        let plain = PingPongChoice::default();
        check(&[host(0..1, 1, 1, 4)], plain.clone(), "mpirun -np 2");
        check(&[host(0..3, 1, 1, 4)], plain.clone(), "such as 2");
        check(&[host(0..4, 1, 1, 2)], plain.clone(), "--oversubscribe");
        check(
            &[host(0..2, 1, 2, 1)],
            PingPongChoice { places: vec![Locality::Cache], ..plain.clone() },
            "another --place",
        );
        check(
            &[host(0..2, 1, 1, 2)],
            PingPongChoice { places: vec![Locality::Network], ..plain.clone() },
            "--host a,b",
        );
        check(&[host(0..4, 1, 1, 4)], PingPongChoice { pairs: vec![1, 3], ..plain.clone() }, "--pairs 2");
        check(&[host(0..4, 1, 1, 4)], PingPongChoice { pairs: vec![0], ..plain.clone() }, "--pairs 1");
        let small = Host { memory_limit: Bytes::mib(100), ..host(0..2, 1, 1, 2) };
        check(&[small], plain, "smaller --size");
    }

    #[test]
    fn crowded_hosts_share_their_cpus_and_say_so() {
        let choice = PingPongChoice { oversubscribe: true, sizes: vec![Bytes(8)], ..PingPongChoice::default() };
        let cases = pingpong(&[host(0..4, 1, 1, 2)], &choice).unwrap();
        assert_eq!(cases.last().unwrap().cpus, [0, 1, 0, 1]);
        let is_flagged = |case: &Case| matches!(&case.work, Work::PingPong(work) if work.oversubscribed);
        assert!(cases.iter().all(is_flagged));
        let roomy = pingpong(&[host(0..2, 1, 1, 2)], &choice).unwrap();
        assert!(!roomy.iter().any(is_flagged), "enough CPUs are enough");
    }

    #[test]
    fn rotating_buffers_pass_the_cache_twice_before_they_come_again() {
        let choice = PingPongChoice {
            buffers: vec![Buffers::Rotating],
            sizes: vec![Bytes(8), Bytes::mib(64)],
            ..PingPongChoice::default()
        };
        let pools = pingpong(&[host(0..2, 1, 1, 2)], &choice).unwrap().into_iter().map(|case| match case.work {
            Work::PingPong(work) => work.pool,
            _ => Bytes(0),
        });
        assert_eq!(pools.collect::<Vec<_>>(), [Bytes::mib(32), Bytes::mib(128)]);
    }

    #[test]
    fn an_exchange_takes_two_buffers() {
        let choice = PingPongChoice {
            modes: vec![MessageMode::PingPong, MessageMode::Exchange],
            buffers: vec![Buffers::Same, Buffers::InPlace],
            ..PingPongChoice::default()
        };
        assert_eq!(pingpong(&[host(0..2, 1, 1, 2)], &choice), Err(NoPairs::ExchangeInPlace));
    }

    #[test]
    fn sizes_are_lists_and_ranges() {
        let check = |text: &str, per_octave, expect: &[u64]| {
            let list: Vec<Sizes> = text.split(',').map(|part| part.parse().unwrap()).collect();
            let sizes: Vec<u64> = Sizes::all(&list, per_octave).into_iter().map(|size| size.0).collect();
            assert_eq!(sizes, expect, "{text}");
        };
        check("0..16", 1, &[0, 1, 2, 4, 8, 16]);
        check("1KiB,8,8", 1, &[8, 1024]);
        check("64..256", 2, &[64, 91, 128, 181, 256]);
        for (text, cure) in [("5..4", "smaller size first"), ("x..4", "not a size"), ("2GiB", "at most 1 GiB")] {
            let fault = text.parse::<Sizes>().unwrap_err();
            assert!(fault.contains(cure), "{fault}");
        }
    }
}
