//! The workbench: what every visit on this machine needs, whatever it measures. The core's clock, machine code that was
//! checked before it is timed, the CPU that a thread stays on, and what a sample takes.
//!
//! Every experiment may use this file; it knows none of them.

#![allow(unsafe_code)]

use membound_core::record::Unit;
use std::collections::HashMap;
use std::hash::Hash;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::answers::Filling;
use crate::asm::{self, CHAIN_LINKS, LINES_PER_TRIP, LineStore, WIDE_ADDS, assemble, core_clock_chain, wide_additions};
use crate::code::{Call, Executable, Fault, MachineCode, Part, access_bytes};
use crate::memory::places::Places;
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use crate::os::thread;
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::formula::{Formula, Role, Stream};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::naive::Twin;
use membound_core::kernel::{LoadKind, StoreKind, Unsupported, Variant, Width, naive};
use membound_core::memory::Obtained;
use membound_core::record::probes::{ProbeSamples, Reading};
use membound_core::record::{Measured, Samples, Volume};
use membound_core::units::{Bytes, Hertz, LINE};

/// The kernel counts steal in ticks of 10 ms; reading it more often than it changes only disturbs.
const STEAL_PERIOD: Duration = Duration::from_millis(10);
/// Trips of the two parts of a probe: 1.6 us and 0.8 us at 4 GHz. Each part runs twice, and the faster one counts:
/// interruptions by a host come too seldom to fall into both. Where the clock may tick at 25 MHz, a part takes 16 times
/// as long: 640 ticks and 320.
const PROBE_TRIPS: [u64; 2] = if cfg!(target_arch = "aarch64") { [1024, 2048] } else { [64, 128] };
/// Calls of either length that tell what a call takes.
const CALL_TRIES: usize = 128;
/// Links of the chain behind each reading of the core clock.
const CORE_CLOCK_LINKS: u64 = PROBE_TRIPS[0] * CHAIN_LINKS;

/// Tells the core's clock, and how much of its core the calling thread has. Touches registers only, so no data leaves a
/// cache for it.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Dependent and independent additions.
    parts: [Executable; 2],
    ticker: Ticker,
    /// What calling each part and reading the clock takes.
    call_ticks: [u64; 2],
    /// What a reading takes at most, where the core is shared.
    pub most_ticks: u64,
}

impl Probe {
    /// Finds out what calls take by calls of two lengths.
    pub fn new(ticker: Ticker) -> Result<Probe, NoVisit> {
        let parts = [executable(core_clock_chain())?, executable(wide_additions())?];
        let mut probe = Probe { parts, ticker, call_ticks: [0; 2], most_ticks: 0 };
        probe.call_ticks = [0, 1].map(|part| {
            let shortest = (0..32).map(|_| probe.ticks(part, 1)).min().unwrap_or(0);
            let both = || [1, 2].map(|times| probe.ticks(part, times * PROBE_TRIPS[part]));
            // The least of two, as in a reading.
            let least = |[a, b]: [[u64; 2]; 2]| [a[0].min(b[0]), a[1].min(b[1])];
            call_ticks((0..CALL_TRIES).map(|_| least([both(), both()])), shortest)
        });
        let reading = || {
            let start = ticker.now();
            probe.read();
            ticker.now().saturating_sub(start)
        };
        probe.most_ticks = (0..32).map(|_| reading()).min().unwrap_or(0) * 2;
        Ok(probe)
    }

    /// A reading, on the calling thread.
    pub fn read(&self) -> Reading {
        // What ran before may have pushed the code out of the caches.
        let _cold = [0, 1].map(|part| self.ticks(part, 1));
        let mut least = [u64::MAX; 2];
        for _ in 0..2 {
            for (part, least) in least.iter_mut().enumerate() {
                *least = (*least).min(self.ticks(part, PROBE_TRIPS[part]));
            }
        }
        let [chain_ticks, wide_ticks] = [0, 1].map(|part| {
            let ticks = least[part].saturating_sub(self.call_ticks[part]).max(1);
            u32::try_from(ticks).unwrap_or(u32::MAX)
        });
        Reading { chain_ticks, wide_ticks }
    }

