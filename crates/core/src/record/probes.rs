//! What a probe of registers alone told around each sample: how much of its core a thread had.
//!
//! A chain of additions in which each needs the one before takes one core cycle each, whoever else uses the core: it tells
//! the clock. Independent additions take all of the core's integer units, and get fewer where a hyperthread sibling is busy
//! or the host runs another virtual CPU on the same core. So additions per cycle of the second, against what the CPU can,
//! are the thread's share of its core: 1 undisturbed, a half where two threads compute.
//!
//! A line that two threads hand to each other tells how far apart their cores are. A host may move the CPUs of a guest: now
//! they are behind one last-level cache, with its one link to memory, now behind two.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;
use crate::stats::quantiles::{median, quantile};

/// Of a visit's readings whose chain was not held up, the quantile of additions per cycle that the visit counts with.
const OF_READINGS: f64 = 0.9;
/// One in so many visits may show more than the CPU can; the next counts as undisturbed. Beside a busy neighbour a tenth of the visits,
/// or less, has the core to itself.
const ODD: usize = 50;
/// The least part of a CPU's median clock at which a chain was not held up: an interrupt that falls into it makes the additions beside
/// it look like more than the CPU can.
const NOT_HELD_UP: f64 = 0.9;

/// One reading of both; 0 where it was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// Clock ticks of the dependent additions.
    pub chain_ticks: u32,
    /// Clock ticks of the independent additions.
    pub wide_ticks: u32,
}

/// The readings of all threads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProbeSamples {
    /// Dependent additions behind `chain_ticks`.
    pub chain_links: u64,
    /// Independent additions behind `wide_ticks`.
    pub wide_adds: u64,
    /// One entry per thread, in the order of the case's CPUs.
    pub threads: Vec<ThreadProbes>,
    /// Of each two threads in turn (the first and the second, the third and the fourth): clock ticks of handing a line over,
    /// right after each sample. Half a round trip, the least of some. Empty where that was not probed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hand_over_ticks: Vec<Vec<u32>>,
}

/// The readings of one thread: right before and right after each sample, an entry per sample; 0 where none was taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ThreadProbes {
    /// Clock ticks of the dependent additions.
    pub chain_ticks: [Vec<u32>; 2],
    /// Clock ticks of the independent additions.
    pub wide_ticks: [Vec<u32>; 2],
}

impl ThreadProbes {
    fn push(&mut self, around: [Reading; 2]) {
        for (side, reading) in around.into_iter().enumerate() {
            self.chain_ticks[side].push(reading.chain_ticks);
            self.wide_ticks[side].push(reading.wide_ticks);
        }
    }

    /// The readings before and after a sample, as far as they were taken.
    pub fn around(&self, sample: usize) -> impl Iterator<Item = Reading> + '_ {
        let sides = self.chain_ticks.iter().zip(&self.wide_ticks);
        let readings = sides.filter_map(move |(chain, wide)| {
            Some(Reading { chain_ticks: *chain.get(sample)?, wide_ticks: *wide.get(sample)? })
        });
        readings.filter(|reading| reading.chain_ticks > 0 && reading.wide_ticks > 0)
    }
}

impl ProbeSamples {
    /// Appends the readings around a sample, of each thread.
    pub fn push(&mut self, threads: impl ExactSizeIterator<Item = [Reading; 2]>) {
        self.threads.resize(threads.len(), ThreadProbes::default());
        self.threads.iter_mut().zip(threads).for_each(|(thread, around)| thread.push(around));
    }

    /// Appends what handing a line over took, of each two threads.
    pub fn push_hand_overs(&mut self, pairs: impl ExactSizeIterator<Item = u32>) {
        self.hand_over_ticks.resize(pairs.len(), Vec::new());
        self.hand_over_ticks.iter_mut().zip(pairs).for_each(|(pair, ticks)| pair.push(ticks));
    }

