//! One sum in many ways, on this machine: the kernels' machine code over seeded data, against the exact sum.

use std::ops::Range;

use crate::asm;
use crate::bench::{Codes, Parts, Tools, compile, executable, measured, over_slices, volume};
use crate::code::{Executable, Fault};
use crate::memory::allowance::Claim;
use crate::no_visit::NoVisit;
use crate::schedule::Quota;
use crate::solo::{Solo, Task};
use membound_core::case::Case;
use membound_core::kernel::Variant;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::exact::{Exact, ulps_apart};
use membound_core::kernel::formula::Formula;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::naive::fused;
use membound_core::kernel::unusual;
use membound_core::memory::Obtained;
use membound_core::record::{Measured, Results, Sample, Samples};
use membound_core::units::Bytes;
use membound_core::work::rounding::{Arithmetic, Data, SumOrder, Summation};

/// Blocks of a pairwise sum that are not halved any more.
const PAIRWISE: usize = 256;
/// The scalar of a triad: no power of two, so that its product is rounded.
const SCALAR: f64 = 1.1;
/// Elements from one look whether the user wants to stop to the next: some milliseconds.
const WATCHED: usize = 1 << 16;

/// Adds up; keeps code from visit to visit, and the last data: the schedule has cases of the same data follow each other.
#[derive(Debug, Default)]
pub(crate) struct Adder {
    codes: Codes<(Variant, bool, Arithmetic)>,
    last: Option<Kept>,
}

/// Summands that are kept from visit to visit.
#[derive(Debug)]
struct Kept {
    made: Made,
    summands: Summands,
    /// What they and the thread's own copy of them take of the run's memory.
    _claim: Claim,
}

/// What summands were made for.
type Made = (String, Data, u64, usize);

/// The streams of a sum, and its exact value.
#[derive(Debug)]
struct Summands {
    streams: Vec<Vec<f64>>,
    /// The exact sum, rounded once. Of a triad: 0.
    exact: f64,
    /// Sum of magnitudes, rounded once.
    magnitude: f64,
}

impl Adder {
    /// Gives the data back.
    pub fn give_back(&mut self) {
        self.last = None;
    }

    /// Visits `case`, which is this sum.
    pub fn visit(
        &mut self,
        case: &Case,
        way: &Summation,
        quota: &Quota<'_>,
        tools: &Tools<'_>,
    ) -> Result<Measured, NoVisit> {
        let &[cpu] = &case.cpus[..] else { return Err(NoVisit::OneThread("a sum is added up by")) };
        let kernel = Kernel::find(&way.variant.kernel)?;
        let isa = tools.isa.fusing(way.fused);
        if way.fused && !tools.isa.fma {
            return Err(NoVisit::impossible("this processor has no fused multiply-add (FMA)"));
        }
        let key = (way.variant.clone(), way.fused, way.arithmetic);
        let code = self.codes.get(key, || code(kernel, way, isa))?;
        let formula = kernel.formula();
        let elements = (case.working_set.0 / 8) as usize / formula.streams.len();
        let made = (kernel.name.to_string(), way.data, way.seed, elements);
        if self.last.as_ref().is_some_and(|last| last.made != made) {
            // First, so that its room can be had.
            self.last = None;
        }
        let kept = match &mut self.last {
            Some(kept) => kept,
            none => none.insert(Kept::new(made, kernel, quota, tools)?),
        };
        let summands = &kept.summands;
        let mut sum = Sum { summands, formula, way, code, parts: None, result: 0.0, results: Results::default() };
        let taken = Solo::new(cpu, quota, tools).measure(&mut sum)?;
        Ok(measured(volume(kernel, &way.variant, elements as u64), taken, Obtained::default()))
    }
}

/// The code of a way to add up, checked before it is timed.
fn code(kernel: &Kernel, way: &Summation, isa: Isa) -> Result<Executable, NoVisit> {
    let (formula, variant) = (kernel.formula(), &way.variant);
    let made = match way.arithmetic {
        Arithmetic::Ieee => return compile(variant, isa),
        Arithmetic::X87 => asm::x87(formula.streams.len(), false),
        Arithmetic::X87Stored => asm::x87(formula.streams.len(), true),
        Arithmetic::FtzDaz => asm::assemble(variant, isa).and_then(asm::flushing),
    };
    let code = executable(made)?;
    for length in [1, 3, 8, 67, 300] {
        agrees_with_its_twin(&code, &formula, way, length)?;
    }
    Ok(code)
}

