//! Where lines live: rules found on simulated memories, the loop on a simulated machine, and one real visit.

use fastrand::Rng;
use membound::model::addrmap::{Basis, Batch, Determined, Evidence, Space, Verdict, parity};
use membound::units::Bytes;

/// How a simulated memory chooses the target of a line.
#[derive(Debug, Clone)]
enum Map {
    /// So many targets, blocks of 2 to the power of the first number one after the other.
    Modulo(u32, u64),
    /// A bit of the target's number is the parity of what a mask picks.
    Xor(Vec<u64>),
    /// Any target, drawn for each line.
    Table(u64),
    /// Nothing gets in the way of anything.
    Apart,
}

impl Map {
    fn target(&self, address: u64) -> u64 {
        match self {
            Map::Modulo(shift, targets) => (address >> shift) % targets,
            Map::Xor(masks) => masks.iter().fold(0, |target, mask| target << 1 | u64::from(parity(address, *mask))),
            Map::Table(targets) => Rng::with_seed(address ^ 0x5bd1_e995_9d1f_3a7b).u64(0..*targets),
            Map::Apart => address,
        }
    }
}

/// A memory whose times scatter: 10 % noise, 2 % of samples three times as long.
struct Simulated {
    map: Map,
    page: Bytes,
    /// Physical address of each page.
    frames: Vec<u64>,
    /// Whether the solver is told.
    is_physical: bool,
    /// How much longer a conflict takes.
    slower: f64,
}

impl Simulated {
    fn time(&self, pair: [u32; 2], random: &mut Rng) -> f64 {
        let address = |line: u32| {
            let offset = u64::from(line) * 64;
            self.frames[(offset / self.page.0) as usize] + offset % self.page.0
        };
        let [a, b] = pair.map(address).map(|address| self.map.target(address));
        let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let outlier = if random.f64() < 0.02 { 3.0 } else { 1.0 };
        200.0 * if a == b { self.slower } else { 1.0 } * (1.0 + 0.1 * normal).max(0.1) * outlier
    }

    /// Asks until there is a verdict; with it, how many samples that took.
    fn solve(&self, seed: u64) -> (Verdict, usize) {
        let mut random = Rng::with_seed(seed);
        let bytes = Bytes(self.page.0 * self.frames.len() as u64);
        let bare = Space::new(self.page, bytes);
        let mut space = bare.clone();
        let (mut evidence, mut samples) = (Evidence::default(), 0);
        while let Some((stage, pairs)) = evidence.next(&space, &mut random) {
            let times: Vec<f64> = pairs.iter().map(|pair| self.time(*pair, &mut random)).collect();
            samples += times.len();
            evidence.add(Batch { stage, pairs, times });
            if self.is_physical {
                space = bare.clone().at(&self.frames);
            }
        }
        (evidence.verdict(&space), samples)
    }

    /// Whether the rule has lines share a target exactly where they do, over many pairs that it may speak of.
    fn is_solved_by(&self, found: &Determined, random: &mut Rng) -> bool {
        let lines = self.page.0 / 64;
        (0..20_000).all(|_| {
            let first = random.usize(0..self.frames.len());
            let second = if self.is_physical { random.usize(0..self.frames.len()) } else { first };
            let [a, b] = [first, second].map(|page| self.frames[page] + random.u64(0..lines) * 64);
            found.rule.is_same([a, b]) == (self.map.target(a) == self.map.target(b))
        })
    }
}

/// A memory with a map of the published kinds: modulo 8 of the three bits above the line, even and odd lines, XOR hashes
/// of up to 20 bits, other numbers of targets; in one page of known bits or over pages at known places.
fn any(random: &mut Rng) -> Simulated {
    let is_physical = random.bool();
    let (page, pages) = [(21, 32), (30, 1)][usize::from(!is_physical && random.bool())];
    // Pages anywhere in 16 GiB.
    let frames: Vec<u64> = (0..pages).map(|_| random.u64(0..1 << (34 - page)) << page).collect();
    let top = if is_physical { 34 } else { page };
    let map = match random.u32(0..10) {
        0 => Map::Modulo(6, 8),
        1 => Map::Modulo(6, 2),
        2 | 3 => Map::Modulo(random.u32(6..13), random.u64(2..=16)),
        _ => Map::Xor(masks(random.usize(1..=4), top, random)),
    };
    Simulated { map, page: Bytes(1 << page), frames, is_physical, slower: 1.4 + random.f64() }
}

/// Independent masks of up to 20 bits, from the line to below `top`.
fn masks(count: usize, top: u32, random: &mut Rng) -> Vec<u64> {
    loop {
        let mut mask = || {
            let bits = random.usize(1..=20);
            let mut choice: Vec<u32> = (6..top).collect();
            random.shuffle(&mut choice);
            choice.iter().take(bits).fold(0, |mask, bit| mask | 1u64 << bit)
        };
        let masks: Vec<u64> = (0..count).map(|_| mask()).collect();
        if Basis::of(masks.iter().copied()).rank() == count {
            return masks;
        }
    }
}

/// The recorded seed of the maps.
const SEED: u64 = 20261121;

#[test]
fn rules_are_recovered() {
    let mut random = Rng::with_seed(SEED);
    let (mut missed, mut wrong, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    for case in 0..200 {
        let memory = any(&mut random);
        let (verdict, asked) = memory.solve(case);
        samples.push(asked);
        match verdict {
            Verdict::Determined(found) if memory.is_solved_by(&found, &mut random) => {
                assert!(found.confidence() > 0.8, "{found:?}");
            }
            Verdict::Determined(found) => wrong.push((memory.map, found)),
            Verdict::Undetermined(why) => missed.push((memory.map, why)),
        }
    }
    samples.sort_unstable();
    println!("missed {missed:?}, wrong {wrong:?}; samples: median {}, most {}", samples[100], samples[199]);
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(missed.len() <= 2, "{missed:?}");
}

#[test]
fn maps_without_a_rule_are_undetermined() {
    for (case, targets) in [2, 3, 4, 8, 16].into_iter().cycle().enumerate().take(40) {
        let memory = simple(Map::Table(targets));
        let (verdict, _) = memory.solve(case as u64);
        assert!(matches!(&verdict, Verdict::Undetermined(why) if why.contains("by no rule")), "{targets}: {verdict:?}");
    }
}

#[test]
fn memory_without_conflicts_is_undetermined() {
    for case in 0..20 {
        for map in [Map::Apart, Map::Modulo(30, 2)] {
            let (verdict, _) = simple(map.clone()).solve(case);
            assert!(matches!(verdict, Verdict::Undetermined(_)), "{map:?}: {verdict:?}");
        }
    }
}

/// Sixteen pages of 2 MiB at unknown places, conflicts half as long again.
fn simple(map: Map) -> Simulated {
    let frames = (0..16).map(|page| page << 21).collect();
    Simulated { map, page: Bytes::mib(2), frames, is_physical: false, slower: 1.5 }
}
