//! One sum in many ways, on this machine: the kernels' machine code over seeded data, against the exact sum.

use std::collections::HashMap;
use std::time::Instant;

use super::Quota;
use super::native::{compile, over_slices, pin, unavailable};
use super::scan::{Tools, tagged};
use super::team::StealMeter;
use crate::kernel::Kernel;
use crate::kernel::code::{Executable, Fault};
use crate::kernel::exact::{Exact, ulps_apart};
use crate::plan::{Case, Data, SumOrder, Summation};
use crate::record::{Measured, Outcome, Results, Sample, Samples};

/// Blocks of a pairwise sum that are not halved any more.
const PAIRWISE: usize = 256;
/// The scalar of a triad: no power of two, so that its product is rounded.
const SCALAR: f64 = 1.1;

/// Adds up; keeps code and data from visit to visit.
#[derive(Debug, Default)]
pub(super) struct Adder {
    codes: HashMap<(crate::kernel::Variant, bool), Result<Executable, Outcome>>,
    arrays: HashMap<Made, Arrays>,
}

/// What arrays were made for.
type Made = (String, Data, u64, usize);

/// The streams of a sum, and its exact value.
#[derive(Debug)]
struct Arrays {
    streams: Vec<Vec<f64>>,
    /// The exact sum, rounded once. Of a triad: 0.
    exact: f64,
    /// Sum of magnitudes, rounded once.
    magnitude: f64,
}

impl Adder {
    /// Visits `case`, which is this sum.
    pub fn visit(
        &mut self,
        case: &Case,
        way: &Summation,
        quota: &Quota<'_>,
        tools: &Tools<'_>,
    ) -> Result<Outcome, Outcome> {
        let &[cpu] = &case.cpus[..] else { return Err(unavailable("a sum is added up by one thread; name one CPU")) };
        let kernel = Kernel::find(&way.variant.kernel).map_err(unavailable)?;
        let isa = crate::kernel::Isa { fma: tools.isa.fma && way.fused, ..tools.isa };
        if way.fused && !tools.isa.fma {
            return Err(unavailable("this processor has no fused multiply-add (FMA)"));
        }
        let key = (way.variant.clone(), way.fused);
        let code =
            self.codes.entry(key).or_insert_with(|| compile(&way.variant, isa)).as_ref().map_err(Outcome::clone)?;
        let elements = (case.working_set.0 / 8) as usize / kernel.formula().streams.len();
        let made = (kernel.name.to_string(), way.data, way.seed, elements);
        let arrays = &*self.arrays.entry(made).or_insert_with(|| Arrays::new(kernel, way.data, way.seed, elements));
        let sum = || measure(arrays, kernel, way, code, cpu, quota, tools);
        let samples = std::thread::scope(|scope| scope.spawn(sum).join())
            .unwrap_or_else(|_| Err(Outcome::Crashed { reason: "a measuring thread panicked".into() }))?;
        Ok(Outcome::Measured(Box::new(Measured {
            volume: super::native::volume(kernel, &way.variant, elements as u64),
            repetitions: 1,
            core_clock_links: super::native::CORE_CLOCK_LINKS,
            samples,
            obtained: Default::default(),
        })))
    }
}

fn measure(
    arrays: &Arrays,
    kernel: &Kernel,
    way: &Summation,
    code: &Executable,
    cpu: u32,
    quota: &Quota<'_>,
    tools: &Tools<'_>,
) -> Result<Samples, Outcome> {
    pin(cpu)?;
    let mut streams = arrays.streams.clone();
    if way.order == SumOrder::Backward {
        streams.iter_mut().for_each(|stream| stream.reverse());
    }
    let mut results =
        Results { exact: arrays.exact.to_bits(), magnitude: arrays.magnitude.to_bits(), ..Results::default() };
    let (mut samples, mut steal) = (Samples::default(), StealMeter::new());
    let (deadline, formula) = (Instant::now() + quota.time, kernel.formula());
    let run = |streams: &mut [Vec<f64>]| -> Result<f64, Fault> {
        let mut slices: Vec<&mut [f64]> = streams.iter_mut().map(Vec::as_mut_slice).collect();
        add_up(&mut slices, &mut |part| over_slices(code, &formula, &way.variant, part, SCALAR), way)
    };
    // The first pass brings data and code into the caches.
    run(&mut streams).map_err(super::native::crashed)?;
    while samples.ticks.len() < quota.most_samples {
        let is_enough = samples.ticks.len() >= quota.least_samples && Instant::now() >= deadline;
        if is_enough || (quota.interrupted)() {
            break;
        }
        let core_clock_ticks = super::native::core_clock(tools.chain, tools.ticker);
        let mut result = 0.0;
        let sample = tagged(cpu, || {
            let start = tools.ticker.now();
            result = run(&mut streams)?;
            Ok((tools.ticker.now() - start).max(1))
        });
        let sample = sample.map_err(super::native::crashed)?;
        samples.push(Sample { core_clock_ticks, steal_jiffies: steal.since_last(), ..sample });
        let (bits, ulps) = match formula.store() {
            None => (result.to_bits(), ulps_apart(result, arrays.exact)),
            Some(_) => checked(&streams),
        };
        results.bits.push(bits);
        results.ulps.push(ulps);
    }
    samples.results = Some(results);
    Ok(samples)
}

/// What adds up neighbours of all streams.
type Part<'a> = dyn FnMut(&mut [&mut [f64]]) -> Result<f64, Fault> + 'a;