    fn ticks(&self, part: usize, trips: u64) -> u64 {
        let mut call = Call::empty(trips);
        let start = self.ticker.now();
        // SAFETY: both parts read and write nothing but registers and their own argument.
        let run = unsafe { self.parts[part].run(&mut call) };
        let ticks = self.ticker.now().saturating_sub(start);
        debug_assert!(run.is_ok());
        ticks
    }
}

/// What a call takes, of which each try has the ticks of one and of one twice as long: the first twice, less the second. Both were
/// taken at once, since a core that changes its clock between all short calls and all long ones would have it off by what the clock
/// changed by, and with it every cycle of the run. Mean of all tries but an eighth at either end: those hold the interrupted ones, and
/// a mean tells less than the step of a coarse counter. A call with a single trip takes longer.
fn call_ticks(tries: impl Iterator<Item = [u64; 2]>, shortest: u64) -> u64 {
    let mut calls: Vec<f64> = tries.map(|[once, twice]| 2.0 * once as f64 - twice as f64).collect();
    calls.sort_by(f64::total_cmp);
    let middle = &calls[calls.len() / 8..calls.len() - calls.len() / 8];
    let mean = middle.iter().sum::<f64>() / middle.len().max(1) as f64;
    (mean.max(0.0).round() as u64).min(shortest)
}

/// Appends what the probes of all threads told around a sample. Returns them all.
pub(crate) fn keep_probes(
    samples: &mut Samples,
    threads: impl ExactSizeIterator<Item = [Reading; 2]>,
) -> &mut ProbeSamples {
    let [chain_links, wide_adds] = [CORE_CLOCK_LINKS, PROBE_TRIPS[1] * WIDE_ADDS];
    let none = || ProbeSamples { chain_links, wide_adds, ..ProbeSamples::default() };
    let probes = samples.probes.get_or_insert_with(none);
    probes.push(threads);
    probes
}

/// What a visit needs of the machine.
pub(crate) struct Tools<'a> {
    pub ticker: Ticker,
    pub isa: Isa,
    pub probe: &'a Probe,
    pub places: &'a Places,
    /// Ticks in a second.
    pub hz: Hertz,
    /// A sample lasts at least this long.
    pub sample: Duration,
}

impl Tools<'_> {
    /// Ticks that a sample lasts at least.
    pub fn sample_ticks(&self) -> u64 {
        (self.sample.as_secs_f64() * self.hz.0) as u64
    }
}

/// Pieces of machine code, made when they are first asked for. A refusal is kept too.
#[derive(Debug)]
pub(crate) struct Codes<K>(HashMap<K, Result<Executable, NoVisit>>);

impl<K> Default for Codes<K> {
    fn default() -> Self {
        Codes(HashMap::new())
    }
}

impl<K: Eq + Hash> Codes<K> {
    /// The code for `key`, which `make` makes.
    pub fn get(&mut self, key: K, make: impl FnOnce() -> Result<Executable, NoVisit>) -> Result<&Executable, NoVisit> {
        self.0.entry(key).or_insert_with(make).as_ref().map_err(NoVisit::clone)
    }
}

/// Assembled code, ready to run.
pub(crate) fn executable(code: Result<MachineCode, Unsupported>) -> Result<Executable, NoVisit> {
    Executable::new(&code?).map_err(|fault| NoVisit::Code(Arc::new(fault)))
}

/// Assembles a variant and checks it on small arrays against its twin before it is ever timed.
pub(crate) fn compile(variant: &Variant, isa: Isa) -> Result<Executable, NoVisit> {
    let executable = executable(assemble(variant, isa))?;
    let kernel = Kernel::find(&variant.kernel)?;
    for length in [1, 3, 8, 67, 300] {
        self_test(&executable, kernel, variant, isa, length)?;
    }
    Ok(executable)
}

