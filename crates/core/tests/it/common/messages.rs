//! Messages over simulated paths: an engine of its own that shares no code with the model's, and the published shape as a record.
#![allow(dead_code)] // Each test file uses its part.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;

use crate::common::by_hand;
use membound_core::case::{Case, Work};
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::{Measured, Measurement, Record, Sample, Samples, Unit, Volume};
use membound_core::units::Bytes;
use membound_core::work::pingpong::{Buffers, MessageMode, MessagePath, PingPong, Seat};

/// How a simulated path sends.
#[derive(Debug, Clone)]
pub struct Truth {
    /// Largest size of each regime, seconds without bytes, bytes a second.
    pub regimes: Vec<(f64, f64, f64)>,
    /// Capacity, and by how much bytes beyond are slower.
    pub cache: Option<(f64, f64)>,
    /// Bytes of a chunk, seconds between one and the next.
    pub chunks: Option<(f64, f64)>,
    /// Share of the latency during which the path is held.
    pub gap: f64,
}

/// A step of a message: how long it holds the path, and how long after that the next one is ready.
type Step = (u64, u64);

const PS: f64 = 1e12;

impl Truth {
    pub fn regime(&self, bytes: f64) -> (f64, f64, f64) {
        *self.regimes.iter().find(|regime| bytes <= regime.0).unwrap()
    }

    /// Seconds of the bytes alone.
    pub fn bytes_s(&self, bytes: f64) -> f64 {
        let rate = self.regime(bytes).2;
        let beyond = self.cache.map_or(0.0, |(capacity, slower)| (bytes - capacity).max(0.0) * (slower - 1.0));
        (bytes + beyond) / rate
    }

    pub fn asymptote(&self) -> f64 {
        let rate = self.regimes.last().unwrap().2 / self.cache.map_or(1.0, |(_, slower)| slower);
        1.0 / (1.0 / rate + self.chunks.map_or(0.0, |(limit, pause)| pause / limit))
    }

    /// The steps of a message in picoseconds; the last is followed by what is the pair's own.
    pub fn steps(&self, bytes: f64) -> Vec<Step> {
        let latency = self.regime(bytes).1;
        let (limit, pause) = self.chunks.unwrap_or((f64::INFINITY, 0.0));
        let held = self.gap * latency + self.bytes_s(bytes);
        let mut sizes = Vec::new();
        let mut left = bytes;
        while left > limit {
            sizes.push(limit);
            left -= limit;
        }
        sizes.push(left);
        let count = sizes.len();
        let step = |(index, size): (usize, f64)| {
            let share = if count == 1 { 1.0 } else { size / bytes };
            // Turning round takes no less than an instant, so that another connection that asks meanwhile is served.
            let after = if index + 1 == count { (1.0 - self.gap) * latency } else { pause.max(1e-12 * 4.0) };
            ((held * share * PS) as u64, (after * PS) as u64)
        };
        sizes.into_iter().enumerate().map(step).collect()
    }

    /// Seconds of one way by `pairs` at once: bytes of all over bytes a second of all. An agenda of events in whole
    /// picoseconds: ten round trips after ten that do not count.
    pub fn one_way_s(&self, bytes: f64, pairs: usize) -> f64 {
        let steps = self.steps(bytes);
        if pairs == 1 {
            return steps.iter().map(|step| (step.0 + step.1) as f64).sum::<f64>() / PS;
        }
        let rounds = (10, 20);
        let mut agenda: BinaryHeap<Reverse<(u64, u8, usize)>> = BinaryHeap::new();
        let mut queues: [VecDeque<usize>; 2] = Default::default();
        let mut busy = [None; 2];
        let mut at_step = vec![0; pairs];
        let mut direction = vec![0; pairs];
        let mut ends: Vec<Vec<u64>> = vec![Vec::new(); pairs];
        (0..pairs).for_each(|pair| agenda.push(Reverse((0, 0, pair))));
        while ends.iter().any(|ends| ends.len() < 2 * rounds.1) {
            let Reverse((now, kind, pair)) = agenda.pop().unwrap();
            let line = direction[pair];
            if kind == 0 {
                queues[line].push_back(pair);
            } else {
                busy[line] = None;
                let after = steps[at_step[pair]].1;
                at_step[pair] += 1;
                if at_step[pair] == steps.len() {
                    at_step[pair] = 0;
                    direction[pair] = 1 - line;
                    ends[pair].push(now);
                }
                agenda.push(Reverse((now + after, 0, pair)));
            }
            // Whoever is ready at this very moment counts as waiting.
            if agenda.peek().is_some_and(|Reverse(next)| next.0 == now) {
                continue;
            }
            for line in 0..2 {
                let next = if busy[line].is_none() { queues[line].pop_front() } else { None };
                if let Some(next) = next {
                    busy[line] = Some(next);
                    agenda.push(Reverse((now + steps[at_step[next]].0, 1, next)));
                }
            }
        }
        let rate = |ends: &Vec<u64>| {
            let (first, last) = (ends[2 * rounds.0 - 1], ends[2 * rounds.1 - 1]);
            2.0 * (rounds.1 - rounds.0) as f64 / (last - first) as f64 * PS
        };
        pairs as f64 / ends.iter().map(rate).sum::<f64>()
    }
}