/// The x87 adds in one order, and must come to the twin's bits. What is flushed is added up in several: its numbers are whole
/// multiples of half of the least normal one, so that sums of those that count are exact.
fn agrees_with_its_twin(code: &Executable, formula: &Formula, way: &Summation, length: usize) -> Result<(), NoVisit> {
    let mut random = fastrand::Rng::with_seed(length as u64);
    let mut number = |stream: usize| match (way.arithmetic, stream) {
        (Arithmetic::FtzDaz, 0) => f64::from(random.u32(0..6)) * f64::MIN_POSITIVE / 2.0,
        (Arithmetic::FtzDaz, _) => f64::from(random.u32(0..6)),
        _ => random.f64() - 0.25,
    };
    let mut expect: Vec<Vec<f64>> =
        (0..formula.streams.len()).map(|stream| (0..length).map(|_| number(stream)).collect()).collect();
    // A triad adds to its second stream.
    if let (Arithmetic::FtzDaz, [_, b, c]) = (way.arithmetic, &mut expect[..]) {
        b.iter_mut().chain(c).for_each(|x| *x *= f64::MIN_POSITIVE / 2.0);
    }
    let mut found = expect.clone();
    let mut slices: Vec<&mut [f64]> = found.iter_mut().map(Vec::as_mut_slice).collect();
    let scalar = if way.arithmetic == Arithmetic::FtzDaz { 3.0 } else { SCALAR };
    let sum = over_slices(code, formula, &way.variant, &mut slices, scalar)?;
    let of_twin = match way.arithmetic {
        Arithmetic::FtzDaz => unusual::flushed(&mut expect, scalar),
        arithmetic => unusual::x87(&mut expect, scalar, arithmetic == Arithmetic::X87Stored),
    };
    let is_sum = formula.store().is_none();
    if (is_sum && sum.to_bits() != of_twin.to_bits()) || found != expect {
        return Err(NoVisit::Disagrees(format!(" for {length} elements")));
    }
    Ok(())
}

/// One sum, added up again and again.
struct Sum<'a> {
    summands: &'a Summands,
    formula: Formula,
    way: &'a Summation,
    code: &'a Executable,
    /// The thread's own summands, in the order in which they are added, and how each part of them is called.
    parts: Option<Parts<'a>>,
    /// What the last pass came to.
    result: f64,
    /// What each sample came to.
    results: Results,
}

impl Task for Sum<'_> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        let Summands { streams, exact, magnitude } = self.summands;
        let mut streams = streams.clone();
        if self.way.order == SumOrder::Backward {
            streams.iter_mut().for_each(|stream| stream.reverse());
        }
        let (all, mut ranges) = (0..streams.first().map_or(0, Vec::len), Vec::new());
        let mut note = |range| {
            ranges.push(range);
            Ok(0.0)
        };
        add_up(all, &mut note, self.way)?;
        self.parts = Some(Parts::new(self.code, &self.formula, &self.way.variant, streams, SCALAR, &ranges));
        self.results = Results { exact: exact.to_bits(), magnitude: magnitude.to_bits(), ..Results::default() };
        Ok(())
    }

    /// The first pass brings data and code into the caches. A sample is one sum, however short.
    fn warm_up(&mut self, _solo: &Solo<'_>) -> Result<u64, NoVisit> {
        self.run(1).map(|_| 1)
    }

    fn run(&mut self, _repetitions: u64) -> Result<bool, NoVisit> {
        let Some(parts) = &mut self.parts else { return Ok(true) };
        let (all, mut next) = (0..parts.streams().first().map_or(0, Vec::len), 0..);
        // The parts come in the order in which they were noted.
        let mut part = |_| parts.pass(next.next().unwrap_or(0));
        self.result = add_up(all, &mut part, self.way)?;
        Ok(true)
    }

    fn taken(&mut self, _sample: &mut Sample) {
        let (bits, ulps) = match self.formula.store() {
            None => (self.result.to_bits(), ulps_apart(self.result, self.summands.exact)),
            Some(_) => checked(self.parts.as_ref().map_or(&[], Parts::streams)),
        };
        self.results.bits.push(bits);
        self.results.ulps.push(ulps);
    }

    fn end(&mut self, samples: &mut Samples) -> Result<(), NoVisit> {
        samples.results = Some(std::mem::take(&mut self.results));
        Ok(())
    }
}

/// What adds up neighbours.
type Part<'a> = dyn FnMut(Range<usize>) -> Result<f64, Fault> + 'a;