fn self_test(
    executable: &Executable,
    kernel: &Kernel,
    variant: &Variant,
    isa: Isa,
    length: usize,
) -> Result<(), NoVisit> {
    let formula = kernel.formula();
    let margins = formula.margins();
    let columns = length + (margins.left + margins.right) as usize;
    let rows = if formula.grid { 4 } else { 1 };
    let filling = Filling::of(&formula);
    let content = |(stream, role): (usize, Role)| match role {
        Role::Index => (0..columns).map(|i| naive::index(formula.order, i, columns) as f64).collect(),
        _ => (0..rows * columns).map(|i| filling.number(i + 5 * stream)).collect(),
    };
    let mut twin: Vec<Vec<f64>> = formula.streams.iter().map(|s| s.role).enumerate().map(content).collect();
    let lay_down = |(stream, numbers): (&Stream, &Vec<f64>)| match stream.role {
        Role::Index => variant.element.encode_index(numbers),
        _ => variant.element.encode(numbers),
    };
    let mut arrays: Vec<Vec<u8>> = formula.streams.iter().zip(&twin).map(lay_down).collect();
    let by_hand = Twin::new(&formula, variant.element, 3.0, isa);
    let expect = by_hand.pass(&mut twin, rows, columns);
    let addresses: Vec<u64> = arrays.iter_mut().map(|a| a.as_mut_ptr() as u64).collect();
    let mut call = Call::new(&formula, variant, &addresses, rows as u64, columns as u64);
    call.scalar = by_hand.scalar;
    // SAFETY: the addresses are those of `arrays`, which hold rows x columns elements and are not used meanwhile; indices
    // are below `columns`.
    unsafe { executable.run(&mut call) }?;
    let is_stored = |(stream, bytes): (&Vec<f64>, &Vec<u8>)| {
        let found = variant.element.decode(bytes);
        found.iter().zip(stream).all(|(found, expect)| naive::is_same(*found, *expect))
    };
    let values = twin.iter().zip(&arrays).zip(&formula.streams).filter(|(_, stream)| stream.role == Role::Values);
    let additions = call.most_additions(&formula, variant);
    let results = expect.check(&call.results(&formula, variant), variant.element, additions);
    if !values.map(|(both, _)| both).all(is_stored) || results.is_err() {
        return Err(NoVisit::Disagrees(format!(" for {length} elements")));
    }
    Ok(())
}

/// What is no whole access is done by single elements, as any other store or load. So where there are none, of blocks of zeros or
/// of non-temporal vectors, nothing is measured of them.
pub(crate) fn check_whole_accesses(variant: &Variant, call: &Call) -> Result<(), NoVisit> {
    let is_nt = variant.width != Width::Scalar && (variant.store == StoreKind::Nt || variant.load == LoadKind::Nt);
    if call.has_whole_accesses() || !(is_nt || variant.store == StoreKind::Zero) {
        return Ok(());
    }
    let bytes = Bytes(access_bytes(variant));
    Err(NoVisit::impossible(match variant.store {
        StoreKind::Zero => format!(
            "one instruction (dc zva) writes {bytes} of zeros, and no such block lies in a thread's array; give a larger \
             --size"
        ),
        _ => format!(
            "a non-temporal access of {bytes} must lie at a multiple of that, and no element does so in all arrays of this \
             loop, or they are shorter: it would run element by element; use --width scalar, or --store and --load regular"
        ),
    }))
}

/// One pass over slices, which must all be as long as the first. Returns the sum, where the kernel has one.
pub(crate) fn over_slices(
    code: &Executable,
    formula: &Formula,
    variant: &Variant,
    streams: &mut [&mut [f64]],
    scalar: f64,
) -> Result<f64, Fault> {
    let mut slices = OverSlices::new(code, formula.clone(), variant);
    slices.pass(streams, scalar)?;
    Ok(slices.result())
}

/// Passes over slices, one after another. How the code is called is worked out anew only where they lie elsewhere: that takes
/// longer than a short pass.
pub(crate) struct OverSlices<'a> {
    code: &'a Executable,
    formula: Formula,
    variant: &'a Variant,
    /// The last pass: how long its slices were, where they began, and its call.
    last: Option<(usize, Vec<u64>, Call)>,
}

impl<'a> OverSlices<'a> {
    /// By the code that was made of this variant of the formula.
    pub fn new(code: &'a Executable, formula: Formula, variant: &'a Variant) -> Self {
        assert!(variant.element == membound_core::kernel::Element::Double && !formula.grid);
        OverSlices { code, formula, variant, last: None }
    }