    /// Whether every column has so many entries.
    pub(super) fn has_samples(&self, n: usize) -> bool {
        let columns = |thread: &ThreadProbes| thread.chain_ticks.iter().chain(&thread.wide_ticks).all(|c| c.len() == n);
        self.chain_links > 0
            && self.wide_adds > 0
            && self.threads.iter().all(columns)
            && self.hand_over_ticks.iter().all(|pair| pair.len() == n)
    }

    /// Dependent and independent additions per clock tick.
    fn rates(&self, reading: Reading) -> [f64; 2] {
        let per_tick = |count: u64, ticks: u32| count as f64 / f64::from(ticks);
        [per_tick(self.chain_links, reading.chain_ticks), per_tick(self.wide_adds, reading.wide_ticks)]
    }

    /// Additions per core cycle.
    fn width(&self, reading: Reading) -> f64 {
        let [chain, wide] = self.rates(reading);
        wide / chain
    }

    /// Core cycles per clock tick around a sample, a mean over threads, all of which were read: the most that a reading says, by the
    /// chain or, where that was held up, by the independent additions, but no more than a chain of that CPU showed.
    pub(super) fn clock(&self, sample: usize, cpus: &[u32], undisturbed: &Undisturbed) -> Option<f64> {
        /// More independent additions in a cycle than a CPU can, by more than readings differ.
        const HELD_UP: f64 = 1.1;
        let of_thread = |(index, thread): (usize, &ThreadProbes)| {
            let alone = cpus.get(index).and_then(|cpu| undisturbed.cpus.get(cpu));
            let clock = |[chain, wide]: [f64; 2]| match alone {
                Some(alone) if wide > HELD_UP * chain * alone.width => (wide / alone.width).min(alone.clock).max(chain),
                _ => chain,
            };
            thread.around(sample).map(|reading| clock(self.rates(reading))).reduce(f64::max)
        };
        let clocks = self.threads.iter().enumerate().map(of_thread).collect::<Option<Vec<f64>>>()?;
        (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
    }

    /// Each sample's share of its core, or of the part of it that the case's other threads leave: the least over threads and both
    /// sides, from 0 to 1. `None` where no thread was probed, or what its CPU can is not known.
    pub fn shares(&self, cpus: &[u32], undisturbed: &Undisturbed) -> Vec<Option<f64>> {
        let samples = self.threads.first().map_or(0, |thread| thread.chain_ticks[0].len());
        let threads: Vec<(&ThreadProbes, f64)> = self
            .threads
            .iter()
            .zip(undisturbed.parts(cpus))
            .filter_map(|(thread, part)| Some((thread, part?)))
            .collect();
        let of_thread = |sample: usize, (thread, part): &(&ThreadProbes, f64)| {
            let least = thread.around(sample).map(|reading| self.width(reading)).reduce(f64::min)?;
            Some((least / part).min(1.0))
        };
        let of_sample = |sample| threads.iter().filter_map(|thread| of_thread(sample, thread)).reduce(f64::min);
        (0..samples).map(of_sample).collect()
    }
}

/// What each CPU can when nothing else uses its core. Cores of several kinds differ.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Undisturbed {
    cpus: HashMap<u32, Alone>,
    /// The hardware threads of cores that have several.
    cores: HashMap<u32, CpuSet>,
}

