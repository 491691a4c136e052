//! Scans on this machine: a visit sweeps over all offsets in random order and takes one sample of each. Offsets are not
//! measured in rising order, or a slow spell of the machine would look like a slow stretch of offsets.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Quota;
use super::native::{CORE_CLOCK_LINKS, core_clock, pin, unavailable};
use super::sys::{self, ThreadUsage, Ticker};
use super::team::StealMeter;
use crate::kernel::Isa;
use crate::kernel::code::{Call, Executable, Fault};
use crate::kernel::scan::{REGISTER, Scan};
use crate::memory::{Places, Region};
use crate::plan::Case;
use crate::record::{Measured, Outcome, Sample, Samples, Volume};
use crate::units::{Bytes, Hertz};

/// A sample lasts at least this long: the call and the two clock readings around it (some 150 cycles together) are then
/// below 0.5 % of it, and a sweep over the offsets of a page takes some tenth of a second.
pub(super) const SAMPLE: Duration = Duration::from_micros(10);
/// Each sample comes after a pass of this share of its length that is not timed: what the last offset left in the store
/// buffer is gone then, and the predictors know this one.
const WARM_UP: u64 = 8;
/// Offsets from one reading of the core clock to the next.
const CLOCK_PERIOD: usize = 64;
/// Samples that a visit takes at most, unless one sweep has more: records keep them all.
const SAMPLES_MOST: usize = 512;

/// Runs scans; keeps their code from visit to visit.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    codes: HashMap<Scan, Result<Executable, Outcome>>,
    /// Visits so far: the seed of the order of offsets.
    visits: u64,
}

/// What a visit needs of the machine.
pub(super) struct Tools<'a> {
    pub ticker: Ticker,
    pub isa: Isa,
    /// The core clock's chain.
    pub chain: &'a Executable,
    pub places: &'a Places,
    /// Ticks in a second.
    pub hz: Hertz,
    /// A sample lasts at least this long.
    pub sample: Duration,
}

impl Tools<'_> {
    pub fn sample_ticks(&self) -> u64 {
        (self.sample.as_secs_f64() * self.hz.0) as u64
    }
}

impl Scanner {
    /// Visits `case`, which is this scan on one thread.
    pub fn visit(&mut self, case: &Case, scan: Scan, quota: &Quota<'_>, tools: &Tools<'_>) -> Result<Outcome, Outcome> {
        let &[cpu] = &case.cpus[..] else {
            return Err(unavailable("a scan runs on one thread; name one CPU"));
        };
        self.visits += 1;
        let compile = || {
            let code = scan.assemble(tools.isa).map_err(unavailable)?;
            Executable::new(&code).map_err(|fault| unavailable(format!("executable memory was refused ({fault})")))
        };
        let code = self.codes.entry(scan).or_insert_with(compile).as_ref().map_err(Outcome::clone)?;
        let mut region = Region::new(case.memory, Bytes(Scan::SCRATCH), tools.places).map_err(unavailable)?;
        if !region.is_writable() {
            return Err(unavailable("a scan writes to its memory; choose a kind that may be written"));
        }
        let seed = self.visits;
        let sweep = || Sweeper::new(scan, code, &mut region, tools).measure(cpu, seed, quota);
        let (samples, accesses) = std::thread::scope(|scope| scope.spawn(sweep).join())
            .unwrap_or_else(|_| Err(Outcome::Crashed { reason: "a measuring thread panicked".into() }))?;
        let [stored, loaded] = scan.bytes();
        Ok(Outcome::Measured(Box::new(Measured {
            volume: Volume { elements: 1, loaded, stored, ..Volume::default() },
            repetitions: accesses,
            core_clock_links: CORE_CLOCK_LINKS,
            samples,
            obtained: region.inspect(Bytes(Scan::SCRATCH)),
        })))
    }
}

/// Takes the samples of one visit.
struct Sweeper<'a> {
    scan: Scan,
    offsets: Vec<i64>,
    code: &'a Executable,
    region: &'a mut Region,
    tools: &'a Tools<'a>,
    steal: StealMeter,
}

impl<'a> Sweeper<'a> {
    fn new(scan: Scan, code: &'a Executable, region: &'a mut Region, tools: &'a Tools<'a>) -> Self {
        let offsets = scan.offsets().collect();
        Sweeper { scan, offsets, code, region, tools, steal: StealMeter::new() }
    }