/// Adds up in the way's order; `part` adds up neighbours. Nothing else is to take time here: it is timed.
fn add_up(all: Range<usize>, part: &mut Part<'_>, way: &Summation) -> Result<f64, Fault> {
    match way.order {
        SumOrder::Pairwise if all.len() > PAIRWISE => {
            let middle = all.start + all.len() / 2;
            Ok(add_up(all.start..middle, part, way)? + add_up(middle..all.end, part, way)?)
        }
        SumOrder::Blocked => {
            let (end, block) = (all.end, all.len().div_ceil(way.blocks.max(1) as usize).max(1));
            all.step_by(block).try_fold(0.0, |sum, first| Ok(sum + part(first..(first + block).min(end))?))
        }
        _ => part(all),
    }
}

/// Of a triad a = b + s*c: a number that stands for all bits of `a`, and the farthest element from its exact value.
fn checked(streams: &[Vec<f64>]) -> (u64, u64) {
    let [a, b, c] = streams else { return (0, 0) };
    let (mut hash, mut farthest) = (0xcbf2_9ce4_8422_2325, 0);
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        // FNV-1a, a word at a time.
        hash = (hash ^ a.to_bits()).wrapping_mul(0x0000_0100_0000_01b3);
        farthest = farthest.max(ulps_apart(*a, fused(SCALAR, *c, *b)));
    }
    (hash, farthest)
}

impl Kept {
    fn new(made: Made, kernel: &Kernel, quota: &Quota<'_>, tools: &Tools<'_>) -> Result<Self, NoVisit> {
        let (_, data, seed, elements) = made;
        let bytes = 8 * elements * kernel.formula().streams.len();
        let _claim = tools.places.allowance.claim(Bytes(2 * bytes as u64))?;
        let summands = Summands::new(kernel, data, seed, elements, &Watch(quota.interrupted))?;
        Ok(Kept { made, summands, _claim })
    }
}

/// Ends what takes long where the user wants to stop.
struct Watch<'a>(&'a (dyn Fn() -> bool + Sync));

impl Watch<'_> {
    /// Looks before some of the elements.
    fn at(&self, element: usize) -> Result<(), NoVisit> {
        if element.is_multiple_of(WATCHED) && (self.0)() { Err(NoVisit::Stopped) } else { Ok(()) }
    }
}

impl Summands {
    /// Takes no more memory than the streams do.
    fn new(kernel: &Kernel, data: Data, seed: u64, elements: usize, watch: &Watch<'_>) -> Result<Self, NoVisit> {
        let is_triad = kernel.formula().store().is_some();
        let (mut random, count) = (fastrand::Rng::with_seed(seed), kernel.formula().streams.len());
        let (first, second) = numbers(data, elements, count == 2, &mut random, watch)?;
        let streams = match count {
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
                watch.at(at)?;
                let y = rest.first().map_or(1.0, |second| second[at]);
                sum.add_product(*x, y);
                magnitudes.add_product(x.abs(), y.abs());
            }
        }
        Ok(Summands { streams, exact: sum.value(), magnitude: magnitudes.value() })
    }
}