impl Undisturbed {
    /// As all visits to a record tell, each with the CPUs of its case.
    pub fn of<'a>(visits: impl IntoIterator<Item = (&'a [u32], &'a ProbeSamples)>) -> Undisturbed {
        let mut rates: HashMap<u32, Vec<Vec<[f64; 2]>>> = HashMap::new();
        for (cpus, probes) in visits {
            for (thread, &cpu) in probes.threads.iter().zip(cpus) {
                let samples = thread.chain_ticks[0].len();
                let readings = (0..samples).flat_map(|sample| thread.around(sample));
                rates.entry(cpu).or_default().push(readings.map(|reading| probes.rates(reading)).collect());
            }
        }
        let cpus = rates.into_iter().filter_map(|(cpu, visits)| Some((cpu, Alone::of(&visits)?)));
        Undisturbed { cpus: cpus.collect(), cores: HashMap::new() }
    }

    /// On a machine that tells which CPUs are threads of one core.
    pub fn on(mut self, machine: &Machine) -> Undisturbed {
        let several = machine.cpus.iter().filter(|cpu| cpu.core_cpus.len() > 1);
        self.cores = several.map(|cpu| (cpu.id, cpu.core_cpus.clone())).collect();
        self
    }

    /// Of each of these CPUs, while all of them compute: threads of one core get equal parts of it. Where a CPU was never probed alone, its
    /// part is taken for less than it is; but then nobody else fits on the core.
    fn parts(&self, cpus: &[u32]) -> Vec<Option<f64>> {
        let all: CpuSet = cpus.iter().copied().collect();
        let threads = |cpu: &u32| self.cores.get(cpu).map_or(1, |core| core.intersection(&all).len().max(1));
        cpus.iter().map(|cpu| Some(self.width(*cpu)? / threads(cpu) as f64)).collect()
    }

    /// Additions per core cycle of this CPU; `None` where it was never probed.
    pub fn width(&self, cpu: u32) -> Option<f64> {
        self.cpus.get(&cpu).map(|alone| alone.width)
    }
}

/// What a CPU does that has its core to itself.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Alone {
    /// Independent additions per core cycle: a constant of the machine.
    width: f64,
    /// Core cycles per clock tick, the most that a visit's chains showed.
    clock: f64,
}

