//! Scans on this machine: a visit sweeps over all offsets in random order and takes one sample of each. Offsets are not
//! measured in rising order, or a slow spell of the machine would look like a slow stretch of offsets.

#![allow(unsafe_code)]

use membound_core::record::Unit;
use std::time::Duration;

use crate::bench::{Codes, Tools, executable, measured};
use crate::code::{Call, Executable};
use crate::memory::region::Region;
use crate::no_visit::NoVisit;
use crate::schedule::Quota;
use crate::solo::{Solo, Task};
use membound_core::case::Case;
use membound_core::kernel::scan::{REGISTER, Scan};
use membound_core::record::{Measured, Sample, Samples, Volume};
use membound_core::units::Bytes;

/// A sample lasts at least this long: the call and the two clock readings around it (some 150 cycles together) are then
/// below 0.5 % of it, and a sweep over the offsets of a page takes some tenth of a second.
pub(crate) const SAMPLE: Duration = Duration::from_micros(10);
/// Each sample comes after a pass of this share of its length that is not timed: what the last offset left in the store
/// buffer is gone then, and the predictors know this one.
const WARM_UP: u64 = 8;
/// Samples that a visit takes at most, unless one sweep has more: records keep them all.
const SAMPLES_MOST: usize = 512;

/// Runs scans; keeps their code from visit to visit.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    codes: Codes<Scan>,
    /// Visits so far: the seed of the order of offsets.
    visits: u64,
}

impl Scanner {
    /// Visits `case`, which is this scan on one thread: whole sweeps, at least one, and more while they are fewer than the
    /// quota's samples and there is time.
    pub fn visit(
        &mut self,
        case: &Case,
        scan: Scan,
        quota: &Quota<'_>,
        tools: &Tools<'_>,
    ) -> Result<Measured, NoVisit> {
        let &[cpu] = &case.cpus[..] else { return Err(NoVisit::OneThread("a scan runs on")) };
        self.visits += 1;
        let code = self.codes.get(scan, || executable(crate::asm::scan(scan, tools.isa)))?;
        let mut region = Region::new(case.memory, Bytes(Scan::SCRATCH), tools.places)?;
        if !region.is_writable() {
            return Err(NoVisit::Unwritable("a scan writes to its memory"));
        }
        let mut sweeper = Sweeper::new(scan, code, &mut region, self.visits);
        let offsets = sweeper.offsets.len();
        let sweeps = quota.most_samples.min(SAMPLES_MOST / offsets).max(1);
        let solo = Solo::new(cpu, quota, tools).in_rounds(offsets, sweeps * offsets);
        let (samples, trips) = solo.measure(&mut sweeper).map_err(|why| match why {
            NoVisit::Stopped => NoVisit::NoSweep,
            other => other,
        })?;
        let [stored, loaded] = scan.bytes();
        let volume = Volume { units: 1, unit: Unit::Access, loaded, stored, ..Volume::default() };
        Ok(measured(volume, (samples, trips * Scan::ACCESSES), region.inspect(Bytes(Scan::SCRATCH))))
    }
}

/// Sweeps over all offsets, in another random order each time.
struct Sweeper<'a> {
    scan: Scan,
    offsets: Vec<i64>,
    /// Indices of offsets in the order of this sweep, and how many of them were visited.
    order: Vec<usize>,
    done: usize,
    random: fastrand::Rng,
    code: &'a Executable,
    region: &'a mut Region,
    /// The next pass; none where the offset leaves the scratch memory.
    call: Option<Call>,
}

impl<'a> Sweeper<'a> {
    fn new(scan: Scan, code: &'a Executable, region: &'a mut Region, seed: u64) -> Self {
        let (offsets, random) = (scan.offsets().collect(), fastrand::Rng::with_seed(seed));
        Sweeper { scan, offsets, order: Vec::new(), done: 0, random, code, region, call: None }
    }

    fn shuffle(&mut self) {
        (self.order, self.done) = ((0..self.offsets.len()).collect(), 0);
        self.random.shuffle(&mut self.order);
    }

    fn aim(&mut self, offset: i64, trips: u64) {
        let addresses = self.scan.addresses(self.region.address(), offset);
        self.call = addresses.map(|addresses| Call::of_scan(addresses, &[[0; REGISTER]; 4], trips));
    }

    fn pass(&mut self) -> Result<(), NoVisit> {
        let Some(call) = &mut self.call else { return Ok(()) };
        // SAFETY: with the addresses of one of its offsets a scan stays within its scratch memory, which is mapped,
        // writable and borrowed exclusively.
        Ok(unsafe { self.code.run(call) }?)
    }

    /// Compares what trips at some offsets leave behind with plain Rust, and touches the memory's pages.
    fn check(&mut self) -> Result<(), NoVisit> {
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
            // SAFETY: as in `pass`.
            unsafe { self.code.run(&mut call) }?;
            self.scan.play(&mut twin, &mut registers, offset, 1);
            let widest = self.scan.bytes().into_iter().max().unwrap_or(0) as usize;
            let same_memory =
                self.region.words().iter().zip(twin.as_chunks().0).all(|(word, bytes)| word.to_le_bytes() == *bytes);
            let same_registers = call.registers().iter().zip(&registers).all(|(a, b)| a[..widest] == b[..widest]);
            if !same_memory || !same_registers {
                return Err(NoVisit::Disagrees(format!(" at offset {offset}")));
            }
        }
        Ok(())
    }
}

impl Task for Sweeper<'_> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        self.check()
    }

    /// Trips that make a sample at the first offset, which is among the fastest of each scan: an aligned access, or a
    /// load apart from the store.
    fn warm_up(&mut self, solo: &Solo<'_>) -> Result<u64, NoVisit> {
        self.order = vec![0];
        let sample = solo.sample_ticks() as f64;
        // Early passes run cold and slow: grow step by step, so that they can't mislead.
        let grown = |trips: u64, ticks: u64| {
            ((trips as f64 * sample / ticks as f64 * 1.1).ceil() as u64).clamp(trips + 1, trips * 16)
        };
        let trips = solo.long_enough(self, 64, grown)?;
        self.shuffle();
        Ok(trips)
    }

    fn approach(&mut self, trips: u64) -> Result<(), NoVisit> {
        let offset = self.offsets[self.order[self.done]];
        self.aim(offset, trips.div_ceil(WARM_UP));
        self.pass()?;
        self.aim(offset, trips);
        Ok(())
    }

    fn run(&mut self, _trips: u64) -> Result<bool, NoVisit> {
        self.pass().map(|()| true)
    }

    fn taken(&mut self, _sample: &mut Sample) {
        self.done += 1;
    }

    /// In rising order of offsets.
    fn arrange(&mut self, round: &mut [Sample]) {
        let taken = round.to_vec();
        self.order.iter().zip(taken).for_each(|(&index, sample)| round[index] = sample);
        self.shuffle();
    }

    fn end(&mut self, _samples: &mut Samples) -> Result<(), NoVisit> {
        self.check()
    }
}