    /// One pass over slices, which must all be as long as the first.
    pub fn pass(&mut self, streams: &mut [&mut [f64]], scalar: f64) -> Result<(), Fault> {
        let OverSlices { code, formula, variant, last } = self;
        let length = streams.first().map_or(0, |stream| stream.len());
        assert!(streams.len() == formula.streams.len() && streams.iter().all(|stream| stream.len() == length));
        let mut addresses = streams.iter_mut().map(|stream| stream.as_mut_ptr() as u64);
        let is_there =
            |(long, at, _): &(usize, Vec<u64>, Call)| *long == length && addresses.by_ref().eq(at.iter().copied());
        if !last.as_ref().is_some_and(is_there) {
            let addresses: Vec<u64> = streams.iter_mut().map(|stream| stream.as_mut_ptr() as u64).collect();
            let call = Call::new(formula, variant, &addresses, 1, length as u64);
            *last = Some((length, addresses, call));
        }
        let Some((_, _, call)) = last else { return Ok(()) };
        call.scalar = scalar;
        // SAFETY: the call was made for the addresses of these slices of doubles, which are borrowed, one a stream and each
        // `length` long, as asserted.
        unsafe { code.run(call) }
    }

    /// What the last pass summed up, or loaded last; 0 where the kernel does neither.
    pub fn result(&self) -> f64 {
        self.last.as_ref().map_or(0.0, |(_, _, call)| call.result(&self.formula, self.variant))
    }
}

/// Passes over parts of streams of its own. How each part is called is worked out once: that takes longer than a short part.
pub(crate) struct Parts<'a> {
    code: &'a Executable,
    streams: Vec<Vec<f64>>,
    parts: Vec<Part>,
    /// The call over the part that was passed over last.
    call: Call,
    last: Part,
    /// Bytes of the call's partial sums; 0 where nothing is summed.
    sum_bytes: usize,
}

impl<'a> Parts<'a> {
    /// Of streams that are all as long as the first, parts of so many elements.
    pub fn new(
        code: &'a Executable,
        formula: &Formula,
        variant: &Variant,
        mut streams: Vec<Vec<f64>>,
        scalar: f64,
        parts: &[Range<usize>],
    ) -> Self {
        let length = streams.first().map_or(0, Vec::len);
        assert!(streams.len() == formula.streams.len() && streams.iter().all(|stream| stream.len() == length));
        assert!(variant.element == membound_core::kernel::Element::Double && !formula.grid);
        assert!(parts.iter().all(|part| part.start <= part.end && part.end <= length));
        let addresses: Vec<u64> = streams.iter_mut().map(|stream| stream.as_mut_ptr() as u64).collect();
        let over = |part: &Range<usize>| {
            let before = 8 * part.start as u64;
            let addresses: Vec<u64> = addresses.iter().map(|address| address + before).collect();
            let call = Call::new(formula, variant, &addresses, 1, part.len() as u64);
            (call.part(before), call)
        };
        let (last, mut call) = over(&(0..length));
        call.scalar = scalar;
        let parts = parts.iter().map(|part| over(part).0).collect();
        Parts { code, streams, parts, call, last, sum_bytes: Call::sum_bytes(formula, variant) }
    }

    /// One pass over a part. Returns the sum; 0 where the kernel has none.
    pub fn pass(&mut self, part: usize) -> Result<f64, Fault> {
        let next = self.parts[part];
        self.call.move_on(std::mem::replace(&mut self.last, next), next);
        // SAFETY: the call leads to elements of `streams` within their length, as asserted; they are its own, and stay where
        // they are as long as it lives.
        unsafe { self.code.run(&mut self.call) }?;
        Ok(if self.sum_bytes > 0 { self.call.sum_of_doubles(self.sum_bytes) } else { 0.0 })
    }

    /// What the passes left behind.
    pub fn streams(&self) -> &[Vec<f64>] {
        &self.streams
    }
}

/// What a destination gets.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// As many of these as it has room for.
    Bytes(&'a [u8]),
    /// This, everywhere.
    Byte(u8),
}