pub fn powers() -> Vec<f64> {
    std::iter::once(0.0).chain((0..=26).map(|power| f64::from(power).exp2())).collect()
}

pub fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// A path as in the published experiment: one link, chunks of 1 MiB that cost one pair nothing.
pub fn published() -> Truth {
    Truth {
        regimes: vec![(16384.0, 1.9e-6, 1.1e9), (f64::INFINITY, 5.2e-6, 1.5e9)],
        cache: None,
        chunks: Some((1048576.0, 0.0)),
        gap: 0.1,
    }
}

/// Ticks a second of the records' clock.
pub const HZ: f64 = 1e9;
pub const REPETITIONS: u64 = 1000;

/// A visit whose samples took each pair so many nanoseconds one way.
pub fn visit(mode: MessageMode, bytes: u64, round: u32, samples: &[Vec<f64>]) -> Measurement {
    let pairs = samples[0].len();
    let seat = |cpu: usize| Seat { host: 0, cpu: Some(cpu as u32) };
    let work = PingPong {
        mode,
        buffers: Buffers::Same,
        path: MessagePath::Package,
        pairs: (0..pairs).map(|pair| [seat(2 * pair), seat(2 * pair + 1)]).collect(),
        spread: false,
        pool: Bytes(0),
        oversubscribed: false,
    };
    let ways = if mode == MessageMode::PingPong { 2 } else { 1 };
    let ticks = |ns: &f64| (ns * (ways * REPETITIONS) as f64 * HZ / 1e9).round() as u64;
    let mut columns = Samples { pair_ticks: vec![Vec::new(); pairs], ..Samples::default() };
    for sample in samples {
        let each: Vec<u64> = sample.iter().map(ticks).collect();
        columns.push(Sample { ticks: *each.iter().max().unwrap(), ..Sample::default() });
        each.iter().zip(&mut columns.pair_ticks).for_each(|(ticks, column)| column.push(*ticks));
    }
    let sent = bytes * pairs as u64 * if mode == MessageMode::OneWay { 1 } else { 2 };
    let volume = Volume { units: ways, unit: Unit::Message, loaded: sent, stored: sent, ..Volume::default() };
    let measured = Measured { volume, repetitions: REPETITIONS, samples: columns, ..Measured::default() };
    let cpus = (0..2 * pairs as u32).collect();
    let case = Case::new(Work::PingPong(work), MemorySpec::of(MemoryKind::Heap), cpus, Bytes(bytes));
    Measurement::new(case, round, measured)
}

/// The published shape as a record: 1-1 to 3-3, one way and exchange of one pair, three visits of seven samples with 2 % noise.
pub fn published_record() -> Record {
    let (truth, mut rng) = (published(), Rng::with_seed(7));
    let mut measurements = Vec::new();
    let ways = [(MessageMode::PingPong, 1), (MessageMode::PingPong, 2), (MessageMode::PingPong, 3)];
    for (mode, pairs) in ways.into_iter().chain([(MessageMode::OneWay, 1), (MessageMode::Exchange, 1)]) {
        for bytes in powers() {
            let seconds = match mode {
                MessageMode::OneWay => truth.one_way_s(bytes, 1) - (1.0 - truth.gap) * truth.regime(bytes).1,
                _ => truth.one_way_s(bytes, pairs),
            };
            let mut sample =
                || (0..pairs).map(|_| seconds * 1e9 * (1.0 + 0.02 * normal(&mut rng))).collect::<Vec<f64>>();
            for round in 0..3 {
                let samples: Vec<Vec<f64>> = (0..7).map(|_| sample()).collect();
                measurements.push(visit(mode, bytes as u64, round, &samples));
            }
        }
    }
    by_hand::record(by_hand::clock(HZ), by_hand::unknown_machine(), measurements)
}