/// Adds up in the way's order; `part` adds up neighbours.
fn add_up(streams: &mut [&mut [f64]], part: &mut Part<'_>, way: &Summation) -> Result<f64, Fault> {
    let length = streams.first().map_or(0, |stream| stream.len());
    match way.order {
        SumOrder::Pairwise if length > PAIRWISE => {
            let (mut left, mut right) = split(streams, length / 2);
            Ok(add_up(&mut left, part, way)? + add_up(&mut right, part, way)?)
        }
        SumOrder::Blocked => {
            let block = length.div_ceil(way.blocks.max(1) as usize).max(1);
            let (mut sum, mut rest) = (0.0, streams.iter_mut().map(|stream| &mut **stream).collect::<Vec<_>>());
            while rest.first().is_some_and(|stream| !stream.is_empty()) {
                let at = block.min(rest[0].len());
                let halves = rest.into_iter().map(|stream| stream.split_at_mut(at));
                let (mut first, later): (Vec<_>, Vec<_>) = halves.unzip();
                sum += part(&mut first)?;
                rest = later;
            }
            Ok(sum)
        }
        _ => part(streams),
    }
}

fn split<'a>(streams: &'a mut [&mut [f64]], at: usize) -> (Vec<&'a mut [f64]>, Vec<&'a mut [f64]>) {
    streams.iter_mut().map(|stream| stream.split_at_mut(at)).unzip()
}

/// Of a triad a = b + s*c: a number that stands for all bits of `a`, and the farthest element from its exact value.
fn checked(streams: &[Vec<f64>]) -> (u64, u64) {
    let [a, b, c] = streams else { return (0, 0) };
    let (mut hash, mut farthest) = (0xcbf2_9ce4_8422_2325, 0);
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        // FNV-1a, a word at a time.
        hash = (hash ^ a.to_bits()).wrapping_mul(0x0000_0100_0000_01b3);
        farthest = farthest.max(ulps_apart(*a, SCALAR.mul_add(*c, *b)));
    }
    (hash, farthest)
}

impl Arrays {
    fn new(kernel: &Kernel, data: Data, seed: u64, elements: usize) -> Self {
        let is_triad = kernel.formula().store().is_some();
        let mut random = fastrand::Rng::with_seed(seed);
        let (first, second) = numbers(data, elements, &mut random);
        let streams = match kernel.formula().streams.len() {
            1 => vec![first],
            2 => vec![first, second],
            // b cancels against s*c to the same degree as neighbours of the sums do.
            _ => {
                let b: Vec<f64> = first.iter().map(|x| -SCALAR * x * (1.0 - 1.0 / data.condition())).collect();
                vec![vec![0.0; elements], b, first]
            }
        };
        let (mut sum, mut magnitudes) = (Exact::default(), Exact::default());
        if let (false, [first, rest @ ..]) = (is_triad, &streams[..]) {
            for (at, x) in first.iter().enumerate() {
                let y = rest.first().map_or(1.0, |second| second[at]);
                sum.add_product(*x, y);
                magnitudes.add_product(x.abs(), y.abs());
            }
        }
        Arrays { streams, exact: sum.value(), magnitude: magnitudes.value() }
    }
}

/// Numbers of that condition, and positive factors for a dot product of the same condition: each number has a partner of
/// almost the same magnitude and the other sign, with the same factor, and what is left of all pairs is their sum.
fn numbers(data: Data, elements: usize, random: &mut fastrand::Rng) -> (Vec<f64>, Vec<f64>) {
    let left = 2.0 / data.condition();
    let mut both: Vec<(f64, f64)> = Vec::with_capacity(elements + 1);
    while both.len() < elements {
        let (x, factor) = (random.f64(), 0.5 + random.f64());
        match data {
            Data::Uniform => both.push((x, factor)),
            _ => both.extend([(x, factor), (-x * (1.0 - left), factor)]),
        }
    }
    both.truncate(elements / 2 * 2);
    both.resize(elements, (0.0, 1.0));
    random.shuffle(&mut both);
    both.into_iter().unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_have_the_condition_that_they_are_named_for() {
        for &data in Data::ALL {
            for name in ["sum", "dot"] {
                let arrays = Arrays::new(Kernel::find(name).unwrap(), data, 3, 10_001);
                let found = arrays.magnitude / arrays.exact.abs();
                assert!((0.5..2.0).contains(&(found / data.condition())), "{name} {data}: {found}");
                assert!(arrays.streams.iter().all(|stream| stream.len() == 10_001));
            }
        }
    }

    #[test]
    fn orders_by_hand() {
        let way = |order, blocks| {
            let case = crate::plan::steady(
                "sum",
                crate::kernel::Width::Scalar,
                crate::kernel::StoreKind::Regular,
                crate::plan::USUAL_MEMORY,
                vec![0],
                crate::units::Bytes(8),
            );
            let variant = case.variant().unwrap().clone();
            Summation { variant, fused: false, order, blocks, data: Data::Uniform, seed: 1 }
        };
        let parts = |order, blocks, length: usize| {
            let mut numbers = vec![1.0; length];
            let mut seen = Vec::new();
            let mut part = |streams: &mut [&mut [f64]]| {
                seen.push(streams[0].len());
                Ok(streams[0].iter().sum())
            };
            let sum = add_up(&mut [&mut numbers], &mut part, &way(order, blocks)).unwrap();
            assert_eq!(sum, length as f64);
            seen
        };
        assert_eq!(parts(SumOrder::Forward, 1, 1000), [1000]);
        assert_eq!(parts(SumOrder::Blocked, 3, 1000), [334, 334, 332]);
        assert_eq!(parts(SumOrder::Pairwise, 1, 1000), [250, 250, 250, 250]);
        assert_eq!(parts(SumOrder::Blocked, 8, 3), [1, 1, 1]);
    }
}