impl Source<'_> {
    /// What is left of it after so many bytes.
    fn after(self, bytes: usize) -> Self {
        match self {
            Source::Bytes(from) => Source::Bytes(&from[bytes..]),
            Source::Byte(_) => self,
        }
    }

    /// Fills `to` as a program does.
    pub(crate) fn put(self, to: &mut [u8]) {
        match self {
            Source::Bytes(from) => to.copy_from_slice(&from[..to.len()]),
            Source::Byte(byte) => to.fill(byte),
        }
    }
}

/// Fills `to` by the code for [strings](crate::asm::strings), made for this kind of source: so many times in one call.
pub fn over_bytes(code: &Executable, to: &mut [u8], source: Source<'_>, repetitions: u64) -> Result<(), Fault> {
    let mut call = Call::empty(repetitions.max(1));
    let (from, byte) = match source {
        Source::Bytes(from) => (from, 0),
        Source::Byte(byte) => (&*to, byte),
    };
    assert!(from.len() >= to.len());
    call.pointers[1..3].copy_from_slice(&[from.as_ptr() as u64, byte.into()]);
    call.pointers[0] = to.as_mut_ptr() as u64;
    call.tail = to.len() as u64;
    // SAFETY: the code writes as many bytes as `to` has, and reads as many from its source, which has no fewer; both are
    // borrowed.
    unsafe { code.run(&mut call) }?;
    Ok(())
}

/// Code that writes whole lines, each by one instruction.
#[derive(Debug)]
pub struct LineCode {
    by: LineStore,
    code: Executable,
    /// Bytes of a line.
    line: usize,
}

/// A line that is copied again and again.
#[repr(align(64))]
struct Line([u8; LINE as usize]);

impl LineCode {
    /// The code for [lines](crate::asm::lines).
    ///
    /// # Errors
    /// This processor, or its instruction set, has no such instruction; executable memory was refused.
    pub fn new(by: LineStore) -> Result<Self, NoVisit> {
        let isa = asm::detect();
        let code = executable(asm::lines(by, isa))?;
        Ok(LineCode { by, code, line: by.bytes(isa) as usize })
    }

    /// `to` before its first whole line, its whole lines, and what is left.
    fn parts<'a>(&self, to: &'a mut [u8]) -> [&'a mut [u8]; 3] {
        let first = to.as_ptr().align_offset(self.line).min(to.len());
        let (before, rest) = to.split_at_mut(first);
        let (lines, after) = rest.split_at_mut(rest.len() / self.line * self.line);
        [before, lines, after]
    }

    /// Fills `to`, so many times. What lies beside its whole lines is written as always; what zeroes lines writes zeros alone.
    ///
    /// # Errors
    /// No whole line lies in `to`, or a fault ended the code.
    pub fn over(&self, to: &mut [u8], source: Source<'_>, repetitions: u64) -> Result<(), NoVisit> {
        let [before, lines, after] = self.parts(to);
        if lines.is_empty() {
            let line = Bytes(self.line as u64);
            return Err(NoVisit::impossible(format!(
                "one instruction writes {line}, and no such line lies in a thread's array; give a larger --size"
            )));
        }
        let inner = source.after(before.len());
        if !(before.is_empty() && after.is_empty()) {
            (0..repetitions).for_each(|_| {
                source.put(black_box(&mut *before));
                inner.after(lines.len()).put(black_box(&mut *after));
            });
        }
        Ok(self.over_lines(lines, inner, repetitions)?)
    }

    /// The same for whole lines alone, in one call.
    fn over_lines(&self, to: &mut [u8], source: Source<'_>, repetitions: u64) -> Result<(), Fault> {
        let byte = if let Source::Byte(byte) = source { byte } else { 0 };
        let repeated = Line([byte; LINE as usize]);
        let (from, step) = match source {
            Source::Bytes(from) => (from, LINE),
            Source::Byte(_) => (&repeated.0[..], 0),
        };
        assert!(step == 0 || from.len() >= to.len());
        assert!(self.by.copies() || matches!(source, Source::Byte(0)));
        let lines = (to.len() / self.line) as u64;
        let mut call = Call::empty(repetitions.max(1));
        call.pointers[..3].copy_from_slice(&[to.as_mut_ptr() as u64, from.as_ptr() as u64, step]);
        (call.blocks, call.vectors) = (lines / LINES_PER_TRIP, lines % LINES_PER_TRIP);
        // SAFETY: the code writes the whole lines that `to` consists of, and reads as many bytes from its source, which has
        // no fewer, or one line of its own again and again; all are borrowed.
        unsafe { self.code.run(&mut call) }
    }
}