impl Alone {
    /// Of the rates of its readings, visit by visit: dependent and independent additions per clock tick. A visit counts once, however
    /// many readings it has.
    fn of(visits: &[Vec<[f64; 2]>]) -> Option<Alone> {
        let clock_of = |visit: &Vec<[f64; 2]>| median(visit.iter().map(|[chain, _]| *chain));
        let clocks: Vec<f64> = visits.iter().filter_map(clock_of).collect();
        let least = NOT_HELD_UP * median(clocks.iter().copied())?;
        let width_of = |visit: &Vec<[f64; 2]>| {
            let free = visit.iter().filter(|[chain, _]| *chain >= least);
            let widths = sorted(free.map(|[chain, wide]| wide / chain));
            (!widths.is_empty()).then(|| quantile(&widths, OF_READINGS))
        };
        let widths = sorted(visits.iter().filter_map(width_of));
        let width = *widths.iter().rev().nth(widths.len() / ODD)?;
        Some(Alone { width, clock: clocks.into_iter().fold(0.0, f64::max) })
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 100 visits five have the core to themselves, at 4.0 additions a cycle; three had all their chains held up by half; the others
    /// share the core, one of them with more readings than all the rest.
    #[test]
    fn what_a_cpu_can_is_seen_where_a_neighbour_is_mostly_there() {
        let (free, held_up, shared) = ([1.0, 4.0], [2.0 / 3.0, 4.0], [0.98, 3.0]);
        let mut visits = vec![vec![free; 14]; 5];
        visits.extend(vec![vec![held_up; 14]; 3]);
        visits.extend(vec![vec![shared; 14]; 91]);
        visits.push(vec![shared; 20_000]);
        assert_eq!(Alone::of(&visits), Some(Alone { width: 4.0, clock: 1.0 }));
        assert_eq!(Alone::of(&[]), None);
        assert_eq!(Alone::of(&[Vec::new()]), None);
    }

    /// One visit in which an interrupt fell into each tenth chain.
    #[test]
    fn one_visit_is_enough() {
        let visit: Vec<[f64; 2]> = (0..20).map(|i| [if i % 10 == 3 { 0.5 } else { 1.0 }, 4.0]).collect();
        assert_eq!(Alone::of(&[visit]), Some(Alone { width: 4.0, clock: 1.0 }));
    }

    /// 4000 links and 16,000 additions at a tick a cycle: four additions per cycle.
    fn probes<const THREADS: usize>(wide_ticks: &[[[u32; 2]; THREADS]]) -> ProbeSamples {
        let mut probes = ProbeSamples { chain_links: 4000, wide_adds: 16_000, ..ProbeSamples::default() };
        for threads in wide_ticks {
            let reading = |wide_ticks| Reading { chain_ticks: 4000, wide_ticks };
            probes.push(threads.iter().map(|around| around.map(reading)));
        }
        probes
    }

    #[test]
    fn a_share_is_the_least_of_all_threads_and_both_sides() {
        let all = probes(&[[[4000; 2]; 2], [[4000, 5000], [4000; 2]], [[4000; 2], [8000; 2]], [[0; 2], [0; 2]]]);
        let undisturbed = Undisturbed::of([(&[3, 5][..], &all)]);
        assert_eq!(undisturbed.width(3), Some(4.0));
        assert_eq!(undisturbed.width(0), None);
        assert_eq!(all.shares(&[3, 5], &undisturbed), [Some(1.0), Some(0.8), Some(0.5), None]);
        assert_eq!(all.shares(&[0, 1], &undisturbed), [None; 4], "CPUs of another machine");
        // More than the machine can is a disturbed chain.
        let odd = ProbeSamples { chain_links: 2000, ..all.clone() };
        assert_eq!(odd.shares(&[3, 5], &undisturbed)[0], Some(1.0));
    }

    /// Two threads on one core get half of it each, as was asked for; alone, either has all of it.
    #[test]
    fn hyperthreads_of_a_case_leave_each_other_a_part() {
        let (alone, both) = (probes(&[[[4000; 2]]; 9]), probes(&[[[8000; 2]; 2], [[8000; 2], [16_000; 2]]]));
        let visits = [(&[3][..], &alone), (&[5][..], &alone), (&[3, 5][..], &both)];
        let mut undisturbed = Undisturbed::of(visits);
        assert_eq!(both.shares(&[3, 5], &undisturbed), [Some(0.5), Some(0.25)], "two cores");
        let core: CpuSet = [3, 5].into_iter().collect();
        undisturbed.cores = HashMap::from([(3, core.clone()), (5, core)]);
        assert_eq!(both.shares(&[3, 5], &undisturbed), [Some(1.0), Some(0.5)]);
        assert_eq!(both.shares(&[3, 4], &undisturbed), [Some(0.5); 2], "one of them alone");
    }

    /// Of four additions a cycle: a chain that took half as long again beside as many of them, and one at a lower clock.
    #[test]
    fn a_chain_that_was_held_up_does_not_make_the_clock_lower() {
        let clock_of = |width: f64, chain_ticks: u32, wide_ticks: u32| {
            let cpus = HashMap::from([(3, Alone { width, clock: 1.0 })]);
            let mut all = probes::<1>(&[]);
            all.push([[Reading { chain_ticks, wide_ticks }; 2]].into_iter());
            all.clock(0, &[3], &Undisturbed { cpus, ..Undisturbed::default() })
        };
        let clock = |chain_ticks, wide_ticks| clock_of(4.0, chain_ticks, wide_ticks);
        assert_eq!(clock(4000, 4000), Some(1.0));
        assert_eq!(clock(6000, 4000), Some(1.0), "held up");
        assert_eq!(clock(6000, 6000), Some(4000.0 / 6000.0), "a lower clock");
        assert_eq!(clock(4000, 8000), Some(1.0), "half a core");
        assert_eq!(clock(4000, 3800), Some(1.0), "no more than readings differ");
        assert_eq!(clock(0, 4000), None);
        assert_eq!(clock_of(3.5, 4000, 4000), Some(1.0), "what the CPU can was taken for less: no chain was as fast");
    }

    #[test]
    fn columns_have_an_entry_per_sample() {
        let mut all = probes(&[[[4000; 2]; 2]; 3]);
        assert!(all.has_samples(3) && !all.has_samples(2));
        all.push_hand_overs([40].into_iter());
        assert!(!all.has_samples(3), "one hand-over beside three samples");
        (0..2).for_each(|_| all.push_hand_overs([40].into_iter()));
        assert!(all.has_samples(3));
        all.threads[1].wide_ticks[1].pop();
        assert!(!all.has_samples(3));
    }
}