/// Numbers of that condition, and with them, where wanted, positive factors for a dot product of the same condition: each number
/// has a partner of almost the same magnitude and the other sign, with the same factor, and what is left of all pairs is their sum.
fn numbers(
    data: Data,
    elements: usize,
    has_factors: bool,
    random: &mut fastrand::Rng,
    watch: &Watch<'_>,
) -> Result<(Vec<f64>, Vec<f64>), NoVisit> {
    let left = 2.0 / data.condition();
    // A pair may end beyond the last element.
    let with_room = |elements: usize| Vec::with_capacity(elements + 1);
    let (mut numbers, mut factors) = (with_room(elements), with_room(if has_factors { elements } else { 0 }));
    while numbers.len() < elements {
        watch.at(numbers.len())?;
        let (x, factor) = (random.f64(), 0.5 + random.f64());
        match data {
            Data::Uniform => numbers.push(x),
            Data::Subnormal => numbers.push(x * 2.0 * f64::MIN_POSITIVE),
            _ => numbers.extend([x, -x * (1.0 - left)]),
        }
        if has_factors {
            factors.resize(numbers.len(), factor);
        }
    }
    for (stream, last) in [(&mut numbers, 0.0), (&mut factors, 1.0)] {
        let length = stream.len().min(elements);
        stream.truncate(elements / 2 * 2);
        stream.resize(length, last);
    }
    for at in 1..elements {
        watch.at(at)?;
        let other = random.usize(..=at);
        numbers.swap(at, other);
        if has_factors {
            factors.swap(at, other);
        }
    }
    Ok((numbers, factors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_have_the_condition_that_they_are_named_for() {
        for &data in Data::ALL {
            for name in ["sum", "dot"] {
                let summands = Summands::new(Kernel::find(name).unwrap(), data, 3, 10_001, &Watch(&|| false)).unwrap();
                let found = summands.magnitude / summands.exact.abs();
                assert!((0.5..2.0).contains(&(found / data.condition())), "{name} {data}: {found}");
                assert!(summands.streams.iter().all(|stream| stream.len() == 10_001));
            }
        }
    }

    /// Whoever compares bits of two records wants the numbers of a seed to be the same in all versions: those that were once made as
    /// pairs, with the library's shuffle.
    #[test]
    fn numbers_are_those_of_their_seed() {
        for (data, elements) in Data::ALL.iter().flat_map(|&data| [(data, 1000), (data, 1001)]) {
            let (mut random, mut pairs) = (fastrand::Rng::with_seed(7), Vec::new());
            while pairs.len() < elements {
                let (x, factor) = (random.f64(), 0.5 + random.f64());
                match data {
                    Data::Uniform => pairs.push((x, factor)),
                    Data::Subnormal => pairs.push((x * 2.0 * f64::MIN_POSITIVE, factor)),
                    _ => pairs.extend([(x, factor), (-x * (1.0 - 2.0 / data.condition()), factor)]),
                }
            }
            pairs.truncate(elements / 2 * 2);
            pairs.resize(elements, (0.0, 1.0));
            random.shuffle(&mut pairs);
            let expect: (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let made = |has_factors| {
                numbers(data, elements, has_factors, &mut fastrand::Rng::with_seed(7), &Watch(&|| false)).unwrap()
            };
            assert_eq!(made(false), (expect.0.clone(), Vec::new()), "{data}");
            assert_eq!(made(true), expect, "{data}");
        }
    }

    #[test]
    fn what_takes_long_is_stopped_and_counts_as_memory_of_the_run() {
        use crate::bench::Probe;
        use crate::memory::allowance::Allowance;
        use crate::memory::places::Places;
        use crate::os::clock::Ticker;
        use std::time::Duration;

        let make = |interrupted, most| {
            let ticker = Ticker::detect();
            let (hz, probe) = (ticker.calibrate(Duration::from_millis(1)).hz, Probe::new(ticker).unwrap());
            let places = Places { allowance: Allowance::of(Bytes(most)), ..Places::default() };
            let tools = Tools { ticker, isa: Isa::NONE, probe: &probe, places: &places, hz, sample: Duration::ZERO };
            let interrupted = &move || interrupted;
            let quota = Quota { least_samples: 1, most_samples: 1, time: Duration::ZERO, interrupted };
            let made = ("dot".into(), Data::Uniform, 1, 1 << 16);
            Kept::new(made, Kernel::find("dot").unwrap(), &quota, &tools).map(|kept| (kept, places.allowance.clone()))
        };
        assert!(matches!(make(true, 1 << 30), Err(NoVisit::Stopped)));
        let refused = make(false, (2 << 20) - 1).unwrap_err();
        assert!(refused.is_beyond_allowance(), "{refused}");
        let (kept, allowance) = make(false, 2 << 20).unwrap();
        assert!(allowance.claim(Bytes(1)).is_err());
        drop(kept);
        assert!(allowance.claim(Bytes::mib(2)).is_ok());
    }

    #[test]
    fn orders_by_hand() {
        let way = |order, blocks| {
            let variant = membound_core::case::usual(
                "sum",
                membound_core::kernel::Width::Scalar,
                membound_core::kernel::StoreKind::Regular,
            );
            let arithmetic = Arithmetic::Ieee;
            Summation { variant, fused: false, arithmetic, order, blocks, data: Data::Uniform, seed: 1 }
        };
        let parts = |order, blocks, length: usize| {
            let (mut seen, mut next) = (Vec::new(), 0);
            let mut part = |part: Range<usize>| {
                assert_eq!(part.start, next, "neighbours in order");
                next = part.end;
                seen.push(part.len());
                Ok(part.len() as f64)
            };
            let sum = add_up(0..length, &mut part, &way(order, blocks)).unwrap();
            assert_eq!(sum, length as f64);
            seen
        };
        assert_eq!(parts(SumOrder::Forward, 1, 1000), [1000]);
        assert_eq!(parts(SumOrder::Blocked, 3, 1000), [334, 334, 332]);
        assert_eq!(parts(SumOrder::Pairwise, 1, 1000), [250, 250, 250, 250]);
        assert_eq!(parts(SumOrder::Blocked, 8, 3), [1, 1, 1]);
    }
}