/// What one repetition over so many elements moves.
pub(crate) fn volume(kernel: &Kernel, variant: &Variant, elements: u64) -> Volume {
    let traffic = kernel.traffic(variant.store, variant.element);
    Volume {
        units: elements,
        unit: Unit::Element,
        loaded: elements * traffic.loaded,
        stored: elements * traffic.stored,
        write_allocated: elements * traffic.write_allocated,
        flops: elements * u64::from(kernel.formula().flops()),
    }
}

/// What came of a visit in which such samples were taken, each of so many repetitions.
pub(crate) fn measured(volume: Volume, (samples, repetitions): (Samples, u64), obtained: Obtained) -> Measured {
    Measured { volume, repetitions, core_clock_links: CORE_CLOCK_LINKS, samples, obtained }
}

/// Ticks from one reading of the clock to a later one, at least 1. A clock that was set back in between, as by a suspend,
/// ends the visit.
pub(crate) fn elapsed(start: u64, end: u64) -> Result<u64, NoVisit> {
    end.checked_sub(start).map(|ticks| ticks.max(1)).ok_or(NoVisit::SetBack)
}

/// Pins the calling thread. That a CPU goes away after the plan was made ends its own cases alone.
pub(crate) fn pin(cpu: u32) -> Result<(), NoVisit> {
    thread::pin(cpu).map_err(|fault| NoVisit::Cpu { cpu, fault: Arc::new(fault) })
}

/// Steal time of all CPUs from /proc/stat.
pub(crate) struct StealMeter {
    last: u64,
    read_at: Instant,
}

impl StealMeter {
    pub fn new() -> Self {
        StealMeter { last: crate::os::machine::steal_jiffies().unwrap_or(0), read_at: Instant::now() }
    }

    pub fn since_last(&mut self) -> u32 {
        if self.read_at.elapsed() < STEAL_PERIOD {
            return 0;
        }
        self.read_at = Instant::now();
        let now = crate::os::machine::steal_jiffies().unwrap_or(self.last);
        let grown = now.saturating_sub(self.last);
        self.last = now;
        u32::try_from(grown).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::usual;

    /// 5000 ticks of work and 60 of the call, in tries that something may befall.
    fn tries(befallen: impl Fn(usize, u64) -> u64) -> impl Iterator<Item = [u64; 2]> {
        (0..CALL_TRIES).map(move |n| [1, 2].map(|times| befallen(n, 5000 * times + 60)))
    }

    /// Parts as long as leaves of a sum by halves, shorter than an access, and empty, in any order.
    #[test]
    fn passes_over_parts_are_those_over_slices() {
        let isa = asm::detect();
        for name in ["sum", "dot"] {
            for width in isa.widths() {
                let variant = &usual(name, width, StoreKind::Regular);
                let formula = Kernel::find(name).unwrap().formula();
                let code = compile(variant, isa).unwrap();
                let mut random = fastrand::Rng::with_seed(7);
                let mut streams = vec![Vec::new(); formula.streams.len()];
                streams.iter_mut().for_each(|stream| *stream = (0..1000).map(|_| random.f64() - 0.5).collect());
                let parts = [0..250, 250..501, 997..1000, 500..500, 0..1000, 3..4];
                let mut by_parts = Parts::new(&code, &formula, variant, streams.clone(), 3.0, &parts);
                for which in [0, 1, 2, 3, 4, 5, 2, 0, 4] {
                    let mut slices: Vec<&mut [f64]> =
                        streams.iter_mut().map(|stream| &mut stream[parts[which].clone()]).collect();
                    let expect = over_slices(&code, &formula, variant, &mut slices, 3.0).unwrap();
                    assert_eq!(
                        by_parts.pass(which).unwrap().to_bits(),
                        expect.to_bits(),
                        "{name} {width}: part {which}"
                    );
                }
            }
        }
    }

    /// How code is called is worked out once for slices that stay, and anew for those that lie elsewhere or are longer.
    #[test]
    fn slices_that_stay_are_called_the_same_way() {
        let (isa, kernel) = (asm::detect(), Kernel::find("sum").unwrap());
        let variant = &usual("sum", Width::Scalar, StoreKind::Regular);
        let code = compile(variant, isa).unwrap();
        let mut slices = OverSlices::new(&code, kernel.formula(), variant);
        let mut numbers = vec![1.0; 100];
        let mut sum = |slices: &mut OverSlices<'_>, from: usize, to: usize| {
            slices.pass(&mut [&mut numbers[from..to]], 3.0).unwrap();
            (slices.result(), slices.last.as_ref().unwrap().1.as_ptr())
        };
        let first = sum(&mut slices, 0, 50);
        assert_eq!(first.0, 50.0);
        assert_eq!(sum(&mut slices, 0, 50), first, "kept");
        assert_eq!(
            [sum(&mut slices, 10, 60).0, sum(&mut slices, 10, 70).0, sum(&mut slices, 0, 50).0],
            [50.0, 60.0, 50.0]
        );
    }