    /// Whole sweeps: at least one, and more while they are fewer than the quota's samples and there is time. With the
    /// samples come the accesses of each.
    fn measure(&mut self, cpu: u32, seed: u64, quota: &Quota<'_>) -> Result<(Samples, u64), Outcome> {
        let deadline = Instant::now() + quota.time;
        pin(cpu)?;
        self.check()?;
        let trips = self.trips().map_err(crashed)?;
        let most = quota.most_samples.min(SAMPLES_MOST / self.offsets.len()).max(1);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut samples = Samples::default();
        for _ in 0..most {
            match self.sweep(cpu, trips, &mut random, quota)? {
                Some(sweep) => sweep.into_iter().for_each(|sample| samples.push(sample)),
                None => break,
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        self.check()?;
        if samples.ticks.is_empty() {
            return Err(unavailable("it was interrupted before the first sweep was done"));
        }
        Ok((samples, trips * Scan::ACCESSES))
    }

    /// A sample of each offset, in rising order of offsets; nothing, where it was interrupted.
    fn sweep(
        &mut self,
        cpu: u32,
        trips: u64,
        random: &mut fastrand::Rng,
        quota: &Quota<'_>,
    ) -> Result<Option<Vec<Sample>>, Outcome> {
        let mut order: Vec<usize> = (0..self.offsets.len()).collect();
        random.shuffle(&mut order);
        let mut samples = vec![Sample::default(); order.len()];
        let mut core_clock_ticks = 0;
        for (done, &index) in order.iter().enumerate() {
            if done % CLOCK_PERIOD == 0 {
                core_clock_ticks = core_clock(self.tools.chain, self.tools.ticker);
                if (quota.interrupted)() {
                    return Ok(None);
                }
            }
            let sample = self.sample(self.offsets[index], trips, cpu).map_err(crashed)?;
            samples[index] = Sample { core_clock_ticks, steal_jiffies: self.steal.since_last(), ..sample };
        }
        Ok(Some(samples))
    }

    fn sample(&self, offset: i64, trips: u64, cpu: u32) -> Result<Sample, Fault> {
        tagged(cpu, || {
            self.ticks(offset, trips.div_ceil(WARM_UP))?;
            self.ticks(offset, trips)
        })
    }

    /// Trips that make a sample at the first offset, which is among the fastest of each scan: an aligned access, or a
    /// load apart from the store.
    fn trips(&self) -> Result<u64, Fault> {
        let mut trips = 64;
        loop {
            // The faster of two: one alone may have been interrupted.
            let ticks = self.ticks(self.offsets[0], trips)?.min(self.ticks(self.offsets[0], trips)?);
            if ticks >= self.tools.sample_ticks() {
                return Ok(trips);
            }
            let wanted = (trips as f64 * self.tools.sample_ticks() as f64 / ticks as f64 * 1.1).ceil() as u64;
            // Early passes run cold and slow: grow step by step, so that they can't mislead.
            trips = wanted.clamp(trips + 1, trips * 16);
        }
    }

    fn ticks(&self, offset: i64, trips: u64) -> Result<u64, Fault> {
        let Some(addresses) = self.scan.addresses(self.region.address(), offset) else { return Ok(1) };
        let mut call = Call::of_scan(addresses, &[[0; REGISTER]; 4], trips);
        let start = self.tools.ticker.now();
        // SAFETY: with the addresses of one of its offsets a scan stays within its scratch memory, which is mapped,
        // writable and borrowed exclusively.
        let run = unsafe { self.code.run(&mut call) };
        let end = self.tools.ticker.now();
        run.map(|()| (end - start).max(1))
    }

    /// Compares what trips at some offsets leave behind with plain Rust, and touches the memory's pages.
    fn check(&mut self) -> Result<(), Outcome> {
        let last = self.offsets.len() - 1;
        for offset in [0, 1, last / 3, last / 2, last].map(|index| self.offsets[index]) {
            let byte = |i: usize| (i * 131 + i / 251) as u8;
            let mut twin: Vec<u8> = (0..Scan::SCRATCH as usize).map(byte).collect();
            let mut registers = [[0x5a; REGISTER]; 4];
            for (word, bytes) in self.region.words().iter_mut().zip(twin.as_chunks().0) {
                *word = f64::from_le_bytes(*bytes);
            }
            let Some(addresses) = self.scan.addresses(self.region.address(), offset) else { continue };
            let mut call = Call::of_scan(addresses, &registers, 1);
            // SAFETY: as in `ticks`.
            unsafe { self.code.run(&mut call) }.map_err(crashed)?;
            self.scan.play(&mut twin, &mut registers, offset, 1);
            let widest = self.scan.bytes().into_iter().max().unwrap_or(0) as usize;
            let same_memory =
                self.region.words().iter().zip(twin.as_chunks().0).all(|(word, bytes)| word.to_le_bytes() == *bytes);
            let same_registers = call.registers().iter().zip(&registers).all(|(a, b)| a[..widest] == b[..widest]);
            if !same_memory || !same_registers {
                let reason = format!("the generated code disagrees with plain Rust at offset {offset}");
                return Err(Outcome::Invalid { reason });
            }
        }
        Ok(())
    }
}

/// A sample of one pinned thread: the ticks that `work` returns, and what disturbed it.
pub(super) fn tagged(cpu: u32, work: impl FnOnce() -> Result<u64, Fault>) -> Result<Sample, Fault> {
    let before = ThreadUsage::now();
    let ticks = work()?;
    let after = ThreadUsage::now();
    let lost_ns = (after.wall_ns - before.wall_ns).saturating_sub(after.cpu_ns - before.cpu_ns);
    let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Sample {
        ticks,
        fastest_thread_ticks: ticks,
        lost_us: short(lost_ns / 1000),
        switches: short(after.switches - before.switches),
        faults: short(after.faults - before.faults),
        migrations: u32::from(sys::current_cpu().is_some_and(|now| now != cpu)),
        ..Sample::default()
    })
}

fn crashed(fault: Fault) -> Outcome {
    Outcome::Crashed { reason: fault.to_string() }
}