    /// Stores of one loop to neighbouring elements are never aligned at once, so no vector can be stored around the caches.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_makes_no_whole_access_is_not_measured_as_such() {
        let nt = usual("copy", Width::W256, StoreKind::Nt);
        let check = |text: &str, variant: &Variant, elements: u64| {
            let formula = Formula::parse(text).unwrap();
            let addresses = vec![4096; formula.streams.len()];
            check_whole_accesses(variant, &Call::new(&formula, variant, &addresses, 1, elements))
        };
        let (copy, both) = ("a[i] = b[i]", "a[i+1] = b[i]; c[i] = b[i]");
        assert!(check(copy, &nt, 1000).is_ok());
        for (text, elements) in [(both, 1000), (copy, 3)] {
            let reason = check(text, &nt, elements).unwrap_err().to_string();
            assert!(reason.contains("32 B must lie at a multiple") && reason.contains("--width scalar"), "{reason}");
            for variant in
                [Variant { width: Width::Scalar, ..nt.clone() }, Variant { store: StoreKind::Regular, ..nt.clone() }]
            {
                assert!(check(text, &variant, elements).is_ok(), "{text}");
            }
        }
    }

    #[test]
    fn a_call_takes_what_two_lengths_have_in_common() {
        assert_eq!(call_ticks(tries(|_, ticks| ticks), 140), 60);
        // Every ninth try is interrupted, one in its short call, the next in its long one.
        let interrupted = |n: usize, ticks: u64| {
            let is_in = n.is_multiple_of(9) && n.is_multiple_of(2) == (ticks > 6000);
            ticks + if is_in { 9000 } else { 0 }
        };
        assert_eq!(call_ticks(tries(interrupted), 140), 60);
    }

    /// From the tenth try on the core is a tenth faster.
    #[test]
    fn a_clock_that_rises_is_no_call() {
        let rises = |n: usize, ticks: u64| if n < 10 { ticks } else { (ticks - 60) * 9 / 10 + 60 };
        assert_eq!(call_ticks(tries(rises), 140), 60);
    }

    /// A counter that goes on by 26 at a time, read at any moment between two steps.
    #[test]
    fn a_coarse_counter_tells_less_than_its_step() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut coarse = |ticks: u64| (ticks + rng.u64(..26)) / 26 * 26;
        let found = call_ticks((0..CALL_TRIES).map(|_| [coarse(5060), coarse(10060)]), 140);
        assert!(found.abs_diff(60) <= 13, "{found}");
    }

    #[test]
    fn a_call_takes_no_longer_than_one_with_a_trip() {
        assert_eq!(call_ticks(tries(|_, ticks| ticks), 50), 50);
        assert_eq!(call_ticks([[100, 300]].into_iter(), 50), 0);
        assert_eq!(call_ticks(std::iter::empty(), 50), 0);
    }
}
